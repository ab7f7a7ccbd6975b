//! Results of costly checks, kept for a while by what the client sent.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// Results that are kept at most.
const MOST: usize = 4096;

/// Valid credentials by their salted hash, shared by all workers. Only valid ones are kept: a client that
/// sends others cannot fill it.
pub(super) struct Kept<T> {
    salt: [u8; 32],
    known: Mutex<HashMap<[u8; 32], (u64, T)>>,
}

impl<T> Default for Kept<T> {
    fn default() -> Kept<T> {
        let mut salt = [0; 32];
        // Without randomness the salt is constant, and the hashes are never shown.
        let _ = aws_lc_rs::rand::fill(&mut salt);
        Kept { salt, known: Mutex::default() }
    }
}

impl<T: Clone> Kept<T> {
    /// Returns the hash of credentials.
    pub(super) fn key(&self, credentials: &[u8]) -> [u8; 32] {
        super::digest(&[&self.salt, credentials].concat())
    }

    /// Returns what is kept, if its time is not over.
    pub(super) fn get(&self, key: &[u8; 32], now: u64) -> Option<T> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(key).filter(|(until, _)| *until > now).map(|(_, value)| value.clone())
    }

    /// Keeps a result until then.
    pub(super) fn put(&self, key: [u8; 32], until: u64, now: u64, value: T) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.retain(|_, (until, _)| *until > now);
            if known.len() >= MOST {
                known.clear();
            }
        }
        known.insert(key, (until, value));
    }

    /// Forgets all.
    pub(super) fn clear(&self) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl<T> fmt::Debug for Kept<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kept")
    }
}
