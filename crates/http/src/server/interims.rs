//! Interim heads of handlers (1xx, such as 103 Early Hints), until their connection sends them.
//!
//! A handler runs in the task of its connection. That task checks here when the handler waits, and before it
//! writes the response. So no task is woken, and a request without such a head costs one check of a flag.

use crate::message::{ConnectionId, Interim};
use std::cell::{Cell, RefCell};

/// Maximum number of unsent heads of one request.
const WAITING_MAX: usize = 16;

/// Unsent heads.
#[derive(Default)]
pub(crate) struct Interims {
    any: Cell<bool>,
    all: RefCell<Vec<(ConnectionId, Interim)>>,
}

impl Interims {
    /// Adds a head. Returns `false` if too many are unsent.
    pub(crate) fn push(&self, id: ConnectionId, interim: Interim) -> bool {
        let mut all = self.all.borrow_mut();
        if all.iter().filter(|(of, _)| *of == id).count() >= WAITING_MAX {
            return false;
        }
        all.push((id, interim));
        self.any.set(true);
        true
    }

    /// Returns whether this request has unsent heads.
    #[inline]
    pub(crate) fn wait(&self, id: ConnectionId) -> bool {
        self.any.get() && self.all.borrow().iter().any(|(of, _)| *of == id)
    }

    /// Takes the heads of a request, in order.
    #[inline]
    pub(crate) fn take(&self, id: ConnectionId) -> Vec<Interim> {
        if self.any.get() { self.take_some(id) } else { Vec::new() }
    }

    #[cold]
    fn take_some(&self, id: ConnectionId) -> Vec<Interim> {
        let mut all = self.all.borrow_mut();
        let (taken, left) = std::mem::take(&mut *all).into_iter().partition(|(of, _)| *of == id);
        *all = left;
        self.any.set(!all.is_empty());
        let taken: Vec<(ConnectionId, Interim)> = taken;
        taken.into_iter().map(|(_, interim)| interim).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringroad_wire::FieldBlock;

    #[test]
    fn heads_are_taken_by_their_request_in_order_and_are_bounded() {
        let interims = Interims::default();
        let id = |index| ConnectionId { index, visit: 0 };
        let push = |index, status| interims.push(id(index), Interim { status, lines: FieldBlock::new() });
        assert!(push(1, 103) && push(2, 102) && push(1, 104));
        assert!(interims.wait(id(1)) && !interims.wait(id(3)));
        let statuses = |index| interims.take(id(index)).iter().map(|one| one.status).collect::<Vec<_>>();
        assert_eq!((statuses(1), statuses(1), statuses(2)), (vec![103, 104], vec![], vec![102]));
        assert!(!interims.any.get());
        assert_eq!((0..20).filter(|_| push(5, 103)).count(), WAITING_MAX);
    }
}
