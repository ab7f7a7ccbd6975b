//! A run: workers on their threads, the clocks at the edges of the measured time, and everything added up.
//!
//! Start at [`run`].

use crate::error::Error;
use crate::plan::Plan;
use crate::tally::{Counts, Tally};
use crate::tls::Handshakes;
use crate::worker::{self, Done, News, Order, Orders, Task};
use ringroad_engine::choose::Choice;
use ringroad_host::cpu::{self, MachineTimes, ProcessClock};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Most points in a series; when there are more, every two become one.
const SERIES_MAX: usize = 3600;

/// How often the conductor looks whether it was interrupted.
const LOOK: Duration = Duration::from_millis(50);

/// What came of a load.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The addresses its name had.
    pub addresses: Vec<SocketAddr>,
    /// Active connections there were when the load began.
    pub connected: u32,
    /// Active connections that sent a request.
    pub asked: u32,
    /// Active connections that got an answer.
    pub served: u32,
    /// Active connections that were open at the end.
    pub open_at_end: u32,
    /// Idle connections that were open at the end.
    pub idle_at_end: u32,
    /// Counts of the whole run.
    pub counts: Counts,
    /// What was measured.
    pub tally: Tally,
    /// The measured time.
    pub window: Duration,
    /// The window second by second.
    pub series: Vec<Point>,
    /// The window stage by stage, where the plan has stages.
    pub stages: Vec<Stage>,
    /// Handshakes, where there is TLS.
    pub handshakes: Option<Handshakes>,
    /// What the client itself did.
    pub client: Client,
    /// It was stopped before its end.
    pub interrupted: bool,
}

/// A stage of the load. A second belongs to the stage in which it begins.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// Connections, or requests per second, at its beginning.
    pub from: f64,
    /// And at its end.
    pub to: f64,
    /// How long its seconds are together.
    pub seconds: f64,
    /// What was measured in them.
    pub tally: Tally,
}

/// A second of the window, or several where there are very many.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Point {
    /// When it begins, seconds of the window.
    pub at_s: u32,
    /// How long it is, seconds.
    pub seconds: u32,
    /// Good answers.
    pub completed: u64,
    /// Failures.
    pub failed: u64,
    /// Median response latency, nanoseconds; `None` without answers. Of several seconds the largest.
    pub p50_ns: Option<u64>,
    /// Its 99th percentile likewise.
    pub p99_ns: Option<u64>,
    /// Its largest.
    pub max_ns: Option<u64>,
}

/// What the client cost in the window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Client {
    /// CPU time of all its threads.
    pub cpu: Option<Duration>,
    /// Time its threads were ready and waited for a CPU.
    pub wait: Option<Duration>,
    /// What the hypervisor took, share of the machine's time.
    pub steal_share: Option<f64>,
    /// System calls of all drivers, in the whole run.
    pub system_calls: u64,
}

/// Something a person may want to see while it happens.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// The connections are there, or as many of them as could be made.
    Connected {
        /// How many.
        connections: u32,
        /// Of how many.
        wanted: u32,
    },
    /// A second of the measured time.
    Second(Point),
    /// A probe of a search is over.
    Probe {
        /// Its rate, requests per second.
        per_second: f64,
        /// Why what was demanded is not so; `None`: it is.
        unmet: Option<String>,
    },
}

/// Puts the load on and waits for its end. Setting `stop` ends it early, within a fraction of a second.
///
/// # Errors
/// The plan makes no sense, the name has no address, no connection could be made, or this machine gives no threads or
/// no driver. What the server does wrong afterwards is counted in the outcome.
pub fn run(
    plan: &Plan,
    choice: &Choice,
    stop: &Arc<AtomicBool>,
    observe: &mut dyn FnMut(&Event),
) -> Result<Outcome, Error> {
    with_workers(plan, choice, stop, |conductor, stand| {
        conductor.gather(stand.plan, observe)?;
        conductor.carry_out(stand, None, true, observe)
    })
}

/// What a conductor conducts.
pub(crate) struct Stand<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) addresses: &'a [SocketAddr],
    pub(crate) stop: &'a AtomicBool,
}

/// Starts the workers, has `work` done with them, and ends them.
pub(crate) fn with_workers<R>(
    plan: &Plan,
    choice: &Choice,
    stop: &Arc<AtomicBool>,
    work: impl FnOnce(&mut Conductor, &Stand<'_>) -> Result<R, Error>,
) -> Result<R, Error> {
    plan.check()?;
    let addresses = plan.target.resolve()?;
    let (news, heard) = mpsc::channel();
    let mut conductor = Conductor::new(plan, Instant::now(), heard);
    let plan = Arc::new(plan.clone());
    let shared: Arc<[SocketAddr]> = addresses.into();
    // A word to the workers alone, and not to whoever asked for the load.
    let over = Arc::new(AtomicBool::new(false));
    let mut threads = Vec::new();
    for index in 0..plan.threads {
        let (give, spare) = mpsc::channel();
        for _ in 0..2 {
            // Written to now, so that the kernel finds its pages now and not amid a measurement.
            let mut tally = Box::new(Tally::new(conductor.open));
            tally.clear();
            let _ = give.send(tally);
        }
        conductor.spare.push(give);
        let task = Task {
            plan: Arc::clone(&plan),
            addresses: Arc::clone(&shared),
            choice: choice.clone(),
            index,
            epoch: conductor.epoch,
            stop: Arc::clone(stop),
            over: Arc::clone(&over),
            news: news.clone(),
            spare,
        };
        let thread = thread::Builder::new().name(format!("load {index}")).spawn(move || worker::run(task));
        threads.push(thread.map_err(|why| Error::failed(format!("starting a thread: {why}")))?);
    }
    // So that hearing ends when the workers have.
    drop(news);
    let done = work(&mut conductor, &Stand { plan: &plan, addresses: &shared, stop });
    // Told not to begin, or done: none of them waits for anything. Without this word one that still connects would.
    over.store(true, Ordering::Relaxed);
    drop(conductor);
    for thread in threads {
        if thread.join().is_err() {
            return Err(Error::failed(
                "a thread of the load has panicked, which is a mistake of this program",
            ));
        }
    }
    done
}

/// Clocks at an edge of the window.
struct Edge {
    cpu: Option<Duration>,
    wait_ns: Option<u64>,
    machine: Option<MachineTimes>,
}

impl Edge {
    fn now() -> Edge {
        let wait_ns = cpu::split(std::process::id()).ok().and_then(|split| split.wait_ns);
        Edge { machine: cpu::machine().ok(), wait_ns, cpu: ProcessClock::own().read().ok() }
    }
}

/// Collects what the workers tell.
pub(crate) struct Conductor {
    heard: mpsc::Receiver<News>,
    epoch: Instant,
    open: bool,
    workers: u32,
    spare: Vec<mpsc::Sender<Box<Tally>>>,
    /// How workers that are ready are told what to do.
    orders: Vec<Orders>,
    connected: u32,
    /// Seconds that not all workers have told yet.
    seconds: BTreeMap<u32, (u32, Tally)>,
    total: Tally,
    stages: Vec<Stage>,
    /// When each of them ends, seconds of the window.
    stage_ends: Vec<f64>,
    series: Vec<Point>,
    /// Seconds in a point of the series.
    step: u32,
    done: Vec<Done>,
}

impl Conductor {
    fn new(plan: &Plan, epoch: Instant, heard: mpsc::Receiver<News>) -> Conductor {
        let open = plan.pace.is_timed();
        let stages: Vec<_> = plan.stages.as_ref().map(|stages| stages.pieces().collect()).unwrap_or_default();
        Conductor {
            heard,
            epoch,
            open,
            workers: plan.threads,
            spare: Vec::new(),
            orders: Vec::new(),
            connected: 0,
            seconds: BTreeMap::new(),
            total: Tally::new(open),
            stages: stages
                .iter()
                .map(|(_, from, to)| Stage { from: *from, to: *to, seconds: 0.0, tally: Tally::new(open) })
                .collect(),
            stage_ends: stages.iter().map(|(end, ..)| *end).collect(),
            series: Vec::new(),
            step: 1,
            done: Vec::new(),
        }
    }

    /// Waits until every worker has its connections.
    pub(crate) fn gather(&mut self, plan: &Plan, observe: &mut dyn FnMut(&Event)) -> Result<(), Error> {
        let mut failures = Counts::default();
        while self.orders.len() < self.workers as usize {
            match self.heard.recv() {
                Ok(News::Ready { connected, counts, orders }) => {
                    self.connected += connected;
                    failures.add(&counts);
                    self.orders.push(orders);
                }
                Ok(News::Failed(why)) => return Err(why),
                Ok(_) => {}
                Err(_) => return Err(silence()),
            }
        }
        if self.connected == 0 {
            let failure = failures.failures.iter().max_by_key(|(_, count)| **count);
            let why = failure.map_or("no answer in time", |(why, _)| why);
            let why = why.strip_prefix("connect: ").unwrap_or(why);
            let hint = match why {
                why if why.contains("refused") => " (nothing listens there)",
                why if why.contains("certificate") => " (--cacert FILE, or --insecure to believe anybody)",
                _ => "",
            };
            return Err(Error::failed(format!("connect, on {}: {why}{hint}", plan.target)));
        }
        observe(&Event::Connected { connections: self.connected, wanted: plan.connections });
        Ok(())
    }

    /// Has a load put on, at this rate if it is a probe, and waits for its end.
    pub(crate) fn carry_out(
        &mut self,
        stand: &Stand<'_>,
        probe: Option<f64>,
        last: bool,
        observe: &mut dyn FnMut(&Event),
    ) -> Result<Outcome, Error> {
        let &Stand { plan, addresses, stop } = stand;
        // Not in the future: what a worker sends as soon as it is told would fall before it, and not be measured.
        let begin = self.epoch.elapsed();
        let order = Order { begin_ns: begin.as_nanos() as u64, probe, last };
        for worker in &self.orders {
            // One that is gone has told why, or its silence is noticed.
            let _ = worker.try_send(order);
        }
        let from = begin + plan.warmup;
        self.listen(Some(from), stop, observe)?;
        let first = Edge::now();
        let until = plan.duration.map(|length| from + length);
        self.listen(until, stop, observe)?;
        let last = Edge::now();
        let ended = self.epoch.elapsed();
        self.listen(None, stop, observe)?;
        let interrupted = stop.load(Ordering::Relaxed);
        // What not all have told: the last of each worker, and where one ended before others.
        for (second, (_, tally)) in std::mem::take(&mut self.seconds) {
            self.add(second, &tally);
        }
        let dones = std::mem::take(&mut self.done);
        let last_answer = dones.iter().map(|done| Duration::from_nanos(done.last_ns)).max();
        let end = match until {
            // Where nothing was left to do before it, what there was has ended then.
            Some(until) if !interrupted => until.min(ended),
            _ if interrupted => ended,
            _ => last_answer.unwrap_or(ended),
        };
        let sum = |what: fn(&Done) -> u32| dones.iter().map(what).sum();
        let mut counts = Counts::default();
        dones.iter().for_each(|done| counts.add(&done.counts));
        let client = Client {
            cpu: last.cpu.zip(first.cpu).and_then(|(last, first)| last.checked_sub(first)),
            wait: last
                .wait_ns
                .zip(first.wait_ns)
                .and_then(|(last, first)| last.checked_sub(first))
                .map(Duration::from_nanos),
            steal_share: last
                .machine
                .zip(first.machine)
                .and_then(|(last, first)| last.steal_share_since(&first)),
            system_calls: dones.iter().map(|done| done.system_calls).sum(),
        };
        let handshakes = plan.tls.is_some().then(|| {
            let mut all = Handshakes::default();
            dones.iter().filter_map(|done| done.handshakes.as_deref()).for_each(|part| all.add(part));
            all
        });
        Ok(Outcome {
            addresses: addresses.to_vec(),
            connected: self.connected,
            asked: sum(|done| done.asked),
            served: sum(|done| done.served),
            open_at_end: sum(|done| done.open),
            idle_at_end: sum(|done| done.idle_open),
            counts,
            tally: std::mem::replace(&mut self.total, Tally::new(self.open)),
            window: end.saturating_sub(from),
            series: std::mem::take(&mut self.series),
            stages: std::mem::take(&mut self.stages),
            handshakes,
            client,
            interrupted,
        })
    }

    /// Takes in what is told until this time of the epoch, or until all workers are done.
    fn listen(
        &mut self,
        until: Option<Duration>,
        stop: &AtomicBool,
        observe: &mut dyn FnMut(&Event),
    ) -> Result<(), Error> {
        while self.done.len() < self.workers as usize {
            let left = match until {
                Some(until) => match until.checked_sub(self.epoch.elapsed()) {
                    Some(left) if !left.is_zero() => left.min(LOOK),
                    _ => return Ok(()),
                },
                None => LOOK,
            };
            match self.heard.recv_timeout(left) {
                Ok(News::Second { index, second, tally }) => {
                    if let Some(point) = self.take(index, second, tally) {
                        observe(&Event::Second(point));
                    }
                }
                Ok(News::Done(done)) => self.done.push(*done),
                Ok(News::Failed(why)) => return Err(why),
                Ok(News::Ready { .. }) => {}
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    if until.is_some() && stop.load(Ordering::Relaxed) {
                        return Ok(());
                    }
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return Err(silence()),
            }
        }
        Ok(())
    }

    /// Adds a worker's second. The whole second, if it was the last worker to tell it.
    fn take(&mut self, index: u32, second: u32, mut tally: Box<Tally>) -> Option<Point> {
        let (told, sum) = self.seconds.entry(second).or_insert_with(|| (0, Tally::new(self.open)));
        *told += 1;
        sum.add(&tally);
        let whole = *told == self.workers;
        tally.clear();
        if let Some(give) = self.spare.get(index as usize) {
            // A worker that is done needs none.
            let _ = give.send(tally);
        }
        if !whole {
            return None;
        }
        let (_, sum) = self.seconds.remove(&second)?;
        Some(self.add(second, &sum))
    }

    /// Adds a second of all workers.
    fn add(&mut self, second: u32, sum: &Tally) -> Point {
        self.total.add(sum);
        // What is told at the very end belongs to the last.
        let at = self.stage_ends.partition_point(|end| *end <= f64::from(second));
        let end = self.stage_ends.last().copied().unwrap_or(0.0);
        if let Some(stage) = self.stages.get_mut(at.min(self.stage_ends.len().saturating_sub(1))) {
            stage.tally.add(sum);
            stage.seconds += (end - f64::from(second)).clamp(0.0, 1.0);
        }
        self.point(second, sum)
    }

    /// Adds a point to the series.
    fn point(&mut self, second: u32, tally: &Tally) -> Point {
        let response = &tally.latencies.response;
        let point = Point {
            at_s: second,
            seconds: 1,
            completed: tally.completed,
            failed: tally.failed,
            p50_ns: response.quantile_ns(0.5),
            p99_ns: response.quantile_ns(0.99),
            max_ns: response.quantile_ns(1.0),
        };
        // The tail end of a run may bring nothing but the knowledge that it is over.
        if point.completed == 0 && point.failed == 0 && point.p50_ns.is_none() {
            return point;
        }
        match self.series.last_mut().filter(|last| last.at_s / self.step == second / self.step) {
            Some(last) => last.join(&point),
            None => self.series.push(point),
        }
        if self.series.len() > SERIES_MAX {
            self.step *= 2;
            let mut coarse: Vec<Point> = Vec::with_capacity(SERIES_MAX);
            for point in self.series.drain(..) {
                match coarse.last_mut().filter(|last| last.at_s / self.step == point.at_s / self.step) {
                    Some(last) => last.join(&point),
                    None => coarse.push(point),
                }
            }
            self.series = coarse;
        }
        point
    }
}

impl Point {
    fn join(&mut self, other: &Point) {
        self.seconds += other.seconds;
        self.completed += other.completed;
        self.failed += other.failed;
        self.p50_ns = self.p50_ns.max(other.p50_ns);
        self.p99_ns = self.p99_ns.max(other.p99_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }
}

#[cold]
fn silence() -> Error {
    Error::failed("a thread of the load has ended without a word, which is a mistake of this program")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::plan::Message;

    fn conductor(workers: u32) -> Conductor {
        let message = Message::echo(b"x".to_vec()).unwrap();
        let mut plan = Plan::new("tcp://localhost:7".parse().unwrap(), vec![message]);
        plan.threads = workers;
        Conductor::new(&plan, Instant::now(), mpsc::channel().1)
    }

    fn second(completed: u64, ns: u64) -> Box<Tally> {
        let mut tally = Tally::new(false);
        tally.completed = completed;
        tally.latencies.response.record_n(ns, completed);
        Box::new(tally)
    }

    #[test]
    fn a_second_is_told_when_all_workers_have_told_it() {
        let mut conductor = conductor(2);
        assert_eq!(conductor.take(0, 0, second(3, 1_000)), None);
        assert_eq!(conductor.take(0, 1, second(1, 1_000)), None);
        let point = conductor.take(1, 0, second(1, 9_000)).unwrap();
        assert_eq!((point.at_s, point.completed), (0, 4));
        assert!(point.max_ns.unwrap() >= 9_000 && point.p50_ns.unwrap() < 1_100);
        assert_eq!((conductor.total.completed, conductor.series.len()), (4, 1));
    }

    #[test]
    fn however_long_it_runs_the_series_stays_bounded_and_loses_no_count() {
        let mut conductor = conductor(1);
        for at in 0..20_000 {
            conductor.take(0, at, second(2, 1_000 + u64::from(at)));
            assert!(conductor.series.len() <= SERIES_MAX);
        }
        assert_eq!(conductor.series.iter().map(|point| point.completed).sum::<u64>(), 40_000);
        assert_eq!(conductor.series.iter().map(|point| point.seconds).sum::<u32>(), 20_000);
        assert!(conductor.series.windows(2).all(|pair| pair[0].at_s + pair[0].seconds == pair[1].at_s));
    }
}
