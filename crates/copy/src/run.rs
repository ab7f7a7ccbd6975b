//! One copy from its first system call to its report: checks, workers, the operands, what comes last.

use crate::clock::Clock;
use crate::content::Cloning;
use crate::dir::Budget;
use crate::error::Refusal;
use crate::links::Links;
use crate::metadata::Me;
use crate::operand;
use crate::options::{Destination, Engine, Link, Options, Update};
use crate::queue::Queue;
use crate::report::{Choice, Control, Event, Observer, Report};
use crate::worker::{Run, Worker};
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Copies `sources` to `destination`.
///
/// Entries that fail are told to `observer`, counted, and passed over; the copy stops early only when the
/// destination is full or `control` says so. A [`Refusal`] means that nothing was touched.
pub fn copy(
    sources: &[PathBuf],
    destination: &Destination,
    options: &Options,
    observer: &dyn Observer,
    control: &Control,
) -> Result<Report, Refusal> {
    let started = Instant::now();
    if matches!(destination, Destination::At(_)) && sources.len() > 1 {
        return Err(Refusal::Options("several sources need a directory to go into".to_string()));
    }
    if options.in_flight.is_some_and(|files| !(1..=4096).contains(&files)) {
        return Err(Refusal::Options("files in flight: 1 to 4096".to_string()));
    }
    if options.jobs.is_some_and(|jobs| !(1..=1024).contains(&jobs)) {
        return Err(Refusal::Options("jobs: 1 to 1024".to_string()));
    }
    let choice = Choice {
        engine: Engine::Threads,
        why: "plain calls".to_string(),
        refused: Vec::new(),
        jobs: if options.interactive { 1 } else { options.jobs.unwrap_or_else(default_jobs) },
        in_flight: 1,
    };
    let run = Run {
        options,
        observer,
        control,
        queue: Queue::default(),
        budget: Budget::new(descriptors_for_directories()),
        links: Links::default(),
        cloning: Cloning::default(),
        me: Me::now(),
        exclude: globs(&options.exclude)?,
        full: false.into(),
        mismatches: 0.into(),
        own: Default::default(),
        made: Default::default(),
        temporary: 0.into(),
        started: crate::place::process_start(),
        wants_entries: observer.wants_entries(),
        looks_first: options.resume
            || options.update != Update::All
            || options.remove_destination
            || options.backup.is_some()
            || options.link != Link::No,
    };
    observer.event(Event::Start(&choice));
    let mut clock = Clock::new(options.explain);
    let mut main = Worker::new(&run);
    operand::operands(&run, &mut main, sources, destination, &mut |main| {
        main.flush();
        let clocks = work_together(&run, main, choice.jobs);
        clocks.iter().for_each(|other| clock.merge(other));
    });
    main.finish_parents(sources, destination);
    main.flush();
    control.scan_done.store(true, Ordering::Relaxed);
    clock.merge(&main.clock);
    let report = Report {
        totals: control.totals(),
        elapsed: started.elapsed(),
        workers: choice.jobs,
        choice,
        phases: clock.phases(),
        full: run.full.load(Ordering::Relaxed),
        cancelled: control.is_cancelled(),
        mismatches: run.mismatches.load(Ordering::Relaxed),
    };
    Ok(report)
}

/// Empties the queue with `jobs` workers, this thread being one.
fn work_together(run: &Run<'_>, main: &mut Worker<'_, '_>, jobs: usize) -> Vec<Clock> {
    if run.queue.waiting() == 0 {
        return Vec::new();
    }
    std::thread::scope(|scope| {
        let helpers: Vec<_> = (1..jobs)
            .map(|_| {
                scope.spawn(|| {
                    let mut worker = Worker::new(run);
                    worker.work();
                    worker.clock
                })
            })
            .collect();
        main.work();
        // A worker that panicked has told so; what it held is not counted, and the totals show it.
        helpers.into_iter().filter_map(|helper| helper.join().ok()).collect()
    })
}

fn default_jobs() -> usize {
    std::thread::available_parallelism().map_or(2, |cores| cores.get().clamp(2, 16))
}

/// Directories that may stay open: two descriptors each, and half of what the process may have.
fn descriptors_for_directories() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(1024);
    usize::try_from(limit / 8).unwrap_or(1024).clamp(4, 4096)
}

/// One set of all patterns. A pattern without `/` matches at any depth.
fn globs(patterns: &[String]) -> Result<Option<GlobSet>, Refusal> {
    if patterns.is_empty() {
        return Ok(None);
    }
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let trimmed = pattern.trim_start_matches("./").trim_end_matches('/');
        let anchored = trimmed.trim_start_matches('/');
        let deep = if trimmed.contains('/') { anchored.to_string() } else { format!("**/{anchored}") };
        let glob = GlobBuilder::new(&deep).literal_separator(true).build();
        set.add(glob.map_err(|why| Refusal::Options(format!("exclude {pattern:?}: {}", why.kind())))?);
    }
    let set = set.build().map_err(|why| Refusal::Options(format!("exclude: {why}")))?;
    Ok(Some(set))
}
