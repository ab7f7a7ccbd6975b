//! One worker: it chooses the route of a request and records the request afterwards.
//!
//! A worker has its own copy of all data that requests use ([`Site`]), made from the plan in force. A reload
//! stores another plan and increments a number. The worker notices that at its next request and makes a new
//! site, so that no request is answered by half of each, and none is lost. `ringroad_gate::chain` is the path
//! of a request; `endpoint.rs` answers at its end.

use crate::acme::CHALLENGES;
use crate::answer::{InFlight, Spare};
use crate::app::AppPlace;
use crate::app_http;
use crate::config::{Config, Kind, PhpTo, Route};
use crate::endpoint::{self, Target};
use crate::event::Event;
use crate::files::Files;
use crate::log::{Log, Writer};
use crate::metrics::{Counts, RouteCounts};
use crate::page;
use crate::php::Php;
use crate::proxy::groups::Reached;
use crate::proxy::{Proxies, ProxyRoute, grpc};
use crate::service::Shared;
use ringroad_app::{FastCgi, Links, Pool};
use ringroad_engine::DriverName;
use ringroad_gate::chain::{Chain, Endpoint};
use ringroad_gate::client::Trust;
use ringroad_gate::flow::{AtEnd, Chosen, End, Flow, Local, cookie, host};
use ringroad_gate::groups::WorkerGroups;
use ringroad_gate::page::no_room;
use ringroad_gate::path::{self, BadPath, Spellings};
use ringroad_gate::routes::{Found, Routes, Split, SplitBy, Subject};
use ringroad_gate::upstream::{Group, Room};
use ringroad_gate::words;
use ringroad_http::{Method, Request, Response, State, Status};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The configuration in force, and the objects made from it.
pub(crate) struct Plan {
    pub(crate) config: Config,
    pub(crate) log: Option<Arc<Log>>,
    /// Groups of upstream servers, by name; a reload keeps unchanged ones.
    pub(crate) groups: Vec<Arc<Group>>,
    /// The budget of all workers for connections to upstream servers; the same in every plan.
    pub(crate) room: Arc<Room>,
    /// The maximum body of the protocol layer, in bytes: that of the route with the largest limit.
    pub(crate) body_bytes: u64,
    /// Applications. A reload keeps those with the same name.
    pub(crate) apps: Vec<Arc<Pool>>,
}

/// The set of routes of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    /// All routes except those with an address of their own.
    Public,
    /// The routes that name this address.
    Own(SocketAddr),
}

/// The address of a worker, and its properties.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Station {
    pub(crate) audience: Audience,
    pub(crate) driver: DriverName,
    /// Requests are redirected to this https port.
    pub(crate) redirect_https: Option<u16>,
    /// Whether connections use TLS.
    pub(crate) is_secure: bool,
}

/// One worker.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    place: Station,
    counts: Arc<Counts>,
    /// Its clock, ids and random numbers.
    local: Rc<Local>,
    /// Memory of requests in progress.
    pub(crate) spare: Spare,
    site: RefCell<Rc<Site>>,
    generation: Cell<u64>,
    /// The second of the last faults by the clock of decisions, and their number.
    faults: Cell<(u64, u64)>,
}

/// The data that requests use, made for one worker from one plan.
pub(crate) struct Site {
    pub(crate) plan: Arc<Plan>,
    /// Indices into [`Self::targets`].
    routes: Routes<usize>,
    targets: Vec<Rc<Target>>,
    /// Trusted proxies in front of this server.
    trust: Rc<Trust>,
    /// Steps before the route is chosen.
    identify: Chain,
    /// Steps of answers that no route gives.
    defaults: Chain,
    /// Counts of named routes. A reload keeps them, including those of removed routes.
    counts: HashMap<String, Rc<RouteCounts>>,
    /// Cached files; kept over a reload.
    pub(crate) files: Rc<Files>,
    /// Connections to upstream servers; kept over a reload.
    pub(crate) proxies: Rc<Proxies>,
    /// Links to workers of applications; kept over a reload.
    pub(crate) links: Rc<Links>,
    /// Connections to FastCGI servers; kept over a reload.
    pub(crate) fastcgi: Rc<FastCgi>,
    writer: Option<Writer>,
    threads: usize,
}

/// Maximum number of faults in one second that are reported individually.
const FAULTS_TOLD: u64 = 10;

impl Worker {
    /// Makes the worker on its own thread.
    pub(crate) fn new(shared: Arc<Shared>, place: Station) -> Worker {
        let audience = place.audience;
        let counts = Arc::new(Counts::new(place.driver, audience == Audience::Public));
        counts.enlist(&shared.members);
        let generation = shared.generation.load(Ordering::Acquire);
        let local = Local::new(shared.epoch);
        let events = shared.events.clone();
        local.report_by(move |line| events.report(Event::Notice(line)));
        let site = Rc::new(Site::new(shared.plan(), audience, &counts, &local, &shared, None));
        Worker {
            shared,
            place,
            counts,
            local,
            spare: Spare::default(),
            site: RefCell::new(site),
            generation: Cell::new(generation),
            faults: Cell::new((0, 0)),
        }
    }

    /// Returns the site of the plan in force.
    fn site(&self) -> Rc<Site> {
        // Pairs with the release store of a reload, which follows the new plan.
        let generation = self.shared.generation.load(Ordering::Acquire);
        if self.generation.replace(generation) != generation {
            let before = Rc::clone(&self.site.borrow());
            let site = Site::new(
                self.shared.plan(),
                self.place.audience,
                &self.counts,
                &self.local,
                &self.shared,
                Some(&before),
            );
            // Dropped after the borrow has ended: the old site may record requests here.
            drop(self.site.replace(Rc::new(site)));
        }
        Rc::clone(&self.site.borrow())
    }

    /// Records a request that is over.
    pub(crate) fn finish(&self, flow: &Flow, end: &End) {
        self.counts.answered(end.status, end.took, end.bytes);
        flow.done(end);
        if let Some(why) = flow.context.own_fault() {
            self.counts.faults.add(1);
            self.report_fault(flow, &why);
        }
        if let Some(writer) = &self.site.borrow().writer {
            writer.line(flow, end);
        }
    }

    /// Reports a fault. Of many in one second, only the number is reported.
    fn report_fault(&self, flow: &Flow, why: &str) {
        let now = self.local.now() / 1_000_000_000;
        let (second, count) = self.faults.get();
        if second == now && count >= FAULTS_TOLD {
            return self.faults.set((second, count + 1));
        }
        let more = count.saturating_sub(FAULTS_TOLD);
        if second != now && more > 0 {
            self.shared.events.report(Event::MoreFaults(more));
        }
        self.faults.set((now, if second == now { count + 1 } else { 1 }));
        let (id, method) = (flow.context.id(), flow.request.method_name());
        let request = format!("request {id}, on {method} {}", flow.sent_target());
        self.shared.events.report(Event::Fault { request, why: why.to_owned() });
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // On the worker's own thread, which may end now.
        self.counts.end();
    }
}

impl Site {
    fn new(
        plan: Arc<Plan>,
        audience: Audience,
        counts: &Arc<Counts>,
        local: &Rc<Local>,
        shared: &Shared,
        before: Option<&Site>,
    ) -> Site {
        let here = |route: &&Arc<Route>| match (&route.kind, audience) {
            (Kind::Metrics(Some(own)), Audience::Own(listen)) => *own == listen,
            (Kind::Metrics(Some(_)), Audience::Public) => false,
            (_, audience) => audience == Audience::Public,
        };
        let config = &plan.config;
        let targets: Vec<_> = config
            .routes
            .iter()
            .filter(here)
            .map(|route| target(route, &plan, local, before, shared))
            .collect();
        let mut route_counts = before.map(|before| before.counts.clone()).unwrap_or_default();
        for target in &targets {
            if let (Some(name), Some(counts)) = (&target.route.name, &target.counts) {
                route_counts.insert(name.clone(), Rc::clone(counts));
            }
        }
        let proxies = before.map_or_else(
            || {
                let (room, limits) = (Arc::clone(&plan.room), plan.config.answer_limits.clone());
                Rc::new(Proxies::new(room, limits, shared.events.clone()))
            },
            |before| {
                before.proxies.set_limits(plan.config.answer_limits.clone());
                Rc::clone(&before.proxies)
            },
        );
        local.own::<WorkerGroups>().set(Reached::of(config, &plan.groups, &proxies));
        let numbered = targets.iter().enumerate().map(|(at, target)| (target.route.when.clone(), at));
        let threads = config.threads() * config.listen.len();
        let files =
            before.filter(|before| before.plan.config.cache == config.cache && threads == before.threads);
        Site {
            files: files.map_or_else(
                || Rc::new(Files::new(&config.cache, threads, Arc::clone(counts))),
                |before| Rc::clone(&before.files),
            ),
            fastcgi: before.map_or_else(FastCgi::new, |before| Rc::clone(&before.fastcgi)),
            links: before.map_or_else(|| Rc::new(Links::new()), |before| Rc::clone(&before.links)),
            proxies,
            writer: plan.log.as_ref().map(Log::writer),
            routes: Routes::new(numbered),
            counts: route_counts,
            trust: Rc::new(config.client_ip.clone()),
            identify: config.identify.chain(local),
            defaults: config.defaults.chain(local),
            targets,
            threads,
            plan,
        }
    }

    /// Returns the result of looking up a request's path.
    fn find(&self, flow: &Flow, spelled: &Spellings<'_>) -> Result<Found<usize>, BadPath> {
        let subject = Asked { request: &flow.request, flow };
        let found = spelled.choose(|path| self.routes.find(path, &subject))?;
        // An upstream server may decode bytes that are not UTF-8 differently (overlong forms).
        let handed_on =
            matches!(&found, Found::Route(at) if self.targets.get(*at).is_some_and(|t| t.proxy.is_some()));
        if handed_on && str::from_utf8(&spelled.decoded).is_err() {
            return Err(BadPath::NotUtf8);
        }
        Ok(found)
    }
}

fn target(
    route: &Arc<Route>,
    plan: &Plan,
    local: &Rc<Local>,
    before: Option<&Site>,
    shared: &Shared,
) -> Rc<Target> {
    let counts = route.name.as_ref().map(|name| {
        let known = before.and_then(|before| before.counts.get(name));
        known.map_or_else(|| RouteCounts::registered(name, &shared.routes), Rc::clone)
    });
    let proxy = match &route.kind {
        Kind::Proxy(proxy) => {
            let group = plan.groups.iter().find(|group| group.name() == proxy.to.name);
            let subject = plan.config.tls.as_ref().and_then(|tls| tls.subject_header.clone());
            group.map(|group| {
                Rc::new(ProxyRoute {
                    route: Arc::clone(route),
                    group: Arc::clone(group),
                    subject,
                    parting: None,
                })
            })
        }
        _ => None,
    };
    let app = match &route.kind {
        Kind::App(settings) => {
            let pool = plan.apps.iter().find(|pool| pool.settings().name == settings.app);
            pool.map(|pool| {
                let workers = app_http::Workers::default();
                let subject = plan.config.tls.as_ref().and_then(|tls| tls.subject_header.clone());
                Rc::new(AppPlace { route: Arc::clone(route), pool: Arc::clone(pool), subject, workers })
            })
        }
        _ => None,
    };
    let php = match &route.kind {
        Kind::Php(settings) => {
            let name = match &settings.to {
                PhpTo::App(name) => Some(name),
                PhpTo::Server(_) => None,
            };
            let pool = name.and_then(|name| plan.apps.iter().find(|pool| pool.settings().name == *name));
            let subject = plan.config.tls.as_ref().and_then(|tls| tls.subject_header.clone());
            Php::new(route, pool.cloned(), subject, shared.events.clone()).map(Rc::new)
        }
        _ => None,
    };
    // Equal conditions give an equal id, in each process and over reloads.
    let mut id = DefaultHasher::new();
    format!("{:?}", route.when).hash(&mut id);
    let chosen = Chosen {
        name: route.name.clone(),
        path: route.when.path.clone(),
        logged: route.logged,
        id: id.finish(),
    };
    let chain = route.steps.chain(local);
    let own = route.steps.body_bytes().unwrap_or(plan.config.limits.body_bytes);
    let body_bytes = (own < plan.body_bytes).then_some(own);
    Rc::new(Target {
        route: Arc::clone(route),
        chosen: Rc::new(chosen),
        chain,
        asks_again: route.steps.ask_again(),
        body_bytes,
        proxy,
        app,
        fixed: endpoint::prepared(route),
        php,
        counts,
    })
}

/// A request, as a look-up of routes sees it.
struct Asked<'r> {
    request: &'r Request,
    flow: &'r Flow,
}

impl Subject for Asked<'_> {
    fn host(&self) -> &str {
        host(self.request.authority().unwrap_or_default())
    }

    fn method(&self) -> &str {
        self.request.method_name()
    }

    fn has_header(&self, name: &str, value: Option<&str>) -> bool {
        let same = |own: &[u8]| value.is_none_or(|value| own == value.as_bytes());
        self.request.headers().get_all(name).any(same)
    }

    fn has_query(&self, name: &str, value: Option<&str>) -> bool {
        let same = |own: &str| value.is_none_or(|value| own == value);
        self.request.query_pairs().any(|(key, own)| key == name && same(&own))
    }

    fn is_in(&self, split: &Split) -> bool {
        let own = match &split.by {
            SplitBy::Client => None,
            SplitBy::Header(name) => self.request.headers().get(name).map(<[u8]>::to_vec),
            SplitBy::Cookie(name) => cookie(self.request, name).map(|value| value.as_bytes().to_vec()),
        };
        let address = || self.flow.see_client().map(|client| client.to_string().into_bytes());
        own.or_else(address).is_some_and(|key| split.takes(&key))
    }
}

/// Answers a request.
pub(crate) async fn answer(request: Request, worker: State<Worker>) -> Response {
    let site = worker.site();
    let config = &site.plan.config;
    let mut pending = InFlight::new(worker.clone(), Flow::new(request, &worker.local, &site.trust));
    let flow = pending.flow();
    // First: all later code sees the one normalised path, and the real client.
    flow.take_dots_out();
    flow.take_hop_lines_out();
    let line = config.tls.as_ref().and_then(|tls| tls.subject_header.as_deref());
    let is_told = line.is_none_or(|line| tell_subject(&mut flow.request, line));
    if site.writer.is_some() || !config.client_ip.proxies.is_empty() {
        flow.see_client();
    }
    let router = Router { site: &site, worker: &worker };
    // Answered whatever steps are configured: an authority asks from any address, without credentials.
    let response = match worker.shared.challenges.response(&flow.request) {
        Some(response) => response,
        None if !is_told => no_room(&flow.context),
        None => site.identify.run(flow, &router).await,
    };
    if let Some(writer) = &site.writer {
        for name in writer.answer_lines() {
            if let Some(value) = response.header_value(name) {
                flow.context.answer_lines.push((name.clone(), value.to_vec()));
            }
        }
    }
    let is_refused_call = flow.context.is_refused() && grpc::is_call(&flow.request);
    let response = pending.recorded(response);
    // The log has the status of HTTP.
    if is_refused_call { grpc::refusal(response) } else { response }
}

/// Writes the subject of the client's certificate into its header line, which only this server may write.
/// Without a certificate there is no such line, nor one that a program behind might take for it.
///
/// Returns `false` if the head has no room for it.
fn tell_subject(request: &mut Request, line: &str) -> bool {
    words::remove_all_like(request, line);
    let told = request.connection().and_then(|info| info.tls).and_then(|tls| tls.client_subject.clone());
    told.is_none_or(|told| words::tell(request, line, told.as_bytes()))
}

/// The end of the steps before the route: chooses the route, and passes the request through its chain.
struct Router<'s> {
    site: &'s Rc<Site>,
    worker: &'s State<Worker>,
}

impl Endpoint for Router<'_> {
    async fn answer(&self, flow: &mut Flow) -> Response {
        let Router { site, worker } = self;
        match on_this_address(worker, flow).and_then(|()| choose(site, flow)) {
            Ok(target) => {
                if takes_slashes_for_one(&target.route.kind) {
                    flow.merge_slashes();
                }
                flow.context.route = Some(Rc::clone(&target.chosen));
                if matches!(&target.route.kind, Kind::Proxy(settings) if settings.trust_forwarded) {
                    // Steps and the store must use the host and scheme that the upstream server gets.
                    flow.context.believe_peer();
                }
                if target.asks_again {
                    let (site, worker, target) = (Rc::clone(site), State::clone(worker), Rc::clone(target));
                    flow.context.behind = Some(Rc::new(endpoint::Again { site, worker, target }));
                }
                if let Some(counts) = &target.counts {
                    flow.context.call_at_end(Rc::clone(counts) as Rc<dyn AtEnd>);
                }
                if let Some(bytes) = target.body_bytes
                    && flow.request.body().limit(bytes).is_err()
                {
                    let what = "The body is longer than this address takes.";
                    let refused = page::refusal(Status::CONTENT_TOO_LARGE, &flow.context, what);
                    return target.chain.run(flow, &Refused(Cell::new(Some(refused.response)))).await;
                }
                let end = endpoint::End { site, worker, target };
                target.chain.run(flow, &end).await
            }
            Err(response) => site.defaults.run(flow, &Refused(Cell::new(Some(*response)))).await,
        }
    }
}

/// The end of the chain of a request without a route.
struct Refused(Cell<Option<Response>>);

impl Endpoint for Refused {
    async fn answer(&self, _: &mut Flow) -> Response {
        self.0.take().unwrap_or_else(page::broken)
    }
}

/// Checks whether a request is answered at the address it came to; otherwise returns the answer.
fn on_this_address(worker: &Worker, flow: &Flow) -> Result<(), Box<Response>> {
    let request = &flow.request;
    // A redirect of a request that a trusted proxy received over TLS would loop.
    let is_plain = || !request.path().starts_with(CHALLENGES) && flow.scheme() != "https";
    if let Some(port) = worker.place.redirect_https.filter(|_| is_plain()) {
        let port = if port == 443 { String::new() } else { format!(":{port}") };
        let asked = flow.authority();
        if asked.is_empty() {
            let what = "The request names no host, so there is no https:// address for it.";
            return Err(page::refusal(Status::BAD_REQUEST, &flow.context, what).response.into());
        }
        let query = request.query().map(|query| format!("?{query}")).unwrap_or_default();
        // `OPTIONS *` has no path.
        let path = Some(request.path()).filter(|path| path.starts_with('/')).unwrap_or("/");
        let place = format!("https://{}{port}{path}{query}", host(asked));
        let redirect = Response::redirect(page::moved(request.method()), &place);
        return Err(redirect.unwrap_or_else(|_| page::broken()).into());
    }
    if worker.place.is_secure
        && let Some(tls) = request.connection().and_then(|info| info.tls)
        && !tls.covers(host(request.authority().unwrap_or_default()))
    {
        // The client reached this server under the name of another site, and could confuse the two (RFC 9110
        // §15.5.20).
        let what = "This name is not served on this connection.";
        return Err(page::refusal(Status::MISDIRECTED_REQUEST, &flow.context, what).response.into());
    }
    Ok(())
}

/// Returns whether the endpoint treats repeated slashes as one. Programs behind this server and targets of
/// redirects may not (`/proxy/https://example.org/`).
fn takes_slashes_for_one(kind: &Kind) -> bool {
    !matches!(kind, Kind::Proxy(_) | Kind::App(_) | Kind::Redirect(_))
}

/// Returns the route of a request, or the answer if there is none.
fn choose<'s>(site: &'s Site, flow: &Flow) -> Result<&'s Rc<Target>, Box<Response>> {
    let (request, context) = (&flow.request, &flow.context);
    let not_served = || {
        let what = "This method is not served here.";
        page::refusal(Status::METHOD_NOT_ALLOWED, context, what).response
    };
    if matches!(request.method(), Method::Trace | Method::Connect) {
        // TRACE would reveal lines that upstream servers must not show (RFC 9110 §9.3.8); CONNECT opens no
        // tunnel here.
        return Err(not_served().into());
    }
    if request.method() == Method::Options && request.path() == "*" {
        // It asks about the whole server, like a ping (RFC 9110 §9.3.7): no route has this target.
        return Err(Response::empty(Status::NO_CONTENT).into());
    }
    let spelled = Spellings::of_request(request).map_err(|why| page::bad_path(why, context))?;
    let found = site.find(flow, &spelled).map_err(|why| page::bad_path(why, context))?;
    let target = match found {
        Found::Route(at) => site.targets.get(at),
        Found::WithSlash => {
            let path = path::with_single_slashes(request.path());
            let place = path::location(&format!("{path}/"), request.query());
            let redirect = Response::redirect(page::moved(request.method()), &place);
            return Err(redirect.unwrap_or_else(|_| page::broken()).into());
        }
        Found::OtherMethods(methods) => {
            let refused = not_served().header("Allow", methods.join(", "));
            return Err(refused.unwrap_or_else(|_| page::broken()).into());
        }
        Found::Nothing => None,
    };
    match target {
        Some(target) => Ok(target),
        None => Err(page::missing(context).response.into()),
    }
}
