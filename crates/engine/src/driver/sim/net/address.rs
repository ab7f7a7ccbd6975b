//! Addresses, listening and options: calls on a socket before it has a peer.

use super::{Answer, Id, Network, State};
use crate::address::Address;
use crate::op::Domain;
use crate::option::SocketOption;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

impl Network {
    pub(in crate::driver::sim) fn bind(&mut self, number: u32, address: &Address) -> Answer<()> {
        let id = self.id(number)?;
        let socket = self.socket(id);
        let address = match (socket.domain, address) {
            (Domain::Unix, Address::Unix(name)) => return self.bind_unix(id, name),
            (Domain::V4 | Domain::V6, Address::Inet(address)) => *address,
            _ => return Err(libc::EAFNOSUPPORT),
        };
        let datagrams = matches!(socket.state, State::Datagrams(_));
        if socket.bound || !(datagrams || matches!(socket.state, State::Fresh)) {
            return Err(libc::EINVAL);
        }
        if socket.local.is_ipv4() != address.is_ipv4() {
            return Err(libc::EAFNOSUPPORT);
        }
        // Only a datagram socket may bind to a multicast address.
        if !(is_here(address.ip()) || (datagrams && address.ip().is_multicast())) {
            return Err(libc::EADDRNOTAVAIL);
        }
        self.take_address(id, address)
    }

    fn take_address(&mut self, id: Id, mut address: SocketAddr) -> Answer<()> {
        if address.port() == 0 {
            address.set_port(self.free_port()?);
        } else if self.is_taken(id, address) {
            return Err(libc::EADDRINUSE);
        }
        self.bind_to(id, address);
        Ok(())
    }

    /// Finds a free port.
    pub(super) fn free_port(&mut self) -> Answer<u16> {
        for _ in 32_768..=u16::MAX {
            let port = self.next_port;
            self.next_port = port.checked_add(1).unwrap_or(32_768);
            if self.ports.get(&port).is_none_or(|count| *count == 0) {
                return Ok(port);
            }
        }
        Err(libc::EADDRINUSE)
    }

    /// Returns whether another socket prevents `id` from binding to this address. Accepted sockets do not
    /// count, as with SO_REUSEADDR.
    fn is_taken(&mut self, id: Id, address: SocketAddr) -> bool {
        let mine = self.socket(id).options;
        let datagrams = matches!(self.socket(id).state, State::Datagrams(_));
        self.sockets.iter().enumerate().any(|(other, socket)| {
            let Some(socket) = socket.as_ref().filter(|socket| other != id && socket.bound) else {
                return false;
            };
            let theirs = socket.options;
            let listening = matches!(socket.state, State::Listening { .. });
            let shared = (mine.reuse_port && theirs.reuse_port)
                || (mine.reuse_address && theirs.reuse_address && !listening);
            socket.domain != Domain::Unix
                && socket.local.port() == address.port()
                && matches!(socket.state, State::Datagrams(_)) == datagrams
                && !matches!(socket.state, State::Connected(_))
                && socket.local.is_ipv4() == address.is_ipv4()
                && (socket.local.ip() == address.ip()
                    || socket.local.ip().is_unspecified()
                    || address.ip().is_unspecified())
                && !shared
        })
    }

    pub(in crate::driver::sim) fn listen(&mut self, number: u32, backlog: i32) -> Answer<()> {
        let id = self.id(number)?;
        // A negative backlog means the maximum (listen(2)); somaxconn is 4096 since Linux 5.4.
        let wanted = usize::try_from(backlog).unwrap_or(4096).min(4096);
        match self.socket(id).state {
            State::Listening { ref mut backlog, .. } => {
                *backlog = wanted;
                self.let_in(id);
                return Ok(());
            }
            State::Fresh => {}
            _ => return Err(libc::EINVAL),
        }
        let domain = self.socket(id).domain;
        if !self.socket(id).bound {
            // A listening Unix socket needs a name, or no client could connect.
            if domain == Domain::Unix {
                return Err(libc::EINVAL);
            }
            let any = self.socket(id).local;
            self.take_address(id, any)?;
        }
        let local = self.socket(id).local;
        let mine = self.socket(id).options.reuse_port;
        let rival = self.sockets.iter().enumerate().any(|(other, socket)| {
            socket.as_ref().is_some_and(|socket| {
                other != id
                    && matches!(socket.state, State::Listening { .. })
                    && socket.local == local
                    && !(mine && socket.options.reuse_port)
            })
        });
        if rival && domain != Domain::Unix {
            return Err(libc::EADDRINUSE);
        }
        let (queue, knocking) = (VecDeque::new(), VecDeque::new());
        self.socket(id).state = State::Listening { queue, backlog: wanted, knocking };
        self.listening.insert(id);
        Ok(())
    }

    pub(in crate::driver::sim) fn set_option(&mut self, number: u32, option: SocketOption) -> Answer<()> {
        let id = self.id(number)?;
        let socket = self.socket(id);
        let ipv4 = socket.local.is_ipv4();
        if socket.domain == Domain::Unix && !is_of_any_socket(option) {
            return Err(libc::EOPNOTSUPP);
        }
        let datagrams = matches!(socket.state, State::Datagrams(_));
        let options = &mut socket.options;
        match option {
            SocketOption::NoDelay(_) if datagrams => return Err(libc::ENOPROTOOPT),
            SocketOption::HopLimit(0 | 256..) | SocketOption::MulticastHopLimit(256..) => {
                return Err(libc::EINVAL);
            }
            SocketOption::HopLimit(hops) => options.hops = hops,
            SocketOption::MulticastHopLimit(hops) => options.multicast_hops = hops,
            SocketOption::MulticastLoop(on) => options.multicast_loop = on,
            SocketOption::MulticastFrom(interface) => options.multicast_from = interface,
            SocketOption::BindAddressNoPort(on) => options.late_port = on,
            SocketOption::Broadcast(on) => options.broadcast = on,
            SocketOption::NoDelay(on) => options.no_delay = on,
            SocketOption::ReuseAddress(on) => options.reuse_address = on,
            SocketOption::ReusePort(on) => options.reuse_port = on,
            SocketOption::KeepAlive(on) => options.keep_alive = on,
            // Doubled, with a minimum for each direction (socket(7)).
            SocketOption::ReceiveBuffer(bytes) => options.receive_bytes = (bytes as usize * 2).max(2304),
            SocketOption::SendBuffer(bytes) => options.send_bytes = (bytes as usize * 2).max(4608),
            SocketOption::Linger(span) => options.linger = span,
            SocketOption::OnlyV6(_) if ipv4 => return Err(libc::ENOPROTOOPT),
            SocketOption::OnlyV6(on) => options.only_v6 = on,
        }
        Ok(())
    }

    pub(in crate::driver::sim) fn option(
        &mut self,
        number: u32,
        option: SocketOption,
    ) -> Answer<SocketOption> {
        let id = self.id(number)?;
        let socket = self.socket(id);
        if socket.domain == Domain::Unix && !is_of_any_socket(option) {
            return Err(libc::EOPNOTSUPP);
        }
        let options = &socket.options;
        let bytes = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        Ok(match option {
            SocketOption::NoDelay(_) => SocketOption::NoDelay(options.no_delay),
            SocketOption::ReuseAddress(_) => SocketOption::ReuseAddress(options.reuse_address),
            SocketOption::ReusePort(_) => SocketOption::ReusePort(options.reuse_port),
            SocketOption::KeepAlive(_) => SocketOption::KeepAlive(options.keep_alive),
            SocketOption::ReceiveBuffer(_) => SocketOption::ReceiveBuffer(bytes(options.receive_bytes)),
            SocketOption::SendBuffer(_) => SocketOption::SendBuffer(bytes(options.send_bytes)),
            SocketOption::Linger(_) => SocketOption::Linger(options.linger),
            SocketOption::OnlyV6(_) if socket.local.is_ipv4() => return Err(libc::ENOPROTOOPT),
            SocketOption::OnlyV6(_) => SocketOption::OnlyV6(options.only_v6),
            SocketOption::Broadcast(_) => SocketOption::Broadcast(options.broadcast),
            SocketOption::HopLimit(_) => SocketOption::HopLimit(options.hops),
            SocketOption::MulticastHopLimit(_) => SocketOption::MulticastHopLimit(options.multicast_hops),
            SocketOption::MulticastLoop(_) => SocketOption::MulticastLoop(options.multicast_loop),
            SocketOption::MulticastFrom(_) => SocketOption::MulticastFrom(options.multicast_from),
            SocketOption::BindAddressNoPort(_) => SocketOption::BindAddressNoPort(options.late_port),
        })
    }

    pub(in crate::driver::sim) fn local_name(&mut self, number: u32) -> Answer<Address> {
        let id = self.id(number)?;
        let socket = self.socket(id);
        Ok(match socket.domain {
            Domain::Unix => Address::Unix(socket.name.clone()),
            Domain::V4 | Domain::V6 => Address::Inet(socket.local),
        })
    }

    pub(in crate::driver::sim) fn peer_name(&mut self, number: u32) -> Answer<Address> {
        let id = self.id(number)?;
        match &self.socket(id).state {
            State::Connected(stream) if !stream.dead => Ok(stream.peer_name.clone()),
            State::Datagrams(_) => self.mailbox_peer(id)?.ok_or(libc::ENOTCONN),
            _ => Err(libc::ENOTCONN),
        }
    }
}

/// Returns whether sockets of every family have the option (`socket(7)`).
fn is_of_any_socket(option: SocketOption) -> bool {
    matches!(
        option,
        SocketOption::ReuseAddress(_)
            | SocketOption::ReusePort(_)
            | SocketOption::KeepAlive(_)
            | SocketOption::ReceiveBuffer(_)
            | SocketOption::SendBuffer(_)
            | SocketOption::Linger(_)
            | SocketOption::Broadcast(_)
    )
}

pub(super) fn loopback(ipv4: bool) -> IpAddr {
    if ipv4 { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { IpAddr::V6(Ipv6Addr::LOCALHOST) }
}

pub(super) fn is_here(ip: IpAddr) -> bool {
    ip.is_loopback() || ip.is_unspecified()
}

/// Returns the IPv4-mapped IPv6 address.
pub(super) fn as_v6(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) => SocketAddr::new(IpAddr::V6(ip.to_ipv6_mapped()), address.port()),
        IpAddr::V6(_) => address,
    }
}
