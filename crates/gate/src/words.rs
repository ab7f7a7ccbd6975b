//! Values that several features read: header lines and statuses.

use ringroad_http::{EncodeError, FieldBlock, Request, Response, Status};
use ringroad_settings::{Value, value};

/// Returns the name of a header line that may be written.
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

/// Returns whether a header line of this name may pass for `line`: to programs that get lines as variables
/// (CGI, PHP, WSGI) signs are one, and case counts nowhere. `X_User` and `X.User` are `X-User` to some of
/// them.
pub fn passes_for(name: &[u8], line: &str) -> bool {
    let is_sign = |byte: u8| !byte.is_ascii_alphanumeric();
    let same = |(one, other): (&u8, u8)| one.eq_ignore_ascii_case(&other) || is_sign(*one) && is_sign(other);
    name.len() == line.len() && name.iter().zip(line.bytes()).all(same)
}

/// Lines in which proxies tell servers behind them about the client.
pub const OF_PROXIES: &[&str] = &[
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-real-ip",
];

/// Beginnings of further such lines, as `X-Forwarded-Uri` and `X-Original-Url`.
const BEGINNINGS_OF_PROXIES: &[&str] = &["x-forwarded-", "x-original-"];

/// Returns whether a line may pass for one of a proxy: only from a trusted one it says something.
pub fn is_of_proxies(name: &[u8]) -> bool {
    let begins_as =
        |beginning: &&str| name.get(..beginning.len()).is_some_and(|begin| passes_for(begin, beginning));
    BEGINNINGS_OF_PROXIES.iter().any(begins_as) || OF_PROXIES.iter().any(|line| passes_for(name, line))
}

/// Removes the lines of a request that may pass for `line`.
pub fn remove_all_like(request: &mut Request, line: &str) {
    let like: Vec<_> = request.headers().iter().filter(|field| passes_for(field.name, line)).collect();
    let names: Vec<_> = like.iter().map(|field| String::from_utf8_lossy(field.name).into_owned()).collect();
    for name in names {
        request.remove_header(&name);
    }
}

/// Writes a line that only this server may write. `false`: the head has no room for it, and must not go on
/// without it. A value that is none of a line is left out.
#[must_use]
pub fn tell(request: &mut Request, name: &str, value: &[u8]) -> bool {
    request.set_header(name, value).is_ok() || FieldBlock::new().push(name.as_bytes(), value).is_err()
}

/// Returns what is behind `http://` or `https://`, in any case of letters, if one of them begins the text.
pub fn after_http(text: &str) -> Option<&str> {
    ["http", "https"].into_iter().find_map(|scheme| ringroad_wire::after_scheme(text, scheme))
}

/// Returns a status from 200 to 599.
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

/// Adds the protocols that an answer of a server behind asks for, if it is 426 (RFC 9110 §15.5.22). In other
/// answers `Upgrade` is an offer for the connection between that server and this one, and stays there.
///
/// # Errors
/// They are not a line.
pub fn with_upgrade<'l>(
    response: Response,
    lines: impl Iterator<Item = (&'l [u8], &'l [u8])>,
) -> Result<Response, EncodeError> {
    if response.status_code() != Status::UPGRADE_REQUIRED {
        return Ok(response);
    }
    let named = lines.filter(|(name, value)| name.eq_ignore_ascii_case(b"upgrade") && !value.is_empty());
    let protocols = named.map(|(_, value)| value).collect::<Vec<_>>().join(&b", "[..]);
    if protocols.is_empty() { Ok(response) } else { response.upgrade_required(protocols) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_passes_for_a_line_in_any_case_and_with_any_signs() {
        for name in ["X-User", "x-user", "X_USER", "x.user", "X~User"] {
            assert!(passes_for(name.as_bytes(), "X-User"), "{name}");
        }
        for name in ["XUser", "X-Users", "X-Use", "Xauser", "X--User", ""] {
            assert!(!passes_for(name.as_bytes(), "X-User"), "{name}");
        }
        assert!(passes_for(b"x-user", "X_User"));
    }
}
