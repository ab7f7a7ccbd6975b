//! Events of a running suite, for a program that shows progress.
//!
//! Events are facts, not text; presenting them is the caller's part. Start at [`Event`].

use crate::suite::Suite;
use ringroad_measure::Caveat;
use ringroad_measure::record::Run;
use std::time::Duration;

/// Something that happened, in the order it happened.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The plan is made; nothing has run yet.
    Planned {
        /// The suite with the caller's overrides.
        suite: &'a Suite,
        /// Runs in all blocks together.
        runs: u32,
        /// Interleaved blocks.
        blocks: u32,
        /// How long it should take.
        estimate: Duration,
    },
    /// A cell will not run (any more) in this suite.
    Skipped {
        /// `model/load`.
        cell: &'a str,
        /// The reason, a clause for a reader.
        reason: &'a str,
    },
    /// A run begins.
    RunStarted {
        /// `model/load`; the A/A control says so in its name.
        cell: &'a str,
        /// From 0.
        block: u32,
        /// Runs behind us, failed and skipped ones included.
        done: u32,
        /// Runs in all.
        total: u32,
        /// Time left, by the pace so far.
        time_left: Duration,
    },
    /// A run ended with figures.
    RunDone {
        /// As in [`Event::RunStarted`].
        cell: &'a str,
        /// Its figures.
        run: &'a Run,
        /// What the gates object to.
        caveats: &'a [Caveat],
        /// Runs behind us, this one included.
        done: u32,
        /// Runs in all.
        total: u32,
        /// Time left, by the pace so far.
        time_left: Duration,
    },
    /// A run ended without figures; its cell will be INVALID and the suite goes on.
    RunFailed {
        /// As in [`Event::RunStarted`].
        cell: &'a str,
        /// What was seen, as a clause.
        how: &'a str,
    },
    /// Something that is no run of a suite is being measured.
    Measuring {
        /// What, as a noun.
        what: &'a str,
    },
    /// No further run will start; the record is being put together.
    Finished {
        /// Stopped by the caller before its end.
        interrupted: bool,
        /// Blocks completed.
        blocks: u32,
    },
}

/// Receives events. Called between runs and never during a measured window, so it may draw or write.
pub trait Observer {
    /// Something happened.
    fn event(&mut self, event: &Event<'_>);
}

/// Ignores all events.
impl Observer for () {
    fn event(&mut self, _: &Event<'_>) {}
}

/// A closure observes.
impl<F: FnMut(&Event<'_>)> Observer for F {
    fn event(&mut self, event: &Event<'_>) {
        self(event);
    }
}
