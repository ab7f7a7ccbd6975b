//! The runtime's public interface: create, run, inspect, shut down.
//!
//! Start at [`Runtime`].

use super::{Builder, Core, Counts, JoinHandle, Remote, current};
use crate::choose::choose;
use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::name::DriverName;
use std::fmt;
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long dropping a runtime waits for the kernel to complete operations.
const PATIENCE: Duration = Duration::from_secs(5);

/// An executor with its driver, bound to the thread that created it.
///
/// It also belongs to the process that created it. In a child made by fork(2), `block_on` is an error, the
/// runtime's sockets report that it has been shut down, and dropping it closes the child's copies of the
/// descriptors without any effect on the peers.
///
/// ```
/// use ringroad_engine::{DriverName, Runtime, net::{TcpListener, TcpStream}};
///
/// let runtime = Runtime::new(DriverName::Epoll)?;
/// runtime.block_on(async {
///     let mut listener = TcpListener::bind(([127, 0, 0, 1], 0).into())?;
///     let address = listener.local_addr()?;
///     let echo = ringroad_engine::spawn(async move {
///         let mut stream = listener.accept().await?;
///         let bytes = stream.recv().await?;
///         stream.write_all(bytes).await.0
///     });
///     let mut stream = TcpStream::connect(address).await?;
///     stream.write_all("hello").await.0?;
///     assert_eq!(&*stream.recv().await?, b"hello");
///     echo.await.unwrap()
/// })??;
/// # Ok::<(), ringroad_engine::Error>(())
/// ```
pub struct Runtime {
    pub(super) core: Rc<Core>,
}

impl Runtime {
    /// Creates a runtime on this driver, with default settings.
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn new(driver: DriverName) -> Result<Runtime> {
        Builder::new(driver).build()
    }

    /// Creates a runtime on the driver that the environment variable `RINGROAD_DRIVER` names, else on the
    /// first one that passes its trial ([`choose`](crate::choose)), with the kernel features that were found.
    /// If the runtime cannot be made for want of locked memory, the next driver is used.
    ///
    /// # Errors
    /// The environment variable does not name a driver, or names one that cannot be used here; or no driver
    /// can be used. Otherwise as [`Builder::build`].
    pub fn auto() -> Result<Runtime> {
        let mut choice =
            choose(None, None).map_err(|why| Error::new("choosing a driver", io::Error::other(why)))?;
        choice.settle(
            |choice| Builder::new(choice.driver()).features(choice.features()).build(),
            |why| Some(why),
        )
    }

    /// Starts the settings for a runtime on this driver.
    pub fn builder(driver: DriverName) -> Builder {
        Builder::new(driver)
    }

    /// Runs `future` and all spawned tasks until `future` is done. Unfinished tasks continue in the next
    /// call.
    ///
    /// # Errors
    /// The driver itself failed (EBADR: a completion was lost; in `sim`: a deadlock). Or this process was
    /// forked from the one that created the runtime: a child creates its own, after the fork.
    ///
    /// # Panics
    /// When called inside a runtime; also any panic of `future`.
    pub fn block_on<F: Future>(&self, future: F) -> Result<F::Output> {
        assert!(current().is_none(), "block_on inside a runtime would stop that runtime: await instead");
        self.core.run(future)
    }

    /// Starts a task. It runs during `block_on`.
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        Rc::clone(&self.core).spawn(future)
    }

    /// Creates a handle for other threads.
    pub fn remote(&self) -> Remote {
        self.core.remote()
    }

    /// Returns the driver it runs on.
    pub fn driver(&self) -> Option<DriverName> {
        self.core.with_io(|io| io.driver_name())
    }

    /// Returns how many connections can be [direct](crate::net::TcpStream::into_direct) in this runtime.
    /// Creates the table if there is none yet.
    ///
    /// # Errors
    /// As `into_direct`, of the first connection.
    pub fn direct_places(&self) -> Result<u32> {
        self.core.with_io(|io| io.direct_places()).unwrap_or(Ok(0))
    }

    /// Returns the counters.
    pub fn counters(&self) -> Counters {
        self.core.counters()
    }

    /// Describes every operation with its state, target and age, as text for debugging.
    pub fn dump(&self) -> String {
        self.core.dump()
    }

    /// Describes the operations of the runtime that runs on this thread; `None` outside of a runtime.
    pub fn dump_current() -> Option<String> {
        current().map(|core| core.dump())
    }

    /// Returns the number of operations that have not ended, including those in the kernel.
    pub fn in_flight(&self) -> usize {
        self.core.with_io(|io| io.in_flight()).unwrap_or(0)
    }

    /// Returns the number of open descriptors and files, including those about to be closed.
    pub fn descriptors(&self) -> usize {
        self.core.with_io(|io| io.table.open() + io.files_open().load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Drops all tasks, cancels and reaps everything in flight, and closes every descriptor. Waits at most
    /// `patience` for the kernel. Memory that the kernel still uses then is leaked, because freeing it would
    /// be unsound.
    ///
    /// A panic in the destructor of a task ends only that task, as while the runtime runs: the panic hook
    /// reports it, and the shutdown continues. In a forked child the runtime belongs to the parent: there
    /// this drops the tasks and closes the child's copies of the descriptors, and nothing else.
    ///
    /// # Errors
    /// The number of leaked operations.
    pub fn shutdown(self, patience: Duration) -> std::result::Result<(), Stuck> {
        match self.core.shut_down(patience) {
            0 => Ok(()),
            operations => Err(Stuck { operations }),
        }
    }
}

/// Runs `future` and the tasks that it spawns on a new runtime ([`Runtime::auto`]) until it is ready. The
/// remaining tasks are cancelled then.
///
/// ```
/// let sum = ringroad_engine::run(async { ringroad_engine::spawn(async { 1 + 1 }).await.unwrap() })?;
/// assert_eq!(sum, 2);
/// # Ok::<(), ringroad_engine::Error>(())
/// ```
///
/// # Errors
/// As [`Runtime::auto`] and [`Runtime::block_on`].
pub fn run<F: Future>(future: F) -> Result<F::Output> {
    Runtime::auto()?.block_on(future)
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if self.core.io.borrow().is_some() {
            let leaked = self.core.shut_down(PATIENCE);
            let counts = self.core.counts.get();
            self.core.counts.set(Counts { leaked, ..counts });
        }
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("driver", &self.driver()).finish()
    }
}

/// The kernel did not complete all operations in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// Operations with leaked memory.
    pub operations: u64,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the kernel did not let go of {} operations in time; their memory is leaked",
            self.operations
        )
    }
}

impl std::error::Error for Stuck {}
