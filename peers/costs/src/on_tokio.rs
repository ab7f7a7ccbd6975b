//! tokio's current-thread runtime, in the words the cases use.

#[path = "cases.rs"]
pub(crate) mod cases;
#[path = "messages.rs"]
pub(crate) mod messages;

pub(crate) mod api {
    use std::future::Future;
    use tokio::runtime::Builder;
    pub(crate) use tokio::sync::Semaphore;
    use tokio::sync::{SemaphorePermit, mpsc, oneshot};
    pub(crate) use tokio::{spawn, task::yield_now, time::sleep};

    pub(crate) use mpsc::{
        Receiver, Sender, UnboundedReceiver, UnboundedSender, channel as bounded,
        unbounded_channel as unbounded,
    };
    pub(crate) use oneshot::{Receiver as OnceReceiver, Sender as OnceSender};

    pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
        Builder::new_current_thread().enable_all().build().expect("epoll is here").block_on(future)
    }

    /// Starts a task that runs without a handle.
    pub(crate) fn leave<F: Future<Output = ()> + Send + 'static>(future: F) {
        drop(spawn(future));
    }

    pub(crate) async fn send<T>(sender: &Sender<T>, value: T) {
        assert!(sender.send(value).await.is_ok(), "the receiver is there");
    }

    pub(crate) fn send_unbounded<T>(sender: &UnboundedSender<T>, value: T) {
        assert!(sender.send(value).is_ok(), "the receiver is there");
    }

    pub(crate) async fn receive<T>(receiver: &mut Receiver<T>) -> Option<T> {
        receiver.recv().await
    }

    pub(crate) async fn receive_unbounded<T>(receiver: &mut UnboundedReceiver<T>) -> Option<T> {
        receiver.recv().await
    }

    pub(crate) fn once<T>() -> (OnceSender<T>, OnceReceiver<T>) {
        oneshot::channel()
    }

    pub(crate) async fn acquire(semaphore: &Semaphore) -> SemaphorePermit<'_> {
        semaphore.acquire().await.expect("it is never closed")
    }

    pub(crate) async fn call_elsewhere(call: fn() -> u64) -> u64 {
        tokio::task::spawn_blocking(call).await.expect("there are threads")
    }
}
