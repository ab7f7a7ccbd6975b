//! What a token of Centrifugo's clients says: its user, the channels that it is subscribed to, and what it
//! may do (`caps`). A token may grant rights as one of Mercure's too.

use crate::matcher::{Kind, Matcher, Subject};
use crate::rights::{Checked, Credentials, Rights};
use crate::{Hub, Place};
use serde_json::{Map, Value};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Most entries of `caps`, and of the channels of one.
const ENTRIES_MAX: usize = 256;

/// A client as its token has it; without a token it is no user, and may do what needs no right.
#[derive(Clone, Debug, Default)]
pub(super) struct Person {
    /// The user; empty: none.
    pub(super) user: String,
    /// What others are told of it.
    pub(super) info: Option<Value>,
    /// Channels that it is subscribed to when it connects.
    pub(super) channels: Vec<String>,
    /// When the token ends.
    pub(super) until: Option<SystemTime>,
    /// Topics it may read in whole, or publish to, by a key or by rights as Mercure has them.
    pub(super) rights: Rights,
    caps: Vec<Cap>,
}

/// An entry of `caps`.
#[derive(Clone, Debug)]
struct Cap {
    channels: Vec<String>,
    /// `*` in a name stands for any characters.
    is_wild: bool,
    allow: Vec<String>,
}

/// Why a token is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// It was valid once.
    Expired,
    /// It is none, or not ours.
    Invalid,
}

/// Reads a token's claims after its signature was checked.
pub(super) fn claims(credentials: &dyn Credentials, token: &str) -> Result<Option<Claims>, Refused> {
    match credentials.check_text(token) {
        Checked::Every => Ok(None),
        Checked::Claims(typ, all) => Ok(Some(Claims { typ, all })),
        Checked::Missing | Checked::Wrong if is_expired(token) => Err(Refused::Expired),
        Checked::Missing | Checked::Wrong => Err(Refused::Invalid),
    }
}

/// The claims of a token.
pub(super) struct Claims {
    typ: Option<String>,
    all: Map<String, Value>,
}

impl Claims {
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.all.get(name)?.as_str()
    }

    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.all.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn until(&self) -> Option<SystemTime> {
        let at = self.all.get("exp")?.as_f64()?;
        UNIX_EPOCH.checked_add(Duration::try_from_secs_f64(at).ok()?)
    }
}

impl Person {
    /// Reads the token of a connection. `None`: the client has none.
    pub(super) fn of_token(hub: &Hub, place: &Place, token: Option<&str>) -> Result<Person, Refused> {
        let Some(token) = token.filter(|token| !token.is_empty()) else {
            return if place.anonymous { Ok(Person::default()) } else { Err(Refused::Invalid) };
        };
        let credentials = place.subscribe.as_ref().ok_or(Refused::Invalid)?;
        let base = &hub.settings().url;
        let mut person = match claims(&**credentials, token)? {
            None => Person { rights: Rights::every(), ..Person::default() },
            Some(claims) => Person::of_claims(hub, place, &claims)?,
        };
        // The right to publish may come from other credentials.
        person.rights.publish = match place.publish.as_ref().map(|publish| publish.check_text(token)) {
            Some(Checked::Every) => crate::Grant::Every,
            Some(Checked::Claims(typ, all)) if all.contains_key("authorization_details") => {
                Rights::of_claims(typ.as_deref(), &all, base, place.before_one)
                    .map_or(crate::Grant::None, |rights| rights.publish)
            }
            Some(Checked::Claims(..)) => crate::Grant::None,
            // Neither by the rights of its token.
            Some(Checked::Missing | Checked::Wrong) | None => {
                person.caps.iter_mut().for_each(|cap| cap.allow.retain(|what| what != "pub"));
                crate::Grant::None
            }
        };
        Ok(person)
    }

    fn of_claims(hub: &Hub, place: &Place, claims: &Claims) -> Result<Person, Refused> {
        let base = &hub.settings().url;
        let details = claims.get("authorization_details").is_some();
        let rights = if details || (place.before_one && claims.get("mercure").is_some()) {
            Rights::of_claims(claims.typ.as_deref(), &claims.all, base, place.before_one)
                .map_err(|_| Refused::Invalid)?
        } else {
            let mut rights = Rights::default();
            rights.presented = true;
            rights
        };
        // A subscription's token opens no connection.
        if claims.get("channel").is_some() {
            return Err(Refused::Invalid);
        }
        let texts = |value: &Value| -> Option<Vec<String>> {
            let all = value.as_array().filter(|all| all.len() <= ENTRIES_MAX)?;
            all.iter().map(|one| one.as_str().map(str::to_owned)).collect()
        };
        let mut channels = match claims.get("channels") {
            None => Vec::new(),
            Some(all) => texts(all).ok_or(Refused::Invalid)?,
        };
        if let Some(subs) = claims.get("subs") {
            let subs = subs.as_object().filter(|subs| subs.len() <= ENTRIES_MAX).ok_or(Refused::Invalid)?;
            channels.extend(subs.keys().cloned());
        }
        let caps = match claims.get("caps") {
            None => Vec::new(),
            Some(Value::Array(all)) if all.len() <= ENTRIES_MAX => {
                let cap = |one: &Value| {
                    let is_wild = match one.get("match").and_then(Value::as_str).unwrap_or_default() {
                        "" => false,
                        "wildcard" => true,
                        _ => return None,
                    };
                    Some(Cap {
                        channels: texts(one.get("channels")?)?,
                        is_wild,
                        allow: texts(one.get("allow")?)?,
                    })
                };
                all.iter().map(cap).collect::<Option<_>>().ok_or(Refused::Invalid)?
            }
            Some(_) => return Err(Refused::Invalid),
        };
        Ok(Person {
            user: claims.text("sub").unwrap_or_default().to_owned(),
            info: claims.get("info").cloned(),
            channels,
            until: claims.until(),
            rights,
            caps,
        })
    }

    fn is_allowed(&self, what: &str, channel: &str) -> bool {
        let matches = |cap: &Cap| {
            cap.channels.iter().any(|name| name == channel || (cap.is_wild && is_like(name, channel)))
        };
        self.caps.iter().any(|cap| cap.allow.iter().any(|one| one == what) && matches(cap))
    }

    /// Returns whether it may read private messages of the channel.
    pub(super) fn may_read(&self, hub: &Hub, channel: &str) -> bool {
        self.rights.read.covers(&Subject::new(channel, &hub.settings().url))
            || self.is_allowed("sub", channel)
    }

    /// Returns whether it may publish to the channel.
    pub(super) fn may_publish(&self, hub: &Hub, channel: &str) -> bool {
        let topic = Subject::new(channel, &hub.settings().url);
        let is_own = crate::mercure::is_reserved(&topic, hub.settings().url.path());
        !is_own && (self.rights.publish.covers(&topic) || self.is_allowed("pub", channel))
    }

    /// Returns whether it is one of the users named behind `#` in the channel.
    pub(super) fn is_named(&self, channel: &str) -> bool {
        let users = channel.split_once('#').map(|(_, users)| users);
        !self.user.is_empty() && users.is_some_and(|users| users.split(',').any(|user| user == self.user))
    }
}

/// Returns whether a name is like another in which `*` stands for any characters.
pub(super) fn is_like(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = name.find(part) else { return false };
        name = name.get(at + part.len()..).unwrap_or_default();
    }
    name.ends_with(last)
}

/// Returns whether the token says of itself that it has ended. Its signature is not looked at: this only
/// chooses how it is refused.
fn is_expired(token: &str) -> bool {
    let payload = token.split('.').nth(1).and_then(from_base64url);
    let claims = payload.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    let until = claims.and_then(|claims| claims.get("exp")?.as_f64());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    until.is_some_and(|until| until < now)
}

fn from_base64url(text: &str) -> Option<Vec<u8>> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut out = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut count) = (0_u32, 0);
    for byte in text.trim_end_matches('=').bytes() {
        let digit = DIGITS.iter().position(|one| *one == byte)?;
        bits = (bits << 6 | u32::try_from(digit).ok()?) & 0xffff;
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count & 0xff) as u8);
        }
    }
    Some(out)
}

/// Returns whether the rights cover every topic.
pub(super) fn is_every(hub: &Hub, grant: &crate::Grant) -> bool {
    let all = Matcher::new(Kind::Exact, "*", &hub.settings().url);
    match grant {
        crate::Grant::Every => true,
        crate::Grant::None => false,
        crate::Grant::Matching(some) => {
            all.is_some_and(|all| some.iter().any(|one| one.text() == all.text()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, name) in
            [("a*", "a"), ("a*", "abc"), ("*", "x"), ("a*c", "abc"), ("*b*", "abc"), ("a*b*c", "a-b-c")]
        {
            assert!(is_like(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("a*", "ba"), ("a*c", "ab"), ("ab*ba", "aba"), ("a*b*c", "acb"), ("a", "ab")]
        {
            assert!(!is_like(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn a_token_that_has_ended_is_told_from_a_wrong_one() {
        // {"exp":1} and {"exp":99999999999}
        assert!(is_expired("e30.eyJleHAiOjF9.x"));
        assert!(!is_expired("e30.eyJleHAiOjk5OTk5OTk5OTk5fQ.x"));
        for no in ["", "a", "a.b.c", "a.é.c", "e30.e30.x"] {
            assert!(!is_expired(no), "{no}");
        }
    }
}
