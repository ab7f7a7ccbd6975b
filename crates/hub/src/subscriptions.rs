//! Active subscriptions, as Mercure has them: a private message when one begins and when it ends, and
//! documents that list them.

use crate::endpoint::{forbidden, refusal};
use crate::matcher::{Matcher, Subject};
use crate::rights::Rights;
use crate::topics::{Hub, Message};
use ringroad_http::{Response, Status};
use serde_json::{Value, json};
use std::hash::{BuildHasher, RandomState};
use std::sync::PoisonError;

/// The type of these events, which publishers cannot use.
pub(crate) const KIND: &str = "mercure";

/// The subscriptions of one member, until this is dropped.
pub(crate) struct Listed {
    hub: Hub,
    paths: Vec<String>,
}

/// Lists the subscriptions of a member, and publishes that they have begun.
pub(crate) fn list(hub: &Hub, matchers: &[Matcher], rights: &Rights) -> Listed {
    let base = &hub.settings().url;
    let subscriber = random_urn();
    let mut paths = Vec::with_capacity(matchers.len());
    for matcher in matchers {
        let (kind, text) = (matcher.kind().name(), matcher.text());
        let path = path(hub, &[kind, text, &subscriber]);
        let mut document = json!({
            "id": path, "type": "subscription", "match_type": kind, "match": text,
            "subscriber": subscriber, "active": true,
        });
        if let (Some(payload), Some(object)) = (rights.payload(matcher, base), document.as_object_mut()) {
            object.insert("payload".to_owned(), payload.clone());
        }
        tell(hub, &path, &document);
        all(hub).insert(path.clone(), document);
        paths.push(path);
    }
    Listed { hub: hub.clone(), paths }
}

impl Drop for Listed {
    fn drop(&mut self) {
        for path in &self.paths {
            let document = all(&self.hub).remove(path);
            if let Some(mut document) = document {
                if let Some(active) = document.get_mut("active") {
                    *active = Value::Bool(false);
                }
                tell(&self.hub, path, &document);
            }
        }
    }
}

type All<'h> = std::sync::MutexGuard<'h, std::collections::BTreeMap<String, Value>>;

fn all(hub: &Hub) -> All<'_> {
    hub.0.subscriptions.lock().unwrap_or_else(PoisonError::into_inner)
}

fn tell(hub: &Hub, path: &str, document: &Value) {
    let message = Message {
        data: document.to_string(),
        kind: Some(KIND.to_owned()),
        private: true,
        ..Message::default()
    };
    // Where it does not fit the documents still tell it.
    hub.tell(path, message);
}

/// Returns the parts of the path of a question about subscriptions, decoded: none, kind and matcher, or these
/// and the subscriber. `None`: the path is no such question.
pub(crate) fn asked(path: &str) -> Option<Vec<String>> {
    let (_, rest) = path.split_once("/subscriptions")?;
    if rest.is_empty() {
        return Some(Vec::new());
    }
    let parts: Vec<String> = rest.strip_prefix('/')?.split('/').map(decoded).collect();
    matches!(parts.len(), 2 | 3).then_some(parts)
}

/// Answers a question about subscriptions.
///
/// # Errors
/// The client may not know, or there is no such subscription: the refusal.
pub(crate) fn answer(hub: &Hub, rights: &Rights, parts: &[String]) -> Result<Response, Response> {
    let asked = path(hub, &parts.iter().map(String::as_str).collect::<Vec<_>>());
    if !rights.read.covers(&Subject::new(&asked, &hub.settings().url)) {
        return Err(forbidden());
    }
    let document = if parts.len() == 3 {
        let found = all(hub).get(&asked).cloned();
        found.ok_or_else(|| refusal(Status::NOT_FOUND, "hub: there is no such subscription"))?
    } else {
        let below = format!("{asked}/");
        let all = all(hub);
        let found = all.range(below.clone()..).take_while(|(path, _)| path.starts_with(&below));
        let found: Vec<Value> = found.map(|(_, document)| document.clone()).collect();
        json!({"id": asked, "type": "subscriptions", "subscriptions": found})
    };
    let last = hub.last();
    let last = if last.offset == 0 { "earliest".to_owned() } else { format!("#{last}") };
    let link = format!(
        "<{}>; rel=\"mercure\"; last-event-id=\"{last}\"; type=\"mercure\"; content-type=\"application/json\"",
        hub.settings().url
    );
    Response::text(document.to_string())
        .header("Content-Type", "application/json")
        .and_then(|response| response.header("Cache-Control", "no-cache"))
        .and_then(|response| response.header("Link", link))
        .map_err(|_| refusal(Status::INTERNAL_SERVER_ERROR, "hub"))
}

/// Returns the path of a subscription or of several, below the hub's own. Each part is encoded once.
fn path(hub: &Hub, parts: &[&str]) -> String {
    let mut path = format!("{}/subscriptions", hub.settings().url.path().trim_end_matches('/'));
    for part in parts {
        path.push('/');
        for byte in part.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                path.push(char::from(byte));
            } else {
                path.push_str(&format!("%{byte:02X}"));
            }
        }
    }
    path
}

/// Returns a part of a path without its escapes.
pub(crate) fn decoded(part: &str) -> String {
    let mut out = Vec::with_capacity(part.len());
    let mut bytes = part.bytes();
    while let Some(byte) = bytes.next() {
        let mut ahead = bytes.clone();
        let digits = (ahead.next(), ahead.next());
        let value = match (byte, digits) {
            (b'%', (Some(high), Some(low))) => {
                char::from(high).to_digit(16).zip(char::from(low).to_digit(16)).map(|(h, l)| h * 16 + l)
            }
            _ => None,
        };
        match value.and_then(|value| u8::try_from(value).ok()) {
            Some(value) => {
                out.push(value);
                bytes = ahead;
            }
            None => out.push(byte),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Returns a random identifier (RFC 9562, version 4).
pub(crate) fn random_urn() -> String {
    // Keyed anew each time.
    let high = (RandomState::new().hash_one(1_u8) & 0xffff_ffff_ffff_0fff) | 0x4000;
    let low = (RandomState::new().hash_one(2_u8) & 0x3fff_ffff_ffff_ffff) | 0x8000_0000_0000_0000;
    format!(
        "urn:uuid:{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_encoded_once_and_decoded_once() {
        let hub = Hub::new(crate::Settings::default());
        let parts = ["exact", "https://example.com/{a}%20é", "urn:uuid:1"];
        let text = path(&hub, &parts);
        let encoded = "exact/https%3A%2F%2Fexample.com%2F%7Ba%7D%2520%C3%A9/urn%3Auuid%3A1";
        assert_eq!(text, format!("/.well-known/mercure/subscriptions/{encoded}"));
        assert_eq!(asked(&text), Some(parts.map(str::to_owned).to_vec()));
        assert_eq!(asked("/.well-known/mercure/subscriptions"), Some(vec![]));
        for no in
            ["/.well-known/mercure", "/subscriptionsx", "/subscriptions/exact", "/subscriptions/a/b/c/d"]
        {
            assert_eq!(asked(no), None, "{no}");
        }
    }

    #[test]
    fn identifiers_are_of_version_4_and_differ() {
        let (one, other) = (random_urn(), random_urn());
        assert_ne!(one, other);
        assert_eq!((one.len(), one.as_bytes().get(23)), (45, Some(&b'4')), "{one}");
    }
}
