//! A connection's bytes as the `h2` crate reads and writes them: metered when received, gathered when sent.

use super::meter::Meter;
use ringroad_bridge::{Duplex, Io};
use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};

/// State that a connection and its [`Pipe`] share.
#[derive(Debug)]
pub(crate) struct Line<S: Duplex> {
    pub(crate) io: RefCell<Io<S>>,
    pub(crate) meter: RefCell<Meter>,
    /// Whether a flush does nothing, because more will be written.
    pub(crate) corked: Cell<bool>,
    /// Whether receiving was cancelled, so that the connection's task must check why.
    pub(crate) interrupted: Cell<bool>,
    /// Whether the kernel has everything that was written.
    pub(crate) flushed: Cell<bool>,
    pub(crate) bytes_in: Cell<u64>,
    pub(crate) bytes_out: Cell<u64>,
    /// Bytes that were received before, and the number of used ones.
    early: RefCell<(Vec<u8>, usize)>,
}

impl<S: Duplex> Line<S> {
    /// Makes a line over `stream`, from which `early` was received before.
    pub(crate) fn new(stream: S, early: Vec<u8>, meter: Meter) -> Rc<Line<S>> {
        Rc::new(Line {
            io: RefCell::new(Io::gathering(stream)),
            meter: RefCell::new(meter),
            corked: Cell::new(false),
            interrupted: Cell::new(false),
            flushed: Cell::new(true),
            bytes_in: Cell::new(0),
            bytes_out: Cell::new(0),
            early: RefCell::new((early, 0)),
        })
    }
}

/// The side of a [`Line`] that the `h2` crate gets.
#[derive(Debug)]
pub(crate) struct Pipe<S: Duplex>(pub(crate) Rc<Line<S>>);

/// Returns whether this is the engine's ECANCELED.
fn is_cancelled(why: &io::Error) -> bool {
    let why = why.get_ref().and_then(|why| why.downcast_ref::<ringroad_engine::Error>());
    why.is_some_and(ringroad_engine::Error::is_cancelled)
}

impl<S: Duplex> AsyncRead for Pipe<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let line = &*self.0;
        let mut meter = line.meter.borrow_mut();
        if meter.is_exhausted() {
            // The connection's task ends the connection.
            return Poll::Pending;
        }
        if meter.is_turn_over() {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let room = into.remaining();
        let mut show = |bytes: &[u8]| {
            let bytes = bytes.get(..room).unwrap_or(bytes);
            let shown = meter.pass(bytes);
            into.put_slice(bytes.get(..shown).unwrap_or_default());
            shown
        };
        let mut early = line.early.borrow_mut();
        if early.1 < early.0.len() {
            early.1 += show(early.0.get(early.1..).unwrap_or_default());
            if early.1 == early.0.len() {
                *early = (Vec::new(), 0);
            }
            return Poll::Ready(Ok(()));
        }
        let mut io = line.io.borrow_mut();
        let shown = match ready!(Pin::new(&mut *io).poll_fill_buf(context)) {
            Ok(bytes) => show(bytes),
            Err(why) if is_cancelled(&why) => {
                line.interrupted.set(true);
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            Err(why) => return Poll::Ready(Err(why)),
        };
        AsyncBufRead::consume(Pin::new(&mut *io), shown);
        line.bytes_in.set(line.bytes_in.get() + shown as u64);
        Poll::Ready(Ok(()))
    }
}

impl<S: Duplex> Pipe<S> {
    fn wrote(&self, written: usize) {
        let line = &*self.0;
        line.flushed.set(false);
        line.bytes_out.set(line.bytes_out.get() + written as u64);
    }
}

impl<S: Duplex> AsyncWrite for Pipe<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(AsyncWrite::poll_write(Pin::new(&mut *self.0.io.borrow_mut()), context, bytes))?;
        self.wrote(written);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut io = self.0.io.borrow_mut();
        let written = ready!(AsyncWrite::poll_write_vectored(Pin::new(&mut *io), context, slices))?;
        drop(io);
        self.wrote(written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.0.corked.get() {
            return Poll::Ready(Ok(()));
        }
        ready!(AsyncWrite::poll_flush(Pin::new(&mut *self.0.io.borrow_mut()), context))?;
        self.0.flushed.set(true);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(AsyncWrite::poll_shutdown(Pin::new(&mut *self.0.io.borrow_mut()), context))?;
        self.0.flushed.set(true);
        Poll::Ready(Ok(()))
    }
}
