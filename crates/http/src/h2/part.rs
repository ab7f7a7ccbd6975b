//! Bytes of a body on their way into frames, and their accounting.
//!
//! The `h2` crate holds a part until flow control and the socket have taken it. A part records the bytes that
//! leave it, and its drop. The deadlines of sending, the reports to handlers, and the ends of streams follow
//! from these records.

use crate::message::Chunk;
use bytes::Buf;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// The accounting of all parts of a connection.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    /// Bytes that were put into frames.
    pub(crate) moved: Cell<u64>,
    /// Bytes of the connection's own memory that were not.
    pub(crate) owned: Cell<usize>,
    /// Parts that were put into frames completely.
    pub(crate) complete: Cell<u32>,
    /// Streams that carry another protocol, and have sent their END_STREAM.
    pub(crate) finishing: Cell<u32>,
    /// Whether a stream may have ended since the last check.
    pub(crate) changed: Cell<bool>,
}

/// The accounting of the parts of one stream.
#[derive(Debug)]
pub(crate) struct Progress {
    traffic: Rc<Traffic>,
    /// Bytes that wait for flow control or the socket.
    waiting: Cell<usize>,
    moved: Cell<u64>,
    parts: Cell<u32>,
    /// Whether a part was dropped before all of it was sent.
    cut: Cell<bool>,
    sender: RefCell<Option<Waker>>,
}

impl Progress {
    pub(crate) fn new(traffic: &Rc<Traffic>) -> Rc<Progress> {
        Rc::new(Progress {
            traffic: Rc::clone(traffic),
            waiting: Cell::new(0),
            moved: Cell::new(0),
            parts: Cell::new(0),
            cut: Cell::new(false),
            sender: RefCell::new(None),
        })
    }

    /// Returns the bytes that wait for flow control or the socket.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.get()
    }

    /// Returns the bytes that were put into frames.
    pub(crate) fn moved(&self) -> u64 {
        self.moved.get()
    }

    /// Returns whether no part is left.
    pub(crate) fn is_idle(&self) -> bool {
        self.parts.get() == 0
    }

    /// Returns whether a part was dropped before all of it was sent.
    pub(crate) fn is_cut(&self) -> bool {
        self.cut.get()
    }

    /// Ready when at most `bytes` wait, or a part was dropped before all of it was sent.
    pub(crate) fn poll_below(&self, bytes: usize, context: &Context<'_>) -> Poll<()> {
        if self.waiting.get() <= bytes || self.cut.get() {
            return Poll::Ready(());
        }
        self.sender.borrow_mut().replace(context.waker().clone());
        Poll::Pending
    }

    /// Wakes the task that waits for room.
    pub(crate) fn wake(&self) {
        let sender = self.sender.borrow_mut().take();
        if let Some(sender) = sender {
            sender.wake();
        }
    }
}

/// A piece of a body that is being sent.
#[derive(Debug)]
pub(crate) struct Part {
    chunk: Option<Chunk>,
    at: usize,
    owned: usize,
    progress: Rc<Progress>,
}

impl Part {
    pub(crate) fn new(chunk: Chunk, progress: &Rc<Progress>) -> Part {
        let owned = if chunk.is_lasting() { 0 } else { chunk.len() };
        let traffic = &progress.traffic;
        traffic.owned.set(traffic.owned.get() + owned);
        progress.waiting.set(progress.waiting.get() + chunk.len());
        progress.parts.set(progress.parts.get() + 1);
        Part { chunk: Some(chunk), at: 0, owned, progress: Rc::clone(progress) }
    }
}

impl Buf for Part {
    fn remaining(&self) -> usize {
        self.chunk.as_ref().map_or(0, |chunk| chunk.len() - self.at)
    }

    fn chunk(&self) -> &[u8] {
        self.chunk.as_ref().and_then(|chunk| chunk.get(self.at..)).unwrap_or_default()
    }

    fn advance(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.remaining(), "more than there is");
        self.at += bytes;
        let progress = &self.progress;
        progress.waiting.set(progress.waiting.get().saturating_sub(bytes));
        progress.moved.set(progress.moved.get() + bytes as u64);
        progress.traffic.moved.set(progress.traffic.moved.get() + bytes as u64);
        progress.wake();
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let (left, progress) = (self.remaining(), &self.progress);
        let traffic = &progress.traffic;
        traffic.owned.set(traffic.owned.get().saturating_sub(self.owned));
        traffic.changed.set(true);
        progress.waiting.set(progress.waiting.get().saturating_sub(left));
        progress.parts.set(progress.parts.get() - 1);
        if left > 0 {
            progress.cut.set(true);
        } else if self.at > 0 {
            traffic.complete.set(traffic.complete.get().wrapping_add(1));
        }
        if let Some(chunk) = self.chunk.take() {
            chunk.recycle();
        }
        progress.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_reports_what_it_gives_away_and_what_is_thrown_away() {
        let traffic = Rc::new(Traffic::default());
        let progress = Progress::new(&traffic);
        let mut part = Part::new(Chunk::from(vec![7; 10]), &progress);
        let other = Part::new(Chunk::from("static"), &progress);
        assert_eq!((progress.waiting(), traffic.owned.get()), (16, 10));
        part.advance(4);
        assert_eq!((part.chunk(), progress.waiting(), progress.moved()), (&[7; 6][..], 12, 4));
        part.advance(6);
        drop(part);
        assert!(!progress.is_idle() && !progress.is_cut());
        assert_eq!((traffic.owned.get(), traffic.moved.get(), traffic.complete.get()), (0, 10, 1));
        drop(other);
        assert!(progress.is_idle() && progress.is_cut());
        assert_eq!(progress.waiting(), 0);
    }
}
