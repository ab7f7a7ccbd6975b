//! `kind = "basic"`: names with passwords (RFC 7617), kept as hashes by argon2 or bcrypt.
//!
//! A check costs tens of milliseconds by design, so it runs on a thread of its own, few at a time in the
//! whole process, and its result is kept for a while. An unknown name costs as much as a wrong password.

use super::kept::Kept;
use super::{Identity, Verdict, only_line};
use crate::client::network;
use crate::flow::Flow;
use crate::upstream::Room;
use argon2::Argon2;
use argon2::password_hash::PasswordVerifier;
use argon2::password_hash::phc::PasswordHash;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ringroad_engine::spawn_blocking;
use ringroad_policy::Nanos;
use ringroad_settings::{Key, Section, Table, value};
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

pub(super) static TABLE: Table = Table {
    name: "[auth.NAME] kind = \"basic\"",
    meaning: "Names with passwords (`Authorization: Basic`). Checks run on threads of their own, four at a time in the whole \
        process; with 64 more in line, or 32 of one client's address, further ones get 503.",
    keys: &[
        Key {
            name: "users",
            form: "table, as `{ ann = \"$argon2id$v=19$…\", bob = \"$2b$12$…\" }`",
            default: "-",
            meaning: "Hashes of passwords, by argon2 or bcrypt.",
        },
        Key {
            name: "file",
            form: "file name",
            default: "-",
            meaning: "More users: lines of `NAME:HASH`, as `htpasswd -B` writes them. Read at start and by a reload.",
        },
        Key {
            name: "keep",
            form: "time",
            default: "60s",
            meaning: "How long a password that was right is not checked again.",
        },
    ],
};

/// Checks at once.
const AT_ONCE: usize = 4;
/// Checks that wait in line.
const WAITING: usize = 64;
/// Of them, those of one client. A client that tries passwords leaves room for others; one that loads a page
/// over HTTP/2 has less.
const WAITING_OF_ONE: usize = 32;

static TURNS: LazyLock<Arc<Room>> = LazyLock::new(|| Room::new(AT_ONCE));
static LINE: Mutex<Line> = Mutex::new(Line(Vec::new()));

/// Clients that wait for a check, each with how many: few, since the line is short.
struct Line(Vec<(Option<IpAddr>, usize)>);

impl Line {
    fn enter(&mut self, client: Option<IpAddr>) -> bool {
        match self.0.iter_mut().find(|(own, _)| *own == client) {
            Some((_, count)) if *count >= WAITING_OF_ONE => return false,
            Some((_, count)) => *count += 1,
            None => self.0.push((client, 1)),
        }
        true
    }

    fn leave(&mut self, client: Option<IpAddr>) {
        let Some(at) = self.0.iter().position(|(own, _)| *own == client) else { return };
        match self.0.get_mut(at) {
            Some((_, count)) if *count > 1 => *count -= 1,
            _ => drop(self.0.swap_remove(at)),
        }
    }
}

/// A place in line, until it is dropped.
struct Place(Option<IpAddr>);

impl Place {
    fn take(client: Option<IpAddr>) -> Option<Place> {
        let mut line = LINE.lock().unwrap_or_else(PoisonError::into_inner);
        (TURNS.waiting() < WAITING && line.enter(client)).then(|| Place(client))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        LINE.lock().unwrap_or_else(PoisonError::into_inner).leave(self.0);
    }
}

pub(super) struct Basic {
    users: HashMap<String, Arc<str>>,
    keep: Nanos,
    known: Kept<Arc<str>>,
}

impl PartialEq for Basic {
    fn eq(&self, other: &Basic) -> bool {
        (&self.users, self.keep) == (&other.users, other.keep)
    }
}

impl fmt::Debug for Basic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Basic({} users)", self.users.len())
    }
}

/// Returns the credentials of a request.
fn credentials(flow: &Flow) -> Option<&[u8]> {
    let value = only_line(&flow.request, "authorization")?;
    let (scheme, rest) = value.split_at_checked(6)?;
    scheme.eq_ignore_ascii_case(b"basic ").then(|| rest.trim_ascii())
}

fn known(name: Arc<str>) -> Verdict {
    Verdict::Known(Identity { subject: Some(name), ..Identity::default() })
}

impl Basic {
    pub(super) fn at_once(&self, flow: &Flow) -> Option<Verdict> {
        let Some(given) = credentials(flow) else { return Some(Verdict::Missing) };
        self.known.get(&self.known.key(given), flow.context.now()).map(known)
    }

    pub(super) async fn later(&self, flow: &Flow) -> Verdict {
        let Some(given) = credentials(flow) else { return Verdict::Missing };
        let key = self.known.key(given);
        let Some((name, password)) = decoded(given) else { return Verdict::Wrong };
        let Some(place) = Place::take(flow.see_client().map(network)) else {
            return Verdict::Unavailable("too many passwords are being checked".to_owned());
        };
        let turn = TURNS.permit().await;
        drop(place);
        // Of many requests with one password, as a page's are, the first one's result serves the others.
        if let Some(name) = self.known.get(&key, flow.context.now()) {
            return known(name);
        }
        let own = self.users.get(&name);
        // An unknown name is not told from a wrong password by its time.
        let Some(hash) = own.or_else(|| self.users.values().next()).map(Arc::clone) else {
            return Verdict::Wrong;
        };
        // The turn goes with the check, which ends also if the client does not wait for it.
        let check = spawn_blocking(move || {
            let _turn = turn;
            matches(&hash, &password)
        });
        match check.await {
            Ok(true) if own.is_some() => {
                let name: Arc<str> = name.into();
                let now = flow.context.now();
                self.known.put(key, now.saturating_add(self.keep), now, Arc::clone(&name));
                known(name)
            }
            Ok(_) => Verdict::Wrong,
            Err(why) => Verdict::Unavailable(format!("checking a password: {why}")),
        }
    }
}

/// Name and password (RFC 7617 §2): the name has no colon.
fn decoded(given: &[u8]) -> Option<(String, Vec<u8>)> {
    let text = STANDARD.decode(given).ok()?;
    let colon = text.iter().position(|byte| *byte == b':')?;
    let (name, password) = text.split_at(colon);
    Some((String::from_utf8(name.to_vec()).ok()?, password.get(1..)?.to_vec()))
}

fn matches(hash: &str, password: &[u8]) -> bool {
    if hash.starts_with("$argon2") {
        Argon2::default().verify_password(password, hash).is_ok()
    } else {
        bcrypt::verify(password, hash).unwrap_or(false)
    }
}

fn check(hash: &str) -> Result<(), String> {
    let is_bcrypt = ["$2a$", "$2b$", "$2x$", "$2y$"].iter().any(|form| hash.starts_with(form));
    let whole = match hash.starts_with("$argon2") {
        true => PasswordHash::new(hash).is_ok(),
        false => is_bcrypt && hash.parse::<bcrypt::HashParts>().is_ok(),
    };
    whole.then_some(()).ok_or_else(|| {
        "expected the hash of a password by argon2 or bcrypt, as `htpasswd -nB NAME` makes it".to_owned()
    })
}

pub(super) fn read(section: &mut Section<'_>) -> Option<Basic> {
    section.describe(&TABLE);
    let mut users = HashMap::new();
    let mut whole = true;
    if let Some(table) = section.table("users") {
        for (name, value) in table.pairs() {
            let hash = value::text(value).and_then(|hash| check(&hash).map(|()| hash));
            match hash {
                Ok(_) if name.contains(':') => {
                    table.mistake(name, "the name of a user has no colon");
                    whole = false;
                }
                Ok(hash) => drop(users.insert(name.to_owned(), Arc::from(hash))),
                Err(what) => {
                    table.mistake(name, what);
                    whole = false;
                }
            }
        }
    }
    let lines = section.read("file", |value| {
        let name = value::text(value)?;
        let path = section.path(&name);
        let text =
            String::from_utf8(section.file(&name)?).map_err(|_| format!("{}: not UTF-8", path.display()))?;
        let mut read = Vec::new();
        for (at, line) in
            text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        {
            let here = |what: &str| format!("{}, line {}: {what}", path.display(), at + 1);
            let (name, hash) = line.split_once(':').ok_or_else(|| here("expected NAME:HASH"))?;
            check(hash).map_err(|what| here(&what))?;
            read.push((name.to_owned(), Arc::from(hash)));
        }
        Ok(read)
    });
    whole &= lines.is_some() == section.has("file");
    users.extend(lines.unwrap_or_default());
    let keep = section.read("keep", |value| value::span(value, Duration::ZERO));
    if whole && users.is_empty() {
        let what = match section.has("file") {
            true => ("file", "there is no user in it: each line is NAME:HASH, as htpasswd writes it"),
            false => ("users", "missing: expected `users`, `file` or both, with at least one user"),
        };
        section.mistake(what.0, what.1);
        whole = false;
    }
    let keep = keep.unwrap_or(Duration::from_secs(60));
    let keep = u64::try_from(keep.as_nanos()).unwrap_or(u64::MAX);
    whole.then(|| Basic { users, keep, known: Kept::default() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn hashes_of_both_kinds_are_checked_and_others_are_refused() {
        let bcrypt = bcrypt::hash("geheim", 4).unwrap();
        let argon2 = "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc";
        assert!(check(&bcrypt).is_ok() && matches(&bcrypt, b"geheim") && !matches(&bcrypt, b"geheimer"));
        // The test vector of the reference implementation.
        assert!(check(argon2).is_ok() && matches(argon2, b"password") && !matches(argon2, b"Password"));
        for wrong in ["", "geheim", "$apr1$x$y", "$argon2id$x", "{SHA}x"] {
            assert!(check(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn one_client_has_half_of_the_line_and_gives_its_places_back() {
        let mut line = Line(Vec::new());
        let (one, other) = (Some("10.0.0.1".parse().unwrap()), Some("10.0.0.2".parse().unwrap()));
        assert!((0..WAITING_OF_ONE).all(|_| line.enter(one)));
        assert!(!line.enter(one) && line.enter(other) && line.enter(None));
        line.leave(one);
        assert!(line.enter(one) && !line.enter(one));
        (0..WAITING_OF_ONE).for_each(|_| line.leave(one));
        line.leave(other);
        line.leave(None);
        assert!(line.0.is_empty(), "nothing is kept of clients that have gone");
    }

    #[test]
    fn a_password_may_have_colons_and_any_bytes() {
        let given = STANDARD.encode(b"ann:a:\xff");
        assert_eq!(decoded(given.as_bytes()), Some(("ann".to_owned(), b"a:\xff".to_vec())));
        assert_eq!(decoded(b"bm9jb2xvbg=="), None);
        assert_eq!(decoded(b"not base64"), None);
    }
}
