//! The runtime as a program has it: made, run, asked, shut down.
//!
//! Start at [`Runtime`].

use super::{Builder, Core, Counts, JoinHandle, Remote, current};
use crate::counters::Counters;
use crate::error::Result;
use crate::name::Name;
use std::fmt;
use std::future::Future;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long a runtime that is dropped waits for the kernel to let go.
const PATIENCE: Duration = Duration::from_secs(5);

/// An executor with its driver, on the thread that made it.
///
/// ```
/// use ringroad_engine::{Name, Runtime, net::{TcpListener, TcpStream}};
///
/// let runtime = Runtime::new(Name::Epoll)?;
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
    /// On this driver, with default settings.
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn new(driver: Name) -> Result<Runtime> {
        Builder::new(driver).build()
    }

    /// Settings for a runtime on this driver.
    pub fn builder(driver: Name) -> Builder {
        Builder::new(driver)
    }

    /// Runs `future` and everything spawned until `future` is done. Spawned tasks that are not over wait for the
    /// next call.
    ///
    /// # Errors
    /// The driver itself failed (EBADR: a completion was lost; or in `sim`: nothing can happen any more).
    ///
    /// # Panics
    /// When called inside a runtime; and with whatever `future` panics with.
    pub fn block_on<F: Future>(&self, future: F) -> Result<F::Output> {
        assert!(current().is_none(), "block_on inside a runtime would stop that runtime: await instead");
        self.core.run(future)
    }

    /// Starts a task. It runs while `block_on` does.
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        self.core.spawn(future)
    }

    /// A handle for other threads.
    pub fn remote(&self) -> Remote {
        self.core.remote()
    }

    /// The driver it runs on.
    pub fn driver(&self) -> Option<Name> {
        self.core.with_io(|io| io.driver_name())
    }

    /// How many connections can be [direct](crate::net::TcpStream::into_direct) in this runtime. Makes the table if there is
    /// none yet.
    ///
    /// # Errors
    /// As `into_direct`, of the first connection.
    pub fn direct_places(&self) -> Result<u32> {
        self.core.with_io(|io| io.direct_places()).unwrap_or(Ok(0))
    }

    /// What has been done so far.
    pub fn counters(&self) -> Counters {
        self.core.counters()
    }

    /// Every operation with its state, target and age, as text for a person who wonders why nothing happens.
    pub fn dump(&self) -> String {
        self.core.dump()
    }

    /// The same of the runtime that runs on this thread, for code that has no handle of it; `None` if there is none.
    pub fn dump_current() -> Option<String> {
        current().map(|core| core.dump())
    }

    /// Operations that are not over, including those the kernel has.
    pub fn in_flight(&self) -> usize {
        self.core.with_io(|io| io.in_flight()).unwrap_or(0)
    }

    /// Descriptors that are open, including those about to be closed, and files that were opened here.
    pub fn descriptors(&self) -> usize {
        self.core.with_io(|io| io.table.open() + io.files_open().load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Drops all tasks, cancels and reaps everything in flight, and closes every descriptor; at most for
    /// `patience`. What the kernel has not let go of by then is leaked, since freeing it would be unsound.
    ///
    /// # Errors
    /// How many operations were leaked.
    pub fn shutdown(self, patience: Duration) -> std::result::Result<(), Stuck> {
        match self.core.shut_down(patience) {
            0 => Ok(()),
            operations => Err(Stuck { operations }),
        }
    }
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

/// The kernel did not let go of everything in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// Operations whose memory was leaked.
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
