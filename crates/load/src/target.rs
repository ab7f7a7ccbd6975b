//! What the load is pointed at: a URL, and the addresses behind its name.
//!
//! Strict, since traffic goes only where it was pointed: user names, fragments and other schemes are refused
//! rather than guessed at. Start at [`Target`].

use crate::error::Error;
use ringroad_engine::net::{literal, split_zone};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

/// What is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// HTTP/1.1.
    Http,
    /// HTTP/1.1 over TLS.
    Https,
    /// Messages that come back.
    Tcp,
    /// WebSocket messages that come back.
    Ws,
    /// The same over TLS.
    Wss,
}

impl Scheme {
    /// Returns its name in a URL.
    pub fn as_str(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
            Scheme::Tcp => "tcp",
            Scheme::Ws => "ws",
            Scheme::Wss => "wss",
        }
    }

    /// Returns whether it is over TLS.
    pub fn is_secured(self) -> bool {
        matches!(self, Scheme::Https | Scheme::Wss)
    }

    /// Returns whether requests are answered, and messages do not merely come back.
    pub fn is_http(self) -> bool {
        matches!(self, Scheme::Http | Scheme::Https)
    }

    /// Returns whether messages are frames of WebSocket.
    pub fn is_websocket(self) -> bool {
        matches!(self, Scheme::Ws | Scheme::Wss)
    }

    /// Returns the protocol's name in a record.
    pub fn protocol(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
            Scheme::Tcp => "echo",
            Scheme::Ws => "websocket",
            Scheme::Wss => "websocket over TLS",
        }
    }
}

/// A URL, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// What is spoken.
    pub scheme: Scheme,
    /// Name or address, without the brackets of an IPv6 address.
    pub host: String,
    /// The port, the scheme's own where none is given.
    pub port: u16,
    /// Path and query, from the slash on; empty for `tcp`.
    pub path: String,
}

impl Target {
    /// Returns name and port as a `Host` line has them: without the port where it is the scheme's own, and
    /// without the zone of an address, which is of this machine (RFC 6874 §4).
    pub fn authority(&self) -> String {
        match split_zone(&self.host) {
            Some((address, _)) => self.with_port(format!("[{address}]")),
            None if self.host.parse::<Ipv6Addr>().is_ok() => self.with_port(format!("[{}]", self.host)),
            None => self.with_port(self.host.clone()),
        }
    }

    fn with_port(&self, host: String) -> String {
        match (self.scheme, self.port) {
            (Scheme::Http | Scheme::Ws, 80) | (Scheme::Https | Scheme::Wss, 443) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }

    /// Returns the addresses that its name has, in the order the system gives them. Waits for the resolver.
    ///
    /// # Errors
    /// The resolver does not know the name, or cannot be reached.
    pub fn resolve(&self) -> Result<Vec<SocketAddr>, Error> {
        addresses(&self.host, self.port)
    }
}

/// Returns the addresses of a name, or an address without brackets, in the order the system gives them. Waits
/// for the resolver.
pub(crate) fn addresses(host: &str, port: u16) -> Result<Vec<SocketAddr>, Error> {
    let failed = |why: String| Error::failed(format!("resolve, on {host}: {why}"));
    if let Some(address) = literal(host, port) {
        return Ok(vec![of_peer(address.map_err(|why| failed(why.to_string()))?)]);
    }
    let addresses: Vec<_> = (host, port)
        .to_socket_addrs()
        .map_err(|why| failed(format!("{why} (is the name right, and the resolver reachable?)")))?
        .collect();
    let addresses: Vec<_> = addresses.into_iter().map(of_peer).collect();
    if addresses.is_empty() { Err(failed("it has no address".to_owned())) } else { Ok(addresses) }
}

/// Returns the address that a connect to this one reaches. Servers print the unspecified address, on which
/// they listen, and to the kernel it is this machine (connect(2) on Linux; the same as the loopback address).
fn of_peer(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

impl FromStr for Target {
    type Err = Error;

    fn from_str(text: &str) -> Result<Target, Error> {
        let refuse = |why: &str| Err(Error::usage(format!("URL {text}: {why}")));
        let Some((scheme, rest)) = text.split_once("://") else {
            return refuse("no scheme (examples: http://127.0.0.1:8080/, tcp://127.0.0.1:7)");
        };
        let scheme = match &*scheme.to_ascii_lowercase() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            "tcp" => Scheme::Tcp,
            "ws" => Scheme::Ws,
            "wss" => Scheme::Wss,
            _ => return refuse("unknown scheme (known: http, https, tcp, ws, wss)"),
        };
        if rest.contains('#') {
            return refuse("a fragment is never sent (leave out what is behind #)");
        }
        let cut = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(cut);
        if authority.contains('@') {
            return refuse("a user name in a URL is not sent (give it as -a USER:PASSWORD)");
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => match rest.split_once(']') {
                Some((host, port)) if host.parse::<Ipv6Addr>().is_ok() || split_zone(host).is_some() => {
                    (host, port)
                }
                _ => return refuse("not an IPv6 address in brackets"),
            },
            None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
        };
        if host.is_empty() {
            return refuse("no host");
        }
        let port = match (port.strip_prefix(':'), scheme) {
            (Some(digits), _) => match digits.parse() {
                Ok(port @ 1..) if !digits.starts_with('+') => port,
                _ => return refuse("not a port: 1 to 65535"),
            },
            (None, _) if !port.is_empty() => return refuse("not a host"),
            (None, Scheme::Http | Scheme::Ws) => 80,
            (None, Scheme::Https | Scheme::Wss) => 443,
            (None, Scheme::Tcp) => return refuse("no port (example: tcp://127.0.0.1:7)"),
        };
        let path = match (scheme, path) {
            (Scheme::Tcp, "" | "/") => String::new(),
            (Scheme::Tcp, _) => return refuse("tcp has no paths"),
            (_, path) if path.starts_with('/') => path.to_owned(),
            (_, query) => format!("/{query}"),
        };
        let host = match split_zone(host) {
            Some((address, zone)) => format!("{address}%{zone}"),
            None => host.to_owned(),
        };
        Ok(Target { scheme, host, port, path })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let authority = match split_zone(&self.host) {
            Some((address, zone)) => self.with_port(format!("[{address}%25{zone}]")),
            None => self.authority(),
        };
        write!(f, "{}://{authority}{}", self.scheme.as_str(), self.path)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_unspecified_address_is_this_machine_and_the_host_is_named_as_it_was_given() {
        for (url, host, address) in [
            ("http://0.0.0.0:81/", "0.0.0.0:81", "127.0.0.1:81"),
            ("http://[::]:81/", "[::]:81", "[::1]:81"),
            ("http://127.0.0.2/", "127.0.0.2", "127.0.0.2:80"),
        ] {
            let target: Target = url.parse().unwrap();
            assert_eq!(target.resolve().unwrap(), [address.parse().unwrap()], "{url}");
            assert_eq!(target.authority(), host);
        }
    }

    #[test]
    fn a_url_is_taken_apart_and_put_together_again() {
        for (text, host, port, path) in [
            ("http://localhost", "localhost", 80, "/"),
            ("http://a.b:8080/x?y=1", "a.b", 8080, "/x?y=1"),
            ("http://a?y", "a", 80, "/?y"),
            ("http://[::1]:81/", "::1", 81, "/"),
            ("http://[::1]/", "::1", 80, "/"),
            ("https://a/x", "a", 443, "/x"),
            ("https://a:80/", "a", 80, "/"),
            ("tcp://127.0.0.1:7", "127.0.0.1", 7, ""),
            ("ws://a", "a", 80, "/"),
            ("wss://a/x?y", "a", 443, "/x?y"),
            ("http://[fe80::1%25eth0]:81/", "fe80::1%eth0", 81, "/"),
            ("http://[fe80::1%eth0]/", "fe80::1%eth0", 80, "/"),
            ("http://[fe80::1%253]/", "fe80::1%3", 80, "/"),
        ] {
            let target: Target = text.parse().unwrap();
            assert_eq!((&*target.host, target.port, &*target.path), (host, port, path), "{text}");
            assert_eq!(target.to_string().parse::<Target>().unwrap(), target);
        }
        assert_eq!("http://[::1]:81".parse::<Target>().unwrap().authority(), "[::1]:81");
        let zoned: Target = "http://[fe80::1%25no-such-one]:81".parse().unwrap();
        assert_eq!(zoned.authority(), "[fe80::1]:81", "a zone is never sent");
        let missing = zoned.resolve().unwrap_err().to_string();
        assert!(missing.contains("fe80::1%no-such-one") && missing.contains("ip link"), "{missing}");
    }

    #[test]
    fn what_is_not_certain_is_refused_with_the_reason() {
        for (text, why) in [
            ("localhost:80", "no scheme"),
            ("ftp://a", "unknown scheme"),
            ("http://", "no host"),
            ("http://:80", "no host"),
            ("http://a:0/", "not a port"),
            ("http://a:65536/", "not a port"),
            ("http://a:+80/", "not a port"),
            ("http://a:/", "not a port"),
            ("http://u:p@a/", "user name"),
            ("http://a/#b", "fragment"),
            ("http://[::1/", "IPv6"),
            ("http://[::1%]/", "IPv6"),
            ("http://[a%lo]/", "IPv6"),
            ("http://[::1]x/", "not a host"),
            ("tcp://a", "no port"),
            ("tcp://a:7/x", "paths"),
        ] {
            let error = text.parse::<Target>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
