//! The simulated network: the sockets of one machine, loopback only. This file has streams, mainly TCP; the
//! rest is in [`datagram`] and [`unix`].
//!
//! This module models the state of a kernel. The driver decides when things happen and which faults occur.
//! Calls change sockets and leave [`Effect`]s, which the driver carries out later and in any order:
//! [`Network::shake`], [`Network::carry`], [`Network::reset`], [`Network::deliver_late`]. Addresses and
//! options are in [`address`].
//!
//! The model follows Linux: `net/ipv4/tcp.c` for the order in which a receive looks at data, end and error
//! (`tcp_recvmsg_locked`) and what a close with unread data does (`__tcp_close`), `tcp_input.c` for what a
//! reset leaves behind (`tcp_reset`). Not modelled: loss, urgent data, TIME_WAIT, addresses beyond the
//! loopback ones.

mod address;
mod datagram;
mod unix;

use crate::address::{Address, UnixAddr};
use crate::op::{Carries, Domain};
use address::{as_v6, is_here, loopback};
pub(super) use datagram::Fate;
use datagram::{Mailbox, Underway};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr};

/// Number of a socket, with or without a descriptor. Never reused, so that late effects reach no other
/// socket.
pub(super) type Id = usize;

/// The two directions in which operations wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// Receive and accept.
    In,
    /// Send and connect.
    Out,
}

/// A delayed effect of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// A connecting socket's first segment reaches the listener.
    Shake(Id),
    /// Bytes that this socket sent advance to its peer.
    Carry(Id),
    /// A reset reaches this socket.
    Reset(Id),
    /// This datagram arrives.
    Deliver(u64),
    /// An operation on this descriptor may advance.
    Changed(u32, Direction),
}

pub(super) struct Network {
    sockets: Vec<Option<Box<Socket>>>,
    /// Sockets, by descriptor number.
    descriptors: Vec<Option<Id>>,
    /// Free numbers below the highest one in use.
    free: BTreeSet<u32>,
    /// Listening sockets, so that a connect does not search all sockets.
    listening: BTreeSet<Id>,
    /// Number of bound sockets per port.
    ports: HashMap<u16, u32>,
    /// Unix sockets by name, including closed ones with a remaining file.
    names: BTreeMap<UnixAddr, Id>,
    descriptors_max: usize,
    buffer_bytes: usize,
    next_port: u16,
    /// Datagrams that have not arrived yet.
    underway: BTreeMap<u64, Underway>,
    posted: u64,
    pub(super) effects: VecDeque<Effect>,
}

struct Socket {
    /// `None` before it is accepted, and after its close.
    descriptor: Option<u32>,
    domain: Domain,
    /// Address of an inet socket.
    local: SocketAddr,
    /// Name of a Unix socket.
    name: UnixAddr,
    bound: bool,
    options: Options,
    state: State,
}

#[derive(Clone, Copy)]
struct Options {
    no_delay: bool,
    /// `IP_BIND_ADDRESS_NO_PORT`, which has no effect here: no test uses up the ports.
    late_port: bool,
    reuse_address: bool,
    reuse_port: bool,
    keep_alive: bool,
    receive_bytes: usize,
    send_bytes: usize,
    linger: Option<std::time::Duration>,
    only_v6: bool,
    broadcast: bool,
    hops: u32,
    multicast_hops: u32,
    multicast_loop: bool,
    multicast_from: Ipv4Addr,
}

enum State {
    Fresh,
    Listening {
        queue: VecDeque<Id>,
        backlog: usize,
        /// Connecting sockets that wait because the queue is full.
        knocking: VecDeque<Id>,
    },
    Connecting(SocketAddr),
    /// The connect failed with this errno, which was not reported yet.
    Refused(i32),
    Connected(Stream),
    /// A datagram socket.
    Datagrams(Mailbox),
}

struct Stream {
    peer: Option<Id>,
    peer_name: Address,
    /// `connect` has returned success.
    told: bool,
    arrived: VecDeque<u8>,
    leaving: VecDeque<u8>,
    /// An [`Effect::Carry`] of this socket is pending.
    carrying: bool,
    /// Sending is shut down: nothing follows `leaving`.
    shut_out: bool,
    /// The end of the stream has reached the peer.
    end_carried: bool,
    shut_in: bool,
    /// The end of the peer's stream has arrived.
    ended: bool,
    /// Pending error: an errno, or 0. The next operation returns it once.
    error: i32,
    /// A reset has arrived.
    dead: bool,
}

impl Stream {
    fn to(peer: Id, peer_name: Address) -> Stream {
        Stream {
            peer: Some(peer),
            peer_name,
            told: false,
            arrived: VecDeque::new(),
            leaving: VecDeque::new(),
            carrying: false,
            shut_out: false,
            end_carried: false,
            shut_in: false,
            ended: false,
            error: 0,
            dead: false,
        }
    }

    fn has_something_to_carry(&self) -> bool {
        !self.dead && (!self.leaving.is_empty() || (self.shut_out && !self.end_carried))
    }
}

/// An errno, positive.
type Answer<T> = Result<T, i32>;

impl Network {
    pub(super) fn new(descriptors_max: usize, buffer_bytes: usize) -> Network {
        Network {
            sockets: Vec::new(),
            descriptors: Vec::new(),
            free: BTreeSet::new(),
            listening: BTreeSet::new(),
            ports: HashMap::new(),
            names: BTreeMap::new(),
            descriptors_max,
            buffer_bytes,
            next_port: 32_768,
            underway: BTreeMap::new(),
            posted: 0,
            effects: VecDeque::new(),
        }
    }

    // ---- descriptors --------------------------------------------------------------------------------------

    /// Gives a socket the lowest free descriptor number.
    fn name(&mut self, id: Id) -> Answer<u32> {
        let free = self.free.first().map_or(self.descriptors.len(), |number| *number as usize);
        if free >= self.descriptors_max {
            return Err(libc::EMFILE);
        }
        if free == self.descriptors.len() {
            self.descriptors.push(None);
        }
        self.free.remove(&(free as u32));
        self.descriptors[free] = Some(id);
        self.socket(id).descriptor = Some(free as u32);
        Ok(free as u32)
    }

    fn id(&self, number: u32) -> Answer<Id> {
        self.descriptors.get(number as usize).copied().flatten().ok_or(libc::EBADF)
    }

    fn socket(&mut self, id: Id) -> &mut Socket {
        self.sockets[id].as_mut().expect("descriptors, queues and peers name sockets that exist")
    }

    /// Returns the stream of a connected socket that still exists.
    fn stream(&mut self, id: Id) -> Option<&mut Stream> {
        match self.sockets.get_mut(id)?.as_mut()?.state {
            State::Connected(ref mut stream) => Some(stream),
            _ => None,
        }
    }

    fn add(&mut self, socket: Socket) -> Id {
        if socket.bound && socket.domain != Domain::Unix {
            *self.ports.entry(socket.local.port()).or_default() += 1;
        }
        self.sockets.push(Some(Box::new(socket)));
        self.sockets.len() - 1
    }

    /// Removes a socket.
    fn remove(&mut self, id: Id) {
        let Some(socket) = self.sockets[id].take() else { return };
        if socket.bound
            && socket.domain != Domain::Unix
            && let Some(count) = self.ports.get_mut(&socket.local.port())
        {
            *count -= 1;
        }
    }

    /// Records the address of a socket.
    fn bind_to(&mut self, id: Id, local: SocketAddr) {
        let socket = self.socket(id);
        socket.local = local;
        if !std::mem::replace(&mut socket.bound, true) {
            *self.ports.entry(local.port()).or_default() += 1;
        }
    }

    fn changed(&mut self, id: Id, direction: Direction) {
        if let Some(number) = self.sockets[id].as_ref().and_then(|socket| socket.descriptor) {
            self.effects.push_back(Effect::Changed(number, direction));
        }
    }

    // ---- calls --------------------------------------------------------------------------------------------

    pub(super) fn open(&mut self, domain: Domain, carries: Carries) -> Answer<u32> {
        let any = match domain {
            Domain::V4 | Domain::Unix => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Domain::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let options = Options {
            no_delay: false,
            late_port: false,
            reuse_address: false,
            reuse_port: false,
            keep_alive: false,
            receive_bytes: self.buffer_bytes,
            send_bytes: self.buffer_bytes,
            linger: None,
            only_v6: false,
            broadcast: false,
            hops: 64,
            multicast_hops: 1,
            multicast_loop: true,
            multicast_from: Ipv4Addr::UNSPECIFIED,
        };
        let (local, name) = (SocketAddr::new(any, 0), UnixAddr::UNNAMED);
        let state = match carries {
            Carries::Stream => State::Fresh,
            Carries::Datagrams => State::Datagrams(Mailbox::default()),
        };
        let id = self.add(Socket { descriptor: None, domain, local, name, bound: false, options, state });
        self.name(id).inspect_err(|_| self.sockets[id] = None)
    }

    pub(super) fn shutdown(&mut self, number: u32, how: Shutdown) -> Answer<()> {
        let id = self.id(number)?;
        let (shut_in, shut_out) = (how != Shutdown::Write, how != Shutdown::Read);
        match &mut self.socket(id).state {
            State::Connected(stream) if !stream.dead => {
                stream.shut_in |= shut_in;
                stream.shut_out |= shut_out;
                if shut_out {
                    self.carry_soon(id);
                    self.changed(id, Direction::Out);
                }
                if shut_in {
                    self.changed(id, Direction::In);
                }
                Ok(())
            }
            State::Listening { .. } if shut_in => {
                self.stop_listening(id);
                self.changed(id, Direction::In);
                Ok(())
            }
            State::Listening { .. } => Ok(()),
            State::Datagrams(mailbox) if mailbox.is_connected() => {
                mailbox.shut_in |= shut_in;
                mailbox.shut_out |= shut_out;
                self.changed(id, Direction::In);
                self.changed(id, Direction::Out);
                Ok(())
            }
            _ => Err(libc::ENOTCONN),
        }
    }

    /// Closes a descriptor. The connection exists until its end has reached the peer, or it is reset.
    pub(super) fn close(&mut self, number: u32) -> Answer<()> {
        let id = self.id(number)?;
        self.descriptors[number as usize] = None;
        self.free.insert(number);
        self.socket(id).descriptor = None;
        self.free_name(id);
        self.release(id);
        Ok(())
    }

    /// Handles the close of a socket's descriptor.
    fn release(&mut self, id: Id) {
        let socket = self.socket(id);
        // SO_LINGER has no effect on a Unix socket.
        let unix = socket.domain == Domain::Unix;
        let no_linger = !unix && socket.options.linger == Some(std::time::Duration::ZERO);
        match &mut socket.state {
            State::Listening { .. } => {
                self.stop_listening(id);
                self.remove(id);
            }
            State::Connected(stream) if !stream.dead => {
                let (peer, arrived) = (stream.peer, !stream.arrived.is_empty());
                // Between Unix sockets sent bytes count as arrived, carried or not.
                let sent = unix
                    && peer.and_then(|peer| self.stream(peer)).is_some_and(|peer| !peer.leaving.is_empty());
                if no_linger || arrived || sent {
                    self.remove(id);
                    self.lose(id, peer);
                    return;
                }
                let Some(stream) = self.stream(id) else { return };
                stream.shut_out = true;
                if stream.end_carried {
                    self.remove(id);
                    if let Some(peer) = peer.and_then(|peer| self.stream(peer)) {
                        peer.peer = None;
                    }
                    return;
                }
                self.carry_soon(id);
                // Bytes that the peer could not send for lack of room arrive now, and cause a reset.
                if let Some(peer) = peer {
                    self.carry_soon(peer);
                }
            }
            State::Fresh | State::Connecting(_) | State::Refused(_) | State::Connected(_) => {
                self.remove(id);
            }
            State::Datagrams(_) => {
                self.remove(id);
                // A sender that waits for room gets an error: the peer is gone.
                self.room_at_mailbox(id);
            }
        }
    }

    fn stop_listening(&mut self, id: Id) {
        self.listening.remove(&id);
        let before = std::mem::replace(&mut self.socket(id).state, State::Fresh);
        if let State::Listening { queue, knocking, .. } = before {
            for waiting in queue {
                let peer = self.stream(waiting).and_then(|stream| stream.peer);
                self.remove(waiting);
                self.lose(waiting, peer);
            }
            // Each waiting client retries, and finds no listener.
            self.effects.extend(knocking.into_iter().map(Effect::Shake));
        }
    }

    /// Ends a connection without a proper close, and resets the peer.
    fn lose(&mut self, id: Id, peer: Option<Id>) {
        let Some(peer) = peer else { return };
        if let Some(stream) = self.stream(peer)
            && stream.peer == Some(id)
        {
            stream.peer = None;
            self.effects.push_back(Effect::Reset(peer));
        }
    }

    // ---- operations, each as one system call that does not wait -------------------------------------------

    /// Connects; returns 0, or a negated errno such as EINPROGRESS or EALREADY.
    pub(super) fn connect(&mut self, number: u32, to: SocketAddr) -> i32 {
        let id = match self.id(number) {
            Ok(id) => id,
            Err(errno) => return -errno,
        };
        let socket = self.socket(id);
        match socket.state {
            State::Fresh => {}
            State::Connecting(_) => return -libc::EALREADY,
            State::Refused(errno) => {
                socket.state = State::Fresh;
                return -errno;
            }
            State::Connected(ref mut stream) => {
                if stream.error != 0 {
                    return -std::mem::take(&mut stream.error);
                }
                return if std::mem::replace(&mut stream.told, true) { -libc::EISCONN } else { 0 };
            }
            State::Listening { .. } => return -libc::EISCONN,
            State::Datagrams(_) => return -libc::EOPNOTSUPP,
        }
        if socket.local.is_ipv4() != to.is_ipv4() {
            return -libc::EAFNOSUPPORT;
        }
        if !is_here(to.ip()) {
            return -libc::ENETUNREACH;
        }
        let here = loopback(to.is_ipv4());
        let to = if to.ip().is_unspecified() { SocketAddr::new(here, to.port()) } else { to };
        let (bound, mut local) = (socket.bound, socket.local);
        if !bound {
            match self.free_port() {
                Ok(port) => local.set_port(port),
                Err(_) => return -libc::EADDRNOTAVAIL,
            }
        }
        if local.ip().is_unspecified() {
            local.set_ip(here);
        }
        self.bind_to(id, local);
        self.socket(id).state = State::Connecting(to);
        self.effects.push_back(Effect::Shake(id));
        -libc::EINPROGRESS
    }

    /// Accepts the next connection of the listener's queue; returns its descriptor.
    pub(super) fn accept(&mut self, number: u32) -> Answer<u32> {
        let id = self.id(number)?;
        let State::Listening { queue, .. } = &mut self.socket(id).state else { return Err(libc::EINVAL) };
        let first = *queue.front().ok_or(libc::EAGAIN)?;
        // Without a free descriptor it stays in the queue.
        let accepted = self.name(first)?;
        if let State::Listening { queue, .. } = &mut self.socket(id).state {
            queue.pop_front();
        }
        self.let_in(id);
        Ok(accepted)
    }

    /// Receives into `into`; returns the number of bytes, 0 at the end, or a negated errno.
    pub(super) fn receive(&mut self, number: u32, into: &mut [u8]) -> i32 {
        let Ok(id) = self.id(number) else { return -libc::EBADF };
        let stream = match &mut self.socket(id).state {
            State::Connected(stream) => stream,
            State::Connecting(_) => return -libc::EAGAIN,
            State::Fresh | State::Refused(_) | State::Listening { .. } | State::Datagrams(_) => {
                return -libc::ENOTCONN;
            }
        };
        if into.is_empty() {
            return 0;
        }
        if !stream.arrived.is_empty() {
            let count = into.len().min(stream.arrived.len());
            let (front, back) = first(&stream.arrived, count);
            into[..front.len()].copy_from_slice(front);
            into[front.len()..count].copy_from_slice(back);
            stream.arrived.drain(..count);
            if let Some(peer) = stream.peer {
                self.carry_soon(peer);
            }
            return count as i32;
        }
        // The end of the peer's stream has priority, then a pending error, then the state after a reset or
        // shutdown.
        if stream.ended {
            0
        } else if stream.error != 0 {
            -std::mem::take(&mut stream.error)
        } else if stream.dead || stream.shut_in {
            0
        } else {
            -libc::EAGAIN
        }
    }

    /// Sends; returns the number of bytes that the socket's buffer took, or a negated errno.
    pub(super) fn send(&mut self, number: u32, bytes: &[u8]) -> i32 {
        let Ok(id) = self.id(number) else { return -libc::EBADF };
        let room = self.socket(id).options.send_bytes;
        let peer = self.stream(id).and_then(|stream| stream.peer);
        let deaf = self.is_deaf(id, peer);
        let stream = match &mut self.socket(id).state {
            State::Connected(stream) => stream,
            State::Connecting(_) => return -libc::EAGAIN,
            State::Fresh | State::Refused(_) | State::Listening { .. } | State::Datagrams(_) => {
                return -libc::EPIPE;
            }
        };
        if deaf {
            return -libc::EPIPE;
        }
        if stream.error != 0 {
            return -std::mem::take(&mut stream.error);
        }
        if stream.dead || stream.shut_out {
            return -libc::EPIPE;
        }
        let count = bytes.len().min(room.saturating_sub(stream.leaving.len()));
        if count == 0 && !bytes.is_empty() {
            return -libc::EAGAIN;
        }
        stream.leaving.extend(&bytes[..count]);
        self.carry_soon(id);
        count as i32
    }

    /// Returns whether an operation in this direction would not block.
    pub(super) fn is_ready(&mut self, number: u32, direction: Direction) -> bool {
        let Ok(id) = self.id(number) else { return true };
        let socket = self.socket(id);
        let room = socket.options.send_bytes;
        match (&socket.state, direction) {
            (State::Datagrams(mailbox), Direction::In) => mailbox.has_something(),
            (State::Datagrams(mailbox), Direction::Out) => {
                mailbox.error != 0 || mailbox.shut_out || self.has_room_at_peer(id)
            }
            (State::Fresh | State::Refused(_), _) => true,
            (State::Connecting(_), _) => false,
            (State::Listening { queue, .. }, Direction::In) => !queue.is_empty(),
            (State::Listening { .. }, Direction::Out) => true,
            (State::Connected(stream), _) if stream.error != 0 || stream.dead => true,
            (State::Connected(stream), Direction::In) => {
                !stream.arrived.is_empty() || stream.ended || stream.shut_in
            }
            (State::Connected(stream), Direction::Out) => {
                !stream.told || stream.shut_out || stream.leaving.len() < room
            }
        }
    }

    // ---- delayed effects ---------------------------------------------------------------------------------

    /// Delivers a connect to the listener of its address. `pick` selects one if several share it.
    pub(super) fn shake(&mut self, id: Id, pick: impl FnOnce(usize) -> usize) {
        let Some(Some(socket)) = self.sockets.get(id) else { return };
        let State::Connecting(to) = socket.state else { return };
        let listeners: Vec<Id> =
            self.listening.iter().copied().filter(|&id| self.listens_for(id, to)).collect();
        let Some(&listener) = listeners.get(if listeners.len() > 1 { pick(listeners.len()) } else { 0 })
        else {
            self.socket(id).state = State::Refused(libc::ECONNREFUSED);
            self.changed(id, Direction::Out);
            self.changed(id, Direction::In);
            return;
        };
        if let State::Listening { knocking, .. } = &mut self.socket(listener).state {
            knocking.push_back(id);
        }
        self.let_in(listener);
    }

    fn listens_for(&self, id: Id, to: SocketAddr) -> bool {
        self.sockets[id].as_ref().is_some_and(|socket| {
            let any = socket.local.ip().is_unspecified()
                && (socket.local.is_ipv4() == to.is_ipv4() || (to.is_ipv4() && !socket.options.only_v6));
            matches!(socket.state, State::Listening { .. })
                && socket.local.port() == to.port()
                && (any || socket.local.ip() == to.ip())
        })
    }

    /// Fills the listener's queue from waiting clients. The queue holds one more than the backlog
    /// (`sk_acceptq_is_full`).
    fn let_in(&mut self, listener: Id) {
        loop {
            let options = self.socket(listener).options;
            let ipv4 = self.socket(listener).local.is_ipv4();
            let State::Listening { queue, backlog, knocking } = &mut self.socket(listener).state else {
                return;
            };
            if queue.len() > *backlog {
                return;
            }
            let Some(client) = knocking.pop_front() else { return };
            // The client may have been closed while it waited.
            let Some(Some(socket)) = self.sockets.get(client) else { continue };
            let State::Connecting(to) = socket.state else { continue };
            let from = socket.local;
            let (local, peer_name) = if ipv4 { (to, from) } else { (as_v6(to), as_v6(from)) };
            let stream = Stream { told: true, ..Stream::to(client, Address::Inet(peer_name)) };
            let (domain, name, state) =
                (self.socket(listener).domain, UnixAddr::UNNAMED, State::Connected(stream));
            // An accepted socket has the options of its listener.
            let accepted =
                self.add(Socket { descriptor: None, domain, local, name, bound: true, options, state });
            self.socket(client).state = State::Connected(Stream::to(accepted, Address::Inet(to)));
            if let State::Listening { queue, .. } = &mut self.socket(listener).state {
                queue.push_back(accepted);
            }
            self.changed(listener, Direction::In);
            self.changed(client, Direction::Out);
        }
    }

    /// Schedules the delivery of this socket's bytes, unless it is pending already.
    fn carry_soon(&mut self, id: Id) {
        if let Some(stream) = self.stream(id)
            && !stream.carrying
            && stream.has_something_to_carry()
        {
            stream.carrying = true;
            self.effects.push_back(Effect::Carry(id));
        }
    }

    /// Carries at most `most` bytes (at least one) to the peer, or the end.
    pub(super) fn carry(&mut self, id: Id, most: usize) {
        let Some(stream) = self.stream(id) else { return };
        stream.carrying = false;
        if !stream.has_something_to_carry() {
            return;
        }
        let mut leaving = std::mem::take(&mut stream.leaving);
        let (peer, shut_out) = (stream.peer, stream.shut_out);
        let alive = peer.filter(|&peer| {
            self.sockets[peer].as_ref().is_some_and(|socket| {
                socket.descriptor.is_some() || matches!(&socket.state, State::Connected(at) if !at.shut_out)
            })
        });
        let Some(peer) = alive else {
            if leaving.is_empty() {
                // Only the end of the stream was left, and both directions have ended.
                self.both_over(id, peer);
            } else {
                // No socket is there to take it.
                if let Some(peer) = peer {
                    self.remove(peer);
                }
                if let Some(stream) = self.stream(id) {
                    stream.peer = None;
                }
                self.effects.push_back(Effect::Reset(id));
            }
            return;
        };
        let room = self.socket(peer).options.receive_bytes;
        let Some(to) = self.stream(peer) else { return };
        let count = leaving.len().min(room.saturating_sub(to.arrived.len())).min(most.max(1));
        let (front, back) = first(&leaving, count);
        to.arrived.extend(front);
        to.arrived.extend(back);
        leaving.drain(..count);
        let ends = leaving.is_empty() && shut_out;
        to.ended |= ends;
        if count > 0 || ends {
            self.changed(peer, Direction::In);
        }
        let Some(stream) = self.stream(id) else { return };
        stream.end_carried |= ends;
        // Without room it continues when the peer has received.
        stream.carrying = count > 0 && !leaving.is_empty();
        let again = stream.carrying;
        stream.leaving = leaving;
        if again {
            self.effects.push_back(Effect::Carry(id));
        }
        if count > 0 {
            self.changed(id, Direction::Out);
        }
        if ends && self.is_orphan(id) {
            self.remove(id);
            if let Some(to) = self.stream(peer) {
                to.peer = None;
            }
        }
    }

    /// Returns whether the socket was closed by its owner and does not wait to be accepted.
    fn is_orphan(&self, id: Id) -> bool {
        self.sockets[id].as_ref().is_some_and(|socket| {
            socket.descriptor.is_none()
                && matches!(&socket.state, State::Connected(stream) if stream.shut_out)
        })
    }

    /// Handles the end of `id` arriving at a peer that is closed or closing.
    fn both_over(&mut self, id: Id, peer: Option<Id>) {
        if let Some(stream) = peer.and_then(|peer| self.stream(peer)) {
            stream.ended = true;
        }
        if let Some(stream) = self.stream(id) {
            stream.end_carried = true;
        }
        if self.is_orphan(id) {
            self.remove(id);
            if let Some(stream) = peer.and_then(|peer| self.stream(peer)) {
                stream.peer = None;
            }
        }
    }

    /// Handles a reset: received bytes may still be read, then the error is reported.
    pub(super) fn reset(&mut self, id: Id) {
        let Some(stream) = self.stream(id) else { return };
        if stream.dead || (stream.ended && stream.end_carried) {
            return;
        }
        stream.dead = true;
        // After the end of the peer's stream a reset is EPIPE (`tcp_reset`, CLOSE_WAIT).
        stream.error = if stream.ended { libc::EPIPE } else { libc::ECONNRESET };
        stream.peer = None;
        stream.leaving.clear();
        if self.is_orphan(id) {
            self.remove(id);
            return;
        }
        self.changed(id, Direction::In);
        self.changed(id, Direction::Out);
    }

    /// Returns the number of sockets, with or without a descriptor.
    #[cfg(test)]
    pub(super) fn sockets(&self) -> usize {
        self.sockets.iter().flatten().count()
    }
}

/// Returns the first `count` bytes of `bytes` in the two pieces it keeps them in. It has at least so many.
fn first(bytes: &VecDeque<u8>, count: usize) -> (&[u8], &[u8]) {
    let (front, back) = bytes.as_slices();
    let front = &front[..count.min(front.len())];
    (front, &back[..count - front.len()])
}
