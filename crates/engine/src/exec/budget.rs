//! Counts results that are ready at once against the budget of a task. `sync::budget` is the public module,
//! and states the reason.

use super::{count_answer, give_answer_back, has_answers_left, take_answer};
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

/// Works as [`poll_counted`], for a `poll` that counts nothing itself: the budget is checked once.
#[inline]
pub(crate) fn poll_leaf<T>(
    context: &mut Context<'_>,
    poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
) -> Poll<T> {
    if !take_answer() {
        context.waker().wake_by_ref();
        return Poll::Pending;
    }
    let polled = poll(context);
    if polled.is_pending() {
        give_answer_back();
    }
    polled
}

/// The order in which two futures of one task are polled.
///
/// They take turns: a future that is always ready uses the whole budget of its task in each poll, and would
/// leave none for a future that is always polled after it.
///
/// ```
/// use ringroad_engine::sync::budget::Turns;
///
/// let mut turns = Turns::default();
/// assert_eq!(turns.round(), [true, false]);
/// assert_eq!(turns.round(), [false, true]);
/// ```
#[derive(Debug, Default)]
pub struct Turns {
    other_begins: bool,
}

impl Turns {
    /// Returns the order of this round: for each of its two polls, whether it is of the first future. The
    /// first round begins with the first future.
    #[inline]
    pub fn round(&mut self) -> [bool; 2] {
        let one_begins = !self.other_begins;
        self.other_begins = one_begins;
        [one_begins, !one_begins]
    }

    /// Polls both in the order of this round until one is ready, and returns its result.
    #[inline]
    pub fn poll<T>(
        &mut self,
        context: &mut Context<'_>,
        mut one: impl FnMut(&mut Context<'_>) -> Poll<T>,
        mut other: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        for polls_one in self.round() {
            let polled = if polls_one { one(context) } else { other(context) };
            if polled.is_ready() {
                return polled;
            }
        }
        Poll::Pending
    }
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
