//! One thread, one runtime, operations that the kernel completes.
//!
//! A [`Runtime`](crate::Runtime) runs on the thread that made it. Its tasks never move to another thread, so
//! they may share an `Rc` and a `RefCell`, and need no lock. [`spawn`](crate::task::spawn) starts a task; a
//! dropped [`JoinHandle`](crate::JoinHandle) detaches it, so a program says `detach` where it means that.
//!
//! ```
//! use ringroad::task::spawn;
//! use std::{cell::Cell, rc::Rc};
//!
//! let total = ringroad::run(async {
//!     let total = Rc::new(Cell::new(0));
//!     let tasks: Vec<_> = (1..=3)
//!         .map(|number| {
//!             let total = total.clone();
//!             spawn(async move { total.set(total.get() + number) })
//!         })
//!         .collect();
//!     for task in tasks {
//!         task.await.unwrap();
//!     }
//!     total.get()
//! })?;
//! assert_eq!(total, 6);
//! # Ok::<(), ringroad::Error>(())
//! ```
//!
//! A socket operation becomes a request to the kernel, and its task sleeps until the kernel has done it. So a
//! waiting connection costs the memory of its task and of an entry in a table: no buffer, no thread.
//!
//! A task that computes for long holds up every other task of its thread. Give such work to
//! [`spawn_blocking`](crate::task::spawn_blocking), which has a pool of threads, or call
//! [`yield_now`](crate::task::yield_now) now and then. A task that always finds data ready is no problem:
//! after 64 results in one poll the runtime turns to the others.
//!
//! To wait for several things at once, use [`select!`](crate::select), [`join!`](crate::join) or a
//! [`JoinSet`](crate::JoinSet):
//!
//! ```
//! use ringroad::{JoinSet, join, time::sleep};
//! use std::time::Duration;
//!
//! ringroad::run(async {
//!     let (one, two) = join!(async { 1 }, async { 2 });
//!     let mut set = JoinSet::new();
//!     for number in [one, two] {
//!         set.spawn(async move {
//!             sleep(Duration::from_millis(1)).await;
//!             number
//!         });
//!     }
//!     assert_eq!(set.join_all().await.iter().sum::<i32>(), 3);
//! })?;
//! # Ok::<(), ringroad::Error>(())
//! ```
