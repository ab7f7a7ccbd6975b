//! What must be refused, and how: the numbered list of bad inputs this project holds itself to, row by row.
//!
//! Every input is followed by a smuggled request, which must never be answered, and is shown whole and cut at
//! every byte. Sockets, clocks and files come into some rows; here is their part that bytes decide.

use crate::checks;
use crate::server::serve;
use ringroad_wire::{
    BodySize, DateLine, EncodeError, Encoder, Event, FieldBlock, Limits, Method, Phase, Problem, ReplyTo,
    Requests, Scratch, Status,
};
use std::collections::BTreeSet;

/// Behind every bad input.
const SMUGGLED: &[u8] = b"GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";

/// Row, status, problem, bytes.
type Case = (u8, u16, Problem, Vec<u8>);

/// A GET with these header lines besides Host.
fn with(lines: &[u8]) -> Vec<u8> {
    [b"GET / HTTP/1.1\r\nHost: a\r\n", lines, b"\r\n\r\n"].concat()
}

/// A POST with these header lines besides Host, and a body of five bytes.
fn post(lines: &[u8]) -> Vec<u8> {
    [b"POST / HTTP/1.1\r\nHost: a\r\n", lines, b"\r\n\r\nhello"].concat()
}

/// A chunked POST with these bytes as its body.
fn chunks(body: &[u8]) -> Vec<u8> {
    [b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", body].concat()
}

/// A request line, and Host.
fn line(line: &[u8]) -> Vec<u8> {
    [line, b"\r\nHost: a\r\n\r\n"].concat()
}

fn cases() -> Vec<Case> {
    use Problem as P;
    let case = |row: u8, status: u16, problem: P, bytes: &[u8]| (row, status, problem, bytes.to_vec());
    let mut cases = vec![
        case(
            1,
            400,
            P::LengthAndCoding,
            &chunks(b"0\r\n\r\n").replacen(b"Host", b"Content-Length: 5\r\nHost"),
        ),
        case(1, 400, P::LengthAndCoding, &post(b"Transfer-Encoding: chunked\r\nContent-Length: 5")),
        case(2, 400, P::ContentLengthTwice, &post(b"Content-Length: 5\r\nContent-Length: 6")),
        case(3, 400, P::ContentLengthTwice, &post(b"Content-Length: 5\r\nContent-Length: 5")),
        case(3, 400, P::ContentLength, &post(b"Content-Length: 5, 5")),
        case(4, 400, P::ContentLength, &post(b"Content-Length: +5")),
        case(5, 400, P::ContentLength, &post(b"Content-Length: -1")),
        case(6, 400, P::ContentLength, &post(b"Content-Length: 0x10")),
        case(7, 400, P::ContentLength, &post(b"Content-Length: 1_0")),
        case(8, 400, P::ContentLength, &post(b"Content-Length:")),
        case(8, 400, P::ContentLength, &post(b"Content-Length:  \t ")),
        case(9, 400, P::ContentLength, &post(b"Content-Length: 5 5")),
        case(9, 400, P::ContentLength, &post(b"Content-Length: 1Z")),
        case(10, 400, P::ContentLength, &post(b"Content-Length: 18446744073709551616")),
        case(10, 400, P::ContentLength, &post(b"Content-Length: 00000000000000000005")),
        case(10, 413, P::BodyTooLong, &post(b"Content-Length: 9999999999999999999")),
        case(11, 400, P::FieldName, &post(b"Content-Length\x85: 5")),
        case(11, 400, P::ContentLength, &post(b"Content-Length: 5\x85")),
        case(12, 400, P::TransferEncoding, &post(b"Transfer-Encoding: chunked, identity")),
        case(12, 400, P::TransferEncoding, &post(b"Transfer-Encoding: blegh")),
        case(12, 400, P::TransferEncoding, &post(b"Transfer-Encoding: chunked, chunked")),
        case(12, 501, P::UnsupportedCoding, &post(b"Transfer-Encoding: gzip, chunked")),
        case(
            13,
            400,
            P::TransferEncodingTwice,
            &post(b"Transfer-Encoding: chunked\r\ntransfer-encoding: chunked"),
        ),
        case(
            13,
            400,
            P::TransferEncoding,
            &post(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity"),
        ),
        case(14, 400, P::TransferEncoding, &post(b"Transfer-Encoding: ,chunked")),
        case(14, 400, P::TransferEncoding, &post(b"Transfer-Encoding: \xa0chunked\xa0")),
        case(14, 400, P::TransferEncoding, &post(b"Transfer-Encoding: xchunked")),
        case(14, 400, P::TransferEncoding, &post(b"Transfer-Encoding: \"chunked\"")),
        case(14, 400, P::FieldValue, &post(b"Transfer-Encoding: \x0bchunked")),
        case(
            15,
            400,
            P::TransferEncodingIn10,
            b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
        case(16, 400, P::FieldName, &post(b"Content-Length : 5")),
        case(16, 400, P::FieldName, &post(b"Content-Length\t: 5")),
        case(17, 400, P::LeadingSpace, b"GET / HTTP/1.1\r\n Host: a\r\n\r\n"),
        case(17, 400, P::LeadingSpace, b"GET / HTTP/1.1\r\n\tHost: a\r\n\r\n"),
        case(18, 400, P::LeadingSpace, &with(b"X: 1\r\n 2")),
        case(18, 400, P::LeadingSpace, &with(b"X: 1\r\n\t2")),
        case(19, 400, P::ChunkSize, &chunks(b"0x5\r\nhello\r\n0\r\n\r\n")),
        case(19, 400, P::ChunkSize, &chunks(b"+5\r\nhello\r\n0\r\n\r\n")),
        case(19, 400, P::ChunkSize, &chunks(b"-1\r\nhello\r\n0\r\n\r\n")),
        case(19, 400, P::ChunkSize, &chunks(b"5_0\r\nhello\r\n0\r\n\r\n")),
        case(19, 400, P::ChunkSize, &chunks(b" 5\r\nhello\r\n0\r\n\r\n")),
        case(19, 400, P::ChunkExtension, &chunks(b"5 \r\nhello\r\n0\r\n\r\n")),
        case(19, 400, P::ChunkSize, &chunks(b"\r\nhello\r\n0\r\n\r\n")),
        case(19, 400, P::ChunkSize, &chunks(b";a\r\nhello\r\n0\r\n\r\n")),
        case(20, 400, P::ChunkSize, &chunks(b"00000000000000005\r\nhello\r\n0\r\n\r\n")),
        case(20, 400, P::ChunkSize, &chunks(b"10000000000000005\r\nhello\r\n0\r\n\r\n")),
        case(20, 413, P::BodyTooLong, &chunks(b"5\r\nhello\r\nffffffffffffffff\r\nx")),
        case(21, 400, P::ChunkSize, &chunks(b"5\nhello\r\n0\r\n\r\n")),
        case(21, 400, P::ChunkExtension, &chunks(b"5;a\nhello\r\n0\r\n\r\n")),
        case(21, 400, P::ChunkExtension, &chunks(b"5;a=\"\n\"\r\nhello\r\n0\r\n\r\n")),
        case(21, 400, P::ChunkExtension, &chunks(b"5;\nhello\r\n0\r\n\r\n")),
        case(21, 400, P::LineEnd, &chunks(b"5;a\rhello\r\n0\r\n\r\n")),
        case(22, 400, P::LineEnd, &chunks(b"2\r\r;a\r\nhi\r\n0\r\n\r\n")),
        case(23, 400, P::ChunkEnd, &chunks(b"5\r\nhelloo\r\n0\r\n\r\n")),
        case(23, 400, P::ChunkEnd, &chunks(b"5\r\nhello\n0\r\n\r\n")),
        case(23, 400, P::ChunkEnd, &chunks(b"5\r\nhello0\r\n\r\n")),
        case(23, 400, P::ChunkEnd, &chunks(b"5\r\nhello\rX0\r\n\r\n")),
        case(24, 400, P::ChunkExtensionsTooLong, &chunks(&[b"5;", &b"a".repeat(16 * 1024)[..]].concat())),
        case(24, 400, P::ChunkExtensionsTooLong, &chunks(&b"1;abcdefghijkl=mnop\r\nx\r\n".repeat(1000))),
        case(
            25,
            400,
            P::TrailersTooLong,
            &chunks(&[b"0\r\n", &b"X: abcdefghijklmnopqrst\r\n".repeat(700)[..]].concat()),
        ),
        case(25, 400, P::TrailersTooLong, &chunks(&[b"0\r\n", &b"X: a\r\n".repeat(101)[..]].concat())),
        case(25, 400, P::TrailersTooLong, &chunks(&[b"0\r\nX: ", &b"x".repeat(16 * 1024)[..]].concat())),
        case(25, 400, P::TrailerForbidden, &chunks(b"0\r\nHost: b\r\n\r\n")),
        case(25, 400, P::TrailerForbidden, &chunks(b"0\r\nX: y\r\ncontent-length: 3\r\n\r\n")),
        case(25, 400, P::TrailerForbidden, &chunks(b"0\r\nTransfer-Encoding: chunked\r\n\r\n")),
        case(25, 400, P::LineEnd, &chunks(b"0\r\n\n")),
        case(29, 400, P::HostMissing, b"GET / HTTP/1.1\r\n\r\n"),
        case(29, 400, P::HostMissing, b"GET http://a/ HTTP/1.1\r\nX: y\r\n\r\n"),
        case(30, 400, P::HostTwice, &with(b"Host: b")),
        case(30, 400, P::HostTwice, &with(b"host: a")),
        case(30, 400, P::HostTwice, b"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n"),
        case(33, 400, P::LineEnd, b"GET / HTTP/1.1\rHost: a\r\r"),
        case(33, 400, P::LineEnd, b"GET / HTTP/1.1\r\nHost: a\rX: y\r\n\r\n"),
        case(33, 400, P::LineEnd, b"GET / HTTP/1.1\r\nHost: a\r\n\rX: y\r\n\r\n"),
        case(34, 400, P::LineEnd, b"GET / HTTP/1.1\nHost: a\n\n"),
        case(34, 400, P::LineEnd, b"GET / HTTP/1.1\r\nHost: a\n\n"),
        case(34, 400, P::LineEnd, b"GET / HTTP/1.1\r\nHost: a\r\n\n"),
        case(34, 400, P::Method, b"\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"),
        case(35, 400, P::FieldName, &with(b"Nothing")),
        case(35, 400, P::FieldName, &with(b"Two words")),
        case(36, 400, P::FieldName, &with(b": value")),
        case(37, 400, P::FieldName, &with(b"\"X\": y")),
        case(37, 400, P::FieldName, &with(b"X\xef: y")),
        case(37, 400, P::FieldName, &with(b"X[0]: y")),
        case(37, 400, P::FieldName, &with(b"X\0: y")),
        case(38, 400, P::Target, &line(b"GET  / HTTP/1.1")),
        case(38, 400, P::Version, &line(b"GET /  HTTP/1.1")),
        case(38, 400, P::Method, &line(b"GET\t/\tHTTP/1.1")),
        case(38, 400, P::Target, &line(b"GET /\tHTTP/1.1")),
        case(38, 400, P::Method, &line(b"GET\n/ HTTP/1.1")),
        case(38, 400, P::Version, &line(b"GET /\nHTTP/1.1")),
        case(38, 400, P::LineEnd, &line(b"GET / HTTP/1.1 ")),
        case(38, 400, P::Method, &line(b" GET / HTTP/1.1")),
        case(39, 400, P::LineEnd, &line(b"GET / HTTP/1.32")),
        case(39, 505, P::UnsupportedVersion, &line(b"GET / HTTP/9.9")),
        case(39, 505, P::UnsupportedVersion, &line(b"GET / HTTP/0.9")),
        case(39, 505, P::UnsupportedVersion, &line(b"GET / HTTP/2.0")),
        case(39, 400, P::Version, &line(b"GET / HTTP/\r\r1.1")),
        case(39, 400, P::Version, &line(b"GET / http/1.1")),
        case(39, 400, P::Version, &line(b"GET / HTTP/1,1")),
        case(39, 400, P::Version, &line(b"GET / HTTP/+1.1")),
        case(39, 400, P::Version, &line(b"GET / HTTPS/1.1")),
        case(40, 400, P::Method, &line(b"G=\"x\" / HTTP/1.1")),
        case(40, 501, P::UnknownMethod, &line(b"BREW / HTTP/1.1")),
        case(40, 501, P::UnknownMethod, &line(b"get / HTTP/1.1")),
        case(41, 400, P::TargetForm, &line(b"GET ! HTTP/1.1")),
        case(41, 400, P::Target, &line(b"GET /a#b HTTP/1.1")),
        // Latin-1, a sequence that is cut, one that is too long, half of a pair.
        case(41, 400, P::Target, &line(b"GET /?\xe9 HTTP/1.1")),
        case(41, 400, P::Target, &line(b"GET /?\xc3 HTTP/1.1")),
        case(41, 400, P::Target, &line(b"GET /\xc0\xaf HTTP/1.1")),
        case(41, 400, P::Target, &line(b"GET /\xed\xa0\x80 HTTP/1.1")),
        case(41, 400, P::Target, &line(b"GET /\0 HTTP/1.1")),
        case(41, 400, P::Target, &line(b"GET /\x7f HTTP/1.1")),
        case(41, 400, P::Target, &line(b"GET /?a\x1bb HTTP/1.1")),
        case(41, 400, P::Target, &line(b"GET /?a#b HTTP/1.1")),
        case(43, 400, P::TargetForm, &line(b"GET * HTTP/1.1")),
        case(43, 400, P::TargetForm, &line(b"GET a:80 HTTP/1.1")),
        case(43, 400, P::TargetForm, &line(b"CONNECT / HTTP/1.1")),
        case(43, 400, P::TargetForm, &line(b"CONNECT a HTTP/1.1")),
        case(43, 400, P::TargetForm, &line(b"OPTIONS a:80 HTTP/1.1")),
        case(44, 400, P::Version, b"GET /\r\n"),
        case(44, 400, P::Version, b"GET /\r\nHost: a\r\n\r\n"),
        case(45, 400, P::Method, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
        case(45, 400, P::TargetForm, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        case(45, 400, P::Method, b"\xde\xad\xbe\xef"),
        case(45, 400, P::Method, b"SSH-2.0-OpenSSH_9.2\r\n"),
        case(46, 400, P::EmptyLines, &[&b"\r\n".repeat(9)[..], &with(b"X: y")].concat()),
        case(46, 400, P::LineEnd, &[b"\r\r\n", &with(b"X: y")[..]].concat()),
        case(47, 414, P::RequestLineTooLong, &line(&target_of(8 * 1024 + 1))),
        case(47, 414, P::RequestLineTooLong, &[b"GET /", &b"a".repeat(9000)[..]].concat()),
        case(47, 414, P::RequestLineTooLong, &b"A".repeat(9000)),
        case(48, 431, P::FieldLineTooLong, &with(&[b"X: ", &b"x".repeat(8 * 1024 - 2)[..]].concat())),
        case(48, 431, P::FieldLineTooLong, &with(&b"x".repeat(8 * 1024 + 1))),
        case(48, 431, P::TooManyFields, &with(&b"X: y\r\n".repeat(100)[..598])),
        case(
            48,
            431,
            P::HeadersTooLong,
            &with(&[b"X: ", &b"x".repeat(4000)[..], b"\r\n"].concat().repeat(9)),
        ),
        case(49, 413, P::BodyTooLong, &post(b"Content-Length: 8388609")),
        case(50, 413, P::BodyTooLong, &chunks(b"5\r\nhello\r\n7ffffc\r\n")),
        case(50, 413, P::BodyTooLong, &chunks(b"5\r\nhello\r\n5\r\nworld\r\n7ffff7\r\n")),
        case(58, 417, P::Expect, &post(b"Content-Length: 5\r\nExpect: xyz")),
        case(58, 417, P::Expect, &post(b"Content-Length: 5\r\nExpect: 100-continue, xyz")),
    ];
    for host in ["a\0b", "a/b", "u@a", "a b", "", "a:b", "a,b", "a\u{e9}"] {
        let problem = if host.contains('\0') { P::FieldValue } else { P::Host };
        cases.push((31, 400, problem, [b"GET / HTTP/1.1\r\nHost: ", host.as_bytes(), b"\r\n\r\n"].concat()));
    }
    for (byte, problem) in [
        (b'\0', P::FieldValue),
        (b'\r', P::LineEnd),
        (b'\n', P::LineEnd),
        (0x7f, P::FieldValue),
        (0x07, P::FieldValue),
        (0x1f, P::FieldValue),
    ] {
        for place in 0..17 {
            let mut lines = *b"X: abcdefghijklmnopqr";
            lines[3 + place] = byte;
            cases.push((32, 400, problem, with(&lines)));
        }
    }
    cases
}

/// A request line of this many bytes.
fn target_of(line_bytes: usize) -> Vec<u8> {
    [b"GET /", &b"a".repeat(line_bytes - 14)[..], b" HTTP/1.1"].concat()
}

trait Replace {
    fn replacen(self, from: &[u8], to: &[u8]) -> Vec<u8>;
}

impl Replace for Vec<u8> {
    fn replacen(self, from: &[u8], to: &[u8]) -> Vec<u8> {
        let at = self.windows(from.len()).position(|window| window == from).unwrap();
        [&self[..at], to, &self[at + from.len()..]].concat()
    }
}

/// Every place to cut; in long messages those near the ends and near round numbers, and every 61st.
fn places(len: usize) -> impl Iterator<Item = usize> {
    (0..=len)
        .filter(move |at| len < 3000 || *at < 64 || len - at < 64 || (at + 40) % 4096 < 80 || at % 61 == 0)
}

#[test]
fn every_bad_input_gets_its_answer_and_nothing_behind_it_is_answered() {
    for (row, status, problem, bytes) in cases() {
        let input = [&bytes[..], SMUGGLED].concat();
        let shown = bytes.escape_ascii().to_string();
        let shown = &shown[..shown.len().min(300)];
        let whole = serve(&input, &[], false);
        assert_eq!(
            (whole.statuses.as_slice(), whole.problem),
            (&[status][..], Some(problem)),
            "row {row}: {shown}"
        );
        let answer = String::from_utf8(whole.out.clone()).unwrap();
        assert!(answer.contains("\r\nConnection: close\r\n") && whole.closes, "row {row}: {shown}: {answer}");
        for at in places(input.len()) {
            assert_eq!(serve(&input, &[at], false), whole, "row {row}, cut at {at}: {shown}");
        }
        let every: Vec<usize> = places(input.len()).collect();
        assert_eq!(serve(&input, &every, false), whole, "row {row}, cut everywhere: {shown}");
    }
}

/// The parser does not wait for the rest of a message that is already invalid: each beginning gets its
/// verdict, in one piece or in many.
#[test]
fn every_beginning_of_a_bad_input_is_refused_as_early_in_single_bytes() {
    let limits = Limits::default();
    for (row, _, _, bytes) in cases().iter().filter(|case| case.3.len() < 300) {
        let every: Vec<usize> = (0..bytes.len()).collect();
        for end in 0..=bytes.len() {
            let whole = checks::tell_requests(&bytes[..end], &[], &limits);
            let pieces = checks::tell_requests(&bytes[..end], &every[..end], &limits);
            assert_eq!(pieces, whole, "row {row}: {}", bytes[..end].escape_ascii());
        }
    }
}

#[test]
fn every_bad_input_passes_the_checks_for_any_bytes() {
    for (_, _, _, bytes) in cases().iter().filter(|case| case.3.len() < 3000) {
        checks::requests(bytes);
        crate::differential::httparse(bytes);
        crate::differential::hyper(bytes);
    }
}

/// Where others refuse a beginning, we do not wait for the rest.
#[test]
fn every_beginning_of_a_bad_input_that_others_refuse_is_refused() {
    for (_, _, _, bytes) in cases().iter().filter(|case| case.3.len() < 300) {
        for end in 0..bytes.len() {
            crate::differential::httparse(&bytes[..end]);
        }
    }
}

/// Row 26, and row 57 for bodies: a body cut short is no request.
#[test]
fn the_end_of_the_input_in_a_body_is_told_and_nothing_is_answered() {
    for bytes in
        [chunks(b"5\r\nhello\r\n5\r\nwor"), chunks(b"5\r\nhello\r\n0\r\n"), post(b"Content-Length: 6")]
    {
        let served = serve(&bytes, &[], false);
        assert_eq!((served.statuses.len(), served.problem), (0, Some(Problem::Truncated)));
        assert!(served.closes);
    }
}

/// Row 27.
#[test]
fn a_get_with_a_body_is_one_request_and_the_next_is_another() {
    let bytes = [
        &b"GET /a HTTP/1.1\r\nHost: a\r\nContent-Length: 40\r\n\r\n"[..],
        b"GET /smuggled HTTP/1.1\r\nHost: a\r\nX: yz\r\n",
        b"GET /b HTTP/1.1\r\nHost: a\r\n\r\n",
    ]
    .concat();
    for at in places(bytes.len()) {
        for ignores_bodies in [false, true] {
            let served = serve(&bytes, &[at], ignores_bodies);
            assert_eq!(served.statuses, [200, 200]);
            let targets: Vec<&str> = served.requests.iter().map(|request| request.2.as_str()).collect();
            assert_eq!(targets, ["/a", "/b"]);
        }
    }
}

/// Row 28.
#[test]
fn an_unread_body_is_drained_within_bounds_or_the_connection_closes() {
    let request = |framing: &str, body: &[u8]| {
        [format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n").as_bytes(), body, SMUGGLED].concat()
    };
    let short = b"x".repeat(256 * 1024);
    let served = serve(&request("Content-Length: 262144", &short), &[], true);
    assert_eq!((served.statuses.as_slice(), served.closes), (&[200, 200][..], false));

    let long = b"x".repeat(256 * 1024 + 1);
    let served = serve(&request("Content-Length: 262145", &long), &[], true);
    assert_eq!((served.statuses.as_slice(), served.closes), (&[200][..], true));

    let chunk = [b"40001\r\n", &long[..], b"\r\n0\r\n\r\n"].concat();
    let served = serve(&request("Transfer-Encoding: chunked", &chunk), &[], true);
    assert_eq!(served.statuses, [200, 413]);
    assert_eq!((served.problem, served.closes), (Some(Problem::DrainTooLong), true));

    // The client waits for a word it never gets: what comes next may be the body or a request.
    let waiting = request("Content-Length: 5\r\nExpect: 100-continue", b"");
    let served = serve(&waiting, &[], true);
    assert_eq!((served.statuses.as_slice(), served.closes), (&[200][..], true));
}

/// Row 42: one meaning, that of the target.
#[test]
fn an_absolute_target_wins_over_host() {
    let served = serve(b"GET http://b:81/c HTTP/1.1\r\nHost: a\r\n\r\n", &[], false);
    let (_, authority, target, _) = &served.requests[0];
    assert_eq!((authority.as_str(), target.as_str()), ("b:81", "http://b:81/c"));
    assert_eq!(served.statuses, [200]);
}

/// Rows 46 to 50, from below: what is at a limit is taken.
#[test]
fn what_is_at_a_limit_is_taken() {
    let at_limit = [
        [&b"\r\n".repeat(8)[..], &with(b"X: y")].concat(),
        line(&target_of(8 * 1024)),
        with(&[b"X: ", &b"x".repeat(8 * 1024 - 3)[..]].concat()),
        with(&b"X: y\r\n".repeat(99)[..592]),
        chunks(&[b"5;", &b"a".repeat(16 * 1024 - 2)[..], b"\r\nhello\r\n0\r\n\r\n"].concat()),
        chunks(&[b"0\r\n", &b"X: y\r\n".repeat(100)[..], b"\r\n"].concat()),
    ];
    for bytes in at_limit {
        for at in places(bytes.len()) {
            assert_eq!(serve(&bytes, &[at], false).statuses, [200], "{}", bytes.escape_ascii());
        }
    }
    let twice = [&b"\r\n".repeat(8)[..], &with(b"X: y")].concat().repeat(2);
    assert_eq!(
        serve(&twice, &[], false).statuses,
        [200, 200],
        "empty lines are counted anew for each request"
    );
    let mut scratch = Scratch::default();
    for framing in ["Content-Length: 8388608", "Transfer-Encoding: chunked"] {
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n800000\r\n");
        let mut requests = Requests::new();
        let mut at = 0;
        let event = requests.next(&mut scratch, head.as_bytes(), &mut at).unwrap();
        assert!(matches!(event, Some(Event::Head(_))));
        assert!(requests.next(&mut scratch, head.as_bytes(), &mut at).is_ok());
    }
}

/// Rows 46 to 50, to the byte: of a refused message the parser never holds more than the limit.
#[test]
fn a_limit_is_broken_at_the_byte_that_goes_over_it() {
    let limits = Limits::default();
    let (line, header) = (usize::from(limits.start_line_bytes), usize::from(limits.field_line_bytes));
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let x = b"x".repeat(40_000);
    let lines = [b"GET / HTTP/1.1\r\n", &[b"X: ", &x[..995], b"\r\n"].concat().repeat(40)[..]].concat();
    for (bytes, at, problem) in [
        (x.clone(), line, Problem::RequestLineTooLong),
        ([b"GET /", &x[..]].concat(), line, Problem::RequestLineTooLong),
        ([b"GET / HTTP/1.1\r\n", &x[..]].concat(), 16 + header, Problem::FieldLineTooLong),
        ([b"GET / HTTP/1.1\r\nX: ", &x[..]].concat(), 16 + header, Problem::FieldLineTooLong),
        (lines, 16 + limits.header_bytes as usize, Problem::HeadersTooLong),
        ([&head[..], b"0\r\nX: ", &x].concat(), head.len() + 3 + header, Problem::TrailersTooLong),
        ([&head[..], b"5;", &x].concat(), head.len() + 1 + 16 * 1024, Problem::ChunkExtensionsTooLong),
    ] {
        let told = |end: usize| match checks::tell_requests(&bytes[..end], &[], &limits).last() {
            Some(checks::Entry::Failed(error)) => error.problem(),
            other => panic!("{problem:?}: {other:?}"),
        };
        assert_eq!((told(at), told(at + 1)), (Problem::Truncated, problem));
    }
}

#[test]
fn a_head_of_64_kib_is_the_longest_whatever_is_configured() {
    let most = u16::MAX;
    let limits = Limits {
        start_line_bytes: most,
        field_line_bytes: most,
        header_bytes: most.into(),
        fields: u8::MAX,
        ..Limits::default()
    };
    let head_of = |line_bytes: usize, value_bytes: usize| {
        [&target_of(line_bytes)[..], b"\r\nHost: a\r\nX: ", &b"x".repeat(value_bytes), b"\r\n\r\n"].concat()
    };
    for (line_bytes, value_bytes, taken) in [
        (100, 65_419, true),
        (100, 65_420, false),
        (65_500, 19, true),
        (65_500, 20, false),
        (65_532, 0, false),
        (65_533, 0, false),
        (65_534, 0, false),
        (65_535, 0, false),
        (100, 70_000, false),
    ] {
        let told = checks::tell_requests(&head_of(line_bytes, value_bytes), &[], &limits);
        match &told[0] {
            checks::Entry::Head(_) => assert!(taken, "{line_bytes} {value_bytes}"),
            checks::Entry::Failed(error) => {
                assert_eq!(
                    (error.status().code(), taken),
                    (431, false),
                    "{line_bytes} {value_bytes}: {error}"
                );
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Rows 51 to 53: the clock is the caller's; which deadline runs is told at every byte.
#[test]
fn the_phase_tells_which_deadline_applies() {
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n";
    let bytes = [&b"\r\n"[..], head, b"hello"].concat();
    let mut scratch = Scratch::default();
    for end in 0..=bytes.len() {
        let mut requests = Requests::new();
        let mut at = 0;
        while requests.next(&mut scratch, &bytes[..end], &mut at).unwrap().is_some() {}
        let expected = match end {
            0..=2 => Phase::Idle,
            _ if end < 2 + head.len() => Phase::Head,
            _ if end < bytes.len() => Phase::Body,
            _ => Phase::Idle,
        };
        assert_eq!(requests.phase(), expected, "after {end} bytes");
    }
}

/// Rows 54 and 55: nothing is taken that the caller does not ask for, and a connection does not grow.
#[test]
fn ten_thousand_pipelined_requests_are_taken_one_at_a_time() {
    let bytes = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(10_000);
    let one = bytes.len() / 10_000;
    let mut scratch = Scratch::default();
    let mut requests = Requests::new();
    let mut at = 0;
    for number in 1..=10_000 {
        let event = requests.next(&mut scratch, &bytes, &mut at).unwrap();
        assert_eq!((event.is_some(), at), (true, number * one));
    }
    assert!(size_of::<Requests>() <= 56, "{} bytes per connection", size_of::<Requests>());
}

/// Rows 56 and 57: an end anywhere is either between requests or an error.
#[test]
fn the_end_of_the_input_after_any_byte_is_in_order_only_between_requests() {
    let first = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
    let second = chunks(b"5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n");
    let bytes = [&first[..], &second].concat();
    for end in 0..=bytes.len() {
        let served = serve(&bytes[..end], &[], false);
        let complete = usize::from(end >= first.len()) + usize::from(end == bytes.len());
        let between = end == 0 || end == first.len() || end == bytes.len();
        assert_eq!(served.statuses.len(), complete, "after {end} bytes");
        assert_eq!(served.problem, (!between).then_some(Problem::Truncated), "after {end} bytes");
    }
}

/// Row 58.
#[test]
fn an_expectation_of_100_is_told_and_its_body_is_awaited() {
    let bytes = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-Continue\r\n\r\n";
    let mut scratch = Scratch::default();
    let mut requests = Requests::new();
    let event = requests.next(&mut scratch, bytes, &mut 0).unwrap();
    assert!(matches!(event, Some(Event::Head(head)) if head.expects_continue()));
    assert_eq!((requests.phase(), requests.body_left()), (Phase::Body, Some(5)));
    assert_eq!(requests.end_of_input().unwrap_err().problem(), Problem::Truncated);
}

/// Row 70.
#[test]
fn no_value_can_split_a_message() {
    let date = DateLine::new("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
    for value in ["a\r\nSet-Cookie: b=c", "a\nb", "a\rb", "a\0b", "a\x7fb", "a\r\n\r\n<html>"] {
        let mut out = b"before".to_vec();
        let mut encoder = Encoder::response(&mut out, Status::OK, ReplyTo::refused());
        encoder.date(&date);
        assert_eq!(encoder.field("Location", value).err(), Some(EncodeError::Value));
        assert_eq!(encoder.upgrade(value).err(), Some(EncodeError::Value));
        assert_eq!(encoder.field(value, "x").err(), Some(EncodeError::Name));
        drop(encoder);
        assert_eq!(out, b"before", "a head given up leaves nothing behind");
        assert_eq!(FieldBlock::of([("Location", value)]), Err(EncodeError::Value));
        assert_eq!(Encoder::request(&mut out, Method::Get, value, "a").err(), Some(EncodeError::Target));
        let path = format!("/{value}");
        assert_eq!(Encoder::request(&mut out, Method::Get, &path, "a").err(), Some(EncodeError::Target));
        assert_eq!(Encoder::request(&mut out, Method::Get, "/", value).err(), Some(EncodeError::Host));
        assert_eq!(Encoder::request_named(&mut out, value, "/", "a").err(), Some(EncodeError::Name));
        assert_eq!(out, b"before");
    }
    assert_eq!(DateLine::new("Sun, 06 Nov 1994 08:49:37\r\nX:"), Err(EncodeError::Date));
    for name in ["Content-Length", "transfer-encoding", "Connection", "Host", "UPGRADE"] {
        let mut out = Vec::new();
        let mut encoder = Encoder::response(&mut out, Status::OK, ReplyTo::refused());
        assert_eq!(encoder.field(name, "1").err(), Some(EncodeError::Framing), "{name}");
        let _ = encoder.finish(BodySize::Known(0));
        assert_eq!(out, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    }
}

#[test]
fn no_row_is_forgotten() {
    let by_other_tests = [26, 27, 28, 42, 51, 52, 53, 54, 55, 56, 57, 70];
    let covered: BTreeSet<u8> = cases().iter().map(|case| case.0).chain(by_other_tests).collect();
    let expected: BTreeSet<u8> = (1..=58).chain([70]).collect();
    assert_eq!(covered, expected);
}

/// A peer's bytes in an error are few and harmless to a log.
#[test]
fn an_error_is_one_short_line() {
    for (row, _, problem, bytes) in cases() {
        let served = checks::tell_requests(&bytes, &[], &Limits::default());
        if let Some(checks::Entry::Failed(error)) = served.last() {
            let line = error.to_string();
            assert!(
                line.len() < 240 && line.is_ascii() && !line.contains(char::is_control),
                "row {row}: {line}"
            );
            assert_eq!(error.problem(), problem);
        }
    }
}
