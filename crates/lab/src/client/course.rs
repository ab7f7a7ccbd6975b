//! The course of a load, whoever puts it on: what follows what, and which clocks are read in between.
//!
//! *Settle* and *warm-up* (discarded), the *window*, *system calls* (load still on), *drain* (nothing new is sent, all that
//! is owed is awaited, so that client and server have counted the same). A client shows what it has come to ([`Look`]) and
//! does what is [`Next`]; while it is looked at it does nothing, so that counts and clocks are of one moment. It has nothing
//! to do with sockets. Start at [`Course::next`].

use super::Options;
use super::window::{Edge, Gauges, Slow, SyscallWindow, Window};
use ringroad_measure::Histogram;
use std::time::{Duration, Instant};

/// How often it is looked whether every connection has been served, before the warm-up.
const SETTLE_STEP: Duration = Duration::from_millis(10);

/// What a client has come to.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    /// Connections that are there.
    pub live: u32,
    /// Connections that have got a whole answer.
    pub served: u32,
    /// Whole answers, wrong ones included.
    pub answers: u64,
    /// Whole answers that were right.
    pub completed: u64,
    /// Latencies since the measuring began.
    pub latencies: &'a Histogram,
}

/// What the client does until it is looked at again: when the time is over, or when nobody is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It goes on.
    Go(Duration),
    /// It forgets the latencies so far, and goes on.
    Measure(Duration),
    /// It sends nothing more, and is looked at as soon as all is answered. What is not by then is missing.
    Drain(Duration),
    /// It leaves.
    Leave,
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
    Window(Slow, Edge, u64),
    Syscalls(Box<Window>, SyscallWindow),
    Drain(Option<Box<Window>>),
    Over(Option<Box<Window>>),
}

impl Course {
    /// The course these options ask for, which have been [checked](Options::check).
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
            gauges: Gauges::default(),
            phase: Phase::Start,
        }
    }

    /// What comes next. First asked before anything is connected, then when all connections are there or cannot be had and
    /// nothing is sent yet, and then whenever what it said before is over.
    pub fn next(&mut self, look: &Look<'_>) -> Next {
        let phase = std::mem::replace(&mut self.phase, Phase::Over(None));
        let (phase, next) = self.after(phase, look);
        self.phase = phase;
        next
    }

    /// What was measured; `None` if the load ended before its window did.
    pub fn into_window(self) -> Option<Window> {
        match self.phase {
            Phase::Over(window) | Phase::Drain(window) => window.map(|window| *window),
            Phase::Syscalls(window, _) => Some(*window),
            _ => None,
        }
    }

    fn after(&mut self, phase: Phase, look: &Look<'_>) -> (Phase, Next) {
        let half = self.warmup / 2;
        match phase {
            Phase::Start => {
                self.gauges = Gauges::before_connections(self.server_pid);
                (Phase::Connected, Next::Go(Duration::ZERO))
            }
            Phase::Drain(window) | Phase::Over(window) => (Phase::Over(window), Next::Leave),
            // Nobody is left to load. What the window held so far is not the load that was asked for.
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
            Phase::WarmUp(early) => {
                (Phase::Window(early, self.gauges.edge(), look.completed), Next::Measure(self.duration))
            }
            Phase::Window(early, first, completed_before) => {
                let last = self.gauges.edge();
                let completed = look.completed - completed_before;
                let late = self.gauges.slow(look.answers);
                let mut window = Box::new(self.gauges.window(
                    (&first, &last),
                    (&early, &late),
                    completed,
                    look.latencies,
                    self.with_memory,
                ));
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
