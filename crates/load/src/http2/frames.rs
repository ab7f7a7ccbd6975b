//! HTTP/2 as a client that sends prepared requests needs it: bytes in, news out. No I/O, no clock.
//!
//! A request's head is encoded once, as literals: its frames are copied for each stream. The server is told
//! to use no dynamic table (RFC 7541 §4.2), so each head of an answer can be read by itself, and of it the
//! status, which comes first, and the length are read. Windows are opened as far as the protocol permits: a
//! load generator does not slow a server down. Start at [`Machine`].

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
    /// HEAD: the length of its answer is that of another.
    is_head: bool,
}

impl Prepared {
    /// Makes the request of HTTP/1.1 in `bytes` one of HTTP/2, with its body.
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
        Some(Prepared { block, body, is_head: method == b"HEAD" })
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
    /// The answer has no body, whatever length it tells.
    is_head: bool,
    /// Bytes of the answer's body, as its head says and as have come.
    length: Option<u64>,
    came: u64,
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

    /// Returns whether the connection takes no more streams.
    pub(crate) fn is_going(&self) -> bool {
        self.going || self.next > (1 << 31) - 1
    }

    /// Returns whether a frame has come.
    pub(crate) fn has_heard(&self) -> bool {
        self.has_heard
    }

    /// Returns whether a request was sent on this connection.
    pub(crate) fn has_sent(&self) -> bool {
        self.next > 1
    }

    /// Sends a request; its stream. There has to be room.
    pub(crate) fn send(&mut self, request: &Prepared) -> u32 {
        let stream = self.next;
        self.next += 2;
        let (window, is_head) = (self.window_first, request.is_head);
        self.live.insert(stream, Live { window, is_head, ..Live::default() });
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

    /// Returns what is to be sent.
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
                    self.end(stream, tell)?;
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
                let Some(live) = self.live.get_mut(&stream) else { return self.known(stream) };
                if !live.has_status {
                    return Err("a body before its head".to_owned());
                }
                live.came += data.len() as u64;
                tell(News::Data(stream, data));
                if flags & END_STREAM != 0 {
                    self.end(stream, tell)?;
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
                        let (status, behind) =
                            status(block).ok_or("a head that does not begin with a status")?;
                        if status >= 200 {
                            live.has_status = true;
                            if !live.is_head && status != 304 {
                                live.length = length(behind);
                            }
                            tell(News::Status(stream, status));
                        } else if ends {
                            return Err(format!("status {status} as an answer"));
                        }
                    }
                }
                if flags & END_HEADERS == 0 {
                    self.continued = Some((stream, ends));
                } else if ends {
                    self.end(stream, tell)?;
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

    /// Ends an answer that is whole. What is left of the request's body is not sent.
    fn end(&mut self, stream: u32, tell: &mut impl FnMut(News<'_>)) -> Result<(), String> {
        let Some(live) = self.live.remove(&stream) else { return Ok(()) };
        if let Some(length) = live.length.filter(|length| *length != live.came) {
            return Err(format!("a body of {} bytes, of which the head says {length}", live.came));
        }
        if self.bodies.iter().any(|sending| sending.stream == stream) {
            self.bodies.retain(|sending| sending.stream != stream);
            self.frame(RST_STREAM, 0, stream, &[0; 4]);
        }
        tell(News::Whole(stream));
        Ok(())
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

/// Returns a payload without its padding (RFC 9113 §6.1).
fn unpadded(flags: u8, payload: &[u8]) -> Option<&[u8]> {
    if flags & PADDED == 0 {
        return Some(payload);
    }
    let (padding, rest) = payload.split_first()?;
    rest.get(..rest.len().checked_sub(usize::from(*padding))?)
}

/// A line of a head that was written without a dynamic table.
#[derive(Clone, Copy)]
enum Line<'a> {
    /// Of the static table.
    Indexed(usize),
    /// A name of the static table or of its own, and its value; each with whether it is in Huffman's code.
    Literal(Name<'a>, (bool, &'a [u8])),
}

#[derive(Clone, Copy)]
enum Name<'a> {
    Indexed(usize),
    Written(bool, &'a [u8]),
}

impl Name<'_> {
    fn is(self, indices: std::ops::RangeInclusive<usize>, plain: &[u8], huffman: &[u8]) -> bool {
        match self {
            Name::Indexed(index) => indices.contains(&index),
            Name::Written(false, text) => text == plain,
            Name::Written(true, text) => text == huffman,
        }
    }
}

/// Returns the first line of a block, and what is behind it; `None` at the end, or if it cannot be read.
fn line(mut block: &[u8]) -> Option<(Line<'_>, &[u8])> {
    loop {
        let first = *block.first()?;
        let mask = match first {
            0x80.. => {
                let (index, behind) = skip_integer(block, 127)?;
                return Some((Line::Indexed(index), behind));
            }
            0x40.. => 63,
            // The size of the dynamic table.
            0x20.. => {
                block = skip_integer(block, 31)?.1;
                continue;
            }
            _ => 15,
        };
        let (index, mut behind) = skip_integer(block, mask)?;
        let name = if index == 0 {
            let (huffman, text, rest) = text(behind)?;
            behind = rest;
            Name::Written(huffman, text)
        } else {
            Name::Indexed(index)
        };
        let (huffman, value, rest) = text(behind)?;
        return Some((Line::Literal(name, (huffman, value)), rest));
    }
}

/// Returns a string, and whether it is in Huffman's code; and what is behind it.
fn text(bytes: &[u8]) -> Option<(bool, &[u8], &[u8])> {
    let huffman = bytes.first()? & 0x80 != 0;
    let (length, behind) = skip_integer(bytes, 127)?;
    let (text, rest) = behind.split_at_checked(length)?;
    Some((huffman, text, rest))
}

/// Returns the status at the beginning of a head, and what is behind it.
fn status(block: &[u8]) -> Option<(u16, &[u8])> {
    /// From 8 on in the static table.
    const STATUSES: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];
    const HUFFMAN: &[u8] = b"\xb8\x84\x8d\x36\xa3";
    let (line, behind) = line(block)?;
    let status = match line {
        Line::Indexed(index) => *STATUSES.get(index.checked_sub(8)?)?,
        Line::Literal(name, value) if name.is(8..=14, b":status", HUFFMAN) => {
            u16::try_from(number(value)?).ok().filter(|status| (100..1000).contains(status))?
        }
        Line::Literal(..) => return None,
    };
    Some((status, behind))
}

/// Returns the length in the rest of a head, as far as that can be read.
fn length(mut block: &[u8]) -> Option<u64> {
    const HUFFMAN: &[u8] = b"\x21\xea\x49\x6a\x4a\xd4\x16\xa9\x93\x3f";
    loop {
        let (line, behind) = line(block)?;
        block = behind;
        if let Line::Literal(name, value) = line
            && name.is(28..=28, b"content-length", HUFFMAN)
        {
            return number(value);
        }
    }
}

/// Returns an integer in the low bits of the first byte, and what is behind it (RFC 7541 §5.1).
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

/// Returns a number in plain digits, or in Huffman's code: there `0` to `2` are 00000 to 00010, `3` to `9`
/// are 011001 to 011111, and what is left of the last byte are ones.
fn number((huffman, text): (bool, &[u8])) -> Option<u64> {
    if !huffman {
        let plain = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
        return plain.then(|| str::from_utf8(text).ok()?.parse().ok()).flatten();
    }
    let mut rest = text.iter();
    let (mut bits, mut have, mut number, mut digits) = (0_u32, 0_u32, 0_u64, 0);
    loop {
        while have < 8 {
            let Some(byte) = rest.next() else { break };
            (bits, have) = (bits << 8 | u32::from(*byte), have + 8);
        }
        let five = (bits >> have.saturating_sub(5)) & 31;
        if have < 8 && bits == (1 << have) - 1 {
            return (digits > 0).then_some(number);
        }
        let (digit, used) = match five {
            _ if have < 5 => return None,
            0..=2 => (five, 5),
            12..=15 if have >= 6 => ((bits >> (have - 6) & 63).checked_sub(0b011001)? + 3, 6),
            _ => return None,
        };
        number = number.checked_mul(10)?.checked_add(u64::from(digit))?;
        digits += 1;
        have -= used;
        bits &= (1 << have) - 1;
    }
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
            assert_eq!(status(block).map(|(status, _)| status), expected, "{block:x?}");
        }
        // RFC 7541 C.6.1: 302.
        assert_eq!(number((true, &[0x64, 0x02])), Some(302));
    }

    #[test]
    fn the_length_of_an_answer_is_read_in_each_of_its_forms() {
        for (block, expected) in [
            (&b"\x5c\x0210"[..], Some(10)),
            (b"\x0f\x0d\x0210", Some(10)),
            (b"\x00\x0econtent-length\x010", Some(0)),
            (
                b"\x00\x8a\x21\xea\x49\x6a\x4a\xd4\x16\xa9\x93\x3f\x88\x08\x99\x69\xb7\x1d\x79\xf0\x7f",
                Some(1_234_567_890),
            ),
            // Behind others: of the static table, with names of it, and of their own.
            (b"\x90\x61\x03now\x40\x01x\x81\xff\x5c\x015", Some(5)),
            (b"\x5c\x02-1", None),
            (b"\x5c\x00", None),
            (b"\x5c\x82\xff\xff", None),
            (b"\x5c\x05123", None),
            (b"\x61\x03now", None),
        ] {
            assert_eq!(length(block), expected, "{block:x?}");
        }
        for of in 0..2000_u64 {
            let digits = of.to_string();
            assert_eq!(number((false, digits.as_bytes())), Some(of));
            let bits: String = digits
                .bytes()
                .map(|digit| match digit - b'0' {
                    low @ 0..=2 => format!("{low:05b}"),
                    high => format!("{:06b}", 0b011001 + high - 3),
                })
                .collect();
            let bits = format!("{bits:1<width$}", width = bits.len().next_multiple_of(8));
            let bytes: Vec<_> = bits
                .as_bytes()
                .chunks(8)
                .map(|byte| u8::from_str_radix(str::from_utf8(byte).unwrap(), 2).unwrap())
                .collect();
            assert_eq!(number((true, &bytes)), Some(of), "{bytes:x?}");
        }
    }

    #[test]
    fn a_body_of_another_length_than_its_head_says_is_told() {
        let head = |flags| frame(HEADERS, END_HEADERS | flags, 1, b"\x88\x5c\x0210");
        let data = |bytes: &[u8]| frame(DATA, END_STREAM, 1, bytes);
        for wrong in [[head(0), data(b"half")].concat(), [head(0), data(&[0; 11])].concat(), head(END_STREAM)]
        {
            assert!(told(&mut asked(""), &wrong).unwrap_err().contains("of which the head says 10"));
        }
        let right = [head(0), frame(DATA, PADDED, 1, b"\x0212345xx"), data(b"67890")].concat();
        assert_eq!(told(&mut asked(""), &right).unwrap().last().unwrap(), "Whole(1)");
        for (method, head) in [("HEAD", head(END_STREAM)), ("GET", frame(HEADERS, 5, 1, b"\x8b\x5c\x0210"))] {
            let mut machine = Machine::default();
            machine.send(
                &Prepared::of(&format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n").into(), false).unwrap(),
            );
            assert_eq!(told(&mut machine, &head).unwrap().last().unwrap(), "Whole(1)");
        }
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
