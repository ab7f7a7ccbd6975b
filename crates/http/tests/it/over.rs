//! The end of the threads that load a server in a test. The tools' tests use this file as well, by its path.

use std::sync::atomic::{AtomicBool, Ordering};

/// Sets the flag when it is dropped: also where the test fails, which would wait for its threads forever.
pub(crate) struct Over<'f>(pub(crate) &'f AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
