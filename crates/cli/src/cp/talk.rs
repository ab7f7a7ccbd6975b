//! Output while a copy runs: `-v` lines, errors, JSON events, questions; from every worker, a line at a time.
//!
//! Start at [`Talk`]. Progress that moves is in `progress.rs`.

use super::message::Voice;
use base64::Engine as _;
use ringroad_copy::{
    Choice, Error, ErrorKind, Event, Holes, Kind, Means, Method, Observer, Phase, Refusal, Report, Skip,
    Totals,
};
use serde_json::{Map, Value, json};
use std::ffi::OsStr;
use std::io::{self, BufRead, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Standard output, and the first thing that went wrong with it.
struct Out {
    writer: io::BufWriter<crate::complaint::Output>,
    failed: Option<io::Error>,
    /// Each line at once: for a terminal, and for a program that reads events as they come.
    each: bool,
}

/// Prints the events of a running copy.
pub(super) struct Talk {
    voice: Voice,
    verbose: bool,
    debug: bool,
    json: bool,
    /// The question about protected files depends on whether they would be removed.
    overrides: bool,
    out: Mutex<Out>,
    /// Hears of errors of writing, and answers whether the copy ends by this one.
    ends: Box<dyn Fn(&io::Error) -> bool + Send + Sync>,
    declined: AtomicBool,
    /// A question waits for its answer.
    asking: Arc<AtomicBool>,
    /// Drawn over: it is cleared before anything else is written to the terminal.
    bar: Option<indicatif::ProgressBar>,
}

impl Talk {
    pub(super) fn new(
        voice: Voice,
        request: &super::options::Request,
        bar: Option<indicatif::ProgressBar>,
        asking: Arc<AtomicBool>,
    ) -> Talk {
        let each = request.json || request.options.interactive || io::stdout().is_terminal();
        Talk {
            voice,
            verbose: request.verbose && !request.json,
            debug: request.debug && !request.json,
            json: request.json,
            overrides: request.options.force || request.options.remove_destination,
            declined: AtomicBool::new(false),
            asking,
            ends: Box::new(|_| false),
            out: Mutex::new(Out {
                writer: io::BufWriter::new(crate::complaint::output()),
                failed: None,
                each,
            }),
            bar,
        }
    }

    /// Has `ends` hear of writing where nothing reads: on standard output, and in a target that is a pipe. If
    /// it answers that the copy ends by it, no message is needed.
    pub(super) fn told_of_readers(self, ends: impl Fn(&io::Error) -> bool + Send + Sync + 'static) -> Talk {
        Talk { ends: Box::new(ends), ..self }
    }

    /// Prints a line on stdout. A write error is reported once, at the end, by [`Talk::finish`].
    pub(super) fn line(&self, text: &str) {
        self.raw_line(text.as_bytes());
    }

    fn raw_line(&self, text: &[u8]) {
        let write = || {
            let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
            if out.failed.is_some() {
                return;
            }
            let mut written = out.writer.write_all(text).and_then(|()| out.writer.write_all(b"\n"));
            if out.each {
                written = written.and_then(|()| out.writer.flush());
            }
            out.failed = written.err();
            if let Some(error) = &out.failed {
                (self.ends)(error);
            }
        };
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    pub(super) fn complain(&self, message: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| self.voice.say(message)),
            None => self.voice.say(message),
        }
    }

    /// Returns whether the user declined a replacement: since 9.2, GNU cp then exits with an error.
    pub(super) fn declined(&self) -> bool {
        self.declined.load(Ordering::Relaxed)
    }

    /// Flushes what is buffered, and returns the first write error.
    pub(super) fn finish(&self) -> io::Result<()> {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        match out.failed.take() {
            Some(error) => Err(error),
            None => out.writer.flush(),
        }
    }

    pub(super) fn progress(&self, totals: &Totals, elapsed_s: f64, scan_done: bool) {
        if self.json {
            let mut event = counts("progress", totals);
            event.insert("elapsed_s".into(), json!(elapsed_s));
            event.insert("scan_done".into(), json!(scan_done));
            self.line(&Value::Object(event).to_string());
        }
    }

    pub(super) fn done(&self, report: &Report, exit_code: u8) {
        if self.json {
            let mut event = counts("done", &report.totals);
            event.insert("elapsed_s".into(), json!(report.elapsed.as_secs_f64()));
            event.insert("engine".into(), json!(report.choice.engine.name()));
            event.insert("why".into(), json!(report.choice.why));
            event.insert("workers".into(), json!(report.workers));
            event.insert("mismatches".into(), json!(report.mismatches));
            event.insert("full".into(), json!(report.full));
            if !report.missing.is_empty() {
                event.insert("missing".into(), report.missing.iter().map(missing).collect());
            }
            event.insert("cancelled".into(), json!(report.cancelled));
            event.insert("exit_code".into(), json!(exit_code));
            if !report.phases.is_empty() {
                let phases: Vec<Value> = report.phases.iter().map(phase).collect();
                event.insert("phases".into(), json!(phases));
            }
            self.line(&Value::Object(event).to_string());
        }
    }

    /// Reports a copy that did not begin: its error, and the end.
    pub(super) fn refused(&self, refusal: &Refusal, exit_code: u8) {
        if self.json {
            let mut event = Map::new();
            event.insert("event".into(), json!("error"));
            event.insert("warning".into(), json!(false));
            if let Refusal::Manifest(file, error) = refusal {
                event.insert("what".into(), json!("create manifest"));
                event.insert("why".into(), json!(crate::complaint::why(error)));
                path(&mut event, "path", file.as_os_str());
                if let Some(errno) = error.raw_os_error() {
                    event.insert("errno".into(), json!(errno));
                }
            } else {
                event.insert("what".into(), json!("begin"));
                event.insert("why".into(), json!(refusal.to_string()));
            }
            self.line(&Value::Object(event).to_string());
            let mut event = counts("done", &Totals { errors: 1, ..Totals::default() });
            event.insert("exit_code".into(), json!(exit_code));
            self.line(&Value::Object(event).to_string());
        }
    }

    fn start(&self, choice: &Choice) {
        if self.json {
            let refused: Vec<Value> = choice
                .refused
                .iter()
                .map(|(engine, reason)| json!({"engine": engine.name(), "reason": reason}))
                .collect();
            let event = json!({
                "event": "start", "engine": choice.engine.name(), "why": choice.why, "refused": refused,
                "jobs": choice.jobs, "in_flight": choice.in_flight,
            });
            self.line(&event.to_string());
        }
    }

    /// What a dry run would remove is its result; otherwise `-v` prints it.
    fn deleted(&self, target: &Path, planned: bool) {
        if self.json {
            let mut event = Map::new();
            event.insert("event".into(), json!(if planned { "would_delete" } else { "deleted" }));
            path(&mut event, "target", target.as_os_str());
            self.line(&Value::Object(event).to_string());
        } else if planned {
            self.line(&format!("delete {}", self.voice.name(target)));
        } else if self.verbose {
            self.line(&format!("deleted {}", self.voice.name(target)));
        }
    }

    fn error(&self, error: &Error) {
        if self.json {
            let mut event = Map::new();
            event.insert("event".into(), json!("error"));
            event.insert("what".into(), json!(error.kind.what()));
            path(&mut event, "path", error.path.as_os_str());
            if let Some(other) = &error.other {
                path(&mut event, "other", other.as_os_str());
            }
            let system = error.source.as_ref().map(crate::complaint::why);
            let reason = error.kind.why().map(str::to_owned).or(system);
            event.insert("why".into(), json!(reason));
            event.insert("warning".into(), json!(error.is_warning()));
            if let Some(errno) = error.source.as_ref().and_then(io::Error::raw_os_error) {
                event.insert("errno".into(), json!(errno));
            }
            self.line(&Value::Object(event).to_string());
        }
        if error.kind == ErrorKind::Write
            && let Some(why) = error.source.as_ref().filter(|why| why.kind() == io::ErrorKind::BrokenPipe)
            && is_pipe(&error.path)
            && (self.ends)(why)
        {
            return;
        }
        // GNU cp does not check whether a source changes.
        if error.kind == ErrorKind::Changed && self.voice != Voice::House {
            return;
        }
        self.complain(&self.voice.error(error));
    }

    /// What a dry run would do.
    fn planned(&self, source: &Path, target: &Path, replaces: bool, bytes: u64) {
        if self.json {
            let mut event = Map::new();
            event.insert("event".into(), json!("planned"));
            path(&mut event, "source", source.as_os_str());
            path(&mut event, "target", target.as_os_str());
            event.insert("replaces".into(), json!(replaces));
            event.insert("bytes".into(), json!(bytes));
            return self.line(&Value::Object(event).to_string());
        }
        let note = if replaces { " (replaces)" } else { "" };
        self.line(&format!("{} -> {}{note}", self.voice.name(source), self.voice.name(target)));
    }

    fn copied(&self, source: &Path, target: &Path, backup: Option<&Path>, method: Option<Method>) {
        let name = |path| self.voice.name(path);
        let backup = backup.map(|backup| format!(" (backup: {})", name(backup))).unwrap_or_default();
        let mut text = format!("{} -> {}{backup}", name(source), name(target));
        if let Some(method) = method.filter(|_| self.debug) {
            text.push('\n');
            text.push_str(&how(method));
        }
        self.line(&text);
    }
}

impl Observer for Talk {
    fn wants_entries(&self) -> bool {
        self.verbose
    }

    fn event(&self, event: Event<'_>) {
        match event {
            Event::Start(choice) => self.start(choice),
            // As GNU cp has it: these names alone are not quoted.
            Event::Copied { kind: Kind::Parent, source, target, .. }
                if self.verbose && self.voice != Voice::House =>
            {
                self.raw_line(
                    &[source.as_os_str().as_bytes(), b" -> ", target.as_os_str().as_bytes()].concat(),
                );
            }
            Event::Copied { source, target, backup, method, .. } if self.verbose => {
                self.copied(source, target, backup, method);
            }
            Event::Planned { source, target, replaces, bytes, .. } => {
                self.planned(source, target, replaces, bytes);
            }
            Event::Skipped { target, why, .. } if self.debug && told(why) => {
                self.line(&format!("skipped {}", self.voice.name(target)));
            }
            Event::Removed(target) if self.verbose => {
                self.line(&format!("removed {}", self.voice.name(target)))
            }
            Event::Deleted { target, planned } => self.deleted(target, planned),
            Event::Error(error) => self.error(error),
            _ => {}
        }
    }

    fn overwrite(&self, target: &Path, protected_mode: Option<u32>) -> bool {
        self.asking.store(true, Ordering::Relaxed);
        let mut stderr = io::stderr().lock();
        let _ = stderr.write_all(self.voice.question(target, protected_mode, self.overrides).as_bytes());
        let _ = stderr.flush();
        drop(stderr);
        let mut answer = Vec::new();
        // No answer is no: standard input may be closed or at its end.
        let read = io::stdin().lock().read_until(b'\n', &mut answer);
        self.asking.store(false, Ordering::Relaxed);
        let yes = read.is_ok() && matches!(answer.first(), Some(b'y' | b'Y'));
        self.declined.fetch_or(!yes, Ordering::Relaxed);
        yes
    }
}

/// Returns whether writing to this file raises SIGPIPE where nothing reads.
fn is_pipe(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|about| about.file_type().is_fifo() || about.file_type().is_socket())
}

/// Returns how a file came to its copy, in the words of GNU cp's `--debug`.
fn how(method: Method) -> String {
    let means = |means| match means {
        Means::Unknown => "unknown",
        Means::No => "no",
        Means::Yes => "yes",
        Means::Avoided => "avoided",
        Means::Unsupported => "unsupported",
    };
    let holes = match method.holes {
        Holes::Unknown => "unknown",
        Holes::No => "no",
        Holes::Seek => "SEEK_HOLE",
        Holes::Zeros => "zeros",
        Holes::SeekAndZeros => "SEEK_HOLE + zeros",
    };
    let (offload, reflink) = (means(method.offload), means(method.reflink));
    format!("copy offload: {offload}, reflink: {reflink}, sparse detection: {holes}")
}

/// Returns whether `--debug` tells that an entry stays out: where its target is there already.
fn told(why: Skip) -> bool {
    matches!(why, Skip::Exists | Skip::NotOlder | Skip::Resumed | Skip::Listed | Skip::Declined)
}

fn counts(event: &str, totals: &Totals) -> Map<String, Value> {
    let Totals {
        scanned,
        copied,
        skipped,
        failed,
        files,
        directories,
        bytes,
        bytes_shared,
        verified,
        deleted,
        errors,
    } = *totals;
    let event = json!({
        "event": event, "scanned": scanned, "copied": copied, "skipped": skipped, "failed": failed,
        "files": files, "directories": directories, "bytes": bytes, "bytes_shared": bytes_shared,
        "verified": verified, "deleted": deleted, "errors": errors,
    });
    if let Value::Object(map) = event { map } else { Map::new() }
}

/// Returns what a file system did not take.
fn missing(missing: &ringroad_copy::Missing) -> Value {
    let (major, minor) = missing.numbers();
    json!({
        "place": missing.place.to_string_lossy(),
        "device": format!("{major}:{minor}"),
        "entries": missing.entries,
        "directories": missing.directories,
        "why": crate::complaint::why(&missing.why()),
    })
}

fn phase(phase: &Phase) -> Value {
    json!({"name": phase.name, "time_s": phase.time.as_secs_f64(), "calls": phase.calls})
}

/// A path as text, and its bytes beside it when text cannot hold them.
fn path(event: &mut Map<String, Value>, key: &str, path: &OsStr) {
    event.insert(key.into(), json!(path.to_string_lossy()));
    if path.to_str().is_none() {
        let bytes = base64::engine::general_purpose::STANDARD.encode(path.as_bytes());
        event.insert(format!("{key}_b64"), json!(bytes));
    }
}
