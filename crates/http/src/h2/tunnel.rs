//! A stream that carries another protocol (RFC 8441), as a transport.
//!
//! A task drives it ([`Tunnel::poll_drive`]). It takes frames out of the `h2` crate as they arrive, into one
//! queue, so that many small ones hold no more than their bytes. Flow control returns the bytes that the
//! reader has taken, so the queue is never longer than the stream's window, and a slow reader makes its peer
//! wait. Data is sent in parts, of which at most [`WAITING_BYTES_MAX`] bytes wait for the peer's window.
//!
//! INVARIANT: the HTTP/2 machine is polled with the task's waker only, in [`Tunnel::poll_drive`]. Readers and
//! writers register here, and are woken from there.

use super::{Part, Progress, Traffic};
use crate::message::Chunk;
use crate::pool;
use crate::transport::{Carrier, cancelled, reset};
use ::h2::{Reason, RecvStream, SendStream};
use ringroad_engine::net::PeerGone;
use ringroad_engine::{Lease, Result};
use std::cell::RefCell;
use std::net::Shutdown;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Bytes that may wait for flow control before a writer waits.
const WAITING_BYTES_MAX: usize = 64 * 1024;

/// State of the receiving side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    Open,
    /// END_STREAM was received.
    Ended,
    /// The stream was reset, or its connection has ended.
    Failed,
}

struct Inner {
    /// `None` once the stream is over for both sides.
    recv: Option<RecvStream>,
    send: Option<SendStream<Part>>,
    queue: Vec<u8>,
    input: Input,
    /// Whether the peer takes no more data.
    broken: bool,
    /// END_STREAM was sent.
    finished: bool,
    cancelled: bool,
    /// Whether the reader has shut down: received data is dropped.
    discards: bool,
    /// Whether no owner is left.
    closed: bool,
    reader: Option<Waker>,
    driver: Option<Waker>,
}

/// A stream that carries another protocol.
pub(crate) struct Tunnel {
    inner: RefCell<Inner>,
    progress: Rc<Progress>,
    traffic: Rc<Traffic>,
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        if self.inner.borrow().finished {
            self.traffic.finishing.set(self.traffic.finishing.get() - 1);
        }
    }
}

impl Tunnel {
    pub(crate) fn new(recv: RecvStream, send: SendStream<Part>, traffic: &Rc<Traffic>) -> Rc<Tunnel> {
        let inner = Inner {
            recv: Some(recv),
            send: Some(send),
            queue: Vec::new(),
            input: Input::Open,
            broken: false,
            finished: false,
            cancelled: false,
            discards: false,
            closed: false,
            reader: None,
            driver: None,
        };
        Rc::new(Tunnel {
            inner: RefCell::new(inner),
            progress: Progress::new(traffic),
            traffic: Rc::clone(traffic),
        })
    }

    /// Takes received frames. Ready when no owner is left; then call [`end`](Self::end).
    pub(crate) fn poll_drive(&self, context: &mut Context<'_>) -> Poll<()> {
        let (reader, closed) = {
            let mut inner = self.inner.borrow_mut();
            if !inner.driver.as_ref().is_some_and(|driver| driver.will_wake(context.waker())) {
                inner.driver = Some(context.waker().clone());
            }
            let is_new = inner.pump(context);
            (if is_new { inner.reader.take() } else { None }, inner.closed)
        };
        // A reader in the same task is polled after this.
        if let Some(reader) = reader.filter(|reader| !reader.will_wake(context.waker())) {
            reader.wake();
        }
        if self.inner.borrow().broken {
            self.progress.wake();
        }
        if closed { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Ends the stream: in order, or with a reset if it was cancelled. Returns whether it ended in order;
    /// queued data may then still be sent.
    pub(crate) fn end(&self) -> bool {
        let in_order = {
            let inner = self.inner.borrow();
            !inner.cancelled && !inner.broken
        };
        if in_order {
            self.shutdown(Shutdown::Write);
        } else {
            self.reset();
        }
        self.inner.borrow_mut().recv = None;
        in_order
    }

    /// Resets the stream, and drops queued data.
    pub(crate) fn reset(&self) {
        let send = self.inner.borrow_mut().send.take();
        if let Some(mut send) = send {
            send.send_reset(Reason::CANCEL);
        }
    }

    /// Ready when no data waits for the peer's window.
    pub(crate) fn poll_sent(&self, context: &Context<'_>) -> Poll<()> {
        self.progress.poll_below(0, context)
    }
}

impl Inner {
    /// Moves received frames into the queue. Returns whether a reader should be woken.
    fn pump(&mut self, context: &mut Context<'_>) -> bool {
        let mut is_new = false;
        while let (Input::Open, Some(recv)) = (self.input, &mut self.recv) {
            match recv.poll_data(context) {
                Poll::Pending => break,
                Poll::Ready(Some(Ok(data))) if self.discards => {
                    // An error means that the stream is over; then its window does not matter.
                    let _ = recv.flow_control().release_capacity(data.len());
                }
                Poll::Ready(Some(Ok(data))) => {
                    if self.queue.capacity() == 0 {
                        self.queue = pool::buffer();
                    }
                    self.queue.extend_from_slice(&data);
                    is_new = true;
                }
                // Trailers have no meaning in a tunnel.
                Poll::Ready(None) => (self.input, is_new) = (Input::Ended, true),
                Poll::Ready(Some(Err(_))) => {
                    (self.input, is_new, self.broken) = (Input::Failed, true, true);
                }
            }
        }
        if !self.broken
            && let Some(send) = &mut self.send
            && send.poll_reset(context).is_ready()
        {
            self.broken = true;
            if self.input == Input::Open {
                (self.input, is_new) = (Input::Failed, true);
            }
        }
        is_new
    }

    /// Opens the window for bytes that the reader has taken.
    fn release(&mut self, bytes: usize) {
        if let Some(recv) = &mut self.recv {
            // As in `pump`.
            let _ = recv.flow_control().release_capacity(bytes);
        }
    }

    fn is_dead(&self) -> bool {
        self.broken || self.cancelled || self.finished || self.send.is_none()
    }
}

impl Carrier for Tunnel {
    fn poll_recv(&self, context: &mut Context<'_>) -> Poll<Result<Lease>> {
        let mut inner = self.inner.borrow_mut();
        if inner.cancelled {
            return Poll::Ready(Err(cancelled("recv")));
        }
        if !inner.queue.is_empty() {
            let queue = std::mem::take(&mut inner.queue);
            inner.release(queue.len());
            return Poll::Ready(Ok(Lease::from(queue)));
        }
        match inner.input {
            _ if inner.discards => Poll::Ready(Ok(Lease::default())),
            Input::Ended => Poll::Ready(Ok(Lease::default())),
            Input::Failed => Poll::Ready(Err(reset("recv"))),
            Input::Open => {
                inner.reader = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    fn poll_hangup(&self, context: &mut Context<'_>) -> Poll<Result<PeerGone>> {
        let mut inner = self.inner.borrow_mut();
        match inner.input {
            _ if inner.cancelled => Poll::Ready(Err(cancelled("recv"))),
            Input::Ended => Poll::Ready(Ok(PeerGone::Ended)),
            Input::Failed => Poll::Ready(Ok(PeerGone::Reset(reset("recv")))),
            Input::Open => {
                inner.reader = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    fn try_write(&self, bytes: &[u8]) -> Option<usize> {
        let mut inner = self.inner.borrow_mut();
        let room = WAITING_BYTES_MAX.saturating_sub(self.progress.waiting());
        if inner.is_dead() || room == 0 {
            return None;
        }
        let piece = bytes.get(..room).unwrap_or(bytes);
        if piece.is_empty() {
            return Some(0);
        }
        let mut copy = pool::buffer();
        copy.extend_from_slice(piece);
        let part = Part::new(Chunk::from(copy), &self.progress);
        let sent = inner.send.as_mut()?.send_data(part, false);
        // The driver wakes the reader.
        inner.broken |= sent.is_err();
        sent.ok().map(|()| piece.len())
    }

    fn poll_write(&self, bytes: &[u8], context: &mut Context<'_>) -> Poll<Result<usize>> {
        loop {
            if let Some(sent) = self.try_write(bytes) {
                return Poll::Ready(Ok(sent));
            }
            {
                let inner = self.inner.borrow();
                if inner.cancelled {
                    return Poll::Ready(Err(cancelled("send")));
                }
                if inner.is_dead() {
                    return Poll::Ready(Err(reset("send")));
                }
            }
            match self.progress.poll_below(WAITING_BYTES_MAX / 2, context) {
                Poll::Pending => return Poll::Pending,
                // Queued data was dropped with the stream.
                Poll::Ready(()) if self.progress.is_cut() => self.inner.borrow_mut().broken = true,
                Poll::Ready(()) => {}
            }
        }
    }

    fn shutdown(&self, how: Shutdown) {
        let mut inner = self.inner.borrow_mut();
        if how != Shutdown::Read && !inner.is_dead() {
            inner.finished = true;
            self.traffic.finishing.set(self.traffic.finishing.get() + 1);
            let last = Part::new(Chunk::of_static(b""), &self.progress);
            if let Some(send) = &mut inner.send {
                // An error means that the stream is over.
                let _ = send.send_data(last, true);
            }
        }
        if how != Shutdown::Write {
            inner.discards = true;
            let thrown = std::mem::take(&mut inner.queue).len();
            inner.release(thrown);
        }
    }

    fn cancel(&self) {
        let (reader, driver) = {
            let mut inner = self.inner.borrow_mut();
            inner.cancelled = true;
            (inner.reader.take(), inner.driver.take())
        };
        for waker in [reader, driver].into_iter().flatten() {
            waker.wake();
        }
        self.progress.wake();
    }

    fn close(&self) {
        let driver = {
            let mut inner = self.inner.borrow_mut();
            inner.closed = true;
            inner.driver.take()
        };
        if let Some(driver) = driver {
            driver.wake();
        }
    }
}
