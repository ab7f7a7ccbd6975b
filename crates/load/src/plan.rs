//! The description of a load: what is sent where, how often, over how many connections, for how long.
//!
//! Data and its validation; no I/O. Start at [`Plan`].

use crate::broadcast::Broadcast;
use crate::direct::Direct;
use crate::error::Error;
use crate::hold::Hold;
use crate::schedule::{Arrivals, Profile};
use crate::share::share;
use crate::site::{Place, Route};
use crate::statuses::Statuses;
use crate::target::Target;
use crate::template::{Marks, Table, Template, Where};
use crate::tls;
use crate::websocket::{self, Opening};
use bytes::Bytes;
use ringroad_wire::{Asked, BodySize, Encoder, Method};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Requests in flight on one connection at most.
pub const PIPELINE_MAX: u32 = 256;

/// The most messages with separate figures: each takes a histogram per thread.
pub const URLS_MAX: usize = 64;

/// One load.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The first URL.
    pub target: Target,
    /// Servers beside that of `target`. Connections are divided among all of them by the weights of their
    /// messages ([`Message::at`]).
    pub others: Vec<Target>,
    /// Connections that go elsewhere than their URL says.
    pub routes: Vec<Route>,
    /// Statuses of a good answer.
    pub statuses: Statuses,
    /// Whether cookies that the server sets are kept ([`Counts::cookies`](crate::Counts::cookies)).
    pub keeps_cookies: bool,
    /// The requests: at least one.
    pub messages: Vec<Message>,
    /// Connections that send.
    pub connections: u32,
    /// Of these, connections that send one request, which shows that they are served, and are then held open
    /// silently (closed loop). They are spread evenly among the others.
    pub silent: u32,
    /// Additional idle connections.
    pub idle: u32,
    /// Threads per process, each with a runtime and its share of connections and requests.
    pub threads: u32,
    /// Number of processes that share the load.
    pub processes: u32,
    /// The number of this process, from 0.
    pub part: u32,
    /// Which part of the load this program puts on. The figures of a plan are those of the whole load;
    /// [`Plan::own`] has those of the part.
    pub split: Split,
    /// The number of processes that may be lost before the run is INVALID.
    pub lost_max: u32,
    /// Requests in flight on a connection; with `http2`, its streams.
    pub pipeline: u32,
    /// HTTP/2 is spoken: by prior knowledge, or chosen by TLS.
    pub http2: bool,
    /// Closed or open loop.
    pub pace: Pace,
    /// Each message has to reach all connections, and each arrival counts as an answer; `None`: each message
    /// has an answer of its own.
    pub broadcast: Option<Arc<Broadcast>>,
    /// A load that changes: the rate in open loop, the connections that send in closed loop. `None`:
    /// constant.
    pub stages: Option<Profile>,
    /// Connections made per second at most; `None`: no limit.
    pub connect_rate: Option<f64>,
    /// Connections per thread that may be in progress at a time before the load begins: more would only fill
    /// the server's backlog, and the kernel retries a SYN that was dropped after a second.
    pub connecting_max: u32,
    /// How long all of the connecting may take: then the load begins with the connections there are. It also
    /// begins if none was made for as long as `timeout`.
    pub connect_limit: Duration,
    /// How often in a second figures are handed over for [`Event::Slice`](crate::Event::Slice), 1 to 10.
    pub slices: u32,
    /// Measured time; `None`: until `count` requests are answered.
    pub duration: Option<Duration>,
    /// Maximum number of requests.
    pub count: Option<u64>,
    /// Load before the measured time.
    pub warmup: Duration,
    /// Limit for one answer, and for one connection.
    pub timeout: Duration,
    /// A new connection for every request.
    pub one_request_per_connection: bool,
    /// With that: a request lasts from the start of its connect to the close by the server, which is awaited.
    /// Otherwise latencies do not include connecting, and the client closes when it has its answer.
    pub until_closed: bool,
    /// Which certificates to accept, for https.
    pub tls: Option<tls::Client>,
    /// Socket options.
    pub sockets: Sockets,
    /// Connections live in the file tables of the rings, without descriptors; `None`: they have descriptors.
    pub direct: Option<Direct>,
    /// Source addresses, used in turns; empty: the kernel chooses.
    pub sources: Vec<IpAddr>,
    /// Seed of random choices.
    pub seed: u64,
}

/// One part of a load that several programs put on, each with the same plan and no word between them.
///
/// Connections and requests are dealt out like cards: part I of N has those with the numbers I, I + N,
/// I + 2N, …, so the shares add up to the whole and depend on nothing else, such as the threads of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Split {
    /// Its number, from 0.
    pub index: u32,
    /// The number of parts.
    pub count: u32,
}

impl Split {
    /// The whole load.
    pub const WHOLE: Split = Split { index: 0, count: 1 };

    /// Returns whether there is one part only.
    pub fn is_whole(self) -> bool {
        self.count == 1
    }

    /// Returns what of `all` falls to this part.
    pub fn share(self, all: u64) -> u64 {
        share(all, self.index, self.count)
    }

    /// Of `all` connections.
    fn of(self, all: u32) -> u32 {
        // A share of a number of 32 bits has at most as many.
        self.share(all.into()) as u32
    }
}

impl std::fmt::Display for Split {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", u64::from(self.index) + 1, self.count)
    }
}

impl std::str::FromStr for Split {
    type Err = Error;

    /// Reads `I/N`, with I from 1 to N.
    fn from_str(text: &str) -> Result<Split, Error> {
        let refuse = |why: &str| Error::usage(format!("part {text}: {why} (1/8 is the first of eight)"));
        let (index, count) = text.split_once('/').ok_or_else(|| refuse("I/N is expected"))?;
        let number = |text: &str| text.parse::<u32>().map_err(|_| refuse("I/N is expected, two numbers"));
        let (index, count) = (number(index)?, number(count)?);
        if index == 0 || index > count {
            return Err(refuse("parts are counted from 1 to N"));
        }
        Ok(Split { index: index - 1, count })
    }
}

/// How requests follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Pace {
    /// A connection sends its next request when it has its answer.
    Closed,
    /// Requests are sent on schedule.
    Open {
        /// Requests per second, all connections together.
        per_second: f64,
        /// Evenly spaced or Poisson.
        arrivals: Arrivals,
    },
    /// Connections are held, and each has a heartbeat.
    Hold(Hold),
}

impl Pace {
    /// Returns whether requests are scheduled independently of the answers.
    pub fn is_timed(&self) -> bool {
        !matches!(self, Pace::Closed)
    }
}

/// Options of every socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sockets {
    /// `TCP_NODELAY`.
    pub nodelay: bool,
    /// `SO_RCVBUF`, bytes, set before connecting.
    pub receive_buffer: Option<u32>,
    /// `SO_SNDBUF`, bytes, likewise.
    pub send_buffer: Option<u32>,
}

/// A request, encoded once, and the expected answer.
#[derive(Clone, Debug)]
pub struct Message {
    /// Shared by all copies of the message, because a body may be large.
    pub(crate) bytes: Bytes,
    pub(crate) expect: Expect,
    /// The body expected of a good answer.
    pub(crate) body: Body,
    /// Weight among all messages.
    pub(crate) weight: u32,
    /// The server: 0 for the plan's target, then its others.
    pub(crate) site: u16,
    /// What it is called in a summary: method and path, or nothing.
    pub(crate) label: String,
    /// If it is another each time.
    pub(crate) template: Option<Arc<Template>>,
    /// What a connection sends before its first message, where that is WebSocket.
    pub(crate) opening: Option<Arc<Opening>>,
}

/// The body expected of a good answer; another one is a protocol error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Body {
    /// Anything.
    #[default]
    Any,
    /// The body of the first good answer to the same message, per thread.
    Alike,
    /// These bytes.
    Exactly(Vec<u8>),
    /// Anything with these bytes in it. An answer without them fails, and its connection goes on.
    Contains(Vec<u8>),
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// A response to such a request.
    Http(Asked),
    /// The same bytes.
    Echo,
    /// Frames with the body of the message.
    Frames,
    /// Anything up to this byte.
    Delimiter(u8),
}

/// The parts of an HTTP request.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Any token.
    pub method: &'a str,
    /// Header lines beside those that the request needs.
    pub headers: &'a [(String, String)],
    /// The body.
    pub body: &'a [u8],
    /// Whether it is the last on its connection.
    pub close: bool,
}

impl Message {
    /// Returns a request for `target`.
    ///
    /// # Errors
    /// Something in it cannot be sent as HTTP.
    pub fn http(target: &Target, request: &Request<'_>, weight: u32) -> Result<Message, Error> {
        let bytes = encode(target, request)?;
        let label = format!("{} {target}", request.method);
        let asked = Asked::from(Method::new(request.method.as_bytes()));
        Ok(Message { expect: Expect::Http(asked), weight, label, ..Message::of(bytes) })
    }

    /// Returns a request for `target` with placeholders in its path, its header lines or its body, which are
    /// filled in for each request: `{n}`, `{random}`, `{random:1-9}`, `{uuid}` and the columns of `table`.
    /// Without any it is a fixed request.
    ///
    /// # Errors
    /// Something in it cannot be sent as HTTP.
    pub fn template(
        target: &Target,
        request: &Request<'_>,
        weight: u32,
        table: Option<&Arc<Table>>,
    ) -> Result<Message, Error> {
        let mut marks = Marks::new(table.cloned());
        let text = |bytes: Cow<'_, [u8]>| String::from_utf8_lossy(&bytes).into_owned();
        let path = text(marks.replace(target.path.as_bytes(), Where::Path)?);
        let mut headers = Vec::new();
        for (name, value) in request.headers {
            headers.push((name.clone(), text(marks.replace(value.as_bytes(), Where::Header)?)));
        }
        let body = marks.replace(request.body, Where::Body)?;
        if marks.is_empty() {
            return Message::http(target, request, weight);
        }
        let marked = Request { headers: &headers, body: &body, ..request.clone() };
        let template = Template::new(&encode(&Target { path, ..target.clone() }, &marked)?, marks)?;
        let mut bytes = Vec::new();
        template.write(&mut bytes, 0, &mut fastrand::Rng::with_seed(0));
        let label = format!("{} {target}", request.method);
        let asked = Asked::from(Method::new(request.method.as_bytes()));
        let template = Some(Arc::new(template));
        Ok(Message { expect: Expect::Http(asked), weight, label, template, ..Message::of(bytes) })
    }

    fn of(bytes: Vec<u8>) -> Message {
        let (body, label) = (Body::Any, String::new());
        Message {
            bytes: bytes.into(),
            expect: Expect::Echo,
            body,
            weight: 1,
            site: 0,
            label,
            template: None,
            opening: None,
        }
    }

    /// Returns a message of which only the length of its payload is known, to report by.
    pub(crate) fn placeholder(bytes: u64) -> Message {
        Message::of(vec![0; usize::try_from(bytes).unwrap_or(0)])
    }

    /// Returns the same for another server: 0 is the target of the plan, 1 the first of its others.
    pub fn at(self, site: u16) -> Message {
        Message { site, ..self }
    }

    /// Returns what it is called: its method and its URL; nothing for an echo.
    pub fn label(&self) -> &str {
        &self.label
    }
}

/// Returns the bytes of a request.
fn encode(target: &Target, request: &Request<'_>) -> Result<Vec<u8>, Error> {
    let refuse = |what: String| move |why| Error::usage(format!("{what}: {why}"));
    let mut bytes = Vec::new();
    let authority = target.authority();
    // A proxy or a virtual host is asked for by a Host line of one's own.
    let host = request.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("host"));
    let host = host.map_or(authority.as_str(), |(_, value)| value.as_str());
    let mut encoder = Encoder::request_named(&mut bytes, request.method, &target.path, host)
        .map_err(refuse(format!("request {} {target}", request.method)))?;
    let mut agent = false;
    for (name, value) in request.headers.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("host")) {
        encoder.field(name, value).map_err(refuse(format!("header {name}: {value}")))?;
        agent |= name.eq_ignore_ascii_case("user-agent");
    }
    if !agent {
        encoder
            .field("User-Agent", concat!("ringroad/", env!("CARGO_PKG_VERSION")))
            .map_err(refuse("header User-Agent".to_owned()))?;
    }
    if request.close {
        encoder.close();
    }
    let mut body = encoder.finish(BodySize::Known(request.body.len() as u64));
    // Exactly, because a Vec that grows doubles, and a body may be large.
    bytes.reserve_exact(request.body.len());
    let refused = refuse(format!("body, with {}", request.method));
    body.data(&mut bytes, request.body).and_then(|()| body.end(&mut bytes)).map_err(refused)?;
    let method = Method::new(request.method.as_bytes());
    if method == Method::Connect {
        return Err(Error::usage("method CONNECT: what it opens is not HTTP any more"));
    }
    Ok(bytes)
}

impl Message {
    /// Makes a message of bytes that come back as they are.
    ///
    /// # Errors
    /// There are none.
    pub fn echo(bytes: Vec<u8>) -> Result<Message, Error> {
        if bytes.is_empty() {
            return Err(Error::usage("message: nothing in it, so nothing could come back"));
        }
        Ok(Message::of(bytes))
    }

    /// Returns a WebSocket message that comes back. Connections are opened with these header lines.
    ///
    /// # Errors
    /// There is nothing in it, or a header line cannot be sent.
    pub fn websocket(
        target: &Target,
        headers: &[(String, String)],
        payload: Vec<u8>,
    ) -> Result<Message, Error> {
        let bytes = websocket::frame(&payload)?;
        Message::frames(target, headers, payload, bytes, false)
    }

    /// Returns a WebSocket ping, which any server answers. Messages that the server sends are passed over.
    ///
    /// # Errors
    /// It has no bytes or more than 125, or a header line cannot be sent.
    pub fn websocket_ping(
        target: &Target,
        headers: &[(String, String)],
        payload: Vec<u8>,
    ) -> Result<Message, Error> {
        let bytes = websocket::ping(&payload)?;
        Message::frames(target, headers, payload, bytes, true)
    }

    fn frames(
        target: &Target,
        headers: &[(String, String)],
        payload: Vec<u8>,
        bytes: Vec<u8>,
        pings: bool,
    ) -> Result<Message, Error> {
        // As any request with these lines.
        encode(target, &Request { method: "GET", headers, body: &[], close: false })?;
        let opening = Some(Arc::new(Opening::new(target, headers, pings)));
        let body = Body::Exactly(payload);
        Ok(Message { expect: Expect::Frames, body, opening, ..Message::of(bytes) })
    }

    /// Makes a message of bytes up to a delimiter, which is added where it is missing, and an answer up to
    /// the next.
    ///
    /// # Errors
    /// The delimiter stands inside as well: that would be several messages.
    pub fn delimited(mut bytes: Vec<u8>, delimiter: u8) -> Result<Message, Error> {
        match memchr::memchr(delimiter, &bytes) {
            None => bytes.push(delimiter),
            Some(at) if at + 1 == bytes.len() => {}
            Some(at) => {
                return Err(Error::usage(format!(
                    "message: byte {at} is the delimiter, which may only end it"
                )));
            }
        }
        Ok(Message { expect: Expect::Delimiter(delimiter), ..Message::of(bytes) })
    }

    /// Returns the same message, and has the bodies of its answers looked at.
    pub fn with_body(self, body: Body) -> Message {
        Message { body, ..self }
    }

    /// Returns its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Payload bytes for the record: the message of an echo. For HTTP they are known after the load.
    pub(crate) fn payload_bytes(&self) -> u64 {
        match self.expect {
            Expect::Http(_) => 0,
            Expect::Frames => match &self.body {
                Body::Exactly(payload) => payload.len() as u64,
                _ => self.bytes.len() as u64,
            },
            Expect::Echo | Expect::Delimiter(_) => self.bytes.len() as u64,
        }
    }
}

/// Returns a message of `length` bytes for an echo: letters, so that a dump can be read, and never a newline.
pub fn pattern(length: u32) -> Vec<u8> {
    (0..length).map(|nth| b'a' + (nth % 26) as u8).collect()
}

impl Plan {
    /// Makes a load on `target` with these messages and default settings: ten connections, closed loop, ten
    /// seconds after one second of warm-up.
    pub fn new(target: Target, messages: Vec<Message>) -> Plan {
        Plan {
            target,
            others: Vec::new(),
            routes: Vec::new(),
            statuses: Statuses::default(),
            keeps_cookies: false,
            messages,
            connections: 10,
            silent: 0,
            idle: 0,
            threads: 1,
            processes: 1,
            part: 0,
            split: Split::WHOLE,
            lost_max: 0,
            pipeline: 1,
            http2: false,
            pace: Pace::Closed,
            broadcast: None,
            stages: None,
            connect_rate: None,
            connecting_max: 256,
            connect_limit: Duration::from_secs(60),
            slices: 1,
            duration: Some(Duration::from_secs(10)),
            count: None,
            warmup: Duration::from_secs(1),
            timeout: Duration::from_secs(10),
            one_request_per_connection: false,
            until_closed: false,
            tls: None,
            sockets: Sockets { nodelay: true, receive_buffer: None, send_buffer: None },
            direct: None,
            sources: Vec::new(),
            seed: 0,
        }
    }

    /// Connections that go on sending.
    pub fn active(&self) -> u32 {
        self.connections.saturating_sub(self.silent)
    }

    /// Connections that are held: those that send, and those that say nothing.
    pub fn held(&self) -> u32 {
        self.connections.saturating_add(self.idle)
    }

    /// Returns the servers: that of the target, then the others.
    pub fn sites(&self) -> impl Iterator<Item = &Target> {
        std::iter::once(&self.target).chain(&self.others)
    }

    /// Returns where the connections of each server go.
    pub fn places(&self) -> impl Iterator<Item = Place> {
        self.sites().map(|site| Place::of(site, &self.routes))
    }

    /// Returns whether the figures of each message are kept apart.
    pub fn tells_urls(&self) -> bool {
        (2..=URLS_MAX).contains(&self.messages.len()) && self.target.scheme.is_http()
    }

    /// Threads of all processes of this program.
    pub fn workers(&self) -> u32 {
        self.threads * self.processes
    }

    /// Returns the plan with the figures of this part alone, to report and to judge it: connections,
    /// requests, rate and stages are its shares. What is run is the plan itself, which divides them exactly.
    #[must_use]
    pub fn own(&self) -> Plan {
        let split = self.split;
        if split.is_whole() {
            return self.clone();
        }
        let fraction = 1.0 / f64::from(split.count);
        let timed = self.pace.is_timed();
        Plan {
            split: Split::WHOLE,
            connections: split.of(self.connections),
            silent: split.of(self.silent),
            idle: split.of(self.idle),
            count: self.count.map(|count| split.share(count)),
            connect_rate: self.connect_rate.map(|rate| rate * fraction),
            pace: match self.pace {
                Pace::Open { per_second, arrivals } => {
                    Pace::Open { per_second: per_second * fraction, arrivals }
                }
                pace => pace,
            },
            stages: self.stages.as_ref().map(|stages| {
                stages.mapped(|level| if timed { level * fraction } else { split.share(level as u64) as f64 })
            }),
            ..self.clone()
        }
    }

    /// Checks that the parts fit together.
    ///
    /// # Errors
    /// Which part does not fit, and what would.
    pub fn check(&self) -> Result<(), Error> {
        let refuse = |why: &str| Err(Error::usage(why));
        if self.messages.is_empty() || self.messages.iter().all(|message| message.weight == 0) {
            return refuse("nothing to send: at least one message needs a weight above 0");
        }
        if self.connections == 0 {
            return refuse("-c 0: at least one connection has to send");
        }
        if self.split.index >= self.split.count {
            return refuse("--part I/N: I from 1 to N");
        }
        let own = self.split.share(self.connections.into());
        if self.split.count > self.connections {
            return refuse("--part I/N: each part needs a connection, so at most as many parts as -c");
        }
        if self.count.is_some_and(|count| count > 0 && count < self.split.count.into()) {
            return refuse("--part I/N: each part needs a request, so at most as many parts as -n");
        }
        if self.threads == 0
            || self.processes == 0
            || u64::from(self.threads) * u64::from(self.processes) > own
        {
            return refuse("-t and --processes: from one thread to as many as there are connections");
        }
        if !(1..=PIPELINE_MAX).contains(&self.pipeline) {
            return refuse("--pipeline and --streams: from 1 to 256");
        }
        if self.http2 {
            if self.sites().any(|site| !site.scheme.is_http()) {
                return refuse("--http2: http:// and https:// only");
            }
            if self.one_request_per_connection || matches!(self.pace, Pace::Hold(_)) {
                return refuse(
                    "--http2 with --disable-keepalive or --hold: a connection of HTTP/2 is kept for all its requests",
                );
            }
        }
        if self.duration.is_some_and(|length| length.is_zero()) || self.timeout.is_zero() {
            return refuse("a duration or a timeout of nothing: give at least 1ms");
        }
        if self.connect_rate.is_some_and(|rate| !(rate.is_finite() && rate > 0.0)) {
            return refuse("--connect-rate: a number above 0 is expected");
        }
        if let Some(stages) = &self.stages {
            if self.duration.is_none_or(|length| (length.as_secs_f64() - stages.seconds()).abs() > 1e-6)
                || self.count.is_some()
            {
                return refuse(
                    "--stages: how long it lasts is said there, so neither -d nor -n goes with it",
                );
            }
            if self.pace == Pace::Closed && stages.most().ceil() != f64::from(self.connections) {
                return refuse(
                    "--stages: how many connections there are is said there, so -c does not go with it",
                );
            }
        }
        if self.duration.is_none() && self.count.is_none() {
            return refuse("no end: give -d or -n");
        }
        if self.count == Some(0) {
            return refuse("-n 0: at least one request");
        }
        if self.pipeline > 1 && self.one_request_per_connection {
            return refuse(
                "--pipeline with --disable-keepalive: a connection with one request has one in flight",
            );
        }
        if self.silent >= self.connections {
            return refuse("silent connections: at least one of all has to go on sending");
        }
        if self.silent > 0
            && (self.pace != Pace::Closed || self.stages.is_some() || self.one_request_per_connection)
        {
            return refuse("silent connections: they go with a closed loop on connections that are kept");
        }
        if self.connecting_max == 0 {
            return refuse("no connection may be on its way: at least one has to");
        }
        if self.until_closed && !(self.one_request_per_connection && self.pace == Pace::Closed) {
            return refuse("requests until the close: they go with a closed loop and a connection for each");
        }
        if self.one_request_per_connection && !self.target.scheme.is_http() {
            return refuse("--disable-keepalive: that is HTTP's; tcp:// and ws:// keep their connections");
        }
        let secured = self.sites().any(|site| site.scheme.is_secured());
        if !self.others.is_empty() && self.sites().any(|site| !site.scheme.is_http()) {
            return refuse("several servers: http:// and https:// only");
        }
        if own < self.others.len() as u64 + 1 {
            return refuse("-c: fewer connections than servers");
        }
        if self.messages.iter().any(|message| usize::from(message.site) > self.others.len()) {
            return refuse("a message for a server that is not in the plan");
        }
        if !(1..=10).contains(&self.slices) {
            return refuse("slices of a second: from 1 to 10");
        }
        if self.connect_limit.is_zero() {
            return refuse("--connect-limit: give at least 1ms");
        }
        if !secured && self.tls.is_some() {
            return refuse("certificates are for https");
        }
        if secured && self.tls.is_none() {
            return refuse("https needs certificates to trust, or the decision to verify none");
        }
        if let Pace::Hold(hold) = self.pace {
            self.check_hold(hold)?;
        }
        if self.broadcast.is_some() {
            self.check_broadcast()?;
        }
        if let Pace::Open { per_second, .. } = self.pace {
            if !(per_second.is_finite() && (1e-3..=1e8).contains(&per_second)) {
                return refuse("-r: from 0.001 to 100000000 requests per second");
            }
            if self.pipeline > 1 && !self.http2 {
                return refuse(
                    "--pipeline with -r: a rate is met by connections (-c), each with one request in flight",
                );
            }
        }
        Ok(())
    }

    /// Checks whether this can be broadcast.
    fn check_broadcast(&self) -> Result<(), Error> {
        let refuse = |why: &str| Err(Error::usage(why));
        if !self.target.scheme.is_websocket() {
            return refuse("--broadcast: ws:// and wss:// only");
        }
        if !matches!(self.pace, Pace::Open { .. }) {
            return refuse(
                "--broadcast: messages are sent on schedule (--rate), and connections are not held apart",
            );
        }
        if self.connections < 2 {
            return refuse(
                "-c 1 with --broadcast: at least two connections, one that sends and one that gets it",
            );
        }
        if self.processes > 1 || !self.split.is_whole() {
            return refuse(
                "--broadcast with --processes or --part: what is expected to arrive is known within one process (more threads: -t)",
            );
        }
        Ok(())
    }

    /// Checks whether connections can be held like this.
    fn check_hold(&self, hold: Hold) -> Result<(), Error> {
        let refuse = |why: &str| Err(Error::usage(why));
        if !(Duration::from_millis(10)..=Duration::from_secs(86_400)).contains(&hold.heartbeat) {
            return refuse("--heartbeat: from 10ms to a day");
        }
        if hold.retry_limit == Some(0) {
            return refuse("--retry-limit: from 1 try on");
        }
        if self.count.is_some() {
            return refuse("--hold with -n: how many heartbeats there are follows from -d and --heartbeat");
        }
        if self.pipeline > 1 || self.one_request_per_connection || self.stages.is_some() {
            return refuse(
                "--hold with --pipeline, --disable-keepalive or --stages: each connection is held, with one heartbeat at a time",
            );
        }
        Ok(())
    }
}

/// What a text of stages asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Stages {
    /// Requests per second over time.
    Rate(Profile),
    /// Connections over time.
    Connections(Profile),
}

/// Reads stages, comma-separated: `DUR:N` holds N connections, `DUR:A..B` goes from A to B evenly, and a rate
/// has `/s` behind it. `time` reads a duration.
///
/// # Errors
/// What is not to be understood, or connections and rates in one.
pub fn stages(text: &str, time: impl Fn(&str) -> Option<Duration>) -> Result<Stages, Error> {
    let (mut profile, mut kind) = (Profile::default(), None);
    for stage in text.split(',') {
        let refuse = |why: &str| {
            Error::usage(format!(
                "--stages {stage}: {why} (30s:100,1m:100..2000 or 30s:500/s,1m:500..5000/s)"
            ))
        };
        let (length, levels) = stage.split_once(':').ok_or_else(|| refuse("no colon in it"))?;
        let length = time(length)
            .filter(|length| !length.is_zero())
            .ok_or_else(|| refuse("not a duration before the colon"))?;
        let (levels, is_rate) = levels.strip_suffix("/s").map_or((levels, false), |levels| (levels, true));
        if kind.replace(is_rate).is_some_and(|before| before != is_rate) {
            return Err(refuse("connections and rates do not go together"));
        }
        let (from, to) = levels.split_once("..").unwrap_or((levels, levels));
        let level = |text: &str| {
            let level =
                text.parse::<f64>().ok().filter(|level| level.is_finite() && (0.0..=1e8).contains(level));
            level
                .filter(|level| is_rate || level.fract() == 0.0)
                .ok_or_else(|| refuse("not a number of them"))
        };
        profile.push(length, level(from)?, level(to)?);
    }
    finished(profile, kind == Some(true))
}

/// Reads a staircase, `FIRST+STEP/DUR..LAST`: so many connections, after each duration a step more, up to the
/// last, which is held as long as each before.
///
/// # Errors
/// What is not to be understood.
pub fn ramp(text: &str, time: impl Fn(&str) -> Option<Duration>) -> Result<Stages, Error> {
    let refuse =
        || Error::usage(format!("--ramp {text}: START+STEP/TIME..END is expected, as in 200+200/3m..3000"));
    let parts = || {
        let (first, rest) = text.split_once('+')?;
        let (step, rest) = rest.split_once('/')?;
        let (length, last) = rest.split_once("..")?;
        let number = |text: &str| text.parse::<u32>().ok().filter(|number| *number > 0);
        let length = time(length).filter(|length| !length.is_zero())?;
        Some((number(first)?, number(step)?, length, number(last)?))
    };
    let (first, step, length, last) = parts().filter(|(first, .., last)| first <= last).ok_or_else(refuse)?;
    let mut profile = Profile::default();
    let mut level = first;
    loop {
        profile.push(length, f64::from(level), f64::from(level));
        if level == last {
            return finished(profile, false);
        }
        level = level.saturating_add(step).min(last);
    }
}

fn finished(profile: Profile, is_rate: bool) -> Result<Stages, Error> {
    if profile.most() < 1.0 && !is_rate || profile.arrivals() <= 0.0 {
        return Err(Error::usage("--stages: nothing is sent at any time"));
    }
    Ok(if is_rate { Stages::Rate(profile) } else { Stages::Connections(profile) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn seconds(text: &str) -> Option<Duration> {
        text.strip_suffix('s')?.parse().ok().map(Duration::from_secs)
    }

    #[test]
    fn stages_are_read_and_what_is_unclear_is_refused() {
        let Ok(Stages::Connections(profile)) = stages("2s:10,4s:10..30,1s:0", seconds) else { panic!() };
        assert_eq!((profile.level_at(1.0), profile.level_at(4.0), profile.level_at(6.5)), (10.0, 20.0, 0.0));
        let Ok(Stages::Rate(profile)) = stages("2s:0..100/s", seconds) else { panic!() };
        assert_eq!(profile.arrivals(), 100.0);
        for text in [
            "",
            "2s",
            "s:5",
            "0s:5",
            "2s:x",
            "2s:1.5",
            "2s:-1",
            "2s:5,2s:5/s",
            "2s:0",
            "2s:0/s",
            "2s:1..",
            "2s:5..NaN/s",
        ] {
            assert!(stages(text, seconds).is_err_and(|error| error.is_usage()), "{text}");
        }
    }

    #[test]
    fn a_staircase_has_a_step_after_each_duration_and_ends_on_the_last() {
        let Ok(Stages::Connections(profile)) = ramp("200+300/60s..1000", seconds) else { panic!() };
        let levels: Vec<f64> = (0..5).map(|step| profile.level_at(f64::from(step) * 60.0 + 1.0)).collect();
        assert_eq!((levels, profile.seconds()), (vec![200.0, 500.0, 800.0, 1000.0, 1000.0], 240.0));
        for text in ["", "200", "200+200", "200+200/3s", "5+0/3s..9", "9+1/3s..5", "0+1/3s..5", "1+1/0s..5"] {
            assert!(ramp(text, seconds).is_err_and(|error| error.is_usage()), "{text}");
        }
    }

    fn target() -> Target {
        "http://localhost:8080/a?b".parse().unwrap()
    }

    fn text(request: &Request<'_>) -> Result<String, Error> {
        let message = Message::http(&target(), request, 1)?;
        Ok(String::from_utf8(message.bytes.into()).unwrap())
    }

    #[test]
    fn a_request_is_written_whole_and_once() {
        let get = Request { method: "GET", headers: &[], body: b"", close: false };
        let version = env!("CARGO_PKG_VERSION");
        let expected =
            format!("GET /a?b HTTP/1.1\r\nHost: localhost:8080\r\nUser-Agent: ringroad/{version}\r\n\r\n");
        assert_eq!(text(&get).unwrap(), expected);
        let headers = [("Host".to_owned(), "other".to_owned()), ("user-agent".to_owned(), "me".to_owned())];
        let post = Request { method: "POST", headers: &headers, body: b"abc", close: true };
        assert_eq!(
            text(&post).unwrap(),
            "POST /a?b HTTP/1.1\r\nHost: other\r\nuser-agent: me\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc"
        );
    }

    #[test]
    fn what_could_be_read_as_something_else_is_refused() {
        let header = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
        for (method, headers, body) in [
            ("G T", vec![], &b""[..]),
            ("CONNECT", vec![], b""),
            ("TRACE", vec![], b"x"),
            ("GET", header("a b", "c"), b""),
            ("GET", header("a", "b\r\nc: d"), b""),
            ("GET", header("Content-Length", "3"), b""),
        ] {
            let request = Request { method, headers: &headers, body, close: false };
            assert!(text(&request).is_err(), "{request:?}");
        }
    }

    #[test]
    fn a_delimiter_ends_a_message_and_is_nowhere_else_in_it() {
        assert_eq!(Message::delimited(b"ab".to_vec(), b'\n').unwrap().bytes(), b"ab\n");
        assert_eq!(Message::delimited(b"ab\n".to_vec(), b'\n').unwrap().bytes(), b"ab\n");
        assert!(Message::delimited(b"a\nb".to_vec(), b'\n').is_err());
        assert!(Message::echo(Vec::new()).is_err());
    }

    #[test]
    fn a_part_is_read_and_one_that_is_none_is_refused() {
        assert_eq!("3/8".parse::<Split>().unwrap(), Split { index: 2, count: 8 });
        assert_eq!("1/1".parse::<Split>().unwrap(), Split::WHOLE);
        assert_eq!(Split { index: 2, count: 8 }.to_string(), "3/8");
        for text in ["", "3", "0/8", "9/8", "1/0", "a/8", "1/8/2", "-1/8"] {
            let error = text.parse::<Split>().unwrap_err();
            assert!(error.is_usage() && error.to_string().contains("1/8 is the first"), "{error}");
        }
    }

    #[test]
    fn the_figures_of_all_parts_add_up_to_the_whole() {
        let Ok(Stages::Connections(profile)) = stages("2s:10,4s:10..31,1s:0", seconds) else { panic!() };
        let message = Message::echo(b"x".to_vec()).unwrap();
        let plan = Plan {
            connections: 31,
            idle: 5,
            silent: 2,
            count: Some(1001),
            stages: Some(profile),
            ..Plan::new(target(), vec![message])
        };
        for count in [1, 2, 7, 31] {
            let parts: Vec<Plan> = (0..count)
                .map(|index| Plan { split: Split { index, count }, ..plan.clone() }.own())
                .collect();
            let sum = |what: fn(&Plan) -> u64| parts.iter().map(what).sum::<u64>();
            assert_eq!(sum(|part| part.connections.into()), 31);
            assert_eq!(sum(|part| part.idle.into()), 5);
            assert_eq!(sum(|part| part.silent.into()), 2);
            assert_eq!(sum(|part| part.count.unwrap()), 1001);
            for at in [1.0, 2.0, 6.0, 6.5] {
                let level = |part: &Plan| part.stages.as_ref().unwrap().level_at(at);
                let all = parts.iter().map(level).sum::<f64>();
                assert!((all - level(&plan)).abs() < 1e-9, "{all} of {} at {at}", level(&plan));
            }
        }
    }

    #[test]
    fn a_plan_that_makes_no_sense_is_refused() {
        type Change = fn(&mut Plan);
        let open = Pace::Open { per_second: 1.0, arrivals: Arrivals::Constant };
        let changes: [(&str, Change); 9] = [
            ("-c", |plan| plan.connections = 0),
            ("-t", |plan| plan.threads = 11),
            ("--pipeline", |plan| plan.pipeline = 257),
            ("no end", |plan| plan.duration = None),
            ("-n", |plan| plan.count = Some(0)),
            ("nothing to send", |plan| plan.messages.clear()),
            ("duration", |plan| plan.duration = Some(Duration::ZERO)),
            ("-r", |plan| {
                plan.pace = Pace::Open { per_second: f64::NAN, arrivals: Arrivals::Constant };
            }),
            ("--disable-keepalive", |plan| {
                plan.pipeline = 2;
                plan.one_request_per_connection = true;
            }),
        ];
        let message = Message::echo(b"x".to_vec()).unwrap();
        let plan = Plan::new(target(), vec![message]);
        assert_eq!(plan.check(), Ok(()));
        for (name, change) in changes {
            let mut plan = plan.clone();
            change(&mut plan);
            let error = plan.check().unwrap_err();
            assert!(error.is_usage() && error.to_string().contains(name), "{name}: {error}");
        }
        let plan = Plan { pipeline: 2, pace: open, ..plan };
        assert!(plan.check().is_err());
    }
}
