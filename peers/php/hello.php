<?php
// What the example hello answers, by PHP behind nginx.
$page = '<h1>Hello World</h1>';
header('Content-Type: text/html');
header('Content-Length: ' . strlen($page));
echo $page;
