//! Where a program that already runs answers: `http://HOST[:PORT]/PATH` or `https://`.
//!
//! Strict: user names and fragments are refused, since they would not be sent. Start at [`Url`].

use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

/// How long it is looked for the address that takes a connection.
const PATIENCE: Duration = Duration::from_secs(5);

/// A URL, taken apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Url {
    /// TLS is spoken.
    pub https: bool,
    /// Name or address, without the brackets of an IPv6 address.
    pub host: String,
    /// The port; the scheme's own where none is given.
    pub port: u16,
    /// Path and query; `None` where the URL has none, so that the load's path is asked for.
    pub path: Option<String>,
}

impl Url {
    /// Returns name and port as a `Host` line has them.
    pub fn authority(&self) -> String {
        let is_v6 = self.host.parse::<Ipv6Addr>().is_ok();
        let host = if is_v6 { format!("[{}]", self.host) } else { self.host.clone() };
        match (self.https, self.port) {
            (false, 80) | (true, 443) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }

    /// Returns the address of its name: of several the first that takes a connection, or else the first.
    /// Waits for the resolver.
    ///
    /// # Errors
    /// The name is not known, or the resolver does not answer.
    pub fn resolve(&self) -> io::Result<SocketAddr> {
        let unknown = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        let addresses: Vec<_> = (self.host.as_str(), self.port).to_socket_addrs()?.collect();
        if addresses.len() > 1
            && let Ok(reached) = ringroad_host::connect::connect_any(addresses.iter().copied(), PATIENCE)
        {
            return reached.peer_addr();
        }
        addresses.first().copied().ok_or_else(unknown)
    }
}

impl FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Url, String> {
        let wrong = || "it begins with http:// or https://".to_owned();
        // Schemes have no case (RFC 3986 §3.1).
        let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
        let https = match &*scheme.to_ascii_lowercase() {
            "http" => false,
            "https" => true,
            _ => return Err(wrong()),
        };
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if authority.contains('@') || text.contains('#') {
            return Err("user names and fragments are not sent: leave them out".to_owned());
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => rest.split_once(']').ok_or("the bracket of its address is not closed")?,
            None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
        };
        if host.is_empty() {
            return Err("it names no host".to_owned());
        }
        let port = match port.strip_prefix(':') {
            Some(digits) => digits
                .parse()
                .ok()
                .filter(|port| *port > 0)
                .ok_or_else(|| format!("{digits} is no port: 1 to 65535"))?,
            None if port.is_empty() => {
                if https {
                    443
                } else {
                    80
                }
            }
            None => return Err(format!("{authority} is no host")),
        };
        if path.bytes().any(|byte| !(0x21..=0x7e).contains(&byte)) {
            return Err("its path must be printable ASCII without blanks".to_owned());
        }
        let path = match path {
            "" | "/" => None,
            query if query.starts_with('?') => Some(format!("/{query}")),
            path => Some(path.to_owned()),
        };
        Ok(Url { https, host: host.to_owned(), port, path })
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.https { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.path.as_deref().unwrap_or("/"))
    }
}

impl From<Url> for String {
    fn from(url: Url) -> String {
        url.to_string()
    }
}

impl TryFrom<String> for Url {
    type Error = String;

    fn try_from(text: String) -> Result<Url, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::Url;

    #[test]
    fn a_url_is_taken_apart_and_put_together_again() {
        for (text, https, host, port, path) in [
            ("http://localhost", false, "localhost", 80, None),
            ("http://127.0.0.1:8080/", false, "127.0.0.1", 8080, None),
            ("https://example.org/a?b=c", true, "example.org", 443, Some("/a?b=c")),
            ("http://[::1]:81/x", false, "::1", 81, Some("/x")),
            ("http://host?q", false, "host", 80, Some("/?q")),
        ] {
            let url: Url = text.parse().unwrap();
            let read = (url.https, url.host.as_str(), url.port, url.path.as_deref());
            assert_eq!(read, (https, host, port, path), "{text}");
            assert_eq!(url.to_string().parse::<Url>().unwrap(), url, "{text}");
        }
    }

    #[test]
    fn what_is_no_url_is_refused() {
        for text in [
            "localhost:80",
            "ftp://a/",
            "http://",
            "http://:80/",
            "http://a:0/",
            "http://a:99999/",
            "http://u@a/",
            "http://a/#f",
            "http://[::1/",
            "http://a/b c",
        ] {
            assert!(text.parse::<Url>().is_err(), "{text}");
        }
    }
}
