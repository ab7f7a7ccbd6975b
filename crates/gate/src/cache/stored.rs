//! One kept answer, and how a request is answered from it.

use super::OfBlock;
use crate::page;
use futures_core::Stream;
use ringroad_http::{Body, Chunk, FieldBlock, Response, Status};
use ringroad_policy::fresh::condition::{self, Asked, Condition};
use ringroad_policy::fresh::{Freshness, Lines, is_stored, is_updated};
use ringroad_policy::{Nanos, SECOND};
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// An answer without its body.
#[derive(Debug)]
pub struct Head {
    /// Its status.
    pub status: Status,
    /// Its lines, with `Date` first.
    pub lines: FieldBlock,
    /// How long it may be used.
    pub freshness: Freshness,
    /// When it came, in the clock of decisions.
    pub came: Nanos,
    /// The same in seconds since 1970.
    pub came_wall: u64,
    /// What besides the key it belongs to: scheme, route, and the further parts of the route's key.
    pub place: Box<[u8]>,
    /// The lines of requests that choose it, as `Vary` lists them.
    pub vary: Vec<String>,
    /// Their values in its own request.
    pub variant: Vec<u8>,
}

/// A kept answer.
#[derive(Debug)]
pub struct Stored {
    /// All but its body.
    pub head: Arc<Head>,
    /// Its body.
    pub body: Arc<[u8]>,
    /// Until then, in the clock of decisions, it is used without a further attempt to get another: the last
    /// attempt has failed.
    pub rests_until: Nanos,
}

/// A piece of a range that is sent at once: a part of a large body is not copied as a whole.
const PART_BYTES: usize = 64 * 1024;

impl Head {
    /// Takes the lines of an answer that are kept. `date` is the origin's.
    pub fn lines(response: &Response, date: &[u8], freshness: &Freshness) -> FieldBlock {
        let mut lines = FieldBlock::new();
        // A date with characters that a line may not have is left out.
        let _ = lines.push(b"Date", date);
        for line in response.headers() {
            let named = |name: &String| line.name.eq_ignore_ascii_case(name.as_bytes());
            let is_date = line.name.eq_ignore_ascii_case(b"date");
            if is_stored(line.name) && !is_date && !freshness.without.iter().any(named) {
                // It was a line of an answer.
                let _ = lines.push(line.name, line.value);
            }
        }
        lines
    }

    /// Puts the lines of a 304 in the place of those of their names.
    pub fn updated(&self, response: &Response, date: &[u8]) -> FieldBlock {
        let mut lines = FieldBlock::new();
        let _ = lines.push(b"Date", date);
        let is_new = |name: &[u8]| {
            is_updated(name) && response.headers().any(|line| line.name.eq_ignore_ascii_case(name))
        };
        for line in self.lines.iter() {
            if !line.name.eq_ignore_ascii_case(b"date") && !is_new(line.name) {
                let _ = lines.push(line.name, line.value);
            }
        }
        for line in response.headers() {
            if !line.name.eq_ignore_ascii_case(b"date") && is_updated(line.name) {
                let _ = lines.push(line.name, line.value);
            }
        }
        lines
    }

    /// Seconds since it came.
    pub fn resident(&self, now: Nanos) -> u64 {
        now.saturating_sub(self.came) / SECOND
    }

    /// Returns whether it is what a request of this place with these lines asks for.
    pub fn fits(&self, place: &[u8], request: &(impl Lines + ?Sized)) -> bool {
        *self.place == *place
            && (self.vary.is_empty()
                || ringroad_policy::fresh::vary::key(&self.vary, request) == self.variant)
    }

    /// Returns whether a tag is among the words of `Cache-Tag`.
    pub fn has_tag(&self, tag: &[u8]) -> bool {
        let mut has = false;
        OfBlock(&self.lines).each("cache-tag", &mut |list| {
            has |= list.split(|byte| *byte == b',').any(|word| word.trim_ascii() == tag);
        });
        has
    }

    /// Begins an answer with its lines.
    pub fn response(&self, status: Status, body: Body, now: Nanos, is_first: bool) -> Response {
        let mut response = Response::new(body).status(status);
        response.add_lines(&self.lines);
        let age = self.freshness.age_after(self.resident(now));
        // An answer that came just now is not older than its own line says.
        if !is_first || self.freshness.age > 0 {
            let _ = response.add_header("Age", age.to_string());
        }
        response
    }

    /// Answers a condition of the client that this answer meets: 304, with the lines that a client compares.
    pub fn not_modified(
        &self,
        request: &(impl Lines + ?Sized),
        now: Nanos,
        is_first: bool,
    ) -> Option<Response> {
        if !(200..300).contains(&self.status.code()) {
            return None;
        }
        let judged = condition::judge(request, &OfBlock(&self.lines), self.came_wall);
        (judged == Condition::NotModified).then(|| {
            let mut response = self.response(Status::NOT_MODIFIED, Body::empty(), now, is_first);
            for name in ["Content-Type", "Content-Encoding", "Content-Language", "Content-Range"] {
                response.remove_header(name);
            }
            response
        })
    }
}

impl Stored {
    /// Returns what it takes in the store.
    pub fn bytes(&self) -> u64 {
        let head = &self.head;
        let parts = head.lines.bytes().len() + head.variant.len() + head.place.len() + self.body.len();
        // The fixed parts, rounded up.
        parts as u64 + 512
    }

    /// Answers a GET or HEAD with these conditions.
    pub fn answer(&self, conditions: &(impl Lines + ?Sized), now: Nanos, is_first: bool) -> Response {
        let head = &self.head;
        if let Some(response) = head.not_modified(conditions, now, is_first) {
            return response;
        }
        if head.status == Status::OK {
            let length = self.body.len() as u64;
            match condition::range(conditions, &OfBlock(&head.lines), length) {
                Asked::Whole => {}
                Asked::Part(part) => {
                    let told = format!("bytes {}-{}/{length}", part.start, part.end - 1);
                    let mut response = head.response(Status::PARTIAL_CONTENT, self.part(part), now, is_first);
                    let _ = response.set_header("Content-Range", told);
                    return response;
                }
                Asked::Nothing => {
                    let mut response = Response::empty(Status::RANGE_NOT_SATISFIABLE);
                    let _ = response.set_header("Content-Range", format!("bytes */{length}"));
                    return response;
                }
            }
        }
        head.response(head.status, Body::from(Arc::clone(&self.body)), now, is_first)
    }

    fn part(&self, part: Range<u64>) -> Body {
        let bounds = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
        let range = bounds(part.start)..bounds(part.end);
        if range.len() <= PART_BYTES {
            return Body::from(self.body.get(range).unwrap_or_default().to_vec());
        }
        Body::stream_of(part.end - part.start, Part { body: Arc::clone(&self.body), range })
    }
}

/// A part of a body, copied piece by piece.
struct Part {
    body: Arc<[u8]>,
    range: Range<usize>,
}

impl Stream for Part {
    type Item = Chunk;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Chunk>> {
        let end = self.range.end.min(self.range.start + PART_BYTES);
        let piece = self.body.get(self.range.start..end).filter(|piece| !piece.is_empty());
        let piece = piece.map(|piece| Chunk::from(piece.to_vec()));
        self.range.start = end;
        Poll::Ready(piece)
    }
}

/// Makes the refusal of a request that takes only what is kept.
pub fn only_if_cached(context: &crate::flow::Context) -> Response {
    page::refusal(
        Status::GATEWAY_TIMEOUT,
        context,
        "There is no stored answer, and the request wants no other.",
    )
}
