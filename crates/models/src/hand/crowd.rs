//! All connections of one readiness loop, independent of its wait call.
//!
//! A model's loop asks [`Crowd::timeout`], waits, passes what the kernel reported to [`Crowd::ready`], what
//! fell due to [`Crowd::next_due`], and newcomers to [`Crowd::admit`]. It translates each [`Want`] into its
//! own kind of interest, and that is all a model has to know.

use super::accept::Acceptor;
use super::connection::{Connection, Readiness, Want};
use super::delay::Delay;
use super::slab::{Slab, Token};
use super::{Counters, Site, Worker, socket};
use crate::Result;
use crate::protocol::Protocol;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// The listener, the connections, and what they share.
#[derive(Debug)]
pub(super) struct Crowd {
    pub(super) worker: Worker,
    acceptor: Acceptor,
    connections: Slab<Connection>,
    delay: Delay<Token>,
    protocol: Protocol,
}

impl Crowd {
    pub(super) fn new(site: Site) -> Self {
        Crowd {
            worker: Worker::new(&site.options),
            acceptor: Acceptor::new(site.listener, libc::SOCK_NONBLOCK),
            connections: Slab::new(),
            delay: Delay::new(site.options.delay),
            protocol: site.protocol,
        }
    }

    /// Returns the listener's descriptor number, for the wait set.
    pub(super) fn listener(&self) -> RawFd {
        self.acceptor.listener.as_raw_fd()
    }

    /// Returns whether the listener is to be waited for: not while no descriptor is left.
    pub(super) fn is_accepting(&mut self) -> bool {
        self.acceptor.is_open()
    }

    /// Returns how long the loop may wait for the kernel; `None`: for ever.
    #[inline]
    pub(super) fn timeout(&self) -> Option<Duration> {
        match (self.delay.timeout(), self.acceptor.timeout()) {
            (Some(due), Some(unpark)) => Some(due.min(unpark)),
            (due, unpark) => due.or(unpark),
        }
    }

    /// Returns the next socket from the backlog. The loop may refuse it, or [`Crowd::admit`] it.
    pub(super) fn accept(&mut self) -> Result<Option<OwnedFd>> {
        self.acceptor.next(&mut self.worker.counters)
    }

    /// Takes a socket in. Bytes it may hold already are reported by the wait set it goes into.
    pub(super) fn admit(&mut self, socket: OwnedFd) -> Token {
        self.worker.counters.accepted += 1;
        self.connections.insert(Connection::new(socket, self.protocol))
    }

    /// Returns the kernel reported something: the connection takes its turn. `None`: it has been closed
    /// meanwhile.
    #[inline]
    pub(super) fn ready(&mut self, token: Token, readiness: Readiness) -> Option<Want> {
        let connection = self.connections.get_mut(token)?;
        connection.report(readiness);
        self.turn(token)
    }

    /// Another turn, without news from the kernel.
    #[inline]
    pub(super) fn turn(&mut self, token: Token) -> Option<Want> {
        let connection = self.connections.get_mut(token)?;
        let was_delayed = connection.is_delayed();
        let want = connection.turn(&mut self.worker);
        if want == Want::Delay && !was_delayed {
            self.delay.push(token);
        }
        Some(want)
    }

    /// Returns the next connection with a delayed answer that is due, after its turn.
    pub(super) fn next_due(&mut self) -> Option<(Token, Want)> {
        loop {
            let token = self.delay.pop_due()?;
            // Closed while it waited: its token is void, so no other connection's answer goes out early.
            let Some(connection) = self.connections.get_mut(token) else { continue };
            connection.resume();
            if let Some(want) = self.turn(token) {
                return Some((token, want));
            }
        }
    }

    /// Returns the connection itself, for its descriptor number and its mark.
    #[inline]
    pub(super) fn get_mut(&mut self, token: Token) -> Option<&mut Connection> {
        self.connections.get_mut(token)
    }

    /// Closes a connection. The listener may go on: a descriptor is free.
    pub(super) fn close(&mut self, token: Token) {
        if let Some(connection) = self.connections.remove(token) {
            connection.close(&mut self.worker.counters);
            self.acceptor.unpark();
        }
    }

    /// Closes everything as it stands.
    pub(super) fn finish(mut self) -> Counters {
        let Worker { counters, .. } = &mut self.worker;
        self.connections.drain().for_each(|connection| connection.close(counters));
        socket::close(self.acceptor.listener, counters);
        *counters
    }
}
