#!/usr/bin/env bash
# CPU per operation of the example `resp` beside redis-server, with redis-benchmark: GET and SET, alone and pipelined.
# Run it on a quiet machine with two cores or more: the server on core 0, the client on core 1. Needs redis-server.
#   contrib/resp/bench.sh [ROUNDS] [REQUESTS]
set -euo pipefail
cd "$(dirname "$0")/../.."
rounds=${1:-5} requests=${2:-200000}
command -v redis-server >/dev/null || { echo "redis-server is not installed" >&2; exit 1; }
cargo build --release --quiet -p ringroad --example resp
folder=$(mktemp -d)
server=
stop() { if [ -n "$server" ]; then kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; server=; fi; }
trap 'stop; rm -rf "$folder"' EXIT

# Nanoseconds that all threads of a process have run.
cpu() { awk '{ sum += $1 } END { printf "%.0f", sum }' /proc/"$1"/task/*/schedstat; }
# A port that is free now.
port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

one() { # name, test, pipeline, command...
    local name=$1 test=$2 pipeline=$3 at before after
    shift 3
    at=$(port)
    "${@//PORT/$at}" >"$folder/log" 2>&1 &
    server=$!
    for _ in $(seq 100); do
        redis-cli -p "$at" ping >/dev/null 2>&1 && break
        sleep 0.05
    done
    before=$(cpu "$server")
    taskset -c 1 redis-benchmark -p "$at" -t "$test" -n "$requests" -c 50 -P "$pipeline" -r 100000 -d 32 -q >/dev/null
    after=$(cpu "$server")
    stop
    awk -v n="$name" -v t="$test" -v p="$pipeline" -v c=$((after - before)) -v r="$requests" \
        'BEGIN { printf "%s\t%s\tP%d\t%.3f us of CPU per operation\n", n, t, p, c / r / 1000 }'
}

for _ in $(seq "$rounds"); do
    for test in get set; do
        for pipeline in 1 16; do
            one redis "$test" "$pipeline" taskset -c 0 redis-server --port PORT --save '' --appendonly no
            for driver in io_uring epoll; do
                one "resp-$driver" "$test" "$pipeline" env RINGROAD_DRIVER=$driver taskset -c 0 target/release/examples/resp 127.0.0.1:PORT
            done
        done
    done
done | tee "$folder/all"
echo "medians:"
sort "$folder/all" | awk -F'\t' '{ key = $1 "\t" $2 "\t" $3; split($4, v, " "); a[key] = a[key] " " v[1] }
    END { for (key in a) { n = split(a[key], v, " "); for (i = 1; i <= n; i++) for (j = i + 1; j <= n; j++)
        if (v[j] + 0 < v[i] + 0) { t = v[i]; v[i] = v[j]; v[j] = t } print key "\t" v[int((n + 1) / 2)] } }' | sort
