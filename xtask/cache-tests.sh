#!/usr/bin/env bash
# The public tests of HTTP caches (cache-tests.fyi) against `ringroad serve` before their own origin.
#
#   xtask/cache-tests.sh [OTHER-CACHE-URL]
#
# The package `http-cache-tests` is installed into target/cache-tests with npm. With a URL, that cache is tested in place
# of ours; it must have the origin at 127.0.0.1:8000 behind it, while this script runs. Prints the count of required and
# of optimal behaviours, and each one that is missing; compare it with docs/results/cache-tests.md.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
folder=$root/target/cache-tests
suite=$folder/node_modules/http-cache-tests
mkdir -p "$folder"
[ -d "$suite" ] || (cd "$folder" && npm install --silent --no-save http-cache-tests@0.4.5)

cd "$suite"
npm_config_protocol=http npm_config_port=8000 npm_config_pidfile=$folder/origin.pid node server/server.mjs > "$folder/origin.log" 2>&1 &
origin=$!
ours=
trap 'kill $origin $ours 2>/dev/null || true' EXIT
until grep -q Listening "$folder/origin.log"; do sleep 0.1; done

base=${1:-}
if [ -z "$base" ]; then
    cargo build --quiet --manifest-path "$root/Cargo.toml" -p ringroad-cli
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    base=http://127.0.0.1:$port
    # What the tests look at is switched on: heuristics, stale answers where the origin is gone, cookies, and directives
    # of requests.
    cat > "$folder/ringroad.toml" <<CONFIG
listen = "127.0.0.1:$port"
workers = 1
[store.tests]
[[route]]
path = "/"
kind = "proxy"
to = "http://127.0.0.1:8000"
cache = { store = "tests", heuristic = true, cookies = true, obey_requests = true, stale_if_error = "1m" }
CONFIG
    "$root/target/debug/ringroad" serve --config "$folder/ringroad.toml" > "$folder/ringroad.log" 2>&1 &
    ours=$!
    until (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do sleep 0.1; done
fi
npm run --silent cli --base="$base" > "$folder/result.json"

cat > "$folder/judge.mjs" <<'JUDGE'
import fs from 'fs'
import tests from './node_modules/http-cache-tests/tests/index.mjs'
const results = JSON.parse(fs.readFileSync(process.argv[2]))
const count = {}
const missing = []
for (const suite of tests) {
  for (const test of suite.tests) {
    if (test.browser_only) continue
    const kind = test.kind || 'required'
    count[kind] ||= [0, 0]
    count[kind][1] += 1
    if (results[test.id] === true) count[kind][0] += 1
    else if (kind !== 'check') missing.push(`${kind} ${suite.id} ${test.id} ${JSON.stringify(results[test.id])}`)
  }
}
missing.sort().forEach(line => console.log(line))
for (const kind of ['required', 'optimal', 'check']) console.log(`${kind}: ${count[kind][0]} of ${count[kind][1]}`)
JUDGE
node --no-warnings "$folder/judge.mjs" "$folder/result.json"
