//! A client's connection: one request at a time, and what comes back.

use super::reader::{ReadError, ResponseReader};
use crate::body::{Piece, Pieces};
use crate::chunk::Chunk;
use crate::error::{BodyError, ClientError};
use ringroad_engine::net::TcpStream;
use ringroad_wire::{Asked, BodyEncoder, FieldBlock, KeptHead, Method, Scratch};
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// A connection, and what is read off it.
pub(super) struct Connection {
    stream: TcpStream,
    reader: ResponseReader,
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
        Connection { stream, reader: ResponseReader::new() }
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
        let head = self.reader.head(&mut self.stream, scratch, Asked::from(method)).await;
        head.map_err(|why| match why {
            ReadError::Unanswered(None) => Failed::Unanswered(ClientError::Closed),
            ReadError::Unanswered(Some(why)) => Failed::Unanswered(ClientError::Connection(why)),
            ReadError::Closed(_) => Failed::Other(ClientError::Closed),
            ReadError::Refused(why) => Failed::Other(ClientError::Response(why)),
            ReadError::Connection(why) => Failed::Other(ClientError::Connection(why)),
        })
    }

    /// The next part of the body.
    pub(super) async fn part(&mut self, scratch: &RefCell<Scratch>) -> Result<Part, BodyError> {
        match self.reader.next(&mut self.stream, scratch).await {
            Ok(Some(chunk)) => Ok(Part::Data(chunk)),
            Ok(None) => Ok(Part::End(self.reader.take_trailers())),
            Err(ReadError::Refused(why) | ReadError::Closed(Some(why))) => Err(BodyError::Refused(why)),
            Err(ReadError::Connection(why) | ReadError::Unanswered(Some(why))) => {
                Err(BodyError::Connection(why))
            }
            // Of a head only.
            Err(ReadError::Closed(None) | ReadError::Unanswered(None)) => Err(BodyError::Over),
        }
    }

    /// The connection for another request, if it can have one.
    pub(super) fn into_idle(self) -> Option<TcpStream> {
        self.reader.is_idle().then_some(self.stream)
    }
}
