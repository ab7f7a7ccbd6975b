//! How far ahead of the program a listener may accept.
//!
//! A multishot accept takes every connection that arrives: in one turn as many as the completion queue holds.
//! A program that pauses accepting to keep descriptors for its files would lose them anyway. So multishot is
//! used only while that many descriptors and some spare ones are free. Nearer to the limit each accept takes
//! one connection.
//!
//! The number of the last new descriptor shows how many are free, because the kernel assigns the lowest free
//! number.

use super::{Place, Uring};
use crate::sys;
use ringroad_uring::Cqe;

/// Descriptors kept free beyond what a turn can add.
const SPARE: i32 = 256;

/// Tracks how close the process is to its descriptor limit.
#[derive(Debug, Default)]
pub(super) struct Accepting {
    /// The last descriptor number.
    last: i32,
    /// From this number on each accept takes one connection. Computed from the limit when it was last read.
    too_high: i32,
    /// Multishot accepts that were cancelled for that reason, by user_data.
    retired: Vec<u64>,
}

impl Uring {
    /// Returns whether an accept that begins now may take more than one.
    pub(super) fn may_accept_ahead(&mut self) -> bool {
        if !self.abilities.multishot_accept {
            return false;
        }
        if self.accepting.last >= self.accepting.too_high {
            // The limit may have been raised.
            self.counters.system_calls += 1;
            let turn = i32::try_from(self.kernel.ring.completions().entries()).unwrap_or(i32::MAX);
            self.accepting.too_high = sys::descriptors_max().saturating_sub(turn).saturating_sub(SPARE);
        }
        self.accepting.last < self.accepting.too_high
    }

    /// Notes the descriptor that an accept or open returned. Returns the result to be reported.
    #[inline]
    pub(super) fn brought(&mut self, completion: &Cqe) -> i32 {
        if completion.result >= 0 {
            self.accepting.last = completion.result;
        }
        if !completion.more() {
            return if self.accepting.retired.is_empty() {
                completion.result
            } else {
                self.retired(completion)
            };
        }
        if completion.result >= self.accepting.too_high {
            self.retire(completion.user_data);
        }
        completion.result
    }

    /// Cancels a multishot accept when its descriptor numbers are close to the limit.
    #[cold]
    fn retire(&mut self, bits: u64) {
        if let Some(place @ Place::Kernel) = self.hold(bits) {
            *place = Place::Doomed;
            self.cancels.push(bits);
            self.accepting.retired.push(bits);
        }
    }

    /// Returns the result of an accept that may have been cancelled by `retire`: EAGAIN, so that it is
    /// submitted again.
    #[cold]
    fn retired(&mut self, completion: &Cqe) -> i32 {
        let retired = &mut self.accepting.retired;
        let before = retired.len();
        retired.retain(|bits| *bits != completion.user_data);
        let is_ours = retired.len() < before && completion.result == -libc::ECANCELED;
        if is_ours { -libc::EAGAIN } else { completion.result }
    }
}
