//! Recognises the first bytes of a server that speaks another protocol than the load. No I/O, no clock.
//!
//! Such bytes break a rule of the expected protocol as well, but that rule explains nothing to the user.
//! Start at [`instead_of_http1`].

const TLS: &str = "the server speaks TLS on this port: load https:// (or wss://)";

/// Returns what the server speaks, and what to do, if the first bytes of an answer are not of HTTP/1.1 and
/// their protocol is known.
pub(crate) fn instead_of_http1(first: &[u8]) -> Option<&'static str> {
    match first {
        _ if is_tls(first) => Some(TLS),
        // The first frame of a server: SETTINGS on stream 0 (RFC 9113 §3.4).
        [0, 0, _, 4, 0, 0, 0, 0, 0, ..] => {
            Some("the server speaks HTTP/2 without TLS on this port: add --http2")
        }
        _ => None,
    }
}

/// Returns the same for a connection that speaks HTTP/2.
pub(crate) fn instead_of_http2(first: &[u8]) -> Option<String> {
    if is_tls(first) {
        return Some(TLS.to_owned());
    }
    let version = first.get(..8)?;
    version.starts_with(b"HTTP/1.").then(|| {
        let version = version.escape_ascii();
        format!(
            "the server does not speak HTTP/2: its first bytes are an {version} answer, so leave out --http2"
        )
    })
}

/// Returns whether a record of TLS begins here: a type from 20 to 23, and version 3 (RFC 8446 §5.1).
fn is_tls(first: &[u8]) -> bool {
    matches!(first, [20..=23, 3, ..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_and_http2_are_recognised_where_http1_is_expected() {
        let of = |first: &[u8]| instead_of_http1(first).unwrap_or_default();
        assert!(of(&[21, 3, 3, 0, 2, 2, 70]).contains("https://"));
        assert!(of(&[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3]).contains("--http2"));
        for other in [&b"HTTP/1.1 200 OK\r\n"[..], b"SSH-2.0", b"\x15", b""] {
            assert_eq!(of(other), "", "{other:?}");
        }
    }

    #[test]
    fn http1_and_tls_are_recognised_where_http2_is_expected() {
        let of = |first: &[u8]| instead_of_http2(first).unwrap_or_default();
        assert!(of(b"HTTP/1.0 400 ").contains("are an HTTP/1.0 answer"));
        assert!(of(&[21, 3, 1, 0, 2, 2, 70]).contains("https://"));
        for other in [&[0, 0, 0, 4, 0, 0, 0, 0, 0][..], b"HTTP", b"SSH-2.0-x"] {
            assert_eq!(of(other), "", "{other:?}");
        }
    }
}
