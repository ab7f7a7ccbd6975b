//! Ownership of the bytes until the kernel has read them for the last time, and when sends are ordinary.

use super::super::ZERO_COPY;
use super::super::zero_copy::{BYTES_MIN, ZeroCopy as Sends};
use super::*;
use crate::buf::Buf;
use crate::counters::Counters;
use ringroad_uring::Probe;
use ringroad_uring::abi::io_uring_op;
use socket2::{Domain, SockRef, Socket, Type};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::thread;

const BYTES: usize = BYTES_MIN;

/// Returns a driver on a kernel with zero-copy sends and their report; else prints why it skips.
fn rig(zero_copy: ZeroCopy) -> Option<Rig> {
    let features = Features { zero_copy, ..Features::default() };
    let mut rig = Rig::with(Settings { features, ..Settings::default() });
    if !Probe::of(&rig.driver.kernel.ring).unwrap().supports(io_uring_op::IORING_OP_SEND_ZC as u8) {
        assert_eq!(rig.driver.abilities.zero_copy, ZeroCopy::Off);
        eprintln!("skipped: no IORING_OP_SEND_ZC (6.0)");
        return None;
    }
    let (near, mut far) = pair();
    let owner = shared();
    let on = Target { index: 99, ..target(&near) };
    let op = Op::SendLasting { on, bytes: owner.span_after(0), whole: true, owner: owner.lasting().unwrap() };
    rig.submit(&op);
    if let (_, News::Ready) = rig.next() {
        assert!(!rig.driver.sends_without_copy(target(&near), BYTES), "refused once, and for good");
        eprintln!("skipped: no IORING_SEND_ZC_REPORT_USAGE (6.2)");
        return None;
    }
    far.read_exact(&mut [0; BYTES]).unwrap();
    notified(&mut rig);
    rig.driver.counters = Counters::default();
    Some(rig)
}

fn shared() -> Buf {
    Buf::Shared(pattern(BYTES).into())
}

/// Returns the number of owners of these bytes.
fn owners(buf: &Buf) -> usize {
    let Buf::Shared(bytes) = buf else { panic!("{buf:?}") };
    Rc::strong_count(bytes)
}

fn lasting<'a>(socket: &impl AsRawFd, owner: &'a Buf) -> Op<'a> {
    Op::SendLasting {
        on: target(socket),
        bytes: owner.span_after(0),
        whole: true,
        owner: owner.lasting().unwrap(),
    }
}

/// Runs turns until every zero-copy send has its notification.
fn notified(rig: &mut Rig) {
    let began = std::time::Instant::now();
    while rig.driver.lent() > 0 {
        assert!(began.elapsed() < NEVER, "not told: {:?}", rig.driver.counters());
        rig.turn(Until::For(NEVER));
    }
}

/// Returns a connection with a large send buffer and a small receive buffer, so that most sent bytes wait in
/// the sender's kernel.
fn slow_pair() -> (TcpStream, TcpStream) {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    listener.set_recv_buffer_size(8 * 1024).unwrap();
    listener.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    listener.listen(1).unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap().as_socket().unwrap()).unwrap();
    SockRef::from(&near).set_send_buffer_size(4 * BYTES).unwrap();
    (near, listener.accept().unwrap().0.into())
}

fn read(far: &mut TcpStream, bytes: usize) -> Vec<u8> {
    let mut got = vec![0; bytes];
    far.read_exact(&mut got).unwrap();
    got
}

#[test]
fn after_the_kernel_reports_a_copy_the_sends_of_a_connection_are_ordinary() {
    let Some(mut rig) = rig(ZeroCopy::UntilCopied) else { return };
    let bytes = shared();
    for connection in 1..=2 {
        let (near, mut far) = pair();
        // Another connection at the same index of the table.
        let on = Target { generation: connection, ..target(&near) };
        assert!(rig.driver.sends_without_copy(on, BYTES) && !rig.driver.sends_without_copy(on, BYTES - 1));
        for _ in 0..3 {
            let op = Op::SendLasting {
                on,
                bytes: bytes.span_after(0),
                whole: true,
                owner: bytes.lasting().unwrap(),
            };
            let token = rig.submit(&op);
            assert_eq!(rig.last(), (token, BYTES as i32));
            assert!(read(&mut far, BYTES) == bytes.bytes());
            notified(&mut rig);
            let counters = rig.driver.counters();
            let counts = (counters.zero_copy_sends, counters.zero_copy_copied);
            assert_eq!(counts, (u64::from(connection), u64::from(connection)));
            assert!(!rig.driver.sends_without_copy(on, BYTES));
        }
        assert_eq!(owners(&bytes), 1);
    }
}

#[test]
fn with_always_every_large_send_is_zero_copy() {
    let Some(mut rig) = rig(ZeroCopy::Always) else { return };
    let (near, mut far) = pair();
    for _ in 0..3 {
        let bytes = shared();
        rig.submit(&lasting(&near, &bytes));
        assert_eq!(rig.last().1, BYTES as i32);
        assert!(read(&mut far, BYTES) == bytes.bytes());
    }
    notified(&mut rig);
    let counters = rig.driver.counters();
    assert_eq!((counters.zero_copy_sends, counters.zero_copy_copied), (3, 3));
}

#[test]
fn bytes_are_owned_until_the_peer_has_them() {
    let Some(mut rig) = rig(ZeroCopy::UntilCopied) else { return };
    let (near, mut far) = slow_pair();
    let bytes: Rc<[u8]> = pattern(BYTES).into();
    let theirs = Buf::Shared(Rc::clone(&bytes));
    rig.submit(&lasting(&near, &theirs));
    // The result arrives although the peer has not read.
    assert_eq!(rig.last().1, BYTES as i32);
    drop(theirs);
    for _ in 0..20 {
        rig.turn(Until::Now);
        assert_eq!((Rc::strong_count(&bytes), rig.driver.lent()), (2, 1));
    }
    assert!(read(&mut far, BYTES) == *bytes);
    notified(&mut rig);
    assert_eq!(Rc::strong_count(&bytes), 1);
}

/// Bytes that a connection never sent, because it was reset, were never copied.
#[test]
fn the_kernel_reports_sends_that_it_did_not_copy() {
    let Some(mut rig) = rig(ZeroCopy::UntilCopied) else { return };
    let (mut near, _far) = slow_pair();
    // These bytes fill the peer's window.
    near.write_all(&pattern(BYTES)).unwrap();
    let bytes = shared();
    rig.submit(&lasting(&near, &bytes));
    assert_eq!(rig.last().1, BYTES as i32);
    assert_eq!(owners(&bytes), 2);
    SockRef::from(&near).set_linger(Some(Duration::ZERO)).unwrap();
    drop(near);
    notified(&mut rig);
    let counters = rig.driver.counters();
    assert_eq!((counters.zero_copy_sends, counters.zero_copy_copied), (1, 0));
    assert_eq!(owners(&bytes), 1);
}

#[test]
fn a_cancelled_send_returns_its_bytes() {
    let Some(mut rig) = rig(ZeroCopy::UntilCopied) else { return };
    for submitted_before in [false, true] {
        let (near, mut far) = slow_pair();
        let bytes = Buf::Shared(pattern(64 * BYTES).into());
        let token = rig.submit(&lasting(&near, &bytes));
        if submitted_before {
            rig.turn(Until::Now);
        }
        assert_eq!(rig.cancel(token, Kind::Send), Cancelled::Asked);
        let (ended, result) = rig.last();
        assert_eq!(ended, token);
        assert!(result == -libc::ECANCELED || (1..64 * BYTES as i32).contains(&result), "{result}");
        drop(near);
        let mut got = Vec::new();
        far.read_to_end(&mut got).unwrap();
        assert!(bytes.bytes().starts_with(&got) && got.len() == result.max(0) as usize);
        notified(&mut rig);
        assert_eq!(owners(&bytes), 1);
    }
    assert!(rig.driver.cancels.is_empty());
}

#[test]
fn a_send_cancelled_before_submission_keeps_no_owner() {
    let Some(mut rig) = rig(ZeroCopy::UntilCopied) else { return };
    let (near, _far) = pair();
    let bytes = shared();
    rig.driver.room = 0;
    let token = rig.submit(&lasting(&near, &bytes));
    assert_eq!((owners(&bytes), rig.driver.line.len()), (2, 1));
    assert_eq!(rig.cancel(token, Kind::Send), Cancelled::Gone);
    assert_eq!((owners(&bytes), rig.driver.line.len()), (1, 0));
    assert_eq!(rig.turn(Until::Now), 0);
}

#[test]
fn a_socket_without_zero_copy_support_gets_ordinary_sends() {
    let Some(mut rig) = rig(ZeroCopy::Always) else { return };
    let (near, mut far) = UnixStream::pair().unwrap();
    let bytes = shared();
    let token = rig.submit(&lasting(&near, &bytes));
    assert!(matches!(rig.next(), (told, News::Ready) if told == token));
    notified(&mut rig);
    assert_eq!(owners(&bytes), 1);
    assert!(!rig.driver.sends_without_copy(target(&near), BYTES));
    // The slot attempts it again, under the same token.
    rig.driver.submit(token, &lasting(&near, &bytes));
    assert_eq!(rig.last(), (token, BYTES as i32));
    let mut got = vec![0; BYTES];
    far.read_exact(&mut got).unwrap();
    assert!(got == bytes.bytes());
    assert_eq!(rig.driver.counters().zero_copy_sends, 0);
}

/// Otherwise it would be attempted again, and the task that cancelled it would wait for ever.
#[test]
fn a_send_that_is_refused_after_a_cancel_is_cancelled() {
    let Some(mut rig) = rig(ZeroCopy::Always) else { return };
    let (near, _far) = UnixStream::pair().unwrap();
    let bytes = shared();
    let token = rig.submit(&lasting(&near, &bytes));
    assert_eq!(rig.cancel(token, Kind::Send), Cancelled::Asked);
    assert_eq!(rig.last(), (token, -libc::ECANCELED));
    notified(&mut rig);
    assert_eq!(owners(&bytes), 1);
}

/// A short send continues under its token while notifications of its first parts are still to come.
#[test]
fn the_parts_of_a_send_are_kept_until_every_notification() {
    let Some(mut rig) = rig(ZeroCopy::Always) else { return };
    let (near, mut far) = slow_pair();
    let bytes = Buf::Shared(pattern(40 * BYTES).into());
    let reader = thread::spawn(move || {
        let mut got = Vec::new();
        far.read_to_end(&mut got).unwrap();
        got
    });
    let token = Token { index: 7, generation: 7 };
    let (mut done, mut parts) = (0, 0);
    while done < 40 * BYTES {
        let op = Op::SendLasting {
            on: target(&near),
            bytes: bytes.span_after(done),
            whole: false,
            owner: bytes.lasting().unwrap(),
        };
        rig.driver.submit(token, &op);
        let (told, sent) = rig.last();
        assert!(told == token && sent > 0, "{sent}");
        done += sent as usize;
        parts += 1;
    }
    assert!(parts > 1);
    drop(near);
    notified(&mut rig);
    assert!(rig.driver.counters().zero_copy_sends > 1);
    assert_eq!(owners(&bytes), 1);
    assert!(reader.join().unwrap() == bytes.bytes());
}

#[test]
fn a_driver_that_is_dropped_never_frees_what_the_kernel_may_still_read() {
    let Some(mut rig) = rig(ZeroCopy::UntilCopied) else { return };
    let (near, mut far) = slow_pair();
    let bytes: Rc<[u8]> = pattern(BYTES).into();
    let owner = Buf::Shared(Rc::clone(&bytes));
    rig.submit(&lasting(&near, &owner));
    assert_eq!(rig.last().1, BYTES as i32);
    drop(owner);
    let kept = Rc::downgrade(&bytes);
    drop(bytes);
    drop((rig, near));
    let still = kept.upgrade().expect("the peer has not read");
    let mut got = Vec::new();
    far.read_to_end(&mut got).unwrap();
    assert!(got == *still);
}

/// Events of one part of a send, in the kernel and in the driver.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    result: Option<bool>,
    notified: bool,
}

impl Part {
    fn may_be_read(self) -> bool {
        match self.result {
            None | Some(true) => !self.notified,
            Some(false) => false,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Submit,
    /// The result of the last part, and whether it announces a notification.
    Result(bool),
    Notify(usize),
}

/// Every order of submissions, results and notifications of a send in up to three parts: there is an owner
/// while the kernel may read, and none after the last event.
#[test]
fn in_every_order_of_completions_the_bytes_are_owned_as_long_as_they_may_be_read() {
    fn next(parts: &[Part]) -> Vec<Event> {
        let mut events = Vec::new();
        match parts.last() {
            Some(part) if part.result.is_none() => {
                events.push(Event::Result(true));
                // A notification that has arrived was announced.
                events.extend((!part.notified).then_some(Event::Result(false)));
            }
            _ if parts.len() < 3 => events.push(Event::Submit),
            _ => {}
        }
        let open = parts.iter().enumerate().filter(|(_, part)| part.may_be_read());
        events.extend(open.map(|(at, _)| Event::Notify(at)));
        events
    }
    fn play(orders: &mut usize, done: &mut Vec<Event>, parts: &[Part]) {
        const BITS: u64 = ZERO_COPY | 5;
        let on = Target { number: 3, index: 4, generation: 5 };
        let bytes = Buf::Shared([0].into());
        let mut sends = Sends::new(ZeroCopy::Always);
        for event in done.iter() {
            match *event {
                Event::Submit => assert!(sends.keep(BITS, on, BYTES, bytes.lasting().unwrap())),
                Event::Result(more) => sends.has_result(BITS, more),
                Event::Notify(_) => sends.is_notified(BITS, true),
            }
        }
        let may_be_read = parts.iter().any(|part| part.may_be_read());
        let all_told = parts.iter().all(|part| part.result.is_some() && !part.may_be_read());
        if may_be_read {
            assert_eq!(owners(&bytes), 2, "{done:?}");
        } else if all_told {
            assert_eq!((owners(&bytes), sends.lent()), (1, 0), "{done:?}");
        }
        let submitted = matches!(parts.last(), Some(Part { result: None, .. }));
        assert_eq!(sends.is_under_way(BITS), submitted, "{done:?}");
        *orders += 1;
        for event in next(parts) {
            let mut parts = parts.to_vec();
            match event {
                Event::Submit => parts.push(Part::default()),
                Event::Result(more) => parts.last_mut().unwrap().result = Some(more),
                Event::Notify(at) => parts[at].notified = true,
            }
            done.push(event);
            play(orders, done, &parts);
            done.pop();
        }
    }
    let mut orders = 0;
    play(&mut orders, &mut Vec::new(), &[]);
    assert!(orders > 100, "{orders}");
}

/// The same token after 2^32 generations of its slot, while the kernel still reads the bytes of the first
/// send.
#[test]
fn other_bytes_under_the_same_token_are_copied() {
    let mut sends = Sends::new(ZeroCopy::Always);
    let on = Target { number: 3, index: 4, generation: 5 };
    let [first, second] = [0, 1].map(|byte| Buf::Shared([byte].into()));
    assert!(sends.keep(ZERO_COPY, on, BYTES, first.lasting().unwrap()));
    sends.has_result(ZERO_COPY, true);
    assert!(!sends.keep(ZERO_COPY, on, BYTES, second.lasting().unwrap()));
    assert_eq!((owners(&first), owners(&second)), (2, 1));
    assert!(!sends.is_under_way(ZERO_COPY));
    sends.is_notified(ZERO_COPY, false);
    assert_eq!(owners(&first), 1);
}
