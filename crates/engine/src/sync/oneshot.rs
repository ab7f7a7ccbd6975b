//! A channel for exactly one value: that of the crate `futures-channel`, counted against the task's budget.

use super::budget::poll_counted;
use crate::parked::block_on;
use futures_channel::oneshot as inner;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

pub use super::{RecvError, SendError, TryRecvError};

/// Makes a channel for one value.
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = inner::channel();
    (Sender { inner: sender }, Receiver { inner: receiver })
}

/// The sending side. If it is dropped, the receiver gets an error.
pub struct Sender<T> {
    inner: inner::Sender<T>,
}

impl<T> Sender<T> {
    /// Sends the value. It neither blocks nor waits. If the receiver is dropped before it takes the value,
    /// the value is dropped with it.
    ///
    /// # Errors
    /// The receiver was dropped: the error has the value.
    pub fn send(self, value: T) -> Result<(), SendError<T>> {
        self.inner.send(value).map_err(SendError)
    }

    /// Returns whether the receiver was dropped, so that a send would return the value.
    pub fn is_closed(&self) -> bool {
        self.inner.is_canceled()
    }

    /// Waits until the receiver is dropped: the result is no longer wanted, so the work for it can stop.
    /// Dropping the future loses nothing.
    pub async fn closed(&mut self) {
        poll_fn(|context| poll_counted(context, |context| self.inner.poll_canceled(context))).await;
    }
}

/// The receiving side: a future of the value, or of an error if the sender is dropped. Dropping it drops a
/// value that has arrived. A poll after it was ready returns an error.
#[must_use = "futures do nothing unless awaited"]
pub struct Receiver<T> {
    inner: inner::Receiver<T>,
}

impl<T> Receiver<T> {
    /// Refuses a value that has not arrived yet: the sender gets it back. A value that has arrived can still
    /// be taken.
    pub fn close(&mut self) {
        self.inner.close();
    }

    /// Waits on a thread without a runtime; blocks.
    ///
    /// # Errors
    /// The sender was dropped without a value.
    #[doc(alias = "blocking_recv")]
    pub fn recv_blocking(mut self) -> Result<T, RecvError> {
        block_on(|context| Pin::new(&mut self.inner).poll(context)).map_err(|_| RecvError)
    }

    /// Takes the value if it has arrived.
    ///
    /// # Errors
    /// [`TryRecvError::Empty`]: it has not. [`TryRecvError::Closed`]: the sender was dropped without it, or
    /// it was taken before.
    pub fn try_recv(&mut self) -> Result<T, TryRecvError> {
        match self.inner.try_recv() {
            Ok(Some(value)) => Ok(value),
            Ok(None) => Err(TryRecvError::Empty),
            Err(inner::Canceled) => Err(TryRecvError::Closed),
        }
    }
}

impl<T> Future for Receiver<T> {
    type Output = Result<T, RecvError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        poll_counted(context, |context| Pin::new(&mut self.inner).poll(context).map_err(|_| RecvError))
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sender")
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Receiver")
    }
}
