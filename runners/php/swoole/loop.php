<?php
/*
 * Coroutines, timers and streams of one process: everything that waits, waits in Loop.
 *
 * A coroutine is a Fiber. It runs until it waits; the code that resumes it goes on when it waits again. So a value
 * that is put into a channel is at once with the coroutine that waits for it, as in Swoole.
 */

namespace Ringroad;

use Fiber;
use SplQueue;
use Throwable;

/** A coroutine. */
final class Task
{
    /** The fiber that runs it; `null` before it begins. */
    public ?Fiber $fiber = null;
    public array $defers = [];
    /** What is called when it is over, outside of it. */
    public array $ends = [];
    public float $began;
    public bool $over = false;
    /** Whether its last wait was ended by `Coroutine::cancel`. */
    public bool $canceled = false;
    /** Takes the current wait back; `null`: it cannot be cancelled, or does not wait. */
    public ?\Closure $cancel = null;
    /** Whether it waits for `Coroutine::resume`. */
    public bool $yields = false;
    /** @var list<string> what its own output buffers hold while it waits */
    public array $output = [];
    /** What it prints belongs to this. */
    public ?Served $served = null;
    /** Raised in the coroutine instead of an answer to its wait. */
    public ?Throwable $raise = null;
    private ?\ArrayObject $context = null;

    /** @param callable $call */
    public function __construct(public int $id, public int $parent, public $call, public array $arguments)
    {
        $this->began = \microtime(true);
    }

    public function context(): \ArrayObject
    {
        return $this->context ??= new \Swoole\Coroutine\Context();
    }

    /**
     * A fiber that runs one coroutine after another, each of which `start` or `resume` gives to it. A fiber for
     * each coroutine would cost four system calls and the pages of a new stack.
     */
    public static function carrier(): Fiber
    {
        return new Fiber(static function (Task $task): void {
            while (true) {
                $failed = false;
                try {
                    ($task->call)(...$task->arguments);
                } catch (Throwable $why) {
                    $failed = Loop::failed($why);
                }
                try {
                    while ($defer = \array_pop($task->defers)) {
                        $defer(null);
                    }
                } catch (Throwable $why) {
                    $failed = Loop::failed($why) || $failed;
                }
                if ($failed) {
                    exit(255);
                }
                $task->over = true;
                // What the coroutine has left is destroyed outside of it, not kept until the next one.
                $task = $why = $defer = null;
                $task = Fiber::suspend();
            }
        });
    }
}

/** Timers, streams and coroutines of this process. */
final class Loop
{
    /** @var array<int, Task> */
    public static array $tasks = [];
    public static ?Task $current = null;
    /** What coroutines belong to that no coroutine starts. */
    public static ?Served $serving = null;
    /** @var list<Fiber> fibers the coroutine of which is over */
    private static array $spare = [];
    /** How many of them are kept. */
    private const SPARE = 256;
    public static int $peak = 0;
    public static int $most = 100000;
    /** The last error number: `swoole_errno()`. */
    public static int $errno = 0;
    public static bool $runs = false;
    /** Whether a program of `Coroutine\run` is running. */
    public static bool $scheduled = false;
    /** Waits for signals that keep the loop alive. */
    public static int $signals = 0;
    public static bool $hasHandlers = false;
    /** @var array<int, callable> what runs in each turn */
    public static array $cycles = [];
    private static int $nextTask = 1;
    private static int $nextTimer = 1;
    /** @var array<int, array{0: float, 1: callable, 2: float}> when, what, interval */
    private static array $timers = [];
    private static ?\SplPriorityQueue $order = null;
    /** @var array<int, array{0: resource, 1: callable}> */
    private static array $readers = [];
    private static array $writers = [];
    private static ?SplQueue $later = null;
    private static bool $stopped = false;
    private static int $turns = 0;
    private static float $looked = 0.0;
    /** How often timers were due. */
    public static int $rounds = 0;
    /** How many signals the program listens to. */
    public static int $listeners = 0;
    /** Says whether the loop may end; `null`: it may when nothing is left. */
    public static ?\Closure $mayEnd = null;
    /** Timers and streams that do not keep the loop alive. */
    private static array $background = [];
    /** @var array<string, int> coroutines that wait for a stream */
    private static array $bound = [];
    /** Called when nothing is left, in the place of an end. */
    public static ?\Closure $idle = null;

    public static function start(callable $call, array $arguments): int|false
    {
        $count = \count(self::$tasks);
        if ($count >= self::$most) {
            Os::warn('exceed max number of coroutine ' . self::$most, \SWOOLE_ERROR_CO_OUT_OF_COROUTINE);
            return false;
        }
        $id = self::$nextTask++;
        $task = new Task($id, self::$current?->id ?? -1, $call, $arguments);
        $task->served = self::$current?->served ?? self::$serving;
        self::$tasks[$id] = $task;
        if ($count >= self::$peak) {
            self::$peak = $count + 1;
        }
        self::switch($task);
        return $id;
    }

    /** Runs a callback of an event: in a coroutine of its own, if the program wants that. */
    public static function callback(callable $call, array $arguments, bool $coroutine = true): void
    {
        if ($coroutine && \Swoole\Coroutine::$automatic) {
            self::start($call, $arguments);
        } else {
            $call(...$arguments);
        }
    }

    /** Runs a coroutine, or goes on with it and gives it a value, until it waits or is over. */
    private static function switch(Task $task, mixed $value = null): void
    {
        $before = self::$current;
        self::$current = $task;
        $buffers = \ob_get_level() ?: Printed::caught();
        $began = $task->fiber !== null;
        try {
            // The output buffers that a coroutine has begun are its own.
            foreach ($task->output as $text) {
                \ob_start();
                echo $text;
            }
            $task->output = [];
            if ($began) {
                $task->fiber->resume($value);
            } else {
                $task->fiber = \array_pop(self::$spare) ?? Task::carrier();
                $task->fiber->isStarted() ? $task->fiber->resume($task) : $task->fiber->start($task);
            }
        } catch (\FiberError) {
            // PHP 8.1 to 8.3 switch no coroutine where an object is being destroyed.
            if (!$began) {
                self::$spare[] = $task->fiber;
                $task->fiber = null;
            }
            self::later(static fn () => $task->over || $task->fiber?->isRunning() || self::switch($task, $value));
        } finally {
            self::$current = $before;
            while (\ob_get_level() > $buffers) {
                if ($task->over) {
                    \ob_end_flush();
                } else {
                    \array_unshift($task->output, (string) \ob_get_clean());
                }
            }
            if ($task->over) {
                unset(self::$tasks[$task->id]);
                if (\count(self::$spare) < self::SPARE) {
                    self::$spare[] = $task->fiber;
                }
                if ($task->ends) {
                    $ends = $task->ends;
                    $task->ends = [];
                    foreach ($ends as $end) {
                        $end();
                    }
                }
            }
        }
    }

    /** Tells that a coroutine did not catch what it threw. Whether that ends the program. */
    public static function failed(Throwable $why): bool
    {
        if ($why instanceof \Swoole\ExitException) {
            return false;
        }
        $handler = \set_exception_handler(null);
        $handler !== null ? $handler($why) : Os::uncaught($why);
        // As after a fatal error of PHP, nothing else is waited for.
        \Swoole\Event::exit();
        return true;
    }

    public static function task(): Task
    {
        return self::$current ?? throw new \Swoole\Error('API must be called in the coroutine');
    }

    /** Waits until `resume` is called for the current coroutine, and returns what that gives. */
    public static function suspend(?\Closure $cancel = null): mixed
    {
        $task = self::task();
        $task->canceled = false;
        $task->cancel = $cancel;
        $value = Fiber::suspend();
        $task->cancel = null;
        if ($task->raise !== null) {
            $raise = $task->raise;
            $task->raise = null;
            throw $raise;
        }
        return $value;
    }

    public static function resume(int $id, mixed $value = null): bool
    {
        $task = self::$tasks[$id] ?? null;
        if ($task === null || !$task->fiber?->isSuspended()) {
            return false;
        }
        self::switch($task, $value);
        return true;
    }

    /** Ends a coroutine's wait with `false`. Whether it could be. */
    public static function cancel(int $id, ?Throwable $raise = null): bool
    {
        $task = self::$tasks[$id] ?? null;
        if ($task === null) {
            self::$errno = \SWOOLE_ERROR_CO_NOT_EXISTS;
            return false;
        }
        if ($task === self::$current || $task->cancel === null || !$task->fiber?->isSuspended()) {
            self::$errno = \SWOOLE_ERROR_CO_CANNOT_CANCEL;
            return false;
        }
        $cancel = $task->cancel;
        $task->cancel = null;
        $task->canceled = true;
        $task->raise = $raise;
        self::$errno = \SWOOLE_ERROR_CO_CANCELED;
        $cancel();
        return self::resume($id, false);
    }

    /**
     * Suspends the current coroutine, for so many seconds at most; `false` when they are over, or when it was
     * cancelled. `$over` takes back what it waits for.
     */
    public static function wait(float $seconds, ?callable $over = null): mixed
    {
        $id = self::task()->id;
        $timer = null;
        if ($seconds > 0) {
            $timer = self::after($seconds, static function () use ($id, $over, &$timer): void {
                $timer = null;
                if ($over !== null) {
                    $over();
                }
                self::$errno = 110;
                self::resume($id, false);
            });
        }
        try {
            return self::suspend(static fn () => $over !== null && $over());
        } finally {
            if ($timer !== null) {
                self::clear($timer);
            }
        }
    }

    public static function later(callable $call): void
    {
        self::$later ??= new SplQueue();
        self::$later->enqueue($call);
    }

    public static function after(float $seconds, callable $call, float $every = 0.0, bool $background = false): int
    {
        self::$order ??= new \SplPriorityQueue();
        $id = self::$nextTimer++;
        $when = \hrtime(true) / 1e9 + $seconds;
        self::$timers[$id] = [$when, $call, $every];
        self::$order->insert([$when, $id], [-$when, -$id]);
        if ($background) {
            self::$background["t$id"] = true;
        }
        return $id;
    }

    public static function clear(int $id): bool
    {
        $there = isset(self::$timers[$id]);
        unset(self::$timers[$id], self::$background["t$id"]);
        return $there;
    }

    public static function onReadable($stream, ?callable $call, bool $background = false): void
    {
        $number = \get_resource_id($stream);
        unset(self::$readers[$number], self::$background["r$number"]);
        if ($call !== null) {
            self::$readers[$number] = [$stream, $call];
            if ($background) {
                self::$background["r$number"] = true;
            }
        }
    }

    public static function onWritable($stream, ?callable $call): void
    {
        $number = \get_resource_id($stream);
        unset(self::$writers[$number]);
        if ($call !== null) {
            self::$writers[$number] = [$stream, $call];
        }
    }

    /** Whether a stream is waited for. */
    public static function watches($stream, bool $read): bool
    {
        return isset(($read ? self::$readers : self::$writers)[\get_resource_id($stream)]);
    }

    /** Waits in the current coroutine until a stream can be read or written; `false` after `seconds`. */
    public static function stream($stream, bool $read, float $seconds): bool
    {
        $id = self::task()->id;
        $watch = $read ? self::onReadable(...) : self::onWritable(...);
        $name = ($read ? 'r' : 'w') . \get_resource_id($stream);
        self::$bound[$name] = $id;
        $over = static function () use ($name, $stream, $watch): void {
            unset(self::$bound[$name]);
            $watch($stream, null);
        };
        $watch($stream, static function () use ($id, $over): void {
            $over();
            self::resume($id, true);
        });
        return self::wait($seconds, $over) === true;
    }

    /** A stream is about to be closed: those that wait for it wait no more. */
    public static function drop($stream): void
    {
        self::onReadable($stream, null);
        self::onWritable($stream, null);
        foreach (['r', 'w'] as $kind) {
            $id = self::$bound[$kind . \get_resource_id($stream)] ?? null;
            if ($id !== null) {
                unset(self::$bound[$kind . \get_resource_id($stream)]);
                self::later(static fn () => self::resume($id, false));
            }
        }
    }

    public static function stop(): void
    {
        self::$stopped = true;
    }

    /** Whether it was ended while something was left to wait for. */
    public static function isStopped(): bool
    {
        return self::$stopped;
    }

    /** Ends the loop for good: nothing is left to wait for. */
    public static function end(): void
    {
        self::$readers = self::$writers = self::$timers = self::$background = [];
        self::$later = new SplQueue();
        self::$stopped = true;
    }

    /** Forgets everything: this is a forked process, in which nothing of the parent's goes on. */
    public static function forget(): void
    {
        self::end();
        self::$tasks = self::$cycles = self::$bound = [];
        self::$order = null;
        self::$current = self::$idle = self::$serving = null;
        Printed::forked();
        self::$stopped = self::$runs = self::$scheduled = false;
        self::$signals = self::$listeners = self::$turns = self::$rounds = self::$peak = 0;
        self::$mayEnd = null;
        self::$nextTask = self::$nextTimer = 1;
        \Swoole\Timer::forget();
    }

    public static function isAlive(): bool
    {
        $later = self::$later !== null && !self::$later->isEmpty();
        $waits = \count(self::$readers) + \count(self::$writers) + \count(self::$timers) > \count(self::$background);
        return $later || $waits || self::$signals > 0;
    }

    /** Runs until nothing is left to wait for. */
    public static function run(): void
    {
        if (self::$runs) {
            return;
        }
        self::$runs = true;
        self::$stopped = false;
        try {
            while (!self::$stopped && (self::isAlive() || self::$mayEnd !== null && !(self::$mayEnd)())) {
                self::turn();
                if (self::$idle !== null && !self::$stopped && !self::isAlive()) {
                    (self::$idle)();
                }
            }
        } finally {
            self::$runs = false;
        }
    }

    public static function turn(): void
    {
        // The first turn does not wait: what a program does in each turn is done at once.
        $seconds = self::$turns++ === 0 || self::$later !== null && !self::$later->isEmpty() ? 0.0
            : self::untilTimer();
        self::select($seconds);
        if (self::$hasHandlers) {
            \pcntl_signal_dispatch();
        }
        self::timers();
        if (self::$later !== null) {
            for ($count = \count(self::$later); $count > 0 && !self::$later->isEmpty(); $count--) {
                (self::$later->dequeue())();
            }
        }
        foreach (self::$cycles as $cycle) {
            $cycle();
        }
    }

    private static function untilTimer(): ?float
    {
        while (self::$order !== null && !self::$order->isEmpty()) {
            [$when, $id] = self::$order->top();
            if ((self::$timers[$id][0] ?? null) === $when) {
                return \max(0.0, $when - \hrtime(true) / 1e9);
            }
            self::$order->extract();
        }
        return null;
    }

    private static function select(?float $seconds): void
    {
        // A signal that comes between the look at it and the wait is seen after the wait.
        $longest = self::$hasHandlers ? 0.1 : 1.0;
        $seconds = \min($seconds ?? $longest, $longest);
        $read = $write = [];
        foreach (self::$readers as $number => [$stream]) {
            if (\is_resource($stream)) {
                $read[] = $stream;
            } else {
                unset(self::$readers[$number], self::$background["r$number"]);
            }
        }
        foreach (self::$writers as $number => [$stream]) {
            if (\is_resource($stream)) {
                $write[] = $stream;
            } else {
                unset(self::$writers[$number]);
            }
        }
        $micros = (int) \ceil($seconds * 1e6);
        if (!$read && !$write) {
            if ($micros > 0) {
                \usleep($micros);
            }
            return;
        }
        $except = null;
        // A signal ends the wait with a warning.
        if (!@\stream_select($read, $write, $except, 0, $micros)) {
            return;
        }
        foreach ($read as $stream) {
            if (\is_resource($stream) && isset(self::$readers[\get_resource_id($stream)])) {
                (self::$readers[\get_resource_id($stream)][1])($stream);
            }
        }
        foreach ($write as $stream) {
            if (\is_resource($stream) && isset(self::$writers[\get_resource_id($stream)])) {
                (self::$writers[\get_resource_id($stream)][1])($stream);
            }
        }
    }

    private static function timers(): void
    {
        $now = \hrtime(true) / 1e9;
        while (self::$order !== null && !self::$order->isEmpty()) {
            [$when, $id] = self::$order->top();
            $timer = self::$timers[$id] ?? null;
            if ($timer === null || $timer[0] !== $when) {
                self::$order->extract();
                continue;
            }
            if ($when > $now) {
                return;
            }
            self::$order->extract();
            if ($now > self::$looked) {
                self::$looked = $now;
                self::$rounds++;
            }
            if ($timer[2] > 0) {
                // Turns that were missed are left out, so that one that is due runs once.
                $next = $when + $timer[2] * (\floor(($now - $when) / $timer[2]) + 1);
                $next > $now || $next = $now + $timer[2];
                self::$timers[$id][0] = $next;
                self::$order->insert([$next, $id], [-$next, -$id]);
            } else {
                self::clear($id);
            }
            $timer[1]($id);
        }
    }

    /** How many streams are waited for. */
    public static function streams(): int
    {
        return \count(self::$readers) + \count(self::$writers);
    }

    public static function lastTask(): int
    {
        return self::$nextTask - 1;
    }

    /** When a timer is due, in seconds from now; `null`: there is none. */
    public static function due(int $id): ?float
    {
        return isset(self::$timers[$id]) ? self::$timers[$id][0] - \hrtime(true) / 1e9 : null;
    }
}
