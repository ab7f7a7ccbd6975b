//! Addresses of one server that cover each other.
//!
//! `0.0.0.0:80` and `[::]:80` in one configuration are one socket for each family, as in other servers. Other
//! addresses that overlap, in one configuration or in the one before a reload, are bound beside each other,
//! and the kernel prefers the more specific one: nothing has to be closed before it is certain that the new
//! one can be had. So `[::]:80` takes IPv4 as well beside `127.0.0.1:80`, at all other addresses.

use crate::config::Listen;
use ringroad_http::ListenAt;
use std::net::{IpAddr, SocketAddr};

/// Has each address for all of IPv6 take IPv6 only, if another one is for all of IPv4 at the same port.
pub(super) fn part_families<'l>(all: impl Iterator<Item = &'l mut Listen>) {
    let all: Vec<_> = all.collect();
    let all_of_v4 = |listen: &&mut Listen| {
        tcp(&listen.at).filter(|address| address.ip().to_canonical() == IpAddr::from([0; 4]))
    };
    let ports: Vec<u16> =
        all.iter().filter_map(all_of_v4).map(|address| address.port()).filter(|port| *port != 0).collect();
    for listen in all {
        listen.only_v6 = tcp(&listen.at)
            .is_some_and(|address| address.ip() == IpAddr::from([0; 16]) && ports.contains(&address.port()));
    }
}

fn tcp(at: &ListenAt) -> Option<SocketAddr> {
    match at {
        ListenAt::Tcp(address) => Some(*address),
        _ => None,
    }
}

/// The connections that a socket at an address takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reach {
    pub(super) address: SocketAddr,
    pub(super) only_v6: bool,
}

impl Reach {
    /// Those of a configured address; `None` where nothing overlaps it: a path, or a port that the kernel
    /// chooses.
    pub(super) fn of(listen: &Listen) -> Option<Reach> {
        let address = tcp(&listen.at).filter(|address| address.port() != 0)?;
        Some(Reach { address, only_v6: listen.only_v6 })
    }

    /// Returns whether a socket at one keeps one from the other, unless both allow it.
    pub(super) fn overlaps(&self, other: &Reach) -> bool {
        let (one, two) = (self.address.ip().to_canonical(), other.address.ip().to_canonical());
        let takes_all = |reach: &Reach, ip: IpAddr, family: IpAddr| {
            ip.is_unspecified() && (ip.is_ipv4() == family.is_ipv4() || (ip.is_ipv6() && !reach.only_v6))
        };
        self.address.port() == other.address.port()
            && (one == two || takes_all(self, one, two) || takes_all(other, two, one))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn listen(address: &str) -> Listen {
        Listen::plain(address.parse().unwrap())
    }

    #[test]
    fn all_of_ipv6_is_without_ipv4_where_all_of_that_is_listed() {
        for (all, only_v6) in [
            (&["0.0.0.0:80", "[::]:80"][..], &[false, true][..]),
            (&["[::]:80", "0.0.0.0:80"], &[true, false]),
            (&["[::]:80", "[::ffff:0.0.0.0]:80"], &[true, false]),
            (&["[::]:80", "127.0.0.1:80"], &[false, false]),
            (&["127.0.0.1:80", "[::]:80"], &[false, false]),
            (&["[::]:80", "127.0.0.1:80", "0.0.0.0:80"], &[true, false, false]),
            (&["[::]:80", "[::ffff:127.0.0.1]:80"], &[false, false]),
            (&["[::]:80"], &[false]),
            (&["[::]:80", "0.0.0.0:81"], &[false, false]),
            (&["[::]:80", "[::1]:80"], &[false, false]),
            (&["[::1]:80", "0.0.0.0:80"], &[false, false]),
            (&["[::]:0", "0.0.0.0:0"], &[false, false]),
            (&["unix:/a", "[::]:80"], &[false, false]),
        ] {
            let mut listens: Vec<Listen> = all.iter().map(|address| listen(address)).collect();
            part_families(listens.iter_mut());
            let told: Vec<bool> = listens.iter().map(|listen| listen.only_v6).collect();
            assert_eq!(told, only_v6, "{all:?}");
        }
    }

    #[test]
    fn addresses_overlap_where_a_socket_would_keep_another_away() {
        let reach = |address: &str, only_v6| Reach { address: address.parse().unwrap(), only_v6 };
        for (one, other, expected) in [
            ("0.0.0.0:80", "127.0.0.1:80", true),
            ("0.0.0.0:80", "127.0.0.1:81", false),
            ("127.0.0.1:80", "127.0.0.2:80", false),
            ("127.0.0.1:80", "127.0.0.1:80", true),
            ("[::]:80", "127.0.0.1:80", true),
            ("[::]:80", "0.0.0.0:80", true),
            ("[::]:80", "[::1]:80", true),
            ("[::1]:80", "127.0.0.1:80", false),
            ("[::1]:80", "0.0.0.0:80", false),
            ("[::ffff:127.0.0.1]:80", "0.0.0.0:80", true),
        ] {
            for (one, other) in [(one, other), (other, one)] {
                assert_eq!(reach(one, false).overlaps(&reach(other, false)), expected, "{one} {other}");
            }
        }
        let only_v6 = reach("[::]:80", true);
        for (other, expected) in
            [("127.0.0.1:80", false), ("0.0.0.0:80", false), ("[::1]:80", true), ("[::]:80", true)]
        {
            assert_eq!(only_v6.overlaps(&reach(other, false)), expected, "{other}");
            assert_eq!(reach(other, false).overlaps(&only_v6), expected, "{other}");
        }
    }
}
