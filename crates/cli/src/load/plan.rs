//! Flags into a plan. Start at [`of`].

use crate::flags::LoadFlags;
use ringroad_load::hold::Hold;
use ringroad_load::plan::{Pace, Request, Sockets, Stages, pattern, ramp, stages};
use ringroad_load::schedule::Arrivals;
use ringroad_load::{Message, Plan, Scheme, Target, source};
use std::fs;
use std::path::Path;
use std::thread::available_parallelism;
use std::time::Duration;

use super::Complaint;
use crate::complaint::{FAILED, USAGE, name, why};

/// Connections, where nobody says how many.
const CONNECTIONS: u32 = 10;

/// The first rate of a search, where nobody says another.
const FIRST_RATE: f64 = 1000.0;

/// What a load is like of which nothing is known but that it is one (`--calibrate` alone).
const ANY_URL: &str = "http://127.0.0.1/";

/// The plan that these flags ask for.
pub(super) fn of(flags: &LoadFlags) -> Result<Plan, Complaint> {
    let refuse = |message: &str| Err(Complaint { message: message.to_owned(), code: USAGE });
    let url = flags.url.as_deref().unwrap_or(ANY_URL);
    let (first, _) = weighted(url)?;
    let tcp = first.scheme == Scheme::Tcp;
    if tcp && (flags.method.is_some() || !flags.header.is_empty() || !flags.also.is_empty()) {
        return refuse("-X, -H and --also: those are HTTP's, and the URL is tcp://");
    }
    if !tcp && (flags.length.is_some() || flags.delimiter.is_some()) {
        return refuse("--length and --delimiter: those are for tcp://");
    }
    let body = flags.body.as_deref().map(body).transpose()?;
    let messages = if tcp {
        let bytes = match (body, flags.length) {
            (Some(_), Some(_)) => return refuse("--body with --length: the body has a length"),
            (Some(body), None) => body,
            (None, length) => pattern(length.unwrap_or(64)),
        };
        vec![match flags.delimiter {
            Some(delimiter) => Message::delimited(bytes, delimiter)?,
            None => Message::echo(bytes)?,
        }]
    } else {
        requests(flags, url, &first, &body.unwrap_or_default())?
    };
    let plan = Plan::new(first, messages);
    let is_search = flags.knee.is_some();
    let rate = flags.rate.or(is_search.then_some(FIRST_RATE));
    let open = rate.map(|per_second| Pace::Open {
        per_second,
        arrivals: if flags.poisson { Arrivals::Poisson } else { Arrivals::Constant },
    });
    let warmup = flags.warmup.unwrap_or(match flags.count {
        // A count is exact, so all of it is measured.
        Some(_) => Duration::ZERO,
        None if is_search => Duration::from_millis(500),
        // What is lost is counted from the first moment.
        None if flags.hold.hold => Duration::ZERO,
        None => Duration::from_secs(1),
    });
    if flags.count.is_some() && !warmup.is_zero() {
        return refuse("--warmup with -n: a count is measured from its first request");
    }
    let time = |text: &str| crate::flags::time(text).ok();
    let staged = match (&flags.stages, &flags.ramp) {
        (Some(text), _) => Some(stages(text, time)?),
        (None, Some(text)) => Some(ramp(text, time)?),
        (None, None) => None,
    };
    let (open, stages, connections) = match staged {
        None => (open, None, flags.connections.unwrap_or(CONNECTIONS)),
        Some(Stages::Connections(_)) if flags.connections.is_some() => {
            return refuse("-c: how many connections send is said by --stages or --ramp");
        }
        Some(Stages::Connections(profile)) => (None, Some(profile.clone()), profile.most() as u32),
        Some(Stages::Rate(profile)) => {
            let arrivals = if flags.poisson { Arrivals::Poisson } else { Arrivals::Constant };
            let per_second = profile.arrivals() / profile.seconds();
            let connections = flags.connections.unwrap_or(CONNECTIONS);
            (Some(Pace::Open { per_second, arrivals }), Some(profile), connections)
        }
    };
    if flags.poisson && open.is_none() {
        return refuse("--poisson: it goes with a rate (--rate, or --stages with /s)");
    }
    let length = stages.as_ref().map(|stages| Duration::from_secs_f64(stages.seconds()));
    Ok(Plan {
        connections,
        idle: flags.idle,
        threads: flags.threads.unwrap_or_else(|| {
            let of_all = threads(&plan.target).min(connections);
            (of_all / flags.processes.processes).max(1)
        }),
        processes: flags.processes.processes,
        part: flags.processes.part.unwrap_or(0),
        lost_max: flags.processes.allow_lost,
        pipeline: flags.pipeline,
        pace: match open {
            _ if flags.hold.hold => {
                Pace::Hold(Hold { heartbeat: flags.hold.heartbeat, retry_limit: flags.hold.retry_limit })
            }
            Some(open) => open,
            None => Pace::Closed,
        },
        stages,
        connect_rate: flags.connect_rate,
        duration: match (length.or(flags.duration), flags.count) {
            (None, Some(_)) => None,
            (length, _) => Some(length.unwrap_or(Duration::from_secs(if is_search { 3 } else { 10 }))),
        },
        count: flags.count,
        warmup,
        timeout: flags.timeout,
        one_request_per_connection: flags.disable_keepalive,
        tls: super::trust::of(&flags.tls, plan.target.scheme)?,
        sockets: Sockets {
            nodelay: !flags.no_nodelay,
            receive_buffer: flags.rcvbuf,
            send_buffer: flags.sndbuf,
        },
        sources: flags.source.as_deref().map(source::list).transpose()?.unwrap_or_default(),
        seed: flags.seed,
        ..plan
    })
}

/// One request for each URL, all on the connections of the first.
fn requests(flags: &LoadFlags, url: &str, first: &Target, body: &[u8]) -> Result<Vec<Message>, Complaint> {
    let mut headers = Vec::new();
    for line in &flags.header {
        let Some((name, value)) = line.split_once(':') else {
            return Err(Complaint {
                message: format!("-H {line}: no colon in it (-H 'Name: value')"),
                code: USAGE,
            });
        };
        headers.push((name.trim().to_owned(), value.trim().to_owned()));
    }
    let method = flags.method.as_deref().unwrap_or(if body.is_empty() { "GET" } else { "POST" });
    let request = Request { method, headers: &headers, body, close: flags.disable_keepalive };
    std::iter::once(url)
        .chain(flags.also.iter().map(String::as_str))
        .map(|text| {
            // What begins with a slash is on the same server.
            let whole = match text.strip_prefix('/') {
                Some(path) => format!("{}://{}/{path}", first.scheme.as_str(), first.authority()),
                None => text.to_owned(),
            };
            let (target, weight) = weighted(&whole)?;
            if (&target.host, target.port, target.scheme) != (&first.host, first.port, first.scheme) {
                let message = format!("--also {text}: another server than {}", first.authority());
                return Err(Complaint { message, code: USAGE });
            }
            Ok(Message::http(&target, &request, weight)?)
        })
        .collect()
}

/// A URL, and behind a blank how often it is asked for.
fn weighted(text: &str) -> Result<(Target, u32), Complaint> {
    let (url, weight) = match text.split_once(' ') {
        Some((url, weight)) => match weight.trim().parse::<u32>() {
            Ok(weight @ 1..=10_000) => (url, weight),
            _ => {
                let message = format!("URL {text}: behind the blank a weight is expected, from 1 to 10000");
                return Err(Complaint { message, code: USAGE });
            }
        },
        None => (text, 1),
    };
    Ok((url.parse()?, weight))
}

/// The bytes themselves, or those of the file behind an `@`.
fn body(text: &str) -> Result<Vec<u8>, Complaint> {
    let Some(file) = text.strip_prefix('@') else { return Ok(text.as_bytes().to_vec()) };
    let file = Path::new(file);
    fs::read(file).map_err(|error| Complaint {
        message: format!("read, on {}: {}", name(file), why(&error)),
        code: FAILED,
    })
}

/// One for each CPU there is for us; if the server is on this machine, half of them are its own.
fn threads(target: &Target) -> u32 {
    let cpus = available_parallelism().map_or(1, |count| count.get() as u32);
    let here = target.host == "localhost"
        || target.host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    if here { (cpus / 2).max(1) } else { cpus }
}
