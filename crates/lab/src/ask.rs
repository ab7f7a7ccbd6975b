//! Sends one or two requests before the load: does the program answer, and does it keep the connection?
//!
//! Many servers close after each answer (HTTP/1.0, `Connection: close`, or without announcing it). Then every
//! request needs a new connection, and a short listen backlog limits the number of concurrent connections
//! ([`room`]). Start at [`ask`].

use crate::client::stream::{Input, parse};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// More of an answer than this is not read: a listing may be long, a stream without end is no answer.
const ANSWER_MAX: usize = 64 << 20;

/// What the program does with its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeping {
    /// It answered twice on one connection.
    Keeps,
    /// It closed after its answer.
    Closes,
}

/// The reason why no load is applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It answered with this status, which is not 2xx.
    Status(u16),
    /// It did not answer, as a clause. The load will show whether that is always so.
    Silent(String),
}

/// Asks for `path`, twice on one connection if that stays open.
pub(crate) fn ask(addr: SocketAddr, host: &str, path: &str, patience: Duration) -> Result<Keeping, Refusal> {
    let until = Instant::now() + patience;
    let silent = |error: std::io::Error| Refusal::Silent(error.to_string());
    let mut stream = ringroad_host::connect::connect(addr, patience).map_err(silent)?;
    stream.set_nodelay(true).map_err(silent)?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: ringroad-lab\r\n\r\n");
    let mut carry = Vec::new();
    for nth in 0..2 {
        let sent = stream.write_all(request.as_bytes());
        let answer = sent.and_then(|()| answer(&mut stream, &mut carry, until));
        match answer {
            Ok(Some((status, _))) if !(200..300).contains(&status) => return Err(Refusal::Status(status)),
            Ok(Some((_, true))) => return Ok(Keeping::Closes),
            Ok(Some((_, false))) => {}
            // What was answered once and then closed is a close after each answer, announced or not.
            Ok(None) if nth > 0 => return Ok(Keeping::Closes),
            Err(error) if nth > 0 && is_end(&error) => return Ok(Keeping::Closes),
            Ok(None) => return Err(Refusal::Silent("it closed the connection without an answer".to_owned())),
            Err(error) => return Err(silent(error)),
        }
    }
    Ok(Keeping::Keeps)
}

/// Returns how many connections a program takes that are made at once: `wanted`, or half of what came through
/// where some did not. A connection that finds the backlog full is tried again by this side's kernel only
/// after a second.
pub(crate) fn room(addr: SocketAddr, wanted: u32) -> u32 {
    /// Below the second after which a lost connection is tried again.
    const PATIENCE: Duration = Duration::from_millis(500);
    const TRIES: usize = 3;
    let mut least = wanted;
    for _ in 0..TRIES {
        let until = Instant::now() + PATIENCE;
        let mut waiting: Vec<OwnedFd> = (0..wanted).filter_map(|_| begin(addr)).collect();
        let asked = waiting.len();
        let mut made = Vec::with_capacity(asked);
        while !waiting.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let mut fds: Vec<PollFd<'_>> = waiting.iter().map(|fd| PollFd::new(fd, PollFlags::OUT)).collect();
            let timeout = Timespec { tv_sec: 0, tv_nsec: left.subsec_nanos().into() };
            let _ = poll(&mut fds, Some(&timeout));
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            let (done, rest): (Vec<_>, Vec<_>) =
                waiting.into_iter().zip(ready).partition(|(_, ready)| *ready);
            waiting = rest.into_iter().map(|(fd, _)| fd).collect();
            made.extend(
                done.into_iter()
                    .map(|(fd, _)| fd)
                    .filter(|fd| matches!(sockopt::socket_error(fd), Ok(Ok(())))),
            );
        }
        least = least.min(u32::try_from(made.len()).unwrap_or(wanted));
    }
    if least >= wanted { wanted } else { (least / 2).max(1) }
}

/// Returns a connection that is being made.
fn begin(addr: SocketAddr) -> Option<OwnedFd> {
    let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, None).ok()?;
    match connect(&socket, &addr) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Some(socket),
        Err(_) => None,
    }
}

fn is_end(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted)
}

/// Reads one answer: its status, and whether the server closes behind it. `None`: it closed without one.
fn answer(
    stream: &mut TcpStream,
    carry: &mut Vec<u8>,
    until: Instant,
) -> std::io::Result<Option<(u16, bool)>> {
    let mut piece = [0; 16 * 1024];
    carry.clear();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || carry.len() > ANSWER_MAX {
            return Err(std::io::Error::new(ErrorKind::TimedOut, "its answer has no end"));
        }
        stream.set_read_timeout(Some(left))?;
        let bytes = match stream.read(&mut piece) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(ringroad_host::connect::in_time(error)),
        };
        carry.extend_from_slice(piece.get(..bytes).unwrap_or_default());
        let input = if bytes == 0 { Input::Closed } else { Input::Open };
        let wrong = |how| std::io::Error::new(ErrorKind::InvalidData, how);
        match parse(carry, input).map_err(wrong)? {
            Some(answer) => return Ok(Some((answer.status, answer.closes))),
            None if bytes == 0 => return Ok(None),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::net::TcpListener;

    /// Answers so many requests on each connection with these bytes, and closes then.
    fn server(answer: &'static str, requests: usize) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut piece = [0; 4096];
                for _ in 0..requests {
                    // The client writes each request at once, and one at a time.
                    if stream.read(&mut piece).unwrap_or(0) == 0 {
                        break;
                    }
                    stream.write_all(answer.as_bytes()).unwrap();
                }
            }
        });
        addr
    }

    fn asked(answer: &'static str, requests: usize) -> Result<Keeping, Refusal> {
        ask(server(answer, requests), "localhost", "/", Duration::from_secs(60))
    }

    #[test]
    fn a_program_that_closes_after_its_answer_is_known_however_it_does_it() {
        const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        assert_eq!(asked(OK, 9), Ok(Keeping::Keeps));
        assert_eq!(asked(OK, 1), Ok(Keeping::Closes), "without a word");
        for closing in [
            "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
            "HTTP/1.0 200 OK\r\n\r\nno length: it ends with the connection",
        ] {
            assert_eq!(asked(closing, 1), Ok(Keeping::Closes), "{closing}");
        }
        let kept = "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok";
        assert_eq!(asked(kept, 9), Ok(Keeping::Keeps));
    }

    #[test]
    fn a_short_backlog_leaves_room_for_few_connections_and_a_long_one_for_all() {
        // Three times 16 fit into it; a thread that gets no CPU for half a second may see fewer.
        let takes_all = || {
            let long = TcpListener::bind("127.0.0.1:0").unwrap();
            room(long.local_addr().unwrap(), 16) == 16
        };
        assert!((0..20).any(|_| takes_all()));
        let short = TcpListener::bind("127.0.0.1:0").unwrap();
        rustix::net::listen(&short, 1).unwrap();
        let few = room(short.local_addr().unwrap(), 16);
        assert!((1..8).contains(&few), "{few}");
    }

    #[test]
    fn an_answer_that_is_no_success_and_no_answer_at_all_are_refusals() {
        assert_eq!(
            asked("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", 9),
            Err(Refusal::Status(404))
        );
        assert!(matches!(asked("", 0), Err(Refusal::Silent(_))));
        assert!(matches!(asked("SSH-2.0-hello\r\n\r\n", 1), Err(Refusal::Silent(_))));
        // The port of a connection: no other process can get it meanwhile, and nothing listens there.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let holder = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let unused = holder.local_addr().unwrap();
        assert!(matches!(ask(unused, "localhost", "/", Duration::from_secs(60)), Err(Refusal::Silent(_))));
    }
}
