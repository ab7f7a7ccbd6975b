//! `--post`: hands the record over to a folder that parts share, or to a server.
//!
//! A folder gets a whole file or none. A URL gets a POST, or a PUT of a named file if it ends with a slash.
//! What is not taken is tried again a few times, since a load is expensive. Start at [`Post`].

use super::Complaint;
use crate::complaint::{FAILED, USAGE, name, say, why};
use ringroad_host::connect::in_time;
use ringroad_load::{Scheme, Target};
use std::fs;
use std::io::{self, Read, Write};
use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// How often it is tried, and how long the first pause is; each next one is twice as long.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(500);

/// How long a server may take for each step.
const PATIENCE: Duration = Duration::from_secs(30);

/// Bytes of an answer that are read.
const ANSWER_MAX: u64 = 64 * 1024;

/// Where a record is handed over.
#[derive(Clone, Debug)]
pub(super) enum Post {
    Folder(PathBuf),
    Server(Target),
}

impl Post {
    /// A URL or a folder, which must be there.
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
            Ok(_) => refuse("it is no folder".to_owned()),
            Err(error) => refuse(why(&error)),
        }
    }

    /// Hands it over under this name.
    pub(super) fn send(&self, file: &str, text: &str) -> Result<(), Complaint> {
        let failed = |message: String| Complaint { message, code: FAILED };
        match self {
            Post::Folder(folder) => {
                let path = folder.join(file);
                into(&path, text)
                    .map_err(|error| failed(format!("write, on {}: {}", name(&path), why(&error))))
            }
            Post::Server(target) => {
                let mut pause = PAUSE;
                for number in 1.. {
                    match put(target, file, text) {
                        Ok(()) => break,
                        Err(Refused { again: true, what }) if number < TRIES => {
                            say(&format!("--post, on {target}: {what}; it is tried again in {pause:?}"));
                            thread::sleep(pause);
                            pause *= 2;
                        }
                        Err(Refused { what, .. }) => {
                            return Err(failed(format!(
                                "--post, on {target}: {what} (-o FILE keeps the record here)"
                            )));
                        }
                    }
                }
                Ok(())
            }
        }
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

fn put(target: &Target, file: &str, text: &str) -> Result<(), Refused> {
    let lost = |what: &'static str| {
        move |error: io::Error| Refused { what: format!("{what}: {}", why(&in_time(error))), again: true }
    };
    let (method, path) = match target.path.ends_with('/') {
        true => ("PUT", format!("{}{file}", target.path)),
        false => ("POST", target.path.clone()),
    };
    let addresses = (target.host.as_str(), target.port).to_socket_addrs().map_err(lost("resolve"))?;
    let mut socket = ringroad_host::connect::connect_any(addresses, PATIENCE).map_err(lost("connect"))?;
    socket.set_read_timeout(Some(PATIENCE)).map_err(lost("set up the socket"))?;
    socket.set_write_timeout(Some(PATIENCE)).map_err(lost("set up the socket"))?;
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
