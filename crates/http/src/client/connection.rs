//! A client's connection: one request at a time, and what comes back.

use super::error::ClientError;
use super::failure::FailedAt;
use super::reader::{ReadError, ResponseReader};
use crate::message::{BodyError, Chunk, Piece, Pieces};
use crate::transport::Transport;
use ringroad_wire::{Asked, BodyEncoder, FieldBlock, KeptHead, Method, Scratch};
use std::cell::RefCell;
use std::future::poll_fn;

/// A connection with its input buffer.
pub(super) struct Connection {
    stream: Transport,
    reader: ResponseReader,
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
    Other(ClientError),
}

impl Failed {
    /// The step of the exchange that this error belongs to.
    pub(super) fn at(&self) -> FailedAt {
        match self {
            Failed::Unanswered(_) => FailedAt::Head,
            Failed::Other(_) => FailedAt::HeadBegun,
        }
    }

    pub(super) fn into_error(self) -> ClientError {
        match self {
            Failed::Unanswered(why) | Failed::Other(why) => why,
        }
    }
}

impl Connection {
    pub(super) fn new(stream: Transport) -> Connection {
        Connection { stream, reader: ResponseReader::new() }
    }

    /// Sends a request's bytes, which come back.
    pub(super) async fn send(&mut self, out: Vec<u8>) -> (ringroad_engine::Result<()>, Vec<u8>) {
        self.stream.write_all(out).await
    }

    /// Sends a head, then a body as its stream gives it. A server that has answered and closed is no error
    /// here: its answer is read next.
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
        // As in the branch above.
        let _ = self.stream.write_all(out).await;
        Ok(())
    }

    /// The head of the response to a request that was sent.
    pub(super) async fn head(
        &mut self,
        scratch: &RefCell<Scratch>,
        method: Method,
    ) -> Result<KeptHead, Failed> {
        self.head_of(scratch, Asked::from(method)).await
    }

    /// The head of the response to a GET that offered another protocol.
    pub(super) async fn upgraded(&mut self, scratch: &RefCell<Scratch>) -> Result<KeptHead, Failed> {
        self.head_of(scratch, Asked { upgrade: true, ..Asked::from(Method::Get) }).await
    }

    async fn head_of(&mut self, scratch: &RefCell<Scratch>, asked: Asked) -> Result<KeptHead, Failed> {
        let head = self.reader.head(&mut self.stream, scratch, asked).await;
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
            // Only a head has an error like this.
            Err(ReadError::Closed(None) | ReadError::Unanswered(None)) => Err(BodyError::Over),
        }
    }

    /// Returns the connection and the bytes received behind a 101 response.
    pub(super) fn into_upgraded(self) -> (Transport, Vec<u8>) {
        (self.stream, self.reader.into_rest())
    }

    /// Returns the connection if it can carry another request.
    pub(super) fn into_idle(self) -> Option<Transport> {
        self.reader.is_idle().then_some(self.stream)
    }
}
