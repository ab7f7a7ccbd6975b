//! What a client understands of responses, good and bad.

use crate::checks::{self, Entry, tell_requests, tell_responses, tell_unfolded};
use ringroad_wire::{
    Asked, Body, Limits, Method, Phase, Problem, ResponseEvent, ResponseHead, Responses, Scratch, Status,
    Version,
};

const GET: Asked = Asked { method: Method::Get, upgrade: false };

fn tell(bytes: &[u8], asked: impl Into<Asked>) -> Vec<Entry> {
    tell_responses(bytes, &[], &Limits::client(), asked.into())
}

fn problem(bytes: &[u8], asked: impl Into<Asked>) -> Option<Problem> {
    match tell(bytes, asked).last() {
        Some(Entry::Failed(error)) => {
            assert_eq!(error.status(), Status::BAD_GATEWAY);
            Some(error.problem())
        }
        _ => None,
    }
}

fn good() -> Vec<(Asked, &'static [u8])> {
    let upgrade = Asked { method: Method::Get, upgrade: true };
    vec![
        (GET, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
        (GET, b"HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n"),
        (GET, b"HTTP/1.1 200\r\nContent-Length: 1\r\n\r\nx"),
        (GET, b"HTTP/1.0 200 OK\r\n\r\nto the end"),
        (GET, b"HTTP/1.1 200 OK\r\n\r\n"),
        (GET, b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"),
        (GET, b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\nHTTP/1.1 299 \xe9t\xe9\r\nContent-Length: 0\r\n\r\n"),
        (Method::Head.into(), b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
        (upgrade, b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nHTTP/1.1"),
        (Method::Connect.into(), b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nraw bytes"),
        (Method::Connect.into(), b"HTTP/1.1 407 No\r\nContent-Length: 5\r\n\r\nhello"),
        (GET, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhiHTTP/1.1 200 OK\r\n\r\n"),
    ]
}

#[test]
fn a_response_tells_the_same_wherever_it_is_cut() {
    for (asked, bytes) in good() {
        for limits in [Limits::client(), checks::tight()] {
            let told = tell_responses(bytes, &[], &limits, asked);
            for first in 0..=bytes.len() {
                assert_eq!(tell_responses(bytes, &[first], &limits, asked), told, "cut at {first}");
            }
            let every: Vec<usize> = (0..bytes.len()).collect();
            assert_eq!(tell_responses(bytes, &every, &limits, asked), told, "cut everywhere");
        }
    }
}

#[test]
fn every_good_response_ends_as_its_framing_says() {
    let shapes: Vec<String> = good()
        .iter()
        .map(|(asked, bytes)| {
            tell(bytes, *asked)
                .iter()
                .map(|entry| match entry {
                    Entry::Interim(_) => 'i',
                    Entry::Head(_) => 'h',
                    Entry::Data(_) => 'd',
                    Entry::End(_) => 'e',
                    Entry::HandedOver => '>',
                    Entry::InputEnded(true) => '!',
                    Entry::InputEnded(false) => '.',
                    Entry::Failed(error) => panic!("{error}"),
                })
                .collect()
        })
        .collect();
    assert_eq!(
        shapes,
        ["hdeh.", "hde.", "hde.", "hd!", "h!", "iih.", "hh.", "hh.", "h>", "h>", "hde.", "hde."],
    );
}

#[test]
fn a_head_says_what_was_sent() {
    let bytes = b"HTTP/1.0 404 Not  here\r\nConnection: keep-alive\r\nContent-Length: 7\r\nX: y\r\n\r\n";
    let mut scratch = Scratch::default();
    let mut responses = Responses::new();
    responses.begin(Method::Get).unwrap();
    let mut at = 0;
    let Some(ResponseEvent::Head(head)) = responses.next(&mut scratch, bytes, &mut at).unwrap() else {
        panic!("expected a head")
    };
    assert_eq!(
        (head.status(), head.reason(), head.version()),
        (Status::NOT_FOUND, &b"Not  here"[..], Version::Http10)
    );
    assert_eq!((head.body(), head.keep_alive(), at), (Body::Length(7), true, bytes.len()));
    assert_eq!(head.fields().get("x"), Some(&b"y"[..]));
    let (kept, slots, meta) = (head.bytes().to_vec(), head.fields().slots().to_vec(), head.meta());
    let head = ResponseHead::from_parts(&kept, &slots, meta);
    assert_eq!((head.reason(), head.fields().len()), (&b"Not  here"[..], 3));
    assert_eq!(responses.body_left(), Some(7));
}

#[test]
fn a_body_to_the_end_of_the_connection_leaves_none_to_keep() {
    let mut scratch = Scratch::default();
    let mut responses = Responses::new();
    responses.begin(Method::Get).unwrap();
    let bytes = b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\n\r\n";
    let Some(ResponseEvent::Head(head)) = responses.next(&mut scratch, bytes, &mut 0).unwrap() else {
        panic!("expected a head")
    };
    assert_eq!((head.body(), head.keep_alive()), (Body::UntilClose, false));
    assert_eq!((responses.body_left(), responses.end_of_input()), (None, Ok(true)));
}

#[test]
fn interim_responses_are_counted_anew_for_each_request() {
    let one = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 \r\n\r\nHTTP/1.1 204 \r\n\r\n";
    let told = tell_responses(&one.repeat(3), &[], &checks::tight(), GET);
    assert_eq!(told.last(), Some(&Entry::InputEnded(false)), "{told:?}");
}

#[test]
fn a_tunnel_has_no_body_whatever_is_announced() {
    let mut scratch = Scratch::default();
    let mut responses = Responses::new();
    responses.begin(Method::Connect).unwrap();
    let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
    let Some(ResponseEvent::Head(head)) = responses.next(&mut scratch, bytes, &mut 0).unwrap() else {
        panic!("expected a head")
    };
    assert_eq!((head.body(), responses.phase()), (Body::Empty, Phase::HandedOver));
}

#[test]
fn bad_responses_are_refused_with_502() {
    use Problem as P;
    for (bytes, expected) in [
        (&b"HTTP/1.1 200 O\0K\r\n\r\n"[..], P::StatusLine),
        (b"HTTP/1.1 200 OK\rX", P::LineEnd),
        (b"HTTP/1.1  200 OK\r\n\r\n", P::StatusLine),
        (b"HTTP/1.1 20 OK\r\n\r\n", P::StatusLine),
        (b"HTTP/1.1 2000 OK\r\n\r\n", P::StatusLine),
        (b"HTTP/1.1 099 OK\r\n\r\n", P::StatusLine),
        (b"HTTP/2.0 200 OK\r\n\r\n", P::StatusLine),
        (b"HTTP/0.9 200 OK\r\n\r\n", P::StatusLine),
        (b"ICY 200 OK\r\n\r\n", P::StatusLine),
        (b"<html>", P::StatusLine),
        (b"\r\nHTTP/1.1 200 OK\r\n\r\n", P::StatusLine),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", P::LengthAndCoding),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", P::ContentLengthTwice),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n", P::ContentLength),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", P::UnsupportedCoding),
        (b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", P::TransferEncodingIn10),
        (b"HTTP/1.1 200 OK\r\n X: y\r\n\r\n", P::LeadingSpace),
        (b"HTTP/1.1 200 OK\r\nX Y: y\r\n\r\n", P::FieldName),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", P::Truncated),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", P::Truncated),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx", P::ChunkSize),
        (b"HTTP/1.1 200 OK", P::Truncated),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", P::UnofferedUpgrade),
        (&b"HTTP/1.1 100 Continue\r\n\r\n".repeat(256), P::TooManyInterim),
        (&[b"HTTP/1.1 200 ", &b"x".repeat(33_000)[..]].concat(), P::StatusLineTooLong),
    ] {
        let shown = bytes.escape_ascii().to_string();
        assert_eq!(problem(bytes, GET), Some(expected), "{}", &shown[..shown.len().min(200)]);
        if bytes.len() < 3000 {
            checks::responses(&[b"\0", bytes].concat());
        }
    }
}

#[test]
fn bytes_without_a_request_are_never_taken_for_an_answer() {
    let mut scratch = Scratch::default();
    let mut responses = Responses::new();
    responses.begin(Method::Get).unwrap();
    let bytes = b"HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\n\r\n";
    let mut at = 0;
    assert!(responses.next(&mut scratch, bytes, &mut at).unwrap().is_some());
    assert_eq!(responses.phase(), Phase::Idle);
    let error = responses.next(&mut scratch, bytes, &mut at).unwrap_err();
    assert_eq!((error.problem(), error.status()), (Problem::Unsolicited, Status::BAD_GATEWAY));
    assert_eq!(responses.begin(Method::Get), Err(error));
}

#[test]
fn a_response_is_announced_once_and_not_on_a_connection_that_is_over() {
    let mut scratch = Scratch::default();
    let mut responses = Responses::new();
    responses.begin(Method::Get).unwrap();
    assert_eq!(responses.begin(Method::Get).unwrap_err().problem(), Problem::Busy);
    responses.next(&mut scratch, b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n", &mut 0).unwrap();
    assert_eq!(responses.phase(), Phase::Closed);
    assert_eq!(responses.begin(Method::Get).unwrap_err().problem(), Problem::Busy);
    assert!(size_of::<Responses>() <= 56, "{}", size_of::<Responses>());
}

#[test]
fn a_body_to_the_end_of_the_connection_has_a_limit_too() {
    let limits = Limits { body_bytes: 8, ..Limits::default() };
    let told = tell_responses(b"HTTP/1.1 200 OK\r\n\r\n0123456789", &[], &limits, GET);
    let [Entry::Head(_), Entry::Data(data), Entry::Failed(error)] = &told[..] else { panic!("{told:?}") };
    assert_eq!((data.as_slice(), error.problem()), (&b"01234567"[..], Problem::BodyTooLong));
    let told = tell_responses(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", &[], &limits, GET);
    assert!(matches!(told[..], [Entry::Failed(error)] if error.problem() == Problem::BodyTooLong));
}

/// RFC 9112 §2.2 lets a recipient take LF for a line end. Programs that write CGI-like answers send it.
#[test]
fn lines_of_an_answers_head_may_end_with_a_line_feed_alone_if_that_is_taken() {
    let with = |end: &str| {
        let lines = [
            "HTTP/1.1 103 Early Hints",
            "Link: </a>",
            "",
            "HTTP/1.1 200 OK",
            "X: y ",
            "Content-Length: 2",
            "",
            "hi",
        ];
        lines.join(end).into_bytes()
    };
    let told = |bytes: &[u8], cuts: &[usize], limits: &Limits| tell_responses(bytes, cuts, limits, GET);
    let bare = with("\n");
    let whole = told(&with("\r\n"), &[], &Limits::client());
    assert!(matches!(whole.last(), Some(Entry::InputEnded(false))), "{whole:?}");
    for first in 0..=bare.len() {
        assert_eq!(told(&bare, &[first], &Limits::client()), whole, "cut at {first}");
    }
    // A status line without a phrase; each line as it likes.
    for good in
        [&b"HTTP/1.1 204\nX: y\r\n\n"[..], b"HTTP/1.1 204 No\r\nX: y\n\r\n", b"HTTP/1.0 200 OK\n\nto the end"]
    {
        assert_eq!(problem(good, GET), None, "{}", good.escape_ascii());
        let strict = told(good, &[], &Limits { tolerant: false, ..Limits::client() });
        assert!(matches!(strict.last(), Some(Entry::Failed(_))), "{strict:?}");
    }
    // CR alone ends nothing, a line is not folded, and chunks end as they always did.
    for bad in [
        &b"HTTP/1.1 200 OK\rX: y\n\n"[..],
        b"HTTP/1.1 200 OK\nX: y\rZ: 1\n\n",
        b"HTTP/1.1 200 OK\nX: y\n folded\n\n",
        b"HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n2\nhi\n0\n\n",
        b"HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n2\r\nhi\r\n0\r\nX: y\n\r\n",
    ] {
        assert!(problem(bad, GET).is_some(), "{}", bad.escape_ascii());
    }
}

/// RFC 9112 §5.1 has a proxy take blanks before a colon away; §7.1.1 has none behind a size, with which old
/// servers fill a field of fixed width; and RFC 9110 §6.5.1 has a recipient ignore what may be in no trailer.
#[test]
fn blanks_before_a_colon_padded_sizes_and_forbidden_trailers_are_taken_of_an_answer() {
    let told = |bytes: &[u8], cuts: &[usize], limits: &Limits| tell_responses(bytes, cuts, limits, GET);
    let chunked = |name_end: &str, pad: &str, trailers: &str| {
        let head =
            format!("HTTP/1.1 200 OK\r\nX{name_end}: y\r\nTransfer-Encoding{name_end}: chunked\r\n\r\n");
        format!("{head}2{pad}\r\nhi\r\n0{pad}\r\n{trailers}\r\n").into_bytes()
    };
    let clean = told(&chunked("", "", "X-Sum: 1\r\n"), &[], &Limits::client());
    assert!(matches!(clean.last(), Some(Entry::InputEnded(false))), "{clean:?}");
    let forbidden = "Content-Length: 7\r\nX-Sum: 1\r\nset-cookie: a=b\r\n";
    for (name_end, pad, trailers) in [
        (" ", "", "X-Sum: 1\r\n"),
        ("\t ", "", "X-Sum: 1\r\n"),
        ("", "   \t", "X-Sum: 1\r\n"),
        ("", "", forbidden),
    ] {
        let loose = chunked(name_end, pad, trailers);
        for first in 0..=loose.len() {
            let got = told(&loose, &[first], &Limits::client());
            assert_eq!(got, clean, "cut at {first} of {}", loose.escape_ascii());
        }
        let strict = told(&loose, &[], &Limits { tolerant: false, ..Limits::client() });
        assert!(matches!(strict.last(), Some(Entry::Failed(_))), "{strict:?}");
        // A request with the same body and the same lines stays refused, whatever the limits.
        let request = [b"POST / HTTP/1.1\r\nHost: a\r\n", &loose["HTTP/1.1 200 OK\r\n".len()..]].concat();
        let told = tell_requests(&request, &[], &Limits::client());
        assert!(matches!(told.last(), Some(Entry::Failed(_))), "{}: {told:?}", request.escape_ascii());
    }
    // What frames an answer counts with blanks too, and a name is still a token.
    for bad in [
        &b"HTTP/1.1 200 OK\r\nContent-Length : 2\r\nContent-Length: 3\r\n\r\nhi"[..],
        b"HTTP/1.1 200 OK\r\n : y\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX Y: y\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX \r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2 2\r\nhi\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n 2\r\nhi\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2 \nhi\r\n0\r\n\r\n",
    ] {
        assert!(problem(bad, GET).is_some(), "{}", bad.escape_ascii());
    }
}

/// RFC 9110 §8.6 lets a recipient take a length that is told twice, and RFC 9112 §6.3 has an answer that is
/// not chunked end with its connection. nginx and curl take both.
#[test]
fn the_same_length_twice_and_identity_as_the_only_coding_are_taken_of_an_answer() {
    let told = |bytes: &[u8], cuts: &[usize]| tell_responses(bytes, cuts, &Limits::client(), GET);
    let body = |lines: &str| format!("HTTP/1.1 200 OK\r\n{lines}\r\nhello").into_bytes();
    let identity = "Transfer-Encoding: identity\r\n";
    // What ends with the connection is ended by the end of the input.
    for (lines, by_the_end) in [
        ("Content-Length: 5\r\nContent-Length: 5\r\n", false),
        ("Content-Length: 5\r\nX: y\r\ncontent-length: 05\r\nContent-Length:5\r\n", false),
        (identity, true),
        ("transfer-encoding: Identity\r\nConnection: keep-alive\r\n", true),
    ] {
        let bytes = body(lines);
        let whole = told(&bytes, &[]);
        assert!(whole.contains(&Entry::Data(b"hello".to_vec())), "{whole:?}");
        assert_eq!(whole.last(), Some(&Entry::InputEnded(by_the_end)), "{lines}");
        for cut in 0..=bytes.len() {
            assert_eq!(told(&bytes, &[cut]), whole, "cut at {cut} of {lines}");
        }
        let strict = tell_responses(&bytes, &[], &Limits { tolerant: false, ..Limits::client() }, GET);
        assert!(matches!(strict.last(), Some(Entry::Failed(_))), "{strict:?}");
        let request = [b"POST / HTTP/1.1\r\nHost: a\r\n", lines.as_bytes(), b"\r\nhello"].concat();
        let refused = tell_requests(&request, &[], &Limits::client());
        assert!(matches!(refused.last(), Some(Entry::Failed(_))), "{lines}: {refused:?}");
    }
    // Where readers may differ about the end, nothing is taken.
    for (lines, expected) in [
        ("Content-Length: 5\r\nContent-Length: 6\r\n", Problem::ContentLengthTwice),
        ("Content-Length: 6\r\nContent-Length: 5\r\nContent-Length: 5\r\n", Problem::ContentLengthTwice),
        (
            "Content-Length: 5\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            Problem::ContentLengthTwice,
        ),
        ("Content-Length: 5\r\nTransfer-Encoding: identity\r\n", Problem::TransferEncoding),
        ("Transfer-Encoding: identity\r\nTransfer-Encoding: identity\r\n", Problem::TransferEncoding),
        ("Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n", Problem::TransferEncoding),
        ("Transfer-Encoding: identity, chunked\r\n", Problem::UnsupportedCoding),
    ] {
        for asked in [GET, Method::Head.into()] {
            assert_eq!(problem(&body(lines), asked), Some(expected), "{lines}");
        }
    }
}

/// curl takes 300 KiB of header lines, browsers 256 KiB.
#[test]
fn a_client_takes_heads_as_long_as_others_do() {
    let line = |bytes: usize| format!("X: {}\r\n", "x".repeat(bytes - 3));
    let head = |lines: &str| format!("HTTP/1.1 200 OK\r\n{lines}Content-Length: 2\r\n\r\nhi").into_bytes();
    let length = "Content-Length: 2\r\n".len();
    let all = 256 * 1024 - length;
    let four = line(63 * 1024).repeat(4);
    for (lines, expected) in [
        (line(65_535), None),
        (line(65_536), Some(Problem::FieldLineTooLong)),
        (line(10).repeat(254), None),
        (line(10).repeat(255), Some(Problem::TooManyFields)),
        (format!("{four}{}", line(all - four.len())), None),
        (format!("{four}{}", line(all - four.len() + 3)), Some(Problem::HeadersTooLong)),
    ] {
        let bytes = head(&lines);
        assert_eq!(problem(&bytes, GET), expected, "{} bytes", bytes.len());
        if expected.is_none() {
            let mut scratch = Scratch::new(Limits::client());
            let mut responses = Responses::new();
            responses.begin(GET).unwrap();
            let Some(ResponseEvent::Head(head)) = responses.next(&mut scratch, &bytes, &mut 0).unwrap()
            else {
                panic!("a head");
            };
            // The places behind 64 KiB are right.
            assert_eq!(head.fields().get("content-length"), Some(&b"2"[..]));
            assert_eq!(head.keep().view().fields().iter().last().unwrap().name, b"Content-Length");
        }
    }
}

/// A server that works for long says so now and then; a long body may carry a signature in each chunk.
#[test]
fn a_client_takes_many_interim_responses_and_long_extensions_and_trailers() {
    let with = |interim: usize, chunks: usize, trailers: usize| {
        let processing = "HTTP/1.1 102 Processing\r\n\r\n".repeat(interim);
        let head = format!("HTTP/1.1 200 {}\r\nTransfer-Encoding: chunked\r\n\r\n", "x".repeat(20_000));
        let chunk = format!("2;signature={}\r\nhi\r\n", "5".repeat(64));
        let trailer = format!("X-Sum: {}\r\n", "y".repeat(1_000)).repeat(trailers);
        format!("{processing}{head}{}0\r\n{trailer}\r\n", chunk.repeat(chunks)).into_bytes()
    };
    assert_eq!(problem(&with(255, 2_000, 60), GET), None);
    assert_eq!(problem(&with(256, 1, 1), GET), Some(Problem::TooManyInterim));
    assert_eq!(problem(&with(1, 1, 66), GET), Some(Problem::TrailersTooLong));
}

/// RFC 9112 §5.2: a client replaces what folds a line by spaces, before it reads the line.
#[test]
fn a_folded_line_of_an_answer_reads_as_with_spaces() {
    let pieces = [
        "X",
        ": a",
        " ",
        "\t",
        "b, c",
        "\r\n ",
        "\r\n\t",
        "\n ",
        "\r\n  \r\n ",
        "\r\nYY: 2",
        "\r\nLink: <a>",
    ];
    let spaced = |folded: &str| folded.replace("\r\n ", "   ").replace("\r\n\t", "  \t").replace("\n ", "  ");
    let mut state = 1_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    let (mut whole, mut failed) = (0, 0);
    for _ in 0..4000 {
        let mut lines = "X: a".to_owned();
        for _ in 0..random(12) {
            lines.push_str(pieces[random(pieces.len())]);
        }
        let text = |lines: &str| {
            let interim = "HTTP/1.1 103 Early Hints\r\nLink: <b>\r\n\r\n";
            format!("{interim}HTTP/1.1 200 OK\r\n{lines}\r\nContent-Length: 2\r\n\r\nhi").into_bytes()
        };
        let (folded, plain) = (text(&lines), text(&spaced(&lines)));
        for limits in [Limits::client(), Limits { tolerant: true, body_bytes: 99, ..checks::tight() }] {
            let expected = tell_responses(&plain, &[], &limits, GET);
            let is_whole = matches!(expected.last(), Some(Entry::InputEnded(false)));
            *(if is_whole { &mut whole } else { &mut failed }) += 1;
            let every: Vec<usize> = (0..folded.len()).collect();
            for cuts in [vec![], every, vec![random(folded.len())], vec![random(folded.len())]] {
                let got = tell_unfolded(&folded, &cuts, &limits, GET);
                match (got.last(), expected.last()) {
                    // Which limit is met first may differ.
                    (Some(Entry::Failed(_)), Some(Entry::Failed(_))) => {}
                    _ => assert_eq!(got, expected, "cut at {cuts:?} of {}", folded.escape_ascii()),
                }
            }
        }
        if folded != plain {
            let request = [b"GET / HTTP/1.1\r\nHost: a\r\n", lines.as_bytes(), b"\r\n\r\n"].concat();
            let told = tell_requests(&request, &[], &Limits::client());
            assert!(matches!(told.last(), Some(Entry::Failed(_))), "{}: {told:?}", request.escape_ascii());
            let strict = Limits { tolerant: false, ..Limits::client() };
            let told = tell_unfolded(&folded, &[], &strict, GET);
            assert!(matches!(told.last(), Some(Entry::Failed(_))), "{}: {told:?}", folded.escape_ascii());
        }
    }
    assert!(whole > 1000 && failed > 100, "{whole} {failed}");
}

#[test]
fn a_line_that_frames_an_answer_or_follows_its_status_is_not_unfolded() {
    for bad in [
        &b"HTTP/1.1 200 OK\r\n X: y\r\n\r\n"[..],
        b"HTTP/1.1 200\r\n OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n \r\nX: y\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: y\r\nContent-Length: 2\r\n \r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nContent-Length:\r\n 2\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\ncontent-length : 2\r\n\t\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nX: y\r\n z\r\nContent-Length: 2\r\n 3\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n \r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTRANSFER-ENCODING:\r\n chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX\r\n : y\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: y\r z\r\n\r\n",
        // Trailers are not unfolded.
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: y\r\n z\r\n\r\n",
    ] {
        let told = tell_unfolded(bad, &[], &Limits::client(), GET);
        assert!(matches!(told.last(), Some(Entry::Failed(_))), "{}: {told:?}", bad.escape_ascii());
        for first in 0..=bad.len() {
            let cut = tell_unfolded(bad, &[first], &Limits::client(), GET);
            assert_eq!(cut, told, "cut at {first} of {}", bad.escape_ascii());
        }
    }
    // What folds nothing stays an error that stays.
    let (mut scratch, mut responses) = (Scratch::new(Limits::client()), Responses::new());
    responses.begin(GET).unwrap();
    assert!(!responses.unfold(&mut b"HTTP/1.1 200 OK\r\nX: y\r\n z\r\n\r\n".to_vec(), 0));
    let mut bytes = b"HTTP/1.1 200 OK\r\n X: y\r\n\r\n".to_vec();
    let error = responses.next(&mut scratch, &bytes, &mut 0).map(|_| ()).unwrap_err();
    assert_eq!((error.problem(), responses.phase()), (Problem::LeadingSpace, Phase::Failed));
    assert!(!responses.unfold(&mut bytes, 0) && !responses.unfold(&mut bytes, 0));
    assert_eq!(responses.next(&mut scratch, &bytes, &mut 0).map(|_| ()).unwrap_err(), error);
}

/// RFC 9110 §2.5: a recipient reads a higher minor version as the highest that it knows.
#[test]
fn a_higher_minor_version_is_read_as_http_1_1() {
    for minor in '0'..='9' {
        let answer =
            |minor: char| format!("HTTP/1.{minor} 200 OK\r\nContent-Length: 2\r\n\r\nhi").into_bytes();
        let request = |minor: char| format!("GET / HTTP/1.{minor}\r\nHost: a\r\n\r\n").into_bytes();
        let same = if minor == '0' { '0' } else { '1' };
        assert_eq!(tell(&answer(minor), GET), tell(&answer(same), GET));
        for cut in 0..request(minor).len() {
            let told = tell_requests(&request(minor), &[cut], &Limits::default());
            assert_eq!(told, tell_requests(&request(same), &[], &Limits::default()), "1.{minor}");
        }
    }
    for version in ["HTTP/2.0", "HTTP/0.9", "HTTP/3.1"] {
        let request = format!("GET / {version}\r\nHost: a\r\n\r\n");
        match tell_requests(request.as_bytes(), &[], &Limits::default()).last() {
            Some(Entry::Failed(error)) => assert_eq!(error.status().code(), 505, "{version}"),
            told => panic!("{version}: {told:?}"),
        }
        let answer = format!("{version} 200 OK\r\n\r\n");
        assert_eq!(problem(answer.as_bytes(), GET), Some(Problem::StatusLine), "{version}");
    }
    for version in ["HTTP/1.10", "HTTP/1.", "HTTP/1.x", "HTTP/01.1"] {
        let request = format!("GET / {version}\r\nHost: a\r\n\r\n");
        let told = tell_requests(request.as_bytes(), &[], &Limits::default());
        assert!(matches!(told.last(), Some(Entry::Failed(_))), "{version}: {told:?}");
        let answer = format!("{version} 200 OK\r\n\r\n");
        assert_eq!(problem(answer.as_bytes(), GET), Some(Problem::StatusLine), "{version}");
    }
}
