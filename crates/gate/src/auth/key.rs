//! `kind = "key"`: keys that clients send.
//!
//! Keys are looked up by their SHA-256, so the time of a look-up says nothing about the keys there are, and a
//! configuration can have the hashes instead of the keys.

use super::{Identity, Verdict, bearer, digest, only_line};
use crate::words;
use ringroad_http::Request;
use ringroad_settings::{Key, Section, Table, Value, value};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

pub(super) static TABLE: Table = Table {
    name: "[auth.NAME] kind = \"key\"",
    meaning: "Keys that clients send.",
    keys: &[
        Key {
            name: "keys",
            form: "keys or tables, as `[\"secret\", { key = \"$SHOP_KEY\", name = \"shop\" }, { sha256 = \"9f86…\", name = \"ops\" }]`",
            default: "",
            meaning: "The keys, each with the name of its owner. In place of `key`, `sha256` has the key's hash in hexadecimal digits.",
        },
        Key {
            name: "header",
            form: "name of a header line",
            default: "-",
            meaning: "Where the key is; by default `Authorization: Bearer KEY`.",
        },
    ],
};

static ENTRY: Table = Table { name: "keys = [{ … }]", meaning: "", keys: &[KEY_OF, SHA256, NAME] };
const KEY_OF: Key = Key { name: "key", form: "", default: "", meaning: "" };
const SHA256: Key = Key { name: "sha256", form: "", default: "", meaning: "" };
const NAME: Key = Key { name: "name", form: "", default: "", meaning: "" };

#[derive(PartialEq)]
pub(super) struct Keys {
    /// Owners by the hash of their key.
    owners: HashMap<[u8; 32], Option<Arc<str>>>,
    /// The header line with the key; `None`: `Authorization: Bearer KEY`.
    header: Option<String>,
}

impl Keys {
    pub(super) fn line(&self) -> Option<&str> {
        self.header.as_deref()
    }

    pub(super) fn check(&self, request: &Request) -> Verdict {
        let given = match &self.header {
            Some(name) => only_line(request, name),
            None => bearer(request),
        };
        given.map_or(Verdict::Missing, |given| self.check_key(given))
    }

    /// Judges a key, wherever it was.
    pub(super) fn check_key(&self, given: &[u8]) -> Verdict {
        match self.owners.get(&digest(given)) {
            None => Verdict::Wrong,
            Some(owner) => Verdict::Known(Identity { subject: owner.clone(), ..Identity::default() }),
        }
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({})", self.owners.len())
    }
}

pub(super) fn read(section: &mut Section<'_>) -> Option<Keys> {
    section.describe(&TABLE);
    if !section.has("keys") {
        section.mistake("keys", "missing: expected keys that clients may have");
    }
    let owners = section.list("keys", |value, table| {
        let Some(mut table) = table else { return Ok(Some((secret(value)?, None))) };
        table.describe(&ENTRY);
        let plain = table.read("key", secret);
        let hash = table.read("sha256", |value| hexadecimal(&value::text(value)?));
        let name = table.read("name", value::text);
        if table.has("key") == table.has("sha256") {
            table.mistake("key", "expected `key` or `sha256`");
        }
        table.finish();
        Ok(plain.or(hash).map(|hash| (hash, name.map(Arc::from))))
    });
    let header = section.read("header", words::header_name);
    Some(Keys { owners: owners?.into_iter().collect(), header })
}

fn secret(value: &Value<'_>) -> Result<[u8; 32], String> {
    let key = value::text(value)?;
    let is_one = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic());
    is_one
        .then(|| digest(key.as_bytes()))
        .ok_or_else(|| "expected a key of visible ASCII characters".to_owned())
}

fn hexadecimal(text: &str) -> Result<[u8; 32], String> {
    let expected = || "expected the 64 hexadecimal digits of a SHA-256".to_owned();
    let mut out = [0; 32];
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(expected());
    }
    for (at, byte) in out.iter_mut().enumerate() {
        let digits = text.get(2 * at..2 * at + 2).ok_or_else(expected)?;
        *byte = u8::from_str_radix(digits, 16).map_err(|_| expected())?;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ringroad_http::{FieldBlock, RequestBody};

    fn verdict(header: Option<&str>, line: (&str, &str)) -> Verdict {
        let owners = [(digest(b"secret"), None), (digest(b"other"), Some(Arc::from("ops")))];
        let keys = Keys { owners: owners.into_iter().collect(), header: header.map(str::to_owned) };
        let lines = FieldBlock::of([line]).unwrap();
        keys.check(&Request::from_parts("GET", "/", "a", &lines, RequestBody::empty()).unwrap())
    }

    #[test]
    fn a_key_is_taken_from_its_line_and_compared_as_a_whole() {
        for good in ["Bearer secret", "bearer other", "BEARER  secret "] {
            assert!(matches!(verdict(None, ("Authorization", good)), Verdict::Known(_)), "{good}");
        }
        for bad in ["Bearer secre", "Bearer secrets"] {
            assert!(matches!(verdict(None, ("Authorization", bad)), Verdict::Wrong), "{bad}");
        }
        for none in ["secret", "Bearer ", "Bearer", "Basic secret", "Bearersecret"] {
            assert!(matches!(verdict(None, ("Authorization", none)), Verdict::Missing), "{none}");
        }
        assert!(matches!(verdict(Some("x-key"), ("X-Key", "secret")), Verdict::Known(_)));
        assert!(matches!(verdict(Some("x-key"), ("Authorization", "Bearer secret")), Verdict::Missing));
    }

    #[test]
    fn a_hash_is_read_from_64_digits() {
        let hash = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
        assert_eq!(hexadecimal(hash), Ok(digest(b"test")));
        for wrong in ["", "9f", "zz", &"+f".repeat(32), &"é".repeat(32)] {
            assert!(hexadecimal(wrong).is_err(), "{wrong}");
        }
    }
}
