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
mod fork;
pub mod fs;
mod inflight;
mod io;
mod join_set;
mod name;
pub mod net;
mod op;
mod option;
mod pages;
mod parked;
mod poll_fd;
mod pool;
pub mod signal;
pub mod sync;
mod sys;
mod task_local;
pub mod time;
mod wheel;
pub mod workers;

/// The simulated kernel: its configuration and ledger. See [`Builder::sim`]. Requires the feature `sim`.
#[cfg(feature = "sim")]
pub mod sim {
    pub use crate::driver::sim::{Faults, Ledger, SimConfig, Style};
}

pub use blocking::spawn_blocking;
pub use buf::{AnyBuf, IoBuf, IoBufMut};
pub use choose::driver_info;
pub use counters::Counters;
pub use driver::features::{Features, ZeroCopy};
pub use error::{Error, Result};
pub use exec::{
    Builder, CancelHandle, Gone, JoinError, JoinHandle, Remote, RemoteTask, Runtime, Stuck, is_in_runtime,
    run, spawn, yield_now,
};
pub use file_part::FilePart;
pub use join_set::JoinSet;
pub use name::{DriverName, UnknownDriver};
pub use pages::Pages;
pub use poll_fd::PollFd;
pub use pool::Lease;
pub use task_local::{Scope, TaskLocal};
pub use workers::workers;

/// Maximum number of results taken from a driver per turn, so that timers and tasks run too.
pub(crate) const COMPLETIONS_PER_TURN: usize = 1024;
