"""Connections to a hub, held with heartbeats while messages come: python3 hold.py RINGROAD [-c CONNECTIONS] [-d SECONDS] NAME=COMMAND
RINGROAD is the program that holds them (`load --hold`). The exit code is 1 below 99.5 % survival."""
import subprocess, sys, threading
from peers import Server

arguments = sys.argv[1:]
option = lambda name, default: int(arguments[arguments.index(name) + 1]) if name in arguments else default
connections, seconds = option("-c", 20_000), option("-d", 600)
server = Server(next(argument for argument in arguments[1:] if "=" in argument))
try:
    over, publish = threading.Event(), server.publisher()

    def talk():
        while not over.wait(1):
            publish("@@a message a second")

    talker = threading.Thread(target=talk)
    talker.start()
    url = f"ws://127.0.0.1:{server.port}/.well-known/mercure?topic=t"
    held = subprocess.run([arguments[0], "load", url, "--hold", "-c", str(connections), "-d", f"{seconds}s", "--heartbeat", "30s"])
    over.set()
    talker.join()
    print(f"{server.name}: {server.memory() / connections:.0f} resident bytes a connection, all in all")
    sys.exit(held.returncode)
finally:
    server.stop()
