<?php
/*
 * The client for HTTP/1.1 and WebSocket.
 */

namespace Swoole\Coroutine\Http {
    use Ringroad\Frames;
    use Ringroad\Loop;
    use Ringroad\Os;
    use Swoole\WebSocket\CloseFrame;
    use Swoole\WebSocket\Frame;

    class Client
    {
        use \Ringroad\NotSerialized;

        public int $errCode = 0;
        public string $errMsg = '';
        public bool $connected = false;
        public string $host;
        public int $port;
        public bool $ssl;
        public array $setting = [];
        public ?string $requestMethod = null;
        public ?array $requestHeaders = null;
        public mixed $requestBody = null;
        public ?array $uploadFiles = null;
        public ?string $downloadFile = null;
        public int $downloadOffset = 0;
        public int $statusCode = 0;
        public ?array $headers = null;
        public ?array $set_cookie_headers = null;
        public ?array $cookies = null;
        public string $body = '';
        private ?\Ringroad\Wire $wire = null;
        private float $until = 0.0;
        private bool $head = false;
        private bool $defer = false;
        private bool $pending = false;
        private string $sent = '';
        private bool $webSocket = false;
        private ?\Swoole\Coroutine\Socket $shown = null;
        private \Ringroad\FrameOrder $order;
        private bool $deflate = false;
        private array $part = [];
        private ?array $basic = null;
        private bool $busy = false;

        public function __construct(string $host, int $port = 0, bool $ssl = false)
        {
            if ($host === '') {
                throw new Client\Exception('host is empty', \SWOOLE_ERROR_INVALID_PARAMS);
            }
            if (\preg_match('#^(https?)://([^/:]+)(?::(\d+))?#', $host, $found)) {
                $ssl = $found[1] === 'https';
                $host = $found[2];
                $port = (int) ($found[3] ?? $port);
            }
            if ($port < 0 || $port > 65535) {
                throw new Client\Exception('The port is invalid', \SWOOLE_ERROR_INVALID_PARAMS);
            }
            $this->host = $host;
            $this->port = $port ?: ($ssl ? 443 : 80);
            $this->ssl = $ssl;
        }

        public function __destruct()
        {
            $this->wire?->close();
        }

        public function set(array $settings): bool
        {
            if (!$settings) {
                return false;
            }
            if (isset($settings['write_func']) && !\is_callable($settings['write_func'], false, $name)) {
                Os::warn("function '$name' is not callable");
                return false;
            }
            if (isset($settings['max_retries']) && (int) $settings['max_retries'] < 0) {
                Os::warn('max_retries must not be negative', \SWOOLE_ERROR_INVALID_PARAMS);
                return false;
            }
            $this->setting = $settings + $this->setting;
            if (isset($settings['defer'])) {
                $this->defer = (bool) $settings['defer'];
            }
            return true;
        }

        public function getDefer(): bool
        {
            return $this->defer;
        }

        public function setDefer(bool $defer = true): bool
        {
            $this->defer = $defer;
            return true;
        }

        public function setMethod(string $method): bool
        {
            $this->requestMethod = $method;
            return true;
        }

        public function setHeaders(array $headers): bool
        {
            $this->requestHeaders = $headers;
            return true;
        }

        public function setCookies(array $cookies): bool
        {
            $this->cookies = $cookies;
            return true;
        }

        public function setBasicAuth(string $username, #[\SensitiveParameter] string $password): void
        {
            $this->basic = [$username, $password];
        }

        public function setData(string|array $data): bool
        {
            $this->requestBody = $data;
            return true;
        }

        public function addFile(
            string $path, string $name, ?string $type = null, ?string $filename = null, int $offset = 0, int $length = 0,
        ): bool {
            if (!\is_file($path)) {
                Os::warn("stat() failed", 2);
                return false;
            }
            $size = \filesize($path);
            if ($length < 0 || $length > $size - $offset) {
                Os::warn("parameter \$length[$length] exceeds the file size", \SWOOLE_ERROR_INVALID_PARAMS);
                return false;
            }
            if ($size === 0 || $offset > $size || $offset < 0) {
                Os::warn($size === 0 ? "cannot send empty file[$filename]" : "parameter \$offset[$offset] exceeds the file size",
                    $size === 0 ? \SWOOLE_ERROR_FILE_EMPTY : \SWOOLE_ERROR_INVALID_PARAMS);
                return false;
            }
            $this->uploadFiles[] = ['path' => $path, 'name' => $name, 'type' => $type ?? \swoole_mime_type_get($path),
                'filename' => $filename ?? \basename($path), 'offset' => $offset, 'size' => $length ?: $size - $offset];
            return true;
        }

        public function addData(string $path, string $name, ?string $type = null, ?string $filename = null): bool
        {
            $this->uploadFiles[] = ['content' => $path, 'name' => $name, 'type' => $type ?? 'application/octet-stream',
                'filename' => $filename ?? $name];
            return true;
        }

        public function get(string $path): bool
        {
            $this->requestMethod = 'GET';
            $this->requestBody = null;
            return $this->execute($path);
        }

        public function post(string $path, mixed $data): bool
        {
            $this->requestMethod = 'POST';
            $this->requestBody = $data;
            return $this->execute($path);
        }

        public function download(string $path, string $file, int $offset = 0): bool
        {
            if ($offset < 0) {
                Os::warn("the offset $offset is negative", \SWOOLE_ERROR_INVALID_PARAMS);
                return false;
            }
            $this->downloadFile = $file;
            $this->downloadOffset = $offset;
            if ($this->requestBody === null) {
                $this->requestMethod = 'GET';
            }
            return $this->execute($path);
        }

        public function execute(string $path): bool
        {
            Loop::task();
            $this->enter();
            try {
                return $this->exchange($path);
            } finally {
                $this->busy = false;
            }
        }

        private function enter(): void
        {
            if ($this->busy) {
                throw new \Swoole\Error('Socket has already been bound to another coroutine, writing of the same socket in '
                    . 'coroutine#' . \Swoole\Coroutine::getCid() . ' at the same time is not allowed', \SWOOLE_ERROR_CO_HAS_BEEN_BOUND);
            }
            $this->busy = true;
        }

        private function clock(float $seconds): void
        {
            $this->until = $seconds > 0 ? \microtime(true) + $seconds : 0.0;
        }

        private function exchange(string $path): bool
        {
            if ($this->pending) {
                return $this->fail(0, 114, 'Operation already in progress');
            }
            $this->statusCode = 0;
            $this->headers = $this->set_cookie_headers = null;
            $this->body = '';
            $this->errCode = 0;
            $this->errMsg = '';
            $this->clock((float) ($this->setting['timeout'] ?? \Swoole\Coroutine::seconds('socket_read_timeout', -1)));
            if ($this->wire !== null && $this->wire->isOver()) {
                // The server has closed it since the last answer.
                $this->wire->close();
                $this->wire = null;
            }
            $message = $this->message($path);
            for ($tries = 1 + (int) ($this->setting['max_retries'] ?? 0); true; $tries--) {
                if ($this->attempt($message)) {
                    return true;
                }
                if ($this->statusCode !== -1 || $tries <= 1) {
                    return false;
                }
            }
        }

        private function message(string $path): string
        {
            $body = $this->requestBody;
            $files = $this->uploadFiles;
            $this->uploadFiles = null;
            $method = $this->requestMethod ?? ($body === null && !$files ? 'GET' : 'POST');
            $port = $this->port === ($this->ssl ? 443 : 80) ? '' : ":$this->port";
            $lines = ['Host' => (\str_contains($this->host, ':') && !\str_starts_with($this->host, 'unix:') ? "[$this->host]"
                : $this->host) . $port];
            $given = \array_change_key_case($this->requestHeaders ?? []);
            if ($files) {
                $boundary = '----SwooleBoundary' . \bin2hex(\random_bytes(8));
                $parts = '';
                // What would end a name, or its line, is written as browsers write it.
                $quoted = static fn (string $text): string => \strtr($text, ['"' => '%22', "\r" => '%0D', "\n" => '%0A']);
                foreach (\is_array($body) ? $body : [] as $name => $value) {
                    $name = $quoted((string) $name);
                    $parts .= "--$boundary\r\nContent-Disposition: form-data; name=\"$name\"\r\n\r\n$value\r\n";
                }
                foreach ($files as $file) {
                    $content = $file['content'] ?? \file_get_contents($file['path'], false, null, $file['offset'], $file['size']);
                    [$name, $own] = \array_map($quoted, [$file['name'], $file['filename']]);
                    $type = \strtr($file['type'], "\r\n", '  ');
                    $parts .= "--$boundary\r\nContent-Disposition: form-data; name=\"$name\"; filename=\"$own\"\r\n"
                        . "Content-Type: $type\r\n\r\n$content\r\n";
                }
                $body = "$parts--$boundary--\r\n";
                $lines['Content-Type'] = "multipart/form-data; boundary=$boundary";
                unset($given['content-type']);
            } elseif (\is_array($body)) {
                $body = \http_build_query($body);
                isset($given['content-type']) || $lines['Content-Type'] = 'application/x-www-form-urlencoded';
            }
            if (!isset($given['connection'])) {
                $lines['Connection'] = ($this->setting['keep_alive'] ?? true) ? 'keep-alive' : 'close';
            }
            if (!isset($given['accept-encoding']) && ($this->setting['http_compression'] ?? true)) {
                $lines['Accept-Encoding'] = 'gzip, deflate';
            }
            if ($this->basic !== null) {
                $lines['Authorization'] = 'Basic ' . \base64_encode($this->basic[0] . ':' . $this->basic[1]);
            }
            foreach ($this->requestHeaders ?? [] as $name => $value) {
                $lower = \strtolower((string) $name);
                if ($lower === 'content-length' || $lower === 'content-type' && $files || $value === null) {
                    continue;
                }
                if ($lower === 'host') {
                    unset($lines['Host']);
                    $lines = ['Host' => $value] + $lines;
                    continue;
                }
                $lines[$name] = $value;
            }
            if ($this->cookies) {
                $pairs = [];
                foreach ($this->cookies as $name => $value) {
                    $pair = $name . '=' . \urlencode((string) $value);
                    if (\strlen((string) $value) > 4096) {
                        throw new Client\Exception("the cookie $name is longer than 4096 bytes", \SWOOLE_ERROR_INVALID_PARAMS);
                    }
                    $pairs[] = $pair;
                }
                $lines['Cookie'] = \implode('; ', $pairs);
            }
            if ($body !== null && $body !== '' || $method === 'POST' || $method === 'PUT' || $method === 'PATCH') {
                $lines['Content-Length'] = \strlen((string) $body);
            }
            $path = $path === '' ? '/' : $path;
            if (\preg_match('/[\r\n\0]/', $method . $path)) {
                throw new \InvalidArgumentException('the method or the path has a control character');
            }
            $text = "$method $path HTTP/1.1\r\n";
            foreach ($lines as $name => $value) {
                if (\preg_match('/[\r\n\0]/', $name . $value)) {
                    throw new \InvalidArgumentException("the header line $name has a control character");
                }
                $text .= "$name: $value\r\n";
            }
            if (\strlen($text) > 65536) {
                throw new Client\Exception('the head of the request is longer than 65536 bytes', \SWOOLE_ERROR_INVALID_PARAMS);
            }
            $this->head = $method === 'HEAD';
            $this->sent = "$text\r\n";
            return "$text\r\n$body";
        }

        public function getHeaderOut(): string|false
        {
            return $this->sent === '' ? false : $this->sent;
        }

        private function attempt(string $message): bool
        {
            if ($this->wire === null && !$this->connect()) {
                return false;
            }
            $seconds = (float) ($this->setting['write_timeout'] ?? $this->setting['timeout'] ?? -1);
            $code = $this->wire->send($message, $seconds);
            if ($code !== 0) {
                return $this->fail($code === 110 ? -2 : ($this->wire->stream === null ? -3 : -4) , $code);
            }
            if ($this->defer) {
                $this->pending = true;
                return true;
            }
            return $this->receive();
        }

        private function connect(): bool
        {
            $unix = \str_starts_with($this->host, 'unix:');
            $seconds = (float) ($this->setting['connect_timeout'] ?? $this->setting['timeout']
                ?? \Swoole\Coroutine::seconds('socket_connect_timeout', 2));
            $wire = new \Ringroad\Wire($this->setting);
            $code = $wire->connect($unix ? 'unix' : 'tcp', $this->host, $this->port, $seconds, AF_INET);
            if ($code === 0 && $this->ssl) {
                $code = $wire->tls($this->host, $seconds);
                $code === 0 || $wire->close();
            }
            if ($code !== 0) {
                return $this->fail(-1, $code);
            }
            $this->wire = $wire;
            $this->connected = true;
            return true;
        }

        private function fail(int $status, int $code, string $why = ''): bool
        {
            $this->close();
            $this->statusCode = $status;
            $this->errCode = Loop::$errno = $code;
            $this->errMsg = $why ?: \swoole_strerror($code, $code > 500 ? 9 : 0);
            return false;
        }

        /** Takes something of the answer; `null`: it failed, and why is noted. */
        private function some(callable $cut): ?string
        {
            if ($this->wire === null) {
                return null;
            }
            $left = $this->until > 0 ? \max(0.001, $this->until - \microtime(true)) : -1;
            $got = $this->wire->take($cut, $left);
            if (\is_int($got)) {
                $this->fail($got === 110 ? -2 : -3, $got ?: 104);
                return null;
            }
            return $got;
        }

        private function line(): ?string
        {
            $line = $this->some(static fn (string $in): ?int => ($at = \strpos($in, "\n")) !== false ? $at + 1
                : (\strlen($in) > 65536 ? -1 : null));
            return $line === null ? null : \rtrim($line, "\r\n");
        }

        private function exactly(int $bytes): ?string
        {
            return $bytes === 0 ? '' : $this->some(static fn (string $in): ?int => \strlen($in) >= $bytes ? $bytes : null);
        }

        private function receive(): bool
        {
            do {
                $line = $this->line();
                if ($line === null) {
                    return false;
                }
                if (!\preg_match('#^HTTP/1\.([01]) (\d{3})#', $line, $found)) {
                    return $this->fail(-3, \SWOOLE_ERROR_HTTP_INVALID_PROTOCOL);
                }
                $status = (int) $found[2];
                $this->headers = [];
                while (($line = $this->line()) !== '') {
                    if ($line === null) {
                        return false;
                    }
                    $this->field($line);
                }
            } while ($status < 200 && $status !== 101);
            if ($status === 101) {
                $this->statusCode = 101;
                return true;
            }
            $file = $this->downloadFile === null ? null : $this->openDownload();
            if ($file === false) {
                return false;
            }
            $body = $this->bodyOf($status, $file);
            $file === null || \fclose($file);
            if ($body === null) {
                return false;
            }
            $decoded = match (\strtolower((string) ($this->headers['content-encoding'] ?? ''))) {
                'gzip' => @\gzdecode($body),
                'deflate' => @\gzuncompress($body) ?: @\gzinflate($body),
                default => $body,
            };
            $this->body = $decoded === false ? $body : $decoded;
            $this->statusCode = $status;
            $close = \strtolower((string) ($this->headers['connection'] ?? '')) === 'close'
                || $found[1] === '0' && \strtolower((string) ($this->headers['connection'] ?? '')) !== 'keep-alive';
            if ($close || !($this->setting['keep_alive'] ?? true)) {
                $this->close();
            }
            return true;
        }

        /** The file that an answer is written to as it comes; `false`: it cannot be opened. */
        private function openDownload()
        {
            $file = @\fopen($this->downloadFile, $this->downloadOffset > 0 ? 'c' : 'w');
            if ($file === false) {
                Os::warn("open($this->downloadFile, O_CREAT | O_WRONLY) failed");
                $this->fail(-3, 2);
            } else {
                \fseek($file, $this->downloadOffset);
                // What is packed comes out plain.
                $coding = \strtolower((string) ($this->headers['content-encoding'] ?? ''));
                if ($coding === 'gzip' || $coding === 'deflate') {
                    \stream_filter_append($file, 'zlib.inflate', STREAM_FILTER_WRITE, ['window' => 47]);
                }
            }
            $this->downloadFile = null;
            $this->downloadOffset = 0;
            return $file;
        }

        private function field(string $line): void
        {
            [$name, $value] = \explode(':', $line, 2) + [1 => ''];
            $name = ($this->setting['lowercase_header'] ?? true) ? \strtolower($name) : $name;
            $value = \trim($value);
            if (\strtolower($name) === 'set-cookie') {
                $this->set_cookie_headers[] = $value;
                [$pair] = \explode(';', $value, 2);
                if (\str_contains($pair, '=')) {
                    [$key, $content] = \explode('=', $pair, 2);
                    if ($content === 'deleted') {
                        unset($this->cookies[$key]);
                    } else {
                        $this->cookies[$key] = \urldecode($content);
                    }
                }
            }
            if (isset($this->headers[$name])) {
                $this->headers[$name] = [...(array) $this->headers[$name], $value];
            } else {
                $this->headers[$name] = $value;
            }
        }

        private function bodyOf(int $status, $file): ?string
        {
            if ($this->head || $status === 204 || $status === 304) {
                return '';
            }
            $take = function (string $part, string &$body) use ($file): bool {
                if ($file !== null) {
                    \fwrite($file, $part);
                    return true;
                }
                $call = $this->setting['write_func'] ?? null;
                if ($call === null) {
                    $body .= $part;
                    return true;
                }
                $call($this, $part);
                // The program may have closed it.
                return $this->wire !== null || $this->fail(-3, 104);
            };
            if (\str_contains(\strtolower(\implode(',', (array) ($this->headers['transfer-encoding'] ?? ''))), 'chunked')) {
                $body = '';
                while (true) {
                    $line = $this->line();
                    if ($line === null || !\ctype_xdigit($size = \trim(\explode(';', $line)[0]))) {
                        return $line === null ? null : ($this->fail(-3, \SWOOLE_ERROR_HTTP_INVALID_PROTOCOL) ? '' : null);
                    }
                    $size = \hexdec($size);
                    if ($size === 0) {
                        // Trailers are lines of the answer.
                        while (($line = $this->line()) !== '') {
                            if ($line === null) {
                                return null;
                            }
                            $this->field($line);
                        }
                        return $body;
                    }
                    $part = $this->exactly($size);
                    if ($part === null || $this->line() === null || !$take($part, $body)) {
                        return null;
                    }
                }
            }
            $body = '';
            if (isset($this->headers['content-length'])) {
                $left = (int) ((array) $this->headers['content-length'])[0];
                while ($left > 0) {
                    $part = $this->some(static fn (string $in): ?int => $in === '' ? null : \min($left, \strlen($in)));
                    if ($part === null || !$take($part, $body)) {
                        return null;
                    }
                    $left -= \strlen($part);
                }
                return $body;
            }
            while ($this->wire !== null) {
                $left = $this->until > 0 ? \max(0.001, $this->until - \microtime(true)) : -1;
                $part = $this->wire->take(static fn (string $in): ?int => $in === '' ? null : \strlen($in), $left);
                if ($part === 0) {
                    break;
                }
                if (\is_int($part)) {
                    $this->fail($part === 110 ? -2 : -3, $part);
                    return null;
                }
                if (!$take($part, $body)) {
                    return null;
                }
            }
            $this->headers['connection'] ??= 'close';
            $this->close();
            return $body;
        }

        /** Makes a WebSocket of the connection. */
        public function upgrade(string $path): bool
        {
            $defer = $this->defer;
            $this->defer = false;
            $kept = $this->requestHeaders;
            $key = \base64_encode(\random_bytes(16));
            $deflate = !empty($this->setting['websocket_compression']);
            $this->requestHeaders = ['Connection' => 'Upgrade', 'Upgrade' => 'websocket', 'Sec-WebSocket-Version' => '13',
                'Sec-WebSocket-Key' => $key] + ($deflate ? ['Sec-WebSocket-Extensions'
                => 'permessage-deflate; client_no_context_takeover; server_no_context_takeover'] : []) + ($kept ?? []);
            $this->requestMethod = 'GET';
            $this->requestBody = null;
            $done = $this->execute($path);
            $this->requestHeaders = $kept;
            $this->defer = $defer;
            if (!$done) {
                return false;
            }
            $accept = (string) ($this->headers['sec-websocket-accept'] ?? '');
            if ($this->statusCode !== 101 || $accept !== Frames::accept($key)) {
                if ($this->statusCode === 101) {
                    $this->fail(-3, \SWOOLE_ERROR_WEBSOCKET_HANDSHAKE_FAILED);
                }
                $this->errCode = Loop::$errno = \SWOOLE_ERROR_WEBSOCKET_HANDSHAKE_FAILED;
                return false;
            }
            $this->webSocket = true;
            $this->order = new \Ringroad\FrameOrder();
            $this->part = [];
            $this->deflate = \str_contains((string) ($this->headers['sec-websocket-extensions'] ?? ''), 'permessage-deflate');
            return true;
        }

        public function push(
            mixed $data, int $opcode = \WEBSOCKET_OPCODE_TEXT, int|bool $flags = \SWOOLE_WEBSOCKET_FLAG_FIN,
        ): bool {
            Loop::task();
            $this->dropped();
            if ($this->wire === null || !$this->webSocket) {
                $this->errCode = Loop::$errno = $this->wire === null ? \SWOOLE_ERROR_CLIENT_NO_CONNECTION
                    : \SWOOLE_ERROR_WEBSOCKET_UNCONNECTED;
                $this->errMsg = \swoole_strerror($this->errCode, 9);
                if ($this->wire !== null) {
                    Os::warn('websocket handshake failed, cannot push data');
                }
                return false;
            }
            [$payload, $opcode, $flags] = Frame::parts($data instanceof Frame ? $data : (string) $data, $opcode, $flags);
            if ($opcode > 10) {
                Os::warn('the maximum value of opcode is 10', \SWOOLE_ERROR_WEBSOCKET_BAD_OPCODE);
                return false;
            }
            if (!$this->deflate) {
                $flags &= ~\SWOOLE_WEBSOCKET_FLAG_COMPRESS;
            }
            if (!$this->order->fits($opcode, $flags)) {
                return false;
            }
            $mask = (bool) ($this->setting['websocket_mask'] ?? true);
            $code = $this->wire->send(Frames::pack($payload, $opcode, $flags, $mask), (float) ($this->setting['timeout'] ?? -1));
            return $code === 0 || $this->fail($this->statusCode, $code);
        }

        public function ping(string $data = ''): bool
        {
            return $this->push($data, \WEBSOCKET_OPCODE_PING);
        }

        public function disconnect(int $code = \SWOOLE_WEBSOCKET_CLOSE_NORMAL, string $reason = ''): bool
        {
            $frame = new CloseFrame();
            $frame->code = $code;
            $frame->reason = $reason;
            return $this->push($frame) && $this->close();
        }

        public function recv(float $timeout = 0): bool|Frame|string
        {
            Loop::task();
            if (!$this->webSocket) {
                if (!$this->pending) {
                    $this->errCode = Loop::$errno = $this->wire === null ? \SWOOLE_ERROR_CLIENT_NO_CONNECTION : 0;
                    return false;
                }
                $this->pending = false;
                $timeout !== 0.0 && $this->clock($timeout);
                return $this->receive();
            }
            $this->dropped();
            if ($this->wire === null) {
                $this->errCode = Loop::$errno = \SWOOLE_ERROR_CLIENT_NO_CONNECTION;
                return false;
            }
            $seconds = $timeout !== 0.0 ? $timeout : (float) ($this->setting['timeout'] ?? \Swoole\Coroutine::seconds('socket_read_timeout', -1));
            $until = $seconds > 0 ? \microtime(true) + $seconds : 0.0;
            $most = (int) ($this->setting['package_max_length'] ?? 64 << 20);
            $own = !empty($this->setting['open_websocket_close_frame']);
            while ($this->wire !== null) {
                $frame = null;
                $got = $this->wire->take(static function (string $in) use (&$frame, $most): ?int {
                    $rest = $in;
                    $frame = Frames::cut($rest, $most);
                    return \is_int($frame) ? -1 : ($frame === null ? null : \strlen($in) - \strlen($rest));
                }, $until > 0 ? \max(0.001, $until - \microtime(true)) : -1);
                if (\is_int($got)) {
                    if ($got === 110 || $got === 125) {
                        $this->errCode = Loop::$errno = $got;
                        $this->errMsg = \swoole_strerror($got);
                        return false;
                    }
                    $this->fail($got === 0 ? -3 : $this->statusCode, $got ?: 104);
                    return $got === 0 ? '' : false;
                }
                $frame->fd = $this->wire->number();
                $frame->flags &= ~\SWOOLE_WEBSOCKET_FLAG_MASK;
                if ($frame->opcode === \WEBSOCKET_OPCODE_PING && empty($this->setting['open_websocket_ping_frame'])) {
                    $this->push($frame->data, \WEBSOCKET_OPCODE_PONG);
                    continue;
                }
                if ($frame->opcode === \WEBSOCKET_OPCODE_PONG && empty($this->setting['open_websocket_pong_frame'])) {
                    continue;
                }
                if ($frame instanceof CloseFrame) {
                    $own || $this->push($frame);
                    if (!$own) {
                        $this->close();
                        return '';
                    }
                }
                if (!$frame->finish && $frame->opcode < 8) {
                    $this->part += ['opcode' => $frame->opcode, 'flags' => $frame->flags, 'data' => []];
                    $this->part['data'][] = $frame->data;
                    continue;
                }
                if ($this->part && $frame->opcode === 0) {
                    $frame->data = \implode('', $this->part['data']) . $frame->data;
                    $frame->opcode = $this->part['opcode'];
                    $frame->flags |= $this->part['flags'] & \SWOOLE_WEBSOCKET_FLAG_RSV1;
                    $this->part = [];
                }
                $this->deflate && Frames::plain($frame);
                return $frame;
            }
            return false;
        }

        /** The connection itself as `$client->socket`; `null` without one. */
        public function __get(string $name): ?\Swoole\Coroutine\Socket
        {
            return $name === 'socket' && $this->wire !== null
                ? $this->shown ??= \Swoole\Coroutine\Socket::import($this->wire->stream) : null;
        }

        public function __isset(string $name): bool
        {
            return $name === 'socket' && $this->wire !== null;
        }

        /** Notes that the program has closed the connection itself. */
        private function dropped(): void
        {
            $this->wire !== null && !\is_resource($this->wire->stream) && $this->close();
        }

        public function getBody(): string|false
        {
            return $this->body;
        }

        public function getHeaders(): array|false|null
        {
            return $this->headers;
        }

        public function getCookies(): array|false|null
        {
            return $this->cookies;
        }

        public function getStatusCode(): int|false
        {
            return $this->statusCode;
        }

        public function getPeerCert(): string|false
        {
            return $this->wire?->certificate() ?? false;
        }

        public function getsockname(): array|false
        {
            $name = $this->wire?->name(false) ?: false;
            return $name === false ? false : ['address' => $name['address'], 'port' => $name['port']];
        }

        public function getpeername(): array|false
        {
            $name = $this->wire?->name(true) ?: false;
            return $name === false ? false : ['address' => $name['address'], 'port' => $name['port']];
        }

        public function close(): bool
        {
            $open = $this->wire !== null;
            $this->wire?->close();
            $this->wire = null;
            $this->connected = $this->pending = $this->webSocket = false;
            $this->shown = null;
            if (!$open) {
                $this->errCode = Loop::$errno = \SWOOLE_ERROR_CLIENT_NO_CONNECTION;
            }
            return $open;
        }
    }
}

namespace Swoole\Coroutine\Http\Client {
    class Exception extends \Swoole\Exception
    {
    }
}
