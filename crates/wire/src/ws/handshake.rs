//! The header values of the upgrade (RFC 6455 §4).

use crate::sha1;

/// The version that both sides name in `Sec-WebSocket-Version`.
pub const VERSION: &str = "13";

const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let mut word = 0_u32;
        for at in 0..3 {
            word = word << 8 | u32::from(group.get(at).copied().unwrap_or_default());
        }
        for at in 0..4_usize {
            let digit = (word >> (18 - 6 * at)) & 63;
            let shown = at <= group.len();
            text.push(if shown { char::from(*BASE64.get(digit as usize).unwrap_or(&b'=')) } else { '=' });
        }
    }
    text
}

/// Returns the value of `Sec-WebSocket-Accept` for this `Sec-WebSocket-Key`.
pub fn accept_key(key: &str) -> String {
    base64(&sha1(&[key.as_bytes(), GUID].concat()))
}

/// Returns the value of `Sec-WebSocket-Key` for these random bytes.
pub fn key_of(random: [u8; 16]) -> String {
    base64(&random)
}

/// Returns whether a `Sec-WebSocket-Key` is valid: 16 bytes in base64.
pub fn is_key(key: &str) -> bool {
    let digits = key.strip_suffix("==").unwrap_or_default();
    digits.len() == 22 && digits.bytes().all(|byte| BASE64.contains(&byte))
}

/// Returns the first of `known` that is in the offered list of subprotocols, with lines joined by commas.
pub fn choose_protocol<'a>(offered: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known.into_iter().find(|known| protocols(offered).any(|offer| offer == *known))
}

/// Returns the subprotocols of a list.
pub fn protocols(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty())
}

/// Returns whether a page of `origin` belongs to the same site as a server requested as `authority`: the same
/// host, and the same port, where a missing port is the scheme's default.
pub fn is_same_origin(origin: &str, authority: &str) -> bool {
    let Some((scheme, site)) = origin.split_once("://") else { return false };
    let port = match scheme {
        "http" | "ws" => "80",
        "https" | "wss" => "443",
        _ => return false,
    };
    let bare = |authority: &str| -> String {
        let lower = authority.to_ascii_lowercase();
        match lower.strip_suffix(port).and_then(|host| host.strip_suffix(':')) {
            Some(host) => host.to_owned(),
            None => lower,
        }
    };
    bare(site) == bare(authority)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_accepting_value_is_that_of_the_standards_example() {
        assert_eq!(accept_key("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(key_of(*b"the sample nonce"), "dGhlIHNhbXBsZSBub25jZQ==");
    }

    #[test]
    fn a_key_is_sixteen_bytes_in_base64() {
        assert!(is_key("dGhlIHNhbXBsZSBub25jZQ=="));
        for wrong in
            ["", "==", "dGhlIHNhbXBsZSBub25jZQ", "dGhlIHNhbXBsZSBub25jZQ=", "dGhlIHNhbXBsZSBub25j=Q=="]
        {
            assert!(!is_key(wrong), "{wrong}");
        }
    }

    #[test]
    fn the_servers_first_choice_among_what_is_offered_is_taken() {
        assert_eq!(choose_protocol("b, a", ["a", "b"]), Some("a"));
        assert_eq!(choose_protocol("c", ["a", "b"]), None);
        assert_eq!(choose_protocol("", ["a"]), None);
    }

    #[test]
    fn an_origin_is_the_same_by_host_and_port() {
        assert!(is_same_origin("http://example.org", "example.org"));
        assert!(is_same_origin("http://Example.org:80", "example.org"));
        assert!(is_same_origin("https://example.org", "example.org:443"));
        assert!(is_same_origin("http://127.0.0.1:8080", "127.0.0.1:8080"));
        assert!(!is_same_origin("http://example.org.evil.net", "example.org"));
        assert!(!is_same_origin("http://example.org:8080", "example.org"));
        assert!(!is_same_origin("null", "example.org"));
        assert!(!is_same_origin("file://", ""));
    }
}
