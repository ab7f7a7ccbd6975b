//! One descriptor for all answers that send the same file at the same time.
//!
//! A response from a large file keeps the file open until its last byte is sent, which takes long with a slow
//! client. With a descriptor for each response, such clients would take twice as many descriptors as they
//! have connections. The last response closes the file; no file stays open for later requests.

use super::open::Identity;
use std::collections::HashMap;
use std::fs::File;
use std::sync::{Arc, Weak};

/// The files that a worker is sending.
#[derive(Default)]
pub(super) struct Sharing {
    open: HashMap<Identity, Weak<File>>,
    /// So many entries, and those of closed files go.
    sweep_at: usize,
}

/// No sweep is worth its while before.
const SWEEP_MIN: usize = 64;

impl Sharing {
    /// Returns the descriptor for what was found to be `identity`: the one that is being sent from, else
    /// `file`.
    pub(super) fn one(&mut self, file: Arc<File>, identity: Identity) -> Arc<File> {
        if let Some(open) = self.open.get(&identity).and_then(Weak::upgrade) {
            return open;
        }
        if self.open.len() >= self.sweep_at {
            self.open.retain(|_, file| file.strong_count() > 0);
            self.sweep_at = (2 * self.open.len()).max(SWEEP_MIN);
        }
        self.open.insert(identity, Arc::downgrade(&file));
        file
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn found(bytes: u64) -> (Arc<File>, Identity) {
        let file = tempfile::tempfile().unwrap();
        file.set_len(bytes).unwrap();
        let identity = Identity::of_open(&file).unwrap();
        (Arc::new(file), identity)
    }

    #[test]
    fn a_file_that_is_being_sent_is_sent_from_the_same_descriptor() {
        let mut sharing = Sharing::default();
        let (first, identity) = found(1);
        let again = Arc::new(first.try_clone().unwrap());
        let sent = sharing.one(Arc::clone(&first), identity);
        assert!(Arc::ptr_eq(&sharing.one(Arc::clone(&again), identity), &first));
        // Written to meanwhile, it is another.
        first.set_len(2).unwrap();
        let changed = Identity::of_open(&*first).unwrap();
        assert!(Arc::ptr_eq(&sharing.one(Arc::clone(&again), changed), &again));
        drop((sent, first));
        assert!(Arc::ptr_eq(&sharing.one(Arc::clone(&again), identity), &again), "nobody sends it any more");
    }

    #[test]
    fn what_is_closed_is_forgotten_in_time() {
        let mut sharing = Sharing::default();
        for bytes in 0..10 * SWEEP_MIN as u64 {
            let (file, identity) = found(bytes);
            sharing.one(file, identity);
            assert!(sharing.open.len() <= SWEEP_MIN);
        }
    }
}
