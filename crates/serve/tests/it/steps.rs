//! Steps of routes: what requests and answers pass on their way.

use crate::support::{Client, behind, start, wait_until};
use ringroad_engine::DriverName;

drivers!(header_rules_change_every_answer_and_short_ones_only_those_of_the_endpoint, |driver: DriverName| {
    let rules = r#"
        request_id = "X-Id"

        [[route]]
        path = "/"
        kind = "static"
        root = "."
        headers = { Cache-Control = "max-age=9", response = { set = { X-Path = "{path} {status}", ETag = "mine" }, add = { X-More = "1" }, remove = ["Last-Modified"] } }
    "#;
    let site = start(driver, rules, |_| {});
    site.write("a.txt", "hello");
    let mut client = site.client();
    for _ in 0..2 {
        let reply = client.get("/a.txt");
        assert_eq!((reply.status, reply.text()), (200, "hello"));
        assert_eq!(reply.header("Cache-Control"), Some("max-age=9"));
        assert_eq!(reply.header("X-Path"), Some("/a.txt 200"));
        assert_eq!(reply.headers("ETag").collect::<Vec<_>>(), ["mine"]);
        assert_eq!(reply.header("X-More"), Some("1"));
        assert_eq!(reply.header("Last-Modified"), None);
        assert_eq!(reply.header("X-Id").map(str::len), Some(16));
    }
    let reply = client.get("/missing");
    assert_eq!((reply.status, reply.header("X-Path")), (404, Some("/missing 404")));
    assert_eq!(reply.header("Cache-Control"), None);
});

drivers!(request_header_rules_reach_the_server_behind, |driver: DriverName| {
    let (address, _) = behind(|client| {
        let head = String::from_utf8(client.until(b"\r\n\r\n").unwrap()).unwrap();
        let wanted = ["X-A: /x GET", "X-B: 1", "Host: example.org"].iter().all(|line| head.contains(line));
        let unwanted = head.contains("Cookie") || head.contains("X-B: theirs");
        client.send(format!(
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
            if wanted && !unwanted { "ok" } else { "no" }
        ));
    });
    let rules = format!(
        r#"
        [[route]]
        path = "/"
        kind = "proxy"
        to = "http://{address}"
        headers = {{ request = {{ set = {{ X-A = "{{path}} {{method}}", X-B = "1" }}, remove = ["Cookie"] }} }}
        "#
    );
    let site = start(driver, &rules, |_| {});
    let reply = site.client().ask("GET", "/x", &[("Cookie", "a=b"), ("X-B", "theirs")]);
    assert_eq!((reply.status, reply.text()), (200, "ok"));
});

/// Answers each request with its head, and with `lines` besides.
fn echo(lines: &'static str) -> String {
    let (address, _) = behind(move |client| {
        while let Some(head) = client.until(b"\r\n\r\n") {
            let length = head.len();
            client.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n{lines}Content-Length: {length}\r\n\r\n"
            ));
            client.send(head);
        }
    });
    format!("http://{address}")
}

drivers!(a_rewritten_path_is_what_files_and_servers_behind_are_asked_for, |driver: DriverName| {
    let to = echo("");
    let rules = format!(
        r#"
        [[route]]
        path = "/old/"
        kind = "static"
        root = "."
        rewrite = "/new/{{rest}}"

        [[route]]
        path = "/api/"
        kind = "proxy"
        to = "{to}"
        rewrite = "/v2/{{rest}}"

        [[route]]
        path = "/base/"
        kind = "proxy"
        to = "{to}/under/"
        rewrite = "/x/{{query.a}}?b=c"
        "#
    );
    let site = start(driver, &rules, |folder| std::fs::create_dir(folder.join("new")).unwrap());
    site.write("new/a.txt", "moved");
    let mut client = site.client();
    assert_eq!(client.get("/old/a.txt").text(), "moved");
    assert_eq!(client.get("/old/b.txt").status, 404);
    assert!(client.get("/api/users?x=1").text().starts_with("GET /v2/users?x=1 HTTP/1.1"));
    assert!(client.get("/base/?a=q%20r").text().starts_with("GET /under/x/q%20r?b=c HTTP/1.1"));
    // What a placeholder brings in is judged as a path is.
    for query in ["..", "%2e%2e/y", "%252e%252e", "y/..;/z"] {
        assert_eq!(client.get(&format!("/base/?a={query}")).status, 400, "{query}");
    }
});

drivers!(addresses_outside_of_the_list_are_refused_and_counted, |driver: DriverName| {
    let rules = r#"
        client_ip = { proxies = ["127.0.0.1"] }
        [[route]]
        path = "/"
        kind = "respond"
        body = "in"
        access = { allow = ["10.0.0.0/8"], deny = ["10.6.6.6"] }

        [[route]]
        path = "/status"
        kind = "respond"
        body = "in"
        access = { deny = ["127.0.0.0/8", "10.1.0.0/16"], status = 404 }

        [[route]]
        path = "/metrics"
        kind = "metrics"
    "#;
    let site = start(driver, rules, |_| {});
    let mut client = site.client();
    for (path, address, status) in [
        ("/", "10.1.2.3", 200),
        ("/", "10.6.6.6", 403),
        ("/", "192.0.2.1", 403),
        ("/status", "10.1.2.3", 404),
        ("/status", "10.2.2.3", 200),
    ] {
        assert_eq!(
            client.ask("GET", path, &[("X-Forwarded-For", address)]).status,
            status,
            "{path} {address}"
        );
    }
    assert_eq!(client.get("/").status, 403);
    let text = client.get("/metrics").text().to_owned();
    assert!(text.contains("ringroad_access_refused_total{route=\"/\"} 3\n"), "{text}");
});

drivers!(pages_of_listed_origins_may_read_answers, |driver: DriverName| {
    let rules = r#"
        [[route]]
        path = "/"
        kind = "respond"
        body = "data"
        methods = ["GET"]
        cors = { origins = ["https://a.example", "https://*.b.example"], credentials = true, expose = ["X-Total"], max_age = "1m" }
        access = { deny = ["10.0.0.0/8"] }

        [[route]]
        path = "/open"
        kind = "respond"
        cors = true
    "#;
    let site = start(driver, rules, |_| {});
    let mut client = site.client();
    let preflight = |origin: &'static str| {
        [
            ("Origin", origin),
            ("Access-Control-Request-Method", "PUT"),
            ("Access-Control-Request-Headers", "x-a, x-b"),
        ]
    };
    let reply = client.ask("OPTIONS", "/", &preflight("https://www.b.example"));
    assert_eq!(reply.status, 204);
    for (name, value) in [
        ("Access-Control-Allow-Origin", "https://www.b.example"),
        ("Access-Control-Allow-Credentials", "true"),
        ("Access-Control-Allow-Methods", "PUT"),
        ("Access-Control-Allow-Headers", "x-a, x-b"),
        ("Access-Control-Max-Age", "60"),
        ("Vary", "Origin"),
    ] {
        assert_eq!(reply.headers(name).collect::<Vec<_>>(), [value], "{name}");
    }
    assert_eq!(client.ask("OPTIONS", "/", &preflight("https://evil.example")).status, 403);
    // OPTIONS is taken for preflight requests only.
    let reply = client.ask("OPTIONS", "/", &[]);
    assert_eq!((reply.status, reply.header("Allow")), (405, Some("GET")));
    let reply = client.ask("GET", "/", &[("Origin", "https://a.example")]);
    assert_eq!(reply.header("Access-Control-Allow-Origin"), Some("https://a.example"));
    assert_eq!(reply.header("Access-Control-Expose-Headers"), Some("X-Total"));
    let reply = client.ask("GET", "/", &[("Origin", "https://evil.example")]);
    assert_eq!((reply.status, reply.header("Access-Control-Allow-Origin")), (200, None));
    assert_eq!(reply.header("Vary"), Some("Origin"));
    let reply = client.ask("GET", "/open", &[("Origin", "https://evil.example")]);
    assert_eq!((reply.header("Access-Control-Allow-Origin"), reply.header("Vary")), (Some("*"), None));
});

drivers!(pages_are_admitted_by_cors_and_not_by_the_endpoint, |driver: DriverName| {
    let to = echo("Access-Control-Allow-Origin: *\r\nAccess-Control-Allow-Credentials: true\r\n");
    let rules = format!(
        "[[route]]\npath = \"/\"\nkind = \"proxy\"\nto = \"{to}\"\ncors = {{ origins = [\"https://a.example\"] }}\n\
         [[route]]\npath = \"/open\"\nkind = \"proxy\"\nto = \"{to}\"\ncors = true\n"
    );
    let site = start(driver, &rules, |_| {});
    let mut client = site.client();
    let mut admitted = |path: &str, lines: &[(&str, &str)]| {
        let reply = client.ask("GET", path, lines);
        assert_eq!((reply.status, reply.header("Access-Control-Allow-Credentials")), (200, None), "{path}");
        let origins: Vec<_> = reply.headers("Access-Control-Allow-Origin").map(str::to_owned).collect();
        origins.join(" and ")
    };
    assert_eq!(admitted("/", &[("Origin", "https://a.example")]), "https://a.example");
    assert_eq!(admitted("/", &[("Origin", "https://evil.example")]), "");
    assert_eq!(admitted("/", &[]), "");
    // Caches have one answer for all then, with the line or without it.
    assert_eq!(admitted("/open", &[]), "*");
    assert_eq!(admitted("/open", &[("Origin", "https://b.example")]), "*");
});

drivers!(secure_headers_are_added_where_an_answer_has_none_of_its_own, |driver: DriverName| {
    let rules = r#"
        client_ip = { proxies = ["127.0.0.1"] }
        secure_headers = { hsts = "365d", subdomains = true, csp = "default-src 'self'" }

        [[route]]
        path = "/"
        kind = "respond"
        headers = { X-Frame-Options = "DENY" }

        [[route]]
        path = "/bare"
        kind = "respond"
        secure_headers = false
    "#;
    let site = start(driver, rules, |_| {});
    let mut client = site.client();
    let reply = client.get("/");
    assert_eq!(reply.headers("X-Frame-Options").collect::<Vec<_>>(), ["DENY"]);
    assert_eq!(reply.header("X-Content-Type-Options"), Some("nosniff"));
    assert_eq!(reply.header("Content-Security-Policy"), Some("default-src 'self'"));
    assert_eq!(reply.header("Strict-Transport-Security"), None);
    let reply = client.ask("GET", "/", &[("X-Forwarded-Proto", "https")]);
    assert_eq!(reply.header("Strict-Transport-Security"), Some("max-age=31536000; includeSubDomains"));
    assert_eq!(client.get("/bare").header("X-Content-Type-Options"), None);
    // An address without a route is answered by the steps of the top.
    assert_eq!(client.get("/%").header("X-Content-Type-Options"), Some("nosniff"));
});

drivers!(refusals_have_pages_of_ones_own_and_answers_from_behind_only_on_request, |driver: DriverName| {
    let (address, _) = behind(|client| {
        while client.until(b"\r\n\r\n").is_some() {
            client.send("HTTP/1.1 404 Not Found\r\nContent-Length: 6\r\nX-From: app\r\n\r\ntheirs");
        }
    });
    let rules = format!(
        r#"
        errors = {{ 404 = "404.html", "4xx" = {{ body = "{{status}} at {{path}}\n" }}, "5xx" = {{ body = "{{{{}}}}", content_type = "application/json" }} }}

        [[route]]
        path = "/"
        kind = "static"
        root = "."

        [[route]]
        path = "/app/"
        kind = "proxy"
        to = "http://{address}"

        [[route]]
        path = "/all/"
        kind = "proxy"
        to = "http://{address}"
        errors = {{ intercept = true, 404 = {{ body = "ours" }} }}

        [[route]]
        path = "/down/"
        kind = "proxy"
        to = "http://127.0.0.1:1"

        [[route]]
        path = "/said"
        kind = "respond"
        status = 404
        body = "as configured"
        "#
    );
    let page = "<h1>Nothing here</h1>";
    let site = start(driver, &rules, |folder| std::fs::write(folder.join("404.html"), page).unwrap());
    let mut client = site.client();
    let reply = client.ask("GET", "/missing", &[("Accept", "text/html")]);
    assert_eq!((reply.status, reply.text()), (404, page));
    assert_eq!(reply.header("Content-Type"), Some("text/html"));
    assert_eq!(reply.header("Content-Security-Policy"), None);
    let reply = client.ask("POST", "/404.html", &[]);
    assert_eq!((reply.status, reply.text()), (405, "405 at /404.html\n"));
    assert_eq!(reply.header("Allow"), Some("GET, HEAD, OPTIONS"));
    let reply = client.get("/%");
    assert_eq!((reply.status, reply.text()), (400, "400 at /%\n"));
    assert_eq!(client.get("/app/").text(), "theirs");
    let reply = client.get("/all/");
    assert_eq!((reply.status, reply.text(), reply.header("X-From")), (404, "ours", Some("app")));
    let reply = client.get("/down/");
    assert_eq!((reply.status, reply.text()), (502, "{}"));
    assert_eq!(client.get("/said").text(), "as configured");
});

drivers!(a_route_has_limits_and_timeouts_of_its_own, |driver: DriverName| {
    let (address, _) = behind(|client| {
        // No answer, until the other side gives up.
        client.rest();
    });
    let rules = format!(
        r#"
        limits.body = "10"
        [[route]]
        path = "/"
        kind = "respond"

        [[route]]
        path = "/large"
        kind = "respond"
        limits = {{ body = "1M" }}

        [[route]]
        path = "/small"
        kind = "respond"
        limits = {{ body = 4 }}

        [[route]]
        path = "/slow"
        kind = "proxy"
        to = "http://{address}"
        timeouts = {{ answer = "50ms" }}

        [[route]]
        path = "/upload"
        kind = "proxy"
        to = "http://{address}"
        timeouts = {{ body = "50ms" }}
        "#
    );
    let site = start(driver, &rules, |_| {});
    for (path, bytes, status) in
        [("/", 10, 200), ("/", 11, 413), ("/large", 100_000, 200), ("/small", 4, 200), ("/small", 5, 413)]
    {
        let mut client = site.client();
        client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {bytes}\r\n\r\n"));
        client.send(vec![b'x'; bytes]);
        assert_eq!(client.reply().status, status, "{path} {bytes}");
    }
    assert_eq!(site.client().get("/slow").status, 504);
    let mut client = site.client();
    client.send("POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nx");
    assert_eq!(client.reply().status, 408);
});

fn decoded(coding: &str, bytes: &[u8]) -> Vec<u8> {
    use std::io::Read;
    let mut out = Vec::new();
    match coding {
        "gzip" => drop(flate2::read::GzDecoder::new(bytes).read_to_end(&mut out).unwrap()),
        "zstd" => drop(zstd::stream::read::Decoder::new(bytes).unwrap().read_to_end(&mut out).unwrap()),
        "br" => drop(brotli::Decompressor::new(bytes, 4096).read_to_end(&mut out).unwrap()),
        other => panic!("{other}"),
    }
    out
}

drivers!(answers_are_compressed_as_the_client_accepts_it, |driver: DriverName| {
    let to = echo("ETag: \"v1\"\r\n");
    let rules = format!(
        r#"
        compress = {{ min = 100 }}
        [[route]]
        path = "/"
        kind = "static"
        root = "."

        [[route]]
        path = "/app/"
        kind = "proxy"
        to = "{to}"

        [[route]]
        path = "/plain/"
        kind = "static"
        root = "."
        compress = false
        "#
    );
    let site = start(driver, &rules, |_| {});
    let text = |bytes: usize| (0..bytes).map(|at| b'a' + (at * at % 7) as u8).collect::<Vec<_>>();
    // In memory, read by the kernel, and too small.
    let files = [
        ("page.html", text(5000)),
        ("large.txt", text(3_000_000)),
        ("small.txt", text(99)),
        ("a.png", text(5000)),
    ];
    for (name, content) in &files {
        site.write(name, content);
    }
    let mut client = site.client();
    for coding in ["gzip", "zstd", "br"] {
        for (name, content) in &files {
            let reply = client.ask("GET", &format!("/{name}"), &[("Accept-Encoding", coding)]);
            let taken = name.starts_with("page") || name.starts_with("large");
            assert_eq!(reply.header("Content-Encoding"), taken.then_some(coding), "{name}");
            if taken {
                assert!(reply.body.len() < content.len(), "{name} {coding}");
                assert!(decoded(coding, &reply.body) == *content, "{name} {coding}");
                assert!(reply.header("ETag").unwrap().starts_with("W/\""), "{name}");
                assert_eq!(reply.header("Vary"), Some("Accept-Encoding"));
                assert_eq!(reply.header("Accept-Ranges"), None);
            } else {
                assert_eq!(reply.body, *content);
            }
        }
    }
    let both = client.ask("GET", "/page.html", &[("Accept-Encoding", "gzip;q=0.5, zstd")]);
    assert_eq!(both.header("Content-Encoding"), Some("zstd"));
    let none = client.get("/page.html");
    assert_eq!((none.header("Content-Encoding"), none.header("Vary")), (None, Some("Accept-Encoding")));
    let part = client.ask("GET", "/page.html", &[("Accept-Encoding", "gzip"), ("Range", "bytes=0-999")]);
    assert_eq!((part.status, part.header("Content-Encoding"), part.body.len()), (206, None, 1000));
    assert_eq!(part.header("Vary"), Some("Accept-Encoding"));
    let secret = client.ask("GET", "/page.html", &[("Accept-Encoding", "gzip"), ("Authorization", "x")]);
    assert_eq!(secret.header("Content-Encoding"), None);
    assert_eq!(
        client.ask("GET", "/plain/page.html", &[("Accept-Encoding", "gzip")]).header("Content-Encoding"),
        None
    );
    // A conditional request with the weak tag finds the same file.
    let tag =
        client.ask("GET", "/page.html", &[("Accept-Encoding", "gzip")]).header("ETag").unwrap().to_owned();
    for (coding, asked) in [("gzip", tag.as_str()), ("identity", tag.trim_start_matches("W/"))] {
        let known = [("Accept-Encoding", coding), ("If-None-Match", asked)];
        let reply = client.ask("GET", "/page.html", &known);
        assert_eq!((reply.status, reply.header("ETag")), (304, Some(asked)));
        assert_eq!(reply.header("Vary"), Some("Accept-Encoding"));
    }
    let long = format!("/app/{}", "x".repeat(200));
    let reply = client.ask("GET", &long, &[("Accept-Encoding", "br")]);
    assert_eq!((reply.header("Content-Encoding"), reply.header("ETag")), (Some("br"), Some("W/\"v1\"")));
    assert!(decoded("br", &reply.body).starts_with(b"GET /app/xxx"));
    let head = client.ask("HEAD", "/page.html", &[("Accept-Encoding", "gzip")]);
    assert_eq!((head.status, head.header("Content-Encoding")), (200, Some("gzip")));
    assert_eq!((head.header("ETag"), head.header("Content-Length")), (Some(tag.as_str()), None));
    assert_eq!(client.ask("HEAD", "/page.html", &[]).header("Content-Length"), Some("5000"));
});

drivers!(a_part_by_date_is_never_joined_to_what_came_compressed, |driver: DriverName| {
    let to = echo("Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n");
    let rules = format!(
        r#"
        compress = {{ min = 100, with = ["gzip"] }}
        [[route]]
        path = "/"
        kind = "static"
        root = "."

        [[route]]
        path = "/app/"
        kind = "proxy"
        to = "{to}"
        "#
    );
    let site = start(driver, &rules, |_| {});
    let text = "a line of text\n".repeat(400);
    site.write("page.txt", &text);
    let mut client = site.client();
    let gzip = ("Accept-Encoding", "gzip");
    let whole = client.ask("GET", "/page.txt", &[gzip]);
    assert_eq!((whole.status, whole.header("Content-Encoding")), (200, Some("gzip")));
    // From then on the date is that of this state only.
    wait_until("the file is no recent one", || {
        let head = client.ask("HEAD", "/page.txt", &[]);
        let date = head.header("Last-Modified").unwrap();
        client.ask("HEAD", "/page.txt", &[("If-Modified-Since", date)]).status == 304
    });
    let head = client.ask("HEAD", "/page.txt", &[]);
    let (tag, date) = (head.header("ETag").unwrap(), head.header("Last-Modified").unwrap());
    let (weak, rest) = (format!("W/{tag}"), ("Range", "bytes=10-"));
    for condition in [("If-Range", date), ("If-Range", &weak), ("If-Unmodified-Since", date)] {
        let reply = client.ask("GET", "/page.txt", &[gzip, rest, condition]);
        assert_eq!((reply.status, reply.header("Content-Encoding")), (200, Some("gzip")), "{condition:?}");
        assert!(decoded("gzip", &reply.body) == text.as_bytes(), "{condition:?}");
    }
    // Where the plain bytes are meant for certain, a part of them is sent.
    let plain = ("Accept-Encoding", "identity");
    for lines in [&[gzip, rest, ("If-Range", tag)][..], &[plain, rest, ("If-Range", date)], &[gzip, rest]] {
        let reply = client.ask("GET", "/page.txt", lines);
        assert_eq!((reply.status, reply.header("Content-Encoding")), (206, None), "{lines:?}");
        assert!(reply.body == text.as_bytes()[10..], "{lines:?}");
    }
    // A server behind is not asked for a part either.
    let asked = |client: &mut Client, coding| {
        let reply = client.ask("GET", "/app/", &[("Accept-Encoding", coding), rest, ("If-Range", date)]);
        let body = match reply.header("Content-Encoding") {
            Some(coding) => decoded(coding, &reply.body),
            None => reply.body.clone(),
        };
        String::from_utf8(body).unwrap().contains("Range: bytes=10-\r\n")
    };
    assert!(!asked(&mut client, "gzip") && asked(&mut client, "identity"));
});

drivers!(a_trace_is_taken_made_and_passed_on, |driver: DriverName| {
    let to = echo("");
    let rules = format!(
        "trace = true\nlog = {{ file = \"log\", format = \"json\" }}\n[[route]]\npath = \"/\"\nkind = \"proxy\"\nto = \"{to}\""
    );
    let site = start(driver, &rules, |_| {});
    let mut client = site.client();
    let line = |text: &str| {
        text.lines().find_map(|line| line.strip_prefix("traceparent: ")).unwrap().trim().to_owned()
    };
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let theirs = format!("00-{trace}-00f067aa0ba902b7-01");
    let reply = client.ask("GET", "/", &[("Traceparent", &theirs), ("Tracestate", "a=b")]);
    let passed = line(reply.text());
    assert!(
        passed.starts_with(&format!("00-{trace}-")) && passed.ends_with("-01") && passed != theirs,
        "{passed}"
    );
    assert!(reply.text().contains("Tracestate: a=b"));
    let reply = client.ask("GET", "/", &[("Traceparent", "00-nonsense"), ("Tracestate", "a=b")]);
    let made = line(reply.text());
    assert!(made.len() == 55 && !made.contains("nonsense") && !reply.text().contains("Tracestate"), "{made}");
    drop(client);
    let log = || std::fs::read_to_string(site.path("log")).unwrap_or_default();
    crate::support::wait_until("two lines", || log().lines().count() == 2);
    assert!(log().contains(&format!("\"trace\":\"{trace}\"")), "{}", log());
});

drivers!(a_folder_is_listed_by_column_and_as_json, |driver: DriverName| {
    let rules = "[[route]]\npath = \"/\"\nkind = \"static\"\nroot = \"files\"\nautoindex = true";
    let site = start(driver, rules, |folder| std::fs::create_dir(folder.join("files")).unwrap());
    site.write("files/a", "123");
    site.write("files/b", "1");
    let mut client = site.client();
    let places = |text: &str| (text.find(">a</a>").unwrap(), text.find(">b</a>").unwrap());
    let (a, b) = places(client.get("/").text());
    assert!(a < b);
    let reply = client.get("/?sort=size");
    let (a, b) = places(reply.text());
    assert!(b < a && reply.text().contains("?sort=size&amp;order=desc"));
    let reply = client.ask("GET", "/", &[("Accept", "application/json")]);
    assert_eq!(
        (reply.header("Content-Type"), reply.header("Vary")),
        (Some("application/json"), Some("Accept"))
    );
    assert!(
        reply.text().contains("{\"name\":\"a\",\"type\":\"file\",\"size\":3,\"modified\":\""),
        "{}",
        reply.text()
    );
    let same = client.get("/?format=json");
    assert_eq!(same.text(), reply.text());
});
