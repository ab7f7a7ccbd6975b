//! Socket options, as a closed list of values; and what else a socket is told or asked: multicast groups, and who its
//! peer is.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// An option of a socket with its value (`socket(7)`, `tcp(7)`, `ip(7)`, `ipv6(7)`). One that a kind of socket does not
/// have is ENOPROTOOPT or EOPNOTSUPP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SocketOption {
    /// `TCP_NODELAY`: small segments leave at once. Inherited by accepted sockets.
    NoDelay(bool),
    /// `SO_REUSEADDR`: a listener may take an address that old connections still linger on.
    ReuseAddress(bool),
    /// `SO_REUSEPORT`: several listeners share the address, and the kernel spreads connections over them.
    ReusePort(bool),
    /// `SO_KEEPALIVE`.
    KeepAlive(bool),
    /// `SO_RCVBUF` in bytes. The kernel doubles what is set and tells the doubled value.
    ReceiveBuffer(u32),
    /// `SO_SNDBUF` in bytes, doubled likewise.
    SendBuffer(u32),
    /// `SO_LINGER`: zero makes a close reset the connection. More is kept in whole seconds, rounded up, and makes no
    /// difference: a close here waits for no peer, and the kernel goes on sending after it as it would have meanwhile
    /// (`socket(7)`). To know that everything has arrived, shut the sending side down and receive to the end.
    Linger(Option<Duration>),
    /// `IPV6_V6ONLY`: an IPv6 listener takes no IPv4 connections.
    OnlyV6(bool),
    /// `SO_BROADCAST`: datagrams may go to broadcast addresses; without, that is EACCES.
    Broadcast(bool),
    /// `IP_TTL`, or `IPV6_UNICAST_HOPS`: routers a packet may pass, `1..=255`.
    HopLimit(u32),
    /// `IP_MULTICAST_TTL`, or `IPV6_MULTICAST_HOPS`: the same for a multicast datagram, `0..=255`; 1 unless set, so
    /// that it stays in its network.
    MulticastHopLimit(u32),
    /// `IP_MULTICAST_LOOP`, or `IPV6_MULTICAST_LOOP`: our own multicast datagrams come to this machine too; so unless
    /// set.
    MulticastLoop(bool),
    /// `IP_MULTICAST_IF`: the interface, by its address, that multicast datagrams leave by; `0.0.0.0`: as the routes
    /// say.
    MulticastFrom(Ipv4Addr),
    /// `IP_BIND_ADDRESS_NO_PORT`, of IPv6 too: a bind to port 0 takes the address alone, and the port is chosen when the
    /// socket connects, so that one port serves connections to several peers. Without it, a source address has as many
    /// connections as ports, whomever they go to.
    BindAddressNoPort(bool),
}

impl SocketOption {
    /// As the kernel can keep it: a part of a second would be none at all, which resets.
    pub(crate) fn rounded(self) -> SocketOption {
        match self {
            SocketOption::Linger(Some(span)) => {
                let seconds = span.as_secs().saturating_add(u64::from(span.subsec_nanos() > 0));
                // The kernel takes an int.
                SocketOption::Linger(Some(Duration::from_secs(seconds.min(i32::MAX as u64))))
            }
            other => other,
        }
    }

    /// Whether a close would wait for the peer.
    pub(crate) fn lingers(self) -> bool {
        matches!(self, SocketOption::Linger(Some(span)) if !span.is_zero())
    }

    /// The option's kernel name.
    pub const fn name(self) -> &'static str {
        match self {
            SocketOption::NoDelay(_) => "TCP_NODELAY",
            SocketOption::ReuseAddress(_) => "SO_REUSEADDR",
            SocketOption::ReusePort(_) => "SO_REUSEPORT",
            SocketOption::KeepAlive(_) => "SO_KEEPALIVE",
            SocketOption::ReceiveBuffer(_) => "SO_RCVBUF",
            SocketOption::SendBuffer(_) => "SO_SNDBUF",
            SocketOption::Linger(_) => "SO_LINGER",
            SocketOption::OnlyV6(_) => "IPV6_V6ONLY",
            SocketOption::Broadcast(_) => "SO_BROADCAST",
            SocketOption::HopLimit(_) => "IP_TTL",
            SocketOption::MulticastHopLimit(_) => "IP_MULTICAST_TTL",
            SocketOption::MulticastLoop(_) => "IP_MULTICAST_LOOP",
            SocketOption::MulticastFrom(_) => "IP_MULTICAST_IF",
            SocketOption::BindAddressNoPort(_) => "IP_BIND_ADDRESS_NO_PORT",
        }
    }
}

/// A change of a socket's multicast groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Membership {
    pub(crate) group: IpAddr,
    /// Index of the interface; 0: as the routes say.
    pub(crate) interface: u32,
    pub(crate) joins: bool,
}

/// Who a process is (`SO_PEERCRED`, `unix(7)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Credentials {
    /// Its number; 0 if it is in another PID namespace.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

impl fmt::Display for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} of user {}, group {}", self.pid, self.uid, self.gid)
    }
}
