"""CPU of a page, in turns, against the first program: python3 page.py [-p] [-r ROUNDS] NAME=COMMAND …
PORT in a command is a port of 127.0.0.1 to listen on. -p: sixteen requests at a time."""
import shlex, sys
from programs import Programs, free_port, told, turns

arguments = sys.argv[1:]
rounds = int(arguments[arguments.index("-r") + 1]) if "-r" in arguments else 12
SIXTEEN = """init = function() local r = {} for i = 1, 16 do r[i] = wrk.format('GET', '/') end all = table.concat(r) end
request = function() return all end
"""

with Programs() as run:
    programs = {}
    for argument in (argument for argument in arguments if "=" in argument):
        name, command = argument.split("=", 1)
        port = free_port()
        # `env` takes the variables before a command, and becomes the command.
        programs[name] = ([run.start(["env", *shlex.split(command.replace("PORT", str(port)))], port)], port)
    words = ["-s", run.write("sixteen.lua", SIXTEEN)] if "-p" in arguments else []
    told(turns(programs, rounds, 1, words), next(iter(programs)))
