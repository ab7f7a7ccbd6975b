//! A connection's task: connects, sends when it may, reads answers, and begins again when the connection has ended.
//!
//! Sending and receiving go on at the same time, so that a peer that answers before it has read all of a request
//! cannot stall both sides. Start at [`drive`].

use crate::answer::{Fault, Reader, Step, Whole};
use crate::handshake::secure;
use crate::hold;
use crate::layer::{Layer, Plain};
use crate::retry::Retry;
use crate::tls::Session;
use crate::worker::{ALIVE, ASKED, EXPIRED, Kind, LOST, NEVER, OPEN, PARKED, SERVED, Seat, TRIED, Worker};
use ringroad_engine::net::{ConnectOptions, ReadHalf, TcpStream};
use ringroad_engine::{Lease, time};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

/// The first wait before a connection that failed is tried again, and the longest: each doubles the one before.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// A request that is on its way.
#[derive(Clone, Copy)]
struct Asked {
    /// When it was meant to be sent.
    due: u64,
    /// When it was.
    sent: u64,
    /// How late that was through nobody's fault but ours.
    late: u64,
    message: u16,
}

/// Requests on their way, the oldest first. One needs no memory.
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

/// How a connection ended.
enum End {
    /// As it may: nothing was on its way.
    InOrder,
    /// With requests unanswered, which is why.
    Failed(Kind, String),
}

/// One active connection, again and again, until the runtime ends.
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
    while !worker.has_nothing_left(seat) {
        if seat.has(TRIED) {
            worker.connecting.set(worker.connecting.get() + 1);
        }
        let begun = worker.now();
        let opened = match open(&worker, seat).await {
            Ok(stream) if worker.plan.tls.is_some() => Box::pin(secure(&worker, seat, stream)).await,
            Ok(stream) => Ok((stream, None)),
            Err(why) => Err(why),
        };
        worker.connecting.set(worker.connecting.get() - 1);
        seat.set(TRIED);
        let end = match opened {
            Ok((stream, session)) => {
                if worker.hold().is_none() {
                    retry.reset();
                } else if seat.has(LOST) {
                    worker.counts.borrow_mut().held.reconnects += 1;
                }
                seat.set(OPEN);
                seat.unset(ALIVE);
                worker.connected.set(worker.connected.get() + 1);
                worker.reached.set(true);
                worker.counts.borrow_mut().connects += 1;
                let end = match session {
                    None => converse(&worker, seat, (number, begun), stream, Plain).await,
                    // Apart, or every connection would have room for both.
                    Some(session) => {
                        Box::pin(converse(&worker, seat, (number, begun), stream, session)).await
                    }
                };
                worker.connected.set(worker.connected.get() - 1);
                seat.unset(OPEN);
                seat.unset(PARKED);
                seat.since.set(NEVER);
                if worker.hold().is_some() {
                    worker.lost(seat);
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
                // As the server may; but one that is held was not to end.
                if worker.hold().is_none() {
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
            End::Failed(..) => {}
        }
        time::sleep(retry.wait(fastrand::f64())).await;
    }
}

/// Connects, to the first of the addresses that can be.
async fn open(worker: &Worker, seat: &Seat) -> Result<TcpStream, String> {
    loop {
        let Some(address) = worker.address() else { return Err("connect: no address".to_owned()) };
        // Until it has its place it has a descriptor, and those are few. (Boxed: it is rare, and every task would have room
        // for it.)
        let _way = match &worker.on_their_way {
            Some(ways) => Some(Box::pin(ways.acquire()).await),
            None => None,
        };
        seat.since.set(worker.now());
        let sockets = worker.plan.sockets;
        let options = ConnectOptions {
            from: worker.source(address)?,
            no_delay: sockets.nodelay,
            receive_buffer: sockets.receive_buffer,
            send_buffer: sockets.send_buffer,
        };
        let mut connecting = pin!(TcpStream::connect_with(address, options));
        let connected = poll_fn(|context| {
            if let Poll::Ready(result) = connecting.as_mut().poll(context) {
                return Poll::Ready(result.map_err(|why| words(&why)));
            }
            match seat.unset(EXPIRED) {
                true => Poll::Ready(Err("connect: no answer in time".to_owned())),
                false => Poll::Pending,
            }
        })
        .await;
        seat.since.set(NEVER);
        match connected {
            Err(_) if worker.another_address(Some(address)) => {}
            Ok(stream) if worker.plan.direct.is_some() => {
                return stream.into_direct().map_err(|(why, _)| words(&why));
            }
            result => return result,
        }
    }
}

/// An error without its target, since there are thousands of those.
pub(crate) fn words(why: &ringroad_engine::Error) -> String {
    let system = why.raw_os_error().map(std::io::Error::from_raw_os_error);
    let system = system.map_or_else(|| why.to_string(), |system| system.to_string());
    let system = system.split(" (os error").next().unwrap_or_default().to_owned();
    format!("{}: {system}", why.operation())
}

/// What wakes a connection.
enum Woken {
    Received(ringroad_engine::Result<Lease>),
    Sent(ringroad_engine::Result<()>),
    /// There may be something to send.
    Go,
    Expired,
}

/// One connection, whose making has begun then, from its first request to its end. Requests that it leaves unanswered are
/// counted here.
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
        now: worker.now(),
    };
    let end = loop {
        let (message, count) = talk.take(number);
        let mut end = None;
        let messages = (count > 0).then(|| worker.batch(message, count));
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
                        // The answer was there first: what comes next begins now, not when the answer came.
                        if talk.flight.len() == 0 {
                            talk.now = worker.now();
                        }
                        break;
                    }
                    Woken::Sent(Err(why)) => {
                        worker.counts.borrow_mut().held.refused += u64::from(worker.hold().is_some());
                        end = Some(Box::pin(talk.last_words(&mut layer, &mut read, words(&why))).await);
                    }
                    other => end = talk.take_in(&mut layer, other),
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
    if matches!(end, End::Failed(Kind::Timeout, _)) && worker.is_open_loop() && worker.hold().is_none() {
        while let Some(asked) = talk.flight.pop() {
            worker.waited(talk.now, asked.due, asked.sent, asked.late, false);
        }
    }
    if let End::Failed(kind, why) = &end {
        // Bytes that nothing asked for spoil an answer that looked whole, and was not counted.
        let spoilt = u64::from(*kind == Kind::Protocol);
        worker.failed(*kind, left.max(spoilt), why);
    }
    end
}

fn received(
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

/// A connection's side of the conversation.
struct Talk<'a> {
    worker: &'a Worker,
    seat: &'a Seat,
    reader: Reader,
    flight: Flight,
    /// When its making began.
    begun: u64,
    /// The whole answer to the only request, where its end is the close that is still to come.
    answered: Option<Whole>,
    /// When the last news came: read once for all of it.
    now: u64,
}

impl Talk<'_> {
    /// What is to be sent next: which message, how many times.
    #[inline]
    fn take(&mut self, number: u32) -> (u16, u32) {
        let Talk { worker, seat, now, .. } = *self;
        if worker.is_open_loop() {
            if self.flight.len() > 0 || seat.has(PARKED) {
                return (0, 0);
            }
            // What it was given while it was free is late by what we took; what waited for it is not.
            let (due, late) = match seat.assigned.take() {
                Some(due) => (due, now.saturating_sub(due)),
                // A heartbeat belongs to its connection.
                None if worker.hold().is_some() => return (0, 0),
                None => match worker.arrival(now) {
                    Some(due) => (due, 0),
                    None => return (0, 0),
                },
            };
            return (self.ask(1, due, late), 1);
        }
        let room = worker.room(seat, self.flight.len());
        match worker.grant(number, room, now) {
            0 => (0, 0),
            count => {
                let due = if worker.plan.until_closed { self.begun } else { now };
                (self.ask(count, due, 0), count)
            }
        }
    }

    fn ask(&mut self, count: u32, due: u64, late: u64) -> u16 {
        let message = self.worker.turn();
        for _ in 0..count {
            self.flight.push(Asked { due, sent: self.now, late, message });
        }
        self.seat.set(ASKED);
        self.worker.sent(count);
        self.watch();
        message
    }

    /// Says since when the oldest request waits.
    fn watch(&self) {
        self.seat.since.set(self.flight.first.map_or(NEVER, |asked| asked.sent));
        self.seat.unset(EXPIRED);
    }

    /// Takes in news. The end, if that is what it is.
    #[inline]
    fn take_in(&mut self, layer: &mut impl Layer, woken: Woken) -> Option<End> {
        self.now = self.worker.now();
        let waiting = self.flight.len() > 0;
        match woken {
            Woken::Sent(_) | Woken::Go => None,
            Woken::Received(Ok(lease)) if !lease.is_empty() => {
                self.worker.counts.borrow_mut().bytes_received += lease.len() as u64;
                match layer.incoming(&lease, |bytes| self.read(bytes)) {
                    Ok(end) => end,
                    Err(why) => Some(End::Failed(Kind::Protocol, why)),
                }
            }
            // It said nothing wrong while nothing was on its way; a reset is as good as an end then.
            Woken::Received(_) if !waiting => Some(End::InOrder),
            Woken::Received(Ok(_)) if !layer.may_end() => {
                Some(End::Failed(Kind::Reset, "closed without TLS's last word".to_owned()))
            }
            Woken::Received(Ok(_)) => Some(self.ended()),
            Woken::Received(Err(why)) => Some(End::Failed(Kind::Reset, words(&why))),
            Woken::Expired => {
                Some(End::Failed(Kind::Timeout, format!("no answer within {:?}", self.worker.plan.timeout)))
            }
        }
    }

    /// Reads what came.
    #[inline]
    fn read(&mut self, mut bytes: &[u8]) -> Option<End> {
        let worker = self.worker;
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
                    // Is the last one asked for followed by more, its length was a lie.
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
        let worker = self.worker;
        self.flight.pop();
        self.watch();
        self.seat.set(SERVED | ALIVE);
        worker.in_flight.set(worker.in_flight.get() - 1);
        let mut counts = worker.counts.borrow_mut();
        counts.answers += 1;
        if whole.is_success() {
            counts.completed += 1;
            counts.body_bytes += whole.body_bytes;
            drop(counts);
            worker.completed(self.now, asked.due, asked.sent, asked.late);
        } else {
            drop(counts);
            worker.failed(Kind::Status, 1, &format!("status {}", whole.status));
        }
    }

    /// The peer has closed with requests on their way: some answers end so.
    #[cold]
    fn ended(&mut self) -> End {
        let amid = self.reader.is_amid();
        let whole = self.answered.take().or_else(|| self.reader.end_of_input());
        if let (Some(whole), Some(asked)) = (whole, self.flight.first) {
            self.whole(asked, whole);
            if self.flight.len() == 0 {
                return End::InOrder;
            }
        }
        let how = if amid { "closed amid an answer" } else { "closed without an answer" };
        End::Failed(Kind::Reset, how.to_owned())
    }

    /// A send has failed. The peer may have answered before it closed, so what it has said is read to its end.
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

/// One connection that says nothing, again and again.
///
/// What is rare is boxed: while it waits, its task holds the connection and nothing else.
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

/// What [`idle`] holds for each connection, which may be a hundred thousand.
const _: () = assert!(held_by(idle) <= 56);

const fn held_by<A, F>(_: fn(A) -> F) -> usize {
    size_of::<F>()
}

/// Waits for the end of a connection that says nothing over TLS; whether something was said. What TLS has to say by
/// itself is nothing.
async fn idle_tls(mut stream: TcpStream, mut session: Session) -> bool {
    loop {
        match stream.recv().await {
            Ok(lease) if !lease.is_empty() => match session.incoming(&lease, |_| Some(())) {
                Ok(None) => {}
                Ok(Some(())) | Err(_) => return true,
            },
            _ => return false,
        }
    }
}

/// Opens an idle connection; if it is not the first time, or fails, after a while. One over TLS is also held here, until
/// it ends: beside what TLS keeps, the box of this is nothing.
async fn open_idle(worker: &Worker, again: bool) -> Option<TcpStream> {
    if again {
        time::sleep(BACKOFF.1 / 2 + Duration::from_nanos(fastrand::u64(0..=500_000_000))).await;
        worker.connecting.set(worker.connecting.get() + 1);
    }
    let seat = Seat::default();
    let open = async {
        let stream = open(worker, &seat).await?;
        secure(worker, &seat, stream).await
    };
    let opened = time::timeout(worker.plan.timeout, open).await;
    worker.connecting.set(worker.connecting.get() - 1);
    match opened {
        Ok(Ok(opened)) => {
            worker.reached.set(true);
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
