//! A hub that several processes share over a server: what does not depend on which server it is.
//!
//! [`stream`] shares it over Redis or Valkey, [`subject`] over NATS. What processes send to each other are
//! [`Record`]s: messages, and changes of the users in topics with presence.
//!
//! Records that a caller waits for go to the server at once. The others (users, clients that come and go)
//! stand in a queue that is bounded in bytes. INVARIANT: a change of users that is lost is followed by an
//! announcement of all users of this process, so the lists of the other processes become right again.

mod stream;
mod subject;

use crate::presence::{self, Change};
use crate::topics::{Arrival, Hub, Id, Message, PublishError};
use ringroad_engine::JoinHandle;
use ringroad_engine::sync::{Notify, UnboundedReceiver, UnboundedSender, oneshot, unbounded};
use ringroad_engine::time::timeout;
use ringroad_stores::{nats, redis};
use ringroad_tls::TlsError;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use stream::Stream;
use subject::Subject;

/// The least time that the server may take for a message. A caller never waits much longer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Bytes of records that wait for the server and that no caller waits for.
const QUEUE_BYTES_MAX: usize = 16 << 20;

/// How processes share a hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// The name of the hub on the server.
    pub name: String,
    /// The server.
    pub server: Server,
    /// How often a process reports to the server. After four times as long without a report the other
    /// processes remove its users.
    pub beat: Duration,
}

/// The server over which processes share a hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Server {
    /// Redis or Valkey: no message is lost while the server is up.
    Redis {
        /// How it is reached.
        settings: redis::Settings,
        /// Messages that it keeps, of all topics together.
        stored: usize,
    },
    /// NATS: each message at most once, and none is kept.
    Nats(nats::Settings),
}

/// What is known of the server of a shared hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerState {
    /// It answered the last command.
    pub is_up: bool,
    /// Why it did not.
    pub why: Option<String>,
    /// Processes that have the hub, this one included; 0: not known yet.
    pub processes: usize,
}

/// A hub of several processes, as this one sees it.
pub(crate) struct Shared {
    over: Over,
    /// How long a caller waits for the server.
    patience: Duration,
    beat: Duration,
    /// Encoded records that no caller waits for.
    queue: UnboundedSender<String>,
    queued: Mutex<Option<UnboundedReceiver<String>>>,
    queued_bytes: AtomicUsize,
    /// This process has the history of the hub.
    is_ready: AtomicBool,
    /// The next beat announces all users of this process.
    announces: AtomicBool,
    is_up: AtomicU8,
    why: Mutex<Option<String>>,
    processes: AtomicUsize,
    /// Asks the receiver to compare its place with the server's.
    look: Notify,
    /// Callers that wait for such a comparison that begins after they asked for it.
    looks: Mutex<Vec<oneshot::Sender<()>>>,
}

enum Over {
    Stream(Box<Stream>),
    Subject(Subject),
}

/// What goes from one process to the others.
#[derive(Serialize, Deserialize)]
struct Record {
    /// When it was published, in milliseconds since 1970.
    at: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    topics: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message: Option<Message>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    users: Option<Users>,
}

/// A change of the users of a process.
#[derive(Serialize, Deserialize)]
struct Users {
    node: String,
    /// These are all users that the process has; else they are changes.
    is_all: bool,
    /// The other processes announce theirs.
    #[serde(default)]
    asks: bool,
    users: Vec<Change>,
}

impl Record {
    /// Reads a record. One of another version, or of another program, has only its number.
    fn read(id: Id, text: &str, is_old: bool) -> (Arrival, Option<Users>) {
        let record = serde_json::from_str(text);
        let record = record.unwrap_or(Record { at: 0, topics: Vec::new(), message: None, users: None });
        let age = Duration::from_millis(millis().saturating_sub(record.at));
        (Arrival { id, names: record.topics, message: record.message, age, is_old }, record.users)
    }

    fn of_message(names: &[&str], message: Message) -> Record {
        let topics = names.iter().map(|name| (*name).to_owned()).collect();
        Record { at: millis(), topics, message: Some(message), users: None }
    }

    fn of_users(users: Users) -> Record {
        Record { at: millis(), topics: Vec::new(), message: None, users: Some(users) }
    }
}

/// Returns the time in milliseconds since 1970.
fn millis() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Cancels a task when it is dropped.
struct Cancels(JoinHandle<()>);

impl Drop for Cancels {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl Shared {
    pub(crate) fn new(sharing: Sharing) -> Result<Shared, TlsError> {
        let (queue, queued) = unbounded();
        let Sharing { name, server, beat } = sharing;
        // A message may take longer than what a request would wait for a limit.
        let patience = match &server {
            Server::Redis { settings, .. } => settings.timeout.max(PATIENCE),
            Server::Nats(_) => PATIENCE,
        };
        let over = match server {
            Server::Redis { settings, stored } => {
                let settings = redis::Settings { timeout: patience, ..settings };
                Over::Stream(Box::new(Stream::new(&name, settings, stored, beat)?))
            }
            Server::Nats(settings) => Over::Subject(Subject::new(&name, settings)?),
        };
        Ok(Shared {
            over,
            patience,
            beat,
            queue,
            queued: Mutex::new(Some(queued)),
            queued_bytes: AtomicUsize::new(0),
            is_ready: AtomicBool::new(false),
            announces: AtomicBool::new(false),
            is_up: AtomicU8::new(0),
            why: Mutex::default(),
            processes: AtomicUsize::new(0),
            look: Notify::new(),
            looks: Mutex::default(),
        })
    }

    /// Returns whether this process has the history of the hub.
    pub(crate) fn is_ready(&self) -> bool {
        // Pairs with the release store in `stream.rs`: the history was put in before.
        self.is_ready.load(Ordering::Acquire)
    }

    /// Returns what is known of the server.
    pub(crate) fn state(&self) -> ServerState {
        ServerState {
            is_up: self.is_up.load(Ordering::Relaxed) != 0,
            why: locked(&self.why).clone(),
            processes: self.processes.load(Ordering::Relaxed),
        }
    }

    /// Notes whether the server answered.
    fn note<T>(&self, answered: Result<T, String>) -> Option<T> {
        match answered {
            Ok(answer) => {
                // Most of the time nothing changes.
                if self.is_up.load(Ordering::Relaxed) == 0 {
                    *locked(&self.why) = None;
                    self.is_up.store(1, Ordering::Relaxed);
                }
                Some(answer)
            }
            Err(why) => {
                *locked(&self.why) = Some(why);
                self.is_up.store(0, Ordering::Relaxed);
                None
            }
        }
    }

    /// Publishes a message, and waits until the server has it, if it answers for that.
    pub(crate) async fn send(&self, hub: &Hub, names: &[&str], message: Message) -> Result<Id, PublishError> {
        match &self.over {
            Over::Subject(subject) => self.send_at_once(subject, hub, names, message),
            Over::Stream(stream) => {
                let text = serde_json::to_string(&Record::of_message(names, message));
                let text = text.map_err(|_| PublishError::Unavailable)?;
                let sent = stream.append(&stream.client(), &text).await;
                self.note(sent).ok_or(PublishError::Unavailable)
            }
        }
    }

    /// Publishes a message without waiting for it, in the order of these calls.
    pub(crate) fn tell(&self, hub: &Hub, topic: &str, message: Message) {
        let record = Record::of_message(&[topic], message);
        self.put(&record);
        if let (Over::Subject(_), Some(message)) = (&self.over, record.message) {
            // This process numbers its messages itself.
            let _ = hub.number(&[topic], message);
        }
    }

    /// Announces that a user comes to a topic, or goes. Called under the lock of the users, so that other
    /// processes get changes in their order.
    pub(crate) fn tell_user(&self, node: &str, change: Change) {
        let users = Users { node: node.to_owned(), is_all: false, asks: false, users: vec![change] };
        self.put(&Record::of_users(users));
    }

    /// Announces all users of this process. `asks`: the other processes do the same.
    fn announce(&self, hub: &Hub, asks: bool) {
        presence::with_own(hub, |users| {
            let users = Users { node: hub.node().to_owned(), is_all: true, asks, users };
            self.put(&Record::of_users(users));
        });
    }

    fn put(&self, record: &Record) {
        if let Ok(text) = serde_json::to_string(record) {
            self.put_text(text);
        }
    }

    fn put_text(&self, text: String) {
        let length = text.len();
        let waiting = self.queued_bytes.fetch_add(length, Ordering::Relaxed);
        if waiting.saturating_add(length) > QUEUE_BYTES_MAX || self.queue.send(text).is_err() {
            self.queued_bytes.fetch_sub(length, Ordering::Relaxed);
            self.announces.store(true, Ordering::Relaxed);
        }
    }

    /// Waits until this process knows whether the place is one of its hub: a client may come with the id of
    /// a message that another process has published a moment ago.
    ///
    /// # Errors
    /// The server did not answer in time, so that is not known.
    pub(crate) async fn reach(&self, hub: &Hub, id: Id) -> Result<(), Unreached> {
        let has = || {
            let last = hub.last();
            id.epoch == last.epoch && id.offset <= last.offset
        };
        if has() || matches!(self.over, Over::Subject(_)) {
            return Ok(());
        }
        let (told, looked) = oneshot::channel();
        locked(&self.looks).push(told);
        self.look.notify_one();
        match timeout(self.patience, looked).await {
            Ok(Ok(())) => Ok(()),
            _ if has() => Ok(()),
            _ => Err(Unreached),
        }
    }

    /// Takes part in the hub, for as long as it is polled. One call of a process does; others return.
    pub(crate) async fn tend(self: Arc<Shared>, hub: Hub) {
        let queued = locked(&self.queued).take();
        let Some(queued) = queued else { return };
        match &self.over {
            Over::Subject(subject) => self.tend_subject(subject, &hub, queued).await,
            Over::Stream(stream) => self.tend_stream(stream, &hub, queued).await,
        }
    }

    /// Takes what a process announces of its users.
    fn take_users(&self, hub: &Hub, users: Option<Users>) {
        if let Some(Users { node, is_all, asks, users }) = users.filter(|users| users.node != hub.node()) {
            presence::of_others(hub, &node, is_all, users);
            if asks {
                self.announce(hub, false);
            }
        }
    }

    /// Removes the users of processes that are missing twice in a row in a list of those that report.
    fn remove_gone(&self, hub: &Hub, reporting: &[&str], missing: &mut HashMap<String, u32>) {
        self.processes.store(reporting.len(), Ordering::Relaxed);
        let known = presence::nodes(hub);
        missing.retain(|node, _| known.contains(node));
        for node in known {
            if reporting.contains(&node.as_str()) {
                missing.remove(&node);
                continue;
            }
            let times = missing.entry(node.clone()).or_insert(0);
            *times += 1;
            if *times > 1 {
                missing.remove(&node);
                presence::of_others(hub, &node, true, Vec::new());
            }
        }
    }
}

/// The server did not say in time whether a place is one of the hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unreached;

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.over {
            Over::Stream(stream) => write!(f, "Shared({stream:?})"),
            Over::Subject(subject) => write!(f, "Shared({subject:?})"),
        }
    }
}
