//! The access log: a line for each request, written by a thread of its own.
//!
//! A worker appends to a buffer that it shares with nobody but that thread, and goes on. The thread sleeps until there
//! is something, gives the others a moment to say more, and writes what has come in one go. A disk that stands still
//! costs lines (they are counted, and it is said), never requests. Start at [`Log`] and [`Writer`].

use crate::answer::Record;
use crate::config::{Format, LogTo, Target};
use crate::date::Stamp;
use crate::event::{Event, Voice};
use ringroad_http::{Request, Version};
use std::cell::RefCell;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long the thread lets lines gather.
const GATHER: Duration = Duration::from_millis(50);

/// Lines of one worker that wait to be written, at most.
const WAITING_BYTES_MAX: usize = 4 << 20;

/// What the log tells of a request, kept because the request goes before its answer is over.
#[derive(Debug)]
pub(crate) struct Caught {
    remote: Option<IpAddr>,
    version: Version,
    /// Method, target, host, referer, user agent: one after another.
    text: String,
    ends: [usize; 5],
    has: [bool; 5],
}

impl Caught {
    pub(crate) fn of(request: &Request) -> Box<Caught> {
        let head = request.head();
        let parts = [
            Some(head.method_name()),
            Some(head.target()),
            head.authority(),
            request.header("referer"),
            request.header("user-agent"),
        ];
        let mut text = String::with_capacity(parts.iter().flatten().map(|part| part.len()).sum());
        let ends = parts.map(|part| {
            text.push_str(part.unwrap_or_default());
            text.len()
        });
        let remote = request.peer_addr().map(|peer| peer.ip().to_canonical());
        Box::new(Caught {
            remote,
            version: head.version(),
            text,
            ends,
            has: parts.map(|part| part.is_some()),
        })
    }

    fn part(&self, at: usize) -> Option<&str> {
        let from = at.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        let there = *self.has.get(at)?;
        self.text.get(from..*self.ends.get(at)?).filter(|_| there)
    }

    pub(crate) fn method(&self) -> &str {
        self.part(0).unwrap_or_default()
    }

    pub(crate) fn target(&self) -> &str {
        self.part(1).unwrap_or_default()
    }
}

/// One log: where it goes, and the thread that writes it.
pub(crate) struct Log {
    pub(crate) to: LogTo,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    dropped: AtomicU64,
}

#[derive(Default)]
struct State {
    buffers: Vec<Arc<Mutex<Vec<u8>>>>,
    /// Somebody has appended to an empty buffer.
    pending: bool,
    /// The file was moved away: what was said before goes there still.
    reopen: bool,
    before: Vec<u8>,
    stop: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Bytes and flags are never half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn tell(&self, change: impl FnOnce(&mut State)) {
        change(&mut lock(&self.state));
        self.wake.notify_one();
    }
}

impl Log {
    /// Opens a log.
    ///
    /// # Errors
    /// The file cannot be opened, or there is no thread.
    pub(crate) fn open(to: &LogTo, voice: &Voice) -> io::Result<Arc<Log>> {
        let file = match &to.target {
            Target::Stdout => None,
            Target::File(path) => Some(append(path)?),
        };
        let shared =
            Arc::new(Shared { state: Mutex::default(), wake: Condvar::new(), dropped: AtomicU64::new(0) });
        let work =
            Work { to: to.clone(), voice: voice.clone(), shared: Arc::clone(&shared), file, failing: false };
        let thread = thread::Builder::new().name("ringroad-log".to_owned()).spawn(move || work.run())?;
        Ok(Arc::new(Log { to: to.clone(), shared, thread: Mutex::new(Some(thread)) }))
    }

    /// A worker's way into it.
    pub(crate) fn writer(self: &Arc<Log>) -> Writer {
        let buffer = Arc::<Mutex<Vec<u8>>>::default();
        lock(&self.shared.state).buffers.push(Arc::clone(&buffer));
        Writer { log: Arc::clone(self), buffer, stamp: RefCell::default() }
    }

    /// Opens the file anew, because it was moved away: what has come so far is written to the old one, and what comes
    /// from now on to the new one.
    pub(crate) fn reopen(&self) {
        self.shared.tell(|state| {
            for buffer in &state.buffers {
                state.before.append(&mut lock(buffer));
            }
            state.reopen = true;
        });
    }

    /// Lines that were given up.
    pub(crate) fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// Writes what is left, and ends.
    pub(crate) fn finish(&self) {
        self.shared.tell(|state| state.stop = true);
        if let Some(thread) = lock(&self.thread).take() {
            // It does not panic; if it did, that was said by the hook.
            let _ = thread.join();
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // Whoever drops it last does not wait for a disk: the thread ends by itself.
        self.shared.tell(|state| state.stop = true);
    }
}

fn append(path: &std::path::Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// The thread's side.
struct Work {
    to: LogTo,
    voice: Voice,
    shared: Arc<Shared>,
    file: Option<File>,
    /// The last write failed, which was said.
    failing: bool,
}

impl Work {
    fn run(mut self) {
        let mut lines = Vec::new();
        loop {
            let (before, reopen, stop) = {
                let idle = |state: &mut State| !(state.pending || state.reopen || state.stop);
                let mut state = lock(&self.shared.state);
                state = self.shared.wake.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner);
                if !state.stop && !state.reopen {
                    let gathered = self
                        .shared
                        .wake
                        .wait_timeout_while(state, GATHER, |state| !(state.stop || state.reopen));
                    state = gathered.unwrap_or_else(PoisonError::into_inner).0;
                }
                state.pending = false;
                // Gone, and empty: its worker has ended.
                state.buffers.retain(|buffer| {
                    lines.append(&mut lock(buffer));
                    Arc::strong_count(buffer) > 1
                });
                (std::mem::take(&mut state.before), std::mem::take(&mut state.reopen), state.stop)
            };
            self.write(&before);
            if reopen {
                self.reopen();
            }
            self.write(&lines);
            lines.clear();
            if stop {
                return;
            }
        }
    }

    fn write(&mut self, lines: &[u8]) {
        if lines.is_empty() {
            return;
        }
        let written = match &mut self.file {
            Some(file) => file.write_all(lines),
            None => self.voice.write_stdout(lines),
        };
        match written {
            Ok(()) => self.failing = false,
            Err(why) => {
                let count = lines.iter().filter(|byte| **byte == b'\n').count() as u64;
                self.shared.dropped.fetch_add(count, Ordering::Relaxed);
                if !std::mem::replace(&mut self.failing, true) {
                    self.voice
                        .say(Event::LogFailed { target: self.to.target.to_string(), why: why.to_string() });
                }
            }
        }
    }

    fn reopen(&mut self) {
        let Target::File(path) = &self.to.target else { return };
        match append(path) {
            Ok(file) => self.file = Some(file),
            // The one that is open goes on.
            Err(why) => {
                self.voice.say(Event::LogFailed { target: self.to.target.to_string(), why: why.to_string() });
            }
        }
    }
}

/// A worker's way into a log.
pub(crate) struct Writer {
    log: Arc<Log>,
    buffer: Arc<Mutex<Vec<u8>>>,
    stamp: RefCell<Now>,
}

/// The second it is, as it is written.
#[derive(Default)]
struct Now {
    second: u64,
    text: String,
}

impl Writer {
    /// Writes the line of a request that is over.
    pub(crate) fn line(&self, caught: &Caught, record: &Record, bytes: u64) {
        let mut now = self.stamp.borrow_mut();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        if now.second != since.as_secs() {
            let stamp = Stamp::at(UNIX_EPOCH + Duration::from_secs(since.as_secs()));
            now.second = since.as_secs();
            now.text = match self.log.to.format {
                Format::Combined => stamp.combined(),
                Format::Json => stamp.seconds(),
            };
        }
        let was_empty = {
            let mut buffer = lock(&self.buffer);
            if buffer.len() >= WAITING_BYTES_MAX {
                self.log.shared.dropped.fetch_add(1, Ordering::Relaxed);
                return;
            }
            let was_empty = buffer.is_empty();
            match self.log.to.format {
                Format::Combined => combined(&mut buffer, &now.text, caught, record, bytes),
                Format::Json => json(&mut buffer, &now.text, since.subsec_millis(), caught, record, bytes),
            }
            was_empty
        };
        if was_empty {
            self.log.shared.tell(|state| state.pending = true);
        }
    }
}

fn version(version: Version) -> &'static str {
    match version {
        Version::Http10 => "HTTP/1.0",
        Version::Http11 => "HTTP/1.1",
    }
}

/// As Apache and nginx write it, so that every tool reads it.
fn combined(out: &mut Vec<u8>, now: &str, caught: &Caught, record: &Record, bytes: u64) {
    let mut line = String::with_capacity(caught.text.len() + 128);
    match caught.remote {
        Some(remote) => drop(write!(line, "{remote}")),
        None => line.push('-'),
    }
    let _ = write!(line, " - - [{now}] \"{} ", caught.method());
    quoted(&mut line, caught.target());
    let _ = write!(line, " {}\" {} {bytes} \"", version(caught.version), record.status);
    quoted(&mut line, caught.part(3).unwrap_or("-"));
    line.push_str("\" \"");
    quoted(&mut line, caught.part(4).unwrap_or("-"));
    line.push_str("\"\n");
    out.extend_from_slice(line.as_bytes());
}

/// Within quotes: what would end them, or the line, or command a terminal, is escaped.
fn quoted(out: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '"' | '\\' => {
                out.push('\\');
                out.push(character);
            }
            other if other.is_control() => {
                let mut buffer = [0; 4];
                for byte in other.encode_utf8(&mut buffer).bytes() {
                    let _ = write!(out, "\\x{byte:02x}");
                }
            }
            other => out.push(other),
        }
    }
}

/// An object on a line.
fn json(out: &mut Vec<u8>, now: &str, millis: u32, caught: &Caught, record: &Record, bytes: u64) {
    let mut line = String::with_capacity(caught.text.len() + 256);
    let _ = write!(line, "{{\"time\":\"{now}.{millis:03}Z\",\"id\":");
    string(&mut line, &record.id);
    if let Some(remote) = caught.remote {
        let _ = write!(line, ",\"remote\":\"{remote}\"");
    }
    for (key, text) in [("method", caught.part(0)), ("target", caught.part(1)), ("host", caught.part(2))] {
        pair(&mut line, key, text);
    }
    let took = record.began.elapsed().as_secs_f64();
    let _ = write!(
        line,
        ",\"protocol\":\"{}\",\"status\":{},\"bytes\":{bytes},\"duration_s\":{took:.6}",
        version(caught.version),
        record.status
    );
    pair(&mut line, "referer", caught.part(3));
    pair(&mut line, "user_agent", caught.part(4));
    if let Some(upstream) = &record.upstream {
        pair(&mut line, "upstream", Some(&upstream.address));
        let _ = write!(line, ",\"upstream_duration_s\":{:.6}", upstream.took.as_secs_f64());
    }
    pair(&mut line, "error", record.error.as_deref());
    line.push_str("}\n");
    out.extend_from_slice(line.as_bytes());
}

fn pair(line: &mut String, key: &str, text: Option<&str>) {
    if let Some(text) = text {
        let _ = write!(line, ",\"{key}\":");
        string(line, text);
    }
}

/// A string of JSON (RFC 8259 §7).
fn string(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => {
                out.push('\\');
                out.push(character);
            }
            other if other.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(other));
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Upstream;
    use std::time::Instant;

    fn caught() -> Caught {
        let parts = ["GET", "/a\"b?c=\\", "example.org", "", "evil\u{1b}[2J\"agent"];
        let mut text = String::new();
        let ends = parts.map(|part| {
            text.push_str(part);
            text.len()
        });
        let remote = Some(IpAddr::from([127, 0, 0, 1]));
        Caught { remote, version: Version::Http11, text, ends, has: [true, true, true, false, true] }
    }

    fn record() -> Record {
        Record {
            began: Instant::now(),
            status: 502,
            id: "5f".to_owned(),
            name: String::new(),
            caught: None,
            error: Some("connect: refused".to_owned()),
            upstream: Some(Upstream { address: "unix:/x".to_owned(), took: Duration::from_millis(2) }),
        }
    }

    #[test]
    fn a_combined_line_keeps_its_shape_whatever_a_client_sends() {
        let mut out = Vec::new();
        combined(&mut out, "06/Nov/1994:08:49:37 +0000", &caught(), &record(), 17);
        let line = "127.0.0.1 - - [06/Nov/1994:08:49:37 +0000] \"GET /a\\\"b?c=\\\\ HTTP/1.1\" 502 17 \"-\" \
                    \"evil\\x1b[2J\\\"agent\"\n";
        assert_eq!(String::from_utf8_lossy(&out), line);
    }

    #[test]
    fn a_json_line_is_one_object() {
        let mut out = Vec::new();
        json(&mut out, "1994-11-06T08:49:37", 7, &caught(), &record(), 17);
        let text = String::from_utf8_lossy(&out);
        let (front, back) = text.split_once("\"duration_s\":").unwrap_or_default();
        assert_eq!(
            front,
            "{\"time\":\"1994-11-06T08:49:37.007Z\",\"id\":\"5f\",\"remote\":\"127.0.0.1\",\"method\":\"GET\",\
             \"target\":\"/a\\\"b?c=\\\\\",\"host\":\"example.org\",\"protocol\":\"HTTP/1.1\",\"status\":502,\
             \"bytes\":17,"
        );
        assert!(
            back.ends_with(
                ",\"user_agent\":\"evil\\u001b[2J\\\"agent\",\"upstream\":\"unix:/x\",\
                 \"upstream_duration_s\":0.002000,\"error\":\"connect: refused\"}\n"
            ),
            "{back}"
        );
    }
}
