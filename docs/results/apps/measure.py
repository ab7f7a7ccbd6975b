"""CPU of all processes of a server for each request, one worker each, interleaved.

    python3 measure.py RINGROAD VENV OUT.json

That is all: VENV is a virtual environment with gunicorn, uvicorn[standard] and granian, and is made if it is not there.
wrk (a package of Debian) is the client, and its CPU does not count. All servers are started first and stay. Each round
asks each of them in turn, for a fixed time over 16 connections; the figure of a server is the median of its rounds. What
is printed is a table for ../apps.md: CPU in microseconds for each request, beside the aims. OUT.json has every run, with the
versions, the machine and its load.
"""

import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import peers

HERE = os.path.dirname(os.path.abspath(__file__))
DRIVERS = ["io_uring", "epoll", "poll", "select", "threads"]
ROUNDS, SECONDS = 5, 1
# What is measured, the server it is compared with, and the share of its CPU that is aimed at.
AIMS = {"wsgi page": ("gunicorn gthread", 0.3), "asgi page": ("uvicorn[standard]", 0.83),
        "asgi echo": ("granian", 1.0), "asgi file": ("granian", 1.0)}
TICK = os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def family(root):
    """The process and everything below it."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/stat" % name) as file:
                    parents[int(name)] = int(file.read().rpartition(")")[2].split()[1])
            except (OSError, ValueError):
                pass
    found, more = {root}, True
    while more:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        found |= more
    return found


def cpu(root):
    """Seconds of all its processes, with nanoseconds where the kernel tells them."""
    total = 0
    for pid in family(root):
        for task in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/schedstat" % (pid, task)) as file:
                total += int(file.read().split()[0])
    return total / 1e9


class Server:
    def __init__(self, name, command, port):
        self.name, self.port = name, port
        self.process = subprocess.Popen(command, cwd=HERE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        limit = time.monotonic() + 30
        while True:
            try:
                with socket.create_connection(("127.0.0.1", port), 1) as one:
                    one.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                    if one.recv(100).startswith(b"HTTP/1.1 200"):
                        return
            except OSError:
                pass
            if time.monotonic() > limit:
                sys.exit("%s does not serve" % name)
            time.sleep(0.05)

    def ask(self, what):
        command = ["wrk", "-t1", "-c16", "-d%ds" % SECONDS]
        if what == "echo":
            command += ["-s", os.path.join(HERE, "echo.lua")]
        path = {"page": "/", "echo": "/echo", "file": "/file"}[what]
        command.append("http://127.0.0.1:%d%s" % (self.port, path))
        before = cpu(self.process.pid)
        told = subprocess.run(command, capture_output=True, text=True).stdout
        spent = cpu(self.process.pid) - before
        count = int(re.search(r"(\d+) requests in", told).group(1))
        bad = re.search(r"Non-2xx or 3xx responses: (\d+)|Socket errors: (.*)", told)
        rate = float(re.search(r"Requests/sec: *([\d.]+)", told).group(1))
        return {"us": spent / count * 1e6, "rate": rate, "count": count, "bad": bad.group(0) if bad else ""}


def table(results):
    """What was measured, as a table; in brackets the smallest and the largest run."""
    names = list(dict.fromkeys(name for runs in results.values() for name in runs))
    middle = lambda runs: statistics.median(run["us"] for run in runs)
    print("| | " + " | ".join(results) + " |\n|---|" + "---|" * len(results))
    for name in names:
        cells = []
        for what, servers in results.items():
            runs = servers.get(name)
            if not runs:
                cells.append("-")
                continue
            cell = "%.0f (%.0f to %.0f)" % (middle(runs), min(run["us"] for run in runs), max(run["us"] for run in runs))
            other, aim = AIMS[what]
            if name.startswith("ringroad"):
                share = middle(runs) / middle(servers[other])
                cell += " = %.2f of %s, aim %.2f%s" % (share, other, aim, "" if share <= aim else ": MISSED")
            bad = [run["bad"] for run in runs if run["bad"]]
            cells.append(cell + (" " + "; ".join(bad) if bad else ""))
        print("| %s | %s |" % (name, " | ".join(cells)))


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    if not shutil.which("wrk"):
        sys.exit("wrk is not installed: apt-get install wrk")
    ringroad, venv, out = sys.argv[1:4]
    ringroad, venv = os.path.abspath(ringroad), peers.environment(venv)
    load_before = os.getloadavg()
    folder = tempfile.mkdtemp(prefix="ringroad-apps-")
    groups = {"wsgi": [], "asgi": []}
    try:
        for kind, servers in groups.items():
            for driver in DRIVERS:
                port = free_port()
                config = os.path.join(folder, "%s-%s.toml" % (kind, driver))
                with open(config, "w") as file:
                    file.write(
                        'listen = "127.0.0.1:%d"\nworkers = 1\n[[app]]\nname = "web"\napp = "app:%s"\ndirectory = "%s"\n'
                        'python = "%s/bin/python"\nworkers = 1\n[[route]]\npath = "/"\nkind = "app"\napp = "web"\nlog = false\n'
                        % (port, kind, HERE, venv)
                    )
                servers.append(Server("ringroad " + driver, [ringroad, "serve", "--config", config, "--driver", driver], port))
        port = free_port()
        program = venv + "/bin/gunicorn"
        command = [program, "-w1", "-k", "gthread", "--threads", "1", "-b", "127.0.0.1:%d" % port, "app:wsgi"]
        groups["wsgi"].append(Server("gunicorn gthread", command, port))
        port = free_port()
        command = [venv + "/bin/uvicorn", "--port", str(port), "--no-access-log", "--log-level", "error", "app:asgi"]
        groups["asgi"].append(Server("uvicorn[standard]", command, port))
        port = free_port()
        command = [venv + "/bin/granian", "--port", str(port), "--interface", "asgi", "--workers", "1", "--no-log", "app:asgi"]
        groups["asgi"].append(Server("granian", command, port))
        results = {}
        for _ in range(ROUNDS):
            for kind, what in [("wsgi", "page"), ("asgi", "page"), ("asgi", "echo"), ("asgi", "file")]:
                for server in groups[kind]:
                    # uvicorn does not offer pathsend.
                    if what != "file" or not server.name.startswith("uvicorn"):
                        results.setdefault("%s %s" % (kind, what), {}).setdefault(server.name, []).append(server.ask(what))
        about = {"versions": peers.versions(venv), "machine": peers.machine(), "rounds": ROUNDS, "seconds": SECONDS,
                 "load_average": {"before": load_before[0], "after": os.getloadavg()[0]}}
        with open(out, "w") as file:
            json.dump(dict(results, about=about), file, indent=1)
            file.write("\n")
        table(results)
        if load_before[0] > 0.5:
            print("\nThe machine was busy before it began (load average %.1f): repeat it." % load_before[0])
    finally:
        for server in sum(groups.values(), []):
            server.process.send_signal(signal.SIGTERM)
        for server in sum(groups.values(), []):
            server.process.wait()


main()
