//! How far ahead of its user a listener may accept.
//!
//! A multishot accept takes whoever comes, asked for or not: in one turn as many as the completion queue holds. A
//! program that pauses accepting, to keep descriptors for its files, would lose them all the same. So it is used only
//! where that many descriptors and some more are left; nearer to the limit each accept takes one connection.
//!
//! How many are left is told by the number of the last descriptor that came: the kernel gives the lowest that is free.

use super::{Place, Uring};
use crate::sys;
use ringroad_uring::Cqe;

/// Descriptors left beyond what a turn can bring.
const SPARE: i32 = 256;

/// What is known of this process's descriptors.
#[derive(Debug, Default)]
pub(super) struct Accepting {
    /// The last number that came.
    last: i32,
    /// From this number on nobody is accepted ahead; as the limit was when it was last read.
    too_high: i32,
    /// Multishot accepts that were ended for this, as their completions will carry it.
    retired: Vec<u64>,
}

impl Uring {
    /// Whether an accept that begins now may take more than one.
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

    /// Looks at what an accept or an open has brought. The result, as it is to be told.
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

    /// Ends a multishot accept that has come too near to the limit.
    #[cold]
    fn retire(&mut self, bits: u64) {
        if let Some(place @ Place::Kernel) = self.hold(bits) {
            *place = Place::Doomed;
            self.cancels.push(bits);
            self.accepting.retired.push(bits);
        }
    }

    /// What the end of an accept comes to that may have been retired: then it is to begin again.
    #[cold]
    fn retired(&mut self, completion: &Cqe) -> i32 {
        let retired = &mut self.accepting.retired;
        let before = retired.len();
        retired.retain(|bits| *bits != completion.user_data);
        let is_ours = retired.len() < before && completion.result == -libc::ECANCELED;
        if is_ours { -libc::EAGAIN } else { completion.result }
    }
}
