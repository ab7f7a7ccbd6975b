//! One completion-based I/O engine with interchangeable kernel drivers under one async API.
//!
//! A [`Runtime`] belongs to one thread and runs futures there. An operation takes its buffer by value and
//! returns it with the result, also on an error, because the kernel may use the buffer until the operation
//! has completed. A receive returns a [`Lease`], a piece of the driver's own memory.
//!
//! ```
//! use ringroad_engine::net::{TcpListener, TcpStream};
//!
//! ringroad_engine::run(async {
//!     let mut listener = TcpListener::bind(([127, 0, 0, 1], 0).into())?;
//!     let address = listener.local_addr()?;
//!     let echo = ringroad_engine::spawn(async move {
//!         let mut stream = listener.accept().await?;
//!         let bytes = stream.recv().await?;
//!         stream.write_all(bytes).await.0
//!     });
//!     let mut stream = TcpStream::connect(address).await?;
//!     let (sent, text) = stream.write_all("hello").await;
//!     sent?;
//!     assert_eq!(&*stream.recv().await?, text.as_bytes());
//!     echo.await.unwrap()
//! })??;
//! # Ok::<(), ringroad_engine::Error>(())
//! ```
//!
//! | for | use |
//! |---|---|
//! | a runtime on a driver you name, or on the best here | [`Runtime::new`], [`Runtime::auto`], [`choose`] |
//! | buffers, queue sizes, the simulated driver | [`Builder`] |
//! | tasks, also from other threads | [`spawn`], [`Remote`], [`JoinSet`], [`spawn_blocking`] |
//! | a runtime on each CPU | [`workers`](fn@workers) |
//! | TCP, UDP and Unix sockets | [`net`] |
//! | files | [`fs`], [`FilePart`] |
//! | timers, channels and locks, signals | [`time`], [`sync`], [`signal`] |
//! | a descriptor of another library | [`PollFd`] |
//!
//! **Cancellation.** Dropping a future cancels its operation; the driver keeps the buffer until the kernel is
//! done with it. A send of which a part has left breaks the sending side of its stream, with an error that
//! says so. A [`net::Canceller`] cancels without a drop.
//!
//! **Drivers.** io_uring submits operations and receives completions; epoll, poll and select wait for
//! readiness and then make the calls; threads make blocking calls on workers. The results are the same, and
//! documented differences are at the operations. `docs/engine.md` of the repository describes the design,
//! `docs/results` what each driver costs.
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
