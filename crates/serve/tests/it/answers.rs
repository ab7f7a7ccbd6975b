//! Routes that need no file: fixed answers, redirects, health; which route takes which path.

use crate::support::{HANG, behind, start, wait_until, write};
use ringroad_engine::DriverName;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, channel};

const ROUTES: &str = r#"
request_id = "X-Request-Id"

[[route]]
path = "/"
kind = "respond"
body = "root"

[[route]]
path = "/robots.txt"
kind = "respond"
body = "User-agent: *\n"
headers = { Cache-Control = "max-age=60" }

[[route]]
path = "/gone/"
kind = "respond"
status = 410
content_type = "text/html; charset=utf-8"
body = "<p>gone</p>"

[[route]]
path = "/nothing"
kind = "respond"
status = 204

[[route]]
path = "/old/"
kind = "redirect"
to = "/new/"

[[route]]
path = "/one"
kind = "redirect"
to = "https://example.org/one"
status = 302

[[route]]
path = "/own"
kind = "redirect"
to = "/new?own=1#part"

[[route]]
path = "/part"
kind = "redirect"
to = "/new#part"

[[route]]
path = "/all/"
kind = "redirect"
to = "https://example.org"

[[route]]
path = "/to-root/"
kind = "redirect"
to = "/"

[[route]]
path = "/host/"
kind = "redirect"
to = "https://{host}{target}"

[[route]]
path = "/authority/"
kind = "redirect"
to = "https://{authority}/{rest}"

[[route]]
path = "/value"
kind = "redirect"
to = "/to?v={query.v}"

[[route]]
path = "/healthz"
kind = "health"
"#;

drivers!(
    /// 64 requests that come together, and no answer of theirs is read.
    answers_that_clients_do_not_take_are_bounded_by_a_total,
    |driver: DriverName| {
        let body = "x".repeat(15_000);
        let routes = format!(
            "limits.unsent = \"100K\"\ntimeouts = {{ send = \"24h\", send_rate = 0 }}\n[[route]]\npath = \"/\"\nkind = \"respond\"\nbody = \"{body}\"\n\
             [[route]]\npath = \"/metrics\"\nkind = \"metrics\"\n"
        );
        let site = start(driver, &routes, |_| {});
        let mut silent: Vec<_> = (0..20).map(|_| site.client()).collect();
        for client in &mut silent {
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(1000));
        }
        wait_until("some are cut", || {
            let metrics = site.client().get("/metrics");
            let line = metrics.text().lines().find(|line| line.starts_with("ringroad_http_timeouts_total{"));
            !line.unwrap().ends_with(" 0")
        });
        assert_eq!(site.client().get("/").body.len(), 15_000);
    }
);

drivers!(every_path_goes_to_the_longest_route_that_fits, |driver: DriverName| {
    let site = start(driver, ROUTES, |_| {});
    let mut client = site.client();
    for (path, status, body) in [
        ("/", 200, "root"),
        ("/anything", 200, "root"),
        ("/robots.txt", 200, "User-agent: *\n"),
        ("/robots.txt/more", 200, "root"),
        ("/robots.txt?q", 200, "User-agent: *\n"),
        ("/gone/", 410, "<p>gone</p>"),
        ("/gone/below", 410, "<p>gone</p>"),
        // A prefix ends at a slash.
        ("/gone../x", 200, "root"),
        // Spelt otherwise it is the same path, for every route.
        ("/g%6Fne/", 410, "<p>gone</p>"),
        ("/nothing", 204, ""),
        ("/healthz", 200, "ok\n"),
    ] {
        let reply = client.get(path);
        assert_eq!((reply.status, reply.text()), (status, body), "{path}");
    }
    let robots = client.get("/robots.txt");
    assert_eq!(robots.header("Cache-Control"), Some("max-age=60"));
    assert_eq!(robots.header("Content-Type"), Some("text/plain; charset=utf-8"));
    assert_eq!(client.get("/gone/").header("Content-Type"), Some("text/html; charset=utf-8"));
    assert_eq!(client.ask("HEAD", "/robots.txt", &[]).header("Content-Length"), Some("14"));
});

drivers!(a_redirect_keeps_what_is_behind_and_stays_on_its_server, |driver: DriverName| {
    let site = start(driver, ROUTES, |_| {});
    let mut client = site.client();
    for (path, status, location) in [
        ("/old/a%20b/c?d=e", 301, "/new/a%20b/c?d=e"),
        ("/%6Fld/a", 301, "/new/a"),
        ("/old?a", 301, "/old/?a"),
        ("/one?x", 302, "https://example.org/one?x"),
        ("/own?x", 301, "/new?own=1#part"),
        ("/part?x", 301, "/new?x#part"),
        ("/all/a/b?c", 301, "https://example.org/a/b?c"),
        ("/all//a", 301, "https://example.org//a"),
        ("/all?c", 301, "/all/?c"),
        ("/to-root//evil.example/", 301, "/evil.example/"),
        ("/to-root/%5Cevil.example/", 301, "/%5Cevil.example/"),
        ("/to-root/\\evil.example/", 301, "/evil.example/"),
        ("/value?v=a%20b%0D%0ASet-Cookie:x", 301, "/to?v=a%20b%0D%0ASet-Cookie:x"),
        ("/value?v=caf%C3%A9%FF%7F", 301, "/to?v=caf%C3%A9%EF%BF%BD%7F"),
    ] {
        let reply = client.get(path);
        let found = reply.header("Location").unwrap_or_default();
        assert_eq!((reply.status, found), (status, location), "{path}");
        // With another method than GET a client has to ask with the same one again.
        let lasting = if status == 301 { 308 } else { status };
        let reply = client.ask("POST", path, &[("Content-Length", "0")]);
        assert_eq!(
            (reply.status, reply.header("Location").unwrap_or_default()),
            (lasting, location),
            "{path}"
        );
    }
});

drivers!(the_host_that_a_trusted_proxy_was_asked_for_is_the_one_of_places, |driver: DriverName| {
    let (judge, asked) = heads();
    for (proxies, told, host) in [
        ("127.0.0.1", "a.example:81", Some("a.example:81")),
        ("127.0.0.1", "a.example:81, b.example:82", Some("b.example:82")),
        ("127.0.0.1", "[::1]:81", Some("[::1]:81")),
        // No host, but part of an address.
        ("127.0.0.1", "a.example/b", None),
        ("127.0.0.1", "user@a.example", None),
        ("127.0.0.1", "", None),
        // Any client can write the line.
        ("192.0.2.1", "a.example:81", None),
    ] {
        let rules = format!(
            r#"
            client_ip = {{ proxies = ["{proxies}"] }}
            [auth.judge]
            kind = "ask"
            url = "http://{judge}/verify"

            [[route]]
            path = "/to"
            kind = "redirect"
            to = "https://{{authority}}/x"

            [[route]]
            path = "/judged"
            kind = "respond"
            body = "{{host}}"
            auth = "judge"
            "#
        );
        let site = start(driver, &rules, |_| {});
        let mut client = site.client();
        let line = [("X-Forwarded-Host", told)];
        let place = format!("https://{}/x", host.unwrap_or("example.org"));
        assert_eq!(client.ask("GET", "/to", &line).header("Location"), Some(&*place), "{proxies} {told}");
        assert_eq!(client.ask("GET", "/judged", &line).status, 200);
        let head = asked.recv_timeout(HANG).unwrap();
        let lines: Vec<_> = head.lines().filter(|line| line.starts_with("X-Forwarded-Host:")).collect();
        assert_eq!(
            lines,
            [format!("X-Forwarded-Host: {}", host.unwrap_or("example.org"))],
            "{proxies} {told}"
        );
    }
});

drivers!(a_target_with_its_host_before_it_is_the_place_that_it_names, |driver: DriverName| {
    let (judge, uris) = heads();
    let (other, copies) = heads();
    let rules = format!(
        r#"
        [auth.judge]
        kind = "ask"
        url = "http://{judge}/verify"

        [[route]]
        path = "/secure"
        kind = "redirect"
        to = "https://{{host}}{{target}}"

        [[route]]
        path = "/rewritten/"
        kind = "redirect"
        rewrite = "/x/{{rest}}"
        to = "https://{{host}}{{target}}"

        [[route]]
        path = "/asked/"
        kind = "respond"
        auth = "judge"
        mirror = {{ to = "http://{other}" }}

        [[route]]
        path = "/"
        kind = "static"
        root = "."
        "#
    );
    let site = start(driver, &rules, |folder| write(folder, "docs/file", "x"));
    let mut client = site.client();
    for (target, location) in [
        ("http://a.example:81/secure?b", "https://a.example/secure?b"),
        ("HTTP://a.example/secure", "https://a.example/secure"),
        ("http://a.example/./secure?b", "https://a.example/secure?b"),
        ("http://[::1]:81/rewritten/a?b", "https://[::1]/rewritten/a?b"),
        ("http://a.example/docs?b", "/docs/?b"),
    ] {
        let reply = client.get(target);
        assert_eq!((reply.status, reply.header("Location")), (301, Some(location)), "{target}");
    }
    assert_eq!(client.get("http://a.example/asked/b?c").status, 200);
    let uri = uris.recv_timeout(HANG).unwrap();
    assert!(uri.contains("\r\nX-Forwarded-Uri: /asked/b?c\r\n"), "{uri}");
    let copy = copies.recv_timeout(HANG).unwrap();
    assert!(copy.starts_with("GET /asked/b?c HTTP/1.1\r\n"), "{copy}");
});

/// A server that answers 204 and tells the heads of its requests.
fn heads() -> (SocketAddr, Receiver<String>) {
    let (tell, heads) = channel();
    let (address, _) = behind(move |client| {
        while let Some(head) = client.until(b"\r\n\r\n") {
            let _ = tell.send(String::from_utf8(head).unwrap());
            client.send("HTTP/1.1 204 No Content\r\n\r\n");
        }
    });
    (address, heads)
}

drivers!(what_leads_to_the_host_of_a_request_that_names_none_is_refused, |driver: DriverName| {
    let site = start(driver, ROUTES, |_| {});
    for (target, status) in [("/host/evil.example", 400), ("/authority//evil.example", 400), ("/old/a", 301)]
    {
        let reply = site.client().send(format!("GET {target} HTTP/1.0\r\n\r\n")).reply();
        assert_eq!((reply.status, reply.header("Location").is_some()), (status, status == 301), "{target}");
    }
});

drivers!(a_place_behind_a_rewrite_is_the_one_that_the_client_has_asked_for, |driver: DriverName| {
    let rules = r#"
        [[route]]
        path = "/pub/"
        kind = "static"
        root = "site"
        rewrite = "/v2/{rest}"
        autoindex = true

        [[route]]
        path = "/fixed/"
        kind = "static"
        root = "site"
        rewrite = "/v2/docs"

        [[route]]
        path = "/php/"
        kind = "php"
        root = "site"
        to = "127.0.0.1:1"
        rewrite = "/v2/{rest}?own=1"

        [[route]]
        path = "/up/"
        kind = "upload"
        root = "site"
        rewrite = "/{rest}"
        "#;
    let site = start(driver, rules, |folder| {
        write(folder, "site/v2/docs/sub dir/file", "x");
        write(folder, "site/v2/docs/file", "x");
    });
    let mut client = site.client();
    for (path, location) in [
        ("/pub/docs?a=b", "/pub/docs/?a=b"),
        ("/pub//docs/sub%20dir", "/pub/docs/sub%20dir/"),
        ("/pub/./docs", "/pub/docs/"),
        ("http://a.example/pub/docs?a", "/pub/docs/?a"),
        ("/php/docs?a=b", "/php/docs/?a=b"),
        // There is no other place than the written one.
        ("/fixed/?a", "/v2/docs/?a"),
    ] {
        let reply = client.get(path);
        assert_eq!((reply.status, reply.header("Location")), (301, Some(location)), "{path}");
    }
    let listed = client.get("/pub/docs/?format=json");
    assert!(listed.text().starts_with("{\"path\":\"/pub/docs/\","), "{}", listed.text());
    let kept = client.send("PUT /up/a HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx").reply();
    assert_eq!((kept.status, kept.header("Location")), (201, Some("/up/a")));
});

drivers!(a_path_that_means_no_place_is_a_bad_request_for_every_route, |driver: DriverName| {
    let site = start(driver, ROUTES, |_| {});
    let mut client = site.client();
    for path in ["/../x", "/gone/%2e%2e/x", "/%00", "/a%0d%0aSet-Cookie:x", "/%", "/%f", "/./.."] {
        let reply = client.get(path);
        assert_eq!(reply.status, 400, "{path}: {reply:?}");
        assert!(reply.text().starts_with("400 Bad Request: The address is refused: the path "), "{path}");
    }
    // The connection goes on, and the server with it.
    assert_eq!(client.get("/").status, 200);
});

drivers!(each_request_has_an_id_of_its_own, |driver: DriverName| {
    let site = start(driver, ROUTES, |_| {});
    let mut client = site.client();
    let ids: Vec<_> = (0..100).map(|_| client.get("/").header("X-Request-Id").unwrap().to_owned()).collect();
    let mut different = ids.clone();
    different.sort();
    different.dedup();
    assert_eq!(different.len(), ids.len());
    assert!(
        ids.iter().all(|id| id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit())),
        "{ids:?}"
    );
});

#[test]
fn a_refusal_is_a_page_to_browsers_and_a_line_to_others() {
    let routes = "[[route]]\npath = \"/a\"\nkind = \"health\"\n";
    let site = start(DriverName::Epoll, routes, |_| {});
    let mut client = site.client();
    let plain = client.get("/missing");
    assert_eq!(plain.header("Content-Type"), Some("text/plain; charset=utf-8"));
    assert_eq!(plain.text(), "404 Not Found: There is nothing at this address.\n");
    assert_eq!(plain.header("Vary"), Some("Accept"));
    let page = client.ask("GET", "/missing", &[("Accept", "text/html,*/*")]);
    assert_eq!((page.status, page.header("Content-Type")), (404, Some("text/html; charset=utf-8")));
    assert!(page.text().contains("<h1>Not Found</h1>"), "{}", page.text());
    assert!(
        page.header("Content-Security-Policy").is_some_and(|policy| policy.contains("default-src 'none'"))
    );
}
