"""Starts a WebSocket server on a port of its own, and speaks with it. Used by the scripts beside this file.

A server is NAME=COMMAND; PORT in the command is replaced. What a NAME begins with says how it is spoken with: ringroad (the
program itself: `ringroad=target/release/ringroad`), echo (an echo of messages), bare, bun, centrifuge, nchan (COMMAND is the
path of nchan's module for nginx). README.md beside this file has the commands."""
import base64, os, resource, shlex, socket, subprocess, tempfile, time

HUB = """
listen = "127.0.0.1:PORT"
workers = 1
[auth.k]
kind = "key"
keys = ["key"]
STORE
[hub.h]
history = { messages = 100, for = "5m" }
SHARED
[[route]]
path = "/.well-known/mercure"
kind = "hub"
hub = "h"
publish_auth = "k"
"""
NCHAN = """
load_module MODULE;
daemon off; master_process off; pid FOLDER/pid; error_log FOLDER/error.log;
events { worker_connections 200000; }
http {
  access_log off; client_body_temp_path FOLDER/body; nchan_max_reserved_memory 512M;
  server {
    listen 127.0.0.1:PORT backlog=4096;
    location = /sub { nchan_subscriber websocket; nchan_channel_id t; nchan_websocket_ping_interval 25; }
    location = /pub { nchan_publisher; nchan_channel_id t; nchan_message_buffer_length 100; nchan_message_timeout 5m; }
  }
}
"""
SUBSCRIBE = {"bare": "/", "ringroad": "/.well-known/mercure?topic=t", "bun": "/sub", "nchan": "/sub", "centrifuge": "/connection/websocket", "echo": "/"}


def descriptors():
    """As many as this process may have."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Redis:
    """A Redis server without a file, for servers that share a hub."""

    def __init__(self):
        self.port = free_port()
        words = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(500):
            try:
                return socket.create_connection(("127.0.0.1", self.port)).close()
            except OSError:
                time.sleep(0.02)
        raise SystemExit("redis-server does not listen")

    def stop(self):
        self.process.terminate()
        self.process.wait()


class Server:
    def __init__(self, argument, redis=None):
        self.name, command = argument.split("=", 1)
        self.kind = next((kind for kind in SUBSCRIBE if self.name.startswith(kind)), "echo")
        self.port = free_port()
        self.folder = tempfile.TemporaryDirectory()
        fill = lambda text: text.replace("PORT", str(self.port)).replace("FOLDER", self.folder.name)
        if self.kind == "ringroad":
            config = os.path.join(self.folder.name, "hub.toml")
            store = f'[redis.r]\nto = "127.0.0.1:{redis.port}"' if redis else ""
            shared = 'store = "redis.r"' if redis else ""
            open(config, "w").write(fill(HUB.replace("STORE", store).replace("SHARED", shared)))
            words = [*shlex.split(command), "serve", "-q", "--config", config]
        elif self.kind == "nchan":
            config = os.path.join(self.folder.name, "nginx.conf")
            open(config, "w").write(fill(NCHAN.replace("MODULE", command)))
            words = ["nginx", "-c", config, "-p", self.folder.name]
        else:
            words = shlex.split(fill(command))
        environment = dict(os.environ, GOMAXPROCS="1")
        while "=" in words[0]:
            key, value = words.pop(0).split("=", 1)
            environment[key] = value
        descriptors()
        self.process = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(500):
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                if self.process.poll() is not None:
                    raise SystemExit(f"{self.name}: {words}: it ended")
                time.sleep(0.02)
        raise SystemExit(f"{self.name}: {words}: it does not listen")

    def cpu(self):
        """Seconds of CPU of all threads, by the scheduler's count of nanoseconds. Threads that ended are not in it."""
        tasks = f"/proc/{self.process.pid}/task"
        return sum(int(open(f"{tasks}/{task}/schedstat").read().split()[0]) for task in os.listdir(tasks)) / 1e9

    def memory(self):
        """Resident bytes."""
        return int(open(f"/proc/{self.process.pid}/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def subscribe(self, source="127.0.0.1"):
        """A connection that gets what is published. What comes meanwhile is left in it."""
        stream = socket.socket()
        # Local ports are chosen at the connection, so that each source has all of them.
        stream.setsockopt(socket.IPPROTO_IP, 24, 1)
        stream.bind((source, 0))
        stream.connect(("127.0.0.1", self.port))
        key = base64.b64encode(os.urandom(16)).decode()
        stream.sendall(
            f"GET {SUBSCRIBE[self.kind]} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
        )
        head = b""
        while b"\r\n\r\n" not in head:
            piece = stream.recv(4096)
            if not piece:
                raise SystemExit(f"{self.name}: closed behind {head!r}")
            head += piece
        if b" 101 " not in head.split(b"\r\n")[0]:
            raise SystemExit(f"{self.name}: {head!r}")
        if self.kind == "centrifuge":
            send(stream, b'{"id":1,"connect":{}}\n{"id":2,"subscribe":{"channel":"t"}}')
            told = b""
            while b'"subscribe"' not in told:
                told += stream.recv(4096)
        stream.setblocking(False)
        return stream

    def publisher(self):
        """A function that publishes a text without `&` and `"`, and returns when the server has answered."""
        stream = socket.create_connection(("127.0.0.1", self.port))
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        path = "/.well-known/mercure" if self.kind == "ringroad" else "/pub"
        kind = "application/x-www-form-urlencoded" if self.kind == "ringroad" else "application/json"

        def publish(text):
            body = f"topic=t&data={text}" if self.kind == "ringroad" else f'"{text}"'
            stream.sendall(
                f"POST {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer key\r\nContent-Type: {kind}\r\n"
                f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
            )
            told = b""
            while b"\r\n\r\n" not in told:
                told += stream.recv(65536)
            head, rest = told.split(b"\r\n\r\n", 1)
            if head[9:12] not in (b"200", b"201", b"202"):
                raise SystemExit(f"{self.name}: {head!r}")
            length = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            left = (int(length[0]) if length else 0) - len(rest)
            while left > 0:
                left -= len(stream.recv(left))

        return publish

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.folder.cleanup()


def send(stream, payload):
    """Sends a text frame of at most 125 bytes, with a mask of zeros."""
    stream.sendall(bytes([0x81, 0x80 | len(payload), 0, 0, 0, 0]) + payload)


def pong(stream, data):
    """Answers a ping without payload, before or behind messages of text, and Centrifugo's own where it stands alone."""
    if b"\x89\x00" in data:
        stream.send(bytes([0x8A, 0x80, 0, 0, 0, 0]))
    elif data == b"\x81\x02{}":
        stream.send(bytes([0x81, 0x82, 0, 0, 0, 0]) + b"{}")
