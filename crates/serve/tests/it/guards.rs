//! Protection of upstream groups: checks, ejection, the circuit breaker, concurrency limits, retries.

use crate::ports::nowhere;
use crate::support::{Client, Site, behind, start, wait_until, write};
use ringroad_engine::DriverName;
use ringroad_serve::Event;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

/// A server that answers with a status that can be changed, and its requests so far.
fn server(name: &'static str) -> (SocketAddr, Arc<AtomicU16>, Arc<AtomicUsize>) {
    let (status, asked) = (Arc::new(AtomicU16::new(200)), Arc::new(AtomicUsize::new(0)));
    let (told, counted) = (Arc::clone(&status), Arc::clone(&asked));
    let (address, _) = behind(move |client| {
        while let Some(head) = client.until(b"\r\n\r\n") {
            if !head.starts_with(b"GET /healthz") {
                counted.fetch_add(1, Ordering::SeqCst);
            }
            let code = told.load(Ordering::SeqCst);
            client.send(format!("HTTP/1.1 {code} S\r\nContent-Length: {}\r\n\r\n{name}", name.len()));
        }
    });
    (address, status, asked)
}

/// A group of these servers with these settings at `/`, and its status.
fn group(driver: DriverName, servers: &str, settings: &str) -> Site {
    let rules = format!(
        r#"
        [upstream.g]
        servers = [{servers}]
        {settings}

        [[route]]
        path = "/"
        kind = "proxy"
        to = "upstream:g"

        [[route]]
        path = "/status"
        kind = "status"
        "#
    );
    start(driver, &rules, |_| {})
}

fn status(client: &mut Client) -> serde_json::Value {
    let reply = client.ask("GET", "/status", &[("Accept", "application/json")]);
    serde_json::from_slice(&reply.body).unwrap()
}

drivers!(a_server_that_fails_its_checks_gets_nothing_until_they_are_good_again, |driver: DriverName| {
    let ((one, sick, _), (two, ..)) = (server("one"), server("two"));
    let site = group(
        driver,
        &format!("\"http://{one}\", \"http://{two}\""),
        "balance = \"turns\"\npanic = 0\nhealth = { path = \"/healthz\", every = \"100ms\", timeout = \"100s\", rise = 1, fall = 1 }",
    );
    let mut client = site.client();
    let state = |client: &mut Client| status(client)["upstreams"][0]["servers"][0].clone();
    assert_eq!(state(&mut client)["state"], "up", "servers of a new group are taken for healthy");
    sick.store(503, Ordering::SeqCst);
    wait_until("the check fails", || state(&mut client)["state"] == "down");
    assert_eq!(state(&mut client)["check"], "status 503");
    for _ in 0..6 {
        assert_eq!(client.get("/").text(), "two");
    }
    sick.store(200, Ordering::SeqCst);
    wait_until("the check is good again", || state(&mut client)["state"] == "up");
    let texts: Vec<_> = (0..4).map(|_| client.get("/").text().to_owned()).collect();
    assert!(texts.contains(&"one".to_owned()), "{texts:?}");
});

drivers!(
    a_breaker_opens_by_failures_and_lets_a_few_requests_try_when_its_time_is_over,
    |driver: DriverName| {
        let (one, sick, asked) = server("one");
        // A group after so many failures that its breaker opens, for so long.
        let opened = |open: &str| {
            let settings =
                format!("breaker = {{ least = 4, failed = \"50%\", open = \"{open}\", probes = 1 }}");
            let site = group(driver, &format!("\"http://{one}\""), &settings);
            let mut client = site.client();
            sick.store(500, Ordering::SeqCst);
            for _ in 0..4 {
                assert_eq!(client.get("/").status, 500);
            }
            (site, client)
        };
        let (_site, mut client) = opened("1h..2h");
        let before = asked.load(Ordering::SeqCst);
        let refused = client.get("/");
        let left = refused.header("Retry-After").map(|seconds| seconds.parse::<u64>().unwrap());
        assert!(
            refused.status == 503 && left.is_some_and(|left| (3000..=3600).contains(&left)),
            "{refused:?}"
        );
        assert_eq!(asked.load(Ordering::SeqCst), before, "the server is not asked");
        let (site, mut client) = opened("300ms..1s");
        sick.store(200, Ordering::SeqCst);
        wait_until("a request that tries closes it", || {
            let reply = site.client().get("/");
            let (status, after) = (reply.status, reply.header("Retry-After"));
            assert!(matches!((status, after), (200, None) | (503, Some("1"))), "{reply:?}");
            status == 200
        });
        let told = status(&mut client)["upstreams"][0].clone();
        assert_eq!(told["breaker"], "closed");
        let server = &told["servers"][0];
        assert_eq!((&server["failures"], &server["answers_5xx"]), (&0.into(), &4.into()), "{server}");
        assert_eq!(client.get("/").status, 200);
        let changes: Vec<_> = site
            .events
            .try_iter()
            .filter(|event| matches!(event, Event::Breaker { .. }))
            .map(|event| event.to_string())
            .collect();
        assert_eq!(
            changes,
            [
                format!(
                    "upstream g: breaker opened for 300ms: 4 of 4 requests failed within 10s, the last one at {one}: \
                     status 500"
                ),
                "upstream g: breaker half-open: one request tries".to_owned(),
                "upstream g: breaker closed: a request that tried succeeded".to_owned(),
            ]
        );
    }
);

drivers!(more_requests_than_a_group_may_have_wait_in_line_and_then_get_503, |driver: DriverName| {
    let (release, released) = channel::<()>();
    let released = Arc::new(Mutex::new(released));
    let (address, count) = behind(move |client| {
        while client.until(b"\r\n\r\n").is_some() {
            if released.lock().unwrap().recv().is_err() {
                return;
            }
            client.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    let settings = "requests = 1\nline = 1\nwait = \"200s\"";
    let site = group(driver, &format!("\"http://{address}\""), settings);
    let (mut first, mut second, mut other) = (site.client(), site.client(), site.client());
    first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("the first is behind", || count.load(Ordering::SeqCst) == 1);
    second.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("the second is in line", || status(&mut other)["upstreams"][0]["requests_in_line"] == 1);
    let refused = other.get("/");
    assert_eq!((refused.status, refused.header("Retry-After")), (503, Some("1")));
    release.send(()).unwrap();
    assert_eq!(first.reply().text(), "ok");
    release.send(()).unwrap();
    assert_eq!(second.reply().text(), "ok");
});

drivers!(an_answer_that_counts_as_a_failure_is_asked_for_again_elsewhere, |driver: DriverName| {
    let ((one, sick, _), (two, ..)) = (server("one"), server("two"));
    sick.store(503, Ordering::SeqCst);
    let servers = format!("\"http://{one}\", \"http://{two}\"");
    let settings = "balance = \"turns\"\nretry = { times = 1, on = [503], backoff = \"1ms..2ms\" }\neject = { after = 1000 }";
    let site = group(driver, &servers, settings);
    let mut client = site.client();
    for _ in 0..4 {
        assert_eq!(client.get("/").text(), "two");
    }
    // A request with a method that is not idempotent is sent once.
    let statuses: Vec<_> =
        (0..4).map(|_| client.ask("POST", "/", &[("Content-Length", "0")]).status).collect();
    assert!(statuses.contains(&503), "{statuses:?}");
});

drivers!(a_request_is_repeated_at_the_same_server_where_there_is_no_other, |driver: DriverName| {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let (address, _) = behind(move |client| {
        while client.until(b"\r\n\r\n").is_some() {
            if counted.fetch_add(1, Ordering::SeqCst) < 2 {
                return;
            }
            client.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    let site =
        group(driver, &format!("\"http://{address}\""), "retry = { times = 2, backoff = \"1ms..2ms\" }");
    assert_eq!(site.client().get("/").text(), "ok");
    assert_eq!(asked.load(Ordering::SeqCst), 3);
});

drivers!(a_backup_takes_over_when_no_other_server_is_left, |driver: DriverName| {
    let ((one, ..), (two, ..)) = (server("one"), server("two"));
    let gone = nowhere();
    let site = group(driver, &format!("\"http://{one}\", {{ to = \"http://{two}\", backup = true }}"), "");
    let mut client = site.client();
    for _ in 0..4 {
        assert_eq!(client.get("/").text(), "one");
    }
    let site = group(driver, &format!("\"http://{gone}\", {{ to = \"http://{two}\", backup = true }}"), "");
    let mut client = site.client();
    for _ in 0..4 {
        assert_eq!(client.get("/").text(), "two");
    }
});

drivers!(
    a_server_that_cannot_be_reached_is_passed_over_also_where_nothing_is_repeated,
    |driver: DriverName| {
        let gone = nowhere();
        let (one, sick, _) = server("one");
        let servers = format!("\"http://{gone}\", \"http://{one}\"");
        let site = group(driver, &servers, "balance = \"turns\"\nretry = { times = 0, on = [503] }");
        let mut client = site.client();
        assert!((0..4).all(|_| client.get("/").text() == "one"));
        sick.store(503, Ordering::SeqCst);
        assert_eq!(client.get("/").status, 503);
        assert_eq!(status(&mut client)["upstreams"][0]["repeats"], 0);
    }
);

drivers!(a_fallback_takes_the_place_of_what_cannot_be_had, |driver: DriverName| {
    let gone = nowhere();
    let (one, sick, _) = server("one");
    let fallback =
        "fallback = { status = 200, body = \"[]\", content_type = \"application/json\", on = [500] }";
    let route = |path: &str, to: SocketAddr| {
        format!("[[route]]\npath = \"{path}\"\nkind = \"proxy\"\nto = \"http://{to}\"\n{fallback}\n")
    };
    let from_file = format!(
        "[[route]]\npath = \"/file\"\nkind = \"proxy\"\nto = \"http://{gone}\"\n\
         fallback = {{ status = 200, file = \"empty.json\" }}\n"
    );
    let rules = format!("{}{}{from_file}", route("/gone", gone), route("/", one));
    let site = start(driver, &rules, |folder| write(folder, "empty.json", "{\"items\": []}"));
    let mut client = site.client();
    let reply = client.get("/file");
    assert_eq!(
        (reply.status, reply.text(), reply.header("Content-Type")),
        (200, "{\"items\": []}", Some("application/json"))
    );
    let reply = client.get("/gone");
    assert_eq!(
        (reply.status, reply.text(), reply.header("Content-Type")),
        (200, "[]", Some("application/json"))
    );
    assert_eq!(reply.header("Cache-Control"), Some("no-store"), "the trouble will be over");
    assert_eq!(client.get("/").text(), "one");
    sick.store(500, Ordering::SeqCst);
    assert_eq!((client.get("/").status, client.get("/").text()), (200, "[]"));
    sick.store(404, Ordering::SeqCst);
    assert_eq!(client.get("/").status, 404);
});

drivers!(a_fallback_with_a_status_of_an_error_page_is_what_is_answered, |driver: DriverName| {
    let gone = nowhere();
    let (one, sick, _) = server("one");
    let route = |path: &str, to: SocketAddr, more: &str| {
        format!("[[route]]\npath = \"{path}\"\nkind = \"proxy\"\nto = \"http://{to}\"\n{more}\n")
    };
    let rules = [
        "errors = { intercept = true, \"5xx\" = { body = \"the page\" } }\n".to_owned(),
        route("/gone", gone, "fallback = { body = \"instead\" }"),
        route("/sick", one, "fallback = { body = \"instead\", on = [500] }"),
        route("/", gone, ""),
    ];
    let site = start(driver, &rules.concat(), |_| {});
    let mut client = site.client();
    sick.store(500, Ordering::SeqCst);
    for (path, text) in [("/", "the page"), ("/gone", "instead"), ("/sick", "instead")] {
        let reply = client.get(path);
        // The server's own refusal is 502, the fallback 503.
        assert_eq!((reply.status, reply.text()), (if path == "/" { 502 } else { 503 }, text), "{path}");
    }
});

drivers!(the_status_of_servers_is_a_page_for_people_and_json_for_programs, |driver: DriverName| {
    let ((one, ..), (two, ..)) = (server("one"), server("two"));
    let servers = format!("\"http://{one}\", {{ to = \"http://{two}\", weight = 3 }}");
    let site = group(driver, &servers, "requests = 8\nbreaker = true");
    let mut client = site.client();
    client.get("/");
    let told = status(&mut client);
    let of_group = &told["upstreams"][0];
    assert_eq!((of_group["name"].as_str(), of_group["requests_most"].as_u64()), (Some("g"), Some(8)));
    let sent = |server: &serde_json::Value| server["requests"].as_u64().unwrap();
    assert_eq!(of_group["servers"].as_array().unwrap().iter().map(sent).sum::<u64>(), 1);
    let page = client.get("/status");
    assert_eq!(page.header("Content-Type"), Some("text/html; charset=utf-8"));
    for text in [&one.to_string(), "weight 3", "breaker closed", "0 of 8 requests", "class=\"state up\""] {
        assert!(page.text().contains(text), "{text}: {}", page.text());
    }
});

#[test]
fn guards_that_are_wrong_are_reported_with_what_was_expected() {
    for (text, expected) in [
        ("line = 3", "expected with `requests`"),
        ("breaker = 7", "breaker"),
        ("breaker = { open = \"5s\" }", "two times"),
        ("health = \"healthz\"", "a path"),
        ("health = { every = \"1ms\" }", "path"),
        ("retry = { times = 99 }", "times"),
        ("eject = { most = 2 }", "a share"),
    ] {
        let rules = format!(
            "[upstream.g]\nservers = [\"http://a\"]\n{text}\n[[route]]\npath = \"/\"\nkind = \"proxy\"\nto = \"upstream:g\"\n"
        );
        let why =
            ringroad_serve::Config::parse(&rules, std::path::Path::new("a.toml")).unwrap_err().to_string();
        assert!(why.contains(expected), "{text}: {why}");
    }
    let backups = "[upstream.g]\nservers = [{ to = \"http://a\", backup = true }]\n";
    let why = ringroad_serve::Config::parse(backups, std::path::Path::new("a.toml")).unwrap_err().to_string();
    assert!(why.contains("all of them are `backup`"), "{why}");
}

drivers!(
    a_repeat_that_would_come_after_the_deadline_is_none_and_what_is_there_is_told,
    |driver: DriverName| {
        let (address, count) = behind(|client| {
            while client.until(b"\r\n\r\n").is_some() {
                client.send("HTTP/1.1 503 S\r\nRetry-After: 100\r\nContent-Length: 4\r\n\r\nbusy");
            }
        });
        let rules = format!(
            r#"
        [upstream.g]
        servers = ["http://{address}"]
        retry = {{ times = 2, on = [503], backoff = "1ms..200s" }}

        [[route]]
        path = "/"
        kind = "proxy"
        to = "upstream:g"
        timeouts = {{ answer = "10s" }}
        "#
        );
        let site = start(driver, &rules, |_| {});
        let reply = site.client().get("/");
        assert_eq!((reply.status, reply.header("Retry-After"), reply.text()), (503, Some("100"), "busy"));
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }
);

drivers!(the_latency_of_a_server_is_that_of_its_answers_and_not_of_its_failures, |driver: DriverName| {
    let answers = Arc::new(AtomicUsize::new(0));
    let well = Arc::clone(&answers);
    let (address, _) = behind(move |client| {
        while client.until(b"\r\n\r\n").is_some() {
            if well.load(Ordering::SeqCst) == 0 {
                return;
            }
            client.send("HTTP/1.1 200 S\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let site = group(driver, &format!("\"http://{address}\""), "balance = \"time\"");
    let mut client = site.client();
    assert_eq!(client.get("/").status, 502);
    let server = |client: &mut Client| status(client)["upstreams"][0]["servers"][0].clone();
    let failed = server(&mut client);
    assert_eq!((&failed["requests"], &failed["latency_ms"]), (&1.into(), &serde_json::Value::Null));
    answers.store(1, Ordering::SeqCst);
    let begun = std::time::Instant::now();
    assert_eq!(client.get("/").status, 200);
    let took = begun.elapsed();
    let latency = server(&mut client)["latency_ms"].as_f64().unwrap();
    assert!(latency > 0.0 && latency <= took.as_secs_f64() * 1e3 + 0.01, "{latency} ms of {took:?}");
});

drivers!(
    a_server_that_gets_nothing_any_more_is_told_with_the_reason_and_so_is_its_return,
    |driver: DriverName| {
        let ((one, sick, _), (two, ..)) = (server("one"), server("two"));
        let (dead, _) = behind(|_| {});
        let checks =
            "health = { path = \"/healthz\", every = \"100ms\", timeout = \"100s\", rise = 1, fall = 1 }";
        let site = group(driver, &format!("\"http://{one}\", \"http://{two}\""), checks);
        sick.store(503, Ordering::SeqCst);
        assert_eq!(site.event().to_string(), format!("upstream g: {one} is down: status 503"));
        sick.store(200, Ordering::SeqCst);
        assert_eq!(site.event().to_string(), format!("upstream g: {one} is up: its checks are good again"));
        let eject = "balance = \"turns\"\neject = { after = 2, for = \"100s\" }";
        let site = group(driver, &format!("\"http://{dead}\", \"http://{two}\""), eject);
        let mut client = site.client();
        assert!((0..6).all(|_| client.get("/").text() == "two"));
        let told = site.event().to_string();
        assert!(told.starts_with(&format!("upstream g: {dead} is left out for 1")), "{told}");
        assert!(told.contains("failed, the last one: no answer: "), "{told}");
        assert!(site.events.try_recv().is_err(), "it is told once");
    }
);
