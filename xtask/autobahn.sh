#!/usr/bin/env bash
# The Autobahn testsuite for WebSocket against both sides of the library.
#
#   xtask/autobahn.sh [CASES [DRIVER...]]
#
# CASES is a list of sections, as '1.*,2.*' (default: all, which takes about ten minutes for each side and
# driver); without drivers all five are tested. The suite needs Python 2.7, which Debian 11 was the last to
# have: its packages are unpacked into target/autobahn and not installed. CPython installs it and PyPy runs it.
# Exit code 1: a case has failed.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
folder=$root/target/autobahn
cases=${1:-*}
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- io_uring epoll poll select threads
python=$folder/python/usr/bin/python2.7

py() {
    PYTHONHOME=$folder/python/usr PYTHONPATH=$folder/site:${PIP:-}:$folder/suite \
        LD_LIBRARY_PATH=$folder/python/usr/lib/x86_64-linux-gnu:$folder/python/lib/x86_64-linux-gnu "$python" "$@"
}

if [ ! -f "$folder/ready" ]; then
    mkdir -p "$folder"/{apt/lists/partial,apt/cache/archives/partial,deb,wheels,sdist}
    # The archive that this system uses has Debian 11 as well.
    archive=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -v security | head -1)
    echo "deb [trusted=yes] $archive bullseye main" > "$folder/apt/list"
    apt() {
        apt-get -q -o Dir::Etc::sourcelist="$folder/apt/list" -o Dir::Etc::sourceparts=- \
            -o Dir::State::lists="$folder/apt/lists" -o Dir::Cache="$folder/apt/cache" -o APT::Sandbox::User=root "$@"
    }
    apt update
    (cd "$folder/deb" && apt download python2.7 python2.7-minimal libpython2.7-stdlib libpython2.7-minimal libssl1.1 libffi7 \
        pypy pypy-lib)
    for one in "$folder"/deb/*.deb; do dpkg -x "$one" "$folder/python"; done
    python3 -m pip download -q --no-deps --dest "$folder/wheels" pip==20.3.4
    PIP=$folder/wheels/pip-20.3.4-py2.py3-none-any.whl
    install() { py -m pip -q install -t "$folder/site" "$@"; }
    install setuptools==44.1.1 wheel==0.37.1
    install txaio==2.1.0 incremental==16.10.1 cryptography==3.3.2 zope.interface==4.6.0 jinja2==2.11.3 \
        markupsafe==1.1.1 Werkzeug==1.0.1 klein==17.10.0 pyopenssl==19.1.0 service_identity==18.1.0 \
        unittest2==1.1.0 six==1.16.0
    install --no-build-isolation Twisted==19.10.0
    install --no-deps --no-build-isolation autobahn==0.10.9
    touch "$folder/site/zope/__init__.py"
    py -m pip -q download --no-deps --no-binary :all: -d "$folder/sdist" autobahntestsuite==25.10.1
    mkdir -p "$folder/suite"
    tar xzf "$folder"/sdist/autobahntestsuite-*.tar.gz -C "$folder/suite" --strip-components=1
    touch "$folder/ready"
fi

cargo build --quiet --release --manifest-path "$root/Cargo.toml" -p ringroad --example autobahn
program=$root/target/release/examples/autobahn
list=$(printf '"%s",' ${cases//,/ })
list="[${list%,}]"
# PyPy has no bindings of OpenSSL here, and nothing of them is used.
suite() {
    PYTHONPATH=$folder/suite:$folder/site \
        LD_LIBRARY_PATH=$folder/python/usr/lib:$folder/python/usr/lib/x86_64-linux-gnu "$folder/python/usr/bin/pypy" -c '
import sys, types, twisted.internet
without = types.ModuleType("twisted.internet.ssl")
without.ClientContextFactory = object
sys.modules["twisted.internet.ssl"] = twisted.internet.ssl = without
from autobahntestsuite import wstest
wstest.run()' "$@"
}

judge() {
    python3 - "$1" <<'P'
import collections, json, sys
failed = 0
for agent, cases in json.load(open(sys.argv[1] + '/report/index.json')).items():
    for kind in ('behavior', 'behaviorClose'):
        print(agent, kind, dict(collections.Counter(case[kind] for case in cases.values())))
    # Unimplemented: at a client that offers no smaller window the suite leaves out what asks for one.
    good = ('OK', 'NON-STRICT', 'INFORMATIONAL', 'UNIMPLEMENTED')
    for name, case in cases.items():
        if case['behavior'] not in good or case['behaviorClose'] not in good:
            failed += 1
            print('  failed:', name, case['behavior'], case['behaviorClose'])
sys.exit(1 if failed else 0)
P
}

failed=0
for driver; do
    for side in server client; do
        out=$folder/out/$driver-$side
        rm -rf "$out" && mkdir -p "$out" && cd "$out"
        rest="\"cases\":$list,\"exclude-cases\":[],\"exclude-agent-cases\":{}"
        if [ $side = server ]; then
            RINGROAD_DRIVER=$driver "$program" serve 127.0.0.1:0 > serve.log 2>&1 &
            ours=$!
            until grep -q ' ' serve.log; do sleep 0.1; done
            url=ws://$(cut -d' ' -f1 serve.log)
            echo "{\"outdir\":\"$out/report\",\"servers\":[{\"agent\":\"$driver\",\"url\":\"$url\"}],$rest}" > spec.json
            suite -m fuzzingclient -s spec.json > suite.log 2>&1
            kill $ours
        else
            port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
            echo "{\"outdir\":\"$out/report\",\"url\":\"ws://127.0.0.1:$port\",\"options\":{\"failByDrop\":false},\"webport\":0,$rest}" > spec.json
            suite -m fuzzingserver -s spec.json > suite.log 2>&1 &
            theirs=$!
            until python3 -c "import socket; socket.create_connection(('127.0.0.1', $port)).close()" 2>/dev/null; do sleep 0.2; done
            RINGROAD_DRIVER=$driver "$program" ask "ws://127.0.0.1:$port" "$driver" > ask.log 2>&1
            kill $theirs
        fi
        echo "== $driver, $side side"
        judge "$out" || failed=1
    done
done
exit $failed
