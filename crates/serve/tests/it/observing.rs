//! What is told of requests: the access log, the metrics.

use crate::support::{Client, Site, start, wait_until};
use ringroad_engine::Name;

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

drivers!(each_request_is_a_line_of_the_combined_log, |driver: Name| {
    let site = start(driver, &format!("log.file = \"access.log\"\n{ROUTES}"), |_| {});
    std::fs::write(site.path("large"), vec![0; 3_000_000]).unwrap();
    let mut client = site.client();
    client.ask("GET", "/a?b=c", &[("Referer", "http://x/\"y"), ("User-Agent", "test\\1")]);
    client.get("/files/missing");
    client.get("/files/large");
    client.ask("HEAD", "/files/large", &[]);
    let lines = lines(&site, "access.log", 4);
    let expected = [
        "\"GET /a?b=c HTTP/1.1\" 200 5 \"http://x/\\\"y\" \"test\\\\1\"",
        "\"GET /files/missing HTTP/1.1\" 404 49 \"-\" \"-\"",
        "\"GET /files/large HTTP/1.1\" 200 3000000 \"-\" \"-\"",
        "\"HEAD /files/large HTTP/1.1\" 200 0 \"-\" \"-\"",
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:?}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with("127.0.0.1 - - [") && line.contains(" +0000] "), "{line}");
        assert!(line.ends_with(expected), "{line}");
    }
});

drivers!(the_json_log_tells_the_id_that_the_client_was_told, |driver: Name| {
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

drivers!(a_log_that_was_moved_is_opened_anew_by_a_reload, |driver: Name| {
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
fn everything_said_before_a_stop_is_in_the_log() {
    let site = start(Name::Epoll, &format!("log.file = \"access.log\"\n{ROUTES}"), |_| {});
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

/// The value of a sample.
fn sample(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')))?;
    line.rsplit(' ').next()?.parse().ok()
}

drivers!(metrics_count_what_was_answered, |driver: Name| {
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
    let site = start(Name::Epoll, ROUTES, |_| {});
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

drivers!(metrics_may_have_an_address_of_their_own, |driver: Name| {
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
    let site = start(Name::Epoll, ROUTES, |_| {});
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
