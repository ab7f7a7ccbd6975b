//! `ringroad lab client`: a client as the harness starts it, options in and report out, both JSON.
//!
//! The small client is part of the lab. The load generator is connected to the lab here, because the lab
//! links nothing that it measures: the same options become a plan, the course and the clocks are the same,
//! and the counts become the same report. Start at [`run`], then [`plan`].

use super::flags::ClientFlags;
use super::{Complaint, print};
use crate::complaint::{DONE, FAILED, USAGE, why};
use ringroad_engine::choose::{self, Wish};
use ringroad_host::capacity::Capacity;
use ringroad_lab::client::{self, ClientReport, Options, course};
use ringroad_lab::suite::{Client, Protocol};
use ringroad_load::plan::{Body, Request};
use ringroad_load::watched::{self, Watched};
use ringroad_load::{Message, Plan, Scheme, Target, source, tls};
use std::time::Duration;

/// Connections on their way at once: far below the backlog of 4096 that servers ask for, and below 128, the
/// old default of `somaxconn`.
const CONNECTING_MAX: u32 = 100;
/// Connections from one address: above that, addresses are spread over the loopback.
const PER_SOURCE_MAX: u32 = 20_000;
/// Echo: different messages in turn, so that bytes that went to another connection, or came in another order,
/// are seen; and how many bytes they may have together with all that is kept ready of them.
const MESSAGES: u64 = 7;
const MESSAGES_BYTES: u64 = 128 << 10;

/// One load by one client.
pub(super) fn run(flags: &ClientFlags) -> Result<u8, Complaint> {
    let options: Options = serde_json::from_str(&flags.options)
        .map_err(|error| Complaint { message: format!("lab client: options: {error}"), code: USAGE })?;
    let report = match flags.client {
        Client::Load => load(&options)?,
        _ => client::run(&options).map_err(|error| failed(&why(&error)))?,
    };
    print(&format!("{}\n", serde_json::to_string(&report).unwrap_or_default()))?;
    Ok(DONE)
}

fn failed(how: &str) -> Complaint {
    Complaint { message: format!("lab client: {how}"), code: FAILED }
}

/// Runs the load generator. It ignores RINGROAD_DRIVER, which is for the programs under test: the client must
/// be the same for all of them.
fn load(options: &Options) -> Result<ClientReport, Complaint> {
    options.check().map_err(|error| failed(&why(&error)))?;
    let plan = plan(options).map_err(|error| failed(&error.to_string()))?;
    let choice = choose::choose(Some(Wish::Auto), None).map_err(|error| failed(&error.to_string()))?;
    let mut course = course::Course::new(options);
    let watched = watched::watched(&plan, &choice, &mut |look| {
        let look = course::Look {
            live: look.live,
            served: look.served,
            answers: look.counts.answers,
            completed: look.counts.completed,
            latencies: look.latencies,
            waiting: course::Waiting(&|| look.waiting()),
        };
        match course.next(&look) {
            course::Next::Go(time) => watched::Next::Go(time),
            course::Next::Measure(time) => watched::Next::Measure(time),
            course::Next::Drain(time) => watched::Next::Drain(time),
            course::Next::Leave => watched::Next::Leave,
        }
    });
    let watched = watched.map_err(|error| failed(&error.to_string()))?;
    // The rings of the program under test may have left no memory for one more.
    let driver = watched.driver.unwrap_or_else(|| choice.driver());
    Ok(report(options, watched, course.into_window(), &format!("load, {driver}")))
}

/// Returns the options as a plan.
fn plan(options: &Options) -> Result<Plan, ringroad_load::Error> {
    // The name of `name:port`, or the address of `[address]:port`.
    let host = options.host.as_deref().map(|host| match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => host.split(':').next().unwrap_or(host),
    });
    let target = Target {
        scheme: match (options.protocol, options.tls) {
            (Protocol::Echo, _) => Scheme::Tcp,
            (_, true) => Scheme::Https,
            (_, false) => Scheme::Http,
        },
        // TLS asks for the host by its name; everything else goes to the address the harness has found.
        host: host.filter(|_| options.tls).map_or_else(|| options.addr.ip().to_string(), str::to_owned),
        port: options.addr.port(),
        path: if options.protocol == Protocol::Echo { String::new() } else { options.path.clone() },
    };
    let messages = match options.protocol {
        Protocol::Echo => echoes(options)?,
        Protocol::Http | Protocol::Files => {
            let headers: Vec<(String, String)> =
                options.host.iter().map(|host| ("Host".to_owned(), host.clone())).collect();
            let request = Request { method: "GET", headers: &headers, body: b"", close: options.reconnect };
            let body = options.body.as_ref().map_or(Body::Alike, |body| Body::Exactly(body.clone().into()));
            vec![Message::http(&target, &request, 1)?.with_body(body)]
        }
    };
    let sources = match options.connections {
        0..=PER_SOURCE_MAX => Vec::new(),
        many => {
            let outgoing = Capacity::of(&ringroad_host::facts()).outgoing;
            source::spread(options.addr.ip(), u64::from(many), outgoing)
        }
    };
    Ok(Plan {
        connections: options.connections,
        silent: options.connections - options.active,
        pipeline: options.pipeline,
        connecting_max: CONNECTING_MAX,
        timeout: Duration::from_secs_f64(options.timeout_s),
        one_request_per_connection: options.reconnect,
        until_closed: options.reconnect,
        // The server is measured; its certificate does not matter.
        tls: options.tls.then(|| tls::Client::new(tls::Trust::Anybody)).transpose()?,
        sources,
        ..Plan::new(target, messages)
    })
}

/// Messages to be echoed: the same in every run.
fn echoes(options: &Options) -> Result<Vec<Message>, ringroad_load::Error> {
    let depth = u64::from(options.pipeline);
    let ready = (depth * (depth + 1) / 2 * u64::from(options.payload_bytes)).max(1);
    let mut random = fastrand::Rng::with_seed(0x1d1e_f00d);
    (0..(MESSAGES_BYTES / ready).clamp(2, MESSAGES))
        .map(|_| Message::echo((0..options.payload_bytes).map(|_| random.u8(..)).collect()))
        .collect()
}

/// Returns what came of it, as the harness reads it.
fn report(
    options: &Options,
    watched: Watched,
    window: Option<client::window::Window>,
    client: &str,
) -> ClientReport {
    let Watched { connected, served, counts, closed, .. } = watched;
    let payload_bytes = match options.protocol {
        Protocol::Echo => (counts.answers > 0).then_some(u64::from(options.payload_bytes)),
        Protocol::Http | Protocol::Files => counts.body_bytes.checked_div(counts.completed),
    };
    let mut errors = counts.errors;
    let mut first_error =
        counts.failures.iter().max_by_key(|(_, count)| **count).map(|(what, _)| what.clone());
    // A server may close a connection to which it owes nothing; the load generator has made it again. Only
    // connections that are to be held open in silence are lost with that.
    let closed = if options.reconnect { 0 } else { closed };
    let is_lost = options.active < options.connections;
    if closed > 0 && is_lost {
        errors.reset += closed;
        first_error.get_or_insert_with(|| "the server closed a connection between requests".to_owned());
    }
    ClientReport {
        client: client.to_owned(),
        connected,
        served,
        sent: counts.sent,
        completed: counts.completed,
        answers: counts.answers,
        // What was sent in part and failed is a failure already.
        bytes_sent: match options.protocol {
            Protocol::Echo => counts.sent * u64::from(options.payload_bytes),
            Protocol::Http | Protocol::Files => 0,
        },
        bytes_received: counts.bytes_received,
        closed: if is_lost { 0 } else { closed },
        errors,
        first_error,
        payload_bytes,
        window,
    }
}
