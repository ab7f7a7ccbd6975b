//! `load --part`: this program's part of a load, the common start, and the clock it is kept by.
//!
//! The division and the sum are the library's (`ringroad_load::parts`). Start at [`split`] and [`Parted`].

use super::Complaint;
use super::flags::{LoadFlags, PartFlags};
use crate::complaint::{FAILED, USAGE, say};
use crate::parts::{self, Found, Given};
use ringroad_load::parts::{About, Gate, Seconds};
use ringroad_load::report::{self, Frame};
use ringroad_load::{Event, Outcome, Plan, Split, clock};
use ringroad_measure::record::Record;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{env, fs};

/// Returns the part that the flags or the environment name; `None`: the whole load.
pub(super) fn found(flags: &PartFlags) -> Result<Option<Found>, Complaint> {
    let given = Given { part: flags.part.as_deref(), parts: flags.parts, slurm: true };
    parts::of(given).map_err(|message| Complaint { message, code: USAGE })
}

/// Returns the part as a plan has it.
pub(super) fn split(flags: &LoadFlags) -> Result<Split, Complaint> {
    let found = found(&flags.parts)?;
    if found.is_some() {
        let refused = [
            (flags.knee.is_some(), "--knee: a search is one program's"),
            (
                flags.vs.is_some() || flags.repeat.is_some(),
                "--vs and --repeat: repeat the parts, and compare what they are merged into",
            ),
            (flags.calibrate && !flags.plan, "--calibrate: it is about one machine, so do it by itself"),
            (flags.location || flags.jar, "-L and --jar: give the URL and the cookies (-b) themselves"),
        ];
        if let Some((_, what)) = refused.iter().find(|(is, _)| *is) {
            return Err(Complaint { message: format!("--part with {what}"), code: USAGE });
        }
    }
    Ok(found.map_or(Split::WHOLE, |found| found.split))
}

/// A load that may be a part of one, and that may have an instant to begin at.
pub(super) struct Parted {
    /// It is one, if only the first of one.
    found: Option<Found>,
    about: About,
    gate: Gate,
    seconds: Seconds,
}

impl Parted {
    /// As flags and environment have it. Measures the clock, which takes seconds, if one is to be compared.
    pub(super) fn new(flags: &PartFlags, quiet: bool, stop: &AtomicBool) -> Result<Parted, Complaint> {
        let found = found(flags)?;
        let start = start_at(flags)?;
        let from = flags.clock_from.clone().or_else(|| variable("RINGROAD_CLOCK_FROM"));
        let clock = from.map(|from| clock::measure(&from, stop)).transpose()?;
        let gate = Gate::new(start, clock.as_ref().map_or(0.0, |clock| clock.offset_s));
        if let (Some(start), None) = (start, gate.left()) {
            let ago = SystemTime::now().duration_since(start).unwrap_or_default();
            return Err(Complaint {
                message: format!(
                    "--start-at {}: that was {:.1} s ago, and parts begin together or not at all (choose a later one for all of them)",
                    humantime::format_rfc3339_millis(start),
                    ago.as_secs_f64()
                ),
                code: FAILED,
            });
        }
        let start_at = start.map(|start| humantime::format_rfc3339_millis(start).to_string());
        let parted = Parted {
            about: About { start_at, clock, machine: machine() },
            found,
            gate,
            seconds: Seconds::default(),
        };
        if !quiet {
            parted.tell();
        }
        Ok(parted)
    }

    /// Returns a process of a load, which is told when to begin.
    pub(super) fn told() -> Parted {
        Parted {
            found: None,
            about: About::default(),
            gate: Gate::new(None, 0.0),
            seconds: Seconds::default(),
        }
    }

    fn tell(&self) {
        let mut text = Vec::new();
        if let Some(Found { split, from }) = &self.found {
            text.push(format!("part {split} of the load ({from})"));
        }
        if let Some(left) = self.gate.left() {
            text.push(format!("begins in {:.1} s", left.as_secs_f64()));
        }
        if let Some(clock) = &self.about.clock {
            text.push(format!(
                "the clock of {} is ahead of this one by {:+.4} s (± {:.4})",
                clock.from, clock.offset_s, clock.within_s
            ));
        }
        if !text.is_empty() {
            say(&text.join("; "));
        }
    }

    /// Takes in what happens; waits for the common start when the connections are there.
    pub(super) fn note(&mut self, event: &Event<'_>, stop: &AtomicBool) {
        if matches!(event, Event::Connected { .. }) {
            self.gate.pass(stop);
        }
        if self.found.is_some() {
            self.seconds.note(event);
        }
    }

    /// Returns the record of what came of it.
    pub(super) fn record(&self, plan: &Plan, outcome: &Outcome, frame: &Frame) -> Record {
        match self.found {
            None => report::record(plan, outcome, frame),
            Some(_) => {
                ringroad_load::parts::record(plan, outcome, (&self.gate, &self.seconds), &self.about, frame)
            }
        }
    }

    /// Returns the record of a load that could not begin.
    pub(super) fn skipped(&self, plan: &Plan, why: &str, frame: &Frame) -> Record {
        match self.found {
            None => report::skipped(plan, why, frame),
            Some(_) => ringroad_load::parts::skipped(plan, why, &self.about, frame),
        }
    }
}

/// Returns what a record is called where several are collected.
pub(super) fn file_name(found: Option<&Found>) -> String {
    match found {
        // As many digits as it takes for names to sort as numbers do.
        Some(Found { split, .. }) => {
            let digits = split.count.to_string().len();
            format!("part-{:0digits$}-of-{}.json", u64::from(split.index) + 1, split.count)
        }
        None => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            format!("load-{}-{}.json", now.as_secs(), std::process::id())
        }
    }
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// `2026-11-24T15:00:00Z`, with fractions of a second or without, or seconds since 1970.
fn start_at(flags: &PartFlags) -> Result<Option<SystemTime>, Complaint> {
    let Some(text) = flags.start_at.clone().or_else(|| variable("RINGROAD_START_AT")) else {
        return Ok(None);
    };
    let seconds = text.parse::<f64>().ok();
    let time = match seconds {
        Some(seconds) => {
            Duration::try_from_secs_f64(seconds).ok().and_then(|since| UNIX_EPOCH.checked_add(since))
        }
        None => humantime::parse_rfc3339_weak(&text).ok(),
    };
    // In milliseconds, as it is reported, so that all parts have the same however it was written.
    let time = time.and_then(|time| {
        let since = time.duration_since(UNIX_EPOCH).ok()?;
        UNIX_EPOCH.checked_add(Duration::from_millis(u64::try_from(since.as_millis()).ok()?))
    });
    time.map(Some).ok_or_else(|| Complaint {
        message: format!(
            "--start-at {text}: a time in UTC (2026-11-24T15:00:00Z) or seconds since 1970 is expected, the same for all parts"
        ),
        code: USAGE,
    })
}

/// Returns the boot of this machine: what shares it shares the clock.
fn machine() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}
