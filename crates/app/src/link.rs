//! Requests and answers between one thread of the server and a worker, over a link of their own.
//!
//! A link is a socket pair; its other end was sent to the worker. Its reader gives frames to streams, its
//! writer sends what all requests of one turn have written in one piece. A request ends for the client when
//! its [`Exchange`] is dropped, and for the worker when that says so: until then the stream stays here, with
//! the ticket.

use crate::control::Control;
use crate::goridge::GoridgeAnswer;
use crate::head::{Codec, Incoming};
use crate::pool::{Lifeline, Reach, Ticket};
use futures_core::Stream as FutureStream;
use ringroad_engine::net::{ReadHalf, Unix, UnixStream, WriteHalf};
use ringroad_engine::{spawn, time};
use ringroad_http::{BodyError, Chunk, FieldBlock, Piece, RequestBody};
use ringroad_wire::rwp::{self, Answer, Answering, END, Frame, Kind, WINDOW_BYTES, message_cost};
use ringroad_wire::ws::CloseCode;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Most body bytes in one frame that we send.
const PIECE_BYTES: usize = 64 << 10;

/// The links of one thread, by worker.
#[derive(Debug, Default)]
pub struct Links {
    by_worker: Rc<RefCell<HashMap<u64, Rc<Link>>>>,
}

/// The reason why there is no answer.
#[derive(Clone, Debug)]
pub enum Failed {
    /// The worker died, or the link to it broke, before it answered. `unseen`: it has not got the request.
    Died {
        /// The request was not sent.
        unseen: bool,
    },
    /// The worker refused the request. `unhandled`: it had not begun it.
    Reset {
        /// Its reason.
        why: String,
        /// Another worker may have the request.
        unhandled: bool,
    },
    /// The worker sent something that is not an answer.
    Bad(String),
    /// The worker did not answer in time; the request was cancelled.
    TooLate,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failed::Died { .. } => f.write_str("the worker died"),
            Failed::Reset { why, .. } => write!(f, "the worker gave the request up: {why}"),
            Failed::Bad(why) => write!(f, "the worker sent {why}"),
            Failed::TooLate => f.write_str("the worker has not answered in time"),
        }
    }
}

/// A link.
struct Link {
    worker: u64,
    out: RefCell<Vec<u8>>,
    writer: RefCell<Option<Waker>>,
    streams: RefCell<HashMap<u32, Rc<RefCell<Stream>>>>,
    next: Cell<u32>,
    closed: Cell<bool>,
    lifeline: Lifeline,
    /// Bytes that were given to the kernel, and that were written here.
    sent: Cell<u64>,
    queued: Cell<u64>,
    /// Woken when more was given to the kernel, or the link is closed.
    flushed: RefCell<Vec<Waker>>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link(worker {})", self.worker)
    }
}

/// One request's side of a link.
struct Stream {
    answering: Answering,
    events: VecDeque<Event>,
    waker: Option<Waker>,
    /// Body bytes that may be sent; below zero behind a long message of a WebSocket.
    credit: i64,
    sender: Option<Waker>,
    /// Bytes that were taken and not yet given back as credit.
    taken: u32,
    /// Until the worker has finished.
    ticket: Option<Ticket>,
    /// The answer is not needed any more.
    abandoned: bool,
}

/// How a link ends.
enum Ends {
    /// The worker has closed it, or died.
    Gone,
    /// The worker has broken the protocol.
    Broken(String),
    /// This side cannot receive any more: its runtime ends.
    Here,
}

enum Event {
    Informational(u16, Vec<(Vec<u8>, Vec<u8>)>),
    Head { status: u16, lines: Vec<(Vec<u8>, Vec<u8>)>, body: Vec<u8>, complete: bool, file: bool },
    Body(Vec<u8>, bool),
    File(FileAnswer),
    Trailers(FieldBlock),
    Accepted { lines: Vec<(Vec<u8>, Vec<u8>)>, protocol: String },
    Said(Said),
    Failed(Failed),
}

/// What a worker does with a WebSocket that it was offered.
#[derive(Debug)]
pub enum Opening {
    /// It accepts, with these header lines and this subprotocol (or an empty one).
    Accepted(Socket, Vec<(Vec<u8>, Vec<u8>)>, String),
    /// It answers instead.
    Answered(Answered, Exchange),
    /// It closes, which refuses.
    Refused,
}

/// What a worker says on a WebSocket.
#[derive(Debug)]
pub enum Said {
    /// A text.
    Text(String),
    /// Bytes.
    Binary(Vec<u8>),
    /// It closes the session. Nothing follows.
    Closed(CloseCode, String),
    /// It gave the session up, or died. Nothing follows.
    Failed(Failed),
}

/// A file that an application answers with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileAnswer {
    /// Where it is.
    pub path: PathBuf,
    /// First byte.
    pub offset: u64,
    /// Bytes; `None`: to its end.
    pub length: Option<u64>,
}

/// The head of an answer, with what is known of its body.
#[derive(Debug)]
pub struct Answered {
    /// Its status.
    pub status: u16,
    /// Its lines.
    pub lines: Vec<(Vec<u8>, Vec<u8>)>,
    /// What has come of the body.
    pub body: Vec<u8>,
    /// Nothing follows.
    pub complete: bool,
    /// The body is this file.
    pub file: Option<FileAnswer>,
}

impl Links {
    /// Makes a set without links.
    pub fn new() -> Links {
        Links::default()
    }

    fn link(&self, ticket: &Ticket) -> std::io::Result<(Rc<Link>, Codec)> {
        let worker = ticket.worker();
        let Reach::Frames(control, codec) = &worker.reach else {
            return Err(std::io::Error::other("the worker speaks HTTP"));
        };
        if let Some(link) = self.by_worker.borrow().get(&worker.id).filter(|link| !link.closed.get()) {
            return Ok((Rc::clone(link), *codec));
        }
        let link = self.open(ticket, control)?;
        self.by_worker.borrow_mut().insert(worker.id, Rc::clone(&link));
        Ok((link, *codec))
    }

    fn open(&self, ticket: &Ticket, control: &Control) -> std::io::Result<Rc<Link>> {
        use std::io::ErrorKind::{BrokenPipe, ConnectionReset};
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        let lifeline = ticket.lifeline();
        let sent = control.send(Kind::LINK, &[], &[theirs.as_fd()]);
        if sent.as_ref().is_err_and(|why| matches!(why.kind(), BrokenPipe | ConnectionReset)) {
            lifeline.is_gone();
        }
        sent?;
        let stream = UnixStream::from_std(ours).map_err(|why| std::io::Error::other(why.to_string()))?;
        let link = Rc::new(Link {
            worker: ticket.worker().id,
            out: RefCell::default(),
            writer: RefCell::default(),
            streams: RefCell::default(),
            next: Cell::new(1),
            closed: Cell::new(false),
            lifeline,
            sent: Cell::new(0),
            queued: Cell::new(0),
            flushed: RefCell::default(),
        });
        let (read, write) = stream.split();
        let all = Rc::clone(&self.by_worker);
        spawn(read_frames(Rc::clone(&link), read, all)).detach();
        spawn(write_frames(Rc::clone(&link), write)).detach();
        Ok(link)
    }

    /// Gives a request to the worker of a ticket. `first` is the beginning of the body, and all of it if
    /// `whole`; the rest is sent with [`Exchange::send`].
    ///
    /// # Errors
    /// The worker cannot be reached; it has not seen the request.
    pub fn exchange(
        &self,
        ticket: Ticket,
        incoming: &Incoming<'_>,
        first: &[u8],
        whole: bool,
    ) -> Result<Exchange, Failed> {
        let answering = Answering::new(WINDOW_BYTES);
        self.begin(ticket, Kind::REQUEST, answering, incoming, first, if whole { END } else { 0 })
    }

    /// Offers a WebSocket to the worker of a ticket; [`Exchange::opening`] gets what it says to that.
    ///
    /// # Errors
    /// The worker cannot be reached; it has not seen the offer.
    pub fn open_socket(&self, ticket: Ticket, incoming: &Incoming<'_>) -> Result<Exchange, Failed> {
        self.begin(ticket, Kind::WS_OPEN, Answering::socket(WINDOW_BYTES), incoming, &[], END)
    }

    fn begin(
        &self,
        ticket: Ticket,
        kind: Kind,
        answering: Answering,
        incoming: &Incoming<'_>,
        first: &[u8],
        flags: u8,
    ) -> Result<Exchange, Failed> {
        let (link, codec) = self.link(&ticket).map_err(|_| Failed::Died { unseen: true })?;
        ticket.worker().set_request(incoming.id);
        let stream = link.next.get();
        link.next.set(if stream >= u32::MAX - 2 { 1 } else { stream + 2 });
        {
            let mut out = link.out.borrow_mut();
            let before = out.len();
            incoming.frame(kind, codec, stream, first, flags, &mut out);
            link.queued.set(link.queued.get() + (out.len() - before) as u64);
        }
        link.wake_writer();
        let state = Rc::new(RefCell::new(Stream {
            answering,
            events: VecDeque::new(),
            waker: None,
            credit: i64::from(WINDOW_BYTES) - first.len() as i64,
            sender: None,
            taken: 0,
            ticket: Some(ticket),
            abandoned: false,
        }));
        link.streams.borrow_mut().insert(stream, Rc::clone(&state));
        Ok(Exchange { place: link.queued.get(), link, stream, state })
    }
}

impl Link {
    fn wake_writer(&self) {
        if let Some(waker) = self.writer.borrow_mut().take() {
            waker.wake();
        }
    }

    fn wake_flushed(&self) {
        std::mem::take(&mut *self.flushed.borrow_mut()).into_iter().for_each(Waker::wake);
    }

    fn put(&self, kind: Kind, flags: u8, stream: u32, payload: &[u8]) {
        self.put_as(kind, flags, 0, stream, payload);
    }

    fn put_as(&self, kind: Kind, flags: u8, aux: u16, stream: u32, payload: &[u8]) {
        if self.closed.get() {
            return;
        }
        let mut out = self.out.borrow_mut();
        let before = out.len();
        rwp::put(&mut out, kind, flags, aux, stream, payload);
        self.queued.set(self.queued.get() + (out.len() - before) as u64);
        drop(out);
        self.wake_writer();
    }

    /// Takes a frame that has come. `Err`: the link is broken.
    fn accept(&self, frame: &Frame<'_>) -> Result<(), String> {
        let Some(state) = self.streams.borrow().get(&frame.stream).cloned() else {
            // Of a stream that is over here, or of a later version.
            return Ok(());
        };
        let mut stream = state.borrow_mut();
        let lines = |lines: rwp::HeadLines<'_>| {
            lines.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect::<Vec<_>>()
        };
        let event = match stream.answering.accept(frame) {
            Ok(Answer::Informational(status, given)) => Event::Informational(status, lines(given)),
            Ok(Answer::Head { status, lines: given, body, complete, file }) => {
                Event::Head { status, lines: lines(given), body: body.to_vec(), complete, file }
            }
            Ok(Answer::Body(body, last)) => Event::Body(body.to_vec(), last),
            Ok(Answer::File(offset, length, path)) => Event::File(FileAnswer {
                path: PathBuf::from(std::ffi::OsStr::from_bytes(path)),
                offset,
                length: (length != u64::MAX).then_some(length),
            }),
            Ok(Answer::Trailers(given)) => {
                let mut block = FieldBlock::new();
                for (name, value) in given.iter() {
                    // Names that frame messages may not be trailers: they are left out.
                    let _ = block.push(name, value);
                }
                Event::Trailers(block)
            }
            Ok(Answer::Reset(why, unhandled)) => {
                let why = String::from_utf8_lossy(why).into_owned();
                Event::Failed(Failed::Reset { why, unhandled })
            }
            Ok(Answer::Accepted(given, protocol)) => {
                Event::Accepted { lines: lines(given), protocol: protocol.to_owned() }
            }
            Ok(Answer::Text(text)) => Event::Said(Said::Text(text.to_owned())),
            Ok(Answer::Binary(bytes)) => Event::Said(Said::Binary(bytes.to_vec())),
            Ok(Answer::Closed(code, reason)) => Event::Said(Said::Closed(code, reason.to_owned())),
            Ok(Answer::Credit(bytes)) => {
                stream.credit = stream.credit.saturating_add(i64::from(bytes));
                if let Some(waker) = stream.sender.take() {
                    waker.wake();
                }
                return Ok(());
            }
            Ok(Answer::Unknown) => return Ok(()),
            Err(fault) if fault.is_of_the_request() => {
                if !stream.answering.is_over() {
                    self.put(Kind::ABORT, 0, frame.stream, &[]);
                }
                Event::Failed(Failed::Bad(fault.to_string()))
            }
            Err(fault) => return Err(fault.to_string()),
        };
        if !stream.abandoned {
            stream.events.push_back(event);
        }
        let over = stream.answering.is_over();
        let ticket = if over { stream.ticket.take() } else { None };
        for waker in [stream.waker.take(), if over { stream.sender.take() } else { None }] {
            waker.into_iter().for_each(Waker::wake);
        }
        drop(stream);
        if over {
            self.streams.borrow_mut().remove(&frame.stream);
        }
        // This may wake other requests.
        drop(ticket);
        Ok(())
    }

    /// Takes all whole frames of `bytes`, and returns where the rest begins. `Err`: the link is broken.
    fn frames(&self, bytes: &[u8]) -> Result<usize, String> {
        let mut at = 0;
        while let Some(frame) = rwp::next(bytes, &mut at).map_err(|why| why.to_string())? {
            self.accept(&frame)?;
        }
        Ok(at)
    }

    /// The link has ended: everything that the worker has not finished fails. A worker that is gone, or has
    /// broken the protocol, gets nothing more, so what is repeated goes to another one.
    fn close(&self, ends: Ends) {
        self.closed.set(true);
        let why = match ends {
            Ends::Gone => {
                self.lifeline.is_gone();
                None
            }
            Ends::Broken(why) => {
                self.lifeline.is_broken(why.clone());
                Some(why)
            }
            Ends::Here => None,
        };
        self.wake_writer();
        self.wake_flushed();
        for (_, state) in std::mem::take(&mut *self.streams.borrow_mut()) {
            let mut stream = state.borrow_mut();
            let failed = why.clone().map_or(Failed::Died { unseen: false }, Failed::Bad);
            stream.events.push_back(Event::Failed(failed));
            let ticket = stream.ticket.take();
            for waker in [stream.waker.take(), stream.sender.take()] {
                waker.into_iter().for_each(Waker::wake);
            }
            drop(stream);
            drop(ticket);
        }
    }
}

async fn read_frames(link: Rc<Link>, mut read: ReadHalf<Unix>, all: Rc<RefCell<HashMap<u64, Rc<Link>>>>) {
    let mut kept: Vec<u8> = Vec::new();
    let ends = loop {
        let lease = match read.recv().await {
            Ok(lease) if lease.is_empty() => break Ends::Gone,
            Ok(lease) => lease,
            // The worker died with unread bytes in its socket.
            Err(why) if why.kind() == std::io::ErrorKind::ConnectionReset => break Ends::Gone,
            Err(_) => break Ends::Here,
        };
        if kept.is_empty() {
            match link.frames(&lease) {
                Ok(at) => kept.extend_from_slice(lease.get(at..).unwrap_or_default()),
                Err(why) => break Ends::Broken(why),
            }
        } else {
            kept.extend_from_slice(&lease);
            match link.frames(&kept) {
                Ok(at) => drop(kept.drain(..at)),
                Err(why) => break Ends::Broken(why),
            }
        }
        if kept.is_empty() && kept.capacity() > 2 * PIECE_BYTES {
            kept = Vec::new();
        }
    };
    link.close(ends);
    all.borrow_mut().retain(|_, one| !Rc::ptr_eq(one, &link));
}

async fn write_frames(link: Rc<Link>, mut write: WriteHalf<Unix>) {
    let mut spare = Vec::new();
    loop {
        poll_fn(|context| {
            if !link.out.borrow().is_empty() || link.closed.get() {
                return Poll::Ready(());
            }
            *link.writer.borrow_mut() = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
        if link.closed.get() {
            return;
        }
        let bytes = std::mem::replace(&mut *link.out.borrow_mut(), spare);
        let length = bytes.len() as u64;
        let (sent, mut bytes) = write.write_all(bytes).await;
        if sent.is_err() {
            // The reader sees the end as well, and fails the streams.
            link.closed.set(true);
            return link.wake_flushed();
        }
        link.sent.set(link.sent.get() + length);
        link.wake_flushed();
        bytes.clear();
        spare = if bytes.capacity() > 4 * PIECE_BYTES { Vec::new() } else { bytes };
    }
}

/// A request that a worker has. Dropping it before the answer is complete cancels the request.
#[derive(Debug)]
pub struct Exchange {
    link: Rc<Link>,
    stream: u32,
    state: Rc<RefCell<Stream>>,
    /// Bytes of the link up to the end of the request's head.
    place: u64,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stream")
    }
}

impl Exchange {
    fn poll_event(&self, context: &mut Context<'_>) -> Poll<Event> {
        let mut stream = self.state.borrow_mut();
        match stream.events.pop_front() {
            Some(event) => Poll::Ready(event),
            None => {
                stream.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Returns the head of the answer. `informational` gets answers that come before it (103).
    ///
    /// # Errors
    /// The worker sends no answer.
    pub async fn head(
        &self,
        mut informational: impl FnMut(u16, &[(Vec<u8>, Vec<u8>)]),
    ) -> Result<Answered, Failed> {
        loop {
            match poll_fn(|context| self.poll_event(context)).await {
                Event::Informational(status, lines) => informational(status, &lines),
                Event::Head { status, lines, body, complete, file } => {
                    let mut answered = Answered { status, lines, body, complete, file: None };
                    self.took(answered.body.len() as u32);
                    if file {
                        match poll_fn(|context| self.poll_event(context)).await {
                            Event::File(file) => (answered.file, answered.complete) = (Some(file), true),
                            Event::Failed(why) => return Err(why),
                            _ => return Err(Failed::Bad("frames out of order".to_owned())),
                        }
                    }
                    return Ok(answered);
                }
                Event::Failed(Failed::Died { .. }) => {
                    return Err(Failed::Died { unseen: self.link.sent.get() < self.place });
                }
                Event::Failed(why) => return Err(why),
                Event::Body(..)
                | Event::File(_)
                | Event::Trailers(_)
                | Event::Accepted { .. }
                | Event::Said(_) => return Err(Failed::Bad("frames out of order".to_owned())),
            }
        }
    }

    /// Returns what the worker does with the WebSocket that it was offered.
    ///
    /// # Errors
    /// It did neither accept nor answer.
    pub async fn opening(self) -> Result<Opening, Failed> {
        let event = poll_fn(|context| self.poll_event(context)).await;
        match event {
            Event::Accepted { lines, protocol } => {
                if let Some(ticket) = &mut self.state.borrow_mut().ticket {
                    ticket.becomes_socket();
                }
                Ok(Opening::Accepted(Socket { exchange: self, told: Cell::new(false) }, lines, protocol))
            }
            Event::Said(Said::Closed(..)) => Ok(Opening::Refused),
            other => {
                self.state.borrow_mut().events.push_front(other);
                let answered = self.head(|_, _| {}).await?;
                Ok(Opening::Answered(answered, self))
            }
        }
    }

    /// Sends the rest of the request's body, as the worker takes it.
    ///
    /// # Errors
    /// Reading the client's body failed; the request was cancelled at the worker.
    pub fn send(&self, mut body: RequestBody) -> impl Future<Output = Result<(), BodyError>> + use<> {
        let (link, state, stream) = (Rc::clone(&self.link), Rc::clone(&self.state), self.stream);
        async move {
            while let Some(piece) = body.next().await {
                let piece = match piece {
                    Ok(piece) => piece,
                    Err(why) => {
                        link.put(Kind::ABORT, 0, stream, &[]);
                        return Err(why);
                    }
                };
                let mut rest: &[u8] = &piece;
                while !rest.is_empty() {
                    let room = poll_fn(|context| {
                        let mut state = state.borrow_mut();
                        if state.credit > 0 || state.ticket.is_none() || state.abandoned {
                            return Poll::Ready(state.credit.max(0) as usize);
                        }
                        state.sender = Some(context.waker().clone());
                        Poll::Pending
                    })
                    .await;
                    if link.closed.get() || state.borrow().ticket.is_none() || state.borrow().abandoned {
                        return Ok(());
                    }
                    let (now, later) = rest.split_at(rest.len().min(room).min(PIECE_BYTES));
                    state.borrow_mut().credit -= now.len() as i64;
                    link.put(Kind::BODY, 0, stream, now);
                    rest = later;
                }
            }
            let state = state.borrow();
            if state.ticket.is_some() && !state.abandoned {
                link.put(Kind::BODY, END, stream, &[]);
            }
            Ok(())
        }
    }

    /// Bytes of the answer were taken: the worker may send as many again.
    fn took(&self, bytes: u32) {
        let mut stream = self.state.borrow_mut();
        stream.taken = stream.taken.saturating_add(bytes);
        if stream.taken >= WINDOW_BYTES / 2 && !stream.answering.is_over() {
            let bytes = std::mem::take(&mut stream.taken);
            stream.answering.grant(bytes);
            drop(stream);
            self.link.put(Kind::CREDIT, 0, self.stream, &bytes.to_le_bytes());
        }
    }

    /// Cancels a request because its answer is too late. The worker is killed if it does not stop within
    /// `patience`.
    pub fn too_late(self, patience: Duration) {
        let state = Rc::clone(&self.state);
        let counts = |ticket: &Ticket| ticket.counts().timeouts.fetch_add(1, Ordering::Relaxed);
        state.borrow().ticket.as_ref().map(counts);
        drop(self);
        let held = state;
        spawn(async move {
            time::sleep(patience).await;
            if let Some(ticket) = &held.borrow().ticket {
                ticket.stuck();
            }
        })
        .detach();
    }

    /// Reports that the file of the answer was opened, or that it will not be: the worker may close it.
    pub fn opened(&self) {
        self.link.put(Kind::OPENED, 0, self.stream, &[]);
    }

    /// Returns the rest of the answer.
    pub fn into_body(self) -> AnswerBody {
        AnswerBody { source: Source::Frames(self), over: false }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let mut stream = self.state.borrow_mut();
        stream.abandoned = true;
        stream.events.clear();
        let Some(ticket) = &stream.ticket else { return };
        if ticket.is_socket() {
            // WS_CLOSE was sent; the worker ends the stream.
            return;
        }
        if !stream.answering.is_over() {
            ticket.counts().aborted.fetch_add(1, Ordering::Relaxed);
            let sender = stream.sender.take();
            drop(stream);
            self.link.put(Kind::ABORT, 0, self.stream, &[]);
            sender.into_iter().for_each(Waker::wake);
        }
    }
}

/// The body of an answer, as it comes.
#[derive(Debug)]
pub struct AnswerBody {
    source: Source,
    over: bool,
}

/// Where an answer comes from.
#[derive(Debug)]
enum Source {
    Frames(Exchange),
    Goridge(GoridgeAnswer),
}

impl FutureStream for AnswerBody {
    type Item = Result<Piece, String>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if this.over {
            return Poll::Ready(None);
        }
        let exchange = match &mut this.source {
            Source::Frames(exchange) => exchange,
            Source::Goridge(answer) => {
                let piece = std::task::ready!(Pin::new(answer).poll_next(context));
                this.over = !matches!(piece, Some(Ok(_)));
                return Poll::Ready(piece.map(|piece| piece.map(Piece::Data)));
            }
        };
        loop {
            return match std::task::ready!(exchange.poll_event(context)) {
                Event::Body(bytes, last) => {
                    this.over = last;
                    if bytes.is_empty() {
                        if last {
                            return Poll::Ready(None);
                        }
                        continue;
                    }
                    exchange.took(bytes.len() as u32);
                    Poll::Ready(Some(Ok(Piece::Data(Chunk::from(bytes)))))
                }
                Event::Trailers(lines) => {
                    this.over = true;
                    Poll::Ready(Some(Ok(Piece::Trailers(lines))))
                }
                Event::Failed(why) => {
                    this.over = true;
                    Poll::Ready(Some(Err(why.to_string())))
                }
                Event::Informational(..) => continue,
                Event::Head { .. } | Event::File(_) | Event::Accepted { .. } | Event::Said(_) => {
                    this.over = true;
                    Poll::Ready(Some(Err("the worker sent frames out of order".to_owned())))
                }
            };
        }
    }
}

impl From<GoridgeAnswer> for AnswerBody {
    fn from(answer: GoridgeAnswer) -> AnswerBody {
        AnswerBody { source: Source::Goridge(answer), over: false }
    }
}

impl AnswerBody {
    /// Reports that the file of the answer was opened, or that it will not be: the worker may close it.
    pub fn opened(&self) {
        if let Source::Frames(exchange) = &self.source {
            exchange.opened();
        }
    }

    /// Returns the next piece.
    pub async fn next(&mut self) -> Option<Result<Piece, String>> {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }
}

/// A WebSocket that a worker has accepted. Dropped, the worker is told that the client is gone.
#[derive(Debug)]
pub struct Socket {
    exchange: Exchange,
    /// The worker knows that the client's side is over.
    told: Cell<bool>,
}

impl Socket {
    /// Returns the next message of the worker. [`Said::Closed`] and [`Said::Failed`] are the last.
    pub fn poll_said(&self, context: &mut Context<'_>) -> Poll<Said> {
        Poll::Ready(match std::task::ready!(self.exchange.poll_event(context)) {
            Event::Said(said) => said,
            Event::Failed(why) => Said::Failed(why),
            _ => Said::Failed(Failed::Bad("frames out of order".to_owned())),
        })
    }

    /// Is ready when the worker takes a message.
    pub fn poll_credit(&self, context: &Context<'_>) -> Poll<()> {
        let mut stream = self.exchange.state.borrow_mut();
        if stream.credit > 0 {
            return Poll::Ready(());
        }
        stream.sender = Some(context.waker().clone());
        Poll::Pending
    }

    /// Gives a message to the worker, whatever its credit is: [`poll_credit`](Self::poll_credit) comes first.
    pub fn give(&self, is_text: bool, message: &[u8]) {
        self.exchange.state.borrow_mut().credit -= i64::from(message_cost(message.len()));
        let aux = if is_text { rwp::TEXT } else { rwp::BINARY };
        self.exchange.link.put_as(Kind::WS_DATA, 0, aux, self.exchange.stream, message);
    }

    /// Notes that a message of the worker went to the client: the worker may send as much again.
    pub fn took(&self, bytes: usize) {
        self.exchange.took(message_cost(bytes));
    }

    /// Tells the worker how the client's side has ended.
    pub fn ended(&self, code: CloseCode, reason: &str) {
        if !self.told.replace(true) && self.exchange.state.borrow().ticket.is_some() {
            let stream = self.exchange.stream;
            self.exchange.link.put_as(Kind::WS_CLOSE, END, code.get(), stream, reason.as_bytes());
        }
    }

    /// Waits until the kernel has everything that is queued for the worker, for at most `patience`. A server
    /// that stops ends its runtimes after its sessions, and what is still queued then would be lost.
    pub async fn flush(&self, patience: Duration) {
        let link = &self.exchange.link;
        let place = link.queued.get();
        let flushed = poll_fn(|context| {
            if link.sent.get() >= place || link.closed.get() {
                return Poll::Ready(());
            }
            link.flushed.borrow_mut().push(context.waker().clone());
            Poll::Pending
        });
        // A worker that reads nothing for so long is the supervisor's.
        let _ = time::timeout(patience, flushed).await;
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.ended(CloseCode::ABNORMAL, "");
    }
}
