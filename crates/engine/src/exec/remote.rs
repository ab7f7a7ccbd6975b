//! Handles for other threads to reach a runtime.
//!
//! Start at [`Remote`].

use super::inbox::{Inbox, Message};
use super::{Core, JoinError, spawn};
use crate::parked::block_on;
use futures_channel::oneshot;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

/// A handle to a runtime for other threads.
#[derive(Clone)]
pub struct Remote {
    pub(super) inbox: Arc<Inbox>,
}

impl Remote {
    /// Returns a handle of the runtime that runs on this thread, for other threads to reach it.
    ///
    /// ```
    /// use ringroad_engine::{DriverName, Remote, Runtime, sync::oneshot};
    ///
    /// let answer = Runtime::new(DriverName::Epoll)?.block_on(async {
    ///     let (here, (answer, answered)) = (Remote::current(), oneshot::channel());
    ///     // A thread of another library, which calls back.
    ///     std::thread::spawn(move || here.spawn(|| async move { answer.send(42).unwrap() }));
    ///     answered.await
    /// })?;
    /// assert_eq!(answer, Ok(42));
    /// # Ok::<(), ringroad_engine::Error>(())
    /// ```
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn current() -> Remote {
        Core::current("Remote::current").remote()
    }

    /// Calls `make` on the runtime's thread and starts the task that it returns.
    ///
    /// # Errors
    /// [`Gone`]: the runtime has been shut down; `make` is dropped here.
    pub fn spawn<M, F>(&self, make: M) -> std::result::Result<(), Gone>
    where
        M: FnOnce() -> F + Send + 'static,
        F: Future<Output = ()> + 'static,
    {
        // `make` runs inside the task, so that a panic in it ends only that task.
        let call = Box::new(move || spawn(async move { make().await }).detach());
        self.inbox.send(Message::Call(call)).map_err(|_| Gone)
    }

    /// Works as [`spawn`](Self::spawn), and sends the task's output to the thread or runtime that waits for
    /// the handle.
    ///
    /// ```
    /// use ringroad_engine::{DriverName, Runtime};
    ///
    /// let runtime = Runtime::new(DriverName::Epoll)?;
    /// let remote = runtime.remote();
    /// let other = std::thread::spawn(move || {
    ///     let task = remote.spawn_with_result(|| async { 6 * 7 }).unwrap();
    ///     task.join_blocking().unwrap()
    /// });
    /// runtime.block_on(async {
    ///     while !other.is_finished() {
    ///         ringroad_engine::yield_now().await;
    ///     }
    /// })?;
    /// assert_eq!(other.join().unwrap(), 42);
    /// # Ok::<(), ringroad_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Gone`]: the runtime has been shut down; `make` is dropped here.
    pub fn spawn_with_result<M, F>(&self, make: M) -> std::result::Result<RemoteTask<F::Output>, Gone>
    where
        M: FnOnce() -> F + Send + 'static,
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        let (report, receiver) = oneshot::channel();
        let started = Arc::new(OnceLock::new());
        let tell = Arc::clone(&started);
        // `make` runs inside the task, so that a panic in it ends only that task.
        let call = Box::new(move || {
            let task = spawn(async move { make().await });
            // Set once: by this call.
            let _ = tell.set(task.place());
            spawn(async move {
                // Fails if the handle was dropped: then the output is dropped here.
                let _ = report.send(task.await);
            })
            .detach();
        });
        self.inbox.send(Message::Call(call)).map_err(|_| Gone)?;
        Ok(RemoteTask { receiver, remote: self.clone(), started })
    }
}

/// A handle of a task that was spawned with [`Remote::spawn_with_result`]. Awaiting it returns the task's
/// output, on any runtime; dropping it detaches the task.
pub struct RemoteTask<T> {
    receiver: oneshot::Receiver<Result<T, JoinError>>,
    remote: Remote,
    /// The place of the task in its runtime, from its start on.
    started: Arc<OnceLock<(u32, u32)>>,
}

impl<T> RemoteTask<T> {
    /// Asks the task's runtime to cancel the task, as [`JoinHandle::cancel`](crate::JoinHandle::cancel) does
    /// on its own thread. Awaiting this handle then returns [`JoinError::Cancelled`], or the output if the
    /// task has ended before.
    #[doc(alias = "abort")]
    pub fn cancel(&self) {
        let started = Arc::clone(&self.started);
        // It follows the message that starts the task. A runtime that was shut down has no task any more.
        let _ = self.remote.call(move |core| {
            if let Some((index, generation)) = started.get() {
                core.cancel_task(*index, *generation);
            }
        });
    }

    /// Waits for the output on a thread without a runtime; blocks.
    ///
    /// # Errors
    /// The task panicked, or its runtime was shut down.
    pub fn join_blocking(mut self) -> Result<T, JoinError> {
        block_on(|context| Pin::new(&mut self).poll(context))
    }
}

impl<T> Future for RemoteTask<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.receiver).poll(context).map(|told| told.unwrap_or(Err(JoinError::Cancelled)))
    }
}

impl<T> fmt::Debug for RemoteTask<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RemoteTask")
    }
}

impl Remote {
    /// Calls `work` on the runtime's thread, at its next turn.
    pub(crate) fn call(&self, work: impl FnOnce(&Core) + Send + 'static) -> std::result::Result<(), Gone> {
        // Only a running runtime takes messages, so there is a current one.
        let call = Box::new(move || work(&Core::current("a message")));
        self.inbox.send(Message::Call(call)).map_err(|_| Gone)
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Remote")
    }
}

/// Error: the runtime has been shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the runtime has been shut down")
    }
}

impl std::error::Error for Gone {}
