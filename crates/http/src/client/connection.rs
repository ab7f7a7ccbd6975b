//! A client's connection: one request at a time, and its response.

use super::error::ClientError;
use super::failure::{FailedAt, SentSoFar};
use super::outgoing::{AT_ONCE_BYTES, Both, Outgoing, Sending};
use super::reader::{ReadError, ResponseReader};
use crate::message::{BodyError, Chunk, Pieces};
use crate::transport::Transport;
use ringroad_engine::time;
use ringroad_wire::{Asked, BodyEncoder, KeptHead, Scratch, Status};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

/// Maximum wait for the end of a request that was already answered.
const SETTLING: Duration = Duration::from_millis(50);

/// A connection with its input buffer.
pub(super) struct Connection {
    stream: Transport,
    reader: ResponseReader,
    outgoing: Outgoing,
    /// The bytes of a request that was sent, or could not be: another connection may send it.
    unsent: Vec<u8>,
}

/// A piece of a response's body, or its end.
pub(super) enum Part {
    Data(Chunk),
    End(Vec<(String, Vec<u8>)>),
}

/// Why there is no response.
pub(super) enum Failed {
    /// No byte of a response has arrived: the server may not have seen the request.
    Unanswered(ClientError),
    /// The request is incomplete: the source of its body failed.
    Unsendable(ClientError),
    Other(ClientError),
}

impl Failed {
    /// Returns the step of the exchange that this error belongs to.
    pub(super) fn at(&self) -> FailedAt {
        match self {
            Failed::Unanswered(_) => FailedAt::Head,
            Failed::Unsendable(_) => FailedAt::Send,
            Failed::Other(_) => FailedAt::HeadBegun,
        }
    }

    pub(super) fn into_error(self) -> ClientError {
        match self {
            Failed::Unanswered(why) | Failed::Unsendable(why) | Failed::Other(why) => why,
        }
    }
}

impl Connection {
    pub(super) fn new(stream: Transport) -> Connection {
        let (reader, outgoing) = (ResponseReader::new(), Outgoing::Sent);
        Connection { stream, reader, outgoing, unsent: Vec::new() }
    }

    /// Sends a request, and waits for the head of its response, which may arrive before all of the request is
    /// sent. The rest is sent while the body is read. `reached` records when all is sent.
    pub(super) async fn ask(
        &mut self,
        out: Vec<u8>,
        rest: Option<(Pieces, BodyEncoder)>,
        scratch: &RefCell<Scratch>,
        asked: Asked,
        reached: &Cell<(FailedAt, SentSoFar)>,
    ) -> Result<KeptHead, Failed> {
        reached.set((FailedAt::Send, SentSoFar::Part));
        if rest.is_none() && out.len() <= AT_ONCE_BYTES {
            let (sent, bytes) = self.stream.write_all(out).await;
            self.unsent = bytes;
            match sent {
                Ok(()) => reached.set((FailedAt::Head, SentSoFar::All)),
                // It may have answered before it closed.
                Err(why) => self.outgoing = Outgoing::Cut { why: Some(ClientError::Connection(why)) },
            }
        } else {
            self.outgoing = Outgoing::begin(Sending::new(out, rest), &mut self.stream);
        }
        let head = self.head_of(scratch, asked, Some(reached)).await?;
        let view = head.view();
        // RFC 9112 §9.5: such a server reads no more of the request.
        if view.status().code() >= 300 && !view.keep_alive() {
            self.outgoing.stop();
        }
        Ok(head)
    }

    /// Waits briefly for the end of a request that was answered: its last bytes may be sent without a
    /// completion so far. If the server refused the request, it does not wait.
    pub(super) async fn settle(&mut self, status: Status) {
        let Connection { stream, outgoing, unsent, .. } = self;
        if status.code() < 300 && outgoing.is_going() {
            let mut both = Both { stream, outgoing, unsent, reached: None, sends_first: false };
            let sent = poll_fn(|context| {
                let _ = both.poll_outgoing(context);
                if both.outgoing.is_going() { Poll::Pending } else { Poll::Ready(()) }
            });
            let _ = time::timeout(SETTLING, sent).await;
        }
    }

    /// Ends the connection, and returns the bytes of its last request, unless the body was a stream.
    pub(super) async fn into_request(mut self) -> Vec<u8> {
        match self.outgoing {
            Outgoing::Going(sending) => sending.take_back(&mut self.stream).await,
            Outgoing::Sent | Outgoing::Cut { .. } => self.unsent,
        }
    }

    async fn head_of(
        &mut self,
        scratch: &RefCell<Scratch>,
        asked: Asked,
        reached: Option<&Cell<(FailedAt, SentSoFar)>>,
    ) -> Result<KeptHead, Failed> {
        let Connection { stream, reader, outgoing, unsent } = self;
        let mut both = Both { stream, outgoing, unsent, reached, sends_first: false };
        let head = reader.head(&mut both, scratch, asked).await;
        head.map_err(|why| match (why, self.outgoing.take_failure()) {
            // The error that stopped the request is more specific than the missing answer.
            (_, Some(why @ (ClientError::Body(_) | ClientError::Request(_)))) => Failed::Unsendable(why),
            (ReadError::Unanswered(_), Some(why)) => Failed::Unanswered(why),
            (ReadError::Unanswered(None), None) => Failed::Unanswered(ClientError::Closed),
            (ReadError::Unanswered(Some(why)), None) => Failed::Unanswered(ClientError::Connection(why)),
            (ReadError::Closed(_), _) => Failed::Other(ClientError::Closed),
            (ReadError::Refused(why), _) => Failed::Other(ClientError::Response(why)),
            (ReadError::Connection(why), _) => Failed::Other(ClientError::Connection(why)),
        })
    }

    /// Returns the next part of the body.
    pub(super) async fn part(&mut self, scratch: &RefCell<Scratch>) -> Result<Part, BodyError> {
        let Connection { stream, reader, outgoing, unsent } = self;
        let mut both = Both { stream, outgoing, unsent, reached: None, sends_first: false };
        let why = match reader.next(&mut both, scratch).await {
            Ok(Some(chunk)) => return Ok(Part::Data(chunk)),
            Ok(None) => return Ok(Part::End(self.reader.take_trailers())),
            Err(why) => why,
        };
        if let Some(why @ (ClientError::Body(_) | ClientError::Request(_))) = self.outgoing.take_failure() {
            return Err(BodyError::Source(Box::new(why)));
        }
        Err(match why {
            ReadError::Refused(why) | ReadError::Closed(Some(why)) => BodyError::Refused(why),
            ReadError::Connection(why) | ReadError::Unanswered(Some(why)) => BodyError::Connection(why),
            // Only a head can have this error.
            ReadError::Closed(None) | ReadError::Unanswered(None) => BodyError::Over,
        })
    }

    /// Returns the connection, and the bytes received after a 101 response.
    pub(super) fn into_upgraded(self) -> (Transport, Vec<u8>) {
        (self.stream, self.reader.into_rest())
    }

    /// Returns the connection if it can carry another request: its last request was sent completely.
    pub(super) fn into_idle(self) -> Option<Transport> {
        (self.outgoing.is_sent() && self.reader.is_idle()).then_some(self.stream)
    }
}
