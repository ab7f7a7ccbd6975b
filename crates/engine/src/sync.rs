//! Channels, locks and counts for tasks: of one runtime, of several on their threads, and for threads without any.
//!
//! Nothing here knows a driver: a wake from another thread goes through the runtime's inbox ([`crate::Remote`]),
//! whatever it waits in. Bounded channels, the semaphore and the oneshot are those of `async-channel`, `async-lock` and
//! `oneshot`, which are made for nothing else. The wait group is ours, since it is small, and so is the channel without
//! bound: for one receiver it takes a third of the work.
//!
//! All of them are fair in the order of waiting, except that whoever comes while there is room may be served
//! before somebody who was woken and has not run yet. Dropping a future that waits gives its place up and passes
//! on what it was woken for: nothing is lost.
//!
//! ```
//! use ringroad_engine::{Name, Runtime, spawn, sync};
//!
//! let runtime = Runtime::new(Name::Epoll)?;
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

mod unbounded;
mod wait_group;

pub use async_channel::{
    Receiver, RecvError, SendError, Sender, TryRecvError, TrySendError, WeakReceiver, WeakSender, bounded,
};
pub use async_lock::{Mutex, MutexGuard, Semaphore, SemaphoreGuard, SemaphoreGuardArc};
pub use unbounded::{RecvUnbounded, UnboundedReceiver, UnboundedSender, unbounded};
pub use wait_group::{WaitGroup, Work};

/// A channel for exactly one value.
pub mod oneshot {
    pub use oneshot::{AsyncReceiver, RecvError, SendError, Sender, TryRecvError, async_channel as channel};
}
