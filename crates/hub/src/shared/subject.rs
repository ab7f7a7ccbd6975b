//! A hub over a subject of NATS: messages reach the other processes at most once, and no server keeps them.
//!
//! Each process numbers messages by itself, those of others as they come. So an id is of one process, and a
//! client that comes back to another one learns that it cannot recover. While the connection to the server
//! is lost messages of others are missed; then members are closed, come back, and learn that.
//!
//! A process publishes its users in whole when it connects, when another one asks, and now and then, because
//! a change may be lost. Its beats say that it is there.

use super::{Cancels, Record, Shared, Users};
use crate::presence;
use crate::topics::{Hub, Message, PublishError};
use ringroad_engine::spawn;
use ringroad_engine::sync::UnboundedReceiver;
use ringroad_engine::time::{sleep, timeout};
use ringroad_stores::nats::{Event, Nats, Settings};
use ringroad_tls::TlsError;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Each so many beats a process publishes all of its users.
const WHOLE: u32 = 12;

/// A hub on a server.
pub(super) struct Subject {
    nats: Nats,
    subject: String,
    /// The longest record that the server takes.
    payload_max: AtomicUsize,
}

impl Subject {
    pub(super) fn new(name: &str, server: Settings) -> Result<Subject, TlsError> {
        // The hub's name as one token of a subject.
        let token: String = name
            .bytes()
            .map(|byte| match byte {
                b'-' | b'_' => char::from(byte).to_string(),
                byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
                byte => format!("={byte:02x}"),
            })
            .collect();
        let subject = format!("ringroad.hub.{}", token.get(..200).unwrap_or(&token));
        Ok(Subject { nats: Nats::new(name, server)?, subject, payload_max: AtomicUsize::new(0) })
    }
}

impl Shared {
    /// Publishes a message to the members here and to the other processes.
    pub(super) fn send_at_once(
        &self,
        subject: &Subject,
        hub: &Hub,
        names: &[&str],
        message: Message,
    ) -> Result<crate::Id, PublishError> {
        if !self.state().is_up {
            return Err(PublishError::Unavailable);
        }
        let record = Record::of_message(names, message);
        let text = serde_json::to_string(&record).map_err(|_| PublishError::Unavailable)?;
        if text.len() > subject.payload_max.load(Ordering::Relaxed) {
            return Err(PublishError::TooLong);
        }
        let id = hub.number(names, record.message.unwrap_or_default())?;
        self.put_text(text);
        Ok(id)
    }

    /// Takes part in the hub, for as long as it is polled.
    pub(super) async fn tend_subject(
        self: &Arc<Shared>,
        subject: &Subject,
        hub: &Hub,
        mut queued: UnboundedReceiver<String>,
    ) {
        let mut connection = subject.nats.connection(&[&subject.subject]);
        let publisher = connection.publisher();
        let (shared, name) = (Arc::clone(self), subject.subject.clone());
        let _tells = Cancels(spawn(async move {
            while let Ok(text) = queued.recv().await {
                shared.queued_bytes.fetch_sub(text.len(), Ordering::Relaxed);
                if publisher.publish(&name, text.as_bytes()).is_err() {
                    shared.announces.store(true, Ordering::Relaxed);
                }
            }
        }));
        let (shared, of) = (Arc::clone(self), hub.clone());
        let _beats = Cancels(spawn(async move {
            let mut count = 0_u32;
            loop {
                if shared.announces.swap(false, Ordering::Relaxed) || count.is_multiple_of(WHOLE) {
                    shared.announce(&of, false);
                } else {
                    let users =
                        Users { node: of.node().to_owned(), is_all: false, asks: false, users: Vec::new() };
                    shared.put(&Record::of_users(users));
                }
                count = count.wrapping_add(1);
                sleep(shared.beat).await;
            }
        }));
        // Members may come from now on. What is published before the server is there is refused.
        self.is_ready.store(true, Ordering::Release);
        let mut heard: HashMap<String, Instant> = HashMap::new();
        let mut was_connected = false;
        loop {
            // Processes that are gone are noticed without an event.
            match timeout(self.beat, connection.next()).await {
                Err(_) => {}
                Ok(Event::Connected) => {
                    subject.payload_max.store(connection.payload_max(), Ordering::Relaxed);
                    if std::mem::replace(&mut was_connected, true) {
                        // A number for what may be missing.
                        let last = hub.last();
                        hub.lose(crate::Id { offset: last.offset + 1, ..last });
                    }
                    self.note(Ok(()));
                    // The others may have been there all the time.
                    heard.values_mut().for_each(|at| *at = Instant::now());
                    self.announce(hub, true);
                }
                Ok(Event::Lost(why)) => drop(self.note::<()>(Err(why.to_string()))),
                Ok(Event::Message { payload, .. }) => {
                    let Ok(record) = serde_json::from_slice::<Record>(&payload) else { continue };
                    let Record { topics, message, users, .. } = record;
                    if let Some(message) = message {
                        let names: Vec<&str> = topics.iter().map(String::as_str).collect();
                        // There may be no room for its topics here.
                        let _ = hub.number(&names, message);
                    }
                    if let Some(users) = users {
                        heard.insert(users.node.clone(), Instant::now());
                        self.take_users(hub, Some(users));
                    }
                }
                Ok(_) => {}
            }
            let gone = self.beat * 4;
            heard.retain(|node, at| {
                let stays = at.elapsed() < gone;
                if !stays {
                    presence::of_others(hub, node, true, Vec::new());
                }
                stays
            });
            self.processes.store(heard.len() + 1, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, {}", self.nats, self.subject)
    }
}
