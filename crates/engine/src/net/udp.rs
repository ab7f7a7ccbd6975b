//! UDP: binding, connecting, sending to anybody, and multicast groups. The rest is in `datagram`.

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
/// A datagram may be lost, doubled or late; on one machine it is lost only where the receiver's buffer is full.
pub type UdpSocket = DatagramSocket<Inet>;

/// How a UDP socket is made.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct UdpOptions {
    /// `SO_REUSEADDR`: several sockets may have the address; each gets what goes to a multicast group, one of them what
    /// goes to the address alone.
    pub reuse_address: bool,
    /// `SO_REUSEPORT`: several sockets share the address, and the kernel spreads senders over them.
    pub reuse_port: bool,
    /// `IPV6_V6ONLY`; `None` leaves the system's setting.
    pub only_v6: Option<bool>,
}

impl UdpSocket {
    /// A socket of this address; port 0 lets the kernel choose.
    ///
    /// # Errors
    /// EADDRINUSE, EADDRNOTAVAIL, EACCES.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn bind(address: SocketAddr) -> Result<UdpSocket> {
        UdpSocket::bind_with(address, UdpOptions::default())
    }

    /// The same with options that count before it has its address.
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

    /// Sends to `peer` unless told otherwise, and takes datagrams of `peer` only, from now on. Datagrams that came
    /// before are still received. May be done again, for another peer. Nothing is sent, so nobody need be there.
    ///
    /// # Errors
    /// ENETUNREACH; EAFNOSUPPORT: of another version; EACCES: a broadcast address, without the option.
    pub fn connect(&self, peer: SocketAddr) -> Result<()> {
        let name = SockAddr::from(peer);
        let joined = self.socket().call(|on| Call::Join { on, address: &name });
        joined.map(|_| ()).map_err(|why| why.on(peer))
    }

    /// Sends `bytes` to `to`, as one datagram; gives the buffer back, sent or not.
    ///
    /// Done means that the kernel has taken it, not that anybody gets it. Dropping the future leaves it sent or not, and
    /// never a part of it.
    ///
    /// # Errors
    /// EMSGSIZE: too long, 65,507 bytes being the most on IPv4; ENETUNREACH, EACCES, EPERM; ECONNREFUSED of an earlier
    /// one on a connected socket; ECANCELED by a [`Canceller`](super::Canceller).
    pub fn send_to<B: IoBuf>(&mut self, bytes: B, to: SocketAddr) -> SendMessage<'_, Inet, B> {
        self.sender().send_to(bytes, to)
    }

    /// Receives what is sent to a multicast group on an interface, by its index (`if_nametoindex(3)`; 0: as the routes
    /// say). Bind to the port first, and to any address or to the group's; Linux gives a socket bound to any address
    /// also what goes to groups that others have joined (`IP_MULTICAST_ALL`, `ip(7)`).
    ///
    /// # Errors
    /// EINVAL: no group's address; ENODEV: no such interface, or no route; EADDRINUSE: joined already.
    pub fn join_multicast(&self, group: IpAddr, interface: u32) -> Result<()> {
        self.change_groups(Membership { group, interface, joins: true })
    }

    /// Ends that.
    ///
    /// # Errors
    /// EADDRNOTAVAIL: it is no member there.
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
    /// As [`UdpSocket::send_to`].
    pub fn send_to<B: IoBuf>(&mut self, bytes: B, to: SocketAddr) -> SendMessage<'_, Inet, B> {
        self.send_message(to, SockAddr::from(to), bytes)
    }
}
