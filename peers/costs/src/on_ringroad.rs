//! Our engine, on epoll (what tokio stands on), in the words the cases use.

#[path = "cases.rs"]
pub(crate) mod cases;
#[path = "messages.rs"]
pub(crate) mod messages;

pub(crate) mod api {
    use ringroad_engine::{JoinHandle, DriverName, Runtime, sync};
    pub(crate) use ringroad_engine::{sync::Semaphore, time::sleep, yield_now};
    use std::future::Future;

    pub(crate) use sync::oneshot::{Receiver as OnceReceiver, Sender as OnceSender};
    pub(crate) use sync::{
        Receiver, Sender, UnboundedReceiver, UnboundedSender, bounded, unbounded,
    };

    pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
        Runtime::new(DriverName::Epoll).expect("epoll is here").block_on(future).expect("epoll works")
    }

    pub(crate) fn spawn<F>(future: F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        ringroad_engine::spawn(future)
    }

    /// Starts a task that runs without a handle.
    pub(crate) fn leave<F: Future<Output = ()> + 'static>(future: F) {
        drop(ringroad_engine::spawn(future));
    }

    pub(crate) async fn send<T>(sender: &Sender<T>, value: T) {
        sender.send(value).await.expect("the receiver is there");
    }

    pub(crate) fn send_unbounded<T>(sender: &UnboundedSender<T>, value: T) {
        sender.send(value).expect("the receiver is there");
    }

    pub(crate) async fn receive<T>(receiver: &mut Receiver<T>) -> Option<T> {
        receiver.recv().await.ok()
    }

    pub(crate) async fn receive_unbounded<T>(receiver: &mut UnboundedReceiver<T>) -> Option<T> {
        receiver.recv().await.ok()
    }

    pub(crate) fn once<T>() -> (OnceSender<T>, OnceReceiver<T>) {
        sync::oneshot::channel()
    }

    pub(crate) async fn acquire(semaphore: &Semaphore) -> sync::SemaphoreGuard<'_> {
        semaphore.acquire().await
    }

    pub(crate) async fn call_elsewhere(call: fn() -> u64) -> u64 {
        ringroad_engine::spawn_blocking(call).await.expect("there are threads")
    }
}
