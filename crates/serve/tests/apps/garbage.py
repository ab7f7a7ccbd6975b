"""Sends the runner for Python what no server sends: frames that are wrong, and bytes that are no frames.

    python3 garbage.py RUNNER

A data link with garbage may be closed, but the process goes on and answers on another one. Garbage on the control link
ends the process. The garbage is the same each time.
"""

import array
import json
import marshal
import os
import random
import socket
import struct
import subprocess
import sys
import tempfile

HEAD = struct.Struct("<IBBHI")
HELLO, WELCOME, READY, LINK, REQUEST, RESPONSE, WS_OPEN, TASK, TASK_RESULT, STEP = 1, 2, 3, 9, 16, 20, 32, 49, 51, 14
PATIENCE = 300

APP = """
def wsgi(environ, start_response):
    start_response("200 OK", [])
    return [b"fine"]

async def asgi(scope, receive, send):
    if scope["type"] != "http":
        raise RuntimeError("only HTTP")
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"fine"})
"""

HEADS = {
    "wsgi": {"REQUEST_METHOD": "GET", "PATH_INFO": "/", "SCRIPT_NAME": "", "QUERY_STRING": "", "wsgi.url_scheme": "http"},
    "asgi": {"type": "http", "method": "GET", "path": "/", "headers": []},
}


def frame(kind, stream=0, payload=b"", flags=0, aux=0):
    return HEAD.pack(len(payload), kind, flags, aux, stream) + payload


class Worker:
    def __init__(self, runner, kind, folder):
        self.kind = kind
        self.control, theirs = socket.socketpair()
        number = theirs.fileno()
        environ = dict(os.environ, RINGROAD_FD=str(number))
        command = [sys.executable, runner, "app:" + kind]
        self.process = subprocess.Popen(command, cwd=folder, env=environ, pass_fds=[number], stderr=subprocess.DEVNULL)
        theirs.close()
        self.control.settimeout(PATIENCE)
        assert self.frame(self.control)[0] == HELLO
        welcome = {"version": 1, "slot": 0, "window": 262144, "concurrency": 2, "stop_timeout_ms": 1000}
        self.control.sendall(frame(WELCOME, payload=json.dumps(welcome).encode()))
        kind = STEP
        while kind == STEP:
            kind = self.frame(self.control)[0]
        assert kind == READY, kind

    def read(self, sock, size):
        data = b""
        while len(data) < size:
            got = sock.recv(size - len(data))
            if not got:
                raise EOFError
            data += got
        return data

    def frame(self, sock):
        length, kind, _, aux, _ = HEAD.unpack(self.read(sock, 12))
        return kind, aux, self.read(sock, length)

    def link(self):
        ours, theirs = socket.socketpair()
        ours.settimeout(PATIENCE)
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [theirs.fileno()]))
        self.control.sendmsg([frame(LINK)], [rights])
        theirs.close()
        return ours

    def request(self, stream=1):
        head = marshal.dumps(HEADS[self.kind], 2)
        return frame(REQUEST, stream, struct.pack("<I", len(head)) + head, flags=1)

    def answers(self, link=None):
        with link or self.link() as link:
            link.sendall(self.request(99))
            while True:
                kind, aux, payload = self.frame(link)
                if kind == RESPONSE and payload.endswith(b"fine"):
                    return aux == 200

    def is_closed(self, link):
        """Reads to the end."""
        try:
            while link.recv(65536):
                pass
        except ConnectionError:
            pass
        return True

    def ends(self):
        self.process.wait(PATIENCE)
        self.control.close()
        return True


def nonsense(chance):
    """A frame that is well formed, and wrong."""
    kind = chance.choice([0, 3, 5, 8, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 31, 32, 33, 34, 35, 36, 48, 50, 200, 255])
    payload = chance.randbytes(chance.randrange(40))
    if kind in (REQUEST, WS_OPEN):
        payload = chance.choice([b"", b"\x01", struct.pack("<I", 2) + b"\xff\xff", struct.pack("<I", 9999) + b"N"])
    return frame(kind, chance.choice([0, 1, 1, 2, 7]), payload, chance.randrange(256), chance.randrange(65536))


def main(runner):
    chance = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "app.py"), "w") as file:
            file.write(APP)
        for kind in ("wsgi", "asgi"):
            worker = Worker(runner, kind, folder)
            assert worker.answers()
            for _ in range(60):
                with worker.link() as link:
                    parts = [nonsense(chance) for _ in range(chance.randrange(1, 8))]
                    if chance.random() < 0.5:
                        parts.insert(0, worker.request())
                    try:
                        link.sendall(b"".join(parts))
                    except ConnectionError:
                        pass
                assert worker.answers(), kind
            for bytes_ in (b"\xff" * 1000, frame(17, 1, b"")[:7], HEAD.pack(0xFFFFFFFF, 16, 0, 0, 1) + b"x" * 100):
                with worker.link() as link:
                    link.sendall(bytes_)
                    link.shutdown(socket.SHUT_WR)
                    assert worker.is_closed(link), kind
                assert worker.answers(), kind
            # What means nothing on the control link is skipped.
            worker.control.sendall(frame(200, payload=b"x") + frame(TASK_RESULT, 77, b"{") + frame(30, 3))
            assert worker.answers() and worker.process.poll() is None, kind
            # What cannot be right ends the process.
            worker.control.sendall(chance.choice([frame(LINK), b"\xff" * 64]))
            assert worker.ends(), kind
    print("nothing has broken it")


main(sys.argv[1])
