<?php
// What programs expect of Swoole's classes, check by check: prints `ok` or `not ok` with the name of each.
use Swoole\Coroutine;
use Swoole\Coroutine\Channel;
use Swoole\Coroutine\Http\Client;
use Swoole\Process;
use Swoole\Table;

use function Swoole\Coroutine\run;

ini_set('display_errors', '1');

/** The exception that a call throws. */
function thrown(callable $call): string
{
    try {
        $call();
        return 'nothing';
    } catch (Throwable $why) {
        return $why->getMessage();
    }
}

/** What a process prints until it ends. */
function printed(callable $program, ?callable $meanwhile = null): string
{
    $process = new Process($program, true, SOCK_STREAM);
    $process->setTimeout(60);
    $process->start();
    $meanwhile !== null && $meanwhile();
    $text = '';
    while (($part = $process->read()) !== false && $part !== '') {
        $text .= $part;
        if (str_contains($text, 'THE END')) {
            break;
        }
    }
    Process::wait();
    return $text;
}

/** Runs a server in a process while a coroutine asks it. */
function served(Swoole\Server $server, callable $ask): mixed
{
    $process = new Process(fn () => $server->start(), false, 0);
    $process->start();
    $result = null;
    run(function () use ($server, $ask, &$result): void {
        $result = $ask($server->port);
    });
    Process::kill($process->pid, SIGTERM);
    Process::wait();
    return $result;
}

/** An answer, asked for again while the server does not listen yet. */
function answer(int $port, string $path, array $settings = []): Client
{
    $client = new Client('127.0.0.1', $port);
    $client->set($settings + ['timeout' => 60, 'http_compression' => false]);
    for ($try = 0; $try < 1000 && !$client->get($path) && $client->statusCode === -1; $try++) {
        Coroutine::sleep(0.01);
    }
    return $client;
}

function table(): Table
{
    $table = new Table(64);
    $table->column('id', Table::TYPE_INT);
    $table->column('name', Table::TYPE_STRING, 8);
    $table->column('score', Table::TYPE_FLOAT);
    $table->create();
    return $table;
}

$checks = [
    'objects that cannot be made, copied or written down say so' => function (): array {
        $channel = new Channel();
        return [
            [thrown(fn () => new Coroutine()), 'The object of Swoole\Coroutine can not be created for security reasons'],
            [thrown(fn () => $channel->__construct(2)), 'channel has already been constructed'],
            [thrown(fn () => clone $channel), 'Trying to clone an uncloneable object of class Swoole\Coroutine\Channel'],
            [thrown(fn () => serialize(new Swoole\Atomic())), "Serialization of 'Swoole\\Atomic' is not allowed"],
            [thrown(fn () => Swoole\Timer::after(1, ['Nothing', 'there'])), 'Swoole\Timer::after(): Argument #2 ($callback) '
                . 'must be a valid callback, class "Nothing" not found'],
            [thrown(fn () => Coroutine\System::readFile('')), 'Filename cannot be empty'],
        ];
    },
    'keys and values of tables are checked before anything is changed' => function (): array {
        $table = table();
        swoole_async_set(['log_level' => SWOOLE_LOG_ERROR]);
        $table->set('a', ['id' => '42', 'name' => 'too long a name', 'score' => 0.0]);
        swoole_async_set(['log_level' => SWOOLE_LOG_INFO]);
        $stats = $table->stats();
        return [
            [$table->get('a'), ['id' => 42, 'name' => 'too long', 'score' => 0.0]],
            [@$table->set('', ['id' => 1]), false],
            [@$table->set(str_repeat('k', 64), ['id' => 1]), false],
            [@$table->cmpset('a', [], ['id' => 1]), false],
            [@$table->cmpset('a', ['missing' => 1], ['id' => 1]), false],
            [$table->cmpset('a', ['score' => -0.0], ['id' => 1]), false],
            [$table->getdel('a', 'missing'), false],
            [$table->stats(), $stats],
            [$table->cmpset('a', ['id' => 42], ['id' => 43]), true],
            [$table->decr('a', 'id', 3), 40],
            [$table->getdel('a', 'id'), 40],
            [array_slice($table->stats(), 3, 3), ['insert_count' => 1, 'update_count' => 2, 'delete_count' => 1]],
        ];
    },
    'a table that one process destroys is gone for all' => function (): array {
        $table = table();
        $text = printed(function () use ($table): void {
            echo thrown(function () use ($table): void {
                while (true) {
                    $table->get('a');
                }
            }), ' THE END';
        }, fn () => $table->destroy());
        return [[str_contains($text, 'has been destroyed'), true],
            [str_contains(thrown(fn () => $table->get('a')), 'has been destroyed'), true]];
    },
    'a table that was destroyed takes no column' => function (): array {
        $table = table();
        $table->destroy();
        return [[str_contains(thrown(fn () => $table->column('other', Table::TYPE_INT)), 'has been destroyed'), true]];
    },
    'waits for coroutines and locks end as they should' => function (): array {
        $found = [];
        $outside = new Coroutine\Lock();
        $found[] = [$outside->lock(), false];
        $found[] = [$outside->errCode, SWOOLE_ERROR_CO_OUT_OF_COROUTINE];
        run(function () use (&$found): void {
            $found[] = [Coroutine::cancel(Coroutine::getCid()), false];
            $found[] = [swoole_last_error(), SWOOLE_ERROR_CO_CANNOT_CANCEL];
            $found[] = [Coroutine::join([99999]), false];
            $found[] = [swoole_last_error(), SWOOLE_ERROR_INVALID_PARAMS];
            $one = go(fn () => Coroutine::yield());
            $found[] = [Coroutine::join([$one, $one]), false];
            $found[] = [swoole_last_error(), SWOOLE_ERROR_WRONG_OPERATION];
            Coroutine::resume($one);
            $order = [];
            $lock = new Coroutine\Lock();
            $over = new Channel();
            $lock->lock();
            go(function () use ($lock, $over, &$order): void {
                $lock->lock();
                $order[] = 'second';
                $lock->unlock();
                $over->push(true);
            });
            $lock->unlock();
            $order[] = 'first';
            $over->pop();
            $found[] = [$order, ['first', 'second']];
            $channel = new Channel();
            go(function () use ($channel): void {
                Coroutine::setTimeLimit(0.001);
                $channel->push(thrown(fn () => Coroutine::yield()));
            });
            $found[] = [$channel->pop(), 'coroutine execution timed out'];
        });
        return $found;
    },
    'a timer knows that it was cleared in its own callback' => function (): array {
        $found = [];
        run(function () use (&$found): void {
            $done = new Channel();
            Swoole\Timer::tick(1, function (int $id) use ($done): void {
                $before = Swoole\Timer::info($id)['removed'];
                Swoole\Timer::clear($id);
                $done->push([$before, Swoole\Timer::info($id)['removed'], Swoole\Timer::exists($id)]);
            });
            $found[] = [$done->pop(), [false, true, false]];
        });
        return $found;
    },
    'a tick the turns of which were missed runs once' => function (): array {
        $found = [];
        run(function () use (&$found): void {
            $count = 0;
            $timer = Swoole\Timer::tick(1, function () use (&$count): void {
                $count++;
            });
            // What is deferred runs behind the timers of the same turn.
            Swoole\Event::defer(function () use (&$count, &$found, $timer): void {
                $found[] = [$count, 1];
                Swoole\Timer::clear($timer);
            });
            usleep(20_000);
        });
        return $found;
    },
    'a coroutine that is over leaves its fiber, and nothing of its own, to the next one' => function (): array {
        $seen = [];
        $run = static function (string $name) use (&$seen): int {
            Coroutine::getContext()['name'] ??= $name;
            Coroutine::defer(static function () use ($name, &$seen): void {
                $seen[] = "defer $name";
            });
            $seen[] = Coroutine::getContext()['name'];
            $name === 'waits' && Coroutine::sleep(0.001);
            return spl_object_id(Fiber::getCurrent());
        };
        $fibers = [];
        $note = static function (string $name, ?object $held = null) use ($run, &$fibers): void {
            $fibers[$name] = $run($name);
        };
        $held = new class {
            public static int $gone = 0;

            public function __destruct()
            {
                self::$gone++;
            }
        };
        $class = $held::class;
        run(function () use ($note, &$held, &$seen, $class): void {
            go($note, 'waits');
            go($note, 'first', $held);
            $held = null;
            $seen[] = 'gone ' . $class::$gone;
            go($note, 'second');
        });
        return [
            [$seen, ['waits', 'first', 'defer first', 'gone 1', 'second', 'defer second', 'defer waits']],
            [$fibers['first'] === $fibers['second'], true],
            [$fibers['waits'] === $fibers['first'], false],
        ];
    },
    'what a coroutine prints into a buffer is its own' => function (): array {
        $texts = [];
        run(function () use (&$texts): void {
            foreach (['a', 'b'] as $name) {
                go(function () use ($name, &$texts): void {
                    ob_start();
                    echo $name;
                    Coroutine::sleep(0.001);
                    echo $name;
                    $texts[$name] = ob_get_clean();
                });
            }
        });
        return [[$texts, ['a' => 'aa', 'b' => 'bb']]];
    },
    'an exception that nothing catches shows the lines of the program, and then what was deferred runs' => function (): array {
        $text = printed(function (): void {
            register_shutdown_function(static function (): void {
                echo 'THE END';
            });
            run(function (): void {
                defer(static function (): void {
                    echo 'deferred ';
                });
                throw new LogicException('nothing catches it');
            });
        });
        return [[preg_match('/Uncaught LogicException: nothing catches it in .*#0 \[internal function\]: \{closure\}\(\)\s+#1 '
            . '\{main\}.*deferred THE END/s', $text), 1]];
    },
    'coroutines that wait for ever are shown once, down to the function that they were made of' => function (): array {
        $text = printed(function (): void {
            Coroutine::set(['enable_deadlock_check' => true]);
            run(function (): void {
                go(fn () => Coroutine::yield());
                Coroutine::sleep(0.001);
            });
            // Behind the function of the classes that runs what is left to wait for.
            register_shutdown_function(static function (): void {
                echo 'THE END';
            });
        });
        return [[substr_count($text, 'all coroutines (count: 1) are asleep'), 1],
            [preg_match('/^#0  Swoole\\\\Coroutine::yield\(\) called at \[.*\]\n#1  \{closure\}\(\)$/m', $text), 1]];
    },
    'at the end of a worker its program is in no coroutine' => function (): array {
        $file = tempnam(sys_get_temp_dir(), 'stop');
        $server = new Swoole\Http\Server('127.0.0.1', 0, SWOOLE_BASE);
        $server->set(['worker_num' => 1, 'log_file' => '/dev/null']);
        $server->on('request', fn ($request, $response) => $response->end());
        $server->on('workerStop', fn () => run(fn () => file_put_contents($file, 'it ran one')));
        served($server, fn (int $port) => answer($port, '/'));
        $text = file_get_contents($file);
        unlink($file);
        return [[$text, 'it ran one']];
    },
    'a process that nothing catches the exception of ends, also if it waits for its pipe' => function (): array {
        $process = new Process(function (Process $process): void {
            Swoole\Event::add($process->pipe, static fn () => null);
            throw new LogicException('nothing catches it');
        }, true, SOCK_STREAM);
        $process->start();
        return [[Process::wait()['code'], 255]];
    },
    'files of a form with keys in their names are trees, or ordered as in $_FILES' => function (): array {
        $part = "--x\r\nContent-Disposition: form-data; name=\"%s\"; filename=\"%s\"\r\nContent-Type: text/plain\r\n\r\nfour\r\n";
        $body = sprintf($part, 'f', '1') . sprintf($part, 'a[b][]', '2') . sprintf($part, 'a[b][]', '3') . "--x--\r\n";
        $files = static function (bool $split) use ($body): array {
            $request = Swoole\Http\Request::create(['parse_files' => $split]);
            $request->parse("POST / HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=x\r\nContent-Length: "
                . strlen($body) . "\r\n\r\n$body");
            array_map(unlink(...), $request->tmpfiles);
            return $request->files;
        };
        [$trees, $split] = [$files(false), $files(true)];
        return [[$trees['f']['name'], '1'], [$trees['a']['b'][1]['name'], '3'], [$trees['a']['b'][1]['size'], 4],
            [$split['f']['name'], '1'], [$split['a']['name'], ['b' => ['2', '3']]], [$split['a']['size'], ['b' => [4, 4]]]];
    },
    'HEAD is answered with the length that the program gives, and uploads have a limit of their own' => function (): array {
        $server = new Swoole\Http\Server('127.0.0.1', 0, SWOOLE_BASE);
        $server->set(['worker_num' => 1, 'log_file' => '/dev/null', 'package_max_length' => 65536,
            'upload_max_filesize' => 1 << 20]);
        $server->on('request', function ($request, $response): void {
            $request->server['request_method'] === 'HEAD' && $response->header('Content-Length', '51');
            $response->end((string) ($request->files['f']['size'] ?? ''));
        });
        return served($server, function (int $port): array {
            $client = answer($port, '/');
            $client->setMethod('HEAD');
            $client->execute('/');
            $found = [[$client->headers['content-length'], '51']];
            $client->setMethod('POST');
            $client->addData(str_repeat('x', 100000), 'f', 'text/plain', 'f');
            $client->execute('/');
            $found[] = [$client->body, '100000'];
            $client->post('/', str_repeat('x', 100000));
            return [...$found, [$client->statusCode, 413]];
        });
    },
    'cookies are written as they were set' => function (): array {
        $cookie = (new Swoole\Http\Cookie())->withName('n')->withValue('a b;c');
        $whole = (clone $cookie)->withPath('/p')->withSecure(true);
        return [[$cookie->toString(), 'n=a+b%3Bc'], [$whole->toString(), 'n=a+b%3Bc; path=/p; secure'],
            [array_keys($cookie->toArray()), ['name', 'value', 'path', 'domain', 'sameSite', 'priority', 'encode', 'expires',
                'secure', 'httpOnly', 'partitioned']]];
    },
    'the client for HTTP refuses what no server takes' => function (): array {
        $client = new Client('127.0.0.1', 1);
        $found = [[thrown(fn () => new Client('127.0.0.1', 65536)), 'The port is invalid'],
            [@$client->set(['max_retries' => -1]), false], [@$client->set(['write_func' => 'no_function']), false]];
        $server = new Swoole\Http\Server('127.0.0.1', 0, SWOOLE_BASE);
        $server->set(['log_file' => '/dev/null']);
        $server->on('request', function ($request, $response) use ($server): void {
            static $count = 0;
            if ($request->server['request_uri'] === '/cut' && $count++ === 0) {
                $server->close($request->fd);
            } else {
                $response->end('whole');
            }
        });
        [$cut, $again, $long] = served($server, function (int $port): array {
            answer($port, '/');
            $client = answer($port, '/cut');
            $cut = [$client->statusCode, $client->get('/cut'), $client->body];
            $client->setHeaders(['X-Long' => str_repeat('x', 70000)]);
            return [$cut, answer($port, '/')->body, thrown(fn () => $client->get('/'))];
        });
        return [...$found, [$cut, [-3, true, 'whole']], [$again, 'whole'],
            [str_contains($long, 'longer than 65536 bytes'), true]];
    },
    'a server of TCP inside a coroutine answers' => function (): array {
        $found = [];
        run(function () use (&$found): void {
            $server = new Coroutine\Server('127.0.0.1', 0);
            $server->handle(function ($connection) use ($server): void {
                $connection->send('got ' . $connection->recv());
                $connection->close();
                $server->shutdown();
            });
            go(fn () => $server->start());
            $client = new Coroutine\Client(SWOOLE_SOCK_TCP);
            $client->connect('127.0.0.1', $server->port, 60);
            $client->send('this');
            $found[] = [$client->recv(60), 'got this'];
        });
        return $found;
    },
    'parts of messages of WebSocket follow each other, packed or not' => function (): array {
        $found = [];
        run(function () use (&$found): void {
            $server = new Coroutine\Http\Server('127.0.0.1', 0);
            $server->set(['websocket_compression' => true]);
            $server->handle('/', function ($request, $response) use (&$found): void {
                $response->upgrade();
                while ($frame = $response->recv()) {
                    $response->push($frame->data);
                }
            });
            go(fn () => $server->start());
            $client = new Client('127.0.0.1', $server->port);
            $client->set(['websocket_compression' => true, 'timeout' => 60]);
            $found[] = [$client->upgrade('/'), true];
            Coroutine::set(['log_level' => SWOOLE_LOG_ERROR]);
            $found[] = [$client->push('x', WEBSOCKET_OPCODE_CONTINUATION, 0), false];
            Coroutine::set(['log_level' => SWOOLE_LOG_INFO]);
            $client->push('one ', WEBSOCKET_OPCODE_TEXT, 0);
            $client->push('two', WEBSOCKET_OPCODE_CONTINUATION, SWOOLE_WEBSOCKET_FLAG_FIN);
            $found[] = [$client->recv()->data, 'one two'];
            $packer = deflate_init(ZLIB_ENCODING_RAW);
            $client->push(deflate_add($packer, 'packed ', ZLIB_NO_FLUSH), WEBSOCKET_OPCODE_TEXT,
                SWOOLE_WEBSOCKET_FLAG_COMPRESS | SWOOLE_WEBSOCKET_FLAG_RSV1);
            $client->push(deflate_add($packer, 'too', ZLIB_FINISH), WEBSOCKET_OPCODE_CONTINUATION, SWOOLE_WEBSOCKET_FLAG_FIN);
            $found[] = [$client->recv()->data, 'packed too'];
            $found[] = [@Swoole\WebSocket\Frame::pack(str_repeat('x', 126), WEBSOCKET_OPCODE_PING), ''];
            $client->close();
            $server->shutdown();
        });
        return $found;
    },
    'more requests than a server takes at once get 503, and more than a worker takes wait' => function (): array {
        $run = static function (array $settings, int $count, int $begin, callable $meanwhile): array {
            [$begun, $go] = [new Swoole\Atomic(0), new Swoole\Atomic(0)];
            $server = new Swoole\Http\Server('127.0.0.1', 0, SWOOLE_BASE);
            $server->set($settings + ['worker_num' => 1, 'log_file' => '/dev/null']);
            $server->on('request', function ($request, $response) use ($begun, $go): void {
                $request->server['request_uri'] === '/slow' && $begun->add();
                while ($request->server['request_uri'] === '/slow' && $go->get() === 0) {
                    Coroutine::sleep(0.001);
                }
                $response->end((string) Swoole\Coroutine::stats()['coroutine_peak_num']);
            });
            return served($server, function (int $port) use ($count, $begin, $begun, $go, $meanwhile): array {
                answer($port, '/');
                [$got, $all] = [[], []];
                for ($number = 0; $number < $count; $number++) {
                    $all[] = go(function () use ($port, &$got): void {
                        $got[] = answer($port, '/slow')->statusCode;
                    });
                }
                for ($try = 0; $begun->get() < $begin && $try < 60000; $try++) {
                    Coroutine::sleep(0.001);
                }
                $found = $meanwhile($port);
                $go->set(1);
                Coroutine::join($all);
                return [array_count_values($got), $found, answer($port, '/')->body];
            });
        };
        [$served, $refused] = $run(['max_concurrency' => 1], 1, 1, fn (int $port) => answer($port, '/')->statusCode);
        [$waited, , $peak] = $run(['worker_max_concurrency' => 2], 5, 2, fn () => null);
        return [[$served, [200 => 1]], [$refused, 503], [$waited, [200 => 5]], [$peak, '2']];
    },
    'requests of all processes are counted, and the number of a connection names its process' => function (): array {
        $server = new Swoole\Http\Server('127.0.0.1', 0, SWOOLE_PROCESS);
        $server->set(['worker_num' => 2, 'log_file' => '/dev/null']);
        $server->on('request', function ($request, $response) use ($server): void {
            $response->end(json_encode([$server->stats()['request_count'], $request->fd, $server->worker_id]));
        });
        $told = served($server, function (int $port): array {
            $told = [];
            for ($number = 0; $number < 20; $number++) {
                $told[] = json_decode(answer($port, '/')->body);
            }
            return $told;
        });
        $named = array_filter($told, static fn ($one) => ($one[1] - 1) % 2 === $one[2]);
        return [
            [array_column($told, 0), range(1, 20)],
            [count(array_unique(array_column($told, 1))), 20],
            [count($named), 20],
        ];
    },
    'a process that the program adds submits tasks, and cannot wait for them' => function (): array {
        $file = tempnam(sys_get_temp_dir(), 'task');
        $server = new Swoole\Http\Server('127.0.0.1', 0, SWOOLE_PROCESS);
        $server->set(['worker_num' => 1, 'task_worker_num' => 1, 'log_file' => '/dev/null']);
        $server->on('request', fn ($request, $response) => $response->end((string) file_get_contents($file)));
        $server->on('task', function ($server, $id, $from, $data) use ($file): int {
            return file_put_contents($file, json_encode([$data, $server->taskworker]));
        });
        $server->on('finish', fn () => null);
        $server->addProcess(new Process(function () use ($server): void {
            $waited = @$server->taskwait('never', 60);
            $server->task(['a task', $waited]);
            while (true) {
                sleep(1);
            }
        }));
        $told = served($server, function (int $port): string {
            for ($text = ''; $text === ''; $text = (string) answer($port, '/')->body) {
                Coroutine::sleep(0.01);
            }
            return $text;
        });
        unlink($file);
        return [[json_decode($told), [['a task', false], true]]];
    },
    'a process that the program adds sends to connections' => function (): array {
        $server = new Swoole\Server('127.0.0.1', 0, SWOOLE_PROCESS);
        $server->set(['worker_num' => 2, 'log_file' => '/dev/null']);
        $process = new Process(function (Process $process) use ($server): void {
            while (true) {
                $server->send((int) $process->read(), 'from the process');
            }
        }, false, SOCK_STREAM);
        $server->addProcess($process);
        $server->on('receive', fn ($server, $fd) => $process->write((string) $fd));
        $told = served($server, function (int $port): string|false {
            $client = new Coroutine\Client(SWOOLE_SOCK_TCP);
            while (!@$client->connect('127.0.0.1', $port, 60)) {
                Coroutine::sleep(0.01);
            }
            $client->send('send it');
            return $client->recv(60);
        });
        return [[$told, 'from the process']];
    },
    'the log goes to the file that was set' => function (): array {
        $file = tempnam(sys_get_temp_dir(), 'log');
        swoole_async_set(['log_file' => $file]);
        swoole_ignore_error(777);
        swoole_error_log_ex(SWOOLE_LOG_WARNING, 777, 'ignored');
        swoole_error_log_ex(SWOOLE_LOG_WARNING, 778, 'noted');
        swoole_async_set(['log_file' => '']);
        $text = (string) file_get_contents($file);
        unlink($file);
        return [[preg_match('/^\[[^\]]+\]\tWARNING\t\(ERRNO 778\): noted\n$/', $text), 1]];
    },
    'exec tells how a command has ended' => function () {
        $ended = [];
        run(function () use (&$ended) {
            foreach (['exit 3', 'echo a; exit 4', 'kill -9 $$', 'sleep 0.02; exit 5'] as $command) {
                $ended[] = array_values(Coroutine\System::exec($command));
            }
        });
        return [[$ended, [[3, 0, ''], [4, 0, "a\n"], [0, 9, ''], [5, 0, '']]]];
    },
    'names of a form that the client sends end nothing' => function () {
        $sent = '';
        run(function () use (&$sent) {
            $server = new Coroutine\Http\Server('127.0.0.1', 0);
            $server->handle('/', function ($request, $response) use (&$sent, $server) {
                $sent = $request->rawContent();
                $response->end();
                $server->shutdown();
            });
            Coroutine::create(fn () => $server->start());
            $client = new Client('127.0.0.1', $server->port);
            $client->addData('bytes', "a\"b", 'text/plain', "c\"\r\nX: d");
            $client->post('/', ["e\"f" => 'g']);
        });
        run(function () use (&$refused) {
            $refused = thrown(fn () => (new Client('127.0.0.1', 1))->get("/ HTTP/1.1\r\nX: y"));
        });
        return [[str_contains($sent, 'name="a%22b"; filename="c%22%0D%0AX: d"'), true], [str_contains($sent, 'name="e%22f"'), true],
            [$refused, 'the method or the path has a control character']];
    },
];

foreach ($checks as $name => $check) {
    $wrong = '';
    try {
        foreach ($check() as $number => [$found, $wanted]) {
            if ($found !== $wanted) {
                $wrong .= " [$number: " . json_encode($found) . ' and not ' . json_encode($wanted) . ']';
            }
        }
    } catch (Throwable $why) {
        $wrong = " [$why]";
    }
    echo $wrong === '' ? 'ok ' : 'not ok ', $name, str_replace("\n", ' ', $wrong), "\n";
}
echo "end\n";
