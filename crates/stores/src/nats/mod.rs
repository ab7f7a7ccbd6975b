//! A client of NATS: messages on subjects, at most once.
//!
//! [`Nats`] is one server as it is configured. A [`Connection`] belongs to one task, which calls
//! [`Connection::next`]: it connects, subscribes, receives, answers the server's pings, and connects again
//! after a wait. Other tasks of the thread publish with a [`Publisher`]. Nothing is kept for a server that
//! is not connected: publishing fails at once.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use ringroad_stores::nats::{Event, Nats, Settings};
//!
//! let nats = Nats::new("main", Settings::parse("nats://127.0.0.1:4222")?)?;
//! let mut connection = nats.connection(&["news"]);
//! let publisher = connection.publisher();
//! loop {
//!     match connection.next().await {
//!         // Subscribed: from here on messages come.
//!         Event::Connected => publisher.publish("news", b"hello")?,
//!         Event::Message { subject, payload } => println!("{subject}: {payload:?}"),
//!         // Messages are missed until the next `Connected`.
//!         Event::Lost(why) => eprintln!("{why}"),
//!         _ => {}
//!     }
//! }
//! # }
//! ```

mod settings;

pub use crate::pipe::Address;
pub use crate::tls::Tls;
pub use settings::{Settings, TABLE, read};

use crate::pipe::Pipe;
use ringroad_engine::time;
use ringroad_policy::{Nanos, SECOND, backoff};
use ringroad_tls::TlsError;
use ringroad_wire::nats::{
    Limits, Operation, next, put_connect, put_ping, put_pong, put_publish, put_subscribe,
};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A silent connection is asked for a sign of life after so long, and given up after as long again.
const SILENCE: Duration = Duration::from_secs(10);

/// A wait before connecting again: up to the first after one failure, doubled with each, at most the second.
const BACKOFF: (Nanos, Nanos) = (SECOND / 10, 5 * SECOND);

/// Messages that were received and not taken yet; the server waits meanwhile.
const READY_MAX: usize = 1024;

/// A server as it is configured. Clones are the same one.
#[derive(Clone)]
pub struct Nats(Arc<Shared>);

struct Shared {
    name: String,
    settings: Settings,
    tls: ringroad_tls::Client,
}

/// What a connection reports.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The server has this connection and its subscriptions: from here on messages come.
    Connected,
    /// A message.
    Message {
        /// Where it was published.
        subject: String,
        /// Its bytes.
        payload: Vec<u8>,
    },
    /// The connection is lost, or could not be made, and why. Messages are missed until the next
    /// [`Event::Connected`]. It is connected again by itself, after a wait.
    Lost(Arc<str>),
}

/// Why a message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NatsError {
    /// There is no connection.
    NotConnected,
    /// Too many bytes wait to be sent.
    Full,
    /// It is longer than the server takes.
    TooLong,
}

impl fmt::Display for NatsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NatsError::NotConnected => "NATS: there is no connection to the server",
            NatsError::Full => "NATS: too many bytes wait to be sent",
            NatsError::TooLong => "NATS: the message is longer than the server takes",
        })
    }
}

impl std::error::Error for NatsError {}

impl Nats {
    /// Makes one; `name` is for messages, and for the server's list of clients. Nothing is connected yet.
    ///
    /// # Errors
    /// The certificates of its TLS settings cannot be used.
    pub fn new(name: &str, settings: Settings) -> Result<Nats, TlsError> {
        let tls = settings.tls.client()?;
        Ok(Nats(Arc::new(Shared { name: name.to_owned(), settings, tls })))
    }

    /// Returns a connection that subscribes to these subjects, without wildcards. Messages that this
    /// connection itself publishes do not come back on it.
    ///
    /// # Panics
    /// One is no subject.
    pub fn connection(&self, subjects: &[&str]) -> Connection {
        for subject in subjects {
            assert!(ringroad_wire::nats::is_subject(subject), "a subject of NATS: {subject:?}");
        }
        Connection {
            nats: self.clone(),
            subjects: subjects.iter().map(|subject| (*subject).to_owned()).collect(),
            pipe: None,
            ready: VecDeque::new(),
            outbox: Rc::default(),
            silence: None,
            is_asked: false,
            failures: 0,
            wait: None,
        }
    }

    /// Returns the name that it was given.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns how it is configured.
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }
}

impl fmt::Debug for Nats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nats").field("name", &self.0.name).field("settings", &self.0.settings).finish()
    }
}

/// What waits to be sent.
#[derive(Default)]
struct Outbox {
    bytes: Vec<u8>,
    /// The longest message that the server takes; `None` without a connection.
    payload_max: Option<usize>,
    task: Option<Waker>,
}

/// Publishes over a connection, from any task of its thread.
#[derive(Clone)]
pub struct Publisher {
    outbox: Rc<RefCell<Outbox>>,
    queue_bytes: usize,
}

impl Publisher {
    /// Publishes a message. It leaves with the connection's next turn; whether it arrives is not reported.
    ///
    /// # Errors
    /// It was not sent.
    ///
    /// # Panics
    /// `subject` is none.
    pub fn publish(&self, subject: &str, payload: &[u8]) -> Result<(), NatsError> {
        let mut outbox = self.outbox.borrow_mut();
        let payload_max = outbox.payload_max.ok_or(NatsError::NotConnected)?;
        if payload.len() > payload_max {
            return Err(NatsError::TooLong);
        }
        if outbox.bytes.len().saturating_add(payload.len()) > self.queue_bytes {
            return Err(NatsError::Full);
        }
        put_publish(&mut outbox.bytes, subject, payload);
        let task = outbox.task.take();
        drop(outbox);
        if let Some(task) = task {
            task.wake();
        }
        Ok(())
    }
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Publisher({} bytes wait)", self.outbox.borrow().bytes.len())
    }
}

/// A connection, for as long as [`next`](Self::next) is called.
pub struct Connection {
    nats: Nats,
    subjects: Vec<String>,
    pipe: Option<Pipe>,
    ready: VecDeque<Event>,
    outbox: Rc<RefCell<Outbox>>,
    silence: Option<time::Sleep>,
    is_asked: bool,
    failures: u32,
    wait: Option<time::Sleep>,
}

impl Connection {
    /// Returns what publishes over this connection.
    pub fn publisher(&self) -> Publisher {
        Publisher { outbox: Rc::clone(&self.outbox), queue_bytes: self.nats.settings().queue_bytes }
    }

    /// Returns the longest message that the server takes, in bytes; 0 without a connection.
    pub fn payload_max(&self) -> usize {
        self.outbox.borrow().payload_max.unwrap_or(0)
    }

    /// Waits for the next event. It connects where there is no connection, and does not end by itself. A
    /// future that is dropped before its end loses no event.
    pub async fn next(&mut self) -> Event {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return event;
            }
            if self.pipe.is_none() {
                self.connect().await;
                continue;
            }
            let received = poll_fn(|context| self.poll_receive(context)).await;
            if let Err(why) = received {
                let settings = self.nats.settings();
                self.lose(format!("nats.{} at {}: {why}", self.nats.name(), settings.to).into());
            }
        }
    }

    /// Connects, after the wait that is due.
    async fn connect(&mut self) {
        if let Some(wait) = &mut self.wait {
            wait.await;
            self.wait = None;
        }
        let settings = self.nats.settings();
        let opened = time::timeout(settings.connect_timeout, self.open()).await;
        match opened.unwrap_or_else(|_| Err(format!("not within {:?}", settings.connect_timeout))) {
            Ok((pipe, payload_max)) => {
                self.pipe = Some(pipe);
                self.is_asked = false;
                self.silence = Some(time::sleep(SILENCE));
                self.outbox.borrow_mut().payload_max = Some(payload_max);
                self.ready.push_back(Event::Connected);
            }
            Err(why) => {
                self.lose(format!("connect, to nats.{} at {}: {why}", self.nats.name(), settings.to).into());
            }
        }
    }

    /// Greets a server: its INFO, TLS, then CONNECT and the subscriptions, until it has taken them. Returns
    /// the longest message that it takes as well.
    async fn open(&self) -> Result<(Pipe, usize), String> {
        let (settings, tls) = (self.nats.settings(), &self.nats.0.tls);
        let mut pipe = Pipe::connect(&settings.to).await?;
        let mut out = Vec::new();
        let info: Value = loop {
            let mut at = 0;
            let operation = next(&Limits::default(), pipe.kept(), &mut at).map_err(|why| why.to_string())?;
            let info = match operation {
                Some(Operation::Info(text)) => {
                    Some(serde_json::from_str(text).map_err(|why| format!("its INFO is no JSON: {why}"))?)
                }
                Some(Operation::Refused(why)) => return Err(format!("refused: {why}")),
                Some(_) => return Err("it does not begin with INFO: is it a server of NATS?".to_owned()),
                None => None,
            };
            pipe.used(at);
            match info {
                Some(info) => break info,
                None => poll_fn(|context| pipe.poll_fill(context)).await?,
            }
        };
        let truth = |key: &str| info.get(key).and_then(Value::as_bool).unwrap_or(false);
        let secure = truth("tls_required") || (settings.needs_tls && truth("tls_available"));
        if settings.needs_tls && !secure {
            return Err("it does not offer TLS, which `tls://` asks for".to_owned());
        }
        if secure {
            if !pipe.kept().is_empty() {
                return Err("it sends more before TLS has begun".to_owned());
            }
            pipe = pipe.secure(tls, &settings.tls.name).await?;
        }
        let mut options = json!({
            "verbose": false, "pedantic": false, "echo": false, "lang": "rust", "protocol": 1,
            "version": env!("CARGO_PKG_VERSION"), "name": format!("ringroad {}", self.nats.name()),
            "tls_required": secure,
        });
        if let Some(options) = options.as_object_mut() {
            let credentials =
                [("user", &settings.user), ("pass", &settings.password), ("auth_token", &settings.token)];
            for (key, value) in credentials {
                if let Some(value) = value {
                    options.insert(key.to_owned(), value.as_str().into());
                }
            }
        }
        put_connect(&mut out, &options.to_string());
        for (number, subject) in self.subjects.iter().enumerate() {
            put_subscribe(&mut out, subject, number as u64 + 1);
        }
        put_ping(&mut out);
        loop {
            let mut at = 0;
            let operation = next(&Limits::default(), pipe.kept(), &mut at).map_err(|why| why.to_string())?;
            let is_taken = match operation {
                // Messages that come before it were published before it was subscribed for certain.
                Some(Operation::Pong) => true,
                Some(Operation::Refused(why)) => return Err(format!("refused: {why}")),
                Some(Operation::Ping) => {
                    put_pong(&mut out);
                    false
                }
                _ => false,
            };
            let is_more = operation.is_some();
            pipe.used(at);
            if is_taken {
                break;
            }
            if !is_more {
                poll_fn(|context| {
                    pipe.poll_write(&mut out, context)?;
                    pipe.poll_fill(context)
                })
                .await?;
            }
        }
        let payload_max = info.get("max_payload").and_then(Value::as_u64).unwrap_or(1 << 20);
        Ok((pipe, usize::try_from(payload_max).unwrap_or(usize::MAX)))
    }

    fn lose(&mut self, why: Arc<str>) {
        self.pipe = None;
        let mut outbox = self.outbox.borrow_mut();
        outbox.bytes = Vec::new();
        outbox.payload_max = None;
        drop(outbox);
        let random = RandomState::new().hash_one(self.failures);
        let wait = backoff::wait(self.failures, BACKOFF.0, BACKOFF.1, random);
        self.failures = self.failures.saturating_add(1);
        self.wait = Some(time::sleep(Duration::from_nanos(wait)));
        self.ready.push_back(Event::Lost(why));
    }

    /// Sends what waits and receives until there is an event.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<Result<(), String>> {
        let Connection { pipe: Some(pipe), outbox, silence, is_asked, ready, failures, .. } = self else {
            return Poll::Ready(Ok(()));
        };
        let mut outbox = outbox.borrow_mut();
        if !outbox.task.as_ref().is_some_and(|known| known.will_wake(context.waker())) {
            outbox.task = Some(context.waker().clone());
        }
        loop {
            let mut at = 0;
            while ready.len() < READY_MAX {
                let operation = next(&Limits::default(), pipe.kept(), &mut at);
                let Some(operation) = operation.map_err(|why| why.to_string())? else { break };
                match operation {
                    Operation::Message { subject, payload, .. } => ready
                        .push_back(Event::Message { subject: subject.to_owned(), payload: payload.to_vec() }),
                    Operation::Ping => put_pong(&mut outbox.bytes),
                    Operation::Info(_) | Operation::Pong | Operation::Accepted => {}
                    Operation::Refused(why) => return Poll::Ready(Err(format!("refused: {why}"))),
                }
                *is_asked = false;
                *failures = 0;
            }
            if at > 0 {
                pipe.used(at);
                *silence = Some(time::sleep(SILENCE));
            }
            if let Some(wait) = silence
                && Pin::new(wait).poll(context).is_ready()
            {
                if std::mem::replace(is_asked, true) {
                    return Poll::Ready(Err(format!("no sign of life within {SILENCE:?}")));
                }
                put_ping(&mut outbox.bytes);
                *silence = Some(time::sleep(SILENCE));
                continue;
            }
            pipe.poll_write(&mut outbox.bytes, context)?;
            if !ready.is_empty() {
                return Poll::Ready(Ok(()));
            }
            match pipe.poll_fill(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(filled) => filled?,
            }
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.pipe.is_some() { "connected" } else { "not connected" };
        write!(f, "Connection({:?}, {state})", self.nats)
    }
}
