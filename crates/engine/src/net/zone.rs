//! Addresses as text, with the zone of an IPv6 address: `fe80::1%eth0` (RFC 4007 §11).
//!
//! A link-local address names an interface by its index, which a text gives as a number or as a name. In a
//! URL the percent sign is itself escaped: `[fe80::1%25eth0]` (RFC 6874), and the bare form is common.

use crate::error::{Error, Result};
use std::ffi::CString;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Takes an IPv6 address with a zone apart: `fe80::1%eth0`, or `fe80::1%25eth0` as in a URL, without
/// brackets. `None`: it is none, or has no zone.
///
/// The zone is of this machine: it is never sent (RFC 6874 §4).
///
/// ```
/// use ringroad_engine::net::split_zone;
///
/// let address = "fe80::1".parse().unwrap();
/// assert_eq!(split_zone("fe80::1%eth0"), Some((address, "eth0")));
/// assert_eq!(split_zone("fe80::1%25eth0"), Some((address, "eth0")));
/// assert_eq!(split_zone("fe80::1"), None);
/// ```
pub fn split_zone(text: &str) -> Option<(Ipv6Addr, &str)> {
    let (address, zone) = text.split_once('%')?;
    // In a URL the sign stands as %25. `%25` alone is the interface of that index.
    let zone = zone.strip_prefix("25").filter(|rest| !rest.is_empty()).unwrap_or(zone);
    let is_zone =
        !zone.is_empty() && zone.bytes().all(|byte| byte.is_ascii_graphic() && !b"/[]%".contains(&byte));
    if is_zone { Some((address.parse().ok()?, zone)) } else { None }
}

/// Reads an address without brackets, of IPv4 or of IPv6, also with a zone. `None`: it is something else, as
/// a name.
///
/// # Errors
/// ENODEV: the zone is no interface of this machine.
pub fn literal(host: &str, port: u16) -> Option<Result<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Some(Ok(SocketAddr::new(address, port)));
    }
    let (address, zone) = split_zone(host)?;
    let with_index = |index| SocketAddr::V6(SocketAddrV6::new(address, port, 0, index));
    Some(index_of(zone).map(with_index).map_err(|why| {
        let why = Error::new("if_nametoindex", why).on(format!("{address}%{zone}"));
        why.hint("behind the percent sign stands an interface of this machine, by its name or its index: see `ip link`")
    }))
}

/// Reads an address with its port, of IPv6 in brackets and also with a zone: `[fe80::1%eth0]:80`. `None`: it
/// is something else, as a name with a port.
///
/// # Errors
/// As of [`literal`].
pub fn literal_with_port(text: &str) -> Option<Result<SocketAddr>> {
    if let Ok(address) = text.parse() {
        return Some(Ok(address));
    }
    let (host, port) = text.strip_prefix('[')?.split_once("]:")?;
    split_zone(host)?;
    literal(host, port.parse().ok()?)
}

/// Returns the index of an interface.
fn index_of(zone: &str) -> io::Result<u32> {
    if let Ok(index) = zone.parse::<u32>() {
        return Ok(index);
    }
    let name = CString::new(zone).map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))?;
    // SAFETY: the name ends with a zero byte and lives until the call returns, which keeps nothing of it.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_zone_is_a_number_or_the_name_of_an_interface() {
        let loopback = index_of("lo").unwrap();
        for (text, index) in [
            ("fe80::1%lo", loopback),
            ("fe80::1%25lo", loopback),
            ("fe80::1%3", 3),
            ("fe80::1%253", 3),
            ("fe80::1%25", 25),
            ("::1", 0),
        ] {
            match literal(text, 80).unwrap().unwrap() {
                SocketAddr::V6(address) => {
                    assert_eq!((address.scope_id(), address.port()), (index, 80), "{text}")
                }
                other => panic!("{text}: {other}"),
            }
        }
        assert_eq!(literal("127.0.0.1", 7).unwrap().unwrap(), "127.0.0.1:7".parse().unwrap());
        for text in
            ["a", "fe80::1%", "127.0.0.1%lo", "fe80::1%a b", "fe80::1%a/b", "a%lo", "[fe80::1%lo]", ""]
        {
            assert!(literal(text, 80).is_none(), "{text}");
        }
        assert_eq!(literal_with_port("[fe80::1%3]:8").unwrap().unwrap(), "[fe80::1%3]:8".parse().unwrap());
        assert_eq!(
            literal_with_port("[fe80::1%25lo]:8").unwrap().unwrap(),
            literal("fe80::1%lo", 8).unwrap().unwrap()
        );
        for text in ["fe80::1%lo:8", "[127.0.0.1]:8", "[fe80::1%lo]", "[fe80::1%lo]:x", "a:8", "[a]:8"] {
            assert!(literal_with_port(text).is_none(), "{text}");
        }
        let missing = literal("fe80::1%no-such-one", 80).unwrap().unwrap_err();
        assert_eq!(missing.raw_os_error(), Some(libc::ENODEV));
        assert!(missing.to_string().contains("fe80::1%no-such-one"), "{missing}");
    }
}
