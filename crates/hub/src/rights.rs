//! What a client may do: publish, and read private messages, on which topics.
//!
//! Rights come from a token's claims: `authorization_details` of Mercure 1.0, and the `mercure` claim of 0.x
//! where that is allowed. A token with one entry that is wrong gives no rights at all.

use crate::matcher::{Kind, Matcher, Subject};
use ringroad_http::Request;
use serde_json::{Map, Value};
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use url::Url;

/// What a check of a request's credentials has found.
#[derive(Debug)]
pub enum Checked {
    /// There are none.
    Missing,
    /// They are wrong.
    Wrong,
    /// They are right, and give every right.
    Every,
    /// They are a token with these claims and this `typ` of its header.
    Claims(Option<String>, Map<String, Value>),
}

/// Checks the credentials of requests.
pub trait Credentials: Send + Sync + fmt::Debug {
    /// Checks a request. `token` is the token that it presents, in a place where this protocol allows one.
    fn check(&self, request: &Request, token: Option<&str>) -> Checked;

    /// Checks a key or a token that a client presents in a message of its protocol.
    fn check_text(&self, text: &str) -> Checked;
}

/// Topics for which something is granted.
#[derive(Clone, Debug, Default)]
pub enum Grant {
    /// None.
    #[default]
    None,
    /// All.
    Every,
    /// Those that one of these matches.
    Matching(Vec<Matcher>),
}

impl Grant {
    /// Returns whether it covers the topic.
    pub fn covers(&self, topic: &Subject<'_>) -> bool {
        match self {
            Grant::None => false,
            Grant::Every => true,
            Grant::Matching(all) => all.iter().any(|matcher| matcher.matches(topic)),
        }
    }

    fn add(&mut self, more: &[Matcher]) {
        match self {
            Grant::None => *self = Grant::Matching(more.to_vec()),
            Grant::Every => {}
            Grant::Matching(all) => all.extend_from_slice(more),
        }
    }
}

/// What a client may do.
#[derive(Clone, Debug, Default)]
pub struct Rights {
    /// Topics to publish to.
    pub publish: Grant,
    /// Topics with private messages that may be read.
    pub read: Grant,
    /// When the rights end.
    pub until: Option<SystemTime>,
    /// What a subscription carries if one of these matches it; the first that does.
    payloads: Vec<(Vec<Matcher>, Value)>,
    /// Some credentials were presented.
    pub presented: bool,
}

/// Most entries in a token, and most bytes of a matcher.
const ENTRIES_MAX: usize = 256;
const MATCHER_BYTES_MAX: usize = 1024;

/// The type of Mercure's authorization details.
const DETAIL: &str = "https://mercure.rocks/authorization-detail";

/// A token's claims are not as they have to be.
#[derive(Debug)]
pub struct BadClaims;

impl Rights {
    /// Makes every right, for a client with a key.
    pub fn every() -> Rights {
        Rights { publish: Grant::Every, read: Grant::Every, presented: true, ..Rights::default() }
    }

    /// Reads a token's claims. `before_one`: as in Mercure 0.x too.
    ///
    /// # Errors
    /// An entry is wrong, or there are too many, or the token never expires and is not of 0.x.
    pub fn of_claims(
        typ: Option<&str>,
        claims: &Map<String, Value>,
        base: &Url,
        before_one: bool,
    ) -> Result<Rights, BadClaims> {
        let mut rights = Rights { presented: true, ..Rights::default() };
        let typ = typ.unwrap_or_default().to_ascii_lowercase();
        let is_access_token = typ.strip_prefix("application/").unwrap_or(&typ) == "at+jwt";
        let expires = claims.get("exp").and_then(Value::as_f64);
        rights.until = expires.and_then(|at| Some(UNIX_EPOCH + Duration::try_from_secs_f64(at).ok()?));
        if !before_one && (!is_access_token || rights.until.is_none()) {
            return Err(BadClaims);
        }
        if let Some(details) = claims.get("authorization_details") {
            let details = details.as_array().ok_or(BadClaims)?;
            if details.len() > ENTRIES_MAX {
                return Err(BadClaims);
            }
            for detail in details {
                if detail.get("type").and_then(Value::as_str) == Some(DETAIL) {
                    rights.add_detail(detail, base)?;
                }
            }
        }
        if before_one && let Some(mercure) = claims.get("mercure") {
            let list = |key: &str| -> Result<Vec<Matcher>, BadClaims> {
                match mercure.get(key) {
                    None | Some(Value::Null) => Ok(Vec::new()),
                    Some(Value::Array(all)) if all.len() <= ENTRIES_MAX => {
                        all.iter().map(|one| matcher(one, base, true)).collect()
                    }
                    Some(_) => Err(BadClaims),
                }
            };
            rights.publish.add(&list("publish")?);
            rights.read.add(&list("subscribe")?);
            if let Some(payload) = mercure.get("payload").filter(|payload| !payload.is_null()) {
                let all = Matcher::new(Kind::Exact, "*", base).ok_or(BadClaims)?;
                rights.payloads.push((vec![all], payload.clone()));
            }
        }
        Ok(rights)
    }

    fn add_detail(&mut self, detail: &Value, base: &Url) -> Result<(), BadClaims> {
        let list = |key: &str| {
            let list = detail.get(key).and_then(Value::as_array);
            list.filter(|list| (1..=ENTRIES_MAX).contains(&list.len())).ok_or(BadClaims)
        };
        let topics: Vec<Matcher> =
            list("topics")?.iter().map(|one| matcher(one, base, false)).collect::<Result<_, _>>()?;
        let payload = match detail.get("payload") {
            None => None,
            Some(payload @ Value::Object(_)) => Some(payload),
            Some(_) => return Err(BadClaims),
        };
        for action in list("actions")? {
            match action.as_str().ok_or(BadClaims)? {
                "publish" => self.publish.add(&topics),
                "subscribe" => {
                    self.read.add(&topics);
                    self.payloads.extend(payload.map(|payload| (topics.clone(), payload.clone())));
                }
                // Actions of later specifications grant nothing here.
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns what a subscription by this matcher carries.
    pub(crate) fn payload(&self, of: &Matcher, base: &Url) -> Option<&Value> {
        let subject = Subject::new(of.text(), base);
        let covers = |(matchers, _): &&(Vec<Matcher>, Value)| {
            matchers.iter().any(|one| one.text() == of.text() || one.matches(&subject))
        };
        self.payloads.iter().find(covers).map(|(_, payload)| payload)
    }
}

/// Reads an entry of a list of topics. `before_one`: a text is a template, as in Mercure 0.x.
fn matcher(entry: &Value, base: &Url, before_one: bool) -> Result<Matcher, BadClaims> {
    let (kind, text) = match entry {
        Value::String(text) if before_one => (Kind::Template, text.as_str()),
        Value::Object(entry) => {
            let text = entry.get("match").and_then(Value::as_str).ok_or(BadClaims)?;
            let kind = match entry.get("match_type") {
                None => Kind::Exact,
                Some(name) => name.as_str().and_then(Kind::named).ok_or(BadClaims)?,
            };
            (kind, text)
        }
        _ => return Err(BadClaims),
    };
    if text.len() > MATCHER_BYTES_MAX {
        return Err(BadClaims);
    }
    Matcher::new(kind, text, base).ok_or(BadClaims)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn base() -> Url {
        Url::parse("https://hub.example.com/.well-known/mercure").unwrap()
    }

    fn of(claims: &str, before_one: bool) -> Result<Rights, BadClaims> {
        let claims: Map<String, Value> = serde_json::from_str(claims).unwrap();
        Rights::of_claims(Some("at+jwt"), &claims, &base(), before_one)
    }

    fn covers(grant: &Grant, topic: &str) -> bool {
        grant.covers(&Subject::new(topic, &base()))
    }

    #[test]
    fn details_grant_their_actions_on_their_topics() {
        let rights = of(
            r#"{"exp": 9999999999, "authorization_details": [
                {"type": "other", "actions": 1},
                {"type": "https://mercure.rocks/authorization-detail", "actions": ["publish", "later"],
                 "topics": [{"match": "a"}]},
                {"type": "https://mercure.rocks/authorization-detail", "actions": ["subscribe"],
                 "topics": [{"match": "https://example.com/:id", "match_type": "urlpattern"}],
                 "payload": {"x": 1}}]}"#,
            false,
        )
        .unwrap();
        assert!(covers(&rights.publish, "a") && !covers(&rights.publish, "https://example.com/1"));
        assert!(!covers(&rights.read, "a") && covers(&rights.read, "https://example.com/1"));
        let matcher = Matcher::new(Kind::UrlPattern, "https://example.com/:id", &base()).unwrap();
        assert_eq!(rights.payload(&matcher, &base()).unwrap().to_string(), "{\"x\":1}");
        let other = Matcher::new(Kind::Exact, "a", &base()).unwrap();
        assert!(rights.payload(&other, &base()).is_none());
    }

    #[test]
    fn one_wrong_entry_makes_the_token_worthless() {
        let detail = |inner: &str| {
            format!(
                r#"{{"exp": 9999999999, "authorization_details":
                [{{"type": "https://mercure.rocks/authorization-detail", {inner}}}]}}"#
            )
        };
        assert!(of(&detail(r#""actions": ["publish"], "topics": [{"match": "*"}]"#), false).is_ok());
        for wrong in [
            r#""actions": ["publish"]"#,
            r#""topics": [{"match": "*"}]"#,
            r#""actions": [], "topics": [{"match": "*"}]"#,
            r#""actions": [1], "topics": [{"match": "*"}]"#,
            r#""actions": ["publish"], "topics": []"#,
            r#""actions": ["publish"], "topics": ["*"]"#,
            r#""actions": ["publish"], "topics": [{"match": "*"}, {"match": 1}]"#,
            r#""actions": ["publish"], "topics": [{"match": "a", "match_type": "regex"}]"#,
            r#""actions": ["publish"], "topics": [{"match": "https://a/(", "match_type": "urlpattern"}]"#,
            r#""actions": ["publish"], "topics": [{"match": "*"}], "payload": 1"#,
        ] {
            assert!(of(&detail(wrong), false).is_err(), "{wrong}");
        }
        // A token has to expire, and to be an access token.
        assert!(of("{}", false).is_err());
        let claims = serde_json::from_str(r#"{"exp": 9999999999}"#).unwrap();
        assert!(Rights::of_claims(Some("JWT"), &claims, &base(), false).is_err());
        assert!(Rights::of_claims(Some("application/AT+JWT"), &claims, &base(), false).is_ok());
    }

    #[test]
    fn the_claim_of_0_x_is_read_only_where_that_is_allowed() {
        let claims = r#"{"exp": 9999999999, "mercure": {"publish": ["*"], "subscribe":
            ["https://example.com/books/{id}"], "payload": {"user": "u"}}}"#;
        let rights = of(claims, true).unwrap();
        assert!(covers(&rights.publish, "x") && covers(&rights.read, "https://example.com/books/1"));
        assert!(!covers(&rights.read, "x"));
        let matcher = Matcher::new(Kind::Exact, "a", &base()).unwrap();
        assert!(rights.payload(&matcher, &base()).is_some());
        let rights = of(claims, false).unwrap();
        assert!(!covers(&rights.publish, "x"));
        assert!(of(r#"{"mercure": {"publish": [1]}}"#, true).is_err());
    }
}
