//! A forked child is refused: it can neither submit on the parent's behalf nor touch the queues.
//!
//! Each case runs in a process of its own with one test thread, so that no other thread holds a lock (of
//! stderr, of the harness) at the moment of the fork.
use ringroad_uring::{Ring, Sqe, Wait};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;

const CASE: &str = "RINGROAD_TEST_FORK_CASE";

fn in_own_process(case: &str) {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "--test-threads=1", "fork::forked_case"])
        .env(CASE, case)
        .status()
        .unwrap();
    assert!(status.success(), "case {case}: {status}");
}

#[test]
fn a_forked_child_is_refused_by_every_system_call() {
    in_own_process("system calls");
}

#[test]
fn a_forked_child_panics_on_a_queue_before_it_faults() {
    in_own_process("queues");
}

#[test]
fn a_forked_child_may_drop_the_ring_without_touching_what_was_mapped_since() {
    in_own_process("drop");
}

#[test]
fn a_ring_made_after_fork_works_in_the_child() {
    in_own_process("own ring");
}

/// The body of the tests above, chosen by an environment variable; without it there is nothing to do.
#[test]
fn forked_case() {
    let Ok(case) = std::env::var(CASE) else { return };
    let mut ring = Ring::builder(4).build().unwrap();
    // SAFETY: a NOP names no memory.
    unsafe { ring.submissions().push(Sqe::nop().user_data(1)) }.unwrap();

    // SAFETY: this process has two threads, and the other one (the harness's) only waits for this one.
    let child = unsafe { libc::fork() };
    if child == 0 {
        std::panic::set_hook(Box::new(|_| {}));
        let held = catch_unwind(AssertUnwindSafe(|| in_the_child(&case, ring))).unwrap_or(false);
        // SAFETY: ends the child at once, without the parent's destructors.
        unsafe { libc::_exit(if held { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: `status` is ours; the child is ours and not yet waited for.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child was let in, or died");
    // The parent's ring is untouched: the entry is still there and completes once.
    ring.submit_and_wait(Wait { completions: 1, ..Wait::default() }).unwrap();
    assert_eq!(ring.completions().pop().unwrap().user_data, 1);
    assert_eq!(ring.completions().pop(), None);
}

fn in_the_child(case: &str, mut ring: Ring) -> bool {
    // The assertions inside would hold in the parent, so a panic can only be the refusal.
    let panics = |act: &mut dyn FnMut()| catch_unwind(AssertUnwindSafe(act)).is_err();
    match case {
        "system calls" => {
            let message = ring.submit().unwrap_err().to_string();
            message.contains("forked child")
                && message.contains(&std::process::id().to_string())
                && ring.submit_and_wait(Wait::default()).is_err()
                && ring.flush_overflow().is_err()
                && ring.register_ring_fd().is_err()
                && ring.register_files(&[None]).is_err()
        }
        "queues" => {
            panics(&mut || assert!(ring.submissions().reserve().is_some()))
                && panics(&mut || assert_eq!(ring.submissions().publish(), 1))
                && panics(&mut || assert!(ring.completions().pop().is_none()))
                && panics(&mut || assert_eq!(ring.completions().ready(), 0))
        }
        "drop" => {
            // Fill the holes that the unmapped queues left, then drop: an munmap there would take our pages.
            let pages: Vec<*mut u8> = (0..64).map(|_| map_page()).collect();
            drop(ring);
            // SAFETY: the pages were mapped above, writable; only a wrong drop would unmap them.
            pages.iter().all(|page| unsafe { page.read_volatile() } == 0)
        }
        "own ring" => {
            let mut own = Ring::builder(4).build().unwrap();
            // SAFETY: a NOP names no memory.
            unsafe { own.submissions().push(Sqe::nop().user_data(2)) }.unwrap();
            own.submit_and_wait(Wait { completions: 1, ..Wait::default() }).unwrap();
            own.completions().pop().unwrap().user_data == 2
        }
        _ => false,
    }
}

fn map_page() -> *mut u8 {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new private page at an address of the kernel's choice.
    let page = unsafe { libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0) };
    assert_ne!(page, libc::MAP_FAILED);
    page.cast()
}

/// The guard stops our own accessors only. The kernel's flag protects from all other accesses: the queues
/// must not be mapped in a child at all. `dc` is the word of smaps for "do not copy on fork" (proc(5)).
#[test]
fn the_queues_are_marked_as_not_copied_on_fork() {
    let _ring = Ring::builder(4).build().unwrap();
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let flags: Vec<&str> = smaps
        .split("anon_inode:[io_uring]")
        .skip(1)
        .filter_map(|rest| rest.lines().find(|line| line.starts_with("VmFlags:")))
        .collect();
    assert!(!flags.is_empty(), "no mapping of a ring in smaps");
    assert!(flags.iter().all(|line| line.split_whitespace().any(|flag| flag == "dc")), "{flags:?}");
}
