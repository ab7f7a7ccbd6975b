//! Reports of the end of responses, for handlers that asked for them
//! ([`Response::on_sent`](crate::Response::on_sent)).

use crate::message::{Outcome, Sent, TellSent};
use std::time::Instant;

/// One response with its callback. If this is dropped without a report, the callback gets that the response
/// was dropped.
pub(super) struct Watched {
    tell: Option<TellSent>,
    began: Instant,
    /// Bytes of the body that were sent.
    pub(super) body_bytes: u64,
}

impl Watched {
    pub(super) fn new(tell: TellSent, began: Instant) -> Watched {
        Watched { tell: Some(tell), began, body_bytes: 0 }
    }

    /// Reports that all of it was sent.
    pub(super) fn complete(self) {
        self.end(Outcome::Complete);
    }

    /// Tells how it ended.
    pub(super) fn end(mut self, outcome: Outcome) {
        self.tell(outcome);
    }

    fn tell(&mut self, outcome: Outcome) {
        if let Some(tell) = self.tell.take() {
            tell(&Sent::new(self.body_bytes, self.began, outcome));
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.tell(Outcome::Dropped);
    }
}

/// The responses of a batch with callbacks: most often none, without memory.
#[derive(Default)]
#[allow(clippy::box_collection, reason = "an idle connection has one word for it")]
pub(super) struct Batch(Option<Box<Vec<Watched>>>);

impl Batch {
    pub(super) fn push(&mut self, watched: Watched) {
        self.0.get_or_insert_default().push(watched);
    }

    /// Reports a batch that was sent.
    #[inline]
    pub(super) fn complete(&mut self) {
        if self.0.is_some() {
            self.complete_all();
        }
    }

    #[cold]
    fn complete_all(&mut self) {
        if let Some(all) = self.0.take() {
            all.into_iter().for_each(Watched::complete);
        }
    }

    /// Reports a batch that was not sent completely.
    #[cold]
    pub(super) fn end(&mut self, outcome: Outcome) {
        if let Some(all) = self.0.take() {
            for mut watched in *all {
                // How much of the batch was sent is unknown.
                watched.body_bytes = 0;
                watched.end(outcome);
            }
        }
    }
}
