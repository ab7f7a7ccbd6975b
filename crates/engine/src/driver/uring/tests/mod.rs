//! Tests of the driver through its trait, with real sockets and often with queues that are too small for the
//! work.
//!
//! `direct`: direct connections. `exchange`: results of operations, with every feature on and off. `limits`:
//! full queues and an empty buffer ring. `ending`: cancels, drops and shutdown. `refusal`: calls that the
//! kernel refuses. `zero_copy`: ownership of the bytes until the kernel has read them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod direct;
mod ending;
mod exchange;
mod limits;
mod refusal;
mod zero_copy;

use super::Uring;
use crate::clock::Until;
use crate::driver::features::{Features, ZeroCopy};
use crate::driver::{Cancelled, Driver, Settings};
use crate::op::{Completion, Kind, News, Op, Outcome, Span, Target, Token};
use std::collections::VecDeque;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// A watchdog for hangs. No test takes this long.
const NEVER: Duration = Duration::from_secs(30);

/// A driver, and its news that no test code has read yet.
struct Rig {
    driver: Uring,
    news: VecDeque<Completion>,
    tokens: u32,
}

impl Rig {
    fn new() -> Rig {
        Rig::with(Settings::default())
    }

    /// Returns a driver with eight entries in each queue.
    fn tiny() -> Rig {
        Rig::with(Settings { entries: 8, completions: Some(8), ..Settings::default() })
    }

    fn with_buffers(buffers: u16, buffer_bytes: usize) -> Rig {
        Rig::with(Settings { buffers, buffer_bytes, ..Settings::default() })
    }

    fn with(settings: Settings) -> Rig {
        Rig { driver: Uring::new(&settings).unwrap(), news: VecDeque::new(), tokens: 0 }
    }

    fn submit(&mut self, op: &Op<'_>) -> Token {
        let token = Token { index: self.tokens, generation: self.tokens ^ 0xfeed };
        self.tokens += 1;
        self.driver.submit(token, op);
        token
    }

    fn turn(&mut self, until: Until) -> usize {
        let mut out = Vec::new();
        self.driver.wait(until, &mut out).unwrap();
        let count = out.len();
        self.news.extend(out);
        count
    }

    /// Returns the next news, after as many turns as it takes.
    fn next(&mut self) -> (Token, News) {
        let began = std::time::Instant::now();
        loop {
            if let Some(completion) = self.news.pop_front() {
                return (completion.token, completion.news);
            }
            assert!(began.elapsed() < NEVER, "no news: {:?}", self.driver.counters());
            self.turn(Until::For(NEVER));
        }
    }

    /// Returns the result of the next news, which is the last of its operation.
    fn last(&mut self) -> (Token, i32) {
        match self.next() {
            (token, News::Last(outcome)) => (token, outcome.result),
            other => panic!("not the last: {other:?}"),
        }
    }

    /// Receives with standing operations, submitted again whenever they end, until `bytes` bytes or the end.
    fn receive_all(&mut self, socket: &impl AsRawFd, bytes: usize) -> Vec<u8> {
        let mut received = Vec::new();
        let mut standing = self.submit(&Op::Receive { on: target(socket) });
        while received.len() < bytes {
            let (token, news) = self.next();
            assert_eq!(token, standing);
            let ended = matches!(news, News::Last(_));
            let (News::Item(outcome) | News::Last(outcome)) = news else { panic!("{news:?}") };
            match outcome {
                Outcome { lease: Some(lease), .. } => received.extend_from_slice(&lease),
                Outcome { result: 0, .. } => return received,
                Outcome { result, .. } => assert_eq!(result, -libc::ENOBUFS),
            }
            if ended && received.len() < bytes {
                standing = self.submit(&Op::Receive { on: target(socket) });
            }
        }
        received
    }

    fn cancel(&mut self, token: Token, kind: Kind) -> Cancelled {
        self.driver.cancel(token, kind, Target::NONE)
    }
}

fn target(socket: &impl AsRawFd) -> Target {
    Target { number: socket.as_raw_fd(), index: 0, generation: 0 }
}

fn span(bytes: &mut [u8]) -> Span {
    Span { start: bytes.as_mut_ptr(), bytes: bytes.len() }
}

fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

/// Returns two ends of a loopback connection.
fn pair() -> (TcpStream, TcpStream) {
    let listener = listener();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

/// Returns bytes with a value that depends on their position.
fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8).collect()
}

/// Returns every combination of features.
fn masks() -> impl Iterator<Item = Features> {
    (0..16).map(|bits| Features {
        multishot_accept: bits & 1 != 0,
        no_iowait: bits & 2 != 0,
        registered_ring: bits & 4 != 0,
        bundles: bits & 8 != 0,
        files: bits & 1 == 0,
        zero_copy: if bits & 2 == 0 { ZeroCopy::Always } else { ZeroCopy::Off },
    })
}

fn with_bundles(bundles: bool) -> Features {
    Features { bundles, ..Features::default() }
}
