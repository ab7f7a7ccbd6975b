//! Writes results: the summary, the record as JSON, the seconds as CSV. A failed output does not affect the
//! others.
//!
//! Start at [`Output`].

use super::Complaint;
use super::flags::LoadFlags;
use super::part;
use super::post::Post;
use crate::complaint::{FAILED, USAGE, say};
use crate::outfile::{OutFile, unwritten};
use crate::terminal::{Indent, columns, fitted};
use ringroad_load::Point;
use ringroad_measure::Verdict;
use ringroad_measure::caveat::Level;
use ringroad_measure::record::Record;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Where results go.
pub(super) struct Output {
    record: Option<Place>,
    csv: Option<Place>,
    /// Where the record is handed over, and its name there.
    post: Option<(Post, String)>,
    quiet: bool,
    /// Set when the program is to stop.
    stop: Arc<AtomicBool>,
}

enum Place {
    Stdout,
    File(OutFile),
}

impl Place {
    fn open(path: &Path, quiet: bool) -> Result<Place, Complaint> {
        if path.as_os_str() == "-" {
            return Ok(Place::Stdout);
        }
        OutFile::open(path, quiet).map(Place::File).map_err(|error| refused(path, &error))
    }

    fn write(&self, text: &str) -> Result<(), Complaint> {
        match self {
            Place::Stdout => print(text),
            Place::File(file) => file.write(text).map_err(|error| refused(file.path(), &error)),
        }
    }
}

impl Output {
    /// As the flags have it. Files are opened now: ten minutes must not end in "permission denied".
    pub(super) fn new(flags: &LoadFlags, quiet: bool, stop: Arc<AtomicBool>) -> Result<Output, Complaint> {
        let is_dash = |path: Option<&Path>| path.is_some_and(|path| path.as_os_str() == "-");
        let (out, csv) = (flags.out.as_deref(), flags.csv.as_deref());
        if (flags.json || is_dash(out)) && is_dash(csv) {
            let message = "--csv - with the record on standard output: one of them needs a file".to_owned();
            return Err(Complaint { message, code: USAGE });
        }
        let open = |path: &Path| Place::open(path, quiet);
        let record = if flags.json { Some(Place::Stdout) } else { out.map(open).transpose()? };
        let csv = csv.map(open).transpose()?;
        let post = match &flags.post {
            Some(text) => Some((Post::of(text)?, part::file_name(part::found(&flags.parts)?.as_ref()))),
            None => None,
        };
        Ok(Output { record, csv, post, quiet, stop })
    }

    /// Writes everything, the summary first; then what failed, if something did.
    pub(super) fn write(&self, summary: &str, record: &Record, series: &[Point]) -> Result<(), Complaint> {
        let machine = [&self.record, &self.csv].into_iter().any(|place| matches!(place, Some(Place::Stdout)));
        let summary = match (self.quiet, machine) {
            (true, _) => {
                tell_verdict(&record.verdict);
                Ok(())
            }
            (false, false) => print(&fitted(summary, columns(io::stdout()), Indent::AsTheLine)),
            (false, true) => {
                // A closed standard error is no reason to stop.
                let text = fitted(summary, columns(io::stderr()), Indent::AsTheLine);
                let _ = io::stderr().lock().write_all(text.as_bytes());
                Ok(())
            }
        };
        // What another machine takes, or does not, is last.
        let csv = self.csv.as_ref().map_or(Ok(()), |place| place.write(&csv(series)));
        let record = self.write_record(record);
        summary.and(record).and(csv)
    }

    /// Writes the record alone.
    pub(super) fn write_record(&self, record: &Record) -> Result<(), Complaint> {
        if self.record.is_none() && self.post.is_none() {
            return Ok(());
        }
        // Strings, numbers and lists of ours: there is no value that JSON could not hold.
        let mut text = serde_json::to_string_pretty(record).unwrap_or_default();
        text.push('\n');
        let written = self.record.as_ref().map_or(Ok(()), |place| place.write(&text));
        let posted = self.post.as_ref().map_or(Ok(()), |(post, name)| post.send(name, &text, &self.stop));
        written.and(posted)
    }
}

/// Prints a verdict that is not VALID, even if other output is suppressed.
fn tell_verdict(verdict: &Verdict) {
    if verdict.level != Level::Valid {
        let reason = verdict.reasons.first().map(ToString::to_string).unwrap_or_default();
        say(&format!("{}: {reason}", verdict.level));
    }
}

/// Returns a line for each second: what spreadsheets read.
fn csv(series: &[Point]) -> String {
    let mut out = String::from("at_s,seconds,completed,failed,p50_us,p99_us,max_us\n");
    let micros = |ns: Option<u64>| ns.map_or(String::new(), |ns| format!("{:.3}", ns as f64 / 1e3));
    for point in series {
        let Point { at_s, seconds, completed, failed, p50_ns, p99_ns, max_ns } = point;
        let (p50, p99, max) = (micros(*p50_ns), micros(*p99_ns), micros(*max_ns));
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{at_s},{seconds},{completed},{failed},{p50},{p99},{max}");
    }
    out
}

fn refused(file: &Path, error: &io::Error) -> Complaint {
    Complaint { message: unwritten(file, error), code: FAILED }
}

/// Prints on standard output.
pub(super) fn print(text: &str) -> Result<(), Complaint> {
    crate::complaint::print(text).map_err(|message| Complaint { message, code: FAILED })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_lines_and_what_was_not_measured_is_empty() {
        let whole = Point {
            at_s: 0,
            seconds: 1,
            completed: 7,
            p50_ns: Some(1_500),
            p99_ns: Some(2_000),
            max_ns: Some(3_000),
            failed: 0,
        };
        let none = Point { at_s: 1, seconds: 1, failed: 2, ..Point::default() };
        assert_eq!(
            csv(&[whole, none]),
            "at_s,seconds,completed,failed,p50_us,p99_us,max_us\n0,1,7,0,1.500,2.000,3.000\n1,1,0,2,,,\n"
        );
    }
}
