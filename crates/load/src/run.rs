//! A run: workers on their threads, clock readings at the edges of the measured time, and the sum of all
//! results.
//!
//! Start at [`run`].

use crate::broadcast::Fan;
use crate::course::Course;
use crate::error::Error;
use crate::plan::{Pace, Plan, Split};
use crate::site::Address;
use crate::tally::{Counts, OfUrl, Tally};
use crate::tls::Handshakes;
use crate::worker::{self, Done, News, Order, Orders, Task};
use ringroad_engine::choose::Choice;
use ringroad_host::cpu::{self, MachineTimes, ProcessClock};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// How often the conductor checks whether it was interrupted.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// The result of a load.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// The addresses of its name.
    pub addresses: Vec<SocketAddr>,
    /// Active connections when the load began.
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
    /// The measurements.
    #[serde(skip)]
    pub tally: Tally,
    /// The measured time.
    pub window: Duration,
    /// The window second by second.
    #[serde(skip)]
    pub series: Vec<Point>,
    /// The window stage by stage, if the plan has stages.
    #[serde(skip)]
    pub stages: Vec<Stage>,
    /// The measurements of each message of the plan, if there are several, up to
    /// [`URLS_MAX`](crate::plan::URLS_MAX).
    pub urls: Vec<OfUrl>,
    /// TLS handshakes, if there are any.
    pub handshakes: Option<Handshakes>,
    /// Costs of the client itself.
    pub client: Client,
    /// Whether it was stopped before its end.
    pub interrupted: bool,
    /// Its lost processes, each described by a clause.
    pub lost: Vec<String>,
}

impl Outcome {
    /// Adds the outcome of another process, except for the measurements: these are added as they are
    /// reported.
    pub(crate) fn join(&mut self, other: &Outcome) {
        let Outcome { connected, asked, served, open_at_end, idle_at_end, counts, .. } = other;
        self.connected += connected;
        self.asked += asked;
        self.served += served;
        self.open_at_end += open_at_end;
        self.idle_at_end += idle_at_end;
        self.counts.add(counts);
        self.window = self.window.max(other.window);
        if let (Some(mine), Some(theirs)) = (&mut self.handshakes, &other.handshakes) {
            mine.add(theirs);
        }
        self.urls.iter_mut().zip(&other.urls).for_each(|(mine, theirs)| mine.add(theirs));
        self.client.join(&other.client);
        self.interrupted |= other.interrupted;
        self.lost.extend_from_slice(&other.lost);
    }
}

impl Client {
    fn join(&mut self, other: &Client) {
        // If one value is unknown, so is the sum.
        self.cpu = self.cpu.zip(other.cpu).map(|(mine, theirs)| mine + theirs);
        self.wait = self.wait.zip(other.wait).map(|(mine, theirs)| mine + theirs);
        self.steal_share = match (self.steal_share, other.steal_share) {
            (Some(mine), Some(theirs)) => Some(mine.max(theirs)),
            _ => None,
        };
        self.span = self.span.max(other.span);
        self.system_calls += other.system_calls;
    }

    /// Converts a time of all its threads to a number of cores, over `span`.
    pub fn cores(&self, time: Option<Duration>) -> Option<f64> {
        let span = self.span.as_secs_f64();
        time.filter(|_| span > 0.0).map(|time| time.as_secs_f64() / span)
    }
}

/// A stage of the load. A second belongs to the stage in which it begins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// Connections, or requests per second, at its beginning.
    pub from: f64,
    /// Connections, or requests per second, at its end.
    pub to: f64,
    /// Total length of its seconds.
    pub seconds: f64,
    /// The measurements in them.
    pub tally: Tally,
}

/// A second of the window, or several if there are very many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Its beginning, in seconds of the window.
    pub at_s: u32,
    /// Its length in seconds.
    pub seconds: u32,
    /// Good answers.
    pub completed: u64,
    /// Failures.
    pub failed: u64,
    /// Median response latency in nanoseconds; `None` without answers. For several seconds, the largest
    /// median.
    pub p50_ns: Option<u64>,
    /// The 99th percentile, likewise.
    pub p99_ns: Option<u64>,
    /// The maximum, or the waiting time so far of an unanswered request, if that is longer.
    pub max_ns: Option<u64>,
}

/// Costs of the client in the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Client {
    /// The time between the readings from which these figures are computed: the window, and the time until
    /// its end was noticed.
    pub span: Duration,
    /// CPU time of all its threads.
    pub cpu: Option<Duration>,
    /// Time that its threads were ready and waited for a CPU.
    pub wait: Option<Duration>,
    /// Share of the machine's time that the hypervisor took.
    pub steal_share: Option<f64>,
    /// System calls of all drivers, in the whole run.
    pub system_calls: u64,
}

/// Progress of a load.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Connections are being made.
    Connecting {
        /// The present number.
        connections: u32,
        /// The requested number.
        wanted: u32,
    },
    /// Connections are established, or as many of them as possible.
    Connected {
        /// The number.
        connections: u32,
        /// The requested number.
        wanted: u32,
    },
    /// A slice of the measured time, if the plan has more than one per second. The event of its second
    /// follows the last slice.
    Slice {
        /// Its number, from 0.
        number: u32,
        /// The measurements in it.
        tally: &'a Tally,
    },
    /// A second of the measured time.
    Second {
        /// Its figures.
        point: Point,
        /// All of its measurements.
        tally: &'a Tally,
        /// Whether it is complete, and not the last fraction of a load.
        whole: bool,
    },
    /// A probe of a search has ended.
    Probe {
        /// Its rate, requests per second.
        per_second: f64,
        /// The requirement that was not met; `None` if all were met.
        unmet: Option<String>,
    },
}

/// Runs the load and waits for its end. Setting `stop` ends it early, within a fraction of a second.
///
/// # Errors
/// The plan is invalid, the name has no address, no connection could be made, or this machine has no thread
/// or driver left. Later errors of the server are counted in the outcome.
pub fn run(
    plan: &Plan,
    choice: &Choice,
    stop: &Arc<AtomicBool>,
    observe: &mut dyn FnMut(&Event<'_>),
) -> Result<Outcome, Error> {
    with_workers(plan, choice, stop, |conductor, stand| {
        conductor.gather(stand, observe)?;
        conductor.carry_out(stand, None, true, observe)
    })
}

/// The workers and settings of a run.
pub(crate) struct Stand<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) addresses: &'a [Vec<Address>],
    pub(crate) stop: &'a AtomicBool,
}

/// Starts the workers, calls `work`, and ends the workers.
pub(crate) fn with_workers<R>(
    plan: &Plan,
    choice: &Choice,
    stop: &Arc<AtomicBool>,
    work: impl FnOnce(&mut Conductor, &Stand<'_>) -> Result<R, Error>,
) -> Result<R, Error> {
    plan.check()?;
    let addresses = plan.places().map(|place| place.resolve()).collect::<Result<Vec<_>, _>>()?;
    let (news, heard) = mpsc::channel();
    let mut conductor = Conductor::new(plan, Instant::now(), heard);
    // Workers know neither parts nor processes: a worker has a number among all workers, which decides its
    // share. A part has every N-th of them, so its share is the same whatever number of threads each part
    // has.
    let (split, threads) = (plan.split, plan.workers().saturating_mul(plan.split.count));
    let plan = Arc::new(Plan { threads, processes: 1, part: 0, split: Split::WHOLE, ..plan.clone() });
    let shared: Arc<[Vec<Address>]> = addresses.into();
    // Only workers read this; the caller's `stop` is not changed.
    let over = Arc::new(AtomicBool::new(false));
    let mut threads = Vec::new();
    for index in (0..conductor.workers).map(|index| split.index + split.count * (conductor.first + index)) {
        let (give, spare) = mpsc::channel();
        for _ in 0..2 {
            // Written now, so that its pages are allocated before the measurement.
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
            fan: Arc::clone(&conductor.fan),
            spare,
        };
        let thread = thread::Builder::new().name(format!("load {index}")).spawn(move || worker::run(task));
        threads.push(thread.map_err(|why| Error::failed(format!("starting a thread: {why}")))?);
    }
    // So that receiving ends when the workers have ended.
    drop(news);
    let done = work(&mut conductor, &Stand { plan: &plan, addresses: &shared, stop });
    // Told not to begin, or done: no worker waits for anything then, except one that still connects, which
    // this ends.
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

/// Possible ends of the measured time, as times since the epoch.
struct Ends {
    /// The planned end.
    until: Option<Duration>,
    /// When all workers were done, or the time was over.
    ended: Duration,
    /// When the last wait for a request ended, with or without an answer.
    last_end: Option<Duration>,
    interrupted: bool,
}

impl Ends {
    fn of_window(&self, counted: bool) -> Duration {
        match self.until {
            _ if self.interrupted => self.ended,
            // A reached count ends with its last request, answered or not, and not when that is noticed.
            Some(until) if counted && self.ended < until => self.last_end.unwrap_or(self.ended),
            // If no work was left before it, the measured time ended with the work.
            Some(until) => until.min(self.ended),
            None => self.last_end.unwrap_or(self.ended),
        }
    }
}

/// Clock readings at an edge of the window.
struct Edge {
    /// Since the epoch.
    at: Duration,
    cpu: Option<Duration>,
    wait_ns: Option<u64>,
    machine: Option<MachineTimes>,
}

impl Edge {
    fn now(epoch: Instant) -> Edge {
        let wait_ns = cpu::split(std::process::id()).ok().and_then(|split| split.wait_ns);
        Edge {
            machine: cpu::machine().ok(),
            wait_ns,
            cpu: ProcessClock::own().read().ok(),
            at: epoch.elapsed(),
        }
    }
}

/// Collects the reports of the workers.
pub(crate) struct Conductor {
    heard: mpsc::Receiver<News>,
    epoch: Instant,
    open: bool,
    workers: u32,
    /// The number of its first worker in this part of the load: other processes have other numbers.
    first: u32,
    /// The number of parts of the load, which is the step between the workers of one part.
    parts: u32,
    /// Connections of this part.
    wanted: u32,
    spare: Vec<mpsc::Sender<Box<Tally>>>,
    /// Channels for the orders to workers that are ready.
    orders: Vec<Orders>,
    connected: u32,
    fan: Arc<Fan>,
    /// Reported slices per second.
    per_second: u32,
    /// Slices that not all workers have reported yet.
    slices: BTreeMap<u32, Tally>,
    /// The second of the last reported slice, and its sum so far; `None` after its last slice.
    second: Option<(u32, Tally)>,
    /// For each worker, the next slice that it reports; above all of them if it is done.
    told: Vec<u32>,
    course: Course,
    /// The beginning of the measured time since the epoch, and its length.
    from: Duration,
    length: Option<Duration>,
    done: Vec<Done>,
}

impl Conductor {
    fn new(plan: &Plan, epoch: Instant, heard: mpsc::Receiver<News>) -> Conductor {
        let open = plan.pace.is_timed();
        Conductor {
            heard,
            epoch,
            open,
            workers: plan.threads,
            first: plan.part * plan.threads,
            parts: plan.split.count,
            wanted: plan.own().connections,
            spare: Vec::new(),
            orders: Vec::new(),
            connected: 0,
            fan: Arc::default(),
            per_second: plan.slices,
            slices: BTreeMap::new(),
            second: None,
            told: vec![0; plan.threads as usize],
            course: Course::new(plan),
            from: Duration::ZERO,
            length: plan.duration,
            done: Vec::new(),
        }
    }

    /// Returns the index of a worker in this process, by its number among all.
    fn place(&self, index: u32) -> usize {
        (index / self.parts).saturating_sub(self.first) as usize
    }

    /// Waits until every worker has its connections.
    pub(crate) fn gather(
        &mut self,
        stand: &Stand<'_>,
        observe: &mut dyn FnMut(&Event<'_>),
    ) -> Result<(), Error> {
        let plan = stand.plan;
        let mut failures = Counts::default();
        let mut connecting = vec![0; self.workers as usize];
        while self.orders.len() < self.workers as usize {
            match self.heard.recv() {
                Ok(News::Ready { connected, counts, orders }) => {
                    self.connected += connected;
                    failures.add(&counts);
                    self.orders.push(orders);
                }
                Ok(News::Connecting { index, connected }) => {
                    let place = connecting.get_mut(self.place(index));
                    place.into_iter().for_each(|place| *place = connected);
                    let connections = connecting.iter().sum();
                    observe(&Event::Connecting { connections, wanted: self.wanted });
                }
                Ok(News::Failed(why)) => return Err(why),
                Ok(_) => {}
                Err(_) => return Err(silence()),
            }
        }
        if self.connected == 0 {
            if stand.stop.load(Ordering::Relaxed) {
                return Err(Error::before_the_load(&plan.target));
            }
            let failure = failures.failures.iter().max_by_key(|(_, count)| **count);
            let why = failure.map_or("no answer in time", |(why, _)| why);
            let why = why.strip_prefix("connect: ").unwrap_or(why);
            let hint = if why.ends_with("refused") { " (nothing listens there)" } else { "" };
            let message = format!("connect, on {}: {why}{hint}", plan.target);
            return Err(match failures.bytes_received {
                0 => Error::failed(message),
                _ => Error::heard(message, why),
            });
        }
        observe(&Event::Connected { connections: self.connected, wanted: self.wanted });
        // The observer of a part has waited for the start of all parts.
        if self.parts > 1 && stand.stop.load(Ordering::Relaxed) {
            return Err(Error::before_the_load(&plan.target));
        }
        Ok(())
    }

    /// Runs a load, at this rate if it is a probe, and waits for its end.
    pub(crate) fn carry_out(
        &mut self,
        stand: &Stand<'_>,
        probe: Option<f64>,
        last: bool,
        observe: &mut dyn FnMut(&Event<'_>),
    ) -> Result<Outcome, Error> {
        let &Stand { plan, addresses, stop } = stand;
        // Not in the future: requests that a worker sends at once would precede it, and not be measured.
        let begin = self.epoch.elapsed();
        let order = Order { begin_ns: begin.as_nanos() as u64, probe, last };
        self.fan.begin(self.connected, self.workers, (begin + plan.warmup).as_nanos() as u64);
        for worker in &self.orders {
            // A worker that has ended has reported why, or its silence is noticed.
            let _ = worker.send(order);
        }
        let from = begin + plan.warmup;
        self.from = from;
        self.told.fill(0);
        self.listen(Some(from), stop, observe)?;
        let first = Edge::now(self.epoch);
        let until = plan.duration.map(|length| from + length);
        self.listen(until, stop, observe)?;
        if let Some(until) = until.filter(|_| matches!(plan.pace, Pace::Open { .. }) && plan.count.is_none())
        {
            self.sit_out(until, stop);
        }
        let last = Edge::now(self.epoch);
        let ended = self.epoch.elapsed();
        self.listen(None, stop, observe)?;
        self.fan.end();
        let interrupted = stop.load(Ordering::Relaxed);
        let dones = std::mem::take(&mut self.done);
        let last_end = dones.iter().map(|done| Duration::from_nanos(done.last_ns)).max();
        let ends = Ends { until, ended, last_end: last_end.filter(|last| *last > from), interrupted };
        let end = ends.of_window(plan.count.is_some());
        // Slices that not all workers have reported: the last of each, and those after the early end of one.
        for (slice, tally) in std::mem::take(&mut self.slices) {
            self.tell(slice, tally, observe);
        }
        self.tell_second(observe);
        let sum = |what: fn(&Done) -> u32| dones.iter().map(what).sum();
        let mut counts = Counts::default();
        dones.iter().for_each(|done| counts.add(&done.counts));
        if plan.broadcast.is_some() {
            self.deliver(&mut counts, interrupted);
        }
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
            span: last.at.saturating_sub(first.at),
            system_calls: dones.iter().map(|done| done.system_calls).sum(),
        };
        let handshakes = plan.tls.is_some().then(|| {
            let mut all = Handshakes::default();
            dones.iter().filter_map(|done| done.handshakes.as_deref()).for_each(|part| all.add(part));
            all
        });
        self.course.last(end.saturating_sub(from));
        let Course { total, series, stages, .. } = std::mem::replace(&mut self.course, Course::new(plan));
        let mut urls = Vec::new();
        for done in &dones {
            if urls.is_empty() {
                urls.clone_from(&done.urls);
            } else {
                urls.iter_mut().zip(&done.urls).for_each(|(mine, theirs): (&mut OfUrl, _)| mine.add(theirs));
            }
        }
        Ok(Outcome {
            addresses: addresses.iter().flatten().filter_map(Address::ip).collect(),
            urls,
            connected: self.connected,
            asked: sum(|done| done.asked),
            served: sum(|done| done.served),
            open_at_end: sum(|done| done.open),
            idle_at_end: sum(|done| done.idle_open),
            counts,
            tally: total,
            window: end.saturating_sub(from),
            series,
            stages,
            handshakes,
            client,
            interrupted,
            lost: Vec::new(),
        })
    }

    /// Adds the result of a broadcast. The deliveries of all messages are expected. A missing one counts as
    /// failed, unless the load was stopped while it was in flight.
    fn deliver(&self, counts: &mut Counts, interrupted: bool) {
        counts.broadcast.add(&self.fan.told());
        counts.sent = counts.broadcast.expected();
        let missing = counts.sent.saturating_sub(counts.completed);
        if missing > 0 && !interrupted {
            counts.errors.timeout += missing;
            counts.name("a delivery that did not come", missing);
        }
    }

    /// Waits for the end of the time in which a rate is offered, if no request is due any more. Rates and
    /// shares refer to that whole time.
    fn sit_out(&self, until: Duration, stop: &AtomicBool) {
        while let Some(left) = until.checked_sub(self.epoch.elapsed()).filter(|left| !left.is_zero())
            && !stop.load(Ordering::Relaxed)
        {
            thread::sleep(left.min(LOOK));
        }
    }

    /// Receives reports until this time since the epoch, or until all workers are done.
    fn listen(
        &mut self,
        until: Option<Duration>,
        stop: &AtomicBool,
        observe: &mut dyn FnMut(&Event<'_>),
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
                Ok(News::Slice { index, slice, tally }) => {
                    self.take(index, slice, tally);
                    self.hand_on(observe);
                }
                Ok(News::Done { index, done }) => {
                    self.done.push(*done);
                    self.has_told(index, u32::MAX);
                    self.hand_on(observe);
                }
                Ok(News::Failed(why)) => return Err(why),
                Ok(News::Ready { .. } | News::Connecting { .. }) => {}
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

    /// Returns whether this second is complete, and not the last fraction of a load.
    fn is_whole(&self, second: u32) -> bool {
        let end = Duration::from_secs(u64::from(second) + 1);
        self.epoch.elapsed() >= self.from + end && self.length.is_none_or(|length| length >= end)
    }

    /// Adds a worker's slice, and returns the tally to the worker for reuse.
    fn take(&mut self, index: u32, slice: u32, mut tally: Box<Tally>) {
        let open = self.open;
        self.slices.entry(slice).or_insert_with(|| Tally::new(open)).add(&tally);
        tally.clear();
        if let Some(give) = self.spare.get(self.place(index)) {
            // A worker that is done needs none.
            let _ = give.send(tally);
        }
        self.has_told(index, slice + 1);
    }

    /// Records that a worker has reported all slices before this one.
    fn has_told(&mut self, index: u32, before: u32) {
        let place = self.place(index);
        if let Some(told) = self.told.get_mut(place) {
            *told = before;
        }
    }

    /// Reports the slices that all active workers have reported, so that none is kept, however long the load
    /// is.
    fn hand_on(&mut self, observe: &mut dyn FnMut(&Event<'_>)) {
        let told = self.told.iter().copied().min().unwrap_or(0);
        while let Some(first) = self.slices.first_entry().filter(|first| *first.key() < told) {
            let (slice, sum) = first.remove_entry();
            self.tell(slice, sum, observe);
        }
    }

    /// Reports a slice, and its second if the slice is its last.
    fn tell(&mut self, slice: u32, sum: Tally, observe: &mut dyn FnMut(&Event<'_>)) {
        let second = slice / self.per_second;
        if self.second.as_ref().is_some_and(|(current, _)| *current != second) {
            self.tell_second(observe);
        }
        if self.per_second > 1 {
            observe(&Event::Slice { number: slice, tally: &sum });
        }
        match &mut self.second {
            Some((_, whole)) => whole.add(&sum),
            None => self.second = Some((second, sum)),
        }
        if (slice + 1).is_multiple_of(self.per_second) {
            self.tell_second(observe);
        }
    }

    fn tell_second(&mut self, observe: &mut dyn FnMut(&Event<'_>)) {
        let Some((second, sum)) = self.second.take() else { return };
        let point = self.course.add(second, &sum);
        let whole = self.is_whole(second);
        observe(&Event::Second { point, tally: &sum, whole });
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

    /// Returns the seconds that are handed on now, and the answers in each.
    fn handed_on(conductor: &mut Conductor) -> Vec<(u32, u64)> {
        let mut seconds = Vec::new();
        conductor.hand_on(&mut |event| {
            if let Event::Second { point, .. } = event {
                seconds.push((point.at_s, point.completed));
            }
        });
        seconds
    }

    #[test]
    fn a_second_is_told_when_all_workers_have_told_it() {
        let mut conductor = conductor(2);
        conductor.take(0, 0, second(3, 1_000));
        conductor.take(0, 1, second(1, 1_000));
        assert_eq!(handed_on(&mut conductor), []);
        conductor.take(1, 0, second(1, 9_000));
        assert_eq!(handed_on(&mut conductor), [(0, 4)]);
        let point = &conductor.course.series[0];
        assert!(point.max_ns.unwrap() >= 9_000 && point.p50_ns.unwrap() < 1_100);
        assert_eq!((conductor.course.total.completed, conductor.course.series.len()), (4, 1));
    }

    #[test]
    fn a_count_that_is_reached_ends_the_window_with_its_last_end() {
        let ms = Duration::from_millis;
        let ends = |until: Option<u64>, ended, interrupted| Ends {
            until: until.map(ms),
            ended: ms(ended),
            last_end: Some(ms(10)),
            interrupted,
        };
        assert_eq!(ends(Some(1000), 30, false).of_window(true), ms(10), "whether a time was given, too");
        assert_eq!(ends(None, 30, false).of_window(true), ms(10), "or not");
        assert_eq!(ends(Some(1000), 30, false).of_window(false), ms(30), "nothing was left to send to");
        assert_eq!(ends(Some(20), 30, false).of_window(true), ms(20));
        assert_eq!(ends(Some(1000), 30, true).of_window(true), ms(30));
        let none = Ends { last_end: None, ..ends(Some(1000), 30, false) };
        assert_eq!(none.of_window(true), ms(30));
    }

    #[test]
    fn a_worker_that_is_done_keeps_no_second_waiting() {
        let mut conductor = conductor(2);
        conductor.take(0, 0, second(3, 1_000));
        conductor.take(1, 0, second(1, 1_000));
        conductor.has_told(0, u32::MAX);
        assert_eq!(handed_on(&mut conductor), [(0, 4)]);
        conductor.take(1, 1, second(2, 1_000));
        assert_eq!(handed_on(&mut conductor), [(1, 2)]);
        assert!(conductor.slices.is_empty());
    }

    #[test]
    fn slices_are_told_one_by_one_and_their_second_after_its_last() {
        let mut conductor = conductor(1);
        conductor.per_second = 2;
        let mut told = Vec::new();
        for (slice, completed) in [(0, 3), (1, 1), (2, 5)] {
            conductor.take(0, slice, second(completed, 1_000));
            conductor.hand_on(&mut |event| match event {
                Event::Slice { number, tally } => told.push(("slice", *number, tally.completed)),
                Event::Second { point, tally, .. } => told.push(("second", point.at_s, tally.completed)),
                _ => {}
            });
        }
        conductor.tell_second(&mut |event| {
            let Event::Second { point, .. } = event else { return };
            told.push(("second", point.at_s, point.completed));
        });
        let expected =
            [("slice", 0, 3), ("slice", 1, 1), ("second", 0, 4), ("slice", 2, 5), ("second", 1, 5)];
        assert_eq!(told, expected);
        assert_eq!((conductor.course.total.completed, conductor.course.series.len()), (9, 2));
    }
}
