<?php
/*
 * Swoole's classes in plain PHP (8.1 and later, on Fibers), for programs behind Ringroad and without it.
 *
 * `ringroad serve --app FILE.php` puts this file before FILE.php. A server of the program then gets its requests
 * from Ringroad over RWP/1 (docs/APP-PROTOCOL.md) and does no network I/O for clients itself. As
 * `php -d auto_prepend_file=ringroad.php FILE.php` the same program listens by itself.
 *
 * The classes are in the folder `swoole`, a file for each subject. Start reading at loop.php, which runs
 * coroutines; rwp.php speaks RWP/1, listener.php HTTP/1.1 and WebSocket, manager.php makes the processes.
 * docs/learn/php.md lists what is there and what is not.
 */

// The extension's own classes count.
if (!\extension_loaded('swoole') && !\class_exists(\Ringroad\Loop::class, false)) {
    foreach (['constants', 'printed', 'loop', 'os', 'coroutine', 'event', 'shared', 'process', 'system', 'socket', 'websocket', 'http',
        'http_client', 'client', 'rwp', 'listener', 'manager', 'server', 'functions'] as $ringroad_file) {
        require __DIR__ . "/swoole/$ringroad_file.php";
    }
    unset($ringroad_file);
}
