//! The protocol without sockets: whatever the cuts, the same is said.

use crate::client::{ANSWER, REQUEST, assert_text};
use ringroad_models::Protocol;
use ringroad_models::protocol::{BATCH_MAX, End, HEAD_BYTES_MAX, Session};

/// What a session said to a sequence of inputs.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    text: String,
    requests: u32,
    end: End,
}

/// Feeds the pieces as a server would: until a reply ends the connection.
fn say<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Said {
    let mut session = Session::new(Protocol::Http);
    let mut said = Said { text: String::new(), requests: 0, end: End::Open };
    for mut input in pieces {
        while let Some(reply) = session.next(&mut input) {
            assert_eq!(said.end, End::Open, "a word after the last");
            said.text += std::str::from_utf8(reply.bytes).unwrap();
            said.requests += reply.requests;
            said.end = reply.end;
        }
        assert!(input.is_empty(), "input is left over");
    }
    said
}

fn ok(times: usize) -> String {
    String::from_utf8(ANSWER.repeat(times)).unwrap()
}

const BAD: &str = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
const TOO_LARGE: &str =
    "HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 20\r\n\r\n";
const CONTINUE: &str = "HTTP/1.1 100 Continue\r\n\r\n";

fn with(connection: &str) -> String {
    ok(1).replace("\r\n\r\n", &format!("\r\nConnection: {connection}\r\n\r\n"))
}

/// Inputs and what must be said to them, with the number of requests and the end.
fn conversations() -> Vec<(Vec<u8>, String, u32, End)> {
    let get = String::from_utf8(REQUEST.to_vec()).unwrap();
    let open = |input: String, text: String, requests| (input.into_bytes(), text, requests, End::Open);
    let closed = |input: String, text: String, requests| (input.into_bytes(), text, requests, End::Close);
    let refused = |input: String, text: String, requests| (input.into_bytes(), text, requests, End::Linger);
    let bad =
        |headers: &str| refused(format!("POST / HTTP/1.1\r\n{headers}\r\n\r\n{get}"), BAD.to_owned(), 0);
    vec![
        open(get.clone(), ok(1), 1),
        open(get.repeat(100), ok(100), 100),
        open(format!("\r\n\r\n{get}\r\n{get}"), ok(2), 2),
        open("OPTIONS * HTTP/1.1\r\n\r\n".into(), ok(1), 1),
        open(format!("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n{get}"), format!("{HEAD}{}", ok(1)), 2),
        open(format!("{get}{get}HEAD /x HTTP/1.1\r\n\r\n{get}"), format!("{}{HEAD}{}", ok(2), ok(1)), 4),
        // Persistence.
        closed(format!("{get}GET / HTTP/1.1\r\nConnection: close\r\n\r\n{get}"), ok(1) + &with("close"), 2),
        closed("GET / HTTP/1.1\r\nconnection:x , CLOSE\r\n\r\n".into(), with("close"), 1),
        closed("GET / HTTP/1.0\r\n\r\n".into(), with("close"), 1),
        open("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n".repeat(2), with("keep-alive").repeat(2), 2),
        closed(
            "HEAD / HTTP/1.0\r\n\r\n".into(),
            HEAD.replace("20\r\n\r\n", "20\r\nConnection: close\r\n\r\n"),
            1,
        ),
        // Bodies, full of what looks like requests.
        open(format!("POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n{get}{get}", get.len()), ok(2), 2),
        open(format!("POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n{get}"), ok(2), 2),
        open(
            format!(
                "POST / HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n{:X}\r\n{get}\r\n5;a=\"b\"\r\n\r\n\r\n\r\r\n0\r\n\r\n{get}",
                get.len()
            ),
            ok(2),
            2,
        ),
        open(
            format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n000 \r\nT: v\r\nU: w\r\n\r\n{get}"),
            ok(2),
            2,
        ),
        open(
            format!("{get}POST / HTTP/1.1\r\nExpect: 100-Continue\r\nContent-Length: 3\r\n\r\nabc{get}"),
            format!("{}{CONTINUE}{}", ok(1), ok(2)),
            3,
        ),
        open(
            "POST / HTTP/1.1\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".into(),
            format!("{CONTINUE}{}", ok(1)),
            1,
        ),
        // There is no body to wait for, or the client's version (HTTP/1.0) has no `100-continue`.
        open("GET / HTTP/1.1\r\nExpect: 100-continue\r\n\r\n".into(), ok(1), 1),
        closed(
            "POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx".into(),
            with("close"),
            1,
        ),
        // Unfinished: nothing is said.
        open("POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nabc".into(), String::new(), 0),
        open("GET / HTTP/1.1\r\nHost: h\r\n\r".into(), String::new(), 0),
        // Names that begin like those that matter.
        open(
            "GET / HTTP/1.1\r\nContent-Lengthy: x\r\nTE: x\r\nCookie: close\r\nExpected: y\r\n\r\n".into(),
            ok(1),
            1,
        ),
        // Not HTTP.
        refused(format!("{get}GET /\r\n\r\n{get}"), ok(1) + BAD, 1),
        refused("GET / HTTP/2.0\r\n\r\n".into(), BAD.into(), 0),
        refused("GET / HTTP/1.1\n\n".into(), BAD.into(), 0),
        refused("GET  / HTTP/1.1\r\n\r\n".into(), BAD.into(), 0),
        refused("GET /a b HTTP/1.1\r\n\r\n".into(), BAD.into(), 0),
        refused("G(T / HTTP/1.1\r\n\r\n".into(), BAD.into(), 0),
        refused("hello\r\n".into(), BAD.into(), 0),
        bad("Content-Length: 3x"),
        bad("Content-Length: "),
        bad("Content-Length: +3"),
        bad("Content-Length: 99999999999999999999"),
        bad("Content-Length: 3\r\nContent-Length: 3"),
        bad("Content-Length : 3"),
        bad("Content-Length: 3\r\nTransfer-Encoding: chunked"),
        bad("Transfer-Encoding: gzip, chunked"),
        bad("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"),
        bad("Host: h\r\n folded"),
        bad(": nameless"),
        bad("Cookie"),
        bad("Host: h\nX: y"),
        bad("Transfer-Encoding: chunked\r\n\r\nxyz"),
        bad("Transfer-Encoding: chunked\r\n\r\n\r\n"),
        bad("Transfer-Encoding: chunked\r\n\r\n3\nabc"),
        bad("Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n"),
        bad("Transfer-Encoding: chunked\r\n\r\n11111111111111111\r\n"),
        refused("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".into(), BAD.into(), 0),
    ]
}

#[test]
fn every_conversation_is_as_expected() {
    for (input, text, requests, end) in conversations() {
        let shown = String::from_utf8_lossy(&input).into_owned();
        assert_eq!(say([&input[..]]), Said { text, requests, end }, "to {shown}");
    }
}

#[test]
fn a_cut_anywhere_changes_nothing() {
    for (input, text, requests, end) in conversations() {
        let expected = Said { text, requests, end };
        for cut in 0..=input.len() {
            let (front, back) = input.split_at(cut);
            assert_eq!(say([front, back]), expected, "cut at {cut} of {}", String::from_utf8_lossy(&input));
        }
        assert_eq!(say(input.chunks(1)), expected, "byte by byte: {}", String::from_utf8_lossy(&input));
    }
}

#[test]
fn random_cuts_change_nothing() {
    // Everything that leaves the connection open, in a row, cut at random. A fixed seed, so a failure
    // repeats.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let whole: Vec<_> = conversations()
        .into_iter()
        .filter(|(_, text, _, end)| *end == End::Open && !text.is_empty())
        .collect();
    for _ in 0..300 {
        let mut input = Vec::new();
        let mut expected = Said { text: String::new(), requests: 0, end: End::Open };
        for _ in 0..20 {
            let (bytes, text, requests, _) = &whole[random(whole.len())];
            input.extend_from_slice(bytes);
            expected.text += text;
            expected.requests += requests;
        }
        let mut pieces = Vec::new();
        let mut rest = &input[..];
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(random(rest.len().min(300)) + 1);
            pieces.push(piece);
            rest = after;
        }
        assert_eq!(say(pieces), expected);
    }
}

#[test]
fn a_head_may_be_as_long_as_the_limit_and_no_longer() {
    let head = |bytes: usize| {
        let empty = "GET / HTTP/1.1\r\nX: \r\n\r\n";
        empty.replace("X: ", &format!("X: {}", "x".repeat(bytes - empty.len())))
    };
    let longest = head(HEAD_BYTES_MAX) + &head(HEAD_BYTES_MAX);
    let too_long = head(HEAD_BYTES_MAX + 1);
    for step in [1, 7, 4096, HEAD_BYTES_MAX - 1, HEAD_BYTES_MAX, HEAD_BYTES_MAX + 1, usize::MAX] {
        let step = step.min(longest.len());
        assert_eq!(say(longest.as_bytes().chunks(step)), Said { text: ok(2), requests: 2, end: End::Open });
        let said = say(too_long.as_bytes().chunks(step));
        assert_eq!(
            said,
            Said { text: TOO_LARGE.into(), requests: 0, end: End::Linger },
            "in steps of {step}"
        );
    }
}

#[test]
fn chunk_extensions_and_trailers_have_a_limit() {
    for line in ["1;x=", "0\r\nT: "] {
        let endless =
            format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{line}{}", "x".repeat(10_000));
        let expected = Said { text: BAD.into(), requests: 0, end: End::Linger };
        assert_eq!(say([endless.as_bytes()]), expected);
        assert_eq!(say(endless.as_bytes().chunks(1)), expected);
    }
}

#[test]
fn pipelined_answers_leave_as_one_slice() {
    let mut session = Session::new(Protocol::Http);
    let requests = REQUEST.repeat(100);
    let mut input = &requests[..];
    let first = session.next(&mut input).unwrap();
    assert_text(first.bytes, &ANSWER.repeat(BATCH_MAX));
    let second = session.next(&mut input).unwrap();
    assert_text(second.bytes, &ANSWER.repeat(100 - BATCH_MAX));
    assert_eq!((first.requests + second.requests, session.next(&mut input)), (100, None));
}

#[test]
fn echo_gives_back_the_input_itself() {
    let mut session = Session::new(Protocol::Echo);
    let message = b"GET / HTTP/1.1\r\n\r\n";
    let mut input = &message[..];
    let reply = session.next(&mut input).unwrap();
    assert_eq!((reply.bytes.as_ptr(), reply.bytes.len()), (message.as_ptr(), message.len()));
    assert_eq!((reply.requests, reply.portions, reply.end), (0, 1, End::Open));
    assert_eq!(session.next(&mut input), None);
}
