//! Applications behind the server: what Python programs see and what clients get, what happens when workers
//! die, hang, or are replaced.

use crate::support::{Client, Reply, Site, start, wait_until, write};
use ringroad_engine::DriverName;
use ringroad_serve::Event;
use std::io::Write as _;
use std::path::Path;

const WSGI: &str = include_str!("../apps/wsgi_app.py");
const ASGI: &str = include_str!("../apps/asgi_app.py");

/// Whether there is Python here; says so where there is none.
pub(crate) fn python() -> bool {
    let found = std::process::Command::new("python3").arg("--version").output().is_ok();
    if !found {
        // Past the capture of the test harness.
        let _ = writeln!(std::io::stderr(), "skipped: python3 is not installed");
    }
    found
}

/// A site with one application for all paths. Its first requests wait for as long as a busy machine takes to
/// start a process.
pub(crate) fn site(driver: DriverName, app: &str, more: &str) -> Site {
    let patience = if more.contains("queue_timeout") { "" } else { "queue_timeout = \"2m\"\n" };
    let text = format!(
        "log = {{ file = \"log.json\", format = \"json\" }}\ncontrol = \"control.sock\"\n[[app]]\nname = \"web\"\n\
         app = \"{app}\"\npython = \"python3\"\n{patience}{more}\n[[route]]\npath = \"/\"\nkind = \"app\"\napp = \"web\"\n"
    );
    start(driver, &text, prepare)
}

fn prepare(folder: &Path) {
    write(folder, "wsgi_app.py", WSGI);
    write(folder, "asgi_app.py", ASGI);
}

/// Asks the control socket.
pub(crate) fn ask(site: &Site, question: &str) -> serde_json::Value {
    ask_at(&site.path("control.sock"), question)
}

/// Asks at a control socket.
pub(crate) fn ask_at(socket: &Path, question: &str) -> serde_json::Value {
    use std::io::{BufRead, BufReader};
    let mut stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
    stream.write_all(format!("{question}\n").as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap()
}

/// Processes in a state.
pub(crate) fn workers(site: &Site, state: &str) -> Vec<serde_json::Value> {
    let status = ask(site, "{\"do\":\"status\"}");
    let all = status["ok"][0]["workers"].as_array().unwrap().clone();
    all.into_iter().filter(|worker| worker["state"] == state).collect()
}

fn post(client: &mut Client, path: &str, body: &[u8]) -> Reply {
    client
        .send(format!("POST {path} HTTP/1.1\r\nHost: example.org\r\nContent-Length: {}\r\n\r\n", body.len()));
    client.send(body).reply()
}

/// Waits for a line of an application.
pub(crate) fn told(site: &Site, part: &str) -> String {
    loop {
        let line = site.event().to_string();
        if line.contains(part) {
            return line;
        }
    }
}

drivers!(a_wsgi_application_gets_and_gives_what_pep_3333_says, |driver: DriverName| {
    if !python() {
        return;
    }
    let site = site(driver, "wsgi_app:app", "workers = 1");
    let mut client = site.client();
    assert_eq!(client.get("/caf%C3%A9/%2e%ff").text(), "'/caf\\xc3\\xa9/.\\xff'");
    let headers = client.get("/headers");
    assert_eq!(headers.headers("X-B").collect::<Vec<_>>(), ["1", "3"]);
    assert_eq!(headers.headers("Set-Cookie").collect::<Vec<_>>(), ["a=1", "b=2"]);
    let order: Vec<_> = headers.head.lines().filter(|line| line.starts_with("X-")).collect();
    assert_eq!(order, ["X-B: 1", "X-A: 2", "X-B: 3"]);
    let names = "REQUEST_METHOD,SCRIPT_NAME,PATH_INFO,SERVER_NAME,SERVER_PORT,SERVER_PROTOCOL,HTTP_COOKIE,HTTP_X_A,\
                 wsgi.url_scheme,wsgi.multithread,wsgi.run_once,wsgi.input_terminated,HTTP_PROXY,HTTP_X_FORWARDED_FOR";
    let lines = [
        ("Cookie", "a=1"),
        ("X-A", "1"),
        ("Cookie", "b=2"),
        ("X-A", "2"),
        ("X_A", "evil"),
        ("Proxy", "x"),
        ("X-Forwarded-For", "192.0.2.7"),
    ];
    let told = client.ask("GET", &format!("/environ?{names}"), &lines);
    assert_eq!(
        told.text(),
        "['GET', '', '/environ', 'example.org', '80', 'HTTP/1.1', 'a=1; b=2', '1,2', 'http', False, False, True, \
         None, None]"
    );
    assert_eq!(client.get("/write").text(), "written twice returned");
    assert_eq!(client.get("/chunked").text(), "one two three");
    assert_eq!(client.get("/exc-info").status, 500);
    for size in [0, 1, 100_000, 3_000_000] {
        let body: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
        assert!(post(&mut client, "/echo", &body).body == body, "{size}");
    }
    let lines = post(&mut client, "/lines", b"first\nsecond\nthird");
    assert_eq!(lines.text(), "(b'first\\n', [b'second\\n', b'third'], b'')");
    // What a handler gets wrong is 500, and the next request is served.
    for path in ["/boom", "/twice", "/smuggle"] {
        let reply = client.get(path);
        assert_eq!((reply.status, reply.header("X-Evil")), (500, None), "{path}");
    }
    assert_eq!(client.get("/long").text(), "much");
    let head = client.ask("HEAD", "/pid", &[]);
    assert!(head.status == 200 && head.header("Content-Length") != Some("0"), "{head:?}");
    // Behind its head an answer can only be cut.
    for path in ["/boom-late", "/short"] {
        let mut cut = site.client();
        cut.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(cut.try_reply(false), None, "{path}");
    }
    let closed = || std::fs::read_to_string(site.path("closed")).unwrap_or_default().lines().count();
    assert_eq!(closed(), 2);
    // close() is called also when the client leaves.
    let mut endless = site.client();
    endless.send("GET /endless HTTP/1.1\r\nHost: a\r\n\r\n").until(b"xxxx").unwrap();
    endless.reset();
    wait_until("close() behind a client that left", || closed() == 3);
    assert_eq!(site.client().get("/chunked").text(), "one two three");
});

drivers!(a_file_of_a_wsgi_application_is_sent_by_the_server, |driver: DriverName| {
    if !python() {
        return;
    }
    let site = site(driver, "wsgi_app:raw", "workers = 1");
    let mut client = site.client();
    for _ in 0..3 {
        assert_eq!(client.get("/file").text(), &WSGI[3..]);
    }
    client.send("GET /latin HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.until(b"\r\n\r\n").unwrap().windows(13).any(|part| part == b"X-Latin: caf\xe9"));
});

/// Answers with a header line that HTTP forbids, or a body that is no bytes, in both protocols.
const FORBIDDEN: &str = r#"
import os

def wsgi(environ, start_response):
    path = environ["PATH_INFO"]
    if path == "/text":
        start_response("200 OK", [])
        return ["text"]
    start_response("200 OK", [("X Forbidden", "1")] if path != "/pid" else [])
    return [str(os.getpid()).encode()] if path != "/parts" else iter([b"one", b"two"])

async def asgi(scope, receive, send):
    path = scope["path"]
    headers = [(b"X Forbidden", b"1")] if path not in ("/pid", "/text") else []
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    if path == "/text":
        return await send({"type": "http.response.body", "body": "text"})
    if path == "/parts":
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
    await send({"type": "http.response.body", "body": str(os.getpid()).encode()})
"#;

/// Orders the server to send a file, with the lines of the query.
const ORDERS: &str = r#"
from urllib.parse import parse_qsl

LINES = [("Content-Type", "x/y"), ("Set-Cookie", "a=b"), ("X-Own", "application")]

def wsgi(environ, start_response):
    start_response("202 Accepted", LINES + parse_qsl(environ["QUERY_STRING"]))
    return [b"not this"]

async def asgi(scope, receive, send):
    lines = LINES + parse_qsl(scope["query_string"].decode())
    headers = [(name.encode(), value.encode()) for name, value in lines]
    await send({"type": "http.response.start", "status": 202, "headers": headers})
    await send({"type": "http.response.body", "body": b"not ", "more_body": True})
    await send({"type": "http.response.body", "body": b"this"})
"#;

drivers!(a_file_that_an_application_names_is_sent_from_listed_folders_only, |driver: DriverName| {
    if !python() {
        return;
    }
    for app in ["wsgi", "asgi"] {
        let text = format!(
            "[[app]]\nname = \"web\"\napp = \"orders:{app}\"\npython = \"python3\"\nworkers = 1\nqueue_timeout = \"2m\"\n\
             [[route]]\npath = \"/\"\nkind = \"app\"\napp = \"web\"\nheaders = {{ X-Own = \"route\" }}\n\
             sendfile = {{ \"/protected/\" = \"private\" }}\n\
             [[route]]\npath = \"/without/\"\nkind = \"app\"\napp = \"web\"\n"
        );
        let site = start(driver, &text, |folder| {
            write(folder, "orders.py", ORDERS);
            std::fs::create_dir(folder.join("private")).unwrap();
            write(folder, "private/a b.txt", "a private file");
        });
        let place = site.path("private").canonicalize().unwrap();
        let mut client = site.client();
        for order in [
            "X-Accel-Redirect=/protected/a%2520b.txt".to_owned(),
            format!("X-Sendfile={}/a%20b.txt", place.display()),
        ] {
            let reply = client.get(&format!("/?{order}"));
            assert_eq!((reply.status, reply.text()), (200, "a private file"), "{app} {order}");
            for (name, value) in [("Content-Type", "x/y"), ("X-Own", "route"), ("Set-Cookie", "a=b")] {
                assert_eq!(reply.headers(name).collect::<Vec<_>>(), [value], "{app} {order}");
            }
            assert_eq!((reply.header("X-Sendfile"), reply.header("X-Accel-Redirect")), (None, None));
            let part = client.ask("GET", &format!("/?{order}"), &[("Range", "bytes=2-8")]);
            assert_eq!((part.status, part.text()), (206, "private"), "{app} {order}");
        }
        for order in [
            "X-Accel-Redirect=/other/a",
            "X-Accel-Redirect=/protected/../orders.py",
            "X-Sendfile=/etc/hostname",
        ] {
            assert_eq!(client.get(&format!("/?{order}")).status, 404, "{app} {order}");
        }
        // What orders nothing, or where there is nothing to order, is as ever.
        assert_eq!((client.get("/").status, client.get("/").text()), (202, "not this"), "{app}");
        let without = client.get("/without/?X-Sendfile=/etc/hostname");
        assert_eq!(
            (without.text(), without.header("X-Sendfile")),
            ("not this", Some("/etc/hostname")),
            "{app}"
        );
    }
});

drivers!(an_answer_that_is_not_allowed_costs_its_request_and_no_place, |driver: DriverName| {
    if !python() {
        return;
    }
    for app in ["wsgi", "asgi"] {
        let text = format!(
            "[[app]]\nname = \"web\"\napp = \"forbidden:{app}\"\npython = \"python3\"\nworkers = 1\n\
             concurrency = 1\nqueue_timeout = \"2m\"\n[[route]]\npath = \"/\"\nkind = \"app\"\napp = \"web\"\n"
        );
        let site = start(driver, &text, |folder| write(folder, "forbidden.py", FORBIDDEN));
        let pid = site.client().get("/pid").text().to_owned();
        for (path, status) in [("/whole", 502), ("/parts", 502), ("/whole", 502), ("/text", 500)] {
            assert_eq!(site.client().get(path).status, status, "{app} {path}");
            if status == 502 {
                let line = told(&site, &format!("on GET {path}: "));
                let named =
                    "the worker sent a header line that HTTP forbids, \"X Forbidden: 1\": its name has \" \"";
                assert!(line.ends_with(named), "{line}");
            }
            // The worker has its place again, and was not replaced.
            assert_eq!(site.client().get("/pid").text(), pid, "{app} {path}");
        }
    }
});

/// A body without an end soon, with or without bytes.
const LEFT: &str = r#"
import os, sys, time

class Body:
    def __init__(self, piece):
        self.pieces = self.yielded(piece)
        self.is_over = False

    def yielded(self, piece):
        yield b"first"
        for _ in range(60000):
            time.sleep(0.001)
            yield piece
        self.is_over = True

    def __iter__(self):
        return self.pieces

    def close(self):
        print("closed at its end" if self.is_over else "closed before its end", flush=True)

def app(environ, start_response):
    start_response("200 OK", [])
    return Body(b"more" if environ["PATH_INFO"] == "/bytes" else b"")
"#;

drivers!(an_iterable_of_a_wsgi_application_ends_when_its_client_has_left, |driver: DriverName| {
    if !python() {
        return;
    }
    let text = "[[app]]\nname = \"web\"\napp = \"left:app\"\npython = \"python3\"\nworkers = 1\n\
                queue_timeout = \"2m\"\n[[route]]\npath = \"/\"\nkind = \"app\"\napp = \"web\"\n";
    let site = start(driver, text, |folder| write(folder, "left.py", LEFT));
    for path in ["/bytes", "/empty"] {
        let mut client = site.client();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).until(b"first").unwrap();
        drop(client);
        assert!(told(&site, "closed").ends_with("closed before its end"), "{path}");
    }
});

drivers!(an_asgi_application_gets_and_gives_what_its_specification_says, |driver: DriverName| {
    if !python() {
        return;
    }
    let site = site(driver, "asgi_app:app", "workers = 1\nroot_path = \"/shop\"");
    let mut client = site.client();
    let lines = [("X-A", "1"), ("x-a", "2"), ("X_A", "evil"), ("X-Forwarded-For", "192.0.2.7")];
    let scope: serde_json::Value =
        serde_json::from_slice(&client.ask("GET", "/scope?a=%20b", &lines).body).unwrap_or_default();
    assert_eq!(scope, serde_json::Value::Null, "the path has the root before it");
    let scope = client.ask("GET", "/shop/scope", &lines);
    assert_eq!(scope.text(), "'/shop/scope'");
    // What was received, with nothing before it and nothing decoded.
    assert_eq!(client.get("/shop/raw%20path/%7E%c3%a9?a=1").text(), "/shop/raw%20path/%7E%c3%a9 root /shop");
    drop(site);

    // The stream at the end is cut when this time is over.
    let site = self::site(driver, "asgi_app:app", "workers = 1\nstop_timeout = \"8s\"");
    let mut client = site.client();
    let scope: serde_json::Value =
        serde_json::from_slice(&client.ask("GET", "/scope?a=%20b", &lines).body).unwrap();
    assert_eq!(scope["asgi"], serde_json::json!({ "version": "3.0", "spec_version": "2.5" }));
    assert_eq!(scope["query_string"], "a=%20b");
    assert_eq!(
        (&scope["type"], &scope["http_version"], &scope["scheme"]),
        (&"http".into(), &"1.1".into(), &"http".into())
    );
    assert_eq!(scope["headers"], serde_json::json!([["host", "example.org"], ["x-a", "1"], ["x-a", "2"]]));
    assert_eq!(scope["server"], serde_json::json!(["example.org", 80]));
    assert_eq!(scope["client"][0], "127.0.0.1");
    assert_eq!(scope["state"]["started"], "yes");
    assert_eq!(client.get("/caf%C3%A9/%ff").text(), "'/caf\\xe9/\\ufffd'");
    // Each request has a copy of the state, of which the things are the same.
    assert_eq!(client.get("/state").text(), "None yes 1");
    assert_eq!(client.get("/state").text(), "None yes 2");
    for size in [0, 1, 100_000, 3_000_000] {
        let body: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
        assert!(post(&mut client, "/echo", &body).body == body, "{size}");
    }
    let headers = client.get("/headers");
    assert_eq!(headers.headers("x-b").collect::<Vec<_>>(), ["1", "3"]);
    assert_eq!((headers.header("Transfer-Encoding"), headers.text()), (None, "ok"));
    assert_eq!(client.get("/stream").body.len(), 3_000_000);
    for path in ["/boom", "/nothing", "/smuggle", "/long", "/short"] {
        assert_eq!(client.get(path).status, 500, "{path}");
    }
    let mut cut = site.client();
    cut.send("GET /late HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(cut.try_reply(false), None);
    let head = client.ask("HEAD", "/pid", &[]);
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(client.get("/path").text(), ASGI);
    // The length of an answer to HEAD is that of the answer to GET, or is not told.
    let head = client.ask("HEAD", "/path", &[]);
    assert_eq!((head.status, head.header("Content-Length")), (200, None));
    assert_eq!(client.get("/zero").text(), &ASGI[3..23]);
    assert_eq!(client.get("/zero-parts").text(), &ASGI[..20]);
    // Trailers for those that accept them.
    client.send("GET /trailers HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: TE\r\n\r\n");
    let trailed = String::from_utf8(client.until(b"\r\n0\r\nx-sum: 42\r\n\r\n").unwrap()).unwrap();
    assert!(trailed.contains("body"), "{trailed}");
    assert_eq!(client.get("/trailers").text(), "body");
    let events = || std::fs::read_to_string(site.path("events")).unwrap_or_default();
    // Disconnects come when they are to come.
    client.get("/after");
    wait_until("the end of /after", || events().contains("then: http.disconnect"));
    assert!(events().contains("after: the answer is complete already"), "{}", events());
    let mut left = site.client();
    left.send("GET /events HTTP/1.1\r\nHost: a\r\n\r\n").until(b"data: 0").unwrap();
    left.reset();
    wait_until("send() behind a client that left", || events().contains("send: OSError"));
    let mut left = site.client();
    left.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("the request", || events().contains("waiting"));
    left.reset();
    wait_until("the disconnect", || events().matches("left: http.disconnect").count() == 2);
    // Streams end with a disconnect at the stop, and the lifespan ends last.
    let mut stream = site.client();
    stream.send("GET /events HTTP/1.1\r\nHost: a\r\n\r\n").until(b"data: 0").unwrap();
    ask(&site, "{\"do\":\"restart\"}");
    drop(stream);
    let left = |events: &str| events.matches("left: http.disconnect").count();
    wait_until("the end of the stream", || left(&events()) == 3);
    let Site { folder, service, .. } = site;
    service.stop().unwrap();
    let events = std::fs::read_to_string(folder.path().join("events")).unwrap();
    assert!(events.starts_with("startup\n") && events.ends_with("shutdown\n"), "{events}");
});

drivers!(early_hints_of_an_application_come_before_its_answer, |driver: DriverName| {
    if !python() {
        return;
    }
    const HINTS: &str =
        "HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\nlink: </b.js>; rel=preload\r\n\r\n";
    let site = site(driver, "asgi_app:app", "workers = 1");
    let mut client = site.client();
    client.send("GET /hints?slow HTTP/1.1\r\nHost: a\r\n\r\n");
    // The answer waits until the hints are here.
    assert_eq!(client.until(b"\r\n\r\n").unwrap(), HINTS.as_bytes());
    site.write("seen", "");
    assert_eq!(client.reply().text(), "hinted");
    client.send("GET /hints HTTP/1.1\r\nHost: a\r\n\r\nGET /pid HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.until(b"\r\n\r\n").unwrap(), HINTS.as_bytes());
    assert_eq!(client.reply().text(), "hinted");
    assert_eq!(client.reply().status, 200);
    // A client of HTTP/1.0 knows none.
    client.send("GET /hints HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(client.reply().text(), "hinted");
    let site = self::site(driver, "wsgi_app:app", "workers = 1");
    let mut client = site.client();
    client.send("GET /hints HTTP/1.1\r\nHost: a\r\n\r\n");
    let hints = String::from_utf8(client.until(b"\r\n\r\n").unwrap()).unwrap();
    assert_eq!(hints.to_ascii_lowercase(), "http/1.1 103 early hints\r\nlink: </a.css>; rel=preload\r\n\r\n");
    assert_eq!(client.reply().text(), "hinted");
});

drivers!(applications_of_every_kind_are_recognised, |driver: DriverName| {
    if !python() {
        return;
    }
    for (app, more, expected) in [
        ("wsgi_app:factory", "factory = true", "'/x'"),
        ("wsgi_app:factory()", "", "'/x'"),
        ("asgi_app:factory", "factory = true", "'/x'"),
        ("asgi_app:without_lifespan", "", "served"),
        ("asgi_app:old", "", "version 2"),
        ("asgi_app:Old", "", "version 2"),
        ("asgi_app:wrapped", "", "'/x'"),
    ] {
        let site = site(driver, app, &format!("workers = 1\n{more}"));
        assert_eq!(site.client().get("/x").text(), expected, "{app}");
    }
});

drivers!(an_application_that_raises_in_its_lifespan_is_served_and_the_log_tells, |driver: DriverName| {
    if !python() {
        return;
    }
    let site = site(driver, "asgi_app:raises", "workers = 1");
    assert_eq!(site.client().get("/").text(), "served all the same");
    told(&site, "ValueError: no database");
    told(&site, "the application raised at lifespan.startup: it is served without a lifespan");
});

drivers!(an_application_that_does_not_start_is_503_and_says_why, |driver: DriverName| {
    if !python() {
        return;
    }
    for (app, why) in [
        ("asgi_app:refuses", "no database"),
        ("asgi_app:exits", "it exited at lifespan.startup: DATABASE_URL is not set"),
        ("wsgi_app:factory", "wsgi_app:factory takes no arguments: it makes the application?"),
        ("wsgi_app:of_four", "missing a required argument"),
        ("missing_module:app", "No module named 'missing_module'"),
        ("wsgi_app:missing", "has no attribute 'missing'"),
        ("wsgi_app:WSGI", "has no attribute"),
    ] {
        let site = site(driver, app, "workers = 1\ndev = true");
        let mut client = site.client();
        let reply = client.ask("GET", "/", &[("Accept", "text/html")]);
        assert_eq!(reply.status, 503);
        assert!(
            reply.header("Retry-After").is_some() && reply.header("Refresh") == Some("1"),
            "{}",
            reply.head
        );
        assert!(reply.text().replace("&#39;", "'").contains(why), "{}", reply.text());
        // Without the frames of the runner and of the import.
        assert!(!reply.text().contains("importlib") && !reply.text().contains("in load"), "{}", reply.text());
    }
});

drivers!(a_script_that_is_no_program_is_told_with_what_runs_it, |driver: DriverName| {
    let text = "[[app]]\nname = \"web\"\ncommand = [\"./server.js\"]\nworkers = 1\nqueue_timeout = \"2m\"\ndev = true\n\
                [[route]]\npath = \"/\"\nkind = \"app\"\napp = \"web\"\n";
    let site = start(driver, text, |folder| write(folder, "server.js", "// no program"));
    let reply = site.client().get("/");
    let hint = "Permission denied (os error 13; it is no program: write \"node ./server.js\")";
    assert!(reply.status == 503 && reply.text().contains(hint), "{}", reply.text());
});

drivers!(a_program_that_is_not_found_is_told_with_its_path_in_a_virtual_environment, |driver: DriverName| {
    let text = "[[app]]\nname = \"web\"\ncommand = [\"no-such-program\"]\nworkers = 1\nqueue_timeout = \"2m\"\ndev = true\n\
                [[route]]\npath = \"/\"\nkind = \"app\"\napp = \"web\"\n";
    for (is_there, hint) in [
        (false, "No such file or directory (os error 2; it is not in PATH)"),
        (true, "(os error 2; it is not in PATH, but here: write \".venv/bin/no-such-program\")"),
    ] {
        let site = start(driver, text, |folder| {
            if is_there {
                std::fs::create_dir_all(folder.join(".venv/bin")).unwrap();
                write(folder, ".venv/bin/no-such-program", "");
            }
        });
        let reply = site.client().get("/");
        let told = reply.text().replace("&quot;", "\"").replace("&#34;", "\"");
        assert!(reply.status == 503 && told.contains(hint), "{told}");
    }
});

drivers!(a_request_whose_worker_dies_is_given_to_another_one, |driver: DriverName| {
    if !python() {
        return;
    }
    let site = site(driver, "wsgi_app:app", "workers = 2");
    // Repeated once: it is idempotent, and no byte of an answer had come.
    assert_eq!(site.client().get("/exit-once").text(), "second");
    std::fs::remove_file(site.path("once")).unwrap();
    assert_eq!(post(&mut site.client(), "/exit-once", b"body").status, 502);
    let line = told(&site, "on POST /exit-once: ");
    assert!(line.contains(": app web[") && line.ends_with("]: the worker died"), "{line}");
    // Once, not for ever.
    assert_eq!(site.client().get("/exit").status, 502);
    assert_eq!(site.client().get("/x").text(), "'/x'");
});

drivers!(a_request_that_takes_too_long_is_504_and_its_worker_is_replaced, |driver: DriverName| {
    if !python() {
        return;
    }
    let site = site(driver, "wsgi_app:app", "workers = 1\ntimeout = \"500ms\"\nkill_after = \"100ms\"");
    let mut client = site.client();
    // A busy machine may be late with this as well: then again.
    let answering = |client: &mut Client| {
        let mut pid = String::new();
        wait_until("an answer in time", || {
            let reply = client.get("/pid");
            assert!(matches!(reply.status, 200 | 504), "{reply:?}");
            pid = reply.text().to_owned();
            reply.status == 200
        });
        pid
    };
    let pid = answering(&mut client);
    assert_eq!(client.get("/sleep?3600").status, 504);
    told(&site, "killed: a request that was given up goes on");
    // And where the program was.
    told(&site, "wsgi_app.py\", line");
    assert_ne!(answering(&mut client), pid);
});

/// A request that takes the only place of a site until there is a file `release`.
fn holding(site: &Site) -> Client {
    let mut held = site.client();
    held.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("it is held", || {
        let ready = workers(site, "ready");
        ready.len() == 1 && ready[0]["in_flight"] == 1
    });
    held
}

drivers!(a_full_queue_is_503_with_the_time_to_come_again, |driver: DriverName| {
    if !python() {
        return;
    }
    let more = "workers = 1\nqueue = 1\nqueue_timeout = \"1h\"\ntimeout = \"1h\"\nping = 0";
    let site = site(driver, "wsgi_app:app", more);
    let mut held = holding(&site);
    let mut waits = site.client();
    waits.send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
    let wait = || ask(&site, "{\"do\":\"status\"}")["ok"][0]["waiting"] == 1;
    wait_until("a request that waits", wait);
    let refused = site.client().get("/x");
    // By the rate of requests, of which one in ten seconds is the least that counts.
    let seconds = refused.header("Retry-After").map(|seconds| seconds.parse::<u64>().unwrap());
    assert!(refused.status == 503 && seconds.is_some_and(|s| (1..=10).contains(&s)), "{refused:?}");
    site.write("release", "");
    assert_eq!(held.reply().text(), "held");
    assert_eq!(waits.reply().text(), "'/x'");
});

drivers!(a_request_waits_in_the_queue_no_longer_than_it_may_and_is_503_then, |driver: DriverName| {
    if !python() {
        return;
    }
    let more = "workers = 1\nqueue = 1\nqueue_timeout = \"300ms\"\ntimeout = \"1h\"\nping = 0";
    let site = site(driver, "wsgi_app:app", more);
    wait_until("a worker", || workers(&site, "ready").len() == 1);
    let mut held = holding(&site);
    // One of them waits. The other one finds the queue full, or comes when that one has been given up.
    let mut both = [site.client(), site.client()];
    for client in &mut both {
        client.send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    for client in &mut both {
        let refused = client.reply();
        // No longer than the queue's own time, after which it is another one.
        assert_eq!((refused.status, refused.header("Retry-After")), (503, Some("1")), "{refused:?}");
    }
    told(&site, "no worker was free within 300ms");
    site.write("release", "");
    assert_eq!(held.reply().text(), "held");
});

#[test]
fn a_broken_application_keeps_no_other_from_its_reload() {
    if !python() {
        return;
    }
    let app = |name: &str, module: &str| {
        format!(
            "[[app]]\nname = \"{name}\"\napp = \"{module}:app\"\npython = \"python3\"\nworkers = 1\nqueue_timeout = \"2m\"\n\
             [[route]]\npath = \"/{name}\"\nkind = \"app\"\napp = \"{name}\"\n"
        )
    };
    let text = format!("control = \"control.sock\"\n{}{}", app("broken", "first"), app("sound", "second"));
    let site = start(DriverName::Epoll, &text, |folder| {
        write(folder, "first.py", WSGI);
        write(folder, "second.py", WSGI);
    });
    let mut client = site.client();
    assert_eq!((client.get("/broken").status, client.get("/sound").status), (200, 200));
    site.write("first.py", "raise RuntimeError('release 2 is broken')\n");
    site.write("second.py", WSGI.replace("ascii(path)", "'release 2'"));
    let told = ask(&site, "{\"do\":\"reload\"}");
    let error = told["error"].as_str().unwrap();
    assert!(
        error.contains("release 2 is broken") && error.contains("; sound: generation 2 serves"),
        "{told}"
    );
    assert_eq!(client.get("/sound").text(), "release 2");
    let told = ask(&site, "{\"do\":\"scale\",\"workers\":2}");
    assert_eq!(told["error"], "name the application to scale, by --app: broken or sound");
}

drivers!(a_reload_makes_new_workers_and_a_broken_release_changes_nothing, |driver: DriverName| {
    if !python() {
        return;
    }
    let site = site(driver, "wsgi_app:app", "workers = 2");
    let mut client = site.client();
    wait_until("two workers", || workers(&site, "ready").len() == 2);
    let pids = || workers(&site, "ready").iter().map(|one| one["pid"].clone()).collect::<Vec<_>>();
    let before = pids();
    site.write("wsgi_app.py", format!("raise RuntimeError('release 2 is broken')\n{WSGI}"));
    let told = ask(&site, "{\"do\":\"reload\"}");
    assert!(told["error"].as_str().unwrap().contains("release 2 is broken"), "{told}");
    assert_eq!(pids(), before);
    site.write("wsgi_app.py", WSGI.replace("ascii(path)", "'release 3'"));
    let told = ask(&site, "{\"do\":\"reload\"}");
    assert!(told["ok"]["web"].as_str().is_some(), "{told}");
    assert_eq!(client.get("/x").text(), "release 3");
    // SIGHUP of the server is a reload of its applications as well.
    site.write("wsgi_app.py", WSGI.replace("ascii(path)", "'release 4'"));
    let mut site = site;
    site.service.reload();
    wait_until("the new release", || site.client().get("/x").text() == "release 4");
});

drivers!(requests_are_answered_while_workers_are_replaced_and_killed, |driver: DriverName| {
    if !python() {
        return;
    }
    let site = site(driver, "wsgi_app:app", "workers = 2\nmax_requests = 20");
    let mut client = site.client();
    let mut pids = std::collections::HashSet::new();
    for round in 0..200 {
        let reply = client.get("/pid");
        assert_eq!(reply.status, 200, "{round}");
        let pid: i32 = reply.text().parse().unwrap();
        pids.insert(pid);
        if round % 50 == 49 {
            let pid = rustix::process::Pid::from_raw(pid).unwrap();
            // One that is being replaced may have ended already.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
    wait_until("replacements", || {
        let pid = client.get("/pid").text().parse().unwrap();
        pids.insert(pid);
        pids.len() > 4
    });
});

drivers!(workers_that_grow_too_large_are_replaced, |driver: DriverName| {
    if !python() {
        return;
    }
    let site = site(driver, "wsgi_app:app", "workers = 1\nmemory = \"200M\"");
    let mut client = site.client();
    let pid = client.get("/memory?300000000").text().to_owned();
    wait_until("another process", || site.client().get("/pid").text() != pid);
    let status = ask(&site, "{\"do\":\"status\"}");
    assert_eq!(status["ok"][0]["restarts"]["memory"], 1, "{status}");
});

drivers!(a_worker_above_the_hard_limit_of_memory_is_killed, |driver: DriverName| {
    if !python() {
        return;
    }
    let site = site(driver, "wsgi_app:app", "workers = 1\nmemory_hard = \"200M\"");
    let mut client = site.client();
    let pid = client.get("/pid").text().to_owned();
    // It may be killed before it has answered, or behind that.
    post(&mut site.client(), "/memory?300000000", b"");
    told(&site, "more than memory_hard");
    assert_ne!(client.get("/pid").text(), pid);
    assert_eq!(ask(&site, "{\"do\":\"status\"}")["ok"][0]["restarts"]["memory_hard"], 1);
});

drivers!(an_old_worker_is_replaced_without_a_failed_request, |driver: DriverName| {
    if !python() {
        return;
    }
    let site = site(driver, "asgi_app:app", "workers = 1\nmax_age = \"500ms\"");
    let mut client = site.client();
    let mut pids = std::collections::HashSet::new();
    wait_until("replacements", || {
        let reply = client.get("/pid");
        assert_eq!(reply.status, 200);
        pids.insert(reply.text().to_owned());
        pids.len() == 4
    });
    assert!(ask(&site, "{\"do\":\"status\"}")["ok"][0]["restarts"]["max_age"].as_u64().unwrap() >= 3);
});

drivers!(a_worker_that_answers_no_ping_is_killed, |driver: DriverName| {
    if !python() {
        return;
    }
    let site = site(driver, "asgi_app:app", "workers = 1\nping = \"1s\"");
    assert_eq!(post(&mut site.client(), "/block", b"").status, 502);
    told(&site, "no answer to a ping");
    assert_eq!(site.client().get("/pid").status, 200);
    assert_eq!(ask(&site, "{\"do\":\"status\"}")["ok"][0]["restarts"]["ping"].as_u64().unwrap().min(1), 1);
});

drivers!(an_application_that_always_ends_at_its_start_is_503_until_it_is_mended, |driver: DriverName| {
    if !python() {
        return;
    }
    let more = "workers = 1\nbackoff = [\"50ms\", \"1h\"]";
    let text = format!(
        "control = \"control.sock\"\n[[app]]\nname = \"web\"\napp = \"ends:app\"\n{more}\n[[route]]\npath = \"/\"\n\
         kind = \"app\"\napp = \"web\"\n"
    );
    let site = start(driver, &text, |folder: &Path| {
        write(folder, "ends.py", "open('starts', 'a').write('x')\nraise SystemExit('no database')\n");
    });
    let starts = || std::fs::read_to_string(site.path("starts")).unwrap_or_default().len();
    wait_until("some starts", || starts() >= 4);
    let reply = site.client().get("/");
    assert!(reply.status == 503 && reply.header("Retry-After").is_some(), "{reply:?}");
    let trouble = ask(&site, "{\"do\":\"status\"}")["ok"][0]["trouble"].clone();
    assert!(trouble.as_str().unwrap().contains("no database"), "{trouble}");
    // A reload begins anew, and tells why it fails.
    let told = ask(&site, "{\"do\":\"reload\"}");
    assert!(told["error"].as_str().unwrap().contains("no database"), "{told}");
    // Mended, it serves at once, however long the next try was away.
    write(site.folder.path(), "ends.py", WSGI);
    assert!(ask(&site, "{\"do\":\"reload\"}")["ok"].is_object());
    assert_eq!(site.client().get("/x").status, 200);
});

drivers!(more_workers_are_started_while_requests_wait_and_end_when_idle, |driver: DriverName| {
    if !python() {
        return;
    }
    let site = site(driver, "wsgi_app:app", "workers = 1\nworkers_max = 3\nidle = \"500ms\"");
    let mut busy: Vec<_> = (0..2).map(|_| site.client()).collect();
    for client in &mut busy {
        client.send("GET /sleep?3 HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    assert_eq!(site.client().get("/x").status, 200);
    assert!(busy.iter_mut().all(|client| client.reply().text() == "slept"));
    wait_until("one worker", || workers(&site, "ready").len() == 1);
    assert_eq!(ask(&site, "{\"do\":\"scale\",\"workers\":2}")["ok"]["web"], "2 workers");
    wait_until("two workers", || workers(&site, "ready").len() == 2);
    assert_eq!(site.client().get("/x").status, 200);
});

drivers!(a_worker_ends_when_the_others_have_places_for_all_requests, |driver: DriverName| {
    if !python() {
        return;
    }
    let site = site(
        driver,
        "wsgi_app:app",
        "workers = 1\nworkers_max = 2\nconcurrency = 2\nidle = \"500ms\"\ntimeout = \"5m\"\nping = 0",
    );
    // Two are waited for; the third one has another worker started.
    let mut held: Vec<_> = (0..2).map(|_| site.client()).collect();
    for client in &mut held {
        client.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    assert_eq!(site.client().get("/x").status, 200);
    wait_until("one worker, with both of them", || {
        let ready = workers(&site, "ready");
        ready.len() == 1 && ready[0]["in_flight"] == 2
    });
    site.write("release", "");
    assert!(held.iter_mut().all(|client| client.reply().text() == "held"));
});

drivers!(a_worker_that_starts_for_longer_than_idle_serves_what_waits_for_it, |driver: DriverName| {
    if !python() {
        return;
    }
    let text = "control = \"control.sock\"\n[[app]]\nname = \"web\"\napp = \"slow:app\"\npython = \"python3\"\n\
                workers = 1\nworkers_max = 2\nconcurrency = 1\nidle = \"50ms\"\nqueue_timeout = \"1m\"\n\
                timeout = \"5m\"\nping = 0\n[[route]]\npath = \"/\"\nkind = \"app\"\napp = \"web\"\n";
    let site = start(driver, text, |folder| {
        write(folder, "slow.py", format!("import time\ntime.sleep(0.8)\n{WSGI}"));
    });
    let mut held = holding(&site);
    assert_eq!(site.client().get("/x").text(), "'/x'");
    site.write("release", "");
    assert_eq!(held.reply().text(), "held");
});

drivers!(a_client_keeps_its_slot_when_the_worker_is_replaced, |driver: DriverName| {
    if !python() {
        return;
    }
    let site = site(driver, "wsgi_app:app", "workers = 3\ndispatch = \"header:X-User\"");
    wait_until("three workers", || workers(&site, "ready").len() == 3);
    let slot = |user: &str| site.client().ask("GET", "/slot", &[("X-User", user)]).text().to_owned();
    let users: Vec<String> = (0..40).map(|number| format!("user-{number}")).collect();
    let before: Vec<String> = users.iter().map(|user| slot(user)).collect();
    assert!(["0", "1", "2"].iter().all(|one| before.contains(&(*one).to_owned())), "{before:?}");
    assert!(ask(&site, "{\"do\":\"reload\"}")["ok"].is_object());
    assert_eq!(users.iter().map(|user| slot(user)).collect::<Vec<_>>(), before);
});

drivers!(clients_keep_their_slot_by_cookie_by_address_and_by_connection, |driver: DriverName| {
    if !python() {
        return;
    }
    let site_of = |dispatch: &str| {
        let site = site(driver, "asgi_app:app", &format!("workers = 3\ndispatch = \"{dispatch}\""));
        wait_until("three workers", || workers(&site, "ready").len() == 3);
        site
    };
    let site = site_of("cookie:user");
    let slot = |cookie: &str| site.client().ask("GET", "/slot", &[("Cookie", cookie)]).text().to_owned();
    let slots: Vec<_> = (0..40).map(|user| slot(&format!("a=1; user={user}; b=2"))).collect();
    assert!(["0", "1", "2"].iter().all(|one| slots.contains(&(*one).to_owned())), "{slots:?}");
    assert_eq!((0..40).map(|user| slot(&format!("user={user}"))).collect::<Vec<_>>(), slots);
    let site = site_of("address");
    let slots: std::collections::HashSet<_> =
        (0..10).map(|_| site.client().get("/slot").text().to_owned()).collect();
    assert_eq!(slots.len(), 1, "one client");
    let site = site_of("connection");
    let mut all = std::collections::HashSet::new();
    for _ in 0..40 {
        let mut client = site.client();
        let slot = client.get("/slot").text().to_owned();
        assert!((0..3).all(|_| client.get("/slot").text() == slot));
        all.insert(slot);
    }
    assert!(all.len() > 1, "forty connections");
});

drivers!(what_a_worker_prints_is_told_with_application_slot_and_request, |driver: DriverName| {
    if !python() {
        return;
    }
    let site = site(driver, "wsgi_app:app", "workers = 1");
    let mut client = site.client();
    client.send("GET /print HTTP/1.1\r\nHost: a\r\n\r\n");
    let line = told(&site, "printed by the application");
    assert!(
        line.starts_with("app web[0] ") && line.len() == "app web[0] 0123456789abcdef: ".len() + 26,
        "{line}"
    );
    site.write("seen", "");
    assert_eq!(client.reply().text(), "printed");
});

drivers!(what_is_printed_to_streams_that_were_closed_comes_into_no_link, |driver: DriverName| {
    if !python() {
        return;
    }
    const SILENT: &str = "import os\n\
        os.close(0)\nos.close(1)\nos.close(2)\n\
        def answer():\n    os.write(1, b'out')\n    os.write(2, b'errors')\n    return str(os.getpid()).encode()\n\
        def wsgi(environ, start_response):\n    start_response('200 OK', [])\n    return [answer()]\n\
        async def asgi(scope, receive, send):\n    body = answer()\n    \
        await send({'type': 'http.response.start', 'status': 200, 'headers': []})\n    \
        await send({'type': 'http.response.body', 'body': body})\n";
    for app in ["wsgi", "asgi"] {
        let text = format!(
            "[[app]]\nname = \"web\"\napp = \"silent:{app}\"\npython = \"python3\"\nworkers = 1\n\
             queue_timeout = \"2m\"\n[[route]]\npath = \"/\"\nkind = \"app\"\napp = \"web\"\n"
        );
        let site = start(driver, &text, |folder| write(folder, "silent.py", SILENT));
        let mut client = site.client();
        let first = client.get("/").text().to_owned();
        assert!(first.parse::<u32>().is_ok(), "{app}: {first}");
        assert!((0..3).all(|_| client.get("/").text() == first), "{app}: its worker was replaced");
    }
});

drivers!(in_development_a_changed_file_reloads_and_a_mistake_is_shown, |driver: DriverName| {
    if !python() {
        return;
    }
    let site = site(driver, "wsgi_app:app", "workers = 1\ndev = true");
    let mut client = site.client();
    assert_eq!(client.get("/x").text(), "'/x'");
    site.replace("wsgi_app.py", format!("{WSGI}\nthis is no Python\n"));
    wait_until("the mistake", || site.client().get("/x").status == 503);
    let shown = client.ask("GET", "/x", &[("Accept", "text/html")]);
    assert_eq!(shown.text().matches("SyntaxError").count(), 1, "{}", shown.text());
    // The log has the traceback, line by line, and then that nothing was reloaded.
    let lines: Vec<_> = site.events.try_iter().map(|event| event.to_string()).collect();
    let given_up: Vec<_> = lines.iter().filter(|line| line.contains("not reloaded")).collect();
    assert!(!given_up.is_empty() && given_up.iter().all(|line| !line.contains('\n')), "{lines:?}");
    site.replace("wsgi_app.py", WSGI.replace("ascii(path)", "'mended, and longer'"));
    wait_until("the mended one", || site.client().get("/x").status == 200);
    assert_eq!(client.get("/x").text(), "mended, and longer");
    assert!(client.get("/boom").text().contains("boom of the application"));
});

drivers!(in_development_an_access_log_beside_the_sources_is_none_of_them, |driver: DriverName| {
    if !python() {
        return;
    }
    let site = site(driver, "wsgi_app:app", "workers = 1\ndev = true");
    assert!(site.folder.path().join("log.json").exists());
    assert_eq!(site.client().get("/x").text(), "'/x'");
    // It takes longer to start than the files take to be looked at again, and meanwhile the log grows.
    let changed = WSGI.replace("ascii(path)", "'new'");
    site.replace("wsgi_app.py", format!("import time\ntime.sleep(1.2)\n{changed}"));
    wait_until("the new application", || site.client().get("/x").text() == "new");
    let lines: Vec<_> = site.events.try_iter().map(|event| event.to_string()).collect();
    let reloads: Vec<_> = lines.iter().filter(|line| line.ends_with("has changed: reload")).collect();
    let of_source = |line: &&String| *line == "app web: wsgi_app.py has changed: reload";
    assert!(!reloads.is_empty() && reloads.iter().all(of_source), "{lines:?}");
});

drivers!(the_processes_end_with_the_server, |driver: DriverName| {
    if !python() {
        return;
    }
    let site = site(driver, "wsgi_app:app", "workers = 2");
    wait_until("two workers", || workers(&site, "ready").len() == 2);
    let pids: Vec<_> = workers(&site, "ready").iter().map(|one| one["pid"].as_i64().unwrap()).collect();
    site.service.stop().unwrap();
    assert!(pids.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists()), "{pids:?}");
    assert!(!site.folder.path().join("control.sock").exists());
});

drivers!(metrics_tell_of_applications, |driver: DriverName| {
    if !python() {
        return;
    }
    let text = "[[app]]\nname = \"web\"\napp = \"wsgi_app:app\"\nworkers = 1\nqueue_timeout = \"2m\"\n\
                [[route]]\npath = \"/\"\nkind = \"app\"\napp = \"web\"\n[[route]]\npath = \"/metrics\"\nkind = \"metrics\"\n";
    let site = start(driver, text, prepare);
    let mut client = site.client();
    assert_eq!((client.get("/x").status, client.get("/boom").status), (200, 500));
    let metrics = client.get("/metrics");
    for line in [
        "ringroad_app_requests_total{app=\"web\",code=\"2xx\"} 1\n",
        "ringroad_app_requests_total{app=\"web\",code=\"5xx\"} 1\n",
        "ringroad_app_worker_requests_total{app=\"web\",slot=\"0\"} 2\n",
        "ringroad_app_queue{app=\"web\"} 0\n",
        "ringroad_app_seconds_count{app=\"web\"} 2\n",
        "ringroad_app_seconds_bucket{app=\"web\",le=\"+Inf\"} 2\n",
        "ringroad_app_rejected_total{app=\"web\",why=\"full\"} 0\n",
        "ringroad_app_workers{app=\"web\",kind=\"request\",state=\"ready\"} 1\n",
        "ringroad_app_worker_generation{app=\"web\",slot=\"0\"} 1\n",
        "ringroad_app_worker_cpu_seconds_total{app=\"web\",slot=\"0\"} ",
        "ringroad_app_crash_loop{app=\"web\"} 0\n",
    ] {
        assert!(metrics.text().contains(line), "{line}{}", metrics.text());
    }
    crate::support::promtool(&["check", "metrics"], Some(metrics.text()));
});

drivers!(workers_are_forked_from_a_process_that_has_imported_the_application, |driver: DriverName| {
    if !python() {
        return;
    }
    let site = site(driver, "wsgi_app:app", "workers = 2\npreload = true\ndispatch = \"turns\"");
    wait_until("two workers", || workers(&site, "ready").len() == 2);
    let mut client = site.client();
    let mut imports = || -> Vec<(u32, u32, u32)> {
        let mut all: Vec<_> = (0..2)
            .map(|_| {
                let told = client.get("/import").text().to_owned();
                let mut numbers = told.split(' ').map(|number| number.parse().unwrap());
                let mut next = || numbers.next().unwrap();
                (next(), next(), next())
            })
            .collect();
        all.sort_by_key(|one| one.2);
        all
    };
    let first = imports();
    assert_eq!((first[0].2, first[1].2), (0, 1), "{first:?}");
    assert!(first[0].0 == first[1].0 && first[0].1 != first[1].1, "{first:?}");
    assert!(first.iter().all(|one| one.0 != one.1), "the import was in another process: {first:?}");
    // One that dies is forked again, and nothing is imported.
    let killed = rustix::process::Pid::from_raw(first[1].1 as i32).unwrap();
    rustix::process::kill_process(killed, rustix::process::Signal::KILL).unwrap();
    told(&site, "ended with signal 9");
    wait_until("another worker", || {
        let ready = workers(&site, "ready");
        ready.len() == 2 && ready.iter().all(|worker| worker["pid"] != first[1].1)
    });
    let second = imports();
    assert!(second[1].0 == first[0].0 && second[1].1 != first[1].1, "{second:?}");
    assert_eq!(post(&mut site.client(), "/echo", b"body").body, b"body");
    // A reload imports again; a release that cannot be imported changes nothing.
    site.write("wsgi_app.py", format!("raise RuntimeError('release 2 is broken')\n{WSGI}"));
    let told = ask(&site, "{\"do\":\"reload\"}");
    assert!(told["error"].as_str().unwrap().contains("release 2 is broken"), "{told}");
    assert_eq!(imports(), second);
    site.write("wsgi_app.py", WSGI);
    assert!(ask(&site, "{\"do\":\"reload\"}")["ok"].is_object());
    let third = imports();
    assert!(third[0].0 == third[1].0 && third[0].0 != second[0].0, "{third:?}");
    drop(site);
    // One that is broken from the start is told as without.
    let site = self::site(driver, "wsgi_app:missing", "workers = 1\npreload = true\ndev = true");
    assert!(site.client().get("/").text().contains("has no attribute"), "the reason");
    drop(site);
    let site = self::site(driver, "asgi_app:app", "workers = 1\npreload = true");
    assert_eq!(site.client().get("/state").text(), "None yes 1");
});

/// A server in Python, on the socket that it is given or told.
pub(crate) const HTTP: &str = r#"
import http.server, os, socket, socketserver, sys, time

class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True

    def __init__(self):
        socketserver.BaseServer.__init__(self, None, Handler)
        if len(sys.argv) > 1:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.bind(sys.argv[1])
            self.socket.listen()
        else:
            assert os.environ["LISTEN_FDS"] == "1"
            self.socket = socket.socket(fileno=3)

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def address_string(self):
        return "client"

    def do_GET(self):
        if self.path == "/exit-once" and not os.path.exists("once"):
            open("once", "w").close()
            os._exit(7)
        size = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(size) if size else str(os.getpid()).encode()
        if self.path == "/hints":
            self.wfile.write(b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n")
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.path == "/slow":
            self.wfile.flush()
            time.sleep(2.5)
        self.wfile.write(body)

    do_HEAD = do_POST = do_GET

Server().serve_forever()
"#;

drivers!(a_program_that_speaks_http_itself_is_supervised_as_well, |driver: DriverName| {
    if !python() {
        return;
    }
    for command in ["[\"python3\", \"http_app.py\"]", "\"python3 http_app.py {socket}\""] {
        let text = format!(
            "control = \"control.sock\"\n[[app]]\nname = \"web\"\ncommand = {command}\nworkers = 2\nstop_timeout = \"1s\"\n\
             health = \"/healthz\"\n[[route]]\npath = \"/\"\nkind = \"app\"\napp = \"web\"\n"
        );
        let site = start(driver, &text, |folder| write(folder, "http_app.py", HTTP));
        let mut client = site.client();
        wait_until("two workers", || workers(&site, "ready").len() == 2);
        let pid = client.get("/").text().to_owned();
        let hints = client.get("/hints");
        assert_eq!((hints.status, hints.header("Link")), (103, Some("</a.css>")));
        assert_eq!(client.reply().status, 200);
        let body = vec![b'x'; 300_000];
        assert_eq!(post(&mut client, "/", &body).body, body);
        // One that dies with a request: that is repeated if its method is idempotent.
        assert_eq!(client.get("/exit-once").status, 200);
        std::fs::remove_file(site.path("once")).unwrap();
        assert_eq!(post(&mut client, "/exit-once", b"body").status, 502);
        // The log names the worker.
        let line = told(&site, "on POST /exit-once: ");
        assert!(line.contains(": app web[0]: ") || line.contains(": app web[1]: "), "{line}");
        // A new generation, and a worker that is killed.
        assert!(ask(&site, "{\"do\":\"reload\"}")["ok"].is_object());
        let after = client.get("/").text().to_owned();
        assert_ne!(after, pid);
        let killed = rustix::process::Pid::from_raw(after.parse().unwrap()).unwrap();
        rustix::process::kill_process(killed, rustix::process::Signal::KILL).unwrap();
        wait_until("another worker", || {
            let reply = site.client().get("/");
            reply.status == 200 && reply.text() != after
        });
    }
});

#[test]
fn mistakes_in_an_application_are_told_with_their_line() {
    let folder = tempfile::tempdir().unwrap();
    let text = "[[app]]\nname = \"a b\"\napp = \"main\"\nworkers = 4\nworkers_max = 2\ndispatch = \"fastest\"\n\
                [[app]]\nname = \"c\"\n\
                [[app]]\nname = \"d\"\napp = \"a.php\"\nprotocol = \"goridge\"\nhealth = \"/healthz\"\n[[route]]\npath = \"/\"\nkind = \"app\"\napp = \"none\"\n";
    let file = crate::support::configure(folder.path(), text);
    let why = ringroad_serve::Config::load(&file).unwrap_err().to_string();
    for part in [
        "\"a b\"",
        "MODULE:ATTRIBUTE",
        "workers_max",
        "\"fastest\"",
        "`app = \"main:app\"`",
        "\"none\"",
        "asked for a path",
    ] {
        assert!(why.contains(part), "{part}: {why}");
    }
}

drivers!(an_answer_of_a_program_that_speaks_http_may_take_longer_than_its_begin, |driver: DriverName| {
    if !python() {
        return;
    }
    let text = "[[app]]\nname = \"web\"\ncommand = \"python3 http_app.py {socket}\"\nworkers = 1\ntimeout = \"2s\"\n\
                queue_timeout = \"2m\"\n[[route]]\npath = \"/\"\nkind = \"app\"\napp = \"web\"\n";
    let site = start(driver, text, |folder| write(folder, "http_app.py", HTTP));
    let mut reply = site.client().get("/slow");
    while reply.status == 504 {
        // A busy machine did not even begin in time.
        reply = site.client().get("/slow");
    }
    assert!(reply.status == 200 && reply.text().parse::<u32>().is_ok(), "{reply:?}");
});

/// The event is what the command line prints.
#[test]
fn lines_of_applications_are_events() {
    assert_eq!(Event::App("app web[0]: text".to_owned()).to_string(), "app web[0]: text");
}
