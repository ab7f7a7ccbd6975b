//! Which route answers, and which server of a group: hosts, methods, conditions, fall-backs, balancing.

use crate::ports::nowhere;
use crate::support::{Client, Reply, Site, behind, start, wait_until, write};
use ringroad_engine::DriverName;
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// A request with a `Host` of its own.
fn ask(client: &mut Client, host: &str, path: &str) -> Reply {
    client.send(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    client.reply()
}

/// An upstream server that answers with `name` and the request's first line.
fn named(name: &'static str) -> SocketAddr {
    let (address, _) = behind(move |client| {
        while client.until(b"\r\n\r\n").is_some() {
            client.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{name}", name.len()));
        }
    });
    address
}

drivers!(routes_are_chosen_by_host_method_header_and_query, |driver: DriverName| {
    let route = |more: &str, body: &str| {
        format!("[[route]]\npath = \"/\"\nkind = \"respond\"\n{more}\nbody = \"{body}\"\n")
    };
    let routes = [
        route("", "every"),
        route("hosts = [\"example.org\", \"example.net\"]", "exact"),
        route("hosts = \"*.example.org\"", "below"),
        route("hosts = \"*.example.org\"\nmethods = [\"POST\"]", "post"),
        route("match_headers = { X-Canary = \"1\" }", "canary"),
        route("match_query = { preview = true }", "preview"),
        "[[route]]\npath = \"/only\"\nkind = \"respond\"\nmethods = [\"PUT\", \"DELETE\"]\n".to_owned(),
    ];
    let site = start(driver, &routes.concat(), |_| {});
    let mut client = site.client();
    for (host, path, body) in [
        ("example.com", "/", "every"),
        ("example.org", "/x", "exact"),
        ("EXAMPLE.NET:8080", "/", "exact"),
        ("www.example.org", "/", "below"),
        ("example.com", "/?preview", "preview"),
    ] {
        assert_eq!(ask(&mut client, host, path).text(), body, "{host} {path}");
    }
    client.send("POST / HTTP/1.1\r\nHost: a.example.org\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(client.reply().text(), "post");
    assert_eq!(client.ask("GET", "/", &[("X-Canary", "2")]).text(), "exact");
    client.send("GET / HTTP/1.1\r\nHost: a\r\nX-Canary: 1\r\n\r\n");
    assert_eq!(client.reply().text(), "canary");
    // No route of this path has the method, but one above it takes every method.
    assert_eq!(ask(&mut client, "a", "/only").text(), "every");
});

#[test]
fn a_path_whose_routes_lack_the_method_says_which_they_have() {
    let routes = "[[route]]\npath = \"/only\"\nkind = \"respond\"\nmethods = [\"PUT\", \"DELETE\"]\n";
    let site = start(DriverName::Epoll, routes, |_| {});
    let reply = site.client().get("/only");
    assert_eq!((reply.status, reply.header("Allow")), (405, Some("DELETE, PUT")));
    for method in ["TRACE", "CONNECT"] {
        let target = if method == "CONNECT" { "example.org:80" } else { "/only" };
        assert_eq!(site.client().ask(method, target, &[]).status, 405, "{method}");
    }
}

drivers!(a_single_page_application_is_served_for_paths_that_are_no_files, |driver: DriverName| {
    let routes = "[[route]]\npath = \"/app/\"\nkind = \"static\"\nroot = \"site\"\n\
        try_files = [\"/{rest}.html\", \"/index.html\"]\n\
        [[route]]\npath = \"/gone/\"\nkind = \"static\"\nroot = \"site\"\ntry_files = \"=410\"\n";
    let site = start(driver, routes, |folder| {
        write(folder, "site/index.html", "the application");
        write(folder, "site/about.html", "about");
        write(folder, "site/a.css", "style");
        write(folder, "site/.secret.html", "secret");
    });
    let mut client = site.client();
    for (path, status, body) in [
        ("/app/", 200, "the application"),
        ("/app/a.css", 200, "style"),
        ("/app/about", 200, "about"),
        ("/app/users/7", 200, "the application"),
        ("/app/.secret", 404, "404 Not Found: There is nothing at this address.\n"),
        ("/gone/x", 410, "410 Gone: There is nothing at this address.\n"),
    ] {
        let reply = client.get(path);
        assert_eq!((reply.status, reply.text()), (status, body), "{path}");
    }
});

#[test]
fn a_redirect_fills_its_placeholders_in_and_stays_on_the_host_it_names() {
    let routes = "[[route]]\npath = \"/\"\nkind = \"redirect\"\nto = \"https://{host}{target}\"\n\
        [[route]]\npath = \"/blog/\"\nkind = \"redirect\"\nto = \"/articles/{rest}{?query}\"\n\
        [[route]]\npath = \"/echo/\"\nkind = \"redirect\"\nto = \"/{rest}\"\n\
        [[route]]\npath = \"/cdn/\"\nkind = \"redirect\"\nto = \"//cdn.example/\"\n";
    let site = start(DriverName::Epoll, routes, |_| {});
    let mut client = site.client();
    for (path, location) in [
        ("/a%20b?c=d", "https://example.org/a%20b?c=d"),
        ("/blog/x?y", "/articles/x?y"),
        ("/echo//evil.example/", "/evil.example/"),
        ("/cdn/x", "//cdn.example/x"),
    ] {
        assert_eq!(client.get(path).header("Location"), Some(location), "{path}");
    }
}

fn group(driver: DriverName, servers: &[String], more: &str) -> Site {
    let servers: Vec<_> = servers.iter().map(|server| format!("\"{server}\"")).collect();
    let text = format!(
        "[upstream.app]\nservers = [{}]\n{more}\n[[route]]\npath = \"/\"\nkind = \"proxy\"\nto = \"upstream:app\"\n",
        servers.join(", ")
    );
    start(driver, &text, |_| {})
}

drivers!(a_group_answers_while_one_of_its_servers_listens, |driver: DriverName| {
    let servers = [nowhere(), named("one"), named("two")].map(|address| format!("http://{address}"));
    let site = group(driver, &servers, "balance = \"turns\"");
    let mut client = site.client();
    let mut seen = BTreeSet::new();
    for _ in 0..20 {
        // A POST as well: nothing of it was sent to the server that cannot be reached.
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
        let reply = client.reply();
        assert_eq!(reply.status, 200, "{reply:?}");
        seen.insert(reply.text().to_owned());
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["one", "two"]);
});

#[test]
fn a_group_without_a_server_that_listens_is_a_bad_gateway() {
    let servers = [nowhere(), nowhere()].map(|address| format!("http://{address}"));
    let site = group(DriverName::Epoll, &servers, "");
    assert_eq!(site.client().get("/").status, 502);
}

#[test]
fn a_client_stays_with_its_server_by_key_or_by_cookie() {
    let servers = [named("one"), named("two"), named("three")].map(|address| format!("http://{address}"));
    let hashed = group(DriverName::Epoll, &servers, "balance = \"hash:header.X-User\"");
    let mut client = hashed.client();
    let mut ask = |user: &str| client.ask("GET", "/", &[("X-User", user)]).text().to_owned();
    for user in ["a", "b", "c", "d"] {
        let home = ask(user);
        assert!((0..5).all(|_| ask(user) == home), "{user}");
    }
    let sticky = group(DriverName::Epoll, &servers, "balance = \"sticky:server\"");
    let mut client = sticky.client();
    let first = client.get("/");
    let cookie = first.header("Set-Cookie").unwrap().split(';').next().unwrap().to_owned();
    assert!(cookie.starts_with("server="), "{cookie}");
    for _ in 0..10 {
        let reply = client.ask("GET", "/", &[("Cookie", &format!("other=1; {cookie}"))]);
        assert_eq!((reply.text(), reply.header("Set-Cookie")), (first.text(), None));
    }
}

#[test]
fn a_request_that_came_through_here_twice_is_refused() {
    let site = group(DriverName::Epoll, &[format!("http://{}", named("one"))], "");
    let mut client = site.client();
    assert_eq!(client.ask("GET", "/", &[("Via", "1.1 ringroad")]).status, 200);
    assert_eq!(client.ask("GET", "/", &[("Via", "1.1 ringroad, 1.1 ringroad")]).status, 508);
}

#[test]
fn many_words_in_connection_are_refused_and_a_few_are_obeyed() {
    let site = group(DriverName::Epoll, &[format!("http://{}", named("one"))], "");
    let mut client = site.client();
    assert_eq!(client.ask("GET", "/", &[("Connection", &vec!["a"; 16].join(","))]).status, 200);
    assert_eq!(client.ask("GET", "/", &[("Connection", &vec!["a"; 17].join(","))]).status, 400);
}

#[test]
fn the_client_behind_a_trusted_proxy_is_in_log_and_forwarded_lines() {
    let (address, _) = behind(|client| {
        while let Some(head) = client.until(b"\r\n\r\n") {
            let head = String::from_utf8(head).unwrap();
            client.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{head}", head.len()));
        }
    });
    let text = |trusted: &str| {
        format!(
            "client_ip = {{ proxies = [\"{trusted}\"] }}\nlog.file = \"access.log\"\n\
             [[route]]\npath = \"/\"\nkind = \"proxy\"\nto = \"http://{address}\"\n"
        )
    };
    let lines =
        [("X-Forwarded-For", "6.6.6.6, 192.0.2.7"), ("X-Forwarded-Port", "443"), ("X-Request-Id", "abc")];
    for (trusted, logged, expected) in [
        (
            "127.0.0.0/8",
            "192.0.2.7",
            ["X-Forwarded-For: 6.6.6.6, 192.0.2.7, 127.0.0.1", "X-Real-IP: 192.0.2.7", "X-Request-Id: abc"],
        ),
        (
            "10.0.0.0/8",
            "127.0.0.1",
            ["X-Forwarded-For: 127.0.0.1", "X-Real-IP: 127.0.0.1", "X-Forwarded-Proto: http"],
        ),
    ] {
        let site = start(DriverName::Epoll, &text(trusted), |_| {});
        let reply = site.client().ask("GET", "/", &lines);
        for line in expected {
            assert!(reply.text().contains(&format!("{line}\r\n")), "{line} in {}", reply.text());
        }
        assert_eq!(reply.text().contains("X-Forwarded-Port: 443"), trusted.starts_with("127"));
        let log = || std::fs::read_to_string(site.path("access.log")).unwrap_or_default();
        wait_until("a line of the log", || log().lines().count() == 1);
        assert!(log().starts_with(&format!("{logged} - - [")), "{}", log());
    }
}

#[test]
fn what_is_known_of_servers_stays_over_a_reload() {
    let servers = [nowhere(), named("one"), named("two")].map(|address| format!("http://{address}"));
    let mut site = group(DriverName::Epoll, &servers, "balance = \"turns\"");
    let mut client = site.client();
    (0..40).for_each(|_| assert_eq!(client.get("/").status, 200));
    let text = std::fs::read_to_string(site.path("ringroad.toml")).unwrap();
    std::fs::write(
        site.path("ringroad.toml"),
        format!("{text}[[route]]\npath = \"/new\"\nkind = \"respond\"\n"),
    )
    .unwrap();
    site.service.reload();
    assert_eq!(client.get("/new").status, 200);
    let metrics = site.service.servers();
    let (_, ejections) = metrics.iter().find(|(server, _)| servers[0].ends_with(server.as_str())).unwrap();
    assert_eq!(*ejections, 1, "left out once, before the reload, and still out: {metrics:?}");
}
