//! The server's part in the renewal of its certificates: answering challenges, installing certificates,
//! reporting.

use crate::settings::ChallengeKind;
use aws_lc_rs::digest::{SHA256, digest};
use ringroad_tls::Pair;
use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The server that the certificates are for.
pub trait Site: Send + Sync + 'static {
    /// Begins to answer a challenge.
    ///
    /// # Errors
    /// The challenge cannot be answered: the reason.
    fn answer(&self, challenge: &Challenge) -> Result<(), String>;

    /// Stops answering a challenge.
    fn forget(&self, challenge: &Challenge);

    /// Installs these certificates: all that are kept.
    ///
    /// # Errors
    /// A certificate cannot be used. The previous ones stay in force.
    fn install(&self, pairs: Vec<Pair>) -> Result<(), String>;

    /// Reports an event.
    fn report(&self, event: Event);
}

/// A challenge of the authority.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Challenge {
    /// The method of the proof.
    pub kind: ChallengeKind,
    /// The name or address.
    pub name: String,
    /// The token of the authority: letters, digits, `-` and `_` only.
    pub token: String,
    /// The key authorization, from which the answer is made.
    pub authorization: String,
}

impl Challenge {
    /// Returns the certificate that answers a TLS-ALPN-01 challenge.
    ///
    /// # Errors
    /// The name is neither a DNS name nor an address.
    pub fn pair(&self) -> Result<Pair, String> {
        let digest = digest(&SHA256, self.authorization.as_bytes());
        let digest = digest.as_ref().try_into().map_err(|_| "SHA-256 has 32 bytes")?;
        ringroad_tls::challenge_pair(&self.name, digest)
    }

    /// Returns the server name in the authority's TLS handshake: for an address, that of its reverse look-up
    /// (RFC 8738 §6).
    pub fn server_name(&self) -> String {
        match self.name.parse() {
            Ok(IpAddr::V4(address)) => {
                let [a, b, c, d] = address.octets();
                format!("{d}.{c}.{b}.{a}.in-addr.arpa")
            }
            Ok(IpAddr::V6(address)) => {
                let mut name = String::new();
                for byte in address.octets().iter().rev() {
                    name += &format!("{:x}.{:x}.", byte & 15, byte >> 4);
                }
                name + "ip6.arpa"
            }
            Err(_) => self.name.clone(),
        }
    }
}

/// An event of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// It was obtained and is in force.
    Obtained {
        /// Its names.
        names: Vec<String>,
        /// End of its validity.
        expires: SystemTime,
        /// When it will be renewed, unless the authority wants it earlier.
        renew: SystemTime,
    },
    /// Another process with the same state folder has obtained it, and it is in force here too.
    TakenOver {
        /// Its names.
        names: Vec<String>,
        /// End of its validity.
        expires: SystemTime,
    },
    /// It was obtained and is in force, but could not be written into the state folder. Writing is tried
    /// again.
    NotKept {
        /// Its names.
        names: Vec<String>,
        /// The reason.
        why: String,
    },
    /// It could not be obtained. An existing one stays in force.
    Failed {
        /// Its names.
        names: Vec<String>,
        /// The step, and its error.
        why: String,
        /// How long the keeper waits before it tries again.
        again: Duration,
        /// End of the validity of the existing one.
        expires: Option<SystemTime>,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Obtained { names, expires, renew } => write!(
                f,
                "certificate, on {}: obtained, valid until {}, to be renewed on {}",
                names.join(", "),
                Date(*expires),
                Date(*renew)
            ),
            Event::TakenOver { names, expires } => write!(
                f,
                "certificate, on {}: taken from the state folder, valid until {}",
                names.join(", "),
                Date(*expires)
            ),
            Event::NotKept { names, why } => write!(
                f,
                "certificate, on {}: not kept, so that a restart would ask for another one: {why}; \
                 it is written within an hour where that is possible",
                names.join(", ")
            ),
            Event::Failed { names, why, again, expires } => {
                write!(f, "certificate, on {}: not obtained: {why}; ", names.join(", "))?;
                match expires {
                    Some(expires) => write!(f, "the one until {} stays in force; ", Date(*expires))?,
                    None => f.write_str("handshakes for these names are refused; ")?,
                }
                write!(f, "next attempt in {} s", again.as_secs())
            }
        }
    }
}

/// A time in the form of RFC 3339, without fractions of seconds.
struct Date(SystemTime);

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = OffsetDateTime::from(self.0);
        let time = time.replace_nanosecond(0).unwrap_or(time);
        f.write_str(&time.format(&Rfc3339).map_err(|_| fmt::Error)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_handshake_for_an_address_asks_for_its_reverse_name() {
        let of = |name: &str| {
            let kind = ChallengeKind::TlsAlpn01;
            let (token, authorization) = (String::new(), String::new());
            Challenge { kind, name: name.to_owned(), token, authorization }.server_name()
        };
        assert_eq!(of("192.0.2.9"), "9.2.0.192.in-addr.arpa");
        assert_eq!(
            of("2001:db8::1"),
            "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa"
        );
        assert_eq!(of("a.test"), "a.test");
    }
}
