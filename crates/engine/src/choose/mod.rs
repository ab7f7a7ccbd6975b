//! Chooses the driver: by name, or the first that is shown to work here.
//!
//! A wish comes from the command line, from `RINGROAD_DRIVER` (the only environment variable a library of
//! this project reads), from a configuration, or is `auto`; the first of these that is set counts. A driver
//! that was named is used or refused, never replaced. `auto` takes the first driver that passes its trial, in
//! the order of ADR 13, and records what was refused and why.
//!
//! No trial runs before a caller asks, and none runs twice. A trial takes a fraction of a millisecond, in
//! this process or, under a seccomp filter, in a child (`child.rs`, `trial.rs`), and its outcome is valid for
//! the lifetime of the process. `refusal.rs` interprets it; `bugs.rs` lists what no trial can detect. Start
//! at [`choose`].

mod bugs;
mod child;
mod refusal;
mod trial;

pub use bugs::{Bug, Meaning, Version, here as bugs_here};
pub use refusal::{Obstacle, Refusal};

use crate::driver::features::Features;
use crate::error::Error;
use crate::name::DriverName;
use ringroad_host::gate::Gate;
use ringroad_uring::Probe;
use std::env;
use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// The environment variable that names a driver.
pub const VARIABLE: &str = "RINGROAD_DRIVER";

/// The drivers that `auto` tries, in this order (ADR 13).
const ORDER: &[DriverName] = &[DriverName::IoUring, DriverName::Epoll, DriverName::Poll];

/// What the program or user asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// The first that works, in the order of ADR 13.
    Auto,
    /// This driver, or a refusal.
    Named(DriverName),
}

impl Wish {
    /// Returns all accepted words, as printed.
    pub fn words() -> impl Iterator<Item = &'static str> {
        ["auto"].into_iter().chain(drivers().map(DriverName::as_str))
    }
}

impl fmt::Display for Wish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wish::Auto => f.pad("auto"),
            Wish::Named(name) => name.fmt(f),
        }
    }
}

impl FromStr for Wish {
    type Err = UnknownWish;

    /// `uring` is accepted for `io_uring`. The simulation is for tests, and cannot be chosen by a word.
    fn from_str(word: &str) -> Result<Wish, UnknownWish> {
        match word {
            "auto" => Ok(Wish::Auto),
            word => match word.parse() {
                Ok(name) if name != DriverName::Sim => Ok(Wish::Named(name)),
                _ => Err(UnknownWish(word.to_owned())),
            },
        }
    }
}

/// Error for a word that is not a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownWish(String);

impl fmt::Display for UnknownWish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<_> = Wish::words().collect();
        write!(f, "unknown driver {:?} (one of: {})", self.0, known.join(", "))
    }
}

impl std::error::Error for UnknownWish {}

/// Where a wish came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// `--driver`.
    CommandLine,
    /// [`VARIABLE`].
    Environment,
    /// A configuration.
    Configuration,
    /// None: the default applies.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Origin::CommandLine => "--driver",
            Origin::Environment => VARIABLE,
            Origin::Configuration => "the configuration",
            Origin::Default => "by default",
        })
    }
}

/// Returns the wish that counts: of the command line, else of the environment, else of the configuration,
/// else `auto`.
///
/// # Errors
/// The environment variable does not name a driver.
pub fn wish(asked: Option<Wish>, configured: Option<Wish>) -> Result<(Wish, Origin), Unusable> {
    let variable = env::var_os(VARIABLE);
    decide(asked, variable.as_ref().map(|word| word.to_string_lossy()).as_deref(), configured)
}

fn decide(
    asked: Option<Wish>,
    variable: Option<&str>,
    configured: Option<Wish>,
) -> Result<(Wish, Origin), Unusable> {
    if let Some(wish) = asked {
        return Ok((wish, Origin::CommandLine));
    }
    if let Some(word) = variable.filter(|word| !word.is_empty()) {
        let wish = word.parse().map_err(Unusable::Variable)?;
        return Ok((wish, Origin::Environment));
    }
    Ok(configured.map_or((Wish::Auto, Origin::Default), |wish| (wish, Origin::Configuration)))
}

/// The chosen driver, with the reason.
#[derive(Clone, Debug)]
pub struct Choice {
    driver: DriverName,
    wish: Wish,
    origin: Origin,
    refused: Vec<Refusal>,
    features: Features,
}

impl Choice {
    /// Returns the driver.
    pub fn driver(&self) -> DriverName {
        self.driver
    }

    /// Returns whether `auto` chose it. Otherwise it was named.
    pub fn is_auto(&self) -> bool {
        self.wish == Wish::Auto
    }

    /// Returns the reason for this driver, as part of a sentence.
    pub fn why(&self) -> String {
        match (self.wish, self.refused.is_empty()) {
            // `--driver`, or `--drivers` of the server.
            (Wish::Named(_), _) if self.origin == Origin::CommandLine => {
                "as asked on the command line".to_owned()
            }
            (Wish::Named(_), _) => format!("as asked ({})", self.origin),
            (Wish::Auto, true) => "every operation it needs was tried and works".to_owned(),
            (Wish::Auto, false) => {
                let refused: Vec<_> = self.refused.iter().map(|refusal| refusal.driver.as_str()).collect();
                let verb = if refused.len() == 1 { "does" } else { "do" };
                format!("it works, and {} {verb} not", refused.join(" and "))
            }
        }
    }

    /// Returns the drivers earlier in the order, with the reason for each refusal.
    pub fn refused(&self) -> &[Refusal] {
        &self.refused
    }

    /// Returns the kernel features in use, for [`crate::Builder::features`].
    pub fn features(&self) -> Features {
        self.features
    }

    /// Makes it the last choice of this process.
    fn record(&self) {
        *CHOSEN.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.clone());
    }

    /// Returns the choice of `auto` where a runtime on this driver could not be made, for the reason `why`:
    /// the next driver that works, with this one among the refused.
    ///
    /// A trial needs one small ring. A user may have less locked memory than the rings of all workers need
    /// (on Linux 6.18 rings count against `RLIMIT_MEMLOCK`, unless the process has CAP_IPC_LOCK), or its
    /// other processes have it.
    ///
    /// `None`: the driver was named, `why` is no error of the driver, or no other driver works.
    pub fn instead(&self, why: &Error) -> Option<Choice> {
        if !self.is_auto() || why.driver() != Some(self.driver) {
            return None;
        }
        let mut refused = self.refused.clone();
        refused.push(refusal::unmade(self.driver, why, &Gate::of_this_thread()));
        by(self.wish, self.origin, refused, probe, false).ok()
    }

    /// Calls `make` with this choice and, as long as it could not make a runtime, with the choices
    /// [`instead`](Self::instead). `self` is the choice of the last call, and [`driver_info`] tells it.
    /// `unmade` returns the error of a runtime that could not be made; other errors end it.
    ///
    /// # Errors
    /// The error of the last call.
    pub fn settle<T, E>(
        &mut self,
        mut make: impl FnMut(&Choice) -> Result<T, E>,
        unmade: fn(&E) -> Option<&Error>,
    ) -> Result<T, E> {
        loop {
            match make(self) {
                Ok(made) => return Ok(made),
                Err(why) => match unmade(&why).and_then(|why| self.instead(why)) {
                    Some(other) => {
                        *self = other;
                        self.record();
                    }
                    None => return Err(why),
                },
            }
        }
    }
}

impl fmt::Display for Choice {
    /// Prints one line per fact: the driver and the reason, then the refused drivers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "driver {}: {}", self.driver, self.why())?;
        self.refused.iter().try_for_each(|refusal| write!(f, "\nnot {refusal}"))
    }
}

/// Error: no driver satisfies the wish.
#[derive(Clone, Debug)]
pub enum Unusable {
    /// [`VARIABLE`] is set to a word that is not a driver.
    Variable(UnknownWish),
    /// The named driver, and where it was named.
    Named(Origin, Refusal),
    /// None of the drivers that `auto` tries.
    Every(Vec<Refusal>),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unusable::Variable(unknown) => write!(f, "{VARIABLE}: {unknown}"),
            Unusable::Named(origin, refusal) => write!(f, "{origin} {refusal}"),
            Unusable::Every(refusals) => {
                f.write_str("no driver can be used here: ")?;
                let refusals: Vec<_> = refusals.iter().map(Refusal::to_string).collect();
                f.write_str(&refusals.join("; "))
            }
        }
    }
}

impl std::error::Error for Unusable {}

/// The last choice, for [`driver_info`].
static CHOSEN: Mutex<Option<Choice>> = Mutex::new(None);

/// Chooses a driver: `asked` is from the command line, `configured` from a configuration.
///
/// # Errors
/// The driver that was named cannot be used here, or none can.
pub fn choose(asked: Option<Wish>, configured: Option<Wish>) -> Result<Choice, Unusable> {
    let (wish, origin) = wish(asked, configured)?;
    let has_bug = bugs_here().iter().any(|bug| bug.meaning == Meaning::Refuses);
    let choice = by(wish, origin, Vec::new(), probe, has_bug)?;
    choice.record();
    Ok(choice)
}

/// Returns the last choice of this process; if there is none, chooses as [`choose`] does by default.
///
/// # Errors
/// As [`choose`].
pub fn driver_info() -> Result<Choice, Unusable> {
    let chosen = CHOSEN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    chosen.map_or_else(|| choose(None, None), Ok)
}

/// Returns the rule as a pure function: `probe` and `bug` stand for the machine. `refused` are not tried.
fn by(
    wish: Wish,
    origin: Origin,
    mut refused: Vec<Refusal>,
    probe: impl Fn(DriverName) -> Result<&'static Evidence, &'static Refusal>,
    bug: bool,
) -> Result<Choice, Unusable> {
    let candidates = match &wish {
        Wish::Auto => ORDER,
        Wish::Named(name) => std::slice::from_ref(name),
    };
    for &driver in candidates {
        if refused.iter().any(|refusal| refusal.driver == driver) {
            continue;
        }
        if wish == Wish::Auto && driver == DriverName::IoUring && bug {
            let fix = Some("name it, and it is used all the same".to_owned());
            let reason = "this kernel has a bug that cannot be avoided".to_owned();
            refused.push(Refusal { driver, obstacle: Obstacle::Broken, reason, fix });
            continue;
        }
        match probe(driver) {
            Ok(evidence) => {
                return Ok(Choice { driver, wish, origin, refused, features: evidence.features });
            }
            Err(refusal) => refused.push(refusal.clone()),
        }
    }
    match (wish, refused.pop()) {
        (Wish::Named(_), Some(refusal)) => Err(Unusable::Named(origin, refusal)),
        (_, last) => Err(Unusable::Every(refused.into_iter().chain(last).collect())),
    }
}

/// The results of a trial that passed.
#[derive(Clone, Debug)]
pub struct Evidence {
    /// The kernel features that may be used.
    pub features: Features,
    /// How long the trial took, including its process.
    pub took: Duration,
    /// Results of the io_uring trial; `None` for other drivers.
    pub ring: Option<RingEvidence>,
}

/// Results of the io_uring trial.
#[derive(Clone, Debug)]
pub struct RingEvidence {
    /// The set-up flags (`IORING_SETUP_*`) that were accepted.
    pub setup_flags: u32,
    /// The features that the kernel reports.
    pub features: ringroad_uring::Features,
    /// The operations the kernel supports.
    pub opcodes: Probe,
}

/// Returns every driver that can be selected.
pub fn drivers() -> impl Iterator<Item = DriverName> {
    DriverName::ALL.iter().copied().filter(|name| *name != DriverName::Sim)
}

/// Tries a driver, once per process.
///
/// # Errors
/// The refusal, with the obstacle.
pub fn probe(driver: DriverName) -> Result<&'static Evidence, &'static Refusal> {
    static OUTCOMES: [OnceLock<Result<Evidence, Refusal>>; DriverName::ALL.len()] =
        [const { OnceLock::new() }; DriverName::ALL.len()];
    let index = DriverName::ALL.iter().position(|name| *name == driver).unwrap_or_default();
    OUTCOMES[index].get_or_init(|| try_out(driver)).as_ref()
}

fn try_out(driver: DriverName) -> Result<Evidence, Refusal> {
    let trial: child::Trial = match driver {
        DriverName::IoUring => trial::io_uring,
        DriverName::Epoll => trial::epoll,
        DriverName::Poll => trial::poll,
        DriverName::Select => trial::select,
        DriverName::Threads => trial::threads,
        // The simulation needs no trial.
        DriverName::Sim => |_| Ok(()),
    };
    let (end, seen) = child::run(trial);
    // Look for the cause of a refusal only if there is one.
    let free = seen.passed && matches!(end, child::End::Exited);
    let gate = if free { Gate::default() } else { Gate::of_this_thread() };
    if let Some(refusal) = refusal::conclude(driver, &end, &seen, &gate) {
        return Err(refusal);
    }
    let mut features = Features::default();
    let child::Seen { took, setup_flags, .. } = seen;
    let ring = seen.opcodes.filter(|_| driver == DriverName::IoUring).map(|opcodes| {
        features.multishot_accept = seen.multishot_accept == 0;
        RingEvidence { setup_flags, features: ringroad_uring::Features(seen.features), opcodes }
    });
    Ok(Evidence { features, took, ring })
}

/// Tries io_uring's file operations. Returns each with its failure, or `None` if it works. (The io_uring
/// driver uses those that work; the thread pool does the others.) Empty if no ring can be created, or the
/// trial did not end.
pub fn try_file_operations() -> Vec<(&'static str, Option<String>)> {
    let (end, seen) = child::run(trial::files);
    if !(seen.passed && matches!(end, child::End::Exited)) {
        return Vec::new();
    }
    let wrong = |errno| match errno {
        0 => None,
        trial::WRONG => Some("not the answer it should give".to_owned()),
        errno => Some(ringroad_host::words::without_number(&std::io::Error::from_raw_os_error(errno))),
    };
    trial::FILES.into_iter().zip(seen.files.map(wrong)).collect()
}

/// Checks, for programs that create rings of their own, whether a filter forbids that.
///
/// Without a filter this succeeds at once: the program can try it itself. With a filter in force the trial in
/// a child runs first, because a filter may kill the caller. Features that only the *driver* needs are not
/// checked.
///
/// # Errors
/// io_uring is forbidden, or a call does not return.
pub fn may_make_rings() -> Result<(), &'static Refusal> {
    if !Gate::of_this_thread().is_filtered() {
        return Ok(());
    }
    match probe(DriverName::IoUring) {
        Err(refusal) if refusal.obstacle != Obstacle::Missing => Err(refusal),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
