"""CPU of one PHP worker for a request, without the server: this program speaks RWP/1 to it and counts nothing of its own.

    python3 docs/results/php/worker.py [--runner runners/php/ringroad.php] [--depth N] [--requests N]

`--depth` requests are under way at any time; as many as the worker has answered are sent with the next write. The page has 20
bytes. What is printed is the CPU of the worker's process, which the kernel counts in nanoseconds, divided by the requests.
"""

import argparse
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile

HEAD = struct.Struct("<IBBHI")
HELLO, WELCOME, READY, LINK, REQUEST, RESPONSE, RESET = 1, 2, 3, 9, 16, 20, 24
END = 1
PROGRAM = """<?php
$server = new Swoole\\Http\\Server('127.0.0.1', 9501, SWOOLE_BASE);
$server->set(['worker_num' => 1, 'log_file' => '/dev/null']);
$server->on('request', function ($request, $response) { $response->end('twenty bytes of page'); });
$server->start();
"""
# What a head of a request is in the codecs that a worker of PHP may ask for.
FIELDS = {"method": "GET", "path": "/", "query": None, "version": "1.1", "scheme": "http", "authority": "127.0.0.1:9501",
          "headers": [["host", "127.0.0.1:9501"]], "client": ["127.0.0.1", 4711], "server": ["127.0.0.1", 9501],
          "root_path": "", "body_bytes": 0, "id": "request", "websocket": None}
STRINGS = ["GET", "/", "", "1.1", "http", "127.0.0.1:9501", "127.0.0.1", "4711", "127.0.0.1", "9501", "", "0", "request", "",
           "host", "127.0.0.1:9501"]


def frame(kind, stream=0, payload=b"", flags=0):
    return HEAD.pack(len(payload), kind, flags, 0, stream) + payload


def frames(sock, rest=b""):
    """Frames as they come, as (kind, flags, payload)."""
    while True:
        while len(rest) >= HEAD.size:
            length, kind, flags, _, _ = HEAD.unpack_from(rest)
            if len(rest) < HEAD.size + length:
                break
            yield kind, flags, rest[HEAD.size : HEAD.size + length]
            rest = rest[HEAD.size + length :]
        more = sock.recv(1 << 18)
        if not more:
            sys.exit("the worker has closed its link")
        rest += more


def cpu(pid):
    """Nanoseconds of a process's threads."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/schedstat") as file:
            total += int(file.read().split()[0])
    return total


def measure(options, worker, control):
    came = frames(control)
    kind, _, hello = next(came)
    assert kind == HELLO, kind
    welcome = {"version": 1, "app": "web", "slot": 0, "workers": 1, "tasks": 0, "window": 1 << 18}
    control.sendall(frame(WELCOME, 0, json.dumps(welcome).encode()))
    codec = json.loads(hello)["codec"]
    kind, _, ready = next(came)
    assert kind == READY, kind
    codec = json.loads(ready).get("codec", codec)
    head = "\0".join(STRINGS).encode() if codec == "lines" else json.dumps(FIELDS).encode()
    request = struct.pack("<I", len(head)) + head
    link, theirs = socket.socketpair()
    socket.send_fds(control, [frame(LINK)], [theirs.fileno()])
    theirs.close()
    answers = frames(link)
    stream, sent, got, begun = 1, 0, 0, None
    warm = options.requests // 5
    while got < options.requests + warm:
        out = []
        while sent - got < options.depth:
            out.append(frame(REQUEST, stream, request, END))
            stream, sent = stream + 2, sent + 1
        link.sendall(b"".join(out))
        while sent > got:
            kind, flags, _ = next(answers)
            if kind == RESET:
                sys.exit("the worker gave a request up")
            got += kind == RESPONSE and flags & END
            if got == warm and begun is None:
                begun = cpu(worker.pid)
    spent = (cpu(worker.pid) - begun) / (got - warm)
    print(f"codec {codec}, {options.depth} under way: {spent / 1000:.1f} µs for a request; load average {os.getloadavg()[0]:.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    own = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../runners/php/ringroad.php")
    parser.add_argument("--runner", default=own)
    parser.add_argument("--depth", type=int, default=16)
    parser.add_argument("--requests", type=int, default=20000)
    options = parser.parse_args()
    control, theirs = socket.socketpair()
    with tempfile.NamedTemporaryFile("w", suffix=".php") as program:
        program.write(PROGRAM)
        program.flush()
        runner = os.path.abspath(options.runner)
        command = ["php", "-d", "implicit_flush=1", "-d", f"auto_prepend_file={runner}", program.name]
        environment = dict(os.environ, RINGROAD_FD=str(theirs.fileno()))
        worker = subprocess.Popen(command, env=environment, pass_fds=[theirs.fileno()])
        theirs.close()
        try:
            measure(options, worker, control)
        finally:
            worker.kill()
            worker.wait()


main()
