//! What the models of channels and locks have in common: a task that waits, as a thread of loom.

use loom::sync::{Condvar, Mutex};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

/// Wakes a waiting task in a model.
struct Bell(Mutex<bool>, Condvar);

impl Wake for Bell {
    fn wake(self: Arc<Bell>) {
        *self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = true;
        self.1.notify_one();
    }
}

/// Polls until there is a result, and waits to be woken in between. A lost wake is a deadlock, which loom
/// reports.
pub(super) fn waited<R>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<R>) -> R {
    let bell = Arc::new(Bell(Mutex::new(false), Condvar::new()));
    let waker = Waker::from(Arc::clone(&bell));
    loop {
        if let Poll::Ready(result) = poll(&mut Context::from_waker(&waker)) {
            return result;
        }
        let mut rung = bell.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        while !std::mem::take(&mut *rung) {
            rung = bell.1.wait(rung).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }
}

/// Calls `run` in every order of events in which threads are interrupted at most three times: all orders of
/// three threads take hours, and these take seconds and still find the known mistakes.
pub(super) fn check_three_threads(run: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(run);
}
