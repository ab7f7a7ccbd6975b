//! UDP: bind, connect, send to any address, multicast groups. The rest is in `datagram`.

use super::datagram::{DatagramSender, DatagramSocket, SendMessage};
use super::family::Inet;
use super::socket::Socket;
use super::{SocketOption, tcp};
use crate::address::Address;
use crate::buf::IoBuf;
use crate::error::{Error, Result};
use crate::exec::Core;
use crate::op::{Call, Carries};
use crate::option::Membership;
use socket2::SockAddr;
use std::net::{IpAddr, SocketAddr};

/// A UDP socket (`udp(7)`).
///
/// A datagram may be lost, duplicated or late. On one machine it is lost only if the receiver's buffer is
/// full.
pub type UdpSocket = DatagramSocket<Inet>;

/// Options for creating a UDP socket.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct UdpOptions {
    /// `SO_REUSEADDR`: several sockets may bind to the address. Each receives multicast datagrams; one of
    /// them receives unicast datagrams.
    pub reuse_address: bool,
    /// `SO_REUSEPORT`: several sockets share the address, and the kernel spreads senders over them.
    pub reuse_port: bool,
    /// `IPV6_V6ONLY`; `None` leaves the system's setting.
    pub only_v6: Option<bool>,
}

impl UdpSocket {
    /// Creates a socket bound to this address; with port 0 the kernel chooses a port.
    ///
    /// # Errors
    /// EADDRINUSE, EADDRNOTAVAIL, EACCES.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn bind(address: SocketAddr) -> Result<UdpSocket> {
        UdpSocket::bind_with(address, UdpOptions::default())
    }

    /// Creates a socket with options that apply before it is bound.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn bind_with(address: SocketAddr, options: UdpOptions) -> Result<UdpSocket> {
        let core = Core::current("UdpSocket::bind");
        let socket = Socket::new(core, &Address::Inet(address), Carries::Datagrams);
        let socket = socket.map_err(|why| why.on(address))?;
        if options.reuse_address {
            socket.set(SocketOption::ReuseAddress(true))?;
        }
        if options.reuse_port {
            socket.set(SocketOption::ReusePort(true))?;
        }
        if let Some(only_v6) = options.only_v6.filter(|_| address.is_ipv6()) {
            socket.set(SocketOption::OnlyV6(only_v6))?;
        }
        tcp::bind(&socket, address)?;
        Ok(DatagramSocket::new(socket))
    }

    /// Sets the default destination, and from now on receives datagrams of `peer` only. Datagrams that
    /// arrived earlier are still received. May be repeated for another peer. Sends nothing, so the peer need
    /// not exist.
    ///
    /// # Errors
    /// ENETUNREACH; EAFNOSUPPORT: the peer has the other IP version; EACCES: a broadcast address without the
    /// option.
    pub fn connect(&self, peer: SocketAddr) -> Result<()> {
        let name = SockAddr::from(peer);
        let joined = self.socket().call(|on| Call::Join { on, address: &name });
        joined.map(|_| ()).map_err(|why| why.on(peer))
    }

    /// Sends `bytes` to `to` as one datagram; returns the buffer, also on an error.
    ///
    /// Success means that the kernel has taken the datagram, not that a socket receives it. If the future is
    /// dropped, the datagram was sent whole or not at all.
    ///
    /// # Errors
    /// EMSGSIZE: too long (IPv4: at most 65,507 bytes); ENETUNREACH, EACCES, EPERM; ECONNREFUSED: an earlier
    /// datagram on a connected socket was refused; ECANCELED by a [`Canceller`](super::Canceller).
    pub fn send_to<B: IoBuf>(&mut self, bytes: B, to: SocketAddr) -> SendMessage<'_, Inet, B> {
        self.sender().send_to(bytes, to)
    }

    /// Joins a multicast group on an interface, given by its index (`if_nametoindex(3)`; 0: chosen by the
    /// routing table). Bind to the port first, with the wildcard or the group's address. Linux also delivers
    /// to a socket bound to the wildcard address what goes to groups that other sockets have joined
    /// (`IP_MULTICAST_ALL`, `ip(7)`).
    ///
    /// # Errors
    /// EINVAL: not a multicast address; ENODEV: no such interface, or no route; EADDRINUSE: joined already.
    pub fn join_multicast(&self, group: IpAddr, interface: u32) -> Result<()> {
        self.change_groups(Membership { group, interface, joins: true })
    }

    /// Leaves a multicast group.
    ///
    /// # Errors
    /// EADDRNOTAVAIL: not a member.
    pub fn leave_multicast(&self, group: IpAddr, interface: u32) -> Result<()> {
        self.change_groups(Membership { group, interface, joins: false })
    }

    fn change_groups(&self, membership: Membership) -> Result<()> {
        if !membership.group.is_multicast() {
            let error = Error::errno("setsockopt", libc::EINVAL).on(membership.group);
            return Err(error.hint("groups are 224.0.0.0/4 and ff00::/8"));
        }
        self.socket().change_groups(membership)
    }
}

impl DatagramSender<Inet> {
    /// Works as [`UdpSocket::send_to`].
    pub fn send_to<B: IoBuf>(&mut self, bytes: B, to: SocketAddr) -> SendMessage<'_, Inet, B> {
        self.send_message(to, SockAddr::from(to), bytes)
    }
}
