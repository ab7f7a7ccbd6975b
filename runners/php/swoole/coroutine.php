<?php
/*
 * Coroutines, and what they wait for each other with.
 */

namespace Swoole {
    use Ringroad\Loop;
    use Ringroad\Os;

    class Exception extends \Exception
    {
        public function __construct(string $message = '', int $code = 0, ?\Throwable $previous = null)
        {
            parent::__construct($message, $code, $previous);
            [$this->file, $this->line] = Os::place();
        }
    }

    class Error extends \Error
    {
        public function __construct(string $message = '', int $code = 0, ?\Throwable $previous = null)
        {
            parent::__construct($message, $code, $previous);
            [$this->file, $this->line] = Os::place();
        }
    }

    class ExitException extends Exception
    {
        private int $flags = 0;
        private mixed $status = 0;

        public function getFlags(): int
        {
            return $this->flags;
        }

        public function getStatus(): mixed
        {
            return $this->status;
        }
    }

    /** Coroutines of this process. */
    class Coroutine
    {
        private static array $options = [];
        /** Whether callbacks of timers, events and signals are coroutines. */
        public static bool $automatic = true;

        /** There is one for the process: its functions are static. */
        public function __construct()
        {
            throw new Error('The object of ' . self::class . ' can not be created for security reasons');
        }

        public static function create(callable $call, mixed ...$params): int|false
        {
            Event::atEnd();
            return Loop::start($call, $params);
        }

        public static function defer(callable $call): void
        {
            Loop::task()->defers[] = $call;
        }

        public static function yield(): bool
        {
            $task = Loop::task();
            $task->yields = true;
            Loop::suspend(static function () use ($task): void {
                $task->yields = false;
            });
            return !$task->canceled;
        }

        public static function suspend(): bool
        {
            return self::yield();
        }

        public static function resume(int $cid): bool
        {
            $task = Loop::$tasks[$cid] ?? null;
            if ($task === null || !$task->yields) {
                Os::warn('can not resume the coroutine which is in IO operation or non-existent',
                    \SWOOLE_ERROR_CO_NOT_EXISTS);
                return false;
            }
            $task->yields = false;
            return Loop::resume($cid);
        }

        public static function cancel(int $cid, bool $throw_exception = false): bool
        {
            return Loop::cancel($cid, $throw_exception ? new Coroutine\CanceledException() : null);
        }

        public static function isCanceled(): bool
        {
            return Loop::task()->canceled;
        }

        public static function getCid(): int
        {
            return Loop::$current?->id ?? -1;
        }

        public static function getuid(): int
        {
            return self::getCid();
        }

        public static function getPcid(int $cid = 0): int|false
        {
            return self::task($cid)?->parent ?? false;
        }

        public static function getContext(int $cid = 0): ?Coroutine\Context
        {
            return self::task($cid)?->context();
        }

        public static function getElapsed(int $cid = 0): int
        {
            $task = self::task($cid);
            return $task === null ? -1 : (int) ((\microtime(true) - $task->began) * 1000);
        }

        /** Microseconds since the current coroutine began. */
        public static function getExecuteTime(): int
        {
            return (int) ((\microtime(true) - Loop::task()->began) * 1e6);
        }

        private static function task(int $cid): ?\Ringroad\Task
        {
            return $cid === 0 ? Loop::$current : (Loop::$tasks[$cid] ?? null);
        }

        public static function exists(int $cid): bool
        {
            return isset(Loop::$tasks[$cid]);
        }

        public static function list(): Coroutine\Iterator
        {
            return new Coroutine\Iterator(\array_reverse(\array_keys(Loop::$tasks)));
        }

        public static function listCoroutines(): Coroutine\Iterator
        {
            return self::list();
        }

        public static function stats(): array
        {
            return ['event_num' => Loop::streams(), 'signal_listener_num' => Loop::$signals + Loop::$listeners, 'aio_task_num' => 0,
                'aio_worker_num' => 0, 'aio_queue_size' => 0, 'c_stack_size' => 2097152,
                'coroutine_num' => \count(Loop::$tasks), 'coroutine_peak_num' => Loop::$peak,
                'coroutine_last_cid' => Loop::lastTask()];
        }

        public static function set(array $options): void
        {
            self::$options = $options + self::$options;
            Os::log($options);
            if (isset($options['exit_condition'])) {
                $condition = $options['exit_condition'];
                if (!\is_callable($condition, false, $name)) {
                    Os::warn("function '$name' is not callable");
                    return;
                }
                Loop::$mayEnd = static fn (): bool => (bool) $condition();
                Event::atEnd();
            }
            if (isset($options['hook_flags'])) {
                Runtime::setHookFlags($options['hook_flags']);
            }
            if (isset($options['max_coroutine']) || isset($options['max_coro_num'])) {
                Loop::$most = \max(1, (int) ($options['max_coroutine'] ?? $options['max_coro_num']));
            }
            if (isset($options['enable_coroutine'])) {
                self::$automatic = (bool) $options['enable_coroutine'];
            }
        }

        public static function getOptions(): ?array
        {
            return self::$options ?: null;
        }

        /** A setting of seconds that has a default. */
        public static function seconds(string $name, float $else): float
        {
            return (float) (self::$options[$name] ?? self::$options['socket_timeout'] ?? $else);
        }

        public static function getBackTrace(int $cid = 0, int $options = DEBUG_BACKTRACE_PROVIDE_OBJECT, int $limit = 0): array|false
        {
            $task = self::task($cid);
            if ($task === null) {
                return false;
            }
            $trace = $task === Loop::$current ? \debug_backtrace($options, $limit)
                : (new \ReflectionFiber($task->fiber))->getTrace($options);
            $shown = [];
            foreach ($trace as $place => $at) {
                // The function that the coroutine was made of has its caller in these files.
                $first = ($trace[$place + 1]['class'] ?? '') === \Ringroad\Task::class;
                if (!\str_starts_with($at['class'] ?? '', 'Ringroad') && ($first || !\str_contains($at['file'] ?? '', __DIR__))) {
                    $shown[] = $first ? \array_diff_key($at, ['file' => 1, 'line' => 1]) : $at;
                }
            }
            return $limit > 0 ? \array_slice($shown, 0, $limit) : $shown;
        }

        public static function printBackTrace(int $cid = 0, int $options = 0, int $limit = 0): void
        {
            foreach (self::getBackTrace($cid, $options, $limit) ?: [] as $number => $at) {
                $name = (isset($at['class']) ? $at['class'] . $at['type'] : '') . $at['function'];
                echo "#$number  $name()", isset($at['file']) ? " called at [{$at['file']}:{$at['line']}]" : '', "\n";
            }
        }

        /** Bytes of the stack of PHP's calls; this runtime does not tell them for one coroutine. */
        public static function getStackUsage(int $cid = 0): int|false
        {
            return self::task($cid) === null ? false : 8192;
        }

        /** There is no pre-emption: nothing to switch off. */
        public static function enableScheduler(): bool
        {
            return false;
        }

        public static function disableScheduler(): bool
        {
            return false;
        }

        /** Raises an exception in the current coroutine's wait when it is older than so many seconds. */
        public static function setTimeLimit(float $timeout): bool
        {
            $task = Loop::task();
            $timer = Loop::after($timeout, static fn () => Loop::cancel($task->id, new Coroutine\TimeoutException()));
            $task->ends[] = static fn () => Loop::clear($timer);
            return true;
        }

        /** Waits until other coroutines are over. */
        public static function join(array $cids, float $timeout = -1): bool
        {
            $current = Loop::task();
            if (!$cids) {
                Loop::$errno = \SWOOLE_ERROR_INVALID_PARAMS;
                return false;
            }
            $left = [];
            $waits = false;
            foreach ($cids as $cid) {
                if ($cid === $current->id) {
                    Os::warn('can not join self', \SWOOLE_ERROR_WRONG_OPERATION);
                    return false;
                }
                $task = Loop::$tasks[$cid] ?? null;
                if ($task === null) {
                    continue;
                }
                if (isset($task->ends['join']) || isset($left[$cid])) {
                    Loop::$errno = \SWOOLE_ERROR_WRONG_OPERATION;
                    return false;
                }
                $left[$cid] = $task;
            }
            if (!$left) {
                Loop::$errno = \SWOOLE_ERROR_INVALID_PARAMS;
                return false;
            }
            foreach ($left as $cid => $task) {
                $task->ends['join'] = static function () use ($cid, &$left, &$waits, $current): void {
                    unset($left[$cid]);
                    if (!$left && $waits) {
                        $waits = false;
                        Loop::later(static fn () => Loop::resume($current->id, true));
                    }
                };
            }
            $waits = true;
            $over = static function () use (&$left, &$waits): void {
                $waits = false;
                foreach ($left as $task) {
                    unset($task->ends['join']);
                }
            };
            if (Loop::wait($timeout, $over) === true) {
                return true;
            }
            Loop::$errno = $current->canceled ? \SWOOLE_ERROR_CO_CANCELED : \SWOOLE_ERROR_CO_TIMEDOUT;
            return false;
        }

        /** Calls of `Swoole\Coroutine\System` under the name of this class. */
        public static function __callStatic(string $name, array $arguments): mixed
        {
            if (!\method_exists(Coroutine\System::class, $name)) {
                throw new \Error("Call to undefined method Swoole\\Coroutine::$name()");
            }
            return Coroutine\System::$name(...$arguments);
        }
    }
}

namespace Swoole\Coroutine {
    use Ringroad\Loop;
    use Ringroad\Os;

    class Context extends \ArrayObject
    {
    }

    class Iterator extends \ArrayIterator
    {
    }

    class CanceledException extends \Swoole\Exception
    {
        public function __construct()
        {
            parent::__construct('operation canceled', \SWOOLE_ERROR_CO_CANCELED);
        }
    }

    class TimeoutException extends \Swoole\Exception
    {
        public function __construct()
        {
            parent::__construct('coroutine execution timed out', \SWOOLE_ERROR_CO_TIMEDOUT);
        }
    }

    /** Starts a program of coroutines, and returns when all of them are over. */
    function run(callable $call, mixed ...$params): bool
    {
        $scheduler = new Scheduler();
        $scheduler->add($call, ...$params);
        return $scheduler->start();
    }

    function go(callable $call, mixed ...$params): int|false
    {
        return \Swoole\Coroutine::create($call, ...$params);
    }

    function defer(callable $call): void
    {
        \Swoole\Coroutine::defer($call);
    }

    /** Runs tasks at the same time; what each returned, by its key. Those that were too late give `null`. */
    function batch(array $tasks, float $timeout = -1): array
    {
        $group = new WaitGroup(\count($tasks));
        foreach ($tasks as $key => $task) {
            $tasks[$key] = null;
            \Swoole\Coroutine::create(static function () use ($group, &$tasks, $key, $task): void {
                $tasks[$key] = $task();
                $group->done();
            });
        }
        $group->wait($timeout);
        // Tasks that are late change the array no more.
        return \array_map(static fn ($one) => $one, $tasks);
    }

    /** Runs a function so many times at once. */
    function parallel(int $count, callable $call): void
    {
        $group = new WaitGroup($count);
        for ($number = 0; $number < $count; $number++) {
            \Swoole\Coroutine::create(static function () use ($group, $call): void {
                $call();
                $group->done();
            });
        }
        $group->wait();
    }

    /** Calls a function for each value, all at the same time. */
    function map(array $list, callable $call, float $timeout = -1): array
    {
        return batch(\array_map(static fn ($one) => static fn () => $call($one), $list), $timeout);
    }

    /** Tells of coroutines that wait for something that can never come. */
    function deadlock_check(): void
    {
        $options = \Swoole\Coroutine::getOptions() ?? [];
        static $told = [];
        $all = \array_keys(Loop::$tasks);
        $count = \count($all);
        if ($count === 0 || $all === $told || Loop::isStopped() || !($options['enable_deadlock_check'] ?? true)) {
            return;
        }
        // The same ones may still wait at the end of the program.
        $told = $all;
        $line = ' ' . \str_repeat('=', 65);
        echo "\n$line\n  [FATAL ERROR]: all coroutines (count: $count) are asleep - deadlock!\n$line\n\n";
        $most = $options['deadlock_check_limit'] ?? 32;
        foreach (\array_slice(\array_reverse($all), 0, $most) as $cid) {
            echo "  [Coroutine-$cid]\n ", \str_repeat('-', 65), "\n";
            \Swoole\Coroutine::printBackTrace($cid, DEBUG_BACKTRACE_IGNORE_ARGS, $options['deadlock_check_depth'] ?? 32);
            echo "\n";
        }
        echo "$line\n";
    }

    /** Coroutines to be started together. */
    class Scheduler
    {
        private array $calls = [];
        private bool $started = false;

        public function add(callable $call, mixed ...$params): void
        {
            if (Loop::$scheduled) {
                Os::warn('scheduler is running, unable to execute Swoole\Coroutine\Scheduler->add()');
                return;
            }
            $this->calls[] = [$call, $params];
        }

        public function parallel(int $count, callable $call, mixed ...$params): void
        {
            for (; $count > 0; $count--) {
                $this->add($call, ...$params);
            }
        }

        public function set(array $settings): void
        {
            \Swoole\Coroutine::set($settings);
        }

        public function getOptions(): ?array
        {
            return \Swoole\Coroutine::getOptions();
        }

        public function start(): bool
        {
            if (Loop::$current !== null || Loop::$runs) {
                Os::warn('eventLoop has already been created. unable to start Swoole\Coroutine\Scheduler');
                return false;
            }
            if ($this->started) {
                Os::warn('scheduler is started, unable to execute Swoole\Coroutine\Scheduler->start()');
                return false;
            }
            if (!$this->calls) {
                Os::warn('no coroutine task');
                return false;
            }
            $this->started = true;
            $calls = $this->calls;
            $this->calls = [];
            Loop::later(static function () use ($calls): void {
                foreach ($calls as [$call, $params]) {
                    Loop::start($call, $params);
                }
            });
            Loop::$scheduled = true;
            try {
                Loop::run();
            } finally {
                Loop::$scheduled = $this->started = false;
            }
            deadlock_check();
            return true;
        }
    }

    /** Values from one coroutine to another. */
    class Channel
    {
        use \Ringroad\NotSerialized;

        public int $capacity;
        public int $errCode = 0;
        private array $values = [];
        /** @var array<int, true> ids of coroutines that wait */
        private array $pushing = [];
        private array $popping = [];
        private bool $closed = false;
        private bool $made = false;

        public function __construct(int $size = 1)
        {
            if ($this->made) {
                throw new \Swoole\Error('channel has already been constructed');
            }
            $this->made = true;
            $this->capacity = \max(1, $size);
        }

        public function __destruct()
        {
            foreach (['producers' => $this->pushing, 'consumers' => $this->popping] as $name => $queue) {
                $queue && Os::note(\SWOOLE_LOG_WARNING, 'Channel::~Channel() (ERRNO ' . \SWOOLE_ERROR_CO_HAS_BEEN_DISCARDED
                    . '): channel is destroyed, ' . \count($queue) . " $name will be discarded", \SWOOLE_ERROR_CO_HAS_BEEN_DISCARDED);
            }
        }

        public function __clone()
        {
            throw new \Swoole\Error('Trying to clone an uncloneable object of class ' . static::class);
        }

        /** The current coroutine may use it. */
        private function usable(): void
        {
            if (!$this->made) {
                throw new \Swoole\Error('must call constructor first');
            }
            Loop::task();
        }

        /** Waits in a queue; the error number, 0 for none. */
        private function queue(array &$queue, float $timeout): int
        {
            $task = Loop::task();
            $queue[$task->id] = true;
            $over = static function () use (&$queue, $task): void {
                unset($queue[$task->id]);
            };
            if (Loop::wait($timeout, $over) !== false) {
                return \SWOOLE_CHANNEL_OK;
            }
            return $task->canceled ? \SWOOLE_CHANNEL_CANCELED : \SWOOLE_CHANNEL_TIMEOUT;
        }

        private static function wake(array &$queue): void
        {
            $cid = \array_key_first($queue);
            if ($cid !== null) {
                unset($queue[$cid]);
                Loop::resume($cid, true);
            }
        }

        public function push(mixed $value, float $timeout = -1): bool
        {
            $this->usable();
            if ($this->closed) {
                $this->errCode = \SWOOLE_CHANNEL_CLOSED;
                return false;
            }
            $this->errCode = \SWOOLE_CHANNEL_OK;
            if ($this->isFull() || $this->pushing) {
                $this->errCode = $this->queue($this->pushing, $timeout);
                if ($this->errCode === 0 && $this->closed) {
                    $this->errCode = \SWOOLE_CHANNEL_CLOSED;
                }
                if ($this->errCode !== 0) {
                    return false;
                }
            }
            $this->values[] = $value;
            self::wake($this->popping);
            return true;
        }

        public function pop(float $timeout = -1): mixed
        {
            $this->usable();
            if ($this->closed && !$this->values) {
                $this->errCode = \SWOOLE_CHANNEL_CLOSED;
                return false;
            }
            $this->errCode = \SWOOLE_CHANNEL_OK;
            if (!$this->values || $this->popping) {
                $this->errCode = $this->queue($this->popping, $timeout);
                if ($this->errCode === 0 && !$this->values) {
                    $this->errCode = \SWOOLE_CHANNEL_CLOSED;
                }
                if ($this->errCode !== 0) {
                    return false;
                }
            }
            $value = \array_shift($this->values);
            self::wake($this->pushing);
            return $value;
        }

        public function close(): bool
        {
            if ($this->closed) {
                return false;
            }
            $this->closed = true;
            while ($this->pushing) {
                self::wake($this->pushing);
            }
            while ($this->popping) {
                self::wake($this->popping);
            }
            return true;
        }

        public function length(): int
        {
            return \count($this->values);
        }

        public function isEmpty(): bool
        {
            return !$this->values;
        }

        public function isFull(): bool
        {
            return \count($this->values) >= $this->capacity;
        }

        public function stats(): array
        {
            return ['consumer_num' => \count($this->popping), 'producer_num' => \count($this->pushing),
                'queue_num' => \count($this->values)];
        }
    }

    class WaitGroup
    {
        private ?int $waiter = null;
        private int $count = 0;

        public function __construct(int $delta = 0)
        {
            if ($delta > 0) {
                $this->add($delta);
            }
        }

        public function add(int $delta = 1): void
        {
            if ($this->waiter !== null) {
                throw new \BadMethodCallException('WaitGroup misuse: add called concurrently with wait');
            }
            if ($this->count + $delta < 0) {
                throw new \InvalidArgumentException('WaitGroup misuse: negative counter');
            }
            $this->count += $delta;
        }

        public function done(): void
        {
            if ($this->count < 1) {
                throw new \BadMethodCallException('WaitGroup misuse: negative counter');
            }
            if (--$this->count === 0 && $this->waiter !== null) {
                $cid = $this->waiter;
                $this->waiter = null;
                Loop::resume($cid, true);
            }
        }

        public function wait(float $timeout = -1): bool
        {
            if ($this->waiter !== null) {
                throw new \BadMethodCallException('WaitGroup misuse: reused before previous wait has returned');
            }
            if ($this->count === 0) {
                return true;
            }
            $this->waiter = Loop::task()->id;
            return Loop::wait($timeout, fn () => $this->waiter = null) === true;
        }

        public function count(): int
        {
            return $this->count;
        }
    }

    /** Waits until every other variable that holds it is gone. */
    class Barrier
    {
        private int $cid = -1;

        public static function make(): self
        {
            return new self();
        }

        public static function wait(?self &$barrier, float $timeout = -1): void
        {
            if ($barrier === null) {
                return;
            }
            if ($barrier->cid !== -1) {
                throw new \Swoole\Exception('The barrier is waiting, cannot wait again.');
            }
            $held = \WeakReference::create($barrier);
            $barrier->cid = Loop::task()->id;
            $barrier = null;
            if ($held->get() !== null) {
                Loop::wait($timeout, static function () use ($held): void {
                    $late = $held->get();
                    $late !== null && $late->cid = -1;
                });
            }
        }

        public function __destruct()
        {
            // The coroutine that waits; it does not, if it had the last variable.
            $this->cid !== -1 && Loop::resume($this->cid, true);
        }
    }

    /** One holder, or several of them that only read, among the coroutines of a process. */
    class Lock
    {
        public int $errCode = 0;
        private array $holders = [];
        private bool $alone = false;
        private array $waiting = [];

        public function __construct(private bool $shared = false)
        {
        }

        private function fits(bool $alone): bool
        {
            return !$this->holders || !$alone && !$this->alone;
        }

        public function lock(int $operation = LOCK_EX, float $timeout = -1): bool
        {
            $task = Loop::$current;
            if ($task === null) {
                $this->errCode = Loop::$errno = \SWOOLE_ERROR_CO_OUT_OF_COROUTINE;
                return false;
            }
            $alone = !($operation & LOCK_SH);
            while (!$this->fits($alone) || isset($this->holders[$task->id])) {
                if ($operation & LOCK_NB) {
                    $this->errCode = Loop::$errno = 16;
                    return false;
                }
                $this->waiting[$task->id] = true;
                $over = function () use ($task): void {
                    unset($this->waiting[$task->id]);
                };
                if (Loop::wait($timeout, $over) === false) {
                    $this->errCode = Loop::$errno = $task->canceled ? \SWOOLE_ERROR_CO_CANCELED : 110;
                    return false;
                }
            }
            $this->holders[$task->id] = true;
            $this->alone = $alone;
            return true;
        }

        public function trylock(): bool
        {
            return $this->lock(LOCK_EX | LOCK_NB);
        }

        /** Lets those go on that fit. */
        private function wake(): void
        {
            foreach (\array_keys($this->waiting) as $cid) {
                if ($this->holders && $this->alone) {
                    break;
                }
                unset($this->waiting[$cid]);
                Loop::resume($cid, true);
            }
        }

        public function unlock(): bool
        {
            $holder = \Swoole\Coroutine::getCid();
            if ($holder < 0) {
                $this->errCode = Loop::$errno = \SWOOLE_ERROR_CO_OUT_OF_COROUTINE;
                return false;
            }
            if (!$this->holders) {
                return true;
            }
            unset($this->holders[isset($this->holders[$holder]) ? $holder : \array_key_first($this->holders)]);
            $this->waiting && Loop::later($this->wake(...));
            return true;
        }
    }
}
