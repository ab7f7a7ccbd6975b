//! Workers of RoadRunner: PHP programs that take one request at a time over goridge.
//!
//! A worker's standard input and output are one end of a socket; the other end is its [`Relay`]. The thread
//! that has the worker's ticket takes the socket out of the relay, exchanges the request, and puts it back.
//! [`head`] writes what a worker is told of a request, [`form`] turns bodies of forms into what PHP makes
//! of them.
//!
//! Start reading at [`exchange`].

mod form;
mod head;

pub use form::{BadForm, Form, Upload, is_form, multipart, urlencoded};
pub use head::head;

use crate::link::{Answered, Failed};
use crate::pool::Ticket;
use futures_core::Stream;
use ringroad_engine::Lease;
use ringroad_engine::net::{Detached, ReadHalf, Unix, UnixStream, WriteHalf};
use ringroad_engine::sync::budget::Turns;
use ringroad_engine::sync::{Receiver, Sender, bounded};
use ringroad_engine::{spawn, time};
use ringroad_http::{Chunk, RequestBody};
use ringroad_wire::goridge::{self, Frame};
use rustix::net::RecvFlags;
use serde_json::{Value, json};
use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// The version of RoadRunner that workers are told.
pub(crate) const VERSION: &str = "2025.1.0";
/// Most bytes of one frame of an answer: a larger answer is sent as a stream.
const FRAME_BYTES_MAX: u32 = 256 << 20;
/// Pieces of an answer that wait for the client's side.
const PIECES_MAX: usize = 4;
/// How long it takes at most to receive what is there.
const READ_OUT: Duration = Duration::from_secs(1);
/// What is shown of bytes that are no frame.
const SHOWN_BYTES: usize = 200;

/// The server's end of a worker's standard input and output.
#[derive(Debug)]
pub(crate) struct Relay {
    place: Mutex<Place>,
    /// The same socket, for greetings and orders while no request is on it.
    order: StdUnixStream,
}

/// Where the socket is.
#[derive(Debug)]
enum Place {
    /// No thread of the server has had it.
    Fresh(StdUnixStream),
    /// Between two requests.
    Rests(Detached<UnixStream>),
    /// A request is on it, or it is broken.
    Taken,
}

/// What a worker has said while it started.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Greeting {
    /// Nothing whole yet.
    None,
    /// Its process number: it is ready.
    Ready,
    /// Something else.
    Wrong(String),
}

impl Relay {
    /// Returns a relay that has greeted, and the worker's end of it.
    pub(crate) fn pair() -> io::Result<(Relay, OwnedFd)> {
        let (ours, theirs) = StdUnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let relay = Relay { order: ours.try_clone()?, place: Mutex::new(Place::Fresh(ours)) };
        relay.send(goridge::CONTROL | goridge::JSON, &json!({ "pid": std::process::id() }))?;
        Ok((relay, theirs.into()))
    }

    fn send(&self, flags: u8, order: &Value) -> io::Result<()> {
        let mut bytes = Vec::new();
        goridge::put(&mut bytes, flags, 0, order.to_string().as_bytes());
        // An order is smaller than what an idle socket takes at once.
        let sent = rustix::net::send(&self.order, &bytes, rustix::net::SendFlags::NOSIGNAL)?;
        if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
    }

    /// Takes what a starting worker has sent. `received` keeps parts of a frame between calls.
    pub(crate) fn greeting(&self, received: &mut Vec<u8>) -> Greeting {
        let mut buffer = [0_u8; 4096];
        loop {
            match rustix::net::recv(&self.order, &mut buffer[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => break,
                Ok((count, _)) => received.extend_from_slice(buffer.get(..count).unwrap_or_default()),
                Err(rustix::io::Errno::INTR) => continue,
                // Nothing more, or the socket is closed: the end of the process follows. What it has printed
                // before tells why.
                Err(_) => break,
            }
        }
        match goridge::next(received, &mut 0, buffer.len() as u32) {
            Ok(None) => Greeting::None,
            Ok(Some(Frame { flags, payload, .. })) if flags & goridge::CONTROL != 0 => {
                let told: Value = serde_json::from_slice(payload).unwrap_or_default();
                if told.get("pid").is_some_and(Value::is_u64) {
                    return Greeting::Ready;
                }
                Greeting::Wrong("its first frame has no process number".to_owned())
            }
            Ok(Some(_)) => Greeting::Wrong("its first frame is an answer".to_owned()),
            Err(why) => Greeting::Wrong(printed(&why.to_string(), received)),
        }
    }

    /// Tells a worker without a request to end. `false`: it has a request, or does not read.
    pub(crate) fn stop(&self) -> bool {
        let place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        !matches!(*place, Place::Taken)
            && self.send(goridge::CONTROL | goridge::JSON, &json!({ "stop": true })).is_ok()
    }

    fn take(&self) -> Result<UnixStream, Failed> {
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        let died = Failed::Died { unseen: true };
        match std::mem::replace(&mut *place, Place::Taken) {
            Place::Fresh(stream) => UnixStream::from_std(stream).map_err(|_| died),
            Place::Rests(stream) => stream.attach().map_err(|_| died),
            Place::Taken => Err(died),
        }
    }

    async fn put_back(&self, stream: UnixStream) {
        if let Ok(stream) = stream.detach().await {
            *self.place.lock().unwrap_or_else(PoisonError::into_inner) = Place::Rests(stream);
        }
    }
}

impl AsFd for Relay {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.order.as_fd()
    }
}

/// Returns what a program printed where a frame was expected.
fn printed(why: &str, bytes: &[u8]) -> String {
    let shown = String::from_utf8_lossy(bytes.get(..SHOWN_BYTES).unwrap_or(bytes));
    let shown = shown.trim().escape_debug().to_string();
    format!("{why}: the program printed \"{shown}\" to its standard output, which belongs to the protocol")
}

/// The body of a request for a worker of RoadRunner, all of which is here.
pub enum GoridgeBody {
    /// Bytes.
    Whole(Vec<u8>),
    /// So many bytes, read from where they are kept.
    Kept(u64, RequestBody),
}

impl std::fmt::Debug for GoridgeBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GoridgeBody")
    }
}

/// What comes of an exchange.
#[derive(Debug)]
enum News {
    Head(Answered),
    Piece(Vec<u8>),
    Failed(Failed),
}

/// The rest of an answer.
#[derive(Debug)]
pub struct GoridgeAnswer {
    news: Pin<Box<Receiver<News>>>,
}

impl Stream for GoridgeAnswer {
    type Item = Result<Chunk, String>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(match std::task::ready!(self.news.as_mut().poll_next(context)) {
            Some(News::Piece(bytes)) => Some(Ok(Chunk::from(bytes))),
            Some(News::Failed(why)) => Some(Err(why.to_string())),
            Some(News::Head(_)) => Some(Err("the worker sent two heads".to_owned())),
            None => None,
        })
    }
}

impl GoridgeAnswer {
    /// Returns the head of the answer, with the first bytes of the body.
    ///
    /// # Errors
    /// There is no answer. [`Failed::TooLate`]: not within the application's time-out; the worker may go on
    /// for `kill_after`.
    pub async fn head(&self) -> Result<Answered, Failed> {
        match self.news.recv().await {
            Ok(News::Head(answered)) => Ok(answered),
            Ok(News::Failed(why)) => Err(why),
            Ok(News::Piece(_)) | Err(_) => Err(Failed::Died { unseen: false }),
        }
    }
}

/// Gives a request to the worker of `ticket`. The ticket is held until the worker has finished with it, also
/// where the answer is dropped.
pub fn exchange(ticket: Ticket, head: Vec<u8>, body: GoridgeBody) -> GoridgeAnswer {
    let (tell, news) = bounded(PIECES_MAX);
    spawn(work(ticket, head, body, tell)).detach();
    GoridgeAnswer { news: Box::pin(news) }
}

/// How an exchange ends for its worker.
enum Ends {
    /// It may have the next request.
    Well,
    /// It wants to end.
    Leaves,
    /// It is of no use any more.
    Broken(Failed),
    /// It goes on with a request that is given up.
    Stuck,
    /// Its answer is whole, and it is reported as broken.
    Gone,
}

async fn work(ticket: Ticket, head: Vec<u8>, body: GoridgeBody, tell: Sender<News>) {
    let Some(relay) = ticket.worker().relay() else { return };
    let mut stream = match relay.take() {
        Ok(stream) => stream,
        Err(why) => {
            // The receiver may be gone.
            let _ = tell.send(News::Failed(why)).await;
            return ticket.broken("its socket cannot be used".to_owned());
        }
    };
    // What came between two requests would be taken for the answer to this one.
    if !stream.is_quiet() {
        if let Ok(Ok(lease)) = time::timeout(READ_OUT, stream.recv()).await
            && !lease.is_empty()
        {
            ticket.broken(printed("it sent something without a request", &lease));
        }
        let _ = tell.send(News::Failed(Failed::Died { unseen: true })).await;
        return;
    }
    let (mut read, write) = stream.split();
    let mut sending = Sending::begin(write, head, body);
    let ends = receive(&ticket, &mut read, &mut sending, &tell).await;
    let ends = match ends {
        Ends::Broken(why) => {
            if !matches!(why, Failed::Died { .. }) {
                ticket.broken(why.to_string());
            }
            let _ = tell.send(News::Failed(why)).await;
            return;
        }
        Ends::Stuck => return ticket.stuck(),
        Ends::Gone => return,
        ends => ends,
    };
    drop(tell);
    // It has answered before it had all of the request. It may have the next one if it takes the rest.
    let patience = ticket.settings().kill_after.max(Duration::from_secs(1));
    let Ok(Some(write)) = time::timeout(patience, sending.end()).await else {
        return ticket.broken("it has answered a request and does not take the rest of it".to_owned());
    };
    if let Ok(stream) = read.reunite(write) {
        relay.put_back(stream).await;
    }
    if matches!(ends, Ends::Leaves) {
        ticket.leaves();
    }
}

/// What is sent to a worker, beside what is received: it may answer before it has read all of the request.
struct Sending {
    under_way: Option<Pin<Box<dyn Future<Output = Sent>>>>,
    /// Nothing is being sent.
    write: Option<WriteHalf<Unix>>,
    /// Why the request was not sent.
    failed: Option<Failed>,
    /// Orders behind what is being sent.
    orders: Vec<u8>,
    /// When something was last sent.
    progress: Rc<Cell<Instant>>,
}

type Sent = Result<WriteHalf<Unix>, Failed>;

impl Sending {
    fn begin(write: WriteHalf<Unix>, head: Vec<u8>, body: GoridgeBody) -> Sending {
        let progress = Rc::new(Cell::new(Instant::now()));
        Sending {
            under_way: Some(Box::pin(send(write, head, body, Rc::clone(&progress)))),
            write: None,
            failed: None,
            orders: Vec::new(),
            progress,
        }
    }

    /// Sends a part of what there is, as far as it is possible now.
    fn poll(&mut self, context: &mut Context<'_>) {
        loop {
            if let Some(sending) = &mut self.under_way {
                match sending.as_mut().poll(context) {
                    Poll::Pending => return,
                    Poll::Ready(Ok(write)) => self.write = Some(write),
                    Poll::Ready(Err(why)) => self.failed = Some(why),
                }
                self.under_way = None;
            }
            let Some(mut write) = self.write.take_if(|_| !self.orders.is_empty()) else { return };
            let orders = std::mem::take(&mut self.orders);
            self.under_way = Some(Box::pin(async move {
                match write.write_all(orders).await.0 {
                    Ok(_) => Ok(write),
                    Err(_) => Err(Failed::Died { unseen: false }),
                }
            }));
        }
    }

    /// Waits until all is sent. `None`: it cannot be.
    async fn end(&mut self) -> Option<WriteHalf<Unix>> {
        poll_fn(|context| {
            self.poll(context);
            if self.under_way.is_some() { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        self.write.take()
    }
}

async fn send(
    mut write: WriteHalf<Unix>,
    head: Vec<u8>,
    body: GoridgeBody,
    progress: Rc<Cell<Instant>>,
) -> Sent {
    let bytes = match &body {
        GoridgeBody::Whole(bytes) => bytes.len() as u64,
        GoridgeBody::Kept(bytes, _) => *bytes,
    };
    let length = u32::try_from(head.len() as u64 + bytes);
    let length = length.map_err(|_| Failed::Bad("a request of more than 4 GiB".to_owned()))?;
    let mut out = Vec::with_capacity(head.len() + goridge::HEAD_BYTES + 4);
    goridge::put_head(&mut out, goridge::JSON, 0, Some(head.len() as u32), length);
    out.extend_from_slice(&head);
    let died = |_| Failed::Died { unseen: false };
    match body {
        GoridgeBody::Whole(bytes) => {
            out.extend_from_slice(&bytes);
            write.write_all(out).await.0.map_err(died)?;
        }
        GoridgeBody::Kept(_, mut body) => {
            write.write_all(out).await.0.map_err(died)?;
            progress.set(Instant::now());
            while let Some(piece) = body.next().await {
                let piece = piece.map_err(|why| Failed::Bad(format!("the body of the request: {why}")))?;
                write.write_all(piece.to_vec()).await.0.map_err(died)?;
                progress.set(Instant::now());
            }
        }
    }
    progress.set(Instant::now());
    Ok(write)
}

/// Waits for further bytes, and sends meanwhile.
async fn next_bytes(
    read: &mut ReadHalf<Unix>,
    sending: &mut Sending,
    patience: Duration,
) -> Result<Option<Lease>, TooLate> {
    let began = Instant::now();
    let mut turns = Turns::default();
    loop {
        let last = sending.progress.get().max(began);
        let received = poll_fn(|context| {
            let send = |context: &mut Context<'_>| {
                sending.poll(context);
                // A worker that is gone may have answered before.
                let failed = sending.failed.take_if(|why| !matches!(why, Failed::Died { .. }));
                failed.map_or(Poll::Pending, |why| Poll::Ready(Err(why)))
            };
            turns.poll(context, send, |context| read.poll_recv(context).map(Ok))
        });
        match time::timeout(patience.saturating_sub(last.elapsed()), received).await {
            Ok(Ok(received)) => return Ok(received.ok().filter(|lease| !lease.is_empty())),
            Ok(Err(why)) => return Err(TooLate::Never(why)),
            Err(_) if sending.progress.get() > last => {}
            Err(_) => return Err(TooLate::Late),
        }
    }
}

/// Waits for a value, and gives it up when something else has happened.
async fn unless<T>(happens: impl Future<Output = ()>, value: impl Future<Output = T>) -> Option<T> {
    let (mut happens, mut value) = (pin!(happens), pin!(value));
    poll_fn(|context| match value.as_mut().poll(context) {
        Poll::Pending => happens.as_mut().poll(context).map(|()| None),
        ready => ready.map(Some),
    })
    .await
}

/// Why no bytes have come.
enum TooLate {
    Late,
    /// The request cannot be sent.
    Never(Failed),
}

/// Takes the frames of an answer until its last one.
async fn receive(
    ticket: &Ticket,
    read: &mut ReadHalf<Unix>,
    sending: &mut Sending,
    tell: &Sender<News>,
) -> Ends {
    let settings = ticket.settings();
    let mut received = Vec::new();
    let (mut headed, mut given_up, mut stopped) = (false, false, false);
    let mut patience = settings.timeout;
    loop {
        let mut at = 0;
        let frame = match goridge::next(&received, &mut at, FRAME_BYTES_MAX) {
            Ok(Some(frame)) => frame,
            Ok(None) => {
                let left = async {
                    // Of what has not begun nothing is lost if it goes on.
                    if !headed || given_up {
                        std::future::pending::<()>().await;
                    }
                    tell.closed().await;
                };
                let next = next_bytes(read, sending, patience);
                let Some(next) = unless(left, next).await else {
                    // A worker that is silent is told, too. It may take as long as for a piece.
                    ticket.counts().aborted.fetch_add(1, Ordering::Relaxed);
                    (given_up, stopped) = (true, true);
                    goridge::put(&mut sending.orders, 0, goridge::STOP, &[]);
                    continue;
                };
                match next {
                    Ok(Some(lease)) => received.extend_from_slice(&lease),
                    Ok(None) => return Ends::Broken(Failed::Died { unseen: false }),
                    Err(TooLate::Never(why)) => return Ends::Broken(why),
                    Err(TooLate::Late) if given_up => return Ends::Stuck,
                    Err(TooLate::Late) => {
                        ticket.counts().timeouts.fetch_add(1, Ordering::Relaxed);
                        (given_up, patience) = (true, settings.kill_after);
                        let _ = tell.send(News::Failed(Failed::TooLate)).await;
                    }
                }
                continue;
            }
            Err(why) => return Ends::Broken(Failed::Bad(printed(&why.to_string(), &received))),
        };
        let last = frame.stream & goridge::STREAM == 0;
        let wants_pong = frame.stream & goridge::PING != 0;
        match said(&frame, headed, last) {
            Said::Leaves => {
                let why = "the worker ends".to_owned();
                let _ = tell.send(News::Failed(Failed::Reset { why, unhandled: true })).await;
                return Ends::Leaves;
            }
            Said::News(News::Failed(why @ Failed::Bad(_))) => return Ends::Broken(why),
            Said::News(news) => {
                headed |= matches!(news, News::Head(_));
                if !given_up && tell.send(news).await.is_err() {
                    ticket.counts().aborted.fetch_add(1, Ordering::Relaxed);
                    (given_up, patience) = (true, settings.kill_after.max(Duration::from_secs(1)));
                }
            }
            Said::Nothing => {}
        }
        if last {
            return match received.get(at..) {
                // It would be the beginning of the next answer.
                Some(more) if !more.is_empty() => {
                    ticket.broken(printed("it sent something behind its answer", more));
                    Ends::Gone
                }
                _ => Ends::Well,
            };
        }
        drop(received.drain(..at));
        if wants_pong {
            goridge::put(&mut sending.orders, 0, goridge::PONG, &[]);
        }
        if given_up && !std::mem::replace(&mut stopped, true) {
            goridge::put(&mut sending.orders, 0, goridge::STOP, &[]);
        }
    }
}

/// What a frame says.
enum Said {
    News(News),
    /// The worker has not handled the request, and ends.
    Leaves,
    /// Nothing that a client gets.
    Nothing,
}

fn said(frame: &Frame<'_>, headed: bool, last: bool) -> Said {
    if frame.flags & goridge::ERROR != 0 {
        let why = String::from_utf8_lossy(frame.payload).into_owned();
        return Said::News(News::Failed(Failed::Reset { why, unhandled: false }));
    }
    let bad = |why: &str| Said::News(News::Failed(Failed::Bad(why.to_owned())));
    if frame.flags & goridge::PROTO != 0 {
        return bad("an answer in Protocol Buffers to a request in JSON");
    }
    let Some((head, body)) = frame.split() else { return bad("a head that is longer than its frame") };
    if headed {
        // Newer libraries repeat the head in each frame of a stream.
        return if body.is_empty() { Said::Nothing } else { Said::News(News::Piece(body.to_vec())) };
    }
    let Ok(told) = serde_json::from_slice::<Value>(if head.is_empty() { body } else { head }) else {
        return bad("a head that is no JSON");
    };
    if told.get("stop") == Some(&Value::Bool(true)) {
        return Said::Leaves;
    }
    let status = told.get("status").and_then(Value::as_u64).and_then(|status| u16::try_from(status).ok());
    match status {
        Some(102..=199) | Some(100) if !last => Said::Nothing,
        Some(status @ 200..=599) => {
            let lines = head::lines(told.get("headers"));
            let body = body.to_vec();
            Said::News(News::Head(Answered { status, lines, body, complete: last, file: None }))
        }
        Some(status) => bad(&format!("the status {status}")),
        None => bad("a head without a status"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn frame<'b>(flags: u8, stream: u8, head_bytes: u32, payload: &'b [u8]) -> Frame<'b> {
        Frame { flags, stream, head_bytes, payload }
    }

    #[test]
    fn a_frame_of_an_answer_is_a_head_a_piece_an_error_or_a_good_bye() {
        let head = br#"{"status":201,"headers":{"X-A":["1","2"],"X-B":"3"}}"#;
        let whole = [&head[..], b"body"].concat();
        match said(&frame(0, 0, head.len() as u32, &whole), false, true) {
            Said::News(News::Head(answered)) => {
                assert_eq!((answered.status, answered.body.as_slice()), (201, &b"body"[..]));
                assert!(answered.complete);
                let line = |name: &str, value: &str| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
                assert_eq!(answered.lines, [line("X-A", "1"), line("X-A", "2"), line("X-B", "3")]);
            }
            _ => panic!("no head"),
        }
        let piece = said(&frame(0, goridge::STREAM, 0, b"more"), true, false);
        assert!(matches!(piece, Said::News(News::Piece(bytes)) if bytes == b"more"));
        let error = said(&frame(goridge::ERROR, 0, 0, b"it broke"), false, true);
        assert!(
            matches!(error, Said::News(News::Failed(Failed::Reset { why, unhandled: false })) if why == "it broke")
        );
        let stop = br#"{"stop":true}"#;
        assert!(matches!(said(&frame(0, 0, stop.len() as u32, stop), false, true), Said::Leaves));
    }

    #[test]
    fn what_is_no_answer_is_named() {
        for (payload, head_bytes, why) in [
            (&b"{}"[..], 9, "longer than its frame"),
            (b"nothing", 7, "no JSON"),
            (b"{}", 2, "without a status"),
            (br#"{"status":101}"#, 14, "the status 101"),
            (br#"{"status":900}"#, 14, "the status 900"),
        ] {
            match said(&frame(0, 0, head_bytes, payload), false, true) {
                Said::News(News::Failed(Failed::Bad(told))) => assert!(told.contains(why), "{told}"),
                _ => panic!("{why}"),
            }
        }
    }

    #[test]
    fn a_worker_is_greeted_and_what_it_prints_instead_of_an_answer_is_shown() {
        let (relay, theirs) = Relay::pair().unwrap();
        let theirs = StdUnixStream::from(theirs);
        let mut greeting = vec![0; 200];
        let count = io::Read::read(&mut &theirs, &mut greeting).unwrap();
        let told = goridge::next(&greeting[..count], &mut 0, 100).unwrap().unwrap();
        assert_eq!(told.payload, format!("{{\"pid\":{}}}", std::process::id()).as_bytes());
        let mut received = Vec::new();
        assert_eq!(relay.greeting(&mut received), Greeting::None);
        let mut answer = Vec::new();
        goridge::put(&mut answer, goridge::CONTROL, 0, br#"{"pid":7}"#);
        io::Write::write_all(&mut &theirs, &answer[..5]).unwrap();
        assert_eq!(relay.greeting(&mut received), Greeting::None);
        io::Write::write_all(&mut &theirs, &answer[5..]).unwrap();
        assert_eq!(relay.greeting(&mut received), Greeting::Ready);
        assert!(relay.stop());

        let (relay, theirs) = Relay::pair().unwrap();
        io::Write::write_all(&mut &StdUnixStream::from(theirs), b"Could not open input file: x.php\n")
            .unwrap();
        match relay.greeting(&mut Vec::new()) {
            Greeting::Wrong(why) => assert!(why.contains("Could not open input file: x.php"), "{why}"),
            other => panic!("{other:?}"),
        }
    }
}
