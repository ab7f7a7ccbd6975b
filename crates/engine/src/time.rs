//! Timers: `sleep`, `timeout` for operations that may take too long, and `interval` for what is repeated.
//!
//! The timers themselves are in `wheel.rs`.

mod interval;

pub use interval::{Interval, MissedTick, interval, interval_at};

use crate::exec::Core;
use crate::exec::budget::poll_counted;
use crate::wheel::TimerId;
use pin_project_lite::pin_project;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Waits for `span`. Never less; the delay beyond it is at most one millisecond and the current turn of the
/// loop.
///
/// # Panics
/// When polled outside a runtime.
pub fn sleep(span: Duration) -> Sleep {
    Sleep { span, timer: None }
}

/// Future of [`sleep`]. Time runs from the first poll.
///
/// If it is polled in another runtime of its thread than before, it moves there with the rest of its span,
/// rounded up to a millisecond again. The clock of the runtime it leaves determines the rest, whether that
/// runtime still runs or not.
#[must_use = "futures do nothing unless awaited"]
pub struct Sleep {
    span: Duration,
    timer: Option<(Rc<Core>, TimerId)>,
}

impl Sleep {
    /// Waits anew: for `span` from the next poll on. A task that awaits it must poll it again, as a loop
    /// around a `select!` does.
    pub fn reset(&mut self, span: Duration) {
        self.end();
        self.span = span;
    }

    /// Returns whether it ends at its next poll: it has no length, or has ended before. Such a poll counts
    /// against the task's budget, or a loop of them would stop the runtime. The end of one that waits does
    /// not: a task that always uses its budget up still gets it.
    fn is_immediate(&self) -> bool {
        self.timer.is_none() && self.span.is_zero()
    }

    fn poll_uncounted(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let (core, left) = match &self.timer {
            None => (Core::current("sleep"), self.span),
            Some((home, id)) => {
                if home.poll_timer(id, context.waker()) {
                    self.end();
                    return Poll::Ready(());
                }
                // The timers of another runtime may never advance again.
                match home.other_current() {
                    Some(here) => (here, home.timer_left(id)),
                    None => return Poll::Pending,
                }
            }
        };
        if left.is_zero() {
            return Poll::Ready(());
        }
        let id = core.set_timer(left, context.waker());
        if let Some((home, id)) = self.timer.replace((core, id)) {
            home.drop_timer(id);
        }
        Poll::Pending
    }

    /// Makes each further poll an [immediate](Self::is_immediate) one.
    fn end(&mut self) {
        self.span = Duration::ZERO;
        if let Some((core, id)) = self.timer.take() {
            core.drop_timer(id);
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match self.is_immediate() {
            true => poll_counted(context, |context| self.poll_uncounted(context)),
            false => self.poll_uncounted(context),
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("span", &self.span).finish()
    }
}

/// Returns the present time of the runtime's clock: [`Instant::now`], or the virtual time in a simulation.
///
/// # Panics
/// Outside of a runtime.
pub fn now() -> Instant {
    Core::current("time::now").instant()
}

/// Waits until `deadline` of the runtime's clock ([`now`]); not at all if that is over.
///
/// # Panics
/// When polled outside a runtime.
pub async fn sleep_until(deadline: Instant) {
    sleep(deadline.saturating_duration_since(now())).await;
}

/// Gives `future` time until `deadline` of the runtime's clock ([`now`]). Then it is dropped, as by
/// [`timeout`].
///
/// # Errors
/// [`Elapsed`], as of [`timeout`].
///
/// # Panics
/// Outside of a runtime.
pub fn timeout_at<F: Future>(deadline: Instant, future: F) -> Timeout<F> {
    timeout(deadline.saturating_duration_since(now()), future)
}

/// Gives `future` at most `span`. Then it is dropped, which cancels its operation and loses nothing (see
/// [`crate::net`]).
///
/// # Errors
/// [`Elapsed`] if the time is over first. If both happen in one turn, the future's result counts.
pub fn timeout<F: Future>(span: Duration, future: F) -> Timeout<F> {
    Timeout { future, sleep: sleep(span), span }
}

pin_project! {
    /// Future of [`timeout`].
    #[must_use = "futures do nothing unless awaited"]
    pub struct Timeout<F> {
        #[pin]
        future: F,
        #[pin]
        sleep: Sleep,
        span: Duration,
    }
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let immediate = this.sleep.is_immediate();
        let poll = |context: &mut Context<'_>| {
            if let Poll::Ready(output) = this.future.poll(context) {
                return Poll::Ready(Ok(output));
            }
            this.sleep.poll_uncounted(context).map(|()| Err(Elapsed(*this.span)))
        };
        // Without any time it is ready in each case.
        if immediate { poll_counted(context, poll) } else { poll(context) }
    }
}

/// The time limit was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed(pub Duration);

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not done within {:?}", self.0)
    }
}

impl std::error::Error for Elapsed {}
