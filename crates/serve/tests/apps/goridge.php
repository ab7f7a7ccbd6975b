<?php
// A worker of RoadRunner, by hand: goridge over standard input and output.

const HEAD = 12;

function take(int $bytes): string
{
    $all = '';
    while (strlen($all) < $bytes) {
        $more = fread(STDIN, $bytes - strlen($all));
        if ($more === false || $more === '') {
            exit(0);
        }
        $all .= $more;
    }
    return $all;
}

function frame(int $flags, int $stream, string $head, string $body): void
{
    $options = $head === '' ? '' : pack('V', strlen($head));
    $first = pack('CCV', 0x10 | (3 + strlen($options) / 4), $flags, strlen($head . $body));
    fwrite(STDOUT, $first . pack('V', crc32($first)) . pack('CC', $stream, 0) . $options . $head . $body);
    fflush(STDOUT);
}

function next_frame(): array
{
    $head = unpack('Cwords/Cflags/Vlength/Vcrc/Cstream/Czero', take(HEAD));
    $options = ($head['words'] & 15) - 3;
    $numbers = $options > 0 ? array_values(unpack('V*', take(4 * $options))) : [];
    $cut = $numbers[0] ?? 0;
    $first = take($cut);
    before_the_body($first);
    return [$head['flags'], $head['stream'], $first, take($head['length'] - $cut)];
}

// What is done before all of a request is read.
function before_the_body(string $head): void
{
    switch (parse_url(json_decode($head, true)['uri'] ?? '', PHP_URL_PATH)) {
        case '/early':
            answer(413, [], 'too much');
            exit(0);
        case '/early-stays':
            answer(413, [], 'too much, ' . getmypid());
            break;
        case '/large-first':
            answer(200, [], str_repeat('x', 3000000));
            break;
        case '/deaf':
            sleep(30);
    }
}

function answer(int $status, array $headers, string $body, int $stream = 0): void
{
    $headers = array_map(fn ($value) => (array) $value, $headers) ?: new stdClass();
    frame(8, $stream, json_encode(['status' => $status, 'headers' => $headers]), $body);
}

fwrite(STDERR, 'worker ' . getenv('RR_MODE') . ' ' . getenv('RR_RELAY') . "\n");
while (true) {
    [$flags, $stream, $head, $body] = next_frame();
    if ($flags & 1) {
        $order = json_decode($body, true);
        if (isset($order['pid'])) {
            frame(1, 0, '', json_encode(['pid' => getmypid()]));
            continue;
        }
        exit(0);
    }
    if ($stream & 2) {
        continue;
    }
    $request = json_decode($head, true);
    switch (parse_url($request['uri'], PHP_URL_PATH)) {
        case '/pid':
            answer(200, [], (string) getmypid());
            break;
        case '/echo':
            $uploads = $request['uploads'] ?? [];
            $content = isset($uploads['file']) ? file_get_contents($uploads['file']['tmpName']) : null;
            $told = ['request' => $request, 'body' => $body, 'content' => $content];
            answer(201, ['Content-Type' => 'application/json', 'X-Many' => ['a', 'b']], json_encode($told));
            break;
        case '/stream':
            answer(200, ['Content-Type' => 'text/plain'], 'one,', 1);
            frame(0, 1, '', 'two,');
            frame(0, 0, '', 'three');
            break;
        case '/error':
            frame(0x40, 0, '', 'the error of the program');
            break;
        case '/early-stays':
        case '/large-first':
            break;
        case '/twice':
            answer(200, [], 'the answer');
            for ($waits = 0; !file_exists('go') && $waits < 6000; $waits++) {
                usleep(10000);
            }
            answer(200, [], 'an answer to no request');
            touch('said');
            break;
        case '/last':
            // Asked for the first time, this worker ends without handling it.
            if (!file_exists('left')) {
                touch('left');
                frame(8, 0, '{"stop":true}', '');
                break;
            }
            answer(200, [], 'handled');
            break;
        case '/print':
            fwrite(STDOUT, "Warning: something is printed\n");
            answer(200, [], 'never seen');
            break;
        case '/die':
            if (!file_exists('died')) {
                touch('died');
                exit(9);
            }
            answer(200, [], 'alive');
            break;
        case '/events':
            answer(200, ['Content-Type' => 'text/event-stream'], "data: first\n\n", 1);
            // What comes is that the client has left.
            next_frame();
            frame(0, 0, '', '');
            touch('left');
            break;
        case '/version':
            answer(200, [], 'one');
            break;
        case '/held':
            touch('held');
            for ($waits = 0; !file_exists('go') && $waits < 6000; $waits++) {
                usleep(10000);
            }
            answer(200, [], 'one');
            break;
        case '/prints':
            fwrite(STDERR, "of $request[rawQuery]\nits end, of $request[rawQuery]");
            answer(200, [], 'printed');
            break;
        case '/slow':
            sleep(30);
            break;
        default:
            answer(404, [], 'nothing');
    }
}
