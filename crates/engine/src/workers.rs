//! The same program on several threads, each with a runtime of its own.
//!
//! Start at [`workers`]; settings are in [`Workers`]. A worker gets a [`Worker`], and the caller a [`Crew`].
//! Programs that start their workers one after the other, or that run the runtimes themselves, begin with
//! [`Workers::crew`] and [`Crew::add`].

mod affinity;
mod crew;
mod sockets;
mod worker;

pub use crew::{Crew, WorkerError};
pub use sockets::Share;
pub use worker::Worker;

use crate::choose::{Choice, choose, probe};
use crate::driver::features::Features;
use crate::error::{Error, Result};
use crate::exec::Builder;
use crate::name::DriverName;
use crate::sync::CancellationToken;
use sockets::Sockets;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use worker::{Place, Rules, run};

/// Starts `threads` threads, each with a runtime ([`Runtime::auto`](crate::Runtime::auto)) that runs the
/// future of `body`. 0 means one thread for each CPU of this process.
///
/// ```
/// use ringroad_engine::{spawn, workers};
///
/// let crew = workers(2, |worker| async move {
///     // A server would accept connections here, until `stopping` says that it is enough.
///     worker.stopping().cancelled().await;
///     worker.index()
/// })?;
/// crew.stop();
/// assert_eq!(crew.join()?, [0, 1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// No driver can be used, a runtime could not be made, or a thread could not be started. The others are
/// stopped.
pub fn workers<B, F>(threads: usize, body: B) -> Result<Crew<F::Output>>
where
    B: Fn(Worker) -> F + Send + Sync + 'static,
    F: Future + 'static,
    F::Output: Send + 'static,
{
    Workers::new(threads).start(body)
}

/// What happens when the future of a worker panics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnPanic {
    /// Stops the other workers; [`Crew::join`] returns the panic.
    #[default]
    Stop,
    /// Does not affect the other workers. The worker's sockets are closed, so the kernel gives it no more
    /// connections.
    Continue,
    /// Calls the worker's body again on a new runtime, after one second. Its sockets stay open meanwhile.
    Restart,
}

/// A change of the settings of each runtime.
type Change = Arc<dyn Fn(Builder) -> Builder + Send + Sync>;

/// Settings of several threads with a runtime each.
#[derive(Clone)]
pub struct Workers {
    threads: usize,
    /// The driver, with its features if they are known.
    driver: Option<(DriverName, Option<Features>)>,
    runtime: Option<Change>,
    listen: Vec<(SocketAddr, Share)>,
    pins: bool,
    name: String,
    on_panic: OnPanic,
    patience: Duration,
}

impl Workers {
    /// Returns the default settings for `threads` threads; 0 means one for each CPU of this process.
    pub fn new(threads: usize) -> Workers {
        Workers {
            threads,
            driver: None,
            runtime: None,
            listen: Vec::new(),
            pins: false,
            name: "ringroad-worker".to_owned(),
            on_panic: OnPanic::default(),
            patience: Duration::from_secs(10),
        }
    }

    /// Sets the driver. Default: chosen as by [`Runtime::auto`](crate::Runtime::auto).
    pub fn driver(mut self, driver: DriverName) -> Workers {
        self.driver = Some((driver, None));
        self
    }

    /// Sets the driver and its features as [chosen](crate::choose::choose) before. No driver is tried again.
    pub fn choice(mut self, choice: &Choice) -> Workers {
        self.driver = Some((choice.driver(), Some(choice.features())));
        self
    }

    /// Changes the settings of each runtime.
    pub fn runtime(mut self, change: impl Fn(Builder) -> Builder + Send + Sync + 'static) -> Workers {
        self.runtime = Some(Arc::new(change));
        self
    }

    /// Listens at this address in every worker: see [`Worker::listener`]. With port 0 the kernel chooses one
    /// port for all of them ([`Crew::addresses`]). Each call adds a listener.
    pub fn listen(mut self, address: SocketAddr, share: Share) -> Workers {
        self.listen.push((address, share));
        self
    }

    /// Sets whether each worker is pinned to one CPU of those that this process may use
    /// (`sched_setaffinity(2)`).
    pub fn pin(mut self, pins: bool) -> Workers {
        self.pins = pins;
        self
    }

    /// Sets the name of the threads; the worker's number follows it.
    pub fn name(mut self, name: &str) -> Workers {
        name.clone_into(&mut self.name);
        self
    }

    /// Sets what happens when a worker panics.
    pub fn on_panic(mut self, on_panic: OnPanic) -> Workers {
        self.on_panic = on_panic;
        self
    }

    /// Sets how long a worker may continue after it was told to stop. Then its future is dropped, and
    /// [`Crew::join`] reports it. Default: 10 s.
    pub fn patience(mut self, patience: Duration) -> Workers {
        self.patience = patience;
        self
    }

    /// Starts the threads. Returns when each has its runtime.
    ///
    /// # Errors
    /// As [`workers`]; also an address that cannot be listened at.
    pub fn start<B, F>(self, body: B) -> Result<Crew<F::Output>>
    where
        B: Fn(Worker) -> F + Send + Sync + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        let body = Arc::new(body);
        if self.driver.is_some() {
            return self.start_all(&body);
        }
        let start = |choice: &Choice| self.clone().choice(choice).start_all(&body);
        chosen()?.settle(start, |why| Some(why))
    }

    /// Starts the threads on the driver that was set. Bodies begin when all workers have their runtimes, or
    /// none begins.
    fn start_all<B, F>(self, body: &Arc<B>) -> Result<Crew<F::Output>>
    where
        B: Fn(Worker) -> F + Send + Sync + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        let mut crew = self.crew()?;
        let may_begin = Arc::new(OnceLock::new());
        // All threads are started before the first is waited for: their runtimes are made at the same time.
        let mut start = || {
            let mut started = Vec::new();
            while crew.has_vacancy() {
                let (body, may_begin) = (Arc::clone(body), Arc::clone(&may_begin));
                started
                    .push(crew.spawn(move |place, rules, tell| run(place, rules, &*body, tell, &may_begin))?);
            }
            started.into_iter().try_for_each(|starting| crew.wait_for_runtime(starting).map(drop))
        };
        let have_runtimes = start();
        // Set before the crew is dropped, which waits for its threads.
        let _ = may_begin.set(have_runtimes.is_ok());
        have_runtimes.map(|()| crew)
    }

    /// Prepares the workers and starts none: [`Crew::add`] starts them, one by one. The driver is chosen and
    /// the addresses are listened at here, for all of them.
    ///
    /// # Errors
    /// No driver can be used; an address cannot be listened at.
    pub fn crew<T>(self) -> Result<Crew<T>> {
        let cpus = affinity::allowed();
        let count = if self.threads == 0 { cpus.len().max(1) } else { self.threads };
        let (driver, features) = match self.driver {
            Some((driver, Some(features))) => (driver, Some(features)),
            Some((driver, None)) => (driver, probe(driver).ok().map(|found| found.features)),
            None => {
                let choice = chosen()?;
                (choice.driver(), Some(choice.features()))
            }
        };
        let sockets = Sockets::listen(&self.listen, count)?;
        let addresses = sockets.addresses();
        let all = CancellationToken::new();
        let places = sockets.per_worker().into_iter().enumerate().map(|(index, own)| Place {
            index,
            count,
            all: all.clone(),
            stopping: all.child(),
            sockets: Arc::new(own),
            cpu: self.pins.then(|| cpus.get(index % cpus.len().max(1)).copied()).flatten(),
        });
        let vacant = places.collect();
        let change = self.runtime;
        let builder = move || {
            let builder = features.into_iter().fold(Builder::new(driver), Builder::features);
            change.iter().fold(builder, |builder, change| change(builder))
        };
        let rules = Rules {
            name: self.name,
            builder: Box::new(builder),
            on_panic: self.on_panic,
            patience: self.patience,
        };
        Ok(Crew::new(all, vacant, rules, addresses))
    }
}

fn chosen() -> Result<Choice> {
    choose(None, None).map_err(|why| Error::new("choosing a driver", io::Error::other(why)))
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers")
            .field("threads", &self.threads)
            .field("listen", &self.listen)
            .finish_non_exhaustive()
    }
}
