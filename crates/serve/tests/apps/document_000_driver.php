<?php
if (defined('SWOOLE_USE_URING_SOCKET') && SWOOLE_USE_URING_SOCKET) {
echo "success : Running with io_uring socket driver\n";
} else {
echo "Waraing : Using legacy epoll driver\n";
}
