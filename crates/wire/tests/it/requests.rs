//! What a server understands of good requests, and how a connection goes on.

use crate::checks::{self, Entry, tell_requests, tell_requests_with};
use crate::server::serve;
use ringroad_wire::{
    Body, EncodeError, Error, Event, Form, HeadEdit, Limits, Method, Phase, Problem, RequestHead, Requests,
    Scratch, Slot, Status, Version,
};

/// Shows the first head of `bytes` to `look`.
fn head_of<T>(bytes: &[u8], look: impl FnOnce(RequestHead<'_>) -> T) -> T {
    let mut scratch = Scratch::default();
    let mut requests = Requests::new();
    match requests.next(&mut scratch, bytes, &mut 0) {
        Ok(Some(Event::Head(head))) => look(head),
        other => panic!("expected a head, got {other:?}"),
    }
}

/// Good messages of every kind; each is cut at every byte.
fn good() -> Vec<&'static [u8]> {
    vec![
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost:a\r\nEmpty:\r\nBlank: \t \r\nTab: a\tb \t\r\nOld: \xe9\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
        b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n\x16\x03\x01",
        b"GET http://b/c?d HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhelloGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: CHUNKED\r\n\r\n\
          5;a\r\nhello\r\n00A ;b = \"c\\\"\t\xe9\" ; d=e \t;f\r\n0123456789\r\n0;g=h\r\nX: y\r\nZ: \r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabc",
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\nGET / HTTP/1.0\r\n\r\nGET / HTTP/1.0\r\n\r\n",
        b"GET /chat HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: [::1]:80\r\nConnection: x, close\r\n\r\n",
    ]
}

#[test]
fn a_message_tells_the_same_wherever_it_is_cut() {
    for bytes in good() {
        for limits in [Limits::default(), checks::tight()] {
            let told = tell_requests(bytes, &[], &limits);
            for first in 0..=bytes.len() {
                assert_eq!(tell_requests(bytes, &[first], &limits), told, "cut at {first}");
                let second = (first + 7).min(bytes.len());
                assert_eq!(
                    tell_requests(bytes, &[first, second], &limits),
                    told,
                    "cut at {first} and {second}"
                );
            }
            let every: Vec<usize> = (0..bytes.len()).collect();
            assert_eq!(tell_requests(bytes, &every, &limits), told, "cut everywhere");
        }
        checks::requests(bytes);
        crate::differential::httparse(bytes);
        crate::differential::hyper(bytes);
    }
}

#[test]
fn every_good_message_is_taken() {
    let answers: Vec<usize> = good().iter().map(|bytes| serve(bytes, &[], false).statuses.len()).collect();
    assert_eq!(answers, [1, 2, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 1, 1]);
    for bytes in good() {
        let told = tell_requests(bytes, &[], &Limits::default());
        assert_eq!(told.last(), Some(&Entry::InputEnded(false)), "{told:?}");
    }
}

#[test]
fn a_head_says_what_was_sent() {
    let bytes =
        b"GET http://b:81/c/d?e=f?g HTTP/1.1\r\nhOSt: a\r\nX-One:  1 \t\r\nx-one: 2\r\nEmpty:\r\n\r\n";
    head_of(bytes, |head| {
        assert_eq!(
            (head.method(), head.method_name(), head.version()),
            (Method::Get, "GET", Version::Http11)
        );
        assert_eq!((head.form(), head.target()), (Form::Absolute, "http://b:81/c/d?e=f?g"));
        assert_eq!((head.authority(), head.path(), head.query()), (Some("b:81"), "/c/d", Some("e=f?g")));
        assert_eq!((head.body(), head.keep_alive(), head.upgrade()), (Body::Empty, true, false));
        assert_eq!(head.bytes(), bytes);
        let fields = head.fields();
        assert_eq!((fields.len(), fields.is_empty()), (4, false));
        assert_eq!(fields.get("host"), Some(&b"a"[..]));
        assert_eq!(fields.get_all("X-ONE").collect::<Vec<_>>(), [b"1", b"2"]);
        assert_eq!(fields.get("Empty"), Some(&b""[..]));
        assert_eq!(fields.get("X-Two"), None);
    });
}

#[test]
fn paths_and_queries_are_those_of_the_form() {
    let parts = |line: &str| {
        head_of(format!("{line} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes(), |head| {
            (head.path().to_string(), head.query().map(str::to_string), head.authority().map(str::to_string))
        })
    };
    let expected = |path: &str, query: Option<&str>, authority: &str| {
        (path.to_string(), query.map(str::to_string), Some(authority.to_string()))
    };
    assert_eq!(parts("GET /"), expected("/", None, "h"));
    assert_eq!(parts("GET /?"), expected("/", Some(""), "h"));
    assert_eq!(parts("GET //a//b?c"), expected("//a//b", Some("c"), "h"));
    assert_eq!(parts("GET http://a"), expected("/", None, "a"));
    assert_eq!(parts("GET http://a?b"), expected("/", Some("b"), "a"));
    assert_eq!(parts("OPTIONS http://a"), expected("*", None, "a"));
    assert_eq!(parts("OPTIONS http://a/"), expected("/", None, "a"));
    assert_eq!(parts("OPTIONS *"), expected("*", None, "h"));
    assert_eq!(parts("CONNECT a:1"), expected("", None, "a:1"));
}

#[test]
fn a_head_can_be_kept_in_parts() {
    let bytes = b"POST /a HTTP/1.1\r\nHost: h\r\nX: y\r\nContent-Length: 5\r\n\r\n";
    let (kept, slots, meta) =
        head_of(bytes, |head| (head.bytes().to_vec(), head.fields().slots().to_vec(), head.meta()));
    let head = RequestHead::from_parts(&kept, &slots, meta);
    assert_eq!((head.target(), head.authority(), head.body()), ("/a", Some("h"), Body::Length(5)));
    assert_eq!(head.fields().get("x"), Some(&b"y"[..]));

    let nonsense = RequestHead::from_parts(b"", &slots, meta);
    assert_eq!((nonsense.target(), nonsense.authority()), ("", Some("")));
    assert_eq!(nonsense.fields().get("x"), None);
    assert_eq!(RequestHead::from_parts(&kept, &[Slot::default()], meta).fields().get("x"), None);
}

#[test]
fn keep_alive_is_decided_by_version_and_options() {
    let keeps = |version: &str, option: &str| {
        let connection = if option.is_empty() { String::new() } else { format!("Connection: {option}\r\n") };
        head_of(format!("GET / {version}\r\nHost: a\r\n{connection}\r\n").as_bytes(), |head| {
            head.keep_alive()
        })
    };
    for (option, in_11, in_10) in [
        ("", true, false),
        ("keep-alive", true, true),
        ("Keep-Alive, X", true, true),
        ("close", false, false),
        ("CLOSE", false, false),
        ("x ,\tclose", false, false),
        ("keep-alive, close", false, false),
        ("closed", true, false),
    ] {
        assert_eq!((keeps("HTTP/1.1", option), keeps("HTTP/1.0", option)), (in_11, in_10), "{option}");
    }
}

#[test]
fn after_the_last_request_bytes_are_used_and_ignored() {
    let mut scratch = Scratch::default();
    let mut requests = Requests::new();
    let bytes = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut at = 0;
    assert!(requests.next(&mut scratch, bytes, &mut at).unwrap().is_some());
    assert_eq!(requests.phase(), Phase::Closed);
    assert!(requests.next(&mut scratch, bytes, &mut at).unwrap().is_none());
    assert_eq!(at, bytes.len());
    assert_eq!(requests.end_of_input(), Ok(()));
}

#[test]
fn a_connection_handed_over_leaves_its_bytes_alone() {
    let offers: [&[u8]; 2] = [
        b"GET /chat HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n\x81\x05hello",
        b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n\x16\x03\x01",
    ];
    for bytes in offers {
        let mut scratch = Scratch::default();
        let mut requests = Requests::new();
        let mut at = 0;
        let event = requests.next(&mut scratch, bytes, &mut at).unwrap();
        assert!(matches!(event, Some(Event::Head(head)) if head.upgrade() || head.form() == Form::Authority));
        assert!(requests.hand_over());
        let end = at;
        assert!(requests.next(&mut scratch, bytes, &mut at).unwrap().is_none());
        assert_eq!((at, requests.phase()), (end, Phase::HandedOver));
    }
}

/// A client may send what is meant for the tunnel before it knows whether there is one.
#[test]
fn bytes_behind_a_refused_connect_are_never_a_request() {
    let bytes = b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    head_of(bytes, |head| assert!(!head.keep_alive()));
    let told = tell_requests(bytes, &[], &Limits::default());
    assert!(matches!(told[..], [Entry::Head(_), Entry::InputEnded(false)]), "{told:?}");
}

#[test]
fn a_connection_is_not_handed_over_within_a_request() {
    let bytes =
        b"POST / HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\nConnection: upgrade\r\nContent-Length: 5\r\n\r\nhello";
    let mut scratch = Scratch::default();
    let mut requests = Requests::new();
    let mut at = 0;
    assert!(requests.next(&mut scratch, &bytes[..9], &mut at).unwrap().is_none());
    assert!(!requests.hand_over());
    loop {
        match requests.next(&mut scratch, bytes, &mut at).unwrap() {
            Some(Event::End(_)) => break,
            Some(_) => assert!(!requests.hand_over()),
            None => panic!("the body is all there"),
        }
    }
    assert!(requests.hand_over());
}

#[test]
fn an_upgrade_needs_both_lines_and_version_11() {
    let upgrades = |lines: &str, version: &str| {
        head_of(format!("GET / {version}\r\nHost: a\r\n{lines}\r\n").as_bytes(), |head| head.upgrade())
    };
    assert!(upgrades("Connection: Upgrade\r\nUpgrade: x\r\n", "HTTP/1.1"));
    assert!(!upgrades("Connection: Upgrade\r\nUpgrade: x\r\n", "HTTP/1.0"));
    assert!(!upgrades("Connection: Upgrade\r\n", "HTTP/1.1"));
    assert!(!upgrades("Upgrade: x\r\n", "HTTP/1.1"));
}

#[test]
fn an_expectation_needs_a_body_and_version_11() {
    let expects = |lines: &str, version: &str| {
        let bytes = format!("POST / {version}\r\nHost: a\r\nExpect: 100-continue\r\n{lines}\r\n");
        head_of(bytes.as_bytes(), |head| head.expects_continue())
    };
    assert!(expects("Content-Length: 5\r\n", "HTTP/1.1"));
    assert!(expects("Transfer-Encoding: chunked\r\n", "HTTP/1.1"));
    assert!(!expects("Content-Length: 5\r\n", "HTTP/1.0"));
    assert!(!expects("Content-Length: 0\r\n", "HTTP/1.1"));
    assert!(!expects("", "HTTP/1.1"));
}

#[test]
fn a_body_is_skipped_if_it_was_promised_or_has_begun() {
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
    let limits = Limits::default();
    let mut scratch = Scratch::default();
    let begin = |scratch: &mut Scratch| {
        let mut requests = Requests::new();
        requests.next(scratch, head, &mut 0).unwrap();
        requests
    };
    let mut closed = begin(&mut scratch);
    assert!(!closed.skip_body(&limits));
    assert_eq!(closed.phase(), Phase::Closed, "what comes next could be the body or a request");

    let mut told = begin(&mut scratch);
    told.continue_sent();
    assert!(told.skip_body(&limits));
    let mut at = 0;
    assert!(matches!(told.next(&mut scratch, b"helloGET", &mut at), Ok(Some(Event::End(_)))));
    assert_eq!(at, 5);

    let mut begun = begin(&mut scratch);
    assert!(begun.next(&mut scratch, b"he", &mut 0).unwrap().is_some());
    assert!(begun.skip_body(&limits));
    assert!(Requests::new().skip_body(&limits), "there is nothing to skip");
}

#[test]
fn only_the_body_at_hand_is_skipped() {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n";
    let bytes = format!("{head}hello{head}world");
    let mut scratch = Scratch::default();
    let mut requests = Requests::new();
    let mut at = 0;
    assert!(requests.next(&mut scratch, bytes.as_bytes(), &mut at).is_ok());
    assert!(requests.skip_body(&Limits::default()));
    let told = checks::shapes(&mut requests, &mut scratch, bytes.as_bytes(), &mut at);
    assert_eq!(told, "ehde");
}

#[test]
fn what_was_skipped_counts_also_when_it_is_asked_for_again() {
    let limits = checks::tight();
    let mut scratch = Scratch::new(limits.clone());
    let mut requests = Requests::new();
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert!(requests.next(&mut scratch, head, &mut 0).is_ok());
    assert!(requests.skip_body(&limits));
    assert!(matches!(requests.next(&mut scratch, b"5\r\nhello\r\n", &mut 0), Ok(None)));
    assert!(requests.skip_body(&limits));
    let error = requests.next(&mut scratch, b"5\r\nworld\r\n", &mut 0).unwrap_err();
    assert_eq!(error.problem(), Problem::DrainTooLong);
}

#[test]
fn a_caller_may_take_less_of_a_body_never_more() {
    let mut scratch = Scratch::default();
    let mut requests = Requests::new();
    requests.next(&mut scratch, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n", &mut 0).unwrap();
    assert_eq!(requests.limit_body(5), Ok(()));
    assert_eq!(requests.limit_body(u64::MAX), Ok(()));
    let error = requests.limit_body(4).unwrap_err();
    assert_eq!((error.problem(), error.status()), (Problem::BodyTooLong, Status::CONTENT_TOO_LARGE));
    assert_eq!(requests.next(&mut scratch, b"hello", &mut 0).unwrap_err(), error);

    let mut requests = Requests::new();
    requests
        .next(&mut scratch, b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", &mut 0)
        .unwrap();
    assert_eq!(requests.limit_body(4), Ok(()));
    assert_eq!(requests.limit_body(u64::MAX), Ok(()), "and is not taken back");
    assert_eq!(requests.next(&mut scratch, b"5\r\n", &mut 0).unwrap_err().problem(), Problem::BodyTooLong);
}

#[test]
fn extension_methods_are_taken_where_they_are_allowed() {
    let bytes = b"PROPFIND / HTTP/1.1\r\nHost: a\r\n\r\n";
    let told = tell_requests(bytes, &[], &Limits { extension_methods: true, ..Limits::default() });
    assert!(matches!(&told[0], Entry::Head(head) if head.contains("PROPFIND")), "{told:?}");
}

#[test]
fn methods_without_content_take_none() {
    for line in ["CONNECT a:1", "TRACE /"] {
        for framing in ["Content-Length: 5", "Transfer-Encoding: chunked"] {
            let bytes = format!("{line} HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n");
            let served = serve(bytes.as_bytes(), &[], false);
            assert_eq!(
                (served.statuses.as_slice(), served.problem),
                (&[400][..], Some(Problem::BodyNotAllowed))
            );
        }
    }
}

/// The table is the worker's, not the connection's.
#[test]
fn connections_that_share_a_table_do_not_mix() {
    let trailers = |letter: &str| {
        format!(
            "POST /{letter} HTTP/1.1\r\nHost: {letter}\r\nTransfer-Encoding: chunked\r\n\r\n\
             0\r\nOne-{letter}: 1{letter}\r\nX: two {letter}\r\nThree: 3\r\n\r\n"
        )
    };
    let streams = [trailers("a"), trailers("bcdef")];
    let mut scratch = Scratch::default();
    let mut connections = [(Requests::new(), 0, String::new()), (Requests::new(), 0, String::new())];
    for end in 1..=streams[1].len() {
        for ((requests, at, told), bytes) in connections.iter_mut().zip(&streams) {
            let bytes = &bytes.as_bytes()[..end.min(bytes.len())];
            while let Some(event) = requests.next(&mut scratch, bytes, at).unwrap() {
                told.push_str(&format!("{event:?}"));
            }
        }
    }
    for ((_, at, told), bytes) in connections.iter().zip(&streams) {
        let mut alone = Requests::new();
        let mut expected = String::new();
        let mut from = 0;
        while let Some(event) = alone.next(&mut scratch, bytes.as_bytes(), &mut from).unwrap() {
            expected.push_str(&format!("{event:?}"));
        }
        assert_eq!((*at, told), (bytes.len(), &expected));
        assert!(expected.contains("One-"), "{expected}");
    }
}

#[test]
fn a_long_head_in_single_bytes_is_taken() {
    let line = [b"X: ", &b"x".repeat(300)[..], b"\r\n"].concat();
    let bytes = [b"GET / HTTP/1.1\r\nHost: a\r\n", &line.repeat(99)[..], b"\r\n"].concat();
    let every: Vec<usize> = (0..bytes.len()).collect();
    let told = tell_requests(&bytes, &every, &Limits::default());
    assert_eq!(told, tell_requests(&bytes, &[], &Limits::default()));
    assert_eq!(told.len(), 2);
}

#[test]
fn bytes_taken_back_do_no_harm() {
    let mut scratch = Scratch::default();
    let mut requests = Requests::new();
    requests.next(&mut scratch, b"GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n", &mut 0).unwrap();
    assert!(matches!(requests.next(&mut scratch, b"GET", &mut 0), Ok(None)));
    let event = requests.next(&mut scratch, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", &mut 0).unwrap();
    assert!(matches!(event, Some(Event::Head(_))));
}

#[test]
fn an_error_says_what_was_expected_and_what_came() {
    let told =
        tell_requests(b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x10\r\n\r\n", &[], &Limits::default());
    let [Entry::Failed(error)] = told[..] else { panic!("{told:?}") };
    let error: Error = error;
    assert_eq!(
        error.to_string(),
        "Content-Length: expected 1 to 19 digits, got \"0x10\" (answer 400 and close)"
    );
    let statuses: Vec<u16> = Problem::ALL.iter().map(|problem| problem.status().code()).collect();
    assert!(statuses.iter().all(|status| [400, 413, 414, 417, 431, 501, 502, 505].contains(status)));
}

/// Heads that differ in one byte, are longer or shorter by one, or are cut there, after one that is kept:
/// what is told of each is what is told of it alone.
#[test]
fn a_head_that_is_nearly_the_last_one_is_read_for_itself() {
    let limits = Limits::default();
    let base = b"GET /a?b HTTP/1.1\r\nHost: a:80\r\nConnection: upgrade\r\nContent-Length: 3\r\n\r\nabc";
    let alone = |bytes: &[u8]| tell_requests_with(&mut Scratch::new(limits.clone()), bytes, &[]);
    let mut scratch = Scratch::new(limits.clone());
    let mut check = |bytes: &[u8]| {
        let expected = alone(bytes);
        assert_eq!(tell_requests_with(&mut scratch, base, &[]), alone(base));
        assert_eq!(tell_requests_with(&mut scratch, bytes, &[]), expected, "{}", bytes.escape_ascii());
    };
    for at in 0..base.len() {
        for byte in [0, b' ', b'\r', b'\n', b'0', b'9', b':', b'A', b'x', 0xff] {
            let (mut other, mut longer) = (base.to_vec(), base.to_vec());
            other[at] = byte;
            longer.insert(at, byte);
            check(&other);
            check(&longer);
        }
        let mut shorter = base.to_vec();
        shorter.remove(at);
        check(&shorter);
        check(&base[..at]);
        check(&[base, &base[..at]].concat());
    }
}

/// What else is read with the same table, between two heads that are the same, does not show in the second: a
/// body's trailers, a head that is refused, one that is longer than what is kept, one that comes in pieces.
#[test]
fn what_is_read_between_two_heads_that_are_the_same_leaves_no_trace() {
    let limits = Limits::default();
    let base = b"GET /one HTTP/1.1\r\nHost: a\r\nX-First: 1\r\nX-Second: 2\r\n\r\n";
    let long = format!("GET / HTTP/1.1\r\nHost: b\r\nX: {}\r\n\r\n", "x".repeat(600));
    let chunked =
        "POST / HTTP/1.1\r\nHost: b\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nT-One: x\r\nT-Two: y\r\n\r\n";
    let refused = "GET / HTTP/1.1\r\nOne: two\r\nThree: four\r\nbad line\r\n\r\n";
    let mut scratch = Scratch::new(limits.clone());
    let expected = tell_requests_with(&mut Scratch::new(limits.clone()), base, &[]);
    for between in [&long, chunked, refused, "GET / HTTP/1.1\r\nHost: c\r\nSome: th"] {
        for cuts in [vec![], (0..between.len()).collect()] {
            assert_eq!(tell_requests_with(&mut scratch, base, &[]), expected);
            tell_requests_with(&mut scratch, between.as_bytes(), &cuts);
            assert_eq!(tell_requests_with(&mut scratch, base, &[]), expected, "after {between:?}");
        }
    }
}

#[test]
fn heads_have_the_same_stamp_if_and_only_if_they_are_known_to_be_the_same() {
    let mut scratch = Scratch::default();
    let mut stamp = |bytes: &[u8]| {
        let mut requests = Requests::new();
        match requests.next(&mut scratch, bytes, &mut 0) {
            Ok(Some(Event::Head(head))) => head.stamp(),
            other => panic!("{other:?}"),
        }
    };
    let one = b"GET /one HTTP/1.1\r\nHost: a\r\n\r\n";
    let two = b"GET /two HTTP/1.1\r\nHost: a\r\n\r\nand more";
    let long = format!("GET / HTTP/1.1\r\nHost: b\r\nX: {}\r\n\r\n", "x".repeat(600));
    let first = stamp(one);
    assert!(first.is_some());
    assert_eq!(stamp(one), first);
    assert_eq!(stamp(&[one, &two[..]].concat()), first, "what is behind does not matter");
    let second = stamp(two);
    assert!(second.is_some() && second != first);
    assert_ne!(stamp(one), first, "it was forgotten meanwhile");
    assert_eq!(stamp(long.as_bytes()), None);
    assert_ne!(stamp(one), first);
}

/// What a head says after `change`.
fn edited(
    bytes: &[u8],
    change: impl FnOnce(&mut HeadEdit<'_>) -> Result<(), EncodeError>,
) -> Result<String, EncodeError> {
    let (mut kept, mut slots, mut meta) =
        head_of(bytes, |head| (head.bytes().to_vec(), head.fields().slots().to_vec(), head.meta()));
    change(&mut HeadEdit::new(&mut kept, &mut slots, &mut meta))?;
    let head = RequestHead::from_parts(&kept, &slots, meta);
    assert!(kept.ends_with(b"\r\n\r\n"), "{:?}", kept.escape_ascii().to_string());
    Ok(format!(
        "{} {} {:?} {:?} {:?}",
        head.method_name(),
        head.path(),
        head.query(),
        head.authority(),
        head.fields()
    ))
}

#[test]
fn a_kept_head_gets_another_target_and_keeps_its_host_and_lines() {
    let head = b"GET /a?b HTTP/1.1\r\nX: 1\r\nHost: h:1\r\n\r\n";
    for (target, expected) in [
        ("/", "GET / None Some(\"h:1\") [X: 1, Host: h:1]"),
        (
            "/much/longer/than/it?c=d",
            "GET /much/longer/than/it Some(\"c=d\") Some(\"h:1\") [X: 1, Host: h:1]",
        ),
    ] {
        assert_eq!(edited(head, |edit| edit.set_target(target)).unwrap(), expected);
    }
    let absolute = b"GET http://b/c?d HTTP/1.1\r\nHost: a\r\n\r\n";
    let expected = "GET /x None Some(\"b\") [Host: a]";
    assert_eq!(edited(absolute, |edit| edit.set_target("/x")).unwrap(), expected);
    let bare = b"GET http://b HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(edited(bare, |edit| edit.set_target("/x")).unwrap(), expected);
    for bad in ["", "x", "/a b", "/a\r\nX: y", "http://x/"] {
        assert!(edited(head, |edit| edit.set_target(bad)).is_err(), "{bad:?}");
    }
    assert!(edited(head, |edit| edit.set_target(&format!("/{}", "a".repeat(65_535)))).is_err());
    let tunnel = b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n";
    assert!(edited(tunnel, |edit| edit.set_target("/")).is_err());
}

#[test]
fn lines_of_a_kept_head_are_set_added_and_removed_and_its_host_stays() {
    let head = b"GET / HTTP/1.1\r\nA: 1\r\nB: 2\r\na: 3\r\nHost: h\r\n\r\n";
    let told = edited(head, |edit| edit.set("A", b"4")).unwrap();
    assert_eq!(told, "GET / None Some(\"h\") [B: 2, Host: h, A: 4]");
    let told = edited(head, |edit| edit.add(b"A", b"")).unwrap();
    assert_eq!(told, "GET / None Some(\"h\") [A: 1, B: 2, a: 3, Host: h, A: ]");
    let told = edited(head, |edit| edit.remove("a").map(|count| assert_eq!(count, 2))).unwrap();
    assert_eq!(told, "GET / None Some(\"h\") [B: 2, Host: h]");
    for name in ["Host", "Content-Length", "connection", "Upgrade", "Transfer-Encoding", "", "a b"] {
        assert!(edited(head, |edit| edit.set(name, b"1")).is_err(), "{name:?}");
    }
    // Refused, it stays as it was.
    let told = edited(head, |edit| {
        assert!(edit.set("A", b"x\r\ny").is_err());
        assert!(edit.set("A", &[b'x'; 65_535]).is_err());
        Ok(())
    });
    assert_eq!(told.unwrap(), "GET / None Some(\"h\") [A: 1, B: 2, a: 3, Host: h]");
}
