<?php
/*
 * Calls of the operating system that only their coroutine waits for, as far as PHP can.
 */

namespace Swoole\Coroutine {
    use Ringroad\Loop;
    use Ringroad\Os;

    class System
    {
        public static function sleep(float $seconds): bool
        {
            if ($seconds < 0.001) {
                Os::warn('Timer must be greater than or equal to 0.001');
                return false;
            }
            $task = Loop::task();
            Loop::wait($seconds);
            return !$task->canceled;
        }

        public static function usleep(int $microseconds): bool
        {
            return self::sleep($microseconds / 1e6);
        }

        /** Lets other coroutines run before a call that blocks. */
        private static function turn(): void
        {
            if (Loop::$current !== null) {
                $id = Loop::$current->id;
                Loop::later(static fn () => Loop::resume($id));
                Loop::suspend();
            }
        }

        private static function named(string $name, string $what): void
        {
            if ($name === '') {
                throw new \ValueError("$what cannot be empty");
            }
        }

        public static function readFile(string $filename, int $flag = 0): string|false
        {
            self::named($filename, 'Filename');
            self::turn();
            $file = @\fopen($filename, 'r');
            if ($file === false) {
                Loop::$errno = \file_exists($filename) ? 13 : 2;
                return false;
            }
            $flag & LOCK_EX && \flock($file, LOCK_SH);
            return \stream_get_contents($file);
        }

        public static function writeFile(string $filename, string $fileContent, int $flags = 0): int|false
        {
            self::named($filename, 'Filename');
            self::turn();
            return @\file_put_contents($filename, $fileContent, $flags & (FILE_APPEND | LOCK_EX));
        }

        public static function fread($handle, int $length = 0): string|false
        {
            return $length > 0 ? \fread($handle, $length) : \stream_get_contents($handle);
        }

        public static function fwrite($handle, string $data, int $length = 0): int|false
        {
            return $length > 0 ? \fwrite($handle, $data, $length) : \fwrite($handle, $data);
        }

        public static function fgets($handle): string|false
        {
            return \fgets($handle);
        }

        public static function gethostbyname(string $domain_name, int $type = AF_INET, float $timeout = -1): string|false
        {
            if ($domain_name === '') {
                Os::warn('domain name is empty.', \SWOOLE_ERROR_INVALID_PARAMS);
                return false;
            }
            if ($type !== AF_INET && $type !== AF_INET6) {
                Os::warn('unknown protocol family, must be AF_INET or AF_INET6.', \SWOOLE_ERROR_INVALID_PARAMS);
                return false;
            }
            return self::addresses($domain_name, $type)[0] ?? false;
        }

        public static function dnsLookup(string $domain_name, float $timeout = 60, int $type = AF_INET): string|false
        {
            Loop::task();
            return self::gethostbyname($domain_name, $type, $timeout);
        }

        /** @return list<string> the addresses of a name; PHP looks it up in the calling thread */
        public static function addresses(string $name, int $family): array
        {
            if (\filter_var($name, FILTER_VALIDATE_IP)) {
                return [$name];
            }
            $found = [];
            if (\function_exists('socket_addrinfo_lookup')) {
                $hints = ['ai_family' => $family, 'ai_socktype' => SOCK_STREAM];
                foreach (@\socket_addrinfo_lookup($name, null, $hints) ?: [] as $one) {
                    $address = \socket_addrinfo_explain($one)['ai_addr'];
                    $found[] = $address['sin_addr'] ?? $address['sin6_addr'];
                }
            } elseif ($family === AF_INET) {
                $found = @\gethostbynamel($name) ?: [];
            }
            if (!$found) {
                Loop::$errno = \SWOOLE_ERROR_DNSLOOKUP_RESOLVE_FAILED;
            }
            return \array_values(\array_unique($found));
        }

        public static function getaddrinfo(
            string $domain, int $family = AF_INET, int $socktype = SOCK_STREAM, int $protocol = STREAM_IPPROTO_TCP,
            ?string $service = null, float $timeout = -1,
        ): array|false {
            if ($domain === '') {
                Os::warn('hostname is empty.', \SWOOLE_ERROR_INVALID_PARAMS);
                return false;
            }
            self::turn();
            return self::addresses($domain, $family) ?: false;
        }

        /** What a file system has; PHP tells sizes only. */
        public static function statvfs(string $path): array|false
        {
            self::named($path, 'Path');
            self::turn();
            $total = @\disk_total_space($path);
            if ($total === false) {
                Loop::$errno = 2;
                return false;
            }
            $free = (int) \disk_free_space($path);
            return ['bsize' => 4096, 'frsize' => 4096, 'blocks' => \intdiv((int) $total, 4096),
                'bfree' => \intdiv($free, 4096), 'bavail' => \intdiv($free, 4096), 'files' => 0, 'ffree' => 0,
                'favail' => 0, 'fsid' => 0, 'flag' => 0, 'namemax' => 255];
        }

        public static function exec(string $command, bool $get_error_stream = false): array|false
        {
            Loop::task();
            $pipes = [];
            $process = \proc_open($command, [1 => ['pipe', 'w']] + ($get_error_stream ? [2 => ['redirect', 1]] : []), $pipes);
            if ($process === false) {
                return false;
            }
            \stream_set_blocking($pipes[1], false);
            $output = '';
            while (!\feof($pipes[1])) {
                Loop::stream($pipes[1], true, -1);
                $output .= (string) \fread($pipes[1], 65536);
            }
            \fclose($pipes[1]);
            // It waits for the process, too: how that ended is told once, by the call that finds it ended.
            for ($pause = 0.001; ($state = \proc_get_status($process))['running']; $pause = \min($pause * 1.5, 0.02)) {
                Loop::wait($pause);
            }
            \proc_close($process);
            return ['code' => $state['signaled'] ? 0 : $state['exitcode'], 'signal' => $state['signaled'] ? $state['termsig'] : 0,
                'output' => $output];
        }

        public static function wait(float $timeout = -1): array|false
        {
            return self::waitPid(-1, $timeout);
        }

        public static function waitPid(int $pid, float $timeout = -1): array|false
        {
            $until = \hrtime(true) / 1e9 + $timeout;
            $task = Loop::task();
            for ($pause = 0.001; true; $pause = \min($pause * 1.5, 0.02)) {
                $got = \pcntl_waitpid($pid, $status, WNOHANG);
                if ($got > 0) {
                    return Os::ended($got, $status);
                }
                if ($got < 0) {
                    Loop::$errno = \pcntl_get_last_error();
                    return false;
                }
                $left = $timeout > 0 ? $until - \hrtime(true) / 1e9 : $pause;
                if ($left <= 0) {
                    Loop::$errno = 110;
                    return false;
                }
                Loop::wait(\min($pause, \max($left, 0.001)));
                if ($task->canceled) {
                    Loop::$errno = \SWOOLE_ERROR_CO_CANCELED;
                    return false;
                }
            }
        }

        /** The signal that came; `false` when none came in time. */
        public static function waitSignal(int|array $signals, float $timeout = -1): int|false
        {
            $task = Loop::task();
            $signals = (array) $signals;
            $over = static function () use ($signals): void {
                foreach ($signals as $signal) {
                    \pcntl_signal($signal, SIG_DFL);
                }
            };
            foreach ($signals as $signal) {
                Os::onSignal($signal, static function (int $signal) use ($task, $over): void {
                    $over();
                    Loop::resume($task->id, [$signal]);
                });
            }
            Loop::$signals++;
            try {
                $got = Loop::wait($timeout, $over);
            } finally {
                Loop::$signals--;
            }
            if ($got === false) {
                Loop::$errno = $task->canceled ? \SWOOLE_ERROR_CO_CANCELED : 110;
            }
            return \is_array($got) ? $got[0] : false;
        }

        public static function waitEvent(mixed $socket, int $events = \SWOOLE_EVENT_READ, float $timeout = -1): int|false
        {
            $stream = \Swoole\Event::stream($socket);
            $task = Loop::task();
            if ($stream === null) {
                Os::warn('unknown fd type', \SWOOLE_ERROR_EVENT_UNKNOWN_DATA);
                return false;
            }
            $over = static function () use ($stream): void {
                Loop::onReadable($stream, null);
                Loop::onWritable($stream, null);
            };
            $call = static fn (int $event) => static function () use ($over, $task, $event, $stream): void {
                $over();
                Loop::resume($task->id, $event);
            };
            $events & \SWOOLE_EVENT_READ && Loop::onReadable($stream, $call(\SWOOLE_EVENT_READ));
            $events & \SWOOLE_EVENT_WRITE && Loop::onWritable($stream, $call(\SWOOLE_EVENT_WRITE));
            $got = Loop::wait($timeout, $over);
            if ($got === \SWOOLE_EVENT_READ && $events & \SWOOLE_EVENT_WRITE) {
                $read = $except = null;
                $write = [$stream];
                @\stream_select($read, $write, $except, 0) && $got |= \SWOOLE_EVENT_WRITE;
            }
            return $got;
        }
    }
}
