//! Runs one scenario on every driver.
//!
//! `scenario!` takes an async body and makes a module of tests, one for each [`Case`], so that a name reads
//! `contract::cancel::a_dropped_receive_keeps_its_bytes::epoll`. Each runs on a fresh runtime, under a watchdog
//! that shows what hangs, and ends with the ledgers: nothing in flight, nothing stale, no descriptor open.

use ringroad_engine::{Builder, Features, Name, Runtime};
use std::future::Future;
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
    let (done, watch) = mpsc::channel();
    let thread = std::thread::Builder::new().name(format!("{case:?}"));
    let body = thread.spawn(move || {
        let runtime = set_up(case.builder()).build().expect("the driver is to be had here");
        runtime.block_on(scenario(case)).expect("the driver works");
        let counters = runtime.counters();
        assert_eq!(counters.stale, 0, "{counters:?}\n{}", runtime.dump());
        let dump = runtime.dump();
        runtime.shutdown(Duration::from_secs(10)).unwrap_or_else(|stuck| panic!("{stuck}\n{dump}"));
        done.send(()).unwrap();
    });
    let body = body.unwrap();
    match watch.recv_timeout(HANG) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{case:?} hangs"),
        _ => {
            if let Err(why) = body.join() {
                std::panic::resume_unwind(why);
            }
        }
    }
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
