//! Waiting tasks, in the order of their arrival.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::task::Waker;

/// Number of places that an empty line keeps memory for. Memory of a longer line is freed.
const ROOM_KEPT: usize = 1024;

/// Tasks that wait, each with what it wants.
///
/// A task is told by taking its place out of the line. So a task with a number that is not here was told.
/// Nothing here runs code of a waker: the caller clones, wakes and drops wakers while it holds no lock.
pub(super) struct Line<W> {
    /// By number. Neither the first nor the last is of a task that has left.
    places: VecDeque<Place<W>>,
    /// The number that was given last.
    last: u64,
    /// Number of places in between that tasks have left.
    left: usize,
}

struct Place<W> {
    number: u64,
    wants: W,
    /// `None` after its task has left.
    waker: Option<Waker>,
}

impl<W> Line<W> {
    pub(super) const fn new() -> Line<W> {
        Line { places: VecDeque::new(), last: 0, left: 0 }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Returns what the first task wants.
    pub(super) fn first(&self) -> Option<&W> {
        self.places.front().map(|place| &place.wants)
    }

    /// Adds a task behind the others. Returns its number, which no other task gets.
    pub(super) fn join(&mut self, wants: W, waker: Waker) -> Option<NonZeroU64> {
        self.last += 1;
        self.places.push_back(Place { number: self.last, wants, waker: Some(waker) });
        NonZeroU64::new(self.last)
    }

    /// Returns the waker of a task, if it was not told yet.
    pub(super) fn waker(&mut self, number: NonZeroU64) -> Option<&mut Waker> {
        let position = self.position(number)?;
        self.places.get_mut(position)?.waker.as_mut()
    }

    /// Tells the first task: takes it out, and returns its waker.
    pub(super) fn pop(&mut self) -> Option<Waker> {
        let first = self.places.pop_front()?;
        self.trim();
        first.waker
    }

    /// Tells every task.
    pub(super) fn pop_all(&mut self) -> impl Iterator<Item = Waker> + use<W> {
        self.left = 0;
        std::mem::take(&mut self.places).into_iter().filter_map(|place| place.waker)
    }

    /// Takes a task out that does not wait any more. Returns its waker, if it was not told before.
    pub(super) fn leave(&mut self, number: NonZeroU64) -> Option<Waker> {
        let position = self.position(number)?;
        let waker = self.places.get_mut(position)?.waker.take()?;
        self.left += 1;
        self.trim();
        if self.left > self.places.len() / 2 {
            // As many as there are have left since the last time, so the work for each is constant.
            self.places.retain(|place| place.waker.is_some());
            self.left = 0;
        }
        Some(waker)
    }

    fn position(&self, number: NonZeroU64) -> Option<usize> {
        let number = number.get();
        let first = self.places.front()?.number;
        if number <= first {
            return (number == first).then_some(0);
        }
        self.places.binary_search_by_key(&number, |place| place.number).ok()
    }

    /// Removes places at both ends that tasks have left.
    fn trim(&mut self) {
        let has_left = |place: &Place<W>| place.waker.is_none();
        while self.left > 0 && self.places.front().is_some_and(has_left) {
            self.places.pop_front();
            self.left -= 1;
        }
        while self.left > 0 && self.places.back().is_some_and(has_left) {
            self.places.pop_back();
            self.left -= 1;
        }
        if self.places.is_empty() && self.places.capacity() > ROOM_KEPT {
            self.places = VecDeque::new();
        }
    }
}

#[cfg(all(test, not(ringroad_loom)))]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::Arc;
    use std::task::Wake;

    struct Counted;
    impl Wake for Counted {
        fn wake(self: Arc<Counted>) {}
    }

    #[test]
    fn tasks_are_told_in_the_order_of_their_arrival_and_those_that_have_left_are_not() {
        let mut line = Line::new();
        let numbers: Vec<_> = (0..7).map(|wants| line.join(wants, Waker::noop().clone()).unwrap()).collect();
        for left in [3, 0, 6, 1] {
            assert!(line.leave(numbers[left]).is_some());
            assert!(line.leave(numbers[left]).is_none() && line.waker(numbers[left]).is_none());
        }
        for told in [2, 4, 5] {
            assert_eq!(line.first(), Some(&told));
            assert!(line.waker(numbers[told]).is_some());
            assert!(line.pop().is_some());
            assert!(line.waker(numbers[told]).is_none());
        }
        assert!(line.is_empty() && line.pop().is_none() && line.first().is_none());
    }

    #[test]
    fn tasks_that_leave_keep_no_memory_while_others_wait() {
        let waker = Waker::from(Arc::new(Counted));
        let mut line = Line::new();
        line.join((), waker.clone());
        let mut before = line.join((), waker.clone()).unwrap();
        for _ in 0..10_000 {
            // The one behind arrives before the other one leaves, so that this is never the last.
            let behind = line.join((), waker.clone()).unwrap();
            assert!(line.leave(before).is_some());
            before = behind;
        }
        assert!(line.places.len() <= 5, "{} places of two tasks", line.places.len());
        assert_eq!(line.pop_all().count(), 2);
        let crowd: Vec<_> = (0..2 * ROOM_KEPT).map(|_| line.join((), waker.clone()).unwrap()).collect();
        crowd.into_iter().for_each(|number| drop(line.leave(number)));
        assert!(line.is_empty() && line.places.capacity() <= ROOM_KEPT);
    }
}
