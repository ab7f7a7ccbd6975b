//! Programs with Swoole's classes, in plain PHP: behind the server, and by themselves.

use crate::app_sockets::{TEXT, closed, frame, next, open};
use crate::apps::{ask, workers as ready};
use crate::support::{Client, Site, behind, start, wait_until, write};
use crate::tls::Authority;
use ringroad_engine::DriverName;
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Barrier};

const SERVER: &str = include_str!("../apps/swoole.php");
const SHARED: &str = include_str!("../apps/swoole_shared.php");
const CHECKS: &str = include_str!("../apps/swoole_classes.php");
const DOCUMENT_000: &str = include_str!("../apps/document_000_server.php");
const DOCUMENT_000_DRIVER: &str = include_str!("../apps/document_000_driver.php");
const DOCUMENT_001: &str = include_str!("../apps/document_001_server.php");
const DOCUMENT_001_CLIENT: &str = include_str!("../apps/document_001_client.php");
const DOCUMENT_001_SETTINGS: &str = include_str!("../apps/document_001_settings.php");
const DOCUMENT_001_FIBER: &str = include_str!("../apps/document_001_fiber.php");
const CLASSES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../runners/php/ringroad.php");

/// Whether there is PHP here, with what the classes need; says so where there is none.
fn php() -> bool {
    let asked = "foreach (['sockets', 'pcntl', 'posix', 'shmop'] as $one) extension_loaded($one) || exit(1);\
                 exit(PHP_VERSION_ID >= 80100 && !extension_loaded('swoole') ? 0 : 1);";
    let found = Command::new("php").args(["-r", asked]).status().is_ok_and(|status| status.success());
    if !found {
        // Past the capture of the test harness.
        let _ = writeln!(
            std::io::stderr(),
            "skipped: PHP 8.1 with sockets, pcntl and shmop and without swoole is not installed"
        );
    }
    found
}

/// A site with a program for all paths.
fn site(driver: DriverName, program: &str) -> Site {
    let text = "[[app]]\nname = \"web\"\napp = \"server.php\"\nworkers = 1\nqueue_timeout = \"2m\"\n\
                [[route]]\npath = \"/\"\nkind = \"app\"\napp = \"web\"\n";
    start(driver, text, |folder| write(folder, "server.php", program))
}

/// Waits for a line of the program.
fn told(site: &Site, part: &str) {
    while !site.event().to_string().contains(part) {}
}

/// Waits for lines of the program, in any order.
fn told_all<const N: usize>(site: &Site, parts: [&str; N]) {
    let mut left = parts.to_vec();
    while !left.is_empty() {
        let event = site.event().to_string();
        left.retain(|part| !event.contains(part));
    }
}

/// A whole answer, with its date masked.
fn whole(site: &Site, path: &str) -> String {
    let reply = site.client().get(path);
    let lines = reply.head.lines().filter(|line| !line.is_empty());
    let lines: Vec<_> =
        lines.map(|line| if line.starts_with("Date: ") { "Date: masked" } else { line }).collect();
    format!("{}\n\n{}", lines.join("\n"), reply.text())
}

drivers!(the_listings_of_the_documents_answer_byte_for_byte, |driver: DriverName| {
    if !php() {
        return;
    }
    assert_eq!(
        whole(&site(driver, DOCUMENT_000), "/"),
        "HTTP/1.1 200 OK\nDate: masked\nServer: swoole-http-server\nContent-Type: text/html\nContent-Length: 20\n\n\
         <h1>Hello World</h1>"
    );
    assert_eq!(
        whole(&site(driver, DOCUMENT_001), "/"),
        "HTTP/1.1 200 OK\nDate: masked\nContent-Type: application/json\nServer: swoole-http-server\nContent-Length: 15\n\n\
         {\"status\":\"ok\"}"
    );
    // The client of document 001 asks a host; here a server of this driver is in its place.
    let text = "@listen = { address = \"127.0.0.1:0\", tls = true }\n[tls]\ncertificates = [\"site.pem\"]\n[[route]]\npath = \"/\"\n\
                kind = \"respond\"\nbody = \"the body\"\n";
    let host = start(driver, text, |folder| Authority::new().put(folder, "site", &["localhost"]));
    let client =
        DOCUMENT_001_CLIENT.replace("'httpbin.org', 443", &format!("'127.0.0.1', {}", host.address().port()));
    assert_ne!(client, DOCUMENT_001_CLIENT);
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(Alone::start(folder.path(), &client).line(), "the body");
});

#[test]
fn what_the_documents_leave_out_is_told_as_swoole_and_php_tell_it() {
    if !php() {
        return;
    }
    let printed = |program: &str| {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "program.php", program);
        let mut command = Command::new("php");
        command.args(["-d", "display_errors=1", "-d"]).arg(format!("auto_prepend_file={CLASSES}"));
        let output = command.arg(folder.path().join("program.php")).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    // A server with settings and without a callback.
    let settings = printed(&format!("{}\n$server->start();", DOCUMENT_001_SETTINGS.replace("9501", "0")));
    assert!(settings.contains("require onRequest callback"), "{settings}");
    // What is said to return a number is resumed with a text: PHP's own fibers refuse that.
    let fiber = printed(DOCUMENT_001_FIBER);
    assert!(fiber.contains("TypeError") && fiber.contains("must be of type int, string returned"), "{fiber}");
}

drivers!(the_listings_of_the_documents_run_unchanged, |driver: DriverName| {
    if !php() {
        return;
    }
    let first = site(driver, DOCUMENT_000);
    told(&first, "Server listening on http://127.0.0.1:9501");
    for path in ["/", "/any/path?query"] {
        let reply = first.client().get(path);
        assert_eq!((reply.status, reply.text()), (200, "<h1>Hello World</h1>"));
        assert_eq!(reply.headers("Content-Type").collect::<Vec<_>>(), ["text/html"]);
        assert_eq!(reply.headers("Server").collect::<Vec<_>>(), ["swoole-http-server"]);
    }
    let second = site(driver, DOCUMENT_001);
    let reply = second.client().get("/");
    assert_eq!((reply.status, reply.text()), (200, "{\"status\":\"ok\"}"));
    assert_eq!(reply.headers("Content-Type").collect::<Vec<_>>(), ["application/json"]);
    // What the document asks about the driver is answered truly.
    let third = site(driver, &format!("{DOCUMENT_000_DRIVER}?>{DOCUMENT_001}"));
    let uring = driver == DriverName::IoUring;
    told(&third, if uring { "Running with io_uring socket driver" } else { "Using legacy epoll driver" });
    assert_eq!(third.client().get("/").text(), "{\"status\":\"ok\"}");
});

/// What the server of `swoole.php` answers, whatever is before it.
fn serves(mut connect: impl FnMut() -> Client) {
    let mut client = connect();
    let lines = [("X-A", "1"), ("Cookie", "c=d%20e; f=g")];
    let told = client.ask("GET", "/request?a=b&l[]=1", &lines);
    let told = told.text().replace("\\/", "/");
    assert_eq!(
        told,
        "[\"GET\",{\"a\":\"b\",\"l\":[\"1\"]},{\"c\":\"d e\",\"f\":\"g\"},\"1\",\"a=b&l[]=1\",\"127.0.0.1\"]"
    );
    // Lines with one name are an array, as Swoole has them; cookies are not.
    let lines = [("X-A", "1"), ("Cookie", "c=d"), ("X-A", "2"), ("Cookie", "f=g"), ("X-A", "3")];
    let told = client.ask("GET", "/request", &lines);
    let told = told.text();
    assert!(told.contains("{\"c\":\"d\",\"f\":\"g\"},[\"1\",\"2\",\"3\"]"), "{told}");
    let told = client.ask("GET", "/data?q", &lines);
    assert!(told.text().contains("X-A: 1\r\nX-A: 2\r\nX-A: 3\r\n"), "{}", told.text());
    assert_eq!(client.get("/info").text(), "[true,true,true,false]");
    let mut post = |path: &str, kind: &str, body: &[u8]| {
        let length = body.len();
        client.send(format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
        ));
        client.send(body).reply()
    };
    assert_eq!(
        post("/post", "application/x-www-form-urlencoded", b"a=1&b[c]=2").text(),
        "[{\"a\":\"1\",\"b\":{\"c\":\"2\"}},[]]"
    );
    let body = "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--x\r\nContent-Disposition: form-data; \
                name=\"f\"; filename=\"f.txt\"\r\nContent-Type: text/plain\r\n\r\nhello\r\n--x--\r\n";
    let posted = post("/post", "multipart/form-data; boundary=x", body.as_bytes());
    assert_eq!(posted.text(), "[{\"a\":\"1\"},{\"f\":[\"f.txt\",\"hello\"]}]");
    // Names of parts without quotes, in another order, with quotes inside, and with folders.
    for (says, named) in [
        ("name=f; filename=f.txt", "f.txt"),
        ("filename=\"g; name=x\"; name=\"f\"", "g; name=x"),
        ("name=\"f\"; filename=\"a\\\"b.txt\"", "a\\\"b.txt"),
        ("name=\"f\"; filename=\"../up.txt\"", "up.txt"),
        ("name=\"f\"; filename=\"C:\\up.txt\"", "up.txt"),
    ] {
        let body = format!("--x\r\nContent-Disposition: form-data; {says}\r\n\r\nhello\r\n--x--\r\n");
        let posted = post("/post", "multipart/form-data; boundary=x", body.as_bytes());
        assert_eq!(posted.text(), format!("[null,{{\"f\":[\"{named}\",\"hello\"]}}]"));
    }
    let body = "--x\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a\"\r\n\r\nhello\r\n--x--\r\n";
    let posted = post("/upload", "multipart/form-data; boundary=x", body.as_bytes());
    let told: (String, std::path::PathBuf) = serde_json::from_str(posted.text()).unwrap();
    assert_eq!(told.0, "hello");
    wait_until("the file goes with the request", || !told.1.exists());
    for size in [0, 1, 100_000, 1_000_000] {
        let body: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
        assert!(post("/echo", "x/y", &body).body == body, "{size}");
    }
    let made = client.get("/lines");
    assert_eq!((made.status, made.text(), made.header("X-Evil")), (201, "made", None));
    let own: Vec<_> = made.head.lines().filter(|line| line.starts_with("X-")).collect();
    assert_eq!(own, ["X-First: 1", "X-UPPER: 2", "X-Twice: 3", "X-Twice: 4"]);
    assert_eq!(made.header("Set-Cookie"), Some("a=b+c; path=/p; HttpOnly"));
    assert_eq!(client.get("/stream").text(), "one two three");
    assert_eq!(client.get("/large").body.len(), 3_000_000);
    assert_eq!(client.get("/file").text(), "php");
    let moved = client.get("/redirect");
    assert_eq!((moved.status, moved.header("Location")), (301, Some("/elsewhere")));
    assert_eq!(client.get("/group").text(), "begin 0,begin 1,end 1,end 0");
    assert_eq!(client.ask("HEAD", "/request", &[]).status, 200);
    // One request waits for another in the same process.
    let mut waiting = connect();
    waiting.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(connect().get("/come").text(), "came");
    assert_eq!(waiting.reply().text(), "met");
    assert_eq!(connect().get("/silent").status, 500);
    assert_eq!(connect().get("/throw").status, 500);
    assert_eq!(connect().get("/echo").status, 200);
    assert_eq!(connect().get("/missing").status, 404);
}

drivers!(a_server_of_swoole_gets_and_gives_what_its_manual_says, |driver: DriverName| {
    if !php() {
        return;
    }
    let site = site(driver, SERVER);
    told(&site, "worker 0 listens on 0");
    serves(|| site.client());
    // What the program prints, and the line of the request, which names the cause, too, in any order.
    told_all(
        &site,
        ["Uncaught RuntimeException: thrown", "on GET /throw: app web[0]: RuntimeException: thrown in "],
    );
    // The client cannot choose it.
    let reply = site.client().send("GET /place HTTP/1.1\r\nHost: evil:1\r\n\r\n").reply();
    assert_eq!(reply.text(), site.address().to_string());
});

drivers!(a_program_without_coroutines_gets_and_gives_bodies_of_any_size, |driver: DriverName| {
    if !php() {
        return;
    }
    // It blocks in `write` until there is room, and what comes meanwhile is no part of what came before.
    let site = site(
        driver,
        "<?php\n$server = new Swoole\\Http\\Server('127.0.0.1', 0);\n$server->set(['enable_coroutine' => false]);\n\
         $server->on('request', function ($request, $response) {\n    foreach (str_split($request->rawContent(), 100000) as \
         $part) {\n        $response->write($part);\n    }\n    $response->end();\n});\n$server->start();\n",
    );
    let mut client = site.client();
    for size in [1, 300_000, 1_000_000, 3_000_000] {
        let body: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n"));
        assert!(client.send(&body).reply().body == body, "{size}");
    }
});

drivers!(the_locks_of_a_program_are_gone_with_its_server, |driver: DriverName| {
    if !php() {
        return;
    }
    let program = "<?php\n$atomic = new Swoole\\Atomic(1);\n$server = new Swoole\\Http\\Server('127.0.0.1', 0);\n\
                   $server->set(['worker_num' => 1]);\n$server->on('request', function ($request, $response) use ($atomic) {\n\
                   $atomic->add(1);\n    $response->end((string) posix_getppid());\n});\n$server->start();\n";
    let site = site(driver, program);
    let maker = site.client().get("/").text().to_owned();
    let locks = || {
        let names = ["/dev/shm".into(), std::env::temp_dir()]
            .into_iter()
            .filter_map(|one: PathBuf| one.read_dir().ok());
        let of_maker = format!("ringroad-lock-{maker}-");
        names
            .flatten()
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(&of_maker))
            .count()
    };
    assert_ne!(locks(), 0, "of {maker}");
    drop(site);
    assert_eq!(locks(), 0, "of {maker}");
});

drivers!(a_worker_that_stops_itself_is_replaced_and_has_not_failed, |driver: DriverName| {
    if !php() {
        return;
    }
    let program = "<?php\n$server = new Swoole\\Http\\Server('127.0.0.1', 0);\n$server->set(['worker_num' => 1]);\n\
                   $server->on('workerError', fn (...$what) => print(\"failed\\n\"));\n\
                   $server->on('shutdown', fn (...$what) => print(\"failed\\n\"));\n\
                   $server->on('workerStop', fn (...$what) => print(\"stopped\\n\"));\n\
                   $server->on('request', function ($request, $response) use ($server) {\n    $request->get === null || \
                   $server->stop();\n    $response->end((string) getmypid());\n});\n$server->start();\n";
    let site = site(driver, program);
    let mut client = site.client();
    // What the first one says last has come when the second one ends.
    for _ in 0..2 {
        let first = client.get("/").text().to_owned();
        assert_eq!(client.get("/?stop").text(), first);
        loop {
            let event = site.event().to_string();
            assert!(!event.contains("failed") && !event.contains("died"), "{event}");
            if event.contains("stopped") {
                break;
            }
        }
        assert_ne!(client.get("/").text(), first);
    }
});

drivers!(settings_of_a_program_that_change_nothing_are_told, |driver: DriverName| {
    if !php() {
        return;
    }
    let settings =
        "['worker_num' => 1, 'package_max_length' => 1 << 20, 'worker_nums' => 4, 'daemonize' => false]";
    let program = DOCUMENT_001
        .replace("9501)", "9501, SWOOLE_PROCESS, SWOOLE_SOCK_TCP | SWOOLE_SSL)")
        .replace("$http->on", &format!("$http->set({settings});\n$http->on"));
    assert_ne!(program, DOCUMENT_001);
    let site = site(driver, &program);
    told(&site, "these settings change nothing behind Ringroad: package_max_length, worker_nums;");
    told(&site, "the program asks for TLS, which is for Ringroad to speak");
    assert_eq!(site.client().get("/").status, 200);
});

drivers!(the_workers_of_a_server_share_tables_tasks_and_connections, |driver: DriverName| {
    if !php() {
        return;
    }
    let text = "control = \"control.sock\"\n[[app]]\nname = \"web\"\napp = \"server.php\"\nworkers = 2\ndispatch = \"turns\"\n\
                queue_timeout = \"2m\"\n[[route]]\npath = \"/\"\nkind = \"app\"\napp = \"web\"\n";
    let site = start(driver, text, |folder| write(folder, "server.php", SHARED));
    let mut client = site.client();
    let (mut workers, mut counted) = (BTreeSet::new(), 0);
    wait_until("both workers answer", || {
        let reply = client.get("/count");
        let (worker, count) = reply.text().split_once(' ').unwrap();
        workers.insert(worker.to_owned());
        counted += 1;
        assert_eq!(count, counted.to_string());
        workers.len() == 2
    });
    let sums: Vec<_> = (0..3).map(|_| client.get("/add").text().to_owned()).collect();
    assert_eq!(sums, ["42", "44", "46"]);
    assert_eq!(client.get("/wait").text(), "ABC");
    assert_eq!(client.get("/all").text(), "[\"A\",\"B\"]");
    client.get("/post");
    told(&site, "finished: LATER");
    // Tasks are the server's: it counts them, replaces their processes, and tells what became of them.
    assert_eq!(client.get("/tasks").text(), "2");
    assert_eq!(client.get("/big").text(), "3000000");
    assert_eq!(client.get("/throws").text(), "[false,false]");
    client.get("/twice");
    told(&site, "finished: first");
    told(&site, "finished: TWICE");
    let tasks = |site: &Site| ask(site, "{\"do\":\"status\"}")["ok"][0]["tasks"]["over"].clone();
    let over = tasks(&site);
    assert!(over["done"].as_u64() >= Some(6) && over["raised"] == 1, "{over}");
    let pids = |site: &Site| -> BTreeSet<i64> {
        let ready = ready(site, "ready");
        ready.iter().filter(|one| one["task"] == true).map(|one| one["pid"].as_i64().unwrap()).collect()
    };
    wait_until("two task workers", || pids(&site).len() == 2);
    let old = pids(&site);
    let mut kill = Command::new("kill");
    assert!(kill.arg("-9").args(old.iter().map(i64::to_string)).status().unwrap().success());
    wait_until("two other task workers", || {
        let new = pids(&site);
        new.len() == 2 && new.is_disjoint(&old)
    });
    assert_eq!(client.get("/wait").text(), "ABC");
    assert_eq!(client.get("/message").text(), "true");
    told(&site, "got news");
    let mut clients = [open(&site, "/", "").0, open(&site, "/", "").0];
    for client in &mut clients {
        assert_eq!(next(client), (TEXT, b"hello".to_vec()));
    }
    wait_until("each worker knows the connections of the other", || {
        (0..4).all(|_| client.get("/connections").text() == "2")
    });
    clients[0].send(frame(TEXT, true, b"to all"));
    for client in &mut clients {
        assert_eq!(next(client), (TEXT, b"to all".to_vec()));
    }
    drop(clients);
    told(&site, "closed");
});

drivers!(the_configuration_may_say_how_many_task_workers_a_program_has, |driver: DriverName| {
    if !php() {
        return;
    }
    let text = "control = \"control.sock\"\n[[app]]\nname = \"web\"\napp = \"server.php\"\nworkers = 1\ntasks = 1\n\
                task_socket = \"tasks.sock\"\nqueue_timeout = \"2m\"\n[[route]]\npath = \"/\"\nkind = \"app\"\napp = \"web\"\n";
    let site = start(driver, text, |folder| {
        write(folder, "server.php", SHARED.replace("strtoupper($data)", "$data"))
    });
    let mut client = site.client();
    assert_eq!((client.get("/tasks").text(), client.get("/wait").text()), ("1", "abc"));
    // Other programs submit tasks to it, too.
    let mut socket = UnixStream::connect(site.path("tasks.sock")).unwrap();
    socket.write_all(b"{\"task\":\"a\",\"id\":7}\n").unwrap();
    let mut answer = String::new();
    BufReader::new(socket).read_line(&mut answer).unwrap();
    assert_eq!(answer.trim_end(), "{\"id\":7,\"ok\":{\"task\":\"a\"}}");
});

/// A program by itself.
struct Alone(Child, BufReader<ChildStdout>);

impl Alone {
    fn start(folder: &std::path::Path, program: &str) -> Alone {
        write(folder, "program.php", program);
        let mut command = Command::new("php");
        command.arg("-d").arg(format!("auto_prepend_file={CLASSES}")).arg(folder.join("program.php"));
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Alone(child, stdout)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.1.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_same_program_serves_by_itself() {
    if !php() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut alone = Alone::start(folder.path(), SERVER);
    let line = alone.line();
    let port: u16 = line.strip_prefix("worker 0 listens on ").unwrap().parse().unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    serves(|| Client::new(address));
    // What is malformed is refused, and its connection ends.
    for wrong in [
        "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        "GET / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    ] {
        let mut client = Client::new(address);
        let reply = client.send(wrong).reply();
        assert_eq!((reply.status, client.rest()), (400, Vec::new()));
    }
    let told = Command::new("kill").arg(alone.0.id().to_string()).status();
    assert!(told.unwrap().success() && alone.0.wait().unwrap().success());
}

#[test]
fn a_server_alone_has_workers_tasks_and_websockets_too() {
    if !php() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program =
        SHARED.replacen("$server->start();", "echo \"listens on $server->port\\n\";\n$server->start();", 1);
    let mut alone = Alone::start(folder.path(), &program);
    let line = alone.line();
    let port: u16 = line.strip_prefix("listens on ").unwrap().parse().unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut client = Client::new(address);
    assert_eq!(client.get("/wait").text(), "ABC");
    assert_eq!(client.get("/all").text(), "[\"A\",\"B\"]");
    let mut other = Client::new(address);
    let counts = [client.get("/count"), other.get("/count")];
    let counts: Vec<_> = counts.iter().map(|one| one.text().split_once(' ').unwrap().1).collect();
    assert_eq!(counts, ["1", "2"]);
    let mut socket = Client::new(address);
    socket.send(
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: \
         dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
    );
    let reply = socket.reply();
    assert_eq!(
        (reply.status, reply.header("Sec-WebSocket-Accept")),
        (101, Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="))
    );
    assert_eq!(next(&mut socket), (TEXT, b"hello".to_vec()));
    socket.send(frame(TEXT, true, b"to all"));
    assert_eq!(next(&mut socket), (TEXT, b"to all".to_vec()));
    let told = Command::new("kill").arg(alone.0.id().to_string()).status();
    assert!(told.unwrap().success() && alone.0.wait().unwrap().success());
}

#[test]
fn the_classes_do_what_programs_expect_of_them() {
    if !php() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut alone = Alone::start(folder.path(), CHECKS);
    let lines: Vec<_> =
        std::iter::from_fn(|| Some(alone.line()).filter(|line| line != "end")).take(100).collect();
    assert!(lines.len() > 10 && lines.iter().all(|line| line.starts_with("ok ")), "{}", lines.join("\n"));
}

#[test]
fn requests_of_coroutines_overlap() {
    if !php() {
        return;
    }
    // Ten requests, of which none is answered before all have come: one after another they would hang.
    let all = Arc::new(Barrier::new(10));
    let (address, _) = behind(move |client| {
        let head = client.until(b"\r\n\r\n").unwrap();
        let number = String::from_utf8_lossy(&head).split(['/', ' ']).nth(2).unwrap().to_owned();
        all.wait();
        client.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{number}", number.len()));
    });
    let program = format!(
        "<?php\n$got = [];\nfor ($number = 0; $number < 10; $number++) {{\n    go(function () use ($number, &$got) {{\n        \
         $client = new Swoole\\Coroutine\\Http\\Client('127.0.0.1', {});\n        $client->set(['timeout' => 200]);\n        \
         $client->get(\"/$number\");\n        $got[] = $client->body;\n        if (count($got) === 10) {{\n            \
         sort($got);\n            echo implode(' ', $got), \"\\n\";\n        }}\n    }});\n}}\n",
        address.port()
    );
    let folder = tempfile::tempdir().unwrap();
    let mut alone = Alone::start(folder.path(), &program);
    assert_eq!(alone.line(), "0 1 2 3 4 5 6 7 8 9");
}

/// A server in development.
const CHANGING: &str = r#"<?php
$server = new Swoole\WebSocket\Server('127.0.0.1', 9501);
$server->on('message', fn ($server, $frame) => $server->push($frame->fd, 'one'));
$server->on('request', function ($request, $response) {
    switch ($request->server['request_uri']) {
        case '/events':
            $response->header('Content-Type', 'text/event-stream');
            $response->write("data: first\n\n");
            do {
                Co::sleep(0.005);
            } while ($response->write(":\n\n"));
            touch('left');
            return;
        case '/held':
            touch('held');
            while (!file_exists('go')) {
                Co::sleep(0.005);
            }
    }
    $response->end('one');
});
$server->start();
"#;

drivers!(in_development_open_streams_of_a_server_of_swoole_end_with_its_code, |driver: DriverName| {
    if !php() {
        return;
    }
    let text = "control = \"control.sock\"\n[[app]]\nname = \"web\"\napp = \"server.php\"\nworkers = 1\ndev = true\n\
                queue_timeout = \"2m\"\nstop_timeout = \"1h\"\n[[route]]\npath = \"/\"\nkind = \"app\"\napp = \"web\"\n";
    let site = start(driver, text, |folder| write(folder, "server.php", CHANGING));
    let mut stream = site.client();
    stream.send("GET /events HTTP/1.1\r\nHost: a\r\n\r\n").until(b"data: first").unwrap();
    let (mut socket, _) = open(&site, "/", "");
    socket.send(frame(TEXT, true, b"which"));
    assert_eq!(next(&mut socket), (TEXT, b"one".to_vec()));
    let mut held = site.client();
    held.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("the request", || site.path("held").exists());
    site.replace("server.php", CHANGING.replace("'one'", "'two, and longer'"));
    told(&site, "generation 2 serves");
    assert!(stream.until(b"\r\n0\r\n\r\n").is_some());
    assert_eq!(closed(&mut socket).0, 1012);
    wait_until("the old code", || site.path("left").exists());
    assert_eq!(site.client().get("/").text(), "two, and longer");
    // A request in progress is finished by the old code.
    site.write("go", "");
    assert_eq!(held.reply().text(), "one");
    let has = |state| !ready(&site, state).is_empty();
    wait_until("the end of the old worker", || !has("draining") && !has("stopping"));
});

/// A program that prints, with several requests at once.
const PRINTS: &str = r#"<?php
$server = new Swoole\WebSocket\Server('127.0.0.1', 9501);
$server->on('message', function ($server, $frame) {
    echo "of a message\n";
    $server->push($frame->fd, 'printed');
});
$server->on('request', function ($request, $response) {
    switch ($request->server['request_uri']) {
        case '/waits':
            echo 'half ';
            touch('waiting');
            while (!file_exists('go')) {
                Co::sleep(0.005);
            }
            echo "a line\n";
            break;
        case '/prints':
            // A program that looks for output buffers of others.
            while (ob_get_level() > 0) {
                ob_end_clean();
            }
            break;
        case '/many':
            print_r(['key' => ['of an array']]);
            fwrite(STDERR, "to standard error\n");
            system('echo of another process');
            $done = new Swoole\Coroutine\Channel(1);
            go(function () use ($done) {
                Co::sleep(0.001);
                echo "of a coroutine\n";
                $done->push(true);
            });
            $done->pop();
            ob_start();
            echo 'never shown';
            ob_end_clean();
            go(function () {
                while (!file_exists('over')) {
                    Co::sleep(0.005);
                }
                echo "later\n";
            });
            break;
        case '/raises':
            throw new RuntimeException("raised\nin two lines");
    }
    echo 'no end of a line';
    $response->end('ok');
});
$server->start();
"#;

#[test]
fn each_line_that_php_prints_for_a_request_has_its_id_however_many_there_are_at_once() {
    if !php() {
        return;
    }
    let text = "request_id = \"X-Request-Id\"\n[[app]]\nname = \"web\"\napp = \"server.php\"\nworkers = 1\n\
                queue_timeout = \"2m\"\n[[route]]\npath = \"/\"\nkind = \"app\"\napp = \"web\"\n";
    let site = start(DriverName::Epoll, text, |folder| write(folder, "server.php", PRINTS));
    // Of two streams, which come each in its own order.
    let lines_to = |ends: &[&str]| {
        let mut lines: Vec<String> = Vec::new();
        while !ends.iter().all(|end| lines.iter().any(|line| line.ends_with(end))) {
            lines.push(site.event().to_string());
        }
        lines.retain(|line| line.starts_with("app web[0]"));
        lines
    };
    let mut waits = site.client();
    waits.send("GET /waits HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("the request", || site.path("waiting").exists());
    // Another one between the two halves of a line.
    let id = |path: &str| site.client().get(path).header("X-Request-Id").unwrap().to_owned();
    let many = id("/many");
    let lines = lines_to(&["no end of a line", "to standard error", "of a coroutine"]);
    for part in ["Array", "    [key] => Array", "            [0] => of an array", "of a coroutine"] {
        assert!(lines.contains(&format!("app web[0] {many}: {part}")), "{part}: {lines:?}");
    }
    assert!(lines.iter().all(|line| line.contains(&format!(" {many}: "))), "{lines:?}");
    // A coroutine that outlives its request belongs to none.
    site.write("over", "");
    assert_eq!(lines_to(&["later"]).last().unwrap(), "app web[0]: later");
    let raises = id("/raises");
    let lines = lines_to(&[": #1 {main}"]);
    assert!(lines.iter().any(|line| line.contains(&format!(" {raises}: in two lines in "))), "{lines:?}");
    assert!(lines.iter().all(|line| line.contains(&format!(" {raises}: "))), "{lines:?}");
    // One that has ended all buffers has its lines marked from the next request on.
    id("/prints");
    let line = format!("app web[0] {}: no end of a line", id("/"));
    assert!(lines_to(&[&line]).contains(&line));
    let (mut socket, head) = open(&site, "/", "");
    socket.send(frame(TEXT, true, b"print"));
    assert_eq!(next(&mut socket), (TEXT, b"printed".to_vec()));
    let session = head.header("X-Request-Id").unwrap();
    let line = lines_to(&["of a message"]).pop().unwrap();
    assert_eq!(line, format!("app web[0] {session}: of a message"));
    site.write("go", "");
    let waited = waits.reply().header("X-Request-Id").unwrap().to_owned();
    let lines = lines_to(&["half a line"]);
    assert_eq!(lines.last().unwrap(), &format!("app web[0] {waited}: half a line"));
}

drivers!(a_worker_that_ends_in_a_request_is_told_with_its_status, |driver: DriverName| {
    if !php() {
        return;
    }
    // What a program has registered for its end takes its time.
    let program = "<?php $server = new Swoole\\Http\\Server('127.0.0.1', 9501);
        $server->on('request', function ($request, $response) {
            if ($request->server['request_uri'] === '/') {
                return $response->end('here');
            }
            register_shutdown_function(function () {
                usleep(200000);
                touch('ended');
            });
            exit(4);
        });
        $server->start();";
    let site = site(driver, program);
    site.client().send("GET /exit HTTP/1.1\r\nHost: a\r\n\r\n").reply();
    while !site.event().to_string().contains("app web[0]: died: exit status: 4") {}
    assert!(site.path("ended").exists());
    assert_eq!(site.client().get("/").text(), "here");
});
