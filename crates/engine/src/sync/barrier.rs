//! A meeting point of tasks: that of `async-lock`, counted against the task's budget.

use super::budget::counted;
use std::fmt;

/// Lets tasks wait for each other until `number` of them have arrived. Then the barrier can be used again.
///
/// ```
/// use ringroad_engine::{DriverName, JoinSet, Runtime, sync::Barrier};
/// use std::rc::Rc;
///
/// Runtime::new(DriverName::Epoll)?.block_on(async {
///     let barrier = Rc::new(Barrier::new(3));
///     let mut tasks = JoinSet::new();
///     for _ in 0..3 {
///         let barrier = Rc::clone(&barrier);
///         tasks.spawn(async move { barrier.wait().await });
///     }
///     let leaders = tasks.join_all().await.into_iter().filter(|is_leader| *is_leader).count();
///     assert_eq!(leaders, 1);
/// })?;
/// # Ok::<(), ringroad_engine::Error>(())
/// ```
pub struct Barrier(async_lock::Barrier);

impl Barrier {
    /// Makes a barrier for `number` tasks. With 0 or 1 no task waits.
    pub const fn new(number: usize) -> Barrier {
        Barrier(async_lock::Barrier::new(number))
    }

    /// Arrives, and waits for the others. Returns `true` to one of them. If the future is dropped while it
    /// waits, its arrival still counts.
    pub async fn wait(&self) -> bool {
        counted(self.0.wait()).await.is_leader()
    }

    /// Works as [`wait`](Self::wait), on a thread without a runtime; blocks.
    pub fn wait_blocking(&self) -> bool {
        self.0.wait_blocking().is_leader()
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Barrier")
    }
}
