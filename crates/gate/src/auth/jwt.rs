//! `kind = "jwt"`: signed tokens (RFC 7519).
//!
//! Which algorithms count is configured, never read from a token, and each key takes only those of its own
//! type: a token that names another one is refused before any arithmetic. Keys from a URL are fetched ahead
//! of requests ([`Jwt::tend`]); while a fetch fails the old ones stay. A token of a key that is not among
//! them has them fetched at once, and its request waits for that.

use super::kept::Kept;
use super::{Claims, Identity, Verdict, bearer, only_line};
use crate::feature::Tending;
use crate::flow::cookie;
use crate::words;
use jsonwebtoken::jwk::{CommonParameters, JwkSet, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, Header, Validation, decode, decode_header};
use ringroad_engine::sync::Notify;
use ringroad_engine::time;
use ringroad_http::{Client, Request};
use ringroad_settings::{Key, Section, Table, Value, value};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(super) static TABLE: Table = Table {
    name: "[auth.NAME] kind = \"jwt\"",
    meaning: "Signed tokens. A token needs `exp`; `nbf`, `iss` and `aud` are checked. Its `sub` is the caller's name.",
    keys: &[
        Key {
            name: "keys",
            form: "file, or URL as `\"https://id.example.com/jwks.json\"`",
            default: "-",
            meaning: "Public keys: a JSON Web Key Set, or in a file also PEM. A file is read at start and by a reload, a URL is fetched ahead of requests.",
        },
        Key {
            name: "secret",
            form: "text of 32 bytes or more, as `\"$TOKEN_SECRET\"`",
            default: "-",
            meaning: "The shared secret of HS256, HS384 and HS512, in place of `keys`.",
        },
        Key {
            name: "algorithms",
            form: "list of `\"ES256\"`, `\"ES384\"`, `\"RS256\"`, `\"RS384\"`, `\"RS512\"`, `\"PS256\"`, `\"PS384\"`, `\"PS512\"`, `\"EdDSA\"`, `\"HS256\"`, `\"HS384\"`, `\"HS512\"`",
            default: "",
            meaning: "The algorithms that count. What a token says does not matter.",
        },
        Key {
            name: "issuer",
            form: "text or list",
            default: "-",
            meaning: "`iss` must be there and one of these.",
        },
        Key {
            name: "audience",
            form: "text or list",
            default: "-",
            meaning: "`aud` must be there and have one of these.",
        },
        Key {
            name: "claims",
            form: "table, as `{ scope = \"orders.write\" }`",
            default: "-",
            meaning: "Each of these claims must be there with this value: the same text, a list with it, or words with it.",
        },
        Key {
            name: "subject",
            form: "name of a claim",
            default: "sub",
            meaning: "The claim that is the caller's name.",
        },
        Key {
            name: "copy",
            form: "table, as `{ X-Email = \"email\", X-Roles = \"roles\" }`",
            default: "-",
            meaning: "Header lines that tell servers behind and applications a claim: a text, a number, a truth value, or a list of them with commas between. Lines of these names that clients send are removed.",
        },
        Key {
            name: "from",
            form: "`\"header.NAME\"` or `\"cookie.NAME\"`",
            default: "-",
            meaning: "Where the token is; by default `Authorization: Bearer TOKEN`.",
        },
        Key { name: "leeway", form: "time", default: "60s", meaning: "How far clocks may differ." },
        Key {
            name: "refresh",
            form: "time, 10s or more",
            default: "10m",
            meaning: "How often keys are fetched from a URL. A token of an unknown key has them fetched at once, every 30 s at most, and waits for that, 5 s at most.",
        },
    ],
};

/// Time between two fetches because of unknown keys, and from one that failed to the next.
const AGAIN: Duration = Duration::from_secs(30);
const AFTER_FAILURE: Duration = Duration::from_secs(2);
/// How long a request waits at most for a fetch that may bring its key.
const WAIT: Duration = Duration::from_secs(5);
/// The longest set of keys.
const KEYS_BYTES_MAX: usize = 1 << 20;

#[derive(Clone, PartialEq)]
enum Source {
    Secret(Vec<u8>),
    /// The content of a file.
    File(Vec<u8>),
    Url(String),
}

#[derive(Clone, PartialEq)]
enum Place {
    Bearer,
    Header(String),
    Cookie(String),
}

#[derive(Clone, PartialEq)]
struct Settings {
    source: Source,
    algorithms: Vec<Algorithm>,
    issuer: Vec<String>,
    audience: Vec<String>,
    claims: Vec<(String, String)>,
    subject: String,
    /// Names of header lines, and the claims that they tell.
    copy: Vec<(String, String)>,
    from: Place,
    leeway: Duration,
    refresh: Duration,
}

/// A key, and how tokens signed with it are checked.
struct Checked {
    id: Option<String>,
    key: DecodingKey,
    validation: Validation,
}

/// The keys in force, shared with the task that fetches them.
struct Keys {
    settings: Settings,
    /// `None`: none were fetched yet.
    set: RwLock<Option<Arc<Vec<Checked>>>>,
    /// Why the last fetch has failed.
    complaint: RwLock<Option<String>>,
    /// What the operator is to be told of fetches, and whether there is something.
    news: Mutex<Option<String>>,
    has_news: AtomicBool,
    /// Tokens that were checked, by what they are, until they expire.
    known: Kept<Identity>,
    /// A token has named a key that is not there.
    wanted: AtomicBool,
    /// An unknown key has the keys fetched at once; false for some time after that has happened.
    is_heeded: AtomicBool,
    /// The task that fetches runs.
    tended: AtomicBool,
    /// Wakes that task.
    want: Arc<Notify>,
    /// Fetches that have ended.
    fetches: AtomicU64,
    /// Wakes the requests that wait for the end of one.
    fetched: Notify,
}

pub(super) struct Jwt {
    keys: RwLock<Arc<Keys>>,
    /// The lines that tell claims.
    own_lines: Vec<String>,
}

impl PartialEq for Jwt {
    fn eq(&self, other: &Jwt) -> bool {
        self.keys().settings == other.keys().settings
    }
}

impl fmt::Debug for Jwt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Jwt({:?})", self.keys().settings.algorithms)
    }
}

impl Settings {
    /// Returns how tokens of a key of this family are checked; `None`: no algorithm that counts is of it.
    fn validation(&self, family: AlgorithmFamily, only: Option<Algorithm>) -> Option<Validation> {
        let of_family = |algorithm: &&Algorithm| {
            algorithm.family() == family && only.is_none_or(|only| only == **algorithm)
        };
        let algorithms: Vec<_> = self.algorithms.iter().filter(of_family).copied().collect();
        let mut validation = Validation::new(*algorithms.first()?);
        validation.algorithms = algorithms;
        validation.leeway = self.leeway.as_secs();
        validation.validate_nbf = true;
        validation.validate_aud = !self.audience.is_empty();
        let mut required = vec!["exp"];
        if !self.audience.is_empty() {
            validation.set_audience(&self.audience);
            required.push("aud");
        }
        if !self.issuer.is_empty() {
            validation.set_issuer(&self.issuer);
            required.push("iss");
        }
        validation.set_required_spec_claims(&required);
        Some(validation)
    }

    fn checked(&self, id: Option<String>, key: DecodingKey, only: Option<Algorithm>) -> Option<Checked> {
        let validation = self.validation(key.family(), only)?;
        Some(Checked { id, key, validation })
    }

    /// Reads a set of keys, or PEM. Keys that are not for signatures of these algorithms are left out.
    fn keys(&self, bytes: &[u8]) -> Result<Vec<Checked>, String> {
        let pem = [DecodingKey::from_rsa_pem, DecodingKey::from_ec_pem, DecodingKey::from_ed_pem];
        let keys: Vec<Checked> = if bytes.trim_ascii_start().starts_with(b"-----") {
            pem.iter().filter_map(|read| self.checked(None, read(bytes).ok()?, None)).collect()
        } else {
            let set: JwkSet =
                serde_json::from_slice(bytes).map_err(|why| format!("not a JSON Web Key Set: {why}"))?;
            let for_signatures = set.keys.iter().filter(|key| is_for_signatures(&key.common));
            let read = for_signatures.filter_map(|key| {
                let only = key.common.key_algorithm.map(|own| own.to_string().parse::<Algorithm>());
                let only = only.transpose().ok()?;
                self.checked(key.common.key_id.clone(), DecodingKey::from_jwk(key).ok()?, only)
            });
            read.collect()
        };
        if keys.is_empty() {
            return Err("no key for any of `algorithms` is in it".to_owned());
        }
        Ok(keys)
    }
}

impl Jwt {
    fn new(keys: Keys) -> Jwt {
        let own_lines = keys.settings.copy.iter().map(|(line, _)| line.clone()).collect();
        Jwt { keys: RwLock::new(Arc::new(keys)), own_lines }
    }

    fn keys(&self) -> Arc<Keys> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the lines that tell claims.
    pub(super) fn own_lines(&self) -> &[String] {
        &self.own_lines
    }

    /// Takes over the keys that were fetched, where they are to be the same.
    pub(super) fn adopt(&self, before: &Jwt) {
        if self == before {
            *self.keys.write().unwrap_or_else(PoisonError::into_inner) = before.keys();
        }
    }

    /// Checks the token of a request. `None`: its key is fetched now ([`check_later`](Self::check_later)).
    pub(super) fn check(&self, request: &Request) -> Option<Verdict> {
        let keys = self.keys();
        match keys.settings.from.token(request) {
            Some(token) => keys.check(token),
            None => Some(Verdict::Missing),
        }
    }

    /// Checks the token of a request, and waits for keys that are fetched now.
    pub(super) async fn check_later(&self, request: &Request) -> Verdict {
        let keys = self.keys();
        let Some(token) = keys.settings.from.token(request) else { return Verdict::Missing };
        let checked = async {
            loop {
                // Made before the check: a fetch that ends between the two is not missed.
                let fetched = keys.fetched.notified();
                if let Some(verdict) = keys.check(token) {
                    return verdict;
                }
                fetched.await;
            }
        };
        time::timeout(WAIT, checked).await.unwrap_or_else(|_| keys.check_now(token))
    }

    /// Checks the token of a request by the keys that are here.
    pub(super) fn check_now(&self, request: &Request) -> Verdict {
        let keys = self.keys();
        keys.settings.from.token(request).map_or(Verdict::Missing, |token| keys.check_now(token))
    }

    /// Checks a token that is not where the settings say, by the keys that are here.
    pub(super) fn check_token(&self, token: &[u8]) -> Verdict {
        self.keys().check_now(token)
    }

    /// Returns what the operator is to be told of fetches, once.
    pub(super) fn news(&self) -> Option<String> {
        let keys = self.keys();
        if !keys.has_news.load(Ordering::Relaxed) {
            return None;
        }
        keys.has_news.store(false, Ordering::Relaxed);
        keys.news.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Returns the task that fetches keys, unless it runs already.
    pub(super) fn tend(&self) -> Option<Tending> {
        let keys = self.keys();
        let Source::Url(url) = keys.settings.source.clone() else { return None };
        if keys.tended.swap(true, Ordering::Relaxed) {
            return None;
        }
        let (weak, want) = (Arc::downgrade(&keys), Arc::clone(&keys.want));
        let tend = move || async move {
            let client = Client::new();
            let mut next = time::now();
            // When an unknown key may have them fetched.
            let mut free = next;
            loop {
                let Some(keys) = weak.upgrade() else { return };
                let now = time::now();
                let is_wanted = now >= free && keys.wanted.load(Ordering::Relaxed);
                if is_wanted || now >= next {
                    keys.wanted.store(false, Ordering::Relaxed);
                    let fetched = keys.fetch(&client, &url).await;
                    let now = time::now();
                    next = now + if fetched.is_ok() { keys.settings.refresh } else { AFTER_FAILURE };
                    if is_wanted {
                        free = now + AGAIN;
                        keys.is_heeded.store(false, Ordering::Release);
                    }
                    keys.note(&url, fetched.err());
                    keys.fetches.fetch_add(1, Ordering::Release);
                    keys.fetched.notify_waiters();
                } else if now >= free {
                    keys.is_heeded.store(true, Ordering::Release);
                }
                drop(keys);
                let _ = time::timeout(TICK, want.notified()).await;
            }
        };
        Some(Box::new(move || Box::pin(tend())))
    }
}

/// How often the task looks whether it is time to fetch, or to end.
const TICK: Duration = Duration::from_millis(500);

impl Place {
    fn token<'r>(&'r self, request: &'r Request) -> Option<&'r [u8]> {
        match self {
            Place::Bearer => bearer(request),
            Place::Header(name) => only_line(request, name),
            Place::Cookie(name) => cookie(request, name).map(str::as_bytes),
        }
    }
}

impl Keys {
    /// Checks a token by the keys that are here.
    fn check_now(&self, token: &[u8]) -> Verdict {
        self.check(token).unwrap_or_else(|| match self.set().is_some() {
            true => Verdict::Wrong,
            false => self.without_keys(),
        })
    }

    fn set(&self) -> Option<Arc<Vec<Checked>>> {
        self.set.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn without_keys(&self) -> Verdict {
        let complaint = self.complaint.read().unwrap_or_else(PoisonError::into_inner);
        let why = complaint.as_deref().map_or_else(String::new, |why| format!(": {why}"));
        Verdict::Unavailable(format!("keys: none were fetched yet{why}"))
    }

    /// Checks a token. `None`: keys are fetched now, and its key may be among them.
    fn check(&self, token: &[u8]) -> Option<Verdict> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let hash = self.known.key(token);
        if let Some(identity) = self.known.get(&hash, now) {
            return Some(Verdict::Known(identity));
        }
        // Read before the set: if a fetch ends between, its keys count.
        let is_tended = self.tended.load(Ordering::Relaxed);
        let is_first = is_tended && self.fetches.load(Ordering::Acquire) == 0;
        let is_heeded = is_tended && self.is_heeded.load(Ordering::Acquire);
        let Some(set) = self.set() else { return (!is_first).then(|| self.without_keys()) };
        let Ok(header) = decode_header(token) else { return Some(Verdict::Wrong) };
        let named = |key: &Checked| header.kid.is_none() || key.id.is_none() || key.id == header.kid;
        if !set.iter().any(named) {
            if !self.wanted.swap(true, Ordering::Relaxed) && is_heeded {
                self.want.notify_one();
            }
            return (!is_heeded).then_some(Verdict::Wrong);
        }
        let judged = self.judge(set.iter().filter(|key| named(key)), &header, token);
        let Some((identity, until)) = judged else { return Some(Verdict::Wrong) };
        self.known.put(hash, until, now, identity.clone());
        Some(Verdict::Known(identity))
    }

    /// Checks a token by the keys that it may be signed with. Returns its owner, and until when it counts.
    fn judge<'k>(
        &self,
        mut keys: impl Iterator<Item = &'k Checked>,
        header: &Header,
        token: &[u8],
    ) -> Option<(Identity, u64)> {
        // None of the extensions that it may list there is understood here (RFC 7515 §4.1.11).
        if header.crit.is_some() {
            return None;
        }
        let claims = keys.find_map(|checked| {
            let decoded = decode::<serde_json::Map<String, serde_json::Value>>(
                token,
                &checked.key,
                &checked.validation,
            );
            decoded.ok().map(|decoded| decoded.claims)
        })?;
        let settings = &self.settings;
        if !settings.claims.iter().all(|(name, wanted)| claims.get(name).is_some_and(|own| has(own, wanted)))
        {
            return None;
        }
        let subject = claims.get(&settings.subject).and_then(serde_json::Value::as_str).map(Arc::from);
        let expires = claims.get("exp").and_then(serde_json::Value::as_f64).unwrap_or(0.0).max(0.0) as u64;
        let told = settings
            .copy
            .iter()
            .filter_map(|(line, name)| Some((line.clone(), text(claims.get(name)?)?.into())));
        let lines = told.collect();
        let claims = Some(Arc::new(Claims { typ: header.typ.clone(), all: claims }));
        Some((
            Identity { subject, lines, claims, ..Identity::default() },
            expires.saturating_add(settings.leeway.as_secs()),
        ))
    }

    /// Notes how a fetch has ended. Without any keys each request says why; with those fetched before, only
    /// this does.
    fn note(&self, url: &str, why: Option<String>) {
        let has_keys = self.set.read().unwrap_or_else(PoisonError::into_inner).is_some();
        let mut complaint = self.complaint.write().unwrap_or_else(PoisonError::into_inner);
        let news = match (&why, &*complaint) {
            (Some(why), None) if has_keys => {
                Some(format!("keys for tokens: {url}: {why}; those that were fetched before stay in force"))
            }
            (None, Some(_)) => Some(format!("keys for tokens: {url}: fetched again")),
            _ => None,
        };
        *complaint = why.map(|why| format!("{url}: {why}"));
        if news.is_some() {
            *self.news.lock().unwrap_or_else(PoisonError::into_inner) = news;
            self.has_news.store(true, Ordering::Relaxed);
        }
    }

    async fn fetch(&self, client: &Client, url: &str) -> Result<(), String> {
        let mut response = client.get(url).send().await.map_err(|why| why.to_string())?;
        if response.status().code() != 200 {
            return Err(format!("status {}", response.status().code()));
        }
        let bytes = response.bytes(KEYS_BYTES_MAX).await.map_err(|why| why.to_string())?;
        let keys = self.settings.keys(&bytes)?;
        *self.set.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(keys));
        // A key that is gone counts no more.
        self.known.clear();
        Ok(())
    }
}

/// Returns whether a key may check signatures, by its `use` and `key_ops` (RFC 7517 §4.2, §4.3).
fn is_for_signatures(key: &CommonParameters) -> bool {
    let verifies = |operations: &Vec<KeyOperations>| {
        operations.iter().any(|one| matches!(one, KeyOperations::Verify | KeyOperations::Sign))
    };
    matches!(key.public_key_use, None | Some(PublicKeyUse::Signature))
        && key.key_operations.as_ref().is_none_or(verifies)
}

/// Returns whether a claim has a value: as its text, as one of its list, or as one of its words (RFC 8693
/// §4.2).
fn has(claim: &serde_json::Value, wanted: &str) -> bool {
    match claim {
        serde_json::Value::String(text) => text == wanted || text.split(' ').any(|word| word == wanted),
        serde_json::Value::Array(all) => all.iter().any(|one| one.as_str() == Some(wanted)),
        serde_json::Value::Bool(own) => wanted.parse() == Ok(*own),
        serde_json::Value::Number(own) => own.to_string() == wanted,
        _ => false,
    }
}

/// Returns a claim as the value of a header line. `None`: it has no such form, or a text of a list has a
/// comma.
fn text(claim: &serde_json::Value) -> Option<String> {
    match claim {
        serde_json::Value::String(text) => Some(text.clone()),
        serde_json::Value::Number(_) | serde_json::Value::Bool(_) => Some(claim.to_string()),
        serde_json::Value::Array(all) => {
            let texts: Option<Vec<_>> = all.iter().filter(|one| !one.is_array()).map(text).collect();
            let texts = texts
                .filter(|texts| texts.len() == all.len() && !texts.iter().any(|text| text.contains(',')))?;
            Some(texts.join(","))
        }
        _ => None,
    }
}

fn texts(value: &Value<'_>) -> Result<Vec<String>, String> {
    value::some(value, "texts", value::text)
}

fn algorithm(value: &Value<'_>) -> Result<Algorithm, String> {
    let name = value::text(value)?;
    name.parse().map_err(|_| value::found("an algorithm of signatures, as \"ES256\"", value))
}

pub(super) fn read(section: &mut Section<'_>) -> Option<Jwt> {
    section.describe(&TABLE);
    let algorithms = section.require("algorithms", "the algorithms that count, as [\"ES256\"]", |value| {
        value::some(value, "algorithms", algorithm)
    });
    let secret = section.read("secret", |value| {
        let secret = value::text(value)?.into_bytes();
        (secret.len() >= 32).then_some(Source::Secret(secret)).ok_or_else(|| {
            "expected a secret of 32 bytes or more: a shorter one can be found out from one token".to_owned()
        })
    });
    let keys = section.read("keys", |value| {
        let text = value::text(value)?;
        if words::after_http(&text).is_some() {
            return Ok(Source::Url(text));
        }
        section.file(&text).map(Source::File)
    });
    if section.has("secret") == section.has("keys") {
        section.mistake("keys", "expected `keys` or `secret`");
    }
    let issuer = section.read("issuer", texts);
    let audience = section.read("audience", texts);
    let mut claims = Some(Vec::new());
    if let Some(table) = section.table("claims") {
        for (name, value) in table.pairs() {
            match (value::text(value), &mut claims) {
                (Ok(text), Some(claims)) => claims.push((name.to_owned(), text)),
                (Ok(_), None) => {}
                (Err(what), _) => {
                    table.mistake(name, what);
                    claims = None;
                }
            }
        }
    }
    let subject = section.read("subject", value::text);
    let mut copy = Some(Vec::new());
    if let Some(table) = section.table("copy") {
        for (line, value) in table.pairs() {
            let claim = words::check_name(line).and_then(|()| value::text(value));
            match (claim, &mut copy) {
                (Ok(claim), Some(copy)) => copy.push((line.to_owned(), claim)),
                (Ok(_), None) => {}
                (Err(what), _) => {
                    table.mistake(line, what);
                    copy = None;
                }
            }
        }
    }
    let from = section.read("from", |value| {
        let text = value::text(value)?;
        match text.split_once('.') {
            Some(("header", name)) => words::check_name(name).map(|()| Place::Header(name.to_owned())),
            Some(("cookie", name)) => words::check_name(name).map(|()| Place::Cookie(name.to_owned())),
            _ => Err(value::found("\"header.NAME\" or \"cookie.NAME\"", value)),
        }
    });
    let leeway = section.read("leeway", |value| value::span(value, Duration::ZERO));
    let refresh = section.read("refresh", |value| value::span(value, Duration::from_secs(10)));
    // What is wrong must not become what admits more.
    let whole = issuer.is_some() == section.has("issuer")
        && audience.is_some() == section.has("audience")
        && from.is_some() == section.has("from");
    let settings = Settings {
        source: secret.or(keys)?,
        algorithms: algorithms?,
        issuer: issuer.unwrap_or_default(),
        audience: audience.unwrap_or_default(),
        claims: claims?,
        subject: subject.unwrap_or_else(|| "sub".to_owned()),
        copy: copy?,
        from: from.unwrap_or(Place::Bearer),
        leeway: leeway.unwrap_or(Duration::from_secs(60)),
        refresh: refresh.unwrap_or(Duration::from_secs(600)),
    };
    let set = match &settings.source {
        Source::Url(_) => Ok(None),
        Source::File(bytes) => settings.keys(bytes).map(Some),
        Source::Secret(secret) => {
            let key = settings.checked(None, DecodingKey::from_secret(secret), None);
            key.map(|key| Some(vec![key]))
                .ok_or_else(|| "`algorithms` has none for a secret, as \"HS256\"".to_owned())
        }
    };
    let set = set.map_err(|what| section.mistake("keys", what)).ok()?;
    let keys = Keys {
        settings,
        set: RwLock::new(set.map(Arc::new)),
        complaint: RwLock::default(),
        news: Mutex::default(),
        has_news: AtomicBool::new(false),
        known: Kept::default(),
        wanted: AtomicBool::new(false),
        is_heeded: AtomicBool::new(true),
        tended: AtomicBool::new(false),
        want: Arc::default(),
        fetches: AtomicU64::new(0),
        fetched: Notify::default(),
    };
    whole.then(|| Jwt::new(keys))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use jsonwebtoken::{EncodingKey, encode};
    use ringroad_http::{FieldBlock, RequestBody};
    use serde_json::{Value, json};

    const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";

    fn jwt(change: impl FnOnce(&mut Settings)) -> Jwt {
        let mut settings = Settings {
            source: Source::Secret(SECRET.to_vec()),
            algorithms: vec![Algorithm::HS256],
            issuer: vec!["here".to_owned()],
            audience: vec!["api".to_owned()],
            claims: vec![("scope".to_owned(), "write".to_owned())],
            subject: "sub".to_owned(),
            copy: Vec::new(),
            from: Place::Bearer,
            leeway: Duration::from_secs(60),
            refresh: Duration::from_secs(600),
        };
        change(&mut settings);
        let key = settings.checked(None, DecodingKey::from_secret(SECRET), None);
        Jwt::new(Keys {
            settings,
            set: RwLock::new(Some(Arc::new(key.into_iter().collect()))),
            complaint: RwLock::default(),
            news: Mutex::default(),
            has_news: AtomicBool::new(false),
            known: Kept::default(),
            wanted: AtomicBool::new(false),
            is_heeded: AtomicBool::new(true),
            tended: AtomicBool::new(false),
            want: Arc::default(),
            fetches: AtomicU64::new(0),
            fetched: Notify::default(),
        })
    }

    fn now() -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
    }

    fn claims(change: impl FnOnce(&mut serde_json::Map<String, Value>)) -> Value {
        let mut claims = json!({
            "sub": "ann", "iss": "here", "aud": ["api", "web"], "scope": "read write", "exp": now() + 60,
        });
        change(claims.as_object_mut().unwrap());
        claims
    }

    fn token(header: &Header, claims: &Value) -> String {
        encode(header, claims, &EncodingKey::from_secret(SECRET)).unwrap()
    }

    fn verdict(jwt: &Jwt, token: &str) -> Verdict {
        let lines = FieldBlock::of([("Authorization", format!("Bearer {token}").as_str())]).unwrap();
        jwt.check_now(&Request::from_parts("GET", "/", "a", &lines, RequestBody::empty()).unwrap())
    }

    #[test]
    fn a_token_is_known_only_with_all_that_is_asked_of_it() {
        let jwt = jwt(|_| {});
        let good = token(&Header::default(), &claims(|_| {}));
        for _ in 0..2 {
            let Verdict::Known(identity) = verdict(&jwt, &good) else { panic!("refused") };
            assert_eq!(identity.subject.as_deref(), Some("ann"));
        }
        type Change = Box<dyn Fn(&mut serde_json::Map<String, Value>)>;
        let changes: [(&str, Change); 8] = [
            ("expired", Box::new(|c| drop(c.insert("exp".into(), json!(now() - 100))))),
            ("without exp", Box::new(|c| drop(c.remove("exp")))),
            ("not yet valid", Box::new(|c| drop(c.insert("nbf".into(), json!(now() + 1000))))),
            ("of another issuer", Box::new(|c| drop(c.insert("iss".into(), json!("there"))))),
            ("without an issuer", Box::new(|c| drop(c.remove("iss")))),
            ("for others", Box::new(|c| drop(c.insert("aud".into(), json!("web"))))),
            ("without an audience", Box::new(|c| drop(c.remove("aud")))),
            ("of another scope", Box::new(|c| drop(c.insert("scope".into(), json!("writer"))))),
        ];
        for (what, change) in changes {
            let token = token(&Header::default(), &claims(change));
            assert!(matches!(verdict(&jwt, &token), Verdict::Wrong), "{what}");
        }
    }

    #[test]
    fn a_claim_is_told_where_it_has_the_form_of_a_line() {
        for (claim, told) in [
            (json!("a b"), Some("a b")),
            (json!(3), Some("3")),
            (json!(true), Some("true")),
            (json!(["a", 1]), Some("a,1")),
            (json!([]), Some("")),
            // Two would be told from one no more.
            (json!(["a,b"]), None),
            (json!([["a"]]), None),
            (json!({ "a": 1 }), None),
            (json!(null), None),
        ] {
            assert_eq!(text(&claim).as_deref(), told, "{claim}");
        }
    }

    #[test]
    fn what_a_token_says_of_its_algorithm_does_not_count() {
        let jwt = jwt(|settings| settings.algorithms = vec![Algorithm::HS384, Algorithm::ES256]);
        let own = token(&Header::new(Algorithm::HS384), &claims(|_| {}));
        assert!(matches!(verdict(&jwt, &own), Verdict::Known(_)));
        let weaker = token(&Header::new(Algorithm::HS256), &claims(|_| {}));
        assert!(matches!(verdict(&jwt, &weaker), Verdict::Wrong));
        // `none` is no algorithm: header and claims, and no signature.
        let (_, body) = own.split_once('.').unwrap();
        let (body, signature) = body.split_once('.').unwrap();
        for forged in [
            format!("eyJhbGciOiJub25lIn0.{body}."),
            format!("eyJhbGciOiJub25lIn0.{body}.{signature}"),
            own.trim_end_matches(|c| c != '.').to_owned(),
            "a.b.c".to_owned(),
        ] {
            assert!(matches!(verdict(&jwt, &forged), Verdict::Wrong), "{forged}");
        }
    }

    #[test]
    fn a_public_key_is_never_taken_for_a_secret() {
        // The known attack: a token signed with HMAC, with the text of the public key as the secret.
        let set = br#"{"keys":[{"kty":"EC","crv":"P-256","kid":"1","use":"sig","alg":"ES256",
            "x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}"#;
        let jwt = jwt(|settings| settings.algorithms = vec![Algorithm::ES256, Algorithm::HS256]);
        let keys = jwt.keys();
        let read = keys.settings.keys(set).unwrap();
        assert_eq!(read[0].validation.algorithms, [Algorithm::ES256]);
        *keys.set.write().unwrap() = Some(Arc::new(read));
        let forged = encode(&Header::default(), &claims(|_| {}), &EncodingKey::from_secret(set)).unwrap();
        assert!(matches!(verdict(&jwt, &forged), Verdict::Wrong));
        assert!(keys.settings.keys(br#"{"keys":[]}"#).is_err());
    }

    #[test]
    fn a_fetch_that_fails_and_one_that_succeeds_again_are_told_once_each() {
        const URL: &str = "http://a/keys";
        let jwt = jwt(|_| {});
        let keys = jwt.keys();
        let note = |why: Option<&str>| {
            keys.note(URL, why.map(str::to_owned));
            (jwt.news().unwrap_or_default(), jwt.news())
        };
        let failed =
            "keys for tokens: http://a/keys: status 503; those that were fetched before stay in force";
        assert_eq!(note(None), (String::new(), None));
        assert_eq!(note(Some("status 503")), (failed.to_owned(), None));
        assert_eq!(note(Some("status 503")), (String::new(), None));
        assert_eq!(note(None), ("keys for tokens: http://a/keys: fetched again".to_owned(), None));
        // Before there are any, each request says why it is refused.
        *keys.set.write().unwrap() = None;
        assert_eq!(note(Some("status 503")), (String::new(), None));
    }

    #[test]
    fn a_token_with_an_extension_that_has_to_be_understood_is_refused() {
        let jwt = jwt(|_| {});
        let header = Header { crit: Some(vec!["b64".to_owned()]), ..Header::default() };
        assert!(matches!(verdict(&jwt, &token(&header, &claims(|_| {}))), Verdict::Wrong));
    }

    #[test]
    fn a_key_for_something_else_than_signatures_is_left_out() {
        let jwt = jwt(|settings| settings.algorithms = vec![Algorithm::ES256]);
        let read = |more: &str| {
            let set = format!(
                "{{\"keys\":[{{\"kty\":\"EC\",\"crv\":\"P-256\",{more}\
                 \"x\":\"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU\",\
                 \"y\":\"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0\"}}]}}"
            );
            jwt.keys().settings.keys(set.as_bytes()).is_ok()
        };
        for more in
            ["", "\"use\":\"sig\",", "\"key_ops\":[\"verify\"],", "\"key_ops\":[\"sign\",\"verify\"],"]
        {
            assert!(read(more), "{more}");
        }
        for more in [
            "\"use\":\"enc\",",
            "\"key_ops\":[\"encrypt\"],",
            "\"key_ops\":[\"deriveKey\"],",
            "\"key_ops\":[],",
        ] {
            assert!(!read(more), "{more}");
        }
    }

    /// Signatures of others: `json_web_signature_test.json` of the project Wycheproof, named by the variable
    /// `WYCHEPROOF_JWS`. Their payloads are no claims, so what is asked is whether it comes to the claims.
    #[test]
    #[ignore = "needs a file of another project"]
    fn signatures_of_wycheproof_are_judged_as_it_says() {
        let file = std::env::var("WYCHEPROOF_JWS").unwrap();
        let all: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        let algorithms = "ES256 ES384 RS256 RS384 RS512 PS256 PS384 PS512 EdDSA HS256 HS384 HS512";
        let algorithms: Vec<Algorithm> = algorithms.split(' ').map(|name| name.parse().unwrap()).collect();
        let jwt = jwt(|settings| settings.algorithms.clone_from(&algorithms));
        let (mut wrong, mut right, mut foreign) = (Vec::new(), 0, 0);
        for group in all["testGroups"].as_array().unwrap() {
            let key = group.get("public").or_else(|| group.get("private")).unwrap();
            let set = jwt.keys().settings.keys(json!({ "keys": [key] }).to_string().as_bytes());
            for test in group["tests"].as_array().unwrap() {
                let token = test["jws"].as_str().map_or_else(|| test["jws"].to_string(), str::to_owned);
                let is_signed = set.as_ref().is_ok_and(|set| is_signed(set, token.as_bytes()));
                let is_valid = match test["tcId"].as_u64() {
                    // PS384 by a key for PS256, and a character outside of base64url: refused here.
                    Some(346 | 350 | 372 | 373) => false,
                    // Nothing is wrong with these: they are the token of 357, which is valid.
                    Some(367 | 370) => true,
                    _ => test["result"] == "valid",
                };
                match (is_signed == is_valid, &set) {
                    (true, _) => right += 1,
                    (false, Err(_)) => foreign += 1,
                    (false, Ok(_)) => {
                        wrong.push(format!("{}: {} {}", test["tcId"], test["comment"], test["result"]))
                    }
                }
            }
        }
        println!("{right} right, {foreign} with keys that are not used here");
        assert!(wrong.is_empty() && right > 300, "{right} right, wrong: {wrong:#?}");
    }

    fn is_signed(set: &[Checked], token: &[u8]) -> bool {
        let Ok(header) = decode_header(token) else { return false };
        header.crit.is_none()
            && set.iter().any(|checked| {
                let mut validation = checked.validation.clone();
                validation.set_required_spec_claims::<&str>(&[]);
                match decode::<Value>(token, &checked.key, &validation) {
                    Ok(_) => true,
                    Err(why) => matches!(why.kind(), jsonwebtoken::errors::ErrorKind::Json(_)),
                }
            })
    }

    #[test]
    fn an_unknown_key_has_the_keys_fetched_again() {
        let jwt = jwt(|_| {});
        let keys = jwt.keys();
        let key = keys.settings.checked(Some("1".to_owned()), DecodingKey::from_secret(SECRET), None);
        *keys.set.write().unwrap() = Some(Arc::new(key.into_iter().collect()));
        let with = |kid: &str| Header { kid: Some(kid.to_owned()), ..Header::default() };
        assert!(matches!(verdict(&jwt, &token(&with("1"), &claims(|_| {}))), Verdict::Known(_)));
        assert!(!keys.wanted.load(Ordering::Relaxed));
        assert!(matches!(verdict(&jwt, &token(&with("2"), &claims(|_| {}))), Verdict::Wrong));
        assert!(keys.wanted.load(Ordering::Relaxed));
    }
}
