//! What is told of requests: the access log, the metrics.

use crate::support::{Client, Site, configure, start, wait_until};
use ringroad_engine::DriverName;
use ringroad_serve::{Event, EventSink, Overrides, Service, Source, StartError, load};

const ROUTES: &str = r#"
request_id = "X-Request-Id"

[[route]]
path = "/"
kind = "respond"
body = "hello"

[[route]]
path = "/files/"
kind = "static"
root = "."

[[route]]
path = "/metrics"
kind = "metrics"
"#;

/// The lines of a log, as soon as there are so many.
fn lines(site: &Site, name: &str, count: usize) -> Vec<String> {
    let read = || std::fs::read_to_string(site.path(name)).unwrap_or_default();
    wait_until(&format!("{count} lines in {name}"), || read().lines().count() >= count);
    read().lines().map(str::to_owned).collect()
}

drivers!(each_request_is_a_line_of_the_combined_log, |driver: DriverName| {
    let site = start(driver, &format!("log.file = \"access.log\"\n{ROUTES}"), |_| {});
    std::fs::write(site.path("large"), vec![0; 3_000_000]).unwrap();
    let mut client = site.client();
    client.ask("GET", "/a?b=c", &[("Referer", "http://x/\"y"), ("User-Agent", "test\\1")]);
    client.get("/files/missing");
    client.get("/files/large");
    client.ask("HEAD", "/files/large", &[]);
    // As it was sent, whatever was understood by it.
    client.get("/files/.//missing");
    let lines = lines(&site, "access.log", 5);
    let expected = [
        "\"GET /a?b=c HTTP/1.1\" 200 5 \"http://x/\\\"y\" \"test\\\\1\"",
        "\"GET /files/missing HTTP/1.1\" 404 49 \"-\" \"-\"",
        "\"GET /files/large HTTP/1.1\" 200 3000000 \"-\" \"-\"",
        "\"HEAD /files/large HTTP/1.1\" 200 0 \"-\" \"-\"",
        "\"GET /files/.//missing HTTP/1.1\" 404 49 \"-\" \"-\"",
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:?}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with("127.0.0.1 - - [") && line.contains(" +0000] "), "{line}");
        assert!(line.ends_with(expected), "{line}");
    }
});

drivers!(the_json_log_tells_the_id_that_the_client_was_told, |driver: DriverName| {
    let site =
        start(driver, &format!("log = {{ file = \"log.json\", format = \"json\" }}\n{ROUTES}"), |_| {});
    let reply = site.client().ask("GET", "/\\x", &[("User-Agent", "a\tb")]);
    let line = lines(&site, "log.json", 1).remove(0);
    let id = reply.header("X-Request-Id").unwrap();
    for part in [
        format!("\"id\":\"{id}\""),
        "\"remote\":\"127.0.0.1\"".to_owned(),
        "\"method\":\"GET\",\"target\":\"/\\\\x\",\"host\":\"example.org\"".to_owned(),
        "\"status\":200,\"bytes\":5,\"duration_s\":".to_owned(),
        "\"user_agent\":\"a\\u0009b\"".to_owned(),
    ] {
        assert!(line.contains(&part), "{part} in {line}");
    }
    assert!(line.starts_with("{\"time\":\"20") && line.ends_with('}'), "{line}");
});

drivers!(a_log_that_was_moved_is_opened_anew_by_a_reload, |driver: DriverName| {
    let mut site = start(driver, &format!("log.file = \"access.log\"\n{ROUTES}"), |_| {});
    let mut client = site.client();
    client.get("/before");
    assert!(lines(&site, "access.log", 1)[0].contains("/before"));
    std::fs::rename(site.path("access.log"), site.path("access.log.1")).unwrap();
    site.service.reload();
    client.get("/after");
    assert!(lines(&site, "access.log", 1)[0].contains("/after"));
    assert_eq!(lines(&site, "access.log.1", 1).len(), 1);
});

#[test]
fn a_start_or_reload_that_fails_makes_no_log_file() {
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let text =
        |log: &str| format!("@listen = [\"127.0.0.1:0\", \"{taken}\"]\nlog.file = \"{log}\"\n{ROUTES}");
    let source = Source::File(configure(folder.path(), &text("access.log")));
    let overrides = Overrides::default();
    let config = load(&source, &overrides).unwrap();
    let started = Service::start(source, overrides, config, EventSink::new(|_| {}, |_| Ok(())));
    assert!(matches!(started, Err(StartError::Server(_))), "{started:?}");
    assert!(!folder.path().join("access.log").exists());

    let mut site = start(DriverName::Epoll, &format!("log.file = \"access.log\"\n{ROUTES}"), |_| {});
    assert!(site.path("access.log").exists(), "it is there before the first line");
    configure(site.folder.path(), &text("other.log"));
    site.service.reload();
    let event = site.event();
    assert!(matches!(event, Event::ReloadFailed(_)), "{event:?}");
    assert!(!site.path("other.log").exists());
}

#[test]
fn a_log_that_cannot_be_written_is_found_before_the_start_and_not_made() {
    let folder = tempfile::tempdir().unwrap();
    for (log, said) in [
        (".", ": a folder"),
        ("nowhere/access.log", "/nowhere: No such file or directory (os error 2)"),
        ("ringroad.toml/access.log", "/ringroad.toml: not a folder"),
    ] {
        let source = Source::File(configure(folder.path(), &format!("log.file = \"{log}\"\n{ROUTES}")));
        let why = load(&source, &Overrides::default()).expect_err(log).to_string();
        assert!(why.contains("ringroad.toml:2: log.file: ") && why.trim_end().ends_with(said), "{why}");
    }
    let source = Source::File(configure(folder.path(), &format!("log.file = \"access.log\"\n{ROUTES}")));
    load(&source, &Overrides::default()).unwrap();
    assert!(!folder.path().join("access.log").exists());
}

#[test]
fn everything_said_before_a_stop_is_in_the_log() {
    let site = start(DriverName::Epoll, &format!("log.file = \"access.log\"\n{ROUTES}"), |_| {});
    let mut client = site.client();
    for number in 0..500 {
        client.get(&format!("/{number}"));
    }
    drop(client);
    let Site { folder, service, .. } = site;
    service.stop().unwrap();
    let log = std::fs::read_to_string(folder.path().join("access.log")).unwrap();
    let told: Vec<_> = log.lines().filter_map(|line| line.split(' ').nth(6)).collect();
    assert_eq!(told, (0..500).map(|number| format!("/{number}")).collect::<Vec<_>>());
}

drivers!(a_log_has_lines_of_ones_own_form_for_the_requests_that_count, |driver: DriverName| {
    let top = r#"
        trace = true
        [log]
        file = "access.log"
        format = "{status} {method} {target} {header.X-A} {answer.Content-Type} {route} {bytes}|{cookie.none}"
        only = { status = ["4xx", 200] }

        [[route]]
        path = "/quiet"
        kind = "respond"
        log = false

        [[route]]
        path = "/moved"
        kind = "redirect"
        to = "/"
    "#;
    let site =
        start(driver, &format!("{top}{}", ROUTES.replace("request_id = \"X-Request-Id\"", "")), |_| {});
    let mut client = site.client();
    client.ask("GET", "/a?b", &[("X-A", "1\t\"2")]);
    client.get("/moved");
    client.get("/quiet");
    client.get("/files/missing");
    // What the protocol layer refuses has a buffer of its own.
    lines(&site, "access.log", 2);
    client.send("BAD\x01 / HTTP/1.1\r\n\r\n").rest();
    let lines = lines(&site, "access.log", 3);
    assert_eq!(
        lines,
        [
            "200 GET /a?b 1\\x09\\\"2 text/plain; charset=utf-8 / 5|-",
            "404 GET /files/missing - text/plain; charset=utf-8 /files/ 49|-",
            "400 - BAD\\x01 / HTTP/1.1 - - - 0|-",
        ]
    );
});

#[test]
fn a_log_goes_to_syslog_line_by_line() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let daemon = std::os::unix::net::UnixDatagram::bind(&socket).unwrap();
    daemon.set_read_timeout(Some(crate::support::HANG)).unwrap();
    let top = format!("log = {{ to = \"syslog:{}\", facility = \"local1\" }}\n{ROUTES}", socket.display());
    let site = start(DriverName::Epoll, &top, |_| {});
    site.client().get("/a");
    let mut buffer = [0; 4096];
    let bytes = daemon.recv(&mut buffer).unwrap();
    let text = String::from_utf8_lossy(&buffer[..bytes]).into_owned();
    assert!(text.starts_with("<142>") && text.contains("\"GET /a HTTP/1.1\" 200 5"), "{text}");
}

drivers!(a_route_with_a_name_has_metrics_of_its_own_that_a_reload_keeps, |driver: DriverName| {
    let routes = ROUTES.replace("path = \"/\"\n", "path = \"/\"\nname = \"front\"\n");
    let mut site = start(driver, &routes, |_| {});
    let mut client = site.client();
    client.get("/a");
    site.service.reload();
    client.get("/b");
    let text = client.get("/metrics").text().to_owned();
    for (name, value) in [
        ("ringroad_route_requests_total{route=\"front\",class=\"2xx\"}", 2.0),
        ("ringroad_route_requests_total{route=\"front\",class=\"5xx\"}", 0.0),
        ("ringroad_route_request_duration_seconds_count{route=\"front\"}", 2.0),
        ("ringroad_route_request_duration_seconds_bucket{route=\"front\",le=\"+Inf\"}", 2.0),
        ("ringroad_route_response_body_bytes_total{route=\"front\"}", 10.0),
    ] {
        assert_eq!(sample(&text, name), Some(value), "{name} in {text}");
    }
    assert!(!text.contains("route=\"/files/\""), "{text}");
});

/// The value of a sample.
fn sample(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')))?;
    line.rsplit(' ').next()?.parse().ok()
}

drivers!(metrics_count_what_was_answered, |driver: DriverName| {
    let site = start(driver, ROUTES, |_| {});
    let mut client = site.client();
    for _ in 0..7 {
        client.get("/");
    }
    client.get("/files/missing");
    client.get("/%");
    let mut refused = site.client();
    refused.send("GET / HTTP/1.1\r\n\r\n").rest();
    let reply = client.get("/metrics");
    assert_eq!(reply.header("Content-Type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let text = reply.text();
    let listen = site.address();
    for (name, value) in [
        ("ringroad_http_requests_total{code=\"200\"}".to_owned(), 7.0),
        ("ringroad_http_requests_total{code=\"404\"}".to_owned(), 1.0),
        ("ringroad_http_requests_total{code=\"400\"}".to_owned(), 1.0),
        ("ringroad_http_request_duration_seconds_count".to_owned(), 9.0),
        ("ringroad_http_request_duration_seconds_bucket{le=\"+Inf\"}".to_owned(), 9.0),
        (format!("ringroad_http_limits_hit_total{{listen=\"{listen}\"}}"), 1.0),
        (format!("ringroad_http_connections_accepted_total{{listen=\"{listen}\"}}"), 2.0),
        ("ringroad_config_reloads_total{result=\"taken\"}".to_owned(), 0.0),
    ] {
        assert_eq!(sample(text, &name), Some(value), "{name} in {text}");
    }
    assert!(text.contains(&format!("ringroad_driver_info{{driver=\"{driver}\",why=")), "{text}");
    for name in ["process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds"] {
        assert!(sample(text, name).is_some_and(|value| value >= 0.0), "{name}");
    }
});

/// Prometheus' own checker, where there is one.
#[test]
fn the_metrics_are_as_prometheus_wants_them() {
    let site = start(DriverName::Epoll, ROUTES, |_| {});
    let mut client = site.client();
    client.get("/");
    let text = client.get("/metrics").text().to_owned();
    // Each family once, with help and type before its samples.
    let mut families = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            families.push(rest.split(' ').next().unwrap());
        } else if !line.starts_with('#') {
            let name = line.split(['{', ' ']).next().unwrap();
            let family = *families.last().expect("a family before its samples");
            let plain =
                ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
            assert!(name == family || plain == family, "{line} in {family}");
        }
    }
    let count = families.len();
    families.sort_unstable();
    families.dedup();
    assert_eq!(families.len(), count);
    crate::support::promtool(&["check", "metrics"], Some(&text));
}

drivers!(metrics_may_have_an_address_of_their_own, |driver: DriverName| {
    let routes = ROUTES.replace("kind = \"metrics\"", "kind = \"metrics\"\nlisten = \"127.0.0.1:0\"");
    let site = start(driver, &routes, |_| {});
    let addresses: Vec<_> = site.service.addresses().collect();
    let [public, own] = addresses.as_slice() else { panic!("{addresses:?}") };
    let mut client = Client::new(*public);
    assert_eq!(client.get("/metrics").text(), "hello");
    let mut client = Client::new(*own);
    assert!(client.get("/metrics").text().contains("ringroad_build_info"));
    assert_eq!(client.get("/").status, 404);
});

fn contrib(name: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib").join(name)
}

/// Names of ours, or of a process, that stand in a text.
fn names(text: &str) -> std::collections::BTreeSet<String> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c| !word(c)).filter(|word| {
        word.starts_with("ringroad_") || (word.starts_with("process_") && !word.ends_with('_'))
    });
    words.map(str::to_owned).collect()
}

#[test]
fn the_dashboard_and_the_alerts_ask_for_metrics_that_there_are() {
    let front = "path = \"/\"\nname = \"front\"\naccess = { deny = [\"192.0.2.0/24\"] }\n";
    // Nothing has to answer as the store.
    let store = "[redis.main]\nto = \"unix:nothing\"\n[hub.news]\nstore = \"redis.main\"\n";
    let routes = format!("{}\n{store}", ROUTES.replace("path = \"/\"\n", front));
    let site = start(DriverName::Epoll, &routes, |_| {});
    let mut client = site.client();
    client.get("/");
    let there = names(client.get("/metrics").text());
    for file in ["grafana/ringroad.json", "grafana/alerts.yml", "grafana/alerts.test.yml"] {
        let text = std::fs::read_to_string(contrib(file)).unwrap();
        let asked = names(&text);
        assert!(asked.len() > 3, "{file}: {asked:?}");
        let missing: Vec<_> = asked.difference(&there).collect();
        assert!(missing.is_empty(), "{file}: {missing:?}");
    }
}

#[test]
fn the_alerts_are_rules_and_fire_when_they_should() {
    let path = |name: &str| contrib(name).display().to_string();
    crate::support::promtool(&["check", "rules", &path("grafana/alerts.yml")], None);
    crate::support::promtool(&["test", "rules", &path("grafana/alerts.test.yml")], None);
}

#[test]
fn the_queries_of_the_dashboard_are_queries() {
    let text = std::fs::read_to_string(contrib("grafana/ringroad.json")).unwrap();
    let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
    let targets =
        dashboard["panels"].as_array().unwrap().iter().filter_map(|panel| panel["targets"].as_array());
    let queries: Vec<_> = targets.flatten().map(|target| target["expr"].as_str().unwrap()).collect();
    assert!(queries.len() > 20, "{queries:?}");
    // As recording rules: the checker reads their expressions. The variables are the dashboard's.
    let mut rules = "groups:\n- name: dashboard\n  rules:\n".to_owned();
    for (number, query) in queries.iter().enumerate() {
        let query = query.replace("$__rate_interval", "5m").replace("$instance", "a");
        assert!(!query.contains('$'), "{query}");
        rules += &format!("  - record: q{number}\n    expr: {}\n", serde_json::to_string(&query).unwrap());
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.yml");
    std::fs::write(&file, rules).unwrap();
    crate::support::promtool(&["check", "rules", file.to_str().unwrap()], None);
}
