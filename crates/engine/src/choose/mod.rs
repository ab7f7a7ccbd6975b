//! Which driver: by name, or by what can be shown to work here.
//!
//! A wish comes from the command line, from `RINGROAD_DRIVER` (the only environment variable a library of this project
//! reads), from a configuration, or is `auto`; the first of these that says something counts. A driver that was named is
//! used or refused, never replaced. `auto` takes the first that passes its trial, in the order of ADR 13, and remembers
//! what was refused and why.
//!
//! Nothing is tried before somebody asks, and nothing twice: a trial takes less than a millisecond, in a child
//! (`child.rs`, `trial.rs`), and its outcome holds for the process. What it means is said in `refusal.rs`; `bugs.rs` has
//! what no trial shows. Start at [`choose`].

mod bugs;
mod child;
mod refusal;
mod trial;

pub use bugs::{Bug, Meaning, Version, here as bugs_here};
pub use refusal::{Obstacle, Refusal};

use crate::driver::features::Features;
use crate::name::Name;
use ringroad_host::gate::Gate;
use ringroad_uring::Probe;
use std::env;
use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// The environment variable that names a driver.
pub const VARIABLE: &str = "RINGROAD_DRIVER";

/// What `auto` tries, in this order: a hypothesis, to be borne out by figures (ADR 13).
const ORDER: &[Name] = &[Name::IoUring, Name::Epoll, Name::Poll];

/// What somebody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Whatever works best here.
    Auto,
    /// This one, or a refusal.
    Named(Name),
}

impl Wish {
    /// Every word that may be typed, as printed.
    pub fn words() -> impl Iterator<Item = &'static str> {
        ["auto"].into_iter().chain(drivers().map(Name::as_str))
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

    /// `uring` is accepted for `io_uring`. The simulation is for tests, and cannot be wished for.
    fn from_str(word: &str) -> Result<Wish, UnknownWish> {
        match word {
            "auto" => Ok(Wish::Auto),
            word => match word.parse() {
                Ok(name) if name != Name::Sim => Ok(Wish::Named(name)),
                _ => Err(UnknownWish(word.to_owned())),
            },
        }
    }
}

/// A word that names no driver.
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
    /// Nobody said anything.
    Nobody,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Origin::CommandLine => "--driver",
            Origin::Environment => VARIABLE,
            Origin::Configuration => "the configuration",
            Origin::Nobody => "by default",
        })
    }
}

/// The wish that counts: of the command line, else of the environment, else of the configuration, else `auto`.
///
/// # Errors
/// The environment names something that is no driver.
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
    Ok(configured.map_or((Wish::Auto, Origin::Nobody), |wish| (wish, Origin::Configuration)))
}

/// The driver to use, and how it came to that.
#[derive(Clone, Debug)]
pub struct Choice {
    driver: Name,
    wish: Wish,
    origin: Origin,
    refused: Vec<Refusal>,
    features: Features,
}

impl Choice {
    /// The driver.
    pub fn driver(&self) -> Name {
        self.driver
    }

    /// Why this one, as half a sentence.
    pub fn why(&self) -> String {
        match (self.wish, self.refused.is_empty()) {
            (Wish::Named(_), _) => format!("as asked ({})", self.origin),
            (Wish::Auto, true) => "every operation it needs was tried and works".to_owned(),
            (Wish::Auto, false) => {
                let refused: Vec<_> = self.refused.iter().map(|refusal| refusal.driver.as_str()).collect();
                let verb = if refused.len() == 1 { "does" } else { "do" };
                format!("it works, and {} {verb} not", refused.join(" and "))
            }
        }
    }

    /// What would have come before it, and why it could not be.
    pub fn refused(&self) -> &[Refusal] {
        &self.refused
    }

    /// What of the kernel's abilities is used, for [`crate::Builder::features`].
    pub fn features(&self) -> Features {
        self.features
    }
}

impl fmt::Display for Choice {
    /// One line per fact: the driver and why, then what was refused.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "driver {}: {}", self.driver, self.why())?;
        self.refused.iter().try_for_each(|refusal| write!(f, "\nnot {refusal}"))
    }
}

/// No driver for this wish.
#[derive(Clone, Debug)]
pub enum Unusable {
    /// [`VARIABLE`] is set to something else.
    Variable(UnknownWish),
    /// The one that was named, and who named it.
    Named(Origin, Refusal),
    /// None of those that `auto` tries.
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

/// Chooses: `asked` is what the command line says, `configured` what a configuration does.
///
/// # Errors
/// The wish is for a driver that cannot be used here, or for no driver at all.
pub fn choose(asked: Option<Wish>, configured: Option<Wish>) -> Result<Choice, Unusable> {
    let (wish, origin) = wish(asked, configured)?;
    let choice = by(wish, origin, probe, bugs_here().iter().any(|bug| bug.meaning == Meaning::Refuses))?;
    *CHOSEN.lock().unwrap_or_else(PoisonError::into_inner) = Some(choice.clone());
    Ok(choice)
}

/// What was chosen last in this process; if nothing was, what [`choose`] takes when nobody says anything.
///
/// # Errors
/// As [`choose`].
pub fn driver_info() -> Result<Choice, Unusable> {
    let chosen = CHOSEN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    chosen.map_or_else(|| choose(None, None), Ok)
}

/// The rule, without a machine under it.
fn by(
    wish: Wish,
    origin: Origin,
    probe: impl Fn(Name) -> Result<&'static Evidence, &'static Refusal>,
    bug: bool,
) -> Result<Choice, Unusable> {
    let mut refused = Vec::new();
    let candidates = match &wish {
        Wish::Auto => ORDER,
        Wish::Named(name) => std::slice::from_ref(name),
    };
    for &driver in candidates {
        if wish == Wish::Auto && driver == Name::IoUring && bug {
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

/// What a trial that passed has shown.
#[derive(Clone, Debug)]
pub struct Evidence {
    /// What may be used of what the kernel has.
    pub features: Features,
    /// How long the trial took, the process for it included.
    pub took: Duration,
    /// What io_uring has said of itself; `None` for the others.
    pub ring: Option<RingEvidence>,
}

/// What io_uring has said of itself, and what it did.
#[derive(Clone, Debug)]
pub struct RingEvidence {
    /// The set-up flags (`IORING_SETUP_*`) that were accepted.
    pub setup_flags: u32,
    /// What the kernel says it can do.
    pub features: ringroad_uring::Features,
    /// The operations it answers to.
    pub opcodes: Probe,
}

/// Every driver that can be wished for.
pub fn drivers() -> impl Iterator<Item = Name> {
    Name::ALL.iter().copied().filter(|name| *name != Name::Sim)
}

/// Tries a driver out, once per process.
///
/// # Errors
/// What was in the way.
pub fn probe(driver: Name) -> Result<&'static Evidence, &'static Refusal> {
    static OUTCOMES: [OnceLock<Result<Evidence, Refusal>>; Name::ALL.len()] =
        [const { OnceLock::new() }; Name::ALL.len()];
    let index = Name::ALL.iter().position(|name| *name == driver).unwrap_or_default();
    OUTCOMES[index].get_or_init(|| try_out(driver)).as_ref()
}

fn try_out(driver: Name) -> Result<Evidence, Refusal> {
    let trial: child::Trial = match driver {
        Name::IoUring => trial::io_uring,
        Name::Epoll => trial::epoll,
        Name::Poll => trial::poll,
        Name::Select => trial::select,
        Name::Threads => trial::threads,
        // In memory of our own: nothing to ask the kernel.
        Name::Sim => |_, _| Ok(()),
    };
    let (end, seen) = child::run(trial);
    // Who guards the way matters only where it is blocked.
    let free = seen.passed && matches!(end, child::End::Exited);
    let gate = if free { Gate::default() } else { Gate::of_this_thread() };
    if let Some(refusal) = refusal::conclude(driver, &end, &seen, &gate) {
        return Err(refusal);
    }
    let mut features = Features::default();
    let child::Seen { took, setup_flags, .. } = seen;
    let ring = seen.opcodes.filter(|_| driver == Name::IoUring).map(|opcodes| {
        features.multishot_accept = seen.multishot_accept == 0;
        RingEvidence { setup_flags, features: ringroad_uring::Features(seen.features), opcodes }
    });
    Ok(Evidence { features, took, ring })
}

/// Tries io_uring's operations on files, of which no driver needs any: each with what was wrong, `None` for nothing.
/// Empty where no ring can be made, or it did not come to an end.
pub fn try_file_operations() -> Vec<(&'static str, Option<String>)> {
    let (end, seen) = child::run(trial::files);
    if !(seen.passed && matches!(end, child::End::Exited)) {
        return Vec::new();
    }
    let wrong = |errno| match errno {
        0 => None,
        trial::WRONG => Some("not the answer it should give".to_owned()),
        errno => Some(refusal::words(&std::io::Error::from_raw_os_error(errno))),
    };
    trial::FILES.into_iter().zip(seen.files.map(wrong)).collect()
}

/// For programs with rings of their own, before they make one: what is to be expected of a filter.
///
/// Without one, trying costs nothing and says more. With one in force the trial in a child goes first, because a filter
/// may end whoever calls. What the *driver* lacks beyond that is no matter here.
///
/// # Errors
/// io_uring is forbidden, or does not answer.
pub fn may_make_rings() -> Result<(), &'static Refusal> {
    if !Gate::of_this_thread().is_filtered() {
        return Ok(());
    }
    match probe(Name::IoUring) {
        Err(refusal) if refusal.obstacle != Obstacle::Missing => Err(refusal),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
