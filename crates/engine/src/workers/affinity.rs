//! The CPUs that this process may use, and a thread's place on one of them.

use std::mem::{size_of, zeroed};

/// Returns the CPUs that this thread may use; empty if the kernel does not tell.
pub(super) fn allowed() -> Vec<usize> {
    // SAFETY: a set of bits, for which all zeros is the empty set.
    let mut set: libc::cpu_set_t = unsafe { zeroed() };
    // SAFETY: the kernel writes at most the given size into the set, which lives here.
    let told = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
    if told != 0 {
        return Vec::new();
    }
    // SAFETY: the index is below the number of bits in the set.
    (0..libc::CPU_SETSIZE as usize).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) }).collect()
}

/// Keeps this thread on one CPU. If the kernel refuses, the thread runs where it may: a place is a hint.
pub(super) fn pin(cpu: usize) {
    // SAFETY: as above.
    let mut set: libc::cpu_set_t = unsafe { zeroed() };
    if cpu >= libc::CPU_SETSIZE as usize {
        return;
    }
    // SAFETY: the index is below the number of bits in the set, by the line above.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the kernel reads the given size from the set, which lives here.
    let _ = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) };
}
