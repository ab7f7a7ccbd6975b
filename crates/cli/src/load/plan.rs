//! Flags into a plan. Start at [`of`].

use super::Complaint;
use super::flags::LoadFlags;
use super::inputs::Inputs;
use super::urls::{self, Url};
use crate::complaint::{USAGE, name};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ringroad_load::broadcast::Broadcast;
use ringroad_load::hold::Hold;
use ringroad_load::plan::{Body, Pace, Request, Sockets, Stages, pattern, ramp, stages};
use ringroad_load::schedule::Arrivals;
use ringroad_load::site::{Destination, Place, Route};
use ringroad_load::{Message, Plan, Scheme, Table, Target, source};
use std::borrow::Cow;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

/// The default number of connections.
const CONNECTIONS: u32 = 10;

/// The default first rate of a search.
const FIRST_RATE: f64 = 1000.0;

/// Messages per second of a broadcast without a rate.
const FIRST_BROADCAST_RATE: f64 = 1.0;

/// The URL for `--calibrate` alone, which only needs a scheme.
const ANY_URL: &str = "http://127.0.0.1/";

/// What was learnt by asking before the load ([`super::ask`]), and changes the plan.
#[derive(Clone, Debug, Default)]
pub(super) struct Learnt {
    /// Where the redirects led.
    pub(super) target: Option<Target>,
    /// A redirect has made a GET without a body of the request.
    pub(super) is_get: bool,
    /// Cookies the server has set, the last of each name.
    pub(super) cookies: Vec<String>,
}

fn refusal(message: impl Into<String>) -> Complaint {
    Complaint { message: message.into(), code: USAGE }
}

/// All URLs of the load: the one on the command line, the others, those of the file.
fn all_urls(
    flags: &LoadFlags,
    url: Option<&str>,
    learnt: &Learnt,
    inputs: &Inputs,
) -> Result<Vec<Url>, Complaint> {
    let mut all = Vec::new();
    if let Some(text) = url {
        all.push(urls::one(text, None).map_err(refusal)?);
    }
    if let (Some(first), Some(target)) = (all.first_mut(), &learnt.target) {
        first.target = target.clone();
    }
    let base = all.first().map(|first| first.target.clone());
    for text in &flags.also {
        all.push(urls::one(text, base.as_ref()).map_err(refusal)?);
    }
    if let Some(file) = &flags.urls {
        let text = inputs.text(file)?;
        // A base alone is not asked for: it is what the paths in the file belong to.
        let of_file = urls::file(&text, base.as_ref());
        let of_file = of_file.map_err(|why| refusal(format!("--urls {}: {why}", name(file))))?;
        if flags.also.is_empty() {
            all.clear();
        }
        all.extend(of_file);
    }
    Ok(all)
}

/// Returns the text of the messages of a broadcast, if there is one.
fn broadcast_text(flags: &LoadFlags, sent: Option<&[u8]>) -> Result<Option<String>, Complaint> {
    if !flags.broadcast.broadcast {
        return Ok(None);
    }
    let text = match sent {
        Some(body) => String::from_utf8(body.to_vec()),
        None => Ok(Broadcast::padded(flags.length.unwrap_or(64))),
    };
    text.map(Some).map_err(|_| refusal("--broadcast: the message is text of UTF-8"))
}

/// Makes the plan that these flags ask for, for `url` instead of their own if there is one.
pub(super) fn of(
    flags: &LoadFlags,
    url: Option<&str>,
    learnt: &Learnt,
    inputs: &Inputs,
) -> Result<Plan, Complaint> {
    let sent = body(flags, inputs)?;
    let sent = sent.as_deref();
    let refuse = |message: &str| Err(refusal(message));
    let own = flags.url.as_deref().or((flags.urls.is_none()).then_some(ANY_URL));
    let all = all_urls(flags, url.or(own), learnt, inputs)?;
    let Some(first) = all.first().map(|url| url.target.clone()) else { return refuse("no URL") };
    let tcp = first.scheme == Scheme::Tcp;
    let is_request = flags.method.is_some()
        || !flags.header.is_empty()
        || !flags.also.is_empty()
        || flags.urls.is_some()
        || flags.content_type.is_some()
        || flags.accept.is_some()
        || flags.auth.is_some()
        || !flags.cookie.is_empty()
        || flags.host.is_some();
    if tcp && is_request {
        return refuse(
            "-X, -H, -T, -A, -a, -b, --host, --also and --urls: those are HTTP's, and the URL is tcp://",
        );
    }
    if tcp && (flags.location || flags.jar || flags.expect_status.is_some() || flags.expect_body.is_some()) {
        return refuse(
            "-L, --jar, --expect-status and --expect-body: those are HTTP's, and the URL is tcp://",
        );
    }
    let websocket = first.scheme.is_websocket();
    let is_asked = flags.method.is_some()
        || !flags.also.is_empty()
        || flags.urls.is_some()
        || flags.location
        || flags.jar
        || flags.expect_status.is_some()
        || flags.expect_body.is_some()
        || flags.vars.is_some();
    if websocket && is_asked {
        return refuse(
            "-X, -L, --also, --urls, --vars, --jar, --expect-status and --expect-body: those are HTTP's, and the URL is ws://",
        );
    }
    if websocket && flags.delimiter.is_some() {
        return refuse("--delimiter: that is for tcp://");
    }
    if !tcp && !websocket && (flags.length.is_some() || flags.delimiter.is_some()) {
        return refuse("--length and --delimiter: those are for tcp:// and ws://");
    }
    if flags.http2 && (flags.location || flags.jar) {
        return refuse(
            "-L and --jar with --http2: redirects and cookies are read over HTTP/1.1 only, so give the URL and the cookies (-b) themselves",
        );
    }
    if flags.location && all.len() > 1 {
        return refuse("-L with several URLs: give the URLs that the redirects lead to");
    }
    if flags.expect_body.as_ref().is_some_and(String::is_empty) {
        return refuse("--expect-body: a text is expected");
    }
    if flags.broadcast.broadcast && !websocket {
        return refuse("--broadcast: ws:// and wss:// only");
    }
    let mut broadcast = None;
    let (others, messages) = if tcp || websocket {
        let bytes = match (sent, flags.length) {
            (Some(_), Some(_)) => return refuse("--body with --length: the body has a length"),
            (Some(body), None) => body.to_vec(),
            (None, length) => pattern(length.unwrap_or(64)),
        };
        // Any server answers a ping; only an echo answers a message with itself.
        let is_chosen = flags.body.is_some() || flags.body_file.is_some() || flags.length.is_some();
        let pings = websocket && flags.hold.hold && !is_chosen;
        if let Some(text) = broadcast_text(flags, sent)? {
            broadcast = Some(Broadcast::new(&text, flags.broadcast.join.as_deref())?);
        }
        let bytes = broadcast.as_ref().map_or(bytes, Broadcast::sample);
        let message = match flags.delimiter {
            _ if pings => Message::websocket_ping(&named(flags, &first), &headers(flags, learnt)?, bytes)?,
            _ if websocket => Message::websocket(&named(flags, &first), &headers(flags, learnt)?, bytes)?,
            Some(delimiter) => Message::delimited(bytes, delimiter)?,
            None => Message::echo(bytes)?,
        };
        (Vec::new(), vec![message])
    } else {
        requests(flags, &all, sent.unwrap_or_default(), learnt, inputs)?
    };
    let first = named(flags, &first);
    let routes = routes(flags, &all)?;
    let plan = Plan { others, routes, ..Plan::new(first, messages) };
    let is_search = flags.knee.is_some();
    let is_broadcast = flags.broadcast.broadcast;
    let first = if is_broadcast { FIRST_BROADCAST_RATE } else { FIRST_RATE };
    let rate = flags.rate.or((is_search || is_broadcast && flags.stages.is_none()).then_some(first));
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
        None if flags.repeat.is_some() || flags.vs.is_some() => Duration::from_millis(500),
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
            return refuse("-c: --stages or --ramp sets the number of connections");
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
        return refuse("--poisson: needs a rate (--rate, or --stages with /s)");
    }
    if flags.repeat.is_some() && (is_search || flags.calibrate) {
        return refuse("--repeat: cannot be combined with --knee or --calibrate");
    }
    let is_repeated = flags.repeat.is_some() || flags.vs.is_some();
    if stages.as_ref().is_some_and(|stages| stages.seconds() > crate::flags::TIME_MAX.as_secs_f64()) {
        return refuse("--stages, --ramp: all of it together is longer than 10 years");
    }
    let length = stages.as_ref().map(|stages| Duration::from_secs_f64(stages.seconds()));
    let split = super::part::split(flags)?;
    let own = u32::try_from(split.share(connections.into())).unwrap_or(connections);
    let is_secured = plan.sites().any(|site| site.scheme.is_secured());
    let tls = if is_secured || !is_other_secured(flags, url)? {
        super::trust::of(&flags.tls, inputs, is_secured)?
    } else {
        None
    };
    Ok(Plan {
        connections,
        idle: flags.idle,
        threads: flags.threads.unwrap_or_else(|| {
            let of_all = threads(&plan).min(own);
            (of_all / flags.processes.processes).max(1)
        }),
        processes: flags.processes.processes,
        part: flags.processes.process_part.unwrap_or(0),
        split,
        lost_max: flags.processes.allow_lost,
        pipeline: flags.streams.unwrap_or(flags.pipeline),
        http2: flags.http2,
        pace: match open {
            _ if flags.hold.hold => {
                Pace::Hold(Hold { heartbeat: flags.hold.heartbeat, retry_limit: flags.hold.retry_limit })
            }
            Some(open) => open,
            None => Pace::Closed,
        },
        broadcast: broadcast.map(Arc::new),
        stages,
        connect_rate: flags.connect_rate,
        duration: match (length.or(flags.duration), flags.count) {
            (None, Some(_)) => None,
            (length, _) => Some(length.unwrap_or(Duration::from_secs(match (is_search, is_repeated) {
                (true, _) => 3,
                (false, true) => 2,
                (false, false) => 10,
            }))),
        },
        count: flags.count,
        warmup,
        timeout: flags.timeout,
        one_request_per_connection: flags.disable_keepalive,
        tls,
        statuses: flags.expect_status.as_deref().map(str::parse).transpose()?.unwrap_or_default(),
        keeps_cookies: flags.jar,
        connect_limit: flags.connect_limit.unwrap_or_else(|| {
            let all = f64::from(connections.saturating_add(flags.idle));
            let rated = flags.connect_rate.filter(|rate| *rate > 0.0).map_or(0.0, |rate| all / rate);
            Duration::from_secs_f64((60.0 + all / 1000.0 + rated).min(1e9))
        }),
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

/// Whether, of the two URLs that --vs compares, the one that this plan is not for is https.
fn is_other_secured(flags: &LoadFlags, url: Option<&str>) -> Result<bool, Complaint> {
    let other = if url.is_some() { flags.url.as_deref() } else { flags.vs.as_deref() };
    match other.filter(|_| flags.vs.is_some()) {
        Some(other) => Ok(urls::one(other, None).map_err(refusal)?.target.scheme.is_secured()),
        None => Ok(false),
    }
}

/// Returns the target with the name that --host gives it.
fn named(flags: &LoadFlags, target: &Target) -> Target {
    Target { host: flags.host.clone().unwrap_or_else(|| target.host.clone()), ..target.clone() }
}

/// Returns where connections go, if not where the URLs say.
fn routes(flags: &LoadFlags, all: &[Url]) -> Result<Vec<Route>, Complaint> {
    let mut routes = flags.connect_to.iter().map(|text| text.parse()).collect::<Result<Vec<Route>, _>>()?;
    if let Some(path) = &flags.unix {
        routes.push(Route { host: None, port: None, to: Destination::Unix(path.clone()) });
    }
    routes.extend(all.iter().filter_map(|url| url.route.clone()));
    if let Some(host) = &flags.host {
        let server = |url: &Url| (url.target.host.clone(), url.target.port, url.target.scheme);
        if all.iter().any(|url| all.first().map(server) != Some(server(url))) {
            return Err(refusal(
                "--host with several servers: use -H 'Host: NAME', which sends the same line to all of them",
            ));
        }
        for route in &mut routes {
            route.host = None;
        }
        // The name is asked for where the URL says.
        if let Some(url) = all.first().filter(|url| routes.is_empty() && *host != url.target.host) {
            let to = Destination::Tcp(Some(url.target.host.clone()), Some(url.target.port));
            routes.push(Route { host: None, port: None, to });
        }
    }
    Ok(routes)
}

/// Returns the header lines that all requests have.
fn headers(flags: &LoadFlags, learnt: &Learnt) -> Result<Vec<(String, String)>, Complaint> {
    let mut headers = Vec::new();
    for line in &flags.header {
        let Some((name, value)) = line.split_once(':') else {
            return Err(refusal(format!("-H {line}: no colon in it (-H 'Name: value')")));
        };
        headers.push((name.trim().to_owned(), value.trim().to_owned()));
    }
    let mut add = |name: &str, value: String| headers.push((name.to_owned(), value));
    if let Some(value) = &flags.content_type {
        add("Content-Type", value.clone());
    }
    if let Some(value) = &flags.accept {
        add("Accept", value.clone());
    }
    if let Some(login) = &flags.auth {
        if !login.contains(':') {
            return Err(refusal("-a: USER:PASSWORD is expected"));
        }
        add("Authorization", format!("Basic {}", STANDARD.encode(login)));
    }
    let cookies: Vec<&str> = flags.cookie.iter().chain(&learnt.cookies).map(String::as_str).collect();
    if !cookies.is_empty() {
        add("Cookie", cookies.join("; "));
    }
    Ok(headers)
}

/// One request for each URL, and the servers beside the first.
fn requests(
    flags: &LoadFlags,
    all: &[Url],
    body: &[u8],
    learnt: &Learnt,
    inputs: &Inputs,
) -> Result<(Vec<Target>, Vec<Message>), Complaint> {
    let headers = headers(flags, learnt)?;
    let (given, body) = (body, if learnt.is_get { &[] } else { body });
    let table = match &flags.vars {
        Some(_) if flags.no_template => {
            return Err(refusal("--vars with --no-template: nothing is filled in"));
        }
        Some(file) => {
            let text = inputs.text(file)?;
            Some(Arc::new(
                Table::parse(&text).map_err(|why| refusal(format!("--vars {}: {why}", name(file))))?,
            ))
        }
        None => None,
    };
    let asked = if learnt.is_get { Some("GET") } else { flags.method.as_deref() };
    let method = asked.unwrap_or(if body.is_empty() { "GET" } else { "POST" });
    let mut sites: Vec<Target> = Vec::new();
    let mut messages = Vec::new();
    for url in all {
        if !url.target.scheme.is_http() {
            let scheme = url.target.scheme.as_str();
            return Err(refusal(format!(
                "URL {}: {scheme}:// cannot be combined with other URLs",
                url.target
            )));
        }
        let target = named(flags, &url.target);
        let same = |site: &Target| {
            (&site.host, site.port, site.scheme) == (&target.host, target.port, target.scheme)
        };
        let site = sites.iter().position(same).unwrap_or_else(|| {
            sites.push(target.clone());
            sites.len() - 1
        });
        let method = url.method.as_deref().unwrap_or(method);
        let request = Request { method, headers: &headers, body, close: flags.disable_keepalive };
        let message = match flags.no_template {
            true => Message::http(&target, &request, url.weight)?,
            false => Message::template(&target, &request, url.weight, table.as_ref())?,
        };
        let message = message.at(site as u16);
        messages.push(match &flags.expect_body {
            Some(text) => message.with_body(Body::Contains(text.clone().into_bytes())),
            None => message,
        });
    }
    if let (Some(table), Some(file)) = (&table, &flags.vars) {
        let paths = all.iter().map(|url| url.target.path.as_str().into());
        let values = headers.iter().map(|(_, value)| value.as_str().into());
        let texts: Vec<Cow<'_, str>> = paths.chain(values).chain([String::from_utf8_lossy(given)]).collect();
        let names: Vec<String> = table.names().map(|name| format!("{{{name}}}")).collect();
        if !names.iter().any(|name| texts.iter().any(|text| text.contains(name.as_str()))) {
            let (file, names) = (name(file), names.join(" or "));
            return Err(refusal(format!("--vars {file}: no {names} in a URL, a header line or the body")));
        }
    }
    sites.remove(0);
    Ok((sites, messages))
}

/// Returns the body of the flags: the bytes themselves, or those of the file behind an `@` or of another
/// option.
fn body(flags: &LoadFlags, inputs: &Inputs) -> Result<Option<Rc<[u8]>>, Complaint> {
    let file = match (&flags.body, &flags.body_file) {
        (Some(text), _) => match text.strip_prefix('@') {
            Some(file) => Path::new(file),
            None => return Ok(Some(text.as_bytes().into())),
        },
        (None, Some(file)) => file,
        (None, None) => return Ok(None),
    };
    inputs.bytes(file).map(Some)
}

/// One per CPU of this process; if all servers are on this machine, half of them are for the servers.
fn threads(plan: &Plan) -> u32 {
    let cpus = available_parallelism().map_or(1, |count| count.get() as u32);
    let here = plan.places().all(|place| match place {
        Place::Unix(_) => true,
        Place::Tcp(host, _) => {
            host == "localhost"
                || host.parse::<std::net::IpAddr>().is_ok_and(|address| {
                    let address = address.to_canonical();
                    address.is_loopback() || address.is_unspecified()
                })
        }
    });
    if here { (cpus / 2).max(1) } else { cpus }
}
