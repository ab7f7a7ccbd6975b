//! Socket options, as a closed list of values; multicast groups; and the credentials of a Unix socket's peer.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// A socket option with its value (`socket(7)`, `tcp(7)`, `ip(7)`, `ipv6(7)`). An option that the kind of
/// socket does not have fails with ENOPROTOOPT or EOPNOTSUPP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SocketOption {
    /// `TCP_NODELAY`: small segments are sent immediately. Inherited by accepted sockets.
    NoDelay(bool),
    /// `SO_REUSEADDR`: a listener may bind to an address with connections in TIME_WAIT.
    ReuseAddress(bool),
    /// `SO_REUSEPORT`: several listeners share the address, and the kernel spreads connections over them.
    ReusePort(bool),
    /// `SO_KEEPALIVE`.
    KeepAlive(bool),
    /// `SO_RCVBUF` in bytes. The kernel doubles the value that is set, and returns the doubled value.
    ReceiveBuffer(u32),
    /// `SO_SNDBUF` in bytes, doubled likewise.
    SendBuffer(u32),
    /// `SO_LINGER`: zero makes a close reset the connection. Other values are kept in whole seconds, rounded
    /// up, and have no effect: a close here does not wait for the peer, and the kernel goes on sending after
    /// it (`socket(7)`). To make sure that everything has arrived, shut down the sending side and receive to
    /// the end.
    Linger(Option<Duration>),
    /// `IPV6_V6ONLY`: an IPv6 listener takes no IPv4 connections.
    OnlyV6(bool),
    /// `SO_BROADCAST`: datagrams may be sent to broadcast addresses; otherwise that fails with EACCES.
    Broadcast(bool),
    /// `IP_TTL`, or `IPV6_UNICAST_HOPS`: maximum number of hops of a packet, `1..=255`.
    HopLimit(u32),
    /// `IP_MULTICAST_TTL`, or `IPV6_MULTICAST_HOPS`: the same for multicast datagrams, `0..=255`. The default
    /// 1 keeps them in the local network.
    MulticastHopLimit(u32),
    /// `IP_MULTICAST_LOOP`, or `IPV6_MULTICAST_LOOP`: the socket's own multicast datagrams are delivered on
    /// this machine too. On by default.
    MulticastLoop(bool),
    /// `IP_MULTICAST_IF`: the interface, by its address, that multicast datagrams leave by; `0.0.0.0`: chosen
    /// by the routing table.
    MulticastFrom(Ipv4Addr),
    /// `IP_BIND_ADDRESS_NO_PORT`, of IPv6 too: a bind to port 0 takes the address alone, and the port is
    /// chosen when the socket connects, so that one port serves connections to several peers. Without it, a
    /// source address allows only as many connections as there are ports, whatever their peers.
    BindAddressNoPort(bool),
}

impl SocketOption {
    /// Rounds SO_LINGER up to whole seconds: the kernel would truncate a fraction to zero, which means reset.
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

    /// Returns whether a close would wait for the peer.
    pub(crate) fn lingers(self) -> bool {
        matches!(self, SocketOption::Linger(Some(span)) if !span.is_zero())
    }

    /// Returns the kernel name of the option.
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
    /// Index of the interface; 0: chosen by the routing table.
    pub(crate) interface: u32,
    pub(crate) joins: bool,
}

/// Credentials of a process (`SO_PEERCRED`, `unix(7)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Credentials {
    /// Process id; 0 if the process is in another PID namespace.
    pub pid: u32,
    /// Effective user id.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
}

impl fmt::Display for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} of user {}, group {}", self.pid, self.uid, self.gid)
    }
}
