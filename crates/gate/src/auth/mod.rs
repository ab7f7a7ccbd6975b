//! `[auth.NAME]`: how clients are known.
//!
//! A table is one [`Auth`], shared by all workers. A route refers to it by name (`auth`, in
//! `filter/auth.rs`), an endpoint calls [`Auth::identify`]. The kinds are in files of their own: keys,
//! passwords, tokens, and another server that decides. What a kind finds out is a [`Verdict`]: at once where
//! that needs no waiting, else later.

mod ask;
mod basic;
mod jwt;
mod kept;
mod key;

use crate::chain::Later;
use crate::feature::{Configured, NamedTables, Tending, same};
use crate::flow::Flow;
use crate::metrics::{Families, label};
use crate::words;
use ringroad_http::{Request, Response};
use ringroad_settings::{Key, Section, Table, value};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The family of the tables.
pub const KEY: Key =
    Key { name: "auth", form: "named tables", default: "-", meaning: "How clients are known, see below." };

/// The tables of the key reference.
pub static TABLES: &[&Table] = &[&TABLE, &key::TABLE, &basic::TABLE, &jwt::TABLE, &ask::TABLE];

static TABLE: Table = Table {
    name: "[auth.NAME]",
    meaning: "How clients are known. Routes name it in `auth`. A request without valid credentials gets 401; if its \
        credentials cannot be checked now, 503.",
    keys: &[
        Key {
            name: "kind",
            form: "`\"key\"`, `\"basic\"`, `\"jwt\"`, `\"ask\"`",
            default: "",
            meaning: "By a key, a name with a password, a signed token, or what another server says.",
        },
        Key {
            name: "realm",
            form: "text",
            default: "the table's name",
            meaning: "What clients are told that they need credentials for.",
        },
        Key {
            name: "tell",
            form: "name of a header line, as `\"X-User\"`",
            default: "-",
            meaning: "Tells servers behind and applications the caller's name. Lines of this name that clients send are removed.",
        },
        Key {
            name: "hide",
            form: "true or false",
            default: "false",
            meaning: "`Authorization`, or the line that has the key, is not handed on to servers behind.",
        },
    ],
};

/// One table.
#[derive(Debug)]
pub struct Auth {
    settings: Settings,
    kind: Kind,
    counts: Counts,
}

#[derive(Debug, PartialEq)]
struct Settings {
    realm: String,
    tell: Option<String>,
    hide: bool,
}

/// Requests by what became of them.
#[derive(Debug, Default)]
struct Counts {
    known: AtomicU64,
    refused: AtomicU64,
    unavailable: AtomicU64,
}

#[derive(Debug, PartialEq)]
enum Kind {
    Key(key::Keys),
    Basic(basic::Basic),
    Jwt(jwt::Jwt),
    Ask(ask::Ask),
}

#[derive(Clone, Copy)]
enum Word {
    Key,
    Basic,
    Jwt,
    Ask,
}

const KINDS: &[(&str, Word)] =
    &[("key", Word::Key), ("basic", Word::Basic), ("jwt", Word::Jwt), ("ask", Word::Ask)];

/// What is known of a client with valid credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Identity {
    /// Its name, if the credentials say one.
    pub subject: Option<Arc<str>>,
    /// Header lines for the endpoint, in place of all lines of their names.
    pub lines: Vec<(String, Vec<u8>)>,
    /// Header lines for the client, beside those of the endpoint's answer.
    pub answer: Vec<(String, Vec<u8>)>,
    /// What its token says, if it has one.
    pub claims: Option<Arc<Claims>>,
}

/// What a signed token says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// `typ` of its header (RFC 7515 §4.1.9).
    pub typ: Option<String>,
    /// Its claims.
    pub all: serde_json::Map<String, serde_json::Value>,
}

/// What was found out about the credentials of a request.
#[derive(Debug)]
pub enum Verdict {
    /// They are valid.
    Known(Identity),
    /// There are none of this kind.
    Missing,
    /// They are not valid.
    Wrong,
    /// They cannot be checked now, for this reason.
    Unavailable(String),
    /// The server that decides has given this answer for the client.
    Answered(Box<Response>),
}

impl Auth {
    /// Returns what is known of the client, as far as that needs no waiting. `None`: the request has no valid
    /// credentials.
    pub fn identify(&self, request: &Request) -> Option<Identity> {
        self.identify_token(request, None)
    }

    /// Returns the same. `token` is the token of the request where a protocol has a place of its own for it;
    /// a kind without tokens reads the request.
    pub fn identify_token(&self, request: &Request, token: Option<&str>) -> Option<Identity> {
        let verdict = match (&self.kind, token) {
            (Kind::Key(keys), _) => keys.check(request),
            (Kind::Jwt(jwt), None) => jwt.check_now(request),
            (Kind::Jwt(jwt), Some(token)) => jwt.check_token(token.as_bytes()),
            (Kind::Basic(_) | Kind::Ask(_), _) => return None,
        };
        self.count(&verdict);
        match verdict {
            Verdict::Known(identity) => Some(identity),
            _ => None,
        }
    }

    /// Returns the same for a key or a token that a client has presented in a message of its protocol.
    pub fn identify_text(&self, text: &str) -> Option<Identity> {
        let verdict = match &self.kind {
            Kind::Key(keys) => keys.check_key(text.as_bytes()),
            Kind::Jwt(jwt) => jwt.check_token(text.as_bytes()),
            Kind::Basic(_) | Kind::Ask(_) => return None,
        };
        self.count(&verdict);
        match verdict {
            Verdict::Known(identity) => Some(identity),
            _ => None,
        }
    }

    /// Returns whether [`identify`](Self::identify) knows all that it can know.
    pub fn is_immediate(&self) -> bool {
        matches!(self.kind, Kind::Key(_) | Kind::Jwt(_))
    }

    /// Judges a request where that needs no waiting.
    pub(crate) fn at_once(&self, flow: &Flow) -> Option<Verdict> {
        let verdict = match &self.kind {
            Kind::Key(keys) => keys.check(&flow.request),
            Kind::Jwt(jwt) => {
                if let Some(news) = jwt.news() {
                    flow.context.local().tell_operator(news);
                }
                jwt.check(&flow.request)?
            }
            Kind::Basic(basic) => basic.at_once(flow)?,
            Kind::Ask(_) => return None,
        };
        self.count(&verdict);
        Some(verdict)
    }

    /// Judges a request that [`at_once`](Self::at_once) has not judged.
    pub(crate) fn later<'a>(&'a self, flow: &'a Flow) -> Later<'a, Verdict> {
        Box::pin(async move {
            let verdict = match &self.kind {
                Kind::Key(keys) => keys.check(&flow.request),
                Kind::Jwt(jwt) => jwt.check_later(&flow.request).await,
                Kind::Basic(basic) => basic.later(flow).await,
                Kind::Ask(ask) => ask.ask(flow).await,
            };
            self.count(&verdict);
            verdict
        })
    }

    fn count(&self, verdict: &Verdict) {
        let count = match verdict {
            Verdict::Known(_) => &self.counts.known,
            Verdict::Unavailable(_) => &self.counts.unavailable,
            Verdict::Missing | Verdict::Wrong | Verdict::Answered(_) => &self.counts.refused,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the value of `WWW-Authenticate` (RFC 9110 §11.6.1). `wrong`: the request had credentials.
    pub(crate) fn challenge(&self, wrong: bool) -> String {
        let realm = &self.settings.realm;
        match &self.kind {
            Kind::Basic(_) => format!("Basic realm=\"{realm}\", charset=\"UTF-8\""),
            // RFC 6750 §3.1.
            Kind::Jwt(_) if wrong => format!("Bearer realm=\"{realm}\", error=\"invalid_token\""),
            Kind::Key(keys) if keys.line().is_some() => format!("ApiKey realm=\"{realm}\""),
            Kind::Key(_) | Kind::Jwt(_) | Kind::Ask(_) => format!("Bearer realm=\"{realm}\""),
        }
    }

    /// Returns the line that tells the caller's name.
    pub(crate) fn tell(&self) -> Option<&str> {
        self.settings.tell.as_deref()
    }

    /// Returns the lines that only this server may write.
    pub(crate) fn own_lines(&self) -> impl Iterator<Item = &str> {
        let of_kind = match &self.kind {
            Kind::Ask(ask) => ask.own_lines(),
            Kind::Jwt(jwt) => jwt.own_lines(),
            Kind::Key(_) | Kind::Basic(_) => &[],
        };
        self.tell().into_iter().chain(of_kind.iter().map(String::as_str))
    }

    /// Returns the line that is not handed on.
    pub(crate) fn hidden(&self) -> Option<&str> {
        let line = match &self.kind {
            Kind::Key(keys) => keys.line().unwrap_or("Authorization"),
            _ => "Authorization",
        };
        self.settings.hide.then_some(line)
    }
}

impl PartialEq for Auth {
    fn eq(&self, other: &Auth) -> bool {
        (&self.settings, &self.kind) == (&other.settings, &other.kind)
    }
}

impl Configured for Auth {
    fn same_as(&self, other: &dyn Any) -> bool {
        same(self, other)
    }

    fn adopt(&self, before: &dyn Any) {
        let Some(before) = before.downcast_ref::<Auth>() else { return };
        for (count, before) in [
            (&self.counts.known, &before.counts.known),
            (&self.counts.refused, &before.counts.refused),
            (&self.counts.unavailable, &before.counts.unavailable),
        ] {
            count.fetch_add(before.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        if let (Kind::Jwt(jwt), Kind::Jwt(before)) = (&self.kind, &before.kind) {
            jwt.adopt(before);
        }
    }

    fn tend(self: Arc<Self>) -> Option<Tending> {
        match &self.kind {
            Kind::Jwt(jwt) => jwt.tend(),
            _ => None,
        }
    }

    fn metrics(&self, labels: &str, out: &mut Families) {
        let help = "Requests by their credentials: valid, not valid, not to be checked now.";
        let mut family = out.family("ringroad_auth_decisions_total", "counter", help);
        for (decision, count) in [
            ("known", &self.counts.known),
            ("refused", &self.counts.refused),
            ("unavailable", &self.counts.unavailable),
        ] {
            let labels = format!("{labels},{}", label("decision", decision));
            family.sample(&labels, count.load(Ordering::Relaxed));
        }
    }
}

/// Reads `[auth.NAME]`. `None`: it is wrong, which is noted.
pub fn read(name: &str, mut section: Section<'_>, _: &NamedTables) -> Option<Arc<dyn Configured>> {
    section.describe(&TABLE);
    let word = section.require("kind", "how clients are known", |value| value::one_of(value, KINDS));
    let kind = word.and_then(|word| match word {
        Word::Key => key::read(&mut section).map(Kind::Key),
        Word::Basic => basic::read(&mut section).map(Kind::Basic),
        Word::Jwt => jwt::read(&mut section).map(Kind::Jwt),
        Word::Ask => ask::read(&mut section).map(Kind::Ask),
    });
    let quotable =
        |text: &str| text.bytes().all(|byte| (b' '..=b'~').contains(&byte) && !b"\"\\".contains(&byte));
    let realm = section.read("realm", |value| {
        let text = value::text(value)?;
        quotable(&text).then_some(text).ok_or_else(|| "expected visible ASCII without quotes".to_owned())
    });
    let realm = realm.unwrap_or_else(|| if quotable(name) { name.to_owned() } else { "ringroad".to_owned() });
    let tell = section.read("tell", words::header_name);
    let hide = section.read("hide", value::truth).unwrap_or(false);
    if word.is_some() {
        section.finish();
    }
    let settings = Settings { realm, tell, hide };
    Some(Arc::new(Auth { settings, kind: kind?, counts: Counts::default() }))
}

/// Returns the token of `Authorization: Bearer TOKEN` (RFC 6750 §2.1).
pub fn bearer(request: &Request) -> Option<&[u8]> {
    let value = only_line(request, "authorization")?;
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// Returns the line with credentials. Of several none counts: a server behind may go by another one than this
/// server, and `Authorization` is no list (RFC 9110 §11.6.2).
fn only_line<'r>(request: &'r Request, name: &'r str) -> Option<&'r [u8]> {
    let mut lines = request.headers().get_all(name);
    let first = lines.next()?;
    lines.next().is_none().then_some(first)
}

/// Returns the SHA-256 of what a client sent.
fn digest(bytes: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes).as_ref());
    out
}
