//! Whom an https load believes: the certificates of this system, those of a file, or anybody.

use super::Complaint;
use crate::complaint::{FAILED, USAGE, name, say};
use crate::flags::TlsFlags;
use ringroad_load::Scheme;
use ringroad_load::tls::{Client, Trust};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

/// Whom to believe, if the scheme asks for it.
pub(super) fn of(flags: &TlsFlags, scheme: Scheme) -> Result<Option<Client>, Complaint> {
    if scheme != Scheme::Https {
        if flags.insecure || flags.cacert.is_some() {
            let message = "--insecure and --cacert: those are for https://".to_owned();
            return Err(Complaint { message, code: USAGE });
        }
        return Ok(None);
    }
    let trust = match &flags.cacert {
        _ if flags.insecure => Trust::Anybody,
        Some(file) => {
            let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
            Trust::Roots(read.map_err(|why| Complaint {
                message: format!("read, on {}: {why} (certificates in PEM are expected)", name(file)),
                code: FAILED,
            })?)
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            // What could be read may be enough; if it is not, this is why.
            found.errors.iter().for_each(|why| say(&format!("certificates of this system: {why}")));
            Trust::Roots(found.certs)
        }
    };
    Ok(Some(Client::new(trust)?))
}
