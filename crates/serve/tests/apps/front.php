<?php
// A front controller as WordPress, Laravel and Symfony have one: every path that is no file comes here.
$path = parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH);
switch (true) {
    case $path === '/':
        echo 'home';
        break;
    case $path === '/pid':
        echo getmypid();
        break;
    case str_starts_with($path, '/vars'):
        $names = explode(',', $_GET['names'] ?? '');
        header('Content-Type: application/json');
        echo json_encode(array_map(fn($name) => $_SERVER[$name] ?? null, $names), JSON_UNESCAPED_SLASHES);
        break;
    case $path === '/post':
        echo json_encode([$_POST, array_map(fn($file) => [$file['name'], $file['size'], $file['error']], $_FILES)]);
        break;
    case $path === '/echo':
        echo file_get_contents('php://input');
        break;
    case $path === '/head':
        http_response_code(201);
        header('X-A: 1');
        setcookie('a', 'b');
        header('Set-Cookie: c=d', false);
        echo 'made';
        break;
    case $path === '/moved':
        header('Location: /elsewhere');
        break;
    case $path === '/accel':
        header('X-Accel-Redirect: /protected/' . $_GET['file']);
        header('Content-Type: application/x-secret');
        header('Content-Disposition: attachment');
        break;
    case $path === '/sendfile':
        header('X-Sendfile: ' . $_GET['file']);
        break;
    case $path === '/stderr':
        file_put_contents('php://stderr', "a line of stderr\n");
        error_log('a line of error_log');
        echo 'told';
        break;
    case $path === '/large':
        for ($at = 0; $at < 3000; $at++) {
            echo str_repeat(chr(97 + $at % 26), 1000);
        }
        break;
    case $path === '/stream':
        header('X-Accel-Buffering: no');
        while (ob_get_level()) {
            ob_end_flush();
        }
        foreach (['one ', 'two ', 'three'] as $part) {
            echo $part;
            flush();
        }
        break;
    case $path === '/exit':
        exit('left early');
    case $path === '/fatal':
        undefined_function();
    case $path === '/slow':
        sleep((int) $_GET['seconds']);
        echo 'slept';
        break;
    case $path === '/die':
        posix_kill(getmypid(), SIGKILL);
    default:
        http_response_code(404);
        echo 'no page ', $path;
}
