//! A client's connection: one request at a time, and what comes back.

use crate::body::{Piece, Pieces};
use crate::chunk::Chunk;
use crate::error::{BodyError, ClientError};
use ringroad_engine::Lease;
use ringroad_engine::net::TcpStream;
use ringroad_wire::{
    Asked, BodyEncoder, FieldBlock, KeptHead, Method, Phase, ResponseEvent, Responses, Scratch,
};
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// A connection with what was received on it and not used.
pub(super) struct Connection {
    stream: TcpStream,
    responses: Responses,
    input: Vec<u8>,
    used: usize,
}

/// A piece of a response's body, or its end.
pub(super) enum Part {
    Data(Chunk),
    End(Vec<(String, Vec<u8>)>),
}

/// Why there is no response.
pub(super) enum Failed {
    /// Nothing of one has come: the server may not have seen the request.
    Unanswered(ClientError),
    Other(ClientError),
}

impl Failed {
    pub(super) fn into_error(self) -> ClientError {
        match self {
            Failed::Unanswered(why) | Failed::Other(why) => why,
        }
    }
}

impl Connection {
    pub(super) fn new(stream: TcpStream) -> Connection {
        Connection { stream, responses: Responses::new(), input: Vec::new(), used: 0 }
    }

    /// Whether it is still open, with nothing said that nobody asked for.
    pub(super) async fn is_quiet(&mut self) -> bool {
        poll_fn(|context| Poll::Ready(pin!(self.stream.recv()).poll(context).is_pending())).await
    }

    /// Sends a request, and waits for the head of its response; the request's bytes come back.
    pub(super) async fn ask(
        &mut self,
        out: Vec<u8>,
        scratch: &RefCell<Scratch>,
        method: Method,
    ) -> (Result<KeptHead, Failed>, Vec<u8>) {
        let (sent, out) = self.stream.write_all(out).await;
        match (sent, self.head(scratch, method).await) {
            // It may have answered before it closed.
            (_, Ok(head)) => (Ok(head), out),
            (Err(why), Err(Failed::Unanswered(_))) => (Err(Failed::Unanswered(why.into())), out),
            (_, Err(why)) => (Err(why), out),
        }
    }

    /// Sends a head, then a body as its stream gives it. A server that has answered and closed is no error here: its
    /// answer is read next.
    pub(super) async fn send_pieces(
        &mut self,
        mut out: Vec<u8>,
        mut pieces: Pieces,
        mut encoder: BodyEncoder,
    ) -> Result<(), ClientError> {
        let mut trailers = FieldBlock::new();
        loop {
            if !out.is_empty() {
                let (sent, buffer) = self.stream.write_all(out).await;
                if sent.is_err() {
                    return Ok(());
                }
                out = buffer;
                out.clear();
            }
            match poll_fn(|context| pieces.stream.as_mut().poll_next(context)).await {
                Some(Ok(Piece::Data(chunk))) => {
                    encoder.data(&mut out, &chunk).map_err(ClientError::Request)?;
                }
                Some(Ok(Piece::Trailers(lines))) => {
                    trailers = lines;
                    break;
                }
                Some(Err(why)) => return Err(ClientError::Body(why)),
                None => break,
            }
        }
        encoder.end_with(&mut out, &trailers).map_err(ClientError::Request)?;
        // As above.
        let _ = self.stream.write_all(out).await;
        Ok(())
    }

    /// The head of the response to a request that was sent.
    pub(super) async fn head(
        &mut self,
        scratch: &RefCell<Scratch>,
        method: Method,
    ) -> Result<KeptHead, Failed> {
        let refused = |why| Failed::Other(ClientError::Response(why));
        self.responses.begin(Asked::from(method)).map_err(refused)?;
        loop {
            {
                let mut scratch = scratch.borrow_mut();
                match self.responses.next(&mut scratch, &self.input, &mut self.used).map_err(refused)? {
                    Some(ResponseEvent::Head(head)) => {
                        return Ok(head.keep());
                    }
                    Some(_) => continue,
                    None => {}
                }
            }
            let silent = self.input.is_empty();
            let failed = |why| if silent { Failed::Unanswered(why) } else { Failed::Other(why) };
            match self.stream.recv().await {
                Ok(lease) if lease.is_empty() => return Err(failed(ClientError::Closed)),
                Ok(lease) => self.take(&lease),
                Err(why) => return Err(failed(ClientError::Connection(why))),
            }
        }
    }

    fn take(&mut self, more: &[u8]) {
        self.input.drain(..std::mem::take(&mut self.used));
        self.input.extend_from_slice(more);
    }

    /// The next part of the body.
    pub(super) async fn part(&mut self, scratch: &RefCell<Scratch>) -> Result<Part, BodyError> {
        loop {
            let may_go_on = self.used < self.input.len() || self.responses.body_left() == Some(0);
            if may_go_on && let Some(part) = self.parse(scratch)? {
                return Ok(part);
            }
            match self.stream.recv().await {
                Ok(lease) if !lease.is_empty() => {
                    if let Some(part) = self.first(scratch, lease)? {
                        return Ok(part);
                    }
                }
                Ok(_) => {
                    self.responses.end_of_input().map_err(BodyError::Refused)?;
                    return Ok(Part::End(Vec::new()));
                }
                Err(why) => return Err(BodyError::Connection(why)),
            }
        }
    }

    fn parse(&mut self, scratch: &RefCell<Scratch>) -> Result<Option<Part>, BodyError> {
        let mut scratch = scratch.borrow_mut();
        let event = self.responses.next(&mut scratch, &self.input, &mut self.used);
        Ok(part_of(event.map_err(BodyError::Refused)?))
    }

    /// The first part in a buffer: the buffer itself, if all of it is the body's. What is behind is taken in.
    fn first(&mut self, scratch: &RefCell<Scratch>, lease: Lease) -> Result<Option<Part>, BodyError> {
        let inside = self.responses.body_left().is_none_or(|left| left >= lease.len() as u64);
        if self.used < self.input.len() || !inside {
            self.take(&lease);
            return Ok(None);
        }
        let mut at = 0;
        let part = {
            let mut scratch = scratch.borrow_mut();
            match self.responses.next(&mut scratch, &lease, &mut at).map_err(BodyError::Refused)? {
                Some(ResponseEvent::Data(data)) if data.len() == lease.len() => None,
                event => Some(part_of(event)),
            }
        };
        match part {
            None => Ok(Some(Part::Data(Chunk::from(lease)))),
            Some(part) => {
                self.take(lease.get(at..).unwrap_or_default());
                Ok(part)
            }
        }
    }

    /// The connection for another request, if it can have one.
    pub(super) fn into_idle(self) -> Option<TcpStream> {
        let idle = self.responses.phase() == Phase::Idle && self.used == self.input.len();
        idle.then_some(self.stream)
    }
}

/// What an event within a body is to its reader.
fn part_of(event: Option<ResponseEvent<'_>>) -> Option<Part> {
    match event? {
        ResponseEvent::Data(data) => Some(Part::Data(Chunk::from(data.to_vec()))),
        ResponseEvent::End(lines) => {
            let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
            let lines = lines.iter().map(|field| (text(field.name), field.value.to_vec()));
            Some(Part::End(lines.collect()))
        }
        // Not within a body.
        ResponseEvent::Interim(_) | ResponseEvent::Head(_) => None,
    }
}
