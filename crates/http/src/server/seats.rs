//! Deadlines of a worker's connections, without a timer and without reading the clock for each.
//!
//! Each connection has a seat, which records what the connection waits for and since which second. The
//! connection updates it; once a second the worker's sweep checks every seat and cancels overdue waits. So a
//! deadline is kept to within a second, and costs a request one or two stores.

use crate::message::{ConnectionId, ConnectionInfo};
use crate::transport::TransportCanceller;
use foldhash::fast::RandomState;
use ringroad_wire::Deadlines;
use std::cell::{Cell, Ref, RefCell};
use std::collections::HashMap;
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
    /// Room to send a buffer of a few answers.
    Send,
    /// Room to send the rest of a large answer. Each part is recorded.
    SendMore,
    /// A handler, without a deadline.
    Handler,
    /// The peer's end, after the last answer.
    End,
}

/// Why a connection was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It was not cancelled.
    None,
    /// This wait took too long.
    Overdue(Waits),
    /// The server stops.
    Stopped,
}

struct Seat {
    waits: Waits,
    verdict: Verdict,
    /// The second in which the wait began.
    since: u32,
    /// Bytes of the body received in the present grace period.
    progress: u32,
    /// Bytes of a large answer sent in the present window.
    sent: u32,
    /// Seconds left of the grace period. They pass only while the body is waited for, not while the handler
    /// or the receiver of the answer is. For a connection that ends: seconds until it is closed in any case.
    grace_left: u16,
    /// Seconds left of the window in which a large answer must reach the minimum rate; 0: none has begun.
    window_left: u16,
    /// The client has reset the connection.
    gone: bool,
    /// Generation of the seat.
    visit: u32,
    /// `None` if the seat is free; `since` is then the index of the next free seat. The connection owns what
    /// is cancelled.
    canceller: Option<TransportCanceller>,
}

const _: () = assert!(size_of::<Seat>() <= 48);

/// The seats of a worker.
pub(crate) struct Seats {
    seats: RefCell<Vec<Seat>>,
    free: Cell<u32>,
    /// By index: recorded facts about a connection, and its generation. Empty until something is recorded.
    infos: RefCell<HashMap<u32, (u32, ConnectionInfo), RandomState>>,
    deadlines: RefCell<Deadlines>,
    /// The second of the last sweep.
    swept: Cell<u32>,
}

/// The index that stands for no seat.
const NONE: u32 = u32::MAX;

/// How long the peer may be silent after the last answer before the connection is closed, or up to one second
/// less.
const LINGER: Duration = Duration::from_secs(5);

/// While a server stops, a connection that was idle for this long is closed, or up to one second later. A
/// connection that was busy more recently may have a request on its way.
const QUIET: Duration = Duration::from_secs(1);

impl Seats {
    pub(crate) fn new(deadlines: Deadlines) -> Seats {
        Seats {
            seats: RefCell::new(Vec::new()),
            free: Cell::new(NONE),
            infos: RefCell::default(),
            deadlines: RefCell::new(deadlines),
            swept: Cell::new(0),
        }
    }

    /// Sets the deadlines from now on.
    pub(crate) fn set_deadlines(&self, deadlines: Deadlines) {
        *self.deadlines.borrow_mut() = deadlines;
    }

    /// Returns the deadlines in force.
    pub(crate) fn deadlines(&self) -> Ref<'_, Deadlines> {
        self.deadlines.borrow()
    }

    /// Takes a seat for a new connection.
    pub(crate) fn take(&self, canceller: TransportCanceller, now: u32) -> ConnectionId {
        let mut seats = self.seats.borrow_mut();
        let mut seat = Seat {
            waits: Waits::Request,
            verdict: Verdict::None,
            since: now,
            progress: 0,
            sent: 0,
            grace_left: 0,
            window_left: 0,
            gone: false,
            visit: 0,
            canceller: Some(canceller),
        };
        let index = self.free.get();
        if let Some(free) = seats.get_mut(index as usize) {
            self.free.set(free.since);
            seat.visit = free.visit;
            let visit = seat.visit;
            *free = seat;
            return ConnectionId { index, visit };
        }
        // There are fewer seats than descriptors, and their number is a positive i32.
        seats.push(seat);
        ConnectionId { index: seats.len() as u32 - 1, visit: 0 }
    }

    /// Frees the seat of a connection that has ended.
    pub(crate) fn leave(&self, id: ConnectionId) {
        let canceller = {
            let mut seats = self.seats.borrow_mut();
            let Some(seat) = seats.get_mut(id.index as usize) else { return };
            seat.since = self.free.replace(id.index);
            seat.visit = seat.visit.wrapping_add(1);
            seat.canceller.take()
        };
        drop(canceller);
        if !self.infos.borrow().is_empty() {
            self.infos.borrow_mut().remove(&id.index);
        }
    }

    /// Calls `work` with a seat, if it still has this generation.
    fn with<R>(&self, id: ConnectionId, work: impl FnOnce(&mut Seat) -> R) -> Option<R> {
        let mut seats = self.seats.borrow_mut();
        let seat = seats.get_mut(id.index as usize)?;
        (seat.visit == id.visit && seat.canceller.is_some()).then(|| work(seat))
    }

    /// Records that the client has reset the connection.
    pub(crate) fn set_gone(&self, id: ConnectionId) {
        self.with(id, |seat| seat.gone = true);
    }

    /// Returns whether the client has reset the connection, or the connection has ended.
    pub(crate) fn is_gone(&self, id: ConnectionId) -> bool {
        self.with(id, |seat| seat.gone).unwrap_or(true)
    }

    /// Records sent bytes of a large answer; more are to come.
    pub(crate) fn sent(&self, id: ConnectionId, bytes: usize, now: u32) {
        self.with(id, |seat| {
            seat.since = now;
            seat.sent = seat.sent.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        });
    }

    /// Records the beginning of a large answer.
    pub(crate) fn begin_large(&self, id: ConnectionId) {
        self.with(id, |seat| (seat.window_left, seat.sent) = (0, 0));
    }

    /// Revokes the verdict on a large answer that was too slow: the answer was given up, and the connection
    /// continues.
    pub(crate) fn pardon(&self, id: ConnectionId, now: u32) {
        self.with(id, |seat| {
            (seat.verdict, seat.since, seat.window_left, seat.sent) = (Verdict::None, now, 0, 0);
        });
    }

    /// Records that the last answer is sent: the peer may go on sending for a while, which is read and
    /// discarded.
    pub(crate) fn begin_end(&self, id: ConnectionId, now: u32) {
        let linger = seconds_of(self.deadlines.borrow().linger);
        self.with(id, |seat| {
            (seat.waits, seat.since, seat.grace_left) = (Waits::End, now, linger.saturating_add(1));
        });
    }

    /// Chooses connections to close, because there is no room for more, and returns their cancellers: those
    /// that have had their last answer, and those that have been idle for longest, one in eight and 32 at
    /// most. A connection is left alone if it became idle less than a whole second ago, since a request may
    /// be on its way, or if it ended that recently, since its answer may be.
    pub(crate) fn evict_idle(&self, now: u32) -> Vec<TransportCanceller> {
        let mut seats = self.seats.borrow_mut();
        let linger = seconds_of(self.deadlines.borrow().linger).saturating_add(1);
        let is_idle = |seat: &Seat| {
            let waits = match seat.waits {
                // The second in which it began may have been nearly over, as in `judge`.
                Waits::Request => now.saturating_sub(seat.since) > 1,
                // The client may go on sending; the elapsed part of its time counts.
                Waits::End => seat.grace_left < linger,
                _ => false,
            };
            waits && seat.canceller.is_some() && seat.verdict == Verdict::None
        };
        let mut idle: Vec<(bool, u32, usize)> = seats
            .iter()
            .enumerate()
            .filter(|(_, seat)| is_idle(seat))
            .map(|(at, seat)| (seat.waits != Waits::End, seat.since, at))
            .collect();
        let most = (idle.len() / 8).clamp(1, EVICTED_MAX);
        if idle.len() > most {
            idle.select_nth_unstable(most);
            idle.truncate(most);
        }
        let evicted = idle.into_iter().filter_map(|(_, _, at)| {
            let seat = seats.get_mut(at)?;
            seat.verdict = Verdict::Stopped;
            seat.canceller.clone()
        });
        evicted.collect()
    }

    /// Chooses the connections with peers that have taken nothing for longest, as many as `share` returns,
    /// and returns their cancellers: too many bytes are unsent. `again`: those that were chosen before and
    /// still send are chosen from as well, since a cancel has no effect on a send that has just completed.
    pub(crate) fn cut_slowest(&self, again: bool, share: impl Fn(usize) -> usize) -> Vec<TransportCanceller> {
        let mut seats = self.seats.borrow_mut();
        let sends = |seat: &Seat| {
            seat.canceller.is_some()
                && matches!(seat.waits, Waits::Send | Waits::SendMore)
                && match seat.verdict {
                    Verdict::None => true,
                    Verdict::Overdue(Waits::Send | Waits::SendMore) => again,
                    Verdict::Overdue(_) | Verdict::Stopped => false,
                }
        };
        let mut slow: Vec<(u32, usize)> = seats
            .iter()
            .enumerate()
            .filter(|(_, seat)| sends(seat))
            .map(|(at, seat)| (seat.since, at))
            .collect();
        let most = share(slow.len());
        slow.sort_unstable();
        let cut = slow.into_iter().take(most).filter_map(|(_, at)| {
            let seat = seats.get_mut(at)?;
            seat.verdict = Verdict::Overdue(seat.waits);
            seat.canceller.clone()
        });
        cut.collect()
    }

    /// Records what a connection waits for. A wait for a head continues if it had begun; the time of a body
    /// is counted separately.
    #[inline]
    pub(crate) fn set(&self, id: ConnectionId, waits: Waits, now: u32) {
        if let Some(seat) = self.seats.borrow_mut().get_mut(id.index as usize) {
            if seat.waits != waits || waits != Waits::Head {
                seat.since = now;
            }
            seat.waits = waits;
        }
    }

    /// Records that a request has begun and its body is still to come.
    pub(crate) fn begin_body(&self, id: ConnectionId) {
        if let Some(seat) = self.seats.borrow_mut().get_mut(id.index as usize) {
            // The second in which it begins may be nearly over.
            seat.grace_left = grace(&self.deadlines.borrow()).saturating_add(1);
            seat.progress = 0;
        }
    }

    /// Records received bytes of a body.
    pub(crate) fn progress(&self, id: ConnectionId, bytes: usize) {
        if let Some(seat) = self.seats.borrow_mut().get_mut(id.index as usize) {
            seat.progress = seat.progress.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        }
    }

    /// Returns why a connection was cancelled.
    pub(crate) fn verdict(&self, id: ConnectionId) -> Verdict {
        self.seats.borrow().get(id.index as usize).map_or(Verdict::None, |seat| seat.verdict)
    }

    /// Returns facts about a connection. The system is asked once. `None` if the connection has ended.
    pub(crate) fn info(&self, id: ConnectionId) -> Option<ConnectionInfo> {
        let canceller = self.with(id, |seat| seat.canceller.clone())??;
        if let Some((visit, info)) = self.infos.borrow().get(&id.index)
            && *visit == id.visit
        {
            return Some(info.clone());
        }
        let peer = canceller.peer_addr();
        let info = ConnectionInfo { client: peer, server: None, peer, tls: None };
        self.infos.borrow_mut().insert(id.index, (id.visit, info.clone()));
        Some(info)
    }

    /// Returns the address that the client connected to, from the system. `None` for a Unix socket, and if
    /// the connection has ended.
    pub(crate) fn local(&self, id: ConnectionId) -> Option<std::net::SocketAddr> {
        self.with(id, |seat| seat.canceller.clone())??.local_addr()
    }

    /// Records facts that did not come from the connection itself.
    pub(crate) fn set_info(&self, id: ConnectionId, info: ConnectionInfo) {
        self.infos.borrow_mut().insert(id.index, (id.visit, info));
    }

    /// Cancels what is overdue at `now`.
    pub(crate) fn sweep(&self, now: u32, stopping: bool) {
        let mut overdue = Vec::new();
        let passed = now.saturating_sub(self.swept.replace(now));
        {
            let deadlines = self.deadlines.borrow();
            let mut seats = self.seats.borrow_mut();
            for seat in seats.iter_mut() {
                if seat.canceller.is_some() && pass(seat, now, passed, stopping, &deadlines) != Verdict::None
                {
                    overdue.extend(seat.canceller.clone());
                }
            }
        }
        // Cancelling wakes tasks, which call this module later.
        for canceller in overdue {
            canceller.cancel();
        }
    }
}

fn seconds(now: u32, since: u32) -> Duration {
    Duration::from_secs(now.saturating_sub(since).into())
}

/// Maximum number of connections that are closed at a time to make room.
const EVICTED_MAX: usize = 32;

/// Returns whole seconds, at most about 18 hours.
fn seconds_of(span: Duration) -> u16 {
    u16::try_from(span.as_secs()).unwrap_or(u16::MAX)
}

/// Returns the grace period of a body.
fn grace(deadlines: &Deadlines) -> u16 {
    seconds_of(deadlines.body_grace)
}

/// Returns the window in which a large answer must reach the minimum rate.
fn window(deadlines: &Deadlines) -> u16 {
    seconds_of(deadlines.send_stall).max(1)
}

/// Accounts for the seconds that have passed for the connection of this seat.
fn pass(seat: &mut Seat, now: u32, passed: u32, stopping: bool, deadlines: &Deadlines) -> Verdict {
    let passed = u16::try_from(passed).unwrap_or(u16::MAX);
    match seat.waits {
        Waits::Body | Waits::End => seat.grace_left = seat.grace_left.saturating_sub(passed),
        Waits::SendMore if seat.window_left == 0 => {
            // The second in which it begins may be nearly over.
            (seat.window_left, seat.sent) = (window(deadlines), 0);
        }
        Waits::SendMore => seat.window_left = seat.window_left.saturating_sub(passed),
        _ => {}
    }
    let verdict = judge(seat, now, stopping, deadlines);
    if verdict != Verdict::None {
        seat.verdict = verdict;
    } else if seat.waits == Waits::Body && seat.grace_left == 0 {
        seat.grace_left = grace(deadlines);
        seat.progress = 0;
    }
    verdict
}

fn judge(seat: &Seat, now: u32, stopping: bool, deadlines: &Deadlines) -> Verdict {
    // The second in which it began may have been nearly over. Only whole seconds count, so that no connection
    // is cut early.
    let waited = Duration::from_secs(now.saturating_sub(seat.since).saturating_sub(1).into());
    let overdue = match seat.waits {
        Waits::Request if stopping && waited >= QUIET => return Verdict::Stopped,
        Waits::Request => waited >= deadlines.keep_alive,
        Waits::Head => waited >= deadlines.head,
        Waits::Body => {
            let least = u64::from(deadlines.body_bytes_per_second_min) * u64::from(grace(deadlines));
            seat.grace_left == 0 && u64::from(seat.progress) < least
        }
        Waits::Send => waited >= deadlines.send_stall,
        Waits::SendMore => {
            let least = u64::from(deadlines.send_bytes_per_second_min) * u64::from(window(deadlines));
            waited >= deadlines.send_stall || (seat.window_left == 0 && u64::from(seat.sent) < least)
        }
        // A stopping server has answered on all its connections.
        Waits::End if stopping => waited >= QUIET,
        Waits::End if seat.grace_left == 0 => true,
        // A cancelled connection comes here by a sweep, so with whole seconds it would end one sweep late.
        // One that comes here by itself may be cut up to a second early, which is harmless.
        Waits::End => seconds(now, seat.since) >= LINGER,
        Waits::Handler => false,
    };
    if overdue { Verdict::Overdue(seat.waits) } else { Verdict::None }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::transport::Transport;
    use ringroad_engine::net::{TcpListener, TcpStream};
    use ringroad_engine::{DriverName, Runtime};

    fn seat(waits: Waits, since: u32) -> Seat {
        Seat {
            waits,
            verdict: Verdict::None,
            since,
            progress: 0,
            sent: 0,
            grace_left: 30,
            window_left: 30,
            gone: false,
            visit: 0,
            canceller: None,
        }
    }

    fn verdict(waits: Waits, since: u32, now: u32) -> Verdict {
        judge(&seat(waits, since), now, false, &Deadlines::default())
    }

    /// Returns the number of seconds until the connection is overdue. In each second a body (`true`) or a
    /// handler (`false`) is waited for, and `bytes` arrive.
    fn seconds_of(waiting: impl IntoIterator<Item = bool>, bytes: usize) -> Option<usize> {
        let seats = Seats::new(Deadlines::default());
        seats.seats.borrow_mut().push(seat(Waits::Handler, 0));
        let id = ConnectionId { index: 0, visit: 0 };
        seats.begin_body(id);
        waiting.into_iter().zip(1_u32..).position(|(waits, now)| {
            // The handler gets each piece that arrives; then the next is waited for.
            for waits in [Waits::Handler, Waits::Body] {
                seats.set(id, waits, now - 1);
            }
            seats.progress(id, bytes);
            if !waits {
                seats.set(id, Waits::Handler, now - 1);
            }
            let mut seats = seats.seats.borrow_mut();
            pass(&mut seats[0], now, 1, false, &Deadlines::default()) == Verdict::Overdue(Waits::Body)
        })
    }

    #[test]
    fn a_body_has_its_time_however_its_pieces_come() {
        assert_eq!(seconds_of([true; 100], 1), Some(10));
        assert_eq!(seconds_of([true; 100], 1023 * 10 / 11), Some(10));
        assert_eq!(seconds_of([true; 100], 1024), None);
        // Excess bytes count in their own grace period only.
        assert_eq!(seconds_of([true; 100], 1000), Some(20));
    }

    #[test]
    fn while_a_handler_is_busy_the_time_of_a_body_stands_still() {
        assert_eq!(seconds_of([false; 1000], 0), None);
        assert_eq!(seconds_of([true, false].repeat(50), 1), Some(20));
    }

    #[test]
    fn no_connection_is_cut_short_and_a_deadline_is_kept_to_within_a_second() {
        // It may have begun at the very end of its second.
        assert_eq!(verdict(Waits::Head, 100, 110), Verdict::None);
        assert_eq!(verdict(Waits::Head, 100, 111), Verdict::Overdue(Waits::Head));
    }

    #[test]
    fn only_a_connection_that_was_idle_for_a_whole_second_makes_room() {
        let runtime = Runtime::new(DriverName::Poll).unwrap();
        runtime
            .block_on(async {
                let seats = Seats::new(Deadlines::default());
                let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0).into()).unwrap();
                let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
                seats.take(Transport::from(stream).canceller(), 100);
                // It may have taken its seat at the very end of its second.
                assert_eq!(seats.evict_idle(100).len(), 0);
                assert_eq!(seats.evict_idle(101).len(), 0);
                assert_eq!(seats.evict_idle(102).len(), 1);
            })
            .unwrap();
    }

    /// Its send may have completed as it was cancelled, and the next one begun.
    #[test]
    fn a_connection_that_still_sends_a_second_after_it_was_cut_is_cut_again() {
        let runtime = Runtime::new(DriverName::Poll).unwrap();
        runtime
            .block_on(async {
                let seats = Seats::new(Deadlines::default());
                let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0).into()).unwrap();
                let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
                let id = seats.take(Transport::from(stream).canceller(), 100);
                let cut = |again| seats.cut_slowest(again, |senders| senders).len();
                assert_eq!((cut(false), cut(true)), (0, 0), "it waits for a request");
                for waits in [Waits::Send, Waits::SendMore] {
                    seats.pardon(id, 100);
                    seats.set(id, waits, 100);
                    assert_eq!(cut(false), 1, "{waits:?}");
                    assert_eq!(cut(false), 0, "{waits:?}: its task has not run yet");
                    assert_eq!(cut(true), 1, "{waits:?}");
                }
                seats.set(id, Waits::Request, 101);
                assert_eq!(cut(true), 0, "it has sent all");
            })
            .unwrap();
    }

    #[test]
    fn a_stopping_server_closes_a_connection_after_a_whole_second_without_a_request() {
        let stopping = |now| judge(&seat(Waits::Request, 100), now, true, &Deadlines::default());
        // The answer may have gone out at the very end of second 100.
        assert_eq!(stopping(101), Verdict::None);
        assert_eq!(stopping(102), Verdict::Stopped);
    }

    #[test]
    fn a_connection_that_was_cancelled_is_gone_at_the_sweep_five_seconds_later() {
        assert_eq!(verdict(Waits::End, 111, 115), Verdict::None);
        assert_eq!(verdict(Waits::End, 111, 116), Verdict::Overdue(Waits::End));
    }
}
