<?php
/*
 * Listening without Ringroad: HTTP/1.1, WebSocket and plain streams of bytes.
 */

namespace Ringroad {
    use Swoole\Http\Request;
    use Swoole\Http\Response;
    use Swoole\WebSocket\CloseFrame;
    use Swoole\WebSocket\Frame;

    /** An address, and what is done with its connections. */
    final class Listener
    {
        public string $host;
        public int $port;
        public int $served = 0;
        public array $settings = [];
        /** `http`, or `tcp`: bytes as they come. */
        public string $protocol = 'http';
        public bool $coroutine = true;
        private $socket;
        private int $last = 0;
        /** @var array<int, Connection> */
        public array $connections = [];
        /** `fn (Request, Response, Connection): void` */
        public ?\Closure $onRequest = null;
        /** `fn (Connection): void` */
        public ?\Closure $onConnect = null;
        public ?\Closure $onClose = null;
        /** `fn (Connection, string): void` */
        public ?\Closure $onReceive = null;
        /** Gives the number of a new connection. */
        public ?\Closure $number = null;
        /** `fn (Closure $run, Closure $refuse): void` decides whether a request runs now. */
        public ?\Closure $admit = null;
        /** `fn (bool $begins): void` is told when a request begins and ends. */
        public ?\Closure $progress = null;

        public function __construct(string $host, int $port, public bool $ssl, bool $reusePort, int $backlog = 512)
        {
            $this->host = $host;
            $at = \str_starts_with($host, 'unix:') ? 'unix:///' . \ltrim(\substr($host, 5), '/')
                : (\str_starts_with($host, '/') ? "unix://$host"
                : (\str_contains($host, ':') ? "tcp://[$host]:$port" : "tcp://$host:$port"));
            $options = \str_starts_with($at, 'unix:') ? [] : ['so_reuseport' => $reusePort, 'tcp_nodelay' => true];
            $context = \stream_context_create(['socket' => ['backlog' => $backlog] + $options]);
            if (\str_starts_with($at, 'unix:') && \file_exists(\substr($at, 7)) && @\stream_socket_client($at) === false) {
                @\unlink(\substr($at, 7));
            }
            $socket = @\stream_socket_server($at, $code, $why, STREAM_SERVER_BIND | STREAM_SERVER_LISTEN, $context);
            if ($socket === false) {
                Loop::$errno = $code;
                throw new \Swoole\Exception("failed to listen server port[$host:$port], Error: $why[$code]", $code);
            }
            \stream_set_blocking($socket, false);
            $this->socket = $socket;
            $name = (string) \stream_socket_get_name($socket, false);
            $this->port = \str_starts_with($at, 'unix:') ? 0 : (int) \substr($name, (int) \strrpos($name, ':') + 1);
        }

        public function number(): int
        {
            return Os::number($this->socket) ?? 0;
        }

        public function socket(): ?\Socket
        {
            return \extension_loaded('sockets') ? (\socket_import_stream($this->socket) ?: null) : null;
        }

        public function serve(): void
        {
            Loop::onReadable($this->socket, function (): void {
                // The processes of a program share the address: each takes a few at once.
                for ($count = 0; $count < 16 && ($stream = @\stream_socket_accept($this->socket, 0, $peer)); $count++) {
                    $fd = $this->number !== null ? ($this->number)() : ++$this->last;
                    $connection = new Connection($stream, (string) $peer, $this, $fd);
                    $this->connections[$fd] = $connection;
                    $connection->begin();
                }
            });
        }

        /** Accepts no more. */
        public function pause(): void
        {
            $this->socket !== null && Loop::onReadable($this->socket, null);
        }

        public function close(): void
        {
            if ($this->socket !== null) {
                Loop::onReadable($this->socket, null);
                \fclose($this->socket);
                $this->socket = null;
            }
        }

        /** Connections with a request in progress. */
        public function count(): int
        {
            return \count(\array_filter($this->connections, static fn (Connection $one) => $one->isBusy()));
        }

        public function run(Request $request, Connection $connection): void
        {
            $this->served++;
            $response = new Response($connection, $request->fd);
            $response->allow($this->settings, $request->header ?? []);
            $call = function ($request, $response) use ($connection): void {
                $this->progress !== null && ($this->progress)(true);
                try {
                    ($this->onRequest)($request, $response, $connection);
                } finally {
                    $this->progress !== null && ($this->progress)(false);
                }
            };
            $run = fn () => Dispatcher::run($call, $request, $response, $connection, $this->coroutine);
            if ($this->admit === null) {
                $run();
                return;
            }
            ($this->admit)($run, static function () use ($response): void {
                $response->status(503);
                $response->end();
            });
        }
    }

    /** Answers of HTTP/1.1 as bytes. */
    abstract class HttpSink implements Sink
    {
        protected bool $keep = true;
        protected bool $chunked = false;
        protected bool $head = false;
        protected bool $begun = false;
        /** Whether the client speaks HTTP/1.0, which has no chunks. */
        protected bool $old = false;

        abstract public function send(string $bytes): bool;

        /** The answer is whole. */
        abstract protected function done(): bool;

        private const REASONS = [100 => 'Continue', 101 => 'Switching Protocols', 200 => 'OK', 201 => 'Created',
            202 => 'Accepted', 203 => 'Non-Authoritative Information', 204 => 'No Content', 205 => 'Reset Content',
            206 => 'Partial Content', 300 => 'Multiple Choices', 301 => 'Moved Permanently', 302 => 'Found', 303 => 'See Other',
            304 => 'Not Modified', 307 => 'Temporary Redirect', 308 => 'Permanent Redirect', 400 => 'Bad Request',
            401 => 'Unauthorized', 402 => 'Payment Required', 403 => 'Forbidden', 404 => 'Not Found',
            405 => 'Method Not Allowed', 406 => 'Not Acceptable', 408 => 'Request Timeout', 409 => 'Conflict', 410 => 'Gone',
            411 => 'Length Required', 412 => 'Precondition Failed', 413 => 'Content Too Large', 414 => 'URI Too Long',
            415 => 'Unsupported Media Type', 416 => 'Range Not Satisfiable', 417 => 'Expectation Failed', 418 => 'I\'m a teapot',
            421 => 'Misdirected Request', 422 => 'Unprocessable Content', 423 => 'Locked', 426 => 'Upgrade Required',
            428 => 'Precondition Required', 429 => 'Too Many Requests', 431 => 'Request Header Fields Too Large',
            451 => 'Unavailable For Legal Reasons', 500 => 'Internal Server Error', 501 => 'Not Implemented',
            502 => 'Bad Gateway', 503 => 'Service Unavailable', 504 => 'Gateway Timeout', 505 => 'HTTP Version Not Supported'];

        private function lines(int $status, array $lines, ?int $length): string
        {
            $text = $last = '';
            $reason = self::REASONS[$status] ?? '';
            $own = [];
            foreach ($lines as $line) {
                [$name, $value] = $line;
                $lower = \strtolower($name);
                if (!empty($line[2])) {
                    // What the program has not set comes behind the date, as Swoole has it.
                    $last .= "$name: $value\r\n";
                    continue;
                }
                if ($lower === ':reason') {
                    $reason = \preg_replace('/[\r\n\0]/', ' ', $value);
                } elseif ($lower === 'connection') {
                    $own[$lower] = true;
                    $this->keep = $this->keep && \strtolower($value) !== 'close';
                    $text .= "$name: $value\r\n";
                } elseif ($lower === 'date') {
                    $own[$lower] = true;
                    $text .= "$name: $value\r\n";
                } elseif ($lower === 'content-length' && $this->head && $length === 0 && \ctype_digit($value)) {
                    // The program knows the length of a body that it does not make for HEAD.
                    $length = (int) $value;
                } elseif ($lower !== 'content-length' && $lower !== 'transfer-encoding' && $value !== '') {
                    $text .= "$name: $value\r\n";
                }
            }
            $without = $status === 204 || $status === 304 || $status < 200;
            $this->chunked = $length === null && !$without && !$this->old;
            if ($length === null && $this->old) {
                $this->keep = false;
            }
            isset($own['date']) || $text .= 'Date: ' . \gmdate('D, d M Y H:i:s') . " GMT\r\n";
            isset($own['connection']) || $text .= 'Connection: ' . ($this->keep ? 'keep-alive' : 'close') . "\r\n";
            $text .= $last;
            return 'HTTP/1.1 ' . \rtrim("$status $reason") . "\r\n" . $text . match (true) {
                $without => '',
                $this->chunked => "Transfer-Encoding: chunked\r\n",
                $length === null => '',
                default => "Content-Length: $length\r\n",
            } . "\r\n";
        }

        public function head(int $status, array $lines, string $body, bool $more): bool
        {
            $this->begun = true;
            $head = $this->lines($status, $lines, $more ? null : \strlen($body));
            if (!$more) {
                $without = $this->head || $status === 204 || $status === 304;
                return $this->send($head . ($without ? '' : $body)) && $this->done();
            }
            return $this->send($head) && ($body === '' || $this->write($body));
        }

        public function write(string $bytes): bool
        {
            if ($bytes === '' || $this->head) {
                return true;
            }
            return $this->send($this->chunked ? \dechex(\strlen($bytes)) . "\r\n$bytes\r\n" : $bytes);
        }

        public function end(array $trailers = []): bool
        {
            $tail = '';
            foreach ($trailers as $name => $value) {
                $tail .= "$name: $value\r\n";
            }
            return ($this->head || !$this->chunked || $this->send("0\r\n$tail\r\n")) && $this->done();
        }

        public function file(int $status, array $lines, string $path, int $offset, int $length): bool
        {
            $this->begun = true;
            \clearstatcache(true, $path);
            $left = \filesize($path) - $offset;
            $left = $length > 0 ? \min($left, $length) : $left;
            $sent = $this->send($this->lines($status, $lines, $left));
            $file = \fopen($path, 'rb');
            \fseek($file, $offset);
            while ($sent && !$this->head && $left > 0) {
                $part = (string) \fread($file, \min($left, 1 << 16));
                if ($part === '') {
                    // It was cut meanwhile: what was announced cannot be sent.
                    $this->close();
                    break;
                }
                $left -= \strlen($part);
                $sent = $this->send($part);
            }
            \fclose($file);
            return $sent && $this->done();
        }

        public function upgrade(array $lines, string $protocol): ?Socket
        {
            return null;
        }
    }

    /** An answer on a socket that the program itself reads. */
    final class SocketSink extends HttpSink
    {
        public function __construct(private \Swoole\Coroutine\Socket $socket)
        {
        }

        public function send(string $bytes): bool
        {
            return $this->socket->sendAll($bytes) === \strlen($bytes);
        }

        protected function done(): bool
        {
            return true;
        }

        public function close(): bool
        {
            return $this->socket->close();
        }

        public function fail(string $why): void
        {
            $this->socket->close();
        }
    }

    /** One client's connection. */
    final class Connection extends HttpSink
    {
        private string $in = '';
        private string $out = '';
        private bool $busy = false;
        private bool $open = true;
        private bool $ending = false;
        private int $waiter = 0;
        private ?OwnSocket $socket = null;
        private ?Request $request = null;
        public bool $paused = false;
        public int $began;
        public float $received;
        public float $sent = 0.0;
        public bool $protected = false;
        public int $uid = 0;
        /** Called once it is closed. */
        public array $ends = [];
        public ?int $errno = null;
        public bool $refusesPush = false;

        public function __construct(private $stream, public string $peer, public Listener $listener, public int $fd)
        {
            \stream_set_blocking($stream, false);
            $this->began = \time();
            $this->received = \microtime(true);
        }

        public function begin(): void
        {
            if ($this->listener->ssl) {
                $settings = $this->listener->settings;
                $options = ['local_cert' => $settings['ssl_cert_file'] ?? '', 'local_pk' => $settings['ssl_key_file'] ?? '',
                    'verify_peer' => !empty($settings['ssl_verify_peer']), 'verify_peer_name' => false,
                    'allow_self_signed' => !empty($settings['ssl_allow_self_signed'])];
                foreach (['ssl_cafile', 'ssl_client_cert_file'] as $name) {
                    empty($settings[$name]) || $options['cafile'] = $settings[$name];
                }
                empty($settings['ssl_capath']) || $options['capath'] = $settings['ssl_capath'];
                empty($settings['ssl_verify_depth']) || $options['verify_depth'] = (int) $settings['ssl_verify_depth'];
                foreach ($settings['ssl_sni_certs'] ?? [] as $host => $one) {
                    $options['SNI_server_certs'][$host] = ['local_cert' => $one['ssl_cert_file'], 'local_pk' => $one['ssl_key_file']];
                }
                empty($settings['ssl_ciphers']) || $options['ciphers'] = $settings['ssl_ciphers'];
                empty($settings['ssl_passphrase']) || $options['passphrase'] = $settings['ssl_passphrase'];
                \stream_context_set_option($this->stream, ['ssl' => $options]);
                Loop::onReadable($this->stream, fn () => $this->secure());
                return;
            }
            $this->secured();
        }

        private function secure(): void
        {
            $done = @\stream_socket_enable_crypto($this->stream, true, STREAM_CRYPTO_METHOD_TLS_SERVER);
            if ($done === false) {
                [$client, $port] = $this->address();
                $why = \openssl_error_string() ?: 'the handshake failed';
                Os::note(\SWOOLE_LOG_WARNING, "Socket::ssl_accept(): bad SSL client[$client:$port], reason="
                    . (\hexdec(\explode(':', $why)[1] ?? '0') & 0xfff) . ", error_string=$why");
                $this->shut();
            } elseif ($done === true) {
                $this->secured();
            }
        }

        private function secured(): void
        {
            Loop::onReadable($this->stream, fn () => $this->read());
            $this->listener->onConnect !== null && ($this->listener->onConnect)($this);
        }

        public function stream()
        {
            return $this->stream;
        }

        public function address(): array
        {
            $at = (int) \strrpos($this->peer, ':');
            return [\trim(\substr($this->peer, 0, $at), '[]'), (int) \substr($this->peer, $at + 1)];
        }

        public function isBusy(): bool
        {
            return $this->busy || $this->out !== '';
        }

        public function isOpen(): bool
        {
            return $this->open && !$this->ending;
        }

        public function queued(): int
        {
            return \strlen($this->out);
        }

        /** Closes it when everything is sent. */
        public function close(): bool
        {
            if (!$this->open || $this->ending) {
                return false;
            }
            $this->ending = true;
            $this->keep = false;
            $this->out === '' && $this->shut();
            return true;
        }

        public function reset(): bool
        {
            return $this->open && $this->shut();
        }

        private function shut(): bool
        {
            if ($this->open) {
                $this->open = false;
                Loop::drop($this->stream);
                @\fclose($this->stream);
                unset($this->listener->connections[$this->fd]);
                $this->waiter && Loop::resume($this->waiter);
                $this->socket?->gone();
                foreach ($this->ends as $end) {
                    $end($this);
                }
                $this->ends = [];
                $this->listener->onClose !== null && ($this->listener->onClose)($this);
            }
            return true;
        }

        public function pause(bool $paused): void
        {
            $this->paused = $paused;
            $this->open && Loop::onReadable($this->stream, $paused ? null : fn () => $this->read());
        }

        private function read(): void
        {
            $bytes = @\fread($this->stream, 1 << 17);
            if ($bytes === '' || $bytes === false) {
                \feof($this->stream) && $this->shut();
                return;
            }
            $this->received = \microtime(true);
            if ($this->ending) {
                return;
            }
            $this->in .= $bytes;
            $this->next();
        }

        private function refuse(int $status): void
        {
            $this->keep = false;
            $this->busy = true;
            $this->begun = $this->old = false;
            $this->head($status, [], '', false);
        }

        private function bytes(): void
        {
            $settings = $this->listener->settings;
            while ($this->open && $this->in !== '' && ($length = Packet::length($this->in, $settings)) !== null) {
                if ($length < 0) {
                    $this->shut();
                    return;
                }
                $data = \substr($this->in, 0, $length);
                $this->in = (string) \substr($this->in, $length);
                ($this->listener->onReceive)($this, $data);
            }
        }

        /** Takes a request that has come whole, if there is one. */
        private function next(): void
        {
            if ($this->socket !== null) {
                $this->socket->take($this->in);
                return;
            }
            if ($this->listener->protocol === 'tcp') {
                $this->bytes();
                return;
            }
            if ($this->busy || !$this->open) {
                // More than one request is not read ahead.
                $this->open && \strlen($this->in) > 1 << 20 && Loop::onReadable($this->stream, null);
                return;
            }
            $end = \strpos($this->in, "\r\n\r\n");
            if ($end === false) {
                $line = \strtok($this->in, "\r\n");
                if (\strlen($this->in) > 65536) {
                    $this->refuse(431);
                } elseif (\strlen($this->in) >= 8 && !\preg_match('#^[A-Z]{1,16}( |$)#', (string) $line)) {
                    $this->refuse(400);
                }
                return;
            }
            $lines = \explode("\r\n", \substr($this->in, 0, $end));
            if (!\preg_match('#^([!-~]+) ([/*][!-~]*|https?://[!-~]+) HTTP/1\.([01])$#', $lines[0], $found)) {
                $this->refuse(400);
                return;
            }
            $headers = $repeated = [];
            foreach (\array_slice($lines, 1) as $line) {
                if (!\preg_match('/^([!#$%&\'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\0\r\n]*?)[ \t]*$/', $line, $pair)) {
                    $this->refuse(400);
                    return;
                }
                $name = \strtolower($pair[1]);
                if (isset($headers[$name]) && \in_array($name, ['content-length', 'host', 'transfer-encoding'], true)) {
                    $this->refuse(400);
                    return;
                }
                if (isset($headers[$name])) {
                    Message::repeat($headers, $repeated, $name, $pair[2]);
                } else {
                    $headers[$name] = $pair[2];
                }
            }
            $body = $this->body($headers, $end + 4);
            if ($body === null) {
                return;
            }
            $this->busy = true;
            $this->begun = $this->chunked = false;
            $this->head = $found[1] === 'HEAD';
            $this->old = $found[3] === '0';
            $connection = \strtolower($headers['connection'] ?? '');
            $this->keep = $this->old ? $connection === 'keep-alive' : $connection !== 'close';
            [$path, $query] = \explode('?', $found[2], 2) + [1 => null];
            [$client, $port] = $this->address();
            $this->request = Message::request($this->fd, $found[1], $path, $query, "HTTP/1.$found[3]", $headers,
                $client, $port, $this->listener->port, $body, $this->listener->settings,
                \explode(':', (string) @\stream_socket_get_name($this->stream, false))[0], $repeated);
            $this->listener->run($this->request, $this);
        }

        /** The body that begins at `$at`; `null` while it is not whole, or if it was refused. */
        private function body(array $headers, int $at): ?string
        {
            $coding = $headers['transfer-encoding'] ?? null;
            $length = $headers['content-length'] ?? '0';
            $most = $this->listener->settings['package_max_length'] ?? 2 << 20;
            if (\str_starts_with(\strtolower($headers['content-type'] ?? ''), 'multipart/form-data')) {
                $most = \max($most, (int) ($this->listener->settings['upload_max_filesize'] ?? 0));
            }
            if ($coding !== null && (\strtolower($coding) !== 'chunked' || isset($headers['content-length']))
                || !\ctype_digit($length)) {
                $this->refuse(400);
                return null;
            }
            if ($coding === null) {
                if ((int) $length > $most) {
                    $this->refuse(413);
                    return null;
                }
                if (\strlen($this->in) - $at < (int) $length) {
                    $this->goOn($headers);
                    return null;
                }
                $body = \substr($this->in, $at, (int) $length);
                $this->in = (string) \substr($this->in, $at + (int) $length);
                return $body;
            }
            $body = '';
            while (true) {
                $end = \strpos($this->in, "\r\n", $at);
                if ($end === false) {
                    $this->goOn($headers);
                    return null;
                }
                $size = \trim(\explode(';', \substr($this->in, $at, $end - $at))[0]);
                if (!\ctype_xdigit($size) || \strlen($size) > 8) {
                    $this->refuse(400);
                    return null;
                }
                $size = \hexdec($size);
                if (\strlen($body) + $size > $most) {
                    $this->refuse(413);
                    return null;
                }
                $at = $end + 2;
                if ($size === 0) {
                    $end = \strpos($this->in, "\r\n", $at);
                    if ($end !== $at) {
                        // Trailers are not read.
                        $end === false || $this->refuse(400);
                        return null;
                    }
                    $this->in = (string) \substr($this->in, $at + 2);
                    return $body;
                }
                if (\strlen($this->in) < $at + $size + 2) {
                    return null;
                }
                $body .= \substr($this->in, $at, $size);
                $at += $size + 2;
            }
        }

        /** A client that asks first is told to send. */
        private function goOn(array $headers): void
        {
            if (\strtolower($headers['expect'] ?? '') === '100-continue' && !$this->begun) {
                $this->begun = true;
                $this->send("HTTP/1.1 100 Continue\r\n\r\n");
            }
        }

        public function send(string $bytes): bool
        {
            if (!$this->open) {
                return false;
            }
            $this->sent = \microtime(true);
            $waits = $this->out !== '';
            $this->out .= $bytes;
            $waits || $this->flush();
            // A slow client makes its coroutine wait.
            while ($this->open && \strlen($this->out) > 1 << 20 && Loop::$current !== null && $this->waiter === 0) {
                $this->waiter = Loop::$current->id;
                Loop::suspend();
                $this->waiter = 0;
            }
            return $this->open;
        }

        private function flush(): void
        {
            while ($this->out !== '') {
                $sent = @\fwrite($this->stream, $this->out);
                if ($sent === false) {
                    $this->shut();
                    return;
                }
                if ($sent === 0) {
                    Loop::onWritable($this->stream, fn () => $this->flush());
                    return;
                }
                $this->out = (string) \substr($this->out, $sent);
            }
            Loop::onWritable($this->stream, null);
            if ($this->waiter) {
                Loop::resume($this->waiter);
            }
            if ($this->ending || !$this->busy && !$this->keep && $this->listener->protocol !== 'tcp' && $this->socket === null) {
                $this->shut();
            }
        }

        protected function done(): bool
        {
            $this->busy = false;
            $this->request = null;
            if ($this->out === '' && !$this->keep) {
                $this->shut();
                return true;
            }
            if ($this->open) {
                $this->paused || Loop::onReadable($this->stream, fn () => $this->read());
                $this->in === '' || Loop::later(fn () => $this->next());
            }
            return true;
        }

        public function fail(string $why): void
        {
            $this->keep = false;
            if ($this->begun || $this->socket !== null) {
                $this->shut();
            } elseif ($this->busy) {
                $this->head(500, [], '', false);
            }
        }

        /** Whether the lines of a request offer a WebSocket. */
        public static function offers(array $headers): bool
        {
            return \in_array('websocket', \array_map('trim', \explode(',', \strtolower($headers['upgrade'] ?? ''))), true);
        }

        public function upgrade(array $lines, string $protocol): ?Socket
        {
            $headers = $this->request?->header ?? [];
            $key = $headers['sec-websocket-key'] ?? '';
            if ($key === '' || !self::offers($headers) || !$this->open) {
                $this->open && $this->head(400, [], '', false);
                return null;
            }
            $deflate = !empty($this->listener->settings['websocket_compression'])
                && \str_contains($headers['sec-websocket-extensions'] ?? '', 'permessage-deflate');
            $text = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "
                . Frames::accept($key) . "\r\nSec-WebSocket-Version: 13\r\n"
                . ($deflate ? "Sec-WebSocket-Extensions: permessage-deflate; client_no_context_takeover; server_no_context_takeover\r\n" : '')
                . ($protocol !== '' ? "Sec-WebSocket-Protocol: $protocol\r\n" : '');
            $known = \array_map(static fn ($line) => \strtolower($line[0]), $lines);
            foreach ($lines as [$name, $value]) {
                $text .= "$name: $value\r\n";
            }
            \in_array('server', $known, true) || $text .= "Server: swoole-http-server\r\n";
            \in_array('date', $known, true) || $text .= 'Date: ' . \gmdate('D, d M Y H:i:s') . " GMT\r\n";
            $this->busy = false;
            $this->socket = new OwnSocket($this, $deflate);
            $this->send("$text\r\n");
            $this->in === '' || Loop::later(fn () => $this->open && $this->next());
            return $this->socket;
        }
    }

    /** A WebSocket the frames of which are read and written here. */
    final class OwnSocket implements Socket
    {
        private ?\Closure $take = null;
        private array $early = [];
        private array $part = [];
        private bool $open = true;
        /** Whether the end was said. */
        private bool $leaves = false;
        private FrameOrder $order;

        public function __construct(private Connection $connection, private bool $deflate)
        {
            $this->order = new FrameOrder();
        }

        public function isOpen(): bool
        {
            return $this->open && $this->connection->isOpen();
        }

        public function listen(\Closure $take): void
        {
            $this->take = $take;
            foreach ($this->early as $frame) {
                $take($frame);
            }
            $this->early = [];
        }

        private function give(?Frame $frame): void
        {
            $this->take === null ? $this->early[] = $frame : ($this->take)($frame);
        }

        public function gone(): void
        {
            $this->open = false;
            $this->give(null);
        }

        public function send(string $payload, int $opcode, int $flags): bool
        {
            if (!$this->isOpen() || $this->leaves) {
                return false;
            }
            if (!$this->deflate) {
                $flags &= ~\SWOOLE_WEBSOCKET_FLAG_COMPRESS;
            }
            return $this->order->fits($opcode, $flags) && $this->connection->send(Frames::pack($payload, $opcode, $flags));
        }

        public function leave(int $code, string $reason): bool
        {
            if (!$this->isOpen() || $this->leaves) {
                return false;
            }
            $this->leaves = true;
            $payload = $code === 1005 && $reason === '' ? '' : \pack('n', $code) . \substr($reason, 0, 123);
            $this->connection->send(Frames::pack($payload, \WEBSOCKET_OPCODE_CLOSE, \SWOOLE_WEBSOCKET_FLAG_FIN));
            // A client that does not answer is not waited for longer.
            Loop::after(5.0, fn () => $this->open && $this->connection->close(), 0.0, true);
            return true;
        }

        public function finish(int $code, string $reason): bool
        {
            if (!$this->isOpen()) {
                return false;
            }
            $this->leave($code, $reason);
            $this->open = false;
            return $this->connection->close();
        }

        public function take(string &$in): void
        {
            $settings = $this->connection->listener->settings;
            while ($this->open && $in !== '') {
                $frame = Frames::cut($in, (int) ($settings['package_max_length'] ?? 2 << 20));
                if ($frame === null) {
                    return;
                }
                if (\is_int($frame)) {
                    $in = '';
                    Os::note(\SWOOLE_LOG_WARNING, 'websocket: malformed data of connection[' . $this->connection->fd . ']');
                    $this->finish($frame, '');
                    return;
                }
                $frame->flags &= ~\SWOOLE_WEBSOCKET_FLAG_MASK;
                $frame->fd = $this->connection->fd;
                if ($frame->opcode === \WEBSOCKET_OPCODE_PING && empty($settings['open_websocket_ping_frame'])) {
                    $this->send($frame->data, \WEBSOCKET_OPCODE_PONG, \SWOOLE_WEBSOCKET_FLAG_FIN);
                } elseif ($frame->opcode === \WEBSOCKET_OPCODE_PONG && empty($settings['open_websocket_pong_frame'])) {
                    continue;
                } elseif ($frame instanceof CloseFrame) {
                    empty($settings['open_websocket_close_frame']) || $this->give($frame);
                    $this->finish($frame->code, $frame->reason);
                } elseif ($frame->opcode >= 8) {
                    $this->give($frame);
                } elseif (!$frame->finish) {
                    $this->part += ['opcode' => $frame->opcode, 'flags' => $frame->flags, 'data' => ''];
                    $this->part['data'] .= $frame->data;
                    if (\strlen($this->part['data']) > ($settings['package_max_length'] ?? 2 << 20)) {
                        $this->finish(\SWOOLE_WEBSOCKET_CLOSE_MESSAGE_TOO_BIG, '');
                    }
                } else {
                    if ($this->part) {
                        $frame->data = $this->part['data'] . $frame->data;
                        $frame->opcode = $this->part['opcode'];
                        $frame->flags |= $this->part['flags'] & \SWOOLE_WEBSOCKET_FLAG_RSV1;
                        $this->part = [];
                    }
                    if ($this->deflate && !Frames::plain($frame)) {
                        $this->finish(\SWOOLE_WEBSOCKET_CLOSE_MESSAGE_ERROR, '');
                        return;
                    }
                    $this->give($frame);
                }
            }
        }
    }
}
