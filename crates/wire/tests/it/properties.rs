//! Properties over random messages: what one side writes the other reads, and nothing ever depends on cuts.

use crate::{checks, differential};
use proptest::prelude::*;
use ringroad_wire::{
    Body, BodySize, Encoder, Event, FieldBlock, Method, ReplyTo, Requests, ResponseEvent, Responses, Scratch,
    Status, Version,
};

/// Pieces that make up messages, good and bad, so that random sequences of them go deep.
fn fragments() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        8 => prop::sample::select(vec![
            &b"GET "[..], b"POST ", b"HEAD ", b"OPTIONS ", b"CONNECT ", b"/", b"/a?b", b"*", b"http://a/b", b"a:80",
            b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 204 \r\n", b"HTTP/1.1 100 \r\n",
            b"Host: a\r\n", b"Host: b\r\n", b"Content-Length: 5\r\n", b"Content-Length: 0\r\n",
            b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n", b"Connection: keep-alive\r\n",
            b"Expect: 100-continue\r\n", b"X: y\r\n", b"X:\t y \t\r\n", b": \r\n", b" x\r\n",
        ]).prop_map(<[u8]>::to_vec),
        4 => Just(b"\r\n".to_vec()),
        3 => prop::sample::select(vec![
            &b"0\r\n"[..], b"5\r\nhello\r\n", b"5;a=b\r\nhello\r\n", b"5;a=\"b\"\r\n", b"hello", b"0\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n",
        ]).prop_map(<[u8]>::to_vec),
        2 => prop::collection::vec(any::<u8>(), 1..4),
    ];
    prop::collection::vec(piece, 0..14).prop_map(|pieces| pieces.concat())
}

/// A good message with one byte changed, lost or doubled.
fn mutants() -> impl Strategy<Value = Vec<u8>> {
    let good = prop::sample::select(vec![
        &b"GET /a?b HTTP/1.1\r\nHost: example.org:80\r\nAccept: */*\r\n\r\n"[..],
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\nhello worldGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;a=\"b\"\r\nhello\r\n0\r\nX: y\r\n\r\n",
        b"GET http://a/b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    ]);
    (good, any::<prop::sample::Index>(), any::<u8>(), 0..3).prop_map(|(good, place, byte, kind)| {
        let place = place.index(good.len());
        let mut bytes = good.to_vec();
        match kind {
            0 => bytes[place] = byte,
            1 => drop(bytes.remove(place)),
            _ => bytes.insert(place, byte),
        }
        bytes
    })
}

fn token() -> impl Strategy<Value = String> {
    "[!#$%&'*+.^_`|~0-9A-Za-z-]{1,20}"
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    let byte =
        any::<u8>().prop_filter("no control", |byte| *byte == b'\t' || (*byte >= 0x20 && *byte != 0x7f));
    prop::collection::vec(byte, 0..40)
}

/// Header lines that a user may write.
fn fields() -> impl Strategy<Value = Vec<(String, Vec<u8>)>> {
    let meaning = ["host", "upgrade", "connection", "content-length", "transfer-encoding", "expect"];
    let free = move |(name, _): &(String, Vec<u8>)| !meaning.contains(&name.to_ascii_lowercase().as_str());
    prop::collection::vec((token(), value()).prop_filter("not for users", free), 0..8)
}

/// The pieces of a body, announced or not.
fn body() -> impl Strategy<Value = (Vec<Vec<u8>>, bool)> {
    (prop::collection::vec(prop::collection::vec(any::<u8>(), 0..30), 0..5), any::<bool>())
}

fn size_of_body(pieces: &[Vec<u8>], announced: bool) -> BodySize {
    if announced { BodySize::Known(pieces.concat().len() as u64) } else { BodySize::Unknown }
}

fn trimmed(fields: &[(String, Vec<u8>)]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let trim = |value: &Vec<u8>| {
        let from = value.iter().position(|byte| !blank(byte)).unwrap_or(value.len());
        let to = value.iter().rposition(|byte| !blank(byte)).map_or(from, |last| last + 1);
        value[from..to].to_vec()
    };
    fields.iter().map(|(name, value)| (name.as_bytes().to_vec(), trim(value))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_messages_pass_every_check(bytes in fragments()) {
        checks::requests(&bytes);
        checks::responses(&bytes);
        checks::chunked(&bytes);
        differential::httparse(&bytes);
        differential::hyper(&bytes);
    }

    #[test]
    fn messages_with_one_wrong_byte_pass_every_check(bytes in mutants()) {
        checks::requests(&bytes);
        differential::httparse(&bytes);
        differential::hyper(&bytes);
    }

    #[test]
    fn random_bytes_pass_every_check(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        checks::requests(&bytes);
        checks::responses(&bytes);
        checks::chunked(&bytes);
        differential::httparse(&bytes);
    }

    #[test]
    fn a_request_written_is_the_request_read(
        method in prop::sample::select(vec![Method::Get, Method::Post, Method::Put, Method::Delete, Method::Patch]),
        path in "/[!-~]{0,30}",
        fields in fields(),
        (pieces, announced) in body(),
        cut in any::<prop::sample::Index>(),
    ) {
        let path: String = path.chars().filter(|character| !"\"<>#".contains(*character)).collect();
        let mut bytes = Vec::new();
        let mut encoder = Encoder::request(&mut bytes, method, &path, "a:80").unwrap();
        for (name, value) in &fields {
            encoder.field(name, value).unwrap();
        }
        let mut body = encoder.finish(size_of_body(&pieces, announced));
        for piece in &pieces {
            body.data(&mut bytes, piece).unwrap();
        }
        body.end(&mut bytes).unwrap();

        let mut scratch = Scratch::default();
        let mut requests = Requests::new();
        let mut read = Vec::new();
        let mut ended = false;
        let mut at = 0;
        for end in [cut.index(bytes.len() + 1), bytes.len()] {
            loop {
                match requests.next(&mut scratch, &bytes[..end], &mut at).unwrap() {
                    Some(Event::Head(head)) => {
                        prop_assert_eq!((head.method(), head.target()), (method, path.as_str()));
                        prop_assert_eq!(head.fields().get("host"), Some(&b"a:80"[..]));
                        let got: Vec<_> = head.fields().iter().skip(1).take(fields.len())
                            .map(|field| (field.name.to_vec(), field.value.to_vec())).collect();
                        prop_assert_eq!(got, trimmed(&fields));
                        ended = head.body() == Body::Empty;
                    }
                    Some(Event::Data(data)) => read.extend_from_slice(data),
                    Some(Event::End(_)) => ended = true,
                    None => break,
                }
            }
        }
        prop_assert!(ended && at == bytes.len());
        prop_assert_eq!(read, pieces.concat());
    }

    #[test]
    fn a_response_written_is_the_response_read(
        code in 200u16..600,
        method in prop::sample::select(vec![Method::Get, Method::Head, Method::Post]),
        old in any::<bool>(),
        keep_alive in any::<bool>(),
        fields in fields(),
        (pieces, announced) in body(),
    ) {
        let status = Status::new(code).unwrap();
        let version = if old { Version::Http10 } else { Version::Http11 };
        let pieces = if status.forbids_body() { Vec::new() } else { pieces };
        let block = FieldBlock::of(fields).unwrap();
        let mut bytes = Vec::new();
        let mut encoder = Encoder::response(&mut bytes, status, ReplyTo { method, version, keep_alive });
        encoder.block(&block);
        let mut body = encoder.finish(size_of_body(&pieces, announced));
        for piece in &pieces {
            body.data(&mut bytes, piece).unwrap();
        }
        body.end(&mut bytes).unwrap();

        let mut scratch = Scratch::default();
        let mut responses = Responses::new();
        responses.begin(method).unwrap();
        let mut read = Vec::new();
        let mut at = 0;
        let mut heads = 0;
        loop {
            match responses.next(&mut scratch, &bytes, &mut at).unwrap() {
                Some(ResponseEvent::Head(head)) => {
                    heads += 1;
                    prop_assert_eq!(head.status(), status);
                    let framed_by_close = head.body() == Body::UntilClose;
                    prop_assert_eq!(head.keep_alive(), body.keep_alive() && !framed_by_close);
                    if head.body() == Body::Empty {
                        break;
                    }
                }
                Some(ResponseEvent::Data(data)) => read.extend_from_slice(data),
                Some(ResponseEvent::Interim(_)) => prop_assert!(false, "none was written"),
                Some(ResponseEvent::End(_)) | None => break,
            }
        }
        prop_assert!(responses.end_of_input().is_ok());
        prop_assert_eq!((heads, at), (1, bytes.len()));
        let sent = if method == Method::Head { Vec::new() } else { pieces.concat() };
        prop_assert_eq!(read, sent);
    }
}
