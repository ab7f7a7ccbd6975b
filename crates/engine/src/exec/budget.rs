//! Counts what is ready at once against the budget of a task. `sync::budget` is its public place, and has the
//! reason.

use super::{count_answer, has_answers_left};
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Calls `poll` while the task has budget left, and counts its result; otherwise yields. Outside of a runtime
/// there is no limit.
#[inline]
pub fn poll_counted<T>(context: &mut Context<'_>, poll: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
    if !has_answers_left() {
        context.waker().wake_by_ref();
        return Poll::Pending;
    }
    let polled = poll(context);
    if polled.is_ready() {
        count_answer();
    }
    polled
}

pin_project! {
    /// Future of [`counted`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless awaited"]
    pub struct Counted<F> {
        #[pin]
        future: F,
    }
}

/// Counts the result of `future` against the budget.
#[inline]
pub fn counted<F: Future>(future: F) -> Counted<F> {
    Counted { future }
}

impl<F: Future> Future for Counted<F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let future = self.project().future;
        poll_counted(context, |context| future.poll(context))
    }
}
