"""A Flask application of the tests, as its documentation writes one."""

import time

from flask import Flask, Response, request

app = Flask(__name__)


@app.get("/flask/page/<name>")
def page(name):
    return "<p>Hello, %s from %s</p>" % (name, request.headers["X-From"])


@app.post("/flask/upload")
def upload():
    file = request.files["file"]
    return {"name": file.filename, "bytes": len(file.read()), "note": request.form["note"]}


@app.get("/flask/stream")
def stream():
    return Response(("%d;" % number for number in range(1000)), mimetype="text/plain")


@app.get("/flask/events")
def events():
    def each():
        for number in range(3):
            yield "data: %d\n\n" % number
            time.sleep(0.01)

    return Response(each(), mimetype="text/event-stream")
