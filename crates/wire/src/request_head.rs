//! The head of a request: its contents, and its parser.
//!
//! A head is a view of the caller's bytes and costs no memory. Its meaning is decided here once: the form of
//! its target, its host, the framing of its body, whether the connection is kept. Start at [`RequestHead`];
//! parsing begins at [`read`].

use crate::encode::ReplyTo;
use crate::error::{Error, Problem};
use crate::fields::{Fields, Progress, Slot, Slots};
use crate::head::{self, Found, Note, Reach};
use crate::limits::{HEAD_BYTES_MAX, Limits};
use crate::message::{Body, Facts, Method, Version};
use crate::scan::{is_word, target_len, token_len};
use crate::target::{Form, Target, classify, is_host};
use std::fmt;
use std::num::NonZeroU64;

/// The head of a request.
#[derive(Clone, Copy)]
pub struct RequestHead<'a> {
    bytes: &'a [u8],
    slots: &'a [Slot],
    meta: RequestMeta,
    stamp: Option<NonZeroU64>,
}

/// The parsed facts of a head, without its bytes. With copies of the bytes and the slots, a head can be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestMeta {
    method: Method,
    version: Version,
    pub(crate) body: Body,
    pub(crate) keep_alive: bool,
    pub(crate) expects_continue: bool,
    upgrade: bool,
    pub(crate) method_end: u16,
    pub(crate) target_end: u16,
    pub(crate) target: Target,
    /// Number of the line that is `Host`.
    pub(crate) host: Option<u8>,
}

impl RequestMeta {
    /// Returns the facts that an answer needs, if the head is the whole request: no body, no offer of another
    /// protocol, and the connection is kept.
    pub(crate) fn plain(&self) -> Option<ReplyTo> {
        let RequestMeta { method, version, keep_alive, .. } = *self;
        let is_plain = self.body == Body::Empty && keep_alive && !self.upgrade && !self.expects_continue;
        is_plain.then_some(ReplyTo { method, version, keep_alive })
    }
}

impl<'a> RequestHead<'a> {
    /// Makes a head from parts that were kept: [`bytes`](Self::bytes), [`Fields::slots`],
    /// [`meta`](Self::meta). Parts of different heads give a head with meaningless contents; nothing worse
    /// happens.
    pub fn from_parts(bytes: &'a [u8], slots: &'a [Slot], meta: RequestMeta) -> Self {
        RequestHead { bytes, slots, meta, stamp: None }
    }

    pub(crate) fn stamped(self, stamp: Option<NonZeroU64>) -> Self {
        RequestHead { stamp, ..self }
    }

    /// Converts it to a head that came by HTTP/2: its connection is kept whatever its lines are. With
    /// `streams`, a body follows even without a stated length. It offers another protocol only with
    /// `tunnels`: it was written for an extended CONNECT (RFC 8441).
    #[must_use]
    pub fn over_http2(mut self, streams: bool, tunnels: bool) -> Self {
        self.meta.version = Version::Http2;
        (self.meta.keep_alive, self.meta.upgrade) = (true, self.meta.upgrade && tunnels);
        if streams && self.meta.body == Body::Empty {
            self.meta.body = Body::Chunked;
        }
        // Its text may equal that of an HTTP/1.1 head with another meaning.
        self.stamp = None;
        self
    }

    /// Returns the stamp. Heads with the same stamp, read with the same [`Scratch`](crate::Scratch), have the
    /// same bytes, so a result computed for one is valid for the other. Nothing
    /// is known of a head without a stamp (`None`).
    pub fn stamp(&self) -> Option<NonZeroU64> {
        self.stamp
    }

    /// Returns all bytes of the head, including its empty line.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the parsed facts, for keeping.
    pub fn meta(&self) -> RequestMeta {
        self.meta
    }

    /// Returns the method.
    pub fn method(&self) -> Method {
        self.meta.method
    }

    /// Returns the method as it was sent: a token.
    pub fn method_name(&self) -> &'a str {
        let name = self.bytes.get(..self.meta.method_end.into()).unwrap_or_default();
        str::from_utf8(name).unwrap_or_default()
    }

    /// Returns the version.
    pub fn version(&self) -> Version {
        self.meta.version
    }

    /// Returns the target as it was sent: UTF-8 without spaces, control characters and `#`.
    pub fn target(&self) -> &'a str {
        str::from_utf8(self.target_bytes()).unwrap_or_default()
    }

    /// Returns the form of its target.
    pub fn form(&self) -> Form {
        self.meta.target.form
    }

    /// Returns the path of the target with its escapes: it begins with `/`, is `*` for OPTIONS to the whole
    /// server, and is empty with CONNECT.
    pub fn path(&self) -> &'a str {
        // Method and target were checked to be UTF-8.
        str::from_utf8(self.path_bytes()).unwrap_or_default()
    }

    /// Returns the bytes of the [`path`](Self::path), which are UTF-8, for callers that need no text.
    #[inline]
    pub fn path_bytes(&self) -> &'a [u8] {
        let Target { form, host_end, path_end, .. } = self.meta.target;
        let from = match form {
            Form::Origin | Form::Asterisk => 0,
            Form::Absolute => host_end.into(),
            Form::Authority => return b"",
        };
        match self.target_bytes().get(from..path_end.into()).unwrap_or_default() {
            // RFC 9112 §3.2.4: an absolute target without path means the whole server with OPTIONS, else its
            // root.
            b"" if self.method() == Method::Options && !self.has_query() => b"*",
            b"" => b"/",
            path => path,
        }
    }

    /// Returns whether the [`path`](Self::path) has one spelling, with the same meaning to every reader: it
    /// begins with `/`, has no escape, no parameter, no backslash and no control character, and no segment is
    /// empty or begins with a dot. The parser determined this, so the call costs nothing. `false` means that
    /// it is unknown.
    #[inline]
    pub fn is_plain_path(&self) -> bool {
        self.meta.target.is_plain
    }

    /// Returns the query of the target, without the question mark.
    pub fn query(&self) -> Option<&'a str> {
        let query = self.target_bytes().get(usize::from(self.meta.target.path_end) + 1..)?;
        str::from_utf8(query).ok()
    }

    fn has_query(&self) -> bool {
        usize::from(self.meta.target.path_end) < self.target_bytes().len()
    }

    #[inline]
    fn target_bytes(&self) -> &'a [u8] {
        let target = usize::from(self.meta.method_end) + 1..self.meta.target_end.into();
        self.bytes.get(target).unwrap_or_default()
    }

    /// Returns the host of the request, with its port if one was given: the host of the target if it has one,
    /// otherwise that of `Host` (RFC 9112 §3.2.2). Only an HTTP/1.0 request may have none. A gateway sends
    /// this as `Host`.
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

    /// Returns the header lines.
    pub fn fields(&self) -> Fields<'a> {
        Fields::new(self.bytes, self.slots)
    }

    /// Returns how the body is framed.
    pub fn body(&self) -> Body {
        self.meta.body
    }

    /// Returns whether the client wants to keep the connection after this exchange. Never with CONNECT: the
    /// connection becomes a tunnel or ends.
    pub fn keep_alive(&self) -> bool {
        self.meta.keep_alive
    }

    /// Returns whether the client waits for `100 Continue` before it sends the body.
    pub fn expects_continue(&self) -> bool {
        self.meta.expects_continue
    }

    /// Returns whether the client offers another protocol, by `Upgrade` and `Connection: upgrade`. To take
    /// the offer, answer 101 once the request is complete, and [`hand_over`](crate::Requests::hand_over).
    pub fn upgrade(&self) -> bool {
        self.meta.upgrade
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

/// Parses the head at the front of `bytes`. Lines up to `from` are known to be complete and valid.
#[inline]
pub(crate) fn read(
    bytes: &[u8],
    limits: &Limits,
    slots: &mut Slots,
    from: Progress,
) -> Result<Found<RequestMeta>, Error> {
    head::read(
        bytes,
        limits,
        slots,
        from,
        Reach { end_max: HEAD_BYTES_MAX, tolerant: false },
        |bytes| Ok(request_line(bytes, limits)?.map(|line| (line.end, line))),
        |line, facts: RequestFacts| facts.meta(line, limits),
    )
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
    let target = line.get(from..target_end).unwrap_or_default();
    if !target.is_ascii()
        && let Err(why) = str::from_utf8(target)
    {
        let odd = target.get(why.valid_up_to()).copied().unwrap_or_default();
        return Err(Error::at(Problem::Target, odd));
    }
    let rest = bytes.get(target_end + 1..).unwrap_or_default();
    let Some(version) = version(rest)? else { return Ok(None) };
    let target = match target {
        [b'/', ..] if method != Method::Connect => Target::origin(target),
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

/// Returns the version and the line end at the front of `bytes`. Another version of the same form is returned
/// as bytes.
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
    if bytes.len() < VERSION_LINE_BYTES {
        return Ok(None);
    }
    // A higher minor version is read as the highest known one (RFC 9110 §2.5).
    Ok(bytes.first_chunk::<8>().map(|other| match other {
        b"HTTP/1.0" => Ok(Version::Http10),
        [.., b'1', b'.', _] => Ok(Version::Http11),
        _ => Err(*other),
    }))
}

/// Facts in the header lines of a request.
#[derive(Clone, Copy, Default)]
struct RequestFacts {
    facts: Facts,
    hosts: u8,
    host: u8,
    expects_continue: bool,
}

impl Note for RequestFacts {
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
            _ => self.facts.note(number, name, value),
        }
    }
}

impl RequestFacts {
    /// Returns the parsed facts, if the lines agree with each other.
    #[inline]
    fn meta(self, line: &RequestLine, limits: &Limits) -> Result<RequestMeta, Error> {
        let problem = |problem| Err(Error::new(problem, &[]));
        match (self.hosts, line.version) {
            (1, _) | (0, Version::Http10) => {}
            (0, _) => return problem(Problem::HostMissing),
            _ => return problem(Problem::HostTwice),
        }
        let body = self.facts.framing(line.version, false)?.unwrap_or(Body::Empty);
        match body {
            Body::Empty => {}
            // RFC 9110 §9.3.6 and §9.3.8 define no meaning, so two readers may differ.
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
            // The bytes after CONNECT are meant for the tunnel. Without a tunnel they must not be parsed as a
            // request.
            keep_alive: self.facts.persists(line.version) && line.method != Method::Connect,
            // RFC 9110 §10.1.1: not from a 1.0 client, and without a body there is nothing to wait for.
            expects_continue: self.expects_continue && line.version == Version::Http11 && body != Body::Empty,
            upgrade: self.facts.upgrades(line.version),
            method_end: line.method_end,
            target_end: line.target_end,
            target: line.target,
            host: (self.hosts == 1).then_some(self.host),
        })
    }
}
