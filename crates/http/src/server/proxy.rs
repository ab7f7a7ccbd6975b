//! PROXY headers: connections from listed addresses begin with the client's address, as a balancer reports
//! it.
//!
//! The parser is [`ringroad_wire::proxy`]. A listed peer must send the header. From any other address, such a
//! header is an invalid request.

use super::connection::{Connection, serve as serve_http};
use super::refused::Reason;
use super::seats::Waits;
use crate::counters::add;
use crate::message::ConnectionInfo;
use ringroad_engine::spawn;
use ringroad_wire::proxy::{ProxyError, parse};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// A network of addresses, as `10.0.0.0/8`, `2001:db8::/32`, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// Returns whether the network contains the address. An IPv4-mapped IPv6 address is the IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                network.to_bits() & mask == address.to_bits() & mask
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
                network.to_bits() & mask == address.to_bits() & mask
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Network, String> {
        let wrong = || format!("{text:?}: not an address or network (give one as 10.0.0.0/8 or 2001:db8::1)");
        let (address, bits) =
            text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address = address.parse::<IpAddr>().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => most,
            Some(bits) => bits.parse().ok().filter(|bits| *bits <= most).ok_or_else(wrong)?,
        };
        Ok(Network { address, bits })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// Serves a connection that begins with a PROXY header.
pub(super) async fn serve(mut connection: Connection, peer: SocketAddr) {
    if receive(&mut connection, peer).await {
        // A task of its own, so that the memory of this one is freed before the connection ends.
        spawn(serve_http(connection)).detach();
    }
}

/// Receives the header. Returns `false` if there was none.
pub(super) async fn receive(connection: &mut Connection, peer: SocketAddr) -> bool {
    let mut bytes = Vec::new();
    connection.wait_for(Waits::Head);
    loop {
        match connection.stream.recv().await {
            Ok(lease) if !lease.is_empty() => {
                add(&connection.guard.worker.counts().bytes_in, lease.len() as u64);
                bytes.extend_from_slice(&lease);
            }
            // The peer only checked whether the port is open.
            _ if bytes.is_empty() => return false,
            _ => return refuse(connection, ProxyError::Missing, &bytes),
        }
        match parse(&bytes) {
            Ok(None) => {}
            Ok(Some(header)) => {
                let (client, server) = header.addresses.map_or((peer, None), |(from, to)| (from, Some(to)));
                let info = ConnectionInfo { client: Some(client), server, peer: Some(peer), tls: None };
                let guard = &connection.guard;
                guard.worker.seats.set_info(guard.seat, info);
                if !guard.worker.admit(guard.seat, client) {
                    return false;
                }
                bytes.drain(..header.bytes);
                connection.starved = bytes.is_empty();
                connection.carry.keep(bytes, 0);
                connection.wait_for(Waits::Request);
                return true;
            }
            Err(why) => return refuse(connection, why, &bytes),
        }
    }
}

/// Closes without an answer: the balancer is misconfigured, and its client would take an answer for the
/// site's.
fn refuse(connection: &Connection, why: ProxyError, bytes: &[u8]) -> bool {
    let guard = &connection.guard;
    add(&guard.worker.counts().refused, 1);
    guard.worker.tell_refused(guard.seat, None, Reason::ProxyLine(why), bytes);
    false
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_network_contains_its_addresses_and_no_others() {
        let contains = |network: &str, address: &str| {
            network.parse::<Network>().unwrap().contains(address.parse().unwrap())
        };
        assert!(contains("10.0.0.0/8", "10.255.0.1") && !contains("10.0.0.0/8", "11.0.0.1"));
        assert!(contains("127.0.0.1", "127.0.0.1") && !contains("127.0.0.1", "127.0.0.2"));
        assert!(contains("127.0.0.1", "::ffff:127.0.0.1"), "a socket that listens on [::]");
        assert!(contains("2001:db8::/32", "2001:db8:1::2") && !contains("2001:db8::/32", "2001:db9::"));
        assert!(contains("0.0.0.0/0", "1.2.3.4") && !contains("0.0.0.0/0", "::1"));
        for wrong in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "10.0.0.0/", "a"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
    }
}
