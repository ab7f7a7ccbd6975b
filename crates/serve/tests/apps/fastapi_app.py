"""A FastAPI application of the tests, as its documentation writes one."""

import asyncio
from contextlib import asynccontextmanager

from fastapi import FastAPI, Form, Header, UploadFile, WebSocket, WebSocketDisconnect
from fastapi.responses import HTMLResponse, StreamingResponse

seen = []


@asynccontextmanager
async def lifespan(app):
    yield {"greeting": "Hello"}


app = FastAPI(lifespan=lifespan)


@app.get("/fastapi/page/{name}", response_class=HTMLResponse)
def page(name: str, x_from: str = Header()):
    return "<p>Hello, %s from %s</p>" % (name, x_from)


@app.post("/fastapi/upload")
async def upload(file: UploadFile, note: str = Form()):
    return {"name": file.filename, "bytes": len(await file.read()), "note": note}


@app.get("/fastapi/stream")
async def stream():
    return StreamingResponse(("%d;" % number for number in range(1000)), media_type="text/plain")


@app.get("/fastapi/events")
async def events():
    async def each():
        for number in range(3):
            yield "data: %d\n\n" % number
            await asyncio.sleep(0.01)

    return StreamingResponse(each(), media_type="text/event-stream")


@app.websocket("/fastapi/chat")
async def chat(socket: WebSocket):
    await socket.accept()
    try:
        while True:
            text = await socket.receive_text()
            await socket.send_text("%s: %s" % (socket.state.greeting, text))
    except WebSocketDisconnect as error:
        seen.append(error.code)


@app.get("/fastapi/seen")
def codes():
    return seen
