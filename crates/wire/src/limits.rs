//! All limits of this protocol: sizes, which this crate enforces, and times, which the caller enforces,
//! because there is no clock here.
//!
//! The defaults are those of `ringroad serve`. Comments name the limits of other programs where that helps.

use std::time::Duration;

/// Maximum number of header lines in one head. Their table is a fixed array of this size.
pub const FIELDS_MAX: usize = u8::MAX as usize;

/// Maximum size of a request head in bytes, start line and header lines together, in any configuration.
pub const HEAD_BYTES_MAX: usize = u16::MAX as usize;

/// Maximum size of an answer's head in bytes, in any configuration.
pub const ANSWER_HEAD_BYTES_MAX: usize = 1 << 20;

/// Sizes that a peer may send. A message that exceeds one is refused with the status of
/// [`Error::status`](crate::Error::status).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum bytes of a request line or status line, without its line end (414).
    pub start_line_bytes: u16,
    /// Maximum bytes of a header or trailer line, without its line end (431).
    pub field_line_bytes: u16,
    /// Maximum bytes of all header lines together, with their line ends (431).
    pub header_bytes: u32,
    /// Maximum number of header lines, and of trailer lines; at most [`FIELDS_MAX`] (431).
    pub fields: u8,
    /// Maximum bytes of a body, chunked or not (413). A caller may lower it for one message, but not raise
    /// it.
    pub body_bytes: u64,
    /// Maximum bytes of the chunk extensions of one body (400). hyper: 16 KiB.
    pub chunk_extension_bytes: u32,
    /// Maximum bytes of the trailer lines of one body, with their line ends (400). hyper: 16 KiB.
    pub trailer_bytes: u16,
    /// Maximum number of empty lines before a start line (400). RFC 9112 §2.2 asks to ignore "at least one".
    pub empty_lines: u8,
    /// Maximum number of interim responses (1xx) before the final one.
    pub interim_responses: u8,
    /// Maximum bytes of an unwanted body that are read and dropped to keep a connection. Above it the
    /// connection is closed.
    pub drain_bytes: u32,
    /// Whether an answer may have irregularities that RFC 9112 lets its recipient accept. These are: lines of
    /// the head that end with LF alone (§2.2); white space between a name and its colon (§5.1); folded lines
    /// of the head, which the caller unfolds (§5.2, [`Responses::unfold`](crate::Responses::unfold)); white
    /// space after the size of a chunk, which old servers pad; the same `Content-Length` in several lines
    /// (RFC 9110 §8.6); and `Transfer-Encoding: identity` without a length, which ends with the connection
    /// (§6.3). Forbidden trailer lines are then dropped (RFC 9110 §6.5.1) instead of refused. Requests may
    /// never have any of these, because readers that differ would see two different messages. [`Default`]:
    /// no.
    pub tolerant: bool,
    /// Whether methods other than those of [`Method`](crate::Method) are accepted (501 otherwise).
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
    /// Returns the limits of a client. It has requested the answer from a chosen server, so it accepts what
    /// other clients accept. Heads have up to 256 KiB (as in browsers; curl: 300 KiB) with lines of 64 KiB,
    /// and 255 interim responses may precede them. The length of bodies is not limited.
    pub fn client() -> Self {
        Limits {
            start_line_bytes: 32 * 1024,
            field_line_bytes: u16::MAX,
            header_bytes: 256 * 1024,
            fields: FIELDS_MAX as u8,
            body_bytes: u64::MAX,
            // A long body may have a signature in each chunk. They are dropped as they arrive.
            chunk_extension_bytes: u32::MAX,
            trailer_bytes: u16::MAX,
            // A server that works for an hour may send 102 every 20 s.
            interim_responses: u8::MAX,
            tolerant: true,
            ..Limits::default()
        }
    }
}

/// Times and counts, for the owner of the clock and the sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// Maximum time from the first byte of a head to its end, however slowly its bytes arrive (408, then
    /// close).
    pub head: Duration,
    /// Minimum rate of a body in bytes per second, after `body_grace` (408, then close).
    pub body_bytes_per_second_min: u32,
    /// How long a body may be slower than that.
    pub body_grace: Duration,
    /// Maximum time in which the receiver of an answer takes no bytes; then close. A piece of up to 64 KiB
    /// must be sent within this time.
    pub send_stall: Duration,
    /// Minimum rate of the receiver of a large answer in bytes per second, checked every `send_stall`; then
    /// close. 0: no minimum.
    pub send_bytes_per_second_min: u32,
    /// How long a client may go on sending after the last answer, so that it can read the answer; then close.
    /// A client that sends nothing for 5 s is closed earlier.
    pub linger: Duration,
    /// Maximum idle time between two requests, and before the first; then close.
    pub keep_alive: Duration,
    /// How long a client that has ended its sending side (`shutdown(2)`, or a close) still gets its answer:
    /// maximum wait for the head, and for each next part of the body. Then the client counts as gone.
    pub half_close: Duration,
    /// Maximum number of requests on one connection; the last is answered with `Connection: close`.
    pub requests_per_connection: u32,
    /// Maximum number of requests of one connection that are parsed before the first of them is answered.
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
