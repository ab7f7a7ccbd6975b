<?php
/*
 * Frames of WebSocket (RFC 6455), as values and as bytes.
 */

namespace Swoole\WebSocket {
    class Frame
    {
        public int $fd = 0;
        public string $data = '';
        public int $opcode = \WEBSOCKET_OPCODE_TEXT;
        public int $flags = \SWOOLE_WEBSOCKET_FLAG_FIN;
        public ?bool $finish = true;

        public function __toString(): string
        {
            return self::pack($this);
        }

        public static function pack(
            Frame|string $data, int $opcode = \WEBSOCKET_OPCODE_TEXT, int $flags = \SWOOLE_WEBSOCKET_FLAG_FIN,
        ): string {
            [$payload, $opcode, $flags] = self::parts($data, $opcode, $flags);
            if ($opcode < 0 || $opcode > \WEBSOCKET_OPCODE_PONG) {
                \Ringroad\Os::warn('the maximum value of opcode is 10', \SWOOLE_ERROR_WEBSOCKET_BAD_OPCODE);
                return '';
            }
            if ($opcode >= \WEBSOCKET_OPCODE_CLOSE) {
                if (\strlen($payload) > 125) {
                    \Ringroad\Os::warn($opcode === \WEBSOCKET_OPCODE_CLOSE ? 'the max length of close reason is 123'
                        : 'websocket control frame payload must not exceed 125 bytes', \SWOOLE_ERROR_WEBSOCKET_PACK_FAILED);
                    return '';
                }
                // Frames of control have one part.
                $flags |= \SWOOLE_WEBSOCKET_FLAG_FIN;
            }
            return \Ringroad\Frames::pack($payload, $opcode, $flags);
        }

        /** The payload, opcode and flags of what is to be sent. */
        public static function parts(Frame|string $data, int $opcode, int|bool $flags): array
        {
            $flags = $flags === true ? \SWOOLE_WEBSOCKET_FLAG_FIN : (int) $flags;
            if (!$data instanceof Frame) {
                return [$data, $opcode, $flags];
            }
            if ($data instanceof CloseFrame) {
                return [\pack('n', $data->code) . ($data->reason ?? ''), \WEBSOCKET_OPCODE_CLOSE, \SWOOLE_WEBSOCKET_FLAG_FIN];
            }
            $flags = $data->finish === false ? $data->flags & ~\SWOOLE_WEBSOCKET_FLAG_FIN : $data->flags;
            return [$data->data ?? '', $data->opcode, $flags];
        }

        public static function unpack(string $data): Frame|false
        {
            $frame = \Ringroad\Frames::cut($data, 1 << 30, false);
            return $frame instanceof Frame ? $frame : false;
        }
    }

    class CloseFrame extends Frame
    {
        public int $opcode = \WEBSOCKET_OPCODE_CLOSE;
        public int $code = \SWOOLE_WEBSOCKET_CLOSE_NORMAL;
        public string $reason = '';
    }
}

namespace Ringroad {
    use Swoole\WebSocket\CloseFrame;
    use Swoole\WebSocket\Frame;

    /** Whether the parts of messages that are sent follow each other. */
    final class FrameOrder
    {
        private bool $inside = false;

        public function fits(int $opcode, int $flags): bool
        {
            if ($opcode >= \WEBSOCKET_OPCODE_CLOSE) {
                return true;
            }
            if ($this->inside !== ($opcode === \WEBSOCKET_OPCODE_CONTINUATION)) {
                Os::note(\SWOOLE_LOG_WARNING, 'websocket: ' . ($this->inside
                    ? 'All fragments of a message, except for the initial frame, must use the continuation frame opcode(0).'
                    : 'A continuation frame cannot stand alone and MUST be preceded by an initial frame whose opcode indicates '
                    . 'either text or binary data.'));
                return false;
            }
            $this->inside = !($flags & \SWOOLE_WEBSOCKET_FLAG_FIN);
            return true;
        }
    }

    /** Bytes of frames. */
    final class Frames
    {
        public const KEY = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';

        public static function accept(string $key): string
        {
            return \base64_encode(\sha1($key . self::KEY, true));
        }

        public static function pack(string $payload, int $opcode, int $flags, bool $mask = false): string
        {
            if ($flags & \SWOOLE_WEBSOCKET_FLAG_COMPRESS && !($flags & \SWOOLE_WEBSOCKET_FLAG_RSV1)) {
                // With RSV1 the program has compressed it.
                $flags |= \SWOOLE_WEBSOCKET_FLAG_RSV1;
                $payload = self::deflate($payload);
            }
            $mask = $mask || ($flags & \SWOOLE_WEBSOCKET_FLAG_MASK);
            $first = ($flags & \SWOOLE_WEBSOCKET_FLAG_FIN ? 0x80 : 0) | ($flags & \SWOOLE_WEBSOCKET_FLAG_RSV1 ? 0x40 : 0)
                | ($flags & \SWOOLE_WEBSOCKET_FLAG_RSV2 ? 0x20 : 0) | ($flags & \SWOOLE_WEBSOCKET_FLAG_RSV3 ? 0x10 : 0) | $opcode & 0x0f;
            $length = \strlen($payload);
            $bit = $mask ? 0x80 : 0;
            $head = match (true) {
                $length < 126 => \pack('CC', $first, $bit | $length),
                $length < 65536 => \pack('CCn', $first, $bit | 126, $length),
                default => \pack('CCJ', $first, $bit | 127, $length),
            };
            if (!$mask) {
                return $head . $payload;
            }
            $key = \random_bytes(4);
            return $head . $key . self::masked($payload, $key);
        }

        private static function masked(string $payload, string $key): string
        {
            return $payload === '' ? '' : $payload ^ \str_pad('', \strlen($payload), $key);
        }

        private static function deflate(string $payload): string
        {
            // What every message ends with is left out (RFC 7692, 7.2.1).
            $context = \deflate_init(ZLIB_ENCODING_RAW);
            return \substr(\deflate_add($context, $payload, ZLIB_SYNC_FLUSH), 0, -4);
        }

        public static function inflate(string $payload): string|false
        {
            $context = \inflate_init(ZLIB_ENCODING_RAW);
            return @\inflate_add($context, $payload . "\0\0\xff\xff", ZLIB_SYNC_FLUSH);
        }

        /** Inflates the payload of a whole message that is compressed. Whether it could be. */
        public static function plain(Frame $frame): bool
        {
            if (!($frame->flags & \SWOOLE_WEBSOCKET_FLAG_RSV1)) {
                return true;
            }
            $plain = self::inflate($frame->data);
            $frame->data = (string) $plain;
            $frame->flags = $frame->flags & ~\SWOOLE_WEBSOCKET_FLAG_RSV1 | \SWOOLE_WEBSOCKET_FLAG_COMPRESS;
            return $plain !== false;
        }

        /** The first frame of a buffer, which keeps the rest. `null`: not whole; a number: why it is refused. */
        public static function cut(string &$in, int $most, bool $strict = true): Frame|int|null
        {
            if (\strlen($in) < 2) {
                return null;
            }
            [$first, $second] = [\ord($in[0]), \ord($in[1])];
            $length = $second & 0x7f;
            $at = 2;
            if ($length >= 126) {
                $at = $length === 126 ? 4 : 10;
                if (\strlen($in) < $at) {
                    return null;
                }
                $length = $at === 4 ? \unpack('n', $in, 2)[1] : \unpack('J', $in, 2)[1];
            }
            if ($length < 0 || $length > $most) {
                return \SWOOLE_WEBSOCKET_CLOSE_MESSAGE_TOO_BIG;
            }
            $opcode = $first & 0x0f;
            if ($strict && ($opcode > 10 || $opcode > 2 && $opcode < 8 || $opcode >= 8 && ($length > 125 || !($first & 0x80)))) {
                return \SWOOLE_WEBSOCKET_CLOSE_PROTOCOL_ERROR;
            }
            $whole = $at + ($second & 0x80 ? 4 : 0) + $length;
            if (\strlen($in) < $whole) {
                return null;
            }
            $payload = \substr($in, $whole - $length, $length);
            if ($second & 0x80) {
                $payload = self::masked($payload, \substr($in, $at, 4));
            }
            $in = (string) \substr($in, $whole);
            $frame = $opcode === \WEBSOCKET_OPCODE_CLOSE ? new CloseFrame() : new Frame();
            $frame->opcode = $opcode;
            $frame->data = $payload;
            $frame->finish = ($first & 0x80) !== 0;
            $frame->flags = ($first & 0x80 ? \SWOOLE_WEBSOCKET_FLAG_FIN : 0) | ($first & 0x40 ? \SWOOLE_WEBSOCKET_FLAG_RSV1 : 0)
                | ($second & 0x80 ? \SWOOLE_WEBSOCKET_FLAG_MASK : 0);
            if ($frame instanceof CloseFrame) {
                $frame->code = \strlen($payload) >= 2 ? \unpack('n', $payload)[1] : \SWOOLE_WEBSOCKET_CLOSE_STATUS_ERROR;
                $frame->reason = (string) \substr($payload, 2);
            }
            return $frame;
        }
    }
}
