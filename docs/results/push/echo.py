"""CPU of a message that is echoed, in turns, against the first server: python3 echo.py RINGROAD [-r ROUNDS] [-l BYTES] NAME=COMMAND …
RINGROAD is the program that makes the load."""
import json, random, statistics, subprocess, sys
from peers import Server

arguments = sys.argv[1:]
option = lambda name, default: int(arguments[arguments.index(name) + 1]) if name in arguments else default
rounds, length = option("-r", 12), option("-l", 64)
paths = {"bun": "/echo"}
servers = [Server(argument) for argument in arguments[1:] if "=" in argument]
costs = {server.name: [] for server in servers}
try:
    for turn in range(rounds + 1):
        for server in random.sample(servers, len(servers)):
            before = server.cpu()
            url = f"ws://127.0.0.1:{server.port}{paths.get(server.kind, '/')}"
            load = [arguments[0], "load", url, "-t", "1", "-c", "64", "-d", "1s", "--length", str(length), "--json"]
            said = subprocess.run(load, capture_output=True, text=True)
            completed = json.loads(said.stdout)["cells"][0]["completed"]
            # The first turn warms up.
            if turn:
                costs[server.name].append((server.cpu() - before) / completed * 1e6)
    base = servers[0].name
    for name, own in costs.items():
        ratios = sorted(mine / theirs for mine, theirs in zip(own, costs[base]))
        quarter = len(ratios) // 4
        print(
            f"{name}: {statistics.median(own):.3f} µs of CPU a message of {length} bytes, {statistics.median(ratios):.3f} of {base} "
            f"({ratios[quarter]:.3f} to {ratios[-1 - quarter]:.3f}), {len(own)} turns"
        )
finally:
    for server in servers:
        server.stop()
