//! Why a session failed or cannot begin: as text, and as a kind that programs can match on.

use rustls::{CertificateError as Bad, OtherError};
use std::fmt;

/// An error of a session or of its settings.
#[derive(Clone, Debug)]
pub struct TlsError {
    kind: TlsErrorKind,
    text: String,
}

/// The kind of a [`TlsError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsErrorKind {
    /// The bytes are not TLS: most often the peer speaks plain HTTP.
    NotTls,
    /// No trusted authority has signed the peer's certificate.
    UnknownIssuer,
    /// The peer's certificate is for another name.
    WrongName,
    /// The peer's certificate has expired, or is not valid yet.
    NotValidNow,
    /// The peer's certificate was revoked.
    Revoked,
    /// The list of revoked certificates for the peer's certificate has expired.
    ListExpired,
    /// The peer presents an authority's certificate as its own, and that is not among the trusted ones.
    Authority,
    /// The peer's certificate cannot be accepted for another reason.
    BadCertificate,
    /// A client certificate is required, and the client sent none.
    NoCertificate,
    /// The peer refused with an alert.
    Alert,
    /// The two sides have no version, cipher suite, key exchange or protocol in common.
    NothingInCommon,
    /// No certificate for the name that the client asked for.
    NoCertificateForName,
    /// A setting is wrong: an invalid name, an unusable key, no trusted certificate.
    Settings,
    /// The peer breaks the protocol, or a record was changed on its way.
    Protocol,
}

impl fmt::Display for TlsErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TlsErrorKind::NotTls => "the peer does not speak TLS",
            TlsErrorKind::UnknownIssuer => "the peer's certificate is signed by no authority that is trusted",
            TlsErrorKind::WrongName => "the peer's certificate is for another name",
            TlsErrorKind::NotValidNow => "the peer's certificate is not valid at this time",
            TlsErrorKind::Revoked => "the peer's certificate was revoked",
            TlsErrorKind::ListExpired => "the list of revoked certificates has expired",
            TlsErrorKind::Authority => "the peer's certificate is that of an authority",
            TlsErrorKind::BadCertificate => "the peer's certificate cannot be accepted",
            TlsErrorKind::NoCertificate => "the client sent no certificate",
            TlsErrorKind::Alert => "the peer refused by an alert",
            TlsErrorKind::NothingInCommon => "no version, cipher suite or protocol in common",
            TlsErrorKind::NoCertificateForName => "no certificate for the name",
            TlsErrorKind::Settings => "wrong settings",
            TlsErrorKind::Protocol => "the peer breaks the protocol",
        })
    }
}

impl TlsError {
    pub(crate) fn settings(text: impl Into<String>) -> TlsError {
        TlsError { kind: TlsErrorKind::Settings, text: text.into() }
    }

    /// Returns what went wrong, without the prefix.
    pub fn detail(&self) -> &str {
        &self.text
    }

    /// Returns the kind of the failure.
    pub fn kind(&self) -> TlsErrorKind {
        self.kind
    }

    #[cold]
    pub(crate) fn of(why: &rustls::Error, handshaking: bool) -> TlsError {
        use rustls::Error;
        let kind = match why {
            Error::InvalidMessage(_) if handshaking => TlsErrorKind::NotTls,
            Error::InvalidCertificate(bad) => match bad {
                Bad::UnknownIssuer | Bad::BadSignature => TlsErrorKind::UnknownIssuer,
                Bad::NotValidForName | Bad::NotValidForNameContext { .. } => TlsErrorKind::WrongName,
                Bad::Expired
                | Bad::ExpiredContext { .. }
                | Bad::NotValidYet
                | Bad::NotValidYetContext { .. } => TlsErrorKind::NotValidNow,
                Bad::Revoked => TlsErrorKind::Revoked,
                Bad::ExpiredRevocationList | Bad::ExpiredRevocationListContext { .. } => {
                    TlsErrorKind::ListExpired
                }
                Bad::Other(why) if is(why, &webpki::Error::CaUsedAsEndEntity) => TlsErrorKind::Authority,
                _ => TlsErrorKind::BadCertificate,
            },
            Error::NoCertificatesPresented => TlsErrorKind::NoCertificate,
            Error::AlertReceived(_) => TlsErrorKind::Alert,
            Error::PeerIncompatible(_) | Error::NoApplicationProtocol => TlsErrorKind::NothingInCommon,
            Error::General(text) if text == NO_CERTIFICATE => TlsErrorKind::NoCertificateForName,
            _ => TlsErrorKind::Protocol,
        };
        let text = match why {
            _ if kind == TlsErrorKind::NotTls => {
                "the peer does not speak TLS here (http:// and https:// mixed up?)".to_owned()
            }
            Error::AlertReceived(alert) => format!("alert {alert:?}"),
            _ if kind == TlsErrorKind::Authority => {
                "the certificate is that of an authority (CA:TRUE) and not of a server, and it is not trusted itself"
                    .to_owned()
            }
            Error::InvalidCertificate(Bad::Other(why)) if is(why, &webpki::Error::UnsupportedCertVersion) => {
                "the certificate has an old version of X.509; version 3, with subjectAltName, is required"
                    .to_owned()
            }
            Error::InvalidCertificate(Bad::Other(why)) => format!("invalid certificate: {}", why.0),
            Error::InvalidCertificate(bad) => in_words(bad),
            _ if kind == TlsErrorKind::NoCertificateForName => {
                "no certificate for the name that the client asks for".to_owned()
            }
            _ => why.to_string(),
        };
        TlsError { kind, text }
    }
}

/// Returns why a certificate is not accepted, without names of Rust types and numbers of seconds.
fn in_words(bad: &Bad) -> String {
    match bad {
        Bad::UnknownIssuer | Bad::BadSignature => {
            format!("the certificate is signed by no authority that is trusted ({bad:?})")
        }
        Bad::NotValidForNameContext { expected, presented } => {
            let presented: Vec<_> = presented.iter().map(|name| name_in(name)).collect();
            let names = if presented.is_empty() { "no name".to_owned() } else { presented.join(", ") };
            format!("the certificate is not valid for name {:?}, but for {names}", expected.to_str())
        }
        Bad::ExpiredContext { time, not_after } => {
            let since = time.as_secs().saturating_sub(not_after.as_secs());
            format!("the certificate expired {} ago", days(since))
        }
        Bad::NotValidYetContext { time, not_before } => {
            let until = not_before.as_secs().saturating_sub(time.as_secs());
            format!("the certificate is not valid yet, but in {}", days(until))
        }
        Bad::Revoked => "the certificate was revoked".to_owned(),
        other => format!("invalid certificate: {other}"),
    }
}

/// Returns the name in `DnsName("a.test")`, as rustls lists the names of a certificate.
fn name_in(listed: &str) -> &str {
    let name = listed.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    name.unwrap_or(listed).trim_matches('"')
}

/// Returns a duration in days, or in hours if it is less than two days.
fn days(seconds: u64) -> String {
    match seconds / 3600 {
        hours @ 48.. => format!("{} days", hours / 24),
        1 => "1 hour".to_owned(),
        hours => format!("{hours} hours"),
    }
}

/// Returns whether webpki refused a certificate for this reason, for which rustls has no name.
fn is(why: &OtherError, reason: &webpki::Error) -> bool {
    why.0.downcast_ref() == Some(reason)
}

/// The text of rustls's error when a resolver returned no certificate.
const NO_CERTIFICATE: &str = "no server certificate chain resolved";

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TLS: {}", self.text)
    }
}

impl std::error::Error for TlsError {}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::Arc;

    #[test]
    fn certificates_that_are_not_accepted_have_words_for_people() {
        use rustls::pki_types::{ServerName, UnixTime};
        let at = |seconds| UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        let (expected, presented) =
            (ServerName::try_from("a.test").unwrap(), vec!["DnsName(\"b.test\")".to_owned(), "x".to_owned()]);
        for (bad, kind, words) in [
            (Bad::UnknownIssuer, TlsErrorKind::UnknownIssuer, "no authority that is trusted (UnknownIssuer)"),
            (
                Bad::NotValidForNameContext { expected, presented },
                TlsErrorKind::WrongName,
                "is not valid for name \"a.test\", but for b.test, x",
            ),
            (
                Bad::ExpiredContext { time: at(900_000), not_after: at(10_000) },
                TlsErrorKind::NotValidNow,
                "the certificate expired 10 days ago",
            ),
            (
                Bad::NotValidYetContext { time: at(0), not_before: at(3700) },
                TlsErrorKind::NotValidNow,
                "is not valid yet, but in 1 hour",
            ),
            (Bad::Revoked, TlsErrorKind::Revoked, "the certificate was revoked"),
        ] {
            let error = TlsError::of(&rustls::Error::InvalidCertificate(bad), true);
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(words), "{error}");
        }
    }

    /// These have no name in rustls, which prints them as Rust's debug output.
    #[test]
    fn what_webpki_alone_refuses_has_words() {
        for (reason, kind, words) in [
            (webpki::Error::CaUsedAsEndEntity, TlsErrorKind::Authority, "that of an authority (CA:TRUE)"),
            (webpki::Error::UnsupportedCertVersion, TlsErrorKind::BadCertificate, "version 3, with"),
            (webpki::Error::BadDerTime, TlsErrorKind::BadCertificate, "invalid certificate: BadDerTime"),
        ] {
            let other = Bad::Other(OtherError(Arc::new(reason)));
            let error = TlsError::of(&rustls::Error::InvalidCertificate(other), true);
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.detail().contains(words) && !error.detail().contains("OtherError"), "{error}");
        }
    }
}
