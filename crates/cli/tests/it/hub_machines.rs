//! A hub that several processes of `ringroad serve` share over Redis or Valkey: one of them is killed, the
//! store is killed and started again.

use crate::redis::{PROGRAMS, Server};
use crate::serve::{Serving, connect, drivers};
use crate::support::until;
use rustix::process::Signal;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;

const PATH: &str = "/.well-known/mercure";

/// A process that shares the hub.
fn start(driver: &str, folder: &Path, store: &Server) -> Serving {
    let config = folder.join("push.toml");
    let text = format!(
        r#"
        workers = 1
        [auth.k]
        kind = "key"
        keys = ["secret"]
        [redis.main]
        to = "unix:{}"
        timeout = "120s"
        connect_timeout = "120s"
        [hub.news]
        store = "redis.main"
        store_beat = "500ms"
        [[route]]
        path = "{PATH}"
        kind = "hub"
        hub = "news"
        publish_auth = "k"
        [[route]]
        path = "/status"
        kind = "status"
        [[route]]
        path = "/metrics"
        kind = "metrics"
        "#,
        store.socket().display()
    );
    std::fs::write(&config, text).unwrap();
    Serving::start(&["--config", config.to_str().unwrap(), "--driver", driver])
}

fn exchange(serving: &Serving, request: &str) -> String {
    let mut stream = connect(serving.address);
    stream.write_all(request.as_bytes()).unwrap();
    let mut all = Vec::new();
    // A server that is killed may reset it.
    let _ = stream.read_to_end(&mut all);
    String::from_utf8_lossy(&all).into_owned()
}

fn get(serving: &Serving, path: &str) -> String {
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: a\r\nAccept: application/json\r\nConnection: close\r\n\r\n");
    exchange(serving, &request)
}

fn post(serving: &Serving, data: &str) -> String {
    let form = format!("topic=a&data={data}");
    let length = form.len();
    exchange(
        serving,
        &format!(
            "POST {PATH} HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-www-form-urlencoded\r\n\
             Content-Length: {length}\r\nAuthorization: Bearer secret\r\nConnection: close\r\n\r\n{form}"
        ),
    )
}

/// Publishes as soon as the store takes it; returns the id.
fn publish(serving: &Serving, data: &str) -> String {
    let mut id = None;
    until("the store takes a message", || {
        let told = post(serving, data);
        id =
            told.starts_with("HTTP/1.1 200").then(|| told.rsplit('\n').next().unwrap_or_default().to_owned());
        assert!(id.is_some() || told.starts_with("HTTP/1.1 503"), "{told}");
        id.is_some()
    });
    id.unwrap()
}

/// A client of server-sent events.
struct Events {
    stream: TcpStream,
    input: String,
}

impl Events {
    /// Subscribes as soon as the server has the hub. `from`: the id of the last message.
    fn open(serving: &Serving, from: &str) -> (Events, String) {
        let mut opened = None;
        until("the hub is ready", || {
            let mut stream = connect(serving.address);
            let request = format!("GET {PATH}?match=a HTTP/1.1\r\nHost: a\r\nLast-Event-ID: {from}\r\n\r\n");
            stream.write_all(request.as_bytes()).unwrap();
            let mut events = Events { stream, input: String::new() };
            let head = events.until("\r\n\r\n");
            assert!(head.starts_with("HTTP/1.1 200") || head.starts_with("HTTP/1.1 503"), "{head}");
            opened = head.starts_with("HTTP/1.1 200").then_some((events, head));
            opened.is_some()
        });
        opened.unwrap()
    }

    /// All to this mark.
    fn until(&mut self, mark: &str) -> String {
        loop {
            if let Some(at) = self.input.find(mark) {
                return self.input.drain(..at + mark.len()).collect();
            }
            let mut buffer = [0; 4096];
            let count = match self.stream.read(&mut buffer) {
                // By a signal: the kernel does not read again where a socket has a time-out (signal(7)).
                Err(why) if why.kind() == ErrorKind::Interrupted => continue,
                told => told.unwrap(),
            };
            assert!(count > 0, "the stream ended before {mark:?}: {:?}", self.input);
            self.input.push_str(str::from_utf8(&buffer[..count]).unwrap());
        }
    }

    /// The data of the next event.
    fn data(&mut self) -> String {
        self.until("\ndata: ");
        self.until("\n").trim_end().to_owned()
    }
}

fn each(options: &[&str], body: impl Fn(&'static str, Server, &Path)) {
    for program in PROGRAMS {
        for driver in drivers() {
            let Some(server) = Server::start(program, options) else { continue };
            let folder = tempfile::tempdir().unwrap();
            body(driver, server, folder.path());
        }
    }
}

#[test]
fn three_servers_share_a_hub_and_one_that_is_killed_takes_nothing_with_it() {
    each(&[], |driver, store, folder| {
        let servers = [0, 1, 2].map(|_| start(driver, folder, &store));
        let mut streams = servers.each_ref().map(|server| Events::open(server, "earliest").0);
        let mut last = String::new();
        for (number, server) in servers.iter().enumerate() {
            last = publish(server, &format!("from-{number}"));
        }
        for stream in &mut streams {
            assert_eq!([stream.data(), stream.data(), stream.data()], ["from-0", "from-1", "from-2"]);
        }
        let [one, two, three] = servers;
        until("all machines are known", || {
            get(&one, "/metrics").contains("ringroad_hub_machines{hub=\"news\"} 3")
        });
        two.signal(Signal::KILL);
        let [mut first, second, mut third] = streams;
        let _ = second.stream.shutdown(Shutdown::Both);
        publish(&one, "while it is gone");
        // The client of the one that was killed goes on at another.
        let (mut second, head) = Events::open(&three, &last);
        assert!(head.contains(&format!("Mercure-Last-Event-ID: {last}\r\n")), "{head} {last}");
        publish(&three, "the last");
        for stream in [&mut first, &mut second, &mut third] {
            assert_eq!([stream.data(), stream.data()], ["while it is gone", "the last"], "{driver}");
        }
        until("the one that was killed is no longer counted", || {
            get(&one, "/metrics").contains("ringroad_hub_machines{hub=\"news\"} 2")
        });
        // One that starts has the history of the others.
        let late = start(driver, folder, &store);
        let (mut recovered, head) = Events::open(&late, &last);
        assert!(head.contains(&format!("Mercure-Last-Event-ID: {last}\r\n")), "{head} {last}");
        assert_eq!([recovered.data(), recovered.data()], ["while it is gone", "the last"]);
    });
}

#[test]
fn a_store_that_is_killed_refuses_publishers_and_loses_nothing_when_it_is_back() {
    each(&["--appendonly", "yes", "--appendfsync", "always"], |driver, mut store, folder| {
        let servers = [0, 1].map(|_| start(driver, folder, &store));
        let mut streams = servers.each_ref().map(|server| Events::open(server, "earliest").0);
        let before = publish(&servers[0], "before");
        streams.iter_mut().for_each(|stream| assert_eq!(stream.data(), "before"));
        store.kill();
        let told = post(&servers[0], "lost");
        assert!(told.starts_with("HTTP/1.1 503") && told.contains("Retry-After: 1"), "{told}");
        until("the status shows it", || get(&servers[0], "/status").contains("\"store\":\"down\""));
        assert!(get(&servers[0], "/metrics").contains("ringroad_hub_store_up{hub=\"news\"} 0"));
        // What a server has is recovered from it.
        let (_, head) = Events::open(&servers[1], &before);
        assert!(head.contains(&format!("Mercure-Last-Event-ID: {before}\r\n")), "{head} {before}");
        store.start_again();
        publish(&servers[1], "after");
        streams.iter_mut().for_each(|stream| assert_eq!(stream.data(), "after", "{driver}"));
        until("the status shows it", || get(&servers[0], "/status").contains("\"store\":\"up\""));
        let page = get(&servers[0], "/metrics");
        assert!(page.contains("ringroad_hub_lost_total{hub=\"news\"} 0"), "{page}");
    });
}
