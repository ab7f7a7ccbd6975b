"""PHP behind Ringroad beside other servers.

    python3 docs/results/php/measure.py cpu target/release/ringroad [--workerman DIR] [--runs N] [--out FILE]
    python3 docs/results/php/measure.py held target/release/ringroad [--connections N]

`cpu`: CPU of all processes of each server for a request, a page of 20 bytes, one worker each, in turns. nginx and
php-fpm are taken from the path. DIR has Workerman's sources (`src/Worker.php`); Swoole is measured where PHP has it.
`held`: so many connections at once, all with one worker of PHP, which answers each of them twice.
Only processes that this program starts are ended, by their numbers. Traffic goes to 127.0.0.1 only.
"""

import argparse
import json
import os
import resource
import selectors
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

PAGE = "twenty bytes of page"
SWOOLE = """<?php
$server = new Swoole\\Http\\Server('127.0.0.1', %d, SWOOLE_BASE);
$server->set(['worker_num' => 1, 'log_file' => '/dev/null']);
$server->on('request', function ($request, $response) { $response->end('%s'); });
$server->start();
"""
SCRIPT = "<?php echo '%s';\n" % PAGE
WORKERMAN = """<?php
spl_autoload_register(static function (string $class): void {
    foreach (['Workerman\\\\' => '%s/src/'] as $prefix => $folder) {
        $file = $folder . strtr(substr($class, strlen($prefix)), '\\\\', '/') . '.php';
        if (str_starts_with($class, $prefix) && is_file($file)) {
            require $file;
        }
    }
});
Workerman\\Worker::$pidFile = __DIR__ . '/workerman.pid';
Workerman\\Worker::$logFile = '/dev/null';
Workerman\\Worker::$stdoutFile = '/dev/null';
Workerman\\Worker::$eventLoopClass = Workerman\\Events\\Select::class;
$worker = new Workerman\\Worker('http://127.0.0.1:%d');
$worker->count = 1;
$worker->onMessage = static fn ($connection, $request) => $connection->send('%s');
Workerman\\Worker::runAll();
"""
NGINX = """daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log /dev/null crit;
events {{ worker_connections 1024; }}
http {{
  access_log off; client_body_temp_path {folder}/body; fastcgi_temp_path {folder}/fastcgi; proxy_temp_path {folder}/proxy;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi; keepalive_requests 10000000;
  upstream php {{ server unix:{folder}/fpm.sock; keepalive 1; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      fastcgi_pass php; fastcgi_keep_conn on; fastcgi_param SCRIPT_FILENAME {folder}/index.php;
      fastcgi_param REQUEST_METHOD $request_method; fastcgi_param QUERY_STRING $query_string;
      fastcgi_param REQUEST_URI $request_uri; fastcgi_param SERVER_PROTOCOL $server_protocol;
    }}
  }}
}}
"""
FPM = """[global]
error_log = /dev/null
daemonize = no
[www]
{user}listen = {folder}/fpm.sock
pm = static
pm.max_children = 1
"""


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def family(pids):
    """These processes and all that they have started, with their parents."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    parents[int(name)] = int(file.read().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                pass
    found, grown = set(pids), True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        found |= more
        grown = bool(more)
    return found


def cpu(pids):
    """Seconds of processor time of a family so far."""
    ticks = 0
    for pid in family(pids):
        try:
            with open(f"/proc/{pid}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        except OSError:
            pass
    return ticks / os.sysconf("SC_CLK_TCK")


class Server:
    def __init__(self, name, port, commands, folder):
        self.name, self.port = name, port
        self.processes = []
        for command in commands:
            log = open(os.path.join(folder, "log"), "ab")
            self.processes.append(subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        until = time.time() + 60
        while True:
            try:
                with socket.create_connection(("127.0.0.1", port), 1) as one:
                    one.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                    got = b""
                    while PAGE.encode() not in got and (part := one.recv(65536)):
                        got += part
                if PAGE.encode() in got:
                    return
            except OSError:
                pass
            if time.time() > until:
                self.stop()
                with open(os.path.join(folder, "log")) as file:
                    sys.exit(f"{name} does not serve:\n{file.read()[-2000:]}")
            time.sleep(0.1)

    def pids(self):
        return [process.pid for process in self.processes]

    def stop(self):
        children = family(self.pids()) - set(self.pids())
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for pid in children:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def servers(options, base):
    ringroad = os.path.abspath(options.ringroad)

    def folder(name):
        path = os.path.join(base, name)
        os.mkdir(path)
        # Workers of php-fpm are another user's.
        os.chmod(path, 0o755)
        return path

    def write(path, name, text):
        with open(os.path.join(path, name), "w") as file:
            file.write(text)

    place, port = folder("ringroad"), free_port()
    write(place, "server.php", SWOOLE % (port, PAGE))
    listen = ["--listen", f"127.0.0.1:{port}", "--workers", "1", "-q"]
    yield Server("Ringroad, Swoole's classes", port, [[ringroad, "serve", "--app", "server.php", *listen]], place)

    place, port = folder("cgi"), free_port()
    write(place, "index.php", SCRIPT)
    listen = ["--listen", f"127.0.0.1:{port}", "--workers", "1", "-q"]
    if shutil.which("php-cgi"):
        command = [ringroad, "serve", "--app", "index.php", "--protocol", "fastcgi", *listen]
        yield Server("Ringroad, php-cgi", port, [command], place)

    fpm = next((found for name in ["php-fpm", "php-fpm8.4", "php-fpm8.3", "php-fpm8.2", "php-fpm8.1"]
                if (found := shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin"))), None)
    nginx = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")
    if fpm and nginx:
        place, port = folder("nginx"), free_port()
        write(place, "index.php", SCRIPT)
        user = "user = nobody\nlisten.mode = 0666\n" if os.geteuid() == 0 else ""
        write(place, "fpm.conf", FPM.format(folder=place, user=user))
        write(place, "nginx.conf", NGINX.format(folder=place, port=port))
        commands = [[fpm, "-F", "-n", "-y", f"{place}/fpm.conf"], [nginx, "-p", place, "-c", f"{place}/nginx.conf"]]
        yield Server("nginx and php-fpm", port, commands, place)
    else:
        print("left out: nginx and php-fpm are not both installed", file=sys.stderr)

    if options.workerman:
        place, port = folder("workerman"), free_port()
        write(place, "server.php", WORKERMAN % (os.path.abspath(options.workerman), port, PAGE))
        yield Server("Workerman, select", port, [["php", "server.php", "start", "-q"]], place)

    if "swoole" in subprocess.run(["php", "-m"], capture_output=True, text=True).stdout:
        place, port = folder("swoole"), free_port()
        write(place, "server.php", SWOOLE % (port, PAGE))
        yield Server("Swoole", port, [["php", "server.php"]], place)


def measure(options):
    with tempfile.TemporaryDirectory(prefix="ringroad-php-") as base:
        os.chmod(base, 0o755)
        all_servers = []
        try:
            for server in servers(options, base):
                all_servers.append(server)
            results = {server.name: [] for server in all_servers}
            for run in range(options.runs + 1):
                for server in all_servers:
                    before = cpu(server.pids())
                    command = [options.ringroad, "load", f"http://127.0.0.1:{server.port}/", "-c", str(options.clients),
                               "-n", str(options.requests), "-q"]
                    done = subprocess.run(command, capture_output=True, text=True)
                    spent = cpu(server.pids()) - before
                    if done.returncode not in (0, 5):
                        sys.exit(f"{server.name}: the load ended with {done.returncode}\n{done.stdout}{done.stderr}")
                    # The first turn warms up.
                    if run:
                        results[server.name].append(spent / options.requests * 1e6)
        finally:
            for server in all_servers:
                server.stop()
    first = all_servers[0].name
    print(f"load average {os.getloadavg()[0]:.1f}; {options.requests} requests over {options.clients} connections, {options.runs} runs")
    for name, values in results.items():
        ratios = [a / b for a, b in zip(results[first], values)]
        print(f"{name:30} {statistics.median(values):8.1f} µs  ({min(values):.1f} to {max(values):.1f})"
              f"   {first} : this {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    if options.out:
        with open(options.out, "w") as file:
            json.dump({"load": os.getloadavg(), "microseconds": results}, file, indent=1)


def held(options):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = min(options.connections, hard - 100)
    if count < options.connections:
        print(f"{count} connections and not {options.connections}: the limit of descriptors is {hard}")
    with tempfile.TemporaryDirectory(prefix="ringroad-php-") as base:
        port = free_port()
        with open(os.path.join(base, "server.php"), "w") as file:
            file.write(SWOOLE % (port, PAGE))
        with open(os.path.join(base, "site.toml"), "w") as file:
            file.write(f'listen = "127.0.0.1:{port}"\nmax_connections = {count + 100}\n[[app]]\nname = "web"\n'
                       'app = "server.php"\nworkers = 1\nqueue = 100000\nqueue_timeout = "5m"\n[[route]]\npath = "/"\n'
                       'kind = "app"\napp = "web"\n')
        command = [os.path.abspath(options.ringroad), "serve", "--config", os.path.join(base, "site.toml"), "-q"]
        server = Server("Ringroad", port, [command], base)
        try:
            selector = selectors.DefaultSelector()
            clients = []
            began = time.time()
            for _ in range(count):
                one = socket.create_connection(("127.0.0.1", port))
                clients.append(one)
            answers = []
            for turn in (1, 2):
                got = {one.fileno(): b"" for one in clients}
                for one in clients:
                    selector.register(one, selectors.EVENT_READ)
                    one.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                left = set(got)
                while left:
                    events = selector.select(300)
                    if not events:
                        sys.exit(f"{len(left)} connections got no answer within 5 minutes")
                    for key, _ in events:
                        part = key.fileobj.recv(4096)
                        if not part:
                            sys.exit("a connection was closed")
                        got[key.fd] += part
                        if got[key.fd].endswith(PAGE.encode()):
                            left.discard(key.fd)
                            selector.unregister(key.fileobj)
                answers.append(sum(text.startswith(b"HTTP/1.1 200 ") for text in got.values()))
            workers = {}
            for pid in sorted(family(server.pids())):
                with open(f"/proc/{pid}/cmdline") as file:
                    line = file.read().split("\0")[0]
                with open(f"/proc/{pid}/status") as file:
                    memory = next(int(row.split()[1]) for row in file if row.startswith("VmRSS"))
                workers[pid] = (line.rpartition("/")[2], len(os.listdir(f"/proc/{pid}/fd")), memory)
            print(f"{count} connections, {answers[0]} and {answers[1]} answers 200, {time.time() - began:.1f} s")
            for pid, (line, descriptors, memory) in workers.items():
                print(f"{line:10} {pid}: {descriptors} descriptors, {memory / 1024:.1f} MiB")
        finally:
            server.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["cpu", "held"])
    parser.add_argument("ringroad")
    parser.add_argument("--workerman")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--requests", type=int, default=20000)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--connections", type=int, default=10000)
    parser.add_argument("--out")
    options = parser.parse_args()
    held(options) if options.what == "held" else measure(options)


main()
