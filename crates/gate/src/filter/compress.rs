//! `compress`: bodies are compressed on the way out, as the client accepts it.
//!
//! A body that is there as a whole and small is compressed at once and keeps a length; any other is
//! compressed piece by piece as it is sent. When its source has nothing for the moment, what has come so far
//! is flushed, so that streams of events pass without delay. An entity tag becomes weak, since the bytes are
//! others.
//!
//! A part is one of the plain bytes, so the whole is sent where a client could take it for the rest of a
//! compressed answer: see [`continues_another_form`].

use crate::chain::{Answering, Builder, Filter, Step};
use crate::coding::{self, Coding};
use crate::feature::{Configured, Declaration, Feature, Reading, Scope, same};
use crate::flow::{Flow, Local};
use crate::stage::Stage;
use crate::words;
use brotli::CompressorWriter;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_core::Stream;
use ringroad_http::{Body, BoxError, Method, Piece, Response, Status};
use ringroad_settings::{Key, Section, Table, Value, value};
use std::any::Any;
use std::io::{self, Write};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

pub(super) static DECLARATION: Declaration = Declaration {
    key: Key {
        name: "compress",
        form: "true, or a table as `{ types = [\"text/*\"], min = \"2K\" }`",
        default: "-",
        meaning: "Compresses answers for clients that accept it, see below. Files with compressed siblings are sent as those.",
    },
    tables: &[&TABLE],
    scope: Scope::Everywhere,
    read,
    named: None,
};

static TABLE: Table = Table {
    name: "compress = { … }",
    meaning: "Compression of answers with status 200 to 299 that have no coding yet, are no part of a whole, and do not say \
        `no-transform`. A client that accepts a coding and asks for the rest by date (`If-Range`, `If-Unmodified-Since`) gets the whole: \
        a date does not tell the compressed bytes from the plain ones.",
    keys: &[
        Key {
            name: "types",
            form: "media types, as `[\"text/*\", \"application/json\"]`",
            default: "text/*, and the usual ones of JSON, JavaScript, XML, SVG, WebAssembly, fonts",
            meaning: "What is compressed.",
        },
        Key { name: "min", form: "bytes", default: "1K", meaning: "The shortest body, where its length is known." },
        Key {
            name: "with",
            form: "codings, as `[\"zstd\", \"br\", \"gzip\"]`",
            default: "all",
            meaning: "Codings to use; of those that a client likes equally, `br`, `zstd`, `gzip` in this order.",
        },
        Key {
            name: "authorized",
            form: "true or false",
            default: "false",
            meaning: "Compresses answers to requests with `Authorization`, or that `auth` has accepted, as well. An answer that has both a secret and text of an attacker reveals the secret by its length (BREACH).",
        },
    ],
};

/// Types that are compressed by default, besides `text/*` and those that end in `+json` or `+xml`.
const TYPES: &[&str] = &[
    "application/json",
    "application/javascript",
    "application/xml",
    "application/x-ndjson",
    "application/manifest+json",
    "application/wasm",
    "application/vnd.ms-fontobject",
    "image/svg+xml",
    "image/bmp",
    "image/x-icon",
    "font/ttf",
    "font/otf",
];

/// A body of so many bytes is compressed at once.
const WHOLE_BYTES_MAX: usize = 64 * 1024;

/// So much is compressed between two looks at other connections.
const STEP_BYTES: usize = 32 * 1024;

fn read(section: &Section<'_>, _: &Reading<'_>) -> Option<Arc<dyn Feature>> {
    let name = DECLARATION.key.name;
    let plain = section.read(name, |value| {
        if value.is_table() || value::truth(value) == Ok(true) {
            Ok(!value.is_table())
        } else {
            Err(value::found("true or a table", value))
        }
    })?;
    let mut settings = Compress { types: None, min: 1024, with: coding::ALL_BITS, authorized: false };
    if plain {
        return Some(Arc::new(settings));
    }
    let mut table = section.table(name)?;
    table.describe(&TABLE);
    settings.types = table.read("types", |value| value::some(value, "media types", media_type));
    if let Some(min) = table.read("min", |value| value::bytes(value, 0, u64::MAX)) {
        settings.min = min;
    }
    let words = Coding::ALL.map(|coding| (coding.name(), coding));
    let with = table.read("with", |value| value::some(value, "codings", |value| value::one_of(value, &words)));
    if let Some(with) = with {
        settings.with = with.iter().fold(0, |set, coding| set | coding.bit());
    }
    settings.authorized = table.read("authorized", value::truth).unwrap_or(false);
    table.finish();
    Some(Arc::new(settings))
}

fn media_type(value: &Value<'_>) -> Result<String, String> {
    let text = value::text(value)?.to_ascii_lowercase();
    let is_one = text.split_once('/').is_some_and(|(kind, sub)| !kind.is_empty() && !sub.is_empty())
        && !text.contains([';', ' ', ',']);
    is_one.then_some(text.clone()).ok_or_else(|| format!("expected a media type, as \"text/*\", found {text:?}"))
}

#[derive(Debug, PartialEq)]
struct Compress {
    types: Option<Vec<String>>,
    min: u64,
    /// A set of [`Coding::bit`]s.
    with: u8,
    authorized: bool,
}

impl Compress {
    fn takes_type(&self, content_type: &[u8]) -> bool {
        let text = String::from_utf8_lossy(content_type).to_ascii_lowercase();
        let kind = text.split(';').next().unwrap_or_default().trim();
        match &self.types {
            Some(types) => types.iter().any(|own| match own.strip_suffix('*') {
                Some(start) => kind.starts_with(start),
                None => kind == own,
            }),
            None => {
                kind.starts_with("text/")
                    || kind.ends_with("+json")
                    || kind.ends_with("+xml")
                    || TYPES.contains(&kind)
            }
        }
    }

    /// Returns whether an answer is one that may be compressed, whatever the client accepts.
    fn takes(&self, flow: &Flow, response: &Response) -> bool {
        let status = response.status_code();
        let no_transform = |value: &[u8]| {
            value.to_ascii_lowercase().windows(12).any(|part| part == b"no-transform")
        };
        (200..300).contains(&status.code())
            && !status.forbids_body()
            && status != Status::PARTIAL_CONTENT
            && response.header_value("content-encoding").is_none()
            && response.header_value("content-range").is_none()
            && response.header_value("content-type").is_some_and(|kind| self.takes_type(kind))
            && !response.header_value("cache-control").is_some_and(no_transform)
            && (self.authorized || !is_authorized(flow))
    }
}

/// Returns whether the answer may hold a secret of the client: it has shown a secret, in whatever line.
fn is_authorized(flow: &Flow) -> bool {
    flow.context.known || flow.context.subject.is_some() || flow.request.headers().get("authorization").is_some()
}

impl Configured for Compress {
    fn same_as(&self, other: &dyn Any) -> bool {
        same(self, other)
    }
}

impl Feature for Compress {
    fn install(self: Arc<Self>, _: &Rc<Local>, chain: &mut Builder) {
        chain.add(Stage::Shape, Rc::new(Compressor(self)));
    }
}

struct Compressor(Arc<Compress>);

impl Filter for Compressor {
    fn request<'a>(&'a self, flow: &'a mut Flow) -> Step<'a> {
        if continues_another_form(flow) && coding::accepted(flow.request.headers(), self.0.with).next().is_some() {
            // The whole is always right (RFC 9110 §14.2).
            flow.request.remove_header("Range");
            flow.request.remove_header("If-Range");
        }
        Step::Next
    }

    fn response<'a>(&'a self, flow: &'a mut Flow, mut response: Response) -> Answering<'a> {
        match response.status_code() {
            Status::NOT_MODIFIED => return Answering::Now(unchanged(flow, response)),
            // A part of what another client gets compressed.
            Status::PARTIAL_CONTENT
                if response.header_value("content-type").is_some_and(|kind| self.0.takes_type(kind)) =>
            {
                words::vary(&mut response, "Accept-Encoding");
            }
            _ => {}
        }
        if !self.0.takes(flow, &response) || response.body().size().is_some_and(|size| size < self.0.min) {
            return Answering::Now(response);
        }
        words::vary(&mut response, "Accept-Encoding");
        let accepted = coding::accepted(flow.request.headers(), self.0.with).next();
        let Some(coding) = accepted else { return Answering::Now(response) };
        let body = response.take_body();
        if flow.request.method() == Method::Head {
            // The length that GET would have is not known, and another one must not be told (RFC 9110 §8.6).
            response.set_body(Body::left_out(None));
            return Answering::Now(described(coding, response));
        }
        let whole = body.as_bytes().filter(|bytes| bytes.len() <= WHOLE_BYTES_MAX);
        let compressed = match whole {
            Some(bytes) => match coded(coding, bytes) {
                Ok(coded) => Body::from(coded),
                Err(_) => {
                    response.set_body(body);
                    return Answering::Now(response);
                }
            },
            None => match Encoder::new(coding) {
                Ok(encoder) => Body::stream(Compressed {
                    source: body.into_pieces(),
                    encoder: Some(encoder),
                    piece: None,
                    dirty: false,
                    trailers: None,
                }),
                Err(_) => {
                    response.set_body(body);
                    return Answering::Now(response);
                }
            },
        };
        response.set_body(compressed);
        Answering::Now(described(coding, response))
    }
}

/// Returns whether a part is asked for that may be joined with what came compressed: a date, and a weak tag
/// that is the endpoint's own, name the compressed bytes as well as the plain ones. The steps behind this one
/// and the endpoint know the plain ones only.
fn continues_another_form(flow: &Flow) -> bool {
    let fields = flow.request.headers();
    if fields.get("range").is_none() {
        return false;
    }
    match fields.get("if-range") {
        Some(state) => !state.starts_with(b"\""),
        None => fields.get("if-match").is_none() && fields.get("if-unmodified-since").is_some(),
    }
}

/// Returns the lines of a compressed answer.
fn described(coding: Coding, mut response: Response) -> Response {
    // All of these are constants, or a value that was one before.
    let _ = response.add_header("Content-Encoding", coding.name());
    if let Some(weak) = weak_tag(&response) {
        let _ = response.set_header("ETag", weak);
    }
    response.remove_header("Accept-Ranges");
    for name in ["Content-MD5", "Digest", "Content-Digest"] {
        response.remove_header(name);
    }
    response
}

/// Returns the tag of the compressed answer, if that of this one is strong.
fn weak_tag(response: &Response) -> Option<Vec<u8>> {
    let tag = response.header_value("etag").filter(|tag| !tag.starts_with(b"W/"))?;
    Some([b"W/".as_slice(), tag].concat())
}

/// 304 has the lines that 200 would have (RFC 9110 §15.4.5). Whether that would be compressed cannot be seen
/// from it: it is, if the client asks with the tag that only a compressed answer has.
fn unchanged(flow: &Flow, mut response: Response) -> Response {
    words::vary(&mut response, "Accept-Encoding");
    if let Some(weak) = weak_tag(&response) {
        let asked = flow.request.headers().get_all("if-none-match");
        let mut words = asked.flat_map(|list| list.split(|byte| *byte == b','));
        if words.any(|word| word.trim_ascii() == weak) {
            // It was a value before.
            let _ = response.set_header("ETag", weak);
        }
    }
    response
}

/// One of the codings at work.
enum Encoder {
    Gzip(GzEncoder<Vec<u8>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
    Brotli(Box<CompressorWriter<Vec<u8>>>),
}

impl Encoder {
    // Levels at which each costs about the same time for a page.
    fn new(coding: Coding) -> io::Result<Encoder> {
        Ok(match coding {
            Coding::Gzip => Encoder::Gzip(GzEncoder::new(Vec::new(), Compression::new(5))),
            Coding::Zstd => Encoder::Zstd(zstd::stream::write::Encoder::new(Vec::new(), 3)?),
            Coding::Brotli => Encoder::Brotli(Box::new(CompressorWriter::new(Vec::new(), 4096, 4, 20))),
        })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Encoder::Gzip(encoder) => encoder.write_all(bytes),
            Encoder::Zstd(encoder) => encoder.write_all(bytes),
            Encoder::Brotli(encoder) => encoder.write_all(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Encoder::Gzip(encoder) => encoder.flush(),
            Encoder::Zstd(encoder) => encoder.flush(),
            Encoder::Brotli(encoder) => encoder.flush(),
        }
    }

    /// Returns what came out so far.
    fn take(&mut self) -> Vec<u8> {
        std::mem::take(match self {
            Encoder::Gzip(encoder) => encoder.get_mut(),
            Encoder::Zstd(encoder) => encoder.get_mut(),
            Encoder::Brotli(encoder) => encoder.get_mut(),
        })
    }

    fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Encoder::Gzip(encoder) => encoder.finish(),
            Encoder::Zstd(encoder) => encoder.finish(),
            Encoder::Brotli(encoder) => Ok(encoder.into_inner()),
        }
    }
}

fn coded(coding: Coding, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = Encoder::new(coding)?;
    encoder.write(bytes)?;
    encoder.finish()
}

/// A body that is compressed while it is sent.
struct Compressed {
    source: Pin<Box<dyn Stream<Item = Result<Piece, BoxError>>>>,
    /// `None` behind its end.
    encoder: Option<Encoder>,
    /// A piece of the source, and how much of it was taken.
    piece: Option<(ringroad_http::Chunk, usize)>,
    /// There may be bytes in the encoder that were not flushed.
    dirty: bool,
    trailers: Option<Piece>,
}

impl Stream for Compressed {
    type Item = Result<Piece, BoxError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            let Some(encoder) = &mut this.encoder else { return Poll::Ready(this.trailers.take().map(Ok)) };
            if let Some((piece, taken)) = &mut this.piece {
                let end = piece.len().min(*taken + STEP_BYTES);
                let written = encoder.write(piece.get(*taken..end).unwrap_or_default());
                (*taken, this.dirty) = (end, true);
                if end == piece.len() {
                    this.piece = None;
                }
                let out = encoder.take();
                match written {
                    Err(why) => return Poll::Ready(Some(Err(why.into()))),
                    Ok(()) if !out.is_empty() => return Poll::Ready(Some(Ok(Piece::Data(out.into())))),
                    Ok(()) => continue,
                }
            }
            match this.source.as_mut().poll_next(context) {
                Poll::Ready(Some(Ok(Piece::Data(chunk)))) => this.piece = Some((chunk, 0)),
                Poll::Ready(Some(Err(why))) => return Poll::Ready(Some(Err(why))),
                Poll::Pending if this.dirty => {
                    this.dirty = false;
                    let flushed = encoder.flush();
                    let out = encoder.take();
                    match flushed {
                        Err(why) => return Poll::Ready(Some(Err(why.into()))),
                        Ok(()) if !out.is_empty() => return Poll::Ready(Some(Ok(Piece::Data(out.into())))),
                        Ok(()) => return Poll::Pending,
                    }
                }
                Poll::Pending => return Poll::Pending,
                end @ Poll::Ready(None | Some(Ok(Piece::Trailers(_)))) => {
                    if let Poll::Ready(Some(Ok(trailers))) = end {
                        this.trailers = Some(trailers);
                    }
                    let Some(encoder) = this.encoder.take() else { return Poll::Ready(None) };
                    return Poll::Ready(match encoder.finish() {
                        Ok(out) if out.is_empty() => this.trailers.take().map(Ok),
                        Ok(out) => Some(Ok(Piece::Data(out.into()))),
                        Err(why) => Some(Err(why.into())),
                    });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ringroad_http::{FieldBlock, Request, RequestBody};
    use std::io::Read;
    use std::task::Waker;
    use std::time::Instant;

    fn decoded(coding: Coding, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        match coding {
            Coding::Gzip => drop(flate2::read::GzDecoder::new(bytes).read_to_end(&mut out)),
            Coding::Zstd => drop(zstd::stream::read::Decoder::new(bytes).unwrap().read_to_end(&mut out)),
            Coding::Brotli => drop(brotli::Decompressor::new(bytes, 4096).read_to_end(&mut out)),
        }
        out
    }

    /// A source that has nothing for the moment between two pieces.
    struct Halting(Vec<Option<Vec<u8>>>);

    impl Stream for Halting {
        type Item = Result<Piece, BoxError>;

        fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
            match if self.0.is_empty() { None } else { Some(self.0.remove(0)) } {
                None => Poll::Ready(None),
                Some(None) => Poll::Pending,
                Some(Some(bytes)) => Poll::Ready(Some(Ok(Piece::Data(bytes.into())))),
            }
        }
    }

    #[test]
    fn what_has_come_is_flushed_when_the_source_halts_and_all_of_it_is_the_whole() {
        let large: Vec<u8> = (0..200_000_u32).flat_map(|n| n.wrapping_mul(n).to_le_bytes()).collect();
        for coding in Coding::ALL {
            let source =
                Halting(vec![Some(b"event one\n\n".to_vec()), None, Some(large.clone()), None, Some(b"end".to_vec())]);
            let mut stream = Compressed {
                source: Box::pin(source),
                encoder: Some(Encoder::new(coding).unwrap()),
                piece: None,
                dirty: false,
                trailers: None,
            };
            let (mut out, mut halts) = (Vec::new(), 0);
            let mut task = Context::from_waker(Waker::noop());
            loop {
                match Pin::new(&mut stream).poll_next(&mut task) {
                    Poll::Ready(None) => break,
                    Poll::Ready(Some(Ok(Piece::Data(bytes)))) => {
                        out.extend_from_slice(&bytes);
                        if out.len() < 200 && halts == 0 {
                            // All of the event can be read before the stream has more.
                            let so_far = decoded(coding, &out);
                            if so_far == b"event one\n\n" {
                                halts += 1;
                            }
                        }
                    }
                    Poll::Ready(Some(other)) => panic!("{other:?}"),
                    Poll::Pending => {}
                }
            }
            assert_eq!(halts, 1, "{coding:?}");
            let expected = [b"event one\n\n".as_slice(), &large, b"end"].concat();
            assert!(decoded(coding, &out) == expected, "{coding:?}");
        }
    }

    #[test]
    fn types_are_taken_with_their_parameters_and_by_their_beginning() {
        let of = |types: Option<&[&str]>| Compress {
            types: types.map(|types| types.iter().map(|one| (*one).to_owned()).collect()),
            min: 0,
            with: 0,
            authorized: false,
        };
        for (kind, usual, own) in [
            ("text/html; charset=utf-8", true, true),
            ("TEXT/css", true, true),
            ("application/problem+json", true, false),
            ("application/pdf", false, true),
            ("image/png", false, false),
            ("", false, false),
        ] {
            assert_eq!(of(None).takes_type(kind.as_bytes()), usual, "{kind}");
            assert_eq!(of(Some(&["text/*", "application/pdf"])).takes_type(kind.as_bytes()), own, "{kind}");
        }
    }

    #[test]
    fn answers_to_requests_that_show_a_secret_are_left_as_they_are() {
        let mut compress = Compress { types: None, min: 0, with: coding::ALL_BITS, authorized: false };
        let flow = |lines: &[(&str, &str)], subject: Option<&str>| {
            let lines = FieldBlock::of(lines.iter().copied()).unwrap();
            let request = Request::from_parts("GET", "/", "a", &lines, RequestBody::empty()).unwrap();
            let mut flow = Flow::new(request, &Local::new(Instant::now()), &Rc::default());
            flow.context.subject = subject.map(Rc::from);
            flow
        };
        let page = Response::text("x");
        for (flow, taken) in [
            (flow(&[], None), true),
            (flow(&[("Authorization", "Bearer x")], None), false),
            // A key in a line of another name, as `auth` has found it.
            (flow(&[("X-Key", "x")], Some("a@example.org")), false),
        ] {
            assert_eq!(compress.takes(&flow, &page), taken);
            compress.authorized = true;
            assert!(compress.takes(&flow, &page));
            compress.authorized = false;
        }
    }
}
