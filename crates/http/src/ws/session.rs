//! A session: receiving messages, and its end.
//!
//! All state of a wait is in the session, not in its futures, so dropping one loses nothing. Start at
//! [`WebSocket::poll_recv`].

use super::error::{SendError, WebSocketError};
use super::keeper::{self, with_scratch};
use super::link::{Link, Sender, State, Verdict, room};
use super::message::{Frame, Message};
use super::options::Options;
use crate::message::Stopping;
use crate::transport::{ReadTransport, Receive, Transport};
use ringroad_engine::Lease;
use ringroad_engine::sync::budget::poll_counted;
pub(crate) use ringroad_wire::ws::Role;
use ringroad_wire::ws::deflate::Agreed;
use ringroad_wire::ws::{CloseCode, Event, Messages};
use std::fmt;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// The peer's close frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// The code of the frame; 1005 if it had none.
    pub code: CloseCode,
    /// The reason in the frame.
    pub reason: String,
}

/// Received bytes that are not parsed yet.
enum Input {
    Lease(Lease),
    Own(Vec<u8>),
}

impl Input {
    fn len(&self) -> usize {
        match self {
            Input::Lease(lease) => lease.len(),
            Input::Own(bytes) => bytes.len(),
        }
    }
}

/// Phase of the session.
enum Phase {
    /// Messages are received.
    Open,
    /// Received bytes are discarded until the peer ends the connection, so that it gets our close frame. Then
    /// this error is reported.
    Ending(Option<WebSocketError>),
    Over,
}

/// A WebSocket session. Dropping it closes it, with 1000 if it was open.
///
/// A session answers pings while it receives, so keep a `recv` pending, or call it regularly. The futures of
/// all methods may be dropped without loss.
pub struct WebSocket {
    link: Rc<Link>,
    read: ReadTransport,
    messages: Messages,
    input: Input,
    at: usize,
    phase: Phase,
    protocol: Option<Box<str>>,
    options: Options,
}

impl WebSocket {
    pub(crate) fn new(
        role: Role,
        options: &Options,
        agreed: Option<Agreed>,
        protocol: Option<String>,
        stream: Transport,
        received: Vec<u8>,
        stopping: Option<Stopping>,
    ) -> WebSocket {
        let (read, write) = stream.split();
        let link = Link::new(write, role, options.clone(), agreed);
        keeper::join(&link, stopping);
        WebSocket {
            link,
            read,
            messages: Messages::new(role, options.0.limits).deflate(agreed),
            input: Input::Own(received),
            at: 0,
            phase: Phase::Open,
            protocol: protocol.map(Into::into),
            options: options.clone(),
        }
    }

    /// Returns the agreed subprotocol.
    pub fn protocol(&self) -> Option<&str> {
        self.protocol.as_deref()
    }

    /// Returns the peer's close frame, once it has come.
    pub fn closed(&self) -> Option<Closed> {
        self.link.closed()
    }

    /// Returns the code with which the session ends, once the peer has closed or broken a rule. It is known
    /// before [`recv`](Self::recv) reports the end: `recv` waits, for a few seconds, until the peer has ended
    /// the connection. A caller that acts on the end need not wait that long.
    pub fn ending(&self) -> Option<CloseCode> {
        match &self.phase {
            Phase::Open | Phase::Over => None,
            Phase::Ending(None) => self.link.closed().map(|closed| closed.code),
            Phase::Ending(Some(why)) => Some(why.code()),
        }
    }

    /// Returns a handle by which other tasks of this worker send.
    pub fn sender(&self) -> Sender {
        Sender(Rc::clone(&self.link))
    }

    /// Returns the next message. `None` means that either side closed the session, and the closing handshake
    /// is complete.
    ///
    /// # Errors
    /// The session ended in another way. Further calls return `None`.
    pub async fn recv(&mut self) -> Result<Option<Message>, WebSocketError> {
        poll_fn(|context| self.poll_recv(context)).await
    }

    /// Works as [`recv`](Self::recv), for a hand-written future.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Message>, WebSocketError>> {
        loop {
            if !matches!(self.phase, Phase::Open) {
                return self.poll_end(context);
            }
            // A large buffer may hold a hundred thousand messages, so each counts against the task's budget.
            let mut parsed = None;
            let _ = poll_counted(context, |_| {
                let next = self.parse();
                let waits = matches!(next, Ok(None));
                parsed = Some(next);
                if waits { Poll::Pending } else { Poll::Ready(()) }
            });
            let Some(parsed) = parsed else {
                // Sends the queue before it yields.
                if self.link.queued() > 0 {
                    self.link.flush();
                }
                return Poll::Pending;
            };
            match parsed {
                Ok(Some(message)) => return Poll::Ready(Ok(Some(message))),
                Ok(None) if !matches!(self.phase, Phase::Open) => continue,
                Ok(None) => {}
                Err(why) => {
                    self.link.give_up(why.code(), &why.to_string());
                    self.phase = Phase::Ending(Some(WebSocketError::Protocol(why)));
                    continue;
                }
            }
            self.keep_rest();
            // The answers of this turn are sent together, before anything is waited for.
            if self.link.queued() > 0 {
                self.link.flush();
            }
            if self.link.is_given_up() {
                return Poll::Ready(self.lost(None));
            }
            match ready!(self.read.poll_recv(context)) {
                Ok(lease) if !lease.is_empty() => {
                    self.link.heard();
                    self.take(lease);
                }
                Ok(_) => return Poll::Ready(self.lost(None)),
                Err(why) => return Poll::Ready(self.lost(Some(why))),
            }
        }
    }

    /// Returns the next message in the received bytes. `Ok(None)`: more bytes are needed, or the peer has
    /// closed.
    #[inline]
    fn parse(&mut self) -> Result<Option<Message>, ringroad_wire::ws::Error> {
        let WebSocket { link, messages, input, at, phase, .. } = self;
        let input = match input {
            Input::Lease(lease) => &mut lease[..],
            Input::Own(bytes) => &mut bytes[..],
        };
        with_scratch(|scratch| {
            loop {
                match messages.next(scratch, input, at)? {
                    None => return Ok(None),
                    Some(Event::Message { kind, bytes }) => return Ok(Some(Message::received(kind, bytes))),
                    Some(Event::Ping(payload)) => link.pong(payload),
                    Some(Event::Pong(_)) => {}
                    Some(Event::Close(close)) => {
                        let (code, reason) = close.unwrap_or((CloseCode::NO_STATUS, ""));
                        link.peer_closed(Closed { code, reason: reason.to_owned() });
                        *phase = Phase::Ending(None);
                        return Ok(None);
                    }
                }
            }
        })
    }

    /// Releases the receive buffer. The beginning of a frame is kept, at most 131 bytes.
    fn keep_rest(&mut self) {
        let at = std::mem::take(&mut self.at);
        match &mut self.input {
            Input::Lease(lease) => self.input = Input::Own(lease.get(at..).unwrap_or_default().to_vec()),
            Input::Own(bytes) if at == bytes.len() => *bytes = Vec::new(),
            Input::Own(bytes) => drop(bytes.drain(..at)),
        }
    }

    fn take(&mut self, lease: Lease) {
        match &mut self.input {
            Input::Own(bytes) if !bytes.is_empty() => bytes.extend_from_slice(&lease),
            input => *input = Input::Lease(lease),
        }
    }

    /// Ends the session after the end or the failure of the connection.
    fn lost(&mut self, why: Option<ringroad_engine::Error>) -> Result<Option<Message>, WebSocketError> {
        let was_closing = self.link.state() == State::Closing;
        self.link.end();
        self.phase = Phase::Over;
        match (self.link.verdict(), why) {
            (Verdict::TimedOut, _) => Err(WebSocketError::TimedOut),
            // We closed, and the peer did not answer in time.
            (Verdict::Unclosed, _) => Ok(None),
            (Verdict::Broken, _) | (Verdict::None, None) if was_closing => Ok(None),
            (Verdict::Broken, _) | (Verdict::None, None) => Err(WebSocketError::Lost),
            (Verdict::None, Some(why)) => Err(WebSocketError::Connection(why)),
        }
    }

    /// Discards received bytes up to the end of the connection.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Message>, WebSocketError>> {
        (self.input, self.at) = (Input::Own(Vec::new()), 0);
        while matches!(self.phase, Phase::Ending(_)) && !self.link.is_given_up() {
            match ready!(self.read.poll_recv(context)) {
                Ok(lease) if !lease.is_empty() => {}
                _ => break,
            }
        }
        match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Ending(Some(why)) => Poll::Ready(Err(why)),
            Phase::Open | Phase::Ending(None) | Phase::Over => Poll::Ready(Ok(None)),
        }
    }

    /// Sends a message. Completion means that the message is queued and little is queued before it: the
    /// kernel has it or will get it soon. Waits while the peer is slow.
    ///
    /// # Errors
    /// The session is closed or has failed.
    pub async fn send(&mut self, message: impl Into<Message>) -> Result<(), WebSocketError> {
        if self.link.state() != State::Open {
            return Err(self.why_closed());
        }
        self.link.push_unbounded(message.into());
        self.sent();
        self.flushed(room(&self.options)).await
    }

    /// Sends a frame that other sessions send as well, without a copy.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn send_frame(&mut self, frame: &Frame) -> Result<(), WebSocketError> {
        self.flushed(room(&self.options)).await?;
        match self.link.push_frame(frame) {
            Ok(()) => {}
            Err(SendError::Closed) => return Err(self.why_closed()),
            Err(SendError::Full) => {
                self.flushed(0).await?;
                self.link.push_frame(frame).map_err(|_| WebSocketError::Closed)?;
            }
        }
        self.sent();
        Ok(())
    }

    /// Waits until the kernel has everything that was sent.
    ///
    /// # Errors
    /// The session has failed.
    pub async fn flush(&mut self) -> Result<(), WebSocketError> {
        self.link.flush();
        self.flushed(0).await
    }

    async fn flushed(&self, most: usize) -> Result<(), WebSocketError> {
        if self.link.queued() <= most {
            return Ok(());
        }
        self.link.flush();
        poll_fn(|context| self.link.poll_room(most, context)).await
    }

    /// Schedules a flush: while more received messages are at hand, their answers are sent together.
    #[inline]
    fn sent(&self) {
        if self.at < self.input.len() {
            self.link.flush_soon();
        } else {
            self.link.flush();
        }
    }

    fn why_closed(&self) -> WebSocketError {
        match self.link.verdict() {
            Verdict::TimedOut => WebSocketError::TimedOut,
            Verdict::Broken => WebSocketError::Lost,
            Verdict::None | Verdict::Unclosed => WebSocketError::Closed,
        }
    }

    /// Closes the session: sends a close frame after the queued data, and waits a few seconds for the peer's.
    /// Received messages are discarded.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub async fn close(&mut self, code: CloseCode, reason: &str) -> Result<(), WebSocketError> {
        if self.link.close(code, reason) {
            self.link.flush();
        }
        while self.recv().await?.is_some() {}
        Ok(())
    }
}

impl Drop for WebSocket {
    fn drop(&mut self) {
        self.link.drop_session();
        keeper::leave();
    }
}

impl fmt::Debug for WebSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WebSocket({:?}, {} bytes queued)", self.link.state(), self.link.queued())
    }
}
