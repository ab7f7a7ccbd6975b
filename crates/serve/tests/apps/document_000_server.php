<?php
// server.php
use Swoole\Coroutine as Co;
Co\run(function () {
// 关键:启用所有 Hook(包括 socket)
Swoole\Runtime::setHookFlags(SWOOLE_HOOK_ALL);
$server = new Swoole\Coroutine\Http\Server("127.0.0.1", 9501, false, true);
$server->handle('/', function ($request, $response) {
// 响应内容可被 io_uring 零拷贝优化
$response->end("<h1>Hello World</h1>");
});
echo "Server listening on http://127.0.0.1:9501\n";
$server->start();
});
