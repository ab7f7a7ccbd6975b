"""CPU of what a gateway adds, in turns, with one worker each.

    python3 gateway.py PART RINGROAD [ROUNDS] [SECONDS]

PART is one of
    policies   a proxied page, and the same with a limit, a key, a breaker and balancing by time
    redis      a proxied page, and the same with a limit that Redis counts
    hits       an answer of 1 KiB from the cache, beside nginx (proxy_cache) and Varnish
    misses     1,000 connections ask for an answer that is in no cache, at once: how often the server behind is asked
nginx, Varnish, redis-server and wrk are taken from the path."""
import os, socket, subprocess, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from programs import Programs, cpu, family, free_port, told, turns

DRIVERS = ("io_uring", "epoll", "poll", "select", "threads")
KEY = "X-Api-Key: a-key-of-a-client"
PAGE = "default_type text/html; return 200 '<h1>Hello World</h1>';"
KEPT = "default_type text/plain; add_header Cache-Control 'max-age=3600'; return 200 '%s';" % ("x" * 1024)


def plain(behind):
    return f"""[upstream.behind]
servers = ["http://127.0.0.1:{behind}"]
keep = 256
[[route]]
path = "/"
kind = "proxy"
to = "upstream:behind"
"""


def policies_of(behind, names):
    """A proxied page with some of the policies."""
    tables, upstream, route = "", "", ""
    if "limit" in names:
        tables += '[limit.client]\nkey = "header.X-Api-Key"\nrate = "10000000/s"\n'
        route += 'limit = "client"\n'
    if "key" in names:
        tables += f'[auth.keys]\nkind = "key"\nheader = "X-Api-Key"\nkeys = ["{KEY.split()[1]}"]\n'
        route += 'auth = "keys"\n'
    if "balancing" in names:
        upstream += 'balance = "time"\n'
    if "breaker" in names:
        upstream += "breaker = true\n"
    head, rest = plain(behind).split("[[route]]")
    return f"{tables}{head}{upstream}[[route]]{rest}{route}"


def policies(run):
    _, behind = run.nginx("behind", "", PAGE)
    with_all = policies_of(behind, ("limit", "key", "breaker", "balancing"))
    for driver in DRIVERS:
        programs = {
            f"{driver}, plain": run.serve(ringroad, "plain", driver, plain(behind)),
            f"{driver}, with limit, key, breaker, balancing": run.serve(ringroad, "all", driver, with_all),
        }
        told(turns(programs, rounds, seconds, ["-H", KEY]), f"{driver}, plain")


def redis(run):
    _, behind = run.nginx("behind", "", PAGE)
    port = free_port()
    store = run.start(["redis-server", "--port", str(port), "--save", "", "--bind", "127.0.0.1"], port)
    limited = f"""[redis.main]
to = "127.0.0.1:{port}"
[limit.client]
key = "ip"
rate = "10000000/s"
store = "redis.main"
""" + plain(behind) + 'limit = "client"\n'
    for driver in DRIVERS:
        programs = {
            f"{driver}, plain": run.serve(ringroad, "plain", driver, plain(behind)),
            f"{driver}, limit in Redis": run.serve(ringroad, "redis", driver, limited),
        }
        before = cpu([store])
        told(turns(programs, rounds, seconds), f"{driver}, plain")
        print(f"redis-server: {cpu([store]) - before:.1f} s of CPU in all of these turns")


def hits(run):
    _, behind = run.nginx("behind", "", KEPT)
    cached = """[store.main]
memory = "64M"
""" + plain(behind) + 'cache = "main"\n'
    http = f"""proxy_cache_path {run.folder}/kept keys_zone=all:10m use_temp_path=off;
upstream behind {{ server 127.0.0.1:{behind}; keepalive 256; }}"""
    location = 'proxy_pass http://behind; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_cache all;'
    programs = {"nginx": run.nginx("cache", http, location)}
    port = free_port()
    vcl = run.write("behind.vcl", f'vcl 4.1;\nbackend default {{ .host = "127.0.0.1"; .port = "{behind}"; }}\n')
    # The child of the compiler ends; the manager and its worker stay.
    varnish = run.start(["varnishd", "-F", "-n", run.folder + "/varnish", "-a", f"127.0.0.1:{port}", "-f", vcl, "-s", "malloc,64m"], port)
    programs["Varnish"] = (family(varnish), port)
    for driver in DRIVERS:
        programs[driver] = run.serve(ringroad, "cached", driver, cached)
    told(turns(programs, rounds, seconds), "nginx")


class Counting(BaseHTTPRequestHandler):
    """Answers after a moment, and counts."""

    asked = 0

    def do_GET(self):
        Counting.asked += 1
        time.sleep(0.2)
        body = b"x" * 1024
        self.send_response(200)
        self.send_header("Cache-Control", "max-age=3600")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def misses(run):
    behind = ThreadingHTTPServer(("127.0.0.1", 0), Counting)
    threading.Thread(target=behind.serve_forever, daemon=True).start()
    cached = """[store.main]
memory = "64M"
""" + plain(behind.server_address[1]) + 'cache = "main"\n'
    for driver in DRIVERS:
        port = run.serve(ringroad, "cached", driver, cached)[1]
        Counting.asked = 0
        clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(1000)]
        for client in clients:
            client.sendall(b"GET /page HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        answers = 0
        for client in clients:
            got = b""
            while part := client.recv(65536):
                got += part
            answers += got.startswith(b"HTTP/1.1 200") and got.endswith(b"x" * 1024)
        print(f"{driver}: {answers} of 1000 answered, the server behind was asked {Counting.asked} times", flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    part, ringroad = sys.argv[1], sys.argv[2]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 8
    seconds = int(sys.argv[4]) if len(sys.argv) > 4 else 2
    with Programs() as run:
        {"policies": policies, "redis": redis, "hits": hits, "misses": misses}[part](run)
