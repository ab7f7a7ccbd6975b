//! `ringroad serve --app` and `ringroad app` from outside: what is printed, the mode of the socket, slow
//! uploads by the thousand, and the end of the workers when the server is killed.

use crate::serve::{Serving, drivers};
use crate::support::{DEADLINE, installed, processes_with, ringroad, run, until};
use rustix::process::Signal;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// An application in a module of its own name, by which its processes are known.
struct App {
    folder: tempfile::TempDir,
    module: String,
}

impl App {
    fn new(name: &str) -> Option<App> {
        if !installed("python3") {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let module = format!("{name}_{}", std::process::id());
        let text = "import os\nif os.path.exists('broken'):\n    raise SystemExit('release 2 is broken')\n\n\n\
                    def app(environ, start_response):\n    start_response('200 OK', [])\n    \
                    return [environ['wsgi.input'].read()]\n";
        fs::write(folder.path().join(format!("{module}.py")), text).unwrap();
        Some(App { folder, module })
    }

    fn control(&self) -> PathBuf {
        self.folder.path().join("control.sock")
    }

    /// Starts a server with it; `more` are lines of its `[[app]]`.
    fn serve(&self, more: &str, arguments: &[&str]) -> Serving {
        let config = self.folder.path().join("ringroad.toml");
        let text = format!(
            "listen = \"127.0.0.1:0\"\ncontrol = \"control.sock\"\n[[app]]\nname = \"web\"\napp = \"{}:app\"\n\
             python = \"python3\"\nqueue_timeout = \"2m\"\n{more}\n\
             [[route]]\npath = \"/\"\nkind = \"app\"\napp = \"web\"\n",
            self.module
        );
        fs::write(&config, text).unwrap();
        Serving::of(ringroad(["serve", "--config", config.to_str().unwrap()]).args(arguments))
    }

    /// Asks the server: exit code, what was printed, and the complaints.
    fn ask(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let control = self.control();
        let outcome = run(ringroad(["app"]).args(arguments).arg("--control").arg(control));
        (outcome.code, outcome.text(), outcome.stderr)
    }

    fn status(&self) -> serde_json::Value {
        serde_json::from_str::<serde_json::Value>(&self.ask(&["status", "--json"]).1).unwrap()[0].clone()
    }

    fn ready(&self) -> usize {
        let status = self.status();
        status["workers"].as_array().unwrap().iter().filter(|one| one["state"] == "ready").count()
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream
}

/// The answer to a request on a connection of its own.
fn answer(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn get(address: SocketAddr) -> String {
    let mut stream = connect(address);
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    answer(stream)
}

#[test]
fn the_processes_of_an_application_are_looked_after_from_the_command_line() {
    let Some(app) = App::new("looked_after") else { return };
    let serving = app.serve("workers = 2\ntasks = 1", &[]);
    assert_eq!(fs::metadata(app.control()).unwrap().permissions().mode() & 0o777, 0o600);
    until("all processes", || app.ready() == 3);
    let (code, table, _) = app.ask(&["status"]);
    assert_eq!(code, Some(0));
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("web  generation 1  "), "{table}");
    let slots: Vec<_> = lines[2..5].iter().map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(slots, ["0", "1", "t0"], "{table}");
    let told = |arguments: &[&str], text: &str| {
        let (code, out, errors) = app.ask(arguments);
        assert_eq!((code, out.as_str()), (Some(0), text), "{arguments:?}: {errors}");
    };
    told(&["restart", "t0"], "web: 1 replaced\n");
    told(&["restart"], "web: 3 replaced\n");
    told(&["scale", "1", "--tasks", "0"], "web: 1 worker, 0 task workers\n");
    until("one process", || app.status()["workers"].as_array().unwrap().len() == 1);
    told(&["scale", "--tasks", "1"], "web: 1 task worker\n");
    until("a task worker", || app.ready() == 2);
    told(&["reload"], "web: generation 2 serves, with 1 worker\n");
    // What cannot be done is a failure, with the reason.
    fs::write(app.folder.path().join("broken"), "").unwrap();
    for (arguments, why) in [
        (&["restart", "0"][..], "slot 0: not replaced, the old process stays"),
        (&["reload"], "release 2 is broken"),
        (&["restart", "t9"], "slot t9 has no process that serves"),
    ] {
        let (code, _, errors) = app.ask(arguments);
        assert!(code == Some(1) && errors.contains(why), "{arguments:?}: {code:?} {errors}");
    }
    for arguments in [&["restart", "first"][..], &["scale"], &["scale", "0"]] {
        assert_eq!(app.ask(arguments).0, Some(2), "{arguments:?}");
    }
    assert!(get(serving.address).starts_with("HTTP/1.1 200 "));
    told(&["stop"], "the server stops\n");
    serving.ends();
    let (code, _, errors) = app.ask(&["status"]);
    assert!(code == Some(1) && errors.contains("is the server running"), "{errors}");
    assert_eq!(processes_with(&app.module), Vec::<String>::new());
}

#[test]
fn a_long_line_of_an_application_is_printed_whole() {
    let Some(app) = App::new("long_line") else { return };
    let file = app.folder.path().join(format!("{}.py", app.module));
    let text = fs::read_to_string(&file).unwrap();
    let line = format!("{{\"record\":\"{}\"}}", "x".repeat(6000));
    fs::write(&file, format!("print('{line}')\n{text}")).unwrap();
    let serving = app.serve("workers = 1", &[]);
    assert_eq!(serving.error(), Some(format!("ringroad: app web[0]: {line}")));
}

#[test]
fn workers_end_with_a_server_that_is_killed() {
    for more in ["workers = 2\ntasks = 1", "workers = 2\npreload = true\nstop_timeout = \"1s\""] {
        let Some(app) = App::new("ends_with_it") else { return };
        let serving = app.serve(more, &[]);
        until("all processes", || app.ready() >= 2);
        serving.signal(Signal::KILL);
        until("their end", || processes_with(&format!("{}:app", app.module)).is_empty());
    }
}

#[test]
fn a_thousand_slow_uploads_hold_no_worker() {
    let Some(app) = App::new("slow_uploads") else { return };
    ringroad_host::process::raise_nofile().unwrap();
    for driver in drivers() {
        // That driver has no numbers of descriptors above 1023.
        let count = if driver == "select" { 400 } else { 1000 };
        let serving = app.serve("workers = 1", &["--driver", driver]);
        assert!(get(serving.address).starts_with("HTTP/1.1 200 "));
        let body = [b'x'; 4000];
        let head = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 4000\r\n\r\n";
        let mut uploads: Vec<TcpStream> = (0..count)
            .map(|_| {
                let mut stream = connect(serving.address);
                stream.write_all(head).unwrap();
                stream.write_all(&body[..3000]).unwrap();
                stream
            })
            .collect();
        // The only worker, which has one place, has nothing to do, and answers others.
        for _ in 0..20 {
            assert!(get(serving.address).starts_with("HTTP/1.1 200 "), "{driver}");
        }
        let status = app.status();
        assert_eq!(
            (&status["workers"][0]["in_flight"], &status["waiting"]),
            (&0.into(), &0.into()),
            "{driver}"
        );
        for stream in &mut uploads {
            stream.write_all(&body[3000..]).unwrap();
        }
        for stream in uploads {
            let answer = answer(stream);
            let (head, echo) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with("HTTP/1.1 200 ") && echo.as_bytes() == body, "{driver}: {head}");
        }
        app.ask(&["stop"]);
        serving.ends();
    }
}

#[test]
fn the_control_socket_of_a_configuration_is_found() {
    let Some(app) = App::new("found") else { return };
    let serving = app.serve("workers = 1", &[]);
    let config: &Path = &app.folder.path().join("ringroad.toml");
    let outcome = run(ringroad(["app", "status", "--config"]).arg(config));
    assert!(outcome.code == Some(0) && outcome.text().starts_with("web  generation 1  "), "{outcome:?}");
    app.ask(&["stop"]);
    serving.ends();
    // A file that is named without its folder: the application starts there as well.
    let serving =
        Serving::of(ringroad(["serve", "--config", "ringroad.toml"]).current_dir(app.folder.path()));
    assert!(get(serving.address).starts_with("HTTP/1.1 200 "));
    app.ask(&["stop"]);
    serving.ends();
}
