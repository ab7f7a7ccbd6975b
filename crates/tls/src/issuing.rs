//! Certificates for a client of a certificate authority: the request, the certificate that answers a
//! TLS-ALPN-01 challenge, and the contents of an issued certificate.
//!
//! This module sends nothing: the protocol with the authority is in the crate `acme`.

use crate::certificates::{self, Pair};
use crate::names::Names;
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use x509_parser::extensions::ParsedExtension;

/// A request for a certificate (CSR, RFC 2986), with a new key.
pub struct CertificateRequest {
    /// The request, as DER.
    pub der: Vec<u8>,
    /// The private key (P-256), as PEM.
    pub key_pem: String,
}

/// Contents of an issued certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Issued {
    /// Its names.
    pub names: Arc<Names>,
    /// Start of its validity.
    pub begins: SystemTime,
    /// End of its validity.
    pub expires: SystemTime,
    /// Identifier of the authority's key, if the certificate has that extension.
    pub authority_key_id: Option<Vec<u8>>,
    /// Its serial number, as the bytes of its DER.
    pub serial: Vec<u8>,
}

/// Makes a request for a certificate with these names and addresses, and a new key for it.
///
/// # Errors
/// A name is neither a DNS name nor an address.
pub fn request_certificate(names: &[String]) -> Result<CertificateRequest, String> {
    let text = |why: rcgen::Error| why.to_string();
    let mut parameters = CertificateParams::new(names.to_vec()).map_err(text)?;
    // A common name that is not among the names would be refused, and a certificate needs none.
    parameters.distinguished_name = DistinguishedName::new();
    let key = KeyPair::generate().map_err(text)?;
    let request = parameters.serialize_request(&key).map_err(text)?;
    Ok(CertificateRequest { der: request.der().to_vec(), key_pem: key.serialize_pem() })
}

/// Makes the certificate that answers the TLS-ALPN-01 challenge of this name or address (RFC 8737 §3):
/// `digest` is the SHA-256 of the key authorization.
///
/// # Errors
/// The name is neither a DNS name nor an address.
pub fn challenge_pair(name: &str, digest: &[u8; 32]) -> Result<Pair, String> {
    let text = |why: rcgen::Error| why.to_string();
    let mut parameters = CertificateParams::new(vec![name.to_owned()]).map_err(text)?;
    parameters.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let now = SystemTime::now();
    let day = Duration::from_secs(24 * 60 * 60);
    parameters.not_before = (now - day).into();
    parameters.not_after = (now + 7 * day).into();
    let key = KeyPair::generate().map_err(text)?;
    let certificate = parameters.self_signed(&key).map_err(text)?;
    Ok(Pair {
        chain: vec![certificate.der().clone()],
        key: PrivateKeyDer::try_from(key.serialize_der()).map_err(str::to_owned)?,
    })
}

/// Reads the contents of a certificate, and verifies that the pair's key belongs to it.
///
/// # Errors
/// The certificate cannot be read, or the key belongs to another one.
pub fn examine(pair: &Pair) -> Result<Issued, String> {
    let usable = certificates::usable(pair.clone(), None)?;
    let first = pair.chain.first().ok_or("there is no certificate in it")?;
    let (_, parsed) = x509_parser::parse_x509_certificate(first)
        .map_err(|why| format!("the certificate cannot be read ({why})"))?;
    let authority_key_id = parsed.extensions().iter().find_map(|one| match one.parsed_extension() {
        ParsedExtension::AuthorityKeyIdentifier(id) => id.key_identifier.as_ref().map(|id| id.0.to_vec()),
        _ => None,
    });
    let seconds = u64::try_from(parsed.validity().not_before.timestamp()).unwrap_or(0);
    Ok(Issued {
        names: usable.info.names,
        begins: UNIX_EPOCH + Duration::from_secs(seconds),
        expires: usable.info.expires,
        authority_key_id,
        serial: parsed.raw_serial().to_vec(),
    })
}
