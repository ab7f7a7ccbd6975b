"""Mixed load with restarts for as long as you like; what grows and what is left behind.

    python3 soak.py RINGROAD [--minutes 30] [--rate 200] [--driver NAME] [--python PYTHON] [--out OUT.json]

One server, with an ASGI application of two to three workers and two task workers. All at once, over loopback:
`ringroad load` asks for a page at a fixed rate over 16 kept connections; others leave in the middle of a file, send a body of
200 KB, and submit tasks. Every five seconds, in turn: a reload, kill -9 of a worker, a restart of one slot, kill -9 of a task
worker, a change of their number. It ends with 1 if a GET failed, an echo or a task was wrong, or something is left: memory
that grew by a quarter or more from the second quarter to the last one, descriptors, processes, sockets and files.
"""

import argparse
import json
import os
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

APP = '''
import os
import ringroad

PAGE = b"Hello World\\n"
with open("file", "wb") as file:
    file.write(b"x" * 500_000)


@ringroad.task
def double(number):
    return 2 * number


async def app(scope, receive, send):
    if scope["type"] != "http":
        raise RuntimeError("only HTTP")
    path, body = scope["path"], PAGE
    if path == "/task":
        number = int(scope["query_string"])
        try:
            body = b"%d" % await double.submit(number)
        except ringroad.TaskFailed as error:
            body = error.why.encode()
    elif path == "/echo":
        body = b""
        while True:
            message = await receive()
            body += message["body"]
            if not message["more_body"]:
                break
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(body))]
    if path == "/file":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        return await send({"type": "http.response.pathsend", "path": os.path.abspath("file")})
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
'''


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("ringroad")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--rate", type=int, default=200)
    parser.add_argument("--driver")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--out")
    return parser.parse_args()


def children(root):
    """Processes right below `root`, with whether each is a zombie."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/stat" % name) as file:
                    state, parent = file.read().rpartition(")")[2].split()[:2]
            except (OSError, ValueError):
                continue
            if int(parent) == root:
                found[int(name)] = state == "Z"
    return found


def facts(pid):
    with open("/proc/%d/status" % pid) as file:
        text = file.read()
    number = lambda key: int(re.search(key + r":\s+(\d+)", text).group(1))
    return {"rss_kib": number("VmRSS"), "threads": number("Threads"), "descriptors": len(os.listdir("/proc/%d/fd" % pid)),
            "children": len(children(pid))}


def with_marker(marker):
    """Processes that have `marker` in their command line or their folder."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open("/proc/%s/cmdline" % name) as file:
                command = file.read()
            if marker in command or os.readlink("/proc/%s/cwd" % name).startswith(marker):
                found.append("%s %s" % (name, command.replace("\0", " ")))
        except OSError:
            pass
    return found


class Soak:
    def __init__(self, options):
        self.options = options
        self.ringroad = os.path.abspath(options.ringroad)
        self.folder = tempfile.mkdtemp(prefix="soak-")
        # Folders of sockets and files of bodies are made here, so that one that is left is seen.
        self.temporary = os.path.join(self.folder, "tmp")
        os.mkdir(self.temporary)
        self.control = os.path.join(self.folder, "control.sock")
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            self.port = one.getsockname()[1]
        self.write("soak_app.py", APP)
        config = self.write("ringroad.toml", (
            'listen = "127.0.0.1:%d"\ncontrol = "control.sock"\nlog = { file = "log.json", format = "json" }\n'
            '[[app]]\nname = "web"\napp = "soak_app:app"\npython = "%s"\nworkers = 2\nworkers_max = 3\nidle = "5s"\n'
            'max_requests = 5000\ntasks = 2\n'
            '[[route]]\npath = "/metrics"\nkind = "metrics"\nlog = false\n'
            '[[route]]\npath = "/"\nkind = "app"\napp = "web"\n') % (self.port, options.python))
        command = [self.ringroad, "serve", "--config", config]
        command += ["--driver", options.driver] if options.driver else []
        self.said = open(os.path.join(self.folder, "said"), "w")
        environ = dict(os.environ, TMPDIR=self.temporary)
        self.server = subprocess.Popen(command, stdout=self.said, stderr=self.said, env=environ)
        self.over = threading.Event()
        self.counts, self.lock, self.wrong_answers = {}, threading.Lock(), []
        limit = time.monotonic() + 60
        while self.exchange(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")[9:12] != b"200":
            if time.monotonic() > limit:
                sys.exit("it does not serve: see %s" % self.folder)
            time.sleep(0.1)

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w") as file:
            file.write(text)
        return path

    def count(self, name, number=1):
        with self.lock:
            self.counts[name] = self.counts.get(name, 0) + number

    def exchange(self, request):
        try:
            with socket.create_connection(("127.0.0.1", self.port), 5) as one:
                one.settimeout(60)
                one.sendall(request)
                got = b""
                while True:
                    data = one.recv(1 << 16)
                    if not data:
                        return got
                    got += data
        except OSError:
            return b""

    def order(self, *words):
        told = subprocess.run([self.ringroad, "app", *words, "--control", self.control], capture_output=True, text=True)
        return told.stdout if told.returncode == 0 else None

    def kill(self, task):
        """Kills a process that serves, of one kind."""
        told = self.order("status", "--json")
        workers = json.loads(told)[0]["workers"] if told else []
        pids = [one["pid"] for one in workers if one["task"] == task and one["state"] == "ready" and one["pid"]]
        if pids:
            try:
                os.kill(random.choice(pids), signal.SIGKILL)
                self.count("killed task workers" if task else "killed workers")
            except ProcessLookupError:
                pass

    def clients(self):
        body = b"y" * 200_000
        number = 0
        while not self.over.wait(0.2):
            with socket.create_connection(("127.0.0.1", self.port), 5) as one:
                one.settimeout(60)
                one.sendall(b"GET /file HTTP/1.1\r\nHost: a\r\n\r\n")
                one.recv(1000)
            self.count("clients that left")
            got = self.exchange(
                b"POST /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            # A POST of a worker that was killed is 502.
            self.count("echoes" if got.endswith(body) else "echoes that were 502" if got[9:12] == b"502" else "wrong echoes")
            number += 1
            got = self.exchange(b"GET /task?%d HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" % number)
            body_of = got.partition(b"\r\n\r\n")[2]
            # A task is begun once: one of a process that was killed has died.
            is_right = body_of == b"%d" % (2 * number)
            self.count("tasks" if is_right else "tasks that died" if body_of == b"died" else "wrong tasks")
            if not is_right and body_of != b"died" and len(self.wrong_answers) < 10:
                self.wrong_answers.append("task %d: %r" % (number, got[:300]))

    def disturb(self):
        turn = 0
        while not self.over.wait(5):
            what = turn % 5
            turn += 1
            if what == 0:
                self.count("reloads" if self.order("reload") else "failed reloads")
            elif what == 2:
                self.count("restarts" if self.order("restart", "0") else "restarts of a slot without a worker")
            elif what == 4:
                self.count("changes of the number" if self.order("scale", "--tasks", str(1 + turn % 2)) else "failed changes")
            else:
                self.kill(task=what == 3)

    def run(self):
        seconds = int(self.options.minutes * 60)
        command = [self.ringroad, "load", "http://127.0.0.1:%d/" % self.port, "-c", "16", "-r", str(self.options.rate),
                   "-d", "%ds" % seconds, "--json", "-q", "--no-ask"]
        time.sleep(3)
        before, samples = facts(self.server.pid), []
        # A file: with a second in each line the result is longer than a pipe holds.
        result = tempfile.TemporaryFile("w+")
        load = subprocess.Popen(command, stdout=result, stderr=subprocess.DEVNULL)
        threads = [threading.Thread(target=self.clients) for _ in range(2)] + [threading.Thread(target=self.disturb)]
        for thread in threads:
            thread.start()
        limit = time.monotonic() + seconds + 120
        while load.poll() is None and time.monotonic() < limit:
            time.sleep(min(5, seconds / 20))
            samples.append(facts(self.server.pid))
        self.over.set()
        for thread in threads:
            thread.join()
        if load.poll() is None:
            load.kill()
            sys.exit("the load did not end")
        result.seek(0)
        cell = json.load(result)["cells"][0]
        # Workers of earlier generations end, and kept connections of clients are closed.
        time.sleep(10)
        status = json.loads(self.order("status", "--json"))[0]
        after = facts(self.server.pid)
        zombies = [pid for pid, is_zombie in children(self.server.pid).items() if is_zombie]
        self.server.send_signal(signal.SIGTERM)
        code = self.server.wait(90)
        rss = [one["rss_kib"] for one in samples]
        part = max(1, len(rss) // 4)
        quarters = [round(statistics.median(rss[at : at + part])) for at in range(0, part * 4, part)]
        return {
            "minutes": self.options.minutes, "driver": self.options.driver or "default", "sent": cell["sent"],
            "answered": cell["completed"], "failed": cell["errors"], "counts": self.counts, "wrong_answers": self.wrong_answers,
            "replaced": status["restarts"], "before": before, "after": after, "rss_kib_by_quarter": quarters,
            "most_descriptors": max(one["descriptors"] for one in samples), "zombies": zombies, "exit": code,
            "left_behind": with_marker(self.folder), "left_files": os.listdir(self.temporary),
            "load_average": os.getloadavg()[0],
        }


def wrong(result):
    """What is not as it is to be."""
    found = []
    errors = result["failed"]
    if sum(errors.values()) if isinstance(errors, dict) else errors:
        found.append("requests failed: %s" % errors)
    found += ["%d %s" % (result["counts"][name], name) for name in ("wrong echoes", "wrong tasks", "failed reloads", "failed changes")
              if result["counts"].get(name)]
    quarters = result["rss_kib_by_quarter"]
    if quarters[3] > quarters[1] * 1.25:
        found.append("memory grew: %s KiB" % quarters)
    # The driver `threads` keeps up to 64 idle threads, with a descriptor each.
    kept = max(0, result["after"]["threads"] - result["before"]["threads"]) if result.get("driver") == "threads" else 0
    if result["after"]["descriptors"] > result["before"]["descriptors"] + 8 + kept:
        found.append("descriptors: %d before, %d after" % (result["before"]["descriptors"], result["after"]["descriptors"]))
    for name in ("zombies", "left_behind", "left_files"):
        if result[name]:
            found.append("%s: %s" % (name, result[name]))
    if result["exit"] != 0:
        found.append("the server ended with %s" % result["exit"])
    return found


def main():
    options = arguments()
    soak = Soak(options)
    try:
        result = soak.run()
    finally:
        soak.over.set()
        if soak.server.poll() is None:
            soak.server.kill()
            soak.server.wait()
    result["wrong"] = wrong(result)
    text = json.dumps(result, indent=1)
    print(text)
    if options.out:
        with open(options.out, "w") as file:
            file.write(text + "\n")
    sys.exit(1 if result["wrong"] else 0)


main()
