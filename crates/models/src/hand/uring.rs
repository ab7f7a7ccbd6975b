//! One thread in io_uring: operations are handed over, and what comes back is their result.
//!
//! Two models share this loop and differ in how they receive. `uring` asks for each receive and owns a buffer
//! per connection for it: a request must name memory before data is there. `uring-multishot` asks once per
//! connection, and the kernel takes a buffer from a common ring when data comes: an idle connection holds
//! none. Either way there is one `io_uring_enter` per turn, which submits everything the turn decided and
//! waits for what comes next.
//!
//! INVARIANT: while a request is in flight, nothing it names is moved, changed or freed. A receive names
//! `Peer::buffer`, a boxed slice. A send names the answer, which lies in a static table, in `Peer::buffer`,
//! in `Peer::own`, or in the ring buffer `Peer::held`; none of these is touched while `sending`. A peer is
//! removed only when neither is in flight, and [`Server::drop`] waits for all of them.
//!
//! What the kernel must offer is Linux 6.1's; on an older one starting says so.

use super::accept::PARKED_FOR;
use super::delay::Delay;
use super::slab::{Slab, Token};
use super::{Counters, Site, Worker, socket};
use crate::protocol::{End, LINGER_BYTES_MAX, Protocol, Session};
use crate::{Error, Result, Stop};
use ringroad_uring::abi::setup::{
    IORING_SETUP_DEFER_TASKRUN, IORING_SETUP_NO_SQARRAY, IORING_SETUP_SINGLE_ISSUER,
};
use ringroad_uring::abi::{IORING_FEAT_NO_IOWAIT, IORING_FEAT_NODROP};
use ringroad_uring::{BufferRing, Cqe, Ring, Sqe, Wait};
use std::collections::VecDeque;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// How a connection's bytes are received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Receive {
    /// One request per receive, into the connection's own buffer.
    Single,
    /// One request per connection, into buffers the kernel takes from a ring.
    Multishot,
}

/// Entries of the submission queue: what one turn may decide before it must submit.
const ENTRIES: u32 = 1024;

/// Entries of the completion queue. More may be in flight: the kernel keeps what does not fit (NODROP).
const COMPLETIONS: u32 = 4096;

/// Memory offered to the kernel in the buffer ring, together.
const RING_BUFFER_BYTES: usize = 512 * 1024;

/// Bytes a connection may send ahead while its answer is going out; beyond, its multishot receive is
/// cancelled until they are answered. Without a limit one greedy peer takes every buffer of the ring.
const BACKLOG_BYTES_MAX: usize = 16 * 1024;

/// How long stopping waits for the kernel to let go.
const SETTLE_FOR: Duration = Duration::from_secs(5);

/// The buffer group of the multishot receives.
const GROUP: u16 = 0;

pub(super) fn run(site: Site, stop: &Stop, receive: Receive) -> Result<Counters> {
    let mut server = Server::new(site, receive)?;
    server.push(Sqe::poll_add(stop.as_fd().as_raw_fd(), libc::POLLIN as u32).user_data(STOP))?;
    while server.turn()? {}
    server.settle()?;
    Ok(server.finish())
}

struct Server {
    ring: Ring,
    receive: Receive,
    /// The ring of receive buffers, multishot only.
    buffers: Option<BufferRing>,
    peers: Slab<Peer>,
    /// Connections with a multishot receive that ended because the buffer ring was empty, each once.
    starved: Vec<Token>,
    /// Operations that found the submission queue full, in order.
    waiting: VecDeque<Sqe>,
    delay: Delay<Token>,
    /// Completions to take in a turn, at most.
    batch: usize,
    worker: Worker,
    protocol: Protocol,
    listener: OwnedFd,
    accepting: bool,
    /// No descriptor was left: accepting pauses until a connection closes, or until then.
    parked_until: Option<Instant>,
    /// Requests without their last completion.
    in_flight: u64,
    no_iowait: bool,
}

/// One connection.
struct Peer {
    socket: OwnedFd,
    session: Session,
    /// Where a single receive lands; empty with multishot.
    buffer: Box<[u8]>,
    /// Received while an answer was going out, and not answered yet.
    backlog: Vec<u8>,
    /// Bytes at the front of the backlog that have been answered.
    answered: usize,
    /// Answers gathered from several replies, or copied from where they could not stay.
    own: Vec<u8>,
    /// What is left of the current answer.
    answer: Answer,
    /// The ring buffer in which the answer lies.
    held: Option<u16>,
    linger_left: u32,
    after: After,
    receiving: bool,
    sending: bool,
    cancelling: bool,
    /// Its receive waits for buffers to come back.
    starved: bool,
    /// The answer waits for its time.
    delayed: bool,
    /// The answer has waited.
    waited: bool,
    /// The peer sends no more.
    ended: bool,
    /// Nothing can be sent any more.
    broken: bool,
    /// The last receive left bytes in the socket, as the kernel says.
    more_waiting: bool,
}

/// What to do once everything is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    Read,
    Close,
    ShutDown,
    Discard,
}

/// Bytes the kernel is to send, wherever they lie (see the INVARIANT).
#[derive(Clone, Copy)]
struct Answer {
    start: *const u8,
    bytes: usize,
}

impl Answer {
    const NONE: Answer = Answer { start: std::ptr::null(), bytes: 0 };

    fn of(bytes: &[u8]) -> Answer {
        Answer { start: bytes.as_ptr(), bytes: bytes.len() }
    }

    fn lies_in(self, memory: &[u8]) -> bool {
        memory.as_ptr_range().contains(&self.start)
    }
}

// What a completion belongs to: a token with the kind in two bits of its index (there are fewer connections
// than descriptors, and fewer descriptors than 2^30).
const KIND_SHIFT: u32 = 30;
const RECEIVE: u64 = 0;
const SEND: u64 = 1 << KIND_SHIFT;
const CANCEL: u64 = 2 << KIND_SHIFT;
const OTHER: u64 = 3 << KIND_SHIFT;
const STOP: u64 = OTHER;
const ACCEPT: u64 = OTHER | 1;

impl Server {
    fn new(site: Site, receive: Receive) -> Result<Self> {
        let batch = site.batch(usize::MAX);
        let setup = |why: io::Error| Error::new("fcntl", why).on("the listener");
        // io_uring waits by itself, and takes O_NONBLOCK as "do not": accept would answer EAGAIN.
        let listener = TcpListener::from(site.listener);
        listener.set_nonblocking(false).map_err(setup)?;
        let mut ring = make_ring()?;
        let register = |why| Error::new("io_uring_register", why).on("the ring's descriptor");
        ring.register_ring_fd().map_err(register)?;
        if !ring.features().has(IORING_FEAT_NODROP) {
            let why = io::Error::from(io::ErrorKind::Unsupported);
            return Err(Error::new("io_uring_setup", why).hint("this model needs the io_uring of Linux 6.1"));
        }
        let buffers = match receive {
            Receive::Single => None,
            Receive::Multishot => Some(make_buffers(&ring, site.options.buffer_bytes)?),
        };
        Ok(Server {
            no_iowait: ring.features().has(IORING_FEAT_NO_IOWAIT),
            ring,
            receive,
            buffers,
            peers: Slab::new(),
            starved: Vec::new(),
            waiting: VecDeque::new(),
            delay: Delay::new(site.options.delay),
            batch,
            worker: Worker::new(&site.options),
            protocol: site.protocol,
            listener: listener.into(),
            accepting: false,
            parked_until: None,
            in_flight: 0,
        })
    }

    /// One `io_uring_enter` and what follows from it. `false`: stop was requested.
    fn turn(&mut self) -> Result<bool> {
        self.accept()?;
        let timeout = match (self.delay.timeout(), self.parked_until) {
            (due, Some(until)) => {
                let left = until.saturating_duration_since(Instant::now());
                Some(due.map_or(left, |due| due.min(left)))
            }
            (due, None) => due,
        };
        self.refill()?;
        self.enter(Wait { completions: 1, timeout, batch_for: None, no_iowait: self.no_iowait })?;
        // What is left stays first in line, and the next wait returns at once.
        let mut left = self.batch;
        while left > 0
            && let Some(completion) = self.ring.completions().pop()
        {
            left -= 1;
            if !completion.more() {
                self.in_flight -= 1;
            }
            match completion.user_data & OTHER {
                RECEIVE => self.received(token_of(completion), &completion)?,
                SEND => self.sent(token_of(completion), &completion)?,
                CANCEL => self.cancelled(token_of(completion), &completion)?,
                _ if completion.user_data == STOP => return Ok(false),
                _ => self.accepted(&completion)?,
            }
        }
        while let Some(token) = self.delay.pop_due() {
            if let Some(peer) = self.peers.get_mut(token) {
                peer.delayed = false;
                self.advance(token)?;
            }
        }
        self.feed_the_starved()?;
        Ok(true)
    }

    fn enter(&mut self, wait: Wait) -> Result<()> {
        self.worker.counters.syscalls += 1;
        match self.ring.submit_and_wait(wait) {
            // EBUSY: completions overflowed and must be taken before more is submitted, which comes next.
            Err(why) if matches!(why.raw_os_error(), Some(libc::EINTR | libc::EBUSY | libc::EAGAIN)) => {
                Ok(())
            }
            answer => answer.map(|_| ()).map_err(|why| Error::new("io_uring_enter", why)),
        }
    }

    /// Hands an operation over; what it names is covered by the INVARIANT at the call site.
    fn push(&mut self, entry: Sqe) -> Result<()> {
        self.in_flight += 1;
        if self.waiting.is_empty() && self.ring.submissions().is_full() {
            self.enter(Wait::default())?;
        }
        // What waits already goes first: a send must not overtake.
        if !self.waiting.is_empty() || self.ring.submissions().is_full() {
            self.waiting.push_back(entry);
            return Ok(());
        }
        self.fill(entry)
    }

    /// Puts an operation into the queue, which has room.
    fn fill(&mut self, entry: Sqe) -> Result<()> {
        // SAFETY: the memory an entry of this file names is in a `Peer` or in `buffers`, and both keep it in
        // place and untouched until the completion, by the INVARIANT; entries that name a descriptor name one
        // owned by `self` or, for the stop, borrowed for the whole of `run`.
        let pushed = unsafe { self.ring.submissions().push(entry) };
        pushed.map_err(|why| Error::new("io_uring_enter", io::Error::other(why)))
    }

    /// Moves what found the queue full into it, as far as there is room.
    fn refill(&mut self) -> Result<()> {
        while !self.ring.submissions().is_full() {
            let Some(entry) = self.waiting.pop_front() else { break };
            self.fill(entry)?;
        }
        Ok(())
    }

    /// Asks for connections unless it has been asked, or there is no room.
    fn accept(&mut self) -> Result<()> {
        if self.accepting {
            return Ok(());
        }
        if let Some(until) = self.parked_until {
            if Instant::now() < until {
                return Ok(());
            }
            self.parked_until = None;
        }
        let fd = self.listener.as_raw_fd();
        let entry = match self.receive {
            Receive::Single => Sqe::accept(fd, libc::SOCK_CLOEXEC),
            Receive::Multishot => Sqe::accept_multishot(fd, libc::SOCK_CLOEXEC),
        };
        self.push(entry.user_data(ACCEPT))?;
        self.accepting = true;
        Ok(())
    }

    fn accepted(&mut self, completion: &Cqe) -> Result<()> {
        self.accepting = completion.more();
        match completion.result {
            fd if fd >= 0 => {
                // SAFETY: the kernel has just opened this descriptor for us; no other code knows its number.
                let socket = unsafe { OwnedFd::from_raw_fd(fd) };
                self.worker.counters.accepted += 1;
                let bytes = if self.receive == Receive::Single { self.worker.buffer.len() } else { 0 };
                let token = self.peers.insert(Peer::new(socket, self.protocol, bytes));
                self.advance(token)
            }
            errno if matches!(-errno, libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                self.parked_until = Some(Instant::now() + PARKED_FOR);
                Ok(())
            }
            errno if matches!(-errno, libc::EBADF | libc::EINVAL | libc::ENOTSOCK) => {
                Err(Error::new("accept", io::Error::from_raw_os_error(-errno)).on("the listener"))
            }
            // One connection died in the backlog (accept(2)).
            _ => Ok(()),
        }
    }

    fn received(&mut self, token: Token, completion: &Cqe) -> Result<()> {
        let Some(peer) = self.peers.get_mut(token) else { return Ok(()) };
        peer.receiving = completion.more();
        peer.cancelling &= peer.receiving;
        peer.more_waiting = completion.socket_nonempty();
        match completion.result {
            0 => peer.ended = true,
            bytes if bytes > 0 => {
                self.worker.counters.bytes_in += bytes as u64;
                self.take_in(token, completion)?;
            }
            errno => match -errno {
                libc::ENOBUFS => {
                    peer.starved = true;
                    self.starved.push(token);
                }
                libc::ECANCELED | libc::EINTR | libc::EAGAIN => {}
                _ => (peer.ended, peer.broken) = (true, true),
            },
        }
        if completion.result == 0
            && let Some(buffers) = &mut self.buffers
            // SAFETY: as in `take_in`, which was not called for this completion.
            && let Some((id, _)) = (unsafe { buffers.take(completion) })
        {
            buffers.give_back(id);
        }
        self.advance(token)
    }

    /// Answers what was received, or keeps it if an answer is still going out.
    #[inline]
    fn take_in(&mut self, token: Token, completion: &Cqe) -> Result<()> {
        let Server { peers, buffers, worker, .. } = self;
        let Some(peer) = peers.get_mut(token) else { return Ok(()) };
        let busy = peer.is_busy();
        match buffers {
            None => {
                // Lent out of the peer for the call, so that the bytes and the peer can be used side by side.
                let buffer = std::mem::take(&mut peer.buffer);
                let bytes = buffer.get(..completion.result as usize).unwrap_or_default();
                if busy {
                    peer.backlog.extend_from_slice(bytes)
                } else {
                    peer.answer(bytes, worker)
                }
                peer.buffer = buffer;
            }
            Some(buffers) => {
                // SAFETY: a completion of a receive that names this group, handed here once by `received`.
                let Some((id, bytes)) = (unsafe { buffers.take(completion) }) else { return Ok(()) };
                if busy {
                    peer.backlog.extend_from_slice(bytes);
                } else {
                    peer.answer(bytes, worker);
                    if peer.answer.lies_in(bytes) {
                        // Sent from where it lies while buffers are plenty. Peers that do not read keep what
                        // they hold, so past half of the ring answers are copied, and the rest goes round.
                        if buffers.outstanding() <= buffers.entries() / 2 {
                            peer.held = Some(id);
                            return Ok(());
                        }
                        peer.keep_answer();
                    }
                }
                buffers.give_back(id);
                if peer.backlog.len() > BACKLOG_BYTES_MAX {
                    self.cancel(token)?;
                }
            }
        }
        Ok(())
    }

    fn sent(&mut self, token: Token, completion: &Cqe) -> Result<()> {
        let Some(peer) = self.peers.get_mut(token) else { return Ok(()) };
        peer.sending = false;
        match completion.result {
            bytes if bytes >= 0 => {
                self.worker.counters.bytes_out += bytes as u64;
                let bytes = (bytes as usize).min(peer.answer.bytes);
                peer.answer.start = peer.answer.start.wrapping_add(bytes);
                peer.answer.bytes -= bytes;
            }
            errno if matches!(-errno, libc::EINTR | libc::EAGAIN) => {}
            _ => peer.broken = true,
        }
        self.advance(token)
    }

    /// Does what the peer's state asks for next, until it waits for a completion or is gone.
    #[inline]
    fn advance(&mut self, token: Token) -> Result<()> {
        loop {
            let Server { peers, worker, .. } = self;
            let Some(peer) = peers.get_mut(token) else { return Ok(()) };
            if peer.sending || peer.delayed {
                return Ok(());
            }
            if peer.broken {
                return self.close(token);
            }
            if peer.answer.bytes > 0 {
                return self.send(token);
            }
            // The answer is out, and what it lay in is free again.
            peer.own.clear();
            peer.waited = false;
            if let (Some(id), Some(buffers)) = (peer.held.take(), &mut self.buffers) {
                buffers.give_back(id);
            }
            match peer.after {
                After::Read | After::Discard => {}
                After::Close => return self.close(token),
                After::ShutDown => {
                    socket::shutdown(peer.socket.as_fd(), libc::SHUT_WR, &mut worker.counters);
                    peer.after = After::Discard;
                }
            }
            if !peer.backlog.is_empty() {
                peer.answer_backlog(worker);
                continue;
            }
            if peer.ended || peer.linger_left == 0 {
                return self.close(token);
            }
            return self.receive(token);
        }
    }

    fn send(&mut self, token: Token) -> Result<()> {
        let Some(peer) = self.peers.get_mut(token) else { return Ok(()) };
        if self.worker.delayed && !peer.waited {
            // Whatever the answer lies in is needed by others meanwhile.
            peer.keep_answer();
            if let (Some(id), Some(buffers)) = (peer.held.take(), &mut self.buffers) {
                buffers.give_back(id);
            }
            (peer.waited, peer.delayed) = (true, true);
            self.delay.push(token);
            return Ok(());
        }
        let Answer { start, bytes } = peer.answer;
        // A peer that is gone is EPIPE, not SIGPIPE. WAITALL: the kernel goes on after a short send by
        // itself.
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        let bytes = u32::try_from(bytes).unwrap_or(i32::MAX as u32);
        let entry = Sqe::send(peer.socket.as_raw_fd(), start, bytes, flags);
        peer.sending = true;
        // The next receive can be asked for in the same turn, unless the answer lies where it would land.
        let overlap = peer.after == After::Read && !peer.ended && !peer.answer.lies_in(&peer.buffer);
        self.push(entry.user_data(token.to_bits() | SEND))?;
        if overlap { self.receive(token) } else { Ok(()) }
    }

    /// Asks for bytes, unless it has been asked.
    fn receive(&mut self, token: Token) -> Result<()> {
        let Some(peer) = self.peers.get_mut(token) else { return Ok(()) };
        if peer.receiving || peer.starved || peer.ended || !peer.backlog.is_empty() {
            return Ok(());
        }
        let fd = peer.socket.as_raw_fd();
        let entry = match self.receive {
            Receive::Single => Sqe::recv(fd, peer.buffer.as_mut_ptr(), peer.buffer.len() as u32, 0),
            Receive::Multishot => Sqe::recv_multishot(fd, GROUP),
        };
        // Known to be empty: a first try would only learn EAGAIN. Not for a multishot, which is asked for
        // once: one that begins by waiting on a socket already reset delivers its bytes, drops the reset, and
        // is never woken again (Linux 6.18).
        let known_empty = self.receive == Receive::Single && !peer.more_waiting;
        let entry = if known_empty { entry.poll_first() } else { entry };
        peer.receiving = true;
        self.push(entry.user_data(token.to_bits() | RECEIVE))
    }

    /// Ends the receive in flight, unless that has been asked for.
    fn cancel(&mut self, token: Token) -> Result<()> {
        let Some(peer) = self.peers.get_mut(token) else { return Ok(()) };
        if !peer.receiving || peer.cancelling {
            return Ok(());
        }
        peer.cancelling = true;
        let bits = token.to_bits();
        self.push(Sqe::cancel(bits | RECEIVE).user_data(bits | CANCEL))
    }

    /// Notes that the receive that was cancelled completes by itself. If it could not be found just then (it
    /// was being run), it goes on, and the caller asks again if it still has to end.
    fn cancelled(&mut self, token: Token, completion: &Cqe) -> Result<()> {
        let Some(peer) = self.peers.get_mut(token) else { return Ok(()) };
        if completion.result < 0 && peer.receiving {
            peer.cancelling = false;
            return self.advance(token);
        }
        Ok(())
    }

    /// Closes a peer, at once or, while a receive is in flight, by ending that first.
    fn close(&mut self, token: Token) -> Result<()> {
        let Some(peer) = self.peers.get_mut(token) else { return Ok(()) };
        if peer.receiving {
            // Its last completion brings us here again. A shutdown would end it too, but after one the kernel
            // announces no more window, and a peer that still sends would be left waiting instead of reset.
            peer.broken = true;
            return self.cancel(token);
        }
        if let Some(peer) = self.peers.remove(token) {
            if let (Some(id), Some(buffers)) = (peer.held, &mut self.buffers) {
                buffers.give_back(id);
            }
            socket::close(peer.socket, &mut self.worker.counters);
            self.parked_until = None;
        }
        Ok(())
    }

    /// Lets those receive again that found the buffer ring empty, if there are buffers now.
    fn feed_the_starved(&mut self) -> Result<()> {
        if self.starved.is_empty() {
            return Ok(());
        }
        let available = self.buffers.as_ref().map_or(0, |buffers| buffers.entries() - buffers.outstanding());
        let fed = usize::from(available).min(self.starved.len());
        for token in self.starved.drain(..fed).collect::<Vec<_>>() {
            if let Some(peer) = self.peers.get_mut(token) {
                peer.starved = false;
                self.advance(token)?;
            }
        }
        Ok(())
    }

    /// Cancels everything and takes every last completion, so that the kernel holds nothing of ours.
    fn settle(&mut self) -> Result<()> {
        // What is queued but not submitted would not be found by the cancel.
        while self.ring.submissions().pending() > 0 || !self.waiting.is_empty() {
            self.refill()?;
            self.enter(Wait::default())?;
            if self.ring.submissions().is_full() {
                break;
            }
        }
        let cancelled = self.ring.cancel_all(SETTLE_FOR);
        let deadline = Instant::now() + SETTLE_FOR;
        while self.in_flight > 0 && Instant::now() < deadline {
            let timeout = Some(deadline.saturating_duration_since(Instant::now()));
            self.enter(Wait { completions: 1, timeout, ..Wait::default() })?;
            while let Some(completion) = self.ring.completions().pop() {
                if !completion.more() {
                    self.in_flight -= 1;
                }
                match completion.user_data & OTHER {
                    SEND => self.worker.counters.bytes_out += completion.result.max(0) as u64,
                    RECEIVE => self.worker.counters.bytes_in += completion.result.max(0) as u64,
                    OTHER if completion.user_data == ACCEPT && completion.result >= 0 => {
                        // SAFETY: as in `accepted`: a connection that came too late is ours to close.
                        drop(unsafe { OwnedFd::from_raw_fd(completion.result) });
                    }
                    _ => {}
                }
            }
        }
        match self.in_flight {
            0 => Ok(()),
            left => {
                let why = cancelled.err().unwrap_or_else(|| io::Error::from(io::ErrorKind::TimedOut));
                Err(Error::new("io_uring cancel", why).on(format!("{left} requests")))
            }
        }
    }

    /// Closes every connection as it stands. Nothing is in flight.
    fn finish(mut self) -> Counters {
        let counters = &mut self.worker.counters;
        self.peers.drain().for_each(|peer| socket::close(peer.socket, counters));
        *counters
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Only an error in `turn` gets here with requests in flight.
        if self.in_flight > 0 && self.settle().is_err() {
            // The kernel may still write: what it was given must stay, for the rest of the process.
            std::mem::forget(std::mem::replace(&mut self.peers, Slab::new()));
            std::mem::forget(self.buffers.take());
        }
    }
}

impl Peer {
    fn new(socket: OwnedFd, protocol: Protocol, buffer_bytes: usize) -> Self {
        Peer {
            socket,
            session: Session::new(protocol),
            buffer: vec![0; buffer_bytes].into_boxed_slice(),
            backlog: Vec::new(),
            answered: 0,
            own: Vec::new(),
            answer: Answer::NONE,
            held: None,
            linger_left: LINGER_BYTES_MAX,
            after: After::Read,
            receiving: false,
            sending: false,
            cancelling: false,
            starved: false,
            delayed: false,
            waited: false,
            ended: false,
            broken: false,
            more_waiting: false,
        }
    }

    /// Returns whether an answer is going out, so that what comes now must wait.
    #[inline]
    fn is_busy(&self) -> bool {
        self.answer.bytes > 0 || !self.backlog.is_empty()
    }

    /// Turns `input` into the answer to send: in place if it is one piece, gathered otherwise.
    #[inline]
    fn answer(&mut self, mut input: &[u8], worker: &mut Worker) {
        if self.after == After::Discard || self.broken {
            let bytes = u32::try_from(input.len()).unwrap_or(u32::MAX);
            self.linger_left = self.linger_left.saturating_sub(bytes);
            return;
        }
        let mut only: Option<&[u8]> = None;
        while let Some(reply) = self.session.next(&mut input) {
            worker.work.perform(reply.portions);
            worker.counters.requests += u64::from(reply.requests);
            match reply.end {
                End::Open => {}
                End::Close => self.after = After::Close,
                End::Linger => self.after = After::ShutDown,
            }
            if only.is_none() && self.own.is_empty() {
                only = Some(reply.bytes);
            } else {
                self.own.extend_from_slice(only.take().unwrap_or_default());
                self.own.extend_from_slice(reply.bytes);
            }
        }
        self.answer = Answer::of(only.unwrap_or(&self.own));
    }

    /// Answers the next piece of the backlog. A piece is a buffer's worth: answers may be longer than
    /// requests, and what one peer makes us hold stays bounded.
    fn answer_backlog(&mut self, worker: &mut Worker) {
        let backlog = std::mem::take(&mut self.backlog);
        let start = self.answered;
        self.answered = backlog.len().min(start + worker.buffer.len());
        let piece = backlog.get(start..self.answered).unwrap_or_default();
        self.answer(piece, worker);
        if self.answer.lies_in(piece) {
            // The backlog may grow, and move, while the answer is going out.
            self.keep_answer();
        }
        if self.answered < backlog.len() {
            self.backlog = backlog;
        } else {
            self.answered = 0;
        }
    }

    /// Copies the answer into memory of the peer's own.
    fn keep_answer(&mut self) {
        // SAFETY: the answer's memory is valid and unchanged: no send is in flight (the caller is about to
        // make one), and by the INVARIANT it lies in a table, in `buffer` with no receive in flight, or in a
        // ring buffer that has not been given back.
        let bytes = unsafe { std::slice::from_raw_parts(self.answer.start, self.answer.bytes) };
        self.own = bytes.to_vec();
        self.answer = Answer::of(&self.own);
    }
}

fn token_of(completion: Cqe) -> Token {
    Token::from_bits(completion.user_data & !OTHER)
}

fn make_ring() -> Result<Ring> {
    let wanted = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
    let build = |flags| Ring::builder(ENTRIES).completion_entries(COMPLETIONS).flags(flags).build();
    // NO_SQARRAY (6.6) spares an indirection per entry; the rest is Linux 6.1.
    build(wanted | IORING_SETUP_NO_SQARRAY).or_else(|_| build(wanted)).map_err(|why| {
        let hint = match why.source.raw_os_error() {
            Some(libc::ENOMEM) => {
                "its ring takes more locked memory than allowed: raise RLIMIT_MEMLOCK (ulimit -l)"
            }
            _ => "this model needs the io_uring of Linux 6.1, allowed to this process",
        };
        Error::new("io_uring_setup", why.source).hint(hint)
    })
}

fn make_buffers(ring: &Ring, buffer_bytes: usize) -> Result<BufferRing> {
    let bytes = u32::try_from(buffer_bytes).unwrap_or(u32::MAX);
    let entries = (RING_BUFFER_BYTES / buffer_bytes).clamp(16, 1024).next_power_of_two();
    BufferRing::new(ring, GROUP, entries as u16, bytes)
        .map_err(|why| Error::new("io_uring_register", why).on(format!("{entries} buffers of {bytes} bytes")))
}
