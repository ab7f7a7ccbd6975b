//! Routes: the answers to paths.

use super::app::{self, AppRoute};
use super::php::{self, PhpRoute};
use super::speaks::Speaks;
use super::upstream::{self, Member, Timing, Upstream};
use super::{Config, keys};
use crate::files::Root;
use ringroad_gate::feature::Reading;
use ringroad_gate::media::MediaTypes;
use ringroad_gate::routes::{Match, Split, SplitBy};
use ringroad_gate::steps::{self, Steps};
use ringroad_gate::template::{Template, Use};
use ringroad_gate::upstream::{Balance, Guards, SpoolLimits};
use ringroad_gate::words::status;
use ringroad_http::{FieldBlock, Method, Status};
use ringroad_settings::{Section, Table, Value, value};
use ringroad_wire::Encoder;
use std::net::SocketAddr;
use std::path::{Component, Path};
use std::sync::Arc;

/// The answer to some paths.
#[derive(Debug, PartialEq)]
pub struct Route {
    /// The requests it applies to.
    pub when: Match,
    /// Its name in logs and metrics.
    pub name: Option<String>,
    /// Its requests are in the access log.
    pub logged: bool,
    /// Its steps.
    pub steps: Steps,
    /// The endpoint.
    pub kind: Kind,
}

/// The endpoint of a route.
#[derive(Debug, PartialEq)]
pub enum Kind {
    /// Sends files.
    Static(Static),
    /// Keeps the files that clients put.
    Upload(Upload),
    /// Sends a fixed answer.
    Respond(Respond),
    /// Redirects the client.
    Redirect(Redirect),
    /// Reports whether the server serves.
    Health,
    /// Shows the groups of servers behind, with the state of each server.
    Status,
    /// Passes requests on to an upstream server.
    Proxy(Proxy),
    /// Passes requests to the workers of an application.
    App(AppRoute),
    /// Leads to a hub of topics.
    Hub(super::HubRoute),
    /// Executes PHP scripts over FastCGI, and sends the files beside them.
    Php(PhpRoute),
    /// Reports metrics to Prometheus: on every address, or on one of its own.
    Metrics(Option<SocketAddr>),
}

/// Files below a folder.
#[derive(Debug, PartialEq)]
pub struct Static {
    /// The folder.
    pub root: Arc<Root>,
    /// Files that stand for their folder; the first that exists.
    pub index: Vec<String>,
    /// Folders without one are listed.
    pub autoindex: bool,
    /// Most names of a listing: the first in its order.
    pub autoindex_names: usize,
    /// Names that begin with a point are served as well.
    pub hidden: bool,
    /// A file `a.css.br` (`.zst`, `.gz`) beside `a.css` is sent to clients that accept the coding.
    pub precompressed: bool,
    /// Paths that are tried where the request's own is not there.
    pub try_files: Vec<Try>,
    /// The media types of files by their names.
    pub types: MediaTypes,
}

impl Static {
    pub(crate) fn of(root: Arc<Root>) -> Static {
        Static {
            root,
            index: vec!["index.html".to_owned()],
            autoindex: false,
            autoindex_names: AUTOINDEX_NAMES,
            hidden: false,
            precompressed: true,
            try_files: Vec::new(),
            types: MediaTypes::default(),
        }
    }
}

/// A folder that clients put files into.
#[derive(Debug, PartialEq)]
pub struct Upload {
    /// The folder.
    pub root: Arc<Root>,
    /// A file that is there is replaced.
    pub overwrite: bool,
    /// Bytes of the file system that stay free.
    pub keep_free: u64,
}

/// A fixed answer.
#[derive(Debug, PartialEq)]
pub struct Respond {
    /// Its status.
    pub status: Status,
    /// Its body, which all answers share.
    pub body: Arc<[u8]>,
    /// The content type.
    pub content_type: String,
}

/// A redirect.
#[derive(Debug, PartialEq)]
pub struct Redirect {
    /// 301, 302, 303, 307 or 308; `None`: 301 for GET and HEAD, 308 for others.
    pub status: Option<Status>,
    /// The location.
    pub to: Template,
    /// The path behind the route's path is appended: there are no placeholders, and both end in `/`.
    pub appends: bool,
}

/// Upstream servers.
#[derive(Debug, PartialEq)]
pub struct Proxy {
    /// The group.
    pub to: Arc<Upstream>,
    /// The replacement of the route's path; `None`: the path is passed on unchanged.
    pub path: Option<String>,
    /// The `Host` that is sent instead of the client's.
    pub host: Option<String>,
    /// The client's own `Forwarded`, `X-Forwarded-*` and `X-Request-Id` are trusted, whatever its address.
    pub trust_forwarded: bool,
    /// Places that answers name at the server behind become places of this server.
    pub map_locations: bool,
    /// Requests are collected and answers drained, within these bounds; `None`: both are handed on as they
    /// come.
    pub buffer: Option<SpoolLimits>,
}

/// One of `try_files`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Try {
    /// A path below the folder, with placeholders.
    Path(Template),
    /// An answer with this status.
    Status(Status),
}

/// Names of a listing: more would take a browser minutes to show.
const AUTOINDEX_NAMES: usize = 100_000;

/// Bytes of a file system that uploads leave free.
const KEEP_FREE: u64 = 64 << 20;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    App,
    Php,
    Proxy,
    Static,
    Upload,
    Respond,
    Redirect,
    Health,
    Status,
    Hub,
    Metrics,
}

const KINDS: &[(&str, Word)] = &[
    ("static", Word::Static),
    ("upload", Word::Upload),
    ("respond", Word::Respond),
    ("redirect", Word::Redirect),
    ("health", Word::Health),
    ("status", Word::Status),
    ("hub", Word::Hub),
    ("metrics", Word::Metrics),
    ("proxy", Word::Proxy),
    ("app", Word::App),
    ("php", Word::Php),
];

/// The keys that only routes of one kind have.
const OF_A_KIND: &[&Table] = &[
    &keys::STATIC,
    &keys::UPLOAD,
    &keys::RESPOND,
    &keys::REDIRECT,
    &keys::METRICS,
    &keys::PROXY,
    &keys::APP_ROUTE,
    &keys::HUB_ROUTE,
    &keys::PHP,
];

/// Says what has to be written for `kind`.
fn what_to_answer() -> String {
    let kinds: Vec<_> = KINDS.iter().map(|(name, _)| format!("{name:?}")).collect();
    format!("what to answer, one of {}", kinds.join(", "))
}

/// Reads a route; `None` if it is wrong, which is noted.
pub(super) fn read(mut section: Section<'_>, config: &Config) -> Option<Route> {
    section.describe(&keys::ROUTE);
    let path = section.require("path", "the beginning of a path, as \"/\" or \"/files/\"", |value| {
        let path = value::text(value)?;
        is_path(&path).then_some(path.clone()).ok_or_else(|| {
            format!("expected a path that begins with `/`, decoded and without `.` and `..`, found {path:?}")
        })
    });
    let when = read_match(&section, path.clone().unwrap_or_default());
    if path.is_some() && config.routes.iter().any(|route| route.when == when) {
        section.mistake("path", format!("{:?} has a route already", when.path));
    }
    steps::describe_route(&mut section);
    let name = section.read("name", name);
    if let Some(name) = &name
        && config.routes.iter().any(|route| route.name.as_ref() == Some(name))
    {
        section.mistake("name", format!("another route is called {name:?}"));
    }
    let logged = section.read("log", value::truth).unwrap_or(true);
    let kind = section.require("kind", &what_to_answer(), |value| value::one_of(value, KINDS));
    let kind_name = kind.and_then(|kind| KINDS.iter().find(|(_, own)| *own == kind)).map(|(name, _)| *name);
    let reading =
        Reading { tables: &config.tables, path: path.as_deref(), kind: kind_name, methods: &when.methods };
    let steps = Steps::of_route(&section, &reading, &config.defaults);
    for (key, name) in steps.upstreams() {
        if config.upstream(name).is_none() {
            section.mistake(key, upstream::unknown(config, name));
        }
    }
    let mut when = when;
    let restricted = !when.methods.is_empty();
    for method in steps.methods().filter(|_| restricted) {
        if !when.methods.iter().any(|own| own == method) {
            when.methods.push(method.to_owned());
        }
    }
    let kind = match kind {
        Some(Word::Static) => read_static(&mut section, path.as_deref(), config),
        Some(Word::Upload) => read_upload(&mut section, path.as_deref()),
        Some(Word::Respond) => Some(read_respond(&mut section)),
        Some(Word::Redirect) => read_redirect(&mut section, path.as_deref()),
        Some(Word::Health) => {
            section.describe(&keys::HEALTH);
            Some(Kind::Health)
        }
        Some(Word::Status) => {
            section.describe(&keys::STATUS);
            Some(Kind::Status)
        }
        Some(Word::Proxy) => read_proxy(&mut section, path.as_deref(), config),
        Some(Word::Php) => php::read(&mut section, path.as_deref(), config).map(Kind::Php),
        Some(Word::App) => app::read_route(&mut section, config).map(Kind::App),
        Some(Word::Hub) => super::hub::read_route(&mut section, config).map(Kind::Hub),
        Some(Word::Metrics) => {
            section.describe(&keys::METRICS);
            Some(Kind::Metrics(section.read("listen", value::address)))
        }
        None => {
            // It may have been meant to be of any kind. Of a word that is near to `kind` that is told.
            for any in OF_A_KIND {
                section.describe(any);
            }
            None
        }
    };
    section.finish();
    path?;
    Some(Route { when, name, logged, steps, kind: kind? })
}

/// Returns a name that is a label.
fn name(value: &Value<'_>) -> Result<String, String> {
    let name = value::text(value)?;
    let is_one = !name.is_empty() && name.len() <= 128 && !name.contains(char::is_control);
    is_one.then_some(name.clone()).ok_or_else(|| format!("expected a name, found {name:?}"))
}

fn read_match(section: &Section<'_>, path: String) -> Match {
    let hosts = section.read("hosts", |value| value::some(value, "names of hosts", host));
    let methods = section.read("methods", |value| value::some(value, "methods", method));
    let headers = section.table("match_headers").map(|table| conditions(&table, true));
    let query = section.table("match_query").map(|table| conditions(&table, false));
    Match {
        hosts: hosts.unwrap_or_default(),
        path,
        methods: methods.unwrap_or_default(),
        headers: headers.unwrap_or_default(),
        query: query.unwrap_or_default(),
        split: read_split(section),
    }
}

/// `split`: one that is wrong is noted, and takes no client.
fn read_split(section: &Section<'_>) -> Option<Split> {
    let parts = |value: &Value<'_>| {
        let text = value::text(value).unwrap_or_default();
        let part = |text: &str| {
            let share = value::share(&Value::String(text.trim().to_owned().into())).ok()?;
            Some((share * 1e6).round() as u32)
        };
        let found = match text.split_once("..") {
            Some((from, to)) => part(from).zip(part(to)),
            None => part(&text).map(|to| (0, to)),
        };
        found
            .filter(|(from, to)| from < to)
            .ok_or_else(|| value::found("a share, as \"10%\", or a range, as \"10%..30%\"", value))
    };
    if section.has("split") && section.table_if("split").is_none() {
        let parts = section.read("split", parts).unwrap_or_default();
        return Some(Split { parts, by: SplitBy::Client });
    }
    let mut table = section.table("split")?;
    table.describe(&keys::SPLIT);
    let parts = table.require("share", "a share, as \"10%\"", parts).unwrap_or_default();
    let by = table.read("by", |value| {
        let text = value::text(value)?;
        match text.split_once('.') {
            None if text == "client" => Ok(SplitBy::Client),
            Some(("header", name)) if !name.is_empty() => Ok(SplitBy::Header(name.to_owned())),
            Some(("cookie", name)) if !name.is_empty() => Ok(SplitBy::Cookie(name.to_owned())),
            _ => Err(value::found("\"client\", \"header.NAME\" or \"cookie.NAME\"", value)),
        }
    });
    table.finish();
    Some(Split { parts, by: by.unwrap_or(SplitBy::Client) })
}

fn host(value: &Value<'_>) -> Result<String, String> {
    let name = value::text(value)?.to_ascii_lowercase();
    let plain = name.strip_prefix("*.").unwrap_or(&name);
    let is_label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    let is_address = plain.starts_with('[') && plain.ends_with(']');
    if is_address || plain.split('.').all(is_label) {
        return Ok(name);
    }
    Err(format!("expected a host without a port, as \"example.org\" or \"*.example.org\", found {name:?}"))
}

fn method(value: &Value<'_>) -> Result<String, String> {
    let name = value::text(value)?;
    let is_one = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-');
    is_one
        .then_some(name.clone())
        .ok_or_else(|| format!("expected a method in capitals, as \"GET\", found {name:?}"))
}

/// Names with a value, or with any (`true`).
fn conditions(table: &Section<'_>, lines: bool) -> Vec<(String, Option<String>)> {
    let mut all = Vec::new();
    for (name, value) in table.pairs() {
        let read = match value.as_bool() {
            Some(true) => Ok(None),
            _ => value.as_str().map(|text| Some(text.to_owned())).ok_or_else(|| {
                ringroad_settings::value::found("a text in quotes, or true for any value", value)
            }),
        };
        let checked = if lines {
            FieldBlock::of([(name, "0")]).map(|_| ()).map_err(|why| why.to_string())
        } else {
            Ok(())
        };
        match checked.and(read) {
            Ok(value) => all.push((name.to_owned(), value)),
            Err(what) => table.mistake(name, what),
        }
    }
    all
}

fn is_path(path: &str) -> bool {
    let odd = |part: &str| matches!(part, "." | "..");
    path.starts_with('/')
        && !path.contains("//")
        && !path.split('/').any(odd)
        && !path.contains(|c: char| c.is_control() || matches!(c, '?' | '#' | '\\' | '%'))
}

fn read_static(section: &mut Section<'_>, path: Option<&str>, config: &Config) -> Option<Kind> {
    section.describe(&keys::STATIC);
    let root = section.require("root", "a folder", |value| {
        let path = section.path(&value::text(value)?);
        Root::open(&path).map_err(|why| format!("{}: {why}", path.display()))
    });
    let index = section.read("index", |value| value::some(value, "names of files", file_name));
    let autoindex = section.read("autoindex", value::truth);
    let autoindex_names =
        section.read("autoindex_names", |value| value::count(value, 1, 1 << 30).map(|count| count as usize));
    let hidden = section.read("hidden", value::truth);
    let precompressed = section.read("precompressed", value::truth);
    let try_files = section.read("try_files", |value| value::some(value, "paths to try", tried));
    let types = MediaTypes::read(section, &config.types);
    if path.is_some_and(|path| !path.ends_with('/')) {
        section.mistake("path", "a folder's ends in `/`");
    }
    let default = Static::of(Arc::new(root?));
    Some(Kind::Static(Static {
        index: index.unwrap_or(default.index),
        autoindex: autoindex.unwrap_or(default.autoindex),
        autoindex_names: autoindex_names.unwrap_or(default.autoindex_names),
        hidden: hidden.unwrap_or(default.hidden),
        precompressed: precompressed.unwrap_or(default.precompressed),
        try_files: try_files.unwrap_or(default.try_files),
        types,
        root: default.root,
    }))
}

fn read_upload(section: &mut Section<'_>, path: Option<&str>) -> Option<Kind> {
    section.describe(&keys::UPLOAD);
    let root = section.require("root", "a folder", |value| {
        let path = section.path(&value::text(value)?);
        Root::open(&path).map_err(|why| format!("{}: {why}", path.display()))
    });
    let overwrite = section.read("overwrite", value::truth).unwrap_or(false);
    let keep_free = section.read("keep_free", |value| value::bytes(value, 0, u64::MAX));
    if path.is_some_and(|path| !path.ends_with('/')) {
        section.mistake("path", "a folder's ends in `/`");
    }
    let keep_free = keep_free.unwrap_or(KEEP_FREE);
    Some(Kind::Upload(Upload { root: Arc::new(root?), overwrite, keep_free }))
}

pub(super) fn tried(value: &Value<'_>) -> Result<Try, String> {
    let text = value::text(value)?;
    if let Some(code) = text.strip_prefix('=') {
        let status =
            code.parse().ok().and_then(Status::new).filter(|status| (200..600).contains(&status.code()));
        return status
            .map(Try::Status)
            .ok_or_else(|| format!("expected a status behind `=`, as \"=404\", found {text:?}"));
    }
    let template = Template::parse(&text, Use::Request)?;
    if text.starts_with('/') || text.starts_with('{') {
        Ok(Try::Path(template))
    } else {
        Err(format!("expected a path that begins with `/`, or a status as \"=404\", found {text:?}"))
    }
}

pub(super) fn file_name(value: &Value<'_>) -> Result<String, String> {
    let name = value::text(value)?;
    let mut parts = Path::new(&name).components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(part)), None) if part == name.as_str() => Ok(name),
        _ => Err(format!("expected the name of a file without a folder, found {name:?}")),
    }
}

fn read_respond(section: &mut Section<'_>) -> Kind {
    section.describe(&keys::RESPOND);
    let status = section.read("status", status).unwrap_or(Status::OK);
    let body = section.read("body", value::text).unwrap_or_default();
    if status.forbids_body() && !body.is_empty() {
        section.mistake("body", format!("an answer of {} has none", status.code()));
    }
    let content_type = section.read("content_type", |value| {
        let name = value::text(value)?;
        let line = FieldBlock::of([("Content-Type", name.as_str())]);
        line.map(|_| name).map_err(|why| why.to_string())
    });
    let content_type = content_type.unwrap_or_else(|| "text/plain; charset=utf-8".to_owned());
    Kind::Respond(Respond { status, body: body.into_bytes().into(), content_type })
}

fn read_redirect(section: &mut Section<'_>, path: Option<&str>) -> Option<Kind> {
    section.describe(&keys::REDIRECT);
    let to = section.require("to", "where to, as \"/new/\" or \"https://example.org/\"", |value| {
        let to = value::text(value)?;
        let plain = !to.is_empty() && to.bytes().all(|byte| byte.is_ascii_graphic());
        if !plain {
            return Err(format!(
                "expected a path or a URL in visible ASCII, odd characters escaped, found {to:?}"
            ));
        }
        // The root of another server is a place below which the rest can stand.
        let is_server = to.split_once("//").is_some_and(|(scheme, server)| {
            (scheme.is_empty() || scheme.ends_with(':')) && !server.contains(['/', '?', '#', '{'])
        });
        let to =
            if is_server && path.is_some_and(|path| path.ends_with('/')) { format!("{to}/") } else { to };
        Template::parse(&to, Use::Request)
    });
    let status = section.read("status", |value| {
        let status = status(value)?;
        let moved = matches!(status.code(), 301 | 302 | 303 | 307 | 308);
        moved
            .then_some(status)
            .ok_or_else(|| format!("expected 301, 302, 303, 307 or 308, found {}", status.code()))
    });
    let to = to?;
    let appends =
        to.as_text().is_some_and(|to| to.ends_with('/')) && path.is_some_and(|path| path.ends_with('/'));
    Some(Kind::Redirect(Redirect { status, to, appends }))
}

fn read_proxy(section: &mut Section<'_>, path: Option<&str>, config: &Config) -> Option<Kind> {
    let groups = &config.upstreams;
    section.describe(&keys::PROXY);
    let timing = Timing::read(section);
    let asked = Speaks::read(section);
    let to = section.require("to", upstream::EXPECTED, |value| {
        let text = value::text(value)?;
        let Some(rest) = text.strip_prefix("upstream:") else {
            let (address, path) = upstream::address(&text, section.folder())?;
            let speaks = asked.clone().of(upstream::is_secure(&text)).unwrap_or_else(|(key, why)| {
                section.mistake(key, why);
                Speaks::default()
            });
            // Routes to one server share what is known of it only where they speak to it alike.
            let scheme = if speaks.tls.is_some() { "https://" } else { "" };
            let alone = Upstream {
                name: format!("{scheme}{address}"),
                servers: vec![Member::new(address)],
                balance: Balance::default(),
                timing: timing.clone(),
                speaks,
                guards: Guards::default(),
            };
            return Ok((Arc::new(alone), path));
        };
        let (name, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let group = config.upstream(name).ok_or_else(|| upstream::unknown(config, name))?;
        // The path is checked as that of a server is.
        let path = (!path.is_empty()).then_some(path);
        let path =
            path.map(|path| upstream::address(&format!("http://a{path}"), Path::new(""))).transpose()?;
        Ok((Arc::clone(group), path.and_then(|(_, path)| path)))
    });
    if let (Some((_, Some(base))), Some(path)) = (&to, path)
        && base.ends_with('/') != path.ends_with('/')
    {
        section.mistake("to", "its path replaces the route's: both end in `/`, or neither does");
    }
    let named = to.as_ref().is_some_and(|(group, _)| groups.iter().any(|known| Arc::ptr_eq(known, group)));
    for key in ["connect_timeout", "answer_timeout", "tunnel_timeout", "keep", "keep_for", "tls", "http2"] {
        if named && section.has(key) {
            section.mistake(key, "belongs into the [upstream.NAME] that `to` names");
        }
    }
    let host = section.read("host", |value| {
        let host = value::text(value)?;
        let is_host = Encoder::request(&mut Vec::new(), Method::Get, "/", &host).is_ok();
        is_host
            .then_some(host.clone())
            .ok_or_else(|| format!("expected a host, with a port at most, found {host:?}"))
    });
    let trust_forwarded = section.read("trust_forwarded", value::truth).unwrap_or(false);
    let map_locations = section.read("map_locations", value::truth).unwrap_or(true);
    let (to, path) = to?;
    let buffer = section.read("buffer", value::truth).unwrap_or(true).then(|| config.buffer.clone());
    Some(Kind::Proxy(Proxy { to, path, host, trust_forwarded, map_locations, buffer }))
}
