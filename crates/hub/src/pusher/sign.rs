//! The protocol's signatures: HMAC-SHA256 with the application's secret, in lower-case hexadecimal.

use super::App;
use hmac::{Hmac, KeyInit, Mac};
use md5::{Digest, Md5};
use sha2::Sha256;

/// Returns whether `given` is the signature of `text`. Compared in a time that does not depend on where they
/// differ.
pub(crate) fn is_signed(app: &App, text: &str, given: &str) -> bool {
    let Some(given) = from_hex(given) else { return false };
    Hmac::<Sha256>::new_from_slice(app.secret.as_bytes()).is_ok_and(|mut mac| {
        mac.update(text.as_bytes());
        mac.verify_slice(&given).is_ok()
    })
}

/// Returns whether `auth` is `KEY:SIGNATURE` of this text.
pub(crate) fn is_authorized(app: &App, text: &str, auth: &str) -> bool {
    let parts = auth.split_once(':');
    parts.is_some_and(|(key, signature)| key == app.key && is_signed(app, text, signature))
}

/// Returns the MD5 sum of a body, as the API has it.
pub(crate) fn md5(body: &[u8]) -> String {
    Md5::digest(body).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app() -> App {
        App {
            id: "3".to_owned(),
            key: "278d425bdf160c739803".to_owned(),
            secret: "7ad3773142a6692b25b8".to_owned(),
            client_events: false,
        }
    }

    /// The worked examples of the protocol's documentation.
    #[test]
    fn signatures_are_those_of_the_documentation() {
        let app = app();
        let auth = "278d425bdf160c739803:58df8b0c36d6982b82c3ecf6b4662e34fe8c25bba48f5369f135bf843651c3a4";
        assert!(is_authorized(&app, "1234.1234:private-foobar", auth));
        assert!(!is_authorized(&app, "1234.1234:private-foobaz", auth));
        assert!(!is_authorized(&app, "1234.1234:private-foobar", auth.split_once(':').unwrap_or_default().1));
        let auth = "278d425bdf160c739803:31935e7d86dba64c2a90aed31fdc61869f9b22ba9d8863bba239c03ca481bc80";
        let text = "1234.1234:presence-foobar:{\"user_id\":10,\"user_info\":{\"name\":\"Mr. Channels\"}}";
        assert!(is_authorized(&app, text, auth));
        for wrong in ["", "5", "5g", "é"] {
            assert!(!is_signed(&app, "", wrong));
        }
        let body = br#"{"name":"foo","channels":["project-3"],"data":"{\"some\":\"data\"}"}"#;
        assert_eq!(md5(body), "ec365a775a4cd0599faeb73354201b6f");
    }
}
