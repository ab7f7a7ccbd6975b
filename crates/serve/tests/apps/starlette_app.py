"""A Starlette application of the tests, as its documentation writes one."""

import asyncio

from starlette.applications import Starlette
from starlette.responses import HTMLResponse, JSONResponse, StreamingResponse
from starlette.routing import Route, WebSocketRoute

seen = []


async def page(request):
    return HTMLResponse("<p>Hello, %s from %s</p>" % (request.path_params["name"], request.headers["X-From"]))


async def upload(request):
    async with request.form() as form:
        content = await form["file"].read()
        return JSONResponse({"name": form["file"].filename, "bytes": len(content), "note": form["note"]})


async def stream(request):
    return StreamingResponse(("%d;" % number for number in range(1000)), media_type="text/plain")


async def events(request):
    async def each():
        for number in range(3):
            yield "data: %d\n\n" % number
            await asyncio.sleep(0.01)

    return StreamingResponse(each(), media_type="text/event-stream")


async def chat(socket):
    await socket.accept()
    async for text in socket.iter_text():
        await socket.send_text("Hello: " + text)
    seen.append("left")


async def codes(request):
    return JSONResponse(seen)


app = Starlette(
    routes=[
        Route("/starlette/page/{name}", page),
        Route("/starlette/upload", upload, methods=["POST"]),
        Route("/starlette/stream", stream),
        Route("/starlette/events", events),
        WebSocketRoute("/starlette/chat", chat),
        Route("/starlette/seen", codes),
    ]
)
