//! State that a forked child inherits and must not use.
//!
//! fork(2) copies the memory of one thread: in the child the threads of a pool do not exist, a lock that
//! another thread held stays locked, and sockets, epoll sets and rings are shared with the parent. So values
//! that belong to one process record it: a runtime has an [`Origin`], and process-wide values are
//! [`PerProcess`].
//!
//! A handler of pthread_atfork(3) counts forks, so that the check is one load. A raw `clone` system call
//! without `CLONE_VM` runs no handler and is not seen; posix_spawn(3) and [`std::process::Command`] replace
//! the program.

use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// Number of forks between the first process and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn count_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Identifies the process that created a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin(u32);

impl Origin {
    /// Returns the identity of this process.
    pub(crate) fn here() -> Origin {
        static COUNTED: Once = Once::new();
        COUNTED.call_once(|| {
            // SAFETY: the handler is a function of this program for as long as it runs. In the child it does
            // an atomic addition, which is allowed there (signal-safety(7)). ENOMEM leaves forks uncounted,
            // as before.
            unsafe { libc::pthread_atfork(None, None, Some(count_fork)) };
        });
        Origin(FORKS.load(Ordering::Relaxed))
    }

    /// Returns whether this process created the value, not an ancestor.
    #[inline]
    pub(crate) fn is_here(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }
}

/// A value that each process creates when it first needs it. A forked child does not touch its parent's
/// value: another thread may have held its lock.
#[derive(Debug)]
pub(crate) struct PerProcess<T: 'static> {
    /// Null, or a leaked box.
    current: AtomicPtr<Made<T>>,
}

#[derive(Debug)]
struct Made<T> {
    origin: Origin,
    value: T,
}

impl<T> PerProcess<T> {
    pub(crate) const fn new() -> PerProcess<T> {
        PerProcess { current: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Returns this process's value. `make` gets the parent's, if there is one, and must take none of its
    /// locks.
    #[inline]
    pub(crate) fn get(&self, make: impl Fn(Option<&T>) -> T) -> &'static T {
        match self.made() {
            Some(made) if made.origin.is_here() => &made.value,
            _ => self.make(make),
        }
    }

    #[inline]
    fn made(&self) -> Option<&'static Made<T>> {
        // SAFETY: null, or a box that `make` leaked; it is never freed. Acquire pairs with the exchange
        // there.
        unsafe { self.current.load(Ordering::Acquire).as_ref() }
    }

    #[cold]
    fn make(&self, make: impl Fn(Option<&T>) -> T) -> &'static T {
        loop {
            let before = self.made();
            if let Some(made) = before.filter(|made| made.origin.is_here()) {
                return &made.value;
            }
            let value = make(before.map(|made| &made.value));
            let new = Box::into_raw(Box::new(Made { origin: Origin::here(), value }));
            let expected = before.map_or(ptr::null_mut(), |made| ptr::from_ref(made).cast_mut());
            let swap = self.current.compare_exchange(expected, new, Ordering::AcqRel, Ordering::Acquire);
            if swap.is_err() {
                // Another thread was faster.
                // SAFETY: made by `into_raw` above, and seen by no other thread since the exchange failed.
                drop(unsafe { Box::from_raw(new) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_makes_its_own_value_and_keeps_it() {
        static VALUE: PerProcess<AtomicU32> = PerProcess::new();
        let make = |parent: Option<&AtomicU32>| {
            AtomicU32::new(parent.map_or(1, |parent| parent.load(Ordering::Relaxed) + 1))
        };
        let here = VALUE.get(make);
        assert!(ptr::eq(here, VALUE.get(make)));
        let origin = Origin::here();
        // SAFETY: the child compares numbers, allocates a box (glibc keeps its allocator usable) and ends by
        // _exit(2).
        let child = unsafe { libc::fork() };
        if child == 0 {
            let theirs = VALUE.get(make);
            let differs = !origin.is_here() && !ptr::eq(here, theirs) && ptr::eq(theirs, VALUE.get(make));
            let code = if differs && theirs.load(Ordering::Relaxed) == 2 { 0 } else { 1 };
            // SAFETY: ends this process, which no other thread uses.
            unsafe { libc::_exit(code) };
        }
        let mut status = -1;
        // SAFETY: waitpid(2) writes the status of our own child into a live local.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        assert!(origin.is_here() && ptr::eq(here, VALUE.get(make)));
    }
}
