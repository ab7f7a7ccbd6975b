//! What a worker of RoadRunner is told of a request, and the lines of its answer.

use super::form::Form;
use crate::head::Incoming;
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};

/// Writes the head of a request as JSON. With `form`, the body is the form's fields.
///
/// JSON has no bytes that are not UTF-8: such bytes in header lines arrive as U+FFFD.
pub fn head(incoming: &Incoming<'_>, form: Option<&Form>) -> Vec<u8> {
    let mut headers: Map<String, Value> = Map::new();
    let mut cookies = Map::new();
    for (name, value) in &incoming.lines {
        let value = String::from_utf8_lossy(value);
        if name.eq_ignore_ascii_case(b"cookie") {
            for pair in value.split(';') {
                let Some((name, value)) = pair.trim().split_once('=') else { continue };
                let value = percent_decode_str(value).decode_utf8_lossy().into_owned();
                cookies.entry(name.to_owned()).or_insert(Value::String(value));
            }
        }
        let values = headers.entry(canonical(name)).or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(values) = values {
            values.push(Value::String(value.into_owned()));
        }
    }
    let query = incoming.query.unwrap_or_default();
    let mark = if incoming.query.is_some() { "?" } else { "" };
    let head = json!({
        "remoteAddr": incoming.client.map(|client| client.ip().to_canonical().to_string()).unwrap_or_default(),
        "protocol": protocol(incoming.version),
        "method": incoming.method,
        "uri": format!("{}://{}{}{mark}{query}", incoming.scheme, incoming.authority, incoming.path),
        "headers": headers,
        "cookies": cookies,
        "rawQuery": query,
        "parsed": form.is_some(),
        "uploads": form.and_then(|form| form.uploads.as_ref()),
        "attributes": {},
    });
    head.to_string().into_bytes()
}

/// Returns the words that Go has for a version.
fn protocol(version: &str) -> &'static str {
    match version {
        "1.0" => "HTTP/1.0",
        "2" => "HTTP/2.0",
        _ => "HTTP/1.1",
    }
}

/// Spells a name as Go does: the first letter and each behind a hyphen in upper case, others in lower case.
fn canonical(name: &[u8]) -> String {
    let mut upper = true;
    let spelled = name.iter().map(|byte| {
        let letter = if upper { byte.to_ascii_uppercase() } else { byte.to_ascii_lowercase() };
        upper = *byte == b'-';
        char::from(letter)
    });
    spelled.collect()
}

/// Returns the lines of an answer: each value is a text or a list of texts.
pub(super) fn lines(headers: Option<&Value>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut lines = Vec::new();
    let Some(Value::Object(headers)) = headers else { return lines };
    for (name, values) in headers {
        let values = match values {
            Value::Array(values) => values.as_slice(),
            one => std::slice::from_ref(one),
        };
        for value in values {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                _ => continue,
            };
            lines.push((name.clone().into_bytes(), text.into_bytes()));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_head_has_what_the_libraries_of_roadrunner_read() {
        let incoming = Incoming {
            method: "POST",
            path: "/a%20b",
            query: Some("x=1"),
            version: "1.1",
            scheme: "https",
            authority: "example.org",
            lines: vec![(b"x-one", b"1"), (b"X-One", b"2"), (b"cookie", b"a=b%20c; d=e; a=f; broken")],
            client: Some("[::ffff:192.0.2.7]:99".parse().unwrap()),
            local: None,
            root_path: "",
            body_bytes: Some(0),
            id: "7",
            socket: None,
        };
        let told: Value = serde_json::from_slice(&head(&incoming, None)).unwrap();
        assert_eq!(told["remoteAddr"], "192.0.2.7");
        assert_eq!(told["protocol"], "HTTP/1.1");
        assert_eq!(told["uri"], "https://example.org/a%20b?x=1");
        assert_eq!(told["rawQuery"], "x=1");
        assert_eq!(told["headers"]["X-One"], json!(["1", "2"]));
        assert_eq!(told["cookies"], json!({ "a": "b c", "d": "e" }));
        assert_eq!((&told["parsed"], &told["uploads"]), (&json!(false), &Value::Null));
        let form = super::super::urlencoded(b"a=1").unwrap();
        let told: Value = serde_json::from_slice(&head(&incoming, Some(&form))).unwrap();
        assert_eq!(told["parsed"], true);
    }
}
