//! Routes: what is answered to which paths.

use super::reader::Section;
use super::words;
use crate::files::Root;
use ringroad_http::{FieldBlock, Method, Status};
use ringroad_wire::Encoder;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What is answered to some paths.
#[derive(Debug)]
pub struct Route {
    /// `/files/` takes everything below, `/robots.txt` itself and nothing else. The longest that fits counts.
    pub path: String,
    /// Header lines that its answers carry besides their own.
    pub headers: Vec<(String, String)>,
    /// What it does.
    pub kind: Kind,
}

/// What a route does.
#[derive(Debug)]
pub enum Kind {
    /// Sends files.
    Static(Static),
    /// Always answers the same.
    Respond(Respond),
    /// Sends the client elsewhere.
    Redirect(Redirect),
    /// Tells whether the server serves.
    Health,
    /// Hands requests on to a server behind this one.
    Proxy(Proxy),
    /// Tells what the server has done, to Prometheus: on every address, or on one of its own.
    Metrics(Option<SocketAddr>),
}

/// Files below a folder.
#[derive(Debug)]
pub struct Static {
    /// The folder.
    pub root: Arc<Root>,
    /// Files that stand for their folder; the first that exists.
    pub index: Vec<String>,
    /// Folders without one are listed.
    pub autoindex: bool,
    /// Names that begin with a point are served as well.
    pub hidden: bool,
    /// A file `a.css.br` (`.zst`, `.gz`) beside `a.css` is sent to who understands it.
    pub precompressed: bool,
}

impl Static {
    pub(super) fn of(root: Arc<Root>) -> Static {
        Static {
            root,
            index: vec!["index.html".to_owned()],
            autoindex: false,
            hidden: false,
            precompressed: true,
        }
    }
}

/// A fixed answer.
#[derive(Debug)]
pub struct Respond {
    /// Its status.
    pub status: Status,
    /// Its body.
    pub body: String,
    /// What the body is.
    pub content_type: String,
}

/// A way to elsewhere.
#[derive(Debug)]
pub struct Redirect {
    /// 301, 302, 303, 307 or 308.
    pub status: Status,
    /// Where; if it and the route's path end in `/`, what is behind the path is appended.
    pub to: String,
}

/// A server behind this one.
#[derive(Debug)]
pub struct Proxy {
    /// Where it listens.
    pub to: Upstream,
    /// What the route's path becomes; `None`: the path is handed on as it is.
    pub path: Option<String>,
    /// The `Host` it is asked for, instead of the client's.
    pub host: Option<String>,
    /// `Forwarded`, `X-Forwarded-*` and `X-Request-Id` of the client are believed: there is a proxy of ours before us.
    pub trust_forwarded: bool,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long nothing may move while an answer is waited for or comes.
    pub answer_timeout: Duration,
    /// How long nothing may move in either direction of a WebSocket connection.
    pub tunnel_timeout: Duration,
    /// Connections kept for later requests, of each worker.
    pub keep: usize,
    /// How long they are.
    pub keep_for: Duration,
}

/// Where a server behind this one listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upstream {
    /// A name or an address, and a port.
    Tcp {
        /// Without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// A socket in the file system.
    Unix(PathBuf),
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Upstream::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Upstream::Tcp { host, port } => write!(f, "{host}:{port}"),
            Upstream::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[derive(Clone, Copy)]
enum Word {
    Proxy,
    Static,
    Respond,
    Redirect,
    Health,
    Metrics,
}

const KINDS: &[(&str, Word)] = &[
    ("static", Word::Static),
    ("respond", Word::Respond),
    ("redirect", Word::Redirect),
    ("health", Word::Health),
    ("metrics", Word::Metrics),
    ("proxy", Word::Proxy),
];

/// Reads a route; `None` if it is wrong, which is noted.
pub(super) fn read(mut section: Section<'_, '_>, folder: &Path, before: &[Arc<Route>]) -> Option<Route> {
    let path = section.require("path", "the beginning of a path, as \"/\" or \"/files/\"", |value| {
        let path = words::text(value)?;
        is_path(&path).then_some(path.clone()).ok_or_else(|| {
            format!("expected a path that begins with `/`, decoded and without `.` and `..`, found {path:?}")
        })
    });
    if let Some(path) = &path
        && before.iter().any(|route| route.path == *path)
    {
        section.mistake("path", format!("{path:?} has a route already"));
    }
    let headers = section.table("headers").map(read_headers).unwrap_or_default();
    let kind = section.require("kind", "what to answer", |value| words::one_of(value, KINDS));
    let kind = match kind {
        Some(Word::Static) => read_static(&mut section, path.as_deref(), folder),
        Some(Word::Respond) => Some(read_respond(&mut section)),
        Some(Word::Redirect) => read_redirect(&mut section),
        Some(Word::Health) => Some(Kind::Health),
        Some(Word::Proxy) => read_proxy(&mut section, path.as_deref(), folder),
        Some(Word::Metrics) => Some(Kind::Metrics(section.read("listen", words::address))),
        // Which keys it may have is not known then.
        None => return None,
    };
    section.finish();
    Some(Route { path: path?, headers, kind: kind? })
}

fn is_path(path: &str) -> bool {
    let odd = |part: &str| matches!(part, "." | "..");
    path.starts_with('/')
        && !path.contains("//")
        && !path.split('/').any(odd)
        && !path.contains(|c: char| c.is_control() || matches!(c, '?' | '#' | '\\' | '%'))
}

fn read_headers(section: Section<'_, '_>) -> Vec<(String, String)> {
    let mut headers = Vec::new();
    for (name, value) in section.pairs() {
        match words::header(&mut FieldBlock::new(), name, value.get_ref()) {
            Ok(()) => {
                headers.push((name.to_owned(), value.get_ref().as_str().unwrap_or_default().to_owned()))
            }
            Err(what) => section.mistake(name, what),
        }
    }
    headers
}

fn read_static(section: &mut Section<'_, '_>, path: Option<&str>, folder: &Path) -> Option<Kind> {
    let root = section.require("root", "a folder", |value| {
        let path = folder.join(words::text(value)?);
        Root::open(&path).map_err(|why| format!("{}: {why}", path.display()))
    });
    let index = section.read("index", |value| words::some(value, "names of files", file_name));
    let autoindex = section.read("autoindex", words::truth);
    let hidden = section.read("hidden", words::truth);
    let precompressed = section.read("precompressed", words::truth);
    if path.is_some_and(|path| !path.ends_with('/')) {
        section.mistake("path", "a folder's ends in `/`");
    }
    let default = Static::of(Arc::new(root?));
    Some(Kind::Static(Static {
        index: index.unwrap_or(default.index),
        autoindex: autoindex.unwrap_or(default.autoindex),
        hidden: hidden.unwrap_or(default.hidden),
        precompressed: precompressed.unwrap_or(default.precompressed),
        root: default.root,
    }))
}

fn file_name(value: &toml::de::DeValue<'_>) -> Result<String, String> {
    let name = words::text(value)?;
    let mut parts = Path::new(&name).components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(part)), None) if part == name.as_str() => Ok(name),
        _ => Err(format!("expected the name of a file without a folder, found {name:?}")),
    }
}

fn status(value: &toml::de::DeValue<'_>) -> Result<Status, String> {
    let code = words::count(value, 200, 599)?;
    Status::new(code as u16).ok_or_else(|| "expected a status from 200 to 599".to_owned())
}

fn read_respond(section: &mut Section<'_, '_>) -> Kind {
    let status = section.read("status", status).unwrap_or(Status::OK);
    let body = section.read("body", words::text).unwrap_or_default();
    if status.forbids_body() && !body.is_empty() {
        section.mistake("body", format!("an answer of {} has none", status.code()));
    }
    let content_type = section.read("content_type", |value| {
        let name = words::text(value)?;
        let line = FieldBlock::of([("Content-Type", name.as_str())]);
        line.map(|_| name).map_err(|why| why.to_string())
    });
    let content_type = content_type.unwrap_or_else(|| "text/plain; charset=utf-8".to_owned());
    Kind::Respond(Respond { status, body, content_type })
}

fn read_redirect(section: &mut Section<'_, '_>) -> Option<Kind> {
    let to = section.require("to", "where to, as \"/new/\" or \"https://example.org/\"", |value| {
        let to = words::text(value)?;
        let plain = !to.is_empty() && to.bytes().all(|byte| byte.is_ascii_graphic());
        plain.then_some(to.clone()).ok_or_else(|| {
            format!("expected a path or a URL in visible ASCII, odd characters escaped, found {to:?}")
        })
    });
    let status = section.read("status", |value| {
        let status = status(value)?;
        let moved = matches!(status.code(), 301 | 302 | 303 | 307 | 308);
        moved
            .then_some(status)
            .ok_or_else(|| format!("expected 301, 302, 303, 307 or 308, found {}", status.code()))
    });
    Some(Kind::Redirect(Redirect { status: status.unwrap_or(Status::PERMANENT_REDIRECT), to: to? }))
}

fn read_proxy(section: &mut Section<'_, '_>, path: Option<&str>, folder: &Path) -> Option<Kind> {
    const EXPECTED: &str = "a server, as \"http://127.0.0.1:3000\" or \"unix:/run/app.sock\"";
    let to = section.require("to", EXPECTED, |value| {
        let text = words::text(value)?;
        upstream(&text, folder)
            .ok_or_else(|| format!("expected {EXPECTED}, perhaps with a path, found {text:?}"))
    });
    if let (Some((_, Some(base))), Some(path)) = (&to, path)
        && base.ends_with('/') != path.ends_with('/')
    {
        section.mistake("to", "its path replaces the route's: both end in `/`, or neither does");
    }
    let host = section.read("host", |value| {
        let host = words::text(value)?;
        let is_host = Encoder::request(&mut Vec::new(), Method::Get, "/", &host).is_ok();
        is_host
            .then_some(host.clone())
            .ok_or_else(|| format!("expected a host, with a port at most, found {host:?}"))
    });
    let span = |value: &_| words::span(value, Duration::from_millis(1));
    let trust_forwarded = section.read("trust_forwarded", words::truth).unwrap_or(false);
    let connect_timeout = section.read("connect_timeout", span).unwrap_or(Duration::from_secs(5));
    let answer_timeout = section.read("answer_timeout", span).unwrap_or(Duration::from_secs(60));
    let tunnel_timeout = section.read("tunnel_timeout", span).unwrap_or(Duration::from_secs(60 * 60));
    let keep = section.read("keep", |value| words::count(value, 0, 65_536)).unwrap_or(32) as usize;
    let keep_for = section.read("keep_for", span).unwrap_or(Duration::from_secs(30));
    let (to, path) = to?;
    Some(Kind::Proxy(Proxy {
        to,
        path,
        host,
        trust_forwarded,
        connect_timeout,
        answer_timeout,
        tunnel_timeout,
        keep,
        keep_for,
    }))
}

/// `http://HOST[:PORT][/PATH]`, or `unix:SOCKET[:/PATH]`.
fn upstream(text: &str, folder: &Path) -> Option<(Upstream, Option<String>)> {
    if let Some(rest) = text.strip_prefix("unix:") {
        let (socket, path) = match rest.split_once(':') {
            Some((socket, path)) => (socket, Some(path.to_owned())),
            None => (rest, None),
        };
        let fits = !socket.is_empty() && path.as_deref().is_none_or(is_target);
        return fits.then(|| (Upstream::Unix(folder.join(socket)), path));
    }
    let rest = text.strip_prefix("http://")?;
    let (authority, path) = match rest.find('/') {
        Some(at) => (rest.get(..at)?, Some(rest.get(at..)?.to_owned())),
        None => (rest, None),
    };
    Encoder::request(&mut Vec::new(), Method::Get, "/", authority).ok()?;
    let (host, port) = match authority.rsplit_once(':') {
        // The last colon of an address in brackets is no port's.
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
        _ => (authority, 80),
    };
    let host = host.trim_matches(['[', ']']).to_owned();
    path.as_deref().is_none_or(is_target).then_some((Upstream::Tcp { host, port }, path))
}

fn is_target(path: &str) -> bool {
    path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#'))
}
