//! What the keeper has done and will do, for metrics.

use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// What is known of each certificate, shared with the keeper.
#[derive(Debug, Default)]
pub struct Progress(Mutex<Vec<CertificateProgress>>);

/// What is known of one certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CertificateProgress {
    /// Its first name.
    pub name: String,
    /// Times it was obtained, since the server's start.
    pub obtained: u64,
    /// Times it could not be obtained, since the server's start.
    pub failed: u64,
    /// Failures since it was obtained last, also over a restart.
    pub failures: u32,
    /// When the next attempt is due.
    pub next: Option<SystemTime>,
}

impl Progress {
    pub(crate) fn new(names: impl IntoIterator<Item = String>) -> Progress {
        let one = |name| CertificateProgress { name, obtained: 0, failed: 0, failures: 0, next: None };
        Progress(Mutex::new(names.into_iter().map(one).collect()))
    }

    /// Returns what is known now.
    pub fn certificates(&self) -> Vec<CertificateProgress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes over the counts of certificates with the same name, so that none decreases over a reload.
    pub fn adopt(&self, before: &Progress) {
        let before = before.certificates();
        for one in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
            if let Some(known) = before.iter().find(|known| known.name == one.name) {
                one.obtained += known.obtained;
                one.failed += known.failed;
            }
        }
    }

    pub(crate) fn change(&self, at: usize, change: impl FnOnce(&mut CertificateProgress)) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(one) = all.get_mut(at) {
            change(one);
        }
    }
}
