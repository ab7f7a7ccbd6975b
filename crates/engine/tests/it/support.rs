//! Runs one scenario on every driver.
//!
//! `scenario!` takes an async body and makes a module of tests, one for each [`Case`], with names such as
//! `contract::cancel::a_dropped_receive_keeps_its_bytes::epoll`. Each runs on a new runtime, under a watchdog
//! that reports a hang, and ends with checks of the ledgers: nothing in flight, nothing stale, no descriptor
//! open. So a scenario leaves nothing behind: it joins or cancels the tasks that it has spawned.
//! `everywhere!` is the same for scenarios that tolerate faults: their simulations have some.
//!
//! `runtimes!` is for tests of `block_on` itself: its body gets the [`Case`] and makes its own runtimes. All
//! of them use `cases!`.
//!
//! Helpers that most scenarios begin with are last.

use crate::apart;
use ringroad_engine::net::{ListenOptions, SocketOption, TcpListener, TcpStream};
use ringroad_engine::sim::{Faults, SimConfig, Style};
use ringroad_engine::{Builder, DriverName, Features, Remote, Runtime, ZeroCopy, choose, yield_now};
use ringroad_host::process::{raise_nofile, tie_to_parent};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::process::Command;
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::task::{Poll, Waker};
use std::time::Duration;

/// A driver, and its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    Epoll,
    Poll,
    Select,
    Threads,
    /// With every optional feature enabled.
    IoUring,
    /// With every optional feature disabled.
    IoUringPlain,
    Sim,
}

impl Case {
    pub(crate) fn driver(self) -> DriverName {
        match self {
            Case::Epoll => DriverName::Epoll,
            Case::Poll => DriverName::Poll,
            Case::Select => DriverName::Select,
            Case::Threads => DriverName::Threads,
            Case::IoUring | Case::IoUringPlain => DriverName::IoUring,
            Case::Sim => DriverName::Sim,
        }
    }

    pub(crate) fn builder(self) -> Builder {
        let builder = Runtime::builder(self.driver());
        match self {
            Case::IoUringPlain => {
                let mut features = Features::default();
                features.multishot_accept = false;
                features.no_iowait = false;
                features.registered_ring = false;
                features.bundles = false;
                features.files = false;
                features.zero_copy = ZeroCopy::Off;
                builder.features(features)
            }
            Case::IoUring => {
                let mut features = Features::default();
                features.bundles = true;
                features.zero_copy = ZeroCopy::Always;
                builder.features(features)
            }
            _ => builder,
        }
    }

    /// Returns whether the driver is unavailable here, and prints why. Everything else is tested.
    pub(crate) fn is_refused(self) -> bool {
        let refused = choose::probe(self.driver()).err();
        refused.inspect(|refusal| eprintln!("skipped: {refusal}")).is_some()
    }

    /// Returns whether a waiting operation is parked until an attempt may succeed: the kernel has none of it
    /// between two system calls.
    pub(crate) fn is_readiness(self) -> bool {
        matches!(self, Case::Epoll | Case::Poll | Case::Select)
    }

    /// Returns whether other threads and sockets of the real kernel exist in this case.
    pub(crate) fn is_real(self) -> bool {
        self != Case::Sim
    }
}

/// How long a scenario may take before it counts as hanging. Far above the time that any needs on a slow
/// machine, including the wait for its turn ([`crowd`]), and below the time limit of the test runner, which
/// would end it without this report.
const HANG: Duration = Duration::from_secs(240);

/// Turns in which a driver returns cancelled operations. Far above the number that any needs.
const TURNS_TO_SETTLE: usize = 100_000;

/// The body of a scenario, type-erased: one `run` for all of them.
pub(crate) type Scenario = fn(Case) -> Pin<Box<dyn Future<Output = ()>>>;

pub(crate) fn boxed<F>(scenario: impl FnOnce(Case) -> F, case: Case) -> Pin<Box<dyn Future<Output = ()>>>
where
    F: Future<Output = ()> + 'static,
{
    Box::pin(scenario(case))
}

/// One simulation of several: its faults, and the style in which its operations complete.
#[derive(Clone, Copy, Debug)]
struct World {
    seed: u64,
    faulty: bool,
    style: Option<Style>,
}

impl World {
    const FIRST: World = World { seed: 0, faulty: false, style: None };

    fn config(self) -> SimConfig {
        let mut faults = if self.faulty { Faults::swarm(self.seed) } else { Faults::none() };
        // Scenarios that need little room configure it themselves.
        faults.socket_buffer_bytes = Faults::none().socket_buffer_bytes;
        // They concern one machine, on which every datagram arrives once and in order.
        (faults.lost, faults.doubled, faults.late) = (0, 0, 0);
        let mut config = SimConfig::new(self.seed, faults);
        config.style = self.style;
        config
    }
}

/// Simulations with faults in which a scenario runs.
const FAULTY: u64 = 16;

/// Runs `scenario` on its own thread and runtime; on `sim` without faults.
pub(crate) fn run<F, S>(case: Case, set_up: fn(Builder) -> Builder, scenario: S)
where
    S: FnOnce(Case) -> F + Send + 'static,
    F: Future<Output = ()> + 'static,
{
    run_in(World::FIRST, case, set_up, scenario);
}

/// Runs it likewise; on `sim` in several simulations, one after another.
pub(crate) fn run_everywhere(case: Case, set_up: fn(Builder) -> Builder, scenario: Scenario) {
    if case != Case::Sim {
        return run(case, set_up, scenario);
    }
    for style in [Style::Readiness, Style::Completion, Style::Mixed] {
        run_in(World { style: Some(style), ..World::FIRST }, case, set_up, scenario);
    }
    for seed in 0..FAULTY {
        run_in(World { seed, faulty: true, style: None }, case, set_up, scenario);
    }
}

fn run_in<F, S>(world: World, case: Case, set_up: fn(Builder) -> Builder, scenario: S)
where
    S: FnOnce(Case) -> F + Send + 'static,
    F: Future<Output = ()> + 'static,
{
    with_runtime_in(world, case, set_up, move |case, runtime| {
        runtime
            .block_on(scenario(case))
            .unwrap_or_else(|why| panic!("{why}\n{}", why.dump().unwrap_or_default()));
        let over = || runtime.in_flight() == 0 && runtime.descriptors() == 0;
        let settled = runtime.block_on(async {
            for _ in 0..TURNS_TO_SETTLE {
                if over() {
                    break;
                }
                yield_now().await;
            }
        });
        settled.expect("the driver works");
        assert!(over(), "something is left behind");
    });
}

/// Runs a body that needs the runtime itself. A failure prints the operations in flight.
pub(crate) fn with_runtime<B>(case: Case, set_up: fn(Builder) -> Builder, body: B)
where
    B: FnOnce(Case, &Runtime) + Send + 'static,
{
    with_runtime_in(World::FIRST, case, set_up, body);
}

fn with_runtime_in<B>(world: World, case: Case, set_up: fn(Builder) -> Builder, body: B)
where
    B: FnOnce(Case, &Runtime) + Send + 'static,
{
    with_runtime_boxed(world, case, set_up, Box::new(body));
}

type RuntimeBody = Box<dyn FnOnce(Case, &Runtime) + Send>;

/// Works as [`with_runtime_in`]. Without the type of the body: it is compiled once, and not for each test.
fn with_runtime_boxed(world: World, case: Case, set_up: fn(Builder) -> Builder, body: RuntimeBody) {
    watched(case, move |case, reach| {
        let config = world.config();
        let ledger = config.ledger.clone();
        let builder = set_up(case.builder().sim(config));
        let runtime = Rc::new(builder.build().expect("the driver is to be had here"));
        reach(runtime.remote());
        RUNTIME.with(|place| place.replace(Some(Rc::clone(&runtime))));
        let over = catch_unwind(AssertUnwindSafe(|| body(case, &runtime)));
        // Not at the end of the thread: a runtime could no longer shut down then.
        drop(RUNTIME.with(RefCell::take));
        if let Err(why) = over {
            eprintln!("{}", runtime.dump());
            if case == Case::Sim {
                eprintln!("{world:?}; what happened last:\n{}", ledger.recent());
            }
            resume_unwind(why);
        }
        let counters = runtime.counters();
        let dump = runtime.dump();
        assert_eq!(counters.stale, 0, "{counters:?}\n{dump}");
        let runtime = Rc::into_inner(runtime).expect("nobody else has it any more");
        runtime.shutdown(Duration::from_secs(10)).unwrap_or_else(|stuck| panic!("{stuck}\n{dump}"));
        let imbalances = ledger.imbalances();
        assert!(imbalances.is_empty(), "{world:?}: {imbalances:#?}");
    });
}

thread_local! {
    /// The runtime of the scenario on this thread.
    static RUNTIME: RefCell<Option<Rc<Runtime>>> = const { RefCell::new(None) };
}

/// Examines the scenario's runtime, from inside.
pub(crate) fn runtime<R>(look: impl FnOnce(&Runtime) -> R) -> R {
    let runtime = RUNTIME.with(|runtime| runtime.borrow().clone());
    look(&runtime.expect("only scenarios look"))
}

/// Runs `body` on its own thread, and reports it if it hangs, with the operations in flight on its runtime if
/// it has registered one.
pub(crate) fn watched(case: Case, body: impl FnOnce(Case, &dyn Fn(Remote)) + Send + 'static) {
    watch(case, Box::new(body));
}

type WatchedBody = Box<dyn FnOnce(Case, &dyn Fn(Remote)) + Send>;

/// Works as [`watched`], with the type of the body erased.
fn watch(case: Case, body: WatchedBody) {
    let (say, hear) = mpsc::channel();
    let (tell, told) = mpsc::channel();
    let test = TEST.get();
    let thread = std::thread::Builder::new().name(format!("{case:?}"));
    let thread = thread.spawn(move || {
        TEST.set(test);
        // The channel ends with the thread.
        let _alive: mpsc::Sender<()> = say;
        body(case, &|remote| tell.send(remote).expect("whoever watches is there"));
    });
    let thread = thread.unwrap();
    if matches!(hear.recv_timeout(HANG), Err(mpsc::RecvTimeoutError::Timeout)) {
        let (say, hear) = mpsc::channel();
        if let Ok(remote) = told.try_recv() {
            let _ = remote.spawn(move || async move {
                let _ = say.send(Runtime::dump_current());
            });
        }
        let dump = hear.recv_timeout(Duration::from_secs(1)).ok().flatten();
        panic!("{case:?} hangs\n{}", dump.unwrap_or_else(|| "and runs no task".to_owned()));
    }
    if let Err(why) = thread.join() {
        resume_unwind(why);
    }
}

/// The variable with the role of a process that [`child`] started.
const ROLE: &str = "RINGROAD_TEST_ROLE";

/// The role of a process that runs only the test itself.
const APART: &str = "apart";

/// Returns the role of this process, if a test has started it as a child.
pub(crate) fn role() -> Option<String> {
    std::env::var(ROLE).ok().filter(|role| role != APART)
}

/// Held by a test that needs more descriptors than a process has by default.
pub(crate) struct Crowd {
    _turn: MutexGuard<'static, ()>,
    /// Descriptors that it may use; other tests run beside it.
    descriptors: usize,
}

impl Crowd {
    /// Returns how many of `wanted` connections fit if both ends are in this process. Prints it if that is
    /// fewer.
    pub(crate) fn connections(&self, wanted: usize) -> usize {
        self.fitting(wanted, self.descriptors / 2)
    }

    /// Returns how many fit if one end is in another process.
    pub(crate) fn ends(&self, wanted: usize) -> usize {
        self.fitting(wanted, self.descriptors)
    }

    fn fitting(&self, wanted: usize, most: usize) -> usize {
        if most < wanted {
            eprintln!("{most} connections instead of {wanted}: the limit of open files");
        }
        wanted.min(most)
    }
}

/// Lets one such test run at a time.
pub(crate) fn crowd() -> Crowd {
    static CROWD: Mutex<()> = Mutex::new(());
    // A failed test has left nothing behind here.
    let turn = CROWD.lock().unwrap_or_else(PoisonError::into_inner);
    let limit = usize::try_from(raise_nofile().unwrap()).unwrap_or(usize::MAX);
    // A quarter of the descriptors is reserved for other tests, up to what they may need.
    Crowd { _turn: turn, descriptors: limit - (limit / 4).min(4000) }
}

/// Runs a test; on select in a separate process, since concurrent tests may hold all low descriptor numbers.
pub(crate) fn run_case(case: Case, test: fn(Case)) {
    raise_nofile().expect("a process may raise its soft limit to its hard one");
    if case.is_refused() {
        return;
    }
    // Nextest gives each test a process.
    let is_alone = std::env::var_os(ROLE).is_some() || apart::is_by_nextest();
    if case != Case::Select || is_alone {
        return test(case);
    }
    apart::passed(&mut child(APART));
}

/// Starts this program again, for the calling test only, to play `role` there.
pub(crate) fn child(role: &str) -> Command {
    let mut command = apart::again(test_name());
    command.env(ROLE, role);
    command
}

thread_local! {
    /// The full path of the test on this thread; set by `cases!`.
    pub(crate) static TEST: Cell<&'static str> = const { Cell::new("") };
}

/// The name in the test harness: without the name of the crate.
fn test_name() -> &'static str {
    TEST.get().split_once("::").expect("`cases!` has set it on this thread").1
}

/// Runs `body` in a separate process, where no other test opens, maps or limits anything; with at most
/// `descriptors`, if given.
pub(crate) fn alone(descriptors: Option<u32>, body: impl FnOnce()) {
    if role().is_some_and(|role| role == "alone") {
        return body();
    }
    let mut command = child("alone");
    if let Some(limit) = descriptors {
        let mut limited = Command::new("sh");
        limited.args(["-c", "ulimit -n $0 && exec \"$@\"", &limit.to_string()]).arg(command.get_program());
        limited.args(command.get_args()).env(ROLE, "alone");
        tie_to_parent(&mut limited);
        command = limited;
    }
    apart::passed(&mut command);
}

/// Makes a test for each named driver (`many`: those that support thousands of connections;
/// `contract::limits` shows what the others do), for bodies other than plain scenarios: `$run` is called with
/// the case.
macro_rules! cases {
    ($(#[$doc:meta])* $name:ident, real, $run:expr) => {
        cases!($(#[$doc])* $name, [
            epoll Epoll, poll Poll, select Select, threads Threads, io_uring IoUring, io_uring_plain IoUringPlain
        ], $run);
    };
    ($(#[$doc:meta])* $name:ident, all, $run:expr) => {
        cases!($(#[$doc])* $name, [
            epoll Epoll, poll Poll, select Select, threads Threads, io_uring IoUring, io_uring_plain IoUringPlain,
            sim Sim
        ], $run);
    };
    ($(#[$doc:meta])* $name:ident, many, $run:expr) => {
        cases!($(#[$doc])* $name, [
            epoll Epoll, poll Poll, io_uring IoUring, io_uring_plain IoUringPlain, sim Sim
        ], $run);
    };
    ($(#[$doc:meta])* $name:ident, [$($test:ident $case:ident),+], $run:expr) => {
        $(#[$doc])*
        mod $name {
            /// Expanded once, and not for each driver, because the bodies are most of the code to compile. In
            /// a separate module, because the tests have the same function names.
            mod scenario {
                #[allow(unused_imports)]
                use super::super::*;
                pub(super) fn body(case: crate::support::Case) {
                    crate::support::run_case(case, $run);
                }
            }
            $(#[test]
            fn $test() {
                crate::support::TEST.set(concat!(module_path!(), "::", stringify!($test)));
                scenario::body(crate::support::Case::$case);
            })+
        }
    };
}

/// Makes one scenario on every driver.
macro_rules! scenario {
    ($(#[$doc:meta])* $name:ident, $body:expr) => {
        scenario!($(#[$doc])* $name, |builder| builder, $body);
    };
    ($(#[$doc:meta])* $name:ident, $set_up:expr, $body:expr) => {
        cases!($(#[$doc])* $name, all, |case| {
            let scenario: crate::support::Scenario = |case| crate::support::boxed($body, case);
            crate::support::run(case, $set_up, scenario);
        });
    };
}

/// Makes one scenario on every driver; in the simulation in every style without faults, then with random
/// faults.
macro_rules! everywhere {
    ($(#[$doc:meta])* $name:ident, $body:expr) => {
        everywhere!($(#[$doc])* $name, |builder| builder, $body);
    };
    ($(#[$doc:meta])* $name:ident, $set_up:expr, $body:expr) => {
        cases!($(#[$doc])* $name, all, |case| {
            let scenario: crate::support::Scenario = |case| crate::support::boxed($body, case);
            crate::support::run_everywhere(case, $set_up, scenario);
        });
    };
}

/// Makes one test of runtimes on every driver.
macro_rules! runtimes {
    ($(#[$doc:meta])* $name:ident, $body:expr) => {
        cases!($(#[$doc])* $name, all, |case| crate::support::watched(case, |case, _| {
            let body: fn(crate::support::Case) = $body;
            body(case);
        }));
    };
}

/// Makes a listener on a free port; returns its address too.
pub(crate) fn listener() -> (TcpListener, SocketAddr) {
    listener_with(ListenOptions::default())
}

pub(crate) fn listener_with(options: ListenOptions) -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind_with(([127, 0, 0, 1], 0).into(), options).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Makes a connection; returns the connecting end and the accepted end.
pub(crate) async fn pair() -> (TcpStream, TcpStream) {
    let (mut listener, address) = listener();
    pair_by(&mut listener, address).await
}

pub(crate) async fn pair_by(listener: &mut TcpListener, address: SocketAddr) -> (TcpStream, TcpStream) {
    let (ours, theirs) = futures_util::join!(TcpStream::connect(address), listener.accept());
    (ours.unwrap(), theirs.unwrap())
}

/// Makes a connection with little buffer space from `ours` to `theirs`.
pub(crate) async fn narrow_pair(case: Case) -> (TcpStream, TcpStream) {
    const BYTES: u32 = 4096;
    let (mut listener, address) = listener();
    if case.is_real() {
        // The maximum window of a connection is fixed when it is established, so the listener must be
        // configured.
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(BYTES as usize).unwrap();
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        socket.listen(16).unwrap();
        listener = TcpListener::from_std(socket.into()).unwrap();
    }
    let address = if case.is_real() { listener.local_addr().unwrap() } else { address };
    let (ours, theirs) = pair_by(&mut listener, address).await;
    ours.set_option(SocketOption::SendBuffer(BYTES)).unwrap();
    theirs.set_option(SocketOption::ReceiveBuffer(BYTES)).unwrap();
    (ours, theirs)
}

/// Receives up to the end.
pub(crate) async fn receive_all(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let lease = stream.recv().await.unwrap();
        if lease.is_empty() {
            return all;
        }
        all.extend_from_slice(&lease);
    }
}

/// Receives the next `bytes` bytes, or fewer if the end comes before.
pub(crate) async fn receive(stream: &mut TcpStream, bytes: usize) -> Vec<u8> {
    let mut all = Vec::with_capacity(bytes);
    while all.len() < bytes {
        let mut part = Vec::new();
        part.reserve_exact(bytes - all.len());
        let (received, part) = stream.recv_into(part).await;
        if received.unwrap() == 0 {
            break;
        }
        all.extend_from_slice(&part);
    }
    all
}

/// Returns bytes in which lost, repeated and moved pieces are visible. Copied by rows: without optimisation a
/// byte at a time takes longer than the test that sends them.
pub(crate) fn pattern(bytes: usize) -> Vec<u8> {
    /// In row `k` the byte `at` is `at ^ k`.
    static ROWS: [[u8; 256]; 256] = {
        let mut rows = [[0; 256]; 256];
        let mut at = 0;
        while at < 1 << 16 {
            rows[at >> 8][at & 255] = (at ^ (at >> 8)) as u8;
            at += 1;
        }
        rows
    };
    let mut all = Vec::with_capacity(bytes.next_multiple_of(256));
    while all.len() < bytes {
        let block = all.len() >> 8;
        all.extend_from_slice(&ROWS[((block * 7) ^ ((block >> 8) * 31)) & 255]);
    }
    all.truncate(bytes);
    all
}

/// Returns numbers below `end`, the same for the same seed.
pub(crate) fn numbers(mut seed: u64) -> impl FnMut(usize) -> usize {
    move |end| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % end
    }
}

/// Polls once.
pub(crate) async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Lets the driver process pending events for some turns of the loop. The checks of a scenario do not depend
/// on it.
pub(crate) async fn some_turns() {
    for _ in 0..50 {
        yield_now().await;
    }
}

/// Signals tasks of one runtime that an event has happened.
#[derive(Clone, Default)]
pub(crate) struct Gate(Rc<RefCell<(bool, Vec<Waker>)>>);

impl Gate {
    pub(crate) fn open(&self) {
        let waiting = {
            let mut gate = self.0.borrow_mut();
            gate.0 = true;
            std::mem::take(&mut gate.1)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn is_open(&self) -> bool {
        self.0.borrow().0
    }

    pub(crate) async fn opened(&self) {
        poll_fn(|context| {
            let mut gate = self.0.borrow_mut();
            if gate.0 {
                return Poll::Ready(());
            }
            gate.1.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// A folder for sockets, removed with its contents. The simulation has no files: there it is only a prefix of
/// names.
pub(crate) struct SocketDir(std::path::PathBuf);

impl SocketDir {
    pub(crate) fn new() -> SocketDir {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("ringroad-{}-{number}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        SocketDir(dir)
    }

    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.join(name)
    }
}

impl Drop for SocketDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns a unique name in the table of abstract names.
pub(crate) fn abstract_name() -> ringroad_engine::net::UnixAddr {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    ringroad_engine::net::UnixAddr::abstract_name(format!("ringroad-{}-{number}", std::process::id()))
}
