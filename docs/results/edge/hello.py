"""Instructions in user space for a plain page: python3 hello.py HELLO [DRIVER]

HELLO is target/release/examples/hello of the crate ringroad. It runs in valgrind's callgrind, once for some requests and once
for more: the difference is what these cost, whatever else the machine does. It holds no system calls and no time."""
import os, re, signal, socket, subprocess, sys, time
from programs import free_port

REQUEST = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


def collected(program, driver, connections, rounds):
    """Instructions of a server's life in which each connection asks so often."""
    port = free_port()
    words = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", program, f"127.0.0.1:{port}"]
    environment = {**os.environ, "RINGROAD_DRIVER": driver}
    server = subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True)
    clients = []
    try:
        for _ in range(1200):
            try:
                clients.append(socket.create_connection(("127.0.0.1", port)))
                break
            except OSError:
                time.sleep(0.1)
        else:
            sys.exit("it does not listen")
        clients += [socket.create_connection(("127.0.0.1", port)) for _ in range(connections - 1)]
        for client in clients:
            client.settimeout(60)
        for _ in range(rounds):
            for client in clients:
                client.sendall(REQUEST)
            for client in clients:
                answer = b""
                while not answer.endswith(b"</h1>"):
                    answer += client.recv(65536)
                if not answer.startswith(b"HTTP/1.1 200"):
                    sys.exit(f"answer: {answer}")
        for client in clients:
            client.close()
    finally:
        server.send_signal(signal.SIGTERM)
    return int(re.search(r"Collected : (\d+)", server.communicate(timeout=120)[1])[1])


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    program, driver = os.path.abspath(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "epoll"
    for connections in (1, 16, 200):
        few, more = 400 // min(connections, 16), 4000 // min(connections, 16)
        first, second = (collected(program, driver, connections, rounds) for rounds in (few, few + more))
        print(f"{driver}, {connections} connections: {(second - first) / (more * connections):.0f} a request", flush=True)
