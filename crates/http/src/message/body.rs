//! The body of a response, or of a client's request: nothing, bytes, or a stream of pieces.

use super::chunk::Chunk;
use super::error::{BodyError, BoxError};
use super::file::FileBody;
use super::upgrade::Switch;
use futures_core::Stream;
use ringroad_wire::FieldBlock;
use std::fmt;
use std::fs::File;
use std::future::poll_fn;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Bytes to be sent.
pub struct Body(pub(crate) Inner);

pub(crate) enum Inner {
    Empty,
    Whole(Chunk),
    Stream(Box<Pieces>),
    File(Box<FileBody>),
    /// No bytes: the connection is handed over.
    Switch(Box<Switch>),
}

/// A body with bytes that are made while it is sent.
pub(crate) struct Pieces {
    pub(crate) stream: Pin<Box<dyn Stream<Item = Result<Piece, BoxError>>>>,
    /// Its length in bytes, if known.
    pub(crate) size: Option<u64>,
}

/// A piece of a stream.
#[derive(Debug)]
pub enum Piece {
    /// Bytes of the body.
    Data(Chunk),
    /// Trailers, which end the body. They are sent if the framing can carry them: in chunks.
    Trailers(FieldBlock),
}

impl Body {
    /// Makes a body without bytes.
    pub const fn empty() -> Body {
        Body(Inner::Empty)
    }

    /// Makes a body of static bytes. Long ones are never copied here. On io_uring the kernel does not copy
    /// them either, unless it reports that it does nevertheless ([`ZeroCopy`](ringroad_engine::ZeroCopy)).
    pub const fn from_static(bytes: &'static [u8]) -> Body {
        Body(Inner::Whole(Chunk::of_static(bytes)))
    }

    /// Makes a body of this range of a regular file, as the file is when it is sent. The kernel sends it
    /// without a copy here (`sendfile(2)`), after a thread of the blocking pool has read what is not in the
    /// page cache. The file's position is neither used nor changed.
    ///
    /// If the file ends before its range, or cannot be read, the connection is closed, so that the peer sees
    /// that the body is incomplete. Such files are counted
    /// ([`Counters::files_cut`](crate::Counters::files_cut)).
    pub fn file(file: Arc<File>, range: Range<u64>) -> Body {
        let part = FileBody::new(file, range);
        if part.left() == 0 { Body::empty() } else { Body(Inner::File(Box::new(part))) }
    }

    /// Makes a body of a stream's pieces, sent in chunks. The next piece is requested when the last was sent.
    /// A receiver of [`ringroad_engine::sync::bounded`] is such a stream. An error closes the connection, so
    /// that the peer sees that the body is incomplete.
    pub fn stream<S, T>(stream: S) -> Body
    where
        S: Stream<Item = T> + 'static,
        T: IntoPiece,
    {
        Body(Inner::Stream(Box::new(Pieces { stream: Box::pin(Converted { stream }), size: None })))
    }

    /// Makes a body of a stream's pieces, of exactly `size` bytes, with `Content-Length`.
    pub fn stream_of<S, T>(size: u64, stream: S) -> Body
    where
        S: Stream<Item = T> + 'static,
        T: IntoPiece,
    {
        Body(Inner::Stream(Box::new(Pieces { stream: Box::pin(Converted { stream }), size: Some(size) })))
    }

    /// Makes the body of a response without content, such as one to HEAD: the response to GET has `size`
    /// bytes, or an unknown number (RFC 9110 §8.6). The client gets its header lines and no bytes.
    pub fn left_out(size: Option<u64>) -> Body {
        Body(Inner::Stream(Box::new(Pieces { stream: Box::pin(Converted { stream: LeftOut }), size })))
    }

    /// Returns the length in bytes, if known.
    pub fn size(&self) -> Option<u64> {
        match &self.0 {
            Inner::Empty | Inner::Switch(_) => Some(0),
            Inner::Whole(chunk) => Some(chunk.len() as u64),
            Inner::Stream(pieces) => pieces.size,
            Inner::File(part) => Some(part.left()),
        }
    }

    /// Returns whether the body has no bytes.
    pub fn is_empty(&self) -> bool {
        self.size() == Some(0)
    }

    /// Returns the bytes, if all of them are in memory.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match &self.0 {
            Inner::Empty => Some(&[]),
            Inner::Whole(chunk) => Some(chunk),
            Inner::Stream(_) | Inner::File(_) | Inner::Switch(_) => None,
        }
    }

    /// Reads all of the body, if it is not longer than `bytes_max`: for tests, and for steps that need the
    /// whole body.
    ///
    /// # Errors
    /// [`BodyError::TooLong`]; [`BodyError::Source`], if the source of the body fails.
    pub async fn bytes(self, bytes_max: usize) -> Result<Vec<u8>, BodyError> {
        let mut pieces = self.into_pieces();
        let mut all = Vec::new();
        while let Some(piece) = poll_fn(|context| pieces.as_mut().poll_next(context)).await {
            match piece.map_err(BodyError::Source)? {
                Piece::Data(chunk) if chunk.len() > bytes_max - all.len() => {
                    return Err(BodyError::TooLong(bytes_max));
                }
                Piece::Data(chunk) => all.extend_from_slice(&chunk),
                Piece::Trailers(_) => break,
            }
        }
        Ok(all)
    }

    /// Returns its pieces, for a step that changes or keeps a body: a file is read by the blocking pool.
    pub fn into_pieces(self) -> Pin<Box<dyn Stream<Item = Result<Piece, BoxError>>>> {
        match self.0 {
            Inner::Empty | Inner::Switch(_) => Box::pin(Once(None)),
            Inner::Whole(chunk) => Box::pin(Once(Some(chunk))),
            Inner::Stream(pieces) => pieces.stream,
            Inner::File(part) => part.into_pieces().stream,
        }
    }
}

/// A stream of one piece.
struct Once(Option<Chunk>);

impl Stream for Once {
    type Item = Result<Piece, BoxError>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.0.take().map(|chunk| Ok(Piece::Data(chunk))))
    }
}

pin_project_lite::pin_project! {
    /// Converts a stream of any items to one of pieces.
    struct Converted<S> {
        #[pin]
        stream: S,
    }
}

impl<S: Stream<Item: IntoPiece>> Stream for Converted<S> {
    type Item = Result<Piece, BoxError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(ready!(self.project().stream.poll_next(context)).map(IntoPiece::into_piece))
    }
}

/// A type that can be a piece of a streamed body.
pub trait IntoPiece {
    /// Converts to a piece, or returns the error that ends the body.
    fn into_piece(self) -> Result<Piece, BoxError>;
}

impl IntoPiece for Piece {
    fn into_piece(self) -> Result<Piece, BoxError> {
        Ok(self)
    }
}

impl<T: IntoPiece, E: Into<BoxError>> IntoPiece for Result<T, E> {
    fn into_piece(self) -> Result<Piece, BoxError> {
        self.map_err(Into::into).and_then(IntoPiece::into_piece)
    }
}

impl<T: Into<Chunk>> From<T> for Body {
    #[inline]
    fn from(bytes: T) -> Body {
        let chunk = bytes.into();
        if chunk.is_empty() { Body::empty() } else { Body(Inner::Whole(chunk)) }
    }
}

macro_rules! pieces {
    ($($type:ty),*) => {$(
        impl IntoPiece for $type {
            fn into_piece(self) -> Result<Piece, BoxError> {
                Ok(Piece::Data(self.into()))
            }
        }
    )*};
}
pieces!(Chunk, Vec<u8>, String, &'static [u8], &'static str, Rc<[u8]>, Arc<[u8]>);

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Inner::Empty => f.write_str("Empty"),
            Inner::Whole(chunk) => chunk.fmt(f),
            Inner::Stream(pieces) => write!(f, "Stream({:?} bytes)", pieces.size),
            Inner::File(part) => write!(f, "File({} bytes)", part.left()),
            Inner::Switch(switch) => switch.fmt(f),
        }
    }
}
/// The stream of a body that is left out.
struct LeftOut;

impl Stream for LeftOut {
    type Item = Chunk;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Chunk>> {
        Poll::Ready(None)
    }
}
