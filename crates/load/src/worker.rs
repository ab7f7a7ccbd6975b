//! One thread of the load: a runtime, its connections, its share of the schedule, and what it has counted.
//!
//! Connections are tasks (`connection.rs`); what they share is a [`Worker`]. Nothing is allocated per request: a
//! request is a reference to prepared bytes, its times are two numbers in its task, its latency a count in a
//! histogram. Once a second the histograms are handed on and new ones begun, so a run of a year needs no more than
//! one of a minute. What it is told to do, and does, is in `orders.rs`; what others know of a
//! connection in `seat.rs`; who gets how much in `shares.rs`. Start at [`Worker`].

mod orders;
mod seat;
mod shares;

pub(crate) use orders::{Done, News, Order, Orders, TICK, Task, connect, run, runtime};
pub(crate) use seat::{
    ALIVE, ASKED, EXPIRED, GIVEN_UP, LOST, NEVER, OPEN, PARKED, SERVED, SILENT, Seat, TRIED,
};
pub(crate) use shares::share;

use crate::answer::Seen;
use crate::error::Error;
use crate::hold::Hold;
use crate::plan::{Pace, Plan};
use crate::schedule::Schedule;
use crate::tally::{Counts, Tally};
use crate::tls::Handshakes;
use ringroad_engine::AnyBuf;
use ringroad_engine::sync::Semaphore;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a worker's connections share.
pub(crate) struct Worker {
    pub(crate) plan: Arc<Plan>,
    addresses: Arc<[SocketAddr]>,
    /// The one of the addresses that is used: the first that took a connection.
    address: Cell<usize>,
    /// How many may be on their way to a place at a time, if connections have places.
    pub(crate) on_their_way: Option<Semaphore>,
    /// Sources that were used, counted on.
    sourced: Cell<usize>,
    epoch: Instant,
    pub(crate) seats: Box<[Seat]>,
    /// For each message, so many of it behind each other: for 1, 2, … requests in one send.
    batches: Vec<Vec<Rc<[u8]>>>,
    /// Which message comes next, by weight.
    wheel: Vec<u16>,
    turned: Cell<usize>,
    /// Which connection's heartbeat comes next, where connections are held.
    beats: Cell<usize>,
    pub(crate) seen: RefCell<Seen>,
    schedule: RefCell<Option<Schedule>>,
    /// Free connections, in the order they became so.
    parked: RefCell<VecDeque<u32>>,
    /// Times of the epoch.
    begin_ns: Cell<u64>,
    window_ns: Cell<u64>,
    pub(crate) end_ns: Cell<u64>,
    /// Whether no order comes after this one.
    last: Cell<bool>,
    /// Whether one of the addresses has taken a connection.
    pub(crate) reached: Cell<bool>,
    /// Connections that may send: those before this number (closed loop).
    active: Cell<u32>,
    /// Requests that may still be sent (closed loop).
    budget: Cell<u64>,
    pub(crate) in_flight: Cell<u64>,
    pub(crate) connecting: Cell<u32>,
    pub(crate) connected: Cell<u32>,
    last_ns: Cell<u64>,
    pub(crate) counts: RefCell<Counts>,
    pub(crate) tally: RefCell<Box<Tally>>,
    /// Idle connections that are open.
    pub(crate) idle_open: Cell<u32>,
    /// Where there is TLS: what its handshakes were.
    pub(crate) handshakes: RefCell<Option<Box<Handshakes>>>,
    trouble: RefCell<Option<Error>>,
}

impl Worker {
    pub(crate) fn new(task: &Task) -> Worker {
        let plan = &task.plan;
        let open = plan.pace.is_timed();
        let seats = share(u64::from(plan.connections), task.index, plan.threads);
        let silent = share(u64::from(plan.silent), task.index, plan.threads);
        let seat = |number| {
            let flags = if shares::is_silent(number, silent, seats) { SILENT } else { 0 };
            Seat { since: Cell::new(NEVER), flags: Cell::new(flags), ..Seat::default() }
        };
        let batches = plan.messages.iter().map(|message| {
            // Only what comes in batches is laid out in them: a large message is not pipelined by the hundred.
            (1..=plan.pipeline as usize).map(|count| message.bytes.repeat(count).into()).collect()
        });
        Worker {
            addresses: Arc::clone(&task.addresses),
            address: Cell::new(0),
            on_their_way: plan.direct.map(|direct| Semaphore::new(direct.connecting as usize)),
            // Workers begin at different ones.
            sourced: Cell::new(task.index as usize),
            epoch: task.epoch,
            seats: (0..seats).map(seat).collect(),
            batches: batches.collect(),
            wheel: shares::wheel(&plan.messages.iter().map(|message| message.weight).collect::<Vec<_>>()),
            turned: Cell::new(0),
            beats: Cell::new(0),
            seen: RefCell::new(Seen::new(&plan.messages)),
            schedule: RefCell::new(None),
            parked: RefCell::new(VecDeque::new()),
            begin_ns: Cell::new(NEVER),
            window_ns: Cell::new(NEVER),
            end_ns: Cell::new(NEVER),
            last: Cell::new(false),
            reached: Cell::new(false),
            active: Cell::new(u32::MAX),
            budget: Cell::new(plan.count.map_or(u64::MAX, |count| share(count, task.index, plan.threads))),
            in_flight: Cell::new(0),
            connecting: Cell::new(0),
            connected: Cell::new(0),
            last_ns: Cell::new(0),
            counts: RefCell::new(Counts::default()),
            tally: RefCell::new(Box::new(Tally::new(open))),
            idle_open: Cell::new(0),
            handshakes: RefCell::default(),
            trouble: RefCell::new(None),
            plan: Arc::clone(plan),
        }
    }

    /// Nanoseconds since the epoch.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    /// Requests are due at times of their own.
    pub(crate) fn is_open_loop(&self) -> bool {
        self.plan.pace.is_timed()
    }

    /// How connections are held, if they are.
    pub(crate) fn hold(&self) -> Option<Hold> {
        match self.plan.pace {
            Pace::Hold(hold) => Some(hold),
            Pace::Closed | Pace::Open { .. } => None,
        }
    }

    /// Whether load may be put on.
    pub(crate) fn has_begun(&self) -> bool {
        self.begin_ns.get() != NEVER
    }

    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.addresses.get(self.address.get()).copied()
    }

    /// Tries the next address of the name, unless this one has proved good. False: there is none.
    pub(crate) fn another_address(&self, failed: Option<SocketAddr>) -> bool {
        if self.reached.get() {
            return false;
        }
        if failed == self.address() {
            self.address.set(self.address.get() + 1);
        }
        if self.address().is_none() {
            self.address.set(0);
            return false;
        }
        true
    }

    /// Where the next connection to this address comes from, the port left open; `None`: as the system has it.
    ///
    /// # Errors
    /// There are sources, and none of them can reach such an address.
    pub(crate) fn source(&self, address: SocketAddr) -> Result<Option<SocketAddr>, &'static str> {
        let sources = &self.plan.sources;
        if sources.is_empty() {
            return Ok(None);
        }
        let first = self.sourced.get();
        self.sourced.set(first.wrapping_add(1));
        let found = sources
            .iter()
            .cycle()
            .skip(first % sources.len())
            .take(sources.len())
            .find(|source| source.is_ipv4() == address.is_ipv4());
        found
            .map(|source| Some(SocketAddr::new(*source, 0)))
            .ok_or("connect: no source address of the target's version of IP")
    }

    /// The bytes of `count` requests of this message.
    #[inline]
    pub(crate) fn batch(&self, message: u16, count: u32) -> AnyBuf {
        let batch = self.batches.get(usize::from(message)).and_then(|all| all.get(count as usize - 1));
        AnyBuf::from(batch.map_or_else(|| Rc::from([]), Rc::clone))
    }

    /// Which message comes next.
    #[inline]
    pub(crate) fn turn(&self) -> u16 {
        let at = self.turned.get();
        self.turned.set(if at + 1 >= self.wheel.len() { 0 } else { at + 1 });
        self.wheel.get(at).copied().unwrap_or(0)
    }

    /// Begins a load that has no end of its own and is all of one kind, and tells everybody.
    pub(crate) fn begin(&self, now: u64) {
        self.begin_ns.set(now);
        self.window_ns.set(now);
        self.end_ns.set(NEVER - 1);
        self.last.set(true);
        self.seats.iter().for_each(Seat::wake);
    }

    /// Whether load may be put on by this connection.
    #[inline]
    pub(crate) fn is_active(&self, number: u32) -> bool {
        self.has_begun() && number < self.active.get()
    }

    /// Connections that have got an answer.
    pub(crate) fn served(&self) -> u32 {
        self.seats.iter().filter(|seat| seat.has(SERVED)).count() as u32
    }

    /// Sets how many connections send, as the stages of the plan have it.
    fn set_active(&self, task: &Task, now: u64) {
        let Some(stages) = self.plan.stages.as_ref().filter(|_| !self.is_open_loop()) else { return };
        let seconds = now.saturating_sub(self.window_ns.get()) as f64 / 1e9;
        let level = stages.level_at(seconds).round() as u64;
        let (before, active) = (self.active.get(), share(level, task.index, self.plan.threads) as u32);
        self.active.set(active);
        // Those that have become active; fewer needs no telling.
        for seat in self.seats.iter().take(active as usize).skip(before as usize) {
            seat.wake();
        }
    }

    /// How many of at most `room` requests connection `number` may send now in closed loop.
    #[inline]
    pub(crate) fn grant(&self, number: u32, room: u32, now: u64) -> u32 {
        if !self.is_active(number) || now >= self.end_ns.get() {
            return 0;
        }
        let granted = u64::from(room).min(self.budget.get());
        self.budget.set(self.budget.get() - granted);
        granted as u32
    }

    /// Room for requests on a connection that has so many on their way (closed loop).
    #[inline]
    pub(crate) fn room(&self, seat: &Seat, in_flight: u32) -> u32 {
        if seat.has(SILENT) {
            return u32::from(in_flight == 0 && !seat.has(ALIVE));
        }
        self.plan.pipeline.saturating_sub(in_flight)
    }

    /// The next arrival, if it is due: when it was meant to be sent, of the epoch.
    #[inline]
    pub(crate) fn arrival(&self, now: u64) -> Option<u64> {
        let mut schedule = self.schedule.borrow_mut();
        let schedule = schedule.as_mut()?;
        let due = schedule.peek()?.saturating_add(self.begin_ns.get());
        (due <= now).then(|| {
            schedule.take();
            due
        })
    }

    /// This connection is free.
    pub(crate) fn park(&self, seat: u32) {
        if let Some(place) = self.seats.get(seat as usize)
            && !place.has(PARKED)
        {
            place.set(PARKED);
            self.parked.borrow_mut().push_back(seat);
        }
    }

    /// Gives what is due to connections that are free. Whether the next arrival is due soon, and nobody else will tell: what is
    /// due already waits for a connection, and the first that is free finds it.
    fn dispatch(&self, now: u64, lead: Duration) -> bool {
        if self.hold().is_some() {
            self.beat(now);
        } else {
            self.hand_out(now);
        }
        // By the same reading of the clock, or one could become due between two.
        let next = self.schedule.borrow().as_ref().and_then(Schedule::peek);
        let next = next.map(|due| due.saturating_add(self.begin_ns.get()));
        next.is_some_and(|due| due > now && due - now <= lead.as_nanos() as u64)
    }

    fn hand_out(&self, now: u64) {
        loop {
            let free = self.parked.borrow_mut().pop_front();
            let Some(number) = free else { return };
            let Some(seat) = self.seats.get(number as usize) else { continue };
            // It may have lost its connection meanwhile; then this entry is stale.
            if !seat.unset(PARKED) {
                continue;
            }
            match self.arrival(now) {
                Some(due) => {
                    seat.assigned.set(Some(due));
                    seat.wake();
                }
                None => {
                    seat.set(PARKED);
                    self.parked.borrow_mut().push_front(number);
                    return;
                }
            }
        }
    }

    /// Gives each heartbeat that is due to its connection. One that is away or waits has missed it.
    fn beat(&self, now: u64) {
        while let Some(due) = self.arrival(now) {
            let number = self.beats.get();
            self.beats.set((number + 1) % self.seats.len().max(1));
            let Some(seat) = self.seats.get(number) else { return };
            let mut counts = self.counts.borrow_mut();
            counts.held.due += 1;
            if !seat.has(OPEN) {
                counts.held.away += 1;
            } else if seat.since.get() != NEVER || seat.assigned.get().is_some() {
                counts.held.busy += 1;
            } else {
                seat.assigned.set(Some(due));
                seat.wake();
            }
        }
    }

    /// A connection that was open has ended.
    pub(crate) fn lost(&self, seat: &Seat) {
        // What it was to send and has not begun to.
        let unsent = u64::from(seat.assigned.take().is_some());
        if self.now() < self.end_ns.get() {
            seat.set(LOST);
            self.counts.borrow_mut().held.lost += 1;
        }
        self.counts.borrow_mut().held.away += unsent;
    }

    /// A connection is given up.
    pub(crate) fn abandon(&self, seat: &Seat) {
        seat.set(GIVEN_UP);
        let after = self.now().saturating_sub(self.begin_ns.get());
        let held = &mut self.counts.borrow_mut().held;
        held.gave_up += 1;
        held.unavailable_after_ns.get_or_insert(after);
    }

    /// Counts requests that were handed to the kernel.
    #[inline]
    pub(crate) fn sent(&self, count: u32) {
        self.counts.borrow_mut().sent += u64::from(count);
        self.in_flight.set(self.in_flight.get() + u64::from(count));
    }

    /// Counts a good answer that came `now` to what was due at `due` and sent at `sent`, `late` of that through our own
    /// fault.
    #[inline]
    pub(crate) fn completed(&self, now: u64, due: u64, sent: u64, late: u64) {
        self.last_ns.set(now);
        let (window, end) = (self.window_ns.get(), self.end_ns.get());
        let answered = now >= window && now < end;
        self.tally.borrow_mut().completed += u64::from(answered);
        self.waited(now, due, sent, late, answered);
    }

    /// Records how long something was waited for that was due at `due` and sent at `sent`; in closed loop if it was
    /// `answered` within the window. In open loop also of what was waited for until the timeout: it would have taken as long
    /// at least, and left out it would flatter.
    #[inline]
    pub(crate) fn waited(&self, now: u64, due: u64, sent: u64, late: u64, answered: bool) {
        let window = self.window_ns.get();
        let mut tally = self.tally.borrow_mut();
        let latencies = &mut tally.latencies;
        if let (Some(service), Some(lag), Some(own)) =
            (&mut latencies.service, &mut latencies.lag, &mut latencies.late)
        {
            // By when it was due: an answer that comes after the end belongs to the load all the same.
            if due >= window {
                latencies.response.record(now - due);
                service.record(now - sent);
                lag.record(sent - due);
                own.record(late);
            }
        } else if answered {
            latencies.response.record(now - due);
        }
    }

    /// An idle connection has ended; `said`: with bytes that nobody had asked for.
    #[cold]
    pub(crate) fn idle_ended(&self, said: bool) {
        self.idle_open.set(self.idle_open.get() - 1);
        self.counts.borrow_mut().idle_lost += 1;
        if said {
            self.failed(Kind::Protocol, 1, "bytes on a connection that asked for nothing");
        }
    }

    /// Counts `count` failures of one kind.
    #[cold]
    pub(crate) fn failed(&self, kind: Kind, count: u64, what: &str) {
        if count == 0 {
            return;
        }
        let now = self.now();
        let mut counts = self.counts.borrow_mut();
        let errors = &mut counts.errors;
        *match kind {
            Kind::Connect => &mut errors.connect,
            Kind::Reset => &mut errors.reset,
            Kind::Timeout => &mut errors.timeout,
            Kind::Status => &mut errors.status,
            Kind::Protocol => &mut errors.protocol,
        } += count;
        counts.name(what, count);
        if now >= self.window_ns.get() && now < self.end_ns.get() {
            self.tally.borrow_mut().failed += count;
        }
    }

    /// Whether the next request is due only later: then nothing that is sent is no silence.
    pub(crate) fn nothing_is_due(&self, now: u64) -> bool {
        let next = self.schedule.borrow().as_ref().and_then(Schedule::peek);
        next.is_some_and(|due| due.saturating_add(self.begin_ns.get()) > now)
    }

    /// Wakes whoever waits too long for an answer or a connection.
    pub(crate) fn sweep(&self, now: u64) {
        let limit = self.plan.timeout.as_nanos() as u64;
        for seat in &self.seats {
            let since = seat.since.get();
            if since != NEVER && now.saturating_sub(since) >= limit {
                seat.set(EXPIRED);
                seat.wake();
            }
        }
    }

    /// Nothing more is going to be sent.
    fn is_exhausted(&self, now: u64) -> bool {
        match &*self.schedule.borrow() {
            Some(schedule) => {
                schedule.peek().is_none() && self.seats.iter().all(|s| s.assigned.get().is_none())
                    || self.seats.iter().all(|seat| seat.has(GIVEN_UP))
            }
            None => now >= self.end_ns.get() || self.budget.get() == 0,
        }
    }

    /// Whether this connection will never have to send again.
    pub(crate) fn has_nothing_left(&self, seat: &Seat) -> bool {
        self.last.get()
            && self.has_begun()
            && match &*self.schedule.borrow() {
                Some(schedule) => schedule.peek().is_none() && seat.assigned.get().is_none(),
                None => self.budget.get() == 0 || self.now() >= self.end_ns.get(),
            }
    }

    /// Gives up what was due by now and has not left. In a probe it counts with the time it has waited so far: leaving it
    /// out would flatter.
    fn give_up(&self, now: u64, is_probe: bool) {
        if self.hold().is_some() {
            // A heartbeat that had not begun when the holding ended was not due in it.
            let given = self.seats.iter().filter(|seat| seat.assigned.take().is_some()).count() as u64;
            self.counts.borrow_mut().held.due -= given;
            self.schedule.take();
            return;
        }
        let mut unsent = 0;
        let mut note = |due: u64| {
            unsent += 1;
            if is_probe && due >= self.window_ns.get() {
                self.tally.borrow_mut().latencies.response.record(now - due);
            }
        };
        for (number, seat) in (0..).zip(&self.seats) {
            if let Some(due) = seat.assigned.take() {
                note(due);
                // It was free and is again, without having noticed.
                if seat.has(OPEN) {
                    self.park(number);
                }
            }
        }
        if let Some(mut schedule) = self.schedule.take() {
            let due =
                std::iter::from_fn(|| schedule.take()).map(|due| due.saturating_add(self.begin_ns.get()));
            due.take_while(|due| *due <= now).for_each(&mut note);
        }
        let mut counts = self.counts.borrow_mut();
        *if is_probe { &mut counts.cut_off } else { &mut counts.unsent } += unsent;
    }

    /// What was measured so far; from now on it is another's memory that is written to.
    pub(crate) fn take_tally(&self, task: &Task) -> Box<Tally> {
        let spare = task.spare.try_recv().unwrap_or_else(|_| Box::new(Tally::new(self.is_open_loop())));
        self.tally.replace(spare)
    }
}

/// Why a request failed, as the record tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Connect,
    Reset,
    Timeout,
    Status,
    Protocol,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::Message;
    use crate::schedule::{Arrivals, Profile};
    use ringroad_engine::choose::{Wish, choose};
    use std::sync::mpsc;

    /// A worker of ten connections in open loop, of which nothing runs.
    fn worker() -> Worker {
        let target = "tcp://127.0.0.1:7".parse().unwrap();
        let mut plan = Plan::new(target, vec![Message::echo(b"x".to_vec()).unwrap()]);
        plan.pace = Pace::Open { per_second: 1000.0, arrivals: Arrivals::Constant };
        let task = Task {
            plan: Arc::new(plan),
            addresses: [].into(),
            choice: choose(Some(Wish::Auto), None).unwrap(),
            index: 0,
            epoch: Instant::now(),
            stop: Arc::default(),
            over: Arc::default(),
            news: mpsc::channel().0,
            spare: mpsc::channel().1,
        };
        Worker::new(&task)
    }

    #[test]
    fn the_clock_is_looked_at_while_an_arrival_is_near_and_not_due() {
        let worker = worker();
        let profile = Rc::new(Profile::constant(1000.0, Duration::from_secs(1)));
        *worker.schedule.borrow_mut() = Some(Schedule::new(profile, Arrivals::Constant, (0, 1), 0, 3));
        worker.begin_ns.set(0);
        let lead = Duration::from_micros(100);
        worker.seats[5].set(OPEN);
        worker.park(5);
        // The first goes to the one that is free; the next is far, then near, then due, and nobody is free.
        for (now_us, is_near) in
            [(0, false), (899, false), (900, true), (999, true), (1000, false), (1950, false)]
        {
            assert_eq!(worker.dispatch(now_us * 1000, lead), is_near, "{now_us}");
        }
        assert_eq!(worker.seats[5].assigned.take(), Some(0));
        worker.park(5);
        // Somebody is: it takes what waited, and the last is near.
        assert!(worker.dispatch(1_950_000, lead));
        assert_eq!(worker.seats[5].assigned.take(), Some(1_000_000));
        worker.park(5);
        assert!(!worker.dispatch(2_000_000, lead));
        assert_eq!(worker.seats[5].assigned.take(), Some(2_000_000));
    }

    /// Between being given an arrival and running, a connection is neither parked nor busy.
    #[test]
    fn a_connection_whose_arrival_is_given_up_is_free_again() {
        let worker = worker();
        let profile = Rc::new(Profile::constant(1000.0, Duration::from_secs(1)));
        let schedule = Schedule::new(profile, Arrivals::Constant, (0, 1), 0, 5);
        *worker.schedule.borrow_mut() = Some(schedule);
        worker.begin_ns.set(0);
        worker.window_ns.set(0);
        for number in [3, 4] {
            worker.seats[number].set(OPEN);
            worker.park(number as u32);
        }
        // The first arrival is due at once, and goes to the first that is free.
        worker.seats[3].unset(PARKED);
        worker.parked.borrow_mut().pop_front();
        worker.seats[3].assigned.set(worker.arrival(0));
        // One lost its connection with its arrival in hand.
        worker.seats[7].assigned.set(worker.arrival(1_000_000));
        worker.give_up(3_500_000, true);
        assert_eq!(worker.parked.borrow().iter().copied().collect::<Vec<_>>(), [4, 3]);
        assert!(worker.seats.iter().all(|seat| seat.assigned.get().is_none()));
        // Those two, and what was due by then: at 2 and 3 ms. The fifth is given up with the rest, and was never due.
        assert_eq!((worker.counts.borrow().cut_off, worker.counts.borrow().unsent), (4, 0));
        let tally = worker.tally.borrow();
        assert_eq!(tally.latencies.response.count(), 4);
        assert!(
            tally.latencies.response.quantile_ns(1.0).unwrap() >= 3_490_000,
            "the first waited all the time"
        );
        assert!(worker.schedule.borrow().is_none());
    }
}
