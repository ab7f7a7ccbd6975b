//! Requests, as a server reads them.
//!
//! [`Requests`] is one connection's state: bytes in, [`Event`]s out. It keeps no bytes; what it did not use, the
//! caller shows again with more behind it. The head of a request is a view of the caller's bytes
//! ([`RequestHead`]) and costs no memory.
//!
//! What a head means is decided here once: the form of its target, its host, the framing of its body, whether
//! the connection goes on. Deadlines, dispatch and answers are the caller's.

use crate::body::{Decoder, Piece};
use crate::error::{Error, Problem};
use crate::fields::{Bounds, Fields, Lines, Progress, Scratch, Slot, Slots, lines};
use crate::limits::Limits;
use crate::message::{Body, Facts, Method, Version};
use crate::scan::{is_word, target_len, token_len};
use crate::target::{Form, Target, classify, is_host};
use std::fmt;

/// What a step used and what it found.
#[derive(Debug)]
pub struct Step<E> {
    /// Bytes from the front that are done with; show the rest again, with what came since behind it.
    pub used: usize,
    /// What they were. `None`: more bytes are needed.
    pub event: Option<E>,
}

/// What happens on a connection, seen by a server.
#[derive(Debug)]
pub enum Event<'a> {
    /// A request begins. If its [`body`](RequestHead::body) is [`Body::Empty`] it ends here too.
    Head(RequestHead<'a>),
    /// A piece of its body, never empty.
    Data(&'a [u8]),
    /// It is complete, with these trailers.
    End(Fields<'a>),
}

/// The head of a request.
#[derive(Clone, Copy)]
pub struct RequestHead<'a> {
    bytes: &'a [u8],
    slots: &'a [Slot],
    meta: RequestMeta,
}

/// What was understood of a head, without the bytes: with copies of them and of the slots, a head can be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestMeta {
    method: Method,
    version: Version,
    body: Body,
    keep_alive: bool,
    expects_continue: bool,
    upgrade: bool,
    method_end: u16,
    target_end: u16,
    target: Target,
    /// Number of the line that is `Host`.
    host: Option<u8>,
}

impl<'a> RequestHead<'a> {
    /// A head from parts that were kept: [`bytes`](Self::bytes), [`Fields::slots`], [`meta`](Self::meta). Parts
    /// of different heads give a head that tells nonsense, and nothing worse.
    pub fn from_parts(bytes: &'a [u8], slots: &'a [Slot], meta: RequestMeta) -> Self {
        RequestHead { bytes, slots, meta }
    }

    /// All bytes of the head, its empty line included.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// What was understood, for keeping.
    pub fn meta(&self) -> RequestMeta {
        self.meta
    }

    /// The method.
    pub fn method(&self) -> Method {
        self.meta.method
    }

    /// The method as it was sent: a token.
    pub fn method_name(&self) -> &'a str {
        self.text(0, self.meta.method_end.into())
    }

    /// The version.
    pub fn version(&self) -> Version {
        self.meta.version
    }

    /// The target as it was sent: visible ASCII.
    pub fn target(&self) -> &'a str {
        self.text(usize::from(self.meta.method_end) + 1, self.meta.target_end.into())
    }

    /// Its form.
    pub fn form(&self) -> Form {
        self.meta.target.form
    }

    /// The path of the target with its escapes: it begins with `/`, is `*` for OPTIONS to the whole server, and is
    /// empty with CONNECT.
    pub fn path(&self) -> &'a str {
        self.path_and_query().0
    }

    /// The query of the target, without the question mark.
    pub fn query(&self) -> Option<&'a str> {
        self.path_and_query().1
    }

    fn path_and_query(&self) -> (&'a str, Option<&'a str>) {
        let target = self.target();
        let rest = match self.meta.target.form {
            Form::Origin | Form::Asterisk => target,
            Form::Absolute => target.get(self.meta.target.host_end.into()..).unwrap_or_default(),
            Form::Authority => "",
        };
        let (path, query) = match rest.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (rest, None),
        };
        // RFC 9112 §3.2.4: an absolute target without path means the whole server with OPTIONS, else its root.
        let path = match (path, self.meta.target.form) {
            ("", Form::Absolute) if self.method() == Method::Options && query.is_none() => "*",
            ("", Form::Absolute) => "/",
            (path, _) => path,
        };
        (path, query)
    }

    /// The host the request is for, with its port if one was given: of the target if that names one, of `Host`
    /// otherwise (RFC 9112 §3.2.2). Only an HTTP/1.0 request may have none.
    pub fn authority(&self) -> Option<&'a str> {
        match self.meta.target.form {
            Form::Absolute | Form::Authority => {
                self.target().get(self.meta.target.host.into()..self.meta.target.host_end.into())
            }
            Form::Origin | Form::Asterisk => {
                let slot = self.slots.get(usize::from(self.meta.host?))?;
                str::from_utf8(slot.field(self.bytes).value).ok()
            }
        }
    }

    /// The header lines.
    pub fn fields(&self) -> Fields<'a> {
        Fields::new(self.bytes, self.slots)
    }

    /// How the body is framed.
    pub fn body(&self) -> Body {
        self.meta.body
    }

    /// Whether the client means the connection to go on after this exchange.
    pub fn keep_alive(&self) -> bool {
        self.meta.keep_alive
    }

    /// Whether the client waits for `100 Continue` before it sends the body.
    pub fn expects_continue(&self) -> bool {
        self.meta.expects_continue
    }

    /// Whether the client offers another protocol, by `Upgrade` and `Connection: upgrade`. To take the offer,
    /// answer 101 once the request is complete, and [`hand_over`](Requests::hand_over).
    pub fn upgrade(&self) -> bool {
        self.meta.upgrade
    }

    fn text(&self, from: usize, to: usize) -> &'a str {
        let bytes = self.bytes.get(from..to).unwrap_or_default();
        // Method and target were checked to be ASCII.
        str::from_utf8(bytes).unwrap_or_default()
    }
}

impl fmt::Debug for RequestHead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestHead")
            .field("method", &self.method_name())
            .field("target", &self.target())
            .field("version", &self.version())
            .field("body", &self.body())
            .field("keep_alive", &self.keep_alive())
            .field("fields", &self.fields())
            .finish()
    }
}

/// The requests of one connection.
///
/// Call [`next`](Self::next) until it finds nothing, then again when more bytes came. A request that closes the
/// connection ([`RequestHead::keep_alive`]) is the last: bytes after it are used and ignored.
#[derive(Clone, Debug)]
pub struct Requests {
    state: State,
    /// For the body at hand.
    body_bytes_max: u64,
    /// Bytes of the body at hand that were thrown away; `None` while it is wanted.
    drained: Option<u32>,
    empty_lines: u8,
    /// The request at hand is not the last.
    keep_alive: bool,
    /// The client may be waiting for `100 Continue`: its body may never come.
    awaits_continue: bool,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Head { begun: bool, progress: Progress },
    Body(Decoder),
    Closed,
    HandedOver,
    Failed(Error),
}

/// Where in a conversation a connection is: which of the caller's deadlines applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Between messages. The end of the connection is in order here.
    Idle,
    /// Within a head.
    Head,
    /// Within a body.
    Body,
    /// After the last message; what comes is ignored.
    Closed,
    /// The connection speaks another protocol now.
    HandedOver,
    /// A message was refused.
    Failed,
}

impl Default for Requests {
    fn default() -> Self {
        Requests::new()
    }
}

impl Requests {
    /// A connection just opened.
    pub const fn new() -> Self {
        Requests {
            state: State::Head { begun: false, progress: Progress { section: 0, line: 0, count: 0 } },
            body_bytes_max: 0,
            drained: None,
            empty_lines: 0,
            keep_alive: true,
            awaits_continue: false,
        }
    }

    /// Looks at the front of `bytes` for the next event. An error is final: it is given again to every later call.
    pub fn next<'a>(&mut self, scratch: &'a mut Scratch, bytes: &'a [u8]) -> Result<Step<Event<'a>>, Error> {
        let step = match self.state {
            State::Head { progress, .. } => return self.head(scratch, bytes, progress),
            State::Body(_) => self.body(scratch, bytes),
            State::Closed => Ok(Step { used: bytes.len(), event: None }),
            State::HandedOver => Ok(Step { used: 0, event: None }),
            State::Failed(error) => Err(error),
        };
        step.map_err(|error| self.fail(error))
    }

    fn head<'a>(
        &mut self,
        scratch: &'a mut Scratch,
        bytes: &'a [u8],
        progress: Progress,
    ) -> Result<Step<Event<'a>>, Error> {
        let mut used = 0;
        // RFC 9112 §2.2: an empty line before a request is ignored.
        while let Some([b'\r', rest @ ..]) = bytes.get(used..) {
            match rest.first() {
                Some(b'\n') if self.empty_lines < scratch.limits.empty_lines => self.empty_lines += 1,
                Some(b'\n') => return Err(self.fail(Error::new(Problem::EmptyLines, b"\r\n"))),
                Some(&other) => return Err(self.fail(Error::at(Problem::LineEnd, other))),
                None => return Ok(Step { used, event: None }),
            }
            used += 2;
        }
        let bytes = bytes.get(used..).unwrap_or_default();
        match parse(bytes, &scratch.limits, &mut scratch.slots, progress) {
            Ok(Parsed::Whole { meta, end, count }) => {
                self.empty_lines = 0;
                self.keep_alive = meta.keep_alive;
                self.state = match Decoder::new(meta.body) {
                    None => self.after(),
                    Some(decoder) => {
                        self.body_bytes_max = scratch.limits.body_bytes;
                        self.drained = None;
                        self.awaits_continue = meta.expects_continue;
                        State::Body(decoder)
                    }
                };
                let bytes = bytes.get(..end).unwrap_or_default();
                let head = RequestHead { bytes, slots: scratch.used(count), meta };
                Ok(Step { used: used + end, event: Some(Event::Head(head)) })
            }
            Ok(Parsed::Partial(progress)) => {
                self.state = State::Head { begun: !bytes.is_empty(), progress };
                Ok(Step { used, event: None })
            }
            Err(error) => Err(self.fail(error)),
        }
    }

    fn body<'a>(&mut self, scratch: &'a mut Scratch, bytes: &'a [u8]) -> Result<Step<Event<'a>>, Error> {
        let mut used = 0;
        while let State::Body(decoder) = &mut self.state {
            let rest = bytes.get(used..).unwrap_or_default();
            let (more, piece) = decoder.next(scratch, self.body_bytes_max, rest)?;
            used += more;
            self.awaits_continue &= more == 0;
            let event = match (piece, &mut self.drained) {
                (Piece::Nothing, _) => None,
                (Piece::Data(data), None) => Some(Event::Data(data)),
                (Piece::Data(data), Some(drained)) => {
                    *drained = drained.saturating_add(u32::try_from(data.len()).unwrap_or(u32::MAX));
                    if *drained > scratch.limits.drain_bytes {
                        return Err(Error::new(Problem::DrainTooLong, &[]));
                    }
                    continue;
                }
                (Piece::End { section, trailers }, _) => {
                    self.state = self.after();
                    self.awaits_continue = false;
                    Some(Event::End(Fields::new(section, scratch.used(trailers))))
                }
            };
            return Ok(Step { used, event });
        }
        Ok(Step { used, event: None })
    }

    /// The state after a complete message.
    fn after(&self) -> State {
        if self.keep_alive {
            State::Head { begun: false, progress: Progress::default() }
        } else {
            State::Closed
        }
    }

    #[cold]
    fn fail(&mut self, error: Error) -> Error {
        self.state = State::Failed(error);
        error
    }

    /// Where in the conversation the connection is.
    pub fn phase(&self) -> Phase {
        match self.state {
            State::Head { begun: false, .. } => Phase::Idle,
            State::Head { .. } => Phase::Head,
            State::Body(_) => Phase::Body,
            State::Closed => Phase::Closed,
            State::HandedOver => Phase::HandedOver,
            State::Failed(_) => Phase::Failed,
        }
    }

    /// The peer will send nothing more: an error if a request was not complete.
    pub fn end_of_input(&mut self) -> Result<(), Error> {
        match self.state {
            State::Head { begun: true, .. } | State::Body(_) => {
                Err(self.fail(Error::new(Problem::Truncated, &[])))
            }
            State::Failed(error) => Err(error),
            State::Head { begun: false, .. } => {
                self.state = State::Closed;
                Ok(())
            }
            State::Closed | State::HandedOver => Ok(()),
        }
    }

    /// Bytes of the body at hand that are still to come, where its framing tells.
    pub fn body_left(&self) -> Option<u64> {
        match &self.state {
            State::Body(decoder) => decoder.left(),
            _ => Some(0),
        }
    }

    /// Takes less of the body at hand than [`Limits::body_bytes`] allows; to be called at its head. The error, 413,
    /// is final.
    pub fn limit_body(&mut self, bytes_max: u64) -> Result<(), Error> {
        if let State::Body(decoder) = &self.state {
            self.body_bytes_max = self.body_bytes_max.min(bytes_max);
            if decoder.left().is_some_and(|left| left > self.body_bytes_max) {
                return Err(self.fail(Error::new(Problem::BodyTooLong, &[])));
            }
        }
        Ok(())
    }

    /// `100 Continue` was sent: the body will come.
    pub fn continue_sent(&mut self) {
        self.awaits_continue = false;
    }

    /// Nobody wants the rest of the body at hand: it is used up without [`Event::Data`], and its end is told.
    ///
    /// False: do not wait for it, answer with `Connection: close`, and close. Either it is known to be longer than
    /// [`Limits::drain_bytes`], or the client was never told to continue and may or may not send it, so that what
    /// comes next could be taken for either. A chunked body that turns out too long becomes an error.
    #[must_use = "on false the connection cannot be used for another request"]
    pub fn skip_body(&mut self, limits: &Limits) -> bool {
        let State::Body(decoder) = &self.state else { return true };
        if self.awaits_continue || decoder.left().is_some_and(|left| left > u64::from(limits.drain_bytes)) {
            self.state = State::Closed;
            return false;
        }
        self.drained = Some(self.drained.unwrap_or(0));
        true
    }

    /// The connection speaks another protocol from here on (after 101, or 2xx to CONNECT): no byte after the
    /// request is looked at any more, and [`next`](Self::next) uses none.
    ///
    /// False: a request has begun and is not complete.
    #[must_use = "on false the connection was not handed over"]
    pub fn hand_over(&mut self) -> bool {
        let complete = matches!(self.state, State::Head { begun: false, .. } | State::Closed);
        if complete {
            self.state = State::HandedOver;
        }
        complete
    }
}

enum Parsed {
    Whole { meta: RequestMeta, end: usize, count: u8 },
    Partial(Progress),
}

/// Reads the head at the front of `bytes`, whose lines up to `from` are known to be whole and good.
#[inline]
fn parse(bytes: &[u8], limits: &Limits, slots: &mut Slots, from: Progress) -> Result<Parsed, Error> {
    let bounds = Bounds {
        section_bytes: limits.header_bytes,
        line_bytes: limits.field_line_bytes,
        fields: limits.fields,
        section_too_long: Problem::HeadersTooLong,
        line_too_long: Problem::FieldLineTooLong,
        too_many: Problem::TooManyFields,
    };
    if (1..=bytes.len()).contains(&usize::from(from.line)) {
        // What is new decides whether this is worth another pass over all of it.
        let mut new = RequestFacts::default();
        let found = lines(bytes, from, &bounds, slots, |number, name, value| new.note(number, name, value))?;
        if let Lines::Partial(progress) = found {
            return Ok(Parsed::Partial(progress));
        }
    }
    let Some(line) = request_line(bytes, limits)? else { return Ok(Parsed::Partial(Progress::default())) };
    let mut facts = RequestFacts::default();
    let begin = Progress::begin(line.end);
    match lines(bytes, begin, &bounds, slots, |number, name, value| facts.note(number, name, value))? {
        Lines::Partial(progress) => Ok(Parsed::Partial(progress)),
        Lines::Whole { end, count } => Ok(Parsed::Whole { meta: facts.meta(&line, limits)?, end, count }),
    }
}

struct RequestLine {
    method: Method,
    version: Version,
    method_end: u16,
    target_end: u16,
    target: Target,
    end: usize,
}

/// `None`: more bytes are needed.
#[inline]
fn request_line(bytes: &[u8], limits: &Limits) -> Result<Option<RequestLine>, Error> {
    let line_max = usize::from(limits.start_line_bytes);
    let line = bytes.get(..line_max + 1).unwrap_or(bytes);
    let ended = || {
        if bytes.len() <= line_max { Ok(None) } else { Err(Error::new(Problem::RequestLineTooLong, &[])) }
    };

    let (method, method_end) = match line {
        [b'G', b'E', b'T', b' ', ..] => (Method::Get, 3),
        _ => {
            let end = token_len(line);
            match line.get(end) {
                Some(b' ') if end > 0 => (Method::new(line.get(..end).unwrap_or_default()), end),
                Some(&other) => return Err(Error::at(Problem::Method, other)),
                None => return ended(),
            }
        }
    };
    let from = method_end + 1;
    let target_end = from + target_len(line.get(from..).unwrap_or_default());
    match line.get(target_end) {
        Some(b' ') if target_end > from => {}
        Some(b'\r' | b'\n') => return Err(Error::new(Problem::Version, &[])),
        Some(&other) => return Err(Error::at(Problem::Target, other)),
        None => return ended(),
    }
    if target_end + " HTTP/1.1".len() > line_max {
        return Err(Error::new(Problem::RequestLineTooLong, &[]));
    }
    let rest = bytes.get(target_end + 1..).unwrap_or_default();
    let Some(version) = version(rest)? else { return Ok(None) };

    let target = line.get(from..target_end).unwrap_or_default();
    let target = match target {
        [b'/', ..] if method != Method::Connect => Target { form: Form::Origin, host: 0, host_end: 0 },
        _ => classify(target, method).ok_or_else(|| Error::new(Problem::TargetForm, target))?,
    };
    let version = version.map_err(|other| Error::new(Problem::UnsupportedVersion, &other))?;
    if method == Method::Other && !limits.extension_methods {
        return Err(Error::new(Problem::UnknownMethod, line.get(..method_end).unwrap_or_default()));
    }
    Ok(Some(RequestLine {
        method,
        version,
        method_end: method_end as u16,
        target_end: target_end as u16,
        target,
        end: target_end + 1 + VERSION_LINE_BYTES,
    }))
}

const VERSION_LINE_BYTES: usize = "HTTP/1.1\r\n".len();

/// The version and the line end at the front of `bytes`; another version of the same form as it is.
#[inline]
fn version(bytes: &[u8]) -> Result<Option<Result<Version, [u8; 8]>>, Error> {
    match bytes.first_chunk::<VERSION_LINE_BYTES>() {
        Some(b"HTTP/1.1\r\n") => Ok(Some(Ok(Version::Http11))),
        Some(b"HTTP/1.0\r\n") => Ok(Some(Ok(Version::Http10))),
        _ => other_version(bytes),
    }
}

#[cold]
fn other_version(bytes: &[u8]) -> Result<Option<Result<Version, [u8; 8]>>, Error> {
    for (place, (&byte, &pattern)) in bytes.iter().zip(b"HTTP/d.d\r\n").enumerate() {
        let fits = if pattern == b'd' { byte.is_ascii_digit() } else { byte == pattern };
        if !fits {
            let problem = if place < 8 { Problem::Version } else { Problem::LineEnd };
            return Err(Error::at(problem, byte));
        }
    }
    if bytes.len() < VERSION_LINE_BYTES { Ok(None) } else { Ok(bytes.first_chunk::<8>().map(|v| Err(*v))) }
}

/// What the header lines of a request say.
#[derive(Clone, Copy, Default)]
struct RequestFacts {
    facts: Facts,
    hosts: u8,
    host: u8,
    expects_continue: bool,
}

impl RequestFacts {
    #[inline(always)]
    fn note(&mut self, number: u8, name: &[u8], value: &[u8]) -> Result<(), Error> {
        match name.len() {
            4 if is_word(name, b"host") => {
                if !is_host(value) {
                    return Err(Error::new(Problem::Host, value));
                }
                self.host = number;
                self.hosts = self.hosts.saturating_add(1);
                Ok(())
            }
            6 if is_word(name, b"expect") => {
                if !is_word(value, b"100-continue") {
                    return Err(Error::new(Problem::Expect, value));
                }
                self.expects_continue = true;
                Ok(())
            }
            _ => self.facts.note(name, value),
        }
    }

    /// The whole head, if its lines agree with each other.
    #[inline]
    fn meta(self, line: &RequestLine, limits: &Limits) -> Result<RequestMeta, Error> {
        let problem = |problem| Err(Error::new(problem, &[]));
        match (self.hosts, line.version) {
            (1, _) | (0, Version::Http10) => {}
            (0, Version::Http11) => return problem(Problem::HostMissing),
            _ => return problem(Problem::HostTwice),
        }
        let body = self.facts.framing(line.version)?.unwrap_or(Body::Empty);
        match body {
            Body::Empty => {}
            // RFC 9110 §9.3.6 and §9.3.8 give it no meaning, so two readers give it two.
            _ if matches!(line.method, Method::Connect | Method::Trace) => {
                return problem(Problem::BodyNotAllowed);
            }
            Body::Length(length) if length > limits.body_bytes => return problem(Problem::BodyTooLong),
            _ => {}
        }
        Ok(RequestMeta {
            method: line.method,
            version: line.version,
            body,
            keep_alive: self.facts.persists(line.version),
            // RFC 9110 §10.1.1: not from a 1.0 client, and there is nothing to wait for without a body.
            expects_continue: self.expects_continue && line.version == Version::Http11 && body != Body::Empty,
            upgrade: self.facts.upgrades(line.version),
            method_end: line.method_end,
            target_end: line.target_end,
            target: line.target,
            host: (self.hosts == 1).then_some(self.host),
        })
    }
}
