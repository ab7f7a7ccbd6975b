//! Every bound this protocol needs, in one place: sizes, which the machines of this crate keep, and times,
//! which their caller keeps, because there is no clock here.
//!
//! The defaults are those of `ringroad serve`; what others chose is in the comments where it tells something.

use std::time::Duration;

/// Most header lines in one head. The table that holds them is a fixed array of this size.
pub const FIELDS_MAX: usize = u8::MAX as usize;

/// Longest head of a request, start line and header lines together, whatever is configured.
pub const HEAD_BYTES_MAX: usize = u16::MAX as usize;

/// Longest head of an answer, whatever is configured.
pub const ANSWER_HEAD_BYTES_MAX: usize = 1 << 20;

/// How much of each thing a peer may send. What goes over is refused with the status of
/// [`Error::status`](crate::Error::status).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest request line or status line, without its line end (414).
    pub start_line_bytes: u16,
    /// Longest header line or trailer line, without its line end (431).
    pub field_line_bytes: u16,
    /// All header lines together, with their line ends (431).
    pub header_bytes: u32,
    /// Most header lines, and most trailer lines; at most [`FIELDS_MAX`] (431).
    pub fields: u8,
    /// Longest body, chunked or not (413). A caller may narrow it for one message, never widen it.
    pub body_bytes: u64,
    /// Chunk extensions of one body together (400). hyper: 16 KiB.
    pub chunk_extension_bytes: u32,
    /// Trailer lines of one body together, with their line ends (400). hyper: 16 KiB.
    pub trailer_bytes: u16,
    /// Empty lines before a start line (400). RFC 9112 §2.2 asks to ignore "at least one".
    pub empty_lines: u8,
    /// Interim responses (1xx) before the final one.
    pub interim_responses: u8,
    /// Most bytes of an unwanted body that are read and dropped to keep a connection; past it, close.
    pub drain_bytes: u32,
    /// Whether an answer may have what RFC 9112 lets its recipient take: lines of the head that end with LF
    /// alone (§2.2), blanks between a name and its colon (§5.1), folded lines of the head, which the caller
    /// unfolds (§5.2, [`Responses::unfold`](crate::Responses::unfold)), blanks behind the size of a chunk, as
    /// old servers pad it, the same `Content-Length` in several lines (RFC 9110 §8.6), and
    /// `Transfer-Encoding: identity` without a length, which ends with the connection (§6.3); and whether
    /// trailer lines that must not be there are dropped (RFC 9110 §6.5.1) instead of refused. Requests may
    /// have none of these: two readers that differ there take one message for two. [`Default`]: no.
    pub tolerant: bool,
    /// Whether methods other than those of [`Method`](crate::Method) are taken (501 otherwise).
    pub extension_methods: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            start_line_bytes: 8 * 1024,
            field_line_bytes: 8 * 1024,
            header_bytes: 32 * 1024,
            fields: 100,
            body_bytes: 8 * 1024 * 1024,
            chunk_extension_bytes: 16 * 1024,
            trailer_bytes: 16 * 1024,
            empty_lines: 8,
            interim_responses: 16,
            drain_bytes: 256 * 1024,
            tolerant: false,
            extension_methods: false,
        }
    }
}

impl Limits {
    /// Returns the limits of a client. An answer has been asked for, and its sender chosen: what others take
    /// is taken. Heads have up to 256 KiB (browsers; curl: 300 KiB) with lines of 64 KiB, and 255 interim
    /// responses may precede them. Bodies are as long as the user requests.
    pub fn client() -> Self {
        Limits {
            start_line_bytes: 32 * 1024,
            field_line_bytes: u16::MAX,
            header_bytes: 256 * 1024,
            fields: FIELDS_MAX as u8,
            body_bytes: u64::MAX,
            // A long body may have a signature in each of its chunks. They are dropped as they come.
            chunk_extension_bytes: u32::MAX,
            trailer_bytes: u16::MAX,
            // A server that works for an hour may say so (102) every 20 s.
            interim_responses: u8::MAX,
            tolerant: true,
            ..Limits::default()
        }
    }
}

/// How long, how often and how many at once: for the owner of the clock and the sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// From the first byte of a head to its end, however the bytes trickle (408, then close).
    pub head: Duration,
    /// Slowest body, in bytes per second, once `body_grace` is over (408, then close).
    pub body_bytes_per_second_min: u32,
    /// How long a body may be slower than that.
    pub body_grace: Duration,
    /// Longest time in which the receiver of an answer takes nothing of it; then close. What is sent in one
    /// piece, up to 64 KiB, has this time as a whole.
    pub send_stall: Duration,
    /// Slowest receiver of a large answer, in bytes per second, judged every `send_stall`; then close. 0:
    /// any.
    pub send_bytes_per_second_min: u32,
    /// How long a client may go on sending after the last answer, so that it gets to read it; then close. A
    /// client that sends nothing for 5 s is closed before.
    pub linger: Duration,
    /// Longest silence between two requests, and before the first; then close.
    pub keep_alive: Duration,
    /// How long a client that has ended its sending side (`shutdown(2)`, or a close) is answered: longest
    /// wait for the head of an answer, and for each next part of its body. Then it counts as one that has
    /// left.
    pub half_close: Duration,
    /// Requests taken from one connection; the last is answered with `Connection: close`.
    pub requests_per_connection: u32,
    /// Requests taken from one connection before the first of them is answered.
    pub pipeline_depth: u16,
}

impl Default for Deadlines {
    fn default() -> Self {
        Deadlines {
            head: Duration::from_secs(10),
            body_bytes_per_second_min: 1024,
            body_grace: Duration::from_secs(10),
            send_stall: Duration::from_secs(30),
            send_bytes_per_second_min: 128,
            linger: Duration::from_secs(30),
            keep_alive: Duration::from_secs(60),
            half_close: Duration::from_millis(500),
            requests_per_connection: 10_000,
            pipeline_depth: 64,
        }
    }
}
