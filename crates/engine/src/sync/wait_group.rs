//! A counter of running work, with a wait for zero.

use super::budget::counted;
use event_listener::{Event, listener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts running pieces of work; [`wait`](WaitGroup::wait) ends when there are none.
///
/// ```
/// use ringroad_engine::{DriverName, Runtime, spawn, sync::WaitGroup};
///
/// let runtime = Runtime::new(DriverName::Epoll)?;
/// runtime.block_on(async {
///     let group = WaitGroup::new();
///     for _ in 0..3 {
///         let work = group.begin();
///         spawn(async move {
///             // …
///             drop(work);
///         })
///         .detach();
///     }
///     group.wait().await;
/// })?;
/// # Ok::<(), ringroad_engine::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct WaitGroup {
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    under_way: AtomicUsize,
    none_left: Event,
}

/// A running piece of work. Dropping it ends the work, also during a panic.
#[derive(Debug)]
#[must_use = "work that is dropped at once is done at once"]
pub struct Work {
    state: Arc<State>,
}

impl WaitGroup {
    /// Creates a group without work.
    pub fn new() -> WaitGroup {
        WaitGroup::default()
    }

    /// Begins a piece of work.
    pub fn begin(&self) -> Work {
        self.state.under_way.fetch_add(1, Ordering::Relaxed);
        Work { state: Arc::clone(&self.state) }
    }

    /// Returns the number of running pieces of work.
    pub fn under_way(&self) -> usize {
        self.state.under_way.load(Ordering::Acquire)
    }

    /// Waits until no work is running. Other tasks may begin new work directly afterwards.
    pub async fn wait(&self) {
        counted(self.none_left()).await;
    }

    async fn none_left(&self) {
        while self.under_way() > 0 {
            listener!(self.state.none_left => done);
            // The last piece of work may have ended before the listener was registered.
            if self.under_way() > 0 {
                done.await;
            }
        }
    }
}

impl Clone for Work {
    /// Begins another piece of work.
    fn clone(&self) -> Work {
        self.state.under_way.fetch_add(1, Ordering::Relaxed);
        Work { state: Arc::clone(&self.state) }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // Release: a waiter that sees zero sees everything done before.
        if self.state.under_way.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.state.none_left.notify(usize::MAX);
        }
    }
}
