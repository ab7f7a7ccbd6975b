//! Routes to PHP: `kind = "php"`.

use super::route::{Static, Try, file_name, tried};
use super::{Config, keys};
use crate::files::Root;
use ringroad_app::{FastCgiTiming, Protocol, Responder};
use ringroad_gate::media::MediaTypes;
use ringroad_gate::template::{Template, Use};
use ringroad_gate::upstream::{Address, SpoolLimits};
use ringroad_gate::words;
use ringroad_settings::{Section, Value, value};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Scripts below a folder, and the files beside them.
#[derive(Debug, PartialEq)]
pub struct PhpRoute {
    /// The files that are sent as they are.
    pub files: Static,
    /// Names that stand for their folder, scripts or not; the first that is there.
    pub index: Vec<String>,
    /// What executes scripts.
    pub to: PhpTo,
    /// Scripts that answer what is not there, with placeholders.
    pub try_files: Vec<Try>,
    /// Variables besides those that CGI has.
    pub params: Vec<(String, String)>,
    /// Folders with files that an answer may name, by the prefix of the path that `X-Accel-Redirect` uses.
    pub sendfile: Vec<(String, Arc<Root>)>,
    /// Bounds within which requests are collected.
    pub spool: SpoolLimits,
    /// Bounds within which answers are drained; `None`: they are handed on as they come.
    pub buffer: Option<SpoolLimits>,
}

/// What executes scripts.
#[derive(Debug, PartialEq)]
pub enum PhpTo {
    /// A FastCGI server, such as php-fpm.
    Server(Arc<Responder>),
    /// An `[[app]]` that speaks FastCGI.
    App(String),
}

const EXPECTED: &str = "a FastCGI server, as \"unix:/run/php/php-fpm.sock\" or \"127.0.0.1:9000\"";

impl PhpRoute {
    /// Returns the scripts of a script's folder, executed by an application. The script itself answers what
    /// is not there.
    ///
    /// # Errors
    /// The folder cannot be opened, or the script is not there.
    pub(super) fn of_app(script: &Path, app: &str, spool: SpoolLimits) -> io::Result<PhpRoute> {
        std::fs::metadata(script)?;
        let folder = script.parent().filter(|folder| !folder.as_os_str().is_empty());
        let name = script.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let front = format!("/{}", name.replace('{', "{{").replace('}', "}}"));
        let front = Template::parse(&front, Use::Request).map_err(io::Error::other)?;
        Ok(PhpRoute {
            files: Static::of(Arc::new(Root::open(folder.unwrap_or(Path::new(".")))?)),
            index: vec![name, "index.html".to_owned()],
            to: PhpTo::App(app.to_owned()),
            try_files: vec![Try::Path(front)],
            params: Vec::new(),
            sendfile: Vec::new(),
            buffer: Some(spool.clone()),
            spool,
        })
    }
}

fn folder(section: &Section<'_>, text: &str) -> Result<Arc<Root>, String> {
    let path = section.path(text);
    Root::open(&path).map(Arc::new).map_err(|why| format!("{}: {why}", path.display()))
}

/// Reads `sendfile`: folders with files that an answer may name, by the prefix of their paths.
pub(super) fn read_sendfile(section: &Section<'_>) -> Vec<(String, Arc<Root>)> {
    let Some(table) = section.table("sendfile") else { return Vec::new() };
    let mut all = Vec::new();
    for (prefix, value) in table.pairs() {
        if !(prefix.starts_with('/') && prefix.ends_with('/')) {
            table.mistake(prefix, "expected a path that begins and ends with `/`");
            continue;
        }
        match value::text(value).and_then(|text| folder(section, &text)) {
            Ok(root) => all.push((prefix.to_owned(), root)),
            Err(what) => table.mistake(prefix, what),
        }
    }
    all
}

/// Reads the keys of a route to PHP.
pub(super) fn read(section: &mut Section<'_>, path: Option<&str>, config: &Config) -> Option<PhpRoute> {
    section.describe(&keys::PHP);
    let root = section.require("root", "a folder", |value| folder(section, &value::text(value)?));
    let index = section.read("index", |value| value::some(value, "names of files", file_name));
    let index = index.unwrap_or_else(|| vec!["index.php".to_owned(), "index.html".to_owned()]);
    let try_files = section.read("try_files", |value| value::some(value, "paths to try", tried));
    let hidden = section.read("hidden", value::truth).unwrap_or(false);
    let precompressed = section.read("precompressed", value::truth).unwrap_or(true);
    if path.is_some_and(|path| !path.ends_with('/')) {
        section.mistake("path", "a folder's ends in `/`");
    }
    let default = FastCgiTiming::default();
    let span = |key: &str| section.read(key, |value| value::span(value, Duration::from_millis(1)));
    let count = |key: &str, least: u64| section.read(key, |value| value::count(value, least, 65536));
    let timing = FastCgiTiming {
        connections: count("connections", 1).map_or(default.connections, |count| count as usize),
        connect: span("connect_timeout").unwrap_or(default.connect),
        answer: span("answer_timeout").unwrap_or(default.answer),
        keep: count("keep", 0).map_or(default.keep, |count| count as usize),
        keep_for: span("keep_for").unwrap_or(default.keep_for),
    };
    if timing.keep > timing.connections {
        section.mistake("keep", format!("more than `connections` ({})", timing.connections));
    }
    let to = section.read("to", |value| address(value, section.folder()));
    let app = section.read("app", |value| {
        let name = value::text(value)?;
        match config.apps.iter().find(|app| app.name == name) {
            Some(app) if app.launch.protocol() == Protocol::FastCgi => Ok(name),
            Some(app) => Err(format!(
                "the [[app]] {name:?} speaks {:?}: give it `protocol = \"fastcgi\"`, or this route `kind = \"app\"`",
                app.launch.protocol().as_str()
            )),
            None => Err(config.tables.no_such("app", &name, || {
                format!("there is no [[app]] with the name {name:?}")
            })),
        }
    });
    let to = match (to, app) {
        (Some(_), Some(_)) => {
            section.mistake("app", "a route has `to` or `app`, not both");
            None
        }
        (Some(address), None) => Some(PhpTo::Server(Responder::new(address, timing))),
        (None, Some(app)) => {
            for key in ["connections", "connect_timeout", "answer_timeout", "keep", "keep_for"] {
                if section.has(key) {
                    section.mistake(key, "is for a route with `to`; the [[app]] has keys of its own");
                }
            }
            Some(PhpTo::App(app))
        }
        (None, None) => {
            if !section.has("to") && !section.has("app") {
                section.mistake(
                    "to",
                    format!("missing: expected {EXPECTED}, or `app` with the name of an [[app]]"),
                );
            }
            None
        }
    };
    let params = section.table("params").map(|table| read_params(&table)).unwrap_or_default();
    let sendfile = read_sendfile(section);
    let buffer = section.read("buffer", value::truth).unwrap_or(true).then(|| config.buffer.clone());
    let files = Static {
        index: index.iter().filter(|name| !name.ends_with(".php")).cloned().collect(),
        hidden,
        precompressed,
        types: MediaTypes::read(section, &config.types),
        ..Static::of(root?)
    };
    let try_files = match try_files {
        Some(files) => files,
        None => Template::parse("/index.php", Use::Request).into_iter().map(Try::Path).collect(),
    };
    Some(PhpRoute {
        files,
        index,
        to: to?,
        try_files,
        params,
        sendfile,
        spool: config.buffer.clone(),
        buffer,
    })
}

fn address(value: &Value<'_>, folder: &Path) -> Result<Address, String> {
    let text = value::text(value)?;
    let refused = || format!("expected {EXPECTED}, found {text:?}");
    let plain = ["fcgi", "tcp"].into_iter().find_map(|scheme| ringroad_wire::after_scheme(&text, scheme));
    let plain = plain.unwrap_or(&text);
    if words::after_http(&text).is_some() {
        return Err(format!("{}; a server that speaks HTTP is for `kind = \"proxy\"`", refused()));
    }
    let form = if plain.starts_with("unix:") { plain.to_owned() } else { format!("http://{plain}") };
    let has_port = plain.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    match Address::parse(&form, folder) {
        Ok((address @ Address::Unix(_), None)) => Ok(address),
        Ok((address @ Address::Tcp { .. }, None)) if has_port => Ok(address),
        _ => Err(refused()),
    }
}

fn read_params(table: &Section<'_>) -> Vec<(String, String)> {
    let mut params = Vec::new();
    for (name, value) in table.pairs() {
        let plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        match value::text(value) {
            Ok(_) if !plain || name.starts_with("HTTP_") => {
                table.mistake(name, "expected the name of a variable, which is not that of a header line");
            }
            Ok(text) => params.push((name.to_owned(), text)),
            Err(what) => table.mistake(name, what),
        }
    }
    params
}
