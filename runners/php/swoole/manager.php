<?php
/*
 * The processes of a server: the manager forks workers and task workers, and carries messages between them.
 *
 * Without Ringroad the manager is the process that the program was started as. Behind Ringroad it is the
 * process that has run the program up to `start()` (`mold` in docs/APP-PROTOCOL.md): Ringroad asks it for
 * workers and task workers, and gives tasks to these itself. So what was made before `start()` (tables,
 * locks, numbers) is shared by all of them in both cases.
 */

namespace Ringroad {
    /** Messages between two processes: values of PHP, each with its length before it. */
    final class Pipe
    {
        private string $in = '';
        private string $out = '';

        public function __construct(public $stream)
        {
            \stream_set_blocking($stream, false);
        }

        public function listen(\Closure $take, ?\Closure $end = null): void
        {
            Loop::onReadable($this->stream, function () use ($take, $end): void {
                $messages = $this->receive();
                foreach ($messages ?? [] as $message) {
                    $take($message);
                }
                if ($messages === null) {
                    $this->close();
                    $end !== null && $end();
                }
            });
        }

        /** What has come; `null`: the other process is gone. */
        public function receive(): ?array
        {
            $bytes = \is_resource($this->stream) ? @\fread($this->stream, 1 << 20) : false;
            if (($bytes === '' || $bytes === false) && (!\is_resource($this->stream) || \feof($this->stream))) {
                return null;
            }
            $this->in .= $bytes;
            $messages = [];
            while (\strlen($this->in) >= 4 && \strlen($this->in) >= 4 + ($length = \unpack('V', $this->in)[1])) {
                $messages[] = \unserialize(\substr($this->in, 4, $length));
                $this->in = (string) \substr($this->in, 4 + $length);
            }
            return $messages;
        }

        /** Waits, also the whole process, until something comes. */
        public function await(float $seconds): ?array
        {
            $read = [$this->stream];
            $write = $except = null;
            return @\stream_select($read, $write, $except, (int) $seconds, (int) (($seconds - (int) $seconds) * 1e6))
                ? $this->receive() : [];
        }

        public function send(array $message, bool $wait): bool
        {
            $bytes = \serialize($message);
            $this->out .= \pack('V', \strlen($bytes)) . $bytes;
            $this->flush();
            while ($wait && $this->out !== '' && \is_resource($this->stream)) {
                $write = [$this->stream];
                $read = $except = null;
                @\stream_select($read, $write, $except, 1);
                $this->flush();
            }
            return \is_resource($this->stream);
        }

        private function flush(): void
        {
            while ($this->out !== '' && \is_resource($this->stream)) {
                $sent = @\fwrite($this->stream, $this->out);
                if ($sent === false) {
                    $this->out = '';
                    return;
                }
                if ($sent === 0) {
                    Loop::onWritable($this->stream, fn () => $this->flush());
                    return;
                }
                $this->out = (string) \substr($this->out, $sent);
            }
            \is_resource($this->stream) && Loop::onWritable($this->stream, null);
        }

        public function close(): void
        {
            if (\is_resource($this->stream)) {
                Loop::drop($this->stream);
                \fclose($this->stream);
            }
        }
    }

    /** The parent of a server's processes. */
    final class Manager
    {
        /** The manager that this process is. */
        public static ?Manager $here = null;
        /** @var array<int, array{pid: int, pipe: Pipe, forked: bool}> by the number of the worker */
        private array $children = [];
        /** @var array<int, bool> task workers that have a task */
        private array $busy = [];
        /** @var list<array> tasks that wait for a worker */
        private array $tasks = [];
        private int $turn = 0;
        private bool $stopping = false;
        private ?Control $control = null;
        private array $welcome = [];
        /** @var array<int, int> processes of workers that are to be replaced */
        private array $reloading = [];
        private float $deadline = INF;
        private array $respawns = [];

        /** Numbers of workers are below `$workers`, those of task workers behind; `$count` workers are to be made. */
        public function __construct(
            private \Swoole\Server $server, private int $workers, private int $count, private int $taskWorkers, private array $users,
        ) {
        }

        /**
         * Forks a copy of this process for each worker that Ringroad asks for. Returns in the copies only, with
         * their control link and what Ringroad has said to it.
         */
        public static function copies(Control $control): array
        {
            $control->send(Rwp::READY, '{}');
            while (($frames = $control->receive(true)) !== null) {
                foreach ($frames as $frame) {
                    if ($frame['kind'] === Rwp::STOP) {
                        exit(0);
                    }
                    if ($frame['kind'] === Rwp::EXITED) {
                        \pcntl_waitpid(\unpack('V', $frame['payload'])[1], $status, WNOHANG);
                    }
                    if ($frame['kind'] !== Rwp::FORK) {
                        continue;
                    }
                    $came = \array_splice($control->came, 0, 3);
                    if (\pcntl_fork() === 0) {
                        Guard::forked();
                        return self::become($came, \json_decode($frame['payload'], true));
                    }
                    foreach ($came as $one) {
                        $one instanceof \Socket ? \socket_close($one) : \fclose($one);
                    }
                }
            }
            exit(0);
        }

        /** Becomes the worker that Ringroad asked for. */
        private static function become(array $came, array $names): array
        {
            foreach ($names as $name => $value) {
                \putenv("$name=$value");
            }
            // Without it, its lines are logged as those of the process that forked it.
            isset($came[1]) && Os::become($came[1], 1);
            isset($came[2]) && Os::become($came[2], 2);
            $control = new Control($came[0]);
            return [$control, $control->welcome()];
        }

        /** Makes the processes, and runs until the server is stopped. */
        public function run(?Control $control, array $welcome): void
        {
            $this->control = $control;
            $this->welcome = $welcome;
            self::$here = $this;
            if ($control !== null && !empty($welcome['tasks'])) {
                // The configuration says how many there are.
                $this->taskWorkers = (int) $welcome['tasks'];
            }
            foreach ([SIGTERM, SIGINT] as $signal) {
                // Behind Ringroad a key that interrupts all processes is Ringroad's.
                Os::onSignal($signal, $control !== null && $signal === SIGINT ? SIG_IGN : fn () => $this->stop());
            }
            Os::onSignal(SIGUSR1, fn () => $this->reload(false));
            Os::onSignal(SIGUSR2, fn () => $this->reload(true));
            Os::onSignal(SIGCHLD, fn () => $this->reap());
            $this->server->call('start');
            $this->server->call('managerstart');
            // Ringroad asks for its task workers.
            $first = $this->workers + ($control === null ? 0 : $this->taskWorkers);
            for ($id = $first; $id < $this->workers + $this->taskWorkers + \count($this->users); $id++) {
                $this->fork($id);
            }
            if ($control === null) {
                for ($id = 0; $id < $this->count; $id++) {
                    $this->fork($id);
                }
                // Signals are waited for.
                $watch = Loop::after(0.1, fn () => $this->reap(), 0.1);
            } else {
                $control->send(Rwp::READY, \json_encode(['tasks' => $this->taskWorkers]));
                Loop::onReadable($control->stream, fn () => $this->hear());
                $watch = Loop::after(0.2, fn () => $this->reap(), 0.2);
            }
            Loop::run();
            Loop::clear($watch);
            foreach ($this->children as $child) {
                $child['pipe']->close();
            }
            $this->server->call('managerstop');
        }

        /** Ringroad asks for a worker, or tells that one has ended. */
        private function hear(): void
        {
            $frames = $this->control->receive();
            if ($frames === null) {
                $this->stop();
                return;
            }
            foreach ($frames as $frame) {
                if ($frame['kind'] === Rwp::FORK) {
                    $came = \array_splice($this->control->came, 0, 3);
                    $this->forked(\json_decode($frame['payload'], true), $came);
                } elseif ($frame['kind'] === Rwp::EXITED) {
                    $pid = \unpack('V', $frame['payload'])[1];
                    $status = 0;
                    \pcntl_waitpid($pid, $status, WNOHANG);
                    foreach ($this->children as $id => $child) {
                        $child['pid'] === $pid && $this->ended($id, $pid, $status);
                    }
                } elseif ($frame['kind'] === Rwp::PING) {
                    $this->control->send(Rwp::PONG, \pack('VV', 0, 0));
                } elseif ($frame['kind'] === Rwp::STOP) {
                    $this->stop();
                }
            }
        }

        /** A worker that Ringroad asks for, with its control link, standard output and error. */
        private function forked(array $names, array $came): void
        {
            $slot = (int) ($names['RINGROAD_SLOT'] ?? 0);
            // A worker that is replaced while it finishes keeps its pipe until it ends.
            $id = isset($names['RINGROAD_TASK']) ? $this->workers + $slot : $slot;
            if (isset($this->children[$id])) {
                $old = $this->children[$id];
                $old['pipe']->send(['replaced'], false);
                $this->children["old{$old['pid']}"] = $old;
                unset($this->children[$id]);
            }
            [$mine, $theirs] = Os::pair();
            $pid = Os::fork();
            if ($pid !== 0) {
                \fclose($theirs);
                foreach ($came as $one) {
                    $one instanceof \Socket ? \socket_close($one) : \fclose($one);
                }
                $this->children[$id] = ['pid' => $pid, 'pipe' => new Pipe($mine), 'forked' => true];
                $this->listen($id);
                return;
            }
            \fclose($mine);
            $this->leave();
            [$control, $welcome] = self::become($came, $names);
            $this->server->work($id, new Pipe($theirs), $control, $welcome);
            exit(0);
        }

        private function fork(int $id): void
        {
            [$mine, $theirs] = Os::pair();
            $pid = Os::fork();
            if ($pid < 0) {
                throw new \Swoole\Exception('fork() failed');
            }
            if ($pid > 0) {
                \fclose($theirs);
                $this->children[$id] = ['pid' => $pid, 'pipe' => new Pipe($mine), 'forked' => false];
                $this->listen($id);
                return;
            }
            \fclose($mine);
            $this->leave();
            $user = $this->users[$id - $this->workers - $this->taskWorkers] ?? null;
            if ($user !== null) {
                $user->id = $id;
                foreach ([SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGCHLD] as $signal) {
                    \pcntl_signal($signal, SIG_DFL);
                }
                $this->server->enter($id, new Pipe($theirs));
                $user->enter();
                exit(0);
            }
            $this->server->work($id, new Pipe($theirs), null, []);
            exit(0);
        }

        /** The forked process has nothing to do with its siblings. */
        private function leave(): void
        {
            self::$here = null;
            foreach ($this->children as $child) {
                $child['pipe']->close();
            }
            $this->children = [];
            $this->control !== null && \fclose($this->control->stream);
            Os::onSignal(SIGCHLD, SIG_DFL);
        }

        private function listen(int $id): void
        {
            $this->children[$id]['pipe']->listen(fn (array $message) => $this->take($id, $message));
            $this->next();
        }

        private function isTaskWorker(int|string $id): bool
        {
            return \is_int($id) && $id >= $this->workers && $id < $this->workers + $this->taskWorkers;
        }

        private function take(int $from, array $message): void
        {
            switch ($message[0]) {
                case 'to':
                    isset($this->children[$message[1]]) && $this->children[$message[1]]['pipe']->send($message[2], false);
                    break;
                case 'task':
                    $this->post($message);
                    break;
                case 'idle':
                    $this->busy[$from] = false;
                    $this->next();
                    break;
                case 'open':
                    $this->server->known[$message[1]] = $message[2];
                    $this->tell($from, $message);
                    break;
                case 'shut':
                    unset($this->server->known[$message[1]]);
                    $this->tell($from, $message);
                    break;
                case 'reload':
                    $this->reload($message[1]);
                    break;
                case 'command':
                    // It was told to the manager itself.
                    break;
                case 'shutdown':
                    $this->stop();
                    break;
            }
        }

        /** Puts a task into the queue. Behind Ringroad one of the workers submits it. */
        public function post(array $message): bool
        {
            if ($this->control === null) {
                $this->tasks[] = $message;
                $this->next();
                return true;
            }
            foreach ($this->children as $id => $child) {
                if (\is_int($id) && $id < $this->workers) {
                    return $child['pipe']->send(['relay', ...\array_slice($message, 1)], false);
                }
            }
            return false;
        }

        private function tell(int $from, array $message): void
        {
            foreach ($this->children as $id => $child) {
                $id === $from || $id >= $this->workers + $this->taskWorkers || $child['pipe']->send($message, false);
            }
        }

        /** Gives tasks to workers that have none. */
        private function next(): void
        {
            $many = !empty($this->server->setting['task_enable_coroutine']);
            $left = [];
            foreach ($this->tasks as $task) {
                $to = null;
                for ($try = 0; $try < $this->taskWorkers && $to === null; $try++) {
                    $id = $this->workers + ($task[1] >= 0 ? $task[1] : $this->turn++ % $this->taskWorkers);
                    if (isset($this->children[$id]) && ($many || empty($this->busy[$id]))) {
                        $to = $id;
                    }
                    if ($task[1] >= 0) {
                        break;
                    }
                }
                if ($to === null) {
                    $left[] = $task;
                    continue;
                }
                $this->busy[$to] = true;
                $this->children[$to]['pipe']->send(['task', ...\array_slice($task, 2)], false);
            }
            $this->tasks = $left;
        }

        private function reap(): void
        {
            foreach ($this->children as $id => $child) {
                // Ringroad says when a worker that it asked for may be waited for.
                if (!$child['forked'] && \pcntl_waitpid($child['pid'], $status, WNOHANG) > 0) {
                    $this->ended($id, $child['pid'], $status);
                }
            }
            if ($this->stopping && \microtime(true) > $this->deadline) {
                foreach ($this->children as $child) {
                    $child['forked'] || \posix_kill($child['pid'], SIGKILL);
                }
            }
            foreach ($this->reloading as $pid => $until) {
                if (\microtime(true) > $until) {
                    \posix_kill($pid, SIGKILL);
                    unset($this->reloading[$pid]);
                }
            }
        }

        private function ended(int|string $id, int $pid, int $status): void
        {
            $child = $this->children[$id];
            // What it has said last.
            foreach ($child['pipe']->receive() ?? [] as $message) {
                \is_int($id) && $this->take($id, $message);
            }
            $child['pipe']->close();
            unset($this->children[$id], $this->busy[$id], $this->reloading[$pid]);
            foreach ($this->server->known as $fd => $one) {
                if ($one['worker'] === $id && !isset($this->children[$id])) {
                    $this->take(-1, ['shut', $fd]);
                }
            }
            ['code' => $code, 'signal' => $signal] = Os::ended($pid, $status);
            $failed = $code !== 0 || $signal !== 0;
            if ($failed && \is_int($id) && $id < $this->workers + $this->taskWorkers) {
                $shown = $id < $this->workers ? $id : $id - $this->workers + $this->count;
                $this->server->call('workererror', $shown, $pid, $code, $signal);
            }
            if ($this->stopping) {
                $this->children || Loop::end();
            } elseif (!$child['forked']) {
                // One that dies at once is not started in a busy loop.
                $wait = $failed && \microtime(true) - ($this->respawns[$id] ?? 0) < 1 ? 0.2 : 0;
                $this->respawns[$id] = \microtime(true);
                $wait > 0 ? Loop::after($wait, fn () => $this->stopping || $this->fork($id)) : $this->fork($id);
            }
            $this->reloading || $this->reloaded();
        }

        private bool $inReload = false;

        private function reloaded(): void
        {
            if ($this->inReload && !$this->stopping) {
                $this->inReload = false;
                $this->server->call('afterreload');
            }
        }

        private function reload(bool $tasksOnly): void
        {
            if ($this->stopping || $this->inReload) {
                return;
            }
            $this->inReload = true;
            $this->server->call('beforereload');
            $until = \microtime(true) + (float) ($this->server->setting['max_wait_time'] ?? 3);
            foreach ($this->children as $id => $child) {
                if ($tasksOnly && $child['forked'] && $this->isTaskWorker($id)) {
                    $child['pipe']->send(['drain'], false);
                }
                if ($id < $this->workers + $this->taskWorkers && !$child['forked'] && (!$tasksOnly || $this->isTaskWorker($id))) {
                    $this->reloading[$child['pid']] = $until;
                    \posix_kill($child['pid'], SIGTERM);
                }
            }
            $this->reloading || $this->reloaded();
        }

        private function stop(): void
        {
            if ($this->stopping) {
                return;
            }
            $this->stopping = true;
            $this->server->call('beforeshutdown');
            $this->deadline = \microtime(true) + (float) ($this->server->setting['max_wait_time'] ?? 3);
            foreach ($this->children as $child) {
                $child['forked'] || \posix_kill($child['pid'], SIGTERM);
            }
            $this->children || Loop::end();
            if ($this->control !== null) {
                // Workers of Ringroad are stopped by it.
                Loop::after(0.05, function (): void {
                    \array_filter($this->children, static fn ($child) => !$child['forked']) || Loop::end();
                }, 0.05);
            }
        }
    }
}
