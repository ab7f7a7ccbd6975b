//! HTTP/2 as a client that sends prepared requests needs it: bytes in, news out. No I/O, no clock.
//!
//! A request's head is encoded once, as literals: its frames are copied for each stream. The server is told
//! to use no dynamic table (RFC 7541 §4.2), so each head of an answer can be read by itself, and of it the
//! status is read, which comes first. Windows are opened as far as the protocol permits: a load generator
//! does not slow a server down. Start at [`Machine`].

use crate::foreign::instead_of_http2;
use bytes::Bytes;
use std::collections::{HashMap, VecDeque};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 32;

/// The largest window (RFC 9113 §6.9.1).
const WINDOW_MAX: i64 = (1 << 31) - 1;
/// The window of a connection and of its streams at first.
const WINDOW_FIRST: i64 = 65_535;
/// Received bytes after which the connection's window is opened again.
const CONSUMED_MAX: i64 = 1 << 30;
/// The largest frame that is taken; the server is not told of a larger one.
const FRAME_BYTES: usize = 16_384;
/// Streams that are opened before the server has said how many it takes (RFC 9113 §6.5.2 recommends so many).
const STREAMS_FIRST: u32 = 100;

/// A request, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prepared {
    /// Its head, encoded.
    block: Vec<u8>,
    /// A part of the request of HTTP/1.1, not a copy.
    body: Bytes,
}

impl Prepared {
    /// The request of HTTP/1.1 in `bytes`, with its body. `None`: it is not one.
    pub(crate) fn of(bytes: &Bytes, secured: bool) -> Option<Prepared> {
        let end = memchr::memmem::find(bytes, b"\r\n\r\n")?;
        let (head, body) = (bytes.get(..end)?, bytes.slice(end + 4..));
        let mut lines =
            head.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let mut words = lines.next()?.split(|byte| *byte == b' ');
        let (method, path) = (words.next()?, words.next()?);
        let fields: Vec<(Vec<u8>, &[u8])> = lines
            .map(|line| {
                let colon = memchr::memchr(b':', line)?;
                Some((line.get(..colon)?.to_ascii_lowercase(), line.get(colon + 1..)?.trim_ascii()))
            })
            .collect::<Option<_>>()?;
        let host = fields.iter().find(|(name, _)| name == b"host")?.1;
        let mut block = Vec::new();
        // Places of the static table (RFC 7541, appendix A).
        match method {
            b"GET" => block.push(0x82),
            b"POST" => block.push(0x83),
            other => indexed(&mut block, 2, other),
        }
        block.push(if secured { 0x87 } else { 0x86 });
        indexed(&mut block, 1, host);
        match path {
            b"/" => block.push(0x84),
            other => indexed(&mut block, 4, other),
        }
        for (name, value) in &fields {
            let is_of_hop = matches!(
                name.as_slice(),
                b"host"
                    | b"connection"
                    | b"keep-alive"
                    | b"proxy-connection"
                    | b"transfer-encoding"
                    | b"upgrade"
            );
            if !is_of_hop && (name != b"te" || value.eq_ignore_ascii_case(b"trailers")) {
                block.push(0);
                string(&mut block, name);
                string(&mut block, value);
            }
        }
        Some(Prepared { block, body })
    }

    #[cfg(test)]
    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }
}

/// A literal that is not indexed, with a name of the static table.
fn indexed(out: &mut Vec<u8>, name: u8, value: &[u8]) {
    out.push(name);
    string(out, value);
}

fn string(out: &mut Vec<u8>, text: &[u8]) {
    let length = text.len();
    if length < 127 {
        out.push(length as u8);
    } else {
        out.push(127);
        let mut rest = length - 127;
        while rest >= 128 {
            out.push((rest % 128) as u8 | 128);
            rest /= 128;
        }
        out.push(rest as u8);
    }
    out.extend_from_slice(text);
}

/// What the server's bytes mean.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum News<'a> {
    /// The status of the answer on a stream.
    Status(u32, u16),
    /// A piece of its body.
    Data(u32, &'a [u8]),
    /// The answer is whole.
    Whole(u32),
    /// The stream was reset, with this code.
    Reset(u32, u32),
    /// Streams above this one were not acted on, with this code; the connection takes no more.
    GoAway(u32, u32),
}

/// One connection's state.
pub(crate) struct Machine {
    /// The beginning of a frame that has not come whole.
    input: Vec<u8>,
    out: Vec<u8>,
    /// Streams of which no answer is whole: whether their status has come.
    live: HashMap<u32, Live>,
    next: u32,
    streams_max: u32,
    window: i64,
    window_first: i64,
    consumed: i64,
    frame_max: usize,
    /// Bodies that wait for a window, in the order in which they began.
    bodies: VecDeque<Sending>,
    /// The stream with a head that goes on in the next frame, and whether its answer ends with it.
    continued: Option<(u32, bool)>,
    going: bool,
    /// Whether a frame has come.
    has_heard: bool,
}

#[derive(Default)]
struct Live {
    has_status: bool,
    window: i64,
}

struct Sending {
    stream: u32,
    body: Bytes,
    at: usize,
}

impl Default for Machine {
    fn default() -> Machine {
        let mut machine = Machine {
            input: Vec::new(),
            out: PREFACE.to_vec(),
            live: HashMap::new(),
            next: 1,
            streams_max: STREAMS_FIRST,
            window: WINDOW_FIRST,
            window_first: WINDOW_FIRST,
            consumed: 0,
            frame_max: FRAME_BYTES,
            bodies: VecDeque::new(),
            continued: None,
            going: false,
            has_heard: false,
        };
        let mut settings = Vec::new();
        // No dynamic table, no pushes, the largest window.
        for (name, value) in [(1_u16, 0_u32), (2, 0), (4, WINDOW_MAX as u32)] {
            settings.extend_from_slice(&name.to_be_bytes());
            settings.extend_from_slice(&value.to_be_bytes());
        }
        machine.frame(SETTINGS, 0, 0, &settings);
        machine.frame(WINDOW_UPDATE, 0, 0, &((WINDOW_MAX - WINDOW_FIRST) as u32).to_be_bytes());
        machine
    }
}

impl Machine {
    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let [_, high, middle, low] = (payload.len() as u32).to_be_bytes();
        self.out.extend_from_slice(&[high, middle, low, kind, flags]);
        self.out.extend_from_slice(&stream.to_be_bytes());
        self.out.extend_from_slice(payload);
    }

    /// Streams that may be opened now.
    pub(crate) fn room(&self) -> u32 {
        // The last number that a client may use is 2^31 - 1.
        let is_over = self.going || self.next > (1 << 31) - 1;
        if is_over { 0 } else { self.streams_max.saturating_sub(self.live.len() as u32) }
    }

    /// Whether the connection takes no more streams.
    pub(crate) fn is_going(&self) -> bool {
        self.going || self.next > (1 << 31) - 1
    }

    /// Whether a frame has come.
    pub(crate) fn has_heard(&self) -> bool {
        self.has_heard
    }

    /// Whether a request was sent on this connection.
    pub(crate) fn has_sent(&self) -> bool {
        self.next > 1
    }

    /// Sends a request; its stream. There has to be room.
    pub(crate) fn send(&mut self, request: &Prepared) -> u32 {
        let stream = self.next;
        self.next += 2;
        self.live.insert(stream, Live { has_status: false, window: self.window_first });
        let ends = if request.body.is_empty() { END_STREAM } else { 0 };
        let mut pieces = request.block.chunks(FRAME_BYTES).peekable();
        let mut kind = HEADERS;
        while let Some(piece) = pieces.next() {
            let last = if pieces.peek().is_none() { END_HEADERS } else { 0 };
            let flags = last | if kind == HEADERS { ends } else { 0 };
            self.frame(kind, flags, stream, piece);
            kind = CONTINUATION;
        }
        if !request.body.is_empty() {
            self.bodies.push_back(Sending { stream, body: request.body.clone(), at: 0 });
            self.send_bodies();
        }
        stream
    }

    /// Sends of the bodies what windows let through.
    fn send_bodies(&mut self) {
        let mut left = VecDeque::new();
        for mut sending in std::mem::take(&mut self.bodies) {
            let Some(live) = self.live.get_mut(&sending.stream) else { continue };
            let room = self.window.min(live.window).max(0) as usize;
            let end = sending.body.len().min(sending.at + room);
            let sent = (end - sending.at) as i64;
            self.window -= sent;
            live.window -= sent;
            let whole = sending.body.clone();
            while sending.at < end {
                let to = end.min(sending.at + self.frame_max);
                let flags = if to == whole.len() { END_STREAM } else { 0 };
                self.frame(DATA, flags, sending.stream, whole.get(sending.at..to).unwrap_or_default());
                sending.at = to;
            }
            if sending.at < whole.len() {
                left.push_back(sending);
            }
        }
        self.bodies = left;
    }

    /// What is to be sent.
    pub(crate) fn take_out(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// Reads what has come, and tells what it means.
    ///
    /// # Errors
    /// The server breaks the protocol, or speaks another one: how.
    pub(crate) fn receive(&mut self, bytes: &[u8], mut tell: impl FnMut(News<'_>)) -> Result<(), String> {
        let kept = std::mem::take(&mut self.input);
        let joined;
        let mut rest = if kept.is_empty() {
            bytes
        } else {
            joined = [&kept, bytes].concat();
            &joined
        };
        while let Some((header, behind)) = rest.split_first_chunk::<9>() {
            let [high, middle, low, kind, flags, id @ ..] = *header;
            let length = u32::from_be_bytes([0, high, middle, low]) as usize;
            let stream = u32::from_be_bytes(id) & 0x7fff_ffff;
            if length > FRAME_BYTES {
                return Err(match instead_of_http2(header) {
                    Some(what) => what,
                    // The first frame of a server is SETTINGS (RFC 9113 §3.4).
                    None if !self.has_heard && kind != SETTINGS => {
                        let begin = header.escape_ascii();
                        format!(
                            "the server does not speak HTTP/2: its first bytes are \"{begin}\", so leave out --http2"
                        )
                    }
                    None => format!(
                        "HTTP/2: a frame of {length} bytes, more than the {FRAME_BYTES} that are permitted"
                    ),
                });
            }
            let Some((payload, after)) = behind.split_at_checked(length) else { break };
            let taken = self.take(kind, flags, stream, payload, &mut tell);
            taken.map_err(|why| format!("HTTP/2: {why}"))?;
            self.has_heard = true;
            rest = after;
        }
        // An alert of TLS is shorter than the head of a frame.
        if let Some(what) = instead_of_http2(rest) {
            return Err(what);
        }
        self.input = rest.to_vec();
        Ok(())
    }

    fn take(
        &mut self,
        kind: u8,
        flags: u8,
        stream: u32,
        payload: &[u8],
        tell: &mut impl FnMut(News<'_>),
    ) -> Result<(), String> {
        let number = |at: usize| payload.get(at..)?.first_chunk::<4>().map(|four| u32::from_be_bytes(*four));
        let short = || format!("a frame of type {kind} with {} bytes", payload.len());
        if let Some((of, ends)) = self.continued {
            if kind != CONTINUATION || stream != of {
                return Err("a head that is not continued".to_owned());
            }
            if flags & END_HEADERS != 0 {
                self.continued = None;
                if ends {
                    self.end(stream, tell);
                }
            }
            return Ok(());
        }
        match kind {
            DATA => {
                self.consumed += payload.len() as i64;
                if self.consumed >= CONSUMED_MAX {
                    let consumed = (std::mem::take(&mut self.consumed) as u32).to_be_bytes();
                    self.frame(WINDOW_UPDATE, 0, 0, &consumed);
                }
                let data = unpadded(flags, payload).ok_or_else(short)?;
                // Of a stream that was reset, frames may be on their way.
                let Some(live) = self.live.get(&stream) else { return self.known(stream) };
                if !live.has_status {
                    return Err("a body before its head".to_owned());
                }
                tell(News::Data(stream, data));
                if flags & END_STREAM != 0 {
                    self.end(stream, tell);
                }
            }
            HEADERS => {
                let mut block = unpadded(flags, payload).ok_or_else(short)?;
                if flags & PRIORITY != 0 {
                    block = block.get(5..).ok_or_else(short)?;
                }
                let ends = flags & END_STREAM != 0;
                match self.live.get_mut(&stream) {
                    None => self.known(stream)?,
                    // Trailers.
                    Some(live) if live.has_status => {}
                    Some(live) => {
                        let status = status(block).ok_or("a head that does not begin with a status")?;
                        if status >= 200 {
                            live.has_status = true;
                            tell(News::Status(stream, status));
                        } else if ends {
                            return Err(format!("status {status} as an answer"));
                        }
                    }
                }
                if flags & END_HEADERS == 0 {
                    self.continued = Some((stream, ends));
                } else if ends {
                    self.end(stream, tell);
                }
            }
            RST_STREAM => {
                let code = number(0).ok_or_else(short)?;
                if self.live.remove(&stream).is_some() {
                    tell(News::Reset(stream, code));
                }
            }
            SETTINGS if flags & ACK == 0 => {
                for pair in payload.chunks(6) {
                    let [a, b, value @ ..] = *pair.first_chunk::<6>().ok_or_else(short)?;
                    self.setting(u16::from_be_bytes([a, b]), u32::from_be_bytes(value))?;
                }
                self.frame(SETTINGS, ACK, 0, &[]);
                self.send_bodies();
            }
            PING if flags & ACK == 0 => {
                let payload = payload.first_chunk::<8>().ok_or_else(short)?;
                self.frame(PING, ACK, 0, payload);
            }
            GOAWAY => {
                let (last, code) = number(0).zip(number(4)).ok_or_else(short)?;
                self.going = true;
                self.live.retain(|stream, _| *stream <= last);
                tell(News::GoAway(last, code));
            }
            WINDOW_UPDATE => {
                let more = i64::from(number(0).ok_or_else(short)? & 0x7fff_ffff);
                let window = match stream {
                    0 => Some(&mut self.window),
                    _ => self.live.get_mut(&stream).map(|live| &mut live.window),
                };
                if let Some(window) = window {
                    *window += more;
                    if *window > WINDOW_MAX {
                        return Err("a window beyond the largest".to_owned());
                    }
                }
                self.send_bodies();
            }
            PUSH_PROMISE => return Err("a push, which was switched off".to_owned()),
            CONTINUATION => return Err("a continuation of nothing".to_owned()),
            // Acknowledgements; types that are not known are ignored (RFC 9113 §5.5).
            _ => {}
        }
        Ok(())
    }

    fn setting(&mut self, name: u16, value: u32) -> Result<(), String> {
        match name {
            3 => self.streams_max = value,
            4 => {
                let first = i64::from(value);
                if first > WINDOW_MAX {
                    return Err("a window beyond the largest".to_owned());
                }
                let more = first - std::mem::replace(&mut self.window_first, first);
                self.live.values_mut().for_each(|live| live.window += more);
            }
            5 if (16_384..=16_777_215).contains(&value) => self.frame_max = value as usize,
            5 => return Err(format!("frames of {value} bytes at most")),
            _ => {}
        }
        Ok(())
    }

    /// An answer is whole. What is left of the request's body is not sent.
    fn end(&mut self, stream: u32, tell: &mut impl FnMut(News<'_>)) {
        if self.live.remove(&stream).is_none() {
            return;
        }
        if self.bodies.iter().any(|sending| sending.stream == stream) {
            self.bodies.retain(|sending| sending.stream != stream);
            self.frame(RST_STREAM, 0, stream, &[0; 4]);
        }
        tell(News::Whole(stream));
    }

    /// Refuses frames of streams that were never opened.
    fn known(&self, stream: u32) -> Result<(), String> {
        if stream % 2 == 1 && stream < self.next {
            Ok(())
        } else {
            Err(format!("stream {stream}, which was not opened"))
        }
    }
}

/// A payload without its padding (RFC 9113 §6.1).
fn unpadded(flags: u8, payload: &[u8]) -> Option<&[u8]> {
    if flags & PADDED == 0 {
        return Some(payload);
    }
    let (padding, rest) = payload.split_first()?;
    rest.get(..rest.len().checked_sub(usize::from(*padding))?)
}

/// The status at the beginning of a head that was written without a dynamic table.
fn status(block: &[u8]) -> Option<u16> {
    /// From 8 on in the static table.
    const STATUSES: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];
    let mut rest = block;
    loop {
        let (first, behind) = rest.split_first()?;
        match first {
            // The size of the dynamic table.
            0x20..=0x3f => rest = skip_integer(rest, 31)?.1,
            0x80.. => return STATUSES.get(usize::from(first & 0x7f).checked_sub(8)?).copied(),
            _ => {
                let name = first & if *first >= 0x40 { 0x3f } else { 0x0f };
                let value = match name {
                    8..=14 => behind,
                    0 => {
                        let (length, text) = skip_integer(behind, 127)?;
                        text.get(length..)?
                    }
                    _ => return None,
                };
                let (length, text) = skip_integer(value, 127)?;
                let text = text.get(..length)?;
                return if value.first()? & 0x80 != 0 { huffman_number(text) } else { decimal(text) };
            }
        }
    }
}

/// An integer in the low bits of the first byte, and what is behind it (RFC 7541 §5.1).
fn skip_integer(bytes: &[u8], mask: u8) -> Option<(usize, &[u8])> {
    let (first, mut rest) = bytes.split_first()?;
    let mut value = usize::from(first & mask);
    if value < usize::from(mask) {
        return Some((value, rest));
    }
    let mut shift = 0;
    loop {
        let (byte, behind) = rest.split_first()?;
        rest = behind;
        value = value.checked_add(usize::from(byte & 0x7f).checked_shl(shift)?)?;
        shift += 7;
        if byte & 0x80 == 0 {
            return Some((value, rest));
        }
        if shift > 28 {
            return None;
        }
    }
}

fn decimal(text: &[u8]) -> Option<u16> {
    (text.len() == 3).then(|| str::from_utf8(text).ok()?.parse().ok()).flatten()
}

/// Three digits in HPACK's Huffman code: `0` to `2` are 00000 to 00010, `3` to `9` are 011001 to 011111.
fn huffman_number(text: &[u8]) -> Option<u16> {
    let bits = text.first_chunk::<2>().map_or(0, |two| u32::from(u16::from_be_bytes(*two)) << 16)
        | text.get(2).map_or(0, |third| u32::from(*third) << 8);
    let (mut bits, mut number) = (bits, 0_u16);
    for _ in 0..3 {
        let five = bits >> 27;
        let (digit, used) = match five {
            0..=2 => (five, 5),
            _ => ((bits >> 26).checked_sub(0b011001)?.checked_add(3).filter(|digit| *digit <= 9)?, 6),
        };
        number = number * 10 + digit as u16;
        bits <<= used;
    }
    Some(number)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let mut machine = Machine { out: Vec::new(), ..Machine::default() };
        machine.frame(kind, flags, stream, payload);
        machine.out
    }

    /// Returns a machine with one request on stream 1; what a connection begins with is sent.
    fn asked(body: &str) -> Machine {
        let mut machine = Machine::default();
        machine.take_out();
        let text = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        assert_eq!(machine.send(&Prepared::of(&text.into(), false).unwrap()), 1);
        machine
    }

    fn told(machine: &mut Machine, bytes: &[u8]) -> Result<Vec<String>, String> {
        let mut all = Vec::new();
        machine.receive(bytes, |news| all.push(format!("{news:?}")))?;
        Ok(all)
    }

    #[test]
    fn the_status_of_a_head_is_read_in_each_of_its_forms() {
        for (block, expected) in [
            (&[0x88][..], Some(200)),
            (&[0x8d], Some(404)),
            (&[0x20, 0x88], Some(200)),
            (&[0x3f, 0xe1, 0x1f, 0x89], Some(204)),
            // A literal with the name of the static table, plain and in Huffman's code (307, RFC 7541 C.6.2).
            (b"\x48\x03302", Some(302)),
            (&[0x08, 0x83, 0x64, 0x0e, 0xff], Some(307)),
            (b"\x00\x07:status\x03418", Some(418)),
            // Of a dynamic table; something else; nothing.
            (&[0xbe], None),
            (b"\x0f\x1c\x015", None),
            (&[], None),
        ] {
            assert_eq!(status(block), expected, "{block:x?}");
        }
        // RFC 7541 C.6.1: 302.
        assert_eq!(huffman_number(&[0x64, 0x02]), Some(302));
    }

    #[test]
    fn an_answer_comes_in_any_pieces_and_between_others() {
        let bytes = [
            frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 7]),
            frame(HEADERS, 0, 1, &[0x88]),
            frame(CONTINUATION, END_HEADERS, 1, b"anything"),
            frame(DATA, PADDED, 1, b"\x02abxx"),
            frame(PING, 0, 0, b"12345678"),
            frame(HEADERS, END_HEADERS | END_STREAM, 1, b"trailers"),
        ]
        .concat();
        let expected = ["Status(1, 200)".to_owned(), format!("Data(1, {:?})", b"ab"), "Whole(1)".to_owned()];
        let mut machine = asked("");
        machine.take_out();
        assert_eq!(told(&mut machine, &bytes).unwrap(), expected);
        assert_eq!(machine.room(), 7);
        assert_eq!(
            machine.take_out(),
            [frame(SETTINGS, ACK, 0, &[]), frame(PING, ACK, 0, b"12345678")].concat()
        );
        let mut cut = asked("");
        let pieces: Vec<_> = bytes.iter().flat_map(|byte| told(&mut cut, &[*byte]).unwrap()).collect();
        assert_eq!(pieces, expected);
    }

    #[test]
    fn a_body_waits_for_its_windows() {
        let mut machine = asked(&"x".repeat(100_000));
        let sent = |machine: &mut Machine| machine.take_out().iter().filter(|byte| **byte == b'x').count();
        assert_eq!(sent(&mut machine), 65_535);
        told(&mut machine, &frame(WINDOW_UPDATE, 0, 1, &100_000_u32.to_be_bytes())).unwrap();
        assert_eq!(sent(&mut machine), 0, "the connection's is closed");
        told(&mut machine, &frame(WINDOW_UPDATE, 0, 0, &100_u32.to_be_bytes())).unwrap();
        assert_eq!(sent(&mut machine), 100);
        // The server has answered and needs no more.
        told(&mut machine, &frame(HEADERS, END_HEADERS | END_STREAM, 1, &[0x88])).unwrap();
        assert_eq!(machine.take_out(), frame(RST_STREAM, 0, 1, &[0; 4]));
        assert!(machine.bodies.is_empty());
    }

    #[test]
    fn what_a_server_does_wrong_is_told() {
        for (bytes, expected) in [
            (frame(DATA, 0, 1, b"x"), "a body before its head"),
            (frame(HEADERS, END_HEADERS, 3, &[0x88]), "stream 3"),
            (frame(HEADERS, END_HEADERS, 1, &[0xbe]), "begin with a status"),
            (frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x48\x03103"), "status 103"),
            (frame(CONTINUATION, 0, 1, b""), "a continuation of nothing"),
            (frame(WINDOW_UPDATE, 0, 0, &i32::MAX.to_be_bytes()), "beyond the largest"),
            (frame(GOAWAY, 0, 0, b"123"), "type 7 with 3 bytes"),
            (
                [frame(SETTINGS, 0, 0, &[]), vec![0, 0x40, 1, 0, 0, 0, 0, 0, 1]].concat(),
                "more than the 16384 that are permitted",
            ),
            (b"HTTP/1.1 400 Bad Request\r\n".to_vec(), "does not speak HTTP/2"),
            (b"<!DOCTYPE HTML>".to_vec(), "its first bytes are \"<!DOCTYPE\""),
            (vec![21, 3, 3, 0, 2, 2, 10], "speaks TLS"),
        ] {
            let why = told(&mut asked("x"), &bytes).unwrap_err();
            assert!(why.contains(expected), "{expected}: {why}");
        }
    }

    #[test]
    fn a_server_that_goes_takes_no_more_and_what_it_left_out_is_told() {
        let mut machine = asked("");
        let goaway = [0, 0, 0, 1, 0, 0, 0, 0];
        assert_eq!(told(&mut machine, &frame(GOAWAY, 0, 0, &goaway)).unwrap(), ["GoAway(1, 0)"]);
        assert_eq!((machine.room(), machine.is_going()), (0, true));
        let whole = frame(HEADERS, END_HEADERS | END_STREAM, 1, &[0x88]);
        assert_eq!(told(&mut machine, &whole).unwrap(), ["Status(1, 200)", "Whole(1)"]);
        let mut machine = asked("");
        assert_eq!(told(&mut machine, &frame(RST_STREAM, 0, 1, &[0, 0, 0, 7])).unwrap(), ["Reset(1, 7)"]);
        assert_eq!(machine.room(), 100);
    }
}
