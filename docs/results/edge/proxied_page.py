"""CPU of a proxied page beside nginx, in turns: python3 proxied_page.py RINGROAD [ROUNDS] [SECONDS]"""
import sys
from programs import Programs, told, turns

ringroad = sys.argv[1]
rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 8
seconds = int(sys.argv[3]) if len(sys.argv) > 3 else 2
PASS = """proxy_pass http://behind; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $http_host;
proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_set_header X-Forwarded-Host $http_host;
proxy_set_header X-Forwarded-Proto $scheme; proxy_set_header X-Request-Id $request_id; proxy_buffer_size 16k; proxy_buffers 8 16k;"""

with Programs() as run:
    _, behind = run.nginx("behind", "", "default_type text/html; return 200 '<h1>Hello World</h1>';")
    upstream = f"upstream behind {{ server 127.0.0.1:{behind}; keepalive 256; keepalive_requests 1000000000; }}"
    programs = {"nginx": run.nginx("proxy", upstream, PASS)}
    for driver in ("epoll", "io_uring"):
        route = f'[[route]]\npath = "/"\nkind = "proxy"\nto = "http://127.0.0.1:{behind}"\nkeep = 256\n'
        try:
            programs[f"serve, {driver}"] = run.serve(ringroad, "proxy", driver, route)
        except SystemExit as why:
            print(f"left out: {why}")
    told(turns(programs, rounds, seconds), "nginx")
