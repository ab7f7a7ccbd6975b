//! Places instead of numbers: what waits, what is waited for by itself, and the end.

use super::*;
use crate::descriptor::Descriptor;
use crate::op::Call;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

/// Gives one end of a pair a place. Its peer, and how the driver is told of it.
fn placed(rig: &mut Rig) -> Option<(UnixStream, Target)> {
    let (near, far) = UnixStream::pair().unwrap();
    match rig.driver.make_direct(OwnedFd::from(near)) {
        Ok(place) => Some((far, Target { number: Descriptor::Direct(place).number(), ..Target::NONE })),
        Err((why, _)) => {
            eprintln!("skipped: {why}");
            None
        }
    }
}

fn close(rig: &mut Rig, on: Target) {
    let descriptor = Descriptor::Direct(on.place().unwrap());
    rig.driver.call(Call::Close { on, descriptor }).unwrap();
}

#[test]
fn what_comes_while_a_shutdown_is_waited_for_is_told_after_it_and_in_order() {
    let mut rig = Rig::new();
    let Some((mut far, on)) = placed(&mut rig) else { return };
    let (mut other_near, other_far) = pair();
    let standing = rig.submit(&Op::Receive { on: target(&other_far) });
    rig.turn(Until::Now);
    // Each is a completion of its own, since the kernel is asked in between.
    for message in ["one", "two", "three"] {
        other_near.write_all(message.as_bytes()).unwrap();
        rig.driver.hand_over();
        rig.driver.kernel.ring.flush_overflow().unwrap();
    }
    rig.driver.call(Call::Shutdown { on, how: Shutdown::Write }).unwrap();
    assert_eq!(far.read(&mut [0]).unwrap(), 0, "it is done when the call returns");
    assert!(!rig.driver.held.is_empty(), "and what came before it is not told yet");
    let mut told = Vec::new();
    while told.len() < 11 {
        let (token, News::Item(outcome)) = rig.next() else { panic!("not an item") };
        assert_eq!(token, standing);
        told.extend_from_slice(&outcome.lease.unwrap());
    }
    assert_eq!(told, b"onetwothree");
    close(&mut rig, on);
    assert_eq!(rig.driver.counters().places_used, 0);
}

#[test]
fn a_refused_shutdown_by_place_says_what_the_kernel_said() {
    let mut rig = Rig::new();
    let Some((_far, on)) = placed(&mut rig) else { return };
    close(&mut rig, on);
    let why = rig.driver.call(Call::Shutdown { on, how: Shutdown::Both }).unwrap_err();
    assert_eq!(why.raw_os_error(), Some(libc::EBADF));
}

#[test]
fn a_receive_by_place_that_waited_for_a_buffer_goes_on_by_place() {
    let mut rig = Rig::with_buffers(2, 16);
    let Some((mut far, on)) = placed(&mut rig) else { return };
    let (mut greedy, end) = UnixStream::pair().unwrap();
    greedy.write_all(&[7; 64]).unwrap();
    rig.submit(&Op::Receive { on: target(&end) });
    while rig.driver.buffers_offered() > 0 {
        rig.turn(Until::News);
    }
    let starved = rig.submit(&Op::Receive { on });
    assert_eq!(rig.driver.starved.len(), 1);
    far.write_all(b"by place").unwrap();
    let mut got = Vec::new();
    while got.len() < 8 {
        // Dropping what the greedy one has brought gives its buffers back.
        let (token, news) = rig.next();
        let (News::Item(outcome) | News::Last(outcome)) = news else { panic!("{news:?}") };
        if token == starved {
            got.extend_from_slice(&outcome.lease.unwrap());
        }
    }
    assert_eq!(got, b"by place");
}

#[test]
fn what_waits_by_place_is_cancelled_as_ever() {
    let mut rig = Rig::new();
    let Some((_far, on)) = placed(&mut rig) else { return };
    let (mut memory, mut much) = ([0; 8], pattern(4 << 20));
    for (op, kind) in [
        (Op::Receive { on }, Kind::Receive),
        (Op::ReceiveInto { on, memory: span(&mut memory) }, Kind::ReceiveInto),
        (Op::Send { on, bytes: span(&mut much), whole: true }, Kind::Send),
    ] {
        let token = rig.submit(&op);
        rig.turn(Until::Now);
        assert_eq!(rig.cancel(token, kind), Cancelled::Asked);
        let (ended, result) = rig.last();
        assert_eq!(ended, token);
        assert!(result == -libc::ECANCELED || (kind == Kind::Send && result > 0), "{kind}: {result}");
    }
    close(&mut rig, on);
}

#[test]
fn a_driver_that_is_dropped_closes_what_had_places_and_what_was_in_flight_there() {
    let mut rig = Rig::new();
    let Some((mut idle, _)) = placed(&mut rig) else { return };
    let Some((mut receiving, on)) = placed(&mut rig) else { return };
    rig.submit(&Op::Receive { on });
    rig.turn(Until::Now);
    drop(rig);
    assert_eq!(idle.read(&mut [0]).unwrap(), 0);
    assert_eq!(receiving.read(&mut [0]).unwrap(), 0);
}
