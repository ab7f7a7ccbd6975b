//! Which certificates an https load accepts: those of this system, those of a file, or any.

use super::Complaint;
use super::flags::TlsFlags;
use super::inputs::Inputs;
use crate::complaint::{FAILED, USAGE, name, say};
use ringroad_load::tls::{Client, Trust};
use ringroad_tls::CertificateDer;
use ringroad_tls::pem::PemObject;

/// Which certificates to accept, if the load is `secured`.
pub(super) fn of(flags: &TlsFlags, inputs: &Inputs, secured: bool) -> Result<Option<Client>, Complaint> {
    if !secured {
        if flags.insecure || flags.cacert.is_some() {
            let message =
                "-k (--insecure) and --cacert: those are for https://, and no URL has it; connections are \
                           kept alive without an option"
                    .to_owned();
            return Err(Complaint { message, code: USAGE });
        }
        return Ok(None);
    }
    let trust = match &flags.cacert {
        _ if flags.insecure => Trust::Anybody,
        Some(file) => {
            let pem = inputs.bytes(file)?;
            let read = CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
            Trust::Given(read.map_err(|why| Complaint {
                message: format!("read, on {}: {why} (certificates in PEM are expected)", name(file)),
                code: FAILED,
            })?)
        }
        None => {
            let (certificates, errors) = ringroad_tls::system_certificates();
            // The certificates that could be read may be enough; if not, this is the reason.
            errors.iter().for_each(|why| say(&format!("certificates of this system: {why}")));
            Trust::Roots(certificates)
        }
    };
    Ok(Some(Client::new(trust)?))
}
