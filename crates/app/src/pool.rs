//! One application: its workers as the server's threads see them, and the dispatch of requests.
//!
//! Dispatch is under one lock, which a request takes twice: for its [`Ticket`], and when that is dropped. A
//! ticket is held until the worker has finished with the request, even if the client has left, so a worker
//! never has more requests than its concurrency. Requests without a free worker wait in one queue, oldest
//! first.

use crate::control::Control;
use crate::fcgi::Responder;
use crate::goridge::Relay;
use crate::head::Codec;
use crate::metrics::{Counts, Rejected};
use crate::printed::Printed;
use crate::settings::{Dispatch, Settings};
use crate::slot::SlotId;
use crate::status::{Status, counted};
use crate::supervisor;
use ringroad_engine::sync::CancellationToken;
use rustix::event::EventfdFlags;
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Receives lines for the log: output of workers, and changes of their state.
pub type Say = Arc<dyn Fn(String) + Send + Sync>;

/// An application with its workers. Dropping it stops them.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<Shared>,
    say: Telling,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// [`Say`], which has no text of its own.
struct Telling(Say);

impl fmt::Debug for Telling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Say")
    }
}

/// A process that gets requests.
#[derive(Debug)]
pub struct Worker {
    pub(crate) id: u64,
    pub(crate) slot: u32,
    /// Maximum number of concurrent requests.
    pub(crate) concurrency: u32,
    pub(crate) reach: Reach,
    pub(crate) in_flight: AtomicU32,
    /// WebSockets that it has accepted. They do not count as requests.
    pub(crate) sockets: AtomicU32,
    /// Whether it accepts WebSockets.
    pub(crate) takes_sockets: bool,
    pub(crate) served: AtomicU64,
    pub(crate) busy_ns: AtomicU64,
    /// Gets no more requests.
    pub(crate) draining: AtomicBool,
    /// Cancelled in development when its code is outdated.
    pub(crate) parting: CancellationToken,
    /// Its output, if it has one request at a time and does not mark its lines itself.
    pub(crate) printed: Option<Arc<Printed>>,
}

/// The transport of requests to a worker.
#[derive(Debug)]
pub(crate) enum Reach {
    /// Frames over links that are sent to it.
    Frames(Arc<Control>, Codec),
    /// HTTP/1.1 over a Unix socket.
    Http(PathBuf),
    /// FastCGI over a Unix socket.
    FastCgi(Arc<Responder>),
    /// goridge over a socket that is its standard input and output.
    Goridge(Arc<Relay>),
}

impl Worker {
    /// Returns the number of its slot.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// Returns a number that no other worker of this process has.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns whether it accepts WebSockets over its links.
    pub fn takes_sockets(&self) -> bool {
        self.takes_sockets
    }

    /// Returns the socket of an HTTP worker.
    pub fn http_socket(&self) -> Option<&std::path::Path> {
        match &self.reach {
            Reach::Http(path) => Some(path),
            _ => None,
        }
    }

    /// Returns a token that is cancelled in development when the code has changed and another worker has the
    /// new code: event streams and WebSockets end, so that open pages reconnect to that worker.
    pub fn parting(&self) -> &CancellationToken {
        &self.parting
    }

    /// Returns the FastCGI server, if the worker is one.
    pub fn responder(&self) -> Option<&Arc<Responder>> {
        match &self.reach {
            Reach::FastCgi(responder) => Some(responder),
            _ => None,
        }
    }

    /// Returns the relay of a goridge worker.
    pub(crate) fn relay(&self) -> Option<Arc<Relay>> {
        match &self.reach {
            Reach::Goridge(relay) => Some(Arc::clone(relay)),
            _ => None,
        }
    }

    /// Sets the request that its printed lines belong to, until the end of its ticket.
    pub fn set_request(&self, id: &str) {
        if let Some(printed) = &self.printed {
            printed.turn(id);
        }
    }
}

/// Returns a number that no other worker of this process has, of any application: links are kept by it.
pub(crate) fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// State that the server's threads and the supervisor share.
pub(crate) struct Shared {
    pub(crate) state: Mutex<State>,
    /// Wakes the supervisor.
    wake: OwnedFd,
    pub(crate) counts: Counts,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// State under the lock.
pub(crate) struct State {
    pub(crate) settings: Arc<Settings>,
    /// Workers that get requests, by slot.
    pub(crate) workers: Vec<Arc<Worker>>,
    waiting: VecDeque<Arc<Waiter>>,
    turn: usize,
    /// Number of slots, of which some may have no worker now.
    pub(crate) slots: u32,
    /// Why no worker can be started.
    pub(crate) trouble: Option<Trouble>,
    pub(crate) stopping: bool,
    pub(crate) commands: Vec<Command>,
    /// Workers that did not abandon an overdue request.
    pub(crate) stuck: Vec<u64>,
    /// Workers that have broken their protocol, and how.
    pub(crate) broken: Vec<(u64, String)>,
    /// Workers that asked to end.
    pub(crate) leaving: Vec<u64>,
    /// Workers that the server's threads found dead.
    pub(crate) lost: Vec<u64>,
    /// When requests began to wait.
    pub(crate) waiting_since: Option<Instant>,
    /// Requests each second, smoothed.
    pub(crate) rate: f64,
}

/// Why there is no worker.
#[derive(Clone, Debug)]
pub(crate) struct Trouble {
    pub(crate) why: String,
    pub(crate) next_try: Instant,
}

/// A command to the supervisor.
pub(crate) enum Command {
    /// New workers of these settings, or of the same; the answer comes when they serve.
    Reload(Option<Box<Settings>>, mpsc::Sender<Result<String, String>>),
    /// The process of a slot, or all; the answer comes when they are replaced.
    Restart(Option<SlotId>, mpsc::Sender<Result<String, String>>),
    /// The new numbers of workers and of task workers, where given.
    Scale(Option<usize>, Option<usize>, mpsc::Sender<Result<String, String>>),
    Status(mpsc::Sender<Status>),
}

/// A request that waits for a worker.
struct Waiter {
    key: Option<u64>,
    excluded: Vec<u64>,
    given: Mutex<Given>,
}

#[derive(Default)]
struct Given {
    got: Option<Result<Ticket, Refused>>,
    waker: Option<Waker>,
}

impl Waiter {
    /// Returns whether it accepts only some of the free workers.
    fn is_choosy(&self) -> bool {
        self.key.is_some() || !self.excluded.is_empty()
    }
}

/// Why a request gets no worker.
#[derive(Clone, Debug)]
pub struct Refused {
    /// The counter that it belongs to.
    pub(crate) because: Rejected,
    /// What happened, for the log.
    pub why: String,
    /// When the client should retry.
    pub retry_after: Duration,
    /// The application's last output, if it cannot be started.
    pub trouble: Option<String>,
}

impl Refused {
    /// Returns when the client should retry, in whole seconds, for `Retry-After`.
    pub fn seconds(&self) -> u64 {
        let whole = self.retry_after.as_secs();
        (whole + u64::from(self.retry_after.subsec_nanos() > 0)).max(1)
    }
}

/// The permission to give a request to a worker. Dropped when the worker has finished with it.
#[derive(Debug)]
pub struct Ticket {
    shared: Arc<Shared>,
    worker: Arc<Worker>,
    begun: Instant,
    /// Whether it is for an accepted WebSocket, and does not count as a request.
    is_socket: bool,
}

impl Ticket {
    /// Returns the worker.
    pub fn worker(&self) -> &Arc<Worker> {
        &self.worker
    }

    /// Returns when it was issued.
    pub fn begun(&self) -> Instant {
        self.begun
    }

    /// Returns the settings of its application.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.shared.state().settings)
    }

    /// Reports that the worker did not abandon a request in time: it is killed.
    pub(crate) fn stuck(&self) {
        self.shared.state().stuck.push(self.worker.id);
        self.shared.wake();
    }

    /// Reports that the worker has broken its protocol: it is killed.
    pub(crate) fn broken(&self, why: String) {
        self.shared.state().broken.push((self.worker.id, why));
        self.shared.wake();
    }

    /// Returns the handle that reports the end of the worker.
    pub(crate) fn lifeline(&self) -> Lifeline {
        Lifeline { shared: Arc::clone(&self.shared), worker: Arc::clone(&self.worker) }
    }

    /// Reports that the worker wants to end: it gets no more requests.
    pub(crate) fn leaves(&self) {
        self.worker.draining.store(true, Ordering::Relaxed);
        self.shared.state().leaving.push(self.worker.id);
        self.shared.wake();
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.shared.counts
    }

    pub(crate) fn is_socket(&self) -> bool {
        self.is_socket
    }

    /// Marks the ticket as that of an accepted WebSocket. It may last for days, so it no longer counts as a
    /// request.
    pub(crate) fn becomes_socket(&mut self) {
        if !std::mem::replace(&mut self.is_socket, true) {
            self.worker.sockets.fetch_add(1, Ordering::Relaxed);
            self.give_back();
        }
    }

    /// Gives the place back.
    fn give_back(&self) {
        let worker = &self.worker;
        worker.set_request("");
        let busy = u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        worker.busy_ns.fetch_add(busy, Ordering::Relaxed);
        let served = worker.served.fetch_add(1, Ordering::Relaxed) + 1;
        let mut state = self.shared.state();
        let left = worker.in_flight.fetch_sub(1, Ordering::Relaxed) - 1;
        let most = state.settings.max_requests;
        let look = worker.draining.load(Ordering::Relaxed) && left == 0 || most > 0 && served >= most / 2;
        let given = state.serve_waiting(&self.shared);
        drop(state);
        given.into_iter().for_each(Waker::wake);
        if look {
            self.shared.wake();
        }
    }
}

/// Reports the state of a link to a worker. The threads that use a worker notice its end earlier than the
/// supervisor. Until then dispatch would choose the dead worker again and again, because it is idle.
#[derive(Debug)]
pub(crate) struct Lifeline {
    shared: Arc<Shared>,
    worker: Arc<Worker>,
}

impl Lifeline {
    /// Reports that the worker closed a link or refuses one: it gets no more requests.
    pub(crate) fn is_gone(&self) {
        // A worker that was told to end closes its links.
        if !self.worker.draining.swap(true, Ordering::Relaxed) {
            self.shared.state().lost.push(self.worker.id);
            self.shared.wake();
        }
    }

    /// Reports that the worker broke its protocol: it gets no more requests and is killed.
    pub(crate) fn is_broken(&self, why: String) {
        self.worker.draining.store(true, Ordering::Relaxed);
        self.shared.state().broken.push((self.worker.id, why));
        self.shared.wake();
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.is_socket {
            self.worker.sockets.fetch_sub(1, Ordering::Relaxed);
        } else {
            self.give_back();
        }
    }
}

impl State {
    /// Assigns workers to waiting requests. Returns the wakers to be called without the lock.
    pub(crate) fn serve_waiting(&mut self, shared: &Arc<Shared>) -> Vec<Waker> {
        let mut wakers = Vec::new();
        let mut at = 0;
        while let Some(waiter) = self.waiting.get(at).cloned() {
            // The first waiting request without a preference represents all of them.
            match self.choose(waiter.key, &waiter.excluded) {
                Some(worker) => {
                    self.waiting.remove(at);
                    let ticket = Ticket::new(shared, worker);
                    wakers.extend(waiter.give(Ok(ticket)));
                }
                None if !waiter.is_choosy() => break,
                None => at += 1,
            }
        }
        if self.waiting.is_empty() {
            self.waiting_since = None;
        }
        wakers
    }

    /// Refuses all requests that wait.
    pub(crate) fn refuse_waiting(&mut self) -> Vec<Waker> {
        let refused = self.refusal(Rejected::NoWorker, "no worker can be started");
        self.waiting_since = None;
        std::mem::take(&mut self.waiting)
            .into_iter()
            .filter_map(|one| one.give(Err(refused.clone())))
            .collect()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn refusal(&self, because: Rejected, why: &str) -> Refused {
        // The present requests are answered or refused by then, so the queue has others.
        let most = self.settings.queue_timeout.as_secs_f64().clamp(1.0, 60.0);
        let measured = (self.waiting.len().max(1) as f64 / self.rate.max(0.1)).clamp(1.0, most);
        let (retry_after, trouble) = match &self.trouble {
            Some(trouble) if self.workers.is_empty() || self.settings.dev => {
                (trouble.next_try.saturating_duration_since(Instant::now()), Some(trouble.why.clone()))
            }
            _ => (Duration::from_secs_f64(measured), None),
        };
        let retry_after = retry_after.max(Duration::from_secs(1));
        Refused { because, why: why.to_owned(), retry_after, trouble }
    }

    /// Returns a worker with a free place, by the dispatch rule. The caller occupies it with a ticket.
    fn choose(&mut self, key: Option<u64>, excluded: &[u64]) -> Option<Arc<Worker>> {
        let busy = |worker: &Worker| worker.in_flight.load(Ordering::Relaxed);
        let load = |worker: &Worker| busy(worker).saturating_add(worker.sockets.load(Ordering::Relaxed));
        let open = |worker: &&Arc<Worker>| {
            !worker.draining.load(Ordering::Relaxed) && !excluded.contains(&worker.id)
        };
        let free = |worker: &&Arc<Worker>| open(worker) && busy(worker) < worker.concurrency;
        if let Some(key) = key {
            // Rendezvous hashing over slot numbers, so that a replaced worker keeps its clients. A slot
            // without a worker is represented by the next in the order. If the worker is full, the request
            // waits.
            let ranked = self.workers.iter().filter(open);
            let best = ranked.max_by_key(|worker| mix(key ^ mix(u64::from(worker.slot) + 1)))?;
            return free(&best).then(|| Arc::clone(best));
        }
        let dispatch = &self.settings.dispatch;
        let count = self.workers.len().max(1);
        let turn = self.turn % count;
        let in_turn = self.workers.iter().skip(turn).chain(self.workers.iter().take(turn));
        let chosen = match dispatch {
            Dispatch::Turns => in_turn.into_iter().find(|worker| free(worker)).cloned(),
            Dispatch::Least => in_turn.filter(free).min_by_key(|worker| load(worker)).cloned(),
            // By slot number: the first ones stay warm, and the last ones may be stopped.
            _ => self.workers.iter().filter(free).min_by_key(|worker| load(worker)).cloned(),
        };
        if let Some(chosen) = &chosen
            && matches!(dispatch, Dispatch::Turns | Dispatch::Least)
        {
            let at = self.workers.iter().position(|worker| worker.id == chosen.id);
            self.turn = at.map_or(0, |at| at + 1);
        }
        chosen
    }
}

/// The finaliser of SplitMix64: each bit of the input changes half of the output bits.
pub(crate) fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

impl Ticket {
    fn new(shared: &Arc<Shared>, worker: Arc<Worker>) -> Ticket {
        worker.in_flight.fetch_add(1, Ordering::Relaxed);
        Ticket { shared: Arc::clone(shared), worker, begun: Instant::now(), is_socket: false }
    }
}

impl Waiter {
    fn give(&self, got: Result<Ticket, Refused>) -> Option<Waker> {
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        given.got = Some(got);
        given.waker.take()
    }
}

impl Shared {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn wake(&self) {
        // Fails only with 2^64 unread wakes, and the supervisor is awake then.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    pub(crate) fn wake_fd(&self) -> &OwnedFd {
        &self.wake
    }

    pub(crate) fn woken(&self) {
        let mut count = [0_u8; 8];
        let _ = rustix::io::read(&self.wake, &mut count);
    }
}

impl Pool {
    /// Starts an application: its workers begin at once, and requests wait for them.
    ///
    /// # Errors
    /// The supervisor's thread or its descriptors cannot be created.
    pub fn start(settings: Settings, say: Say) -> io::Result<Pool> {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                slots: settings.workers.max(1) as u32,
                settings: Arc::new(settings),
                workers: Vec::new(),
                waiting: VecDeque::new(),
                turn: 0,
                trouble: None,
                stopping: false,
                commands: Vec::new(),
                stuck: Vec::new(),
                broken: Vec::new(),
                leaving: Vec::new(),
                lost: Vec::new(),
                waiting_since: None,
                rate: 0.0,
            }),
            wake,
            counts: Counts::default(),
        });
        let thread = supervisor::start(Arc::clone(&shared), Arc::clone(&say))?;
        Ok(Pool { shared, say: Telling(say), thread: Mutex::new(Some(thread)) })
    }

    /// Returns the present settings.
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.shared.state().settings)
    }

    /// Writes a line of this application to the log.
    pub fn say(&self, line: String) {
        (self.say.0)(line);
    }

    /// Returns a worker for a request. `key` is the key of sticky dispatch (see [`Pool::sticks`]). `excluded`
    /// are workers that had the request already: a repeated request has waited before, so it is the next one,
    /// even if the queue is full.
    pub fn take(&self, key: Option<u64>, excluded: &[u64]) -> Take {
        Take {
            shared: Arc::clone(&self.shared),
            key,
            excluded: excluded.to_vec(),
            waiter: None,
            sleep: None,
            begun: Instant::now(),
        }
    }

    /// Returns whether dispatch uses a key.
    pub fn sticks(&self) -> bool {
        let dispatch = &self.shared.state().settings.dispatch;
        !matches!(dispatch, Dispatch::Idle | Dispatch::Turns | Dispatch::Least)
    }

    /// Returns counters for metrics and for the server.
    pub fn counts(&self) -> &Counts {
        &self.shared.counts
    }

    fn ask<T>(&self, command: impl FnOnce(mpsc::Sender<T>) -> Command) -> Option<T> {
        let (tell, told) = mpsc::channel();
        {
            let mut state = self.shared.state();
            if state.stopping {
                return None;
            }
            state.commands.push(command(tell));
        }
        self.shared.wake();
        told.recv().ok()
    }

    fn ordered(
        &self,
        command: impl FnOnce(mpsc::Sender<Result<String, String>>) -> Command,
    ) -> Result<String, String> {
        self.ask(command).unwrap_or_else(|| Err("the application stops".to_owned()))
    }

    /// Starts new workers, with these settings if given, and stops the old ones when all new ones serve.
    /// Waits for that.
    ///
    /// # Errors
    /// A new worker did not become ready, and nothing has changed. The text has the last lines of its
    /// standard error.
    pub fn reload(&self, settings: Option<Settings>) -> Result<String, String> {
        self.ordered(|tell| Command::Reload(settings.map(Box::new), tell))
    }

    /// Works as [`reload`](Self::reload) without waiting. The result is logged.
    pub fn begin_reload(&self, settings: Option<Settings>) {
        let (tell, _) = mpsc::channel();
        self.shared.state().commands.push(Command::Reload(settings.map(Box::new), tell));
        self.shared.wake();
    }

    /// Replaces the process of a slot, or those of all slots one after another. Waits for that.
    ///
    /// # Errors
    /// There is no such slot; or a replacement did not become ready, and the old process stays.
    pub fn restart(&self, slot: Option<SlotId>) -> Result<String, String> {
        self.ordered(|tell| Command::Restart(slot, tell))
    }

    /// Changes the number of workers, of task workers, or of both.
    ///
    /// # Errors
    /// A number is too large, there are to be no workers, or this application runs no tasks.
    pub fn scale(&self, workers: Option<usize>, tasks: Option<usize>) -> Result<String, String> {
        self.ordered(|tell| Command::Scale(workers, tasks, tell))
    }

    /// Returns the status.
    pub fn status(&self) -> Option<Status> {
        self.ask(Command::Status)
    }

    /// Waits until a worker serves, or until one has failed to start.
    ///
    /// # Errors
    /// Why it failed.
    pub fn wait_ready(&self, patience: Duration) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            {
                let state = self.shared.state();
                if !state.workers.is_empty() {
                    return Ok(());
                }
                if let Some(trouble) = &state.trouble {
                    return Err(trouble.why.clone());
                }
            }
            if begun.elapsed() >= patience {
                return Err("no worker became ready".to_owned());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Stops: requests in progress are finished within `stop_timeout`, then the processes end. Waits for
    /// that.
    pub fn stop(&self) {
        self.shared.state().stopping = true;
        self.shared.wake();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic of the supervisor was printed; its processes ended with its thread.
            let _ = thread.join();
        }
    }

    /// Returns whether the workers speak HTTP themselves.
    pub fn speaks_http(&self) -> bool {
        self.settings().speaks_http()
    }

    /// Returns whether the workers are those of RoadRunner.
    pub fn speaks_goridge(&self) -> bool {
        self.settings().launch.protocol() == crate::Protocol::Goridge
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Future of [`Pool::take`].
#[must_use = "futures do nothing unless awaited"]
pub struct Take {
    shared: Arc<Shared>,
    key: Option<u64>,
    excluded: Vec<u64>,
    waiter: Option<Arc<Waiter>>,
    sleep: Option<Pin<Box<ringroad_engine::time::Sleep>>>,
    begun: Instant,
}

impl fmt::Debug for Take {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Take")
    }
}

impl Take {
    fn refuse(&self, refused: Refused) -> Poll<Result<Ticket, Refused>> {
        self.shared.counts.reject(refused.because);
        Poll::Ready(Err(refused))
    }
}

impl Future for Take {
    type Output = Result<Ticket, Refused>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Ticket, Refused>> {
        let this = &mut *self;
        let Some(waiter) = &this.waiter else {
            let shared = Arc::clone(&this.shared);
            let mut state = shared.state();
            if state.stopping {
                let refused = state.refusal(Rejected::Stopping, "the application stops");
                return this.refuse(refused);
            }
            // In development a broken release is shown, not the previous one.
            if state.settings.dev && state.trouble.is_some() {
                let refused = state.refusal(Rejected::NoWorker, "the application does not start");
                return this.refuse(refused);
            }
            // Waiting requests come first. A repeated request and one with a key may get a place
            // nevertheless. A request that accepts only some workers does not block the others.
            let repeated = !this.excluded.is_empty();
            let first = repeated || this.key.is_some() || state.waiting.iter().all(|one| one.is_choosy());
            if first && let Some(worker) = state.choose(this.key, &this.excluded) {
                return Poll::Ready(Ok(Ticket::new(&shared, worker)));
            }
            if state.workers.is_empty() && state.trouble.is_some() {
                let refused = state.refusal(Rejected::NoWorker, "no worker can be started");
                return this.refuse(refused);
            }
            if !repeated && state.waiting.len() >= state.settings.queue {
                let waiting = counted(state.waiting.len(), "request");
                let why = format!("the queue is full (`queue`): {waiting} waiting for a worker");
                let refused = state.refusal(Rejected::Full, &why);
                return this.refuse(refused);
            }
            let given = Mutex::new(Given { got: None, waker: Some(context.waker().clone()) });
            let waiter =
                Arc::new(Waiter { key: this.key, excluded: std::mem::take(&mut this.excluded), given });
            if repeated {
                state.waiting.push_front(Arc::clone(&waiter));
            } else {
                state.waiting.push_back(Arc::clone(&waiter));
            }
            if state.waiting_since.is_none() {
                state.waiting_since = Some(this.begun);
                // The supervisor may start another worker.
                shared.wake();
            }
            let mut sleep = Box::pin(ringroad_engine::time::sleep(state.settings.queue_timeout));
            drop(state);
            let _ = sleep.as_mut().poll(context);
            (this.waiter, this.sleep) = (Some(waiter), Some(sleep));
            return Poll::Pending;
        };
        let mut given = waiter.given.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(got) = given.got.take() {
            drop(given);
            this.waiter = None;
            let waited = u64::try_from(this.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
            this.shared.counts.queue.add(waited);
            return match got {
                Ok(ticket) => Poll::Ready(Ok(ticket)),
                Err(refused) => this.refuse(refused),
            };
        }
        given.waker = Some(context.waker().clone());
        drop(given);
        if let Some(sleep) = &mut this.sleep
            && sleep.as_mut().poll(context).is_ready()
        {
            let refused = {
                let state = this.shared.state();
                let span = state.settings.queue_timeout;
                state.refusal(Rejected::Late, &format!("no worker was free within {span:?}"))
            };
            this.leave();
            return this.refuse(refused);
        }
        Poll::Pending
    }
}

impl Take {
    /// Leaves the queue. A ticket that was issued meanwhile goes to the next request.
    fn leave(&mut self) {
        let Some(waiter) = self.waiter.take() else { return };
        let mut state = self.shared.state();
        state.waiting.retain(|one| !Arc::ptr_eq(one, &waiter));
        if state.waiting.is_empty() {
            state.waiting_since = None;
        }
        drop(state);
        let given = waiter.given.lock().unwrap_or_else(PoisonError::into_inner).got.take();
        drop(given);
    }
}

impl Drop for Take {
    fn drop(&mut self) {
        self.leave();
    }
}
