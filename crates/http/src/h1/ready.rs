//! Heads that are encoded in advance, because most answers begin with the same bytes.
//!
//! A worker keeps them for one second, in which the date does not change. Shared responses keep theirs
//! without the date.

use super::encode::head;
use crate::message::{ContentType, Response};
use ringroad_wire::{BodySize, DateLine, FieldBlock, Method, ReplyTo, Status, Version, put_decimal};
use std::cell::RefCell;
use std::io::Write;
use std::time::SystemTime;

/// The current second as text.
pub(crate) struct Today {
    pub(super) line: DateLine,
    pub(super) text: [u8; DATE_BYTES],
}

pub(super) const DATE_BYTES: usize = 29;

impl Today {
    pub(crate) fn now() -> Today {
        let mut text = [b' '; DATE_BYTES];
        let date = httpdate::HttpDate::from(SystemTime::now());
        let written = write!(&mut text[..], "{date}");
        let line = written.ok().and_then(|()| DateLine::new(str::from_utf8(&text).ok()?).ok());
        #[allow(clippy::expect_used, reason = "the 29 characters of RFC 9110 are what `httpdate` writes")]
        let line = line.expect("a date of 29 characters");
        Today { line, text }
    }
}

/// Parts of a head that are the same for all responses of a worker.
pub(crate) struct HeadCache {
    pub(super) today: Option<Today>,
    pub(super) content_types: [FieldBlock; ContentType::ALL.len()],
    /// For each content type, the head of an ordinary answer up to its length: 200, to a GET or similar, on a
    /// connection that is kept. The encoder writes it once a second.
    ready: [Vec<u8>; ContentType::ALL.len()],
    /// The last ordinary answer with a static body, completely encoded.
    pub(super) memo: RefCell<Memo>,
}

/// A previous response. Its body is `'static`, so the same address and length mean the same bytes.
#[derive(Default)]
pub(super) struct Memo {
    body: &'static [u8],
    kind: Option<ContentType>,
    /// Head and body.
    text: Vec<u8>,
}

impl Memo {
    /// Returns the whole encoded answer; `ready` is the text before its length.
    #[inline]
    pub(super) fn answer(&mut self, ready: &[u8], kind: Option<ContentType>, body: &'static [u8]) -> &[u8] {
        if !std::ptr::eq(self.body, body) || self.kind != kind || self.text.is_empty() {
            self.text.clear();
            put_ordinary(&mut self.text, ready, body);
            (self.body, self.kind) = (body, kind);
        }
        &self.text
    }
}

/// Maximum length of a body that is copied.
pub(super) const MEMO_BYTES_MAX: usize = 1024;

/// Writes an ordinary answer: `ready` is the head before the length. `body` is shorter than
/// [`ALONE_BYTES_MIN`].
#[inline]
pub(super) fn put_ordinary(out: &mut Vec<u8>, ready: &[u8], body: &[u8]) {
    out.reserve(ready.len() + body.len() + 16);
    out.extend_from_slice(ready);
    put_decimal(out, body.len() as u64);
    out.extend_from_slice(b"\r\n\r\n");
    out.extend_from_slice(body);
}

impl HeadCache {
    pub(crate) fn new(dated: bool) -> HeadCache {
        let mut cache = HeadCache {
            today: None,
            content_types: content_type_lines(),
            ready: Default::default(),
            memo: RefCell::default(),
        };
        cache.set(dated.then(Today::now));
        cache
    }

    /// Returns the date as text, if responses have one.
    pub(crate) fn date(&self) -> Option<&[u8]> {
        self.today.as_ref().map(|today| &today.text[..])
    }

    /// Records the beginning of a second.
    pub(crate) fn tick(&mut self) {
        if self.today.is_some() {
            self.set(Some(Today::now()));
        }
    }

    fn set(&mut self, today: Option<Today>) {
        self.today = today;
        // The memo contains the old date.
        self.memo.get_mut().text.clear();
        let mut ready = std::mem::take(&mut self.ready);
        for (kind, out) in ContentType::ALL.into_iter().zip(&mut ready) {
            out.clear();
            let no_lines = FieldBlock::new();
            let size = BodySize::Known(0);
            let ended = head(out, self, ORDINARY, Status::OK, Some(kind), &no_lines, size).end(out);
            let without_length = out.strip_suffix(b"0\r\n\r\n").map(<[u8]>::len);
            // An empty head is not used.
            out.truncate(without_length.filter(|_| ended.is_ok()).unwrap_or(0));
        }
        self.ready = ready;
    }

    /// Returns the beginning of the head, if this is an ordinary answer.
    #[inline]
    pub(super) fn ready(&self, reply: ReplyTo, response: &Response) -> Option<&[u8]> {
        let ordinary = reply.keep_alive
            && reply.version == Version::Http11
            && !matches!(reply.method, Method::Head | Method::Connect)
            && response.status == Status::OK
            && response.fields.bytes().is_empty();
        let kind = response.content_type.filter(|_| ordinary)?;
        self.ready.get(kind as usize).map(Vec::as_slice).filter(|ready| !ready.is_empty())
    }
}

/// Properties of a request with an ordinary response.
pub(super) const ORDINARY: ReplyTo =
    ReplyTo { method: Method::Get, version: Version::Http11, keep_alive: true };

fn content_type_lines() -> [FieldBlock; ContentType::ALL.len()] {
    ContentType::ALL.map(|kind| {
        let block = FieldBlock::of([("Content-Type", kind.as_str())]);
        #[allow(clippy::expect_used, reason = "the four values are in this crate, and its tests write them")]
        block.expect("a valid header line")
    })
}
