//! `ringroad pack` and `ringroad unpack`: trees of small files as tar shards, and back.
//!
//! Verbs of their own and no options of `cp`: what is made is no copy, and the options of GNU cp have no
//! meaning for it. The work is the `copy` library's (`pack`). Start at [`pack`].

use crate::complaint::{DONE, FAILED, INTERRUPTED, USAGE, name, say};
use crate::flags::{PackFlags, ShareFlags, UnpackFlags};
use crate::parts::{self, Given};
use ringroad_copy::listing::NotMade;
use ringroad_copy::pack::{Packed, Packing, Unpacked, Unpacking};
use ringroad_copy::{Control, Event, Observer, Part};
use ringroad_measure::units::counted;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::available_parallelism;

/// A file that differs from its index.
const MISMATCH: u8 = 4;

/// Prints errors.
struct Complain;

impl Observer for Complain {
    fn event(&self, event: Event<'_>) {
        if let Event::Error(error) = event {
            let other = error.kind.why().map(str::to_owned);
            let why = other.or(error.source.as_ref().map(crate::complaint::why)).unwrap_or_default();
            say(&format!("{}, on {}: {why}", error.kind.what(), name(&error.path)));
        }
    }
}

/// Has a signal stop the work in order.
fn control() -> io::Result<Arc<Control>> {
    let control = Arc::new(Control::new());
    let stops = Arc::clone(&control);
    crate::stopping::on_signals(&crate::stopping::wishes(), &Arc::default(), move |_| stops.cancel())?;
    Ok(control)
}

/// Returns the part that is asked for, or that an engine for jobs names where a number of parts is given.
fn part(shares: &ShareFlags) -> Result<Option<Part>, (String, u8)> {
    let given = Given { part: shares.part.as_deref(), parts: shares.parts, slurm: false };
    let found = parts::of(given).map_err(|why| (why, USAGE))?;
    Ok(found.map(|found| Part { index: found.split.index, count: found.split.count }))
}

fn jobs(shares: &ShareFlags) -> usize {
    shares.jobs.map_or_else(|| available_parallelism().map_or(1, Into::into), usize::from)
}

pub(crate) fn pack(flags: &PackFlags, quiet: bool) -> ExitCode {
    ExitCode::from(packed(flags, quiet).unwrap_or_else(|(why, code)| {
        say(&why);
        code
    }))
}

fn packed(flags: &PackFlags, quiet: bool) -> Result<u8, (String, u8)> {
    let part = part(&flags.shares)?;
    let packing = Packing {
        shard_bytes: flags.shard_size,
        mtime: flags.mtime,
        owner: flags.owner.0,
        part,
        jobs: jobs(&flags.shares),
        exclude: flags.exclude.clone(),
        index: !flags.no_index,
    };
    let control = control().map_err(|why| (format!("registering for signals: {why}"), FAILED))?;
    match ringroad_copy::pack::pack(&flags.source, &flags.shards, &packing, &Complain, &control) {
        Ok(Packed { shards, entries, bytes, errors }) => {
            if !quiet {
                let [entries, bytes, shards] = said([(entries, "entry"), (bytes, "byte"), (shards, "shard")]);
                tell(&format!("{entries}, {bytes}, in {shards}\n"));
            }
            Ok(if errors > 0 { FAILED } else { DONE })
        }
        Err(NotMade::Incomplete) => {
            Err(("pack: the shards would lack something (--exclude leaves it out)".to_owned(), FAILED))
        }
        Err(NotMade::Cancelled) => Ok(INTERRUPTED),
        Err(NotMade::Refused(ringroad_copy::Refusal::List(error))) => {
            Err((format!("pack, on {}: {}", name(&error.list), error.why), FAILED))
        }
        Err(NotMade::Refused(refusal)) => Err((format!("pack: {refusal}"), USAGE)),
    }
}

pub(crate) fn unpack(flags: &UnpackFlags, quiet: bool) -> ExitCode {
    ExitCode::from(unpacked(flags, quiet).unwrap_or_else(|(why, code)| {
        say(&why);
        code
    }))
}

fn unpacked(flags: &UnpackFlags, quiet: bool) -> Result<u8, (String, u8)> {
    let part = part(&flags.shares)?;
    let unpacking =
        Unpacking { owners: flags.same_owner, part, jobs: jobs(&flags.shares), needs_index: flags.verify };
    let control = control().map_err(|why| (format!("registering for signals: {why}"), FAILED))?;
    let done = ringroad_copy::pack::unpack(&flags.shards, &flags.folder, &unpacking, &Complain, &control);
    let Unpacked { shards, entries, bytes, verified, mismatches, errors, cancelled } =
        done.map_err(|why| (format!("unpack, on {}: {why}", name(&flags.folder)), FAILED))?;
    if !quiet {
        let [entries, bytes, shards, files] =
            said([(entries, "entry"), (bytes, "byte"), (shards, "shard"), (verified, "file")]);
        tell(&format!("{entries}, {bytes}, of {shards}; {files} verified\n"));
    }
    Ok(match (cancelled, mismatches, errors) {
        (true, ..) => INTERRUPTED,
        (_, 1.., _) => MISMATCH,
        (_, _, 1..) => FAILED,
        _ => DONE,
    })
}

/// Counts with their nouns.
fn said<const N: usize>(counts: [(u64, &str); N]) -> [String; N] {
    counts.map(|(count, noun)| counted(count, noun))
}

/// Prints on standard output. A closed one is no reason to fail: the files are written.
fn tell(text: &str) {
    let _ = io::stdout().lock().write_all(text.as_bytes());
}
