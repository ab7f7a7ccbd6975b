//! The operations servers are made of, on loopback.
use crate::take;
use ringroad_uring::abi::setup::*;
use ringroad_uring::{Ring, Sqe, Wait};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd};

fn deferred(entries: u32) -> Ring {
    Ring::builder(entries).flags(IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN).build().unwrap()
}

#[test]
fn accept_receive_send_and_close_serve_a_client() {
    let mut ring = deferred(8);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // SAFETY: names no memory.
    unsafe { ring.submissions().push(Sqe::accept(listener.as_raw_fd(), libc::SOCK_CLOEXEC)) }.unwrap();
    ring.submit().unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let connection = take(&mut ring, 1)[0].result().unwrap() as i32;

    client.write_all(b"ping").unwrap();
    let mut buffer = [0_u8; 16];
    // SAFETY: `buffer` outlives the completion, taken in the next line; likewise below.
    unsafe { ring.submissions().push(Sqe::recv(connection, buffer.as_mut_ptr(), 16, 0)) }.unwrap();
    assert_eq!(take(&mut ring, 1)[0].result, 4);
    // SAFETY: as above.
    unsafe { ring.submissions().push(Sqe::send(connection, buffer.as_ptr(), 4, libc::MSG_NOSIGNAL)) }
        .unwrap();
    assert_eq!(take(&mut ring, 1)[0].result, 4);
    // SAFETY: names no memory.
    unsafe { ring.submissions().push(Sqe::close(connection)) }.unwrap();
    assert_eq!(take(&mut ring, 1)[0].result, 0);
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"ping");
}

#[test]
fn one_multishot_accept_takes_many_connections() {
    let mut ring = deferred(32);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // SAFETY: names no memory.
    unsafe { ring.submissions().push(Sqe::accept_multishot(listener.as_raw_fd(), 0).user_data(5)) }.unwrap();
    ring.submit().unwrap();
    let clients: Vec<_> =
        (0..20).map(|_| TcpStream::connect(listener.local_addr().unwrap()).unwrap()).collect();
    for completion in take(&mut ring, 20) {
        assert!(completion.more() && completion.user_data == 5);
        // SAFETY: the kernel has just given us this descriptor.
        drop(unsafe { TcpStream::from_raw_fd(completion.result().unwrap() as i32) });
    }
    drop(clients);
}

/// A multishot request that finds the completion queue full posts its last completion and ends: its caller
/// must look at `more` in each completion.
#[test]
fn a_multishot_accept_ends_when_the_completion_queue_is_full_and_loses_no_connection() {
    let mut ring = deferred(4);
    let room = ring.completions().entries() as usize;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let arm = |ring: &mut Ring| {
        // SAFETY: names no memory.
        unsafe { ring.submissions().push(Sqe::accept_multishot(listener.as_raw_fd(), 0)) }.unwrap();
        ring.submit().unwrap();
    };
    arm(&mut ring);
    let many = room + 4;
    let _clients: Vec<_> =
        (0..many).map(|_| TcpStream::connect(listener.local_addr().unwrap()).unwrap()).collect();
    let (mut accepted, mut endings) = (0, 0);
    while accepted < many {
        let completion = take(&mut ring, 1)[0];
        // SAFETY: the kernel has just given us this descriptor.
        drop(unsafe { TcpStream::from_raw_fd(completion.result().unwrap() as i32) });
        accepted += 1;
        if !completion.more() {
            endings += 1;
            arm(&mut ring);
        }
    }
    assert!(endings >= 1);
}

#[test]
fn a_cancelled_receive_completes_with_ecanceled_and_the_cancel_with_zero() {
    let mut ring = deferred(8);
    let (reader, _writer) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut buffer = [0_u8; 8];
    // SAFETY: `buffer` outlives the receive's completion, taken below.
    unsafe {
        ring.submissions()
            .push(Sqe::recv(reader.as_raw_fd(), buffer.as_mut_ptr(), 8, 0).user_data(1))
            .unwrap();
        ring.submissions().push(Sqe::cancel(1).user_data(2)).unwrap();
    }
    let mut results: Vec<_> = take(&mut ring, 2).iter().map(|c| (c.user_data, c.result)).collect();
    results.sort();
    assert_eq!(results, [(1, -libc::ECANCELED), (2, 0)]);
}

#[test]
fn cancelling_what_has_completed_finds_nothing_and_harms_nothing() {
    let mut ring = deferred(8);
    // SAFETY: names no memory.
    unsafe { ring.submissions().push(Sqe::nop().user_data(1)) }.unwrap();
    assert_eq!(take(&mut ring, 1)[0].result, 0);
    // SAFETY: names no memory.
    unsafe { ring.submissions().push(Sqe::cancel(1).user_data(2)) }.unwrap();
    assert_eq!(take(&mut ring, 1)[0].result, -libc::ENOENT);
}

#[test]
fn cancel_by_descriptor_and_cancel_any_count_what_they_find() {
    let mut ring = deferred(8);
    let (a, _a) = std::os::unix::net::UnixStream::pair().unwrap();
    let (b, _b) = std::os::unix::net::UnixStream::pair().unwrap();
    for fd in [a.as_raw_fd(), a.as_raw_fd(), b.as_raw_fd()] {
        // SAFETY: a poll names no memory.
        unsafe { ring.submissions().push(Sqe::poll_add(fd, libc::POLLIN as u32).user_data(1)) }.unwrap();
    }
    // SAFETY: names no memory.
    unsafe { ring.submissions().push(Sqe::cancel_fd(a.as_raw_fd()).user_data(2)) }.unwrap();
    let by_fd = take(&mut ring, 3);
    assert_eq!(by_fd.iter().find(|c| c.user_data == 2).unwrap().result, 2);
    // SAFETY: names no memory.
    unsafe { ring.submissions().push(Sqe::cancel_any().user_data(3)) }.unwrap();
    let any = take(&mut ring, 2);
    assert_eq!(any.iter().find(|c| c.user_data == 3).unwrap().result, 1);
    assert_eq!(any.iter().find(|c| c.user_data == 1).unwrap().result, -libc::ECANCELED);
}

#[test]
fn a_multishot_poll_reports_each_arrival_until_cancelled() {
    let mut ring = deferred(8);
    let (reader, mut writer) = std::os::unix::net::UnixStream::pair().unwrap();
    // SAFETY: a poll names no memory.
    unsafe {
        ring.submissions().push(Sqe::poll_multishot(reader.as_raw_fd(), libc::POLLIN as u32).user_data(4))
    }
    .unwrap();
    ring.submit().unwrap();
    for _ in 0..3 {
        writer.write_all(b"x").unwrap();
        let completion = take(&mut ring, 1)[0];
        assert!(completion.more() && completion.result & i32::from(libc::POLLIN) != 0);
    }
}

#[test]
fn a_connect_to_a_closed_port_is_refused() {
    let mut ring = deferred(8);
    let address = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    // SAFETY: a new socket with constant arguments.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    let target = libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes([127, 0, 0, 1]) },
        sin_zero: [0; 8],
    };
    // SAFETY: `target` outlives the completion, taken in the next line.
    unsafe { ring.submissions().push(Sqe::connect(socket, (&raw const target).cast(), 16)) }.unwrap();
    assert_eq!(take(&mut ring, 1)[0].result, -libc::ECONNREFUSED);
    // SAFETY: our own descriptor, closed once.
    unsafe { libc::close(socket) };
}

#[test]
fn a_received_message_has_its_length_and_its_sender() {
    let mut ring = deferred(8);
    let reader = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let writer = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    writer.send_to(b"ten bytes.", reader.local_addr().unwrap()).unwrap();
    let mut bytes = [0u8; 4];
    let mut vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: integers and pointers, for which zero is valid.
    let (mut name, mut message): (libc::sockaddr_in, libc::msghdr) = unsafe { std::mem::zeroed() };
    (message.msg_name, message.msg_namelen) = ((&raw mut name).cast(), size_of::<libc::sockaddr_in>() as u32);
    (message.msg_iov, message.msg_iovlen) = (&raw mut vector, 1);
    // SAFETY: message, name, vector and bytes outlive the completion, taken in the next line.
    unsafe { ring.submissions().push(Sqe::recvmsg(reader.as_raw_fd(), &raw mut message, libc::MSG_TRUNC)) }
        .unwrap();
    assert_eq!(take(&mut ring, 1)[0].result, 10);
    assert_eq!(&bytes, b"ten ");
    assert_eq!(u16::from_be(name.sin_port), writer.local_addr().unwrap().port());
    assert_ne!(message.msg_flags & libc::MSG_TRUNC, 0);
}

#[test]
fn a_message_of_several_pieces_is_sent_as_one() {
    let mut ring = deferred(8);
    let (mut reader, writer) = std::os::unix::net::UnixStream::pair().unwrap();
    let pieces = [&b"one, "[..], b"two, ", b"three"];
    let mut vectors =
        pieces.map(|piece| libc::iovec { iov_base: piece.as_ptr().cast_mut().cast(), iov_len: piece.len() });
    // SAFETY: integers and pointers, for which zero is valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = vectors.as_mut_ptr();
    message.msg_iovlen = vectors.len();
    // SAFETY: message, vectors and pieces outlive the completion, taken in the next line.
    unsafe { ring.submissions().push(Sqe::sendmsg(writer.as_raw_fd(), &message, libc::MSG_NOSIGNAL)) }
        .unwrap();
    assert_eq!(take(&mut ring, 1)[0].result, 15);
    drop(writer);
    let mut received = String::new();
    reader.read_to_string(&mut received).unwrap();
    assert_eq!(received, "one, two, three");
}

/// The engine relies on this. Its sockets are O_NONBLOCK, because the mode belongs to the open file
/// description and so to all processes that share it; the kernel waits nevertheless. (This is not documented;
/// if the kernel returned EAGAIN instead, the engine would have to handle it.)
#[test]
fn operations_on_a_nonblocking_socket_wait_all_the_same() {
    let mut ring = Ring::builder(16).build().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    for multishot in [false, true] {
        let entry = match multishot {
            true => Sqe::accept_multishot(listener.as_raw_fd(), libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK),
            false => Sqe::accept(listener.as_raw_fd(), libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK),
        };
        // SAFETY: names no memory.
        unsafe { ring.submissions().push(entry.user_data(1)) }.unwrap();
        ring.submit_and_wait(Wait::default()).unwrap();
        assert_eq!(ring.completions().pop(), None, "nobody came yet (multishot: {multishot})");
        for client in 0..3 {
            if client > 0 && !multishot {
                break;
            }
            let client = TcpStream::connect(address).unwrap();
            let accepted = take(&mut ring, 1)[0];
            assert!(accepted.result >= 0 && accepted.more() == multishot, "{accepted:?}");
            ring.submit_and_wait(Wait::default()).unwrap();
            assert_eq!(ring.completions().pop(), None, "it goes on waiting (multishot: {multishot})");
            // SAFETY: the kernel has just made it for us.
            let server = unsafe { TcpStream::from_raw_fd(accepted.result) };
            let mut memory = [0_u8; 8];
            let receive = Sqe::recv(server.as_raw_fd(), memory.as_mut_ptr(), 8, 0);
            // SAFETY: the memory lives until the completion, taken below.
            unsafe { ring.submissions().push(receive.user_data(2)) }.unwrap();
            ring.submit_and_wait(Wait::default()).unwrap();
            assert_eq!(ring.completions().pop(), None, "nothing was sent yet");
            (&client).write_all(b"late").unwrap();
            assert_eq!(take(&mut ring, 1)[0].result, 4);
            // As much as goes, and then one that has to wait for room.
            let bytes = vec![7_u8; 1 << 16];
            while (&server).write(&bytes).is_ok() {}
            let send = Sqe::send(server.as_raw_fd(), bytes.as_ptr(), bytes.len() as u32, 0);
            // SAFETY: the bytes live until the completion, taken below.
            unsafe { ring.submissions().push(send.user_data(3)) }.unwrap();
            ring.submit_and_wait(Wait::default()).unwrap();
            assert_eq!(ring.completions().pop(), None, "there is no room yet");
            let reader = std::thread::spawn(move || std::io::copy(&mut { client }, &mut std::io::sink()));
            assert!(take(&mut ring, 1)[0].result > 0);
            drop(server);
            reader.join().unwrap().unwrap();
        }
    }
    // SAFETY: names no memory.
    unsafe { ring.submissions().push(Sqe::cancel(1).user_data(4)) }.unwrap();
    let ended = take(&mut ring, 2);
    assert!(ended.iter().any(|ended| ended.user_data == 1 && ended.result == -libc::ECANCELED), "{ended:?}");
}
