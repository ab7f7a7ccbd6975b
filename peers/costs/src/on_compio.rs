//! compio's runtime on io_uring, in the words the cases use. It has no channels.

#[path = "cases.rs"]
pub(crate) mod cases;

pub(crate) mod api {
    pub(crate) use crate::yielding::yield_now;
    use compio::runtime::Runtime;
    pub(crate) use compio::{runtime::spawn, time::sleep};
    use std::future::Future;

    pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
        Runtime::new().expect("io_uring is here").block_on(future)
    }

    /// Starts a task that runs without a handle.
    pub(crate) fn leave<F: Future<Output = ()> + 'static>(future: F) {
        spawn(future).detach();
    }

    pub(crate) async fn call_elsewhere(call: fn() -> u64) -> u64 {
        compio::runtime::spawn_blocking(call).await.expect("there are threads")
    }
}
