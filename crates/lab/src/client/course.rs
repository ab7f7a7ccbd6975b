//! The course of a load, the same for both clients: its phases, and the clocks that are read between them.
//!
//! The phases: *settle* and *warm-up* (discarded), the *window*, *system calls* (load continues), and *drain*
//! (no new requests; all answers are awaited, so that client and server have counted the same). Between two
//! phases the client shows its counts ([`Look`]) and gets the [`Next`] phase. It does nothing meanwhile, so
//! counts and clocks belong to one moment. The course does not depend on sockets.
//!
//! By turns, the window consists of pieces, one per turn. The course waits for a turn inside
//! [`Course::next`], so the client stands still and needs no knowledge of turns. Requests in flight at the
//! end of a turn are answered during other turns; those answers come first in the next turn, and nothing is
//! counted until they are taken in. So no piece contains another client's work. Start at [`Course::next`].

use super::Options;
use super::turns::Turns;
use super::window::{Edge, Gauges, Pieces, Slow, SyscallWindow, Taken, Window};
use ringroad_measure::Histogram;
use std::time::{Duration, Instant};

/// How often it is looked whether every connection has been served, before the warm-up.
const SETTLE_STEP: Duration = Duration::from_millis(10);

/// How often it is looked whether all that was on its way has come, after a turn of another.
const BACK_STEP: Duration = Duration::from_millis(1);

/// How long after the edge of a turn latencies are taken: what was on its way while the clocks were read has
/// come by then.
const LEAD: Duration = Duration::from_millis(1);

/// The state of a client.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    /// Open connections.
    pub live: u32,
    /// Connections that have got a whole answer.
    pub served: u32,
    /// Whole answers, wrong ones included.
    pub answers: u64,
    /// Whole answers that were right.
    pub completed: u64,
    /// Latencies since the measuring began.
    pub latencies: &'a Histogram,
    /// Requests that still wait.
    pub waiting: Waiting<'a>,
}

/// Tells how long the oldest request of each connection has waited until now, nanoseconds.
#[derive(Clone, Copy)]
pub struct Waiting<'a>(pub &'a dyn Fn() -> Vec<u64>);

impl std::fmt::Debug for Waiting<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Waiting")
    }
}

/// What the client does next, until the time is over or no connection is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Continue.
    Go(Duration),
    /// Discard the latencies so far, and continue.
    Measure(Duration),
    /// Send nothing more; return as soon as all requests are answered. Answers missing at the time limit are
    /// errors.
    Drain(Duration),
    /// End.
    Leave,
}

/// What was on its way when latencies began to be taken.
#[derive(Debug)]
struct Before {
    since: Instant,
    waits: Vec<u64>,
}

impl Before {
    fn now(look: &Look<'_>) -> Before {
        let Waiting(waiting) = look.waiting;
        Before { waits: waiting(), since: Instant::now() }
    }
}

/// The course of one load.
#[derive(Debug)]
pub struct Course {
    warmup: Duration,
    duration: Duration,
    syscalls: Duration,
    timeout: Duration,
    with_memory: bool,
    silent: bool,
    server_pid: Option<u32>,
    /// How long a piece is, and the line that announces its turn.
    turns: Option<(Duration, Turns)>,
    /// Requests on their way at any time.
    in_flight: u64,
    /// Of each connection.
    pipeline: u32,
    gauges: Gauges,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// Nothing is connected.
    Start,
    Connected,
    Settle(Instant),
    WarmUp(Slow),
    /// It is this one's turn again: until so many answers are there, but not longer than until then.
    Back(Slow, Box<Pieces>, u64, Instant),
    /// A piece has begun; its latencies are not taken yet.
    Lead(Slow, Box<Pieces>, Edge, u64),
    /// A piece: since this edge, when so many answers were right.
    Window(Slow, Box<Pieces>, Edge, u64, Before),
    Syscalls(Box<Window>, SyscallWindow),
    Drain(Option<Box<Window>>),
    Over(Option<Box<Window>>),
}

impl Course {
    /// Makes the course these options ask for, which have been [checked](Options::check). Turns are told on
    /// standard input and output ([`Turns`]).
    pub fn new(options: &Options) -> Course {
        let seconds = Duration::from_secs_f64;
        Course {
            warmup: seconds(options.warmup_s),
            duration: seconds(options.duration_s),
            syscalls: seconds(options.syscalls_s),
            timeout: seconds(options.timeout_s),
            with_memory: options.memory,
            silent: options.active < options.connections,
            server_pid: options.server_pid,
            turns: options.turn_s.map(|turn_s| (seconds(turn_s), Turns::here())),
            in_flight: u64::from(options.active) * u64::from(options.pipeline),
            pipeline: options.pipeline,
            gauges: Gauges::default(),
            phase: Phase::Start,
        }
    }

    /// Returns what comes next. First asked before anything is connected, then when all connections are there
    /// or cannot be had and nothing is sent yet, and then whenever what it said before is over.
    pub fn next(&mut self, look: &Look<'_>) -> Next {
        let phase = std::mem::replace(&mut self.phase, Phase::Over(None));
        let (phase, next) = self.after(phase, look);
        self.phase = phase;
        next
    }

    /// Returns what was measured; `None` if the load ended before its window did.
    pub fn into_window(self) -> Option<Window> {
        match self.phase {
            Phase::Over(window) | Phase::Drain(window) => window.map(|window| *window),
            Phase::Syscalls(window, _) => Some(*window),
            _ => None,
        }
    }

    /// Begins a piece of the window.
    fn piece(&self, early: Slow, pieces: Box<Pieces>, look: &Look<'_>) -> (Phase, Next) {
        let edge = self.gauges.edge();
        match &self.turns {
            None => {
                let before = Before::now(look);
                (Phase::Window(early, pieces, edge, look.completed, before), Next::Measure(self.duration))
            }
            Some(_) => (Phase::Lead(early, pieces, edge, look.completed), Next::Go(LEAD)),
        }
    }

    fn after(&mut self, phase: Phase, look: &Look<'_>) -> (Phase, Next) {
        let half = self.warmup / 2;
        match phase {
            Phase::Start => {
                if let Some((_, turns)) = &mut self.turns
                    && !turns.wait()
                {
                    return (Phase::Over(None), Next::Leave);
                }
                self.gauges = Gauges::before_connections(self.server_pid);
                (Phase::Connected, Next::Go(Duration::ZERO))
            }
            Phase::Drain(window) | Phase::Over(window) => (Phase::Over(window), Next::Leave),
            // No connection is left. What the window held so far is not the load that was asked for.
            Phase::Syscalls(window, _) if look.live == 0 => (Phase::Over(Some(window)), Next::Leave),
            _ if look.live == 0 => (Phase::Over(None), Next::Leave),
            Phase::Connected => {
                // Silent connections have their one request behind them before anything is measured.
                let patience = if self.silent { self.timeout } else { Duration::ZERO };
                (Phase::Settle(Instant::now() + patience), Next::Go(half))
            }
            Phase::Settle(until) if look.served < look.live && Instant::now() < until => {
                (Phase::Settle(until), Next::Go(SETTLE_STEP))
            }
            Phase::Settle(_) => {
                self.gauges.find(self.server_pid);
                (Phase::WarmUp(self.gauges.slow(look.answers)), Next::Go(half))
            }
            Phase::WarmUp(early) => self.piece(early, Box::default(), look),
            Phase::Back(early, pieces, owed, until) => {
                if look.answers < owed && Instant::now() < until {
                    return (Phase::Back(early, pieces, owed, until), Next::Go(BACK_STEP));
                }
                self.piece(early, pieces, look)
            }
            Phase::Lead(early, pieces, first, completed_before) => {
                let turn = self.turns.as_ref().map_or(self.duration, |(turn, _)| *turn);
                let left = turn.saturating_sub(LEAD);
                let before = Before::now(look);
                (Phase::Window(early, pieces, first, completed_before, before), Next::Measure(left))
            }
            Phase::Window(early, mut pieces, first, completed_before, before) => {
                // Before the gauges are read: that takes time in which the client receives nothing.
                let Waiting(waiting) = look.waiting;
                let waiting = waiting();
                let last = self.gauges.edge();
                let taken = Taken {
                    since: before.since,
                    before: &before.waits,
                    latencies: look.latencies,
                    waiting: &waiting,
                    depth: self.pipeline,
                };
                pieces.add(&first, &last, look.completed - completed_before, &taken);
                if self.with_memory {
                    pieces.hold(|| self.gauges.memory());
                }
                if let Some((turn, turns)) = &mut self.turns {
                    let is_last = pieces.time() >= self.duration;
                    if !(is_last || turns.pass() && turns.wait()) {
                        return (Phase::Over(None), Next::Leave);
                    }
                    if is_last == pieces.has_rested() {
                        pieces.rest(self.gauges.rest(look.answers, *turn));
                    }
                    if !is_last {
                        let until = Instant::now() + *turn;
                        let owed = look.answers + self.in_flight;
                        return (Phase::Back(early, pieces, owed, until), Next::Go(BACK_STEP));
                    }
                }
                let late = self.gauges.slow(look.answers);
                let mut window = Box::new(self.gauges.window(&pieces, (&early, &late)));
                if !self.syscalls.is_zero() {
                    match self.gauges.count_syscalls(look.answers) {
                        Ok(counting) => return (Phase::Syscalls(window, counting), Next::Go(self.syscalls)),
                        Err(error) => window.syscalls_unknown = Some(error.to_string()),
                    }
                }
                (Phase::Drain(Some(window)), Next::Drain(self.timeout))
            }
            Phase::Syscalls(mut window, counting) => {
                match counting.finish(look.answers) {
                    Ok(calls) => window.syscalls_per_request = Some(calls),
                    Err(error) => window.syscalls_unknown = Some(error.to_string()),
                }
                (Phase::Drain(Some(window)), Next::Drain(self.timeout))
            }
        }
    }
}
