//! The adapters between a stream and the traits of hyper, tokio and futures.
//!
//! All three adapters have the same two sides ([`Inbox`], [`Outbox`]). Each trait implementation is a few
//! lines around one poll.

use crate::duplex::{Duplex, Sink, Source};
use crate::inbox::Inbox;
use crate::outbox::{Mode, Outbox};
use futures_io as futures;
use hyper::rt;
use ringroad_engine::{Lease, is_in_runtime, spawn, time};
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Maximum time to send accepted bytes after their adapter was dropped.
const LAST_SEND: Duration = Duration::from_secs(30);

/// A stream with the traits of hyper, tokio and futures.
///
/// A write is accepted when the kernel or this adapter has its bytes; the adapter holds up to 64 KiB that
/// wait, and up to 64 KiB that are being sent. If an accepted write fails, the next write or flush returns
/// the error. Dropping the adapter closes the stream after the accepted bytes have been sent, or after 30 s.
pub struct Io<S: Duplex>(Parts<S>);

/// A receiving half with the traits of hyper, tokio and futures.
#[derive(Debug)]
pub struct ReadIo<S> {
    stream: S,
    inbox: Inbox,
}

/// A sending half with the traits of hyper, tokio and futures. As with [`Io`], accepted bytes are still sent
/// when it is dropped.
pub struct WriteIo<S: Sink>(Sender<S>);

struct Parts<S: Duplex> {
    inbox: Inbox,
    sender: Sender<S>,
}

/// The sending side with its stream, until it is dropped or taken apart.
struct Sender<S: Sink> {
    /// `None` only while it is dropped or taken apart.
    stream: Option<S>,
    outbox: Outbox<S>,
}

impl<S: Sink> Sender<S> {
    fn new(stream: S, mode: Mode) -> Sender<S> {
        Sender { stream: Some(stream), outbox: Outbox::new(mode) }
    }

    #[allow(clippy::expect_used, reason = "it is taken out only by what consumes or drops this")]
    fn parts(&mut self) -> (&mut S, &mut Outbox<S>) {
        (self.stream.as_mut().expect("there until this is dropped"), &mut self.outbox)
    }

    #[allow(clippy::expect_used, reason = "as in `parts`")]
    fn stream(&self) -> &S {
        self.stream.as_ref().expect("there until this is dropped")
    }

    fn poll_write(&mut self, context: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let (stream, outbox) = self.parts();
        outbox.poll_write(stream, context, slices)
    }

    fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let (stream, outbox) = self.parts();
        outbox.poll_empty(stream, context)
    }

    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let (stream, outbox) = self.parts();
        outbox.poll_end(stream, context)
    }
}

impl<S: Sink> Drop for Sender<S> {
    fn drop(&mut self) {
        let Some(mut stream) = self.stream.take() else { return };
        if self.outbox.is_empty() || !is_in_runtime() {
            return;
        }
        // Bytes that were accepted are sent, as the kernel does with those in its buffer after a close.
        let mut outbox = std::mem::replace(&mut self.outbox, Outbox::new(Mode::Direct));
        spawn(async move {
            let sent = poll_fn(|context| outbox.poll_empty(&mut stream, context));
            // No caller is left to get an error or a timeout.
            let _ = time::timeout(LAST_SEND, sent).await;
        })
        .detach();
    }
}

impl<S: Duplex> Io<S> {
    /// Makes an adapter that begins to send with each write.
    pub fn new(stream: S) -> Io<S> {
        Io::made(stream, Mode::Direct)
    }

    /// Makes an adapter that collects written bytes until a flush or until it holds 64 KiB. Users that write
    /// small pieces and flush, as hyper and h2 do, need fewer sends. A user that does not flush must take
    /// [`new`](Self::new).
    pub fn gathering(stream: S) -> Io<S> {
        Io::made(stream, Mode::Gathering)
    }

    fn made(stream: S, mode: Mode) -> Io<S> {
        Io(Parts { inbox: Inbox::default(), sender: Sender::new(stream, mode) })
    }

    /// Adds bytes that were received before. They are read first.
    #[must_use]
    pub fn with_received(mut self, received: Lease) -> Io<S> {
        self.0.inbox = Inbox::with(received);
        self
    }

    /// Returns the stream.
    pub fn get_ref(&self) -> &S {
        self.0.sender.stream()
    }

    /// Returns the stream. Bytes that are received from it directly are missing here; bytes that are sent
    /// directly may overtake accepted ones.
    pub fn get_mut(&mut self) -> &mut S {
        self.0.sender.parts().0
    }

    /// Returns whether everything that was written has been given to the kernel.
    pub fn is_flushed(&self) -> bool {
        self.0.sender.outbox.is_empty()
    }

    /// Discards accepted bytes that have not been sent. If a send is in flight, the stream's sending side is
    /// broken.
    pub fn discard(&mut self) {
        let sender = &mut self.0.sender;
        sender.outbox = Outbox::new(sender.outbox.mode());
    }

    /// Returns the stream, and the bytes that were received and not read. [Flush](Self::is_flushed) first:
    /// accepted bytes that were not sent are lost, and if a send is in flight, the stream's sending side is
    /// broken.
    #[allow(clippy::expect_used, reason = "it is there until this is dropped")]
    pub fn into_inner(mut self) -> (S, Lease) {
        let stream = self.0.sender.stream.take().expect("there until this is dropped");
        (stream, std::mem::take(&mut self.0.inbox).into_rest())
    }

    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        self.0.inbox.poll_fill(self.0.sender.parts().0, context)
    }

    fn consume(&mut self, bytes: usize) {
        self.0.inbox.consume(bytes);
    }

    fn sender(&mut self) -> &mut Sender<S> {
        &mut self.0.sender
    }
}

impl<S: Duplex + fmt::Debug> fmt::Debug for Io<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Io").field(self.get_ref()).finish()
    }
}

impl<S: Source> ReadIo<S> {
    /// Makes an adapter.
    pub fn new(stream: S) -> ReadIo<S> {
        ReadIo { stream, inbox: Inbox::default() }
    }

    /// Returns the half, and the bytes that were received and not read.
    pub fn into_inner(self) -> (S, Lease) {
        (self.stream, self.inbox.into_rest())
    }

    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        self.inbox.poll_fill(&mut self.stream, context)
    }

    fn consume(&mut self, bytes: usize) {
        self.inbox.consume(bytes);
    }
}

impl<S: Sink> WriteIo<S> {
    /// Makes an adapter that begins to send with each write.
    pub fn new(stream: S) -> WriteIo<S> {
        WriteIo(Sender::new(stream, Mode::Direct))
    }

    /// Makes an adapter that keeps what is written until it is flushed: see [`Io::gathering`].
    pub fn gathering(stream: S) -> WriteIo<S> {
        WriteIo(Sender::new(stream, Mode::Gathering))
    }

    fn sender(&mut self) -> &mut Sender<S> {
        &mut self.0
    }
}

impl<S: Sink + fmt::Debug> fmt::Debug for WriteIo<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WriteIo").field(self.0.stream()).finish()
    }
}

macro_rules! reads {
    ($type:ident, $bound:ident) => {
        impl<S: $bound> $type<S> {
            /// Gives `put` at most `room` received bytes, and returns how many.
            fn poll_take(
                &mut self,
                context: &mut Context<'_>,
                room: usize,
                put: impl FnOnce(&[u8]),
            ) -> Poll<io::Result<usize>> {
                if room == 0 {
                    return Poll::Ready(Ok(0));
                }
                let bytes = ready!(self.poll_fill(context))?;
                let bytes = bytes.get(..room).unwrap_or(bytes);
                put(bytes);
                let read = bytes.len();
                self.consume(read);
                Poll::Ready(Ok(read))
            }
        }

        impl<S: $bound> rt::Read for $type<S> {
            fn poll_read(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
                mut into: rt::ReadBufCursor<'_>,
            ) -> Poll<io::Result<()>> {
                let room = into.remaining();
                self.poll_take(context, room, |bytes| into.put_slice(bytes)).map_ok(|_| ())
            }
        }

        impl<S: $bound> tokio::io::AsyncRead for $type<S> {
            fn poll_read(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
                into: &mut tokio::io::ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                let room = into.remaining();
                self.poll_take(context, room, |bytes| into.put_slice(bytes)).map_ok(|_| ())
            }
        }

        impl<S: $bound> tokio::io::AsyncBufRead for $type<S> {
            fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
                self.get_mut().poll_fill(context)
            }

            fn consume(self: Pin<&mut Self>, bytes: usize) {
                $type::consume(self.get_mut(), bytes);
            }
        }

        impl<S: $bound> futures::AsyncRead for $type<S> {
            fn poll_read(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
                into: &mut [u8],
            ) -> Poll<io::Result<usize>> {
                self.poll_take(context, into.len(), |bytes| {
                    if let Some(into) = into.get_mut(..bytes.len()) {
                        into.copy_from_slice(bytes);
                    }
                })
            }
        }

        impl<S: $bound> futures::AsyncBufRead for $type<S> {
            fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
                self.get_mut().poll_fill(context)
            }

            fn consume(self: Pin<&mut Self>, bytes: usize) {
                $type::consume(self.get_mut(), bytes);
            }
        }
    };
}
reads!(Io, Duplex);
reads!(ReadIo, Source);

macro_rules! writes {
    ($type:ident, $bound:ident, $trait:path, $end:ident $(, $is_vectored:ident)?) => {
        impl<S: $bound> $trait for $type<S> {
            fn poll_write(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                self.sender().poll_write(context, &[IoSlice::new(bytes)])
            }

            fn poll_write_vectored(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
                slices: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                self.sender().poll_write(context, slices)
            }

            $(fn $is_vectored(&self) -> bool {
                true
            })?

            fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.sender().poll_flush(context)
            }

            fn $end(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.sender().poll_end(context)
            }
        }
    };
}
writes!(Io, Duplex, rt::Write, poll_shutdown, is_write_vectored);
writes!(Io, Duplex, tokio::io::AsyncWrite, poll_shutdown, is_write_vectored);
writes!(Io, Duplex, futures::AsyncWrite, poll_close);
writes!(WriteIo, Sink, rt::Write, poll_shutdown, is_write_vectored);
writes!(WriteIo, Sink, tokio::io::AsyncWrite, poll_shutdown, is_write_vectored);
writes!(WriteIo, Sink, futures::AsyncWrite, poll_close);
