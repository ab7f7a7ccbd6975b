<?php
/*
 * Requests and responses of HTTP, as Swoole shows them.
 */

namespace Ringroad {
    use Swoole\Http\Request;
    use Swoole\Http\Response;
    use Throwable;

    /** Where a response goes. */
    interface Sink
    {
        /** The lines of an answer that has none of its own. */
        public const PLAIN = [['Server', 'swoole-http-server'], ['Content-Type', 'text/html', true]];

        /** The head, with the whole body, or (`$more`) with the first part of it. */
        public function head(int $status, array $lines, string $body, bool $more): bool;

        public function write(string $bytes): bool;

        public function end(array $trailers = []): bool;

        public function file(int $status, array $lines, string $path, int $offset, int $length): bool;

        /** The program threw before it answered. */
        public function fail(string $why): void;

        /** Becomes a WebSocket; `null` where the client has not offered one. */
        public function upgrade(array $lines, string $protocol): ?Socket;

        /** Ends the connection without an answer. */
        public function close(): bool;
    }

    /** One WebSocket with a client. */
    interface Socket
    {
        public function send(string $payload, int $opcode, int $flags): bool;

        public function finish(int $code, string $reason): bool;

        /** Says that it is to end. What the client still sends is taken. */
        public function leave(int $code, string $reason): bool;

        /** Where messages and the end go: `fn (?Frame $frame): void`. */
        public function listen(\Closure $take): void;

        public function isOpen(): bool;
    }

    /** Gives requests to the program's callback. */
    final class Dispatcher
    {
        /** `$call` gets the request, the response and where that goes. What it prints belongs to `$id`, if there is one. */
        public static function run(
            \Closure $call, Request $request, Response $response, Sink $sink, bool $coroutine, ?string $id = null,
        ): void {
            if (!$coroutine) {
                self::guarded($call, $request, $response, $sink, $id);
            } elseif (Loop::start([self::class, 'guarded'], [$call, $request, $response, $sink, $id]) === false) {
                Os::warn('Swoole\Http\Server->onRequest handler error');
                $response->drop();
                $sink->head(503, [], '', false);
            }
        }

        public static function guarded(\Closure $call, Request $request, Response $response, Sink $sink, ?string $id): void
        {
            $served = $id === null ? null : Printed::serve($id);
            try {
                $call($request, $response, $sink);
            } catch (Throwable $why) {
                Os::say('PHP Fatal error:  Uncaught ' . Os::shown($why)[0] . "\n");
                $response->drop();
                // The log has the last line of it.
                [$text, $file, $line] = Os::shown($why);
                $sink->fail("$text\n" . $why::class . ': ' . \strtr($why->getMessage(), "\r\n", '  ') . " in $file:$line");
            }
            if ($served !== null && !($sink instanceof Stream && $sink->socket?->isOpen())) {
                Printed::settle($served);
            }
        }
    }

    /** Uploads that are not moved go with the last reference to their request: another coroutine may still need them. */
    final class Uploads
    {
        public array $files = [];

        public function __destruct()
        {
            foreach ($this->files as $file) {
                @\unlink($file);
            }
        }
    }

    /** Requests as Swoole shows them. */
    final class Message
    {
        /**
         * Takes a line with a name that is there already. `$headers` has the values joined, as RFC 9110 §5.3 says, and cookies
         * as RFC 9113 §8.2.3; `$repeated` has them one by one, as Swoole shows them. Cookies are one line for it too.
         */
        public static function repeat(array &$headers, array &$repeated, string $name, string $value): void
        {
            if ($name === 'cookie') {
                $headers[$name] .= "; $value";
                return;
            }
            $repeated[$name] ??= [$headers[$name]];
            $repeated[$name][] = $value;
            $headers[$name] .= ", $value";
        }

        public static function request(
            int $fd, string $method, string $path, ?string $query, string $protocol, array $headers,
            string $client, int $clientPort, int $port, string $body, array $settings = [], string $server = '',
            array $repeated = [],
        ): Request {
            $request = new Request();
            $request->fd = $fd;
            $request->header = $repeated ? \array_replace($headers, $repeated) : $headers;
            $now = \microtime(true);
            $seconds = (int) $now;
            $request->server = [
                'request_method' => $method,
                'request_uri' => $path,
                'path_info' => \str_contains($path, '%') ? \rawurldecode($path) : $path,
                'request_time' => $seconds,
                'request_time_float' => $now,
                'server_protocol' => $protocol,
                'server_port' => $port,
                'remote_port' => $clientPort,
                'server_addr' => $server,
                'remote_addr' => $client,
                'master_time' => $seconds,
            ];
            if ($query !== null && $query !== '') {
                $request->server = ['query_string' => $query] + $request->server;
                \parse_str($query, $request->get);
            }
            if (isset($headers['cookie']) && ($settings['http_parse_cookie'] ?? true)) {
                $request->cookie = [];
                $most = (int) \ini_get('max_input_vars');
                foreach (\explode(';', $headers['cookie']) as $number => $pair) {
                    if ($number >= $most) {
                        \trigger_error("Input variables exceeded $most. To increase the limit change max_input_vars in php.ini.",
                            E_USER_WARNING);
                        break;
                    }
                    $parts = \explode('=', \trim($pair), 2);
                    if ($parts[0] !== '') {
                        $request->cookie[$parts[0]] = \urldecode($parts[1] ?? '');
                    }
                }
            }
            if ($body !== '' && ($settings['http_compression'] ?? true)) {
                $body = match (\strtolower($headers['content-encoding'] ?? '')) {
                    'gzip' => self::plain(@\gzdecode($body, 1 << 26), $body),
                    'deflate' => self::plain(@\gzuncompress($body, 1 << 26) ?: @\gzinflate($body, 1 << 26), $body),
                    default => $body,
                };
            }
            if ($body === '') {
                return $request;
            }
            $request->fill($body);
            $type = \strtolower($headers['content-type'] ?? '');
            if (!($settings['http_parse_post'] ?? true)) {
                return $request;
            }
            if (\str_starts_with($type, 'application/x-www-form-urlencoded') && $body !== '') {
                \parse_str($body, $request->post);
            } elseif (\str_starts_with($type, 'multipart/form-data')
                && \preg_match('/boundary="?([^";]+)"?/i', $headers['content-type'], $found)) {
                self::multipart($request, $body, $found[1], $settings['upload_tmp_dir'] ?? \sys_get_temp_dir(),
                    !empty($settings['http_parse_files']));
            }
            return $request;
        }

        private static function plain(string|false $text, string $body): string
        {
            return $text === false ? $body : $text;
        }

        /** What stands behind the first `;` of a line, by names in lower case; values may be in quotes. */
        private static function parameters(string $line): array
        {
            $all = [];
            \preg_match_all('/;\s*([^=;\s]+)\s*=\s*(?:"((?:[^"\\\\]++|\\\\.)*+)"|([^;]*))/s', $line, $found, PREG_SET_ORDER);
            foreach ($found as $one) {
                $all[\strtolower($one[1])] ??= isset($one[3]) ? \trim($one[3]) : \preg_replace('/\\\\(["\\\\])/', '$1', $one[2]);
            }
            return $all;
        }

        /** `$split`: files with keys in their names are ordered as PHP's own `$_FILES`. */
        private static function multipart(Request $request, string $body, string $boundary, string $folder, bool $split): void
        {
            $fields = [];
            $parts = \explode("\r\n--$boundary", "\r\n" . $body);
            foreach (\array_slice($parts, 1) as $part) {
                if (!\str_starts_with($part, "\r\n") || !\str_contains($part, "\r\n\r\n")) {
                    continue;
                }
                [$head, $content] = \explode("\r\n\r\n", \substr($part, 2), 2);
                $says = self::parameters(\preg_match('/^content-disposition:([^\r\n]*)/im', $head, $found) ? $found[1] : '');
                $name = $says['name'] ?? null;
                if ($name === null) {
                    continue;
                }
                if (!isset($says['filename'])) {
                    $fields[] = \urlencode($name) . '=' . \urlencode($content);
                    continue;
                }
                // Old browsers send the whole path, with backslashes.
                $file = \preg_replace('#^.*[/\\\\]#s', '', $says['filename']);
                $type = \preg_match('/^content-type:\s*([^\r\n;]+)/im', $head, $found) ? \trim($found[1]) : '';
                $path = '';
                $error = $file === '' ? UPLOAD_ERR_NO_FILE : UPLOAD_ERR_OK;
                if ($error === UPLOAD_ERR_OK) {
                    $path = (string) @\tempnam($folder, 'swoole.upfile.');
                    if ($path === '' || @\file_put_contents($path, $content) !== \strlen($content)) {
                        $error = UPLOAD_ERR_CANT_WRITE;
                    } else {
                        $request->keep($path);
                    }
                }
                $one = ['name' => $file, 'type' => $error === UPLOAD_ERR_NO_FILE ? '' : $type, 'tmp_name' => $path, 'error' => $error,
                    'size' => \strlen($content)];
                // The keys of PHP's own arrays: `a[b][]`.
                \preg_match('/^([^\[]+)(.*)$/', $name, $keys);
                \preg_match_all('/\[([^\]]*)\]/', $keys[2] ?? '', $more);
                $columns = $split && $more[1] ? $one : [$one];
                foreach ($columns as $what => $value) {
                    $place = &$request->files[\strtr($keys[1] ?? $name, '. ', '__')];
                    foreach ($columns === $one ? [$what, ...$more[1]] : $more[1] as $key) {
                        if ($key === '') {
                            $place[] = null;
                            $key = \array_key_last($place);
                        }
                        $place = &$place[$key];
                    }
                    $place = $value;
                    unset($place);
                }
            }
            if ($fields) {
                \parse_str(\implode('&', $fields), $request->post);
            }
        }
    }
}

namespace Swoole\Http {
    use Ringroad\Loop;
    use Ringroad\Os;
    use Ringroad\Sink;

    class Request
    {
        public int $fd = 0;
        public int $streamId = 0;
        public ?array $header = null;
        public ?array $server = null;
        public ?array $cookie = null;
        public ?array $get = null;
        public ?array $files = null;
        public ?array $post = null;
        public ?array $tmpfiles = null;
        private string $content = '';
        private string $raw = '';
        private bool $completed = true;
        private array $options = [];
        private ?\Ringroad\Uploads $uploads = null;

        /** @internal A file of this request. */
        public function keep(string $path): void
        {
            $this->tmpfiles[] = $path;
            $this->uploads ??= new \Ringroad\Uploads();
            $this->uploads->files[] = $path;
        }

        public function __debugInfo(): array
        {
            return ['fd' => $this->fd, 'streamId' => $this->streamId, 'header' => $this->header, 'server' => $this->server,
                'cookie' => $this->cookie, 'get' => $this->get, 'files' => $this->files, 'post' => $this->post,
                'tmpfiles' => $this->tmpfiles];
        }

        /** @internal */
        public function fill(string $content): void
        {
            $this->content = $content;
        }

        /** A request that the program itself gives its bytes. */
        public static function create(array $options = []): Request
        {
            $made = new self();
            $made->completed = false;
            $made->options = $options;
            $made->header = [];
            return $made;
        }

        public function parse(string $data): int|false
        {
            if ($this->completed) {
                return false;
            }
            $this->raw .= $data;
            if (\preg_match('#^([A-Z]+) \S+ HTTP/1\.[01]\r\n#', $this->raw, $found)) {
                $this->server['request_method'] = $found[1];
            }
            $end = \strpos($this->raw, "\r\n\r\n");
            if ($end === false) {
                return \strlen($data);
            }
            $lines = \explode("\r\n", \substr($this->raw, 0, $end));
            if (!\preg_match('#^([A-Z]+) (\S+) (HTTP/1\.[01])$#', $lines[0], $found)) {
                return false;
            }
            $headers = [];
            foreach (\array_slice($lines, 1) as $line) {
                [$name, $value] = \explode(':', $line, 2) + [1 => ''];
                $headers[\strtolower($name)] = \trim($value);
            }
            $body = \substr($this->raw, $end + 4);
            $length = (int) ($headers['content-length'] ?? 0);
            if (\strlen($body) < $length) {
                return \strlen($data);
            }
            $extra = \strlen($body) - $length;
            $this->completed = true;
            [$path, $query] = \explode('?', $found[2], 2) + [1 => null];
            $settings = ['http_parse_files' => true];
            foreach (['parse_cookie', 'parse_body' => 'parse_post', 'parse_files'] as $option => $name) {
                $option = \is_int($option) ? $name : $option;
                isset($this->options[$option]) && $settings["http_$name"] = $this->options[$option];
            }
            $made = \Ringroad\Message::request(0, $found[1], $path, $query, $found[3], $headers, '', 0, 0,
                (string) \substr($body, 0, $length), $settings);
            foreach (['header', 'cookie', 'get', 'files', 'post', 'tmpfiles'] as $name) {
                $this->$name = $made->$name;
            }
            $this->uploads = $made->uploads;
            $this->server = \array_diff_key($made->server, ['remote_port' => 1, 'remote_addr' => 1, 'server_port' => 1,
                'master_time' => 1]);
            $this->content = $made->getContent();
            return \strlen($data) - $extra;
        }

        public function getData(): string|false
        {
            if ($this->raw !== '') {
                return $this->raw;
            }
            $query = isset($this->server['query_string']) ? '?' . $this->server['query_string'] : '';
            $text = "{$this->server['request_method']} {$this->server['request_uri']}$query {$this->server['server_protocol']}\r\n";
            foreach ($this->header ?? [] as $name => $value) {
                foreach ((array) $value as $one) {
                    $text .= \ucwords($name, '-') . ": $one\r\n";
                }
            }
            return "$text\r\n$this->content";
        }

        public function rawContent(): string|false
        {
            return $this->content;
        }

        public function getContent(): string|false
        {
            return $this->content;
        }

        public function getMethod(): string|false
        {
            return $this->server['request_method'] ?? false;
        }

        public function isCompleted(): bool
        {
            return $this->completed;
        }
    }

    /** A line `Set-Cookie`, part by part. */
    class Cookie
    {
        private const NOTHING = ['name' => '', 'value' => '', 'path' => '', 'domain' => '', 'sameSite' => '', 'priority' => '',
            'encode' => true, 'expires' => 0, 'secure' => false, 'httpOnly' => false, 'partitioned' => false];
        private array $parts = self::NOTHING;
        private bool $made = false;

        public function __construct(bool $encode = true)
        {
            $this->made = true;
            $this->parts['encode'] = $encode;
        }

        public function reset(): void
        {
            $this->parts = ['encode' => $this->parts['encode']] + self::NOTHING;
            $this->parts = \array_replace(self::NOTHING, $this->parts);
        }

        private function with(string $part, mixed $value): static
        {
            if (!$this->made) {
                throw new \Swoole\Error('Swoole\Http\Cookie is not initialized');
            }
            $this->parts[$part] = $value;
            return $this;
        }

        public function withName(string $name): static
        {
            return $this->with('name', $name);
        }

        public function withValue(string $value = ''): static
        {
            return $this->with('value', $value);
        }

        public function withExpires(int $expires = 0): static
        {
            return $this->with('expires', $expires);
        }

        public function withPath(string $path = ''): static
        {
            return $this->with('path', $path);
        }

        public function withDomain(string $domain = ''): static
        {
            return $this->with('domain', $domain);
        }

        public function withSecure(bool $secure = false): static
        {
            return $this->with('secure', $secure);
        }

        public function withHttpOnly(bool $httpOnly = false): static
        {
            return $this->with('httpOnly', $httpOnly);
        }

        public function withSameSite(string $sameSite = ''): static
        {
            return $this->with('sameSite', $sameSite);
        }

        public function withPriority(string $priority = ''): static
        {
            return $this->with('priority', $priority);
        }

        public function withPartitioned(bool $partitioned = false): static
        {
            return $this->with('partitioned', $partitioned);
        }

        public function toArray(): array
        {
            return $this->parts;
        }

        public function toString(): string|false
        {
            if (!$this->made) {
                Loop::$errno = \SWOOLE_ERROR_HTTP_COOKIE_UNAVAILABLE;
                return false;
            }
            ['name' => $name, 'value' => $value, 'encode' => $encode, 'expires' => $expires, 'path' => $path, 'domain' => $domain] = $this->parts;
            if ($name === '') {
                Os::warn('The name cannot be empty', \SWOOLE_ERROR_HTTP_COOKIE_UNAVAILABLE);
                return false;
            }
            if (\preg_match('/[=,; \t\r\n\v\f\0]/', $name)) {
                Os::warn('The name cannot contain "=", ",", ";", " ", "\t", "\r", "\n", "\013", or "\014"', \SWOOLE_ERROR_HTTP_COOKIE_UNAVAILABLE);
                return false;
            }
            if (!$encode && \preg_match('/[,; \t\r\n\v\f\0]/', $value)) {
                Os::warn('The value cannot contain ",", ";", " ", "\t", "\r", "\n", "\013", or "\014"', \SWOOLE_ERROR_HTTP_COOKIE_UNAVAILABLE);
                return false;
            }
            if (\preg_match('/[,;\t\r\n\v\f\0]/', $path . $domain . $this->parts['sameSite'] . $this->parts['priority'])) {
                return false;
            }
            $text = $value === '' ? "$name=deleted; expires=" . \gmdate('D, d-M-Y H:i:s \G\M\T', 1) . '; Max-Age=0'
                : "$name=" . ($encode ? \urlencode($value) : $value);
            if ($value !== '' && $expires > 0) {
                $text .= '; expires=' . \gmdate('D, d-M-Y H:i:s \G\M\T', $expires) . '; Max-Age=' . \max(0, $expires - \time());
            }
            return $text . ($path !== '' ? "; path=$path" : '') . ($domain !== '' ? "; domain=$domain" : '')
                . ($this->parts['secure'] ? '; secure' : '') . ($this->parts['httpOnly'] ? '; HttpOnly' : '')
                . ($this->parts['sameSite'] !== '' ? '; SameSite=' . $this->parts['sameSite'] : '')
                . ($this->parts['priority'] !== '' ? '; Priority=' . $this->parts['priority'] : '')
                . ($this->parts['partitioned'] ? '; Partitioned' : '');
        }
    }

    class Response
    {
        public ?array $header = null;
        public ?array $cookie = null;
        public ?array $trailer = null;
        private int $status = 0;
        private string $reason = '';
        /** @var array<string, array{0: string, 1: string|array}> by the name in lower case */
        private array $lines = [];
        private array $cookies = [];
        private bool $begun = false;
        private bool $ended = false;
        private bool $detached = false;
        private ?\Ringroad\Socket $socket = null;
        private ?\Swoole\Coroutine\Channel $frames = null;
        private ?\Closure $finished = null;
        /** The coding to compress with; empty: none. */
        private string $coding = '';
        private array $settings = [];
        /** The coding that the body is compressed with. */
        private string $packed = '';
        private const COMPRESSED = '#^(text/(?!raw)|application/(json|javascript|xml|xhtml|x-javascript|rss|atom|manifest|wasm|ld|vnd)|image/(svg|bmp)|font/)#';

        /** @internal */
        public function __construct(private ?Sink $sink = null, public int $fd = 0)
        {
        }

        public function __debugInfo(): array
        {
            return ['fd' => $this->fd, 'socket' => null, 'header' => $this->header, 'cookie' => $this->cookie,
                'trailer' => $this->trailer];
        }

        /** @internal What the request and the server allow. */
        public function allow(array $settings, array $headers): void
        {
            $this->settings = $settings;
            if ($settings['http_compression'] ?? true) {
                $accepted = \strtolower($headers['accept-encoding'] ?? '');
                $this->coding = \str_contains($accepted, 'gzip') ? 'gzip' : (\str_contains($accepted, 'deflate') ? 'deflate' : '');
            }
        }

        /** @internal Called when the handshake of a WebSocket is done. */
        public function onUpgrade(\Closure $call): void
        {
            $this->finished = $call;
        }

        /** @internal Nothing more is answered with this object. */
        public function drop(): void
        {
            $this->ended = true;
        }

        /** An answer to a request the object of which is not there any more. */
        public static function create(object|array|int $server = -1, int $fd = -1): Response|false
        {
            if (\is_int($server)) {
                $fd = $server;
                $server = \Swoole\Server::$running;
            }
            if (\is_array($server) && ($server[0] ?? null) instanceof \Swoole\Coroutine\Socket) {
                $server = $server[0];
            }
            if (\is_array($server)) {
                [$server, $fd] = $server + [1 => -1];
                $server = $server instanceof \Swoole\Server ? $server : \Swoole\Server::$running;
            }
            if ($server instanceof \Swoole\Coroutine\Socket) {
                $made = new self(new \Ringroad\SocketSink($server), $server->fd);
                return $made;
            }
            $sink = $server instanceof \Swoole\Server ? $server->sink($fd) : null;
            return $sink === null ? false : new self($sink, $fd);
        }

        /** The last reference is gone: an answer that was not given is 500. */
        public function __destruct()
        {
            if ($this->sink !== null && !$this->ended && !$this->detached && $this->socket === null) {
                if (!$this->begun) {
                    $this->status = $this->status ?: 500;
                }
                $this->end();
            }
        }

        public function isWritable(): bool
        {
            return $this->sink !== null && !$this->ended && !$this->detached;
        }

        /** @internal */
        public function isDetached(): bool
        {
            return $this->detached;
        }

        private function usable(): bool
        {
            if (!$this->isWritable()) {
                \trigger_error('Swoole\Http\Response::' . \debug_backtrace(DEBUG_BACKTRACE_IGNORE_ARGS, 2)[1]['function']
                    . '(): http response is unavailable (maybe it has been ended or detached)', E_USER_WARNING);
                Loop::$errno = \SWOOLE_ERROR_HTTP_CONTEXT_UNAVAILABLE;
                return false;
            }
            return true;
        }

        public function initHeader(): bool
        {
            return $this->isWritable();
        }

        public function status(int $status, string $reason = ''): bool
        {
            if (!$this->isWritable() || $this->begun) {
                return false;
            }
            $this->status = $status;
            $this->reason = $reason;
            return true;
        }

        public function setStatusCode(int $status, string $reason = ''): bool
        {
            return $this->status($status, $reason);
        }

        public function header(string $key, string|array|int|float|bool|null $value, bool $format = true): bool
        {
            if (!$this->isWritable() || $this->begun) {
                return false;
            }
            if ($key === '') {
                return false;
            }
            if ($value === null) {
                // The line is taken back.
                unset($this->lines[\strtolower($key)]);
                return true;
            }
            // Space around a value is none of it; a null among several is no line.
            $value = \is_array($value)
                ? \array_map(fn ($one) => \trim((string) $one), \array_filter($value, fn ($one) => $one !== null))
                : \trim((string) $value);
            if (!\preg_match('/^[!#$%&\'*+.^_`|~0-9A-Za-z-]+$/', $key)) {
                \trigger_error("$key is no name of a header line", E_USER_WARNING);
                return false;
            }
            $name = $format ? \ucwords(\strtolower($key), '-') : $key;
            $this->header[$name] = $value;
            $this->lines[\strtolower($key)] = [$name, $value];
            return true;
        }

        public function setHeader(string $key, string|array|int|float|bool|null $value, bool $format = true): bool
        {
            return $this->header($key, $value, $format);
        }

        public function trailer(string $key, string $value): bool
        {
            if (!$this->isWritable() || $key === '' || \preg_match('/[\r\n\0]/', $key . $value)) {
                return false;
            }
            $this->trailer[$key] = $value;
            return true;
        }

        public function cookie(
            Cookie|string $name_or_object, ?string $value = '', ?int $expires = 0, string $path = '', string $domain = '',
            bool $secure = false, bool $httponly = false, string $samesite = '', string $priority = '',
            bool $partitioned = false, bool $encode = true,
        ): bool {
            if (!$this->isWritable() || $this->begun) {
                return false;
            }
            if (!$name_or_object instanceof Cookie) {
                $name_or_object = (new Cookie($encode))->withName($name_or_object)->withValue($value ?? '')->withExpires($expires ?? 0)
                    ->withPath($path)->withDomain($domain)->withSecure($secure)->withHttpOnly($httponly)
                    ->withSameSite($samesite)->withPriority($priority)->withPartitioned($partitioned);
            }
            $line = $name_or_object->toString();
            if ($line === false) {
                return false;
            }
            $this->cookie[] = $line;
            $this->cookies[] = $line;
            return true;
        }

        public function setCookie(Cookie|string $name, ?string $value = '', mixed ...$more): bool
        {
            return $this->cookie($name, $value, ...$more);
        }

        public function rawcookie(
            Cookie|string $name_or_object, ?string $value = '', ?int $expires = 0, string $path = '', string $domain = '',
            bool $secure = false, bool $httponly = false, string $samesite = '', string $priority = '',
            bool $partitioned = false,
        ): bool {
            return $this->cookie($name_or_object, $value, $expires, $path, $domain, $secure, $httponly, $samesite, $priority,
                $partitioned, false);
        }

        public function setRawCookie(Cookie|string $name, ?string $value = '', mixed ...$more): bool
        {
            return $this->rawcookie($name, $value, ...$more);
        }

        public function redirect(string $location, int $http_code = 302): bool
        {
            return $this->usable() && $this->header('Location', $location) && $this->status($http_code) && $this->end();
        }

        /** The lines in the order in which they were set, and those that every answer has. */
        private function all(): array
        {
            if (!$this->lines && !$this->cookies && $this->packed === '' && $this->reason === '') {
                return \Ringroad\Sink::PLAIN;
            }
            $all = [];
            foreach ($this->lines as [$name, $value]) {
                foreach ((array) $value as $one) {
                    if (\strpbrk((string) $one, "\r\n\0") !== false) {
                        Os::warn('Header may not contain ' . (\str_contains((string) $one, "\0") ? 'NUL bytes'
                            : 'more than a single header, new line detected'));
                        continue;
                    }
                    $all[] = [$name, (string) $one];
                }
            }
            foreach ($this->cookies as $line) {
                $all[] = ['Set-Cookie', $line];
            }
            if (!isset($this->lines['server'])) {
                $all[] = ['Server', 'swoole-http-server'];
            }
            if (!isset($this->lines['content-type'])) {
                $all[] = ['Content-Type', 'text/html', true];
            }
            if ($this->packed !== '') {
                $all[] = ['Content-Encoding', $this->packed, true];
            }
            if ($this->reason !== '') {
                $all[] = [':reason', $this->reason];
            }
            return $all;
        }

        public function write(string $content): bool
        {
            if (!$this->usable()) {
                return false;
            }
            if ($content === '') {
                Os::warn('data to send is empty', \SWOOLE_ERROR_NO_PAYLOAD);
                return false;
            }
            if ($this->begun) {
                return $this->sink->write($content);
            }
            $this->begun = true;
            if (isset($this->lines['content-length']) && $this->settings !== []) {
                Os::note(\SWOOLE_LOG_WARNING, 'Content-Length of the program is ignored: the answer is written part by part');
            }
            if ($this->trailer) {
                $this->header['Trailer'] ??= \implode(', ', \array_keys($this->trailer));
                $this->lines['trailer'] = ['Trailer', $this->header['Trailer']];
            }
            return $this->sink->head($this->status ?: 200, $this->all(), $content, true);
        }

        private function compressed(string $content): string
        {
            if ($this->coding === '') {
                return $content;
            }
            $least = $this->settings['http_compression_min_length'] ?? $this->settings['compression_min_length'] ?? 20;
            if (\strlen($content) < $least || isset($this->lines['content-encoding'])) {
                return $content;
            }
            $type = \trim(\explode(';', (string) (((array) ($this->lines['content-type'][1] ?? 'text/html'))[0]))[0]);
            $types = $this->settings['http_compression_types'] ?? $this->settings['compression_types'] ?? null;
            if (\is_array($types) ? !\in_array($type, $types, true) : !\preg_match(self::COMPRESSED, $type)) {
                return $content;
            }
            $level = (int) ($this->settings['http_compression_level'] ?? $this->settings['http_gzip_level'] ?? 1);
            if (isset($this->lines['content-length'])) {
                Os::note(\SWOOLE_LOG_WARNING, 'Content-Length of the program is ignored: the answer is compressed');
            }
            $this->packed = $this->coding;
            return $this->coding === 'gzip' ? \gzencode($content, $level) : \gzcompress($content, $level);
        }

        public function end(?string $content = null): bool
        {
            if (!$this->usable()) {
                return false;
            }
            if ($this->status === 101 && $this->finished !== null && !$this->begun) {
                // A handshake that the program has made itself.
                return $this->upgrade();
            }
            $this->ended = true;
            if (!$this->begun) {
                $content = $this->compressed($content ?? '');
                // A response behind Ringroad has no settings, and its size no limit.
                $most = $this->settings === [] ? PHP_INT_MAX : \min((int) ($this->settings['output_buffer_size'] ?? PHP_INT_MAX),
                    (int) ($this->settings['buffer_output_size'] ?? PHP_INT_MAX));
                if (\strlen($content) > $most) {
                    Os::note(\SWOOLE_LOG_WARNING, 'ProcessFactory::finish() (ERRNO ' . \SWOOLE_ERROR_DATA_LENGTH_TOO_LARGE
                        . '): The length of data [' . \strlen($content) . "] exceeds the output buffer size[$most], please use the "
                        . 'sendfile, chunked transfer mode or adjust the output_buffer_size');
                    Loop::$errno = \SWOOLE_ERROR_DATA_LENGTH_TOO_LARGE;
                    $this->sink->close();
                    return false;
                }
                return $this->sink->head($this->status ?: 200, $this->all(), $content, false);
            }
            return ($content === null || $content === '' || $this->sink->write($content)) && $this->sink->end($this->trailer ?? []);
        }

        public function sendfile(string $filename, int $offset = 0, int $length = 0): bool
        {
            if (!$this->usable()) {
                return false;
            }
            $path = \realpath($filename);
            \clearstatcache(true, (string) $path);
            if ($this->begun) {
                Os::warn("can't use sendfile when HTTP chunk is enabled");
                return false;
            }
            if ($path === false) {
                Os::warn("open($filename) failed, Error: No such file or directory[2]", 2);
                return false;
            }
            $size = (int) @\filesize($path);
            if (!\is_file($path) || $offset < 0 || $length < 0 || $offset > $size || $length > 0 && $offset + $length > $size) {
                Os::warn(\is_file($path) ? "parameter \$offset[$offset] exceeds the file size" : "file[$filename] is not a regular file",
                    \SWOOLE_ERROR_SERVER_IS_NOT_REGULAR_FILE);
                return false;
            }
            if ($size === 0) {
                return $this->end();
            }
            $this->ended = true;
            if (!isset($this->lines['content-type'])) {
                $this->lines['content-type'] = ['Content-Type', \swoole_mime_type_get($path)];
            }
            return $this->sink->file($this->status ?: 200, $this->all(), $path, $offset, $length);
        }

        /** The callback leaves the answer to another one, which has the number of the connection. */
        public function detach(): bool
        {
            if (!$this->isWritable()) {
                return false;
            }
            $this->detached = true;
            return true;
        }

        /** Makes a WebSocket of the request; messages come from `recv`. */
        public function upgrade(): bool
        {
            if (!$this->usable()) {
                return false;
            }
            if ($this->socket !== null) {
                return true;
            }
            $lines = [];
            $protocol = '';
            foreach ($this->lines as $name => [$shown, $value]) {
                if ($name === 'sec-websocket-protocol') {
                    $protocol = \is_array($value) ? $value[0] : $value;
                } elseif (!\in_array($name, ['upgrade', 'connection', 'sec-websocket-accept', 'sec-websocket-version'], true)) {
                    foreach ((array) $value as $one) {
                        $lines[] = [$shown, (string) $one];
                    }
                }
            }
            foreach ($this->cookies as $line) {
                $lines[] = ['Set-Cookie', $line];
            }
            $socket = $this->sink->upgrade($lines, $protocol);
            if ($socket === null) {
                $this->ended = true;
                return false;
            }
            $this->socket = $socket;
            if ($this->finished !== null) {
                $this->ended = true;
                ($this->finished)($socket);
                return true;
            }
            $this->frames = new \Swoole\Coroutine\Channel(1 << 20);
            $frames = $this->frames;
            // The loop is no coroutine: one is made for each message.
            $socket->listen(static fn ($frame) => $frame === null
                ? Loop::start(static fn () => $frames->close(), [])
                : Loop::start(static fn () => $frames->push($frame), []));
            return true;
        }

        public function recv(float $timeout = 0): \Swoole\WebSocket\Frame|false|string
        {
            if ($this->frames === null) {
                Loop::$errno = \SWOOLE_ERROR_WEBSOCKET_UNCONNECTED;
                return false;
            }
            $frame = $this->frames->pop($timeout === 0.0 ? -1 : $timeout);
            if ($frame === false) {
                if ($this->frames->errCode === \SWOOLE_CHANNEL_CLOSED) {
                    Loop::$errno = 0;
                    return '';
                }
                Loop::$errno = $this->frames->errCode === \SWOOLE_CHANNEL_CANCELED ? 125 : 110;
                return false;
            }
            return $frame;
        }

        public function push(
            \Swoole\WebSocket\Frame|string $data, int $opcode = \WEBSOCKET_OPCODE_TEXT, int $flags = \SWOOLE_WEBSOCKET_FLAG_FIN,
        ): bool {
            if ($this->socket === null || !$this->socket->isOpen()) {
                Loop::$errno = \SWOOLE_ERROR_WEBSOCKET_UNCONNECTED;
                return false;
            }
            [$payload, $opcode, $flags] = \Swoole\WebSocket\Frame::parts($data, $opcode, $flags);
            if ($opcode > 10) {
                Os::warn('the maximum value of opcode is 10', \SWOOLE_ERROR_WEBSOCKET_BAD_OPCODE);
                return false;
            }
            if ($opcode === \WEBSOCKET_OPCODE_CLOSE) {
                $code = \strlen($payload) >= 2 ? \unpack('n', $payload)[1] : 1000;
                return $this->socket->leave($code, (string) \substr($payload, 2));
            }
            return $this->socket->send($payload, $opcode, $flags);
        }

        public function ping(string $data = ''): bool
        {
            return $this->push($data, \WEBSOCKET_OPCODE_PING);
        }

        public function disconnect(int $code = \SWOOLE_WEBSOCKET_CLOSE_NORMAL, string $reason = ''): bool
        {
            return $this->socket !== null && $this->socket->finish($code, $reason);
        }

        public function close(): bool
        {
            if ($this->socket !== null) {
                $this->ended = true;
                return $this->socket->finish(1000, '');
            }
            if ($this->sink === null) {
                return false;
            }
            $this->ended = true;
            return $this->sink->close();
        }
    }
}
