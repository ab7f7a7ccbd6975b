"""Servers that are compared: started on ports of 127.0.0.1, loaded in turns, ended by their numbers."""
import os, random, re, socket, statistics, subprocess, sys, tempfile, time

TICK = os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def family(pid):
    """A process and those below it."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            parents[int(name)] = int(open(f"/proc/{name}/stat").read().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def cpu(pids):
    """CPU seconds of processes, user and system."""
    ticks = 0
    for pid in pids:
        fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / TICK


class Programs:
    """Programs of one run; with `with`, all are ended."""

    def __init__(self):
        self.folder = tempfile.mkdtemp()
        # Varnish's worker is a user of its own.
        os.chmod(self.folder, 0o755)
        self.running = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for program in reversed(self.running):
            program.terminate()
            program.wait()

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        open(path, "w").write(text)
        return path

    def start(self, command, port):
        """Starts one, with standard input open, and waits until it listens. Returns its process id."""
        self.running.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.folder))
        for _ in range(400):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                return self.running[-1].pid
            except OSError:
                time.sleep(0.02)
        sys.exit(f"{command} does not listen")

    def serve(self, ringroad, name, driver, text):
        """Starts `ringroad serve` with one worker and these settings. Returns its process ids and its port."""
        port = free_port()
        path = self.write(f"{name}-{driver}.toml", f"listen = {port}\nworkers = 1\n{text}")
        return family(self.start([ringroad, "-q", "serve", "--driver", driver, "--config", path], port)), port

    def nginx(self, name, http, location):
        """Starts nginx with one worker. Returns its process ids and its port."""
        port = free_port()
        text = NGINX.format(pid=f"{self.folder}/{name}.pid", port=port, http=http, location=location)
        return family(self.start(["nginx", "-p", self.folder, "-c", self.write(name, text)], port)), port


NGINX = """daemon off; user root; worker_processes 1; pid {pid}; error_log stderr error; worker_rlimit_nofile 20000;
events {{ worker_connections 9000; }}
http {{ access_log off; keepalive_requests 1000000000; tcp_nodelay on;
{http}
server {{ listen 127.0.0.1:{port} backlog=4096; location / {{ {location} }} }} }}
"""


def turns(programs, rounds, seconds, words=()):
    """CPU microseconds of each program for a request, in turns: `{name: (pids, port)}` to `{name: [µs]}`.

    wrk asks over 64 connections, with these words more; its CPU does not count. An answer that is not 2xx ends the run."""
    costs = {name: [] for name in programs}
    for turn in range(rounds + 1):
        for name in random.sample(list(programs), len(programs)):
            pids, port = programs[name]
            before = cpu(pids)
            load = ["wrk", "-t1", "-c64", f"-d{seconds if turn else 1}s", *words, f"http://127.0.0.1:{port}/"]
            said = subprocess.run(load, capture_output=True, text=True).stdout
            if "Non-2xx" in said or "Socket errors" in said:
                sys.exit(f"{name}: {said}")
            # The first turn warms up.
            if turn:
                costs[name].append((cpu(pids) - before) / int(re.search(r"(\d+) requests in", said)[1]) * 1e6)
    return costs


def told(costs, base):
    """Prints each program beside `base`: median and range of its turns, of the ratio and of the difference."""
    for name, own in costs.items():
        ratios = sorted(mine / theirs for mine, theirs in zip(own, costs[base]))
        more = sorted(mine - theirs for mine, theirs in zip(own, costs[base]))
        print(
            f"{name}: {statistics.median(own):.2f} µs of CPU a request ({min(own):.2f} to {max(own):.2f}), "
            f"{statistics.median(ratios):.3f} of {base} ({ratios[0]:.3f} to {ratios[-1]:.3f}), "
            f"{statistics.median(more):+.2f} µs ({more[0]:+.2f} to {more[-1]:+.2f}), {len(own)} turns",
            flush=True,
        )
