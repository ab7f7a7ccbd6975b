//! Sends that the kernel makes from where the bytes lie (`IORING_OP_SEND_ZC`), and where they are worth it.
//!
//! Such an entry completes twice: with the result, and with the notification that the bytes are not read any more, which
//! may come only when the peer has acknowledged them. Nobody waits for the second. The result is told as that of any
//! send, and the slot lets go of its memory; until the notification the bytes have another owner here. So only bytes that
//! never change, and can have several owners, are sent this way.
//!
//! INVARIANT: an owner of the bytes is in `kept` from before the kernel sees the entry until the kernel has told that it
//! reads them no more: by the notification, or by a result that announces none. In whichever order they come.
//!
//! To pin the pages and to tell of their end costs more than to copy few bytes; and the kernel copies all the same where
//! it cannot know for how long somebody else would hold them: over loopback, between network namespaces, where packets
//! are looked at, and on devices that cannot gather. It reports that, and then this connection's sends are ordinary ones.

use super::{Place, Uring};
use crate::driver::features;
use crate::op::{Completion, Lasting, News, Outcome, Target, Token};
use ringroad_uring::Cqe;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::rc::Rc;

/// Shorter sends are copied.
///
/// Up to about 10 KB a copy is cheaper (Linux, Documentation/networking/msg_zerocopy.rst); besides, who has a head to send
/// before such a body sends it by itself then, which is a turn of the loop.
pub(super) const BYTES_MIN: usize = 64 * 1024;

/// What is known of sends from where their bytes lie.
#[derive(Debug)]
pub(super) struct ZeroCopy {
    wish: features::ZeroCopy,
    /// By what the completions carry.
    kept: HashMap<u64, Kept>,
    /// Connections on which it is of no use: their generations, by index in the table of descriptors.
    ordinary: HashMap<u32, u32>,
}

/// Bytes that the kernel may read.
#[derive(Debug)]
struct Kept {
    /// `None`: they need none, for they never go.
    owner: Option<Rc<[u8]>>,
    on: Target,
    /// Notifications that may be to come: one of each part that was sent from here.
    owed: u32,
    /// The result of one is to come.
    under_way: bool,
}

impl Kept {
    /// Whether that is the owner it takes.
    fn is_of(&self, owner: Option<&Rc<[u8]>>) -> bool {
        match (&self.owner, owner) {
            (None, None) => true,
            (Some(ours), Some(other)) => Rc::ptr_eq(ours, other),
            _ => false,
        }
    }

    fn is_over(&self) -> bool {
        self.owed == 0 && !self.under_way
    }
}

impl ZeroCopy {
    pub(super) fn new(wish: features::ZeroCopy) -> ZeroCopy {
        ZeroCopy { wish, kept: HashMap::new(), ordinary: HashMap::new() }
    }

    /// Whether a send of so many bytes is to be made from where they lie.
    pub(super) fn is_worth_it(&self, on: Target, bytes: usize) -> bool {
        bytes >= BYTES_MIN
            && self.wish != features::ZeroCopy::Off
            && (self.ordinary.is_empty() || self.ordinary.get(&on.index) != Some(&on.generation))
    }

    /// Becomes an owner of the bytes, for an entry that is going to be handed over. False: they are to be copied.
    pub(super) fn keep(&mut self, bits: u64, on: Target, bytes: usize, owner: Lasting<'_>) -> bool {
        if !self.is_worth_it(on, bytes) {
            return false;
        }
        let owner = match owner {
            Lasting::Static => None,
            Lasting::Shared(bytes) => Some(Rc::clone(bytes)),
        };
        match self.kept.entry(bits) {
            // Another part of the same send.
            Entry::Occupied(mut kept) if kept.get().is_of(owner.as_ref()) => {
                let kept = kept.get_mut();
                kept.owed += 1;
                kept.under_way = true;
                true
            }
            // The slot has had 2^32 lives since, and the peer of the first is still silent.
            Entry::Occupied(_) => false,
            Entry::Vacant(place) => {
                place.insert(Kept { owner, on, owed: 1, under_way: true });
                true
            }
        }
    }

    /// Whether the operation that a completion with these bits would be of has been handed over this way.
    pub(super) fn is_under_way(&self, bits: u64) -> bool {
        !self.kept.is_empty() && self.kept.get(&bits).is_some_and(|kept| kept.under_way)
    }

    /// The entry was never handed over.
    pub(super) fn withdraw(&mut self, bits: u64) {
        self.has_result(bits, false);
    }

    /// The result is there. `notifies`: the notification comes apart from it, or has come.
    pub(super) fn has_result(&mut self, bits: u64, notifies: bool) {
        self.change(bits, |kept| {
            kept.under_way = false;
            kept.owed = kept.owed.saturating_sub(u32::from(!notifies));
        });
    }

    /// The notification is there. `copied`: the kernel has not done what was wished.
    pub(super) fn is_notified(&mut self, bits: u64, copied: bool) {
        if let Some(kept) = self.kept.get(&bits)
            && copied
            && self.wish != features::ZeroCopy::Always
        {
            self.ordinary.insert(kept.on.index, kept.on.generation);
        }
        self.change(bits, |kept| kept.owed = kept.owed.saturating_sub(1));
    }

    fn change(&mut self, bits: u64, change: impl FnOnce(&mut Kept)) {
        if let Entry::Occupied(mut kept) = self.kept.entry(bits) {
            change(kept.get_mut());
            if kept.get().is_over() {
                kept.remove();
            }
        }
    }

    /// The kernel refuses such a send. True: an ordinary one may be taken.
    fn is_refused(&mut self, bits: u64, result: i32) -> bool {
        match -result {
            // The socket cannot (EOPNOTSUPP), or memory for it is short: more would be in use than this user may lock.
            libc::EOPNOTSUPP | libc::ENOBUFS | libc::ENOMEM => {
                if let Some(kept) = self.kept.get(&bits) {
                    self.ordinary.insert(kept.on.index, kept.on.generation);
                }
                true
            }
            // It knows the operation but not how to report (before Linux 6.2).
            libc::EINVAL => {
                self.wish = features::ZeroCopy::Off;
                true
            }
            _ => false,
        }
    }

    /// The descriptor at this index is another one's from now on.
    pub(super) fn forget(&mut self, index: u32) {
        if !self.ordinary.is_empty() {
            self.ordinary.remove(&index);
        }
    }

    /// Sends of which the kernel may still read the bytes, in memory that lives by our owning it.
    pub(super) fn lent(&self) -> usize {
        self.kept.values().filter(|kept| kept.owner.is_some()).count()
    }

    /// Owns for ever what the kernel may still read: nobody will hear when it does no longer.
    pub(super) fn leak(&mut self) {
        std::mem::forget(std::mem::take(&mut self.kept));
    }
}

impl Uring {
    /// Takes one of the two completions of such a send.
    #[cold]
    pub(super) fn tell_zero_copy(&mut self, completion: &Cqe, out: &mut Vec<Completion>) {
        let bits = completion.user_data;
        if completion.is_notification() {
            self.counters.zero_copy_copied += u64::from(completion.was_copied());
            return self.zero_copy.is_notified(bits, completion.was_copied());
        }
        self.in_flight -= 1;
        let is_cancelled = matches!(self.hold(bits), Some(Place::Doomed | Place::Cancelled));
        self.put(bits, Place::Out);
        let result = completion.result;
        let refused = self.zero_copy.is_refused(bits, result);
        self.zero_copy.has_result(bits, completion.more());
        let news = match refused {
            // Nothing was sent. Whoever asked for its end is told so; otherwise it is sent another way.
            true if is_cancelled => News::Last(Outcome::of(-libc::ECANCELED)),
            true => News::Ready,
            false => {
                self.counters.zero_copy_sends += u64::from(result > 0);
                News::Last(Outcome::of(result))
            }
        };
        out.push(Completion { token: Token::from_bits(bits & !super::TAG), news });
    }

    /// Takes one of them when the driver is given up.
    pub(super) fn discard_zero_copy(&mut self, completion: &Cqe) {
        if completion.is_notification() {
            return self.zero_copy.is_notified(completion.user_data, false);
        }
        self.in_flight -= 1;
        self.zero_copy.has_result(completion.user_data, completion.more());
    }
}
