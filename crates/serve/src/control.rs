//! The control socket: what `ringroad app` and `ringroad workers` ask a running server.
//!
//! A Unix socket that only its owner may open. One JSON object a line is asked, one is answered: `{"ok": …}`
//! or `{"error": "…"}`. A question may take as long as a reload takes, so each connection has a thread; few
//! are there at once.

use crate::by_driver;
use crate::event::Event;
use crate::service::{Move, Shared};
use ringroad_app::{Pool, SlotId};
use ringroad_engine::choose::Wish;
use serde_json::{Value, json};
use std::fs::Permissions;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

/// Connections at once; more are closed.
const CONNECTIONS_MAX: usize = 16;
/// Bytes of a question.
const QUESTION_BYTES_MAX: u64 = 4096;

/// A control socket that listens. Dropped, it is removed.
#[derive(Debug)]
pub(crate) struct Control {
    path: PathBuf,
    listener: UnixListener,
    over: Arc<AtomicBool>,
}

impl Control {
    /// Listens at `path`, where no other server may listen.
    pub(crate) fn start(path: &Path, shared: &Arc<Shared>) -> io::Result<Control> {
        if UnixStream::connect(path).is_ok() {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another server listens there"));
        }
        // What is there is left over from a server that was killed; anything but a socket stays, and binding
        // fails.
        if std::fs::symlink_metadata(path).is_ok_and(|facts| {
            use std::os::unix::fs::FileTypeExt;
            facts.file_type().is_socket()
        }) {
            std::fs::remove_file(path)?;
        }
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
        let (over, accepting) = (Arc::new(AtomicBool::new(false)), listener.try_clone()?);
        let (ended, shared) = (Arc::clone(&over), Arc::downgrade(shared));
        thread::Builder::new().name("ringroad-control".to_owned()).spawn(move || {
            let open = Arc::new(AtomicUsize::new(0));
            for stream in accepting.incoming() {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                if open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
                    open.fetch_sub(1, Ordering::Relaxed);
                    continue;
                }
                let (shared, open) = (Weak::clone(&shared), Arc::clone(&open));
                let serve = move || {
                    // A client that breaks off hears nothing more.
                    let _ = converse(&stream, &shared);
                    open.fetch_sub(1, Ordering::Relaxed);
                };
                let _ = thread::Builder::new().name("ringroad-asked".to_owned()).spawn(serve);
            }
        })?;
        Ok(Control { path: path.to_owned(), listener, over })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // Wakes the thread, also where the path is gone: accept(2) on a socket that is shut down fails.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        let _ = std::fs::remove_file(&self.path);
    }
}

fn converse(stream: &UnixStream, shared: &Weak<Shared>) -> io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.set_write_timeout(Some(Duration::from_secs(10)))?;
    let mut line = String::new();
    BufReader::new(stream.take(QUESTION_BYTES_MAX)).read_line(&mut line)?;
    let answer = match (serde_json::from_str::<Value>(&line), shared.upgrade()) {
        (_, None) => Err("the server stops".to_owned()),
        (Err(why), _) => Err(format!("not a question in JSON: {why}")),
        (Ok(question), Some(shared)) => answer(&question, &shared),
    };
    let answer = match answer {
        Ok(answer) => json!({ "ok": answer }),
        Err(why) => json!({ "error": why }),
    };
    let mut stream = stream;
    stream.write_all(format!("{answer}\n").as_bytes())
}

fn answer(question: &Value, shared: &Arc<Shared>) -> Result<Value, String> {
    let apps = shared.plan().apps.clone();
    let chosen: Vec<&Arc<Pool>> = match question["app"].as_str() {
        None => apps.iter().collect(),
        Some(name) => {
            let found: Vec<_> = apps.iter().filter(|pool| pool.settings().name == name).collect();
            if found.is_empty() {
                let names: Vec<_> = apps.iter().map(|pool| pool.settings().name.clone()).collect();
                return Err(format!("there is no application {name:?} (there are: {})", names.join(", ")));
            }
            found
        }
    };
    let each = |act: &dyn Fn(&Pool) -> Result<String, String>| {
        let (mut told, mut failed) = (serde_json::Map::new(), Vec::new());
        // One that fails keeps no other from what it was asked.
        for pool in &chosen {
            let name = pool.settings().name.clone();
            match act(pool) {
                Ok(text) => _ = told.insert(name, Value::String(text)),
                Err(why) => failed.push(format!("{name}: {why}")),
            }
        }
        if failed.is_empty() {
            return Ok(Value::Object(told));
        }
        let done = told.iter().map(|(name, text)| format!("{name}: {}", text.as_str().unwrap_or_default()));
        Err(failed.into_iter().chain(done).collect::<Vec<_>>().join("; "))
    };
    match question["do"].as_str() {
        Some("status") => {
            let all: Vec<Value> =
                chosen.iter().filter_map(|pool| pool.status()).map(|status| status.json()).collect();
            Ok(Value::Array(all))
        }
        Some("reload") => each(&|pool| pool.reload(None)),
        Some("restart") => {
            let slot: Option<SlotId> = match &question["slot"] {
                Value::Null => None,
                Value::Number(number) => Some(number.to_string().parse()?),
                Value::String(text) => Some(text.parse()?),
                other => return Err(format!("expected a slot, as 0 or \"t0\", found {other}")),
            };
            each(&|pool| pool.restart(slot))
        }
        Some("scale") => {
            let count = |key: &str| match &question[key] {
                Value::Null => Ok(None),
                value => match value.as_u64().and_then(|count| usize::try_from(count).ok()) {
                    Some(count) => Ok(Some(count)),
                    None => Err(format!("expected a number of {key}, found {value}")),
                },
            };
            let (workers, tasks) = (count("workers")?, count("tasks")?);
            if workers.is_none() && tasks.is_none() {
                return Err("expected `workers`, `tasks`, or both".to_owned());
            }
            if chosen.len() != 1 {
                let names: Vec<_> = chosen.iter().map(|pool| pool.settings().name.clone()).collect();
                return Err(format!("name the application to scale, by --app: {}", names.join(" or ")));
            }
            each(&|pool| pool.scale(workers, tasks))
        }
        Some("workers") => Ok(by_driver::json(shared)),
        Some("move") => {
            let driver = |key: &str| {
                let word = question[key].as_str().ok_or_else(|| format!("expected a driver in `{key}`"))?;
                match word.parse() {
                    Ok(Wish::Named(driver)) => Ok(driver),
                    Ok(Wish::Auto) => Err("expected the name of a driver, found \"auto\"".to_owned()),
                    Err(why) => Err(why.to_string()),
                }
            };
            let workers = match &question["workers"] {
                Value::Null => None,
                value => Some(
                    value
                        .as_u64()
                        .and_then(|count| usize::try_from(count).ok())
                        .ok_or_else(|| format!("expected a number of workers, found {value}"))?,
                ),
            };
            let (asked, answered) = Move::new(driver("from")?, driver("to")?, workers);
            shared.events.report(Event::MoveAsked(asked));
            // The thread that holds the service does it.
            let moved = answered.recv().map_err(|_| "the server stops".to_owned())?;
            moved.map(Value::String)
        }
        Some("stop") => {
            shared.events.report(Event::StopAsked);
            Ok(Value::String("the server stops".to_owned()))
        }
        other => {
            Err(format!("expected status, reload, restart, scale, workers, move or stop, found {other:?}"))
        }
    }
}
