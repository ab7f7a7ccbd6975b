//! Prepares a new connection: nothing to do, or a TLS handshake, which is counted and timed.

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
    site: u16,
    mut stream: TcpStream,
) -> Result<(TcpStream, Option<Session>), String> {
    let client = worker.plan.tls.as_ref().filter(|_| worker.is_secured(site));
    let Some(client) = client else { return Ok((stream, None)) };
    let begun = worker.now();
    seat.since.set(begun);
    let http2 = worker.plan.http2;
    let shaken = match client.begin(worker.server_name(site), http2) {
        Ok(mut session) => {
            shake(seat, &mut stream, &mut session, http2).await.and_then(|()| session.speaks(http2))
        }
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

/// Exchanges the bytes of the handshake. Bytes of the server after the handshake are kept.
async fn shake(
    seat: &Seat,
    stream: &mut TcpStream,
    session: &mut Session,
    http2: bool,
) -> Result<(), String> {
    loop {
        if let Some(bytes) = session.outgoing(None) {
            let mut sending = pin!(stream.write_all(bytes));
            or_expired(seat, async { sending.as_mut().await.0.map_err(|why| words(&why)) }).await?;
        }
        if !session.is_handshaking() {
            return Ok(());
        }
        let mut lease = or_expired(seat, async { stream.recv().await.map_err(|why| words(&why)) }).await?;
        if lease.is_empty() {
            return Err("the server closed the connection (does this port speak TLS?)".to_owned());
        }
        // A server of HTTP/2 says first what it takes.
        let mut early = Vec::new();
        let came = session.incoming(&mut lease, |bytes| {
            early.extend_from_slice(bytes);
            (!http2).then_some(())
        });
        session.early.append(&mut early);
        // Send an alert to the server before reporting the error.
        match came {
            Ok(None) => {}
            Ok(Some(())) => return Err("data before any request".to_owned()),
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
pub(crate) async fn or_expired<T>(
    seat: &Seat,
    future: impl Future<Output = Result<T, String>>,
) -> Result<T, String> {
    let mut future = pin!(future);
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Pending if seat.unset(EXPIRED) => Poll::Ready(Err("no answer in time".to_owned())),
        result => result,
    })
    .await
}
