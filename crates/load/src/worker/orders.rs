//! What a worker is told to do, how it does it, and what it tells of it: connecting, putting a load on, seeing it to its end.
//!
//! Orders come one after the other on the connections there are. Start at [`run`], then [`carry_out`].

use super::{ASKED, Kind, LOST, NEVER, OPEN, SERVED, Seat, TRIED, Worker, share};
use crate::connection;
use crate::error::Error;
use crate::pace::{self, Metronome};
use crate::plan::{Message, Pace, Plan};
use crate::schedule::{Arrivals, Profile, Schedule};
use crate::tally::{Counts, Tally};
use crate::tls::Handshakes;
use ringroad_engine::choose::Choice;
use ringroad_engine::{JoinHandle, Runtime, spawn, time};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::time::{Duration, Instant};

/// How often a worker looks whether something took too long, or all is over.
pub(crate) const TICK: Duration = Duration::from_millis(20);

/// The least and the most bytes of a receive buffer (the most is the engine's), and of all that a thread has.
const BUFFER_BYTES: (u64, u64) = (4096, 32 << 10);
const BUFFERS_BYTES: u64 = 2 << 20;

/// How long answers are waited for when the load is stopped.
const STOPPING: Duration = Duration::from_secs(1);

/// What one worker is given.
pub(crate) struct Task {
    pub(crate) plan: Arc<Plan>,
    pub(crate) addresses: Arc<[SocketAddr]>,
    pub(crate) choice: Choice,
    pub(crate) index: u32,
    pub(crate) epoch: Instant,
    pub(crate) stop: Arc<AtomicBool>,
    /// The run is over: who still connects is to leave it.
    pub(crate) over: Arc<AtomicBool>,
    pub(crate) news: mpsc::Sender<News>,
    /// Tallies that were used and are empty again.
    pub(crate) spare: mpsc::Receiver<Box<Tally>>,
}

impl Task {
    /// Whether it is time to leave, before the end.
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.over.load(Ordering::Relaxed)
    }
}

/// What a worker tells.
pub(crate) enum News {
    /// All connections are there, or cannot be had: how many are, and why others are not.
    Ready { connected: u32, counts: Box<Counts>, orders: Orders },
    /// A second of the measured time is over.
    Second { index: u32, second: u32, tally: Box<Tally> },
    /// The end of what was ordered.
    Done { index: u32, done: Box<Done> },
    /// The worker could not work.
    Failed(Error),
}

/// A load that is to be put on the connections there are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    /// When it begins, nanoseconds of the epoch.
    pub(crate) begin_ns: u64,
    /// A probe: requests per second instead of the plan's, and what has not left when its time is over is given up.
    pub(crate) probe: Option<f64>,
    /// None comes after it.
    pub(crate) last: bool,
}

/// How a worker is told what to do. Dropped: that it is to end.
pub(crate) type Orders = ringroad_engine::sync::UnboundedSender<Order>;

/// What came of an order.
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
    /// When the last answer came, nanoseconds of the epoch.
    pub(crate) last_ns: u64,
    pub(crate) system_calls: u64,
    /// Handshakes since the last load, those before the first among them.
    pub(crate) handshakes: Option<Box<Handshakes>>,
}

/// One worker from start to end, on its thread.
pub(crate) fn run(task: Task) {
    let (news, index) = (task.news.clone(), task.index);
    let told = match work(task) {
        Ok(Some(done)) => News::Done { index, done: Box::new(done) },
        Ok(None) => return,
        Err(why) => News::Failed(why),
    };
    // Nobody listens: then nobody waits either.
    let _ = news.send(told);
}

fn work(task: Task) -> Result<Option<Done>, Error> {
    let failed = |why: ringroad_engine::Error| Error::failed(why.to_string());
    let runtime = runtime(&task.plan, &task.choice)?;
    let worker = Rc::new(Worker::new(&task));
    let done = runtime.block_on(main(Rc::clone(&worker), &task)).map_err(failed)??;
    Ok(done.map(|done| Done { system_calls: runtime.counters().system_calls, ..done }))
}

/// A runtime for the load of one thread.
pub(crate) fn runtime(plan: &Plan, choice: &Choice) -> Result<Runtime, Error> {
    // Answers of a benchmark are short, and a turn brings as many as there are connections. What comes back as it was sent
    // is as long as that.
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
    let runtime = builder.build().map_err(|why| Error::failed(why.to_string()))?;
    if plan.direct.is_some() {
        // Better now than once for each connection.
        let way_out = "without direct descriptors --processes N goes past the limit";
        runtime.direct_places().map_err(|why| Error::failed(format!("{why}; {way_out}")))?;
    }
    Ok(runtime)
}

/// What the worker does beside its connections: one order after another. What came of the last; `None`: there was none,
/// and no more is to be done.
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
    for seat in &worker.seats {
        seat.unset(ASKED | SERVED);
    }
    worker.last.set(order.last);
    let pacing = begin_load(worker, task, order);
    let second = measure(worker, task, order).await;
    if let Some(pacing) = pacing {
        pacing.cancel();
    }
    let second = second?;
    worker.give_up(worker.now(), order.probe.is_some());
    let tally = worker.take_tally(task);
    let _ = task.news.send(News::Second { index: task.index, second, tally });
    let flagged = |flag| worker.seats.iter().filter(|seat| seat.has(flag)).count() as u32;
    if worker.hold().is_some() {
        let held = &mut worker.counts.borrow_mut().held;
        held.opened = u64::from(flagged(OPEN | LOST));
        held.survived = worker.seats.iter().filter(|seat| seat.has(OPEN) && !seat.has(LOST)).count() as u64;
    }
    Ok(Done {
        asked: flagged(ASKED),
        served: flagged(SERVED),
        open: flagged(OPEN),
        idle_open: worker.idle_open.get(),
        last_ns: worker.last_ns.get(),
        counts: worker.counts.take(),
        system_calls: 0,
        handshakes: worker.handshakes.take(),
    })
}

/// Opens all connections, so many at a time, until all have had a try or the time for it is over.
pub(crate) async fn connect(worker: &Rc<Worker>, task: &Task) {
    let begun = worker.now();
    let limit = worker.plan.timeout.as_nanos() as u64;
    let count = worker.seats.len() as u32;
    let idle = share(u64::from(worker.plan.idle), task.index, worker.plan.threads) as u32;
    let (mut next, mut last) = (0, begun);
    loop {
        let allowed = worker.plan.connect_rate.map_or(f64::INFINITY, |rate| {
            1.0 + (worker.now() - begun) as f64 / 1e9 * rate / f64::from(worker.plan.threads)
        });
        while next < count + idle
            && worker.connecting.get() < worker.plan.connecting_max
            && f64::from(next) < allowed
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
        if !all {
            // The time for connecting begins with the last that is let go.
            last = worker.now();
        }
        let tried = worker.seats.iter().all(|seat| seat.has(TRIED)) && worker.connecting.get() == 0;
        let now = worker.now();
        worker.sweep(now);
        let hopeless = now - last >= limit || now - begun >= limit && worker.counts.borrow().connects == 0;
        if all && tried || hopeless || task.is_stopped() {
            return;
        }
        time::sleep(Duration::from_millis(1)).await;
    }
}

/// Sets the times, and wakes everybody. What hands out arrivals, in open loop.
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
            Some((profile, arrivals, (task.index, plan.threads), count))
        }
        Pace::Hold(hold) => {
            // One after the other, so that each has its own every interval, and all together are no burst.
            let per_second = worker.seats.len() as f64 / hold.heartbeat.as_secs_f64();
            Some((Profile::constant(per_second, length), Arrivals::Constant, (0, 1), u64::MAX))
        }
    };
    let pacing = timed.map(|(profile, arrivals, of, count)| {
        let seed = plan.seed;
        let lead = pace::lead(profile.most() / f64::from(of.1));
        let make = move || Schedule::new(Rc::new(profile), arrivals, of, seed, count);
        *worker.schedule.borrow_mut() = Some(make.clone()());
        spawn(dispatcher(Rc::clone(worker), task.epoch + Duration::from_nanos(begin_ns), lead, make))
    });
    worker.seats.iter().for_each(Seat::wake);
    pacing
}

/// Hands out arrivals whenever the metronome, which it owns, says that there are some, or will be in a moment.
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
            // The metronome has said its word for this one: now the clock is looked at until it is due, between turns.
            context.waker().wake_by_ref();
        }
        Poll::<()>::Pending
    })
    .await;
    drop(metronome);
}

/// Lets the load run to its end: hands on the seconds, ends what takes too long. The last second's number.
async fn measure(worker: &Rc<Worker>, task: &Task, order: &Order) -> Result<u32, Error> {
    let plan = &*task.plan;
    let mut stopped = None;
    let limit = plan.timeout.as_nanos() as u64;
    let mut second = 0;
    let (mut quiet_since, mut seen) = (worker.now(), 0);
    loop {
        time::sleep(TICK).await;
        if let Some(trouble) = worker.trouble.take() {
            return Err(trouble);
        }
        let now = worker.now();
        worker.sweep(now);
        worker.set_active(task, now);
        let second_ends = worker.window_ns.get() + u64::from(second + 1) * 1_000_000_000;
        if now >= second_ends && second_ends < worker.end_ns.get() {
            let tally = worker.take_tally(task);
            let _ = task.news.send(News::Second { index: task.index, second, tally });
            second += 1;
        }
        if stopped.is_none() && task.is_stopped() {
            // Nothing more is sent, and what is on its way gets a moment, so that the counts of both sides agree.
            stopped = Some(now);
            worker.end_ns.set(worker.end_ns.get().min(now));
            worker.give_up(now, false);
        }
        if stopped.is_some_and(|since| now - since >= STOPPING.as_nanos() as u64) {
            return Ok(second);
        }
        if order.probe.is_some() && now >= worker.end_ns.get() {
            worker.give_up(now, true);
        }
        if worker.is_exhausted(now) && worker.in_flight.get() == 0 {
            return Ok(second);
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
        if overdue || stuck {
            let left = worker.in_flight.get();
            worker.failed(Kind::Timeout, left, "no answer by the end");
            return Ok(second);
        }
    }
}
