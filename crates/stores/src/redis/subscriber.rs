//! Messages of channels, over a separate connection.
//!
//! The subscriptions are kept apart from the connection ([`Subscriptions`]), so that they are repeated on the
//! next one. [`Subscriber::next`] does the work: it connects, subscribes, receives. Nothing is read ahead, so
//! the server notices a slow reader, and finally closes the connection (`client-output-buffer-limit`): that
//! is an [`Event::Lost`] like any other.

use super::Redis;
use super::connect::Link;
use super::error::RedisError;
use ringroad_engine::time;
use ringroad_policy::{Nanos, SECOND, backoff};
use ringroad_wire::resp::{Reply, put_command};
use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A silent connection is pinged after this time, and closed after the same time again.
const SILENCE: Duration = Duration::from_secs(10);

/// Bounds of the back-off: up to the first after one failure, doubled with each, at most the second.
const BACKOFF: (Nanos, Nanos) = (SECOND / 10, 5 * SECOND);

/// An event of a subscriber.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The server has subscribed this connection to a channel: from here on no message of it is missed.
    /// Repeated after each [`Event::Lost`].
    Subscribed {
        /// The channel or the pattern.
        channel: Vec<u8>,
        /// Whether it is a pattern.
        is_pattern: bool,
    },
    /// The server has unsubscribed this connection from a channel.
    Unsubscribed {
        /// The channel or the pattern.
        channel: Vec<u8>,
        /// Whether it is a pattern.
        is_pattern: bool,
    },
    /// A message.
    Message {
        /// The channel that it was published on.
        channel: Vec<u8>,
        /// The pattern that matched, if the message came by one.
        pattern: Option<Vec<u8>>,
        /// Its bytes.
        payload: Vec<u8>,
    },
    /// The connection is lost, or could not be made. Messages are missed until the next
    /// [`Event::Subscribed`]. It reconnects automatically, after a pause.
    Lost(RedisError),
}

/// A connection that receives messages. It belongs to one task; [`Subscriptions`] may be used by others of
/// the same thread.
pub struct Subscriber {
    redis: Redis,
    wanted: Rc<Wanted>,
    link: Option<Link>,
    ready: VecDeque<Event>,
    out: Vec<u8>,
    silence: Option<time::Sleep>,
    asked: bool,
    failures: u32,
    wait: Option<time::Sleep>,
}

/// The subscriptions of a [`Subscriber`]. Clones refer to the same ones.
#[derive(Clone)]
pub struct Subscriptions(Rc<Wanted>);

#[derive(Default)]
struct Wanted {
    state: RefCell<WantedState>,
}

#[derive(Default)]
struct WantedState {
    /// Names, each with whether it is a pattern.
    names: BTreeSet<(bool, Vec<u8>)>,
    /// Commands that bring the connection's subscriptions to `names`; empty without a connection.
    changes: Vec<u8>,
    is_connected: bool,
    task: Option<Waker>,
}

impl WantedState {
    fn tell(&mut self, is_pattern: bool, name: &[u8], adds: bool) {
        let command: &[u8] = match (adds, is_pattern) {
            (true, false) => b"SUBSCRIBE",
            (true, true) => b"PSUBSCRIBE",
            (false, false) => b"UNSUBSCRIBE",
            (false, true) => b"PUNSUBSCRIBE",
        };
        put_command(&mut self.changes, &[command, name]);
    }
}

impl Subscriptions {
    /// Subscribes to a channel. [`Event::Subscribed`] reports when it is in force.
    pub fn add(&self, channel: &[u8]) {
        self.change(false, channel, true);
    }

    /// Subscribes to the channels that a pattern matches, as `news.*`.
    pub fn add_pattern(&self, pattern: &[u8]) {
        self.change(true, pattern, true);
    }

    /// Ends the subscription to a channel. Messages in flight still arrive.
    pub fn remove(&self, channel: &[u8]) {
        self.change(false, channel, false);
    }

    /// Ends the subscription to a pattern.
    pub fn remove_pattern(&self, pattern: &[u8]) {
        self.change(true, pattern, false);
    }

    /// Returns the number of channels and patterns.
    pub fn len(&self) -> usize {
        self.0.state.borrow().names.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn change(&self, is_pattern: bool, name: &[u8], adds: bool) {
        let mut state = self.0.state.borrow_mut();
        let entry = (is_pattern, name.to_vec());
        let is_changed = if adds { state.names.insert(entry) } else { state.names.remove(&entry) };
        if !is_changed {
            return;
        }
        if state.is_connected {
            state.tell(is_pattern, name, adds);
        }
        let task = state.task.take();
        drop(state);
        if let Some(task) = task {
            task.wake();
        }
    }
}

impl fmt::Debug for Subscriptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Subscriptions({})", self.len())
    }
}

impl Subscriber {
    pub(super) fn new(redis: &Redis) -> Subscriber {
        Subscriber {
            redis: redis.clone(),
            wanted: Rc::default(),
            link: None,
            ready: VecDeque::new(),
            out: Vec::new(),
            silence: None,
            asked: false,
            failures: 0,
            wait: None,
        }
    }

    /// Returns the subscriptions, which can be changed at any time.
    pub fn subscriptions(&self) -> Subscriptions {
        Subscriptions(Rc::clone(&self.wanted))
    }

    /// Waits for the next event. Connects if there is no connection and any subscription, and keeps trying
    /// for as long as it is polled: it never ends. Dropping the future loses no event.
    pub async fn next(&mut self) -> Event {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return event;
            }
            if self.link.is_none() {
                self.connect().await;
                continue;
            }
            let received = poll_fn(|context| self.poll_receive(context)).await;
            if let Err(why) = received {
                self.lose(why.into());
            }
        }
    }

    /// Connects, after the pause that is due, once there is a subscription.
    async fn connect(&mut self) {
        poll_fn(|context| {
            let mut state = self.wanted.state.borrow_mut();
            if state.names.is_empty() {
                state.task = Some(context.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
        if let Some(wait) = &mut self.wait {
            wait.await;
            self.wait = None;
        }
        match Link::open(&self.redis).await {
            Err(why) => self.lose(why),
            Ok(link) => {
                self.link = Some(link);
                self.asked = false;
                self.silence = Some(time::sleep(SILENCE));
                let mut state = self.wanted.state.borrow_mut();
                state.is_connected = true;
                state.changes.clear();
                for (is_pattern, name) in state.names.clone() {
                    state.tell(is_pattern, &name, true);
                }
            }
        }
    }

    fn lose(&mut self, why: Arc<str>) {
        self.link = None;
        self.out.clear();
        let mut state = self.wanted.state.borrow_mut();
        state.is_connected = false;
        state.changes = Vec::new();
        drop(state);
        let random = RandomState::new().hash_one(self.failures);
        let wait = backoff::wait(self.failures, BACKOFF.0, BACKOFF.1, random);
        self.failures = self.failures.saturating_add(1);
        self.wait = Some(time::sleep(Duration::from_nanos(wait)));
        self.ready.push_back(Event::Lost(RedisError::Lost(why)));
    }

    /// Sends changes and receives until there is an event. Receives at most one piece ahead.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<Result<(), String>> {
        {
            let mut state = self.wanted.state.borrow_mut();
            self.out.append(&mut state.changes);
            state.task = Some(context.waker().clone());
        }
        if let Some(silence) = &mut self.silence
            && Pin::new(silence).poll(context).is_ready()
        {
            if std::mem::replace(&mut self.asked, true) {
                return Poll::Ready(Err(format!("no sign of life within {SILENCE:?}")));
            }
            put_command(&mut self.out, &["PING"]);
            let mut silence = time::sleep(SILENCE);
            // The timer begins with its first poll.
            let _ = Pin::new(&mut silence).poll(context);
            self.silence = Some(silence);
        }
        let Subscriber { link: Some(link), out, .. } = self else { return Poll::Ready(Ok(())) };
        link.poll_write(out, context)?;
        loop {
            let Subscriber { link: Some(link), .. } = self else { return Poll::Ready(Ok(())) };
            let Poll::Ready(reply) = link.poll_reply(context)? else { return Poll::Pending };
            self.asked = false;
            if let Some(text) = reply.error() {
                return Poll::Ready(Err(format!("refused: {}", String::from_utf8_lossy(text))));
            }
            if let Some(event) = event(reply) {
                self.failures = 0;
                self.ready.push_back(event);
                return Poll::Ready(Ok(()));
            }
        }
    }
}

/// Converts a push; `None` if it is not an event, such as the answer to a PING.
fn event(reply: Reply) -> Option<Event> {
    let mut parts = reply.into_array()?.into_iter();
    let kind = parts.next()?.into_bytes()?;
    let mut text = || parts.next()?.into_bytes();
    let is_pattern = kind.starts_with(b"p");
    match kind.as_slice() {
        b"message" => Some(Event::Message { channel: text()?, pattern: None, payload: text()? }),
        b"pmessage" => {
            let pattern = Some(text()?);
            Some(Event::Message { channel: text()?, pattern, payload: text()? })
        }
        b"subscribe" | b"psubscribe" => Some(Event::Subscribed { channel: text()?, is_pattern }),
        b"unsubscribe" | b"punsubscribe" => Some(Event::Unsubscribed { channel: text()?, is_pattern }),
        _ => None,
    }
}

impl fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.wanted.state.borrow().names.len();
        write!(
            f,
            "Subscriber({:?}, {count} channels, {})",
            self.redis,
            match self.link {
                Some(_) => "connected",
                None => "not connected",
            }
        )
    }
}
