//! Channels and locks for tasks of one or several runtimes, and for threads without a runtime.
//!
//! Nothing here depends on a driver: a wake from another thread goes through the runtime's inbox
//! ([`crate::Remote`]). Broadcasts, locks and the oneshot wrap those of `async-broadcast`, `async-lock` and
//! `futures-channel`. The rest is written here: the unbounded channel does a third of the work for its one
//! receiver, the bounded one has permits ([`Sender::reserve`]), and the semaphore gives several permits at
//! once.
//!
//! | for | use |
//! |---|---|
//! | messages, each to one receiver | [`bounded`], [`unbounded`] |
//! | messages, each to every receiver | [`broadcast`] |
//! | one value, once | [`oneshot`] |
//! | the latest value | [`watch`] |
//! | "something has changed" | [`Notify`] |
//! | "stop" | [`CancellationToken`] |
//! | a value behind a lock | [`Mutex`], [`RwLock`] |
//! | a value that is made when it is first needed | [`OnceCell`] |
//! | at most N at once | [`Semaphore`] |
//! | "all of them are here" | [`Barrier`] |
//! | "all of them are done" | [`WaitGroup`] |
//!
//! Waiting tasks are served in order, with one exception: a task that arrives while there is a message may be
//! served before one that was woken and has not run yet. A [`Semaphore`], a [`Notify`] and the senders of a
//! bounded channel have no such exception. Dropping a waiting future gives up its place and passes its
//! wake-up on, so nothing is lost.
//!
//! An operation that completes immediately counts against the task's budget, like I/O: after 64 of them in
//! one poll the task yields, so that timers, I/O and other tasks run. So a task that always finds its channel
//! filled or its lock free does not stop the runtime. [`budget`] is for a program's own futures.
//!
//! ```
//! use ringroad_engine::{DriverName, Runtime, spawn, sync};
//!
//! let runtime = Runtime::new(DriverName::Epoll)?;
//! let sum = runtime.block_on(async {
//!     let (sender, receiver) = sync::bounded(4);
//!     spawn(async move {
//!         for number in 1..=10 {
//!             sender.send(number).await.unwrap(); // waits while four are unread
//!         }
//!     })
//!     .detach();
//!     let mut sum = 0;
//!     while let Ok(number) = receiver.recv().await {
//!         sum += number;
//!     }
//!     sum
//! })?;
//! assert_eq!(sum, 55);
//! # Ok::<(), ringroad_engine::Error>(())
//! ```

mod barrier;
mod bounded;
pub mod broadcast;
pub mod budget;
mod cancel;
mod errors;
mod line;
mod lock;
#[cfg(all(test, ringroad_loom))]
mod model;
mod notify;
pub mod oneshot;
mod read_write;
mod semaphore;
mod unbounded;
mod wait_group;
pub mod watch;

pub use barrier::Barrier;
pub use bounded::{OwnedPermit, Permit, PermitIterator, Receiver, Sender, WeakReceiver, WeakSender, bounded};
pub use cancel::{CancelOnDrop, CancellationToken};
pub use errors::{RecvError, SendError, SendTimeoutError, TryRecvError, TrySendError};
pub use lock::{Mutex, MutexGuard, MutexGuardArc};
pub use notify::Notify;
pub use read_write::{
    OnceCell, RwLock, RwLockReadGuard, RwLockReadGuardArc, RwLockWriteGuard, RwLockWriteGuardArc,
};
pub use semaphore::{Semaphore, SemaphoreGuard, SemaphoreGuardArc};
pub use unbounded::{RecvUnbounded, UnboundedReceiver, UnboundedSender, unbounded};
pub use wait_group::{WaitGroup, Work};
