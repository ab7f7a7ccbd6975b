//! What is true of any bytes: each function takes some and panics if it is not.
//!
//! The fuzz targets in `fuzz/` are these functions; the tests replay their corpus, and the table of bad inputs,
//! through them. Start at [`requests`].

use ringroad_wire::{
    Asked, Body, BodySize, Encoder, Error, Event, Field, Limits, Method, Phase, RequestHead, Requests,
    ResponseEvent, Responses, Scratch,
};

/// What a connection told, in order; pieces of one body are one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Interim(String),
    Head(String),
    Data(Vec<u8>),
    End(String),
    HandedOver,
    /// The end of the input was in order. True: it ended a body.
    InputEnded(bool),
    Failed(Error),
}

fn put_data(told: &mut Vec<Entry>, data: &[u8]) {
    assert!(!data.is_empty(), "data is never empty");
    match told.last_mut() {
        Some(Entry::Data(earlier)) => earlier.extend_from_slice(data),
        _ => told.push(Entry::Data(data.to_vec())),
    }
}

/// Shows `bytes` cut at `cuts` to `look` as a caller does who keeps what was not used. `look` moves its place and
/// says whether to ask it again.
fn feed(bytes: &[u8], cuts: &[usize], mut look: impl FnMut(&[u8], &mut usize) -> bool) {
    let mut kept = Vec::new();
    let mut from = 0;
    for &cut in cuts.iter().chain([&bytes.len()]) {
        let cut = cut.clamp(from, bytes.len());
        kept.extend_from_slice(&bytes[from..cut]);
        from = cut;
        let mut at = 0;
        while look(&kept, &mut at) {}
        assert!(at <= kept.len(), "no more is used than there is");
        kept.drain(..at);
    }
}

/// All that a server's side of a connection tells of `bytes`, cut at `cuts`, and then the end of the input.
pub(crate) fn tell_requests(bytes: &[u8], cuts: &[usize], limits: &Limits) -> Vec<Entry> {
    let mut scratch = Scratch::new(limits.clone());
    let told = tell_requests_with(&mut scratch, bytes, cuts);
    // It has read its last head before.
    assert_eq!(tell_requests_with(&mut scratch, bytes, cuts), told, "the same again is told the same");
    told
}

/// The same with a scratch that has been used, for whatever.
pub(crate) fn tell_requests_with(scratch: &mut Scratch, bytes: &[u8], cuts: &[usize]) -> Vec<Entry> {
    let mut requests = Requests::new();
    let mut told = Vec::new();
    feed(bytes, cuts, |kept, at| match requests.next(scratch, kept, at) {
        Ok(event) => {
            match event {
                Some(Event::Head(head)) => told.push(Entry::Head(format!("{head:?}"))),
                Some(Event::Data(data)) => put_data(&mut told, data),
                Some(Event::End(trailers)) => told.push(Entry::End(format!("{trailers:?}"))),
                None => return false,
            }
            true
        }
        Err(error) => {
            if !matches!(told.last(), Some(Entry::Failed(_))) {
                told.push(Entry::Failed(error));
            }
            assert_eq!(told.last(), Some(&Entry::Failed(error)), "an error stays");
            assert_eq!(requests.phase(), Phase::Failed);
            false
        }
    });
    if requests.phase() != Phase::Failed {
        told.push(match requests.end_of_input() {
            Ok(()) => Entry::InputEnded(false),
            Err(error) => Entry::Failed(error),
        });
    }
    told
}

/// All that a client's side tells, with as many requests like `asked` as there are responses.
pub(crate) fn tell_responses(bytes: &[u8], cuts: &[usize], limits: &Limits, asked: Asked) -> Vec<Entry> {
    let mut scratch = Scratch::new(limits.clone());
    let mut responses = Responses::new();
    let mut told = Vec::new();
    let mut failed = false;
    feed(bytes, cuts, |kept, at| {
        if responses.phase() == Phase::Idle && *at < kept.len() {
            responses.begin(asked).unwrap();
        }
        match responses.next(&mut scratch, kept, at) {
            Ok(event) => {
                match event {
                    Some(ResponseEvent::Interim(head)) => told.push(Entry::Interim(format!("{head:?}"))),
                    Some(ResponseEvent::Head(head)) => told.push(Entry::Head(format!("{head:?}"))),
                    Some(ResponseEvent::Data(data)) => put_data(&mut told, data),
                    Some(ResponseEvent::End(trailers)) => told.push(Entry::End(format!("{trailers:?}"))),
                    None => return false,
                }
                true
            }
            Err(error) => {
                if !failed {
                    told.push(Entry::Failed(error));
                }
                failed = true;
                false
            }
        }
    });
    match responses.phase() {
        Phase::Failed => {}
        Phase::HandedOver => told.push(Entry::HandedOver),
        _ => told.push(match responses.end_of_input() {
            Ok(ended) => Entry::InputEnded(ended),
            Err(error) => Entry::Failed(error),
        }),
    }
    told
}

/// Cuts that matter: everywhere at once, and a few chosen by `seed`.
fn cuttings(len: usize, seed: u64) -> [Vec<usize>; 3] {
    let mut state = seed | 1;
    let mut random = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % (len + 1)
    };
    let mut few: Vec<usize> = (0..4).map(|_| random()).collect();
    few.sort_unstable();
    [(0..len).collect(), few, vec![random()]]
}

/// Small limits, so that short inputs meet them.
pub(crate) fn tight() -> Limits {
    Limits {
        start_line_bytes: 40,
        field_line_bytes: 48,
        header_bytes: 120,
        fields: 5,
        body_bytes: 20,
        chunk_extension_bytes: 16,
        trailer_bytes: 32,
        empty_lines: 2,
        interim_responses: 2,
        drain_bytes: 8,
        extension_methods: true,
    }
}

/// Bytes to a server: cut anywhere they tell the same, and a head that is taken says the same when it is written
/// again by our own encoder.
pub(crate) fn requests(bytes: &[u8]) {
    for limits in [Limits::default(), tight()] {
        let told = tell_requests(bytes, &[], &limits);
        for cuts in cuttings(bytes.len(), bytes.len() as u64) {
            assert_eq!(tell_requests(bytes, &cuts, &limits), told, "cut at {cuts:?}");
        }
    }
    with_heads(bytes, |head| {
        // A target alone does not say which host it is for.
        let Some(host) = head.authority() else { return };
        let mut again = Vec::new();
        let mut encoder =
            Encoder::request_named(&mut again, head.method_name(), head.target(), host).expect("was taken");
        for Field { name, value } in head.fields().iter() {
            let _written_by_finish = encoder.field(name, value);
        }
        let size = match head.body() {
            Body::Length(length) => BodySize::Known(length),
            Body::Chunked => BodySize::Unknown,
            _ => BodySize::Known(0),
        };
        let _ = encoder.finish(size);
        let mut scratch = Scratch::default();
        let mut second = Requests::new();
        let event = second.next(&mut scratch, &again, &mut 0).expect("what we write we take");
        let Some(Event::Head(same)) = event else { panic!("a whole head") };
        assert_eq!((same.method_name(), same.target()), (head.method_name(), head.target()));
        assert_eq!((same.authority(), same.body()), (head.authority(), head.body()));
        assert_eq!((same.path(), same.query()), (head.path(), head.query()));
    });
}

/// The events from `at` on, a letter each.
pub(crate) fn shapes(requests: &mut Requests, scratch: &mut Scratch, bytes: &[u8], at: &mut usize) -> String {
    let mut shapes = String::new();
    while let Some(event) = requests.next(scratch, bytes, at).unwrap() {
        shapes.push(match event {
            Event::Head(_) => 'h',
            Event::Data(_) => 'd',
            Event::End(_) => 'e',
        });
    }
    shapes
}

/// Runs `look` on every head that is taken.
pub(crate) fn with_heads(bytes: &[u8], mut look: impl FnMut(RequestHead<'_>)) {
    let mut scratch = Scratch::default();
    let mut requests = Requests::new();
    let mut at = 0;
    while let Ok(Some(event)) = requests.next(&mut scratch, bytes, &mut at) {
        if let Event::Head(head) = event {
            look(head);
        }
    }
}

/// Bytes to a client, the first choosing what was asked: cut anywhere they tell the same.
pub(crate) fn responses(bytes: &[u8]) {
    let Some((&choice, bytes)) = bytes.split_first() else { return };
    let method = [Method::Get, Method::Head, Method::Connect, Method::Post][usize::from(choice) % 4];
    let asked = Asked { method, upgrade: choice & 0x40 != 0 };
    for limits in [Limits::client(), tight()] {
        let told = tell_responses(bytes, &[], &limits, asked);
        for cuts in cuttings(bytes.len(), bytes.len() as u64) {
            assert_eq!(tell_responses(bytes, &cuts, &limits, asked), told, "cut at {cuts:?}");
        }
    }
}

/// A chunked body, to a server and to a client: both understand the same, and the same as the plainest reading of
/// RFC 9112 §7.1, where that has an opinion.
pub(crate) fn chunked(bytes: &[u8]) {
    let request = [b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", bytes].concat();
    requests(&request);
    let response = [b"\0HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", bytes].concat();
    responses(&response);

    let to_server = first_body(&tell_requests(&request, &[], &Limits::default()));
    let to_client = first_body(&tell_responses(&response[1..], &[], &Limits::default(), Method::Get.into()));
    assert_eq!(to_server, to_client);
    match plain_chunked(bytes) {
        Plain::Whole(body) => assert_eq!(to_server, Some(body)),
        Plain::Bad => assert_eq!(to_server, None),
        Plain::NoOpinion => {}
    }
}

/// The first body, if it is complete.
fn first_body(told: &[Entry]) -> Option<Vec<u8>> {
    match told {
        [Entry::Head(_), Entry::End(_), ..] => Some(Vec::new()),
        [Entry::Head(_), Entry::Data(data), Entry::End(_), ..] => Some(data.clone()),
        _ => None,
    }
}

enum Plain {
    Whole(Vec<u8>),
    Bad,
    NoOpinion,
}

/// The plainest decoder there is: a line, its number, so many bytes, a line end. It has no opinion on extensions,
/// trailers and long bodies.
fn plain_chunked(mut bytes: &[u8]) -> Plain {
    let mut body = Vec::new();
    loop {
        let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") else {
            return if bytes.contains(&b';') { Plain::NoOpinion } else { Plain::Bad };
        };
        let (line, rest) = (&bytes[..end], &bytes[end + 2..]);
        if line.contains(&b';') {
            return Plain::NoOpinion;
        }
        if line.is_empty() || line.len() > 16 || !line.iter().all(u8::is_ascii_hexdigit) {
            return Plain::Bad;
        }
        let size = u64::from_str_radix(str::from_utf8(line).unwrap(), 16).unwrap();
        if size > 4096 {
            return Plain::NoOpinion;
        }
        if size == 0 {
            return if rest.starts_with(b"\r\n") { Plain::Whole(body) } else { Plain::NoOpinion };
        }
        let Some((data, rest)) = rest.split_at_checked(size as usize) else { return Plain::Bad };
        body.extend_from_slice(data);
        let Some(rest) = rest.strip_prefix(b"\r\n") else { return Plain::Bad };
        bytes = rest;
    }
}
