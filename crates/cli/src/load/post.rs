//! `--post`: hands the record over to a folder that parts share, or to a server.
//!
//! A folder gets a whole file or none. A URL gets a POST, or a PUT of a named file if it ends with a slash.
//! What is not taken is tried again a few times, since a load is expensive. Start at [`Post`].

use super::Complaint;
use crate::complaint::{FAILED, INTERRUPTED, USAGE, name, say, why};
use ringroad_host::connect::InTime;
use ringroad_load::{Scheme, Target};
use std::fs;
use std::io::{self, Read, Write};
use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How often it is tried, and how long the first pause is; each next one is twice as long.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(500);

/// How long a server may take for one try, and for all of them.
const PATIENCE: Duration = Duration::from_secs(30);
const PATIENCE_IN_ALL: Duration = Duration::from_secs(60);

/// Between two looks whether the program is to stop.
const LOOK: Duration = Duration::from_millis(20);

/// Bytes of an answer that are read.
const ANSWER_MAX: u64 = 64 * 1024;

/// Where a record is handed over.
#[derive(Clone, Debug)]
pub(super) enum Post {
    Folder(PathBuf),
    Server(Target),
}

impl Post {
    /// Reads a URL or a folder, which must be there.
    pub(super) fn of(text: &str) -> Result<Post, Complaint> {
        let refuse =
            |message: String| Err(Complaint { message: format!("--post {text}: {message}"), code: USAGE });
        if text.contains("://") {
            let target: Target = text.parse()?;
            return match target.scheme {
                Scheme::Http => Ok(Post::Server(target)),
                _ => refuse("http:// or a folder is expected".to_owned()),
            };
        }
        match fs::metadata(text) {
            Ok(about) if about.is_dir() => Ok(Post::Folder(text.into())),
            Ok(_) => refuse("not a folder".to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                refuse(format!("{}; make the folder, or name a server (http://HOST/PATH)", why(&error)))
            }
            Err(error) => refuse(why(&error)),
        }
    }

    /// Hands it over under this name. A wish to stop that comes meanwhile ends the waiting for a server.
    pub(super) fn send(&self, file: &str, text: &str, stop: &AtomicBool) -> Result<(), Complaint> {
        let target = match self {
            Post::Folder(folder) => {
                let path = folder.join(file);
                return into(&path, text).map_err(|error| Complaint {
                    message: format!("write, on {}: {}", name(&path), why(&error)),
                    code: FAILED,
                });
            }
            Post::Server(target) => target,
        };
        // What ended the load may be a wish to stop as well: the record is handed over nevertheless.
        let before = stop.load(Ordering::Relaxed);
        let (give, take) = channel();
        let work = {
            let (target, file, text) = (target.clone(), file.to_owned(), text.to_owned());
            move || {
                // The waiting for it may be over.
                let _ = give.send(tell(&target, &file, &text));
            }
        };
        // To look up a name and to connect cannot be interrupted here, so another thread does them.
        if thread::Builder::new().spawn(work.clone()).is_err() {
            work();
        }
        loop {
            match take.recv_timeout(LOOK) {
                Ok(told) => return told,
                Err(RecvTimeoutError::Timeout) if before || !stop.load(Ordering::Relaxed) => {}
                Err(_) => {
                    let message = format!("--post, on {target}: stopped before it was taken{KEPT}");
                    return Err(Complaint { message, code: INTERRUPTED });
                }
            }
        }
    }
}

/// What keeps a record that a server does not take.
const KEPT: &str = " (-o FILE keeps the record here)";

/// Hands it over to a server, in several tries.
fn tell(target: &Target, file: &str, text: &str) -> Result<(), Complaint> {
    let until = Instant::now() + PATIENCE_IN_ALL;
    let mut pause = PAUSE;
    let mut number = 1;
    loop {
        let (again, what) = match put(target, file, text, until.min(Instant::now() + PATIENCE)) {
            Ok(()) => return Ok(()),
            Err(Refused { again, what }) => (again, what),
        };
        if !again || number == TRIES || Instant::now() + pause >= until {
            return Err(Complaint { message: format!("--post, on {target}: {what}{KEPT}"), code: FAILED });
        }
        say(&format!("--post, on {target}: {what}; it is tried again in {pause:?}"));
        thread::sleep(pause);
        pause *= 2;
        number += 1;
    }
}

/// Writes a file beside its place and renames it, so that a reader of the folder sees whole records only.
fn into(path: &Path, text: &str) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.tmp", std::process::id()));
    let beside = PathBuf::from(beside);
    let written = fs::write(&beside, text).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // It may not have been made.
        let _ = fs::remove_file(&beside);
    }
    written
}

struct Refused {
    what: String,
    again: bool,
}

fn put(target: &Target, file: &str, text: &str, until: Instant) -> Result<(), Refused> {
    let lost = |what: &'static str| {
        move |error: io::Error| Refused { what: format!("{what}: {}", why(&error)), again: true }
    };
    let (method, path) = match target.path.ends_with('/') {
        true => ("PUT", format!("{}{file}", target.path)),
        false => ("POST", target.path.clone()),
    };
    let addresses = (target.host.as_str(), target.port).to_socket_addrs().map_err(lost("resolve"))?;
    let left = until.saturating_duration_since(Instant::now());
    let socket = ringroad_host::connect::connect_any(addresses, left).map_err(lost("connect"))?;
    let mut socket = InTime::new(socket, until);
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {}\r\nUser-Agent: ringroad/{}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        target.authority(),
        env!("CARGO_PKG_VERSION"),
        text.len()
    );
    let sent = socket.write_all(head.as_bytes()).and_then(|()| socket.write_all(text.as_bytes()));
    let mut answer = Vec::new();
    // A server that refuses may answer before it has read everything.
    let heard = (&mut socket).take(ANSWER_MAX).read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    let line = answer.lines().next().unwrap_or_default();
    let status = line.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok());
    match status {
        Some(200..=299) => Ok(()),
        Some(status) => Err(Refused {
            what: format!("{method} {path} was answered {line:?}"),
            again: status >= 500 || status == 429 || status == 408,
        }),
        None => {
            sent.map_err(lost("write"))?;
            heard.map_err(lost("read"))?;
            Err(Refused { what: "the connection ended without an answer".to_owned(), again: true })
        }
    }
}
