//! How a driver is chosen, and what differs.
//!
//! [`Runtime::auto`](crate::Runtime::auto), [`run`](crate::run) and `#[ringroad::main]` take the driver that
//! the environment variable `RINGROAD_DRIVER` names, else the first of io_uring, epoll and poll that passes
//! a trial on this machine. [`driver_info`](crate::driver_info) tells which it is, and why another is not:
//!
//! ```
//! let runtime = ringroad::Runtime::auto()?;
//! println!("{}", ringroad::driver_info().unwrap());
//! println!("{:?}", runtime.driver());
//! # Ok::<(), ringroad::Error>(())
//! ```
//!
//! | driver | for |
//! |---|---|
//! | io_uring | the least CPU with many connections, bulk and files, where it is allowed |
//! | epoll | every Linux, also containers that forbid io_uring |
//! | poll, select | comparison, and small numbers of connections |
//! | threads | comparison: a thread for each operation that waits |
//! | sim | tests: virtual time, a seed, faults (feature `sim`) |
//!
//! Results, errors and the meaning of a cancel are the same on all of them; chunk boundaries are not. A
//! program names a driver and its settings like this:
//!
//! ```
//! use ringroad::{DriverName, Runtime};
//!
//! // Large receive buffers, for a proxy of bulk data.
//! let runtime = Runtime::builder(DriverName::Epoll).buffers(64, 60 * 1024).build()?;
//! assert_eq!(runtime.driver(), Some(DriverName::Epoll));
//! # Ok::<(), ringroad::Error>(())
//! ```
