<?php
$fiber = new Fiber(function(): int {
    $data = Fiber::suspend('Ready');
    return $data;
});

$status = $fiber->start(); // 输出 'Ready'
$result = $fiber->resume('Go!'); // 恢复并传值
