//! A WebSocket connection: the proxy passes bytes in both directions, unread, until both sides have ended.
//!
//! Each direction holds one piece of at most 64 KiB, and the next is asked for when that one has been sent,
//! so a slow side slows the other down. A side that ends is told to the other, which may say what it still
//! has to say, for as long as an answer may take. One that breaks ends both. What bounds a tunnel: silence in
//! both directions (`tunnel_timeout`), and the drain of a server that stops, which waits for tunnels as for
//! requests and then cuts them. A reload leaves them as they are.

use super::upstream::{Reader, Sink, Writer};
use super::{Pump, Sending};
use crate::answer::Tally;
use crate::config::Timing;
use ringroad_engine::sync::budget::Turns;
use ringroad_engine::time;
use ringroad_http::{Receive, Upgraded, gather};
use std::cell::Cell;
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

/// Why a tunnel has ended before both sides had ended it.
#[derive(Debug)]
pub(super) enum Broken {
    /// The client's connection failed. That is neither the proxy's nor the upstream server's fault.
    Client,
    /// The upstream server's connection failed.
    Behind(ringroad_engine::Error),
    /// The request could not be sent whole, and yet its offer was taken.
    Request,
    /// Nothing moved for so long.
    Silent(Duration),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::Client => f.write_str("tunnel: the client is gone"),
            Broken::Behind(why) => write!(f, "tunnel: {why}"),
            Broken::Request => f.write_str("tunnel: the offer was taken before the request was there"),
            Broken::Silent(span) => write!(f, "tunnel: nothing moved for {span:?}"),
        }
    }
}

/// Passes bytes between a client and an upstream server; `tally` counts the bytes to the client.
pub(super) async fn run(
    upgraded: Upgraded,
    pump: Box<Pump>,
    timing: &Timing,
    tally: &Tally,
) -> Result<(), Broken> {
    // The server counts as busy as long as the tunnel lasts.
    let Pump { source, mut sending, pick: _pick, .. } = *pump;
    let sink = sent(&mut sending).await.ok_or(Broken::Request)?;
    let (stream, from_client) = upgraded.into_parts();
    let (read, write) = stream.split();
    let (reader, from_behind, _permit) = source.into_parts().ok_or(Broken::Request)?;
    let moved = Cell::new(Instant::now());
    let inward = hand_on(read, from_client, sink, |_| moved.set(Instant::now()));
    let outward = hand_on(reader, from_behind, write, |bytes| {
        tally.add(bytes as u64);
        moved.set(Instant::now());
    });
    both(inward, outward, timing, &moved).await
}

/// Waits until both directions have ended, or the first failure, while something moves. They take
/// [turns](Turns) in being polled first.
async fn both(
    inward: impl Future<Output = Result<(), Failed>>,
    outward: impl Future<Output = Result<(), Failed>>,
    timing: &Timing,
    moved: &Cell<Instant>,
) -> Result<(), Broken> {
    let (mut inward, mut outward) = (pin!(inward), pin!(outward));
    let (mut inward_over, mut outward_over) = (false, false);
    let mut turns = Turns::default();
    while !(inward_over && outward_over) {
        // Once one side has ended, the other has as long as an answer has.
        let span = if inward_over || outward_over { timing.answer } else { timing.tunnel };
        let left = span.saturating_sub(moved.get().elapsed());
        if left.is_zero() {
            return Err(Broken::Silent(span));
        }
        let one_ends = poll_fn(|context| {
            for polls_inward in turns.round() {
                if polls_inward
                    && !inward_over
                    && let Poll::Ready(ended) = inward.as_mut().poll(context)
                {
                    inward_over = true;
                    let broken = |failed: Failed| failed.of(|_| Broken::Client, Broken::Behind);
                    return Poll::Ready(ended.map_err(broken));
                }
                if !polls_inward
                    && !outward_over
                    && let Poll::Ready(ended) = outward.as_mut().poll(context)
                {
                    outward_over = true;
                    let broken = |failed: Failed| failed.of(Broken::Behind, |_| Broken::Client);
                    return Poll::Ready(ended.map_err(broken));
                }
            }
            Poll::Pending
        });
        match time::timeout(left, one_ends).await {
            Ok(ended) => ended?,
            // Perhaps something moved meanwhile.
            Err(_) => continue,
        }
        moved.set(Instant::now());
    }
    Ok(())
}

/// The rest of the request, which has no body, and the half that sent it. `None`: that failed.
async fn sent(sending: &mut Sending) -> Option<Writer> {
    poll_fn(|context| {
        sending.poll(context);
        if sending.future.is_some() { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    sending.sink.take().and_then(Sink::into_writer)
}

/// Which end of a direction failed.
enum Failed {
    Receiving(ringroad_engine::Error),
    Sending(ringroad_engine::Error),
}

impl Failed {
    fn of(
        self,
        receiving: impl FnOnce(ringroad_engine::Error) -> Broken,
        sending: impl FnOnce(ringroad_engine::Error) -> Broken,
    ) -> Broken {
        match self {
            Failed::Receiving(why) => receiving(why),
            Failed::Sending(why) => sending(why),
        }
    }
}

/// Passes bytes on, `first` first, until the source ends; then ends the target.
async fn hand_on(
    mut from: Reader,
    first: Vec<u8>,
    mut to: Writer,
    moved: impl Fn(usize),
) -> Result<(), Failed> {
    if !first.is_empty() {
        let bytes = first.len();
        to.write_all(first).await.0.map_err(Failed::Sending)?;
        moved(bytes);
    }
    // What came behind the last piece and was no data.
    let mut received = None;
    loop {
        let lease = match received.take() {
            Some(behind) => behind,
            None => from.recv().await,
        };
        let lease = lease.map_err(Failed::Receiving)?;
        if lease.is_empty() {
            // The error is ignored: the receiver may have closed already.
            let _ = to.finish().await;
            return Ok(());
        }
        let (chunk, behind) = gather(&mut from, lease).await;
        let bytes = chunk.len();
        to.write_all(chunk.into_buf()).await.0.map_err(Failed::Sending)?;
        moved(bytes);
        received = behind;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::proxy::tests::{busy, on_every_driver};

    /// In each direction in turn: the busy one ends when the other has passed something, or when it has had
    /// far more than its share.
    #[test]
    fn a_direction_that_always_has_bytes_leaves_the_other_its_turn() {
        let timing = Timing {
            connect: Duration::from_secs(1),
            answer: Duration::from_secs(1000),
            tunnel: Duration::from_secs(1000),
            keep: 0,
            keep_for: Duration::ZERO,
        };
        on_every_driver(async || {
            for inward_is_busy in [true, false] {
                let (passed, moved) = (Cell::new(false), Cell::new(Instant::now()));
                let (busy, other) = busy(&passed);
                let busy = async {
                    busy.await;
                    Ok(())
                };
                let other = async {
                    other.await;
                    Ok(())
                };
                let ended = if inward_is_busy {
                    both(busy, other, &timing, &moved).await
                } else {
                    both(other, busy, &timing, &moved).await
                };
                assert!(ended.is_ok(), "{ended:?}");
            }
        });
    }
}
