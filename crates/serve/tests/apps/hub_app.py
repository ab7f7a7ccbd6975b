import asyncio
import os
import urllib.parse
import urllib.request


def publish(port, topic, data):
    form = urllib.parse.urlencode({"topic": topic, "data": data, "private": "on"}).encode()
    url = f"http://127.0.0.1:{port}/.well-known/mercure"
    request = urllib.request.Request(url, form, {"Authorization": "Bearer " + os.environ["PUSH_KEY"]})
    with urllib.request.urlopen(request) as answer:
        return answer.read()


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        return
    form = urllib.parse.parse_qs(scope["query_string"].decode())
    body = await asyncio.to_thread(publish, *(form[name][0] for name in ("port", "topic", "data")))
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})
