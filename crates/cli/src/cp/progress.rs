//! The progress line of a copy: entries, bytes, rate, time left. Only on a terminal, on stderr.

use super::talk::Talk;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ringroad_copy::{Control, Totals, Underway};
use ringroad_measure::units::in_number;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Interval between updates.
const EVERY: Duration = Duration::from_millis(200);

/// Returns a line on stderr, drawn by [`watch`].
pub(super) fn bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    // A template of our own: what is in it is known, so it parses.
    bar.set_style(ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// Tells the watcher that the copy is over.
#[derive(Default)]
pub(super) struct Over {
    is: Mutex<bool>,
    told: Condvar,
}

impl Over {
    pub(super) fn tell(&self) {
        *self.is.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.told.notify_all();
    }

    /// Waits for a while or until it is told; returns whether it was.
    fn wait(&self, time: Duration) -> bool {
        let is = self.is.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.told.wait_timeout_while(is, time, |over| !*over);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Looks at the running copy until it is over: draws the line, tells JSON readers.
pub(super) fn watch(control: &Control, talk: &Talk, bar: Option<&ProgressBar>, over: &Over) {
    let begun = Instant::now();
    while !over.wait(EVERY) {
        // Asked first: what was found until then is the whole.
        let scan_done = control.scan_is_done();
        let (totals, elapsed) = (control.totals(), begun.elapsed());
        if let Some(bar) = bar {
            bar.set_message(line(&totals, &control.underway(), elapsed, scan_done));
        }
        talk.progress(&totals, elapsed.as_secs_f64(), scan_done);
    }
}

/// `12,345 of 100,000 files, 1.2 GiB, 34,567 files/s, 98.7 MiB/s, 3 s left`.
fn line(totals: &Totals, underway: &Underway, elapsed: Duration, scan_done: bool) -> String {
    use indicatif::{BinaryBytes, HumanCount};
    let seconds = elapsed.as_secs_f64().max(0.001);
    let ended = totals.copied + totals.skipped + totals.failed;
    let rate = ended as f64 / seconds;
    // Until everything is found, what is left can only grow.
    let (of, left) = match (scan_done, left(totals, underway, seconds)) {
        (false, _) => (format!("{}+", HumanCount(totals.scanned)), "still finding files".to_string()),
        (true, Some(left)) => (HumanCount(totals.scanned).to_string(), format!("{left:.0} s left")),
        (true, None) => (HumanCount(totals.scanned).to_string(), "time left unknown".to_string()),
    };
    let mut line = format!(
        "{} of {of} files, {}, {} files/s, {}/s, {left}",
        HumanCount(ended),
        BinaryBytes(totals.bytes),
        HumanCount(rate as u64),
        BinaryBytes((totals.bytes as f64 / seconds) as u64),
    );
    if totals.errors > 0 {
        line.push_str(&format!(", {}", grouped(totals.errors, "error")));
    }
    line
}

/// Returns what was copied, in a line: `copied 20,000 files, 78.12 MiB in 0.81 s (24,691 files/s, 96.45
/// MiB/s), 3 skipped`.
pub(super) fn done(totals: &Totals, elapsed: Duration) -> String {
    use indicatif::{BinaryBytes, HumanCount};
    let seconds = elapsed.as_secs_f64().max(0.001);
    let mut line = format!(
        "cp: copied {}, {} in {seconds:.2} s ({} files/s, {}/s)",
        grouped(totals.files, "file"),
        BinaryBytes(totals.bytes),
        HumanCount((totals.files as f64 / seconds) as u64),
        BinaryBytes((totals.bytes as f64 / seconds) as u64),
    );
    if totals.skipped > 0 {
        line.push_str(&format!(", {} skipped", HumanCount(totals.skipped)));
    }
    if totals.verified > 0 {
        line.push_str(&format!(", {} verified", HumanCount(totals.verified)));
    }
    if totals.deleted > 0 {
        line.push_str(&format!(", {} deleted", HumanCount(totals.deleted)));
    }
    line
}

/// Returns what a dry run found, in a line.
pub(super) fn planned(totals: &Totals) -> String {
    use indicatif::{BinaryBytes, HumanCount};
    let mut line = format!(
        "dry run: {} and {}, {}, would be copied",
        grouped(totals.files, "file"),
        grouped(totals.directories, "directory"),
        BinaryBytes(totals.bytes)
    );
    if totals.skipped > 0 {
        line.push_str(&format!(", {} skipped", HumanCount(totals.skipped)));
    }
    if totals.deleted > 0 {
        line.push_str(&format!("; {} would be deleted", grouped(totals.deleted, "entry")));
    }
    line
}

/// Returns a count with its noun, its digits in groups: `20,000 files`.
fn grouped(count: u64, noun: &str) -> String {
    format!("{} {}", indicatif::HumanCount(count), in_number(count, noun))
}

/// Estimates the remaining seconds: the rest of large files by the rate of bytes, and other files by the rate
/// of entries. `None`: nothing was copied yet.
fn left(totals: &Totals, underway: &Underway, seconds: f64) -> Option<f64> {
    let ended = totals.copied + totals.skipped + totals.failed;
    let moved = underway.moved.min(underway.bytes);
    let share = moved as f64 / underway.bytes.max(1) as f64;
    let done = ended as f64 + underway.files as f64 * share;
    let to_begin = totals.scanned.saturating_sub(ended + underway.files);
    let to_move = underway.bytes - moved;
    if done == 0.0 {
        return None;
    }
    Some(seconds * (to_begin as f64 / done + to_move as f64 / totals.bytes.max(1) as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_is_shown_only_when_everything_is_found() {
        let totals = Totals { scanned: 4000, copied: 1000, files: 1000, bytes: 1 << 20, ..Totals::default() };
        let none = Underway::default();
        let found = line(&totals, &none, Duration::from_secs(1), true);
        assert_eq!(found, "1,000 of 4,000 files, 1.00 MiB, 1,000 files/s, 1.00 MiB/s, 3 s left");
        let finding = line(&totals, &none, Duration::from_secs(1), false);
        assert!(finding.contains("4,000+") && !finding.contains("left"), "{finding}");
        let begun = line(&Totals { scanned: 3, ..Totals::default() }, &none, Duration::from_secs(1), true);
        assert!(begun.ends_with("time left unknown"), "{begun}");
    }

    #[test]
    fn the_line_at_the_end_has_files_bytes_time_and_rates() {
        let totals = Totals { files: 1000, bytes: 1 << 20, ..Totals::default() };
        let two = Duration::from_secs(2);
        assert_eq!(
            done(&totals, two),
            "cp: copied 1,000 files, 1.00 MiB in 2.00 s (500 files/s, 512.00 KiB/s)"
        );
        let more = Totals { files: 1, skipped: 3, verified: 1, ..Totals::default() };
        assert_eq!(
            done(&more, two),
            "cp: copied 1 file, 0 B in 2.00 s (0 files/s, 0 B/s), 3 skipped, 1 verified"
        );
        let planned = planned(&Totals { directories: 2, ..totals });
        assert_eq!(planned, "dry run: 1,000 files and 2 directories, 1.00 MiB, would be copied");
    }

    #[test]
    fn of_large_files_the_time_left_follows_their_bytes() {
        const GIB: u64 = 1 << 30;
        let seconds = Duration::from_secs(10);
        // The only one, a quarter of it.
        let one = Totals { scanned: 1, bytes: GIB, ..Totals::default() };
        let quarter = Underway { files: 1, bytes: 4 * GIB, moved: GIB };
        let told = line(&one, &quarter, seconds, true);
        assert_eq!(told, "0 of 1 files, 1.00 GiB, 0 files/s, 102.40 MiB/s, 30 s left");
        // Two at a time, half of both; two more like them are to come.
        let four = Totals { scanned: 4, bytes: 4 * GIB, ..Totals::default() };
        let halves = Underway { files: 2, bytes: 8 * GIB, moved: 4 * GIB };
        assert!(line(&four, &halves, seconds, true).ends_with(" 30 s left"));
        // A pipe: its size is unknown, and it gave more than that.
        let pipe = Underway { files: 1, bytes: 0, moved: GIB };
        assert!(line(&one, &pipe, seconds, true).ends_with("time left unknown"));
    }
}
