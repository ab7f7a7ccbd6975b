//! `mirror = { to = "http://10.0.0.9:3000" }`: copies of requests to another server, without use of its answers.
//! `to = "upstream:NAME"` is a group of servers, with what guards it.
//!
//! The copy is sent beside the request and never holds it up: where too many copies are on their way, or a
//! body is too long to be kept, there is no copy. A failure of the other server is counted, and nothing else.

use crate::chain::{Builder, Filter, Step};
use crate::feature::{Configured, Declaration, Feature, Reading, Scope};
use crate::flow::{Flow, Local};
use crate::groups::{self, WorkerGroups};
use crate::metrics::{Families, label};
use crate::stage::Stage;
use crate::words;
use futures_core::Stream;
use ringroad_engine::{spawn, time};
use ringroad_http::{Chunk, Client, Method, RequestBody};
use ringroad_settings::{Key, Section, Table, value};
use std::any::Any;
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub(super) static DECLARATION: Declaration = Declaration {
    key: Key {
        name: "mirror",
        form: "table, as `{ to = \"http://10.0.0.9:3000\", share = \"10%\" }`",
        default: "-",
        meaning: "Sends copies of requests to another server, and does not use its answers. See below.",
    },
    tables: &[&TABLE],
    scope: Scope::Route,
    read,
    named: None,
};

static TABLE: Table = Table {
    name: "[[route]] mirror = { … }",
    meaning: "The copy has the method, the path, the lines and the body of the request, and `X-Mirrored: 1`. Offers of another \
        protocol have no copy.",
    keys: &[
        Key {
            name: "to",
            form: "one or several of `\"http://HOST:PORT\"`, `\"https://…\"`, `\"upstream:NAME\"`",
            default: "",
            meaning: "The server; of several one at random. A group (`[upstream.NAME]`) chooses a server, checks and ejects its servers, repeats and breaks as it does for requests of routes, and gets the client's `Host`.",
        },
        Key { name: "share", form: "share, as `\"10%\"`", default: "100%", meaning: "Of the requests, at random." },
        Key {
            name: "at_once",
            form: "1 or more",
            default: "64",
            meaning: "Copies on their way, of each worker. One more is not made.",
        },
        Key { name: "body", form: "bytes", default: "64K", meaning: "The longest body that is copied. One without an announced length is not." },
        Key { name: "timeout", form: "time", default: "5s", meaning: "How long a copy may take, its answer included." },
    ],
};

/// Lines of the request that the copy does not have.
const NOT_COPIED: &[&str] = &[
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-mirrored",
];

fn read(section: &Section<'_>, _: &Reading<'_>) -> Option<Arc<dyn Feature>> {
    let mut table = section.table(DECLARATION.key.name)?;
    table.describe(&TABLE);
    let to = table.require("to", "a server, as \"http://10.0.0.9:3000\"", |value| {
        value::some(value, "servers", |value| {
            let text = value::text(value)?;
            if text.strip_prefix(groups::PREFIX).is_some_and(|name| !name.is_empty() && !name.contains('/')) {
                return Ok(text);
            }
            let host = words::after_http(&text);
            let is_server = host.is_some_and(|host| !host.is_empty() && !host.contains(['/', '?', '#', '@']));
            is_server
                .then_some(text)
                .ok_or_else(|| value::found("a server without a path, as \"http://10.0.0.9:3000\", or \"upstream:NAME\"", value))
        })
    });
    let share = table.read("share", value::share).unwrap_or(1.0);
    let at_once = table.read("at_once", |value| value::count(value, 1, 1 << 20)).unwrap_or(64) as usize;
    let body = table.read("body", |value| value::bytes(value, 0, 64 << 20)).unwrap_or(64 << 10);
    let timeout = table.read("timeout", |value| value::span(value, Duration::from_millis(1)));
    table.finish();
    let timeout = timeout.unwrap_or(Duration::from_secs(5));
    let to = to?;
    let upstreams = to.iter().filter_map(|to| to.strip_prefix(groups::PREFIX)).map(str::to_owned).collect();
    Some(Arc::new(Mirror {
        settings: Settings { to, share, at_once, body, timeout },
        upstreams,
        counts: Arc::default(),
    }))
}

#[derive(Clone, Debug, PartialEq)]
struct Settings {
    to: Vec<String>,
    share: f64,
    at_once: usize,
    body: u64,
    timeout: Duration,
}

#[derive(Debug, Default)]
struct Counts {
    sent: AtomicU64,
    failed: AtomicU64,
    left_out: AtomicU64,
}

#[derive(Debug)]
struct Mirror {
    settings: Settings,
    /// Those of `to` that are groups.
    upstreams: Vec<String>,
    counts: Arc<Counts>,
}

impl Configured for Mirror {
    fn same_as(&self, other: &dyn Any) -> bool {
        other.downcast_ref::<Mirror>().is_some_and(|other| self.settings == other.settings)
    }

    fn metrics(&self, labels: &str, out: &mut Families) {
        let help = "Copies of requests, by what became of them.";
        let mut family = out.family("ringroad_mirror_total", "counter", help);
        let Counts { sent, failed, left_out } = &*self.counts;
        for (result, count) in [("sent", sent), ("failed", failed), ("left_out", left_out)] {
            family.sample(&format!("{labels},{}", label("result", result)), count.load(Ordering::Relaxed));
        }
    }
}

impl Feature for Mirror {
    fn install(self: Arc<Self>, local: &Rc<Local>, chain: &mut Builder) {
        // Behind admission, authentication and quotas: what is refused has no copy.
        let (worker, groups) = (local.own::<Worker>(), local.own::<WorkerGroups>());
        chain.add(Stage::Rewrite, Rc::new(Copying { mirror: self, worker, groups }));
    }

    fn upstreams(&self) -> &[String] {
        &self.upstreams
    }
}

/// A worker's connections to other servers, and the copies on their way.
struct Worker {
    client: Client,
    under_way: Rc<Cell<usize>>,
}

impl Default for Worker {
    fn default() -> Worker {
        Worker { client: Client::new(), under_way: Rc::default() }
    }
}

struct Copying {
    mirror: Arc<Mirror>,
    worker: Rc<Worker>,
    groups: Rc<WorkerGroups>,
}

/// A place among the copies on their way, until it is dropped.
struct Place(Rc<Cell<usize>>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Copying {
    fn place(&self) -> Option<Place> {
        let under_way = &self.worker.under_way;
        if under_way.get() >= self.mirror.settings.at_once {
            return None;
        }
        under_way.set(under_way.get() + 1);
        Some(Place(Rc::clone(under_way)))
    }

    /// Sends the copy in a task of its own.
    fn send(&self, flow: &Flow, body: Vec<u8>, place: Place) {
        let settings = &self.mirror.settings;
        let at = (flow.context.random() % settings.to.len().max(1) as u64) as usize;
        let Some(server) = settings.to.get(at) else { return };
        if let Some(group) = server.strip_prefix(groups::PREFIX) {
            return self.send_to_group(group, flow, body, place);
        }
        let client = self.worker.client.clone().timeout(settings.timeout);
        let target = flow.request.path_and_query();
        let url = if target.starts_with('/') { format!("{server}{target}") } else { format!("{server}/") };
        let mut copy = client.request(flow.request.method(), &url);
        let is_of_the_hop = |name: &[u8]| {
            NOT_COPIED.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
        };
        let client = flow.see_client();
        let by_proxy = flow.context.comes_by_proxy();
        // As for requests: a client's own word about itself is not handed on.
        let is_copied = |name: &[u8]| !is_of_the_hop(name) && (by_proxy || !words::is_of_proxies(name));
        for field in flow.request.headers().iter().filter(|field| is_copied(field.name)) {
            copy = copy.header(field.name, field.value);
        }
        copy = copy.header("X-Mirrored", "1").header("X-Forwarded-Proto", flow.scheme());
        if let Some(client) = client {
            copy = copy.header("X-Forwarded-For", client.to_string());
        }
        if !flow.authority().is_empty() {
            copy = copy.header("X-Forwarded-Host", flow.authority());
        }
        if !body.is_empty() {
            copy = copy.body(body);
        }
        self.exchange(place, async move {
            let mut answer = copy.send().await.ok()?;
            // Read to its end, so that the connection is kept for the next copy.
            while let Some(piece) = answer.next().await {
                piece.ok()?;
            }
            Some(())
        });
    }

    /// Sends the copy to a server of a group.
    fn send_to_group(&self, group: &str, flow: &Flow, body: Vec<u8>, place: Place) {
        let Some(groups) = self.groups.get() else { return };
        let mut copy = flow.again();
        if copy.request.set_header("X-Mirrored", "1").is_err() {
            // The head is full.
            return self.leave_out();
        }
        if !body.is_empty() {
            copy.request.replace_body(RequestBody::replay([Chunk::from(body)], RequestBody::empty()));
        }
        let asked = groups.ask(group, copy);
        self.exchange(place, async move {
            let (flow, mut answer) = asked.await;
            let mut pieces = answer.take_body().into_pieces();
            while let Some(piece) = poll_fn(|context| pieces.as_mut().poll_next(context)).await {
                piece.ok()?;
            }
            (!flow.context.has_failed()).then_some(())
        });
    }

    /// Runs the exchange of a copy in a task of its own, and counts how it ended.
    fn exchange(&self, place: Place, exchange: impl Future<Output = Option<()>> + 'static) {
        let (counts, span) = (Arc::clone(&self.mirror.counts), self.mirror.settings.timeout);
        spawn(async move {
            let _place = place;
            let is_sent = time::timeout(span, exchange).await.is_ok_and(|answered| answered.is_some());
            let counter = if is_sent { &counts.sent } else { &counts.failed };
            counter.fetch_add(1, Ordering::Relaxed);
        })
        .detach();
    }

    fn leave_out(&self) {
        self.mirror.counts.left_out.fetch_add(1, Ordering::Relaxed);
    }
}

impl Filter for Copying {
    fn request<'a>(&'a self, flow: &'a mut Flow) -> Step<'a> {
        let settings = &self.mirror.settings;
        let is_offer = flow.request.head().upgrade();
        let is_known = !matches!(flow.request.method(), Method::Connect | Method::Other);
        // 53 bits: a number of this type has no more.
        let drawn = (flow.context.random() >> 11) as f64 / (1_u64 << 53) as f64;
        if is_offer || !is_known || drawn >= settings.share {
            return Step::Next;
        }
        let is_long = flow.request.body().bytes_left().is_none_or(|left| left > settings.body);
        let place = self.place().filter(|_| flow.request.body().is_empty() || !is_long);
        let Some(place) = place else {
            self.leave_out();
            return Step::Next;
        };
        if flow.request.body().is_empty() {
            self.send(flow, Vec::new(), place);
            return Step::Next;
        }
        Step::Wait(Box::pin(async move {
            let mut body = std::mem::take(flow.request.body());
            let (mut pieces, mut copied) = (Vec::<Chunk>::new(), Vec::new());
            let is_whole = loop {
                match poll_fn(|context| Pin::new(&mut body).poll_next(context)).await {
                    Some(Ok(chunk)) => {
                        copied.extend_from_slice(&chunk);
                        pieces.push(chunk);
                    }
                    Some(Err(_)) => break false,
                    None => break true,
                }
            };
            // What the endpoint reads is what was read here, and then the error again, if there was one.
            flow.request.replace_body(RequestBody::replay(pieces, body));
            if is_whole {
                self.send(flow, copied, place);
            } else {
                self.leave_out();
            }
            None
        }))
    }
}
