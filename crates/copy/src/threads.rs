//! Threads that may be refused: by `ulimit -u`, the `pids` controller, a filter, or for want of address space
//! (`ulimit -v`). Then what there is does the work, if need be the calling thread alone. All threads of this
//! crate begin here.

use std::sync::{Mutex, PoisonError, mpsc};
use std::thread::{Builder, Scope};

/// Address space that there must be for a thread: its stack of 2 MiB, what the standard library maps for it,
/// and what its work allocates. With room for the stack alone it begins, and then ends the program.
const ROOM_BYTES: usize = 8 << 20;

/// Starts a thread in `scope`. `false`: the system refuses it, or would soon.
pub(crate) fn begin<'scope>(scope: &'scope Scope<'scope, '_>, work: impl FnOnce() + Send + 'scope) -> bool {
    with_room(ROOM_BYTES, || Builder::new().spawn_scoped(scope, work).is_ok()).unwrap_or(false)
}

/// Held from a look at the room to the end of what takes it, so that two threads do not count on the same.
static ROOM: Mutex<()> = Mutex::new(());

/// Does `work`, which takes memory and leaves some, if `bytes` can be mapped. `None`: they cannot.
pub(crate) fn with_room<R>(bytes: usize, work: impl FnOnce() -> R) -> Option<R> {
    let _held = ROOM.lock().unwrap_or_else(PoisonError::into_inner);
    has_room(bytes).then(work)
}

/// Returns whether so much memory can be mapped.
///
/// Under a limit of the address space it is counted and not tried: what is tried is missing to other threads,
/// and the failure of an allocation ends the program. The allocator is not asked, since it may have as much
/// free in its heap. From that heap other threads take nothing: glibc gives each an arena of its own, or,
/// where there is no room for one, a mapping for each allocation.
fn has_room(bytes: usize) -> bool {
    let Some(limit) = crate::sys::address_space_max() else { return can_be_mapped(bytes) };
    match mapped() {
        Some(mapped) => limit.saturating_sub(mapped) >= bytes as u64,
        None => can_be_mapped(bytes),
    }
}

/// Returns the size of this process's address space, where the kernel tells it (`proc_pid_statm(5)`).
fn mapped() -> Option<u64> {
    let told = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = told.split(' ').next()?.parse().ok()?;
    pages.checked_mul(rustix::param::page_size() as u64)
}

/// Maps so much memory, and unmaps it. None of it becomes resident.
fn can_be_mapped(bytes: usize) -> bool {
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: no address is asked for, so that no mapping is replaced.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return false;
    }
    // SAFETY: the line above has made this mapping with this length, and nothing has a pointer into it.
    unsafe { libc::munmap(start, bytes) == 0 }
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
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn no_thread_begins_where_there_is_no_room_for_one() {
        for has_room in [has_room, can_be_mapped] {
            assert!(has_room(ROOM_BYTES));
            assert!(!has_room(isize::MAX as usize));
        }
    }

    #[test]
    fn what_is_mapped_counts_and_what_was_unmapped_does_not() {
        let before = mapped().unwrap();
        assert!(can_be_mapped(1 << 30));
        let taken = crate::content::zeros(1 << 30).unwrap();
        assert!(mapped().unwrap() >= before + (1 << 29));
        drop(taken);
        assert!(mapped().unwrap() < before + (1 << 29));
    }
}
