//! Threads that may be refused: by `ulimit -u`, the `pids` controller, a filter, or for want of address space
//! (`ulimit -v`). Then what there is does the work, if need be the calling thread alone. All threads of this
//! crate begin here.

use crate::content::zeros;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread::{Builder, Scope};

/// Address space that there must be for a thread: its stack of 2 MiB, what the standard library maps for it,
/// and what its work allocates. With room for the stack alone it begins, and then ends the program.
const ROOM_BYTES: usize = 8 << 20;

/// Starts a thread in `scope`. `false`: the system refuses it, or would soon.
pub(crate) fn begin<'scope>(scope: &'scope Scope<'scope, '_>, work: impl FnOnce() + Send + 'scope) -> bool {
    has_room(ROOM_BYTES) && Builder::new().spawn_scoped(scope, work).is_ok()
}

/// Returns whether so much memory can be mapped. None of it becomes resident.
fn has_room(bytes: usize) -> bool {
    // An allocation without a use could be left out by the compiler.
    zeros(bytes).is_ok_and(|memory| !std::hint::black_box(memory).is_empty())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_thread_begins_where_there_is_no_room_for_one() {
        assert!(has_room(ROOM_BYTES));
        assert!(!has_room(isize::MAX as usize));
    }
}
