//! Encoding of responses. A small body is copied behind its head into one buffer. A large body is sent by
//! itself. A stream is sent piece by piece.

use super::ready::{DATE_BYTES, HeadCache, MEMO_BYTES_MAX, ORDINARY, put_ordinary};
use crate::message::{
    ALONE_BYTES_MIN, Chunk, ContentType, FileBody, Inner, Pieces, Prepared, ReadyHead, Response, Switch,
    Takeover,
};
use crate::pool;
use ringroad_wire::{
    BodyEncoder, BodySize, EncodeError, Encoder, FieldBlock, Method, ReplyTo, Status, Version,
};

/// The part of a response that is still to be sent, after the buffer.
pub(crate) enum Unsent {
    /// All of it is in the buffer.
    Nothing,
    /// These bytes.
    Bytes(Chunk),
    /// These pieces.
    Pieces(Box<Pieces>, BodyEncoder),
    /// This part of a file.
    File(Box<FileBody>),
    /// Nothing; afterwards the connection is handed over.
    Switch(Takeover),
}

/// Writes an ordinary response with a short `'static` body, usually by copying the last one. Returns `false`
/// if it is another kind of response; nothing is written then.
#[inline]
pub(crate) fn write_known(out: &mut Vec<u8>, cache: &HeadCache, reply: ReplyTo, response: &Response) -> bool {
    let Inner::Whole(chunk) = &response.body.0 else { return false };
    let Some(body) = chunk.as_static().filter(|body| body.len() <= MEMO_BYTES_MAX) else { return false };
    if response.close || response.shared.is_some() || response.on_sent.is_some() {
        return false;
    }
    let Some(ready) = cache.ready(reply, response) else { return false };
    out.extend_from_slice(cache.memo.borrow_mut().answer(ready, response.content_type, body));
    true
}

/// Writes `response` to the end of `out`, except a part that is sent by itself. Returns that part, and
/// whether the connection is kept.
#[inline]
pub(crate) fn response(
    out: &mut Vec<u8>,
    cache: &HeadCache,
    mut reply: ReplyTo,
    response: Response,
) -> (Unsent, bool) {
    if response.close {
        reply.keep_alive = false;
    }
    if let Some(shared) = &response.shared {
        reply.keep_alive &= !shared.close;
        let unsent = write_shared(out, cache, reply, shared, &response.fields);
        pool::give_block(response.fields);
        return (unsent, reply.keep_alive);
    }
    let ready = cache.ready(reply, &response);
    let Response { status, content_type, fields, body, .. } = response;
    let (rest, keep_alive) = match body.0 {
        Inner::Whole(chunk) => {
            if let Some(ready) = ready.filter(|_| chunk.len() < ALONE_BYTES_MIN) {
                put_ordinary(out, ready, &chunk);
                chunk.recycle();
                return (Unsent::Nothing, true);
            }
            let size = BodySize::Known(chunk.len() as u64);
            let mut encoder = head(out, cache, reply, status, content_type, &fields, size);
            let keep_alive = encoder.keep_alive();
            (whole(out, &mut encoder, chunk), keep_alive)
        }
        Inner::Empty => {
            let encoder = head(out, cache, reply, status, None, &fields, BodySize::Known(0));
            (Unsent::Nothing, encoder.keep_alive())
        }
        Inner::Stream(pieces) => {
            let size = pieces.size.map_or(BodySize::Unknown, BodySize::Known);
            let encoder = head(out, cache, reply, status, content_type, &fields, size);
            let keep_alive = encoder.keep_alive();
            (if encoder.is_sent() { Unsent::Pieces(pieces, encoder) } else { Unsent::Nothing }, keep_alive)
        }
        Inner::File(part) => {
            let size = BodySize::Known(part.left());
            let mut encoder = head(out, cache, reply, status, content_type, &fields, size);
            // `false`, or an error if the status forbids a body: none of it is sent.
            let is_sent = encoder.frame(out, part.left()).unwrap_or(false);
            (if is_sent { Unsent::File(part) } else { Unsent::Nothing }, encoder.keep_alive())
        }
        Inner::Switch(switch) => {
            let Switch { protocol, takeover } = *switch;
            let mut head = begin(out, cache, reply, status, None, &fields);
            // Checked when the response was made.
            let _ = head.upgrade(&protocol);
            let keep_alive = head.finish(BodySize::Known(0)).keep_alive();
            let switches = status == Status::SWITCHING_PROTOCOLS;
            (if switches { Unsent::Switch(takeover) } else { Unsent::Nothing }, keep_alive)
        }
    };
    pool::give_block(fields);
    (rest, keep_alive)
}

#[inline]
pub(super) fn head(
    out: &mut Vec<u8>,
    cache: &HeadCache,
    reply: ReplyTo,
    status: Status,
    content_type: Option<ContentType>,
    fields: &FieldBlock,
    size: BodySize,
) -> BodyEncoder {
    begin(out, cache, reply, status, content_type, fields).finish(size)
}

/// Returns a head up to the lines that follow from the body.
#[inline]
fn begin<'a>(
    out: &'a mut Vec<u8>,
    cache: &HeadCache,
    reply: ReplyTo,
    status: Status,
    content_type: Option<ContentType>,
    fields: &FieldBlock,
) -> Encoder<'a> {
    let mut head = Encoder::response(out, status, reply);
    if let Some(today) = &cache.today
        && !Response::is_dated(fields)
    {
        head.date(&today.line);
    }
    // RFC 9110 §15.4.5: a 304 has only those lines about the content that a cache compares.
    let content_type = content_type.filter(|_| !status.forbids_body());
    if let Some(line) = content_type.and_then(|kind| cache.content_types.get(kind as usize)) {
        head.block(line);
    }
    if !fields.bytes().is_empty() {
        head.block(fields);
        // No other answer has this line in its block.
        if status == Status::UPGRADE_REQUIRED && fields.get("upgrade").is_some() {
            head.upgrade_named();
        }
    }
    head
}

/// Writes a complete body into the buffer if it is small.
#[inline]
fn whole(out: &mut Vec<u8>, encoder: &mut BodyEncoder, chunk: Chunk) -> Unsent {
    if chunk.len() >= ALONE_BYTES_MIN {
        return match encoder.frame(out, chunk.len() as u64) {
            Ok(true) => Unsent::Bytes(chunk),
            // Not after HEAD, nor with 204 and 304.
            _ => Unsent::Nothing,
        };
    }
    // An error means that the status forbids a body: none of it is sent.
    let _: Result<(), EncodeError> = encoder.data(out, &chunk);
    chunk.recycle();
    Unsent::Nothing
}

/// Writes a shared response, with the `lines` of this one; usually by copying what was encoded before.
#[inline]
fn write_shared(
    out: &mut Vec<u8>,
    cache: &HeadCache,
    reply: ReplyTo,
    shared: &Prepared,
    lines: &FieldBlock,
) -> Unsent {
    let is_ordinary = reply.keep_alive
        && reply.version == Version::Http11
        && !matches!(reply.method, Method::Head | Method::Connect);
    if !is_ordinary {
        return write_prepared(out, cache, reply, shared, lines);
    }
    let ready = shared.ready.get_or_init(|| {
        let mut text = Vec::new();
        // A large body is not in the text.
        let _ = write_prepared(&mut text, &HeadCache::new(false), ORDINARY, shared, &FieldBlock::new());
        let lines_at = text.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        ReadyHead { text, lines_at }
    });
    let (status_line, rest) = ready.text.split_at(ready.lines_at);
    out.reserve(ready.text.len() + lines.bytes().len() + DATE_BYTES + 8);
    out.extend_from_slice(status_line);
    if let Some(today) = &cache.today {
        out.extend_from_slice(b"Date: ");
        out.extend_from_slice(&today.text);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(lines.bytes());
    out.extend_from_slice(rest);
    match &shared.body {
        Some(body) if body.len() >= ALONE_BYTES_MIN => Unsent::Bytes(body.duplicate()),
        _ => Unsent::Nothing,
    }
}

/// Encodes a shared response from its parts.
fn write_prepared(
    out: &mut Vec<u8>,
    cache: &HeadCache,
    reply: ReplyTo,
    shared: &Prepared,
    lines: &FieldBlock,
) -> Unsent {
    let size = BodySize::Known(shared.body.as_ref().map_or(0, |body| body.len() as u64));
    let content_type = shared.content_type.filter(|_| shared.body.is_some());
    let mut head = begin(out, cache, reply, shared.status, content_type, lines);
    if !shared.fields.bytes().is_empty() {
        head.block(&shared.fields);
    }
    let mut encoder = head.finish(size);
    let body = shared.body.as_ref().map(Chunk::duplicate);
    body.map_or(Unsent::Nothing, |body| whole(out, &mut encoder, body))
}
