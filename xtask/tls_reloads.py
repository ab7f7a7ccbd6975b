#!/usr/bin/env python3
"""Gives a server new certificates again and again while clients ask, for `xtask/tls-tools.sh`.

    tls_reloads.py PID PORT COUNT PKI RESULT

PKI has the authorities `root` and `middle`, and the folder `live` with the pair that the server uses. Four clients verify the
certificate and ask, two on a new connection each time. Each new pair is taken when a new connection shows it. Ten
reloads come before the first measurement of memory and descriptors, and no client is connected when they are measured.
Prints `ok`, or what has failed; RESULT gets the figures.
"""

import os
import pathlib
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time

pid, port, count = map(int, sys.argv[1:4])
pki, result = pathlib.Path(sys.argv[4]), pathlib.Path(sys.argv[5])
trust = ssl.create_default_context(cafile=str(pki / "root.pem"))
REQUEST = b"GET /own HTTP/1.1\r\nHost: a.test\r\n\r\n"


def openssl(*words):
    subprocess.run(["openssl", *words], cwd=pki, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def new_pair(serial):
    """Puts a pair with this serial number in the place of the one that is there."""
    openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=live",
            "-keyout", "live.key", "-out", "live.csr")
    openssl("x509", "-req", "-in", "live.csr", "-CA", "middle.pem", "-CAkey", "middle.key", "-days", "5",
            "-set_serial", str(serial), "-extfile", "leaf.ext", "-out", "live.pem")
    (pki / "live.chain").write_text((pki / "live.pem").read_text() + (pki / "middle.pem").read_text())
    os.replace(pki / "live.key", pki / "live" / "leaf.key")
    os.replace(pki / "live.chain", pki / "live" / "leaf.pem")


def connect():
    stream = socket.create_connection(("127.0.0.1", port), 60)
    return trust.wrap_socket(stream, server_hostname="a.test")


def ask(stream):
    """Asks once; whether the connection goes on."""
    stream.sendall(REQUEST)
    text = b""
    while not text.endswith(b"</h1>"):
        piece = stream.recv(4096)
        if not piece:
            raise ConnectionError(f"the connection ended after {text!r}")
        text += piece
    if not text.startswith(b"HTTP/1.1 200"):
        raise ConnectionError(f"{text!r}")
    return b"connection: close" not in text.lower()


class Load:
    """Clients that ask until they are told to end."""

    def __init__(self):
        self.over, self.requests, self.connections, self.failures = threading.Event(), 0, 0, []
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.run, args=(at % 2 == 0,)) for at in range(4)]
        for thread in self.threads:
            thread.start()

    def run(self, keeps):
        requests = connections = 0
        stream = None
        while not self.over.is_set():
            try:
                if stream is None:
                    stream, connections = connect(), connections + 1
                goes_on = ask(stream)
                requests += 1
                if not (keeps and goes_on):
                    stream.close()
                    stream = None
            except (OSError, ConnectionError) as why:
                with self.lock:
                    self.failures.append(repr(why))
                stream = None
        if stream is not None:
            stream.close()
        with self.lock:
            self.requests += requests
            self.connections += connections

    def end(self):
        self.over.set()
        for thread in self.threads:
            thread.join()


def reload(serial):
    new_pair(serial)
    os.kill(pid, signal.SIGHUP)
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with connect() as stream:
            if int(stream.getpeercert()["serialNumber"], 16) == serial:
                return
        time.sleep(0.01)
    raise SystemExit(f"certificate {serial} is not taken within 60 s")


def measure():
    """Resident KiB and descriptors, once the connections of before are gone."""
    time.sleep(1.0)
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    resident = int(status.split("VmRSS:")[1].split()[0])
    return resident, len(os.listdir(f"/proc/{pid}/fd"))


def rounds(first, many):
    load = Load()
    try:
        for serial in range(first, first + many):
            reload(serial)
    finally:
        load.end()
    return load


warm = rounds(1000, 10)
before = measure()
begun = time.monotonic()
load = rounds(2000, count)
took = time.monotonic() - begun
after = measure()
failures = warm.failures + load.failures
result.write_text(
    f"  {count} reloads in {took:.1f} s, {load.requests} requests on {load.connections} connections, {len(failures)} failed; "
    f"resident {before[0]} KiB before, {after[0]} KiB after; descriptors {before[1]} and {after[1]}\n"
)
if failures:
    print(f"{len(failures)} failed, the first: {failures[0]}")
elif after[1] > before[1] + 4:
    # The threads driver takes some when it first has that much to do at once; a leak would be one of each reload.
    print(f"{before[1]} descriptors before, {after[1]} after")
elif after[0] > before[0] + 4096:
    print(f"{before[0]} KiB resident before, {after[0]} after")
else:
    print("ok")
