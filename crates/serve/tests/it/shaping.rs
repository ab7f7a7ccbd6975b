//! What routes do with traffic besides answering it: bandwidth, copies, shares of clients, deadlines that are
//! told, second servers.

use crate::ports::nowhere;
use crate::support::{Client, Site, behind, start, wait_until};
use ringroad_engine::DriverName;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A server that answers and keeps the heads of its requests.
fn listening() -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let heads = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&heads);
    let (address, _) = behind(move |client| {
        while let Some(head) = client.until(b"\r\n\r\n") {
            told.lock().unwrap().push(String::from_utf8_lossy(&head).to_lowercase());
            if !client.try_send(OK) {
                return;
            }
        }
    });
    (address, heads)
}

drivers!(an_answer_is_whole_and_not_sent_faster_than_its_bandwidth, |driver: DriverName| {
    let rules = r#"
        [[route]]
        path = "/answer/"
        kind = "static"
        root = "."
        bandwidth = "256K/s"

        [[route]]
        path = "/route/"
        kind = "static"
        root = "."
        bandwidth = { route = "256K/s", after = "1K" }
    "#;
    let content: Vec<u8> = (0..128 << 10).map(|at: u32| (at % 251) as u8).collect();
    let site = start(driver, rules, |folder| {
        crate::support::write(folder, "answer/file.bin", &content);
        crate::support::write(folder, "route/file.bin", &content);
        crate::support::write(folder, "file.bin", &content);
    });
    for path in ["/answer/", "/route/"] {
        let begun = Instant::now();
        let reply = site.client().get(&format!("{path}file.bin"));
        assert_eq!(reply.status, 200, "{}", reply.head);
        assert!(reply.body == content, "{path}");
        // A lower bound holds on a slow machine too.
        assert!(begun.elapsed() >= Duration::from_millis(400), "{path}: {:?}", begun.elapsed());
        assert_eq!(reply.header("Content-Length"), Some("131072"));
    }
});

drivers!(copies_of_requests_reach_the_other_server_and_its_answers_are_not_used, |driver: DriverName| {
    let (main, _) = listening();
    let (other, copies) = listening();
    let rules = format!(
        r#"
        [[route]]
        path = "/"
        kind = "proxy"
        to = "http://{main}"
        mirror = {{ to = "http://{other}", body = "1K" }}

        [[route]]
        path = "/metrics"
        kind = "metrics"
        "#
    );
    let site = start(driver, &rules, |_| {});
    let mut client = site.client();
    let forged = ("X-Forwarded-For", "10.6.6.6");
    assert_eq!(
        client.ask("GET", "/a?b=1", &[("X-Own", "yes"), forged, ("X-Real-IP", "10.6.6.6")]).status,
        200
    );
    let post = |client: &mut Client, length: usize| {
        let body = "x".repeat(length);
        client.send(format!("POST /post HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}"));
        assert_eq!(client.reply().status, 200);
    };
    post(&mut client, 100);
    wait_until("both copies are there", || copies.lock().unwrap().len() == 2);
    let seen = copies.lock().unwrap().clone();
    let get = seen.iter().find(|head| head.starts_with("get /a?b=1 ")).expect("the copy of the GET");
    assert!(get.contains("x-own: yes\r\n") && get.contains("x-mirrored: 1\r\n"), "{get}");
    assert!(get.contains("x-forwarded-host: example.org\r\n"), "{get}");
    assert!(get.contains("x-forwarded-for: 127.0.0.1\r\n") && !get.contains("10.6.6.6"), "{get}");
    let posted = seen.iter().find(|head| head.starts_with("post /post ")).expect("the copy of the POST");
    assert!(posted.contains("content-length: 100\r\n"), "{posted}");
    // A body that is too long has no copy, and is handed on all the same.
    post(&mut client, 2000);
    let metrics = client.get("/metrics");
    assert!(metrics.text().contains("result=\"left_out\"} 1\n"), "{}", metrics.text());
});

drivers!(copies_go_to_a_group_with_the_guards_of_the_group, |driver: DriverName| {
    let (main, _) = listening();
    let (other, copies) = listening();
    let gone = nowhere();
    let rules = format!(
        r#"
        [upstream.shadow]
        servers = ["http://{gone}", "http://{other}"]
        eject = {{ after = 1, for = "5m" }}

        [[route]]
        path = "/"
        kind = "proxy"
        to = "http://{main}"
        mirror = {{ to = "upstream:shadow", body = "1K", timeout = "200s" }}

        [[route]]
        path = "/own/"
        kind = "respond"
        body = "own"
        mirror = {{ to = "upstream:shadow", timeout = "200s" }}

        [[route]]
        path = "/metrics"
        kind = "metrics"

        [[route]]
        path = "/status"
        kind = "status"
        "#
    );
    let site = start(driver, &rules, |_| {});
    let mut client = site.client();
    let lines = [("X-Own", "yes"), ("X-Mirrored", "forged")];
    assert_eq!(client.ask("GET", "/a?b=1", &lines).status, 200);
    let body = "x".repeat(100);
    client.send(format!("POST /post HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{body}"));
    assert_eq!(client.reply().status, 200);
    assert_eq!(client.get("/own/page").text(), "own");
    wait_until("all copies were answered", || {
        let page = site.client().get("/metrics");
        let counts = page.text().lines().filter_map(|line| {
            let line = line.strip_prefix("ringroad_mirror_total")?;
            line.rsplit_once("result=\"sent\"} ")?.1.parse::<u32>().ok()
        });
        counts.sum::<u32>() == 3
    });
    // The server that is gone was tried at most until it was left out, and each copy reached the other one.
    let seen = copies.lock().unwrap().clone();
    assert_eq!(seen.len(), 3);
    let get = seen.iter().find(|head| head.starts_with("get /a?b=1 ")).expect("the copy of the GET");
    assert!(get.contains("x-own: yes\r\n") && get.contains("x-mirrored: 1\r\n"), "{get}");
    assert!(!get.contains("forged") && get.contains("host: example.org\r\n"), "{get}");
    let posted = seen.iter().find(|head| head.starts_with("post /post ")).expect("the copy of the POST");
    assert!(posted.contains("content-length: 100\r\n"), "{posted}");
    let status = site.client().ask("GET", "/status", &[("Accept", "application/json")]);
    let status: serde_json::Value = serde_json::from_slice(&status.body).unwrap();
    let group = status["upstreams"].as_array().unwrap().iter().find(|group| group["name"] == "shadow");
    assert_eq!(group.expect("the group")["servers"][1]["requests"], 3);
});

drivers!(a_server_for_copies_that_hangs_or_is_gone_holds_nothing_up, |driver: DriverName| {
    let (main, _) = listening();
    let (hanging, asked) = behind(|client| while client.until(b"\r\n\r\n").is_some() {});
    let gone = nowhere();
    for other in [hanging, gone] {
        let rules = format!(
            r#"
            [[route]]
            path = "/"
            kind = "proxy"
            to = "http://{main}"
            mirror = {{ to = "http://{other}", at_once = 2, timeout = "200s" }}
            "#
        );
        let site = start(driver, &rules, |_| {});
        let mut client = site.client();
        for _ in 0..10 {
            assert_eq!(client.get("/").status, 200);
        }
    }
    assert!(asked.load(Ordering::SeqCst) <= 2, "no more copies than at_once");
});

drivers!(clients_are_split_by_share_and_stay_where_they_are, |driver: DriverName| {
    let rules = r#"
        [[route]]
        path = "/"
        kind = "respond"
        body = "new"
        split = { share = "30%", by = "header.X-User" }

        [[route]]
        path = "/"
        kind = "respond"
        body = "old"

        [[route]]
        path = "/cookie"
        kind = "respond"
        body = "second"
        split = { share = "50%..100%", by = "cookie.sid" }

        [[route]]
        path = "/cookie"
        kind = "respond"
        body = "first"
        split = { share = "50%", by = "cookie.sid" }
    "#;
    let site = start(driver, rules, |_| {});
    let mut client = site.client();
    let mut of =
        |user: usize| client.ask("GET", "/", &[("X-User", &format!("user-{user}"))]).text().to_owned();
    let first: Vec<_> = (0..200).map(&mut of).collect();
    let second: Vec<_> = (0..200).map(&mut of).collect();
    assert_eq!(first, second);
    let new = first.iter().filter(|text| *text == "new").count();
    assert!((35..85).contains(&new), "{new} of 200");
    // Without the line and without the cookie the address counts: one route of the two, always the same.
    let both: Vec<_> = (0..3).map(|_| site.client().get("/cookie").text().to_owned()).collect();
    assert!(both.iter().all(|text| *text == both[0]) && ["first", "second"].contains(&both[0].as_str()));
});

drivers!(the_time_that_is_left_is_told_to_the_server_behind, |driver: DriverName| {
    let (main, heads) = listening();
    let rules = format!(
        r#"
        [[route]]
        path = "/"
        kind = "proxy"
        to = "http://{main}"
        timeouts = {{ answer = "90s", tell = "X-Timeout-Ms" }}
        "#
    );
    let site = start(driver, &rules, |_| {});
    let mut client = site.client();
    let mut head = |lines: &[(&str, &str)]| {
        assert_eq!(client.ask("GET", "/", lines).status, 200);
        heads.lock().unwrap().pop().unwrap()
    };
    let plain = head(&[("X-Timeout-Ms", "5")]);
    assert!(plain.contains("x-timeout-ms: 90000\r\n") && !plain.contains(": 5\r\n"), "{plain}");
    assert!(!plain.contains("grpc-timeout"), "{plain}");
    let call = ("Content-Type", "application/grpc");
    assert!(head(&[call]).contains("grpc-timeout: 90000m\r\n"));
    assert!(head(&[call, ("grpc-timeout", "2H")]).contains("grpc-timeout: 90000m\r\n"));
    assert!(head(&[call, ("grpc-timeout", "3S")]).contains("grpc-timeout: 3s\r\n"));
});

/// A group of two servers of which the first never answers: it hangs, or closes.
fn with_a_bad_one(driver: DriverName, closes: bool, settings: &str) -> (Site, Arc<AtomicUsize>) {
    let (bad, asked) = behind(move |client| {
        while client.until(b"\r\n\r\n").is_some() {
            if closes {
                return;
            }
        }
    });
    let (good, _) = behind(|client| {
        while client.until(b"\r\n\r\n").is_some() {
            client.send(OK);
        }
    });
    let rules = format!(
        r#"
        [upstream.g]
        servers = ["http://{bad}", "http://{good}"]
        balance = "turns"
        eject = {{ after = 1000 }}
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
    (start(driver, &rules, |_| {}), asked)
}

drivers!(a_post_is_sent_again_only_if_its_client_gives_it_a_key, |driver: DriverName| {
    let (site, asked) = with_a_bad_one(driver, true, "");
    let post = |key: &str| {
        let mut client = site.client();
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n{key}\r\n"));
        client.reply().status
    };
    let with: Vec<_> = (0..6).map(|_| post("Idempotency-Key: \"8e03978e\"\r\n")).collect();
    assert_eq!(with, [200; 6]);
    assert!(asked.load(Ordering::SeqCst) >= 1);
    let without: Vec<_> = (0..6).map(|_| post("")).collect();
    assert!(without.contains(&502) && without.contains(&200), "{without:?}");
});

drivers!(a_request_that_waits_is_sent_to_a_second_server_within_the_budget, |driver: DriverName| {
    let (site, _) = with_a_bad_one(driver, false, "hedge = { after = \"20ms\" }");
    let mut client = site.client();
    for _ in 0..10 {
        assert_eq!(client.get("/").status, 200);
    }
    let reply = client.ask("GET", "/status", &[("Accept", "application/json")]);
    let status: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
    let hedged = status["upstreams"][0]["hedged"].as_u64().unwrap();
    assert!((1..=10).contains(&hedged), "{hedged}");
    assert_eq!(status["upstreams"][0]["servers"][0]["in_flight"], 0, "the slow exchange is given up");
});

// Of two servers the first one that has the request holds its answer back until the client has that of the
// other one. Both exchanges began on kept connections.
drivers!(an_answer_that_a_hedged_request_gave_up_reaches_no_other_client, |driver: DriverName| {
    let (held, late) = (Arc::new((AtomicUsize::new(0), Mutex::new(()))), Arc::new(AtomicUsize::new(0)));
    let servers: Vec<_> = (0..2)
        .map(|_| {
            let (held, late) = (Arc::clone(&held), Arc::clone(&late));
            let (address, _) = behind(move |client| {
                while let Some(head) = client.until(b"\r\n\r\n") {
                    let head = String::from_utf8(head).unwrap();
                    let path = head.split(' ').nth(1).unwrap().to_owned();
                    let is_first = path == "/hedged" && held.0.fetch_add(1, Ordering::SeqCst) % 2 == 0;
                    let text = if is_first { "/late" } else { &*path };
                    if is_first {
                        drop(held.1.lock());
                    }
                    let length = text.len();
                    let goes_on =
                        client.try_send(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{text}"));
                    late.fetch_add(usize::from(is_first), Ordering::SeqCst);
                    if !goes_on {
                        return;
                    }
                }
            });
            address
        })
        .collect();
    let rules = format!(
        "[upstream.g]\nservers = [\"http://{}\", \"http://{}\"]\nbalance = \"turns\"\n\
         retry = {{ budget = \"100%\" }}\nhedge = {{ after = \"1ms\" }}\n\
         [[route]]\npath = \"/\"\nkind = \"proxy\"\nto = \"upstream:g\"\n",
        servers[0], servers[1]
    );
    let site = start(driver, &format!("workers = 1\n{rules}"), |_| {});
    let mut client = site.client();
    for round in 0..5 {
        for warm in ["/a", "/b"] {
            assert_eq!(client.get(warm).text(), warm);
        }
        let gate = held.1.lock().unwrap();
        assert_eq!(client.get("/hedged").text(), "/hedged", "the second answer counts");
        drop(gate);
        wait_until("the late answer was sent", || late.load(Ordering::SeqCst) == round + 1);
        for path in ["/c", "/d", "/e", "/f"] {
            assert_eq!(site.client().get(path).text(), path, "round {round}");
        }
    }
});

#[test]
fn shares_rates_and_times_that_are_none_are_mistakes() {
    let folder = tempfile::tempdir().unwrap();
    for (line, expected) in [
        ("split = \"0%\"", "expected a share"),
        ("split = \"30%..10%\"", "expected a share"),
        ("split = { share = \"10%\", by = \"moon\" }", "expected \"client\""),
        ("bandwidth = \"1M\"", "expected bytes a second"),
        ("bandwidth = {}", "expected `answer`, `route` or both"),
        ("mirror = { to = \"127.0.0.1:1\" }", "expected a server without a path"),
        ("mirror = { to = \"http://a/b\" }", "expected a server without a path"),
        ("mirror = { to = \"upstream:none\" }", "there is no [upstream.none] (there are: none)"),
        ("shed = \"soon\"", "shed"),
        ("timeouts = { body = \"1s\", tell = \"X-T\" }", "expected with `answer`"),
    ] {
        let text = format!("[[route]]\npath = \"/\"\nkind = \"respond\"\n{line}\n");
        let file = folder.path().join("ringroad.toml");
        let told = ringroad_serve::config::Config::parse(&text, &file).expect_err(line).to_string();
        assert!(told.contains(expected), "{line}: {told}");
    }
}
