//! `ringroad serve` from outside: what it prints, what curl and wrk see, signals, limits.

use crate::fifo::writer_of;
use crate::ports::free_port;
use crate::support::{DEADLINE, Kill, Lines, installed, is_root, put_copy, ringroad, run, skip, until};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The drivers that can be had here.
pub(crate) fn drivers() -> impl Iterator<Item = &'static str> {
    use ringroad_engine::{DriverName, choose};
    let all = [
        ("io_uring", DriverName::IoUring),
        ("epoll", DriverName::Epoll),
        ("poll", DriverName::Poll),
        ("select", DriverName::Select),
        ("threads", DriverName::Threads),
    ];
    all.into_iter().filter_map(|(word, name)| match choose::probe(name) {
        Ok(_) => Some(word),
        Err(refusal) => {
            eprintln!("skipped: {refusal}");
            None
        }
    })
}

/// A `serve` that has said where.
pub(crate) struct Serving {
    process: Kill,
    pub(crate) said: Vec<String>,
    lines: Lines,
    errors: Lines,
    pub(crate) address: SocketAddr,
}

impl Serving {
    pub(crate) fn start(arguments: &[&str]) -> Serving {
        let mut command = ringroad(["serve", "--listen", "127.0.0.1:0"].iter().chain(arguments));
        Serving::of(&mut command)
    }

    pub(crate) fn of(command: &mut Command) -> Serving {
        let mut process = Kill(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
        let lines = Lines::of(process.0.stdout.take().unwrap());
        let errors = Lines::of(process.0.stderr.take().unwrap());
        let mut said: Vec<String> = Vec::new();
        // The last line of what it says.
        while !said.last().is_some_and(|line| line.starts_with("Ctrl-C")) {
            match lines.next() {
                Some(line) => said.push(line),
                None => panic!("it ended: {said:?} {:?}", errors.rest()),
            }
        }
        let url = said.iter().find_map(|line| line.trim().strip_prefix("http://")).unwrap();
        let address = url.trim_end_matches('/').parse().unwrap();
        Serving { process, said, lines, errors, address }
    }

    /// The number of its process.
    pub(crate) fn id(&self) -> u32 {
        self.process.0.id()
    }

    /// Sends it a signal that does not end it.
    pub(crate) fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// The next line that it writes to standard error.
    pub(crate) fn error(&self) -> Option<String> {
        self.errors.next()
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Waits until it has ended, as it was told to; it must end well.
    pub(crate) fn ends(mut self) {
        let (out, errors) = (self.lines.rest(), self.errors.rest());
        assert_eq!(self.process.wait(), Some(0), "{out:?} {errors:?}");
    }

    /// Stops it; what it wrote to standard error.
    fn stop(mut self, signal: Signal) -> Vec<String> {
        self.process.signal(signal);
        let (out, errors) = (self.lines.rest(), self.errors.rest());
        assert_eq!(self.process.wait(), Some(0), "{out:?} {errors:?}");
        errors
    }
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream
}

/// Asks on a connection that goes on; the head and the body.
pub(crate) fn ask(stream: &mut TcpStream, path: &str) -> (String, Vec<u8>) {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).unwrap();
    answer(stream)
}

/// The head and the body of the next answer.
fn answer(stream: &mut TcpStream) -> (String, Vec<u8>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let length =
        head.split("Content-Length: ").nth(1).unwrap().split("\r\n").next().unwrap().parse().unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    (head, body)
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("index.html"), "<h1>here</h1>").unwrap();
    // A minute old: a file that was changed just now has an entity tag for one answer.
    let large = std::fs::File::create(folder.path().join("large")).unwrap();
    std::io::Write::write_all(&mut &large, &vec![b'x'; 8 << 20]).unwrap();
    large.set_modified(std::time::SystemTime::now() - Duration::from_secs(60)).unwrap();
    folder
}

/// A configuration that serves a folder, and gives a stop all the time it needs.
fn patient(folder: &Path) -> std::path::PathBuf {
    let config = folder.join("patient.toml");
    let text = "drain = \"1h\"\ntimeouts = { header = \"1h\", send = \"1h\", keep_alive = \"1h\" }\n[[route]]\npath = \"/\"\nkind = \"static\"\nroot = \".\"\n";
    std::fs::write(&config, text).unwrap();
    config
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_folder_is_served_and_it_is_said_where_on_what_and_why() {
    let folder = folder();
    let serving = Serving::start(&[text(folder.path()), "--driver", "epoll"]);
    let said = serving.said.join("\n");
    assert!(said.starts_with("Ringroad serves "), "{said}");
    assert!(said.contains("\n  driver   epoll: as asked on the command line\n"), "{said}");
    assert!(said.contains("\n  workers  1\n") && !said.contains('\u{1b}'), "{said}");
    assert!(!said.contains("no index.html"), "{said}");
    assert_eq!(ask(&mut connect(serving.address), "/").1, b"<h1>here</h1>");
    assert_eq!(serving.stop(Signal::INT), Vec::<String>::new());

    std::fs::remove_file(folder.path().join("index.html")).unwrap();
    let mut command = ringroad(["serve", "--listen", "127.0.0.1:0"]);
    let serving = Serving::of(command.current_dir(folder.path()));
    assert!(lists(serving.address), "on loopback");
    assert!(!serving.said.join("\n").contains("no index.html"), "{:?}", serving.said);
    serving.stop(Signal::TERM);
}

/// Whether the page of the root has a link to `large`.
fn lists(address: SocketAddr) -> bool {
    let (head, page) = ask(&mut connect(address), "/");
    assert!(head.starts_with("HTTP/1.1 200 ") || head.starts_with("HTTP/1.1 404 "), "{head}");
    String::from_utf8_lossy(&page).contains("<a href=\"large\">large</a>")
}

#[test]
fn folders_are_listed_for_other_machines_only_on_request() {
    let folder = folder();
    std::fs::remove_file(folder.path().join("index.html")).unwrap();
    for (more, listed) in [(&[][..], false), (&["--autoindex"], true)] {
        let mut command =
            ringroad(["serve", text(folder.path()), "--listen", "0.0.0.0:0"].iter().chain(more));
        let serving = Serving::of(&mut command);
        let said = serving.said.join("\n");
        let hint = said.contains("There is no index.html here; --autoindex lists folders.");
        assert_eq!(hint, !listed, "{said}");
        assert_eq!(lists((Ipv4Addr::LOCALHOST, serving.address.port()).into()), listed);
        serving.stop(Signal::TERM);
    }
}

#[test]
fn what_cannot_be_served_is_said_before_anything_starts() {
    let folder = folder();
    let config = folder.path().join("site.toml");
    std::fs::write(&config, "workers = 0\n\n[[rout]]\npath = \"/\"\n").unwrap();
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap().to_string();
    let file = text(&config);
    let page = folder.path().join("index.html");
    let page = text(&page);
    for (arguments, code, said) in [
        (
            &["--config", file][..],
            2,
            format!("ringroad: configuration, on {file}:3: rout: not a key here (did you mean `route`?)\n"),
        ),
        (
            &["--config", "/nowhere.toml"],
            2,
            "ringroad: configuration, on /nowhere.toml: No such file or directory\n".to_owned(),
        ),
        (&["/nowhere"], 2, "ringroad: serve, on /nowhere: No such file or directory\n".to_owned()),
        (&[file], 2, format!("Not a directory (a configuration is --config {file})\n")),
        (&[page], 2, format!("{page}: Not a directory (a folder is wanted: the file's own is served")),
        (&["29201"], 2, "No such file or directory (a port is -p 29201)\n".to_owned()),
        (&["localhost:29201"], 2, "(an address is --listen localhost:29201)\n".to_owned()),
        (&[text(folder.path()), "--driver", "sim"], 2, "sim".to_owned()),
    ] {
        let outcome = run(&mut ringroad(["serve", "--listen", "127.0.0.1:0"].iter().chain(arguments)));
        assert_eq!(outcome.code, Some(code), "{arguments:?}: {outcome:?}");
        assert!(outcome.stderr.contains(&said) && outcome.stdout.is_empty(), "{arguments:?}: {outcome:?}");
    }
    let outcome = run(&mut ringroad(["serve", text(folder.path()), "--listen", &taken]));
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.stderr.contains(&taken) && outcome.stdout.is_empty(), "{outcome:?}");
}

#[test]
fn curl_gets_files_parts_and_compressed_forms_on_every_driver() {
    if !installed("curl") {
        return;
    }
    let folder = folder();
    std::fs::write(folder.path().join("a.css"), "plain").unwrap();
    std::fs::write(folder.path().join("a.css.gz"), "packed").unwrap();
    for driver in drivers() {
        let serving = Serving::start(&[text(folder.path()), "--driver", driver]);
        let curl = |arguments: &[&str], path: &str| {
            run(Command::new("curl").args(["-sS", "--max-time", "60"]).args(arguments).arg(serving.url(path)))
        };
        assert_eq!(curl(&[], "/").text(), "<h1>here</h1>", "{driver}");
        assert_eq!(curl(&["-r", "5-7"], "/large").stdout, b"xxx", "{driver}");
        assert_eq!(curl(&["-H", "Accept-Encoding: gzip"], "/a.css").text(), "packed", "{driver}");
        assert_eq!(
            curl(&["--path-as-is"], "/../large").text(),
            "400 Bad Request: The address is refused: the path has a segment . or .. in one of its readings.\n"
        );
        // A file that was made just now has an entity tag for one answer.
        until("a tag that stays", || {
            let head = curl(&["-I"], "/large").text();
            assert!(head.contains("Content-Length: 8388608"), "{driver}: {head}");
            let tag = head.lines().find_map(|line| line.strip_prefix("ETag: ")).unwrap().trim().to_owned();
            let condition = format!("If-None-Match: {tag}");
            let code = curl(&["-o", "/dev/null", "-w", "%{http_code}", "-H", &condition], "/large").text();
            assert!(["304", "200"].contains(&&*code), "{driver}: {code}");
            code == "304"
        });
        assert_eq!(curl(&[], "/large").stdout.len(), 8 << 20, "{driver}");
        serving.stop(Signal::TERM);
    }
}

#[test]
fn wrk_sees_no_error_on_any_driver() {
    if !installed("wrk") {
        return;
    }
    let folder = folder();
    for driver in drivers() {
        let serving = Serving::start(&[text(folder.path()), "--driver", driver, "--workers", "2"]);
        let outcome = run(Command::new("wrk").args(["-t1", "-c16", "-d1s"]).arg(serving.url("/")));
        let text = outcome.text();
        assert!(text.contains("requests in"), "{driver}: {outcome:?}");
        // A timeout is all that a machine under load may show.
        let broken = text.contains("Socket errors") && !text.contains("connect 0, read 0, write 0");
        assert!(!text.contains("Non-2xx") && !broken, "{driver}: {text}");
        serving.stop(Signal::TERM);
    }
}

#[test]
fn a_stop_finishes_what_has_begun_and_takes_nothing_more() {
    let folder = folder();
    for driver in drivers() {
        let config = patient(folder.path());
        let mut serving = Serving::start(&["--config", text(&config), "--driver", driver]);
        let mut slow = connect(serving.address);
        slow.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        // Its answer has begun.
        let mut first = [0; 9];
        slow.read_exact(&mut first).unwrap();
        assert_eq!(&first, b"HTTP/1.1 ");
        serving.process.signal(Signal::TERM);
        until("no connection is accepted", || TcpStream::connect(serving.address).is_err());
        let notice = serving.errors.next().unwrap();
        assert!(
            notice.starts_with("ringroad: stopping: waiting at most 3600s for requests on 1 connection;"),
            "{notice}"
        );
        let mut rest = Vec::new();
        slow.read_to_end(&mut rest).unwrap();
        assert!(rest.len() > 8 << 20 && rest.ends_with(&[b'x'; 1024]), "{driver}: {} bytes", rest.len());
        assert_eq!(serving.process.wait(), Some(0), "{driver}");
    }
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let folder = folder();
    let config = patient(folder.path());
    let mut serving = Serving::start(&["--config", text(&config)]);
    let mut slow = connect(serving.address);
    slow.write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    slow.read_exact(&mut [0; 9]).unwrap();
    serving.process.signal(Signal::TERM);
    until("it stops", || {
        serving.process.signal(Signal::TERM);
        serving.process.0.try_wait().unwrap().is_some()
    });
    assert_eq!(serving.process.wait(), None, "by the signal");
}

#[test]
fn sighup_reads_the_configuration_again() {
    let folder = folder();
    let config = folder.path().join("site.toml");
    let write = |body: &str| {
        let text = format!("[[route]]\npath = \"/\"\nkind = \"respond\"\nbody = \"{body}\"\n");
        std::fs::write(&config, text).unwrap();
    };
    write("one");
    let serving = Serving::start(&["--config", text(&config)]);
    let mut client = connect(serving.address);
    assert_eq!(ask(&mut client, "/").1, b"one");
    write("two");
    serving.process.signal(Signal::HUP);
    assert_eq!(serving.errors.next().unwrap(), "ringroad: configuration: read again, in force");
    assert_eq!(ask(&mut client, "/").1, b"two");
    std::fs::write(&config, "lisen = 5\n").unwrap();
    serving.process.signal(Signal::HUP);
    let said: Vec<_> = (0..3).map(|_| serving.errors.next().unwrap()).collect();
    let file = text(&config);
    assert_eq!(
        said,
        [
            &format!(
                "ringroad: configuration, on {file}:1: route: missing: expected at least one [[route]], with `path` and `kind`"
            ),
            &format!("ringroad: configuration, on {file}:1: lisen: not a key here (did you mean `listen`?)"),
            "ringroad: configuration: the old one stays in force",
        ]
    );
    assert_eq!(ask(&mut client, "/").1, b"two");
    serving.stop(Signal::TERM);
}

#[test]
fn a_configuration_from_a_fifo_is_read_once_and_a_reload_does_not_wait_for_it() {
    let folder = folder();
    let config = folder.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&config).status().unwrap().success());
    let into = config.clone();
    let page = "[[route]]\npath = \"/\"\nkind = \"respond\"\nbody = \"one\"\n";
    let writer = std::thread::spawn(move || writer_of(&into).write_all(page.as_bytes()).unwrap());
    let serving = Serving::start(&["--config", text(&config)]);
    writer.join().unwrap();
    serving.process.signal(Signal::HUP);
    let file = text(&config);
    for said in [
        &*format!("configuration, on {file}: a FIFO or pipe, and a regular file is expected"),
        "configuration: the old one stays in force",
    ] {
        assert_eq!(serving.errors.next().unwrap(), format!("ringroad: {said}"));
    }
    assert_eq!(ask(&mut connect(serving.address), "/").1, b"one");
    serving.stop(Signal::TERM);
}

#[test]
fn a_log_that_nothing_reads_is_not_waited_for() {
    let folder = folder();
    assert!(Command::new("mkfifo").arg(folder.path().join("log")).status().unwrap().success());
    let config = folder.path().join("site.toml");
    let text_of_it =
        "listen = \"127.0.0.1:0\"\n[[route]]\npath = \"/\"\nkind = \"health\"\n[log]\nfile = \"log\"\n";
    std::fs::write(&config, text_of_it).unwrap();
    let outcome = run(&mut ringroad(["serve", "--config", text(&config)]));
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.stderr.contains("a FIFO that nothing reads"), "{outcome:?}");
}

#[test]
fn sighup_to_a_server_of_a_folder_is_answered_with_what_was_done() {
    let folder = folder();
    let serving = Serving::start(&[text(folder.path())]);
    serving.process.signal(Signal::HUP);
    let expected = format!(
        "ringroad: no configuration to read again: looked again at folder {}, certificates and access log",
        folder.path().display()
    );
    assert_eq!(serving.errors.next().unwrap(), expected);
    assert_eq!(ask(&mut connect(serving.address), "/").1, b"<h1>here</h1>");
    serving.stop(Signal::TERM);
}

#[test]
fn sigusr1_opens_the_access_log_again_and_ends_nothing() {
    let folder = folder();
    let (config, log) = (folder.path().join("site.toml"), folder.path().join("access.log"));
    let site = "[log]\nfile = \"access.log\"\n[[route]]\npath = \"/\"\nkind = \"respond\"\nbody = \"a\"\n";
    std::fs::write(&config, site).unwrap();
    let serving = Serving::start(&["--config", text(&config)]);
    let mut client = connect(serving.address);
    ask(&mut client, "/first");
    let lines = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    until("the first request is logged", || lines(&log).contains("/first"));
    let moved = folder.path().join("access.log.1");
    std::fs::rename(&log, &moved).unwrap();
    serving.process.signal(Signal::USR1);
    until("there is a new file", || log.exists());
    ask(&mut client, "/second");
    until("the second request is in it", || lines(&log).contains("/second"));
    assert!(!lines(&moved).contains("/second"));
    serving.stop(Signal::TERM);
}

/// A client that is always in the middle of a request: it sends the first byte of the next one together with
/// the rest of this one. Where there are more clients than places, one that is idle for a second makes room.
struct Busy(TcpStream);

impl Busy {
    fn connect(address: SocketAddr) -> Busy {
        let mut stream = connect(address);
        stream.write_all(b"G").unwrap();
        Busy(stream)
    }

    fn ask(&mut self, path: &str) -> (String, Vec<u8>) {
        self.0.write_all(format!("ET {path} HTTP/1.1\r\nHost: a\r\n\r\nG").as_bytes()).unwrap();
        answer(&mut self.0)
    }
}

/// 256 descriptors, and twice as many connections that want one.
#[test]
fn at_the_descriptor_limit_connected_clients_are_served_and_others_wait() {
    let folder = folder();
    for driver in drivers() {
        let binary = crate::support::BINARY;
        let line = "ulimit -n 256; exec \"$0\" serve --listen 127.0.0.1:0 --driver \"$1\" --config \"$2\"";
        let config = patient(folder.path());
        let mut command = Command::new("sh");
        let serving = Serving::of(command.args(["-c", line, binary, driver, text(&config)]));
        let mut first = Busy::connect(serving.address);
        first.ask("/");
        let others: Vec<_> = (0..512).map(|_| Busy::connect(serving.address)).collect();
        for round in 0..20 {
            // What is in memory, and what takes a descriptor.
            assert_eq!(first.ask("/").1, b"<h1>here</h1>", "{driver} {round}");
            let (head, body) = first.ask("/large");
            // io_uring's accept takes every waiting connection, up to the last descriptor, before it can be
            // told to pause: then a file that is not in memory has to wait for one.
            let busy = driver == "io_uring" && head.starts_with("HTTP/1.1 503 ");
            assert!(busy || body.len() == 8 << 20, "{driver} {round}: {head}");
        }
        // As those before them go, the others come in.
        for (number, mut next) in others.into_iter().enumerate() {
            assert_eq!(next.ask("/").1, b"<h1>here</h1>", "{driver} {number}");
        }
        assert_eq!(first.ask("/").1, b"<h1>here</h1>", "{driver}");
        drop(first);
        serving.stop(Signal::TERM);
    }
}

#[test]
fn with_v_each_request_is_a_line_on_standard_output() {
    let folder = folder();
    let mut command = ringroad(["serve", "-v", "--listen", "127.0.0.1:0", text(folder.path())]);
    let mut process = Kill(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let (lines, errors) =
        (Lines::of(process.0.stdout.take().unwrap()), Lines::of(process.0.stderr.take().unwrap()));
    // The log has standard output for itself.
    let url = std::iter::from_fn(|| errors.next())
        .find_map(|line| line.trim().strip_prefix("http://").map(|url| url.trim_end_matches('/').to_owned()));
    ask(&mut connect(url.unwrap().parse().unwrap()), "/?a");
    let line = lines.next().unwrap();
    assert!(
        line.starts_with("127.0.0.1 - - [") && line.ends_with("\"GET /?a HTTP/1.1\" 200 13 \"-\" \"-\""),
        "{line}"
    );
    process.signal(Signal::TERM);
    assert_eq!(process.wait(), Some(0));
}

/// Returns a command that starts the program with these sockets at the descriptors 3 and 4, as
/// `sd_listen_fds(3)` describes it: the shell's process number is the program's. Both output streams go to
/// standard error.
fn with_passed_sockets(listeners: [std::os::fd::OwnedFd; 2], config: &Path) -> Command {
    let script = "exec 3<&0 4<&1 </dev/null 1>&2; \
        LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=web:internal exec \"$0\" serve --config \"$1\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, crate::support::BINARY, text(config)]);
    let [first, second] = listeners;
    command.stdin(first).stdout(second).stderr(Stdio::piped());
    command
}

#[test]
fn sockets_of_the_service_manager_are_served_by_name_over_a_reload_and_a_restart() {
    let folder = folder();
    let config = folder.path().join("site.toml");
    let write = |body: &str| {
        let route = |path: &str, body: &str| {
            format!("[[route]]\npath = \"{path}\"\nkind = \"respond\"\nbody = \"{body}\"\n")
        };
        // By name, and in another order than they are passed.
        let top = "listen = [\"systemd:internal\", \"systemd:web\"]\n";
        std::fs::write(&config, format!("{top}{}", route("/", body))).unwrap();
    };
    let web = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let internal = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addresses = [web.local_addr().unwrap(), internal.local_addr().unwrap()];
    let start = || {
        let listeners = [web.try_clone().unwrap().into(), internal.try_clone().unwrap().into()];
        let mut process = Kill(with_passed_sockets(listeners, &config).spawn().unwrap());
        let lines = Lines::of(process.0.stderr.take().unwrap());
        (process, lines)
    };
    let until_line = |lines: &Lines, end: &str| {
        let mut said = Vec::new();
        loop {
            let line = lines.next().unwrap_or_else(|| panic!("it ended: {said:?}"));
            let is_last = line.contains(end);
            said.push(line);
            if is_last {
                return said;
            }
        }
    };
    write("one");
    // Made before the program runs: it waits in the backlog of the passed socket.
    let mut early = connect(addresses[0]);
    let (mut process, lines) = start();
    let said = until_line(&lines, "Ctrl-C");
    for address in addresses {
        assert!(said.iter().any(|line| line.contains(&format!("http://{address}"))), "{said:?}");
        assert_eq!(ask(&mut connect(address), "/").1, b"one");
    }
    assert_eq!(ask(&mut early, "/").1, b"one");
    write("two");
    process.signal(Signal::HUP);
    until_line(&lines, "read again, in force");
    assert_eq!(ask(&mut connect(addresses[1]), "/").1, b"two");
    drop(early);
    process.signal(Signal::TERM);
    assert_eq!(process.wait(), Some(0), "{:?}", lines.rest());
    // The sockets are the service manager's: what connects between two runs is served by the next one.
    let mut between = connect(addresses[0]);
    write("three");
    let (mut process, lines) = start();
    assert_eq!(ask(&mut between, "/").1, b"three");
    drop(between);
    process.signal(Signal::TERM);
    assert_eq!(process.wait(), Some(0), "{:?}", lines.rest());
}

#[test]
fn sockets_passed_to_another_process_are_not_taken() {
    let folder = folder();
    let config = folder.path().join("site.toml");
    std::fs::write(&config, "listen = \"systemd\"\n[[route]]\npath = \"/\"\nkind = \"health\"\n").unwrap();
    let mut command = ringroad(["serve", "--config", text(&config)]);
    // The number of a process that is not this one: the variables went further than the sockets.
    command.env("LISTEN_PID", std::process::id().to_string()).env("LISTEN_FDS", "1");
    let outcome = run(&mut command);
    assert_ne!(outcome.code, Some(0));
    assert!(outcome.stderr.contains("no socket was passed"), "{}", outcome.stderr);
}

/// Descriptors of a process, by what they are open on.
fn descriptors(process: &Kill) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", process.0.id())).unwrap().count()
}

#[test]
fn listeners_that_a_reload_takes_away_leave_no_descriptor_behind() {
    let folder = folder();
    let config = folder.path().join("site.toml");
    let write = |listen: &str| {
        let route = "[[route]]\npath = \"/\"\nkind = \"health\"\n";
        std::fs::write(&config, format!("listen = [{listen}]\n{route}")).unwrap();
    };
    // The workers of a port of its own choice stay; the Unix sockets and a named port
    // come and go, faster than their workers wind up.
    let port = free_port();
    let one = "\"127.0.0.1:0\"";
    let three = format!("{one}, \"unix:a.sock\", \"unix:b.sock\", \"127.0.0.1:{port}\"");
    let three = three.as_str();
    write(one);
    let mut serving = Serving::of(&mut ringroad(["serve", "--config", text(&config)]));
    let reload = |serving: &Serving, listen: &str| {
        write(listen);
        serving.process.signal(Signal::HUP);
        assert_eq!(serving.errors.next().unwrap(), "ringroad: configuration: read again, in force");
    };
    // What is made once is there after the first time.
    reload(&serving, three);
    reload(&serving, one);
    until("the listeners are retired", || !folder.path().join("a.sock").exists());
    let mut before = usize::MAX;
    until("the number of descriptors stands still", || {
        let now = descriptors(&serving.process);
        std::mem::replace(&mut before, now) == now
    });
    for _ in 0..8 {
        reload(&serving, three);
        reload(&serving, one);
    }
    let mut now = 0;
    until("no more descriptors are open than before", || {
        now = descriptors(&serving.process);
        now <= before
    });
    serving.process.signal(Signal::TERM);
    assert_eq!(serving.process.wait(), Some(0));
}

#[test]
fn a_log_that_is_not_read_does_not_hold_up_a_stop() {
    let folder = folder();
    let log = folder.path().join("log");
    assert!(Command::new("mkfifo").arg(&log).status().unwrap().success());
    let config = folder.path().join("site.toml");
    let text_of_it = "drain = \"1s\"\n[[route]]\npath = \"/\"\nkind = \"health\"\n[log]\nfile = \"log\"\n";
    std::fs::write(&config, text_of_it).unwrap();
    // Open, and never read: the pipe takes 64 KiB and then no more.
    let reader = std::fs::OpenOptions::new().read(true).write(true).open(&log).unwrap();
    let mut serving = Serving::start(&["--config", text(&config)]);
    let mut client = connect(serving.address);
    let long = format!("/?{}", "x".repeat(4000));
    for _ in 0..100 {
        ask(&mut client, &long);
    }
    serving.process.signal(Signal::TERM);
    assert_eq!(serving.process.wait(), Some(0));
    drop(reader);
}

/// Sandboxes have filters that answer calls they do not know with EPERM.
#[test]
fn a_filter_that_refuses_the_limit_of_descriptors_keeps_no_driver_from_serving() {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
    let folder = folder();
    let rules = [(libc::SYS_prlimit64, Vec::new()), (libc::SYS_getrlimit, Vec::new())].into();
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    let machine = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, machine).unwrap();
    let filter: BpfProgram = filter.try_into().unwrap();
    for driver in drivers() {
        // A filter holds for the thread that asks for it and for what it starts.
        let serving = std::thread::scope(|scope| {
            let start = || {
                seccompiler::apply_filter(&filter).unwrap();
                Serving::start(&["--driver", driver, folder.path().to_str().unwrap()])
            };
            scope.spawn(start).join().unwrap()
        });
        assert_eq!(ask(&mut connect(serving.address), "/").1, b"<h1>here</h1>", "{driver}");
        serving.stop(Signal::TERM);
    }
}

/// Serves a site as a user that is not its owner, on every driver, and compares statuses. The words are those
/// of `serve`; the program and the folder may be read by all, and `modes` has those of names in the site.
fn as_another_user(folder: &Path, words: &[&str], modes: &[(&str, u32)], expected: &[(&str, &str)]) {
    let set = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    let program = folder.join("program");
    put_copy(&program);
    set(folder, 0o755);
    set(&program, 0o755);
    for (name, mode) in modes {
        set(&folder.join("site").join(name), *mode);
    }
    for driver in drivers() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&program);
        command.args(["serve", "--driver", driver]).args(words);
        let serving = Serving::of(&mut command);
        for (path, status) in expected {
            let code = run(Command::new("curl")
                .args(["-s", "--max-time", "60", "-o", "/dev/null", "-w", "%{http_code}"])
                .arg(serving.url(path)));
            assert_eq!(code.text(), *status, "{driver} {path}");
        }
        serving.stop(Signal::TERM);
    }
}

/// Whether a test may become another user.
fn may_be_another_user() -> bool {
    let may = installed("setpriv") && installed("curl") && is_root();
    if !may {
        skip("files that may not be read", "it takes root, setpriv and curl");
    }
    may
}

/// The program for users that may lock little memory: the number of a user, which no other test has, because
/// the kernel counts for each user, and KiB. `None`: this cannot be had here.
fn of_users_with_little_memory(folder: &Path) -> Option<impl Fn(u32, u32) -> Command> {
    if !may_be_another_user() || !installed("prlimit") {
        return None;
    }
    let program = folder.join("program");
    put_copy(&program);
    for path in [folder, &*program] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    }
    Some(move |user: u32, kib: u32| {
        let (memory, user) = (format!("--memlock={}", kib << 10), user.to_string());
        let mut command = Command::new("prlimit");
        command.args([&*memory, "setpriv", "--reuid", &user, "--regid", &user, "--clear-groups"]);
        command.arg(&program).env_remove("RINGROAD_DRIVER");
        command
    })
}

#[test]
fn where_the_rings_of_all_workers_find_no_memory_server_and_load_run_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let Some(limited) = of_users_with_little_memory(folder.path()) else { return };
    std::fs::write(folder.path().join("page"), "page").unwrap();
    // Enough for the trial of io_uring, and not for so many rings.
    let mut server = limited(61_002, 64);
    let serving = Serving::of(server.arg("serve").arg(folder.path()).args(["-p", "0", "--workers", "8"]));
    let url = serving.url("/page");
    let page = run(Command::new("curl").args(["-s", "--max-time", "60"]).arg(&url));
    assert_eq!(page.text(), "page");
    let mut load = limited(61_003, 64);
    let outcome = run(load.arg("load").arg(&url).args(["-t", "8", "-c", "8", "-n", "80", "--json"]));
    let record: serde_json::Value = serde_json::from_slice(&outcome.stdout).unwrap();
    assert_eq!(record["cells"][0]["completed"], 80, "{record}");
    serving.stop(Signal::TERM);
}

#[test]
fn where_its_ring_finds_no_memory_the_lab_s_client_takes_the_next_driver() {
    let folder = tempfile::tempdir().unwrap();
    let Some(limited) = of_users_with_little_memory(folder.path()) else { return };
    std::fs::write(folder.path().join("page"), "page").unwrap();
    // With some of these limits the server's ring leaves nothing for the client's.
    for (user, kib) in [(61_010, 16), (61_011, 24), (61_012, 32), (61_013, 48), (61_014, 64)] {
        let mut server = limited(user, kib);
        let serving = Serving::of(server.arg("serve").arg(folder.path()).args(["-p", "0", "--workers", "1"]));
        let url = serving.url("/page");
        let addr = url.trim_start_matches("http://").split('/').next().unwrap();
        let options = serde_json::json!({
            "addr": addr, "protocol": "http", "connections": 2, "active": 2, "reconnect": false, "pipeline": 1,
            "payload_bytes": 0, "path": "/page", "body": "page", "warmup_s": 0.0, "duration_s": 0.1,
            "syscalls_s": 0.0, "memory": false, "timeout_s": 60.0, "server_pid": null, "turn_s": null
        });
        let mut client = limited(user, kib);
        let outcome = run(client.args(["lab", "client", "load"]).arg(options.to_string()));
        let report: serde_json::Value = serde_json::from_str(&outcome.text()).unwrap();
        assert_eq!(report["served"], 2, "{kib} KiB: {report}");
        serving.stop(Signal::TERM);
    }
}

#[test]
fn where_the_ring_of_the_only_worker_leaves_no_memory_servers_behind_are_checked_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let Some(limited) = of_users_with_little_memory(folder.path()) else { return };
    let config = folder.path().join("ringroad.toml");
    // With some of these limits the ring takes all that there is.
    for (user, kib) in [(61_004, 40), (61_005, 48), (61_006, 64), (61_007, 80)] {
        let behind = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let text = format!(
            "listen = \"127.0.0.1:0\"\nworkers = 1\n[upstream.u]\nservers = [\"http://{}\"]\n\
             health = {{ path = \"/\", every = \"1s\" }}\n[[route]]\npath = \"/\"\nkind = \"proxy\"\n\
             to = \"upstream:u\"\n",
            behind.local_addr().unwrap()
        );
        std::fs::write(&config, text).unwrap();
        behind.set_nonblocking(true).unwrap();
        let serving = Serving::of(limited(user, kib).arg("serve").arg("--config").arg(&config));
        until("a health check", || behind.accept().is_ok());
        serving.stop(Signal::TERM);
    }
}

#[test]
fn what_may_not_be_read_is_not_passed_over_on_every_driver() {
    if !may_be_another_user() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let site = folder.path().join("site");
    std::fs::create_dir_all(site.join("secrets")).unwrap();
    let config = folder.path().join("ringroad.toml");
    let text = "listen = \"127.0.0.1:0\"\n[[route]]\npath = \"/\"\nkind = \"static\"\nroot = \"site\"\n\
                try_files = [\"/secret{rest}\", \"/page\"]\n";
    std::fs::write(&config, text).unwrap();
    for (name, to) in [("link", "secrets/file"), ("absolute", "secrets/file"), ("gone", "nothing")] {
        let to = if name == "link" { PathBuf::from(to) } else { site.join(to) };
        std::os::unix::fs::symlink(to, site.join(name)).unwrap();
    }
    std::fs::write(site.join("page"), "page").unwrap();
    std::fs::write(site.join("secret"), "secret").unwrap();
    std::fs::write(site.join("secrets/file"), "secret").unwrap();
    as_another_user(
        folder.path(),
        &["--config", config.to_str().unwrap()],
        &[("secret", 0o600), ("secrets", 0o700)],
        &[
            ("/nothing", "200"),
            ("/s/file", "403"),
            ("/secret", "403"),
            ("/link", "403"),
            ("/absolute", "403"),
            ("/gone", "200"),
        ],
    );
}

#[test]
fn what_the_server_may_not_read_is_forbidden_on_every_driver() {
    if !may_be_another_user() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let site = folder.path().join("site");
    for name in ["listed", "shut", "index"] {
        std::fs::create_dir_all(site.join(name)).unwrap();
        std::fs::write(site.join(name).join("file"), name).unwrap();
    }
    std::fs::write(site.join("index/index.html"), "index").unwrap();
    std::fs::write(site.join("secret"), "secret").unwrap();
    as_another_user(
        folder.path(),
        &["--listen", "127.0.0.1:0", "--autoindex", text(&site)],
        // The folder itself may be searched and not listed.
        &[("", 0o711), ("listed", 0o711), ("shut", 0o700), ("index/index.html", 0o600), ("secret", 0o600)],
        &[
            ("/", "403"),
            ("/listed/", "403"),
            ("/listed/file", "200"),
            ("/shut/", "403"),
            ("/shut/file", "403"),
            ("/index/", "403"),
            ("/secret", "403"),
            ("/index/file", "200"),
        ],
    );
}
