//! Ledgers of resources that must be returned, and the event log with a hash to compare two runs.
//!
//! The simulation writes them. At its end a test calls [`Ledger::imbalances`] and expects none.

use crate::op::{Kind, Token};
use crate::pool::Pool;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::rc::Rc;

/// Records what a simulated kernel received and returned. A clone is another handle to the same ledgers.
#[derive(Clone, Default)]
pub struct Ledger(Rc<RefCell<Books>>);

#[derive(Default)]
struct Books {
    /// Open descriptors, and the call that opened each.
    open: BTreeMap<u32, &'static str>,
    opened: u64,
    /// Operations with the driver: token, kind, descriptor.
    in_flight: BTreeMap<u64, (Kind, u32)>,
    submitted: u64,
    abandoned: u64,
    pool: Option<Rc<Pool>>,
    hash: u64,
    events: u64,
    recent: VecDeque<Event>,
}

/// One event in compact form; formatted only on request.
#[derive(Clone, Copy)]
struct Event {
    at_ns: u64,
    what: &'static str,
    on: u64,
    value: i64,
}

/// Number of events kept for [`Ledger::recent`].
const RECENT_MAX: usize = 200;

/// Start and factor of FNV-1a, 64 bits.
const FNV: (u64, u64) = (0xcbf2_9ce4_8422_2325, 0x0100_0000_01b3);

impl Ledger {
    /// Returns a sentence for every resource that was not returned: open descriptors, operations in flight,
    /// leased buffers. Empty if there is none.
    pub fn imbalances(&self) -> Vec<String> {
        let books = self.0.borrow();
        let mut found = Vec::new();
        for (number, how) in &books.open {
            found.push(format!("descriptor {number}, from {how}, was not closed"));
        }
        for (token, (kind, number)) in &books.in_flight {
            let Token { index, generation } = Token::from_bits(*token);
            found.push(format!("{kind} on descriptor {number} (slot {index}.{generation}) has not ended"));
        }
        if books.abandoned > 0 {
            found.push(format!("{} operations were abandoned", books.abandoned));
        }
        if let Some(pool) = &books.pool {
            let out = pool.out();
            if out > 0 {
                found.push(format!("{out} buffers are still lent out"));
            }
            let free: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
            let missing = usize::from(pool.count()) - usize::from(out) - free.len();
            free.into_iter().rev().for_each(|id| pool.put(id));
            if missing > 0 {
                found.push(format!("{missing} buffers are neither free nor lent out"));
            }
        }
        found
    }

    /// Returns a hash of every event with its virtual time. Two runs with equal hashes had the same events.
    pub fn event_hash(&self) -> u64 {
        self.0.borrow().hash
    }

    /// Returns the number of events.
    pub fn events(&self) -> u64 {
        self.0.borrow().events
    }

    /// Returns the number of descriptors opened so far.
    pub fn opened(&self) -> u64 {
        self.0.borrow().opened
    }

    /// Returns the number of operations submitted so far.
    pub fn submitted(&self) -> u64 {
        self.0.borrow().submitted
    }

    /// Returns the last events, one per line: time in nanoseconds, event, descriptor or slot, value.
    pub fn recent(&self) -> String {
        self.0.borrow().recent.iter().map(|event| format!("{event}\n")).collect()
    }

    /// Starts the ledgers of a new simulation.
    pub(super) fn begin(&self, pool: &Rc<Pool>) {
        let books = Books { pool: Some(Rc::clone(pool)), hash: FNV.0, ..Books::default() };
        *self.0.borrow_mut() = books;
    }

    pub(super) fn note(&self, at_ns: u64, what: &'static str, on: u64, value: i64) {
        let mut books = self.0.borrow_mut();
        let mut hash = books.hash;
        let mut take = |bytes: &[u8]| {
            for byte in bytes {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(FNV.1);
            }
        };
        take(&at_ns.to_le_bytes());
        take(what.as_bytes());
        take(&on.to_le_bytes());
        take(&value.to_le_bytes());
        books.hash = hash;
        books.events += 1;
        if books.recent.len() == RECENT_MAX {
            books.recent.pop_front();
        }
        books.recent.push_back(Event { at_ns, what, on, value });
    }

    pub(super) fn opened_by(&self, number: u32, how: &'static str) {
        let mut books = self.0.borrow_mut();
        books.opened += 1;
        let before = books.open.insert(number, how);
        assert!(before.is_none(), "descriptor {number} is opened twice");
    }

    pub(super) fn closed(&self, number: u32) {
        let before = self.0.borrow_mut().open.remove(&number);
        assert!(before.is_some(), "descriptor {number} is closed and was not open");
    }

    pub(super) fn taken_on(&self, token: Token, kind: Kind, number: u32) {
        let mut books = self.0.borrow_mut();
        books.submitted += 1;
        let before = books.in_flight.insert(token.to_bits(), (kind, number));
        assert!(before.is_none(), "{token:?} is submitted twice");
    }

    pub(super) fn let_go(&self, token: Token) {
        let before = self.0.borrow_mut().in_flight.remove(&token.to_bits());
        assert!(before.is_some(), "{token:?} ends twice");
    }

    /// Drops the operations in flight from the ledger.
    pub(super) fn abandon(&self) {
        let mut books = self.0.borrow_mut();
        books.abandoned += books.in_flight.len() as u64;
        books.in_flight.clear();
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Event { at_ns, what, on, value } = *self;
        write!(f, "{at_ns:>14} {what:<12} ")?;
        // Slots have a generation above their index; descriptors are small.
        match on >> 32 {
            0 => write!(f, "{on}")?,
            generation => write!(f, "{}.{generation}", on as u32)?,
        }
        write!(f, " {value}")
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let books = self.0.borrow();
        f.debug_struct("Ledger")
            .field("open", &books.open.len())
            .field("in_flight", &books.in_flight.len())
            .field("events", &books.events)
            .finish()
    }
}
