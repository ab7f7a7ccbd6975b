//! Passes requests to workers of an application's pool, and their answers back.
//!
//! A request is collected before a worker is taken, and an answer is drained as fast as the worker sends, so
//! that a slow client holds no worker. A worker that dies before it answers costs an idempotent request
//! nothing: another worker gets it. The choice of a worker, its life and the link to it are `ringroad_app`'s.

use crate::answer::{Answer, AnsweredBy, Tally, Watch};
use crate::app_repeat::{Repeats, is_idempotent};
use crate::config::{AppRoute, Route};
use crate::files::Files;
use crate::ordered;
use crate::page;
use crate::proxy::Proxies;
use crate::{app_goridge, app_http, app_ws};
use ringroad_app::{
    AnswerBody, Answered, Exchange, Failed, FileAnswer, Incoming, Links, Pool, Refused, Ticket,
};
use ringroad_engine::{spawn, spawn_blocking, time};
use ringroad_gate::client::told;
use ringroad_gate::flow::{self, Flow};
use ringroad_gate::upstream::{CollectError, Collected, Spool, SpoolReader, hash};
use ringroad_gate::words::{self, OF_PROXIES};
use ringroad_http::{
    Body, Chunk, ContentType, EncodeError, FieldBlock, Method, Piece, Request, RequestBody, Response, Status,
    Version,
};
use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Instant;

/// A body up to this goes with the head of its request.
const FIRST_BYTES: u64 = 128 << 10;

/// A route to an application, on one worker of the server.
pub(crate) struct AppPlace {
    pub(crate) route: Arc<Route>,
    pub(crate) pool: Arc<Pool>,
    /// The header line with the subject of a client's certificate.
    pub(crate) subject: Option<String>,
    /// The proxy to workers that speak HTTP.
    pub(crate) workers: app_http::Workers,
}

impl AppPlace {
    pub(crate) fn settings(&self) -> &AppRoute {
        match &self.route.kind {
            crate::config::Kind::App(settings) => settings,
            #[allow(clippy::unreachable, reason = "it is made of such a route and of no other")]
            _ => unreachable!("a route of another kind"),
        }
    }
}

/// Header lines of an answer that belong to a connection or are written by the library.
pub(crate) const OF_THE_HOP: &[&str] = &[
    "connection",
    "content-length",
    "date",
    "keep-alive",
    "proxy-connection",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Lines that an answer with a file does not have: those of a connection, and orders to this server.
const NOT_OF_THE_FILE: &[&str] = &[
    "connection",
    "content-length",
    "date",
    "keep-alive",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-accel-buffering",
    "x-accel-redirect",
    "x-sendfile",
];

pub(crate) fn is_one_of(name: &[u8], names: &[&str]) -> bool {
    names.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

/// The body of a request on its way to a worker.
pub(crate) enum Outgoing {
    /// All of it, small: with the head.
    Whole(Vec<u8>),
    /// All of it, in memory or a file: can be sent again.
    Kept(Rc<Collected>),
    /// Passed on as it arrives.
    Once(Option<RequestBody>),
}

/// The result of one attempt.
enum Attempt {
    Answered(Answered, Exchange, Arc<ringroad_app::Worker>),
    Failed(Failed, Arc<ringroad_app::Worker>),
    TooLate,
}

/// Answers a request with an application.
pub(crate) async fn answer(
    links: &Links,
    proxies: &Rc<Proxies>,
    place: &Rc<AppPlace>,
    request: &mut Request,
    asking: &flow::Context,
) -> Result<Answer, EncodeError> {
    let pool = Arc::clone(&place.pool);
    let begun = Instant::now();
    let method = request.method();
    if app_ws::is_offer(request)
        && let Some(answer) = app_ws::answer(links, place, request, asking).await?
    {
        return Ok(answer);
    }
    let body = std::mem::take(request.body());
    let route = place.settings();
    let size = body.bytes_left();
    let mut body = match &route.buffer {
        _ if body.is_empty() => Outgoing::Whole(Vec::new()),
        Some(limits) => match Collected::collect(body, limits).await {
            Ok(all) if all.is_in_memory() && all.size() <= FIRST_BYTES => {
                let all = Rc::new(all);
                match all.body().bytes(FIRST_BYTES as usize).await {
                    Ok(bytes) => Outgoing::Whole(bytes),
                    Err(_) => Outgoing::Kept(all),
                }
            }
            Ok(all) => Outgoing::Kept(Rc::new(all)),
            Err(CollectError::Body(why)) => {
                asking.client_fault(format!("receiving the request: {why}"));
                return Ok(page::refusal(why.status(), asking, "The request did not come whole."));
            }
            Err(CollectError::File(why)) => {
                asking.fault(format!("temporary file in {}: {why}", limits.folder.display()));
                return Ok(page::refusal(Status::SERVICE_UNAVAILABLE, asking, "The server has no room."));
            }
        },
        None => Outgoing::Once(Some(body)),
    };
    let body_bytes = match &body {
        Outgoing::Whole(bytes) => Some(bytes.len() as u64),
        Outgoing::Kept(all) => Some(all.size()),
        Outgoing::Once(_) => size,
    };
    let settings = pool.settings();
    let key = pool.sticks().then(|| key(&settings.dispatch, request, asking)).flatten();
    if pool.speaks_http() {
        return app_http::answer(proxies, place, body, key, &settings, request, asking, begun).await;
    }
    if pool.speaks_goridge() {
        return app_goridge::answer(place, body, key, &settings, request, asking).await;
    }
    let asked = Asked::of(place, request, asking);
    let incoming = asked.incoming(place, request, &settings.root_path, body_bytes);
    let mut repeats = Repeats::new(&pool, key, &settings, is_idempotent(method));
    let answered = loop {
        let ticket = match repeats.ticket().await {
            Ok(ticket) => ticket,
            Err(refused) => {
                count(&pool, 503, begun);
                return unavailable(&settings.name, settings.dev, &refused, asking);
            }
        };
        let inform = |status, lines: &[(Vec<u8>, Vec<u8>)]| {
            let lines = lines.iter().filter(|(name, _)| !is_one_of(name, OF_THE_HOP));
            if let Ok(lines) = FieldBlock::of(lines.map(|(name, value)| (name, value))) {
                request.inform(status, lines);
            }
        };
        match attempt(links, ticket, &incoming, &mut body, &settings, inform).await {
            Attempt::Answered(answered, exchange, worker) => break (answered, exchange, worker),
            Attempt::TooLate => {
                count(&pool, 504, begun);
                asking.fault(format!("app {}: no answer within {:?}", settings.name, settings.timeout));
                return Ok(page::refusal(Status::GATEWAY_TIMEOUT, asking, "The application took too long."));
            }
            Attempt::Failed(failed, worker) => {
                let at_hand = !matches!(body, Outgoing::Once(None));
                if at_hand && repeats.again(&failed, &worker, asking) {
                    continue;
                }
                return Ok(failure(&pool, &failed, worker.slot(), begun, asking));
            }
        }
    };
    let (answered, exchange, worker) = answered;
    asking.answered_by(AnsweredBy {
        address: format!("app:{}:{}", settings.name, worker.slot()).into(),
        took: begun.elapsed(),
    });
    count(&pool, answered.status, begun);
    hand_back(place, answered, exchange.into_body(), method, asking).await
}

/// What a worker is told of a request beside what the request itself says.
pub(crate) struct Asked {
    id: String,
    trusted: bool,
    is_secure: bool,
    client: Option<std::net::SocketAddr>,
    /// The subject of the client's certificate, which is this server's to tell.
    subject: Option<Box<str>>,
}

impl Asked {
    pub(crate) fn of(place: &AppPlace, request: &Request, asking: &flow::Context) -> Asked {
        let trusted = asking.comes_by_proxy();
        let is_secure = match told(request.headers(), "x-forwarded-proto") {
            Some(proto) if trusted && proto.trim().eq_ignore_ascii_case("https") => true,
            _ => request.scheme() == "https",
        };
        let tls = request.connection().and_then(|info| info.tls);
        let subject = tls.and_then(|tls| tls.client_subject.clone()).filter(|_| place.subject.is_some());
        let peer = request.peer_addr();
        let client = match (asking.client(), peer) {
            (Some(client), Some(peer)) if client != peer.ip() => Some(std::net::SocketAddr::new(client, 0)),
            (_, peer) => peer,
        };
        Asked { id: asking.id().to_owned(), trusted, is_secure, client, subject }
    }

    pub(crate) fn incoming<'r>(
        &'r self,
        place: &'r AppPlace,
        request: &'r Request,
        root_path: &'r str,
        body_bytes: Option<u64>,
    ) -> Incoming<'r> {
        let subject = place.subject.as_deref();
        let is_subject = |name: &[u8]| subject.is_some_and(|own| words::passes_for(name, own));
        let of_the_client = |name: &[u8]| OF_PROXIES.iter().any(|line| words::passes_for(name, line));
        let mut lines: Vec<(&[u8], &[u8])> = request
            .headers()
            .iter()
            .map(|field| (field.name, field.value))
            .filter(|(name, _)| (self.trusted || !of_the_client(name)) && !is_subject(name))
            .collect();
        if let (Some(name), Some(told)) = (subject, &self.subject) {
            lines.push((name.as_bytes(), told.as_bytes()));
        }
        Incoming {
            method: request.method_name(),
            path: request.path(),
            query: request.query(),
            version: match request.version() {
                Version::Http10 => "1.0",
                Version::Http2 => "2",
                _ => "1.1",
            },
            scheme: if self.is_secure { "https" } else { "http" },
            authority: request.authority().unwrap_or("localhost"),
            lines,
            client: self.client,
            // Only these programs are told it: it costs a call of the system.
            local: matches!(place.pool.settings().launch, ringroad_app::Launch::Php { .. })
                .then(|| request.local_addr())
                .flatten(),
            root_path,
            body_bytes,
            id: &self.id,
            socket: None,
        }
    }
}

/// Returns the key of a sticky dispatch.
pub(crate) fn key(
    dispatch: &ringroad_app::Dispatch,
    request: &Request,
    asking: &flow::Context,
) -> Option<u64> {
    use ringroad_app::Dispatch;
    match dispatch {
        Dispatch::Connection => request.peer_addr().map(|peer| hash(&peer)),
        Dispatch::Address => {
            let client = asking.client().or_else(|| Some(request.peer_addr()?.ip()))?;
            Some(hash(&client.to_canonical()))
        }
        Dispatch::Header(name) => request.headers().get(name).map(hash),
        Dispatch::Cookie(name) => {
            let cookies = request.headers().get_all("cookie");
            let mut pairs = cookies.flat_map(|line| line.split(|byte| *byte == b';'));
            pairs.find_map(|pair| {
                let (own, value) = pair.trim_ascii().split_at_checked(name.len())?;
                let value = value.strip_prefix(b"=")?;
                (own == name.as_bytes()).then(|| hash(value))
            })
        }
        Dispatch::Idle | Dispatch::Turns | Dispatch::Least => None,
    }
}

async fn attempt(
    links: &Links,
    ticket: Ticket,
    incoming: &Incoming<'_>,
    body: &mut Outgoing,
    settings: &ringroad_app::Settings,
    inform: impl FnMut(u16, &[(Vec<u8>, Vec<u8>)]),
) -> Attempt {
    let worker = Arc::clone(ticket.worker());
    let (first, whole): (&[u8], bool) = match &*body {
        Outgoing::Whole(bytes) => (bytes, true),
        Outgoing::Kept(_) | Outgoing::Once(_) => (&[], false),
    };
    let exchange = match links.exchange(ticket, incoming, first, whole) {
        Ok(exchange) => exchange,
        Err(failed) => return Attempt::Failed(failed, worker),
    };
    let rest = match body {
        Outgoing::Whole(_) => None,
        Outgoing::Kept(all) => Some(all.body()),
        Outgoing::Once(body) => body.take(),
    };
    if let Some(rest) = rest {
        let sending = exchange.send(rest);
        spawn(async move {
            // The client's failure ends its connection; the worker was told.
            let _ = sending.await;
        })
        .detach();
    }
    match time::timeout(settings.timeout, exchange.head(inform)).await {
        Ok(Ok(answered)) => Attempt::Answered(answered, exchange, worker),
        Ok(Err(failed)) => Attempt::Failed(failed, worker),
        Err(_) => {
            exchange.too_late(settings.kill_after);
            Attempt::TooLate
        }
    }
}

/// Returns the answer, or the file that it orders this server to send.
pub(crate) async fn with_ordered_file(
    files: &Files,
    route: &Route,
    settings: &AppRoute,
    flow: &Flow,
    answer: Answer,
) -> Result<Answer, EncodeError> {
    let all = answer.response.headers();
    // Those of the route are added to the file's answer as to any other.
    let own = |name: &[u8]| route.steps.lines().any(|(own, _)| name.eq_ignore_ascii_case(own.as_bytes()));
    let lines: Vec<_> =
        all.filter(|line| !own(line.name)).map(|line| (line.name.to_vec(), line.value.to_vec())).collect();
    let (types, folders) = (&settings.types, &settings.sendfile);
    let file = ordered::file_instead(files, route, types, folders, flow, &lines, NOT_OF_THE_FILE).await;
    file.unwrap_or(Ok(answer))
}

pub(crate) fn count(pool: &Pool, status: u16, begun: Instant) {
    let counts = pool.counts();
    if let Some(class) = counts.answers.get(usize::from(status / 100)) {
        class.fetch_add(1, Ordering::Relaxed);
    }
    counts.took.add(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
}

/// No worker: 503 with the time to come again. In development a page that reloads itself shows why.
pub(crate) fn unavailable(
    name: &str,
    dev: bool,
    refused: &Refused,
    asking: &flow::Context,
) -> Result<Answer, EncodeError> {
    asking.fault(format!("app {name}: {}", refused.why));
    let seconds = refused.seconds().to_string();
    let answer = match (&refused.trouble, dev) {
        (Some(trouble), true) => broken(name, trouble, asking),
        (Some(_), false) => {
            page::refusal(Status::SERVICE_UNAVAILABLE, asking, "The application does not start.")
        }
        (None, _) => page::refusal(Status::SERVICE_UNAVAILABLE, asking, "The application is busy."),
    };
    answer.with(|response| response.header("Retry-After", seconds))
}

/// Returns what the application printed last, as a page that looks again each second.
fn broken(name: &str, trouble: &str, asking: &flow::Context) -> Answer {
    let status = Status::SERVICE_UNAVAILABLE;
    if !asking.html {
        let answer = Answer::of(format!("The application {name} does not start:\n\n{trouble}\n"));
        return Answer::plain(answer.response.status(status).content_type(ContentType::Text));
    }
    let content = format!(
        "<main class=\"say\">\n<h1>{} does not start</h1>\n<pre>{}</pre>\n<p>This page reloads when a file has \
         changed.</p>\n</main>\n",
        page::escape(name),
        trouble.lines().map(page::escape).collect::<Vec<_>>().join("\n")
    );
    let document = page::document(&format!("{} does not start", page::escape(name)), &content);
    page::html(status, document)
        .and_then(|answer| answer.with(|response| response.header("Refresh", "1")))
        .unwrap_or_else(|_| Answer::plain(page::broken()))
}

pub(crate) fn failure(
    pool: &Pool,
    failed: &Failed,
    slot: u32,
    begun: Instant,
    asking: &flow::Context,
) -> Answer {
    let settings = pool.settings();
    let (status, what) = match failed {
        Failed::Reset { unhandled: false, .. } => (Status::INTERNAL_SERVER_ERROR, "The application failed."),
        _ => (Status::BAD_GATEWAY, "The application did not answer."),
    };
    count(pool, status.code(), begun);
    let told = failed.to_string();
    asking.fault(format!("app {}[{slot}]: {}", settings.name, told.lines().last().unwrap_or_default()));
    let shown = match failed {
        Failed::Reset { why, unhandled: false } => why,
        Failed::Bad(_) => &told,
        _ => return page::refusal(status, asking, what),
    };
    if !settings.dev {
        return page::refusal(status, asking, what);
    }
    let answer = Answer::of(format!("{shown}\n"));
    Answer::plain(answer.response.status(status).content_type(ContentType::Text))
}

/// Returns a worker's answer as ours.
pub(crate) async fn hand_back(
    place: &Rc<AppPlace>,
    answered: Answered,
    rest: AnswerBody,
    method: Method,
    asking: &flow::Context,
) -> Result<Answer, EncodeError> {
    let status = Status::new(answered.status).unwrap_or(Status::BAD_GATEWAY);
    let declared = declared(&answered.lines);
    let respond = |body: Body| -> Result<Response, EncodeError> {
        let mut response = Response::new(body).status(status);
        let own = || place.route.steps.lines();
        for (name, value) in &answered.lines {
            let replaced = own().any(|(own, _)| name.eq_ignore_ascii_case(own.as_bytes()));
            if !replaced && !is_one_of(name, OF_THE_HOP) {
                response = response.header(name, value)?;
            }
        }
        for (name, value) in own() {
            response = response.header(name, value)?;
        }
        words::with_upgrade(response, answered.lines.iter().map(|(name, value)| (&**name, &**value)))
    };
    if let Some(file) = answered.file {
        let opened = spawn_blocking(move || open(&file)).await;
        rest.opened();
        return match opened {
            Ok(Ok((file, range))) => Ok(Answer::plain(respond(Body::file(file, range))?)),
            Ok(Err(why)) => {
                asking.fault(why);
                Ok(page::refusal(Status::INTERNAL_SERVER_ERROR, asking, "The application failed."))
            }
            Err(_) => Ok(page::refusal(Status::SERVICE_UNAVAILABLE, asking, "The server is busy.")),
        };
    }
    if method == Method::Head || status.forbids_body() {
        // The worker may go on with a body that nothing wants.
        let body = match declared {
            Some(bytes) if method == Method::Head => Body::left_out(Some(bytes)),
            // An application that leaves the body of HEAD out has not told how long that of GET is.
            _ if method == Method::Head && (!answered.complete || answered.body.is_empty()) => {
                Body::left_out(None)
            }
            _ if answered.body.is_empty() => Body::empty(),
            _ => Body::left_out(Some(answered.body.len() as u64)),
        };
        return Ok(Answer::plain(respond(body)?));
    }
    if answered.complete {
        return Ok(Answer::plain(respond(Body::from(answered.body.clone()))?));
    }
    let tally = Tally::new();
    let first = (!answered.body.is_empty()).then(|| answered.body.clone());
    let Some(limits) = &place.settings().buffer else {
        let stream = Direct { first, body: rest, tally: Rc::clone(&tally) };
        let body = match declared {
            Some(bytes) => Body::stream_of(bytes, stream),
            None => Body::stream(stream),
        };
        return Ok(Answer { response: respond(body)?, watch: Watch::Stream(tally) });
    };
    let spool = Spool::new(limits.clone());
    let trailers = Trailers::default();
    let stream = Drained { reader: spool.reader(), trailers: Rc::clone(&trailers), over: false };
    let body = match declared {
        Some(bytes) => Body::stream_of(bytes, stream),
        None => Body::stream(stream),
    };
    spawn(drain(first, rest, declared, spool, trailers, Rc::clone(&tally))).detach();
    Ok(Answer { response: respond(body)?, watch: Watch::Stream(tally) })
}

/// Returns the length that a worker announced, if any.
fn declared(lines: &[(Vec<u8>, Vec<u8>)]) -> Option<u64> {
    let (_, value) = lines.iter().find(|(name, _)| name.eq_ignore_ascii_case(b"content-length"))?;
    str::from_utf8(value).ok()?.trim().parse().ok()
}

fn open(file: &FileAnswer) -> Result<(Arc<std::fs::File>, std::ops::Range<u64>), String> {
    let told = |why: std::io::Error| format!("open, on {}: {why}", file.path.display());
    let opened = ringroad_host::input::open(&file.path).map_err(told)?;
    let facts = opened.metadata().map_err(told)?;
    let begin = file.offset.min(facts.len());
    let end = file.length.map_or(facts.len(), |length| begin.saturating_add(length).min(facts.len()));
    Ok((Arc::new(opened), begin..end))
}

/// Takes an answer from its worker as fast as that sends. A client that is gone ends it. `declared` bytes are
/// all of it, whatever the worker does afterwards.
async fn drain(
    first: Option<Vec<u8>>,
    mut body: AnswerBody,
    declared: Option<u64>,
    spool: Rc<Spool>,
    trailers: Trailers,
    tally: Rc<Tally>,
) {
    let mut left = declared.unwrap_or(u64::MAX);
    let mut piece = first.map(Chunk::from);
    // A stream of events may be silent for as long as it likes; its client's end ends it.
    loop {
        if let Some(chunk) = piece.take() {
            left = left.saturating_sub(chunk.len() as u64);
            if spool.write(chunk).await.is_err() {
                return;
            }
        }
        if left == 0 {
            spool.end(Ok(()));
            // The worker is not told to give up what it has nearly finished.
            while let Some(Ok(_)) = body.next().await {}
            return;
        }
        match spool.unless_abandoned(body.next()).await {
            None => return,
            Some(Some(Ok(Piece::Data(chunk)))) => piece = Some(chunk),
            Some(Some(Ok(Piece::Trailers(lines)))) => *trailers.borrow_mut() = Some(lines),
            Some(Some(Err(why))) => {
                tally.fault(&why);
                return spool.end(Err(why));
            }
            Some(None) => return spool.end(Ok(())),
        }
    }
}

/// Trailers of an answer that is drained, when they have come.
type Trailers = Rc<RefCell<Option<FieldBlock>>>;

/// What was drained, with the trailers behind it.
struct Drained {
    reader: SpoolReader,
    trailers: Trailers,
    over: bool,
}

impl futures_core::Stream for Drained {
    type Item = Result<Piece, String>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.over {
            return Poll::Ready(None);
        }
        let next = ready!(Pin::new(&mut self.reader).poll_next(context));
        Poll::Ready(match next {
            Some(Ok(chunk)) => Some(Ok(Piece::Data(chunk))),
            Some(Err(why)) => Some(Err(why)),
            None => {
                self.over = true;
                self.trailers.take().map(|lines| Ok(Piece::Trailers(lines)))
            }
        })
    }
}

/// An answer as it comes.
struct Direct {
    first: Option<Vec<u8>>,
    body: AnswerBody,
    tally: Rc<Tally>,
}

impl futures_core::Stream for Direct {
    type Item = Result<Piece, String>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Piece::Data(first.into()))));
        }
        let next = ready!(Pin::new(&mut self.body).poll_next(context));
        if let Some(Err(why)) = &next {
            self.tally.fault(why);
        }
        Poll::Ready(next)
    }
}
