//! Every key of a configuration: its form, its default, and what it does. The reference (`docs/CONFIG.md`) is
//! made of this, and a key that is read without standing here is an assertion.

use ringroad_gate::media;
use ringroad_settings::{Key, Table};

const fn key(name: &'static str, form: &'static str, default: &'static str, meaning: &'static str) -> Key {
    Key { name, form, default, meaning }
}

const fn threads_on(name: &'static str) -> Key {
    key(name, "1 to 1024", "-", "Threads on this driver.")
}

/// Of `drivers`.
pub(super) const DRIVERS: Table = Table {
    name: "drivers = { … }",
    meaning: "Threads for each address, by driver.",
    keys: &[
        threads_on("io_uring"),
        threads_on("epoll"),
        threads_on("poll"),
        threads_on("select"),
        threads_on("threads"),
    ],
};

/// Of the file itself.
pub(super) const TOP: Table = Table {
    name: "top of the file",
    meaning: "Where and how the server listens.",
    keys: &[
        key(
            "include",
            "file names or patterns, as `[\"conf.d/*.toml\"]`",
            "-",
            "Further files. Their `[[route]]` are appended, their named tables join those here. Relative paths begin at the folder of the file they are written in.",
        ),
        key(
            "listen",
            "address, table, or list of them, as `\"127.0.0.1:8080\"`, `\":8080\"` (all addresses), `8080` (loopback), `\"unix:/run/site.sock\"`, `\"systemd\"` or `\"systemd:NAME\"` (a passed socket), `{ address = \":443\", tls = true }`",
            "127.0.0.1:8080",
            "Addresses to listen on. What an address that stays speaks is not changed by a reload.",
        ),
        key(
            "workers",
            "0 to 1024",
            "1",
            "Threads for each address; 0 is one for each CPU. A reload does not change it.",
        ),
        key(
            "reuse_port",
            "true or false",
            "false",
            "Lets other processes listen on the same addresses (SO_REUSEPORT). A reload does not change it.",
        ),
        key(
            "driver",
            "`\"auto\"`, `\"io_uring\"`, `\"epoll\"`, `\"poll\"`, `\"select\"`, `\"threads\"`",
            "auto",
            "The kernel interface. A named one is used or refused, never replaced. `--driver` on the command line wins. A reload does not change it.",
        ),
        key(
            "drivers",
            "table, as `{ io_uring = 1, epoll = 1 }`",
            "-",
            "Threads for each address, by driver, instead of `workers` and `driver`. At a TCP address the kernel deals connections out to all of them alike. Each driver is used or refused. `--driver` and `RINGROAD_DRIVER` put all of them on one. A reload does not change it; `ringroad workers move` does.",
        ),
        key(
            "max_connections",
            "1 or more",
            "-",
            "Connections of all workers together. By default what the limit of open files leaves.",
        ),
        key(
            "max_connections_per_client",
            "1 or more",
            "-",
            "Connections of one client's address, of IPv6 its network of 64 bits, on all addresses together; more are closed. Proxies that `client_ip` lists are not counted. Behind a PROXY header its client is.",
        ),
        key(
            "max_upstream_connections",
            "1 or more",
            "-",
            "Connections to upstream servers, of all workers together, idle ones included. By default half of what the limit of open files leaves, if there are proxy routes. A request that finds none waits for up to `connect_timeout`, then 503.",
        ),
        key("drain", "time, as `\"10s\"`", "10s", "How long a stop waits for requests in progress."),
        key("client_ip", "table", "-", "Trusted proxies before this server, see below."),
        key("tls", "table", "-", "Certificates, see below."),
        key("limits", "table", "-", "Sizes, see below."),
        key("timeouts", "table", "-", "Times, see below."),
        key(
            "http2",
            "table, or false",
            "-",
            "HTTP/2, see below. It is spoken wherever TLS is; `false` turns it off.",
        ),
        key("log", "table", "-", "The access log, see below."),
        key("cache", "table", "-", "Files kept in memory, see below."),
        key(
            "types",
            "table, as in `kind = \"static\"`",
            "-",
            "Media types of files for all routes; those of a route come before them.",
        ),
        key(
            "charset",
            "name or false, as in `kind = \"static\"`",
            "-",
            "The charset of text files, for routes without one.",
        ),
        key("buffer", "table", "-", "What is kept between slow clients and upstream servers, see below."),
        key(
            "control",
            "file name",
            "-",
            "A Unix socket for `ringroad app` and `ringroad workers`; only its owner may open it.",
        ),
        key("app", "tables", "-", "Applications, see below."),
        key("hub", "named tables", "-", "Hubs of topics, see below."),
        key("redis", "named tables", "-", "Servers of Redis or Valkey that features name, see below."),
        key("nats", "named tables", "-", "Servers of NATS that hubs name, see below."),
        key("upstream", "named tables", "-", "Groups of upstream servers, see below."),
        key("route", "tables", "", "What is answered to which requests, see below."),
    ],
};

/// An address, where it is written as a table.
pub(super) const LISTEN: Table = Table {
    name: "listen = [{ … }]",
    meaning: "An address with what is spoken there.",
    keys: &[
        key("address", "address, as in `listen`", "", "The address."),
        key("tls", "true or false", "false", "Speaks TLS, with the certificates of `[tls]`."),
        key(
            "http2",
            "true or false",
            "true",
            "Speaks HTTP/2 as well, with clients that choose it in the TLS handshake.",
        ),
        key(
            "proxy_protocol",
            "networks or addresses, as `[\"10.0.0.0/8\"]`",
            "-",
            "Balancers that begin each connection with a PROXY header, version 1 or 2. Their connections are closed without one; from other peers it is no request.",
        ),
        key(
            "redirect_https",
            "true, false or a port",
            "false",
            "Sends requests to the same place on `https://`, with 301 for GET and HEAD and 308 for others; true is port 443. Requests below `/.well-known/acme-challenge/` are answered as ever, and so are those that came by https to a proxy of `client_ip` (`X-Forwarded-Proto`).",
        ),
    ],
};

/// `[tls]`.
pub(super) const TLS: Table = Table {
    name: "[tls]",
    meaning: "TLS 1.2 and 1.3, at the addresses with `tls = true`. All files are looked at again every 10 s and on SIGHUP. One \
        that cannot be used changes nothing and is reported.",
    keys: &[
        key(
            "certificates",
            "files, folders or `{ certificate = \"a.pem\", key = \"a.key\" }`, as `[\"certs/\"]`",
            "",
            "Needed without `acme`. Chains with their keys, in PEM, chosen by the name that a client asks for. Of `NAME.pem` the key is `NAME.key` beside it, or in the same file. A folder has such pairs, or folders with `fullchain.pem` and `privkey.pem`, or is such a folder.",
        ),
        key(
            "unknown_name",
            "`\"first\"` or `\"refuse\"`",
            "first",
            "What a client gets that asks for a name without a certificate, or for none: the first certificate, or no connection.",
        ),
        key(
            "tickets",
            "`\"memory\"`, `\"off\"` or a file",
            "memory",
            "Keys by which sessions are resumed. In a file of 32 random bytes or more that several machines share, each resumes the sessions of the others; keys change every 6 hours.",
        ),
        key(
            "handshakes",
            "1 to 65536",
            "64",
            "Handshakes that each worker begins at once; others wait in line. One that waits for its client does not count. A reload does not change it.",
        ),
        key(
            "handshake_timeout",
            "time, 1s or more",
            "10s",
            "How long a handshake may take, the waiting included. A reload does not change it.",
        ),
        key("client", "table", "-", "Client certificates, see below."),
        key("acme", "table", "-", "Certificates from an authority, see below."),
    ],
};

/// `[tls] acme`.
pub(super) const TLS_ACME: Table = Table {
    name: "[tls] acme = { … }",
    meaning: "Certificates that are obtained from an authority by ACME (RFC 8555), and renewed at two thirds of their life or when \
        the authority's renewal information says so. They come before those of `certificates`. Until the first is there, \
        handshakes for its names are answered as those for an unknown name.",
    keys: &[
        key(
            "names",
            "DNS names or addresses, or lists of them",
            "",
            "`[\"a.org\", \"www.a.org\"]` is one certificate with two names, `[[\"a.org\"], [\"b.org\", \"c.org\"]]` are two. A star is not possible.",
        ),
        key("terms_agreed", "true", "", "You agree to the authority's terms of service."),
        key(
            "state",
            "folder",
            "",
            "Where the account's key and the certificates are kept, readable by their owner alone. It is made if it is not there.",
        ),
        key("contact", "mail address", "-", "Where the authority may write to."),
        key(
            "directory",
            "URL",
            ringroad_acme::DEFAULT_DIRECTORY,
            "The authority. Let's Encrypt by default; for tests `https://acme-staging-v02.api.letsencrypt.org/directory`. `http://` is for addresses of this machine only.",
        ),
        key(
            "challenge",
            "`\"http-01\"` or `\"tls-alpn-01\"`",
            "http-01, or tls-alpn-01 if all addresses speak TLS",
            "How the authority sees that the names are this server's: by a request to port 80, or by a handshake on port 443.",
        ),
        key(
            "ca",
            "PEM file",
            "those of the system",
            "Authorities that the directory's own certificate is verified with.",
        ),
        key("profile", "text", "-", "One of the authority's profiles of certificates, such as `shortlived`."),
        key(
            "external",
            "`{ kid = \"…\", key = \"…\" }`",
            "-",
            "An account of the authority's own, where it wants one (external account binding). `key` is in base64url.",
        ),
        key(
            "retry",
            "time",
            "5m",
            "The wait after a failure. It doubles with each further one, to 12 hours, and is longer where the authority asks for it.",
        ),
    ],
};

/// `[tls] acme.external`.
pub(super) const TLS_ACME_EXTERNAL: Table = Table {
    name: "[tls] acme.external = { … }",
    meaning: "An account of the authority's own.",
    keys: &[
        key("kid", "text", "", "The identifier of its key."),
        key("key", "base64url", "", "Its key (HMAC)."),
    ],
};

/// A certificate, where it is written as a table.
pub(super) const CERTIFICATE: Table = Table {
    name: "[tls] certificates = [{ … }]",
    meaning: "A chain and its key.",
    keys: &[
        key("certificate", "PEM file", "", "The chain, the server's own certificate first."),
        key("key", "PEM file", "", "The private key."),
    ],
};

/// `[tls] client`.
pub(super) const TLS_CLIENT: Table = Table {
    name: "[tls] client = { … }",
    meaning: "Clients name themselves by a certificate.",
    keys: &[
        key("ca", "PEM file", "", "Authorities with accepted signatures."),
        key(
            "need",
            "`\"required\"` or `\"optional\"`",
            "required",
            "Whether a client without one is refused.",
        ),
        key(
            "revoked",
            "file or files",
            "-",
            "Revocation lists, in PEM or DER. With any, each authority of a chain needs one that has not expired: else its clients are refused.",
        ),
        key(
            "header",
            "name of a line, as `\"X-Client-Subject\"`",
            "-",
            "Tells upstream servers the subject of a verified client (RFC 4514). Lines of this name that clients send are removed, in any case and with any signs (`X_Client.Subject`). Conditions, placeholders, `ask` and mirrors see it as well.",
        ),
    ],
};

/// `client_ip`.
pub(super) const CLIENT_IP: Table = Table {
    name: "client_ip = { … }",
    meaning: "The client's address where trusted proxies stand before this server. Logs, limits and forwarded lines use it. \
        What they say in `X-Forwarded-Proto` and `X-Forwarded-Host` is the scheme and the host that the client has asked for: in \
        placeholders, redirects, keys of caches and limits; routes are chosen by the `Host` line. So a proxy has to set or remove \
        these two. From other peers all of these lines are ignored.",
    keys: &[
        key("proxies", "networks or addresses, as `[\"10.0.0.0/8\", \"::1\"]`", "", "Trusted peers."),
        key(
            "from",
            "`\"x-forwarded-for\"`, `\"forwarded\"`, or the name of a line with one address, as `\"X-Real-IP\"`",
            "x-forwarded-for",
            "The line that they write. Of a list the last address that is not a listed proxy is the client.",
        ),
    ],
};

/// `[limits]`.
pub(super) const LIMITS: Table = Table {
    name: "[limits]",
    meaning: "Sizes of requests. What is larger is refused with the status named here.",
    keys: &[
        key("request_line", "bytes, 64 to 65535", "8K", "The request line; longer: 414."),
        key("header_line", "bytes, 64 to 65535", "8K", "One header line; longer: 431."),
        key("headers", "bytes, 64 to 65535", "32K", "All header lines; more: 431."),
        key("header_count", "1 to 255", "100", "Number of header lines; more: 431."),
        key("body", "bytes", "8M", "The body; longer: 413."),
        key(
            "answer_header_line",
            "bytes, 64 to 65535",
            "65535",
            "One header line of an answer from an upstream server; longer: 502.",
        ),
        key("answer_headers", "bytes, 64 to 1M", "256K", "All its header lines; more: 502."),
        key("answer_header_count", "1 to 255", "255", "Number of its header lines; more: 502."),
        key("requests_per_connection", "1 or more", "10000", "Requests after which a connection is closed."),
        key(
            "extension_methods",
            "true or false",
            "true",
            "Accepts methods beyond those of RFC 9110 and PATCH (PROPFIND, PURGE and so on); false: 501.",
        ),
        key(
            "pipeline",
            "1 to 65535",
            "64",
            "Requests taken from one connection before the first is answered.",
        ),
        key(
            "unsent",
            "bytes, at least 64K",
            "256M",
            "Answers in memory that clients have not taken, of all connections together. Above half of it requests that came together are answered one by one. Above it the connections that have taken nothing for longest are closed at once.",
        ),
    ],
};

/// `[timeouts]`.
pub(super) const TIMEOUTS: Table = Table {
    name: "[timeouts]",
    meaning: "Times that clients have.",
    keys: &[
        key("header", "time, 1s or more", "10s", "From the first byte of a head to its last; longer: 408."),
        key("body_grace", "time, 1s or more", "10s", "How long a body may be slower than `body_rate`."),
        key("body_rate", "bytes", "1K", "Bytes of a body each second; slower: 408."),
        key(
            "send",
            "time, 1s or more",
            "30s",
            "How long a client may take nothing of its answer; then the connection is closed.",
        ),
        key(
            "send_rate",
            "bytes",
            "128",
            "Slowest reader of a large answer, in bytes each second, judged over `send`; 0 allows any.",
        ),
        key(
            "linger",
            "time",
            "30s",
            "How long a client may go on sending after its last answer, so that it gets to read that answer.",
        ),
        key("keep_alive", "time, 1s or more", "60s", "Silence between two requests."),
        key(
            "half_close",
            "time",
            "500ms",
            "How long a client that has ended its side of the connection is answered: the longest wait for the head of the answer, and for each next part of its body. Such a client has closed the connection, or has only nothing more to ask; then it counts as one that has left. `0` gives it no time, `1h` in practice any.",
        ),
    ],
};

/// `[http2]`.
pub(super) const HTTP2: Table = Table {
    name: "[http2]",
    meaning: "What an HTTP/2 client may have and do, on each connection. HTTP/2 is spoken on every address with TLS, and by `prior_knowledge` on others. A reload does not change it.",
    keys: &[
        key(
            "prior_knowledge",
            "true or false",
            "false",
            "Speaks HTTP/2 without TLS (h2c) with clients that begin with its preface, beside HTTP/1.1 on the same address.",
        ),
        key(
            "streams",
            "1 to 65536",
            "100",
            "Requests at a time. One counts until its work has ended and its answer is sent, also if the client has reset it; more are refused with `REFUSED_STREAM`.",
        ),
        key(
            "windows",
            "two sizes, of a stream and of a connection",
            "[\"64K\", \"256K\"]",
            "Bytes of request bodies that may wait for their readers.",
        ),
        key(
            "misbehaviour",
            "budget, as `\"200 + 20/s\"`",
            "200 + 20/s",
            "Frames that cost the server more than the client: resets, pings, settings, priorities, empty data, unknown ones. Bodies moved and requests answered give back. A client that has spent it gets `ENHANCE_YOUR_CALM`.",
        ),
        key("header_list", "bytes, 1K or more", "32K", "One head, with 32 bytes for each line; longer: 431."),
        key(
            "heads",
            "bytes, 1K or more",
            "256K",
            "Heads of the requests that wait, together; beyond it `REFUSED_STREAM`.",
        ),
        key(
            "websocket",
            "true or false",
            "true",
            "Clients may open WebSocket sessions over HTTP/2 (RFC 8441), each on a stream, to every route that takes them over HTTP/1.1. Browsers then do. Each may have a stream's window unread, besides the connection's.",
        ),
    ],
};

/// `[log]`.
pub(super) const LOG: Table = Table {
    name: "[log]",
    meaning: "The access log: a line for each request, in `file` or `to`. A route with `log = false` has no lines.",
    keys: &[
        key(
            "file",
            "file name, or `\"-\"` for standard output",
            "-",
            "Where lines go. SIGHUP and SIGUSR1 open the file again.",
        ),
        key(
            "to",
            "`\"syslog:\"`, `\"syslog:/run/log.sock\"`, `\"syslog:192.0.2.1:514\"`",
            "-",
            "Sends lines to a syslog daemon instead: that of this machine (`/dev/log`), on another socket, or by UDP (RFC 5424).",
        ),
        key(
            "facility",
            "`\"daemon\"`, `\"user\"`, `\"local0\"` to `\"local7\"`",
            "daemon",
            "The facility of these messages.",
        ),
        key(
            "format",
            "`\"combined\"`, `\"json\"`, or a text with placeholders, as `\"{client} {method} {target} {status} {duration}\"`",
            "combined",
            "The form of a line: as Apache and nginx write it, one JSON object (docs/serve.md has its fields), or a text. In a text each value is escaped, and `-` stands for one that is empty.",
        ),
        key(
            "only",
            "table, as `{ status = [\"4xx\", 500], slower = \"1s\" }`",
            "-",
            "Which requests have a line, see below.",
        ),
    ],
};

/// `log.only`.
pub(super) const LOG_ONLY: Table = Table {
    name: "[log] only = { … }",
    meaning: "A request that meets one of these conditions has a line.",
    keys: &[
        key("status", "statuses, or classes as `\"5xx\"`", "-", "Its answer has one of these."),
        key("slower", "time", "-", "It took longer."),
    ],
};

/// `[cache]`.
pub(super) const CACHE: Table = Table {
    name: "[cache]",
    meaning: "Files kept in memory.",
    keys: &[
        key("memory", "bytes", "64M", "All files, of all workers; 0 keeps none."),
        key("file", "bytes, at most 64M", "256K", "The largest file."),
    ],
};

/// `[buffer]`.
pub(super) const BUFFER: Table = Table {
    name: "[buffer]",
    meaning: "A request is collected before an upstream server gets it, and an answer is taken as fast as the server sends, \
        so that a slow client never holds a server. `buffer = false` in a route passes both on as they arrive.",
    keys: &[
        key("memory", "bytes, at most 64M", "64K", "Kept in memory, of each request and answer."),
        key(
            "file",
            "bytes",
            "1G",
            "Kept besides in a temporary file without a name, of each answer; a request's body is bounded by `limits.body`. Past it the server waits for the client.",
        ),
        key("folder", "folder", "/tmp", "Where temporary files are; by default `$TMPDIR` or /tmp."),
    ],
};

/// `[upstream.NAME]`.
pub(super) const UPSTREAM: Table = Table {
    name: "[upstream.NAME]",
    meaning: "Servers that answer the same requests. A route names the group: `to = \"upstream:NAME\"`.",
    keys: &[
        key(
            "servers",
            "servers, as `[\"http://10.0.0.1:3000\", { to = \"unix:/run/app.sock\", weight = 2 }]`, or all of them `https://`",
            "",
            "Where requests go, each without a path.",
        ),
        key(
            "balance",
            "`\"least\"`, `\"time\"`, `\"turns\"`, `\"hash:KEY\"`, `\"sticky\"` or `\"sticky:COOKIE\"`",
            "least",
            "How the next server is chosen: fewer requests in flight of two at random; lower expected time of two at random; one after another by weight; always the same for a key (`client`, `path`, `target`, `header.NAME`, `cookie.NAME`, `query.NAME`) with at most 1.25 times its fair load; or the one that a cookie names.",
        ),
        key(
            "connect_timeout",
            "time, 1ms or more",
            "5s",
            "How long connecting may take (longer: 504), with the wait for room for a connection (503).",
        ),
        key(
            "answer_timeout",
            "time, 1ms or more",
            "60s",
            "Longest time without progress while an answer is awaited or received; then 504.",
        ),
        key(
            "tunnel_timeout",
            "time, 1ms or more",
            "1h",
            "Longest time without data on a WebSocket connection.",
        ),
        key("keep", "0 to 65536", "32", "Idle connections kept, of each worker to each server."),
        key("keep_for", "time, 1ms or more", "30s", "How long they are kept."),
        key(
            "http2",
            "true or false",
            "false",
            "HTTP/2 towards the servers: chosen by TLS, or by prior knowledge (h2c) where they are not `https://`. Requests share connections. Needed for gRPC.",
        ),
        key("tls", "table", "-", "Certificates of `https://` servers, see below."),
        key("health", "path or table", "-", "Active checks, see below."),
        key("eject", "table", "-", "When a server is left out, see below."),
        key(
            "panic",
            "share",
            "50%",
            "Share of usable servers below which health is ignored: to send a share of requests to servers that may fail is better than all to the few that are left.",
        ),
        key(
            "slow_start",
            "time",
            "0s",
            "A server that comes back gets a tenth of its share at first, and all of it after this time.",
        ),
        key(
            "requests",
            "1 or more",
            "-",
            "Requests at once of all workers; more wait, then 503 with `Retry-After`.",
        ),
        key(
            "line",
            "0 or more",
            "32",
            "Requests that wait for one of `requests` to end; more get 503 at once.",
        ),
        key("wait", "time, 1ms or more", "100ms", "How long they wait."),
        key("breaker", "true or table", "-", "Sends no requests to a group that fails, see below."),
        key("retry", "table", "-", "When a request is sent again, see below."),
        key("hedge", "true or table", "-", "Sends slow requests to a second server as well, see below."),
    ],
};

/// TLS towards the servers of a group, or of a route.
pub(super) const UPSTREAM_TLS: Table = Table {
    name: "[upstream.NAME] tls = { … }",
    meaning: "TLS towards `https://` servers; also a key of proxy routes. Certificates are always verified. Files are read at \
        start and at a reload.",
    keys: &[
        key(
            "ca",
            "PEM file",
            "those of the system",
            "Authorities that sign the servers' certificates, or such a certificate itself.",
        ),
        key(
            "name",
            "DNS name or address",
            "-",
            "The name that certificates are for, and that is asked for (SNI), instead of the server's own.",
        ),
        key("certificate", "PEM file", "-", "A certificate for servers that ask for one, with its chain."),
        key("key", "PEM file", "-", "Its private key."),
        key("verify", "true", "true", "`false` is refused: `ca` and `name` make any server verifiable."),
    ],
};

/// A server of a group, where it is written as a table.
pub(super) const SERVER: Table = Table {
    name: "servers = [{ … }]",
    meaning: "A server of a group with its weight.",
    keys: &[
        key("to", "server, as `\"http://10.0.0.1:3000\"`", "", "Where it listens."),
        key("weight", "1 to 1000", "1", "Its share beside the others."),
        key(
            "backup",
            "true or false",
            "false",
            "Gets requests only while no other server of the group can have them.",
        ),
    ],
};

/// `health` of a group.
pub(super) const CHECK: Table = Table {
    name: "[upstream.NAME] health = { … }",
    meaning: "Each server is asked for a path again and again, by a thread of its own for all groups. `\"/healthz\"` alone is short \
        for `{ path = \"/healthz\" }`.",
    keys: &[
        key("path", "path", "", "What is asked for."),
        key("host", "host", "-", "The `Host` that is asked for, in place of the server's address."),
        key(
            "every",
            "time, 100ms or more",
            "5s",
            "Between two checks of one server, up to a tenth more or less.",
        ),
        key("timeout", "time, 1ms or more", "2s", "How long a check may take."),
        key("rise", "1 or more", "2", "Good checks in a row after which a server gets requests again."),
        key("fall", "1 or more", "3", "Bad checks in a row after which it gets none."),
        key("status", "statuses", "200 to 399", "Answers that are good."),
    ],
};

/// `eject` of a group.
pub(super) const EJECT: Table = Table {
    name: "[upstream.NAME] eject = { … }",
    meaning: "A server that fails requests in a row is left out for a while.",
    keys: &[
        key(
            "after",
            "1 or more",
            "5",
            "Failures in a row: no connection, no answer, too late, or a status of `retry.on`.",
        ),
        key(
            "for",
            "time range or time, as `\"30s..5m\"`",
            "30s..5m",
            "How long; each further time adds the first time, up to the second.",
        ),
        key(
            "most",
            "share, as `\"50%\"`",
            "50%",
            "Servers that may be out at once; one in any case, and never the last one.",
        ),
    ],
};

/// `breaker` of a group.
pub(super) const BREAKER: Table = Table {
    name: "[upstream.NAME] breaker = { … }",
    meaning: "When too many requests of a window fail, no more are sent for a while (503 with `Retry-After`), then a few that try. \
        `true` is the defaults.",
    keys: &[
        key("window", "time, 1s or more", "10s", "The window."),
        key("least", "1 or more", "20", "Requests in the window below which nothing is decided."),
        key("failed", "share", "50%", "Share that fail: no answer, too late, or a status from 500 on."),
        key(
            "open",
            "time range",
            "5s..60s",
            "How long it is open at first; doubled whenever a request that tries fails, up to the second time.",
        ),
        key("probes", "1 or more", "3", "Requests that try; all must succeed."),
    ],
};

/// `retry` of a group.
pub(super) const RETRY: Table = Table {
    name: "[upstream.NAME] retry = { … }",
    meaning: "When a request is sent again: only if nothing of it was sent, or if its method is idempotent or it has an \
        `Idempotency-Key`, and no byte of an answer came. Without this table it goes to each other server once, without a wait.",
    keys: &[
        key(
            "times",
            "0 to 10",
            "2",
            "How often at most, also to the same server where there is no other. A server that cannot be reached has seen nothing: the request goes on to each other one at once, also with 0, and that does not count.",
        ),
        key(
            "on",
            "statuses from 400 on, as `[502, 503]`",
            "-",
            "Answers that count as failures. A `Retry-After` that is longer than `backoff` is handed to the client.",
        ),
        key(
            "backoff",
            "time range",
            "25ms..250ms",
            "The wait before the first repeat is random and below the first time, before each further one below twice as much, and never above the second.",
        ),
        key("budget", "share", "20%", "Repeats as a share of requests; 10 per second are always permitted."),
    ],
};

/// `split` of a route.
pub(super) const SPLIT: Table = Table {
    name: "[[route]] split = { … }",
    meaning: "Routes of one path for different clients. The same client gets the same route, on all servers: what it is \
        told apart by is hashed to a number from 0% to 100%.",
    keys: &[
        key(
            "share",
            "share or range of shares",
            "",
            "Hashes that the route takes: `\"10%\"` is `\"0%..10%\"`.",
        ),
        key(
            "by",
            "`\"client\"`, `\"header.NAME\"` or `\"cookie.NAME\"`",
            "client",
            "What clients are told apart by: the address; or a line or a cookie, and the address of those without it.",
        ),
    ],
};

/// When a request is sent to a second server.
pub(super) const HEDGE: Table = Table {
    name: "[upstream.NAME] hedge = { … }",
    meaning: "A request that has no answer after a while is sent to a second server as well, within the budget of `retry`, and the first \
        answer counts. Only requests with an idempotent method, or with `Idempotency-Key`, and with a body that is kept.",
    keys: &[key(
        "after",
        "time, or `\"p95\"`",
        "p95",
        "How long the first server has alone. `p95`: as long as 95 % of the group's answers take.",
    )],
};

/// `[[route]]`, whatever its kind.
pub(super) const ROUTE: Table = Table {
    name: "[[route]]",
    meaning: "What is answered to some requests. The longest path counts, and an exact one before a prefix; of equal paths \
        an exact host before `*.` and that before every host; then the route with more conditions; then the first.",
    keys: &[
        key(
            "path",
            "path, as `\"/\"`, `\"/files/\"`, `\"/robots.txt\"`",
            "",
            "Everything below it if it ends in `/`, that path alone otherwise.",
        ),
        key(
            "hosts",
            "names, as `[\"example.org\", \"*.example.org\"]`",
            "-",
            "Hosts that it applies to; `*.` stands for one or more labels. Without it: every host.",
        ),
        key(
            "methods",
            "methods, as `[\"GET\", \"POST\"]`",
            "-",
            "Methods that it applies to; `GET` includes `HEAD`. Where no route of a path has the method: 405.",
        ),
        key(
            "match_headers",
            "table, as `{ X-Canary = \"1\", Authorization = true }`",
            "-",
            "Header lines that must be there, with this value or (`true`) any.",
        ),
        key(
            "match_query",
            "table, as `{ preview = true }`",
            "-",
            "Names of the query that must be there, with this value or (`true`) any.",
        ),
        key(
            "split",
            "share, as `\"10%\"` or `\"10%..30%\"`, or a table",
            "-",
            "The share of clients that it applies to, see below. The others get the next route for the same path.",
        ),
        key(
            "kind",
            "`\"static\"`, `\"respond\"`, `\"redirect\"`, `\"proxy\"`, `\"app\"`, `\"php\"`, `\"hub\"`, `\"health\"`, `\"status\"`, `\"metrics\"`",
            "",
            "What it does; the keys of each kind follow.",
        ),
        key(
            "name",
            "text",
            "-",
            "Its name in logs and as a label of its metrics, which only routes with a name have.",
        ),
        key("log", "true or false", "true", "Its requests are in the access log."),
    ],
};

/// `kind = "static"`.
pub(super) const STATIC: Table = Table {
    name: "[[route]] kind = \"static\"",
    meaning: "Files of a folder. No link leads out of it.",
    keys: &[
        key("root", "folder", "", "The folder."),
        key(
            "index",
            "file name or list",
            "index.html",
            "Files that stand for their folder; the first that is there.",
        ),
        key("autoindex", "true or false", "false", "Lists folders that have none."),
        key(
            "autoindex_names",
            "1 or more",
            "100000",
            "Most names of a listing. Of more it has the first in its order, and says how many are left out.",
        ),
        key(
            "hidden",
            "true or false",
            "false",
            "Serves names that begin with a point; `.well-known` is served in any case.",
        ),
        key(
            "precompressed",
            "true or false",
            "true",
            "Sends `style.css.br`, `.zst` or `.gz` beside `style.css` to clients that accept it, if it decodes to that file, whatever the times of the two.",
        ),
        key(
            "try_files",
            "paths, as `[\"{path}\", \"/index.html\"]`",
            "-",
            "Paths below the folder to try in order where the request's own is not there; the last one may be a status, as `\"=404\"`. `[\"/index.html\"]` serves a single-page application.",
        ),
        media::TYPES,
        media::CHARSET,
    ],
};

/// `kind = "upload"`.
pub(super) const UPLOAD: Table = Table {
    name: "[[route]] kind = \"upload\"",
    meaning: "Keeps the files that clients PUT or POST to names below `path`: 201, or 200 if the same file is there. \
        A POST to `path` itself gets a name, told by `Location`. A file has its name when it is whole. Its size is \
        bounded by the limit of bodies. Every client that reaches the route can fill the folder: give it `auth` or `access`.",
    keys: &[
        key(
            "root",
            "folder",
            "",
            "The folder. Names in it have no folder of their own and begin with no point.",
        ),
        key("overwrite", "true or false", "false", "Replaces a file that is there; otherwise 409."),
        key("keep_free", "bytes", "64M", "Free bytes of the file system below which nothing is taken: 507."),
    ],
};

/// `kind = "respond"`.
pub(super) const RESPOND: Table = Table {
    name: "[[route]] kind = \"respond\"",
    meaning: "Always the same answer.",
    keys: &[
        key("status", "200 to 599", "200", "Its status."),
        key(
            "body",
            "text",
            "-",
            "Its body, as it is written: no placeholder is replaced. Only `$NAME` is read from the environment, when the file is read.",
        ),
        key("content_type", "media type", "text/plain; charset=utf-8", "What the body is."),
    ],
};

/// `kind = "redirect"`.
pub(super) const REDIRECT: Table = Table {
    name: "[[route]] kind = \"redirect\"",
    meaning: "Sends the client elsewhere.",
    keys: &[
        key(
            "to",
            "path or URL, with placeholders, as `\"/new/\"`, `\"https://{host}{target}\"`",
            "",
            "Where to. Without a placeholder the query is kept, unless `?` is written here; and if `path` ends in `/`, and this too or it is another server without a path, what is behind the path is appended. With placeholders `{?query}` is the query. Placeholders: `{scheme}` `{host}` `{authority}` `{path}` `{rest}` (behind the route's path) `{query}` `{?query}` `{target}` `{method}` `{client}` `{id}` `{header.NAME}` `{cookie.NAME}` `{query.NAME}`; `{{` is a brace.",
        ),
        key(
            "status",
            "301, 302, 303, 307, 308",
            "301 or 308",
            "Its status. By default 301 for GET and HEAD, which old clients follow, and 308 for others.",
        ),
    ],
};

/// `kind = "proxy"`.
pub(super) const PROXY: Table = Table {
    name: "[[route]] kind = \"proxy\"",
    meaning: "Passes requests on to an upstream server, or to a group of them.",
    keys: &[
        key(
            "to",
            "`\"http://HOST[:PORT][/PATH]\"`, `\"https://…\"`, `\"unix:SOCKET[:/PATH]\"`, `\"upstream:NAME[/PATH]\"`",
            "",
            "The server or group. A path replaces the route's own: both end in `/`, or neither does.",
        ),
        key(
            "buffer",
            "true or false",
            "true",
            "Collects requests and drains answers, as `[buffer]` says; false passes both on as they arrive, for uploads and answers that are to be seen at once by both sides.",
        ),
        key("host", "host", "-", "The `Host` that the server is asked for, instead of the client's."),
        key(
            "map_locations",
            "true or false",
            "true",
            "Makes a URL that names the server itself, by its address or by `host`, a path of this server: in `Location`, `Content-Location` and `Refresh` of its answers. If `to` has a path, the route's takes its place, and a URL outside of it stays. false passes all of them on as they are.",
        ),
        key(
            "trust_forwarded",
            "true or false",
            "false",
            "Trusts the client's `X-Forwarded-*`, `Forwarded` and `X-Request-Id`, whatever its address. Use `client_ip` where proxies have known addresses.",
        ),
        key(
            "connect_timeout",
            "time, 1ms or more",
            "5s",
            "As in `[upstream.NAME]`; for a route with a server of its own.",
        ),
        key("answer_timeout", "time, 1ms or more", "60s", "As in `[upstream.NAME]`."),
        key("tunnel_timeout", "time, 1ms or more", "1h", "As in `[upstream.NAME]`."),
        key("keep", "0 to 65536", "32", "As in `[upstream.NAME]`."),
        key("keep_for", "time, 1ms or more", "30s", "As in `[upstream.NAME]`."),
        key("http2", "true or false", "false", "As in `[upstream.NAME]`."),
        key("tls", "table", "-", "As in `[upstream.NAME]`."),
    ],
};

/// `[[app]]`.
pub(super) const APP: Table = Table {
    name: "[[app]]",
    meaning: "An application: processes that this server starts, watches and gives requests to. A route names it: \
        `kind = \"app\"`, `app = \"NAME\"`. See docs/learn/applications.md.",
    keys: &[
        key("name", "letters, digits, `-` `_` `.`", "", "Its name."),
        key(
            "app",
            "`\"MODULE:ATTRIBUTE\"` or `\"FILE.php\"`",
            "-",
            "A Python application, WSGI or ASGI; which of them is found out. Or a PHP program that starts a server of Swoole's; with `protocol = \"fastcgi\"` a script that answers one request. This or `command`.",
        ),
        key(
            "command",
            "program and arguments, as `[\"uvicorn\", \"main:app\", \"--uds\", \"{socket}\"]`, or a command line",
            "-",
            "A command. `{socket}` stands for the path of the Unix socket that it is to listen on; without it the command gets a listening socket as descriptor 3 (`LISTEN_FDS=1`).",
        ),
        key(
            "protocol",
            "`\"auto\"`, `\"ringroad\"`, `\"http\"`, `\"fastcgi\"`, `\"goridge\"`",
            "auto",
            "What a command speaks: HTTP/1.1, RWP/1 (docs/APP-PROTOCOL.md), FastCGI on descriptor 0, one request at a time, as `php-cgi` does, with routes of `kind = \"php\"`, or goridge on standard input and output, as RoadRunner's workers do. Auto: HTTP.",
        ),
        key(
            "python",
            "file name",
            "-",
            "The interpreter. By default that of `$VIRTUAL_ENV`, of `.venv` or `venv` in `directory`, or `python3`.",
        ),
        key(
            "php",
            "file name",
            "-",
            "The interpreter of a PHP script: by default `php`, with `protocol = \"fastcgi\"` `php-cgi`.",
        ),
        key("factory", "true or false", "false", "`app` is a function that makes the application."),
        key(
            "preload",
            "true or false",
            "false",
            "One process imports the application and forks the workers, which share its memory (with `app`).",
        ),
        key(
            "websocket_message",
            "bytes, to 16M",
            "16M",
            "Longest message of a WebSocket, of ASGI applications; in up to 1,024 parts, or one for each 1 KiB of \
             this if that is more.",
        ),
        key(
            "websocket_ping",
            "time",
            "20s",
            "Silence after which the client of a WebSocket is pinged, and its time to answer. 0: never.",
        ),
        key(
            "websocket_compress",
            "true or false",
            "false",
            "Agrees to compress the messages of a WebSocket.",
        ),
        key("directory", "folder", "-", "Where workers start; by default the folder of this file."),
        key(
            "env",
            "table, as `{ DEBUG = \"0\" }`",
            "-",
            "Variables of the environment besides those of the server.",
        ),
        key(
            "user",
            "`\"USER\"` or `\"USER:GROUP\"`",
            "-",
            "User and group of the workers; only root can change them.",
        ),
        key(
            "root_path",
            "path without a slash at its end, as `\"/shop\"`",
            "-",
            "Where the application begins: `root_path` of ASGI, `SCRIPT_NAME` of WSGI.",
        ),
        key("workers", "0 to 1024", "0", "Worker processes; 0 is one for each CPU."),
        key(
            "workers_max",
            "0 to 1024",
            "0",
            "Workers at most: one more is started while requests wait. 0: no more than `workers`.",
        ),
        key(
            "idle",
            "time",
            "60s",
            "Time after which one worker beyond `workers` stops, if the others can do its work.",
        ),
        key(
            "concurrency",
            "1 to 1048576",
            "-",
            "Requests at once in one worker. By default 1 for WSGI (more are threads), 1000 for ASGI, 256 for HTTP.",
        ),
        key(
            "dispatch",
            "`\"idle\"`, `\"turns\"`, `\"least\"`, `\"connection\"`, `\"address\"`, `\"header:NAME\"`, `\"cookie:NAME\"`",
            "idle",
            "How a worker is chosen: the first idle one; one after another; the one with fewest requests; or always the same for a connection, a client address, a header line or a cookie, and the first idle one for requests without that line or cookie.",
        ),
        key(
            "queue",
            "0 to 1048576",
            "1024",
            "Requests that may wait for a worker; more: 503 with Retry-After.",
        ),
        key("queue_timeout", "time, 1ms or more", "10s", "How long they may wait; longer: 503."),
        key(
            "timeout",
            "time, 1ms or more",
            "60s",
            "How long a worker may take to begin an answer; longer: 504.",
        ),
        key(
            "kill_after",
            "time",
            "5s",
            "How long it may go on with such a request before it is killed; a worker with other requests is replaced instead, and finishes them.",
        ),
        key(
            "retry",
            "true or false",
            "true",
            "Gives a request to another worker if its own dies before it answers: once if the method is idempotent, and any request that the dead one had not begun.",
        ),
        key("start_timeout", "time, 1ms or more", "30s", "How long a worker may take to become ready."),
        key(
            "stop_timeout",
            "time",
            "30s",
            "How long a worker that is to stop may take to finish its requests, and then to end. One that does not heed the protocol's STOP gets SIGTERM after half of it, and SIGKILL at its end.",
        ),
        key(
            "ping",
            "time",
            "5s",
            "How often a worker is asked whether it is alive; it is killed after four times as long. 0: never, as for PHP by default.",
        ),
        key(
            "health",
            "path, as `\"/healthz\"`",
            "-",
            "Answered with a status below 400 before a worker gets requests. It is asked for with `Host: localhost`. Not for FastCGI and goridge.",
        ),
        key("max_requests", "0 or more", "0", "Requests after which a worker is replaced; 0: never."),
        key("max_age", "time", "0s", "Age at which a worker is replaced; 0: never."),
        key(
            "jitter",
            "share, as `\"10%\"` or `0.1`",
            "10%",
            "Random part by which `max_requests` and `max_age` are shortened.",
        ),
        key("memory", "bytes", "0", "Resident memory at which a worker is replaced; 0: any."),
        key("memory_hard", "bytes", "0", "Resident memory at which a worker is killed; 0: any."),
        key(
            "backoff",
            "two times, as `[\"100ms\", \"30s\"]`",
            "[\"100ms\", \"30s\"]",
            "First and longest wait between starts that fail. After five failures in a row one start at a time is tried, about each longest wait; workers that serve stay.",
        ),
        key("tasks", "0 to 1024", "0", "Processes that run tasks which workers submit."),
        key("task_queue", "1 to 1048576", "1000", "Tasks that may wait for one; more are refused."),
        key(
            "task_timeout",
            "time, 1ms or more",
            "5m",
            "How long a task may run; then its process is killed, and the submitter is told.",
        ),
        key(
            "task_socket",
            "file name",
            "-",
            "A Unix socket, of mode 0600, where other programs submit tasks: one JSON object a line.",
        ),
        key("watch", "files and folders", "-", "What `dev` watches, instead of `directory`."),
        key(
            "dev",
            "true or false",
            "false",
            "For development: reloads when a file changes, and shows clients why the application does not start.",
        ),
    ],
};

/// `kind = "app"`.
pub(super) const APP_ROUTE: Table = Table {
    name: "[[route]] kind = \"app\"",
    meaning: "Gives requests to an application.",
    keys: &[
        key("app", "name of an `[[app]]`", "", "The application."),
        key("buffer", "true or false", "true", "As for `kind = \"proxy\"`."),
        key(
            "root",
            "folder",
            "-",
            "Files of this folder are sent without asking the application. Sources of PHP and hidden files are not.",
        ),
        key(
            "sendfile",
            "table, as `{ \"/protected/\" = \"/srv/files\" }`",
            "-",
            "As for `kind = \"php\"`: folders with files that an answer may name by `X-Accel-Redirect` or `X-Sendfile`. Without it these lines go to the client.",
        ),
        media::TYPES,
        media::CHARSET,
    ],
};

/// `kind = "php"`.
pub(super) const PHP: Table = Table {
    name: "[[route]] kind = \"php\"",
    meaning: "Executes PHP scripts of a folder over FastCGI, and sends the files beside them. Only files that end in `.php` \
        and are beneath `root` are executed. See docs/learn/php.md.",
    keys: &[
        key("root", "folder", "", "The folder, which PHP finds at the same path."),
        key(
            "to",
            "`\"unix:SOCKET\"` or `\"HOST:PORT\"`",
            "-",
            "The FastCGI server, such as php-fpm. This or `app`.",
        ),
        key(
            "app",
            "name of an `[[app]]`",
            "-",
            "Processes that this server starts: an application with `protocol = \"fastcgi\"`.",
        ),
        key(
            "index",
            "file name or list",
            "[\"index.php\", \"index.html\"]",
            "Files that stand for their folder; the first that is there.",
        ),
        key(
            "try_files",
            "paths, as `[\"/index.php\"]` or `[\"/index.php?q={path}\"]`",
            "/index.php",
            "Scripts that answer what is not there, the first that is; `\"=404\"` ends the list. A query replaces the client's.",
        ),
        key("params", "table, as `{ APP_ENV = \"prod\" }`", "-", "Variables besides those that CGI has."),
        key(
            "sendfile",
            "table, as `{ \"/protected/\" = \"/srv/files\" }`",
            "-",
            "Folders with files that an answer may name: `X-Accel-Redirect: /protected/a.pdf` or `X-Sendfile: /srv/files/a.pdf`. This server sends them in the place of the answer's body.",
        ),
        key(
            "buffer",
            "true or false",
            "true",
            "Drains answers, as `[buffer]` says, so that a slow client holds no process; false passes them on as they arrive, as `X-Accel-Buffering: no` does for one answer. Requests are collected in any case.",
        ),
        key("hidden", "true or false", "false", "As for `kind = \"static\"`."),
        key("precompressed", "true or false", "true", "As for `kind = \"static\"`."),
        media::TYPES,
        media::CHARSET,
        key(
            "connections",
            "1 to 65536",
            "256",
            "Connections to the server at most; requests beyond wait for `connect_timeout`. With `keep` no more than `pm.max_children` of php-fpm: each kept connection holds a child.",
        ),
        key(
            "connect_timeout",
            "time, 1ms or more",
            "5s",
            "How long connecting may take (longer: 504), and the wait for one of `connections` (longer: 503).",
        ),
        key(
            "answer_timeout",
            "time, 1ms or more",
            "60s",
            "Longest time without progress while an answer is awaited or received; then 504.",
        ),
        key("keep", "0 to 65536", "0", "Idle connections kept by each worker; 0: each request has its own."),
        key("keep_for", "time, 1ms or more", "30s", "How long they are kept."),
    ],
};

/// `kind = "health"`.
pub(super) const HEALTH: Table = Table {
    name: "[[route]] kind = \"health\"",
    meaning: "200 while the server serves, 503 while it stops.",
    keys: &[],
};

/// `kind = "status"`.
pub(super) const STATUS: Table = Table {
    name: "[[route]] kind = \"status\"",
    meaning: "A page with the groups of servers behind and the state of each server; JSON for clients that ask for \
        `application/json`. It tells addresses of your servers: give its route `access` or `auth`.",
    keys: &[],
};

/// `kind = "metrics"`.
pub(super) const METRICS: Table = Table {
    name: "[[route]] kind = \"metrics\"",
    meaning: "Counters in Prometheus' text format.",
    keys: &[key("listen", "address", "-", "An address of its own: there and nowhere else.")],
};

/// `kind = "hub"`.
pub(super) const HUB_ROUTE: Table = Table {
    name: "[[route]] kind = \"hub\"",
    meaning: "Subscribing and publishing, see docs/push.md.",
    keys: &[
        key("hub", "the name of a `[hub.NAME]`", "", "The hub."),
        key(
            "speak",
            "list of `\"mercure\"`, `\"websocket\"`, `\"pusher\"` and `\"centrifugo\"`",
            "[\"mercure\", \"websocket\"]",
            "What clients may speak: server-sent events, WebSocket with topics in the URL, Pusher's protocol below `app/` and `apps/`, or Centrifugo's at `connection/websocket` and below `api/`.",
        ),
        key(
            "publish_auth",
            "the name of an `[auth.NAME]`",
            "-",
            "Clients with such a key may publish to every topic, those with a token to the topics that it names. Without it nothing can be published from outside.",
        ),
        key(
            "subscribe_auth",
            "the name of an `[auth.NAME]`",
            "-",
            "Clients with such a key may read private messages of every topic, those with a token of the topics that it names.",
        ),
        key(
            "anonymous",
            "true or false",
            "-",
            "Clients without key and token may subscribe, and get what is not private. By default they may where there is no `subscribe_auth`.",
        ),
        key(
            "cookie",
            "name of a cookie",
            "__Secure-mercure_access_token",
            "Where browsers may have the token. With a cookie the page's origin is checked.",
        ),
        key(
            "compatible",
            "`\"0.x\"`",
            "-",
            "Speaks Mercure 0.x as well: URI templates in `topic`, the claim `mercure`, the cookie `mercureAuthorization`, and tokens that do not end.",
        ),
        key(
            "subscriptions",
            "true or false",
            "false",
            "Publishes a private message when a subscription begins or ends, and lists them below `subscriptions`, both for clients with a key, or with a token that covers these topics.",
        ),
        key(
            "pusher",
            "table, as `{ id = \"1\", key = \"app\", secret = \"$SECRET\" }`",
            "-",
            "The application of Pusher's clients, see below.",
        ),
        key(
            "centrifugo",
            "table, as `{ presence = true }`",
            "-",
            "What channels offer to Centrifugo's clients, see below.",
        ),
        key(
            "origins",
            "list of origins, as `[\"https://example.org\"]`, or `[\"*\"]`",
            "-",
            "Pages of other hosts that may open a WebSocket. Those of the server's own always may.",
        ),
    ],
};

/// `pusher` of a route to a hub.
pub(super) const HUB_PUSHER: Table = Table {
    name: "pusher = { … } of kind = \"hub\"",
    meaning: "An application as clients and servers of Pusher's protocol know it.",
    keys: &[
        key("id", "text", "", "Servers publish to `apps/ID/events` below the route's path."),
        key("key", "text", "", "Clients connect to `app/KEY`."),
        key("secret", "text", "", "Signs what servers ask, and subscriptions to private channels."),
        key(
            "client_events",
            "true or false",
            "false",
            "Clients may send `client-` events to the others of a private or presence channel, 10 in a second.",
        ),
    ],
};

/// `centrifugo` of a route to a hub.
pub(super) const HUB_CENTRIFUGO: Table = Table {
    name: "centrifugo = { … } of kind = \"hub\"",
    meaning: "What channels offer to Centrifugo's clients beside messages.",
    keys: &[
        key(
            "presence",
            "true or false",
            "false",
            "Clients of a channel are listed, for each other and for the HTTP API.",
        ),
        key(
            "join_leave",
            "true or false",
            "false",
            "Clients that ask for it hear of others that come and go.",
        ),
    ],
};

/// `[hub.NAME]`.
pub(super) const HUB: Table = Table {
    name: "[hub.NAME]",
    meaning: "A hub of topics. A reload keeps a hub of the same name with the settings it was made with.",
    keys: &[
        key(
            "history",
            "table, as `{ messages = 100, for = \"5m\" }`",
            "-",
            "What is kept of each topic, see below.",
        ),
        key(
            "heartbeat",
            "time, 1s or more",
            "25s",
            "A silent connection hears from the hub after so long: a ping, or a comment.",
        ),
        key(
            "queue",
            "bytes, at least 1K",
            "256K",
            "What may wait to be sent to one client. Beyond it the client is closed, and can come back without loss.",
        ),
        key("message", "bytes", "64K", "The longest message; longer: 413."),
        key(
            "url",
            "URL",
            "http://localhost/.well-known/mercure",
            "The hub's own URL as clients know it: relative topics and patterns are below it, and its path is reserved for the hub's own messages.",
        ),
        key(
            "topics",
            "1 or more",
            "100000",
            "Most topics. Those without clients and history make room for others.",
        ),
        key(
            "store",
            "the name of a `[redis.NAME]` or a `[nats.NAME]`, as `\"redis.main\"`",
            "-",
            "Several machines share the hub: those with this server and the same name of the hub. Over NATS a message reaches other machines at most once.",
        ),
        key("stored", "1 or more", "10000", "How many messages Redis keeps, of all topics together."),
        key(
            "store_beat",
            "time",
            "5s",
            "How often a machine reports to the store. Others remove the users of one that has not for four times as long.",
        ),
    ],
};

/// `history` of `[hub.NAME]`.
pub(super) const HUB_HISTORY: Table = Table {
    name: "history = { … } of [hub.NAME]",
    meaning: "Messages that are kept for clients that come back.",
    keys: &[
        key("messages", "0 to 1000000", "100", "How many, of each topic."),
        key("for", "time", "5m", "How long."),
    ],
};

/// The server's own, in the order of the reference.
pub(super) const SERVER_TABLES: &[&Table] = &[
    &TOP,
    &DRIVERS,
    &LISTEN,
    &TLS,
    &CERTIFICATE,
    &TLS_CLIENT,
    &TLS_ACME,
    &TLS_ACME_EXTERNAL,
    &CLIENT_IP,
    &LIMITS,
    &TIMEOUTS,
    &HTTP2,
    &LOG,
    &LOG_ONLY,
    &CACHE,
    &BUFFER,
    &ringroad_gate::store::TABLE,
    &ringroad_gate::store::NATS_TABLE,
    &APP,
    &HUB,
    &HUB_HISTORY,
    &UPSTREAM,
    &SERVER,
    &UPSTREAM_TLS,
    &CHECK,
    &EJECT,
    &BREAKER,
    &RETRY,
    &HEDGE,
];

/// Those of routes.
pub(super) const ROUTE_TABLES: &[&Table] = &[
    &ROUTE,
    &SPLIT,
    &STATIC,
    &UPLOAD,
    &RESPOND,
    &REDIRECT,
    &PROXY,
    &APP_ROUTE,
    &PHP,
    &HUB_ROUTE,
    &HUB_PUSHER,
    &HUB_CENTRIFUGO,
    &HEALTH,
    &STATUS,
    &METRICS,
];
