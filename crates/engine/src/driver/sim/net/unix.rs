//! Unix sockets: their names, and connecting, which completes immediately. A connected stream works like a
//! TCP stream.
//!
//! Names are kept in a table. A path stays in it after its socket is closed, as the file does; an abstract
//! name does not. There are no directories and no permissions.

use super::{Answer, Direction, Id, Network, Socket, State, Stream};
use crate::address::{Address, UnixAddr};
use crate::op::{Carries, Domain};
use std::path::Path;

impl Network {
    /// Binds to a name, or to a free abstract one if the name is empty.
    pub(super) fn bind_unix(&mut self, id: Id, name: &UnixAddr) -> Answer<()> {
        if self.socket(id).bound {
            return Err(libc::EINVAL);
        }
        let mut name = name.clone();
        if name.is_unnamed() {
            let free = (0..0x10_0000).map(|number| UnixAddr::abstract_name(format!("{number:05x}")));
            name = free.into_iter().find(|name| !self.names.contains_key(name)).ok_or(libc::ENOSPC)?;
        }
        if self.names.contains_key(&name) {
            return Err(libc::EADDRINUSE);
        }
        self.names.insert(name.clone(), id);
        let socket = self.socket(id);
        (socket.name, socket.bound) = (name, true);
        Ok(())
    }

    /// Returns the socket of this name, if it still exists.
    pub(super) fn named(&mut self, name: &UnixAddr) -> Answer<Id> {
        let unknown = if name.as_path().is_some() { libc::ENOENT } else { libc::ECONNREFUSED };
        let id = *self.names.get(name).ok_or(unknown)?;
        let is_open = self.sockets[id].as_ref().is_some_and(|socket| socket.descriptor.is_some());
        if is_open { Ok(id) } else { Err(libc::ECONNREFUSED) }
    }

    /// Frees an abstract name after its descriptor is closed.
    pub(super) fn free_name(&mut self, id: Id) {
        let name = self.socket(id).name.clone();
        if name.as_abstract_name().is_some() && self.names.get(&name) == Some(&id) {
            self.names.remove(&name);
        }
    }

    pub(in crate::driver::sim) fn remove_file(&mut self, path: &Path) -> Answer<()> {
        self.names.remove(&UnixAddr::path(path)).map(|_| ()).ok_or(libc::ENOENT)
    }

    /// Makes two sockets that are each other's peers.
    pub(in crate::driver::sim) fn pair(&mut self, carries: Carries) -> Answer<(u32, u32)> {
        let one = self.open(Domain::Unix, carries)?;
        let other = match self.open(Domain::Unix, carries) {
            Ok(other) => other,
            Err(errno) => {
                self.close(one)?;
                return Err(errno);
            }
        };
        let (one_id, other_id) = (self.id(one)?, self.id(other)?);
        match carries {
            Carries::Stream => {
                for (id, peer) in [(one_id, other_id), (other_id, one_id)] {
                    let unnamed = Address::Unix(UnixAddr::UNNAMED);
                    let stream = Stream { told: true, ..Stream::to(peer, unnamed) };
                    self.socket(id).state = State::Connected(stream);
                }
            }
            Carries::Datagrams => self.introduce(one_id, other_id),
        }
        Ok((one, other))
    }

    /// Connects immediately or returns an error; EAGAIN: the listener's queue is full.
    pub(in crate::driver::sim) fn join(&mut self, number: u32, to: &Address) -> Answer<()> {
        let id = self.id(number)?;
        let socket = self.socket(id);
        let datagrams = matches!(socket.state, State::Datagrams(_));
        match (socket.domain, to) {
            (Domain::Unix, Address::Unix(to)) if datagrams => self.join_mailbox(id, to),
            (Domain::Unix, Address::Unix(to)) => self.join_listener(id, to),
            (Domain::V4 | Domain::V6, Address::Inet(to)) if datagrams => self.join_inet(id, *to),
            _ => Err(libc::EAFNOSUPPORT),
        }
    }

    fn join_listener(&mut self, id: Id, to: &UnixAddr) -> Answer<()> {
        if !matches!(self.socket(id).state, State::Fresh) {
            return Err(libc::EISCONN);
        }
        let listener = self.named(to)?;
        let options = self.socket(listener).options;
        let (name, local) = (self.socket(listener).name.clone(), self.socket(listener).local);
        match &self.socket(listener).state {
            State::Listening { queue, backlog, .. } if queue.len() > *backlog => return Err(libc::EAGAIN),
            State::Listening { .. } => {}
            State::Datagrams(_) => return Err(libc::EPROTOTYPE),
            _ => return Err(libc::ECONNREFUSED),
        }
        let from = Address::Unix(self.socket(id).name.clone());
        let stream = Stream { told: true, ..Stream::to(id, from) };
        let accepted = self.add(Socket {
            descriptor: None,
            domain: Domain::Unix,
            local,
            name: name.clone(),
            bound: true,
            options,
            state: State::Connected(stream),
        });
        let stream = Stream { told: true, ..Stream::to(accepted, Address::Unix(name)) };
        self.socket(id).state = State::Connected(stream);
        if let State::Listening { queue, .. } = &mut self.socket(listener).state {
            queue.push_back(accepted);
        }
        self.changed(listener, Direction::In);
        Ok(())
    }

    /// Returns whether no socket can receive what is sent on this stream. On one machine a sender learns this
    /// immediately.
    pub(super) fn is_deaf(&mut self, id: Id, peer: Option<Id>) -> bool {
        if self.socket(id).domain != Domain::Unix {
            return false;
        }
        let Some(Some(socket)) = peer.and_then(|peer| self.sockets.get(peer)) else { return true };
        let State::Connected(stream) = &socket.state else { return true };
        // A socket that waits to be accepted has no descriptor either, but has not ended its sending.
        stream.shut_in || (socket.descriptor.is_none() && stream.shut_out)
    }
}
