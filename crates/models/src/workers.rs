//! Several servers on one port, each on a thread of its own: how a model that is one thread uses several
//! cores.
//!
//! They share nothing but the port: the kernel gives each connection to one of the listeners (`SO_REUSEPORT`,
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
    /// Binds `count` of them; 0 is taken as 1. More than one share the port whatever the options say.
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
        // By the address the first one has got: the port may have been the kernel's choice.
        let others = (1..count)
            .map(|_| Server::bind(model, protocol, first.address(), options))
            .collect::<Result<_>>()?;
        Ok(Workers { first, others })
    }

    /// Returns the address all of them listen on.
    pub fn address(&self) -> SocketAddr {
        self.first.address()
    }

    /// Serves until `stop` is requested, the first of them on the calling thread; tells what all did
    /// together.
    ///
    /// # Errors
    /// As [`Server::run`]; one that fails stops the others.
    pub fn run(self, stop: &Stop) -> Result<Totals> {
        let Workers { first, others } = self;
        // A worker that ends has been asked to or has failed; then the others end, too.
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
