//! Workers on several drivers: `drivers = { io_uring = 1, epoll = 1 }`.

use super::keys;
use ringroad_engine::DriverName;
use ringroad_settings::{Section, value};

/// Threads by driver, in the order in which they are listed everywhere.
pub(super) const ORDER: [DriverName; 5] =
    [DriverName::IoUring, DriverName::Epoll, DriverName::Poll, DriverName::Select, DriverName::Threads];

/// Most threads of one address, on all drivers.
const THREADS_MAX: usize = 1024;

/// Reads the key, which stands instead of `workers` and `driver`.
pub(super) fn read(top: &Section<'_>) -> Vec<(DriverName, usize)> {
    let Some(mut section) = top.table("drivers") else { return Vec::new() };
    section.describe(&keys::DRIVERS);
    let number = |driver: DriverName| {
        section.read(driver.as_str(), |value| value::count(value, 1, THREADS_MAX as u64).map(|n| n as usize))
    };
    let all: Vec<_> = ORDER.into_iter().filter_map(|driver| Some((driver, number(driver)?))).collect();
    for key in ["workers", "driver"] {
        if top.has(key) {
            let what = "it cannot stand beside `drivers`, which has the threads of each driver";
            top.mistake(key, what);
        }
    }
    if section.pairs().next().is_none() {
        top.mistake("drivers", "expected at least one driver, as { io_uring = 1, epoll = 1 }");
    }
    if all.iter().map(|(_, threads)| threads).sum::<usize>() > THREADS_MAX {
        top.mistake("drivers", format!("expected at most {THREADS_MAX} threads together"));
    }
    section.finish();
    all
}

/// Reads the same from a command line: `io_uring=1,epoll=1`.
///
/// # Errors
/// What was expected.
pub fn drivers(text: &str) -> Result<Vec<(DriverName, usize)>, String> {
    let mut all: Vec<(DriverName, usize)> = Vec::new();
    for part in text.split(',') {
        let expected = || format!("expected DRIVER=THREADS, as io_uring=1,epoll=1, found {part:?}");
        let (name, number) = part.split_once('=').ok_or_else(expected)?;
        let name = name.trim();
        let driver = name.parse().ok().filter(|driver| ORDER.contains(driver)).ok_or_else(|| {
            let known = ORDER.map(|driver| driver.to_string()).join(", ");
            format!("there is no driver {name:?} (there are: {known})")
        })?;
        let number: usize = number.trim().parse().map_err(|_| expected())?;
        if number == 0 {
            return Err(format!("{driver}=0 has no thread: leave {driver} out, or give it one or more"));
        }
        if all.iter().any(|(known, _)| *known == driver) {
            return Err(format!("{driver} is named twice"));
        }
        all.push((driver, number));
    }
    if all.iter().map(|(_, threads)| threads).sum::<usize>() > THREADS_MAX {
        return Err(format!("expected at most {THREADS_MAX} threads together"));
    }
    all.sort_by_key(|(driver, _)| ORDER.iter().position(|known| known == driver));
    Ok(all)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_no_driver_and_has_no_thread_is_told_apart() {
        let two = drivers("epoll=2, io_uring=1").unwrap();
        assert_eq!(two, [(DriverName::IoUring, 1), (DriverName::Epoll, 2)]);
        for (text, why) in [
            ("kqueue=1", "there is no driver \"kqueue\" (there are: io_uring, epoll, poll, select, threads)"),
            ("auto=1", "there is no driver \"auto\""),
            ("epoll=0", "epoll=0 has no thread: leave epoll out, or give it one or more"),
            ("epoll", "expected DRIVER=THREADS, as io_uring=1,epoll=1, found \"epoll\""),
            ("epoll=two", "found \"epoll=two\""),
            ("epoll=1,epoll=1", "epoll is named twice"),
        ] {
            let refused = drivers(text).unwrap_err();
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }
}
