//! The line that moves while a copy runs: entries, bytes, rate, time left. On a terminal only, on stderr.

use super::talk::Talk;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ringroad_copy::{Control, Totals};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Often enough to look alive.
const EVERY: Duration = Duration::from_millis(200);

/// A line on stderr, drawn by [`watch`].
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
        let (totals, elapsed) = (control.totals(), begun.elapsed());
        let scan_done = control.scan_is_done();
        if let Some(bar) = bar {
            bar.set_message(line(&totals, elapsed, scan_done));
        }
        talk.progress(&totals, elapsed.as_secs_f64(), scan_done);
    }
}

/// `12,345 of 100,000 files, 1.2 GiB, 34,567 files/s, 98.7 MiB/s, 3 s left`.
fn line(totals: &Totals, elapsed: Duration, scan_done: bool) -> String {
    use indicatif::{BinaryBytes, HumanCount};
    let seconds = elapsed.as_secs_f64().max(0.001);
    let ended = totals.copied + totals.skipped + totals.failed;
    let rate = ended as f64 / seconds;
    let left = totals.scanned.saturating_sub(ended) as f64 / rate.max(0.001);
    // Until everything is found, what is left can only grow.
    let (of, left) = match scan_done {
        true => (HumanCount(totals.scanned).to_string(), format!("{left:.0} s left")),
        false => (format!("{}+", HumanCount(totals.scanned)), "still finding files".to_string()),
    };
    let mut line = format!(
        "{} of {of} files, {}, {} files/s, {}/s, {left}",
        HumanCount(ended),
        BinaryBytes(totals.bytes),
        HumanCount(rate as u64),
        BinaryBytes((totals.bytes as f64 / seconds) as u64),
    );
    if totals.errors > 0 {
        line.push_str(&format!(", {} errors", HumanCount(totals.errors)));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_is_told_only_when_everything_is_found() {
        let totals = Totals { scanned: 4000, copied: 1000, files: 1000, bytes: 1 << 20, ..Totals::default() };
        let found = line(&totals, Duration::from_secs(1), true);
        assert_eq!(found, "1,000 of 4,000 files, 1.00 MiB, 1,000 files/s, 1.00 MiB/s, 3 s left");
        let finding = line(&totals, Duration::from_secs(1), false);
        assert!(finding.contains("4,000+") && !finding.contains("left"), "{finding}");
    }
}
