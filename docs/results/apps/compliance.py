"""Runs gunicorn's ASGI compliance suite against several servers and prints the grid.

    python3 compliance.py SUITE RINGROAD VENV OUT.json [SERVER ...]

SUITE is a copy of tests/docker/asgi_compliance of gunicorn's repository that may be changed: the fixture that starts
containers is replaced by one that reads addresses from the environment. VENV has pytest, pytest-asyncio, httpx[http2], websockets,
starlette, fastapi and the servers. nginx is in PATH. Each server runs with one worker, over HTTP and over HTTPS.
"""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as tree

SUITE, RINGROAD, VENV, OUT = (pathlib.Path(one).resolve() for one in sys.argv[1:5])
CHOSEN = sys.argv[5:]
MARK = "# addresses from the environment\n"
FIXTURE = MARK + '''
import os


@pytest.fixture(scope="session")
def docker_services():
    yield {
        "gunicorn_http": os.environ["SUITE_HTTP"],
        "gunicorn_https": os.environ["SUITE_HTTPS"],
        "nginx_http": os.environ["SUITE_NGINX_HTTP"],
        "nginx_https": os.environ["SUITE_NGINX_HTTPS"],
    }
'''


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def wait(port):
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("nothing listens on port %d" % port)


def commands(http, https, cert, key, folder):
    venv = str(VENV / "bin") + "/"
    app = "apps.main_app:app"
    config = pathlib.Path(folder, "ringroad.toml")
    config.write_text(
        'listen = ["127.0.0.1:%d", { address = "127.0.0.1:%d", tls = true, http2 = true }]\n'
        'client_ip = { proxies = ["127.0.0.1"] }\n[tls]\ncertificates = [{ certificate = "%s", key = "%s" }]\n'
        '[[app]]\nname = "suite"\napp = "%s"\ndirectory = "%s"\npython = "%s"\nworkers = 1\n'
        '[[route]]\npath = "/"\nkind = "app"\napp = "suite"\n'
        % (http, https, cert, key, app, SUITE, venv + "python")
    )
    return {
        "ringroad": [[str(RINGROAD), "serve", "--config", str(config)]],
        "gunicorn": [
            [venv + "gunicorn", app, "--worker-class", "asgi", "--workers", "1", "--bind", "127.0.0.1:%d" % http],
            [venv + "gunicorn", app, "--worker-class", "asgi", "--workers", "1", "--bind", "127.0.0.1:%d" % https,
             "--certfile", cert, "--keyfile", key],
        ],
        "uvicorn": [
            [venv + "uvicorn", app, "--port", str(http)],
            [venv + "uvicorn", app, "--port", str(https), "--ssl-certfile", cert, "--ssl-keyfile", key],
        ],
        "hypercorn": [
            [venv + "hypercorn", app, "--bind", "127.0.0.1:%d" % http],
            [venv + "hypercorn", app, "--bind", "127.0.0.1:%d" % https, "--certfile", cert, "--keyfile", key],
        ],
        "granian": [
            [venv + "granian", "--interface", "asgi", app, "--port", str(http)],
            [venv + "granian", "--interface", "asgi", app, "--port", str(https), "--ssl-certificate", cert, "--ssl-keyfile", key],
        ],
    }


def nginx(folder, http, https, ports, cert, key):
    text = (SUITE / "nginx.conf").read_text()
    changes = [
        (r"resolver .*;", ""),
        (r"/var/log/nginx/|/var/run/", folder + "/"),
        (r"server gunicorn-asgi:8000", "server 127.0.0.1:%d" % http),
        (r"server gunicorn-asgi-ssl:8443", "server 127.0.0.1:%d" % https),
        (r"listen 8080;", "listen 127.0.0.1:%d;" % ports[0]),
        (r"listen 8444 ssl;\s*http2 on;", "listen 127.0.0.1:%d ssl http2;" % ports[1]),
        (r"/certs/server.crt", cert),
        (r"/certs/server.key", key),
        (r"worker_processes auto;", "worker_processes 1; daemon off;"),
    ]
    for pattern, new in changes:
        text = re.sub(pattern, new, text)
    path = pathlib.Path(folder, "nginx.conf")
    path.write_text(text)
    return ["nginx", "-p", folder, "-e", folder + "/error.log", "-c", str(path)]


def run(server, folder, cert, key):
    http, https, one, two = (free_port() for _ in range(4))
    log = open(pathlib.Path(folder, server + ".log"), "w")
    started = []
    try:
        for command in commands(http, https, cert, key, folder)[server]:
            environ = dict(os.environ, PYTHONPATH=str(SUITE))
            started.append(subprocess.Popen(command, cwd=SUITE, stdout=log, stderr=log, env=environ))
        wait(http)
        wait(https)
        started.append(subprocess.Popen(nginx(folder, http, https, (one, two), cert, key), stdout=log, stderr=log))
        wait(one)
        wait(two)
        report = pathlib.Path(folder, server + ".xml")
        environ = dict(
            os.environ,
            SUITE_HTTP="http://127.0.0.1:%d" % http,
            SUITE_HTTPS="https://127.0.0.1:%d" % https,
            SUITE_NGINX_HTTP="http://127.0.0.1:%d" % one,
            SUITE_NGINX_HTTPS="https://127.0.0.1:%d" % two,
        )
        command = [str(VENV / "bin/python"), "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml", str(report)]
        command += ["-o", "asyncio_mode=auto", "--rootdir", str(SUITE), "--tb=short", str(SUITE)]
        with open(pathlib.Path(folder, server + ".pytest"), "w") as out:
            subprocess.run(command, env=environ, stdout=out, stderr=out, cwd=SUITE.parent, timeout=1500)
    finally:
        for process in reversed(started):
            process.send_signal(signal.SIGTERM)
        for process in started:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
    results = {}
    for case in tree.parse(report).getroot().iter("testcase"):
        name = "%s::%s" % (case.get("classname").split("test_", 1)[-1], case.get("name"))
        kinds = {one.tag for one in case}
        results[name] = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
    return results


def main():
    conftest = SUITE / "conftest.py"
    if MARK not in conftest.read_text():
        conftest.write_text(conftest.read_text() + "\n\n" + FIXTURE)
    folder = tempfile.mkdtemp(prefix="suite-")
    cert, key = folder + "/server.crt", folder + "/server.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-keyout", key, "-out", cert, "-days", "2", "-nodes",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
        check=True, capture_output=True,
    )
    servers = CHOSEN or ["ringroad", "uvicorn", "hypercorn", "granian", "gunicorn"]
    grid = json.loads(OUT.read_text()) if OUT.exists() else {}
    for server in servers:
        grid[server] = run(server, folder, cert, key)
        counts = [list(grid[server].values()).count(kind) for kind in ("passed", "failed", "skipped")]
        print("%-10s passed %d, failed %d, skipped %d" % (server, *counts), flush=True)
        OUT.write_text(json.dumps(grid, indent=1, sort_keys=True) + "\n")
    print("logs: %s" % folder)


if __name__ == "__main__":
    main()
