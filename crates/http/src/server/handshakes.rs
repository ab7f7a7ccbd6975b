//! TLS handshakes of a worker: bounded in number and in the time that they take of a turn, so that a storm of
//! them does not keep connections waiting that are there already.
//!
//! A handshake costs a hundred times what a small request does. So at most [`Handshakes::at_once`] are under
//! way at a time, the others wait in line for their turn; and of each turn of the worker at most [`STEPS`]
//! steps of handshakes are taken, between which everything else is looked at. Start at [`serve`].

use super::connection::{Connection, serve as serve_http};
use super::http2;
use super::linger::end_refused;
use super::proxy;
use super::refused::Reason;
use super::seats::Waits;
use super::unencrypted;
use super::worker::Worker;
use crate::counters::add;
use crate::message::ConnectionInfo;
use crate::tls::{ALPN_ACME, ALPN_H2, HandshakeKind, ProtocolVersion, Server};
use crate::transport::{HandshakeError, Steps, TlsStream, Transport, Unshaken, handshake};
use ringroad_engine::sync::Semaphore;
use ringroad_engine::{spawn, time, yield_now};
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// Steps of handshakes in a turn. The dearest, with a signature and a key exchange, is about 0.2 ms, and so
/// long does a quiet connection wait behind it.
const STEPS: usize = 1;

/// What bounds a worker's handshakes.
pub(crate) struct Handshakes {
    at_once: Arc<Semaphore>,
    steps: Rc<Semaphore>,
    /// A task is there that lets more steps be taken in the next turn.
    refills: Rc<Cell<bool>>,
}

impl Handshakes {
    pub(crate) fn new(most: usize) -> Handshakes {
        Handshakes {
            at_once: Arc::new(Semaphore::new(most.max(1))),
            steps: Rc::new(Semaphore::new(STEPS)),
            refills: Rc::default(),
        }
    }
}

impl Steps for Handshakes {
    async fn step(&self) {
        // Used up by this turn; the next one has as many again.
        self.steps.acquire().await.forget();
        if !self.refills.replace(true) {
            let (steps, refills) = (Rc::clone(&self.steps), Rc::clone(&self.refills));
            let refill = async move {
                yield_now().await;
                refills.set(false);
                steps.add_permits(STEPS.saturating_sub(steps.available_permits()));
            };
            spawn(refill).detach();
        }
    }
}

/// Counts a handshake as waiting, until this is dropped.
struct InLine<'w>(&'w Worker);

impl<'w> InLine<'w> {
    fn new(worker: &'w Worker) -> InLine<'w> {
        add(&worker.counts().handshakes_waiting, 1);
        InLine(worker)
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        add(&self.0.counts().handshakes_waiting, u64::MAX);
    }
}

/// How a connection to an address with TLS began.
enum Begun {
    Tls(Box<TlsStream>),
    /// With a request of plain HTTP, of which this has come.
    Plain(Transport, Vec<u8>),
}

/// Serves a connection that begins with a handshake, and before that with a PROXY header if a peer is given.
pub(super) async fn serve(mut connection: Connection, tls: Arc<Server>, proxy: Option<SocketAddr>) {
    if let Some(peer) = proxy
        && !proxy::receive(&mut connection, peer).await
    {
        return;
    }
    let (guard, mut stream, mut input) = connection.take_apart();
    let worker = Rc::clone(&guard.worker);
    let counts = worker.counts();
    // One that takes no part is closed like one that asks for nothing: to make room, or when the server
    // stops.
    worker.seats.set(guard.seat, Waits::Request, worker.now());
    let began = Instant::now();
    let shaking = async {
        let line = InLine::new(&worker);
        let _place = worker.handshakes.at_once.acquire_arc().await;
        drop(line);
        if unencrypted::begins(&mut stream, &mut input).await? {
            return Ok(Begun::Plain(stream, input));
        }
        let session = match worker.settings.http2 {
            Some(_) => tls.begin_with_http2(),
            None => tls.begin(),
        };
        let session = session.map_err(HandshakeError::Tls)?;
        handshake(stream, session, &worker.handshakes, input).await.map(Begun::Tls)
    };
    let shaken = time::timeout(worker.settings.handshake_timeout, shaking).await;
    let stream = match shaken {
        Ok(Ok(Begun::Tls(stream))) => stream,
        failed => {
            add(&counts.handshakes_failed, 1);
            match failed {
                Ok(Ok(Begun::Plain(stream, head))) => {
                    unencrypted::refuse(&worker, guard.seat, stream, &head).await;
                }
                Ok(Err(Unshaken { why: HandshakeError::Tls(why), told })) => {
                    worker.tell_refused(guard.seat, None, Reason::Tls(why.kind()), &[]);
                    if let Some(stream) = told {
                        end_refused(&worker, guard.seat, stream).await;
                    }
                }
                Err(_) => worker.tell_refused(guard.seat, None, Reason::SlowHandshake, &[]),
                // It looked whether the port is open, or is gone.
                Ok(_) => {}
            }
            return;
        }
    };
    let info = Arc::clone(stream.info());
    let kind = usize::from(info.kind == HandshakeKind::Resumed);
    let version = usize::from(info.version == ProtocolVersion::Tls13);
    if let Some(count) = counts.handshakes.get(version * 2 + kind) {
        add(count, 1);
    }
    add(&counts.handshake_micros, u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX));
    if info.alpn.as_deref() == Some(ALPN_ACME) {
        // The certificate was the answer (RFC 8737 §3).
        return;
    }
    let is_http2 = info.alpn.as_deref() == Some(ALPN_H2);
    let known = worker.seats.info(guard.seat).unwrap_or_default();
    worker.seats.set_info(guard.seat, ConnectionInfo { tls: Some(info), ..known });
    // A task of its own: what the handshake needed is not kept for as long as the connection is.
    if is_http2 {
        spawn(http2::serve(guard, Transport::Tls(stream), Vec::new(), 0)).detach();
        return;
    }
    spawn(serve_http(Connection::of(guard, Transport::Tls(stream)))).detach();
}
