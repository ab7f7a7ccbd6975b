//! What an authority sends, and what the state folder holds: properties that hold for any bytes. The fuzz
//! target `acme` of `fuzz/` is [`answer`]; a test replays its corpus.

use crate::authority::Directory;
use crate::failure::Problem;
use crate::key::{AccountKey, SignedBy};
use crate::order::{Authorization, Order};
use crate::renewal::{self, Life};
use crate::state::{AccountFile, Failures};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

fn key() -> &'static AccountKey {
    static KEY: OnceLock<AccountKey> = OnceLock::new();
    KEY.get_or_init(|| AccountKey::generate().unwrap())
}

/// Reads any bytes as each kind of answer, and as a file of the state folder. What is read of them may be
/// signed and told.
pub fn answer(bytes: &[u8]) {
    if let Ok(problem) = serde_json::from_slice::<Problem>(bytes) {
        let told = problem.to_string();
        assert!(!told.contains(char::is_control), "{told:?}");
        assert!(told.chars().count() <= 10_000);
    }
    let _ = serde_json::from_slice::<Directory>(bytes);
    let _ = serde_json::from_slice::<Order>(bytes);
    let _ = serde_json::from_slice::<Authorization>(bytes);
    let _ = serde_json::from_slice::<Failures>(bytes).map(Failures::again);
    if let Ok(account) = serde_json::from_slice::<AccountFile>(bytes)
        && let Ok(key) = account.key()
    {
        assert!(AccountKey::from_document(key.document()).is_ok());
    }
    if let Some((start, end)) = renewal::window(bytes) {
        assert!(start < end);
        let moment = renewal::within(start, end, 0.5);
        assert!(start <= moment && moment <= end);
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let life = Life { begins: now, expires: now + Duration::from_secs(90 * 86_400) };
        assert!(life.renew(Some(moment)) <= life.expires);
    }
    // URLs, nonces and account names are the authority's words; whatever they are, the request is JSON.
    let text = String::from_utf8_lossy(bytes);
    let signed = key().sign(&text, &text, &SignedBy::Account(&text), Some(&serde_json::json!({}))).unwrap();
    let signed: serde_json::Value = serde_json::from_str(&signed).unwrap();
    let parts = ["protected", "payload", "signature"].map(|part| signed[part].as_str().unwrap().to_owned());
    assert!(
        parts
            .iter()
            .flat_map(|part| part.bytes())
            .all(|byte| matches!(byte, b'-' | b'_') || byte.is_ascii_alphanumeric())
    );
    assert!(key().authorization(&text).starts_with(&*text));
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_corpus_of_answers_passes() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/acme");
        let inputs: Vec<_> = std::fs::read_dir(folder).unwrap().collect();
        assert!(inputs.len() >= 8, "{} inputs", inputs.len());
        for input in inputs {
            super::answer(&std::fs::read(input.unwrap().path()).unwrap());
        }
    }
}
