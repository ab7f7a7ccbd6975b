//! The end of a response, reported to its owner when no more of it will be sent.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// The end of a response, reported when no more of it will be sent: see
/// [`Response::on_sent`](crate::Response::on_sent).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sent {
    /// Bytes of the body that the kernel has taken.
    pub body_bytes: u64,
    /// Time from the arrival of the request's head to the end.
    pub took: Duration,
    /// When the response ended.
    pub ended: Instant,
    /// How the response ended.
    pub outcome: Outcome,
}

/// How a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// All of it was sent.
    Complete,
    /// The client closed or reset the connection before the end.
    ClientGone,
    /// The client took too little of it in time.
    TooSlow,
    /// The body failed: its stream ended with an error or too early, or its file could not be read.
    BodyFailed,
    /// The server was stopped and did not wait any longer, or the connection ended before the response was
    /// begun.
    Dropped,
}

/// Receives the report of the end of a response.
///
/// A closure of `&Sent` implements it. A type of its own can keep the data of a report in a reused box, so
/// that [`Response::report_to`](crate::Response::report_to) costs no allocation.
pub trait OnSent {
    /// Returns when the head of the request arrived, if the owner recorded it: [`Sent::took`] counts from
    /// there. Otherwise the server reads the clock.
    fn began(&self) -> Option<Instant> {
        None
    }

    /// Receives the report.
    fn sent(self: Box<Self>, sent: &Sent);
}

impl<F: FnOnce(&Sent)> OnSent for F {
    fn sent(self: Box<F>, sent: &Sent) {
        self(sent);
    }
}

/// A response with an owner that gets a report. Once it has [begun](Self::begin), the owner also gets one if
/// this is dropped.
pub(crate) struct Watched {
    tell: Option<Box<dyn OnSent>>,
    began: Option<Instant>,
    /// Bytes of the body that were sent.
    pub(crate) body_bytes: u64,
    /// The next one of a list.
    next: Option<Box<Watched>>,
}

/// Maximum number of boxes that are kept for reuse.
const KEPT: usize = 256;

thread_local! {
    /// Boxes that are not in use, as a list. A worker is a thread, so they are the worker's.
    static FREE: Cell<Option<Box<Watched>>> = const { Cell::new(None) };
    static FREE_COUNT: Cell<usize> = const { Cell::new(0) };
}

/// Takes a box for reuse, if there is one.
fn take() -> Option<Box<Watched>> {
    let mut watched = FREE.try_with(Cell::take).ok()??;
    let _ = FREE.try_with(|free| free.set(watched.next.take()));
    let _ = FREE_COUNT.try_with(|count| count.set(count.get() - 1));
    Some(watched)
}

/// Keeps a box for reuse. It owns nothing.
fn give(mut watched: Box<Watched>) {
    // Fails while the thread ends.
    let Ok(count) = FREE_COUNT.try_with(Cell::get) else { return };
    if count < KEPT {
        let _ = FREE.try_with(|free| {
            watched.next = free.take();
            free.set(Some(watched));
            let _ = FREE_COUNT.try_with(|free| free.set(count + 1));
        });
    }
}

impl Watched {
    pub(crate) fn new(tell: Box<dyn OnSent>) -> Box<Watched> {
        match take() {
            Some(mut watched) => {
                watched.tell = Some(tell);
                watched
            }
            None => Box::new(Watched { tell: Some(tell), began: None, body_bytes: 0, next: None }),
        }
    }

    /// Records that sending begins: the size of the body, and the time of the request, if the owner has none.
    pub(crate) fn begin(&mut self, began: Option<Instant>, body_bytes: u64) {
        let known = self.tell.as_deref().and_then(OnSent::began).or(began);
        self.began = Some(known.unwrap_or_else(Instant::now));
        self.body_bytes = body_bytes;
    }

    /// Reports how the response ended.
    pub(crate) fn end(mut self: Box<Self>, outcome: Outcome) {
        self.tell(outcome);
        give(self);
    }

    fn tell(&mut self, outcome: Outcome) {
        if let (Some(tell), Some(began)) = (self.tell.take(), self.began.take()) {
            let ended = Instant::now();
            let took = ended.saturating_duration_since(began);
            tell.sent(&Sent { body_bytes: self.body_bytes, took, ended, outcome });
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.tell(Outcome::Dropped);
    }
}

/// Responses being sent, in the order of their requests. It is usually empty, and then takes one word.
#[derive(Default)]
pub(crate) struct WatchedList {
    /// The last one; each has the one before it.
    last: Option<Box<Watched>>,
}

impl WatchedList {
    pub(crate) fn push(&mut self, mut watched: Box<Watched>) {
        watched.next = self.last.take();
        self.last = Some(watched);
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.last.is_none()
    }

    /// Reports all responses, the first one first, and empties the list.
    pub(crate) fn end(&mut self, outcome: Outcome, are_counted: bool) {
        let mut first = None;
        let mut rest = self.last.take();
        while let Some(mut watched) = rest {
            rest = std::mem::replace(&mut watched.next, first);
            first = Some(watched);
        }
        while let Some(mut watched) = first {
            first = watched.next.take();
            if !are_counted {
                watched.body_bytes = 0;
            }
            watched.end(outcome);
        }
    }
}

impl Drop for WatchedList {
    fn drop(&mut self) {
        self.end(Outcome::Dropped, true);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    type Told = Rc<RefCell<Vec<(u64, Outcome)>>>;

    fn watched(told: &Told, body_bytes: u64) -> Box<Watched> {
        let told = Rc::clone(told);
        let tell = move |sent: &Sent| told.borrow_mut().push((sent.body_bytes, sent.outcome));
        let mut watched = Watched::new(Box::new(tell));
        watched.begin(None, body_bytes);
        watched
    }

    #[test]
    fn a_batch_is_reported_in_the_order_of_its_requests() {
        let (told, mut list) = (Told::default(), WatchedList::default());
        for bytes in 1..=3 {
            list.push(watched(&told, bytes));
        }
        list.end(Outcome::Complete, true);
        assert!(list.is_empty());
        assert_eq!(told.take(), [1, 2, 3].map(|bytes| (bytes, Outcome::Complete)));
        list.push(watched(&told, 4));
        list.end(Outcome::TooSlow, false);
        assert_eq!(told.take(), [(0, Outcome::TooSlow)]);
    }

    #[test]
    fn a_response_that_has_begun_is_reported_once_also_where_it_is_dropped() {
        let told = Told::default();
        let mut list = WatchedList::default();
        list.push(watched(&told, 1));
        list.push(watched(&told, 2));
        drop(list);
        drop(watched(&told, 3));
        assert_eq!(told.take(), [1, 2, 3].map(|bytes| (bytes, Outcome::Dropped)));
        watched(&told, 4).end(Outcome::Complete);
        assert_eq!(told.take(), [(4, Outcome::Complete)]);
        drop(Watched::new(Box::new(|_: &Sent| panic!("it has not begun"))));
    }

    #[test]
    fn boxes_are_used_again_and_owners_of_a_moment_are_asked_for_it() {
        struct Since(Instant, Told);
        impl OnSent for Since {
            fn began(&self) -> Option<Instant> {
                Some(self.0)
            }
            fn sent(self: Box<Since>, sent: &Sent) {
                self.1.borrow_mut().push((sent.took.as_nanos() as u64, sent.outcome));
            }
        }
        let told = Told::default();
        let first = watched(&told, 1);
        let place = std::ptr::from_ref(&*first).addr();
        first.end(Outcome::Complete);
        let now = Instant::now();
        // Of a moment that is to come, nothing is over.
        let mut again = Watched::new(Box::new(Since(now + Duration::from_secs(7200), Rc::clone(&told))));
        assert_eq!(std::ptr::from_ref(&*again).addr(), place);
        again.begin(Some(now), 7);
        again.end(Outcome::Complete);
        assert_eq!(told.take(), [(1, Outcome::Complete), (0, Outcome::Complete)]);
        // More than are kept, at once.
        let mut list = WatchedList::default();
        for bytes in 0..KEPT as u64 + 10 {
            list.push(watched(&told, bytes));
        }
        list.end(Outcome::Complete, true);
        assert_eq!(told.take().len(), KEPT + 10);
        assert_eq!(FREE_COUNT.get(), KEPT);
    }
}
