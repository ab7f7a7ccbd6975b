"""Instructions in user space that a gateway's features add to a request: python3 instructions.py RINGROAD [REQUESTS]

The server runs on epoll in valgrind's callgrind, once for some requests and once for REQUESTS more: the difference is what
these cost, whatever else the machine does. It holds no system calls and no time. valgrind and nginx are taken from the path."""
import os, re, signal, socket, subprocess, sys, time
from gateway import KEY, PAGE, plain, policies_of
from programs import Programs, free_port

FEW = 300
CASES = {
    "plain": lambda behind: plain(behind),
    "limit": lambda behind: policies_of(behind, ("limit",)),
    "key": lambda behind: policies_of(behind, ("key",)),
    "breaker": lambda behind: policies_of(behind, ("breaker",)),
    "balancing": lambda behind: policies_of(behind, ("balancing",)),
    "all four": lambda behind: policies_of(behind, ("limit", "key", "breaker", "balancing")),
}


def collected(run, ringroad, name, text, requests):
    """Instructions of a server's life with this many requests."""
    port = free_port()
    path = run.write(f"{name}.toml".replace(" ", "-"), f"listen = {port}\nworkers = 1\n{text}")
    words = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", ringroad, "-q", "serve", "--driver", "epoll", "--config", path]
    server = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        for _ in range(1200):
            try:
                client = socket.create_connection(("127.0.0.1", port))
                break
            except OSError:
                time.sleep(0.1)
        else:
            sys.exit(f"{name}: it does not listen")
        client.settimeout(60)
        for _ in range(requests):
            client.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n{KEY}\r\n\r\n".encode())
            answer = b""
            while not answer.endswith(b"</h1>"):
                answer += client.recv(65536)
            if not answer.startswith(b"HTTP/1.1 200"):
                sys.exit(f"{name}: {answer}")
        client.close()
    finally:
        server.send_signal(signal.SIGTERM)
    said = server.communicate(timeout=120)[1]
    return int(re.search(r"Collected : (\d+)", said)[1])


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    ringroad, more = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    with Programs() as run:
        _, behind = run.nginx("behind", "", PAGE)
        base = None
        for name, text in CASES.items():
            few, many = (collected(run, ringroad, name, text(behind), count) for count in (FEW, FEW + more))
            each = (many - few) / more
            base = base or each
            print(f"{name}: {each:.0f} instructions a request, {each - base:+.0f}", flush=True)
