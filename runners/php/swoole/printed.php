<?php
/*
 * Which request a printed line belongs to: it begins with a mark that Ringroad knows, and the id of the request
 * (docs/APP-PROTOCOL.md, printed lines).
 */

namespace Ringroad;

/** A request, or a task, while its handler runs. Coroutines that it starts have the same one. */
final class Served
{
    /** `null`: it is over. */
    public function __construct(public ?string $id)
    {
    }
}

/**
 * What PHP code prints: with `echo` and its like, and to the constants STDOUT and STDERR. PHP itself writes its
 * warnings, and what `error_log` gets, past this.
 *
 * A line goes out in one piece, so that those of several coroutines do not mix.
 */
final class Printed extends \php_user_filter
{
    /** What marks have; `null`: lines are not marked. */
    private static ?string $mark = null;
    /** @var array<string, array<string, string>> what was printed of a line, by stream and request */
    private static array $parts = ['out' => [], 'err' => []];
    /** @var array<string, bool> what went out last does not end its line */
    private static array $inside = ['out' => false, 'err' => false];
    /** What `echo` prints was caught before. */
    private static bool $caught = false;
    /** Bytes of a part that are kept for its end. */
    private const PART = 16 << 10;

    /** Marks lines from here on. */
    public static function begin(string $mark): void
    {
        self::$mark = $mark;
        \stream_filter_register('ringroad.printed', self::class);
        foreach (['out' => 'STDOUT', 'err' => 'STDERR'] as $name => $constant) {
            $stream = \constant($constant);
            \is_resource($stream) && \stream_filter_append($stream, 'ringroad.printed', STREAM_FILTER_WRITE, $name);
        }
    }

    /**
     * Takes what `echo` prints, each time and not only when a buffer is full, before any coroutine has a buffer. A
     * program that ends all buffers ends this one, too: the next coroutine that goes on has it again. How many
     * buffers there are.
     */
    public static function caught(): int
    {
        if (self::$mark === null) {
            return 0;
        }
        // What went past a buffer that is not there any more may have left a line without its end.
        self::$inside['out'] = self::$caught;
        self::$caught = true;
        \ob_start(static fn (string $text, int $phase) => $phase & PHP_OUTPUT_HANDLER_CLEAN ? ''
            : self::take('out', $text) . ($phase & PHP_OUTPUT_HANDLER_FINAL ? self::rest('out') : ''), 1);
        return 1;
    }

    /** A request begins: what its coroutine prints from here on belongs to it. */
    public static function serve(string $id): ?Served
    {
        if (self::$mark === null) {
            return null;
        }
        $served = new Served($id);
        if (Loop::$current !== null) {
            Loop::$current->served = $served;
        }
        return $served;
    }

    /** A request is over: what it has printed of a line is a line. */
    public static function settle(Served $served): void
    {
        foreach (['out', 'err'] as $name) {
            if (isset(self::$parts[$name][$served->id])) {
                $stream = \constant($name === 'out' ? 'STDOUT' : 'STDERR');
                // The end of the line, for its own request.
                $name === 'out' ? print("\n") : (\is_resource($stream) && @\fwrite($stream, "\n"));
            }
        }
        $served->id = null;
    }

    /** What goes out now of what is printed. */
    private static function take(string $name, string $text): string
    {
        $id = self::$mark === null ? null : Loop::$current?->served?->id;
        if ($id === null || $text === '') {
            if ($text !== '') {
                self::$inside[$name] = $text[-1] !== "\n";
            }
            return $text;
        }
        $text = (self::$parts[$name][$id] ?? '') . $text;
        unset(self::$parts[$name][$id]);
        $end = \strrpos($text, "\n");
        if ($end !== \strlen($text) - 1 && \strlen($text) - (int) $end < self::PART) {
            self::$parts[$name][$id] = $end === false ? $text : \substr($text, $end + 1);
            return $end === false ? '' : self::marked($name, $id, \substr($text, 0, $end + 1));
        }
        return self::marked($name, $id, $text);
    }

    /** Whole lines, with marks. */
    private static function marked(string $name, string $id, string $lines): string
    {
        $mark = "\x1f" . self::$mark . " $id\x1f";
        $before = self::$inside[$name] ? "\n" : '';
        self::$inside[$name] = false;
        return $before . $mark . \str_replace("\n", "\n$mark", \str_ends_with($lines, "\n") ? \substr($lines, 0, -1) : $lines) . "\n";
    }

    /** Parts of lines that have no end, as lines: nothing more is printed. */
    private static function rest(string $name): string
    {
        $all = '';
        foreach (self::$parts[$name] as $id => $text) {
            $all .= self::marked($name, (string) $id, $text);
        }
        self::$parts[$name] = [];
        return $all;
    }

    public function filter($in, $out, &$consumed, bool $closing): int
    {
        $text = '';
        while ($bucket = \stream_bucket_make_writeable($in)) {
            $text .= $bucket->data;
            $consumed += $bucket->datalen;
        }
        $text = self::take($this->params, $text) . ($closing ? self::rest($this->params) : '');
        if ($text === '') {
            return PSFS_FEED_ME;
        }
        \stream_bucket_append($out, \stream_bucket_new($this->stream, $text));
        return PSFS_PASS_ON;
    }

    /** This is a forked process of the program: nothing of the parent's is its own. */
    public static function forked(): void
    {
        self::$mark = null;
        self::$parts = ['out' => [], 'err' => []];
    }
}
