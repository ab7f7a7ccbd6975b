"""Applications that submit tasks: WSGI and ASGI."""

import asyncio
import json
import os
import signal
import socket
import threading
import time

import ringroad


@ringroad.task
def add(one, two=0):
    return [one + two, os.getpid(), os.environ.get("RINGROAD_TASK")]


@ringroad.task(name="big")
def big(text, times):
    return text * times


@ringroad.task
async def later(number):
    await asyncio.sleep(0)
    return number + 1


@ringroad.task
def fails():
    raise ValueError("this task fails")


@ringroad.task
def ends():
    os._exit(7)


@ringroad.task
def sleeps(seconds):
    with open("begun", "a") as file:
        file.write("x")
    time.sleep(seconds)
    return "slept"


@ringroad.task
def waits(name):
    with open("begun", "a") as file:
        file.write("x")
    while not os.path.exists(name):
        time.sleep(0.01)
    return "waited"


@ringroad.task
def leaves_its_link():
    """Has the control link closed when there is a file "close", and lives on until there is a file "go"."""
    link = socket.socket(fileno=os.dup(3))
    signal.signal(signal.SIGTERM, lambda *_: open("terminated", "w").close())

    def later():
        while not os.path.exists("close"):
            time.sleep(0.01)
        link.shutdown(socket.SHUT_RDWR)
        while not os.path.exists("go"):
            time.sleep(0.01)

    threading.Thread(target=later).start()


@ringroad.task
def notes(text):
    with open("noted", "a") as file:
        file.write(text + "\n")
    print("noted", text)


def ask(path, query):
    """The task of a path."""
    if path == "/add":
        return add.submit(20, two=22)
    if path == "/big":
        return ringroad.submit("big", "x" * 1_000_000, times=3)
    if path == "/later":
        return later.submit(41)
    if path == "/fails":
        return fails.submit()
    if path == "/ends":
        return ends.submit()
    if path == "/sleeps":
        return sleeps.submit(float(query))
    if path == "/waits":
        return waits.submit(query)
    if path == "/leaves":
        return leaves_its_link.submit()
    if path == "/unknown":
        return ringroad.submit("unknown")
    return None


def shown(result):
    text = json.dumps(result)
    return text if len(text) < 1000 else "%d bytes" % len(text)


def wsgi(environ, start_response):
    path, query = environ["PATH_INFO"], environ.get("QUERY_STRING", "")
    try:
        if path == "/notes":
            body = str(notes.send(query))
        elif path == "/workers":
            body = str(ringroad.task_workers())
        elif path == "/many":
            results = [add.submit(number) for number in range(50)]
            body = str([result.result()[0] for result in results] == list(range(50)))
        elif path == "/pid":
            body = str(os.getpid())
        else:
            body = shown(ask(path, query).result(timeout=30))
    except ringroad.TaskFailed as error:
        body = "%s: %s" % (error.why, error)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [body.encode()]


async def asgi(scope, receive, send):
    assert scope["type"] == "http"
    task = ask(scope["path"], scope["query_string"].decode())
    try:
        if scope["path"] == "/blocks":
            task = add.submit(1)
            try:
                body = str(task.result())
            except RuntimeError as error:
                body = str(error)
            await task
        else:
            body = shown(await task)
    except ringroad.TaskFailed as error:
        body = "%s: %s" % (error.why, error)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body.encode()})
