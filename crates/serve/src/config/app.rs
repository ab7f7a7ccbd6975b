//! Applications: `[[app]]`.

use super::keys;
use super::route::Static;
use crate::files::Root;
use ringroad_app::{Dispatch, Launch, Protocol, Settings};
use ringroad_gate::media::MediaTypes;
use ringroad_settings::{Section, Value, value};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Reads an application; `None` if it is wrong, which is noted.
pub(super) fn read(mut section: Section<'_>, others: &[Settings]) -> Option<Settings> {
    section.describe(&keys::APP);
    let name = section.require("name", "a name, as \"web\"", |value| {
        let name = value::text(value)?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let valid = !name.is_empty() && name.len() <= 64 && name.bytes().all(plain);
        valid
            .then_some(name.clone())
            .ok_or_else(|| format!("expected letters, digits, - _ . , found {name:?}"))
    });
    if let Some(name) = &name
        && others.iter().any(|other| other.name == *name)
    {
        section.mistake("name", format!("{name:?} is there twice"));
    }
    let protocol = section.read("protocol", |value| {
        value::one_of(
            value,
            &[
                ("auto", None),
                ("ringroad", Some(Protocol::Ringroad)),
                ("http", Some(Protocol::Http)),
                ("fastcgi", Some(Protocol::FastCgi)),
                ("goridge", Some(Protocol::Goridge)),
            ],
        )
    });
    let protocol = protocol.flatten();
    let python = section.read("python", |value| value::text(value).map(std::path::PathBuf::from));
    let php = section.read("php", |value| value::text(value).map(std::path::PathBuf::from));
    let app = section.read("app", |value| {
        let target = value::text(value)?;
        match Launch::parse(&target, protocol) {
            Ok(Launch::Python { target, .. }) => Ok(Launch::Python { python: python.clone(), target }),
            Ok(Launch::Php { file, protocol, .. }) => {
                Ok(Launch::Php { php: php.clone(), file: section.path(&file.to_string_lossy()), protocol })
            }
            _ => Err(format!("expected MODULE:ATTRIBUTE, as \"main:app\", or FILE.php, found {target:?}")),
        }
    });
    let command = section.read("command", |value| {
        if let Some(text) = value.as_str() {
            return match Launch::parse(text, Some(protocol.unwrap_or(Protocol::Http))) {
                Ok(Launch::Command { line, .. }) => Ok(line),
                _ => Err(format!("expected a command line, found {text:?}")),
            };
        }
        value::some(value, "program and arguments", value::text)
    });
    let launch = match (app, command) {
        (Some(_), Some(_)) => {
            section.mistake("command", "an application has `app` or `command`, not both");
            None
        }
        (Some(app), None) => Some(app),
        (None, Some(line)) => Some(Launch::Command { line, protocol: protocol.unwrap_or(Protocol::Http) }),
        (None, None) => {
            if !section.has("app") && !section.has("command") {
                section.mistake("app", "missing: expected `app = \"main:app\"` or `command = [\"program\"]`");
            }
            None
        }
    };
    let php_program = matches!(launch, Some(Launch::Php { .. }));
    let default = Settings::new("", Launch::Command { line: Vec::new(), protocol: Protocol::Http });
    let count =
        |key: &str, least: u64, most: u64| section.read(key, |value| value::count(value, least, most));
    let bytes = |key: &str| section.read(key, |value| value::bytes(value, 0, u64::MAX));
    let span = |key: &str, least: Duration| section.read(key, |value| value::span(value, least));
    let zero = Duration::ZERO;
    let short = Duration::from_millis(1);
    let directory = section.read("directory", |value| section.existing_folder(&value::text(value)?));
    let env = section.table("env").map(|table| read_env(&table)).unwrap_or_default();
    let user = section.read("user", |value| ids(&value::text(value)?));
    let dispatch = section.read("dispatch", |value| {
        let word = value::text(value)?;
        Dispatch::parse(&word).ok_or_else(|| {
            format!(
                "expected \"idle\", \"turns\", \"least\", \"connection\", \"address\", \"header:NAME\" or \
                 \"cookie:NAME\", found {word:?}"
            )
        })
    });
    let health = section.read("health", |value| {
        let path = value::text(value)?;
        let valid = path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic());
        valid
            .then_some(path.clone())
            .ok_or_else(|| format!("expected a path, as \"/healthz\", found {path:?}"))
    });
    let root_path = section.read("root_path", |value| {
        let path = value::text(value)?;
        let valid = path.starts_with('/') && path.len() > 1 && !path.ends_with('/');
        valid
            .then_some(path.clone())
            .ok_or_else(|| format!("expected a path without a slash at its end, found {path:?}"))
    });
    let backoff = section.list("backoff", |value, _| value::span(value, short).map(Some));
    if backoff.as_ref().is_some_and(|spans| spans.len() != 2 || spans.first() > spans.get(1)) {
        section.mistake("backoff", "expected the first and the longest wait, as [\"100ms\", \"30s\"]");
    }
    let watch = section.read("watch", |value| {
        value::some(value, "files and folders", |value| value::text(value).map(|text| section.path(&text)))
    });
    let jitter = section.read("jitter", value::share);
    let workers = count("workers", 0, 1024);
    let workers_max = count("workers_max", 0, 1024);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let settings = Settings {
        workers: workers.map_or(cpus, |count| if count == 0 { cpus } else { count as usize }),
        workers_max: workers_max.unwrap_or(0) as usize,
        concurrency: count("concurrency", 1, 1 << 20).map(|count| count as u32),
        // That of a file that was named without a folder is the working folder.
        directory: directory.unwrap_or_else(|| {
            let folder = section.folder();
            if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder.to_owned() }
        }),
        env,
        user,
        dispatch: dispatch.unwrap_or_default(),
        queue: count("queue", 0, 1 << 20).map_or(default.queue, |count| count as usize),
        queue_timeout: span("queue_timeout", short).unwrap_or(default.queue_timeout),
        timeout: span("timeout", short).unwrap_or(default.timeout),
        kill_after: span("kill_after", zero).unwrap_or(default.kill_after),
        start_timeout: span("start_timeout", short).unwrap_or(default.start_timeout),
        stop_timeout: span("stop_timeout", zero).unwrap_or(default.stop_timeout),
        ping: span("ping", zero).unwrap_or(if php_program { zero } else { default.ping }),
        health,
        retry: section.read("retry", value::truth).unwrap_or(default.retry),
        max_requests: count("max_requests", 0, 1 << 40).unwrap_or(0),
        jitter: jitter.unwrap_or(default.jitter),
        max_age: span("max_age", zero).unwrap_or(default.max_age),
        idle: span("idle", zero).unwrap_or(default.idle),
        memory: bytes("memory").unwrap_or(0),
        memory_hard: bytes("memory_hard").unwrap_or(0),
        backoff: backoff.and_then(|spans| Some((*spans.first()?, *spans.get(1)?))).unwrap_or(default.backoff),
        root_path: root_path.unwrap_or_default(),
        socket_message_bytes: section
            .read("websocket_message", |value| value::bytes(value, 1, 16 << 20))
            .map_or(default.socket_message_bytes, |bytes| bytes as u32),
        socket_ping: span("websocket_ping", zero).unwrap_or(default.socket_ping),
        socket_compress: section.read("websocket_compress", value::truth).unwrap_or(false),
        factory: section.read("factory", value::truth).unwrap_or(false),
        preload: section.read("preload", value::truth).unwrap_or(false),
        tasks: count("tasks", 0, 1024).unwrap_or(0) as usize,
        task_queue: count("task_queue", 1, 1 << 20).map_or(default.task_queue, |count| count as usize),
        task_timeout: span("task_timeout", short).unwrap_or(default.task_timeout),
        task_socket: section.read("task_socket", |value| value::text(value).map(|text| section.path(&text))),
        watch: watch.unwrap_or_default(),
        dev: section.read("dev", value::truth).unwrap_or(false),
        ..default
    };
    if settings.workers_max > 0 && settings.workers_max < settings.workers {
        section.mistake("workers_max", format!("less than `workers` ({})", settings.workers));
    }
    if settings.tasks > 0 && launch.as_ref().is_some_and(|launch| launch.protocol() != Protocol::Ringroad) {
        let what = "only a Python application, a program with Swoole's classes, or a command with \
                    `protocol = \"ringroad\"` runs tasks";
        section.mistake("tasks", what);
    }
    let speaks = launch.as_ref().map(Launch::protocol);
    if settings.health.is_some() && matches!(speaks, Some(Protocol::FastCgi | Protocol::Goridge)) {
        let what = "such a worker cannot be asked for a path: only one that speaks HTTP, and an application of \
                    Python or a program with `protocol = \"ringroad\"`";
        section.mistake("health", what);
    }
    if settings.task_socket.is_some() && settings.tasks == 0 {
        section.mistake("task_socket", "there are no task workers: expected `tasks = 1` or more");
    }
    section.finish();
    Some(Settings { name: name?, launch: launch?, ..settings })
}

fn read_env(table: &Section<'_>) -> Vec<(String, String)> {
    let mut env = Vec::new();
    for (name, value) in table.pairs() {
        match value::text(value) {
            Ok(text) if !name.contains('=') && !text.contains('\0') => env.push((name.to_owned(), text)),
            Ok(_) => table.mistake(name, "not a name and text of the environment"),
            Err(what) => table.mistake(name, what),
        }
    }
    env
}

/// Numbers of `user` or `user:group`, which are names or numbers.
fn ids(text: &str) -> Result<(u32, u32), String> {
    let look_up = |file: &str, name: &str| -> Option<(u32, Option<u32>)> {
        let content = std::fs::read_to_string(file).ok()?;
        content.lines().find_map(|line| {
            let parts: Vec<&str> = line.split(':').collect();
            let number = |at: usize| parts.get(at).and_then(|part| part.parse().ok());
            let found =
                parts.first() == Some(&name) || number(2).is_some_and(|id: u32| id.to_string() == name);
            if found { Some((number(2)?, number(3))) } else { None }
        })
    };
    let (user, group) = text.split_once(':').map_or((text, None), |(user, group)| (user, Some(group)));
    let (id, own) = look_up("/etc/passwd", user).ok_or_else(|| format!("there is no user {user:?}"))?;
    let group = match group {
        Some(group) => look_up("/etc/group", group)
            .map(|(id, _)| id)
            .ok_or_else(|| format!("there is no group {group:?}"))?,
        None => own.unwrap_or(id),
    };
    Ok((id, group))
}

/// What a route of `kind = "app"` needs besides the application.
#[derive(Debug, PartialEq)]
pub struct AppRoute {
    /// The name of the application.
    pub app: String,
    /// Requests are collected and answers drained, within these bounds; `None`: both are handed on as they
    /// come.
    pub buffer: Option<ringroad_gate::upstream::SpoolLimits>,
    /// Files that are sent without asking the application.
    pub files: Option<Static>,
    /// Folders with files that an answer may name, by the prefix of their paths.
    pub sendfile: Vec<(String, Arc<Root>)>,
    /// Media types of files.
    pub types: MediaTypes,
}

/// Reads the keys of a route to an application.
pub(super) fn read_route(section: &mut Section<'_>, config: &super::Config) -> Option<AppRoute> {
    section.describe(&keys::APP_ROUTE);
    let known: Vec<&str> = config.apps.iter().map(|app| app.name.as_str()).collect();
    let app = section.require("app", "the name of an [[app]]", |value: &Value<'_>| {
        let name = value::text(value)?;
        let app = config.apps.iter().find(|app| app.name == name);
        if app.is_some_and(|app| app.launch.protocol() == Protocol::FastCgi) {
            return Err(format!("{name:?} speaks FastCGI: expected `kind = \"php\"` and `root` for it"));
        }
        if app.is_some() {
            return Ok(name);
        }
        let there = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Err(config.tables.no_such("app", &name, || {
            format!("there is no [[app]] with the name {name:?} (there are: {there})")
        }))
    });
    let buffer = section.read("buffer", value::truth).unwrap_or(true).then(|| config.buffer.clone());
    let types = MediaTypes::read(section, &config.types);
    let files = section.read("root", |value| {
        let path = section.path(&value::text(value)?);
        let root = Root::open(&path).map_err(|why| format!("{}: {why}", path.display()))?;
        Ok(Static { types: types.clone(), ..Static::of(Arc::new(root)) })
    });
    Some(AppRoute { app: app?, buffer, files, sendfile: super::php::read_sendfile(section), types })
}
