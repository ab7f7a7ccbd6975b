//! `cache = "STORE"`: answers of a route are kept in a `[store.NAME]`, and used again as RFC 9111 allows.
//!
//! A request that is answered from the store sees no endpoint. Of those that need the same fetch one leads
//! and the others get its bytes as they come ([`crate::cache::fill`]). [`Here::complete`] decides what
//! becomes of an endpoint's answer: kept, merged into a kept one, replaced by a stale one, or handed on as it
//! is.

use crate::auth::{self, Auth};
use crate::cache::fill::{Fill, Stage as Fetch};
use crate::cache::store::{self, FillKey, Lead, Part, Purge, Resource, State, Store, Told};
use crate::cache::stored::{Head, Stored, only_if_cached};
use crate::cache::{OfBlock, OfRequest, OfResponse};
use crate::chain::{Answering, Builder, Filter, Step};
use crate::feature::{Configured, Declaration, Feature, Named, Reading, Scope};
use crate::flow::{Flow, Local, cookies};
use crate::page;
use crate::path;
use crate::stage::Stage;
use crate::words;
use futures_core::Stream;
use ipnet::IpNet;
use ringroad_engine::{spawn, time};
use ringroad_http::{Body, BoxError, ContentType, FieldBlock, Method, Piece, Response, Status};
use ringroad_policy::fresh::control::Asked;
use ringroad_policy::fresh::{self, Facts, Freshness, Lines, Rules, Verdict, vary};
use ringroad_policy::{Nanos, SECOND};
use ringroad_settings::{Key, Section, Table, Value, value};
use std::any::Any;
use std::fmt::Write;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

pub(super) static DECLARATION: Declaration = Declaration {
    key: Key {
        name: "cache",
        form: "name, or table, as `{ store = \"pages\", stale_if_error = \"1h\" }`",
        default: "-",
        meaning: "Answers are kept in this `[store.NAME]` and used again. For routes of the kinds `proxy`, `app` and `php`.",
    },
    tables: &[&TABLE, &store::TABLE],
    scope: Scope::Route,
    read,
    named: Some(Named { key: store::KEY, read: store::read }),
};

static TABLE: Table = Table {
    name: "[[route]] cache = { … }",
    meaning: "What is kept, and for how long, is what answers say (`Cache-Control`, `CDN-Cache-Control`, `Expires`, `Vary`). \
        Answers to requests with `Authorization`, and of routes with `auth`, are kept only if they say `public` or `s-maxage`. \
        Requests that want the same answer at the same time are one request to the server behind. `POST`, `PUT`, `DELETE` and \
        unknown methods remove what is kept of their path.",
    keys: &[
        Key { name: "store", form: "name", default: "", meaning: "The `[store.NAME]`." },
        Key {
            name: "by",
            form: "list of `\"header.NAME\"`, `\"cookie.NAME\"`, `\"subject\"`",
            default: "[]",
            meaning: "What an answer depends on besides scheme, host, path and query. Of several lines or cookies with the name, all count. `Vary` needs no mention here.",
        },
        Key {
            name: "query",
            form: "list of names",
            default: "all",
            meaning: "Only these parts of the query tell answers apart, in all spellings of their names (`%70age`, `page[]`). The server behind still gets all of it.",
        },
        Key {
            name: "lifetime",
            form: "time",
            default: "-",
            meaning: "How long answers live that do not say it, of statuses that may be kept without (200, 301, 404 and others).",
        },
        Key {
            name: "heuristic",
            form: "true or false",
            default: "false",
            meaning: "Such answers live a tenth of the time since their `Last-Modified`, a day at most.",
        },
        Key {
            name: "stale_while_revalidate",
            form: "time",
            default: "0s",
            meaning: "A stale answer is used for so long while it is refreshed, where it does not say how long itself.",
        },
        Key {
            name: "stale_if_error",
            form: "time",
            default: "0s",
            meaning: "A stale answer is used for so long where no other can be had: no server, too late, breaker open, 500, 502, 503, 504. \
                Never against `must-revalidate`, `proxy-revalidate` and `no-cache`; with `s-maxage` only if the answer itself has the directive.",
        },
        Key { name: "collapse", form: "true or false", default: "true", meaning: "Requests that want the same answer wait for one fetch." },
        Key {
            name: "wait",
            form: "time, 1ms or more",
            default: "5s",
            meaning: "How long a request waits for the first bytes of the fetch of another one. Then it fetches by itself.",
        },
        Key {
            name: "pass_for",
            form: "time",
            default: "2m",
            meaning: "Requests do not wait for each other for so long after an answer was not to be kept.",
        },
        Key {
            name: "cookies",
            form: "true or false",
            default: "false",
            meaning: "Answers with `Set-Cookie` are kept, too. Each client then gets the same cookie.",
        },
        Key {
            name: "obey_requests",
            form: "true or false",
            default: "false",
            meaning: "`no-cache`, `max-age`, `min-fresh` and `max-stale` of requests count. Then each client can have the server behind asked. \
                `only-if-cached` and `no-store` count always.",
        },
        Key {
            name: "purge_auth",
            form: "name",
            default: "-",
            meaning: "Lets clients known by this `[auth.NAME]` remove answers with the method PURGE: of the path; of all paths that begin so, where it \
                ends with `*`; of all answers with a word of the request's `Cache-Tag`.",
        },
        Key {
            name: "purge_from",
            form: "network or list of networks",
            default: "-",
            meaning: "Lets clients of these addresses do so. With `purge_auth`, both must hold.",
        },
        Key { name: "tell", form: "true or false", default: "true", meaning: "Answers have `Cache-Status` (RFC 9211)." },
    ],
};

/// How long a stale answer is used without a further attempt, after one has failed.
const REST: Nanos = SECOND;

/// What answers depend on besides the key of all routes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum By {
    Header(String),
    Cookie(String),
    Subject,
}

#[derive(Clone, Debug, PartialEq)]
struct Settings {
    by: Vec<By>,
    query: Option<Vec<String>>,
    rules: Rules,
    collapse: bool,
    wait: Duration,
    pass_for: Nanos,
    purge_from: Option<Vec<IpNet>>,
    tell: bool,
}

/// The feature of a route.
#[derive(Debug)]
struct Caching {
    settings: Settings,
    store: Arc<Store>,
    purge_auth: Option<Arc<Auth>>,
}

fn read(section: &Section<'_>, reading: &Reading<'_>) -> Option<Arc<dyn Feature>> {
    let name = DECLARATION.key.name;
    if !matches!(reading.kind, None | Some("proxy" | "app" | "php")) {
        section.mistake(name, "expected in a route of the kind \"proxy\", \"app\" or \"php\": others answer from memory");
        return None;
    }
    let find = |value: &Value<'_>| reading.tables.get::<Store>(store::KEY.name, &value::text(value)?);
    let Some(mut table) = section.table_if(name) else {
        let store = section.read(name, |value| match value::text(value) {
            Ok(_) => find(value),
            Err(_) => Err(value::found("the name of a [store.NAME], or a table", value)),
        })?;
        return Some(Arc::new(Caching { settings: Settings::default(), store, purge_auth: None }));
    };
    table.describe(&TABLE);
    let store = table.require("store", "the name of a [store.NAME]", find);
    let by = table.read("by", |value| value::some(value, "what answers depend on", by));
    let query = table.read("query", |value| match value.as_array().is_some_and(|list| list.is_empty()) {
        true => Ok(Vec::new()),
        false => value::some(value, "names of the query", value::text),
    });
    let span = |key: &str| table.read(key, |value| value::span(value, Duration::ZERO));
    let truth = |key: &str| table.read(key, value::truth);
    let own = Settings::default();
    let seconds = |key: &str| span(key).map(|span| span.as_secs());
    let rules = Rules {
        lifetime: seconds("lifetime"),
        heuristic: truth("heuristic").unwrap_or(false),
        cookies: truth("cookies").unwrap_or(false),
        obey_requests: truth("obey_requests").unwrap_or(false),
        stale_while: seconds("stale_while_revalidate").unwrap_or(0),
        stale_if_error: seconds("stale_if_error").unwrap_or(0),
    };
    let wait = table.read("wait", |value| value::span(value, Duration::from_millis(1)));
    let pass_for = span("pass_for").map(|span| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
    let purge_auth = table.read("purge_auth", |value| {
        let auth = reading.tables.get::<Auth>(auth::KEY.name, &value::text(value)?)?;
        match auth.is_immediate() {
            true => Ok(auth),
            false => Err("expected an [auth.NAME] that decides by itself: of the kind \"key\", or a token with keys of a file".to_owned()),
        }
    });
    let purge_from = table.read("purge_from", |value| value::some(value, "networks", value::network));
    // What protects must not fall away because it is wrong.
    let whole = purge_auth.is_some() == table.has("purge_auth")
        && purge_from.is_some() == table.has("purge_from")
        && by.is_some() == table.has("by");
    let settings = Settings {
        by: by.unwrap_or_default(),
        query,
        rules,
        collapse: truth("collapse").unwrap_or(own.collapse),
        wait: wait.unwrap_or(own.wait),
        pass_for: pass_for.unwrap_or(own.pass_for),
        purge_from,
        tell: truth("tell").unwrap_or(own.tell),
    };
    table.finish();
    let store = store.filter(|_| whole)?;
    Some(Arc::new(Caching { settings, store, purge_auth }))
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            by: Vec::new(),
            query: None,
            rules: Rules::default(),
            collapse: true,
            wait: Duration::from_secs(5),
            pass_for: 120 * SECOND,
            purge_from: None,
            tell: true,
        }
    }
}

fn by(value: &Value<'_>) -> Result<By, String> {
    let text = value::text(value)?;
    match text.split_once('.') {
        None if text == "subject" => Ok(By::Subject),
        Some(("header", name)) => words::check_name(name).map(|()| By::Header(name.to_owned())),
        Some(("cookie", name)) if !name.is_empty() => Ok(By::Cookie(name.to_owned())),
        _ => Err(value::found("\"header.NAME\", \"cookie.NAME\" or \"subject\"", value)),
    }
}

impl Configured for Caching {
    fn same_as(&self, other: &dyn Any) -> bool {
        other.downcast_ref::<Caching>().is_some_and(|other| {
            let auths = match (&self.purge_auth, &other.purge_auth) {
                (Some(one), Some(other)) => one.same_as(&**other),
                (None, None) => true,
                _ => false,
            };
            auths && self.settings == other.settings && self.store.same_as(&*other.store)
        })
    }
}

impl Feature for Caching {
    fn install(self: Arc<Self>, _: &Rc<Local>, chain: &mut Builder) {
        let state = self.store.state();
        chain.add(Stage::Store, Rc::new(Gate(Rc::new(Here { caching: self, state }))));
    }

    fn methods(&self) -> &'static [&'static str] {
        if self.may_purge() { &["PURGE"] } else { &[] }
    }

    fn asks_again(&self) -> bool {
        true
    }
}

impl Caching {
    fn may_purge(&self) -> bool {
        self.purge_auth.is_some() || self.settings.purge_from.is_some()
    }
}

/// The step of a route on one worker.
struct Gate(Rc<Here>);

struct Here {
    caching: Arc<Caching>,
    state: Arc<State>,
}

/// Lines of a client's request that the store answers, and that are not sent on with a fetch for all.
const CONDITIONS: [&str; 4] = ["if-none-match", "if-modified-since", "range", "if-range"];

/// A request on its way to the endpoint, and what is to become of its answer.
enum Asking {
    /// It may change what is kept of its path.
    Changes,
    /// The answer is handed on as it is.
    Passes(&'static str),
    /// The answer may be kept.
    Fetches(Box<Fetching>),
}

struct Fetching {
    lead: Lead,
    place: Box<[u8]>,
    /// The kept answer that is asked about.
    stored: Option<Arc<Stored>>,
    facts: Facts,
    /// The client's own.
    conditions: FieldBlock,
    /// Why it is sent on, as RFC 9211 calls it.
    why: &'static str,
    began: Nanos,
    /// The answer is for the client as it comes: the request went on with its own conditions.
    as_is: bool,
}

impl Filter for Gate {
    fn request<'a>(&'a self, flow: &'a mut Flow) -> Step<'a> {
        let here = &self.0;
        let method = flow.request.method();
        if !matches!(method, Method::Get | Method::Head) {
            let name = flow.request.method_name();
            if name == "PURGE" && here.caching.may_purge() {
                return Step::Answer(here.purge(flow));
            }
            let asking = if fresh::is_safe(name) { Asking::Passes("method") } else { Asking::Changes };
            return here.pass(flow, asking);
        }
        let lines = OfRequest(flow.request.headers());
        let preconditions = lines.has("if-match") || lines.has("if-unmodified-since");
        if flow.request.head().upgrade() || preconditions || !flow.request.body().is_empty() {
            return here.pass(flow, Asking::Passes("bypass"));
        }
        here.look_up(flow, method == Method::Head)
    }

    fn response<'a>(&'a self, flow: &'a mut Flow, mut response: Response) -> Answering<'a> {
        let here = &self.0;
        let response = match flow.request.extensions_mut().remove::<Asking>() {
            Some(Asking::Fetches(fetching)) => here.complete(flow, *fetching, response, true),
            Some(Asking::Changes) => {
                if matches!(response.status_code().code(), 200..=399) {
                    here.invalidate(flow, &response);
                }
                here.tell(&mut response, format_args!("fwd=method"));
                response
            }
            Some(Asking::Passes(why)) => {
                here.tell(&mut response, format_args!("fwd={why}"));
                response
            }
            // It was answered here.
            None => response,
        };
        let mut response = response;
        if let Some(cookie) = flow.context.take_cookie() {
            // It was made as a line.
            let _ = response.add_header("Set-Cookie", cookie);
        }
        Answering::Now(response)
    }
}

/// Returns the next piece of a body.
async fn next(pieces: &mut Pin<Box<dyn Stream<Item = Result<Piece, BoxError>>>>) -> Option<Result<Piece, BoxError>> {
    poll_fn(|context| pieces.as_mut().poll_next(context)).await
}

impl Here {
    fn rules(&self) -> &Rules {
        &self.caching.settings.rules
    }

    fn tell(&self, response: &mut Response, what: std::fmt::Arguments<'_>) {
        if self.caching.settings.tell {
            // It is made of words and digits.
            let _ = response.add_header("Cache-Status", format!("ringroad; {what}"));
        }
    }

    fn pass<'a>(&self, flow: &mut Flow, asking: Asking) -> Step<'a> {
        self.state.count(Told::Bypass);
        flow.request.extensions_mut().insert(asking);
        Step::Next
    }

    /// Returns the key: what a purge names. Scheme, route and further parts are the [place](Self::place).
    fn key(&self, authority: &str, scheme: &str, path: &str, query: Option<&str>) -> Vec<u8> {
        let mut key = Vec::with_capacity(authority.len() + path.len() + query.map_or(0, str::len) + 2);
        let port = if scheme == "https" { ":443" } else { ":80" };
        let authority = authority.strip_suffix(port).unwrap_or(authority);
        key.extend(authority.bytes().map(|byte| byte.to_ascii_lowercase()));
        key.push(0);
        key.extend_from_slice(path.as_bytes());
        let Some(query) = query else { return key };
        let Some(names) = &self.caching.settings.query else {
            key.push(b'?');
            key.extend_from_slice(query.as_bytes());
            return key;
        };
        let is_named = |pair: &&str| pair.split(';').any(|part| has_name_of(part, names));
        let mut mark = b'?';
        for pair in query.split('&').filter(is_named) {
            key.push(mark);
            key.extend_from_slice(pair.as_bytes());
            mark = b'&';
        }
        key
    }

    /// Returns the key of what the client has asked for (RFC 9111 §2). What a step has made of the path is
    /// part of the place: changes and purges name the public path, and an application may answer by that one.
    fn key_of(&self, flow: &Flow) -> Vec<u8> {
        let (path, query) = flow.public_path();
        self.key(flow.authority(), flow.scheme(), path, query)
    }

    /// Returns what an answer belongs to besides its key.
    fn place(&self, flow: &Flow) -> Vec<u8> {
        let mut place = Vec::with_capacity(16);
        place.push(u8::from(flow.scheme() == "https"));
        place.extend_from_slice(&flow.context.route.as_ref().map_or(0, |route| route.id).to_le_bytes());
        for one in &self.caching.settings.by {
            let mut put = |value: &[u8]| {
                place.extend_from_slice(&(value.len() as u32 + 1).to_le_bytes());
                place.extend_from_slice(value);
            };
            // All of several: an application may go by another one than the first.
            match one {
                By::Header(name) => flow.request.headers().get_all(name).for_each(put),
                By::Cookie(name) => cookies(&flow.request, name).for_each(put),
                By::Subject => flow.context.subject.as_deref().map(str::as_bytes).into_iter().for_each(&mut put),
            }
            place.extend_from_slice(&0_u32.to_le_bytes());
        }
        if flow.is_rewritten() {
            // Last, so that its length is known.
            let request = &flow.request;
            place.extend(self.key("", flow.scheme(), request.path(), request.query()));
        }
        place
    }

    fn look_up<'a>(self: &'a Rc<Self>, flow: &'a mut Flow, to_head: bool) -> Step<'a> {
        let (key, place) = (self.key_of(flow), self.place(flow));
        let lines = OfRequest(flow.request.headers());
        let asked = if lines.has("cache-control") || lines.has("pragma") { Asked::read(&lines) } else { Asked::default() };
        let now = flow.context.now();
        let resource = self.state.get(&key);
        let stored = resource.as_ref().and_then(|resource| resource.find(&place, &lines)).map(Arc::clone);
        let mut why = match (&stored, &resource) {
            (Some(_), _) => "stale",
            (None, Some(resource)) if resource.has_place(&place) => "vary-miss",
            _ => "uri-miss",
        };
        if let Some(stored) = &stored {
            let freshness = &stored.head.freshness;
            let resident = stored.head.resident(now);
            let left = match freshness.verdict(resident, &asked, self.rules()) {
                Verdict::Use(left) => Some(left),
                Verdict::Refresh(left) => {
                    if now >= stored.rests_until {
                        self.refresh(flow, &key, &place, stored, resource.as_deref());
                    }
                    Some(left)
                }
                Verdict::Stale if now < stored.rests_until && freshness.serves_errors(resident, self.rules()) => {
                    self.state.count(Told::Stale);
                    let mut response = stored.answer(&Asks { lines: &lines, to_head }, now, false);
                    self.tell(&mut response, format_args!("hit; detail=stale-if-error"));
                    return Step::Answer(response);
                }
                Verdict::Stale => None,
                Verdict::Request => {
                    why = "request";
                    None
                }
            };
            if let Some(left) = left {
                self.state.count(if left > 0 { Told::Hit } else { Told::Stale });
                let mut response = stored.answer(&Asks { lines: &lines, to_head }, now, false);
                self.tell(&mut response, format_args!("hit; ttl={left}"));
                return Step::Answer(response);
            }
        }
        if asked.only_if_cached {
            self.state.count(Told::Miss);
            return Step::Answer(only_if_cached(&flow.context));
        }
        if to_head {
            return self.pass(flow, Asking::Passes(why));
        }
        let key: Arc<[u8]> = key.into();
        // A range is of use for others only where the whole is known.
        let ranged = stored.is_none() && lines.has("range");
        if ranged || resource.as_ref().is_some_and(|resource| resource.is_marked(&place, now)) {
            self.state.count(Told::Bypass);
            let why = if ranged { why } else { "bypass" };
            let lead = self.state.alone(&key);
            self.ask(flow, lead, place.into(), None, why, true);
            return Step::Next;
        }
        // What must be asked about each time cannot be shared.
        let is_shared = stored.as_ref().is_none_or(|stored| is_shared(&stored.head.freshness));
        if !self.caching.settings.collapse || !is_shared {
            let lead = self.state.alone(&key);
            self.ask(flow, lead, place.into(), stored, why, false);
            return Step::Next;
        }
        let fill_key = Resource::fill_key(resource.as_deref(), &key, &place, &lines);
        match self.state.join(&key, fill_key.clone()) {
            Part::Leads(lead) => {
                if let Some(response) = self.kept_meanwhile(&key, &place, &lines, &asked, now) {
                    return Step::Answer(response);
                }
                self.ask(flow, lead, place.into(), stored, why, false);
                Step::Next
            }
            Part::Follows(fill) => {
                let waiting = Waiting { key, place: place.into(), fill_key, asked, stored, why };
                Step::Wait(Box::pin(self.wait(flow, fill, waiting)))
            }
        }
    }

    /// Answers with what another fetch has kept since the store was asked: that fetch may have ended between
    /// the look-up and the lead.
    fn kept_meanwhile(
        &self,
        key: &[u8],
        place: &[u8],
        lines: &OfRequest<'_>,
        asked: &Asked,
        now: Nanos,
    ) -> Option<Response> {
        let resource = self.state.get(key)?;
        let found = resource.find(place, lines)?;
        let verdict = found.head.freshness.verdict(found.head.resident(now), asked, self.rules());
        let Verdict::Use(left) = verdict else { return None };
        self.state.count(Told::Hit);
        let mut response = found.answer(lines, now, false);
        self.tell(&mut response, format_args!("hit; ttl={left}"));
        Some(response)
    }

    /// Makes the request one for all that want its answer, and notes what it is.
    fn ask(
        &self,
        flow: &mut Flow,
        lead: Lead,
        place: Box<[u8]>,
        stored: Option<Arc<Stored>>,
        why: &'static str,
        as_is: bool,
    ) {
        let request = &mut flow.request;
        let lines = OfRequest(request.headers());
        let facts = Facts {
            authorization: lines.has("authorization"),
            identified: flow.context.known,
            no_store: lines.has("cache-control") && Asked::read(&lines).no_store,
        };
        let mut conditions = FieldBlock::new();
        if !as_is {
            for name in CONDITIONS {
                for value in request.headers().get_all(name) {
                    // It was a line of a request.
                    let _ = conditions.push(name.as_bytes(), value);
                }
                request.remove_header(name);
            }
        }
        if let Some(stored) = &stored {
            for (name, of) in [("If-None-Match", "etag"), ("If-Modified-Since", "last-modified")] {
                if let Some(value) = stored.head.lines.get(of) {
                    // Without room for one more line it is asked for as a whole.
                    let _ = request.set_header(name, value);
                }
            }
        }
        let began = flow.context.now();
        let fetching = Fetching { lead, place, stored, facts, conditions, why, began, as_is };
        request.extensions_mut().insert(Asking::Fetches(Box::new(fetching)));
    }

    /// Waits for the fetch of another request. `None`: this one is to fetch.
    async fn wait(self: &Rc<Self>, flow: &mut Flow, mut fill: Arc<Fill>, waiting: Waiting) -> Option<Response> {
        let Waiting { key, place, fill_key, asked, mut stored, why } = waiting;
        let begun = Instant::now();
        loop {
            let mut left = self.caching.settings.wait.saturating_sub(begun.elapsed());
            if let Some(to_answer) = flow.context.time_left() {
                left = left.min(to_answer);
            }
            let Ok(fetch) = time::timeout(left, fill.answered()).await else {
                self.state.wait_is_over();
                break;
            };
            let lines = OfRequest(flow.request.headers());
            let now = flow.context.now();
            match fetch {
                Fetch::Whole(whole) if whole.head.fits(&place, &lines) => {
                    let is_stale = whole.rests_until > now;
                    self.state.count(if is_stale { Told::Stale } else { Told::Collapsed });
                    let mut response = whole.answer(&lines, now, true);
                    let detail = if is_stale { "; detail=stale-if-error" } else { "" };
                    self.tell(&mut response, format_args!("fwd={why}; collapsed{detail}"));
                    return Some(response);
                }
                Fetch::Streaming(head, size) if head.fits(&place, &lines) => {
                    let Some(reader) = fill.reader() else { break };
                    self.state.count(Told::Collapsed);
                    let response = head.not_modified(&lines, now, true);
                    let mut response = response.unwrap_or_else(|| {
                        let body = match size {
                            Some(size) => Body::stream_of(size, reader),
                            None => Body::stream(reader),
                        };
                        head.response(head.status, body, now, true)
                    });
                    self.tell(&mut response, format_args!("fwd={why}; collapsed"));
                    return Some(response);
                }
                Fetch::Refused(status) => {
                    self.state.count(Told::Collapsed);
                    let what = "The fetch that this request has waited for has failed.";
                    let mut refused = page::refusal(status, &flow.context, what);
                    let _ = refused.set_header("Retry-After", "1");
                    self.tell(&mut refused, format_args!("fwd={why}; collapsed; fwd-status={}", status.code()));
                    return Some(refused);
                }
                Fetch::Gone => match self.state.join(&key, fill_key.clone()) {
                    Part::Follows(next) => fill = next,
                    Part::Leads(lead) => {
                        if let Some(response) = self.kept_meanwhile(&key, &place, &lines, &asked, now) {
                            return Some(response);
                        }
                        self.ask(flow, lead, place, stored, why, false);
                        return None;
                    }
                },
                // Another variant, or an answer for one request only.
                _ => break,
            }
        }
        let resource = self.state.get(&key);
        let found = resource.as_ref().and_then(|resource| resource.find(&place, &OfRequest(flow.request.headers())));
        stored = found.map(Arc::clone).or(stored);
        self.ask(flow, self.state.alone(&key), place, stored, why, false);
        None
    }

    /// Asks for a stale answer again, beside the request that gets it.
    fn refresh(self: &Rc<Self>, flow: &Flow, key: &[u8], place: &[u8], stored: &Arc<Stored>, resource: Option<&Resource>) {
        let Some(behind) = flow.context.behind.clone() else { return };
        let key: Arc<[u8]> = key.into();
        let lines = OfRequest(flow.request.headers());
        let fill_key = Resource::fill_key(resource, &key, place, &lines);
        let Part::Leads(lead) = self.state.join(&key, fill_key) else { return };
        // Another refresh may have ended between the look-up and the lead.
        let newest = self.state.get(&key);
        let newest = newest.as_ref().and_then(|resource| resource.find(place, &lines));
        if newest.is_some_and(|newest| !Arc::ptr_eq(newest, stored)) {
            return;
        }
        let mut again = flow.again();
        self.ask(&mut again, lead, place.into(), Some(Arc::clone(stored)), "stale", false);
        let here = Rc::clone(self);
        let refreshing = async move {
            let (mut flow, response) = behind.answer(again).await;
            if let Some(Asking::Fetches(fetching)) = flow.request.extensions_mut().remove::<Asking>() {
                drop(here.complete(&mut flow, *fetching, response, false));
            }
        };
        spawn(refreshing).detach();
    }

    /// Decides what becomes of an endpoint's answer, and makes the client's of it.
    fn complete(self: &Rc<Self>, flow: &mut Flow, fetching: Fetching, response: Response, counts: bool) -> Response {
        let Fetching { mut lead, place, stored, facts, conditions, why, began, as_is } = fetching;
        let count = |told: Told| if counts { self.state.count(told) };
        let (mut response, now) = (response, flow.context.now());
        let code = response.status_code().code();
        let is_refused = flow.context.is_refused();
        if let Some(stored) = &stored {
            if code == 304 && !as_is {
                let updated = self.update(flow, stored, &response, facts, began);
                count(Told::Revalidated);
                let answer = match updated {
                    Ok(updated) => {
                        lead.keep(&updated);
                        let stage = shared(&updated.head.freshness, Fetch::Whole(Arc::clone(&updated)));
                        lead.fill.set(stage);
                        updated
                    }
                    Err(_) => {
                        // It is good for this request and not to be kept any longer.
                        self.state.drop_stored(lead.key(), stored);
                        lead.give_up(Fetch::NotShared);
                        Arc::clone(stored)
                    }
                };
                let mut response = answer.answer(&OfBlock(&conditions), now, true);
                self.tell(&mut response, format_args!("fwd={why}; fwd-status=304"));
                return response;
            }
            let resident = stored.head.resident(now);
            if matches!(code, 500 | 502..=504) && stored.head.freshness.serves_errors(resident, self.rules()) {
                let resting = Arc::new(Stored {
                    head: Arc::clone(&stored.head),
                    body: Arc::clone(&stored.body),
                    rests_until: now + REST,
                });
                lead.keep(&resting);
                lead.fill.set(Fetch::Whole(Arc::clone(&resting)));
                flow.context.pardon();
                count(Told::Stale);
                let mut response = stored.answer(&OfBlock(&conditions), now, false);
                self.tell(&mut response, format_args!("fwd={why}; fwd-status={code}; detail=stale-if-error"));
                return response;
            }
        }
        if !as_is {
            count(Told::Miss);
        }
        // Those that wait do not all ask a server that is in trouble.
        if is_refused && code >= 500 || matches!(code, 502..=504) && !states_lifetime(&response) {
            let status = response.status_code();
            lead.give_up(Fetch::Refused(status));
            self.tell(&mut response, format_args!("fwd={why}"));
            return response;
        }
        let judged = self.judge(flow, &response, facts, began);
        let (freshness, date) = match judged {
            Ok(judged) => judged,
            Err(not) => {
                if code < 500 && !matches!(code, 206 | 304) && !facts.no_store {
                    if let Some(stored) = &stored {
                        self.state.drop_stored(lead.key(), stored);
                    }
                    self.state.mark(lead.key(), &place, now + self.caching.settings.pass_for);
                }
                lead.give_up(Fetch::NotShared);
                self.tell(&mut response, format_args!("fwd={why}; detail={}", not.word()));
                return response;
            }
        };
        let size = response.body().size();
        if size.is_some_and(|size| size > self.state.object()) {
            self.state.mark(lead.key(), &place, now + self.caching.settings.pass_for);
            lead.give_up(Fetch::NotShared);
            self.tell(&mut response, format_args!("fwd={why}; detail=too-long"));
            return response;
        }
        let request = OfRequest(flow.request.headers());
        let vary = vary::names(&OfResponse(&response)).unwrap_or_default();
        let head = Arc::new(Head {
            status: response.status_code(),
            lines: Head::lines(&response, date.as_bytes(), &freshness),
            variant: vary::key(&vary, &request),
            vary,
            freshness,
            came: now,
            came_wall: fresh::wall(SystemTime::now()),
            place,
        });
        let body = response.take_body();
        let mut answer = match body.as_bytes() {
            Some(bytes) => {
                let stored = Arc::new(Stored { head: Arc::clone(&head), body: bytes.into(), rests_until: 0 });
                lead.keep(&stored);
                lead.fill.set(shared(&head.freshness, Fetch::Whole(Arc::clone(&stored))));
                stored.answer(&OfBlock(&conditions), now, true)
            }
            None => {
                let reader = lead.fill.reader();
                lead.fill.set(shared(&head.freshness, Fetch::Streaming(Arc::clone(&head), size)));
                let mark = now + self.caching.settings.pass_for;
                spawn(pump(lead, body, Arc::clone(&head), size, mark)).detach();
                head.not_modified(&OfBlock(&conditions), now, true).unwrap_or_else(|| {
                    let body = match (reader, size) {
                        (Some(reader), Some(size)) => Body::stream_of(size, reader),
                        (Some(reader), None) => Body::stream(reader),
                        // A fetch has all of its bytes before it has begun.
                        (None, _) => Body::empty(),
                    };
                    head.response(head.status, body, now, true)
                })
            }
        };
        self.tell(&mut answer, format_args!("fwd={why}; stored"));
        answer
    }

    /// Judges an answer; with its date.
    fn judge(
        &self,
        flow: &Flow,
        response: &Response,
        facts: Facts,
        began: Nanos,
    ) -> Result<(Freshness, String), fresh::NotStored> {
        let wall = SystemTime::now();
        let lines = OfResponse(response);
        let date = lines.first("date").filter(|date| fresh::date(date).is_some());
        let date = date.unwrap_or_else(|| httpdate::fmt_http_date(wall));
        let delay = flow.context.now().saturating_sub(began) / SECOND;
        let code = response.status_code().code();
        fresh::judge(facts, code, &lines, (fresh::wall(wall), delay), self.rules()).map(|freshness| (freshness, date))
    }

    /// Merges a 304 into the kept answer (RFC 9111 §4.3.4).
    fn update(
        &self,
        flow: &Flow,
        stored: &Stored,
        response: &Response,
        facts: Facts,
        began: Nanos,
    ) -> Result<Arc<Stored>, fresh::NotStored> {
        let now = flow.context.now();
        let wall = SystemTime::now();
        let date = OfResponse(response).first("date").filter(|date| fresh::date(date).is_some());
        let date = date.unwrap_or_else(|| httpdate::fmt_http_date(wall));
        let before = &stored.head;
        let lines = before.updated(response, date.as_bytes());
        let delay = now.saturating_sub(began) / SECOND;
        // `Age` is not kept, and holds for this answer.
        let merged = Merged { lines: &lines, response };
        let freshness =
            fresh::judge(facts, before.status.code(), &merged, (fresh::wall(wall), delay), self.rules())?;
        let head = Head {
            status: before.status,
            lines,
            freshness,
            came: now,
            came_wall: fresh::wall(wall),
            place: before.place.clone(),
            vary: before.vary.clone(),
            variant: before.variant.clone(),
        };
        Ok(Arc::new(Stored { head: Arc::new(head), body: Arc::clone(&stored.body), rests_until: 0 }))
    }

    /// Removes what an unsafe method has made void (RFC 9111 §4.4).
    fn invalidate(&self, flow: &Flow, response: &Response) {
        let (authority, scheme) = (flow.authority(), flow.scheme());
        let (path, _) = flow.public_path();
        self.state.purge(Purge::Key(&self.key_of(flow)));
        let named = ["location", "content-location"].into_iter().filter_map(|name| {
            on_this_host(&OfResponse(response).first(name)?, authority, path)
        });
        let purge = |target: &str| {
            let (path, query) = match target.split_once('?') {
                Some((path, query)) => (path, Some(query)),
                None => (target, None),
            };
            self.state.purge(Purge::Key(&self.key(authority, scheme, path, query)));
        };
        // An endpoint behind a rewrite may name a place by the paths that it is asked for.
        let below = flow.context.route_path().len();
        let rewritten = Some(flow.request.path()).filter(|_| flow.is_rewritten());
        let beginnings = rewritten.and_then(|sent| path::beginnings(path, below, sent));
        for target in named.chain(flow.context.take_void()) {
            purge(&target);
            if let Some((behind, here)) = beginnings
                && let Some(below) = target.strip_prefix(behind)
                && (behind.ends_with('/') || below.is_empty() || below.starts_with('?'))
            {
                purge(&format!("{here}{below}"));
            }
        }
    }

    /// Removes what a PURGE names.
    fn purge(&self, flow: &Flow) -> Response {
        let refuse = |status: Status, what: &str| page::refusal(status, &flow.context, what);
        if let Some(from) = &self.caching.settings.purge_from {
            let client = flow.see_client();
            let is_meant = client.is_some_and(|client| from.iter().any(|net| net.contains(&client.to_canonical())));
            if !is_meant {
                return refuse(Status::FORBIDDEN, "Purging is not for this address.");
            }
        }
        if let Some(auth) = &self.caching.purge_auth
            && auth.identify(&flow.request).is_none()
        {
            let mut refused = refuse(Status::UNAUTHORIZED, "This needs valid credentials.");
            // A realm is visible ASCII without quotes.
            let _ = refused.set_header("WWW-Authenticate", auth.challenge(false));
            return refused;
        }
        let lines = OfRequest(flow.request.headers());
        let (mut count, mut tagged) = (0, false);
        lines.each("cache-tag", &mut |list| {
            for tag in list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|tag| !tag.is_empty()) {
                tagged = true;
                count += self.state.purge(Purge::Tag(tag));
            }
        });
        if !tagged {
            let (path, _) = flow.public_path();
            count = match path.strip_suffix('*') {
                Some(beginning) => {
                    let authority = flow.authority();
                    let prefix = self.key(authority, flow.scheme(), beginning, None);
                    self.state.purge(Purge::Prefix(&prefix))
                }
                None => self.state.purge(Purge::Key(&self.key_of(flow))),
            };
        }
        let mut told = String::new();
        // Writing to a string does not fail.
        let _ = writeln!(told, "{{\"purged\":{count}}}");
        let mut response = Response::new(told).content_type(ContentType::Json);
        let _ = response.set_header("Cache-Control", "no-store");
        response
    }
}

/// What a request that waits knows.
struct Waiting {
    key: Arc<[u8]>,
    place: Box<[u8]>,
    fill_key: FillKey,
    asked: Asked,
    stored: Option<Arc<Stored>>,
    why: &'static str,
}

/// Kept lines after an update, with the `Age` of the answer that has brought it.
struct Merged<'m> {
    lines: &'m FieldBlock,
    response: &'m Response,
}

impl Lines for Merged<'_> {
    fn each(&self, name: &str, take: &mut dyn FnMut(&[u8])) {
        match name {
            "age" => OfResponse(self.response).each(name, take),
            name => OfBlock(self.lines).each(name, take),
        }
    }
}

/// The lines of a GET or HEAD. A range is for GET only (RFC 9110 §14.2).
struct Asks<'r> {
    lines: &'r OfRequest<'r>,
    to_head: bool,
}

impl Lines for Asks<'_> {
    fn each(&self, name: &str, take: &mut dyn FnMut(&[u8])) {
        if !(self.to_head && name == "range") {
            self.lines.each(name, take);
        }
    }
}

/// Returns whether an answer says how long it lives.
fn states_lifetime(response: &Response) -> bool {
    ["cache-control", "cdn-cache-control", "expires"].iter().any(|name| response.header_value(name).is_some())
}

/// Returns whether an answer may be for other requests than its own, if only for a moment.
fn is_shared(freshness: &Freshness) -> bool {
    !freshness.ask && freshness.lifetime > freshness.age
}

/// Returns the stage of a fetch for those that wait.
fn shared(freshness: &Freshness, stage: Fetch) -> Fetch {
    if is_shared(freshness) { stage } else { Fetch::NotShared }
}

/// Takes a body from the endpoint as fast as that gives it, for all readers and for the store.
async fn pump(mut lead: Lead, body: Body, head: Arc<Head>, size: Option<u64>, mark: Nanos) {
    let most = usize::try_from(lead.state().object()).unwrap_or(usize::MAX);
    let (mut pieces, mut bytes, mut keeps) = (body.into_pieces(), 0_usize, true);
    loop {
        match next(&mut pieces).await {
            Some(Ok(Piece::Data(piece))) if piece.is_empty() => {}
            Some(Ok(Piece::Data(piece))) => {
                bytes += piece.len();
                lead.fill.push(Arc::from(&*piece));
                if keeps && bytes > most {
                    keeps = false;
                    lead.unlist();
                    lead.state().mark(lead.key(), &head.place, mark);
                    lead.fill.keep_no_longer();
                }
                // With readers only, what they are slow to take is not held without bound.
                if !keeps && !lead.fill.room(most).await {
                    return;
                }
            }
            // What is kept has no trailers.
            Some(Ok(Piece::Trailers(_))) => {}
            Some(Err(why)) => {
                lead.fill.end(Err(why.to_string().into()));
                return;
            }
            None => {
                let whole = lead.fill.end(Ok(()));
                let complete = size.is_none_or(|size| size == bytes as u64);
                if let Some(body) = whole.filter(|_| complete) {
                    lead.keep(&Arc::new(Stored { head, body, rests_until: 0 }));
                }
                return;
            }
        }
    }
}

/// Returns whether a part of a query has one of these names to some reader: escapes in it are decoded, and
/// `a[]` and `a[x]` are `a` to PHP and others. To some `;` begins a new part, for which this is asked by
/// itself.
fn has_name_of(part: &str, names: &[String]) -> bool {
    let Some((name, _)) = form_urlencoded::parse(part.as_bytes()).next() else { return false };
    let name = name.split('[').next().unwrap_or_default();
    names.iter().any(|known| known == name)
}

/// Returns the path and query that a line names, if they are on this host.
fn on_this_host(place: &str, authority: &str, base: &str) -> Option<String> {
    let place = place.split('#').next().unwrap_or_default();
    let absolute = place.split_once("://").filter(|(scheme, _)| scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    let rest = match absolute {
        Some((_, rest)) => Some(rest),
        None => place.strip_prefix("//"),
    };
    if let Some(rest) = rest {
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (host, target) = rest.split_at_checked(end)?;
        let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
        return host.eq_ignore_ascii_case(authority).then_some(target);
    }
    match place.as_bytes().first()? {
        b'/' => Some(place.to_owned()),
        b'?' => Some(format!("{base}{place}")),
        _ => {
            let folder = base.rfind('/').and_then(|end| base.get(..=end)).unwrap_or("/");
            Some(format!("{folder}{place}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_of_this_host_or_none() {
        for (place, expected) in [
            ("/a?b#c", Some("/a?b")),
            ("a", Some("/x/a")),
            ("?q", Some("/x/y?q")),
            ("http://h:1/a", Some("/a")),
            ("https://H:1?q", Some("/?q")),
            ("//h:1/a", Some("/a")),
            ("http://other/a", None),
            ("//other/a", None),
            ("", None),
        ] {
            assert_eq!(on_this_host(place, "h:1", "/x/y").as_deref(), expected, "{place}");
        }
    }
}
