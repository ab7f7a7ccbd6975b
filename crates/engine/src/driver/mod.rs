//! Drivers: how operations reach the kernel, and how their results come back.
//!
//! Interpretations of one list of operations ([`crate::op`]): *submit* (io_uring), *wait for readiness, then
//! attempt* (epoll, poll, select), *park a worker* (threads) and *pretend* (sim). A driver never runs user code and
//! never blocks but in [`Driver::wait`]; what happened is returned as data.

pub(crate) mod alarm;
pub(crate) mod epoll;
pub(crate) mod features;
pub(crate) mod poll;
pub(crate) mod readiness;
pub(crate) mod select;
pub(crate) mod sim;
pub(crate) mod threads;
pub(crate) mod uring;

use crate::Error;
use crate::clock::{Clock, Until};
use crate::counters::Counters;
use crate::name::Name;
use crate::op::{Answer, Call, Completion, FileOp, Kind, Op, Outcome, Span, Target, Token};
use crate::pool::{Lease, Pool};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// What a driver is made with.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Submission queue entries (io_uring).
    pub(crate) entries: u32,
    /// Completion queue entries (io_uring); `None`: four times the submission entries.
    pub(crate) completions: Option<u32>,
    /// Receive buffers of the pool: a power of two.
    pub(crate) buffers: u16,
    /// Size of each in bytes, at most [`crate::pool::BUFFER_BYTES_MAX`].
    pub(crate) buffer_bytes: usize,
    /// Worker threads at most (threads).
    pub(crate) workers: u32,
    /// Places at most in a table of the driver's own (io_uring); `None`: [`PLACES`], or what the kernel allows.
    pub(crate) places: Option<u32>,
    pub(crate) features: features::Features,
}

/// Places in a driver's own table, where nobody says how many: 512 KiB of the kernel's.
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

/// What became of a cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cancelled {
    /// The driver has let go of the operation, which had no effect; no completion will come.
    Gone,
    /// Asked for; the last completion tells the true outcome.
    Asked,
}

/// One way of doing I/O.
///
/// What an operation comes to is the same on all; this is what differs.
///
/// | | attempts | news of a standing operation | cancel | limit of its own |
/// |---|---|---|---|---|
/// | io_uring | Unix datagrams only | `Item`, with a lease of the buffer ring | `Asked`, or `Gone` while in line | |
/// | epoll | if the descriptor is ready | `Ready` | `Gone` | |
/// | poll | the same | the same | the same | |
/// | select | the same | the same | the same | numbers below 1024: ERANGE, then EMFILE where an accept is to wait |
/// | threads | if no worker stands there | `Ready`; `Item` for what a cancel finds taken | `Asked`, or `Gone` without a worker | `Settings::workers`: EUSERS |
/// | sim | as the seed says | as the seed says | as the seed says | |
pub(crate) trait Driver {
    fn name(&self) -> Name;

    /// Does what never waits.
    fn call(&mut self, call: Call<'_>) -> io::Result<Answer>;

    /// Whether [`Driver::attempt`] ever answers.
    fn tries(&self) -> bool;

    /// Does the operation now if that takes no waiting and this driver is one that tries; otherwise `None`. What
    /// the operation names is used during the call only.
    fn attempt(&mut self, op: &Op<'_>) -> Option<Outcome>;

    /// [`Driver::attempt`] of a receive into a buffer of the pool: the bytes (none at the end), or a negated errno.
    /// Servers do little else, so a driver may have a shorter way.
    #[inline]
    fn attempt_receive(&mut self, on: Target) -> Option<Result<Lease, i32>> {
        self.attempt(&Op::Receive { on }).map(Outcome::received)
    }

    /// [`Driver::attempt`] of a send, likewise: how many bytes went, or a negated errno.
    #[inline]
    fn attempt_send(&mut self, on: Target, bytes: Span) -> Option<i32> {
        self.attempt(&Op::Send { on, bytes, whole: false }).map(|outcome| outcome.result)
    }

    /// A connection was accepted and is in the table of descriptors.
    fn accepted(&mut self, _: Target) {}

    /// A receive from this descriptor may end before the socket is empty, also in the middle of the stream.
    fn stops_short(&mut self, _: Target) {}

    /// Whether this driver does such an operation on a file; otherwise it is never handed one, and the blocking pool
    /// has it.
    fn takes(&self, _: &FileOp) -> bool {
        false
    }

    /// Takes the operation on. What it names stays in place and untouched until the driver has let go of it:
    /// with [`News::Last`](crate::op::News::Last), for a one-shot operation also with `News::Ready`, or by
    /// [`Cancelled::Gone`]. A descriptor has at most one operation of each direction with the driver (accept and
    /// receive are one, connect and send the other).
    fn submit(&mut self, token: Token, op: &Op<'_>);

    /// Asks for an end of a submitted operation. Needs no free queue entry: it cannot be lost. Asking again, or
    /// for one that has just completed, does nothing.
    fn cancel(&mut self, token: Token, kind: Kind, on: Target) -> Cancelled;

    /// The descriptor lives on, but not with this driver: forgets it. Nothing of it is submitted. What the kernel has
    /// said of it, once and for all, and nobody was told: 0, the end of the stream, or a negated errno.
    fn release(&mut self, _: Target) -> Option<i32> {
        None
    }

    /// Has a table of the driver's own, in which connections have places instead of numbers: how many places. On other
    /// drivers than io_uring there is no such thing.
    fn direct_places(&mut self) -> crate::Result<u32> {
        Err(Error::errno("into_direct", libc::EOPNOTSUPP)
            .by(self.name())
            .hint("only io_uring has a table of its own: use the stream as it is, or the driver io_uring"))
    }

    /// Gives a socket of which nothing is with the driver a place in that table, and closes its number; or gives it back.
    fn make_direct(&mut self, socket: OwnedFd) -> Result<u32, (Error, OwnedFd)> {
        match self.direct_places() {
            Err(why) => Err((why, socket)),
            Ok(places) => unreachable!("a driver with {places} places says how they are taken"),
        }
    }

    /// Hands over what was submitted, waits for news at most as long as told, and appends them to `out`, at most
    /// `crate::COMPLETIONS_PER_TURN` of them. Interrupted or too early is no error: it returns with no news.
    fn wait(&mut self, until: Until, out: &mut Vec<Completion>) -> io::Result<()>;

    /// A descriptor of the same kernel that ends a wait when it is written to (`eventfd(2)`); `None` where no
    /// other thread can.
    fn alarm(&self) -> Option<std::sync::Arc<std::os::fd::OwnedFd>>;

    /// Where leases come from.
    fn pool(&self) -> &Rc<Pool>;

    /// Whether the kernel works on a sent buffer by itself, so that a lease may be left in it; otherwise what has
    /// to wait is taken out of the pool first.
    fn sends_from_pool(&self) -> bool;

    /// Whether a send of so many bytes that never change would now be made from where they lie.
    fn sends_without_copy(&self, _: Target, _bytes: usize) -> bool {
        false
    }

    /// How many sends are over of which the kernel may still read the bytes, in memory that is kept for that alone.
    fn lent(&self) -> usize {
        0
    }

    /// Where time comes from.
    fn clock(&self) -> Clock;

    fn counters(&self) -> Counters;

    /// What this errno means if it is this driver's own word for a limit of its own, and what to do about it.
    fn explain(&self, _: i32) -> Option<String> {
        None
    }

    /// Gives up what could not be ended, without freeing what the kernel may still touch.
    fn abandon(self: Box<Self>);
}
