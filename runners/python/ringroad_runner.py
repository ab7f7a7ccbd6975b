"""Serves a Python application behind Ringroad: WSGI (PEP 3333) or ASGI 3, over RWP/1.

Ringroad starts this file with the control link on descriptor 3 (RINGROAD_FD) and the application as argument. Data links
arrive over the control link. The protocol is docs/APP-PROTOCOL.md. Only the standard library is needed; uvloop is used
if it can be imported. The parts, in order: frames, printed lines, tasks, start, WSGI, ASGI.
"""

import array
import contextvars
import fcntl
import gc
import importlib
import inspect
import io
import json
import marshal
import os
import select
import signal
import socket
import stat
import struct
import sys
import threading
import time
import traceback
from collections import deque

VERSION = 1
HEAD = struct.Struct("<IBBHI")
U32 = struct.Struct("<I")
ANSWER = struct.Struct("<IH")
PIECE = 64 << 10

HELLO, WELCOME, READY, PING, PONG, STOP, DRAIN, LOG, LINK, FORK, LATE, FAILED, EXITED, STEP, PART = range(1, 16)
REQUEST, BODY, CREDIT, ABORT, RESPONSE, INFORMATIONAL, TRAILERS, SENDFILE, RESET, OPENED = range(16, 26)
WS_OPEN, WS_ACCEPT, WS_DATA, WS_CLOSE = range(32, 36)
TASK_SUBMIT, TASK, TASK_DONE, TASK_RESULT, MESSAGE = range(48, 53)
END, FILE_FOLLOWS, FORGET = 1, 2, 4
ANY_SLOT = 0xFFFF
# What aux of TASK_DONE and TASK_RESULT says.
DONE, RAISED_IN_TASK, SILENT, REFUSED, TOO_LATE, DIED = range(6)
TEXT, BINARY = 1, 2
# What a message of a WebSocket costs of the credit beside its bytes, and how long it may be.
MESSAGE_COST, MESSAGE_MOST = 16, 16 << 20
# The longest payload. A longer one says that the two sides do not agree where frames begin: the link is of no use.
PAYLOAD_MOST = 16 << 20
# What STEP says in aux: the control link is read during the step.
READS = 1
# What RESET says in aux: the request failed, it was never begun, the application raised.
FAILED_HERE, UNHANDLED, RAISED = 0, 1, 2
TO_END = (1 << 64) - 1


class ClientDisconnected(OSError):
    """The client has left: nothing more can be sent."""


def frame(kind, stream, payload=b"", flags=0, aux=0):
    return HEAD.pack(len(payload), kind, flags, aux, stream) + payload


def head_payload(lines):
    """Header lines, a flat list of names and values, as an answer's head."""
    joined = b"\0".join(lines)
    return ANSWER.pack(len(joined), len(lines) >> 1) + joined


# -------------------------------------------------------------------------------------------------------- printed lines


# Which request, or task, the code that runs belongs to: a list with its id, or with None when that is over. Threads and
# tasks of the application have it where Python hands contexts on.
SERVED = contextvars.ContextVar("ringroad.served", default=None)
# Parts of a line that are kept for its end.
PART_MOST = 16 << 10


class Printed(io.TextIOWrapper):
    """A standard stream. A line that is printed for a request begins with a mark, which the server knows, and its id.

    A line goes out in one piece, so that those of several threads and requests do not mix."""

    # What the server has said that marks have; without it there are none.
    mark = None

    def __init__(self, stream):
        encoding = stream.encoding
        super().__init__(stream.detach(), encoding=encoding, errors="backslashreplace", line_buffering=True)
        # What was printed of a line, by thread and request.
        self.parts = {}
        # What went out last does not end its line.
        self.inside = False

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError("write() argument must be str, not %s" % type(text).__name__)
        served = SERVED.get()
        request = served[0] if served is not None and self.mark else None
        key = (threading.get_ident(), request)
        whole, ends, part = (self.parts.pop(key, "") + text).rpartition("\n")
        if len(part) >= PART_MOST:
            whole, ends, part = whole + ends + part, "\n", ""
        if part:
            self.parts[key] = part
        if ends:
            self.put(request, whole)
        return len(text)

    def put(self, request, lines):
        """Prints whole lines."""
        if request is not None:
            mark = "\x1f%s %s\x1f" % (self.mark, request)
            lines = mark + lines.replace("\n", "\n" + mark)
            if self.inside:
                lines = "\n" + lines
        self.inside = False
        super().write(lines + "\n")

    def flush(self):
        # The part of a line that belongs to no request. Those of requests wait for their end.
        for key in list(self.parts):
            if key[1] is None:
                super().write(self.parts.pop(key, ""))
                self.inside = True
        super().flush()

    def settle(self, request):
        """A request is over: what it has printed of a line is a line."""
        for key in list(self.parts):
            if key[1] == request:
                self.put(request, self.parts.pop(key, ""))


PRINTED = []


def mark_lines():
    """Has lines on the standard streams tell their request, if the server knows the mark."""
    for name in ("stdout", "stderr"):
        stream = Printed(getattr(sys, name))
        setattr(sys, name, stream)
        setattr(sys, "__%s__" % name, stream)
        PRINTED.append(stream)


def begin_serving(request):
    """What is printed from here on belongs to this request; what end_serving() takes."""
    served = [request]
    SERVED.set(served)
    return served


def end_serving(served):
    request, served[0] = served[0], None
    for stream in PRINTED:
        if stream.parts and request is not None:
            stream.settle(request)


# ---------------------------------------------------------------------------------------------------------------- tasks


class TaskFailed(Exception):
    """A task has no result: `why` is "raised", "refused", "timeout" or "died"."""

    def __init__(self, why, text):
        super().__init__(text)
        self.why = why


class Tasks:
    """What applications import as `ringroad`: functions that task workers run."""

    def __init__(self):
        self.control = None
        self.workers = 0
        # The thread that reads the control link, which may not wait for what it is to read itself.
        self.reader = None
        self.functions = {}
        self.waiting = {}
        self.next = 0
        self.lock = threading.Lock()

    def begin(self, control, welcome):
        self.control, self.workers = control, welcome.get("tasks", 0)

    def module(self):
        """The module `ringroad`."""
        module = type(sys)("ringroad", "Tasks of an application behind Ringroad.")
        module.task, module.submit, module.send = self.task, self.submit, self.send
        module.task_workers = lambda: self.workers
        module.TaskFailed = TaskFailed
        return module

    def task(self, function=None, *, name=None):
        """Makes a function a task: it gets `submit` and `send`. A direct call still calls it here."""
        if function is None:
            return lambda function: self.task(function, name=name)
        name = name or "%s:%s" % (function.__module__, function.__qualname__)
        if name in self.functions and self.functions[name].__qualname__ != function.__qualname__:
            raise ValueError("there are two tasks with the name %s" % name)
        self.functions[name] = function
        function.task_name = name
        function.submit = lambda *args, **kwargs: self.submit(name, *args, **kwargs)
        function.send = lambda *args, **kwargs: self.send(name, *args, **kwargs)
        return function

    def submit(self, name, /, *args, **kwargs):
        """Submits a task. What is returned has result(timeout), and can be awaited."""
        payload = self.payload(name, args, kwargs)
        result = self.future()
        with self.lock:
            self.next = number = self.next % 0xFFFFFFFF + 1
            self.waiting[number] = result
        self.control.send(TASK_SUBMIT, payload, number, 0, ANY_SLOT)
        return result

    def send(self, name, /, *args, **kwargs):
        """Submits a task, the result of which is not wanted."""
        self.control.send(TASK_SUBMIT, self.payload(name, args, kwargs), 1, FORGET, ANY_SLOT)

    def payload(self, name, args, kwargs):
        if self.control is None:
            raise RuntimeError("tasks can be submitted when the application is served, not while it is imported")
        text = json.dumps({"task": getattr(name, "task_name", name), "args": args, "kwargs": kwargs})
        if len(text) > (16 << 20) - 64:
            raise ValueError("a task of %d bytes (at most 16 MiB)" % len(text))
        return text.encode()

    def future(self):
        import concurrent.futures

        tasks = self

        class Result(concurrent.futures.Future):
            def result(self, timeout=None):
                if not self.done() and tasks.reader == threading.get_ident():
                    raise RuntimeError("await the task: result() would hold up the event loop that gets it")
                return super().result(timeout)

            def __await__(self):
                import asyncio

                return asyncio.wrap_future(self).__await__()

        self.future = Result
        return Result()

    def ended(self, number, outcome, payload):
        with self.lock:
            result = self.waiting.pop(number, None)
        if result is None or not result.set_running_or_notify_cancel():
            return
        if outcome == DONE:
            try:
                result.set_result(json.loads(payload))
            except ValueError as error:
                result.set_exception(TaskFailed("raised", "its result is no JSON: %s" % error))
        elif outcome == SILENT:
            result.set_result(None)
        else:
            why = {RAISED_IN_TASK: "raised", REFUSED: "refused", TOO_LATE: "timeout"}.get(outcome, "died")
            result.set_exception(TaskFailed(why, payload.decode("utf-8", "replace")))

    def lost(self):
        """The server is gone: nothing will come."""
        with self.lock:
            numbers = list(self.waiting)
        for number in numbers:
            self.ended(number, DIED, b"the server is gone")


TASKS = Tasks()


class TaskWorker:
    """Runs tasks, one at a time, in the main thread. The control link is read by another one."""

    def __init__(self, control, welcome):
        self.control = control
        self.stop_timeout = welcome.get("stop_timeout_ms", 30000) / 1000
        self.state = threading.Condition()
        self.jobs = deque()
        self.stopping = False
        self.loop = None

    def run(self):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: self.stop())
        threading.Thread(target=self.watch_control, daemon=True, name="ringroad-control").start()
        self.control.send(READY, b"{}")
        while True:
            with self.state:
                # With a limit: a signal's handler runs between two waits.
                while not self.jobs and not self.stopping:
                    self.state.wait(1)
                if not self.jobs:
                    break
                number, payload = self.jobs.popleft()
            served = begin_serving("task %d" % number)
            outcome, result = self.task(payload)
            end_serving(served)
            sys.stdout.flush()
            sys.stderr.flush()
            self.control.send(TASK_DONE, result, number, 0, outcome)
        exit_within(self.stop_timeout)
        sys.exit(0)

    def stop(self):
        # Without the lock: a signal may come while this thread has it.
        self.stopping = True

    def watch_control(self):
        TASKS.reader = threading.get_ident()
        while True:
            frames = self.control.read()
            if frames is None:
                TASKS.lost()
                exit_within(self.stop_timeout)
                frames = [(STOP, b"")]
            for kind, payload in frames:
                if kind == PING:
                    self.control.send(PONG, U32.pack(0) + U32.pack(0))
                elif kind in (TASK, STOP):
                    with self.state:
                        if kind == TASK:
                            self.jobs.append(payload)
                        else:
                            self.stopping = True
                        self.state.notify_all()
                    if kind == STOP and not payload:
                        return

    def task(self, payload):
        """Runs one. How it ended, and its result or the reason."""
        try:
            question = json.loads(payload)
            name = question["task"]
            function = TASKS.functions.get(name)
            if function is None:
                known = ", ".join(sorted(TASKS.functions)) or "none"
                return RAISED_IN_TASK, ("there is no task %r (there are: %s)" % (name, known)).encode()
            result = function(*question.get("args", ()), **question.get("kwargs", {}))
            if inspect.isawaitable(result):
                result = self.wait_for(result)
            text = json.dumps(result).encode()
            if len(text) > (16 << 20) - 64:
                raise ValueError("a result of %d bytes (at most 16 MiB)" % len(text))
            return DONE, text
        except Exception as error:
            traceback.print_exc()
            return RAISED_IN_TASK, ("%s: %s" % (type(error).__name__, error)).encode("utf-8", "replace")

    def wait_for(self, result):
        import asyncio

        async def wait():
            return await result

        # One loop for all, so that connections of the application live longer than a task.
        if self.loop is None:
            self.loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self.loop)
        return self.loop.run_until_complete(wait())


# ---------------------------------------------------------------------------------------------------------------- start


class Control:
    """The control link, blocking."""

    def __init__(self, sock):
        self.sock = sock
        self.buffer = bytearray()
        self.descriptors = deque()
        self.lock = threading.Lock()

    def send(self, kind, payload=b"", stream=0, flags=0, aux=0):
        data = memoryview(frame(kind, stream, payload, flags, aux))
        with self.lock:
            try:
                while data:
                    try:
                        data = data[self.sock.send(data) :]
                    except (BlockingIOError, InterruptedError):
                        # The server reads at any time; only a long task does not fit at once.
                        ready = select.poll()
                        ready.register(self.sock, select.POLLOUT)
                        ready.poll()
            except OSError:
                pass  # The server is gone; the reading side sees it.

    def read(self):
        """Frames that have come, as (kind, payload). None at the end of the link. Results of tasks go their own way."""
        try:
            space = socket.CMSG_SPACE(4 * array.array("i").itemsize)
            data, ancillary, _, _ = self.sock.recvmsg(262144, space)
        except InterruptedError:
            return []
        except OSError:
            return None
        for level, kind, content in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                numbers = array.array("i")
                numbers.frombytes(content[: len(content) - len(content) % numbers.itemsize])
                self.descriptors.extend(beyond_streams(number) for number in numbers)
        if not data:
            return None
        self.buffer += data
        buffer = self.buffer
        frames, at = [], 0
        while len(buffer) - at >= 12:
            length, kind, _, aux, stream = HEAD.unpack_from(buffer, at)
            if length > PAYLOAD_MOST:
                sys.stderr.write("a frame of %d bytes on the control link\n" % length)
                return None
            if len(buffer) - at - 12 < length:
                break
            payload = bytes(buffer[at + 12 : at + 12 + length])
            at += 12 + length
            if kind == TASK_RESULT:
                TASKS.ended(stream, aux, payload)
            elif kind == TASK:
                frames.append((kind, (stream, payload)))
            elif kind == LINK:
                if not self.descriptors:
                    sys.stderr.write("a LINK without a descriptor on the control link\n")
                    return None
                frames.append((kind, self.link()))
            else:
                frames.append((kind, payload))
        del buffer[:at]
        return frames

    def link(self):
        """The socket that came with a LINK frame."""
        sock = socket.socket(fileno=self.descriptors.popleft())
        sock.set_inheritable(False)
        return sock


def is_import(path):
    """Returns whether the code of a path is this runner's, or the machinery of imports."""
    own = is_import.__code__.co_filename
    return path in (own, importlib.__file__) or path.startswith("<frozen importlib")


def beyond_streams(number):
    """The same descriptor, with a number of no standard stream: where one was closed, what is printed would come
    into it."""
    if number > 2:
        return number
    moved = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(number)
    return moved


def open_streams():
    """Opens the standard streams that the application has closed, so that nothing else gets their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def fail(control, text):
    """The application cannot be served: says why and ends."""
    error = sys.exc_info()[1]
    trace = error.__traceback__
    # The application's own part: not this file, and not the import of the module that the target names.
    while trace is not None and is_import(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)
    sys.stderr.flush()
    control.send(FAILED, text.encode("utf-8", "replace"))
    os._exit(3)


def load(control, target, factory):
    """The application that a target names."""
    module, _, attribute = target.partition(":")
    if attribute.endswith("()"):
        attribute, factory = attribute[:-2], True
    control.send(STEP, ("the import of %s" % module).encode("utf-8", "replace"))
    app = importlib.import_module(module)
    for name in attribute.split("."):
        app = getattr(app, name)
    if not factory:
        return app
    control.send(STEP, ("the factory %s()" % attribute).encode("utf-8", "replace"))
    return app()


def tell_aborts():
    """Has SIGABRT, with which the server ends a process that hangs, print where each thread is."""
    try:
        import faulthandler

        faulthandler.enable()
    except (ImportError, OSError, RuntimeError, ValueError):
        pass


def suspended(coroutine):
    """Where a coroutine waits, outermost first, as a traceback shows it; without this file and the event loop."""
    lines = []
    for _ in range(100):
        frame, inner = None, None
        for kind in ("cr", "ag", "gi"):
            frame = getattr(coroutine, kind + "_frame", frame)
            inner = getattr(coroutine, "gi_yieldfrom" if kind == "gi" else kind + "_await", inner)
        if hasattr(coroutine, "get_coro"):
            inner = coroutine.get_coro()
        if frame is not None and frame.f_code.co_filename != is_import.__code__.co_filename:
            lines += traceback.format_list(traceback.StackSummary.extract([(frame, frame.f_lineno)]))
        if inner is None:
            # A step of a generator, or the wait for a task: only its references tell of which.
            known = ("ag_frame", "cr_frame", "get_coro") if frame is None else ()
            found = [one for one in gc.get_referents(coroutine) if any(hasattr(one, name) for name in known)]
            inner = found[0] if found else None
        if inner is None:
            break
        coroutine = inner
    return "".join(lines)


def check_arguments(app, target):
    """Refuses what cannot be called as WSGI applications are, such as a function that makes the application."""
    try:
        signature = inspect.signature(app)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(None, None)
    except TypeError as error:
        try:
            signature.bind()
        except TypeError:
            raise TypeError("%s is no application: called with two arguments, %s" % (target, error)) from None
        text = "%s takes no arguments: it makes the application? Then write --factory (factory = true), or %s()"
        raise TypeError(text % (target, target)) from None


def interface(app):
    """Which protocol an application speaks: "asgi", "asgi2" or "wsgi"."""
    if inspect.isclass(app):
        return "asgi2" if hasattr(app, "__call__") and inspect.iscoroutinefunction(app.__call__) else "wsgi"
    call = getattr(app, "__call__", None)
    if inspect.iscoroutinefunction(app) or inspect.iscoroutinefunction(call):
        return "asgi"
    try:
        required = [
            one
            for one in inspect.signature(app).parameters.values()
            if one.default is one.empty and one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
        ]
    except (TypeError, ValueError):
        return "wsgi"
    if len(required) == 3:
        return "asgi"
    is_function = type(app).__name__ == "function" or inspect.ismethod(app)
    return "asgi2" if is_function and len(required) == 1 else "wsgi"


def main():
    number = int(os.environ.pop("RINGROAD_FD", "3"))
    control = Control(socket.socket(fileno=number))
    control.sock.set_inheritable(False)
    mark_lines()
    target = sys.argv[1]
    sys.argv = [target]
    sys.path.insert(0, os.getcwd())
    tell_aborts()
    welcome = greet(control)
    sys.modules["ringroad"] = TASKS.module()
    try:
        app = load(control, target, welcome.get("factory"))
    except BaseException as error:
        fail(control, "%s: %s" % (type(error).__name__, error))
    kind = None
    try:
        if not callable(app):
            raise TypeError("%s is %s, which cannot be called" % (target, type(app).__name__))
        kind = interface(app)
        if kind == "wsgi":
            check_arguments(app, target)
    except TypeError as error:
        fail(control, str(error))
    open_streams()
    if welcome.get("mold"):
        control, welcome = mold(control)
    TASKS.begin(control, welcome)
    if welcome.get("task"):
        return TaskWorker(control, welcome).run()
    if kind == "wsgi":
        Wsgi(control, app, welcome).run()
    else:
        run_asgi(control, asgi2(app) if kind == "asgi2" else app, welcome)


def greet(control):
    """Says HELLO; what WELCOME says."""
    hello = {"version": VERSION, "pid": os.getpid(), "language": "python", "marks": True}
    control.send(HELLO, json.dumps(hello).encode())
    while True:
        frames = control.read()
        if frames is None:
            os._exit(0)
        if frames:
            break
    welcome = json.loads(frames[0][1])
    for stream in PRINTED:
        stream.mark = welcome.get("mark")
    return welcome


def mold(control):
    """Forks workers, which share the memory of what was imported. Returns in each of them, with its own link."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Objects that are there already are not touched by collections any more, so that their pages stay shared.
    gc.collect()
    gc.freeze()
    control.send(READY, b"{}")
    while True:
        frames = control.read()
        if frames is None:
            os._exit(0)
        for kind, payload in frames:
            if kind == STOP:
                os._exit(0)
            if kind == EXITED:
                reap(U32.unpack(payload)[0])
            if kind != FORK:
                continue
            link, out, err = (control.descriptors.popleft() for _ in range(3))
            sys.stdout.flush()
            sys.stderr.flush()
            try:
                pid = os.fork()
            except OSError as error:
                # The server sees that the link is closed, and tells why.
                pid = -1
                refused = Control(socket.socket(fileno=link))
                refused.send(FAILED, ("fork: %s" % error).encode())
                refused.sock.detach()
            if pid == 0:
                os.setpgid(0, 0)
                os.dup2(out, 1)
                os.dup2(err, 2)
                os.environ.update(json.loads(payload))
                control.sock.close()
                control = Control(socket.socket(fileno=link))
                control.sock.set_inheritable(False)
            for number in (out, err) if pid == 0 else (link, out, err):
                os.close(number)
            if pid == 0:
                return control, greet(control)


def reap(pid):
    """Takes the status of a worker that has ended, and prints it if it is a failure."""
    try:
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:
        return
    if status:
        why = "signal %d" % -status if status < 0 else "exit status %d" % status
        sys.stderr.write("process %d ended with %s\n" % (pid, why))
        sys.stderr.flush()


def exit_within(span):
    """Ends the process when `span` is over, whatever the application does."""

    def end():
        time.sleep(span)
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()


# ----------------------------------------------------------------------------------------------------------------- WSGI


class WsgiLink:
    def __init__(self, sock):
        self.sock = sock
        self.buffer = b""
        self.requests = {}
        self.lock = threading.Lock()

    def send(self, data, request):
        with self.lock:
            if request.parted:
                raise ClientDisconnected("the stream was ended")
            try:
                self.sock.sendall(data)
            except OSError:
                raise ClientDisconnected("the server is gone") from None


class WsgiRequest:
    __slots__ = (
        "link", "stream", "head", "pieces", "ended", "aborted", "credit", "opened", "taken", "is_events", "parted",
    )  # fmt: skip

    def __init__(self, link, stream, head, first, ended, window):
        self.link, self.stream, self.head = link, stream, head
        self.pieces = deque([first]) if first else deque()
        self.ended, self.aborted, self.opened = ended, False, False
        self.credit, self.taken = window, len(first)
        # The answer is a stream of events; it was ended here, and the application has not noticed yet.
        self.is_events = self.parted = False

    def send(self, data):
        self.link.send(data, self)

    def part(self):
        """Ends a stream of events, whatever the application does."""
        if not self.is_events or self.aborted:
            return
        # With the lock: nothing of the application may come behind the end.
        with self.link.lock:
            self.parted = self.aborted = True
            try:
                self.link.sock.sendall(frame(BODY, self.stream, b"", END))
            except OSError:
                pass  # The server is gone; the reading side sees it.


class Input:
    """wsgi.input: the body, as it comes."""

    def __init__(self, server, request):
        self.server, self.request, self.rest = server, request, b""

    def _more(self):
        """Takes the next piece; False at the end."""
        request = self.request
        if not request.pieces and not request.ended:
            self.server.wait_for(lambda: request.pieces or request.ended or request.aborted)
        if request.pieces:
            piece = request.pieces.popleft()
            self.rest = self.rest + piece if self.rest else piece
            request.taken += len(piece)
            if request.taken >= self.server.window // 2 and not request.ended:
                request.send(frame(CREDIT, request.stream, U32.pack(request.taken)))
                request.taken = 0
            return True
        if not request.ended:
            raise ClientDisconnected("the client left before the end of its request")
        return False

    def read(self, size=-1):
        if size is None or size < 0:
            pieces = [self.rest]
            self.rest = b""
            while self._more():
                pieces.append(self.rest)
                self.rest = b""
            return b"".join(pieces)
        while len(self.rest) < size and self._more():
            pass
        data, self.rest = self.rest[:size], self.rest[size:]
        return data

    def readline(self, size=-1):
        most = size if size is not None and size >= 0 else None
        looked = 0
        while True:
            at = self.rest.find(b"\n", looked)
            if at >= 0:
                end = at + 1
                break
            looked = len(self.rest)
            if most is not None and looked >= most or not self._more():
                end = len(self.rest)
                break
        if most is not None:
            end = min(end, most)
        data, self.rest = self.rest[:end], self.rest[end:]
        return data

    def readlines(self, hint=-1):
        lines, total = [], 0
        for line in self:
            lines.append(line)
            total += len(line)
            if hint is not None and 0 < hint <= total:
                break
        return lines

    def __iter__(self):
        return self

    def __next__(self):
        line = self.readline()
        if not line:
            raise StopIteration
        return line


def is_events(lines):
    """Whether an answer with these lines is a stream of events, which has no end and is asked for again."""
    pairs = zip(lines[::2], lines[1::2])
    return any(name.lower() == b"content-type" and value.startswith(b"text/event-stream") for name, value in pairs)


class FileWrapper:
    """wsgi.file_wrapper: a file is sent by the server, anything else in blocks."""

    def __init__(self, filelike, blksize=8192):
        self.filelike, self.blksize = filelike, blksize
        if hasattr(filelike, "close"):
            self.close = filelike.close

    def __iter__(self):
        return self

    def __next__(self):
        data = self.filelike.read(self.blksize)
        if not data:
            raise StopIteration
        return data


class Wsgi:
    """A WSGI application. Each thread serves one request; one of those that wait reads the links for all."""

    def __init__(self, control, app, welcome):
        self.control, self.app, self.welcome = control, app, welcome
        self.window = welcome["window"]
        self.threads = max(1, welcome.get("concurrency") or 1)
        self.stop_timeout = welcome.get("stop_timeout_ms", 30000) / 1000
        self.dev = welcome.get("dev")
        self.state = threading.Condition()
        self.leading = False
        self.waiting = 0
        self.stopping = False
        self.jobs = deque()
        self.links = {}
        self.poll = select.poll()
        self.new_links = deque()
        self.wake_read, self.wake_write = os.pipe()
        os.set_blocking(self.wake_read, False)
        os.set_blocking(self.wake_write, False)
        self.poll.register(self.wake_read, select.POLLIN)

    def run(self):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: self.stop())
        threading.Thread(target=self.watch_control, daemon=True, name="ringroad-control").start()
        for number in range(1, self.threads):
            threading.Thread(target=self.work, daemon=True, name="ringroad-%d" % number).start()
        self.control.send(READY, json.dumps({"codec": "wsgi", "concurrency": self.threads}).encode())
        self.work()
        # The other threads may have requests.
        limit = time.monotonic() + self.stop_timeout
        with self.state:
            while any(link.requests for link in self.links.values()) and time.monotonic() < limit:
                self.state.wait(0.05)
        sys.stdout.flush()
        sys.stderr.flush()
        # Threads of the application may not hold the process up.
        exit_within(self.stop_timeout)
        sys.exit(0)

    def watch_control(self):
        TASKS.reader = threading.get_ident()
        while True:
            frames = self.control.read()
            if frames is None:
                TASKS.lost()
                exit_within(self.stop_timeout)
                return self.stop()
            for kind, content in frames:
                if kind == PING:
                    busy = sum(len(link.requests) for link in list(self.links.values()))
                    self.control.send(PONG, U32.pack(busy) + U32.pack(0))
                elif kind == LINK:
                    self.new_links.append(content)
                    self.wake()
                elif kind == STOP:
                    self.stop()
                elif kind == PART:
                    for link in list(self.links.values()):
                        for request in list(link.requests.values()):
                            request.part()
                    self.wake()

    def stop(self):
        self.stopping = True
        self.wake()

    def wake(self):
        try:
            os.write(self.wake_write, b"w")
        except BlockingIOError:
            pass

    def wait_for(self, ready):
        """Waits until `ready()`. A thread that waits reads the links if no other one does."""
        state = self.state
        with state:
            while True:
                got = ready()
                if got:
                    return got
                if self.leading:
                    self.waiting += 1
                    state.wait()
                    self.waiting -= 1
                    continue
                self.leading = True
                state.release()
                try:
                    events = self.poll.poll()
                finally:
                    state.acquire()
                    self.leading = False
                self.take(events)
                if self.waiting:
                    state.notify_all()

    def look(self):
        """Takes what has come, without waiting, if no other thread waits for it: a client may have left."""
        if self.leading:
            return
        with self.state:
            if not self.leading:
                self.take(self.poll.poll(0))
                if self.waiting:
                    self.state.notify_all()

    def take(self, events):
        """Reads the links that have something."""
        for number, _ in events:
            if number == self.wake_read:
                try:
                    os.read(number, 4096)
                except BlockingIOError:
                    pass
                while self.new_links:
                    sock = self.new_links.popleft()
                    self.links[sock.fileno()] = WsgiLink(sock)
                    self.poll.register(sock, select.POLLIN)
                continue
            link = self.links[number]
            try:
                data = link.sock.recv(262144, socket.MSG_DONTWAIT)
            except (BlockingIOError, InterruptedError):
                continue
            except OSError:
                data = b""
            try:
                usable = data and self.parse(link, link.buffer + data if link.buffer else data)
            except Exception:
                # Not a frame of the protocol. The server replaces a worker that closes a link.
                traceback.print_exc()
                usable = False
            if not usable:
                self.poll.unregister(number)
                del self.links[number]
                for request in link.requests.values():
                    request.aborted = True
                link.sock.close()

    def parse(self, link, buffer):
        """Takes the frames that are whole. False: the link is of no use any more."""
        at, size = 0, len(buffer)
        while size - at >= 12:
            length, kind, flags, _, stream = HEAD.unpack_from(buffer, at)
            start, end = at + 12, at + 12 + length
            if end > size:
                if length > PAYLOAD_MOST:
                    sys.stderr.write("a frame of %d bytes\n" % length)
                    return False
                break
            at = end
            if kind == REQUEST:
                body = start + 4 + U32.unpack_from(buffer, start)[0]
                head, first = buffer[start + 4 : body], buffer[body:end]
                request = WsgiRequest(link, stream, head, first, flags & END, self.window)
                link.requests[stream] = request
                self.jobs.append(request)
                continue
            request = link.requests.get(stream)
            if request is None:
                continue
            if kind == BODY:
                if length:
                    request.pieces.append(buffer[start:end])
                if flags & END:
                    request.ended = True
            elif kind == CREDIT:
                request.credit += U32.unpack_from(buffer, start)[0]
            elif kind == ABORT:
                request.aborted = True
            elif kind == OPENED:
                request.opened = True
        link.buffer = buffer[at:]
        return True

    def next_job(self):
        if self.jobs:
            return self.jobs.popleft()
        return self if self.stopping else None

    def work(self):
        while True:
            request = self.wait_for(self.next_job)
            if request is self:
                if self.waiting:
                    with self.state:
                        self.state.notify_all()
                return
            served = begin_serving(None)
            try:
                Exchange(self, request).run(served)
            except ClientDisconnected:
                pass
            except BaseException:
                traceback.print_exc()
            finally:
                end_serving(served)
                request.link.requests.pop(request.stream, None)


class Exchange:
    """One request of a WSGI application."""

    def __init__(self, server, request):
        self.server, self.request = server, request
        self.status = None
        self.lines = None
        self.sent = False
        self.over = False
        self.declared = None
        self.length = 0

    def run(self, served):
        server, request = self.server, self.request
        try:
            environ = marshal.loads(request.head)
            served[0] = environ.get("ringroad.request_id")
            self.bodyless = environ["REQUEST_METHOD"] == "HEAD"
        except Exception:
            return self.failed(traceback.format_exc())
        environ["wsgi.version"] = (1, 0)
        environ["wsgi.input"] = Input(server, request)
        environ["wsgi.input_terminated"] = True
        environ["wsgi.errors"] = sys.stderr
        environ["wsgi.multithread"] = server.threads > 1
        environ["wsgi.multiprocess"] = True
        environ["wsgi.run_once"] = False
        environ["wsgi.file_wrapper"] = FileWrapper
        environ["wsgi.early_hints"] = self.early_hints
        result = None
        try:
            if request.aborted:
                return
            result = server.app(environ, self.start_response)
            self.answer(result)
        except ClientDisconnected:
            pass
        except Exception:
            self.failed(traceback.format_exc())
        finally:
            # Always, also when the client has left (PEP 3333).
            try:
                if hasattr(result, "close"):
                    result.close()
            except Exception:
                self.failed(traceback.format_exc())
            finally:
                if not self.over:
                    self.over = True
                    request.send(frame(RESET, request.stream, b"given up"))

    def failed(self, text):
        sys.stderr.write(text)
        sys.stderr.flush()
        if not self.over:
            self.over = True
            shown = text.encode("utf-8", "replace") if self.server.dev else b"the application raised an exception"
            self.request.send(frame(RESET, self.request.stream, shown, aux=RAISED))

    def start_response(self, status, headers, exc_info=None):
        if exc_info:
            try:
                if self.sent:
                    raise exc_info[1].with_traceback(exc_info[2])
            finally:
                exc_info = None
        elif self.status is not None:
            raise AssertionError("start_response was called twice without exc_info")
        if not isinstance(status, str):
            raise TypeError("the status must be a str, not %s" % type(status).__name__)
        code = int(status[:3])
        if not 200 <= code <= 999:
            raise ValueError("status %d cannot be sent by an application" % code)
        lines, declared = [], None
        for name, value in headers:
            if not isinstance(name, str) or not isinstance(value, str):
                raise TypeError("header names and values must be str: %r: %r" % (name, value))
            if "\r" in value or "\n" in value or "\0" in value:
                raise ValueError("a header value has a line break: %r: %r" % (name, value))
            lines.append(name.encode("latin-1"))
            lines.append(value.strip().encode("latin-1"))
            if name.lower() == "content-length":
                declared = int(value)
        self.status, self.lines, self.declared = code, lines, declared
        return self.write

    def early_hints(self, headers):
        """Sends 103 with these lines before the answer."""
        lines = []
        for name, value in headers:
            if "\r" in value or "\n" in value or "\0" in value:
                raise ValueError("a header value has a line break: %r: %r" % (name, value))
            lines += (name.encode("latin-1"), value.strip().encode("latin-1"))
        if not self.sent:
            self.request.send(frame(INFORMATIONAL, self.request.stream, head_payload(lines), 0, 103))

    def nothing_allowed(self):
        return self.bodyless or self.status in (204, 304)

    def head(self, flags, body=b""):
        if self.status is None:
            raise AssertionError("the application did not call start_response")
        self.sent = True
        return frame(RESPONSE, self.request.stream, head_payload(self.lines) + body, flags, self.status)

    def write(self, data):
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError("the body must be bytes, not %s" % type(data).__name__)
        request = self.request
        self.server.look()
        if request.aborted:
            raise ClientDisconnected("the client has left")
        begins = not self.sent
        out = self.head(0) if begins else b""
        if self.declared is not None and self.length + len(data) > self.declared and not self.nothing_allowed():
            sys.stderr.write("the answer is longer than its Content-Length; the rest is left out\n")
            data = data[: self.declared - self.length]
        self.length += len(data)
        if self.nothing_allowed():
            data = b""
        data = memoryview(data).cast("B") if not isinstance(data, bytes) else data
        at = 0
        while at < len(data):
            if not request.credit:
                if out:
                    request.send(out)
                    out = b""
                self.server.wait_for(lambda: request.credit or request.aborted)
                if request.aborted:
                    raise ClientDisconnected("the client has left")
            piece = bytes(data[at : at + min(request.credit, PIECE)])
            request.credit -= len(piece)
            at += len(piece)
            out += frame(BODY, request.stream, piece)
        if out:
            request.send(out)
        if begins and self.server.dev:
            # Not before its head was sent: the thread of the control link may end it from here on.
            request.is_events = self.declared is None and is_events(self.lines)

    def answer(self, result):
        request = self.request
        if isinstance(result, FileWrapper) and not self.sent and self.send_file(result):
            return
        try:
            single = len(result) == 1
        except TypeError:
            single = False
        if single and not self.sent:
            for data in result:
                break
            if not isinstance(data, bytes):
                raise TypeError("the body must be bytes, not %s" % type(data).__name__)
            self.length = len(data)
            if self.status is not None and self.declared in (None, len(data)) and len(data) <= request.credit:
                if request.aborted:
                    raise ClientDisconnected("the client has left")
                out = self.head(END, b"" if self.nothing_allowed() and self.declared is not None else data)
                self.over = True
                request.send(out)
                return
            self.length = 0
            self.write(data)
        else:
            for data in result:
                if data:
                    self.write(data)
                    continue
                self.server.look()
                if request.aborted:
                    raise ClientDisconnected("the client has left")
        short = self.declared is not None and self.length < self.declared and not self.nothing_allowed()
        if short:
            text = "the answer has %d bytes, and its Content-Length is %d\n" % (self.length, self.declared)
            return self.failed(text)
        out = self.head(END) if not self.sent else frame(BODY, request.stream, b"", END)
        self.over = True
        request.send(out)

    def send_file(self, wrapper):
        """Lets the server send a regular file. False: it is none."""
        filelike = wrapper.filelike
        try:
            number = filelike.fileno()
            offset = filelike.tell()
            facts = os.fstat(number)
        except (AttributeError, OSError, io.UnsupportedOperation):
            return False
        if not stat.S_ISREG(facts.st_mode) or self.nothing_allowed() or self.status is None:
            return False
        length = max(0, facts.st_size - offset)
        if self.declared is not None:
            if self.declared > length:
                return False
            length = self.declared
        request = self.request
        path = ("/proc/%d/fd/%d" % (os.getpid(), number)).encode()
        payload = struct.pack("<QQ", offset, length) + path
        out = self.head(FILE_FOLLOWS) + frame(SENDFILE, request.stream, payload, END)
        self.over = True
        request.send(out)
        # The descriptor stays open until the server has opened the file.
        self.server.wait_for(lambda: request.opened or request.aborted)
        return True


# ----------------------------------------------------------------------------------------------------------------- ASGI


def asgi2(app):
    """A version 2 application (two calls) as one of version 3."""

    async def call(scope, receive, send):
        await app(scope)(receive, send)

    return call


def run_asgi(control, app, welcome):
    import asyncio

    try:
        import uvloop
    except ImportError:
        uvloop = None
    loop = uvloop.new_event_loop() if uvloop else asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    server = asgi_server(asyncio, loop, control, app, welcome)
    try:
        code = loop.run_until_complete(server.run())
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    # Threads of the application may not hold the process up.
    exit_within(server.stop_timeout)
    sys.exit(code)


def header_lines(headers):
    """Header lines of an application, as a flat list of names and values."""
    lines = []
    for name, value in headers:
        name, value = bytes(name), bytes(value)
        if b"\0" in value or b"\r" in value or b"\n" in value or b"\0" in name:
            raise ValueError("a header has a line break: %r: %r" % (name, value))
        lines.append(name)
        lines.append(value)
    return lines


def asgi_server(asyncio, loop, control, app, welcome):
    window = welcome["window"]
    features = welcome.get("features", ())
    # Flat names: these are used for each request.
    unpack, loads, create_task = HEAD.unpack_from, marshal.loads, loop.create_task
    version = {"version": "3.0", "spec_version": "2.5"}
    socket_version = {"version": "3.0", "spec_version": "2.5"}
    extensions = {}
    if "sendfile" in features:
        extensions["http.response.pathsend"] = {}
        extensions["http.response.zerocopysend"] = {}
    if "informational" in features:
        extensions["http.response.early_hint"] = {}
    if welcome.get("dev"):
        extensions["http.response.debug"] = {}
    with_trailers = dict(extensions)
    if "trailers" in features:
        with_trailers["http.response.trailers"] = {}
    trailers_wanted = (b"te", b"trailers")
    shared_state = {}

    class Side:
        """What tasks of an application wait for: news to receive, and room to send. Several may wait at once."""

        __slots__ = ("waiter", "writer")

        async def wait(self, name):
            future = getattr(self, name)
            if future is None or future.done():
                future = loop.create_future()
                setattr(self, name, future)
            await asyncio.shield(future)

        def notify(self):
            for name in ("waiter", "writer"):
                future = getattr(self, name)
                if future is not None:
                    setattr(self, name, None)
                    if not future.done():
                        future.set_result(None)

    class Request(Side):
        __slots__ = (
            "link", "stream", "scope", "pieces", "ended", "told_end", "aborted", "credit", "taken",
            "status", "lines", "declared", "length", "sent", "over", "bodyless", "trailers", "opened",
        )  # fmt: skip

        def __init__(self, link, stream, scope, first, ended):
            self.link, self.stream, self.scope = link, stream, scope
            self.pieces = first
            self.ended = ended
            self.told_end = self.aborted = self.sent = self.over = self.trailers = False
            self.credit, self.taken = window, len(first)
            self.waiter = self.writer = self.status = self.lines = self.declared = self.opened = None
            self.length = 0
            self.bodyless = scope["method"] == "HEAD"

        async def run(self):
            served = begin_serving(self.scope.get("ringroad.request_id"))
            try:
                result = await app(self.scope, self.receive, self.send)
                if result is not None:
                    sys.stderr.write("the application returned %r instead of None\n" % (result,))
                if not self.over and not self.aborted:
                    self.failed("the application ended before its answer was complete\n")
            except ClientDisconnected:
                if not self.aborted:
                    self.failed(traceback.format_exc())
            except asyncio.CancelledError:
                self.failed("the application cancelled the request\n")
            except BaseException as error:
                # What an application does when its client has left is its own affair.
                if not (self.aborted and isinstance(error, OSError)):
                    self.failed(traceback.format_exc())
                if isinstance(error, (SystemExit, KeyboardInterrupt)):
                    server.stop()
            finally:
                if not self.over:
                    self.over = True
                    self.link.write(frame(RESET, self.stream, b"given up"))
                end_serving(served)
                self.link.requests.pop(self.stream, None)
                if server.stopping and not server.busy():
                    server.wake()

        def failed(self, text):
            sys.stderr.write(text)
            if not self.over:
                self.over = True
                shown = text.encode("utf-8", "replace") if server.dev else b"the application raised an exception"
                self.link.write(frame(RESET, self.stream, shown, 0, RAISED))

        async def receive(self):
            # Behind its answer a request has ended for the application, whatever is left of it.
            if not self.told_end and not self.aborted and not self.over:
                while not self.pieces and not self.ended and not self.aborted:
                    await self.wait("waiter")
                if not self.aborted:
                    body, self.pieces = self.pieces, b""
                    if self.ended:
                        self.told_end = True
                    else:
                        self.taken += len(body)
                        if self.taken >= window // 2:
                            self.link.write(frame(CREDIT, self.stream, U32.pack(self.taken)))
                            self.taken = 0
                    return {"type": "http.request", "body": body, "more_body": not self.ended}
            while not self.aborted and not self.over:
                await self.wait("waiter")
            return {"type": "http.disconnect"}

        def end(self, _code, _reason):
            """The client has left, or the process ends."""
            self.aborted = True
            self.notify()

        def stop(self):
            self.end(0, "")

        def part(self):
            """Ends a stream of events, whatever the application does."""
            if self.sent and not self.over and self.declared is None and is_events(self.lines):
                self.over = True
                self.link.write(frame(BODY, self.stream, b"", END))
                self.stop()

        async def send(self, message):
            kind = message["type"]
            if self.aborted:
                raise ClientDisconnected("the client has left")
            if kind == "http.response.start":
                return self.start(message)
            if kind == "http.response.body":
                body = message.get("body", b"")
                more = message.get("more_body", False)
                if not self.sent and not more and self.status is not None and not self.trailers:
                    # Nearly every answer: one frame.
                    length = len(body)
                    if self.declared in (None, length) and length <= PIECE and not self.over:
                        if self.bodyless and self.declared is not None:
                            body = b""
                        lines = b"\0".join(self.lines)
                        out = b"".join(
                            (
                                HEAD.pack(6 + len(lines) + len(body), RESPONSE, END, self.status, self.stream),
                                ANSWER.pack(len(lines), len(self.lines) >> 1),
                                lines,
                                body,
                            )
                        )
                        # Not before: a body that is no bytes has raised above.
                        self.over = self.sent = True
                        self.link.write(out)
                        return self.notify()
                return await self.body(bytes(body), more)
            if kind == "http.response.trailers":
                return self.send_trailers(message)
            if kind == "http.response.pathsend" and "http.response.pathsend" in extensions:
                self.begin_file(kind)
                return self.send_path(os.fsencode(message["path"]), 0, TO_END)
            if kind == "http.response.zerocopysend" and "http.response.zerocopysend" in extensions:
                return await self.zero_copy(message)
            if kind == "http.response.early_hint" and "http.response.early_hint" in extensions:
                if self.status is not None:
                    raise RuntimeError("http.response.early_hint comes before http.response.start")
                lines = []
                for link in message["links"]:
                    lines += (b"link", bytes(link))
                return self.link.write(frame(INFORMATIONAL, self.stream, head_payload(lines), 0, 103))
            if kind == "http.response.debug":
                return None
            raise RuntimeError("unexpected message %r" % kind)

        def start(self, message):
            if self.status is not None:
                raise RuntimeError("http.response.start was sent twice")
            status = message["status"]
            if not isinstance(status, int) or not 200 <= status <= 999:
                raise ValueError("status %r cannot be sent by an application" % (status,))
            lines, declared = [], None
            for name, value in message.get("headers", ()):
                name, value = bytes(name), bytes(value)
                if b"\0" in value or b"\r" in value or b"\n" in value or b"\0" in name:
                    raise ValueError("a header has a line break: %r: %r" % (name, value))
                lines.append(name)
                lines.append(value)
                if len(name) == 14 and name.lower() == b"content-length":
                    declared = int(value)
            self.trailers = bool(message.get("trailers", False)) and "trailers" in features
            self.lines, self.declared, self.status = lines, declared, int(status)
            if status in (204, 304):
                self.bodyless = True

        def check_open(self):
            if self.status is None:
                raise RuntimeError("http.response.start comes first")
            if self.over:
                raise RuntimeError("the answer is complete already")

        def head(self, flags):
            self.sent = True
            return frame(RESPONSE, self.stream, head_payload(self.lines), flags, self.status)

        async def body(self, body, more):
            self.check_open()
            declared = self.declared
            self.length += len(body)
            if declared is not None and not self.bodyless:
                if self.length > declared:
                    raise RuntimeError("the answer is longer than its Content-Length of %d" % declared)
                if not more and self.length < declared:
                    raise RuntimeError("the answer has %d bytes of %d in its Content-Length" % (self.length, declared))
            if self.bodyless:
                body = b""
            out = b"" if self.sent else self.head(0)
            at, end = 0, len(body)
            while at < end:
                if not self.credit:
                    if out:
                        self.link.write(out)
                        out = b""
                    while not self.credit and not self.aborted:
                        await self.wait("writer")
                    if self.aborted:
                        raise ClientDisconnected("the client has left")
                piece = body[at : at + min(self.credit, PIECE)]
                self.credit -= len(piece)
                at += len(piece)
                out += frame(BODY, self.stream, piece)
            if not more and not self.trailers:
                out += frame(BODY, self.stream, b"", END)
                self.over = True
            if out:
                self.link.write(out)
            if self.over:
                self.notify()
            elif self.link.full is not None:
                await asyncio.shield(self.link.full)

        def send_trailers(self, message):
            self.check_open()
            if not self.trailers:
                raise RuntimeError("http.response.start did not announce trailers")
            lines = []
            for name, value in message.get("headers", ()):
                lines += (bytes(name), bytes(value))
            pending = getattr(self, "opened", None) or []
            pending += lines
            self.opened = pending
            if message.get("more_trailers"):
                return
            out = b"" if self.sent else self.head(0)
            self.over = True
            self.link.write(out + frame(TRAILERS, self.stream, head_payload(pending), END))
            self.notify()

        def begin_file(self, kind):
            self.check_open()
            if self.sent:
                raise RuntimeError("%s comes before http.response.body" % kind)

        def send_path(self, path, offset, length):
            if self.bodyless:
                self.over = True
                self.link.write(self.head(END))
                return self.notify()
            payload = struct.pack("<QQ", offset, length) + path
            out = self.head(FILE_FOLLOWS)
            self.over = True
            self.link.write(out + frame(SENDFILE, self.stream, payload, END))
            self.notify()

        async def zero_copy(self, message):
            self.check_open()
            file = message["file"]
            number = file if isinstance(file, int) else file.fileno()
            offset = message.get("offset")
            if offset is None:
                offset = os.lseek(number, 0, os.SEEK_CUR)
            facts = os.fstat(number)
            count = message.get("count")
            if count is None:
                count = max(0, facts.st_size - offset)
            more = message.get("more_body", False)
            if not self.sent and not more and not self.trailers and stat.S_ISREG(facts.st_mode):
                # The server opens the file by this number, so it has to stay open until then.
                held = os.dup(number)
                self.opened = loop.create_future()
                self.send_path(b"/proc/%d/fd/%d" % (os.getpid(), held), offset, count)
                try:
                    if not self.bodyless:
                        await asyncio.wait_for(asyncio.shield(self.opened), 30)
                except asyncio.TimeoutError:
                    pass
                finally:
                    os.close(held)
                return
            while count:
                piece = await loop.run_in_executor(None, os.pread, number, min(count, PIECE), offset)
                if not piece:
                    raise RuntimeError("the file is shorter than was said")
                offset += len(piece)
                count -= len(piece)
                await self.body(piece, True)
            if not more:
                await self.body(b"", False)

    class Socket(Side):
        """A WebSocket."""

        # State: offered, accepted, answered (with an HTTP response instead), over.
        __slots__ = (
            "link", "stream", "scope", "state", "incoming", "told", "closed", "aborted", "credit", "taken", "response",
            "over", "opened",
        )  # fmt: skip

        def __init__(self, link, stream, scope):
            self.link, self.stream, self.scope = link, stream, scope
            self.state = "offered"
            self.incoming = deque()
            # How it was closed, as (code, reason): by the client, by the application, by the end of the server.
            self.closed = None
            self.told = self.aborted = self.over = False
            self.credit, self.taken = window, 0
            self.waiter = self.writer = self.response = self.opened = None

        async def run(self):
            served = begin_serving(self.scope.get("ringroad.request_id"))
            try:
                result = await app(self.scope, self.receive, self.send)
                if result is not None:
                    sys.stderr.write("the application returned %r instead of None\n" % (result,))
                if self.state == "accepted":
                    self.close(1000, "")
                elif not self.over and not self.aborted:
                    self.failed("the application ended without an answer to the WebSocket\n")
            except asyncio.CancelledError:
                self.failed("the application cancelled the WebSocket\n")
            except BaseException as error:
                # What an application does when its client has left is its own affair.
                if not (self.closed is not None and isinstance(error, OSError)):
                    self.failed(traceback.format_exc())
                if isinstance(error, (SystemExit, KeyboardInterrupt)):
                    server.stop()
            finally:
                if not self.over:
                    if self.state == "accepted":
                        self.close(1011 if self.closed is None else 1000, "")
                    else:
                        self.over = True
                        self.link.write(frame(RESET, self.stream, b"given up"))
                end_serving(served)
                self.link.requests.pop(self.stream, None)
                if server.stopping and not server.busy():
                    server.wake()

        def failed(self, text):
            sys.stderr.write(text)
            if self.over:
                return
            if self.state == "accepted":
                return self.close(1011, "")
            self.over = True
            shown = text.encode("utf-8", "replace") if server.dev else b"the application raised an exception"
            self.link.write(frame(RESET, self.stream, shown, 0, RAISED))

        def close(self, code, reason):
            self.over = True
            if self.closed is None:
                self.closed = (code, reason)
            self.link.write(frame(WS_CLOSE, self.stream, reason.encode("utf-8", "replace"), END, code))
            self.notify()

        def end(self, code, reason):
            """The client's side is over."""
            self.aborted = True
            if self.closed is None:
                self.closed = (code, reason)
            self.notify()

        def stop(self):
            """The process ends: the client may come again to another one."""
            if self.state == "accepted" and not self.over:
                self.close(1012, "the server restarts")
            self.end(1012, "the server restarts")

        def part(self):
            if self.state == "accepted":
                self.stop()

        async def receive(self):
            if not self.told:
                self.told = True
                return {"type": "websocket.connect"}
            incoming = self.incoming
            while not incoming and self.closed is None:
                await self.wait("waiter")
            # An application that has closed is not bothered with what still came.
            if incoming and not self.over:
                message, cost = incoming.popleft()
                self.taken += cost
                if self.taken >= window // 2 and not self.aborted:
                    self.link.write(frame(CREDIT, self.stream, U32.pack(self.taken)))
                    self.taken = 0
                return message
            code, reason = self.closed
            return {"type": "websocket.disconnect", "code": code, "reason": reason}

        async def send(self, message):
            kind = message["type"]
            if self.closed is not None:
                if self.over and not self.aborted:
                    raise RuntimeError("%s behind websocket.close" % kind)
                raise ClientDisconnected("the client has left")
            if kind == "websocket.send" and self.state == "accepted":
                text = message.get("text")
                if text is not None:
                    aux, data = TEXT, text.encode()
                else:
                    aux, data = BINARY, message.get("bytes")
                    if data is None:
                        raise RuntimeError("websocket.send has neither text nor bytes")
                    data = bytes(data)
                if len(data) > MESSAGE_MOST:
                    raise RuntimeError("a message of %d bytes (at most %d)" % (len(data), MESSAGE_MOST))
                while self.credit <= 0:
                    await self.wait("writer")
                    if self.closed is not None:
                        raise ClientDisconnected("the client has left")
                self.credit -= len(data) + MESSAGE_COST
                self.link.write(HEAD.pack(len(data), WS_DATA, 0, aux, self.stream) + data)
                if self.link.full is not None:
                    await asyncio.shield(self.link.full)
                return None
            if kind == "websocket.accept" and self.state == "offered":
                protocol = message.get("subprotocol") or ""
                if protocol and protocol not in self.scope["subprotocols"]:
                    sys.stderr.write("subprotocol %r was not offered, and is left out\n" % protocol)
                    protocol = ""
                lines = header_lines(message.get("headers") or ())
                self.state = "accepted"
                return self.link.write(frame(WS_ACCEPT, self.stream, head_payload(lines) + protocol.encode()))
            if kind == "websocket.close" and self.state in ("offered", "accepted"):
                code, reason = message.get("code") or 1000, message.get("reason") or ""
                if not (1000 <= code <= 1014 and code not in (1004, 1005, 1006) or 3000 <= code <= 4999):
                    raise ValueError("close code %r cannot be sent" % (code,))
                return self.close(code, reason)
            if kind.startswith("websocket.http.response.") and self.state in ("offered", "answered"):
                return await self.answer(kind[len("websocket.") :], message)
            raise RuntimeError("unexpected message %r: the WebSocket is %s" % (kind, self.state))

        async def answer(self, kind, message):
            """An HTTP response instead of the WebSocket."""
            if self.response is None:
                self.response = Request(self.link, self.stream, {"method": "GET"}, b"", True)
                self.response.credit = self.credit
                self.link.requests[self.stream] = self.response
            self.state = "answered"
            try:
                await self.response.send(dict(message, type=kind))
            finally:
                self.over = self.response.over
                if self.response.aborted:
                    self.end(1006, "")
            if self.over:
                # Refused by it.
                self.closed = (1006, "")
                self.notify()

    class Link(asyncio.Protocol):
        def __init__(self):
            self.requests = {}
            # A frame that comes in parts: the parts, their bytes, and the bytes that it has to have.
            self.parts, self.have, self.need = [], 0, 0
            self.out = []
            self.full = None

        def connection_made(self, transport):
            self.transport = transport
            transport.set_write_buffer_limits(1 << 20)
            server.links.add(self)

        def connection_lost(self, error):
            server.links.discard(self)
            self.resume_writing()
            for request in list(self.requests.values()):
                request.end(1001, "the server stops")

        def pause_writing(self):
            self.full = loop.create_future()

        def resume_writing(self):
            full, self.full = self.full, None
            if full is not None and not full.done():
                full.set_result(None)

        def write(self, data):
            # With other requests under way their answers of this turn go in one write.
            if not self.out:
                if len(self.requests) < 2:
                    return self.transport.write(data)
                loop.call_soon(self.flush)
            self.out.append(data)

        def flush(self):
            out, self.out = self.out, []
            self.transport.write(b"".join(out))

        def data_received(self, data):
            if self.have:
                self.parts.append(data)
                self.have += len(data)
                if self.have < self.need:
                    return
                data = b"".join(self.parts)
                self.parts, self.have = [], 0
            buffer = data
            at, size = 0, len(buffer)
            requests = self.requests
            while size - at >= 12:
                length, kind, flags, aux, stream = unpack(buffer, at)
                start, end = at + 12, at + 12 + length
                if end > size:
                    if length > PAYLOAD_MOST:
                        sys.stderr.write("a frame of %d bytes\n" % length)
                        return self.transport.abort()
                    break
                at = end
                if kind == WS_OPEN:
                    scope = loads(buffer[start + 4 : end])
                    scope["asgi"] = socket_version
                    scope["state"] = shared_state.copy()
                    scope["extensions"] = {"websocket.http.response": {}}
                    request = requests[stream] = Socket(self, stream, scope)
                    create_task(request.run())
                    continue
                if kind == REQUEST:
                    body = start + 4 + U32.unpack_from(buffer, start)[0]
                    scope = loads(buffer[start + 4 : body])
                    scope["asgi"] = version
                    scope["state"] = shared_state.copy()
                    scope["extensions"] = with_trailers if trailers_wanted in scope["headers"] else extensions
                    request = Request(self, stream, scope, buffer[body:end], flags & END)
                    requests[stream] = request
                    create_task(request.run())
                    continue
                request = requests.get(stream)
                if request is None:
                    continue
                if kind == BODY:
                    if length:
                        piece = buffer[start:end]
                        request.pieces = request.pieces + piece if request.pieces else piece
                    if flags & END:
                        request.ended = True
                    request.notify()
                elif kind == WS_DATA:
                    piece = buffer[start:end]
                    if aux == TEXT:
                        message = {"type": "websocket.receive", "text": str(piece, "utf-8")}
                    else:
                        message = {"type": "websocket.receive", "bytes": piece}
                    request.incoming.append((message, length + MESSAGE_COST))
                    request.notify()
                elif kind == CREDIT:
                    request.credit += U32.unpack_from(buffer, start)[0]
                    request.notify()
                elif kind == WS_CLOSE:
                    request.end(aux, str(buffer[start:end], "utf-8", "replace"))
                elif kind == ABORT:
                    request.end(1006, "")
                elif kind == OPENED and request.opened is not None and not request.opened.done():
                    request.opened.set_result(None)
            if at < size:
                rest = buffer[at:] if at else buffer
                self.parts, self.have = [rest], size - at
                self.need = 12 + unpack(rest, 0)[0] if size - at >= 12 else 12

    class Server:
        def __init__(self):
            self.links = set()
            self.dev = welcome.get("dev")
            self.stop_timeout = welcome.get("stop_timeout_ms", 30000) / 1000
            self.stopping = False
            self.stopped = loop.create_future()
            self.idle = None

        def busy(self):
            return any(link.requests for link in self.links)

        def wake(self):
            if self.idle is not None and not self.idle.done():
                self.idle.set_result(None)

        def stop(self):
            if not self.stopping:
                self.stopping = True
                if not self.stopped.done():
                    self.stopped.set_result(None)

        async def run(self):
            for number in (signal.SIGTERM,):
                loop.add_signal_handler(number, self.stop)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            loop.set_exception_handler(self.raised)
            control.sock.setblocking(False)
            TASKS.reader = threading.get_ident()
            loop.add_reader(control.sock.fileno(), self.control_ready)
            control.send(STEP, b"lifespan.startup", 0, 0, READS)
            self.lifespan = lifespan = Lifespan()
            started = loop.create_task(lifespan.start())
            await asyncio.wait([started, self.stopped], return_when=asyncio.FIRST_COMPLETED)
            if not started.done():
                # It is not needed any more. What is left open is closed where a cancelled task does that.
                lifespan.task.cancel()
                await asyncio.wait([lifespan.task], timeout=2)
                return 0
            if not started.result():
                sys.stderr.write("the application refused to start (%s)\n" % lifespan.message)
                control.send(FAILED, lifespan.message.encode("utf-8", "replace"))
                return 3
            most = welcome.get("concurrency") or 1000
            ready = {"codec": "asgi", "concurrency": most, "websocket": True}
            control.send(READY, json.dumps(ready).encode())
            await self.stopped
            # The server has waited for requests already: those that are left are streams without an end.
            for link in self.links:
                for request in list(link.requests.values()):
                    request.stop()
            if self.busy():
                self.idle = loop.create_future()
                await asyncio.wait([self.idle], timeout=self.stop_timeout)
            await lifespan.stop()
            for link in list(self.links):
                link.transport.close()
            await asyncio.sleep(0)
            return 0

        def control_ready(self):
            frames = control.read()
            if frames is None:
                TASKS.lost()
                loop.remove_reader(control.sock.fileno())
                exit_within(self.stop_timeout)
                return self.stop()
            for kind, content in frames:
                if kind == PING:
                    begun = loop.time()
                    loop.call_soon(self.pong, begun)
                elif kind == LINK:
                    sock = content
                    sock.setblocking(False)
                    create_task(loop.create_unix_connection(Link, sock=sock))
                elif kind == STOP:
                    self.stop()
                elif kind == PART:
                    for link in self.links:
                        for request in list(link.requests.values()):
                            request.part()
                elif kind == LATE:
                    self.late()

        @staticmethod
        def raised(loop, about):
            """Prints what nothing has caught: for the request of the task that raised, not of the one that runs now."""
            task = about.get("task") or about.get("future")
            where = task.get_context().copy() if hasattr(task, "get_context") else contextvars.Context()
            where.run(loop.default_exception_handler, about)

        def late(self):
            """It has not started in time: says where, and ends."""
            if not self.lifespan.started.done():
                where = suspended(self.lifespan.task)
                sys.stderr.write("lifespan.startup waits here:\n%s" % where if where else "lifespan.startup waits\n")
                sys.stderr.flush()
            os._exit(3)

        def pong(self, begun):
            lag = int((loop.time() - begun) * 1e6)
            busy = sum(len(link.requests) for link in self.links)
            control.send(PONG, U32.pack(busy) + U32.pack(min(lag, 0xFFFFFFFF)))

    class Lifespan:
        """Startup and shutdown of the application, in one task for both."""

        def __init__(self):
            self.incoming = asyncio.Queue()
            self.started = loop.create_future()
            self.ended = loop.create_future()
            self.supported = True
            self.taken = False
            self.message = ""

        async def receive(self):
            message = await self.incoming.get()
            self.taken = True
            return message

        async def run(self):
            scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": shared_state}
            try:
                await app(scope, self.receive, self.send)
            except BaseException as error:
                self.supported = False
                if server.stopping and isinstance(error, asyncio.CancelledError):
                    pass  # Cancelled here: it is not needed any more.
                elif isinstance(error, SystemExit) and not self.started.done():
                    # It has ended the program: a setting is missing, or the like.
                    text = "" if error.code is None else ": %s" % error.code
                    self.refuse("it exited at lifespan.startup" + text)
                elif self.started.done():
                    # It raised at its shutdown, or between.
                    traceback.print_exc()
                elif self.taken:
                    # It has a lifespan, and has failed in it without saying so (lifespan.startup.failed).
                    traceback.print_exc()
                    sys.stderr.write("the application raised at lifespan.startup: it is served without a lifespan\n")
            finally:
                # An application that raises or returns at startup has no lifespan: it is served without.
                for future in (self.started, self.ended):
                    if not future.done():
                        future.set_result(True)

        async def send(self, message):
            kind = message["type"]
            if kind == "lifespan.startup.complete":
                self.resolve(self.started, True)
            elif kind == "lifespan.startup.failed":
                text = message.get("message", "")
                self.refuse("lifespan.startup.failed" + (": %s" % text if text else ", without a message"))
            elif kind in ("lifespan.shutdown.complete", "lifespan.shutdown.failed"):
                if kind.endswith("failed"):
                    sys.stderr.write("lifespan.shutdown.failed: %s\n" % message.get("message", ""))
                self.resolve(self.ended, True)
            else:
                raise RuntimeError("unexpected message %r" % kind)

        def refuse(self, message):
            if not self.started.done():
                self.message = message
                self.started.set_result(False)

        @staticmethod
        def resolve(future, value):
            if not future.done():
                future.set_result(value)

        async def start(self):
            self.task = create_task(self.run())
            self.incoming.put_nowait({"type": "lifespan.startup"})
            return await self.started

        async def stop(self):
            if not self.supported or self.task.done():
                return
            self.incoming.put_nowait({"type": "lifespan.shutdown"})
            await asyncio.wait([self.ended], timeout=self.stop_timeout())
            await asyncio.wait([self.task], timeout=1)

        @staticmethod
        def stop_timeout():
            return welcome.get("stop_timeout_ms", 30000) / 1000

    server = Server()
    return server


if __name__ == "__main__":
    main()
