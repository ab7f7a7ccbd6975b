<?php
$server = new Swoole\Http\Server("0.0.0.0", 9501);
$server->set(['worker_num' => 4, 'task_worker_num' => 2]);
