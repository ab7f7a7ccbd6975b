//! A stream that is handed over to another protocol: an extended CONNECT (RFC 8441) that its handler
//! accepted.
//!
//! The answer is 200 in place of 101. Then the stream is a transport; one task drives it and runs the code of
//! the other protocol. The stream counts as one of the connection's until that code has ended and the peer
//! has received everything, or a deadline has passed.

use super::Connection;
use super::Life;
use super::request::{PlaceGuard, watched};
use crate::counters::add;
use crate::h2::head::response_head;
use crate::h2::{Part, Tunnel};
use crate::message::{ConnectionHost, Inner, Outcome, Response, Upgraded};
use crate::server::takeover;
use crate::transport::{Carrier, TunnelStream};
use ::h2::RecvStream;
use ::h2::server::SendResponse;
use ringroad_engine::{spawn, time};
use ringroad_wire::{Method, Status};
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;

/// Counts as one tunnel of its connection until it is dropped.
struct Open(Rc<Connection>);

impl Open {
    fn new(connection: &Rc<Connection>) -> Open {
        add_to(&connection.tunnels, 1);
        Open(Rc::clone(connection))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        add_to(&self.0.tunnels, -1);
    }
}

fn add_to(count: &Cell<u32>, more: i32) {
    count.set(count.get().saturating_add_signed(more));
}

/// Returns the answer to an extended CONNECT that was not accepted. A 2xx status would make the stream a
/// tunnel.
pub(super) fn refused(mut response: Response) -> Response {
    if !(200..300).contains(&response.status_code().code()) {
        return response;
    }
    drop(response.take_body());
    response.status(Status::NOT_IMPLEMENTED)
}

/// Sends the acceptance, and hands the stream over.
pub(super) fn begin(
    connection: &Rc<Connection>,
    respond: &mut SendResponse<Part>,
    mut response: Response,
    recv: RecvStream,
    place: PlaceGuard,
    began: Option<Instant>,
    life: Life,
) {
    let worker = Rc::clone(connection.worker());
    let watched = watched(&mut response, Method::Get, began);
    let Inner::Switch(switch) = response.take_body().0 else { return };
    let mut response = response.status(Status::OK);
    // RFC 8441 §5: the request has no key to answer.
    response.remove_header("sec-websocket-accept");
    worker.counts().responded(Status::OK);
    let head = response_head(&response, None, worker.heads.borrow().date());
    let sent = respond.send_response(head, false);
    if let Some(watched) = watched {
        watched.end(if sent.is_ok() { Outcome::Complete } else { Outcome::ClientGone });
    }
    let Ok(send) = sent else { return };
    add(&worker.counts().upgraded, 1);
    let info = worker.info(place.id);
    let (peer, tls) = info.map_or((None, None), |info| (info.peer, info.tls));
    let tunnel = Tunnel::new(recv, send, &connection.traffic);
    let stream = TunnelStream::new(Rc::clone(&tunnel) as Rc<dyn Carrier>, peer, tls);
    let host = Rc::clone(&worker) as Rc<dyn ConnectionHost>;
    let upgraded = Upgraded::new(stream.into(), Vec::new(), host);
    let open = Open::new(connection);
    let connection = Rc::clone(connection);
    let carried = async move {
        let _open = open;
        let mut running = pin!(takeover::run(&worker, switch.takeover, upgraded));
        let (mut is_over, mut in_order) = (false, None);
        let in_order = poll_fn(|context| {
            // Received bytes first, so that they are available when they are requested.
            let mut is_closed = tunnel.poll_drive(context).is_ready();
            if !is_over && running.as_mut().poll(context).is_ready() {
                is_over = true;
                // Other tasks may own the stream, and close it later.
                is_closed = tunnel.poll_drive(context).is_ready();
            }
            if is_closed && in_order.is_none() {
                in_order = Some(tunnel.end());
            }
            in_order.filter(|_| is_over).map_or(Poll::Pending, Poll::Ready)
        })
        .await;
        drop(place);
        if in_order {
            let stall = worker.seats.deadlines().send_stall;
            if time::timeout(stall, poll_fn(|context| tunnel.poll_sent(context))).await.is_err() {
                add(&worker.counts().timed_out, 1);
                tunnel.reset();
            }
        }
        // The request was served, so a reset that ends it is not misbehaviour.
        connection.line.meter.borrow_mut().earn(0, 1);
        drop(life);
    };
    spawn(carried).detach();
}
