//! Request targets: their four forms, and valid values of `Host`.
//!
//! Decoding of escapes and resolution of paths are left to the caller.

use crate::message::Method;
use crate::scan::{host_len, is_plain_path, path_len};
use std::net::Ipv6Addr;

/// The four forms of RFC 9112 §3.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// `/path?query`
    Origin,
    /// `http://host/path?query`
    Absolute,
    /// `host:port`, with CONNECT
    Authority,
    /// `*`, with OPTIONS
    Asterisk,
}

/// A parsed target: the positions of its host, if it has one, and of its path, in bytes from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) form: Form,
    pub(crate) host: u16,
    pub(crate) host_end: u16,
    /// The question mark of the query, or the end of the target.
    pub(crate) path_end: u16,
    /// Whether the path has one spelling ([`is_plain_path`]).
    pub(crate) is_plain: bool,
}

impl Target {
    /// Parses a target that begins with `/`.
    #[inline]
    pub(crate) fn origin(target: &[u8]) -> Target {
        Target::of(Form::Origin, target, 0, 0)
    }

    #[inline]
    fn of(form: Form, target: &[u8], host: usize, host_end: usize) -> Target {
        let path_end = if form == Form::Authority { target.len() } else { path_len(target) };
        let is_plain = target.get(host_end..path_end).is_some_and(is_plain_path);
        // A head is shorter than these types can count.
        let [host, host_end, path_end] = [host, host_end, path_end].map(|place| place as u16);
        Target { form, host, host_end, path_end, is_plain }
    }
}

/// Returns the parts of a target, if its form is valid for the method.
pub(crate) fn classify(target: &[u8], method: Method) -> Option<Target> {
    if method == Method::Connect {
        // The port is required: it has no default. The last colon of an address in brackets does not precede
        // a port.
        let port = target.iter().rposition(|byte| *byte == b':').and_then(|colon| target.get(colon + 1..));
        let names_port = port.is_some_and(|port| port_number(port).is_some());
        return (names_port && is_host(target)).then(|| Target::of(Form::Authority, target, 0, target.len()));
    }
    match target {
        [b'/', ..] => Some(Target::origin(target)),
        b"*" => (method == Method::Options).then(|| Target::of(Form::Asterisk, target, 0, 0)),
        _ => {
            let scheme = ["http://", "https://"].into_iter().find(|scheme| {
                target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme.as_bytes()))
            })?;
            let rest = target.get(scheme.len()..)?;
            let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
            let host = scheme.len();
            is_host(rest.get(..end)?).then(|| Target::of(Form::Absolute, target, host, host + end))
        }
    }
}

/// Returns whether this is a name or an address, not empty, with at most a port: RFC 9110 §7.2, without user
/// information and without characters that no name has.
///
/// ```
/// assert!(ringroad_wire::is_host(b"a.example:81") && !ringroad_wire::is_host(b"a.example/b"));
/// ```
pub fn is_host(host: &[u8]) -> bool {
    let after = match host {
        [b'[', inside @ ..] => {
            let Some(end) = inside.iter().position(|byte| *byte == b']') else { return false };
            let address = inside.get(..end).and_then(|address| str::from_utf8(address).ok());
            if address.is_none_or(|address| address.parse::<Ipv6Addr>().is_err()) {
                return false;
            }
            inside.get(end + 1..).unwrap_or_default()
        }
        _ => {
            let name = host_len(host);
            if name == 0 {
                return false;
            }
            host.get(name..).unwrap_or_default()
        }
    };
    match after {
        [] | [b':'] => true,
        [b':', port @ ..] => port_number(port).is_some(),
        _ => false,
    }
}

fn port_number(digits: &[u8]) -> Option<u16> {
    crate::message::decimal(digits).and_then(|port| u16::try_from(port).ok())
}

/// Returns the rest of a URL after this scheme, if it has this scheme: `http` matches `HTTP://a` (RFC 3986
/// §3.1).
///
/// ```
/// assert_eq!(ringroad_wire::after_scheme("HTTP://a/b", "http"), Some("a/b"));
/// assert_eq!(ringroad_wire::after_scheme("https://a", "http"), None);
/// ```
pub fn after_scheme<'a>(url: &'a str, scheme: &str) -> Option<&'a str> {
    let (own, rest) = url.split_once("://")?;
    own.eq_ignore_ascii_case(scheme).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_or_an_address_with_a_port_at_most() {
        for good in
            ["a", "example.org", "a_b.~c-d", "127.0.0.1:80", "[::1]", "[2001:db8::7]:8080", "a:", "a:65535"]
        {
            assert!(is_host(good.as_bytes()), "{good}");
        }
        for bad in [
            "",
            ":",
            ":80",
            "a b",
            "a/",
            "a@b",
            "a:b",
            "a:65536",
            "a:65536 ",
            "a:8:0",
            "[::1",
            "[::1]x",
            "[]",
            "[1.2.3.4]",
            "a,b",
            "a%41",
            "\u{e9}",
            "a\0",
            "[::1]:x",
            "a:+1",
        ] {
            assert!(!is_host(bad.as_bytes()), "{bad:?}");
        }
    }

    #[test]
    fn a_target_has_the_form_its_method_allows() {
        let form = |target: &str, method| classify(target.as_bytes(), method).map(|target| target.form);
        let get = |target| form(target, Method::Get);
        assert_eq!(get("/"), Some(Form::Origin));
        assert_eq!(get("//x"), Some(Form::Origin));
        for absolute in ["http://a", "HTTPS://a:1/", "http://a/b?c", "http://a?b", "http://[::1]/"] {
            assert_eq!(get(absolute), Some(Form::Absolute), "{absolute}");
        }
        for bad in ["*", "!", "a:80", "http://", "http:///x", "http://u@a/", "ftp://a/", "http:/a", "?x", ""]
        {
            assert_eq!(get(bad), None, "{bad}");
        }
        assert_eq!(form("*", Method::Options), Some(Form::Asterisk));
        assert_eq!(form("*x", Method::Options), None);
        for good in ["a:80", "[::1]:443"] {
            assert_eq!(form(good, Method::Connect), Some(Form::Authority), "{good}");
        }
        for bad in ["a", "a:", "/", "http://a:80", "*", "[::1]", "80", ":80", "a:80/"] {
            assert_eq!(form(bad, Method::Connect), None, "{bad}");
        }
    }
}
