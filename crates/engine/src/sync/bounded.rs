//! A bounded channel from many senders to many receivers: that of `async-channel`, counted against the task's
//! budget.

use super::budget::{counted, poll_counted};
use futures_core::Stream;
use pin_project_lite::pin_project;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

pub use async_channel::{RecvError, SendError, TryRecvError, TrySendError};

/// Makes a channel with room for `capacity` unread messages. A sender that finds it full waits.
///
/// Each message goes to one receiver. The channel is closed when the last sender or the last receiver is
/// dropped.
///
/// # Panics
/// If `capacity` is zero.
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let (inner, receiver) = async_channel::bounded(capacity);
    (Sender { inner }, Receiver { inner: receiver })
}

/// The sending side of [`bounded`]. Each clone is a sender.
pub struct Sender<T> {
    inner: async_channel::Sender<T>,
}

impl<T> Sender<T> {
    /// Sends a message; waits while the channel is full. Dropping the future before it is ready sends
    /// nothing.
    ///
    /// # Errors
    /// The channel is closed: the message comes back.
    pub async fn send(&self, message: T) -> Result<(), SendError<T>> {
        counted(self.inner.send(message)).await
    }

    /// Sends a message if there is room.
    ///
    /// # Errors
    /// The channel is full or closed: the message is returned.
    pub fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        self.inner.try_send(message)
    }

    /// Sends a message. If the channel is full, removes and returns the oldest one.
    ///
    /// # Errors
    /// The channel is closed: the message comes back.
    pub fn force_send(&self, message: T) -> Result<Option<T>, SendError<T>> {
        self.inner.force_send(message)
    }

    /// Sends a message from a thread without a runtime; blocks while the channel is full.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_blocking(&self, message: T) -> Result<(), SendError<T>> {
        self.inner.send_blocking(message)
    }

    /// Waits until the channel is closed.
    pub async fn closed(&self) {
        counted(self.inner.closed()).await;
    }

    /// Makes a sender that does not keep the channel open.
    pub fn downgrade(&self) -> WeakSender<T> {
        WeakSender { inner: self.inner.downgrade() }
    }
}

pin_project! {
    /// The receiving side of [`bounded`]. Each clone is a receiver. It is a [`Stream`] too.
    pub struct Receiver<T> {
        #[pin]
        inner: async_channel::Receiver<T>,
    }
}

impl<T> Receiver<T> {
    /// Receives the next message; waits while there is none. Dropping the future loses nothing.
    ///
    /// # Errors
    /// The channel is closed and empty.
    pub async fn recv(&self) -> Result<T, RecvError> {
        counted(self.inner.recv()).await
    }

    /// Receives the next message if there is one.
    ///
    /// # Errors
    /// The channel is empty, or closed and empty.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        self.inner.try_recv()
    }

    /// Receives on a thread without a runtime; blocks while there is no message.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn recv_blocking(&self) -> Result<T, RecvError> {
        self.inner.recv_blocking()
    }

    /// Makes a receiver that does not keep the channel open.
    pub fn downgrade(&self) -> WeakReceiver<T> {
        WeakReceiver { inner: self.inner.downgrade() }
    }
}

/// Methods of both sides.
macro_rules! ends {
    ($($end:ident),+) => {$(
        impl<T> $end<T> {
            /// Closes the channel: further sends return their messages. Earlier messages are still received.
            /// Returns whether it was open.
            pub fn close(&self) -> bool {
                self.inner.close()
            }

            /// Returns whether the channel is closed.
            pub fn is_closed(&self) -> bool {
                self.inner.is_closed()
            }

            /// Returns whether no message is unread.
            pub fn is_empty(&self) -> bool {
                self.inner.is_empty()
            }

            /// Returns whether there is no room.
            pub fn is_full(&self) -> bool {
                self.inner.is_full()
            }

            /// Returns the number of unread messages.
            pub fn len(&self) -> usize {
                self.inner.len()
            }

            /// Returns the capacity for unread messages.
            pub fn capacity(&self) -> usize {
                self.inner.capacity().unwrap_or(usize::MAX)
            }

            /// Returns the number of senders.
            pub fn sender_count(&self) -> usize {
                self.inner.sender_count()
            }

            /// Returns the number of receivers.
            pub fn receiver_count(&self) -> usize {
                self.inner.receiver_count()
            }

            /// Returns whether both belong to the same channel.
            pub fn same_channel(&self, other: &$end<T>) -> bool {
                self.inner.same_channel(&other.inner)
            }
        }

        impl<T> Clone for $end<T> {
            fn clone(&self) -> $end<T> {
                $end { inner: self.inner.clone() }
            }
        }
    )+};
}
ends!(Sender, Receiver);

/// A [`Sender`] that does not keep the channel open.
pub struct WeakSender<T> {
    inner: async_channel::WeakSender<T>,
}

impl<T> WeakSender<T> {
    /// Makes a sender, if the channel still has one.
    pub fn upgrade(&self) -> Option<Sender<T>> {
        self.inner.upgrade().map(|inner| Sender { inner })
    }
}

/// A [`Receiver`] that does not keep the channel open.
pub struct WeakReceiver<T> {
    inner: async_channel::WeakReceiver<T>,
}

impl<T> WeakReceiver<T> {
    /// Makes a receiver, if the channel still has one.
    pub fn upgrade(&self) -> Option<Receiver<T>> {
        self.inner.upgrade().map(|inner| Receiver { inner })
    }
}

impl<T> Clone for WeakSender<T> {
    fn clone(&self) -> WeakSender<T> {
        WeakSender { inner: self.inner.clone() }
    }
}

impl<T> Clone for WeakReceiver<T> {
    fn clone(&self) -> WeakReceiver<T> {
        WeakReceiver { inner: self.inner.clone() }
    }
}

macro_rules! debugs {
    ($($end:ident),+) => {$(
        impl<T> fmt::Debug for $end<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($end))
            }
        }
    )+};
}
debugs!(Sender, Receiver, WeakSender, WeakReceiver);

impl<T> Stream for Receiver<T> {
    type Item = T;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let inner = self.project().inner;
        poll_counted(context, |context| inner.poll_next(context))
    }
}
