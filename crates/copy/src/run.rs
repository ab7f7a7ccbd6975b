//! Runs a copy from its first system call to its report: checks, workers, operands, final steps.

use crate::choose;
use crate::clock::{Clock, For};
use crate::combine;
use crate::delete::delete;
use crate::dir::Budget;
use crate::error::{Error, ErrorKind, Refusal};
use crate::exclude::Excluded;
use crate::feed;
use crate::known::Manifested;
use crate::leftover::Maker;
use crate::links::Links;
use crate::manifest::Manifest;
use crate::metadata::Me;
use crate::operand;
use crate::options::{Destination, Durability, Link, Options, Update};
use crate::parts;
use crate::queue::Queue;
use crate::rate::Bucket;
use crate::rehearse;
use crate::report::{Control, Event, Observer, Report};
use crate::worker::{Run, Worker};
use rustix::io::Errno;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::Scope;
use std::time::Instant;

/// Copies `sources` to `destination`.
///
/// Entries that fail are reported to `observer`, counted, and skipped. The copy stops early only when
/// `control` is cancelled. A [`Refusal`] means that nothing was changed.
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
    if options.resume && matches!(options.update, Update::None | Update::NoneFail) {
        let why = "--resume cannot be combined with what leaves every existing file as it is (-n, --update=none, \
                   --update=none-fail): what a stopped copy left torn would stay so";
        return Err(Refusal::Options(why.to_string()));
    }
    parts::check(options)?;
    combine::check(sources, options)?;
    let chosen = choose::choose(options, sources)?;
    let choice = chosen.choice.clone();
    if options.dry_run {
        return rehearse::rehearse(sources, destination, options, observer, control, choice);
    }
    let selection = feed::selection(options).map_err(Refusal::List)?;
    let manifested = options.update_from_manifest.as_deref().map(Manifested::open);
    let manifested = manifested.transpose().map_err(Refusal::List)?;
    let maker = OnceLock::new();
    let manifest = match &options.manifest {
        Some(path) => {
            let made = Manifest::create(path, *maker.get_or_init(Maker::this));
            Some(made.map_err(|why| Refusal::Manifest(path.clone(), why))?)
        }
        None => None,
    };
    let run = Run {
        options,
        observer,
        control,
        queue: Queue::new(),
        budget: Budget::new(directories(chosen.may_open)),
        links: Links::of_operands(sources.len()),
        chosen,
        manifest,
        manifest_lost: false.into(),
        selection: Mutex::new(selection),
        journal: OnceLock::new(),
        rate: options.rate.map(Bucket::new),
        manifest_root: root_of(sources, destination),
        written: Mutex::default(),
        clocks: Mutex::new(Clock::new(options.explain)),
        prefetching: false.into(),
        workers: 1.into(),
        me: Me::now(
            options.preserve.mode || options.preserve.ownership || options.resume || options.default_modes,
        ),
        exclude: Excluded::by(&options.exclude)?,
        lacks: Default::default(),
        mismatches: 0.into(),
        own: Default::default(),
        into_itself: Mutex::default(),
        made: Default::default(),
        marks: Mutex::default(),
        marking: Mutex::default(),
        temporary: 0.into(),
        writers: Default::default(),
        maker,
        wants_entries: observer.wants_entries(),
        looks_first: options.resume
            || manifested.is_some()
            || options.update != Update::All
            || options.remove_destination
            || options.backup.is_some()
            || options.link != Link::No,
        manifested,
    };
    observer.event(Event::Start(&choice));
    let mut main = Worker::new(&run);
    if let Some(path) = run.manifest.as_ref().and_then(Manifest::made_beside) {
        main.remove_leftovers_of(path);
    }
    if options.delete {
        let made = run.manifest.iter().flat_map(Manifest::made_as);
        let keeps: Vec<&Path> = made.chain(own_files(sources, options)).collect();
        delete(sources, destination, options, (observer, control), run.exclude.as_ref(), &keeps);
    }
    let mut workers = 1;
    operand::operands(&run, &mut main, sources, destination, &mut |main| {
        main.flush();
        workers = workers.max(work_together(&run, main, choice.jobs));
    });
    control.scan_done.store(true, Ordering::Relaxed);
    if options.durability == Durability::End {
        sync(&run, &mut main);
    }
    if let Some(manifest) = &run.manifest
        && !run.stopped()
        && !run.manifest_lost.load(Ordering::Relaxed)
        && let Err(why) = manifest.finish()
    {
        let path = options.manifest.clone().unwrap_or_default();
        main.tell(Error { kind: ErrorKind::Manifest, path, other: None, source: Some(why) });
    }
    if let Some(why) = crate::attributes::unusable() {
        let path = PathBuf::from(crate::attributes::TABLE);
        main.tell(Error { kind: ErrorKind::AttributeRules, path, other: None, source: Some(why) });
    }
    main.flush();
    let mut clock = std::mem::take(&mut *run.clocks.lock().unwrap_or_else(PoisonError::into_inner));
    clock.merge(&main.clock);
    Ok(Report {
        totals: control.totals(),
        elapsed: started.elapsed(),
        workers,
        choice: run.chosen.conclusion(),
        phases: clock.phases(),
        full: run.lacks.is_full(),
        missing: run.lacks.all(),
        cancelled: control.is_cancelled(),
        mismatches: run.mismatches.load(Ordering::Relaxed),
    })
}

/// Returns the sources of a copy and the other files that it reads or writes: they are not removed.
pub(crate) fn own_files<'a>(sources: &'a [PathBuf], options: &'a Options) -> impl Iterator<Item = &'a Path> {
    let own = [&options.manifest, &options.list, &options.journal, &options.update_from_manifest];
    let from = options.files_from.as_ref().map(|from| from.file.as_path());
    own.into_iter().flatten().map(PathBuf::as_path).chain(from).chain(sources.iter().map(PathBuf::as_path))
}

/// Returns the base of a manifest's paths: the directory that was copied into, or that is the copy.
pub(crate) fn root_of(sources: &[PathBuf], destination: &Destination) -> PathBuf {
    match destination {
        Destination::Into(directory) => directory.clone(),
        Destination::At(target) if sources.first().is_some_and(|source| source.is_dir()) => target.clone(),
        Destination::At(target) => target.parent().map(PathBuf::from).unwrap_or_default(),
    }
}

/// Syncs every file system written to. A failure does not show which files are on the disk.
fn sync(run: &Run<'_>, main: &mut Worker<'_, '_>) {
    let written = std::mem::take(&mut *run.written.lock().unwrap_or_else(PoisonError::into_inner));
    for directory in written.into_values() {
        let synced = main.clock.call(For::Sync, || rustix::fs::syncfs(&directory));
        if synced == Err(Errno::NOSYS) {
            // On kernels without the call, all file systems are synced, or none.
            rustix::fs::sync();
        } else if let Err(why) = synced {
            let path = std::fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd()));
            main.tell(Error::system(ErrorKind::Sync, path.unwrap_or_default(), why));
        }
    }
}

/// Empties the queue with `jobs` workers, including this thread; more join if `auto` adds them. Returns the
/// number of workers.
fn work_together(run: &Run<'_>, main: &mut Worker<'_, '_>, jobs: usize) -> usize {
    if run.queue.waiting() == 0 {
        return 1;
    }
    // Earlier workers have ended.
    run.workers.store(1, Ordering::Relaxed);
    if jobs > 1 && !run.chosen.rings_now() {
        main.work_alone();
        if run.queue.waiting() == 0 {
            return 1;
        }
    }
    std::thread::scope(|scope| {
        for _ in 1..jobs {
            spawn(scope, run);
        }
        main.work(&|| spawn(scope, run));
    });
    run.workers.load(Ordering::Relaxed)
}

/// Adds a worker. If the system has no thread left, the present workers continue.
fn spawn<'scope, 'env>(scope: &'scope Scope<'scope, 'env>, run: &'env Run<'env>) {
    run.workers.fetch_add(1, Ordering::Relaxed);
    let begun = crate::threads::begin(scope, move || {
        let mut worker = Worker::new(run);
        worker.work(&|| spawn(scope, run));
        worker.flush();
        run.clocks.lock().unwrap_or_else(PoisonError::into_inner).merge(&worker.clock);
    });
    if !begun {
        run.workers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns how many directories may stay open: each takes two descriptors, and together a quarter of the
/// process's limit.
fn directories(may_open: usize) -> usize {
    (may_open / 8).clamp(1, 4096)
}
