//! The servers of a load: where a connection to a URL really goes, and the addresses behind the name.
//!
//! A URL names a server. A [`Route`] sends its connections elsewhere, to another address or to a Unix socket,
//! while the Host line and the name in the TLS handshake stay those of the URL. Start at [`Place::of`].

use crate::error::Error;
use crate::target::{Target, addresses};
use ringroad_engine::net::split_zone;
use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// Where connections go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A name or an address, and a port.
    Tcp(String, u16),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// Connections for one server that go to another place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Only connections to this host; `None`: to all.
    pub host: Option<String>,
    /// Only connections to this port; `None`: to all.
    pub port: Option<u16>,
    /// Where they go; without a host or a port in it, those of the URL stay.
    pub to: Destination,
}

/// The end of a [`Route`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A host and a port; `None`: that of the URL.
    Tcp(Option<String>, Option<u16>),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// One address of a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Of IP.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(Arc<Path>),
}

impl Place {
    /// Returns where connections to `target` go: the first route that matches, or the URL itself.
    pub fn of(target: &Target, routes: &[Route]) -> Place {
        let route = routes.iter().find(|route| {
            route.host.as_ref().is_none_or(|host| host.eq_ignore_ascii_case(&target.host))
                && route.port.is_none_or(|port| port == target.port)
        });
        match route.map(|route| &route.to) {
            None => Place::Tcp(target.host.clone(), target.port),
            Some(Destination::Tcp(host, port)) => {
                Place::Tcp(host.clone().unwrap_or_else(|| target.host.clone()), port.unwrap_or(target.port))
            }
            Some(Destination::Unix(path)) => Place::Unix(path.clone()),
        }
    }

    /// Returns the addresses of it, in the order the system gives them. Waits for the resolver.
    ///
    /// # Errors
    /// The resolver does not know the name, or cannot be reached.
    pub fn resolve(&self) -> Result<Vec<Address>, Error> {
        match self {
            Place::Unix(path) => Ok(vec![Address::Unix(path.as_path().into())]),
            Place::Tcp(host, port) => Ok(addresses(host, *port)?.into_iter().map(Address::Tcp).collect()),
        }
    }
}

impl Address {
    /// Returns the address, if it is one of IP.
    pub fn ip(&self) -> Option<SocketAddr> {
        match self {
            Address::Tcp(address) => Some(*address),
            Address::Unix(_) => None,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(f),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl FromStr for Route {
    type Err = Error;

    /// Reads `HOST1:PORT1:HOST2:PORT2`, in which each may be empty, as curl's `--connect-to`. IPv6 addresses
    /// stand in brackets.
    fn from_str(text: &str) -> Result<Route, Error> {
        let refuse = || {
            Error::usage(format!(
                "--connect-to {text}: HOST1:PORT1:HOST2:PORT2 is expected, each of which may be empty \
                 (example.org:443:127.0.0.1:8443)"
            ))
        };
        let mut rest = Some(text);
        let mut next = || -> Result<Option<&str>, Error> {
            let text = rest.ok_or_else(refuse)?;
            let (word, after) = match text.strip_prefix('[') {
                Some(inner) => {
                    let (address, after) = inner.split_once(']').ok_or_else(refuse)?;
                    if address.parse::<Ipv6Addr>().is_err() && split_zone(address).is_none() {
                        return Err(refuse());
                    }
                    (address, after)
                }
                None => text.split_at(text.find(':').unwrap_or(text.len())),
            };
            rest = match after.strip_prefix(':') {
                Some(after) => Some(after),
                None if after.is_empty() => None,
                None => return Err(refuse()),
            };
            Ok(Some(word).filter(|word| !word.is_empty()))
        };
        let port = |word: Option<&str>| match word.map(str::parse::<u16>) {
            None => Ok(None),
            Some(Ok(port @ 1..)) => Ok(Some(port)),
            Some(_) => Err(refuse()),
        };
        let host = next()?.map(str::to_owned);
        let from = port(next()?)?;
        let to = next()?.map(str::to_owned);
        let to_port = port(next()?)?;
        if rest.is_some() {
            return Err(refuse());
        }
        Ok(Route { host, port: from, to: Destination::Tcp(to, to_port) })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_route_sends_the_connections_of_one_server_elsewhere() {
        let target = |text: &str| text.parse::<Target>().unwrap();
        let tcp = |host: &str, port| Place::Tcp(host.to_owned(), port);
        for (route, url, place) in [
            ("a:80:b:81", "http://a/", tcp("b", 81)),
            ("A:80:b:81", "http://a/", tcp("b", 81)),
            ("a:80:b:81", "http://a:82/", tcp("a", 82)),
            ("a:80:b:81", "http://c/", tcp("c", 80)),
            ("::b:81", "http://c:7/", tcp("b", 81)),
            ("::b:", "http://c:7/", tcp("b", 7)),
            ("a:::9", "http://a/", tcp("a", 9)),
            ("[::1]:80:[::2]:81", "http://[::1]/", tcp("::2", 81)),
            ("::[fe80::1%eth0]:81", "http://a/", tcp("fe80::1%eth0", 81)),
        ] {
            assert_eq!(Place::of(&target(url), &[route.parse().unwrap()]), place, "{route}, {url}");
        }
        for text in
            ["", "a", "a:80", "a:80:b", "a:80:b:81:c", "a:x:b:81", "a:0:b:81", "[::1:80:b:81", "[x]:1:b:2"]
        {
            let error = text.parse::<Route>().unwrap_err();
            assert!(error.is_usage() && error.to_string().contains("HOST1:PORT1"), "{text}: {error}");
        }
        let unix = Route { host: None, port: None, to: Destination::Unix("/run/a.sock".into()) };
        let place = Place::of(&target("http://a/"), &[unix]);
        assert_eq!(place, Place::Unix("/run/a.sock".into()));
        assert_eq!(place.resolve().unwrap()[0].to_string(), "unix:/run/a.sock");
    }
}
