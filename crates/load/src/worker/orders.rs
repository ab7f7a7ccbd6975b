//! The orders of a worker and its reports: connecting, running a load, waiting for its end.
//!
//! Orders follow each other on the same connections. Start at [`run`], then [`carry_out`].

use super::{ASKED, Cut, KEPT, LOST, NEVER, OPEN, SERVED, Seat, TRIED, Worker};
use crate::broadcast::Fan;
use crate::connection;
use crate::error::Error;
use crate::pace::{self, Metronome};
use crate::plan::{Message, Pace, Plan};
use crate::schedule::{Arrivals, Profile, Schedule};
use crate::share::share;
use crate::site::Address;
use crate::tally::{Counts, OfUrl, Tally};
use crate::tls::Handshakes;
use crate::turns::Turns;
use ringroad_engine::choose::Choice;
use ringroad_engine::{Builder, DriverName, JoinHandle, Runtime, spawn, time};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::time::{Duration, Instant};

/// How often a worker checks for timeouts and for the end of the load.
pub(crate) const TICK: Duration = Duration::from_millis(20);

/// The least and the most bytes of a receive buffer (the most is the engine's), and of all that a thread has.
const BUFFER_BYTES: (u64, u64) = (4096, 32 << 10);
const BUFFERS_BYTES: u64 = 2 << 20;

/// How often it is told how far the connecting has come.
const TELLING: Duration = Duration::from_millis(100);

/// How long answers are waited for when the load is stopped.
const STOPPING: Duration = Duration::from_secs(1);

/// The input of one worker.
pub(crate) struct Task {
    pub(crate) plan: Arc<Plan>,
    /// Of each server.
    pub(crate) addresses: Arc<[Vec<Address>]>,
    pub(crate) choice: Choice,
    pub(crate) index: u32,
    pub(crate) epoch: Instant,
    pub(crate) stop: Arc<AtomicBool>,
    /// The run is over: a worker that still connects stops.
    pub(crate) over: Arc<AtomicBool>,
    pub(crate) news: mpsc::Sender<News>,
    /// Where the load is a broadcast: what all workers know together.
    pub(crate) fan: Arc<Fan>,
    /// Tallies that come back empty, to be reused.
    pub(crate) spare: mpsc::Receiver<Box<Tally>>,
}

impl Task {
    /// Returns whether the worker has to stop before the end.
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.over.load(Ordering::Relaxed)
    }
}

/// The report of a worker.
pub(crate) enum News {
    /// Progress of connecting: how many connections are open.
    Connecting { index: u32, connected: u32 },
    /// Connecting is over: how many connections are open, and why others are not.
    Ready { connected: u32, counts: Box<Counts>, orders: Orders },
    /// A slice of the measured time is over: a second, or one of the parts of it that the plan wants.
    Slice { index: u32, slice: u32, tally: Box<Tally> },
    /// The end of what was ordered.
    Done { index: u32, done: Box<Done> },
    /// The worker could not work.
    Failed(Error),
}

/// A load to be run on the open connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    /// When it begins, nanoseconds of the epoch.
    pub(crate) begin_ns: u64,
    /// A probe: requests per second instead of the plan's, and what has not left when its time is over is
    /// given up.
    pub(crate) probe: Option<f64>,
    /// None comes after it.
    pub(crate) last: bool,
}

/// The sender of orders to a worker. The worker ends when it is dropped.
pub(crate) type Orders = ringroad_engine::sync::UnboundedSender<Order>;

/// The result of an order.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) counts: Counts,
    /// Active connections that sent a request at all.
    pub(crate) asked: u32,
    /// Those that got an answer.
    pub(crate) served: u32,
    /// Connections that are open at the end.
    pub(crate) open: u32,
    pub(crate) idle_open: u32,
    /// When the wait for a request last ended, with an answer or without; nanoseconds of the epoch.
    pub(crate) last_ns: u64,
    pub(crate) system_calls: u64,
    /// Handshakes since the last load, those before the first among them.
    pub(crate) handshakes: Option<Box<Handshakes>>,
    /// What was measured of each message, if that is kept apart.
    pub(crate) urls: Vec<OfUrl>,
}

/// One worker from start to end, on its thread.
pub(crate) fn run(task: Task) {
    let (news, index) = (task.news.clone(), task.index);
    let told = match work(task) {
        Ok(Some(done)) => News::Done { index, done: Box::new(done) },
        Ok(None) => return,
        Err(why) => News::Failed(why),
    };
    // Without a receiver there is no task that waits for it.
    let _ = news.send(told);
}

fn work(task: Task) -> Result<Option<Done>, Error> {
    let failed = |why: ringroad_engine::Error| Error::failed(why.to_string());
    let runtime = runtime(&task.plan, &task.choice)?;
    let worker = Rc::new(Worker::new(&task));
    let done = runtime.block_on(main(Rc::clone(&worker), &task)).map_err(failed)??;
    Ok(done.map(|done| Done { system_calls: runtime.counters().system_calls, ..done }))
}

/// Makes the runtimes of all threads and processes of a load once, and drops them: where `auto` chose
/// io_uring, and a limit leaves no memory for as many, it takes the next driver. So a load that runs has one
/// driver in all threads.
///
/// # Errors
/// The runtimes can be made on no driver.
pub fn settle(plan: &Plan, choice: &mut Choice) -> Result<(), Error> {
    if !choice.is_auto() || choice.driver() != DriverName::IoUring {
        return Ok(());
    }
    let count = u64::from(plan.threads) * u64::from(plan.processes);
    let all = |choice: &Choice| -> Result<Vec<Runtime>, ringroad_engine::Error> {
        (0..count).map(|_| builder(plan, choice).build()).collect()
    };
    choice.settle(all, |why| Some(why)).map(drop).map_err(|why| Error::failed(why.to_string()))
}

/// Returns the only runtime of a load, which takes the next driver as [`settle`] does. What is made here is
/// kept, so nothing else can take its memory meanwhile.
pub(crate) fn settled(plan: &Plan, choice: &mut Choice) -> Result<Runtime, Error> {
    let made = choice.settle(|choice| builder(plan, choice).build(), |why| Some(why));
    with_places(plan, made)
}

/// Returns a runtime for the load of one thread.
pub(crate) fn runtime(plan: &Plan, choice: &Choice) -> Result<Runtime, Error> {
    with_places(plan, builder(plan, choice).build())
}

fn with_places(plan: &Plan, made: ringroad_engine::Result<Runtime>) -> Result<Runtime, Error> {
    let runtime = made.map_err(|why| Error::failed(why.to_string()))?;
    if plan.direct.is_some() {
        // Better now than once for each connection.
        let way_out = "without direct descriptors --processes N goes past the limit";
        runtime.direct_places().map_err(|why| Error::failed(format!("{why}; {way_out}")))?;
    }
    Ok(runtime)
}

fn builder(plan: &Plan, choice: &Choice) -> Builder {
    // Answers of a benchmark are short, and a turn brings as many as there are connections. What comes back
    // as it was sent is as long as that.
    let longest = plan.messages.iter().map(Message::payload_bytes).max().unwrap_or(0);
    let longest = longest.saturating_mul(u64::from(plan.pipeline)).clamp(BUFFER_BYTES.0, BUFFER_BYTES.1);
    let bytes = longest.next_power_of_two();
    let mut builder = Runtime::builder(choice.driver())
        .features(choice.features())
        .buffers((BUFFERS_BYTES / bytes).min(256) as u16, bytes as usize)
        .workers(plan.connections.saturating_add(plan.idle).max(64));
    if let Some(direct) = plan.direct {
        builder = builder.direct_places(direct.places);
    }
    builder
}

/// Returns what the worker does beside its connections: one order after another. What came of the last;
/// `None`: there was none, and no more is to be done.
async fn main(worker: Rc<Worker>, task: &Task) -> Result<Option<Done>, Error> {
    connect(&worker, task).await;
    let (give, mut orders) = ringroad_engine::sync::unbounded();
    let counts = Box::new(worker.counts.borrow().clone());
    let ready = News::Ready { connected: worker.connected.get(), counts, orders: give };
    if task.news.send(ready).is_err() {
        return Ok(None);
    }
    while let Ok(order) = orders.recv().await {
        let done = carry_out(&worker, task, &order).await?;
        if order.last {
            return Ok(Some(done));
        }
        let _ = task.news.send(News::Done { index: task.index, done: Box::new(done) });
    }
    Ok(None)
}

/// Puts one load on and waits for its end.
async fn carry_out(worker: &Rc<Worker>, task: &Task, order: &Order) -> Result<Done, Error> {
    worker.begin_order(order.last);
    let pacing = begin_load(worker, task, order);
    let slice = measure(worker, task, order).await;
    if let Some(pacing) = pacing {
        pacing.cancel();
    }
    let slice = slice?;
    worker.give_up(worker.now(), order.probe.is_some());
    let tally = worker.take_tally(task);
    let _ = task.news.send(News::Slice { index: task.index, slice, tally });
    worker.tell_statuses();
    worker.tell_heads();
    let flagged = |flag| worker.seats.iter().filter(|seat| seat.has(flag)).count() as u32;
    if worker.hold().is_some() {
        let held = &mut worker.counts.borrow_mut().held;
        held.opened = u64::from(flagged(OPEN | LOST | KEPT));
        let survived = |seat: &&Seat| seat.has(OPEN | KEPT) && !seat.has(LOST);
        held.survived = worker.seats.iter().filter(survived).count() as u64;
    }
    let done = Done {
        asked: flagged(ASKED),
        served: flagged(SERVED),
        open: flagged(OPEN),
        idle_open: worker.idle_open.get(),
        last_ns: worker.last_ns.get(),
        counts: worker.counts.take(),
        system_calls: 0,
        handshakes: worker.handshakes.take(),
        urls: worker.take_urls(),
    };
    worker.end_order();
    Ok(done)
}

/// Opens all connections, so many at a time, until all have had a try, none was made for as long as the
/// timeout, or the time for all of it is over.
pub(crate) async fn connect(worker: &Rc<Worker>, task: &Task) {
    let begun = worker.now();
    let limit = worker.plan.timeout.as_nanos() as u64;
    let count = worker.seats.len() as u32;
    let idle = share(u64::from(worker.plan.idle), task.index, worker.plan.threads) as u32;
    let whole = worker.plan.connect_limit.as_nanos() as u64;
    let (mut next, mut made, mut progress, mut told) = (0, 0, begun, begun);
    loop {
        // Those of all workers are one after the other.
        let turns = Turns::from((task.index, worker.plan.threads));
        let allowed =
            worker.plan.connect_rate.map_or(f64::INFINITY, |rate| (worker.now() - begun) as f64 / 1e9 * rate);
        while next < count + idle
            && worker.connecting.get() < worker.plan.connecting_max
            && turns.number(next.into()) as f64 <= allowed
        {
            // What is connecting counts from here, or all would be spawned at once.
            worker.connecting.set(worker.connecting.get() + 1);
            if next < count {
                spawn(connection::drive(Rc::clone(worker), next)).detach();
            } else {
                spawn(connection::idle(Rc::clone(worker))).detach();
            }
            next += 1;
        }
        let all = next == count + idle;
        let is_held_back = !all && worker.connecting.get() < worker.plan.connecting_max;
        let tried = worker.seats.iter().all(|seat| seat.has(TRIED)) && worker.connecting.get() == 0;
        let now = worker.now();
        worker.sweep(now);
        let connects = worker.counts.borrow().connects;
        if connects != made || is_held_back {
            (made, progress) = (connects, now);
        }
        if all && tried || now - progress >= limit || now - begun >= whole || task.is_stopped() {
            return;
        }
        if now - told >= TELLING.as_nanos() as u64 {
            told = now;
            let connected = worker.connected.get();
            let _ = task.news.send(News::Connecting { index: task.index, connected });
        }
        time::sleep(Duration::from_millis(1)).await;
    }
}

/// Sets the times, and wakes all connections. Returns the task that hands out arrivals, in open loop.
fn begin_load(worker: &Rc<Worker>, task: &Task, order: &Order) -> Option<JoinHandle<()>> {
    let (plan, begin_ns) = (&*task.plan, order.begin_ns);
    let window = begin_ns + plan.warmup.as_nanos() as u64;
    let end = plan.duration.map_or(NEVER - 1, |length| window + length.as_nanos() as u64);
    worker.begin_ns.set(begin_ns);
    worker.window_ns.set(window);
    worker.end_ns.set(end);
    if plan.stages.is_some() && !worker.is_open_loop() {
        worker.active.set(0);
        worker.set_active(task, window);
    }
    // Without a duration the count ends it.
    let length = plan.duration.map_or(Duration::from_secs(1 << 30), |length| plan.warmup + length);
    let timed = match plan.pace {
        Pace::Closed => None,
        Pace::Open { per_second, arrivals } => {
            let count = plan.count.map_or(u64::MAX, |count| share(count, task.index, plan.threads));
            let profile = match &plan.stages {
                Some(stages) => stages.after(plan.warmup),
                None => Profile::constant(order.probe.unwrap_or(per_second), length),
            };
            Some((profile, arrivals, worker.arrival_turns(), count))
        }
        Pace::Hold(hold) => {
            // One after the other, so that each has its own every interval, and all together, those of other
            // workers among them, are no burst.
            let per_second = f64::from(plan.connections) / hold.heartbeat.as_secs_f64();
            let turns = Turns::from((task.index, plan.threads)).of_connections(plan.connections);
            Some((Profile::constant(per_second, length), Arrivals::Constant, turns, u64::MAX))
        }
    };
    let pacing = timed.map(|(profile, arrivals, of, count)| {
        let seed = plan.seed;
        let lead = pace::lead(profile.most() / of.workers() as f64);
        let make = move || Schedule::new(Rc::new(profile), arrivals, of, seed, count);
        *worker.schedule.borrow_mut() = Some(make.clone()());
        spawn(dispatcher(Rc::clone(worker), task.epoch + Duration::from_nanos(begin_ns), lead, make))
    });
    worker.seats.iter().for_each(Seat::wake);
    pacing
}

/// Hands out arrivals whenever the metronome, which it owns, signals that some are due, or will be within the
/// lead time.
async fn dispatcher(
    worker: Rc<Worker>,
    begin: Instant,
    lead: Duration,
    make: impl FnOnce() -> Schedule + Send + 'static,
) {
    let mut make = Some(make);
    let mut metronome = None;
    poll_fn(|context| {
        if let Some(make) = make.take() {
            match Metronome::start(begin, lead, make, context.waker().clone()) {
                Ok(thread) => metronome = Some(thread),
                Err(why) => {
                    *worker.trouble.borrow_mut() = Some(Error::failed(format!("starting a thread: {why}")));
                }
            }
        }
        if worker.dispatch(worker.now(), lead) {
            // The metronome has signalled this one early: from here the clock is polled between turns until
            // it is due.
            context.waker().wake_by_ref();
        }
        Poll::<()>::Pending
    })
    .await;
    drop(metronome);
}

/// Lets the load run to its end: hands on the slices, ends what takes too long. The last slice's number.
async fn measure(worker: &Rc<Worker>, task: &Task, order: &Order) -> Result<u32, Error> {
    let plan = &*task.plan;
    let mut stopped = None;
    let limit = plan.timeout.as_nanos() as u64;
    let mut slice = 0;
    let (mut quiet_since, mut seen) = (worker.now(), 0);
    loop {
        time::sleep(TICK).await;
        if let Some(trouble) = worker.trouble.take() {
            return Err(trouble);
        }
        let now = worker.now();
        worker.sweep(now);
        worker.set_active(task, now);
        let slice_ends =
            worker.window_ns.get() + u64::from(slice + 1) * 1_000_000_000 / u64::from(plan.slices);
        if now >= slice_ends && slice_ends < worker.end_ns.get() {
            let waiting_ns = worker.waiting_ns(now);
            let mut tally = worker.take_tally(task);
            tally.waiting_ns = waiting_ns;
            let _ = task.news.send(News::Slice { index: task.index, slice, tally });
            slice += 1;
        }
        if stopped.is_none() && task.is_stopped() {
            // Nothing more is sent, and what is on its way gets a moment, so that the counts of both sides
            // agree.
            stopped = Some(now);
            worker.end_ns.set(worker.end_ns.get().min(now));
            worker.give_up(now, false);
        }
        if order.probe.is_some() && now >= worker.end_ns.get() {
            worker.give_up(now, true);
        }
        if worker.is_exhausted(now) && worker.in_flight.get() == 0 && worker.is_delivered(now) {
            return Ok(slice);
        }
        let progress = {
            let counts = worker.counts.borrow();
            counts.sent + counts.completed
        };
        if progress != seen || worker.nothing_is_due(now) {
            (seen, quiet_since) = (progress, now);
        }
        let overdue = now >= worker.end_ns.get().saturating_add(limit);
        // A count that cannot be reached: no connection, no answer.
        let stuck = plan.duration.is_none() && now - quiet_since >= limit.saturating_mul(2);
        let is_over = stopped.is_some_and(|since| now - since >= STOPPING.as_nanos() as u64);
        if overdue || stuck || is_over {
            // Each connection counts what it waits for, and its end with it, by the next look.
            let how = if is_over { Cut::Stopped } else { Cut::Overdue };
            if worker.in_flight.get() == 0 || worker.cut.get().is_some() {
                return Ok(slice);
            }
            // Nothing may follow what is cut off.
            worker.give_up(now, order.probe.is_some());
            worker.cut_off(how);
        }
    }
}
