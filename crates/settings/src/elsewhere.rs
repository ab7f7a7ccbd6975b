//! Words of other servers for what has another name here, so that a mistake can name the right key.

/// A word of another server: the word, our key for it, how that is written, and the table it belongs to.
type Word = (&'static str, &'static str, &'static str, &'static str);

const TOP: &str = "at the top of the file";
const ADDRESS: &str = "of an address in `listen`";
const LIMITS: &str = "in [limits]";
const TIMEOUTS: &str = "in [timeouts]";
const LOG: &str = "in [log]";
const TLS: &str = "in [tls]";
const CLIENT_IP: &str = "in [client_ip]";
const APP: &str = "in [[app]]";
const UPSTREAM: &str = "in [upstream.NAME]";
const LIMIT: &str = "in [limit.NAME]";
const ROUTE: &str = "in [[route]]";
const STATIC: &str = "in a [[route]] with kind = \"static\"";
const PROXY: &str = "in a [[route]] with kind = \"proxy\"";
const PHP: &str = "in a [[route]] with kind = \"php\"";

/// Words by server. Of several entries for a word the first with a key of the table counts.
const WORDS: &[(&str, &[Word])] = &[
    (
        "nginx",
        &[
            ("worker_processes", "workers", "`workers`", TOP),
            ("reuseport", "reuse_port", "`reuse_port`", TOP),
            ("worker_shutdown_timeout", "drain", "`drain`", TOP),
            ("worker_connections", "max_connections", "`max_connections`", TOP),
            ("ssl", "tls", "`tls = true`", ADDRESS),
            ("http2_max_concurrent_streams", "streams", "`streams`", "in [http2]"),
            // Servers and locations.
            ("server", "servers", "`servers`", UPSTREAM),
            ("server", "route", "[[route]] with `hosts`", TOP),
            ("location", "route", "[[route]] with `path`", TOP),
            ("server_name", "hosts", "`hosts`", ROUTE),
            ("limit_except", "methods", "`methods`", ROUTE),
            ("return", "status", "`status`", "in a [[route]] with kind = \"respond\" or \"redirect\""),
            ("error_page", "errors", "`errors`", ROUTE),
            ("add_header", "headers", "`headers`", ROUTE),
            ("proxy_set_header", "headers", "`headers = { request = { set = … } }`", ROUTE),
            ("allow", "access", "`access`", ROUTE),
            ("deny", "access", "`access`", ROUTE),
            ("auth_basic", "auth", "`auth`, with an [auth.NAME] of kind \"basic\"", ROUTE),
            ("gzip", "compress", "`compress`", ROUTE),
            ("brotli", "compress", "`compress`", ROUTE),
            ("limit_req", "limit", "`limit`, with a [limit.NAME]", ROUTE),
            ("limit_conn", "limit", "`limit`, with `at_once` in a [limit.NAME]", ROUTE),
            ("limit_rate", "bandwidth", "`bandwidth`", ROUTE),
            ("split_clients", "split", "`split`", ROUTE),
            ("proxy_cache", "cache", "`cache`", PROXY),
            ("proxy_cache_path", "memory", "`memory`", "in [store.NAME]"),
            // Files.
            ("root", "root", "`root`", STATIC),
            ("alias", "root", "`root`", STATIC),
            ("index", "index", "`index`", STATIC),
            ("autoindex", "autoindex", "`autoindex`", STATIC),
            ("try_files", "try_files", "`try_files`", STATIC),
            ("gzip_static", "precompressed", "`precompressed`", STATIC),
            ("brotli_static", "precompressed", "`precompressed`", STATIC),
            ("default_type", "types", "`types = { \"*\" = … }`", STATIC),
            ("mime_types", "types", "`types`", STATIC),
            ("override_charset", "charset", "`charset`", STATIC),
            // Servers behind.
            ("proxy_pass", "to", "`to`", PROXY),
            ("fastcgi_pass", "to", "`to`", PHP),
            ("fastcgi_param", "params", "`params`", PHP),
            ("upstream", "to", "`to`", PROXY),
            ("proxy_connect_timeout", "connect_timeout", "`connect_timeout`", UPSTREAM),
            ("proxy_read_timeout", "answer_timeout", "`answer_timeout`", UPSTREAM),
            ("proxy_send_timeout", "answer_timeout", "`answer_timeout`", UPSTREAM),
            ("fastcgi_read_timeout", "answer_timeout", "`answer_timeout`", PHP),
            ("proxy_buffering", "buffer", "`buffer`", PROXY),
            ("proxy_request_buffering", "buffer", "`buffer`", PROXY),
            ("proxy_ignore_client_abort", "on_client_gone", "`on_client_gone = \"finish\"`", ROUTE),
            ("fastcgi_ignore_client_abort", "on_client_gone", "`on_client_gone = \"finish\"`", ROUTE),
            ("proxy_next_upstream", "retry", "`retry`", UPSTREAM),
            ("proxy_ssl_trusted_certificate", "tls", "`tls = { ca = … }`", UPSTREAM),
            ("keepalive", "keep", "`keep`", UPSTREAM),
            ("round_robin", "balance", "`balance = \"turns\"`", UPSTREAM),
            ("least_conn", "balance", "`balance = \"least\"`", UPSTREAM),
            ("ip_hash", "balance", "`balance = \"hash:client\"`", UPSTREAM),
            ("sticky", "balance", "`balance = \"sticky\"`", UPSTREAM),
            ("hash", "balance", "`balance = \"hash:KEY\"`", UPSTREAM),
            ("max_fails", "eject", "`eject = { after = … }`", UPSTREAM),
            ("fail_timeout", "eject", "`eject = { for = … }`", UPSTREAM),
            ("max_conns", "requests", "`requests`", UPSTREAM),
            ("health_check", "health", "`health`", UPSTREAM),
            // Sizes and times.
            ("client_max_body_size", "body", "`body`", LIMITS),
            ("client_header_buffer_size", "header_line", "`header_line`", LIMITS),
            ("large_client_header_buffers", "headers", "`headers`", LIMITS),
            ("keepalive_requests", "requests_per_connection", "`requests_per_connection`", LIMITS),
            ("client_header_timeout", "header", "`header`", TIMEOUTS),
            ("client_body_timeout", "body_grace", "`body_grace`", TIMEOUTS),
            ("keepalive_timeout", "keep_alive", "`keep_alive`", TIMEOUTS),
            ("send_timeout", "send", "`send`", TIMEOUTS),
            ("lingering_time", "linger", "`linger`", TIMEOUTS),
            // The log, TLS, and proxies before it.
            ("access_log", "file", "`file`", LOG),
            ("log_format", "format", "`format`", LOG),
            ("ssl_certificate", "certificates", "`certificates`", TLS),
            ("ssl_certificate_key", "certificates", "`certificates`", TLS),
            ("ssl_client_certificate", "client", "`client`", TLS),
            ("ssl_verify_client", "client", "`client`", TLS),
            ("real_ip_header", "from", "`from`", CLIENT_IP),
            ("set_real_ip_from", "proxies", "`proxies`", CLIENT_IP),
        ],
    ),
    (
        "Caddy",
        &[
            ("grace_period", "drain", "`drain`", TOP),
            ("file_server", "root", "`root`", STATIC),
            ("browse", "autoindex", "`autoindex`", STATIC),
            ("reverse_proxy", "to", "`to`", PROXY),
            ("header", "headers", "`headers`", ROUTE),
            ("header_up", "request", "`request`", "in `headers` of a [[route]]"),
            ("header_down", "response", "`response`", "in `headers` of a [[route]]"),
            ("request_body", "body", "`body`", LIMITS),
            ("read_header_timeout", "header", "`header`", TIMEOUTS),
            ("idle_timeout", "keep_alive", "`keep_alive`", TIMEOUTS),
            ("output", "file", "`file`", LOG),
            ("dial_timeout", "connect_timeout", "`connect_timeout`", UPSTREAM),
            ("response_header_timeout", "answer_timeout", "`answer_timeout`", UPSTREAM),
            ("handle_errors", "errors", "`errors`", ROUTE),
            ("trusted_proxies", "proxies", "`proxies`", CLIENT_IP),
            ("flush_interval", "buffer", "`buffer`", PROXY),
            ("lb_policy", "balance", "`balance`", UPSTREAM),
            ("encode", "compress", "`compress`", ROUTE),
            ("health_uri", "health", "`health`", UPSTREAM),
            ("uri", "rewrite", "`rewrite`", ROUTE),
            ("strip_prefix", "rewrite", "`rewrite`", ROUTE),
        ],
    ),
    (
        "Traefik",
        &[
            ("routers", "route", "[[route]]", TOP),
            ("rule", "path", "`path`", ROUTE),
            ("path_prefix", "path", "`path`", ROUTE),
            ("host_regexp", "hosts", "`hosts`", ROUTE),
            ("service", "to", "`to`", PROXY),
            ("services", "upstream", "[upstream.NAME]", TOP),
            ("loadBalancer", "balance", "`balance`", UPSTREAM),
            ("rateLimit", "limit", "`limit`, with a [limit.NAME]", ROUTE),
            ("healthcheck", "health", "`health`", UPSTREAM),
        ],
    ),
    (
        "HAProxy",
        &[
            ("maxconn", "max_connections", "`max_connections`", TOP),
            ("max_conn", "max_connections", "`max_connections`", TOP),
            ("backend", "to", "`to`", PROXY),
            ("backends", "servers", "`servers`", UPSTREAM),
            ("abortonclose", "on_client_gone", "`on_client_gone`, with `half_close` in [timeouts]", ROUTE),
            ("stick-table", "key", "`key`", LIMIT),
        ],
    ),
    ("Envoy", &[("upstreams", "upstream", "[upstream.NAME]", TOP)]),
    ("gRPC", &[("deadline", "timeouts", "`timeouts = { answer = … }`", ROUTE)]),
    (
        "Swoole",
        &[
            ("worker_num", "workers", "`workers`", TOP),
            ("enable_reuse_port", "reuse_port", "`reuse_port`", TOP),
            ("max_wait_time", "drain", "`drain`", TOP),
            ("document_root", "root", "`root`", STATIC),
            ("http_index_files", "index", "`index`", STATIC),
            ("http_autoindex", "autoindex", "`autoindex`", STATIC),
            ("package_max_length", "body", "`body`", LIMITS),
            ("dispatch_mode", "dispatch", "`dispatch`", APP),
            ("task_worker_num", "tasks", "`tasks`", APP),
            ("max_request", "max_requests", "`max_requests`", APP),
        ],
    ),
    (
        "RoadRunner",
        &[("num_workers", "workers", "`workers`", APP), ("max_jobs", "max_requests", "`max_requests`", APP)],
    ),
];

/// A word of another server, found for a table.
pub(crate) struct Found {
    /// Our key, where the table knows it.
    pub(crate) key: Option<&'static str>,
    /// What is written here instead, and where.
    pub(crate) hint: String,
}

/// Finds what another server calls `word`, first among the keys that the table knows.
pub(crate) fn translated(word: &str, known: &[&str]) -> Option<Found> {
    let all = WORDS.iter().flat_map(|(server, words)| words.iter().map(move |entry| (server, entry)));
    let mut matching = all.filter(|(_, (theirs, ..))| theirs.eq_ignore_ascii_case(word));
    let first = matching.clone().next()?;
    let here = matching.find(|(_, (_, ours, ..))| known.contains(ours));
    let (server, (theirs, ours, written, table)) = here.unwrap_or(first);
    let key = here.map(|_| *ours);
    let place = if key.is_some() { "here" } else { *table };
    Some(Found { key, hint: format!("{server}'s `{theirs}` is {written} {place}") })
}
