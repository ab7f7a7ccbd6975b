//! A client of Redis and Valkey.
//!
//! [`Redis`] is one server as it is configured, for all threads of a process. Each thread takes a [`Client`]
//! of it: its commands share one connection, and those of one turn of the loop leave in one write. A
//! [`Subscriber`] is a connection of its own that receives the messages of channels.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use ringroad_stores::redis::{Event, Redis, Settings};
//!
//! let redis = Redis::new("main", Settings::parse("redis://127.0.0.1:6379/1")?)?;
//! let client = redis.client();
//! // Both are sent at once; each answer is awaited when it is needed.
//! let set = client.command(&[&b"SET"[..], b"greeting", b"hello"]);
//! let get = client.command(&[&b"GET"[..], b"greeting"]);
//! set.await?;
//! assert_eq!(get.await?.bytes(), Some(&b"hello"[..]));
//!
//! let mut subscriber = redis.subscriber();
//! subscriber.subscriptions().add(b"news");
//! loop {
//!     match subscriber.next().await {
//!         // From here on nothing is missed: read now what came before.
//!         Event::Subscribed { .. } => {}
//!         Event::Message { channel, payload, .. } => println!("{channel:?}: {payload:?}"),
//!         // Messages may be missed until it is subscribed again, which happens by itself.
//!         Event::Lost(why) => eprintln!("{why}"),
//!         _ => {}
//!     }
//! }
//! # }
//! ```
//!
//! No call waits for a server that is gone: a command ends within [`Settings::timeout`]. While the server
//! cannot be reached, or after too many commands without an answer, commands fail at once, and a few try
//! again after a while. A command that failed with [`RedisError::TimedOut`] or [`RedisError::Lost`] may have
//! been executed.

mod client;
mod connect;
mod error;
mod health;
mod script;
mod settings;
mod subscriber;

pub use crate::pipe::Address;
pub use crate::tls::Tls;
pub use client::{Answer, Client};
pub use error::RedisError;
pub use health::{Breaker, Health, State};
pub use ringroad_wire::resp::Reply;
pub use script::Script;
pub use settings::{Settings, TABLE, read};
pub use subscriber::{Event, Subscriber, Subscriptions};

use ringroad_tls::TlsError;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A server as it is configured, for all threads. Clones are the same one.
#[derive(Clone)]
pub struct Redis(Arc<Shared>);

struct Shared {
    name: String,
    settings: Settings,
    tls: Option<ringroad_tls::Client>,
    counters: Counters,
    watched: health::Watched,
}

/// What the clients of a server have counted.
#[derive(Debug, Default)]
pub struct Counters {
    /// Commands that were answered, errors included.
    pub answered: AtomicU64,
    /// Those of them that were answered with an error. Not `NOSCRIPT`, after which the script is sent.
    pub errors: AtomicU64,
    /// Commands that were not answered in time.
    pub timed_out: AtomicU64,
    /// Commands that lost their connection.
    pub lost: AtomicU64,
    /// Commands that were not sent, because the server cannot be reached or answered too few.
    pub refused: AtomicU64,
    /// Commands that were not sent, because too many wait.
    pub full: AtomicU64,
    /// Connections that were made.
    pub connected: AtomicU64,
    /// Attempts to connect that failed.
    pub unconnected: AtomicU64,
    /// From a command to its answer, all together.
    pub nanos: AtomicU64,
}

impl Counters {
    fn add(counter: &AtomicU64) {
        // Relaxed: nothing is published by a count.
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl Redis {
    /// Makes one; `name` is for messages. Nothing is connected before the first command.
    ///
    /// # Errors
    /// The certificates of its TLS settings cannot be used.
    pub fn new(name: &str, settings: Settings) -> Result<Redis, TlsError> {
        let tls = settings.tls.as_ref().map(Tls::client).transpose()?;
        let (counters, watched) = (Counters::default(), health::Watched::default());
        Ok(Redis(Arc::new(Shared { name: name.to_owned(), settings, tls, counters, watched })))
    }

    /// Returns this thread's client: everything on one thread shares its connection.
    pub fn client(&self) -> Client {
        Client::of_thread(self)
    }

    /// Returns a client with a connection of its own, for commands that block their connection, as `XREAD
    /// BLOCK` and `BLPOP`, and for transactions with `WATCH`.
    pub fn client_apart(&self) -> Client {
        Client::new(self)
    }

    /// Returns a connection that receives messages of channels.
    pub fn subscriber(&self) -> Subscriber {
        Subscriber::new(self)
    }

    /// Returns the name that it was given.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns how it is configured.
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Returns what its clients have counted, on all threads.
    pub fn counters(&self) -> &Counters {
        &self.0.counters
    }

    /// Returns what is known of the server now, from its clients on all threads.
    pub fn health(&self) -> Health {
        self.0.watched.health()
    }

    /// Returns whether both are clones of one.
    pub fn is_same(&self, other: &Redis) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("name", &self.0.name).field("settings", &self.0.settings).finish()
    }
}
