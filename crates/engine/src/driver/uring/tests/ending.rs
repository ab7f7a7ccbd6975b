//! Cancels, drops and shutdown, after which the kernel accesses no memory.

use super::super::{Place, RECEIVE};
use super::*;
use crate::clock::Clock;
use crate::pages::Pages;
use ringroad_uring::{abi, syscall};
use std::cell::Cell;
use std::io::{Read, Write};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;

#[test]
fn every_kind_of_operation_ends_when_cancelled() {
    let mut rig = Rig::new();
    let listener = listener();
    let (_near, far) = pair();
    let (full, _unread) = UnixStream::pair().unwrap();
    let mut memory = [0; 8];
    let mut much = pattern(4 << 20);
    let operations = [
        (Op::Accept { on: target(&listener) }, Kind::Accept),
        (Op::Receive { on: target(&far) }, Kind::Receive),
        (Op::ReceiveInto { on: target(&far), memory: span(&mut memory) }, Kind::ReceiveInto),
        (Op::Send { on: target(&full), bytes: span(&mut much), whole: true }, Kind::Send),
    ];
    for submitted_before in [true, false] {
        for (op, kind) in &operations {
            let token = rig.submit(op);
            if submitted_before {
                assert_eq!(rig.turn(Until::Now), 0);
            }
            assert_eq!(rig.cancel(token, *kind), Cancelled::Asked);
            assert_eq!(rig.cancel(token, *kind), Cancelled::Asked, "again");
            let (ended, result) = rig.last();
            assert_eq!(ended, token);
            // A send that had begun returns the number of bytes sent.
            assert!(result == -libc::ECANCELED || (*kind == Kind::Send && result > 0), "{kind}: {result}");
        }
    }
    assert!(rig.driver.cancels.is_empty());
}

/// The next operation of a slot may have the same token.
#[test]
fn a_late_cancel_does_not_affect_the_next_operation_of_the_slot() {
    let mut rig = Rig::new();
    let (near, far) = pair();
    let token = rig.submit(&Op::Receive { on: target(&far) });
    near.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(rig.last(), (token, 0));
    assert_eq!(rig.cancel(token, Kind::Receive), Cancelled::Asked);
    let (mut other_near, other_far) = pair();
    rig.driver.submit(token, &Op::Receive { on: target(&other_far) });
    for _ in 0..4 {
        assert_eq!(rig.turn(Until::Now), 0);
    }
    other_near.write_all(b"still wanted").unwrap();
    let (_, News::Item(outcome)) = rig.next() else { panic!("not an item") };
    assert_eq!(&*outcome.lease.unwrap(), b"still wanted");
}

/// The kernel completes a cancel with ENOENT while its target is between two attempts.
#[test]
fn a_cancel_that_missed_is_sent_again_while_its_target_is_in_flight() {
    let mut rig = Rig::new();
    let (_near, far) = pair();
    let token = rig.submit(&Op::Receive { on: target(&far) });
    rig.turn(Until::Now);
    let bits = token.to_bits() | RECEIVE;
    // Pretend that a cancel was sent and answered with ENOENT.
    rig.driver.put(bits, Place::Cancelled);
    rig.driver.cancel_missed(bits);
    assert_eq!(rig.driver.missed, [bits]);
    assert_eq!(rig.last(), (token, -libc::ECANCELED));
    rig.driver.cancel_missed(bits);
    assert!(rig.driver.cancels.is_empty() && rig.driver.missed.is_empty());
}

/// For an operation on a kernel thread every cancel completes immediately with ENOENT.
#[test]
fn a_cancel_that_misses_again_and_again_is_sent_again_after_a_pause() {
    let mut rig = Rig::new();
    let time = Rc::new(Cell::new(1));
    rig.driver.clock = Clock::Virtual(Rc::clone(&time));
    // The kernel has no such operation, so every cancel of it misses.
    let bits = Token { index: 7, generation: 7 }.to_bits();
    rig.driver.put(bits, Place::Cancelled);
    rig.driver.cancel_missed(bits);
    for round in 0..3 {
        let before = rig.driver.again_from;
        rig.turn(Until::Now);
        let again_from = rig.driver.again_from;
        assert!(again_from > before, "round {round}: it is due");
        for _ in 0..100 {
            assert_eq!(rig.driver.missed, [bits], "and has missed");
            time.set(time.get() + 1);
            rig.turn(Until::Now);
            assert_eq!(rig.driver.again_from, again_from, "round {round}: it is not due yet");
        }
        let before = rig.driver.counters().system_calls;
        rig.turn(Until::News);
        assert_eq!(rig.driver.counters().system_calls, before + 1, "a wait ends by itself, to send it again");
        assert_eq!(rig.driver.again_from, again_from);
        time.set(again_from.0);
    }
}

/// The cancel is requested in the turn that brings the last completion, and flushed in the next turn, which
/// begins with a new receive.
#[test]
fn a_cancel_overtaken_by_the_end_is_forgotten() {
    let mut rig = Rig::tiny();
    let (near, far) = pair();
    let token = rig.submit(&Op::Receive { on: target(&far) });
    rig.turn(Until::Now);
    // No room for the cancel in this turn.
    rig.driver.room = 0;
    assert_eq!(rig.cancel(token, Kind::Receive), Cancelled::Asked);
    near.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(rig.last(), (token, 0));
    assert_eq!(rig.driver.cancels.len(), 1);
    let (mut other_near, other_far) = pair();
    rig.driver.submit(token, &Op::Receive { on: target(&other_far) });
    assert_eq!(rig.turn(Until::Now), 0);
    assert_eq!(rig.driver.cancels, []);
    other_near.write_all(b"still wanted").unwrap();
    let (_, News::Item(outcome)) = rig.next() else { panic!("not an item") };
    assert_eq!(&*outcome.lease.unwrap(), b"still wanted");
}

#[test]
fn a_cancel_before_submission_takes_effect_immediately() {
    let mut rig = Rig::tiny();
    let (near, far) = UnixStream::pair().unwrap();
    let mut bytes: Vec<u8> = (0..20).collect();
    let tokens: Vec<_> = bytes
        .chunks_mut(1)
        .map(|byte| rig.submit(&Op::Send { on: target(&near), bytes: span(byte), whole: true }))
        .collect();
    let in_line = rig.driver.line.len();
    assert!(in_line > 5, "{in_line}");
    let gone = tokens[20 - in_line + 2];
    assert_eq!(rig.cancel(gone, Kind::Send), Cancelled::Gone);
    for token in tokens.into_iter().filter(|token| *token != gone) {
        assert_eq!(rig.last(), (token, 1));
    }
    bytes.remove(20 - in_line + 2);
    assert_eq!(rig.receive_all(&far, 19), bytes);
}

/// The memory of the cancelled operation is freed by then: its entry must not reach the kernel, although the
/// new operation has the same token.
#[test]
fn an_operation_cancelled_in_line_and_submitted_again_runs_once_at_its_new_position() {
    let mut rig = Rig::tiny();
    let (near, far) = UnixStream::pair().unwrap();
    let mut bytes: Vec<u8> = (0..40).collect();
    let mut tokens: Vec<_> = bytes
        .chunks_mut(1)
        .map(|byte| rig.submit(&Op::Send { on: target(&near), bytes: span(byte), whole: true }))
        .collect();
    let in_line = rig.driver.line.len();
    assert!(in_line > 20, "{in_line}");
    // Every second operation in line moves to the end, in reverse order, with the same token.
    let moved: Vec<usize> = (40 - in_line + 1..39).step_by(2).rev().collect();
    for at in &moved {
        let token = tokens[*at];
        assert_eq!(rig.cancel(token, Kind::Send), Cancelled::Gone);
        bytes[*at] += 100;
    }
    for at in &moved {
        let byte = span(&mut bytes[*at..=*at]);
        rig.driver.submit(tokens[*at], &Op::Send { on: target(&near), bytes: byte, whole: true });
    }
    let (mut order, mut kept) = (Vec::new(), Vec::new());
    for (at, token) in tokens.drain(..).enumerate().filter(|(at, _)| !moved.contains(at)) {
        kept.push(token);
        order.push(bytes[at]);
    }
    order.extend(moved.iter().map(|at| bytes[*at]));
    for _ in 0..40 {
        assert_eq!(rig.last().1, 1);
    }
    assert_eq!(rig.turn(Until::Now), 0);
    assert_eq!(rig.receive_all(&far, 40), order);
}

/// An operation that cannot be interrupted is in flight. The caller has already waited for it.
#[test]
fn an_abandoned_driver_takes_immediate_completions_and_waits_for_no_others() {
    let mut rig = Rig::new();
    let (_near, far) = pair();
    rig.submit(&Op::Receive { on: target(&far) });
    rig.turn(Until::Now);
    let pool = Rc::clone(rig.driver.pool());
    rig.driver.patience = std::time::Duration::ZERO;
    assert!(rig.driver.drain(), "the receive and the alarm can be cancelled at once");
    assert_eq!(rig.driver.in_flight, 0);
    drop(rig);
    assert_eq!(pool.out(), 0);
}

#[test]
fn a_receive_that_waits_for_a_buffer_is_cancelled_at_once() {
    let mut rig = Rig::with_buffers(1, 16);
    let (near, far) = UnixStream::pair().unwrap();
    (&near).write_all(&pattern(40)).unwrap();
    rig.submit(&Op::Receive { on: target(&far) });
    while rig.driver.buffers_offered() > 0 {
        rig.turn(Until::News);
    }
    let starved = rig.submit(&Op::Receive { on: target(&near) });
    assert_eq!(rig.cancel(starved, Kind::Receive), Cancelled::Gone);
    assert!(rig.driver.starved.is_empty());
}

#[test]
fn more_cancels_than_the_queues_hold_all_arrive() {
    let mut rig = Rig::tiny();
    let pairs: Vec<_> = (0..100).map(|_| UnixStream::pair().unwrap()).collect();
    let mut memory = vec![[0_u8; 4]; pairs.len()];
    let tokens: Vec<_> = pairs
        .iter()
        .zip(&mut memory)
        .map(|((_, far), memory)| rig.submit(&Op::ReceiveInto { on: target(far), memory: span(memory) }))
        .collect();
    while !rig.driver.line.is_empty() {
        rig.turn(Until::Now);
    }
    for token in &tokens {
        assert_eq!(rig.cancel(*token, Kind::ReceiveInto), Cancelled::Asked);
    }
    let mut ended: Vec<_> = tokens.iter().map(|_| rig.last()).collect();
    ended.sort_by_key(|(token, _)| token.index);
    assert_eq!(ended, tokens.into_iter().map(|token| (token, -libc::ECANCELED)).collect::<Vec<_>>());
    assert_eq!(rig.driver.cancels, []);
}

/// In every order of data and cancel, bytes that were not reported are still in the socket.
#[test]
fn a_cancel_loses_no_byte() {
    let mut rig = Rig::new();
    let (mut near, mut far) = pair();
    for round in 0..200 {
        let token = rig.submit(&Op::Receive { on: target(&far) });
        if round % 3 > 0 {
            rig.turn(Until::Now);
        }
        near.write_all(&pattern(50)).unwrap();
        if round % 2 > 0 {
            rig.turn(Until::Now);
        }
        rig.cancel(token, Kind::Receive);
        let mut received = Vec::new();
        loop {
            match rig.next() {
                (_, News::Item(outcome)) => received.extend_from_slice(&outcome.lease.unwrap()),
                (_, News::Last(outcome)) => {
                    received.extend(outcome.lease.iter().flat_map(|lease| lease.to_vec()));
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
        let mut rest = vec![0; 50 - received.len()];
        far.read_exact(&mut rest).unwrap();
        received.extend(rest);
        assert_eq!(received, pattern(50), "round {round}");
    }
}

#[test]
fn a_driver_dropped_with_operations_in_flight_leaves_their_memory_and_sockets_alone() {
    let mut rig = Rig::new();
    let (mut near, mut far) = pair();
    let (mut other, mut other_far) = pair();
    let memory = Pages::new(4096).unwrap();
    let span = Span { start: memory.start().as_ptr(), bytes: 4096 };
    rig.submit(&Op::ReceiveInto { on: target(&far), memory: span });
    rig.submit(&Op::Receive { on: target(&other_far) });
    rig.turn(Until::Now);
    // Submitted only by the drop, and cancelled there.
    let (_unused, silent) = pair();
    rig.submit(&Op::Receive { on: target(&silent) });
    let pool = Rc::clone(rig.driver.pool());
    // Another descriptor of the ring keeps it alive, so its requests would live on.
    let ring = rig.driver.kernel.ring.as_fd().try_clone_to_owned().unwrap();
    drop(rig);
    assert_eq!(Rc::strong_count(&pool), 1, "nothing was leaked");
    // A receive still in flight would write these bytes into memory that was returned.
    near.write_all(b"late").unwrap();
    other.write_all(b"late too").unwrap();
    // SAFETY: nothing is submitted; this runs the ring's pending task work.
    unsafe { syscall::enter(ring.as_raw_fd(), 0, 0, abi::IORING_ENTER_GETEVENTS, std::ptr::null(), 0) }
        .unwrap();
    assert!(memory.is_empty());
    // SAFETY: our mapping, 4096 bytes, zeroed; by what this test shows, nothing writes it.
    assert!(unsafe { std::slice::from_raw_parts(span.start, 4096) }.iter().all(|byte| *byte == 0));
    drop(memory);
    for socket in [&far, &other_far] {
        socket.set_read_timeout(Some(NEVER)).unwrap();
    }
    let mut received = [0; 4];
    far.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"late");
    let mut received = [0; 8];
    other_far.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"late too");
}

#[test]
fn completions_that_were_never_taken_return_their_buffers_and_close_their_descriptors() {
    let mut rig = Rig::new();
    let listener = listener();
    let (mut near, far) = pair();
    rig.submit(&Op::Accept { on: target(&listener) });
    rig.submit(&Op::Receive { on: target(&far) });
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    near.write_all(b"unread").unwrap();
    // Completed in the kernel, and not yet taken.
    rig.driver.kernel.ring.submit_and_wait(ringroad_uring::Wait::default()).unwrap();
    assert!(rig.driver.kernel.ring.completions().ready() >= 2);
    let pool = Rc::clone(rig.driver.pool());
    Box::new(rig.driver).abandon(Duration::from_secs(1));
    let mut rest = Vec::new();
    client.set_read_timeout(Some(NEVER)).unwrap();
    client.read_to_end(&mut rest).expect("closed by the driver");
    assert_eq!(pool.out(), 0);
    // Every buffer is either offered or free.
    let outstanding = pool.with_ring(|ring| ring.outstanding()).unwrap();
    assert_eq!(std::iter::from_fn(|| pool.take()).count(), usize::from(outstanding));
}

#[test]
fn the_alarm_is_not_read_after_the_driver_is_gone() {
    let rig = Rig::new();
    let alarm = rig.driver.alarm().unwrap();
    drop(rig);
    super::exchange::ring(&*alarm);
    let mut count = 0_u64;
    // SAFETY: eight bytes are written to a live local.
    assert_eq!(unsafe { libc::read(alarm.as_raw_fd(), (&raw mut count).cast(), 8) }, 8);
    assert_eq!(count, 1);
}

#[test]
fn a_lease_outlives_its_driver() {
    let mut rig = Rig::new();
    let (mut near, far) = pair();
    near.write_all(b"longer").unwrap();
    rig.submit(&Op::Receive { on: target(&far) });
    let (_, News::Item(outcome)) = rig.next() else { panic!("not an item") };
    drop(rig);
    assert_eq!(&*outcome.lease.unwrap(), b"longer");
}

#[test]
fn a_child_made_by_fork_that_drops_the_driver_leaves_the_parents_operations_alone() {
    let mut rig = Rig::new();
    let (mut near, far) = pair();
    rig.submit(&Op::Receive { on: target(&far) });
    rig.turn(Until::Now);
    // SAFETY: the child drops a driver, which takes no lock another thread could hold but the allocator's,
    // and that one glibc keeps usable across fork; then it ends at once, without the parent's destructors.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(rig.driver)));
        // SAFETY: as above.
        unsafe { libc::_exit(i32::from(dropped.is_err())) };
    }
    let mut status = 0;
    // SAFETY: `status` is ours; the child is ours and not yet waited for.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    near.write_all(b"still here").unwrap();
    let (_, News::Item(outcome)) = rig.next() else { panic!("not an item") };
    assert_eq!(&*outcome.lease.unwrap(), b"still here");
}

/// No task waits for the accepted connection. Only the driver has the descriptor, so it closes it.
#[test]
fn a_one_shot_accept_that_completed_before_its_cancel_returns_the_connection() {
    let features = Features { multishot_accept: false, ..Features::default() };
    let mut rig = Rig::with(Settings { features, ..Settings::default() });
    let listener = listener();
    let token = rig.submit(&Op::Accept { on: target(&listener) });
    rig.turn(Until::Now);
    let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    rig.cancel(token, Kind::Accept);
    let (ended, result) = rig.last();
    assert_eq!(ended, token);
    if result >= 0 {
        // SAFETY: the kernel has just opened this descriptor for us.
        drop(unsafe { OwnedFd::from_raw_fd(result) });
    } else {
        assert_eq!(result, -libc::ECANCELED);
        listener.accept().expect("the connection is still in the listener's queue");
    }
}
