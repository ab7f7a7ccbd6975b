"""Subscribers without end, one message a second: python3 many.py [-c SUBSCRIBERS] [-p PROCESSES] [-s SERVERS] [-d SECONDS] NAME=COMMAND
Several servers share the hub over Redis, which is started too; messages are published at the first. Tells messages that were lost,
connections that were closed, and how long after its publication a message was read. Each reader is a process, and reads one connection after the
other: its own time is in the figure."""
import multiprocessing, select, sys, time
from peers import Redis, Server, descriptors, pong

arguments = sys.argv[1:]
option = lambda name, default: int(arguments[arguments.index(name) + 1]) if name in arguments else default
subscribers, processes, seconds, several = option("-c", 100_000), option("-p", 6), option("-d", 60), option("-s", 1)


def read(server, number, count, told, go):
    descriptors()
    poll, by_number, buckets, got, closed = select.epoll(), {}, {}, 0, 0

    def turn(span):
        """Takes what has come, and answers pings: a server closes a connection that does not."""
        nonlocal got, closed
        for of, _ in poll.poll(span, 4096):
            try:
                data = by_number[of].recv(65536)
            except ConnectionError:
                data = b""
            now = time.time()
            for part in data.split(b"@@")[1:]:
                got += 1
                millis = int((now - float(part.split(b"!")[0])) * 1000)
                buckets[millis] = buckets.get(millis, 0) + 1
            pong(by_number[of], data)
            if not data:
                closed += 1
                poll.unregister(of)

    for at in range(count):
        # 2,000 connections of each address of loopback: with 14,000 the kernel takes 16 ms to find a free port.
        stream = server.subscribe(f"127.0.{1 + number}.{1 + at // 2_000}")
        by_number[stream.fileno()] = stream
        poll.register(stream, select.EPOLLIN)
        if at % 500 == 0:
            turn(0)
    told.put("ready")
    while not go.is_set():
        turn(0.1)
    end = time.time() + seconds + 30
    while got < (count - closed) * seconds and time.time() < end:
        turn(1)
    told.put((got, closed, buckets))


name = next(argument for argument in arguments if "=" in argument)
redis = Redis() if several > 1 else None
servers = []
try:
    servers += [Server(name, redis) for _ in range(several)]
    server = servers[0]
    told, go = multiprocessing.Queue(), multiprocessing.Event()
    share = [subscribers // processes + (number < subscribers % processes) for number in range(processes)]
    readers = [multiprocessing.Process(target=read, args=(servers[number % several], number, count, told, go)) for number, count in enumerate(share)]
    for reader in readers:
        reader.start()
    for _ in readers:
        told.get()
    print(f"{server.name}: {subscribers} subscribers are there, {sum(one.memory() for one in servers) / subscribers:.0f} resident bytes each, {several} servers", flush=True)
    publish, before, begun = server.publisher(), sum(one.cpu() for one in servers), time.monotonic()
    go.set()
    for number in range(seconds):
        time.sleep(max(0, begun + number + 1 - time.monotonic()))
        publish(f"@@{time.time():.6f}!")
    all_got, all_closed, all_buckets = 0, 0, {}
    for _ in readers:
        got, closed, buckets = told.get()
        all_got, all_closed = all_got + got, all_closed + closed
        for millis, count in buckets.items():
            all_buckets[millis] = all_buckets.get(millis, 0) + count
    used = sum(one.cpu() for one in servers) - before
    expected, seen, marks = subscribers * seconds, 0, {}
    for millis in sorted(all_buckets):
        seen += all_buckets[millis]
        for share_of in (0.5, 0.99, 0.999, 1):
            if seen >= share_of * all_got and share_of not in marks:
                marks[share_of] = millis
    shares = ", ".join(f"p{100 * of:g} {millis} ms" for of, millis in marks.items())
    print(f"{server.name}: {all_got} of {expected} delivered, {expected - all_got} lost, {all_closed} connections closed; {shares}; {used / max(all_got, 1) * 1e6:.3f} µs of CPU a delivery")
finally:
    for server in servers:
        server.stop()
    if redis:
        redis.stop()
