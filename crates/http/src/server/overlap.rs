//! Servers of one process at overlapping addresses: `0.0.0.0:80` covers `127.0.0.1:80`, and `[::]:80` covers
//! both, unless it is for IPv6 only.
//!
//! The kernel gives a connection to the socket with the most specific address. Sockets may overlap if all are
//! marked (`SO_REUSEPORT`) and belong to one user. Start at [`Server::overlaps`].

use super::{Handle, Server};
use crate::transport::Socket;
use socket2::SockRef;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

impl<S: 'static> Server<S> {
    /// Sets whether `[::]` takes no IPv4 connections (`IPV6_V6ONLY`), so that another server can listen for
    /// those. Without this call the system's setting applies; by default that takes both.
    #[must_use]
    pub fn only_v6(mut self, only: bool) -> Server<S> {
        self.only_v6 = only;
        self
    }

    /// Listens although servers of this process have addresses that overlap its own. All of them must be
    /// [marked](Handle::lets_overlap). It is not checked then whether another program of this user listens
    /// there.
    #[must_use]
    pub fn overlaps(mut self) -> Server<S> {
        self.overlaps = true;
        self
    }
}

impl Handle {
    /// Lets servers of this process that call [`Server::overlaps`] listen at addresses that overlap this
    /// one's. The addresses of this server do not change.
    pub fn lets_overlap(&self) {
        for handle in &self.workers.handles {
            handle.overlaps.store(true, Ordering::Relaxed);
            let socket = handle.socket.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(Socket::Tcp { socket, .. }) = &*socket {
                // Fails only if it is not such a socket. Binding then fails, and reports it.
                let _ = SockRef::from(&**socket).set_reuse_port(true);
            }
        }
    }
}
