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
        let driver: DriverName = name.trim().parse().map_err(|_| expected())?;
        let number: usize = number.trim().parse().map_err(|_| expected())?;
        if !ORDER.contains(&driver) || number == 0 {
            return Err(expected());
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
