//! Received bytes as pieces of a body.

use crate::message::Chunk;
use crate::transport::Receive;
use ringroad_engine::Lease;
use std::future::poll_fn;
use std::task::Poll;

/// Joins the first received lease with further received bytes, as [`Chunk::gather`] does.
pub async fn gather(
    from: &mut impl Receive,
    first: Lease,
) -> (Chunk, Option<ringroad_engine::Result<Lease>>) {
    let mut first = Some(first);
    poll_fn(|context| {
        let first = first.take().unwrap_or_default();
        Poll::Ready(Chunk::gather(first, || from.poll_recv(context)))
    })
    .await
}
