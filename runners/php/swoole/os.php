<?php
/*
 * What the classes need of the operating system, and how they tell what went wrong.
 */

namespace Ringroad;

/** The process, its descriptors and its messages. */
final class Os
{
    private static bool|\FFI|null $libc = null;

    /** What `log_file`, `log_level` and `log_date_format` of a program say. */
    private static array $log = ['log_file' => '', 'log_level' => 2, 'log_date_format' => 'Y-m-d H:i:s'];
    private const LEVELS = ['DEBUG', 'TRACE', 'INFO', 'NOTICE', 'WARNING', 'ERROR'];
    /** @var array<int, true> numbers of errors that are not logged */
    public static array $ignored = [];

    /** Tells of a mistake in the words that Swoole uses, and remembers its number. */
    public static function warn(string $what, int $errno = 0, int $level = E_USER_WARNING): void
    {
        if ($errno !== 0) {
            Loop::$errno = $errno;
        }
        $where = self::called();
        \trigger_error(($where === '' ? '' : "$where(): ") . $what, $level);
    }

    /** The name of the function of these classes that the program has called. */
    public static function called(): string
    {
        $name = '';
        foreach (\debug_backtrace(DEBUG_BACKTRACE_IGNORE_ARGS) as $at) {
            $class = $at['class'] ?? '';
            if (!\str_starts_with($class, 'Ringroad') && !\str_contains($at['function'], '{closure}') && self::isOwn($at)) {
                $name = ($class === '' ? '' : "$class::") . $at['function'];
            }
            if ($class === 'Fiber' || isset($at['file']) && !\str_starts_with($at['file'], __DIR__)) {
                break;
            }
        }
        return $name;
    }

    /** Demands that something can be called, in PHP's own words; `$where` names the argument. */
    public static function demand(mixed $call, string $where): callable
    {
        if (\is_callable($call)) {
            return $call;
        }
        $why = ', no array or string given';
        try {
            \call_user_func($call);
        } catch (\TypeError $error) {
            $at = \strpos($error->getMessage(), 'valid callback');
            $why = $at === false ? $why : \substr($error->getMessage(), $at + 14);
        }
        throw new \TypeError("$where must be a valid callback$why");
    }

    /** Takes the settings of the log. */
    public static function log(array $settings): void
    {
        self::$log = \array_intersect_key($settings, self::$log) + self::$log;
        if (($settings['log_file'] ?? '') !== '') {
            // It is there from the start.
            @\fclose(@\fopen($settings['log_file'], 'a') ?: \fopen('php://memory', 'r'));
        }
    }

    /** Writes a line to the log of the program: `log_file`, or standard output. */
    public static function note(int $level, string $text, int $errno = 0): void
    {
        if ($level < self::$log['log_level'] || isset(self::$ignored[$errno])) {
            return;
        }
        $text = '[' . \date(self::$log['log_date_format']) . ' *' . \getmypid() . ".0]\t" . (self::LEVELS[$level] ?? 'NOTICE')
            . "\t$text\n";
        if (self::$log['log_file'] !== '') {
            @\file_put_contents(self::$log['log_file'], $text, FILE_APPEND);
        } elseif (\is_resource(STDOUT)) {
            @\fwrite(STDOUT, $text);
        } else {
            \error_log(\rtrim($text));
        }
    }

    /** Prints what PHP prints of an exception that was not caught. Calls of these classes are left out of the trace. */
    public static function uncaught(\Throwable $why): void
    {
        [$shown, $file, $line] = self::shown($why);
        $text = "Uncaught $shown\n  thrown in $file on line $line";
        $kind = 'Fatal error';
        if ($why instanceof \ParseError) {
            [$text, $kind] = ["{$why->getMessage()} in {$why->getFile()} on line {$why->getLine()}", 'Parse error'];
        }
        if (\ini_get('log_errors') && \ini_get('error_log')) {
            \error_log("PHP $kind:  $text");
        }
        if (\filter_var(\ini_get('display_errors'), FILTER_VALIDATE_BOOL) || \ini_get('display_errors') === 'stdout') {
            echo "\n$kind: $text\n";
        } else {
            self::say("PHP $kind:  $text\n");
        }
    }

    /** Whether a call of a trace is one of these classes and functions. */
    private static function isOwn(array $call): bool
    {
        $name = ($call['class'] ?? '') . '\\' . $call['function'];
        return \preg_match('/^(Swoole\\\\|Ringroad\\\\|\\\\Swoole\\\\|\\\\Ringroad\\\\|\\\\Co\\\\|\\\\swoole_|\\\\(go|defer)$)/', $name) === 1;
    }

    /** The line of the program that has called these classes. */
    public static function place(): array
    {
        foreach (\debug_backtrace(DEBUG_BACKTRACE_IGNORE_ARGS) as $at) {
            if (isset($at['file']) && !\str_starts_with($at['file'], __DIR__)) {
                return [$at['file'], $at['line']];
            }
        }
        return [__FILE__, __LINE__];
    }

    /**
     * An exception as text, as the program sees it: where it called these classes, and what called it. Then the file
     * and the line.
     */
    public static function shown(\Throwable $why): array
    {
        [$file, $line] = [$why->getFile(), $why->getLine()];
        $lines = [];
        foreach ($why->getTrace() as $at) {
            $from = $at['file'] ?? '';
            $inside = $from === '' || \str_starts_with($from, __DIR__);
            if (\in_array($at['class'] ?? '', ['Fiber', Task::class], true)) {
                break;
            }
            if ($inside && self::isOwn($at)) {
                continue;
            }
            if (!$lines && !$inside && \str_starts_with($file, __DIR__)) {
                [$file, $line] = [$from, $at['line']];
            }
            $arguments = \array_map(static fn (mixed $one) => match (true) {
                $one === null => 'NULL',
                \is_bool($one) => $one ? 'true' : 'false',
                \is_array($one) => 'Array',
                \is_object($one) => 'Object(' . $one::class . ')',
                \is_string($one) => \strlen($one) > 15 ? "'" . \substr($one, 0, 15) . "...'" : "'$one'",
                \is_resource($one) => 'Resource id #' . \get_resource_id($one),
                default => (string) $one,
            }, $at['args'] ?? []);
            $lines[] = ($inside ? '[internal function]' : "$from({$at['line']})") . ': '
                . ($at['class'] ?? '') . ($at['type'] ?? '') . $at['function'] . '(' . \implode(', ', $arguments) . ')';
        }
        $lines[] = '{main}';
        $trace = '';
        foreach ($lines as $number => $text) {
            $trace .= "\n#$number $text";
        }
        $message = $why->getMessage();
        return [$why::class . ($message === '' ? '' : ": $message") . " in $file:$line\nStack trace:$trace", $file, $line];
    }

    /** Writes to standard error, also where the program has closed STDERR. */
    public static function say(string $text): void
    {
        \is_resource(STDERR) ? @\fwrite(STDERR, $text) : \error_log(\rtrim($text));
    }

    /** The number of a stream's descriptor; `null` where it cannot be found. */
    public static function number($stream): ?int
    {
        $inode = \is_resource($stream) ? (@\fstat($stream)['ino'] ?? 0) : 0;
        foreach ($inode ? (@\scandir('/proc/self/fd') ?: []) : [] as $number) {
            $link = "/proc/self/fd/$number";
            if (\is_link($link) && \str_ends_with((string) @\readlink($link), ":[$inode]")) {
                return (int) $number;
            }
        }
        return null;
    }

    /** The C library, if PHP may call it. */
    private static function libc(): ?\FFI
    {
        if (self::$libc === null) {
            self::$libc = false;
            try {
                if (\extension_loaded('ffi')) {
                    self::$libc = \FFI::cdef('int dup2(int, int);');
                }
            } catch (\Throwable) {
                // It is switched off.
            }
        }
        return self::$libc ?: null;
    }

    /** Makes a stream standard input, output or error of this process. Whether it could be. */
    public static function become($stream, int $number): bool
    {
        $from = self::number($stream);
        $libc = self::libc();
        return $from !== null && $libc !== null && $libc->dup2($from, $number) === $number;
    }

    /** A connected pair of Unix sockets. */
    public static function pair(int $type = STREAM_SOCK_STREAM): array
    {
        $pair = \stream_socket_pair(STREAM_PF_UNIX, $type, 0);
        if ($pair === false) {
            throw new \Swoole\Exception('a pair of sockets cannot be made');
        }
        foreach ($pair as $end) {
            \stream_set_read_buffer($end, 0);
            \stream_set_write_buffer($end, 0);
        }
        return $pair;
    }

    /** Forks. In the child nothing of the parent's loop goes on. */
    public static function fork(): int
    {
        if (!\function_exists('pcntl_fork')) {
            throw new \Swoole\Error('processes need the extension pcntl');
        }
        $pid = \pcntl_fork();
        if ($pid === 0) {
            Loop::forget();
            Guard::forked();
            \mt_srand();
        }
        return $pid;
    }

    /** How a process ended, as Swoole tells it. */
    public static function ended(int $pid, int $status): array
    {
        return ['pid' => $pid, 'code' => \pcntl_wifexited($status) ? \pcntl_wexitstatus($status) : 0,
            'signal' => \pcntl_wifsignaled($status) ? \pcntl_wtermsig($status) : 0];
    }

    /**
     * Calls something in the loop when a signal comes: PHP switches no coroutine in the handler of a signal.
     * `$direct`: at once, for a process that runs no loop.
     */
    public static function onSignal(int $signal, callable|int $handler, bool $direct = false): bool
    {
        if (!\function_exists('pcntl_signal')) {
            return false;
        }
        Loop::$hasHandlers = true;
        return \pcntl_signal($signal, \is_int($handler) || $direct ? $handler
            : static fn (int $signal) => Loop::later(static fn () => $handler($signal)));
    }
}

/** An object that stands for something of this process, and cannot be written down. */
trait NotSerialized
{
    public function __serialize(): array
    {
        throw new \Exception("Serialization of '" . static::class . "' is not allowed");
    }

    public function __unserialize(array $data): void
    {
        throw new \Exception("Unserialization of '" . static::class . "' is not allowed");
    }
}
