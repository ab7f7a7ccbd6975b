//! Settings: the certificates, the authority, and the method of the proof.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// The directory URL of Let's Encrypt, a free authority.
pub const DEFAULT_DIRECTORY: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// Settings of the certificates and of their authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The certificates, each with its names: DNS names without a star, or addresses. None is empty.
    pub certificates: Vec<Vec<String>>,
    /// A mail address for messages of the authority.
    pub contact: Option<String>,
    /// The URL of the authority's directory.
    pub directory: String,
    /// A folder for the account's key and the certificates.
    pub state: PathBuf,
    /// The method of the proof.
    pub challenge: ChallengeKind,
    /// A PEM file with the authorities that verify the directory's own certificate. `None`: those of the
    /// system.
    pub ca: Option<PathBuf>,
    /// An account outside ACME that the ACME account is bound to.
    pub external: Option<External>,
    /// The profile of the certificates, one of those in the directory.
    pub profile: Option<String>,
    /// The pause after a first failure. It doubles with each further one, up to 12 hours.
    pub retry: Duration,
}

/// How the authority verifies that a name belongs to this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChallengeKind {
    /// By a request to port 80.
    Http01,
    /// By a TLS handshake on port 443.
    TlsAlpn01,
}

impl ChallengeKind {
    /// Returns the name in the protocol.
    pub fn as_str(self) -> &'static str {
        match self {
            ChallengeKind::Http01 => "http-01",
            ChallengeKind::TlsAlpn01 => "tls-alpn-01",
        }
    }
}

/// An account outside ACME that some authorities require (external account binding, RFC 8555 §7.3.4).
#[derive(Clone, PartialEq, Eq)]
pub struct External {
    /// The identifier of its key.
    pub kid: String,
    /// The key.
    pub key: Vec<u8>,
}

impl fmt::Debug for External {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("External").field("kid", &self.kid).finish_non_exhaustive()
    }
}
