//! The client's side: which server certificates it accepts, and its own certificate.

use crate::certificates::Pair;
use crate::error::TlsError;
use crate::session::Session;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{UnbufferedClientConnection, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::fmt;
use std::sync::{Arc, OnceLock};

/// The server certificates that a client accepts.
#[derive(Clone, Debug)]
pub enum Trust {
    /// Certificates that one of these authorities has signed.
    Roots(Vec<CertificateDer<'static>>),
    /// Certificates that one of these has signed, and these themselves, for the names in them.
    Given(Vec<CertificateDer<'static>>),
    /// Any: neither the name nor the chain is verified.
    Any,
}

/// A client's own certificate.
pub type Identity = Pair;

/// Settings of a client.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// Which certificates it accepts.
    pub trust: Trust,
    /// Its own certificate, for servers that request one.
    pub identity: Option<Identity>,
    /// The application protocols it offers (ALPN), in order of preference.
    pub alpn: Vec<Vec<u8>>,
}

impl ClientSettings {
    /// Makes settings with this trust, without a certificate of its own, for HTTP/1.1.
    pub fn new(trust: Trust) -> ClientSettings {
        ClientSettings { trust, identity: None, alpn: vec![crate::ALPN_HTTP11.to_vec()] }
    }
}

/// Makes sessions with servers. Clones share the session cache, so that sessions are resumed.
#[derive(Clone)]
pub struct Client {
    config: Arc<ClientConfig>,
}

/// Returns the certificates that this system trusts, and why some of them cannot be read.
pub fn system_certificates() -> (Vec<CertificateDer<'static>>, Vec<String>) {
    let found = rustls_native_certs::load_native_certs();
    (found.certs, found.errors.iter().map(ToString::to_string).collect())
}

impl Client {
    /// Makes a client with these settings.
    ///
    /// # Errors
    /// None of the trusted certificates can be used, or the client's own cannot.
    pub fn new(settings: ClientSettings) -> Result<Client, TlsError> {
        let provider = crate::provider();
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|why| TlsError::of(&why, false))?;
        let store = |certificates: &[CertificateDer<'static>]| {
            let mut roots = RootCertStore::empty();
            // Some certificates of the system's store may be unusable.
            match roots.add_parsable_certificates(certificates.iter().cloned()).0 {
                0 => Err(TlsError::settings("no certificate to trust was found")),
                _ => Ok(roots),
            }
        };
        let builder = match settings.trust {
            Trust::Roots(certificates) => builder.with_root_certificates(store(&certificates)?),
            Trust::Given(certificates) => {
                let chains =
                    WebPkiServerVerifier::builder_with_provider(Arc::new(store(&certificates)?), provider)
                        .build()
                        .map_err(|why| TlsError::settings(why.to_string()))?;
                builder.dangerous().with_custom_certificate_verifier(Arc::new(Given { chains, certificates }))
            }
            Trust::Any => builder.dangerous().with_custom_certificate_verifier(Arc::new(Any(provider))),
        };
        let mut config = match settings.identity {
            None => builder.with_no_client_auth(),
            Some(Pair { chain, key }) => builder
                .with_client_auth_cert(chain, key)
                .map_err(|why| TlsError::settings(format!("the client's certificate: {why}")))?,
        };
        config.alpn_protocols = settings.alpn;
        Ok(Client { config: Arc::new(config) })
    }

    /// Returns the client that programs use by default: it trusts the certificates that this system trusts.
    ///
    /// # Errors
    /// This system has no certificates: install `ca-certificates`, or give some.
    pub fn system() -> Result<Client, TlsError> {
        static SYSTEM: OnceLock<Result<Client, TlsError>> = OnceLock::new();
        let made = SYSTEM.get_or_init(|| {
            let (certificates, _) = system_certificates();
            Client::new(ClientSettings::new(Trust::Roots(certificates))).map_err(|_| {
                TlsError::settings(
                    "this system has no certificates to trust (install ca-certificates, or give a file with some)",
                )
            })
        });
        made.clone()
    }

    /// Returns a client with the same settings and session cache that offers other protocols.
    #[must_use]
    pub fn with_alpn(&self, protocols: &[&[u8]]) -> Client {
        let mut config = (*self.config).clone();
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Client { config: Arc::new(config) }
    }

    /// Returns whether a text is a DNS name or an address, as [`begin`](Self::begin) takes it.
    pub fn is_name(host: &str) -> bool {
        ServerName::try_from(bare(host)).is_ok()
    }

    /// Begins a session with a server of this name or address.
    ///
    /// # Errors
    /// `host` is neither.
    pub fn begin(&self, host: &str) -> Result<Session, TlsError> {
        let name = ServerName::try_from(bare(host).to_owned())
            .map_err(|_| TlsError::settings(format!("{host:?} is neither a DNS name nor an address")))?;
        let session = UnbufferedClientConnection::new(Arc::clone(&self.config), name);
        session.map(Session::client).map_err(|why| TlsError::of(&why, false))
    }
}

/// Returns a name, or an address without its brackets and without its zone. A zone has a meaning only on this
/// machine (RFC 6874 §4).
fn bare(host: &str) -> &str {
    let host = host.trim_matches(['[', ']']);
    host.split_once('%').map_or(host, |(address, _)| address)
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}

/// Accepts what the given certificates have signed, and the given certificates themselves.
///
/// A certificate made with `openssl req -x509` may be marked as an authority, which webpki refuses as a
/// server certificate. It is accepted if the server presents a given certificate byte for byte, as curl does.
/// Its validity period has been verified by then: webpki checks it first.
#[derive(Debug)]
struct Given {
    chains: Arc<WebPkiServerVerifier>,
    certificates: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Given {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        status: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = self.chains.verify_server_cert(shown, between, name, status, now);
        match verified {
            Err(rustls::Error::InvalidCertificate(rustls::CertificateError::Other(why)))
                if why.0.downcast_ref() == Some(&webpki::Error::CaUsedAsEndEntity)
                    && self.certificates.contains(shown) =>
            {
                verify_server_name(&ParsedCertificate::try_from(shown)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chains.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chains.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}

/// Accepts any certificate, but verifies that its key signed the handshake.
#[derive(Debug)]
struct Any(Arc<CryptoProvider>);

impl ServerCertVerifier for Any {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
