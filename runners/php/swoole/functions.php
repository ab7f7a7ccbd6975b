<?php
/*
 * Functions of Swoole, and the short names of its classes.
 */

namespace {
    use Ringroad\Loop;
    use Ringroad\Os;

    if (!\function_exists('go')) {
        function go(callable $call, mixed ...$params): int|false
        {
            return \Swoole\Coroutine::create($call, ...$params);
        }
    }
    if (!\function_exists('defer')) {
        function defer(callable $call): void
        {
            \Swoole\Coroutine::defer($call);
        }
    }

    function swoole_version(): string
    {
        return SWOOLE_VERSION;
    }

    function swoole_cpu_num(): int
    {
        static $count = null;
        return $count ??= \max(1, (int) \preg_match_all('/^processor\s*:/m', (string) @\file_get_contents('/proc/cpuinfo')));
    }

    function swoole_last_error(): int
    {
        return Loop::$errno;
    }

    function swoole_errno(): int
    {
        return Loop::$errno;
    }

    function swoole_clear_error(): void
    {
        Loop::$errno = 0;
    }

    function swoole_ignore_error(int $error): void
    {
        Os::$ignored[$error] = true;
    }

    function swoole_strerror(int $errno, int $error_type = SWOOLE_STRERROR_SYSTEM): string
    {
        if ($error_type === SWOOLE_STRERROR_GAI) {
            return [-1 => 'Bad value for ai_flags', -2 => 'Name or service not known',
                -3 => 'Temporary failure in name resolution', -4 => 'Non-recoverable failure in name resolution',
                -6 => 'ai_family not supported', -7 => 'ai_socktype not supported', -8 => 'Servname not supported for ai_socktype',
                -10 => 'Memory allocation failure', -11 => 'System error'][$errno] ?? 'Unknown error';
        }
        if ($error_type === SWOOLE_STRERROR_DNS) {
            return ['Resolver Error 0 (no error)', 'Unknown host', 'Host name lookup failure', 'Unknown server error',
                'No address associated with name'][$errno] ?? 'Unknown resolver error';
        }
        if ($error_type === SWOOLE_STRERROR_SWOOLE || $errno > 500) {
            static $names = null;
            $names ??= \array_flip(\array_filter(\get_defined_constants(true)['user'] ?? [],
                static fn ($name) => \str_starts_with($name, 'SWOOLE_ERROR_'), ARRAY_FILTER_USE_KEY));
            return isset($names[$errno]) ? \ucfirst(\strtolower(\strtr(\substr($names[$errno], 13), '_', ' ')))
                : "Unknown error $errno";
        }
        return \function_exists('posix_strerror') ? \posix_strerror($errno) : "error $errno";
    }

    function swoole_error_log(int $level, string $msg): void
    {
        Os::note($level, $msg);
    }

    function swoole_error_log_ex(int $level, int $error, string $msg): void
    {
        Os::note($level, "(ERRNO $error): $msg", $error);
    }

    function swoole_async_set(array $settings): bool
    {
        \Swoole\Coroutine::set($settings);
        return true;
    }

    function swoole_async_dns_lookup_coro(string $domain_name, float $timeout = 60, int $type = AF_INET): string|false
    {
        return \Swoole\Coroutine\System::dnsLookup($domain_name, $timeout, $type);
    }

    function swoole_coroutine_create(callable $func, mixed ...$params): int|false
    {
        return \Swoole\Coroutine::create($func, ...$params);
    }

    function swoole_coroutine_defer(callable $callback): void
    {
        \Swoole\Coroutine::defer($callback);
    }

    function swoole_coroutine_socketpair(int $domain, int $type, int $protocol): array|false
    {
        return \socket_create_pair($domain, $type, $protocol, $pair)
            ? \array_map(\Swoole\Coroutine\Socket::import(...), $pair) : false;
    }

    function swoole_set_process_name(string $process_name): bool
    {
        return @\cli_set_process_title($process_name);
    }

    function swoole_get_local_ip(int $family = AF_INET): array
    {
        $found = [];
        foreach (\function_exists('net_get_interfaces') ? (\net_get_interfaces() ?: []) : [] as $name => $interface) {
            foreach ($interface['unicast'] ?? [] as $one) {
                if (($one['family'] ?? 0) === $family && isset($one['address']) && !\in_array($one['address'], ['127.0.0.1', '::1'], true)) {
                    $found[$name] = $one['address'];
                }
            }
        }
        return $found;
    }

    function swoole_get_local_mac(): array
    {
        $found = [];
        foreach (@\glob('/sys/class/net/*/address') ?: [] as $file) {
            $found[\basename(\dirname($file))] = \strtoupper(\trim((string) @\file_get_contents($file)));
        }
        return $found;
    }

    /** Waits, also the whole process, for clients that can be read or written. */
    function swoole_client_select(?array &$read, ?array &$write, ?array &$except, ?float $timeout = 0.5): int|false
    {
        $streams = static fn (?array $all) => \array_map(static fn ($one) => \Swoole\Event::stream($one), $all ?? []);
        [$in, $out, $other] = [$streams($read), $streams($write), null];
        if (!$in && !$out) {
            return false;
        }
        $count = @\stream_select($in, $out, $other, (int) $timeout, (int) (($timeout - (int) $timeout) * 1e6));
        $read = \array_intersect_key($read ?? [], $in ?: []);
        $write = \array_intersect_key($write ?? [], $out ?: []);
        $except = [];
        return $count;
    }

    function swoole_select(?array &$read, ?array &$write, ?array &$except, ?float $timeout = 0.5): int|false
    {
        return swoole_client_select($read, $write, $except, $timeout);
    }

    function swoole_hashcode(string $data, int $type = 0): int|false
    {
        return match ($type) {
            0 => (int) \hexdec(\hash('joaat', $data)),
            1 => \crc32($data),
            default => false,
        };
    }

    /** Types by the end of a file's name. */
    function &swoole_mime_types(): array
    {
        static $types = [
            'avif' => 'image/avif', 'bmp' => 'image/bmp', 'bz2' => 'application/x-bzip2', 'css' => 'text/css',
            'csv' => 'text/csv', 'doc' => 'application/msword', 'eot' => 'application/vnd.ms-fontobject',
            'epub' => 'application/epub+zip', 'gif' => 'image/gif', 'gz' => 'application/gzip', 'htm' => 'text/html',
            'html' => 'text/html', 'ico' => 'image/x-icon', 'ics' => 'text/calendar', 'jpeg' => 'image/jpeg', 'jpg' => 'image/jpeg',
            'js' => 'text/javascript', 'json' => 'application/json', 'jsonld' => 'application/ld+json', 'map' => 'application/json',
            'md' => 'text/markdown', 'mjs' => 'text/javascript', 'mp3' => 'audio/mpeg', 'mp4' => 'video/mp4',
            'mpeg' => 'video/mpeg', 'ogg' => 'audio/ogg', 'ogv' => 'video/ogg', 'otf' => 'font/otf', 'pdf' => 'application/pdf',
            'php' => 'application/x-httpd-php', 'png' => 'image/png', 'ppt' => 'application/vnd.ms-powerpoint',
            'rar' => 'application/vnd.rar', 'rtf' => 'application/rtf', 'sh' => 'application/x-sh', 'svg' => 'image/svg+xml',
            'tar' => 'application/x-tar', 'tiff' => 'image/tiff', 'ttf' => 'font/ttf', 'txt' => 'text/plain', 'wasm' => 'application/wasm',
            'wav' => 'audio/wav', 'webm' => 'video/webm', 'webp' => 'image/webp', 'woff' => 'font/woff', 'woff2' => 'font/woff2',
            'xhtml' => 'application/xhtml+xml', 'xls' => 'application/vnd.ms-excel', 'xml' => 'application/xml',
            'zip' => 'application/zip', '7z' => 'application/x-7z-compressed',
        ];
        return $types;
    }

    function swoole_mime_type_add(string $suffix, string $mime_type): bool
    {
        $types = &swoole_mime_types();
        if (isset($types[$suffix])) {
            return false;
        }
        $types[$suffix] = $mime_type;
        return true;
    }

    function swoole_mime_type_set(string $suffix, string $mime_type): void
    {
        $types = &swoole_mime_types();
        $types[$suffix] = $mime_type;
    }

    function swoole_mime_type_delete(string $suffix): bool
    {
        $types = &swoole_mime_types();
        $there = isset($types[$suffix]);
        unset($types[$suffix]);
        return $there;
    }

    function swoole_mime_type_get(string $filename): string
    {
        return swoole_mime_types()[\strtolower(\pathinfo($filename, PATHINFO_EXTENSION))] ?? 'application/octet-stream';
    }

    function swoole_mime_type_exists(string $filename): bool
    {
        return isset(swoole_mime_types()[\strtolower(\pathinfo($filename, PATHINFO_EXTENSION))]);
    }

    function swoole_mime_type_list(): array
    {
        return swoole_mime_types();
    }

    /** PHP looks names up itself: there is nothing to forget. */
    function swoole_clear_dns_cache(): void
    {
    }

    function swoole_substr_unserialize(string $str, int $offset, int $length = 0, array $options = []): mixed
    {
        return \unserialize($length > 0 ? \substr($str, $offset, $length) : \substr($str, $offset), $options);
    }

    function swoole_substr_json_decode(
        string $str, int $offset, int $length = 0, bool $associative = false, int $depth = 512, int $flags = 0,
    ): mixed {
        return \json_decode($length > 0 ? \substr($str, $offset, $length) : \substr($str, $offset), $associative, $depth, $flags);
    }

    function swoole_timer_tick(int $ms, callable $callback, mixed ...$params): int|false
    {
        return \Swoole\Timer::tick($ms, $callback, ...$params);
    }

    function swoole_timer_after(int $ms, callable $callback, mixed ...$params): int|false
    {
        return \Swoole\Timer::after($ms, $callback, ...$params);
    }

    function swoole_timer_exists(int $timer_id): bool
    {
        return \Swoole\Timer::exists($timer_id);
    }

    function swoole_timer_info(int $timer_id): ?array
    {
        return \Swoole\Timer::info($timer_id);
    }

    function swoole_timer_stats(): array
    {
        return \Swoole\Timer::stats();
    }

    function swoole_timer_list(): \Swoole\Timer\Iterator
    {
        return \Swoole\Timer::list();
    }

    function swoole_timer_clear(int $timer_id): bool
    {
        return \Swoole\Timer::clear($timer_id);
    }

    function swoole_timer_clear_all(): bool
    {
        return \Swoole\Timer::clearAll();
    }

    function swoole_event_add(mixed $fd, ?callable $read_callback = null, ?callable $write_callback = null, int $events = SWOOLE_EVENT_READ): int|false
    {
        return \Swoole\Event::add($fd, $read_callback, $write_callback, $events);
    }

    function swoole_event_set(mixed $fd, ?callable $read_callback = null, ?callable $write_callback = null, int $events = 0): bool
    {
        return \Swoole\Event::set($fd, $read_callback, $write_callback, $events);
    }

    function swoole_event_del(mixed $fd): bool
    {
        return \Swoole\Event::del($fd);
    }

    function swoole_event_write(mixed $fd, string $data): bool
    {
        return \Swoole\Event::write($fd, $data);
    }

    function swoole_event_wait(): void
    {
        \Swoole\Event::wait();
    }

    function swoole_event_rshutdown(): void
    {
        \Swoole\Event::rshutdown();
    }

    function swoole_event_exit(): void
    {
        \Swoole\Event::exit();
    }

    function swoole_event_defer(callable $callback): bool
    {
        return \Swoole\Event::defer($callback);
    }

    function swoole_event_cycle(?callable $callback, bool $before = false): bool
    {
        return \Swoole\Event::cycle($callback, $before);
    }

    function swoole_event_dispatch(): bool
    {
        return \Swoole\Event::dispatch();
    }

    function swoole_event_isset(mixed $fd, int $events = SWOOLE_EVENT_READ | SWOOLE_EVENT_WRITE): bool
    {
        return \Swoole\Event::isset($fd, $events);
    }

    \class_alias(\Swoole\Coroutine::class, 'Co');
    foreach (['Channel', 'WaitGroup', 'Barrier', 'System', 'Socket', 'Client', 'Scheduler', 'Server', 'Context', 'Iterator', 'Lock',
        'Http\Client', 'Http\Server'] as $name) {
        \class_alias("Swoole\\Coroutine\\$name", "Co\\$name");
    }
    unset($name);
    \class_alias(\Swoole\Coroutine\Channel::class, 'chan');
}

namespace Co {
    function run(callable $call, mixed ...$params): bool
    {
        return \Swoole\Coroutine\run($call, ...$params);
    }

    function go(callable $call, mixed ...$params): int|false
    {
        return \Swoole\Coroutine::create($call, ...$params);
    }

    function defer(callable $call): void
    {
        \Swoole\Coroutine::defer($call);
    }

    function batch(array $tasks, float $timeout = -1): array
    {
        return \Swoole\Coroutine\batch($tasks, $timeout);
    }

    function parallel(int $count, callable $call): void
    {
        \Swoole\Coroutine\parallel($count, $call);
    }

    function map(array $list, callable $call, float $timeout = -1): array
    {
        return \Swoole\Coroutine\map($list, $call, $timeout);
    }
}
