//! The body of a request: received from a client, or made from bytes or a stream.

use super::chunk::Chunk;
use super::error::{BodyError, BoxError};
use super::incoming::{Incoming, Trailers};
use super::{Body, Piece};
use futures_core::Stream;
use ringroad_wire::FieldBlock;
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// The body of a request: pieces, received as the reader requests them.
///
/// If it is dropped unread, the rest is discarded; if the rest is long, the connection is closed. If another
/// task reads it, the read fails when the request is answered earlier.
///
/// A program can also make a body: of bytes (`RequestBody::from`), of a [stream](Self::stream), or of pieces
/// that were read before and the [rest](Self::replay).
#[derive(Debug, Default)]
pub struct RequestBody(Source);

#[derive(Debug, Default)]
enum Source {
    #[default]
    Empty,
    Received(Rc<Incoming>),
    Made(Box<Made>),
}

type Pieces = Pin<Box<dyn Stream<Item = Result<Chunk, BodyError>>>>;

/// A made body: first these pieces, then the rest.
struct Made {
    pieces: VecDeque<Chunk>,
    rest: Rest,
    /// Bytes of it that are left, if known.
    left: Option<u64>,
    /// Bytes that are still allowed.
    allowed: u64,
    allowed_at_first: usize,
    trailers: Trailers,
}

enum Rest {
    None,
    Stream(Pieces),
    Body(RequestBody),
}

impl Made {
    fn body(pieces: VecDeque<Chunk>, rest: Rest, left: Option<u64>) -> RequestBody {
        let made = Made {
            pieces,
            rest,
            left,
            allowed: u64::MAX,
            allowed_at_first: usize::MAX,
            trailers: Vec::new(),
        };
        RequestBody(Source::Made(Box::new(made)))
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Chunk, BodyError>>> {
        let next = match self.pieces.pop_front() {
            Some(piece) => Poll::Ready(Some(Ok(piece))),
            None => match &mut self.rest {
                Rest::None => Poll::Ready(None),
                Rest::Stream(stream) => stream.as_mut().poll_next(context),
                Rest::Body(body) => body.poll(context),
            },
        };
        let Poll::Ready(Some(Ok(piece))) = &next else {
            return next;
        };
        let bytes = piece.len() as u64;
        self.left = self.left.map(|left| left.saturating_sub(bytes));
        match self.allowed.checked_sub(bytes) {
            Some(allowed) => {
                self.allowed = allowed;
                next
            }
            None => {
                self.rest = Rest::None;
                self.pieces.clear();
                Poll::Ready(Some(Err(BodyError::TooLong(self.allowed_at_first))))
            }
        }
    }
}

impl fmt::Debug for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Made({:?} bytes left)", self.left)
    }
}

impl RequestBody {
    /// Makes an empty body.
    pub const fn empty() -> RequestBody {
        RequestBody(Source::Empty)
    }

    pub(crate) fn received(incoming: Option<Rc<Incoming>>) -> RequestBody {
        RequestBody(incoming.map_or(Source::Empty, Source::Received))
    }

    /// Makes a body of the stream's pieces; `size` is its length in bytes, if known. The next piece is
    /// requested when the last was taken.
    pub fn stream<S>(size: Option<u64>, stream: S) -> RequestBody
    where
        S: Stream<Item = Result<Chunk, BodyError>> + 'static,
    {
        Made::body(VecDeque::new(), Rest::Stream(Box::pin(stream)), size)
    }

    /// Makes a body of pieces that were read already and the rest of their body. The trailers are those of
    /// the rest.
    pub fn replay(pieces: impl IntoIterator<Item = Chunk>, rest: RequestBody) -> RequestBody {
        let pieces: VecDeque<Chunk> = pieces.into_iter().collect();
        let before: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        let left = rest.bytes_left().map(|left| left + before);
        Made::body(pieces, Rest::Body(rest), left)
    }

    /// Adds trailers: names and values.
    #[must_use]
    pub fn with_trailers(self, trailers: Vec<(String, Vec<u8>)>) -> RequestBody {
        let mut body = match self.0 {
            Source::Made(_) => self,
            Source::Empty => Made::body(VecDeque::new(), Rest::None, Some(0)),
            Source::Received(_) => RequestBody::replay([], self),
        };
        if let Source::Made(made) = &mut body.0 {
            made.trailers = trailers;
        }
        body
    }

    /// Returns the next piece; `None` at the end.
    ///
    /// # Errors
    /// The body breaks the protocol or a limit, arrives too slowly, or the connection ended before its end.
    pub async fn next(&mut self) -> Option<Result<Chunk, BodyError>> {
        poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Chunk, BodyError>>> {
        match &mut self.0 {
            Source::Empty => Poll::Ready(None),
            Source::Received(incoming) => incoming.poll_next(context),
            Source::Made(made) => made.poll_next(context),
        }
    }

    /// Returns the bytes that are left, if known.
    pub fn bytes_left(&self) -> Option<u64> {
        match &self.0 {
            Source::Empty => Some(0),
            Source::Received(incoming) => incoming.left(),
            Source::Made(made) => made.left,
        }
    }

    /// Returns whether nothing is left, so that a read would only find the end.
    pub fn is_empty(&self) -> bool {
        self.bytes_left() == Some(0)
    }

    /// Limits the bytes that are still taken; a later call can only lower the limit. If the body exceeds it,
    /// [`next`](Self::next) returns [`BodyError::TooLong`].
    ///
    /// # Errors
    /// [`BodyError::TooLong`] if the body is known to be longer. The answer is 413, and none of it is
    /// received.
    pub fn limit(&mut self, bytes_max: u64) -> Result<(), BodyError> {
        let at_first = usize::try_from(bytes_max).unwrap_or(usize::MAX);
        // Checked first: the limit drops a piece that is too long already.
        let left = self.bytes_left();
        match &mut self.0 {
            Source::Empty => {}
            Source::Received(incoming) => incoming.limit(bytes_max),
            Source::Made(made) if bytes_max < made.allowed => {
                (made.allowed, made.allowed_at_first) = (bytes_max, at_first);
            }
            Source::Made(_) => {}
        }
        match left {
            Some(left) if left > bytes_max => Err(BodyError::TooLong(at_first)),
            _ => Ok(()),
        }
    }

    /// Removes the minimum rate of an HTTP/2 client, for calls in which both sides send when they like. The
    /// reader needs a deadline of its own then.
    pub fn take_time(&mut self) {
        match &mut self.0 {
            Source::Received(incoming) => incoming.take_time(),
            Source::Made(made) => {
                if let Rest::Body(body) = &mut made.rest {
                    body.take_time();
                }
            }
            Source::Empty => {}
        }
    }

    /// Returns the trailers, once the body has ended.
    pub fn trailers(&mut self) -> Vec<(String, Vec<u8>)> {
        match &mut self.0 {
            Source::Empty => Vec::new(),
            Source::Received(incoming) => incoming.trailers(),
            Source::Made(made) => {
                let mut trailers = std::mem::take(&mut made.trailers);
                if let Rest::Body(body) = &mut made.rest {
                    trailers.extend(body.trailers());
                }
                trailers
            }
        }
    }

    /// Reads all of the body, if it is not longer than `bytes_max`.
    ///
    /// # Errors
    /// As [`next`](Self::next); [`BodyError::TooLong`].
    pub async fn bytes(&mut self, bytes_max: usize) -> Result<Vec<u8>, BodyError> {
        if self.bytes_left().is_some_and(|left| left > bytes_max as u64) {
            return Err(BodyError::TooLong(bytes_max));
        }
        let mut all = Vec::new();
        while let Some(piece) = self.next().await {
            let piece = piece?;
            if piece.len() > bytes_max - all.len() {
                return Err(BodyError::TooLong(bytes_max));
            }
            if all.is_empty() {
                all = piece.into_vec();
            } else {
                all.extend_from_slice(&piece);
            }
        }
        Ok(all)
    }
}

impl Stream for RequestBody {
    type Item = Result<Chunk, BodyError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll(context)
    }
}

impl<T: Into<Chunk>> From<T> for RequestBody {
    fn from(bytes: T) -> RequestBody {
        let chunk = bytes.into();
        let bytes = chunk.len() as u64;
        if bytes == 0 {
            return RequestBody::empty();
        }
        Made::body(VecDeque::from([chunk]), Rest::None, Some(bytes))
    }
}

impl From<RequestBody> for Body {
    /// Makes a body that forwards this one, with the trailers if the framing can carry them.
    fn from(body: RequestBody) -> Body {
        match body.bytes_left() {
            Some(0) => Body::empty(),
            Some(left) => Body::stream_of(left, body),
            None => Body::stream(Forwarded(Some(body))),
        }
    }
}

/// A body as pieces, then its trailers.
struct Forwarded(Option<RequestBody>);

impl Stream for Forwarded {
    type Item = Result<Piece, BoxError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(body) = &mut self.0 else { return Poll::Ready(None) };
        match body.poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(Ok(piece))) => Poll::Ready(Some(Ok(Piece::Data(piece)))),
            Poll::Ready(Some(Err(why))) => Poll::Ready(Some(Err(why.into()))),
            Poll::Ready(None) => {
                let mut lines = FieldBlock::new();
                for (name, value) in body.trailers() {
                    // A line that may not be written belongs to this hop only.
                    let _ = lines.push(name.as_bytes(), &value);
                }
                self.0 = None;
                let some = !lines.bytes().is_empty();
                Poll::Ready(some.then_some(Ok(Piece::Trailers(lines))))
            }
        }
    }
}
