//! Ctrl-C as a future.

use super::{Signal, Signals};
use crate::error::Result;
use crate::exec::budget::counted;
use crate::fork::PerProcess;
use event_listener::{Event, listener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Waits for the next Ctrl-C (SIGINT).
///
/// After the first call, SIGINT does not end the process any more. Every waiting task is woken. A SIGINT that
/// arrives while no task waits is kept for the next call, so this may stand in a loop of `select!`. For other
/// signals, and for several at once, use [`Signals`].
///
/// ```no_run
/// # async fn example() -> ringroad_engine::Result<()> {
/// ringroad_engine::signal::ctrl_c().await?;
/// println!("draining");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// As [`Signals::new`].
pub async fn ctrl_c() -> Result<()> {
    let counts = listen()?;
    counted(counts.next()).await;
    Ok(())
}

#[derive(Default)]
struct Counts {
    /// Number of signals that have arrived.
    came: AtomicU64,
    /// Number of them for which a call has returned.
    answered: AtomicU64,
    told: Event,
}

impl Counts {
    /// Waits for a signal for which no call has returned yet.
    async fn next(&self) {
        let answered = self.answered.load(Ordering::Acquire);
        loop {
            // Registered first, so that signals from here on are noticed.
            listener!(self.told => told);
            let came = self.came.load(Ordering::Acquire);
            if came > answered {
                self.answered.fetch_max(came, Ordering::AcqRel);
                return;
            }
            told.await;
        }
    }
}

/// The listener of a process, made by its first call, and the counts.
type Listener = Mutex<Option<(Signals, Arc<Counts>)>>;

/// Returns this process's counts. The first call starts the listener.
fn listen() -> Result<Arc<Counts>> {
    static LISTENS: PerProcess<Listener> = PerProcess::new();
    let mut listens = LISTENS.get(|_| Mutex::new(None)).lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, counts)) = &*listens {
        return Ok(Arc::clone(counts));
    }
    let counts = Arc::new(Counts::default());
    let tells = Arc::clone(&counts);
    let signals = Signals::telling(&[Signal::SIGINT], move || {
        tells.came.fetch_add(1, Ordering::AcqRel);
        tells.told.notify(usize::MAX);
    })?;
    *listens = Some((signals, Arc::clone(&counts)));
    Ok(counts)
}
