//! The end of a connection in stages (RFC 9112 §9.6): after the last answer, received bytes are dropped for a
//! while.
//!
//! If the connection were closed at once, the kernel would answer unread bytes with a reset. The peer would
//! then lose what it has not read: an answer, a GOAWAY, or an alert.

use super::seats::Waits;
use super::worker::Worker;
use crate::counters::add;
use crate::message::ConnectionId;
use crate::transport::{HEARD_BYTES_MAX, Transport};
use ringroad_engine::{Lease, Result};
use std::future::poll_fn;
use std::net::Shutdown;
use std::task::{Context, Poll};

/// Ends a connection without TLS after its last bytes: an alert, or an answer in plain HTTP.
pub(super) async fn end_refused(worker: &Worker, seat: ConnectionId, mut stream: Transport) {
    worker.begin_end(seat);
    if stream.shutdown(Shutdown::Write).is_ok() {
        hear_out(worker, seat, HEARD_BYTES_MAX, |context| stream.poll_recv(context)).await;
    }
}

/// Receives and drops bytes until the peer ends its side, has sent more than `most`, or the seat's time is
/// over ([`Seats::begin_end`](super::seats::Seats::begin_end)). In the last case the sweep cancels the
/// receive.
pub(super) async fn hear_out(
    worker: &Worker,
    seat: ConnectionId,
    most: u64,
    mut receive: impl FnMut(&mut Context<'_>) -> Poll<Result<Lease>>,
) {
    let mut heard = 0;
    while let Ok(lease) = poll_fn(&mut receive).await {
        let bytes = lease.len() as u64;
        drop(lease);
        heard += bytes;
        if bytes == 0 || heard > most {
            return;
        }
        add(&worker.counts().bytes_in, bytes);
        worker.seats.set(seat, Waits::End, worker.now());
    }
}
