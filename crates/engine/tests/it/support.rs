//! Runs one scenario on every driver.
//!
//! `scenario!` takes an async body and makes a module of tests, one for each [`Case`], so that a name reads
//! `contract::cancel::a_dropped_receive_keeps_its_bytes::epoll`. Each runs on a fresh runtime, under a watchdog
//! that shows what hangs, and ends with the ledgers: nothing in flight, nothing stale, no descriptor open.

use ringroad_engine::{Builder, Features, Name, Runtime};
use ringroad_host::process::tie_to_parent;
use std::cell::Cell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

/// A driver, and how it is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    Epoll,
    /// With every optional ability switched on.
    IoUring,
    /// With every optional ability switched off.
    IoUringPlain,
    Sim,
}

impl Case {
    pub(crate) fn driver(self) -> Name {
        match self {
            Case::Epoll => Name::Epoll,
            Case::IoUring | Case::IoUringPlain => Name::IoUring,
            Case::Sim => Name::Sim,
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
                builder.features(features)
            }
            Case::IoUring => {
                let mut features = Features::default();
                features.bundles = true;
                builder.features(features)
            }
            _ => builder,
        }
    }

    /// Whether other threads, and the real kernel's sockets, exist here.
    pub(crate) fn is_real(self) -> bool {
        self != Case::Sim
    }
}

/// How long a scenario may take before it is shown to hang. Far beyond what any needs.
const HANG: Duration = Duration::from_secs(60);

/// Runs `scenario` on a thread and a runtime of its own.
pub(crate) fn run<F, S>(case: Case, set_up: fn(Builder) -> Builder, scenario: S)
where
    S: FnOnce(Case) -> F + Send + 'static,
    F: Future<Output = ()> + 'static,
{
    with_runtime(case, set_up, move |case, runtime| {
        runtime.block_on(scenario(case)).expect("the driver works");
    });
}

/// The same for a body that wants the runtime itself. A failure shows what was in flight.
pub(crate) fn with_runtime<B>(case: Case, set_up: fn(Builder) -> Builder, body: B)
where
    B: FnOnce(Case, &Runtime) + Send + 'static,
{
    let (say, hear) = mpsc::channel();
    let test = TEST.get();
    let thread = std::thread::Builder::new().name(format!("{case:?}"));
    let thread = thread.spawn(move || {
        TEST.set(test);
        let runtime = set_up(case.builder()).build().expect("the driver is to be had here");
        say.send(runtime.remote()).unwrap();
        if let Err(why) = catch_unwind(AssertUnwindSafe(|| body(case, &runtime))) {
            eprintln!("{}", runtime.dump());
            resume_unwind(why);
        }
        let counters = runtime.counters();
        let dump = runtime.dump();
        assert_eq!(counters.stale, 0, "{counters:?}\n{dump}");
        runtime.shutdown(Duration::from_secs(10)).unwrap_or_else(|stuck| panic!("{stuck}\n{dump}"));
    });
    let thread = thread.unwrap();
    // The first message is its handle; the next one never comes, but the channel ends with the thread.
    if let Ok(remote) = hear.recv()
        && matches!(hear.recv_timeout(HANG), Err(mpsc::RecvTimeoutError::Timeout))
    {
        let (say, hear) = mpsc::channel();
        let _ = remote.spawn(move || async move {
            let _ = say.send(Runtime::dump_current());
        });
        let dump = hear.recv_timeout(Duration::from_secs(1)).ok().flatten();
        panic!("{case:?} hangs\n{}", dump.unwrap_or_else(|| "and runs no task".to_owned()));
    }
    if let Err(why) = thread.join() {
        resume_unwind(why);
    }
}

/// Set for a process that [`child`] started: the part it plays.
const ROLE: &str = "RINGROAD_TEST_ROLE";

/// The part this process plays, if it is a child.
pub(crate) fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// This program again, asked for the one test that calls this, to play `role` there.
pub(crate) fn child(role: &str) -> Command {
    let test = test_name();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]).env(ROLE, role);
    tie_to_parent(&mut command);
    command
}

thread_local! {
    /// The test this thread works for, by its whole path; set by `cases!`.
    pub(crate) static TEST: Cell<&'static str> = const { Cell::new("") };
}

/// The same as the harness knows it: without the name of the crate.
fn test_name() -> &'static str {
    TEST.get().split_once("::").expect("`cases!` has set it on this thread").1
}

/// Runs `body` in a process of its own, where no other test opens, maps or limits anything; with at most
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
    let output = command.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // A name that is no test's would succeed by running nothing.
    let passed = output.status.success() && stdout.contains("1 passed");
    assert!(passed, "{}, in a process of its own:\n{stdout}{stderr}", output.status);
}

/// One scenario, on every driver.
macro_rules! scenario {
    ($(#[$doc:meta])* $name:ident, $body:expr) => {
        scenario!($(#[$doc])* $name, |builder| builder, $body);
    };
    ($(#[$doc:meta])* $name:ident, $set_up:expr, $body:expr) => {
        $(#[$doc])*
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            use crate::support::{Case, run};
            #[test]
            fn epoll() {
                run(Case::Epoll, $set_up, $body);
            }
            #[test]
            fn io_uring() {
                run(Case::IoUring, $set_up, $body);
            }
            #[test]
            fn io_uring_plain() {
                run(Case::IoUringPlain, $set_up, $body);
            }
            #[test]
            fn sim() {
                run(Case::Sim, $set_up, $body);
            }
        }
    };
}

/// A test for each of the drivers named, for bodies that are no plain scenario: `$run` is called with the case.
macro_rules! cases {
    ($(#[$doc:meta])* $name:ident, real, $run:expr) => {
        cases!($(#[$doc])* $name, [epoll Epoll, io_uring IoUring, io_uring_plain IoUringPlain], $run);
    };
    ($(#[$doc:meta])* $name:ident, all, $run:expr) => {
        cases!($(#[$doc])* $name, [epoll Epoll, io_uring IoUring, io_uring_plain IoUringPlain, sim Sim], $run);
    };
    ($(#[$doc:meta])* $name:ident, [$($test:ident $case:ident),+], $run:expr) => {
        $(#[$doc])*
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            $(#[test]
            fn $test() {
                crate::support::TEST.set(concat!(module_path!(), "::", stringify!($test)));
                let run: fn(crate::support::Case) = $run;
                run(crate::support::Case::$case);
            })+
        }
    };
}
