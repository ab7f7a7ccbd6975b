//! Centrifugo's client protocol in JSON over WebSocket, and its HTTP API: clients such as centrifuge-js.
//!
//! A channel is a topic of the hub. Clients connect to `…/connection/websocket`, servers post to
//! `…/api/METHOD`. A frame has one command or several, one a line; so have the answers. A client that comes
//! back names the epoch and the offset that it has of each channel, and gets what came since, whole or not at
//! all.
//!
//! [`session`] is a client's connection, [`claims`] what its token says, [`keeper`] pings and ends those that
//! are silent, [`api`] the HTTP API. [`codes`] are the protocol's numbers.

mod api;
mod claims;
mod codes;
mod keeper;
mod session;

use crate::Endpoint;
use crate::endpoint::{check_name, upgrade_required};
use crate::topics::{Hub, INTERNAL, Id, Message, Publication};
use ringroad_http::ws::Frame;
use ringroad_http::{Request, Response};
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

pub(crate) use keeper::{control, ended};

/// What channels offer to their clients beside messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channels {
    /// Clients are listed, for the others of the channel and for the HTTP API.
    pub presence: bool,
    /// Clients that ask for it hear of others that come and go.
    pub join_leave: bool,
}

/// What a path asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// A client's connection.
    Connect,
    /// A method of the HTTP API; without a name it is in the body.
    Api(Option<String>),
}

/// Reads a path, wherever it begins. `None`: it is none of Centrifugo's.
pub(crate) fn asked(path: &str) -> Option<Asked> {
    let mut parts = path.rsplit('/');
    match (parts.next()?, parts.next()) {
        ("websocket", Some("connection")) => Some(Asked::Connect),
        ("api", Some(_)) => Some(Asked::Api(None)),
        (method, Some("api")) => Some(Asked::Api(Some(method.to_owned()))),
        _ => None,
    }
}

/// Answers what is asked for.
pub(crate) async fn answer(endpoint: &Endpoint, asked: Asked, request: &mut Request) -> Response {
    match asked {
        Asked::Connect if request.head().upgrade() => session::connect(endpoint, request),
        Asked::Connect => upgrade_required("hub: a Centrifugo client connects by WebSocket"),
        Asked::Api(method) => api::answer(endpoint, method, request).await.unwrap_or_else(|refused| refused),
    }
}

/// The topic of what the HTTP API wants of clients.
pub(crate) const CONTROL: &str = "\u{1}control";

/// Topics that tell of clients that come to a channel and go begin so.
const JOINS: &str = "\u{1}joins:";

/// Returns the topic with a channel's clients that come and go.
fn joins(channel: &str) -> String {
    format!("{JOINS}{channel}")
}

/// Returns the topic by which the presence of a channel is kept: apart from that of other protocols.
fn listing(channel: &str) -> String {
    format!("{INTERNAL}clients:{channel}")
}

/// Takes a client off the list of a channel, since it went with its process.
pub(crate) fn gone(hub: &Hub, listing: &str, info: &Value) {
    if let Some(channel) = listing.strip_prefix(INTERNAL).and_then(|rest| rest.strip_prefix("clients:")) {
        let data = format!("\"leave\":{{\"info\":{info}}}");
        hub.tell_here(&joins(channel), Message { data, ..Message::default() });
    }
}

/// Most bytes of a channel's name.
const CHANNEL_BYTES_MAX: usize = 255;

/// Returns whether this may be the name of a channel.
fn is_channel(name: &str) -> bool {
    name.len() <= CHANNEL_BYTES_MAX && name != "*" && check_name(name).is_ok()
}

/// Returns whether only some clients may have messages of the channel: those with a token for it, or those
/// named behind `#`.
fn is_private(channel: &str) -> bool {
    channel.starts_with('$') || channel.contains('#')
}

/// Returns a message as a push. Its data goes out as it came if that is JSON, else as a text.
pub(crate) fn frame(publication: &Publication, topic: &str) -> Frame {
    let text = match topic.strip_prefix(JOINS) {
        Some(channel) => {
            // The data names what has happened.
            format!("{{\"push\":{{\"channel\":{},{}}}}}", quoted(channel), publication.message.data)
        }
        None => {
            let told = publication_json(publication);
            format!("{{\"push\":{{\"channel\":{},\"pub\":{told}}}}}", quoted(topic))
        }
    };
    Frame::text(&text)
}

/// Returns a message as the protocol has it.
fn publication_json(publication: &Publication) -> String {
    let message = &publication.message;
    let mut text = format!("{{\"data\":{}", data(&message.data));
    if !message.transient {
        text.push_str(&format!(",\"offset\":{}", publication.id.offset));
    }
    for (name, value) in [("info", &message.info), ("tags", &message.tags)] {
        if let Some(value) = value {
            text.push_str(&format!(",\"{name}\":{value}"));
        }
    }
    text.push('}');
    text
}

/// Returns messages as a list.
fn publications_json<'p>(all: impl Iterator<Item = &'p Publication>) -> Value {
    all.map(|one| serde_json::from_str(&publication_json(one)).unwrap_or(Value::Null)).collect()
}

/// Returns the data of a message as JSON in one line.
fn data(text: &str) -> String {
    if serde_json::from_str::<IgnoredAny>(text).is_err() {
        return quoted(text);
    }
    // In texts JSON has escapes for these, so here they only part tokens.
    text.replace(['\n', '\r'], " ")
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// Returns an epoch as the protocol has it.
fn epoch(id: Id) -> String {
    format!("{:x}", id.epoch)
}

/// Returns the place that a client names: with an unknown epoch it is a place of another life. Without an
/// epoch and an offset it is the beginning of this one.
fn place(hub: &Hub, of: &Value) -> Id {
    let offset = of.get("offset").and_then(Value::as_u64).unwrap_or(0);
    let epoch = match of.get("epoch").and_then(Value::as_str).unwrap_or_default() {
        "" => hub.last().epoch,
        text => u64::from_str_radix(text, 16).unwrap_or(0),
    };
    Id { epoch, offset }
}

/// Returns messages of a channel's history: `limit` none, some, or with a negative number all; `since` behind
/// this place; `reverse` from the last one on. `Err`: the place is of another life.
fn history(hub: &Hub, channel: &str, asked: &Map<String, Value>) -> Result<Value, codes::Error> {
    let (mut kept, last) = hub.history_of(channel);
    let limit = asked.get("limit").and_then(Value::as_i64).unwrap_or(0);
    let is_reverse = asked.get("reverse").and_then(Value::as_bool).unwrap_or(false);
    if is_reverse {
        kept.reverse();
    }
    if let Some(since) = asked.get("since").filter(|since| !since.is_null()) {
        let since = place(hub, since);
        if since.epoch != last.epoch {
            return Err(codes::UNRECOVERABLE);
        }
        let is_wanted = |offset: u64| {
            if is_reverse { offset < since.offset } else { offset > since.offset }
        };
        kept.retain(|one| is_wanted(one.id.offset));
    }
    kept.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    let publications = publications_json(kept.iter().map(|one| &**one));
    Ok(json!({"publications": publications, "epoch": epoch(last), "offset": last.offset}))
}

/// Returns the clients of a channel by their ids.
fn presence(hub: &Hub, channel: &str) -> Value {
    let clients: Map<String, Value> = crate::presence::users(hub, &listing(channel)).into_iter().collect();
    json!({"presence": clients})
}

/// Returns how many clients a channel has, and of how many users.
fn presence_stats(hub: &Hub, channel: &str) -> Value {
    let clients = crate::presence::users(hub, &listing(channel));
    let user = |info: &Value| info.get("user").and_then(Value::as_str).map(str::to_owned);
    let users: std::collections::HashSet<_> = clients.iter().filter_map(|(_, info)| user(info)).collect();
    json!({"num_clients": clients.len(), "num_users": users.len()})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_to_a_connection_or_to_the_api_wherever_it_begins() {
        assert_eq!(asked("/connection/websocket"), Some(Asked::Connect));
        assert_eq!(asked("/push/connection/websocket"), Some(Asked::Connect));
        assert_eq!(asked("/api"), Some(Asked::Api(None)));
        assert_eq!(asked("/x/api/publish"), Some(Asked::Api(Some("publish".to_owned()))));
        for no in ["/", "/websocket", "/connection", "/connection/sse", "/apis/publish", "/api/a/b"] {
            assert_eq!(asked(no), None, "{no}");
        }
    }

    #[test]
    fn data_is_one_line_of_json_whatever_was_published() {
        assert_eq!(data("{\"a\":\n [1, \"\\n\"]}\r\n"), "{\"a\":  [1, \"\\n\"]}  ");
        assert_eq!(data("sunny"), "\"sunny\"");
        assert_eq!(data("a\nb"), "\"a\\nb\"");
        assert_eq!(data("\"a\""), "\"a\"");
        assert_eq!(data(""), "\"\"");
    }
}
