//! Waits of threads without a runtime.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

/// Wakes a parked thread.
struct Parked(Thread);

impl Wake for Parked {
    fn wake(self: Arc<Parked>) {
        self.0.unpark();
    }
}

/// Polls until there is a result; sleeps between polls.
pub(crate) fn block_on<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
    let waker = Waker::from(Arc::new(Parked(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match poll(&mut context) {
            Poll::Ready(result) => return result,
            // Returns at once if the waker was called meanwhile.
            Poll::Pending => thread::park(),
        }
    }
}
