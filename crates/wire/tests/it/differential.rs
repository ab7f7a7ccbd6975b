//! Side by side with what others use: `httparse` for heads, hyper's server for whole connections.
//!
//! We may refuse what they take, being stricter. What we take they must take too and understand alike: where
//! two readers of the same bytes differ, requests are smuggled.

use crate::checks::{Entry, tell_requests};
use ringroad_wire::{Event, Form, Limits, Method, Requests, Scratch, Version};
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Every head we take, `httparse` takes, with the same end and the same parts; where it refuses a beginning,
/// we do.
pub(crate) fn httparse(bytes: &[u8]) {
    let mut scratch = Scratch::default();
    let mut requests = Requests::new();
    let mut at = 0;
    loop {
        let rest = &bytes[at..];
        let mut headers = [httparse::EMPTY_HEADER; 100];
        let mut theirs = httparse::Request::new(&mut headers);
        let from = at;
        match requests.next(&mut scratch, bytes, &mut at) {
            Ok(Some(Event::Head(head))) => {
                let known = with_known_version(rest);
                let outcome = theirs.parse(&known);
                assert_eq!(outcome, Ok(httparse::Status::Complete(at - from)), "{}", rest.escape_ascii());
                assert_eq!(theirs.method, Some(head.method_name()));
                assert_eq!(theirs.path, Some(head.target()));
                let version = if head.version() == Version::Http11 { 1 } else { 0 };
                assert_eq!(theirs.version, Some(version));
                let ours: Vec<_> = head.fields().iter().map(|field| (field.name, field.value)).collect();
                let theirs: Vec<_> =
                    theirs.headers.iter().map(|header| (header.name.as_bytes(), header.value)).collect();
                assert_eq!(ours, theirs);
            }
            Ok(Some(_)) => {}
            Ok(None) => {
                if requests.phase() == ringroad_wire::Phase::Head {
                    // It refuses another version at its first digit; we read the line, and answer 505.
                    let outcome = theirs.parse(rest);
                    let waits =
                        matches!(outcome, Ok(httparse::Status::Partial) | Err(httparse::Error::Version));
                    assert!(waits, "{outcome:?}: {}", rest.escape_ascii());
                }
                return;
            }
            Err(_) => return,
        }
    }
}

/// The same with a higher minor version of the first request as HTTP/1.1, as which we read it (RFC 9110
/// §2.5). httparse refuses it, and hyper with it.
fn with_known_version(bytes: &[u8]) -> Vec<u8> {
    let mut known = bytes.to_vec();
    let from = bytes.iter().position(|byte| !b"\r\n".contains(byte)).unwrap_or_default();
    let end = bytes[from..].windows(2).position(|pair| pair == b"\r\n").map_or(bytes.len(), |end| from + end);
    if let Some([b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor]) = known[from..end].last_chunk_mut::<8>() {
        *minor = (*minor).min(b'1');
    }
    known
}

/// One request as it was understood: method, target, body.
type Understood = (String, String, Vec<u8>);

/// Requests that both take are the same requests; and where neither refuses anything, there are as many.
pub(crate) fn hyper(bytes: &[u8]) {
    let Some((ours, refused)) = understood_by_us(bytes) else { return };
    let (theirs, they_refused) = understood_by_hyper(bytes);
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs, "{}", bytes.escape_ascii());
    }
    if !refused && !they_refused {
        assert_eq!(ours.len(), theirs.len(), "{}", bytes.escape_ascii());
    }
}

/// The complete requests, and whether something was refused or cut short. `None` where a comparison would
/// compare something else: hyper hands CONNECT over before it is answered, and knows no limit of a body.
fn understood_by_us(bytes: &[u8]) -> Option<(Vec<Understood>, bool)> {
    let limits = Limits { body_bytes: u64::MAX, extension_methods: true, ..Limits::default() };
    let mut scratch = Scratch::new(limits.clone());
    let mut requests = Requests::new();
    let mut understood = Vec::new();
    let mut open: Option<Understood> = None;
    let mut at = 0;
    while let Ok(Some(event)) = requests.next(&mut scratch, bytes, &mut at) {
        match event {
            Event::Head(head) => {
                if head.method() == Method::Connect {
                    return None;
                }
                let authority = head.authority().filter(|_| head.form() == Form::Absolute);
                // hyper's type puts the slash into an absolute target that has none.
                let path = if authority.is_some() && head.path() == "*" { "/" } else { head.path() };
                let one = (head.method_name().to_string(), target(authority, path, head.query()), Vec::new());
                if head.body() == ringroad_wire::Body::Empty {
                    understood.push(one);
                } else {
                    open = Some(one);
                }
            }
            Event::Data(data) => open.as_mut().unwrap().2.extend_from_slice(data),
            Event::End(_) => understood.extend(open.take()),
        }
    }
    let refused = matches!(tell_requests(bytes, &[], &limits).last(), Some(Entry::Failed(_)));
    Some((understood, refused))
}

/// The same from hyper's server, on a connection that is a slice of bytes.
fn understood_by_hyper(bytes: &[u8]) -> (Vec<Understood>, bool) {
    let understood = Rc::new(RefCell::new(Vec::new()));
    let sink = Rc::clone(&understood);
    let service = hyper::service::service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let sink = Rc::clone(&sink);
        async move {
            let (head, mut incoming) = request.into_parts();
            let mut body = Vec::new();
            while let Some(frame) =
                poll_fn(|context| hyper::body::Body::poll_frame(Pin::new(&mut incoming), context)).await
            {
                if let Ok(data) = frame?.into_data() {
                    body.extend_from_slice(&data);
                }
            }
            let uri = &head.uri;
            let target = target(uri.authority().map(|authority| authority.as_str()), uri.path(), uri.query());
            sink.borrow_mut().push((head.method.to_string(), target, body));
            Ok::<_, hyper::Error>(hyper::Response::new(String::new()))
        }
    });
    let io = Slice { input: bytes.to_vec(), at: 0 };
    let mut builder = hyper::server::conn::http1::Builder::new();
    let mut connection = pin!(builder.half_close(true).serve_connection(io, service));
    let mut context = Context::from_waker(Waker::noop());
    let mut outcome = Poll::Pending;
    for _ in 0..100_000 {
        outcome = connection.as_mut().poll(&mut context);
        if outcome.is_ready() {
            break;
        }
    }
    let understood = understood.borrow().clone();
    (understood, !matches!(outcome, Poll::Ready(Ok(()))))
}

/// What a target names, as text.
fn target(authority: Option<&str>, path: &str, query: Option<&str>) -> String {
    format!("{authority:?} {path:?} {query:?}")
}

/// Bytes to read, and a sink.
struct Slice {
    input: Vec<u8>,
    at: usize,
}

impl hyper::rt::Read for Slice {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut buffer: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        let left = &self.input[self.at..];
        let bytes = left.len().min(buffer.remaining());
        buffer.put_slice(&left[..bytes]);
        self.at += bytes;
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Write for Slice {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[test]
fn an_ordinary_connection_is_understood_alike() {
    let bytes = b"GET /a?b=c HTTP/1.1\r\nHost: a\r\nX:  y \r\n\r\n\
        POST /d HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello\
        POST /e HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n3;x=\"y\"\r\nabc\r\n0\r\nX: y\r\n\r\n\
        HEAD /f HTTP/1.0\r\nConnection: keep-alive\r\n\r\n\
        GET /g HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET /h HTTP/1.1\r\nHost: a\r\n\r\n";
    httparse(bytes);
    hyper(bytes);
    let (ours, refused) = understood_by_us(bytes).unwrap();
    let (theirs, they_refused) = understood_by_hyper(bytes);
    assert_eq!((ours.len(), theirs.len(), refused, they_refused), (5, 5, false, false));
    assert_eq!(ours[2].2, b"abc");
}
