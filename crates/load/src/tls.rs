//! TLS of a load: which certificates are accepted, the handshakes' counts, and the layer under a connection.
//! The session is [`ringroad_tls`]'s; the bytes go over the engine's streams, so it is the same on every
//! driver.
//!
//! Handshakes are counted and timed apart from requests: they cost a hundred times as much. A session is
//! resumed where the server offers it, as browsers do, and that is counted apart again. Start at [`Client`].

use crate::error::Error;
use crate::layer::Layer;
use ringroad_engine::AnyBuf;
use ringroad_measure::Histogram;
use ringroad_tls::{CertificateDer, ClientSettings, Output, TlsError, TlsErrorKind};
use serde::{Deserialize, Serialize};

/// Which server certificates are accepted.
#[derive(Clone, Debug)]
pub enum Trust {
    /// Those that one of these has signed: the certificates of this system.
    Roots(Vec<CertificateDer<'static>>),
    /// Those that one of these has signed, and these themselves, for the names in them: certificates that the
    /// user gave.
    Given(Vec<CertificateDer<'static>>),
    /// Any: neither the name nor the chain is verified.
    Anybody,
}

/// What all connections of a load share.
#[derive(Clone, Debug)]
pub struct Client {
    client: ringroad_tls::Client,
    /// The same for HTTP/2.
    http2: ringroad_tls::Client,
    /// Whether the user gave the certificates to trust.
    has_given: bool,
}

/// Handshakes of one worker or of all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Handshakes {
    /// Full handshakes.
    pub full: u64,
    /// Handshakes that resumed a session.
    pub resumed: u64,
    /// Handshakes that failed.
    pub failed: u64,
    /// Duration of those that succeeded, nanoseconds, without the TCP connect.
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
    /// Makes a client with this trust.
    ///
    /// # Errors
    /// None of the certificates can be used.
    pub fn new(trust: Trust) -> Result<Client, Error> {
        let has_given = matches!(trust, Trust::Given(_));
        let hint = match trust {
            Trust::Given(_) => "the file of --cacert has to hold one in PEM",
            _ => "--cacert FILE names one, --insecure verifies none",
        };
        let trust = match trust {
            Trust::Roots(certificates) => ringroad_tls::Trust::Roots(certificates),
            Trust::Given(certificates) => ringroad_tls::Trust::Given(certificates),
            Trust::Anybody => ringroad_tls::Trust::Any,
        };
        let client = ringroad_tls::Client::new(ClientSettings::new(trust));
        let client = client.map_err(|why| Error::failed(format!("{why} ({hint})")))?;
        let http2 = client.with_alpn(&[ringroad_tls::ALPN_H2]);
        Ok(Client { client, http2, has_given })
    }

    /// Begins a session with this host.
    pub(crate) fn begin(&self, host: &str, http2: bool) -> Result<Session, String> {
        let client = if http2 { &self.http2 } else { &self.client };
        let mut session = Session {
            tls: Box::new(client.begin(host).map_err(|why| why.to_string())?),
            plain: Vec::new(),
            out: Output::default(),
            early: Vec::new(),
            has_given: self.has_given,
        };
        // The first message is the client's.
        let begun = session.tls.receive(&mut [], &mut session.plain, &mut session.out);
        begun.map_err(|why| why.to_string())?;
        Ok(session)
    }
}

/// A connection's side of TLS.
pub(crate) struct Session {
    tls: Box<ringroad_tls::Session>,
    /// What was received last; empty otherwise.
    plain: Vec<u8>,
    /// What is to be sent.
    out: Output,
    /// Content that came with the end of the handshake.
    pub(crate) early: Vec<u8>,
    has_given: bool,
}

impl Session {
    /// Returns what went wrong, and what to do about it.
    #[cold]
    fn words(&self, why: &TlsError) -> String {
        const INSECURE: &str = "--insecure accepts it.";
        match why.kind() {
            TlsErrorKind::NotTls => {
                "the server does not speak TLS on this port: load http:// (or ws://)".to_owned()
            }
            TlsErrorKind::UnknownIssuer if self.has_given => format!(
                "the server's certificate is not among those of --cacert and not signed by one of them. {INSECURE}"
            ),
            TlsErrorKind::UnknownIssuer => format!(
                "the server's certificate is not signed by one that this system trusts. --cacert FILE adds one, {INSECURE}"
            ),
            TlsErrorKind::Authority if self.has_given => format!(
                "the server's certificate is that of an authority (CA:TRUE) and not among those of --cacert. {INSECURE}"
            ),
            TlsErrorKind::Authority => format!(
                "the server's certificate is that of an authority (CA:TRUE), as for tests. --cacert FILE adds it, {INSECURE}"
            ),
            TlsErrorKind::WrongName => format!(
                "the server's certificate is for another name: {}. --host NAME asks for another name, {INSECURE}",
                why.detail()
            ),
            TlsErrorKind::NotValidNow => {
                format!("the server's certificate is not valid at this time: {}. {INSECURE}", why.detail())
            }
            TlsErrorKind::Revoked | TlsErrorKind::BadCertificate => format!("{}. {INSECURE}", why.detail()),
            TlsErrorKind::Alert => format!("the server has refused: {}", why.detail()),
            _ => why.detail().to_owned(),
        }
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    /// Returns the session, if the server has chosen what is to be spoken.
    pub(crate) fn speaks(mut self, http2: bool) -> Result<Session, String> {
        let alpn = self.tls.take_info().and_then(|info| info.alpn);
        if http2 && alpn.as_deref() != Some(ringroad_tls::ALPN_H2) {
            return Err("the server does not speak HTTP/2 (ALPN); leave out --http2".to_owned());
        }
        Ok(self)
    }

    pub(crate) fn is_resumed(&self) -> bool {
        self.tls.is_resumed()
    }
}

impl Layer for Session {
    fn outgoing(&mut self, messages: Option<AnyBuf>) -> Option<AnyBuf> {
        if let Some(messages) = messages {
            // A session that has failed says so when it receives.
            let _ = self.tls.seal(&messages, &mut self.out);
        }
        (!self.out.is_empty()).then(|| AnyBuf::from(std::mem::take(&mut self.out).into_vec()))
    }

    fn incoming<E>(
        &mut self,
        bytes: &mut [u8],
        mut show: impl FnMut(&[u8]) -> Option<E>,
    ) -> Result<Option<E>, String> {
        let mut plain = std::mem::take(&mut self.plain);
        plain.clear();
        let received = self.tls.receive(bytes, &mut plain, &mut self.out);
        let end = if plain.is_empty() { None } else { show(&plain) };
        // Kept for the next bytes of a connection that is busy; an idle one, of which there may be many, gets
        // none.
        self.plain = plain;
        match (end, received) {
            (Some(end), _) => Ok(Some(end)),
            (None, Err(why)) => Err(self.words(&why)),
            (None, Ok(())) => Ok(None),
        }
    }

    fn early(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.early)
    }

    fn may_end(&self) -> bool {
        // Without it an attacker on the path could have truncated the stream.
        self.tls.has_ended()
    }

    fn has_ended(&self) -> bool {
        self.tls.has_ended()
    }
}
