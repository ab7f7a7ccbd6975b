//! The HTTP API for servers: publishing events, and queries about channels. Every request is signed.

use super::sign::{is_signed, md5};
use super::{App, INTERNAL, Kind, SIGNED_IN, TERMINATE, is_channel, kind};
use crate::endpoint::refusal;
use crate::presence;
use crate::topics::{Hub, Message, PublishError};
use ringroad_http::{Method, Request, Response, Status};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Maximum number of channels of one event, and of events of a batch.
const CHANNELS_MAX: usize = 100;
const BATCH_MAX: usize = 10;

const NO_CONTROLS: &str = "hub: event: name: expected no control characters";

/// Maximum difference between the request's clock and ours, in seconds.
const CLOCK_SECONDS: u64 = 600;

#[derive(Deserialize)]
struct Event {
    name: String,
    data: Value,
    #[serde(default)]
    channels: Vec<String>,
    channel: Option<String>,
    socket_id: Option<String>,
    /// The requested facts about each channel.
    info: Option<String>,
}

#[derive(Deserialize)]
struct Batch {
    batch: Vec<Event>,
}

/// Answers a request; `rest` is its path behind the application.
///
/// # Errors
/// The refusal.
pub(super) async fn answer(
    hub: &Hub,
    app: &Arc<App>,
    rest: &[String],
    request: &mut Request,
) -> Result<Response, Response> {
    let bad = |why: &str| refusal(Status::BAD_REQUEST, why);
    // A batch, including escapes.
    let most = hub.settings().message_bytes.saturating_mul(2 * BATCH_MAX).saturating_add(64 << 10);
    let body = if request.method() == Method::Post {
        request.bytes(most).await.map_err(|why| refusal(why.status(), &format!("hub: {why}")))?
    } else {
        Default::default()
    };
    check(app, request, &body)?;
    let parts: Vec<&str> = rest.iter().map(String::as_str).collect();
    let answer = match (request.method(), parts.as_slice()) {
        (Method::Post, ["events"]) => {
            let event = serde_json::from_slice(&body).map_err(|why| bad(&format!("hub: event: {why}")))?;
            publish(hub, event).await?
        }
        (Method::Post, ["batch_events"]) => {
            let Batch { batch } =
                serde_json::from_slice(&body).map_err(|why| bad(&format!("hub: batch: {why}")))?;
            if batch.len() > BATCH_MAX {
                return Err(bad("hub: batch: more than 10 events"));
            }
            // All events are checked before the first is published.
            for event in &batch {
                check_event(hub, event)?;
            }
            let asks = batch.iter().any(|event| event.info.is_some());
            let mut infos = Vec::new();
            for event in batch {
                let told = publish(hub, event).await?;
                let first = told.get("channels").and_then(Value::as_object);
                let first = first.and_then(|channels| channels.values().next().cloned());
                infos.push(first.unwrap_or_else(|| json!({})));
            }
            if asks { json!({"batch": infos}) } else { json!({}) }
        }
        (Method::Get, ["channels"]) => channels(hub, request)?,
        (Method::Get, ["channels", channel]) => {
            let members = hub.members_of(channel);
            let info = request.query_value("info").unwrap_or_default();
            let mut told = about(hub, channel, members, &info);
            told.insert("occupied".to_owned(), Value::Bool(members > 0));
            Value::Object(told)
        }
        (Method::Get, ["channels", channel, "users"]) if kind(channel) == Kind::Presence => {
            let users = presence::users(hub, channel);
            json!({"users": users.iter().map(|(id, _)| json!({"id": id})).collect::<Vec<_>>()})
        }
        (Method::Get, ["channels", _, "users"]) => {
            return Err(bad("hub: users are known of presence channels only"));
        }
        (Method::Post, ["users", user, "terminate_connections"]) => {
            let message = Message {
                kind: Some(TERMINATE.to_owned()),
                private: true,
                transient: true,
                ..Message::default()
            };
            hub.send(&[&format!("{SIGNED_IN}{user}")], message).await.map_err(refused)?;
            json!({})
        }
        _ => {
            let why = "hub: the API has events, batch_events, channels and users/ID/terminate_connections";
            return Err(refusal(Status::NOT_FOUND, why));
        }
    };
    Response::text(answer.to_string())
        .header("Content-Type", "application/json")
        .map_err(|_| refusal(Status::INTERNAL_SERVER_ERROR, "hub"))
}

/// Checks the signature of a request: of its method, its path, and its parameters in order.
fn check(app: &App, request: &Request, body: &[u8]) -> Result<(), Response> {
    let refused = |why: &str| refusal(Status::UNAUTHORIZED, &format!("hub: {why}"));
    let mut pairs: Vec<(String, String)> = request
        .query_pairs()
        .map(|(key, value)| (key.to_ascii_lowercase(), value.into_owned()))
        .filter(|(key, _)| key != "auth_signature")
        .collect();
    let value = |name: &str| pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
    if value("auth_key") != Some(&app.key) {
        return Err(refused("auth_key: there is no application with this key"));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let at: Option<u64> = value("auth_timestamp").and_then(|text| text.parse().ok());
    if at.is_none_or(|at| at.abs_diff(now) > CLOCK_SECONDS) {
        return Err(refused("auth_timestamp: expected the time, within 600 s of the server's"));
    }
    let sum = value("body_md5");
    if (!body.is_empty() || sum.is_some()) && sum != Some(&md5(body)) {
        return Err(refused("body_md5: this is not the sum of the body"));
    }
    pairs.sort();
    let pairs: Vec<String> = pairs.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let text = format!("{}\n{}\n{}", request.method_name(), request.path(), pairs.join("&"));
    let signature = request.query_value("auth_signature").unwrap_or_default();
    if !is_signed(app, &text, &signature) {
        return Err(refused("auth_signature: this is not the signature of the request"));
    }
    Ok(())
}

fn names(event: &Event) -> Vec<&str> {
    event.channels.iter().chain(&event.channel).map(String::as_str).collect()
}

fn data(event: &Event) -> String {
    match &event.data {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn check_event(hub: &Hub, event: &Event) -> Result<(), Response> {
    let bad = |why: &str| Err(refusal(Status::BAD_REQUEST, why));
    let names = names(event);
    if event.name.contains(char::is_control) {
        return bad(NO_CONTROLS);
    }
    if event.name.is_empty() || event.name.len() > 200 || event.name.starts_with(INTERNAL) {
        return bad("hub: event: name: expected 1 to 200 characters, not beginning with pusher_internal:");
    }
    if names.is_empty() || names.len() > CHANNELS_MAX || !names.iter().all(|name| is_channel(name)) {
        return bad("hub: event: channels: expected 1 to 100 names of channels");
    }
    if data(event).len() > hub.settings().message_bytes {
        return Err(refusal(Status::CONTENT_TOO_LARGE, "hub: event: data: longer than the hub allows"));
    }
    Ok(())
}

/// Returns the refusal of a message that was not published.
fn refused(why: PublishError) -> Response {
    match why {
        PublishError::TooLong => refusal(Status::CONTENT_TOO_LARGE, "hub: event: data: too long"),
        PublishError::BadType => refusal(Status::BAD_REQUEST, NO_CONTROLS),
        PublishError::TooManyTopics => refusal(Status::SERVICE_UNAVAILABLE, "hub: too many channels"),
        PublishError::Unavailable => refusal(Status::SERVICE_UNAVAILABLE, "hub: its store takes nothing now"),
    }
}

async fn publish(hub: &Hub, event: Event) -> Result<Value, Response> {
    check_event(hub, &event)?;
    let names = names(&event);
    for name in &names {
        let message = Message {
            data: data(&event),
            kind: Some(event.name.clone()),
            private: kind(name) != Kind::Public,
            except: event.socket_id.as_deref().map(Into::into),
            ..Message::default()
        };
        hub.send(&[name], message).await.map_err(refused)?;
    }
    let Some(info) = &event.info else { return Ok(json!({})) };
    let told: Map<String, Value> = names
        .iter()
        .map(|name| ((*name).to_owned(), Value::Object(about(hub, name, hub.members_of(name), info))))
        .collect();
    Ok(json!({"channels": told}))
}

fn channels(hub: &Hub, request: &Request) -> Result<Value, Response> {
    let prefix = request.query_value("filter_by_prefix").unwrap_or_default();
    let info = request.query_value("info").unwrap_or_default();
    if info.contains("user_count") && !prefix.starts_with("presence-") {
        return Err(refusal(
            Status::BAD_REQUEST,
            "hub: info: user_count needs filter_by_prefix to begin with presence-",
        ));
    }
    let is_told = |name: &str| is_channel(name) && !name.starts_with(SIGNED_IN) && name.starts_with(&*prefix);
    let occupied = hub.occupied().into_iter().filter(|(name, _)| is_told(name));
    let told: Map<String, Value> = occupied
        .map(|(name, members)| {
            let told = about(hub, &name, members, &info);
            (name, Value::Object(told))
        })
        .collect();
    Ok(json!({"channels": told}))
}

/// Returns the requested facts about a channel: `user_count`, `subscription_count`.
fn about(hub: &Hub, channel: &str, members: usize, info: &str) -> Map<String, Value> {
    let mut told = Map::new();
    for what in info.split(',').map(str::trim) {
        match what {
            "user_count" if kind(channel) == Kind::Presence => {
                told.insert(what.to_owned(), presence::count(hub, channel).into());
            }
            "subscription_count" => {
                told.insert(what.to_owned(), members.into());
            }
            _ => {}
        }
    }
    told
}
