//! The examples, as programs; the names ([`names`]), and the macros.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod macros;
mod names;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// The example of this name, which `cargo test` builds beside the tests; `None` where only the tests were
/// built.
fn example(name: &str) -> Option<PathBuf> {
    let beside = std::env::current_exe().unwrap().parent()?.parent()?.join("examples").join(name);
    if !beside.exists() {
        eprintln!("skipped: {} is not built (cargo build --examples)", beside.display());
    }
    Some(beside).filter(|path| path.exists())
}

/// A server that says where it listens, on its first line.
struct Server(Child, String);

impl Server {
    fn start(name: &str, driver: &str) -> Option<Server> {
        let mut command = Command::new(example(name)?);
        command.arg("127.0.0.1:0").env("RINGROAD_DRIVER", driver).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        Some(Server(child, line))
    }

    fn get(&self) -> String {
        let address = self.1.strip_prefix("http://").unwrap().split('/').next().unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn end(mut self, signal: &str) {
        let id = self.0.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended, unless a test failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn hello_serves_its_page_on_the_driver_that_the_environment_names_and_ends_on_a_signal() {
    for (driver, signal) in [("epoll", "-TERM"), ("io_uring", "-INT"), ("poll", "-TERM"), ("select", "-TERM")]
    {
        let Some(server) = Server::start("hello", driver) else { return };
        assert!(server.1.contains(&format!("driver {driver}: as asked")), "{}", server.1);
        let answer = server.get();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains("Content-Type: text/html\r\n"), "{answer}");
        assert!(answer.ends_with("\r\n\r\n<h1>Hello World</h1>"), "{answer}");
        server.end(signal);
    }
}

#[test]
fn json_serves_its_value() {
    let Some(server) = Server::start("json", "auto") else { return };
    assert!(server.get().ends_with("\r\n\r\n{\"status\":\"ok\"}"));
    server.end("-TERM");
}

#[test]
fn an_unknown_driver_is_an_error_that_names_the_known_ones() {
    let Some(hello) = example("hello") else { return };
    let ended = Command::new(hello).arg("127.0.0.1:0").env("RINGROAD_DRIVER", "kqueue").output().unwrap();
    assert!(!ended.status.success());
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(said.contains("kqueue") && said.contains("io_uring"), "{said}");
}

#[test]
fn fetch_asks_ten_times_at_once() {
    let Some(fetch) = example("fetch") else { return };
    let ended = Command::new(fetch).env("RINGROAD_DRIVER", "auto").output().unwrap();
    let said = String::from_utf8(ended.stdout).unwrap();
    assert!(ended.status.success(), "{said}");
    assert_eq!(said.lines().filter(|line| line.starts_with("200, 13 bytes")).count(), 10, "{said}");
}

#[test]
fn channels_adds_the_squares() {
    let Some(channels) = example("channels") else { return };
    let ended = Command::new(channels).env("RINGROAD_DRIVER", "auto").output().unwrap();
    assert!(String::from_utf8(ended.stdout).unwrap().contains("= 385, "));
}

#[test]
fn sum_adds_what_is_beneath_a_folder() {
    let Some(sum) = example("sum") else { return };
    let folder = std::env::temp_dir().join(format!("ringroad-sum-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("inner")).unwrap();
    for at in 0..100 {
        std::fs::write(
            folder.join(format!("{}{at}", if at % 2 == 0 { "" } else { "inner/" })),
            vec![1; 1000],
        )
        .unwrap();
    }
    for driver in ["auto", "epoll", "threads"] {
        let ended = Command::new(&sum).arg(&folder).env("RINGROAD_DRIVER", driver).output().unwrap();
        let said = String::from_utf8(ended.stdout).unwrap();
        assert!(said.starts_with("100 files, 100000 bytes, sum 100000, "), "{said}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn echo_gives_back_what_it_gets_and_tells_on_a_signal_what_is_in_flight() {
    let Some(echo) = example("echo") else { return };
    let mut command = Command::new(echo);
    command.arg("127.0.0.1:0").env("RINGROAD_DRIVER", "epoll").stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    let server = Server(child, line);
    let address = server.1.strip_prefix("echo on ").unwrap().split(',').next().unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"there and back").unwrap();
    let mut got = [0; 14];
    stream.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"there and back");
    let id = server.0.id().to_string();
    assert!(Command::new("kill").args(["-USR1", &id]).status().unwrap().success());
    // The operations come first.
    let told: Vec<_> =
        said.lines().map(Result::unwrap).take_while(|line| !line.contains(" tasks, ")).collect();
    let peer = stream.local_addr().unwrap().to_string();
    assert!(told.iter().any(|line| line.contains("recv") && line.contains(&peer)), "{told:#?}");
}
