//! Handing the sockets of workers over to other workers at the same address: on another driver, or with other
//! code.
//!
//! Listening sockets change owners, and none is closed. A client in a backlog or in the middle of its TCP
//! handshake is served by the socket's new owner. Start at [`Handle::sockets`].

use super::{Ended, Handle, Server, ServerError, join_next, on_each, worker};
use crate::transport::Socket;
use ringroad_engine::workers::Crew;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Listening sockets of some workers of a server, one each ([`Handle::sockets`]).
#[derive(Default)]
pub struct Sockets {
    /// Each with the index of its worker.
    sockets: Vec<(usize, Socket)>,
}

impl Sockets {
    /// Returns the number of sockets, which is the number of workers of a server that takes them.
    pub fn count(&self) -> usize {
        self.sockets.len()
    }
}

impl fmt::Debug for Sockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sockets").field("count", &self.count()).finish()
    }
}

impl<S: 'static> Server<S> {
    /// Lets a server of this process that listens [`beside`](Server::beside) this one share its address. As
    /// with several workers, another process can listen there only if it also sets `SO_REUSEPORT`.
    #[must_use]
    pub fn shares_address(mut self) -> Server<S> {
        self.shares = true;
        self
    }

    /// Listens at the address of a running server that [shares](Server::shares_address) it, for example on
    /// another driver. At a TCP address the kernel distributes connections over the workers of both by a
    /// hash. At a Unix socket, and at a passed one, the first worker that accepts gets a connection.
    #[must_use]
    pub fn beside(mut self, other: &Handle) -> Server<S> {
        self.shares = true;
        self.beside.clone_from(&other.socket);
        self
    }

    /// Takes the place of running workers: listens on their sockets, with the same number of workers. Both
    /// accept until [`Handle::release`] ends the others.
    #[must_use]
    pub fn instead_of(mut self, sockets: &Sockets) -> Server<S> {
        self.workers = sockets.count();
        self.given = sockets.sockets.iter().map(|(_, socket)| socket.clone()).collect();
        self
    }
}

impl Handle {
    /// Returns the number of workers that accept connections.
    pub fn workers(&self) -> usize {
        self.crew.workers().len()
    }

    /// Returns the listening sockets of `workers` of its workers, for a server that takes their place
    /// ([`Server::instead_of`]). Both accept until [`release`](Self::release).
    ///
    /// # Errors
    /// [`ServerError::NoSocket`]: there are fewer workers, one has ended, or the process had no free
    /// descriptor when the worker began.
    pub fn sockets(&self, workers: NonZeroUsize) -> Result<Sockets, ServerError> {
        let last = self.crew.workers().rev().take(workers.get());
        let socket = |me: usize| {
            let handle = self.workers.handles.get(me)?;
            handle.socket.lock().unwrap_or_else(PoisonError::into_inner).clone()
        };
        let sockets: Vec<_> = last.filter_map(|me| Some((me, socket(me)?))).collect();
        if sockets.len() < workers.get() {
            return Err(ServerError::NoSocket { wanted: workers.get(), there: sockets.len() });
        }
        Ok(Sockets { sockets })
    }

    /// Ends the workers with these sockets, on which others listen now. They accept the connections in the
    /// backlog at that moment, and no more. Requests in progress are completed, however long they take. Event
    /// streams and connections that speak another protocol continue until they end. Idle connections are
    /// closed as by [`stop`](Self::stop).
    pub fn release(&mut self, sockets: Sockets) -> Released {
        let leaving: Vec<_> = sockets.sockets.iter().map(|(me, _)| *me).collect();
        let crew = self.crew.release(&leaving);
        for me in crew.workers() {
            let Some(handle) = self.workers.handles.get(me) else { continue };
            handle.leaving.store(true, Ordering::SeqCst);
            if let Some(remote) = handle.remote() {
                // Refused if the worker has ended.
                let _ = remote.spawn(move || async move {
                    if let Some(worker) = worker::here() {
                        worker.give_way();
                    }
                    worker::stop_here();
                });
            }
        }
        if self.crew.workers().len() == 0 {
            self.leave_file();
        }
        Released { workers: Arc::clone(&self.workers), crew }
    }

    /// Ends a server that has taken the place of workers which continue: they keep the sockets. Its requests
    /// in progress are completed, as after a [`stop`](Self::stop).
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn give_back(self) -> Result<(), ServerError> {
        self.leave_sockets();
        self.stop();
        self.wait()
    }

    /// Leaves the sockets to the others that listen on them: a stop then closes descriptors only.
    pub(super) fn leave_sockets(&self) {
        for handle in &self.workers.handles {
            handle.leaving.store(true, Ordering::SeqCst);
        }
        self.leave_file();
    }

    /// Leaves the file of a Unix socket to the server that has the socket.
    fn leave_file(&self) {
        self.workers.file.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// Workers that complete their requests in progress while others have their sockets. If this is dropped, they
/// continue without it.
pub struct Released {
    workers: Arc<worker::Workers>,
    crew: Crew<Ended>,
}

impl Released {
    /// Returns whether all workers have ended.
    pub fn has_ended(&self) -> bool {
        self.crew.workers().all(|worker| self.crew.has_ended(worker))
    }

    /// Sets the time for requests in progress, counted from the release. Streams and connections without an
    /// end of their own then end as by a stop.
    pub fn set_drain(&self, drain: Duration) {
        on_each(&self.workers, move || {
            if let Some(worker) = worker::here().filter(|worker| worker.is_leaving()) {
                worker.ends(drain);
            }
        });
    }

    /// Waits until all workers have ended.
    ///
    /// # Errors
    /// That of the first worker that ended with an error or a panic.
    pub fn wait(mut self) -> Result<(), ServerError> {
        let mut first = Ok(());
        while let Some(ended) = join_next(&mut self.crew) {
            first = first.and(ended);
        }
        first
    }
}

impl Drop for Released {
    fn drop(&mut self) {
        self.crew.detach();
    }
}

impl fmt::Debug for Released {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Released").field("has_ended", &self.has_ended()).finish()
    }
}
