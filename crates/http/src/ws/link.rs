//! The sending side of a session's connection: the queue, how it is sent, and the deadlines.
//!
//! Queued data is sent without further calls: at once if the driver sends at once, otherwise by a task that
//! lives while data is queued. So the session's own task may wait for anything else meanwhile, and dropping
//! one of its futures loses nothing. Start at [`Link::flush`].

use super::error::{SendError, WebSocketError};
use super::keeper::{self, flush_soon, hurry, with_scratch};
use super::message::{Frame, Message, PACKED_BYTES_MIN};
use super::options::Options;
use super::session::{Closed, Role};
use crate::pool;
use crate::random::random;
use crate::transport::{TransportCanceller, WriteTransport};
use ringroad_engine::spawn;
use ringroad_wire::ws::deflate::Agreed;
use ringroad_wire::ws::{CloseCode, Kind, Opcode, apply_mask, put_close, put_frame, put_frame_as, put_head};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Minimum size of a payload that is sent without a copy; a shorter one is copied behind its head.
const ALONE_BYTES_MIN: usize = 16 * 1024;

/// Short pieces are joined up to this many bytes.
const BATCH_BYTES: usize = 64 * 1024;

/// A session's own send waits while more than this is queued.
const ROOM_BYTES: usize = 64 * 1024;

/// Maximum number of queued pongs (2 KiB). RFC 6455 §5.5.3 requires an answer to the last ping only, but the
/// Autobahn suite sends ten at once and expects ten answers (cases 2.10 and 2.11).
const PONGS_MAX: u8 = 16;

/// State of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Open,
    /// A close frame of ours is queued or sent.
    Closing,
    /// Nothing more is sent: both sides have closed, or the connection was given up.
    Closed,
}

/// Why the session's wait was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It was not cancelled.
    None,
    /// The peer answers no ping, or takes no data.
    TimedOut,
    /// The peer did not close in time.
    Unclosed,
    /// Sending failed.
    Broken,
}

/// Bytes to send: owned, or shared with other connections.
enum Piece {
    Own(Vec<u8>),
    Shared(Arc<[u8]>),
}

impl Deref for Piece {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Piece::Own(bytes) => bytes,
            Piece::Shared(bytes) => bytes,
        }
    }
}

impl Piece {
    fn recycle(self) {
        if let Piece::Own(bytes) = self {
            pool::give_buffer(bytes);
        }
    }
}

/// The send queue: the pieces, then the tail.
#[derive(Default)]
struct Out {
    pieces: VecDeque<Piece>,
    tail: Vec<u8>,
    /// Bytes of the queue and of the piece that is being sent.
    bytes: usize,
}

impl Out {
    /// Returns the buffer that further bytes are written to. Call [`counted`](Self::counted) afterwards.
    fn tail(&mut self) -> &mut Vec<u8> {
        if self.tail.capacity() == 0 {
            self.tail = pool::buffer();
        }
        &mut self.tail
    }

    fn push(&mut self, piece: Piece) {
        if !self.tail.is_empty() {
            let tail = std::mem::take(&mut self.tail);
            self.pieces.push_back(Piece::Own(tail));
        }
        self.pieces.push_back(piece);
    }

    /// Returns the piece to be sent next: a long one, or short ones joined.
    fn next(&mut self) -> Option<Piece> {
        if self.pieces.is_empty() {
            let tail = std::mem::take(&mut self.tail);
            return (!tail.is_empty()).then_some(Piece::Own(tail));
        }
        let is_last = self.pieces.len() == 1 && self.tail.is_empty();
        if is_last || self.pieces.front().is_some_and(|first| first.len() >= ALONE_BYTES_MIN) {
            let first = self.pieces.pop_front();
            if self.pieces.is_empty() {
                // A waiting session holds no memory of the queue.
                self.pieces = VecDeque::new();
            }
            return first;
        }
        let mut joined = pool::buffer();
        while self.pieces.front().is_some_and(|piece| joined.len() + piece.len() <= BATCH_BYTES)
            && let Some(piece) = self.pieces.pop_front()
        {
            joined.extend_from_slice(&piece);
            piece.recycle();
        }
        if self.pieces.is_empty() {
            self.pieces = VecDeque::new();
            if joined.len() + self.tail.len() <= BATCH_BYTES {
                joined.extend_from_slice(&self.tail);
                pool::give_buffer(std::mem::take(&mut self.tail));
            }
        }
        Some(Piece::Own(joined))
    }
}

/// A session's connection.
pub(super) struct Link {
    /// `None` while a task sends, and after the end of the connection.
    write: RefCell<Option<WriteTransport>>,
    out: RefCell<Out>,
    /// Tasks that wait for room.
    waiting: RefCell<Vec<Waker>>,
    closed: RefCell<Option<Box<Closed>>>,
    canceller: TransportCanceller,
    options: Options,
    agreed: Option<Agreed>,
    role: Role,
    state: Cell<State>,
    verdict: Cell<Verdict>,
    pongs: Cell<u8>,
    /// Whether the sending side is shut down when the queue is empty.
    shuts: Cell<bool>,
    /// Whether the session was dropped.
    dropped: Cell<bool>,
    /// Whether the session waits for the keeper to send.
    dirty: Cell<bool>,
    /// The second of the next check; 0: none.
    pub(super) slot: Cell<u32>,
    /// The second in which bytes were last received.
    heard: Cell<u32>,
    /// The second of a ping without an answer, of the last progress of a sending task, and of our close
    /// frame; 0: none.
    pinged: Cell<u32>,
    writing: Cell<u32>,
    closing: Cell<u32>,
}

impl Link {
    pub(super) fn new(
        write: WriteTransport,
        role: Role,
        options: Options,
        agreed: Option<Agreed>,
    ) -> Rc<Link> {
        Rc::new(Link {
            canceller: write.canceller(),
            write: RefCell::new(Some(write)),
            out: RefCell::default(),
            waiting: RefCell::default(),
            closed: RefCell::default(),
            options,
            agreed,
            role,
            state: Cell::new(State::Open),
            verdict: Cell::new(Verdict::None),
            pongs: Cell::new(0),
            shuts: Cell::new(false),
            dropped: Cell::new(false),
            dirty: Cell::new(false),
            slot: Cell::new(0),
            heard: Cell::new(0),
            pinged: Cell::new(0),
            writing: Cell::new(0),
            closing: Cell::new(0),
        })
    }

    pub(super) fn state(&self) -> State {
        self.state.get()
    }

    pub(super) fn verdict(&self) -> Verdict {
        self.verdict.get()
    }

    /// Returns whether a deadline has ended the session. Its cancel has no effect on what has just completed,
    /// nor on what is waited for later.
    pub(super) fn is_given_up(&self) -> bool {
        matches!(self.verdict.get(), Verdict::TimedOut | Verdict::Unclosed)
    }

    pub(super) fn closed(&self) -> Option<Closed> {
        self.closed.borrow().as_deref().cloned()
    }

    fn mask(&self) -> Option<[u8; 4]> {
        (self.role == Role::Client).then(random)
    }

    /// Returns the number of bytes that are queued or being sent.
    pub(super) fn queued(&self) -> usize {
        self.out.borrow().bytes
    }

    /// Checks whether `bytes` more may be queued.
    fn room_for(&self, bytes: usize) -> Result<(), SendError> {
        if self.state.get() != State::Open {
            return Err(SendError::Closed);
        }
        let queued = self.queued();
        let fits = queued == 0 || queued.saturating_add(bytes) <= self.options.0.queue_bytes;
        fits.then_some(()).ok_or(SendError::Full)
    }

    /// Queues a message.
    pub(super) fn push(&self, message: Message) -> Result<(), SendError> {
        self.room_for(message.as_bytes().len())?;
        self.push_unbounded(message);
        Ok(())
    }

    /// Queues a message without checking the limit.
    pub(super) fn push_unbounded(&self, message: Message) {
        let opcode = Opcode::from(message.kind());
        if let Some(agreed) = self.agreed
            && message.as_bytes().len() >= PACKED_BYTES_MIN
        {
            let mut packed = pool::buffer();
            with_scratch(|scratch| scratch.deflater.deflate(agreed, message.as_bytes(), &mut packed));
            if packed.len() < message.as_bytes().len() {
                return self.put(opcode, true, packed);
            }
            pool::give_buffer(packed);
        }
        self.put(opcode, false, message.into_bytes());
    }

    /// Queues one frame.
    #[inline]
    fn put(&self, opcode: Opcode, compressed: bool, mut payload: Vec<u8>) {
        let mask = self.mask();
        let mut out = self.out.borrow_mut();
        let before = out.tail.len();
        if payload.len() < ALONE_BYTES_MIN {
            put_frame_as(out.tail(), opcode, true, compressed, &payload, mask);
            out.bytes += out.tail.len() - before;
            pool::give_buffer(payload);
            return;
        }
        put_head(out.tail(), opcode, true, compressed, payload.len(), mask);
        out.bytes += out.tail.len() - before + payload.len();
        if let Some(key) = mask {
            apply_mask(&mut payload, key, 0);
        }
        out.push(Piece::Own(payload));
    }

    /// Queues a frame that other sessions send as well.
    pub(super) fn push_frame(&self, frame: &Frame) -> Result<(), SendError> {
        if self.role == Role::Client {
            return self.push(match frame.kind() {
                Kind::Text => Message::text(String::from_utf8_lossy(frame)),
                Kind::Binary => Message::binary(frame.payload()),
            });
        }
        let bytes = frame.bytes(self.agreed);
        self.room_for(bytes.len())?;
        let mut out = self.out.borrow_mut();
        out.bytes += bytes.len();
        out.push(Piece::Shared(Arc::clone(bytes)));
        Ok(())
    }

    /// Queues the answer to a ping, unless too many are queued.
    pub(super) fn pong(&self, payload: &[u8]) {
        if self.state.get() == State::Open && self.pongs.get() < PONGS_MAX {
            self.pongs.set(self.pongs.get() + 1);
            self.control(|out, mask| put_frame(out, Opcode::Pong, payload, mask));
        }
    }

    fn control(&self, put: impl FnOnce(&mut Vec<u8>, Option<[u8; 4]>)) {
        let mask = self.mask();
        let mut out = self.out.borrow_mut();
        let before = out.tail.len();
        put(out.tail(), mask);
        out.bytes += out.tail.len() - before;
    }

    /// Begins to close: nothing is queued after the close frame. Returns `false` if it had begun before.
    pub(super) fn close(self: &Rc<Link>, code: CloseCode, reason: &str) -> bool {
        if self.state.get() != State::Open {
            return false;
        }
        self.control(|out, mask| put_close(out, code, reason, mask));
        self.state.set(State::Closing);
        self.give_time_to_close();
        true
    }

    /// Begins to close, and drops queued data that has not begun to be sent.
    fn close_now(self: &Rc<Link>, code: CloseCode, reason: &str) {
        if self.state.get() == State::Open {
            {
                let mut out = self.out.borrow_mut();
                let dropped = out.pieces.iter().map(|piece| piece.len()).sum::<usize>() + out.tail.len();
                out.bytes -= dropped;
                out.pieces = VecDeque::new();
                out.tail = Vec::new();
            }
            self.close(code, reason);
        }
    }

    fn give_time_to_close(self: &Rc<Link>) {
        if self.closing.get() == 0 {
            self.closing.set(keeper::now().max(1));
            hurry(self);
        }
        self.wake_waiting();
    }

    /// Handles the peer's close frame: answers it, unless we closed first.
    pub(super) fn peer_closed(self: &Rc<Link>, closed: Closed) {
        if self.state.get() == State::Open {
            let code = closed.code;
            self.control(|out, mask| put_close(out, code, "", mask));
        }
        *self.closed.borrow_mut() = Some(Box::new(closed));
        self.state.set(State::Closed);
        // RFC 6455 §7.1.1: the server ends the connection first.
        self.shuts.set(self.role == Role::Server);
        self.give_time_to_close();
        self.flush();
    }

    /// Handles a violation of the protocol: sends a close frame with the code.
    pub(super) fn give_up(self: &Rc<Link>, code: CloseCode, reason: &str) {
        self.close_now(code, reason);
        self.state.set(State::Closed);
        self.shuts.set(true);
        self.give_time_to_close();
        self.flush();
    }

    /// Marks the end of the connection.
    pub(super) fn end(&self) {
        self.state.set(State::Closed);
        self.wake_waiting();
    }

    /// Handles the stop of the server.
    pub(super) fn go_away(self: &Rc<Link>) {
        if self.close(CloseCode::GOING_AWAY, "the server stops") {
            self.flush();
        }
    }

    /// Handles the drop of the session: queues a close frame if none was sent, and closes after the queue.
    pub(super) fn drop_session(self: &Rc<Link>) {
        let code = if std::thread::panicking() { CloseCode::INTERNAL } else { CloseCode::NORMAL };
        if self.verdict.get() == Verdict::None {
            self.close(code, "");
        }
        self.end();
        self.dropped.set(true);
        // Not directly: the runtime may be ending, and then starts no task.
        if !self.try_flush() {
            self.flush_soon();
        }
    }

    /// Sends the queue as soon as the tasks that are ready have run, together with what they queue.
    pub(super) fn flush_soon(self: &Rc<Link>) {
        if !self.dirty.replace(true) {
            flush_soon(self);
        }
    }

    /// Sends the queue. A task sends what the kernel does not take at once.
    pub(super) fn flush(self: &Rc<Link>) {
        self.dirty.set(false);
        if let Some((write, piece, from)) = self.flush_part() {
            self.writing.set(keeper::now().max(1));
            spawn(write_on(Rc::clone(self), write, piece, from)).detach();
        }
    }

    /// Sends what the kernel takes at once. Returns `false` if data is left.
    fn try_flush(&self) -> bool {
        let Some((write, piece, from)) = self.flush_part() else { return true };
        let mut out = self.out.borrow_mut();
        // The rest goes to the front; nothing is before it.
        let rest = piece.get(from..).unwrap_or_default().to_vec();
        out.pieces.push_front(Piece::Own(rest));
        drop(out);
        *self.write.borrow_mut() = Some(write);
        false
    }

    /// Sends what the kernel takes at once. Returns the rest of the piece that the kernel did not take
    /// completely.
    #[inline]
    fn flush_part(&self) -> Option<(WriteTransport, Piece, usize)> {
        // `None` while a task sends, or after the end of the connection.
        let mut write = self.write.borrow_mut().take()?;
        loop {
            let Some(piece) = self.out.borrow_mut().next() else {
                self.wrote_all(write);
                return None;
            };
            match write.try_write(&piece) {
                Some(sent) => {
                    self.sent(sent);
                    if sent < piece.len() {
                        return Some((write, piece, sent));
                    }
                    piece.recycle();
                }
                None => return Some((write, piece, 0)),
            }
        }
    }

    /// Records that `bytes` were sent.
    fn sent(&self, bytes: usize) {
        let mut out = self.out.borrow_mut();
        out.bytes = out.bytes.saturating_sub(bytes);
    }

    /// Handles the end of the queue.
    fn wrote_all(&self, mut write: WriteTransport) {
        self.writing.set(0);
        self.pongs.set(0);
        if self.shuts.get() {
            // The peer may have closed already.
            let _ = write.shutdown();
        }
        if !self.dropped.get() {
            *self.write.borrow_mut() = Some(write);
        }
        self.wake_waiting();
    }

    /// Handles a failed send.
    fn broken(&self) {
        *self.out.borrow_mut() = Out::default();
        self.writing.set(0);
        if self.verdict.get() == Verdict::None {
            self.verdict.set(Verdict::Broken);
        }
        self.end();
        self.canceller.cancel();
    }

    fn wake_waiting(&self) {
        if !self.waiting.borrow().is_empty() {
            let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
            waiting.into_iter().for_each(Waker::wake);
        }
    }

    /// Ready when at most `most` bytes are queued, or nothing more will be sent.
    pub(super) fn poll_room(&self, most: usize, context: &Context<'_>) -> Poll<Result<(), WebSocketError>> {
        match self.verdict.get() {
            Verdict::None => {}
            Verdict::TimedOut => return Poll::Ready(Err(WebSocketError::TimedOut)),
            Verdict::Unclosed | Verdict::Broken => return Poll::Ready(Err(WebSocketError::Lost)),
        }
        if self.queued() <= most {
            return Poll::Ready(Ok(()));
        }
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            waiting.push(context.waker().clone());
        }
        Poll::Pending
    }

    /// Records that bytes were received.
    #[inline]
    pub(super) fn heard(&self) {
        self.heard.set(keeper::now());
        self.pinged.set(0);
    }

    pub(super) fn begin(&self, now: u32) {
        self.heard.set(now);
    }

    /// Returns the second of the next check.
    pub(super) fn due(&self) -> u32 {
        let settings = &self.options.0;
        let after = |since: &Cell<u32>, span: u32| match since.get() {
            0 => u32::MAX,
            // The second in which it began may be nearly over.
            since => since.saturating_add(span).saturating_add(1),
        };
        let silent = match (settings.ping, self.pinged.get()) {
            (0, _) => u32::MAX,
            (ping, 0) => self.heard.get().saturating_add(ping),
            _ => after(&self.pinged, settings.pong),
        };
        silent.min(after(&self.closing, settings.close)).min(after(&self.writing, settings.send))
    }

    /// Sends a due ping, or gives the session up. Returns `false` if the session is over and needs no more
    /// checks.
    pub(super) fn look(self: &Rc<Link>, now: u32) -> bool {
        let is_over = self.dropped.get() && self.write.borrow().is_none() && self.writing.get() == 0;
        if is_over || self.verdict.get() != Verdict::None {
            return false;
        }
        let settings = &self.options.0;
        let is_late =
            |since: &Cell<u32>, span: u32| since.get() != 0 && now.saturating_sub(since.get()) > span;
        // Progress of the send shows whether the peer is alive.
        let verdict = if is_late(&self.writing, settings.send) {
            Verdict::TimedOut
        } else if is_late(&self.closing, settings.close) {
            Verdict::Unclosed
        } else if self.writing.get() == 0 && is_late(&self.pinged, settings.pong) {
            Verdict::TimedOut
        } else {
            Verdict::None
        };
        if verdict != Verdict::None {
            self.verdict.set(verdict);
            self.end();
            self.canceller.cancel();
            return false;
        }
        let is_silent = settings.ping > 0 && now.saturating_sub(self.heard.get()) >= settings.ping;
        if self.state.get() == State::Open && is_silent && self.pinged.get() == 0 {
            self.pinged.set(now);
            self.control(|out, mask| put_frame(out, Opcode::Ping, b"", mask));
            self.flush();
        }
        true
    }
}

/// Continues to send while the queue has data.
async fn write_on(link: Rc<Link>, mut write: WriteTransport, mut piece: Piece, mut from: usize) {
    loop {
        while from < piece.len() {
            let (sent, back) = match piece {
                Piece::Own(bytes) => {
                    let (sent, bytes) = write.write_from(bytes, from).await;
                    (sent, Piece::Own(bytes))
                }
                Piece::Shared(bytes) => {
                    let (sent, bytes) = write.write_from(bytes, from).await;
                    (sent, Piece::Shared(bytes))
                }
            };
            piece = back;
            let Ok(to) = sent else { return link.broken() };
            if link.is_given_up() {
                return link.broken();
            }
            link.sent(to - from);
            link.writing.set(keeper::now().max(1));
            from = to;
        }
        piece.recycle();
        let next = link.out.borrow_mut().next();
        match next {
            Some(next) => (piece, from) = (next, 0),
            None => return link.wrote_all(write),
        }
        if link.queued() <= ROOM_BYTES {
            link.wake_waiting();
        }
    }
}

/// Returns how many bytes may be queued before a session's own send waits.
pub(super) fn room(options: &Options) -> usize {
    ROOM_BYTES.min(options.0.queue_bytes)
}

/// Sends on a session from other tasks of its worker. Clones are cheap and do not keep the session open.
#[derive(Clone)]
pub struct Sender(pub(super) Rc<Link>);

impl Sender {
    /// Queues a message. It is sent together with other data queued in this turn of the runtime.
    ///
    /// # Errors
    /// [`SendError::Full`] if [`queue_bytes`](super::Options::queue_bytes) are queued already: the peer is
    /// slow. [`SendError::Closed`].
    pub fn send(&self, message: impl Into<Message>) -> Result<(), SendError> {
        self.0.push(message.into())?;
        self.0.flush_soon();
        Ok(())
    }

    /// Queues a frame that other sessions send as well, without a copy.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_frame(&self, frame: &Frame) -> Result<(), SendError> {
        self.0.push_frame(frame)?;
        self.0.flush_soon();
        Ok(())
    }

    /// Waits until the queue has room, or the session is over.
    ///
    /// # Errors
    /// The session has failed.
    pub async fn room(&self) -> Result<(), WebSocketError> {
        std::future::poll_fn(|context| self.0.poll_room(room(&self.0.options), context)).await
    }

    /// Closes the session after the queued data. The session's own `recv` reports when the peer has answered.
    pub fn close(&self, code: CloseCode, reason: &str) {
        if self.0.close(code, reason) {
            self.0.flush_soon();
        }
    }

    /// Closes the session, and drops queued data that has not begun to be sent: for a peer that is too slow.
    pub fn close_now(&self, code: CloseCode, reason: &str) {
        self.0.close_now(code, reason);
        self.0.flush_soon();
    }

    /// Returns the number of bytes that are queued or being sent.
    pub fn queued_bytes(&self) -> usize {
        self.0.queued()
    }

    /// Returns whether nothing can be sent any more.
    pub fn is_closed(&self) -> bool {
        self.0.state() != State::Open
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sender({:?}, {} bytes queued)", self.0.state(), self.0.queued())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::transport::Transport;
    use crate::ws::session::WebSocket;
    use ringroad_engine::net::UnixStream;
    use ringroad_engine::{DriverName, Runtime, choose, time};
    use std::future::poll_fn;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream as Peer;
    use std::time::Duration;

    /// A second in which each deadline is over.
    const LATE: u32 = 1000;
    /// Turns of the runtime after which what is waited for has reached the kernel.
    const TURNS: u32 = 10;

    fn on_every_driver(body: impl AsyncFn(DriverName)) {
        for driver in DriverName::ALL.iter().copied().filter(|name| *name != DriverName::Sim) {
            match choose::probe(driver) {
                Ok(_) => Runtime::new(driver).unwrap().block_on(body(driver)).unwrap(),
                Err(refusal) => eprintln!("skipped: {refusal}"),
            }
        }
    }

    fn stream() -> (UnixStream, Peer) {
        let (ours, theirs) = Peer::pair().unwrap();
        (UnixStream::from_std(ours).unwrap(), theirs)
    }

    /// A session of a server, its link, and its peer.
    fn session() -> (WebSocket, Rc<Link>, Peer) {
        let (ours, theirs) = stream();
        let stream = Transport::Unix(ours);
        let session = WebSocket::new(Role::Server, &Options::new(), None, None, stream, Vec::new(), None);
        let link = session.sender().0;
        (session, link, theirs)
    }

    /// Returns what the next receive returns. It does not wait for long.
    async fn received(session: &mut WebSocket) -> Result<Option<crate::ws::Message>, WebSocketError> {
        time::timeout(Duration::from_secs(60), session.recv()).await.expect("the session ends")
    }

    /// The cancel finds nothing to cancel.
    #[test]
    fn a_session_given_up_while_its_task_does_something_else_tells_so_at_its_next_receive() {
        on_every_driver(async |driver| {
            let (mut session, link, _peer) = session();
            link.pinged.set(1);
            assert!(!link.look(LATE));
            let told = received(&mut session).await;
            assert!(matches!(told, Err(WebSocketError::TimedOut)), "{driver}: {told:?}");
            assert!(matches!(received(&mut session).await, Ok(None)), "{driver}");
            // The peer has broken a rule, and does not end the connection.
            let (mut session, link, mut peer) = self::session();
            peer.write_all(b"\x83\x80....").unwrap();
            let broken = poll_fn(|context| {
                assert!(session.poll_recv(context).is_pending(), "{driver}");
                if session.ending().is_some() { Poll::Ready(()) } else { Poll::Pending }
            });
            time::timeout(Duration::from_secs(60), broken).await.unwrap();
            link.closing.set(1);
            assert!(!link.look(LATE));
            let told = received(&mut session).await;
            assert!(matches!(told, Err(WebSocketError::Protocol(_))), "{driver}: {told:?}");
        });
    }

    /// The cancel comes when the receive has completed, and its task has not run yet.
    #[test]
    fn bytes_that_come_with_the_end_of_a_deadline_do_not_keep_the_session() {
        on_every_driver(async |driver| {
            let (mut session, link, mut peer) = session();
            let (mut bell, mut rope) = stream();
            let mut turns = 0;
            let told = poll_fn(|context| {
                if bell.poll_recv(context).is_ready() {
                    link.pinged.set(1);
                    link.look(LATE);
                }
                if let Poll::Ready(told) = session.poll_recv(context) {
                    return Poll::Ready(told);
                }
                turns += 1;
                if turns < TURNS {
                    context.waker().wake_by_ref();
                } else if turns == TURNS {
                    rope.write_all(b"x").unwrap();
                    peer.write_all(b"\x81\x80....").unwrap();
                }
                Poll::Pending
            });
            let told = time::timeout(Duration::from_secs(60), told).await.expect("something comes");
            // The message may have come before the bell: which is first depends on the driver.
            if let Ok(message) = &told {
                link.pinged.set(1);
                link.look(LATE);
                assert_eq!(message.as_ref().map(|message| message.as_bytes().len()), Some(0), "{driver}");
                let told = received(&mut session).await;
                assert!(matches!(told, Err(WebSocketError::TimedOut)), "{driver}: {told:?}");
            } else {
                assert!(matches!(told, Err(WebSocketError::TimedOut)), "{driver}: {told:?}");
            }
        });
    }

    #[test]
    fn a_peer_that_takes_some_bytes_at_the_end_of_a_deadline_does_not_keep_the_rest_in_memory() {
        on_every_driver(async |driver| {
            let (mut session, link, mut peer) = session();
            let (mut bell, mut rope) = stream();
            session.sender().send(vec![0; 8 << 20]).unwrap();
            link.flush();
            let mut turns = 0;
            let given_up = poll_fn(|context| {
                if bell.poll_recv(context).is_ready() {
                    link.writing.set(1);
                    assert!(!link.look(LATE), "{driver}");
                    return Poll::Ready(());
                }
                turns += 1;
                if turns < TURNS {
                    context.waker().wake_by_ref();
                } else if turns == TURNS {
                    assert!(link.queued() > 0 && link.write.borrow().is_none(), "{driver}: a task sends");
                    rope.write_all(b"x").unwrap();
                    // All: a socket has room again when most of what was sent is read.
                    peer.set_nonblocking(true).unwrap();
                    let mut taken = vec![0; 64 << 10];
                    while peer.read(&mut taken).is_ok() {}
                }
                Poll::Pending
            });
            time::timeout(Duration::from_secs(60), given_up).await.expect("the bell rings");
            assert!(matches!(received(&mut session).await, Err(WebSocketError::TimedOut)), "{driver}");
            drop(session);
            time::timeout(Duration::from_secs(60), async {
                while Rc::strong_count(&link) > 1 {
                    time::sleep(Duration::from_millis(1)).await;
                }
            })
            .await
            .expect("the task that sends ends");
            assert_eq!(link.queued(), 0, "{driver}");
        });
    }
}
