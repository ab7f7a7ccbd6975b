//! The access log: a line for each request, written by a thread of its own.
//!
//! A worker appends to a buffer that it shares only with that thread, and goes on. The thread sleeps until a
//! buffer has lines, waits a moment for more, and writes all of them in one go. A disk that stands still
//! costs lines (they are counted and reported), never requests. The forms of a line are in `line.rs`. Start
//! at [`Log`] and [`Writer`].

mod line;
mod syslog;

use crate::config::{Format, LogTo, Target};
use crate::event::{Event, EventSink};
use line::{OfRefused, first_line, pair, quoted};
use ringroad_gate::date::Stamp;
use ringroad_gate::flow::{End, Flow};
use ringroad_http::Refused;
use rustix::fs::{Access, OFlags, access, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use std::cell::RefCell;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use syslog::Syslog;

/// How long the thread lets lines gather.
const GATHER: Duration = Duration::from_millis(50);

/// Lines of one worker that wait to be written, at most.
const WAITING_BYTES_MAX: usize = 4 << 20;

/// One log: where it goes, and the thread that writes it.
pub(crate) struct Log {
    pub(crate) to: LogTo,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Lines about requests that no worker's handler has seen.
    refusals: Arc<Mutex<Vec<u8>>>,
}

struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    /// Raised when the thread ends.
    ended: Condvar,
    dropped: AtomicU64,
}

#[derive(Default)]
struct State {
    buffers: Vec<Arc<Mutex<Vec<u8>>>>,
    /// An empty buffer has got lines.
    pending: bool,
    /// The file was moved away: earlier lines still go there.
    reopen: bool,
    before: Vec<u8>,
    stop: bool,
    /// The thread has written all, and ends.
    ended: bool,
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
    /// Opens a log. A file that is not there is not made yet: [`create`](Self::create) does it once the
    /// server serves, so that a start that fails leaves no empty file.
    ///
    /// # Errors
    /// The file cannot be opened or made, or there is no thread.
    pub(crate) fn open(to: &LogTo, events: &EventSink) -> io::Result<Arc<Log>> {
        let output = match &to.target {
            Target::File(path) if !path.try_exists()? => {
                check(&to.target)?;
                Output::Absent
            }
            target => Output::open(target)?,
        };
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            wake: Condvar::new(),
            ended: Condvar::new(),
            dropped: AtomicU64::new(0),
        });
        let work = Work {
            to: to.clone(),
            events: events.clone(),
            shared: Arc::clone(&shared),
            output,
            failing: false,
            torn: false,
        };
        let thread = thread::Builder::new().name("ringroad-log".to_owned()).spawn(move || work.run())?;
        let refusals = Arc::<Mutex<Vec<u8>>>::default();
        lock(&shared.state).buffers.push(Arc::clone(&refusals));
        Ok(Arc::new(Log { to: to.clone(), shared, thread: Mutex::new(Some(thread)), refusals }))
    }

    /// Makes the file, where it is not there.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn create(&self) -> io::Result<()> {
        if let Target::File(path) = &self.to.target
            && !path.try_exists()?
        {
            Output::open(&self.to.target)?;
            self.reopen();
        }
        Ok(())
    }

    /// Makes a worker's writer.
    pub(crate) fn writer(self: &Arc<Log>) -> Writer {
        let buffer = Arc::<Mutex<Vec<u8>>>::default();
        lock(&self.shared.state).buffers.push(Arc::clone(&buffer));
        Writer { log: Arc::clone(self), buffer, stamp: RefCell::default() }
    }

    /// Opens the file anew, because it was moved away: what has come so far is written to the old one, and
    /// what comes from now on to the new one.
    pub(crate) fn reopen(&self) {
        self.shared.tell(|state| {
            for buffer in &state.buffers {
                state.before.append(&mut lock(buffer));
            }
            state.reopen = true;
        });
    }

    /// Writes the line of a request that the protocol layer has refused. One that had begun has its own line,
    /// with the status of the refusal.
    pub(crate) fn refused(&self, refused: &Refused<'_>) {
        if refused.begun {
            return;
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let stamp = Stamp::at(UNIX_EPOCH + Duration::from_secs(since.as_secs()));
        let first = first_line(refused);
        let status = refused.status.map_or(0, |status| status.code());
        if !self.to.only.takes(status, Duration::ZERO) {
            return;
        }
        let client = refused.client.map(|client| client.ip().to_canonical());
        let mut line = String::new();
        match &self.to.format {
            Format::Text(template) => {
                let mut bytes = Vec::new();
                line::refused_text(&mut bytes, template, &OfRefused { refused, now: &stamp });
                line = String::from_utf8_lossy(&bytes).into_owned();
            }
            Format::Combined => {
                match client {
                    Some(client) => drop(write!(line, "{client}")),
                    None => line.push('-'),
                }
                let _ = write!(line, " - - [{}] \"", stamp.combined());
                quoted(&mut line, first);
                let _ = writeln!(line, "\" {status} 0 \"-\" \"-\"");
            }
            Format::Json => {
                let millis = since.subsec_millis();
                let _ = write!(line, "{{\"time\":\"{}.{millis:03}Z\"", stamp.seconds());
                if let Some(client) = client {
                    let _ = write!(line, ",\"remote\":\"{client}\"");
                }
                let _ = write!(line, ",\"status\":{status},\"bytes\":0");
                pair(&mut line, "refused", Some(refused.reason.to_string().as_bytes()));
                pair(&mut line, "request_line", Some(first));
                line.push_str("}\n");
            }
        }
        let mut buffer = lock(&self.refusals);
        if buffer.len() >= WAITING_BYTES_MAX {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        buffer.extend_from_slice(line.as_bytes());
        drop(buffer);
        self.shared.tell(|state| state.pending = true);
    }

    /// Returns the number of dropped lines.
    pub(crate) fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// Writes what is left, and ends. A reader of the log that stands still (a FIFO, a full pipe) is waited
    /// for so long; then what is left is lost.
    pub(crate) fn finish(&self, patience: Duration) {
        self.shared.tell(|state| state.stop = true);
        let Some(thread) = lock(&self.thread).take() else { return };
        let state = lock(&self.shared.state);
        let waited = self.shared.ended.wait_timeout_while(state, patience, |state| !state.ended);
        let ended = waited.unwrap_or_else(PoisonError::into_inner).0.ended;
        if ended {
            // The thread does not panic; if it did, the panic hook has reported it.
            let _ = thread.join();
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // The thread that drops it last does not wait for a disk: the log's own thread ends by itself.
        self.shared.tell(|state| state.stop = true);
    }
}

/// Writes lines. What a full disk took of one is ended as a line before the next.
fn write_lines(file: &mut impl Write, lines: &[u8], torn: &mut bool) -> io::Result<()> {
    if *torn {
        file.write_all(b"\n")?;
        *torn = false;
    }
    let mut rest = lines;
    while !rest.is_empty() {
        match file.write(rest) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::WriteZero)),
            Ok(written) => {
                *torn = rest.get(written - 1).is_some_and(|last| *last != b'\n');
                rest = rest.get(written..).unwrap_or_default();
            }
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(why) => return Err(why),
        }
    }
    Ok(())
}

/// Checks that a log can be written there, without making a file or opening one.
///
/// # Errors
/// It is a folder, it or its folder is not there, or may not be written.
pub(crate) fn check(target: &Target) -> io::Result<()> {
    // The daemon of syslog may be started later.
    let Target::File(path) = target else { return Ok(()) };
    match std::fs::metadata(path) {
        Ok(facts) if facts.is_dir() => Err(Errno::ISDIR.into()),
        Ok(_) => Ok(access(path, Access::WRITE_OK)?),
        Err(why) if why.kind() == io::ErrorKind::NotFound => {
            let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
            Ok(access(folder, Access::WRITE_OK | Access::EXEC_OK)?)
        }
        Err(why) => Err(why),
    }
}

/// Where lines go.
enum Output {
    Stdout,
    /// A file that is not there yet. The first line makes it, if [`Log::create`] has not.
    Absent,
    File(File),
    Syslog(Syslog),
}

impl Output {
    fn open(target: &Target) -> io::Result<Output> {
        Ok(match target {
            Target::Stdout => Output::Stdout,
            Target::File(path) => Output::File(open(path)?),
            Target::Syslog(to, facility) => Output::Syslog(Syslog::open(to, *facility)?),
        })
    }
}

/// Opens a log, and makes it where there is none. A FIFO without a reader is an error: the server is not to
/// wait for one.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = options.create(true).append(true).custom_flags(flags.bits().cast_signed()).open(path);
    let file = file.map_err(|why| match Errno::from_io_error(&why) {
        Some(Errno::NXIO) => io::Error::other("a FIFO that nothing reads"),
        _ => why,
    })?;
    // Only the opening: a reader that is slow is waited for, as ever.
    let flags = fcntl_getfl(&file)?;
    fcntl_setfl(&file, flags.difference(OFlags::NONBLOCK))?;
    Ok(file)
}

/// The thread's side.
struct Work {
    to: LogTo,
    events: EventSink,
    shared: Arc<Shared>,
    output: Output,
    /// The last write failed and was reported.
    failing: bool,
    /// A write ended within a line.
    torn: bool,
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
                lock(&self.shared.state).ended = true;
                return self.shared.ended.notify_all();
            }
        }
    }

    fn write(&mut self, lines: &[u8]) {
        if lines.is_empty() {
            return;
        }
        match self.try_write(lines) {
            Ok(()) => self.failing = false,
            Err(why) => {
                let count = lines.iter().filter(|byte| **byte == b'\n').count() as u64;
                self.shared.dropped.fetch_add(count, Ordering::Relaxed);
                if !std::mem::replace(&mut self.failing, true) {
                    self.events.report(Event::LogFailed {
                        target: self.to.target.to_string(),
                        why: why.to_string(),
                    });
                }
            }
        }
    }

    fn try_write(&mut self, lines: &[u8]) -> io::Result<()> {
        if matches!(self.output, Output::Absent) {
            self.output = Output::open(&self.to.target)?;
        }
        match &mut self.output {
            Output::Stdout => self.events.write_stdout(lines),
            Output::File(file) => write_lines(file, lines, &mut self.torn),
            Output::Syslog(syslog) => syslog.write(lines),
            Output::Absent => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn reopen(&mut self) {
        match Output::open(&self.to.target) {
            Ok(output) => (self.output, self.torn) = (output, false),
            // The open file stays in use.
            Err(why) => {
                let (target, why) = (self.to.target.to_string(), why.to_string());
                self.events.report(Event::LogNotReopened { target, why });
            }
        }
    }
}

/// A worker's writer of a log.
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
    /// Lines of answers that its lines name, and that must be kept until then.
    pub(crate) fn answer_lines(&self) -> &[String] {
        &self.log.to.answer_lines
    }

    /// Writes the line of a request that is over, unless the configuration leaves it out.
    pub(crate) fn line(&self, flow: &Flow, end: &End) {
        let named = flow.context.route.as_ref().is_none_or(|route| route.logged);
        if !named || !self.log.to.only.takes(end.status, end.took) {
            return;
        }
        let mut now = self.stamp.borrow_mut();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        if now.second != since.as_secs() {
            let stamp = Stamp::at(UNIX_EPOCH + Duration::from_secs(since.as_secs()));
            now.second = since.as_secs();
            now.text = match &self.log.to.format {
                Format::Combined => stamp.combined(),
                Format::Json => stamp.seconds(),
                Format::Text(_) => String::new(),
            };
        }
        let was_empty = {
            let mut buffer = lock(&self.buffer);
            if buffer.len() >= WAITING_BYTES_MAX {
                self.log.shared.dropped.fetch_add(1, Ordering::Relaxed);
                return;
            }
            let was_empty = buffer.is_empty();
            match &self.log.to.format {
                Format::Combined => line::combined(&mut buffer, &now.text, flow, end),
                Format::Json => line::json(&mut buffer, &now.text, since.subsec_millis(), flow, end),
                Format::Text(template) => line::text(&mut buffer, template, flow, end),
            }
            was_empty
        };
        if was_empty {
            self.log.shared.tell(|state| state.pending = true);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A disk with so much room.
    struct Disk {
        taken: Vec<u8>,
        room: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let fits = self.room.min(bytes.len());
            if fits == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.room -= fits;
            self.taken.extend_from_slice(&bytes[..fits]);
            Ok(fits)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_that_a_full_disk_has_torn_is_not_continued_by_the_next() {
        let (mut disk, mut torn) = (Disk { taken: Vec::new(), room: 9 }, false);
        assert!(write_lines(&mut disk, b"first\nsecond\n", &mut torn).is_err());
        assert!(write_lines(&mut disk, b"lost\n", &mut torn).is_err());
        disk.room = 100;
        write_lines(&mut disk, b"third\n", &mut torn).unwrap();
        write_lines(&mut disk, b"fourth\n", &mut torn).unwrap();
        assert_eq!(disk.taken, b"first\nsec\nthird\nfourth\n");
    }
}
