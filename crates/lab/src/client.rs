//! A client: one thread, closed loop, every answer checked. It measures the server from outside.
//!
//! It runs as a process of its own (`ringroad lab client NAME OPTIONS`, options as one JSON word, the report
//! as one JSON line), pinned by the harness. There are two: the load generator, which this crate does not
//! link, and the *small* one here, which checks it. Both have the same [`Options`], follow the same
//! [`course`] and write the same [`ClientReport`].
//!
//! The small one shares no code with what is measured or with the load generator. Its work is kept small so
//! that one core of client saturates one core of server: one clock read per batch of answers, no allocation
//! per request, answers compared with one `memcmp`. [`stream`] says what is sent and what must come back;
//! [`session`] moves it over epoll; [`window`] reads the clocks at the edges of the measured window; by
//! [`turns`] several clients work by turns. Start at [`run`].

pub mod course;
pub mod session;
pub mod stream;
pub mod turns;
pub mod window;

use crate::suite::Protocol;
use ringroad_measure::record::Errors;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::SocketAddr;

/// Options of a client; one JSON word on its command line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The server.
    pub addr: SocketAddr,
    /// What it speaks.
    pub protocol: Protocol,
    /// HTTP: what the `Host` line says instead of the address.
    #[serde(default)]
    pub host: Option<String>,
    /// HTTP over TLS; the certificate is not verified. Only the load generator can.
    #[serde(default)]
    pub tls: bool,
    /// Connections.
    pub connections: u32,
    /// How many of them go on sending; the others, spread evenly among them, send one request and are held
    /// open.
    pub active: u32,
    /// A connection per request: the server is asked to close after its answer, and the next request connects
    /// anew.
    pub reconnect: bool,
    /// Requests in flight per connection.
    pub pipeline: u32,
    /// Echo: bytes per message.
    pub payload_bytes: u32,
    /// HTTP: the path.
    pub path: String,
    /// HTTP: the body every answer must have; without it the first answer's body is the measure.
    pub body: Option<String>,
    /// Load before the window, seconds.
    pub warmup_s: f64,
    /// The window, seconds.
    pub duration_s: f64,
    /// Load after the window while the server's system calls are counted, seconds; 0 for none.
    pub syscalls_s: f64,
    /// Read memory at the end of the window.
    pub memory: bool,
    /// How long an answer (and making all connections) may take, seconds.
    pub timeout_s: f64,
    /// The server's process, for its CPU time; its descendants are counted too.
    pub server_pid: Option<u32>,
    /// Take turns of so many seconds with other clients ([`turns`]); absent, the window is one piece.
    pub turn_s: Option<f64>,
}

impl Options {
    /// Checks the options.
    ///
    /// # Errors
    /// `InvalidInput`, with what is out of range.
    pub fn check(&self) -> io::Result<()> {
        let bad = |what: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        if self.connections == 0 || self.pipeline == 0 {
            return bad("client options: connections and pipeline must be 1 or more");
        }
        if self.protocol == Protocol::Files {
            return bad("client options: files are copied, not asked for over a connection");
        }
        if self.protocol == Protocol::Echo && self.payload_bytes == 0 {
            return bad("client options: an echo message has 1 byte or more");
        }
        if !(1..=self.connections).contains(&self.active) {
            return bad("client options: active is 1 to all of the connections");
        }
        if self.reconnect
            && (self.protocol != Protocol::Http || self.pipeline != 1 || self.active != self.connections)
        {
            return bad("client options: reconnect needs HTTP, no pipeline, and all connections active");
        }
        if self.tls && self.protocol != Protocol::Http {
            return bad("client options: TLS is for HTTP");
        }
        let turn_s = self.turn_s.unwrap_or(0.0);
        for seconds in [self.warmup_s, self.duration_s, self.syscalls_s, self.timeout_s, turn_s] {
            if !(0.0..=1e6).contains(&seconds) {
                return bad("client options: a time is negative, too long or no number");
            }
        }
        Ok(())
    }
}

/// The report of a client; one JSON line on its standard output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientReport {
    /// The client and its driver: `load, io_uring`.
    pub client: String,
    /// Connections made.
    pub connected: u32,
    /// Connections that got at least one whole answer.
    pub served: u32,
    /// Requests sent, from the first to the last; a request partly sent counts.
    pub sent: u64,
    /// Answers received whole and correct.
    pub completed: u64,
    /// Answers received whole, wrong ones included: what the server should have counted.
    pub answers: u64,
    /// Bytes handed to the kernel.
    pub bytes_sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Connections that the server closed with nothing owed while requests were sent, and that were made
    /// again.
    #[serde(default)]
    pub closed: u64,
    /// Failures by kind.
    pub errors: Errors,
    /// What went wrong first, as a clause, for the reader of a failure.
    pub first_error: Option<String>,
    /// Bytes of the response body (HTTP) or of a message (echo); `None` if no answer came.
    pub payload_bytes: Option<u64>,
    /// The measured window; `None` if the load ended before it did.
    pub window: Option<window::Window>,
}

/// Runs the load with the small client to its end, and returns the report. Takes at most connecting
/// (`timeout_s`), warm-up, window, system-call window and draining (`timeout_s`), whatever the server does.
///
/// # Errors
/// Only the client's own machine: no epoll, no descriptors left, an option out of range. What the server does
/// wrong is counted in the report.
pub fn run(options: &Options) -> io::Result<ClientReport> {
    if options.tls {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "client options: the small client has no TLS",
        ));
    }
    session::Session::new(options)?.run()
}
