//! The sending side of an adapter: bytes that were accepted from a caller and are not sent yet.
//!
//! INVARIANT: bytes leave in the order in which they were accepted: `sending` before `filling`. While nothing
//! is in flight there is no buffer.

use crate::duplex::Sink;
use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

/// Maximum size of a buffer of accepted bytes. The caller waits before more are accepted.
const HELD_BYTES_MAX: usize = 64 * 1024;

/// Number of buffers that each thread keeps for reuse.
const KEPT: usize = 16;

thread_local! {
    static BUFFERS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

fn take_buffer() -> Vec<u8> {
    BUFFERS.try_with(|kept| kept.borrow_mut().pop()).ok().flatten().unwrap_or_default()
}

fn give_buffer(mut buffer: Vec<u8>) {
    if (1..=2 * HELD_BYTES_MAX).contains(&buffer.capacity()) {
        buffer.clear();
        // Fails while the thread ends: the buffer is freed then.
        let _ = BUFFERS.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if kept.len() < KEPT {
                kept.push(buffer);
            }
        });
    }
}

/// When a write is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// At once.
    Direct,
    /// With the next flush, or when the adapter has collected much.
    Gathering,
}

pub(crate) struct Outbox<S: Sink> {
    mode: Mode,
    sending: Option<S::Sending>,
    filling: Vec<u8>,
    /// The sending side has ended.
    ended: bool,
}

impl<S: Sink> Outbox<S> {
    pub(crate) fn new(mode: Mode) -> Outbox<S> {
        Outbox { mode, sending: None, filling: Vec::new(), ended: false }
    }

    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns whether everything accepted has been given to the kernel.
    pub(crate) fn is_empty(&self) -> bool {
        self.sending.is_none() && self.filling.is_empty()
    }

    /// Accepts bytes; returns how many.
    pub(crate) fn poll_write(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.ended {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if self.mode == Mode::Gathering {
            if self.filling.len() >= HELD_BYTES_MAX {
                ready!(self.poll_empty(stream, context))?;
            }
            return Poll::Ready(Ok(self.take(slices)));
        }
        ready!(self.poll_empty(stream, context))?;
        let mut filled = slices.iter().filter(|slice| !slice.is_empty());
        let (Some(first), others) = (filled.next(), filled.next().is_some()) else {
            return Poll::Ready(Ok(0));
        };
        if !others && let Some(sent) = stream.try_write(first) {
            return Poll::Ready(Ok(sent));
        }
        let taken = self.take(slices);
        match self.poll_empty(stream, context) {
            Poll::Ready(Err(why)) => Poll::Ready(Err(why)),
            // A pending send continues without the caller.
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(taken)),
        }
    }

    fn take(&mut self, slices: &[IoSlice<'_>]) -> usize {
        if self.filling.capacity() == 0 {
            self.filling = take_buffer();
        }
        let before = self.filling.len();
        for slice in slices {
            let room = HELD_BYTES_MAX.saturating_sub(self.filling.len());
            self.filling.extend_from_slice(slice.get(..room).unwrap_or(slice));
        }
        self.filling.len() - before
    }

    /// Sends everything.
    pub(crate) fn poll_empty(&mut self, stream: &mut S, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if let Some(sending) = &mut self.sending {
                let (sent, buffer) = ready!(stream.poll_send(sending, context));
                self.sending = None;
                give_buffer(buffer);
                if let Err(why) = sent {
                    give_buffer(std::mem::take(&mut self.filling));
                    return Poll::Ready(Err(why.into()));
                }
            }
            if self.filling.is_empty() {
                if self.filling.capacity() > 0 {
                    give_buffer(std::mem::take(&mut self.filling));
                }
                return Poll::Ready(Ok(()));
            }
            match stream.try_write(&self.filling) {
                Some(sent) if sent == self.filling.len() => self.filling.clear(),
                sent => {
                    self.filling.drain(..sent.unwrap_or(0));
                    self.sending = Some(stream.begin_send(std::mem::take(&mut self.filling)));
                }
            }
        }
    }

    /// Sends everything, then ends the sending side.
    pub(crate) fn poll_end(&mut self, stream: &mut S, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_empty(stream, context))?;
        if !self.ended {
            match ready!(stream.poll_shutdown(context)) {
                Ok(()) => {}
                // The peer has reset the connection: both directions have ended.
                Err(why) if why.kind() == io::ErrorKind::NotConnected => {}
                Err(why) => return Poll::Ready(Err(why.into())),
            }
            self.ended = true;
        }
        Poll::Ready(Ok(()))
    }
}
