<?php
// php swoole.php PORT: what the example hello answers, by Swoole, in one process.
$server = new Swoole\Http\Server('127.0.0.1', (int) ($argv[1] ?? 8080), SWOOLE_BASE);
$server->set(['worker_num' => 1, 'log_level' => SWOOLE_LOG_WARNING, 'http_compression' => false, 'backlog' => 4096]);
$server->on('request', function ($request, $response) {
    $response->header('Content-Type', 'text/html');
    $response->end('<h1>Hello World</h1>');
});
$server->start();
