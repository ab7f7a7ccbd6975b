//! The progress of a suite on stderr: one line that moves on a terminal, a line per block elsewhere.
//!
//! Drawn on events, never by a timer: between events the harness sleeps and does not disturb the measurement.

use crate::complaint::say;
use crate::flags::Common;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ringroad_lab::{Event, Observer};
use std::io::IsTerminal;
use std::time::Duration;

/// Renders the events of a run.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    quiet: bool,
    verbose: bool,
    block: Option<u32>,
}

impl Progress {
    pub(crate) fn new(common: &Common) -> Progress {
        let terminal = std::io::stderr().is_terminal();
        let bar = (terminal && !common.quiet).then(|| {
            let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
            // A template of our own: what is in it is known, so it parses.
            let style = ProgressStyle::with_template("{wide_bar} {pos}/{len}  {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("━╸ "));
            bar
        });
        Progress { bar, quiet: common.quiet, verbose: common.verbose > 0, block: None }
    }

    /// Clears the line, so that what follows begins on a fresh one.
    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn note(&self, text: &str) {
        match &self.bar {
            _ if self.quiet => {}
            Some(bar) => bar.suspend(|| say(text)),
            None => say(text),
        }
    }
}

impl Observer for Progress {
    fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::Planned { suite, runs, blocks, estimate } => {
                if let Some(bar) = &self.bar {
                    bar.set_length(u64::from(*runs));
                }
                self.note(&format!(
                    "{}: {runs} run{} in {blocks} block{}, about {}",
                    suite.name,
                    s(*runs),
                    s(*blocks),
                    span(*estimate)
                ));
            }
            Event::Skipped { cell, reason } => self.note(&format!("{cell}: skipped: {reason}")),
            Event::RunStarted { cell, block, done, time_left, .. } => {
                if let Some(bar) = &self.bar {
                    bar.set_position(u64::from(*done));
                    bar.set_message(format!("{cell}, {} left", span(*time_left)));
                } else if self.block != Some(*block) {
                    self.note(&format!("block {}, {} left", block + 1, span(*time_left)));
                }
                self.block = Some(*block);
            }
            Event::RunDone { cell, run, caveats, done, .. } => {
                if let Some(bar) = &self.bar {
                    bar.set_position(u64::from(*done));
                }
                if self.verbose {
                    let cpu = run
                        .cpu_us_per_request
                        .map_or("cpu unknown".to_string(), |us| format!("{us:.2} µs/request"));
                    self.note(&format!("{cell}: {cpu}, {:.0} requests/s", run.rps));
                    caveats.iter().for_each(|caveat| self.note(&format!("{cell}: {caveat}")));
                }
            }
            Event::RunFailed { cell, how } => self.note(&format!("{cell}: failed: {how}")),
            Event::Measuring { what } => match &self.bar {
                Some(bar) => bar.set_message((*what).to_owned()),
                None => self.note(what),
            },
            Event::Finished { interrupted: true, blocks } => {
                self.note(&format!(
                    "interrupted after {blocks} whole block{}; completed measurements are kept",
                    s(*blocks)
                ));
            }
            _ => {}
        }
    }
}

/// Returns the ending of the plural.
fn s(count: u32) -> &'static str {
    if count == 1 { "" } else { "s" }
}

fn span(time: Duration) -> String {
    let seconds = time.as_secs_f64().ceil() as u64;
    if seconds < 100 { format!("{seconds} s") } else { format!("{} min {} s", seconds / 60, seconds % 60) }
}
