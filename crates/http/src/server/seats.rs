//! Deadlines of a worker's connections, without a timer and without reading a clock for each.
//!
//! Each connection has a seat: what it waits for, and since which second. A connection writes there as it goes; once
//! a second the worker's sweep looks at every seat and cancels what is overdue. So a deadline is kept to within a
//! second, and costs a request two stores.

use ringroad_engine::net::Canceller;
use ringroad_wire::Deadlines;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::time::Duration;

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waits {
    /// The next request.
    Request,
    /// The rest of a head.
    Head,
    /// More of a body.
    Body,
    /// Room to send.
    Send,
    /// A handler: as long as it likes.
    Handler,
    /// The peer's end, after the last answer.
    End,
}

/// Why a connection was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It was not.
    None,
    /// What it waited for took too long.
    Overdue(Waits),
    /// The server stops.
    Stopped,
}

/// A seat, and whose it was: a seat that was left and taken again is another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SeatId {
    index: u32,
    visit: u32,
}

struct Seat {
    waits: Waits,
    verdict: Verdict,
    /// The second it began to wait in.
    since: u32,
    /// Bytes of the body since then.
    progress: u32,
    /// Which of its visitors this is.
    visit: u32,
    /// `None`: the seat is free, and `since` tells the next free one.
    canceller: Option<Canceller>,
}

const _: () = assert!(size_of::<Seat>() <= 40);

/// The seats of a worker.
pub(crate) struct Seats {
    seats: RefCell<Vec<Seat>>,
    free: std::cell::Cell<u32>,
    /// By seat: the address of a peer somebody has asked for, and at which visit. Empty until somebody asks.
    peers: RefCell<Vec<Option<(u32, SocketAddr)>>>,
    deadlines: Deadlines,
}

/// No seat.
const NONE: u32 = u32::MAX;

/// How long the peer has to end its side after the last answer, or up to a second less.
const LINGER: Duration = Duration::from_secs(5);

/// While a server stops, a connection that was quiet for so long is closed; one that was busy a moment ago may have a
/// request on its way.
const QUIET: Duration = Duration::from_secs(1);

impl Seats {
    pub(crate) fn new(deadlines: Deadlines) -> Seats {
        Seats {
            seats: RefCell::new(Vec::new()),
            free: std::cell::Cell::new(NONE),
            peers: RefCell::new(Vec::new()),
            deadlines,
        }
    }

    /// A seat for a connection that has just come.
    pub(crate) fn take(&self, canceller: Canceller, now: u32) -> SeatId {
        let mut seats = self.seats.borrow_mut();
        let mut seat = Seat {
            waits: Waits::Request,
            verdict: Verdict::None,
            since: now,
            progress: 0,
            visit: 0,
            canceller: Some(canceller),
        };
        let index = self.free.get();
        if let Some(free) = seats.get_mut(index as usize) {
            self.free.set(free.since);
            seat.visit = free.visit;
            let visit = seat.visit;
            *free = seat;
            return SeatId { index, visit };
        }
        // Fewer than descriptors, whose number is a positive i32.
        seats.push(seat);
        SeatId { index: seats.len() as u32 - 1, visit: 0 }
    }

    /// A connection has gone.
    pub(crate) fn leave(&self, id: SeatId) {
        let canceller = {
            let mut seats = self.seats.borrow_mut();
            let Some(seat) = seats.get_mut(id.index as usize) else { return };
            seat.since = self.free.replace(id.index);
            seat.visit = seat.visit.wrapping_add(1);
            seat.canceller.take()
        };
        drop(canceller);
    }

    /// A connection waits for this from now on; for a head or a body it goes on waiting, if it did.
    #[inline]
    pub(crate) fn set(&self, id: SeatId, waits: Waits, now: u32) {
        if let Some(seat) = self.seats.borrow_mut().get_mut(id.index as usize) {
            if seat.waits != waits || !matches!(waits, Waits::Head | Waits::Body) {
                seat.since = now;
                seat.progress = 0;
            }
            seat.waits = waits;
        }
    }

    /// Bytes of a body have come.
    pub(crate) fn progress(&self, id: SeatId, bytes: usize) {
        if let Some(seat) = self.seats.borrow_mut().get_mut(id.index as usize) {
            seat.progress = seat.progress.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        }
    }

    /// Why a connection was cancelled.
    pub(crate) fn verdict(&self, id: SeatId) -> Verdict {
        self.seats.borrow().get(id.index as usize).map_or(Verdict::None, |seat| seat.verdict)
    }

    /// The address of a connection's peer, asked for once: `None` when the connection is gone.
    pub(crate) fn peer(&self, id: SeatId) -> Option<SocketAddr> {
        let index = id.index as usize;
        let seats = self.seats.borrow();
        let canceller = seats.get(index).filter(|seat| seat.visit == id.visit)?.canceller.as_ref()?;
        if let Some(Some((visit, address))) = self.peers.borrow().get(index)
            && *visit == id.visit
        {
            return Some(*address);
        }
        let address = canceller.peer_addr().ok()?;
        let mut peers = self.peers.borrow_mut();
        if peers.len() <= index {
            peers.resize(index + 1, None);
        }
        if let Some(peer) = peers.get_mut(index) {
            *peer = Some((id.visit, address));
        }
        Some(address)
    }

    /// Cancels what is overdue at `now`.
    pub(crate) fn sweep(&self, now: u32, stopping: bool) {
        let mut overdue = Vec::new();
        {
            let mut seats = self.seats.borrow_mut();
            for seat in seats.iter_mut() {
                let Some(canceller) = &seat.canceller else { continue };
                let verdict = judge(seat, now, stopping, &self.deadlines);
                if verdict != Verdict::None {
                    seat.verdict = verdict;
                    overdue.push(canceller.clone());
                } else if seat.waits == Waits::Body && seconds(now, seat.since) >= self.deadlines.body_grace {
                    seat.since = now;
                    seat.progress = 0;
                }
            }
        }
        // Cancelling wakes tasks, which come back here later.
        for canceller in overdue {
            canceller.cancel();
        }
    }
}

fn seconds(now: u32, since: u32) -> Duration {
    Duration::from_secs(now.saturating_sub(since).into())
}

fn judge(seat: &Seat, now: u32, stopping: bool, deadlines: &Deadlines) -> Verdict {
    // The second it began in may have been nearly over: only whole ones count, so nobody is cut short.
    let waited = Duration::from_secs(now.saturating_sub(seat.since).saturating_sub(1).into());
    let overdue = match seat.waits {
        Waits::Request if stopping && seconds(now, seat.since) >= QUIET => return Verdict::Stopped,
        Waits::Request => waited >= deadlines.keep_alive,
        Waits::Head => waited >= deadlines.head,
        Waits::Body => {
            let least = u64::from(deadlines.body_bytes_per_second_min) * deadlines.body_grace.as_secs();
            seconds(now, seat.since) >= deadlines.body_grace && u64::from(seat.progress) < least
        }
        Waits::Send => waited >= deadlines.send_stall,
        // Whoever stops has said its last words to everybody.
        Waits::End if stopping => waited >= QUIET,
        // Whoever is turned out waits for this as well: it begins with a sweep, so with whole seconds it would end a sweep
        // late. Who comes to it by itself may be cut short by what is left of a second, which harms nobody.
        Waits::End => seconds(now, seat.since) >= LINGER,
        Waits::Handler => false,
    };
    if overdue { Verdict::Overdue(seat.waits) } else { Verdict::None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(waits: Waits, since: u32, now: u32) -> Verdict {
        let seat = Seat { waits, verdict: Verdict::None, since, progress: 0, visit: 0, canceller: None };
        judge(&seat, now, false, &Deadlines::default())
    }

    #[test]
    fn nobody_is_cut_short_and_a_deadline_is_kept_to_within_a_second() {
        // It may have begun at the very end of its second.
        assert_eq!(verdict(Waits::Head, 100, 110), Verdict::None);
        assert_eq!(verdict(Waits::Head, 100, 111), Verdict::Overdue(Waits::Head));
    }

    #[test]
    fn who_was_turned_out_is_gone_at_the_sweep_five_seconds_later() {
        assert_eq!(verdict(Waits::End, 111, 115), Verdict::None);
        assert_eq!(verdict(Waits::End, 111, 116), Verdict::Overdue(Waits::End));
    }
}
