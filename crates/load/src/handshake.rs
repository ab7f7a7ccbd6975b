//! The way from a connection to a conversation: nothing to do, or a handshake, which is counted and timed.

use crate::connection::words;
use crate::layer::Layer;
use crate::tls::Session;
use crate::worker::{EXPIRED, NEVER, Seat, Worker};
use ringroad_engine::net::TcpStream;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// Secures a connection that was just made, if the plan wants that.
pub(crate) async fn secure(
    worker: &Worker,
    seat: &Seat,
    mut stream: TcpStream,
) -> Result<(TcpStream, Option<Session>), String> {
    let Some(client) = &worker.plan.tls else { return Ok((stream, None)) };
    let begun = worker.now();
    seat.since.set(begun);
    let shaken = match client.begin(&worker.plan.target.host) {
        Ok(mut session) => shake(seat, &mut stream, &mut session).await.map(|()| session),
        Err(why) => Err(why),
    };
    seat.since.set(NEVER);
    let mut all = worker.handshakes.borrow_mut();
    let handshakes = all.get_or_insert_default();
    match shaken {
        Ok(session) => {
            *(if session.is_resumed() { &mut handshakes.resumed } else { &mut handshakes.full }) += 1;
            handshakes.took.record(worker.now() - begun);
            Ok((stream, Some(session)))
        }
        Err(why) => {
            handshakes.failed += 1;
            Err(format!("handshake: {why}"))
        }
    }
}

/// Says and hears what belongs to the handshake. What the server says behind it, it keeps.
async fn shake(seat: &Seat, stream: &mut TcpStream, session: &mut Session) -> Result<(), String> {
    loop {
        if let Some(bytes) = session.outgoing(None) {
            let mut sending = pin!(stream.write_all(bytes));
            or_expired(seat, async { sending.as_mut().await.0.map_err(|why| words(&why)) }).await?;
        }
        if !session.is_handshaking() {
            return Ok(());
        }
        let lease = or_expired(seat, async { stream.recv().await.map_err(|why| words(&why)) }).await?;
        if lease.is_empty() {
            return Err("the server closed the connection".to_owned());
        }
        let came = session.incoming(&lease, |_| Some(()));
        // Before what went wrong is told, the server is told too: an alert.
        match came {
            Ok(None) => {}
            Ok(Some(())) => return Err("data before anything was asked for".to_owned()),
            Err(why) => {
                if let Some(alert) = session.outgoing(None) {
                    let _ = stream.write_all(alert).await;
                }
                return Err(why);
            }
        }
    }
}

/// Waits for it, or until the seat's time is over.
async fn or_expired<T>(seat: &Seat, future: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let mut future = pin!(future);
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Pending if seat.unset(EXPIRED) => Poll::Ready(Err("no answer in time".to_owned())),
        result => result,
    })
    .await
}
