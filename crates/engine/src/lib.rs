//! One completion-based I/O engine with interchangeable kernel drivers under one async API.
#![cfg(target_os = "linux")]

mod address;
pub mod blocking;
mod buf;
mod caller;
pub mod choose;
mod clock;
mod counters;
mod descriptor;
mod driver;
mod error;
mod exec;
mod file_part;
pub mod fs;
mod inflight;
mod io;
mod name;
pub mod net;
mod op;
mod option;
mod pages;
mod pool;
pub mod signal;
pub mod sync;
mod sys;
pub mod time;
mod wheel;

/// The simulated kernel: its settings, and its books. See [`Builder::sim`].
pub mod sim {
    pub use crate::driver::sim::{Faults, Ledger, SimConfig, Style};
}

pub use blocking::spawn_blocking;
pub use buf::{AnyBuf, IoBuf, IoBufMut};
pub use choose::driver_info;
pub use counters::Counters;
pub use driver::features::{Features, ZeroCopy};
pub use error::{Error, Result};
pub use exec::{Builder, Gone, JoinError, JoinHandle, Remote, Runtime, Stuck, spawn, yield_now};
pub use file_part::FilePart;
pub use name::{Name, UnknownName};
pub use pages::Pages;
pub use pool::Lease;

/// Results taken from a driver per turn, so that timers and tasks get theirs.
pub(crate) const COMPLETIONS_PER_TURN: usize = 1024;
