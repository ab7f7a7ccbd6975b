"""What clients see while workers are reloaded, killed, overloaded and held up; each part is a command.

    python3 prove.py RINGROAD VENV OUT.json reload [SERVER ...]     100 reloads under load
    python3 prove.py RINGROAD VENV OUT.json kill [SERVER ...]       kill -9 of a worker each second for a minute
    python3 prove.py RINGROAD VENV OUT.json queue                   twice as many requests as two workers can answer
    python3 prove.py RINGROAD VENV OUT.json uploads                 1,000 slow uploads beside other requests, one worker

VENV is a virtual environment with gunicorn, uvicorn[standard] and granian, and is made if it is not there. The load of `reload` and `kill`
is `ringroad load` with a fixed rate, so that all servers have the same work. OUT.json keeps the results of earlier parts. All of it
together, for as long as you like, is soak.py.

Beside what the clients see there is what Ringroad itself counts: requests that were repeated, those that waited for a worker and for
how long, and how long refusals took by its log. On a busy machine these say more than the times of a client that waits for a
processor as well.
"""

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time

import peers

HERE = os.path.dirname(os.path.abspath(__file__))
if len(sys.argv) < 5:
    sys.exit(__doc__)
RINGROAD, VENV, OUT = (os.path.abspath(one) for one in sys.argv[1:4])
RATE, CONNECTIONS = 200, 16
RELOADS, SECONDS = 100, 60


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def children(root):
    """Processes right below `root`."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/stat" % name) as file:
                    parent = int(file.read().rpartition(")")[2].split()[1])
                with open("/proc/%s/cmdline" % name) as file:
                    command = file.read()
            except (OSError, ValueError):
                continue
            if parent == root and "resource_tracker" not in command:
                found.append(int(name))
    return found


class Server:
    """A server with two workers."""

    def __init__(self, name, app="asgi", more=""):
        self.name, self.port = name, free_port()
        self.folder = tempfile.mkdtemp(prefix="prove-")
        self.control = os.path.join(self.folder, "control.sock")
        port, venv = str(self.port), VENV + "/bin/"
        if name.startswith("ringroad"):
            config = os.path.join(self.folder, "ringroad.toml")
            app = "wsgi" if "wsgi" in name else app
            if "preload" in name:
                more = "workers = 2\npreload = true"
            with open(config, "w") as file:
                file.write(
                    'listen = "127.0.0.1:%s"\ncontrol = "%s"\nlog = { file = "log.json", format = "json" }\n'
                    '[[app]]\nname = "web"\napp = "app:%s"\ndirectory = "%s"\npython = "%s"\n%s\n'
                    '[[route]]\npath = "/metrics"\nkind = "metrics"\nlog = false\n'
                    '[[route]]\npath = "/"\nkind = "app"\napp = "web"\n'
                    % (port, self.control, app, HERE, venv + "python", more or "workers = 2")
                )
            command = [RINGROAD, "serve", "--config", config]
        else:
            command = {
                "gunicorn": [venv + "gunicorn", "app:wsgi", "-k", "gthread", "--threads", "8", "-w", "2", "-b", "127.0.0.1:" + port],
                "uvicorn": [venv + "uvicorn", "app:asgi", "--workers", "2", "--port", port, "--no-access-log"],
                "granian": [venv + "granian", "--interface", "asgi", "app:asgi", "--workers", "2", "--port", port,
                            "--respawn-failed-workers"],
            }[name]
        self.log = open(os.path.join(self.folder, "log"), "w")
        self.process = subprocess.Popen(command, cwd=HERE, stdout=self.log, stderr=self.log)
        limit = time.monotonic() + 60
        while ask(self.port) != 200:
            if time.monotonic() > limit:
                sys.exit("%s does not serve: see %s" % (name, self.folder))
            time.sleep(0.1)
        time.sleep(2)

    def control_do(self, verb):
        command = [RINGROAD, "app", verb, "--control", self.control] + (["--json"] if verb == "status" else [])
        return subprocess.run(command, capture_output=True, text=True)

    def reload(self):
        if self.name.startswith("ringroad"):
            return self.control_do("reload").returncode == 0
        self.process.send_signal(signal.SIGHUP)
        # They do not say when it is done.
        time.sleep(1.5)
        return self.process.poll() is None

    def counted(self):
        """What Ringroad counts: requests that were repeated, that waited for a worker, and the time of that."""
        if not self.name.startswith("ringroad"):
            return {}
        counted = {}
        for line in page(self.port, "/metrics").splitlines():
            name, _, value = line.rpartition(" ")
            if "_bucket" in name or not name.startswith("ringroad_app_"):
                continue
            for key, short in [("retries_total", "repeated"), ("queue_seconds_count", "waited"),
                               ("queue_seconds_sum", "waited_s"), ("worker_restarts_total", "")]:
                if name.startswith("ringroad_app_" + key):
                    short = short or "replaced " + name.split('why="')[1].split('"')[0]
                    counted[short] = round(float(value), 3)
        return counted

    def logged(self, status):
        """Durations of answers with this status, by Ringroad's own log."""
        durations = []
        with open(os.path.join(self.folder, "log.json")) as file:
            for line in file:
                entry = json.loads(line)
                if entry.get("status") == status:
                    durations.append(entry["duration_s"])
        return durations

    def workers(self):
        # A process that forks workers (preload) is none itself.
        below = children(self.process.pid)
        return [worker for one in below for worker in (children(one) or [one])]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return "killed"
        return self.process.returncode


def kill(pid):
    """Kills a process; whether it was there still."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return 0
    return 1


def ask(port, path="/"):
    try:
        with socket.create_connection(("127.0.0.1", port), 2) as one:
            one.settimeout(5)
            one.sendall(b"GET %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" % path.encode())
            return int(one.recv(100)[9:12])
    except (OSError, ValueError):
        return None


def page(port, path):
    """A page as a text."""
    with socket.create_connection(("127.0.0.1", port), 5) as one:
        one.settimeout(20)
        one.sendall(b"GET %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" % path.encode())
        got = b""
        while True:
            data = one.recv(65536)
            if not data:
                return got.decode("utf-8", "replace")
            got += data


def load(port, seconds):
    command = [RINGROAD, "load", "http://127.0.0.1:%d/" % port, "-c", str(CONNECTIONS), "-r", str(RATE), "-d", "%ds" % seconds]
    return subprocess.Popen(command + ["--json", "-q", "--no-ask"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def figures(process):
    out, _ = process.communicate(timeout=900)
    cell = json.loads(out)["cells"][0]
    response = cell["latency_us"]["response"]
    return {
        "sent": cell["sent"],
        "answered": cell["completed"],
        "failed": cell["errors"],
        "p50_ms": round(response["p50"] / 1000, 2),
        "p99_ms": round(response["p99"] / 1000, 2),
    }


def disturbed(name, disturb, seconds):
    """Figures without and with a disturbance; how often it was done."""
    server = Server(name)
    try:
        steady = figures(load(server.port, 15))
        before = server.counted()
        running = load(server.port, seconds)
        time.sleep(2)
        done = disturb(server, running)
        result = {"steady": steady, "disturbed": figures(running), "times": done}
        result["by_its_own_count"] = {key: round(value - before.get(key, 0), 3) for key, value in server.counted().items()}
    finally:
        result_code = server.stop()
    result["exit"] = result_code
    return result


def reloads(server, running):
    done = failed = 0
    # While the load runs, which is as long as the slowest one is expected to take.
    while done < RELOADS and running.poll() is None:
        failed += not server.reload()
        done += 1
    return {"reloads": done, "failed": failed}


def kills(server, running):
    done = 0
    for _ in range(SECONDS):
        if running.poll() is not None:
            break
        workers = server.workers()
        if workers:
            done += kill(random.choice(workers))
        time.sleep(1)
    return {"kills": done}


async def request(port, path, results):
    began = time.perf_counter()
    status = 0
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" % path)
        status = int((await reader.readline())[9:12])
        await reader.read()
        writer.close()
    except (OSError, ValueError):
        pass
    results.append((status, time.perf_counter() - began))


def quantiles(values):
    if not values:
        return None
    values = sorted(values)
    at = lambda share: round(values[min(len(values) - 1, int(len(values) * share))] * 1000, 1)
    return {"count": len(values), "p50_ms": at(0.5), "p99_ms": at(0.99), "max_ms": at(1)}


def queue():
    # 20 ms a request and two workers: 100 a second.
    server = Server("ringroad wsgi", more='workers = 2\nqueue = 50\nqueue_timeout = "1s"')

    async def run():
        results, tasks = [], []
        begun = time.perf_counter()
        for number in range(3000):
            await asyncio.sleep(max(0, begun + number / 200 - time.perf_counter()))
            tasks.append(asyncio.create_task(request(server.port, b"/sleep", results)))
        await asyncio.gather(*tasks)
        return results

    try:
        results = asyncio.run(run())
    finally:
        server.stop()
    refused = quantiles(server.logged(503))
    by = {}
    for status, took in results:
        by.setdefault(str(status), []).append(took)
    return {"offered_per_s": 200, "capacity_per_s": 100, "queue": 50, "queue_timeout": "1s",
            "refused_by_its_own_log": refused, "answers": {status: quantiles(took) for status, took in sorted(by.items())}}


def uploads():
    server = Server("ringroad wsgi", more="workers = 1")

    async def upload(port, go, done):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 20000\r\n\r\n" + b"x" * 4000)
        for _ in range(3):
            await writer.drain()
            await asyncio.sleep(2)
            writer.write(b"x" * 4000)
        await go.wait()
        writer.write(b"x" * 4000)
        done.append(int((await reader.readline())[9:12]))
        writer.close()

    async def run():
        go, done, results = asyncio.Event(), [], []
        tasks = []
        for _ in range(1000):
            tasks.append(asyncio.create_task(upload(server.port, go, done)))
            await asyncio.sleep(0.002)
        for _ in range(200):
            await request(server.port, b"/", results)
            await asyncio.sleep(0.02)
        status = json.loads(server.control_do("status").stdout)
        apps = status if isinstance(status, list) else status["ok"]
        go.set()
        await asyncio.gather(*tasks)
        return {
            "uploads": len(done), "answered_200": done.count(200),
            "others": quantiles([took for status, took in results if status == 200]),
            "others_failed": sum(status != 200 for status, _ in results),
            "requests_at_the_worker": apps[0]["workers"][0]["in_flight"],
        }

    try:
        return asyncio.run(run())
    finally:
        server.stop()


def main():
    part, more = sys.argv[4], sys.argv[5:]
    servers = more or ["ringroad", "ringroad wsgi", "ringroad preload", "ringroad wsgi preload", "gunicorn", "uvicorn", "granian"]
    peers.environment(VENV)
    results = {}
    if os.path.exists(OUT):
        with open(OUT) as file:
            results = json.load(file)

    def keep(name, result):
        results[name] = dict(result, load_average=os.getloadavg()[0])
        print(name, json.dumps(result), flush=True)
        with open(OUT, "w") as file:
            json.dump(results, file, indent=1, sort_keys=True)
            file.write("\n")

    if part in ("reload", "kill"):
        for server in servers:
            disturb, seconds = (reloads, 170) if part == "reload" else (kills, SECONDS + 5)
            keep("%s %s" % (part, server), disturbed(server, disturb, seconds))
    elif part in ("queue", "uploads"):
        keep(part, {"queue": queue, "uploads": uploads}[part]())
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
