<?php
/*
 * Numbers, locks and tables that forked processes share. They are made before the fork.
 *
 * The memory is a segment of System V without a name, which goes with the last process that has it. What must
 * be done as one step is done under the lock of a file: the lock of a process that dies is free.
 */

namespace Ringroad {
    /** A lock among a process and those that it forks. */
    final class Guard
    {
        private string $path;
        private $own = null;
        private int $pid;
        private int $creator;
        private static ?Guard $common = null;
        /** @var \WeakMap<Guard, true>|null */
        private static ?\WeakMap $all = null;

        public function __construct()
        {
            $folder = \is_writable('/dev/shm') ? '/dev/shm' : \sys_get_temp_dir();
            self::$all === null && self::sweep($folder);
            self::$all ??= new \WeakMap();
            $this->pid = $this->creator = \getmypid();
            $this->path = "$folder/ringroad-lock-$this->pid-" . \bin2hex(\random_bytes(8));
            $this->own = \fopen($this->path, 'x+')
                ?: throw new \Swoole\Exception("the file $this->path of a lock cannot be made");
            self::$all[$this] = true;
        }

        /** Removes what programs have left that were killed. */
        private static function sweep(string $folder): void
        {
            foreach (\glob("$folder/ringroad-lock-*") ?: [] as $path) {
                $pid = (int) \explode('-', \basename($path))[2];
                \is_dir("/proc/$pid") || @\unlink($path);
            }
        }

        public function __destruct()
        {
            $this->creator === \getmypid() && @\unlink($this->path);
        }

        /** The lock of all numbers. */
        public static function common(): Guard
        {
            return self::$common ??= new Guard();
        }

        /** A forked process opens the files of its parent's locks for itself. */
        public static function forked(): void
        {
            foreach (self::$all ?? [] as $guard => $_) {
                $guard->open();
            }
        }

        private function open(): void
        {
            if ($this->pid !== \getmypid()) {
                // Processes that share an open file share its lock.
                $this->pid = \getmypid();
                $this->own = @\fopen($this->path, 'r+') ?: $this->own;
            }
        }

        /** Takes the lock; `$operation` as of `flock`. */
        public function lock(int $operation): bool
        {
            $this->open();
            do {
                $locked = @\flock($this->own, $operation);
            } while (!$locked && !($operation & LOCK_NB));
            return $locked;
        }

        public function unlock(): void
        {
            \flock($this->own, LOCK_UN);
        }

        public function do(callable $step, int $operation = LOCK_EX): mixed
        {
            $this->lock($operation);
            try {
                return $step();
            } finally {
                $this->unlock();
            }
        }
    }

    /** Bytes that forked processes share. */
    final class Memory
    {
        private \Shmop $memory;

        public function __construct(public int $size)
        {
            if (!\extension_loaded('shmop')) {
                throw new \Swoole\Error('shared memory needs the extension shmop');
            }
            $memory = @\shmop_open(0, 'c', 0600, $size);
            if ($memory === false) {
                throw new \Swoole\Exception("$size bytes of shared memory cannot be had", \SWOOLE_ERROR_MALLOC_FAIL);
            }
            $this->memory = $memory;
            // It stays until the last process that has it ends.
            \shmop_delete($memory);
        }

        public function read(int $at, int $length): string
        {
            return \shmop_read($this->memory, $at, $length);
        }

        public function write(int $at, string $bytes): void
        {
            \shmop_write($this->memory, $bytes, $at);
        }
    }

    /** One number in shared memory, with how many wait for it. */
    final class Cell
    {
        private const SIZE = 24, COUNT = 1024;
        private static ?Memory $arena = null;
        private static int $next = 0;
        private static int $pid = 0;
        private Memory $memory;
        private int $at;

        public function __construct(int $value)
        {
            if (self::$arena === null || self::$next === self::COUNT || self::$pid !== \getmypid()) {
                // What a forked process makes is not its parent's.
                self::$arena = new Memory(self::SIZE * self::COUNT);
                self::$next = 0;
                self::$pid = \getmypid();
            }
            $this->memory = self::$arena;
            $this->at = self::SIZE * self::$next++;
            Guard::common();
            $this->put([$value, 0, 0]);
        }

        /** @return array{0: int, 1: int, 2: int} the value, waiting processes, and how many of them are woken */
        private function take(): array
        {
            return \array_values(\unpack('q3', $this->memory->read($this->at, self::SIZE)));
        }

        private function put(array $three): void
        {
            $this->memory->write($this->at, \pack('q3', ...$three));
        }

        public function get(): int
        {
            return \unpack('q', $this->memory->read($this->at, 8))[1];
        }

        /** Replaces the value by what a function makes of it; the new value. */
        public function change(callable $make): int
        {
            return Guard::common()->do(function () use ($make): int {
                $three = $this->take();
                $three[0] = $make($three[0]);
                $this->put($three);
                return $three[0];
            });
        }

        public function swap(int $old, int $new): bool
        {
            return Guard::common()->do(function () use ($old, $new): bool {
                $three = $this->take();
                if ($three[0] !== $old) {
                    return false;
                }
                $three[0] = $new;
                $this->put($three);
                return true;
            });
        }

        public function wait(float $seconds): bool
        {
            $until = \hrtime(true) / 1e9 + $seconds;
            $began = false;
            $look = function () use (&$began): bool {
                $three = $this->take();
                // As with a futex, only `wake` ends a wait that has begun: `set(1)` does not.
                $woken = $began ? $three[2] > 0 : $three[0] === 1;
                if ($woken) {
                    $three[0] = 0;
                    if ($began) {
                        $three[1]--;
                        $three[2] = \max(0, $three[2] - 1);
                    }
                } elseif (!$began) {
                    $began = true;
                    $three[1]++;
                }
                $this->put($three);
                return $woken;
            };
            for ($pause = 100; !Guard::common()->do($look); $pause = \min($pause * 2, 2000)) {
                if ($seconds >= 0 && \hrtime(true) / 1e9 >= $until) {
                    Guard::common()->do(function (): void {
                        $three = $this->take();
                        $three[1]--;
                        $this->put($three);
                    });
                    Loop::$errno = 110;
                    return false;
                }
                \usleep($pause);
            }
            return true;
        }

        public function wake(int $count): void
        {
            Guard::common()->do(function () use ($count): void {
                $three = $this->take();
                if ($three[0] === 0) {
                    $this->put([1, $three[1], \min($count, $three[1])]);
                }
            });
        }
    }
}

namespace Swoole {
    use Ringroad\Cell;
    use Ringroad\Guard;
    use Ringroad\Loop;
    use Ringroad\Memory;
    use Ringroad\Os;

    /** A number of 32 bits that processes share. */
    class Atomic
    {
        use \Ringroad\NotSerialized;

        private Cell $cell;

        public function __construct(int $value = 0)
        {
            $this->cell = new Cell($value & 0xffffffff);
        }

        public function add(int $add_value = 1): int
        {
            return $this->cell->change(static fn (int $old) => ($old + $add_value) & 0xffffffff);
        }

        public function sub(int $sub_value = 1): int
        {
            return $this->cell->change(static fn (int $old) => ($old - $sub_value) & 0xffffffff);
        }

        public function get(): int
        {
            return $this->cell->get();
        }

        public function set(int $value): void
        {
            $this->cell->change(static fn () => $value & 0xffffffff);
        }

        public function cmpset(int $cmp_value, int $new_value): bool
        {
            return $this->cell->swap($cmp_value & 0xffffffff, $new_value & 0xffffffff);
        }

        /** Waits, also the whole process, until another one calls `wakeup`. */
        public function wait(float $timeout = 1.0): bool
        {
            return $this->cell->wait($timeout);
        }

        public function wakeup(int $count = 1): bool
        {
            $this->cell->wake($count);
            return true;
        }
    }

    /** A lock among processes. */
    class Lock
    {
        use \Ringroad\NotSerialized;

        public const RWLOCK = \SWOOLE_RWLOCK, MUTEX = \SWOOLE_MUTEX, SPINLOCK = \SWOOLE_SPINLOCK;
        public int $errCode = 0;
        private Guard $guard;
        private int $pid = 0;
        private int $held = 0;
        private bool $alone = false;

        private int $type = \SWOOLE_MUTEX;

        public function __construct(int $type = \SWOOLE_MUTEX, string $filename = '')
        {
            if (isset($this->guard)) {
                throw new Error('Constructor of Swoole\Lock can only be called once');
            }
            if (!\in_array($type, [\SWOOLE_MUTEX, \SWOOLE_RWLOCK, \SWOOLE_SPINLOCK], true)) {
                throw new Exception("lock type[$type] is not support");
            }
            $this->type = $type;
            $this->guard = new Guard();
        }

        private function try(int $operation): bool
        {
            if ($this->pid !== \getmypid()) {
                // The lock of its parent is not held by a forked process.
                $this->pid = \getmypid();
                $this->held = 0;
            }
            $alone = !($operation & LOCK_SH) || $this->type !== \SWOOLE_RWLOCK;
            if ($this->held > 0) {
                if ($alone || $this->alone) {
                    return false;
                }
                $this->held++;
                return true;
            }
            if (!$this->guard->lock(($alone ? LOCK_EX : LOCK_SH) | LOCK_NB)) {
                return false;
            }
            $this->held = 1;
            $this->alone = $alone;
            return true;
        }

        public function lock(int $operation = LOCK_EX, float $timeout = -1): bool
        {
            $until = \hrtime(true) / 1e9 + $timeout;
            for ($pause = 50; !$this->try($operation); $pause = \min($pause * 2, 2000)) {
                if ($operation & LOCK_NB || $timeout > 0 && \hrtime(true) / 1e9 >= $until) {
                    $this->errCode = Loop::$errno = $operation & LOCK_NB ? 16 : 110;
                    return false;
                }
                \usleep($pause);
            }
            $this->errCode = 0;
            return true;
        }

        public function trylock(): bool
        {
            return $this->lock(LOCK_EX | LOCK_NB);
        }

        public function lock_read(): bool
        {
            return $this->lock(LOCK_SH);
        }

        public function trylock_read(): bool
        {
            return $this->lock(LOCK_SH | LOCK_NB);
        }

        public function lockwait(float $timeout = 1.0): bool
        {
            return $this->lock(LOCK_EX, $timeout);
        }

        public function unlock(): bool
        {
            if ($this->pid !== \getmypid() || $this->held === 0) {
                $this->errCode = Loop::$errno = 1;
                return false;
            }
            if (--$this->held === 0) {
                $this->guard->unlock();
            }
            return true;
        }

        public function destroy(): void
        {
        }
    }

    /**
     * Rows that processes share, by key.
     *
     * Slots with open addressing: a byte for the state of each (free, used, deleted), then the rows. A row is
     * its key and its columns.
     */
    class Table implements \Iterator, \Countable
    {
        use \Ringroad\NotSerialized;

        public const TYPE_INT = 1, TYPE_STRING = 3, TYPE_FLOAT = 2;
        /** At the begin: how many rows there are, were put, changed and removed, and whether the table is gone. */
        private const KEY = 64, HEAD = 40;
        public ?int $size = null;
        public ?int $memorySize = null;
        /** @var array<string, array{0: int, 1: int, 2: int}> type, size, place in a row */
        private array $columns = [];
        private int $row = self::KEY;
        private int $rows;
        private int $slots;
        private ?Memory $memory = null;
        private ?Guard $guard = null;
        /** @var list<string> keys of an iteration */
        private array $keys = [];
        private int $place = 0;
        private ?array $shown = null;
        /** Whether a value of the program is being converted. */
        private bool $converts = false;

        public function __construct(int $table_size, float $conflict_proportion = 0.2)
        {
            if (isset($this->rows)) {
                throw new Error('Constructor of Swoole\Table can only be called once');
            }
            if ($table_size <= 0) {
                throw new Exception('global memory allocation failure', \SWOOLE_ERROR_MALLOC_FAIL);
            }
            $this->rows = 1;
            while ($this->rows < \min($table_size, 0x80000000)) {
                $this->rows <<= 1;
            }
            $this->rows = \max(64, $this->rows);
            $this->slots = $this->rows + (int) \ceil($this->rows * \min(1.0, \max(0.2, $conflict_proportion)));
        }

        public function column(string $name, int $type, int $size = 0): bool
        {
            // A table that was destroyed is no new one.
            $this->size !== null && $this->created();
            if ($this->memory !== null) {
                Os::warn('unable to add column after table has been created');
                return false;
            }
            if (isset($this->columns[$name])) {
                Os::note(\SWOOLE_LOG_WARNING, "Table::add_column(): column[$name] already exists");
                return false;
            }
            if (!\in_array($type, [self::TYPE_INT, self::TYPE_STRING, self::TYPE_FLOAT], true)) {
                Os::warn('unknown column type');
                return false;
            }
            if ($type === self::TYPE_STRING && $size < 1) {
                Os::warn('the length of string type values has to be more than zero', \SWOOLE_ERROR_INVALID_PARAMS);
                return false;
            }
            $size = $type === self::TYPE_STRING ? $size : 8;
            $this->columns[$name] = [$type, $size, $this->row];
            $this->row += $type === self::TYPE_STRING ? 4 + $size : 8;
            return true;
        }

        public function create(): bool
        {
            if ($this->memory !== null) {
                Os::warn('the table has been created already');
                return false;
            }
            $this->memory = new Memory(self::HEAD + $this->slots * (1 + $this->row));
            $this->guard = new Guard();
            $this->size = $this->rows;
            $this->memorySize = $this->memory->size;
            return true;
        }

        /** Gives it up for all processes. */
        public function destroy(): bool
        {
            $this->created();
            if ($this->converts) {
                throw new Error('Cannot destroy Swoole\Table during value conversion');
            }
            $this->memory->write(32, \pack('q', 1));
            $this->memory = $this->guard = null;
            return true;
        }

        public function getSize(): int
        {
            return $this->rows;
        }

        public function getMemorySize(): int
        {
            return $this->memory?->size ?? 0;
        }

        private function created(): Memory
        {
            if ($this->memory === null || $this->memory->read(32, 1) !== "\0") {
                throw new Error('table is not created or has been destroyed; must call constructor first');
            }
            return $this->memory;
        }

        /** Whether a key can be one. */
        private function named(string $key): bool
        {
            $this->created();
            if ($key === '' || \strlen($key) > self::KEY - 1) {
                Os::warn($key === '' ? 'key must not be empty' : 'key length exceeds the limit of ' . self::KEY - 1 . ' bytes',
                    \SWOOLE_ERROR_INVALID_PARAMS);
                return false;
            }
            return true;
        }

        private function at(int $slot): int
        {
            return self::HEAD + $this->slots + $slot * $this->row;
        }

        /** The slot of a key, and the one where it could be put; each -1 if there is none. */
        private function find(string $key): array
        {
            $states = null;
            $free = -1;
            $slot = \crc32($key) % $this->slots;
            $packed = \chr(\strlen($key)) . $key;
            for ($tried = 0; $tried < $this->slots; $tried++, $slot = ($slot + 1) % $this->slots) {
                $state = $states === null ? $this->memory->read(self::HEAD + $slot, 1) : $states[$slot];
                if ($tried === 8) {
                    $states = $this->memory->read(self::HEAD, $this->slots);
                }
                if ($state === "\0") {
                    return [-1, $free < 0 ? $slot : $free];
                }
                if ($state === "\2") {
                    $free = $free < 0 ? $slot : $free;
                } elseif ($this->memory->read($this->at($slot), \strlen($packed)) === $packed) {
                    return [$slot, $slot];
                }
            }
            return [-1, $free];
        }

        private function counted(): int
        {
            return \unpack('q', $this->memory->read(0, 8))[1];
        }

        /** Counts what was done: 1 put, 2 changed, 3 removed. */
        private function note(int $what, int $rows): void
        {
            $counts = \array_values(\unpack('q4', $this->memory->read(0, 32)));
            $counts[0] += $rows;
            $counts[$what]++;
            $this->memory->write(0, \pack('q4', ...$counts));
        }

        private function unpack(string $row, ?array $only = null): array
        {
            $values = [];
            foreach ($only ?? $this->columns as $name => [$type, , $at]) {
                $values[$name] = match ($type) {
                    self::TYPE_INT => \unpack('q', $row, $at)[1],
                    self::TYPE_FLOAT => \unpack('d', $row, $at)[1],
                    default => \substr($row, $at + 4, \unpack('V', $row, $at)[1]),
                };
            }
            return $values;
        }

        /** The values of columns as they are kept. The program's own conversions run here, outside of the lock. */
        private function convert(array $values, string $key): array
        {
            $before = $this->converts;
            $this->converts = true;
            $kept = [];
            try {
                foreach (\array_intersect_key($values, $this->columns) as $name => $value) {
                    [$type, $size] = $this->columns[$name];
                    $kept[$name] = match ($type) {
                        self::TYPE_INT => (int) $value,
                        self::TYPE_FLOAT => (float) $value,
                        default => (string) $value,
                    };
                    if ($type === self::TYPE_STRING && \strlen($kept[$name]) > $size) {
                        Os::note(\SWOOLE_LOG_WARNING, "table_marshal_values(): [key=$key,field=$name]string value is too long");
                        $kept[$name] = \substr($kept[$name], 0, $size);
                    }
                }
            } finally {
                $this->converts = $before;
            }
            return $kept;
        }

        private function pack(string $row, array $kept): string
        {
            foreach ($kept as $name => $value) {
                [$type, , $at] = $this->columns[$name];
                $bytes = match ($type) {
                    self::TYPE_INT => \pack('q', $value),
                    self::TYPE_FLOAT => \pack('d', $value),
                    default => \pack('V', \strlen($value)) . $value,
                };
                $row = \substr_replace($row, $bytes, $at, \strlen($bytes));
            }
            return $row;
        }

        /** Puts a row; what `$allowed` says of the old one (or `null`) decides. */
        private function put(string $key, array $values, ?callable $allowed = null): bool
        {
            if (!$this->named($key)) {
                return false;
            }
            $kept = $this->convert($values, $key);
            return $this->guard->do(function () use ($key, $kept, $allowed): bool {
                [$slot, $free] = $this->find($key);
                $old = $slot < 0 ? null : $this->memory->read($this->at($slot), $this->row);
                if ($allowed !== null && !$allowed($old)) {
                    return false;
                }
                if ($slot < 0 && $free < 0) {
                    \trigger_error("Swoole\\Table::set(): failed to set('$key'), unable to allocate memory", E_USER_WARNING);
                    return false;
                }
                $this->store($key, $slot, $free, $this->pack($old ?? $this->blank($key), $kept));
                return true;
            });
        }

        private function blank(string $key): string
        {
            return \str_pad(\chr(\strlen($key)) . $key, $this->row, "\0");
        }

        /** Writes a row, under the lock. */
        private function store(string $key, int $slot, int $free, string $row): void
        {
            if ($slot < 0) {
                $this->memory->write(self::HEAD + $free, "\1");
            }
            $this->memory->write($this->at($slot < 0 ? $free : $slot), $row);
            $this->note($slot < 0 ? 1 : 2, $slot < 0 ? 1 : 0);
        }

        public function set(string $key, array $value): bool
        {
            return $this->put($key, $value);
        }

        public function add(string $key, array $values): bool
        {
            return $this->put($key, $values, static fn (?string $old) => $old === null);
        }

        public function update(string $key, array $values): bool
        {
            return $this->put($key, $values, static fn (?string $old) => $old !== null);
        }

        public function cmpset(string $key, array $expected, array $values): bool
        {
            $wanted = $this->named($key) ? $this->expected($expected, $key) : null;
            return $wanted !== null && $this->put($key, $values, fn (?string $old) => $old !== null && $this->holds($old, $wanted));
        }

        /** What columns are to hold; `null` where it cannot be asked for. */
        private function expected(array $expected, string $key): ?array
        {
            $names = \array_filter(\array_keys($expected), \is_string(...));
            $unknown = \array_diff($names, \array_keys($this->columns));
            $why = match (true) {
                !$expected => 'expected values must not be empty',
                \count($names) < \count($expected) => 'expected values must use column names',
                $unknown !== [] => 'column[' . \current($unknown) . '] does not exist',
                default => null,
            };
            if ($why !== null) {
                Os::warn($why, \SWOOLE_ERROR_INVALID_PARAMS);
                return null;
            }
            $before = $this->converts;
            $this->converts = true;
            try {
                $wanted = [];
                foreach ($expected as $name => $value) {
                    $wanted[$name] = match ($this->columns[$name][0]) {
                        self::TYPE_INT => (int) $value,
                        self::TYPE_FLOAT => (float) $value,
                        default => (string) $value,
                    };
                }
                return $wanted;
            } finally {
                $this->converts = $before;
            }
        }

        private function holds(string $row, array $wanted): bool
        {
            $now = $this->unpack($row);
            foreach ($wanted as $name => $value) {
                // The bytes decide: 0.0 is not -0.0, and a number that is none is itself.
                if (\is_float($value) ? \pack('d', $now[$name]) !== \pack('d', $value) : $now[$name] !== $value) {
                    return false;
                }
            }
            return true;
        }

        private function take(string $key, ?string $field, bool $remove): array|false|string|float|int
        {
            if (!$this->named($key) || $remove && $field !== null && $field !== '' && !isset($this->columns[$field])) {
                return false;
            }
            $row = $this->guard->do(function () use ($key, $remove): ?string {
                [$slot] = $this->find($key);
                if ($slot < 0) {
                    return null;
                }
                $row = $this->memory->read($this->at($slot), $this->row);
                $remove && $this->remove($slot);
                return $row;
            }, $remove ? LOCK_EX : LOCK_SH);
            if ($row === null) {
                return false;
            }
            if ($field === null || $field === '') {
                return $this->unpack($row);
            }
            return isset($this->columns[$field]) ? $this->unpack($row, [$field => $this->columns[$field]])[$field] : false;
        }

        public function get(string $key, ?string $field = null): array|false|string|float|int
        {
            return $this->take($key, $field, false);
        }

        public function getdel(string $key, ?string $field = null): array|false|string|float|int
        {
            return $this->take($key, $field, true);
        }

        private function remove(int $slot): void
        {
            $this->note(3, -1);
            $next = ($slot + 1) % $this->slots;
            if ($this->memory->read(self::HEAD + $next, 1) !== "\0") {
                $this->memory->write(self::HEAD + $slot, "\2");
                return;
            }
            // Nothing is looked for behind a free slot: deleted ones before it are free, too.
            do {
                $this->memory->write(self::HEAD + $slot, "\0");
                $slot = ($slot + $this->slots - 1) % $this->slots;
            } while ($this->memory->read(self::HEAD + $slot, 1) === "\2");
        }

        private function drop(string $key, ?callable $allowed = null): bool
        {
            if (!$this->named($key)) {
                return false;
            }
            return $this->guard->do(function () use ($key, $allowed): bool {
                [$slot] = $this->find($key);
                if ($slot < 0 || $allowed !== null && !$allowed($this->memory->read($this->at($slot), $this->row))) {
                    return false;
                }
                $this->remove($slot);
                return true;
            });
        }

        public function del(string $key): bool
        {
            return $this->drop($key);
        }

        public function delete(string $key): bool
        {
            return $this->drop($key);
        }

        public function cmpdel(string $key, array $expected): bool
        {
            $wanted = $this->named($key) ? $this->expected($expected, $key) : null;
            return $wanted !== null && $this->drop($key, fn (string $row) => $this->holds($row, $wanted));
        }

        public function exists(string $key): bool
        {
            return $this->named($key) && $this->guard->do(fn () => $this->find($key)[0] >= 0, LOCK_SH);
        }

        public function exist(string $key): bool
        {
            return $this->exists($key);
        }

        public function incr(string $key, string $column, mixed $incrby = 1): false|float|int
        {
            return $this->change($key, $column, $incrby, 1);
        }

        public function decr(string $key, string $column, mixed $incrby = 1): false|float|int
        {
            return $this->change($key, $column, $incrby, -1);
        }

        private function change(string $key, string $column, mixed $by, int $sign): false|float|int
        {
            if (!$this->named($key)) {
                return false;
            }
            $type = $this->columns[$column][0] ?? null;
            if ($type === null || $type === self::TYPE_STRING) {
                Os::warn($type === null ? "column[$column] does not exist"
                    : 'can\'t execute \'' . ($sign > 0 ? 'incr' : 'decr') . '\' on a string type column');
                return false;
            }
            $by = $sign * $this->convert([$column => $by], $key)[$column];
            $value = 0;
            $done = $this->guard->do(function () use ($key, $column, $by, $type, &$value): bool {
                [$slot, $free] = $this->find($key);
                if ($slot < 0 && $free < 0) {
                    return false;
                }
                $row = $slot < 0 ? $this->blank($key) : $this->memory->read($this->at($slot), $this->row);
                $value = $this->unpack($row, [$column => $this->columns[$column]])[$column] + $by;
                $value = $type === self::TYPE_INT ? (int) $value : (float) $value;
                $this->store($key, $slot, $free, $this->pack($row, [$column => $value]));
                return true;
            });
            return $done ? $value : false;
        }

        public function count(int $mode = 0): int
        {
            return $this->memory === null ? 0 : $this->counted();
        }

        public function stats(): array|false
        {
            if ($this->memory === null) {
                return false;
            }
            [$rows, $put, $changed, $removed] = \array_values(\unpack('q4', $this->memory->read(0, 32)));
            return ['num' => $rows, 'conflict_count' => 0, 'conflict_max_level' => 0, 'insert_count' => $put,
                'update_count' => $changed, 'delete_count' => $removed, 'available_slice_num' => $this->slots - $rows,
                'total_slice_num' => $this->slots];
        }

        public function rewind(): void
        {
            $this->created();
            $this->keys = $this->guard->do(function (): array {
                $states = $this->memory->read(self::HEAD, $this->slots);
                $keys = [];
                for ($slot = \strpos($states, "\1"); $slot !== false; $slot = \strpos($states, "\1", $slot + 1)) {
                    $head = $this->memory->read($this->at($slot), self::KEY);
                    $keys[] = \substr($head, 1, \ord($head[0]));
                }
                return $keys;
            }, LOCK_SH);
            $this->place = -1;
            $this->next();
        }

        public function next(): void
        {
            $this->shown = null;
            // Rows that are gone meanwhile are passed over.
            while (isset($this->keys[++$this->place])) {
                $row = $this->get($this->keys[$this->place]);
                if ($row !== false) {
                    $this->shown = $row;
                    return;
                }
            }
        }

        public function current(): mixed
        {
            return $this->shown;
        }

        public function key(): mixed
        {
            return $this->keys[$this->place] ?? null;
        }

        public function valid(): bool
        {
            return $this->shown !== null;
        }
    }
}

namespace Swoole\Atomic {
    use Ringroad\Cell;

    /** A number of 64 bits that processes share. */
    class Long
    {
        use \Ringroad\NotSerialized;

        private Cell $cell;

        public function __construct(int $value = 0)
        {
            $this->cell = new Cell($value);
        }

        private static function sum(int $one, int $other): int
        {
            // In halves: a sum that does not fit goes on at the other end.
            $low = ($one & 0xffffffff) + ($other & 0xffffffff);
            $high = ($one >> 32) + ($other >> 32) + ($low >> 32);
            return $high << 32 | $low & 0xffffffff;
        }

        public function add(int $add_value = 1): int
        {
            return $this->cell->change(static fn (int $old) => self::sum($old, $add_value));
        }

        public function sub(int $sub_value = 1): int
        {
            return $this->cell->change(static fn (int $old) => self::sum($old, -$sub_value));
        }

        public function get(): int
        {
            return $this->cell->get();
        }

        public function set(int $value): void
        {
            $this->cell->change(static fn () => $value);
        }

        public function cmpset(int $cmp_value, int $new_value): bool
        {
            return $this->cell->swap($cmp_value, $new_value);
        }
    }
}
