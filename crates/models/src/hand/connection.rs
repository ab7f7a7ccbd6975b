//! One connection of a readiness loop: its state, and its turn.
//!
//! A loop tells a connection what the kernel reported ([`Connection::report`]) and gives it a turn
//! ([`Connection::turn`]); the answer says what to wait for next ([`Want`]). All four loops use the same
//! turn. The rules of it:
//!
//! - Send first, wait for writability only after a short send. What the kernel did not take is kept.
//! - While something is kept, nothing is read: a peer that does not read its answers is not served further,
//!   and the memory it can occupy is bounded by the answers to one receive.
//! - A receive that does not fill the buffer has emptied the socket, so no second one is attempted just to
//!   get EAGAIN (`epoll(7)`, questions and answers). The exception is a hang-up, which is not followed by
//!   another event: then reading goes on to the end.
//! - At most [`READS_PER_TURN`] receives, then the next connection has its turn.

use super::socket;
use super::{Counters, Worker};
use crate::protocol::{End, LINGER_BYTES_MAX, Protocol, Session};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

/// Receives per turn of one connection.
const READS_PER_TURN: u32 = 16;

/// An accepted socket and its conversation. Idle, it owns no heap memory.
#[derive(Debug)]
pub(super) struct Connection {
    socket: OwnedFd,
    session: Session,
    /// Answers the kernel has not taken yet.
    kept: Option<Box<Kept>>,
    /// A word for the loop's own use: a place in its array, the interest it armed. 0 at first.
    pub(super) mark: u32,
    linger_left: u32,
    after: After,
    /// The socket may hold bytes: an event said so and no receive has shown it empty since.
    readable: bool,
    /// The last event said the socket may take bytes.
    writable: bool,
    /// The peer has ended its side, or the connection broke: no event will follow the last bytes.
    hung_up: bool,
    /// The answers in `kept` wait for their time.
    delayed: bool,
}

// The promise "idle costs little", kept by the compiler: with its generation a slot is 96 bytes or less.
const _: () = assert!(size_of::<Connection>() <= 88);

/// What the kernel reported.
#[derive(Clone, Copy, Debug)]
pub(super) struct Readiness {
    pub(super) readable: bool,
    pub(super) writable: bool,
    /// An edge-triggered hang-up, which is told once. Level-triggered loops are told again and leave it
    /// false.
    pub(super) hung_up: bool,
}

/// What a connection waits for after its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// Bytes, or the end, from the peer.
    Read,
    /// Room for what is kept.
    Write,
    /// Its answer's time: [`Connection::resume`] it then.
    Delay,
    /// Another turn: there is more to read, but others come first. Level-triggered loops are told so anyway.
    Turn,
    /// Nothing: close it.
    Close,
}

/// What happens when everything kept is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    Read,
    Close,
    ShutDown,
    /// Shut down already; discarding.
    Discard,
}

#[derive(Debug)]
struct Kept {
    bytes: Vec<u8>,
    sent: usize,
}

impl Connection {
    /// Makes a connection that was just accepted; `socket` is non-blocking.
    pub(super) fn new(socket: OwnedFd, protocol: Protocol) -> Self {
        Connection {
            socket,
            session: Session::new(protocol),
            kept: None,
            mark: 0,
            linger_left: LINGER_BYTES_MAX,
            after: After::Read,
            readable: false,
            writable: false,
            hung_up: false,
            delayed: false,
        }
    }

    /// Returns the descriptor's number, for wait sets.
    pub(super) fn number(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Closes it, with whatever was kept.
    pub(super) fn close(self, counters: &mut Counters) {
        socket::close(self.socket, counters);
    }

    /// Returns whether an answer of this connection waits for its time.
    pub(super) fn is_delayed(&self) -> bool {
        self.delayed
    }

    /// Notes what the kernel reported. Edges are remembered until used.
    #[inline]
    pub(super) fn report(&mut self, readiness: Readiness) {
        self.readable |= readiness.readable;
        self.writable = readiness.writable;
        self.hung_up |= readiness.hung_up;
    }

    /// The delayed answer's time has come: the next turn sends it.
    pub(super) fn resume(&mut self) {
        self.delayed = false;
        self.writable = true;
    }

    /// Moves as far as it can without waiting.
    #[inline]
    pub(super) fn turn(&mut self, worker: &mut Worker) -> Want {
        if self.delayed {
            return Want::Delay;
        }
        if self.kept.is_some() {
            // Sending without being told there is room would be a system call to learn EAGAIN.
            if !self.writable {
                return Want::Write;
            }
            match self.flush(&mut worker.counters) {
                Ok(true) => {}
                Ok(false) => return Want::Write,
                Err(_) => return Want::Close,
            }
        }
        self.read(worker)
    }

    /// Receives and answers until the socket is empty, an answer must wait, or the turn is over.
    fn read(&mut self, worker: &mut Worker) -> Want {
        let mut reads = 0;
        loop {
            if self.after == After::Close {
                return Want::Close;
            }
            if !self.readable {
                return Want::Read;
            }
            if reads == READS_PER_TURN {
                return Want::Turn;
            }
            reads += 1;
            let Worker { buffer, counters, .. } = worker;
            let bytes = match socket::recv(&self.socket, buffer, counters) {
                Ok(0) => return Want::Close,
                Ok(bytes) => bytes,
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => {
                    self.readable = false;
                    return Want::Read;
                }
                Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return Want::Close,
            };
            if bytes < buffer.len() && !self.hung_up {
                self.readable = false;
            }
            if self.after == After::Discard {
                match self.linger_left.checked_sub(u32::try_from(bytes).unwrap_or(u32::MAX)) {
                    Some(left) => self.linger_left = left,
                    None => return Want::Close,
                }
                continue;
            }
            match self.answer(bytes, worker) {
                Ok(None) => {}
                Ok(Some(want)) => return want,
                Err(_) => return Want::Close,
            }
        }
    }

    /// Answers the first `bytes` of the buffer. `Ok(Some)`: reading must pause for this.
    #[inline]
    fn answer(&mut self, bytes: usize, worker: &mut Worker) -> io::Result<Option<Want>> {
        let Worker { buffer, counters, work, delayed } = worker;
        let mut input = buffer.get(..bytes).unwrap_or_default();
        while let Some(reply) = self.session.next(&mut input) {
            work.perform(reply.portions);
            counters.requests += u64::from(reply.requests);
            match reply.end {
                End::Open => {}
                End::Close => self.after = After::Close,
                End::Linger => self.after = After::ShutDown,
            }
            if let Some(kept) = &mut self.kept {
                kept.bytes.extend_from_slice(reply.bytes);
                continue;
            }
            let sent = if *delayed { 0 } else { send_some(&self.socket, reply.bytes, counters)? };
            if let Some(rest) = reply.bytes.get(sent..).filter(|rest| !rest.is_empty()) {
                self.kept = Some(Box::new(Kept { bytes: rest.to_vec(), sent: 0 }));
            }
        }
        if self.kept.is_some() {
            self.writable = false;
            self.delayed = *delayed;
            return Ok(Some(if self.delayed { Want::Delay } else { Want::Write }));
        }
        self.sent_all(counters);
        Ok(None)
    }

    /// Sends what is kept. `true`: all of it is gone.
    fn flush(&mut self, counters: &mut Counters) -> io::Result<bool> {
        if let Some(kept) = &mut self.kept {
            let rest = kept.bytes.get(kept.sent..).unwrap_or_default();
            kept.sent += send_some(&self.socket, rest, counters)?;
            if kept.sent < kept.bytes.len() {
                self.writable = false;
                return Ok(false);
            }
            self.kept = None;
            self.sent_all(counters);
        }
        Ok(true)
    }

    /// The last answer is with the kernel: begins the linger if it was a closing one.
    #[inline]
    fn sent_all(&mut self, counters: &mut Counters) {
        if self.after == After::ShutDown {
            socket::shutdown(self.socket.as_fd(), libc::SHUT_WR, counters);
            self.after = After::Discard;
        }
    }
}

/// Sends until the kernel has all of it or refuses for now; tells how many bytes it took. A short send is a
/// refusal: the buffer is full, and the kernel has noted that we wait for room (`epoll(7)`).
#[inline]
fn send_some(socket: &OwnedFd, bytes: &[u8], counters: &mut Counters) -> io::Result<usize> {
    loop {
        match socket::send(socket, bytes, counters) {
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            answer => return answer,
        }
    }
}
