//! One worker: its place, and its thread from the runtime's making to its end.
//!
//! Start at [`run`] for a worker that is a future, and at [`run_once`] for one that runs the runtime itself.

use super::OnPanic;
use crate::error::{Error, Result};
use crate::exec::{Builder, Remote, Runtime};
use crate::net::TcpListener;
use crate::sync::CancellationToken;
use crate::time::sleep;
use std::any::Any;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, OnceLock, mpsc};
use std::task::Poll;
use std::thread;
use std::time::Duration;

/// One worker, as its thread has it.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) index: usize,
    pub(super) count: usize,
    /// Stops all workers that were started together.
    pub(super) all: CancellationToken,
    /// Stops this one; a child of `all`.
    pub(super) stopping: CancellationToken,
    pub(super) sockets: Arc<Vec<std::net::TcpListener>>,
    pub(super) cpu: Option<usize>,
}

/// What the body of a worker gets.
#[derive(Clone)]
pub struct Worker {
    place: Place,
}

impl Worker {
    /// Returns its number, from 0.
    pub fn index(&self) -> usize {
        self.place.index
    }

    /// Returns the number of workers.
    pub fn count(&self) -> usize {
        self.place.count
    }

    /// Returns the token that is cancelled when this worker is to stop.
    pub fn stopping(&self) -> &CancellationToken {
        &self.place.stopping
    }

    /// Returns this worker's listener at the `nth` address of [`Workers::listen`].
    ///
    /// [`Workers::listen`]: super::Workers::listen
    ///
    /// # Errors
    /// EMFILE, or there is no such address.
    ///
    /// # Panics
    /// Outside of the worker's runtime.
    pub fn listener(&self, nth: usize) -> Result<TcpListener> {
        let socket = self.place.sockets.get(nth).ok_or_else(|| {
            let why = format!("there are {} addresses, and no number {nth}", self.place.sockets.len());
            Error::new("listener", io::Error::new(io::ErrorKind::InvalidInput, why))
        })?;
        TcpListener::from_std(socket.try_clone().map_err(|why| Error::new("fcntl", why))?)
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("index", &self.place.index).finish_non_exhaustive()
    }
}

/// What holds for all workers of a crew.
pub(super) struct Rules {
    /// Of the threads, without the worker's number.
    pub(super) name: String,
    pub(super) builder: Box<dyn Fn() -> Builder + Send + Sync>,
    pub(super) on_panic: OnPanic,
    pub(super) patience: Duration,
}

/// Tells the starter that a worker has its runtime. Dropped without a word: the worker ends before it has
/// one.
pub(super) type Tell = mpsc::Sender<Remote>;

/// Result of one worker.
pub(super) enum Ended<T> {
    Output(T),
    Panicked(String),
    Failed(Error),
    /// It had not ended when its time to stop was over.
    Late,
}

/// Runs one worker on its thread. The body begins when `may_begin` says so.
pub(super) fn run<B, F>(
    place: &Place,
    rules: &Rules,
    body: &B,
    tell: &Tell,
    may_begin: &OnceLock<bool>,
) -> Ended<F::Output>
where
    B: Fn(Worker) -> F,
    F: Future + 'static,
    F::Output: 'static,
{
    let mut has_begun = false;
    loop {
        let runtime = match (rules.builder)().build() {
            Ok(runtime) => runtime,
            Err(why) => {
                // A worker that never had a runtime is its starter's matter.
                if has_begun {
                    place.all.cancel();
                }
                return Ended::Failed(why);
            }
        };
        // After a restart the starter does not listen any more.
        let _ = tell.send(runtime.remote());
        if !*may_begin.wait() {
            // Another worker has no runtime, and the starter drops all of them.
            return Ended::Late;
        }
        has_begun = true;
        let worker = Worker { place: place.clone() };
        let ran = catch_unwind(AssertUnwindSafe(|| {
            runtime.block_on(until_stopped(&place.stopping, rules.patience, async { body(worker).await }))
        }));
        let panic = match ran {
            Ok(Ok(Some(output))) => return Ended::Output(output),
            Ok(Ok(None)) => return Ended::Late,
            Ok(Err(why)) => {
                place.all.cancel();
                return Ended::Failed(why);
            }
            Err(payload) => text_of(payload),
        };
        drop(runtime);
        if rules.on_panic == OnPanic::Stop {
            place.all.cancel();
        }
        if rules.on_panic != OnPanic::Restart || place.stopping.is_cancelled() {
            return Ended::Panicked(panic);
        }
        thread::sleep(RESTART_AFTER);
    }
}

/// Has `body` run one worker's runtime on the worker's thread.
pub(super) fn run_once<T>(
    place: Place,
    rules: &Rules,
    body: impl FnOnce(Worker, Runtime) -> T,
    tell: &Tell,
) -> Ended<T> {
    let runtime = match (rules.builder)().build() {
        Ok(runtime) => runtime,
        Err(why) => return Ended::Failed(why),
    };
    // The starter waits for it.
    let _ = tell.send(runtime.remote());
    let all = place.all.clone();
    match catch_unwind(AssertUnwindSafe(|| body(Worker { place }, runtime))) {
        Ok(output) => Ended::Output(output),
        Err(payload) => {
            if rules.on_panic == OnPanic::Stop {
                all.cancel();
            }
            Ended::Panicked(text_of(payload))
        }
    }
}

/// Pause before a worker that has panicked is started again.
const RESTART_AFTER: Duration = Duration::from_secs(1);

/// Runs `body`; gives it up when it has not ended `patience` after the stop.
async fn until_stopped<F: Future>(
    stop: &CancellationToken,
    patience: Duration,
    body: F,
) -> Option<F::Output> {
    let (mut body, mut late) = (
        pin!(body),
        pin!(async {
            stop.cancelled().await;
            sleep(patience).await;
        }),
    );
    poll_fn(|context| match body.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => late.as_mut().poll(context).map(|()| None),
    })
    .await
}

/// Returns the message of a panic. The payload's destructor may panic too, so another kind is leaked.
pub(super) fn text_of(payload: Box<dyn Any + Send>) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    std::mem::forget(payload);
    text.unwrap_or_else(|| "(no message)".to_owned())
}
