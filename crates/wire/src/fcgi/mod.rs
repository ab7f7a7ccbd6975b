//! FastCGI 1.0, the web server's side: requests as records, and a responder's records as events.
//!
//! A connection is a stream of records. Each has a head of [`HEAD_BYTES`], a content and padding. One
//! request at a time is in progress on a connection, because PHP serves them so. Each request has its own id
//! ([`Ids`]), so that late output for one request is never taken for the answer to the next. Write a request
//! with [`begin`], [`Params`] and [`stdin`]; read the answer with [`Responses`]. The bytes of STDOUT begin
//! with a CGI head, which [`head`] parses.
//!
//! Sections cited are those of the FastCGI specification 1.0.

mod head;

pub use head::{BadHead, HEAD_BYTES_MAX, Head, LINES_MAX, head};

use std::fmt;

/// Bytes of a record's head (§3.3): version, type, `u16` id, `u16` content length, padding length, reserved.
pub const HEAD_BYTES: usize = 8;
/// Maximum content bytes of one record.
pub const CONTENT_BYTES_MAX: usize = 0xffff;
const VERSION: u8 = 1;
const BEGIN_REQUEST: u8 = 1;
const ABORT_REQUEST: u8 = 2;
const END_REQUEST: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const STDERR: u8 = 7;
const GET_VALUES_RESULT: u8 = 10;
const UNKNOWN_TYPE: u8 = 11;
/// The role that answers HTTP requests (§6.2).
const RESPONDER: u8 = 1;
/// The application keeps the connection open after its answer (§5.1).
const KEEP_CONN: u8 = 1;

/// The ids of a connection's requests, in sequence. 0 is the connection's own (§3.3).
#[derive(Clone, Copy, Debug, Default)]
pub struct Ids(u16);

impl Ids {
    /// Returns the id of the next request: 1 at first, and again after the largest.
    pub fn take(&mut self) -> u16 {
        self.0 = self.0.wrapping_add(1).max(1);
        self.0
    }
}

fn record(out: &mut Vec<u8>, id: u16, kind: u8, content: &[u8]) {
    let [high, low] = (content.len() as u16).to_be_bytes();
    let [id_high, id_low] = id.to_be_bytes();
    out.extend_from_slice(&[VERSION, kind, id_high, id_low, high, low, 0, 0]);
    out.extend_from_slice(content);
}

/// Appends a stream's bytes as records. Without bytes nothing is appended.
fn records(out: &mut Vec<u8>, id: u16, kind: u8, content: &[u8]) {
    content.chunks(CONTENT_BYTES_MAX).for_each(|part| record(out, id, kind, part));
}

/// Appends the beginning of a request. `keep`: the application keeps the connection open for the next one.
pub fn begin(out: &mut Vec<u8>, id: u16, keep: bool) {
    record(out, id, BEGIN_REQUEST, &[0, RESPONDER, if keep { KEEP_CONN } else { 0 }, 0, 0, 0, 0, 0]);
}

/// Appends a request to abort (§5.4).
pub fn abort(out: &mut Vec<u8>, id: u16) {
    record(out, id, ABORT_REQUEST, &[]);
}

/// Appends bytes of the request's body.
pub fn stdin(out: &mut Vec<u8>, id: u16, bytes: &[u8]) {
    records(out, id, STDIN, bytes);
}

/// Appends the end of the request's body.
pub fn end_stdin(out: &mut Vec<u8>, id: u16) {
    record(out, id, STDIN, &[]);
}

/// The variables of a request.
#[derive(Clone, Debug, Default)]
pub struct Params {
    bytes: Vec<u8>,
}

impl Params {
    /// Makes an empty list.
    pub fn new() -> Params {
        Params::default()
    }

    /// Adds a variable (§3.4). Lengths below 128 take one byte, others four.
    pub fn push(&mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let (name, value) = (name.as_ref(), value.as_ref());
        for length in [name.len(), value.len()] {
            match u8::try_from(length) {
                Ok(short) if short < 0x80 => self.bytes.push(short),
                _ => self.bytes.extend_from_slice(&(length as u32 | 1 << 31).to_be_bytes()),
            }
        }
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
    }

    /// Appends all of them as records, then the end of the stream.
    pub fn write(&self, out: &mut Vec<u8>, id: u16) {
        records(out, id, PARAMS, &self.bytes);
        record(out, id, PARAMS, &[]);
    }
}

/// An event in the records of a responder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'b> {
    /// Bytes of the answer.
    Stdout(&'b [u8]),
    /// Bytes for the log.
    Stderr(&'b [u8]),
    /// The request has ended. The status is that of the application's process, as with `exit`.
    End {
        /// The exit status.
        status: u32,
        /// Whether the request was handled.
        how: Ended,
    },
}

/// Whether a request was handled (§5.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was handled.
    Complete,
    /// The application serves one request at a time on a connection. The request was not begun.
    CannotMultiplex,
    /// The application is out of some resource. The request was not begun.
    Overloaded,
    /// The application is not a responder.
    UnknownRole,
}

/// Why a connection is broken: both sides disagree about where records begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// A record of another version.
    Version(u8),
    /// A record that an application never sends.
    Kind(u8),
    /// A record of another request.
    Id(u16),
    /// An END_REQUEST that is too short, or has an unknown protocol status.
    End,
    /// A record after END_REQUEST.
    Behind,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::Version(version) => write!(f, "a record of version {version}, which is no FastCGI"),
            Broken::Kind(kind) => write!(f, "a record of type {kind}, which only a web server sends"),
            Broken::Id(id) => write!(f, "a record of request {id}, which is not in progress"),
            Broken::End => f.write_str("an end of the request that cannot be read"),
            Broken::Behind => f.write_str("a record behind the end of the request"),
        }
    }
}

impl std::error::Error for Broken {}

/// Parses the records of one answer.
#[derive(Clone, Debug)]
pub struct Responses {
    id: u16,
    over: bool,
}

impl Responses {
    /// Makes the state of the parser before the first record of the answer to request `id`.
    pub fn new(id: u16) -> Responses {
        Responses { id, over: false }
    }

    /// Returns the request's id.
    pub fn id(&self) -> u16 {
        self.id
    }

    /// Returns whether the request has ended.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Returns the next event at `at`, and advances `at` past its record. Ends of streams and answers to
    /// management records are skipped. `None`: more bytes are needed.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn next<'b>(&mut self, bytes: &'b [u8], at: &mut usize) -> Result<Option<Event<'b>>, Broken> {
        loop {
            let rest = bytes.get(*at..).unwrap_or_default();
            // An invalid record is refused at its first byte, before its length is used.
            match rest.first() {
                None => return Ok(None),
                Some(_) if self.over => return Err(Broken::Behind),
                Some(&VERSION) => {}
                Some(version) => return Err(Broken::Version(*version)),
            }
            let Some((head, rest)) = rest.split_first_chunk::<HEAD_BYTES>() else { return Ok(None) };
            let [_, kind, id_high, id_low, high, low, padding, _] = *head;
            let id = u16::from_be_bytes([id_high, id_low]);
            match kind {
                STDOUT | STDERR | END_REQUEST if id == self.id => {}
                GET_VALUES_RESULT | UNKNOWN_TYPE if id == 0 => {}
                STDOUT | STDERR | END_REQUEST => return Err(Broken::Id(id)),
                kind => return Err(Broken::Kind(kind)),
            }
            let length = usize::from(u16::from_be_bytes([high, low]));
            let whole = length + usize::from(padding);
            let Some(content) = rest.get(..whole).and_then(|whole| whole.get(..length)) else {
                return Ok(None);
            };
            *at += HEAD_BYTES + whole;
            match kind {
                STDOUT if !content.is_empty() => return Ok(Some(Event::Stdout(content))),
                STDERR if !content.is_empty() => return Ok(Some(Event::Stderr(content))),
                END_REQUEST => {
                    let [s0, s1, s2, s3, how, _, _, _] = *content else { return Err(Broken::End) };
                    let how = match how {
                        0 => Ended::Complete,
                        1 => Ended::CannotMultiplex,
                        2 => Ended::Overloaded,
                        3 => Ended::UnknownRole,
                        _ => return Err(Broken::End),
                    };
                    self.over = true;
                    return Ok(Some(Event::End { status: u32::from_be_bytes([s0, s1, s2, s3]), how }));
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn events(bytes: &[u8]) -> Result<Vec<Event<'_>>, Broken> {
        let (mut responses, mut at, mut all) = (Responses::new(1), 0, Vec::new());
        while let Some(event) = responses.next(bytes, &mut at)? {
            all.push(event);
        }
        Ok(all)
    }

    #[test]
    fn a_request_is_written_as_the_specification_says() {
        let mut out = Vec::new();
        begin(&mut out, 1, true);
        assert_eq!(out, [1, 1, 0, 1, 0, 8, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0]);
        out.clear();
        let mut params = Params::new();
        params.push("A", "");
        params.push("B", [b'x'; 127]);
        params.push("C", [b'y'; 128]);
        params.write(&mut out, 1);
        let mut expected = vec![1, 4, 0, 1, 1, 11, 0, 0, 1, 0, b'A', 1, 127, b'B'];
        expected.extend_from_slice(&[b'x'; 127]);
        expected.extend_from_slice(&[1, 0x80, 0, 0, 128, b'C']);
        expected.extend_from_slice(&[b'y'; 128]);
        expected.extend_from_slice(&[1, 4, 0, 1, 0, 0, 0, 0]);
        assert_eq!(out, expected);
        out.clear();
        stdin(&mut out, 1, b"a=1");
        end_stdin(&mut out, 1);
        abort(&mut out, 1);
        assert_eq!(
            out,
            [1, 5, 0, 1, 0, 3, 0, 0, b'a', b'=', b'1', 1, 5, 0, 1, 0, 0, 0, 0, 1, 2, 0, 1, 0, 0, 0, 0]
        );
    }

    #[test]
    fn a_long_body_is_cut_into_records() {
        let body = vec![7; 150_000];
        let mut out = Vec::new();
        stdin(&mut out, 1, &body);
        assert_eq!(out.len(), body.len() + 3 * HEAD_BYTES);
        assert_eq!(&out[..6], &[1, 5, 0, 1, 0xff, 0xff]);
    }

    #[test]
    fn an_answer_is_read_however_it_is_cut() {
        let mut bytes = vec![1, 6, 0, 1, 0, 5, 3, 0];
        bytes.extend_from_slice(b"hello\0\0\0");
        bytes.extend_from_slice(&[1, 7, 0, 1, 0, 2, 0, 0, b'o', b'h']);
        bytes.extend_from_slice(&[1, 6, 0, 1, 0, 0, 0, 0]);
        bytes.extend_from_slice(&[1, 3, 0, 1, 0, 8, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0]);
        let all =
            [Event::Stdout(b"hello"), Event::Stderr(b"oh"), Event::End { status: 256, how: Ended::Complete }];
        assert_eq!(events(&bytes).unwrap(), all);
        for cut in 0..bytes.len() {
            let (mut responses, mut at, mut seen) = (Responses::new(1), 0, Vec::new());
            while let Some(event) = responses.next(&bytes[..cut], &mut at).unwrap() {
                seen.push(event);
            }
            while let Some(event) = responses.next(&bytes, &mut at).unwrap() {
                seen.push(event);
            }
            assert_eq!(seen, all, "{cut}");
            assert!(responses.is_over() && at == bytes.len());
        }
    }

    #[test]
    fn requests_of_a_connection_have_ids_of_their_own_and_never_its_own() {
        let mut ids = Ids::default();
        assert_eq!([ids.take(), ids.take()], [1, 2]);
        let mut all: Vec<u16> = (2..0xffff).map(|_| ids.take()).collect();
        assert_eq!((all.pop(), ids.take()), (Some(0xffff), 1));
        // The end of an earlier request is not this one's.
        let end = [1, 3, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(Responses::new(2).next(&end, &mut 0), Err(Broken::Id(1)));
    }

    #[test]
    fn what_no_application_sends_breaks_the_connection() {
        assert_eq!(events(b"HTTP/1.1 200 OK"), Err(Broken::Version(b'H')));
        assert_eq!(events(&[1, 5, 0, 1, 0, 0, 0, 0]), Err(Broken::Kind(5)));
        assert_eq!(events(&[1, 6, 0, 2, 0, 0, 0, 0]), Err(Broken::Id(2)));
        assert_eq!(events(&[1, 3, 0, 1, 0, 2, 0, 0, 0, 0]), Err(Broken::End));
        assert_eq!(events(&[1, 3, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0]), Err(Broken::End));
        let end = [1, 3, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(events(&[end, end].concat()), Err(Broken::Behind));
        // An answer to a management record is not the request's.
        assert_eq!(events(&[1, 10, 0, 0, 0, 0, 0, 0]).unwrap(), []);
    }
}
