//! TLS, by rustls: whom to believe, the handshake, and the layer under a conversation. Records and keys are rustls's; the
//! bytes go over the engine's streams, so it is the same on every driver.
//!
//! Handshakes are counted and timed apart from requests: they cost a hundred times as much. A session is resumed where
//! the server offers it, as browsers do, and that is counted apart again. Start at [`Client`].

use crate::error::Error;
use crate::layer::Layer;
use ringroad_engine::AnyBuf;
use ringroad_measure::Histogram;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, HandshakeKind, RootCertStore, SignatureScheme,
};
use serde::{Deserialize, Serialize};
use std::io::BufRead;
use std::sync::Arc;

/// Whom to believe.
#[derive(Clone, Debug)]
pub enum Trust {
    /// Whoever one of these certificates vouches for.
    Roots(Vec<CertificateDer<'static>>),
    /// Anybody: the name and the chain are not looked at.
    Anybody,
}

/// What all connections of a load share.
#[derive(Clone, Debug)]
pub struct Client(Arc<ClientConfig>);

/// Handshakes of one worker or of all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Handshakes {
    /// Such as began from nothing.
    pub full: u64,
    /// Such as went on with a session known from before.
    pub resumed: u64,
    /// Such as failed.
    pub failed: u64,
    /// How long those that succeeded took, nanoseconds, the making of the connection not among it.
    pub took: Histogram,
}

impl Handshakes {
    /// Adds another's.
    pub fn add(&mut self, other: &Handshakes) {
        self.full += other.full;
        self.resumed += other.resumed;
        self.failed += other.failed;
        self.took.add(&other.took);
    }
}

impl Client {
    /// A client that believes these.
    ///
    /// # Errors
    /// Not one of the certificates is one.
    pub fn new(trust: Trust) -> Result<Client, Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|why| Error::failed(format!("TLS: {why}")))?;
        let builder = match trust {
            Trust::Roots(certificates) => {
                let mut roots = RootCertStore::empty();
                // The system's store may hold some that nobody can use.
                if roots.add_parsable_certificates(certificates).0 == 0 {
                    return Err(Error::failed(
                        "TLS: no certificate to trust was found (--cacert FILE, or --insecure)",
                    ));
                }
                builder.with_root_certificates(roots)
            }
            Trust::Anybody => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(Anybody(provider)))
            }
        };
        let mut config = builder.with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Client(Arc::new(config)))
    }

    /// Begins a session with this host.
    pub(crate) fn begin(&self, host: &str) -> Result<Session, String> {
        let name =
            ServerName::try_from(host.to_owned()).map_err(|_| format!("not a name for TLS: {host}"))?;
        let session = ClientConnection::new(Arc::clone(&self.0), name).map_err(|why| why.to_string())?;
        Ok(Session { tls: Box::new(session), has_ended: false })
    }
}

/// A connection's side of TLS.
pub(crate) struct Session {
    tls: Box<ClientConnection>,
    /// The peer has said that it says no more (`close_notify`).
    has_ended: bool,
}

impl Session {
    pub(crate) fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    pub(crate) fn is_resumed(&self) -> bool {
        self.tls.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// What the session has to say.
    fn pending(&mut self) -> Option<AnyBuf> {
        let mut out = Vec::new();
        while self.tls.wants_write() {
            // A Vec takes every write.
            if !self.tls.write_tls(&mut out).is_ok_and(|count| count > 0) {
                break;
            }
        }
        (!out.is_empty()).then(|| AnyBuf::from(out))
    }
}

impl Layer for Session {
    fn outgoing(&mut self, messages: Option<AnyBuf>) -> Option<AnyBuf> {
        if let Some(messages) = messages {
            // Kept whole, however long: the messages of a load are, too.
            self.tls.set_buffer_limit(None);
            let _ = std::io::Write::write_all(&mut self.tls.writer(), &messages);
        }
        self.pending()
    }

    fn incoming<E>(
        &mut self,
        mut bytes: &[u8],
        mut show: impl FnMut(&[u8]) -> Option<E>,
    ) -> Result<Option<E>, String> {
        while !bytes.is_empty() {
            // Reading from a slice does not fail; it takes none when the session is full of what was not shown yet,
            // and then it was shown below.
            let taken = self.tls.read_tls(&mut bytes).map_err(|why| why.to_string())?;
            let state = self.tls.process_new_packets().map_err(|why| why.to_string())?;
            self.has_ended |= state.peer_has_closed();
            let mut reader = self.tls.reader();
            while let Ok(piece) = reader.fill_buf() {
                if piece.is_empty() {
                    break;
                }
                let (end, length) = (show(piece), piece.len());
                reader.consume(length);
                if end.is_some() {
                    return Ok(end);
                }
            }
            if taken == 0 {
                // After its closing word nothing is read any more.
                break;
            }
        }
        Ok(None)
    }

    fn may_end(&self) -> bool {
        // Without it anybody on the way could have cut the connection.
        self.has_ended
    }
}

/// Believes whatever name a certificate bears, and still that its key signed the handshake.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
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
