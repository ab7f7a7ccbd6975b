"""Memory of answers that no client reads: python3 unread.py RINGROAD UNSENT"""
import resource, socket, subprocess, sys, tempfile, time, re
ringroad, unsent = sys.argv[1], sys.argv[2]
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE); resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
p = socket.socket(); p.bind(("127.0.0.1", 0)); listen = p.getsockname()[1]; p.close()
folder = tempfile.mkdtemp()
open(folder + "/s.toml", "w").write(f'''listen = {listen}
limits.unsent = "{unsent}"
[[route]]
path = "/"
kind = "respond"
body = "{'x' * 15000}"
''')
server = subprocess.Popen([ringroad, "-q", "serve", "--config", folder + "/s.toml"])
def rss(): return int(re.search(r"VmRSS:\s+(\d+)", open(f"/proc/{server.pid}/status").read())[1]) // 1024
for _ in range(200):
    try: socket.create_connection(("127.0.0.1", listen)).close(); break
    except OSError: time.sleep(0.02)
idle = rss(); most = 0; cs = []
request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 64
for n in range(9500):
    s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096); s.connect(("127.0.0.1", listen)); s.send(request); cs.append(s)
    if n % 200 == 0: most = max(most, rss())
end = time.time() + 6
while time.time() < end: most = max(most, rss()); time.sleep(0.05)
print(f"limits.unsent {unsent}: {idle} MiB before, at most {most} MiB with {len(cs)} connections")
server.terminate(); server.wait()
