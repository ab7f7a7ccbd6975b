//! PHP over FastCGI: a peer that is nothing but a socket, `php-cgi` processes that the server starts, and
//! php-fpm.

use crate::apps::workers;
use crate::ports::nowhere;
use crate::support::{Client, Site, behind, start, wait_until, write};
use ringroad_engine::DriverName;
use std::collections::HashMap;
use std::io::{ErrorKind, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

const FRONT: &str = include_str!("../apps/front.php");

/// A request as a FastCGI application gets it.
#[derive(Clone, Debug, Default)]
struct Asked {
    id: u8,
    keep: bool,
    params: HashMap<String, String>,
    stdin: Vec<u8>,
}

impl Asked {
    fn get(&self, name: &str) -> Option<&str> {
        self.params.get(name).map(String::as_str)
    }
}

/// The next record: its request, type and content.
fn record(client: &mut Client) -> Option<(u8, u8, Vec<u8>)> {
    let head = client.exactly(8)?;
    assert_eq!((head[0], head[2], head[7]), (1, 0, 0));
    let content = client.exactly(usize::from(u16::from_be_bytes([head[4], head[5]])))?;
    client.exactly(usize::from(head[6]))?;
    Some((head[3], head[1], content))
}

/// The next request on a connection.
fn asked(client: &mut Client) -> Option<Asked> {
    let mut asked = Asked::default();
    let mut params = Vec::new();
    loop {
        match record(client)? {
            (id, 1, content) => (asked.id, asked.keep) = (id, content[2] == 1),
            (id, _, _) if id != asked.id => panic!("a record of request {id}"),
            (_, 4, content) => params.extend_from_slice(&content),
            (_, 5, content) if content.is_empty() => break,
            (_, 5, content) => asked.stdin.extend_from_slice(&content),
            (_, kind, _) => panic!("a record of type {kind}"),
        }
    }
    let mut rest = &params[..];
    while !rest.is_empty() {
        let mut length = || {
            let bytes = if rest[0] < 0x80 { 1 } else { 4 };
            let (head, behind) = rest.split_at(bytes);
            rest = behind;
            head.iter().fold(0, |all, byte| all << 8 | usize::from(*byte)) & 0x7fff_ffff
        };
        let (name, value) = (length(), length());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        asked.params.insert(text(&rest[..name]), text(&rest[name..name + value]));
        rest = &rest[name + value..];
    }
    Some(asked)
}

/// Records of the answer to the first request of a connection.
fn answer(stdout: &[u8]) -> Vec<u8> {
    answer_to(1, stdout)
}

/// Records of the answer to a request, each STDOUT with padding.
fn answer_to(id: u8, stdout: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for part in stdout.chunks(30_000) {
        let [high, low] = (part.len() as u16).to_be_bytes();
        out.extend_from_slice(&[1, 6, 0, id, high, low, 3, 0]);
        out.extend_from_slice(part);
        out.extend_from_slice(&[0; 3]);
    }
    out.extend_from_slice(&[1, 6, 0, id, 0, 0, 0, 0]);
    out.extend_from_slice(&[1, 3, 0, id, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    out
}

/// An application that shows each request and answers `ok`.
fn showing() -> (SocketAddr, Receiver<Asked>) {
    let (tell, told) = channel::<Asked>();
    let tell: Arc<Mutex<Sender<Asked>>> = Arc::new(Mutex::new(tell));
    let (address, _) = behind(move |client| {
        while let Some(asked) = asked(client) {
            let (id, keep) = (asked.id, asked.keep);
            tell.lock().unwrap().send(asked).unwrap();
            client.try_send(answer_to(id, b"Content-Type: text/plain\r\n\r\nok"));
            if !keep {
                return;
            }
        }
    });
    (address, told)
}

/// A site with `www` as the root of a PHP route.
fn site(driver: DriverName, to: &str, more: &str) -> Site {
    let text = format!("[[route]]\npath = \"/\"\nkind = \"php\"\nroot = \"www\"\nto = \"{to}\"\n{more}");
    start(driver, &text, prepare)
}

fn prepare(folder: &Path) {
    write(folder, "www/index.php", FRONT);
    write(folder, "www/other.php", "<?php echo 'other';");
    write(folder, "www/style.css", "a {}");
    write(folder, "www/copy.php.bak", "<?php // secret");
    write(folder, "www/.env", "SECRET=1");
    write(folder, "www/upload/image.jpg", "<?php echo 'hacked';");
    write(folder, "www/sub/index.html", "sub");
    write(folder, "www/plain/file.txt", "file");
    write(folder, "outside.php", "<?php echo 'outside';");
    write(folder, "private/a b.pdf", "a private file");
    std::os::unix::fs::symlink("../outside.php", folder.join("www/link.php")).unwrap();
}

drivers!(variables_are_those_of_cgi_and_header_lines_cannot_forge_them, |driver: DriverName| {
    let (address, told) = showing();
    let site = site(driver, &address.to_string(), "params = { APP_ENV = \"test\" }\n");
    let mut client = site.client();
    client.send(
        "POST /other.php/in%66o/x?a=b&c HTTP/1.1\r\nHost: example.org:81\r\nContent-Type: text/plain\r\n\
         Content-Length: 5\r\nCookie: a=1\r\nX-A: 1\r\nCookie: b=2\r\nX-A: 2\r\nX_A: evil\r\nX.A: evil\r\nProxy: evil\r\n\
         X-Forwarded-For: 192.0.2.1\r\nAuthorization: Basic eA==\r\n\r\nhello",
    );
    assert_eq!(client.reply().text(), "ok");
    let asked = told.recv().unwrap();
    let root = site.path("www").canonicalize().unwrap();
    let root = root.to_str().unwrap();
    let expected = [
        ("SCRIPT_FILENAME", format!("{root}/other.php")),
        ("SCRIPT_NAME", "/other.php".to_owned()),
        ("PATH_INFO", "/info/x".to_owned()),
        ("PATH_TRANSLATED", format!("{root}/info/x")),
        ("DOCUMENT_ROOT", root.to_owned()),
        ("DOCUMENT_URI", "/other.php/info/x".to_owned()),
        ("REQUEST_URI", "/other.php/in%66o/x?a=b&c".to_owned()),
        ("REQUEST_METHOD", "POST".to_owned()),
        ("QUERY_STRING", "a=b&c".to_owned()),
        ("CONTENT_TYPE", "text/plain".to_owned()),
        ("CONTENT_LENGTH", "5".to_owned()),
        ("SERVER_PROTOCOL", "HTTP/1.1".to_owned()),
        ("REQUEST_SCHEME", "http".to_owned()),
        ("GATEWAY_INTERFACE", "CGI/1.1".to_owned()),
        ("REDIRECT_STATUS", "200".to_owned()),
        ("SERVER_NAME", "example.org".to_owned()),
        ("SERVER_PORT", "81".to_owned()),
        ("REMOTE_ADDR", "127.0.0.1".to_owned()),
        ("SERVER_ADDR", "127.0.0.1".to_owned()),
        ("HTTP_HOST", "example.org:81".to_owned()),
        ("HTTP_COOKIE", "a=1; b=2".to_owned()),
        ("HTTP_X_A", "1, 2".to_owned()),
        ("HTTP_AUTHORIZATION", "Basic eA==".to_owned()),
        ("APP_ENV", "test".to_owned()),
    ];
    for (name, value) in &expected {
        assert_eq!(asked.get(name), Some(value.as_str()), "{name}");
    }
    // PHP takes `.` for `_` in the name of a variable.
    assert!(asked.params.keys().all(|name| !name.contains('.')), "{:?}", asked.params);
    for name in ["HTTPS", "HTTP_PROXY", "HTTP_X_FORWARDED_FOR", "HTTP_CONTENT_TYPE"] {
        assert_eq!(asked.get(name), None, "{name}");
    }
    assert_eq!((asked.stdin, asked.keep), (b"hello".to_vec(), false));
    // Chunks have no length of their own; what PHP gets has one. A body that goes to a file arrives whole.
    let body = vec![b'x'; 300_000];
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n493e0\r\n");
    client.send(&body).send("\r\n0\r\n\r\n");
    assert_eq!(client.reply().text(), "ok");
    let asked = told.recv().unwrap();
    assert_eq!(asked.get("CONTENT_LENGTH"), Some("300000"));
    assert!(asked.stdin == body);
});

drivers!(a_proxy_that_is_listed_tells_address_and_scheme, |driver: DriverName| {
    let (address, told) = showing();
    let more = "[client_ip]\nproxies = [\"127.0.0.0/8\"]\n";
    let site = site(driver, &address.to_string(), more);
    let lines = [("X-Forwarded-For", "192.0.2.7"), ("X-Forwarded-Proto", "https")];
    assert_eq!(site.client().ask("GET", "/", &lines).text(), "ok");
    let asked = told.recv().unwrap();
    assert_eq!(asked.get("REMOTE_ADDR"), Some("192.0.2.7"));
    assert_eq!(asked.get("HTTPS"), Some("on"));
    assert_eq!(asked.get("SERVER_PORT"), Some("443"));
});

drivers!(only_a_script_that_is_there_is_executed, |driver: DriverName| {
    let (address, told) = showing();
    let site = site(driver, &address.to_string(), "");
    let root = site.path("www").canonicalize().unwrap();
    let mut client = site.client();
    let mut script = |path: &str| {
        assert_eq!(client.get(path).text(), "ok", "{path}");
        let asked = told.recv().unwrap();
        let file = asked.get("SCRIPT_FILENAME").unwrap();
        let file = file.strip_prefix(root.to_str().unwrap()).unwrap().to_owned();
        (file, asked.get("PATH_INFO").unwrap_or_default().to_owned())
    };
    let of = |file: &str, info: &str| (file.to_owned(), info.to_owned());
    assert_eq!(script("/other.php"), of("/other.php", ""));
    assert_eq!(script("/other.php/a/b/"), of("/other.php", "/a/b/"));
    // By any spelling of its path, and path info is what was understood.
    assert_eq!(script("//sub/../other.php"), of("/other.php", ""));
    assert_eq!(script("/./other.php//a/./x/../b"), of("/other.php", "/a/b"));
    // What is no script goes to the front controller, a picture that is called as one too.
    for path in
        ["/", "/a/b", "/upload/image.jpg/x.php", "/missing.php", "/missing.css", "/other.PHP", "/link.php"]
    {
        assert_eq!(script(path), of("/index.php", ""), "{path}");
    }
    let mut client = site.client();
    assert_eq!(client.get("/style.css").text(), "a {}");
    assert_eq!(client.get("/upload/image.jpg").header("Content-Type"), Some("image/jpeg"));
    assert_eq!(client.get("/sub/").text(), "sub");
    assert_eq!(client.get("/plain").header("Location"), Some("/plain/"));
    // The front controller says what these are; their content stays here.
    for path in ["/copy.php.bak", "/.env", "/upload/../other.php"] {
        let reply = client.get(path);
        assert!(reply.text() == "ok" || reply.status == 400, "{path}: {reply:?}");
    }
});

drivers!(try_files_names_scripts_and_may_end_with_a_status, |driver: DriverName| {
    let (address, told) = showing();
    let tried = "try_files = [\"{path}.php\", \"/other.php?q={path}\"]\n";
    let site_of = |tried: &str| site(driver, &address.to_string(), tried);
    let first = site_of(tried);
    let mut first_client = first.client();
    assert_eq!(first_client.get("/other?x=1").text(), "ok");
    let asked = told.recv().unwrap();
    assert_eq!((asked.get("SCRIPT_NAME"), asked.get("QUERY_STRING")), (Some("/other.php"), Some("x=1")));
    assert_eq!(first_client.get("/node/1?x=1").text(), "ok");
    let asked = told.recv().unwrap();
    assert_eq!(
        (asked.get("SCRIPT_NAME"), asked.get("QUERY_STRING")),
        (Some("/other.php"), Some("q=/node/1"))
    );
    let second = site_of("try_files = [\"=404\"]\n");
    assert_eq!(second.client().get("/missing").status, 404);
});

drivers!(a_peer_that_fails_is_502_one_that_is_full_503_and_one_that_is_late_504, |driver: DriverName| {
    let answers = |bytes: &'static [u8]| {
        let (address, _) = behind(move |client| {
            if asked(client).is_some() {
                client.try_send(bytes);
            }
        });
        address
    };
    const FULL: &[u8] = &[1, 3, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0];
    const NO_HEAD: &[u8] = &[1, 6, 0, 1, 0, 5, 0, 0, b'h', b'e', b'l', b'l', b'o'];
    const EVIL: &[u8] = b"\x01\x06\x00\x01\x00\x0b\x00\x00A: b\rc\r\n\r\n-";
    for (bytes, status) in
        [(&b""[..], 502), (b"HTTP/1.1 200 OK\r\n\r\n", 502), (NO_HEAD, 502), (EVIL, 502), (FULL, 503)]
    {
        let site = site(driver, &answers(bytes).to_string(), "");
        assert_eq!(site.client().get("/").status, status, "{bytes:?}");
    }
    let closed = nowhere();
    assert_eq!(site(driver, &closed.to_string(), "").client().get("/").status, 502);
    let (silent, _) = behind(|client| {
        let _ = asked(client);
        client.rest();
    });
    let late = site(driver, &silent.to_string(), "answer_timeout = \"100ms\"\n");
    assert_eq!(late.client().get("/").status, 504);
});

drivers!(a_connection_is_kept_where_that_is_wanted, |driver: DriverName| {
    let (address, count) = behind(|client| {
        // Three requests, then the end.
        for _ in 0..3 {
            let Some(asked) = asked(client) else { return };
            assert!(asked.keep);
            client.try_send(answer_to(asked.id, b"\r\nkept"));
        }
    });
    let site = site(driver, &address.to_string(), "keep = 1\nconnections = 1\n");
    let mut client = site.client();
    for _ in 0..7 {
        assert_eq!(client.get("/").text(), "kept");
    }
    assert_eq!(count.load(std::sync::atomic::Ordering::SeqCst), 3);
});

drivers!(a_second_answer_that_comes_late_is_no_answer_to_the_next_request, |driver: DriverName| {
    let (address, _) = behind(|client| {
        let Some(first) = asked(client) else { return };
        client.send(answer_to(first.id, b"\r\nfirst"));
        // What is wrong comes when the next request is on its way, so no look at the connection finds it.
        let Some(second) = asked(client) else { return };
        client.try_send(answer_to(first.id, b"\r\nstray"));
        client.try_send(answer_to(second.id, b"\r\nsecond"));
    });
    let site = site(driver, &address.to_string(), "keep = 1\nconnections = 1\n");
    let mut client = site.client();
    assert_eq!(client.get("/").text(), "first");
    // On another connection, where it is the first one.
    assert_eq!(client.get("/").text(), "first");
    let lines = [("Content-Length", "0")];
    // What may not be repeated has no answer.
    let reply = client.ask("POST", "/", &lines);
    assert_eq!((reply.status, reply.text().contains("stray")), (502, false));
});

drivers!(a_client_that_leaves_has_its_request_given_up, |driver: DriverName| {
    let (tell, told) = channel();
    let tell = Mutex::new(tell);
    let (address, _) = behind(move |client| {
        let path = asked(client).unwrap().get("REQUEST_URI").unwrap().to_owned();
        if path == "/begun" {
            client.send([1, 6, 0, 1, 0, 8, 0, 0]).send("\r\n\r\nbody");
        }
        tell.lock().unwrap().send(None).unwrap();
        tell.lock().unwrap().send(record(client).map(|(_, kind, _)| kind)).unwrap();
    });
    let site = site(driver, &address.to_string(), "");
    for path in ["/", "/begun"] {
        let mut client = site.client();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(told.recv().unwrap(), None);
        if path == "/begun" {
            client.until(b"body").unwrap();
        }
        client.reset();
        assert_eq!(told.recv().unwrap(), Some(2), "{path}");
    }
});

drivers!(a_file_that_an_answer_names_is_sent_from_listed_folders_only, |driver: DriverName| {
    let (address, _) = behind(|client| {
        let Some(asked) = asked(client) else { return };
        let line = asked.get("QUERY_STRING").unwrap().replace('+', " ").replace('=', ": ");
        let head = format!("Status: 202\r\nContent-Type: x/y\r\nSet-Cookie: a=b\r\n{line}\r\n\r\nnot this");
        client.try_send(answer(head.as_bytes()));
    });
    let site = site(driver, &address.to_string(), "sendfile = { \"/protected/\" = \"private\" }\n");
    let private = site.path("private").canonicalize().unwrap();
    let mut client = site.client();
    for order in [
        "X-Accel-Redirect=/protected/a%20b.pdf".to_owned(),
        format!("X-Sendfile={}/a+b.pdf", private.display()),
    ] {
        let reply = client.get(&format!("/?{order}"));
        assert_eq!((reply.status, reply.text()), (200, "a private file"), "{order}");
        assert_eq!(reply.headers("Content-Type").collect::<Vec<_>>(), ["x/y"]);
        assert_eq!((reply.header("Set-Cookie"), reply.header("X-Sendfile")), (Some("a=b"), None));
    }
    let part = client.ask("GET", "/?X-Accel-Redirect=/protected/a%20b.pdf", &[("Range", "bytes=2-8")]);
    assert_eq!((part.status, part.text()), (206, "private"));
    let past = client.ask("GET", "/?X-Accel-Redirect=/protected/a%20b.pdf", &[("Range", "bytes=99-")]);
    let kind = past.headers("Content-Type").collect::<Vec<_>>();
    assert_eq!((past.status, kind), (416, vec!["text/plain; charset=utf-8"]));
    for order in [
        "X-Accel-Redirect=/other/a",
        "X-Accel-Redirect=/protected/../outside.php",
        "X-Sendfile=/etc/hostname",
    ] {
        let reply = client.get(&format!("/?{order}"));
        assert_eq!(reply.status, 404, "{order}");
    }
});

/// Past the capture of the test harness.
fn skipped(what: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {what} is not installed");
}

pub(crate) fn installed(program: &str) -> bool {
    let found = Command::new(program).arg("-v").output().is_ok();
    if !found {
        skipped(program);
    }
    found
}

/// What the front controller answers, whatever executes it.
fn front_controller(site: &Site) {
    let mut client = site.client();
    assert_eq!(client.get("/").text(), "home");
    assert_eq!(client.get("/style.css").text(), "a {}");
    assert_eq!(client.get("/other.php").text(), "other");
    let missing = client.get("/a/b?c=d");
    assert_eq!((missing.status, missing.text()), (404, "no page /a/b"));
    let names = "PATH_INFO,SCRIPT_NAME,PHP_SELF,HTTPS,REMOTE_ADDR,HTTP_PROXY,HTTP_X_A";
    let told = client.ask("GET", &format!("/vars?names={names}"), &[("X-A", "1"), ("Proxy", "x")]);
    assert_eq!(told.text(), "[null,\"/index.php\",\"/index.php\",null,\"127.0.0.1\",null,\"1\"]");
    let body = "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--x\r\nContent-Disposition: form-data; \
                name=\"f\"; filename=\"f.txt\"\r\n\r\nhello\r\n--x--\r\n";
    client.send(format!(
        "POST /post HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=x\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    assert_eq!(client.reply().text(), "[{\"a\":\"1\"},{\"f\":[\"f.txt\",5,0]}]");
    for size in [0, 1, 100_000, 3_000_000] {
        let body: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
        client.send(format!("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n")).send(&body);
        assert!(client.reply().body == body, "{size}");
    }
    let made = client.get("/head");
    assert_eq!((made.status, made.header("X-A"), made.text()), (201, Some("1"), "made"));
    assert_eq!(made.headers("Set-Cookie").collect::<Vec<_>>(), ["a=b", "c=d"]);
    let moved = client.get("/moved");
    assert_eq!((moved.status, moved.header("Location")), (302, Some("/elsewhere")));
    assert_eq!(client.get("/large").body.len(), 3_000_000);
    assert_eq!(client.get("/stream").text(), "one two three");
    assert_eq!(client.get("/exit").text(), "left early");
    assert_eq!(client.get("/accel?file=a%20b.pdf").text(), "a private file");
    assert_eq!(client.get("/fatal").status, 500);
    let head = client.ask("HEAD", "/", &[]);
    assert_eq!(head.status, 200);
    assert_eq!(client.get("/").text(), "home");
}

/// Waits for a line of PHP's standard error.
fn told(site: &Site, part: &str) {
    while !site.event().to_string().contains(part) {}
}

drivers!(php_cgi_processes_are_started_watched_and_replaced, |driver: DriverName| {
    if !installed("php-cgi") {
        return;
    }
    let text = "workers = 2\n[[app]]\nname = \"site\"\ncommand = [\"php-cgi\", \"-d\", \"display_errors=0\"]\nprotocol = \"fastcgi\"\nworkers = 2\n\
                timeout = \"20s\"\n[[route]]\npath = \"/\"\nkind = \"php\"\nroot = \"www\"\napp = \"site\"\n\
                sendfile = { \"/protected/\" = \"private\" }\n";
    let site = start(driver, text, prepare);
    front_controller(&site);
    let mut client = site.client();
    assert_eq!(client.get("/stderr").text(), "told");
    told(&site, "a line of error_log");
    // A process that dies costs a request that may be repeated nothing but its own life: this one kills each.
    assert_eq!(client.get("/die").status, 502);
    told(&site, "the worker died; it had the request, ");
    // Both are gone; a request that meets both before the supervisor does is 502 as well.
    wait_until("a process is there again", || site.client().get("/").text() == "home");
    for _ in 0..10 {
        assert_eq!(client.get("/").text(), "home");
    }
    // Connections of both threads find their way to two processes that take one each.
    let asking: Vec<_> = (0..8)
        .map(|_| {
            let mut client = site.client();
            std::thread::spawn(move || (0..20).map(|_| client.get("/")).find(|one| one.text() != "home"))
        })
        .collect();
    let answers: Vec<_> = asking.into_iter().map(|one| one.join().unwrap()).collect();
    assert!(answers.iter().all(Option::is_none), "{answers:?}");
});

/// php-fpm with one pool, which ends with its test.
struct Fpm(Child);

impl Drop for Fpm {
    fn drop(&mut self) {
        // Its children end with it.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

fn fpm(folder: &Path) -> Option<Fpm> {
    let socket = folder.join("fpm.sock");
    let text = format!(
        "[global]\ndaemonize = no\nerror_log = {0}/fpm.log\n[www]\nlisten = {1}\npm = static\npm.max_children = 2\n\
         catch_workers_output = yes\nphp_admin_flag[display_errors] = off\n",
        folder.display(),
        socket.display()
    );
    std::fs::write(folder.join("fpm.conf"), text).unwrap();
    let programs = ["php-fpm", "php-fpm8.4", "php-fpm8.3", "php-fpm8.2", "php-fpm8.1"];
    for program in programs {
        let mut command = Command::new(program);
        command.args(["-n", "-R", "-F", "-y"]).arg(folder.join("fpm.conf"));
        match command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
            Ok(child) => {
                let mut fpm = Fpm(child);
                wait_until("php-fpm listens", || {
                    assert!(fpm.0.try_wait().unwrap().is_none(), "php-fpm has ended");
                    std::os::unix::net::UnixStream::connect(&socket).is_ok()
                });
                return Some(fpm);
            }
            Err(why) if why.kind() == ErrorKind::NotFound => {}
            Err(why) => panic!("{program}: {why}"),
        }
    }
    skipped("php-fpm");
    None
}

#[test]
fn php_fpm_serves_on_every_driver_with_kept_connections_and_without() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_fpm) = fpm(folder.path()) else { return };
    let to = format!("unix:{}", folder.path().join("fpm.sock").display());
    for driver in
        [DriverName::Epoll, DriverName::IoUring, DriverName::Poll, DriverName::Select, DriverName::Threads]
    {
        for keep in ["", "keep = 1\nconnections = 2\n"] {
            crate::drivers::on(driver, |driver| {
                let more = format!("{keep}sendfile = {{ \"/protected/\" = \"private\" }}\n");
                front_controller(&site(driver, &to, &more));
            });
        }
    }
}

/// A page that sends events for as long as there is a client.
const EVENTS: &str = r#"<?php
ignore_user_abort(true);
if ($_SERVER['REQUEST_URI'] !== '/events') {
    exit('one');
}
header('Content-Type: text/event-stream');
echo "data: first\n\n";
while (flush() || !connection_aborted()) {
    usleep(10000);
    echo ":\n\n";
}
touch(__DIR__ . '/left');
"#;

drivers!(a_php_cgi_process_is_free_when_a_client_has_left_a_stream_that_goes_on, |driver: DriverName| {
    if !installed("php-cgi") {
        return;
    }
    let text = "[[app]]\nname = \"site\"\ncommand = [\"php-cgi\", \"-d\", \"output_buffering=0\"]\nprotocol = \"fastcgi\"\n\
                workers = 1\nqueue_timeout = \"2m\"\ntimeout = \"1h\"\n\
                [[route]]\npath = \"/\"\nkind = \"php\"\nroot = \"www\"\napp = \"site\"\n";
    let site = start(driver, text, |folder| {
        std::fs::create_dir(folder.join("www")).unwrap();
        write(folder, "www/index.php", EVENTS);
    });
    let mut stream = site.client();
    stream.send("GET /events HTTP/1.1\r\nHost: a\r\n\r\n").until(b"data: first").unwrap();
    drop(stream);
    // It waits for the process, which has ended its stream by itself.
    assert_eq!(site.client().get("/").text(), "one");
    assert!(site.path("www/left").exists());
});

drivers!(in_development_streams_of_events_of_php_cgi_end_with_its_code, |driver: DriverName| {
    if !installed("php-cgi") {
        return;
    }
    for buffer in [true, false] {
        let text = format!(
            "control = \"control.sock\"\n[[app]]\nname = \"site\"\ncommand = [\"php-cgi\", \"-d\", \"output_buffering=0\"]\nprotocol = \"fastcgi\"\nworkers = 1\n\
             dev = true\nqueue_timeout = \"2m\"\nstop_timeout = \"1h\"\ntimeout = \"1h\"\n\
             [[route]]\npath = \"/\"\nkind = \"php\"\nroot = \"www\"\napp = \"site\"\nbuffer = {buffer}\n"
        );
        let site = start(driver, &text, |folder| {
            std::fs::create_dir(folder.join("www")).unwrap();
            write(folder, "www/index.php", EVENTS);
        });
        let mut stream = site.client();
        stream.send("GET /events HTTP/1.1\r\nHost: a\r\n\r\n").until(b"data: first").unwrap();
        site.replace("www/index.php", EVENTS.replace("'one'", "'two, and longer'"));
        told(&site, "generation 2 serves");
        assert!(stream.until(b"\r\n0\r\n\r\n").is_some(), "{buffer}");
        assert_eq!(site.client().get("/").text(), "two, and longer");
        wait_until("the old code", || site.path("www/left").exists());
        let has = |state| !workers(&site, state).is_empty();
        wait_until("the end of the old worker", || !has("draining") && !has("stopping"));
    }
});
