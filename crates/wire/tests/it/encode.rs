//! What is written, to the byte, and that the sender is held to it.

use ringroad_wire::{
    BodySize, CONTINUE, DateLine, EncodeError, Encoder, FieldBlock, Method, ReplyTo, Status, Version,
};

const GET: ReplyTo = ReplyTo { method: Method::Get, version: Version::Http11, keep_alive: true };

/// A response in whole: its head, `data` as its body, its end.
fn response(status: Status, to: ReplyTo, size: BodySize, data: &[u8]) -> (String, bool) {
    let mut out = Vec::new();
    let mut body = Encoder::response(&mut out, status, to).finish(size);
    body.data(&mut out, data).unwrap();
    body.end(&mut out).unwrap();
    (String::from_utf8(out).unwrap(), body.keep_alive())
}

#[test]
fn the_framing_of_a_response_follows_from_status_method_and_version() {
    let old = ReplyTo { version: Version::Http10, ..GET };
    let head = ReplyTo { method: Method::Head, ..GET };
    let connect = ReplyTo { method: Method::Connect, ..GET };
    let closing = ReplyTo { keep_alive: false, ..GET };
    let known = BodySize::Known(2);
    for (status, to, size, data, expected, keep_alive) in [
        (Status::OK, GET, known, "hi", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", true),
        (Status::OK, GET, BodySize::Known(0), "", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", true),
        (
            Status::OK,
            GET,
            BodySize::Unknown,
            "hi",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
            true,
        ),
        (
            Status::OK,
            GET,
            BodySize::Unknown,
            "",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            true,
        ),
        (
            Status::OK,
            closing,
            known,
            "hi",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi",
            false,
        ),
        (
            Status::OK,
            old,
            known,
            "hi",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nhi",
            true,
        ),
        (Status::OK, old, BodySize::Unknown, "hi", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhi", false),
        (Status::OK, head, known, "hi", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", true),
        (Status::OK, head, BodySize::Unknown, "hi", "HTTP/1.1 200 OK\r\n\r\n", true),
        (Status::NO_CONTENT, GET, known, "", "HTTP/1.1 204 No Content\r\n\r\n", true),
        (Status::NOT_MODIFIED, GET, known, "", "HTTP/1.1 304 Not Modified\r\n\r\n", true),
        (Status::OK, connect, known, "", "HTTP/1.1 200 OK\r\n\r\n", true),
        (Status::CONTINUE, closing, known, "", "HTTP/1.1 100 Continue\r\n\r\n", true),
    ] {
        assert_eq!(response(status, to, size, data.as_bytes()), (expected.to_string(), keep_alive));
    }
    let (odd, _) = response(Status::new(299).unwrap(), GET, known, b"hi");
    assert_eq!(odd, "HTTP/1.1 299 \r\nContent-Length: 2\r\n\r\nhi");
    assert_eq!(CONTINUE, b"HTTP/1.1 100 Continue\r\n\r\n");
}

#[test]
fn the_framing_of_a_request_follows_from_its_method() {
    let request = |method, size| {
        let mut out = Vec::new();
        let body = Encoder::request(&mut out, method, "/", "a:80").unwrap().finish(size);
        (String::from_utf8(out).unwrap(), body.is_sent())
    };
    let head = |name: &str, line: &str| format!("{name} / HTTP/1.1\r\nHost: a:80\r\n{line}\r\n");
    let known = BodySize::Known;
    assert_eq!(request(Method::Get, known(0)), (head("GET", ""), false));
    assert_eq!(request(Method::Post, known(0)), (head("POST", "Content-Length: 0\r\n"), true));
    assert_eq!(request(Method::Delete, known(0)), (head("DELETE", ""), false));
    assert_eq!(request(Method::Get, known(5)), (head("GET", "Content-Length: 5\r\n"), true));
    assert_eq!(
        request(Method::Put, BodySize::Unknown),
        (head("PUT", "Transfer-Encoding: chunked\r\n"), true)
    );
    assert_eq!(request(Method::Trace, BodySize::Unknown), (head("TRACE", ""), false));
}

#[test]
fn lines_stand_in_the_order_they_were_given() {
    let mut out = b"before".to_vec();
    let date = DateLine::new("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
    let block = FieldBlock::of([("A", "1"), ("B", "")]).unwrap();
    let mut encoder = Encoder::response(&mut out, Status::SWITCHING_PROTOCOLS, GET);
    encoder.date(&date).block(&block).field("C", "\t3\u{e9}").unwrap().upgrade("websocket").unwrap();
    let _ = encoder.finish(BodySize::Known(0));
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "beforeHTTP/1.1 101 Switching Protocols\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nA: 1\r\nB: \r\n\
         C: \t3\u{e9}\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"
    );

    let mut out = Vec::new();
    let mut encoder = Encoder::request(&mut out, Method::Options, "*", "a").unwrap();
    encoder.close().upgrade("x").unwrap();
    let body = encoder.finish(BodySize::Known(0));
    assert!(!body.keep_alive());
    assert!(out.ends_with(b"Upgrade: x\r\nConnection: upgrade, close\r\n\r\n"));
}

#[test]
fn a_sender_is_held_to_the_length_it_announced() {
    let mut out = Vec::new();
    let mut body = Encoder::response(&mut out, Status::OK, GET).finish(BodySize::Known(5));
    out.clear();
    body.data(&mut out, b"hel").unwrap();
    assert_eq!(body.end(&mut out), Err(EncodeError::BodyTooShort));
    assert_eq!(body.data(&mut out, b"lo!"), Err(EncodeError::BodyTooLong));
    assert_eq!(body.data(&mut out, b"lo"), Ok(()));
    assert_eq!(body.end(&mut out), Ok(()));
    assert_eq!(out, b"hello");

    let mut none = Encoder::response(&mut out, Status::NO_CONTENT, GET).finish(BodySize::Known(0));
    assert_eq!(none.data(&mut out, b"x"), Err(EncodeError::BodyTooLong));
    assert!(!none.is_sent());
}

#[test]
fn chunks_may_be_sent_beside_the_encoder() {
    let mut out = Vec::new();
    let mut body = Encoder::response(&mut out, Status::OK, GET).finish(BodySize::Unknown);
    out.clear();
    assert_eq!(body.frame(&mut out, 26), Ok(true));
    assert_eq!(out, b"1a\r\n");
    out.extend_from_slice(b"abcdefghijklmnopqrstuvwxyz");
    assert_eq!(body.frame(&mut out, 0), Ok(false), "an empty chunk would be the last");
    body.data(&mut out, b"x").unwrap();
    let trailers = FieldBlock::of([("X", "y")]).unwrap();
    body.end_with(&mut out, &trailers).unwrap();
    assert_eq!(out, b"1a\r\nabcdefghijklmnopqrstuvwxyz\r\n1\r\nx\r\n0\r\nX: y\r\n\r\n");

    let forbidden = FieldBlock::of([("X", "y"), ("Set-Cookie", "a=b")]).unwrap();
    let before = out.clone();
    assert_eq!(body.end_with(&mut out, &forbidden), Err(EncodeError::Framing));
    assert_eq!(out, before);
}

#[test]
fn nothing_is_written_for_an_empty_name_or_an_odd_target() {
    let mut out = Vec::new();
    for target in ["/a b", "/a#b", "/\u{7f}", "/\r\n", "", "a:80", "*"] {
        assert_eq!(Encoder::request(&mut out, Method::Get, target, "a").err(), Some(EncodeError::Target));
    }
    assert_eq!(Encoder::request_named(&mut out, "", "/", "a").err(), Some(EncodeError::Name));
    assert_eq!(Encoder::request(&mut out, Method::Other, "/", "a").err(), Some(EncodeError::Name));
    let mut encoder = Encoder::response(&mut out, Status::OK, GET);
    assert_eq!(encoder.field("", "x").err(), Some(EncodeError::Name));
    assert_eq!(encoder.upgrade("").err(), Some(EncodeError::Value));
    drop(encoder);
    assert!(out.is_empty());
}

#[test]
fn a_head_that_is_dropped_leaves_nothing_behind() {
    let mut out = b"before".to_vec();
    let mut encoder = Encoder::response(&mut out, Status::OK, GET);
    encoder.field("A", "b").unwrap();
    drop(encoder);
    assert_eq!(out, b"before");
}

#[test]
fn a_block_is_emptied_and_filled_again() {
    let mut block = FieldBlock::of([("A", "1")]).unwrap();
    assert_eq!(block.push(b"B", b"\n"), Err(EncodeError::Value));
    assert_eq!(block.bytes(), b"A: 1\r\n");
    block.clear();
    block.push(b"B", b"2").unwrap();
    assert_eq!(block.bytes(), b"B: 2\r\n");
}

#[test]
fn every_encode_error_says_what_was_expected() {
    for error in [
        EncodeError::Name,
        EncodeError::Value,
        EncodeError::Framing,
        EncodeError::Target,
        EncodeError::Host,
        EncodeError::Date,
        EncodeError::BodyTooLong,
        EncodeError::BodyTooShort,
    ] {
        assert!(error.to_string().contains(": "), "{error}");
    }
}

#[test]
fn the_lines_of_a_block_are_read_removed_and_replaced() {
    let mut block = FieldBlock::of([("A", "1"), ("Bc", "x: y"), ("a", "2"), ("B", "")]).unwrap();
    let lines = |block: &FieldBlock| {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        block.iter().map(|line| (text(line.name), text(line.value))).collect::<Vec<_>>()
    };
    let told = |lines: &[(&str, &str)]| -> Vec<_> {
        lines.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    assert_eq!(lines(&block), told(&[("A", "1"), ("Bc", "x: y"), ("a", "2"), ("B", "")]));
    assert_eq!((block.get("BC"), block.get("b"), block.get("c")), (Some(&b"x: y"[..]), Some(&b""[..]), None));
    assert_eq!((block.remove("B"), block.remove("b")), (1, 0));
    block.set(b"a", b"3").unwrap();
    assert_eq!(lines(&block), told(&[("Bc", "x: y"), ("a", "3")]));
    // What may not be written changes nothing.
    let before = block.clone();
    assert!(block.set(b"a", b"x\r\ny").is_err() && block.set(b"Content-Length", b"1").is_err());
    assert_eq!(block, before);
}
