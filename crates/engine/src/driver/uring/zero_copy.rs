//! Zero-copy sends (`IORING_OP_SEND_ZC`), and when they pay off.
//!
//! Such an entry completes twice: with the result, and with a notification that the kernel no longer reads
//! the bytes. The notification may wait for the peer's acknowledgement. No operation waits for the
//! notification. The result is reported like that of any send, and the slot releases its memory; until the
//! notification, `kept` holds another owner of the bytes. So only immutable bytes that can have several
//! owners are sent this way.
//!
//! INVARIANT: an owner of the bytes is in `kept` from before the kernel sees the entry until the kernel has
//! reported that it no longer reads them: by the notification, or by a result that announces none. The two
//! may come in either order.
//!
//! Pinning the pages and the notification cost more than copying few bytes. The kernel copies anyway where it
//! cannot bound how long the pages are held: over loopback, between network namespaces, where packets are
//! inspected, and on devices without scatter-gather. It reports that, and later sends of the connection are
//! ordinary ones.

use super::{Place, Uring};
use crate::driver::features;
use crate::op::{Completion, Lasting, News, Outcome, Target, Token};
use ringroad_uring::Cqe;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::rc::Rc;
use std::sync::Arc;

/// Shorter sends are copied, in bytes.
///
/// Up to about 10 KB a copy is cheaper (Linux, Documentation/networking/msg_zerocopy.rst). Also, the head
/// before such a body is then sent separately, which costs a turn of the loop.
pub(super) const BYTES_MIN: usize = 64 * 1024;

/// State of zero-copy sends.
#[derive(Debug)]
pub(super) struct ZeroCopy {
    wish: features::ZeroCopy,
    /// By user_data.
    kept: HashMap<u64, Kept>,
    /// Connections on which the kernel copies: their generations, by index in the table of descriptors.
    ordinary: HashMap<u32, u32>,
}

/// An owner of bytes that the kernel may read.
#[derive(Debug)]
struct Kept {
    owner: Owner,
    on: Target,
    /// Notifications that may still come: one for each part sent zero-copy.
    owed: u32,
    /// A result is still to come.
    under_way: bool,
}

/// Keeps the bytes allocated.
#[derive(Debug)]
enum Owner {
    /// The bytes are never freed.
    Static,
    Rc(Rc<[u8]>),
    Arc(Arc<[u8]>),
}

impl Owner {
    fn new(lasting: Lasting<'_>) -> Owner {
        match lasting {
            Lasting::Static => Owner::Static,
            Lasting::Shared(bytes) => Owner::Rc(Rc::clone(bytes)),
            Lasting::SharedByThreads(bytes) => Owner::Arc(Arc::clone(bytes)),
        }
    }

    /// Returns whether both own the same allocation.
    fn is_same(&self, other: &Owner) -> bool {
        match (self, other) {
            (Owner::Static, Owner::Static) => true,
            (Owner::Rc(one), Owner::Rc(other)) => Rc::ptr_eq(one, other),
            (Owner::Arc(one), Owner::Arc(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl Kept {
    fn is_over(&self) -> bool {
        self.owed == 0 && !self.under_way
    }
}

impl ZeroCopy {
    pub(super) fn new(wish: features::ZeroCopy) -> ZeroCopy {
        ZeroCopy { wish, kept: HashMap::new(), ordinary: HashMap::new() }
    }

    /// Returns whether a send of so many bytes is to be zero-copy.
    pub(super) fn is_worth_it(&self, on: Target, bytes: usize) -> bool {
        bytes >= BYTES_MIN
            && self.wish != features::ZeroCopy::Off
            && (self.ordinary.is_empty() || self.ordinary.get(&on.index) != Some(&on.generation))
    }

    /// Keeps an owner of the bytes for an entry that is about to be submitted. False: use an ordinary send.
    pub(super) fn keep(&mut self, bits: u64, on: Target, bytes: usize, owner: Lasting<'_>) -> bool {
        if !self.is_worth_it(on, bytes) {
            return false;
        }
        let owner = Owner::new(owner);
        match self.kept.entry(bits) {
            // Another part of the same send.
            Entry::Occupied(mut kept) if kept.get().owner.is_same(&owner) => {
                let kept = kept.get_mut();
                kept.owed += 1;
                kept.under_way = true;
                true
            }
            // The slot's generation has wrapped around, and the notification of the first send is still to
            // come.
            Entry::Occupied(_) => false,
            Entry::Vacant(place) => {
                place.insert(Kept { owner, on, owed: 1, under_way: true });
                true
            }
        }
    }

    /// Returns whether the operation with these bits was submitted as a zero-copy send.
    pub(super) fn is_under_way(&self, bits: u64) -> bool {
        !self.kept.is_empty() && self.kept.get(&bits).is_some_and(|kept| kept.under_way)
    }

    /// Records that the entry was never submitted.
    pub(super) fn withdraw(&mut self, bits: u64) {
        self.has_result(bits, false);
    }

    /// Records the result. `notifies`: there is a notification, to come or already received.
    pub(super) fn has_result(&mut self, bits: u64, notifies: bool) {
        self.change(bits, |kept| {
            kept.under_way = false;
            kept.owed = kept.owed.saturating_sub(u32::from(!notifies));
        });
    }

    /// Records the notification. `copied`: the kernel copied the bytes.
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

    /// Handles a refused zero-copy send. True: an ordinary send may be used instead.
    fn is_refused(&mut self, bits: u64, result: i32) -> bool {
        match -result {
            // The socket does not support it (EOPNOTSUPP), or locked memory is short (RLIMIT_MEMLOCK).
            libc::EOPNOTSUPP | libc::ENOBUFS | libc::ENOMEM => {
                if let Some(kept) = self.kept.get(&bits) {
                    self.ordinary.insert(kept.on.index, kept.on.generation);
                }
                true
            }
            // The kernel has the operation but not the report of copies (before Linux 6.2).
            libc::EINVAL => {
                self.wish = features::ZeroCopy::Off;
                true
            }
            _ => false,
        }
    }

    /// Forgets the connection at this index.
    pub(super) fn forget(&mut self, index: u32) {
        if !self.ordinary.is_empty() {
            self.ordinary.remove(&index);
        }
    }

    /// Returns the number of completed sends with memory that the kernel may still read and that lives only
    /// through this owner.
    pub(super) fn lent(&self) -> usize {
        self.kept.values().filter(|kept| !matches!(kept.owner, Owner::Static)).count()
    }

    /// Leaks what the kernel may still read, because no notification is taken any more.
    pub(super) fn leak(&mut self) {
        std::mem::forget(std::mem::take(&mut self.kept));
    }
}

impl Uring {
    /// Handles one of the two completions of a zero-copy send.
    #[cold]
    pub(super) fn report_zero_copy(&mut self, completion: &Cqe, out: &mut Vec<Completion>) {
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
            // Nothing was sent. A cancelled operation ends here; otherwise an ordinary send follows.
            true if is_cancelled => News::Last(Outcome::of(-libc::ECANCELED)),
            true => News::Ready,
            false => {
                self.counters.zero_copy_sends += u64::from(result > 0);
                News::Last(Outcome::of(result))
            }
        };
        out.push(Completion { token: Token::from_bits(bits & !super::TAG), news });
    }

    /// Handles one of them when the driver is dropped.
    pub(super) fn discard_zero_copy(&mut self, completion: &Cqe) {
        if completion.is_notification() {
            return self.zero_copy.is_notified(completion.user_data, false);
        }
        self.in_flight -= 1;
        self.zero_copy.has_result(completion.user_data, completion.more());
    }
}
