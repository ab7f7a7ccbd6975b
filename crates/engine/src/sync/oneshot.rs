//! A channel for exactly one value: that of the crate `futures-channel`, counted against the task's budget.

use super::budget::poll_counted;
use futures_channel::oneshot as inner;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Makes a channel for one value.
pub fn channel<T>() -> (Sender<T>, AsyncReceiver<T>) {
    let (sender, receiver) = inner::channel();
    (Sender { inner: sender }, AsyncReceiver { inner: receiver, state: State::Open })
}

/// The sending side. Dropping it tells the receiver that no value comes.
pub struct Sender<T> {
    inner: inner::Sender<T>,
}

impl<T> Sender<T> {
    /// Sends the value. It neither blocks nor waits. If the receiver is dropped before it takes the value,
    /// the value is dropped with it.
    ///
    /// # Errors
    /// The receiver is gone: the error has the value.
    pub fn send(self, value: T) -> Result<(), SendError<T>> {
        self.inner.send(value).map_err(SendError)
    }

    /// Returns whether the receiver is gone, so that a value would return to its sender.
    pub fn is_closed(&self) -> bool {
        self.inner.is_canceled()
    }

    /// Waits until the receiver is gone: the result is no longer wanted, so the work for it can stop. If the
    /// future is dropped, nothing is lost.
    pub async fn closed(&mut self) {
        poll_fn(|context| poll_counted(context, |context| self.inner.poll_canceled(context))).await;
    }
}

/// The receiving side: a future of the value, or of an error if the sender is dropped. Dropping it drops a
/// value that has arrived.
///
/// # Panics
/// When it is polled again after it was ready.
#[must_use = "futures do nothing unless awaited"]
pub struct AsyncReceiver<T> {
    inner: inner::Receiver<T>,
    state: State<T>,
}

/// What a receiver has taken from its channel.
enum State<T> {
    Open,
    /// Taken by a question, and not yet by a poll: the value, or the news that there is none.
    Taken(Result<T, RecvError>),
    /// Handed over by a poll.
    Done,
}

impl<T> AsyncReceiver<T> {
    /// Returns whether no value can arrive any more: the sender was dropped without one, or the value was
    /// received.
    pub fn is_closed(&mut self) -> bool {
        self.look();
        matches!(self.state, State::Taken(Err(_)) | State::Done)
    }

    /// Returns whether the value has arrived, so that the next poll is ready with it.
    pub fn has_message(&mut self) -> bool {
        self.look();
        matches!(self.state, State::Taken(Ok(_)))
    }

    /// Takes what the channel has.
    fn look(&mut self) {
        if let State::Open = self.state {
            self.state = match self.inner.try_recv() {
                Ok(None) => State::Open,
                Ok(Some(value)) => State::Taken(Ok(value)),
                Err(inner::Canceled) => State::Taken(Err(RecvError)),
            };
        }
    }
}

// The value is moved out of the receiver and never pinned in it.
impl<T> Unpin for AsyncReceiver<T> {}

impl<T> Future for AsyncReceiver<T> {
    type Output = Result<T, RecvError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        poll_counted(context, |context| {
            let received = match std::mem::replace(&mut self.state, State::Open) {
                State::Open => ready!(Pin::new(&mut self.inner).poll(context)).map_err(|_| RecvError),
                State::Taken(received) => received,
                State::Done => panic!("a oneshot receiver was polled after it was ready"),
            };
            self.state = State::Done;
            Poll::Ready(received)
        })
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sender")
    }
}

impl<T> fmt::Debug for AsyncReceiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AsyncReceiver")
    }
}

/// Error: the receiver is gone. It has the value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SendError<T>(T);

impl<T> SendError<T> {
    /// Returns the value that was not sent.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SendError(..)")
    }
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the receiver of the oneshot is gone")
    }
}

impl<T> std::error::Error for SendError<T> {}

/// Error: the sender was dropped without a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvError;

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the sender of the oneshot was dropped without a value")
    }
}

impl std::error::Error for RecvError {}
