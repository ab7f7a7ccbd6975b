//! A list of boxes of one type for reuse.

use std::cell::{Cell, RefCell};
use std::pin::Pin;

/// Free boxes.
pub(super) struct FreeList<T> {
    /// The box that was returned last: most often the next one that is taken.
    hot: Cell<Option<Pin<Box<T>>>>,
    cold: RefCell<Vec<Pin<Box<T>>>>,
}

/// Maximum number of boxes that a list keeps.
const KEPT: usize = 64;

impl<T> Default for FreeList<T> {
    fn default() -> FreeList<T> {
        FreeList { hot: Cell::new(None), cold: RefCell::default() }
    }
}

impl<T> FreeList<T> {
    #[inline]
    pub(super) fn take(&self) -> Option<Pin<Box<T>>> {
        self.hot.take().or_else(|| self.take_cold())
    }

    #[cold]
    fn take_cold(&self) -> Option<Pin<Box<T>>> {
        self.cold.borrow_mut().pop()
    }

    #[inline]
    pub(super) fn put(&self, one: Pin<Box<T>>) {
        if let Some(before) = self.hot.replace(Some(one)) {
            self.put_cold(before);
        }
    }

    #[cold]
    fn put_cold(&self, one: Pin<Box<T>>) {
        let mut free = self.cold.borrow_mut();
        if free.len() < KEPT {
            return free.push(one);
        }
        // A box that is not kept is dropped after the borrow has ended.
        drop(free);
        drop(one);
    }
}
