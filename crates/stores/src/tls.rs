//! How the certificate of a store is verified.

use ringroad_settings::{Section, value};
use ringroad_tls::{ClientSettings, TlsError, Trust, certificates_from_pem};

/// How the server's certificate is verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The name in it.
    pub name: String,
    /// Certificates (PEM) that sign it; `None`: the system's.
    pub authorities: Option<Vec<u8>>,
}

impl Tls {
    pub(crate) fn client(&self) -> Result<ringroad_tls::Client, TlsError> {
        let client = match &self.authorities {
            None => ringroad_tls::Client::system()?,
            Some(pem) => {
                ringroad_tls::Client::new(ClientSettings::new(Trust::Given(certificates_from_pem(pem)?)))?
            }
        };
        // Neither Redis nor NATS knows ALPN.
        Ok(client.with_alpn(&[]))
    }
}

/// Reads `ca`: a file with certificates (PEM) that sign the server's.
pub(crate) fn read_authorities(section: &Section<'_>) -> Option<Vec<u8>> {
    section.read("ca", |value| {
        let name = value::text(value)?;
        let pem = section.file(&name)?;
        certificates_from_pem(&pem)
            .map_err(|why| format!("{}: {}", section.path(&name).display(), why.detail()))?;
        Ok(pem)
    })
}
