//! Responses as bytes: what is small goes behind its head into one buffer, what is large goes by itself, what is a
//! stream is left to be sent piece by piece.

use crate::body::{Body, Inner, Pieces};
use crate::chunk::Chunk;
use crate::file::FileBody;
use crate::pool;
use crate::response::{ContentType, Response};
use crate::upgrade::{Switch, Takeover};
use ringroad_wire::{
    BodyEncoder, BodySize, DateLine, EncodeError, Encoder, FieldBlock, Method, ReplyTo, Status, Version,
    put_decimal,
};
use std::cell::RefCell;
use std::io::Write;
use std::time::SystemTime;

/// A body of so many bytes goes by itself, in one call with its head. Here both ways cost the same, below it the copy
/// is cheaper (docs/adr/0014).
pub(crate) const ALONE_BYTES_MIN: usize = 16 * 1024;

/// The current second, as it is written.
pub(crate) struct Today {
    line: DateLine,
    text: [u8; DATE_BYTES],
}

const DATE_BYTES: usize = 29;

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

/// What a worker writes into each head.
pub(crate) struct Lines {
    today: Option<Today>,
    content_types: [FieldBlock; ContentType::ALL.len()],
    /// For each type of content, what the head of an ordinary answer is up to its length: 200, to GET or the like,
    /// on a connection that goes on. Written by the encoder, once a second.
    ready: [Vec<u8>; ContentType::ALL.len()],
    /// The last ordinary answer whose body is always there, as a whole.
    memo: RefCell<Memo>,
}

/// An answer that was given before. Its body is `'static`: the same place and length are the same bytes.
#[derive(Default)]
struct Memo {
    body: &'static [u8],
    kind: Option<ContentType>,
    /// Head and body.
    text: Vec<u8>,
}

impl Memo {
    /// The whole answer to be copied, with `ready` before its length.
    #[inline]
    fn answer(&mut self, ready: &[u8], kind: Option<ContentType>, body: &'static [u8]) -> &[u8] {
        if !std::ptr::eq(self.body, body) || self.kind != kind || self.text.is_empty() {
            self.text.clear();
            put_ordinary(&mut self.text, ready, body);
            (self.body, self.kind) = (body, kind);
        }
        &self.text
    }
}

/// Longer bodies are not worth a second copy of theirs.
const MEMO_BYTES_MAX: usize = 1024;

/// An ordinary answer: what is before its length, and the rest. `body` is below [`ALONE_BYTES_MIN`].
#[inline]
fn put_ordinary(out: &mut Vec<u8>, ready: &[u8], body: &[u8]) {
    out.reserve(ready.len() + body.len() + 16);
    out.extend_from_slice(ready);
    put_decimal(out, body.len() as u64);
    out.extend_from_slice(b"\r\n\r\n");
    out.extend_from_slice(body);
}

impl Lines {
    pub(crate) fn new(dated: bool) -> Lines {
        let mut lines = Lines {
            today: None,
            content_types: content_type_lines(),
            ready: Default::default(),
            memo: RefCell::default(),
        };
        lines.set(dated.then(Today::now));
        lines
    }

    /// Another second has begun.
    pub(crate) fn tick(&mut self) {
        if self.today.is_some() {
            self.set(Some(Today::now()));
        }
    }

    fn set(&mut self, today: Option<Today>) {
        self.today = today;
        // It has the old date in it.
        self.memo.get_mut().text.clear();
        let mut ready = std::mem::take(&mut self.ready);
        for (kind, out) in ContentType::ALL.into_iter().zip(&mut ready) {
            out.clear();
            let no_lines = FieldBlock::new();
            let size = BodySize::Known(0);
            let ended = head(out, self, ORDINARY, Status::OK, Some(kind), &no_lines, size).end(out);
            let without_length = out.strip_suffix(b"0\r\n\r\n").map(<[u8]>::len);
            // Left empty, it is not used.
            out.truncate(without_length.filter(|_| ended.is_ok()).unwrap_or(0));
        }
        self.ready = ready;
    }

    /// The beginning of an ordinary answer's head, if that is what it is.
    #[inline]
    fn ready(&self, reply: ReplyTo, response: &Response) -> Option<&[u8]> {
        let ordinary = reply.keep_alive
            && reply.version == Version::Http11
            && !matches!(reply.method, Method::Head | Method::Connect)
            && response.status == Status::OK
            && response.fields.bytes().is_empty();
        let kind = response.content_type.filter(|_| ordinary)?;
        self.ready.get(kind as usize).map(Vec::as_slice).filter(|ready| !ready.is_empty())
    }
}

/// To whom most answers go.
const ORDINARY: ReplyTo = ReplyTo { method: Method::Get, version: Version::Http11, keep_alive: true };

fn content_type_lines() -> [FieldBlock; ContentType::ALL.len()] {
    ContentType::ALL.map(|kind| {
        let block = FieldBlock::of([("Content-Type", kind.as_str())]);
        #[allow(clippy::expect_used, reason = "the four values are in this crate, and its tests write them")]
        block.expect("a valid header line")
    })
}

/// What is left to be sent of a response, behind what is in the buffer.
pub(crate) enum Rest {
    /// All of it is in the buffer.
    Nothing,
    /// These bytes.
    Bytes(Chunk),
    /// These pieces.
    Pieces(Box<Pieces>, BodyEncoder),
    /// This part of a file.
    File(Box<FileBody>),
    /// Nothing; and then the connection is handed over.
    Switch(Takeover),
}

/// Writes `response` behind what is in `out`, as far as it goes; what is left, and whether the connection goes on.
#[inline]
pub(crate) fn response(
    out: &mut Vec<u8>,
    lines: &Lines,
    mut reply: ReplyTo,
    response: Response,
) -> (Rest, bool) {
    if response.close {
        reply.keep_alive = false;
    }
    if let Some(shared) = &response.shared {
        reply.keep_alive &= !shared.close;
        return (shared.write(out, lines, reply), reply.keep_alive);
    }
    let ready = lines.ready(reply, &response);
    let Response { status, content_type, fields, body, .. } = response;
    let (rest, keep_alive) = match body.0 {
        Inner::Whole(chunk) => {
            if let Some(ready) = ready.filter(|_| chunk.len() < ALONE_BYTES_MIN) {
                match chunk.as_static() {
                    Some(body) if body.len() <= MEMO_BYTES_MAX => {
                        out.extend_from_slice(lines.memo.borrow_mut().answer(ready, content_type, body));
                    }
                    _ => put_ordinary(out, ready, &chunk),
                }
                chunk.recycle();
                return (Rest::Nothing, true);
            }
            let size = BodySize::Known(chunk.len() as u64);
            let mut encoder = head(out, lines, reply, status, content_type, &fields, size);
            let keep_alive = encoder.keep_alive();
            (whole(out, &mut encoder, chunk), keep_alive)
        }
        Inner::Empty => {
            let encoder = head(out, lines, reply, status, None, &fields, BodySize::Known(0));
            (Rest::Nothing, encoder.keep_alive())
        }
        Inner::Stream(pieces) => {
            let size = pieces.size.map_or(BodySize::Unknown, BodySize::Known);
            let encoder = head(out, lines, reply, status, content_type, &fields, size);
            let keep_alive = encoder.keep_alive();
            (if encoder.is_sent() { Rest::Pieces(pieces, encoder) } else { Rest::Nothing }, keep_alive)
        }
        Inner::File(part) => {
            let size = BodySize::Known(part.left());
            let mut encoder = head(out, lines, reply, status, content_type, &fields, size);
            // False, or an error where the status forbids a body: nothing of it is sent.
            let is_sent = encoder.frame(out, part.left()).unwrap_or(false);
            (if is_sent { Rest::File(part) } else { Rest::Nothing }, encoder.keep_alive())
        }
        Inner::Switch(switch) => {
            let Switch { protocol, takeover } = *switch;
            let mut head = begin(out, lines, reply, status, None, &fields);
            // The protocol was checked when the response was made.
            let _ = head.upgrade(&protocol);
            let keep_alive = head.finish(BodySize::Known(0)).keep_alive();
            let switches = status == Status::SWITCHING_PROTOCOLS;
            (if switches { Rest::Switch(takeover) } else { Rest::Nothing }, keep_alive)
        }
    };
    pool::give_block(fields);
    (rest, keep_alive)
}

#[inline]
fn head(
    out: &mut Vec<u8>,
    lines: &Lines,
    reply: ReplyTo,
    status: Status,
    content_type: Option<ContentType>,
    fields: &FieldBlock,
    size: BodySize,
) -> BodyEncoder {
    begin(out, lines, reply, status, content_type, fields).finish(size)
}

/// A head up to what follows from the body.
#[inline]
fn begin<'a>(
    out: &'a mut Vec<u8>,
    lines: &Lines,
    reply: ReplyTo,
    status: Status,
    content_type: Option<ContentType>,
    fields: &FieldBlock,
) -> Encoder<'a> {
    let mut head = Encoder::response(out, status, reply);
    if let Some(today) = &lines.today {
        head.date(&today.line);
    }
    if let Some(line) = content_type.and_then(|kind| lines.content_types.get(kind as usize)) {
        head.block(line);
    }
    if !fields.bytes().is_empty() {
        head.block(fields);
    }
    head
}

/// Bytes that are all there: into the buffer if they are few.
#[inline]
fn whole(out: &mut Vec<u8>, encoder: &mut BodyEncoder, chunk: Chunk) -> Rest {
    if chunk.len() >= ALONE_BYTES_MIN {
        return match encoder.frame(out, chunk.len() as u64) {
            Ok(true) => Rest::Bytes(chunk),
            // Not after HEAD, nor with 204 and 304.
            _ => Rest::Nothing,
        };
    }
    // An error says that the status forbids what the handler gave: then nothing of it is sent.
    let _: Result<(), EncodeError> = encoder.data(out, &chunk);
    chunk.recycle();
    Rest::Nothing
}

/// A response encoded before.
#[derive(Debug)]
pub(crate) struct Encoded {
    status: Status,
    content_type: Option<ContentType>,
    fields: FieldBlock,
    body: Option<SharedBody>,
    close: bool,
    /// As it goes to a GET on a connection that goes on: the status line, then what is behind the date; with the
    /// body if that is small.
    ready: Vec<u8>,
    status_line_bytes: usize,
}

/// Bytes that several responses send.
#[derive(Debug)]
enum SharedBody {
    Static(&'static [u8]),
    Shared(std::rc::Rc<[u8]>),
}

impl SharedBody {
    fn chunk(&self) -> Chunk {
        match self {
            SharedBody::Static(bytes) => Chunk::from(*bytes),
            SharedBody::Shared(bytes) => Chunk::from(std::rc::Rc::clone(bytes)),
        }
    }
}

impl Encoded {
    pub(crate) fn new(response: Response) -> Result<Encoded, Response> {
        if response.shared.is_some()
            || matches!(response.body.0, Inner::Stream(_) | Inner::File(_) | Inner::Switch(_))
        {
            return Err(response);
        }
        let Response { status, content_type, close, fields, body, .. } = response;
        let body = match body.0 {
            Inner::Whole(chunk) => Some(match chunk.as_static() {
                Some(bytes) => SharedBody::Static(bytes),
                None => SharedBody::Shared(chunk.into_vec().into()),
            }),
            Inner::Empty | Inner::Stream(_) | Inner::File(_) | Inner::Switch(_) => None,
        };
        let mut encoded =
            Encoded { status, content_type, fields, body, close, ready: Vec::new(), status_line_bytes: 0 };
        let mut ready = Vec::new();
        let undated = Lines::new(false);
        // What is not in there is the body, if it is large.
        let _ = encoded.anew(&mut ready, &undated, ORDINARY);
        encoded.status_line_bytes = ready.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        encoded.ready = ready;
        Ok(encoded)
    }

    pub(crate) fn status(&self) -> Status {
        self.status
    }

    #[inline]
    fn write(&self, out: &mut Vec<u8>, lines: &Lines, reply: ReplyTo) -> Rest {
        let is_ready = reply.keep_alive
            && reply.version == Version::Http11
            && !matches!(reply.method, Method::Head | Method::Connect);
        if !is_ready {
            return self.anew(out, lines, reply);
        }
        let (status_line, rest) = self.ready.split_at(self.status_line_bytes);
        out.reserve(self.ready.len() + DATE_BYTES + 8);
        out.extend_from_slice(status_line);
        if let Some(today) = &lines.today {
            out.extend_from_slice(b"Date: ");
            out.extend_from_slice(&today.text);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(rest);
        match &self.body {
            Some(body) if body.chunk().len() >= ALONE_BYTES_MIN => Rest::Bytes(body.chunk()),
            _ => Rest::Nothing,
        }
    }

    fn anew(&self, out: &mut Vec<u8>, lines: &Lines, reply: ReplyTo) -> Rest {
        let body = self.body.as_ref().map(SharedBody::chunk);
        let size = BodySize::Known(body.as_ref().map_or(0, |body| body.len() as u64));
        let content_type = self.content_type.filter(|_| body.is_some());
        let mut encoder = head(out, lines, reply, self.status, content_type, &self.fields, size);
        body.map_or(Rest::Nothing, |body| whole(out, &mut encoder, body))
    }
}

/// What is answered to something that was no request, or to one that took too long: the connection is closed.
pub(crate) fn refusal(status: Status) -> Response {
    let text = match status {
        Status::BAD_REQUEST => "400 Bad Request\n",
        Status::REQUEST_TIMEOUT => "408 Request Timeout\n",
        Status::CONTENT_TOO_LARGE => "413 Content Too Large\n",
        Status::URI_TOO_LONG => "414 URI Too Long\n",
        Status::EXPECTATION_FAILED => "417 Expectation Failed\n",
        Status::HEADER_FIELDS_TOO_LARGE => "431 Request Header Fields Too Large\n",
        Status::INTERNAL_SERVER_ERROR => "500 Internal Server Error\n",
        Status::NOT_IMPLEMENTED => "501 Not Implemented\n",
        Status::SERVICE_UNAVAILABLE => "503 Service Unavailable\n",
        Status::HTTP_VERSION_NOT_SUPPORTED => "505 HTTP Version Not Supported\n",
        Status::NOT_FOUND => "404 Not Found\n",
        Status::METHOD_NOT_ALLOWED => "405 Method Not Allowed\n",
        _ => "",
    };
    Response::new(if text.is_empty() { Body::empty() } else { Body::from_static(text.as_bytes()) })
        .status(status)
        .content_type(ContentType::Text)
}
