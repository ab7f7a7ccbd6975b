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
//! Processes are tied to this thread: the kernel kills them when it ends, also if this program is killed.

use crate::control::Control;
use crate::crash::CrashLoop;
use crate::fcgi::{FastCgiTiming, Responder};
use crate::goridge::{Greeting, Relay};
use crate::head::Codec;
use crate::left::Left;
use crate::lines::{Lines, Tail};
use crate::mold::Mold;
use crate::pool::{Command, Reach, Say, Shared, Trouble, Worker};
use crate::printed::{Printed, Which};
use crate::probe::{Probe, Probed};
use crate::process::{self, End, Ground, Listening, Process};
use crate::settings::{Launch, Protocol, Settings};
use crate::slot::{SlotId, TASK_SLOT};
use crate::status::{CrashStatus, SlotStatus, Status, TasksStatus, counted};
use crate::task_socket::{Asked, TaskSocket};
use crate::tasks::{Origin, Running, Tasks};
use crate::watch::Sources;
use ringroad_engine::sync::CancellationToken;
use ringroad_gate::upstream::Address;
use ringroad_host::cpu::ProcessClock;
use ringroad_policy::backoff;
use ringroad_wire::rwp::{self, Frame, Kind, Outcome, TaskFrame};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
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

    /// Applies the number of task workers that programs request, if the configuration has none.
    fn count_tasks(&mut self) {
        for mold in self.molds.iter().filter(|mold| mold.is_ready) {
            let settings = match &mut self.reload {
                Some(reload) if reload.generation == mold.generation => &mut reload.settings,
                _ if self.generation == mold.generation => &mut self.settings,
                _ => continue,
            };
            let is_open = settings.tasks == 0 || settings.tasks_by_program;
            if is_open && settings.tasks != mold.tasks {
                *settings = Arc::new(Settings {
                    tasks: mold.tasks,
                    tasks_by_program: true,
                    ..Settings::clone(settings)
                });
            }
        }
    }

    /// Returns the mold of a generation, and starts it if there is none. `None`: it is not ready yet.
    fn mold(&mut self, settings: &Arc<Settings>, generation: u64) -> io::Result<Option<&Mold>> {
        match self.molds.iter().position(|mold| mold.generation == generation) {
            Some(at) => {
                let mold = self.molds.get(at).filter(|mold| mold.is_ready);
                if mold.is_some() {
                    self.mold_failures = 0;
                }
                Ok(mold)
            }
            None => {
                let mut mold = Mold::start(settings, &self.ground, generation)?;
                if self.serves() {
                    mold.process().lower(&self.ground);
                }
                self.molds.push(mold);
                Ok(None)
            }
        }
    }

    fn read_lines(&mut self, at: usize) {
        let Some(proc) = self.procs.get_mut(at) else { return };
        let label = format!("app {}[{}]", self.settings.name, slot_text(proc.slot));
        let mut buffer = [0_u8; 16 << 10];
        let Proc { process, printed, out, err, tail, .. } = proc;
        let say = &self.say;
        for (which, lines, pipe) in [(Which::Out, out, &mut process.out), (Which::Err, err, &mut process.err)]
        {
            let mut told = |id: &str, line: String| {
                say(labelled(&label, id, &line));
                if matches!(which, Which::Err) {
                    tail.push(line);
                }
            };
            // A worker that prints without end must not delay the others.
            for _ in 0..if pipe.is_some() { 16 } else { 0 } {
                let read = printed.read(which, &mut buffer, |request, bytes| {
                    lines.turn(request, &mut told);
                    lines.push(bytes, &mut told);
                });
                match read {
                    Ok(0) => {
                        lines.finish(&mut told);
                        *pipe = None;
                        break;
                    }
                    Ok(_) => {}
                    Err(_) => break,
                }
            }
        }
    }

    fn read_control(&mut self, at: usize) {
        let Some(proc) = self.procs.get_mut(at) else { return };
        let Some(control) = proc.control.clone() else { return };
        let open = control.flush().is_ok();
        let open = control.receive(&mut proc.received).unwrap_or(false) && open;
        let received = std::mem::take(&mut proc.received);
        let mut place = 0;
        loop {
            match rwp::next(&received, &mut place) {
                Ok(Some(frame)) => match TaskFrame::read(&frame) {
                    Ok(Some(about)) => self.task_frame(at, about),
                    Ok(None) if frame.stream == 0 => self.control_frame(at, &frame),
                    Ok(None) => {}
                    Err(why) => self.kill(at, "protocol", &why.to_string()),
                },
                Ok(None) => break,
                Err(why) => {
                    self.kill(at, "protocol", &format!("{why} on the control link"));
                    place = received.len();
                    break;
                }
            }
        }
        let Some(proc) = self.procs.get_mut(at) else { return };
        proc.received = received.get(place..).unwrap_or_default().to_vec();
        if !open {
            // The end of the process follows, or the process is useless.
            proc.control = None;
            self.lost(at);
        }
    }

    /// Handles a process that closed a link: it gets no more requests. The phase stays until its exit status
    /// is known.
    fn lost(&mut self, at: usize) {
        let Some(proc) = self.procs.get_mut(at) else { return };
        if !matches!(proc.phase, Phase::Stopping | Phase::Killed) && proc.lost.is_none() {
            proc.lost = Some(Instant::now());
            self.withdraw(at);
        }
    }

    /// Handles a worker that submits a task, has completed one, or sends a message to another worker.
    fn task_frame(&mut self, at: usize, frame: TaskFrame<'_>) {
        let Some(proc) = self.procs.get_mut(at) else { return };
        let (process, from) = (proc.id, proc.slot as u16);
        match frame {
            TaskFrame::Submit { number, slot, forget, payload } => {
                let origin = if forget { Origin::Forgotten } else { Origin::Worker { process, number } };
                if let Err(why) = self.submit(origin, from, slot, payload)
                    && forget
                {
                    let label = format!("app {}[{}]", self.settings.name, slot_text(u32::from(from)));
                    (self.say)(format!("{label}: a task is refused: {why}"));
                }
            }
            // A task that was too late is answered already.
            TaskFrame::Done { task, outcome, payload } => {
                if let Some(running) = proc.task.take_if(|running| running.number == task) {
                    if let Some(worker) = &proc.worker {
                        worker.set_request("");
                        worker.in_flight.store(0, Ordering::Relaxed);
                        worker.served.fetch_add(1, Ordering::Relaxed);
                        let busy = u64::try_from(running.since.elapsed().as_nanos()).unwrap_or(u64::MAX);
                        worker.busy_ns.fetch_add(busy, Ordering::Relaxed);
                    }
                    self.task_over(running, outcome, payload);
                }
            }
            TaskFrame::Message { to, payload } => {
                let generation = proc.generation;
                let receivers = self.procs.iter().filter(|proc| {
                    let serves = matches!(proc.phase, Phase::Standby | Phase::Ready);
                    proc.slot == u32::from(to) && serves && proc.hears()
                });
                // A worker of the same generation is preferred.
                let receiver = receivers.max_by_key(|proc| proc.generation == generation);
                let control = receiver.and_then(|proc| proc.control.as_ref());
                let sent = control.is_some_and(|control| {
                    control.pending_bytes() < MESSAGES_BYTES_MAX
                        && control.send_task(Kind::MESSAGE, from, 0, payload).is_ok()
                });
                if !sent {
                    let name = &self.settings.name;
                    let (from, to) = (slot_text(u32::from(from)), slot_text(u32::from(to)));
                    (self.say)(format!("app {name}[{from}]: a message to {to} is dropped: it does not read"));
                }
            }
        }
    }

    /// Queues a task. `Err`: it was refused, and its submitter was told.
    fn submit(&mut self, origin: Origin, from: u16, slot: Option<u16>, payload: &[u8]) -> Result<(), String> {
        let (workers, most) = (self.settings.tasks, self.settings.task_queue);
        self.tasks.submit(origin, from, slot, payload, workers, most).map_err(|(origin, why)| {
            self.task_told(origin, Outcome::Refused, why.as_bytes());
            why
        })
    }

    /// Gives queued tasks to idle task workers.
    fn give_tasks(&mut self) {
        while self.tasks.queued() > 0 {
            let idle: Vec<u16> = self
                .procs
                .iter()
                .filter(|proc| proc.is_free_for_task())
                .map(|proc| (proc.slot & !TASK_SLOT) as u16)
                .collect();
            let Some((slot, job)) = self.tasks.take(&idle) else { return };
            // One of those above: a task is taken only for an existing process.
            let free = |proc: &Proc| proc.slot == TASK_SLOT | u32::from(slot) && proc.is_free_for_task();
            let Some(at) = self.procs.iter().position(free) else { return };
            let Some(proc) = self.procs.get_mut(at) else { return };
            let Some(control) = proc.control.clone() else { return };
            proc.task = Some(Running { number: job.number, origin: job.origin, since: Instant::now() });
            if let Some(worker) = &proc.worker {
                worker.in_flight.store(1, Ordering::Relaxed);
                worker.set_request(&format!("task {}", job.number));
            }
            if control.send_task(Kind::TASK, job.from, job.number, &job.payload).is_err() {
                self.kill(at, "protocol", "does not read its control link");
            }
        }
    }

    /// Handles the end of a running task.
    fn task_over(&mut self, running: Running, outcome: Outcome, payload: &[u8]) {
        self.tasks.seconds += running.since.elapsed().as_secs_f64();
        if matches!(running.origin, Origin::Forgotten) && matches!(outcome, Outcome::TooLate | Outcome::Died)
        {
            let why = String::from_utf8_lossy(payload);
            (self.say)(format!("app {}: task {}: {why}", self.settings.name, running.number));
        }
        self.task_told(running.origin, outcome, payload);
    }

    /// Reports the outcome of a task to its submitter.
    fn task_told(&mut self, origin: Origin, outcome: Outcome, payload: &[u8]) {
        self.tasks.note(outcome);
        match origin {
            Origin::Worker { process, number } => {
                // A submitter that has ended no longer waits for it.
                let Some(at) = self.procs.iter().position(|proc| proc.id == process) else { return };
                let control = self.procs.get(at).and_then(|proc| proc.control.clone());
                let told = control.is_none_or(|control| {
                    control.send_task(Kind::TASK_RESULT, outcome as u16, number, payload).is_ok()
                });
                if !told {
                    self.kill(at, "protocol", "does not read its control link");
                }
            }
            Origin::Socket { connection, id } => {
                if let Some(socket) = &mut self.task_socket {
                    socket.answer(connection, id, outcome, payload);
                }
            }
            Origin::Forgotten => {}
        }
    }

    /// Fails the task of a process that has ended or will be killed.
    fn lose_task(&mut self, at: usize, outcome: Outcome, why: &str) {
        if let Some(running) = self.procs.get_mut(at).and_then(|proc| proc.task.take()) {
            self.task_over(running, outcome, why.as_bytes());
        }
    }

    fn control_frame(&mut self, at: usize, frame: &Frame<'_>) {
        let (kind, payload) = (frame.kind, frame.payload);
        let settings = self.settings_of(at);
        let Some(proc) = self.procs.get_mut(at) else { return };
        match kind {
            Kind::HELLO => {
                let hello: Value = serde_json::from_slice(payload).unwrap_or_default();
                let field = |key: &str| hello.get(key).cloned().unwrap_or_default();
                if field("version") != json!(rwp::VERSION) {
                    let why =
                        format!("speaks version {} of the protocol, not {}", field("version"), rwp::VERSION);
                    return self.kill(at, "protocol", &why);
                }
                if proc.process.is_unknown() {
                    let pid = field("pid").as_u64().and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0);
                    if let Err(why) = proc.process.is_known_as(pid) {
                        return self.kill(at, "protocol", &format!("its process {pid}: {why}"));
                    }
                }
                let wanted = field("concurrency").as_u64().unwrap_or(1).clamp(1, 1 << 20) as u32;
                proc.concurrency =
                    if proc.is_task() { 1 } else { settings.concurrency.unwrap_or(wanted).max(1) };
                proc.codec = Codec::of(field("codec").as_str().unwrap_or_default());
                proc.marks = field("marks").as_bool().unwrap_or(false);
                let welcome = json!({
                    "version": rwp::VERSION,
                    "app": settings.name,
                    "slot": proc.slot & !TASK_SLOT,
                    "task": proc.is_task(),
                    "workers": settings.workers,
                    "tasks": settings.tasks,
                    "generation": proc.generation,
                    "window": rwp::WINDOW_BYTES,
                    "concurrency": settings.concurrency,
                    "factory": settings.factory,
                    "root_path": settings.root_path,
                    "stop_timeout_ms": settings.stop_timeout.as_millis() as u64,
                    "dev": settings.dev,
                    "mark": proc.mark,
                    "features": ["trailers", "sendfile", "informational"],
                });
                if let Some(control) = proc.control.clone()
                    && control.send(Kind::WELCOME, welcome.to_string().as_bytes(), &[]).is_err()
                {
                    self.kill(at, "protocol", "does not read its control link");
                }
            }
            Kind::READY if proc.phase == Phase::Starting => {
                // The concurrency is known only after the application was imported.
                let ready: Value = serde_json::from_slice(payload).unwrap_or_default();
                let wanted = ready.get("concurrency").and_then(Value::as_u64);
                if let Some(wanted) = wanted.filter(|_| !proc.is_task()) {
                    let wanted = wanted.clamp(1, 1 << 20) as u32;
                    proc.concurrency = settings.concurrency.unwrap_or(wanted).max(1);
                }
                if let Some(codec) = ready.get("codec").and_then(Value::as_str) {
                    proc.codec = Codec::of(codec);
                }
                if let Some(marks) = ready.get("marks").and_then(Value::as_bool) {
                    proc.marks = marks;
                }
                proc.takes_sockets = ready.get("websocket").and_then(Value::as_bool).unwrap_or(false);
                if settings.health.is_some() && !proc.is_task() {
                    // It is ready when it has answered that check.
                    (proc.greeted, proc.next_probe) = (true, Instant::now());
                    self.read_probe(at);
                } else {
                    self.ready(at);
                }
            }
            Kind::PONG => {
                proc.asked = None;
                if let Some((_, rest)) = rwp::split_u32(payload)
                    && let Some((lag, _)) = rwp::split_u32(rest)
                {
                    proc.lag = Duration::from_micros(u64::from(lag));
                }
            }
            Kind::STEP => {
                let what = String::from_utf8_lossy(payload).into_owned();
                proc.step = Some(Step { what, reads: frame.aux & rwp::READS != 0 });
            }
            Kind::DRAIN => proc.wanted = proc.wanted.or(Some("asked")),
            Kind::FAILED => proc.failure = Some(String::from_utf8_lossy(payload).into_owned()),
            Kind::LOG => {
                let label = format!("app {}[{}]", self.settings.name, slot_text(proc.slot));
                for line in String::from_utf8_lossy(payload).lines() {
                    (self.say)(format!("{label}: {line}"));
                    proc.tail.push(line.to_owned());
                }
            }
            _ => {}
        }
    }

    fn read_greeting(&mut self, at: usize) {
        let Some(proc) = self.procs.get_mut(at) else { return };
        let Some(relay) = proc.relay.as_ref().filter(|_| proc.phase == Phase::Starting) else { return };
        match relay.greeting(&mut proc.received) {
            Greeting::None => {}
            Greeting::Ready => self.ready(at),
            Greeting::Wrong(why) => self.kill(at, "protocol", &why),
        }
    }

    fn read_probe(&mut self, at: usize) {
        let settings = self.settings_of(at);
        let now = Instant::now();
        let Some(proc) = self.procs.get_mut(at) else { return };
        if proc.phase != Phase::Starting {
            return;
        }
        let strict = settings.health.is_some();
        let path = settings.health.as_deref().unwrap_or("/");
        match &mut proc.probe {
            None if now >= proc.next_probe => {
                proc.next_probe = now + PROBE_EVERY;
                proc.probe = match (&proc.listening, &proc.control) {
                    (Some(listening), _) if settings.launch.protocol() == Protocol::FastCgi => {
                        Probe::begin_fastcgi(&listening.path)
                    }
                    (Some(listening), _) => {
                        Probe::begin(&listening.path, if strict { "GET" } else { "HEAD" }, path)
                    }
                    (None, Some(control)) if proc.greeted => {
                        Probe::begin_frames(control, proc.codec, path, &settings.root_path)
                    }
                    _ => None,
                };
            }
            None => {}
            Some(probe) => match probe.look(strict) {
                Probed::Waiting => {}
                Probed::Serves => {
                    proc.probe = None;
                    self.ready(at);
                }
                Probed::Not(why) => {
                    proc.probe = None;
                    proc.failure = Some(format!("the health check {why}"));
                    proc.next_probe = now + 4 * PROBE_EVERY;
                }
            },
        }
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

    /// Listens at the new settings' address, if it differs.
    fn reopen_task_socket(&mut self) {
        let wanted = self.settings.task_socket.clone();
        if self.task_socket.as_ref().map(TaskSocket::path) == wanted.as_deref() {
            return;
        }
        self.task_socket = None;
        if let Some(path) = wanted {
            match TaskSocket::open(&path, self.settings.user) {
                Ok(socket) => self.task_socket = Some(socket),
                Err(why) => (self.say)(format!("app {}: {why}", self.settings.name)),
            }
        }
    }

    /// Removes a process from dispatch.
    fn withdraw(&mut self, at: usize) {
        let Some(proc) = self.procs.get(at) else { return };
        if let Some(worker) = &proc.worker {
            worker.draining.store(true, Ordering::Relaxed);
        }
        let mut state = self.shared.state();
        let before = state.workers.len();
        state.workers.retain(|worker| worker.id != proc.id);
        if before > 0 && state.workers.is_empty() && !self.settings.dev {
            // Failed starts beside it say nothing about its successor, for which requests wait.
            state.trouble = None;
        }
    }

    /// Ends a process without affecting requests: it gets no more, finishes the present ones, then ends.
    fn retire(&mut self, at: usize, why: &'static str) {
        let Some(proc) = self.procs.get(at) else { return };
        let (id, phase) = (proc.id, proc.phase);
        self.replaced(id);
        match phase {
            Phase::Ready => {
                *self.restarts.entry(why).or_default() += 1;
                self.withdraw(at);
                self.enter(at, Phase::Draining);
                if self.settings.dev
                    && let Some(proc) = self.procs.get(at)
                {
                    // Open pages reconnect at once, to the new code. A worker that has ended has no streams.
                    proc.control.iter().for_each(|control| drop(control.send(Kind::PART, &[], &[])));
                    proc.worker.iter().for_each(|worker| worker.parting.cancel());
                }
            }
            Phase::Starting | Phase::Standby => self.tell_stop(at),
            Phase::Draining | Phase::Stopping | Phase::Killed => {}
        }
    }

    /// Handles a process that was replaced or has ended: the order is complete with the last one.
    fn replaced(&mut self, id: u64) {
        self.orders.retain_mut(|order| {
            order.left.retain(|left| *left != id);
            if order.left.is_empty() {
                // The requester may have left.
                let _ = order.tell.send(Ok(format!("{} replaced", order.count)));
            }
            !order.left.is_empty()
        });
    }

    /// Handles a replacement of the process `id` that did not become ready. The order is abandoned.
    fn not_replaced(&mut self, id: u64, slot: u32, why: &str) {
        let mut given_up = Vec::new();
        self.orders.retain_mut(|order| {
            let concerned = order.left.contains(&id);
            if concerned {
                let text = format!("slot {}: not replaced, the old process stays: {why}", slot_text(slot));
                let _ = order.tell.send(Err(text));
                given_up.append(&mut order.left);
            }
            !concerned
        });
        for proc in &mut self.procs {
            if given_up.contains(&proc.id) && proc.wanted == Some("asked") {
                proc.wanted = None;
            }
        }
    }

    fn tell_stop(&mut self, at: usize) {
        let span = self.settings.stop_timeout;
        let Some(proc) = self.procs.get_mut(at) else { return };
        let told = proc.control.as_ref().is_some_and(|control| {
            let span = u32::try_from(span.as_millis()).unwrap_or(u32::MAX);
            control.send(Kind::STOP, &span.to_le_bytes(), &[]).is_ok()
        });
        let told = told || proc.relay.as_ref().is_some_and(|relay| relay.stop());
        if !told || proc.phase == Phase::Starting {
            proc.terminate();
        }
        if self.serves()
            && let Some(proc) = self.procs.get(at)
        {
            // No request waits for its end.
            proc.process.lower_to_the_end();
        }
        self.enter(at, Phase::Stopping);
    }

    fn kill(&mut self, at: usize, why: &'static str, text: &str) {
        self.end_by_force(at, why, text, false);
    }

    /// Kills a hanging process. A Python program first prints where it hangs.
    fn kill_hanging(&mut self, at: usize, why: &'static str, text: &str) {
        let tells = matches!(self.settings_of(at).launch, Launch::Python { .. });
        self.end_by_force(at, why, text, tells);
    }

    fn end_by_force(&mut self, at: usize, why: &'static str, text: &str, tells: bool) {
        let Some(proc) = self.procs.get_mut(at) else { return };
        if proc.phase == Phase::Killed {
            return;
        }
        *self.restarts.entry(why).or_default() += 1;
        if proc.phase == Phase::Starting {
            proc.failure.get_or_insert_with(|| text.to_owned());
        }
        if tells && !proc.process.is_unknown() {
            let until = Instant::now() + LAST_WORDS;
            let reads = proc.phase == Phase::Starting
                && !proc.greeted
                && proc.step.as_ref().is_some_and(|step| step.reads);
            let asked = reads
                && proc.control.as_ref().is_some_and(|control| control.send(Kind::LATE, &[], &[]).is_ok());
            if !asked {
                proc.process.abort();
            }
            proc.ending = Some(if asked { Ending::Asked(until) } else { Ending::Aborted(until) });
        } else {
            proc.process.kill();
        }
        (self.say)(format!("app {}[{}]: killed: {text}", self.settings.name, slot_text(proc.slot)));
        self.withdraw(at);
        self.enter(at, Phase::Killed);
        self.lose_task(at, Outcome::Died, &format!("the task worker was killed: {text}"));
    }

    /// Handles the end of a process. `None`: it did not start.
    fn ended(&mut self, at: usize, end: Option<End>) {
        self.withdraw(at);
        let status = end.map_or_else(|| "it did not start".to_owned(), |end| end.to_string());
        self.lose_task(at, Outcome::Died, &format!("the task worker ended with {status}"));
        let mut proc = self.procs.remove(at);
        if proc.forked && !proc.process.is_unknown() {
            let mold = self.molds.iter().find(|mold| mold.generation == proc.generation);
            mold.into_iter().for_each(|mold| mold.reap(proc.process.pid()));
        }
        if let Some(mut left) = Left::of(proc.process.pid()) {
            if proc.listening.is_some() || proc.ending.is_some() {
                // The rest of a command's group serves a socket that is no longer used, or the process was
                // ended by force.
                left.terminate();
            }
            self.left.push(left);
        }
        let label = format!("app {}[{}]", self.settings.name, slot_text(proc.slot));
        let (say, tail) = (&self.say, &mut proc.tail);
        proc.err.finish(|id, line| {
            say(labelled(&label, id, &line));
            tail.push(line);
        });
        let unready = matches!(proc.phase, Phase::Starting | Phase::Standby)
            || proc.phase == Phase::Killed && proc.worker.is_none();
        self.replaced(proc.id);
        if matches!(proc.phase, Phase::Draining | Phase::Stopping) && !unready {
            return;
        }
        let brief = proc.failure.take().unwrap_or_else(|| format!("ended with {status}"));
        let why = with_tail(&brief, proc.tail.text());
        if self.reload.as_ref().is_some_and(|reload| reload.generation == proc.generation) {
            // Its lines are in the log already.
            return self.give_up_reload(brief.lines().next().unwrap_or_default(), &why);
        }
        if proc.phase == Phase::Stopping {
            return;
        }
        if proc.phase != Phase::Killed {
            *self.restarts.entry(if unready { "failed" } else { "died" }).or_default() += 1;
            (self.say)(format!("{label}: {}: {status}", if unready { "did not start" } else { "died" }));
        }
        let now = Instant::now();
        let slot = self.slots.entry(proc.slot).or_default();
        // It had started and was killed from outside, which says nothing about the next start.
        let is_outside = !unready && proc.phase != Phase::Killed && end.is_some_and(End::is_by_kill);
        let has_settled = !unready && proc.has_settled(now);
        if has_settled {
            slot.failures = 0;
        } else if !is_outside {
            slot.failures += 1;
        }
        let failures = slot.failures;
        let wait = if has_settled || is_outside {
            // At once, since most ends are single. In a crash loop as well, because this was not a failed
            // start.
            self.crash.hurry(now);
            Duration::ZERO
        } else {
            self.start_failed(failures, &why, now)
        };
        self.slots.entry(proc.slot).or_default().next_try = Some(now + wait);
        match proc.replaces {
            Some(old) if unready => self.not_replaced(old, proc.slot, &why),
            // Requests do not need task workers.
            None if !wait.is_zero() && (unready || self.crash.open().is_some()) && !proc.is_task() => {
                self.refuse_requests(why, now + wait);
            }
            _ => {}
        }
    }

    /// Records a failed start, the `failures`th in a row. Returns the time until the next one.
    fn start_failed(&mut self, failures: u32, why: &str, now: Instant) -> Duration {
        let slow = self.slow_wait();
        if self.crash.failed(failures, why, now, slow) {
            let serving = self.procs.iter().filter(|proc| proc.phase == Phase::Ready && !proc.is_task());
            (self.say)(format!(
                "app {}: crash loop: {failures} starts in a row have failed; from now on one is tried about each {:?}. \
                 Workers that serve: {}. The last lines:\n{why}",
                self.settings.name,
                self.settings.backoff.1,
                serving.count(),
            ));
        }
        if self.crash.open().is_some() {
            return slow;
        }
        let (first, longest) = self.settings.backoff;
        let jitter = backoff::wait(failures - 1, nanos(first), nanos(longest), self.random());
        // Half of the wait is fixed, so that an application that cannot start does not use a whole CPU.
        first.min(longest) / 2 + Duration::from_nanos(jitter)
    }

    /// Returns the time between two starts in a crash loop: random, with the longest back-off as its mean.
    fn slow_wait(&mut self) -> Duration {
        let longest = self.settings.backoff.1;
        longest / 2 + Duration::from_nanos(backoff::wait(0, nanos(longest), nanos(longest), self.random()))
    }

    /// Refuses the waiting requests: there is no worker, and none can be started.
    fn refuse_requests(&mut self, why: String, next_try: Instant) {
        let wakers = {
            let mut state = self.shared.state();
            state.trouble = Some(Trouble { why, next_try });
            if state.workers.is_empty() { state.refuse_waiting() } else { Vec::new() }
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Keeps the old workers. `brief` is for the log, `why` for the page and the requester.
    fn give_up_reload(&mut self, brief: &str, why: &str) {
        let Some(reload) = self.reload.take() else { return };
        for at in 0..self.procs.len() {
            if self.procs.get(at).is_some_and(|proc| proc.generation == reload.generation) {
                self.tell_stop(at);
            }
        }
        let name = &self.settings.name;
        (self.say)(format!("app {name}: not reloaded, the old workers stay: {brief}"));
        if self.settings.dev {
            // The page shows it until the next change.
            let next_try = Instant::now() + Duration::from_secs(1);
            self.shared.state().trouble = Some(Trouble { why: why.to_owned(), next_try });
        }
        for tell in reload.tell {
            let _ = tell.send(Err(why.to_owned()));
        }
    }

    /// Executes the queued commands.
    fn obey(&mut self, now: Instant) {
        let (commands, stuck, broken, leaving, lost) = {
            let mut state = self.shared.state();
            let broken = std::mem::take(&mut state.broken);
            let (leaving, lost) = (std::mem::take(&mut state.leaving), std::mem::take(&mut state.lost));
            (std::mem::take(&mut state.commands), std::mem::take(&mut state.stuck), broken, leaving, lost)
        };
        for id in lost {
            if let Some(at) = self.procs.iter().position(|proc| proc.id == id) {
                self.lost(at);
            }
        }
        for (id, why) in broken {
            if let Some(at) = self.procs.iter().position(|proc| proc.id == id) {
                self.kill(at, "protocol", &why);
            }
        }
        for id in leaving {
            if let Some(at) = self.procs.iter().position(|proc| proc.id == id) {
                self.retire(at, "asked");
            }
        }
        for id in stuck {
            if let Some(at) = self.procs.iter().position(|proc| proc.id == id) {
                self.stuck(at);
            }
        }
        for command in commands {
            match command {
                Command::Status(tell) => drop(tell.send(self.status(now))),
                Command::Reload(settings, tell) => self.reload(settings.map(|one| *one), tell),
                Command::Restart(slot, tell) => self.restart(slot, tell, now),
                // The requester may have left.
                Command::Scale(workers, tasks, tell) => drop(tell.send(self.scale(workers, tasks))),
            }
        }
    }

    /// Handles a request that its worker did not abandon. The process is killed if it has no other request;
    /// otherwise it is replaced, and its other requests are completed.
    fn stuck(&mut self, at: usize) {
        let text = "a request that was given up goes on";
        let Some(proc) = self.procs.get_mut(at) else { return };
        let busy = proc.worker.as_ref().map_or(0, |one| one.in_flight.load(Ordering::Relaxed));
        if busy <= 1 {
            return self.kill_hanging(at, "timeout", text);
        }
        if proc.phase == Phase::Ready && proc.wanted.is_none() {
            proc.wanted = Some("timeout");
            let label = format!("app {}[{}]", self.settings.name, slot_text(proc.slot));
            (self.say)(format!("{label}: {text}: it is replaced, and its other requests are finished"));
        }
    }

    /// Has a process, or all one after another, replaced.
    fn restart(&mut self, slot: Option<SlotId>, tell: mpsc::Sender<Result<String, String>>, now: Instant) {
        let mut left = Vec::new();
        for proc in &mut self.procs {
            if slot.is_none_or(|slot| slot.raw() == proc.slot) && proc.phase == Phase::Ready {
                proc.wanted = Some("asked");
                left.push(proc.id);
                self.slots.entry(proc.slot).or_default().next_try = None;
            }
        }
        let why = match (left.len(), slot) {
            (0, Some(slot)) => format!("slot {slot} has no process that serves"),
            (0, None) => "no worker serves".to_owned(),
            (count, _) => {
                // It was ordered, so it does not wait for the next try of a crash loop.
                self.crash.hurry(now);
                return self.orders.push(Order { left, count, tell });
            }
        };
        let _ = tell.send(Err(why));
    }

    fn scale(&mut self, workers: Option<usize>, tasks: Option<usize>) -> Result<String, String> {
        if let Some(workers) = workers.filter(|workers| !(1..=1024).contains(workers)) {
            return Err(format!("expected 1 to 1024 workers, found {workers}"));
        }
        if let Some(tasks) = tasks.filter(|tasks| *tasks > 1024) {
            return Err(format!("expected 0 to 1024 task workers, found {tasks}"));
        }
        if tasks.is_some_and(|tasks| tasks > 0) && self.settings.launch.protocol() != Protocol::Ringroad {
            return Err("this application runs no tasks".to_owned());
        }
        let by_program = self.molds.iter().any(|mold| mold.generation == self.generation && mold.tasks > 0);
        if tasks == Some(0) && by_program {
            return Err("the program gives tasks to task workers: expected at least 1".to_owned());
        }
        let scaled = |settings: &Settings| {
            let mut settings = settings.clone();
            if let Some(tasks) = tasks {
                (settings.tasks, settings.tasks_by_program) = (tasks, false);
            }
            if let Some(workers) = workers {
                settings.workers = workers;
                settings.workers_max = settings.workers_max.max(workers);
            }
            Arc::new(settings)
        };
        self.settings = scaled(&self.settings);
        self.shared.state().settings = Arc::clone(&self.settings);
        if let Some(reload) = &mut self.reload {
            // This also applies to a generation that is starting, because the order is newer.
            reload.settings = scaled(&reload.settings);
            reload.target = workers.unwrap_or(reload.target);
        }
        let mut parts = Vec::new();
        if let Some(workers) = workers {
            self.resize(workers);
            parts.push(counted(workers, "worker"));
        }
        if let Some(tasks) = tasks {
            self.retire_slots(|slot| slot.is_task && slot.number as usize >= tasks);
            for job in self.tasks.without_worker(tasks) {
                let why = b"its task worker is gone: there are fewer now";
                self.task_told(job.origin, Outcome::Refused, why);
            }
            parts.push(counted(tasks, "task worker"));
        }
        self.switch_if_complete();
        Ok(parts.join(", "))
    }

    fn reload(&mut self, settings: Option<Settings>, tell: mpsc::Sender<Result<String, String>>) {
        if let Some(reload) = self.reload.take() {
            // Starting processes have the old settings.
            for at in 0..self.procs.len() {
                if self.procs.get(at).is_some_and(|proc| proc.generation == reload.generation) {
                    self.tell_stop(at);
                }
            }
            for tell in reload.tell {
                let _ = tell.send(Err("another reload came".to_owned()));
            }
        }
        let settings = settings.map_or_else(|| Arc::clone(&self.settings), Arc::new);
        let target = settings.workers.max(1);
        let generation =
            self.procs.iter().map(|proc| proc.generation).max().unwrap_or(0).max(self.generation) + 1;
        self.sources = self.look_at_files();
        {
            let mut state = self.shared.state();
            if state.workers.is_empty() && !settings.dev {
                // No worker serves: requests wait for the new ones.
                state.trouble = None;
            }
        }
        self.slots.values_mut().for_each(|slot| slot.next_try = None);
        self.reload = Some(Reload { generation, target, settings, tell: vec![tell] });
    }

    fn resize(&mut self, target: usize) {
        self.target = target;
        self.shared.state().slots = target as u32;
        self.retire_slots(|slot| !slot.is_task && slot.number as usize >= target);
    }

    /// Ends the processes of removed slots, also of a generation that is starting.
    fn retire_slots(&mut self, is_over: impl Fn(SlotId) -> bool) {
        let over: Vec<u64> = self
            .procs
            .iter()
            .filter(|proc| proc.generation >= self.generation && is_over(SlotId::of(proc.slot)))
            .map(|proc| proc.id)
            .collect();
        for id in over {
            if let Some(at) = self.procs.iter().position(|proc| proc.id == id) {
                self.retire(at, "scale");
            }
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

    /// Starts missing processes and replacements, and grows or shrinks the number of slots.
    fn fill(&mut self, now: Instant) {
        if self.reload.is_none() {
            self.grow_or_shrink(now);
        }
        self.fill_reload();
        // A new generation replaces everything. Processes that end meanwhile are still replaced.
        let settings = Arc::clone(&self.settings);
        let generation = self.generation;
        for slot in slots(self.target, settings.tasks) {
            let there = self.procs.iter().any(|proc| {
                proc.slot == slot
                    && proc.generation == generation
                    && matches!(proc.phase, Phase::Starting | Phase::Ready)
            });
            let due = self.slots.entry(slot).or_default().next_try.is_none_or(|next| now >= next);
            if !there && due && self.lets_start(now, &settings) {
                self.try_start(slot, generation, &settings, None, now);
            }
        }
        // One replacement at a time: the others continue to serve.
        let replacing =
            self.procs.iter().any(|proc| proc.phase == Phase::Starting && proc.replaces.is_some());
        let wanted = self.procs.iter().find(|proc| {
            proc.wanted.is_some()
                && proc.phase == Phase::Ready
                && self.slots.get(&proc.slot).is_none_or(|slot| slot.next_try.is_none_or(|next| now >= next))
        });
        let wanted = wanted.filter(|_| !replacing && self.reload.is_none()).map(|one| (one.id, one.slot));
        if let Some((id, slot)) = wanted
            && self.lets_start(now, &settings)
        {
            self.try_start(slot, generation, &settings, Some(id), now);
        }
    }

    /// Starts the missing processes of a new generation.
    fn fill_reload(&mut self) {
        let Some(reload) = &self.reload else { return };
        let (generation, target, settings) = (reload.generation, reload.target, Arc::clone(&reload.settings));
        for slot in slots(target, settings.tasks) {
            let there = |proc: &Proc| proc.slot == slot && proc.generation == generation;
            if self.procs.iter().any(there) {
                continue;
            }
            if self.starting() >= self.starts_at_once(&settings) {
                return;
            }
            if let Err(why) = self.spawn(slot, generation, &settings, None) {
                let why = why.to_string();
                return self.give_up_reload(&why, &why);
            }
        }
    }

    /// Returns the number of starting processes that no mold forked.
    fn starting(&self) -> usize {
        self.procs.iter().filter(|proc| proc.phase == Phase::Starting && !proc.forked).count()
    }

    /// Returns how many processes may start at a time: a quarter of the CPUs while a worker serves, since it
    /// needs them too. No limit otherwise, nor for forks by a mold, which cost almost nothing.
    fn starts_at_once(&self, settings: &Settings) -> usize {
        if settings.forks() || !self.serves() {
            return usize::MAX;
        }
        thread::available_parallelism().map_or(1, |count| count.get().div_ceil(4))
    }

    fn lets_start(&self, now: Instant, settings: &Settings) -> bool {
        self.crash.lets_start(now) && self.starting() < self.starts_at_once(settings)
    }

    /// Starts a process of the serving generation.
    fn try_start(
        &mut self,
        slot: u32,
        generation: u64,
        settings: &Arc<Settings>,
        replaces: Option<u64>,
        now: Instant,
    ) {
        let before = self.procs.len();
        self.slots.entry(slot).or_default().next_try = None;
        if let Err(why) = self.spawn(slot, generation, settings, replaces) {
            return self.not_spawned(slot, replaces, &why);
        }
        // No process exists yet if a mold has to import first.
        if self.procs.len() > before {
            let wait = self.slow_wait();
            self.crash.tries(now, wait);
        }
    }

    fn not_spawned(&mut self, slot: u32, replaces: Option<u64>, why: &io::Error) {
        let now = Instant::now();
        let why = why.to_string();
        let failures = {
            let slot = self.slots.entry(slot).or_default();
            slot.failures += 1;
            slot.failures
        };
        // A refusal by the kernel may be temporary, but a retry within 100 ms is too early.
        let wait =
            self.start_failed(failures, &why, now).max(self.settings.backoff.1.min(Duration::from_secs(1)));
        self.slots.entry(slot).or_default().next_try = Some(now + wait);
        (self.say)(format!("app {}[{}]: {why}", self.settings.name, slot_text(slot)));
        match replaces {
            Some(old) => self.not_replaced(old, slot, &why),
            None if slot & TASK_SLOT == 0 => self.refuse_requests(why, now + wait),
            None => {}
        }
    }

    fn grow_or_shrink(&mut self, now: Instant) {
        let (least, most) = (self.settings.workers.max(1), self.settings.most());
        if most <= least && self.target <= least {
            return;
        }
        let waiting_since = self.shared.state().waiting_since;
        let starting = self.procs.iter().any(|proc| proc.phase == Phase::Starting && !proc.is_task());
        if self.target < most
            && !starting
            && waiting_since.is_some_and(|since| now.duration_since(since) >= GROW_AFTER)
        {
            self.grown = now;
            return self.resize(self.target + 1);
        }
        let idle = self.settings.idle;
        // No shrinking while requests wait: they wait for a worker that starts, however long that takes.
        if self.target > least
            && waiting_since.is_none()
            && !idle.is_zero()
            && now.duration_since(self.grown) >= idle
        {
            // Dispatch prefers low numbers, so the last slot is the most idle one.
            let serving = self.procs.iter().filter(|proc| proc.phase == Phase::Ready && !proc.is_task());
            let workers: Vec<_> = serving.filter_map(|proc| proc.worker.as_ref()).collect();
            let load: u64 = workers.iter().map(|one| u64::from(one.in_flight.load(Ordering::Relaxed))).sum();
            let last = self.target - 1;
            let others = workers.iter().filter(|one| (one.slot as usize) < last);
            let places: u64 = others.map(|one| u64::from(one.concurrency)).sum();
            self.grown = now;
            if load <= places {
                self.resize(last);
            }
        }
    }

    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(1);
        crate::pool::mix(self.random)
    }

    fn spawn(
        &mut self,
        slot: u32,
        generation: u64,
        settings: &Arc<Settings>,
        replaces: Option<u64>,
    ) -> io::Result<()> {
        let id = crate::pool::next_id();
        let forked = settings.forks();
        let (control, process, listening);
        let mut relay = None;
        if forked {
            // Tried again when the mold is ready.
            let Some(mold) = self.mold(settings, generation)? else { return Ok(()) };
            let (ours, child) = mold.fork(slot)?;
            (control, process, listening) = (Some(Arc::new(ours)), child, None);
        } else {
            let link = process::link(settings)?;
            let (ours, mut theirs) = link.map_or((None, None), |(ours, theirs)| (Some(ours), Some(theirs)));
            if settings.launch.protocol() == Protocol::Goridge {
                let (ours, end) = Relay::pair()?;
                (relay, theirs) = (Some(Arc::new(ours)), Some(end));
            }
            listening = self.ground.listening(settings, id)?;
            process = process::start(settings, &self.ground, slot, generation, theirs, listening.as_ref())?;
            control = ours;
        }
        let mut process = process;
        if !forked && self.serves() {
            process.lower(&self.ground);
        }
        let printed = Arc::new(Printed::new(process.out.as_ref(), process.err.as_ref()));
        let now = Instant::now();
        // Output that a client provokes cannot imitate the mark of another request.
        let mark = format!("{:016x}", RandomState::new().build_hasher().finish());
        // Shortened by a random part, so that workers that started together are not replaced together.
        let part = 1.0 - settings.jitter.clamp(0.0, 1.0) * (self.random() as f64 / u64::MAX as f64);
        self.procs.push(Proc {
            id,
            slot,
            generation,
            process,
            control,
            relay,
            received: Vec::new(),
            listening,
            greeted: false,
            probe: None,
            next_probe: now,
            printed,
            out: Lines::marked(&mark),
            err: Lines::marked(&mark),
            mark,
            marks: false,
            tail: Tail::default(),
            phase: Phase::Starting,
            since: now,
            started: now,
            worker: None,
            concurrency: 1,
            codec: Codec::Json,
            takes_sockets: false,
            forked,
            replaces,
            wanted: None,
            failure: None,
            step: None,
            ending: None,
            requests_max: if settings.max_requests == 0 {
                0
            } else {
                ((settings.max_requests as f64 * part) as u64).max(1)
            },
            age_max: settings.max_age.mul_f64(part),
            lost: None,
            terminated: false,
            asked: None,
            next_ping: now + settings.ping,
            lag: Duration::ZERO,
            memory: 0,
            cpu: 0.0,
            task: None,
        });
        Ok(())
    }

    fn status(&self, now: Instant) -> Status {
        let state = self.shared.state();
        let mut workers: Vec<_> = self
            .procs
            .iter()
            .map(|proc| {
                let number = |count: fn(&Worker) -> u64| proc.worker.as_deref().map_or(0, count);
                SlotStatus {
                    slot: SlotId::of(proc.slot),
                    state: proc.phase.word(),
                    pid: proc.process.pid(),
                    generation: proc.generation,
                    in_flight: number(|worker| u64::from(worker.in_flight.load(Ordering::Relaxed))) as u32,
                    sockets: number(|worker| u64::from(worker.sockets.load(Ordering::Relaxed))) as u32,
                    served: number(|worker| worker.served.load(Ordering::Relaxed)),
                    busy_seconds: number(|worker| worker.busy_ns.load(Ordering::Relaxed)) as f64 / 1e9,
                    memory_bytes: proc.memory,
                    cpu_seconds: proc.cpu,
                    lag_seconds: proc.lag.as_secs_f64(),
                    age: now.duration_since(proc.started),
                }
            })
            .collect();
        workers.sort_by_key(|one| (one.slot.is_task, one.slot.number, one.generation));
        Status {
            app: self.settings.name.clone(),
            command: match &self.settings.launch {
                Launch::Python { target, .. } => target.clone(),
                Launch::Php { file, .. } => file.display().to_string(),
                Launch::Command { line, .. } => line.join(" "),
            },
            generation: self.generation,
            waiting: state.waiting(),
            rate: state.rate,
            trouble: state
                .trouble
                .as_ref()
                .map(|trouble| trouble.why.clone())
                .or_else(|| self.crash.open().map(|open| open.why.clone())),
            crash_loop: self.crash.open().map(|open| CrashStatus {
                failures: open.failures,
                next_try: open.next_try.saturating_duration_since(now),
            }),
            workers,
            restarts: self.restarts.iter().map(|(why, count)| (*why, *count)).collect(),
            tasks: (self.settings.tasks > 0).then(|| self.tasks_status(now)),
        }
    }

    fn tasks_status(&self, now: Instant) -> TasksStatus {
        let all = [
            Outcome::Done,
            Outcome::Silent,
            Outcome::Raised,
            Outcome::Refused,
            Outcome::TooLate,
            Outcome::Died,
        ];
        let running = self.procs.iter().filter_map(|proc| proc.task.as_ref());
        let since: f64 = running.clone().map(|task| now.duration_since(task.since).as_secs_f64()).sum();
        TasksStatus {
            queued: self.tasks.queued(),
            running: running.count(),
            over: all
                .map(|how| (how.as_str(), self.tasks.over.get(how as usize).copied().unwrap_or(0)))
                .to_vec(),
            seconds: self.tasks.seconds + since,
        }
    }

    /// Ends all processes. Requests and tasks in progress are completed within the time limit. Workers end
    /// first, since their requests may wait for tasks.
    fn stop(&mut self) {
        self.stopping = true;
        if let Some(reload) = self.reload.take() {
            for tell in reload.tell {
                let _ = tell.send(Err("the application stops".to_owned()));
            }
        }
        for order in std::mem::take(&mut self.orders) {
            let _ = order.tell.send(Err("the application stops".to_owned()));
        }
        let wakers = self.shared.state().refuse_waiting();
        wakers.into_iter().for_each(Waker::wake);
        self.end_those(|proc| !proc.is_task());
        let lost = self.tasks.close();
        if !lost.is_empty() {
            let lost = counted(lost.len(), "task");
            (self.say)(format!("app {}: {lost} waiting at the stop: lost", self.settings.name));
        }
        for job in lost {
            self.task_told(job.origin, Outcome::Died, b"the application stops");
        }
        self.end_those(|_| true);
        self.left.iter_mut().for_each(Left::terminate);
        while !self.left.is_empty() {
            self.turn_to_the_end();
        }
    }

    fn end_those(&mut self, chosen: fn(&Proc) -> bool) {
        for at in 0..self.procs.len() {
            if self.procs.get(at).is_some_and(chosen) {
                self.retire(at, "stop");
            }
        }
        while self.procs.iter().any(chosen) {
            self.turn_to_the_end();
        }
    }

    /// Runs a turn in which no process is started.
    fn turn_to_the_end(&mut self) {
        self.look_at_clocks(Instant::now());
        self.wait();
        self.shared.woken();
        self.hear();
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
