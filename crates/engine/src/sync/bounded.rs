//! A bounded channel from many senders to many receivers.
//!
//! Messages are in a queue under a lock, and waiting tasks are in lines under the same lock: while no task
//! waits, an operation takes that lock once and checks a length. A place that becomes free is given to the
//! task that has waited longest, if it wants no more places than are free; so a task that wants many places
//! gets them too. If a task that was notified of a message or was given places is dropped, it notifies the
//! next one: a dropped future loses no message and no place.

use super::budget::poll_leaf;
use super::line::Line;
use super::{RecvError, SendError, SendTimeoutError, TryRecvError, TrySendError};
use crate::exec::in_destructor;
use crate::parked::block_on;
use crate::time::timeout;
use futures_core::Stream;
#[cfg(ringroad_loom)]
use loom::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicUsize, Ordering},
};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::iter::FusedIterator;
use std::num::NonZeroU64;
use std::pin::Pin;
#[cfg(not(ringroad_loom))]
use std::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicUsize, Ordering},
};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Number of messages that a channel has memory for at first, if its capacity is not smaller.
const ROOM_AT_FIRST: usize = 32;

/// Creates a channel with room for `capacity` unread messages. A sender that finds it full waits.
///
/// Each message goes to one receiver. The channel is closed when the last sender or the last receiver is
/// dropped. With the last receiver the unread messages are dropped too.
///
/// # Panics
/// If `capacity` is zero.
#[doc(alias("channel", "mpsc"))]
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    assert!(capacity > 0, "a bounded channel has room for one message at least");
    let state = State {
        queue: VecDeque::with_capacity(capacity.min(ROOM_AT_FIRST)),
        capacity,
        reserved: 0,
        given: 0,
        is_closed: false,
        for_room: Line::new(),
        for_messages: Line::new(),
        streams: Line::new(),
        for_close: Line::new(),
    };
    let shared = Arc::new(Shared {
        state: Mutex::new(state),
        senders: AtomicUsize::new(1),
        receivers: AtomicUsize::new(1),
    });
    (Sender { shared: Arc::clone(&shared) }, Receiver { shared, number: None })
}

/// User code (drops of messages, wakers) never runs under the lock, because it might use the channel.
struct Shared<T> {
    state: Mutex<State<T>>,
    senders: AtomicUsize,
    receivers: AtomicUsize,
}

struct State<T> {
    queue: VecDeque<T>,
    capacity: usize,
    /// Places that are taken by permits.
    reserved: usize,
    /// Places given to tasks that have not run since. A close takes them back.
    given: usize,
    is_closed: bool,
    /// Tasks that wait for places. The first one wants more than are free.
    for_room: Line<usize>,
    /// Tasks that wait for a message or the end.
    for_messages: Line<usize>,
    /// The same, for receivers that are polled. Each is notified of every message: it stays in the line from
    /// one poll to the next, and may never be polled again.
    streams: Line<usize>,
    /// Tasks that wait until the channel is closed.
    for_close: Line<usize>,
}

/// What a task waits for.
#[derive(Clone, Copy)]
enum What {
    /// This many places.
    Room(usize),
    Message,
    /// A message, as a [`Stream`].
    Item,
    Close,
}

impl What {
    /// Returns the number of places that it waits for.
    fn places(self) -> usize {
        match self {
            What::Room(places) => places,
            What::Message | What::Item | What::Close => 0,
        }
    }
}

/// Tasks that were notified, to be woken without the lock.
enum Told {
    None,
    One(Waker),
    Many(Vec<Waker>),
}

impl Told {
    #[inline]
    fn wake(self) {
        match self {
            Told::None => {}
            Told::One(waker) => waker.wake(),
            Told::Many(wakers) => wakers.into_iter().for_each(Waker::wake),
        }
    }

    fn one(waker: Option<Waker>) -> Told {
        waker.map_or(Told::None, Told::One)
    }

    fn and(self, waker: Option<Waker>) -> Told {
        match self {
            Told::None => Told::one(waker),
            Told::One(first) => Told::Many([first].into_iter().chain(waker).collect()),
            Told::Many(mut wakers) => {
                wakers.extend(waker);
                Told::Many(wakers)
            }
        }
    }
}

/// Result of an attempt, with the tasks that it notifies. `None`: the task has to wait.
type Tried<R> = Option<(R, Told)>;

impl<T> State<T> {
    /// Returns the number of free places. A forced send may have used a reserved one.
    #[inline]
    fn free(&self) -> usize {
        self.capacity.saturating_sub(self.queue.len() + self.reserved + self.given)
    }

    /// Returns the number of messages that can be sent now: none if tasks wait to send.
    #[inline]
    fn room(&self) -> usize {
        if self.for_room.is_empty() { self.free() } else { 0 }
    }

    /// Returns whether no message can arrive.
    fn is_over(&self) -> bool {
        self.is_closed && self.reserved == 0
    }

    fn line(&mut self, what: What) -> &mut Line<usize> {
        match what {
            What::Room(_) => &mut self.for_room,
            What::Message => &mut self.for_messages,
            What::Item => &mut self.streams,
            What::Close => &mut self.for_close,
        }
    }

    /// Adds a message. The caller has found room for it.
    #[inline]
    fn push(&mut self, message: T) -> Told {
        self.queue.push_back(message);
        match self.for_messages.is_empty() && self.streams.is_empty() {
            true => Told::None,
            false => self.tell_of_message(),
        }
    }

    fn tell_of_message(&mut self) -> Told {
        let first = self.for_messages.pop();
        match self.streams.is_empty() {
            true => Told::one(first),
            false => Told::Many(first.into_iter().chain(self.streams.pop_all()).collect()),
        }
    }

    /// Removes the oldest message, if there is one.
    #[inline]
    fn pop(&mut self) -> Result<(T, Told), TryRecvError> {
        match self.queue.pop_front() {
            Some(message) => Ok((message, self.give_places())),
            None if self.is_over() => Err(TryRecvError::Closed),
            None => Err(TryRecvError::Empty),
        }
    }

    /// Removes at most `limit` of the oldest messages; returns their number.
    fn pop_many(&mut self, to: &mut Vec<T>, limit: usize) -> Result<(usize, Told), TryRecvError> {
        let moved = self.queue.len().min(limit);
        if moved == 0 {
            return Err(if self.is_over() { TryRecvError::Closed } else { TryRecvError::Empty });
        }
        // Here, and not by `extend`, so that no message has been removed if it fails.
        to.reserve(moved);
        to.extend(self.queue.drain(..moved));
        Ok((moved, self.give_places()))
    }

    /// Gives free places to the tasks that have waited longest.
    #[inline]
    fn give_places(&mut self) -> Told {
        match self.for_room.is_empty() {
            true => Told::None,
            false => self.give_to_first(),
        }
    }

    fn give_to_first(&mut self) -> Told {
        let mut told = Told::None;
        while let Some(&wanted) = self.for_room.first()
            && wanted <= self.free()
        {
            self.given += wanted;
            told = told.and(self.for_room.pop());
        }
        told
    }

    /// Takes `wanted` places for the task with this number in the line, or for one that has not waited.
    /// Returns `None` if it has to wait; an error if the channel is closed.
    #[inline]
    fn places(&mut self, wanted: usize, number: Option<NonZeroU64>) -> Option<Result<(), SendError<()>>> {
        if self.is_closed {
            return Some(Err(SendError(())));
        }
        match number {
            // Its places were given to it if it is not in the line.
            Some(number) => self.for_room.waker(number).is_none().then(|| self.given -= wanted),
            None => (self.for_room.is_empty() && wanted <= self.free()).then_some(()),
        }
        .map(Ok)
    }

    /// Takes places for permits if enough are free.
    fn reserve(&mut self, wanted: usize) -> Result<(), TrySendError<()>> {
        match self.places(wanted, None) {
            Some(Ok(())) => {
                self.reserved += wanted;
                Ok(())
            }
            Some(Err(SendError(()))) => Err(TrySendError::Closed(())),
            None => Err(TrySendError::Full(())),
        }
    }

    /// Closes the channel; returns `None` if it was closed already.
    fn close(&mut self) -> Option<Told> {
        if std::mem::replace(&mut self.is_closed, true) {
            return None;
        }
        self.given = 0;
        let told = self.for_room.pop_all().chain(self.for_close.pop_all());
        Some(Told::Many(told.chain(self.for_messages.pop_all()).chain(self.streams.pop_all()).collect()))
    }

    /// Notifies every receiver of the end, if the channel is closed and the last permit is gone.
    fn tell_of_end(&mut self) -> Option<Told> {
        let all =
            |state: &mut State<T>| state.for_messages.pop_all().chain(state.streams.pop_all()).collect();
        self.is_over().then(|| Told::Many(all(self)))
    }

    /// Notifies the next task of a line in place of one that was notified and is dropped.
    fn tell_next(&mut self, what: What) -> Told {
        match what {
            What::Room(wanted) if !self.is_closed => {
                self.given -= wanted;
                self.give_places()
            }
            What::Message if !self.queue.is_empty() => Told::one(self.for_messages.pop()),
            // A close and the end notify all tasks, and a message notifies every stream.
            What::Room(_) | What::Message | What::Item | What::Close => Told::None,
        }
    }
}

impl<T> Shared<T> {
    #[inline]
    fn state(&self) -> MutexGuard<'_, State<T>> {
        // Only a failed allocation and a send that is polled after its end can panic under this lock, and the
        // state is consistent then.
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Tries until there is a result. Until then the task is in the line of `what`, under `number`.
    #[inline]
    fn poll<R>(
        &self,
        what: What,
        number: &mut Option<NonZeroU64>,
        context: &mut Context<'_>,
        mut attempt: impl FnMut(&mut State<T>, Option<NonZeroU64>) -> Tried<R>,
    ) -> Poll<R> {
        let mut state = self.state();
        match attempt(&mut state, *number) {
            Some(tried) => Poll::Ready(Self::ready(state, what, number, tried)),
            None => {
                drop(state);
                self.wait(what, number, context, attempt)
            }
        }
    }

    /// Works as [`poll`](Self::poll), after a first attempt: a waker is not cloned before it is needed.
    fn wait<R>(
        &self,
        what: What,
        number: &mut Option<NonZeroU64>,
        context: &mut Context<'_>,
        mut attempt: impl FnMut(&mut State<T>, Option<NonZeroU64>) -> Tried<R>,
    ) -> Poll<R> {
        let mut waker = context.waker().clone();
        let mut state = self.state();
        if let Some(tried) = attempt(&mut state, *number) {
            return Poll::Ready(Self::ready(state, what, number, tried));
        }
        let line = state.line(what);
        match number.and_then(|number| line.waker(number)) {
            Some(before) => std::mem::swap(before, &mut waker),
            None => {
                *number = line.join(what.places(), waker);
                return Poll::Pending;
            }
        }
        drop(state);
        Poll::Pending
    }

    /// Ends a wait with its result. Inlined: as a call it would cost each message 30 instructions.
    #[inline(always)]
    fn ready<R>(
        mut state: MutexGuard<'_, State<T>>,
        what: What,
        number: &mut Option<NonZeroU64>,
        (result, told): (R, Told),
    ) -> R {
        // It may be ready before it was notified.
        let own = number.take().and_then(|number| state.line(what).leave(number));
        drop(state);
        told.wake();
        drop(own);
        result
    }

    /// Works as [`poll`](Self::poll), on a thread without a runtime.
    fn block<R>(
        &self,
        what: What,
        mut attempt: impl FnMut(&mut State<T>, Option<NonZeroU64>) -> Tried<R>,
    ) -> R {
        let first = attempt(&mut self.state(), None);
        if let Some((result, told)) = first {
            told.wake();
            return result;
        }
        let mut waiting = Waiting { shared: self, what, number: None };
        block_on(|context| waiting.poll(context, &mut attempt))
    }

    /// Removes a task from its line that does not wait any more.
    fn leave(&self, what: What, number: NonZeroU64) {
        let (own, told) = {
            let mut state = self.state();
            match state.line(what).leave(number) {
                // Tasks behind it may want fewer places than it did.
                Some(own) => (Some(own), state.give_places()),
                None => (None, state.tell_next(what)),
            }
        };
        in_destructor(|| told.wake());
        in_destructor(|| drop(own));
    }

    fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        let told = {
            let mut state = self.state();
            match state.places(1, None) {
                Some(Ok(())) => state.push(message),
                Some(Err(_)) => return Err(TrySendError::Closed(message)),
                None => return Err(TrySendError::Full(message)),
            }
        };
        told.wake();
        Ok(())
    }

    /// Sends the message of a permit, which may happen after the channel was closed.
    fn redeem(&self, message: T) -> Result<(), SendError<T>> {
        let (told, ended) = {
            let mut state = self.state();
            state.reserved -= 1;
            if self.receivers.load(Ordering::Acquire) == 0 {
                return Err(SendError(message));
            }
            (state.push(message), state.tell_of_end())
        };
        told.wake();
        ended.unwrap_or(Told::None).wake();
        Ok(())
    }

    /// Gives back the places of permits.
    fn release(&self, places: usize) {
        let told = {
            let mut state = self.state();
            state.reserved -= places;
            state.tell_of_end().unwrap_or_else(|| state.give_places())
        };
        in_destructor(|| told.wake());
    }

    fn close(&self) -> bool {
        let told = self.state().close();
        let was_open = told.is_some();
        in_destructor(|| told.unwrap_or(Told::None).wake());
        was_open
    }
}

/// A task's place in a line, which it leaves when this is dropped.
struct Waiting<'a, T> {
    shared: &'a Shared<T>,
    what: What,
    /// `None` before it waits and after it was ready.
    number: Option<NonZeroU64>,
}

impl<T> Waiting<'_, T> {
    #[inline]
    fn poll<R>(
        &mut self,
        context: &mut Context<'_>,
        attempt: impl FnMut(&mut State<T>, Option<NonZeroU64>) -> Tried<R>,
    ) -> Poll<R> {
        self.shared.poll(self.what, &mut self.number, context, attempt)
    }
}

impl<T> Drop for Waiting<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.shared.leave(self.what, number);
        }
    }
}

/// Tries until there is a result, and waits between.
struct Tries<'a, T, A> {
    waiting: Waiting<'a, T>,
    attempt: A,
}

/// An attempt is moved, and never pinned.
impl<T, A> Unpin for Tries<'_, T, A> {}

impl<'a, T, A> Tries<'a, T, A> {
    #[inline]
    fn new(shared: &'a Shared<T>, what: What, attempt: A) -> Tries<'a, T, A> {
        Tries { waiting: Waiting { shared, what, number: None }, attempt }
    }
}

impl<T, R, A: FnMut(&mut State<T>, Option<NonZeroU64>) -> Tried<R>> Future for Tries<'_, T, A> {
    type Output = R;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<R> {
        let this = &mut *self;
        poll_leaf(context, |context| this.waiting.poll(context, &mut this.attempt))
    }
}

/// Returns attempts to send the message.
#[inline]
fn sends<T>(message: T) -> impl FnMut(&mut State<T>, Option<NonZeroU64>) -> Tried<Result<(), SendError<T>>> {
    let mut message = Some(message);
    move |state, number| {
        let places = state.places(1, number)?;
        let Some(message) = message.take() else { unreachable!("a send is polled after its end") };
        Some(match places {
            Ok(()) => (Ok(()), state.push(message)),
            Err(SendError(())) => (Err(SendError(message)), Told::None),
        })
    }
}

/// Tries to receive a message, or the end.
#[inline]
fn receive<T>(state: &mut State<T>, _: Option<NonZeroU64>) -> Tried<Result<T, RecvError>> {
    match state.pop() {
        Ok((message, told)) => Some((Ok(message), told)),
        Err(TryRecvError::Closed) => Some((Err(RecvError), Told::None)),
        Err(TryRecvError::Empty) => None,
    }
}

/// The sending side of [`bounded`]. Each clone is a sender.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Sender<T> {
    /// Sends a message; waits while the channel is full. Dropping the future before it is ready sends
    /// nothing.
    ///
    /// # Errors
    /// The channel is closed: the message is returned.
    #[inline]
    pub fn send(&self, message: T) -> impl Future<Output = Result<(), SendError<T>>> {
        Tries::new(&self.shared, What::Room(1), sends(message))
    }

    /// Sends a message if there is room.
    ///
    /// # Errors
    /// The channel is full or closed: the message is returned.
    pub fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        self.shared.try_send(message)
    }

    /// Works as [`send`](Self::send), with a limit of the waiting time.
    ///
    /// # Errors
    /// There was no room within `span`, or the channel is closed. The message is returned in each case.
    pub async fn send_timeout(&self, message: T, span: Duration) -> Result<(), SendTimeoutError<T>> {
        match timeout(span, self.reserve()).await {
            Ok(Ok(permit)) => permit.send(message).map_err(|back| SendTimeoutError::Closed(back.0)),
            Ok(Err(_)) => Err(SendTimeoutError::Closed(message)),
            Err(_) => Err(SendTimeoutError::Elapsed(message)),
        }
    }

    /// Sends a message. If the channel is full, removes and returns the oldest one. If permits have all of
    /// its places, the channel exceeds its capacity for a while.
    ///
    /// # Errors
    /// The channel is closed: the message is returned.
    pub fn force_send(&self, message: T) -> Result<Option<T>, SendError<T>> {
        let (oldest, told) = {
            let mut state = self.shared.state();
            if state.is_closed {
                return Err(SendError(message));
            }
            let oldest = if state.free() == 0 { state.queue.pop_front() } else { None };
            (oldest, state.push(message))
        };
        told.wake();
        Ok(oldest)
    }

    /// Sends a message from a thread without a runtime; blocks while the channel is full.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    #[doc(alias = "blocking_send")]
    pub fn send_blocking(&self, message: T) -> Result<(), SendError<T>> {
        self.shared.block(What::Room(1), sends(message))
    }

    /// Waits for room, and takes a place for the permit's message, which is then sent without waiting. So a
    /// message can be made when there is room for it, and a wait can be given up without losing one: dropping
    /// the future or the permit frees the place.
    ///
    /// ```
    /// use ringroad_engine::{DriverName, Runtime, sync};
    ///
    /// Runtime::new(DriverName::Epoll)?.block_on(async {
    ///     let (sender, receiver) = sync::bounded(1);
    ///     let permit = sender.reserve().await.unwrap();
    ///     assert!(sender.try_send("another").is_err(), "the place is taken");
    ///     permit.send("a message").unwrap();
    ///     assert_eq!(receiver.recv().await, Ok("a message"));
    /// })?;
    /// # Ok::<(), ringroad_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// The channel is closed.
    pub async fn reserve(&self) -> Result<Permit<'_, T>, SendError<()>> {
        self.places(1).await.map(|()| Permit { sender: self })
    }

    /// Works as [`reserve`](Self::reserve); the permit keeps the sender.
    ///
    /// # Errors
    /// The channel is closed.
    pub async fn reserve_owned(self) -> Result<OwnedPermit<T>, SendError<()>> {
        self.places(1).await.map(|()| OwnedPermit { sender: Some(self) })
    }

    /// Takes a place if there is one. See [`reserve`](Self::reserve).
    ///
    /// # Errors
    /// The channel is full or closed.
    pub fn try_reserve(&self) -> Result<Permit<'_, T>, TrySendError<()>> {
        self.shared.state().reserve(1)?;
        Ok(Permit { sender: self })
    }

    /// Works as [`try_reserve`](Self::try_reserve); the permit keeps the sender.
    ///
    /// # Errors
    /// The channel is full or closed: the sender is returned.
    pub fn try_reserve_owned(self) -> Result<OwnedPermit<T>, TrySendError<Sender<T>>> {
        let reserved = self.shared.state().reserve(1);
        match reserved {
            Ok(()) => Ok(OwnedPermit { sender: Some(self) }),
            Err(TrySendError::Full(())) => Err(TrySendError::Full(self)),
            Err(TrySendError::Closed(())) => Err(TrySendError::Closed(self)),
        }
    }

    /// Works as [`reserve`](Self::reserve), for `count` messages: waits until there is room for all of them.
    /// Tasks get their places in order of arrival, so a task that wants many is not overtaken by others that
    /// want few.
    ///
    /// ```
    /// use ringroad_engine::{DriverName, Runtime, sync};
    ///
    /// Runtime::new(DriverName::Epoll)?.block_on(async {
    ///     let (sender, receiver) = sync::bounded(4);
    ///     let permits = sender.reserve_many(3).await.unwrap();
    ///     assert_eq!(sender.room(), 1);
    ///     for (permit, message) in permits.zip(["first", "second"]) {
    ///         permit.send(message).unwrap();
    ///     }
    ///     assert_eq!((receiver.len(), sender.room()), (2, 2), "the third place is free again");
    /// })?;
    /// # Ok::<(), ringroad_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// The channel is closed.
    ///
    /// # Panics
    /// `count` exceeds the capacity: the wait would never end.
    pub fn reserve_many(
        &self,
        count: usize,
    ) -> impl Future<Output = Result<PermitIterator<'_, T>, SendError<()>>> {
        let capacity = self.capacity();
        assert!(count <= capacity, "{count} permits of a channel with room for {capacity} messages");
        async move { self.places(count).await.map(|()| PermitIterator { sender: self, left: count }) }
    }

    /// Takes `count` places if they are free. See [`reserve_many`](Self::reserve_many).
    ///
    /// # Errors
    /// The channel is closed, or has too little room, which is always so above its capacity.
    pub fn try_reserve_many(&self, count: usize) -> Result<PermitIterator<'_, T>, TrySendError<()>> {
        self.shared.state().reserve(count)?;
        Ok(PermitIterator { sender: self, left: count })
    }

    fn places(&self, wanted: usize) -> impl Future<Output = Result<(), SendError<()>>> {
        let attempt = move |state: &mut State<T>, number: Option<NonZeroU64>| {
            let places = state.places(wanted, number)?;
            if places.is_ok() {
                state.reserved += wanted;
            }
            Some((places, Told::None))
        };
        Tries::new(&self.shared, What::Room(wanted), attempt)
    }

    /// Waits until the channel is closed.
    pub fn closed(&self) -> impl Future<Output = ()> {
        Tries::new(&self.shared, What::Close, |state: &mut State<T>, _| {
            state.is_closed.then_some(((), Told::None))
        })
    }

    /// Creates a sender that does not keep the channel open.
    pub fn downgrade(&self) -> WeakSender<T> {
        WeakSender { shared: Arc::clone(&self.shared) }
    }
}

/// A place in a channel, reserved for one message. See [`Sender::reserve`].
///
/// A message may be sent through it even after the channel was closed: the receivers get the end after the
/// last permit.
#[must_use = "dropping it gives the place back"]
pub struct Permit<'a, T> {
    sender: &'a Sender<T>,
}

impl<T> Permit<'_, T> {
    /// Sends the message; never waits.
    ///
    /// # Errors
    /// No receiver is left: the message is returned.
    pub fn send(self, message: T) -> Result<(), SendError<T>> {
        let sender = self.sender;
        std::mem::forget(self);
        sender.shared.redeem(message)
    }
}

impl<T> Drop for Permit<'_, T> {
    fn drop(&mut self) {
        self.sender.shared.release(1);
    }
}

/// Permits for several messages. See [`Sender::reserve_many`].
///
/// Dropping it frees the places that are left in it.
#[must_use = "dropping it gives the places back"]
pub struct PermitIterator<'a, T> {
    sender: &'a Sender<T>,
    left: usize,
}

impl<'a, T> Iterator for PermitIterator<'a, T> {
    type Item = Permit<'a, T>;

    fn next(&mut self) -> Option<Permit<'a, T>> {
        self.left = self.left.checked_sub(1)?;
        Some(Permit { sender: self.sender })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<T> ExactSizeIterator for PermitIterator<'_, T> {}
impl<T> FusedIterator for PermitIterator<'_, T> {}

impl<T> Drop for PermitIterator<'_, T> {
    fn drop(&mut self) {
        if self.left > 0 {
            self.sender.shared.release(self.left);
        }
    }
}

/// A [`Permit`] that keeps its sender, for another task or thread. See [`Sender::reserve_owned`].
#[must_use = "dropping it gives the place back"]
pub struct OwnedPermit<T> {
    /// `None` after the place was used or freed.
    sender: Option<Sender<T>>,
}

impl<T> OwnedPermit<T> {
    /// Sends the message; never waits. Returns the sender.
    ///
    /// # Errors
    /// No receiver is left: the message is returned.
    pub fn send(mut self, message: T) -> Result<Sender<T>, SendError<T>> {
        match self.sender.take() {
            Some(sender) => sender.shared.redeem(message).map(|()| sender),
            // Only `send` and `release` take it, and both consume the permit.
            None => Err(SendError(message)),
        }
    }

    /// Frees the place; returns the sender.
    pub fn release(mut self) -> Option<Sender<T>> {
        let sender = self.sender.take();
        if let Some(sender) = &sender {
            sender.shared.release(1);
        }
        sender
    }
}

impl<T> Drop for OwnedPermit<T> {
    fn drop(&mut self) {
        if let Some(sender) = &self.sender {
            sender.shared.release(1);
        }
    }
}

/// The receiving side of [`bounded`]. Each clone is a receiver. It is a [`Stream`] too.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    /// Its place among the streams, if the last poll found nothing.
    number: Option<NonZeroU64>,
}

impl<T> Receiver<T> {
    /// Receives the next message; waits while there is none. Dropping the future loses nothing.
    ///
    /// # Errors
    /// The channel is closed and empty.
    #[inline]
    pub fn recv(&self) -> impl Future<Output = Result<T, RecvError>> {
        Tries::new(&self.shared, What::Message, receive)
    }

    /// Receives all messages in the channel, but at most `limit`; waits while there is none. Appends them to
    /// `to` and returns their number. It counts as one operation for the task's budget. Dropping the future
    /// loses nothing.
    ///
    /// # Errors
    /// The channel is closed and empty.
    ///
    /// # Panics
    /// If `limit` is zero.
    pub fn recv_many(&self, to: &mut Vec<T>, limit: usize) -> impl Future<Output = Result<usize, RecvError>> {
        assert!(limit > 0, "no message at most would be received without end");
        let attempt = move |state: &mut State<T>, _| match state.pop_many(to, limit) {
            Ok((moved, told)) => Some((Ok(moved), told)),
            Err(TryRecvError::Closed) => Some((Err(RecvError), Told::None)),
            Err(TryRecvError::Empty) => None,
        };
        Tries::new(&self.shared, What::Message, attempt)
    }

    /// Receives the next message if there is one.
    ///
    /// # Errors
    /// The channel is empty, or closed and empty.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        let popped = self.shared.state().pop();
        let (message, told) = popped?;
        told.wake();
        Ok(message)
    }

    /// Receives on a thread without a runtime; blocks while there is no message.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    #[doc(alias = "blocking_recv")]
    pub fn recv_blocking(&self) -> Result<T, RecvError> {
        self.shared.block(What::Message, receive)
    }

    /// Works as [`recv`](Self::recv), for hand-written futures.
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Result<T, RecvError>> {
        let Receiver { shared, number } = self;
        poll_leaf(context, |context| shared.poll(What::Item, number, context, receive))
    }

    /// Creates a receiver that does not keep the channel open.
    pub fn downgrade(&self) -> WeakReceiver<T> {
        WeakReceiver { shared: Arc::clone(&self.shared) }
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.shared.senders.fetch_add(1, Ordering::Relaxed);
        Sender { shared: Arc::clone(&self.shared) }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Receiver<T> {
        self.shared.receivers.fetch_add(1, Ordering::Relaxed);
        Receiver { shared: Arc::clone(&self.shared), number: None }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.shared.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.close();
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        if let Some(number) = self.number.take() {
            self.shared.leave(What::Item, number);
        }
        if self.shared.receivers.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let (told, unread) = {
            let mut state = self.shared.state();
            (state.close(), std::mem::take(&mut state.queue))
        };
        in_destructor(|| told.unwrap_or(Told::None).wake());
        // A message may hold the reply channel of a waiting task, which this drop notifies.
        in_destructor(|| drop(unread));
    }
}

/// Methods of both sides.
macro_rules! ends {
    ($($end:ident),+) => {$(
        impl<T> $end<T> {
            /// Closes the channel: further sends return their messages. Earlier messages, and those of
            /// permits, are still received. Returns whether it was open.
            pub fn close(&self) -> bool {
                self.shared.close()
            }

            /// Returns whether the channel is closed.
            pub fn is_closed(&self) -> bool {
                self.shared.state().is_closed
            }

            /// Returns whether there is no unread message.
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// Returns whether there is no room.
            pub fn is_full(&self) -> bool {
                self.room() == 0
            }

            /// Returns the number of unread messages.
            pub fn len(&self) -> usize {
                self.shared.state().queue.len()
            }

            /// Returns the capacity for unread messages.
            #[doc(alias = "max_capacity")]
            pub fn capacity(&self) -> usize {
                self.shared.state().capacity
            }

            /// Returns the number of messages that can be sent now: the capacity without unread messages and
            /// permits; zero while tasks wait to send.
            pub fn room(&self) -> usize {
                self.shared.state().room()
            }

            /// Returns the number of senders.
            #[doc(alias = "strong_count")]
            pub fn sender_count(&self) -> usize {
                self.shared.senders.load(Ordering::Acquire)
            }

            /// Returns the number of receivers.
            pub fn receiver_count(&self) -> usize {
                self.shared.receivers.load(Ordering::Acquire)
            }

            /// Returns whether both ends belong to the same channel.
            pub fn same_channel(&self, other: &$end<T>) -> bool {
                Arc::ptr_eq(&self.shared, &other.shared)
            }
        }
    )+};
}
ends!(Sender, Receiver);

/// A [`Sender`] that does not keep the channel open.
pub struct WeakSender<T> {
    shared: Arc<Shared<T>>,
}

impl<T> WeakSender<T> {
    /// Creates a sender, if the channel still has one.
    pub fn upgrade(&self) -> Option<Sender<T>> {
        is_added(&self.shared.senders).then(|| Sender { shared: Arc::clone(&self.shared) })
    }
}

/// A [`Receiver`] that does not keep the channel open.
pub struct WeakReceiver<T> {
    shared: Arc<Shared<T>>,
}

impl<T> WeakReceiver<T> {
    /// Creates a receiver, if the channel still has one.
    pub fn upgrade(&self) -> Option<Receiver<T>> {
        let shared = &self.shared;
        is_added(&shared.receivers).then(|| Receiver { shared: Arc::clone(shared), number: None })
    }
}

/// Increments the count, if it is not zero.
fn is_added(count: &AtomicUsize) -> bool {
    let add = |count: usize| (count > 0).then_some(count + 1);
    count.fetch_update(Ordering::AcqRel, Ordering::Acquire, add).is_ok()
}

impl<T> Clone for WeakSender<T> {
    fn clone(&self) -> WeakSender<T> {
        WeakSender { shared: Arc::clone(&self.shared) }
    }
}

impl<T> Clone for WeakReceiver<T> {
    fn clone(&self) -> WeakReceiver<T> {
        WeakReceiver { shared: Arc::clone(&self.shared) }
    }
}

macro_rules! debugs {
    ($($end:ident $(<$life:lifetime>)?),+) => {$(
        impl<T> fmt::Debug for $end<$($life,)? T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($end))
            }
        }
    )+};
}
debugs!(Sender, Receiver, WeakSender, WeakReceiver, Permit<'_>, PermitIterator<'_>, OwnedPermit);

impl<T> Stream for Receiver<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        self.poll_recv(context).map(Result::ok)
    }
}

#[cfg(all(test, ringroad_loom))]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::model::{check_three_threads, waited};
    use super::*;
    use loom::thread;
    use std::pin::pin;

    fn wait<F: Future>(future: F) -> F::Output {
        let mut future = pin!(future);
        waited(|context| future.as_mut().poll(context))
    }

    fn poll_once<F: Future>(future: F) -> Option<F::Output> {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    #[test]
    fn messages_arrive_in_order_through_one_place_and_then_the_end() {
        loom::model(|| {
            let (sender, receiver) = bounded(1);
            let sending =
                thread::spawn(move || (1..=2).for_each(|message| wait(sender.send(message)).unwrap()));
            let received: Vec<u32> = std::iter::from_fn(|| wait(receiver.recv()).ok()).collect();
            assert_eq!(received, [1, 2]);
            sending.join().unwrap();
        });
    }

    #[test]
    fn a_wait_for_a_place_that_is_given_up_at_any_time_leaves_it_to_the_next_task() {
        check_three_threads(|| {
            let (sender, receiver) = bounded(1);
            sender.try_send(0).unwrap();
            let other = sender.clone();
            let gives_up = thread::spawn(move || drop(poll_once(other.reserve())));
            let sending = thread::spawn(move || wait(sender.send(1)).unwrap());
            assert_eq!((wait(receiver.recv()), wait(receiver.recv())), (Ok(0), Ok(1)));
            gives_up.join().unwrap();
            sending.join().unwrap();
            assert_eq!(wait(receiver.recv()), Err(RecvError));
        });
    }

    #[test]
    fn a_wait_for_many_places_ends_whatever_others_take_and_give_up() {
        check_three_threads(|| {
            let (sender, receiver) = bounded(2);
            sender.try_send(0).unwrap();
            let (other, many) = (sender.clone(), sender.clone());
            let gives_up = thread::spawn(move || drop(poll_once(other.reserve_many(2))));
            let takes_many = thread::spawn(move || {
                let mut permits = wait(many.reserve_many(2)).unwrap();
                permits.next().unwrap().send(1).unwrap();
            });
            assert_eq!((wait(receiver.recv()), wait(receiver.recv())), (Ok(0), Ok(1)));
            gives_up.join().unwrap();
            takes_many.join().unwrap();
            assert_eq!(sender.room(), 2);
        });
    }

    #[test]
    fn a_close_takes_places_back_from_a_sender_at_any_time_and_the_end_comes() {
        loom::model(|| {
            let (sender, receiver) = bounded(1);
            sender.try_send(0).unwrap();
            let sending = thread::spawn(move || wait(sender.send(1)).is_ok());
            assert_eq!(wait(receiver.recv()), Ok(0));
            receiver.close();
            let last = wait(receiver.recv());
            assert_eq!(last.is_ok(), sending.join().unwrap());
        });
    }

    #[test]
    fn a_wait_for_a_message_that_is_given_up_at_any_time_leaves_it_to_the_next_task() {
        check_three_threads(|| {
            let (sender, receiver) = bounded(2);
            let other = receiver.clone();
            let gives_up = thread::spawn(move || matches!(poll_once(other.recv()), Some(Ok(_))));
            let receiving = thread::spawn(move || wait(receiver.recv()));
            sender.try_send(1).unwrap();
            if gives_up.join().unwrap() {
                sender.try_send(1).unwrap();
            }
            assert_eq!(receiving.join().unwrap(), Ok(1));
        });
    }

    #[test]
    fn a_message_is_dropped_once_when_its_permit_is_used_while_the_receiver_goes() {
        loom::model(|| {
            let (sender, receiver) = bounded(1);
            let permit = wait(sender.reserve_owned()).unwrap();
            let message = std::sync::Arc::new(());
            let sent = std::sync::Arc::clone(&message);
            let sending = thread::spawn(move || drop(permit.send(sent)));
            drop(receiver);
            sending.join().unwrap();
            assert_eq!(std::sync::Arc::strong_count(&message), 1);
        });
    }
}
