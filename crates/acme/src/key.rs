//! The account's key: it signs every request (JWS, RFC 7515, with ES256), and its thumbprint is in the
//! answers to challenges.

use crate::settings::External;
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Value, json};

/// Returns the text of bytes as JOSE writes them.
pub(crate) fn base64url(bytes: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

/// A P-256 key.
pub(crate) struct AccountKey {
    pair: EcdsaKeyPair,
    document: Vec<u8>,
}

/// How a request names the key that signs it.
pub(crate) enum SignedBy<'a> {
    /// By the key itself: there is no account yet.
    Key,
    /// By the URL of the account.
    Account(&'a str),
}

impl AccountKey {
    /// Makes a new key.
    pub(crate) fn generate() -> Result<AccountKey, String> {
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())
            .map_err(|_| "no random numbers for a key".to_owned())?;
        AccountKey::from_document(document.as_ref())
    }

    /// Reads a key as [`document`](Self::document) gives it.
    pub(crate) fn from_document(document: &[u8]) -> Result<AccountKey, String> {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document)
            .map_err(|why| format!("not a P-256 key ({why})"))?;
        Ok(AccountKey { pair, document: document.to_vec() })
    }

    /// Returns the key as PKCS #8.
    pub(crate) fn document(&self) -> &[u8] {
        &self.document
    }

    /// Returns the two coordinates of the public key.
    fn coordinates(&self) -> (String, String) {
        // It begins with a 4: the point is not compressed.
        let point = self.pair.public_key().as_ref().get(1..).unwrap_or_default();
        let (x, y) = point.split_at(point.len() / 2);
        (base64url(x), base64url(y))
    }

    fn jwk(&self) -> Value {
        let (x, y) = self.coordinates();
        json!({ "kty": "EC", "crv": "P-256", "x": x, "y": y })
    }

    /// Returns the thumbprint of the public key (RFC 7638).
    fn thumbprint(&self) -> String {
        let (x, y) = self.coordinates();
        let text = format!(r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#);
        base64url(digest(&SHA256, text.as_bytes()))
    }

    /// Returns the key authorization of a challenge's token (RFC 8555 §8.1).
    pub(crate) fn authorization(&self, token: &str) -> String {
        format!("{token}.{}", self.thumbprint())
    }

    /// Returns a signed request. Without a payload it is a POST that reads (POST-as-GET).
    pub(crate) fn sign(
        &self,
        url: &str,
        nonce: &str,
        by: &SignedBy<'_>,
        payload: Option<&Value>,
    ) -> Result<String, String> {
        let protected = match by {
            SignedBy::Key => json!({ "alg": "ES256", "nonce": nonce, "url": url, "jwk": self.jwk() }),
            SignedBy::Account(kid) => json!({ "alg": "ES256", "nonce": nonce, "url": url, "kid": kid }),
        };
        let protected = base64url(protected.to_string());
        let payload = payload.map(|payload| base64url(payload.to_string())).unwrap_or_default();
        let signed = format!("{protected}.{payload}");
        let signature = self.pair.sign(&SystemRandom::new(), signed.as_bytes());
        let signature = signature.map_err(|_| "the account's key does not sign".to_owned())?;
        Ok(json!({ "protected": protected, "payload": payload, "signature": base64url(signature) })
            .to_string())
    }

    /// Returns the statement by which an account of the authority's own takes this key (RFC 8555 §7.3.4).
    pub(crate) fn bound_to(&self, external: &External, url: &str) -> Value {
        let protected = json!({ "alg": "HS256", "kid": external.kid, "url": url });
        let protected = base64url(protected.to_string());
        let payload = base64url(self.jwk().to_string());
        let key = hmac::Key::new(hmac::HMAC_SHA256, &external.key);
        let signature = hmac::sign(&key, format!("{protected}.{payload}").as_bytes());
        json!({ "protected": protected, "payload": payload, "signature": base64url(signature) })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};

    #[test]
    fn a_request_is_signed_by_the_key_that_it_names_and_a_key_is_read_as_it_was_written() {
        let key = AccountKey::generate().unwrap();
        let again = AccountKey::from_document(key.document()).unwrap();
        assert_eq!(key.authorization("t"), again.authorization("t"));
        let text = key.sign("https://a.test/x", "n", &SignedBy::Key, Some(&json!({ "a": 1 }))).unwrap();
        let jws: Value = serde_json::from_str(&text).unwrap();
        let part = |name: &str| jws[name].as_str().unwrap().to_owned();
        let decoded = |text: &str| BASE64_URL_SAFE_NO_PAD.decode(text).unwrap();
        let protected: Value = serde_json::from_slice(&decoded(&part("protected"))).unwrap();
        assert_eq!((&protected["url"], &protected["nonce"]), (&json!("https://a.test/x"), &json!("n")));
        let (x, y) = (protected["jwk"]["x"].as_str().unwrap(), protected["jwk"]["y"].as_str().unwrap());
        let point = [vec![4], decoded(x), decoded(y)].concat();
        let signed = format!("{}.{}", part("protected"), part("payload"));
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)
            .verify(signed.as_bytes(), &decoded(&part("signature")))
            .unwrap();
        assert_eq!(decoded(&part("payload")), br#"{"a":1}"#);
        let reads = key.sign("u", "n", &SignedBy::Account("me"), None).unwrap();
        let reads: Value = serde_json::from_str(&reads).unwrap();
        assert_eq!(reads["payload"], "");
    }
}
