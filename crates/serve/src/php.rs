//! PHP over FastCGI: the file that answers a request, the variables that PHP gets, and the conversion of its
//! answer.
//!
//! A file is executed only if it is beneath the route's folder, its name ends in `.php`, and it was found
//! there. So `/upload/image.jpg/x.php` never executes a picture, whatever PHP's setting `cgi.fix_pathinfo`
//! is. Everything else is sent as files are, but never the source of a script.
//!
//! Start reading at [`Php::answer`]. Connections and records are in `ringroad_app`.

use crate::answer::{Answer, AnsweredBy, Context, Tally, Watch};
use crate::app_parting::end_with_code;
use crate::app_repeat::{Repeats, is_idempotent, repeatable};
use crate::config::{Kind, PhpRoute, PhpTo, Route, Try};
use crate::endpoint;
use crate::event::{Event, EventSink};
use crate::files::{self, Files, Refused, Thing};
use crate::ordered;
use crate::page;
use futures_core::Stream;
use ringroad_app::{
    Failed, FastCgi, FastCgiAnswer, FastCgiBody, FastCgiFailed, FastCgiStream, Pool, Responder, Ticket,
};
use ringroad_engine::spawn;
use ringroad_gate::flow::{Flow, host};
use ringroad_gate::path::Spellings;
use ringroad_gate::upstream::{CollectError, Collected, Spool, hash};
use ringroad_gate::words::{self, OF_PROXIES};
use ringroad_http::{Body, EncodeError, Method, Request, RequestBody, Response, SentSoFar, Status, Version};
use ringroad_wire::fcgi::{Head, Params};
use std::borrow::Cow;
use std::cell::RefCell;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// A body up to this size is sent with the head of its request.
const FIRST_BYTES: u64 = 128 << 10;

/// Header lines that have variables of their own, belong to the connection, or must not become a variable:
/// `Proxy` would be taken for the setting HTTP_PROXY (CVE-2016-5385).
const NOT_VARIABLES: &[&str] = &[
    "connection",
    "content-length",
    "content-type",
    "host",
    "keep-alive",
    "proxy",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Header lines of an answer that belong to a connection, that the library writes, or that are commands to
/// this server.
const NOT_HANDED_BACK: &[&str] = &[
    "connection",
    "content-length",
    "date",
    "keep-alive",
    "proxy-connection",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-accel-buffering",
    "x-accel-charset",
    "x-accel-expires",
    "x-accel-limit-rate",
    "x-accel-redirect",
    "x-sendfile",
];

fn is_one_of(name: &[u8], names: &[&str]) -> bool {
    names.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

/// A route to PHP, on one thread of the server.
pub(crate) struct Php {
    route: Arc<Route>,
    to: To,
    /// The header line for the subject of a client's certificate.
    subject: Option<String>,
    events: EventSink,
    /// The route's folder without links, and the number of the open folder. PHP's caches use names, so a
    /// deployment that changes a link must give PHP other names.
    place: RefCell<(u64, PathBuf)>,
}

/// The executor of scripts.
enum To {
    /// A FastCGI server, such as php-fpm.
    Server(Arc<Responder>),
    /// Processes that this server started.
    App(Arc<Pool>),
}

/// The executor of the script of one request, with its retries.
enum Asks<'p> {
    Server(&'p Arc<Responder>),
    App(&'p Pool, Repeats<'p>),
}

/// Why no script of `try_files` is executed.
enum NoScript {
    /// The list ends with this status.
    Status(Status),
    /// It is unknown whether the script exists, or it may not be read.
    Refused(Refused),
}

/// The target of a request's path.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    /// A script: its path beneath the folder, and the path info after it.
    Script(Vec<u8>, Vec<u8>),
    /// A file that is sent unchanged; a missing file is also handled there.
    File,
    /// A folder, requested without the slash at its end.
    Folder,
    /// Nothing that may be sent.
    Missing,
}

/// The complete body of a request.
enum Kept {
    Whole(Vec<u8>),
    Collected(Rc<Collected>),
}

impl Kept {
    fn size(&self) -> u64 {
        match self {
            Kept::Whole(bytes) => bytes.len() as u64,
            Kept::Collected(all) => all.size(),
        }
    }

    fn body(&self) -> FastCgiBody {
        match self {
            Kept::Whole(bytes) => FastCgiBody::Whole(bytes.clone()),
            Kept::Collected(all) => FastCgiBody::Pieces(all.body()),
        }
    }
}

/// Returns whether a name is that of a script.
fn is_script(name: &[u8]) -> bool {
    name.len() > 4 && name.ends_with(b".php")
}

/// Returns whether a file may hold PHP source, even if it is not executed here: such a file is never sent.
/// Copies such as `config.php.bak` are included.
pub(crate) fn is_source(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_ascii_lowercase();
    let mut endings = name.split(|byte| *byte == b'.').skip(1);
    endings.any(|ending| ending.starts_with(b"php") || matches!(ending, b"pht" | b"phtml" | b"phar"))
}

impl Php {
    pub(crate) fn new(
        route: &Arc<Route>,
        pool: Option<Arc<Pool>>,
        subject: Option<String>,
        events: EventSink,
    ) -> Option<Php> {
        let to = match &route.kind {
            Kind::Php(PhpRoute { to: PhpTo::Server(responder), .. }) => To::Server(Arc::clone(responder)),
            _ => To::App(pool?),
        };
        let place = RefCell::new((0, PathBuf::new()));
        Some(Php { route: Arc::clone(route), to, subject, events, place })
    }

    fn settings(&self) -> &PhpRoute {
        match &self.route.kind {
            Kind::Php(settings) => settings,
            #[allow(clippy::unreachable, reason = "it is made of such a route and of no other")]
            _ => unreachable!("a route of another kind"),
        }
    }

    /// Answers a request.
    pub(crate) async fn answer(
        &self,
        connections: &Rc<FastCgi>,
        files: &Files,
        flow: &mut Flow,
    ) -> Result<Answer, EncodeError> {
        let settings = self.settings();
        let root = &settings.files.root;
        files::look(root, files::second(flow.context.began));
        let spelled = match endpoint::spelled(flow) {
            Ok(spelled) => spelled,
            Err(refused) => return Ok(*refused),
        };
        let relative = spelled.decoded.get(flow.context.below()..).unwrap_or_default().to_vec();
        let odd = spelled.hides_slash;
        let prefix = spelled.decoded.get(..flow.context.below()).unwrap_or_default().to_vec();
        drop(spelled);
        let found = if odd { Ok(Place::Missing) } else { self.place(&relative).await };
        let found = match found {
            Ok(found) => found,
            Err(why) => return Ok(files::refusal(why, &flow.context)),
        };
        let (script, info, query) = match found {
            Place::Script(script, info) => (script, info, None),
            Place::File => return files.answer(&self.route, &settings.files, flow).await,
            Place::Folder => {
                let status = page::moved(flow.request.method());
                return Ok(Answer::plain(Response::redirect(status, &flow.place_with_slash())?));
            }
            Place::Missing => match self.fall_back(flow).await {
                Ok(Some(found)) => found,
                Ok(None) => return Ok(page::missing(&flow.context)),
                Err(NoScript::Status(status)) => {
                    return Ok(page::refusal(status, &flow.context, "There is nothing at this address."));
                }
                Err(NoScript::Refused(why)) => return Ok(files::refusal(why, &flow.context)),
            },
        };
        let name = [&prefix[..], &script[..]].concat();
        self.run(connections, files, flow, &script, &name, &info, query).await
    }

    /// Returns the target of a path beneath the folder.
    async fn place(&self, relative: &[u8]) -> Result<Place, Refused> {
        let settings = self.settings();
        let root = &settings.files.root;
        if relative.is_empty() || relative.ends_with(b"/") {
            for name in &settings.index {
                let path = [relative, name.as_bytes()].concat();
                if !shows(&path, settings.files.hidden) || !files::is_file(root, &path).await? {
                    continue;
                }
                return Ok(if is_script(&path) { Place::Script(path, Vec::new()) } else { Place::File });
            }
            // Path info may end in a slash.
            return Ok(self.split(relative).await?.unwrap_or(Place::Missing));
        }
        if !shows(relative, settings.files.hidden) {
            return Ok(Place::Missing);
        }
        if let Some(place) = self.split(relative).await? {
            return Ok(place);
        }
        if is_source(relative) {
            return Ok(Place::Missing);
        }
        Ok(match files::look_up(root, relative).await? {
            Some(Thing::File) => Place::File,
            Some(Thing::Folder) => Place::Folder,
            None => Place::Missing,
        })
    }

    /// Returns the script in a path, with the path info after it: the first part that ends in `.php` and is a
    /// file.
    async fn split(&self, relative: &[u8]) -> Result<Option<Place>, Refused> {
        let settings = self.settings();
        let slashes = relative.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        for end in slashes.chain([relative.len()]) {
            let (path, info) = relative.split_at(end);
            if is_script(path)
                && shows(path, settings.files.hidden)
                && files::is_file(&settings.files.root, path).await?
            {
                return Ok(Some(Place::Script(path.to_vec(), info.to_vec())));
            }
        }
        Ok(None)
    }

    /// Returns the first existing entry of `try_files`: a script, with the query of the entry.
    async fn fall_back(
        &self,
        flow: &mut Flow,
    ) -> Result<Option<(Vec<u8>, Vec<u8>, Option<String>)>, NoScript> {
        for one in &self.settings().try_files {
            let template = match one {
                Try::Status(status) => return Err(NoScript::Status(*status)),
                Try::Path(template) => template,
            };
            let Ok(target) = String::from_utf8(template.render(flow)) else { continue };
            let (path, query) = match target.split_once('?') {
                Some((path, query)) => (path, Some(query.to_owned())),
                None => (target.as_str(), None),
            };
            let path = format!("/{}", path.trim_start_matches('/'));
            let Ok(spelled) = Spellings::of(&path) else { continue };
            let relative = spelled.decoded.get(1..).unwrap_or_default();
            if spelled.hides_slash {
                continue;
            }
            let place = self.place(relative).await.map_err(NoScript::Refused)?;
            if let Place::Script(script, info) = place {
                return Ok(Some((script, info, query)));
            }
        }
        Ok(None)
    }

    /// Returns the folder without links.
    fn folder(&self) -> PathBuf {
        let root = &self.settings().files.root;
        let mut place = self.place.borrow_mut();
        if place.0 != root.id() {
            // It was opened a moment ago, so the kernel has its path cached.
            *place = (root.id(), root.path().canonicalize().unwrap_or_else(|_| root.path().to_owned()));
        }
        place.1.clone()
    }

    /// Executes a script.
    #[allow(clippy::too_many_arguments, reason = "one request's parts, each used once")]
    async fn run(
        &self,
        connections: &Rc<FastCgi>,
        files: &Files,
        flow: &mut Flow,
        script: &[u8],
        name: &[u8],
        info: &[u8],
        query: Option<String>,
    ) -> Result<Answer, EncodeError> {
        flow.see_client();
        let settings = self.settings();
        let Flow { request, context } = &mut *flow;
        let body = std::mem::take(request.body());
        let body = match collect(body, settings, context).await {
            Ok(body) => body,
            Err(refused) => return Ok(*refused),
        };
        let params = self.params(flow, script, name, info, query.as_deref(), body.size());
        let (method, begun) = (flow.request.method(), Instant::now());
        let asked = self.ask(connections, flow, &params, &body).await;
        let (head, answer, address) = match asked {
            Ok(asked) => asked,
            Err(refused) => return refused,
        };
        flow.context.answered_by(AnsweredBy { address: address.into(), took: begun.elapsed() });
        let (types, folders) = (&settings.files.types, &settings.sendfile);
        let ordered =
            ordered::file_instead(files, &self.route, types, folders, flow, &head.lines, NOT_HANDED_BACK)
                .await;
        if let Some(sent) = ordered {
            return sent;
        }
        self.hand_back(head, answer, method, &flow.context)
    }

    /// Sends a request to the executor, and waits for the head of its answer.
    async fn ask(
        &self,
        connections: &Rc<FastCgi>,
        flow: &Flow,
        params: &Params,
        body: &Kept,
    ) -> Result<(Head, FastCgiAnswer, String), Result<Answer, EncodeError>> {
        let context = &flow.context;
        let idempotent = is_idempotent(flow.request.method());
        let mut asks = match &self.to {
            To::Server(responder) => Asks::Server(responder),
            To::App(pool) => {
                Asks::App(pool, Repeats::new(pool, key(pool, flow), &pool.settings(), idempotent))
            }
        };
        let mut repeated = false;
        loop {
            let (responder, ticket, of) = match &asks {
                Asks::Server(responder) => (Arc::clone(responder), None, None),
                Asks::App(pool, repeats) => match repeats.ticket().await {
                    Ok(ticket) => {
                        let worker = Arc::clone(ticket.worker());
                        let Some(responder) = worker.responder() else {
                            return Err(Ok(page::refusal(
                                Status::BAD_GATEWAY,
                                context,
                                "The application does not speak FastCGI.",
                            )));
                        };
                        worker.set_request(context.id());
                        (Arc::clone(responder), Some(ticket), Some(worker))
                    }
                    Err(refused) => {
                        let name = &pool.settings().name;
                        context.fault(format!("app {name}: {}", refused.why));
                        let seconds = refused.seconds().to_string();
                        let answer =
                            page::refusal(Status::SERVICE_UNAVAILABLE, context, "The application is busy.");
                        return Err(answer.with(|response| response.header("Retry-After", seconds)));
                    }
                },
            };
            let address = match (&asks, &of) {
                (Asks::App(pool, _), Some(worker)) => {
                    format!("app:{}:{}", pool.settings().name, worker.slot())
                }
                _ => responder.address().to_string(),
            };
            let log = self.log(&address, context);
            let counted = ticket.as_ref().map(Ticket::begun);
            let asked = connections.exchange(&responder, params, body.body(), repeated, ticket, log).await;
            let (why, was_kept) = match asked {
                Ok((head, answer)) => {
                    self.count(head.status, counted);
                    return Ok((head, answer, address));
                }
                Err(failed) => failed,
            };
            // Repeated on a new connection if a kept one turned out closed, or on another process if ours
            // died. A server that is not ours may close a new connection for a reason that a repeat does not
            // change.
            let is_ours = of.is_some();
            let failed = match &why {
                FastCgiFailed::NotBegun(why) => {
                    Some(Failed::Reset { why: (*why).to_owned(), unhandled: true })
                }
                FastCgiFailed::Closed(SentSoFar::Nothing) => Some(Failed::Died { unseen: true }),
                FastCgiFailed::Stray(_) if was_kept => Some(Failed::Died { unseen: false }),
                FastCgiFailed::Closed(_) if was_kept || is_ours => Some(Failed::Died { unseen: false }),
                FastCgiFailed::Connect(_) if is_ours => Some(Failed::Died { unseen: true }),
                _ => None,
            };
            let again = match (&failed, &mut asks, &of) {
                (None, ..) => false,
                (Some(failed), Asks::App(_, repeats), Some(worker)) if was_kept => {
                    repeats.again_there(failed, worker, context)
                }
                (Some(failed), Asks::App(_, repeats), Some(worker)) => repeats.again(failed, worker, context),
                (Some(failed), ..) => !repeated && repeatable(failed, true, idempotent).is_some(),
            };
            if again {
                repeated = true;
                continue;
            }
            context.fault(format!("{address}: {why}"));
            let (status, what) = match &why {
                FastCgiFailed::ConnectTimeout(_) | FastCgiFailed::TooSlow(_) => {
                    (Status::GATEWAY_TIMEOUT, "The application did not answer in time.")
                }
                FastCgiFailed::NoRoom(_) | FastCgiFailed::NotBegun(_) => {
                    (Status::SERVICE_UNAVAILABLE, "The application is busy.")
                }
                FastCgiFailed::Connect(_) => (Status::BAD_GATEWAY, "The application cannot be reached."),
                FastCgiFailed::Body(_) => {
                    (Status::SERVICE_UNAVAILABLE, "The server has no room for this request now.")
                }
                _ => (Status::BAD_GATEWAY, "The application did not answer properly."),
            };
            self.count(status.code(), counted);
            let mut refusal = page::refusal(status, context, what);
            if status == Status::SERVICE_UNAVAILABLE {
                // The name and the value have no control characters.
                let _ = refusal.response.set_header("Retry-After", "1");
            }
            return Err(Ok(refusal));
        }
    }

    fn count(&self, status: u16, begun: Option<Instant>) {
        if let (To::App(pool), Some(begun)) = (&self.to, begun) {
            crate::app::count(pool, status, begun);
        }
    }

    /// Returns the receiver for lines of STDERR.
    fn log(&self, address: &str, context: &Context) -> Rc<dyn Fn(String)> {
        let (events, label) = (self.events.clone(), format!("php {address} {}", context.id()));
        Rc::new(move |line| events.report(Event::App(format!("{label}: {line}"))))
    }

    /// Returns the variables of a request (RFC 3875 §4.1, and those that PHP requires).
    fn params(
        &self,
        flow: &Flow,
        script: &[u8],
        name: &[u8],
        info: &[u8],
        query: Option<&str>,
        body_bytes: u64,
    ) -> Params {
        let Flow { request, context } = flow;
        let settings = self.settings();
        let folder = self.folder();
        let root = folder.as_os_str().as_bytes();
        let below = |path: &[u8]| [root, b"/", path].concat();
        let target = flow.target();
        let https = flow.scheme() == "https";
        let mut params = Params::new();
        params.push("SCRIPT_FILENAME", below(script));
        params.push("SCRIPT_NAME", name);
        params.push("DOCUMENT_ROOT", root);
        params.push("DOCUMENT_URI", [name, info].concat());
        params.push("REQUEST_URI", target.as_bytes());
        params.push("REQUEST_METHOD", request.method_name());
        params.push("QUERY_STRING", query.or(request.query()).unwrap_or_default());
        if !info.is_empty() {
            params.push("PATH_INFO", info);
            params.push("PATH_TRANSLATED", below(info.strip_prefix(b"/").unwrap_or(info)));
        }
        let headers = request.headers();
        params.push("CONTENT_TYPE", headers.get("content-type").unwrap_or_default());
        let length = if body_bytes > 0 || headers.get("content-length").is_some() {
            body_bytes.to_string()
        } else {
            String::new()
        };
        params.push("CONTENT_LENGTH", length);
        params.push(
            "SERVER_PROTOCOL",
            match request.version() {
                Version::Http10 => "HTTP/1.0",
                Version::Http2 => "HTTP/2.0",
                _ => "HTTP/1.1",
            },
        );
        params.push("REQUEST_SCHEME", flow.scheme());
        if https {
            params.push("HTTPS", "on");
        }
        params.push("GATEWAY_INTERFACE", "CGI/1.1");
        params.push("SERVER_SOFTWARE", concat!("ringroad/", env!("CARGO_PKG_VERSION")));
        // php-cgi refuses requests without it (cgi.force_redirect).
        params.push("REDIRECT_STATUS", "200");
        let authority = request.authority().unwrap_or("localhost");
        let server = host(authority);
        let port = authority.get(server.len()..).and_then(|rest| rest.strip_prefix(':'));
        params.push("SERVER_NAME", server);
        params.push("SERVER_PORT", port.unwrap_or(if https { "443" } else { "80" }));
        params.push("HTTP_HOST", authority);
        if let Some(server) = request.local_addr() {
            params.push("SERVER_ADDR", server.ip().to_canonical().to_string());
        }
        let peer = request.peer_addr();
        let client = match (context.client(), peer) {
            (Some(client), Some(peer)) if client != peer.ip().to_canonical() => {
                Some(SocketAddr::new(client, 0))
            }
            (_, peer) => peer,
        };
        if let Some(client) = client {
            params.push("REMOTE_ADDR", client.ip().to_canonical().to_string());
            params.push("REMOTE_PORT", client.port().to_string());
        }
        self.lines(flow, &mut params);
        for (name, value) in &settings.params {
            params.push(name, value);
        }
        params
    }

    /// Adds header lines as variables. Several lines of one name are joined, as lists are. A name with `_` or
    /// `.` would become the same variable as one with `-`, so lines are dropped if their name has characters
    /// other than letters, digits and `-`.
    fn lines(&self, flow: &Flow, params: &mut Params) {
        let Flow { request, context } = flow;
        let subject = self.subject.as_deref();
        let is_subject = |name: &[u8]| subject.is_some_and(|own| words::passes_for(name, own));
        let is_plain = |name: &[u8]| name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-');
        let told = request.connection().and_then(|info| info.tls).and_then(|tls| tls.client_subject.clone());
        let mut variables: Vec<(Vec<u8>, Cow<'_, [u8]>)> = Vec::new();
        let handed_on = |name: &[u8]| {
            is_plain(name)
                && !is_subject(name)
                && !is_one_of(name, NOT_VARIABLES)
                && (context.comes_by_proxy() || !is_one_of(name, OF_PROXIES))
        };
        for field in request.headers().iter().filter(|field| handed_on(field.name)) {
            let name = variable(field.name);
            match variables.iter_mut().find(|(known, _)| *known == name) {
                Some((_, value)) => {
                    let between: &[u8] = if name == b"HTTP_COOKIE" { b"; " } else { b", " };
                    value.to_mut().extend_from_slice(between);
                    value.to_mut().extend_from_slice(field.value);
                }
                None => variables.push((name, Cow::Borrowed(field.value))),
            }
        }
        for (name, value) in &variables {
            params.push(name, value);
        }
        if let (Some(name), Some(told)) = (subject, &told) {
            params.push(variable(name.as_bytes()), told.as_bytes());
        }
    }

    /// Converts PHP's answer.
    fn hand_back(
        &self,
        head: Head,
        mut answer: FastCgiAnswer,
        method: Method,
        context: &Context,
    ) -> Result<Answer, EncodeError> {
        let status = Status::new(head.status).unwrap_or(Status::BAD_GATEWAY);
        let line = |name: &str| {
            let mut lines = head.lines.iter();
            lines.find(|(own, _)| own.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| value)
        };
        let declared: Option<u64> =
            line("content-length").and_then(|value| str::from_utf8(value).ok()?.trim().parse().ok());
        let unbuffered = line("x-accel-buffering").is_some_and(|value| value.eq_ignore_ascii_case(b"no"));
        let respond = |body: Body| -> Result<Response, EncodeError> {
            let mut response = Response::new(body).status(status);
            let own = || self.route.steps.lines();
            for (name, value) in &head.lines {
                let replaced = own().any(|(own, _)| name.eq_ignore_ascii_case(own.as_bytes()));
                if !replaced && !is_one_of(name, NOT_HANDED_BACK) {
                    response = response.header(name, value)?;
                }
            }
            for (name, value) in own() {
                response = response.header(name, value)?;
            }
            words::with_upgrade(response, head.lines.iter().map(|(name, value)| (&**name, &**value)))
        };
        if method == Method::Head || status.forbids_body() {
            let body = match declared {
                Some(bytes) if method == Method::Head => Body::left_out(Some(bytes)),
                _ if method == Method::Head => Body::left_out(None),
                _ => Body::empty(),
            };
            // The rest is read, so that the process and its connection become free.
            spawn(async move { while let Ok(Some(_)) = answer.next().await {} }).detach();
            return Ok(Answer::plain(respond(body)?));
        }
        let (first, complete) = match answer.ready() {
            Ok(ready) => ready,
            Err(why) => {
                context.fault(format!("the answer: {why}"));
                let what = "The application did not answer properly.";
                return Ok(page::refusal(Status::BAD_GATEWAY, context, what));
            }
        };
        // A wrong length would cut the connection. The answer is complete here, so it can be counted.
        if complete {
            return Ok(Answer::plain(respond(Body::from(first))?));
        }
        let parting = answer.parting();
        let tally = Tally::new();
        let counted = Rc::clone(&tally);
        let stream = answer.into_stream(first, move |why| counted.fault(why));
        let body = match &self.settings().buffer {
            Some(limits) if !unbuffered => {
                let spool = Spool::new(limits.clone());
                let reader = spool.reader();
                spawn(drain(stream, spool)).detach();
                match declared {
                    Some(bytes) => Body::stream_of(bytes, reader),
                    None => Body::stream(reader),
                }
            }
            _ => match declared {
                Some(bytes) => Body::stream_of(bytes, stream),
                None => Body::stream(stream),
            },
        };
        let mut response = respond(body)?;
        end_with_code(&mut response, parting.as_ref(), None);
        Ok(Answer { response, watch: Watch::Stream(tally) })
    }
}

/// Reads an answer as fast as PHP makes it, so that a slow client does not occupy a process. Ends when the
/// client leaves.
async fn drain(mut stream: FastCgiStream, spool: Rc<Spool>) {
    loop {
        let next = poll_fn(|context| Pin::new(&mut stream).poll_next(context));
        match spool.unless_abandoned(next).await.flatten() {
            Some(Ok(chunk)) => {
                if spool.write(chunk).await.is_err() {
                    return;
                }
            }
            Some(Err(why)) => return spool.end(Err(why)),
            None => return spool.end(Ok(())),
        }
    }
}

/// Returns the variable of a header line.
fn variable(name: &[u8]) -> Vec<u8> {
    let mut variable = b"HTTP_".to_vec();
    variable.extend(name.iter().map(|byte| if *byte == b'-' { b'_' } else { byte.to_ascii_uppercase() }));
    variable
}

/// Returns whether the path has no empty part, and no hidden one except `.well-known`.
fn shows(relative: &[u8], hidden: bool) -> bool {
    files::is_servable(relative, hidden)
}

/// Receives all of a request's body before a process is taken; or returns the refusal.
async fn collect(body: RequestBody, settings: &PhpRoute, context: &Context) -> Result<Kept, Box<Answer>> {
    if body.is_empty() {
        return Ok(Kept::Whole(Vec::new()));
    }
    let limits = &settings.spool;
    match Collected::collect(body, limits).await {
        Ok(all) => {
            let all = Rc::new(all);
            if all.is_in_memory()
                && all.size() <= FIRST_BYTES
                && let Ok(bytes) = all.body().bytes(FIRST_BYTES as usize).await
            {
                return Ok(Kept::Whole(bytes));
            }
            Ok(Kept::Collected(all))
        }
        Err(CollectError::Body(why)) => {
            context.client_fault(format!("receiving the request: {why}"));
            Err(Box::new(page::refusal(why.status(), context, "The request did not come whole.")))
        }
        Err(CollectError::File(why)) => {
            context.fault(format!("temporary file in {}: {why}", limits.folder.display()));
            Err(Box::new(page::refusal(Status::SERVICE_UNAVAILABLE, context, "The server has no room.")))
        }
    }
}

/// Returns the key of sticky dispatch.
fn key(pool: &Pool, flow: &Flow) -> Option<u64> {
    let Flow { request, context }: &Flow = flow;
    let request: &Request = request;
    if !pool.sticks() {
        return None;
    }
    match &pool.settings().dispatch {
        ringroad_app::Dispatch::Cookie(name) => ringroad_gate::flow::cookie(request, name).map(hash),
        other => crate::app::key(other, request, context),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_name_that_ends_in_php_is_a_script_and_no_source_is_shown() {
        assert!(
            is_script(b"a/index.php") && !is_script(b".php") && !is_script(b"a.PHP") && !is_script(b"a.php5")
        );
        for source in ["a.php", "a.PHP", "b/c.php5", "x.phtml", "x.phar", "x.php.bak", "x.php~", "x.phps"] {
            assert!(is_source(source.as_bytes()), "{source}");
        }
        for other in ["a.txt", "photo.jpg", "a.graph", "php", "x.phd"] {
            assert!(!is_source(other.as_bytes()), "{other}");
        }
    }
}
