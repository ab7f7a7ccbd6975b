//! Facts about a server's frames that the `h2` crate does not report.
//!
//! Parses each frame header as its bytes pass, and keeps none. It shows which answers are complete, whether a
//! frame is incomplete, and whether any frame arrived. Without it, a reset after a complete answer (RFC 9113
//! §8.1) and one within an answer look the same.

use super::frames::{DATA, END_STREAM, HEADERS, Header, Walk};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Frames received from a server.
#[derive(Debug)]
pub(crate) struct Heard {
    walk: RefCell<Walk>,
    frames: Cell<u64>,
    /// Of these, frames of answers.
    spoken: Cell<u64>,
    /// Watched streams, and whether END_STREAM was received.
    streams: RefCell<HashMap<u32, bool>>,
}

/// Watches for the end of a stream until it is dropped.
#[derive(Debug)]
pub(crate) struct Listening {
    heard: Rc<Heard>,
    stream: u32,
}

impl Listening {
    /// Returns whether END_STREAM was received.
    pub(crate) fn has_ended(&self) -> bool {
        self.heard.streams.borrow().get(&self.stream).copied().unwrap_or(false)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.heard.streams.borrow_mut().remove(&self.stream);
    }
}

impl Default for Heard {
    fn default() -> Heard {
        Heard {
            walk: RefCell::new(Walk::of_server()),
            frames: Cell::default(),
            spoken: Cell::default(),
            streams: RefCell::default(),
        }
    }
}

impl Heard {
    /// Begins to watch a stream that was just opened.
    pub(crate) fn listen(self: &Rc<Heard>, stream: u32) -> Listening {
        self.streams.borrow_mut().insert(stream, false);
        Listening { heard: Rc::clone(self), stream }
    }

    /// Returns the number of frames that have begun.
    pub(crate) fn frames(&self) -> u64 {
        self.frames.get()
    }

    /// Returns how many of them belong to answers.
    pub(crate) fn spoken(&self) -> u64 {
        self.spoken.get()
    }

    /// Returns whether a frame is incomplete.
    pub(crate) fn is_within(&self) -> bool {
        !self.walk.borrow().is_between()
    }

    fn pass(&self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (used, header) = self.walk.borrow_mut().step(bytes);
            bytes = bytes.get(used..).unwrap_or_default();
            if let Some(header) = header {
                self.frame(header);
            }
        }
    }

    fn frame(&self, Header { kind, flags, stream, .. }: Header) {
        self.frames.set(self.frames.get() + 1);
        if !matches!(kind, DATA | HEADERS) {
            return;
        }
        self.spoken.set(self.spoken.get() + 1);
        if flags & END_STREAM != 0
            && let Some(ended) = self.streams.borrow_mut().get_mut(&stream)
        {
            *ended = true;
        }
    }
}

/// A connection to a server. Its received bytes are watched on their way to the `h2` crate.
#[derive(Debug)]
pub(crate) struct Hearing<S> {
    io: S,
    heard: Rc<Heard>,
}

impl<S> Hearing<S> {
    pub(crate) fn new(io: S, heard: &Rc<Heard>) -> Hearing<S> {
        Hearing { io, heard: Rc::clone(heard) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Hearing<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(context, into))?;
        self.heard.pass(into.filled().get(before..).unwrap_or_default());
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Hearing<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
        let [_, high, middle, low] = (payload.len() as u32).to_be_bytes();
        [&[high, middle, low, kind, flags, 0x80, 0, 0, stream][..], payload].concat()
    }

    #[test]
    fn ends_of_streams_are_heard_however_the_bytes_are_cut() {
        let bytes = [
            frame(4, END_STREAM, 0, &[0; 6]),
            frame(HEADERS, 4, 1, b"head"),
            frame(DATA, END_STREAM, 3, b""),
            frame(DATA, 0, 1, &[END_STREAM; 300]),
        ]
        .concat();
        for step in 1..bytes.len() {
            let heard = Rc::<Heard>::default();
            let (one, three) = (heard.listen(1), heard.listen(3));
            for piece in bytes.chunks(step) {
                heard.pass(piece);
            }
            assert_eq!((one.has_ended(), three.has_ended()), (false, true), "{step}");
            assert_eq!((heard.frames(), heard.spoken()), (4, 3), "{step}");
            assert!(!heard.is_within(), "{step}");
            heard.pass(&frame(HEADERS, 5, 1, b"trailers")[..step.min(16)]);
            assert_eq!((one.has_ended(), heard.is_within()), (step >= 9, true), "{step}");
            drop((one, three));
            assert!(heard.streams.borrow().is_empty());
        }
    }
}
