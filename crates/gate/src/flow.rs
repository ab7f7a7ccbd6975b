//! One request in the gateway: the request, the facts that steps found out about it, and its end.
//!
//! A [`Flow`] belongs to the task that answers, and is lent to one step after another. Its [`Context`] is a
//! separate part, so that a step can read the request while it records facts. [`Local`] is the state that all
//! flows of a worker share: its clock, ids and random numbers. When all of the answer was sent, or no more of
//! it will be, the steps get the flow once more with its [`End`].

use crate::client::{Trust, told, told_host};
use crate::path;
use crate::template::{Values, Variable};
use ringroad_http::{EncodeError, Request, Response, Version};
use ringroad_wire::Form;
use std::any::{Any, TypeId};
use std::borrow::Cow;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// One request in the gateway.
#[derive(Debug)]
pub struct Flow {
    /// The request, as earlier steps have left it.
    pub request: Request,
    /// Facts about the request.
    pub context: Context,
}

/// Receives a line for the operator.
type Report = Box<dyn Fn(String)>;

/// State that the flows of one worker share.
pub struct Local {
    /// Start of the clock for decisions, the same for all workers.
    epoch: Instant,
    /// Keyed, so that one id does not reveal the next.
    ids_by: RandomState,
    ids: Cell<u64>,
    random: Cell<u64>,
    /// Values that features keep for this worker, by type.
    own: RefCell<HashMap<TypeId, Rc<dyn Any>>>,
    /// Receives lines for the operator.
    report: RefCell<Option<Report>>,
}

impl fmt::Debug for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Local")
    }
}

impl Local {
    /// Makes the state of one worker. All workers of a process have the same `epoch`.
    pub fn new(epoch: Instant) -> Rc<Local> {
        Rc::new(Local {
            epoch,
            ids_by: RandomState::new(),
            ids: Cell::new(0),
            random: Cell::new(RandomState::new().hash_one(0_u8)),
            own: RefCell::default(),
            report: RefCell::default(),
        })
    }

    /// Returns a new id. It is as unique as a random number of 64 bits, and does not reveal the next one.
    pub fn next_id(&self) -> String {
        let number = self.next_random_id();
        let mut digits = [0; 16];
        for (digit, place) in digits.iter_mut().zip((0..16).rev()) {
            let value = (number >> (4 * place) & 15) as u8;
            *digit = if value < 10 { b'0' + value } else { b'a' + value - 10 };
        }
        str::from_utf8(&digits).unwrap_or_default().to_owned()
    }

    /// Returns 64 bits that the client cannot predict.
    pub fn next_random_id(&self) -> u64 {
        let number = self.ids.get().wrapping_add(1);
        self.ids.set(number);
        self.ids_by.hash_one(number)
    }

    /// Returns this worker's own value of a type, such as connections that a feature keeps. The first call
    /// makes it.
    pub fn own<T: Default + 'static>(&self) -> Rc<T> {
        let known = self.own.borrow().get(&TypeId::of::<T>()).map(Rc::clone);
        let known = known.and_then(|known| known.downcast::<T>().ok());
        known.unwrap_or_else(|| {
            let made = Rc::<T>::default();
            self.own.borrow_mut().insert(TypeId::of::<T>(), Rc::clone(&made) as Rc<dyn Any>);
            made
        })
    }

    /// Sets the receiver of lines for the operator.
    pub fn report_by(&self, report: impl Fn(String) + 'static) {
        *self.report.borrow_mut() = Some(Box::new(report));
    }

    /// Reports a change to the operator. Not for failures of single requests.
    pub fn tell_operator(&self, line: String) {
        if let Some(report) = &*self.report.borrow() {
            report(line);
        }
    }

    /// Returns the time for decisions in nanoseconds, by the same clock on all workers.
    pub fn now(&self) -> u64 {
        clock(self.epoch)
    }

    /// Returns a random number for decisions. It must not be used for secrets.
    pub fn random(&self) -> u64 {
        let number = self.random.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.random.set(number);
        let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Maximum number of names in the `Connection` lines of a message that are evaluated. Clients do not send
/// more, and servers behind get no request with more.
pub const HOP_NAMES_MAX: usize = 16;

/// Options of `Connection` that name no line, and lines that are meant for this server and stay nevertheless.
const KEPT_OF_HOP: &[&str] = &["close", "keep-alive", "te", "upgrade"];

/// Returns the clock for decisions: the time since `epoch` plus an hour, so that times before a start are not
/// negative.
pub fn clock(epoch: Instant) -> u64 {
    let since = epoch.elapsed() + Duration::from_secs(3600);
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// The route that was chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    /// Its `name`, if the configuration gives one.
    pub name: Option<String>,
    /// Its path.
    pub path: String,
    /// Whether its requests are in the access log.
    pub logged: bool,
    /// Identifies the route, also over a reload: a hash of its conditions.
    pub id: u64,
}

/// The part of a route behind its steps, for a step that calls it without a client.
pub trait Behind {
    /// Answers this request.
    fn answer(self: Rc<Self>, flow: Flow) -> Pin<Box<dyn Future<Output = (Flow, Response)>>>;
}

/// Facts about a request, for its steps.
pub struct Context {
    local: Rc<Local>,
    /// When its head had arrived.
    pub began: Instant,
    /// Whether the client prefers HTML pages to plain text.
    pub html: bool,
    /// Whether answers carry the request's id, so that pages of refusals show it.
    pub shows_id: bool,
    /// The route that was chosen.
    pub route: Option<Rc<Chosen>>,
    /// The part of the route behind its steps, if a feature calls it itself.
    pub behind: Option<Rc<dyn Behind>>,
    /// The normalised target, if a step has changed it.
    original: Option<Box<str>>,
    /// The target as the client sent it, if it was normalised.
    sent: Option<Box<str>>,
    id: OnceCell<String>,
    /// The name of the caller, once it is authenticated.
    pub subject: Option<Rc<str>>,
    /// Whether the caller is authenticated, perhaps without a name.
    pub known: bool,
    /// The trace's id and this hop's parent, in the form of `traceparent`.
    pub trace: Option<Box<str>>,
    /// The client's address, and whether the peer is a trusted proxy.
    client: Cell<(Option<IpAddr>, bool)>,
    seen: Cell<bool>,
    /// Whether the route trusts every peer as a trusted proxy.
    believes: bool,
    /// The trusted proxies.
    trust: Rc<Trust>,
    /// Whether the present answer is a refusal by this server, and not an endpoint's answer.
    refused: Cell<bool>,
    fallback: Cell<bool>,
    /// Time limit from the head of the request to the head of its answer.
    pub deadline: Option<Duration>,
    /// Whether a step has waited, so that a part of the time limit has passed.
    pub(crate) waited: bool,
    /// The failure, for the log.
    error: RefCell<Option<String>>,
    /// Whether the client failed, and not this side or a server behind it.
    by_client: Cell<bool>,
    upstream: RefCell<Option<AnsweredBy>>,
    /// How the end of the answer is detected.
    pub watch: Watch,
    /// Callbacks at the end: the steps before the route, those of the route, the route's counts.
    at_end: [Option<Rc<dyn AtEnd>>; 3],
    /// Lines of the answer that the log names.
    pub answer_lines: Vec<(String, Vec<u8>)>,
    /// Targets that a change has invalidated, besides its own.
    void: RefCell<Vec<String>>,
    /// A cookie for this client alone.
    cookie: RefCell<Option<String>>,
}

/// A callback at the end of a request.
pub trait AtEnd {
    /// Called when all of the answer was sent, or no more of it will be.
    fn done(&self, flow: &Flow, end: &End);
}

/// The upstream server that answered.
#[derive(Clone, Debug)]
pub struct AnsweredBy {
    /// Its address.
    pub address: Arc<str>,
    /// Time until the head of its answer.
    pub took: Duration,
}

/// How the end of an answer is detected.
#[derive(Debug, Default)]
pub enum Watch {
    /// The HTTP library reports it.
    #[default]
    Sent,
    /// The HTTP library reports it; the task that makes the body records here why it failed.
    Stream(Rc<Tally>),
    /// The connection uses another protocol then: the tunnel counts its bytes and ends the record.
    Tunnel(Rc<Tally>),
}

type Record = Box<dyn FnOnce(u64, Option<String>)>;

/// Counts the bytes of a body that is made while it is sent, or of a tunnel, and keeps its first failure.
#[derive(Default)]
pub struct Tally {
    bytes: Cell<u64>,
    fault: RefCell<Option<String>>,
    at_end: RefCell<Option<Record>>,
}

impl Tally {
    /// Makes a tally of zero.
    pub fn new() -> Rc<Tally> {
        Rc::default()
    }

    /// Counts bytes of a tunnel.
    pub fn add(&self, bytes: u64) {
        self.bytes.set(self.bytes.get() + bytes);
    }

    /// Records why the body or the tunnel failed; the first reason counts.
    pub fn fault(&self, why: &str) {
        self.fault.borrow_mut().get_or_insert_with(|| why.to_owned());
    }

    /// Takes the reason of a failure.
    pub fn take_fault(&self) -> Option<String> {
        self.fault.borrow_mut().take()
    }

    /// Calls `record` with the bytes and the failure when the tunnel has ended.
    pub fn at_end(&self, record: impl FnOnce(u64, Option<String>) + 'static) {
        *self.at_end.borrow_mut() = Some(Box::new(record));
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        if let Some(record) = self.at_end.take() {
            record(self.bytes.get(), self.fault.take());
        }
    }
}

impl fmt::Debug for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tally({} bytes)", self.bytes.get())
    }
}

/// The end of a request.
#[derive(Clone, Debug)]
pub struct End {
    /// The status of the answer; 499 if the client had gone before there was one.
    pub status: u16,
    /// Bytes of the body that were sent.
    pub bytes: u64,
    /// Time from the request's head to the last byte of the answer.
    pub took: Duration,
    /// Why the answer was not sent completely, as a word for the log.
    pub cut: Option<&'static str>,
}

impl Flow {
    /// Makes the flow of a request.
    pub fn new(request: Request, local: &Rc<Local>, trust: &Rc<Trust>) -> Flow {
        const PAGES: &str = "text/html";
        let types = request.headers().get("accept").filter(|types| types.len() >= PAGES.len());
        let types = types.and_then(|types| str::from_utf8(types).ok());
        let html = types.is_some_and(|types| types.contains(PAGES));
        let context = Context {
            local: Rc::clone(local),
            began: Instant::now(),
            html,
            shows_id: false,
            route: None,
            behind: None,
            original: None,
            sent: None,
            id: OnceCell::new(),
            subject: None,
            known: false,
            trace: None,
            client: Cell::new((None, false)),
            seen: Cell::new(false),
            believes: false,
            trust: Rc::clone(trust),
            refused: Cell::new(false),
            fallback: Cell::new(false),
            deadline: None,
            waited: false,
            error: RefCell::default(),
            by_client: Cell::new(false),
            upstream: RefCell::default(),
            watch: Watch::Sent,
            at_end: [None, None, None],
            answer_lines: Vec::new(),
            void: RefCell::default(),
            cookie: RefCell::default(),
        };
        Flow { request, context }
    }

    /// Makes a new flow for the same request, as the steps have left it, without its client and its body.
    #[must_use]
    pub fn again(&self) -> Flow {
        self.see_client();
        let mut flow = Flow::new(self.request.again(), &self.context.local, &self.context.trust);
        let (from, to) = (&self.context, &mut flow.context);
        to.route.clone_from(&from.route);
        to.behind.clone_from(&from.behind);
        to.original.clone_from(&from.original);
        to.sent.clone_from(&from.sent);
        to.subject.clone_from(&from.subject);
        to.known = from.known;
        to.trace.clone_from(&from.trace);
        to.client.set(from.client.get());
        to.seen.set(true);
        to.believes = from.believes;
        to.deadline = from.deadline;
        flow
    }

    /// Determines the client's address. The peer's costs a system call, once for each connection, so this is
    /// called only if the address is used.
    pub fn see_client(&self) -> Option<IpAddr> {
        let context = &self.context;
        if !context.seen.replace(true)
            && let Some(peer) = self.request.peer_addr().map(|peer| peer.ip())
        {
            let fields = self.request.headers();
            let trust = &context.trust;
            let client = trust.client(peer, |name| fields.get_all(name).collect::<Vec<_>>().into_iter());
            context.client.set((Some(client), trust.is_proxy(peer)));
        }
        context.client()
    }

    /// Returns the client's scheme, `https` or `http`; a trusted proxy's information takes precedence.
    pub fn scheme(&self) -> &'static str {
        self.see_client();
        let told = told(self.request.headers(), "x-forwarded-proto").map(str::trim);
        match told.filter(|_| self.context.comes_by_proxy()) {
            Some(told) if told.eq_ignore_ascii_case("https") => "https",
            Some(told) if told.eq_ignore_ascii_case("http") => "http",
            _ => self.request.scheme(),
        }
    }

    /// Returns the host that the client requested, with its port if one was given; a trusted proxy's
    /// information takes precedence. Empty if there is none.
    pub fn authority(&self) -> &str {
        let told = told_host(self.request.headers()).filter(|_| {
            self.see_client();
            self.context.comes_by_proxy()
        });
        told.or(self.request.authority()).unwrap_or_default()
    }

    /// Returns the normalised path and query, without changes by later steps: for decisions, since the route
    /// was chosen by these. If the target also had a host, it is the request's authority.
    pub fn target(&self) -> Cow<'_, str> {
        self.context.original.as_deref().map_or_else(|| self.request.path_and_query(), Cow::Borrowed)
    }

    /// Returns path and query of the [target](Self::target), for clients and answers, whatever the endpoint
    /// is asked for.
    pub fn public_path(&self) -> (&str, Option<&str>) {
        let Some(original) = self.context.original.as_deref() else {
            return (self.request.path(), self.request.query());
        };
        match original.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (original, None),
        }
    }

    /// Returns the public path of the endpoint's resource, and its query. These are the request's, if a step
    /// has written a path that does not end as the client's does.
    pub fn place(&self) -> (&str, Option<&str>) {
        let (path, query) = self.public_path();
        let rest = path::behind(path, self.context.route_path().len());
        match self.is_rewritten() && !self.request.path().ends_with(rest) {
            true => (self.request.path(), self.request.query()),
            false => (path, query),
        }
    }

    /// Returns the `Location` of a folder that was requested without the slash at its end.
    pub fn place_with_slash(&self) -> String {
        let (path, query) = match self.place() {
            // The route's own path, which a step has replaced.
            (path, _)
                if self.is_rewritten() && path::behind(path, self.context.route_path().len()).is_empty() =>
            {
                (self.request.path(), self.request.query())
            }
            place => place,
        };
        path::location(&format!("{}/", path::with_single_slashes(path)), query)
    }

    /// Returns the target as the client sent it, with its dots and slashes. For logs.
    pub fn sent_target(&self) -> &str {
        let context = &self.context;
        let understood = context.sent.as_deref().or(context.original.as_deref());
        understood.unwrap_or_else(|| self.request.head().target())
    }

    /// Removes the segments `.` and `..` from the path ([`path::without_dots`]), before any other code reads
    /// it. A path that is refused for them is not changed.
    pub fn take_dots_out(&mut self) {
        if self.request.head().is_plain_path() {
            return;
        }
        if let Ok(Cow::Owned(path)) = path::without_dots(self.request.path()) {
            self.respell(path);
        }
    }

    /// Removes the lines that `Connection` names as the client's hop's (RFC 9110 §7.6.1), before any step has
    /// read or written one. Later they could not be distinguished from lines that steps have set: a client
    /// could have the line with the caller's name removed on the way to the server behind.
    pub fn take_hop_lines_out(&mut self) {
        let words =
            self.request.headers().get_all("connection").flat_map(|list| list.split(|byte| *byte == b','));
        let words = words.map(<[u8]>::trim_ascii).filter(|word| !word.is_empty()).take(HOP_NAMES_MAX);
        let is_known =
            |word: &[u8]| KEPT_OF_HOP.iter().any(|known| word.eq_ignore_ascii_case(known.as_bytes()));
        let named: Vec<_> = words
            .filter(|word| !is_known(word))
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect();
        for name in named {
            self.request.remove_header(&name);
        }
    }

    /// Merges repeated slashes in the path, for code that treats them as one.
    pub fn merge_slashes(&mut self) {
        if self.request.head().is_plain_path() {
            return;
        }
        if let Cow::Owned(path) = path::with_single_slashes(self.request.path()) {
            self.respell(path);
        }
    }

    /// Replaces the path by another spelling of the same place. The query is kept.
    fn respell(&mut self, mut target: String) {
        if let Some(query) = self.request.query() {
            target.push('?');
            target.push_str(query);
        }
        let before = self.request.head().target().to_owned();
        // It is a part of the valid target. A path that is not changed is refused by the code that reads it.
        if self.request.set_target(&target).is_ok() {
            self.context.sent.get_or_insert(before.into());
        }
    }

    /// Replaces path and query of the request.
    ///
    /// # Errors
    /// It does not begin with `/`, has a space, a control character or `#`, or is too long.
    pub fn rewrite(&mut self, target: &str) -> Result<(), EncodeError> {
        let request = &self.request;
        let sent = (request.head().form() == Form::Absolute).then(|| request.head().target().into());
        let before = request.path_and_query().into();
        self.request.set_target(target)?;
        self.context.original.get_or_insert(before);
        if let Some(sent) = sent {
            self.context.sent.get_or_insert(sent);
        }
        Ok(())
    }

    /// Returns whether a step has changed the target.
    pub fn is_rewritten(&self) -> bool {
        self.context.original.is_some()
    }

    /// Notifies the steps that all of the answer was sent, or that no more of it will be.
    pub fn done(&self, end: &End) {
        for steps in self.context.at_end.iter().flatten() {
            steps.done(self, end);
        }
    }
}

impl Context {
    /// Returns the request's id.
    pub fn id(&self) -> &str {
        self.id.get_or_init(|| self.local.next_id())
    }

    /// Adopts the id that a trusted proxy gave the request, so that both logs have the same.
    pub fn take_id(&self, request: &Request) {
        let theirs = request.header("x-request-id").map(str::trim);
        let is_id =
            |id: &&str| !id.is_empty() && id.len() <= 128 && id.bytes().all(|byte| byte.is_ascii_graphic());
        if let Some(theirs) = theirs.filter(is_id) {
            // An id that was used already is kept.
            let _ = self.id.set(theirs.to_owned());
        }
    }

    /// Returns the client's address, behind trusted proxies; `None` before [`Flow::see_client`] was called.
    pub fn client(&self) -> Option<IpAddr> {
        self.client.get().0
    }

    /// Returns whether the peer is a trusted proxy: its lines about the client are trusted.
    pub fn comes_by_proxy(&self) -> bool {
        self.client.get().1 || self.believes
    }

    /// Trusts the peer's lines about the request, whatever its address is, because the route says so.
    pub fn believe_peer(&mut self) {
        self.believes = true;
    }

    /// Returns the worker's clock, ids and random numbers.
    pub fn local(&self) -> &Rc<Local> {
        &self.local
    }

    /// Returns the start of the [`clock`] for decisions.
    pub fn epoch(&self) -> Instant {
        self.local.epoch
    }

    /// Returns the time left to the head of the answer; `None` if there is no limit.
    pub fn time_left(&self) -> Option<Duration> {
        self.deadline.map(|span| span.saturating_sub(self.began.elapsed()))
    }

    /// Returns the time for decisions, in nanoseconds.
    pub fn now(&self) -> u64 {
        self.local.now()
    }

    /// Returns a random number for decisions.
    pub fn random(&self) -> u64 {
        self.local.random()
    }

    /// Records a failure on this side or behind it.
    pub fn fault(&self, why: String) {
        *self.error.borrow_mut() = Some(why);
        self.by_client.set(false);
    }

    /// Records an error of the client's input. The access log has it; it does not count as a fault.
    pub fn client_fault(&self, why: String) {
        self.fault(why);
        self.by_client.set(true);
    }

    /// Returns the failure on this side or behind it.
    pub fn own_fault(&self) -> Option<String> {
        self.error().filter(|_| !self.by_client.get())
    }

    /// Returns the failure.
    pub fn error(&self) -> Option<String> {
        self.error.borrow().clone()
    }

    /// Removes a failure, and a refusal that followed from it: another try follows.
    pub fn forgive(&self) {
        *self.error.borrow_mut() = None;
        self.refused.set(false);
    }

    /// Returns whether something failed.
    pub fn has_failed(&self) -> bool {
        self.error.borrow().is_some()
    }

    /// Records the upstream server that answered.
    pub fn answered_by(&self, upstream: AnsweredBy) {
        *self.upstream.borrow_mut() = Some(upstream);
    }

    /// Returns the upstream server that answered.
    pub fn upstream(&self) -> Option<AnsweredBy> {
        self.upstream.borrow().clone()
    }

    /// Returns the path and query that the client requested, if a step has changed them.
    pub fn original(&self) -> Option<&str> {
        self.original.as_deref()
    }

    /// Records a target here that the answer to a change names by another one. The cache removes its entries.
    pub fn note_void(&self, target: String) {
        self.void.borrow_mut().push(target);
    }

    /// Takes the targets of [`note_void`](Self::note_void).
    pub fn take_void(&self) -> Vec<String> {
        self.void.take()
    }

    /// Records a cookie for this request's client, if the answer itself may be stored for others.
    pub fn note_cookie(&self, cookie: String) {
        *self.cookie.borrow_mut() = Some(cookie);
    }

    /// Takes the cookie of [`note_cookie`](Self::note_cookie).
    pub fn take_cookie(&self) -> Option<String> {
        self.cookie.take()
    }

    /// Returns the offset of the part of the decoded path below the route. A step that has changed the path
    /// has written all of it.
    pub fn below(&self) -> usize {
        if self.original.is_some() { 1 } else { self.route_path().len() }
    }

    /// Records that the answer is a refusal by this server.
    pub fn note_refusal(&self) {
        self.refused.set(true);
    }

    /// Records that the answer is not a refusal after all: another one has replaced it.
    pub fn pardon(&self) {
        self.refused.set(false);
    }

    /// Records that the answer is the route's fallback, which no error page replaces.
    pub fn note_fallback(&self) {
        self.pardon();
        self.fallback.set(true);
    }

    /// Returns whether the answer is the route's fallback.
    pub fn is_fallback(&self) -> bool {
        self.fallback.get()
    }

    /// Returns whether the answer is a refusal by this server.
    pub fn is_refused(&self) -> bool {
        self.refused.get()
    }

    /// Adds a callback at the end. There is room for three: the steps before the route, those of the route,
    /// and the route's counts.
    pub fn call_at_end(&mut self, steps: Rc<dyn AtEnd>) {
        if let Some(place) = self.at_end.iter_mut().find(|place| place.is_none()) {
            *place = Some(steps);
        }
    }

    /// Returns the path of the route that was chosen.
    pub fn route_path(&self) -> &str {
        self.route.as_ref().map_or("", |route| &route.path)
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("id", &self.id).field("route", &self.route).finish_non_exhaustive()
    }
}

/// Returns the host of an authority, without its port.
pub fn host(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => host,
        _ => authority,
    }
}

/// Returns the value of a cookie (RFC 6265 §4.2); the first of several.
pub fn cookie<'r>(request: &'r Request, name: &str) -> Option<&'r str> {
    cookies(request, name).next().and_then(|value| str::from_utf8(value).ok())
}

/// Returns all values of a cookie, in any line and with any bytes: the application decides which one counts.
pub fn cookies<'r>(request: &'r Request, name: &str) -> impl Iterator<Item = &'r [u8]> {
    let pairs = request.headers().get_all("cookie").flat_map(|line| line.split(|byte| *byte == b';'));
    pairs.filter_map(move |pair| {
        let value = pair.trim_ascii().strip_prefix(name.as_bytes())?;
        value.strip_prefix(b"=")
    })
}

/// Returns the text of a version.
pub fn protocol(version: Version) -> &'static str {
    match version {
        Version::Http10 => "HTTP/1.0",
        Version::Http11 => "HTTP/1.1",
        Version::Http2 => "HTTP/2.0",
        _ => "HTTP",
    }
}

/// Values before there is an answer.
impl Values for Flow {
    fn append(&self, variable: &Variable, out: &mut Vec<u8>) {
        let request = &self.request;
        let text = |out: &mut Vec<u8>, text: &str| out.extend_from_slice(text.as_bytes());
        match variable {
            Variable::Scheme => text(out, self.scheme()),
            Variable::Host => text(out, host(self.authority())),
            Variable::Authority => text(out, self.authority()),
            Variable::Path => text(out, request.path()),
            Variable::Rest => text(out, path::behind(request.path(), self.context.below())),
            Variable::Query => text(out, request.query().unwrap_or_default()),
            Variable::QueryMark => {
                if let Some(query) = request.query() {
                    out.push(b'?');
                    text(out, query);
                }
            }
            Variable::Target => text(out, &self.target()),
            Variable::Method => text(out, request.method_name()),
            Variable::Protocol => text(out, protocol(request.version())),
            Variable::Client => {
                if let Some(client) = self.see_client() {
                    text(out, &client.to_string());
                }
            }
            Variable::Peer => {
                if let Some(peer) = request.peer_addr() {
                    text(out, &peer.ip().to_canonical().to_string());
                }
            }
            Variable::Id => text(out, self.context.id()),
            Variable::Subject => text(out, self.context.subject.as_deref().unwrap_or_default()),
            Variable::Trace => text(out, self.context.trace.as_deref().unwrap_or_default()),
            Variable::Route => {
                let route = self.context.route.as_deref();
                let name = route.map(|route| route.name.as_deref().unwrap_or(&route.path));
                text(out, name.unwrap_or_default());
            }
            Variable::Time => text(out, &crate::date::Stamp::at(SystemTime::now()).combined()),
            Variable::Time3339 => text(out, &crate::date::rfc3339(SystemTime::now())),
            Variable::Header(name) => out.extend_from_slice(request.headers().get(name).unwrap_or_default()),
            Variable::Cookie(name) => text(out, cookie(request, name).unwrap_or_default()),
            Variable::QueryValue(name) => text(out, &request.query_value(name).unwrap_or_default()),
            Variable::Upstream => {
                if let Some(upstream) = &*self.context.upstream.borrow() {
                    text(out, &upstream.address);
                }
            }
            Variable::UpstreamDuration => {
                if let Some(upstream) = &*self.context.upstream.borrow() {
                    text(out, &format!("{:.6}", upstream.took.as_secs_f64()));
                }
            }
            Variable::Error => {
                if let Some(error) = &*self.context.error.borrow() {
                    text(out, error);
                }
            }
            Variable::Duration => text(out, &format!("{:.6}", self.context.began.elapsed().as_secs_f64())),
            // Only the answer has these; a template for requests has none of them.
            Variable::Status | Variable::Bytes | Variable::Answer(_) => {}
        }
    }
}

/// A flow with the head of its answer, for templates of the answer's lines.
pub struct Answered<'f> {
    /// The flow.
    pub flow: &'f Flow,
    /// Its answer.
    pub response: &'f Response,
}

impl Values for Answered<'_> {
    fn append(&self, variable: &Variable, out: &mut Vec<u8>) {
        match variable {
            Variable::Status => {
                out.extend_from_slice(self.response.status_code().code().to_string().as_bytes());
            }
            Variable::Answer(name) => {
                out.extend_from_slice(self.response.header_value(name).unwrap_or_default());
            }
            other => self.flow.append(other, out),
        }
    }
}

/// A flow at its end, for lines of a log.
pub struct Ended<'f> {
    /// The flow.
    pub flow: &'f Flow,
    /// How it ended.
    pub end: &'f End,
}

impl Values for Ended<'_> {
    fn append(&self, variable: &Variable, out: &mut Vec<u8>) {
        let mut text = |text: String| out.extend_from_slice(text.as_bytes());
        match variable {
            Variable::Status => text(self.end.status.to_string()),
            Variable::Bytes => text(self.end.bytes.to_string()),
            Variable::Duration => text(format!("{:.6}", self.end.took.as_secs_f64())),
            Variable::Target => text(self.flow.sent_target().to_owned()),
            Variable::Answer(name) => {
                let lines = &self.flow.context.answer_lines;
                let line = lines.iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
                out.extend_from_slice(line.map(|(_, value)| value.as_slice()).unwrap_or_default());
            }
            other => self.flow.append(other, out),
        }
    }
}
