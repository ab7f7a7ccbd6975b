//! `ringroad lab advise --traffic`: which driver costs least for the traffic of a running server.
//!
//! The judgement is the `lab` library's (`traffic`); this file reads the server's figures, from its metrics
//! or status again and again, or from files. Start at [`advise`].

use super::{Complaint, print, width};
use crate::complaint::{DONE, FAILED, USAGE, name, why};
use ringroad_host::connect::{InTime, connect_any};
use ringroad_lab::traffic::{self, Reading};
use ringroad_load::{Scheme, Target};
use std::io::{Read, Write};
use std::net::ToSocketAddrs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Intervals in which a server is read.
const INTERVALS: u32 = 12;

/// How long a server may take for each step of an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes of an answer.
const ANSWER_MAX: u64 = 16 << 20;

/// Exit code 1 if the figures bear no comparison.
pub(super) fn advise(from: &[String], span: Duration) -> Result<u8, Complaint> {
    let readings = match from {
        [url] if url.contains("://") => watch(url, span)?,
        files => files.iter().map(|file| read(Path::new(file))).collect::<Result<_, _>>()?,
    };
    match traffic::advise(&readings, width()) {
        Ok(text) => {
            print(&text)?;
            Ok(DONE)
        }
        Err(refused) => Err(Complaint { message: refused.to_string(), code: FAILED }),
    }
}

fn read(file: &Path) -> Result<Reading, Complaint> {
    let text = ringroad_host::input::read_any_text(file).map_err(|error| Complaint {
        message: format!("read, on {}: {}", name(file), why(&error)),
        code: FAILED,
    })?;
    Reading::of(&text).map_err(|why| Complaint { message: format!("{}: {why}", name(file)), code: FAILED })
}

/// Reads the server at the ends of all intervals.
fn watch(url: &str, span: Duration) -> Result<Vec<Reading>, Complaint> {
    let target = url.parse::<Target>();
    let target = target.map_err(|error| Complaint { message: error.to_string(), code: USAGE })?;
    if target.scheme != Scheme::Http {
        let message = format!("--traffic {url}: http:// or files are expected");
        return Err(Complaint { message, code: USAGE });
    }
    let began = Instant::now();
    let mut readings = Vec::new();
    for at in 0..=INTERVALS {
        let due = span * at / INTERVALS;
        std::thread::sleep(due.saturating_sub(began.elapsed()));
        let failed = |why: String| Complaint { message: format!("read, on {url}: {why}"), code: FAILED };
        let text = get(&target).map_err(failed)?;
        readings.push(Reading::of(&text).map_err(|why| failed(why.to_string()))?);
    }
    Ok(readings)
}

/// `GET` over HTTP/1.0, so that the body is what comes behind the head.
fn get(target: &Target) -> Result<String, String> {
    let addresses = (target.host.as_str(), target.port).to_socket_addrs().map_err(|error| why(&error))?;
    let until = Instant::now() + PATIENCE;
    let connected = connect_any(addresses, PATIENCE);
    let mut socket = InTime::new(connected.map_err(|error| why(&error))?, until);
    let head = format!(
        "GET {} HTTP/1.0\r\nHost: {}\r\nUser-Agent: ringroad/{}\r\nAccept: application/json, text/plain\r\n\r\n",
        target.path,
        target.authority(),
        env!("CARGO_PKG_VERSION"),
    );
    let mut answer = String::new();
    let heard = socket
        .write_all(head.as_bytes())
        .and_then(|()| (&mut socket).take(ANSWER_MAX).read_to_string(&mut answer));
    heard.map_err(|error| why(&error))?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("the answer has no head")?;
    let line = head.lines().next().unwrap_or_default();
    match line.split(' ').nth(1) {
        Some("200") => Ok(body.to_owned()),
        _ => Err(format!("it answered {line:?}")),
    }
}
