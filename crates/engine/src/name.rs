//! Names of the drivers on command lines and in output.

use std::fmt;
use std::str::FromStr;

/// A driver, by the name used on command lines and in records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DriverName {
    /// `io_uring(7)`: operations are submitted and completed.
    IoUring,
    /// `epoll(7)`, edge-triggered: the driver waits for readiness, then attempts the operation.
    Epoll,
    /// `poll(2)`: the same, with one array that the kernel scans at each wait.
    Poll,
    /// `select(2)`: the same, with bit sets, for descriptor numbers below 1024 only.
    Select,
    /// Threads: an operation that has to wait gets a worker thread, up to a limit.
    Threads,
    /// A simulated kernel with virtual time and faults, for tests. Requires the feature `sim`.
    Sim,
}

impl DriverName {
    /// Every driver, sim last.
    pub const ALL: &[DriverName] = &[
        DriverName::IoUring,
        DriverName::Epoll,
        DriverName::Poll,
        DriverName::Select,
        DriverName::Threads,
        DriverName::Sim,
    ];

    /// Returns the printed name.
    pub const fn as_str(self) -> &'static str {
        match self {
            DriverName::IoUring => "io_uring",
            DriverName::Epoll => "epoll",
            DriverName::Poll => "poll",
            DriverName::Select => "select",
            DriverName::Threads => "threads",
            DriverName::Sim => "sim",
        }
    }
}

impl fmt::Display for DriverName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for DriverName {
    type Err = UnknownDriver;

    /// `uring` is accepted for `io_uring`.
    fn from_str(name: &str) -> Result<DriverName, UnknownDriver> {
        let name = if name == "uring" { "io_uring" } else { name };
        let found = DriverName::ALL.iter().copied().find(|known| known.as_str() == name);
        found.ok_or_else(|| UnknownDriver(name.to_owned()))
    }
}

/// Error for a name that is not a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownDriver(String);

impl fmt::Display for UnknownDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<_> = DriverName::ALL.iter().map(|name| name.as_str()).collect();
        write!(f, "unknown driver {:?} (one of: {})", self.0, known.join(", "))
    }
}

impl std::error::Error for UnknownDriver {}
