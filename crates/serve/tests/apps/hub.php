<?php
$form = http_build_query(['topic' => $_GET['topic'], 'data' => $_GET['data'], 'private' => 'on']);
$head = "Content-Type: application/x-www-form-urlencoded\r\nAuthorization: Bearer " . getenv('PUSH_KEY');
$context = stream_context_create(['http' => ['method' => 'POST', 'header' => $head, 'content' => $form]]);
echo file_get_contents("http://127.0.0.1:{$_GET['port']}/.well-known/mercure", false, $context);
