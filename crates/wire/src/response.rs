//! Parsing of responses, for a client.
//!
//! [`Responses`] is the state of one connection and mirrors [`Requests`](crate::Requests). The differences: a
//! response has a meaning only with its request, so each request is announced ([`Responses::begin`]); a body
//! may end with the connection; and folded lines can be unfolded ([`Responses::unfold`]).

use crate::body::{Decoder, Piece};
use crate::error::{Error, Problem};
use crate::fields::{Fields, Progress, Scratch, Slot, Slots};
use crate::head::{self, Found, Reach};
use crate::limits::{ANSWER_HEAD_BYTES_MAX, Limits};
use crate::message::{Body, Facts, Method, Phase, Version};
use crate::scan::value_len;
use crate::status::Status;
use std::fmt;

/// An event of a connection, for a client.
#[derive(Debug)]
pub enum ResponseEvent<'a> {
    /// An interim response (1xx): the final one is still to come.
    Interim(ResponseHead<'a>),
    /// The head of the response. If its [`body`](ResponseHead::body) is [`Body::Empty`], the response is
    /// complete.
    Head(ResponseHead<'a>),
    /// A piece of its body, never empty.
    Data(&'a [u8]),
    /// The end of the response, with these trailers.
    End(Fields<'a>),
}

/// The head of a response.
#[derive(Clone, Copy)]
pub struct ResponseHead<'a> {
    bytes: &'a [u8],
    slots: &'a [Slot],
    meta: ResponseMeta,
}

/// The parsed facts of a head, without its bytes. With copies of the bytes and the slots, a head can be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseMeta {
    status: Status,
    version: Version,
    body: Body,
    keep_alive: bool,
    reason_end: u16,
}

/// A head that outlives its bytes: a copy of all its parts.
#[derive(Clone, Debug)]
pub struct KeptHead {
    bytes: Vec<u8>,
    slots: Vec<Slot>,
    meta: ResponseMeta,
}

impl KeptHead {
    /// Returns the head.
    pub fn view(&self) -> ResponseHead<'_> {
        ResponseHead::from_parts(&self.bytes, &self.slots, self.meta)
    }
}

impl<'a> ResponseHead<'a> {
    /// Copies the head, to be read later.
    pub fn keep(&self) -> KeptHead {
        KeptHead { bytes: self.bytes.to_vec(), slots: self.slots.to_vec(), meta: self.meta }
    }

    /// Makes a head from parts that were kept, as
    /// [`RequestHead::from_parts`](crate::RequestHead::from_parts).
    pub fn from_parts(bytes: &'a [u8], slots: &'a [Slot], meta: ResponseMeta) -> Self {
        ResponseHead { bytes, slots, meta }
    }

    /// Returns all bytes of the head, including its empty line.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the parsed facts, for keeping.
    pub fn meta(&self) -> ResponseMeta {
        self.meta
    }

    /// Returns the status.
    pub fn status(&self) -> Status {
        self.meta.status
    }

    /// Returns the reason phrase as it was sent, often empty.
    pub fn reason(&self) -> &'a [u8] {
        self.bytes.get(REASON..usize::from(self.meta.reason_end)).unwrap_or_default()
    }

    /// Returns the version.
    pub fn version(&self) -> Version {
        self.meta.version
    }

    /// Returns the header lines.
    pub fn fields(&self) -> Fields<'a> {
        Fields::new(self.bytes, self.slots)
    }

    /// Returns how the body is framed. [`Body::Empty`] after HEAD, whatever length the header lines state.
    pub fn body(&self) -> Body {
        self.meta.body
    }

    /// Returns whether the connection can be reused after this response.
    pub fn keep_alive(&self) -> bool {
        self.meta.keep_alive
    }
}

impl fmt::Debug for ResponseHead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseHead")
            .field("status", &self.status())
            .field("version", &self.version())
            .field("body", &self.body())
            .field("keep_alive", &self.keep_alive())
            .field("fields", &self.fields())
            .finish()
    }
}

/// The request that the next response answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Its method, which decides whether the response has a body.
    pub method: Method,
    /// Whether it offered another protocol, so that 101 may come.
    pub upgrade: bool,
}

impl From<Method> for Asked {
    fn from(method: Method) -> Self {
        Asked { method, upgrade: false }
    }
}

/// The responses of one connection.
#[derive(Clone, Debug)]
pub struct Responses {
    state: State,
    body_bytes_max: u64,
    asked: Asked,
    interim: u8,
    keep_alive: bool,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// No request waits for its response.
    Idle,
    Head {
        progress: Progress,
    },
    Body(Decoder),
    Closed,
    HandedOver,
    Failed(Error),
    /// Failed, unless the caller unfolds the lines of the head, which are valid up to here.
    Folded {
        progress: Progress,
        error: Error,
    },
}

impl Default for Responses {
    fn default() -> Self {
        Responses::new()
    }
}

impl Responses {
    /// Makes the state of a connection that was just opened.
    pub const fn new() -> Self {
        Responses {
            state: State::Idle,
            body_bytes_max: 0,
            asked: Asked { method: Method::Get, upgrade: false },
            interim: 0,
            keep_alive: true,
        }
    }

    /// Announces the request that the next response answers. With several requests in flight, call it for
    /// each when the previous response is complete. Returns an error if that is not complete, or if the
    /// connection cannot be reused.
    pub fn begin(&mut self, asked: impl Into<Asked>) -> Result<(), Error> {
        match self.state {
            State::Idle => {
                self.asked = asked.into();
                self.interim = 0;
                self.state = State::Head { progress: Progress::default() };
                Ok(())
            }
            State::Failed(error) | State::Folded { error, .. } => Err(error),
            _ => Err(Error::new(Problem::Busy, &[]).in_response()),
        }
    }

    /// Parses `bytes` from `at` on for the next event, as [`Requests::next`](crate::Requests::next) does.
    /// Bytes without a request are an error: if they were taken for the response to the next request, two
    /// users' answers would be exchanged.
    pub fn next<'a>(
        &mut self,
        scratch: &'a mut Scratch,
        bytes: &'a [u8],
        at: &mut usize,
    ) -> Result<Option<ResponseEvent<'a>>, Error> {
        match self.state {
            State::Head { progress } => self.head(scratch, bytes, at, progress),
            State::Body(_) => self.body(scratch, bytes, at),
            State::Idle => match bytes.get(*at..) {
                None | Some([]) => Ok(None),
                Some([first, ..]) => Err(self.fail(Error::at(Problem::Unsolicited, *first))),
            },
            State::Closed => {
                *at = bytes.len();
                Ok(None)
            }
            State::HandedOver => Ok(None),
            State::Failed(error) | State::Folded { error, .. } => Err(error),
        }
    }

    fn head<'a>(
        &mut self,
        scratch: &'a mut Scratch,
        bytes: &'a [u8],
        at: &mut usize,
        progress: Progress,
    ) -> Result<Option<ResponseEvent<'a>>, Error> {
        let rest = bytes.get(*at..).unwrap_or_default();
        let (limits, slots) = scratch.table();
        match read(rest, limits, slots, progress, self.asked) {
            Ok(Found::Whole { meta, end, count }) => {
                let next = self.after_head(&meta, scratch.limits());
                self.state = next.map_err(|error| self.fail(error))?;
                *at += end;
                let bytes = rest.get(..end).unwrap_or_default();
                let head = ResponseHead::from_parts(bytes, scratch.used(count), meta);
                Ok(Some(if meta.status.is_interim() {
                    ResponseEvent::Interim(head)
                } else {
                    ResponseEvent::Head(head)
                }))
            }
            Ok(Found::Partial(progress)) => {
                self.state = State::Head { progress };
                Ok(None)
            }
            Err(error) if error.problem() == Problem::LeadingSpace && scratch.limits().tolerant => {
                let error = error.in_response();
                self.state = State::Folded { progress, error };
                Err(error)
            }
            Err(error) => Err(self.fail(error)),
        }
    }

    /// Replaces the line ends of folded header lines by spaces (RFC 9112 §5.2), after an error of
    /// [`next`](Self::next), in the bytes that `next` got. `true`: there were some, and `next` can continue
    /// with these bytes. Only heads of answers are unfolded, and only with [`Limits::tolerant`]; not after
    /// the status line, and not lines that frame the body.
    pub fn unfold(&mut self, bytes: &mut [u8], at: usize) -> bool {
        let State::Folded { progress, error } = self.state else { return false };
        match head::unfold(bytes.get_mut(at..).unwrap_or_default(), progress) {
            Some(progress) => self.state = State::Head { progress },
            None => self.state = State::Failed(error),
        }
        matches!(self.state, State::Head { .. })
    }

    fn after_head(&mut self, meta: &ResponseMeta, limits: &Limits) -> Result<State, Error> {
        if meta.status.is_interim() {
            if self.interim == limits.interim_responses {
                return Err(Error::new(Problem::TooManyInterim, &[]));
            }
            self.interim += 1;
            return Ok(State::Head { progress: Progress::default() });
        }
        if meta.status == Status::SWITCHING_PROTOCOLS {
            return if self.asked.upgrade {
                Ok(State::HandedOver)
            } else {
                Err(Error::new(Problem::UnofferedUpgrade, &[]))
            };
        }
        if self.asked.method == Method::Connect && meta.status.is_success() {
            return Ok(State::HandedOver);
        }
        self.keep_alive = meta.keep_alive;
        self.body_bytes_max = limits.body_bytes;
        Ok(Decoder::new(meta.body, limits.tolerant).map_or_else(|| self.after(), State::Body))
    }

    fn body<'a>(
        &mut self,
        scratch: &'a mut Scratch,
        bytes: &'a [u8],
        at: &mut usize,
    ) -> Result<Option<ResponseEvent<'a>>, Error> {
        let State::Body(decoder) = &mut self.state else { return Ok(None) };
        let rest = bytes.get(*at..).unwrap_or_default();
        let (used, piece) =
            decoder.next(scratch, self.body_bytes_max, rest).map_err(|error| self.fail(error))?;
        *at += used;
        Ok(match piece {
            Piece::Nothing => None,
            Piece::Data(data) => Some(ResponseEvent::Data(data)),
            Piece::End { section, trailers } => {
                self.state = self.after();
                Some(ResponseEvent::End(Fields::new(section, scratch.used(trailers))))
            }
        })
    }

    fn after(&self) -> State {
        if self.keep_alive { State::Idle } else { State::Closed }
    }

    #[cold]
    fn fail(&mut self, error: Error) -> Error {
        let error = error.in_response();
        self.state = State::Failed(error);
        error
    }

    /// Returns the phase of the connection. [`Phase::Head`] as soon as a response is due.
    pub fn phase(&self) -> Phase {
        match self.state {
            State::Idle => Phase::Idle,
            State::Head { .. } => Phase::Head,
            State::Body(_) => Phase::Body,
            State::Closed => Phase::Closed,
            State::HandedOver => Phase::HandedOver,
            State::Failed(_) | State::Folded { .. } => Phase::Failed,
        }
    }

    /// Handles the end of the input. `true`: it ends the present response, which is complete. An error: the
    /// response is truncated.
    pub fn end_of_input(&mut self) -> Result<bool, Error> {
        match self.state {
            State::Body(Decoder::UntilClose { .. }) => {
                self.state = State::Closed;
                Ok(true)
            }
            State::Head { .. } | State::Body(_) => Err(self.fail(Error::new(Problem::Truncated, &[]))),
            State::Failed(error) | State::Folded { error, .. } => Err(error),
            State::Idle => {
                self.state = State::Closed;
                Ok(false)
            }
            State::Closed | State::HandedOver => Ok(false),
        }
    }

    /// Returns how many bytes of the present body are left, if its framing states that.
    pub fn body_left(&self) -> Option<u64> {
        match &self.state {
            State::Body(decoder) => decoder.left(),
            _ => Some(0),
        }
    }
}

fn read(
    bytes: &[u8],
    limits: &Limits,
    slots: &mut Slots,
    from: Progress,
    asked: Asked,
) -> Result<Found<ResponseMeta>, Error> {
    head::read(
        bytes,
        limits,
        slots,
        from,
        Reach { end_max: ANSWER_HEAD_BYTES_MAX, tolerant: limits.tolerant },
        |bytes| Ok(status_line(bytes, limits)?.map(|line| (line.end, line))),
        |line, facts: Facts| meta(line, &facts, asked, limits),
    )
}

/// Decides the framing by RFC 9112 §6.3, without its tolerance except for the cases of [`Limits::tolerant`].
fn meta(line: &StatusLine, facts: &Facts, asked: Asked, limits: &Limits) -> Result<ResponseMeta, Error> {
    let framing = facts.framing(line.version, limits.tolerant)?;
    let tunnel = asked.method == Method::Connect && line.status.is_success();
    let body = if line.status.forbids_body() || asked.method == Method::Head || tunnel {
        Body::Empty
    } else {
        framing.unwrap_or(Body::UntilClose)
    };
    if matches!(body, Body::Length(length) if length > limits.body_bytes) {
        return Err(Error::new(Problem::BodyTooLong, &[]));
    }
    Ok(ResponseMeta {
        status: line.status,
        version: line.version,
        body,
        keep_alive: facts.persists(line.version) && body != Body::UntilClose,
        reason_end: line.reason_end,
    })
}

struct StatusLine {
    status: Status,
    version: Version,
    reason_end: u16,
    /// Position after its line end.
    end: usize,
}

/// Offset of the reason phrase.
const REASON: usize = "HTTP/1.1 200 ".len();

/// `None`: more bytes are needed.
fn status_line(bytes: &[u8], limits: &Limits) -> Result<Option<StatusLine>, Error> {
    const PATTERN: &[u8; 12] = b"HTTP/1.d ddd";
    for (&byte, &pattern) in bytes.iter().zip(PATTERN) {
        let fits = match pattern {
            b'd' => byte.is_ascii_digit(),
            _ => byte == pattern,
        };
        if !fits {
            return Err(Error::new(Problem::StatusLine, &[byte]));
        }
    }
    let Some([.., version, b' ', a, b, c]) = bytes.first_chunk::<12>() else { return Ok(None) };
    // A higher minor version is read as the highest known one (RFC 9110 §2.5).
    let version = if *version == b'0' { Version::Http10 } else { Version::Http11 };
    let code = [a, b, c].iter().fold(0, |code, digit| code * 10 + u16::from(**digit - b'0'));
    let Some(status) = Status::new(code) else { return Err(Error::new(Problem::StatusLine, &[*a, *b, *c])) };

    // Many servers omit the space before an empty phrase. That is unambiguous, so it is accepted.
    let line_max = usize::from(limits.start_line_bytes).max(PATTERN.len());
    let line = bytes.get(..line_max + 1).unwrap_or(bytes);
    let reason_end = match bytes.get(PATTERN.len()) {
        Some(b' ') => REASON + value_len(line.get(REASON..).unwrap_or_default()),
        Some(b'\r') => PATTERN.len(),
        Some(b'\n') if limits.tolerant => PATTERN.len(),
        Some(&other) => return Err(Error::at(Problem::StatusLine, other)),
        None => return Ok(None),
    };
    match line.get(reason_end) {
        Some(b'\r') => {}
        Some(b'\n') if limits.tolerant => {
            let end = reason_end + 1;
            return Ok(Some(StatusLine { status, version, reason_end: reason_end as u16, end }));
        }
        Some(&other) => return Err(Error::at(Problem::StatusLine, other)),
        None if bytes.len() <= line_max => return Ok(None),
        None => return Err(Error::new(Problem::StatusLineTooLong, &[])),
    }
    match bytes.get(reason_end + 1) {
        Some(b'\n') => {
            let end = reason_end + 2;
            Ok(Some(StatusLine { status, version, reason_end: reason_end as u16, end }))
        }
        Some(&other) => Err(Error::at(Problem::LineEnd, other)),
        None => Ok(None),
    }
}
