"""CPU of a message that is delivered to a member, in turns, against the first server:
python3 members.py [-m MEMBERS] [-r ROUNDS] [-n MESSAGES] NAME=COMMAND …"""
import random, select, statistics, sys
from peers import Server, descriptors, pong

arguments = sys.argv[1:]
option = lambda name, default: int(arguments[arguments.index(name) + 1]) if name in arguments else default
members, rounds, messages = option("-m", 1000), option("-r", 12), option("-n", 200)
descriptors()
MARK = b"@@"
servers = [Server(argument) for argument in arguments if "=" in argument]
try:
    ready = []
    for server in servers:
        streams = [server.subscribe() for _ in range(members)]
        poll = select.epoll()
        by_number = {stream.fileno(): stream for stream in streams}
        for number in by_number:
            poll.register(number, select.EPOLLIN)
        ready.append((server, poll, by_number, server.publisher()))
    costs = {server.name: [] for server in servers}
    for turn in range(rounds + 1):
        for server, poll, by_number, publish in random.sample(ready, len(ready)):
            # Pings that came while others took their turns.
            for number_of, _ in poll.poll(0):
                pong(by_number[number_of], by_number[number_of].recv(65536))
            before, got = server.cpu(), 0
            for number in range(messages):
                publish(MARK.decode() + "x" * 62)
                # Taken as it comes, so that no member is slow.
                while got < (number + 1) * members:
                    for number_of, _ in poll.poll(30):
                        data = by_number[number_of].recv(65536)
                        if not data:
                            sys.exit(f"{server.name}: a member was closed")
                        got += data.count(MARK)
            if turn:
                costs[server.name].append((server.cpu() - before) / got * 1e6)
    base = servers[0].name
    for name, own in costs.items():
        ratios = sorted(mine / theirs for mine, theirs in zip(own, costs[base]))
        quarter = len(ratios) // 4
        print(
            f"{name}: {statistics.median(own):.3f} µs of CPU a delivery to one of {members}, {statistics.median(ratios):.3f} of {base} "
            f"({ratios[quarter]:.3f} to {ratios[-1 - quarter]:.3f}), {len(own)} turns of {messages} messages"
        )
finally:
    for server in servers:
        server.stop()
