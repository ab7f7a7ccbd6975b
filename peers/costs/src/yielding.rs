//! A yield for runtimes without their own: the task wakes itself and is polled once more.

use std::future::poll_fn;
use std::task::Poll;

pub(crate) async fn yield_now() {
    let mut began = false;
    poll_fn(|context| {
        if std::mem::replace(&mut began, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
