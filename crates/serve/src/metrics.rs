//! Counts, in the text format of Prometheus with the usual names.
//!
//! Each worker is the only writer of its counts, so counting is a load and a store. The worker that answers a
//! request for metrics adds up the counts of all workers. Those of workers that have ended are added up when
//! the next worker begins ([`gather`]), so that a server with workers that move often does not grow.

use crate::by_driver;
use crate::config::{Config, HubTable};
use crate::service::Shared;
use ringroad_engine::DriverName;
use ringroad_gate::flow::{AtEnd, End, Flow};
use ringroad_gate::metrics::{Families, label};
use ringroad_gate::upstream::{Group, Server, State};
use ringroad_host::cpu::ThreadClock;
use ringroad_http::Counters;
use ringroad_hub::{Hub, ServerState};
use ringroad_policy::breaker;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

/// A count that one thread writes.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, more: u64) {
        // Relaxed: each count stands for itself.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Adds each count to the one in the same place.
fn add_all(sums: &[Count], counts: &[Count]) {
    for (sum, count) in sums.iter().zip(counts) {
        sum.add(count.get());
    }
}

/// Makes one of those that no worker holds any more and that are of the same kind; the others stay.
fn gather<T>(list: &mut Vec<Arc<T>>, same: impl Fn(&T, &T) -> bool, absorb: impl Fn(&mut T, &T)) {
    let mut ended: Vec<T> = Vec::new();
    let mut live = Vec::with_capacity(list.len());
    for one in list.drain(..) {
        match Arc::try_unwrap(one) {
            Ok(one) => match ended.iter_mut().find(|known| same(known, &one)) {
                Some(known) => absorb(known, &one),
                None => ended.push(one),
            },
            // A worker writes it, or it is being read: it is gathered later.
            Err(one) => live.push(one),
        }
    }
    list.extend(ended.into_iter().map(Arc::new).chain(live));
}

/// Upper bounds of the histogram's buckets, in seconds.
pub(crate) const BOUNDS: [f64; 16] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

const FIRST_STATUS: usize = 100;
const STATUSES: usize = 500;

/// One worker's counts.
#[derive(Debug)]
pub(crate) struct Counts {
    pub(crate) driver: DriverName,
    /// Not of an address for metrics alone.
    pub(crate) is_public: bool,
    /// The clock of its thread.
    clock: Option<ThreadClock>,
    /// Its CPU time at its end, in nanoseconds; 0 while it runs.
    ended_cpu_ns: AtomicU64,
    /// Responses by status, from 100 on.
    responses: Box<[Count]>,
    /// Requests by bucket; the last bucket has no bound.
    pub(crate) took: [Count; BOUNDS.len() + 1],
    pub(crate) took_ns: Count,
    pub(crate) body_bytes: Count,
    pub(crate) memory_hits: Count,
    pub(crate) memory_misses: Count,
    pub(crate) faults: Count,
}

impl Counts {
    /// Made on its worker's thread.
    pub(crate) fn new(driver: DriverName, is_public: bool) -> Counts {
        Counts {
            driver,
            is_public,
            clock: ThreadClock::own().ok(),
            ended_cpu_ns: AtomicU64::new(0),
            responses: (0..STATUSES).map(|_| Count::default()).collect(),
            took: Default::default(),
            took_ns: Count::default(),
            body_bytes: Count::default(),
            memory_hits: Count::default(),
            memory_misses: Count::default(),
            faults: Count::default(),
        }
    }

    /// Registers them for the metrics.
    pub(crate) fn enlist(self: &Arc<Self>, list: &Mutex<Vec<Arc<Counts>>>) {
        let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
        let same =
            |one: &Counts, other: &Counts| (one.driver, one.is_public) == (other.driver, other.is_public);
        gather(&mut list, same, Counts::absorb);
        list.push(Arc::clone(self));
    }

    /// Adds those of another worker; both have ended.
    fn absorb(&mut self, other: &Counts) {
        let cpu = self.cpu().zip(other.cpu()).map(|(own, more)| nanoseconds(own + more).max(1));
        *self.ended_cpu_ns.get_mut() = cpu.unwrap_or_default();
        self.clock = None;
        add_all(&self.responses, &other.responses);
        add_all(&self.took, &other.took);
        self.took_ns.add(other.took_ns.get());
        self.body_bytes.add(other.body_bytes.get());
        self.memory_hits.add(other.memory_hits.get());
        self.memory_misses.add(other.memory_misses.get());
        self.faults.add(other.faults.get());
    }

    /// CPU time of its thread. `None`: the kernel has no such clock.
    pub(crate) fn cpu(&self) -> Option<Duration> {
        let ended = || match self.ended_cpu_ns.load(Ordering::Acquire) {
            0 => None,
            ns => Some(Duration::from_nanos(ns)),
        };
        if let Some(ended) = ended() {
            return Some(ended);
        }
        let read = self.clock?.read().ok();
        // It may have ended meanwhile, and its number be that of another thread.
        ended().or(read)
    }

    /// Keeps its CPU time; on its thread, which is about to end.
    pub(crate) fn end(&self) {
        let used = self.clock.and_then(|clock| clock.read().ok()).unwrap_or_default();
        // Pairs with the acquire loads of `cpu`.
        self.ended_cpu_ns.store(nanoseconds(used).max(1), Ordering::Release);
    }

    /// Responses by status, with those that there were.
    pub(crate) fn by_status(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        let numbered = (FIRST_STATUS as u16..).zip(self.responses.iter().map(Count::get));
        numbered.filter(|(_, count)| *count > 0)
    }

    pub(crate) fn answered(&self, status: u16, took: Duration, bytes: u64) {
        if let Some(count) = self.responses.get(usize::from(status).wrapping_sub(FIRST_STATUS)) {
            count.add(1);
        }
        if let Some(count) = self.took.get(bucket(took)) {
            count.add(1);
        }
        self.took_ns.add(nanoseconds(took));
        self.body_bytes.add(bytes);
    }
}

/// One worker's counts of a route with a name.
#[derive(Debug)]
pub(crate) struct RouteCounts(Arc<RouteNumbers>);

/// The numbers, which the task that writes the metrics reads.
#[derive(Debug, Default)]
pub(crate) struct RouteNumbers {
    /// Responses by class: 1xx to 5xx.
    classes: [Count; 5],
    took: [Count; BOUNDS.len() + 1],
    took_ns: Count,
    body_bytes: Count,
    upstream: Count,
    upstream_ns: Count,
}

impl RouteNumbers {
    /// Adds those of another worker; both have ended.
    fn absorb(&mut self, other: &RouteNumbers) {
        add_all(&self.classes, &other.classes);
        add_all(&self.took, &other.took);
        self.took_ns.add(other.took_ns.get());
        self.body_bytes.add(other.body_bytes.get());
        self.upstream.add(other.upstream.get());
        self.upstream_ns.add(other.upstream_ns.get());
    }
}

/// The numbers of all workers, by the route's name.
pub(crate) type RouteList = Mutex<BTreeMap<String, Vec<Arc<RouteNumbers>>>>;

impl RouteCounts {
    /// Makes one worker's counts of a route and registers them for the metrics.
    pub(crate) fn registered(name: &str, list: &RouteList) -> Rc<RouteCounts> {
        let numbers = Arc::<RouteNumbers>::default();
        let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
        let own = list.entry(name.to_owned()).or_default();
        gather(own, |_, _| true, RouteNumbers::absorb);
        own.push(Arc::clone(&numbers));
        drop(list);
        Rc::new(RouteCounts(numbers))
    }
}

fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the bucket of a duration.
fn bucket(took: Duration) -> usize {
    let seconds = took.as_secs_f64();
    BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len())
}

impl AtEnd for RouteCounts {
    fn done(&self, flow: &Flow, end: &End) {
        let numbers = &self.0;
        if let Some(count) = numbers.classes.get(usize::from(end.status / 100).wrapping_sub(1)) {
            count.add(1);
        }
        if let Some(count) = numbers.took.get(bucket(end.took)) {
            count.add(1);
        }
        numbers.took_ns.add(nanoseconds(end.took));
        numbers.body_bytes.add(end.bytes);
        if let Some(upstream) = flow.context.upstream() {
            numbers.upstream.add(1);
            numbers.upstream_ns.add(nanoseconds(upstream.took));
        }
    }
}

/// Writes the counts of routes with a name.
fn routes(out: &mut Families, shared: &Shared) {
    let list = shared.routes.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for (name, workers) in &list {
        let route = label("route", name);
        let sum = |of: fn(&RouteNumbers) -> &Count| workers.iter().map(|one| of(one).get()).sum::<u64>();
        let help = "Requests of routes with a name, by class of status.";
        let mut requests = out.family("ringroad_route_requests_total", "counter", help);
        for (at, class) in ["1xx", "2xx", "3xx", "4xx", "5xx"].iter().enumerate() {
            let count = workers.iter().filter_map(|one| one.classes.get(at)).map(Count::get).sum::<u64>();
            requests.sample(&format!("{route},{}", label("class", class)), count);
        }
        let help = "From a request's head to the end of its answer, of routes with a name.";
        let mut took = out.family("ringroad_route_request_duration_seconds", "histogram", help);
        let mut below = 0;
        for (at, bound) in BOUNDS.iter().map(f64::to_string).chain(["+Inf".to_owned()]).enumerate() {
            below += workers.iter().filter_map(|one| one.took.get(at)).map(Count::get).sum::<u64>();
            took.part("_bucket", &format!("{route},{}", label("le", &bound)), below);
        }
        took.part("_sum", &route, sum(|one| &one.took_ns) as f64 / 1e9);
        took.part("_count", &route, below);
        let help = "Bytes of bodies sent by routes with a name.";
        let bytes = sum(|one| &one.body_bytes);
        out.family("ringroad_route_response_body_bytes_total", "counter", help).sample(&route, bytes);
        let help = "From a request to the head of the upstream server's answer, of routes with a name.";
        let mut upstream = out.family("ringroad_route_upstream_seconds", "summary", help);
        upstream.part("_sum", &route, sum(|one| &one.upstream_ns) as f64 / 1e9);
        upstream.part("_count", &route, sum(|one| &one.upstream));
    }
}

/// Writes all metrics in the format of Prometheus.
pub(crate) fn text(shared: &Shared) -> String {
    let mut out = Families::default();
    let members = shared.members.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let sum = |of: fn(&Counts) -> &Count| members.iter().map(|counts| of(counts).get()).sum::<u64>();

    let mut build = out.family("ringroad_build_info", "gauge", "Constant 1, labelled with the version.");
    build.sample(&label("version", env!("CARGO_PKG_VERSION")), 1);
    by_driver::metrics(&mut out, shared);

    let mut by_status = Vec::new();
    for at in 0..STATUSES {
        let count: u64 = members.iter().filter_map(|counts| counts.responses.get(at)).map(Count::get).sum();
        if count > 0 {
            by_status.push((label("code", &(at + FIRST_STATUS).to_string()), count));
        }
    }
    out.several(
        "ringroad_http_requests_total",
        "counter",
        "Requests answered by a route, by status.",
        &by_status,
    );

    const TOOK: &str = "ringroad_http_request_duration_seconds";
    let help = "From a request's head to its answer, or to the end of one that is a stream.";
    let mut took = out.family(TOOK, "histogram", help);
    let mut below = 0;
    for (at, bound) in BOUNDS.iter().map(f64::to_string).chain(["+Inf".to_owned()]).enumerate() {
        below += members.iter().filter_map(|counts| counts.took.get(at)).map(Count::get).sum::<u64>();
        took.part("_bucket", &label("le", &bound), below);
    }
    took.part("_sum", "", sum(|counts| &counts.took_ns) as f64 / 1e9);
    took.part("_count", "", below);
    out.one(
        "ringroad_http_response_body_bytes_total",
        "counter",
        "Bytes of bodies, as the access log counts them.",
        sum(|counts| &counts.body_bytes),
    );
    out.one(
        "ringroad_http_faults_total",
        "counter",
        "Requests that failed on this side or behind it (the log says why).",
        sum(|counts| &counts.faults),
    );
    out.one("ringroad_file_memory_hits_total", "counter", "Files sent from memory.", sum(|c| &c.memory_hits));
    out.one("ringroad_file_memory_misses_total", "counter", "Files opened.", sum(|c| &c.memory_misses));

    listeners(&mut out, shared);
    certificates(&mut out, shared);
    acme(&mut out, shared);
    out.one(
        "ringroad_access_log_dropped_lines_total",
        "counter",
        "Lines of the access log that could not be written.",
        shared.log_dropped(),
    );
    out.one(
        "ringroad_http_connections_per_client_refused_total",
        "counter",
        "Connections closed because their client's address had as many as it may.",
        shared.per_address.refused(),
    );
    let reloads = &shared.reloads;
    out.several(
        "ringroad_config_reloads_total",
        "counter",
        "Times the configuration was read again, by whether it was taken.",
        &[
            (label("result", "taken"), reloads.taken.load(Ordering::Relaxed)),
            (label("result", "refused"), reloads.refused.load(Ordering::Relaxed)),
        ],
    );
    upstreams(&mut out, shared);
    process(&mut out, shared);
    routes(&mut out, shared);
    plan_steps(&mut out, shared);
    out.text() + &ringroad_app::metrics_text(&shared.plan().apps)
}

/// Reads one number of a listener's counters.
type Read = fn(&Counters) -> u64;

/// Writes the library's counts for each address.
fn listeners(out: &mut Families, shared: &Shared) {
    let stats = shared.stats.lock().unwrap_or_else(PoisonError::into_inner).clone();
    // An address that went and came back has been listened on several times, and is one series.
    let mut counters: Vec<(String, Vec<Counters>)> = Vec::new();
    let mut by_driver: Vec<(String, Vec<Counters>)> = Vec::new();
    for one in &stats {
        let name = label("listen", &one.name);
        let of = one.counters();
        let with_driver = format!("{name},{}", label("driver", one.driver.as_str()));
        for (list, name) in [(&mut counters, name), (&mut by_driver, with_driver)] {
            match list.iter_mut().find(|(known, _)| *known == name) {
                Some((_, all)) => all.push(of.clone()),
                None => list.push((name, vec![of.clone()])),
            }
        }
    }
    let sum = |of: &[Counters], read: Read| of.iter().map(read).sum::<u64>();
    let all =
        |read: Read| counters.iter().map(|(name, of)| (name.clone(), sum(of, read))).collect::<Vec<_>>();
    let families: [(&str, &str, &str, Read); 10] = [
        ("ringroad_http_connections", "gauge", "Connections open now.", |c| c.connections),
        ("ringroad_http_connections_accepted_total", "counter", "Connections accepted.", |c| c.accepted),
        ("ringroad_http_connections_closed_total", "counter", "Connections ended.", |c| c.closed),
        ("ringroad_http_received_bytes_total", "counter", "Bytes received.", |c| c.bytes_in),
        ("ringroad_http_sent_bytes_total", "counter", "Bytes sent.", |c| c.bytes_out),
        (
            "ringroad_http_limits_hit_total",
            "counter",
            "Requests that the protocol or a limit refused.",
            |c| c.refused,
        ),
        (
            "ringroad_http_timeouts_total",
            "counter",
            "Connections ended because something took too long.",
            |c| c.timed_out,
        ),
        (
            "ringroad_http_accept_pauses_total",
            "counter",
            "Times accepting paused at the limit of connections.",
            |c| c.accept_paused,
        ),
        (
            "ringroad_http_files_cut_total",
            "counter",
            "Files that ended before what was announced of them was sent.",
            |c| c.files_cut,
        ),
        ("ringroad_http_panics_total", "counter", "Requests with a handler that panicked.", |c| c.panics),
    ];
    for (name, kind, help, read) in families {
        out.several(name, kind, help, &all(read));
    }
    let help = "Responses of all kinds, refusals included, by class.";
    let mut responses = out.family("ringroad_http_responses_total", "counter", help);
    for (name, of) in &counters {
        for (at, class) in ["1xx", "2xx", "3xx", "4xx", "5xx"].iter().enumerate() {
            let count: u64 = of.iter().filter_map(|of| of.responses.get(at)).sum();
            responses.sample(&format!("{name},{}", label("class", class)), count);
        }
    }
    if shared.tls().is_some() {
        handshakes(out, &counters);
    }
    type EngineRead = fn(&ringroad_engine::Counters) -> u64;
    let engine: [(&str, &str, EngineRead); 12] = [
        ("system_calls", "System calls made by the driver.", |e| e.system_calls),
        ("waits", "Waits for the kernel.", |e| e.waits),
        ("operations_at_once", "Operations answered without waiting.", |e| e.answered_at_once),
        ("operations_submitted", "Operations handed to the driver.", |e| e.submitted),
        ("operations_completed", "Results of those.", |e| e.completed),
        ("queue_full", "Times the submission queue was full.", |e| e.queue_full),
        ("queue_overflows", "Times completions overflowed their queue.", |e| e.overflows),
        ("buffers_empty", "Receives that found no buffer.", |e| e.ring_empty),
        ("zero_copy_sends", "Sends from where the bytes lie.", |e| e.zero_copy_sends),
        ("zero_copy_copied", "Of these, those the kernel copied all the same.", |e| e.zero_copy_copied),
        ("accept_paused", "Times accepting paused for want of descriptors.", |e| e.accept_parked),
        ("polls", "Tasks polled.", |e| e.polls),
    ];
    for (what, help, read) in engine {
        let name = format!("ringroad_engine_{what}_total");
        let mut family = out.family(&name, "counter", help);
        for (listen, of) in &by_driver {
            let workers = of.iter().map(|of| of.engine.len()).max().unwrap_or(0);
            for worker in 0..workers {
                let count = of.iter().filter_map(|of| of.engine.get(worker)).map(read).sum::<u64>();
                family.sample(&format!("{listen},{}", label("worker", &worker.to_string())), count);
            }
        }
    }
}

/// TLS handshakes, by address.
fn handshakes(out: &mut Families, counters: &[(String, Vec<Counters>)]) {
    const KINDS: [(&str, &str); 4] =
        [("1.2", "full"), ("1.2", "resumed"), ("1.3", "full"), ("1.3", "resumed")];
    let help = "TLS handshakes, by kind, version and result.";
    let mut all = out.family("ringroad_tls_handshakes_total", "counter", help);
    for (name, of) in counters {
        for (at, (version, kind)) in KINDS.into_iter().enumerate() {
            let count: u64 = of.iter().filter_map(|of| of.handshakes.get(at)).sum();
            let labels = [label("kind", kind), label("version", version), label("result", "ok")].join(",");
            all.sample(&format!("{name},{labels}"), count);
        }
        let failed: u64 = of.iter().map(|of| of.handshakes_failed).sum();
        let labels = [label("kind", ""), label("version", ""), label("result", "failed")].join(",");
        all.sample(&format!("{name},{labels}"), failed);
    }
    let help = "From the beginning of a connection to the end of its handshake, the waiting included.";
    let mut took = out.family("ringroad_tls_handshake_seconds", "summary", help);
    for (name, of) in counters {
        let micros: u64 = of.iter().map(|of| of.handshake_micros).sum();
        took.part("_sum", name, micros as f64 / 1e6);
        took.part("_count", name, of.iter().flat_map(|of| of.handshakes).sum::<u64>());
    }
    let waiting: Vec<_> = counters
        .iter()
        .map(|(name, of)| (name.clone(), of.iter().map(|of| of.handshakes_waiting).sum::<u64>()))
        .collect();
    let help = "TLS handshakes that wait for others to end.";
    out.several("ringroad_tls_handshakes_waiting", "gauge", help, &waiting);
}

/// Writes how long certificates are valid.
fn certificates(out: &mut Families, shared: &Shared) {
    let Some(tls) = shared.tls() else { return };
    let now = std::time::SystemTime::now();
    let help = "Seconds until a certificate expires; below 0 it has.";
    let mut family = out.family("ringroad_tls_certificate_expiry_seconds", "gauge", help);
    for info in tls.certificates() {
        let mut labels = label("name", &info.name);
        // Several may have the same name.
        if let Some(file) = &info.file {
            labels = [labels, label("file", &file.to_string_lossy())].join(",");
        }
        family.sample(&labels, info.seconds_left(now) as f64);
    }
}

/// Writes what becomes of certificates that are obtained from an authority.
fn acme(out: &mut Families, shared: &Shared) {
    let Some(progress) = shared.acme() else { return };
    let all = progress.certificates();
    let help = "Attempts to obtain a certificate, by result.";
    let mut orders = out.family("ringroad_acme_orders_total", "counter", help);
    for one in &all {
        for (result, count) in [("obtained", one.obtained), ("failed", one.failed)] {
            orders.sample(&[label("name", &one.name), label("result", result)].join(","), count);
        }
    }
    let help = "Failures since a certificate was obtained last.";
    let mut failures = out.family("ringroad_acme_failures", "gauge", help);
    for one in &all {
        failures.sample(&label("name", &one.name), one.failures);
    }
    let help = "When a certificate is obtained or renewed next, since 1970.";
    let mut next = out.family("ringroad_acme_next_attempt_timestamp_seconds", "gauge", help);
    for one in &all {
        if let Some(at) = one.next {
            let seconds = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            next.sample(&label("name", &one.name), seconds);
        }
    }
}

/// Upstream servers, by group and address: what is known of each, all workers together.
fn upstreams(out: &mut Families, shared: &Shared) {
    let plan = shared.plan();
    let now = shared.now();
    let mut servers = Vec::new();
    for group in &plan.groups {
        for server in group.servers() {
            let labels = format!(
                "{},{}",
                label("upstream", group.name()),
                label("server", &server.address().to_string())
            );
            servers.push((labels, server));
        }
    }
    if servers.is_empty() {
        return;
    }
    type ReadServer = fn(&Server, u64) -> u64;
    let families: [(&str, &str, &str, ReadServer); 6] = [
        (
            "ringroad_upstream_requests_total",
            "counter",
            "Requests sent to an upstream server, repeats included.",
            |server, _| server.sent.load(Ordering::Relaxed),
        ),
        (
            "ringroad_upstream_failures_total",
            "counter",
            "Requests that an upstream server failed: no connection, no answer, one that breaks the protocol, or a status of retry.on.",
            |server, _| server.failed.load(Ordering::Relaxed),
        ),
        (
            "ringroad_upstream_5xx_total",
            "counter",
            "Answers of an upstream server with a status of 5xx. Breakers take them for failures.",
            |server, _| server.errors.load(Ordering::Relaxed),
        ),
        (
            "ringroad_upstream_ejections_total",
            "counter",
            "Times an upstream server was left out for failing in a row.",
            |server, _| server.ejections.load(Ordering::Relaxed),
        ),
        ("ringroad_upstream_in_flight", "gauge", "Requests in flight at an upstream server.", |server, _| {
            server.in_flight().into()
        }),
        (
            "ringroad_upstream_server_up",
            "gauge",
            "1 while an upstream server gets requests.",
            |server, now| (server.state(now) == State::Up).into(),
        ),
    ];
    let room = &plan.room;
    out.one(
        "ringroad_upstream_connections",
        "gauge",
        "Connections to upstream servers, idle ones included.",
        room.used(),
    );
    out.one(
        "ringroad_upstream_connections_max",
        "gauge",
        "Most connections to upstream servers.",
        room.most(),
    );
    out.one(
        "ringroad_upstream_waiting",
        "gauge",
        "Requests that wait for room for a connection to an upstream server.",
        room.waiting(),
    );
    out.one(
        "ringroad_upstream_waits_total",
        "counter",
        "Times a request found no room for a connection to an upstream server.",
        room.waits(),
    );
    let hedged = |group: &Arc<Group>| (label("upstream", group.name()), group.hedged.load(Ordering::Relaxed));
    out.several(
        "ringroad_upstream_hedged_total",
        "counter",
        "Requests sent to a second server as well, because the first was slow.",
        &plan.groups.iter().map(hedged).collect::<Vec<_>>(),
    );
    let repeated =
        |group: &Arc<Group>| (label("upstream", group.name()), group.repeated.load(Ordering::Relaxed));
    out.several(
        "ringroad_upstream_repeats_total",
        "counter",
        "Requests sent to another server because one failed them without an answer.",
        &plan.groups.iter().map(repeated).collect::<Vec<_>>(),
    );
    let of_groups = |read: fn(&Group, u64) -> u64| {
        let sample = |group: &Arc<Group>| (label("upstream", group.name()), read(group, now));
        plan.groups.iter().map(sample).collect::<Vec<_>>()
    };
    out.several(
        "ringroad_upstream_refused_total",
        "counter",
        "Requests refused because a group's breaker was open or it had as many requests as it may.",
        &of_groups(|group, _| group.refused.load(Ordering::Relaxed)),
    );
    out.several(
        "ringroad_upstream_panics_total",
        "counter",
        "Choices of a server with health ignored, because too few servers of the group were usable.",
        &of_groups(|group, _| group.panicked.load(Ordering::Relaxed)),
    );
    out.several(
        "ringroad_upstream_breaker_opened_total",
        "counter",
        "Times a group's breaker opened.",
        &of_groups(|group, _| group.opened.load(Ordering::Relaxed)),
    );
    out.several(
        "ringroad_upstream_breaker_open",
        "gauge",
        "1 while a group's breaker is open.",
        &of_groups(|group, now| matches!(group.breaker(now), Some(breaker::State::Open(_))).into()),
    );
    for (name, kind, help, read) in families {
        let samples: Vec<_> =
            servers.iter().map(|(labels, server)| (labels.clone(), read(server, now))).collect();
        out.several(name, kind, help, &samples);
    }
}

/// Writes the counts of steps.
fn plan_steps(out: &mut Families, shared: &Shared) {
    let plan = shared.plan();
    let config = &plan.config;
    hubs(out, config);
    config.tables.metrics(out);
    config.identify.metrics("", out);
    for route in &config.routes {
        let name = route.name.as_deref().unwrap_or(&route.when.path);
        route.steps.metrics(&label("route", name), out);
    }
}

/// Writes the metrics that every exporter has about its process.
fn process(out: &mut Families, shared: &Shared) {
    let started = shared.started.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    out.one("process_start_time_seconds", "gauge", "When it began, since 1970.", started);
    if let Ok(clock) = ringroad_host::cpu::ProcessClock::own().read() {
        out.one("process_cpu_seconds_total", "counter", "CPU time of all threads.", clock.as_secs_f64());
    }
    let memory = ringroad_host::memory::process(std::process::id()).ok().and_then(|memory| memory.rss_bytes);
    if let Some(bytes) = memory {
        out.one("process_resident_memory_bytes", "gauge", "Memory in use.", bytes);
    }
    if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
        // One is the folder itself.
        out.one("process_open_fds", "gauge", "Descriptors open.", open.count().saturating_sub(1));
    }
    if let Some(most) = ringroad_host::process::nofile().filter(|most| *most != u64::MAX) {
        out.one("process_max_fds", "gauge", "Descriptors it may have.", most);
    }
}

/// What the hubs have done.
fn hubs(out: &mut Families, config: &Config) {
    type Of = fn(&HubTable) -> u64;
    let families: [(&str, &str, &str, Of); 7] = [
        ("ringroad_hub_topics", "gauge", "Topics.", |table| table.hub().topics() as u64),
        ("ringroad_hub_connections", "gauge", "Clients that are subscribed.", |table| {
            table.hub().counts().members.load(Ordering::Relaxed)
        }),
        ("ringroad_hub_published_total", "counter", "Messages published.", |table| {
            table.hub().counts().published.load(Ordering::Relaxed)
        }),
        ("ringroad_hub_delivered_total", "counter", "Messages handed to clients.", |table| {
            table.hub().counts().delivered.load(Ordering::Relaxed)
        }),
        ("ringroad_hub_closed_slow_total", "counter", "Clients closed because they were slow.", |table| {
            table.hub().counts().closed_slow.load(Ordering::Relaxed)
        }),
        ("ringroad_hub_recovered_total", "counter", "Clients that came back and missed nothing.", |table| {
            table.hub().counts().recovered.load(Ordering::Relaxed)
        }),
        ("ringroad_hub_not_recovered_total", "counter", "Clients that came back too late.", |table| {
            table.hub().counts().not_recovered.load(Ordering::Relaxed)
        }),
    ];
    if config.hubs.is_empty() {
        return;
    }
    for (name, kind, help, of) in families {
        let all: Vec<_> = config.hubs.iter().map(|table| (label("hub", &table.name), of(table))).collect();
        out.several(name, kind, help, &all);
    }
    shared_hubs(out, config);
}

/// What is known of the hubs that several machines share.
fn shared_hubs(out: &mut Families, config: &Config) {
    type Of = fn(&Hub, &ServerState) -> u64;
    let families: [(&str, &str, &str, Of); 5] = [
        ("ringroad_hub_store_up", "gauge", "Whether the store of the hub answered last.", |_, state| {
            u64::from(state.is_up)
        }),
        ("ringroad_hub_machines", "gauge", "Machines that share the hub.", |_, state| state.processes as u64),
        ("ringroad_hub_refused_total", "counter", "Messages that the store did not take.", |hub, _| {
            hub.counts().unavailable.load(Ordering::Relaxed)
        }),
        (
            "ringroad_hub_gaps_total",
            "counter",
            "Times that missing messages were read from the store.",
            |hub, _| hub.counts().gaps.load(Ordering::Relaxed),
        ),
        ("ringroad_hub_lost_total", "counter", "Times that messages were gone from the store.", |hub, _| {
            hub.counts().lost.load(Ordering::Relaxed)
        }),
    ];
    let shared: Vec<_> = config
        .hubs
        .iter()
        .filter_map(|table| Some((label("hub", &table.name), table.hub(), table.hub().server()?)))
        .collect();
    if shared.is_empty() {
        return;
    }
    for (name, kind, help, of) in families {
        let all: Vec<_> = shared.iter().map(|(label, hub, state)| (label.clone(), of(hub, state))).collect();
        out.several(name, kind, help, &all);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn workers_that_have_ended_keep_one_place_for_each_driver_and_lose_no_count() {
        let list = Mutex::default();
        let running = Arc::new(Counts::new(DriverName::Poll, true));
        running.enlist(&list);
        let mut used = Duration::ZERO;
        for nth in 0..60 {
            let driver = if nth % 2 == 0 { DriverName::Epoll } else { DriverName::Poll };
            let counts = Arc::new(Counts::new(driver, true));
            counts.enlist(&list);
            counts.answered(200, Duration::from_micros(150), 5);
            counts.end();
            used += counts.cpu().unwrap();
        }
        running.answered(404, Duration::from_micros(150), 0);
        // The last one is gathered by the next.
        Arc::new(Counts::new(DriverName::Epoll, false)).enlist(&list);

        let list = list.into_inner().unwrap();
        let places = |driver| list.iter().filter(|one| one.driver == driver && one.is_public).count();
        assert_eq!((places(DriverName::Epoll), places(DriverName::Poll)), (1, 2));
        let sum = |of: fn(&Counts) -> u64| list.iter().map(|one| of(one)).sum::<u64>();
        assert_eq!(sum(|one| one.responses.iter().map(Count::get).sum()), 61);
        assert_eq!(sum(|one| one.took.iter().map(Count::get).sum()), 61);
        assert_eq!(sum(|one| one.body_bytes.get()), 300);
        let ended = list.iter().filter(|one| one.clock.is_none());
        assert_eq!(ended.map(|one| one.cpu().unwrap()).sum::<Duration>(), used);
    }
}
