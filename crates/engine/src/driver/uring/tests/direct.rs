//! Direct connections: operations that wait, synchronous operations, and shutdown.

use super::*;
use crate::descriptor::Descriptor;
use crate::op::{Call, FileOp, Path};
use std::ffi::CString;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// Makes one end of a pair direct. Returns its peer, and its target.
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
fn completions_that_arrive_during_a_shutdown_are_reported_after_it_in_order() {
    let mut rig = Rig::new();
    let Some((mut far, on)) = placed(&mut rig) else { return };
    let (mut other_near, other_far) = pair();
    let standing = rig.submit(&Op::Receive { on: target(&other_far) });
    rig.turn(Until::Now);
    // Each message makes its own completion, because the kernel is entered in between.
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

/// A ring has few kernel workers for file operations, and IORING_OP_SHUTDOWN needs one of them.
#[test]
fn a_shutdown_by_place_does_not_wait_for_file_operations() {
    let mut rig = Rig::new();
    let Some((mut far, on)) = placed(&mut rig) else { return };
    let folder = std::env::temp_dir().join(format!("ringroad-shutdown-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let names: Vec<CString> = (0..4)
        .map(|number| CString::new(folder.join(format!("{number}")).to_str().unwrap()).unwrap())
        .collect();
    for name in &names {
        // SAFETY: mkfifo(3) reads a path that ends in NUL.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        // Each open occupies a kernel worker until its FIFO has a writer. With O_CREAT the kernel does not
        // attempt the open without waiting first.
        let at = Path { beneath: libc::AT_FDCWD, path: name.as_ptr() };
        let flags = libc::O_RDONLY | libc::O_CREAT | libc::O_CLOEXEC;
        rig.submit(&Op::File(FileOp::Open { at, flags, mode: 0o600 }));
    }
    assert_eq!(rig.turn(Until::Now), 0);
    far.set_nonblocking(true).unwrap();
    assert_eq!(far.read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    rig.driver.call(Call::Shutdown { on, how: Shutdown::Write }).unwrap();
    assert_eq!(far.read(&mut [0]).unwrap(), 0, "it is done when the call returns");
    assert_eq!(rig.turn(Until::Now), 0, "the opens still wait");
    let mut writers = Vec::new();
    for name in &names {
        // SAFETY: open(2) reads a path that ends in NUL. With O_RDWR it waits for no reader.
        let writer = unsafe { libc::open(name.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
        // SAFETY: just opened.
        writers.push(unsafe { OwnedFd::from_raw_fd(writer) });
    }
    for _ in &names {
        let (_, opened) = rig.last();
        // SAFETY: the kernel has just opened it, and reported its number once.
        drop(unsafe { OwnedFd::from_raw_fd(opened) });
    }
    close(&mut rig, on);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_refused_shutdown_of_a_direct_connection_returns_the_kernels_error() {
    let mut rig = Rig::new();
    let Some((_far, on)) = placed(&mut rig) else { return };
    close(&mut rig, on);
    let why = rig.driver.call(Call::Shutdown { on, how: Shutdown::Both }).unwrap_err();
    assert_eq!(why.raw_os_error(), Some(libc::EBADF));
}

#[test]
fn a_direct_receive_that_waited_for_a_buffer_continues_as_direct() {
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
        // Dropping the leases of the first receive returns its buffers.
        let (token, news) = rig.next();
        let (News::Item(outcome) | News::Last(outcome)) = news else { panic!("{news:?}") };
        if token == starved {
            got.extend_from_slice(&outcome.lease.unwrap());
        }
    }
    assert_eq!(got, b"by place");
}

#[test]
fn operations_on_direct_connections_can_be_cancelled() {
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
fn dropping_the_driver_closes_direct_connections_and_their_operations() {
    let mut rig = Rig::new();
    let Some((mut idle, _)) = placed(&mut rig) else { return };
    let Some((mut receiving, on)) = placed(&mut rig) else { return };
    rig.submit(&Op::Receive { on });
    rig.turn(Until::Now);
    drop(rig);
    assert_eq!(idle.read(&mut [0]).unwrap(), 0);
    assert_eq!(receiving.read(&mut [0]).unwrap(), 0);
}
