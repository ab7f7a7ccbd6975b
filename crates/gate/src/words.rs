//! Values that several features read: header lines and statuses.

use ringroad_http::{FieldBlock, Response, Status};
use ringroad_settings::{Value, value};

/// The name of a header line that may be written.
///
/// # Errors
/// Says what was expected; so do all functions here.
pub fn header_name(value: &Value<'_>) -> Result<String, String> {
    let name = value::text(value)?;
    check_name(&name).map(|()| name)
}

/// Checks the name of a header line.
///
/// # Errors
/// As [`header_name`].
pub fn check_name(name: &str) -> Result<(), String> {
    let line = FieldBlock::of([(name, "0")]);
    line.map(|_| ()).map_err(|why| format!("expected the name of a header line: {why}"))
}

/// Checks a header line.
///
/// # Errors
/// As [`header_name`].
pub fn check_line(name: &str, value: &str) -> Result<(), String> {
    FieldBlock::of([(name, value)]).map(|_| ()).map_err(|why| why.to_string())
}

/// A status from 200 to 599.
///
/// # Errors
/// As [`header_name`].
pub fn status(value: &Value<'_>) -> Result<Status, String> {
    let code = value::status(value)?;
    Status::new(code).ok_or_else(|| "expected a status from 200 to 599".to_owned())
}

/// Adds a name to `Vary`, unless it is there.
pub fn vary(response: &mut Response, name: &str) {
    let there = |value: &[u8]| {
        let mut names = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        names.any(|own| own == b"*" || own.eq_ignore_ascii_case(name.as_bytes()))
    };
    let is_vary = |name: &[u8]| name.eq_ignore_ascii_case(b"vary");
    if !response.headers().any(|line| is_vary(line.name) && there(line.value)) {
        // The name is a token.
        let _ = response.add_header("Vary", name);
    }
}

/// The media type that a file's name says, with its charset where it is text.
pub fn media_type(name: &str) -> String {
    let guess = mime_guess::from_path(name).first_raw().unwrap_or("application/octet-stream");
    // Without one, browsers guess from the bytes (WHATWG MIME Sniffing); everything written today is UTF-8.
    let charset = if guess.starts_with("text/") { "; charset=utf-8" } else { "" };
    format!("{guess}{charset}")
}
