//! One body of a test for every driver. The tool's tests use this file as well, by its path.

use ringroad_engine::DriverName;
use ringroad_engine::choose;

#[path = "../../../engine/tests/it/apart.rs"]
mod apart;

/// Makes a module of tests, one for each driver, of a function that takes its name.
macro_rules! drivers {
    ($(#[$meta:meta])* $name:ident, $body:expr) => {
        $(#[$meta])*
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            /// Expanded once, and not for each driver: the bodies are most of the code to compile.
            fn on_one(driver: ringroad_engine::DriverName) {
                let body: fn(ringroad_engine::DriverName) = $body;
                crate::drivers::on(driver, body);
            }

            #[test]
            fn epoll() {
                on_one(ringroad_engine::DriverName::Epoll);
            }
            #[test]
            fn io_uring() {
                on_one(ringroad_engine::DriverName::IoUring);
            }
            #[test]
            fn poll() {
                on_one(ringroad_engine::DriverName::Poll);
            }
            #[test]
            fn select() {
                let test = concat!(module_path!(), "::select");
                crate::drivers::alone(test, || on_one(ringroad_engine::DriverName::Select));
            }
            #[test]
            fn threads() {
                on_one(ringroad_engine::DriverName::Threads);
            }
        }
    };
}

/// Runs a test if the driver can be had here; else says why not.
pub(crate) fn on(driver: DriverName, body: impl FnOnce(DriverName)) {
    match choose::probe(driver) {
        Ok(_) => body(driver),
        Err(refusal) => eprintln!("skipped: {refusal}"),
    }
}

/// Set in the process of a single test.
const APART: &str = "RINGROAD_TEST_APART";

/// Runs a test in a process of its own: in one process with others, those may hold all descriptors below
/// 1024, and select takes no others.
pub(crate) fn alone(test: &str, body: fn()) {
    if std::env::var_os(APART).is_some() || apart::is_by_nextest() {
        return body();
    }
    // The harness names tests without the crate.
    let name = test.split_once("::").map_or(test, |(_, name)| name);
    apart::passed(apart::again(name).env(APART, "1"));
}
