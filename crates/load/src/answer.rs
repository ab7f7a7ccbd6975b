//! Answers: bytes in, whole answers or faults out. No I/O, no clock.
//!
//! An answer that is byte for byte the last good one to the same message means the same, so it is compared,
//! not read: both begin in the same state, and the reading is a function of state and bytes. That is nearly
//! every answer of a benchmark. The others are read by `wire`, and only one that is not whole yet costs its
//! connection memory.
//!
//! Start at [`Reader::next`].

use crate::foreign::instead_of_http1;
use crate::plan::{Body, Expect, Message};
use crate::statuses::Statuses;
use ringroad_wire::{Asked, Limits, ResponseEvent, Responses, Scratch};
use std::fmt;

/// The longest answer kept for comparison. Longer ones come in several pieces anyway.
const KEPT_BYTES_MAX: usize = 4096;

/// Longer `Location` and `Set-Cookie` values are not kept.
const VALUE_BYTES_MAX: usize = 4096;

/// Cookies kept from the answers of a run.
const COOKIES_MAX: usize = 50;

/// What all connections of a worker share.
pub(crate) struct Seen {
    scratch: Scratch,
    /// The statuses of a good answer.
    statuses: Statuses,
    /// Where the first redirect leads that was not expected.
    pub(crate) location: Option<String>,
    /// The first parts of `Set-Cookie` (`name=value`), if the plan keeps cookies.
    pub(crate) cookies: Option<Vec<String>>,
    /// For each message the last good answer that came in one piece; empty: none yet.
    last: Vec<Known>,
    /// For each message what the bodies of its good answers have to be; `None`: it is not checked, or no good
    /// answer has come yet.
    bodies: Vec<Option<Vec<u8>>>,
}

#[derive(Default)]
struct Known {
    bytes: Vec<u8>,
    whole: Whole,
}

/// A whole answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Whole {
    /// The status; 200 where the protocol has none.
    pub(crate) status: u16,
    /// Whether the connection can be used again.
    pub(crate) keep_alive: bool,
    /// Bytes of its body.
    pub(crate) body_bytes: u64,
    /// Why it is not a good answer, although it is whole.
    pub(crate) wrong: Option<Wrong>,
}

/// Why a whole answer is not what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// Its status is not one of those expected.
    Status,
    /// Its body does not contain the text expected.
    Body,
}

/// Why what came is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Its head is not one of HTTP.
    NotHttp(ringroad_wire::Error),
    /// What follows its head is not HTTP.
    Malformed(ringroad_wire::Error),
    /// Another protocol: which, and what to do.
    Foreign(&'static str),
    /// Not the bytes that were sent.
    NotTheSame,
    /// Not the body it has to have, which begins like this.
    OtherBody(String),
    /// Unexpected bytes.
    Unsolicited,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::NotHttp(why) => write!(f, "malformed answer: {why} (does this port speak HTTP/1.1?)"),
            Fault::Malformed(why) => write!(f, "malformed answer: {why}"),
            Fault::Foreign(what) => f.write_str(what),
            Fault::NotTheSame => f.write_str("what came back is not what was sent"),
            Fault::OtherBody(excerpt) => write!(f, "another body than it has to have: \"{excerpt}\""),
            Fault::Unsolicited => f.write_str("unexpected bytes"),
        }
    }
}

/// What a look at some bytes came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// All were used, and the answer is not whole yet.
    More,
    /// So many were used, and the answer is whole.
    Whole(usize, Whole),
    /// The connection cannot be used any more.
    Bad(Fault),
}

/// One connection's place in an answer: nothing between answers.
#[derive(Default)]
pub(crate) struct Reader(Option<Box<Partial>>);

struct Partial {
    responses: Responses,
    /// Bytes of a head that is not whole.
    tail: Vec<u8>,
    /// Of a body that is the first to come: what has come.
    body: Vec<u8>,
    /// What is known so far. Of an echo: how many bytes have come back.
    whole: Whole,
}

impl Seen {
    pub(crate) fn new(messages: &[Message], statuses: &Statuses) -> Seen {
        let mut last = Vec::new();
        last.resize_with(messages.len(), Known::default);
        let bodies = messages.iter().map(|message| match &message.body {
            Body::Exactly(body) => Some(body.clone()),
            Body::Any | Body::Alike | Body::Contains(_) => None,
        });
        Seen {
            scratch: Scratch::new(Limits::client()),
            statuses: statuses.clone(),
            location: None,
            cookies: None,
            last,
            bodies: bodies.collect(),
        }
    }
}

impl Seen {
    /// Judges a whole answer to the `index`-th message; `body` holds its body where that is compared.
    pub(crate) fn judge(
        &mut self,
        index: usize,
        wanted: &Body,
        mut whole: Whole,
        mut body: Vec<u8>,
    ) -> Result<Whole, Fault> {
        if !self.statuses.contains(whole.status) {
            whole.wrong = Some(Wrong::Status);
            return Ok(whole);
        }
        match wanted {
            Body::Any => {}
            Body::Contains(text) => {
                let found = memchr::memmem::find(&body, text).is_some();
                whole.wrong = (!found).then_some(Wrong::Body);
            }
            Body::Alike | Body::Exactly(_) => {
                let bytes = body.len() as u64;
                if let Some(measure) = self.bodies.get_mut(index) {
                    if measure.as_ref().is_some_and(|measure| *measure != body) {
                        return Err(Fault::OtherBody(excerpt(&body)));
                    }
                    if let Some(fault) = hold(measure, bytes, &mut body) {
                        return Err(fault);
                    }
                }
            }
        }
        Ok(whole)
    }
}

impl Reader {
    /// Returns whether part of an answer has come.
    pub(crate) fn is_amid(&self) -> bool {
        self.0.is_some()
    }

    /// Looks for the end of the answer to `message`, the `index`-th of its plan, in bytes that have just
    /// come.
    #[inline]
    pub(crate) fn next(&mut self, seen: &mut Seen, message: &Message, index: usize, bytes: &[u8]) -> Step {
        if self.0.is_none()
            && let Some(known) = seen.last.get(index)
            && !known.bytes.is_empty()
            && bytes.starts_with(&known.bytes)
        {
            return Step::Whole(known.bytes.len(), known.whole);
        }
        match message.expect {
            Expect::Http(asked) => self.http(seen, asked, (index, &message.body), bytes),
            Expect::Echo => self.echo(&message.bytes, bytes),
            Expect::Frames => match &message.body {
                Body::Exactly(payload) => self.echo(payload, bytes),
                _ => self.echo(&message.bytes, bytes),
            },
            Expect::Delimiter(delimiter) => self.delimited(delimiter, bytes),
        }
    }

    fn http(&mut self, seen: &mut Seen, asked: Asked, (index, wanted): (usize, &Body), bytes: &[u8]) -> Step {
        let fresh = self.0.is_none();
        if fresh && let Some(what) = instead_of_http1(bytes) {
            return Step::Bad(Fault::Foreign(what));
        }
        let mut partial = match self.0.take() {
            Some(partial) => partial,
            None => {
                let mut responses = Responses::new();
                if let Err(why) = responses.begin(asked) {
                    return Step::Bad(Fault::Malformed(why));
                }
                Partial::new(responses)
            }
        };
        let Partial { responses, tail, body, whole } = &mut *partial;
        let measure = seen.bodies.get_mut(index).filter(|_| matches!(wanted, Body::Alike | Body::Exactly(_)));
        let text = if let Body::Contains(text) = wanted { Some(text) } else { None };
        let before = tail.len();
        if before > 0 {
            tail.extend_from_slice(bytes);
        }
        let mut at = 0;
        let ended = loop {
            let all = if tail.is_empty() { bytes } else { tail.as_slice() };
            match responses.next(&mut seen.scratch, all, &mut at) {
                Ok(None) => break false,
                Ok(Some(ResponseEvent::Interim(_))) => {}
                Ok(Some(ResponseEvent::Head(head))) => {
                    whole.status = head.status().code();
                    whole.keep_alive = head.keep_alive();
                    if !seen.statuses.contains(whole.status) {
                        whole.wrong = Some(Wrong::Status);
                    }
                    let value = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    if (300..400).contains(&whole.status) && seen.location.is_none() {
                        let location = head.fields().get("location");
                        seen.location = location.filter(|value| value.len() <= VALUE_BYTES_MAX).map(value);
                    }
                    if let Some(cookies) = &mut seen.cookies {
                        for cookie in head.fields().get_all("set-cookie") {
                            let pair = cookie.split(|byte| *byte == b';').next().unwrap_or_default();
                            if pair.len() <= VALUE_BYTES_MAX && cookies.len() < COOKIES_MAX {
                                cookies.push(value(pair.trim_ascii()));
                            }
                        }
                    }
                    if head.body() == ringroad_wire::Body::Empty {
                        break true;
                    }
                }
                Ok(Some(ResponseEvent::Data(data))) => {
                    if whole.wrong.is_none()
                        && let Some(text) = text
                    {
                        contains(body, &mut whole.body_bytes, text, data);
                        continue;
                    }
                    if whole.wrong.is_none()
                        && let Some(measure) = &measure
                    {
                        let from = whole.body_bytes as usize;
                        match measure {
                            Some(measure) if measure.get(from..from + data.len()) != Some(data) => {
                                return Step::Bad(Fault::OtherBody(excerpt(data)));
                            }
                            Some(_) => {}
                            None => body.extend_from_slice(data),
                        }
                    }
                    whole.body_bytes += data.len() as u64;
                }
                Ok(Some(ResponseEvent::End(_))) => break true,
                Err(why) => {
                    // Folded lines are unfolded in a copy.
                    if tail.is_empty() {
                        tail.extend_from_slice(bytes);
                    }
                    if responses.unfold(tail, at) {
                        continue;
                    }
                    let is_foreign = whole.status == 0;
                    return Step::Bad(if is_foreign { Fault::NotHttp(why) } else { Fault::Malformed(why) });
                }
            }
        };
        if ended {
            if whole.wrong.is_none()
                && let Some(text) = text
                && !is_found(body, text)
            {
                whole.wrong = Some(Wrong::Body);
            }
            let whole = *whole;
            if whole.wrong.is_none()
                && let Some(measure) = measure
                && let Some(fault) = hold(measure, whole.body_bytes, body)
            {
                return Step::Bad(fault);
            }
            let used = at - before;
            if fresh && whole.wrong.is_none() && whole.keep_alive && used <= KEPT_BYTES_MAX {
                keep(seen, index, bytes.get(..used).unwrap_or_default(), whole);
            }
            return Step::Whole(used, whole);
        }
        // What was not used is the beginning of a head or of trailers: shown again with what follows.
        if tail.is_empty() {
            tail.extend_from_slice(bytes.get(at..).unwrap_or_default());
        } else {
            tail.drain(..at);
        }
        self.0 = Some(partial);
        Step::More
    }

    /// Takes the end of the connection. Returns the answer that ends with it; `None`: nothing was whole.
    pub(crate) fn end_of_input(&mut self, message: &Message) -> Option<Whole> {
        let mut partial = self.0.take()?;
        if let (Body::Contains(text), None) = (&message.body, partial.whole.wrong)
            && !is_found(&partial.body, text)
        {
            partial.whole.wrong = Some(Wrong::Body);
        }
        matches!(partial.responses.end_of_input(), Ok(true)).then_some(partial.whole)
    }

    fn echo(&mut self, sent: &[u8], bytes: &[u8]) -> Step {
        let done = self.0.as_ref().map_or(0, |partial| partial.whole.body_bytes as usize);
        if done == 0 && bytes.starts_with(sent) {
            let body_bytes = sent.len() as u64;
            return Step::Whole(sent.len(), Whole { status: 200, keep_alive: true, body_bytes, wrong: None });
        }
        let due = sent.get(done..).unwrap_or_default();
        let count = due.len().min(bytes.len());
        if due.get(..count) != bytes.get(..count) {
            return Step::Bad(Fault::NotTheSame);
        }
        self.came(count as u64);
        if count < due.len() { Step::More } else { self.whole(count) }
    }

    fn delimited(&mut self, delimiter: u8, bytes: &[u8]) -> Step {
        let found = memchr::memchr(delimiter, bytes);
        let used = found.map_or(bytes.len(), |at| at + 1);
        if found.is_some() {
            self.0.get_or_insert_with(Partial::headless).whole.body_bytes += used as u64;
            return self.whole(used);
        }
        self.came(used as u64);
        Step::More
    }

    /// Notes bytes of an answer without a head.
    fn came(&mut self, count: u64) {
        if count > 0 {
            self.0.get_or_insert_with(Partial::headless).whole.body_bytes += count;
        }
    }

    fn whole(&mut self, used: usize) -> Step {
        let body_bytes = self.0.take().map_or(0, |partial| partial.whole.body_bytes);
        Step::Whole(used, Whole { status: 200, keep_alive: true, body_bytes, wrong: None })
    }
}

impl Partial {
    fn new(responses: Responses) -> Box<Partial> {
        Box::new(Partial { responses, tail: Vec::new(), body: Vec::new(), whole: Whole::default() })
    }

    /// For protocols without heads.
    fn headless() -> Box<Partial> {
        Partial::new(Responses::new())
    }
}

/// Holds a whole body against the measure, and makes it that if there is none: it has so many bytes, and what
/// is kept of it came before there was a measure.
fn hold(measure: &mut Option<Vec<u8>>, bytes: u64, kept: &mut Vec<u8>) -> Option<Fault> {
    match measure {
        Some(measure) if measure.len() as u64 != bytes || !measure.starts_with(kept) => {
            let what = if kept.is_empty() { format!("{bytes} bytes") } else { excerpt(kept) };
            Some(Fault::OtherBody(what))
        }
        Some(_) => None,
        None => {
            *measure = Some(std::mem::take(kept));
            None
        }
    }
}

/// Searches for `text` across the pieces of a body, of which `data` is the next, and counts the piece's
/// bytes. `kept` holds the tail in which a match may begin; after a match, it holds the text itself.
fn contains(kept: &mut Vec<u8>, body_bytes: &mut u64, text: &[u8], data: &[u8]) {
    *body_bytes += data.len() as u64;
    if is_found(kept, text) {
        return;
    }
    kept.extend_from_slice(data);
    if memchr::memmem::find(kept, text).is_some() {
        text.clone_into(kept);
    } else {
        kept.drain(..kept.len().saturating_sub(text.len().saturating_sub(1)));
    }
}

/// Returns whether the text was found: all that is kept is shorter until then.
fn is_found(kept: &[u8], text: &[u8]) -> bool {
    kept.len() >= text.len()
}

/// Returns the first bytes of something, readable.
fn excerpt(bytes: &[u8]) -> String {
    let shown = bytes.get(..40).unwrap_or(bytes);
    format!("{}{}", shown.escape_ascii(), if bytes.len() > shown.len() { "…" } else { "" })
}

fn keep(seen: &mut Seen, index: usize, bytes: &[u8], whole: Whole) {
    if let Some(known) = seen.last.get_mut(index) {
        known.bytes.clear();
        known.bytes.extend_from_slice(bytes);
        known.whole = whole;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::plan::Request;

    fn get() -> Message {
        let request = Request { method: "GET", headers: &[], body: b"", close: false };
        Message::http(&"http://a/".parse().unwrap(), &request, 1).unwrap()
    }

    /// All answers in pieces of `size` bytes, and what is left of the connection.
    fn read(message: &Message, bytes: &[u8], size: usize) -> (Vec<Whole>, Option<Fault>, Reader) {
        let mut seen = Seen::new(std::slice::from_ref(message), &Statuses::default());
        let (mut reader, mut wholes) = (Reader::default(), Vec::new());
        for piece in bytes.chunks(size) {
            let mut rest = piece;
            while !rest.is_empty() {
                match reader.next(&mut seen, message, 0, rest) {
                    Step::More => break,
                    Step::Whole(used, whole) => {
                        wholes.push(whole);
                        rest = &rest[used..];
                    }
                    Step::Bad(fault) => return (wholes, Some(fault), reader),
                }
            }
        }
        (wholes, None, reader)
    }

    const ANSWERS: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab\
        HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab\
        HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX: y\r\n\r\n\
        HTTP/1.1 204 No Content\r\n\r\n\
        HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc";

    #[test]
    fn however_answers_are_cut_they_are_the_same() {
        let expected: Vec<Whole> =
            [(200, true, 2), (200, true, 2), (404, true, 3), (204, true, 0), (200, false, 3)]
                .into_iter()
                .map(|(status, keep_alive, body_bytes)| Whole {
                    status,
                    keep_alive,
                    body_bytes,
                    wrong: (status >= 300).then_some(Wrong::Status),
                })
                .collect();
        for size in 1..=ANSWERS.len() {
            let (wholes, fault, reader) = read(&get(), ANSWERS, size);
            assert_eq!((wholes, fault), (expected.clone(), None), "pieces of {size}");
            assert!(!reader.is_amid(), "nothing is kept between answers");
        }
    }

    #[test]
    fn an_answer_is_compared_only_with_a_whole_good_one_to_the_same_message() {
        let message = get();
        let mut seen = Seen::new(&[message.clone(), message.clone()], &Statuses::default());
        let mut reader = Reader::default();
        let ok = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na";
        let bad = b"HTTP/1.1 500 No\r\nContent-Length: 1\r\n\r\na";
        let whole = |status| Whole {
            status,
            keep_alive: true,
            body_bytes: 1,
            wrong: (status >= 300).then_some(Wrong::Status),
        };
        assert_eq!(reader.next(&mut seen, &message, 0, bad), Step::Whole(bad.len(), whole(500)));
        assert!(seen.last[0].bytes.is_empty(), "what failed is no measure");
        for _ in 0..2 {
            assert_eq!(reader.next(&mut seen, &message, 0, ok), Step::Whole(ok.len(), whole(200)));
            assert_eq!(seen.last[0].bytes, ok);
        }
        assert!(seen.last[1].bytes.is_empty());
        // The same length, another status: not the same.
        assert_eq!(reader.next(&mut seen, &message, 0, bad), Step::Whole(bad.len(), whole(500)));
        // A beginning of the known one is a beginning.
        assert_eq!(reader.next(&mut seen, &message, 0, &ok[..10]), Step::More);
        assert!(reader.is_amid());
    }

    #[test]
    fn the_end_of_the_connection_ends_only_what_says_so() {
        let (wholes, fault, mut reader) = read(&get(), b"HTTP/1.1 200 OK\r\n\r\nabc", 4);
        assert_eq!((wholes.len(), fault), (0, None));
        let whole = Whole { status: 200, keep_alive: false, body_bytes: 3, wrong: None };
        assert_eq!(reader.end_of_input(&get()), Some(whole));
        let (_, _, mut reader) = read(&get(), b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", 4);
        assert_eq!(reader.end_of_input(&get()), None);
        assert_eq!(Reader::default().end_of_input(&get()), None);
        let message = get().with_body(Body::Contains(b"bd".to_vec()));
        let (_, _, mut reader) = read(&message, b"HTTP/1.1 200 OK\r\n\r\nabc", 4);
        assert_eq!(reader.end_of_input(&message).unwrap().wrong, Some(Wrong::Body));
    }

    /// Returns a good answer with this body, in chunks.
    fn chunked(body: &str) -> Vec<u8> {
        let mut answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        for byte in body.bytes() {
            answer.extend([b"1\r\n".as_slice(), &[byte], b"\r\n"].concat());
        }
        answer.extend(b"0\r\n\r\n");
        answer
    }

    #[test]
    fn a_body_that_is_looked_at_is_the_one_it_has_to_be_however_it_comes() {
        let plain = |body: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        for wanted in [Body::Alike, Body::Exactly(b"abc".to_vec())] {
            let message = get().with_body(wanted.clone());
            for (next, is_right) in
                [("abc", true), ("abd", false), ("ab", false), ("abcd", false), ("", false)]
            {
                for next in [plain(next).into_bytes(), chunked(next)] {
                    let answers = [plain("abc").into_bytes(), next].concat();
                    for size in 1..=answers.len() {
                        let (wholes, fault, _) = read(&message, &answers, size);
                        assert_eq!(wholes.len(), 1 + usize::from(is_right), "{wanted:?} in pieces of {size}");
                        assert_eq!(matches!(fault, Some(Fault::OtherBody(_))), !is_right, "{fault:?}");
                    }
                }
            }
            // What failed says something else, and is no measure.
            let refused =
                [b"HTTP/1.1 503 No\r\nContent-Length: 2\r\n\r\nno".to_vec(), chunked("abc"), chunked("abc")];
            let (wholes, fault, _) = read(&message, &refused.concat(), 7);
            assert_eq!((wholes.len(), fault), (3, None), "{wanted:?}");
        }
        let (wholes, fault, _) = read(&get(), &[chunked("abc"), chunked("x")].concat(), 5);
        assert_eq!((wholes.len(), fault), (2, None), "bodies are not checked");
    }

    #[test]
    fn a_text_that_a_body_must_contain_is_found_however_the_body_is_cut() {
        let message = get().with_body(Body::Contains(b"needle".to_vec()));
        for (body, wrong) in [
            ("needle", None),
            ("a needle in the hay, needle", None),
            ("neeneedle", None),
            ("needl", Some(Wrong::Body)),
            ("", Some(Wrong::Body)),
            ("needlneedl", Some(Wrong::Body)),
        ] {
            let answers = [chunked(body), chunked(body)].concat();
            for size in 1..=answers.len() {
                let (wholes, fault, _) = read(&message, &answers, size);
                assert_eq!((wholes.len(), fault), (2, None), "{body} in pieces of {size}");
                let expected = (wrong, body.len() as u64);
                assert!(
                    wholes.iter().all(|whole| (whole.wrong, whole.body_bytes) == expected),
                    "{body} in pieces of {size}: {wholes:?}"
                );
            }
        }
        let empty = get().with_body(Body::Contains(b"needle".to_vec()));
        let (wholes, ..) = read(&empty, b"HTTP/1.1 204 No\r\n\r\n", 99);
        assert_eq!(wholes[0].wrong, Some(Wrong::Body), "no body does not contain it");
    }

    #[test]
    fn the_expected_statuses_decide_which_answer_is_good() {
        let message = get();
        let answer = b"HTTP/1.1 302 Found\r\nLocation: /there/\r\nSet-Cookie: a=b; Path=/\r\nContent-Length: 0\r\n\r\n";
        for (statuses, wrong) in [("2xx", Some(Wrong::Status)), ("404,300-399", None)] {
            let mut seen = Seen::new(std::slice::from_ref(&message), &statuses.parse().unwrap());
            seen.cookies = Some(Vec::new());
            let Step::Whole(_, whole) = Reader::default().next(&mut seen, &message, 0, answer) else {
                panic!("whole")
            };
            assert_eq!(whole.wrong, wrong);
            assert_eq!(seen.location.as_deref(), Some("/there/"));
            assert_eq!(seen.cookies.unwrap(), ["a=b"]);
            assert_eq!(seen.last[0].bytes.is_empty(), wrong.is_some(), "only a good answer is compared with");
        }
    }

    /// Two connections read their first answers at the same time: the one that is whole first is the measure
    /// for both.
    #[test]
    fn what_has_come_before_there_was_a_measure_is_held_against_it_too() {
        let message = get().with_body(Body::Alike);
        for (second, is_right) in [("abc", true), ("xbc", false)] {
            let mut seen = Seen::new(std::slice::from_ref(&message), &Statuses::default());
            let (mut early, mut late) = (Reader::default(), Reader::default());
            let (first, second) = (chunked("abc"), chunked(second));
            // Past its head and its first byte.
            let cut = second.len() - 14;
            assert_eq!(late.next(&mut seen, &message, 0, &second[..cut]), Step::More);
            assert!(matches!(early.next(&mut seen, &message, 0, &first), Step::Whole(..)));
            let step = late.next(&mut seen, &message, 0, &second[cut..]);
            assert_eq!(matches!(step, Step::Whole(..)), is_right, "{step:?}");
        }
    }

    #[test]
    fn an_echo_is_compared_byte_by_byte() {
        let message = Message::echo(b"hello".to_vec()).unwrap();
        for size in 1..=10 {
            let (wholes, fault, _) = read(&message, b"hellohello", size);
            assert_eq!((wholes.len(), fault), (2, None), "{size}");
            let (wholes, fault, _) = read(&message, b"hellohellO", size);
            assert_eq!((wholes.len(), fault), (1, Some(Fault::NotTheSame)), "{size}");
        }
    }

    #[test]
    fn a_delimiter_ends_an_answer_of_any_length() {
        let message = Message::delimited(b"ping".to_vec(), b'\n').unwrap();
        for size in 1..=9 {
            let (wholes, fault, reader) = read(&message, b"a\n\nlong\nx", size);
            let lengths: Vec<u64> = wholes.iter().map(|whole| whole.body_bytes).collect();
            assert_eq!((lengths, fault), (vec![2, 1, 5], None), "{size}");
            assert!(reader.is_amid());
        }
    }
}
