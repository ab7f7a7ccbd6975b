//! monoio's runtime on io_uring, in the words the cases use. It has no channels.

#[path = "cases.rs"]
pub(crate) mod cases;

pub(crate) mod api {
    pub(crate) use crate::yielding::yield_now;
    use monoio::blocking::DefaultThreadPool;
    pub(crate) use monoio::time::sleep;
    use monoio::{IoUringDriver, RuntimeBuilder};
    use std::convert::Infallible;
    use std::future::Future;

    pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
        let builder = RuntimeBuilder::<IoUringDriver>::new().enable_timer();
        let pool = Box::new(DefaultThreadPool::new(2));
        builder.attach_thread_pool(pool).build().expect("io_uring is here").block_on(future)
    }

    /// Its handle has no error: a panic ends the runtime.
    pub(crate) fn spawn<F>(future: F) -> impl Future<Output = Result<F::Output, Infallible>>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        let handle = monoio::spawn(future);
        async move { Ok(handle.await) }
    }

    /// Starts a task that runs without a handle.
    pub(crate) fn leave<F: Future<Output = ()> + 'static>(future: F) {
        drop(monoio::spawn(future));
    }

    pub(crate) async fn call_elsewhere(call: fn() -> u64) -> u64 {
        monoio::spawn_blocking(call).await.expect("there are threads")
    }
}
