<?php
$table = new Swoole\Table(64);
$table->column('count', Swoole\Table::TYPE_INT);
$table->create();
$atomic = new Swoole\Atomic(40);

$server = new Swoole\WebSocket\Server('127.0.0.1', 0);
$server->set(['worker_num' => 2, 'task_worker_num' => 2]);
$server->on('task', function ($server, $id, $from, $data) {
    if ($data === 'throws') {
        throw new RuntimeException('this task throws');
    }
    if ($data === 'twice') {
        $server->finish('first');
    }
    return strtoupper($data);
});
$server->on('finish', function ($server, $id, $result) {
    echo "finished: $result\n";
});
$server->on('pipeMessage', function ($server, $from, $message) {
    echo "worker $server->worker_id got $message\n";
});
$server->on('open', function ($server, $request) {
    $server->push($request->fd, 'hello');
});
$server->on('message', function ($server, $frame) {
    foreach ($server->connections as $fd) {
        if ($server->isEstablished($fd)) {
            $server->push($fd, $frame->data);
        }
    }
});
$server->on('close', function ($server, $fd) {
    echo "closed\n";
});
$server->on('request', function ($request, $response) use ($server, $table, $atomic) {
    $response->end(match ($request->server['request_uri']) {
        '/count' => $server->worker_id . ' ' . $table->incr('all', 'count'),
        '/add' => (string) $atomic->add(2),
        '/wait' => $server->taskwait('abc', 60),
        '/all' => json_encode($server->taskCo(['a', 'b'], 60)),
        '/post' => (string) $server->task('later'),
        '/twice' => (string) $server->task('twice', 1),
        '/throws' => json_encode([@$server->taskwait('throws', 60), @$server->task('x', 99)]),
        '/big' => (string) strlen($server->taskwait(str_repeat('b', 3000000), 60)),
        '/tasks' => (string) $server->stats()['task_worker_num'],
        '/message' => var_export($server->sendMessage('news', 1 - $server->worker_id), true),
        '/connections' => (string) count($server->connections),
        default => 'unknown',
    });
});
$server->start();
