//! One budget of immediate results for I/O, channels and locks.
//!
//! A task that always finds its channel filled or its lock free would never return to the runtime: no timer
//! would fire and no I/O would be polled. So an operation that completes immediately counts against the same
//! budget as I/O, and a task that has used up its budget yields. Polls that return `Pending` cost nothing: a
//! task may poll hundreds of empty channels.

use crate::exec;
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Calls `poll` while the task has budget left; otherwise yields.
#[inline]
pub(super) fn poll_counted<T>(
    context: &mut Context<'_>,
    poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
) -> Poll<T> {
    if !exec::has_answers_left() {
        context.waker().wake_by_ref();
        return Poll::Pending;
    }
    let polled = poll(context);
    if polled.is_ready() {
        exec::count_answer();
    }
    polled
}

pin_project! {
    /// A future with a result that counts against the task's budget.
    pub(super) struct Counted<F> {
        #[pin]
        future: F,
    }
}

/// Counts the result of `future` against the budget.
#[inline]
pub(super) fn counted<F: Future>(future: F) -> Counted<F> {
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
