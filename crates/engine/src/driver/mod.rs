//! Drivers: how operations reach the kernel, and how their results come back.
//!
//! Each driver interprets the same list of operations ([`crate::op`]) in its own way: *submit* (io_uring),
//! *wait for readiness, then attempt* (epoll, poll, select), *park a worker thread* (threads) or *simulate*
//! (sim). A driver never runs user code and blocks only in [`Driver::wait`]. It returns what happened as
//! data.

pub(crate) mod alarm;
pub(crate) mod epoll;
pub(crate) mod features;
pub(crate) mod poll;
pub(crate) mod readiness;
pub(crate) mod select;
#[cfg(feature = "sim")]
pub(crate) mod sim;
pub(crate) mod threads;
pub(crate) mod uring;

use crate::Error;
use crate::clock::{Clock, Until};
use crate::counters::Counters;
use crate::name::DriverName;
use crate::op::{Answer, Call, Completion, FileOp, Kind, Op, Outcome, Span, Target, Token};
use crate::pool::{Lease, Pool};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

/// Settings of a driver.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Submission queue entries (io_uring).
    pub(crate) entries: u32,
    /// Completion queue entries (io_uring); `None`: four times the submission entries.
    pub(crate) completions: Option<u32>,
    /// Receive buffers of the pool: a power of two.
    pub(crate) buffers: u16,
    /// Size of a receive buffer in bytes, at most [`crate::pool::BUFFER_BYTES_MAX`].
    pub(crate) buffer_bytes: usize,
    /// Maximum number of worker threads (threads).
    pub(crate) workers: u32,
    /// Maximum number of places in the table of direct connections (io_uring); `None`: [`PLACES`], or what
    /// the kernel allows.
    pub(crate) places: Option<u32>,
    pub(crate) features: features::Features,
}

/// Default number of places in the table of direct connections: 512 KiB of kernel memory.
pub(crate) const PLACES: u32 = 1 << 16;

impl Default for Settings {
    fn default() -> Settings {
        // 512 KiB of buffers, as many as the hand-written models post.
        Settings {
            entries: 1024,
            completions: None,
            buffers: 128,
            buffer_bytes: 4096,
            workers: 4096,
            places: None,
            features: features::Features::default(),
        }
    }
}

/// Result of a cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cancelled {
    /// The driver has let go of the operation, which had no effect; no completion will come.
    Gone,
    /// Requested; the last completion has the true outcome.
    Asked,
}

/// One way of doing I/O.
///
/// Results are the same on every driver. These differ:
///
/// | | attempts | standing operation | cancel | limit |
/// |---|---|---|---|---|
/// | io_uring | bulk only (1) | `Item`, with a lease | `Asked`; in line `Gone` | none |
/// | epoll, poll | a ready descriptor | `Ready` | `Gone` | none |
/// | select | a ready descriptor | `Ready` | `Gone` | numbers below 1024 (2) |
/// | threads | without a worker | `Ready` (3) | `Asked`; without a worker `Gone` | `workers`: EUSERS |
/// | sim | seed | seed | seed | none |
///
/// 1. Receives and sends in bulk, files that are sent, and Unix datagrams.
/// 2. A higher number is ERANGE once. From then on an accept waits, as for EMFILE.
/// 3. `Item` for what the worker had received when it was cancelled.
pub(crate) trait Driver {
    fn name(&self) -> DriverName;

    /// Does a call that never waits.
    fn call(&mut self, call: Call<'_>) -> io::Result<Answer>;

    /// Returns whether [`Driver::attempt`] can return a result for sends and receives.
    fn tries(&self) -> bool;

    /// Attempts the operation now, if this driver attempts operations of its kind and it does not have to
    /// wait; otherwise `None`. What the operation names is used during the call only.
    fn attempt(&mut self, op: &Op<'_>) -> Option<Outcome>;

    /// [`Driver::attempt`] of a receive into a buffer of the pool, a large one if `bulk`: the bytes (none at
    /// the end), or a negated errno. Servers do this most often, so a driver may override it with a faster
    /// path.
    #[inline]
    fn attempt_receive(&mut self, on: Target, bulk: bool) -> Option<Result<Lease, i32>> {
        let op = if bulk { Op::ReceiveBulk { on } } else { Op::Receive { on } };
        self.attempt(&op).map(Outcome::received)
    }

    /// Returns whether a receive attempted now would wait, as the last one has shown. False where this driver
    /// does not know.
    #[inline]
    fn is_drained(&self, _: Target) -> bool {
        false
    }

    /// Returns whether this submitted receive has, or may have, a result that [`Driver::wait`] has not
    /// returned yet: bytes that have left the socket, its end, or an error.
    fn withholds(&mut self, _: Token, _: Target) -> bool {
        false
    }

    /// [`Driver::attempt`] of a send: the number of bytes sent, or a negated errno.
    #[inline]
    fn attempt_send(&mut self, on: Target, bytes: Span) -> Option<i32> {
        self.attempt(&Op::Send { on, bytes, whole: false }).map(|outcome| outcome.result)
    }

    /// Notes that a connection was accepted and is in the table of descriptors.
    fn accepted(&mut self, _: Target) {}

    /// Notes that a receive from this descriptor may end before the socket is empty, also in the middle of
    /// the stream.
    fn stops_short(&mut self, _: Target) {}

    /// Returns whether this driver does such an operation on a file. Otherwise the blocking pool does it.
    fn takes(&self, _: &FileOp) -> bool {
        false
    }

    /// Takes the operation on. What it names stays in place and untouched until the driver has let go of it:
    /// with [`News::Last`](crate::op::News::Last), for a one-shot operation also with `News::Ready`, or by
    /// [`Cancelled::Gone`]. A descriptor has at most one operation of each direction with the driver (accept
    /// and receive are one, connect and send the other).
    fn submit(&mut self, token: Token, op: &Op<'_>);

    /// Requests the cancellation of a submitted operation. Needs no free queue entry, so the request cannot
    /// be lost. Has no effect if it is repeated or the operation has just completed.
    fn cancel(&mut self, token: Token, kind: Kind, on: Target) -> Cancelled;

    /// Forgets a descriptor that stays open but leaves this driver. None of its operations is submitted.
    /// Returns the final result that the kernel has reported and no receive has returned yet: 0 (the end of
    /// the stream), or a negated errno.
    fn release(&mut self, _: Target) -> Option<i32> {
        None
    }

    /// Creates the table of direct connections if there is none yet; returns its number of places. Only
    /// io_uring has one.
    fn direct_places(&mut self) -> crate::Result<u32> {
        Err(Error::errno("into_direct", libc::EOPNOTSUPP)
            .by(self.name())
            .hint("only io_uring has direct connections: use the stream as it is, or the driver io_uring"))
    }

    /// Moves a socket into that table and closes its descriptor; on an error returns the socket. The driver
    /// has none of its operations.
    fn make_direct(&mut self, socket: OwnedFd) -> Result<u32, (Error, OwnedFd)> {
        match self.direct_places() {
            Err(why) => Err((why, socket)),
            Ok(places) => unreachable!("a driver with {places} places overrides make_direct"),
        }
    }

    /// Hands submitted operations to the kernel, waits for news at most until `until`, and appends at most
    /// `crate::COMPLETIONS_PER_TURN` completions to `out`. A signal, or a wake-up that is too early, is no
    /// error: the call returns without news.
    fn wait(&mut self, until: Until, out: &mut Vec<Completion>) -> io::Result<()>;

    /// Returns the eventfd that ends a wait when it is written to (`eventfd(2)`); `None` if no other thread
    /// can end a wait.
    fn alarm(&self) -> Option<std::sync::Arc<std::os::fd::OwnedFd>>;

    /// Returns the pool of receive buffers.
    fn pool(&self) -> &Rc<Pool>;

    /// Returns whether the kernel reads a sent buffer while the task waits, so that the bytes may stay in a
    /// lease. Otherwise a send that has to wait copies its bytes out of the pool first.
    fn sends_from_pool(&self) -> bool;

    /// Returns whether a send of so many immutable bytes would now be zero-copy.
    fn sends_without_copy(&self, _: Target, _bytes: usize) -> bool {
        false
    }

    /// Number of completed sends with memory that the kernel may still read and that the driver keeps for
    /// that reason alone.
    fn lent(&self) -> usize {
        0
    }

    /// Returns the clock that this driver's timers follow.
    fn clock(&self) -> Clock;

    fn counters(&self) -> Counters;

    /// Explains an errno that reports a limit of this driver, with what to do about it.
    fn explain(&self, _: i32) -> Option<String> {
        None
    }

    /// Drops the driver without freeing what the kernel may still touch. Waits at most `patience` for
    /// operations in flight to end.
    fn abandon(self: Box<Self>, patience: Duration);
}
