//! The drivers' names, as they are typed and printed.

use std::fmt;
use std::str::FromStr;

/// A driver, by the name used on command lines and in records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Name {
    /// `io_uring(7)`: operations are submitted and completed.
    IoUring,
    /// `epoll(7)`, edge-triggered: readiness is waited for, then the operation is attempted.
    Epoll,
    /// `poll(2)`: the same, with one array that the kernel walks at each wait.
    Poll,
    /// `select(2)`: the same, with bit sets, for descriptor numbers below 1024 only.
    Select,
    /// Threads: what has to wait gets a worker thread that waits for it, up to a stated limit.
    Threads,
    /// A simulated kernel with virtual time and faults, for tests.
    Sim,
}

impl Name {
    /// Every driver, sim last.
    pub const ALL: &[Name] =
        &[Name::IoUring, Name::Epoll, Name::Poll, Name::Select, Name::Threads, Name::Sim];

    /// The name as printed.
    pub const fn as_str(self) -> &'static str {
        match self {
            Name::IoUring => "io_uring",
            Name::Epoll => "epoll",
            Name::Poll => "poll",
            Name::Select => "select",
            Name::Threads => "threads",
            Name::Sim => "sim",
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Name {
    type Err = UnknownName;

    /// `uring` is accepted for `io_uring`.
    fn from_str(name: &str) -> Result<Name, UnknownName> {
        let name = if name == "uring" { "io_uring" } else { name };
        let found = Name::ALL.iter().copied().find(|known| known.as_str() == name);
        found.ok_or_else(|| UnknownName(name.to_owned()))
    }
}

/// A name that stands for no driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName(String);

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<_> = Name::ALL.iter().map(|name| name.as_str()).collect();
        write!(f, "unknown driver {:?} (one of: {})", self.0, known.join(", "))
    }
}

impl std::error::Error for UnknownName {}
