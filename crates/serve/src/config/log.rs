//! The access log's settings: where its lines go, their form, and which requests have one.

use super::keys;
use ringroad_gate::template::{Template, Use};
use ringroad_settings::{Section, Value, value};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogTo {
    /// Where to.
    pub target: Target,
    /// Its lines' form.
    pub format: Format,
    /// Which requests have a line.
    pub only: Only,
    /// Lines of answers that the form names.
    pub answer_lines: Vec<String>,
}

impl LogTo {
    /// Makes a log of all requests.
    pub fn new(target: Target, format: Format) -> LogTo {
        let answer_lines = match &format {
            Format::Text(template) => template.answer_lines().map(str::to_owned).collect(),
            _ => Vec::new(),
        };
        LogTo { target, format, only: Only::default(), answer_lines }
    }
}

/// Where a log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Standard output: `-`.
    Stdout,
    /// Behind what is in this file.
    File(PathBuf),
    /// To a syslog daemon, with this facility.
    Syslog(SyslogTo, u8),
}

/// Where a syslog daemon listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SyslogTo {
    /// On this machine.
    Socket(PathBuf),
    /// By UDP.
    Address(SocketAddr),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Stdout => f.write_str("standard output"),
            Target::File(path) => path.display().fmt(f),
            Target::Syslog(SyslogTo::Socket(path), _) => write!(f, "syslog {}", path.display()),
            Target::Syslog(SyslogTo::Address(address), _) => write!(f, "syslog {address}"),
        }
    }
}

/// The form of a log's lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Format {
    /// As Apache and nginx write it.
    Combined,
    /// An object for each request.
    Json,
    /// A text with placeholders.
    Text(Template),
}

/// Which requests have a line: those that meet one of the conditions. Without a condition: all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Only {
    /// Statuses, and classes of them as 4 or 5.
    status: Vec<u16>,
    /// Requests that took longer.
    slower: Option<Duration>,
}

impl Only {
    /// Returns whether a request has a line.
    pub(crate) fn takes(&self, status: u16, took: Duration) -> bool {
        let all = self.status.is_empty() && self.slower.is_none();
        let of_status = self.status.iter().any(|own| *own == status || *own == status / 100);
        all || of_status || self.slower.is_some_and(|slower| took > slower)
    }
}

/// Facilities of syslog (RFC 5424 §6.2.1).
const FACILITIES: &[(&str, u8)] = &[
    ("user", 1),
    ("daemon", 3),
    ("local0", 16),
    ("local1", 17),
    ("local2", 18),
    ("local3", 19),
    ("local4", 20),
    ("local5", 21),
    ("local6", 22),
    ("local7", 23),
];

/// Reads `[log]`; `None` if it is wrong, which is noted.
pub(super) fn read(mut section: Section<'_>) -> Option<LogTo> {
    section.describe(&keys::LOG);
    let file = section.read("file", |value| {
        let name = value::text(value)?;
        if name == "-" {
            return Ok(Target::Stdout);
        }
        let path = section.path(&name);
        // An empty one is the working folder.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        match folder.map(|folder| (folder, folder.metadata())) {
            Some((folder, Err(why))) => Err(format!("{}: {why}", folder.display())),
            Some((folder, Ok(about))) if !about.is_dir() => {
                Err(format!("{}: not a folder", folder.display()))
            }
            _ if path.is_dir() => Err(format!("{}: a folder", path.display())),
            _ => Ok(Target::File(path)),
        }
    });
    let facility = section.read("facility", |value| value::one_of(value, FACILITIES)).unwrap_or(3);
    let to = section.read("to", |value| syslog(value).map(|to| Target::Syslog(to, facility)));
    match (section.has("file"), section.has("to")) {
        (false, false) => section.mistake("file", "missing: expected a file, or \"-\" for standard output"),
        (true, true) => section.mistake("to", "there is a `file` already: a log goes to one place"),
        _ => {}
    }
    let format = section.read("format", format);
    let only = section.table("only").map(only).unwrap_or_default();
    section.finish();
    let log = LogTo::new(file.or(to)?, format.unwrap_or(Format::Combined));
    Some(LogTo { only, ..log })
}

fn syslog(value: &Value<'_>) -> Result<SyslogTo, String> {
    let forms =
        "\"syslog:\", \"syslog:/run/log.sock\" or \"syslog:192.0.2.1:514\" (for a file the key is `file`)";
    let expected = || value::found(forms, value);
    let rest = value.as_str().and_then(|text| text.strip_prefix("syslog:")).ok_or_else(expected)?;
    match rest {
        "" => Ok(SyslogTo::Socket(PathBuf::from("/dev/log"))),
        path if path.starts_with('/') => Ok(SyslogTo::Socket(PathBuf::from(path))),
        address => value::address_of(address).map(SyslogTo::Address).ok_or_else(expected),
    }
}

fn format(value: &Value<'_>) -> Result<Format, String> {
    match value.as_str() {
        Some("combined") => Ok(Format::Combined),
        Some("json") => Ok(Format::Json),
        Some(text) if text.contains('{') && !text.contains(char::is_control) => {
            Template::parse(text, Use::Answer).map(Format::Text)
        }
        _ => Err(value::found(
            "\"combined\", \"json\", or a text with placeholders, as \"{client} {status}\"",
            value,
        )),
    }
}

fn only(mut section: Section<'_>) -> Only {
    section.describe(&keys::LOG_ONLY);
    let class = |value: &Value<'_>| match value.as_str() {
        Some(text) => {
            let digit = text.strip_suffix("xx").and_then(|digit| digit.parse().ok());
            let class = digit.filter(|digit| (1..=5).contains(digit));
            class.ok_or_else(|| value::found("a status, or a class as \"5xx\"", value))
        }
        None => value::count(value, 100, 599).map(|status| status as u16),
    };
    let status = section.read("status", |value| value::some(value, "statuses", class)).unwrap_or_default();
    let slower = section.read("slower", |value| value::span(value, Duration::ZERO));
    section.finish();
    Only { status, slower }
}
