//! Requests handed on to an HTTP/1.1 server behind this one, and its answers handed back, both as they come.
//!
//! What belongs to a connection stays there (RFC 9110 §7.6.1): each hop has its own framing, its own `Connection`, and
//! nobody's word removes a line that we add. A failure on the other side is 502 or 504 with a short word to the client and
//! the reason in the log. Connections are in [`upstream`], lines in [`lines`], what becomes of a connection that speaks
//! WebSocket in [`tunnel`].

mod lines;
mod tunnel;
mod upstream;

use crate::answer::{Answer, Asking, Sent, Tally, Upstream};
use crate::config::{Proxy, Route};
use crate::{page, path};
use futures_core::Stream;
use ringroad_engine::time;
use ringroad_http::{Body, Chunk, EncodeError, Method, Request, RequestBody, Response, Status};
use ringroad_wire::{Asked, BodyEncoder, BodySize, Limits, Scratch};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use upstream::{Connection, Failure, Head, Sink, Source};

/// One worker's connections to servers behind it.
pub(crate) struct Proxies {
    /// By the route's settings.
    idle: RefCell<HashMap<usize, Vec<Idle>>>,
    scratch: Rc<RefCell<Scratch>>,
}

/// A connection nobody uses now.
struct Idle {
    connection: Connection,
    since: Instant,
}

impl Proxies {
    pub(crate) fn new() -> Proxies {
        let scratch = Rc::new(RefCell::new(Scratch::new(Limits::client())));
        Proxies { idle: RefCell::default(), scratch }
    }

    /// Hands a request on, and answers what comes back.
    pub(crate) async fn answer(
        self: &Rc<Proxies>,
        route: &Rc<Place>,
        request: Request,
        asking: &Asking<'_>,
    ) -> Result<Answer, EncodeError> {
        asking.name(&request);
        let settings = route.settings();
        let mut head = Vec::new();
        let target = target(route, settings, &request);
        let method = request.method();
        // Who offers it has no body to send first.
        let websocket =
            lines::offers_websocket(&request) && request.head().body() == ringroad_wire::Body::Empty;
        let Some(encoder) = lines::request(&mut head, route, &request, &target, websocket, asking) else {
            return Ok(page::refusal(Status::BAD_REQUEST, asking, "This request cannot be handed on."));
        };
        let body = request.into_body();
        let size = match body.bytes_left() {
            Some(length) => BodySize::Known(length),
            None => BodySize::Unknown,
        };
        let repeatable = size == BodySize::Known(0)
            && !matches!(method, Method::Post | Method::Patch | Method::Connect | Method::Other);
        let encoder = encoder.finish(size);
        let begun = Instant::now();
        let asked = Asked { method, upgrade: websocket };
        let asked = self.ask(route, head, encoder, body, asked, repeatable).await;
        asking.answered_by(Upstream { address: settings.to.to_string(), took: begun.elapsed() });
        match asked {
            Ok((head, pump)) if head.status() == Status::SWITCHING_PROTOCOLS => {
                if lines::is_websocket(head.fields()) {
                    return hand_through(route, head, pump);
                }
                Ok(refused(settings, &Failure::OtherProtocol, asking))
            }
            Ok((head, pump)) => self.hand_back(route, head, pump, method).await,
            Err(failure) => Ok(refused(settings, &failure, asking)),
        }
    }

    /// Sends a request, on a connection that was kept if there is one, and waits for the head of its answer.
    async fn ask(
        self: &Rc<Proxies>,
        route: &Rc<Place>,
        head: Vec<u8>,
        encoder: BodyEncoder,
        body: RequestBody,
        asked: Asked,
        repeatable: bool,
    ) -> Result<(Head, Pump), Failure> {
        let settings = route.settings();
        let mut head = head;
        let mut body = Some(body);
        let mut fresh = false;
        loop {
            let kept = if fresh { None } else { self.take(route).await };
            let was_kept = kept.is_some();
            let connection = match kept {
                Some(connection) => connection,
                None => Connection::open(&settings.to, settings.connect_timeout).await?,
            };
            let (source, sink) = connection.split();
            let progress = Rc::new(Cell::new(Instant::now()));
            // A body can be sent once only; a repeated request has none.
            let rest = body.take();
            let bytes = if repeatable { head.clone() } else { std::mem::take(&mut head) };
            let sending = Sending {
                future: Some(Box::pin(sink.send(bytes, encoder, rest, Rc::clone(&progress)))),
                sink: None,
                failed: None,
            };
            let mut pump = Pump {
                source,
                sending,
                progress,
                span: settings.answer_timeout,
                scratch: Rc::clone(&self.scratch),
            };
            match pump.head(asked).await {
                Ok(head) => return Ok((head, pump)),
                // It was closed while it was kept: nobody has seen this request.
                Err(Failure::Unanswered(_)) if was_kept && repeatable => fresh = true,
                Err(failure) => return Err(failure),
            }
        }
    }

    /// A connection that was kept, still open and with nothing said that nobody asked for.
    async fn take(&self, route: &Rc<Place>) -> Option<Connection> {
        loop {
            let idle = {
                let mut idle = self.idle.borrow_mut();
                let idle = idle.get_mut(&route.key())?;
                let span = route.settings().keep_for;
                // The oldest are in front.
                let old = idle.iter().position(|idle| idle.since.elapsed() < span).unwrap_or(idle.len());
                drop(idle.drain(..old));
                idle.pop()?
            };
            let mut connection = idle.connection;
            if connection.is_quiet().await {
                return Some(connection);
            }
        }
    }

    fn keep(&self, route: &Rc<Place>, connection: Connection) {
        let mut idle = self.idle.borrow_mut();
        let idle = idle.entry(route.key()).or_default();
        if idle.len() < route.settings().keep {
            idle.push(Idle { connection, since: Instant::now() });
        }
    }

    /// The answer from behind as ours.
    async fn hand_back(
        self: &Rc<Proxies>,
        route: &Rc<Place>,
        head: Head,
        pump: Pump,
        method: Method,
    ) -> Result<Answer, EncodeError> {
        let mut pump = pump;
        let respond = |body: Body| lines::response(&head, route, Response::new(body).status(head.status()));
        if method == Method::Head {
            pump.finish(self, route);
            let body = match head.length() {
                Some(length) => Body::stream_of(length, Nothing),
                None => Body::stream(Nothing),
            };
            return Ok(Answer::empty(respond(body)?));
        }
        if pump.source.is_complete() {
            pump.finish(self, route);
            return Ok(Answer::empty(respond(Body::empty())?));
        }
        // What is there already goes without a stream, if it is all.
        let (pieces, complete) = pump.source.ready(&pump.scratch);
        if complete {
            pump.finish(self, route);
            let bytes = pieces.len() as u64;
            return Ok(Answer::known(respond(Body::from(pieces))?, bytes));
        }
        let tally = Tally::new();
        let stream = Answering {
            ready: (!pieces.is_empty()).then(|| Chunk::from(pieces)),
            next: None,
            pump: Some(pump),
            home: (Rc::clone(self), Rc::clone(route)),
            tally: Rc::clone(&tally),
        };
        let body = match head.length() {
            Some(length) => Body::stream_of(length, stream),
            None => Body::stream(stream),
        };
        Ok(Answer { response: respond(body)?, sent: Sent::Tally(tally) })
    }
}

/// What is answered when nothing comes from behind.
fn refused(settings: &Proxy, failure: &Failure, asking: &Asking<'_>) -> Answer {
    let (status, what) = failure.told();
    asking.fault(format!("{}: {failure}", settings.to));
    page::refusal(status, asking, what)
}

/// The offer was taken: so do we, and what both say is handed through.
fn hand_through(route: &Rc<Place>, head: Head, pump: Pump) -> Result<Answer, EncodeError> {
    let (place, tally) = (Rc::clone(route), Tally::new());
    let counted = Rc::clone(&tally);
    let response = Response::upgrade(lines::WEBSOCKET, move |upgraded| async move {
        let settings = place.settings();
        match tunnel::run(upgraded, pump, settings, &counted).await {
            Ok(()) | Err(tunnel::Broken::Client) => {}
            Err(why) => counted.fault(&format!("{}: {why}", settings.to)),
        }
    })?;
    Ok(Answer { response: lines::response(&head, route, response)?, sent: Sent::Tally(tally) })
}

/// A proxy's route.
pub(crate) struct Place {
    pub(crate) route: std::sync::Arc<Route>,
}

impl Place {
    pub(crate) fn settings(&self) -> &Proxy {
        match &self.route.kind {
            crate::config::Kind::Proxy(settings) => settings,
            #[allow(clippy::unreachable, reason = "a place is made of such a route and of no other")]
            _ => unreachable!("a route of another kind"),
        }
    }

    fn key(&self) -> usize {
        std::sync::Arc::as_ptr(&self.route).addr()
    }
}

/// The target to ask for: the same, or with the route's path replaced by the upstream's.
fn target(route: &Place, settings: &Proxy, request: &Request) -> String {
    let mut target = match &settings.path {
        Some(base) => {
            let behind = path::behind(request.path(), route.route.path.len());
            format!("{base}{behind}")
        }
        None => request.path().to_owned(),
    };
    if let Some(query) = request.query() {
        target.push('?');
        target.push_str(query);
    }
    target
}

/// What comes of something that is waited for elsewhere.
type Later<T> = Pin<Box<dyn Future<Output = T>>>;

/// The request on its way, polled beside the answer, so that neither waits for the other.
struct Sending {
    future: Option<Later<(Sink, Result<(), Failure>)>>,
    /// Sent: the connection's half is free again.
    sink: Option<Sink>,
    failed: Option<Failure>,
}

impl Sending {
    fn poll(&mut self, context: &mut Context<'_>) {
        if let Some(future) = &mut self.future
            && let Poll::Ready((sink, sent)) = future.as_mut().poll(context)
        {
            self.future = None;
            match sent {
                Ok(()) => self.sink = Some(sink),
                Err(why) => self.failed = Some(why),
            }
        }
    }
}

/// One exchange: the request goes out and the answer comes in.
struct Pump {
    source: Source,
    sending: Sending,
    /// When something was last sent or received.
    progress: Rc<Cell<Instant>>,
    span: Duration,
    scratch: Rc<RefCell<Scratch>>,
}

impl Pump {
    /// Waits for `what` as long as something moves, sending meanwhile.
    async fn wait<T>(
        sending: &mut Sending,
        progress: &Cell<Instant>,
        span: Duration,
        what: impl Future<Output = T>,
    ) -> Result<T, Failure> {
        let mut what = pin!(what);
        loop {
            let left = span.saturating_sub(progress.get().elapsed());
            let step = poll_fn(|context| {
                sending.poll(context);
                // The client's body has failed: there is nobody to answer to.
                if let Some(Failure::Client(_)) = &sending.failed {
                    return Poll::Ready(Err(sending.failed.take().unwrap_or(Failure::Closed)));
                }
                what.as_mut().poll(context).map(Ok)
            });
            // What is there counts, also if the time is over.
            if let Ok(done) = time::timeout(left, step).await {
                progress.set(Instant::now());
                return done;
            }
            // Unless something was sent meanwhile.
            if progress.get().elapsed() >= span {
                return Err(Failure::TooSlow(span));
            }
        }
    }

    async fn head(&mut self, asked: Asked) -> Result<Head, Failure> {
        let Pump { source, sending, progress, span, scratch } = self;
        let head = Pump::wait(sending, progress, *span, source.head(scratch, asked)).await?;
        // It may have answered before it closed; if it has not, why sending failed tells more.
        match (head, sending.failed.take()) {
            (Err(Failure::Unanswered(_)), Some(Failure::Unanswered(why))) => Err(Failure::Unanswered(why)),
            (head, _) => head,
        }
    }

    /// The next piece of the answer's body; `None` at its end.
    async fn next(mut self: Box<Pump>) -> Pumped {
        let Pump { source, sending, progress, span, scratch } = &mut *self;
        // Since the piece before, it was the client who was waited for.
        progress.set(Instant::now());
        let next = Pump::wait(sending, progress, *span, source.next(scratch)).await;
        let next = next.and_then(|next| next);
        (self, next)
    }

    /// The answer is complete: the connection is kept, if it can have another request.
    fn finish(self, home: &Rc<Proxies>, route: &Rc<Place>) {
        if let Some(connection) = self.sending.sink.and_then(|sink| Connection::join(self.source, sink)) {
            home.keep(route, connection);
        }
    }
}

/// A pump, and the next piece it gave.
type Pumped = (Box<Pump>, Result<Option<Chunk>, Failure>);

/// The body of an answer, as it comes.
struct Answering {
    ready: Option<Chunk>,
    next: Option<Later<Pumped>>,
    pump: Option<Pump>,
    home: (Rc<Proxies>, Rc<Place>),
    tally: Rc<Tally>,
}

impl Stream for Answering {
    type Item = Result<Chunk, Failure>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if let Some(chunk) = this.ready.take() {
            this.tally.add(chunk.len() as u64);
            return Poll::Ready(Some(Ok(chunk)));
        }
        if let Some(pump) = this.pump.take() {
            this.next = Some(Box::pin(Box::new(pump).next()));
        }
        let Some(next) = &mut this.next else { return Poll::Ready(None) };
        let (pump, next) = ready!(next.as_mut().poll(context));
        match next {
            Ok(Some(chunk)) => {
                this.next = Some(Box::pin(pump.next()));
                this.tally.add(chunk.len() as u64);
                Poll::Ready(Some(Ok(chunk)))
            }
            Ok(None) => {
                this.next = None;
                pump.finish(&this.home.0, &this.home.1);
                Poll::Ready(None)
            }
            Err(failure) => {
                this.next = None;
                this.tally.fault(&format!("{}: {failure}", this.home.1.settings().to));
                Poll::Ready(Some(Err(failure)))
            }
        }
    }
}

/// The body of an answer to HEAD, whose length is told and which is not sent.
struct Nothing;

impl Stream for Nothing {
    type Item = Chunk;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Chunk>> {
        Poll::Ready(None)
    }
}
