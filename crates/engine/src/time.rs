//! Waiting for a time: `sleep`, and `timeout` for what may take too long.
//!
//! The timers themselves are in `wheel.rs`.

use crate::exec::Core;
use crate::wheel::TimerId;
use pin_project_lite::pin_project;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Waits for `span`. Never shorter; longer by at most a millisecond and the turn of the loop it is noticed in.
///
/// # Panics
/// When polled outside a runtime.
pub fn sleep(span: Duration) -> Sleep {
    Sleep { span, timer: None }
}

/// Future of [`sleep`]. Time runs from the first poll.
///
/// Polled in another runtime of its thread than before, it goes there with what is left of its span, rounded up to a
/// millisecond again. What is left is told by the clock of the one it leaves, whether that still runs or not.
#[must_use = "futures do nothing unless awaited"]
pub struct Sleep {
    span: Duration,
    timer: Option<(Rc<Core>, TimerId)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let (core, left) = match &self.timer {
            None => (Core::current("sleep"), self.span),
            Some((home, id)) => {
                if home.poll_timer(id, context.waker()) {
                    return Poll::Ready(());
                }
                // Nobody may ever turn the wheel of a runtime that is not the one that polls.
                match home.instead_of_it() {
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
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some((core, id)) = self.timer.take() {
            core.drop_timer(id);
        }
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("span", &self.span).finish()
    }
}

/// Gives `future` at most `span`; then it is dropped, which cancels what it waits for and loses nothing
/// (see [`crate::net`]).
///
/// # Errors
/// [`Elapsed`], when the time was over first. If both happen in one turn, the future wins.
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
        let this = self.project();
        if let Poll::Ready(output) = this.future.poll(context) {
            return Poll::Ready(Ok(output));
        }
        this.sleep.poll(context).map(|()| Err(Elapsed(*this.span)))
    }
}

/// The time was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed(pub Duration);

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not done within {:?}", self.0)
    }
}

impl std::error::Error for Elapsed {}
