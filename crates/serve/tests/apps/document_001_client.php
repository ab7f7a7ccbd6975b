<?php
go(function () {
    $client = new Swoole\Coroutine\Http\Client('httpbin.org', 443, true);
    $client->set(['timeout' => 5]);
    $client->get('/');
    echo $client->body;
});
