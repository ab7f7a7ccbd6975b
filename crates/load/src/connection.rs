//! The task of a connection: connects, sends when a request is due, reads answers, and reconnects when the
//! connection has ended.
//!
//! Sending and receiving go on at the same time, so that a peer that answers before it has read all of a
//! request cannot stall both sides. Start at [`drive`].

use crate::answer::{Fault, Reader, Step, Whole, Wrong};
use crate::broadcast::Member;
use crate::handshake::{or_expired, secure};
use crate::hold;
use crate::http2;
use crate::layer::{Layer, Plain};
use crate::retry::Retry;
use crate::site::Address;
use crate::tls::Session;
use crate::websocket::{self, Frames};
use crate::worker::{
    ALIVE, ASKED, Cut, EXPIRED, Kind, LOST, NEVER, OPEN, PARKED, SERVED, Seat, TRIED, Worker,
};
use ringroad_engine::net::{ConnectOptions, ReadHalf, TcpStream, UnixAddr, UnixStream};
use ringroad_engine::{AnyBuf, Lease, time};
use ringroad_host::words::without_number;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

/// First and maximum wait before a failed connect is retried; each doubles the one before.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// How long a request that is answered may still be on its way out.
const UNSENT: Duration = Duration::from_millis(50);

/// A request in flight.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    /// The scheduled time.
    pub(crate) due: u64,
    /// The time of the send.
    pub(crate) sent: u64,
    /// The part of the delay between the two that the client caused.
    pub(crate) late: u64,
    pub(crate) message: u16,
}

/// Requests in flight, the oldest first. A single one needs no heap memory.
#[derive(Default)]
struct Flight {
    first: Option<Asked>,
    #[expect(clippy::box_collection, reason = "every connection has this word, and nearly none a queue")]
    others: Option<Box<VecDeque<Asked>>>,
}

impl Flight {
    fn len(&self) -> u32 {
        let others = self.others.as_ref().map_or(0, |others| others.len() as u32);
        u32::from(self.first.is_some()) + others
    }

    fn push(&mut self, asked: Asked) {
        if self.first.is_none() {
            self.first = Some(asked);
        } else {
            self.others.get_or_insert_default().push_back(asked);
        }
    }

    fn pop(&mut self) -> Option<Asked> {
        let next = self.others.as_mut().and_then(|others| others.pop_front());
        std::mem::replace(&mut self.first, next)
    }
}

/// The end of a connection.
pub(crate) enum End {
    /// In order: no request was in flight.
    InOrder,
    /// With requests unanswered, for this reason.
    Failed(Kind, String),
    /// With requests unanswered, because the load was stopped.
    CutOff,
}

/// Drives one active connection, reconnecting as needed, until the runtime ends.
pub(crate) async fn drive(worker: Rc<Worker>, number: u32) {
    let mut retry = Retry::new(worker.hold().map_or(BACKOFF, |_| hold::BACKOFF));
    poll_fn(|context| {
        if let Some(seat) = worker.seats.get(number as usize) {
            *seat.waker.borrow_mut() = Some(context.waker().clone());
        }
        Poll::Ready(())
    })
    .await;
    let Some(seat) = worker.seats.get(number as usize) else { return };
    let site = worker.site_of(number);
    while !worker.has_nothing_left(seat) {
        if seat.has(TRIED) {
            worker.connecting.set(worker.connecting.get() + 1);
        }
        let begun = worker.now();
        let opened = match open(&worker, seat, site).await {
            Ok(stream) if worker.is_secured(site) || worker.opening(site).is_some() => {
                Box::pin(prepare(&worker, seat, site, stream)).await
            }
            Ok(stream) => Ok((stream, Spoken::Plain)),
            Err(why) => Err(why),
        };
        worker.connecting.set(worker.connecting.get() - 1);
        seat.set(TRIED);
        let end = match opened {
            Ok((stream, spoken)) => {
                if worker.hold().is_none() {
                    retry.reset();
                } else if seat.has(LOST) {
                    worker.counts.borrow_mut().held.reconnects += 1;
                }
                seat.set(OPEN);
                seat.unset(ALIVE);
                worker.connected.set(worker.connected.get() + 1);
                worker.reached(site);
                worker.counts.borrow_mut().connects += 1;
                let end = match spoken {
                    // Apart, as below.
                    Spoken::Plain if worker.plan.http2 => {
                        Box::pin(http2::converse(&worker, seat, number, stream, Plain)).await
                    }
                    Spoken::Secured(session) if worker.plan.http2 => {
                        Box::pin(http2::converse(&worker, seat, number, stream, session)).await
                    }
                    Spoken::Plain => converse(&worker, seat, (number, begun), stream, Plain).await,
                    // Apart, or every connection would have room for all.
                    Spoken::Secured(session) => {
                        Box::pin(converse(&worker, seat, (number, begun), stream, session)).await
                    }
                    Spoken::Frames(frames) => {
                        Box::pin(converse(&worker, seat, (number, begun), stream, *frames)).await
                    }
                    Spoken::SecuredFrames(frames) => {
                        Box::pin(converse(&worker, seat, (number, begun), stream, *frames)).await
                    }
                };
                worker.connected.set(worker.connected.get() - 1);
                seat.unset(OPEN);
                seat.unset(PARKED);
                let owes = seat.since.replace(NEVER) != NEVER && !matches!(end, End::CutOff);
                if worker.hold().is_some() {
                    worker.lost(seat, owes);
                }
                if seat.has(ALIVE) {
                    retry.reset();
                }
                end
            }
            Err(why) => End::Failed(Kind::Connect, why),
        };
        match end {
            End::InOrder => {
                worker.counts.borrow_mut().closed_in_order += 1;
                // The server may do that; but a connection that is held, or waits for messages, must not end.
                if worker.hold().is_none() && worker.plan.broadcast.is_none() {
                    continue;
                }
            }
            End::Failed(Kind::Connect, why) => {
                worker.failed(Kind::Connect, 1, &why);
                let failures = retry.failed();
                if worker.hold().and_then(|hold| hold.retry_limit).is_some_and(|limit| failures >= limit) {
                    return worker.abandon(seat);
                }
            }
            End::Failed(..) | End::CutOff => {}
        }
        time::sleep(retry.wait(fastrand::f64())).await;
    }
}

/// What is spoken on a connection.
enum Spoken {
    Plain,
    Secured(Session),
    Frames(Box<Frames<Plain>>),
    SecuredFrames(Box<Frames<Session>>),
}

/// Carries out the handshakes of a connection that was just made.
async fn prepare(
    worker: &Worker,
    seat: &Seat,
    site: u16,
    stream: TcpStream,
) -> Result<(TcpStream, Spoken), String> {
    let (mut stream, session) = secure(worker, seat, site, stream).await?;
    let spoken = match (session, worker.opening(site)) {
        (None, None) => Spoken::Plain,
        (Some(session), None) => Spoken::Secured(session),
        (None, Some(opening)) => {
            Spoken::Frames(Box::new(websocket::open(worker, seat, opening, &mut stream, Plain).await?))
        }
        (Some(session), Some(opening)) => {
            let frames = websocket::open(worker, seat, opening, &mut stream, session).await?;
            Spoken::SecuredFrames(Box::new(frames))
        }
    };
    Ok((stream, spoken))
}

/// Connects to the first address that accepts.
async fn open(worker: &Worker, seat: &Seat, site: u16) -> Result<TcpStream, String> {
    let Some(address) = worker.address(site) else { return Err("connect: no address".to_owned()) };
    let address = match address {
        Address::Tcp(address) => address,
        Address::Unix(path) => {
            seat.since.set(worker.now());
            let connected = Box::pin(or_expired(seat, open_unix(&path))).await;
            seat.since.set(NEVER);
            return connected;
        }
    };
    // Until the connection has a place in the ring's table it has a descriptor, and descriptors are few.
    // (Boxed, because it is rare and would enlarge every task.)
    let _way = match &worker.on_their_way {
        Some(ways) => Some(Box::pin(ways.acquire()).await),
        None => None,
    };
    seat.since.set(worker.now());
    let untried = worker.untried(site);
    let connected = match untried.len() {
        0 | 1 => {
            let options = options(worker, address)?;
            until_expired(seat, pin!(TcpStream::connect_with(address, options))).await
        }
        // Boxed, as above.
        _ => Box::pin(open_first(worker, seat, site, untried)).await,
    };
    seat.since.set(NEVER);
    match connected {
        Ok(stream) if worker.plan.direct.is_some() => stream.into_direct().map_err(|(why, _)| words(&why)),
        result => result,
    }
}

/// Returns how a connection to this address is made.
fn options(worker: &Worker, address: SocketAddr) -> Result<ConnectOptions, &'static str> {
    let sockets = worker.plan.sockets;
    Ok(ConnectOptions {
        from: worker.source(address)?,
        no_delay: sockets.nodelay,
        receive_buffer: sockets.receive_buffer,
        send_buffer: sockets.send_buffer,
    })
}

/// Connects to a server of which no address has taken a connection yet: the one that takes this one is used
/// from here on.
async fn open_first(
    worker: &Worker,
    seat: &Seat,
    site: u16,
    addresses: Vec<SocketAddr>,
) -> Result<TcpStream, String> {
    let of = |address| options(worker, address).ok();
    let connecting = pin!(TcpStream::connect_first(addresses, worker.plan.timeout, of));
    let stream = until_expired(seat, connecting).await?;
    if let Ok(address) = stream.peer_addr() {
        worker.settle_on(site, address);
    }
    Ok(stream)
}

/// Waits for a connection, for as long as it may take.
async fn until_expired(
    seat: &Seat,
    mut connecting: Pin<&mut impl Future<Output = ringroad_engine::Result<TcpStream>>>,
) -> Result<TcpStream, String> {
    poll_fn(|context| {
        if let Poll::Ready(result) = connecting.as_mut().poll(context) {
            return Poll::Ready(result.map_err(|why| match (why.operation(), why.kind()) {
                // The kernel's words for it are of an address that was asked for, and none was.
                ("connect", std::io::ErrorKind::AddrNotAvailable) => NO_PORT.to_owned(),
                _ => words(&why),
            }));
        }
        match seat.unset(EXPIRED) {
            true => Poll::Ready(Err("connect: no answer in time".to_owned())),
            false => Poll::Pending,
        }
    })
    .await
}

/// Connects to a Unix socket. The result is used like any other connection.
async fn open_unix(path: &Path) -> Result<TcpStream, String> {
    let failed = |why: ringroad_engine::Error| format!("{}, on {}", words(&why), path.display());
    let stream = UnixStream::connect(UnixAddr::from(path)).await.map_err(&failed)?;
    let stream = stream.into_std().map_err(|(why, _)| failed(why))?;
    TcpStream::from_std(OwnedFd::from(stream).into()).map_err(&failed)
}

/// A connect that failed on this machine, before it reached the server.
pub(crate) const NO_PORT: &str = "connect: no local port is free for this server";

/// Returns the text of an error without its target: thousands of targets would make as many different texts.
pub(crate) fn words(why: &ringroad_engine::Error) -> String {
    let system = why.raw_os_error().map(std::io::Error::from_raw_os_error);
    let system = system.map_or_else(|| why.to_string(), |system| without_number(&system));
    format!("{}: {system}", why.operation())
}

/// The event that wakes a connection.
pub(crate) enum Woken {
    Received(ringroad_engine::Result<Lease>),
    Sent(ringroad_engine::Result<()>),
    /// A request may be due.
    Go,
    Expired,
}

/// Drives one connection from its first request to its end. Its connect began at `begun`. Requests left
/// unanswered are counted here.
async fn converse(
    worker: &Worker,
    seat: &Seat,
    (number, begun): (u32, u64),
    stream: TcpStream,
    mut layer: impl Layer,
) -> End {
    let (mut read, mut write) = stream.split();
    let mut talk = Talk {
        worker,
        seat,
        reader: Reader::default(),
        flight: Flight::default(),
        begun,
        answered: None,
        has_sent: false,
        now: worker.now(),
        member: worker.plan.broadcast.as_ref().map(|_| Box::default()),
    };
    let end = loop {
        let messages = talk.take(number);
        let mut end = None;
        if let Some(bytes) = layer.outgoing(messages) {
            let mut sending = pin!(write.write_all(bytes));
            while end.is_none() {
                let woken = {
                    let mut receiving = pin!(read.recv());
                    poll_fn(|context| match sending.as_mut().poll(context) {
                        Poll::Ready((sent, _)) => Poll::Ready(Woken::Sent(sent)),
                        Poll::Pending => received(seat, receiving.as_mut(), context),
                    })
                    .await
                };
                match woken {
                    Woken::Sent(Ok(())) => {
                        // The answer was there first: the next request begins now, not when the answer
                        // arrived.
                        // What one write had no room for begins when that is done, too.
                        if talk.flight.len() == 0 || worker.burst < worker.plan.pipeline {
                            talk.now = worker.now();
                        }
                        break;
                    }
                    Woken::Sent(Err(why)) => {
                        worker.counts.borrow_mut().held.refused += u64::from(worker.hold().is_some());
                        end = Some(Box::pin(talk.last_words(&mut layer, &mut read, words(&why))).await);
                    }
                    other => {
                        let waited = talk.flight.len() > 0;
                        end = talk.take_in(&mut layer, other);
                        if waited && end.is_none() && talk.flight.len() == 0 {
                            // Answered before it was sent. Apart, because it is rare.
                            match Box::pin(goes_out(sending.as_mut())).await {
                                true => break,
                                false => end = Some(End::InOrder),
                            }
                        }
                    }
                }
            }
        } else {
            let active = worker.is_active(number);
            if active && worker.is_open_loop() && worker.hold().is_none() && talk.flight.len() == 0 {
                worker.park(number);
            }
            let mut receiving = pin!(read.recv());
            let woken = poll_fn(|context| {
                if seat.assigned.get().is_some() && talk.flight.len() == 0
                    || worker.is_active(number) && !active
                {
                    return Poll::Ready(Woken::Go);
                }
                received(seat, receiving.as_mut(), context)
            })
            .await;
            end = talk.take_in(&mut layer, woken);
        }
        if let Some(end) = end {
            break end;
        }
    };
    let left = u64::from(talk.flight.len());
    worker.in_flight.set(worker.in_flight.get() - left);
    while let Some(asked) = talk.flight.pop() {
        worker.unanswered(talk.now, &asked);
    }
    unanswered(worker, end, left, talk.has_sent)
}

/// Returns whether the rest of requests that are answered goes out soon. A server that has answered may read
/// no more (RFC 9112 §9.5): the connection carries no further request then, and another one does.
async fn goes_out<B>(sending: Pin<&mut impl Future<Output = (ringroad_engine::Result<()>, B)>>) -> bool {
    matches!(time::timeout(UNSENT, sending).await, Ok((Ok(()), _)))
}

/// Counts the requests that a connection leaves unanswered at its end; `has_sent`: it has carried one.
pub(crate) fn unanswered(worker: &Worker, end: End, left: u64, has_sent: bool) -> End {
    match end {
        // No request has failed, so the end counts as a connect that failed, as with a TLS handshake: more
        // failures than requests and connects would make no sense.
        End::Failed(Kind::Protocol, why) if !has_sent => End::Failed(Kind::Connect, why),
        End::Failed(kind, why) => {
            // Unexpected bytes invalidate an answer that looked complete and was not counted yet.
            let spoilt = u64::from(kind == Kind::Protocol);
            worker.failed(kind, left.max(spoilt), &why);
            End::Failed(kind, why)
        }
        End::InOrder | End::CutOff => end,
    }
}

/// Returns the end of a connection that waits no longer.
pub(crate) fn expired(worker: &Worker) -> End {
    match worker.cut.get() {
        Some(Cut::Stopped) => End::CutOff,
        Some(Cut::Overdue) => End::Failed(Kind::Timeout, "no answer by the end".to_owned()),
        None => End::Failed(Kind::Timeout, format!("no answer within {:?}", worker.plan.timeout)),
    }
}

/// Returns what was received, or that the time of the wait is over.
pub(crate) fn received(
    seat: &Seat,
    receiving: Pin<&mut impl Future<Output = ringroad_engine::Result<Lease>>>,
    context: &mut Context<'_>,
) -> Poll<Woken> {
    match receiving.poll(context) {
        Poll::Ready(result) => Poll::Ready(Woken::Received(result)),
        Poll::Pending if seat.unset(EXPIRED) => Poll::Ready(Woken::Expired),
        Poll::Pending => Poll::Pending,
    }
}

/// The client's side of a connection.
struct Talk<'a> {
    worker: &'a Worker,
    seat: &'a Seat,
    reader: Reader,
    flight: Flight,
    /// The start of the connect.
    begun: u64,
    /// The whole answer to the only request, where its end is the close that is still to come.
    answered: Option<Whole>,
    /// Whether a request was sent on this connection.
    has_sent: bool,
    /// The time of the last event: read once for all of its bytes.
    now: u64,
    /// Where the load is a broadcast.
    member: Option<Box<Member>>,
}

impl Talk<'_> {
    /// Returns the next requests to send.
    #[inline]
    fn take(&mut self, number: u32) -> Option<AnyBuf> {
        let Talk { worker, seat, now, .. } = *self;
        if worker.is_open_loop() {
            if let Some(joining) = self.joining() {
                return Some(joining);
            }
            if self.flight.len() > 0 || seat.has(PARKED) {
                return None;
            }
            // An arrival assigned to a free connection is late by what the client took. One that waited for a
            // connection is not.
            let (due, late) = match seat.assigned.take() {
                Some(due) => (due, now.saturating_sub(due)),
                // A heartbeat belongs to its connection.
                None if worker.hold().is_some() => return None,
                None => match worker.arrival(now) {
                    Some(due) => (due, 0),
                    None => return None,
                },
            };
            return Some(match worker.plan.broadcast.is_some() {
                true => self.publish(due, late),
                false => self.ask(number, 1, due, late),
            });
        }
        let room = worker.room(seat, self.flight.len());
        match worker.grant(number, room, now) {
            0 => None,
            count => {
                let due = if worker.plan.until_closed { self.begun } else { now };
                Some(self.ask(number, count, due, 0))
            }
        }
    }

    fn ask(&mut self, number: u32, count: u32, due: u64, late: u64) -> AnyBuf {
        let (flight, sent) = (&mut self.flight, self.now);
        let bytes =
            self.worker.batch(number, count, |message| flight.push(Asked { due, sent, late, message }));
        self.seat.set(ASKED);
        self.has_sent = true;
        self.worker.sent(count);
        self.watch();
        bytes
    }

    /// Returns what a member of a broadcast sends before anything else.
    fn joining(&mut self) -> Option<AnyBuf> {
        let member = self.member.as_mut().filter(|member| !member.has_joined)?;
        member.has_joined = true;
        let joining = self.worker.plan.broadcast.as_ref()?.joining()?;
        Some(AnyBuf::from(joining))
    }

    /// Returns a message of a broadcast. Nothing is waited for in its name: its deliveries are counted where
    /// they come.
    fn publish(&mut self, due: u64, late: u64) -> AnyBuf {
        let worker = self.worker;
        let (Some(broadcast), Some(member)) = (&worker.plan.broadcast, &mut self.member) else {
            return AnyBuf::from(Vec::new());
        };
        let mark = worker.publish(member, due, self.now, late);
        self.seat.set(ASKED);
        self.has_sent = true;
        AnyBuf::from(broadcast.frame(&mark))
    }

    /// Starts the timeout of the oldest request.
    fn watch(&self) {
        self.seat.since.set(self.flight.first.map_or(NEVER, |asked| asked.sent));
        self.seat.unset(EXPIRED);
    }

    /// Handles an event. Returns the end, if the connection has ended.
    #[inline]
    fn take_in(&mut self, layer: &mut impl Layer, woken: Woken) -> Option<End> {
        self.now = self.worker.now();
        let waiting = self.flight.len() > 0;
        match woken {
            Woken::Sent(_) | Woken::Go => None,
            Woken::Received(Ok(mut lease)) if !lease.is_empty() => {
                self.worker.received(self.now, lease.len());
                match layer.incoming(&mut lease, |bytes| self.read(bytes)) {
                    // Some servers wait for the client to close after they have said so (close_notify).
                    Ok(None) if layer.has_ended() => {
                        self.take_in(layer, Woken::Received(Ok(Lease::default())))
                    }
                    Ok(end) => end,
                    Err(why) => Some(End::Failed(Kind::Protocol, why)),
                }
            }
            // Nothing was in flight: a reset counts like an end.
            Woken::Received(_) if !waiting => Some(End::InOrder),
            Woken::Received(Ok(_)) if !layer.may_end() => {
                Some(End::Failed(Kind::Reset, "closed without close_notify of TLS".to_owned()))
            }
            Woken::Received(Ok(_)) => Some(self.ended()),
            Woken::Received(Err(why)) => Some(End::Failed(Kind::Reset, words(&why))),
            Woken::Expired => Some(expired(self.worker)),
        }
    }

    /// Parses received bytes.
    #[inline]
    fn read(&mut self, mut bytes: &[u8]) -> Option<End> {
        let worker = self.worker;
        if let (Some(member), Some(broadcast)) = (&mut self.member, &worker.plan.broadcast) {
            let (seat, now) = (self.seat, self.now);
            member.take(broadcast, bytes, |member, mark| worker.delivered(seat, member, mark, now));
            return None;
        }
        while !bytes.is_empty() {
            let Some(asked) = self.flight.first.filter(|_| self.answered.is_none()) else {
                return Some(End::Failed(Kind::Protocol, Fault::Unsolicited.to_string()));
            };
            let index = usize::from(asked.message);
            let message = worker.plan.messages.get(index)?;
            let step = self.reader.next(&mut worker.seen.borrow_mut(), message, index, bytes);
            match step {
                Step::More => return None,
                Step::Bad(fault) => return Some(End::Failed(Kind::Protocol, fault.to_string())),
                Step::Whole(used, whole) => {
                    bytes = bytes.get(used..).unwrap_or_default();
                    // If bytes follow the last expected answer, its length was wrong.
                    if self.flight.len() == 1 && !bytes.is_empty() {
                        return Some(End::Failed(Kind::Protocol, Fault::Unsolicited.to_string()));
                    }
                    if worker.plan.until_closed {
                        self.answered = Some(whole);
                        continue;
                    }
                    self.whole(asked, whole);
                    if !whole.keep_alive || worker.plan.one_request_per_connection {
                        return Some(match self.flight.len() {
                            0 => End::InOrder,
                            _ => End::Failed(Kind::Reset, "closed with requests unanswered".to_owned()),
                        });
                    }
                }
            }
        }
        None
    }

    /// Counts a whole answer to the oldest request.
    #[inline]
    fn whole(&mut self, asked: Asked, whole: Whole) {
        self.flight.pop();
        self.watch();
        count_whole(self.worker, self.seat, asked, &whole, self.now);
    }

    /// Handles a close with requests in flight: some answers end with it.
    #[cold]
    fn ended(&mut self) -> End {
        let amid = self.reader.is_amid();
        let worker = self.worker;
        let message =
            self.flight.first.and_then(|asked| worker.plan.messages.get(usize::from(asked.message)));
        let whole = self.answered.take().or_else(|| self.reader.end_of_input(message?));
        if let (Some(whole), Some(asked)) = (whole, self.flight.first) {
            self.whole(asked, whole);
            if self.flight.len() == 0 {
                return End::InOrder;
            }
        }
        let how = if amid { "closed amid an answer" } else { "closed without an answer" };
        End::Failed(Kind::Reset, how.to_owned())
    }

    /// After a failed send, reads the rest: the peer may have answered before it closed.
    async fn last_words(&mut self, layer: &mut impl Layer, read: &mut ReadHalf, why: String) -> End {
        loop {
            let woken = {
                let mut receiving = pin!(read.recv());
                let seat = self.seat;
                poll_fn(|context| received(seat, receiving.as_mut(), context)).await
            };
            match self.take_in(layer, woken) {
                None if self.flight.len() == 0 => return End::InOrder,
                None => {}
                Some(End::Failed(Kind::Reset, _)) => return End::Failed(Kind::Reset, why),
                Some(end) => return end,
            }
        }
    }
}

/// Counts a whole answer that came `now`.
#[inline]
pub(crate) fn count_whole(worker: &Worker, seat: &Seat, asked: Asked, whole: &Whole, now: u64) {
    seat.set(SERVED | ALIVE);
    worker.in_flight.set(worker.in_flight.get() - 1);
    worker.answered(whole.status);
    worker.of_url(asked.message, now, asked.due, whole);
    let mut counts = worker.counts.borrow_mut();
    counts.answers += 1;
    let Some(wrong) = whole.wrong else {
        counts.completed += 1;
        counts.body_bytes += whole.body_bytes;
        drop(counts);
        worker.completed(now, asked.due, asked.sent, asked.late);
        return;
    };
    drop(counts);
    worker.refused(now, asked.due);
    match wrong {
        Wrong::Status => worker.failed(Kind::Status, 1, &format!("status {}", whole.status)),
        Wrong::Body => worker.failed(Kind::Protocol, 1, "a body without the expected text"),
    }
}

/// Holds one idle connection, reconnecting as needed.
///
/// Rare states are boxed: while it waits, its task holds the connection and nothing else.
pub(crate) async fn idle(worker: Rc<Worker>) {
    let mut first = true;
    loop {
        let Some(mut stream) = Box::pin(open_idle(&worker, !first)).await else {
            first = false;
            continue;
        };
        first = false;
        let said = matches!(stream.recv().await, Ok(lease) if !lease.is_empty());
        drop(stream);
        worker.idle_ended(said);
    }
}

// The size of `idle`'s task: there may be a hundred thousand of them.
const _: () = assert!(held_by(idle) <= 56);

const fn held_by<A, F>(_: fn(A) -> F) -> usize {
    size_of::<F>()
}

/// Waits for the end of an idle connection over TLS; returns whether application data came. Records of TLS
/// itself do not count.
async fn idle_tls(mut stream: TcpStream, mut session: Session) -> bool {
    loop {
        match stream.recv().await {
            Ok(mut lease) if !lease.is_empty() => match session.incoming(&mut lease, |_| Some(())) {
                Ok(None) => {}
                Ok(Some(())) | Err(_) => return true,
            },
            _ => return false,
        }
    }
}

/// Opens an idle connection, after a pause unless it is the first time. One over TLS is also held here until
/// it ends: its session is much larger than the box of this task.
async fn open_idle(worker: &Worker, again: bool) -> Option<TcpStream> {
    let site = worker.next_idle();
    if again {
        time::sleep(BACKOFF.1 / 2 + Duration::from_nanos(fastrand::u64(0..=500_000_000))).await;
        worker.connecting.set(worker.connecting.get() + 1);
    }
    let seat = Seat::default();
    let open = async {
        let stream = open(worker, &seat, site).await?;
        secure(worker, &seat, site, stream).await
    };
    let opened = time::timeout(worker.plan.timeout, open).await;
    worker.connecting.set(worker.connecting.get() - 1);
    match opened {
        Ok(Ok(opened)) => {
            worker.reached(site);
            worker.counts.borrow_mut().connects += 1;
            worker.idle_open.set(worker.idle_open.get() + 1);
            match opened {
                (stream, None) => return Some(stream),
                (stream, Some(session)) => worker.idle_ended(idle_tls(stream, session).await),
            }
        }
        Ok(Err(why)) => worker.failed(Kind::Connect, 1, &why),
        Err(_) => worker.failed(Kind::Connect, 1, "connect: no answer in time"),
    }
    None
}
