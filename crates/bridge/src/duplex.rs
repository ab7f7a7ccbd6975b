//! The traits of streams that can be bridged: a source of leases, and a sink of owned buffers.
//!
//! They are traits so that a stream layered on another (TLS) can be bridged as well as a socket.

use ringroad_engine::net::{Family, ReadHalf, SendState, Stream, WriteHalf};
use ringroad_engine::{Lease, Result};
use std::net::Shutdown;
use std::task::{Context, Poll};

/// A source of received bytes.
pub trait Source: Unpin + 'static {
    /// Returns the next bytes; an empty lease means the end. On `Pending` the task is woken when bytes
    /// arrive.
    ///
    /// # Errors
    /// The connection failed, or receiving was cancelled.
    fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Result<Lease>>;
}

/// A sink for bytes to be sent.
pub trait Sink: Unpin + 'static {
    /// A send under way, which owns its buffer.
    type Sending: Unpin + 'static;

    /// Sends as much of `bytes` as possible without waiting and without a copy. Returns the number of bytes
    /// sent, or `None` if the result is not known at once.
    fn try_write(&mut self, bytes: &[u8]) -> Option<usize> {
        let _ = bytes;
        None
    }

    /// Makes a send of all of `bytes`. It begins when it is polled.
    fn begin_send(&mut self, bytes: Vec<u8>) -> Self::Sending;

    /// Polls a send, and returns its buffer at the end. The send continues between polls.
    ///
    /// # Errors
    /// The connection failed, or sending was cancelled.
    fn poll_send(
        &mut self,
        send: &mut Self::Sending,
        context: &mut Context<'_>,
    ) -> Poll<(Result<()>, Vec<u8>)>;

    /// Ends the sending side after everything that was sent.
    ///
    /// # Errors
    /// The connection is gone.
    fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<Result<()>>;
}

/// A stream that receives and sends.
pub trait Duplex: Source + Sink {}

impl<S: Source + Sink> Duplex for S {}

impl<F: Family + 'static> Source for Stream<F> {
    #[inline]
    fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Result<Lease>> {
        Stream::poll_recv(self, context)
    }
}

impl<F: Family + 'static> Source for ReadHalf<F> {
    #[inline]
    fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Result<Lease>> {
        ReadHalf::poll_recv(self, context)
    }
}

impl<F: Family + 'static> Sink for Stream<F> {
    type Sending = SendState<Vec<u8>>;

    #[inline]
    fn try_write(&mut self, bytes: &[u8]) -> Option<usize> {
        Stream::try_write(self, bytes)
    }

    fn begin_send(&mut self, bytes: Vec<u8>) -> Self::Sending {
        SendState::new(bytes)
    }

    fn poll_send(
        &mut self,
        send: &mut Self::Sending,
        context: &mut Context<'_>,
    ) -> Poll<(Result<()>, Vec<u8>)> {
        Stream::poll_send(self, send, context)
    }

    fn poll_shutdown(&mut self, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(self.shutdown(Shutdown::Write))
    }
}

impl<F: Family + 'static> Sink for WriteHalf<F> {
    type Sending = SendState<Vec<u8>>;

    #[inline]
    fn try_write(&mut self, bytes: &[u8]) -> Option<usize> {
        WriteHalf::try_write(self, bytes)
    }

    fn begin_send(&mut self, bytes: Vec<u8>) -> Self::Sending {
        SendState::new(bytes)
    }

    fn poll_send(
        &mut self,
        send: &mut Self::Sending,
        context: &mut Context<'_>,
    ) -> Poll<(Result<()>, Vec<u8>)> {
        WriteHalf::poll_send(self, send, context)
    }

    fn poll_shutdown(&mut self, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(self.shutdown())
    }
}
