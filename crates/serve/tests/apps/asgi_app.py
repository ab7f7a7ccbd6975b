"""ASGI applications of the tests."""

import asyncio
import json
import os
import time

EVENTS = os.path.join(os.getcwd(), "events")


def note(text):
    with open(EVENTS, "a") as file:
        file.write(text + "\n")


async def lifespan(scope, receive, send):
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            scope["state"]["started"] = "yes"
            scope["state"]["shared"] = []
            note("startup")
            await send({"type": "lifespan.startup.complete"})
        else:
            note("shutdown")
            await send({"type": "lifespan.shutdown.complete"})
            return


async def text(send, body, status=200, headers=()):
    body = body if isinstance(body, bytes) else body.encode()
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"text/plain"), *headers]})
    await send({"type": "http.response.body", "body": body})


async def read(receive):
    body, messages = b"", 0
    while True:
        message = await receive()
        assert message["type"] == "http.request", message
        body += message["body"]
        messages += 1
        if not message["more_body"]:
            return body


def shown(value):
    return value.decode("latin-1") if isinstance(value, bytes) else repr(value)


async def websocket(scope, receive, send):
    path = scope["path"]
    message = await receive()
    assert message == {"type": "websocket.connect"}, message
    if path == "/ws/refuse":
        await send({"type": "websocket.close", "code": 4000})
        return note("refused: %r" % (await receive(),))
    if path == "/ws/deny":
        start = {"type": "websocket.http.response.start", "status": 401, "headers": [(b"x-why", b"no key")]}
        await send(start)
        await send({"type": "websocket.http.response.body", "body": b"who ", "more_body": True})
        return await send({"type": "websocket.http.response.body", "body": b"are you"})
    if path == "/ws/raise":
        raise ValueError("boom before accept")
    if path == "/ws/nothing":
        return
    if path == "/ws/exit-once":
        try:
            os.close(os.open("once", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            pass
        else:
            os._exit(7)
    if path == "/ws/wait":
        note("ws offered")
        return note("ws left: %r" % (await receive(),))
    offered = scope["subprotocols"]
    chosen = {"/ws/unknown": "unknown"}.get(path, offered[-1] if offered else None)
    await send({"type": "websocket.accept", "subprotocol": chosen, "headers": [(b"x-ws", b"yes"), (b"upgrade", b"x")]})
    if path == "/ws/scope":
        return await send({"type": "websocket.send", "text": json.dumps(scope, default=shown)})
    if path == "/ws/close":
        await send({"type": "websocket.close", "code": 4001, "reason": "caf\xe9"})
        note("ws closed: %r" % (await receive(),))
        try:
            await send({"type": "websocket.send", "text": "more"})
        except RuntimeError as error:
            note("ws behind: %s" % error)
        return
    if path == "/ws/raise-late":
        raise ValueError("boom behind accept")
    if path == "/ws/exit":
        await receive()
        os._exit(7)
    if path == "/ws/flood":
        for number in range(200):
            await send({"type": "websocket.send", "bytes": b"%03d" % number * 10_000})
            note("ws flood %d" % number)
        return
    if path == "/ws/several":

        async def tell():
            for _ in range(20):
                await send({"type": "websocket.send", "bytes": bytes(50_000)})

        await asyncio.gather(*(tell() for _ in range(4)))
        return await send({"type": "websocket.send", "text": "all"})
    if path == "/ws/deaf":
        note("ws deaf")
        while not os.path.exists("hear"):
            await asyncio.sleep(0.01)
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            note("ws disconnect: %s %s" % (message["code"], message["reason"]))
            try:
                await send({"type": "websocket.send", "text": "too late"})
            except OSError as error:
                note("ws send: %s" % type(error).__mro__[1].__name__)
            return
        assert message["type"] == "websocket.receive", message
        await send(dict(message, type="websocket.send"))


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        return await lifespan(scope, receive, send)
    if scope["type"] == "websocket":
        return await websocket(scope, receive, send)
    path = scope["path"]
    if path == "/scope":
        return await text(send, json.dumps(scope, default=shown))
    if path == "/echo":
        return await text(send, await read(receive))
    if path == "/pid":
        return await text(send, str(os.getpid()))
    if path == "/state":
        before = scope["state"].get("mine")
        scope["state"]["mine"] = "set"
        scope["state"]["shared"].append(1)
        return await text(send, "%s %s %d" % (before, scope["state"]["started"], len(scope["state"]["shared"])))
    if path == "/boom":
        raise ValueError("boom of the application")
    if path == "/late":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        raise ValueError("late boom")
    if path == "/nothing":
        return
    if path == "/headers":
        headers = [(b"x-b", b"1"), (b"x-a", b"2"), (b"x-b", b"3"), (b"transfer-encoding", b"chunked"), (b"connection", b"close")]
        return await text(send, "ok", headers=headers)
    if path == "/smuggle":
        return await text(send, "", headers=[(b"x-a", b"1\r\nx-evil: 1")])
    if path == "/long":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
        await send({"type": "http.response.body", "body": b"much too long"})
    if path == "/short":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
        return await send({"type": "http.response.body", "body": b"no"})
    if path.startswith("/shop/raw"):
        return await text(send, "%s root %s" % (scope["raw_path"].decode(), scope["root_path"]))
    if path == "/stream":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for number in range(1000):
            await send({"type": "http.response.body", "body": b"%03d" % number * 1000, "more_body": True})
        return await send({"type": "http.response.body"})
    if path == "/after":
        await text(send, "done")
        try:
            await send({"type": "http.response.body", "body": b"more"})
        except RuntimeError as error:
            note("after: %s" % error)
        note("then: %s" % (await receive())["type"])
        return
    if path == "/events":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        await send({"type": "http.response.body", "body": b"data: 0\n\n", "more_body": True})
        await read(receive)
        message = await receive()
        note("left: %s" % message["type"])
        try:
            await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
        except OSError as error:
            note("send: %s" % type(error).__mro__[1].__name__)
        return
    if path == "/wait":
        note("waiting")
        message = await read(receive) and await receive() or await receive()
        note("left: %s" % message["type"])
        return
    if path == "/block":
        # Holds the event loop up.
        time.sleep(3600)
    if path == "/slot":
        return await text(send, os.environ["RINGROAD_SLOT"])
    if path == "/sleep":
        await asyncio.sleep(float(scope["query_string"]))
        return await text(send, "slept")
    if path == "/trailers":
        offered = "http.response.trailers" in scope["extensions"]
        start = {"type": "http.response.start", "status": 200, "headers": [(b"trailer", b"x-sum")], "trailers": offered}
        await send(start)
        await send({"type": "http.response.body", "body": b"body"})
        if offered:
            await send({"type": "http.response.trailers", "headers": [(b"x-sum", b"42")]})
        return
    if path == "/hints":
        assert "http.response.early_hint" in scope["extensions"]
        await send({"type": "http.response.early_hint", "links": [b"</a.css>; rel=preload", b"</b.js>; rel=preload"]})
        while "slow" in scope["query_string"].decode() and not os.path.exists("seen"):
            await asyncio.sleep(0.01)
        return await text(send, "hinted")
    if path == "/path":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        return await send({"type": "http.response.pathsend", "path": __file__})
    if path == "/zero":
        with open(__file__, "rb") as file:
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
            await send({"type": "http.response.zerocopysend", "file": file, "offset": 3, "count": 20})
        return
    if path == "/zero-parts":
        with open(__file__, "rb") as file:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.zerocopysend", "file": file, "offset": 0, "count": 10, "more_body": True})
            await send({"type": "http.response.zerocopysend", "file": file, "offset": 10, "count": 10})
        return
    await text(send, ascii(path))


def factory():
    return app


async def without_lifespan(scope, receive, send):
    assert scope["type"] == "http"
    await text(send, "served")


async def raises(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        raise ValueError("no database")
    await text(send, "served all the same")


async def exits(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        raise SystemExit("DATABASE_URL is not set")
    await text(send, "never")


class Wrapped:
    """A plain method that returns a coroutine, as of middleware."""

    def __call__(self, scope, receive, send):
        return app(scope, receive, send)


wrapped = Wrapped()


async def refuses(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        return await send({"type": "lifespan.startup.failed", "message": "no database"})
    await text(send, "never")


class Old:
    """An application of version 2."""

    def __init__(self, scope):
        self.scope = scope

    async def __call__(self, receive, send):
        await text(send, "version 2")


def old(scope):
    return Old(scope)
