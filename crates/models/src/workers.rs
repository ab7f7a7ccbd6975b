//! Several servers on one port, each on its own thread: the way for a model with one thread to use several
//! cores.
//!
//! They share only the port: the kernel gives each connection to one of the listeners (`SO_REUSEPORT`,
//! `socket(7)`), by a hash, so not quite evenly. Start at [`Workers::bind`].

use crate::{Error, Model, Options, Protocol, Result, Server, Stop, Totals};
use std::io;
use std::net::SocketAddr;
use std::thread;

/// Servers that are bound to one address and not yet serving.
#[derive(Debug)]
pub struct Workers {
    first: Server,
    others: Vec<Server>,
}

impl Workers {
    /// Binds `count` servers; 0 counts as 1. Several servers always share the port, whatever the options are.
    ///
    /// # Errors
    /// As [`Server::bind`].
    pub fn bind(
        model: Model,
        protocol: Protocol,
        address: SocketAddr,
        options: Options,
        count: u16,
    ) -> Result<Workers> {
        let options = Options { reuse_port: options.reuse_port || count > 1, ..options };
        let first = Server::bind(model, protocol, address, options)?;
        // At the address of the first one, since the kernel may have chosen its port.
        let others = (1..count)
            .map(|_| Server::bind(model, protocol, first.address(), options))
            .collect::<Result<_>>()?;
        Ok(Workers { first, others })
    }

    /// Returns the address that all of them listen on.
    pub fn address(&self) -> SocketAddr {
        self.first.address()
    }

    /// Serves until `stop` is requested, the first server on the calling thread. Returns the totals of all
    /// servers.
    ///
    /// # Errors
    /// As [`Server::run`]; a server that fails stops the others.
    pub fn run(self, stop: &Stop) -> Result<Totals> {
        let Workers { first, others } = self;
        // A worker that ends was told to, or has failed; the others end then too.
        let serve = |server: Server| {
            let totals = server.run(stop);
            stop.request();
            totals
        };
        thread::scope(|scope| {
            let mut threads = Vec::with_capacity(others.len());
            for (nth, server) in others.into_iter().enumerate() {
                let thread = thread::Builder::new().name(format!("worker-{}", nth + 1));
                match thread.spawn_scoped(scope, move || serve(server)) {
                    Ok(thread) => threads.push(thread),
                    Err(why) => {
                        stop.request();
                        return Err(Error::new("starting a thread", why).on(format!("worker {}", nth + 1)));
                    }
                }
            }
            let mut totals = serve(first);
            for thread in threads {
                let theirs = thread
                    .join()
                    .unwrap_or_else(|_| Err(Error::new("serving", io::Error::other("a worker panicked"))));
                totals = totals.and_then(|mut sum| {
                    sum.add(&theirs?);
                    Ok(sum)
                });
            }
            totals
        })
    }
}
