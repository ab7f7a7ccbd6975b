//! Limits that several servers count together in Redis, and what happens without it.

use crate::redis::{Server, fake, with_program};
use crate::support::{Site, configure, start, wait_until};
use ringroad_engine::DriverName;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A site with a limit of 2 an hour in a store that is reached by `to`; `more` are further keys of it.
fn site(driver: DriverName, to: &str, limit: &str, store: &str) -> Site {
    start(driver, &rules(to, limit, store), |_| {})
}

fn rules(to: &str, limit: &str, store: &str) -> String {
    format!(
        r#"@
        listen = "127.0.0.1:0"
        workers = 2

        [redis.main]
        to = "{to}"
        {store}

        [limit.quota]
        key = "header.X-Key"
        store = "redis.main"
        {limit}

        [[route]]
        path = "/"
        kind = "respond"
        body = "ok"
        limit = "quota"

        [[route]]
        path = "/metrics"
        kind = "metrics"

        [[route]]
        path = "/status"
        kind = "status"
        "#
    )
}

/// What the status says of the store.
fn status(site: &Site) -> serde_json::Value {
    let reply = site.client().ask("GET", "/status", &[("Accept", "application/json")]);
    let mut status: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
    status["stores"][0].take()
}

/// So much time that only a store that is gone is too late.
const PATIENT: &str = "timeout = \"120s\"\nconnect_timeout = \"120s\"";

fn to(server: &Server) -> String {
    format!("unix:{}", server.socket().display())
}

fn statuses(site: &Site, key: &str, count: usize) -> Vec<u16> {
    (0..count).map(|_| site.client().ask("GET", "/", &[("X-Key", key)]).status).collect()
}

fn metric(site: &Site, line: &str) -> u64 {
    let page = site.client().get("/metrics");
    let found = page.text().lines().find_map(|text| text.strip_prefix(line).map(str::to_owned));
    found.unwrap_or_else(|| panic!("{line} in {}", page.text())).trim().parse().unwrap()
}

drivers!(a_limit_in_a_store_is_exact_over_workers_and_over_servers, |driver: DriverName| {
    with_program(&[], |server| {
        let sites: Vec<_> = (0..2).map(|_| site(driver, &to(server), "rate = \"40/h\"", PATIENT)).collect();
        let addresses: Vec<SocketAddr> = sites.iter().map(Site::address).collect();
        let allowed = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for at in 0..8 {
                let (address, allowed) = (addresses[at % 2], &allowed);
                scope.spawn(move || {
                    for _ in 0..15 {
                        let reply = crate::support::Client::new(address).ask("GET", "/", &[("X-Key", "a")]);
                        match reply.status {
                            200 => drop(allowed.fetch_add(1, Ordering::SeqCst)),
                            429 => assert!(reply.header("Retry-After").is_some()),
                            other => panic!("{other}"),
                        }
                    }
                });
            }
        });
        assert_eq!(allowed.load(Ordering::SeqCst), 40);
        // Another key has its own burst, and answers tell what is left.
        let other = sites[1].client().ask("GET", "/", &[("X-Key", "b")]);
        assert_eq!(other.header("RateLimit"), Some("\"quota\";r=39;t=90"));
    });
});

drivers!(the_status_shows_how_a_store_is_reached_and_how_fast_it_answers, |driver: DriverName| {
    with_program(&[], |server| {
        let site = site(driver, &to(server), "rate = \"2/h\"", PATIENT);
        let unused = status(&site);
        assert_eq!((&unused["state"], &unused["latency_ms"]), (&"idle".into(), &serde_json::Value::Null));
        assert_eq!(statuses(&site, "a", 3), [200, 200, 429]);
        let used = status(&site);
        assert_eq!(
            (&used["name"], &used["state"], &used["breaker"]),
            (&"main".into(), &"up".into(), &"closed".into())
        );
        assert!(used["latency_ms"].as_f64().is_some_and(|took| took > 0.0), "{used}");
        assert!(used["connections"].as_u64().is_some_and(|count| (1..=2).contains(&count)), "{used}");
        assert_eq!(
            (&used["waiting"], &used["timed_out"], &used["refused"]),
            (&0.into(), &0.into(), &0.into())
        );
        let page = site.client().ask("GET", "/status", &[("Accept", "text/html")]);
        let address = used["address"].as_str().unwrap();
        assert!(page.text().contains("<h2>Stores</h2>") && page.text().contains(address), "{}", page.text());
    });
});

drivers!(the_status_shows_a_store_that_is_gone_or_silent, |driver: DriverName| {
    let gone = site(driver, "unix:/nonexistent/socket", "rate = \"2/h\"", PATIENT);
    statuses(&gone, "a", 1);
    let seen = status(&gone);
    assert_eq!(seen["state"], "unreachable", "{seen}");
    assert!(seen["last_failure"].as_str().is_some_and(|why| why.contains("/nonexistent/socket")), "{seen}");
    assert!(seen["next_attempt_s"].is_number(), "{seen}");
    let (address, _) = fake(|mut peer| {
        peer.greet();
        std::thread::spawn(move || while peer.command().is_some() {});
    });
    let silent = site(driver, &address.to_string(), "rate = \"2/h\"", "timeout = \"20ms\"");
    wait_until("a breaker has opened", || {
        statuses(&silent, "a", 1);
        status(&silent)["breaker"] != "closed"
    });
    let seen = status(&silent);
    assert!(seen["timed_out"].as_u64().is_some_and(|count| count > 0), "{seen}");
    assert!(seen["state"] == "failing" || seen["state"] == "unreachable", "{seen}");
});

drivers!(the_status_shows_a_store_that_answers_with_errors_only, |driver: DriverName| {
    let is_full = Arc::new(AtomicBool::new(true));
    let full = Arc::clone(&is_full);
    let (address, _) = fake(move |mut peer| {
        let full = Arc::clone(&full);
        peer.greet();
        std::thread::spawn(move || {
            while peer.command().is_some() {
                let allowed = "*4\r\n:1\r\n:1\r\n:0\r\n:0\r\n";
                peer.answer(if full.load(Ordering::SeqCst) { "-OOM no memory\r\n" } else { allowed });
            }
        });
    });
    let site = site(driver, &address.to_string(), "rate = \"2/h\"", PATIENT);
    assert_eq!(statuses(&site, "a", 1), [200]);
    let seen = status(&site);
    assert_eq!(
        (&seen["state"], &seen["answered"], &seen["errors"]),
        (&"failing".into(), &0.into(), &1.into())
    );
    assert_eq!(seen["last_failure"], "OOM no memory");
    assert_eq!(metric(&site, "ringroad_store_commands_total{redis=\"main\",result=\"error\"}"), 1);
    let page = site.client().ask("GET", "/status", &[("Accept", "text/html")]);
    assert!(
        page.text().contains("class=\"state failing\"") && page.text().contains("OOM"),
        "{}",
        page.text()
    );
    is_full.store(false, Ordering::SeqCst);
    assert_eq!(statuses(&site, "b", 1), [200]);
    assert_eq!(status(&site)["state"], "up");
});

drivers!(after_a_reload_a_limit_counts_in_the_store_that_is_named_then, |driver: DriverName| {
    let server = || {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let (address, _) = fake(move |mut peer| {
            let counted = Arc::clone(&counted);
            peer.greet();
            std::thread::spawn(move || {
                while peer.command().is_some() {
                    counted.fetch_add(1, Ordering::SeqCst);
                    peer.answer("*4\r\n:1\r\n:1\r\n:0\r\n:0\r\n");
                }
            });
        });
        (address.to_string(), asked)
    };
    let ((old, of_old), (new, of_new)) = (server(), server());
    let mut site = site(driver, &old, "rate = \"2/h\"", PATIENT);
    statuses(&site, "a", 3);
    assert_eq!((of_old.load(Ordering::SeqCst), of_new.load(Ordering::SeqCst)), (3, 0));
    configure(site.folder.path(), &rules(&new, "rate = \"2/h\"", PATIENT));
    site.service.reload();
    statuses(&site, "a", 3);
    assert_eq!((of_old.load(Ordering::SeqCst), of_new.load(Ordering::SeqCst)), (3, 3));
    assert_eq!(status(&site)["answered"], 3);
});

drivers!(a_refusal_is_remembered_and_costs_the_store_nothing_more, |driver: DriverName| {
    with_program(&[], |server| {
        let site = site(driver, &to(server), "rate = \"2/h\"", PATIENT);
        assert_eq!(statuses(&site, "a", 5), [200, 200, 429, 429, 429]);
        assert_eq!(metric(&site, "ringroad_limit_store_total{limit=\"quota\",result=\"asked\"}"), 3);
        assert_eq!(metric(&site, "ringroad_limit_store_total{limit=\"quota\",result=\"remembered\"}"), 2);
        assert_eq!(metric(&site, "ringroad_limit_decisions_total{limit=\"quota\",decision=\"refused\"}"), 3);
    });
});

drivers!(what_another_limit_refuses_is_given_back_to_the_store, |driver: DriverName| {
    with_program(&[], |server| {
        let rules = format!(
            r#"
            [redis.main]
            to = "{}"
            {PATIENT}

            [limit.wide]
            key = "route"
            store = "redis.main"
            rate = "5/h"

            [limit.each]
            key = "header.X-Key"
            store = "redis.main"
            rate = "1/h"

            [[route]]
            path = "/"
            kind = "respond"
            limit = ["wide", "each"]
            "#,
            to(server)
        );
        let site = start(driver, &rules, |_| {});
        let keys = ["a", "a", "b", "b", "c"];
        let all: Vec<_> = keys.iter().map(|key| statuses(&site, key, 1)[0]).collect();
        assert_eq!(all, [200, 429, 200, 429, 200]);
        let last = site.client().ask("GET", "/", &[("X-Key", "d")]);
        // Four of five are counted: the refused ones are not.
        assert_eq!(last.status, 200);
        assert_eq!(statuses(&site, "e", 2), [200, 429]);
    });
});

/// Statuses of four requests of a new key without an answer of the store, by `when_store_fails`.
const WITHOUT: [(&str, [u16; 4]); 3] =
    [("local", [200, 200, 429, 429]), ("open", [200; 4]), ("closed", [503; 4])];

drivers!(a_store_that_is_killed_is_not_waited_for_and_counts_again_when_it_is_back, |driver: DriverName| {
    for (word, expected) in WITHOUT {
        with_program(&[], |server| {
            let limit = format!("rate = \"2/h\"\nwhen_store_fails = \"{word}\"");
            let site = site(driver, &to(server), &limit, PATIENT);
            assert_eq!(statuses(&site, "before", 3), [200, 200, 429]);
            server.kill();
            assert_eq!(statuses(&site, "away", 4), expected, "{word}");
            server.start_again();
            // It is asked again after a while, and has forgotten all keys.
            let asked = "ringroad_store_connections_total{redis=\"main\",result=\"connected\"}";
            let before = metric(&site, asked);
            let mut round = 0;
            wait_until("the store is asked again", || {
                round += 1;
                statuses(&site, &format!("round {round}"), 1);
                metric(&site, asked) > before
            });
        });
    }
});

drivers!(the_operator_is_told_when_a_store_begins_to_fail_and_when_it_counts_again, |driver: DriverName| {
    with_program(&[], |server| {
        let site = site(driver, &to(server), "rate = \"2/h\"\nwhen_store_fails = \"open\"", PATIENT);
        assert_eq!(statuses(&site, "before", 3), [200, 200, 429]);
        assert!(site.events.try_recv().is_err());
        server.kill();
        assert_eq!(statuses(&site, "away", 4), [200; 4]);
        let told = site.event().to_string();
        assert!(told.starts_with("limit quota: the store redis.main fails: "), "{told}");
        assert!(told.ends_with("until it answers all requests pass (when_store_fails)"), "{told}");
        assert!(site.events.try_recv().is_err(), "it is told once");
        server.start_again();
        let mut round = 0;
        let mut told = String::new();
        wait_until("the store counts again", || {
            round += 1;
            statuses(&site, &format!("round {round}"), 1);
            site.events.try_recv().map(|event| told = event.to_string()).is_ok()
        });
        assert_eq!(told, "limit quota: the store redis.main answers and counts again");
    });
});

drivers!(a_store_that_does_not_answer_costs_a_few_time_outs_and_then_nothing, |driver: DriverName| {
    for (word, expected) in WITHOUT {
        let (address, _) = fake(|mut peer| {
            peer.greet();
            std::thread::spawn(move || while peer.command().is_some() {});
        });
        let limit = format!("rate = \"2/h\"\nwhen_store_fails = \"{word}\"");
        let site = site(driver, &address.to_string(), &limit, "timeout = \"20ms\"");
        assert_eq!(statuses(&site, "a", 4), expected, "{word}");
        let refused = "ringroad_store_commands_total{redis=\"main\",result=\"refused\"}";
        wait_until("no command is sent any more", || {
            statuses(&site, "b", 1);
            metric(&site, refused) > 0
        });
    }
});

drivers!(a_store_that_is_full_is_one_that_fails, |driver: DriverName| {
    for (word, expected) in WITHOUT {
        with_program(&["--maxmemory", "1", "--maxmemory-policy", "noeviction"], |server| {
            let limit = format!("rate = \"2/h\"\nwhen_store_fails = \"{word}\"");
            let site = site(driver, &to(server), &limit, PATIENT);
            assert_eq!(statuses(&site, "a", 4), expected, "{word}");
        });
    }
});

drivers!(while_the_store_fails_each_of_several_servers_allows_its_share, |driver: DriverName| {
    let site = site(driver, "unix:/nonexistent/socket", "rate = \"6/h\"\nnodes = 3", PATIENT);
    assert_eq!(statuses(&site, "a", 4), [200, 200, 429, 429]);
});

#[test]
fn a_store_that_is_not_there_or_not_needed_is_a_mistake() {
    let folder = tempfile::tempdir().unwrap();
    let mistakes = |text: &str| {
        let file = folder.path().join("ringroad.toml");
        let text = format!("{text}\n[[route]]\npath = \"/\"\nkind = \"respond\"\nlimit = \"a\"\n");
        ringroad_serve::config::Config::parse(&text, &file).unwrap_err().to_string()
    };
    for (text, expected) in [
        ("[limit.a]\nrate = \"1/s\"\nstore = \"redis.main\"", "there is no [redis.main]"),
        ("[limit.a]\nrate = \"1/s\"\nstore = \"main\"", "expected a [redis.NAME]"),
        // Also of a limit that no route names.
        (
            "[limit.a]\nrate = \"1/s\"\n[limit.b]\nrate = \"1/s\"\nstore = \"redis.main\"",
            "limit.b.store: there is no [redis.main]",
        ),
        ("[redis.m]\nto = \"h\"\n[limit.a]\nat_once = 3\nstore = \"redis.m\"", "expected with `rate`"),
        ("[limit.a]\nrate = \"1/s\"\nnodes = 3", "expected with `store`"),
        ("[redis.m]\nto = \"http://h\"\n[limit.a]\nrate = \"1/s\"", "an unknown scheme"),
        ("[redis.m]\nto = \"h\"\nuser = \"u\"\n[limit.a]\nrate = \"1/s\"", "expected with `password`"),
    ] {
        let told = mistakes(text);
        assert!(told.contains(expected), "{text}: {told}");
    }
}
