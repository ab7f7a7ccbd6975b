//! Workers that others take the place of, at the same address: on another driver, or with other code.
//!
//! Listening sockets change hands, and none is closed: a client in a backlog, or in the middle of its
//! handshake, is served by the worker that has the socket now. Start at [`Handle::sockets`].

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
    /// With the index of the worker.
    sockets: Vec<(usize, Socket)>,
}

impl Sockets {
    /// Returns how many: the workers of a server that takes them.
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
    /// with several workers, no other process gets to listen there that does not ask for it, too
    /// (`SO_REUSEPORT`).
    #[must_use]
    pub fn shares_address(mut self) -> Server<S> {
        self.shares = true;
        self
    }

    /// Listens at the address of a server that runs, which [shares](Server::shares_address) it: on another
    /// driver, for example. At a TCP address the kernel deals connections out to the workers of both by a
    /// hash; at a Unix socket, and one that was passed, the first that accepts has a connection.
    #[must_use]
    pub fn beside(mut self, other: &Handle) -> Server<S> {
        self.shares = true;
        self.beside.clone_from(&other.socket);
        self
    }

    /// Takes the place of workers that run: listens on their sockets, with as many workers. From then on both
    /// accept; [`Handle::release`] ends the others.
    #[must_use]
    pub fn instead_of(mut self, sockets: &Sockets) -> Server<S> {
        self.workers = sockets.count();
        self.given = sockets.sockets.iter().map(|(_, socket)| socket.clone()).collect();
        self
    }
}

impl Handle {
    /// Workers that accept connections.
    pub fn workers(&self) -> usize {
        self.crew.workers().len()
    }

    /// Returns the listening sockets of so many of its workers, for a server that takes their place
    /// ([`Server::instead_of`]). Both accept until [`release`](Self::release).
    ///
    /// # Errors
    /// [`ServerError::NoSocket`]: there are not so many workers, one has ended, or the process had no
    /// descriptor to spare when the worker began.
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

    /// Ends the workers with these sockets, which others listen on now. They accept what is in the backlog at
    /// that moment, and nothing more. Requests that have begun are completed, however long they take, streams
    /// of events and connections that speak another protocol go on until they end; connections that are idle
    /// are closed as by [`stop`](Self::stop).
    pub fn release(&mut self, sockets: Sockets) -> Released {
        let leaving: Vec<_> = sockets.sockets.iter().map(|(me, _)| *me).collect();
        let crew = self.crew.release(&leaving);
        for me in crew.workers() {
            let Some(handle) = self.workers.handles.get(me) else { continue };
            handle.leaving.store(true, Ordering::SeqCst);
            if let Some(remote) = handle.remote() {
                // Refused: the worker is gone already.
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

    /// Ends a server that has taken the place of workers which go on: they keep the sockets. What it has
    /// begun meanwhile is completed, as after a [`stop`](Self::stop).
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn give_back(self) -> Result<(), ServerError> {
        self.leave_sockets();
        self.stop();
        self.wait()
    }

    /// Leaves the sockets to others that listen on them: a stop closes descriptors, and not the sockets.
    pub(super) fn leave_sockets(&self) {
        for handle in &self.workers.handles {
            handle.leaving.store(true, Ordering::SeqCst);
        }
        self.leave_file();
    }

    /// The file of a Unix socket is that of the server with the socket.
    fn leave_file(&self) {
        self.workers.file.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// Workers that complete what they have begun, while others have their sockets. Dropped, they go on by
/// themselves.
pub struct Released {
    workers: Arc<worker::Workers>,
    crew: Crew<Ended>,
}

impl Released {
    /// Returns whether all have ended.
    pub fn has_ended(&self) -> bool {
        self.crew.workers().all(|worker| self.crew.has_ended(worker))
    }

    /// Gives what has begun this long, counted from the release; what has no end of its own ends as by a
    /// stop.
    pub fn set_drain(&self, drain: Duration) {
        on_each(&self.workers, move || {
            if let Some(worker) = worker::here().filter(|worker| worker.is_leaving()) {
                worker.ends(drain);
            }
        });
    }

    /// Waits until all have ended.
    ///
    /// # Errors
    /// The first worker's that ended by an error or a panic.
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
