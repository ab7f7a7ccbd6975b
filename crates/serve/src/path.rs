//! A request's path, decoded once, and whether it means a place at all.
//!
//! What two readers could take for two places is refused here for every route, so that nothing behind a proxy can be
//! reached by a path that routes did not see: broken escapes, control characters, `.` and `..` in any spelling, also
//! before a `;`, where some servers take parameters off. Several slashes are one for routes, because they are to many
//! servers; who serves files serves none there.

use std::borrow::Cow;

/// A path without its escapes: it begins with `/`, has no `.` or `..` as a part, and no slash behind another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decoded<'a> {
    pub(crate) bytes: Cow<'a, [u8]>,
    /// A slash or a backslash was escaped in it: no file has such a name.
    pub(crate) hides_slash: bool,
    /// Somewhere in it were several slashes, of which one is left.
    pub(crate) merged_slashes: bool,
}

/// Decodes a path. `None`: it means no place, which is a bad request.
pub(crate) fn decode(raw: &str) -> Option<Decoded<'_>> {
    let mut hides_slash = raw.contains('\\');
    let bytes = if raw.contains('%') {
        let mut decoded = Vec::with_capacity(raw.len());
        let mut rest = raw.as_bytes();
        while let Some((&byte, behind)) = rest.split_first() {
            rest = behind;
            let byte = if byte == b'%' {
                let (high, behind) = rest.split_first()?;
                let (low, behind) = behind.split_first()?;
                rest = behind;
                let byte = hexadecimal(*high)? << 4 | hexadecimal(*low)?;
                hides_slash |= matches!(byte, b'/' | b'\\');
                byte
            } else {
                byte
            };
            decoded.push(byte);
        }
        Cow::Owned(decoded)
    } else {
        Cow::Borrowed(raw.as_bytes())
    };
    let bad = bytes.first() != Some(&b'/')
        || bytes.iter().any(u8::is_ascii_control)
        || bytes.split(|byte| *byte == b'/').any(is_dots);
    if bad {
        return None;
    }
    let merged_slashes = bytes.windows(2).any(|pair| pair == b"//");
    let bytes = if merged_slashes {
        let mut merged = bytes.into_owned();
        merged.dedup_by(|byte, before| *byte == b'/' && *before == b'/');
        Cow::Owned(merged)
    } else {
        bytes
    };
    Some(Decoded { bytes, hides_slash, merged_slashes })
}

/// `.` or `..`, with parameters or without.
fn is_dots(part: &[u8]) -> bool {
    matches!(part, [b'.'] | [b'.', b'.'] | [b'.', b';', ..] | [b'.', b'.', b';', ..])
}

fn hexadecimal(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

/// What is left of a raw path behind its first `bytes` decoded ones, with slashes merged; slashes behind the last of
/// these stay.
pub(crate) fn behind(raw: &str, bytes: usize) -> &str {
    let (mut at, mut left) = (0, bytes);
    let mut slash_before = false;
    while left > 0
        && let Some(rest) = raw.as_bytes().get(at..)
        && let Some(first) = rest.first()
    {
        let slash = *first == b'/' || rest.get(..3).is_some_and(|three| three.eq_ignore_ascii_case(b"%2f"));
        if !(slash && slash_before) {
            left -= 1;
        }
        slash_before = slash;
        at += if *first == b'%' { 3 } else { 1 };
    }
    raw.get(at..).unwrap_or_default()
}

/// A place on this server as a `Location`: never `//elsewhere`, which browsers take for another server.
pub(crate) fn location(path: &str, query: Option<&str>) -> String {
    let rest = path.trim_start_matches(['/', '\\']);
    let slash = if rest.len() < path.len() { "/" } else { "" };
    match query {
        Some(query) => format!("{slash}{rest}?{query}"),
        None => format!("{slash}{rest}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn escapes_are_decoded_once() {
        for (raw, decoded) in [
            ("/", &b"/"[..]),
            ("/a%20b", b"/a b"),
            ("/%252e%252e/x", b"/%2e%2e/x"),
            ("/caf%C3%A9", "/café".as_bytes()),
            ("/a..;/;/b;c/...;", b"/a..;/;/b;c/...;"),
            ("/...", b"/..."),
            ("//a///b//", b"/a/b/"),
            ("/%2fa%2F/b", b"/a/b"),
        ] {
            assert_eq!(decode(raw).unwrap().bytes, decoded, "{raw}");
        }
    }

    #[test]
    fn what_means_no_place_is_refused() {
        for raw in [
            "",
            "*",
            "/..",
            "/../etc/passwd",
            "/..%2f",
            "/%2e%2e/",
            "/.%2E/",
            "/a/./b",
            "/%00",
            "/a%0ab",
            "/%7f",
            "/%",
            "/%2",
            "/%zz",
            "/%+1",
            "/a/%2E",
            "/a%2f..%2fb",
            "/a/..;/b",
            "/.;",
            "/..;a=b/c",
            "/%2e%2E%3b/c",
        ] {
            assert_eq!(decode(raw), None, "{raw}");
        }
        for raw in ["/a%2fb", "/a\\b", "/a%5Cb"] {
            assert!(decode(raw).unwrap().hides_slash, "{raw}");
        }
    }

    #[test]
    fn what_is_behind_a_decoded_prefix_is_found_in_the_raw_path() {
        assert_eq!(behind("/a/b%20c", 3), "b%20c");
        assert_eq!(behind("/%61/b", 3), "b");
        assert_eq!(behind("/a", 5), "");
        assert_eq!(behind("//a%2f/b//c", 3), "/b//c");
        assert_eq!(behind("/%2Fa/b", 3), "b");
        assert_eq!(behind("/a/%2fb", 3), "%2fb");
    }

    #[test]
    fn a_location_stays_on_this_server() {
        assert_eq!(location("/a/", Some("b=c")), "/a/?b=c");
        for path in ["//evil.example/", "/\\evil.example/", "\\/evil.example/"] {
            assert_eq!(location(path, None), "/evil.example/", "{path}");
        }
        assert_eq!(location("https://example.org/", None), "https://example.org/");
    }
}
