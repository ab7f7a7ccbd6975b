//! Session tickets: how a server recognises a client that it has seen before (RFC 8446 §2.2, RFC 5077).
//!
//! One ticketer serves all workers and outlives reloads of certificates. By default its keys are random and
//! change every six hours. Machines that share a name can share a file instead: keys are derived from the
//! file and the time, so all machines have the same keys without communication. A ticket carries the client's
//! certificate, so the ticketer is replaced when the rules for client certificates change
//! ([`server`](crate::server)).

use crate::error::TlsError;
use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use rustls::server::ProducesTickets;
use std::fmt;
use std::sync::{Arc, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

/// How long a derived key seals tickets. It opens them for the same time again.
const PERIOD_SECONDS: u64 = 6 * 60 * 60;

/// Minimum size of a file with a secret, in bytes.
pub(crate) const SECRET_BYTES_MIN: usize = 32;

/// Makes a ticketer with random keys, known to this process only.
pub(crate) fn random() -> Result<Arc<dyn ProducesTickets>, TlsError> {
    rustls::crypto::aws_lc_rs::Ticketer::new().map_err(|why| TlsError::of(&why, false))
}

/// Keys derived from a secret that several machines have.
pub(crate) struct Derived {
    /// The present secret, and the previous one, which only opens tickets.
    secrets: RwLock<(Vec<u8>, Option<Vec<u8>>)>,
    /// The rules for client certificates. A ticket made under other rules is not opened.
    context: Vec<u8>,
}

impl Derived {
    pub(crate) fn new(secret: Vec<u8>, before: Option<Vec<u8>>, context: Vec<u8>) -> Derived {
        Derived { secrets: RwLock::new((secret, before)), context }
    }

    /// Returns the key of a period; `None` if the library refuses.
    fn key(&self, secret: &[u8], period: u64) -> Option<RandomizedNonceKey> {
        struct Bytes32;
        impl KeyType for Bytes32 {
            fn len(&self) -> usize {
                32
            }
        }
        let period = period.to_be_bytes();
        let info: [&[u8]; 3] = [b"ringroad session ticket", &period, &self.context];
        let derived = Salt::new(HKDF_SHA256, b"ringroad").extract(secret);
        let mut bytes = [0; 32];
        derived.expand(&info, Bytes32).and_then(|okm| okm.fill(&mut bytes)).ok()?;
        RandomizedNonceKey::new(&AES_256_GCM, &bytes).ok()
    }

    fn seal(&self, plain: &[u8], period: u64) -> Option<Vec<u8>> {
        let secrets = self.secrets.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let key = self.key(&secrets.0, period)?;
        let name = period.to_be_bytes();
        let mut sealed = plain.to_vec();
        let nonce = key.seal_in_place_append_tag(Aad::from(&name), &mut sealed).ok()?;
        Some([&name, nonce.as_ref().as_slice(), &sealed].concat())
    }

    fn open(&self, ticket: &[u8], now: u64) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_first_chunk::<8>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let period = u64::from_be_bytes(*name);
        // One period ahead is accepted, because the clocks of several machines differ.
        if period + 1 < now || period > now + 1 {
            return None;
        }
        let secrets = self.secrets.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let all = [Some(&secrets.0), secrets.1.as_ref()];
        all.into_iter().flatten().find_map(|secret| {
            let mut bytes = sealed.to_vec();
            let nonce = Nonce::assume_unique_for_key(*nonce);
            let opened =
                self.key(secret, period)?.open_in_place(nonce, Aad::from(name), &mut bytes).ok()?.len();
            bytes.truncate(opened);
            Some(bytes)
        })
    }
}

fn period_now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_secs() / PERIOD_SECONDS
}

impl ProducesTickets for Derived {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        2 * PERIOD_SECONDS as u32
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.seal(plain, period_now())
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.open(cipher, period_now())
    }
}

impl fmt::Debug for Derived {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Derived")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn derived(secret: u8, before: Option<u8>, context: &[u8]) -> Derived {
        Derived::new(vec![secret; 32], before.map(|secret| vec![secret; 32]), context.to_vec())
    }

    #[test]
    fn machines_with_the_same_secret_open_each_others_tickets_of_this_period_and_the_last() {
        let (one, other) = (derived(1, None, b""), derived(1, None, b""));
        let ticket = one.seal(b"state", 100).unwrap_or_default();
        for (now, opens) in [(99, true), (100, true), (101, true), (102, false), (98, false)] {
            assert_eq!(other.open(&ticket, now).as_deref(), opens.then_some(b"state".as_slice()), "{now}");
        }
        assert_ne!(ticket, one.seal(b"state", 100).unwrap_or_default(), "each has a nonce of its own");
    }

    #[test]
    fn a_ticket_of_another_secret_or_under_other_rules_or_changed_is_not_opened() {
        let ticket = derived(1, None, b"").seal(b"state", 7).unwrap_or_default();
        assert_eq!(derived(2, None, b"").open(&ticket, 7), None);
        assert_eq!(derived(1, None, b"clients").open(&ticket, 7), None);
        assert!(derived(2, Some(1), b"").open(&ticket, 7).is_some(), "the secret before still opens");
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert_eq!(derived(1, None, b"").open(&changed, 7), None, "byte {at}");
        }
        for length in 0..ticket.len() {
            assert_eq!(derived(1, None, b"").open(&ticket[..length], 7), None, "{length} bytes");
        }
    }
}
