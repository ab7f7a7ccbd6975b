//! Groups of upstream servers.

use super::listen::no_abstract;
use super::speaks::Speaks;
use super::{Config, keys};
use ringroad_gate::upstream::{
    Address, BadAddress, Balance, Bulkhead, CHECK_EVERY_MIN, Check, Guards, HashBy, Hedge, Retry,
};
use ringroad_policy::{Nanos, breaker, ejection};
use ringroad_settings::{Section, Value, value};
use std::path::Path;
use std::time::Duration;

/// A group of servers.
#[derive(Clone, Debug, PartialEq)]
pub struct Upstream {
    /// Its name.
    pub name: String,
    /// Its servers with their weights, in the order in which they are written.
    pub servers: Vec<Member>,
    /// How the next one is chosen.
    pub balance: Balance,
    /// Times and counts of connections.
    pub timing: Timing,
    /// How its servers are spoken to.
    pub speaks: Speaks,
    /// What protects it.
    pub guards: Guards,
}

/// A server of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Where it listens.
    pub address: Address,
    /// Its share beside the others.
    pub weight: u32,
    /// It gets only requests that no other server can have.
    pub backup: bool,
}

impl Member {
    /// Makes a server with an equal share.
    pub fn new(address: Address) -> Member {
        Member { address, weight: 1, backup: false }
    }
}

/// Times and counts of connections to upstream servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long connecting may take.
    pub connect: Duration,
    /// How long nothing may move while an answer is waited for or comes.
    pub answer: Duration,
    /// How long nothing may move in either direction of a WebSocket connection.
    pub tunnel: Duration,
    /// Idle connections kept, of each worker to each server.
    pub keep: usize,
    /// How long they are kept.
    pub keep_for: Duration,
}

impl Timing {
    /// Reads the keys that groups and proxy routes share.
    pub(super) fn read(section: &Section<'_>) -> Timing {
        let span = |key: &str, default: Duration| {
            section.read(key, |value| value::span(value, Duration::from_millis(1))).unwrap_or(default)
        };
        let keep = section.read("keep", |value| value::count(value, 0, 65_536)).unwrap_or(32);
        Timing {
            connect: span("connect_timeout", Duration::from_secs(5)),
            answer: span("answer_timeout", Duration::from_secs(60)),
            tunnel: span("tunnel_timeout", Duration::from_secs(60 * 60)),
            keep: keep as usize,
            keep_for: span("keep_for", Duration::from_secs(30)),
        }
    }
}

/// The expected form of a server's address.
pub(super) const EXPECTED: &str =
    "a server, as \"http://127.0.0.1:3000\", \"https://app.internal\" or \"unix:/run/app.sock\"";

/// Returns whether TLS is spoken at a server's address.
pub(super) fn is_secure(text: &str) -> bool {
    ringroad_wire::after_scheme(text, "https").is_some()
}

/// Reads a server's address and its path, or says what was expected.
pub(super) fn address(text: &str, folder: &Path) -> Result<(Address, Option<String>), String> {
    Address::parse(text, folder).map_err(|why| match why {
        BadAddress::Form => {
            format!("expected {EXPECTED}, also with a path as \"http://127.0.0.1:3000/api\", found {text:?}")
        }
        BadAddress::Abstract => no_abstract(text),
        BadAddress::Port => format!("port 0 is not one to connect to, in {text:?}"),
        BadAddress::Path => {
            format!("expected a path in visible ASCII without ? # \" < > \\ ^ ` {{ | }}, found {text:?}")
        }
    })
}

/// Reads a group; `None` if it is wrong, which is noted.
pub(super) fn read(name: &str, mut section: Section<'_>) -> Option<Upstream> {
    section.describe(&keys::UPSTREAM);
    let folder = section.folder();
    let bare = |text: &str| match address(text, folder)? {
        (address, None) => Ok((address, is_secure(text))),
        (_, Some(path)) => {
            Err(format!("a server of a group has no path: write {path:?} behind the group's name in `to`"))
        }
    };
    let one = |value: &Value<'_>, table: Option<Section<'_>>| match table {
        None => Ok(Some((bare(&value::text(value)?)?, 1_u32, false))),
        Some(mut table) => {
            table.describe(&keys::SERVER);
            let to = table.require("to", EXPECTED, |value| bare(&value::text(value)?));
            let weight = table.read("weight", |value| value::count(value, 1, 1000));
            let backup = table.read("backup", value::truth).unwrap_or(false);
            table.finish();
            Ok(to.map(|to| (to, weight.unwrap_or(1) as u32, backup)))
        }
    };
    if !section.has("servers") {
        section.mistake("servers", "missing: expected servers, as [\"http://10.0.0.1:3000\"]");
    }
    let servers = section.list("servers", one);
    let balance = section.read("balance", balance).unwrap_or_default();
    let timing = Timing::read(&section);
    let asked = Speaks::read(&section);
    let secure = servers.iter().flatten().filter(|((_, is_secure), ..)| *is_secure).count();
    if servers.as_ref().is_some_and(|all| secure > 0 && secure < all.len()) {
        section.mistake("servers", "some are https:// and some are not: make two groups of them");
    }
    // Without servers it is not known whether they are https://, and that they are missing is told.
    let is_known = servers.as_ref().is_some_and(|all| !all.is_empty());
    let speaks = if is_known { asked.of(secure > 0) } else { Ok(Speaks::default()) };
    let speaks = speaks.unwrap_or_else(|(key, why)| {
        section.mistake(key, why);
        Speaks::default()
    });
    let guards = guards(&section);
    if servers.as_ref().is_some_and(|all| !all.is_empty() && all.iter().all(|(.., backup)| *backup)) {
        section.mistake("servers", "all of them are `backup`: expected one that is not");
    }
    section.finish();
    let member = |((address, _), weight, backup)| Member { address, weight, backup };
    let servers = servers?.into_iter().map(member).collect();
    Some(Upstream { name: name.to_owned(), servers, balance, timing, speaks, guards })
}

/// Says that there is no group of this name.
pub(super) fn unknown(config: &Config, name: &str) -> String {
    config.tables.no_such("upstream", name, || {
        let names: Vec<_> = config.upstreams.iter().map(|group| group.name.as_str()).collect();
        let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        format!("there is no [upstream.{name}] (there are: {there})")
    })
}

fn nanos(span: Duration) -> Nanos {
    Nanos::try_from(span.as_nanos()).unwrap_or(Nanos::MAX)
}

/// Reads what protects a group.
fn guards(section: &Section<'_>) -> Guards {
    let default = Guards::default();
    let count = |key: &str, least: u64| section.read(key, |value| value::count(value, least, 1 << 20));
    let bulkhead = count("requests", 1).map(|requests| Bulkhead {
        requests: requests as usize,
        line: count("line", 0).unwrap_or(32) as usize,
        wait: section
            .read("wait", |value| value::span(value, Duration::from_millis(1)))
            .unwrap_or(Duration::from_millis(100)),
    });
    for key in ["line", "wait"] {
        if section.has(key) && !section.has("requests") {
            section.mistake(key, "expected with `requests`");
        }
    }
    Guards {
        ejection: section.table("eject").map_or(default.ejection, eject),
        panic: section.read("panic", value::share).unwrap_or(default.panic),
        slow_start: section.read("slow_start", |value| value::span(value, Duration::ZERO)).map_or(0, nanos),
        breaker: read_breaker(section),
        bulkhead,
        check: read_check(section),
        retry: section.table("retry").map_or(default.retry, retry),
        hedge: read_hedge(section),
    }
}

fn eject(mut table: Section<'_>) -> ejection::Settings {
    table.describe(&keys::EJECT);
    let default = ejection::Settings::default();
    let after = table.read("after", |value| value::count(value, 1, 1 << 20));
    let span = table.read("for", |value| {
        value::span_range(value)
            .or_else(|_| value::span(value, Duration::from_millis(1)).map(|span| span..=span))
    });
    let most = table.read("most", value::share);
    table.finish();
    ejection::Settings {
        after: after.map_or(default.after, |after| after as u32),
        base: span.as_ref().map_or(default.base, |span| nanos(*span.start())),
        longest: span.as_ref().map_or(default.longest, |span| nanos(*span.end())),
        most: most.unwrap_or(default.most),
    }
}

fn read_breaker(section: &Section<'_>) -> Option<breaker::Settings> {
    let default = breaker::Settings::default();
    let Some(mut table) = section.table_if("breaker") else {
        let on = section.read("breaker", value::truth).unwrap_or(false);
        return on.then_some(default);
    };
    table.describe(&keys::BREAKER);
    let count = |key: &str, default: u32| {
        table.read(key, |value| value::count(value, 1, 1 << 20)).map_or(default, |count| count as u32)
    };
    let open = table.read("open", value::span_range);
    let settings = breaker::Settings {
        window: table
            .read("window", |value| value::span(value, Duration::from_secs(1)))
            .map_or(default.window, nanos),
        least: count("least", default.least),
        failed: table.read("failed", value::share).unwrap_or(default.failed),
        open: open.as_ref().map_or(default.open, |open| nanos(*open.start())),
        longest: open.as_ref().map_or(default.longest, |open| nanos(*open.end())),
        probes: count("probes", default.probes),
    };
    table.finish();
    Some(settings)
}

fn read_check(section: &Section<'_>) -> Option<Check> {
    let path = |value: &Value<'_>| {
        let text = value::text(value)?;
        let is_path = text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic());
        is_path.then_some(text).ok_or_else(|| value::found("a path, as \"/healthz\"", value))
    };
    let default = |path: String| Check {
        path,
        host: None,
        every: Duration::from_secs(5),
        timeout: Duration::from_secs(2),
        rise: 2,
        fall: 3,
        statuses: Vec::new(),
    };
    let Some(mut table) = section.table_if("health") else {
        return section.read("health", path).map(default);
    };
    table.describe(&keys::CHECK);
    let default = default(table.require("path", "a path, as \"/healthz\"", path).unwrap_or_default());
    let count = |key: &str, default: u32| {
        table.read(key, |value| value::count(value, 1, 1000)).map_or(default, |count| count as u32)
    };
    let host = table.read("host", |value| {
        let host = value::text(value)?;
        ringroad_gate::words::check_line("Host", &host).map(|()| host)
    });
    let check = Check {
        host,
        every: table.read("every", |value| value::span(value, CHECK_EVERY_MIN)).unwrap_or(default.every),
        timeout: table
            .read("timeout", |value| value::span(value, Duration::from_millis(1)))
            .unwrap_or(default.timeout),
        rise: count("rise", default.rise),
        fall: count("fall", default.fall),
        statuses: table
            .read("status", |value| value::some(value, "statuses", value::status))
            .unwrap_or_default(),
        ..default
    };
    table.finish();
    Some(check)
}

fn read_hedge(section: &Section<'_>) -> Option<Hedge> {
    let Some(mut table) = section.table_if("hedge") else {
        let on = section.read("hedge", value::truth).unwrap_or(false);
        return on.then_some(Hedge::P95);
    };
    table.describe(&keys::HEDGE);
    let after = table.read("after", |value| match value.as_str() {
        Some("p95") => Ok(Hedge::P95),
        _ => value::span(value, Duration::from_millis(1))
            .map(Hedge::After)
            .map_err(|_| value::found("a time, as \"50ms\", or \"p95\"", value)),
    });
    table.finish();
    Some(after.unwrap_or(Hedge::P95))
}

fn retry(mut table: Section<'_>) -> Retry {
    table.describe(&keys::RETRY);
    let times = table.read("times", |value| value::count(value, 0, 10));
    let failure = |value: &Value<'_>| value::count(value, 400, 599).map(|code| code as u16);
    let statuses = table.read("on", |value| value::some(value, "statuses", failure));
    let backoff = table.read("backoff", value::span_range);
    let share = table.read("budget", value::share);
    table.finish();
    let backoff = backoff.unwrap_or(Duration::from_millis(25)..=Duration::from_millis(250));
    Retry {
        times: Some(times.unwrap_or(2) as u32),
        statuses: statuses.unwrap_or_default(),
        base: nanos(*backoff.start()),
        longest: nanos(*backoff.end()),
        share: share.unwrap_or(Retry::default().share),
    }
}

fn balance(value: &Value<'_>) -> Result<Balance, String> {
    let text = value::text(value)?;
    let expected = || {
        format!(
            "expected \"least\", \"time\", \"turns\", \"hash:KEY\" (client, path, target, header.NAME, cookie.NAME, \
             query.NAME), \"sticky\" or \"sticky:COOKIE\", found {text:?}"
        )
    };
    Ok(match text.as_str() {
        "least" => Balance::Least,
        "time" => Balance::Time,
        "turns" => Balance::Turns,
        "sticky" => Balance::Sticky { cookie: "ringroad_server".to_owned() },
        other => match other.split_once(':') {
            Some(("sticky", cookie)) if is_token(cookie) => Balance::Sticky { cookie: cookie.to_owned() },
            Some(("hash", key)) => Balance::Hash(match (key, key.split_once('.')) {
                ("client", _) => HashBy::Client,
                ("path", _) => HashBy::Path,
                ("target", _) => HashBy::Target,
                (_, Some(("header", name))) if is_token(name) => HashBy::Header(name.to_owned()),
                (_, Some(("cookie", name))) if is_token(name) => HashBy::Cookie(name.to_owned()),
                (_, Some(("query", name))) if !name.is_empty() => HashBy::Query(name.to_owned()),
                _ => return Err(expected()),
            }),
            _ => return Err(expected()),
        },
    })
}

/// Returns whether a text may be the name of a header line or cookie (RFC 9110 §5.6.2).
fn is_token(text: &str) -> bool {
    let odd = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(odd)
}
