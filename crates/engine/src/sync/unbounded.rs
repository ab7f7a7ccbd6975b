//! An unbounded channel from many senders to one receiver.
//!
//! Messages are in a queue under a lock. The receiver takes the whole queue at once, so each message costs
//! one lock operation of its sender, and each batch one more. This works only with one receiver; for several
//! receivers use [`bounded`](super::bounded).

use event_listener::{Event, listener};
use futures_core::Stream;
#[cfg(ringroad_loom)]
use loom::sync::{Arc, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
#[cfg(not(ringroad_loom))]
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use super::budget::{counted, poll_leaf};
use super::{RecvError, SendError, TryRecvError};
use crate::exec::in_destructor;
use crate::parked::block_on;

/// Maximum capacity that an empty queue keeps. The memory of a burst is freed.
const ROOM_KEPT: usize = 1024;

/// Creates an unbounded channel with one receiver. A send never waits. If senders may be faster than the
/// receiver for long, use [`bounded`](super::bounded): this queue would grow without limit.
///
/// ```
/// use ringroad_engine::{DriverName, Runtime, sync};
///
/// let (sender, mut receiver) = sync::unbounded();
/// let other = std::thread::spawn(move || (0..10).for_each(|number| sender.send(number).unwrap()));
/// let sum = Runtime::new(DriverName::Epoll)?.block_on(async {
///     let mut sum = 0;
///     while let Ok(number) = receiver.recv().await {
///         sum += number;
///     }
///     sum
/// })?;
/// assert_eq!(sum, 45);
/// # other.join().unwrap();
/// # Ok::<(), ringroad_engine::Error>(())
/// ```
pub fn unbounded<T>() -> (UnboundedSender<T>, UnboundedReceiver<T>) {
    let state = State { queue: VecDeque::new(), waiting: None, senders: 1, is_closed: false };
    let shared = Arc::new(Shared { state: Mutex::new(state), closed: Event::new() });
    let sender = UnboundedSender { shared: Arc::clone(&shared) };
    (sender, UnboundedReceiver { own: VecDeque::new(), shared })
}

/// User code (drops of messages, wakers) never runs under this lock, because it might use the channel.
struct Shared<T> {
    state: Mutex<State<T>>,
    /// The receiver was dropped, or has closed the channel.
    closed: Event,
}

struct State<T> {
    queue: VecDeque<T>,
    /// Waker of the receiver, if it has found nothing.
    waiting: Option<Waker>,
    senders: usize,
    /// The receiver was dropped, or has closed the channel.
    is_closed: bool,
}

impl<T> Shared<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        // Only a failed allocation can panic under this lock, and the state is consistent then.
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// The sending side of [`unbounded`]. Each clone is a sender. When all are dropped, the receiver gets the
/// end.
pub struct UnboundedSender<T> {
    shared: Arc<Shared<T>>,
}

impl<T> UnboundedSender<T> {
    /// Sends a message.
    ///
    /// # Errors
    /// The receiver was dropped, or has closed the channel: the message is returned.
    #[inline]
    pub fn send(&self, message: T) -> Result<(), SendError<T>> {
        let waiting = {
            let mut state = self.shared.state();
            if state.is_closed {
                return Err(SendError(message));
            }
            state.queue.push_back(message);
            state.waiting.take()
        };
        if let Some(waker) = waiting {
            waker.wake();
        }
        Ok(())
    }

    /// Returns the number of messages that the receiver has not taken yet. It takes all of them at once, so
    /// there may be more that it has not returned.
    pub fn len(&self) -> usize {
        self.shared.state().queue.len()
    }

    /// Returns whether the receiver has taken every message.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether both senders belong to the same channel.
    pub fn same_channel(&self, other: &UnboundedSender<T>) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Waits until the receiver is dropped, or has closed the channel.
    pub async fn closed(&self) {
        counted(async {
            while !self.is_closed() {
                listener!(self.shared.closed => closed);
                // It may have been closed before the listener was registered.
                if !self.is_closed() {
                    closed.await;
                }
            }
        })
        .await;
    }

    /// Returns whether the receiver was dropped, or has closed the channel.
    pub fn is_closed(&self) -> bool {
        self.shared.state().is_closed
    }
}

impl<T> Clone for UnboundedSender<T> {
    fn clone(&self) -> UnboundedSender<T> {
        self.shared.state().senders += 1;
        UnboundedSender { shared: Arc::clone(&self.shared) }
    }
}

impl<T> Drop for UnboundedSender<T> {
    fn drop(&mut self) {
        let waiting = {
            let mut state = self.shared.state();
            state.senders -= 1;
            if state.senders == 0 { state.waiting.take() } else { None }
        };
        if let Some(waker) = waiting {
            in_destructor(|| waker.wake());
        }
    }
}

/// The receiving side of [`unbounded`]. It is a [`Stream`] too.
pub struct UnboundedReceiver<T> {
    /// Messages taken from the queue and not received yet.
    own: VecDeque<T>,
    shared: Arc<Shared<T>>,
}

impl<T> UnboundedReceiver<T> {
    /// Receives the next message. Dropping the future loses nothing.
    ///
    /// # Errors
    /// The channel is empty, and closed or without senders.
    #[inline]
    pub fn recv(&mut self) -> RecvUnbounded<'_, T> {
        RecvUnbounded { receiver: self }
    }

    /// Receives all messages in the channel, but at most `limit`; waits while there is none. Appends them to
    /// `to` and returns their number. It counts as one operation for the task's budget. Dropping the future
    /// loses nothing.
    ///
    /// # Errors
    /// The channel is empty, and closed or without senders.
    ///
    /// # Panics
    /// If `limit` is zero.
    pub async fn recv_many(&mut self, to: &mut Vec<T>, limit: usize) -> Result<usize, RecvError> {
        assert!(limit > 0, "no message at most would be received without end");
        to.push(self.recv().await?);
        if self.own.len() < limit - 1 {
            // Messages that were sent meanwhile follow them.
            self.own.append(&mut self.shared.state().queue);
        }
        let more = self.own.len().min(limit - 1);
        to.extend(self.own.drain(..more));
        Ok(1 + more)
    }

    /// Receives the next message, if there is one.
    ///
    /// # Errors
    /// The channel is empty, or closed and empty.
    pub fn try_recv(&mut self) -> Result<T, TryRecvError> {
        match self.take(None) {
            Poll::Ready(Ok(message)) => Ok(message),
            Poll::Ready(Err(RecvError)) => Err(TryRecvError::Closed),
            Poll::Pending => Err(TryRecvError::Empty),
        }
    }

    /// Receives the next message on a thread without a runtime; blocks while there is none.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn recv_blocking(&mut self) -> Result<T, RecvError> {
        block_on(|context| self.poll_uncounted(context))
    }

    /// Works as [`recv`](Self::recv), for hand-written futures.
    #[inline]
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Result<T, RecvError>> {
        poll_leaf(context, |context| self.poll_uncounted(context))
    }

    #[inline]
    fn poll_uncounted(&mut self, context: &mut Context<'_>) -> Poll<Result<T, RecvError>> {
        match self.own.pop_front() {
            Some(message) => Poll::Ready(Ok(message)),
            // Cloned before the lock is taken; if it is not needed, dropped after the lock is released.
            None => self.take(Some(context.waker().clone())),
        }
    }

    /// Closes the channel: further sends return their messages. Earlier messages are still received.
    pub fn close(&mut self) {
        self.shared.state().is_closed = true;
        self.shared.closed.notify(usize::MAX);
    }

    /// Returns whether the channel is closed, or has no sender.
    pub fn is_closed(&self) -> bool {
        let state = self.shared.state();
        state.is_closed || state.senders == 0
    }

    /// Returns the number of senders.
    pub fn sender_count(&self) -> usize {
        self.shared.state().senders
    }

    /// Returns the number of unread messages.
    pub fn len(&self) -> usize {
        self.own.len() + self.shared.state().queue.len()
    }

    /// Returns whether no message is unread.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the next message. If there is none, leaves the waker, if given.
    fn take(&mut self, mut waker: Option<Waker>) -> Poll<Result<T, RecvError>> {
        if let Some(message) = self.own.pop_front() {
            return Poll::Ready(Ok(message));
        }
        if self.own.capacity() > ROOM_KEPT {
            self.own = VecDeque::new();
        }
        let is_over = {
            let mut state = self.shared.state();
            std::mem::swap(&mut state.queue, &mut self.own);
            let is_over = state.senders == 0 || state.is_closed;
            if self.own.is_empty() && !is_over && waker.is_some() {
                std::mem::swap(&mut state.waiting, &mut waker);
            }
            is_over
        };
        match self.own.pop_front() {
            Some(message) => Poll::Ready(Ok(message)),
            None if is_over => Poll::Ready(Err(RecvError)),
            None => Poll::Pending,
        }
    }
}

impl<T> Drop for UnboundedReceiver<T> {
    fn drop(&mut self) {
        let _unread = {
            let mut state = self.shared.state();
            state.is_closed = true;
            (std::mem::take(&mut state.queue), state.waiting.take())
        };
        in_destructor(|| {
            self.shared.closed.notify(usize::MAX);
        });
    }
}

/// Messages are moved, and never pinned.
impl<T> Unpin for UnboundedReceiver<T> {}

impl<T> Stream for UnboundedReceiver<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        self.poll_recv(context).map(Result::ok)
    }
}

/// Future of [`UnboundedReceiver::recv`].
#[must_use = "futures do nothing unless awaited"]
#[derive(Debug)]
pub struct RecvUnbounded<'a, T> {
    receiver: &'a mut UnboundedReceiver<T>,
}

impl<T> Future for RecvUnbounded<'_, T> {
    type Output = Result<T, RecvError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.receiver.poll_recv(context)
    }
}

impl<T> fmt::Debug for UnboundedSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UnboundedSender")
    }
}

impl<T> fmt::Debug for UnboundedReceiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UnboundedReceiver")
    }
}

#[cfg(all(test, ringroad_loom))]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::model::{check_three_threads, waited};
    use super::*;
    use loom::thread;

    /// Receives to the end.
    fn received(receiver: &mut UnboundedReceiver<u32>) -> Vec<u32> {
        std::iter::from_fn(|| waited(|context| receiver.poll_recv(context)).ok()).collect()
    }

    #[test]
    fn messages_of_one_sender_arrive_in_order_and_then_the_end() {
        loom::model(|| {
            let (sender, mut receiver) = unbounded();
            let sending = thread::spawn(move || (1..=2).for_each(|message| sender.send(message).unwrap()));
            assert_eq!(received(&mut receiver), [1, 2]);
            sending.join().unwrap();
        });
    }

    #[test]
    fn messages_of_two_senders_arrive_and_the_end_follows_both() {
        check_three_threads(|| {
            let (sender, mut receiver) = unbounded();
            let other = sender.clone();
            let one = thread::spawn(move || sender.send(1).unwrap());
            let other = thread::spawn(move || other.send(2).unwrap());
            let mut all = received(&mut receiver);
            all.sort_unstable();
            assert_eq!(all, [1, 2]);
            one.join().unwrap();
            other.join().unwrap();
        });
    }

    #[test]
    fn a_message_is_received_or_returned_when_the_channel_is_closed() {
        loom::model(|| {
            let (sender, mut receiver) = unbounded();
            let sending = thread::spawn(move || sender.send(1).is_err());
            receiver.close();
            let came_back = sending.join().unwrap();
            assert_eq!(receiver.try_recv().is_ok(), !came_back);
        });
    }
}
