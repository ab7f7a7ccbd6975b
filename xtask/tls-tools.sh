#!/usr/bin/env bash
# Other projects' tools against TLS and HTTP/2 of `ringroad serve`.
#
#   xtask/tls-tools.sh [PART...]
#
# Parts: zoo, curl, openssl, gnutls, nghttp, h2load, h2spec, httpwg, sslscan, testssl, reloads (default: all). The tools
# are packages of the system (curl, openssl, gnutls-bin, nghttp2-client, sslscan, testssl.sh with bsdextrautils and
# dnsutils); h2spec comes with Go and httpwg-cli with cargo, into target/tls-tools, where the certificates and logs are as
# well. RINGROAD names another program than that of the release build, DRIVERS other drivers than all five. Prints a line
# for each case and, at the end, the failed ones and the tools that are not installed. Exit code 1: a case has failed.
# docs/results/tls.md and docs/results/http2.md explain what is found.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
folder=$root/target/tls-tools
[ $# -gt 0 ] || set -- zoo curl openssl gnutls nghttp h2load h2spec httpwg sslscan testssl reloads
read -ra drivers <<< "${DRIVERS:-io_uring epoll poll select threads}"
mkdir -p "$folder/bin"
program=${RINGROAD:-}
if [ -z "$program" ]; then
    cargo build --quiet --release --manifest-path "$root/Cargo.toml" -p ringroad-cli
    program=$root/target/release/ringroad
fi
failed=() missing=()
ours=
behind=
stop() { [ -z "$ours" ] || { kill "$ours" 2>/dev/null && wait "$ours" 2>/dev/null || true; }; ours=; }
trap 'stop; [ -z "$behind" ] || kill "$behind" 2>/dev/null || true' EXIT

told() { # CASE, then `ok` or what was found instead
    if [ "$2" = ok ]; then echo "  ok: $1"; else echo "  FAILED: $1: $2"; failed+=("$1"); fi
}
is() { if [ "$2" = "$3" ]; then told "$1" ok; else told "$1" "expected $2, found $3"; fi; }
has() { if grep -qF -- "$2" <<< "$3"; then told "$1" ok; else told "$1" "no \"$2\" in: $(tail -n 3 <<< "$3" | tr '\n' ' ')"; fi; }
installed() { command -v "$1" >/dev/null || { missing+=("$1"); echo "$1: not installed"; return 1; }; }

# ---- certificates: authority, intermediate, and leaves that are right or wrong in one way each

issue() { # NAME, ISSUER, EXTENSIONS, DAYS, [SUBJECT]
    local subject=${5:-/CN=$1}
    openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "$subject" -keyout "$1.key" -out "$1.csr" 2>/dev/null
    printf '%b' "$3" > "$1.ext"
    if [ "$4" = expired ]; then
        : > index.txt
        printf '[ca]\ndefault_ca=d\n[d]\ndatabase=index.txt\nrand_serial=yes\nnew_certs_dir=.\ndefault_md=sha256\npolicy=p\nunique_subject=no\n[p]\ncommonName=supplied\n' > ca.cnf
        openssl ca -batch -config ca.cnf -in "$1.csr" -cert "$2.pem" -keyfile "$2.key" -notext -extfile "$1.ext" \
            -startdate 20200101000000Z -enddate 20200201000000Z -out "$1.pem" 2>/dev/null
    else
        openssl x509 -req -in "$1.csr" -CA "$2.pem" -CAkey "$2.key" -days "$4" -extfile "$1.ext" -out "$1.pem" 2>/dev/null
    fi
}
authority() { # NAME
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" -days 200 -keyout "$1.key" -out "$1.pem" \
        -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign 2>/dev/null
}
names='subjectAltName=DNS:a.test,DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth\n'
rm -rf "$folder/pki" && mkdir -p "$folder/pki" && cd "$folder/pki"
authority root
authority other
issue middle root 'basicConstraints=critical,CA:TRUE,pathlen:0\nkeyUsage=critical,keyCertSign,cRLSign\n' 100
issue leaf middle "$names" 90
issue expired root "$names" expired
issue wrong root 'subjectAltName=DNS:elsewhere.test\nextendedKeyUsage=serverAuth\n' 20
issue ann root 'extendedKeyUsage=clientAuth\n' 20
issue gone root 'extendedKeyUsage=clientAuth\n' 20
issue stranger other 'extendedKeyUsage=clientAuth\n' 20
mkdir certs nochain mtls
cat leaf.pem middle.pem > certs/leaf.pem && cp leaf.key certs/
cp leaf.pem leaf.key nochain/
# A list with one revoked client.
: > index.txt && echo 01 > crlnumber
printf '[ca]\ndefault_ca=d\n[d]\ndatabase=index.txt\ncrlnumber=crlnumber\ndefault_md=sha256\ndefault_crl_days=10\n' > crl.cnf
openssl ca -config crl.cnf -cert root.pem -keyfile root.key -revoke gone.pem 2>/dev/null
openssl ca -config crl.cnf -cert root.pem -keyfile root.key -gencrl -out revoked.pem 2>/dev/null
head -c 3000000 /dev/urandom > "$folder/large"

# ---- the server

rm -rf "$folder/site" && mkdir -p "$folder/site/files" && cp "$folder/large" "$folder/site/files/large"
printf 'listen = "127.0.0.1:0"\n[[route]]\npath = "/"\nkind = "respond"\nbody = "<h1>Hello World</h1>"\n' > "$folder/site/behind.toml"
listening() { # LOG, PROCESS: waits until the server has said where
    for _ in $(seq 600); do
        grep -q '^Ctrl-C' "$1" && return
        kill -0 "$2" 2>/dev/null || { cat "$1"; exit 2; }
        sleep 0.1
    done
}
# The process in the background opens its log later than the next line may read it: without this the
# address of an earlier run would be taken.
: > "$folder/behind.log"
"$program" serve --config "$folder/site/behind.toml" > "$folder/behind.log" 2>&1 &
behind=$!
listening "$folder/behind.log" $behind
# `/` is the page of a server behind: a request is collected before that is asked, so no answer comes before the end of a
# request that is wrong at its end. A tool that looks for the error would find the stream closed already.
routes="[[route]]
path = \"/\"
kind = \"proxy\"
to = \"$(grep -oE 'http://127.0.0.1:[0-9]+' "$folder/behind.log" | head -1)\"
[[route]]
path = \"/own\"
kind = \"respond\"
body = \"<h1>Hello World</h1>\"
[[route]]
path = \"/files/\"
kind = \"static\"
root = \"files\""
serve() { # DRIVER, CERTIFICATES, further lines of [tls]
    stop
    cat > "$folder/site/site.toml" <<CONFIG
listen = ["127.0.0.1:0", { address = "127.0.0.1:0", tls = true }]
workers = 1
[http2]
prior_knowledge = true
[tls]
certificates = ["$folder/pki/$2"]
${3:-}
$routes
CONFIG
    : > "$folder/serve.log"
    "$program" serve --driver "$1" --config "$folder/site/site.toml" > "$folder/serve.log" 2>&1 &
    ours=$!
    listening "$folder/serve.log" $ours
    plain=$(grep -oE 'http://127.0.0.1:[0-9]+' "$folder/serve.log" | head -1 | grep -oE '[0-9]+$')
    secure=$(grep -oE 'https://127.0.0.1:[0-9]+' "$folder/serve.log" | head -1 | grep -oE '[0-9]+$')
}
version() { echo "$1: $("${@:2}" 2>&1 | grep -m1 -E '[0-9]\.[0-9]' || true)"; }
ask() { curl -sS --max-time 60 --resolve "a.test:$secure:127.0.0.1" --cacert "$folder/pki/root.pem" "$@" "https://a.test:$secure/" 2>&1; }
client() { # s_client with a request on its input; bytes of HTTP/2 are no text
    printf 'GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n' |
        timeout 60 openssl s_client -connect "127.0.0.1:$secure" ${SNI--servername a.test} -CAfile "$folder/pki/root.pem" -ign_eof "$@" 2>&1 | tr -d '\0' || true
}

# ---- the parts

part_zoo() {
    local pki=$folder/pki
    serve "${drivers[0]}" certs
    has "zoo: a whole chain is accepted" "Hello World" "$(ask)"
    serve "${drivers[0]}" nochain
    has "zoo: a leaf without its intermediate is refused by the client" "unable to get local issuer" "$(ask || true)"
    mkdir -p "$pki/wrongname" && cp "$pki"/wrong.{pem,key} "$pki/wrongname/"
    serve "${drivers[0]}" wrongname
    has "zoo: a certificate for another name is refused by the client" "no alternative certificate subject name" "$(ask || true)"
    mkdir -p "$pki/old" && cp "$pki"/expired.{pem,key} "$pki/old/"
    serve "${drivers[0]}" old
    has "zoo: an expired certificate is refused by the client" "certificate has expired" "$(ask || true)"
    serve "${drivers[0]}" certs "client = { ca = \"$pki/root.pem\", need = \"required\", revoked = \"$pki/revoked.pem\" }"
    has "zoo: a known client is answered" "Hello World" "$(ask --cert "$pki/ann.pem" --key "$pki/ann.key")"
    # A client of TLS 1.3 has made its own handshake by the time of the alert, and its request is on the way.
    # It must get no answer, and the alert in place of a reset.
    local version
    for version in 1.2 1.3; do
        has "zoo: a client without a certificate is refused, TLS $version" "alert certificate required" "$(ask --tls-max $version || true)"
        has "zoo: a client of another authority is refused, TLS $version" "alert unknown ca" "$(ask --tls-max $version --cert "$pki/stranger.pem" --key "$pki/stranger.key" || true)"
        has "zoo: a revoked client is refused, TLS $version" "alert certificate revoked" "$(ask --tls-max $version --cert "$pki/gone.pem" --key "$pki/gone.key" || true)"
    done
}

part_curl() {
    installed curl || return 0
    version curl curl --version
    local driver way
    for driver in "${drivers[@]}"; do
        serve "$driver" certs
        for way in "--http1.1 --tls-max 1.2" "--http1.1 --tlsv1.3" "--http2 --tls-max 1.2" "--http2 --tlsv1.3"; do
            # shellcheck disable=SC2086
            has "curl $way, $driver" "Hello World" "$(ask $way || true)"
            # shellcheck disable=SC2086
            curl -sS --max-time 60 --cacert "$folder/pki/root.pem" $way -o "$folder/got" "https://127.0.0.1:$secure/files/large" 2>/dev/null || true
            is "curl $way, 3 MB, $driver" "$(sha256sum < "$folder/large")" "$(sha256sum < "$folder/got")"
        done
        is "curl --http2 speaks HTTP/2, $driver" 2 "$(ask --http2 -o /dev/null -w '%{http_version}')"
        is "curl --http2-prior-knowledge, $driver" "200 2" "$(curl -sS --max-time 60 --http2-prior-knowledge -o /dev/null -w '%{response_code} %{http_version}' "http://127.0.0.1:$plain/" || true)"
        has "curl --tls-max 1.1 is refused, $driver" "alert" "$(ask --tlsv1.0 --tls-max 1.1 --ciphers DEFAULT@SECLEVEL=0 || true)"
    done
}

part_openssl() {
    installed openssl || return 0
    version openssl openssl version
    serve "${drivers[0]}" certs
    local one text
    for one in -tls1_2 -tls1_3; do
        text=$(client $one)
        has "openssl $one: answered" "Hello World" "$text"
        has "openssl $one: verified" "Verify return code: 0 (ok)" "$text"
        client $one -sess_out "$folder/session" > /dev/null
        has "openssl $one: resumed" "Reused" "$(client $one -sess_in "$folder/session")"
    done
    has "openssl -alpn h2" "ALPN protocol: h2" "$(client -alpn h2,http/1.1)"
    has "openssl -alpn http/1.1" "ALPN protocol: http/1.1" "$(client -alpn http/1.1)"
    has "openssl -alpn of another protocol is refused" "no application protocol" "$(client -alpn ftp)"
    has "openssl without SNI" "Hello World" "$(SNI='' client -noservername)"
    has "openssl -tls1_1 is refused" "alert" "$(client -tls1_1 -cipher DEFAULT@SECLEVEL=0)"
    has "openssl with CBC alone is refused" "handshake failure" "$(client -tls1_2 -cipher ECDHE-ECDSA-AES128-SHA)"
    has "openssl -early_data: none is accepted" "Max Early Data: 0" "$(client -tls1_3)"
    serve "${drivers[0]}" certs "client = { ca = \"$folder/pki/root.pem\", need = \"optional\" }"
    has "openssl with a client certificate" "Hello World" "$(client -cert "$folder/pki/ann.pem" -key "$folder/pki/ann.key")"
    has "openssl is asked for a client certificate" "Acceptable client certificate CA names" "$(client)"
}

part_gnutls() {
    installed gnutls-cli || return 0
    version gnutls-cli gnutls-cli --version
    serve "${drivers[0]}" certs
    local priority text
    for priority in NORMAL NORMAL:-VERS-ALL:+VERS-TLS1.2 NORMAL:-VERS-ALL:+VERS-TLS1.3 NORMAL:-GROUP-ALL:+GROUP-SECP384R1 NORMAL:-CIPHER-ALL:+CHACHA20-POLY1305; do
        text=$(printf 'GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n' | timeout 60 gnutls-cli --priority "$priority" --x509cafile "$folder/pki/root.pem" --sni-hostname a.test --verify-hostname a.test --port "$secure" 127.0.0.1 2>&1 || true)
        has "gnutls-cli $priority" "Hello World" "$text"
    done
    text=$( (printf 'GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n'; sleep 2) | timeout 60 gnutls-cli --resume --waitresumption --x509cafile "$folder/pki/root.pem" --verify-hostname a.test --port "$secure" 127.0.0.1 2>&1 || true)
    has "gnutls-cli --resume" "This is a resumed session" "$text"
    text=$(printf '' | timeout 60 gnutls-cli --alpn h2 --x509cafile "$folder/pki/root.pem" --verify-hostname a.test --port "$secure" 127.0.0.1 2>&1 | tr -d '\0' || true)
    has "gnutls-cli --alpn h2" "Application protocol: h2" "$text"
}

part_nghttp() {
    installed nghttp || return 0
    version nghttp nghttp --version
    serve "${drivers[0]}" certs
    is "nghttp over TLS, 50 streams" 50 "$(nghttp -n -s -m 50 "https://127.0.0.1:$secure/" 2>/dev/null | grep -c ' 200 ' || true)"
    is "nghttp, prior knowledge, 50 streams" 50 "$(nghttp -n -s -m 50 "http://127.0.0.1:$plain/" | grep -c ' 200 ' || true)"
    has "curl --http2 without TLS: the offer of an upgrade is answered by HTTP/1.1" "200" "$(curl -sS --max-time 60 -o /dev/null -w '%{response_code}' --http2 "http://127.0.0.1:$plain/" 2>&1 || true)"
}

part_h2load() {
    installed h2load || return 0
    version h2load h2load --version
    local driver url
    for driver in "${drivers[@]}"; do
        serve "$driver" certs
        for url in "https://127.0.0.1:$secure/" "http://127.0.0.1:$plain/"; do
            has "h2load 10 × 100 streams, ${url%%:*}, $driver" "20000 succeeded, 0 failed" "$(timeout 300 h2load -n 20000 -c 10 -m 100 "$url" 2>&1 || true)"
        done
        has "h2load --h1, 20 connections, https, $driver" "5000 succeeded, 0 failed" "$(timeout 300 h2load --h1 -n 5000 -c 20 "https://127.0.0.1:$secure/" 2>&1 || true)"
    done
}

part_h2spec() {
    local spec=$folder/bin/h2spec driver flags text
    if [ ! -x "$spec" ]; then
        installed go || return 0
        GOBIN=$folder/bin GOFLAGS=-mod=mod timeout 600 go install github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible || { missing+=(h2spec); return 0; }
    fi
    for driver in "${drivers[@]}"; do
        serve "$driver" certs
        for flags in "-p $secure -t -k" "-p $plain"; do
            # shellcheck disable=SC2086
            text=$(timeout 900 "$spec" -h 127.0.0.1 $flags --strict -o 5 2>&1 || true)
            echo "  h2spec $([[ $flags == *-t* ]] && echo TLS || echo prior knowledge), $driver: $(tail -n 1 <<< "$text")"
            # By design: on an address that speaks HTTP/1.1 too, what is no preface of HTTP/2 is a wrong request of that.
            sed -n '/^Failures:/,$p' <<< "$text" | grep '×' | grep -v 'Sends invalid connection preface' > "$folder/failures" || true
            if [ -s "$folder/failures" ] || ! grep -q '146 tests' <<< "$text"; then
                told "h2spec $flags, $driver" "$(tr '\n' ';' < "$folder/failures")"
            fi
        done
    done
}

part_httpwg() {
    local judge=$folder/bin/httpwg driver text
    if [ ! -x "$judge" ]; then
        timeout 1200 cargo install --quiet --root "$folder" httpwg-cli@0.2.5 || { missing+=(httpwg-cli); return 0; }
    fi
    for driver in "${drivers[@]}"; do
        serve "$driver" certs
        # It starts a server itself; ours is there already. With its own waits of 250 ms, and all cases at
        # once, it judges the machine.
        text=$(SEQUENTIAL=1 timeout 900 "$judge" --verbose --frame-timeout 2000 --connect-timeout 5000 \
            --address "127.0.0.1:$plain" -- sleep 900 2>&1 | sed 's/\x1b\[[0-9;]*m//g' || true)
        printf '%s\n' "$text" > "$folder/httpwg-$driver.log"
        # docs/results/http2.md explains the cases that fail in these ways. What is none of them is a failure
        # here, as is a case without a verdict.
        python3 - "$folder/httpwg-$driver.log" <<'JUDGE' > "$folder/httpwg.found" || true
import collections, re, sys
text = open(sys.argv[1]).read()
kinds, others = collections.Counter(), []
for name, why in re.findall(r'Test failed: RFC 9113 :: (.*)\n\s*\n\s*0: (.*)', text):
    if 'but got ProtocolError' in why:
        kinds['another error code'] += 1
    elif 'pseudo header in trailer' in name:
        kinds['a pseudo-header among trailers'] += 1
    elif 'waiting for stream error, last frame: (Some(#1:Data' in why:
        kinds['an answer in place of a reset'] += 1
    elif 'client sends push promise frame' in name:
        kinds['PUSH_PROMISE that is not whole'] += 1
    else:
        others.append(f'{name}: {why}')
names = [set(re.findall(f'{words}: RFC 9113 :: (.*)', text)) for words in ('Running test', 'Test passed', 'Test failed')]
for name in names[0] - names[1] - names[2]:
    if 'goaway frame with unknown error code' in name:
        kinds['connection closed after GOAWAY'] += 1
    else:
        others.append(f'{name}: no verdict')
if len(names[0]) != 107:
    others.append(f'{len(names[0])} cases were begun')
print(f"{len(names[1])} of {len(names[0])} passed; {dict(kinds)}; others: {len(others)}")
print('\n'.join(others))
JUDGE
        echo "  httpwg-cli, $driver: $(head -n 1 "$folder/httpwg.found")"
        is "httpwg-cli, $driver: nothing else" "" "$(tail -n +2 "$folder/httpwg.found")"
    done
}

part_sslscan() {
    installed sslscan || return 0
    version sslscan sslscan --no-colour --version
    serve "${drivers[0]}" certs
    local text one
    text=$(timeout 300 sslscan --no-colour "127.0.0.1:$secure" 2>&1 || true)
    printf '%s\n' "$text" > "$folder/sslscan.log"
    for one in SSLv2 SSLv3 TLSv1.0 TLSv1.1; do has "sslscan: $one" "$(printf '%-9s %s' $one disabled)" "$text"; done
    for one in TLSv1.2 TLSv1.3; do has "sslscan: $one" "$(printf '%-9s %s' $one enabled)" "$text"; done
    has "sslscan: renegotiation" "Session renegotiation not supported" "$text"
    is "sslscan: Heartbleed" "" "$(grep 'vulnerable to heartbleed' <<< "$text" | grep -v 'not vulnerable' || true)"
}

part_testssl() {
    local tool
    tool=$(command -v testssl || command -v testssl.sh || true)
    [ -n "$tool" ] || { missing+=(testssl.sh); echo "testssl.sh: not installed"; return 0; }
    serve "${drivers[0]}" certs
    rm -f "$folder/testssl.json"
    timeout 1200 "$tool" --quiet --color 0 --warnings off --add-ca "$folder/pki/root.pem" --jsonfile "$folder/testssl.json" \
        --nodns none "https://127.0.0.1:$secure" > "$folder/testssl.log" 2>&1 || true
    grep -m1 -oE 'testssl.sh +[0-9][^ ]*' "$folder/testssl.log" || true
    python3 - "$folder/testssl.json" <<'JUDGE' > "$folder/testssl.found" || true
import collections, json, sys
found = json.load(open(sys.argv[1]))
print(dict(collections.Counter(one['severity'] for one in found)))
for one in found:
    if one['severity'] not in ('OK', 'INFO'):
        print(f"{one['severity']} {one['id']}: {one['finding']}")
JUDGE
    cat "$folder/testssl.found"
    # A test's own authority has no revocation addresses and no transparency; the client's order of suites counts, and lines
    # of answers are the configuration's (docs/results/tls.md). Nothing else may be serious.
    is "testssl.sh: nothing serious" "" "$(grep -E '^(MEDIUM|HIGH|CRITICAL|FATAL)' "$folder/testssl.found" | grep -vE 'cert_revocation|OCSP|certificate_transparency|cert_trust|cert_chain_of_trust|HSTS|security_headers|cipher_order|overall_grade' || true)"
}

part_reloads() {
    local driver count=${RELOADS:-100}
    for driver in "${drivers[@]}"; do
        rm -rf "$folder/pki/live" && mkdir "$folder/pki/live"
        cp "$folder/pki/certs/"* "$folder/pki/live/"
        serve "$driver" live
        told "$count reloads with new certificates under load, $driver" "$(python3 "$root/xtask/tls_reloads.py" "$ours" "$secure" "$count" "$folder/pki" "$folder/reloads-$driver.txt" || true)"
        cat "$folder/reloads-$driver.txt" 2>/dev/null || true
    done
}

for part; do
    echo "== $part"
    "part_$part"
done
stop
echo
[ ${#missing[@]} = 0 ] || echo "not installed: ${missing[*]}"
if [ ${#failed[@]} -gt 0 ]; then
    echo "failed: ${#failed[@]}"
    printf '  %s\n' "${failed[@]}"
    exit 1
fi
echo "no case has failed"
