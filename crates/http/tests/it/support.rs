//! A server on each driver, and a client made of a plain socket.

use crate::http2::frames::read_more;
use ringroad_engine::DriverName;
use ringroad_engine::choose::Wish;
use ringroad_http::{Handle, Server};
use std::fs::{self, File};
use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Timeout of a socket, after which a test counts as hanging. Far above the time that any test needs, and
/// below the time limit of the test runner.
pub(crate) const HANG: Duration = Duration::from_secs(240);

/// Starts `server` on a free port.
pub(crate) fn start<S: 'static>(driver: DriverName, server: Server<S>) -> Handle {
    server.bind("127.0.0.1:0").unwrap().driver(Wish::Named(driver)).start().unwrap()
}

/// Starts a server on a thread that calls a function for each connection, one after another. Returns its URL.
pub(crate) fn odd(each: impl Fn(usize, TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            each(number, stream.unwrap());
        }
    });
    url
}

/// A response as it was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// Trailers of a chunked body.
    pub(crate) trailers: String,
}

impl Reply {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// Returns the value of a header line.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// A client.
pub(crate) struct Client {
    stream: TcpStream,
    /// Received bytes that are not used yet.
    input: Vec<u8>,
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        // select has no descriptors from 1024 on, and the servers of concurrent tests need the lower numbers
        // that these clients would take. Refused if the process may not have that many.
        let stream = match rustix::io::fcntl_dupfd_cloexec(&stream, 1024) {
            Ok(moved) => TcpStream::from(moved),
            Err(_) => stream,
        };
        stream.set_read_timeout(Some(HANG)).unwrap();
        stream.set_write_timeout(Some(HANG)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream, input: Vec::new() }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Client {
        self.stream.write_all(bytes.as_ref()).unwrap();
        self
    }

    /// Sends the bytes that the server takes; it may have closed.
    pub(crate) fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Ends the sending side.
    pub(crate) fn finish(&mut self) {
        // The server may have closed already.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Requests `GET path`, and returns the answer.
    pub(crate) fn get(&mut self, path: &str) -> Reply {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).reply()
    }

    /// Returns the next response, which must exist.
    pub(crate) fn reply(&mut self) -> Reply {
        self.try_reply(false).expect("a response")
    }

    /// Returns the next response to a HEAD, which has no body.
    pub(crate) fn reply_to_head(&mut self) -> Reply {
        self.try_reply(true).expect("a response")
    }

    /// Returns the next response, or `None` at the end of the connection.
    pub(crate) fn try_reply(&mut self, to_head: bool) -> Option<Reply> {
        let end = self.until(b"\r\n\r\n")?;
        let head = String::from_utf8(self.input.drain(..end).collect()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut reply = Reply { status, head, body: Vec::new(), trailers: String::new() };
        if to_head || matches!(status, 100..=199 | 204 | 304) {
            return Some(reply);
        }
        if reply.header("Transfer-Encoding").is_some() {
            loop {
                let end = self.until(b"\r\n").expect("a chunk");
                let line = String::from_utf8(self.input.drain(..end).collect()).unwrap();
                let size = usize::from_str_radix(line.trim(), 16).unwrap();
                if size == 0 {
                    break;
                }
                let chunk = self.exactly(size + 2).expect("a whole chunk");
                assert!(chunk.ends_with(b"\r\n"));
                reply.body.extend_from_slice(&chunk[..size]);
            }
            loop {
                let end = self.until(b"\r\n").expect("the end of the trailers");
                let line = String::from_utf8(self.input.drain(..end).collect()).unwrap();
                if line == "\r\n" {
                    return Some(reply);
                }
                reply.trailers.push_str(&line);
            }
        }
        match reply.header("Content-Length").map(|length| length.parse().unwrap()) {
            Some(length) => reply.body = self.exactly(length).expect("a whole body"),
            None => reply.body = self.rest(),
        }
        Some(reply)
    }

    /// Ends the connection with a reset.
    pub(crate) fn reset(self) {
        socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).unwrap();
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.stream.local_addr().unwrap()
    }

    /// Receives and drops this many bytes.
    pub(crate) fn read_some(&mut self, bytes: usize) -> usize {
        while self.input.len() < bytes && self.more() {}
        std::mem::take(&mut self.input).len()
    }

    /// Returns all responses up to the end of the connection.
    pub(crate) fn replies(&mut self) -> Vec<Reply> {
        std::iter::from_fn(|| self.try_reply(false)).collect()
    }

    /// Returns all bytes up to the end of the connection.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        while self.more() {}
        std::mem::take(&mut self.input)
    }

    /// Returns the bytes available now, or the next ones; none at the end.
    pub(crate) fn some(&mut self) -> Vec<u8> {
        if self.input.is_empty() {
            self.more();
        }
        std::mem::take(&mut self.input)
    }

    /// Returns the number of bytes up to the end of the connection.
    pub(crate) fn count_rest(&mut self) -> usize {
        let mut bytes = 0;
        loop {
            bytes += std::mem::take(&mut self.input).len();
            if !self.more() {
                return bytes;
            }
        }
    }

    /// Returns whether the connection has ended, without further bytes.
    pub(crate) fn is_closed(&mut self) -> bool {
        self.rest().is_empty()
    }

    fn until(&mut self, mark: &[u8]) -> Option<usize> {
        loop {
            if let Some(at) = self.input.windows(mark.len()).position(|window| window == mark) {
                return Some(at + mark.len());
            }
            if !self.more() {
                return None;
            }
        }
    }

    fn exactly(&mut self, bytes: usize) -> Option<Vec<u8>> {
        while self.input.len() < bytes {
            if !self.more() {
                return None;
            }
        }
        Some(self.input.drain(..bytes).collect())
    }

    fn more(&mut self) -> bool {
        read_more(&mut self.stream, &mut self.input)
    }
}

/// Makes an unnamed file with these bytes.
pub(crate) fn file_of(bytes: &[u8]) -> Arc<File> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let name = format!("ringroad-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let path = std::env::temp_dir().join(name);
    fs::write(&path, bytes).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    Arc::new(file)
}

/// Checks repeatedly until a condition holds that other threads cause.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < HANG, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
