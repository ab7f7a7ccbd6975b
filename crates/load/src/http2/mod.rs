//! A connection that speaks HTTP/2: as many requests in flight as the plan says, each on a stream.
//!
//! What is counted is what is counted of HTTP/1.1. A stream that is reset, or that the server leaves out of
//! its GOAWAY, is a failed request; the others go on. Bytes and frames are in [`frames`]. Start at
//! [`converse`].

mod frames;

pub(crate) use frames::Prepared;

use crate::answer::Whole;
use crate::connection::{Asked, End, Woken, count_whole, expired, received, unanswered, words};
use crate::layer::Layer;
use crate::plan::Body;
use crate::worker::{ASKED, EXPIRED, Kind, NEVER, PARKED, SILENT, Seat, Worker};
use frames::{Machine, News};
use ringroad_engine::net::{ReadHalf, TcpStream};
use ringroad_engine::{AnyBuf, Lease};
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

/// A request in flight, and what has come of its answer.
struct Live {
    asked: Asked,
    whole: Whole,
    /// Its body, where that is compared.
    body: Vec<u8>,
}

/// Drives one connection from its first request to its end. Requests left unanswered are counted here.
pub(crate) async fn converse(
    worker: &Worker,
    seat: &Seat,
    number: u32,
    stream: TcpStream,
    mut layer: impl Layer,
) -> End {
    let (mut read, mut write) = stream.split();
    let flights = Flights {
        worker,
        seat,
        live: HashMap::new(),
        order: VecDeque::new(),
        ending: None,
        now: worker.now(),
    };
    let mut talk = Talk { machine: Machine::default(), flights };
    // What the server sent behind its part of the handshake.
    let mut early = layer.early();
    let end = loop {
        if !early.is_empty()
            && let Some(end) = talk.read(&std::mem::take(&mut early))
        {
            break end;
        }
        talk.fill(number);
        let mut end = None;
        let out = talk.machine.take_out();
        if let Some(bytes) = layer.outgoing((!out.is_empty()).then(|| AnyBuf::from(out))) {
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
                    Woken::Sent(Ok(())) => break,
                    Woken::Sent(Err(why)) => {
                        end = Some(Box::pin(talk.last_words(&mut layer, &mut read, words(&why))).await);
                    }
                    other => end = talk.take_in(&mut layer, other),
                }
            }
        } else {
            let active = worker.is_active(number);
            if active && worker.is_open_loop() && talk.room() > 0 {
                worker.park(number);
            }
            let mut receiving = pin!(read.recv());
            let woken = poll_fn(|context| {
                if seat.assigned.get().is_some() && talk.room() > 0 || worker.is_active(number) && !active {
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
    let has_sent = talk.machine.has_sent();
    let flights = talk.flights;
    let left = flights.live.len() as u64;
    worker.in_flight.set(worker.in_flight.get() - left);
    flights.live.values().for_each(|live| worker.unanswered(flights.now, &live.asked));
    unanswered(worker, end, left, has_sent)
}

/// The client's side of a connection.
struct Talk<'a> {
    machine: Machine,
    flights: Flights<'a>,
}

/// The requests of a connection.
struct Flights<'a> {
    worker: &'a Worker,
    seat: &'a Seat,
    live: HashMap<u32, Live>,
    /// Streams in the order in which they began; those that are over are taken out when they come first.
    order: VecDeque<u32>,
    /// Why the connection ends, found while its bytes were read.
    ending: Option<(Kind, String)>,
    /// The time of the last event: read once for all of its bytes.
    now: u64,
}

impl Talk<'_> {
    /// Streams that may be opened now.
    fn room(&self) -> u32 {
        let Flights { worker, live, .. } = &self.flights;
        self.machine.room().min(worker.plan.pipeline.saturating_sub(live.len() as u32))
    }

    /// Sends as many requests as may be sent now.
    fn fill(&mut self, number: u32) {
        let Flights { worker, seat, now, .. } = self.flights;
        if !worker.is_open_loop() {
            let mut room = self.room();
            if seat.has(SILENT) {
                room = room.min(worker.room(seat, self.flights.live.len() as u32));
            }
            let granted = worker.grant(number, room, now);
            (0..granted).for_each(|_| self.ask(number, now, 0));
            return;
        }
        while self.room() > 0 && !seat.has(PARKED) {
            // An arrival assigned to a free connection is late by what the client took. One that waited for a
            // connection is not.
            match seat.assigned.take() {
                Some(due) => self.ask(number, due, now.saturating_sub(due)),
                None => match worker.arrival(now) {
                    Some(due) => self.ask(number, due, 0),
                    None => return,
                },
            }
        }
    }

    fn ask(&mut self, number: u32, due: u64, late: u64) {
        let Talk { machine, flights } = self;
        let worker = flights.worker;
        let turn = worker.turn(number);
        let stream = match worker.prepared(turn, worker.site_of(number)) {
            Ok(prepared) => machine.send(prepared),
            // A template: another request each time.
            Err(Some(prepared)) => machine.send(&prepared),
            // The bytes of a message of HTTP are always those of a request.
            Err(None) => return,
        };
        let asked = Asked { due, sent: flights.now, late, message: turn.message };
        let whole = Whole { keep_alive: true, ..Whole::default() };
        flights.live.insert(stream, Live { asked, whole, body: Vec::new() });
        flights.order.push_back(stream);
        flights.seat.set(ASKED);
        worker.sent(1);
        flights.watch();
    }

    /// Handles an event. Returns the end, if the connection has ended.
    fn take_in(&mut self, layer: &mut impl Layer, woken: Woken) -> Option<End> {
        let worker = self.flights.worker;
        self.flights.now = worker.now();
        match woken {
            Woken::Sent(_) | Woken::Go => None,
            Woken::Received(Ok(mut lease)) if !lease.is_empty() => {
                worker.received(self.flights.now, lease.len());
                match layer.incoming(&mut lease, |bytes| self.read(bytes)) {
                    // Some servers wait for the client to close after they have said so (close_notify).
                    Ok(None) if layer.has_ended() => {
                        self.take_in(layer, Woken::Received(Ok(Lease::default())))
                    }
                    Ok(end) => end,
                    Err(why) => Some(End::Failed(Kind::Protocol, why)),
                }
            }
            Woken::Received(received) => {
                let why = match received {
                    Ok(_) if !layer.may_end() => "closed without close_notify of TLS".to_owned(),
                    Ok(_) if !self.machine.has_heard() => {
                        "closed before any frame of HTTP/2 came (does the server speak it? --http2 asks for it)"
                            .to_owned()
                    }
                    Ok(_) => "closed with requests unanswered".to_owned(),
                    Err(why) => words(&why),
                };
                Some(self.flights.failed(Kind::Reset, why))
            }
            Woken::Expired => Some(expired(worker)),
        }
    }

    /// After a failed send, reads the rest: the server may have answered before it closed.
    async fn last_words(&mut self, layer: &mut impl Layer, read: &mut ReadHalf, why: String) -> End {
        loop {
            let woken = {
                let mut receiving = pin!(read.recv());
                let seat = self.flights.seat;
                poll_fn(|context| received(seat, receiving.as_mut(), context)).await
            };
            match self.take_in(layer, woken) {
                None if self.flights.live.is_empty() => return End::InOrder,
                None => {}
                Some(End::Failed(Kind::Reset, _)) => return End::Failed(Kind::Reset, why),
                Some(end) => return end,
            }
        }
    }

    /// Reads received bytes.
    fn read(&mut self, bytes: &[u8]) -> Option<End> {
        let Talk { machine, flights } = self;
        let read = machine.receive(bytes, |news| flights.news(news));
        flights.watch();
        if let Err(why) = read {
            return Some(End::Failed(Kind::Protocol, why));
        }
        if let Some((kind, why)) = flights.ending.take() {
            return Some(End::Failed(kind, why));
        }
        (machine.is_going() && flights.live.is_empty()).then_some(End::InOrder)
    }
}

impl Flights<'_> {
    /// Starts the timeout of the oldest request.
    fn watch(&mut self) {
        while self.order.front().is_some_and(|stream| !self.live.contains_key(stream)) {
            self.order.pop_front();
        }
        let oldest = self.order.front().and_then(|stream| self.live.get(stream));
        self.seat.since.set(oldest.map_or(NEVER, |live| live.asked.sent));
        self.seat.unset(EXPIRED);
    }

    /// Returns the end, in order if nothing is in flight.
    fn failed(&self, kind: Kind, why: String) -> End {
        if self.live.is_empty() { End::InOrder } else { End::Failed(kind, why) }
    }

    fn news(&mut self, news: News<'_>) {
        let worker = self.worker;
        match news {
            News::Status(stream, status) => {
                if let Some(live) = self.live.get_mut(&stream) {
                    live.whole.status = status;
                }
            }
            News::Data(stream, data) => {
                let Some(live) = self.live.get_mut(&stream) else { return };
                live.whole.body_bytes += data.len() as u64;
                let message = worker.plan.messages.get(usize::from(live.asked.message));
                if message.is_some_and(|message| message.body != Body::Any) {
                    live.body.extend_from_slice(data);
                }
            }
            News::Whole(stream) => self.whole(stream),
            News::Reset(stream, code) => {
                if let Some(live) = self.live.remove(&stream) {
                    worker.unanswered(self.now, &live.asked);
                    self.lost(1, &format!("stream reset by the server: {}", name_of(code)));
                }
            }
            News::GoAway(last, code) => {
                let before = self.live.len();
                self.live.retain(|stream, live| {
                    let stays = *stream <= last;
                    if !stays {
                        worker.unanswered(self.now, &live.asked);
                    }
                    stays
                });
                let lost = before - self.live.len();
                self.lost(lost as u64, &format!("left out by GOAWAY: {}", name_of(code)));
            }
        }
    }

    fn lost(&self, count: u64, why: &str) {
        self.worker.in_flight.set(self.worker.in_flight.get() - count);
        self.worker.failed(Kind::Reset, count, why);
    }

    fn whole(&mut self, stream: u32) {
        let Some(Live { asked, whole, body }) = self.live.remove(&stream) else { return };
        let index = usize::from(asked.message);
        let worker = self.worker;
        let Some(message) = worker.plan.messages.get(index) else { return };
        let judged = worker.seen.borrow_mut().judge(index, &message.body, whole, body);
        match judged {
            Ok(whole) => count_whole(worker, self.seat, asked, &whole, self.now),
            Err(fault) => {
                // It is among those in flight until the end is counted.
                self.live.insert(stream, Live { asked, whole, body: Vec::new() });
                self.ending.get_or_insert((Kind::Protocol, fault.to_string()));
            }
        }
    }
}

/// Returns the name of an error code (RFC 9113 §7).
fn name_of(code: u32) -> String {
    const NAMES: [&str; 14] = [
        "NO_ERROR",
        "PROTOCOL_ERROR",
        "INTERNAL_ERROR",
        "FLOW_CONTROL_ERROR",
        "SETTINGS_TIMEOUT",
        "STREAM_CLOSED",
        "FRAME_SIZE_ERROR",
        "REFUSED_STREAM",
        "CANCEL",
        "COMPRESSION_ERROR",
        "CONNECT_ERROR",
        "ENHANCE_YOUR_CALM",
        "INADEQUATE_SECURITY",
        "HTTP_1_1_REQUIRED",
    ];
    NAMES.get(code as usize).map_or_else(|| format!("code {code}"), |name| (*name).to_owned())
}
