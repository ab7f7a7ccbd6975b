//! Every reason why a number may mislead, as a type with advice, and the verdict that follows from them.
//!
//! A [`Caveat`] states what was observed, how much of it, and what to do. The gates (`littles_law`, `steal`,
//! …) are the only place for thresholds: they take what was measured and return the caveat or nothing.
//! Collecting the measurements is the harness's part.
//!
//! Start at [`Verdict`].

use crate::record::{Errors, Interval};
use crate::units::{Apart, Share};
use serde::{Deserialize, Serialize};
use std::fmt;

/// How reliable a measurement is; a later level is worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Level {
    /// No gate objected.
    Valid,
    /// The number stands, with a reason to doubt it. Quote the reason with the number.
    Suspect,
    /// The number does not measure what its name states. Do not use it.
    Invalid,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Level::Valid => "VALID",
            Level::Suspect => "SUSPECT",
            Level::Invalid => "INVALID",
        })
    }
}

/// How reliable numbers are, with the reasons against them.
///
/// Serialised as `{"level": "SUSPECT", "reasons": ["sentence", …]}`; with more than one reason, of which the
/// worst is INVALID, `"levels": ["INVALID", …]` follows, the level of each.
///
/// ```
/// use ringroad_measure::{Caveat, Level, Verdict};
/// let verdict = Verdict::of(Caveat::steal(0.05));
/// assert_eq!(verdict.level, Level::Suspect);
/// assert!(verdict.to_string().starts_with("SUSPECT: the hypervisor took 5.0 % of the CPU time there was"));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct Verdict {
    /// The level of the worst reason; [`Level::Valid`] without reasons.
    pub level: Level,
    /// The reasons, worst first; but Little's law follows the reasons that explain it.
    pub reasons: Vec<Caveat>,
}

impl Default for Verdict {
    fn default() -> Self {
        Verdict::valid()
    }
}

impl Verdict {
    /// Returns the verdict where nothing objects.
    pub fn valid() -> Self {
        Verdict { level: Level::Valid, reasons: Vec::new() }
    }

    /// Makes the verdict of these reasons: worst first, each sentence once.
    pub fn of(reasons: impl IntoIterator<Item = Caveat>) -> Self {
        let mut verdict = Verdict::valid();
        for reason in reasons {
            verdict.add(reason);
        }
        verdict
    }

    /// Adds a reason; the level can only get worse.
    pub fn add(&mut self, reason: Caveat) {
        self.level = self.level.max(reason.level());
        if self.reasons.contains(&reason) {
            return;
        }
        let is_law = |reason: &Caveat| matches!(reason, Caveat::LittlesLaw { .. });
        // The position of the law depends on all other reasons, so it is removed and inserted last.
        let law = self.reasons.iter().position(is_law).map(|at| self.reasons.remove(at));
        let mut added = vec![reason];
        added.extend(law);
        added.sort_by_key(is_law);
        for reason in added {
            let level = reason.level();
            let by_level = self.reasons.partition_point(|known| known.level() >= level);
            let cause = self.reasons.iter().rposition(Caveat::explains_littles_law);
            let place = cause.filter(|_| is_law(&reason)).map_or(by_level, |cause| by_level.max(cause + 1));
            self.reasons.insert(place, reason);
        }
    }

    /// Replaces the reasons of the same kind, which had other numbers. The level stays the worst so far.
    pub fn renew(&mut self, reason: Caveat) {
        // Sentences read back are only text: the part before the first number identifies their kind.
        let kind = |reason: &Caveat| {
            let text = reason.to_string();
            text.chars().take_while(|c| !c.is_ascii_digit()).collect::<String>()
        };
        self.reasons.retain(|known| kind(known) != kind(&reason));
        self.add(reason);
    }

    /// Returns the worst of several verdicts, with the reasons of all of them, each sentence once.
    ///
    /// The level is the worst *stated* level: a verdict read back from a record keeps the level it was
    /// written with, although the sentences of an old record carry none.
    pub fn worst<'a>(verdicts: impl IntoIterator<Item = &'a Verdict>) -> Self {
        let mut worst = Verdict::valid();
        for verdict in verdicts {
            for reason in &verdict.reasons {
                worst.add(reason.clone());
            }
            worst.level = worst.level.max(verdict.level);
        }
        worst
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.level)?;
        for (nth, reason) in self.reasons.iter().enumerate() {
            write!(f, "{}{reason}", if nth == 0 { ": " } else { " " })?;
        }
        Ok(())
    }
}

/// The serialised form of a verdict. Numbers decide the level of a reason, but only its sentence is kept. So
/// the levels are kept beside the sentences, if the verdict's own level does not determine them.
#[derive(Serialize, Deserialize)]
struct Written {
    level: Level,
    reasons: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    levels: Vec<Level>,
}

impl From<Verdict> for Written {
    fn from(verdict: Verdict) -> Self {
        let Verdict { level, reasons } = verdict;
        let told = level < Level::Invalid || reasons.len() < 2;
        let levels = if told { Vec::new() } else { reasons.iter().map(Caveat::level).collect() };
        Written { level, reasons: reasons.iter().map(Caveat::to_string).collect(), levels }
    }
}

impl From<Written> for Verdict {
    fn from(written: Written) -> Self {
        let Written { level, reasons, levels } = written;
        let mut levels = levels.into_iter();
        let reason = |sentence| match levels.next() {
            Some(level) => Caveat::Stated { sentence, level },
            None => Caveat::Other(sentence),
        };
        Verdict { level, reasons: reasons.into_iter().map(reason).collect() }
    }
}

/// One reason why a number may mislead. `Display` is one sentence: what, how much, and what to do.
///
/// Two caveats are equal if their sentences are equal: a record keeps sentences, not numbers, so only these
/// survive a round trip.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Caveat {
    /// Rate times latency is not the number of requests in flight.
    LittlesLaw {
        /// `rate × mean latency / in flight − 1`; 0 is perfect.
        off: f64,
    },
    /// The client was the bottleneck, not the program.
    ClientBound {
        /// Share of its core the client used.
        client_share: f64,
    },
    /// The client was ready to run and had to wait for a CPU.
    ClientStarved {
        /// Share of the window it waited.
        wait_share: f64,
    },
    /// The generator sent later than the schedule said (open loop).
    SendLag {
        /// 99th percentile of the delay, microseconds.
        lag_p99_us: f64,
        /// Median latency it would hide in, microseconds.
        p50_us: f64,
    },
    /// The generator itself sent later than the schedule said, although a connection was free (open loop).
    GeneratorLate {
        /// Median of that delay, microseconds.
        late_p50_us: f64,
        /// Its 99th percentile, microseconds.
        late_p99_us: f64,
        /// Median response latency, microseconds, which holds it.
        p50_us: f64,
    },
    /// Requests that were due never had a connection to go out on (open loop).
    Unsent {
        /// The number of unsent requests.
        unsent: u64,
        /// The number of due requests.
        due: u64,
    },
    /// The client used all of its threads' time, so the program's spare capacity is unknown.
    ClientBusy {
        /// Share of its threads' time the client used.
        client_share: f64,
    },
    /// Client and server counted different things.
    CountsDiffer {
        /// What is counted: `requests`, `bytes`.
        what: &'static str,
        /// The client's count.
        client: u64,
        /// The server's count.
        server: u64,
    },
    /// Requests failed.
    Failures {
        /// By kind.
        errors: Errors,
        /// Requests sent, and connects that failed.
        sent: u64,
    },
    /// Not one answer came in the measured window.
    NothingMeasured,
    /// The hypervisor gave this machine's time to others.
    Steal {
        /// Share of all CPU time in the window.
        share: f64,
    },
    /// Some connections were open and never got an answer.
    NotServed {
        /// Connections that should have been served.
        wanted: u32,
        /// Connections that got at least one answer.
        served: u32,
    },
    /// The baseline against itself differs by as much as the difference of interest.
    ControlTooWide {
        /// How far the A/A interval reaches from 1, as a share.
        control: f64,
        /// The difference that was to be judged, as a share.
        effect: f64,
    },
    /// The A/A control found a difference where there is none.
    ControlDiffers {
        /// Second baseline over first, minus 1.
        by: f64,
    },
    /// Two clients of ours put the same load on the same program, and one gets another rate.
    ClientsDiffer {
        /// Rate of the first over the second's, minus 1.
        by: f64,
    },
    /// Too few runs for an interval.
    TooFewRepeats {
        /// Runs done.
        runs: u32,
        /// Runs needed.
        wanted: u32,
    },
    /// The measured window was too short.
    WindowTooShort {
        /// Its length, seconds.
        seconds: f64,
        /// The length needed, seconds.
        wanted: f64,
    },
    /// The runs of one cell differ widely among themselves.
    Unsteady {
        /// Median absolute deviation over the median.
        spread: f64,
    },
    /// A counter could not be read.
    Unknown {
        /// Which.
        what: String,
        /// Why.
        why: String,
    },
    /// Client and server had to share a core.
    SharedCore,
    /// The harness itself used CPU time while measuring.
    HarnessBusy {
        /// Share of one core.
        share: f64,
    },
    /// The run was stopped before its end.
    Interrupted {
        /// Blocks completed.
        done: u32,
        /// Blocks planned.
        planned: u32,
    },
    /// The program under test ended or stopped answering by itself.
    ServerFailed {
        /// What was seen, as a clause: `it exited with code 1`.
        how: String,
    },
    /// The program closed connections between requests, and the client made them again.
    Closed {
        /// Connections closed.
        closed: u64,
        /// Requests sent.
        sent: u64,
    },
    /// The program closes after each answer and accepts too few connections at once, so it got fewer
    /// connections.
    FewerConnections {
        /// Connections that were used.
        taken: u32,
        /// Connections of the load.
        wanted: u32,
    },
    /// Runs that should have been in turns with others, and were made by themselves.
    RanAlone {
        /// The number of such runs.
        runs: u32,
        /// The number of all runs.
        of: u32,
        /// Why, as a clause.
        why: String,
    },
    /// Processes of the generator were lost, and their part of the load with them.
    ProcessesLost {
        /// The processes and the causes, as a clause.
        how: String,
        /// Whether more were lost than allowed.
        too_many: bool,
    },
    /// Parts of a load that several programs generate are missing.
    PartsMissing {
        /// The missing parts, and what is known of them, as a clause.
        which: String,
    },
    /// Parts of a load did not measure at the same time.
    PartsApart {
        /// The difference, in the plural: `the parts began`.
        what: String,
        /// Size of the difference, seconds.
        seconds: f64,
        /// Share of the measured time.
        share: f64,
    },
    /// A sentence from a record, or a reason without a variant. [`Caveat::level`] calls it suspect, unless
    /// its words identify a kind that is always INVALID. For others the [`Verdict`] has the level.
    Other(String),
    /// A sentence from a record, with the level that the record states.
    Stated {
        /// The sentence.
        sentence: String,
        /// Its level when it was written.
        level: Level,
    },
}

/// Closed loop: `|X·R/N − 1|` above this is doubtful (Little 1961).
pub const LITTLE_OFF: f64 = 0.05;
/// Above this the load is not the requested one.
pub const LITTLE_BROKEN: f64 = 0.20;
/// A program or client with this share of its core uses all of it.
pub const BUSY_SHARE: f64 = 0.95;
/// A client that waited this share of the window for a CPU measures its own waiting.
pub const WAIT_SHARE: f64 = 0.05;
/// Open loop: lag above this share of the median latency shows in the result.
pub const LAG_SHARE: f64 = 0.10;
/// Open loop: above this ratio of the generator's own median delay to the median latency, the generator
/// reports itself.
pub const LATE_BROKEN: f64 = 0.50;
/// Microseconds that waking a thread may take on a busy or virtual machine. If 99 % of the requests are sent
/// within that, service times are valid, and response times are doubtful by at most this.
pub const LATE_WAKE_US: f64 = 1_000.0;
/// Steal above this share is doubtful.
pub const STEAL_SHARE: f64 = 0.02;
/// Steal above this share makes a result INVALID.
pub const STEAL_BROKEN: f64 = 0.10;
/// Failures up to this share of the requests leave the rest usable.
pub const FAILURE_SHARE: f64 = 0.01;
/// Reconnections, as a share of the requests, from which connecting affects the figures.
pub const CLOSED_SHARE: f64 = 0.01;
/// Runs below which a 95 % interval of a median does not exist: with 5 values even the whole range covers the
/// median only 1 − 2·0.5⁵ = 93.75 % of the time.
pub const REPEATS_MIN: u32 = 6;
/// Windows shorter than this are mostly scheduler ticks.
pub const WINDOW_MIN_S: f64 = 1.0;
/// Spread (MAD over median) from which one cell's runs are called unsteady.
pub const SPREAD_MAX: f64 = 0.05;
/// Two clients with rates farther apart than this do not measure the same. A client decides how many requests
/// reach the program at once, which affects the cost of one; the rates are never quite equal.
pub const CLIENTS_APART: f64 = 0.10;
/// Parts of a load that are apart by more than this share of the measured time are doubtful.
pub const APART_SHARE: f64 = 0.01;
/// Above this their sum is not the requested load.
pub const APART_BROKEN: f64 = 0.05;
/// Share of a core that the harness may use while measuring.
pub const HARNESS_SHARE: f64 = 0.02;

/// The gates: each takes measured values and returns a caveat, or nothing.
impl Caveat {
    /// Checks Little's law in a closed loop: `rate_per_s × mean_s` must be the requests in flight
    /// (connections that send × pipeline depth). Not for open loops, where the number in flight is free.
    pub fn littles_law(rate_per_s: f64, mean_s: f64, in_flight: f64) -> Option<Caveat> {
        if in_flight <= 0.0 {
            return None;
        }
        let off = rate_per_s * mean_s / in_flight - 1.0;
        outside(off.abs(), LITTLE_OFF).then_some(Caveat::LittlesLaw { off })
    }

    /// Checks whether the client used its whole core while the server did not: rate and latency are the
    /// client's then.
    pub fn client_bound(client_share: f64, server_share: f64) -> Option<Caveat> {
        (client_share >= BUSY_SHARE && server_share < BUSY_SHARE)
            .then_some(Caveat::ClientBound { client_share })
    }

    /// Checks whether the client waited for a CPU while it had work.
    pub fn client_starved(wait_share: f64) -> Option<Caveat> {
        outside(wait_share, WAIT_SHARE).then_some(Caveat::ClientStarved { wait_share })
    }

    /// Checks, in an open loop, whether the generator fell behind its schedule.
    pub fn send_lag(lag_p99_us: f64, p50_us: f64) -> Option<Caveat> {
        outside(lag_p99_us, LAG_SHARE * p50_us).then_some(Caveat::SendLag { lag_p99_us, p50_us })
    }

    /// Checks, in an open loop, whether the generator was late although a connection was free.
    pub fn generator_late(late_p50_us: f64, late_p99_us: f64, p50_us: f64) -> Option<Caveat> {
        outside(late_p99_us, LAG_SHARE * p50_us).then_some(Caveat::GeneratorLate {
            late_p50_us,
            late_p99_us,
            p50_us,
        })
    }

    /// Checks, in an open loop, that every due request was sent.
    pub fn unsent(unsent: u64, due: u64) -> Option<Caveat> {
        (unsent > 0).then_some(Caveat::Unsent { unsent, due })
    }

    /// Checks how many processes of the generator were lost; `allowed` may be.
    pub fn processes_lost(how: String, lost: u32, allowed: u32) -> Option<Caveat> {
        (lost > 0).then_some(Caveat::ProcessesLost { how, too_many: lost > allowed })
    }

    /// Checks that the parts of one load ran at the same time, relative to the measured time.
    pub fn parts_apart(what: &str, seconds: f64, window_s: f64) -> Option<Caveat> {
        let share = seconds / window_s;
        outside(share, APART_SHARE).then(|| Caveat::PartsApart { what: what.to_owned(), seconds, share })
    }

    /// Checks that the client had time left on the threads it was given.
    pub fn client_busy(client_share: f64) -> Option<Caveat> {
        (client_share.is_nan() || client_share >= BUSY_SHARE).then_some(Caveat::ClientBusy { client_share })
    }

    /// Checks that both sides have counted the same. `what` names the thing in the plural: `requests`,
    /// `bytes`.
    pub fn counts_differ(what: &'static str, client: u64, server: u64) -> Option<Caveat> {
        (client != server).then_some(Caveat::CountsDiffer { what, client, server })
    }

    /// Reports any failure. A failed connect counts as an attempted request, and no more requests fail than
    /// were attempted.
    pub fn failures(errors: Errors, sent: u64) -> Option<Caveat> {
        let sent = sent.saturating_add(errors.connect).max(errors.total());
        (errors.total() > 0).then_some(Caveat::Failures { errors, sent })
    }

    /// Checks, for kept connections, that few were made again.
    pub fn closed(closed: u64, sent: u64) -> Option<Caveat> {
        outside(closed as f64, CLOSED_SHARE * sent as f64).then_some(Caveat::Closed { closed, sent })
    }

    /// Reports runs of one cell that ran alone, for this reason.
    pub fn ran_alone(runs: u32, of: u32, why: String) -> Option<Caveat> {
        (runs > 0).then_some(Caveat::RanAlone { runs, of, why })
    }

    /// Checks steal as a share of the CPU time in the window: of the cores that were used, if they are known.
    pub fn steal(share: f64) -> Option<Caveat> {
        outside(share, STEAL_SHARE).then_some(Caveat::Steal { share })
    }

    /// Checks that every active connection got at least one answer.
    pub fn not_served(wanted: u32, served: u32) -> Option<Caveat> {
        (served < wanted).then_some(Caveat::NotServed { wanted, served })
    }

    /// Checks that the A/A control is narrower than the difference it is to judge. `effect` is a ratio minus
    /// 1.
    pub fn control_too_wide(control: Interval, effect: f64) -> Option<Caveat> {
        let reach = control.reach();
        // An effect of zero asks nothing that a control could answer.
        (effect != 0.0 && outside(reach, effect.abs()))
            .then_some(Caveat::ControlTooWide { control: reach, effect: effect.abs() })
    }

    /// Checks that two clients with time left get the same rate; `rate` is one rate over the other.
    pub fn clients_differ(rate: Interval) -> Option<Caveat> {
        let (low, high) = (1.0 - CLIENTS_APART, 1.0 + CLIENTS_APART);
        let agree = rate.high >= low && rate.low <= high;
        (!agree).then_some(Caveat::ClientsDiffer { by: rate.mid - 1.0 })
    }

    /// Checks that there are enough runs for an interval of the median.
    pub fn too_few_repeats(runs: u32) -> Option<Caveat> {
        (runs < REPEATS_MIN).then_some(Caveat::TooFewRepeats { runs, wanted: REPEATS_MIN })
    }

    /// Checks that the window is long enough to average over scheduler ticks.
    pub fn window_too_short(seconds: f64) -> Option<Caveat> {
        (seconds.is_nan() || seconds < WINDOW_MIN_S)
            .then_some(Caveat::WindowTooShort { seconds, wanted: WINDOW_MIN_S })
    }

    /// Checks that the runs of one cell agree; `spread` is MAD over median.
    pub fn unsteady(spread: f64) -> Option<Caveat> {
        outside(spread, SPREAD_MAX).then_some(Caveat::Unsteady { spread })
    }

    /// Checks that the harness does not disturb what it measures.
    pub fn harness_busy(share: f64) -> Option<Caveat> {
        outside(share, HARNESS_SHARE).then_some(Caveat::HarnessBusy { share })
    }

    /// Returns whether this explains a difference between rate times latency and the requests in flight:
    /// connections that did not send, or time between an answer and the next request.
    fn explains_littles_law(&self) -> bool {
        matches!(
            self,
            Caveat::ServerFailed { .. }
                | Caveat::NothingMeasured
                | Caveat::NotServed { .. }
                | Caveat::Failures { .. }
                | Caveat::CountsDiffer { .. }
                | Caveat::ClientBound { .. }
                | Caveat::ClientBusy { .. }
                | Caveat::ClientStarved { .. }
                | Caveat::Steal { .. }
                | Caveat::Closed { .. }
                | Caveat::FewerConnections { .. }
                | Caveat::ProcessesLost { .. }
                | Caveat::WindowTooShort { .. }
        )
    }

    /// Returns the level.
    pub fn level(&self) -> Level {
        let worse_if = |broken: bool| {
            if broken { Level::Invalid } else { Level::Suspect }
        };
        match self {
            Caveat::LittlesLaw { off } => worse_if(outside(off.abs(), LITTLE_BROKEN)),
            Caveat::Failures { errors, sent } => {
                worse_if(outside(errors.total() as f64, FAILURE_SHARE * *sent as f64))
            }
            Caveat::Steal { share } => worse_if(outside(*share, STEAL_BROKEN)),
            Caveat::GeneratorLate { late_p50_us, late_p99_us, p50_us } => {
                worse_if(outside(*late_p50_us, LATE_BROKEN * p50_us) && outside(*late_p99_us, LATE_WAKE_US))
            }
            Caveat::Unsent { unsent, due } => worse_if(outside(*unsent as f64, FAILURE_SHARE * *due as f64)),
            Caveat::ProcessesLost { too_many, .. } => worse_if(*too_many),
            Caveat::PartsApart { share, .. } => worse_if(outside(*share, APART_BROKEN)),
            Caveat::PartsMissing { .. }
            | Caveat::CountsDiffer { .. }
            | Caveat::NothingMeasured
            | Caveat::NotServed { .. }
            | Caveat::ServerFailed { .. } => Level::Invalid,
            Caveat::ClientBound { .. }
            | Caveat::ClientBusy { .. }
            | Caveat::ClientStarved { .. }
            | Caveat::SendLag { .. }
            | Caveat::ControlTooWide { .. }
            | Caveat::ControlDiffers { .. }
            | Caveat::ClientsDiffer { .. }
            | Caveat::TooFewRepeats { .. }
            | Caveat::WindowTooShort { .. }
            | Caveat::Unsteady { .. }
            | Caveat::Unknown { .. }
            | Caveat::SharedCore
            | Caveat::HarnessBusy { .. }
            | Caveat::Closed { .. }
            | Caveat::RanAlone { .. }
            | Caveat::FewerConnections { .. }
            | Caveat::Interrupted { .. } => Level::Suspect,
            Caveat::Other(sentence) => worse_if(is_invalid_by_its_words(sentence)),
            Caveat::Stated { level, .. } => *level,
        }
    }
}

/// Detects a sentence, read back from a record, that is INVALID by its kind, independent of any number.
fn is_invalid_by_its_words(sentence: &str) -> bool {
    ["the client counted ", "not one answer came ", "the program under test failed ("]
        .iter()
        .any(|begin| sentence.starts_with(begin))
        || sentence.contains(" connections never got an answer: ")
}

/// Returns whether `value > limit`. A value that is not a number counts as outside: a broken measurement must
/// not pass.
fn outside(value: f64, limit: f64) -> bool {
    value.is_nan() || limit.is_nan() || value > limit
}

impl fmt::Display for Caveat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Caveat::LittlesLaw { off } => write!(
                f,
                "rate times mean latency is {} the requests in flight (Little's law), by {}: part of the load was \
                 not where it should have been, so check that every connection sends and that warm-up is cut off.",
                if *off < 0.0 { "below" } else { "above" },
                Apart(1.0 + off),
            ),
            Caveat::ClientBound { client_share } => write!(
                f,
                "the client used {} while the program had time left: rate and latency are the client's, so compare \
                 CPU per request, or give the client more cores.",
                match *client_share {
                    share if share > 1.0 => format!("{share:.1} cores"),
                    share => format!("{} of its core", Share(share)),
                },
            ),
            // Several threads waited at a time, so this is not a part of the window.
            Caveat::ClientStarved { wait_share } if *wait_share > 1.0 => write!(
                f,
                "{wait_share:.1} times as many threads of the client as it works with were ready and waited for a CPU \
                 all the time: latencies hold their waiting, so give the client more cores, or another driver.",
            ),
            Caveat::ClientStarved { wait_share } => write!(
                f,
                "the client was ready but waited for a CPU during {} of the window: latencies hold its own \
                 waiting, so pin it to a core of its own and stop other work on the machine.",
                Share(*wait_share),
            ),
            Caveat::SendLag { lag_p99_us, p50_us } => write!(
                f,
                "1 % of the requests were sent {lag_p99_us:.0} µs or more after their time, against a median \
                 latency of {p50_us:.0} µs: lower the rate or give the generator more cores.",
            ),
            Caveat::GeneratorLate { late_p50_us, late_p99_us, p50_us } => write!(
                f,
                "the generator itself was late, by {late_p50_us:.0} µs in the median and {late_p99_us:.0} µs or more \
                 for 1 % of the requests, against a median latency of {p50_us:.0} µs that holds it: lower the rate, or \
                 give it a core of its own.",
            ),
            Caveat::Unsent { unsent, due } => write!(
                f,
                "{unsent} of {due} requests that were due never had a connection: all were busy to the end, so give \
                 it more connections, or lower the rate to what the program can do.",
            ),
            Caveat::ClientBusy { client_share } => write!(
                f,
                "the client used {} of its threads' time: the rate may be its own speed, so give it more threads \
                 where cores are free (-t), or compare what the program costs per request.",
                // The kernel's workers for its rings are no threads of it, so it may be more than all.
                if *client_share > 1.0 { "all".to_owned() } else { Share(*client_share).to_string() },
            ),
            Caveat::CountsDiffer { what, client, server } => write!(
                f,
                "the client counted {client} {what} and the server {server}: something else talks to the server \
                 or answers were lost, so find the difference of {} before using any figure.",
                client.abs_diff(*server),
            ),
            Caveat::Failures { errors, sent } => {
                write!(f, "{} of {sent} requests failed (", errors.total())?;
                let kinds = [
                    ("connect", errors.connect),
                    ("reset", errors.reset),
                    ("timeout", errors.timeout),
                    ("status", errors.status),
                    ("protocol", errors.protocol),
                ];
                let mut separator = "";
                for (kind, count) in kinds.iter().filter(|(_, count)| *count > 0) {
                    write!(f, "{separator}{kind} {count}")?;
                    separator = ", ";
                }
                let most = kinds.iter().max_by_key(|(_, count)| *count).map_or("", |(kind, _)| kind);
                let advice = match most {
                    "status" => {
                        "every answer must have a 2xx status, so check the path, or read the server's log where it is 5xx"
                    }
                    "connect" => "check the server's backlog and its limits of connections and descriptors",
                    "reset" => "connections ended before their answers, so read the server's messages",
                    "timeout" => {
                        // They are the slowest.
                        return write!(
                            f,
                            "): answers did not come in time, and the rate lacks them: lower the load or raise the timeout."
                        );
                    }
                    _ => "answers were malformed or not the expected ones, so look at one of them",
                };
                write!(f, "): failed requests are fast and skew the averages; {advice}.")
            }
            Caveat::Closed { closed, sent } => write!(
                f,
                "the program closed {closed} connections between {sent} requests: its CPU time holds as many new \
                 connections, so raise its limit of requests per connection if it has one."
            ),
            Caveat::FewerConnections { taken, wanted } => write!(
                f,
                "it was put under {taken} of {wanted} connections, because it closes after each answer and does not accept \
                 more at once (a short listen backlog): compare its CPU per request, not rate and latency."
            ),
            Caveat::RanAlone { runs, of, why } => write!(
                f,
                "{runs} of {of} run{} {} made by {}, not in turns with the others, because {why}: small differences from \
                 the others mean little.",
                if *of == 1 { "" } else { "s" },
                if *runs == 1 { "was" } else { "were" },
                if *runs == 1 { "itself" } else { "themselves" },
            ),
            Caveat::NothingMeasured => write!(
                f,
                "not one answer came in the measured window: if a low rate left no request for it, make it longer; \
                 if answers came before it, the server stopped, or takes longer than the window; if none came at \
                 all, send it a request by hand."
            ),
            Caveat::Steal { share } => write!(
                f,
                "the hypervisor took {} of the CPU time there was in the window: repeat when the host is quiet, \
                 or use a machine of its own.",
                Share(*share),
            ),
            Caveat::NotServed { wanted, served } => write!(
                f,
                "{} of {wanted} connections never got an answer: the load was that of {served}, so check the \
                 server's connection limit, its backlog and its descriptor limit.",
                wanted - served.min(wanted),
            ),
            Caveat::ControlTooWide { control, effect } => write!(
                f,
                "the baseline against itself reaches {} from equal, and the difference in question is {}: add \
                 blocks or a quieter machine before claiming it.",
                Share(*control),
                Share(*effect),
            ),
            Caveat::ControlDiffers { by } => write!(
                f,
                "the baseline differs from itself by {}: something besides the program changes between runs, so \
                 no difference of that size in this record means anything.",
                Apart(1.0 + by),
            ),
            Caveat::ClientsDiffer { by } => write!(
                f,
                "the load generator's rate is {} the small client's on the same program, by {}: one of them is wrong, \
                 so take ratios rather than rates, and run it again with the other (--client small).",
                if *by < 0.0 { "below" } else { "above" },
                Apart(1.0 + by),
            ),
            Caveat::TooFewRepeats { runs, wanted } => write!(
                f,
                "{runs} run{} cannot carry a 95 % interval: repeat at least {wanted} times.",
                if *runs == 1 { "" } else { "s" },
            ),
            Caveat::WindowTooShort { seconds, wanted } => write!(
                f,
                "the measured window was {seconds:.2} s: measure at least {wanted:.0} s, so that scheduler ticks \
                 and timer noise average out.",
            ),
            Caveat::Unsteady { spread } => write!(
                f,
                "half of the runs lie more than {} from their median: stop other work, fix the clock frequency, \
                 or add runs.",
                Share(*spread),
            ),
            Caveat::Unknown { what, why } => write!(f, "{what} is unknown here: {why}."),
            Caveat::SharedCore => write!(
                f,
                "client and server shared a core, for lack of a second one: rate and latency hold both, so \
                 compare CPU per request only, or run on two cores."
            ),
            Caveat::HarnessBusy { share } => write!(
                f,
                "the harness used {} of a core while measuring: look for a busy terminal or a slow disk under \
                 its output folder.",
                Share(*share),
            ),
            Caveat::Interrupted { done, planned } => write!(
                f,
                "the run was stopped after {done} of {planned} block{}: intervals are wider than planned, so resume it \
                 (ringroad lab run --resume DIR, the folder of this record).",
                if *planned == 1 { "" } else { "s" },
            ),
            Caveat::ServerFailed { how } => write!(
                f,
                "the program under test failed ({how}): start it by hand under the same load and read its messages."
            ),
            Caveat::ProcessesLost { how, .. } => write!(
                f,
                "{how}: the load was less than was asked for from then on, and some of its counts are missing, so find \
                 out why and repeat it."
            ),
            Caveat::PartsMissing { which } => write!(
                f,
                "{which}: the sum is not the load that was asked for, so find out why and put on all parts again, together."
            ),
            Caveat::PartsApart { what, seconds, share } => write!(
                f,
                "{what} {seconds:.3} s apart, {} of the measured time: until then the load was not whole, so choose a later \
                 --start-at, compare the clocks with --clock-from, or measure for longer.",
                Share(*share),
            ),
            Caveat::Other(sentence) | Caveat::Stated { sentence, .. } => f.write_str(sentence),
        }
    }
}

impl PartialEq for Caveat {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::{Caveat, Level, Verdict};
    use crate::record::{Errors, Interval};

    /// One of each variant, to read them and to hold them to their form.
    fn every() -> Vec<Caveat> {
        let errors = Errors { reset: 3, status: 1, ..Errors::default() };
        vec![
            Caveat::LittlesLaw { off: -0.98 },
            Caveat::ClientBound { client_share: 0.991 },
            Caveat::ClientStarved { wait_share: 0.081 },
            Caveat::SendLag { lag_p99_us: 900.4, p50_us: 120.0 },
            Caveat::GeneratorLate { late_p50_us: 20.0, late_p99_us: 90.0, p50_us: 120.0 },
            Caveat::Unsent { unsent: 12, due: 1_000 },
            Caveat::ClientBusy { client_share: 0.991 },
            Caveat::CountsDiffer { what: "requests", client: 1_204_331, server: 1_204_330 },
            Caveat::Failures { errors, sent: 1_000 },
            Caveat::NothingMeasured,
            Caveat::Steal { share: 0.034 },
            Caveat::NotServed { wanted: 1_000, served: 22 },
            Caveat::ControlTooWide { control: 0.04, effect: 0.031 },
            Caveat::ControlDiffers { by: -0.02 },
            Caveat::ClientsDiffer { by: -0.22 },
            Caveat::TooFewRepeats { runs: 1, wanted: 6 },
            Caveat::WindowTooShort { seconds: 0.25, wanted: 1.0 },
            Caveat::Unsteady { spread: 0.07 },
            Caveat::Unknown { what: "steal".into(), why: "/proc/stat is masked".into() },
            Caveat::SharedCore,
            Caveat::Closed { closed: 30, sent: 1_000 },
            Caveat::FewerConnections { taken: 8, wanted: 64 },
            Caveat::RanAlone { runs: 1, of: 6, why: "its turn took 3.0 s".into() },
            Caveat::HarnessBusy { share: 0.05 },
            Caveat::Interrupted { done: 3, planned: 10 },
            Caveat::ServerFailed { how: "it exited with code 1".into() },
            Caveat::ProcessesLost {
                how: "process 2 of 4 was lost (ended by signal 9)".into(),
                too_many: true,
            },
            Caveat::PartsMissing { which: "parts 3 and 5 of 8 are missing".into() },
            Caveat::PartsApart { what: "the parts began".into(), seconds: 1.25, share: 0.125 },
            Caveat::Other("the room was hot.".into()),
            Caveat::Stated { sentence: "the room was cold.".into(), level: Level::Suspect },
        ]
    }

    #[test]
    fn every_caveat_is_one_sentence_with_its_numbers() {
        for caveat in every() {
            let sentence = caveat.to_string();
            assert!(sentence.ends_with('.') && !sentence.contains('\n'), "{sentence}");
            assert!(!sentence.contains(". "), "two sentences: {sentence}");
            assert!(!sentence.contains("  "), "a gap: {sentence}");
        }
        let sentence = Caveat::NotServed { wanted: 1_000, served: 22 }.to_string();
        assert!(sentence.starts_with("978 of 1000 connections never got an answer"), "{sentence}");
        let sentence = Caveat::LittlesLaw { off: -0.98 }.to_string();
        assert!(
            sentence.contains("is below the requests in flight (Little's law), by a factor of 50.0:"),
            "{sentence}"
        );
        let errors = Errors { reset: 3, status: 1, ..Errors::default() };
        let sentence = Caveat::Failures { errors, sent: 1_000 }.to_string();
        assert!(sentence.starts_with("4 of 1000 requests failed (reset 3, status 1):"), "{sentence}");
    }

    /// The published figure that started this project: 167,000 requests/s at 0.13 ms is 22 requests in
    /// flight, not the 1000 connections it was said to be.
    #[test]
    fn littles_law_catches_a_client_that_keeps_few_requests_in_flight() {
        let caveat = Caveat::littles_law(167_000.0, 0.000_13, 1_000.0).unwrap();
        assert_eq!(caveat.level(), Level::Invalid);
        assert!(matches!(caveat, Caveat::LittlesLaw { off } if (off + 0.978).abs() < 0.001));
        assert_eq!(Caveat::littles_law(98_432.0, 0.101, 10_000.0), None);
    }

    /// Each gate at its threshold, where it keeps quiet, and just past it, where it speaks.
    #[test]
    fn gates_open_exactly_past_their_threshold() {
        let control = |reach: f64| Interval { low: 1.0, mid: 1.0, high: 1.0 + reach };
        let rate = |low: f64, high: f64| Interval { low, mid: (low + high) / 2.0, high };
        let gates: [(&str, Option<Caveat>, Option<Caveat>); 19] = [
            ("clients", Caveat::clients_differ(rate(1.10, 1.3)), Caveat::clients_differ(rate(1.11, 1.3))),
            (
                "clients below",
                Caveat::clients_differ(rate(0.7, 0.90)),
                Caveat::clients_differ(rate(0.7, 0.89)),
            ),
            ("little", Caveat::littles_law(100.0, 1.04, 100.0), Caveat::littles_law(100.0, 1.06, 100.0)),
            (
                "little below",
                Caveat::littles_law(100.0, 0.96, 100.0),
                Caveat::littles_law(100.0, 0.94, 100.0),
            ),
            ("client", Caveat::client_bound(0.94, 0.5), Caveat::client_bound(0.95, 0.5)),
            ("client beside a busy server", Caveat::client_bound(1.0, 0.95), Caveat::client_bound(1.0, 0.94)),
            ("starved", Caveat::client_starved(0.05), Caveat::client_starved(0.051)),
            ("lag", Caveat::send_lag(10.0, 100.0), Caveat::send_lag(10.1, 100.0)),
            ("late", Caveat::generator_late(1.0, 10.0, 100.0), Caveat::generator_late(1.0, 10.1, 100.0)),
            ("unsent", Caveat::unsent(0, 10), Caveat::unsent(1, 10)),
            ("client busy", Caveat::client_busy(0.94), Caveat::client_busy(0.95)),
            ("counts", Caveat::counts_differ("bytes", 7, 7), Caveat::counts_differ("bytes", 7, 8)),
            ("steal", Caveat::steal(0.02), Caveat::steal(0.021)),
            ("served", Caveat::not_served(64, 64), Caveat::not_served(64, 63)),
            ("closed", Caveat::closed(10, 1_000), Caveat::closed(11, 1_000)),
            ("alone", Caveat::ran_alone(0, 6, "slow".into()), Caveat::ran_alone(1, 6, "slow".into())),
            ("repeats", Caveat::too_few_repeats(6), Caveat::too_few_repeats(5)),
            ("window", Caveat::window_too_short(1.0), Caveat::window_too_short(0.99)),
            (
                "control",
                Caveat::control_too_wide(control(0.02), -0.03),
                Caveat::control_too_wide(control(0.04), -0.03),
            ),
        ];
        for (name, quiet, loud) in gates {
            assert_eq!(quiet, None, "{name}");
            assert!(loud.is_some(), "{name}");
        }
        assert_eq!(Caveat::failures(Errors::default(), 10), None);
    }

    #[test]
    fn a_number_that_is_none_does_not_pass_a_gate() {
        assert!(Caveat::steal(f64::NAN).is_some());
        let no_rate = Interval { low: f64::NAN, mid: f64::NAN, high: f64::NAN };
        assert!(Caveat::clients_differ(no_rate).is_some());
        assert!(Caveat::window_too_short(f64::NAN).is_some());
        assert!(Caveat::littles_law(f64::NAN, 1.0, 1.0).is_some());
        assert!(Caveat::send_lag(1.0, f64::NAN).is_some());
    }

    #[test]
    fn more_of_the_same_is_worse() {
        let lost = |lost| Caveat::processes_lost("one".into(), lost, 1).map(|caveat| caveat.level());
        assert_eq!((lost(0), lost(1), lost(2)), (None, Some(Level::Suspect), Some(Level::Invalid)));
        let apart = |seconds| Caveat::parts_apart("they began", seconds, 10.0).map(|caveat| caveat.level());
        assert_eq!((apart(0.1), apart(0.2), apart(0.6)), (None, Some(Level::Suspect), Some(Level::Invalid)));
        let failures =
            |reset| Caveat::Failures { errors: Errors { reset, ..Errors::default() }, sent: 1_000 };
        assert_eq!(failures(10).level(), Level::Suspect);
        assert_eq!(failures(11).level(), Level::Invalid);
        let late =
            |late_p50_us, late_p99_us| Caveat::GeneratorLate { late_p50_us, late_p99_us, p50_us: 100.0 };
        assert_eq!(late(50.0, 2_000.0).level(), Level::Suspect);
        assert_eq!(late(51.0, 2_000.0).level(), Level::Invalid);
        assert_eq!(late(51.0, 900.0).level(), Level::Suspect);
        let unsent = |unsent| Caveat::Unsent { unsent, due: 1_000 };
        assert_eq!((unsent(10).level(), unsent(11).level()), (Level::Suspect, Level::Invalid));
        assert_eq!(Caveat::Steal { share: 0.10 }.level(), Level::Suspect);
        assert_eq!(Caveat::Steal { share: 0.11 }.level(), Level::Invalid);
    }

    #[test]
    fn a_verdict_is_as_bad_as_its_worst_reason_and_names_that_first() {
        let verdict = Verdict::of([
            Caveat::SharedCore,
            Caveat::Steal { share: 0.03 },
            Caveat::NothingMeasured,
            Caveat::SharedCore,
        ]);
        assert_eq!(verdict.level, Level::Invalid);
        assert_eq!(
            verdict.reasons,
            [Caveat::NothingMeasured, Caveat::SharedCore, Caveat::Steal { share: 0.03 }]
        );
        assert_eq!(Verdict::of(None), Verdict::valid());
        assert!(Level::Valid < Level::Suspect && Level::Suspect < Level::Invalid);
    }

    #[test]
    fn a_broken_law_follows_the_reasons_that_explain_it_and_precedes_others() {
        let law = || Caveat::LittlesLaw { off: -0.5 };
        let failed = || Caveat::failures(Errors { reset: 1, ..Errors::default() }, 1_000).unwrap();
        let few = || Caveat::TooFewRepeats { runs: 2, wanted: 6 };
        for reasons in [[law(), few(), failed()], [failed(), law(), few()], [few(), failed(), law()]] {
            let verdict = Verdict::of(reasons);
            assert_eq!(verdict.level, Level::Invalid);
            let place = |wanted: Caveat| verdict.reasons.iter().position(|reason| *reason == wanted);
            assert!(place(failed()) < place(law()), "{verdict}");
        }
        assert_eq!(Verdict::of([few(), law()]).reasons, [law(), few()], "nothing explains it");
    }

    #[test]
    fn no_more_requests_fail_than_were_tried() {
        let of = |errors, sent| Caveat::failures(errors, sent).unwrap().to_string();
        let connect = Errors { connect: 9, reset: 1, ..Errors::default() };
        assert!(of(connect, 1).starts_with("10 of 10 requests failed"), "{}", of(connect, 1));
        let protocol = Errors { protocol: 10, ..Errors::default() };
        assert!(of(protocol, 1).starts_with("10 of 10 requests failed"), "{}", of(protocol, 1));
    }

    #[test]
    fn a_client_with_more_than_one_core_is_told_in_cores() {
        let bound = Caveat::ClientBound { client_share: 1.42 }.to_string();
        assert!(bound.starts_with("the client used 1.4 cores while"), "{bound}");
    }

    #[test]
    fn the_worst_of_several_verdicts_keeps_all_reasons_once() {
        let first = Verdict::of([Caveat::SharedCore]);
        let second = Verdict::of([Caveat::NothingMeasured, Caveat::SharedCore]);
        let worst = Verdict::worst([&first, &second, &Verdict::valid()]);
        assert_eq!(worst.level, Level::Invalid);
        assert_eq!(worst.reasons, [Caveat::NothingMeasured, Caveat::SharedCore]);
    }

    #[test]
    fn a_verdict_survives_its_record_as_sentences() {
        for caveat in every() {
            let verdict = Verdict::of([caveat]);
            let text = serde_json::to_string(&verdict).unwrap();
            let back: Verdict = serde_json::from_str(&text).unwrap();
            assert_eq!(back, verdict);
            assert_eq!(
                Verdict::worst([&back]).level,
                verdict.level,
                "the stated level outlives its reason's type"
            );
        }
        let text = serde_json::to_string(&Verdict::of([Caveat::Other("why.".into())])).unwrap();
        assert_eq!(text, r#"{"level":"SUSPECT","reasons":["why."]}"#);
    }

    #[test]
    fn each_reason_read_back_is_as_bad_as_it_was() {
        let reasons = [Caveat::Steal { share: 0.2 }, Caveat::LittlesLaw { off: 0.5 }, Caveat::SharedCore];
        let verdict = Verdict::of(reasons);
        let text = serde_json::to_string(&verdict).unwrap();
        let back: Verdict = serde_json::from_str(&text).unwrap();
        let levels = |verdict: &Verdict| verdict.reasons.iter().map(Caveat::level).collect::<Vec<_>>();
        assert_eq!(levels(&back), [Level::Invalid, Level::Invalid, Level::Suspect], "{text}");
        assert_eq!(serde_json::to_string(&back).unwrap(), text);
    }

    #[test]
    fn a_sentence_that_is_invalid_whatever_its_numbers_are_is_so_when_read_back() {
        for caveat in every() {
            let always = matches!(
                caveat,
                Caveat::CountsDiffer { .. }
                    | Caveat::NothingMeasured
                    | Caveat::NotServed { .. }
                    | Caveat::ServerFailed { .. }
            );
            let back = Caveat::Other(caveat.to_string());
            assert_eq!(back.level() == Level::Invalid, always, "{caveat}");
        }
    }
}
