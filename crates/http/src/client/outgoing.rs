//! A request being sent while its answer is awaited and read.
//!
//! A server may answer before it has read all of a request (RFC 9112 §9.5): it refuses the body, or it
//! answers piece by piece while it reads. A client that first sends and then receives would miss the former,
//! and deadlock with the latter. So every receive also sends: see [`Both`].

use super::error::ClientError;
use super::failure::{FailedAt, SentSoFar};
use crate::message::{Piece, Pieces};
use crate::transport::{Receive, Transport, TransportSend};
use ringroad_bridge::Sink as _;
use ringroad_engine::{Error, Lease, Result};
use ringroad_wire::{BodyEncoder, FieldBlock};
use rustix::io::Errno;
use std::cell::Cell;
use std::io;
use std::net::Shutdown;
use std::task::{Context, Poll, ready};

/// Up to this many bytes of a request are sent before its answer is checked for: any socket takes them
/// without waiting for its peer.
pub(super) const AT_ONCE_BYTES: usize = 16 * 1024;

/// How much of the request on a connection was sent.
pub(super) enum Outgoing {
    /// All of it.
    Sent,
    /// It is being sent.
    Going(Box<Sending>),
    /// It was not sent completely.
    Cut {
        /// The reason, until it is reported; `None`: the server does not want the rest.
        why: Option<ClientError>,
    },
}

/// A request that is being sent.
pub(super) struct Sending {
    /// The send in flight.
    send: Option<TransportSend>,
    /// The source of the rest of the body, and its framing.
    rest: Option<(Pieces, BodyEncoder)>,
    /// The bytes that were sent last, or could not be sent.
    out: Vec<u8>,
}

impl Sending {
    /// Makes a request of these bytes, and of the body after them.
    pub(super) fn new(out: Vec<u8>, rest: Option<(Pieces, BodyEncoder)>) -> Box<Sending> {
        Box::new(Sending { send: None, rest, out })
    }

    /// Begins to send what is in `out`.
    fn begin(&mut self, stream: &mut Transport) {
        if !self.out.is_empty() {
            self.send = Some(stream.begin_send(std::mem::take(&mut self.out)));
        }
    }

    /// Sends. Ready at the end of the request, or when it cannot be sent.
    fn poll(
        &mut self,
        stream: &mut Transport,
        context: &mut Context<'_>,
    ) -> Poll<std::result::Result<(), ClientError>> {
        loop {
            if let Some(send) = &mut self.send {
                let (sent, bytes) = ready!(stream.poll_send(send, context));
                (self.send, self.out) = (None, bytes);
                sent.map_err(ClientError::Connection)?;
            }
            let Some((pieces, encoder)) = &mut self.rest else { return Poll::Ready(Ok(())) };
            let mut trailers = FieldBlock::new();
            let piece = ready!(pieces.stream.as_mut().poll_next(context));
            self.out.clear();
            match piece {
                Some(Ok(Piece::Data(chunk))) => {
                    encoder.data(&mut self.out, &chunk).map_err(ClientError::Request)?;
                    self.begin(stream);
                    continue;
                }
                Some(Ok(Piece::Trailers(lines))) => trailers = lines,
                Some(Err(why)) => return Poll::Ready(Err(ClientError::Body(why))),
                None => {}
            }
            if let Some((_, encoder)) = self.rest.take() {
                encoder.end_with(&mut self.out, &trailers).map_err(ClientError::Request)?;
            }
            self.begin(stream);
        }
    }

    /// Ends the send, and returns the bytes that were sent last: the whole request, unless its body is a
    /// stream.
    pub(super) async fn take_back(mut self: Box<Self>, stream: &mut Transport) -> Vec<u8> {
        self.rest = None;
        if let Some(mut send) = self.send.take() {
            // The send ends by this, at the latest with an error.
            let _ = stream.shutdown(Shutdown::Both);
            (_, self.out) = std::future::poll_fn(|context| stream.poll_send(&mut send, context)).await;
        }
        self.out
    }
}

impl Outgoing {
    /// Begins to send.
    pub(super) fn begin(mut sending: Box<Sending>, stream: &mut Transport) -> Outgoing {
        sending.begin(stream);
        Outgoing::Going(sending)
    }

    /// Returns whether all of the request is sent.
    pub(super) fn is_sent(&self) -> bool {
        matches!(self, Outgoing::Sent)
    }

    /// Returns whether it is being sent.
    pub(super) fn is_going(&self) -> bool {
        matches!(self, Outgoing::Going(_))
    }

    /// Returns why it was cut off. The reason is returned once.
    pub(super) fn take_failure(&mut self) -> Option<ClientError> {
        match self {
            Outgoing::Cut { why } => why.take(),
            Outgoing::Sent | Outgoing::Going(_) => None,
        }
    }

    /// Drops the source of the rest of the body. A send in flight stays until the connection is closed: the
    /// kernel has its bytes.
    pub(super) fn stop(&mut self) {
        if matches!(self, Outgoing::Going(_)) {
            *self = Outgoing::Cut { why: None };
        }
    }
}

/// A connection that is received from while a request is sent on it.
pub(super) struct Both<'a> {
    pub(super) stream: &'a mut Transport,
    pub(super) outgoing: &'a mut Outgoing,
    /// Bytes of a request that could not be sent, for another connection.
    pub(super) unsent: &'a mut Vec<u8>,
    /// Records when all of the request was sent.
    pub(super) reached: Option<&'a Cell<(FailedAt, SentSoFar)>>,
    /// Whether it sends before it receives. The order alternates, so that neither uses the task's whole
    /// budget.
    pub(super) sends_first: bool,
}

impl Both<'_> {
    /// Sends. An error also ends the receive: no answer can follow.
    pub(super) fn poll_outgoing(&mut self, context: &mut Context<'_>) -> Result<()> {
        let Outgoing::Going(sending) = self.outgoing else { return Ok(()) };
        let Poll::Ready(sent) = sending.poll(self.stream, context) else { return Ok(()) };
        *self.unsent = std::mem::take(&mut sending.out);
        let Err(why) = sent else {
            *self.outgoing = Outgoing::Sent;
            if let Some(reached) = self.reached {
                reached.set((FailedAt::Head, SentSoFar::All));
            }
            return Ok(());
        };
        // The server may have answered before it closed; that answer must still be received.
        let may_be_answered = matches!(&why, ClientError::Connection(why) if is_of_the_peer(why));
        *self.outgoing = Outgoing::Cut { why: Some(why) };
        if may_be_answered {
            return Ok(());
        }
        Err(Error::layered("send", io::Error::other("the request could not be sent")))
    }
}

/// Returns whether a send failed because the peer has closed or reset the connection.
fn is_of_the_peer(why: &Error) -> bool {
    let errno = why.raw_os_error().map(Errno::from_raw_os_error);
    matches!(
        errno,
        Some(Errno::PIPE | Errno::CONNRESET | Errno::CONNABORTED | Errno::TIMEDOUT | Errno::NOTCONN)
    )
}

impl Receive for Both<'_> {
    fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Result<Lease>> {
        self.sends_first = !self.sends_first;
        if !self.sends_first
            && let Poll::Ready(received) = self.stream.poll_recv(context)
        {
            return Poll::Ready(received);
        }
        self.poll_outgoing(context)?;
        match self.sends_first {
            true => self.stream.poll_recv(context),
            false => Poll::Pending,
        }
    }

    fn is_quiet(&mut self) -> bool {
        self.stream.is_quiet()
    }
}
