//! Each family of attacks on HTTP/2 servers, as a client that does nothing else: what it can make the server
//! do and hold has a bound, and then the connection ends.
//!
//! What bounds it is in some rows the `h2` crate and in others our layer; these tests hold whichever does.
//! Each asserts a bound of work (frames that were read, handlers that were begun) and one of memory: the most
//! that the worker's heap held meanwhile ([`Held`]). The budget does not grow with time here.

use super::client::{Client, post, read, run, send_all};
use super::frames::{Peer, block, frame, get_lines, headers, settings};
use crate::counts::peak;
use crate::support::{self, start, wait_until};
use bytes::Bytes;
use ringroad_engine::DriverName;
use ringroad_http::{
    Body, Deadlines, Handle, Http2, Misbehaviour, OnClientGone, Outcome, Request, Response, Server, Status,
    any, get, post as on_post, ws,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const KIB: i64 = 1024;

/// KiB of what an attack may have held at a time where it holds nothing for long: two receive buffers of the
/// largest size (512 KiB), and the connection.
const LITTLE: i64 = 1024;

/// Handlers of a connection at a time.
const STREAMS: u64 = 100;

/// Frames that cost one, before the connection is ended.
const BURST: u64 = 200;

/// As by default, but the budget does not grow with time.
fn bounds() -> Http2 {
    Http2 { misbehaviour: Misbehaviour { burst: BURST as u32, per_second: 0 }, ..Http2::default() }
}

/// The state of a server before an attack.
struct Held {
    live: i64,
    frames: u64,
}

impl Held {
    /// Allocations so far, bytes held now, and the most since this was asked before.
    fn ask(server: &Handle) -> [i64; 3] {
        let reply = support::Client::new(server.address()).get("/peak");
        let mut numbers = reply.text().split(' ').map(|number| number.parse().unwrap());
        std::array::from_fn(|_| numbers.next().unwrap())
    }

    fn before(server: &Handle) -> Held {
        // The first request fills pools.
        Held::ask(server);
        let [_, live, _] = Held::ask(server);
        Held { live, frames: server.counters().http2_frames }
    }

    /// So many frames were read, and so many KiB were held at a time, or fewer.
    fn at_most(&self, server: &Handle, what: &str, frames: u64, kib: i64) {
        let [_, _, peak] = Held::ask(server);
        let (read, grown) = (server.counters().http2_frames - self.frames, (peak - self.live) / KIB);
        assert!(read <= frames, "{what}: {read} frames were read, of at most {frames}");
        assert!(grown <= kib, "{what}: {grown} KiB were held, of at most {kib}");
    }
}

const STREAM_CLOSED_OR_CALM: &[u32] = &[1, 3, 5, 6, 11];
const CALM: u32 = 11;

/// Handlers that never end: how many have begun, and how many there were at most at a time.
#[derive(Default)]
struct Handlers {
    begun: AtomicU64,
    now: AtomicU64,
    most: AtomicU64,
}

struct Inside(Arc<Handlers>);

impl Inside {
    fn new(handlers: &Arc<Handlers>) -> Inside {
        handlers.begun.fetch_add(1, Ordering::Relaxed);
        let now = handlers.now.fetch_add(1, Ordering::Relaxed) + 1;
        handlers.most.fetch_max(now, Ordering::Relaxed);
        Inside(Arc::clone(handlers))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A server with a handler that goes on although its client has gone, as that of an upstream exchange may.
fn server(driver: DriverName, deadlines: Deadlines) -> (Handle, Arc<Handlers>, Arc<Mutex<Vec<String>>>) {
    let handlers = Arc::<Handlers>::default();
    let refused = Arc::<Mutex<Vec<String>>>::default();
    let (seen, told) = (Arc::clone(&handlers), Arc::clone(&refused));
    let never = move |_: Request| {
        let inside = Inside::new(&seen);
        async move {
            let _inside = inside;
            std::future::pending::<Status>().await
        }
    };
    let server = Server::new()
        .deadlines(deadlines)
        .drain(Duration::from_millis(100))
        .on_client_gone(OnClientGone::Finish)
        .on_refused(move |refused| told.lock().unwrap().push(refused.reason.to_string()))
        .route("/", get(async |_: Request| "page"))
        .route("/never", any(never))
        .route("/echo", on_post(async |request: Request| Body::from(request.into_body())))
        .route("/deaf", get(deaf))
        .route("/peak", get(peak))
        .http2_prior_knowledge(bounds());
    (start(driver, server), handlers, refused)
}

/// Takes a session, and does not read it.
async fn deaf(request: Request) -> Response {
    ws::accept(&request, |socket| async move {
        let _socket = socket;
        std::future::pending::<()>().await;
    })
}

/// The head of an extended CONNECT (RFC 8441).
fn connect_lines(path: &str) -> [(&'static str, &str); 6] {
    let [_, scheme, authority, path] = get_lines(path);
    let first = [(":method", "CONNECT"), (":protocol", "websocket"), scheme, authority, path];
    let [method, protocol, scheme, authority, path] = first;
    [method, protocol, scheme, authority, path, ("sec-websocket-version", "13")]
}

/// Another client is served meanwhile and afterwards.
fn others_are_served(server: &Handle) {
    assert_eq!(support::Client::new(server.address()).get("/").text(), "page");
}

/// Sends until the server has ended the connection; the code it gave.
fn send_until_calm(peer: &mut Peer, mut next: impl FnMut(u32) -> Vec<u8>) -> (Option<u32>, u32) {
    let mut sent = 0;
    // What comes behind a GOAWAY is received and thrown away for a while: it is looked for meanwhile.
    while peer.send(&next(sent)) {
        sent += 1;
        // Far more than any bound.
        assert!(sent < 20_000, "the server takes everything");
        if let Some(code) = peer.goaway_so_far() {
            return (Some(code), sent);
        }
    }
    (peer.goaway(), sent)
}

drivers!(rapid_reset_begins_no_more_handlers_than_streams, |driver: DriverName| {
    let ways = [
        ("requests", headers(1, &get_lines("/never"), true)),
        // RFC 8441: what a session costs more is held by the same count.
        ("sessions", headers(1, &connect_lines("/never"), false)),
    ];
    for (what, head) in ways {
        let (server, handlers, refused) = server(driver, Deadlines::default());
        let held = Held::before(&server);
        let mut peer = Peer::new(server.address());
        let (code, _) = send_until_calm(&mut peer, |at| {
            let stream = at * 2 + 1;
            let mut head = head.clone();
            head[5..9].copy_from_slice(&stream.to_be_bytes());
            [head, frame(3, 0, stream, &8_u32.to_be_bytes())].concat()
        });
        // The GOAWAY may be lost: the client was still sending.
        assert!(matches!(code, None | Some(CALM)), "{what}: {code:?}");
        let (begun, most) = (handlers.begun.load(Ordering::Relaxed), handlers.most.load(Ordering::Relaxed));
        assert!(begun <= STREAMS && most <= STREAMS, "{what}: {begun} begun, {most} at a time");
        wait_until("it is told", || !refused.lock().unwrap().is_empty());
        held.at_most(&server, what, 2 * BURST + 10, 2 * LITTLE);
        others_are_served(&server);
    }
});

drivers!(sessions_that_are_not_read_hold_a_window_each_and_no_more, |driver: DriverName| {
    let (server, _, _) = server(driver, Deadlines::default());
    let held = Held::before(&server);
    let mut peer = Peer::new(server.address());
    // As many as there may be, and twice as much for each as its window.
    for at in 0..STREAMS as u32 {
        peer.headers(at * 2 + 1, &connect_lines("/deaf"), false);
        let (kind, ..) = peer.frame_of(at * 2 + 1).unwrap();
        assert_eq!(kind, 1, "session {at}");
    }
    let mut sent = 0;
    'sessions: for at in 0..STREAMS as u32 {
        for _ in 0..4 {
            sent += 1;
            if !peer.send(&frame(0, 0, at * 2 + 1, &[0x55; 16 * 1024])) {
                break 'sessions;
            }
        }
    }
    others_are_served(&server);
    // The server has seen all of it.
    peer.send(&frame(6, 0, 0, &[1; 8]));
    while !matches!(peer.next(), Some((6, 1, ..)) | None) {}
    assert_eq!(server.counters().upgraded, STREAMS);
    // 64 KiB each, in memory that grew by doubling, and what a session is.
    held.at_most(&server, "sessions", STREAMS + sent + 100, STREAMS as i64 * 128 + LITTLE);
    others_are_served(&server);
});

/// The six ways to make the server reset a stream that has begun.
fn made_you_reset(driver: DriverName) {
    type Way = fn(u32) -> Vec<u8>;
    let ways: [(&str, Way); 6] = [
        ("a window that grows by nothing", |stream| frame(8, 0, stream, &[0; 4])),
        ("a window that is too large", |stream| frame(8, 0, stream, &0x7fff_ffff_u32.to_be_bytes())),
        ("a priority of a wrong length", |stream| frame(2, 0, stream, &[0; 4])),
        ("a priority on itself", |stream| frame(2, 0, stream, &[&stream.to_be_bytes()[..], &[0]].concat())),
        ("headers behind the end", |stream| headers(stream, &[("x", "y")], true)),
        ("data behind the end", |stream| frame(0, 0, stream, b"late")),
    ];
    for (what, way) in ways {
        let (server, handlers, _) = server(driver, Deadlines::default());
        let held = Held::before(&server);
        let mut peer = Peer::new(server.address());
        let (code, sent) = send_until_calm(&mut peer, |at| {
            let stream = at * 2 + 1;
            [headers(stream, &get_lines("/never"), true), way(stream)].concat()
        });
        let known = code.is_none_or(|code| STREAM_CLOSED_OR_CALM.contains(&code));
        assert!(known, "{what}: {code:?} after {sent}");
        let (begun, most) = (handlers.begun.load(Ordering::Relaxed), handlers.most.load(Ordering::Relaxed));
        assert!(begun <= STREAMS && most <= STREAMS, "{what}: {begun} begun, {most} at a time");
        // The streams there may be, and then each costs one at least.
        held.at_most(&server, what, 2 * (STREAMS + BURST) + 10, 2 * LITTLE);
        others_are_served(&server);
    }
}
drivers!(made_you_reset_begins_no_more_handlers_than_streams, made_you_reset);

/// A connection that sends one kind of frame and never reads.
fn flood(driver: DriverName, what: &str, most: u32, before: &[u8], next: impl Fn(u32) -> Vec<u8>) {
    let (server, _, refused) = server(driver, Deadlines::default());
    let held = Held::before(&server);
    let mut peer = Peer::new(server.address());
    peer.send(before);
    // Only so many are sent that the kernel's buffers hold the rest, so that it is known how many were taken.
    let all: Vec<u8> = (0..most).flat_map(&next).collect();
    peer.send(&all);
    let code = peer.goaway();
    assert!(matches!(code, None | Some(CALM)), "{what}: {code:?}");
    wait_until(what, || !refused.lock().unwrap().is_empty());
    // A window update costs a quarter.
    let each = if what == "WINDOW_UPDATE" { 4 } else { 1 };
    held.at_most(&server, what, each * BURST + 10, LITTLE);
    others_are_served(&server);
}

drivers!(floods_of_cheap_frames_are_answered_with_calm, |driver: DriverName| {
    flood(driver, "PING", 500, &[], |at| frame(6, 0, 0, &u64::from(at).to_be_bytes()));
    flood(driver, "acknowledged PING", 500, &[], |at| frame(6, 1, 0, &u64::from(at).to_be_bytes()));
    flood(driver, "SETTINGS", 500, &[], |_| settings(&[(4, 65_535)]));
    flood(driver, "PRIORITY", 500, &[], |at| frame(2, 0, at * 2 + 1, &[0, 0, 0, 0, 7]));
    flood(driver, "WINDOW_UPDATE", 2000, &[], |_| frame(8, 0, 0, &1_u32.to_be_bytes()));
    flood(driver, "unknown", 500, &[], |_| frame(99, 0, 0, b"?"));
    let lines = [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/never")];
    flood(driver, "empty DATA", 500, &headers(1, &lines, false), |_| frame(0, 0, 1, &[]));
});

drivers!(a_client_that_was_told_to_be_calm_is_not_heard_without_end, |driver: DriverName| {
    let (server, _, refused) =
        server(driver, Deadlines { linger: Duration::from_secs(3600), ..Deadlines::default() });
    let mut peer = Peer::new(server.address());
    let pings = frame(6, 0, 0, &[0; 8]).repeat(1000);
    // Far more than the server and the kernel's buffers take.
    let sent = (0..20_000).take_while(|_| peer.send(&pings)).count();
    assert!(sent < 20_000, "{} MB were taken", sent * pings.len() / 1_000_000);
    assert!(!refused.lock().unwrap().is_empty());
    others_are_served(&server);
});

drivers!(a_flood_of_continuations_is_cut_off_before_it_is_decoded, |driver: DriverName| {
    for (what, piece) in [("tiny", 1), ("large", 16_000)] {
        let (server, handlers, refused) = server(driver, Deadlines::default());
        let held = Held::before(&server);
        let mut peer = Peer::new(server.address());
        peer.send(&frame(1, 1, 1, &block(&get_lines("/never"))));
        let text = "a".repeat(piece);
        let (code, _) = send_until_calm(&mut peer, |_| frame(9, 0, 1, &block(&[("x", &text)])));
        assert!(matches!(code, None | Some(CALM)), "{what}: {code:?}");
        wait_until(what, || !refused.lock().unwrap().is_empty());
        assert_eq!(handlers.begun.load(Ordering::Relaxed), 0);
        // SETTINGS and its acknowledgement, HEADERS, and eight more.
        held.at_most(&server, what, 12, LITTLE);
        others_are_served(&server);
    }
});

drivers!(a_head_that_grows_when_it_is_decoded_is_refused, |driver: DriverName| {
    // One line of 4,000 bytes into the table, and references to it of one byte each: 60 MB of lines in a
    // block.
    let large = "v".repeat(4000);
    let mut bomb = block(&get_lines("/never"));
    bomb.push(0x40);
    bomb.extend(&block(&[("x", &large)])[1..]);
    bomb.extend(vec![0x80 | 62; 15_000 - bomb.len() % 1000 - 4100]);
    // And of lines that hold nothing: crumbs of a cookie, which other servers did not count.
    let mut crumbs = block(&get_lines("/never"));
    crumbs.push(0x40);
    crumbs.extend(&block(&[("cookie", "")])[1..]);
    crumbs.extend(vec![0x80 | 62; 12_000]);
    for (what, bomb) in [("lines", bomb), ("crumbs", crumbs)] {
        let (server, handlers, _) = server(driver, Deadlines::default());
        // No answer may be sent, so that whatever is held is held for long.
        let mut peer = Peer::with_settings(server.address(), &[(4, 0)]);
        let held = Held::before(&server);
        for at in 0..100_u32 {
            if !peer.send(&frame(1, 5, at * 2 + 1, &bomb)) {
                break;
            }
        }
        others_are_served(&server);
        // The server has seen all of it, or has ended the connection.
        peer.send(&frame(6, 0, 0, &[1; 8]));
        while let Some((kind, flags, ..)) = peer.next() {
            if kind == 6 && flags == 1 {
                break;
            }
        }
        // Unbounded it would be six million.
        held.at_most(&server, what, 110, LITTLE);
        assert_eq!(handlers.begun.load(Ordering::Relaxed), 0, "{what}");
        others_are_served(&server);
    }
});

drivers!(heads_of_waiting_requests_have_a_bound_together, |driver: DriverName| {
    let (server, handlers, refused) = server(driver, Deadlines::default());
    let held = Held::before(&server);
    let mut peer = Peer::new(server.address());
    let large = "v".repeat(7000);
    for at in 0..90 {
        let lines = [&get_lines("/never")[..], &[("x", &large), ("y", &large), ("z", &large)]].concat();
        let all = block(&lines);
        let (first, rest) = all.split_at(16_000);
        peer.send(&[frame(1, 1, at * 2 + 1, first), frame(9, 4, at * 2 + 1, rest)].concat());
    }
    wait_until("some are refused", || !refused.lock().unwrap().is_empty());
    // 256 KiB of 21 KB each.
    let begun = handlers.begun.load(Ordering::Relaxed);
    assert!((12..=13).contains(&begun), "{begun}");
    // Those of 90 streams are decoded before they are refused.
    held.at_most(&server, "heads", 2 * 90 + 10, 90 * 30 + LITTLE);
    others_are_served(&server);
});

/// Answers, and what became of them.
fn watched(driver: DriverName, stall: Duration) -> (Handle, Arc<Mutex<Vec<Outcome>>>) {
    let outcomes = Arc::<Mutex<Vec<Outcome>>>::default();
    let told = Arc::clone(&outcomes);
    let handler = move |_: Request| {
        let told = Arc::clone(&told);
        async move { Response::new(vec![7; 100_000]).on_sent(move |sent| told.lock().unwrap().push(sent.outcome)) }
    };
    let deadlines = Deadlines { send_stall: stall, ..Deadlines::default() };
    let server = Server::new()
        .deadlines(deadlines)
        .route("/", get(async |_: Request| "page"))
        .route("/large", get(handler))
        .route("/peak", get(peak))
        .http2_prior_knowledge(bounds());
    (start(driver, server), outcomes)
}

drivers!(a_window_that_stays_shut_has_a_deadline, |driver: DriverName| {
    let (server, outcomes) = watched(driver, Duration::from_secs(1));
    let held = Held::before(&server);
    let mut peer = Peer::with_settings(server.address(), &[(4, 0)]);
    for at in 0..50 {
        peer.get(at * 2 + 1, "/large");
    }
    wait_until("all are given up", || outcomes.lock().unwrap().len() == 50);
    assert!(outcomes.lock().unwrap().iter().all(|outcome| *outcome == Outcome::TooSlow));
    // The answers, as long as they wait; and then nothing of them.
    held.at_most(&server, "a window that stays shut", 60, 50 * 98 + LITTLE);
    held.at_most(&server, "given up", 60, LITTLE);
    others_are_served(&server);
});

drivers!(a_window_that_opens_byte_by_byte_is_too_slow, |driver: DriverName| {
    let (server, outcomes) = watched(driver, Duration::from_secs(1));
    let held = Held::before(&server);
    let mut peer = Peer::with_settings(server.address(), &[(4, 0)]);
    peer.get(1, "/large");
    // Each byte is progress, and all of them together are not enough.
    wait_until("it is given up", || {
        peer.send(&frame(8, 0, 1, &1_u32.to_be_bytes()));
        std::thread::sleep(Duration::from_millis(50));
        !outcomes.lock().unwrap().is_empty()
    });
    assert_eq!(*outcomes.lock().unwrap(), [Outcome::TooSlow]);
    held.at_most(&server, "byte by byte", 4 * BURST + 10, LITTLE);
    // It was the stream that was given up; others of the connection are served.
    while !matches!(peer.frame_of(1).expect("the connection goes on"), (3, _, code) if code == [0, 0, 0, 8]) {
    }
    // With room for its answer at once: later it might be given up as well.
    peer.send(&[headers(3, &get_lines("/"), true), frame(8, 0, 3, &100_u32.to_be_bytes())].concat());
    assert_eq!(peer.response(3).as_deref(), Some(&b"page"[..]));
    others_are_served(&server);
});

drivers!(a_client_that_takes_its_time_and_reads_gets_all_of_it, |driver: DriverName| {
    // Far longer than all of it takes, also on a machine that pauses.
    let (server, outcomes) = watched(driver, Duration::from_secs(60));
    let mut peer = Peer::with_settings(server.address(), &[(4, 20_000)]);
    peer.get(1, "/large");
    let mut received = 0;
    while received < 100_000 {
        let (kind, _, payload) = peer.frame_of(1).unwrap();
        if kind == 0 {
            received += payload.len();
            std::thread::sleep(Duration::from_millis(100));
            let step = (payload.len() as u32).max(1).to_be_bytes();
            peer.send(&[frame(8, 0, 1, &step), frame(8, 0, 0, &step)].concat());
        }
    }
    wait_until("it is told", || !outcomes.lock().unwrap().is_empty());
    assert_eq!(*outcomes.lock().unwrap(), [Outcome::Complete]);
});

drivers!(tiny_frames_hold_no_more_than_their_bytes_and_break_no_stream_of_messages, |driver: DriverName| {
    let (server, _, refused) = server(driver, Deadlines::default());
    let held = Held::before(&server);
    // A handler that does not read: as many as its window takes.
    let mut peer = Peer::new(server.address());
    let lines = [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/never")];
    peer.headers(1, &lines, false);
    let tiny = frame(0, 0, 1, b"x").repeat(60_000);
    peer.send(&tiny);
    peer.get(3, "/");
    assert_eq!(peer.response(3).as_deref(), Some(&b"page"[..]));
    // 60,000 bytes, which would be some 6 MB where they were kept as they came.
    held.at_most(&server, "tiny frames", 60_010, 2 * LITTLE);
    // Messages of a few bytes, as gRPC sends them, are as many as their sender likes.
    let address = server.address();
    run(driver, async move {
        let mut client = Client::connect(address).await;
        let (response, mut stream) = client.begin(post("/echo"), false).await.unwrap();
        let messages = 20_000;
        let sending = ringroad_engine::spawn(async move {
            for _ in 0..messages {
                send_all(&mut stream, Bytes::from_static(b"message"), false).await;
            }
            stream.send_data(Bytes::new(), true).unwrap();
        });
        let reply = read(response.await.unwrap()).await.unwrap();
        assert_eq!(reply.body.len(), messages * 7);
        sending.await.unwrap();
    });
    assert_eq!(*refused.lock().unwrap(), [""; 0]);
});

drivers!(a_head_that_does_not_come_to_its_end_has_a_deadline, |driver: DriverName| {
    let (server, _, refused) = server(driver, Deadlines::default());
    let held = Held::before(&server);
    let mut silent = Peer::silent(server.address());
    silent.send(b"PRI * HTTP/2.0\r\n\r\nSM");
    let mut cut = Peer::new(server.address());
    cut.get(1, "/");
    assert!(cut.response(1).is_some());
    cut.send(&frame(1, 1, 3, &block(&get_lines("/"))));
    // From now on, and not while there is something that has to come in time.
    server.set_deadlines(Deadlines { head: Duration::from_secs(1), ..Deadlines::default() });
    assert_eq!((silent.goaway(), cut.goaway()), (None, None));
    assert!(refused.lock().unwrap().len() >= 2);
    held.at_most(&server, "heads that do not end", 10, LITTLE);
    others_are_served(&server);
});

drivers!(a_body_that_comes_too_slowly_is_given_up, |driver: DriverName| {
    let deadlines = Deadlines { body_grace: Duration::from_secs(1), ..Deadlines::default() };
    let (server, _, refused) = server(driver, deadlines);
    let handler_reads = [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/echo")];
    let mut peer = Peer::new(server.address());
    peer.headers(1, &handler_reads, false);
    // The answer's head has been sent: its body is cut, and the connection goes on.
    let ended = loop {
        match peer.frame_of(1) {
            Some((3, _, code)) => break code,
            Some((0, 1, _)) => panic!("the end of a whole body"),
            Some(_) => {}
            None => panic!("the connection has ended"),
        }
    };
    assert_ne!(ended, [0; 4]);
    peer.get(3, "/");
    assert_eq!(peer.response(3).as_deref(), Some(&b"page"[..]));
    drop(refused);
    assert_eq!(server.counters().timed_out, 1);
});
