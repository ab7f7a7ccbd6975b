//! Threads that may be refused: by `ulimit -u`, the `pids` controller, or a filter. Then what there is does
//! the work, if need be the calling thread alone. All threads of this crate begin here.

use std::sync::{Mutex, PoisonError, mpsc};
use std::thread::{Builder, Scope};

/// Starts a thread in `scope`. `false`: the system refuses it.
pub(crate) fn begin<'scope>(scope: &'scope Scope<'scope, '_>, work: impl FnOnce() + Send + 'scope) -> bool {
    Builder::new().spawn_scoped(scope, work).is_ok()
}

/// Runs `work` on this thread and on up to `most - 1` others, and waits for all of them.
pub(crate) fn together(most: usize, work: impl Fn() + Sync) {
    std::thread::scope(|scope| {
        let _ = (1..most).all(|_| begin(scope, &work));
        work();
    });
}

/// Does `work` with each item that `feed` hands out, on up to `most` threads; on this one where there is no
/// other. Up to `waiting` items are held.
pub(crate) fn spread<T: Send, R>(
    most: usize,
    waiting: usize,
    work: impl Fn(T) + Sync,
    feed: impl FnOnce(&dyn Fn(T)) -> R,
) -> R {
    let (give, take) = mpsc::sync_channel::<T>(waiting);
    let take = Mutex::new(take);
    let serve = || {
        loop {
            let next = take.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(item) = next else { return };
            work(item);
        }
    };
    std::thread::scope(|scope| {
        let begun = (0..most.max(1)).take_while(|_| begin(scope, serve)).count();
        // The threads end when all is handed out.
        let give = give;
        feed(&|item| {
            if begun == 0 {
                work(item);
            } else {
                // Refused only where all of them have panicked, which the scope tells.
                let _ = give.send(item);
            }
        })
    })
}
