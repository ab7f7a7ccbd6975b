//! Runs the user's code that speaks another protocol on a connection, or on a stream of one.

use super::route::Panicked;
use super::worker::Worker;
use crate::counters::add;
use crate::message::{ConnectionHost, ConnectionId, Takeover, Upgraded};
use ringroad_engine::time;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

/// Runs the code to its end. When the server stops, it has
/// [`Server::upgraded_grace`](crate::Server::upgraded_grace), and is dropped then. A panic ends it, and is
/// counted.
pub(super) async fn run(worker: &Worker, takeover: Takeover, upgraded: Upgraded) {
    // Both the call that makes the future and its polls may panic.
    let mut begun = None;
    let mut takeover = Some((takeover, upgraded));
    let mut running = pin!(poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| {
            if let Some((takeover, upgraded)) = takeover.take() {
                begun = Some(takeover(upgraded));
            }
            begun.as_mut().map_or(Poll::Ready(()), |future| future.as_mut().poll(context))
        }));
        match polled {
            Ok(polled) => polled.map(Ok),
            Err(_) => Poll::Ready(Err(Panicked)),
        }
    }));
    let mut waiter = None;
    let first = poll_fn(|context| match running.as_mut().poll(context) {
        Poll::Ready(ended) => Poll::Ready(Some(ended)),
        Poll::Pending => worker.poll_stopping(&mut waiter, context).map(|()| None),
    });
    let ended = match first.await {
        Some(ended) => ended,
        // After the grace period the code is dropped, and the connection with it.
        None => time::timeout(worker.upgraded_grace(), running).await.unwrap_or(Ok(())),
    };
    if let Some(waiter) = waiter {
        worker.forget(ConnectionId::NONE, waiter);
    }
    if ended.is_err() {
        add(&worker.counts().panics, 1);
    }
}
