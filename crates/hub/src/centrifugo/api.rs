//! The HTTP API of servers: `POST …/api/METHOD` with a key in `X-API-Key`, or after `Authorization: apikey`.
//!
//! A key gives every right. A token of the same table may publish to the topics that it covers. An answer is
//! `{"result": …}` or `{"error": {"code": …, "message": …}}`.

use super::claims::is_every;
use super::codes::{self, Error};
use super::{CONTROL, data, epoch, history, is_channel, is_private, presence, presence_stats, session};
use crate::endpoint::{Endpoint, refusal, unauthorized};
use crate::matcher::Subject;
use crate::rights::{Checked, Rights};
use crate::topics::{Hub, Message};
use ringroad_http::{Method, Request, Response, Status};
use serde_json::{Map, Value, json};
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

/// Most channels of a broadcast, and most commands of a batch.
const CHANNELS_MAX: usize = 1000;
const BATCH_MAX: usize = 100;

/// Answers a request.
///
/// # Errors
/// The refusal.
pub(super) async fn answer(
    endpoint: &Endpoint,
    method: Option<String>,
    request: &mut Request,
) -> Result<Response, Response> {
    let hub = endpoint.hub();
    if request.method() != Method::Post {
        let refused = refusal(Status::METHOD_NOT_ALLOWED, "hub: the API takes POST");
        return Err(refused
            .header("Allow", "POST")
            .unwrap_or_else(|_| Response::empty(Status::METHOD_NOT_ALLOWED)));
    }
    let rights = rights(endpoint, request)?;
    let most =
        hub.settings().message_bytes.saturating_mul(2 * BATCH_MAX).min(16 << 20).saturating_add(64 << 10);
    let body = request.bytes(most).await.map_err(|why| refusal(why.status(), &format!("hub: {why}")))?;
    let body = if body.is_empty() { Ok(Value::Object(Map::new())) } else { serde_json::from_slice(&body) };
    let Ok(Value::Object(body)) = body else {
        return Err(refusal(Status::BAD_REQUEST, "hub: expected an object in JSON"));
    };
    let told = match method {
        Some(method) => call(hub, &rights, &method, &body).await,
        // The form of earlier versions.
        None => {
            let nothing = Map::new();
            let params = body.get("params").and_then(Value::as_object).unwrap_or(&nothing);
            call(hub, &rights, body.get("method").and_then(Value::as_str).unwrap_or_default(), params).await
        }
    };
    let told = match told {
        Ok(result) => json!({"result": result}),
        Err(error) => json!({"error": error.json()}),
    };
    Response::text(told.to_string())
        .header("Content-Type", "application/json")
        .map_err(|_| refusal(Status::INTERNAL_SERVER_ERROR, "hub"))
}

/// Returns the rights of a server.
fn rights(endpoint: &Endpoint, request: &Request) -> Result<Rights, Response> {
    let Some(credentials) = &endpoint.place().publish else {
        return Err(refusal(Status::FORBIDDEN, "hub: publishing is not allowed here"));
    };
    let by_line = request.header("authorization").and_then(|value| {
        let (scheme, key) = value.split_once(' ')?;
        (scheme.eq_ignore_ascii_case("apikey") || scheme.eq_ignore_ascii_case("bearer")).then(|| key.trim())
    });
    let checked = match request.header("x-api-key").or(by_line) {
        Some(key) => credentials.check_text(key),
        // It may be in a line that the table names.
        None => credentials.check(request, None),
    };
    match checked {
        Checked::Every => Ok(Rights::every()),
        Checked::Claims(typ, claims) => {
            let base = &endpoint.hub().settings().url;
            Rights::of_claims(typ.as_deref(), &claims, base, endpoint.place().before_one)
                .map_err(|_| unauthorized(Some("invalid_token")))
        }
        Checked::Missing => Err(unauthorized(None)),
        Checked::Wrong => Err(unauthorized(Some("invalid_token"))),
    }
}

async fn call(hub: &Hub, rights: &Rights, method: &str, asked: &Map<String, Value>) -> Result<Value, Error> {
    if method != "batch" {
        return one(hub, rights, method, asked).await;
    }
    let commands = asked.get("commands").and_then(Value::as_array).ok_or(codes::BAD_REQUEST)?;
    if commands.len() > BATCH_MAX {
        return Err(codes::LIMIT_EXCEEDED);
    }
    let mut replies = Vec::with_capacity(commands.len());
    for command in commands {
        let named = command.as_object().and_then(|command| command.iter().next());
        let Some((name, Value::Object(asked))) = named else { return Err(codes::BAD_REQUEST) };
        replies.push(match one(hub, rights, name, asked).await {
            Ok(result) => {
                let mut reply = Map::new();
                reply.insert(name.clone(), result);
                Value::Object(reply)
            }
            Err(error) => json!({"error": error.json()}),
        });
    }
    Ok(json!({"replies": replies}))
}

async fn one(hub: &Hub, rights: &Rights, method: &str, asked: &Map<String, Value>) -> Result<Value, Error> {
    let text = |name: &str| asked.get(name).and_then(Value::as_str).unwrap_or_default();
    let channel = || Some(text("channel")).filter(|name| is_channel(name)).ok_or(codes::BAD_REQUEST);
    match method {
        "publish" => return publish(hub, rights, channel()?, asked).await,
        "broadcast" => {
            let channels = asked.get("channels").and_then(Value::as_array).ok_or(codes::BAD_REQUEST)?;
            if channels.is_empty() || channels.len() > CHANNELS_MAX {
                return Err(codes::BAD_REQUEST);
            }
            let names = channels.iter().map(|name| name.as_str().filter(|name| is_channel(name)));
            let names: Vec<&str> = names.collect::<Option<_>>().ok_or(codes::BAD_REQUEST)?;
            let mut responses = Vec::with_capacity(names.len());
            for name in names {
                responses.push(match publish(hub, rights, name, asked).await {
                    Ok(result) => json!({"result": result}),
                    Err(error) => json!({"error": error.json()}),
                });
            }
            return Ok(json!({"responses": responses}));
        }
        _ => {}
    }
    // What follows tells of clients, or ends them.
    if !is_every(hub, &rights.publish) {
        return Err(codes::PERMISSION_DENIED);
    }
    match method {
        "presence" => Ok(presence(hub, channel()?)),
        "presence_stats" => Ok(presence_stats(hub, channel()?)),
        "history" => history(hub, channel()?, asked),
        "history_remove" => {
            hub.forget(channel()?);
            Ok(json!({}))
        }
        "channels" => {
            let pattern = text("pattern");
            let wanted = hub.occupied().into_iter();
            let wanted =
                wanted.filter(|(name, _)| pattern.is_empty() || super::claims::is_like(pattern, name));
            let told: Map<String, Value> =
                wanted.map(|(name, members)| (name, json!({"num_clients": members}))).collect();
            Ok(json!({"channels": told}))
        }
        "info" => {
            let counts = hub.counts();
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let uptime = now.as_micros().saturating_sub(u128::from(hub.made())) / 1_000_000;
            Ok(json!({"nodes": [{
                "uid": hub.node(), "name": "ringroad", "version": env!("CARGO_PKG_VERSION"),
                "num_clients": counts.members.load(Ordering::Relaxed), "num_channels": hub.occupied().len(),
                "uptime": uptime as u64,
            }]}))
        }
        "subscribe" | "unsubscribe" if channel().is_err() => Err(codes::BAD_REQUEST),
        "subscribe" | "unsubscribe" | "disconnect" | "refresh" => {
            if text("user").is_empty() {
                return Err(codes::BAD_REQUEST);
            }
            let mut wish = asked.clone();
            wish.insert("method".to_owned(), method.into());
            // A disconnection has its code in a table of its own.
            if let Some(Value::Object(disconnect)) = asked.get("disconnect") {
                for name in ["code", "reason"] {
                    wish.insert(name.to_owned(), disconnect.get(name).cloned().unwrap_or(Value::Null));
                }
            }
            let data = Value::Object(wish).to_string();
            let message = Message { data, transient: true, private: true, ..Message::default() };
            hub.send(&[CONTROL], message).await.map_err(session::refused)?;
            Ok(json!({}))
        }
        _ => Err(codes::METHOD_NOT_FOUND),
    }
}

async fn publish(
    hub: &Hub,
    rights: &Rights,
    channel: &str,
    asked: &Map<String, Value>,
) -> Result<Value, Error> {
    let topic = Subject::new(channel, &hub.settings().url);
    if !rights.publish.covers(&topic) || crate::mercure::is_reserved(&topic, hub.settings().url.path()) {
        return Err(codes::PERMISSION_DENIED);
    }
    let tags = match asked.get("tags") {
        None | Some(Value::Null) => None,
        Some(tags @ Value::Object(_)) => Some(Box::new(tags.clone())),
        Some(_) => return Err(codes::BAD_REQUEST),
    };
    let told = asked.get("data").ok_or(codes::BAD_REQUEST)?;
    let message = Message {
        data: data(&told.to_string()),
        private: is_private(channel),
        transient: asked.get("skip_history").and_then(Value::as_bool).unwrap_or(false),
        tags,
        ..Message::default()
    };
    let is_kept = !message.transient;
    let id = hub.send(&[channel], message).await.map_err(session::refused)?;
    Ok(if is_kept { json!({"offset": id.offset, "epoch": epoch(id)}) } else { json!({}) })
}
