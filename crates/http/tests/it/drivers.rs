//! One body of a test for every driver. The tool's tests use this file as well, by its path.

use ringroad_engine::DriverName;
use ringroad_engine::choose;

/// Makes a module of tests, one for each driver, of a function that takes its name.
macro_rules! drivers {
    ($(#[$meta:meta])* $name:ident, $body:expr) => {
        $(#[$meta])*
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            #[test]
            fn epoll() {
                crate::drivers::on(ringroad_engine::DriverName::Epoll, $body);
            }
            #[test]
            fn io_uring() {
                crate::drivers::on(ringroad_engine::DriverName::IoUring, $body);
            }
            #[test]
            fn poll() {
                crate::drivers::on(ringroad_engine::DriverName::Poll, $body);
            }
            #[test]
            fn select() {
                crate::drivers::on(ringroad_engine::DriverName::Select, $body);
            }
            #[test]
            fn threads() {
                crate::drivers::on(ringroad_engine::DriverName::Threads, $body);
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
