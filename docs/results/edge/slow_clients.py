"""Requests beside slow uploads, and requests that clients have reset: python3 slow_clients.py RINGROAD"""
import http.server, socket, socketserver, struct, subprocess, sys, threading, time, tempfile, os, json
ringroad = sys.argv[1]
class App(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.send_response(200); self.send_header("Content-Length", "4"); self.end_headers(); self.wfile.write(b"page")
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"])); self.do_GET()
    def log_message(self, *a): pass
app = http.server.HTTPServer(("127.0.0.1", 0), App)          # one process, one request at a time
threading.Thread(target=app.serve_forever, daemon=True).start()
NODE = """let open = 0;
require('http').createServer((q, r) => { if (q.url == '/open') return r.end(String(open)); open++; r.on('close', () => open--); }).listen(0, '127.0.0.1', function () { console.log(this.address().port); });"""
node = subprocess.Popen(["node", "-e", NODE], stdout=subprocess.PIPE, text=True)
node_port = int(node.stdout.readline())
folder = tempfile.mkdtemp()
port = socket.socket(); port.bind(("127.0.0.1", 0)); listen = port.getsockname()[1]; port.close()
open(folder + "/s.toml", "w").write(f'''listen = {listen}
[[route]]
path = "/"
kind = "proxy"
to = "http://127.0.0.1:{app.server_port}"
keep = 0
[[route]]
path = "/slow/"
kind = "proxy"
to = "http://127.0.0.1:{node_port}/"
''')
server = subprocess.Popen([ringroad, "-q", "serve", "--config", folder + "/s.toml"])
for _ in range(200):
    try: socket.create_connection(("127.0.0.1", listen)).close(); break
    except OSError: time.sleep(0.02)
def get(path):
    s = socket.create_connection(("127.0.0.1", listen)); s.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
    b = b""
    while True:
        d = s.recv(65536)
        if not d: break
        b += d
    s.close(); return b
def times():
    t = []
    for _ in range(200):
        a = time.perf_counter(); assert get("/page").endswith(b"page"); t.append((time.perf_counter() - a) * 1e3); time.sleep(0.01)
    t.sort(); return {"median_ms": round(t[100], 2), "p99_ms": round(t[197], 2), "max_ms": round(t[-1], 2)}
out = {"alone": times()}
stop = False
def upload():
    s = socket.create_connection(("127.0.0.1", listen)); s.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8388608\r\n\r\n")
    while not stop:
        s.sendall(b"x" * 102); time.sleep(0.1)
    s.close()
us = [threading.Thread(target=upload) for _ in range(8)]
[u.start() for u in us]; time.sleep(1)
out["eight_uploads_at_1_KB/s"] = times(); stop = True; [u.join() for u in us]
cs = []
for _ in range(1000):
    s = socket.create_connection(("127.0.0.1", listen)); s.sendall(b"GET /slow/x HTTP/1.1\r\nHost: a\r\n\r\n"); cs.append(s)
def node_open():
    s = socket.create_connection(("127.0.0.1", node_port)); s.sendall(b"GET /open HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"); b=b""
    while (d := s.recv(4096)): b += d
    import re
    body = b.split(b"\r\n\r\n",1)[1]; m = re.findall(rb"\d+", body); return int(m[1] if b"chunked" in b.lower() else m[0])
deadline = time.time() + 20
while node_open() < 1000 and time.time() < deadline: time.sleep(0.05)
out["requests_at_the_application_before_the_resets"] = node_open()
for s in cs: s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)); s.close()
begun = time.perf_counter()
while node_open() > 0 and time.perf_counter() - begun < 20: time.sleep(0.01)
out["none_left_after_ms"] = round((time.perf_counter() - begun) * 1e3)
out["left"] = node_open()
print(json.dumps(out, indent=1))
server.terminate(); server.wait(); node.kill()
