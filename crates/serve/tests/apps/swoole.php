<?php
// A server that uses what Swoole's classes offer, under Ringroad and by itself.
use Swoole\Coroutine\Channel;
use Swoole\Coroutine\WaitGroup;

$server = new Swoole\Http\Server('127.0.0.1', 0);
$server->set(['worker_num' => 1]);
$meeting = new Channel(1);
$server->on('workerStart', fn ($server, $id) => print("worker $id listens on {$server->port}\n"));
$server->on('request', function ($request, $response) use ($meeting, $server) {
    switch ($request->server['request_uri']) {
        case '/upload':
            // The callback ends before the file is read.
            go(function () use ($request, $response) {
                Co::sleep(0.001);
                $file = $request->files['f']['tmp_name'];
                $response->end(json_encode([file_get_contents($file), $file]));
            });
            break;
        case '/data':
            $response->end($request->getData());
            break;
        case '/info':
            $info = $server->getClientInfo($request->fd);
            $response->end(json_encode([$info['remote_ip'] === $request->server['remote_addr'],
                $info['remote_port'] === $request->server['remote_port'], $server->exists($request->fd),
                $server->getClientInfo(1 << 40)]));
            break;
        case '/place':
            $response->end($request->server['server_addr'] . ':' . $request->server['server_port']);
            break;
        case '/request':
            $response->end(json_encode([$request->server['request_method'], $request->get, $request->cookie,
                $request->header['x-a'] ?? null, $request->server['query_string'], $request->server['remote_addr']]));
            break;
        case '/post':
            $files = array_map(fn ($file) => [$file['name'], file_get_contents($file['tmp_name'])], $request->files ?? []);
            $response->end(json_encode([$request->post, $files]));
            break;
        case '/echo':
            $response->end($request->rawContent());
            break;
        case '/lines':
            $response->header('x-first', '1');
            $response->header('X-UPPER', '2', false);
            $response->header('x-twice', ['3', '4']);
            $response->cookie('a', 'b c', path: '/p', httponly: true);
            $response->status(201);
            var_dump(@$response->header('x-evil', "a\r\nb: c"));
            $response->end('made');
            break;
        case '/stream':
            foreach (['one ', 'two ', 'three'] as $part) {
                $response->write($part);
                Co::sleep(0.001);
            }
            $response->end();
            break;
        case '/large':
            for ($at = 0; $at < 30; $at++) {
                $response->write(str_repeat(chr(97 + $at % 26), 100000));
            }
            $response->end();
            break;
        case '/file':
            $response->sendfile(__FILE__, 2, 3);
            break;
        case '/redirect':
            $response->redirect('/elsewhere', 301);
            break;
        case '/throw':
            throw new RuntimeException('thrown');
        case '/silent':
            break;
        case '/wait':
            $response->end($meeting->pop());
            break;
        case '/come':
            $meeting->push('met');
            $response->end('came');
            break;
        case '/group':
            $group = new WaitGroup();
            $order = [];
            foreach ([0.02, 0.01] as $number => $seconds) {
                $group->add();
                go(function () use ($group, $number, $seconds, &$order) {
                    $order[] = "begin $number";
                    defer(function () use ($group) { $group->done(); });
                    Co::sleep($seconds);
                    $order[] = "end $number";
                });
            }
            $group->wait();
            $response->end(implode(',', $order));
            break;
        default:
            $response->status(404);
            $response->end();
    }
});
$server->start();
echo "stopped\n";
