//! A client's connection: subscriptions, events of clients, presence.

use super::sign::is_authorized;
use super::{App, CLIENT, INTERNAL, Kind, SIGNED_IN, TERMINATE, TO_USER, is_channel, keeps_last, kind};
use crate::endpoint::upgrade_required;
use crate::local::{Member, Membership, join};
use crate::plain::{Exit, heard_out, poll_said};
use crate::presence;
use crate::topics::{Hub, Message, Publication, PublishError, Wanted};
use ringroad_http::ws::{CloseCode, Frame, Origins, SendError, WebSocket};
use ringroad_http::{Request, Response};
use serde_json::{Map, Value, json};
use std::cell::Cell;
use std::collections::HashMap;
use std::future::poll_fn;
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

// Codes from 4000 to 4099: the client does not reconnect. From 4100: after a while. From 4200: at once.
const NO_APP: CloseCode = CloseCode::new(4001);
const OTHER_PROTOCOL: CloseCode = CloseCode::new(4007);
const UNAUTHORIZED: u16 = 4009;
const TOO_SLOW: CloseCode = CloseCode::new(4100);
const ENDED: CloseCode = CloseCode::new(4100);
const CLIENT_EVENT_REFUSED: u16 = 4301;

/// Seconds of silence after which a client sends a message, or is pinged.
const ACTIVITY_SECONDS: u64 = 120;

/// Maximum number of channels of a connection.
const CHANNELS_MAX: usize = 100;

/// Maximum number of events of a client per second.
const EVENTS_PER_SECOND: u32 = 10;

/// Answers a request to connect.
pub(super) fn connect(
    hub: &Hub,
    app: &Arc<App>,
    key: &str,
    request: &Request,
    origins: &Origins,
) -> Response {
    if !request.head().upgrade() {
        return upgrade_required("hub: a Pusher client connects by WebSocket");
    }
    let refused = if key != app.key {
        Some((NO_APP, "Application does not exist"))
    } else if request.query_value("protocol").is_some_and(|version| !matches!(&*version, "5" | "6" | "7")) {
        Some((OTHER_PROTOCOL, "Unsupported protocol version"))
    } else {
        None
    };
    let (hub, app) = (hub.clone(), Arc::clone(app));
    let options = crate::plain::options(&hub).origins(origins.clone());
    options.accept(request, async move |mut socket| match refused {
        Some((code, why)) => {
            let _ = socket.send(error(Some(code.get()), why)).await;
            let _ = socket.close(code, why).await;
        }
        None => Session::new(hub, app, &socket).run(socket).await,
    })
}

/// A connection as a member of all its channels.
struct Client {
    exit: Exit,
    hub: Hub,
    id: Box<str>,
}

impl Member for Client {
    fn take(&self, publication: &Arc<Publication>, channel: &str) -> bool {
        let message = &publication.message;
        if channel.starts_with(SIGNED_IN) {
            if message.kind.as_deref() == Some(TERMINATE) {
                self.exit.close_now(CloseCode::new(UNAUTHORIZED), "the user's connections were ended");
            }
            return false;
        }
        let is_own = message.except.as_deref() == Some(&*self.id);
        // Its signature made it a member of a private channel. It may not read private messages of others.
        if is_own || (message.private && kind(channel) == Kind::Public) {
            return false;
        }
        match self.exit.sender.send_frame(&publication.pusher(channel)) {
            Ok(()) => true,
            Err(SendError::Full) => {
                self.hub.0.counts.closed_slow.fetch_add(1, Ordering::Relaxed);
                self.exit.close_now(TOO_SLOW, "too slow: connect again");
                false
            }
            Err(SendError::Closed) => false,
        }
    }

    fn lost(&self) {
        // The protocol has no recovery: the client continues.
    }

    fn ended(&self) {
        self.exit.close_now(ENDED, "the hub has ended: connect again");
    }
}

/// A channel of a connection.
struct Joined {
    _membership: Membership,
    /// In a presence channel: leaves it when this is dropped.
    presence: Option<Present>,
}

/// A user in a presence channel, until this is dropped.
struct Present {
    hub: Hub,
    channel: String,
    user: String,
}

impl Drop for Present {
    fn drop(&mut self) {
        if presence::leave(&self.hub, &self.channel, &self.user) {
            let data = json!({"user_id": self.user});
            internal(&self.hub, &self.channel, "member_removed", &data, None);
        }
    }
}

/// Publishes an event of the protocol to the members of a channel.
fn internal(hub: &Hub, channel: &str, event: &str, data: &Value, except: Option<&str>) {
    let message = Message {
        data: data.to_string(),
        kind: Some(format!("{INTERNAL}{event}")),
        private: true,
        transient: true,
        except: except.map(Into::into),
        ..Message::default()
    };
    hub.tell(channel, message);
}

/// Returns an error event.
fn error(code: Option<u16>, why: &str) -> String {
    json!({"event": "pusher:error", "data": {"message": why, "code": code}}).to_string()
}

struct Session {
    hub: Hub,
    app: Arc<App>,
    client: Rc<Client>,
    channels: HashMap<String, Joined>,
    /// The user that it has signed in as, and its entry among that user's connections.
    user: Option<(Box<str>, Membership)>,
    /// The second in which events are counted, and how many there were.
    events: Cell<(Instant, u32)>,
}

impl Session {
    fn new(hub: Hub, app: Arc<App>, socket: &WebSocket) -> Session {
        let random = RandomState::new().hash_one(0_u8);
        // Two numbers with a point between them: libraries check for it.
        let id = format!("{}.{}", random >> 33, random & 0x7fff_ffff).into();
        let client = Rc::new(Client { exit: Exit::new(socket), hub: hub.clone(), id });
        let events = Cell::new((Instant::now(), 0));
        Session { hub, app, client, channels: HashMap::new(), user: None, events }
    }

    async fn run(mut self, mut socket: WebSocket) {
        let data = json!({"socket_id": self.client.id, "activity_timeout": ACTIVITY_SECONDS});
        let first = json!({"event": "pusher:connection_established", "data": data.to_string()});
        if socket.send(first.to_string()).await.is_err() {
            return;
        }
        let client = Rc::clone(&self.client);
        while let Some(message) = poll_fn(|context| poll_said(&mut socket, &client.exit, context)).await {
            let event = message.as_text().and_then(|text| serde_json::from_str::<Value>(text).ok());
            let Some(Value::Object(event)) = event else {
                self.say(error(None, "Invalid message: expected an event in JSON"));
                continue;
            };
            self.take(event).await;
        }
        // Dropping its channels notifies the others.
        drop(self);
        heard_out(socket).await;
    }

    /// Queues a text. A client that does not take it is closed as too slow.
    fn say(&self, text: String) {
        if self.client.exit.sender.send_frame(&Frame::text(&text)) == Err(SendError::Full) {
            self.client.exit.close_now(TOO_SLOW, "too slow: connect again");
        }
    }

    async fn take(&mut self, event: Map<String, Value>) {
        let name = event.get("event").and_then(Value::as_str).unwrap_or_default();
        let nothing = Value::Null;
        let data = event.get("data").unwrap_or(&nothing);
        // Some libraries send a structure as a string.
        let parsed = data.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
        let structure = parsed.as_ref().unwrap_or(data);
        match name {
            "pusher:ping" => self.say(json!({"event": "pusher:pong", "data": {}}).to_string()),
            "pusher:pong" => {}
            "pusher:subscribe" => self.subscribe(structure),
            "pusher:unsubscribe" => {
                let channel = structure.get("channel").and_then(Value::as_str);
                drop(channel.and_then(|channel| self.channels.remove(channel)));
            }
            "pusher:signin" => self.sign_in(structure),
            name if name.starts_with(CLIENT) => {
                let channel = event.get("channel").and_then(Value::as_str).unwrap_or_default();
                if let Err(why) = self.client_event(name, channel, data).await {
                    self.say(error(Some(CLIENT_EVENT_REFUSED), why));
                }
            }
            _ => self.say(error(None, "Unknown event")),
        }
    }

    fn subscribe(&mut self, data: &Value) {
        let channel = data.get("channel").and_then(Value::as_str).unwrap_or_default();
        let refuse = |status: u16, kind: &str, why: &str| {
            let data = json!({"type": kind, "error": why, "status": status});
            let event = json!({"event": "pusher:subscription_error", "channel": channel, "data": data});
            self.say(event.to_string());
        };
        if !is_channel(channel) {
            return refuse(
                400,
                "InvalidChannel",
                "expected a name of letters, digits and -_=@,.; at most 200",
            );
        }
        if self.channels.contains_key(channel) {
            return self.say(error(None, &format!("Already subscribed to channel {channel}")));
        }
        if self.channels.len() >= CHANNELS_MAX {
            return refuse(429, "LimitReached", "too many channels on one connection");
        }
        let described = data.get("channel_data").and_then(Value::as_str);
        let kind = kind(channel);
        if kind == Kind::User {
            let user = channel.strip_prefix(TO_USER);
            if user.is_none() || user != self.signed_in() {
                return refuse(401, "AuthError", "the connection has not signed in as this user");
            }
        } else if kind != Kind::Public {
            let mut text = format!("{}:{channel}", self.client.id);
            if let Some(described) = described {
                text.push(':');
                text.push_str(described);
            }
            let auth = data.get("auth").and_then(Value::as_str).unwrap_or_default();
            if !is_authorized(&self.app, &text, auth) {
                return refuse(401, "AuthError", "the signature is not valid");
            }
        }
        let user = if kind == Kind::Presence {
            let described = described.and_then(|text| serde_json::from_str::<Value>(text).ok());
            let id = described.as_ref().and_then(|data| match data.get("user_id")? {
                Value::String(id) => Some(id.clone()),
                Value::Number(id) => Some(id.to_string()),
                _ => None,
            });
            let Some(id) = id else {
                return refuse(400, "InvalidData", "channel_data: expected a user_id");
            };
            let info = described.as_ref().and_then(|data| data.get("user_info")).cloned();
            Some((id, info.unwrap_or(Value::Null)))
        } else {
            None
        };
        let wanted = Wanted::Names(vec![channel.to_owned()]);
        let Some((membership, _)) = join(&self.hub, wanted, None, &self.client) else {
            if self.hub.has_ended() {
                return self.client.ended();
            }
            return refuse(503, "LimitReached", "too many channels");
        };
        let presence = user.map(|(user, info)| {
            if presence::enter(&self.hub, channel, &user, info.clone()) {
                let data = json!({"user_id": user, "user_info": info});
                internal(&self.hub, channel, "member_added", &data, Some(&self.client.id));
            }
            Present { hub: self.hub.clone(), channel: channel.to_owned(), user }
        });
        let data = match kind {
            Kind::Presence => {
                let users = presence::users(&self.hub, channel);
                let ids: Vec<&str> = users.iter().map(|(id, _)| id.as_str()).collect();
                let hash: Map<String, Value> = users.iter().cloned().collect();
                json!({"presence": {"count": users.len(), "ids": ids, "hash": hash}})
            }
            Kind::Public | Kind::Private | Kind::User => json!({}),
        };
        // Later messages are queued after this one, because no await comes between.
        let event = format!("{INTERNAL}subscription_succeeded");
        self.say(json!({"event": event, "channel": channel, "data": data.to_string()}).to_string());
        if keeps_last(channel) {
            match self.hub.last_of(channel) {
                Some(last) => {
                    self.client.take(&last, channel);
                }
                None => self.say(json!({"event": "pusher:cache_miss", "channel": channel}).to_string()),
            }
        }
        self.channels.insert(channel.to_owned(), Joined { _membership: membership, presence });
    }

    /// Returns the user that it has signed in as.
    fn signed_in(&self) -> Option<&str> {
        self.user.as_ref().map(|(id, _)| &**id)
    }

    fn sign_in(&mut self, data: &Value) {
        let text = |key: &str| data.get(key).and_then(Value::as_str).unwrap_or_default();
        let user = text("user_data");
        let signed = format!("{}::user::{user}", self.client.id);
        let described: Option<Value> = serde_json::from_str(user).ok();
        let id = described.as_ref().and_then(|user| user.get("id")?.as_str()).filter(|id| !id.is_empty());
        // A connection has one user for its lifetime, and may have that user's channel already.
        let is_one = self.signed_in().is_none_or(|known| Some(known) == id);
        if let Some(id) = id.filter(|_| is_one)
            && is_authorized(&self.app, &signed, text("auth"))
        {
            let wanted = Wanted::Names(vec![format!("{SIGNED_IN}{id}")]);
            let Some((membership, _)) = join(&self.hub, wanted, None, &self.client) else {
                if self.hub.has_ended() {
                    return self.client.ended();
                }
                return self.say(error(None, "too many channels"));
            };
            self.user = Some((id.into(), membership));
            let data = json!({"user_data": user});
            self.say(json!({"event": "pusher:signin_success", "data": data.to_string()}).to_string());
        } else {
            self.say(error(Some(UNAUTHORIZED), "Connection not authorized within timeout"));
        }
    }

    async fn client_event(&self, name: &str, channel: &str, data: &Value) -> Result<(), &'static str> {
        if !self.app.client_events {
            return Err("Client events are not enabled for this application");
        }
        let joined =
            self.channels.get(channel).ok_or("Client event rejected: not subscribed to the channel")?;
        if !matches!(kind(channel), Kind::Private | Kind::Presence)
            || channel.starts_with("private-encrypted-")
        {
            return Err("Client event rejected: only supported on private and presence channels");
        }
        if name.len() > 200 {
            return Err("Client event rejected: its name is longer than 200 characters");
        }
        let (since, count) = self.events.get();
        let (since, count) =
            if since.elapsed() < Duration::from_secs(1) { (since, count + 1) } else { (Instant::now(), 1) };
        self.events.set((since, count));
        if count > EVENTS_PER_SECOND {
            return Err("Client event rejected: more than 10 in a second");
        }
        let message = Message {
            data: data.to_string(),
            kind: Some(name.to_owned()),
            private: true,
            transient: true,
            except: Some(self.client.id.clone()),
            user: joined.presence.as_ref().map(|present| present.user.as_str().into()),
            ..Message::default()
        };
        self.hub.send(&[channel], message).await.map(drop).map_err(|why| match why {
            PublishError::TooLong => "Client event rejected: it is too long",
            PublishError::BadType => "Client event rejected: its name has control characters",
            PublishError::TooManyTopics | PublishError::Unavailable => "Client event rejected: try again",
        })
    }
}
