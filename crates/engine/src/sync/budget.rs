//! One budget of immediate results for I/O, channels, locks, timers and a program's own sources.
//!
//! A task that always finds its channel filled or its lock free would never return to the runtime: no timer
//! would fire and no I/O would be polled. So an operation that completes immediately counts against the same
//! budget as I/O, and a task that has used up its budget yields. Polls that return `Pending` cost nothing: a
//! task may poll hundreds of empty channels.
//!
//! Every operation of this library counts. [`counted`] is for futures of a program that may be ready for
//! ever, because their results come from elsewhere, such as messages out of a buffer:
//!
//! ```
//! use ringroad_engine::{DriverName, Runtime, spawn, sync::budget::counted, yield_now};
//! use std::{cell::Cell, rc::Rc};
//!
//! Runtime::new(DriverName::Epoll)?.block_on(async {
//!     let over = Rc::new(Cell::new(false));
//!     let seen = Rc::clone(&over);
//!     spawn(async move {
//!         while !seen.get() {
//!             counted(std::future::ready(())).await;
//!         }
//!     })
//!     .detach();
//!     yield_now().await;
//!     over.set(true);
//! })?;
//! # Ok::<(), ringroad_engine::Error>(())
//! ```

pub(crate) use crate::exec::budget::poll_leaf;
pub use crate::exec::budget::{Counted, Turns, counted, poll_counted};
