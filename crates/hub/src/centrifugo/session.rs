//! A client's connection: commands in lines of JSON, their replies, and pushes.
//!
//! Invariant: between joining a channel and queueing the reply that says so nothing is waited for, so the
//! reply goes out before the channel's messages.

use super::claims::{self, Person, Refused};
use super::codes::{self, Disconnect, Error};
use super::{epoch, is_channel, is_private, joins, keeper, listing, place};
use crate::endpoint::Endpoint;
use crate::local::{Member, Membership, attend, join};
use crate::topics::{Hub, Id, Message, Publication, PublishError, Since, Wanted};
use crate::{plain, presence};
use ringroad_http::ws::{CloseCode, SendError, WebSocket};
use ringroad_http::{Request, Response};
use serde_json::{Map, Value, json};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Most channels of a connection.
const CHANNELS_MAX: usize = 128;

/// Most commands in a frame.
const COMMANDS_MAX: usize = 1024;

/// Replies that wait for those of the commands behind them.
const OUT_BYTES: usize = 64 * 1024;

/// Most that the HTTP API may want of a client at once.
const ACTIONS_MAX: usize = 64;

/// A subscription with a token that has ended lives so much longer, so that the client can present another.
const GRACE: Duration = Duration::from_secs(25);

/// Answers a request to connect.
pub(super) fn connect(endpoint: &Endpoint, request: &Request) -> Response {
    let endpoint = endpoint.clone();
    // The protocol has pings of its own.
    let options = plain::options(endpoint.hub()).origins(endpoint.place().origins.clone()).ping(None);
    options.accept(request, async move |socket| Session::new(endpoint, &socket).run(socket).await)
}

/// What a session does when its task runs next.
pub(super) enum Action {
    Disconnect(u16, String),
    Unsubscribe(String),
    Subscribe(String),
    Refresh { is_expired: bool, until: Option<u64> },
    LookAtSubscriptions,
}

/// A connection as a member of all its channels.
pub(super) struct Client {
    pub(super) exit: plain::Exit,
    pub(super) hub: Hub,
    pub(super) id: Box<str>,
    pub(super) person: RefCell<Person>,
    pub(super) is_connected: Cell<bool>,
    /// The second, of its worker's keeper, in which it is pinged next.
    pub(super) ping_at: Cell<u64>,
    /// Something came from it since it was pinged last.
    pub(super) is_heard: Cell<bool>,
    pub(super) has_subscriptions_that_end: Cell<bool>,
    /// Channels of which it may read private messages by a token for them, or because they name its user.
    private: RefCell<HashSet<String>>,
    actions: RefCell<Vec<Action>>,
}

impl Client {
    /// Lets the session do this.
    pub(super) fn ask(&self, action: Action) {
        let mut actions = self.actions.borrow_mut();
        if actions.len() < ACTIONS_MAX {
            actions.push(action);
        }
        drop(actions);
        self.exit.wake();
    }

    pub(super) fn end(&self, Disconnect(code, reason): Disconnect) {
        self.exit.close_now(code, reason);
    }

    /// Returns what others are told of it.
    fn info(&self) -> Map<String, Value> {
        let person = self.person.borrow();
        let mut info = Map::new();
        info.insert("user".to_owned(), person.user.as_str().into());
        info.insert("client".to_owned(), (*self.id).into());
        if let Some(known) = &person.info {
            info.insert("conn_info".to_owned(), known.clone());
        }
        info
    }

    fn may_read(&self, publication: &Publication, channel: &str) -> bool {
        !publication.message.private
            || self.private.borrow().contains(channel)
            || self.person.borrow().may_read(&self.hub, channel)
    }
}

impl Member for Client {
    fn take(&self, publication: &Arc<Publication>, topic: &str) -> bool {
        let kind = publication.message.kind.as_deref().unwrap_or_default();
        // Another protocol's own events.
        if kind.starts_with(crate::pusher::INTERNAL) || !self.may_read(publication, topic) {
            return false;
        }
        match self.exit.sender.send_frame(&publication.centrifugo(topic)) {
            Ok(()) => true,
            Err(SendError::Full) => {
                self.hub.0.counts.closed_slow.fetch_add(1, Ordering::Relaxed);
                self.end(codes::SLOW);
                false
            }
            Err(SendError::Closed) => false,
        }
    }

    fn lost(&self) {
        self.end(codes::INSUFFICIENT_STATE);
    }

    fn ended(&self) {
        self.end(codes::SHUTDOWN);
    }
}

/// A channel of a connection.
struct Joined {
    _membership: Membership,
    /// Leaves the list of the channel's clients when this is dropped.
    present: Option<Present>,
    until: Option<SystemTime>,
    info: Map<String, Value>,
}

/// A client in the list of a channel, until this is dropped.
struct Present {
    hub: Hub,
    channel: String,
    id: Box<str>,
    /// Others hear that it goes.
    leave: Option<String>,
    is_listed: bool,
}

impl Drop for Present {
    fn drop(&mut self) {
        if self.is_listed {
            presence::leave(&self.hub, &listing(&self.channel), &self.id);
        }
        if let Some(info) = &self.leave {
            tell(&self.hub, &self.channel, "leave", info);
        }
    }
}

/// Tells those that want to know that a client comes to a channel or goes.
fn tell(hub: &Hub, channel: &str, what: &str, info: &str) {
    let data = format!("\"{what}\":{{\"info\":{info}}}");
    let message = Message { data, transient: true, ..Message::default() };
    hub.tell(&joins(channel), message);
}

enum Next {
    Actions(Vec<Action>),
    Text(Option<ringroad_http::ws::Message>),
}

struct Session {
    endpoint: Endpoint,
    client: Rc<Client>,
    channels: HashMap<String, Joined>,
    /// Replies that go out together.
    out: String,
}

/// How a command ends without a result.
enum Failure {
    Error(Error),
    Disconnect(Disconnect),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Error(error)
    }
}

impl From<Disconnect> for Failure {
    fn from(disconnect: Disconnect) -> Failure {
        Failure::Disconnect(disconnect)
    }
}

fn text<'v>(of: &'v Map<String, Value>, name: &str) -> &'v str {
    of.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn channel(of: &Map<String, Value>) -> Result<&str, Error> {
    Some(text(of, "channel")).filter(|name| is_channel(name)).ok_or(codes::BAD_REQUEST)
}

/// Adds to a result when its token ends.
fn put_end(result: &mut Map<String, Value>, until: Option<SystemTime>) {
    if let Some(until) = until {
        let left = until.duration_since(SystemTime::now()).unwrap_or_default().as_secs();
        result.insert("expires".to_owned(), true.into());
        result.insert("ttl".to_owned(), left.max(1).into());
    }
}

impl Session {
    fn new(endpoint: Endpoint, socket: &WebSocket) -> Session {
        let hub = endpoint.hub().clone();
        let urn = crate::subscriptions::random_urn();
        let client = Rc::new(Client {
            exit: plain::Exit::new(socket),
            hub,
            id: urn.strip_prefix("urn:uuid:").unwrap_or(&urn).into(),
            person: RefCell::default(),
            is_connected: Cell::new(false),
            ping_at: Cell::new(0),
            is_heard: Cell::new(true),
            has_subscriptions_that_end: Cell::new(false),
            private: RefCell::default(),
            actions: RefCell::default(),
        });
        attend(&client.hub);
        keeper::keep(&client);
        Session { endpoint, client, channels: HashMap::new(), out: String::new() }
    }

    async fn run(mut self, mut socket: WebSocket) {
        loop {
            let client = Rc::clone(&self.client);
            let next = poll_fn(|context| {
                let actions = std::mem::take(&mut *client.actions.borrow_mut());
                if !actions.is_empty() {
                    return Poll::Ready(Next::Actions(actions));
                }
                plain::poll_said(&mut socket, &client.exit, context).map(Next::Text)
            })
            .await;
            let ends = match next {
                Next::Text(None) => {
                    // With its channels the others are told that it has left.
                    drop((self, client));
                    return plain::heard_out(socket).await;
                }
                Next::Text(Some(message)) => {
                    self.client.is_heard.set(true);
                    match message.as_text() {
                        Some(text) => self.take_all(text, &mut socket).await.err(),
                        None => Some(codes::BAD_COMMAND),
                    }
                }
                Next::Actions(actions) => actions.into_iter().find_map(|action| self.act(action)),
            };
            let sent = self.flush(&mut socket).await;
            if let Some(Disconnect(code, reason)) = ends {
                client.exit.sender.close(code, reason);
                drop((self, client));
                return plain::heard_out(socket).await;
            }
            if sent.is_err() {
                return;
            }
        }
    }

    /// Sends the replies that wait. Queued at once; then it waits for a client that is slow.
    async fn flush(&mut self, socket: &mut WebSocket) -> Result<(), ()> {
        if self.out.is_empty() {
            return Ok(());
        }
        socket.send(std::mem::take(&mut self.out)).await.map_err(drop)
    }

    fn push_line(&mut self, line: &str) {
        if !self.out.is_empty() {
            self.out.push('\n');
        }
        self.out.push_str(line);
    }

    fn push(&mut self, channel: &str, what: &str, of: &Value) {
        let mut push = Map::new();
        push.insert("channel".to_owned(), channel.into());
        push.insert(what.to_owned(), of.clone());
        self.push_line(&json!({"push": push}).to_string());
    }

    /// Takes the commands of a frame.
    async fn take_all(&mut self, text: &str, socket: &mut WebSocket) -> Result<(), Disconnect> {
        let lines = text.split('\n').filter(|line| !line.trim().is_empty());
        for (at, line) in lines.enumerate() {
            if at >= COMMANDS_MAX {
                return Err(codes::BAD_COMMAND);
            }
            let Ok(Value::Object(command)) = serde_json::from_str::<Value>(line) else {
                return Err(codes::BAD_COMMAND);
            };
            // The answer to a ping.
            if command.is_empty() {
                continue;
            }
            let id = command.get("id").and_then(Value::as_u64).unwrap_or(0);
            let named = command.iter().find(|(name, _)| *name != "id");
            let (name, asked) = match named {
                Some((name, Value::Object(asked))) => (name.as_str(), asked),
                Some((name, Value::Null)) => (name.as_str(), &Map::new()),
                _ => return Err(codes::BAD_COMMAND),
            };
            if id == 0 && name != "send" {
                return Err(codes::BAD_COMMAND);
            }
            if name == "connect" {
                if self.client.is_connected.get() {
                    return Err(codes::BAD_COMMAND);
                }
            } else if !self.client.is_connected.get() {
                return Err(codes::BAD_COMMAND);
            }
            let places = self.places(name, asked);
            if name == "publish" || !places.is_empty() {
                // It may be waited for, and what is queued goes out first.
                let _ = self.flush(socket).await;
            }
            let mut reached = Ok(());
            for place in places {
                reached = self.client.hub.reach(Some(Since::Id(place))).await;
                if reached.is_err() {
                    break;
                }
            }
            if reached.is_err() {
                // It may be tried again.
                self.push_line(&json!({"id": id, "error": codes::INTERNAL.json()}).to_string());
                continue;
            }
            match self.take(name, asked).await {
                Ok(result) => {
                    let mut reply = Map::new();
                    reply.insert("id".to_owned(), id.into());
                    reply.insert(name.to_owned(), result);
                    self.push_line(&Value::Object(reply).to_string());
                }
                Err(Failure::Error(error)) => {
                    self.push_line(&json!({"id": id, "error": error.json()}).to_string());
                }
                Err(Failure::Disconnect(disconnect)) => return Err(disconnect),
            }
            // Histories are long, and a frame may ask for a thousand. Queued before anything is waited for.
            if self.out.len() > OUT_BYTES && self.flush(socket).await.is_err() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Returns the places from which a command recovers, where it may have to wait for them.
    fn places(&self, name: &str, asked: &Map<String, Value>) -> Vec<Id> {
        let recovers = |asked: &&Map<String, Value>| asked.get("recover") == Some(&Value::Bool(true));
        let hub = &self.client.hub;
        let of = |asked: &Map<String, Value>| place(hub, &Value::Object(asked.clone()));
        if hub.0.shared.is_none() {
            return Vec::new();
        }
        match name {
            "subscribe" => Some(asked).filter(recovers).map(of).into_iter().collect(),
            "connect" => {
                let subs = asked.get("subs").and_then(Value::as_object).into_iter().flatten();
                subs.filter_map(|(_, sub)| sub.as_object())
                    .filter(recovers)
                    .map(of)
                    .take(CHANNELS_MAX)
                    .collect()
            }
            _ => Vec::new(),
        }
    }

    async fn take(&mut self, name: &str, asked: &Map<String, Value>) -> Result<Value, Failure> {
        let hub = self.client.hub.clone();
        match name {
            "connect" => self.connect(asked),
            "subscribe" => {
                let channel = channel(asked)?;
                Ok(Value::Object(self.subscribe(channel, asked, false)?))
            }
            "unsubscribe" => {
                self.leave(channel(asked)?);
                Ok(json!({}))
            }
            "publish" => {
                let channel = channel(asked)?;
                self.publish(channel, asked).await?;
                Ok(json!({}))
            }
            "presence" | "presence_stats" => {
                let channel = channel(asked)?;
                if !self.endpoint.place().channels.presence {
                    return Err(codes::NOT_AVAILABLE.into());
                }
                self.joined(channel)?;
                Ok(if name == "presence" {
                    super::presence(&hub, channel)
                } else {
                    super::presence_stats(&hub, channel)
                })
            }
            "history" => {
                let channel = channel(asked)?;
                self.joined(channel)?;
                Ok(self.history(channel, asked)?)
            }
            "ping" => Ok(json!({})),
            "refresh" => Ok(self.refresh(text(asked, "token"))?),
            "sub_refresh" => {
                let channel = channel(asked)?.to_owned();
                let (until, _) = self.by_token(&channel, text(asked, "token"))?;
                let joined = self.channels.get_mut(&channel).ok_or(codes::PERMISSION_DENIED)?;
                joined.until = until;
                self.client.has_subscriptions_that_end.set(until.is_some());
                let mut result = Map::new();
                put_end(&mut result, until);
                Ok(Value::Object(result))
            }
            "rpc" => Err(codes::METHOD_NOT_FOUND.into()),
            "send" => Err(codes::NO_HANDLER.into()),
            _ => Err(codes::BAD_COMMAND.into()),
        }
    }

    fn connect(&mut self, asked: &Map<String, Value>) -> Result<Value, Failure> {
        let hub = self.client.hub.clone();
        let person =
            Person::of_token(&hub, self.endpoint.place(), asked.get("token").and_then(Value::as_str))
                .map_err(|why| match why {
                    Refused::Expired => Failure::Error(codes::TOKEN_EXPIRED),
                    Refused::Invalid => Failure::Disconnect(codes::INVALID_TOKEN),
                })?;
        let (channels, until) = (person.channels.clone(), person.until);
        *self.client.person.borrow_mut() = person;
        self.client.is_connected.set(true);
        let places = asked.get("subs").and_then(Value::as_object);
        let mut subs = Map::new();
        for channel in channels.iter().filter(|channel| is_channel(channel)) {
            let nothing = Map::new();
            let from = places.and_then(|places| places.get(channel)?.as_object()).unwrap_or(&nothing);
            match self.subscribe(channel, from, true) {
                Ok(result) => drop(subs.insert(channel.clone(), Value::Object(result))),
                // Named twice.
                Err(codes::ALREADY_SUBSCRIBED) => {}
                Err(why) => return Err(why.into()),
            }
        }
        let ping = hub.settings().heartbeat.as_secs().max(1);
        let mut result = json!({
            "client": self.client.id, "version": concat!("ringroad ", env!("CARGO_PKG_VERSION")),
            "ping": ping, "pong": true,
        });
        if let Some(result) = result.as_object_mut() {
            put_end(result, until);
            if !subs.is_empty() {
                result.insert("subs".to_owned(), Value::Object(subs));
            }
        }
        Ok(result)
    }

    fn joined(&self, channel: &str) -> Result<&Joined, Error> {
        self.channels.get(channel).ok_or(codes::PERMISSION_DENIED)
    }

    /// Checks the token of a subscription: when it ends, and what it says of the client.
    fn by_token(&self, channel: &str, token: &str) -> Result<(Option<SystemTime>, Option<Value>), Error> {
        let credentials = self.endpoint.place().subscribe.as_ref().ok_or(codes::PERMISSION_DENIED)?;
        let claims = claims::claims(&**credentials, token).map_err(|why| match why {
            Refused::Expired => codes::TOKEN_EXPIRED,
            Refused::Invalid => codes::PERMISSION_DENIED,
        })?;
        // A key opens every channel.
        let Some(claims) = claims else { return Ok((None, None)) };
        let person = self.client.person.borrow();
        let is_ours = claims.text("channel") == Some(channel)
            && claims.text("sub").unwrap_or_default() == person.user
            && claims.text("client").is_none_or(|id| *id == *self.client.id);
        if !is_ours {
            return Err(codes::PERMISSION_DENIED);
        }
        Ok((claims.until(), claims.get("info").cloned()))
    }

    /// Subscribes to a channel. `by_server`: the connection's token or the HTTP API says so.
    fn subscribe(
        &mut self,
        channel: &str,
        asked: &Map<String, Value>,
        by_server: bool,
    ) -> Result<Map<String, Value>, Error> {
        let client = Rc::clone(&self.client);
        let hub = &client.hub;
        if self.channels.contains_key(channel) {
            return Err(codes::ALREADY_SUBSCRIBED);
        }
        if self.channels.len() >= CHANNELS_MAX {
            return Err(codes::LIMIT_EXCEEDED);
        }
        let token = text(asked, "token");
        let (mut until, mut said, mut reads) = (None, None, by_server);
        if !by_server && !token.is_empty() {
            (until, said) = self.by_token(channel, token)?;
            reads = true;
        } else if !by_server && is_private(channel) {
            let person = client.person.borrow();
            reads = person.is_named(channel);
            if !reads && !person.may_read(hub, channel) {
                return Err(codes::PERMISSION_DENIED);
            }
        }
        let recovers = asked.get("recover").and_then(Value::as_bool).unwrap_or(false);
        let from: Id = place(hub, &Value::Object(asked.clone()));
        let offers = self.endpoint.place().channels;
        let hears = offers.join_leave && asked.get("join_leave").and_then(Value::as_bool).unwrap_or(false);
        let mut names = vec![channel.to_owned()];
        names.extend(hears.then(|| joins(channel)));
        let after = recovers.then_some(Since::Id(from));
        let (membership, found) =
            join(hub, Wanted::Names(names), after, &client).ok_or(codes::LIMIT_EXCEEDED)?;
        // Its position is of use to no one else if it has to be whole.
        let flags = asked.get("flag").and_then(Value::as_u64).unwrap_or(0);
        if recovers && !found.recovered && flags & 2 != 0 {
            return Err(codes::UNRECOVERABLE);
        }
        if reads {
            client.private.borrow_mut().insert(channel.to_owned());
        }
        let missed: Vec<_> = found.missed.iter().filter(|one| client.may_read(one, channel)).collect();
        let mut result = Map::new();
        let offset = if missed.is_empty() { found.last.offset } else { from.offset };
        for name in ["recoverable", "positioned"] {
            result.insert(name.to_owned(), true.into());
        }
        result.insert("epoch".to_owned(), epoch(found.last).into());
        result.insert("offset".to_owned(), offset.into());
        if recovers {
            result.insert("was_recovering".to_owned(), true.into());
            result.insert("recovered".to_owned(), found.recovered.into());
            if !missed.is_empty() {
                hub.0.counts.delivered.fetch_add(missed.len() as u64, Ordering::Relaxed);
                let told = super::publications_json(missed.iter().map(|one| &***one));
                result.insert("publications".to_owned(), told);
            }
        }
        put_end(&mut result, until);
        if until.is_some() {
            client.has_subscriptions_that_end.set(true);
        }
        let mut info = client.info();
        if let Some(said) = said {
            info.insert("chan_info".to_owned(), said);
        }
        let present = (offers.presence || offers.join_leave).then(|| {
            if offers.presence {
                presence::enter(hub, &listing(channel), &client.id, Value::Object(info.clone()));
            }
            let told = Value::Object(info.clone()).to_string();
            if offers.join_leave {
                tell(hub, channel, "join", &told);
            }
            Present {
                hub: hub.clone(),
                channel: channel.to_owned(),
                id: client.id.clone(),
                leave: offers.join_leave.then_some(told),
                is_listed: offers.presence,
            }
        });
        self.channels.insert(channel.to_owned(), Joined { _membership: membership, present, until, info });
        Ok(result)
    }

    fn leave(&mut self, channel: &str) -> bool {
        self.client.private.borrow_mut().remove(channel);
        let joined = self.channels.remove(channel);
        joined.is_some_and(|joined| {
            drop(joined.present);
            true
        })
    }

    fn history(&self, channel: &str, asked: &Map<String, Value>) -> Result<Value, Error> {
        let client = &self.client;
        let (kept, _) = client.hub.history_of(channel);
        if kept.iter().any(|one| !client.may_read(one, channel)) {
            return Err(codes::PERMISSION_DENIED);
        }
        super::history(&client.hub, channel, asked)
    }

    async fn publish(&self, channel: &str, asked: &Map<String, Value>) -> Result<(), Error> {
        let client = &self.client;
        let data = asked.get("data").ok_or(codes::BAD_REQUEST)?;
        if !client.person.borrow().may_publish(&client.hub, channel) {
            return Err(codes::PERMISSION_DENIED);
        }
        let info = match self.channels.get(channel) {
            Some(joined) => joined.info.clone(),
            None => client.info(),
        };
        let message = Message {
            data: data.to_string(),
            private: is_private(channel),
            info: Some(Box::new(Value::Object(info))),
            ..Message::default()
        };
        client.hub.send(&[channel], message).await.map(drop).map_err(refused)
    }

    fn refresh(&self, token: &str) -> Result<Value, Failure> {
        let client = &self.client;
        let person =
            Person::of_token(&client.hub, self.endpoint.place(), Some(token)).map_err(|why| match why {
                Refused::Expired => Failure::Error(codes::TOKEN_EXPIRED),
                Refused::Invalid => Failure::Disconnect(codes::INVALID_TOKEN),
            })?;
        if token.is_empty() || person.user != client.person.borrow().user {
            return Err(codes::INVALID_TOKEN.into());
        }
        let until = person.until;
        *client.person.borrow_mut() = person;
        let mut result = Map::new();
        result.insert("client".to_owned(), (*client.id).into());
        put_end(&mut result, until);
        Ok(Value::Object(result))
    }

    /// Does what the keeper or the HTTP API wants. `Some`: the connection ends.
    fn act(&mut self, action: Action) -> Option<Disconnect> {
        match action {
            Action::Disconnect(code, reason) => {
                let is_sendable = (3000..5000).contains(&code) && reason.len() <= 100;
                let code = CloseCode::new(if is_sendable { code } else { 3503 });
                self.client.exit.sender.close(code, if is_sendable { &reason } else { "force disconnect" });
                None
            }
            Action::Unsubscribe(channel) => {
                self.unsubscribe(&channel, codes::UNSUBSCRIBED);
                None
            }
            Action::Subscribe(channel) => {
                if let Ok(result) = self.subscribe(&channel, &Map::new(), true) {
                    self.push(&channel, "subscribe", &Value::Object(result));
                }
                None
            }
            Action::Refresh { is_expired: true, .. } => Some(codes::CONNECTION_EXPIRED),
            Action::Refresh { until, .. } => {
                let until = until.map(|at| UNIX_EPOCH + Duration::from_secs(at.min(u64::from(u32::MAX))));
                self.client.person.borrow_mut().until = until;
                let mut told = Map::new();
                put_end(&mut told, until);
                self.push_line(&json!({"push": {"refresh": told}}).to_string());
                None
            }
            Action::LookAtSubscriptions => {
                let now = SystemTime::now();
                let has_ended = |joined: &Joined| joined.until.is_some_and(|until| until + GRACE < now);
                let ended = self.channels.iter().filter(|(_, joined)| has_ended(joined));
                let ended: Vec<String> = ended.map(|(channel, _)| channel.clone()).collect();
                for channel in ended {
                    self.unsubscribe(&channel, codes::SUBSCRIPTION_EXPIRED);
                }
                let more = self.channels.values().any(|joined| joined.until.is_some());
                self.client.has_subscriptions_that_end.set(more);
                None
            }
        }
    }

    fn unsubscribe(&mut self, channel: &str, (code, reason): (u16, &str)) {
        if self.leave(channel) {
            self.push(channel, "unsubscribe", &json!({"code": code, "reason": reason}));
        }
    }
}

/// Returns why a message was not published, as an error of the protocol.
pub(super) fn refused(why: PublishError) -> Error {
    match why {
        PublishError::TooLong | PublishError::TooManyTopics => codes::LIMIT_EXCEEDED,
        PublishError::Unavailable => codes::INTERNAL,
        PublishError::BadType => codes::BAD_REQUEST,
    }
}
