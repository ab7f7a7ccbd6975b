//! A channel for exactly one value: that of the crate `oneshot`, counted against the task's budget.

use super::budget::poll_counted;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

pub use oneshot::{RecvError, SendError, Sender, TryRecvError};

/// Makes a channel for one value.
pub fn channel<T>() -> (Sender<T>, AsyncReceiver<T>) {
    let (sender, inner) = oneshot::async_channel();
    (sender, AsyncReceiver { inner })
}

/// The receiving side: a future of the value, or of an error if the sender is dropped.
///
/// # Panics
/// When it is polled again after it was ready.
#[must_use = "futures do nothing unless awaited"]
pub struct AsyncReceiver<T> {
    inner: oneshot::AsyncReceiver<T>,
}

impl<T> AsyncReceiver<T> {
    /// Whether no value can arrive any more: the sender was dropped, or the value was received.
    pub fn is_closed(&self) -> bool {
        self.inner.is_closed()
    }

    /// Whether the value has arrived.
    pub fn has_message(&self) -> bool {
        self.inner.has_message()
    }
}

impl<T> Future for AsyncReceiver<T> {
    type Output = Result<T, RecvError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        poll_counted(context, |context| Pin::new(&mut self.inner).poll(context))
    }
}

impl<T> fmt::Debug for AsyncReceiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AsyncReceiver")
    }
}
