<?php
/*
 * Servers: what is called for connections, requests, messages and tasks.
 */

namespace Swoole {
    use Ringroad\Connection;
    use Ringroad\Control;
    use Ringroad\Listener;
    use Ringroad\Loop;
    use Ringroad\Manager;
    use Ringroad\Os;
    use Ringroad\Pipe;

    /** A server in processes. This class itself carries bytes; its children HTTP and WebSocket. */
    class Server
    {
        /** The server of this process. */
        public static ?Server $running = null;
        public array $setting = [];
        public ?\Swoole\Connection\Iterator $connections = null;
        public string $host;
        public int $port;
        public int $type;
        public int $mode;
        /** @var list<Server\Port> */
        public array $ports = [];
        public int $master_pid = 0;
        public int $manager_pid = 0;
        public int $worker_id = -1;
        public bool $taskworker = false;
        public int $worker_pid = 0;
        public ?array $stats_timer = null;
        public bool $admin_server = false;
        /** @internal connections of all workers: where they are and from where they come */
        public array $known = [];
        protected const PROTOCOL = 'tcp';
        protected const EVENTS = ['start', 'beforeshutdown', 'shutdown', 'workerstart', 'workerstop', 'workerexit', 'workererror',
            'beforereload', 'afterreload', 'managerstart', 'managerstop', 'task', 'finish', 'pipemessage', 'connect', 'receive',
            'close', 'packet', 'bufferfull', 'bufferempty', 'request', 'handshake', 'open', 'message', 'disconnect',
            'beforehandshakeresponse'];
        /** Settings that count everywhere. */
        private const COUNT = ['worker_num', 'max_request', 'dispatch_mode', 'enable_coroutine', 'max_coroutine', 'max_coro_num',
            'task_worker_num', 'task_enable_coroutine', 'task_use_object', 'task_object', 'task_max_request', 'event_object',
            'http_parse_cookie', 'http_parse_post', 'http_parse_files', 'upload_tmp_dir', 'websocket_subprotocol',
            'enable_static_handler', 'document_root', 'static_handler_locations', 'http_index_files', 'log_file', 'log_level',
            'log_date_format', 'pid_file'];
        /** Settings that count without Ringroad only: behind it those of the server do. */
        private const ALONE = ['max_request_grace', 'max_concurrency', 'worker_max_concurrency', 'output_buffer_size',
            'buffer_output_size', 'max_wait_time', 'reload_async', 'package_max_length', 'upload_max_filesize', 'http_compression',
            'http_compression_level', 'http_gzip_level', 'http_compression_min_length', 'compression_min_length',
            'http_compression_types', 'compression_types', 'ssl_cert_file', 'ssl_key_file', 'ssl_verify_peer', 'ssl_cafile',
            'ssl_allow_self_signed', 'ssl_client_cert_file', 'ssl_capath', 'ssl_verify_depth', 'ssl_sni_certs', 'ssl_ciphers',
            'ssl_passphrase', 'heartbeat_check_interval', 'heartbeat_idle_time', 'open_eof_check', 'open_eof_split', 'package_eof',
            'open_length_check', 'package_length_type', 'package_length_offset', 'package_body_offset', 'package_length_func',
            'open_http_protocol', 'open_websocket_protocol', 'open_websocket_close_frame', 'open_websocket_ping_frame',
            'open_websocket_pong_frame', 'websocket_compression', 'daemonize'];
        protected array $callbacks = [];
        /** @var array<int, Connection> connections of this worker, without Ringroad */
        protected array $mine = [];
        /** @var array<int, \Ringroad\Sink> answers that are not given yet, behind Ringroad */
        protected array $sinks = [];
        /** @var array<int, array> what `server` of their requests is */
        protected array $asking = [];
        /** So many may be there until those are looked for that have been given. */
        protected int $sweep = 1024;
        private ?\Ringroad\Worker $worker = null;
        private ?Pipe $pipe = null;
        /** The number of the first task worker between the processes. Ringroad may have any number of workers. */
        private int $base = 1;
        private int $number = -1;
        /** @var array<int, array> tasks that this worker waits for */
        private array $waiting = [];
        private int $lastTask = -1;
        /** Bytes of a task or a result, which is one frame. */
        private const TASK_BYTES = 16 << 20;
        private ?Server\Task $task = null;
        private bool $started = false;
        private bool $stopping = false;
        /** Another process has the number of this one, and the server goes on. */
        private bool $replaced = false;
        private int $parent = 0;
        private int $began = 0;
        private int $served = 0;
        private array $users = [];
        private ?Atomic\Long $numbers = null;
        private ?Atomic\Long $accepted = null;
        private ?Atomic\Long $closed = null;
        /** For each worker the number of requests in progress and of all requests, eight bytes each. It writes its own. */
        private ?\Ringroad\Memory $board = null;
        /** Requests of the processes that had this number before. */
        private int $before = 0;
        /** The next number of a connection, and the end of those that this process may give. */
        private int $nextNumber = 0;
        private int $endNumber = 0;
        /** So many numbers are taken at once: the counter that all processes share is under a lock. */
        private const NUMBERS = 64;
        private const BOARD = 1024;
        private int $active = 0;
        /** @var list<\Closure> requests that wait for another one's end */
        private array $queued = [];
        private array $uids = [];
        private int $error = 0;

        public function __construct(
            string $host = '0.0.0.0', int $port = 0, int $mode = \SWOOLE_BASE, int $sock_type = \SWOOLE_SOCK_TCP,
        ) {
            if ($mode !== \SWOOLE_BASE && $mode !== \SWOOLE_PROCESS) {
                throw new Exception('invalid $mode parameters ' . $mode);
            }
            if (self::$running !== null && self::$running->started) {
                throw new Exception('server is running, unable to create Swoole\Server', \SWOOLE_ERROR_SERVER_ONLY_START_ONE);
            }
            if ($port < 0 || $port > 65535) {
                throw new Exception("invalid port [$port]", \SWOOLE_ERROR_BAD_PORT);
            }
            $this->host = $host;
            $this->port = $port;
            $this->mode = $mode;
            $this->type = $sock_type;
            $kind = $sock_type & 0xff;
            if (\in_array($kind, [\SWOOLE_SOCK_UDP, \SWOOLE_SOCK_UDP6, \SWOOLE_SOCK_UNIX_DGRAM], true)) {
                throw new Exception('servers for datagrams are not there; docs/learn/php.md lists what is');
            }
            $this->connections = new \Swoole\Connection\Iterator($this);
            $this->ports[] = new Server\Port($this, $host, $port, $sock_type, !\Ringroad\Worker::isOne());
            $this->port = $this->ports[0]->port;
            self::$running = $this;
        }

        public function set(array $settings): bool
        {
            if ($this->started) {
                Os::warn('server is running, unable to execute Swoole\Server->set');
                return false;
            }
            foreach (['compression_min_length', 'http_compression_min_length', 'upload_max_filesize', 'package_max_length',
                'output_buffer_size', 'buffer_output_size'] as $name) {
                if (isset($settings[$name]) && (int) $settings[$name] < 0) {
                    Os::warn("$name must not be negative", \SWOOLE_ERROR_INVALID_PARAMS);
                    unset($settings[$name]);
                }
            }
            if (isset($settings['document_root']) && !\is_dir((string) $settings['document_root'])) {
                Os::note(\SWOOLE_LOG_WARNING, "document_root '{$settings['document_root']}' does not exist");
                return false;
            }
            foreach (['worker_num' => 1024, 'task_worker_num' => 1024] as $name => $most) {
                if (isset($settings[$name]) && (int) $settings[$name] > $most) {
                    throw new Exception("$name: at most $most");
                }
            }
            $this->setting = $settings + $this->setting;
            Os::log($settings);
            $this->ports[0]->set($settings);
            if (isset($settings['max_coroutine']) || isset($settings['max_coro_num'])) {
                Coroutine::set(['max_coroutine' => $settings['max_coroutine'] ?? $settings['max_coro_num']]);
            }
            return true;
        }

        public function on(string $event_name, mixed $callback): bool
        {
            $event = \strtolower($event_name);
            Server\Port::demand($callback);
            if (!\in_array($event, self::EVENTS, true)) {
                Os::warn("unknown event types[$event_name]");
                return false;
            }
            if ($this->started) {
                Os::warn("server is running, unable to register event[$event_name] callback function");
                return false;
            }
            $this->callbacks[$event] = $callback;
            return true;
        }

        public function getCallback(string $event_name): \Closure|string|null|array
        {
            return $this->callbacks[\strtolower($event_name)] ?? null;
        }

        /** @internal */
        public function has(string $event): bool
        {
            return isset($this->callbacks[$event]);
        }

        /** @internal Calls what the program has set for an event. */
        public function call(string $event, mixed ...$params): void
        {
            if (isset($this->callbacks[$event])) {
                $coroutine = ($this->setting['enable_coroutine'] ?? true) && $this->worker_id >= 0;
                $coroutine ? Loop::start($this->callbacks[$event], [$this, ...$params])
                    : ($this->callbacks[$event])($this, ...$params);
            }
        }

        /** Another address. Behind Ringroad there is the one that Ringroad listens on. */
        public function listen(string $host, int $port, int $sock_type): Server\Port|false
        {
            if ($this->started) {
                Os::warn("can't add listener after server is started");
                return false;
            }
            if (\Ringroad\Worker::isOne()) {
                throw new Exception('behind Ringroad a server has one address; let Ringroad listen on the others');
            }
            try {
                return $this->ports[] = new Server\Port($this, $host, $port, $sock_type, true);
            } catch (Exception $why) {
                Os::warn($why->getMessage());
                return false;
            }
        }

        public function addListener(string $host, int $port, int $sock_type): Server\Port|false
        {
            return $this->listen($host, $port, $sock_type);
        }

        public function addProcess(Process $process): int|false
        {
            $this->users[] = $process;
            $process->id = \count($this->users) - 1;
            return $process->id;
        }

        protected function demand(): void
        {
            if (!isset($this->callbacks['receive'])) {
                \trigger_error(static::class . '::start(): require onReceive callback', E_USER_ERROR);
            }
        }

        public function start(): bool
        {
            if ($this->started) {
                Os::warn('server is running, unable to execute Swoole\Server->start');
                return false;
            }
            $workers = \max(1, (int) ($this->setting['worker_num'] ?? ($this->mode === \SWOOLE_BASE ? 1 : \swoole_cpu_num())));
            if (\Ringroad\Worker::isOne()) {
                // Ringroad decides how many there are.
                $workers = \max(1, (int) (\getenv('RINGROAD_WORKERS') ?: $this->setting['worker_num'] ?? \swoole_cpu_num()));
            }
            $this->base = \Ringroad\Worker::isOne() ? 65536 : $workers;
            $tasks = \max(0, (int) ($this->setting['task_worker_num'] ?? 0));
            $this->demand();
            if ($tasks > 0 && !isset($this->callbacks['task'])) {
                \trigger_error(static::class . '::start(): require onTask callback', E_USER_ERROR);
            }
            \Ringroad\Worker::tell($this->host, $this->port, $workers, \array_filter([
                'max_requests' => (int) ($this->setting['max_request'] ?? 0), 'dispatch' => $this->setting['dispatch_mode'] ?? null]));
            if (Loop::$current !== null) {
                Os::warn('The event-loop has already been created, unable to start ' . static::class);
                return false;
            }
            $this->started = true;
            $this->began = \time();
            $this->master_pid = $this->manager_pid = \getmypid();
            $this->parent = \function_exists('posix_getppid') ? \posix_getppid() : 0;
            if (!\getenv('RINGROAD_TASK') && (int) \getenv('RINGROAD_SLOT') === 0) {
                $this->tellOfSettings();
            }
            $this->setting = ['worker_num' => $workers, 'task_worker_num' => $tasks] + $this->setting + ['output_buffer_size' => 4294967295,
                'max_connection' => 100000];
            $this->numbers = new Atomic\Long(0);
            $this->accepted = new Atomic\Long(0);
            $this->closed = new Atomic\Long(0);
            $this->board = new \Ringroad\Memory(16 * self::BOARD);
            if (!empty($this->setting['pid_file'])) {
                @\file_put_contents($this->setting['pid_file'], (string) \getmypid());
            }
            if (!empty($this->setting['daemonize']) && !\Ringroad\Worker::isOne()) {
                Process::daemon();
                $this->master_pid = $this->manager_pid = \getmypid();
            }
            $control = \getenv('RINGROAD_FD') !== false ? \Ringroad\Worker::control() : null;
            $welcome = $control?->welcome() ?? [];
            if ($control !== null && empty($welcome['mold'])) {
                // Ringroad itself has started this worker.
                $this->work((\getenv('RINGROAD_TASK') ? $this->base : 0) + (int) \getenv('RINGROAD_SLOT'), null, $control, $welcome);
                return true;
            }
            $alone = $control === null && $this->mode === \SWOOLE_BASE && $workers === 1 && $tasks === 0 && !$this->users
                && empty($this->setting['max_request']);
            if ($alone) {
                $this->call('start');
                $this->call('managerstart');
                $this->work(0, null, null, []);
                $this->call('managerstop');
            } else {
                (new Manager($this, $this->base, $workers, $tasks, $this->users))->run($control, $welcome);
            }
            $this->worker_id = -1;
            foreach ($this->ports as $port) {
                $port->close();
            }
            $this->started = false;
            $this->call('shutdown');
            if (!empty($this->setting['pid_file'])) {
                @\unlink($this->setting['pid_file']);
            }
            return true;
        }

        /** Tells once of settings that change nothing. What is off is not told. */
        private function tellOfSettings(): void
        {
            $behind = \Ringroad\Worker::isOne();
            $idle = \array_diff_key(\array_filter($this->setting), \array_flip([...self::COUNT, ...($behind ? [] : self::ALONE)]));
            if ($behind && \in_array($this->setting['dispatch_mode'] ?? 0, [6, 7], true)) {
                $idle['dispatch_mode'] = true;
            }
            if ($idle) {
                Os::note(\SWOOLE_LOG_WARNING, 'these settings change nothing' . ($behind ? ' behind Ringroad' : '') . ': '
                    . \implode(', ', \array_keys($idle)) . '; docs/learn/php.md lists those that count');
            }
            $behind && $this->ports[0]->ssl && Os::note(\SWOOLE_LOG_WARNING, \Ringroad\Worker::PLAIN);
        }

        /** @internal This process is one of the server's. */
        public function enter(int $id, ?Pipe $pipe): void
        {
            $this->number = $id;
            $this->taskworker = $id >= $this->base;
            $this->worker_id = $this->taskworker ? $id - $this->base + $this->setting['worker_num'] : $id;
            $this->worker_pid = \getmypid();
            $this->pipe = $pipe;
            $this->nextNumber = $this->endNumber = 0;
            if ($this->board !== null && !$this->taskworker) {
                $this->before = \unpack('q', $this->board->read($id % self::BOARD * 16 + 8, 8))[1];
                $this->note();
            }
        }

        /** Writes the numbers of this process's requests where the others see them. */
        private function note(): void
        {
            $this->board?->write($this->number % self::BOARD * 16, \pack('qq', $this->active, $this->before + $this->served));
        }

        /** One of two columns of the board, over all workers. */
        private function sum(int $column): int
        {
            $sum = 0;
            foreach ($this->board === null ? [] : \unpack('q*', $this->board->read(0, 16 * self::BOARD)) as $place => $number) {
                // The places that unpack gives begin with 1.
                $sum += $place % 2 !== $column ? $number : 0;
            }
            return $sum;
        }

        /** Requests in progress in all workers. */
        private function concurrency(): int
        {
            return $this->sum(0);
        }

        /**
         * @internal Runs a request, or lets it wait while there are too many; `$refuse` answers those that are too many
         * for the server. What `$run` is given is called when the request is done.
         */
        public function admit(\Closure $run, \Closure $refuse): void
        {
            $most = (int) ($this->setting['max_concurrency'] ?? 0);
            if ($most > 0 && $this->concurrency() >= $most) {
                $refuse();
                return;
            }
            $mine = (int) ($this->setting['worker_max_concurrency'] ?? 0);
            if ($mine > 0 && $this->active >= $mine) {
                $this->queued[] = static fn (bool $runs) => $runs ? $run() : $refuse();
                return;
            }
            $run();
        }

        /** @internal A request has begun, or is done. */
        public function progress(bool $begins): void
        {
            $this->active += $begins ? 1 : -1;
            $this->note();
            if (!$begins && $this->queued) {
                $next = \array_shift($this->queued);
                Loop::later(static fn () => $next(true));
            }
        }

        /** @internal Works until it is to stop. */
        public function work(int $id, ?Pipe $pipe, ?Control $control, array $welcome): void
        {
            $this->enter($id, $pipe);
            $coroutine = $this->taskworker ? !empty($this->setting['task_enable_coroutine'])
                : (bool) ($this->setting['enable_coroutine'] ?? true);
            Coroutine::set(['enable_coroutine' => $coroutine]);
            Os::onSignal(SIGTERM, fn () => $this->leave());
            Os::onSignal(SIGINT, $pipe === null && $control === null ? fn () => $this->leave() : SIG_IGN);
            if ($pipe !== null) {
                Os::onSignal(SIGUSR1, SIG_IGN);
                Os::onSignal(SIGUSR2, SIG_IGN);
                $pipe->listen(fn (array $message) => $this->take($message), fn () => $this->leave());
            } else {
                Os::onSignal(SIGUSR1, fn () => $this->reload());
            }
            if (isset($this->callbacks['workerstart'])) {
                $coroutine ? Loop::start($this->callbacks['workerstart'], [$this, $this->worker_id]) : ($this->callbacks['workerstart'])($this, $this->worker_id);
            }
            if ($control !== null) {
                $this->setting['task_worker_num'] = (int) ($welcome['tasks'] ?? 0);
                $most = $coroutine && !$this->taskworker ? \min(1000, (int) ($this->setting['max_coroutine'] ?? 1000)) : 1;
                $this->worker = new \Ringroad\Worker($control, $welcome, fn ($request, $response, $stream)
                    => $this->asked($request, $response, $stream), $coroutine, $most, $this instanceof WebSocket\Server);
                $this->worker->settings = ['http_compression' => false] + $this->setting;
                $this->worker->number = $this->number(...);
                $this->worker->asked = fn () => $this->call('workerexit', $this->worker_id);
                $this->worker->task = $this->given(...);
                $this->worker->result = $this->became(...);
                $this->worker->message = $this->said(...);
                $this->worker->ready();
            } elseif ($this->taskworker) {
                // Tasks come over the pipe.
            } else {
                foreach ($this->ports as $port) {
                    $port->serve($coroutine);
                }
                $idle = (float) ($this->setting['heartbeat_idle_time'] ?? 0);
                $check = (float) ($this->setting['heartbeat_check_interval'] ?? 0);
                if ($check > 0 || $idle > 0) {
                    Loop::after($check ?: $idle / 2, fn () => $this->heartbeat(), $check ?: $idle / 2);
                }
            }
            Loop::run();
            // It is no coroutine, so it may start some and wait for them.
            isset($this->callbacks['workerstop']) && ($this->callbacks['workerstop'])($this, $this->worker_id);
            if ($control !== null && $this->worker_id === 0 && !$this->replaced) {
                // The process that made the workers is ended by Ringroad at once.
                $this->call('shutdown');
            }
        }

        /** @internal The number of a new connection. Its remainder is its worker. */
        public function number(): int
        {
            if ($this->nextNumber === $this->endNumber) {
                $this->endNumber = $this->numbers->add(self::NUMBERS);
                $this->nextNumber = $this->endNumber - self::NUMBERS;
            }
            return $this->nextNumber++ * $this->base + $this->number + 1;
        }

        /** @internal A request. */
        public function asked(Http\Request $request, Http\Response $response, \Ringroad\Sink $sink): void
        {
            $response->status(404);
            $response->end();
        }

        /** @internal A connection without Ringroad. */
        public function opened(Connection $connection, Server\Port $port): void
        {
            $this->accepted->add();
            $this->mine[$connection->fd] = $connection;
            [$address, $remote] = $connection->address();
            $this->tell('open', $connection->fd, ['worker' => $this->number, 'remote_ip' => $address, 'remote_port' => $remote,
                'server_port' => $port->port, 'connect_time' => \time(), 'socket_type' => $port->type]);
            $call = $port->callback('connect');
            $call !== null && Loop::callback($call, [$this, $connection->fd, 0]);
        }

        /** @internal */
        public function shut(Connection $connection, Server\Port $port): void
        {
            $this->closed->add();
            unset($this->mine[$connection->fd]);
            $this->tell('shut', $connection->fd);
            $call = $port->callback('close');
            if ($call !== null && ($port->protocol() === 'tcp' || $port->protocol() === 'http')) {
                Loop::callback($call, [$this, $connection->fd, $connection->errno === null ? 0 : -1]);
            }
        }

        /** Tells all processes of a connection. */
        protected function tell(string $what, int $fd, ?array $info = null): void
        {
            if ($info === null) {
                unset($this->known[$fd]);
            } else {
                $this->known[$fd] = $info;
            }
            $this->pipe?->send([$what, $fd, $info], true);
        }

        /** @internal One request more. */
        public function counted(): void
        {
            $this->served++;
            $this->note();
            $most = (int) ($this->setting['max_request'] ?? 0);
            if ($most > 0 && $this->pipe !== null && $this->worker === null) {
                $grace = (int) ($this->setting['max_request_grace'] ?? 0);
                $this->served >= $most + ($grace > 0 ? \random_int(0, $grace) : 0) && $this->leave();
            }
        }

        /** Ends this worker, as the program asks: behind Ringroad another one is ready before it leaves. */
        private function end(): void
        {
            $this->worker !== null ? $this->worker->drain() : $this->leave();
        }

        /** Ends this worker when what is in progress is done. */
        private function leave(): void
        {
            if ($this->worker !== null) {
                $this->worker->stop();
                return;
            }
            if ($this->stopping) {
                return;
            }
            $this->stopping = true;
            foreach (\array_splice($this->queued, 0) as $one) {
                $one(false);
            }
            foreach ($this->ports as $port) {
                $port->listener?->pause();
            }
            $until = \microtime(true) + (float) ($this->setting['max_wait_time'] ?? 3);
            $look = function () use (&$look, $until): void {
                $busy = $this->task !== null;
                foreach ($this->ports as $port) {
                    $busy = $busy || $port->listener !== null && $port->listener->count() > 0;
                }
                if ($busy && \microtime(true) < $until && ($this->setting['reload_async'] ?? true)) {
                    Loop::after(0.02, $look);
                    return;
                }
                $this->call('workerexit', $this->worker_id);
                foreach ($this->mine as $connection) {
                    $connection->reset();
                }
                Loop::later(Loop::end(...));
            };
            Loop::later($look);
        }

        public function shutdown(): bool
        {
            if (!$this->started) {
                Os::warn('server is not running');
                return false;
            }
            if ($this->worker !== null) {
                // The whole server.
                return \posix_kill($this->parent, SIGTERM);
            }
            if ($this->pipe === null && $this->worker_id >= 0) {
                $this->leave();
                return true;
            }
            return \posix_kill($this->master_pid, SIGTERM);
        }

        public function reload(bool $only_reload_taskworker = false): bool
        {
            if (!$this->started) {
                Os::warn('server is not running');
                return false;
            }
            if (\Ringroad\Worker::isOne() && !$only_reload_taskworker) {
                return \posix_kill($this->parent, SIGHUP);
            }
            if ($this->pipe === null && $this->worker_id >= 0) {
                $this->call('beforereload');
                $this->call('afterreload');
                return true;
            }
            return \posix_kill($this->manager_pid, $only_reload_taskworker ? SIGUSR2 : SIGUSR1);
        }

        public function stop(int $workerId = -1, bool $waitEvent = false): bool
        {
            if ($workerId < 0 || $workerId === $this->worker_id) {
                $this->end();
                return true;
            }
            return $this->pipe !== null && $this->pipe->send(['to', $this->inner($workerId), ['stop']], true);
        }

        // Messages between processes.

        /** @internal Something from another process. */
        public function take(array $message): void
        {
            switch ($message[0]) {
                case 'task':
                    $this->begin(...\array_slice($message, 1));
                    break;
                case 'finish':
                    $this->finished($message[1], $message[2]);
                    break;
                case 'message':
                    $arguments = [$message[2]];
                    if (isset($this->callbacks['pipemessage'])) {
                        if (!empty($this->setting['event_object'])) {
                            $object = new Server\PipeMessage();
                            [$object->source_worker_id, $object->worker_id, $object->data] = [$message[1], $message[1], $message[2]];
                            $object->dispatch_time = \microtime(true);
                            Loop::callback($this->callbacks['pipemessage'], [$this, $object]);
                        } else {
                            Loop::callback($this->callbacks['pipemessage'], [$this, $message[1], ...$arguments]);
                        }
                    }
                    break;
                case 'do':
                    $this->{$message[1]}(...$message[2]);
                    break;
                case 'relay':
                    // A process without a link to Ringroad submits a task.
                    [, $to, $id, $from, $data] = $message;
                    $this->post($data, $to, ['wait' => fn (mixed $result, bool $there = true) => $there
                        && $this->pipe->send(['to', $from, ['finish', $id, $result]], true)]);
                    break;
                case 'drain':
                    $this->worker?->drain();
                    break;
                case 'open':
                    $this->known[$message[1]] = $message[2];
                    break;
                case 'shut':
                    unset($this->known[$message[1]]);
                    break;
                case 'replaced':
                    $this->replaced = true;
                    break;
                case 'stop':
                    $this->end();
                    break;
            }
        }

        public function sendMessage(mixed $message, int $dst_worker_id): bool
        {
            if (!$this->started) {
                Os::warn('server is not running');
                return false;
            }
            if ($dst_worker_id === $this->worker_id) {
                Os::warn('unable to send message to self');
                return false;
            }
            if (!isset($this->callbacks['pipemessage'])) {
                Os::warn('onPipeMessage is null, unable to use sendMessage');
                return false;
            }
            if ($dst_worker_id < 0 || $dst_worker_id >= $this->setting['worker_num'] + $this->setting['task_worker_num']) {
                Os::warn("worker_id[$dst_worker_id] is invalid", \SWOOLE_ERROR_INVALID_PARAMS);
                return false;
            }
            if ($this->pipe === null) {
                return false;
            }
            return $this->pipe->send(['to', $this->inner($dst_worker_id), ['message', $this->worker_id, $message]], true);
        }

        /** The number that the processes know a worker by. */
        private function inner(int $worker): int
        {
            return $worker < $this->setting['worker_num'] ? $worker : $worker - $this->setting['worker_num'] + $this->base;
        }

        /** The worker of a connection. */
        protected function owner(int $fd): int
        {
            return ($fd - 1) % $this->base;
        }

        /** Does something with a connection where it is; `null`: it is here. */
        protected function elsewhere(int $fd, string $method, array $arguments): ?bool
        {
            if ($this->number === $this->owner($fd)) {
                return null;
            }
            // A process of `addProcess` is not told which connections there are.
            if ($this->number < $this->base + $this->setting['task_worker_num'] && !isset($this->known[$fd])) {
                return $this->none($fd);
            }
            return $this->pipe !== null && $this->pipe->send(['to', $this->owner($fd), ['do', $method, $arguments]], true);
        }

        protected function none(int $fd): bool
        {
            $this->error = Loop::$errno = \SWOOLE_ERROR_SESSION_NOT_EXIST;
            return false;
        }

        public function getLastError(): int
        {
            return $this->error;
        }

        // Tasks.

        private function mayTask(): bool
        {
            $manages = Manager::$here !== null;
            if (!$this->started || $this->setting['task_worker_num'] < 1
                || $this->pipe === null && $this->worker === null && !$manages) {
                Os::warn($this->started ? "task method cannot be executed without task worker"
                    : 'server is not running');
                return false;
            }
            return true;
        }

        private function post(mixed $data, int $to, array $entry): int|false
        {
            if (!$this->mayTask()) {
                return false;
            }
            if ($to < -1 || $to >= $this->setting['task_worker_num']) {
                Os::warn("worker_id must be less than task_worker_num[{$this->setting['task_worker_num']}]", \SWOOLE_ERROR_INVALID_PARAMS);
                return false;
            }
            $id = ++$this->lastTask;
            if (Manager::$here !== null) {
                // No result comes back to it.
                return Manager::$here->post(['task', $to, $id, -1, $data, \microtime(true)]) ? $id : false;
            }
            $this->waiting[$id] = $entry;
            if ($this->worker !== null) {
                $payload = \serialize([$id, \getmypid(), \microtime(true), $data]);
                $sent = \strlen($payload) <= self::TASK_BYTES
                    && $this->worker->submit($id + 1, $to < 0 ? \Ringroad\Rwp::ANY : $to, $payload);
                if (!$sent && \strlen($payload) > self::TASK_BYTES) {
                    Os::warn('the data of a task has more than ' . self::TASK_BYTES . ' bytes', \SWOOLE_ERROR_TASK_PACKAGE_TOO_BIG);
                }
            } else {
                $sent = $this->pipe->send(['task', $to, $id, $this->number, $data, \microtime(true)], true);
            }
            if (!$sent) {
                unset($this->waiting[$id]);
                return false;
            }
            return $id;
        }

        /** What Ringroad says has become of a task of this worker. */
        private function became(int $number, int $outcome, string $payload): void
        {
            if ($outcome === \Ringroad\Rwp::DONE) {
                $this->finished($number - 1, \unserialize($payload));
                return;
            }
            $entry = $this->waiting[$number - 1] ?? null;
            unset($this->waiting[$number - 1]);
            if ($outcome !== \Ringroad\Rwp::SILENT) {
                Os::warn('task#' . ($number - 1) . " was not done: $payload", \SWOOLE_ERROR_TASK_DISPATCH_FAIL);
            }
            isset($entry['wait']) && ($entry['wait'])(null, false);
        }

        /** What a task worker sends before its task is over, or behind it. */
        private function said(string $payload): void
        {
            [$what, $pid, $id, $result] = \unserialize($payload) + [null, 0, 0, null];
            // Its slot may have had another process when the task was submitted.
            if ($what === 'finish' && $pid === \getmypid()) {
                $known = $this->waiting[$id] ?? null;
                $this->waiting[$id] ??= ['call' => null];
                $this->finished($id, $result);
                if ($known !== null && !isset($known['wait'])) {
                    // The last result is to come.
                    $this->waiting[$id] = $known;
                }
            }
        }

        public function task(mixed $data, int $taskWorkerIndex = -1, ?callable $finishCallback = null): int|false
        {
            return $this->post($data, $taskWorkerIndex, ['call' => $finishCallback]);
        }

        /** Posts tasks and waits for all of them, the coroutine or the process; results by index. */
        private function posted(array $tasks, float $timeout, int $to): array|false
        {
            $results = [];
            $ids = [];
            $task = Loop::$current;
            $waits = false;
            foreach ($tasks as $index => $data) {
                $entry = ['wait' => static function (mixed $result, bool $there = true) use ($index, &$results, &$ids, &$waits,
                    $task): void {
                    if ($there) {
                        $results[$index] = $result;
                    }
                    unset($ids[$index]);
                    if (!$ids && $waits && $task !== null) {
                        $waits = false;
                        Loop::resume($task->id, true);
                    }
                }];
                $id = $this->post($data, $to, $entry);
                if ($id === false) {
                    return false;
                }
                $ids[$index] = $id;
            }
            if ($ids && $task !== null) {
                $waits = true;
                Loop::wait($timeout);
                $waits = false;
            }
            $until = \microtime(true) + $timeout;
            while ($ids && $task === null && ($left = $until - \microtime(true)) > 0) {
                if ($this->worker !== null) {
                    $this->worker->await($left);
                    continue;
                }
                foreach ($this->pipe->await($left) ?? [] as $message) {
                    // What else comes has to wait.
                    $message[0] === 'finish' && isset($this->waiting[$message[1]]['wait']) || \in_array($message[0], ['open', 'shut'], true)
                        ? $this->take($message) : Loop::later(fn () => $this->take($message));
                }
            }
            foreach ($ids as $id) {
                unset($this->waiting[$id]);
                $this->error = Loop::$errno = \SWOOLE_ERROR_TASK_TIMEOUT;
            }
            return $results;
        }

        public function taskwait(mixed $data, float $timeout = 0.5, int $taskWorkerIndex = -1): mixed
        {
            if ($this->taskworker) {
                Os::warn('taskwait method can only be used in the worker process');
                return false;
            }
            return ($this->posted([$data], $timeout, $taskWorkerIndex) ?: [false])[0];
        }

        public function taskWaitMulti(array $tasks, float $timeout = 0.5): array|false
        {
            return $this->posted($tasks, $timeout, -1);
        }

        public function taskCo(array $tasks, float $timeout = 0.5): array|false
        {
            $results = $this->posted($tasks, $timeout, -1);
            if ($results === false) {
                return false;
            }
            foreach ($tasks as $index => $_) {
                $results[$index] ??= \array_key_exists($index, $results) ? $results[$index] : false;
            }
            \ksort($results);
            return $results;
        }

        /** A task over the pipe, in a task worker. */
        private function begin(int $id, int $from, mixed $data, float $posted): void
        {
            $reply = fn (mixed $result) => $this->pipe->send(['to', $from, ['finish', $id, $result]], true);
            $this->perform($id, $from, $data, $posted, $reply, function (?\Throwable $why): void {
                $this->pipe->send(['idle'], true);
                if ($why !== null) {
                    throw $why;
                }
                $most = (int) ($this->setting['task_max_request'] ?? 0);
                if ($most > 0 && ++$this->served >= $most) {
                    $this->leave();
                }
            });
        }

        /** A task that Ringroad gives, in a task worker. */
        private function given(int $number, int $from, string $payload): void
        {
            $socket = $from === \Ringroad\Rwp::ANY;
            // Over the task socket it is JSON.
            [$id, $pid, $posted, $data] = $socket ? [$number, 0, \microtime(true), \json_decode($payload, true)]
                : \unserialize($payload);
            $say = fn (mixed $result): bool => !$socket
                && $this->worker->say($from, \serialize(['finish', $pid, $id, $result]));
            $results = [];
            $over = false;
            // The last result goes with the end of the task, others before it.
            $reply = static function (mixed $result) use (&$results, &$over, $say): bool {
                if ($over) {
                    return $say($result);
                }
                $results && $say($results[0]);
                $results = [$result];
                return true;
            };
            $this->worker->tasking++;
            $done = function (?\Throwable $why) use (&$results, &$over, $number, $socket): void {
                $over = true;
                $outcome = $why !== null ? \Ringroad\Rwp::RAISED : ($results ? \Ringroad\Rwp::DONE : \Ringroad\Rwp::SILENT);
                $text = match ($outcome) {
                    \Ringroad\Rwp::RAISED => $why::class . ": {$why->getMessage()}",
                    \Ringroad\Rwp::DONE => $socket ? (string) \json_encode($results[0]) : \serialize($results[0]),
                    default => '',
                };
                if (\strlen($text) > self::TASK_BYTES) {
                    [$outcome, $text] = [\Ringroad\Rwp::RAISED, 'the result has more than ' . self::TASK_BYTES . ' bytes'];
                }
                $why !== null && Os::uncaught($why);
                $this->worker->tasking--;
                $this->worker->done($number, $outcome, $text);
                $most = (int) ($this->setting['task_max_request'] ?? 0);
                if ($most > 0 && ++$this->served === $most) {
                    $this->worker->drain();
                }
            };
            $worker = $from & \Ringroad\Rwp::TASK_SLOT ? $this->setting['worker_num'] + ($from & 0x7fff) : $from;
            $this->perform($id, $socket ? -1 : $worker, $data, $posted, $reply, $done);
        }

        /** Calls the program with a task. `$done` is told at its end, with what it threw. */
        private function perform(int $id, int $from, mixed $data, float $posted, \Closure $reply, \Closure $done): void
        {
            $task = new Server\Task();
            $task->id = $id;
            $task->worker_id = \max(0, $from);
            $task->flags = $from < 0 ? \SWOOLE_TASK_NOREPLY : 0;
            $task->data = $data;
            $task->dispatch_time = $posted;
            $task->answers($reply);
            $coroutine = !empty($this->setting['task_enable_coroutine']);
            $object = $coroutine || !empty($this->setting['task_use_object']) || !empty($this->setting['task_object'])
                || !empty($this->setting['event_object']);
            $run = function () use ($task, $object, $done): void {
                $before = $this->task;
                $this->task = $task;
                $thrown = null;
                try {
                    $result = $object ? ($this->callbacks['task'])($this, $task)
                        : ($this->callbacks['task'])($this, $task->id, $task->worker_id, $task->data);
                    if ($result !== null) {
                        $task->finish($result);
                    }
                } catch (\Throwable $why) {
                    $thrown = $why;
                }
                $this->task = $before;
                $done($thrown);
            };
            $coroutine ? Loop::start($run, []) : $run();
        }

        public function finish(mixed $data): bool
        {
            if ($this->task === null) {
                Os::warn('finish can only be used in the task worker');
                return false;
            }
            return $this->task->finish($data);
        }

        private function finished(int $id, mixed $result): void
        {
            $entry = $this->waiting[$id] ?? null;
            unset($this->waiting[$id]);
            if ($entry === null) {
                return;
            }
            if (isset($entry['wait'])) {
                ($entry['wait'])($result);
                return;
            }
            $call = $entry['call'] ?? $this->callbacks['finish'] ?? null;
            if ($call === null) {
                Os::warn('require onFinish callback');
                return;
            }
            if (!empty($this->setting['event_object']) && $entry['call'] === null) {
                $object = new Server\TaskResult();
                [$object->task_id, $object->data] = [$id, $result];
                Loop::callback($call, [$this, $object]);
                return;
            }
            Loop::callback($call, [$this, $id, $result]);
        }

        // Connections.

        /** @internal An answer that is to be given through another object. */
        public function sink(int $fd): ?\Ringroad\Sink
        {
            return $this->sinks[$fd] ?? $this->mine[$fd] ?? null;
        }

        public function send(int|string $fd, string $send_data, int $serverSocket = -1): bool
        {
            $fd = (int) $fd;
            if ($send_data === '') {
                Os::warn('data is empty', \SWOOLE_ERROR_NO_PAYLOAD);
                return false;
            }
            $there = $this->elsewhere($fd, 'send', [$fd, $send_data]);
            if ($there !== null) {
                return $there;
            }
            return isset($this->mine[$fd]) ? $this->mine[$fd]->send($send_data) : $this->none($fd);
        }

        public function sendwait(int $conn_fd, string $send_data): bool
        {
            return $this->send($conn_fd, $send_data);
        }

        public function sendto(string $ip, int $port, string $send_data, int $server_socket = -1): bool
        {
            $socket = @\stream_socket_client('udp://' . (\str_contains($ip, ':') ? "[$ip]" : $ip) . ":$port");
            return $socket !== false && @\fwrite($socket, $send_data) === \strlen($send_data);
        }

        public function sendfile(int $conn_fd, string $filename, int $offset = 0, int $length = 0): bool
        {
            $data = @\file_get_contents($filename, false, null, $offset, $length > 0 ? $length : null);
            if ($data === false) {
                Os::warn("sendfile: $filename cannot be read", 2);
                return false;
            }
            return $this->send($conn_fd, $data);
        }

        public function exists(int $fd): bool
        {
            return isset($this->known[$fd]) || isset($this->asking[$fd]);
        }

        public function exist(int $fd): bool
        {
            return $this->exists($fd);
        }

        public function protect(int $fd, bool $is_protected = true): bool
        {
            if (isset($this->mine[$fd])) {
                $this->mine[$fd]->protected = $is_protected;
                return true;
            }
            return false;
        }

        public function bind(int $fd, int $uid): bool
        {
            if (!isset($this->known[$fd]) || isset($this->uids[$fd])) {
                return false;
            }
            $this->uids[$fd] = $uid;
            $this->known[$fd]['uid'] = $uid;
            return true;
        }

        public function close(int $fd, bool $reset = false): bool
        {
            $there = $this->elsewhere($fd, 'close', [$fd, $reset]);
            if ($there !== null) {
                return $there;
            }
            if (isset($this->sinks[$fd])) {
                return $this->sinks[$fd]->close();
            }
            if (!isset($this->mine[$fd])) {
                return $this->none($fd);
            }
            $connection = $this->mine[$fd];
            $connection->errno = 0;
            return $reset ? $connection->reset() : $connection->close();
        }

        public function pause(int $fd): bool
        {
            isset($this->mine[$fd]) && $this->mine[$fd]->pause(true);
            return isset($this->mine[$fd]);
        }

        public function resume(int $fd): bool
        {
            isset($this->mine[$fd]) && $this->mine[$fd]->pause(false);
            return isset($this->mine[$fd]);
        }

        public function heartbeat(bool $ifCloseConnection = true): array|false
        {
            $idle = (float) ($this->setting['heartbeat_idle_time'] ?? 2 * (float) ($this->setting['heartbeat_check_interval'] ?? 0));
            if ($idle <= 0) {
                return false;
            }
            $late = [];
            foreach ($this->mine as $fd => $connection) {
                if (!$connection->protected && \microtime(true) - $connection->received > $idle) {
                    $late[] = $fd;
                    $ifCloseConnection && $connection->reset();
                }
            }
            return $late;
        }

        public function getClientList(int $start_fd = 0, int $find_count = 10): array|false
        {
            if ($find_count > 100) {
                Os::warn('swoole connection list max count is 100');
                return false;
            }
            $all = \array_keys($this->known);
            \sort($all);
            return \array_slice(\array_values(\array_filter($all, static fn (int $fd) => $fd > $start_fd)), 0, $find_count) ?: false;
        }

        public function connection_list(int $start_fd = 0, int $find_count = 10): array|false
        {
            return $this->getClientList($start_fd, $find_count);
        }

        public function getClientInfo(int $fd, int $reactor_id = -1, bool $ignoreError = false): array|false
        {
            $known = $this->known[$fd] ?? null;
            if ($known === null && isset($this->asking[$fd])) {
                // A request behind Ringroad, which this worker has.
                $server = $this->asking[$fd];
                $known = ['worker' => $this->worker_id, 'remote_ip' => $server['remote_addr'], 'remote_port' => $server['remote_port'],
                    'server_port' => $server['server_port'], 'connect_time' => $server['request_time']];
            }
            if ($known === null) {
                return false;
            }
            $mine = $this->mine[$fd] ?? null;
            return (isset($known['websocket_status']) ? ['websocket_status' => $known['websocket_status']] : [])
                + (isset($known['uid']) ? ['uid' => $known['uid']] : [])
                + ['worker_id' => $known['worker'], 'server_fd' => 0, 'socket_fd' => $fd, 'socket_type' => $known['socket_type'] ?? 1,
                'remote_port' => $known['remote_port'], 'remote_ip' => $known['remote_ip'], 'reactor_id' => 0,
                'connect_time' => $known['connect_time'], 'last_time' => (int) ($mine?->received ?? $known['connect_time']),
                'last_recv_time' => $mine?->received ?? (float) $known['connect_time'], 'last_send_time' => $mine?->sent ?? 0.0,
                'last_dispatch_time' => $mine?->received ?? 0.0, 'close_errno' => 0, 'recv_queued_bytes' => 0,
                'send_queued_bytes' => $mine?->queued() ?? 0, 'server_port' => $known['server_port'] ?? $this->port];
        }

        public function connection_info(int $fd, int $reactor_id = -1, bool $ignoreError = false): array|false
        {
            return $this->getClientInfo($fd, $reactor_id, $ignoreError);
        }

        // The server.

        public function stats(): array
        {
            $workers = $this->setting['worker_num'] ?? 1;
            $tasks = $this->setting['task_worker_num'] ?? 0;
            $requests = $this->sum(1);
            return ['start_time' => $this->began, 'connection_num' => \count($this->known), 'abort_count' => 0,
                'accept_count' => $this->accepted?->get() ?? 0, 'close_count' => $this->closed?->get() ?? 0,
                'worker_num' => $workers, 'task_worker_num' => $tasks, 'user_worker_num' => \count($this->users),
                'idle_worker_num' => $workers, 'task_idle_worker_num' => $tasks, 'tasking_num' => \count($this->waiting),
                'dispatch_count' => $requests, 'request_count' => $requests,
                'response_count' => $requests, 'total_recv_bytes' => 0, 'total_send_bytes' => 0,
                'pipe_packet_msg_id' => 0, 'concurrency' => $this->concurrency(), 'session_round' => $this->numbers?->get() ?? 0,
                'min_fd' => 0, 'max_fd' => 0, 'worker_request_count' => $this->served, 'worker_response_count' => $this->served,
                'worker_dispatch_count' => $this->served, 'worker_concurrency' => $this->active,
                'coroutine_num' => \count(Loop::$tasks), 'coroutine_peek_num' => Loop::$peak,
                'coroutine_peak_num' => Loop::$peak];
        }

        public function tick(int $ms, callable $callback, mixed ...$params): int|false
        {
            return Timer::tick($ms, $callback, ...$params);
        }

        public function after(int $ms, callable $callback, mixed ...$params): int|false
        {
            return Timer::after($ms, $callback, ...$params);
        }

        public function clearTimer(int $id): bool
        {
            return Timer::clear($id);
        }

        public function defer(callable $callback): bool
        {
            return Event::defer($callback);
        }

        public function getWorkerId(): int|false
        {
            return $this->worker_id < 0 ? false : $this->worker_id;
        }

        public function getWorkerPid(int $worker_id = -1): int|false
        {
            return $worker_id < 0 || $worker_id === $this->worker_id ? ($this->worker_pid ?: false) : false;
        }

        public function getWorkerStatus(int $worker_id = -1): int|false
        {
            if ($worker_id >= 0 && $worker_id !== $this->worker_id) {
                return false;
            }
            return $this->stopping ? \SWOOLE_WORKER_EXIT : (\count(Loop::$tasks) > 1 ? \SWOOLE_WORKER_BUSY : \SWOOLE_WORKER_IDLE);
        }

        public function getMasterPid(): int
        {
            return $this->master_pid;
        }

        public function getManagerPid(): int
        {
            return $this->manager_pid;
        }

        public function getSocket(int $port = 0): \Socket|false
        {
            foreach ($this->ports as $one) {
                if ($port === 0 || $one->port === $port) {
                    return $one->getSocket();
                }
            }
            return false;
        }
    }
}

namespace Swoole\Server {
    use Ringroad\Connection;
    use Ringroad\Listener;
    use Ringroad\Loop;

    /** One address of a server. */
    class Port
    {
        public string $host = '';
        public int $port = 0;
        public int $type = 1;
        public int $sock = -1;
        public bool $ssl = false;
        public array $setting = [];
        public ?\Swoole\Connection\Iterator $connections = null;
        /** @internal */
        public ?Listener $listener = null;
        private array $callbacks = [];

        public function __construct(private \Swoole\Server $server, string $host, int $port, int $type, bool $listens)
        {
            $this->host = $host;
            $this->type = $type & 0xff;
            $this->ssl = ($type & \SWOOLE_SSL) !== 0;
            $this->port = $port;
            $this->connections = $server->connections;
            if ($listens) {
                $this->listener = new Listener($host, $port, $this->ssl, true);
                $this->port = $this->listener->port;
                $this->sock = $this->listener->number();
            }
        }

        public function set(array $settings): void
        {
            $this->setting = $settings + $this->setting;
        }

        public function on(string $event_name, mixed $callback): bool
        {
            self::demand($callback);
            $this->callbacks[\strtolower($event_name)] = $callback;
            return true;
        }

        /** @internal Ends the program where a callback cannot be called. */
        public static function demand(mixed $callback): void
        {
            if (!\is_callable($callback, false, $name)) {
                \trigger_error("Swoole\\Server\\Port::on(): function '$name' is not callable", E_USER_ERROR);
            }
        }

        public function getCallback(string $event_name): \Closure|null
        {
            $call = $this->callbacks[\strtolower($event_name)] ?? null;
            return $call === null ? null : \Closure::fromCallable($call);
        }

        public function getSocket(): \Socket|false
        {
            return $this->listener?->socket() ?? false;
        }

        /** @internal */
        public function callback(string $event): ?callable
        {
            return $this->callbacks[$event] ?? $this->server->getCallback($event);
        }

        /** @internal */
        public function protocol(): string
        {
            foreach (['websocket', 'http'] as $name) {
                if (isset($this->setting["open_{$name}_protocol"])) {
                    return $this->setting["open_{$name}_protocol"] ? $name : 'tcp';
                }
            }
            if (isset($this->callbacks['receive'])) {
                return 'tcp';
            }
            return match (true) {
                $this->server instanceof \Swoole\WebSocket\Server => 'websocket',
                $this->server instanceof \Swoole\Http\Server => 'http',
                default => 'tcp',
            };
        }

        /** @internal */
        public function serve(bool $coroutine): void
        {
            $listener = $this->listener;
            $server = $this->server;
            if ($listener === null) {
                return;
            }
            $listener->settings = $this->setting + $server->setting;
            if ($server->mode !== \SWOOLE_PROCESS) {
                unset($listener->settings['output_buffer_size'], $listener->settings['buffer_output_size']);
            }
            $listener->admit = $server->admit(...);
            $listener->progress = $server->progress(...);
            $listener->protocol = $this->protocol() === 'tcp' ? 'tcp' : 'http';
            $listener->coroutine = $coroutine;
            $listener->number = $server->number(...);
            $listener->onConnect = fn (Connection $connection) => $server->opened($connection, $this);
            $listener->onClose = fn (Connection $connection) => $server->shut($connection, $this);
            $listener->onRequest = function ($request, $response, $connection) use ($server): void {
                $own = $this->callbacks['request'] ?? null;
                $own !== null ? $own($request, $response) : $server->asked($request, $response, $connection);
            };
            $listener->onReceive = function (Connection $connection, string $data) use ($server): void {
                $server->counted();
                $call = $this->callback('receive');
                $call !== null && Loop::callback($call, [$server, $connection->fd, 0, $data]);
            };
            $listener->serve();
        }

        /** @internal */
        public function close(): void
        {
            $this->listener?->close();
            $this->listener = null;
        }
    }

    /** A task of a task worker. */
    class Task
    {
        public mixed $data = null;
        public float $dispatch_time = 0;
        public int $id = -1;
        public int $worker_id = -1;
        public int $flags = 0;
        private ?\Closure $reply = null;

        /** @internal Where results go. */
        public function answers(\Closure $reply): void
        {
            $this->reply = $reply;
        }

        public function finish(mixed $data): bool
        {
            return $this->reply !== null && ($this->reply)($data);
        }

        public function __debugInfo(): array
        {
            return ['data' => $this->data, 'dispatch_time' => $this->dispatch_time, 'id' => $this->id,
                'worker_id' => $this->worker_id, 'flags' => $this->flags];
        }

        public static function pack(mixed $data): string|false
        {
            return \serialize($data);
        }

        public static function unpack(string $data): mixed
        {
            return \unserialize($data);
        }
    }

    class TaskResult
    {
        public int $task_id = 0;
        public int $task_worker_id = 0;
        public float $dispatch_time = 0;
        public mixed $data = null;
    }

    class PipeMessage
    {
        public int $worker_id = 0;
        public int $source_worker_id = 0;
        public float $dispatch_time = 0;
        public mixed $data = null;
    }
}

namespace Swoole\Connection {
    /** The numbers of a server's connections, of all its workers. */
    class Iterator implements \Iterator, \ArrayAccess, \Countable
    {
        private array $fds = [];
        private int $place = 0;

        public function __construct(private ?\Swoole\Server $server = null)
        {
        }

        public function rewind(): void
        {
            $this->fds = \array_keys($this->server?->known ?? []);
            $this->place = 0;
        }

        public function next(): void
        {
            $this->place++;
        }

        public function current(): mixed
        {
            return $this->fds[$this->place] ?? null;
        }

        public function key(): mixed
        {
            return $this->place;
        }

        public function valid(): bool
        {
            return isset($this->fds[$this->place]);
        }

        public function count(): int
        {
            return \count($this->server?->known ?? []);
        }

        public function offsetExists(mixed $fd): bool
        {
            return $this->server?->exists((int) $fd) ?? false;
        }

        public function offsetGet(mixed $fd): mixed
        {
            return $this->server?->getClientInfo((int) $fd) ?? false;
        }

        public function offsetSet(mixed $fd, mixed $value): void
        {
        }

        public function offsetUnset(mixed $fd): void
        {
        }
    }
}

namespace Swoole\Http {
    use Ringroad\Loop;

    /** A server with one callback for each request. */
    class Server extends \Swoole\Server
    {
        protected const PROTOCOL = 'http';

        protected function demand(): void
        {
            if (!isset($this->callbacks['request'])) {
                \trigger_error('Swoole\Http\Server::start(): require onRequest callback', E_USER_ERROR);
            }
        }

        public function asked(Request $request, Response $response, \Ringroad\Sink $sink): void
        {
            $this->counted();
            if (!empty($this->setting['enable_static_handler']) && $this->file($request, $response)) {
                return;
            }
            if ($sink instanceof \Ringroad\Stream) {
                $this->sinks[$request->fd] = $sink;
                $this->asking[$request->fd] = $request->server;
            }
            try {
                if (isset($this->callbacks['request'])) {
                    ($this->callbacks['request'])($request, $response);
                } else {
                    $response->status(400);
                    $response->end();
                }
            } finally {
                $this->settle($request->fd, $response);
            }
        }

        /** Sends a file of `document_root`, if the path is one of a file. */
        private function file(Request $request, Response $response): bool
        {
            $root = \realpath((string) ($this->setting['document_root'] ?? ''));
            $path = $request->server['path_info'];
            if ($root === false || \str_contains($path, "\0")) {
                return false;
            }
            $places = $this->setting['static_handler_locations'] ?? [];
            if ($places && !\array_filter($places, static fn ($place) => \str_starts_with($path, $place))) {
                return false;
            }
            $file = \realpath($root . $path);
            if ($file !== false && \is_dir($file)) {
                foreach ($this->setting['http_index_files'] ?? [] as $name) {
                    if (\is_file("$file/$name")) {
                        $file = \realpath("$file/$name");
                        break;
                    }
                }
            }
            // A link that leads out of the folder is not followed.
            if ($file === false || !\is_file($file) || !\str_starts_with($file, "$root/")) {
                if ($places) {
                    $response->status(404);
                    $response->end();
                    return true;
                }
                return false;
            }
            \clearstatcache(true, $file);
            $changed = (int) \filemtime($file);
            $since = $request->header['if-modified-since'] ?? '';
            $since = \is_string($since) ? \strtotime($since) : false;
            if ($since !== false && $since >= $changed) {
                $response->status(304);
                $response->end();
                return true;
            }
            $response->header('Last-Modified', \gmdate('D, d M Y H:i:s', $changed) . ' GMT');
            return $response->sendfile($file);
        }

        /** An answer that was detached may be given later; others may not. */
        protected function settle(int $fd, Response $response): void
        {
            if (!$response->isDetached()) {
                unset($this->sinks[$fd], $this->asking[$fd]);
            } elseif (\count($this->sinks) >= $this->sweep) {
                $this->sinks = \array_filter($this->sinks, static fn (\Ringroad\Stream $sink): bool => !$sink->over);
                $this->asking = \array_intersect_key($this->asking, $this->sinks);
                $this->sweep = \max(1024, 2 * \count($this->sinks));
            }
        }
    }
}

namespace Swoole\WebSocket {
    use Ringroad\Connection;
    use Ringroad\Loop;
    use Ringroad\Os;
    use Ringroad\Socket;
    use Swoole\Http\Request;
    use Swoole\Http\Response;

    /** A server of WebSockets, and of requests, too. */
    class Server extends \Swoole\Http\Server
    {
        protected const PROTOCOL = 'websocket';
        /** @var array<int, Socket> of this worker */
        private array $sockets = [];

        protected function demand(): void
        {
            if (!isset($this->callbacks['message'])) {
                \trigger_error('Swoole\WebSocket\Server::start(): require onMessage callback', E_USER_ERROR);
            }
        }

        public function asked(Request $request, Response $response, \Ringroad\Sink $sink): void
        {
            $offered = $sink instanceof \Ringroad\Stream ? $sink->offered
                : Connection::offers($request->header);
            if (!$offered) {
                if (!isset($this->callbacks['request'])) {
                    $response->status(400);
                    $response->end('<html><body><h2>HTTP 400 Bad Request</h2></body></html>');
                    $call = $this->callbacks['disconnect'] ?? null;
                    $call !== null && $call($this, $request->fd);
                    return;
                }
                parent::asked($request, $response, $sink);
                return;
            }
            $this->counted();
            $fd = $request->fd;
            $own = isset($this->callbacks['handshake']);
            $response->onUpgrade(function (Socket $socket) use ($fd, $request, $own): void {
                $this->sockets[$fd] = $socket;
                [$address, $port] = [$request->server['remote_addr'], $request->server['remote_port']];
                $this->tell('open', $fd, ['websocket_status' => \WEBSOCKET_STATUS_ACTIVE] + ($this->known[$fd] ?? [
                    'worker' => $this->owner($fd), 'remote_ip' => $address, 'remote_port' => $port,
                    'server_port' => $request->server['server_port'], 'connect_time' => \time()]));
                $socket->listen(fn (?Frame $frame) => $this->came($fd, $frame));
            });
            if ($own) {
                ($this->callbacks['handshake'])($request, $response);
                return;
            }
            $protocol = (string) ($this->setting['websocket_subprotocol'] ?? '');
            $protocol === '' || $response->header('Sec-WebSocket-Protocol', $protocol);
            if (isset($this->callbacks['beforehandshakeresponse'])) {
                ($this->callbacks['beforehandshakeresponse'])($this, $request, $response);
            }
            if ($response->upgrade() && isset($this->callbacks['open'])) {
                ($this->callbacks['open'])($this, $request);
            }
        }

        private function came(int $fd, ?Frame $frame): void
        {
            if ($frame !== null) {
                $frame->fd = $fd;
                Loop::callback($this->callbacks['message'], [$this, $frame]);
                return;
            }
            if (isset($this->sockets[$fd])) {
                unset($this->sockets[$fd]);
                $this->tell('shut', $fd);
                isset($this->callbacks['close']) && Loop::callback($this->callbacks['close'], [$this, $fd, 0]);
            }
        }

        public function shut(Connection $connection, \Swoole\Server\Port $port): void
        {
            if (isset($this->sockets[$connection->fd])) {
                $this->came($connection->fd, null);
                unset($this->mine[$connection->fd]);
                return;
            }
            parent::shut($connection, $port);
        }

        public function push(
            int $fd, Frame|string $data, int $opcode = \WEBSOCKET_OPCODE_TEXT, int|bool $flags = \SWOOLE_WEBSOCKET_FLAG_FIN,
        ): bool {
            [$payload, $opcode, $flags] = Frame::parts($data, $opcode, $flags);
            if ($opcode > 10) {
                Os::warn('the maximum value of opcode is 10', \SWOOLE_ERROR_WEBSOCKET_BAD_OPCODE);
                return false;
            }
            if ($fd <= 0) {
                Os::warn("fd[$fd] is invalid", \SWOOLE_ERROR_SESSION_INVALID_ID);
                return false;
            }
            $there = $this->elsewhere($fd, 'push', [$fd, $payload, $opcode, $flags]);
            if ($there !== null) {
                return $there;
            }
            $socket = $this->sockets[$fd] ?? null;
            if ($socket === null || !$socket->isOpen()) {
                if (isset($this->mine[$fd])) {
                    Os::warn('the connected client of connection[' . $fd . '] is not a websocket client or closed',
                        \SWOOLE_ERROR_WEBSOCKET_UNCONNECTED);
                    return false;
                }
                return $this->none($fd);
            }
            if ($opcode === \WEBSOCKET_OPCODE_CLOSE) {
                $code = \strlen($payload) >= 2 ? \unpack('n', $payload)[1] : 1000;
                return $socket->leave($code, (string) \substr($payload, 2));
            }
            return $socket->send($payload, $opcode, $flags);
        }

        public function ping(int $fd, string $data = ''): bool
        {
            return $this->push($fd, $data, \WEBSOCKET_OPCODE_PING);
        }

        public function disconnect(int $fd, int $code = \SWOOLE_WEBSOCKET_CLOSE_NORMAL, string $reason = ''): bool
        {
            $there = $this->elsewhere($fd, 'disconnect', [$fd, $code, $reason]);
            if ($there !== null) {
                return $there;
            }
            return isset($this->sockets[$fd]) ? $this->sockets[$fd]->finish($code, $reason) : $this->none($fd);
        }

        public function close(int $fd, bool $reset = false): bool
        {
            if (isset($this->sockets[$fd]) && !isset($this->mine[$fd])) {
                return $this->sockets[$fd]->finish(1000, '');
            }
            return parent::close($fd, $reset);
        }

        public function isEstablished(int $fd): bool
        {
            if (isset($this->sockets[$fd])) {
                return $this->sockets[$fd]->isOpen();
            }
            return ($this->known[$fd]['websocket_status'] ?? 0) === \WEBSOCKET_STATUS_ACTIVE;
        }

        public static function pack(
            Frame|string $data, int $opcode = \WEBSOCKET_OPCODE_TEXT, int|bool $flags = \SWOOLE_WEBSOCKET_FLAG_FIN,
        ): string {
            return Frame::pack($data, $opcode, (int) $flags);
        }

        public static function unpack(string $data): Frame|false
        {
            return Frame::unpack($data);
        }
    }
}

namespace Swoole\Coroutine\Http {
    use Ringroad\Listener;
    use Ringroad\Loop;

    /** A server inside a coroutine. */
    class Server
    {
        public int $fd = -1;
        public string $host;
        public int $port;
        public bool $ssl;
        public array $settings = [];
        public int $errCode = 0;
        public string $errMsg = '';
        private array $handlers = [];
        private ?int $waiter = null;
        private ?Listener $listener = null;

        public function __construct(string $host, int $port = 0, bool $ssl = false, private bool $reuse_port = false)
        {
            if ($host === '') {
                throw new \Swoole\Exception('host is empty', \SWOOLE_ERROR_INVALID_PARAMS);
            }
            $this->host = $host;
            $this->port = $port;
            $this->ssl = $ssl;
            if (!\Ringroad\Worker::isOne()) {
                $this->listener = new Listener($host, $port, $ssl, $reuse_port);
                $this->port = $this->listener->port;
                $this->fd = $this->listener->number();
            }
        }

        public function __destruct()
        {
            $this->waiter === null && $this->listener?->close();
        }

        public function set(array $settings): bool
        {
            $this->settings = $settings + $this->settings;
            return true;
        }

        public function handle(string $pattern, callable $callback): bool
        {
            $this->handlers[$pattern] = $callback;
            return true;
        }

        private function dispatch($request, $response): void
        {
            $path = $request->server['request_uri'];
            $best = null;
            foreach ($this->handlers as $pattern => $callback) {
                $pattern = (string) $pattern;
                $matches = $pattern === '/' || $path === $pattern || \str_starts_with($path, \rtrim($pattern, '/') . '/');
                if ($matches && ($best === null || \strlen($pattern) > \strlen($best))) {
                    $best = $pattern;
                }
            }
            if ($best === null) {
                $response->status(404);
                $response->end();
                return;
            }
            ($this->handlers[$best])($request, $response);
        }

        public function start(): bool
        {
            \Ringroad\Worker::tell($this->host, $this->port, 1);
            $handler = fn ($request, $response) => $this->dispatch($request, $response);
            $this->waiter = Loop::task()->id;
            if (\Ringroad\Worker::isOne()) {
                $control = \Ringroad\Worker::control();
                $welcome = $control->welcome();
                if (!empty($welcome['mold'])) {
                    [$control, $welcome] = \Ringroad\Manager::copies($control);
                }
                $this->ssl && \Ringroad\Os::note(\SWOOLE_LOG_WARNING, \Ringroad\Worker::PLAIN);
                (new \Ringroad\Worker($control, $welcome, $handler, true, 1000, true))->ready();
            } else {
                // After `shutdown` it listens anew.
                $this->listener ??= new Listener($this->host, $this->port, $this->ssl, $this->reuse_port);
                $this->listener->settings = $this->settings + ['http_compression' => $this->settings['http_compression'] ?? true];
                $this->listener->onRequest = $handler;
                $this->listener->serve();
            }
            Loop::suspend(static fn () => null);
            if ($this->waiter !== null) {
                $this->waiter = null;
                $this->listener?->close();
                $this->errCode = 125;
                $this->errMsg = \swoole_strerror(125);
                return false;
            }
            $this->errCode = 125;
            $this->errMsg = \swoole_strerror(125);
            return true;
        }

        public function shutdown(): void
        {
            $this->listener?->close();
            $this->listener = null;
            if ($this->waiter !== null) {
                $waiter = $this->waiter;
                $this->waiter = null;
                Loop::later(static fn () => Loop::resume($waiter));
            }
        }
    }
}

namespace Swoole\Coroutine\Server {
    /** A connection of `Swoole\Coroutine\Server`. */
    class Connection
    {
        public function __construct(private \Swoole\Coroutine\Socket $socket)
        {
        }

        public function recv(float $timeout = 0): string|false
        {
            return $this->socket->recvPacket($timeout);
        }

        public function send(string $data): int|false
        {
            return $this->socket->sendAll($data);
        }

        public function close(): bool
        {
            return $this->socket->close();
        }

        public function exportSocket(): \Swoole\Coroutine\Socket
        {
            return $this->socket;
        }
    }
}

namespace Swoole\Coroutine {
    /** A server of TCP inside a coroutine: each connection has a coroutine of its own. */
    class Server
    {
        public string $host = '';
        public int $port = 0;
        public int $type = AF_INET;
        public int $fd = -1;
        public int $errCode = 0;
        public array $setting = [];
        protected bool $running = false;
        /** @var callable|null */
        protected $fn;
        protected Socket $socket;

        public function __construct(string $host, int $port = 0, protected bool $ssl = false, protected bool $reuse_port = false)
        {
            if ($ssl) {
                throw new \Swoole\Exception('TLS of Swoole\Coroutine\Server is not there; docs/learn/php.md lists what is');
            }
            $this->type = \str_starts_with($host, 'unix:/') ? AF_UNIX : (\str_contains($host, ':') ? AF_INET6 : AF_INET);
            $this->host = $this->type === AF_UNIX ? \rtrim(\substr($host, 5)) : $host;
            $this->socket = new Socket($this->type, SOCK_STREAM, 0);
            if ($reuse_port) {
                $this->socket->setOption(SOL_SOCKET, SO_REUSEPORT, 1);
            }
            if (!$this->socket->bind($this->host, $port) || !$this->socket->listen()) {
                throw new \Swoole\Exception("bind({$host}:{$port}) failed: {$this->socket->errMsg}", $this->socket->errCode);
            }
            $this->port = $this->socket->getsockname()['port'] ?? 0;
            $this->fd = $this->socket->fd;
        }

        public function set(array $setting): void
        {
            $this->setting = $setting + $this->setting;
        }

        public function handle(callable $call): void
        {
            $this->fn = $call;
        }

        public function shutdown(): bool
        {
            $this->running = false;
            return $this->socket->cancel() || $this->socket->close();
        }

        public function start(): bool
        {
            $this->running = true;
            if ($this->fn === null) {
                $this->errCode = 22;
                return false;
            }
            $this->socket->setProtocol($this->setting);
            while ($this->running) {
                $socket = $this->socket->accept(-1);
                if ($socket !== false) {
                    $socket->setProtocol($this->setting);
                    \Swoole\Coroutine::create($this->fn, new Server\Connection($socket));
                } elseif ($this->socket->errCode === 110 || $this->socket->errCode === 24) {
                    \Swoole\Coroutine\System::sleep(0.01);
                } else {
                    break;
                }
            }
            $this->socket->isClosed() || $this->socket->close();
            return true;
        }
    }
}
