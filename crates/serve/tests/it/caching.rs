//! Kept answers, with an origin that counts its requests: what it is asked, and what clients get.

use crate::apps::python;
use crate::support::{Client, Site, behind, configure, start, wait_until, write};
use ringroad_engine::DriverName;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

/// A server that answers each request with what `answer` makes of its head and its number, from 1.
fn origin(answer: impl Fn(&str, usize) -> String + Send + Sync + 'static) -> (SocketAddr, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let (address, _) = behind(move |client| {
        while let Some(head) = client.until(b"\r\n\r\n") {
            let number = counted.fetch_add(1, Ordering::SeqCst) + 1;
            let text = answer(&String::from_utf8_lossy(&head), number);
            if text.is_empty() || !client.try_send(text) {
                return;
            }
        }
    });
    (address, asked)
}

fn ok(lines: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{lines}Content-Length: {}\r\n\r\n{body}", body.len())
}

/// A route at `/` with these settings in its `cache`.
fn rules(to: SocketAddr, cache: &str, more: &str) -> String {
    format!(
        "workers = 2\n[store.pages]\nmemory = \"16M\"\nobject = \"64K\"\n\
         [auth.k]\nkind = \"key\"\nkeys = [\"secret\"]\n\
         [[route]]\npath = \"/\"\nkind = \"proxy\"\nto = \"http://{to}\"\ncache = {{ store = \"pages\"{cache} }}\n{more}\n\
         [[route]]\npath = \"/metrics\"\nkind = \"metrics\"\n"
    )
}

fn site(driver: DriverName, to: SocketAddr, cache: &str, more: &str) -> Site {
    start(driver, &rules(to, cache, more), |_| {})
}

/// A counter of the store.
fn counted(site: &Site, name: &str) -> u64 {
    let text = site.client().get("/metrics").text().to_owned();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name} in {text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

fn requests(site: &Site, status: &str) -> u64 {
    counted(site, &format!("ringroad_cache_requests_total{{store=\"pages\",status=\"{status}\"}}"))
}

fn asked(count: &AtomicUsize) -> usize {
    count.load(Ordering::SeqCst)
}

drivers!(answers_of_two_hosts_behind_one_trusted_proxy_are_kept_apart, |driver: DriverName| {
    let (to, _) = origin(|head, _| {
        let host = head.lines().find_map(|line| line.strip_prefix("X-Forwarded-Host: "));
        ok("Cache-Control: max-age=100\r\n", host.unwrap_or_default())
    });
    let rules = rules(to, "", "");
    let site = start(driver, &format!("client_ip = {{ proxies = [\"127.0.0.1\"] }}\n{rules}"), |_| {});
    let mut client = site.client();
    for (told, host) in [
        ("a.example", "a.example"),
        ("b.example", "b.example"),
        ("a.example", "a.example"),
        // A proxy adds the host behind what its client has sent: that is not what the page is kept by.
        ("b.example, a.example", "a.example"),
        ("a.example, c.example", "c.example"),
        ("elsewhere, c.example", "c.example"),
        // What is no host is told to no server behind.
        ("a.example/b", "example.org"),
    ] {
        assert_eq!(client.ask("GET", "/page", &[("X-Forwarded-Host", told)]).text(), host, "{told}");
    }
    assert_eq!(requests(&site, "hit"), 3);
});

drivers!(a_route_that_believes_every_peer_keeps_answers_by_what_is_told, |driver: DriverName| {
    let (to, _) = origin(|head, _| {
        let line =
            |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().to_owned();
        let told = line("X-Forwarded-Proto: ") + "://" + &line("X-Forwarded-Host: ");
        ok("Cache-Control: max-age=100\r\n", &told)
    });
    let site = site(driver, to, "", "trust_forwarded = true");
    let mut client = site.client();
    for (proto, host) in
        [("http", "a.example"), ("https", "a.example"), ("https", "b.example"), ("http", "a.example")]
    {
        let lines = [("X-Forwarded-Host", host), ("X-Forwarded-Proto", proto)];
        assert_eq!(client.ask("GET", "/page", &lines).text(), format!("{proto}://{host}"));
    }
    assert_eq!(requests(&site, "hit"), 1);
});

drivers!(answers_that_depend_on_a_cookie_or_a_line_are_kept_by_all_of_its_values, |driver: DriverName| {
    let (to, count) = origin(|_, number| ok("Cache-Control: max-age=100\r\n", &number.to_string()));
    let site = site(driver, to, ", by = [\"cookie.sid\", \"header.X-Tenant\"]", "");
    let mut client = site.client();
    let mut ask = |lines: &[u8]| {
        client.send([&b"GET /page HTTP/1.1\r\nHost: a\r\n"[..], lines, b"\r\n"].concat());
        client.reply().text().to_owned()
    };
    let all: [&[u8]; 9] = [
        b"",
        b"Cookie: sid=a\r\n",
        // In a line that is not UTF-8, and with a value that is not.
        b"Cookie: sid=b; x=\xe9\r\n",
        b"Cookie: sid=\xe9\r\n",
        // An application may go by the last one.
        b"Cookie: sid=a\r\nCookie: sid=b\r\n",
        b"Cookie: sid=a; sid=c\r\n",
        b"Cookie: sid=\r\n",
        b"X-Tenant: a\r\n",
        b"X-Tenant: a\r\nX-Tenant: b\r\n",
    ];
    let first: Vec<_> = all.iter().map(|lines| ask(lines)).collect();
    assert_eq!(asked(&count), all.len(), "each is another answer");
    let again: Vec<_> = all.iter().map(|lines| ask(lines)).collect();
    assert_eq!((first, asked(&count)), (again, all.len()));
});

drivers!(names_of_the_query_that_count_do_so_in_all_their_spellings, |driver: DriverName| {
    let (to, count) = origin(|_, number| ok("Cache-Control: max-age=100\r\n", &number.to_string()));
    let site = site(driver, to, ", query = [\"page\"]", "");
    let mut client = site.client();
    let plain = client.get("/list").text().to_owned();
    assert_eq!(client.get("/list?utm=1&pages=2&%70ages=3").text(), plain, "others do not count");
    for (before, query) in
        ["page=2", "%70age=2", "p%61ge=2", "page[]=2", "page%5Bx%5D=2", "utm=1;page=2", "page"]
            .iter()
            .enumerate()
    {
        assert_ne!(client.get(&format!("/list?{query}")).text(), plain, "{query}");
        assert_eq!(asked(&count), before + 2, "{query}");
    }
    assert_eq!(client.get("/list").text(), plain);
});

drivers!(
    the_cookie_that_names_a_server_is_for_its_client_alone_and_the_answer_is_kept,
    |driver: DriverName| {
        let (to, count) = origin(|_, _| ok("Cache-Control: max-age=100\r\n", "page"));
        let rules = format!(
            "workers = 1\n[store.pages]\n[upstream.shop]\nservers = [\"http://{to}\"]\nbalance = \"sticky\"\n\
         [[route]]\npath = \"/\"\nkind = \"proxy\"\nto = \"upstream:shop\"\ncache = \"pages\"\n"
        );
        let site = start(driver, &rules, |_| {});
        let first = site.client().get("/");
        assert!(first.header("Set-Cookie").is_some(), "{}", first.head);
        let second = site.client().get("/");
        assert_eq!((second.text(), second.header("Set-Cookie"), asked(&count)), ("page", None, 1));
    }
);

drivers!(a_kept_answer_serves_get_head_conditions_and_ranges, |driver: DriverName| {
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    let (to, count) = origin(move |_, number| {
        let lines =
            format!("Cache-Control: max-age=2000000000\r\nETag: \"v{number}\"\r\nDate: {date}\r\nX-A: b\r\n");
        ok(&lines, "0123456789")
    });
    let site = site(driver, to, "", "");
    let mut client = site.client();
    let first = client.get("/a?q=1");
    assert_eq!(
        (first.status, first.text(), first.header("Cache-Status")),
        (200, "0123456789", Some("ringroad; fwd=uri-miss; stored"))
    );
    let hit = site.client().get("/a?q=1");
    assert_eq!((hit.status, hit.text(), hit.header("X-A")), (200, "0123456789", Some("b")));
    assert!(hit.header("Cache-Status").unwrap().starts_with("ringroad; hit; ttl="), "{}", hit.head);
    assert!(
        hit.header("Age").unwrap().parse::<u64>().unwrap() > 900_000_000,
        "the age counts from the origin's date"
    );
    assert_eq!(hit.headers("Date").collect::<Vec<_>>(), [date]);
    let head = client.ask("HEAD", "/a?q=1", &[]);
    assert_eq!((head.status, head.header("Content-Length"), head.body.len()), (200, Some("10"), 0));
    let same = client.ask("GET", "/a?q=1", &[("If-None-Match", "W/\"v1\"")]);
    assert_eq!((same.status, same.header("ETag"), same.header("Content-Type")), (304, Some("\"v1\""), None));
    let part = client.ask("GET", "/a?q=1", &[("Range", "bytes=2-4")]);
    assert_eq!((part.status, part.text(), part.header("Content-Range")), (206, "234", Some("bytes 2-4/10")));
    let other = client.ask("GET", "/a?q=1", &[("Range", "bytes=2-4"), ("If-Range", "\"v0\"")]);
    assert_eq!((other.status, other.text()), (200, "0123456789"));
    let beyond = client.ask("GET", "/a?q=1", &[("Range", "bytes=10-")]);
    assert_eq!((beyond.status, beyond.header("Content-Range")), (416, Some("bytes */10")));
    assert_eq!(asked(&count), 1);
    assert_eq!(client.get("/a?q=2").header("ETag"), Some("\"v2\""), "another query is another answer");
    let nothing = client.ask("GET", "/other", &[("Cache-Control", "only-if-cached")]);
    assert_eq!((nothing.status, asked(&count)), (504, 2));
    assert_eq!((requests(&site, "hit"), counted(&site, "ringroad_cache_entries")), (6, 2));
});

drivers!(an_answer_that_may_not_be_kept_is_asked_for_each_time, |driver: DriverName| {
    let (to, count) = origin(|head, number| {
        let lines = match head.split(' ').nth(1).unwrap() {
            "/none" => "ETag: \"a\"\r\n",
            "/private" => "Cache-Control: private, max-age=600\r\n",
            "/cookie" => "Cache-Control: max-age=600\r\nSet-Cookie: a=b\r\n",
            "/long" => "Cache-Control: max-age=600\r\n",
            _ => "Cache-Control: max-age=600\r\nVary: *\r\n",
        };
        ok(lines, &if head.contains("/long") { "x".repeat(70_000) } else { number.to_string() })
    });
    let site = site(driver, to, "", "");
    let mut client = site.client();
    for (path, detail) in [
        ("/none", "no-lifetime"),
        ("/private", "private"),
        ("/cookie", "set-cookie"),
        ("/long", "too-long"),
        ("/star", "vary-all"),
    ] {
        let before = asked(&count);
        let first = client.get(path);
        assert_eq!(
            first.header("Cache-Status"),
            Some(&*format!("ringroad; fwd=uri-miss; detail={detail}")),
            "{path}"
        );
        let second = client.get(path);
        assert_eq!(
            second.header("Cache-Status"),
            Some(&*format!("ringroad; fwd=bypass; detail={detail}")),
            "{path}"
        );
        assert_eq!((second.status, asked(&count)), (200, before + 2), "{path}");
    }
});

drivers!(an_answer_about_its_connection_is_passed_on_each_time_with_its_line, |driver: DriverName| {
    let (to, count) = origin(|head, _| {
        let keep = "Cache-Control: public, max-age=600\r\nETag: \"a\"\r\nContent-Length: 0\r\n\r\n";
        if head.starts_with("GET /upgrade ") {
            format!("HTTP/1.1 426 Upgrade Required\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n{keep}")
        } else {
            format!("HTTP/1.1 407 x\r\nProxy-Authenticate: Basic realm=a\r\n{keep}")
        }
    });
    let site = site(driver, to, "", "");
    let mut client = site.client();
    for (path, status, name, value) in
        [("/upgrade", 426, "Upgrade", "websocket"), ("/proxy", 407, "Proxy-Authenticate", "Basic realm=a")]
    {
        let before = asked(&count);
        for _ in 0..2 {
            let reply = client.get(path);
            assert_eq!((reply.status, reply.header(name)), (status, Some(value)));
        }
        assert_eq!(asked(&count), before + 2, "{path}");
    }
});

/// An origin that answers all requests when it is told to, and how many there were.
fn held_origin(
    head: &'static str,
    early: &'static str,
    late: &'static str,
) -> (SocketAddr, Sender<()>, Arc<AtomicUsize>) {
    let (release, released) = channel();
    let released = Mutex::new(released);
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let (to, _) = behind(move |client| {
        while client.until(b"\r\n\r\n").is_some() {
            counted.fetch_add(1, Ordering::SeqCst);
            if !early.is_empty() {
                client.send(format!("{head}{early}"));
            }
            if released.lock().unwrap().recv().is_err() {
                return;
            }
            client.send(if early.is_empty() { format!("{head}{late}") } else { late.to_owned() });
        }
    });
    (to, release, asked)
}

drivers!(requests_for_one_answer_at_the_same_time_are_one_request_to_the_origin, |driver: DriverName| {
    // Each connection has two descriptors in this process, and drivers are tested beside each other: on
    // select they must stay below 1,024.
    let many = 100;
    let (to, release, count) =
        held_origin("HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: 4\r\n\r\n", "", "page");
    let site = site(driver, to, ", wait = \"300s\"", "");
    let mut clients: Vec<_> = (0..many).map(|_| site.client()).collect();
    for client in &mut clients {
        client.send("GET /page HTTP/1.1\r\nHost: example.org\r\n\r\n");
    }
    wait_until("the origin is asked", || asked(&count) == 1);
    release.send(()).unwrap();
    for client in &mut clients {
        let reply = client.reply();
        assert_eq!((reply.status, reply.text()), (200, "page"), "{}", reply.head);
    }
    assert_eq!(asked(&count), 1);
    let [miss, collapsed, hit] = ["miss", "collapsed", "hit"].map(|status| requests(&site, status));
    assert_eq!((miss, collapsed + hit), (1, many - 1));
});

drivers!(a_request_that_has_waited_long_enough_fetches_by_itself, |driver: DriverName| {
    let asked_for = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked_for);
    let (to, _) = behind(move |client| {
        while client.until(b"\r\n\r\n").is_some() {
            if counted.fetch_add(1, Ordering::SeqCst) == 0 {
                // Never answered, for as long as its client waits.
                client.rest();
                return;
            }
            client.send(ok("Cache-Control: max-age=600\r\n", "page"));
        }
    });
    let site = site(driver, to, ", wait = \"50ms\"", "");
    let (mut first, mut second) = (site.client(), site.client());
    first.send("GET / HTTP/1.1\r\nHost: example.org\r\n\r\n");
    wait_until("the origin is asked", || asked(&asked_for) == 1);
    assert_eq!((second.get("/").text(), asked(&asked_for)), ("page", 2));
    first.reset();
});

drivers!(requests_that_wait_get_the_bytes_as_they_come, |driver: DriverName| {
    let (to, release, count) = held_origin(
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: 10\r\n\r\n",
        "01234",
        "56789",
    );
    let site = site(driver, to, "", "");
    let mut clients = [site.client(), site.client(), site.client()];
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: example.org\r\n\r\n");
        assert!(client.until(b"01234").is_some());
    }
    // The one that came first may go: its answer is for all.
    let [first, mut second, mut third] = clients;
    first.reset();
    release.send(()).unwrap();
    for client in [&mut second, &mut third] {
        assert_eq!(client.exactly(5).as_deref(), Some(&b"56789"[..]));
    }
    wait_until("it is kept", || counted(&site, "ringroad_cache_entries") == 1);
    assert_eq!((site.client().get("/").text(), asked(&count)), ("0123456789", 1));
});

drivers!(where_the_client_of_a_fetch_goes_another_request_fetches, |driver: DriverName| {
    let asked_for = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked_for);
    let (to, _) = behind(move |client| {
        while client.until(b"\r\n\r\n").is_some() {
            if counted.fetch_add(1, Ordering::SeqCst) == 0 {
                // Until the connection ends.
                client.rest();
                return;
            }
            client.send(ok("Cache-Control: max-age=600\r\n", "page"));
        }
    });
    let site = site(driver, to, ", wait = \"300s\"", "");
    let (mut first, mut second, mut third) = (site.client(), site.client(), site.client());
    first.send("GET / HTTP/1.1\r\nHost: example.org\r\n\r\n");
    wait_until("the origin is asked", || asked(&asked_for) == 1);
    for client in [&mut second, &mut third] {
        client.send("GET / HTTP/1.1\r\nHost: example.org\r\n\r\n");
    }
    first.reset();
    assert_eq!((second.reply().text(), third.reply().text()), ("page", "page"));
    assert_eq!(asked(&asked_for), 2);
});

/// An answer that is stale when it comes, and that an origin's next words are about.
const STALE: &str = "Cache-Control: max-age=60\r\nAge: 61\r\nETag: \"a\"\r\nX-A: one\r\n";

drivers!(a_stale_answer_is_asked_about_and_gets_the_new_lines, |driver: DriverName| {
    let (to, count) = origin(|head, number| match number {
        1 => ok(STALE, "page"),
        _ if head.contains("If-None-Match: \"a\"\r\n") => {
            "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nCache-Control: max-age=600\r\nX-A: two\r\n\r\n"
                .to_owned()
        }
        _ => ok("", "wrong"),
    });
    let site = site(driver, to, "", "");
    let mut client = site.client();
    assert_eq!(client.get("/").header("X-A"), Some("one"));
    let again = client.get("/");
    assert_eq!((again.status, again.text(), again.header("X-A")), (200, "page", Some("two")));
    assert_eq!(again.header("Cache-Status"), Some("ringroad; fwd=stale; fwd-status=304"));
    let hit = client.ask("GET", "/", &[("If-None-Match", "\"a\"")]);
    assert_eq!((hit.status, asked(&count), requests(&site, "revalidated")), (304, 2, 1));
});

drivers!(a_stale_answer_is_used_while_it_is_refreshed, |driver: DriverName| {
    let (to, count) = origin(|head, number| {
        assert!(head.contains("X-Forwarded-For: 127.0.0.1\r\n"), "{head}");
        match number {
            1 => ok("Cache-Control: max-age=60, stale-while-revalidate=600\r\nAge: 61\r\n", "one"),
            _ => ok("Cache-Control: max-age=600\r\n", "two"),
        }
    });
    let site = site(driver, to, "", "");
    assert_eq!(site.client().get("/").text(), "one");
    let mut client = site.client();
    let stale = client.get("/");
    assert_eq!(stale.text(), "one");
    assert!(stale.header("Cache-Status").unwrap().starts_with("ringroad; hit; ttl=-"), "{}", stale.head);
    drop(client);
    wait_until("it is refreshed", || site.client().get("/").text() == "two");
    assert_eq!(asked(&count), 2);
});

drivers!(a_stale_answer_is_refreshed_once_by_all_workers, |driver: DriverName| {
    const PATHS: usize = 40;
    let (to, count) = origin(|head, _| {
        if head.contains("If-None-Match") {
            return ok("Cache-Control: max-age=600\r\n", "two");
        }
        ok("Cache-Control: max-age=60, stale-while-revalidate=600\r\nAge: 61\r\nETag: \"a\"\r\n", "one")
    });
    let site = site(driver, to, "", "");
    let mut clients: Vec<Client> = (0..4).map(|_| site.client()).collect();
    for path in 0..PATHS {
        let path = format!("/{path}");
        assert_eq!(site.client().get(&path).text(), "one");
        std::thread::scope(|scope| {
            for client in &mut clients {
                scope.spawn(|| wait_until("it is refreshed", || client.get(&path).text() == "two"));
            }
        });
    }
    assert_eq!(asked(&count), 2 * PATHS);
});

drivers!(a_stale_answer_is_used_where_no_other_can_be_had, |driver: DriverName| {
    let (to, count) = origin(|head, _| {
        let path = head.split(' ').nth(1).unwrap();
        let validates = head.contains("If-None-Match");
        match path {
            "/close" if validates => String::new(),
            "/error" | "/must" | "/shared" if validates => {
                "HTTP/1.1 503 No\r\nContent-Length: 2\r\n\r\nno".to_owned()
            }
            "/must" => ok("Cache-Control: max-age=60, must-revalidate\r\nAge: 61\r\nETag: \"a\"\r\n", "page"),
            "/shared" => ok("Cache-Control: s-maxage=60\r\nAge: 61\r\nETag: \"a\"\r\n", "page"),
            _ => ok(STALE, "page"),
        }
    });
    let site = site(driver, to, ", stale_if_error = \"1h\"", "");
    let mut client = site.client();
    for (path, stale) in [("/close", true), ("/error", true), ("/must", false), ("/shared", false)] {
        assert_eq!(client.get(path).text(), "page");
        let reply = client.get(path);
        assert_eq!((reply.status == 200 && reply.text() == "page"), stale, "{path}: {}", reply.head);
        let told = reply.header("Cache-Status").unwrap();
        assert_eq!(told.contains("detail=stale-if-error"), stale, "{path}: {told}");
        if stale {
            let status = if path == "/close" { 502 } else { 503 };
            assert_eq!(told, format!("ringroad; fwd=stale; fwd-status={status}; detail=stale-if-error"));
            let before = asked(&count);
            let more = client.get(path);
            assert!(
                more.status == 200 && more.header("Cache-Status").unwrap().contains("stale-if-error"),
                "{}",
                more.head
            );
            assert!(asked(&count) <= before + 1);
        }
    }
});

drivers!(an_open_breaker_leaves_the_stale_answer, |driver: DriverName| {
    let (to, count) = origin(|_, number| match number {
        1 => ok(STALE, "page"),
        _ => "HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\nno".to_owned(),
    });
    let text = format!(
        "[store.pages]\n[upstream.g]\nservers = [\"http://{to}\"]\nbreaker = {{ least = 2, failed = \"10%\", open = \"300s..301s\" }}\n\
         [[route]]\npath = \"/bare\"\nkind = \"proxy\"\nto = \"upstream:g\"\n\
         [[route]]\npath = \"/\"\nkind = \"proxy\"\nto = \"upstream:g\"\ncache = {{ store = \"pages\", stale_if_error = \"1h\" }}\n"
    );
    let site = start(driver, &text, |_| {});
    let mut client = site.client();
    assert_eq!(client.get("/").text(), "page");
    while client.get("/bare").status == 500 {}
    let before = asked(&count);
    let stale = client.get("/");
    assert_eq!((stale.status, stale.text(), asked(&count)), (200, "page", before));
    assert_eq!(
        stale.header("Cache-Status"),
        Some("ringroad; fwd=stale; fwd-status=503; detail=stale-if-error")
    );
});

drivers!(answers_to_known_clients_are_kept_only_if_they_are_for_all, |driver: DriverName| {
    let (to, count) = origin(|head, number| {
        let control = if head.contains("/public") { "public, max-age=600" } else { "max-age=600" };
        ok(&format!("Cache-Control: {control}\r\n"), &number.to_string())
    });
    let site = site(driver, to, "", "auth = \"k\"");
    let mut client = site.client();
    let key = [("Authorization", "Bearer secret")];
    for (path, each) in [("/own", 2), ("/public", 1)] {
        let before = asked(&count);
        assert_eq!(client.ask("GET", path, &key).status, 200);
        assert_eq!(client.ask("GET", path, &key).status, 200);
        assert_eq!(asked(&count), before + each, "{path}");
        assert_eq!(client.get(path).status, 401, "{path}");
    }
});

drivers!(variants_are_told_apart_by_what_their_lines_mean, |driver: DriverName| {
    let (to, count) = origin(|_, number| {
        ok("Cache-Control: max-age=600\r\nVary: Accept-Encoding, X-Kind\r\n", &number.to_string())
    });
    let site = site(driver, to, ", by = [\"cookie.lang\"], query = [\"page\"]", "");
    let mut client = site.client();
    let mut get = |path: &str, lines: &[(&str, &str)]| client.ask("GET", path, lines).text().to_owned();
    assert_eq!(get("/", &[("Accept-Encoding", "gzip, br")]), "1");
    assert_eq!(get("/", &[("Accept-Encoding", "br;q=0.9,  GZIP")]), "1");
    assert_eq!(get("/", &[("Accept-Encoding", "gzip")]), "2");
    assert_eq!(get("/", &[("Accept-Encoding", "gzip"), ("X-Kind", "a")]), "3");
    assert_eq!(get("/", &[("Accept-Encoding", "gzip"), ("Cookie", "a=b; lang=de")]), "4");
    assert_eq!(get("/", &[("Accept-Encoding", "gzip"), ("Cookie", "lang=de; c=d")]), "4");
    assert_eq!(get("/?utm=x", &[("Accept-Encoding", "gzip")]), "2");
    assert_eq!(get("/?utm=x&page=2", &[("Accept-Encoding", "gzip")]), "5");
    assert_eq!(asked(&count), 5);
});

drivers!(unsafe_methods_and_purges_remove_what_is_kept, |driver: DriverName| {
    let (to, count) = origin(|head, number| {
        if head.starts_with("POST") {
            return "HTTP/1.1 201 Created\r\nLocation: /a/2\r\nContent-Length: 0\r\n\r\n".to_owned();
        }
        if head.starts_with("DELETE") {
            return "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n".to_owned();
        }
        ok("Cache-Control: max-age=600\r\nCache-Tag: red, blue\r\n", &number.to_string())
    });
    let site = site(driver, to, ", purge_auth = \"k\"", "");
    let mut client = site.client();
    let fill = |client: &mut Client| {
        for path in ["/a/1", "/a/2", "/b"] {
            client.get(path);
        }
        asked(&count)
    };
    let before = fill(&mut client);
    assert_eq!(fill(&mut client), before);
    client.ask("DELETE", "/a/1", &[]);
    assert_eq!(fill(&mut client), before + 1, "a failure changes nothing");
    client.ask("POST", "/a/1", &[("Content-Length", "0")]);
    assert_eq!(fill(&mut client), before + 4, "the path and its Location are asked for again");
    assert_eq!(client.ask("PURGE", "/b", &[]).status, 401);
    assert_eq!(fill(&mut client), before + 4);
    let key = ("Authorization", "Bearer secret");
    for (path, lines, purged) in [
        ("/b", &[key][..], 1),
        ("/b?x", &[key], 0),
        ("/a/*", &[key], 2),
        ("/", &[key, ("Cache-Tag", "green, red")], 3),
        ("/", &[key, ("Cache-Tag", "green")], 0),
    ] {
        let before = asked(&count);
        let reply = client.ask("PURGE", path, lines);
        assert_eq!(
            (reply.status, reply.text()),
            (200, &*format!("{{\"purged\":{purged}}}\n")),
            "{path} {lines:?}"
        );
        assert_eq!(fill(&mut client), before + purged, "{path} {lines:?}");
    }
});

// A change names the place of `/a/2` in the words of either side; the server behind is asked for other paths.
drivers!(a_change_removes_what_is_kept_of_its_paths_also_where_they_are_rewritten, |driver: DriverName| {
    let named = Arc::new(Mutex::new(String::new()));
    let names = Arc::clone(&named);
    let (to, count) = origin(move |head, number| match head.starts_with("GET") {
        true => ok("Cache-Control: max-age=600\r\n", &number.to_string()),
        false => {
            let place = names.lock().unwrap();
            format!("HTTP/1.1 201 Created\r\nContent-Location: {place}\r\nContent-Length: 0\r\n\r\n")
        }
    });
    for more in [
        "rewrite = \"/v1{path}\"",
        "rewrite = \"/v1{path}\"\nmap_locations = false",
        "rewrite = \"/v1/{rest}\"",
    ] {
        let site = site(driver, to, ", purge_from = \"127.0.0.0/8\"", more);
        let mut client = site.client();
        let fill = || {
            // Answers of one worker are those of all.
            for path in ["/a/1", "/a/2", "/b?q"] {
                site.client().get(path);
            }
            asked(&count)
        };
        for (method, path, place, gone) in [
            ("POST", "/a/1", "/a/2".to_owned(), 2),
            ("PUT", "/a/1", "/v1/a/2".to_owned(), 2),
            ("DELETE", "/other", format!("http://{to}/v1/a/2"), 1),
            ("POST", "/a/1?q", "2".to_owned(), 1),
            ("POST", "/b?q", "/other".to_owned(), 1),
            ("POST", "/other", "/b".to_owned(), 0),
        ] {
            named.lock().unwrap().clone_from(&place);
            fill();
            let before = fill();
            assert_eq!(client.ask(method, path, &[("Content-Length", "0")]).status, 201);
            assert_eq!(fill() - before, gone + 1, "{method} {path} {place} {more}");
        }
        for (path, purged) in [("/a/1", 1), ("/a/*", 2), ("/v1/a/1", 0)] {
            fill();
            let told = client.ask("PURGE", path, &[]);
            assert_eq!(told.text(), format!("{{\"purged\":{purged}}}\n"), "{path} {more}");
        }
    }
});

drivers!(paths_that_a_rewrite_makes_one_have_answers_of_their_own, |driver: DriverName| {
    let (to, _) = origin(|head, _| {
        let public = head.lines().find_map(|line| line.strip_prefix("X-Path: "));
        ok("Cache-Control: max-age=600\r\n", public.unwrap())
    });
    let more = "rewrite = \"/index.php\"\nheaders = { request = { set = { X-Path = \"{target}\" } } }";
    let site = site(driver, to, "", more);
    let mut client = site.client();
    for path in ["/a", "/b", "/a", "/b?q", "/b"] {
        assert_eq!(client.get(path).text(), path);
    }
});

drivers!(a_purge_reaches_what_is_on_its_way_and_nothing_else, |driver: DriverName| {
    for collapse in ["", ", collapse = false"] {
        let head = "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: 4\r\n\r\n";
        let (to, release, count) = held_origin(head, "", "page");
        let site = site(driver, to, &format!(", purge_from = \"127.0.0.0/8\"{collapse}"), "");
        let mut client = site.client();
        for (path, purged, fetches) in [("/a", "/other", 1), ("/b", "/b", 2)] {
            let before = asked(&count);
            client.send(format!("GET {path} HTTP/1.1\r\nHost: example.org\r\n\r\n"));
            wait_until("the origin is asked", || asked(&count) == before + 1);
            assert_eq!(site.client().ask("PURGE", purged, &[]).status, 200);
            release.send(()).unwrap();
            assert_eq!(client.reply().text(), "page");
            if fetches > 1 {
                release.send(()).unwrap();
            }
            assert_eq!(client.get(path).text(), "page");
            assert_eq!(asked(&count) - before, fetches, "{path}, purged {purged}{collapse}");
        }
    }
});

drivers!(a_client_that_may_gets_the_answer_of_the_origin, |driver: DriverName| {
    let (to, count) = origin(|_, number| ok("Cache-Control: max-age=600\r\n", &number.to_string()));
    let site = site(driver, to, ", obey_requests = true", "");
    let mut client = site.client();
    assert_eq!(client.get("/").text(), "1");
    let asked_for = client.ask("GET", "/", &[("Cache-Control", "no-cache")]);
    assert_eq!(
        (asked_for.text(), asked_for.header("Cache-Status")),
        ("2", Some("ringroad; fwd=request; stored"))
    );
    assert_eq!((client.get("/").text(), asked(&count)), ("2", 2), "others get it from the store");
});

drivers!(a_reload_keeps_what_is_kept_also_with_other_settings, |driver: DriverName| {
    let (to, count) = origin(|_, number| ok("Cache-Control: max-age=600\r\n", &number.to_string()));
    let mut site = site(driver, to, "", "");
    let mut client = site.client();
    assert_eq!(client.get("/").text(), "1");
    let text =
        rules(to, ", stale_if_error = \"1h\"", "").replace("\"64K\"", "\"32K\"").replace("\"16M\"", "\"8M\"");
    configure(site.folder.path(), &text);
    site.service.reload();
    assert_eq!((client.get("/").text(), site.client().get("/").text(), asked(&count)), ("1", "1", 1));
    assert_eq!(counted(&site, "ringroad_cache_bytes_max"), 8 << 20);
});

/// A site that has at `path` an application with one worker behind a cache. Its answers are numbered
/// and may be kept; a request with `X-Place` is a change with this `Location`.
fn application(driver: DriverName, path: &str, more: &str) -> Site {
    let text = format!(
        "[store.pages]\n[[app]]\nname = \"web\"\napp = \"one:app\"\npython = \"python3\"\nworkers = 1\n\
         queue_timeout = \"2m\"\n[[route]]\npath = \"{path}\"\nkind = \"app\"\napp = \"web\"\ncache = \"pages\"\n{more}"
    );
    start(driver, &text, |folder| {
        let app = "count = 0\ndef app(environ, start):\n    global count\n    count += 1\n    \
                   place = environ.get('HTTP_X_PLACE')\n    \
                   lines = [('Location', place)] if place else [('Cache-Control', 'max-age=600')]\n    \
                   start('201 Created' if place else '200 OK', lines)\n    return [str(count).encode()]\n";
        write(folder, "one.py", app);
    })
}

drivers!(answers_of_applications_are_kept_as_well, |driver: DriverName| {
    if !python() {
        return;
    }
    let site = application(driver, "/", "");
    let mut client = site.client();
    assert_eq!((client.get("/").text(), client.get("/").text(), client.get("/b").text()), ("1", "1", "2"));
});

// An application names `/api/a/2` by the path that it is asked for, by the public one, and relative to it.
drivers!(a_change_by_an_application_removes_places_that_it_names_by_rewritten_paths, |driver: DriverName| {
    if !python() {
        return;
    }
    let site = application(driver, "/api/", "rewrite = \"/v1/{rest}\"\n");
    let mut client = site.client();
    let mut get = |path: &str| client.get(path).text().to_owned();
    for (place, gone) in [
        ("/v1/a/2", true),
        ("http://example.org/v1/a/2", true),
        ("/api/a/2", true),
        ("2", true),
        ("/v1/a/2/", false),
        ("/v1/a", false),
        ("/v2/a/2", false),
        ("http://other/v1/a/2", false),
    ] {
        let before = (get("/api/a/2"), get("/api/b"));
        assert_eq!((get("/api/a/2"), get("/api/b")), before, "{place}");
        let lines = [("X-Place", place), ("Content-Length", "0")];
        assert_eq!(site.client().ask("POST", "/api/a/1", &lines).status, 201);
        assert_eq!((get("/api/a/2") != before.0, get("/api/b") != before.1), (gone, false), "{place}");
    }
});

#[test]
fn settings_that_are_wrong_are_reported_with_what_was_expected() {
    for (text, expected) in [
        ("cache = \"x\"", "there is no [store.x] (there are: s)"),
        ("cache = 5", "the name of a [store.NAME], or a table"),
        ("cache = { stale_if_error = \"1h\" }", "the name of a [store.NAME]"),
        ("cache = { store = \"s\", by = [\"host\"] }", "\"header.NAME\", \"cookie.NAME\" or \"subject\""),
        ("cache = { store = \"s\", purge_auth = \"b\" }", "decides by itself"),
        ("cache = { store = \"s\", wiat = \"1s\" }", "wait"),
    ] {
        let rules = format!(
            "[store.s]\n[auth.b]\nkind = \"ask\"\nurl = \"http://127.0.0.1:1/\"\n\
             [[route]]\npath = \"/\"\nkind = \"proxy\"\nto = \"http://a\"\n{text}\n"
        );
        let why =
            ringroad_serve::Config::parse(&rules, std::path::Path::new("a.toml")).unwrap_err().to_string();
        assert!(why.contains(expected), "{text}: {why}");
    }
    for (text, expected) in [
        ("[store.s]\nmemory = \"1K\"\n", "memory"),
        ("[store.s]\nmemory = \"1M\"\nobject = \"1M\"\n", "object"),
        (
            "[store.s]\n[[route]]\npath = \"/\"\nkind = \"respond\"\ncache = \"s\"\n",
            "\"proxy\", \"app\" or \"php\"",
        ),
    ] {
        let why =
            ringroad_serve::Config::parse(text, std::path::Path::new("a.toml")).unwrap_err().to_string();
        assert!(why.contains(expected), "{text}: {why}");
    }
}
