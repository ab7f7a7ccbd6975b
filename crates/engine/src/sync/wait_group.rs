//! Waiting until a number of things is done, whoever does them.

use event_listener::{Event, listener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts work that is under way; [`wait`](WaitGroup::wait) is over when there is none.
///
/// ```
/// use ringroad_engine::{Name, Runtime, spawn, sync::WaitGroup};
///
/// let runtime = Runtime::new(Name::Epoll)?;
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

/// A piece of work under way, until it is dropped, also by a panic.
#[derive(Debug)]
#[must_use = "work that is dropped at once is done at once"]
pub struct Work {
    state: Arc<State>,
}

impl WaitGroup {
    /// With nothing under way.
    pub fn new() -> WaitGroup {
        WaitGroup::default()
    }

    /// Begins a piece of work.
    pub fn begin(&self) -> Work {
        self.state.under_way.fetch_add(1, Ordering::Relaxed);
        Work { state: Arc::clone(&self.state) }
    }

    /// How much is under way now.
    pub fn under_way(&self) -> usize {
        self.state.under_way.load(Ordering::Acquire)
    }

    /// Waits until nothing is under way: for a moment, if others go on beginning.
    pub async fn wait(&self) {
        while self.under_way() > 0 {
            listener!(self.state.none_left => done);
            // The last may have been done before we listened.
            if self.under_way() > 0 {
                done.await;
            }
        }
    }
}

impl Clone for Work {
    /// One more piece of work.
    fn clone(&self) -> Work {
        self.state.under_way.fetch_add(1, Ordering::Relaxed);
        Work { state: Arc::clone(&self.state) }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // Release: who sees zero sees what was done before.
        if self.state.under_way.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.state.none_left.notify(usize::MAX);
        }
    }
}
