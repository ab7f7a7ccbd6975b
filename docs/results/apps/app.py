"""What is measured: a page of 12 bytes, an echo and a file of 50 KB, as WSGI and as ASGI."""

import os
import tempfile
import time

PAGE = b"Hello World\n"

handle, PATH = tempfile.mkstemp(prefix="ringroad-apps-")
os.write(handle, b"x" * 50_000)
os.close(handle)


def wsgi(environ, start_response):
    if environ["PATH_INFO"] == "/sleep":
        time.sleep(0.02)
    elif environ["PATH_INFO"] == "/echo":
        environ["wsgi.input"].read()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(PAGE)))])
    return [PAGE]


async def asgi(scope, receive, send):
    if scope["type"] != "http":
        return
    path = scope["path"]
    if path == "/file":
        headers = [(b"content-type", b"text/plain"), (b"content-length", b"50000")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        return await send({"type": "http.response.pathsend", "path": PATH})
    body = PAGE
    if path == "/echo":
        pieces = []
        while True:
            message = await receive()
            pieces.append(message["body"])
            if not message.get("more_body"):
                break
        body = b"".join(pieces)
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
