#!/usr/bin/env python3
"""A bad day: six servers behind a gateway, of which one is slow, one fails, one flaps, one hangs and one refuses.

    bad-day.py RINGROAD [--for 30s] [--rate 200] [--only ringroad,nginx,haproxy,envoy]

Starts the six servers on loopback, then each gateway that is installed in turn, puts load on it with
`RINGROAD load`, and prints one row for each: successes, what the others were, latencies. Every gateway gets what it
has against such servers: repeats, passive ejection, checks where it has them, and short times.
"""

import argparse
import asyncio
import json
import pathlib
import shutil
import socket
import string
import subprocess
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def answer(status, reason):
    return f"HTTP/1.1 {status} {reason}\r\nContent-Length: 2\r\n\r\nno".encode()


class Behind:
    """The six servers, in one thread."""

    def __init__(self):
        self.ports, self.begun = {}, time.monotonic()
        self.ready = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self.run()), daemon=True).start()
        self.ready.wait()

    async def run(self):
        ways = {"good": self.good, "slow": self.slow, "failing": self.failing, "flapping": self.flapping,
                "hanging": self.hanging}
        for name, way in ways.items():
            server = await asyncio.start_server(lambda r, w, way=way: self.serve(r, w, way), "127.0.0.1", 0)
            self.ports[name] = server.sockets[0].getsockname()[1]
        with socket.socket() as refusing:
            refusing.bind(("127.0.0.1", 0))
            self.ports["refusing"] = refusing.getsockname()[1]
        self.ready.set()
        await asyncio.Event().wait()

    async def serve(self, reader, writer, way):
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(await way())
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def good(self):
        return OK

    async def slow(self):
        await asyncio.sleep(2)
        return OK

    async def failing(self):
        return answer(500, "Internal Server Error")

    async def flapping(self):
        # Three seconds well, three seconds not.
        is_up = int(time.monotonic() - self.begun) // 3 % 2 == 0
        return OK if is_up else answer(503, "Service Unavailable")

    async def hanging(self):
        await asyncio.sleep(3600)
        return OK


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def until_listening(port, process):
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if process.poll() is not None:
                raise SystemExit(f"the gateway has ended with {process.returncode}")
            time.sleep(0.05)
    raise SystemExit("the gateway does not listen")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ringroad", help="the program `ringroad`")
    parser.add_argument("--for", dest="span", default="30s", help="how long each gateway is under load")
    parser.add_argument("--rate", default="200", help="requests a second")
    parser.add_argument("--connections", default="32")
    parser.add_argument("--only", default="ringroad,nginx,haproxy,envoy")
    asked = parser.parse_args()
    behind = Behind()
    gateways = {
        "ringroad": ("ringroad.toml", [asked.ringroad, "serve", "--config"]),
        "nginx": ("nginx.conf", ["nginx", "-c"]),
        "haproxy": ("haproxy.cfg", ["haproxy", "-db", "-f"]),
        "envoy": ("envoy.yaml", ["envoy", "--concurrency", "1", "--log-level", "error", "-c"]),
    }
    print(f"{'gateway':10} {'requests':>9} {'200':>9} {'share':>9} {'p50 ms':>8} {'p99 ms':>8} {'p99.9 ms':>9}  others")
    for name in asked.only.split(","):
        template, command = gateways[name]
        if shutil.which(command[0]) is None:
            print(f"{name:10} is not installed")
            continue
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            port = free_port()
            text = string.Template((HERE / template).read_text())
            config = folder / template
            config.write_text(text.substitute(behind.ports, listen=port, folder=folder))
            gateway = subprocess.Popen([*command, str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                until_listening(port, gateway)
                record = folder / "record.json"
                subprocess.run(
                    [asked.ringroad, "load", f"http://127.0.0.1:{port}/", "--no-ask", "-c", asked.connections,
                     "-r", asked.rate, "-d", asked.span, "--timeout", "5s", "-o", str(record)],
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
                row(name, json.loads(record.read_text()))
            finally:
                gateway.terminate()
                gateway.wait()


def row(name, record):
    cell = record["cells"][0]
    statuses = cell["details"]["statuses"]
    # "status" counts answers that are among the statuses as well.
    errors = {kind: count for kind, count in cell["errors"].items() if count and kind != "status"}
    well = statuses.get("200", 0)
    every = max(sum(statuses.values()) + sum(errors.values()), 1)
    latency = cell["latency_us"]["response"]
    ms = lambda key: f"{latency[key] / 1000:.1f}" if latency.get(key) is not None else "-"
    others = {status: count for status, count in statuses.items() if status != "200"} | errors
    print(f"{name:10} {every:9} {well:9} {100 * well / every:8.2f}% {ms('p50'):>8} {ms('p99'):>8} {ms('p99_9'):>9}  "
          + (", ".join(f"{key}: {count}" for key, count in others.items()) or "-"), flush=True)


if __name__ == "__main__":
    main()
