//! Servers that do exactly what a test says, and write down what they did.
//!
//! A thread for each connection, blocking calls, no crate of ours: what is held against the load shares
//! nothing with it. Start at [`Server::start`].

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// What a server has seen.
#[derive(Default)]
pub(crate) struct Log {
    pub(crate) accepted: AtomicU64,
    pub(crate) requests: AtomicU64,
    /// First lines of requests.
    pub(crate) lines: Mutex<Vec<String>>,
    /// Most requests that were there at once on a connection.
    pub(crate) at_once: AtomicU64,
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) log: Arc<Log>,
    over: Arc<AtomicBool>,
}

/// One connection, from its first byte to its end.
type Talk = dyn Fn(&mut TcpStream, &Log) + Send + Sync;

impl Server {
    /// Each connection is given to `talk`, and closed when that returns.
    pub(crate) fn start(talk: impl Fn(&mut TcpStream, &Log) + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (log, over) = (Arc::new(Log::default()), Arc::new(AtomicBool::new(false)));
        let (seen, ends, talk): (_, _, Arc<Talk>) = (Arc::clone(&log), Arc::clone(&over), Arc::new(talk));
        thread::spawn(move || {
            for stream in listener.incoming() {
                if ends.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(mut stream) = stream else { continue };
                seen.accepted.fetch_add(1, Ordering::SeqCst);
                let (seen, talk) = (Arc::clone(&seen), Arc::clone(&talk));
                thread::spawn(move || {
                    stream.set_nodelay(true).unwrap();
                    talk(&mut stream, &seen);
                });
            }
        });
        Server { address, log, over }
    }

    /// One that answers every request of HTTP with what `answer` gives for its first line.
    pub(crate) fn http(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Server {
        Server::start(move |stream, log| {
            let mut requests = Requests::default();
            while let Some(line) = requests.next(stream, log) {
                if stream.write_all(&answer(&line)).is_err() {
                    return;
                }
            }
        })
    }

    /// One that sends back what it gets, in pieces of as many bytes.
    pub(crate) fn echo(piece: usize) -> Server {
        Server::start(move |stream, log| {
            let mut buffer = vec![0; piece];
            while let Ok(count @ 1..) = stream.read(&mut buffer) {
                log.requests.fetch_add(count as u64, Ordering::SeqCst);
                if stream.write_all(&buffer[..count]).is_err() {
                    return;
                }
            }
        })
    }

    pub(crate) fn requests(&self) -> u64 {
        self.log.requests.load(Ordering::SeqCst)
    }

    /// It has taken as many connections, and no more: the kernel may still hold some when the client is done.
    pub(crate) fn has_accepted(&self, wanted: u64) {
        let begun = Instant::now();
        while self.log.accepted.load(Ordering::SeqCst) < wanted && begun.elapsed() < Duration::from_secs(60) {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(self.log.accepted.load(Ordering::SeqCst), wanted);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        // Wakes the accepting.
        let _ = TcpStream::connect(self.address);
    }
}

/// Requests without bodies, as they come.
#[derive(Default)]
pub(crate) struct Requests(Vec<u8>);

impl Requests {
    /// The first line of the next one; `None` at the end of the connection.
    pub(crate) fn next(&mut self, stream: &mut impl Read, log: &Log) -> Option<String> {
        loop {
            if let Some(end) = self.0.windows(4).position(|four| four == b"\r\n\r\n") {
                let waiting = self.0.windows(4).filter(|four| four == b"\r\n\r\n").count() as u64;
                log.at_once.fetch_max(waiting, Ordering::SeqCst);
                let head = String::from_utf8(self.0.drain(..end + 4).collect()).unwrap();
                let line = head.lines().next().unwrap().to_owned();
                log.requests.fetch_add(1, Ordering::SeqCst);
                log.lines.lock().unwrap().push(line.clone());
                return Some(line);
            }
            let mut buffer = [0; 4096];
            match stream.read(&mut buffer) {
                Ok(count @ 1..) => self.0.extend_from_slice(&buffer[..count]),
                _ => return None,
            }
        }
    }
}

/// A good answer.
pub(crate) fn ok() -> Vec<u8> {
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello".to_vec()
}

/// Closes in order: what was sent arrives, and what comes is read to its end.
pub(crate) fn close(stream: &mut TcpStream) {
    let _ = stream.shutdown(Shutdown::Write);
    let mut rest = [0; 4096];
    while let Ok(1..) = stream.read(&mut rest) {}
}
