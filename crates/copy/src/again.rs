//! Entries that failed for a reason that may pass are tried again, with growing pauses.
//!
//! A file server that is restarted answers with ESTALE, a disk that is switched over with EIO.
//! What else fails (no permission, no room) does not pass by itself. Start at [`Worker::persist`].

use crate::error::Error;
use crate::worker::Worker;
use rustix::io::Errno;
use std::time::Duration;

/// The first pause; each next one is twice as long, up to the longest.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// How long a pause lasts before it is looked whether the copy was stopped.
const LOOK: Duration = Duration::from_millis(50);

/// Returns whether the same call may succeed later.
fn may_pass(error: &Error) -> bool {
    let number = error.source.as_ref().and_then(std::io::Error::raw_os_error);
    number.is_some_and(|number| [Errno::IO, Errno::STALE].iter().any(|errno| errno.raw_os_error() == number))
}

/// The pauses of one entry, or of one listing.
pub(crate) struct Pauses {
    left: u32,
    next: Duration,
}

impl Worker<'_, '_> {
    /// Returns the pauses before an entry or a listing is tried again, as often as the options say.
    pub(crate) fn pauses(&self) -> Pauses {
        Pauses { left: self.run.options.retries, next: PAUSE }
    }

    /// Waits for the next try. `false`: there is none, or the copy was stopped.
    fn pause(&self, pauses: &mut Pauses) -> bool {
        let Some(rest) = pauses.left.checked_sub(1) else { return false };
        let mut left = pauses.next;
        *pauses = Pauses { left: rest, next: (left * 2).min(PAUSE_MAX) };
        while !left.is_zero() {
            if self.run.stopped() {
                return false;
            }
            let step = left.min(LOOK);
            std::thread::sleep(step);
            left -= step;
        }
        true
    }

    /// Returns whether a listing that failed is to be gone on with, after a pause.
    pub(crate) fn lists_again(&self, why: Errno, pauses: &mut Pauses) -> bool {
        matches!(why, Errno::IO | Errno::STALE) && self.pause(pauses)
    }

    /// Tries again as often as the options say, as long as it fails for what may pass.
    pub(crate) fn persist<T>(
        &mut self,
        mut outcome: Result<T, Error>,
        mut again: impl FnMut(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut pauses = self.pauses();
        while outcome.as_ref().is_err_and(may_pass) && self.pause(&mut pauses) {
            outcome = again(self);
        }
        outcome
    }
}
