#!/usr/bin/env python3
"""The figures of docs/results/parts.md, by one command.

    python3 docs/results/parts/figures.py RINGROAD [--files 1000000] [--kills 50] [--rounds 6] [--list 1000000]

RINGROAD is the program that is measured. Three things are done, in a folder that is removed afterwards:
  1. one process against two parts of one load, in turns: rates and percentiles;
  2. a copy in 8 parts by one list, a part killed at random KILLS times: lists of the parts and of one run;
  3. memory of a list and of a copy by it, for two numbers of entries: bytes for each entry.
Traffic is on the loopback interface. The exit code is 1 if a claim does not hold.
"""
import argparse
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time


def run(words, **more):
    done = subprocess.run(words, capture_output=True, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"{words}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def tree(root, files, folders=100, size=64):
    for number in range(folders):
        (root / f"d{number:03}").mkdir(parents=True)
    for number in range(files):
        with open(root / f"d{number % folders:03}" / f"f{number:07}", "wb") as file:
            file.write(b"%d" % number * (size // 8))


def loads(program, place, rounds):
    """Returns whether the rates agree within 1 %."""
    (place / "site").mkdir()
    (place / "site" / "index.html").write_text("x" * 100)
    server = subprocess.Popen(
        [program, "serve", "site", "--listen", "127.0.0.1:0"],
        cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        url = None
        for line in server.stdout:
            found = re.search(r"http://127\.0\.0\.1:\d+", line)
            if found:
                url = found.group(0) + "/"
                break
        if url is None:
            sys.exit("the server names no address")
        rows = []
        for number in range(rounds):
            load = [program, "load", url, "-c", "32", "-r", "2000", "-d", "4s", "-t", "1"]
            one = place / f"one-{number}.json"
            subprocess.run(load + ["-o", str(one)], capture_output=True)
            begin = time.time() + 3
            start = f"{begin:.3f}"
            parts = [place / f"part-{number}-{part}.json" for part in (1, 2)]
            running = [
                subprocess.Popen(load + ["--part", f"{part}/2", "--start-at", start, "-o", str(record)],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                for part, record in enumerate(parts, 1)
            ]
            for part in running:
                part.wait()
            merged = place / f"merged-{number}.json"
            # It may be SUSPECT on a busy machine; the record is there in any case.
            subprocess.run([program, "lab", "merge", *map(str, parts), "--out", str(merged)], capture_output=True)
            rows.append((figures(one), figures(merged)))
    finally:
        server.send_signal(signal.SIGINT)
        server.wait()
    print("rate and p50 of one process; of two parts")
    for one, two in rows:
        print(f"  {one}; {two}")
    agree = [abs(two[0] / one[0] - 1) <= 0.01 for one, two in rows if one and two and one[0] and two[0]]
    print(f"rates within 1 %: {sum(agree)} of {len(rows)}")
    return len(agree) == len(rows) and all(agree)


def figures(record):
    """Requests per second and the median service time of a record, in µs."""
    if not record.exists():
        return None
    cell = json.loads(record.read_text())["cells"][0]
    rate = cell.get("rps", cell["runs"][0].get("rps"))
    if isinstance(rate, dict):
        rate = rate.get("median", rate.get("value"))
    return rate, cell["latency_us"]["service"]["p50"]


def copies(program, place, files, kills, seed=30):
    """Returns whether nothing was lost and nothing was copied twice."""
    source = place / "s"
    tree(source, files)
    run([program, "cp", "-a", "--quiet", "--make-list", "list", "s"], cwd=place)
    chance, parts = random.Random(seed), 8

    def part(index, manifest):
        words = [program, "cp", "-a", "--quiet", "--list", "list", f"--part={index}/{parts}"]
        return words + ["--manifest", manifest, "s", "d"]

    killed = 0
    for _ in range(kills):
        index = chance.randint(1, parts)
        running = subprocess.Popen(part(index, f"{index}.b3"), cwd=place, stderr=subprocess.DEVNULL)
        try:
            running.wait(chance.uniform(0.02, 0.6))
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
            killed += 1
    for index in range(1, parts + 1):
        run(part(index, f"{index}.b3"), cwd=place)
    run([program, "cp", "-a", "--quiet", "--list", "list", "--finish", "--manifest", "finish.b3", "s", "d"], cwd=place)
    lists = [f"{index}.b3" for index in range(1, parts + 1)] + ["finish.b3"]
    run([program, "manifest", "merge", "all.b3", *lists], cwd=place)
    run([program, "cp", "-a", "--quiet", "--manifest", "one.b3", "-T", "s", "one"], cwd=place)
    same = (place / "all.b3").read_bytes() == (place / "one.b3").read_bytes()
    print(run([program, "manifest", "check", "all.b3", "d"], cwd=place).strip())
    counts = [sum(1 for _ in open(place / f"{index}.b3", "rb")) for index in range(1, parts + 1)]
    print(f"{files} files, {killed} of {kills} runs killed; files of the parts: {counts}")
    print(f"list of the parts and of one run: {'equal' if same else 'DIFFERENT'}")
    return same


def memory(program, place, entries):
    """Prints the peak of the program's memory for a tenth of the entries and for all of them."""
    peaks = []
    for files in (entries // 10, entries):
        root = place / f"m{files}"
        tree(root, files, folders=max(1, files // 1000), size=0)
        row = [files]
        for words in (["--make-list", f"list-{files}", root.name],
                      ["--list", f"list-{files}", "--journal", f"journal-{files}", root.name, f"{root.name}-copy"],
                      ["--list", f"list-{files}", "--journal", f"journal-{files}", root.name, f"{root.name}-copy"]):
            child = subprocess.Popen([program, "cp", "-a", "--quiet", *words], cwd=place)
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            if child.returncode != 0:
                sys.exit(f"{words}: exit code {child.returncode}")
            row.append(usage.ru_maxrss)
        peaks.append(row)
        run(["rm", "-rf", root.name, f"{root.name}-copy"], cwd=place)
    print("entries; peak KiB of: the list, the copy, the copy gone on with")
    for row in peaks:
        print("  " + "; ".join(map(str, row)))
    (few, *small), (many, *large) = peaks
    each = [(one - other) * 1024 / (many - few) for one, other in zip(large, small)]
    print("bytes for each further entry: " + ", ".join(f"{bytes_:.1f}" for bytes_ in each))
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--list", type=int, default=1_000_000)
    flags = parser.parse_args()
    program = str(pathlib.Path(flags.program).resolve())
    good = True
    for work in (lambda place: loads(program, place, flags.rounds) if flags.rounds else True,
                 lambda place: copies(program, place, flags.files, flags.kills) if flags.files else True,
                 lambda place: memory(program, place, flags.list) if flags.list else True):
        with tempfile.TemporaryDirectory() as place:
            good &= work(pathlib.Path(place))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
