//! A load, as it is wanted: what is sent where, how often, over how many connections, for how long.
//!
//! Data and its rules; nothing here acts. Start at [`Plan`].

use crate::direct::Direct;
use crate::error::Error;
use crate::hold::Hold;
use crate::schedule::{Arrivals, Profile};
use crate::target::{Scheme, Target};
use crate::tls;
use ringroad_wire::{Asked, BodySize, Encoder, Method};
use std::net::IpAddr;
use std::time::Duration;

/// Requests in flight on one connection at most.
pub const PIPELINE_MAX: u32 = 256;

/// One load.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where it goes.
    pub target: Target,
    /// What is sent: at least one.
    pub messages: Vec<Message>,
    /// Connections that send.
    pub connections: u32,
    /// Of these, spread evenly among them, so many send one request, so that they are known to be served, and are then held
    /// open in silence (closed loop).
    pub silent: u32,
    /// Connections that are open beside them and say nothing.
    pub idle: u32,
    /// Threads of a process, each with a runtime and its share of everything.
    pub threads: u32,
    /// Processes that share the load.
    pub processes: u32,
    /// Which of them this one is, from 0.
    pub part: u32,
    /// How many of them may be lost.
    pub lost_max: u32,
    /// Requests in flight on a connection.
    pub pipeline: u32,
    /// Closed or open loop.
    pub pace: Pace,
    /// What changes while it lasts: the rate in open loop, the connections that send in closed loop. `None`: nothing.
    pub stages: Option<Profile>,
    /// Connections made per second at most; `None`: as fast as they are taken.
    pub connect_rate: Option<f64>,
    /// Connections of a thread that may be on their way at a time, before the load begins: more would only fill the server's
    /// backlog, and what does not fit there is tried again after a second by the kernel.
    pub connecting_max: u32,
    /// The measured time; `None`: until `count` requests are answered.
    pub duration: Option<Duration>,
    /// Requests at most.
    pub count: Option<u64>,
    /// Load before the measured time.
    pub warmup: Duration,
    /// How long an answer may take, and a connection.
    pub timeout: Duration,
    /// A connection for every request.
    pub one_request_per_connection: bool,
    /// With that: a request lasts from the beginning of its connecting to the server's close, which is waited for. Otherwise
    /// connecting is in no latency, and this side closes when it has its answer.
    pub until_closed: bool,
    /// Whom to believe, for https.
    pub tls: Option<tls::Client>,
    /// Sockets as they are to be.
    pub sockets: Sockets,
    /// Connections have places in tables of the rings, and no descriptors; `None`: descriptors, as usual.
    pub direct: Option<Direct>,
    /// Addresses that connections come from, in turns; none: the one the system takes.
    pub sources: Vec<IpAddr>,
    /// Chance, for random arrivals.
    pub seed: u64,
}

/// How requests follow each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// A connection sends again when it has its answer.
    Closed,
    /// Requests are due at times of their own.
    Open {
        /// Requests per second, all connections together.
        per_second: f64,
        /// Evenly or by chance.
        arrivals: Arrivals,
    },
    /// Connections are held, and each has a heartbeat.
    Hold(Hold),
}

impl Pace {
    /// Whether requests are due at times of their own, whatever the answers do.
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

/// What is sent, made ready once, and what must come back.
#[derive(Clone, Debug)]
pub struct Message {
    pub(crate) bytes: Vec<u8>,
    pub(crate) expect: Expect,
    /// Of a good answer of HTTP.
    pub(crate) body: Body,
    /// Of all that is sent, as many parts are this.
    pub(crate) weight: u32,
}

/// What the body of a good answer has to be; another one is a protocol error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Body {
    /// Anything.
    #[default]
    Any,
    /// That of the first good answer to the same message, of each thread.
    Alike,
    /// These bytes.
    Exactly(Vec<u8>),
}

/// What an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expect {
    /// A response to such a request.
    Http(Asked),
    /// The same bytes.
    Echo,
    /// Anything up to this byte.
    Delimiter(u8),
}

/// A request of HTTP, as wanted.
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
    /// A request for `target`.
    ///
    /// # Errors
    /// Something in it cannot be sent as HTTP.
    pub fn http(target: &Target, request: &Request<'_>, weight: u32) -> Result<Message, Error> {
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
        let refused = refuse(format!("body, with {}", request.method));
        body.data(&mut bytes, request.body).and_then(|()| body.end(&mut bytes)).map_err(refused)?;
        let method = Method::new(request.method.as_bytes());
        if method == Method::Connect {
            return Err(Error::usage("method CONNECT: what it opens is not HTTP any more"));
        }
        Ok(Message { bytes, expect: Expect::Http(Asked::from(method)), body: Body::Any, weight })
    }

    /// Bytes that come back as they are.
    ///
    /// # Errors
    /// There are none.
    pub fn echo(bytes: Vec<u8>) -> Result<Message, Error> {
        if bytes.is_empty() {
            return Err(Error::usage("message: nothing in it, so nothing could come back"));
        }
        Ok(Message { bytes, expect: Expect::Echo, body: Body::Any, weight: 1 })
    }

    /// Bytes up to a delimiter, which is added where it is missing, and an answer up to the next.
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
        Ok(Message { bytes, expect: Expect::Delimiter(delimiter), body: Body::Any, weight: 1 })
    }

    /// The same, and the bodies of its answers are looked at.
    pub fn with_body(self, body: Body) -> Message {
        Message { body, ..self }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What the record calls its payload: the message of an echo. What comes back over HTTP is known later.
    pub(crate) fn payload_bytes(&self) -> u64 {
        match self.expect {
            Expect::Http(_) => 0,
            Expect::Echo | Expect::Delimiter(_) => self.bytes.len() as u64,
        }
    }
}

/// A message of `length` bytes to be echoed: letters and digits, so that a dump can be read, and never a newline.
pub fn pattern(length: u32) -> Vec<u8> {
    (0..length).map(|nth| b'a' + (nth % 26) as u8).collect()
}

impl Plan {
    /// Load on `target` with these messages, everything else as it is when nobody says otherwise: ten connections,
    /// closed loop, ten seconds after one of warm-up.
    pub fn new(target: Target, messages: Vec<Message>) -> Plan {
        Plan {
            target,
            messages,
            connections: 10,
            silent: 0,
            idle: 0,
            threads: 1,
            processes: 1,
            part: 0,
            lost_max: 0,
            pipeline: 1,
            pace: Pace::Closed,
            stages: None,
            connect_rate: None,
            connecting_max: 256,
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

    /// Threads of all processes.
    pub fn workers(&self) -> u32 {
        self.threads * self.processes
    }

    /// Whether it makes sense as a whole.
    ///
    /// # Errors
    /// What does not, and what would.
    pub fn check(&self) -> Result<(), Error> {
        let refuse = |why: &str| Err(Error::usage(why));
        if self.messages.is_empty() || self.messages.iter().all(|message| message.weight == 0) {
            return refuse("nothing to send: at least one message needs a weight above 0");
        }
        if self.connections == 0 {
            return refuse("-c 0: at least one connection has to send");
        }
        if self.threads == 0
            || self.processes == 0
            || u64::from(self.threads) * u64::from(self.processes) > u64::from(self.connections)
        {
            return refuse("-t and --processes: from one thread to as many as there are connections");
        }
        if !(1..=PIPELINE_MAX).contains(&self.pipeline) {
            return refuse("--pipeline: from 1 to 256");
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
        if self.one_request_per_connection && self.target.scheme == Scheme::Tcp {
            return refuse("--disable-keepalive: that is HTTP's; tcp:// keeps its connections");
        }
        if self.target.scheme != Scheme::Https && self.tls.is_some() {
            return refuse("certificates are for https");
        }
        if self.target.scheme == Scheme::Https && self.tls.is_none() {
            return refuse(
                "https without anybody to believe: certificates, or the word that all are believed",
            );
        }
        if let Pace::Hold(hold) = self.pace {
            self.check_hold(hold)?;
        }
        if let Pace::Open { per_second, .. } = self.pace {
            if !(per_second.is_finite() && (1e-3..=1e8).contains(&per_second)) {
                return refuse("-r: from 0.001 to 100000000 requests per second");
            }
            if self.pipeline > 1 {
                return refuse(
                    "--pipeline with -r: a rate is met by connections (-c), each with one request in flight",
                );
            }
        }
        Ok(())
    }

    /// Whether connections can be held like this.
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

/// Reads stages, comma-separated: `DUR:N` holds N connections, `DUR:A..B` goes from A to B evenly, and a rate has `/s`
/// behind it. `time` reads a duration.
///
/// # Errors
/// What is not to be understood, or connections and rates in one.
pub fn stages(text: &str, time: impl Fn(&str) -> Option<Duration>) -> Result<Stages, Error> {
    let (mut profile, mut kind) = (Profile::default(), None);
    for stage in text.split(',') {
        let refuse =
            |why: &str| Error::usage(format!("--stages {stage}: {why} (30s:100, 1m:100..2000, 30s:5000/s)"));
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

/// Reads a staircase, `FIRST+STEP/DUR..LAST`: so many connections, after each duration a step more, up to the last, which
/// is held as long as each before.
///
/// # Errors
/// What is not to be understood.
pub fn ramp(text: &str, time: impl Fn(&str) -> Option<Duration>) -> Result<Stages, Error> {
    let refuse = || Error::usage(format!("--ramp {text}: not to be understood (200+200/3m..3000)"));
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
        Ok(String::from_utf8(message.bytes).unwrap())
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
        assert_eq!(Message::delimited(b"ab".to_vec(), b'\n').unwrap().bytes, b"ab\n");
        assert_eq!(Message::delimited(b"ab\n".to_vec(), b'\n').unwrap().bytes, b"ab\n");
        assert!(Message::delimited(b"a\nb".to_vec(), b'\n').is_err());
        assert!(Message::echo(Vec::new()).is_err());
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
