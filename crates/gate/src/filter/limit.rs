//! `[limit.NAME]` and `limit = "NAME"`: how many requests a client may make, and how many at once.
//!
//! A limit counts by a key: a hash of the client's address, the route, the caller's name, header lines. Rates
//! are decided by the generic cell rate algorithm in a table of fixed size ([`ringroad_policy::gcra`]);
//! requests at once are counted in a map that holds only keys with a request in progress. One table serves
//! all workers and survives a reload.
//!
//! A limit with a `store` is counted there, together with other servers; [`shared`] has that.
//!
//! [`Gate`] is the step. A route has one before authentication, and one behind it for the limits that count
//! by the caller's name. Each asks all of its limits, and a refusal gives back what the other limits of the
//! route have counted.

mod shared;

use crate::chain::{Answering, Builder, Filter, Step};
use crate::client::network;
use crate::feature::{Configured, Declaration, Feature, Named, NamedTables, Reading, Scope};
use crate::flow::{Flow, Local, cookie, host};
use crate::metrics::{Families, label};
use crate::page;
use crate::stage::Stage;
use crate::store;
use crate::words;
use aws_lc_rs::digest::{Context as Digest, SHA256};
use ringroad_http::{Response, Status};
use ringroad_policy::{Nanos, SECOND};
use ringroad_policy::gcra::{Decision, Quota, Table as Words};
use ringroad_settings::{Key, Section, Table, Value, value};
use ringroad_stores::redis::Client;
use ringroad_wire::put_decimal;
use shared::{Arguments, Shared, Sharing, WhenFails};
use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

pub(super) static DECLARATION: Declaration = Declaration {
    key: Key {
        name: "limit",
        form: "name or list of names, as `[\"per_ip\", \"quota\"]`",
        default: "-",
        meaning: "Limits of requests, each a `[limit.NAME]`. A request passes if all of them allow it.",
    },
    tables: &[&TABLE],
    scope: Scope::Route,
    read,
    named: Some(Named {
        key: Key {
            name: "limit",
            form: "named tables",
            default: "-",
            meaning: "`[limit.NAME]` is a limit of requests, see below.",
        },
        read: read_limit,
    }),
};

static TABLE: Table = Table {
    name: "[limit.NAME]",
    meaning: "How many requests one key may make (`rate`), have in progress (`at_once`), or both. What is more is refused with \
        429 and `Retry-After`. All workers count together, and a reload keeps the counts. Routes name it in `limit`.",
    keys: &[
        Key {
            name: "key",
            form: "`\"ip\"`, `\"route\"`, `\"host\"`, `\"subject\"`, `\"header.NAME\"`, `\"cookie.NAME\"`, `\"query.NAME\"`, or a list of them",
            default: "ip",
            meaning: "What is counted by. `ip` is the client's address, of IPv6 its network of 64 bits. `subject` is the name of the caller that the route's `auth` has found. Requests without the line, the cookie or the name count together. A list counts each combination.",
        },
        Key {
            name: "rate",
            form: "rate, as `\"50/s\"`, `\"1000/m\"`",
            default: "-",
            meaning: "Requests in the long run.",
        },
        Key {
            name: "burst",
            form: "1 or more",
            default: "the count of `rate`",
            meaning: "Requests at once after a time without any.",
        },
        Key {
            name: "at_once",
            form: "1 or more",
            default: "-",
            meaning: "Requests in progress, until the last byte of their answers.",
        },
        Key {
            name: "keys",
            form: "512 to 16777216",
            default: "65536",
            meaning: "Keys that are remembered, 16 bytes each. Beyond that, the one nearest to its whole burst is forgotten.",
        },
        Key {
            name: "store",
            form: "`\"redis.NAME\"`",
            default: "-",
            meaning: "A `[redis.NAME]` in which several servers count together. Its clock counts. A refusal is remembered until its time is over, and costs the store nothing more.",
        },
        Key {
            name: "when_store_fails",
            form: "`\"local\"`, `\"open\"` or `\"closed\"`",
            default: "local",
            meaning: "Without an answer in time each server counts for itself, or the request passes, or it is refused with 503.",
        },
        Key {
            name: "nodes",
            form: "1 or more",
            default: "1",
            meaning: "Servers that share the store. While it fails, each allows its share of the rate (`local`).",
        },
        Key {
            name: "tell",
            form: "true or false",
            default: "true",
            meaning: "Answers have `RateLimit` and `RateLimit-Policy` of the tightest limit of the route.",
        },
    ],
};

/// Locks of the counts of requests in progress.
const SHARDS: usize = 16;

/// What a limit counts by.
#[derive(Clone, Debug, PartialEq, Eq)]
enum By {
    Ip,
    Route,
    Host,
    Subject,
    Header(String),
    Cookie(String),
    Query(String),
}

#[derive(Clone, Debug, PartialEq)]
struct Settings {
    name: String,
    by: Vec<By>,
    quota: Option<Quota>,
    at_once: Option<u32>,
    keys: usize,
    tell: bool,
    sharing: Option<Sharing>,
}

/// What is counted, for all workers.
struct State {
    hasher: RandomState,
    words: Words,
    in_progress: [Mutex<HashMap<u64, u32>>; SHARDS],
    allowed: AtomicU64,
    refused: AtomicU64,
    /// Refused because the store does not answer.
    unavailable: AtomicU64,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "State({} bytes)", self.words.bytes())
    }
}

impl State {
    fn new(keys: usize) -> Arc<State> {
        let hasher = RandomState::new();
        let words = Words::new(keys, hasher.hash_one(0_u8));
        let in_progress = std::array::from_fn(|_| Mutex::default());
        Arc::new(State { hasher, words, in_progress, allowed: AtomicU64::new(0), refused: AtomicU64::new(0), unavailable: AtomicU64::new(0) })
    }

    fn with_count<T>(&self, key: u64, act: impl FnOnce(&mut HashMap<u64, u32>) -> T) -> T {
        #[allow(clippy::indexing_slicing, reason = "the remainder is below the length, which is SHARDS")]
        let shard = &self.in_progress[key as usize % SHARDS];
        act(&mut shard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts a request in progress, unless there are `most`.
    fn enter(self: &Arc<Self>, key: u64, most: u32) -> Option<InProgress> {
        let entered = self.with_count(key, |counts| {
            let count = counts.entry(key).or_default();
            let free = *count < most;
            *count += u32::from(free);
            free
        });
        entered.then(|| InProgress { state: Arc::clone(self), key })
    }
}

/// A request in progress, until it is dropped.
struct InProgress {
    state: Arc<State>,
    key: u64,
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.state.with_count(self.key, |counts| {
            if let Some(count) = counts.get_mut(&self.key) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(&self.key);
                }
            }
        });
    }
}

/// A limit, as it is configured.
#[derive(Debug)]
struct Limit {
    settings: Settings,
    /// What `RateLimit-Policy` says of it.
    policy: String,
    /// Shared with the limit of the same name of the configuration before.
    state: Mutex<Arc<State>>,
    /// Where it has a store.
    shared: Option<Arc<Shared>>,
}

impl Limit {
    fn state(&self) -> Arc<State> {
        Arc::clone(&self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Configured for Limit {
    fn same_as(&self, other: &dyn Any) -> bool {
        other.downcast_ref::<Limit>().is_some_and(|other| {
            let stores = [self, other].map(|limit| limit.shared.as_deref());
            let one_store = match stores {
                [Some(own), Some(other)] => own.is_as(other),
                [own, other] => own.is_none() && other.is_none(),
            };
            self.settings == other.settings && one_store
        })
    }

    fn adopt(&self, before: &dyn Any) {
        if let Some(before) = before.downcast_ref::<Limit>()
            && before.settings.by == self.settings.by
            && before.settings.keys == self.settings.keys
        {
            *self.state.lock().unwrap_or_else(PoisonError::into_inner) = before.state();
        }
    }

    fn metrics(&self, labels: &str, out: &mut Families) {
        let state = self.state();
        let help = "Requests that a limit has allowed and refused.";
        let mut family = out.family("ringroad_limit_decisions_total", "counter", help);
        let decisions =
            [("allowed", &state.allowed), ("refused", &state.refused), ("unavailable", &state.unavailable)];
        for (decision, count) in decisions {
            let labels = format!("{labels},{}", label("decision", decision));
            family.sample(&labels, count.load(Ordering::Relaxed));
        }
        let Some(shared) = &self.shared else { return };
        let help = "Requests of a limit with a store: asked there, refused from memory, without an answer.";
        let mut family = out.family("ringroad_limit_store_total", "counter", help);
        let results =
            [("asked", &shared.asked), ("remembered", &shared.remembered), ("failed", &shared.failed)];
        for (result, count) in results {
            let labels = format!("{labels},{}", label("result", result));
            family.sample(&labels, count.load(Ordering::Relaxed));
        }
    }
}

fn read_limit(name: &str, mut section: Section<'_>, tables: &NamedTables) -> Option<Arc<dyn Configured>> {
    section.describe(&TABLE);
    let plain = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b'"' && byte != b'\\';
    if name.is_empty() || !name.bytes().all(plain) {
        section.mistake("", "the name of a limit is in header lines: expected visible ASCII without quotes");
    }
    let by = section.read("key", |value| value::some(value, "what to count by", by));
    let rate = section.read("rate", value::rate);
    let burst = section.read("burst", |value| value::count(value, 1, 1 << 30));
    let at_once = section.read("at_once", |value| value::count(value, 1, u64::from(u32::MAX)));
    let keys = section.read("keys", |value| value::count(value, 512, 1 << 24));
    let tell = section.read("tell", value::truth).unwrap_or(true);
    // Also where no route names this limit: a mistake is told before it matters.
    let found = section.read("store", |value| {
        let store = store::name(value)?;
        store::find(tables, &store).map(|found| (store, found))
    });
    let (store, found) = found.unzip();
    let when_fails = section.read("when_store_fails", |value| value::one_of(value, shared::WORDS));
    let nodes = section.read("nodes", |value| value::count(value, 1, 1 << 16));
    for key in ["when_store_fails", "nodes"] {
        if section.has(key) && !section.has("store") {
            section.mistake(key, "expected with `store`");
        }
    }
    if section.has("store") && !section.has("rate") {
        section.mistake("store", "expected with `rate`: requests in progress are counted by each server");
    }
    if !section.has("rate") && !section.has("at_once") {
        section.mistake("rate", "expected `rate`, as \"50/s\", `at_once`, or both");
    }
    if section.has("burst") && !section.has("rate") {
        section.mistake("burst", "expected with `rate`");
    }
    // A limit that is wrong must not become a wider one.
    let whole = by.is_some() == section.has("key")
        && rate.is_some() == section.has("rate")
        && burst.is_some() == section.has("burst")
        && at_once.is_some() == section.has("at_once")
        && store.is_some() == section.has("store")
        && when_fails.is_some() == section.has("when_store_fails");
    section.finish();
    let quota = rate.map(|rate| Quota::new(rate.count, rate.per, burst.unwrap_or(rate.count)));
    let keys = keys.unwrap_or(65536) as usize;
    let settings = Settings {
        name: name.to_owned(),
        by: by.unwrap_or_else(|| vec![By::Ip]),
        quota,
        at_once: at_once.and_then(|most| u32::try_from(most).ok()),
        keys,
        tell,
        sharing: store.map(|store| Sharing {
            store,
            when_fails: when_fails.unwrap_or(WhenFails::Local),
            nodes: nodes.unwrap_or(1),
        }),
    };
    let shared = found.map(|found| Arc::new(Shared::new(found)));
    let policy = settings.quota.as_ref().map(|quota| policy(&settings.name, quota)).unwrap_or_default();
    let limit = || Limit { settings, policy, state: Mutex::new(State::new(keys)), shared };
    whole.then(|| Arc::new(limit()) as Arc<dyn Configured>)
}

const EXPECTED: &str = "\"ip\", \"route\", \"host\", \"subject\", \"header.NAME\", \"cookie.NAME\" or \"query.NAME\"";

fn by(value: &Value<'_>) -> Result<By, String> {
    let text = value::text(value)?;
    match text.split_once('.') {
        None if text == "ip" => Ok(By::Ip),
        None if text == "route" => Ok(By::Route),
        None if text == "host" => Ok(By::Host),
        None if text == "subject" => Ok(By::Subject),
        Some(("header", name)) => words::check_name(name).map(|()| By::Header(name.to_owned())),
        Some(("cookie", name)) => words::check_name(name).map(|()| By::Cookie(name.to_owned())),
        Some(("query", name)) if !name.is_empty() => Ok(By::Query(name.to_owned())),
        _ => Err(value::found(EXPECTED, value)),
    }
}

fn read(section: &Section<'_>, reading: &Reading<'_>) -> Option<Arc<dyn Feature>> {
    let name = DECLARATION.key.name;
    let limits = section.read(name, |value| {
        value::some(value, "names of limits", |value| {
            let limit = reading.tables.get::<Limit>(name, &value::text(value)?)?;
            // Without a caller's name all clients of the route would be one.
            if limit.settings.by.contains(&By::Subject) && !section.has("auth") {
                let name = &limit.settings.name;
                return Err(format!(
                    "[limit.{name}] counts by `subject`, the caller that `auth` finds: give this route an `auth`, or the limit another `key`"
                ));
            }
            Ok(limit)
        })
    })?;
    Some(Arc::new(Limits { limits }))
}

/// The limits of a route.
#[derive(Debug)]
struct Limits {
    limits: Vec<Arc<Limit>>,
}

impl Configured for Limits {
    fn same_as(&self, other: &dyn Any) -> bool {
        other.downcast_ref::<Limits>().is_some_and(|other| {
            self.limits.len() == other.limits.len()
                && self.limits.iter().zip(&other.limits).all(|(own, other)| own.same_as(&**other))
        })
    }
}

impl Feature for Limits {
    fn install(self: Arc<Self>, _: &Rc<Local>, chain: &mut Builder) {
        for (stage, by_subject) in [(Stage::Admit, false), (Stage::Quota, true)] {
            let here = self.limits.iter().filter(|limit| limit.settings.by.contains(&By::Subject) == by_subject);
            let limits: Vec<_> = here.map(|limit| (Arc::clone(limit), limit.state())).collect();
            let stores = self.limits.iter().filter(|limit| limit.settings.by.contains(&By::Subject) == by_subject);
            let stores: Vec<_> = stores.filter_map(InStore::new).collect();
            if !limits.is_empty() {
                chain.add(stage, Rc::new(Gate { limits, stores }));
            }
        }
    }
}

/// The step of one route on one worker, at one stage.
struct Gate {
    limits: Vec<(Arc<Limit>, Arc<State>)>,
    /// Those of them that count in a store.
    stores: Vec<InStore>,
}

/// A limit that counts in a store, on one worker.
struct InStore {
    limit: Arc<Limit>,
    state: Arc<State>,
    shared: Arc<Shared>,
    client: Client,
    sharing: Sharing,
    quota: Quota,
    arguments: Arguments,
}

impl InStore {
    fn new(limit: &Arc<Limit>) -> Option<InStore> {
        let shared = Arc::clone(limit.shared.as_ref()?);
        let quota = limit.settings.quota?;
        Some(InStore {
            limit: Arc::clone(limit),
            state: limit.state(),
            client: shared.client(),
            shared,
            sharing: limit.settings.sharing.clone()?,
            quota,
            arguments: Arguments::new(&quota),
        })
    }
}

/// What the limits of a request have done so far. Requests in progress are over when its answer was sent.
#[derive(Default)]
struct Asked {
    held: Vec<InProgress>,
    counted: Vec<Counted>,
    counted_in_stores: Vec<(Client, String, Arguments)>,
    tightest: Option<Tightest>,
}

/// One request that a limit has counted, and that it gives back if another limit refuses the request.
struct Counted {
    state: Arc<State>,
    key: u64,
    quota: Quota,
}

/// The limit that leaves the client the least.
struct Tightest {
    limit: Arc<Limit>,
    decision: Decision,
}

/// Hashes what a limit counts by.
fn key(state: &State, by: &[By], flow: &Flow) -> u64 {
    let mut hash = state.hasher.build_hasher();
    for one in by {
        match one {
            By::Ip => flow.see_client().map(network).hash(&mut hash),
            By::Route => flow.context.route_path().hash(&mut hash),
            By::Host => host(flow.authority()).to_ascii_lowercase().hash(&mut hash),
            By::Subject => flow.context.subject.hash(&mut hash),
            By::Header(name) => flow.request.headers().get(name).hash(&mut hash),
            By::Cookie(name) => cookie(&flow.request, name).hash(&mut hash),
            By::Query(name) => flow.request.query_value(name).hash(&mut hash),
        }
    }
    hash.finish()
}

/// Names what a limit counts by in a store: the same on all servers, and of one length.
fn name_in_store(settings: &Settings, flow: &Flow) -> String {
    let mut digest = Digest::new(&SHA256);
    let mut part = |bytes: Option<&[u8]>| {
        let length = bytes.map_or(u64::MAX, |bytes| bytes.len() as u64);
        digest.update(&length.to_le_bytes());
        digest.update(bytes.unwrap_or_default());
    };
    for one in &settings.by {
        match one {
            By::Ip => part(flow.see_client().map(network).map(|address| address.to_string()).as_deref().map(str::as_bytes)),
            By::Route => part(Some(flow.context.route_path().as_bytes())),
            By::Host => {
                let host = host(flow.authority()).to_ascii_lowercase();
                part(Some(host.as_bytes()));
            }
            By::Subject => part(flow.context.subject.as_deref().map(str::as_bytes)),
            By::Header(name) => part(flow.request.headers().get(name)),
            By::Cookie(name) => part(cookie(&flow.request, name).map(|value| value.as_bytes())),
            By::Query(name) => part(flow.request.query_value(name).as_deref().map(str::as_bytes)),
        }
    }
    let digest = digest.finish();
    let half = digest.as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("ringroad:limit:{}:{half}", settings.name)
}

fn seconds(nanos: u64) -> u64 {
    nanos.div_ceil(SECOND)
}

/// Returns the policy of a limit, as draft-ietf-httpapi-ratelimit-headers has it.
fn policy(name: &str, quota: &Quota) -> String {
    let window = seconds(quota.interval().saturating_mul(quota.burst())).max(1);
    format!("\"{name}\";q={};w={window}", quota.burst())
}

impl Tightest {
    /// Returns what is left of the policy. Each answer has it, so it is written without `format!`.
    fn left(&self) -> Vec<u8> {
        let name = &self.limit.settings.name;
        let mut line = Vec::with_capacity(name.len() + 50);
        line.push(b'"');
        line.extend_from_slice(name.as_bytes());
        line.extend_from_slice(b"\";r=");
        put_decimal(&mut line, self.decision.remaining);
        line.extend_from_slice(b";t=");
        put_decimal(&mut line, seconds(self.decision.reset_after));
        line
    }
}

impl Asked {
    fn tell(&mut self, limit: &Arc<Limit>, decision: Decision) {
        let order = |decision: &Decision| (decision.allowed, decision.remaining);
        let tighter = self.tightest.as_ref().is_none_or(|known| order(&decision) < order(&known.decision));
        if limit.settings.tell && tighter {
            self.tightest = Some(Tightest { limit: Arc::clone(limit), decision });
        }
    }
}

impl Gate {
    /// Asks the limits in their order. Returns the one that refuses.
    fn ask(&self, flow: &Flow, now: Nanos, asked: &mut Asked) -> Option<Refused<'_>> {
        for (limit, state) in &self.limits {
            let settings = &limit.settings;
            let key = key(state, &settings.by, flow);
            if let Some(most) = settings.at_once {
                match state.enter(key, most) {
                    Some(one) => asked.held.push(one),
                    None => return Some(Refused { state, after: 1, why: Why::TooMany }),
                }
            }
            if settings.sharing.is_some() {
                // Its rate is counted in the store, behind all of these.
                continue;
            }
            if let Some(quota) = settings.quota {
                let decision = state.words.take(key, &quota, now, 1);
                asked.tell(limit, decision);
                if !decision.allowed {
                    return Some(Refused::too_many(state, decision));
                }
                asked.counted.push(Counted { state: Arc::clone(state), key, quota });
            }
            state.allowed.fetch_add(1, Ordering::Relaxed);
        }
        None
    }
}

impl Gate {
    /// Refuses a request, and gives back what its limits have counted.
    fn refuse(&self, flow: &Flow, asked: &mut Asked, now: Nanos, refused: &Refused<'_>) -> Response {
        for Counted { state, key, quota } in asked.counted.drain(..) {
            state.words.give_back(key, &quota, now, 1);
        }
        for (client, key, arguments) in asked.counted_in_stores.drain(..) {
            shared::give_back(&client, &key, &arguments);
        }
        asked.held.clear();
        let (status, what) = match refused.why {
            Why::TooMany => {
                refused.state.refused.fetch_add(1, Ordering::Relaxed);
                (Status::TOO_MANY_REQUESTS, "There were too many requests.")
            }
            Why::Unknown => {
                refused.state.unavailable.fetch_add(1, Ordering::Relaxed);
                (Status::SERVICE_UNAVAILABLE, "The service is not available now.")
            }
        };
        page::refusal_for(refused.after, status, &flow.context, what)
    }

    /// Asks the stores of the limits that have one, all at once. Returns the limit that refuses.
    async fn ask_stores(&self, flow: &Flow, now: Nanos, asked: &mut Asked) -> Option<Refused<'_>> {
        let keys: Vec<_> = self.stores.iter().map(|one| key(&one.state, &one.limit.settings.by, flow)).collect();
        for (one, key) in self.stores.iter().zip(&keys) {
            if let Some(decision) = one.shared.recall(*key, now) {
                one.shared.remembered.fetch_add(1, Ordering::Relaxed);
                asked.tell(&one.limit, decision);
                return Some(Refused::too_many(&one.state, decision));
            }
        }
        let questions: Vec<_> = self
            .stores
            .iter()
            .map(|one| {
                let name = name_in_store(&one.limit.settings, flow);
                let question = shared::ask(&one.client, &name, &one.arguments);
                (name, question)
            })
            .collect();
        let mut refused = None;
        for ((one, key), (name, question)) in self.stores.iter().zip(keys).zip(questions) {
            one.shared.asked.fetch_add(1, Ordering::Relaxed);
            let learned = one.shared.learn(key, now, question.await);
            shared::tell(flow, &one.limit.settings.name, &one.shared, &one.sharing, learned.as_ref().err(), now);
            let decision = match learned {
                Ok(decision) => {
                    if decision.allowed {
                        asked.counted_in_stores.push((one.client.clone(), name, one.arguments.clone()));
                    }
                    decision
                }
                Err(why) => {
                    one.shared.failed.fetch_add(1, Ordering::Relaxed);
                    match one.sharing.when_fails {
                        WhenFails::Open => {
                            one.state.allowed.fetch_add(1, Ordering::Relaxed);
                            continue;
                        }
                        WhenFails::Closed => {
                            shared::note(flow, &one.limit.settings.name, &why);
                            refused = refused.or(Some(Refused { state: &one.state, after: 1, why: Why::Unknown }));
                            continue;
                        }
                        WhenFails::Local => {
                            let quota = shared::share(&one.quota, one.sharing.nodes);
                            let decision = one.state.words.take(key, &quota, now, 1);
                            if decision.allowed {
                                let state = Arc::clone(&one.state);
                                asked.counted.push(Counted { state, key, quota });
                            }
                            decision
                        }
                    }
                }
            };
            asked.tell(&one.limit, decision);
            if decision.allowed {
                one.state.allowed.fetch_add(1, Ordering::Relaxed);
            } else {
                refused = refused.or(Some(Refused::too_many(&one.state, decision)));
            }
        }
        refused
    }
}

/// A limit that refuses, and the seconds after which to try again.
struct Refused<'s> {
    state: &'s State,
    after: u64,
    why: Why,
}

enum Why {
    TooMany,
    /// Its store does not answer.
    Unknown,
}

impl Refused<'_> {
    fn too_many(state: &State, decision: Decision) -> Refused<'_> {
        Refused { state, after: seconds(decision.retry_after).max(1), why: Why::TooMany }
    }
}

impl Filter for Gate {
    fn request<'a>(&'a self, flow: &'a mut Flow) -> Step<'a> {
        let now = flow.context.now();
        let mut asked = flow.request.extensions_mut().remove::<Asked>().unwrap_or_default();
        if let Some(refused) = self.ask(flow, now, &mut asked) {
            let answer = self.refuse(flow, &mut asked, now, &refused);
            flow.request.extensions_mut().insert(asked);
            return Step::Answer(answer);
        }
        if self.stores.is_empty() {
            flow.request.extensions_mut().insert(asked);
            return Step::Next;
        }
        Step::Wait(Box::pin(async move {
            let refused = self.ask_stores(flow, now, &mut asked).await;
            let answer = refused.map(|refused| self.refuse(flow, &mut asked, now, &refused));
            flow.request.extensions_mut().insert(asked);
            answer
        }))
    }

    fn response<'a>(&'a self, flow: &'a mut Flow, mut response: Response) -> Answering<'a> {
        let asked = flow.request.extensions_mut().get_mut::<Asked>();
        if let Some(tightest) = asked.and_then(|asked| asked.tightest.take()) {
            // The name was checked when it was read.
            let _ = response.set_header("RateLimit-Policy", &tightest.limit.policy);
            let _ = response.set_header("RateLimit", tightest.left());
        }
        Answering::Now(response)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_address_of_ipv6_counts_by_its_network_and_a_mapped_one_as_ipv4() {
        for (address, counted) in [
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("192.0.2.7", "192.0.2.7"),
        ] {
            assert_eq!(network(address.parse().unwrap()).to_string(), counted);
        }
    }

    #[test]
    fn a_key_without_requests_in_progress_takes_no_memory() {
        let state = State::new(512);
        let (one, two) = (state.enter(7, 2), state.enter(7, 2));
        assert!(one.is_some() && two.is_some() && state.enter(7, 2).is_none());
        drop(one);
        assert!(state.enter(7, 2).is_some());
        drop(two);
        assert!(state.in_progress.iter().all(|shard| shard.lock().unwrap().is_empty()));
    }
}
