//! What a small request costs here: nanoseconds to read it and to write its answer, beside `httparse`.
//!
//! `cargo run --release -p ringroad-wire --example cost`. Each figure is the median of 1001 short rounds,
//! with the first and the ninth decile beside it, so that what else the machine does falls into single
//! rounds; pin it to a core. A round works through a buffer of 64 pipelined requests, so that code and bytes
//! are warm, as they are in a busy server.
#![allow(clippy::unwrap_used)]

use ringroad_wire::{
    BodySize, DateLine, Encoder, Event, FieldBlock, ReplyTo, Requests, ResponseEvent, Responses, Scratch,
    Status,
};
use std::hint::black_box;
use std::time::Instant;

const SMALL: &[u8] = b"GET / HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n";
const BROWSER: &[u8] = b"GET /docs/index.html?tab=a HTTP/1.1\r\n\
Host: www.example.org\r\n\
User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\
Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n\
Accept-Language: en-US,en;q=0.5\r\n\
Accept-Encoding: gzip, deflate, br, zstd\r\n\
Connection: keep-alive\r\n\
Cookie: session=0123456789abcdef0123456789abcdef\r\n\
Upgrade-Insecure-Requests: 1\r\n\
Sec-Fetch-Dest: document\r\n\
Sec-Fetch-Mode: navigate\r\n\
Sec-Fetch-Site: none\r\n\r\n";
const BODY: &[u8] = b"<h1>Hello World</h1>";
const COPIES: usize = 64;

fn main() {
    let date = DateLine::new("Sat, 21 Nov 2026 11:00:00 GMT").unwrap();
    let fixed = FieldBlock::of([("Content-Type", "text/html")]).unwrap();
    let mut scratch = Scratch::default();
    let mut out = Vec::with_capacity(COPIES * 256);

    for (name, request) in [("small", SMALL), ("browser", BROWSER)] {
        let bytes = request.repeat(COPIES);
        println!("{name}: {} bytes", request.len());
        report("read", || {
            let mut requests = Requests::new();
            let mut at = 0;
            while let Some(Event::Head(head)) = requests.next(&mut scratch, &bytes, &mut at).unwrap() {
                black_box(head.target());
            }
            assert_eq!(at, bytes.len());
        });
        report("read and answer", || {
            let mut requests = Requests::new();
            let mut at = 0;
            out.clear();
            while let Some(Event::Head(head)) = requests.next(&mut scratch, &bytes, &mut at).unwrap() {
                let mut answer = Encoder::response(&mut out, Status::OK, ReplyTo::from(&head));
                answer.date(&date).block(&fixed);
                let mut body = answer.finish(BodySize::Known(BODY.len() as u64));
                body.data(&mut out, BODY).unwrap();
                body.end(&mut out).unwrap();
            }
            black_box(&out);
        });
        report("httparse alone", || {
            let mut at = 0;
            while at < bytes.len() {
                let mut headers = [httparse::EMPTY_HEADER; 16];
                let mut request = httparse::Request::new(&mut headers);
                at += request.parse(&bytes[at..]).unwrap().unwrap();
                black_box(request.path);
            }
        });
    }

    println!("answer: {} bytes", {
        out.clear();
        answer(&mut out, &date);
        out.len()
    });
    report("write", || {
        out.clear();
        (0..COPIES).for_each(|_| answer(&mut out, &date));
        black_box(&out);
    });
    out.clear();
    (0..COPIES).for_each(|_| answer(&mut out, &date));
    report("read", || {
        let mut responses = Responses::new();
        let mut at = 0;
        for _ in 0..COPIES {
            responses.begin(ringroad_wire::Method::Get).unwrap();
            while let Some(event) = responses.next(&mut scratch, &out, &mut at).unwrap() {
                if let ResponseEvent::End(_) = event {
                    break;
                }
                black_box(&event);
            }
        }
        assert_eq!(at, out.len());
    });
}

fn answer(out: &mut Vec<u8>, date: &DateLine) {
    let to = black_box(ReplyTo { keep_alive: true, ..ReplyTo::refused() });
    let mut answer = Encoder::response(out, Status::OK, to);
    answer.date(date).field("Content-Type", "text/html").unwrap();
    let mut body = answer.finish(BodySize::Known(BODY.len() as u64));
    body.data(out, BODY).unwrap();
    body.end(out).unwrap();
}

/// Prints nanoseconds per message of `work`, which does [`COPIES`].
fn report(name: &str, mut work: impl FnMut()) {
    const ROUNDS: usize = 1001;
    const TURNS: usize = 50;
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            (0..TURNS).for_each(|_| work());
            start.elapsed().as_nanos() as f64 / (TURNS * COPIES) as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    println!(
        "  {name:<16} {:6.1} ns  ({:.1} to {:.1})",
        rounds[ROUNDS / 2],
        rounds[ROUNDS / 10],
        rounds[ROUNDS * 9 / 10]
    );
}
