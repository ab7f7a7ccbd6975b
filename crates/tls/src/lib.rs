//! TLS as bytes in and bytes out, without I/O: sessions, certificates by name, tickets, client certificates.
//!
//! [`Session`] is the state of one connection. [`receive`](Session::receive) takes the peer's bytes, and
//! returns the plaintext and the bytes to be sent. [`seal`](Session::seal) makes records of plaintext.
//! Buffers are the caller's, so an idle session holds none. [`Server`] makes sessions for accepted
//! connections and can replace its certificates meanwhile. [`Client`] makes sessions for connections to
//! servers.
//!
//! TLS 1.2 and 1.3 are implemented by rustls with aws-lc-rs. Only this crate uses rustls's interface; no
//! signature here names it, except for the types of certificates. 0-RTT data is not supported: a replayed
//! request would break retries and limits. Kernel TLS is not supported: it could not be tested, because the
//! kernels of the test machines have it switched off.
//!
//! Start at `session.rs`, then `server.rs`.
#![forbid(unsafe_code)]

mod certificates;
mod client;
mod error;
mod info;
mod issuing;
mod names;
mod server;
mod session;
mod subject;
mod tickets;

pub use certificates::{
    BadPair, CertificateInfo, Pair, PairFiles, Place, certificates_from_pem, self_signed,
};
pub use client::{Client, ClientSettings, Identity, Trust, system_certificates};
pub use error::{TlsError, TlsErrorKind};
pub use info::{HandshakeKind, Info, ProtocolVersion};
pub use issuing::{CertificateRequest, Issued, challenge_pair, examine, request_certificate};
pub use names::Names;
pub use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};
pub use server::{ClientAuth, Expired, Refreshed, Server, ServerSettings, Tickets, UnknownName};
pub use session::{Output, Session};

/// The ALPN protocol of HTTP/1.1.
pub const ALPN_HTTP11: &[u8] = b"http/1.1";
/// The ALPN protocol of HTTP/2.
pub const ALPN_H2: &[u8] = b"h2";
/// The ALPN protocol of ACME's TLS-ALPN-01 challenges (RFC 8737).
pub const ALPN_ACME: &[u8] = b"acme-tls/1";

use rustls::crypto::CryptoProvider;
use std::sync::{Arc, OnceLock};

/// Returns the cryptography that all sessions use.
fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    Arc::clone(PROVIDER.get_or_init(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider())))
}
