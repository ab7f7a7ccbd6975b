//! Results of operations, with features on and off.

use super::*;
use crate::op::{Answer, Call, Carries, Domain};
use ringroad_uring::Wait;
use socket2::SockAddr;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

#[test]
fn every_operation_works_with_every_mask_of_features() {
    for features in masks() {
        let mut rig = Rig::with(Settings { features, ..Settings::default() });
        let listener = listener();
        rig.submit(&Op::Accept { on: target(&listener) });
        let address = listener.local_addr().unwrap();
        let call = Call::Socket { domain: Domain::V4, carries: Carries::Stream };
        let Ok(Answer::Descriptor(descriptor)) = rig.driver.call(call) else {
            panic!("no socket");
        };
        let near = Target { number: descriptor.number(), ..target(&listener) };
        let address = SockAddr::from(address);
        rig.submit(&Op::Connect { on: near, address: &address });
        let (mut accepted, mut connected) = (None, None);
        while accepted.is_none() || connected.is_none() {
            match rig.next() {
                (Token { index: 0, .. }, News::Item(outcome)) => {
                    assert!(features.multishot_accept);
                    accepted = Some(outcome.result);
                }
                (Token { index: 0, .. }, News::Last(outcome)) => {
                    assert!(!features.multishot_accept);
                    accepted = Some(outcome.result);
                }
                (_, News::Last(outcome)) => connected = Some(outcome.result),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(connected, Some(0));
        // SAFETY: the kernel has just opened this descriptor for us.
        let far = unsafe { OwnedFd::from_raw_fd(accepted.unwrap()) };

        let mut one = *b"sent whole, ";
        rig.submit(&Op::Send { on: near, bytes: span(&mut one), whole: true });
        assert_eq!(rig.last().1, 12);
        let (two, three) = (*b"and in ", *b"pieces");
        let mut vectors = [&two[..], &three]
            .map(|piece| libc::iovec { iov_base: piece.as_ptr().cast_mut().cast(), iov_len: piece.len() });
        // SAFETY: integers and pointers, for which zero is valid.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (vectors.as_mut_ptr(), vectors.len());
        rig.submit(&Op::SendVectored { on: near, message: &message });
        assert_eq!(rig.last().1, 13);
        let mut memory = [0; 5];
        rig.submit(&Op::ReceiveInto { on: target(&far), memory: span(&mut memory) });
        assert_eq!((rig.last().1, &memory), (5, b"sent "));

        let (nearby, faraway) = std::os::unix::net::UnixDatagram::pair().unwrap();
        message.msg_iovlen = 1;
        rig.submit(&Op::SendMessage { on: target(&nearby), message: &message });
        assert_eq!(rig.last().1, 7);
        let mut vector = libc::iovec { iov_base: memory.as_mut_ptr().cast(), iov_len: memory.len() };
        message.msg_iov = &raw mut vector;
        rig.submit(&Op::ReceiveMessage { on: target(&faraway), message: &raw mut message });
        // The result is the whole length, of which there was room for five bytes.
        assert_eq!((rig.last().1, &memory), (7, b"and i"));

        assert_eq!(rig.receive_all(&far, 20), b"whole, and in pieces", "{features:?}");
        drop(far);
        assert!(matches!(rig.driver.call(Call::Close { on: near, descriptor }), Ok(Answer::Done)));
    }
}

#[test]
fn one_standing_accept_returns_many_connections() {
    let mut rig = Rig::new();
    let listener = listener();
    let standing = rig.submit(&Op::Accept { on: target(&listener) });
    let address = listener.local_addr().unwrap();
    for _ in 0..3 {
        let _clients: Vec<_> = (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
        for _ in 0..20 {
            let (token, News::Item(outcome)) = rig.next() else { panic!("not an item") };
            assert_eq!(token, standing);
            // SAFETY: the kernel has just opened this descriptor for us.
            drop(unsafe { OwnedFd::from_raw_fd(outcome.result) });
        }
    }
    assert_eq!(rig.tokens, 1);
}

#[test]
fn a_standing_receive_delivers_bytes_as_they_arrive_and_then_the_end() {
    for bundles in [true, false] {
        let mut rig = Rig::with(Settings { features: with_bundles(bundles), ..Settings::default() });
        let (mut near, far) = pair();
        let standing = rig.submit(&Op::Receive { on: target(&far) });
        for round in 0..300 {
            let sent = pattern(1 + round);
            near.write_all(&sent).unwrap();
            let (token, News::Item(outcome)) = rig.next() else { panic!("not an item") };
            assert_eq!((token, outcome.result as usize), (standing, sent.len()));
            assert_eq!(&*outcome.lease.unwrap(), sent);
        }
        drop(near);
        assert_eq!(rig.last(), (standing, 0));
        assert_eq!(rig.driver.pool().out(), 0);
        assert_eq!(rig.tokens, 1);
    }
}

#[test]
fn a_receive_in_bulk_waits_without_a_buffer_and_takes_the_available_bytes_when_attempted() {
    for features in masks() {
        let mut rig = Rig::with(Settings { buffers: 8, buffer_bytes: 64, features, ..Settings::default() });
        let (mut near, far) = UnixStream::pair().unwrap();
        let receive = Op::ReceiveBulk { on: target(&far) };
        assert!(rig.driver.attempt(&receive).is_none());
        let asked = rig.submit(&receive);
        assert_eq!(rig.turn(Until::Now), 0);
        let sent = pattern(10_000);
        near.write_all(&sent).unwrap();
        assert_eq!(rig.last(), (asked, -libc::EAGAIN), "told, and nothing taken");
        let lease = rig.driver.attempt(&receive).unwrap().lease.unwrap();
        assert_eq!(&*lease, sent);
        assert_eq!(rig.driver.pool().out(), 0, "it lies in no small buffer");
        // A cancel ends the poll; the next operation of the slot is independent.
        let asked = rig.submit(&receive);
        assert_eq!(rig.turn(Until::Now), 0);
        assert_eq!(rig.cancel(asked, Kind::Receive), Cancelled::Asked);
        assert_eq!(rig.last(), (asked, -libc::ECANCELED));
        near.write_all(b"short").unwrap();
        rig.driver.submit(asked, &Op::Receive { on: target(&far) });
        let (token, News::Item(outcome)) = rig.next() else { panic!("not an item") };
        assert_eq!((token, &*outcome.lease.unwrap()), (asked, &b"short"[..]));
        drop(near);
        assert_eq!(rig.last(), (asked, 0));
        assert_eq!(rig.driver.attempt(&receive).unwrap().result, 0);
    }
}

/// Some kernels attach a buffer to the end of a stream, too.
#[test]
fn a_buffer_without_bytes_is_returned_to_the_ring() {
    let mut rig = Rig::new();
    let flags = ringroad_uring::abi::IORING_CQE_F_BUFFER | 5 << 16;
    let token = Token { index: 3, generation: 9 };
    let end = ringroad_uring::Cqe { user_data: token.to_bits() | super::super::RECEIVE, result: 0, flags };
    let mut out = Vec::new();
    rig.driver.in_flight += 1;
    rig.driver.report(&end, &mut out);
    assert!(matches!(&out[..], [Completion { news: News::Last(Outcome { result: 0, lease: None }), .. }]));
    assert_eq!(rig.driver.pool().with_ring(|ring| ring.outstanding()), Some(1));
    assert_eq!(rig.driver.pool().take(), Some(5));
}

/// The reason against POLL_FIRST on a multishot (axboe/liburing issue 1549).
#[test]
fn data_and_the_end_that_arrive_together_are_both_reported() {
    for (bundles, armed_before, reset) in (0..8).map(|bits| (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0)) {
        let mut rig = Rig::with(Settings { features: with_bundles(bundles), ..Settings::default() });
        let (mut near, far) = pair();
        if armed_before {
            rig.submit(&Op::Receive { on: target(&far) });
            rig.turn(Until::Now);
        }
        near.write_all(b"and goodbye").unwrap();
        if reset {
            socket2::SockRef::from(&near).set_linger(Some(Duration::ZERO)).unwrap();
        }
        drop(near);
        if !armed_before {
            rig.submit(&Op::Receive { on: target(&far) });
        }
        let (_, News::Item(outcome)) = rig.next() else { panic!("not an item") };
        assert_eq!(&*outcome.lease.unwrap(), b"and goodbye");
        assert_eq!(rig.last().1, if reset { -libc::ECONNRESET } else { 0 });
    }
}

#[test]
fn a_reset_is_an_error_of_the_receive() {
    let mut rig = Rig::new();
    let (near, far) = pair();
    rig.submit(&Op::Receive { on: target(&far) });
    socket2::SockRef::from(&near).set_linger(Some(Duration::ZERO)).unwrap();
    drop(near);
    assert_eq!(rig.last().1, -libc::ECONNRESET);
}

#[test]
fn a_send_larger_than_every_buffer_completes_once_after_the_last_byte() {
    let mut rig = Rig::new();
    let (near, mut far) = pair();
    let mut sent = pattern(8 << 20);
    let reader = std::thread::spawn(move || {
        let mut received = Vec::new();
        far.read_to_end(&mut received).unwrap();
        received
    });
    rig.submit(&Op::Send { on: target(&near), bytes: span(&mut sent), whole: true });
    assert_eq!(rig.last().1 as usize, sent.len());
    drop(near);
    assert_eq!(reader.join().unwrap(), sent);
}

#[test]
fn a_send_to_a_closed_peer_is_an_error_and_no_signal() {
    let mut rig = Rig::new();
    let (near, far) = pair();
    socket2::SockRef::from(&far).set_linger(Some(Duration::ZERO)).unwrap();
    drop(far);
    let mut bytes = *b"anybody?";
    let results: Vec<_> = (0..2)
        .map(|_| {
            rig.submit(&Op::Send { on: target(&near), bytes: span(&mut bytes), whole: true });
            rig.last().1
        })
        .collect();
    assert_eq!(results, [-libc::ECONNRESET, -libc::EPIPE]);
}

#[test]
fn a_connect_to_a_closed_port_is_refused() {
    let mut rig = Rig::new();
    let address = listener().local_addr().unwrap();
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    rig.submit(&Op::Connect { on: target(&socket), address: &SockAddr::from(address) });
    assert_eq!(rig.last().1, -libc::ECONNREFUSED);
}

#[test]
fn an_attempt_returns_nothing_for_ordinary_operations() {
    let mut rig = Rig::new();
    let (near, _far) = pair();
    let mut bytes = *b"x";
    assert!(
        rig.driver.attempt(&Op::Send { on: target(&near), bytes: span(&mut bytes), whole: true }).is_none()
    );
    assert!(rig.driver.sends_from_pool());
}

#[test]
fn a_wait_without_time_returns_without_news() {
    let mut rig = Rig::new();
    let (_near, far) = pair();
    rig.submit(&Op::Receive { on: target(&far) });
    assert_eq!(rig.turn(Until::Now), 0);
    assert_eq!(rig.turn(Until::For(Duration::from_millis(1))), 0);
    assert_eq!(rig.turn(Until::For(Duration::ZERO)), 0);
}

#[test]
fn the_alarm_ends_a_wait_without_news_every_time() {
    let mut rig = Rig::new();
    let alarm = rig.driver.alarm().unwrap();
    for _ in 0..10 {
        let alarm = std::sync::Arc::clone(&alarm);
        let other = std::thread::spawn(move || ring(&*alarm));
        // This wait returns; only the alarm could end it.
        assert_eq!(rig.turn(Until::News), 0);
        other.join().unwrap();
    }
    // Several rings before a wait end one wait.
    (0..3).for_each(|_| ring(&*alarm));
    assert_eq!(rig.turn(Until::News), 0);
    assert_eq!(rig.turn(Until::Now), 0);
}

pub(super) fn ring(alarm: &impl AsRawFd) {
    let one = 1_u64;
    // SAFETY: eight bytes are read from a live local.
    assert_eq!(unsafe { libc::write(alarm.as_raw_fd(), (&raw const one).cast(), 8) }, 8);
}

/// The goal: one `io_uring_enter` per turn, as in the hand-written model.
#[test]
fn a_request_and_its_answer_are_one_system_call() {
    let mut rig = Rig::new();
    let (mut near, far) = pair();
    rig.submit(&Op::Receive { on: target(&far) });
    let mut answer = *b"answer";
    near.write_all(b"ask").unwrap();
    let mut echoed = [0; 6];
    for _ in 0..10 {
        let before = rig.driver.counters();
        // The answer of the last round is submitted by the wait that receives the next request.
        assert_eq!(rig.turn(Until::News), 1);
        let (_, News::Item(outcome)) = rig.next() else { panic!("not an item") };
        drop(outcome);
        rig.submit(&Op::Send { on: target(&far), bytes: span(&mut answer), whole: true });
        assert_eq!(rig.turn(Until::News), 1);
        assert_eq!(rig.last().1, 6);
        near.read_exact(&mut echoed).unwrap();
        near.write_all(b"ask").unwrap();
        let after = rig.driver.counters();
        assert_eq!(after.system_calls - before.system_calls, 2);
        assert_eq!(after.waits - before.waits, 2);
    }
}

/// The kernel has moved the bytes out of the socket, and no wait has returned them.
#[test]
fn a_result_that_no_wait_has_returned_is_withheld_until_the_next_returns_it() {
    for features in masks() {
        let mut rig = Rig::with(Settings { features, ..Settings::default() });
        let (mut near, far) = pair();
        let (_silent, other) = pair();
        let token = rig.submit(&Op::Receive { on: target(&far) });
        let of_other = rig.submit(&Op::Receive { on: target(&other) });
        assert_eq!(rig.turn(Until::Now), 0);
        assert!(!rig.driver.withholds(token, target(&far)), "{features:?}");
        near.write_all(b"bytes").unwrap();
        rig.driver.enter(Wait { completions: 1, timeout: Some(NEVER), ..Wait::default() }).unwrap();
        let peeked = rig.driver.call(Call::Peek { on: target(&far) }).unwrap_err();
        assert_eq!(peeked.raw_os_error(), Some(libc::EAGAIN), "the socket is empty");
        for _ in 0..2 {
            assert!(rig.driver.withholds(token, target(&far)), "{features:?}");
            assert!(!rig.driver.withholds(of_other, target(&other)), "{features:?}");
        }
        let (told, news) = rig.next();
        let (News::Item(outcome) | News::Last(outcome)) = news else { panic!("{news:?}") };
        assert_eq!((told, &outcome.lease.unwrap()[..]), (token, &b"bytes"[..]), "{features:?}");
        assert!(!rig.driver.withholds(token, target(&far)), "{features:?}");
    }
}
