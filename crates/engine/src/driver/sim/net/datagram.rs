//! Datagram sockets: UDP and Unix. A datagram arrives at once and in order. It is lost only where Linux loses
//! it on one machine: at a UDP socket with a full buffer (`net/ipv4/udp.c`, `net/unix/af_unix.c`). The driver
//! may decide another [`Fate`] for a UDP datagram, as a network does.

use super::address::{is_here, loopback};
use super::{Answer, Direction, Effect, Id, Network, State};
use crate::address::{Address, UnixAddr};
use crate::op::Domain;
use crate::option::Membership;
use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Maximum payload of a UDP datagram in bytes: 16 bits of length, less the headers.
const UDP_BYTES_MAX: usize = 65_535 - 8;
const UDP_V4_BYTES_MAX: usize = UDP_BYTES_MAX - 20;

/// `net.unix.max_dgram_qlen`; a queue holds one more.
const UNIX_QUEUE_MAX: usize = 10;

/// State of a datagram socket.
#[derive(Default)]
pub(super) struct Mailbox {
    peer: Option<Peer>,
    letters: VecDeque<Letter>,
    bytes: usize,
    /// Pending error: an errno, or 0. The next operation returns it once.
    pub(super) error: i32,
    pub(super) shut_in: bool,
    pub(super) shut_out: bool,
    groups: BTreeSet<IpAddr>,
}

/// The fate of a UDP datagram on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::driver::sim) enum Fate {
    Arrives,
    Lost,
    /// Delivered immediately, and again when the driver decides.
    Doubled,
    /// Delivered when the driver decides, so that others overtake it.
    Late,
}

/// A datagram that arrives when the driver decides.
pub(super) struct Underway {
    sender: Id,
    from: SocketAddr,
    to: SocketAddr,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Peer {
    Inet(SocketAddr),
    Unix(Id),
}

struct Letter {
    from: Option<Address>,
    bytes: Vec<u8>,
}

impl Mailbox {
    pub(super) fn has_something(&self) -> bool {
        !self.letters.is_empty() || self.error != 0 || self.shut_in
    }

    pub(super) fn is_connected(&self) -> bool {
        self.peer.is_some()
    }

    fn put(&mut self, from: Option<Address>, bytes: &[u8]) {
        self.bytes += bytes.len();
        self.letters.push_back(Letter { from, bytes: bytes.to_vec() });
    }
}

impl Network {
    fn mailbox(&mut self, id: Id) -> Option<&mut Mailbox> {
        match self.sockets.get_mut(id)?.as_mut()?.state {
            State::Datagrams(ref mut mailbox) => Some(mailbox),
            _ => None,
        }
    }

    /// Returns the default peer; an error if this is not a datagram socket.
    pub(super) fn mailbox_peer(&mut self, id: Id) -> Answer<Option<Address>> {
        let Some(mailbox) = self.mailbox(id) else { return Err(libc::ENOTCONN) };
        Ok(match mailbox.peer {
            None => None,
            Some(Peer::Inet(peer)) => Some(Address::Inet(peer)),
            Some(Peer::Unix(peer)) => {
                let name = self.sockets[peer].as_ref().map(|socket| socket.name.clone());
                Some(Address::Unix(name.unwrap_or(UnixAddr::UNNAMED)))
            }
        })
    }

    /// Makes two sockets each other's peers.
    pub(super) fn introduce(&mut self, one: Id, other: Id) {
        for (id, peer) in [(one, other), (other, one)] {
            if let Some(mailbox) = self.mailbox(id) {
                mailbox.peer = Some(Peer::Unix(peer));
            }
        }
    }

    pub(super) fn join_inet(&mut self, id: Id, to: SocketAddr) -> Answer<()> {
        self.check_destination(id, to)?;
        let local = self.sender(id)?;
        let to = if to.ip().is_unspecified() { SocketAddr::new(local.ip(), to.port()) } else { to };
        self.bind_to(id, local);
        if let Some(mailbox) = self.mailbox(id) {
            mailbox.peer = Some(Peer::Inet(to));
        }
        Ok(())
    }

    pub(super) fn join_mailbox(&mut self, id: Id, to: &UnixAddr) -> Answer<()> {
        let peer = self.reach(id, to)?;
        if let Some(mailbox) = self.mailbox(id) {
            mailbox.peer = Some(Peer::Unix(peer));
        }
        Ok(())
    }

    /// Returns the datagram socket of this name, if it accepts datagrams from `id`.
    fn reach(&mut self, id: Id, name: &UnixAddr) -> Answer<Id> {
        let to = self.named(name)?;
        let Some(mailbox) = self.mailbox(to) else { return Err(libc::EPROTOTYPE) };
        if mailbox.peer.is_some_and(|peer| peer != Peer::Unix(id)) { Err(libc::EPERM) } else { Ok(to) }
    }

    fn check_destination(&mut self, id: Id, to: SocketAddr) -> Answer<()> {
        let socket = self.socket(id);
        if socket.local.is_ipv4() != to.is_ipv4() {
            return Err(libc::EAFNOSUPPORT);
        }
        match to.ip() {
            IpAddr::V4(Ipv4Addr::BROADCAST) if !socket.options.broadcast => Err(libc::EACCES),
            ip if ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST) || is_here(ip) => Ok(()),
            _ => Err(libc::ENETUNREACH),
        }
    }

    /// Returns the source address of its datagrams; binds a port if it has none.
    fn sender(&mut self, id: Id) -> Answer<SocketAddr> {
        if !self.socket(id).bound {
            let mut any = self.socket(id).local;
            any.set_port(self.free_port().map_err(|_| libc::EAGAIN)?);
            self.bind_to(id, any);
        }
        let mut local = self.socket(id).local;
        if local.ip().is_unspecified() {
            local.set_ip(loopback(local.is_ipv4()));
        }
        Ok(local)
    }

    /// Sends a datagram; returns the number of bytes, or a negated errno.
    pub(in crate::driver::sim) fn send_message(
        &mut self,
        number: u32,
        to: Option<&Address>,
        bytes: &[u8],
        fate: Fate,
    ) -> i32 {
        let sent = self.id(number).and_then(|id| match self.socket(id).domain {
            Domain::Unix => self.send_unix(id, to, bytes),
            Domain::V4 | Domain::V6 => self.send_inet(id, to, bytes, fate),
        });
        match sent {
            Ok(()) => bytes.len() as i32,
            Err(errno) => -errno,
        }
    }

    fn send_inet(&mut self, id: Id, to: Option<&Address>, bytes: &[u8], fate: Fate) -> Answer<()> {
        let Some(mailbox) = self.mailbox(id) else { return Err(libc::EOPNOTSUPP) };
        if mailbox.error != 0 {
            return Err(std::mem::take(&mut mailbox.error));
        }
        if mailbox.shut_out {
            return Err(libc::EPIPE);
        }
        let peer = mailbox.peer;
        let to = match (to, peer) {
            (Some(Address::Inet(to)), _) => *to,
            (None, Some(Peer::Inet(to))) => to,
            (Some(Address::Unix(_)), _) => return Err(libc::EAFNOSUPPORT),
            (None, _) => return Err(libc::EDESTADDRREQ),
        };
        let most = if to.is_ipv4() { UDP_V4_BYTES_MAX } else { UDP_BYTES_MAX };
        if bytes.len() > most {
            return Err(libc::EMSGSIZE);
        }
        self.check_destination(id, to)?;
        let from = self.sender(id)?;
        let to = if to.ip().is_unspecified() { SocketAddr::new(from.ip(), to.port()) } else { to };
        if matches!(fate, Fate::Doubled | Fate::Late) {
            self.posted += 1;
            self.underway.insert(self.posted, Underway { sender: id, from, to, bytes: bytes.to_vec() });
            self.effects.push_back(Effect::Deliver(self.posted));
        }
        if matches!(fate, Fate::Arrives | Fate::Doubled) {
            self.deliver(id, from, to, bytes);
        }
        Ok(())
    }

    /// Delivers a datagram that was under way.
    pub(in crate::driver::sim) fn deliver_late(&mut self, which: u64) {
        if let Some(Underway { sender, from, to, bytes }) = self.underway.remove(&which) {
            self.deliver(sender, from, to, &bytes);
        }
    }

    /// Delivers a datagram to the socket that has its address now.
    fn deliver(&mut self, sender: Id, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        let many = to.ip().is_multicast() || to.ip() == IpAddr::V4(Ipv4Addr::BROADCAST);
        let takers: Vec<Id> = (0..self.sockets.len()).filter(|&other| self.takes(other, from, to)).collect();
        if takers.is_empty()
            && !many
            && let Some(mailbox) = self.mailbox(sender).filter(|mailbox| mailbox.peer.is_some())
        {
            // The effect of the ICMP reply: port unreachable.
            mailbox.error = libc::ECONNREFUSED;
            self.changed(sender, Direction::In);
            self.changed(sender, Direction::Out);
        }
        for taker in takers.into_iter().take(if many { usize::MAX } else { 1 }) {
            let room = self.socket(taker).options.receive_bytes;
            let Some(mailbox) = self.mailbox(taker) else { continue };
            if mailbox.letters.is_empty() || mailbox.bytes + bytes.len() <= room {
                mailbox.put(Some(Address::Inet(from)), bytes);
                self.changed(taker, Direction::In);
            }
        }
    }

    fn takes(&self, id: Id, from: SocketAddr, to: SocketAddr) -> bool {
        let Some(socket) = self.sockets[id].as_ref() else { return false };
        let State::Datagrams(mailbox) = &socket.state else { return false };
        let ip = socket.local.ip();
        let here = match to.ip() {
            group if group.is_multicast() => {
                mailbox.groups.contains(&group) && (ip.is_unspecified() || ip == group)
            }
            IpAddr::V4(Ipv4Addr::BROADCAST) => ip.is_unspecified(),
            to => ip.is_unspecified() || ip == to,
        };
        socket.domain != Domain::Unix
            && socket.bound
            && socket.local.port() == to.port()
            && socket.local.is_ipv4() == to.is_ipv4()
            && here
            && mailbox.peer.is_none_or(|peer| peer == Peer::Inet(from))
    }

    fn send_unix(&mut self, id: Id, to: Option<&Address>, bytes: &[u8]) -> Answer<()> {
        let room = self.socket(id).options.send_bytes;
        let name = self.socket(id).name.clone();
        let Some(mailbox) = self.mailbox(id) else { return Err(libc::EISCONN) };
        if mailbox.shut_out {
            return Err(libc::EPIPE);
        }
        let to = match (to, mailbox.peer) {
            (Some(Address::Unix(to)), _) => self.reach(id, to)?,
            (Some(Address::Inet(_)), _) => return Err(libc::EINVAL),
            (None, Some(Peer::Unix(peer))) => peer,
            (None, _) => return Err(libc::ENOTCONN),
        };
        if bytes.len() + 32 > room {
            return Err(libc::EMSGSIZE);
        }
        if self.is_full(id, to, bytes.len()) {
            return Err(libc::EAGAIN);
        }
        match self.mailbox(to) {
            // Reported once; afterwards the socket has no peer.
            None => {
                if let Some(mailbox) = self.mailbox(id) {
                    mailbox.peer = None;
                }
                Err(libc::ECONNREFUSED)
            }
            Some(mailbox) if mailbox.shut_in => Err(libc::EPIPE),
            Some(mailbox) => {
                mailbox.put((!name.is_unnamed()).then_some(Address::Unix(name)), bytes);
                self.changed(to, Direction::In);
                Ok(())
            }
        }
    }

    /// Returns whether `to` has no room for a datagram of so many bytes from `id`. Between mutual peers the
    /// sender's buffer decides, otherwise the length of the queue.
    fn is_full(&mut self, id: Id, to: Id, bytes: usize) -> bool {
        let room = self.socket(id).options.send_bytes;
        self.mailbox(to).is_some_and(|mailbox| match mailbox.peer {
            Some(peer) if peer == Peer::Unix(id) => {
                !mailbox.letters.is_empty() && mailbox.bytes + bytes > room
            }
            _ => mailbox.letters.len() > UNIX_QUEUE_MAX,
        })
    }

    /// Returns whether a send to the peer would not wait.
    pub(super) fn has_room_at_peer(&mut self, id: Id) -> bool {
        match self.mailbox(id).and_then(|mailbox| mailbox.peer) {
            Some(Peer::Unix(peer)) => !self.is_full(id, peer, 1),
            _ => true,
        }
    }

    /// Wakes senders that wait for room.
    pub(super) fn room_at_mailbox(&mut self, id: Id) {
        let waiting = |socket: &super::Socket| {
            let State::Datagrams(mailbox) = &socket.state else { return false };
            mailbox.peer == Some(Peer::Unix(id))
        };
        let waiting: Vec<Id> = (0..self.sockets.len())
            .filter(|&other| self.sockets[other].as_deref().is_some_and(waiting))
            .collect();
        for other in waiting {
            self.changed(other, Direction::Out);
        }
    }

    /// Receives one datagram, cut to the available room. Returns its whole length and the sender's name, or
    /// an errno.
    pub(in crate::driver::sim) fn receive_message(
        &mut self,
        number: u32,
        into: &mut [u8],
    ) -> Answer<(usize, Option<Address>)> {
        let id = self.id(number)?;
        let Some(mailbox) = self.mailbox(id) else { return Err(libc::EOPNOTSUPP) };
        if mailbox.error != 0 {
            return Err(std::mem::take(&mut mailbox.error));
        }
        let Some(Letter { from, bytes }) = mailbox.letters.pop_front() else {
            return if mailbox.shut_in { Ok((0, None)) } else { Err(libc::EAGAIN) };
        };
        mailbox.bytes -= bytes.len();
        let count = into.len().min(bytes.len());
        into[..count].copy_from_slice(&bytes[..count]);
        if self.socket(id).domain == Domain::Unix {
            self.room_at_mailbox(id);
        }
        Ok((bytes.len(), from))
    }

    pub(in crate::driver::sim) fn change_groups(&mut self, number: u32, change: Membership) -> Answer<()> {
        let id = self.id(number)?;
        let domain = self.socket(id).domain;
        let Membership { group, joins, .. } = change;
        let fits = match domain {
            Domain::V4 => group.is_ipv4(),
            Domain::V6 => group.is_ipv6(),
            Domain::Unix => return Err(libc::EOPNOTSUPP),
        };
        if !fits {
            return Err(libc::ENOPROTOOPT);
        }
        if !group.is_multicast() {
            return Err(libc::EINVAL);
        }
        let Some(mailbox) = self.mailbox(id) else { return Err(libc::EINVAL) };
        match joins {
            true if mailbox.groups.insert(group) => Ok(()),
            true => Err(libc::EADDRINUSE),
            false if mailbox.groups.remove(&group) => Ok(()),
            false => Err(libc::EADDRNOTAVAIL),
        }
    }
}
