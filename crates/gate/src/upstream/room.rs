//! Room for connections to servers behind: a number that all workers share, and a line for tasks that
//! find none.
//!
//! A connection costs a descriptor. Without a bound of their own, connections to servers would take the
//! last descriptors of the process, and every request that finds none would fail. So each connection
//! holds a [`Permit`] from before it is opened until it is closed, also while it is kept idle. A task
//! that finds no room waits in line, first come, first served. Idle connections make room: a worker
//! learns by [`Room::pressed`] that tasks wait.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// A number of connections, shared by all workers.
#[derive(Debug)]
pub struct Room {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    most: usize,
    /// Permits there are, and those that were granted to tasks in line.
    used: usize,
    /// Tasks in line, in the order in which they came.
    line: BTreeMap<u64, Waker>,
    /// Tasks that were in line and have been granted a permit, which they have not taken yet.
    granted: BTreeSet<u64>,
    next: u64,
    /// Times a task has joined the line.
    joined: u64,
    /// Tasks that wait for that, by worker.
    watching: BTreeMap<u64, Waker>,
}

/// The right to have one connection. Dropped, it goes to the first task in line.
#[derive(Debug)]
pub struct Permit {
    room: Arc<Room>,
}

impl State {
    /// Grants permits to the line, as far as there is room.
    fn grant(&mut self) {
        while self.used < self.most
            && let Some((number, waker)) = self.line.pop_first()
        {
            self.used += 1;
            self.granted.insert(number);
            // A waker puts its task's number into a runtime's queue, and takes no lock of ours.
            waker.wake();
        }
    }
}

impl Room {
    /// Makes room for so many connections, at least one.
    pub fn new(most: usize) -> Arc<Room> {
        let state = State {
            most: most.max(1),
            used: 0,
            line: BTreeMap::new(),
            granted: BTreeSet::new(),
            next: 0,
            joined: 0,
            watching: BTreeMap::new(),
        };
        Arc::new(Room { state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics between two changes that belong together.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the number, at least one. Connections above a smaller number stay until they are closed.
    pub fn set_most(&self, most: usize) {
        let mut state = self.state();
        state.most = most.max(1);
        state.grant();
    }

    /// Returns the most connections.
    pub fn most(&self) -> usize {
        self.state().most
    }

    /// Connections there are.
    pub fn used(&self) -> usize {
        self.state().used
    }

    /// Tasks in line.
    pub fn waiting(&self) -> usize {
        self.state().line.len()
    }

    /// Returns how often a task found no room.
    pub fn waits(&self) -> u64 {
        self.state().joined
    }

    /// Returns a permit, if there is room now and no task is in line.
    pub fn try_permit(self: &Arc<Room>) -> Option<Permit> {
        let mut state = self.state();
        if state.used >= state.most || !state.line.is_empty() {
            return None;
        }
        state.used += 1;
        Some(Permit { room: Arc::clone(self) })
    }

    /// Returns a permit; waits in line where there is no room.
    pub fn permit(self: &Arc<Room>) -> impl Future<Output = Permit> + use<> {
        Waiting { room: Arc::clone(self), number: None }
    }

    /// Waits until tasks are in line that joined after the last call with this `seen`, and returns how
    /// many are in line.
    pub async fn pressed(&self, seen: &mut u64) -> usize {
        let watcher = {
            let mut state = self.state();
            state.next += 1;
            state.next
        };
        let _forget = Forget { room: self, watcher };
        poll_fn(|context| {
            let mut state = self.state();
            let is_new = std::mem::replace(seen, state.joined) != state.joined;
            if is_new && !state.line.is_empty() {
                return Poll::Ready(state.line.len());
            }
            state.watching.insert(watcher, context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

/// Takes a watcher's waker away when it does not watch any more.
struct Forget<'r> {
    room: &'r Room,
    watcher: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.room.state().watching.remove(&self.watcher);
    }
}

/// A task that wants a permit.
struct Waiting {
    room: Arc<Room>,
    /// Its place in line, once it has joined.
    number: Option<u64>,
}

impl Future for Waiting {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Permit> {
        let this = &mut *self;
        if this.number.is_none()
            && let Some(permit) = this.room.try_permit()
        {
            return Poll::Ready(permit);
        }
        let mut state = this.room.state();
        if this.number.is_some_and(|number| state.granted.remove(&number)) {
            drop(state);
            this.number = None;
            return Poll::Ready(Permit { room: Arc::clone(&this.room) });
        }
        let joins = this.number.is_none();
        let number = *this.number.get_or_insert_with(|| {
            state.next += 1;
            state.next
        });
        state.line.insert(number, context.waker().clone());
        if joins {
            state.joined += 1;
            // There may be room again since it was looked for.
            state.grant();
            for (_, watcher) in std::mem::take(&mut state.watching) {
                watcher.wake();
            }
        }
        Poll::Pending
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let mut state = self.room.state();
        state.line.remove(&number);
        // What it was granted and did not take is the next one's.
        if state.granted.remove(&number) {
            state.used -= 1;
            state.grant();
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.room.state();
        state.used -= 1;
        state.grant();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::pin::pin;

    fn poll<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(done) => Some(done),
            Poll::Pending => None,
        }
    }

    #[test]
    fn the_line_is_served_in_the_order_in_which_tasks_came() {
        let room = Room::new(2);
        let first = poll(pin!(room.permit())).unwrap();
        let second = poll(pin!(room.permit())).unwrap();
        let (mut third, mut fourth) = (pin!(room.permit()), pin!(room.permit()));
        assert!(poll(third.as_mut()).is_none() && poll(fourth.as_mut()).is_none());
        assert_eq!((room.used(), room.waiting(), room.waits()), (2, 2, 2));
        drop(first);
        assert!(poll(fourth.as_mut()).is_none(), "it came later");
        let third = poll(third.as_mut()).unwrap();
        drop(second);
        assert!(poll(pin!(room.permit())).is_none(), "the fourth has the place that is free");
        let fourth = poll(fourth.as_mut()).unwrap();
        drop((third, fourth));
        assert_eq!((room.used(), room.waiting()), (0, 0));
    }

    #[test]
    fn a_task_that_gives_up_leaves_the_line_and_hands_on_what_it_was_granted() {
        let room = Room::new(1);
        let held = poll(pin!(room.permit())).unwrap();
        let mut next = pin!(room.permit());
        {
            let mut gives_up = pin!(room.permit());
            assert!(poll(gives_up.as_mut()).is_none() && poll(next.as_mut()).is_none());
            drop(held);
            assert!(poll(next.as_mut()).is_none(), "the permit is the other one's");
        }
        let permit = poll(next.as_mut()).unwrap();
        assert_eq!((room.used(), room.waiting()), (1, 0));
        drop(permit);
        {
            let held = poll(pin!(room.permit())).unwrap();
            let mut gives_up = pin!(room.permit());
            assert!(poll(gives_up.as_mut()).is_none());
            drop(held);
        }
        assert_eq!((room.used(), room.waiting()), (0, 0));
    }

    #[test]
    fn more_room_is_granted_to_the_line_and_less_takes_nothing_away() {
        let room = Room::new(1);
        let held = poll(pin!(room.permit())).unwrap();
        let mut next = pin!(room.permit());
        assert!(poll(next.as_mut()).is_none());
        room.set_most(2);
        let permit = poll(next.as_mut()).unwrap();
        room.set_most(1);
        assert_eq!((room.used(), room.most()), (2, 1));
        drop(permit);
        assert!(poll(pin!(room.permit())).is_none());
        drop(held);
        assert!(poll(pin!(room.permit())).is_some());
    }

    #[test]
    fn workers_learn_that_tasks_wait_and_each_wait_is_told_once() {
        let room = Room::new(1);
        let _held = poll(pin!(room.permit())).unwrap();
        let mut seen = 0;
        assert!(poll(pin!(room.pressed(&mut seen))).is_none());
        let mut next = pin!(room.permit());
        assert!(poll(next.as_mut()).is_none());
        assert_eq!(poll(pin!(room.pressed(&mut seen))), Some(1));
        assert!(poll(pin!(room.pressed(&mut seen))).is_none());
        assert!(room.state().watching.is_empty(), "a watcher that is gone is forgotten");
    }
}
