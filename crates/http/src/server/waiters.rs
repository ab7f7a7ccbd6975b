//! Tasks that wait for an event of a connection or of the worker.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::task::{Context, Waker};

/// Wakers by the event's subject.
#[derive(Default)]
pub(crate) struct Waiters {
    next: Cell<u64>,
    wakers: RefCell<BTreeMap<(u32, u64), Waker>>,
}

impl Waiters {
    /// Registers `context`'s task to be woken with `subject`. `waiter` holds its number after the first call.
    pub(crate) fn wait(&self, subject: u32, waiter: &mut Option<u64>, context: &Context<'_>) {
        let number = *waiter.get_or_insert_with(|| {
            let number = self.next.get();
            self.next.set(number + 1);
            number
        });
        let before = self.wakers.borrow_mut().insert((subject, number), context.waker().clone());
        drop(before);
    }

    /// Removes a waiter.
    pub(crate) fn forget(&self, subject: u32, waiter: u64) {
        let waker = self.wakers.borrow_mut().remove(&(subject, waiter));
        drop(waker);
    }

    /// Wakes all that wait for `subject`.
    #[inline]
    pub(crate) fn wake(&self, subject: u32) {
        if !self.wakers.borrow().is_empty() {
            self.wake_some(subject);
        }
    }

    #[cold]
    fn wake_some(&self, subject: u32) {
        let woken: Vec<Waker> = {
            let mut wakers = self.wakers.borrow_mut();
            let all =
                wakers.range((subject, 0)..=(subject, u64::MAX)).map(|(key, _)| *key).collect::<Vec<_>>();
            all.iter().filter_map(|key| wakers.remove(key)).collect()
        };
        // Waking may run code that calls this module.
        woken.into_iter().for_each(Waker::wake);
    }
}
