<?php
/*
 * RWP/1 (docs/APP-PROTOCOL.md): requests from Ringroad, and answers to it.
 */

namespace Ringroad {
    use Swoole\Http\Response;

    /** Frames of RWP/1. */
    final class Rwp
    {
        public const HELLO = 1, WELCOME = 2, READY = 3, PING = 4, PONG = 5, STOP = 6, DRAIN = 7, LINK = 9, FORK = 10, FAILED = 12,
            EXITED = 13, PART = 15;
        public const REQUEST = 16, BODY = 17, CREDIT = 18, ABORT = 19, RESPONSE = 20, TRAILERS = 22, SENDFILE = 23, RESET = 24;
        public const WS_OPEN = 32, WS_ACCEPT = 33, WS_DATA = 34, WS_CLOSE = 35;
        public const TASK_SUBMIT = 48, TASK = 49, TASK_DONE = 50, TASK_RESULT = 51, MESSAGE = 52;
        public const END = 1, FILE_FOLLOWS = 2;
        /** What aux of TASK_DONE and TASK_RESULT says; above these a task was not done. */
        public const DONE = 0, RAISED = 1, SILENT = 2;
        /** Any task worker; and the task socket as where a task comes from. */
        public const ANY = 0xffff, TASK_SLOT = 0x8000;

        public static function frame(int $kind, int $stream, string $payload, int $flags = 0, int $aux = 0): string
        {
            return \pack('VCCvV', \strlen($payload), $kind, $flags, $aux, $stream) . $payload;
        }

        /** Whole frames at the beginning of a buffer, which keeps the rest. */
        public static function cut(string &$buffer): array
        {
            $frames = [];
            $at = 0;
            $size = \strlen($buffer);
            while ($size - $at >= 12) {
                $head = \unpack('Vlength/Ckind/Cflags/vaux/Vstream', $buffer, $at);
                if ($size - $at - 12 < $head['length']) {
                    break;
                }
                $head['payload'] = \substr($buffer, $at + 12, $head['length']);
                $frames[] = $head;
                $at += 12 + $head['length'];
            }
            if ($at > 0) {
                $buffer = (string) \substr($buffer, $at);
            }
            return $frames;
        }

        public static function lines(array $lines): string
        {
            if ($lines === Sink::PLAIN) {
                return self::$plain ??= self::joined($lines);
            }
            return self::joined($lines);
        }

        private static ?string $plain = null;

        private static function joined(array $lines): string
        {
            $strings = [];
            foreach ($lines as [$name, $value]) {
                // Others are for sinks that write HTTP themselves.
                if ($name[0] !== ':') {
                    $strings[] = $name;
                    $strings[] = $value;
                }
            }
            $joined = \implode("\0", $strings);
            return \pack('Vv', \strlen($joined), \count($strings) >> 1) . $joined;
        }
    }

    /** One request's way back over a link. */
    final class Stream implements Sink
    {
        public int $credit;
        public bool $aborted = false;
        public bool $over = false;
        public string $body = '';
        /** The head of the request: strings with NUL between them. */
        public string $head = '';
        public int $waiter = 0;
        public ?RingroadSocket $socket = null;
        public bool $offered = false;
        /** Its answer is a stream of events, which has begun. */
        private bool $events = false;

        public function __construct(private Link $link, private int $id, int $window)
        {
            $this->credit = $window;
        }

        private function finish(): void
        {
            $this->over = true;
            $this->link->forget($this->id);
        }

        public function head(int $status, array $lines, string $body, bool $more): bool
        {
            if ($this->aborted || $this->over) {
                return false;
            }
            $head = Rwp::lines($lines);
            if (!$more && \strlen($body) < 8 << 20) {
                $this->link->send(Rwp::RESPONSE, $this->id, $head . $body, Rwp::END, $status);
                $this->finish();
                return true;
            }
            $this->link->send(Rwp::RESPONSE, $this->id, $head, 0, $status);
            $this->events = $more && self::isEvents($lines);
            return $this->write($body) && ($more || $this->end());
        }

        public function write(string $bytes): bool
        {
            for ($at = 0; $at < \strlen($bytes); $at += \strlen($part)) {
                while ($this->credit === 0 && !$this->aborted) {
                    if (Loop::$current === null) {
                        $this->link->pump();
                        continue;
                    }
                    $this->waiter = Loop::$current->id;
                    Loop::suspend();
                    $this->waiter = 0;
                }
                if ($this->aborted) {
                    return false;
                }
                $part = \substr($bytes, $at, \min($this->credit, 64 << 10));
                $this->credit -= \strlen($part);
                $this->link->send(Rwp::BODY, $this->id, $part);
            }
            return !$this->aborted;
        }

        public function end(array $trailers = []): bool
        {
            if ($this->over || $this->aborted) {
                return false;
            }
            $lines = [];
            foreach ($trailers as $name => $value) {
                $lines[] = [$name, $value];
            }
            $this->link->send($lines ? Rwp::TRAILERS : Rwp::BODY, $this->id, $lines ? Rwp::lines($lines) : '', Rwp::END);
            $this->finish();
            return true;
        }

        public function file(int $status, array $lines, string $path, int $offset, int $length): bool
        {
            if ($this->aborted) {
                return false;
            }
            $this->link->send(Rwp::RESPONSE, $this->id, Rwp::lines($lines), Rwp::FILE_FOLLOWS, $status);
            $named = \pack('P', $offset) . ($length > 0 ? \pack('P', $length) : "\xff\xff\xff\xff\xff\xff\xff\xff");
            $this->link->send(Rwp::SENDFILE, $this->id, $named . $path, Rwp::END);
            $this->finish();
            return true;
        }

        public function fail(string $why): void
        {
            if (!$this->over && $this->socket === null) {
                $this->link->send(Rwp::RESET, $this->id, $why, 0, 2);
                $this->finish();
            } elseif ($this->socket !== null) {
                $this->socket->finish(1011, '');
            }
        }

        public function upgrade(array $lines, string $protocol): ?Socket
        {
            if (!$this->offered || $this->over || $this->aborted) {
                if (!$this->over && !$this->aborted) {
                    $this->head(400, [['Content-Type', 'text/plain']], "this is no WebSocket\n", false);
                }
                return null;
            }
            $this->link->send(Rwp::WS_ACCEPT, $this->id, Rwp::lines($lines) . $protocol);
            $this->socket = new RingroadSocket($this->link, $this->id, $this->credit);
            $this->socket->served = Loop::$current?->served;
            $this->link->sessions++;
            return $this->socket;
        }

        public function close(): bool
        {
            if ($this->over || $this->socket !== null) {
                return $this->socket !== null && $this->socket->finish(1000, '');
            }
            $this->fail('the program closed the connection');
            return true;
        }

        /** Whether an answer with these lines has no end of its own, and is asked for again. */
        private static function isEvents(array $lines): bool
        {
            $events = false;
            foreach ($lines as [$name, $value]) {
                if (\strcasecmp($name, 'content-length') === 0) {
                    return false;
                }
                if (\strcasecmp($name, 'content-type') === 0) {
                    $events = \stripos($value, 'text/event-stream') === 0;
                }
            }
            return $events;
        }

        /** Other code answers from here on: what has no end of its own ends, and the client may come again. */
        public function part(): void
        {
            if ($this->socket !== null) {
                $this->socket->finish(1012, '');
            } elseif ($this->events && $this->end()) {
                // The program sees that its client has left.
                $this->aborted = true;
                $this->wake();
            }
        }

        /** The server does not want the answer any more. */
        public function abort(): void
        {
            $this->aborted = true;
            if (!$this->over) {
                $this->link->send(Rwp::RESET, $this->id, 'aborted', 0, 0);
                $this->finish();
            }
            $this->wake();
        }

        public function wake(): void
        {
            if ($this->waiter !== 0) {
                Loop::resume($this->waiter, true);
            }
        }
    }

    /** A WebSocket the frames of which Ringroad reads and writes. */
    final class RingroadSocket implements Socket
    {
        /** What may wait for a client that reads too slowly. */
        private const MOST = 8 << 20;
        private ?\Closure $take = null;
        private array $waiting = [];
        private int $held = 0;
        private array $early = [];
        private bool $open = true;
        private array $part = [];
        /** The request that it was; what its callbacks print belongs to it. */
        public ?Served $served = null;

        public function __construct(private Link $link, private int $id, private int $credit)
        {
        }

        public function isOpen(): bool
        {
            return $this->open;
        }

        public function send(string $payload, int $opcode, int $flags): bool
        {
            if (!$this->open || $opcode > 2) {
                // Pings are Ringroad's own.
                return false;
            }
            if (!($flags & \SWOOLE_WEBSOCKET_FLAG_FIN)) {
                $this->part['opcode'] ??= $opcode;
                $this->part['data'] = ($this->part['data'] ?? '') . $payload;
                return true;
            }
            if ($this->part) {
                [$payload, $opcode] = [$this->part['data'] . $payload, $this->part['opcode']];
                $this->part = [];
            }
            if ($opcode !== \WEBSOCKET_OPCODE_BINARY && !\preg_match('//u', $payload)) {
                // A text that is no UTF-8 would end the connection.
                Os::warn('a text message must be UTF-8');
                return false;
            }
            if ($this->held + \strlen($payload) > self::MOST) {
                Loop::$errno = \SWOOLE_ERROR_OUTPUT_BUFFER_OVERFLOW;
                return false;
            }
            $this->waiting[] = [$payload, $opcode === \WEBSOCKET_OPCODE_BINARY ? 2 : 1];
            $this->held += \strlen($payload);
            $this->flush();
            return true;
        }

        private function flush(): void
        {
            while ($this->waiting && $this->credit > 0) {
                [$payload, $kind] = \array_shift($this->waiting);
                $this->held -= \strlen($payload);
                $this->credit -= \strlen($payload) + 16;
                $this->link->send(Rwp::WS_DATA, $this->id, $payload, 0, $kind);
            }
        }

        public function credit(int $more): void
        {
            $this->credit += $more;
            $this->flush();
        }

        public function message(string $payload, int $kind): void
        {
            $this->link->send(Rwp::CREDIT, $this->id, \pack('V', \strlen($payload) + 16));
            $frame = new \Swoole\WebSocket\Frame();
            $frame->data = $payload;
            $frame->opcode = $kind === 1 ? \WEBSOCKET_OPCODE_TEXT : \WEBSOCKET_OPCODE_BINARY;
            $this->take === null ? $this->early[] = $frame : $this->give($this->take, $frame);
        }

        /** The client, or the server, has closed it. */
        public function closed(int $code, string $reason): void
        {
            if ($this->open) {
                $this->finish($code >= 1000 && $code !== 1005 && $code !== 1006 ? $code : 1000, '');
            }
            $this->take === null ? $this->early[] = null : $this->give($this->take, null);
        }

        /** Calls the program, for the request that this was. */
        private function give(\Closure $take, ?\Swoole\WebSocket\Frame $frame): void
        {
            Loop::$serving = $this->served;
            try {
                $take($frame);
            } finally {
                Loop::$serving = null;
            }
        }

        public function listen(\Closure $take): void
        {
            $this->take = $take;
            foreach ($this->early as $frame) {
                $take($frame);
            }
            $this->early = [];
        }

        public function leave(int $code, string $reason): bool
        {
            return $this->finish($code, $reason);
        }

        public function finish(int $code, string $reason): bool
        {
            if (!$this->open) {
                return false;
            }
            $this->open = false;
            $this->link->sessions--;
            $this->link->send(Rwp::WS_CLOSE, $this->id, \substr($reason, 0, 123), Rwp::END, $code);
            $this->link->forget($this->id);
            $take = $this->take;
            $take !== null && Loop::later(fn () => $this->give($take, null));
            return true;
        }
    }

    /** A data link: requests of one thread of the server. */
    final class Link
    {
        /** @var array<int, Stream> */
        private array $streams = [];
        private string $in = '';
        /** So much of it is read. */
        private int $at = 0;
        /** How often it was read. */
        private int $reads = 0;
        private string $out = '';
        public int $sessions = 0;
        /** Bytes that are sent though more may follow. */
        private const BATCH = 64 << 10;
        /** So many frames in a row must have taken less than 0.2 ms. */
        private const QUICK = 100;
        private int $quick = 0;
        private bool $gathers = false;
        /** The socket is full: what is left is sent when it can be written. */
        private bool $waits = false;

        public function __construct(private $socket, private Worker $worker)
        {
            \stream_set_blocking($socket, false);
            // Each read takes all that has come, and not 8 KiB of it.
            \stream_set_read_buffer($socket, 0);
            Loop::onReadable($socket, fn () => $this->read());
        }

        /** Requests in progress, without open WebSockets. */
        public function count(): int
        {
            return \count($this->streams) - $this->sessions;
        }

        public function forget(int $id): void
        {
            unset($this->streams[$id]);
        }

        public function send(int $kind, int $stream, string $payload, int $flags = 0, int $aux = 0): void
        {
            $waits = $this->out !== '' && !$this->gathers;
            $this->out .= \pack('VCCvV', \strlen($payload), $kind, $flags, $aux, $stream) . $payload;
            // A part of an answer leaves at once, and so does everything behind a slow request.
            $part = $kind === Rwp::BODY || $kind === Rwp::RESPONSE && !($flags & Rwp::END);
            if (!$waits && (!$this->gathers || $part || \strlen($this->out) > self::BATCH)) {
                $this->flush();
            }
        }

        /** Sends and receives without the loop: for a program that blocks in a callback. */
        public function pump(): void
        {
            $read = [$this->socket];
            $write = $this->out === '' ? [] : [$this->socket];
            $except = null;
            if (@\stream_select($read, $write, $except, 1)) {
                if ($write) {
                    $this->flush();
                }
                if ($read) {
                    $this->read();
                }
            }
        }

        /** Other code answers from here on. */
        public function part(): void
        {
            foreach ($this->streams as $stream) {
                $stream->part();
            }
        }

        /** Sends what is left, also if that takes a moment. */
        public function drain(): void
        {
            foreach ($this->streams as $stream) {
                $stream->socket?->finish(1012, '');
            }
            for ($turn = 0; $this->out !== '' && $turn < 3; $turn++) {
                $this->pump();
            }
        }

        private function flush(): void
        {
            while ($this->out !== '') {
                $sent = @\fwrite($this->socket, $this->out);
                if ($sent === false) {
                    $this->close();
                    return;
                }
                if ($sent === 0) {
                    $this->waits = true;
                    Loop::onWritable($this->socket, fn () => $this->flush());
                    return;
                }
                if ($sent === \strlen($this->out)) {
                    $this->out = '';
                    break;
                }
                $this->out = \substr($this->out, $sent);
            }
            if ($this->waits) {
                $this->waits = false;
                Loop::onWritable($this->socket, null);
            }
        }

        private function close(): void
        {
            Loop::onReadable($this->socket, null);
            Loop::onWritable($this->socket, null);
            $this->out = '';
            foreach ($this->streams as $stream) {
                $stream->aborted = true;
                $stream->over = true;
                $stream->socket?->closed(1006, '');
                $stream->wake();
            }
            $this->streams = [];
            $this->worker->lost($this);
        }

        private function read(): void
        {
            $bytes = @\fread($this->socket, 1 << 18);
            if ($bytes === '' || $bytes === false) {
                if (\feof($this->socket)) {
                    $this->close();
                }
                return;
            }
            if ($this->in !== '') {
                $bytes = \substr($this->in, $this->at) . $bytes;
            }
            // Answers to requests that came together leave together, if all requests before were quick. A program that
            // blocks in a callback reads on from there (`pump`): what is next is in the link, not in this call.
            $this->in = $bytes;
            $reads = ++$this->reads;
            $at = 0;
            $size = \strlen($bytes);
            while ($size - $at >= 12) {
                ['length' => $length, 'kind' => $kind, 'flags' => $flags, 'aux' => $aux, 'stream' => $id]
                    = \unpack('Vlength/Ckind/Cflags/vaux/Vstream', $bytes, $at);
                if ($size - $at - 12 < $length) {
                    break;
                }
                $this->at = $at + 12 + $length;
                $this->gathers = $this->quick >= self::QUICK;
                $began = \hrtime(true);
                if ($kind === Rwp::REQUEST || $kind === Rwp::WS_OPEN) {
                    $this->begin($bytes, $at + 12, $length, $kind, $flags, $id);
                } else {
                    $this->take($kind, $flags, $aux, $id, \substr($bytes, $at + 12, $length));
                }
                $this->quick = \hrtime(true) - $began < 200_000 ? $this->quick + 1 : 0;
                if ($reads !== $this->reads) {
                    // It has read on, and done all there was.
                    $this->gathers = false;
                    $this->out === '' || $this->flush();
                    return;
                }
                $at = $this->at;
            }
            $this->in = $at === $size ? '' : \substr($bytes, $at);
            $this->at = 0;
            $this->gathers = false;
            $this->out === '' || $this->flush();
        }

        /** A request: its head and the beginning of its body are `$length` bytes at a place. */
        private function begin(string $bytes, int $at, int $length, int $kind, int $flags, int $id): void
        {
            $head = \unpack('V', $bytes, $at)[1];
            $stream = new Stream($this, $id, $this->worker->window);
            $stream->head = \substr($bytes, $at + 4, $head);
            $stream->body = $length > 4 + $head ? \substr($bytes, $at + 4 + $head, $length - 4 - $head) : '';
            $stream->offered = $kind === Rwp::WS_OPEN;
            $this->streams[$id] = $stream;
            if ($flags & Rwp::END || $stream->offered) {
                $this->worker->request($stream);
            } elseif ($stream->body !== '') {
                $this->send(Rwp::CREDIT, $id, \pack('V', \strlen($stream->body)));
            }
        }

        private function take(int $kind, int $flags, int $aux, int $id, string $payload): void
        {
            $stream = $this->streams[$id] ?? null;
            if ($stream === null) {
                return;
            }
            switch ($kind) {
                case Rwp::BODY:
                    $stream->body .= $payload;
                    if ($flags & Rwp::END) {
                        $this->worker->request($stream);
                    } elseif ($payload !== '') {
                        $this->send(Rwp::CREDIT, $id, \pack('V', \strlen($payload)));
                    }
                    break;
                case Rwp::CREDIT:
                    $credit = \unpack('V', $payload)[1];
                    if ($stream->socket !== null) {
                        $stream->socket->credit($credit);
                    } else {
                        $stream->credit += $credit;
                        $stream->wake();
                    }
                    break;
                case Rwp::WS_DATA:
                    $stream->socket?->message($payload, $aux);
                    break;
                case Rwp::WS_CLOSE:
                    $stream->socket?->closed($aux, $payload);
                    break;
                case Rwp::ABORT:
                    $stream->abort();
                    break;
            }
        }
    }

    /** The control link of a process with Ringroad. */
    final class Control
    {
        private \Socket $socket;
        private string $in = '';
        /** @var list<\Socket|resource> descriptors that have come */
        public array $came = [];

        public function __construct(public $stream)
        {
            if (!\extension_loaded('sockets')) {
                throw new \Swoole\Error('Ringroad needs the extension sockets, which receives connections');
            }
            $this->socket = $stream instanceof \Socket ? $stream : \socket_import_stream($stream);
            $this->stream = $stream instanceof \Socket ? \socket_export_stream($stream) : $stream;
            $this->send(Rwp::HELLO, \json_encode(['version' => 1, 'pid' => \getmypid(), 'language' => 'php', 'codec' => 'lines']));
        }

        /** Sends a frame whole, also if that takes a moment: the server reads at any time. */
        public function send(int $kind, string $payload = '', int $stream = 0, int $aux = 0): bool
        {
            $bytes = Rwp::frame($kind, $stream, $payload, 0, $aux);
            while ($bytes !== '') {
                $sent = @\socket_write($this->socket, $bytes);
                if ($sent !== false) {
                    $bytes = (string) \substr($bytes, $sent);
                    continue;
                }
                if (!\in_array(\socket_last_error($this->socket), [4, 11], true)) {
                    return false;
                }
                $write = [$this->stream];
                $read = $except = null;
                @\stream_select($read, $write, $except, 1);
            }
            return true;
        }

        /** Frames that have come; `null`: the server is gone. */
        public function receive(bool $wait = false): ?array
        {
            $message = ['name' => [], 'buffer_size' => 65536, 'controllen' => \socket_cmsg_space(SOL_SOCKET, SCM_RIGHTS, 4)];
            $count = @\socket_recvmsg($this->socket, $message, $wait ? 0 : MSG_DONTWAIT);
            if ($count === false) {
                return [];
            }
            if ($count === 0) {
                return null;
            }
            foreach ($message['control'] ?? [] as $one) {
                foreach ($one['type'] === SCM_RIGHTS ? $one['data'] : [] as $descriptor) {
                    $this->came[] = $descriptor;
                }
            }
            $this->in .= \implode('', $message['iov'] ?? []);
            return Rwp::cut($this->in);
        }

        /** What Ringroad says to HELLO. */
        public function welcome(): array
        {
            while (true) {
                $frames = $this->receive(true);
                if ($frames === null) {
                    exit(1);
                }
                foreach ($frames as $frame) {
                    if ($frame['kind'] === Rwp::WELCOME) {
                        return \json_decode($frame['payload'], true);
                    }
                }
            }
        }
    }

    /** This process as a worker of Ringroad. */
    final class Worker
    {
        /** To a program that wants to speak TLS. */
        public const PLAIN = 'the program asks for TLS, which is for Ringroad to speak: tls-cert and tls-key of its command line, [tls] of '
            . 'its configuration';
        public int $window = 1 << 18;
        public int $served = 0;
        /** @var array<int, Link> */
        private array $links = [];
        private bool $stopping = false;
        /** What the server is set to. Ringroad has undone a coding of the body already, if it is to be undone. */
        public array $settings = ['http_compression' => false];
        /** Gives the number of a new connection. */
        public ?\Closure $number = null;
        /** Called when a stop was asked for. */
        public ?\Closure $asked = null;
        /** `fn (int $number, int $from, string $payload): void` gets tasks. */
        public ?\Closure $task = null;
        /** `fn (int $number, int $outcome, string $payload): void` gets what has become of tasks. */
        public ?\Closure $result = null;
        /** `fn (string $payload): void` gets what another worker says. */
        public ?\Closure $message = null;
        /** Tasks in progress. */
        public int $tasking = 0;

        /** `fn (Request, Response, Stream): void` gets requests. */
        public function __construct(
            private Control $control, private array $welcome, private \Closure $handler, private bool $coroutine,
            private int $concurrency, private bool $sockets,
        ) {
            $this->window = $welcome['window'] ?? $this->window;
        }

        public static function isOne(): bool
        {
            return \getenv('RINGROAD_FD') !== false || \getenv('RINGROAD_ASK') !== false;
        }

        /** Tells where the program wants to listen, if that is all that is asked of it. */
        public static function tell(string $host, int $port, int $workers, array $more = []): void
        {
            $fd = \getenv('RINGROAD_ASK');
            if ($fd !== false) {
                $told = ['host' => $host, 'port' => $port, 'workers' => $workers] + $more;
                \file_put_contents("php://fd/$fd", \json_encode($told));
                // Without what the program has registered for its end.
                \function_exists('posix_kill') && \posix_kill(\getmypid(), 9);
                exit(0);
            }
        }

        /** The control link that Ringroad has given to this process. */
        public static function control(): Control
        {
            return new Control(\fopen('php://fd/' . (int) \getenv('RINGROAD_FD'), 'r+'));
        }

        public function ready(): void
        {
            // Of one request at a time Ringroad knows by itself which one a line belongs to.
            $marks = $this->concurrency > 1 && isset($this->welcome['mark']);
            $marks && Printed::begin($this->welcome['mark']);
            $this->control->send(Rwp::READY, \json_encode(['codec' => 'lines', 'concurrency' => $this->concurrency,
                'websocket' => $this->sockets, 'marks' => $marks]));
            Loop::onReadable($this->control->stream, fn () => $this->read());
        }

        public function count(): int
        {
            return \array_sum(\array_map(static fn (Link $link) => $link->count(), $this->links));
        }

        public function lost(Link $link): void
        {
            $this->links = \array_filter($this->links, static fn (Link $one) => $one !== $link);
        }

        public function stop(): void
        {
            if (!$this->stopping) {
                $this->stopping = true;
                $this->asked !== null && ($this->asked)();
                $this->look();
            }
        }

        /** Ends when a stop was asked for and nothing is in progress. */
        private function look(): void
        {
            if ($this->count() + $this->tasking > 0) {
                Loop::after(0.01, fn () => $this->look());
                return;
            }
            foreach ($this->links as $link) {
                $link->drain();
            }
            // What ends of WebSockets have called runs first.
            Loop::later(Loop::end(...));
        }

        private function read(bool $waits = false): void
        {
            $frames = $this->control->receive();
            if ($frames === null) {
                // The server is gone.
                Loop::end();
                return;
            }
            foreach ($this->control->came as $socket) {
                $this->links[] = new Link($socket instanceof \Socket ? \socket_export_stream($socket) : $socket, $this);
            }
            $this->control->came = [];
            foreach ($frames as $frame) {
                // While the process waits for a task, everything else has to wait.
                $waits && $frame['kind'] !== Rwp::TASK_RESULT ? Loop::later(fn () => $this->take($frame)) : $this->take($frame);
            }
        }

        private function take(array $frame): void
        {
            match ($frame['kind']) {
                Rwp::PING => $this->control->send(Rwp::PONG, \pack('VV', $this->count(), 0)),
                Rwp::STOP => $this->stop(),
                Rwp::PART => \array_map(static fn (Link $link) => $link->part(), $this->links),
                Rwp::TASK => $this->task === null ? null : ($this->task)($frame['stream'], $frame['aux'], $frame['payload']),
                Rwp::TASK_RESULT => $this->result === null ? null
                    : ($this->result)($frame['stream'], $frame['aux'], $frame['payload']),
                Rwp::MESSAGE => $this->message === null ? null : ($this->message)($frame['payload']),
                default => null,
            };
        }

        /** Waits, also the whole process, for what the server says of tasks. */
        public function await(float $seconds): void
        {
            $read = [$this->control->stream];
            $write = $except = null;
            if (@\stream_select($read, $write, $except, (int) $seconds, (int) (($seconds - (int) $seconds) * 1e6))) {
                $this->read(true);
            }
        }

        /** Submits a task under a number, to a task worker or to any. */
        public function submit(int $number, int $slot, string $payload): bool
        {
            return $this->control->send(Rwp::TASK_SUBMIT, $payload, $number, $slot);
        }

        /** Tells what has become of a task of this task worker. */
        public function done(int $number, int $outcome, string $payload): void
        {
            $this->control->send(Rwp::TASK_DONE, $payload, $number, $outcome);
        }

        /** Says something to the worker of a slot. */
        public function say(int $slot, string $payload): bool
        {
            return $this->control->send(Rwp::MESSAGE, $payload, 0, $slot);
        }

        /** Asks to be replaced. */
        public function drain(): void
        {
            $this->control->send(Rwp::DRAIN);
        }

        public function request(Stream $stream): void
        {
            $strings = \explode("\0", $stream->head);
            $stream->head = '';
            [$method, $path, $query, $version, , $authority, $client, $clientPort, $server, $port, , , $id, $protocols] = $strings;
            $headers = $repeated = [];
            for ($at = 14, $count = \count($strings); $at < $count; $at += 2) {
                $name = $strings[$at];
                if (isset($headers[$name])) {
                    Message::repeat($headers, $repeated, $name, $strings[$at + 1]);
                } else {
                    $headers[$name] = $strings[$at + 1];
                }
            }
            $headers['host'] ??= $authority;
            if ($protocols !== '' && $stream->offered) {
                $headers += ['sec-websocket-protocol' => $protocols];
            }
            $fd = $this->number !== null ? ($this->number)() : $this->served + 1;
            $request = Message::request($fd, $method, $path, $query, 'HTTP/' . $version, $headers,
                $client === '' ? '127.0.0.1' : $client, (int) $clientPort, (int) $port, $stream->body, $this->settings, $server,
                $repeated);
            $stream->body = '';
            $this->served++;
            Dispatcher::run($this->handler, $request, new Response($stream, $fd), $stream, $this->coroutine, $id);
        }
    }
}
