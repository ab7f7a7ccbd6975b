<?php
/*
 * Timers and events of streams, and the flags of hooks.
 */

namespace Swoole {
    use Ringroad\Loop;
    use Ringroad\Os;

    final class Runtime
    {
        private static int $flags = 0;

        /** There is one for the process: its functions are static. */
        public function __construct()
        {
            throw new Error('The object of ' . self::class . ' can not be created for security reasons');
        }

        /** Remembers the flags. Blocking calls of PHP stay blocking: docs/learn/php.md has the list. */
        public static function setHookFlags(int $flags): bool
        {
            self::$flags = $flags;
            return true;
        }

        public static function getHookFlags(): int
        {
            return self::$flags;
        }

        public static function enableCoroutine(bool|int $enable = \SWOOLE_HOOK_ALL, int $flags = \SWOOLE_HOOK_ALL): bool
        {
            self::$flags = \is_int($enable) ? $enable : ($enable ? $flags : 0);
            return true;
        }
    }

    class Timer
    {
        /** @var array<int, array{0: int, 1: array}> the loop's timer, and what is known of it */
        private static array $known = [];
        private static int $last = 0;
        /** @var array<int, int> timers that run now */
        private static array $running = [];
        private static bool $used = false;

        /** There is one for the process: its functions are static. */
        public function __construct()
        {
            throw new Error('The object of ' . self::class . ' can not be created for security reasons');
        }

        public static function set(array $settings): bool
        {
            return true;
        }

        public static function tick(int $ms, mixed $callback, mixed ...$params): int|false
        {
            return self::add($ms, true, $callback, $params);
        }

        public static function after(int $ms, mixed $callback, mixed ...$params): int|false
        {
            return self::add($ms, false, $callback, $params);
        }

        private static function add(int $ms, bool $again, mixed $callback, array $params): int|false
        {
            Os::demand($callback, 'Swoole\Timer::' . ($again ? 'tick' : 'after') . '(): Argument #2 ($callback)');
            if ($ms < 1) {
                \trigger_error('Swoole\Timer::' . ($again ? 'tick' : 'after')
                    . '(): Timer must be greater than or equal to 1', E_USER_WARNING);
                return false;
            }
            $id = ++self::$last;
            $call = static function () use ($id, $callback, $params, $again): void {
                self::$known[$id][1]['exec_count']++;
                self::$running[$id] = (self::$running[$id] ?? 0) + 1;
                try {
                    Loop::callback($callback, $again ? [$id, ...$params] : $params);
                } finally {
                    // What is known of a timer that was cleared goes when its callback is over.
                    if (--self::$running[$id] === 0) {
                        unset(self::$running[$id]);
                        if (!$again || (self::$known[$id][1]['removed'] ?? true)) {
                            unset(self::$known[$id]);
                        }
                    }
                }
            };
            self::$used = true;
            $loop = Loop::after($ms / 1000, $call, $again ? $ms / 1000 : 0.0);
            self::$known[$id] = [$loop, ['exec_msec' => $ms, 'exec_count' => 0, 'interval' => $again ? $ms : 0,
                'round' => Loop::$rounds, 'removed' => false]];
            Event::atEnd();
            return $id;
        }

        public static function clear(int $id): bool
        {
            if (!isset(self::$known[$id]) || self::$known[$id][1]['removed']) {
                return false;
            }
            Loop::clear(self::$known[$id][0]);
            if (isset(self::$running[$id])) {
                self::$known[$id][1]['removed'] = true;
            } else {
                unset(self::$known[$id]);
            }
            return true;
        }

        public static function clearAll(): bool
        {
            \array_map(self::clear(...), \array_keys(self::$known));
            return true;
        }

        /** Of the parent's timers a forked process has none. */
        public static function forget(): void
        {
            self::$known = self::$running = [];
            self::$used = false;
            self::$last = 0;
        }

        public static function exists(int $id): bool
        {
            return isset(self::$known[$id]) && !self::$known[$id][1]['removed'];
        }

        public static function info(int $id): ?array
        {
            return self::$known[$id][1] ?? null;
        }

        public static function list(): Timer\Iterator
        {
            return new Timer\Iterator(\array_keys(self::$known));
        }

        public static function stats(): array
        {
            return ['initialized' => self::$used, 'num' => \count(self::$known), 'round' => Loop::$rounds];
        }
    }

    class Event
    {
        private static int $registered = 0;
        /** Whether the program has left the loop for good. */
        private static bool $left = false;
        /** @var array<int, resource> streams of descriptors and sockets that are no streams */
        private static array $streams = [];
        /** @var array<int, array{0: ?callable, 1: ?callable, 2: int}> by the stream */
        private static array $calls = [];
        /** @var array<int, string> what `write` could not send yet */
        private static array $out = [];

        /** There is one for the process: its functions are static. */
        public function __construct()
        {
            throw new Error('The object of ' . self::class . ' can not be created for security reasons');
        }

        /** Runs what is left to wait for when the script ends. */
        public static function atEnd(): void
        {
            self::$left = false;
            if (self::$registered !== \getmypid()) {
                self::$registered = $pid = \getmypid();
                \register_shutdown_function(static function () use ($pid): void {
                    $error = \error_get_last();
                    $fatal = E_ERROR | E_PARSE | E_CORE_ERROR | E_COMPILE_ERROR | E_USER_ERROR | E_RECOVERABLE_ERROR;
                    if ($pid === \getmypid() && ($error === null || !($error['type'] & $fatal)) && !Loop::$runs) {
                        self::rshutdown();
                    }
                });
            }
        }

        public static function wait(): void
        {
            Loop::run();
        }

        public static function rshutdown(): void
        {
            if (self::$left) {
                return;
            }
            Loop::run();
            Coroutine\deadlock_check();
        }

        public static function dispatch(): bool
        {
            Loop::turn();
            return true;
        }

        public static function exit(): void
        {
            self::$left = true;
            Loop::stop();
        }

        public static function defer(callable $callback): bool
        {
            Loop::later(static fn () => Loop::callback($callback, []));
            self::atEnd();
            return true;
        }

        /** Calls a function in each turn of the loop; `null`: no more. */
        public static function cycle(?callable $callback, bool $before = false): bool
        {
            if ($callback === null) {
                if (!isset(Loop::$cycles[(int) $before])) {
                    return false;
                }
                unset(Loop::$cycles[(int) $before]);
            } else {
                Loop::$cycles[(int) $before] = static fn () => Loop::callback($callback, []);
            }
            return true;
        }

        /** @return resource|null the stream of what can be waited for */
        public static function stream(mixed $fd)
        {
            if (\is_resource($fd)) {
                return $fd;
            }
            if ($fd instanceof Process) {
                return $fd->pipe;
            }
            if ($fd instanceof Coroutine\Socket || $fd instanceof Client || $fd instanceof Coroutine\Client) {
                return $fd->stream();
            }
            if ($fd instanceof \Socket) {
                return self::$streams[\spl_object_id($fd)] ??= \socket_export_stream($fd);
            }
            if (\is_int($fd) && $fd >= 0) {
                return self::$streams["fd$fd"] ??= (@\fopen("php://fd/$fd", 'r+') ?: null);
            }
            return null;
        }

        public static function add(
            mixed $fd, ?callable $read = null, ?callable $write = null, int $events = \SWOOLE_EVENT_READ,
        ): int|false {
            $stream = self::stream($fd);
            if ($stream === null) {
                Os::warn('unknown fd type', \SWOOLE_ERROR_EVENT_UNKNOWN_DATA);
                return false;
            }
            $number = \get_resource_id($stream);
            if (isset(self::$calls[$number])) {
                Os::warn('already exist');
                return false;
            }
            if ($read === null && $events & \SWOOLE_EVENT_READ || $write === null && $events & \SWOOLE_EVENT_WRITE) {
                Os::warn(($events & \SWOOLE_EVENT_READ && $read === null ? 'readable' : 'writable')
                    . ' event callback is required', \SWOOLE_ERROR_INVALID_PARAMS);
                return false;
            }
            self::$calls[$number] = [$read, $write, $events];
            self::watch($stream, $fd);
            self::atEnd();
            return $number;
        }

        private static function watch($stream, mixed $fd): void
        {
            [$read, $write, $events] = self::$calls[\get_resource_id($stream)];
            $in = static fn (callable $call) => static fn () => Loop::callback($call, [$fd]);
            Loop::onReadable($stream, $read !== null && $events & \SWOOLE_EVENT_READ ? $in($read) : null);
            Loop::onWritable($stream, $write !== null && $events & \SWOOLE_EVENT_WRITE ? $in($write) : null);
        }

        public static function set(mixed $fd, ?callable $read = null, ?callable $write = null, int $events = 0): bool
        {
            $stream = self::stream($fd);
            $number = $stream === null ? -1 : \get_resource_id($stream);
            if (!isset(self::$calls[$number])) {
                Os::warn('socket is not found');
                return false;
            }
            [$oldRead, $oldWrite, $oldEvents] = self::$calls[$number];
            self::$calls[$number] = [$read ?? $oldRead, $write ?? $oldWrite, $events ?: $oldEvents];
            self::watch($stream, $fd);
            return true;
        }

        public static function del(mixed $fd): bool
        {
            $stream = self::stream($fd);
            $number = $stream === null ? -1 : \get_resource_id($stream);
            if (!isset(self::$calls[$number])) {
                return false;
            }
            unset(self::$calls[$number], self::$out[$number]);
            Loop::onReadable($stream, null);
            Loop::onWritable($stream, null);
            if ($fd instanceof \Socket) {
                unset(self::$streams[\spl_object_id($fd)]);
            }
            return true;
        }

        public static function isset(mixed $fd, int $events = \SWOOLE_EVENT_READ | \SWOOLE_EVENT_WRITE): bool
        {
            $stream = self::stream($fd);
            $known = $stream === null ? null : (self::$calls[\get_resource_id($stream)] ?? null);
            return $known !== null && ($known[2] & $events) !== 0;
        }

        /** Sends, and what cannot be sent now, when it can. */
        public static function write(mixed $fd, string $data): bool
        {
            $stream = self::stream($fd);
            if ($stream === null || $data === '') {
                $stream === null || Os::warn('data empty');
                return false;
            }
            \stream_set_blocking($stream, false);
            $number = \get_resource_id($stream);
            self::$out[$number] = (self::$out[$number] ?? '') . $data;
            $flush = static function () use ($stream, $number, $fd, &$flush): void {
                $sent = @\fwrite($stream, self::$out[$number] ?? '');
                $left = $sent === false ? '' : \substr(self::$out[$number] ?? '', $sent);
                if ($left !== '') {
                    self::$out[$number] = $left;
                    Loop::onWritable($stream, $flush);
                    return;
                }
                unset(self::$out[$number]);
                Loop::onWritable($stream, null);
                isset(self::$calls[$number]) && self::watch($stream, $fd);
            };
            $flush();
            return true;
        }
    }
}

namespace Swoole\Timer {
    class Iterator extends \ArrayIterator
    {
    }
}
