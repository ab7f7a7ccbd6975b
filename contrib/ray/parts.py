"""Loads or copies in parts on a Ray cluster.

    python parts.py load 8 records http://server:8080/ -c 8000 -d 1m
    python parts.py copy 8 lists /data /mnt/dst

The folder (records, lists) is one that all nodes share. A load begins on all nodes at one instant; its parts are repeated
together. A part of a copy that fails is repeated by itself, and the last pass follows when all are done.
In the environment: RINGROAD, the program; LEAD, seconds until a load begins (20); CPUS, what a part takes of Ray (1). The
parts of a load need them all at once, so on a small machine CPUS=0.1.
"""

import os
import subprocess
import sys
import time

import ray

RINGROAD = os.environ.get("RINGROAD", "ringroad")
# Until then all parts have to run and to be connected.
LEAD_S = float(os.environ.get("LEAD", "20"))
TRIES = 3


def call(words):
    done = subprocess.run([RINGROAD, *words], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@ray.remote(num_cpus=float(os.environ.get("CPUS", "1")))
def part(words):
    return call(words)


def load(count, folder, words):
    for _ in range(TRIES):
        start = f"{time.time() + LEAD_S:.3f}"
        common = ["load", *words, "--quiet", "--start-at", start, "--post", folder]
        ends = ray.get([part.remote([*common, "--part", f"{i}/{count}"]) for i in range(1, count + 1)])
        # 5 is a part with an INVALID verdict: it ran, and the sum is judged below.
        if all(code in (0, 5) for code, _ in ends):
            return call(["lab", "merge", folder, "--out", os.path.join(folder, "whole.json")])
        print("repeated, as parts run together:", *(text for code, text in ends if code), file=sys.stderr)
    sys.exit("no try in which all parts ran")


def copy(count, folder, words):
    at = lambda name: os.path.join(folder, name)
    # The tree is walked once; the parts copy by that list.
    code, text = call(["cp", "-a", "--make-list", at("tree.list"), *words[:-1]])
    if code:
        return code, text
    listed = ["cp", "-a", "--list", at("tree.list")]
    line = lambda i: [*listed, "--part", f"{i}/{count}", "--manifest", at(f"part-{i}.ndjson"), *words]
    left = set(range(1, count + 1))
    for _ in range(TRIES):
        ends = dict(zip(left, ray.get([part.remote(line(i)) for i in left])))
        left = {i for i, (code, _) in ends.items() if code}
        if not left:
            break
        print("repeated:", *(ends[i][1] for i in left), file=sys.stderr)
    lists = [at(f"part-{i}.ndjson") for i in range(1, count + 1)]
    last = [[*listed, "--finish", "--manifest", at("finish.ndjson"), *words]]
    last += [["manifest", "merge", at("all.ndjson"), *lists, at("finish.ndjson")], ["manifest", "check", at("all.ndjson"), words[-1]]]
    for step in last:
        code, text = call(step)
        print(text, end="")
        if code:
            break
    return code, ""


if __name__ == "__main__":
    what, count, folder, *words = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    ray.init(log_to_driver=False)
    code, text = {"load": load, "copy": copy}[what](int(count), os.path.abspath(folder), words)
    print(text, end="")
    sys.exit(code)
