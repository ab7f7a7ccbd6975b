"""WSGI applications of the tests. Each request passes wsgiref's validator."""

import os
import sys
import time
from wsgiref.validate import validator

IMPORTED_BY = os.getpid()
CLOSED = os.path.join(os.getcwd(), "closed")


class Closing:
    """An answer that notes its close()."""

    def __init__(self, pieces):
        self.pieces = iter(pieces)

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.pieces)

    def close(self):
        with open(CLOSED, "a") as file:
            file.write("closed\n")


def text(start_response, body, status="200 OK", headers=()):
    body = body if isinstance(body, bytes) else body.encode()
    start_response(status, [("Content-Type", "text/plain"), ("Content-Length", str(len(body))), *headers])
    return [body]


def plain(environ, start_response):
    path = environ["PATH_INFO"]
    if path == "/pid":
        return text(start_response, str(os.getpid()))
    if path == "/import":
        return text(start_response, "%d %d %s" % (IMPORTED_BY, os.getpid(), os.environ["RINGROAD_SLOT"]))
    if path == "/slot":
        return text(start_response, os.environ["RINGROAD_SLOT"])
    if path == "/hints":
        environ["wsgi.early_hints"]([("Link", "</a.css>; rel=preload")])
        return text(start_response, "hinted")
    if path == "/exit":
        os._exit(7)
    if path == "/exit-once":
        try:
            os.close(os.open("once", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return text(start_response, "second")
        os._exit(7)
    if path == "/boom":
        raise ValueError("boom of the application")
    if path == "/boom-late":
        start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "100")])

        def pieces():
            yield b"x" * 50
            raise ValueError("late boom")

        return Closing(pieces())
    if path == "/exc-info":
        start_response("200 OK", [("Content-Type", "text/plain")])
        try:
            raise ValueError("replaced")
        except ValueError:
            start_response("500 Oops", [("Content-Type", "text/plain")], sys.exc_info())
        return [b"replaced"]
    if path == "/twice":
        start_response("200 OK", [("Content-Type", "text/plain")])
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b"never"]
    if path == "/write":
        write = start_response("200 OK", [("Content-Type", "text/plain")])
        write(b"written ")
        write(b"twice ")
        return [b"returned"]
    if path == "/headers":
        return text(
            start_response, "", headers=[("X-B", "1"), ("X-A", "2"), ("X-B", "3"), ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")]
        )
    if path == "/latin":
        return text(start_response, ascii(environ["PATH_INFO"]), headers=[("X-Latin", "caf\xe9")])
    if path == "/smuggle":
        return text(start_response, "", headers=[("X-A", "1\r\nX-Evil: 1")])
    if path == "/short":
        start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "100")])
        return [b"short"]
    if path == "/long":
        start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "4")])
        return [b"much too long"]
    if path == "/chunked":
        start_response("200 OK", [("Content-Type", "text/plain")])
        return Closing([b"one ", b"", b"two ", b"three"])
    if path == "/endless":
        start_response("200 OK", [("Content-Type", "text/plain")])

        def pieces():
            while True:
                time.sleep(0.01)
                yield b"x" * 1000

        return Closing(pieces())
    if path == "/sleep":
        time.sleep(float(environ["QUERY_STRING"]))
        return text(start_response, "slept")
    if path == "/print":
        print("printed by the application")
        sys.stdout.write("\x01\x02 raw bytes and a part")
        # The line belongs to this request while it is in progress: until the test has seen it.
        while not os.path.exists("seen"):
            time.sleep(0.01)
        return text(start_response, "printed")
    if path == "/held":
        while not os.path.exists("release"):
            time.sleep(0.01)
        return text(start_response, "held")
    if path == "/echo":
        return text(start_response, environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)))
    if path == "/lines":
        stream = environ["wsgi.input"]
        first = stream.readline()
        rest = list(stream)
        return text(start_response, repr((first, rest, stream.read(10))))
    if path == "/file":
        start_response("200 OK", [("Content-Type", "text/plain")])
        file = open(__file__, "rb")
        file.seek(3)
        return environ["wsgi.file_wrapper"](file, 100)
    if path == "/environ":
        names = environ["QUERY_STRING"].split(",")
        return text(start_response, ascii([environ.get(name) for name in names]))
    if path == "/memory":
        global held
        held = bytearray(int(environ["QUERY_STRING"]))
        return text(start_response, str(os.getpid()))
    return text(start_response, ascii(path))


app = validator(plain)


def factory():
    return app


def of_four(one, two, three, four):
    return app


# The validator hides the file's type, and reads with a size only.
raw = plain
