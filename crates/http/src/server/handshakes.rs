//! TLS handshakes of a worker: bounded in number and in their share of a turn, so that many of them do not
//! delay the connections that exist.
//!
//! A handshake costs a hundred times what a small request does. So in each turn of the worker at most
//! [`STEPS`] handshake steps are taken, and everything else runs between them. At most
//! [`Handshakes::at_once`] handshakes are in their beginning; the others wait in line, so that those that
//! have begun can finish.
//!
//! INVARIANT: a handshake that waits for its client takes no place. Otherwise clients that connect and stay
//! silent would keep all others out until the deadline. Start at [`serve`].

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
use ringroad_engine::sync::{Semaphore, SemaphoreGuardArc};
use ringroad_engine::{spawn, time, yield_now};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// Handshake steps per turn. The most expensive step, with a signature and a key exchange, takes about 0.2
/// ms, which is the longest time that it delays an idle connection.
const STEPS: usize = 1;

/// The limits of a worker's handshakes.
pub(crate) struct Handshakes {
    at_once: Arc<Semaphore>,
    steps: Rc<Semaphore>,
    /// Whether a task exists that permits more steps in the next turn.
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

impl Handshakes {
    async fn step(&self) {
        // Used up in this turn; the next turn has new permits.
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

/// The place of one handshake among those that begin.
struct Beginning<'w> {
    worker: &'w Worker,
    place: RefCell<Option<SemaphoreGuardArc>>,
    /// Whether the client's first message was answered: the place is not needed any more.
    answered: Cell<bool>,
}

impl Steps for Beginning<'_> {
    async fn step(&self) {
        let handshakes = &self.worker.handshakes;
        if !self.answered.get() {
            let line = InLine::new(self.worker);
            let place = handshakes.at_once.acquire_arc().await;
            drop(line);
            *self.place.borrow_mut() = Some(place);
        }
        handshakes.step().await;
    }

    fn taken(&self, answered: bool) {
        self.place.take();
        self.answered.set(self.answered.get() || answered);
    }
}

/// Receives after `input` until a handshake record is complete. A fragmented record waits in line once, and a
/// client that sends no more takes no place. Other input is left to the session.
async fn first_record(stream: &mut Transport, input: &mut Vec<u8>) -> Result<(), HandshakeError> {
    while !is_whole(input) {
        let lease = stream.recv().await?;
        if lease.is_empty() {
            return Err(HandshakeError::Closed);
        }
        input.extend_from_slice(&lease);
    }
    Ok(())
}

/// Returns whether the first record is complete, or cannot be a handshake record (RFC 8446 §5.1).
fn is_whole(input: &[u8]) -> bool {
    match input {
        [HANDSHAKE, _, _, high, low, rest @ ..] => {
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            length > RECORD_BYTES_MAX || rest.len() >= length
        }
        [first, ..] => *first != HANDSHAKE,
        [] => false,
    }
}

/// The content type of records with handshake messages.
const HANDSHAKE: u8 = 22;

/// Maximum size of an unencrypted record, in bytes.
const RECORD_BYTES_MAX: usize = 16 * 1024;

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

/// The beginning of a connection to an address with TLS.
enum Begun {
    Tls(Box<TlsStream>),
    /// A plain HTTP request, of which these bytes were received.
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
    // An idle handshake is closed like an idle connection: to make room, or when the server stops.
    worker.seats.set(guard.seat, Waits::Request, worker.now());
    let began = Instant::now();
    // Read while the connection exists: the report of an abandoned handshake names its client.
    let known = worker.seats.info(guard.seat).unwrap_or_default();
    let shaking = async {
        if unencrypted::begins(&mut stream, &mut input).await? {
            return Ok(Begun::Plain(stream, input));
        }
        first_record(&mut stream, &mut input).await?;
        let session = match worker.settings.http2 {
            Some(_) => tls.begin_with_http2(),
            None => tls.begin(),
        };
        let session = session.map_err(HandshakeError::Tls)?;
        let beginning = Beginning { worker: &worker, place: RefCell::default(), answered: Cell::default() };
        handshake(stream, session, &beginning, input).await.map(Begun::Tls)
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
                // The client only checked whether the port is open, or has closed.
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
    worker.seats.set_info(guard.seat, ConnectionInfo { tls: Some(info), ..known });
    // A task of its own, so that the memory of the handshake is freed before the connection ends.
    if is_http2 {
        spawn(http2::serve(guard, Transport::Tls(stream), Vec::new(), 0)).detach();
        return;
    }
    spawn(serve_http(Connection::of(guard, Transport::Tls(stream)))).detach();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_whole_when_its_length_has_come_and_what_is_none_is_not_waited_for() {
        for (input, whole) in [
            (&b""[..], false),
            (b"\x16", false),
            (b"\x16\x03\x01\x00", false),
            (b"\x16\x03\x01\x00\x02a", false),
            (b"\x16\x03\x01\x00\x02ab", true),
            (b"\x16\x03\x01\x00\x02abc", true),
            (b"\x16\x03\x01\x40\x00", false),
            (b"\x16\x03\x01\x40\x01", true),
            (b"\x15", true),
            (b"SSH", true),
        ] {
            assert_eq!(is_whole(input), whole, "{}", input.escape_ascii());
        }
    }
}
