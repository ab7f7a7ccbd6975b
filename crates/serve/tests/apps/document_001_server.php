<?php
$http = new Swoole\Http\Server("0.0.0.0", 9501);

$http->on("request", function ($request, $response) {
    $response->header("Content-Type", "application/json");
    $response->end(json_encode(["status" => "ok"]));
});

$http->start();
