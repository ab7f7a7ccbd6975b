//! Random connections: what a client does is drawn from a seed, within the rules and against them.
//!
//! A connection has a few streams, the frames of which are interleaved at random; header blocks and bodies
//! are cut, padded and mixed with frames that a client may send at any time. It ends in one of three ways:
//! all answers are awaited and must be exact, the client breaks a rule and must get a GOAWAY with a code that
//! the RFC permits for it, or the client goes away in the middle. Afterwards nothing of it is left in the
//! server.

use super::client::{Client, run};
use super::frames::{PREFACE, Peer, block, frame, get_lines, settings};
use crate::counts::peak;
use crate::support::{self, start, wait_until};
use ringroad_engine::DriverName;
use ringroad_http::{Body, Http2, OnClientGone, Request, Response, Server, Status, any, get, post, ws};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Connections for each driver.
const SEEDS: u64 = 150;

/// Bytes of a large answer.
const LARGE: usize = 150_000;

/// Bytes of all bodies of a connection, with their padding: a client has so many without a window update.
const BODIES: usize = 60_000;

/// KiB by which memory may differ after all connections: pools and receive buffers.
const LITTLE: i64 = 1024;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

/// HEADERS, and CONTINUATION as often as the block is cut.
fn head(random: &mut Random, stream: u32, lines: &[(&str, &str)], end: bool) -> Vec<u8> {
    let block = block(lines);
    let pieces = if random.chance(40) { 1 + random.below(7) } else { 1 };
    let mut cuts: Vec<_> = (1..pieces).map(|_| random.below(block.len() + 1)).collect();
    cuts.extend([0, block.len()]);
    cuts.sort_unstable();
    let mut bytes = Vec::new();
    for (at, pair) in cuts.windows(2).enumerate() {
        let piece = &block[pair[0]..pair[1]];
        let last = if at + 2 == cuts.len() { 0x4 } else { 0 };
        if at > 0 {
            bytes.extend(frame(9, last, stream, piece));
            continue;
        }
        let mut flags = last | u8::from(end);
        let (mut payload, mut padding) = (Vec::new(), 0);
        if random.chance(25) {
            flags |= 0x8;
            padding = random.below(50);
            payload.push(padding as u8);
        }
        if random.chance(25) {
            // Depends on no stream.
            flags |= 0x20;
            payload.extend([0, 0, 0, 0, 9]);
        }
        payload.extend(piece);
        payload.resize(payload.len() + padding, 0);
        bytes.extend(frame(1, flags, stream, &payload));
    }
    bytes
}

/// DATA frames with these bytes and the end of the stream; `budget` is what bodies may have.
fn data(random: &mut Random, stream: u32, bytes: &[u8], budget: &mut usize) -> Vec<Vec<u8>> {
    let (mut frames, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let size = (1 + random.below(4000)).min(bytes.len() - at);
        let piece = &bytes[at..at + size];
        at += size;
        let padding = random.below(40);
        if random.chance(25) && *budget > size + padding + 1 {
            *budget -= padding + 1;
            let mut payload = [&[padding as u8], piece].concat();
            payload.resize(payload.len() + padding, 0);
            frames.push(frame(0, 0x8, stream, &payload));
        } else {
            frames.push(frame(0, 0, stream, piece));
        }
    }
    *budget = budget.saturating_sub(bytes.len());
    match random.below(3) {
        0 => frames.push(frame(0, 1, stream, &[])),
        1 => frames.push(head(random, stream, &[("x-trailer", "yes")], true)),
        _ => match frames.last_mut() {
            Some(last) => last[4] |= 1,
            None => frames.push(frame(0, 1, stream, &[])),
        },
    }
    frames
}

/// What comes of a stream: the body of its answer, or `None` where the client has given it up.
type Answers = BTreeMap<u32, Option<Vec<u8>>>;

/// The head of a POST or of an extended CONNECT.
fn lines<'a>(first: &'a [(&'a str, &'a str)], path: &'a str) -> Vec<(&'a str, &'a str)> {
    let [_, scheme, authority, path] = get_lines(path);
    [first, &[scheme, authority, path]].concat()
}

/// The frames of one stream, in their order.
fn stream(random: &mut Random, id: u32, budget: &mut usize, answers: &mut Answers) -> Vec<Vec<u8>> {
    let many = "v".repeat(random.below(3000));
    let more = [("x-many", many.as_str())];
    match random.below(7) {
        0 | 1 => {
            answers.insert(id, Some(b"page".to_vec()));
            vec![head(random, id, &[&get_lines("/page")[..], &more].concat(), true)]
        }
        2 | 3 => {
            let bytes: Vec<_> = (0..random.below(12_000).min(*budget / 4)).map(|at| (at * 7) as u8).collect();
            let mut frames = vec![head(random, id, &lines(&[(":method", "POST")], "/echo"), false)];
            frames.extend(data(random, id, &bytes, budget));
            answers.insert(id, Some(bytes));
            if random.chance(20) {
                // It is given up in the middle.
                frames.truncate(1 + random.below(frames.len()));
                frames.push(frame(3, 0, id, &8_u32.to_be_bytes()));
                answers.insert(id, None);
            }
            frames
        }
        4 => {
            answers.insert(id, Some(vec![7; LARGE]));
            vec![head(random, id, &get_lines("/large"), true)]
        }
        5 => {
            answers.insert(id, None);
            let end = random.chance(50);
            let head = head(random, id, &get_lines("/never"), end);
            vec![head, frame(3, 0, id, &random.of(&[0_u32, 2, 8]).to_be_bytes())]
        }
        _ => {
            let connect = [(":method", "CONNECT"), (":protocol", "websocket")];
            let connect = [lines(&connect, "/socket"), vec![("sec-websocket-version", "13")]].concat();
            // "hey" with a mask of zeros, and the end.
            let talk = [&[0x81, 0x83, 0, 0, 0, 0][..], b"hey", &[0x88, 0x82, 0, 0, 0, 0, 3, 0xe8]].concat();
            let (one, other) = talk.split_at(random.below(talk.len() + 1));
            *budget = budget.saturating_sub(talk.len());
            answers.insert(id, Some([&[0x81, 3][..], b"hey", &[0x88, 2, 3, 0xe8]].concat()));
            vec![head(random, id, &connect, false), frame(0, 0, id, one), frame(0, 1, id, other)]
                .into_iter()
                .filter(|frame| frame[3] != 0 || frame.len() > 9 || frame[4] == 1)
                .collect()
        }
    }
}

/// A frame that a client may send at any time between header blocks.
fn any_time(random: &mut Random) -> Vec<u8> {
    match random.below(6) {
        0 => frame(6, 0, 0, &random.next().to_be_bytes()),
        1 => settings(&[(4, *random.of(&[5_000, 65_535, 200_000]))]),
        2 => settings(&[(1, *random.of(&[0, 100, 4096])), (5, *random.of(&[16_384, 20_000]))]),
        3 => frame(8, 0, 0, &(1 + random.below(1000) as u32).to_be_bytes()),
        4 => frame(2, 0, 9_001, &[0, 0, 0, 0, 7]),
        // Unknown ones are ignored (RFC 9113 §5.5).
        _ => frame(77, 3, random.below(5) as u32, b"unknown"),
    }
}

/// A frame that breaks a rule, what is broken, and the codes that a connection may end with by it. Where a
/// code is for that very breach, that of an unspecific one is permitted too (RFC 9113 §7).
fn against_a_rule(random: &mut Random, next: u32) -> (&'static str, Vec<u8>, &'static [u32]) {
    let (protocol, size): (&[u32], &[u32]) = (&[1], &[1, 6]);
    match random.below(15) {
        0 => ("DATA on an idle stream", frame(0, 0, next + 20, b"x"), &[1, 5]),
        1 => ("a request on an even stream", head(random, next + 1, &get_lines("/page"), true), protocol),
        2 => ("a frame that is too large", frame(0, 0, next, &[0; 16_385]), size),
        3 => ("a window that grows by nothing", frame(8, 0, 0, &[0; 4]), protocol),
        4 => ("a window that is too large", frame(8, 0, 0, &0x7fff_ffff_u32.to_be_bytes()), &[1, 3]),
        5 => ("ENABLE_PUSH of 2", settings(&[(2, 2)]), protocol),
        6 => ("an initial window that is too large", settings(&[(4, 1 << 31)]), &[1, 3]),
        7 => ("a frame size below the least", settings(&[(5, 100)]), protocol),
        8 => ("SETTINGS that are cut", frame(4, 0, 0, &[0; 5]), size),
        9 => ("PING that is cut", frame(6, 0, 0, &[0; 7]), size),
        10 => ("CONTINUATION of nothing", frame(9, 4, next, &block(&[("a", "b")])), protocol),
        11 => {
            let cut = frame(1, 1, next, &block(&get_lines("/page")));
            ("PING within a header block", [cut, frame(6, 0, 0, &[0; 8])].concat(), protocol)
        }
        // An index that no table has. The `h2` crate says PROTOCOL_ERROR where RFC 9113 §4.3 asks for 9.
        12 => ("a block that is no HPACK", frame(1, 5, next, &[0xff, 0xff, 0xff, 0x7f]), &[1, 9]),
        13 => ("RST_STREAM of an idle stream", frame(3, 0, next + 20, &[0; 4]), protocol),
        _ => ("PUSH_PROMISE of a client", frame(5, 4, next, &[0, 0, 0, 2]), protocol),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Whole,
    Breach,
    Fin,
    Reset,
}

/// Everything that a client sends.
struct Plan {
    bytes: Vec<u8>,
    answers: Answers,
    ending: Ending,
    breach: (&'static str, &'static [u32]),
}

impl Plan {
    fn draw(random: &mut Random) -> Plan {
        let (mut answers, mut budget) = (Answers::new(), BODIES);
        let count = 1 + random.below(8) as u32;
        let mut queues: Vec<_> = (0..count)
            .map(|at| stream(random, at * 2 + 1, &mut budget, &mut answers).into_iter().peekable())
            .collect();
        let mut bytes = [PREFACE, &settings(&[(4, *random.of(&[5_000, 65_535, 200_000]))])].concat();
        // Streams begin in their order; else it is random which is next.
        let mut begun = 0;
        while queues.iter_mut().any(|queue| queue.peek().is_some()) {
            if random.chance(15) {
                bytes.extend(any_time(random));
            }
            let at = random.below((begun + 1).min(queues.len()));
            begun = begun.max(at + 1);
            bytes.extend(queues[at].next().unwrap_or_default());
        }
        let ending = match random.below(8) {
            0..3 => Ending::Whole,
            3..6 => Ending::Breach,
            6 => Ending::Fin,
            _ => Ending::Reset,
        };
        let mut breach = ("", &[][..]);
        match ending {
            Ending::Whole => {}
            Ending::Breach => {
                let (what, frames, codes) = against_a_rule(random, count * 2 + 1);
                bytes.extend(frames);
                breach = (what, codes);
            }
            Ending::Fin | Ending::Reset => bytes.truncate(random.below(bytes.len() + 1)),
        }
        Plan { bytes, answers, ending, breach }
    }
}

/// The first line of a response's head, behind changes of the table's size (RFC 7541 §6.3): `:status: 200`
/// is 0x88, in the static table.
fn status(block: &[u8]) -> Option<u8> {
    let mut bytes = block.iter().copied();
    loop {
        let first = bytes.next()?;
        if first & 0xe0 != 0x20 {
            return Some(first);
        }
        if first & 0x1f == 0x1f {
            while bytes.next()? >= 0x80 {}
        }
    }
}

/// What a client has received.
#[derive(Default)]
struct Received {
    bodies: BTreeMap<u32, Vec<u8>>,
    whole: Vec<u32>,
    goaway: Option<u32>,
}

impl Received {
    /// Takes in a frame, and gives windows back.
    fn take(&mut self, peer: &mut Peer, (kind, flags, stream, payload): (u8, u8, u32, Vec<u8>)) {
        match kind {
            0 => {
                self.bodies.entry(stream).or_default().extend(&payload);
                if !payload.is_empty() {
                    let step = (payload.len() as u32).to_be_bytes();
                    let mut updates = frame(8, 0, 0, &step);
                    if flags & 1 == 0 {
                        updates.extend(frame(8, 0, stream, &step));
                    }
                    peer.send(&updates);
                }
            }
            1 if !self.bodies.contains_key(&stream) => {
                assert_eq!(status(&payload), Some(0x88), "stream {stream}: {payload:?}");
                self.bodies.insert(stream, Vec::new());
            }
            7 => self.goaway = payload[4..].first_chunk().map(|code| u32::from_be_bytes(*code)),
            _ => {}
        }
        if matches!(kind, 0 | 1) && flags & 1 != 0 {
            self.whole.push(stream);
        }
    }

    /// What came is what was asked for, or the beginning of it.
    fn check(&self, answers: &Answers, seed: u64) {
        for (stream, body) in &self.bodies {
            let Some(Some(expected)) = answers.get(stream) else { continue };
            assert!(expected.starts_with(body), "seed {seed}: stream {stream}: {} bytes", body.len());
            if self.whole.contains(stream) {
                assert_eq!(expected.len(), body.len(), "seed {seed}: stream {stream}");
            }
        }
    }
}

/// One connection.
fn connection(seed: u64, address: std::net::SocketAddr) {
    let mut random = Random(seed);
    let plan = Plan::draw(&mut random);
    let mut peer = Peer::silent(address);
    let mut rest = &plan.bytes[..];
    while !rest.is_empty() {
        let (now, later) = rest.split_at((1 + random.below(3000)).min(rest.len()));
        // After a breach the server may have gone.
        assert!(peer.send(now) || plan.ending == Ending::Breach, "seed {seed}: the server has gone");
        rest = later;
    }
    let mut received = Received::default();
    match plan.ending {
        Ending::Whole => {
            let wanted = |received: &Received| {
                let mut answers = plan.answers.iter().filter(|(_, answer)| answer.is_some());
                answers.all(|(stream, _)| received.whole.contains(stream))
            };
            while !wanted(&received) {
                let next = peer.next().unwrap_or_else(|| panic!("seed {seed}: the server has gone"));
                received.take(&mut peer, next);
                assert_eq!(received.goaway, None, "seed {seed}");
            }
            // Nothing that came before spoils the connection.
            peer.send(&frame(6, 0, 0, b"the end."));
            let is_answer =
                |next: &(u8, u8, u32, Vec<u8>)| next.0 == 6 && next.1 == 1 && next.3 == b"the end.";
            while !is_answer(&peer.next().unwrap_or_else(|| panic!("seed {seed}: the server has gone"))) {}
            peer.finish();
        }
        Ending::Breach | Ending::Fin => {
            if plan.ending == Ending::Fin {
                peer.finish();
            }
            while let Some(next) = peer.next() {
                received.take(&mut peer, next);
            }
            if plan.ending == Ending::Breach {
                let (what, codes) = plan.breach;
                let known = received.goaway.is_some_and(|code| codes.contains(&code));
                assert!(known, "seed {seed}: {what}: {:?}", received.goaway);
            }
        }
        Ending::Reset => return peer.reset(),
    }
    received.check(&plan.answers, seed);
}

/// Handlers that are there now.
struct Inside(Arc<AtomicI64>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Bytes of memory that are held, by the worker's own account.
fn held(address: std::net::SocketAddr) -> i64 {
    let reply = support::Client::new(address).get("/peak");
    reply.text().split(' ').nth(1).unwrap().parse().unwrap()
}

drivers!(random_connections_are_answered_exactly_or_refused_and_leave_nothing, |driver: DriverName| {
    let inside = Arc::<AtomicI64>::default();
    let count = Arc::clone(&inside);
    let never = move |_: Request| {
        count.fetch_add(1, Ordering::SeqCst);
        let inside = Inside(Arc::clone(&count));
        async move {
            let _inside = inside;
            std::future::pending::<Status>().await
        }
    };
    async fn socket(request: Request) -> Response {
        ws::accept(&request, |mut socket| async move {
            while let Ok(Some(message)) = socket.recv().await {
                if socket.send(message).await.is_err() {
                    break;
                }
            }
        })
    }
    let server = Server::new()
        .on_client_gone(OnClientGone::Cancel)
        .route("/page", get(async |_: Request| "page"))
        .route("/echo", post(async |request: Request| Body::from(request.into_body())))
        .route("/large", get(async |_: Request| vec![7_u8; LARGE]))
        .route("/never", any(never))
        .route("/socket", get(socket))
        .route("/peak", get(peak))
        .http2_prior_knowledge(Http2::default());
    let server = start(driver, server);
    let address = server.address();
    let mut before = 0;
    for seed in 0..SEEDS {
        connection(seed, address);
        wait_until(&format!("seed {seed}: nothing is left"), || {
            server.counters().connections == 0 && inside.load(Ordering::SeqCst) == 0
        });
        if seed == 20 {
            // Pools are full.
            before = held(address);
        }
    }
    let grown = (held(address) - before) / 1024;
    assert!(grown <= LITTLE, "{grown} KiB are left");
    assert_eq!(server.counters().panics, 0);
    // The server is as good as new.
    run(driver, async move {
        let mut client = Client::connect(address).await;
        assert_eq!(client.get("/page").await.text(), "page");
    });
});
