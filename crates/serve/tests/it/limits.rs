//! Limits of requests and of connections, as clients meet them.

use crate::support::{Client, Reply, behind, start, wait_until};
use ringroad_engine::DriverName;
use ringroad_serve::{Event, config};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

fn told(reply: &Reply) -> (u16, Option<&str>, Option<&str>) {
    (reply.status, reply.header("RateLimit-Policy"), reply.header("RateLimit"))
}

drivers!(a_client_gets_its_burst_and_then_429_with_the_time_to_wait, |driver: DriverName| {
    let rules = r#"
        [limit.few]
        rate = "2/h"

        [[route]]
        path = "/"
        kind = "respond"
        body = "ok"
        limit = "few"
    "#;
    let site = start(driver, rules, |_| {});
    let mut client = site.client();
    let policy = Some("\"few\";q=2;w=3600");
    assert_eq!(told(&client.get("/")), (200, policy, Some("\"few\";r=1;t=1800")));
    let second = client.get("/");
    let (status, told_policy, left) = told(&second);
    assert_eq!((status, told_policy), (200, policy));
    // An hour, without the time since the first one.
    let whole = left.and_then(|left| left.strip_prefix("\"few\";r=0;t=")).map(str::parse::<u64>);
    assert!(matches!(whole, Some(Ok(3000..=3600))), "{}", second.head);
    let refused = client.get("/");
    assert_eq!((refused.status, refused.header("RateLimit-Policy")), (429, policy));
    let after: u64 = refused.header("Retry-After").unwrap().parse().unwrap();
    assert!((1..=1800).contains(&after), "{after}");
    assert!(refused.text().contains(&format!("Try again in {after} seconds.")), "{}", refused.text());
    assert_eq!(site.client().get("/").status, 429, "another connection is the same client");
});

drivers!(
    of_several_limits_the_tightest_is_told_and_a_refusal_gives_back_what_others_counted,
    |driver: DriverName| {
        let rules = r#"
        [limit.wide]
        rate = "5/h"

        [limit.each]
        key = ["route", "header.X-Key"]
        rate = "1/h"

        [[route]]
        path = "/"
        kind = "respond"
        limit = ["wide", "each"]

        [[route]]
        path = "/wide"
        kind = "respond"
        limit = "wide"
    "#;
        let site = start(driver, rules, |_| {});
        let mut client = site.client();
        assert_eq!(
            client.ask("GET", "/", &[("X-Key", "a")]).header("RateLimit"),
            Some("\"each\";r=0;t=3600")
        );
        for _ in 0..10 {
            assert_eq!(client.ask("GET", "/", &[("X-Key", "a")]).status, 429);
        }
        assert_eq!(
            client.ask("GET", "/", &[("X-Key", "b")]).status,
            200,
            "each value has a count of its own"
        );
        // Refused requests have not used up the wider limit.
        let statuses: Vec<_> = (0..4).map(|_| client.get("/wide").status).collect();
        assert_eq!(statuses, [200, 200, 200, 429]);
    }
);

drivers!(a_limit_is_exact_over_workers_and_a_reload_keeps_its_counts, |driver: DriverName| {
    let rules = |more: &str| {
        format!(
            r#"
            workers = 2

            [limit.few]
            rate = "20/h"

            [[route]]
            path = "/"
            kind = "respond"
            limit = "few"
            {more}
            "#
        )
    };
    let mut site = start(driver, &rules(""), |_| {});
    let address = site.address();
    let ask = move || {
        let clients: Vec<_> = (0..4)
            .map(|_| {
                std::thread::spawn(move || {
                    (0..10).filter(|_| Client::new(address).get("/").status == 200).count()
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().unwrap()).sum::<usize>()
    };
    assert_eq!(ask(), 20);
    crate::support::configure(site.folder.path(), &rules("body = \"new\""));
    site.service.reload();
    assert_eq!(ask(), 0);
});

drivers!(requests_in_progress_are_counted_until_their_answers_end, |driver: DriverName| {
    let (release, released) = channel::<()>();
    let released = Arc::new(Mutex::new(released));
    let (address, count) = behind(move |client| {
        while client.until(b"\r\n\r\n").is_some() {
            released.lock().unwrap().recv().unwrap();
            client.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    let rules = format!(
        r#"
        [limit.one]
        at_once = 1

        [[route]]
        path = "/"
        kind = "proxy"
        to = "http://{address}"
        limit = "one"
        "#
    );
    let site = start(driver, &rules, |_| {});
    let mut first = site.client();
    first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("the first request is behind", || count.load(std::sync::atomic::Ordering::SeqCst) == 1);
    let refused = site.client().get("/");
    assert_eq!((refused.status, refused.header("Retry-After")), (429, Some("1")));
    release.send(()).unwrap();
    assert_eq!(first.reply().status, 200);
    release.send(()).unwrap();
    wait_until("the first one's place is free", || {
        site.client().get("/").status == 200 || {
            release.send(()).unwrap();
            false
        }
    });
});

drivers!(an_address_has_as_many_connections_as_it_may_and_the_log_says_so, |driver: DriverName| {
    let rules = r#"
        max_connections_per_client = 2
        log = { file = "access.log", format = "json" }

        [[route]]
        path = "/"
        kind = "respond"
        body = "ok"

        [[route]]
        path = "/metrics"
        kind = "metrics"
    "#;
    let mut site = start(driver, rules, |_| {});
    let (mut one, mut two) = (site.client(), site.client());
    assert_eq!((one.get("/").status, two.get("/").status), (200, 200));
    let mut three = site.client();
    three.try_send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(three.rest().is_empty(), "it is closed without an answer");
    let metrics = one.get("/metrics");
    assert!(metrics.text().contains("\nringroad_http_connections_per_client_refused_total 1\n"));
    wait_until("the log has a line", || {
        let log = std::fs::read_to_string(site.path("access.log")).unwrap_or_default();
        log.contains("its address has as many connections as it may")
    });
    drop(two);
    wait_until("a closed connection makes room", || {
        let mut client = site.client();
        client.try_send("GET / HTTP/1.1\r\nHost: a\r\n\r\n") && client.try_reply(false).is_some()
    });
    crate::support::configure(site.folder.path(), &rules.replace("max_connections_per_client = 2", ""));
    site.service.reload();
    let more: Vec<_> = (0..5).map(|_| site.client().get("/").status).collect();
    assert_eq!(more, [200; 5]);
    let _ = site.events.try_iter().collect::<Vec<Event>>();
});

#[test]
fn a_limit_that_is_wrong_is_reported_with_what_was_expected() {
    for (text, expected) in [
        ("[limit.a]\n", "expected `rate`"),
        ("[limit.a]\nrate = \"1/s\"\nkey = \"adress\"\n", "\"header.NAME\""),
        ("[limit.a]\nat_once = 1\nburst = 2\n", "expected with `rate`"),
        ("[limit.a]\nrate = \"1/s\"\n[limit.\"b\\\"\"]\nrate = \"1/s\"\n", "header lines"),
        ("[limit.a]\nrate = \"1/s\"\n", "there is no [limit.b] (there are: a)"),
    ] {
        let route = "[[route]]\npath = \"/\"\nkind = \"health\"\nlimit = \"b\"\n";
        let why =
            config::Config::parse(&format!("{text}{route}"), std::path::Path::new("a.toml")).unwrap_err();
        assert!(why.to_string().contains(expected), "{text}: {why}");
    }
}
