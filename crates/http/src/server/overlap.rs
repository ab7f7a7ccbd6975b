//! Servers of one process at addresses that cover each other, as `0.0.0.0:80` covers `127.0.0.1:80`, and
//! `[::]:80` covers both unless it is for IPv6 alone.
//!
//! The kernel gives a connection to the socket with the most specific address. It lets sockets overlap that
//! are all marked (`SO_REUSEPORT`) and are of one user. Start at [`Server::overlaps`].

use super::{Handle, Server};
use crate::transport::Socket;
use socket2::SockRef;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

impl<S: 'static> Server<S> {
    /// Takes no IPv4 connections at `[::]` (`IPV6_V6ONLY`), so that another server can listen for those.
    /// Without this it is the system's setting that decides, and by default it takes both.
    #[must_use]
    pub fn only_v6(mut self, only: bool) -> Server<S> {
        self.only_v6 = only;
        self
    }

    /// Listens although servers of this process have addresses that overlap its own, all of which were
    /// [marked](Handle::lets_overlap) for it. Whether another program of this user listens there is not
    /// looked at then.
    #[must_use]
    pub fn overlaps(mut self) -> Server<S> {
        self.overlaps = true;
        self
    }
}

impl Handle {
    /// Lets servers of this process that say so ([`Server::overlaps`]) listen at addresses that overlap this
    /// one's. What it listens on otherwise stays as it is.
    pub fn lets_overlap(&self) {
        for handle in &self.workers.handles {
            handle.overlaps.store(true, Ordering::Relaxed);
            let socket = handle.socket.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(Socket::Tcp { socket, .. }) = &*socket {
                // Refused only for what is no such socket; then binding fails, which is told.
                let _ = SockRef::from(&**socket).set_reuse_port(true);
            }
        }
    }
}
