//! Workers that run, as the thread that has started them sees them.
//!
//! Start at [`Crew`].

use super::worker::{Ended, Place, Rules, Tell, run_once, text_of};
use super::{Worker, affinity};
use crate::error::{Error, Result};
use crate::exec::{Remote, Runtime};
use crate::sync::CancellationToken;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::thread;

/// Running workers, in the order of their numbers. Dropping it tells them to stop, and waits for them.
#[must_use = "dropping it stops the workers: join it"]
pub struct Crew<T> {
    stopping: CancellationToken,
    members: Vec<Member<T>>,
    /// Places of workers that are not started yet.
    vacant: VecDeque<Place>,
    rules: Arc<Rules>,
    addresses: Vec<SocketAddr>,
}

/// One worker with its thread.
struct Member<T> {
    index: usize,
    thread: thread::JoinHandle<Ended<T>>,
    stopping: CancellationToken,
    /// Once it has its runtime.
    remote: Option<Remote>,
}

/// A worker with a thread that has no runtime yet.
pub(super) struct Starting {
    place: Place,
    told: mpsc::Receiver<Remote>,
}

impl<T> Crew<T> {
    pub(super) fn new(
        stopping: CancellationToken,
        vacant: VecDeque<Place>,
        rules: Rules,
        addresses: Vec<SocketAddr>,
    ) -> Crew<T> {
        Crew { stopping, members: Vec::new(), vacant, rules: Arc::new(rules), addresses }
    }

    /// Starts the next worker: a thread that makes its runtime and calls `body` with it. Returns the worker's
    /// number when it has its runtime.
    ///
    /// `body` runs the runtime itself, and ends when it sees [`Worker::stopping`]: it is not given up after
    /// [`Workers::patience`](super::Workers::patience). It is called once, so that
    /// [`OnPanic::Restart`](super::OnPanic::Restart) is here what `Continue` is.
    ///
    /// ```
    /// use ringroad_engine::workers::Workers;
    ///
    /// let mut crew = Workers::new(2).crew()?;
    /// for number in 0..2 {
    ///     // Here the workers before it run already.
    ///     let added = crew.add(|worker, runtime| {
    ///         runtime.block_on(async { worker.stopping().cancelled().await })?;
    ///         Ok::<_, ringroad_engine::Error>(worker.index())
    ///     })?;
    ///     assert_eq!(added, number);
    /// }
    /// crew.stop();
    /// for ended in crew.join()? {
    ///     ended?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The thread or its runtime could not be made; then the next call tries this worker again, and the
    /// others go on. As many workers as [`Workers::new`](super::Workers::new) was called with have been
    /// started.
    pub fn add<B>(&mut self, body: B) -> Result<usize>
    where
        B: FnOnce(Worker, Runtime) -> T + Send + 'static,
        T: Send + 'static,
    {
        let starting = self.spawn(move |place, rules, tell| run_once(place.clone(), rules, body, tell))?;
        self.wait_for_runtime(starting)
    }

    /// Returns whether a worker is left to start.
    pub(super) fn has_vacancy(&self) -> bool {
        !self.vacant.is_empty()
    }

    /// Starts the thread of the next worker.
    pub(super) fn spawn<R>(&mut self, run: R) -> Result<Starting>
    where
        R: FnOnce(&Place, &Rules, &Tell) -> Ended<T> + Send + 'static,
        T: Send + 'static,
    {
        let Some(place) = self.vacant.pop_front() else {
            let why = io::Error::new(io::ErrorKind::InvalidInput, "all of this crew have been started");
            return Err(Error::new("starting a worker", why).hint("`Workers::new` sets their number"));
        };
        let (tell, told) = mpsc::channel();
        let (own, rules) = (place.clone(), Arc::clone(&self.rules));
        let named = thread::Builder::new().name(format!("{}-{}", rules.name, place.index));
        let spawned = named.spawn(move || {
            if let Some(cpu) = own.cpu {
                affinity::pin(cpu);
            }
            run(&own, &rules, &tell)
        });
        match spawned {
            Ok(thread) => {
                let (index, stopping) = (place.index, place.stopping.clone());
                self.members.push(Member { index, thread, stopping, remote: None });
                Ok(Starting { place, told })
            }
            Err(why) => {
                self.vacant.push_front(place);
                let why = Error::new("starting a worker", why);
                Err(why.hint("see `ulimit -u` and the cgroup's pids.max"))
            }
        }
    }

    /// Waits until the worker has its runtime, and returns its number.
    pub(super) fn wait_for_runtime(&mut self, starting: Starting) -> Result<usize> {
        let Starting { place, told } = starting;
        let index = place.index;
        let Some(at) = self.members.iter().position(|member| member.index == index) else { return Ok(index) };
        match told.recv() {
            Ok(remote) => {
                if let Some(member) = self.members.get_mut(at) {
                    member.remote = Some(remote);
                }
                Ok(index)
            }
            Err(_) => {
                let why = match ended(self.members.remove(at)) {
                    Err(WorkerError::Failed { why, .. }) => why,
                    Err(why) => Error::new("starting a worker", io::Error::other(why)),
                    // It tells its starter before it calls anything that has an output.
                    Ok(_) => return Ok(index),
                };
                self.vacant.push_front(place);
                Err(why)
            }
        }
    }

    /// Tells the workers to stop: their tokens ([`Worker::stopping`]) are cancelled.
    pub fn stop(&self) {
        self.stopping.cancel();
    }

    /// Returns the token that tells the workers to stop, for another thread or a signal.
    pub fn stopping(&self) -> &CancellationToken {
        &self.stopping
    }

    /// Returns the numbers of the workers, in ascending order.
    pub fn workers(&self) -> impl DoubleEndedIterator<Item = usize> + ExactSizeIterator {
        self.members.iter().map(|member| member.index)
    }

    /// Returns a handle to the runtime that worker `index` has begun with.
    pub fn remote(&self, index: usize) -> Option<&Remote> {
        self.member(index)?.remote.as_ref()
    }

    /// Returns whether worker `index` has ended, or is none of this crew.
    pub fn has_ended(&self, index: usize) -> bool {
        self.member(index).is_none_or(|member| member.thread.is_finished())
    }

    fn member(&self, index: usize) -> Option<&Member<T>> {
        self.members.iter().find(|member| member.index == index)
    }

    /// Returns the addresses that the workers listen at, in the order of [`Workers::listen`].
    ///
    /// [`Workers::listen`]: super::Workers::listen
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Tells these workers to stop, and returns them as a crew of their own; the others go on. They keep
    /// their numbers. Numbers of workers that are not in this crew are ignored.
    pub fn release(&mut self, workers: &[usize]) -> Crew<T> {
        let (released, staying): (Vec<_>, Vec<_>) =
            self.members.drain(..).partition(|member| workers.contains(&member.index));
        self.members = staying;
        released.iter().for_each(|member| member.stopping.cancel());
        let stopping = CancellationToken::new();
        stopping.cancel();
        Crew {
            stopping,
            members: released,
            vacant: VecDeque::new(),
            rules: Arc::clone(&self.rules),
            addresses: self.addresses.clone(),
        }
    }

    /// Lets the workers go on by themselves: dropping the crew neither stops nor waits for them. Their
    /// outputs are dropped.
    pub fn detach(&mut self) {
        self.members.clear();
    }

    /// Waits until every worker has ended; returns their outputs in the order of their numbers. It does not
    /// tell them to stop.
    ///
    /// # Errors
    /// The first worker that has panicked, failed, or did not stop in time.
    pub fn join(mut self) -> std::result::Result<Vec<T>, WorkerError> {
        let mut outputs = Vec::with_capacity(self.members.len());
        let mut first = Ok(());
        while let Some((_, ended)) = self.join_next() {
            match ended {
                Ok(output) => outputs.push(output),
                Err(why) => first = first.and(Err(why)),
            }
        }
        first.map(|()| outputs)
    }

    /// Waits until the worker with the lowest number has ended, takes it out of the crew, and returns its
    /// number and its output. It does not tell it to stop. `None`: no worker is left.
    pub fn join_next(&mut self) -> Option<(usize, std::result::Result<T, WorkerError>)> {
        if self.members.is_empty() {
            return None;
        }
        let member = self.members.remove(0);
        Some((member.index, ended(member)))
    }
}

/// Waits for the end of a worker.
fn ended<T>(member: Member<T>) -> std::result::Result<T, WorkerError> {
    let worker = member.index;
    match member.thread.join() {
        Ok(Ended::Output(output)) => Ok(output),
        Ok(Ended::Panicked(message)) => Err(WorkerError::Panicked { worker, message }),
        Ok(Ended::Failed(why)) => Err(WorkerError::Failed { worker, why }),
        Ok(Ended::Late) => Err(WorkerError::Late { worker }),
        Err(payload) => Err(WorkerError::Panicked { worker, message: text_of(payload) }),
    }
}

impl<T> Drop for Crew<T> {
    fn drop(&mut self) {
        if !self.members.is_empty() {
            self.stop();
        }
        // A drop returns no error.
        while self.join_next().is_some() {}
    }
}

impl<T> fmt::Debug for Crew<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crew")
            .field("workers", &self.members.len())
            .field("addresses", &self.addresses)
            .finish()
    }
}

/// Why a worker has no output.
#[derive(Debug)]
#[non_exhaustive]
pub enum WorkerError {
    /// Its future has panicked.
    #[non_exhaustive]
    Panicked {
        /// Its number.
        worker: usize,
        /// The message of the panic.
        message: String,
    },
    /// Its runtime has failed.
    #[non_exhaustive]
    Failed {
        /// Its number.
        worker: usize,
        /// The error.
        why: Error,
    },
    /// It did not end in time after it was told to stop.
    #[non_exhaustive]
    Late {
        /// Its number.
        worker: usize,
    },
}

impl fmt::Display for WorkerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WorkerError::Panicked { worker, message } => write!(f, "worker {worker} panicked: {message}"),
            WorkerError::Failed { worker, why } => write!(f, "worker {worker}: {why}"),
            WorkerError::Late { worker } => {
                write!(f, "worker {worker} did not stop in time: let its body watch `Worker::stopping`")
            }
        }
    }
}

impl std::error::Error for WorkerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            WorkerError::Failed { why, .. } => Some(why),
            _ => None,
        }
    }
}
