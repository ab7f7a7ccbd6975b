<?php
/*
 * Processes of a program, and pools of them.
 */

namespace Swoole {
    use Ringroad\Loop;
    use Ringroad\Os;

    /** A process that this one forks. */
    class Process
    {
        public const IPC_NONE = 0, IPC_UNIXSOCK = 1, IPC_MSGQUEUE = 2, IPC_SOCKET = 3;
        public const PIPE_MASTER = 1, PIPE_WORKER = 2, PIPE_READ = 3, PIPE_WRITE = 4;
        public int $pid = 0;
        public int $id = 0;
        public $pipe = null;
        public $msgQueueId = null;
        public $msgQueueKey = null;
        private $callback = null;
        private float $timeout = 0.0;
        private array $pair = [];
        private int $queueMode = 2;
        private bool $blocking = true;
        private static int $made = 0;
        /** @var array<int, callable> */
        private static array $handlers = [];

        private bool $redirects = false;
        private int $pipe_type = SOCK_DGRAM;
        private bool $enable_coroutine = false;

        public function __construct(
            mixed $callback, bool $redirect_stdin_and_stdout = false, int $pipe_type = SOCK_DGRAM, bool $enable_coroutine = false,
        ) {
            Os::demand($callback, 'Swoole\Process::__construct(): Argument #1 ($callback)');
            if ($this->callback !== null) {
                throw new Error('Constructor of Swoole\Process can only be called once');
            }
            $this->callback = $callback;
            $this->redirects = $redirect_stdin_and_stdout;
            $this->pipe_type = $pipe_type;
            $this->enable_coroutine = $enable_coroutine;
            $this->id = ++self::$made;
            if ($this->redirects) {
                $this->pipe_type = SOCK_STREAM;
            }
            if ($this->pipe_type > 0) {
                $this->pair = Os::pair($this->pipe_type === SOCK_STREAM ? STREAM_SOCK_STREAM : STREAM_SOCK_DGRAM);
                $this->pipe = $this->pair[0];
            }
        }

        public function set(array $settings): void
        {
            $this->enable_coroutine = (bool) ($settings['enable_coroutine'] ?? $this->enable_coroutine);
        }

        public function start(): int|false
        {
            if ($this->pid > 0 && @\posix_kill($this->pid, 0)) {
                Os::warn('process has already been started');
                return false;
            }
            if (Loop::$current !== null) {
                throw new Error('must be forked outside the coroutine');
            }
            $pid = Os::fork();
            if ($pid < 0) {
                Os::warn('fork() failed');
                return false;
            }
            if ($pid > 0) {
                $this->pid = $pid;
                return $pid;
            }
            $this->enter();
            exit(0);
        }

        /** Becomes the forked process, and returns when its program is over. */
        public function enter(): void
        {
            $this->pid = \getmypid();
            $this->pipe = $this->pair[1] ?? null;
            if ($this->redirects && $this->pipe !== null) {
                $moved = Os::become($this->pipe, 1) && Os::become($this->pipe, 0);
                $moved || \ob_start(function (string $bytes): string {
                    $this->write($bytes);
                    return '';
                }, 1);
            }
            foreach (\array_keys(self::$handlers) as $signal) {
                \pcntl_signal($signal, SIG_DFL);
            }
            self::$handlers = [];
            if ($this->enable_coroutine) {
                Coroutine\run(fn () => ($this->callback)($this));
            } else {
                try {
                    ($this->callback)($this);
                } catch (\Throwable $why) {
                    if (Loop::failed($why)) {
                        exit(255);
                    }
                }
            }
            Loop::run();
        }

        private function ready(bool $read): bool
        {
            if ($this->pipe === null) {
                return false;
            }
            if (Loop::$current !== null && !$this->blocking) {
                return true;
            }
            $wait = $this->timeout > 0 ? $this->timeout : null;
            if (!$this->blocking) {
                return true;
            }
            $in = $read ? [$this->pipe] : [];
            $out = $read ? [] : [$this->pipe];
            $except = null;
            do {
                $count = @\stream_select($in, $out, $except, $wait === null ? null : (int) $wait,
                    $wait === null ? null : (int) (($wait - (int) $wait) * 1e6));
            } while ($count === false && $wait === null);
            if (!$count) {
                Loop::$errno = 11;
            }
            return (bool) $count;
        }

        public function write(string $data): int|false
        {
            if ($this->pipe === null) {
                Os::warn('no pipe, unable to write into the process');
                return false;
            }
            if ($data === '') {
                Os::warn('the data to send is empty');
                return false;
            }
            if (Loop::$runs && Loop::$current === null || $this->pipe_type === SOCK_DGRAM) {
                return @\fwrite($this->pipe, $data);
            }
            for ($at = 0; $at < \strlen($data); $at += $sent) {
                $sent = @\fwrite($this->pipe, \substr($data, $at));
                if (!$sent) {
                    return $at ?: false;
                }
            }
            return $at;
        }

        public function read(int $size = 8192): string|false
        {
            if ($this->pipe === null) {
                Os::warn('no pipe, unable to read from the process');
                return false;
            }
            if ($size <= 0) {
                \trigger_error('Swoole\Process::read(): size must be greater than 0', E_USER_WARNING);
                return false;
            }
            if (!$this->ready(true)) {
                Os::warn('failed to read data');
                return false;
            }
            $data = @\stream_socket_recvfrom($this->pipe, \max(1, $size));
            if ($data === false) {
                Loop::$errno = 11;
                return false;
            }
            return $data;
        }

        public function close(int $which = 0): bool
        {
            if ($this->pipe === null) {
                Os::warn('no pipe, unable to close the pipe');
                return false;
            }
            if ($which === self::PIPE_READ || $which === self::PIPE_WRITE) {
                return \stream_socket_shutdown($this->pipe, $which === self::PIPE_READ ? STREAM_SHUT_RD : STREAM_SHUT_WR);
            }
            foreach ($which === 0 ? $this->pair : [$this->pair[$which - 1]] as $end) {
                Loop::onReadable($end, null);
                Loop::onWritable($end, null);
                \is_resource($end) && \fclose($end);
            }
            $this->pipe = null;
            return true;
        }

        public function exit(int $exit_code = 0): void
        {
            if ($this->pid !== \getmypid()) {
                Os::warn('not current process');
                return;
            }
            exit($exit_code < 0 || $exit_code > 255 ? 1 : $exit_code);
        }

        public function exec(string $exec_file, array $args): bool
        {
            if (!@\pcntl_exec($exec_file, $args)) {
                Loop::$errno = \pcntl_get_last_error();
                Os::warn("execv($exec_file) failed, Error: " . \pcntl_strerror(Loop::$errno) . '[' . Loop::$errno . ']');
            }
            return false;
        }

        public function name(string $process_name): bool
        {
            return @\cli_set_process_title($process_name);
        }

        public function setTimeout(float $seconds): bool
        {
            $this->timeout = $seconds;
            return $this->pipe !== null;
        }

        public function setBlocking(bool $blocking): bool
        {
            $this->blocking = $blocking;
            return $this->pipe !== null && \stream_set_blocking($this->pipe, $blocking);
        }

        /** The process that a priority is of; `false`: what was asked for cannot be. */
        private function prioritized(int $which, ?int $who): int|false
        {
            if (!\in_array($which, [PRIO_PROCESS, PRIO_PGRP, PRIO_USER], true)) {
                Loop::$errno = 22;
                return false;
            }
            if ($who === null && $which !== PRIO_PROCESS) {
                Os::warn('$who is to be given unless $which is PRIO_PROCESS', \SWOOLE_ERROR_INVALID_PARAMS);
                return false;
            }
            return $who ?? ($this->pid ?: \getmypid());
        }

        public function setPriority(int $which, int $priority, ?int $who = null): bool
        {
            $who = $this->prioritized($which, $who);
            return $who !== false && \pcntl_setpriority($priority, $who, $which);
        }

        public function getPriority(int $which, ?int $who = null): int|false
        {
            $who = $this->prioritized($which, $who);
            return $who === false ? false : \pcntl_getpriority($who, $which);
        }

        public function exportSocket(): Coroutine\Socket|false
        {
            return $this->pipe === null ? false : Coroutine\Socket::import($this->pipe);
        }

        /** The two ends of the pipe, for a server that has the process. */
        public function ends(): array
        {
            return $this->pair;
        }

        public function useQueue(int $key = 0, int $mode = 2, int $capacity = -1): bool
        {
            if (!\function_exists('msg_get_queue')) {
                Os::warn('queues need the extension sysvmsg');
                return false;
            }
            $key = $key > 0 ? $key : \ftok(__FILE__, 'q');
            $this->msgQueueId = \msg_get_queue($key, 0600);
            $this->msgQueueKey = $key;
            $this->queueMode = $mode;
            if ($capacity > 0) {
                \msg_set_queue($this->msgQueueId, ['msg_qbytes' => $capacity]);
            }
            return true;
        }

        public function push(string $data): bool
        {
            if ($data === '' || $this->msgQueueId === null) {
                Os::warn($data === '' ? 'the data to push is empty' : 'no msgqueue, unable to use push()');
                return false;
            }
            $type = ($this->queueMode & 0xff) === 1 ? 1 + $this->id : 1;
            return @\msg_send($this->msgQueueId, $type, $data, false, !($this->queueMode & 256), Loop::$errno);
        }

        public function pop(int $size = 65536): string|false
        {
            if ($this->msgQueueId === null) {
                Os::warn('no msgqueue, unable to use pop()');
                return false;
            }
            $type = ($this->queueMode & 0xff) === 1 ? 1 + $this->id : 0;
            $flags = $this->queueMode & 256 ? MSG_IPC_NOWAIT : 0;
            return @\msg_receive($this->msgQueueId, $type, $got, $size, $data, false, $flags, Loop::$errno) ? $data : false;
        }

        public function statQueue(): array|false
        {
            $stat = $this->msgQueueId === null ? false : \msg_stat_queue($this->msgQueueId);
            if (!$stat) {
                return false;
            }
            // PHP does not tell how many bytes wait.
            $bytes = 0;
            foreach (@\file('/proc/sysvipc/msg') ?: [] as $line) {
                $row = \preg_split('/\s+/', \trim($line));
                $bytes = ($row[0] ?? '') === (string) $this->msgQueueKey ? (int) $row[3] : $bytes;
            }
            return ['queue_num' => $stat['msg_qnum'], 'queue_bytes' => $bytes];
        }

        public function freeQueue(): bool
        {
            $freed = $this->msgQueueId !== null && \msg_remove_queue($this->msgQueueId);
            $this->msgQueueId = null;
            return $freed;
        }

        public static function wait(bool $blocking = true): array|false
        {
            $pid = \pcntl_wait($status, $blocking ? 0 : WNOHANG);
            if ($pid <= 0) {
                Loop::$errno = \pcntl_get_last_error();
                return false;
            }
            return Os::ended($pid, $status);
        }

        public static function kill(int $pid, int $signal_no = SIGTERM): bool
        {
            if (\posix_kill($pid, $signal_no)) {
                return true;
            }
            Loop::$errno = \posix_get_last_error();
            if ($signal_no !== 0) {
                Os::warn("kill($pid, $signal_no) failed, Error: " . \posix_strerror(Loop::$errno) . '[' . Loop::$errno . ']');
            }
            return false;
        }

        public static function signal(int $signal_no, ?callable $callback = null): bool
        {
            if ($signal_no === SIGKILL || $signal_no === SIGSTOP || $signal_no < 1 || $signal_no > 64) {
                Os::warn("invalid signal number [$signal_no]");
                return false;
            }
            if ($callback === null) {
                if (!isset(self::$handlers[$signal_no])) {
                    Os::warn("unable to find the callback of signal [$signal_no]");
                    return false;
                }
                unset(self::$handlers[$signal_no]);
                Loop::$signals = \max(0, Loop::$signals - 1);
                Loop::$listeners--;
                // In the process that manages a server it is ignored.
                return Os::onSignal($signal_no, \Ringroad\Manager::$here !== null ? SIG_IGN : SIG_DFL);
            }
            if (!isset(self::$handlers[$signal_no]) && !empty(Coroutine::getOptions()['wait_signal'])) {
                // The loop goes on for signals, too.
                Loop::$signals++;
            }
            isset(self::$handlers[$signal_no]) || Loop::$listeners++;
            self::$handlers[$signal_no] = $callback;
            Event::atEnd();
            return Os::onSignal($signal_no, static fn (int $signal) => Loop::callback($callback, [$signal]));
        }

        /** Sends SIGALRM to itself each so many microseconds; below 0: no more. */
        public static function alarm(int $usec, int $type = 0): bool
        {
            static $timer = null;
            $timer !== null && Loop::clear($timer);
            $timer = null;
            if ($type !== 0) {
                return false;
            }
            if ($usec > 0) {
                $timer = Loop::after($usec / 1e6, static function (): void {
                    \posix_kill(\getmypid(), SIGALRM);
                }, $usec / 1e6);
                Event::atEnd();
            }
            return true;
        }

        public static function daemon(bool $nochdir = true, bool $noclose = true, array $pipes = []): bool
        {
            $pid = \pcntl_fork();
            if ($pid > 0) {
                \posix_kill(\getmypid(), SIGKILL);
            }
            if ($pid !== 0 || \posix_setsid() < 0 || !$nochdir && !\chdir('/')) {
                return false;
            }
            foreach (\array_slice(\array_values($pipes), 0, 3) as $number => $stream) {
                \is_resource($stream) && Os::become($stream, $number);
            }
            return true;
        }
    }
}

namespace Swoole\Process {
    use Ringroad\Loop;
    use Ringroad\Os;

    /** Workers that are started again when they end. */
    class Pool
    {
        public int $master_pid = 0;
        public ?array $workers = null;
        public int $workerId = -1;
        public ?int $workerPid = null;
        public bool $workerRunning = true;
        private array $callbacks = [];
        /** @var array<int, \Swoole\Process> */
        private array $processes = [];
        private bool $running = false;
        private array $settings;
        private $listener = null;
        private $client = null;

        public function __construct(
            private int $worker_num,
            private int $ipc_type = \SWOOLE_IPC_NONE,
            private int $msgqueue_key = 0,
            bool $enable_coroutine = false,
        ) {
            if ($worker_num <= 0) {
                throw new \Swoole\Exception('the parameter $worker_num must be greater than 0', \SWOOLE_ERROR_INVALID_PARAMS);
            }
            if ($ipc_type === \SWOOLE_IPC_MSGQUEUE) {
                throw new \Swoole\Exception('pools over message queues are not there; docs/learn/php.md lists what is');
            }
            $this->settings = ['enable_coroutine' => $enable_coroutine];
        }

        public function set(array $settings): void
        {
            $this->settings = $settings + $this->settings;
        }

        public function on(string $name, callable $callback): bool
        {
            $name = \strtolower($name);
            if ($this->running) {
                Os::warn('process pool is running. unable to register ' . $name);
                return false;
            }
            if ($name === 'message' && $this->ipc_type === \SWOOLE_IPC_NONE) {
                Os::warn('cannot set onMessage event with ipc_type=0');
                return false;
            }
            $this->callbacks[$name] = $callback;
            return true;
        }

        public function listen(string $host, int $port = 0, int $backlog = 2048): bool
        {
            if ($this->ipc_type !== \SWOOLE_IPC_SOCKET) {
                Os::warn('unsupported ipc type[' . $this->ipc_type . ']');
                return false;
            }
            $at = \str_starts_with($host, 'unix:') ? 'unix:///' . \ltrim(\substr($host, 5), '/') : "tcp://$host:$port";
            $context = \stream_context_create(['socket' => ['backlog' => $backlog]]);
            $this->listener = @\stream_socket_server($at, $code, $why, STREAM_SERVER_BIND | STREAM_SERVER_LISTEN, $context);
            return $this->listener !== false;
        }

        public function getProcess(int $work_id = -1): \Swoole\Process|false
        {
            return $this->processes[$work_id < 0 ? $this->workerId : $work_id] ?? false;
        }

        public function write(string $data): bool
        {
            return $this->client !== null && @\fwrite($this->client, \pack('N', \strlen($data)) . $data) !== false;
        }

        public function sendMessage(string $data, int $dst_worker_id): bool
        {
            if (!$this->running || $this->ipc_type !== \SWOOLE_IPC_UNIXSOCK) {
                Os::warn($this->running ? 'unsupported ipc type[' . $this->ipc_type . ']' : 'process pool is not running.');
                return false;
            }
            $process = $this->processes[$dst_worker_id] ?? null;
            return $process !== null && @\fwrite($process->ends()[0], $data) !== false;
        }

        public function detach(): bool
        {
            return false;
        }

        public function stop(): void
        {
            $this->workerRunning = false;
        }

        public function shutdown(): bool
        {
            return $this->running && \posix_kill($this->master_pid, SIGTERM);
        }

        private function spawn(int $id): void
        {
            $process = $this->processes[$id] ?? new \Swoole\Process(static fn () => null, false, SOCK_DGRAM);
            $process->id = $id;
            $this->processes[$id] = $process;
            $pid = Os::fork();
            if ($pid !== 0) {
                $process->pid = $pid;
                $this->workers[$id] = $pid;
                return;
            }
            $process->pid = $this->workerPid = \getmypid();
            $process->pipe = $process->ends()[1];
            $this->workerId = $id;
            foreach ([SIGTERM, SIGUSR1, SIGUSR2, SIGINT] as $signal) {
                Os::onSignal($signal, $signal === SIGTERM ? function (): void {
                    $this->workerRunning = false;
                    Loop::stop();
                    isset($this->callbacks['workerexit']) && ($this->callbacks['workerexit'])($this, $this->workerId);
                } : SIG_DFL, true);
            }
            isset($this->callbacks['message']) && \pcntl_async_signals(true);
            $work = function () use ($id): void {
                isset($this->callbacks['workerstart']) && ($this->callbacks['workerstart'])($this, $id);
                $this->receive();
            };
            $this->settings['enable_coroutine'] ? \Swoole\Coroutine\run($work) : $work();
            Loop::run();
            isset($this->callbacks['workerstop']) && ($this->callbacks['workerstop'])($this, $id);
            exit(0);
        }

        /** Gives messages to the callback. */
        private function receive(): void
        {
            $call = $this->callbacks['message'] ?? null;
            while ($call !== null && $this->workerRunning) {
                $from = $this->listener ?? $this->processes[$this->workerId]->pipe;
                $read = [$from];
                $write = $except = null;
                if (Loop::$current !== null) {
                    if (!Loop::stream($from, true, -1)) {
                        continue;
                    }
                } elseif (!@\stream_select($read, $write, $except, 1)) {
                    continue;
                }
                if ($this->listener === null) {
                    $data = (string) \stream_socket_recvfrom($from, 65536);
                    $data === '' || $call($this, $data);
                    continue;
                }
                $client = @\stream_socket_accept($this->listener, 0);
                if ($client === false) {
                    continue;
                }
                $this->client = $client;
                $length = \unpack('N', \str_pad((string) \fread($client, 4), 4, "\0"))[1];
                $data = $length > 0 && $length < 1 << 27 ? (string) \stream_get_contents($client, $length) : '';
                $data === '' || $call($this, $data);
                @\fwrite($client, \pack('N', 0));
                \fclose($client);
                $this->client = null;
            }
        }

        public function start(): ?bool
        {
            if ($this->running) {
                Os::warn('process pool is running. unable to start');
                return false;
            }
            if ($this->ipc_type !== \SWOOLE_IPC_NONE && !isset($this->callbacks['message']) && !$this->settings['enable_coroutine']) {
                Os::warn('require onMessage callback');
                return false;
            }
            $this->running = true;
            $this->master_pid = \getmypid();
            $stopping = false;
            $reload = [];
            \pcntl_async_signals(false);
            foreach ([SIGTERM, SIGINT] as $signal) {
                Os::onSignal($signal, static function () use (&$stopping): void {
                    $stopping = true;
                }, true);
            }
            foreach ([SIGUSR1, SIGUSR2] as $signal) {
                Os::onSignal($signal, function () use (&$reload): void {
                    $reload = $this->workers;
                }, true);
            }
            isset($this->callbacks['start']) && ($this->callbacks['start'])($this);
            for ($id = 0; $id < $this->worker_num; $id++) {
                $this->processes[$id] = new \Swoole\Process(static fn () => null, false, SOCK_DGRAM);
            }
            for ($id = 0; $id < $this->worker_num; $id++) {
                $this->spawn($id);
            }
            while (!$stopping) {
                $pid = \pcntl_wait($status, WNOHANG);
                if ($pid > 0) {
                    $id = \array_search($pid, $this->workers, true);
                    $id === false || $this->spawn($id);
                    continue;
                }
                foreach ($reload as $old) {
                    \posix_kill($old, SIGTERM);
                }
                $reload = [];
                Loop::isAlive() ? Loop::turn() : \usleep(5000);
                \pcntl_signal_dispatch();
            }
            foreach ($this->workers as $pid) {
                \posix_kill($pid, SIGTERM);
            }
            $until = \microtime(true) + ($this->settings['max_wait_time'] ?? 3);
            while ($this->workers) {
                $pid = \pcntl_wait($status, WNOHANG);
                if ($pid > 0) {
                    $this->workers = \array_diff($this->workers, [$pid]);
                } elseif ($pid < 0) {
                    break;
                } elseif (\microtime(true) > $until) {
                    \array_map(static fn ($one) => \posix_kill($one, SIGKILL), $this->workers);
                } else {
                    \usleep(2000);
                }
            }
            $this->running = false;
            isset($this->callbacks['shutdown']) && ($this->callbacks['shutdown'])($this);
            return null;
        }
    }
}
