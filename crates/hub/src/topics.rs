//! Topics, their history, and how a message reaches the workers.
//!
//! Invariant: under one lock a message gets its number, and is put into the history of its topic and into the
//! inbox of every worker. So each worker sees messages in the order of their numbers. A member that reads
//! histories under the same lock knows which messages of the inbox it has already. Numbers belong to the hub
//! and not to the topic, so that one number is the position of a member in all of its topics.

use crate::matcher::{Matcher, Subject};
use crate::shared::{ServerState, Shared, Sharing, Unreached};
use ringroad_engine::sync::{UnboundedSender, unbounded};
use ringroad_http::ws::Frame;
use ringroad_tls::TlsError;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use url::Url;

/// Settings of a hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Maximum number of messages that are kept for each topic.
    pub history_messages: usize,
    /// How long they are kept.
    pub history_for: Duration,
    /// Interval of heartbeats on a silent connection.
    pub heartbeat: Duration,
    /// Maximum bytes that are queued for a member before it is closed.
    pub queue_bytes: usize,
    /// Maximum number of topics. Topics without members and without history are removed to make room.
    pub topics_max: usize,
    /// Maximum bytes of a message.
    pub message_bytes: usize,
    /// The hub's own URL: relative topics and patterns are below it.
    pub url: Url,
}

impl Default for Settings {
    /// Returns 100 messages for 5 minutes, a heartbeat every 25 s, 256 KiB queued, 100,000 topics, messages
    /// of 64 KiB.
    #[allow(clippy::expect_used, reason = "the URL is a constant")]
    fn default() -> Settings {
        Settings {
            history_messages: 100,
            history_for: Duration::from_secs(300),
            heartbeat: Duration::from_secs(25),
            queue_bytes: 256 << 10,
            topics_max: 100_000,
            message_bytes: 64 << 10,
            url: "http://localhost/.well-known/mercure".parse().expect("a URL that is a constant"),
        }
    }
}

/// A message to be published.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Message {
    /// Its content.
    pub data: String,
    /// Its type, for clients that distinguish types.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// How long a client waits before it connects again, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<u64>,
    /// Only members with the right to read one of its topics get it.
    pub private: bool,
    /// The socket id of the member that does not get it, because its client published it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub except: Option<Box<str>>,
    /// The user that published it, by the user's id in the topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<Box<str>>,
    /// Whether no history keeps it: only present members get it.
    pub transient: bool,
    /// Facts about the client that published it, for clients of Centrifugo's protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub info: Option<Box<Value>>,
    /// Its tags, for clients of Centrifugo's protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<Box<Value>>,
}

/// Prefix of the hub's own topics. Topics of clients have no control characters.
pub(crate) const INTERNAL: char = '\u{1}';

/// The topic of the notice that messages are lost.
pub(crate) const LOST: &str = "\u{1}lost";

/// The topic of the notice that the hub has ended.
pub(crate) const ENDED: &str = "\u{1}ended";

/// The position of a message: the epoch of its hub, and its number in it, from 1 on.
///
/// As text it is `EPOCH-OFFSET`; the form with `#` before it, as in events, is also read. A restarted hub has
/// another epoch, so that an old position is never taken for a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Id {
    /// The epoch of the hub.
    pub epoch: u64,
    /// The number of the message.
    pub offset: u64,
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{}", self.epoch, self.offset)
    }
}

impl std::str::FromStr for Id {
    type Err = ();

    fn from_str(text: &str) -> Result<Id, ()> {
        let text = text.strip_prefix('#').unwrap_or(text);
        let (epoch, offset) = text.split_once('-').ok_or(())?;
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_plain(epoch) || !is_plain(offset) {
            return Err(());
        }
        let epoch = u64::from_str_radix(epoch, 16).map_err(|_| ())?;
        Ok(Id { epoch, offset: offset.parse().map_err(|_| ())? })
    }
}

/// A published message, encoded once for each form that a member needs.
pub struct Publication {
    /// Its topics: the main one first.
    pub topics: Box<[Arc<str>]>,
    /// Its place.
    pub id: Id,
    /// What it says.
    pub message: Message,
    /// Its sequence number among the messages handed to the workers of this process.
    pub(crate) seq: u64,
    at: Instant,
    frame: OnceLock<Frame>,
    event: OnceLock<Arc<[u8]>>,
    pusher: OnceLock<Frame>,
    centrifugo: OnceLock<Frame>,
}

impl Publication {
    fn new(topics: Box<[Arc<str>]>, id: Id, message: Message, seq: u64, at: Instant) -> Publication {
        Publication {
            topics,
            id,
            message,
            seq,
            at,
            frame: OnceLock::new(),
            event: OnceLock::new(),
            pusher: OnceLock::new(),
            centrifugo: OnceLock::new(),
        }
    }

    /// Returns the topic, the first of several.
    pub fn topic(&self) -> &str {
        self.topics.first().map_or("", |topic| topic)
    }

    /// Returns it as a WebSocket frame of the plain protocol.
    pub(crate) fn frame(&self) -> &Frame {
        self.frame.get_or_init(|| crate::plain::frame(self))
    }

    /// Returns it as a server-sent event.
    pub(crate) fn event(&self) -> &Arc<[u8]> {
        self.event.get_or_init(|| crate::mercure::event(self).into())
    }

    /// Returns it as a WebSocket frame of the Pusher protocol, for members of this topic.
    pub(crate) fn pusher(&self, topic: &str) -> Frame {
        if topic == self.topic() {
            self.pusher.get_or_init(|| crate::pusher::frame(self, topic)).clone()
        } else {
            crate::pusher::frame(self, topic)
        }
    }

    /// Returns it as a WebSocket frame of Centrifugo's protocol, for members of this topic.
    pub(crate) fn centrifugo(&self, topic: &str) -> Frame {
        if topic == self.topic() {
            self.centrifugo.get_or_init(|| crate::centrifugo::frame(self, topic)).clone()
        } else {
            crate::centrifugo::frame(self, topic)
        }
    }
}

impl fmt::Debug for Publication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Publication({} {})", self.topic(), self.id)
    }
}

struct Topic {
    name: Arc<str>,
    /// The number of the last message that is no longer in the history; 0: none.
    gone: u64,
    history: VecDeque<Arc<Publication>>,
    members: usize,
}

impl Topic {
    fn forget_old(&mut self, settings: &Settings, now: Instant) {
        let is_old = |one: &Arc<Publication>| now.saturating_duration_since(one.at) > settings.history_for;
        while self.history.front().is_some_and(is_old) || self.history.len() > settings.history_messages {
            self.gone = self.history.pop_front().map_or(self.gone, |one| one.id.offset);
        }
    }
}

/// The topics that a member subscribes to.
#[derive(Clone, Debug)]
pub(crate) enum Wanted {
    /// These topics.
    Names(Vec<String>),
    /// Topics that one of these matches.
    Matching(Vec<Matcher>),
}

/// The position from which a member wants messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Since {
    /// All that are kept.
    Earliest,
    /// Those after this one.
    Id(Id),
}

/// The state at a member's subscription.
#[derive(Debug)]
pub(crate) struct Found {
    /// The position of the hub's last message: later ones arrive in the inbox.
    pub(crate) last: Id,
    /// The last sequence number handed to the workers.
    pub(crate) seq: u64,
    /// The missed messages in order: all of them, or none.
    pub(crate) missed: Vec<Arc<Publication>>,
    /// Whether all missed messages were still kept.
    pub(crate) recovered: bool,
}

/// A message numbered by the server of a shared hub.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) id: Id,
    pub(crate) names: Vec<String>,
    /// `None` for a number without a message.
    pub(crate) message: Option<Message>,
    /// How long ago it was published.
    pub(crate) age: Duration,
    /// Whether members may have it from the previous epoch: only histories get it.
    pub(crate) is_old: bool,
}

/// Counters of a hub.
#[derive(Debug, Default)]
pub struct Counts {
    /// Messages published.
    pub published: AtomicU64,
    /// Messages handed to members.
    pub delivered: AtomicU64,
    /// Present members.
    pub members: AtomicU64,
    /// Members closed because they were slow.
    pub closed_slow: AtomicU64,
    /// Complete recoveries.
    pub recovered: AtomicU64,
    /// Recoveries that were refused, because messages were no longer kept.
    pub not_recovered: AtomicU64,
    /// Messages that the server of a shared hub did not take.
    pub unavailable: AtomicU64,
    /// Number of gaps in the messages of a shared hub, which were read from the server's stream.
    pub gaps: AtomicU64,
    /// Number of times that messages of a shared hub were lost, so that all members were closed.
    pub lost: AtomicU64,
}

/// A hub of topics. Clones are the same hub.
#[derive(Clone)]
pub struct Hub(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) settings: Settings,
    node: String,
    made: u64,
    pub(crate) shared: Option<Arc<Shared>>,
    topics: Mutex<Topics>,
    pub(crate) counts: Counts,
    /// Subscriptions that can be looked up, by their path.
    pub(crate) subscriptions: Mutex<BTreeMap<String, Value>>,
    /// Users of topics with presence.
    pub(crate) presence: Mutex<crate::presence::Presence>,
}

struct Topics {
    by_name: HashMap<Arc<str>, Topic>,
    inboxes: Vec<UnboundedSender<Arc<Publication>>>,
    /// Of the last message.
    last: Id,
    /// Counts what is handed to the workers.
    seq: u64,
    /// The number of the last message that went with its topic.
    gone: u64,
    /// Members that subscribe by a pattern: they may be members of any topic.
    matching: usize,
    /// Whether members are no longer accepted.
    ended: bool,
}

/// Why a message was not published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishError {
    /// It is longer than the hub allows.
    TooLong,
    /// The maximum number of topics is reached.
    TooManyTopics,
    /// The store that the hub shares with other machines does not take it now.
    Unavailable,
    /// Its type has control characters, which would end the line of an event.
    BadType,
}

impl Hub {
    /// Makes a hub.
    pub fn new(settings: Settings) -> Hub {
        Hub::made_with(settings, None)
    }

    /// Makes a hub that several processes share over a server. [`tend`](Self::tend) has to be polled.
    ///
    /// # Errors
    /// The certificates of the server's settings cannot be used.
    pub fn shared(settings: Settings, sharing: Sharing) -> Result<Hub, TlsError> {
        Ok(Hub::made_with(settings, Some(Arc::new(Shared::new(sharing)?))))
    }

    /// Runs the connection to the other processes of a shared hub, for as long as it is polled.
    pub async fn tend(&self) {
        if let Some(shared) = &self.0.shared {
            Arc::clone(shared).tend(self.clone()).await;
        }
    }

    /// Returns whether it can be used. A shared hub first reads the messages of the other processes.
    pub fn is_ready(&self) -> bool {
        self.0.shared.as_ref().is_none_or(|shared| shared.is_ready())
    }

    /// Returns the state of the server of a shared hub.
    pub fn server(&self) -> Option<ServerState> {
        self.0.shared.as_ref().map(|shared| shared.state())
    }

    /// Waits until the member's position can be decided: it may name a message of another process that has
    /// not arrived yet.
    ///
    /// # Errors
    /// The server did not answer in time.
    pub(crate) async fn reach(&self, after: Option<Since>) -> Result<(), Unreached> {
        match (&self.0.shared, after) {
            (Some(shared), Some(Since::Id(id))) => shared.reach(self, id).await,
            _ => Ok(()),
        }
    }

    fn made_with(settings: Settings, shared: Option<Arc<Shared>>) -> Hub {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let made = since.as_micros() as u64;
        let last = Id { epoch: made, offset: 0 };
        let (by_name, inboxes) = (HashMap::new(), Vec::new());
        let topics = Topics { by_name, inboxes, last, seq: 0, gone: 0, matching: 0, ended: false };
        Hub(Arc::new(Inner {
            settings,
            node: crate::subscriptions::random_urn(),
            made,
            shared,
            topics: Mutex::new(topics),
            counts: Counts::default(),
            subscriptions: Mutex::default(),
            presence: Mutex::default(),
        }))
    }

    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Returns the counters.
    pub fn counts(&self) -> &Counts {
        &self.0.counts
    }

    /// Returns the number of topics.
    pub fn topics(&self) -> usize {
        self.0.topics().by_name.len()
    }

    /// Returns the number of members of a topic, on all workers.
    pub fn members_of(&self, topic: &str) -> usize {
        self.0.topics().by_name.get(topic).map_or(0, |topic| topic.members)
    }

    /// Returns the name of this process among those that share the hub.
    pub fn node(&self) -> &str {
        &self.0.node
    }

    /// Returns when it was made, in microseconds since 1970.
    pub(crate) fn made(&self) -> u64 {
        self.0.made
    }

    /// Returns the position of the last message.
    pub fn last(&self) -> Id {
        self.0.topics().last
    }

    /// Returns the topics with members, and the number of members of each.
    pub fn occupied(&self) -> Vec<(String, usize)> {
        let topics = self.0.topics();
        let with_members =
            topics.by_name.values().filter(|topic| topic.members > 0 && !topic.name.starts_with(INTERNAL));
        with_members.map(|topic| (topic.name.to_string(), topic.members)).collect()
    }

    /// Returns the last message that is kept of a topic.
    pub fn last_of(&self, topic: &str) -> Option<Arc<Publication>> {
        let mut topics = self.0.topics();
        let topic = topics.by_name.get_mut(topic)?;
        topic.forget_old(&self.0.settings, Instant::now());
        topic.history.back().map(Arc::clone)
    }

    /// Returns the messages that are kept of a topic, and the place of the hub's last one.
    pub fn history_of(&self, topic: &str) -> (Vec<Arc<Publication>>, Id) {
        let mut topics = self.0.topics();
        let last = topics.last;
        let kept = topics.by_name.get_mut(topic).map(|topic| {
            topic.forget_old(&self.0.settings, Instant::now());
            topic.history.iter().map(Arc::clone).collect()
        });
        (kept.unwrap_or_default(), last)
    }

    /// Removes the kept messages of a topic. Members that reconnect cannot recover earlier messages.
    pub fn forget(&self, topic: &str) {
        let mut topics = self.0.topics();
        if let Some(topic) = topics.by_name.get_mut(topic) {
            topic.gone = topic.history.back().map_or(topic.gone, |last| last.id.offset);
            topic.history.clear();
        }
    }

    /// Publishes a message, from any thread. `None`: it is too long, its type has control characters, there
    /// are too many topics, or the hub is shared: see [`send`](Self::send).
    pub fn publish(&self, topic: &str, message: Message) -> Option<Id> {
        self.publish_to(&[topic], message).ok()
    }

    /// Publishes a message about one or several topics. A member of several of them gets it once.
    ///
    /// # Errors
    /// It is too long, its type has control characters, or there are too many topics.
    /// [`PublishError::Unavailable`]: the hub is shared; see [`send`](Self::send).
    pub fn publish_to(&self, names: &[&str], message: Message) -> Result<Id, PublishError> {
        if self.0.shared.is_some() {
            return Err(PublishError::Unavailable);
        }
        self.check(&message)?;
        let id = self.number(names, message)?;
        self.0.counts.published.fetch_add(1, Ordering::Relaxed);
        Ok(id)
    }

    /// Gives a message the next number, and hands it to the members in this process.
    pub(crate) fn number(&self, names: &[&str], message: Message) -> Result<Id, PublishError> {
        let mut topics = self.0.topics();
        let id = Id { offset: topics.last.offset + 1, ..topics.last };
        self.put(&mut topics, id, names, message, Instant::now(), false)?;
        Ok(id)
    }

    /// Publishes a message as [`publish_to`](Self::publish_to) does, also on a shared hub: it waits there
    /// until the server has the message.
    ///
    /// # Errors
    /// It is too long, its type has control characters, there are too many topics, or the server does not
    /// take it.
    pub async fn send(&self, names: &[&str], message: Message) -> Result<Id, PublishError> {
        let Some(shared) = &self.0.shared else { return self.publish_to(names, message) };
        self.check(&message)?;
        let sent = shared.send(self, names, message).await;
        if sent.is_err() {
            self.0.counts.unavailable.fetch_add(1, Ordering::Relaxed);
        }
        let id = sent?;
        self.0.counts.published.fetch_add(1, Ordering::Relaxed);
        Ok(id)
    }

    /// Publishes a message without waiting. On a shared hub it may be lost, if the server does not take it.
    pub(crate) fn tell(&self, topic: &str, message: Message) {
        match &self.0.shared {
            Some(shared) => shared.tell(self, topic, message),
            None => drop(self.publish_to(&[topic], message)),
        }
    }

    /// Sends a message to the members in this process only. It has no number.
    pub(crate) fn tell_here(&self, topic: &str, message: Message) {
        let mut topics = self.0.topics();
        let last = topics.last;
        let message = Message { transient: true, ..message };
        // Without members it is useless.
        if topics.by_name.get(topic).is_some_and(|topic| topic.members > 0) {
            let _ = self.put(&mut topics, last, &[topic], message, Instant::now(), false);
        }
    }

    fn check(&self, message: &Message) -> Result<(), PublishError> {
        if message.kind.as_deref().is_some_and(|kind| kind.contains(char::is_control)) {
            return Err(PublishError::BadType);
        }
        let fits = message.data.len() <= self.0.settings.message_bytes;
        fits.then_some(()).ok_or(PublishError::TooLong)
    }

    /// Adds a message that the server has numbered after the last one. Numbers that are missing between them
    /// are lost.
    pub(crate) fn arrive(&self, arrival: Arrival) {
        self.arrive_at(&mut self.0.topics(), arrival);
    }

    fn arrive_at(&self, topics: &mut Topics, arrival: Arrival) {
        let Arrival { id, names, message, age, is_old } = arrival;
        if id.offset > topics.last.offset + 1 {
            self.lose_at(topics, Id { offset: id.offset - 1, ..id });
        }
        let now = Instant::now();
        let at = now.checked_sub(age).unwrap_or(now);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let is_crowded = topics.are_crowded_for(message.as_ref(), &self.0.settings);
        let mut fits = |name: &&str| is_crowded || topics.of(name, &self.0.settings, now).is_some();
        let fitting: Vec<&str> = names.iter().copied().filter(&mut fits).collect();
        if fitting.len() < names.len() {
            // No room for a topic: messages published to it cannot be recovered.
            topics.gone = id.offset;
        }
        if let Some(message) = message.filter(|_| !fitting.is_empty()) {
            let _ = self.put(topics, id, &fitting, message, at, is_old);
        }
        topics.last = id;
    }

    /// Records that messages up to this one are lost. Members are closed, reconnect, and learn it.
    pub(crate) fn lose(&self, id: Id) {
        self.lose_at(&mut self.0.topics(), id);
    }

    fn lose_at(&self, topics: &mut Topics, id: Id) {
        topics.gone = id.offset;
        topics.by_name.values_mut().for_each(|topic| topic.gone = id.offset);
        topics.last = id;
        self.tell_lost(topics);
    }

    /// Begins another epoch of the hub, without the old messages and with these. No member is accepted
    /// meanwhile, so each member has all of them or reconnects.
    pub(crate) fn restart(&self, epoch: u64, arrivals: Vec<Arrival>) {
        let mut topics = self.0.topics();
        topics.gone = 0;
        for topic in topics.by_name.values_mut() {
            topic.gone = 0;
            topic.history.clear();
        }
        topics.last = Id { epoch, offset: 0 };
        self.tell_lost(&mut topics);
        for arrival in arrivals {
            self.arrive_at(&mut topics, arrival);
        }
    }

    /// Closes all members, and accepts none any more. The hub is not published to from now on. Its clients
    /// reconnect to its replacement.
    pub fn end(&self) {
        let mut topics = self.0.topics();
        if !std::mem::replace(&mut topics.ended, true) {
            self.tell_all(&mut topics, ENDED);
        }
    }

    /// Returns whether it has ended.
    pub fn has_ended(&self) -> bool {
        self.0.topics().ended
    }

    fn tell_lost(&self, topics: &mut Topics) {
        self.0.counts.lost.fetch_add(1, Ordering::Relaxed);
        self.tell_all(topics, LOST);
    }

    /// Sends a notice of the hub to the workers.
    fn tell_all(&self, topics: &mut Topics, what: &str) {
        let message = Message { transient: true, private: true, ..Message::default() };
        topics.seq += 1;
        // Not a topic of the hub's table, which may be full.
        let publication =
            Publication::new(Box::new([what.into()]), topics.last, message, topics.seq, Instant::now());
        topics.hand_on(&Arc::new(publication));
    }

    /// Puts a message into the histories of its topics and into the inboxes.
    fn put(
        &self,
        topics: &mut Topics,
        id: Id,
        names: &[&str],
        message: Message,
        at: Instant,
        is_old: bool,
    ) -> Result<(), PublishError> {
        let settings = &self.0.settings;
        let now = Instant::now();
        let mut shared = Vec::with_capacity(names.len());
        let mut has_members = topics.matching > 0;
        let is_crowded = topics.are_crowded_for(Some(&message), settings);
        for name in names {
            if is_crowded && !topics.by_name.contains_key(*name) {
                shared.push(Arc::from(*name));
                continue;
            }
            let topic = topics.of(name, settings, now).ok_or(PublishError::TooManyTopics)?;
            has_members |= topic.members > 0 || name.starts_with(INTERNAL);
            shared.push(Arc::clone(&topic.name));
        }
        topics.seq += 1;
        let publication = Arc::new(Publication::new(shared.into(), id, message, topics.seq, at));
        let kept = publication.topics.iter().filter(|_| !publication.message.transient);
        for name in kept {
            if let Some(topic) = topics.by_name.get_mut(name) {
                topic.history.push_back(Arc::clone(&publication));
                topic.forget_old(settings, now);
            } else {
                // It was removed for another topic of the same message, or is not kept.
                topics.gone = id.offset;
            }
        }
        topics.last = id;
        if has_members && !is_old {
            topics.hand_on(&publication);
        }
        Ok(())
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hub({} topics)", self.topics())
    }
}

impl Inner {
    fn topics(&self) -> MutexGuard<'_, Topics> {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the messages of all topics with members, for one worker.
    pub(crate) fn inbox(&self) -> ringroad_engine::sync::UnboundedReceiver<Arc<Publication>> {
        let (sender, receiver) = unbounded();
        self.topics().inboxes.push(sender);
        receiver
    }

    /// Adds a member with this subscription. `None`: there are too many topics, or the hub has ended.
    pub(crate) fn enter(&self, wanted: &Wanted, after: Option<Since>) -> Option<Found> {
        let now = Instant::now();
        let mut topics = self.topics();
        if topics.ended {
            return None;
        }
        let (last, seq) = (topics.last, topics.seq);
        let mut missed = Missed { after, last, messages: Vec::new(), is_whole: true };
        match wanted {
            Wanted::Names(names) => {
                for (at, name) in names.iter().enumerate() {
                    let Some(topic) = topics.of(name, &self.settings, now) else {
                        for name in names.iter().take(at) {
                            topics.leave(name);
                        }
                        return None;
                    };
                    topic.members += 1;
                    topic.forget_old(&self.settings, now);
                    missed.add(topic);
                }
            }
            Wanted::Matching(matchers) => {
                topics.matching += 1;
                if let Some(Since::Id(id)) = after {
                    // A topic that was removed may have been one of those.
                    missed.is_whole =
                        id.epoch == last.epoch && (topics.gone..=last.offset).contains(&id.offset);
                }
                if after.is_some() {
                    for topic in topics.by_name.values_mut() {
                        let subject = Subject::new(&topic.name, &self.settings.url);
                        if matchers.iter().any(|matcher| matcher.matches(&subject)) {
                            topic.forget_old(&self.settings, now);
                            missed.add(topic);
                        }
                    }
                }
            }
        }
        drop(topics);
        let Missed { messages: mut missed, is_whole: recovered, .. } = missed;
        if recovered {
            missed.sort_by_key(|one| one.id.offset);
            missed.dedup_by_key(|one| one.id.offset);
        } else {
            missed = Vec::new();
        }
        self.counts.members.fetch_add(1, Ordering::Relaxed);
        if after.is_some() {
            let count = if recovered { &self.counts.recovered } else { &self.counts.not_recovered };
            count.fetch_add(1, Ordering::Relaxed);
        }
        Some(Found { last, seq, missed, recovered })
    }

    /// Removes a member with this subscription.
    pub(crate) fn leave(&self, wanted: &Wanted) {
        let mut topics = self.topics();
        match wanted {
            Wanted::Names(names) => names.iter().for_each(|name| topics.leave(name)),
            Wanted::Matching(_) => topics.matching = topics.matching.saturating_sub(1),
        }
        drop(topics);
        self.counts.members.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Collects the messages that a member has missed.
struct Missed {
    after: Option<Since>,
    last: Id,
    messages: Vec<Arc<Publication>>,
    is_whole: bool,
}

impl Missed {
    fn add(&mut self, topic: &Topic) {
        let from = match self.after {
            None => return,
            Some(Since::Earliest) => 0,
            Some(Since::Id(id)) => {
                let known = topic.gone..=self.last.offset;
                self.is_whole &= id.epoch == self.last.epoch && known.contains(&id.offset);
                id.offset
            }
        };
        self.messages.extend(topic.history.iter().filter(|one| one.id.offset > from).map(Arc::clone));
    }
}

impl Topics {
    /// Sends a message to the workers. A worker that has ended is removed.
    fn hand_on(&mut self, publication: &Arc<Publication>) {
        self.inboxes.retain(|inbox| inbox.send(Arc::clone(publication)).is_ok());
    }

    fn leave(&mut self, name: &str) {
        if let Some(topic) = self.by_name.get_mut(name) {
            topic.members = topic.members.saturating_sub(1);
        }
    }

    /// Returns whether the message must not make another topic. Each subscription has a topic of its own for
    /// its events, and any client can make one: half of the room stays for others.
    fn are_crowded_for(&self, message: Option<&Message>, settings: &Settings) -> bool {
        message.is_some_and(|message| message.kind.as_deref() == Some(crate::subscriptions::KIND))
            && self.by_name.len() >= settings.topics_max / 2
    }

    /// Returns the topic of this name; makes it if there is none.
    fn of(&mut self, name: &str, settings: &Settings, now: Instant) -> Option<&mut Topic> {
        if !self.by_name.contains_key(name) {
            if self.by_name.len() >= settings.topics_max {
                let gone = &mut self.gone;
                self.by_name.retain(|_, topic| {
                    topic.forget_old(settings, now);
                    let stays = topic.members > 0 || !topic.history.is_empty();
                    if !stays {
                        *gone = topic.gone.max(*gone);
                    }
                    stays
                });
                if self.by_name.len() >= settings.topics_max {
                    return None;
                }
            }
            let name: Arc<str> = name.into();
            // It may have been removed before.
            let gone = self.gone;
            let topic = Topic { name: Arc::clone(&name), gone, history: VecDeque::new(), members: 0 };
            self.by_name.insert(name, topic);
        }
        self.by_name.get_mut(name)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn hub(messages: usize) -> Hub {
        Hub::new(Settings { history_messages: messages, topics_max: 2, ..Settings::default() })
    }

    fn say(hub: &Hub, topic: &str, text: &str) -> Id {
        hub.publish(topic, Message { data: text.to_owned(), ..Message::default() }).unwrap()
    }

    fn enter(hub: &Hub, topics: &[&str], since: Option<Since>) -> (Vec<String>, bool) {
        let names: Vec<String> = topics.iter().map(|name| (*name).to_owned()).collect();
        let found = hub.0.enter(&Wanted::Names(names), since).unwrap();
        (found.missed.iter().map(|one| one.message.data.clone()).collect(), found.recovered)
    }

    fn whole(texts: &[&str]) -> (Vec<String>, bool) {
        (texts.iter().map(|text| (*text).to_owned()).collect(), true)
    }

    #[test]
    fn recovery_is_whole_or_refused() {
        let hub = hub(3);
        let mut ids = Vec::new();
        for number in 0..5 {
            ids.push(say(&hub, "a", &number.to_string()));
            say(&hub, "b", &format!("b{number}"));
        }
        let after = |topics: &[&str], id| enter(&hub, topics, Some(Since::Id(id)));
        // Of five messages the last three are kept.
        assert_eq!(after(&["a"], ids[1]), whole(&["2", "3", "4"]));
        assert_eq!(after(&["a"], ids[0]), (vec![], false));
        assert_eq!(after(&["a"], ids[4]), whole(&[]));
        assert_eq!(after(&["a", "b"], ids[3]), whole(&["b3", "4", "b4"]));
        // What is gone of one topic spoils the whole.
        assert_eq!(after(&["a", "b"], ids[1]), (vec![], false));
        assert_eq!(enter(&hub, &["a"], Some(Since::Earliest)), whole(&["2", "3", "4"]));
        assert_eq!(enter(&hub, &["a"], None), whole(&[]));
        // From the future, or from another life of the hub.
        assert!(!after(&["a"], Id { offset: 11, ..ids[4] }).1);
        assert!(!after(&["a"], Id { epoch: ids[4].epoch + 1, ..ids[4] }).1);
    }

    #[test]
    fn old_messages_are_forgotten() {
        let hub = Hub::new(Settings { history_for: Duration::ZERO, ..Settings::default() });
        let first = say(&hub, "a", "x");
        say(&hub, "a", "y");
        while enter(&hub, &["a"], Some(Since::Earliest)) != whole(&[]) {}
        assert_eq!(enter(&hub, &["a"], Some(Since::Id(first))), (vec![], false));
    }

    #[test]
    fn a_topic_without_members_and_history_makes_room_for_another() {
        let hub = hub(0);
        let first = say(&hub, "a", "x");
        say(&hub, "a", "y");
        enter(&hub, &["b"], None);
        // In the place of "a"; "b" has a member.
        say(&hub, "c", "x");
        enter(&hub, &["c"], None);
        assert!(hub.publish("d", Message::default()).is_none());
        hub.0.leave(&Wanted::Names(vec!["b".to_owned()]));
        // What was in it before is not forgotten to be gone.
        assert_eq!(enter(&hub, &["a"], Some(Since::Id(first))), (vec![], false));
    }

    #[test]
    fn a_pattern_recovers_from_all_topics_that_it_matches_or_from_none() {
        use crate::matcher::Kind;
        let hub = Hub::new(Settings { history_messages: 2, topics_max: 3, ..Settings::default() });
        let matching = |text: &str, since| {
            let matcher = Matcher::new(Kind::UrlPattern, text, &hub.settings().url).unwrap();
            let wanted = Wanted::Matching(vec![matcher]);
            let found = hub.0.enter(&wanted, since).unwrap();
            hub.0.leave(&wanted);
            let texts: Vec<_> = found.missed.iter().map(|one| one.message.data.clone()).collect();
            (texts, found.recovered)
        };
        let first = say(&hub, "/a/1", "1");
        hub.publish_to(&["/a/2", "/a/1"], Message { data: "2".to_owned(), ..Message::default() }).unwrap();
        say(&hub, "/b", "b");
        assert_eq!(matching("/a/:id", Some(Since::Id(first))), whole(&["2"]));
        assert_eq!(matching("/a/:id", Some(Since::Earliest)), whole(&["1", "2"]));
        assert_eq!(matching("*", Some(Since::Id(first))), whole(&["2", "b"]));
        assert_eq!(matching("/a/:id", None), whole(&[]));
        say(&hub, "/a/1", "3");
        say(&hub, "/a/1", "4");
        assert_eq!(matching("/a/:id", Some(Since::Id(first))), (vec![], false));
        assert_eq!(matching("/b", Some(Since::Id(first))), whole(&["b"]));
    }

    #[test]
    fn an_id_is_read_as_it_is_written() {
        let id = Id { epoch: 0x12ab, offset: 77 };
        assert_eq!(id.to_string(), "12ab-77");
        assert_eq!("12ab-77".parse(), Ok(id));
        for wrong in ["", "-", "12ab", "12ab-", "+1-7", "1-+7", "1-a", "1-2-3"] {
            assert_eq!(wrong.parse::<Id>(), Err(()), "{wrong}");
        }
    }

    #[test]
    fn events_of_subscriptions_leave_half_of_the_topics_to_publishers() {
        let hub = Hub::new(Settings { topics_max: 10, ..Settings::default() });
        let before = say(&hub, "a", "first");
        for number in 0..100 {
            let message = Message { kind: Some("mercure".to_owned()), private: true, ..Message::default() };
            assert!(hub.publish(&format!("/subscriptions/{number}"), message).is_some(), "{number}");
        }
        assert_eq!(hub.topics(), 5);
        for name in ["b", "c", "d", "e", "f"] {
            say(&hub, name, "x");
        }
        // What was not kept cannot be recovered by a pattern, and a topic of its own loses nothing.
        let all = Matcher::new(crate::matcher::Kind::Exact, "*", &hub.settings().url).unwrap();
        let found = hub.0.enter(&Wanted::Matching(vec![all]), Some(Since::Id(before))).unwrap();
        assert!(!found.recovered);
        assert_eq!(enter(&hub, &["a"], Some(Since::Id(before))), whole(&[]));
    }

    #[test]
    fn a_type_with_a_line_end_is_refused() {
        let hub = hub(3);
        for kind in ["a\ndata: forged", "a\r", "\0"] {
            let message = Message { kind: Some(kind.to_owned()), ..Message::default() };
            assert_eq!(hub.publish_to(&["a"], message), Err(PublishError::BadType), "{kind:?}");
        }
    }
}
