//! A channel in which every receiver gets every message: that of `async-broadcast`, counted against the
//! task's budget.
//!
//! A receiver that is slower than the senders loses the oldest messages, and gets their number. So it never
//! delays the senders, and memory is bounded.

use super::budget::{counted, poll_counted};
use async_broadcast as inner;
use futures_core::Stream;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Makes a channel that keeps the last `capacity` messages for each receiver.
///
/// ```
/// use ringroad_engine::{DriverName, Runtime, sync::broadcast};
///
/// Runtime::new(DriverName::Epoll)?.block_on(async {
///     let (sender, mut one) = broadcast::channel(16);
///     let mut other = one.clone();
///     sender.send("news").unwrap();
///     assert_eq!(one.recv().await, Ok("news"));
///     assert_eq!(other.recv().await, Ok("news"));
/// })?;
/// # Ok::<(), ringroad_engine::Error>(())
/// ```
///
/// # Panics
/// If `capacity` is zero.
pub fn channel<T: Clone>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let (mut inner, receiver) = inner::broadcast(capacity);
    inner.set_overflow(true);
    inner.set_await_active(false);
    let open = receiver.clone().deactivate();
    (Sender { inner, open }, Receiver { inner: receiver })
}

/// The sending side. Each clone is a sender. Receivers may come and go: without a receiver a message is
/// refused, and [`subscribe`](Self::subscribe) makes a new one.
pub struct Sender<T> {
    inner: inner::Sender<T>,
    /// Keeps the channel open when the last receiver is dropped. It does not count as a receiver.
    open: inner::InactiveReceiver<T>,
}

impl<T: Clone> Sender<T> {
    /// Sends a message to every receiver; never waits. Returns the number of receivers.
    ///
    /// # Errors
    /// There is no receiver: the message is returned.
    pub fn send(&self, message: T) -> Result<usize, SendError<T>> {
        match self.inner.try_broadcast(message) {
            Ok(_) => Ok(self.inner.receiver_count()),
            Err(why) => Err(SendError(why.into_inner())),
        }
    }
}

impl<T> Sender<T> {
    /// Makes a receiver of messages that are sent from now on.
    pub fn subscribe(&self) -> Receiver<T> {
        Receiver { inner: self.open.activate_cloned() }
    }

    /// Returns the number of receivers.
    pub fn receiver_count(&self) -> usize {
        self.inner.receiver_count()
    }
}

/// The receiving side. A clone receives what this one has not received yet. It is a [`Stream`] too, which
/// skips lost messages.
pub struct Receiver<T> {
    inner: inner::Receiver<T>,
}

impl<T: Clone> Receiver<T> {
    /// Makes a receiver of messages that are sent from now on. A [clone](Clone) also receives the unread
    /// messages of this one.
    pub fn resubscribe(&self) -> Receiver<T> {
        Receiver { inner: self.inner.new_receiver() }
    }

    /// Receives the next message; waits while there is none. Dropping the future loses nothing.
    ///
    /// # Errors
    /// [`RecvError::Lagged`]: this many messages were lost; the next call returns the oldest one left.
    /// [`RecvError::Closed`]: every sender was dropped, and every message was received.
    pub async fn recv(&mut self) -> Result<T, RecvError> {
        counted(self.inner.recv_direct()).await.map_err(told)
    }

    /// Works as [`recv`](Self::recv), on a thread without a runtime; blocks while there is no message.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    #[doc(alias = "blocking_recv")]
    pub fn recv_blocking(&mut self) -> Result<T, RecvError> {
        self.inner.recv_blocking().map_err(told)
    }

    /// Receives the next message if there is one.
    ///
    /// # Errors
    /// As [`recv`](Self::recv), or [`TryRecvError::Empty`].
    pub fn try_recv(&mut self) -> Result<T, TryRecvError> {
        self.inner.try_recv().map_err(|why| match why {
            inner::TryRecvError::Overflowed(lost) => TryRecvError::Lagged(lost),
            inner::TryRecvError::Closed => TryRecvError::Closed,
            inner::TryRecvError::Empty => TryRecvError::Empty,
        })
    }
}

impl<T> Receiver<T> {
    /// Returns the number of unread messages of this receiver.
    pub fn len(&self) -> usize {
        self.inner.len()
    }

    /// Returns whether this receiver has no unread message.
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }
}

impl<T: Clone> Stream for Receiver<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let inner = Pin::new(&mut self.inner);
        poll_counted(context, |context| inner.poll_next(context))
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        Sender { inner: self.inner.clone(), open: self.open.clone() }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Receiver<T> {
        Receiver { inner: self.inner.clone() }
    }
}

/// Error: no receiver. Has the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendError<T>(pub T);

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the channel has no receiver")
    }
}

impl<T: fmt::Debug> std::error::Error for SendError<T> {}

/// Converts the error of the inner channel.
fn told(why: inner::RecvError) -> RecvError {
    match why {
        inner::RecvError::Overflowed(lost) => RecvError::Lagged(lost),
        inner::RecvError::Closed => RecvError::Closed,
    }
}

/// Error of [`Receiver::recv`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecvError {
    /// This many messages were lost, because the receiver was too slow.
    Lagged(u64),
    /// No sender is left.
    Closed,
}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecvError::Lagged(lost) => write!(f, "{lost} messages were lost: the receiver is too slow"),
            RecvError::Closed => f.write_str("the channel is closed"),
        }
    }
}

impl std::error::Error for RecvError {}

/// Error of [`Receiver::try_recv`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryRecvError {
    /// There is no message now.
    Empty,
    /// The same as [`RecvError::Lagged`].
    Lagged(u64),
    /// The same as [`RecvError::Closed`].
    Closed,
}

impl fmt::Display for TryRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TryRecvError::Empty => f.write_str("there is no message"),
            TryRecvError::Lagged(lost) => RecvError::Lagged(*lost).fmt(f),
            TryRecvError::Closed => RecvError::Closed.fmt(f),
        }
    }
}

impl std::error::Error for TryRecvError {}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("broadcast::Sender")
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("broadcast::Receiver")
    }
}
