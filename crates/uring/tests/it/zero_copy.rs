//! Sends from where the bytes lie: two completions, and the memory in between.
use crate::take;
use ringroad_uring::abi::io_uring_op;
use ringroad_uring::abi::setup::*;
use ringroad_uring::{Cqe, Probe, Ring, Sqe};
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

const BYTES: usize = 256 * 1024;

/// A ring on a kernel that has zero-copy sends and reports on them; otherwise prints why not.
fn ring() -> Option<Ring> {
    let flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
    let mut ring = Ring::builder(8).flags(flags).build().unwrap();
    if !Probe::of(&ring).unwrap().supports(io_uring_op::IORING_OP_SENDMSG_ZC as u8) {
        eprintln!("skipped: no IORING_OP_SENDMSG_ZC (6.1)");
        return None;
    }
    // Before 6.2 the flag is refused, before anything of the entry is looked at.
    let (near, _far) = pair();
    let entry = Sqe::send_zc(near.as_raw_fd(), b"!".as_ptr(), 1, 0).report_usage();
    // SAFETY: static memory.
    unsafe { ring.submissions().push(entry) }.unwrap();
    let answer = take(&mut ring, 1)[0];
    if answer.result == -libc::EINVAL {
        eprintln!("skipped: no IORING_SEND_ZC_REPORT_USAGE (6.2)");
        return None;
    }
    assert!(answer.more() && take(&mut ring, 1)[0].is_notification());
    Some(ring)
}

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8).collect()
}

/// The result and the notification of the one entry there is, in whichever order.
fn both(ring: &mut Ring) -> (Cqe, Cqe) {
    let mut both = take(ring, 2);
    both.sort_by_key(Cqe::is_notification);
    (both[0], both[1])
}

#[test]
fn a_zero_copy_send_completes_twice_and_tells_that_loopback_copied() {
    let Some(mut ring) = ring() else { return };
    let (near, mut far) = pair();
    let reader = std::thread::spawn(move || {
        let mut got = vec![0; BYTES];
        far.read_exact(&mut got).unwrap();
        (got, far)
    });
    let bytes = pattern(BYTES);
    let flags = libc::MSG_WAITALL | libc::MSG_NOSIGNAL;
    let entry = Sqe::send_zc(near.as_raw_fd(), bytes.as_ptr(), BYTES as u32, flags).report_usage();
    // SAFETY: the bytes outlive both completions, taken below.
    unsafe { ring.submissions().push(entry.user_data(7)) }.unwrap();
    let (sent, told) = both(&mut ring);
    assert_eq!((sent.user_data, sent.result, sent.more()), (7, BYTES as i32, true));
    assert!(!sent.is_notification() && !sent.was_copied());
    assert_eq!((told.user_data, told.more(), told.was_copied()), (7, false, true));
    assert!(reader.join().unwrap().0 == bytes);
}

#[test]
fn a_zero_copy_message_sends_what_its_vectors_name() {
    let Some(mut ring) = ring() else { return };
    let (near, mut far) = pair();
    let (head, body) = (pattern(100), pattern(40_000));
    let mut vectors = [&head, &body].map(|bytes: &Vec<u8>| libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    });
    // SAFETY: integers and pointers, for which zero is valid and means "none".
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = vectors.as_mut_ptr();
    message.msg_iovlen = vectors.len() as _;
    let entry = Sqe::sendmsg_zc(near.as_raw_fd(), &raw const message, libc::MSG_WAITALL).report_usage();
    // SAFETY: message, vectors and bytes outlive both completions, taken below.
    unsafe { ring.submissions().push(entry) }.unwrap();
    let mut got = vec![0; 40_100];
    let reader = std::thread::spawn(move || {
        far.read_exact(&mut got).unwrap();
        got
    });
    let (sent, told) = both(&mut ring);
    assert_eq!((sent.result, told.was_copied()), (40_100, true));
    assert!(reader.join().unwrap() == [head, body].concat());
}

#[test]
fn one_that_the_socket_cannot_do_is_refused() {
    let Some(mut ring) = ring() else { return };
    let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
    let entry = Sqe::send_zc(near.as_raw_fd(), b"no".as_ptr(), 2, 0).report_usage();
    // SAFETY: static memory.
    unsafe { ring.submissions().push(entry) }.unwrap();
    let answer = take(&mut ring, 1)[0];
    assert_eq!((answer.result, answer.is_notification()), (-libc::EOPNOTSUPP, false));
    if answer.more() {
        assert!(take(&mut ring, 1)[0].is_notification());
    }
}
