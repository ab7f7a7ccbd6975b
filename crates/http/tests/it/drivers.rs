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
                on_one(ringroad_engine::DriverName::Select);
            }
            #[test]
            fn threads() {
                on_one(ringroad_engine::DriverName::Threads);
            }
        }
    };
}

/// Runs a test if the driver can be had here; else says why not.
///
/// Select takes no descriptor above 1023, and tests in one process may hold all below. There the whole test
/// runs again in a process of its own; its name is that of this thread.
pub(crate) fn on(driver: DriverName, body: impl FnOnce(DriverName)) {
    let thread = std::thread::current();
    match (choose::probe(driver), thread.name()) {
        (Ok(_), Some(test)) if !can_take(driver) => apart::passed(apart::again(test).env(APART, "1")),
        (Ok(_), _) => body(driver),
        (Err(refusal), _) => eprintln!("skipped: {refusal}"),
    }
}

/// Set in the process of a single test.
const APART: &str = "RINGROAD_TEST_APART";

/// Returns whether a driver takes the descriptors that this process may hold.
fn can_take(driver: DriverName) -> bool {
    driver != DriverName::Select || apart::is_by_nextest() || std::env::var_os(APART).is_some()
}

/// Returns the drivers that can be had here and take what this process may hold.
#[allow(dead_code, reason = "not each crate has a test that moves between drivers")]
pub(crate) fn here() -> impl Iterator<Item = DriverName> {
    choose::drivers().filter(|driver| choose::probe(*driver).is_ok() && can_take(*driver))
}
