//! Submission and completion queue: order, fullness, wrap-around, overflow, waiting.
use crate::take;
use ringroad_uring::abi::{io_uring_sqe, setup::*};
use ringroad_uring::{Full, Ring, Sqe, Wait};
use std::time::Duration;

/// NOPs through the queue many times around; every user_data comes back once and in order.
fn goes_round(mut ring: Ring) {
    let entries = u64::from(ring.submissions().entries());
    let mut next = 0;
    for _ in 0..50 {
        for k in 0..entries {
            // SAFETY: a NOP names no memory.
            unsafe { ring.submissions().push(Sqe::nop().user_data(next + k)) }.unwrap();
        }
        // SAFETY: as above.
        assert_eq!(unsafe { ring.submissions().push(Sqe::nop()) }, Err(Full));
        assert_eq!(u64::from(ring.submit().unwrap()), entries);
        let seen: Vec<u64> = take(&mut ring, entries as usize).iter().map(|c| c.user_data).collect();
        assert_eq!(seen, (next..next + entries).collect::<Vec<_>>());
        next += entries;
    }
    assert_eq!(ring.completions().pop(), None);
    assert_eq!(ring.submissions().dropped(), 0);
    assert_eq!(ring.completions().lost(), 0);
}

#[test]
fn entries_come_back_once_and_in_order_on_a_plain_ring() {
    goes_round(Ring::builder(8).build().unwrap());
}

#[test]
fn entries_come_back_once_and_in_order_with_separate_mappings() {
    goes_round(Ring::builder(8).separate_mappings().build().unwrap());
}

#[test]
fn entries_come_back_once_and_in_order_without_an_index_array() {
    match Ring::builder(8).flags(IORING_SETUP_NO_SQARRAY).build() {
        Ok(ring) => goes_round(ring),
        Err(error) => eprintln!("skipped: this kernel lacks NO_SQARRAY (6.6): {error}"),
    }
}

#[test]
fn entries_come_back_once_and_in_order_with_separate_mappings_and_no_index_array() {
    match Ring::builder(8).flags(IORING_SETUP_NO_SQARRAY).separate_mappings().build() {
        Ok(ring) => goes_round(ring),
        Err(error) => {
            // Old kernels only: a mapping of the wrong size would be refused by another call.
            assert_eq!(error.call, "io_uring_setup", "{error}");
            eprintln!("skipped: this kernel lacks NO_SQARRAY (6.6): {error}");
        }
    }
}

#[test]
fn entries_come_back_once_and_in_order_with_deferred_task_work() {
    goes_round(
        Ring::builder(8).flags(IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN).build().unwrap(),
    );
}

#[test]
fn entries_come_back_once_and_in_order_through_the_registered_descriptor() {
    let mut ring = Ring::builder(8).build().unwrap();
    ring.register_ring_fd().unwrap();
    assert!(ring.has_registered_ring_fd());
    goes_round(ring);
}

#[test]
fn entries_come_back_when_a_kernel_thread_submits() {
    let mut ring = Ring::builder(8).sqpoll(20).build().unwrap();
    for round in 0..20_u64 {
        // A pause now and then lets the thread go to sleep, so that waking it is exercised too.
        if round % 7 == 6 {
            std::thread::sleep(Duration::from_millis(40));
        }
        // SAFETY: a NOP names no memory.
        unsafe { ring.submissions().push(Sqe::nop().user_data(round)) }.unwrap();
        ring.submit().unwrap();
        assert_eq!(take(&mut ring, 1)[0].user_data, round);
    }
}

#[test]
fn a_reserved_slot_that_is_not_filled_is_not_submitted() {
    let mut ring = Ring::builder(4).build().unwrap();
    assert!(ring.submissions().reserve().is_some());
    assert_eq!(ring.submissions().pending(), 0);
    assert_eq!(ring.submit().unwrap(), 0);
}

#[test]
fn entries_are_pending_until_the_kernel_has_consumed_them() {
    let mut ring = Ring::builder(4).build().unwrap();
    // SAFETY: NOPs name no memory.
    unsafe {
        ring.submissions().push(Sqe::nop()).unwrap();
        ring.submissions().push(Sqe::nop()).unwrap();
    }
    assert_eq!(ring.submissions().pending(), 2);
    assert_eq!(ring.submissions().publish(), 2);
    ring.submit().unwrap();
    assert_eq!(ring.submissions().pending(), 0);
    assert_eq!(ring.completions().ready(), 2);
}

/// More completions than the queue holds: the kernel keeps them aside (NODROP) and says so.
#[test]
fn overflowed_completions_are_kept_and_flushed_in_order() {
    let mut ring = Ring::builder(4).completion_entries(8).build().unwrap();
    for k in 0..40_u64 {
        // SAFETY: a NOP names no memory.
        unsafe { ring.submissions().push(Sqe::nop().user_data(k)) }.unwrap();
        // EBUSY would mean that the backlog must be taken first; for NOPs the kernel accepts them.
        assert_eq!(ring.submit().unwrap(), 1);
    }
    assert!(ring.submissions().completion_overflow(), "32 completions do not fit in 8 entries");
    let mut seen = Vec::new();
    loop {
        while let Some(completion) = ring.completions().pop() {
            seen.push(completion.user_data);
        }
        if !ring.submissions().completion_overflow() {
            break;
        }
        ring.flush_overflow().unwrap();
    }
    while let Some(completion) = ring.completions().pop() {
        seen.push(completion.user_data);
    }
    assert_eq!(seen, (0..40).collect::<Vec<_>>());
    assert_eq!(ring.completions().lost(), 0);
}

#[test]
fn a_wait_with_a_timeout_returns_without_completions() {
    let mut ring = Ring::builder(4).build().unwrap();
    let wait = Wait { completions: 1, timeout: Some(Duration::from_millis(5)), ..Wait::default() };
    assert_eq!(ring.submit_and_wait(wait).unwrap(), 0);
    assert_eq!(ring.completions().pop(), None);
}

#[test]
fn a_wait_with_a_timeout_still_submits() {
    let mut ring = Ring::builder(4).build().unwrap();
    // SAFETY: a NOP names no memory.
    unsafe { ring.submissions().push(Sqe::nop().user_data(7)) }.unwrap();
    // Two are asked for and one comes, so only the timeout ends this wait.
    let wait = Wait { completions: 2, timeout: Some(Duration::from_millis(5)), ..Wait::default() };
    assert_eq!(ring.submit_and_wait(wait).unwrap(), 1);
    assert_eq!(ring.completions().pop().unwrap().user_data, 7);
}

#[test]
fn a_wait_for_a_batch_ends_with_fewer_once_its_span_is_over() {
    let mut ring =
        Ring::builder(4).flags(IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN).build().unwrap();
    if !ring.features().has(ringroad_uring::abi::IORING_FEAT_MIN_TIMEOUT) {
        return eprintln!("skipped: this kernel lacks MIN_TIMEOUT (6.12)");
    }
    // SAFETY: a NOP names no memory.
    unsafe { ring.submissions().push(Sqe::nop().user_data(1)) }.unwrap();
    // No timeout that would end it: with one of two completions only `batch_for` does.
    let wait = Wait {
        completions: 2,
        batch_for: Some(Duration::from_millis(5)),
        timeout: Some(Duration::from_secs(3600)),
        ..Wait::default()
    };
    ring.submit_and_wait(wait).unwrap();
    assert_eq!(ring.completions().pop().unwrap().user_data, 1);
}

#[test]
fn a_wait_without_iowait_is_accepted_where_the_kernel_has_it() {
    let mut ring = Ring::builder(4).build().unwrap();
    if !ring.features().has(ringroad_uring::abi::IORING_FEAT_NO_IOWAIT) {
        return eprintln!("skipped: this kernel lacks NO_IOWAIT (6.15)");
    }
    // SAFETY: a NOP names no memory.
    unsafe { ring.submissions().push(Sqe::nop()) }.unwrap();
    ring.submit_and_wait(Wait { completions: 1, no_iowait: true, ..Wait::default() }).unwrap();
    assert_eq!(ring.completions().ready(), 1);
}

#[test]
fn an_unknown_opcode_completes_with_einval() {
    let mut ring = Ring::builder(4).build().unwrap();
    // SAFETY: integers and unions of integers; all-zero is a valid value.
    let mut raw: io_uring_sqe = unsafe { std::mem::zeroed() };
    raw.opcode = 250;
    // SAFETY: no kernel has this opcode; it looks at nothing else before it refuses.
    unsafe { ring.submissions().push(Sqe::from_raw(raw).user_data(9)) }.unwrap();
    let completion = take(&mut ring, 1)[0];
    assert_eq!((completion.user_data, completion.result), (9, -libc::EINVAL));
    assert_eq!(completion.result().unwrap_err().raw_os_error(), Some(libc::EINVAL));
}

#[test]
fn a_success_that_asked_to_be_silent_leaves_no_completion_and_a_failure_does() {
    let mut ring = Ring::builder(4).build().unwrap();
    // SAFETY: a NOP names no memory, and closing descriptor -1 touches none.
    unsafe {
        ring.submissions().push(Sqe::nop().skip_success().user_data(1)).unwrap();
        ring.submissions().push(Sqe::close(-1).skip_success().user_data(2)).unwrap();
    }
    let completions = take(&mut ring, 1);
    assert_eq!((completions[0].user_data, completions[0].result), (2, -libc::EBADF));
    assert_eq!(ring.completions().pop(), None);
}

#[test]
fn a_broken_link_cancels_what_follows() {
    let mut ring = Ring::builder(4).build().unwrap();
    // SAFETY: neither names memory.
    unsafe {
        ring.submissions().push(Sqe::close(-1).link().user_data(1)).unwrap();
        ring.submissions().push(Sqe::nop().user_data(2)).unwrap();
    }
    let mut results: Vec<_> = take(&mut ring, 2).iter().map(|c| (c.user_data, c.result)).collect();
    results.sort();
    assert_eq!(results, [(1, -libc::EBADF), (2, -libc::ECANCELED)]);
}

#[test]
fn a_timeout_entry_completes_with_etime() {
    let mut ring = Ring::builder(4).build().unwrap();
    let span = ringroad_uring::abi::__kernel_timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    // SAFETY: `span` lives to the end of the test, past the completion.
    unsafe { ring.submissions().push(Sqe::timeout(&span, 0, 0).user_data(3)) }.unwrap();
    assert_eq!(take(&mut ring, 1)[0].result, -libc::ETIME);
}
