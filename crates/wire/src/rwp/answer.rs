//! The order of a worker's frames on one stream: RESPONSE, then BODY or SENDFILE, then optionally TRAILERS.
//! On the stream of a WebSocket: WS_ACCEPT, then WS_DATA, then WS_CLOSE; or an answer instead of WS_ACCEPT,
//! which refuses the session.
//!
//! Everything that a worker sends is checked here before it becomes part of an HTTP message: counts, names,
//! values without CR, LF and NUL, and the worker's credit.

use super::{BINARY, END, FILE_FOLLOWS, Frame, Kind, TEXT, split_u32};
use crate::ws::CloseCode;

/// State of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Head,
    Body,
    /// RESPONSE announced a file.
    File,
    /// A WebSocket was offered to the worker.
    Offered,
    /// The worker accepted it.
    Socket,
    Over,
}

/// Credit for each message of a WebSocket in addition to its bytes, so that empty messages are bounded too.
pub const MESSAGE_COST: u32 = 16;

/// Returns the credit that a message costs.
pub fn message_cost(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX).saturating_add(MESSAGE_COST)
}

/// Checks and decodes the frames of one stream.
#[derive(Clone, Debug)]
pub struct Answering {
    state: State,
    /// Negative after a message that exceeded the remaining credit.
    credit: i64,
}

/// The meaning of a frame.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer<'b> {
    /// An informational answer (1xx except 101): more follows.
    Informational(u16, HeadLines<'b>),
    /// The head, and the received part of the body.
    Head {
        /// 200 to 999.
        status: u16,
        /// Its header lines.
        lines: HeadLines<'b>,
        /// The first bytes of the body.
        body: &'b [u8],
        /// Whether it is the whole answer.
        complete: bool,
        /// Whether the next frame names a file with the body.
        file: bool,
    },
    /// Bytes of the body, and whether they are the last.
    Body(&'b [u8], bool),
    /// The rest of the body is in this file: offset, length (`u64::MAX`: to its end) and path.
    File(u64, u64, &'b [u8]),
    /// Trailers, which end the body.
    Trailers(HeadLines<'b>),
    /// The worker abandons the request, with its reason. `unhandled`: it has not begun, so another worker may
    /// get the request.
    Reset(&'b [u8], bool),
    /// The worker may be sent this many more bytes.
    Credit(u32),
    /// The worker accepts the WebSocket, with these lines and this subprotocol (or an empty one).
    Accepted(HeadLines<'b>, &'b str),
    /// A text for the client.
    Text(&'b str),
    /// Bytes for the client.
    Binary(&'b [u8]),
    /// The worker closes the WebSocket with this code and reason. Before it has accepted, that refuses it.
    Closed(CloseCode, &'b str),
    /// A frame kind of a later version.
    Unknown,
}

/// Maximum bytes of a name or a value in the text of a fault.
const SHOWN_BYTES: usize = 64;

/// Why a frame is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A frame that is not allowed in this state. The sides disagree: the link is broken.
    Order,
    /// A payload that does not match its kind. The link is broken.
    Form,
    /// More body than the credit allowed. The link is broken.
    Credit,
    /// A status or header line that HTTP forbids, or a text that is not UTF-8, with the reason. Only this
    /// request fails.
    Forbidden(Box<str>),
}

impl Fault {
    /// Returns whether only this request fails, and the link stays usable.
    pub fn is_of_the_request(&self) -> bool {
        matches!(self, Fault::Forbidden(_))
    }

    #[cold]
    fn forbidden(what: impl Into<String>) -> Fault {
        Fault::Forbidden(what.into().into_boxed_str())
    }

    #[cold]
    fn of_status(status: u16, kind: &str) -> Fault {
        Fault::forbidden(format!("the status {status}, which no {kind} may have"))
    }

    /// Returns the first of `lines` that HTTP forbids, if there is one.
    #[cold]
    fn of_lines(lines: HeadLines<'_>) -> Option<Fault> {
        let (name, value, why) = lines.iter().find_map(|(name, value)| {
            let why = match name.iter().find(|byte| !is_token(**byte)) {
                _ if name.is_empty() => "it has no name".to_owned(),
                Some(byte) => format!("its name has \"{}\"", byte.escape_ascii()),
                None if value.iter().any(|byte| is_break(*byte)) => "its value has a line break".to_owned(),
                None => return None,
            };
            Some((name, value, why))
        })?;
        let line = format!("\"{}: {}\"", shown(name), shown(value));
        Some(Fault::forbidden(format!("a header line that HTTP forbids, {line}: {why}")))
    }
}

/// Returns the beginning of a name or a value, without characters that would break a log line.
fn shown(bytes: &[u8]) -> String {
    match bytes.split_at_checked(SHOWN_BYTES) {
        Some((begin, rest)) if !rest.is_empty() => format!("{}…", begin.escape_ascii()),
        _ => bytes.escape_ascii().to_string(),
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Fault::Order => "a frame out of order",
            Fault::Form => "a frame that is not what its kind says",
            Fault::Credit => "more body than there was credit for",
            Fault::Forbidden(what) => what,
        })
    }
}

impl std::error::Error for Fault {}

impl Answering {
    /// Makes an answer that has not begun. The worker may send `window` bytes of its body.
    pub fn new(window: u32) -> Answering {
        Answering { state: State::Head, credit: i64::from(window) }
    }

    /// Makes the state of a WebSocket that the worker has not accepted yet.
    pub fn socket(window: u32) -> Answering {
        Answering { state: State::Offered, credit: i64::from(window) }
    }

    /// Returns whether the stream has ended.
    pub fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// Returns whether no head was received.
    pub fn is_unanswered(&self) -> bool {
        matches!(self.state, State::Head | State::Offered)
    }

    /// Records credit for this many more bytes.
    pub fn grant(&mut self, bytes: u32) {
        self.credit = self.credit.saturating_add(i64::from(bytes));
    }

    /// Checks a frame of this stream.
    ///
    /// # Errors
    /// The frame violates the protocol, or HTTP.
    pub fn accept<'b>(&mut self, frame: &Frame<'b>) -> Result<Answer<'b>, Fault> {
        if self.state == State::Over {
            return Err(Fault::Order);
        }
        let ends = frame.flags & END != 0;
        match frame.kind {
            Kind::INFORMATIONAL if self.state == State::Head => {
                let (lines, rest) = HeadLines::split(frame.payload)?;
                if !(100..200).contains(&frame.aux) || frame.aux == 101 {
                    return Err(Fault::of_status(frame.aux, "informational answer"));
                }
                if !rest.is_empty() {
                    return Err(Fault::forbidden(format!("a body with the status {}", frame.aux)));
                }
                Ok(Answer::Informational(frame.aux, lines?))
            }
            Kind::RESPONSE if self.is_unanswered() => {
                let file = frame.flags & FILE_FOLLOWS != 0;
                let (lines, body) = HeadLines::split(frame.payload)?;
                if file && (ends || !body.is_empty()) {
                    return Err(Fault::Form);
                }
                // A complete answer in one frame needs no credit: the frame's limit bounds its length.
                if !ends {
                    self.spend(body)?;
                }
                self.state = if ends {
                    State::Over
                } else if file {
                    State::File
                } else {
                    State::Body
                };
                // Checked last: the state follows the frame, even if its contents fail the request.
                if !(200..=999).contains(&frame.aux) {
                    return Err(Fault::of_status(frame.aux, "answer"));
                }
                Ok(Answer::Head { status: frame.aux, lines: lines?, body, complete: ends, file })
            }
            Kind::BODY if self.state == State::Body => {
                self.spend(frame.payload)?;
                if ends {
                    self.state = State::Over;
                }
                Ok(Answer::Body(frame.payload, ends))
            }
            Kind::SENDFILE if self.state == State::File && ends => {
                let (numbers, path) = frame.payload.split_first_chunk::<16>().ok_or(Fault::Form)?;
                let (offset, length) = numbers.split_at(8);
                let number = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).map_err(|_| Fault::Form);
                if path.is_empty() || path.contains(&0) {
                    return Err(Fault::Form);
                }
                self.state = State::Over;
                Ok(Answer::File(number(offset)?, number(length)?, path))
            }
            Kind::TRAILERS if self.state == State::Body && ends => {
                self.state = State::Over;
                let (lines, rest) = HeadLines::split(frame.payload)?;
                if rest.is_empty() { Ok(Answer::Trailers(lines?)) } else { Err(Fault::Form) }
            }
            Kind::WS_ACCEPT if self.state == State::Offered => {
                let (lines, protocol) = HeadLines::split(frame.payload)?;
                self.state = State::Socket;
                if !protocol.iter().all(|byte| is_token(*byte)) {
                    return Err(Fault::forbidden(format!("the subprotocol \"{}\"", shown(protocol))));
                }
                // The bytes of a token are ASCII.
                Ok(Answer::Accepted(lines?, str::from_utf8(protocol).unwrap_or_default()))
            }
            Kind::WS_DATA if self.state == State::Socket => {
                if self.credit <= 0 {
                    return Err(Fault::Credit);
                }
                self.credit -= i64::from(message_cost(frame.payload.len()));
                match frame.aux {
                    TEXT => match str::from_utf8(frame.payload) {
                        Ok(text) => Ok(Answer::Text(text)),
                        Err(_) => Err(Fault::forbidden("a text that is not UTF-8")),
                    },
                    BINARY => Ok(Answer::Binary(frame.payload)),
                    _ => Err(Fault::Form),
                }
            }
            Kind::WS_CLOSE if matches!(self.state, State::Offered | State::Socket) && ends => {
                self.state = State::Over;
                let Ok(reason) = str::from_utf8(frame.payload) else {
                    return Err(Fault::forbidden("the reason of a close that is not UTF-8"));
                };
                let code = CloseCode::new(frame.aux);
                if !code.may_be_sent() {
                    return Err(Fault::forbidden(format!("the close code {code}, which may not be sent")));
                }
                Ok(Answer::Closed(code, reason))
            }
            Kind::RESET => {
                self.state = State::Over;
                Ok(Answer::Reset(frame.payload, frame.aux == 1))
            }
            Kind::CREDIT => match split_u32(frame.payload) {
                Some((bytes, [])) => Ok(Answer::Credit(bytes)),
                _ => Err(Fault::Form),
            },
            Kind::INFORMATIONAL
            | Kind::RESPONSE
            | Kind::BODY
            | Kind::SENDFILE
            | Kind::TRAILERS
            | Kind::WS_ACCEPT
            | Kind::WS_DATA
            | Kind::WS_CLOSE => Err(Fault::Order),
            _ => Ok(Answer::Unknown),
        }
    }

    fn spend(&mut self, body: &[u8]) -> Result<(), Fault> {
        let left = self.credit - body.len() as i64;
        if left < 0 {
            return Err(Fault::Credit);
        }
        self.credit = left;
        Ok(())
    }
}

/// Checked header lines: names are tokens, values have no CR, LF or NUL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeadLines<'b>(&'b [u8]);

impl<'b> HeadLines<'b> {
    /// Reads `u32` length and `u16` count, then this many pairs, all strings joined by NUL; returns the rest
    /// too. Lines that HTTP forbids are a separate error, because the end of the head is known nevertheless.
    fn split(payload: &'b [u8]) -> Result<(Result<HeadLines<'b>, Fault>, &'b [u8]), Fault> {
        let (length, rest) = split_u32(payload).ok_or(Fault::Form)?;
        let (count, rest) = rest.split_first_chunk::<2>().ok_or(Fault::Form)?;
        let count = usize::from(u16::from_le_bytes(*count));
        let (lines, rest) = rest.split_at_checked(length as usize).ok_or(Fault::Form)?;
        if count == 0 && !lines.is_empty() {
            return Err(Fault::Form);
        }
        Ok((HeadLines(lines).check(count), rest))
    }

    /// Checks `count` lines.
    fn check(self, count: usize) -> Result<HeadLines<'b>, Fault> {
        // A NUL within a string makes the count wrong, so no string can become two lines.
        let nuls = self.0.iter().filter(|byte| **byte == 0).count();
        if nuls != (2 * count).saturating_sub(1) {
            // The affected line is unknown: the NUL has shifted the strings after it.
            let what =
                "header lines with a NUL in a name or a value, or another number of them than was said";
            return Err(Fault::forbidden(what));
        }
        let valid = |(name, value): (&[u8], &[u8])| {
            !name.is_empty()
                && name.iter().all(|byte| is_token(*byte))
                && !value.iter().any(|byte| is_break(*byte))
        };
        if self.iter().all(valid) {
            return Ok(self);
        }
        Fault::of_lines(self).map_or(Ok(self), Err)
    }

    /// Returns the names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&'b [u8], &'b [u8])> + use<'b> {
        let mut parts = self.0.split(|byte| *byte == 0);
        let some = !self.0.is_empty();
        std::iter::from_fn(move || if some { Some((parts.next()?, parts.next()?)) } else { None })
    }

    /// Writes lines in a worker's format: for workers in Rust, and for tests.
    pub fn put<'a>(out: &mut Vec<u8>, lines: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) {
        let at = out.len();
        out.extend_from_slice(&[0; 6]);
        let mut count = 0_u16;
        for (name, value) in lines {
            if count > 0 {
                out.push(0);
            }
            out.extend_from_slice(name);
            out.push(0);
            out.extend_from_slice(value);
            count += 1;
        }
        let length = (out.len() - at - 6) as u32;
        if let Some(place) = out.get_mut(at..at + 6) {
            let (first, second) = place.split_at_mut(4);
            first.copy_from_slice(&length.to_le_bytes());
            second.copy_from_slice(&count.to_le_bytes());
        }
    }
}

fn is_break(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}

/// Returns whether the byte may be in a token (RFC 9110 §5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::{next, put};
    use super::*;

    fn head(lines: &[(&[u8], &[u8])], body: &[u8]) -> Vec<u8> {
        let mut payload = Vec::new();
        HeadLines::put(&mut payload, lines.iter().copied());
        payload.extend_from_slice(body);
        payload
    }

    fn frame(kind: Kind, flags: u8, aux: u16, payload: &[u8]) -> Frame<'_> {
        Frame { kind, flags, aux, stream: 1, payload }
    }

    fn is_forbidden(got: &Result<Answer<'_>, Fault>) -> bool {
        matches!(got, Err(Fault::Forbidden(_)))
    }

    #[test]
    fn a_header_line_that_is_forbidden_is_named_with_the_reason() {
        let long = [b'v'; 3000];
        for (line, told) in [
            ((&b"X Bad"[..], &b"1"[..]), "\"X Bad: 1\": its name has \" \""),
            ((b"X-\xe9", b"1"), "\"X-\\xe9: 1\": its name has \"\\xe9\""),
            ((b"", b"1"), "\": 1\": it has no name"),
            (
                (b"X-A", b"1\r\nSet-Cookie: \x1b[1m"),
                "\"X-A: 1\\r\\nSet-Cookie: \\x1b[1m\": its value has a line break",
            ),
            ((b"X A", &long), &format!("\"X A: {}…\": its name has \" \"", "v".repeat(64))),
        ] {
            let payload = head(&[(b"X-Good", b"1"), line], b"");
            let got = Answering::new(0).accept(&frame(Kind::RESPONSE, END, 200, &payload)).unwrap_err();
            assert_eq!(got.to_string(), format!("a header line that HTTP forbids, {told}"));
        }
    }

    #[test]
    fn a_whole_answer_is_one_frame() {
        let payload = head(&[(b"a", b"1"), (b"b", b"")], b"body");
        let mut answering = Answering::new(0);
        let got = answering.accept(&frame(Kind::RESPONSE, END, 200, &payload)).unwrap();
        let Answer::Head { status: 200, lines, body: b"body", complete: true, file: false } = got else {
            panic!("{got:?}")
        };
        assert_eq!(lines.iter().collect::<Vec<_>>(), [(&b"a"[..], &b"1"[..]), (b"b", b"")]);
        assert!(answering.is_over());
        assert_eq!(answering.accept(&frame(Kind::BODY, END, 0, b"")), Err(Fault::Order));
    }

    #[test]
    fn a_body_may_not_exceed_its_credit() {
        let mut answering = Answering::new(4);
        let payload = head(&[], b"ab");
        answering.accept(&frame(Kind::RESPONSE, 0, 200, &payload)).unwrap();
        answering.accept(&frame(Kind::BODY, 0, 0, b"cd")).unwrap();
        assert_eq!(answering.clone().accept(&frame(Kind::BODY, 0, 0, b"e")), Err(Fault::Credit));
        answering.grant(1);
        assert_eq!(answering.accept(&frame(Kind::BODY, END, 0, b"e")), Ok(Answer::Body(b"e", true)));
    }

    #[test]
    fn no_line_can_be_smuggled_into_a_head() {
        for lines in [
            &[(&b"a"[..], &b"1\r\nSet-Cookie: x"[..])][..],
            &[(b"a", b"1\nb: 2")],
            &[(b"a", b"1\0b\x002")],
            &[(b"a b", b"1")],
            &[(b"", b"1")],
            &[(b"a:", b"1")],
        ] {
            let payload = head(lines, b"");
            let mut answering = Answering::new(0);
            let got = answering.accept(&frame(Kind::RESPONSE, END, 200, &payload));
            assert!(is_forbidden(&got), "{lines:?}: {got:?}");
        }
        let payload = head(&[], b"");
        for status in [0, 99, 100, 101, 199, 1000] {
            let got = Answering::new(0).accept(&frame(Kind::RESPONSE, END, status, &payload));
            assert!(is_forbidden(&got), "{status}: {got:?}");
        }
    }

    #[test]
    fn behind_a_head_that_http_forbids_the_answer_goes_on_and_ends() {
        let bad = head(&[(b"a b", b"1")], b"");
        let mut answering = Answering::new(9);
        assert!(is_forbidden(&answering.accept(&frame(Kind::RESPONSE, END, 200, &bad))));
        assert!(answering.is_over());
        let mut answering = Answering::new(9);
        assert!(is_forbidden(&answering.accept(&frame(Kind::RESPONSE, 0, 200, &bad))));
        assert_eq!(answering.accept(&frame(Kind::BODY, END, 0, b"body")), Ok(Answer::Body(b"body", true)));
        assert!(answering.is_over());
        let mut answering = Answering::socket(99);
        assert!(is_forbidden(&answering.accept(&frame(Kind::WS_ACCEPT, 0, 0, &bad))));
        assert_eq!(answering.accept(&frame(Kind::WS_DATA, 0, TEXT, b"a")), Ok(Answer::Text("a")));
    }

    #[test]
    fn a_file_comes_behind_a_head_that_announced_it() {
        let payload = head(&[], b"");
        let mut name = vec![0; 8];
        name.extend_from_slice(&u64::MAX.to_le_bytes());
        name.extend_from_slice(b"/tmp/x");
        let mut answering = Answering::new(0);
        assert_eq!(answering.accept(&frame(Kind::SENDFILE, END, 0, &name)), Err(Fault::Order));
        answering.accept(&frame(Kind::RESPONSE, FILE_FOLLOWS, 200, &payload)).unwrap();
        assert_eq!(answering.clone().accept(&frame(Kind::BODY, END, 0, b"x")), Err(Fault::Order));
        let got = answering.accept(&frame(Kind::SENDFILE, END, 0, &name));
        assert_eq!(got, Ok(Answer::File(0, u64::MAX, b"/tmp/x")));
    }

    #[test]
    fn a_socket_is_accepted_and_then_has_messages_within_its_credit() {
        let accept = head(&[(b"x-a", b"1")], b"chat.v2");
        let mut answering = Answering::socket(40);
        assert_eq!(answering.accept(&frame(Kind::WS_DATA, 0, TEXT, b"x")), Err(Fault::Order));
        let got = answering.accept(&frame(Kind::WS_ACCEPT, 0, 0, &accept)).unwrap();
        let Answer::Accepted(lines, "chat.v2") = got else { panic!("{got:?}") };
        assert_eq!(lines.iter().count(), 1);
        assert_eq!(answering.accept(&frame(Kind::WS_ACCEPT, 0, 0, &accept)), Err(Fault::Order));
        assert_eq!(answering.accept(&frame(Kind::WS_DATA, 0, TEXT, b"a")), Ok(Answer::Text("a")));
        // A message may be longer than what is left; the next one may not begin.
        let long = vec![b'x'; 100];
        assert_eq!(answering.accept(&frame(Kind::WS_DATA, 0, BINARY, &long)), Ok(Answer::Binary(&long)));
        assert_eq!(answering.clone().accept(&frame(Kind::WS_DATA, 0, BINARY, b"")), Err(Fault::Credit));
        answering.grant(message_cost(1) + message_cost(100));
        assert_eq!(answering.accept(&frame(Kind::WS_DATA, 0, BINARY, b"")), Ok(Answer::Binary(b"")));
        assert!(is_forbidden(&answering.clone().accept(&frame(Kind::WS_DATA, 0, TEXT, b"\xff"))));
        for code in [0, 999, 1004, 1005, 1006, 1015, 2999, 5000] {
            let got = answering.clone().accept(&frame(Kind::WS_CLOSE, END, code, b""));
            assert!(is_forbidden(&got), "{code}: {got:?}");
        }
        assert_eq!(answering.clone().accept(&frame(Kind::WS_CLOSE, 0, 1000, b"")), Err(Fault::Order));
        let got = answering.accept(&frame(Kind::WS_CLOSE, END, 4000, b"why"));
        assert_eq!(got, Ok(Answer::Closed(CloseCode::new(4000), "why")));
        assert!(answering.is_over());
    }

    #[test]
    fn a_socket_is_refused_by_an_answer_or_a_close() {
        let payload = head(&[], b"no");
        let mut answering = Answering::socket(0);
        let got = answering.accept(&frame(Kind::RESPONSE, END, 401, &payload));
        assert!(matches!(got, Ok(Answer::Head { status: 401, complete: true, .. })), "{got:?}");
        let mut answering = Answering::socket(0);
        assert!(answering.accept(&frame(Kind::WS_CLOSE, END, 1000, b"")).is_ok());
        // An ordinary request is not a WebSocket.
        for kind in [Kind::WS_ACCEPT, Kind::WS_DATA, Kind::WS_CLOSE] {
            assert_eq!(Answering::new(9).accept(&frame(kind, END, 1000, &payload)), Err(Fault::Order));
        }
        let smuggled = head(&[], b"a\r\nx: 1");
        let got = Answering::socket(0).accept(&frame(Kind::WS_ACCEPT, 0, 0, &smuggled));
        assert_eq!(got, Err(Fault::Forbidden("the subprotocol \"a\\r\\nx: 1\"".into())));
    }

    #[test]
    fn any_bytes_are_refused_or_understood() {
        let mut seed = 7_u64;
        for _ in 0..20_000 {
            let mut bytes = Vec::new();
            let kinds = [16, 17, 18, 33, 20, 20, 20, 21, 22, 23, 34, 35];
            let mut random = |below: u64| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (seed >> 33) % below
            };
            for _ in 0..4 {
                let length = random(24);
                let payload: Vec<u8> =
                    (0..length).map(|_| [0, 0, 1, 2, b'a', b'\n'][random(6) as usize]).collect();
                let kind = Kind(kinds[random(12) as usize]);
                put(&mut bytes, kind, random(4) as u8, random(999) as u16, 1, &payload);
            }
            let mut answering = if seed & 1 == 0 { Answering::new(16) } else { Answering::socket(16) };
            let mut at = 0;
            while let Some(frame) = next(&bytes, &mut at).unwrap() {
                if let Ok(
                    Answer::Head { lines, .. }
                    | Answer::Trailers(lines)
                    | Answer::Informational(_, lines)
                    | Answer::Accepted(lines, _),
                ) = answering.accept(&frame)
                {
                    assert!(lines.iter().all(|(name, value)| !name.is_empty() && !value.contains(&b'\n')));
                }
            }
        }
    }
}
