//! One thread of the load: a runtime, its connections, its share of the schedule, and what it has counted.
//!
//! Connections are tasks (`connection.rs`); what they share is a [`Worker`]. Nothing is allocated per
//! request: a request is a reference to prepared bytes, its times are two numbers in its task, its latency a
//! count in a histogram. Once a second the histograms are handed on and new ones begun, so a run of a year
//! needs no more than one of a minute. Orders and reports are in `orders.rs`, the shared state of a
//! connection in `seat.rs`, its shares of connections and turns in `shares.rs`. Start at [`Worker`].

mod orders;
mod seat;
mod shares;

use crate::answer::{Seen, Whole};
use crate::broadcast::{Fan, Mark, Member};
use crate::connection::Asked;
use crate::error::Error;
use crate::hold::Hold;
use crate::http2::Prepared;
use crate::plan::{Message, Pace, Plan};
use crate::schedule::Schedule;
use crate::share::share;
use crate::site::Address;
use crate::tally::{Counts, OfUrl, Tally};
use crate::tls::Handshakes;
use crate::turns::Turns;
use crate::websocket::Opening;
use bytes::Bytes;
pub use orders::settle;
pub(crate) use orders::{Done, News, Order, Orders, TICK, Task, connect, run, settled};
use ringroad_engine::AnyBuf;
use ringroad_engine::sync::Semaphore;
pub(crate) use seat::{
    ALIVE, ASKED, EXPIRED, GIVEN_UP, KEPT, LOST, NEVER, OPEN, PARKED, SERVED, SILENT, Seat, TRIED,
};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The state that the connections of a worker share.
pub(crate) struct Worker {
    pub(crate) plan: Arc<Plan>,
    /// The servers.
    sites: Box<[Site]>,
    /// Which server each connection belongs to; empty: there is one.
    site_of: Box<[u16]>,
    /// Limits the connects in progress, if connections live in the ring's table.
    pub(crate) on_their_way: Option<Semaphore>,
    /// Source addresses used, and which of them are this worker's.
    sourced: Cell<u64>,
    source_turns: Turns,
    epoch: Instant,
    pub(crate) seats: Box<[Seat]>,
    /// For each message, 1, 2, … copies of it, to be sent at once; none if it is a template.
    batches: Vec<Vec<Batch>>,
    /// The most requests in one write. What a connection may send beyond that follows in the next.
    pub(crate) burst: u32,
    /// The messages as requests of HTTP/2, if that is spoken; `None`: a template.
    prepared: Vec<Option<Prepared>>,
    /// Requests of templates where there are several servers: how many, and the numbers of this worker's.
    filled: Cell<u64>,
    turns: Turns,
    random: RefCell<fastrand::Rng>,
    /// The connection that sends the next heartbeat, if connections are held.
    beats: Cell<usize>,
    pub(crate) seen: RefCell<Seen>,
    schedule: RefCell<Option<Schedule>>,
    /// Free connections, in the order they became so.
    parked: RefCell<VecDeque<u32>>,
    /// Times of the epoch.
    begin_ns: Cell<u64>,
    window_ns: Cell<u64>,
    pub(crate) end_ns: Cell<u64>,
    /// Whether this is the last order.
    last: Cell<bool>,
    /// Connections that may send: those before this number (closed loop).
    active: Cell<u32>,
    /// Requests that may still be sent (closed loop).
    budget: Cell<u64>,
    pub(crate) in_flight: Cell<u64>,
    pub(crate) connecting: Cell<u32>,
    pub(crate) connected: Cell<u32>,
    last_ns: Cell<u64>,
    pub(crate) counts: RefCell<Counts>,
    /// A status and how many answers in a row had it, which are not in `counts` yet.
    status: Cell<(u16, u64)>,
    /// Bytes received in the window that are not in `tally` yet.
    window_bytes: Cell<u64>,
    /// What was measured of each message; empty if it is not kept apart.
    urls: RefCell<Vec<OfUrl>>,
    pub(crate) tally: RefCell<Box<Tally>>,
    /// Idle connections begun, and which of them are this worker's.
    idled: Cell<u64>,
    idle_turns: Turns,
    /// Idle connections that are open.
    pub(crate) idle_open: Cell<u32>,
    /// Where there is TLS: what its handshakes were.
    pub(crate) handshakes: RefCell<Option<Box<Handshakes>>>,
    /// Whether, and how, what was on its way at the end was cut off.
    pub(crate) cut: Cell<Option<Cut>>,
    /// Where the load is a broadcast: what all workers know together.
    fan: Arc<Fan>,
    /// Deliveries that the others do not know of yet.
    delivered: Cell<u64>,
    /// This worker has messages to send.
    publishes: Cell<bool>,
    trouble: RefCell<Option<Error>>,
}

/// How the waiting for answers is ended before each of them has come or is overdue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// No answer came by the end: they have failed.
    Overdue,
    /// The load was stopped, which is no failure of the server.
    Stopped,
}

/// A server: its addresses, and what is sent to it.
struct Site {
    addresses: Vec<Address>,
    /// The one of the addresses that is used: the first that took a connection.
    address: Cell<usize>,
    /// Whether one of the addresses has taken a connection.
    reached: Cell<bool>,
    secured: bool,
    /// Which message comes next, by weight: the period of one sequence for all workers.
    wheel: Vec<u16>,
    /// For each place of it how many templates are before it, and then how many there are in it.
    templates: Vec<u64>,
    turned: Cell<u64>,
    turns: Turns,
}

/// What is to be sent next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) message: u16,
    /// Which of the requests of templates it is, if it is one.
    number: u64,
}

/// In open loop the order of the workers shifts as seldom: it brings two arrivals of a worker together that
/// are else as far apart as there are workers.
const SHIFTS_SELDOM: u64 = 16;

/// Returns the share of a worker in what is sent to server `number`, among the workers that have connections
/// to it.
fn site_turns(number: u16, plan: &Plan, index: u32, servers: &[u16]) -> Turns {
    if servers.is_empty() {
        return Turns::from((index, plan.threads)).up_to(plan.count);
    }
    let mut has = vec![false; plan.threads as usize];
    for (connection, site) in (0..plan.connections).zip(servers.iter().cycle()) {
        if let Some(has) = has.get_mut((connection % plan.threads) as usize) {
            *has |= *site == number;
        }
    }
    let before = has.iter().take(index as usize).filter(|has| **has).count() as u32;
    Turns::from((before, has.iter().filter(|has| **has).count() as u32))
}

impl Site {
    /// Server `number` of the plan.
    fn new(number: u16, plan: &Plan, addresses: &[Address], turns: Turns) -> Site {
        let weight = |message: &Message| if message.site == number { message.weight } else { 0 };
        let wheel = shares::wheel(&plan.messages.iter().map(weight).collect::<Vec<_>>());
        let mut templates = vec![0];
        for message in &wheel {
            let message = plan.messages.get(usize::from(*message));
            let is_one = message.is_some_and(|message| message.template.is_some());
            templates.push(templates.last().copied().unwrap_or(0) + u64::from(is_one));
        }
        let times = if plan.pace.is_timed() { SHIFTS_SELDOM } else { 1 };
        Site {
            addresses: addresses.to_vec(),
            address: Cell::new(0),
            reached: Cell::new(false),
            secured: plan.sites().nth(number.into()).is_some_and(|site| site.scheme.is_secured()),
            turns: turns.over(wheel.len(), times),
            wheel,
            templates,
            turned: Cell::new(0),
        }
    }
}

/// Returns the servers of a plan in turns, each as often as the weights of its messages say.
fn site_wheel(plan: &Plan) -> Vec<u16> {
    let weights = (0..=plan.others.len() as u16).map(|site| {
        let of_site = plan.messages.iter().filter(|message| message.site == site);
        of_site.map(|message| message.weight).fold(0, u32::saturating_add)
    });
    shares::wheel(&weights.collect::<Vec<_>>())
}

/// Returns the messages of a plan as requests of HTTP/2.
fn prepared(plan: &Plan) -> Vec<Option<Prepared>> {
    let secured = |site: u16| plan.sites().nth(site.into()).is_some_and(|site| site.scheme.is_secured());
    let fixed = |message: &Message| match message.template {
        None if plan.http2 => Prepared::of(&for_worker(&message.bytes), secured(message.site)),
        _ => None,
    };
    plan.messages.iter().map(fixed).collect()
}

/// The most bytes that the batches of one message take together, in each worker.
const LAID_OUT_BYTES: usize = 4 << 20;
/// The most bytes of requests that are put together for one write, unless one of them is larger.
const WRITE_BYTES: usize = 1 << 20;

/// Returns whether a message is the only one to its server.
fn is_alone(plan: &Plan, message: &Message) -> bool {
    plan.messages.iter().filter(|other| other.site == message.site).count() == 1
}

/// Returns how many requests may be in one write, by what this message takes. Batches of 1, 2, … n copies
/// take n (n + 1) / 2 of them.
fn burst(plan: &Plan, message: &Message) -> u32 {
    let bytes = message.bytes.len().max(1);
    let laid_out = is_alone(plan, message) && message.template.is_none() && !plan.http2;
    let fits = |count: &u32| {
        let count = *count as usize;
        if laid_out {
            bytes * count * (count + 1) / 2 <= LAID_OUT_BYTES
        } else {
            bytes * count <= WRITE_BYTES
        }
    };
    (1..=plan.pipeline).take_while(fits).last().unwrap_or(1)
}

/// From this length on the bytes of a message are shared by all workers instead of copied for each. The
/// count of a shared buffer is written by all of them, which costs more than copying a small message once.
const SHARED_BYTES: usize = 64 << 10;

/// Returns the bytes of a message for one worker: shared, or a copy of its own.
fn for_worker(bytes: &Bytes) -> Bytes {
    if bytes.len() < SHARED_BYTES { Bytes::copy_from_slice(bytes) } else { bytes.clone() }
}

/// Requests as one write sends them.
enum Batch {
    Own(Rc<[u8]>),
    Shared(Bytes),
}

impl Batch {
    /// `count` times this message.
    fn of(message: &Message, count: usize) -> Batch {
        match message.bytes.len() {
            SHARED_BYTES.. if count == 1 => Batch::Shared(message.bytes.clone()),
            _ => Batch::Own(message.bytes.repeat(count).into()),
        }
    }

    #[inline]
    fn lent(&self) -> AnyBuf {
        match self {
            Batch::Own(bytes) => AnyBuf::from(Rc::clone(bytes)),
            Batch::Shared(bytes) => AnyBuf::from(bytes.clone()),
        }
    }
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
        let burst = plan.messages.iter().map(|message| burst(plan, message)).min().unwrap_or(1);
        let batches = plan.messages.iter().map(|message| {
            // Only what comes in batches is laid out in them: a large message is not pipelined by the
            // hundred.
            let deepest = match message.template {
                None if !plan.http2 => {
                    if is_alone(plan, message) {
                        burst
                    } else {
                        1
                    }
                }
                _ => 0,
            };
            (1..=deepest as usize).map(|count| Batch::of(message, count)).collect()
        });
        let mine = Turns::from((task.index, plan.threads));
        // By the number a connection has among those of all workers, so that each server has its share of
        // all.
        let turns = if plan.others.is_empty() { Vec::new() } else { site_wheel(plan) };
        let site_of = (0..seats).filter_map(|seat| {
            let number = seat * u64::from(plan.threads) + u64::from(task.index);
            turns.get((number % turns.len().max(1) as u64) as usize).copied()
        });
        let sites = task.addresses.iter().zip(0..).map(|(addresses, number)| {
            Site::new(number, plan, addresses, site_turns(number, plan, task.index, &turns))
        });
        let urls = if plan.tells_urls() { plan.messages.len() } else { 0 };
        let mut seen = Seen::new(&plan.messages, &plan.statuses);
        seen.cookies = plan.keeps_cookies.then(Vec::new);
        Worker {
            sites: sites.collect(),
            site_of: site_of.collect(),
            on_their_way: plan.direct.map(|direct| Semaphore::new(direct.connecting as usize)),
            sourced: Cell::new(0),
            source_turns: mine.over(plan.sources.len(), 1),
            epoch: task.epoch,
            seats: (0..seats).map(seat).collect(),
            batches: batches.collect(),
            burst,
            prepared: prepared(plan),
            filled: Cell::new(0),
            turns: mine,
            random: RefCell::new(fastrand::Rng::with_seed(plan.seed ^ u64::from(task.index) << 32)),
            beats: Cell::new(0),
            seen: RefCell::new(seen),
            schedule: RefCell::new(None),
            parked: RefCell::new(VecDeque::new()),
            begin_ns: Cell::new(NEVER),
            window_ns: Cell::new(NEVER),
            end_ns: Cell::new(NEVER),
            last: Cell::new(false),
            active: Cell::new(u32::MAX),
            budget: Cell::new(plan.count.map_or(u64::MAX, |count| share(count, task.index, plan.threads))),
            in_flight: Cell::new(0),
            connecting: Cell::new(0),
            connected: Cell::new(0),
            last_ns: Cell::new(0),
            counts: RefCell::new(Counts::default()),
            status: Cell::new((0, 0)),
            window_bytes: Cell::new(0),
            urls: RefCell::new(vec![OfUrl::default(); urls]),
            tally: RefCell::new(Box::new(Tally::new(open))),
            idled: Cell::new(0),
            idle_turns: mine.over(task.addresses.len(), 1),
            idle_open: Cell::new(0),
            handshakes: RefCell::default(),
            cut: Cell::new(None),
            fan: Arc::clone(&task.fan),
            delivered: Cell::new(0),
            publishes: Cell::new(true),
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

    /// Returns how connections are held, if they are.
    pub(crate) fn hold(&self) -> Option<Hold> {
        match self.plan.pace {
            Pace::Hold(hold) => Some(hold),
            Pace::Closed | Pace::Open { .. } => None,
        }
    }

    /// Returns whether load may be put on.
    pub(crate) fn has_begun(&self) -> bool {
        self.begin_ns.get() != NEVER
    }

    /// Returns the server of connection `number`.
    #[inline]
    pub(crate) fn site_of(&self, number: u32) -> u16 {
        self.site_of.get(number as usize).copied().unwrap_or(0)
    }

    fn site(&self, site: u16) -> Option<&Site> {
        self.sites.get(usize::from(site))
    }

    /// Returns the server of the next idle connection: all in turns.
    pub(crate) fn next_idle(&self) -> u16 {
        let round = self.idled.get();
        self.idled.set(round + 1);
        (self.idle_turns.number(round) % self.sites.len().max(1) as u64) as u16
    }

    /// Returns whether connections to this server are secured.
    pub(crate) fn is_secured(&self, site: u16) -> bool {
        self.site(site).is_some_and(|site| site.secured)
    }

    /// Returns what a connection to this server sends first, where it speaks WebSocket.
    pub(crate) fn opening(&self, site: u16) -> Option<&Opening> {
        let mut messages = self.plan.messages.iter();
        messages.find(|message| message.site == site).and_then(|message| message.opening.as_deref())
    }

    /// Returns the name of this server in a TLS handshake.
    pub(crate) fn server_name(&self, site: u16) -> &str {
        self.plan.sites().nth(site.into()).map_or("", |site| &site.host)
    }

    /// Notes that an address of this server has taken a connection.
    pub(crate) fn reached(&self, site: u16) {
        if let Some(site) = self.site(site) {
            site.reached.set(true);
        }
    }

    pub(crate) fn address(&self, site: u16) -> Option<Address> {
        let site = self.site(site)?;
        site.addresses.get(site.address.get()).cloned()
    }

    /// All addresses of this server, if none of them has taken a connection yet.
    pub(crate) fn untried(&self, site: u16) -> Vec<SocketAddr> {
        let site = self.site(site).filter(|site| !site.reached.get());
        let addresses = site.map(|site| site.addresses.iter().filter_map(Address::ip));
        addresses.into_iter().flatten().collect()
    }

    /// Has this address of the server used from here on.
    pub(crate) fn settle_on(&self, site: u16, address: SocketAddr) {
        let Some(site) = self.site(site).filter(|site| !site.reached.get()) else { return };
        if let Some(at) = site.addresses.iter().position(|known| known.ip() == Some(address)) {
            site.address.set(at);
        }
    }

    /// Returns where the next connection to this address comes from, the port left open; `None`: as the
    /// system has it.
    ///
    /// # Errors
    /// There are sources, and none of them can reach such an address.
    pub(crate) fn source(&self, address: SocketAddr) -> Result<Option<SocketAddr>, &'static str> {
        let sources = &self.plan.sources;
        if sources.is_empty() {
            return Ok(None);
        }
        let round = self.sourced.get();
        self.sourced.set(round + 1);
        let first = (self.source_turns.number(round) % sources.len() as u64) as usize;
        let found = sources
            .iter()
            .cycle()
            .skip(first)
            .take(sources.len())
            .find(|source| source.is_ipv4() == address.is_ipv4());
        found
            .map(|source| Some(SocketAddr::new(*source, 0)))
            .ok_or("connect: no source address of the target's version of IP")
    }

    /// Returns the bytes of `count` requests on connection `number`, as they come in turn; `note` hears of
    /// each what its message is.
    #[inline]
    pub(crate) fn batch(&self, number: u32, count: u32, mut note: impl FnMut(u16)) -> AnyBuf {
        let turn = self.turn(number);
        note(turn.message);
        let batches = self.batches.get(usize::from(turn.message));
        if let Some(batch) = batches.and_then(|all| all.get(count as usize - 1)) {
            // More than one is laid out of what is sent alone.
            (1..count).for_each(|_| note(self.turn(number).message));
            return batch.lent();
        }
        let mut bytes = Vec::new();
        self.write(turn, &mut bytes);
        for _ in 1..count {
            let turn = self.turn(number);
            note(turn.message);
            self.write(turn, &mut bytes);
        }
        AnyBuf::from(bytes)
    }

    /// Adds the bytes of one request.
    fn write(&self, turn: Turn, bytes: &mut Vec<u8>) {
        let Some(message) = self.plan.messages.get(usize::from(turn.message)) else { return };
        match &message.template {
            Some(template) => template.write(bytes, turn.number, &mut self.random.borrow_mut()),
            None => bytes.extend_from_slice(&message.bytes),
        }
    }

    /// Returns a message as a request of HTTP/2; as an error one that is another each time.
    pub(crate) fn prepared(&self, turn: Turn, site: u16) -> Result<&Prepared, Option<Prepared>> {
        match self.prepared.get(usize::from(turn.message)) {
            Some(Some(prepared)) => Ok(prepared),
            _ => {
                let mut bytes = Vec::new();
                self.write(turn, &mut bytes);
                Err(Prepared::of(&bytes.into(), self.is_secured(site)))
            }
        }
    }

    /// Returns what comes next on connection `number`.
    #[inline]
    pub(crate) fn turn(&self, number: u32) -> Turn {
        let none = Turn { message: 0, number: 0 };
        let Some(site) = self.site(self.site_of(number)) else { return none };
        let all = site.templates.last().copied().unwrap_or(0);
        if let ([message], 0) = (site.wheel.as_slice(), all) {
            return Turn { message: *message, ..none };
        }
        let round = site.turned.get();
        site.turned.set(round + 1);
        let next = site.turns.number(round);
        let length = site.wheel.len().max(1) as u64;
        let (turn, at) = (next / length, (next % length) as usize);
        let message = site.wheel.get(at).copied().unwrap_or(0);
        let before = site.templates.get(at).copied().unwrap_or(0);
        if all == 0 || self.sites.len() == 1 {
            return Turn { message, number: turn * all + before };
        }
        // Each server has a sequence of its own, and no two requests of the load have one number.
        let is_template = site.templates.get(at + 1).is_some_and(|after| *after > before);
        let filled = self.filled.get();
        self.filled.set(filled + u64::from(is_template));
        Turn { message, number: self.turns.number(filled) }
    }

    /// Returns the share of the arrivals of an open loop. What is sent at each of them follows the same
    /// order.
    fn arrival_turns(&self) -> Turns {
        match &*self.sites {
            [site] => site.turns,
            _ => self.turns,
        }
    }

    /// Begins a load without an end of its own, and wakes all connections.
    pub(crate) fn begin(&self, now: u64) {
        self.begin_ns.set(now);
        self.window_ns.set(now);
        self.end_ns.set(NEVER - 1);
        self.last.set(true);
        self.seats.iter().for_each(Seat::wake);
    }

    /// Returns whether load may be put on by this connection.
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

    /// Returns how many of at most `room` requests connection `number` may send now in closed loop.
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
        self.plan.pipeline.saturating_sub(in_flight).min(self.burst)
    }

    /// Returns the next arrival, if it is due: when it was meant to be sent, of the epoch.
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

    /// Notes that this connection is free.
    pub(crate) fn park(&self, seat: u32) {
        if let Some(place) = self.seats.get(seat as usize)
            && !place.has(PARKED)
        {
            place.set(PARKED);
            self.parked.borrow_mut().push_back(seat);
        }
    }

    /// Hands out due arrivals to free connections. Returns whether the next arrival is due within `lead`, so
    /// that the caller has to poll the clock. An arrival that is due already is taken by the first connection
    /// that becomes free.
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

    /// Notes that an open connection has ended. It was held to the end if that is over and the connection
    /// `owes` no answer to a heartbeat.
    pub(crate) fn lost(&self, seat: &Seat, owes: bool) {
        // What it was to send and has not begun to.
        let unsent = u64::from(seat.assigned.take().is_some());
        if owes || self.now() < self.end_ns.get() {
            seat.set(LOST);
            self.counts.borrow_mut().held.lost += 1;
        } else {
            seat.set(KEPT);
        }
        self.counts.borrow_mut().held.away += unsent;
    }

    /// Notes that a connection is given up.
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

    /// Counts a whole answer by its status.
    #[inline]
    pub(crate) fn answered(&self, status: u16) {
        let (last, count) = self.status.get();
        if last != status {
            self.tell_statuses();
        }
        self.status.set((status, if last == status { count + 1 } else { 1 }));
    }

    /// Brings the count of answers by their status up to date.
    pub(crate) fn tell_statuses(&self) {
        let (status, count) = self.status.replace((0, 0));
        if count > 0 && self.plan.target.scheme.is_http() {
            *self.counts.borrow_mut().statuses.entry(status).or_default() += count;
        }
    }

    /// Hands what the heads of answers said to the counts.
    pub(crate) fn tell_heads(&self) {
        let mut seen = self.seen.borrow_mut();
        let mut counts = self.counts.borrow_mut();
        counts.location = seen.location.take();
        counts.cookies = seen.cookies.as_mut().map(std::mem::take).unwrap_or_default();
    }

    /// Returns what was measured of each message, which begins anew.
    pub(crate) fn take_urls(&self) -> Vec<OfUrl> {
        let mut urls = self.urls.borrow_mut();
        let fresh = vec![OfUrl::default(); urls.len()];
        std::mem::replace(&mut *urls, fresh)
    }

    /// Counts bytes that were received.
    #[inline]
    pub(crate) fn received(&self, now: u64, bytes: usize) {
        self.counts.borrow_mut().bytes_received += bytes as u64;
        if self.is_in_window(now) {
            self.window_bytes.set(self.window_bytes.get() + bytes as u64);
        }
    }

    /// Counts a whole answer to this message apart from the others, if it came in the window.
    #[inline]
    pub(crate) fn of_url(&self, message: u16, now: u64, due: u64, whole: &Whole) {
        let mut urls = self.urls.borrow_mut();
        let Some(url) = urls.get_mut(usize::from(message)) else { return };
        let in_window = self.is_in_window(now);
        if whole.wrong.is_some() {
            url.refused += u64::from(in_window);
            return;
        }
        if in_window {
            url.completed += 1;
            url.body_bytes += whole.body_bytes;
        }
        if self.is_measured(now, due) {
            url.response.record(now - due);
        }
    }

    /// Returns whether what happens `now` happens in the measured time.
    #[inline]
    fn is_in_window(&self, now: u64) -> bool {
        now >= self.window_ns.get() && now < self.end_ns.get()
    }

    /// Returns whether the latency belongs to the measured time of what was due at `due` and was waited for
    /// until `now`. In open loop what was due in it does, in closed loop whatever was on its way in it. In
    /// both an answer that comes after the end counts with all of its time: to leave it out would leave out
    /// the slowest.
    #[inline]
    fn is_measured(&self, now: u64, due: u64) -> bool {
        let at = if self.is_open_loop() { due } else { now };
        at >= self.window_ns.get()
    }

    /// Returns the part of a wait that lies in the measured time.
    #[inline]
    fn awaited(&self, now: u64, due: u64) -> f64 {
        now.min(self.end_ns.get()).saturating_sub(due.max(self.window_ns.get())) as f64
    }

    /// Records how long a whole answer took that was not good.
    #[cold]
    pub(crate) fn refused(&self, now: u64, due: u64) {
        self.last_ns.set(now);
        let mut tally = self.tally.borrow_mut();
        tally.refused += u64::from(self.is_in_window(now));
        if self.is_measured(now, due) {
            tally.awaited_ns += self.awaited(now, due);
            tally.other.get_or_insert_default().record(now - due);
        }
    }

    /// Counts a good answer that came `now` to what was due at `due` and sent at `sent`, `late` of that
    /// caused by the client.
    #[inline]
    pub(crate) fn completed(&self, now: u64, due: u64, sent: u64, late: u64) {
        self.last_ns.set(now);
        self.tally.borrow_mut().completed += u64::from(self.is_in_window(now));
        self.waited(now, due, sent, late);
    }

    /// Records how long something was waited for that was due at `due` and sent at `sent`.
    #[inline]
    fn waited(&self, now: u64, due: u64, sent: u64, late: u64) {
        if !self.is_measured(now, due) {
            return;
        }
        let mut tally = self.tally.borrow_mut();
        tally.awaited_ns += self.awaited(now, due);
        let latencies = &mut tally.latencies;
        latencies.response.record(now - due);
        if let (Some(service), Some(lag), Some(own)) =
            (&mut latencies.service, &mut latencies.lag, &mut latencies.late)
        {
            service.record(now - sent);
            lag.record(sent - due);
            own.record(late);
        }
    }

    /// Records a request that was waited for until `now` and gets no answer any more, for whatever reason: it
    /// would have taken as long at least.
    #[cold]
    pub(crate) fn unanswered(&self, now: u64, asked: &Asked) {
        let Asked { due, sent, late, message } = *asked;
        self.last_ns.set(now);
        self.waited(now, due, sent, late);
        if self.is_measured(now, due) {
            self.note_unanswered(now - due);
            if let Some(url) = self.urls.borrow_mut().get_mut(usize::from(message)) {
                url.response.record(now - due);
            }
        }
    }

    fn note_unanswered(&self, waited_ns: u64) {
        let mut tally = self.tally.borrow_mut();
        tally.unanswered += 1;
        tally.unanswered_ns = tally.unanswered_ns.max(waited_ns);
    }

    /// Ends the waiting for all that is on its way.
    pub(crate) fn cut_off(&self, how: Cut) {
        self.cut.set(Some(how));
        self.budget.set(0);
        for seat in self.seats.iter().filter(|seat| seat.has(OPEN) && seat.since.get() != NEVER) {
            seat.set(EXPIRED);
            seat.wake();
        }
    }

    /// Returns how long the oldest request of each connection has waited, where one has.
    pub(crate) fn waiting(&self, now: u64) -> impl Iterator<Item = u64> {
        let open = self.seats.iter().filter(|seat| seat.has(OPEN));
        open.map(|seat| seat.since.get())
            .filter(|since| *since != NEVER)
            .map(move |since| now.saturating_sub(since))
    }

    /// Returns the longest time that a request without an answer has waited, whether it was sent or not.
    fn waiting_ns(&self, now: u64) -> u64 {
        let due = self.schedule.borrow().as_ref().and_then(Schedule::peek);
        let unsent = due.map(|due| now.saturating_sub(due.saturating_add(self.begin_ns.get())));
        self.waiting(now).chain(unsent).max().unwrap_or(0)
    }

    /// Notes that an idle connection has ended; `said`: after bytes that were not asked for.
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
        if self.is_in_window(now) {
            self.tally.borrow_mut().failed += count;
        }
    }

    /// Returns whether the next request is due only later: then nothing that is sent is no silence.
    pub(crate) fn nothing_is_due(&self, now: u64) -> bool {
        let next = self.schedule.borrow().as_ref().and_then(Schedule::peek);
        next.is_some_and(|due| due.saturating_add(self.begin_ns.get()) > now)
    }

    /// Begins what was ordered. Workers that were faster may have begun, so deliveries that have come count.
    fn begin_order(&self, last: bool) {
        self.last.set(last);
        self.publishes.set(true);
        self.cut.set(None);
    }

    /// Ends it: all that was counted has been told.
    fn end_order(&self) {
        self.delivered.set(0);
        for seat in &self.seats {
            seat.unset(ASKED | SERVED);
        }
    }

    /// Returns a message of a broadcast that is due at `due` and sent now, by this member.
    pub(crate) fn publish(&self, member: &mut Member, due: u64, sent: u64, late: u64) -> Mark {
        let number = self.fan.publish(due);
        member.own = Some(number);
        Mark { number, due, sent, late }
    }

    /// Counts a delivery, unless its message was due before the measured time.
    pub(crate) fn delivered(&self, seat: &Seat, member: &mut Member, mark: Mark, now: u64) {
        let window_ns = self.fan.window_ns();
        if mark.due < window_ns {
            return;
        }
        if self.window_ns.get() != window_ns {
            // Another worker began first. The order, which says the same, is on its way.
            self.window_ns.set(window_ns);
            self.end_ns.set(NEVER - 1);
        }
        let mut counts = self.counts.borrow_mut();
        if !member.is_new(mark.number) {
            counts.broadcast.repeated += 1;
            return;
        }
        counts.completed += 1;
        counts.answers += 1;
        drop(counts);
        seat.set(SERVED | ALIVE);
        self.delivered.set(self.delivered.get() + 1);
        if member.own == Some(mark.number) {
            self.fan.came_back();
        }
        self.completed(now, mark.due, mark.sent, mark.late);
    }

    /// Returns whether nothing is to be delivered any more, now that this worker has sent all of its
    /// messages. Tells the others what has arrived here.
    fn is_delivered(&self, now: u64) -> bool {
        if self.plan.broadcast.is_none() {
            return true;
        }
        self.fan.arrived(self.delivered.take());
        if self.publishes.replace(false) {
            self.fan.ends();
        }
        self.fan.is_whole(Duration::from_nanos(now.saturating_sub(self.last_ns.get())))
    }

    /// Wakes connections past their timeout.
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

    /// Returns whether connections are held and have to be for longer: also behind the last heartbeat they
    /// may be lost.
    fn still_holds(&self, now: u64) -> bool {
        self.hold().is_some() && now < self.end_ns.get()
    }

    /// Returns whether all requests have been sent.
    fn is_exhausted(&self, now: u64) -> bool {
        match &*self.schedule.borrow() {
            Some(schedule) => {
                schedule.peek().is_none()
                    && self.seats.iter().all(|s| s.assigned.get().is_none())
                    && !self.still_holds(now)
                    || self.seats.iter().all(|seat| seat.has(GIVEN_UP))
            }
            None => now >= self.end_ns.get() || self.budget.get() == 0,
        }
    }

    /// Returns whether this connection will never have to send again.
    pub(crate) fn has_nothing_left(&self, seat: &Seat) -> bool {
        self.last.get()
            && self.has_begun()
            && match &*self.schedule.borrow() {
                Some(schedule) => {
                    schedule.peek().is_none()
                        && seat.assigned.get().is_none()
                        && !self.still_holds(self.now())
                }
                None => self.budget.get() == 0 || self.now() >= self.end_ns.get(),
            }
    }

    /// Gives up what was due by now and has not left. It counts with the time it has waited so far: leaving
    /// it out would flatter.
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
            self.last_ns.set(now);
            if due >= self.window_ns.get() {
                self.tally.borrow_mut().latencies.response.record(now - due);
                // The end of a probe comes by plan: what it cuts off is no answer that failed to come.
                if !is_probe {
                    self.note_unanswered(now - due);
                }
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

    /// Returns what was measured so far; from now on it is another's memory that is written to.
    pub(crate) fn take_tally(&self, task: &Task) -> Box<Tally> {
        let spare = task.spare.try_recv().unwrap_or_else(|_| Box::new(Tally::new(self.is_open_loop())));
        let mut tally = self.tally.replace(spare);
        tally.bytes += self.window_bytes.take();
        tally
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

    /// Returns a worker of ten connections in open loop, of which nothing runs.
    fn worker() -> Worker {
        let target = "tcp://127.0.0.1:7".parse().unwrap();
        let mut plan = Plan::new(target, vec![Message::echo(b"x".to_vec()).unwrap()]);
        plan.pace = Pace::Open { per_second: 1000.0, arrivals: Arrivals::Constant };
        Worker::new(&task(plan))
    }

    fn task(plan: Plan) -> Task {
        Task {
            plan: Arc::new(plan),
            addresses: [].into(),
            choice: choose(Some(Wish::Auto), None).unwrap(),
            index: 0,
            epoch: Instant::now(),
            stop: Arc::default(),
            over: Arc::default(),
            news: mpsc::channel().0,
            fan: Arc::default(),
            spare: mpsc::channel().1,
        }
    }

    #[test]
    fn a_delivery_that_comes_before_the_order_counts_and_one_after_its_end_does_not() {
        let target: crate::Target = "ws://127.0.0.1:7/".parse().unwrap();
        let broadcast = crate::broadcast::Broadcast::new("{mark}", None).unwrap();
        let message = Message::websocket(&target, &[], broadcast.sample()).unwrap();
        let pace = Pace::Open { per_second: 1.0, arrivals: Arrivals::Constant };
        let broadcast = Some(Arc::new(broadcast));
        let task = task(Plan { pace, broadcast, ..Plan::new(target, vec![message]) });
        let worker = Worker::new(&task);
        // The one message of another worker, which goes to two members, both here.
        task.fan.begin(2, 1, 1000);
        let mark = Mark { number: task.fan.publish(1000), due: 1000, sent: 1000, late: 0 };
        let mut members = [Member::default(), Member::default()];
        worker.delivered(&worker.seats[0], &mut members[0], mark, 1500);
        worker.begin_order(true);
        worker.delivered(&worker.seats[1], &mut members[1], mark, 2000);
        assert!(worker.is_delivered(2000), "both have come, so nothing is waited for");
        assert_eq!((worker.served(), worker.counts.borrow().completed), (2, 2));
        assert_eq!(worker.tally.borrow().latencies.response.count(), 2);
        worker.end_order();
        task.fan.end();
        worker.delivered(&worker.seats[0], &mut Member::default(), mark, 3000);
        assert_eq!((worker.served(), worker.counts.borrow().completed), (0, 2));
    }

    /// Memory is compared by its address: each of these was a copy.
    #[test]
    fn a_large_body_is_in_memory_once_for_all_workers_and_requests() {
        let target: crate::Target = "http://127.0.0.1:7/".parse().unwrap();
        // A brace, as in JSON: that is no placeholder.
        let body = vec![b'{'; SHARED_BYTES];
        let request = crate::plan::Request { method: "POST", headers: &[], body: &body, close: false };
        for http2 in [false, true] {
            let message = Message::template(&target, &request, 1, None).unwrap();
            let plan = Plan { http2, ..Plan::new(target.clone(), vec![message]) };
            let memory = plan.messages[0].bytes().as_ptr_range();
            let task = task(plan);
            for worker in [Worker::new(&task), Worker::new(&task)] {
                for _request in 0..2 {
                    if http2 {
                        let turn = worker.turn(0);
                        let prepared = worker.prepared(turn, 0).ok().unwrap();
                        assert!(memory.contains(&prepared.body().as_ptr()), "HTTP/2");
                        assert_eq!(prepared.body(), body);
                    } else {
                        assert_eq!(worker.batch(0, 1, |_| {}).as_ptr(), memory.start, "HTTP/1.1");
                    }
                }
            }
        }
        let mut marks = crate::template::Marks::new(None);
        let kept = marks.replace(&body, crate::template::Where::Body).unwrap();
        assert_eq!(kept.as_ptr(), body.as_ptr(), "a body without placeholders is looked through, not copied");
    }

    /// The count of a shared buffer is written by all threads that send it.
    #[test]
    fn each_worker_has_a_small_message_of_its_own() {
        let task = task(Plan::new(
            "tcp://127.0.0.1:7".parse().unwrap(),
            vec![Message::echo(vec![b'x'; SHARED_BYTES - 1]).unwrap()],
        ));
        let workers = [Worker::new(&task), Worker::new(&task)];
        let [one, other] = workers.each_ref().map(|worker| worker.batch(0, 1, |_| {}).as_ptr());
        assert_ne!(one, other);
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
        // The first goes to the free connection; the next is far, then near, then due, and no connection is
        // free.
        for (now_us, is_near) in
            [(0, false), (899, false), (900, true), (999, true), (1000, false), (1950, false)]
        {
            assert_eq!(worker.dispatch(now_us * 1000, lead), is_near, "{now_us}");
        }
        assert_eq!(worker.seats[5].assigned.take(), Some(0));
        worker.park(5);
        // A free connection takes the one that waited, and the last is near.
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
        // Those two, and what was due by then: at 2 and 3 ms. The fifth is given up with the rest, and was
        // never due.
        assert_eq!((worker.counts.borrow().cut_off, worker.counts.borrow().unsent), (4, 0));
        let tally = worker.tally.borrow();
        assert_eq!(tally.latencies.response.count(), 4);
        assert!(
            tally.latencies.response.quantile_ns(1.0).unwrap() >= 3_490_000,
            "the first waited all the time"
        );
        assert!(worker.schedule.borrow().is_none());
    }

    #[test]
    fn batches_of_deep_pipelines_take_bounded_memory_and_small_ones_are_laid_out_whole() {
        let plan = |bytes: usize, pipeline| {
            let message = Message::echo(vec![b'x'; bytes]).unwrap();
            Plan { pipeline, ..Plan::new("tcp://localhost:7".parse().unwrap(), vec![message]) }
        };
        for (bytes, pipeline, most) in
            [(100, 256, 256), (1_000_000, 1, 1), (1_000_000, 256, 2), (8 << 20, 64, 1), (1, 100_000, 2895)]
        {
            let plan = plan(bytes, pipeline);
            assert_eq!(burst(&plan, &plan.messages[0]), most, "{pipeline} of {bytes} bytes");
        }
        let several = |bytes| {
            let mut plan = plan(bytes, 256);
            plan.messages.push(plan.messages[0].clone());
            burst(&plan, &plan.messages[0])
        };
        assert_eq!((several(100), several(1_000_000), several(8 << 20)), (256, 1, 1));
    }
}
