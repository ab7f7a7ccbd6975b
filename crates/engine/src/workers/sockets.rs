//! The listening sockets of several workers, bound before their threads start.

use crate::error::{Error, Result};
use socket2::{Domain, Protocol, Socket, Type};
use std::net::{SocketAddr, TcpListener};

/// How several workers listen at one address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Share {
    /// A socket for each, and the kernel spreads the connections over them by their addresses
    /// (`SO_REUSEPORT`). The least work, and even with many clients.
    #[default]
    ReusePort,
    /// One socket for all: the worker that is idle takes the next connection. Even with few clients; workers
    /// wake up for connections that another one takes.
    OneQueue,
}

/// Sockets by address, and for each address by worker.
pub(super) struct Sockets(Vec<Vec<TcpListener>>, usize);

impl Sockets {
    pub(super) fn listen(addresses: &[(SocketAddr, Share)], workers: usize) -> Result<Sockets> {
        let all: Result<_> =
            addresses.iter().map(|(address, share)| listen(*address, *share, workers)).collect();
        Ok(Sockets(all?, workers))
    }

    /// Returns the address of each, with the port that the kernel has chosen.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.0.iter().filter_map(|shared| shared.first()?.local_addr().ok()).collect()
    }

    /// Returns the sockets of each worker.
    pub(super) fn per_worker(self) -> Vec<Vec<TcpListener>> {
        let mut workers: Vec<Vec<TcpListener>> = (0..self.1).map(|_| Vec::new()).collect();
        for shared in self.0 {
            workers.iter_mut().zip(shared).for_each(|(own, socket)| own.push(socket));
        }
        workers
    }
}

fn listen(address: SocketAddr, share: Share, workers: usize) -> Result<Vec<TcpListener>> {
    let failed = |call: &'static str| move |why| Error::new(call, why).on(address);
    let first = bound(address, share == Share::ReusePort).map_err(failed("bind"))?;
    // The port, if the kernel has chosen it.
    let address = first.local_addr().map_err(failed("getsockname"))?;
    let mut sockets = vec![first];
    while sockets.len() < workers {
        let next = match (share, sockets.first()) {
            (Share::OneQueue, Some(first)) => first.try_clone().map_err(failed("fcntl"))?,
            _ => bound(address, true).map_err(failed("bind"))?,
        };
        sockets.push(next);
    }
    Ok(sockets)
}

fn bound(address: SocketAddr, reuse_port: bool) -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(reuse_port)?;
    // Accepted connections inherit it.
    socket.set_tcp_nodelay(true)?;
    socket.bind(&address.into())?;
    socket.listen(4096)?;
    Ok(socket.into())
}
