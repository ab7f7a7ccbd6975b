<?php
/*
 * Sockets that only their coroutine waits for, and the clients on them.
 */

namespace Swoole\Coroutine\Socket {
    class Exception extends \Swoole\Exception
    {
    }
}

namespace Swoole\Coroutine {
    use Ringroad\Loop;
    use Ringroad\Os;

    /** A socket of PHP's extension sockets. */
    class Socket
    {
        use \Ringroad\NotSerialized;

        public int $fd = -1;
        public int $domain = 0;
        public int $type = 0;
        public int $protocol = 0;
        public int $errCode = 0;
        public string $errMsg = '';
        private ?\Socket $socket = null;
        private $stream = null;
        private string $in = '';
        private bool $closed = false;
        private array $settings = [];
        /** @var array<int, int> coroutines that wait, by the event */
        private array $bound = [];

        public function __construct(int $domain, int $type, int $protocol = IPPROTO_IP)
        {
            $this->domain = $domain;
            $this->type = $type;
            $this->protocol = $protocol;
            $socket = @\socket_create($domain, $type, $protocol);
            if ($socket === false) {
                $code = \socket_last_error();
                throw new Socket\Exception('new Socket() failed. Error: ' . \socket_strerror($code) . " [$code]", $code);
            }
            $this->take($socket, \socket_export_stream($socket));
        }

        private function take(\Socket $socket, $stream): void
        {
            $this->socket = $socket;
            $this->stream = $stream;
            \socket_set_nonblock($socket);
            \stream_set_blocking($stream, false);
            $this->fd = Os::number($stream) ?? 0;
        }

        private static function of(\Socket $socket, $stream, int $domain, int $type): static
        {
            $made = (new \ReflectionClass(static::class))->newInstanceWithoutConstructor();
            $made->domain = $domain;
            $made->type = $type;
            $made->take($socket, $stream);
            return $made;
        }

        public static function import($stream): static|false
        {
            $socket = $stream instanceof \Socket ? $stream : @\socket_import_stream($stream);
            if (!$socket) {
                return false;
            }
            @\socket_getsockname($socket, $name, $port);
            $domain = $port === null ? AF_UNIX : (\str_contains((string) $name, ':') ? AF_INET6 : AF_INET);
            $stream = $stream instanceof \Socket ? \socket_export_stream($socket) : $stream;
            return self::of($socket, $stream, $domain, \socket_get_option($socket, SOL_SOCKET, SO_TYPE) ?: SOCK_STREAM);
        }

        public function stream()
        {
            return $this->stream;
        }

        private function fail(int $code): bool
        {
            $this->errCode = Loop::$errno = $code;
            $this->errMsg = \swoole_strerror($code, $code > 500 ? 9 : 0);
            return false;
        }

        private function failed(): bool
        {
            $code = \socket_last_error($this->socket);
            \socket_clear_error($this->socket);
            return $this->fail($code);
        }

        private function open(): bool
        {
            if ($this->stream === null && !$this->closed) {
                throw new \Swoole\Error('must call constructor first');
            }
            $this->errCode = 0;
            $this->errMsg = '';
            return !$this->closed || $this->fail(9);
        }

        /** Seconds that a wait may take: what the call says, or what the socket or the program was set to. */
        private function seconds(float $given, string $name): float
        {
            return $given !== 0.0 ? $given : ($this->settings[$name] ?? \Swoole\Coroutine::seconds("socket_{$name}_timeout",
                $name === 'connect' ? 2.0 : -1));
        }

        private function ready(bool $read, float $seconds): bool
        {
            $task = Loop::task();
            $event = $read ? \SWOOLE_EVENT_READ : \SWOOLE_EVENT_WRITE;
            if (isset($this->bound[$event])) {
                throw new \Swoole\Error("Socket#$this->fd has already been bound to another coroutine#"
                    . "{$this->bound[$event]}, " . ($read ? 'reading' : 'writing') . ' of the same socket in coroutine#'
                    . "$task->id at the same time is not allowed", \SWOOLE_ERROR_CO_HAS_BEEN_BOUND);
            }
            $this->bound[$event] = $task->id;
            $came = Loop::stream($this->stream, $read, $seconds);
            unset($this->bound[$event]);
            if ($this->closed) {
                return $this->fail(125);
            }
            return $came || $this->fail($task->canceled ? 125 : 110);
        }

        public function bind(string $address, int $port = 0): bool
        {
            if (!$this->open()) {
                return false;
            }
            \socket_set_option($this->socket, SOL_SOCKET, SO_REUSEADDR, 1);
            return @\socket_bind($this->socket, $address, $port) || $this->failed();
        }

        public function listen(int $backlog = 512): bool
        {
            return $this->open() && (@\socket_listen($this->socket, $backlog) || $this->failed());
        }

        public function accept(float $timeout = 0): static|false
        {
            while ($this->open()) {
                \socket_clear_error();
                $socket = @\socket_accept($this->socket);
                if ($socket !== false) {
                    return self::of($socket, \socket_export_stream($socket), $this->domain, $this->type);
                }
                // PHP notes the error of an accept for no socket.
                $code = \socket_last_error($this->socket) ?: \socket_last_error();
                if ($code !== 11) {
                    \socket_clear_error($this->socket);
                    return $this->fail($code);
                }
                if (!$this->ready(true, $this->seconds($timeout, 'accept'))) {
                    return false;
                }
            }
            return false;
        }

        public function connect(string $host, int $port = 0, float $timeout = 0): bool
        {
            Loop::task();
            if (!$this->open()) {
                return false;
            }
            if ($this->domain !== AF_UNIX) {
                if ($port <= 0 || $port > 65535) {
                    $this->fail(22);
                    Os::warn('Invalid port argument[' . $port . ']');
                    return false;
                }
                $host = System::addresses($host, $this->domain)[0] ?? null;
                if ($host === null) {
                    return $this->fail(\SWOOLE_ERROR_DNSLOOKUP_RESOLVE_FAILED);
                }
            }
            if (@\socket_connect($this->socket, $host, $port)) {
                return true;
            }
            if (!\in_array(\socket_last_error($this->socket), [115, 11], true)) {
                return $this->failed();
            }
            \socket_clear_error($this->socket);
            if (!$this->ready(false, $this->seconds($timeout, 'connect'))) {
                return false;
            }
            $code = \socket_get_option($this->socket, SOL_SOCKET, SO_ERROR);
            return $code === 0 || $this->fail($code);
        }

        public function checkLiveness(): bool
        {
            if (!$this->open()) {
                return false;
            }
            $got = @\socket_recv($this->socket, $bytes, 1, MSG_PEEK | MSG_DONTWAIT);
            if ($got === 0) {
                return $this->fail(104);
            }
            return $got > 0 || \socket_last_error($this->socket) === 11 || $this->failed();
        }

        public function getBoundCid(int $event): int
        {
            return $this->bound[$event] ?? 0;
        }

        public function peek(int $length = 65536): string|false
        {
            $got = $this->open() ? @\socket_recv($this->socket, $bytes, $length, MSG_PEEK | MSG_DONTWAIT) : 0;
            return $this->closed || $got === false ? $this->closed ? false : $this->failed() : (string) $bytes;
        }

        public function recv(int $length = 65536, float $timeout = 0): string|false
        {
            Loop::task();
            $seconds = $this->seconds($timeout, 'read');
            while ($this->open()) {
                $got = @\socket_recv($this->socket, $bytes, \max(1, $length), MSG_DONTWAIT);
                if ($got !== false) {
                    return (string) $bytes;
                }
                if (\socket_last_error($this->socket) !== 11) {
                    return $this->failed();
                }
                if (!$this->ready(true, $seconds)) {
                    return false;
                }
            }
            return false;
        }

        public function send(string $data, float $timeout = 0): int|false
        {
            Loop::task();
            while ($this->open()) {
                $sent = @\socket_send($this->socket, $data, \strlen($data), MSG_DONTWAIT | 0x4000);
                if ($sent !== false) {
                    return $sent;
                }
                if (\socket_last_error($this->socket) !== 11) {
                    return $this->failed();
                }
                if (!$this->ready(false, $this->seconds($timeout, 'write'))) {
                    return false;
                }
            }
            return false;
        }

        public function sendAll(string $data, float $timeout = 0): int|false
        {
            for ($at = 0; $at < \strlen($data); $at += $sent) {
                $sent = $this->send(\substr($data, $at, 1 << 18), $timeout);
                if ($sent === false) {
                    return $at > 0 ? $at : false;
                }
            }
            return $at;
        }

        public function recvAll(int $length = 65536, float $timeout = 0): string|false
        {
            $seconds = $this->seconds($timeout, 'read');
            $until = $seconds > 0 ? \microtime(true) + $seconds : 0.0;
            $data = '';
            while (\strlen($data) < $length) {
                $part = $this->recv($length - \strlen($data), $until > 0 ? \max(0.001, $until - \microtime(true)) : -1);
                if ($part === false && $data === '') {
                    return false;
                }
                if ($part === false || $part === '') {
                    break;
                }
                $data .= $part;
            }
            return $data;
        }

        /** Reads until the buffer has something that `$cut` takes; `false` on an error, '' at the end. */
        private function buffered(callable $cut, float $timeout): string|false
        {
            $seconds = $this->seconds($timeout, 'read');
            $until = $seconds > 0 ? \microtime(true) + $seconds : 0.0;
            while (($length = $cut($this->in)) === null) {
                $part = $this->recv(65536, $until > 0 ? \max(0.001, $until - \microtime(true)) : -1);
                if ($part === false || $part === '') {
                    return $part;
                }
                $this->in .= $part;
            }
            if ($length < 0) {
                return $this->fail(\SWOOLE_ERROR_PACKAGE_LENGTH_TOO_LARGE);
            }
            $data = \substr($this->in, 0, $length);
            $this->in = (string) \substr($this->in, $length);
            return $data;
        }

        public function recvLine(int $length = 65536, float $timeout = 0): string|false
        {
            return $this->buffered(static fn (string $in): ?int => ($at = \strpos($in, "\n")) !== false && $at < $length
                ? $at + 1 : (\strlen($in) >= $length ? $length : null), $timeout);
        }

        public function recvWithBuffer(int $length = 65536, float $timeout = 0): string|false
        {
            return $this->buffered(static fn (string $in): ?int => $in === '' ? null : \min($length, \strlen($in)), $timeout);
        }

        public function recvPacket(float $timeout = 0): string|false
        {
            return $this->buffered(fn (string $in): ?int => \Ringroad\Packet::length($in, $this->settings), $timeout);
        }

        public function setProtocol(array $settings): bool
        {
            $this->settings = $settings + $this->settings;
            return true;
        }

        public function readVector(array $io_vector, float $timeout = 0): array|false
        {
            $data = $this->recv(\array_sum($io_vector), $timeout);
            return $data === false ? false : $this->parts($data, $io_vector);
        }

        public function readVectorAll(array $io_vector, float $timeout = 0): array|false
        {
            $data = $this->recvAll(\array_sum($io_vector), $timeout);
            return $data === false ? false : $this->parts($data, $io_vector);
        }

        private function parts(string $data, array $lengths): array
        {
            $parts = [];
            foreach ($lengths as $length) {
                if ($data === '') {
                    break;
                }
                $parts[] = \substr($data, 0, $length);
                $data = (string) \substr($data, $length);
            }
            return $parts;
        }

        public function writeVector(array $io_vector, float $timeout = 0): int|false
        {
            return $this->send(\implode('', $io_vector), $timeout);
        }

        public function writeVectorAll(array $io_vector, float $timeout = 0): int|false
        {
            return $this->sendAll(\implode('', $io_vector), $timeout);
        }

        public function sendFile(string $file, int $offset = 0, int $length = 0): bool
        {
            $data = @\file_get_contents($file, false, null, $offset, $length > 0 ? $length : null);
            return $data === false ? $this->fail(2) : $this->sendAll($data) === \strlen($data);
        }

        public function recvfrom(mixed &$peername, float $timeout = 0): string|false
        {
            Loop::task();
            while ($this->open()) {
                $got = @\socket_recvfrom($this->socket, $bytes, 65536, MSG_DONTWAIT, $address, $port);
                if ($got !== false) {
                    $peername = $this->domain === AF_UNIX ? ['address' => $address] : ['address' => $address, 'port' => $port];
                    return $bytes;
                }
                if (\socket_last_error($this->socket) !== 11) {
                    return $this->failed();
                }
                if (!$this->ready(true, $this->seconds($timeout, 'read'))) {
                    return false;
                }
            }
            return false;
        }

        public function sendto(string $addr, int $port, string $data): int|false
        {
            if (!$this->open()) {
                return false;
            }
            if ($this->domain !== AF_UNIX) {
                $addr = System::addresses($addr, $this->domain)[0] ?? '';
            }
            $sent = @\socket_sendto($this->socket, $data, \strlen($data), 0, $addr, $port);
            return $sent === false ? $this->failed() : $sent;
        }

        public function getOption(int $level, int $opt_name): mixed
        {
            $value = @\socket_get_option($this->socket, $level, $opt_name);
            return $value === false ? $this->failed() : $value;
        }

        public function setOption(int $level, int $opt_name, mixed $opt_value): bool
        {
            if ($level === SOL_SOCKET && ($opt_name === SO_RCVTIMEO || $opt_name === SO_SNDTIMEO)) {
                $this->settings[$opt_name === SO_RCVTIMEO ? 'read' : 'write'] = $opt_value['sec'] + $opt_value['usec'] / 1e6;
                return true;
            }
            return @\socket_set_option($this->socket, $level, $opt_name, $opt_value) || $this->failed();
        }

        /** TLS needs a stream: `Swoole\Coroutine\Http\Client` has it. */
        public function sslHandshake(): bool
        {
            return $this->fail(\SWOOLE_ERROR_OPERATION_NOT_SUPPORT);
        }

        public function shutdown(int $how = 2): bool
        {
            return $this->open() && (@\socket_shutdown($this->socket, $how) || $this->failed());
        }

        public function close(): bool
        {
            if (!$this->open()) {
                return false;
            }
            $this->closed = true;
            $waiting = $this->bound;
            Loop::onReadable($this->stream, null);
            Loop::onWritable($this->stream, null);
            \is_resource($this->stream) ? \fclose($this->stream) : \socket_close($this->socket);
            $this->fd = -1;
            foreach ($waiting as $cid) {
                Loop::resume($cid, false);
            }
            return true;
        }

        public function cancel(int $event = \SWOOLE_EVENT_READ): bool
        {
            return isset($this->bound[$event]) && Loop::cancel($this->bound[$event]);
        }

        private function name(callable $ask): array|false
        {
            if (!$this->open()) {
                return false;
            }
            if (!@$ask($this->socket, $address, $port)) {
                return $this->failed();
            }
            return $this->domain === AF_UNIX ? ['address' => $address] : ['address' => $address, 'port' => $port];
        }

        public function getsockname(): array|false
        {
            return $this->name(\socket_getsockname(...));
        }

        public function getpeername(): array|false
        {
            return $this->name(\socket_getpeername(...));
        }

        public function isClosed(): bool
        {
            return $this->closed;
        }
    }

    /** A client of a server that speaks over TCP, UDP or Unix sockets. */
    class Client
    {
        use \Ringroad\NotSerialized;

        public const MSG_OOB = 1, MSG_PEEK = 2, MSG_DONTWAIT = 64, MSG_WAITALL = 256;
        public int $errCode = 0;
        public string $errMsg = '';
        public int $fd = -1;
        public int $type = 1;
        public array $setting = [];
        public bool $connected = false;
        private ?\Ringroad\Wire $wire = null;

        public function __construct(int $type)
        {
            $this->type = $type;
        }

        public function set(array $settings): bool
        {
            $this->setting = $settings + $this->setting;
            return true;
        }

        private function fail(int $code, string $why = ''): bool
        {
            $this->errCode = Loop::$errno = $code;
            $this->errMsg = $why ?: \swoole_strerror($code, $code > 500 ? 9 : 0);
            return false;
        }

        public function connect(string $host, int $port = 0, float $timeout = 0, int $sock_flag = 0): bool
        {
            Loop::task();
            if ($this->connected) {
                return $this->fail(106);
            }
            $seconds = $timeout ?: (float) ($this->setting['connect_timeout'] ?? $this->setting['timeout']
                ?? \Swoole\Coroutine::seconds('socket_connect_timeout', 2));
            $kind = $this->type & 0xff;
            $scheme = match ($kind) {
                2, 4 => 'udp', 5 => 'unix', 6 => 'udg', default => 'tcp',
            };
            $wire = new \Ringroad\Wire($this->setting);
            $code = $wire->connect($scheme, $host, $port, $seconds, $kind === 3 || $kind === 4 ? AF_INET6 : AF_INET);
            if ($code !== 0) {
                return $this->fail($code);
            }
            $this->wire = $wire;
            $this->connected = true;
            $this->fd = $wire->number();
            if ($this->type & \SWOOLE_SSL && !$this->enableSSL()) {
                $this->close();
                return false;
            }
            return true;
        }

        public function enableSSL(): bool
        {
            $code = $this->wire === null ? \SWOOLE_ERROR_CLIENT_NO_CONNECTION : $this->wire->tls($this->wire->host, 10);
            return $code === 0 || $this->fail($code);
        }

        private function there(): bool
        {
            return $this->wire !== null || $this->fail(\SWOOLE_ERROR_CLIENT_NO_CONNECTION);
        }

        public function send(string $data, float $timeout = 0): int|false
        {
            if ($data === '' || !$this->there()) {
                $data === '' && Os::warn('data to send is empty');
                return false;
            }
            $code = $this->wire->send($data, $timeout ?: (float) ($this->setting['write_timeout'] ?? $this->setting['timeout']
                ?? \Swoole\Coroutine::seconds('socket_write_timeout', -1)));
            return $code === 0 ? \strlen($data) : $this->fail($code);
        }

        public function recv(float $timeout = 0): string|false
        {
            if (!$this->there()) {
                return false;
            }
            $seconds = $timeout ?: (float) ($this->setting['read_timeout'] ?? $this->setting['timeout']
                ?? \Swoole\Coroutine::seconds('socket_read_timeout', -1));
            $cut = fn (string $in): ?int => \Ringroad\Packet::length($in, $this->setting);
            $data = $this->wire->take($cut, $seconds);
            if (\is_int($data)) {
                return $data === 0 ? '' : $this->fail($data);
            }
            return $data;
        }

        public function peek(int $length = 65535): string|false
        {
            return $this->there() ? $this->wire->peek($length) : false;
        }

        public function sendfile(string $filename, int $offset = 0, int $length = 0): bool
        {
            $data = @\file_get_contents($filename, false, null, $offset, $length > 0 ? $length : null);
            return $data === false ? $this->fail(2) : $this->send($data) !== false;
        }

        public function sendto(string $address, int $port, string $data): bool
        {
            $wire = $this->wire ?? new \Ringroad\Wire($this->setting);
            if ($this->wire === null && ($code = $wire->connect('udp', $address, $port, 2, AF_INET)) !== 0) {
                return $this->fail($code);
            }
            $this->wire = $wire;
            return $wire->send($data, -1) === 0;
        }

        public function recvfrom(int $length, mixed &$address, mixed &$port = 0): string|false
        {
            if (!$this->there()) {
                return false;
            }
            $data = $this->wire->take(static fn (string $in): ?int => $in === '' ? null : \strlen($in),
                (float) ($this->setting['timeout'] ?? -1));
            ['host' => $address, 'port' => $port] = $this->getpeername() ?: ['host' => '', 'port' => 0];
            return \is_int($data) ? $this->fail($data) : $data;
        }

        public function getPeerCert(): string|false
        {
            return $this->wire?->certificate() ?? false;
        }

        public function verifyPeerCert(bool $allow_self_signed = false): bool
        {
            return $this->getPeerCert() !== false;
        }

        public function exportSocket(): Socket|false
        {
            return $this->there() ? Socket::import($this->wire->stream) : false;
        }

        public function stream()
        {
            return $this->wire?->stream;
        }

        public function isConnected(): bool
        {
            return $this->connected;
        }

        public function getsockname(): array|false
        {
            return $this->there() ? $this->wire->name(false) : false;
        }

        public function getpeername(): array|false
        {
            return $this->there() ? $this->wire->name(true) : false;
        }

        public function close(): bool
        {
            if (!$this->there()) {
                return false;
            }
            $this->wire->close();
            $this->wire = null;
            $this->connected = false;
            $this->fd = -1;
            return true;
        }

        public function __destruct()
        {
            $this->wire?->close();
        }
    }
}

namespace Ringroad {
    /** Where one message of a stream ends: by its length, or by what is behind it. */
    final class Packet
    {
        private const SIZES = ['c' => 1, 'C' => 1, 's' => 2, 'S' => 2, 'n' => 2, 'v' => 2, 'l' => 4, 'L' => 4, 'N' => 4,
            'V' => 4, 'q' => 8, 'Q' => 8, 'J' => 8, 'P' => 8];

        /** The length of the message that a buffer begins with; `null`: not whole; -1: it is too large. */
        public static function length(string $in, array $settings): ?int
        {
            $most = (int) ($settings['package_max_length'] ?? 2 << 20);
            if (!empty($settings['open_eof_check']) || !empty($settings['open_eof_split'])) {
                $eof = (string) ($settings['package_eof'] ?? "\r\n");
                $at = \strpos($in, $eof);
                return $at === false ? (\strlen($in) > $most ? -1 : null) : $at + \strlen($eof);
            }
            if (empty($settings['open_length_check'])) {
                return $in === '' ? null : \strlen($in);
            }
            if (isset($settings['package_length_func'])) {
                $length = $in === '' ? 0 : ($settings['package_length_func'])($in);
            } else {
                $type = (string) ($settings['package_length_type'] ?? 'N');
                $at = (int) ($settings['package_length_offset'] ?? 0);
                if (\strlen($in) < $at + (self::SIZES[$type] ?? 4)) {
                    return null;
                }
                $length = \unpack($type, $in, $at)[1] + (int) ($settings['package_body_offset'] ?? 0);
            }
            if ($length < 0 || $length > $most) {
                return -1;
            }
            return $length > 0 && \strlen($in) >= $length ? $length : null;
        }
    }

    /** A connection of a client, on a stream of PHP, so that it can speak TLS. */
    final class Wire
    {
        public $stream = null;
        public string $in = '';
        public string $host = '';
        private bool $datagrams = false;
        /** The stream of which the number is known, and the number. */
        private array $numbered = [null, 0];

        public function __construct(private array $settings)
        {
        }

        public function number(): int
        {
            // To find it costs a look at every descriptor of the process.
            if ($this->numbered[0] !== $this->stream) {
                $this->numbered = [$this->stream, Os::number($this->stream) ?? 0];
            }
            return $this->numbered[1];
        }

        /** Whether the other end has closed a connection that nothing is waited for from. */
        public function isOver(): bool
        {
            if (!\is_resource($this->stream)) {
                return true;
            }
            $read = [$this->stream];
            $write = $except = null;
            if (!@\stream_select($read, $write, $except, 0)) {
                return false;
            }
            $part = @\fread($this->stream, 65536);
            $this->in .= (string) $part;
            return ($part === '' || $part === false) && \feof($this->stream);
        }

        /** Connects; the error number. */
        public function connect(string $scheme, string $host, int $port, float $seconds, int $family): int
        {
            $this->host = $host;
            $this->datagrams = $scheme === 'udp' || $scheme === 'udg';
            if ($scheme === 'unix' || $scheme === 'udg') {
                $at = "$scheme://" . \preg_replace('#^unix:/*#', '/', $host);
            } else {
                $family = \str_contains($host, ':') ? AF_INET6 : $family;
                $address = \Swoole\Coroutine\System::addresses($host, $family)[0] ?? null;
                if ($address === null) {
                    return \SWOOLE_ERROR_DNSLOOKUP_RESOLVE_FAILED;
                }
                $at = $scheme . '://' . (\str_contains($address, ':') ? "[$address]" : $address) . ":$port";
            }
            $options = [];
            if (isset($this->settings['bind_address']) || isset($this->settings['bind_port'])) {
                $options['bindto'] = ($this->settings['bind_address'] ?? '0') . ':' . ($this->settings['bind_port'] ?? 0);
            }
            $context = \stream_context_create(['socket' => $options + ['tcp_nodelay' => true]]);
            $flags = STREAM_CLIENT_CONNECT | ($this->datagrams || $scheme === 'unix' ? 0 : STREAM_CLIENT_ASYNC_CONNECT);
            $stream = @\stream_socket_client($at, $code, $why, 2.0, $flags, $context);
            if ($stream === false) {
                return $code ?: 111;
            }
            \stream_set_blocking($stream, false);
            \stream_set_read_buffer($stream, 0);
            $this->stream = $stream;
            if ($flags & STREAM_CLIENT_ASYNC_CONNECT) {
                $task = Loop::task();
                if (!Loop::stream($stream, false, $seconds)) {
                    $this->close();
                    return $task->canceled ? 125 : 110;
                }
                $socket = \extension_loaded('sockets') ? \socket_import_stream($stream) : null;
                $code = $socket ? \socket_get_option($socket, SOL_SOCKET, SO_ERROR) : 0;
                if ($code !== 0 || \stream_socket_get_name($stream, true) === false) {
                    $this->close();
                    return $code ?: 111;
                }
            }
            return 0;
        }

        /** Speaks TLS from now on; the error number. */
        public function tls(string $name, float $seconds): int
        {
            $verify = (bool) ($this->settings['ssl_verify_peer'] ?? false);
            $options = ['peer_name' => $this->settings['ssl_host_name'] ?? $name, 'SNI_enabled' => true,
                // As Swoole: a certificate is verified when that is asked for.
                'verify_peer' => $verify, 'verify_peer_name' => $verify && !empty($this->settings['ssl_host_name']),
                'allow_self_signed' => $this->settings['ssl_allow_self_signed'] ?? !$verify, 'capture_peer_cert' => true];
            foreach (['ssl_cafile' => 'cafile', 'ssl_capath' => 'capath', 'ssl_cert_file' => 'local_cert',
                'ssl_key_file' => 'local_pk', 'ssl_passphrase' => 'passphrase', 'ssl_ciphers' => 'ciphers'] as $key => $option) {
                empty($this->settings[$key]) || $options[$option] = $this->settings[$key];
            }
            \stream_context_set_option($this->stream, ['ssl' => $options]);
            $until = \microtime(true) + ($seconds > 0 ? $seconds : 60);
            while (true) {
                $done = @\stream_socket_enable_crypto($this->stream, true, STREAM_CRYPTO_METHOD_TLS_CLIENT);
                if ($done === true) {
                    return 0;
                }
                if ($done === false) {
                    return $verify ? \SWOOLE_ERROR_SSL_VERIFY_FAILED : \SWOOLE_ERROR_SSL_HANDSHAKE_FAILED;
                }
                if (!Loop::stream($this->stream, true, \max(0.001, $until - \microtime(true)))) {
                    return 110;
                }
            }
        }

        public function certificate(): ?string
        {
            $certificate = \stream_context_get_options($this->stream)['ssl']['peer_certificate'] ?? null;
            return $certificate !== null && \openssl_x509_export($certificate, $text) ? $text : null;
        }

        /** Sends everything; the error number. */
        public function send(string $data, float $seconds): int
        {
            $task = Loop::task();
            while ($data !== '') {
                $sent = @\fwrite($this->stream, $data);
                if ($sent === false) {
                    return \feof($this->stream) ? 104 : 32;
                }
                $data = (string) \substr($data, $sent);
                if ($data !== '' && !Loop::stream($this->stream, false, $seconds)) {
                    return $this->stream === null ? 104 : ($task->canceled ? 125 : 110);
                }
            }
            return 0;
        }

        /** Reads what `$cut` takes of the buffer; a number: the error, 0 the end. */
        public function take(callable $cut, float $seconds): string|int
        {
            $task = Loop::task();
            $until = $seconds > 0 ? \microtime(true) + $seconds : 0.0;
            while (($length = $cut($this->in)) === null) {
                $part = $this->datagrams ? @\stream_socket_recvfrom($this->stream, 65536) : @\fread($this->stream, 65536);
                if ($part !== false && $part !== '') {
                    $this->in .= $part;
                    continue;
                }
                if (\feof($this->stream)) {
                    return 0;
                }
                $left = $until > 0 ? $until - \microtime(true) : -1;
                if ($until > 0 && $left <= 0 || !Loop::stream($this->stream, true, $left)) {
                    return $this->stream === null ? 104 : ($task->canceled ? 125 : 110);
                }
                if ($this->stream === null) {
                    return 104;
                }
            }
            if ($length < 0) {
                return \SWOOLE_ERROR_PACKAGE_LENGTH_TOO_LARGE;
            }
            $data = \substr($this->in, 0, $length);
            $this->in = (string) \substr($this->in, $length);
            return $data;
        }

        public function peek(int $length): string|false
        {
            if ($this->in === '') {
                $this->in .= (string) @\fread($this->stream, 65536);
            }
            return \substr($this->in, 0, $length);
        }

        public function name(bool $peer): array|false
        {
            $name = @\stream_socket_get_name($this->stream, $peer);
            $at = $name === false ? false : \strrpos($name, ':');
            return $at === false ? false : ['host' => \trim(\substr($name, 0, $at), '[]'), 'port' => (int) \substr($name, $at + 1),
                'address' => \trim(\substr($name, 0, $at), '[]')];
        }

        public function close(): void
        {
            if ($this->stream !== null) {
                $stream = $this->stream;
                $this->stream = null;
                Loop::drop($stream);
                // The program may have closed it by another object.
                \is_resource($stream) && \fclose($stream);
            }
        }
    }
}
