//! The life of an application's processes: one thread that starts, watches, replaces and stops them.
//!
//! Each turn waits for events (ends of processes by pidfd, frames on control links, printed lines, commands),
//! then checks the deadlines of every process, then starts and stops processes until the slots are as
//! configured. A serving process is stopped only when another one serves in its place: [`Supervisor::retire`]
//! is called when the replacement is ready.
//!
//! A reload starts a complete new generation beside the old one. It gets the requests only when all of its
//! workers are ready. If one fails, all of them are ended, and nothing has changed.
//!
//! A start uses CPU time that requests need. So, while a worker serves, few processes start at a time
//! ([`Supervisor::starts_at_once`]), with a lower priority until they are ready.
//!
//! This file has the turns, the phases of a process and the change of generations. Beside it: [`starts`] and
//! [`ends`] of processes, [`frames`] from them, [`orders`] from the command line, and [`tasks`].
//!
//! Processes are tied to this thread: the kernel kills them when it ends, also if this program is killed.

mod ends;
mod frames;
mod orders;
mod starts;
mod tasks;

use crate::control::Control;
use crate::crash::CrashLoop;
use crate::fcgi::{FastCgiTiming, Responder};
use crate::goridge::Relay;
use crate::head::Codec;
use crate::left::Left;
use crate::lines::{Lines, Tail};
use crate::mold::Mold;
use crate::pool::{Reach, Say, Shared, Worker};
use crate::printed::Printed;
use crate::probe::Probe;
use crate::process::{Ground, Listening, Process};
use crate::settings::{Protocol, Settings};
use crate::slot::{SlotId, TASK_SLOT};
use crate::status::counted;
use crate::task_socket::{Asked, TaskSocket};
use crate::tasks::{Origin, Running, Tasks};
use crate::watch::Sources;
use ringroad_engine::sync::CancellationToken;
use ringroad_gate::upstream::Address;
use ringroad_host::cpu::ProcessClock;
use ringroad_wire::rwp::{self, Kind, Outcome};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::task::Waker;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How often memory is read, rates are computed and files are checked.
const TICK: Duration = Duration::from_millis(500);
/// Interval of the checks while the application stops: the rest of a process group has no pidfd.
const STOP_TICK: Duration = Duration::from_millis(20);
/// How often an HTTP worker is checked for readiness.
const PROBE_EVERY: Duration = Duration::from_millis(25);
/// A worker that lived at least this long did not fail at its start.
const SETTLED: Duration = Duration::from_secs(5);
/// Default number of concurrent requests of an HTTP worker.
const HTTP_CONCURRENCY: u32 = 256;
/// How long requests wait before another worker is started for them.
const GROW_AFTER: Duration = Duration::from_millis(200);
/// A retry that is overdue by more than this waits for an event, not for a time.
const TRY_GRACE: Duration = Duration::from_millis(5);
/// How long a hanging process may take to print where it hangs, and then to end.
const LAST_WORDS: Duration = Duration::from_secs(3);
/// Maximum bytes of messages from other workers that wait for a worker; further ones are dropped.
const MESSAGES_BYTES_MAX: usize = 4 << 20;

/// Starts the thread.
pub(crate) fn start(shared: Arc<Shared>, say: Say) -> io::Result<JoinHandle<()>> {
    let ground = Ground::new()?;
    let settings = Arc::clone(&shared.state().settings);
    let task_socket = match &settings.task_socket {
        Some(path) => Some(TaskSocket::open(path, settings.user)?),
        None => None,
    };
    let name = format!("app-{}", settings.name.chars().take(11).collect::<String>());
    thread::Builder::new().name(name).spawn(move || {
        let now = Instant::now();
        let mut supervisor = Supervisor {
            target: settings.workers.max(1),
            sources: Sources::default(),
            settings,
            shared,
            say,
            ground,
            procs: Vec::new(),
            left: Vec::new(),
            molds: Vec::new(),
            mold_failures: 0,
            slots: BTreeMap::new(),
            generation: 1,
            reload: None,
            restarts: BTreeMap::new(),
            orders: Vec::new(),
            crash: CrashLoop::default(),
            tasks: Tasks::default(),
            task_socket,
            stopping: false,
            ticked: now,
            served: 0,
            grown: now,
            random: now.elapsed().as_nanos() as u64 ^ u64::from(std::process::id()),
        };
        supervisor.sources = supervisor.look_at_files();
        supervisor.run();
    })
}

/// Phase of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Not ready yet.
    Starting,
    /// Ready, and waits for the others of its generation.
    Standby,
    /// Gets requests.
    Ready,
    /// Gets no more requests, and finishes its present ones.
    Draining,
    /// Was told to end.
    Stopping,
    /// Was killed.
    Killed,
}

impl Phase {
    fn word(self) -> &'static str {
        match self {
            Phase::Starting => "starting",
            Phase::Standby => "standby",
            Phase::Ready => "ready",
            Phase::Draining => "draining",
            Phase::Stopping => "stopping",
            Phase::Killed => "killed",
        }
    }
}

struct Proc {
    id: u64,
    slot: u32,
    generation: u64,
    process: Process,
    control: Option<Arc<Control>>,
    /// The socket of a goridge worker.
    relay: Option<Arc<Relay>>,
    received: Vec<u8>,
    listening: Option<Listening>,
    /// It has sent READY, and its health is being checked.
    greeted: bool,
    probe: Option<Probe>,
    next_probe: Instant,
    printed: Arc<Printed>,
    out: Lines,
    err: Lines,
    /// Prefix of lines that belong to a request, if `marks`.
    mark: String,
    marks: bool,
    tail: Tail,
    phase: Phase,
    /// When it entered the phase, and when it was started.
    since: Instant,
    started: Instant,
    worker: Option<Arc<Worker>>,
    concurrency: u32,
    codec: Codec,
    takes_sockets: bool,
    /// Whether the mold of its generation forked it.
    forked: bool,
    /// The process that it replaces.
    replaces: Option<u64>,
    /// The reason for replacing it.
    wanted: Option<&'static str>,
    /// The reason of a failure, if the worker reported one.
    failure: Option<String>,
    /// Its start-up step before it is ready, if it reports one.
    step: Option<Step>,
    /// The step of its end by force, with the time of the next step, if it does not end by itself.
    ending: Option<Ending>,
    requests_max: u64,
    age_max: Duration,
    /// When its control link was closed.
    lost: Option<Instant>,
    /// Whether SIGTERM was sent to it.
    terminated: bool,
    asked: Option<Instant>,
    next_ping: Instant,
    lag: Duration,
    memory: u64,
    /// CPU time so far, in seconds.
    cpu: f64,
    /// The task that it runs, if it is a task worker.
    task: Option<Running>,
}

impl Proc {
    fn is_task(&self) -> bool {
        self.slot & TASK_SLOT != 0
    }

    /// Returns whether it reads its control link. It does not between the end of the link and the end of the
    /// process, although its phase has not changed yet.
    fn hears(&self) -> bool {
        self.lost.is_none() && self.control.is_some()
    }

    /// Returns whether it is a task worker that can be given a task.
    fn is_free_for_task(&self) -> bool {
        self.is_task() && self.phase == Phase::Ready && self.hears() && self.task.is_none()
    }

    /// Returns what an unready process is waiting for.
    fn hangs_at(&self) -> String {
        if let Some(failure) = &self.failure {
            failure.clone()
        } else if self.greeted {
            "the health check has no answer".to_owned()
        } else if let Some(step) = &self.step {
            format!("{} has not ended", step.what)
        } else if self.process.is_unknown() {
            "the process that imports has not forked it".to_owned()
        } else if self.listening.is_some() {
            "nothing answers at its socket".to_owned()
        } else {
            "it has not said what it is at".to_owned()
        }
    }

    /// Sends SIGTERM, and records it.
    fn terminate(&mut self) {
        self.terminated = true;
        self.process.signal(Signal::TERM);
    }

    /// Returns whether it has become ready, and a request or some time has passed since.
    fn has_settled(&self, now: Instant) -> bool {
        let served = self.worker.as_ref().map_or(0, |worker| worker.served.load(Ordering::Relaxed));
        self.worker.is_some() && (served > 0 || now.duration_since(self.started) >= SETTLED)
    }
}

/// How long a process that has closed a link may take to end; half of `stop_timeout` if that is less.
const LOST_GRACE: Duration = Duration::from_secs(5);

/// A start-up step of a process.
struct Step {
    what: String,
    /// Whether it reads its control link meanwhile.
    reads: bool,
}

/// The escalation for a hanging process that does not end by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// It was asked to print where it hangs. SIGABRT follows.
    Asked(Instant),
    /// It was sent SIGABRT. SIGKILL follows.
    Aborted(Instant),
}

/// Returns a worker's line for the log, with the id of its request, if there is one.
fn labelled(label: &str, id: &str, line: &str) -> String {
    if id.is_empty() { format!("{label}: {line}") } else { format!("{label} {id}: {line}") }
}

/// Returns the name of a slot.
fn slot_text(slot: u32) -> String {
    SlotId::of(slot).to_string()
}

#[derive(Default)]
struct Slot {
    failures: u32,
    next_try: Option<Instant>,
}

/// A new generation that is not complete yet.
struct Reload {
    generation: u64,
    target: usize,
    settings: Arc<Settings>,
    tell: Vec<mpsc::Sender<Result<String, String>>>,
}

impl Reload {
    /// Returns the number of processes that it will have.
    fn processes(&self) -> usize {
        self.target + self.settings.tasks
    }
}

/// Processes that were ordered to be replaced.
struct Order {
    left: Vec<u64>,
    count: usize,
    tell: mpsc::Sender<Result<String, String>>,
}

struct Supervisor {
    shared: Arc<Shared>,
    settings: Arc<Settings>,
    say: Say,
    ground: Ground,
    procs: Vec<Proc>,
    /// Remains of processes that have ended.
    left: Vec<Left>,
    /// With `preload`: a mold for each generation that has or will have workers.
    molds: Vec<Mold>,
    mold_failures: u32,
    slots: BTreeMap<u32, Slot>,
    /// The generation of the workers that serve.
    generation: u64,
    /// Target number of slots.
    target: usize,
    reload: Option<Reload>,
    restarts: BTreeMap<&'static str, u64>,
    orders: Vec<Order>,
    crash: CrashLoop,
    tasks: Tasks,
    task_socket: Option<TaskSocket>,
    /// The end of the application has begun.
    stopping: bool,
    ticked: Instant,
    served: u64,
    grown: Instant,
    /// In development: the state of its files at the last check.
    sources: Sources,
    random: u64,
}

impl Supervisor {
    fn run(&mut self) {
        loop {
            self.wait();
            self.shared.woken();
            self.hear();
            let now = Instant::now();
            self.obey(now);
            if self.shared.state().stopping {
                return self.stop();
            }
            if now.duration_since(self.ticked) >= TICK {
                self.tick(now);
            }
            self.look_at_clocks(now);
            self.fill(now);
        }
    }

    /// Waits for events, or until the next deadline.
    fn wait(&self) {
        let now = Instant::now();
        let mut next = if self.stopping { now + STOP_TICK } else { self.ticked + TICK };
        for proc in &self.procs {
            let asks = proc.listening.is_some() || proc.greeted;
            if proc.phase == Phase::Starting && asks && proc.probe.is_none() {
                next = next.min(proc.next_probe);
            }
        }
        let tries: Vec<Instant> = match self.crash.open() {
            Some(open) => vec![open.next_try],
            None => self.slots.values().filter_map(|slot| slot.next_try).collect(),
        };
        // A retry in the past waits for an event, which wakes this thread.
        let soon = tries.into_iter().filter(|at| *at + TRY_GRACE > now);
        next = soon.fold(next, Instant::min);
        for running in self.procs.iter().filter_map(|proc| proc.task.as_ref()) {
            next = next.min(running.since + self.settings.task_timeout);
        }
        if self.shared.state().waiting_since.is_some() {
            next = next.min(now + GROW_AFTER);
        }
        let span = next.saturating_duration_since(now).max(Duration::from_millis(1));
        let mut fds = vec![PollFd::new(self.shared.wake_fd(), PollFlags::IN)];
        for proc in &self.procs {
            fds.extend(proc.process.pidfd().map(|pidfd| PollFd::new(pidfd, PollFlags::IN)));
            fds.extend(proc.control.as_ref().map(|control| {
                let waits = control.pending_bytes() > 0;
                PollFd::new(&**control, if waits { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN })
            }));
            fds.extend(proc.process.out.as_ref().map(|out| PollFd::new(out, PollFlags::IN)));
            fds.extend(proc.process.err.as_ref().map(|err| PollFd::new(err, PollFlags::IN)));
            fds.extend(proc.probe.as_ref().map(|probe| PollFd::new(probe, PollFlags::IN)));
            let relay = proc.relay.as_ref().filter(|_| proc.phase == Phase::Starting);
            fds.extend(relay.map(|relay| PollFd::new(&**relay, PollFlags::IN)));
        }
        self.molds.iter().for_each(|mold| mold.poll_fds(&mut fds));
        self.task_socket.iter().for_each(|socket| socket.poll_fds(&mut fds));
        let span = Timespec { tv_sec: span.as_secs() as i64, tv_nsec: i64::from(span.subsec_nanos()) };
        // An interrupted wait is a turn without events.
        let _ = rustix::event::poll(&mut fds, Some(&span));
    }

    /// Handles frames and lines of processes, and processes that have ended.
    fn hear(&mut self) {
        let mut at = 0;
        while at < self.procs.len() {
            self.read_lines(at);
            self.read_control(at);
            self.read_probe(at);
            self.read_greeting(at);
            let Some(proc) = self.procs.get_mut(at) else { break };
            // A forked process that closed its link before HELLO cannot be used.
            let unborn = proc.process.is_unknown() && (proc.control.is_none() || proc.phase == Phase::Killed);
            let end = proc.process.ended();
            if end.is_none() && !unborn {
                at += 1;
                continue;
            }
            self.read_control(at);
            self.read_lines(at);
            self.ended(at, end);
        }
        self.hear_molds();
        let asked = self.task_socket.as_mut().map(TaskSocket::turn).unwrap_or_default();
        for Asked { connection, id, forget, payload } in asked {
            let origin =
                if forget { Origin::Forgotten } else { Origin::Socket { connection, id: id.clone() } };
            let taken = self.submit(origin, rwp::ANY_SLOT, None, &payload);
            if forget && let Some(socket) = &mut self.task_socket {
                let (outcome, why) = match &taken {
                    Ok(()) => (Outcome::Silent, ""),
                    Err(why) => (Outcome::Refused, why.as_str()),
                };
                socket.answer(connection, id, outcome, why.as_bytes());
            }
        }
        self.give_tasks();
    }

    /// Handles frames and lines of molds, and molds that have ended.
    fn hear_molds(&mut self) {
        let mut ended = Vec::new();
        let now = Instant::now();
        for mold in &mut self.molds {
            if !mold.is_ready && now.duration_since(mold.started) > self.settings.start_timeout {
                mold.give_up(self.settings.start_timeout, now, LAST_WORDS);
            }
            if let Err(why) = mold.hear(&self.say, &self.ground) {
                ended.push((mold.generation, mold.is_ready, why));
            }
        }
        self.count_tasks();
        for (generation, was_ready, why) in ended {
            self.molds.retain(|mold| mold.generation != generation);
            if self.reload.as_ref().is_some_and(|reload| reload.generation == generation) && !was_ready {
                // Its lines are in the log already.
                self.give_up_reload(why.lines().last().unwrap_or_default(), &why);
                continue;
            }
            if generation != self.generation {
                continue;
            }
            *self.restarts.entry(if was_ready { "died" } else { "failed" }).or_default() += 1;
            (self.say)(format!("app {}[preload]: {why}", self.settings.name));
            if was_ready {
                // Running workers are not affected; the next start makes a new mold.
                continue;
            }
            self.mold_failures += 1;
            let wait = self.start_failed(self.mold_failures, &why, now);
            for slot in self.slots.values_mut() {
                slot.next_try = Some(now + wait);
            }
            self.refuse_requests(why, now + wait);
        }
        // A mold stays while workers of its generation exist: it is their parent.
        let wanted = [Some(self.generation), self.reload.as_ref().map(|reload| reload.generation)];
        let procs = &self.procs;
        self.molds.retain(|mold| {
            wanted.contains(&Some(mold.generation))
                || procs.iter().any(|proc| proc.forked && proc.generation == mold.generation)
        });
    }

    /// Returns the settings that a process was started with.
    fn settings_of(&self, at: usize) -> Arc<Settings> {
        let generation = self.procs.get(at).map(|proc| proc.generation);
        match &self.reload {
            Some(reload) if Some(reload.generation) == generation => Arc::clone(&reload.settings),
            _ => Arc::clone(&self.settings),
        }
    }

    fn enter(&mut self, at: usize, phase: Phase) {
        if let Some(proc) = self.procs.get_mut(at) {
            (proc.phase, proc.since) = (phase, Instant::now());
        }
    }

    /// Handles readiness: the process takes its place, or waits for its generation.
    fn ready(&mut self, at: usize) {
        let Some(proc) = self.procs.get_mut(at) else { return };
        proc.failure = None;
        proc.process.restore(&self.ground);
        let reach = match (&proc.control, &proc.listening) {
            (Some(control), _) => Reach::Frames(Arc::clone(control), proc.codec),
            (None, Some(listening)) if self.settings.launch.protocol() == Protocol::FastCgi => {
                // One request at a time, so one connection, which is kept.
                let timing = FastCgiTiming {
                    connections: 1,
                    answer: self.settings.timeout,
                    keep: 1,
                    ..FastCgiTiming::default()
                };
                Reach::FastCgi(Responder::new(Address::Unix(listening.path.clone()), timing))
            }
            (None, Some(listening)) => Reach::Http(listening.path.clone()),
            (None, None) => match &proc.relay {
                Some(relay) => Reach::Goridge(Arc::clone(relay)),
                None => return,
            },
        };
        let concurrency = match reach {
            Reach::Http(_) => self.settings.concurrency.unwrap_or(HTTP_CONCURRENCY),
            Reach::FastCgi(_) | Reach::Goridge(_) => 1,
            Reach::Frames(..) => proc.concurrency,
        };
        proc.worker = Some(Arc::new(Worker {
            id: proc.id,
            slot: proc.slot,
            concurrency,
            reach,
            in_flight: AtomicU32::new(0),
            sockets: AtomicU32::new(0),
            takes_sockets: proc.takes_sockets,
            served: AtomicU64::new(0),
            busy_ns: AtomicU64::new(0),
            draining: AtomicBool::new(false),
            parting: CancellationToken::new(),
            printed: (concurrency == 1 && !proc.marks).then(|| Arc::clone(&proc.printed)),
        }));
        let pending = self.reload.as_ref().is_some_and(|reload| reload.generation == proc.generation);
        let (slot, replaces) = (proc.slot, proc.replaces);
        if !pending {
            if let Some(slot) = self.slots.get_mut(&slot) {
                slot.next_try = None;
            }
            self.serve(at);
            if let Some(old) = replaces.and_then(|id| self.procs.iter().position(|proc| proc.id == id)) {
                let why = self.procs.get(old).and_then(|proc| proc.wanted).unwrap_or("replaced");
                self.retire(old, why);
            }
            return;
        }
        self.enter(at, Phase::Standby);
        self.switch_if_complete();
    }

    /// Gives a ready process its requests.
    fn serve(&mut self, at: usize) {
        self.enter(at, Phase::Ready);
        let Some(proc) = self.procs.get(at).filter(|proc| !proc.is_task()) else { return };
        let Some(worker) = proc.worker.clone() else { return };
        let wakers = {
            let mut state = self.shared.state();
            state.trouble = None;
            state.workers.push(worker);
            state.workers.sort_by_key(|worker| worker.slot);
            state.serve_waiting(&self.shared)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Returns whether a worker serves; starts are not urgent then.
    fn serves(&self) -> bool {
        !self.shared.state().workers.is_empty()
    }

    /// Switches to a new generation if all of it is ready.
    fn switch_if_complete(&mut self) {
        let Some(reload) = &self.reload else { return };
        let standing = |proc: &&Proc| proc.generation == reload.generation && proc.phase == Phase::Standby;
        if self.procs.iter().filter(standing).count() >= reload.processes() {
            self.switch();
        }
    }

    /// Switches to a new generation that is complete.
    fn switch(&mut self) {
        let Some(reload) = self.reload.take() else { return };
        let old: Vec<u64> = self
            .procs
            .iter()
            .filter(|proc| proc.generation != reload.generation)
            .map(|proc| proc.id)
            .collect();
        (self.generation, self.target) = (reload.generation, reload.target);
        self.settings = reload.settings;
        self.shared.state().settings = Arc::clone(&self.settings);
        self.reopen_task_socket();
        for at in 0..self.procs.len() {
            if self.procs.get(at).is_some_and(|proc| proc.phase == Phase::Standby) {
                self.serve(at);
            }
        }
        for id in old {
            if let Some(at) = self.procs.iter().position(|proc| proc.id == id) {
                self.retire(at, "reload");
            }
        }
        self.slots.values_mut().for_each(|slot| *slot = Slot::default());
        self.crash.reset();
        let text = format!("generation {} serves, with {}", self.generation, counted(self.target, "worker"));
        (self.say)(format!("app {}: reloaded: {text}", self.settings.name));
        for tell in reload.tell {
            // The requester may have left.
            let _ = tell.send(Ok(text.clone()));
        }
    }

    /// Runs the checks that are due twice a second.
    fn tick(&mut self, now: Instant) {
        let span = now.duration_since(self.ticked).as_secs_f64();
        self.ticked = now;
        let mut answered = 0;
        for class in &self.shared.counts.answers {
            answered += class.load(Ordering::Relaxed);
        }
        let rate = answered.saturating_sub(self.served) as f64 / span;
        self.served = answered;
        {
            let mut state = self.shared.state();
            state.rate = if state.rate == 0.0 { rate } else { state.rate * 0.7 + rate * 0.3 };
        }
        for at in 0..self.procs.len() {
            let Some(proc) = self.procs.get_mut(at) else { break };
            proc.memory = ringroad_host::memory::resident(proc.process.pid()).unwrap_or(0);
            let clock = ProcessClock::of(proc.process.pid()).and_then(|clock| clock.read());
            proc.cpu = clock.map_or(proc.cpu, |spent| spent.as_secs_f64());
            let hard = self.settings.memory_hard;
            if hard > 0 && proc.memory > hard && proc.phase == Phase::Ready {
                let text = format!("{} bytes resident, more than memory_hard", proc.memory);
                self.kill(at, "memory_hard", &text);
            }
        }
        if self.settings.dev {
            let now = self.look_at_files();
            let before = std::mem::replace(&mut self.sources, now);
            if let Some(path) = self.sources.changed_since(&before, &self.writers()) {
                let name = path.strip_prefix(&self.settings.directory).unwrap_or(path).display();
                (self.say)(format!("app {}: {name} has changed: reload", self.settings.name));
                let (tell, _) = mpsc::channel();
                self.reload(None, tell);
            }
        }
    }

    fn look_at_files(&self) -> Sources {
        if !self.settings.dev {
            return Sources::default();
        }
        let folder = [self.settings.directory.clone()];
        Sources::look(if self.settings.watch.is_empty() { &folder } else { &self.settings.watch })
    }

    /// Returns the processes with open files that are not sources: this one, with its logs, and the workers.
    fn writers(&self) -> Vec<u32> {
        let workers = self.procs.iter().map(|proc| proc.process.pid());
        workers.chain([std::process::id()]).collect()
    }

    /// Handles the deadlines of all processes.
    fn look_at_clocks(&mut self, now: Instant) {
        let settings = Arc::clone(&self.settings);
        self.left.retain(|left| left.stays(now, settings.stop_timeout));
        let is_pressed = {
            let state = self.shared.state();
            let waited = state.waiting_since.is_some_and(|since| now.duration_since(since) >= GROW_AFTER);
            waited || state.workers.is_empty()
        };
        let mut proved = false;
        for mold in &mut self.molds {
            if is_pressed || now.duration_since(mold.started) > settings.start_timeout / 4 {
                mold.process().restore(&self.ground);
            }
        }
        for at in 0..self.procs.len() {
            let Some(proc) = self.procs.get_mut(at) else { break };
            let age = now.duration_since(proc.since);
            if proc.lost.is_some_and(|since| now.duration_since(since) > settings.stop_timeout) {
                self.kill(at, "protocol", "closed a link and did not end");
                continue;
            }
            // A process that is ending has an exit status that gives the reason, and may clean up first.
            let grace = LOST_GRACE.min(settings.stop_timeout / 2);
            if !proc.terminated && proc.lost.is_some_and(|since| now.duration_since(since) > grace) {
                proc.terminate();
            }
            if proc.task.as_ref().is_some_and(|task| now.duration_since(task.since) >= settings.task_timeout)
            {
                let text = format!("a task did not end within {:?}", settings.task_timeout);
                self.lose_task(at, Outcome::TooLate, &text);
                self.kill_hanging(at, "task_timeout", &text);
                continue;
            }
            if proc.phase == Phase::Starting && (is_pressed || age > settings.start_timeout / 4) {
                // Its start is urgent now, or takes long.
                proc.process.restore(&self.ground);
            }
            proved |= proc.phase == Phase::Ready && proc.has_settled(now) && self.crash.proved(proc.started);
            match proc.phase {
                Phase::Starting if age > settings.start_timeout => {
                    let text = format!("not ready within {:?}: {}", settings.start_timeout, proc.hangs_at());
                    self.kill_hanging(at, "start_timeout", &text);
                }
                Phase::Killed => match proc.ending {
                    Some(Ending::Asked(until)) if now >= until => {
                        proc.process.abort();
                        proc.ending = Some(Ending::Aborted(now + LAST_WORDS));
                    }
                    Some(Ending::Aborted(until)) if now >= until => {
                        proc.process.kill();
                        proc.ending = None;
                    }
                    _ => {}
                },
                Phase::Draining => {
                    let busy = proc.worker.as_ref().map_or(0, |one| one.in_flight.load(Ordering::Relaxed));
                    // A task may take longer than a request; it has its own limit.
                    let is_late = age > settings.stop_timeout && (!proc.is_task() || self.stopping);
                    if busy == 0 || is_late {
                        self.tell_stop(at);
                    }
                }
                Phase::Stopping if age > settings.stop_timeout => {
                    let text = format!("did not end within {:?}", settings.stop_timeout);
                    self.kill_hanging(at, "stop_timeout", &text);
                }
                Phase::Stopping if age > settings.stop_timeout / 2 && !proc.terminated => {
                    // It ignores STOP. It may still clean up after SIGTERM, before SIGKILL.
                    proc.terminate();
                }
                Phase::Ready => {
                    if let Some(asked) = proc.asked
                        && now.duration_since(asked) > 4 * settings.ping
                    {
                        let text = format!("no answer to a ping for {:?}", now.duration_since(asked));
                        self.kill_hanging(at, "ping", &text);
                        continue;
                    }
                    if !settings.ping.is_zero() && proc.asked.is_none() && now >= proc.next_ping {
                        if let Some(control) = &proc.control
                            && control.send(Kind::PING, &[], &[]).is_ok()
                        {
                            proc.asked = Some(now);
                        }
                        proc.next_ping = now + settings.ping;
                    }
                    let Some(worker) = &proc.worker else { continue };
                    let served = worker.served.load(Ordering::Relaxed);
                    let due = if proc.requests_max > 0 && served >= proc.requests_max {
                        Some("max_requests")
                    } else if !proc.age_max.is_zero() && now.duration_since(proc.started) >= proc.age_max {
                        Some("max_age")
                    } else if settings.memory > 0 && proc.memory > settings.memory {
                        Some("memory")
                    } else {
                        None
                    };
                    proc.wanted = proc.wanted.or(due);
                }
                _ => {}
            }
        }
        if proved {
            (self.say)(format!("app {}: starts succeed again", settings.name));
            // Missing processes are started at once.
            self.slots.values_mut().for_each(|slot| *slot = Slot::default());
        }
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the slots of this many workers and task workers.
fn slots(workers: usize, tasks: usize) -> impl Iterator<Item = u32> {
    (0..workers as u32).chain((0..tasks as u32).map(|slot| slot | TASK_SLOT))
}

/// Returns why a process has ended, and its last output. If the output ends with the reason, the reason
/// appears once: a traceback ends with the error, to which Python adds the location in another form.
fn with_tail(why: &str, tail: String) -> String {
    let last = tail.lines().last().map(str::trim).unwrap_or_default();
    if tail.is_empty() {
        why.to_owned()
    } else if tail.contains(why) || !last.is_empty() && why.starts_with(last) {
        tail
    } else {
        format!("{why}\n{tail}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_ends_what_was_printed_is_told_once() {
        let tail = "  this is no Python\nSyntaxError: invalid syntax";
        for (why, told) in [
            ("SyntaxError: invalid syntax (app.py, line 4)", tail.to_owned()),
            ("SyntaxError: invalid syntax", tail.to_owned()),
            ("ended with exit status 3", format!("ended with exit status 3\n{tail}")),
        ] {
            assert_eq!(with_tail(why, tail.to_owned()), told);
        }
        assert_eq!(with_tail("ended with signal 9", String::new()), "ended with signal 9");
        assert_eq!(with_tail("ended with signal 9", "\n".to_owned()), "ended with signal 9\n\n");
    }
}
