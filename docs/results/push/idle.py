"""Memory and CPU of idle connections with heartbeats: python3 idle.py [-c CONNECTIONS] [-d SECONDS] NAME=COMMAND …
Bytes are resident memory of the process for each connection, without the kernel's; CPU is while nothing but heartbeats happens."""
import select, sys, time
from peers import Server, descriptors, pong

arguments = sys.argv[1:]
option = lambda name, default: int(arguments[arguments.index(name) + 1]) if name in arguments else default
connections, seconds = option("-c", 10_000), option("-d", 60)
descriptors()
for argument in (argument for argument in arguments if "=" in argument):
    server = Server(argument)
    try:
        # A few first: what the server makes once is not a connection's.
        first = [server.subscribe() for _ in range(100)]
        before = server.memory()
        streams = [server.subscribe() for _ in range(connections)]
        poll = select.epoll()
        by_number = {stream.fileno(): stream for stream in first + streams}
        for number in by_number:
            poll.register(number, select.EPOLLIN)
        time.sleep(2)
        memory, cpu, begun, lost = server.memory() - before, server.cpu(), time.monotonic(), 0
        while time.monotonic() < begun + seconds:
            for number, _ in poll.poll(1):
                data = by_number[number].recv(65536)
                if data:
                    pong(by_number[number], data)
                else:
                    poll.unregister(number)
                    lost += 1
        used = (server.cpu() - cpu) / (time.monotonic() - begun) / connections
        print(f"{server.name}: {memory / connections:.0f} bytes and {used * 1e6:.2f} µs/s a connection, {connections} of them for {seconds} s, {lost} lost")
        # The next server needs the descriptors.
        for stream in first + streams:
            stream.close()
    finally:
        server.stop()
