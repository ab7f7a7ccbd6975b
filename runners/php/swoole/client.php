<?php
/*
 * The client that blocks its process, and requests in one call.
 */

namespace Swoole {
    use Ringroad\Loop;
    use Ringroad\Os;

    /** A client over TCP, UDP or Unix sockets that waits for what it does. */
    class Client
    {
        use \Ringroad\NotSerialized;

        public const MSG_OOB = 1, MSG_PEEK = 2, MSG_DONTWAIT = 64, MSG_WAITALL = 256, SHUT_RDWR = 2, SHUT_RD = 0, SHUT_WR = 1;
        public int $errCode = 0;
        public int $sock = -1;
        public bool $reuse = false;
        public int $reuseCount = 0;
        public int $type = 0;
        public ?string $id = null;
        public ?array $setting = [];
        private $stream = null;
        private string $in = '';
        private float $timeout = 0.5;

        public function __construct(int $type, bool $async = false, string $id = '')
        {
            if ($async) {
                throw new \Error('please install the ext-async extension, using Swoole\Async\Client');
            }
            $this->type = $type;
            $this->id = $id;
        }

        public function __destruct()
        {
            $this->stream !== null && $this->close();
        }

        public function set(array $settings): bool
        {
            $this->setting = $settings + $this->setting;
            return true;
        }

        private function fail(int $code): bool
        {
            $this->errCode = Loop::$errno = $code;
            return false;
        }

        public function stream()
        {
            return $this->stream;
        }

        public function connect(string $host, int $port = 0, float $timeout = 0.5, int $sock_flag = 0): bool
        {
            if ($this->stream !== null) {
                return $this->fail(106);
            }
            $this->timeout = (float) ($this->setting['timeout'] ?? $timeout);
            $at = match ($this->type & 0xff) {
                2, 4 => 'udp://', 5 => 'unix://', 6 => 'udg://', default => 'tcp://',
            };
            $unix = \in_array($this->type & 0xff, [5, 6], true);
            $at .= $unix ? \preg_replace('#^unix:/*#', '/', $host) : (\str_contains($host, ':') ? "[$host]" : $host) . ":$port";
            $secure = $this->type & \SWOOLE_SSL;
            $options = ['verify_peer' => !empty($this->setting['ssl_verify_peer']), 'verify_peer_name' => false,
                'allow_self_signed' => $this->setting['ssl_allow_self_signed'] ?? true];
            foreach (['ssl_cafile' => 'cafile', 'ssl_cert_file' => 'local_cert', 'ssl_key_file' => 'local_pk',
                'ssl_host_name' => 'peer_name'] as $key => $option) {
                empty($this->setting[$key]) || $options[$option] = $this->setting[$key];
            }
            $stream = @\stream_socket_client($at, $code, $why, \max(0.001, $this->timeout), STREAM_CLIENT_CONNECT,
                \stream_context_create(['ssl' => $options, 'socket' => ['tcp_nodelay' => true]]));
            if ($stream === false) {
                $this->fail($code ?: 111);
                Os::warn("connect to server[$host:$port] failed, Error: " . \swoole_strerror($this->errCode) . "[$this->errCode]");
                return false;
            }
            if ($secure && !@\stream_socket_enable_crypto($stream, true, STREAM_CRYPTO_METHOD_TLS_CLIENT)) {
                return $this->fail(\SWOOLE_ERROR_SSL_HANDSHAKE_FAILED);
            }
            \stream_set_read_buffer($stream, 0);
            $this->stream = $stream;
            $this->sock = Os::number($stream) ?? 0;
            $this->wait();
            return true;
        }

        private function wait(): void
        {
            $seconds = $this->timeout > 0 ? $this->timeout : 86400;
            \stream_set_timeout($this->stream, (int) $seconds, (int) (($seconds - (int) $seconds) * 1e6));
        }

        private function there(): bool
        {
            return $this->stream !== null || $this->fail(\SWOOLE_ERROR_CLIENT_NO_CONNECTION);
        }

        public function send(string $data, int $flag = 0): int|false
        {
            if ($data === '' || !$this->there()) {
                return false;
            }
            for ($at = 0; $at < \strlen($data); $at += $sent) {
                $sent = @\fwrite($this->stream, \substr($data, $at, 1 << 18));
                if (!$sent) {
                    return $this->fail(32);
                }
            }
            return $at;
        }

        public function recv(int $size = 65536, int $flag = 0): string|false
        {
            if (!$this->there()) {
                return false;
            }
            $framed = !empty($this->setting['open_length_check']) || !empty($this->setting['open_eof_check'])
                || !empty($this->setting['open_eof_split']);
            $all = $flag === self::MSG_WAITALL || $flag === 1;
            while (true) {
                $length = $framed ? \Ringroad\Packet::length($this->in, $this->setting)
                    : ($this->in === '' || $all && \strlen($this->in) < $size ? null : \min($size, \strlen($this->in)));
                if ($length !== null) {
                    if ($length < 0) {
                        return $this->fail(\SWOOLE_ERROR_PACKAGE_LENGTH_TOO_LARGE);
                    }
                    $data = \substr($this->in, 0, $length);
                    if (!($flag & self::MSG_PEEK)) {
                        $this->in = (string) \substr($this->in, $length);
                    }
                    return $data;
                }
                if ($flag & self::MSG_DONTWAIT) {
                    \stream_set_blocking($this->stream, false);
                }
                $part = @\fread($this->stream, 65536);
                \stream_set_blocking($this->stream, true);
                if ($part === '' || $part === false) {
                    if (\feof($this->stream)) {
                        $left = $this->in;
                        $this->in = '';
                        return $framed ? '' : $left;
                    }
                    return $this->fail(11);
                }
                $this->in .= $part;
            }
        }

        public function sendfile(string $filename, int $offset = 0, int $length = 0): bool
        {
            $data = @\file_get_contents($filename, false, null, $offset, $length > 0 ? $length : null);
            return $data === false ? $this->fail(2) : $this->send($data) !== false;
        }

        public function sendto(string $ip, int $port, string $data): bool
        {
            $this->stream ??= @\stream_socket_client("udp://$ip:$port") ?: null;
            $this->stream !== null && $this->wait();
            return $this->send($data) !== false;
        }

        public function shutdown(int $how): bool
        {
            return $this->there() && \stream_socket_shutdown($this->stream, $how);
        }

        public function enableSSL(?callable $callback = null): bool
        {
            return $this->there() && @\stream_socket_enable_crypto($this->stream, true, STREAM_CRYPTO_METHOD_TLS_CLIENT) === true;
        }

        public function isConnected(): bool
        {
            return $this->stream !== null && !\feof($this->stream);
        }

        private function name(bool $peer): array|false
        {
            $name = $this->there() ? @\stream_socket_get_name($this->stream, $peer) : false;
            $at = $name === false ? false : \strrpos($name, ':');
            return $at === false ? false : ['port' => (int) \substr($name, $at + 1), 'host' => \trim(\substr($name, 0, $at), '[]')];
        }

        public function getsockname(): array|false
        {
            return $this->name(false);
        }

        public function getpeername(): array|false
        {
            return $this->name(true);
        }

        public function getSocket(): \Socket|false
        {
            return $this->there() ? \socket_import_stream($this->stream) : false;
        }

        public function close(bool $force = false): bool
        {
            if (!$this->there()) {
                return false;
            }
            Loop::drop($this->stream);
            \fclose($this->stream);
            $this->stream = null;
            $this->in = '';
            $this->sock = -1;
            return true;
        }
    }
}

namespace Swoole\Coroutine\Http {
    /** What came of a request. */
    class ClientProxy
    {
        public function __construct(private string $body, private int $statusCode, private ?array $headers, private ?array $cookies)
        {
        }

        public function getBody(): string
        {
            return $this->body;
        }

        public function getStatusCode(): int
        {
            return $this->statusCode;
        }

        public function getHeaders(): ?array
        {
            return $this->headers;
        }

        public function getCookies(): ?array
        {
            return $this->cookies;
        }
    }

    function request(
        string $url, string $method, mixed $data = null, ?array $options = null, ?array $headers = null, ?array $cookies = null,
    ): ClientProxy {
        $parts = \parse_url($url);
        if (!isset($parts['host']) || !\in_array($parts['scheme'] ?? '', ['http', 'https'], true)) {
            throw new Client\Exception("$url is no address of a request");
        }
        $client = new Client($parts['host'], $parts['port'] ?? 0, $parts['scheme'] === 'https');
        $options && $client->set($options);
        $headers && $client->setHeaders($headers);
        $cookies && $client->setCookies($cookies);
        $client->setMethod($method);
        $data !== null && $client->setData($data);
        if (!$client->execute(($parts['path'] ?? '/') . (isset($parts['query']) ? '?' . $parts['query'] : ''))) {
            throw new Client\Exception($client->errMsg, $client->errCode);
        }
        $proxy = new ClientProxy($client->body, $client->statusCode, $client->headers, $client->cookies);
        $client->close();
        return $proxy;
    }

    function post(string $url, mixed $data, ?array $options = null, ?array $headers = null, ?array $cookies = null): ClientProxy
    {
        return request($url, 'POST', $data, $options, $headers, $cookies);
    }

    function get(string $url, ?array $options = null, ?array $headers = null, ?array $cookies = null): ClientProxy
    {
        return request($url, 'GET', null, $options, $headers, $cookies);
    }
}
