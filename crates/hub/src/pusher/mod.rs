//! Pusher, protocol 7: clients such as pusher-js and Laravel Echo, and the signed HTTP API of its libraries.
//!
//! A channel is a topic of the hub. WebSocket clients connect to `…/app/KEY`; servers publish to
//! `…/apps/ID/events`. Messages of `private-` and `presence-` channels are private in the hub, so members by
//! other protocols need the right to read them. The protocol has no recovery: after a disconnect a client
//! misses messages, except the last one of a `cache-` channel.
//!
//! [`session`] is a client's connection, [`api`] the HTTP API, [`sign`] the signatures of both.

mod api;
mod session;
mod sign;

use crate::endpoint::refusal;
use crate::topics::{Hub, Publication};
use ringroad_http::ws::{Frame, Origins};
use ringroad_http::{Request, Response, Status};
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;

/// An application: its id, key and secret.
#[derive(Clone, PartialEq, Eq)]
pub struct App {
    /// In the path of the HTTP API.
    pub id: String,
    /// In the path of clients.
    pub key: String,
    /// Signs requests of the HTTP API and subscriptions to private channels.
    pub secret: String,
    /// Whether clients may send `client-` events to the others of a private channel.
    pub client_events: bool,
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "App({}, {})", self.id, self.key)
    }
}

/// The target of a path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// A client's connection, with its key.
    Connect(String),
    /// A request of the HTTP API: the application, and the rest of the path.
    Api(String, Vec<String>),
}

/// Parses a path, whatever its prefix is. `None` if it is not one of Pusher's.
pub(crate) fn asked(path: &str) -> Option<Asked> {
    let mut parts = path.split('/').map(crate::subscriptions::decoded);
    loop {
        match parts.next()?.as_str() {
            "app" => {
                let key = parts.next()?;
                return parts.next().is_none().then_some(Asked::Connect(key));
            }
            "apps" => return Some(Asked::Api(parts.next()?, parts.collect())),
            _ => {}
        }
    }
}

/// Answers a request.
pub(crate) async fn answer(
    hub: &Hub,
    app: &Arc<App>,
    asked: Asked,
    request: &mut Request,
    origins: &Origins,
) -> Response {
    match asked {
        Asked::Connect(key) => session::connect(hub, app, &key, request, origins),
        Asked::Api(id, _) if id != app.id => {
            refusal(Status::NOT_FOUND, "hub: there is no application of this id")
        }
        Asked::Api(_, rest) => api::answer(hub, app, &rest, request).await.unwrap_or_else(|refused| refused),
    }
}

/// Prefix of events of the protocol itself, which are passed on unchanged.
pub(crate) const INTERNAL: &str = "pusher_internal:";

/// The event of messages without a type of their own.
const MESSAGE: &str = "message";

/// Returns a message as an event. The protocol encodes its data as a string within the JSON.
pub(crate) fn frame(publication: &Publication, channel: &str) -> Frame {
    let message = &publication.message;
    let event = message.kind.as_deref().unwrap_or(MESSAGE);
    let mut text = json!({"event": event, "channel": channel, "data": message.data});
    if let (Some(user), Some(object)) = (&message.user, text.as_object_mut()) {
        object.insert("user_id".to_owned(), Value::from(&**user));
    }
    // Clients send structures and servers send strings. Each arrives as it was sent.
    if event.starts_with(CLIENT)
        && let Some(data) = text.get_mut("data")
        && let Ok(structure) = serde_json::from_str(&message.data)
    {
        *data = structure;
    }
    Frame::text(&text.to_string())
}

/// Prefix of events from clients.
const CLIENT: &str = "client-";

/// Access rule of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Public,
    Private,
    Presence,
    /// Messages from servers to one user, for connections that have signed in as that user.
    User,
}

/// Prefix of a user's channel; the user's id follows.
const TO_USER: &str = "#server-to-user-";

/// Prefix of topics with members that have signed in as a user; the user's id follows. Clients cannot
/// subscribe to them.
const SIGNED_IN: &str = "#signed-in-";

/// The event that closes the members of such a topic.
const TERMINATE: &str = "pusher_internal:terminate";

fn kind(channel: &str) -> Kind {
    if channel.starts_with("private-") {
        Kind::Private
    } else if channel.starts_with("presence-") {
        Kind::Presence
    } else if channel.starts_with(TO_USER) || channel.starts_with(SIGNED_IN) {
        Kind::User
    } else {
        Kind::Public
    }
}

/// Returns whether new members get the last message.
fn keeps_last(channel: &str) -> bool {
    let name = channel.strip_prefix("private-").or_else(|| channel.strip_prefix("presence-"));
    let name = name.unwrap_or(channel);
    name.strip_prefix("encrypted-").unwrap_or(name).starts_with("cache-")
}

/// Returns whether this is a valid channel name: at most 200 of these characters.
fn is_channel(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_=@,.;#".contains(&byte);
    (1..=200).contains(&name.len()) && name.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_to_a_connection_or_to_the_api_wherever_it_begins() {
        assert_eq!(asked("/app/k"), Some(Asked::Connect("k".to_owned())));
        assert_eq!(asked("/push/app/k"), Some(Asked::Connect("k".to_owned())));
        let api =
            |rest: &[&str]| Asked::Api("1".to_owned(), rest.iter().map(|&one| one.to_owned()).collect());
        assert_eq!(asked("/apps/1/events"), Some(api(&["events"])));
        assert_eq!(
            asked("/x/apps/1/channels/presence-a/users"),
            Some(api(&["channels", "presence-a", "users"]))
        );
        for no in ["/", "/app", "/apps", "/app/k/more", "/appsx/1"] {
            assert_eq!(asked(no), None, "{no}");
        }
    }

    #[test]
    fn a_channel_is_known_by_its_name() {
        assert_eq!(kind("private-a"), Kind::Private);
        assert_eq!(kind("presence-a"), Kind::Presence);
        assert_eq!(kind("privately"), Kind::Public);
        assert!(
            keeps_last("cache-a")
                && keeps_last("private-encrypted-cache-a")
                && keeps_last("presence-cache-a")
        );
        assert!(!keeps_last("private-a") && !keeps_last("a-cache-b"));
        assert!(is_channel("a-b_c=d@e,f.g;h") && !is_channel("a b") && !is_channel("") && !is_channel("a/b"));
    }
}
