//! One server behind this one: where it is, and what all workers know of it.
//!
//! What decisions must agree on is atomic and shared by all workers: requests in flight, the time until which
//! it is left out. Counters are shared too: they change once for each request.

use ringroad_engine::net::split_zone;
use ringroad_policy::ewma::PeakEwma;
use ringroad_policy::health::{Health, slow_start};
use ringroad_policy::{Nanos, ejection};
use ringroad_wire::after_scheme;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A name or an address without brackets, and a port.
    Tcp {
        /// The name or address.
        host: String,
        /// The port, from 1 on.
        port: u16,
    },
    /// A socket in the file system.
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp { host, port } => write!(f, "{host}:{port}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Why a text is no server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadAddress {
    /// It has another form.
    Form,
    /// Port 0 is not a port to connect to.
    Port,
    /// The path has a character that a request target cannot have.
    Path,
    /// A Unix socket without a file.
    Abstract,
}

impl Address {
    /// Reads `http://HOST[:PORT][/PATH]`, the same with `https://`, or `unix:SOCKET[:/PATH]`; a socket's path
    /// begins at `folder`. Returns the address and the path, if one was given. The scheme is not part of it.
    ///
    /// # Errors
    /// Another form.
    pub fn parse(text: &str, folder: &Path) -> Result<(Address, Option<String>), BadAddress> {
        if let Some(rest) = text.strip_prefix("unix:") {
            let (socket, path) = match rest.split_once(':') {
                Some((socket, path)) => (socket, Some(path)),
                None => (rest, None),
            };
            if socket.is_empty() {
                return Err(BadAddress::Form);
            }
            if socket.starts_with('@') {
                return Err(BadAddress::Abstract);
            }
            return Ok((Address::Unix(folder.join(socket)), path.map(target).transpose()?));
        }
        let (rest, standard) = match after_scheme(text, "https") {
            Some(rest) => (rest, 443),
            None => (after_scheme(text, "http").ok_or(BadAddress::Form)?, 80),
        };
        let (authority, path) = match rest.find('/') {
            Some(at) => (rest.get(..at).unwrap_or_default(), rest.get(at..)),
            None => (rest, None),
        };
        let (host, port) = match authority.rsplit_once(':') {
            // The last colon of an address in brackets is not a port's.
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().map_err(|_| BadAddress::Form)?),
            _ => (authority, standard),
        };
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_host = match bare {
            Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok() || split_zone(inner).is_some(),
            None => {
                !host.is_empty()
                    && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
            }
        };
        if !is_host {
            return Err(BadAddress::Form);
        }
        if port == 0 {
            return Err(BadAddress::Port);
        }
        let host = match bare.and_then(split_zone) {
            Some((address, zone)) => format!("{address}%{zone}"),
            None => bare.unwrap_or(host).to_owned(),
        };
        Ok((Address::Tcp { host, port }, path.map(target).transpose()?))
    }
}

/// Returns a path that can be written into a request line as it is.
fn target(path: &str) -> Result<String, BadAddress> {
    let odd = |byte: u8| {
        matches!(byte, b'?' | b'#' | b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}')
    };
    let fits = path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic() && !odd(byte));
    if fits { Ok(path.to_owned()) } else { Err(BadAddress::Path) }
}

/// What a server is to a group at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Gets requests.
    Up,
    /// Failed too often in a row; left out until then.
    Ejected(Nanos),
    /// Its checks fail.
    Down,
}

/// A server of a group, shared by all workers. It is kept over a reload where group and address are the same.
#[derive(Debug)]
pub struct Server {
    address: Address,
    /// The address as text.
    name: Arc<str>,
    id: u64,
    weight: u32,
    backup: bool,
    in_flight: AtomicU32,
    latency: PeakEwma,
    /// Nanoseconds to the head of an answer, smoothed; 0 before the first one.
    took: AtomicU64,
    ejection: Mutex<ejection::Ejection>,
    /// A copy of the ejection's end, to be read without its lock.
    ejected_until: AtomicU64,
    /// What active checks say; without checks it stays.
    healthy: AtomicBool,
    health: Mutex<Health>,
    /// When checks found it well again; 0: it never was away.
    came_back: AtomicU64,
    /// Why the last check was bad.
    complaint: Mutex<Option<String>>,
    /// Requests that were sent to it, and those that failed.
    pub sent: AtomicU64,
    /// Those that failed: no connection, no answer, one that breaks the protocol, or a status of `retry.on`.
    pub failed: AtomicU64,
    /// Answers with a status of 5xx. Only a breaker takes them for failures.
    pub errors: AtomicU64,
    /// Times it was left out.
    pub ejections: AtomicU64,
}

impl Server {
    /// Makes a server that nothing is known of.
    pub fn new(address: Address, weight: u32) -> Server {
        let name = address.to_string();
        Server {
            id: super::hash(&name),
            name: name.into(),
            address,
            weight: weight.max(1),
            backup: false,
            in_flight: AtomicU32::new(0),
            latency: PeakEwma::default(),
            took: AtomicU64::new(0),
            ejection: Mutex::default(),
            ejected_until: AtomicU64::new(0),
            healthy: AtomicBool::new(true),
            health: Mutex::new(Health::new(true)),
            came_back: AtomicU64::new(0),
            complaint: Mutex::default(),
            sent: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            ejections: AtomicU64::new(0),
        }
    }

    /// Sets whether the server gets only requests that no other server of the group can have.
    #[must_use]
    pub fn as_backup(mut self, backup: bool) -> Server {
        self.backup = backup;
        self
    }

    /// Returns whether it gets only requests that no other server can have.
    pub fn is_backup(&self) -> bool {
        self.backup
    }

    /// Returns where it listens.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Returns where it listens, as text.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns a number that follows from its address: for hash rings and cookies.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns its share beside others.
    pub fn weight(&self) -> u32 {
        self.weight
    }

    /// Requests in flight, of all workers.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub(super) fn begin(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn end(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns how slow it is taken for by the choice of servers: with penalties for failures, and forgotten
    /// with time.
    pub fn latency(&self) -> &PeakEwma {
        &self.latency
    }

    /// Returns how long the heads of its answers took of late, for people; `None` before the first one.
    pub fn took(&self) -> Option<Duration> {
        let took = self.took.load(Ordering::Relaxed);
        (took > 0).then(|| Duration::from_nanos(took))
    }

    /// Takes in how long an answer took: an eighth of each new one, seven of what was known. Of two at the
    /// same moment one may be lost.
    pub(super) fn answered(&self, took: Nanos) {
        let known = self.took.load(Ordering::Relaxed);
        let next = if known == 0 { took } else { known - known / 8 + took / 8 };
        self.took.store(next.max(1), Ordering::Relaxed);
    }

    /// Returns what it is at `now`.
    pub fn state(&self, now: Nanos) -> State {
        if !self.healthy.load(Ordering::Relaxed) {
            return State::Down;
        }
        match self.ejected_until.load(Ordering::Relaxed) {
            until if until > now => State::Ejected(until),
            _ => State::Up,
        }
    }

    /// Puts in what an active check says.
    pub fn set_healthy(&self, healthy: bool) {
        *self.health.lock().unwrap_or_else(PoisonError::into_inner) = Health::new(healthy);
        self.healthy.store(healthy, Ordering::Relaxed);
    }

    /// Takes in a check, and why it was bad. After `rise` good or `fall` bad ones in a row the state changes,
    /// which is returned.
    pub fn checked(&self, complaint: Option<String>, rise: u32, fall: u32, now: Nanos) -> bool {
        let mut health = self.health.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = health.checked(complaint.is_none(), rise, fall);
        if changed && health.is_healthy() {
            self.came_back.store(now, Ordering::Relaxed);
        }
        self.healthy.store(health.is_healthy(), Ordering::Relaxed);
        *self.complaint.lock().unwrap_or_else(PoisonError::into_inner) = complaint;
        changed
    }

    /// Returns why its last check was bad; `None`: it was good, or there was none.
    pub fn complaint(&self) -> Option<String> {
        self.complaint.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Its weight in hundredths: less while it has been back for less than `window`.
    pub(super) fn weight_now(&self, window: Nanos, now: Nanos) -> u32 {
        let back = self.came_back.load(Ordering::Relaxed).max(self.ejected_until.load(Ordering::Relaxed));
        let share = match back {
            0 => f64::from(self.weight),
            back => slow_start(self.weight, now.saturating_sub(back), window),
        };
        (share * 100.0) as u32
    }

    /// Notes that a request was answered well.
    pub fn succeeded(&self, settings: &ejection::Settings, now: Nanos) {
        self.ejection.lock().unwrap_or_else(PoisonError::into_inner).succeeded(settings, now);
    }

    /// Notes that a request failed. `may`: the group can do without this server. Returns whether it is left
    /// out from now on.
    pub fn failed(&self, settings: &ejection::Settings, now: Nanos, may: bool, random: u64) -> bool {
        self.failed.fetch_add(1, Ordering::Relaxed);
        let mut ejection = self.ejection.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(until) = ejection.failed(settings, now, may, random) else { return false };
        self.ejected_until.store(until, Ordering::Relaxed);
        self.ejections.fetch_add(1, Ordering::Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_address_is_read_in_each_of_its_forms_and_written_again() {
        for (text, address, path) in [
            ("http://127.0.0.1:3000", "127.0.0.1:3000", None),
            ("http://app.internal", "app.internal:80", None),
            ("http://[::1]:8080/v1/", "[::1]:8080", Some("/v1/")),
            ("http://a-b_c.example/", "a-b_c.example:80", Some("/")),
            ("https://app.internal/v1", "app.internal:443", Some("/v1")),
            ("https://[::1]:8443", "[::1]:8443", None),
            ("http://[fe80::1%25eth0]:81/v1", "[fe80::1%eth0]:81", Some("/v1")),
            ("http://[fe80::1%3]", "[fe80::1%3]:80", None),
            ("unix:/run/app.sock", "unix:/run/app.sock", None),
            ("unix:app.sock:/v1/", "unix:/etc/app.sock", Some("/v1/")),
            ("unix:./@app", "unix:/etc/./@app", None),
        ] {
            let (read, rest) = Address::parse(text, Path::new("/etc")).unwrap();
            assert_eq!((read.to_string().as_str(), rest.as_deref()), (address, path), "{text}");
        }
        for (text, why) in [
            ("127.0.0.1:3000", BadAddress::Form),
            ("https://", BadAddress::Form),
            ("http://", BadAddress::Form),
            ("http://a b", BadAddress::Form),
            ("http://a:x", BadAddress::Form),
            ("http://user@a", BadAddress::Form),
            ("http://[::1", BadAddress::Form),
            ("http://[fe80::1%]", BadAddress::Form),
            ("http://[127.0.0.1%lo]", BadAddress::Form),
            ("http://a%lo", BadAddress::Form),
            ("unix:", BadAddress::Form),
            ("unix:@app:/v1/", BadAddress::Abstract),
            ("http://a:0/", BadAddress::Port),
            ("http://a/\"x\"", BadAddress::Path),
            ("http://a/x?y", BadAddress::Path),
        ] {
            assert_eq!(Address::parse(text, Path::new("")), Err(why), "{text}");
        }
    }

    #[test]
    fn a_server_that_comes_back_gets_its_share_slowly() {
        let server = Server::new(Address::Tcp { host: "a".to_owned(), port: 1 }, 4);
        let (second, window) = (1_000_000_000, 10_000_000_000);
        assert_eq!(server.weight_now(window, second), 400, "servers of a new group have their share");
        for state in [true, false, false] {
            assert_eq!(server.state(second), if state { State::Up } else { State::Down });
            let changes = server.checked((!state).then(|| "status 500".to_owned()), 2, 1, second);
            assert!(!changes);
            assert_eq!(server.checked(Some("status 500".to_owned()), 2, 1, second), state);
        }
        assert_eq!(server.complaint().as_deref(), Some("status 500"));
        server.checked(None, 2, 1, second);
        assert_eq!(server.state(second), State::Down, "one good check is not enough");
        server.checked(None, 2, 1, second);
        assert_eq!((server.state(second), server.complaint()), (State::Up, None));
        let weights = [0, 1, 5, 20].map(|after| server.weight_now(window, second + after * second));
        assert_eq!(weights, [40, 40, 200, 400]);
    }
}
