//! One worker's part: which route answers a request, and what is remembered of it afterwards.
//!
//! A worker has its own copy of everything that requests touch ([`Site`]), made from the plan in force. A reload puts
//! another plan there and raises a number; the worker sees that with its next request and makes itself a new site, so
//! that no request is answered by half of each, and none is lost.

use crate::answer::{Answer, Asking, Record, Sent};
use crate::config::{Config, Kind, Redirect, Respond, Route};
use crate::event::Event;
use crate::files::Files;
use crate::log::{Caught, Log, Writer};
use crate::metrics::{self, Counts};
use crate::page;
use crate::path::{self, Decoded};
use crate::proxy::{Place, Proxies};
use crate::service::Shared;
use ringroad_engine::spawn_blocking;
use ringroad_http::{ContentType, EncodeError, Method, Request, Response, State, Status};
use std::cell::{Cell, RefCell};
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

/// What is in force.
pub(crate) struct Plan {
    pub(crate) config: Config,
    pub(crate) log: Option<Arc<Log>>,
}

/// Which routes an address has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    /// All but those that have an address of their own.
    Public,
    /// Those that name this address.
    Own(SocketAddr),
}

/// One worker.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    audience: Audience,
    counts: Arc<Counts>,
    site: RefCell<Rc<Site>>,
    generation: Cell<u64>,
    began: Instant,
    seed: u64,
    ids: Cell<u64>,
    /// The second of the last faults, and how many they were.
    faults: Cell<(u64, u64)>,
}

/// What requests touch, made for one worker from one plan.
pub(crate) struct Site {
    plan: Arc<Plan>,
    /// The longest path first.
    routes: Vec<Rc<Place>>,
    files: Files,
    proxies: Rc<Proxies>,
    writer: Option<Writer>,
}

/// Faults of one second that are told each by itself.
const FAULTS_TOLD: u64 = 10;

impl Worker {
    /// Made on its own thread.
    pub(crate) fn new(shared: Arc<Shared>, audience: Audience) -> Worker {
        let counts = Arc::new(Counts::new());
        shared.members.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&counts));
        let generation = shared.generation.load(Ordering::Acquire);
        let site = Rc::new(Site::new(shared.plan(), audience, &counts));
        Worker {
            shared,
            audience,
            counts,
            site: RefCell::new(site),
            generation: Cell::new(generation),
            began: Instant::now(),
            seed: RandomState::new().hash_one(0_u8),
            ids: Cell::new(0),
            faults: Cell::new((0, 0)),
        }
    }

    /// The site of the plan in force.
    fn site(&self) -> Rc<Site> {
        // Pairs with the release store of a reload, which comes behind the new plan.
        let generation = self.shared.generation.load(Ordering::Acquire);
        if self.generation.replace(generation) != generation {
            *self.site.borrow_mut() = Rc::new(Site::new(self.shared.plan(), self.audience, &self.counts));
        }
        Rc::clone(&self.site.borrow())
    }

    /// An id that nobody else has had: unlike the others of this worker for certain, of all others most likely.
    pub(crate) fn next_id(&self) -> String {
        let number = self.ids.get().wrapping_add(1);
        self.ids.set(number);
        // SplitMix64: one to one, so that different numbers give different ids.
        let mut mixed = self.seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        format!("{:016x}", mixed ^ (mixed >> 31))
    }

    /// A request is over.
    pub(crate) fn finish(&self, record: Record, bytes: u64) {
        self.counts.answered(record.status, record.began.elapsed(), bytes);
        if let Some(why) = &record.error {
            self.counts.faults.add(1);
            self.tell_fault(&record, why);
        }
        if let (Some(caught), Some(writer)) = (&record.caught, &self.site.borrow().writer) {
            writer.line(caught, &record, bytes);
        }
    }

    /// Says what went wrong; of many in one second only how many.
    fn tell_fault(&self, record: &Record, why: &str) {
        let now = self.began.elapsed().as_secs();
        let (second, count) = self.faults.get();
        if second == now && count >= FAULTS_TOLD {
            return self.faults.set((second, count + 1));
        }
        let more = count.saturating_sub(FAULTS_TOLD);
        if second != now && more > 0 {
            self.shared.voice.say(Event::MoreFaults(more));
        }
        self.faults.set((now, if second == now { count + 1 } else { 1 }));
        let request = format!("request {}, on {}", record.id, record.name);
        self.shared.voice.say(Event::Fault { request, why: why.to_owned() });
    }
}

impl Site {
    fn new(plan: Arc<Plan>, audience: Audience, counts: &Arc<Counts>) -> Site {
        let here = |route: &&Arc<Route>| match (&route.kind, audience) {
            (Kind::Metrics(Some(own)), Audience::Own(listen)) => *own == listen,
            (Kind::Metrics(Some(_)), Audience::Public) => false,
            (_, audience) => audience == Audience::Public,
        };
        let mut routes: Vec<_> = plan.config.routes.iter().filter(here).map(Arc::clone).collect();
        routes.sort_by_key(|route| std::cmp::Reverse(route.path.len()));
        let routes = routes.into_iter().map(|route| Rc::new(Place { route })).collect();
        let threads = plan.config.threads() * plan.config.listen.len();
        Site {
            files: Files::new(&plan.config.cache, threads, Arc::clone(counts)),
            proxies: Rc::new(Proxies::new()),
            writer: plan.log.as_ref().map(Log::writer),
            routes,
            plan,
        }
    }

    /// The route of a path: the longest that fits.
    fn route(&self, path: &[u8]) -> Option<&Rc<Place>> {
        self.routes.iter().find(|place| {
            let own = place.route.path.as_bytes();
            if own.ends_with(b"/") { path.starts_with(own) } else { path == own }
        })
    }
}

/// Answers a request.
pub(crate) async fn answer(request: Request, worker: State<Worker>) -> Response {
    let began = Instant::now();
    let site = worker.site();
    let caught = site.writer.as_ref().map(|_| Caught::of(&request));
    let id_line = site.plan.config.request_id.as_deref();
    let asking = Asking::new(&worker, id_line, &request);
    let bodiless = request.method() == Method::Head;
    let answered = dispatch(&site, &worker, request, &asking).await;
    let answered = answered.and_then(|answer| match id_line {
        Some(name) => answer.with(|response| response.header(name, asking.id())),
        None => Ok(answer),
    });
    let Answer { response, sent } = answered.unwrap_or_else(|why| {
        asking.fault(format!("writing the answer: {why}"));
        page::broken()
    });
    let record = asking.record(began, response.status_code().code(), caught);
    match sent {
        Sent::Bytes(bytes) => worker.finish(record, if bodiless { 0 } else { bytes }),
        Sent::Tally(tally) => tally.record_with(record, worker.clone()),
    }
    response
}

async fn dispatch(
    site: &Site,
    worker: &Worker,
    request: Request,
    asking: &Asking<'_>,
) -> Result<Answer, EncodeError> {
    let Some(decoded) = path::decode(request.path()) else {
        return Ok(page::refusal(Status::BAD_REQUEST, asking, "The address is not one."));
    };
    let found = site.route(&decoded.bytes);
    if found.is_none_or(|place| place.route.path.as_bytes() != &*decoded.bytes)
        && let Some(elsewhere) = beside(site, &decoded, &request)
    {
        return elsewhere;
    }
    let Some(place) = found else { return Ok(page::missing(asking)) };
    let route = &*place.route;
    match &route.kind {
        Kind::Proxy(_) => {
            drop(decoded);
            site.proxies.answer(place, request, asking).await
        }
        Kind::Static(settings) => {
            let answered = site.files.answer(route, settings, &request, &decoded, asking).await;
            asking.name_if_needed(&request, &answered);
            answered
        }
        Kind::Respond(respond) => fixed(respond)?.with(|response| with_lines(route, response)),
        Kind::Redirect(redirect) => {
            redirected(route, redirect, &request)?.with(|response| with_lines(route, response))
        }
        Kind::Health => health(worker)?.with(|response| with_lines(route, response)),
        Kind::Metrics(_) => {
            let shared = Arc::clone(&worker.shared);
            match spawn_blocking(move || metrics::text(&shared)).await {
                Ok(text) => Answer::of(text).with(|response| {
                    with_lines(
                        route,
                        response.header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")?,
                    )
                }),
                Err(_) => Ok(page::refusal(Status::SERVICE_UNAVAILABLE, asking, "The server is busy.")),
            }
        }
    }
}

/// The way to the route that is this path with a slash behind.
fn beside(site: &Site, decoded: &Decoded<'_>, request: &Request) -> Option<Result<Answer, EncodeError>> {
    let is_it = |place: &Rc<Place>| {
        let path = place.route.path.strip_suffix('/').map(str::as_bytes);
        path == Some(&*decoded.bytes)
    };
    site.routes.iter().any(is_it).then(|| {
        let place = path::location(&format!("{}/", request.path()), request.query());
        Ok(Answer::empty(Response::redirect(Status::PERMANENT_REDIRECT, &place)?))
    })
}

fn with_lines(route: &Route, mut response: Response) -> Result<Response, EncodeError> {
    for (name, value) in &route.headers {
        response = response.header(name, value)?;
    }
    Ok(response)
}

fn fixed(respond: &Respond) -> Result<Answer, EncodeError> {
    let answer = Answer::of(respond.body.as_str());
    answer.with(|response| {
        let response = response.status(respond.status);
        if respond.body.is_empty() {
            Ok(response)
        } else {
            response.header("Content-Type", &respond.content_type)
        }
    })
}

fn redirected(route: &Route, redirect: &Redirect, request: &Request) -> Result<Answer, EncodeError> {
    let carries = route.path.ends_with('/') && redirect.to.ends_with('/');
    let behind = if carries { path::behind(request.path(), route.path.len()) } else { "" };
    let place = path::location(&format!("{}{behind}", redirect.to), request.query().filter(|_| carries));
    Ok(Answer::empty(Response::redirect(redirect.status, &place)?))
}

/// Whether more requests should come here.
fn health(worker: &Worker) -> Result<Answer, EncodeError> {
    let stopping = worker.shared.stopping.load(Ordering::Relaxed);
    let (status, text) =
        if stopping { (Status::SERVICE_UNAVAILABLE, "stopping\n") } else { (Status::OK, "ok\n") };
    Answer::of(text).with(|response| {
        response.status(status).content_type(ContentType::Text).header("Cache-Control", "no-store")
    })
}
