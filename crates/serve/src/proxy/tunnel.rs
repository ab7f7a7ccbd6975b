//! A WebSocket connection: the proxy passes bytes in both directions, unread, until both sides have ended.
//!
//! Each direction holds one piece of at most 64 KiB, and the next is asked for when that one has been sent,
//! so a slow side slows the other down. A side that ends is told to the other, which may say what it still
//! has to say, for as long as an answer may take. One that breaks ends both. What bounds a tunnel: silence in
//! both directions (`tunnel_timeout`), and the drain of a server that stops, which waits for tunnels as for
//! requests and then cuts them. A reload leaves them as they are, but for those to an application in
//! development, the code of which is old then: the client gets a close frame behind a whole frame, and may
//! come again.

use super::upstream::{Reader, Sink, Writer};
use super::{Pump, Sending};
use crate::answer::Tally;
use crate::config::Timing;
use ringroad_engine::sync::CancellationToken;
use ringroad_engine::sync::budget::Turns;
use ringroad_engine::time;
use ringroad_http::ws::CloseCode;
use ringroad_http::{Chunk, Receive, Upgraded, gather};
use ringroad_wire::ws::{FrameEnds, put_close};
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
            Broken::Request => {
                f.write_str("tunnel: the server switched protocols before it had the whole request")
            }
            Broken::Silent(span) => write!(f, "tunnel: nothing moved for {span:?}"),
        }
    }
}

/// How long a client may take to close when it was told to.
const FAREWELL: Duration = Duration::from_secs(1);

/// Passes bytes between a client and an upstream server; `tally` counts the bytes to the client. `parting`
/// ends it when it is cancelled.
pub(super) async fn run(
    upgraded: Upgraded,
    pump: Box<Pump>,
    timing: &Timing,
    tally: &Tally,
    parting: Option<&CancellationToken>,
) -> Result<(), Broken> {
    // The server counts as busy as long as the tunnel lasts.
    let Pump { source, mut sending, pick: _pick, .. } = *pump;
    let sink = sent(&mut sending).await.ok_or(Broken::Request)?;
    let (stream, from_client) = upgraded.into_parts();
    let (read, write) = stream.split();
    let (reader, from_behind, _permit) = source.into_parts().ok_or(Broken::Request)?;
    let moved = Cell::new(Instant::now());
    let inward = hand_on(read, from_client, sink, |_| moved.set(Instant::now()));
    let passed = |bytes: usize| {
        tally.add(bytes as u64);
        moved.set(Instant::now());
    };
    let Some(parting) = parting else {
        return both(inward, hand_on(reader, from_behind, write, passed), timing, &moved).await;
    };
    let outward = hand_on_frames(reader, from_behind, write, parting, passed);
    let mut passing = pin!(both(inward, outward, timing, &moved));
    let mut farewell = pin!(async {
        parting.cancelled().await;
        time::sleep(FAREWELL).await;
    });
    poll_fn(|context| match passing.as_mut().poll(context) {
        // Dropped, both connections are closed.
        Poll::Pending => farewell.as_mut().poll(context).map(Ok),
        ended => ended,
    })
    .await
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

/// Returns the rest of the request, which has no body, and the half that sent it. `None`: that failed.
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

/// Does the same with frames of WebSocket, until `parting` is cancelled: then the client is told behind a
/// whole frame that it may come again, and nothing more is passed on.
async fn hand_on_frames(
    mut from: Reader,
    first: Vec<u8>,
    mut to: Writer,
    parting: &CancellationToken,
    moved: impl Fn(usize),
) -> Result<(), Failed> {
    let mut frames = FrameEnds::new();
    let mut first = Some(Chunk::from(first)).filter(|first| !first.is_empty());
    // What came behind the last piece and was no data.
    let mut received = None;
    loop {
        let piece = match first.take() {
            Some(first) => first,
            None => {
                let next = match received.take() {
                    Some(behind) => Some(behind),
                    None => {
                        let (mut receiving, mut parts) = (pin!(from.recv()), pin!(parting.cancelled()));
                        poll_fn(|context| {
                            if frames.is_between() && parts.as_mut().poll(context).is_ready() {
                                return Poll::Ready(None);
                            }
                            receiving.as_mut().poll(context).map(Some)
                        })
                        .await
                    }
                };
                let Some(lease) = next else { return part(to, Vec::new()).await };
                let lease = lease.map_err(Failed::Receiving)?;
                if lease.is_empty() {
                    // The error is ignored: the receiver may have closed already.
                    let _ = to.finish().await;
                    return Ok(());
                }
                let (chunk, behind) = gather(&mut from, lease).await;
                received = behind;
                chunk
            }
        };
        match parting.is_cancelled().then(|| frames.next(&piece)) {
            None => frames.skip(&piece),
            Some(Some(whole)) if frames.is_between() => {
                let mut last = piece.into_vec();
                last.truncate(whole);
                return part(to, last).await;
            }
            Some(Some(whole)) => frames.skip(piece.get(whole..).unwrap_or_default()),
            Some(None) => {}
        }
        let bytes = piece.len();
        to.write_all(piece.into_buf()).await.0.map_err(Failed::Sending)?;
        moved(bytes);
    }
}

/// Closes the client's side, behind the end of a frame.
async fn part(mut to: Writer, mut frame: Vec<u8>) -> Result<(), Failed> {
    put_close(&mut frame, CloseCode::RESTART, "the server restarts", None);
    to.write_all(frame).await.0.map_err(Failed::Sending)?;
    // The error is ignored: the receiver may have closed already.
    let _ = to.finish().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::proxy::tests::{busy, on_every_driver};
    use ringroad_engine::net::UnixStream;
    use ringroad_http::Transport;
    use std::io::{Read as _, Write as _};

    #[test]
    fn a_client_is_told_behind_a_whole_frame_that_it_may_come_again() {
        let mut close = Vec::new();
        put_close(&mut close, CloseCode::RESTART, "the server restarts", None);
        on_every_driver(async || {
            for (first, later, passed) in [
                (&b"\x81\x05hello"[..], &b""[..], &b"\x81\x05hello"[..]),
                (b"\x81\x05hello\x81\x05he", b"llo\x81\x01x", b"\x81\x05hello\x81\x05hello"),
            ] {
                let pair = || {
                    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
                    (Transport::Unix(UnixStream::from_std(ours).unwrap()).split(), theirs)
                };
                let (((reader, _), mut server), ((_, writer), mut client)) = (pair(), pair());
                server.write_all(later).unwrap();
                let parting = CancellationToken::new();
                let ended = hand_on_frames(reader, first.to_vec(), writer, &parting, |_| parting.cancel());
                assert!(ended.await.is_ok());
                let mut got = Vec::new();
                client.read_to_end(&mut got).unwrap();
                assert_eq!(got, [passed, &close].concat());
            }
        });
    }

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
