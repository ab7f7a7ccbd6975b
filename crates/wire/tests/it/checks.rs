//! What is true of any bytes: each function takes some and panics if it is not.
//!
//! The fuzz targets in `fuzz/` are these functions; the tests replay their corpus, and the table of bad
//! inputs, through them. Start at [`requests`].

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

/// Shows `bytes`, cut at `cuts`, to `look`, and like a real caller keeps the unused part for the next call.
/// `look` advances its position and returns whether to call it again.
fn feed(bytes: &[u8], cuts: &[usize], mut look: impl FnMut(&mut [u8], &mut usize) -> bool) {
    let mut kept = Vec::new();
    let mut from = 0;
    for &cut in cuts.iter().chain([&bytes.len()]) {
        let cut = cut.clamp(from, bytes.len());
        kept.extend_from_slice(&bytes[from..cut]);
        from = cut;
        let mut at = 0;
        while look(&mut kept, &mut at) {}
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
    tell_of_responses(bytes, cuts, limits, asked, false)
}

/// The same of a client that unfolds folded lines.
pub(crate) fn tell_unfolded(bytes: &[u8], cuts: &[usize], limits: &Limits, asked: Asked) -> Vec<Entry> {
    tell_of_responses(bytes, cuts, limits, asked, true)
}

fn tell_of_responses(
    bytes: &[u8],
    cuts: &[usize],
    limits: &Limits,
    asked: Asked,
    unfolds: bool,
) -> Vec<Entry> {
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
                if unfolds && responses.unfold(kept, *at) {
                    return true;
                }
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
        tolerant: false,
        extension_methods: true,
    }
}

/// Bytes to a server: cut anywhere they tell the same, and a head that is taken says the same when it is
/// written again by our own encoder.
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
        let unfolded = tell_unfolded(bytes, &[], &limits, asked);
        for cuts in cuttings(bytes.len(), bytes.len() as u64) {
            assert_eq!(tell_unfolded(bytes, &cuts, &limits, asked), unfolded, "cut at {cuts:?}, unfolded");
        }
        // What is understood without it means the same with it.
        if told != unfolded {
            assert!(
                limits.tolerant && matches!(told.last(), Some(Entry::Failed(_))),
                "{told:?} {unfolded:?}"
            );
            let common = told.len() - 1;
            assert_eq!(told[..common], unfolded[..common]);
        }
    }
}

/// A chunked body, to a server and to a client: both understand the same, and the same as the plainest
/// reading of RFC 9112 §7.1, where that has an opinion.
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

/// The plainest decoder there is: a line, its number, so many bytes, a line end. It has no opinion on
/// extensions, trailers and long bodies.
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

/// Any bytes as a PROXY header: the result does not depend on how they were cut, and addresses that were read
/// can be written and read again.
pub(crate) fn proxy_header(bytes: &[u8]) {
    use ringroad_wire::proxy::{self, PROXY_BYTES_MAX};
    let whole = proxy::parse(bytes);
    for cut in 0..bytes.len() {
        let part = proxy::parse(&bytes[..cut]);
        match (part, whole) {
            (Ok(None), _) => {}
            (part, whole) => assert_eq!(part, whole, "of {cut} bytes"),
        }
    }
    match whole {
        Ok(Some(header)) => {
            assert!(header.bytes <= bytes.len().min(PROXY_BYTES_MAX));
            assert_eq!(proxy::parse(&bytes[..header.bytes]), whole, "what follows does not matter");
            if let Some((source, destination)) = header.addresses {
                let mut out = Vec::new();
                proxy::write(source, destination, &mut out);
                let again = proxy::parse(&out).expect("written by us").expect("all of it");
                assert_eq!((again.addresses, again.bytes), (header.addresses, out.len()));
            }
        }
        // More is asked for only as long as there may be more.
        Ok(None) => assert!(bytes.len() < PROXY_BYTES_MAX),
        Err(_) => {}
    }
}

/// What one side of a WebSocket connection told, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WsEntry {
    Message(ringroad_wire::ws::Kind, Vec<u8>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    /// Code 0: none.
    Close(u16, String),
    Failed(ringroad_wire::ws::Error),
}

/// All that this side tells of `bytes`, cut at `cuts`.
pub(crate) fn tell_websocket(
    role: ringroad_wire::ws::Role,
    deflate: bool,
    bytes: &[u8],
    cuts: &[usize],
) -> Vec<WsEntry> {
    use ringroad_wire::ws::{self, Event, Kind};
    let agreed = deflate.then_some(ws::deflate::Agreed { window_bits: 15 });
    let mut messages = ws::Messages::new(role, ws::Limits::default()).deflate(agreed);
    let mut scratch = ws::Scratch::default();
    let mut told = Vec::new();
    let mut kept = Vec::new();
    let mut from = 0;
    for &cut in cuts.iter().chain([&bytes.len()]) {
        let cut = cut.clamp(from, bytes.len());
        kept.extend_from_slice(&bytes[from..cut]);
        from = cut;
        let mut at = 0;
        loop {
            match messages.next(&mut scratch, &mut kept, &mut at) {
                Ok(None) => break,
                Ok(Some(event)) => told.push(match event {
                    Event::Message { kind, bytes } => {
                        assert!(kind == Kind::Binary || std::str::from_utf8(bytes).is_ok(), "text is UTF-8");
                        WsEntry::Message(kind, bytes.to_vec())
                    }
                    Event::Ping(bytes) => WsEntry::Ping(bytes.to_vec()),
                    Event::Pong(bytes) => WsEntry::Pong(bytes.to_vec()),
                    Event::Close(None) => WsEntry::Close(0, String::new()),
                    Event::Close(Some((code, reason))) => WsEntry::Close(code.get(), reason.to_owned()),
                }),
                Err(why) => {
                    told.push(WsEntry::Failed(why));
                    return told;
                }
            }
        }
        assert!(at <= kept.len(), "no more is used than there is");
        kept.drain(..at);
        assert!(kept.len() <= 131, "a caller keeps little: {}", kept.len());
    }
    told
}

/// Any bytes as WebSocket frames, behind three that choose the side, the compression and two cuts: what is
/// told depends on no cut, and is the same byte by byte.
pub(crate) fn websocket(bytes: &[u8]) {
    use ringroad_wire::ws::Role;
    let Some((&[options, first, second], bytes)) = bytes.split_first_chunk::<3>() else { return };
    let role = if options & 1 == 0 { Role::Server } else { Role::Client };
    let deflate = options & 2 != 0;
    let whole = tell_websocket(role, deflate, bytes, &[]);
    let (low, high) = (usize::from(first.min(second)), usize::from(first.max(second)));
    assert_eq!(tell_websocket(role, deflate, bytes, &[low, high]), whole);
    let each: Vec<usize> = (0..bytes.len()).collect();
    assert_eq!(tell_websocket(role, deflate, bytes, &each), whole);
}

/// Frames of a worker: whatever is accepted is within its credit, in order, and safe to write as HTTP.
pub(crate) fn rwp(bytes: &[u8]) {
    // As the answer to a request, and to the offer of a WebSocket.
    answered(ringroad_wire::rwp::Answering::new(64), bytes);
    answered(ringroad_wire::rwp::Answering::socket(64), bytes);
    tasks(bytes);
}

/// What is read as a frame about tasks says all that the frame has.
fn tasks(bytes: &[u8]) {
    use ringroad_wire::rwp::{Kind, Outcome, TaskFrame, next};
    let mut at = 0;
    while let Ok(Some(frame)) = next(bytes, &mut at) {
        match TaskFrame::read(&frame) {
            Ok(Some(TaskFrame::Submit { number, payload, .. })) => {
                assert!(frame.kind == Kind::TASK_SUBMIT && number != 0);
                assert!(number == frame.stream && payload == frame.payload);
            }
            Ok(Some(TaskFrame::Done { task, outcome, payload })) => {
                assert!(matches!(outcome, Outcome::Done | Outcome::Raised | Outcome::Silent));
                assert!(task == frame.stream && outcome as u16 == frame.aux && payload == frame.payload);
            }
            Ok(Some(TaskFrame::Message { to, payload })) => {
                assert!(frame.kind == Kind::MESSAGE && to == frame.aux && payload == frame.payload);
            }
            Ok(None) => assert!(
                frame.kind.0 < Kind::TASK_SUBMIT.0
                    || frame.kind.0 > Kind::MESSAGE.0
                    || matches!(frame.kind, Kind::TASK | Kind::TASK_RESULT)
            ),
            Err(_) => break,
        }
    }
}

fn answered(mut answering: ringroad_wire::rwp::Answering, bytes: &[u8]) {
    use ringroad_wire::rwp::{Answer, END, message_cost, next, put};
    let mut at = 0;
    let mut written = Vec::new();
    let mut body_bytes = 0;
    // A message may begin while any credit is left.
    let mut spent_by_messages = 0;
    while let Ok(Some(frame)) = next(bytes, &mut at) {
        put(&mut written, frame.kind, frame.flags, frame.aux, frame.stream, frame.payload);
        let ends = frame.flags & END != 0;
        match answering.accept(&frame) {
            Ok(Answer::Head { status, lines, body, complete, .. }) => {
                assert!((200..1000).contains(&status));
                if !complete {
                    body_bytes += body.len();
                }
                let safe = |value: &[u8]| !value.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n'));
                assert!(lines.iter().all(|(name, value)| !name.is_empty() && safe(name) && safe(value)));
            }
            Ok(Answer::Body(body, last)) => {
                assert_eq!(last, ends);
                body_bytes += body.len();
            }
            Ok(Answer::Accepted(_, protocol)) => {
                assert!(protocol.bytes().all(|byte| byte.is_ascii_graphic()));
            }
            Ok(Answer::Text(_) | Answer::Binary(_)) => {
                assert!(spent_by_messages < 64);
                spent_by_messages += message_cost(frame.payload.len());
            }
            Ok(Answer::Closed(code, _)) => {
                assert!(code.may_be_sent() && ends && answering.is_over());
            }
            Ok(_) => {}
            Err(_) => break,
        }
        assert!(body_bytes <= 64);
    }
    // Reading and writing agree byte by byte.
    assert!(bytes.starts_with(&written));
}

/// Records of a FastCGI application: the way they are cut changes nothing, and a head is safe to write as
/// HTTP.
pub(crate) fn fcgi(bytes: &[u8]) {
    use ringroad_wire::fcgi::{Event, Responses, head};
    let read = |step: usize| {
        let (mut responses, mut at, mut seen) = (Responses::new(1), 0, step.min(bytes.len()));
        let (mut stdout, mut stderr, mut end) = (Vec::new(), Vec::new(), None);
        let mut broken = None;
        loop {
            match responses.next(&bytes[..seen], &mut at) {
                Ok(Some(Event::Stdout(part))) => stdout.extend_from_slice(part),
                Ok(Some(Event::Stderr(part))) => stderr.extend_from_slice(part),
                Ok(Some(Event::End { status, how })) => end = Some((status, how)),
                Ok(None) if seen == bytes.len() => break,
                Ok(None) => seen = (seen + step).min(bytes.len()),
                Err(why) => {
                    broken = Some(why);
                    break;
                }
            }
        }
        (stdout, stderr, end, broken)
    };
    let whole = read(bytes.len().max(1));
    assert_eq!(whole, read(1));
    for bytes in [bytes, &whole.0] {
        if let Ok(Some((head, length))) = head(bytes) {
            assert!((200..600).contains(&head.status) && length <= bytes.len());
            let safe = |value: &[u8]| !value.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n'));
            assert!(head.lines.iter().all(|(name, value)| !name.is_empty() && safe(name) && safe(value)));
        }
    }
}

/// Frames of a worker of RoadRunner: the way they are cut changes nothing, and what is written is read.
pub(crate) fn goridge(bytes: &[u8]) {
    use ringroad_wire::goridge::{Frame, next, put_head};
    const PAYLOAD_MAX: u32 = 4096;
    let read = |step: usize| {
        let (mut frames, mut at, mut seen) = (Vec::<Frame<'_>>::new(), 0, step.min(bytes.len()));
        loop {
            match next(&bytes[..seen], &mut at, PAYLOAD_MAX) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) if seen == bytes.len() => return (frames, None),
                Ok(None) => seen = (seen + step).min(bytes.len()),
                Err(why) => return (frames, Some(why)),
            }
        }
    };
    let whole = read(bytes.len().max(1));
    assert_eq!(whole, read(1));
    for frame in whole.0 {
        let mut out = Vec::new();
        put_head(&mut out, frame.flags, frame.stream, Some(frame.head_bytes), frame.payload.len() as u32);
        out.extend_from_slice(frame.payload);
        let mut at = 0;
        assert_eq!(next(&out, &mut at, PAYLOAD_MAX), Ok(Some(frame)));
        assert_eq!(at, out.len());
        assert!(frame.split().is_none_or(|(head, body)| head.len() + body.len() == frame.payload.len()));
    }
}

/// Any bytes as the replies of a Redis server.
pub(crate) fn resp(bytes: &[u8]) {
    use ringroad_wire::resp::{Limits, Replies, put_command};
    let limits = Limits { reply_bytes: 4096, values: 64, depth: 6, line_bytes: 48 };
    let read = |bytes: &[u8], step: usize| {
        let (mut replies, mut at, mut seen) = (Replies::new(limits), 0, step.min(bytes.len()));
        let mut found = Vec::new();
        let broken = loop {
            match replies.next(&bytes[..seen], &mut at) {
                Ok(Some(reply)) => found.push(reply),
                Ok(None) if seen == bytes.len() => break None,
                Ok(None) => seen = (seen + step).min(bytes.len()),
                Err(why) => {
                    assert_eq!(replies.next(b"+OK\r\n", &mut 0), Err(why), "an error stays");
                    break Some(why);
                }
            }
            assert!(at <= seen);
        };
        (found, broken)
    };
    let whole = read(bytes, bytes.len().max(1));
    // NaN equals nothing, but is written in one way.
    assert_eq!(format!("{whole:?}"), format!("{:?}", read(bytes, 1)));
    let mut written = Vec::new();
    whole.0.iter().for_each(|reply| reply.put(&mut written));
    let (again, broken) = read(&written, written.len().max(1));
    // A number may be longer in decimal than it was with an exponent.
    if broken.is_none() {
        assert_eq!(format!("{:?}", whole.0), format!("{again:?}"));
    }
    let mut command = Vec::new();
    put_command(&mut command, &[bytes.get(..1024).unwrap_or(bytes)]);
    assert_eq!(read(&command, 7).1, None);
}

/// Any bytes as the operations of a NATS server: cut anywhere they tell the same.
pub(crate) fn nats(bytes: &[u8]) {
    use ringroad_wire::nats::{Limits, is_subject, next, put_publish};
    let limits = Limits { line_bytes: 48, payload_bytes: 512 };
    let read = |step: usize| {
        let (mut at, mut seen, mut found) = (0, step.min(bytes.len()), Vec::new());
        loop {
            let before = at;
            match next(&limits, &bytes[..seen], &mut at) {
                Ok(Some(operation)) => {
                    assert!(at > before && at <= seen);
                    found.push(format!("{operation:?}"));
                }
                Ok(None) if seen == bytes.len() => return (found, None),
                Ok(None) => {
                    assert_eq!(at, before);
                    seen = (seen + step).min(bytes.len());
                }
                Err(why) => return (found, Some(why)),
            }
        }
    };
    let whole = read(bytes.len().max(1));
    assert_eq!(whole, read(1));
    assert_eq!(whole, read(7));
    let subject = str::from_utf8(bytes).unwrap_or_default();
    if is_subject(subject) {
        let mut out = Vec::new();
        put_publish(&mut out, subject, bytes);
        let line = out.split(|byte| *byte == b'\n').next().unwrap();
        assert_eq!(line.strip_suffix(b"\r").unwrap(), format!("PUB {subject} {}", bytes.len()).as_bytes());
    }
}
