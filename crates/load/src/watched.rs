//! A closed loop under the control of its caller, which decides the phases and looks at the load between two
//! of them.
//!
//! For a harness that reads clocks of its own (a server's CPU time, the machine's steal) at the edges of a
//! measured time. All of it is one thread, the caller's: while it is looked at nothing is sent and nothing is
//! taken in, so what was counted belongs to that moment exactly. All other callers use
//! [`run()`](crate::run()). Start at [`watched`].

use crate::error::Error;
use crate::plan::{Pace, Plan};
use crate::tally::{Counts, Tally};
use crate::worker::{self, Kind, TICK, Task, Worker};
use ringroad_engine::DriverName;
use ringroad_engine::choose::Choice;
use ringroad_engine::time;
use ringroad_measure::Histogram;
use std::fmt;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// How often it is looked whether all that is owed has come.
const DRAIN_TICK: Duration = Duration::from_millis(1);

/// What a load has come to.
pub struct Look<'a> {
    /// Connections that are open; with one for each request those on their way too. 0: no connection is left
    /// that could send.
    pub live: u32,
    /// Connections that have got an answer.
    pub served: u32,
    /// Requests on their way.
    pub in_flight: u64,
    /// Counts since the beginning.
    pub counts: &'a Counts,
    /// Latencies since the measuring began; before that since the beginning.
    pub latencies: &'a Histogram,
    worker: &'a Worker,
}

impl fmt::Debug for Look<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Look { live, served, in_flight, .. } = self;
        let mut text = f.debug_struct("Look");
        text.field("live", live).field("served", served).field("in_flight", in_flight).finish_non_exhaustive()
    }
}

impl Look<'_> {
    /// Returns how long the oldest request of each connection has waited until now, nanoseconds.
    pub fn waiting(&self) -> Vec<u64> {
        self.worker.waiting(self.worker.now()).collect()
    }
}

/// What is to happen until the next look, which comes when the time is over, or as soon as no connection is
/// left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It goes on.
    Go(Duration),
    /// It goes on, and the latencies so far are forgotten.
    Measure(Duration),
    /// Nothing more is sent; the look comes also when all that was asked is answered.
    Drain(Duration),
    /// It is over.
    Leave,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// The driver that it ran on: where `auto` chose, the next one if a ring found no memory.
    pub driver: Option<DriverName>,
    /// Connections that were made before the load began.
    pub connected: u32,
    /// Connections that got an answer.
    pub served: u32,
    /// Counts from the beginning to the end.
    pub counts: Counts,
    /// Connections that the server ended, with nothing owed, while requests were being sent.
    pub closed: u64,
}

/// Puts a closed loop on by the calling thread. The first look comes before anything is connected, and its
/// [`Next`] is to go on; the second when the connections are there, or cannot be had, before anything is
/// sent. Of the plan, `duration`, `count` and `warmup` are ignored: the caller decides.
///
/// # Errors
/// The plan makes no sense or is not for one thread, or this machine gives no driver. What the server does
/// wrong is counted.
pub fn watched(
    plan: &Plan,
    choice: &Choice,
    watch: &mut dyn FnMut(&Look<'_>) -> Next,
) -> Result<Watched, Error> {
    plan.check()?;
    if plan.pace != Pace::Closed || plan.stages.is_some() || plan.workers() != 1 || plan.idle > 0 {
        return Err(Error::usage(
            "a load under the control of its caller: one thread, a closed loop, no stages, no idle connections",
        ));
    }
    let addresses = plan.places().map(|place| place.resolve()).collect::<Result<Vec<_>, _>>()?;
    // Without a receiver: the caller sees everything through `watch`.
    let (news, spare) = (mpsc::channel().0, mpsc::channel());
    // Written to now, so that the kernel finds its pages now and not amid a measurement.
    let mut tally = Box::new(Tally::new(false));
    tally.clear();
    let _ = spare.0.send(tally);
    let task = Task {
        plan: Arc::new(plan.clone()),
        addresses: addresses.into(),
        choice: choice.clone(),
        index: 0,
        epoch: Instant::now(),
        stop: Arc::default(),
        over: Arc::default(),
        news,
        fan: Arc::default(),
        spare: spare.1,
    };
    let mut choice = choice.clone();
    let runtime = worker::settled(plan, &mut choice)?;
    let worker = Rc::new(Worker::new(&task));
    let watched = runtime.block_on(put_on(worker, &task, &spare.0, watch));
    let watched = watched.map_err(|why| Error::failed(why.to_string()))?;
    Ok(Watched { driver: Some(choice.driver()), ..watched })
}

async fn put_on(
    worker: Rc<Worker>,
    task: &Task,
    back: &mpsc::Sender<Box<Tally>>,
    watch: &mut dyn FnMut(&Look<'_>) -> Next,
) -> Watched {
    // What is read before the connections is read before the first of them.
    let _ = look(&worker, watch);
    worker::connect(&worker, task).await;
    let connected = worker.connected.get();
    let mut closed = None;
    let mut next = look(&worker, watch);
    worker.begin(worker.now());
    loop {
        let (time, tick) = match next {
            Next::Go(time) => (time, TICK),
            Next::Measure(time) => {
                // Reuse the previous tally: the kernel has already faulted in its pages.
                let mut before = worker.take_tally(task);
                before.clear();
                let _ = back.send(before);
                (time, TICK)
            }
            Next::Drain(time) => {
                closed = Some(worker.counts.borrow().closed_in_order);
                worker.end_ns.set(worker.now());
                (time, DRAIN_TICK)
            }
            Next::Leave => break,
        };
        let is_drain = matches!(next, Next::Drain(_));
        let until = worker.now().saturating_add(time.as_nanos() as u64);
        loop {
            let now = worker.now();
            let is_over = if is_drain { worker.in_flight.get() == 0 } else { live(&worker) == 0 };
            if now >= until || is_over {
                break;
            }
            time::sleep(tick.min(Duration::from_nanos(until - now))).await;
            worker.sweep(worker.now());
        }
        next = look(&worker, watch);
    }
    worker.failed(Kind::Timeout, worker.in_flight.get(), "no answer by the end");
    worker.tell_statuses();
    let counts = worker.counts.take();
    let driver = None;
    Watched {
        driver,
        connected,
        served: worker.served(),
        closed: closed.unwrap_or(counts.closed_in_order),
        counts,
    }
}

fn look(worker: &Worker, watch: &mut dyn FnMut(&Look<'_>) -> Next) -> Next {
    watch(&Look {
        live: live(worker),
        served: worker.served(),
        in_flight: worker.in_flight.get(),
        counts: &worker.counts.borrow(),
        latencies: &worker.tally.borrow().latencies.response,
        worker,
    })
}

/// Returns where connections come and go with their requests, those that come are there too.
fn live(worker: &Worker) -> u32 {
    let coming = if worker.plan.one_request_per_connection { worker.connecting.get() } else { 0 };
    worker.connected.get() + coming
}
