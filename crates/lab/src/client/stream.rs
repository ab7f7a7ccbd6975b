//! What a connection sends and what must come back, as bytes. No sockets, no clock.
//!
//! Both directions are periodic streams on a *tape*: one period written out often enough that any piece of up
//! to [`PIECE_BYTES`] is one slice. Sending is a slice; checking is one comparison with a slice.
//!
//! - HTTP requests: the period is one request. Answers may differ (a `Date` header), so the tape of answers
//!   is the last answer `httparse` found valid; what differs from it is parsed in full.
//! - Echo: the period is [`ECHO_PERIOD`] random bytes and every connection starts elsewhere in it, so lost,
//!   swapped and mixed-up bytes are all seen.
//!
//! Start at [`Script`]; [`Check`] holds a connection's place in the answers.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use super::Options;
use crate::suite::Protocol;

/// The longest piece sent or received at once.
pub const PIECE_BYTES: usize = 64 * 1024;
/// A prime, so that messages of no usual length line up with it.
pub const ECHO_PERIOD: usize = 8191;
/// An answer larger than this is taken for a runaway.
const ANSWER_MAX: usize = 64 << 20;

/// The two streams, shared by all connections.
#[derive(Debug)]
pub struct Script {
    /// Requests.
    outgoing: Tape,
    /// Bytes of one request.
    pub request_bytes: usize,
    answers: Answers,
}

#[derive(Debug)]
enum Answers {
    /// The stream that was sent.
    Echo,
    Http {
        /// Repetitions of the last valid answer; empty before the first.
        tape: Tape,
        /// That answer says that the server will close.
        tape_closes: bool,
        /// The body every answer must have, once known.
        body: Option<Vec<u8>>,
        /// An answer to HEAD would have none; we only send GET.
        body_bytes: Option<u64>,
    },
}

/// One period, repeated.
#[derive(Debug, Default)]
struct Tape {
    bytes: Vec<u8>,
    period: usize,
}

/// One connection's place in its answers.
#[derive(Debug, Default)]
pub struct Check {
    /// Echo: where in the period the next byte must be.
    place: usize,
    /// Echo: bytes of the unfinished message. HTTP: unused.
    part_bytes: usize,
    /// HTTP: bytes of the unfinished answer; keeps its memory.
    carry: Vec<u8>,
}

/// What a piece of input held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Got {
    /// Whole answers, right and with status 2xx.
    pub right: u32,
    /// Whole answers with another status.
    pub refused: u32,
    /// The last answer said that the server will close.
    pub closes: bool,
}

/// An answer that is not what it must be, as a clause.
pub type Wrong = String;

impl Tape {
    fn of(period: &[u8]) -> Tape {
        let repeats = 1 + PIECE_BYTES.div_ceil(period.len());
        Tape { bytes: period.repeat(repeats), period: period.len() }
    }

    /// Returns the stream's period, once.
    fn once(&self) -> &[u8] {
        self.bytes.get(..self.period).unwrap_or_default()
    }

    /// Up to `bytes` of the stream from `place`, at most [`PIECE_BYTES`].
    fn piece(&self, place: usize, bytes: usize) -> &[u8] {
        self.bytes.get(place..place + bytes.min(PIECE_BYTES)).unwrap_or_default()
    }

    fn after(&self, place: usize, bytes: usize) -> usize {
        // A division per piece would cost more than the compare; one subtraction does for small pieces.
        let next = place + bytes;
        if next < self.period { next } else { next % self.period }
    }
}

impl Script {
    /// Makes the streams these options ask for.
    pub fn new(options: &Options) -> Script {
        match options.protocol {
            Protocol::Echo => {
                // A fixed seed: the bytes must only be known to the client, not secret.
                let mut random = fastrand::Rng::with_seed(0x1d1e_f00d);
                let period: Vec<u8> = (0..ECHO_PERIOD).map(|_| random.u8(..)).collect();
                Script {
                    outgoing: Tape::of(&period),
                    request_bytes: options.payload_bytes as usize,
                    answers: Answers::Echo,
                }
            }
            Protocol::Http | Protocol::Files => {
                let last = if options.reconnect { "Connection: close\r\n" } else { "" };
                let host = options.host.clone().unwrap_or_else(|| options.addr.to_string());
                let request = format!(
                    "GET {} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: ringroad-lab\r\n{last}\r\n",
                    options.path
                );
                Script {
                    outgoing: Tape::of(request.as_bytes()),
                    request_bytes: request.len(),
                    answers: Answers::Http {
                        tape: Tape::default(),
                        tape_closes: false,
                        body: options.body.as_ref().map(|body| body.clone().into_bytes()),
                        body_bytes: None,
                    },
                }
            }
        }
    }

    /// Returns where connection `index` begins in the outgoing stream, and its place in the answers.
    pub fn start(&self, index: usize) -> (usize, Check) {
        match self.answers {
            // 61 and the period have no common divisor, so 8191 connections all begin at different places.
            Answers::Echo => {
                let place = index * 61 % ECHO_PERIOD;
                (place, Check { place, ..Check::default() })
            }
            Answers::Http { .. } => (0, Check::default()),
        }
    }

    /// Returns the next bytes to send from `place`, at most `bytes`.
    pub fn outgoing(&self, place: usize, bytes: usize) -> &[u8] {
        self.outgoing.piece(place, bytes)
    }

    /// Returns the place after sending `bytes` from `place`.
    pub fn advance(&self, place: usize, bytes: usize) -> usize {
        self.outgoing.after(place, bytes)
    }

    /// Returns how many bytes a message has (echo), or the body of the last answer (HTTP), once one came.
    pub fn payload_bytes(&self) -> Option<u64> {
        match &self.answers {
            Answers::Echo => Some(self.request_bytes as u64),
            Answers::Http { body_bytes, .. } => *body_bytes,
        }
    }

    /// Checks a received piece (at most [`PIECE_BYTES`]) of one connection.
    ///
    /// # Errors
    /// What is wrong with it; the connection is of no further use then.
    pub fn check(&mut self, check: &mut Check, piece: &[u8]) -> Result<Got, Wrong> {
        match &mut self.answers {
            Answers::Echo => {
                if piece != self.outgoing.piece(check.place, piece.len()) {
                    return Err("it echoed other bytes than it got".to_owned());
                }
                check.place = self.outgoing.after(check.place, piece.len());
                let part = check.part_bytes + piece.len();
                if part == self.request_bytes {
                    check.part_bytes = 0;
                    return Ok(Got { right: 1, ..Got::default() });
                }
                check.part_bytes = part % self.request_bytes;
                Ok(Got { right: (part / self.request_bytes) as u32, ..Got::default() })
            }
            Answers::Http { tape, tape_closes, body, body_bytes } => {
                if check.carry.is_empty() && tape.period > 0 {
                    let closes = *tape_closes;
                    if piece.len() == tape.period && piece == tape.once() {
                        return Ok(Got { right: 1, refused: 0, closes });
                    }
                    if piece.len().is_multiple_of(tape.period) && piece == tape.piece(0, piece.len()) {
                        return Ok(Got { right: (piece.len() / tape.period) as u32, refused: 0, closes });
                    }
                }
                check.carry.extend_from_slice(piece);
                parse_all(&mut check.carry, (tape, tape_closes), body, body_bytes, Input::Open)
            }
        }
    }

    /// Takes the end of the connection, which the server has closed. Returns the answer that ends with it, if
    /// there is one.
    ///
    /// # Errors
    /// What is wrong with that answer.
    pub fn ended(&mut self, check: &mut Check) -> Result<Option<Got>, Wrong> {
        let Answers::Http { tape, tape_closes, body, body_bytes } = &mut self.answers else {
            return Ok(None);
        };
        let got = parse_all(&mut check.carry, (tape, tape_closes), body, body_bytes, Input::Closed)?;
        Ok((got.right + got.refused > 0).then_some(got))
    }
}

/// Whether more bytes may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// The connection is open.
    Open,
    /// The server has closed it.
    Closed,
}

/// Takes all whole answers off the front of `carry`.
fn parse_all(
    carry: &mut Vec<u8>,
    (tape, tape_closes): (&mut Tape, &mut bool),
    body: &mut Option<Vec<u8>>,
    body_bytes: &mut Option<u64>,
    input: Input,
) -> Result<Got, Wrong> {
    let mut got = Got::default();
    let mut from = 0;
    while from < carry.len() {
        let rest = tail(carry, from);
        if tape.period > 0 && rest.starts_with(tape.once()) {
            got.right += 1;
            got.closes = *tape_closes;
            from += tape.period;
            continue;
        }
        let Some(answer) = parse(rest, input)? else {
            if rest.len() > ANSWER_MAX {
                return Err(format!("an answer has no end after {ANSWER_MAX} bytes"));
            }
            break;
        };
        from += answer.total_bytes;
        got.closes = answer.closes;
        if !(200..300).contains(&answer.status) {
            got.refused += 1;
            continue;
        }
        match body {
            Some(body) if *body != answer.body => {
                return Err(format!("the body is {} instead of {}", excerpt(&answer.body), excerpt(body)));
            }
            Some(_) => {}
            None => *body = Some(answer.body.clone()),
        }
        *body_bytes = Some(answer.body.len() as u64);
        got.right += 1;
        // An answer without a length of its own is known as whole only by the close behind it.
        if answer.total_bytes <= PIECE_BYTES && !answer.until_close {
            *tape = Tape::of(rest.get(..answer.total_bytes).unwrap_or_default());
            *tape_closes = answer.closes;
        }
    }
    carry.drain(..from);
    Ok(got)
}

/// One whole answer.
pub(crate) struct Answer {
    pub(crate) status: u16,
    body: Vec<u8>,
    total_bytes: usize,
    /// The server closes the connection behind it.
    pub(crate) closes: bool,
    /// Its body ends with the connection.
    until_close: bool,
}

/// Returns the answer at the front of `bytes`, or `None` if more bytes are needed.
pub(crate) fn parse(bytes: &[u8], input: Input) -> Result<Option<Answer>, Wrong> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    let head_bytes = match response.parse(bytes) {
        Ok(httparse::Status::Complete(head_bytes)) => head_bytes,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(format!("not an HTTP answer ({error}): {}", excerpt(bytes))),
    };
    let status = response.code.ok_or("an answer without status")?;
    let values = |name: &'static str| {
        response.headers.iter().filter(move |h| h.name.eq_ignore_ascii_case(name)).map(|h| h.value)
    };
    let has_word = |name, word: &str| {
        values(name)
            .filter_map(|value| std::str::from_utf8(value).ok())
            .flat_map(|value| value.split(','))
            .any(|part| part.trim().eq_ignore_ascii_case(word))
    };
    // RFC 9112 section 9.3: HTTP/1.0 closes unless it says otherwise.
    let closes = has_word("connection", "close")
        || (response.version == Some(0) && !has_word("connection", "keep-alive"));
    let rest = tail(bytes, head_bytes);
    // RFC 9112 section 6.3: these have no body whatever the headers say.
    let (body, body_bytes) = if status < 200 || status == 204 || status == 304 {
        (Vec::new(), 0)
    } else if has_word("transfer-encoding", "chunked") {
        match unchunk(rest)? {
            Some(done) => done,
            None => return Ok(None),
        }
    } else {
        let mut lengths = values("content-length");
        let Some(length) = lengths.next() else {
            // Without a length the body ends where the connection does.
            return Ok((input == Input::Closed).then(|| Answer {
                status,
                body: rest.to_vec(),
                total_bytes: bytes.len(),
                closes: true,
                until_close: true,
            }));
        };
        if lengths.any(|other| other != length) {
            return Err("an answer with two different Content-Length".to_owned());
        }
        let length = std::str::from_utf8(length)
            .ok()
            .filter(|text| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()))
            .and_then(|text| text.parse::<usize>().ok())
            .filter(|length| *length <= ANSWER_MAX)
            .ok_or_else(|| format!("Content-Length is {}", excerpt(length)))?;
        let Some(body) = rest.get(..length) else { return Ok(None) };
        (body.to_vec(), length)
    };
    Ok(Some(Answer { status, body, total_bytes: head_bytes + body_bytes, closes, until_close: false }))
}

/// Returns a chunked body at the front of `bytes`: the body and how many bytes it took; `None` if more are
/// needed.
fn unchunk(bytes: &[u8]) -> Result<Option<(Vec<u8>, usize)>, Wrong> {
    let mut body = Vec::new();
    let mut from = 0;
    loop {
        let (line_bytes, size) = match httparse::parse_chunk_size(tail(bytes, from)) {
            Ok(httparse::Status::Complete((line_bytes, size))) => (line_bytes, size),
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err(format!("a bad chunk: {}", excerpt(tail(bytes, from)))),
        };
        from += line_bytes;
        if size == 0 {
            // Trailers, if any, up to the empty line.
            loop {
                let Some(end) = memchr::memmem::find(tail(bytes, from), b"\r\n") else { return Ok(None) };
                from += end + 2;
                if end == 0 {
                    return Ok(Some((body, from)));
                }
            }
        }
        let size = usize::try_from(size).ok().filter(|s| *s <= ANSWER_MAX).ok_or("a chunk without end")?;
        let Some(data) = bytes.get(from..from + size + 2) else { return Ok(None) };
        let Some(data) = data.strip_suffix(b"\r\n") else {
            return Err("a chunk that does not end where it says".to_owned());
        };
        body.extend_from_slice(data);
        from += size + 2;
    }
}

/// Returns what follows the first `from` bytes.
fn tail(bytes: &[u8], from: usize) -> &[u8] {
    bytes.get(from..).unwrap_or_default()
}

/// Returns the first bytes of something, readable, in quotes.
fn excerpt(bytes: &[u8]) -> String {
    let shown = bytes.get(..40).unwrap_or(bytes);
    format!("\"{}{}\"", shown.escape_ascii(), if bytes.len() > shown.len() { "…" } else { "" })
}
