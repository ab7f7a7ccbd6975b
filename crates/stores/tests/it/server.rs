//! Servers: real ones as processes, and one that does what a test says. The tool's tests use this file as
//! well, by its path.
#![allow(dead_code, reason = "each user of this file uses a part of it")]

use ringroad_engine::{DriverName, Runtime};
use ringroad_stores::redis::{Redis, Settings};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The programs that are tested with, where they are installed.
pub(crate) const PROGRAMS: [&str; 2] = ["redis-server", "valkey-server"];

/// Far beyond what any test needs, on any machine.
pub(crate) const HANG: Duration = Duration::from_secs(240);

/// A server's process, which listens on a Unix socket: no port has to be free.
pub(crate) struct Server {
    program: &'static str,
    folder: tempfile::TempDir,
    options: Vec<String>,
    child: Child,
}

impl Server {
    /// Starts a server; `None`, told on stderr, where the program is not installed.
    pub(crate) fn start(program: &'static str, options: &[&str]) -> Option<Server> {
        let known = Command::new(program).arg("--version").stdout(Stdio::null()).status();
        if known.is_err() {
            eprintln!("skipped: {program} is not installed");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let options: Vec<_> = options.iter().map(|text| (*text).to_owned()).collect();
        let child = spawn(program, &folder.path().join("socket"), &options);
        let mut server = Server { program, folder, options, child };
        server.until_ready();
        Some(server)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    pub(crate) fn settings(&self) -> Settings {
        patient(&format!("unix:{}", self.socket().display()))
    }

    fn until_ready(&mut self) {
        while UnixStream::connect(self.socket()).is_err() {
            assert_eq!(self.child.try_wait().unwrap(), None, "{} has ended", self.program);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let _ = std::fs::remove_file(self.socket());
    }

    /// Stops it without an end (`STOP`), or lets it go on (`CONT`).
    pub(crate) fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args(["-s", signal, &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    pub(crate) fn start_again(&mut self) {
        self.child = spawn(self.program, &self.socket(), &self.options);
        self.until_ready();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(program: &str, socket: &std::path::Path, options: &[String]) -> Child {
    let mut command = Command::new(program);
    command.arg("--port").arg("0").arg("--unixsocket").arg(socket);
    command.args(["--save", "", "--appendonly", "no", "--daemonize", "no", "--loglevel", "warning"]);
    command.current_dir(socket.parent().unwrap());
    command.args(options).stdout(Stdio::null()).stdin(Stdio::null()).spawn().unwrap()
}

/// Calls a body with a server of each program.
pub(crate) fn with_program(options: &[&str], mut body: impl FnMut(&mut Server)) {
    for program in PROGRAMS {
        if let Some(mut server) = Server::start(program, options) {
            body(&mut server);
        }
    }
}

/// Runs a body on a runtime, for each program.
pub(crate) fn with_servers<F: Future<Output = ()>>(
    driver: DriverName,
    options: &[&str],
    body: impl Fn(Server) -> F,
) {
    for program in PROGRAMS {
        if let Some(server) = Server::start(program, options) {
            on_runtime(driver, body(server));
        }
    }
}

pub(crate) fn on_runtime(driver: DriverName, body: impl Future<Output = ()>) {
    Runtime::new(driver).unwrap().block_on(body).unwrap();
}

/// Settings with so much time that only a server that is gone is too late.
fn patient(to: &str) -> Settings {
    Settings { timeout: HANG, connect_timeout: HANG, ..Settings::parse(to).unwrap() }
}

pub(crate) fn redis(settings: Settings) -> Redis {
    Redis::new("main", settings).unwrap()
}

/// A server of a test: `serve` gets each connection in turn, on a thread.
pub(crate) fn fake(serve: impl FnMut(Peer) + Send + 'static) -> (SocketAddr, Settings) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut serve = serve;
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            serve(Peer { stream: stream.unwrap(), input: Vec::new() });
        }
    });
    (address, patient(&address.to_string()))
}

/// The server's end of a connection.
pub(crate) struct Peer {
    stream: TcpStream,
    input: Vec<u8>,
}

impl Peer {
    /// The next command; `None` at the end of the connection.
    pub(crate) fn command(&mut self) -> Option<Vec<String>> {
        loop {
            let mut replies = ringroad_wire::resp::Replies::default();
            let mut at = 0;
            if let Some(reply) = replies.next(&self.input, &mut at).unwrap() {
                self.input.drain(..at);
                let parts = reply.into_array().unwrap().into_iter();
                let text =
                    |part: ringroad_wire::resp::Reply| String::from_utf8(part.into_bytes().unwrap()).unwrap();
                return Some(parts.map(text).collect());
            }
            let mut buffer = [0; 4096];
            match self.stream.read(&mut buffer) {
                Ok(0) | Err(_) => return None,
                Ok(count) => self.input.extend_from_slice(&buffer[..count]),
            }
        }
    }

    pub(crate) fn answer(&mut self, bytes: &str) {
        // The client may have gone.
        let _ = self.stream.write_all(bytes.as_bytes());
    }

    /// Answers the greeting of a client without password and database.
    pub(crate) fn greet(&mut self) -> Option<()> {
        assert_eq!(self.command()?[..2], ["HELLO", "3"]);
        self.answer("%1\r\n+server\r\n+fake\r\n");
        Some(())
    }
}
