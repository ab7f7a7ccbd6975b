//! Clients for the scenarios: plain blocking sockets, with a deadline so that a silent server fails a test
//! instead of hanging it.

use crate::server::{PATIENCE, Server};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;

/// A request, and what every server answers it.
pub(crate) const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n";
pub(crate) const ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 20\r\n\r\n<h1>Hello World</h1>";

pub(crate) fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Sends `bytes` and reads as many back.
pub(crate) fn exchange(stream: &mut TcpStream, bytes: &[u8]) -> Vec<u8> {
    stream.write_all(bytes).unwrap();
    read(stream, bytes.len())
}

/// Sends one request and reads its answer.
pub(crate) fn request(stream: &mut TcpStream) {
    stream.write_all(REQUEST).unwrap();
    assert_text(&read(stream, ANSWER.len()), ANSWER);
}

pub(crate) fn read(stream: &mut TcpStream, bytes: usize) -> Vec<u8> {
    let mut answer = vec![0; bytes];
    stream.read_exact(&mut answer).unwrap();
    answer
}

/// Reads to the end; a reset is an error.
pub(crate) fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    answer
}

/// Whether the server has ended the connection, by an end or by a reset.
pub(crate) fn is_ended(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0]) {
        Ok(bytes) => bytes == 0,
        // The kernel does not go on by itself where a socket has a time limit (signal(7)), and the work of a
        // ring that this thread had interrupts as a signal does.
        Err(why) if why.kind() == ErrorKind::Interrupted => is_ended(stream),
        Err(why) if why.kind() == ErrorKind::ConnectionReset => true,
        Err(why) => panic!("{why}"),
    }
}

/// Closes in the way that sends a reset.
pub(crate) fn reset(stream: TcpStream) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let bytes = size_of_val(&linger) as libc::socklen_t;
    // SAFETY: a live linger struct of the length given, only read, during the call; the descriptor is open.
    let answer = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            bytes,
        )
    };
    assert_eq!(answer, 0);
}

/// Compares as text, so that a failure can be read.
#[track_caller]
pub(crate) fn assert_text(got: &[u8], wanted: &[u8]) {
    assert_eq!(String::from_utf8_lossy(got), String::from_utf8_lossy(wanted));
}

/// Bytes without a short period, so that lost, doubled or swapped pieces show.
pub(crate) fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}
