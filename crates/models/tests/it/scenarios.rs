//! What every model must do, one body per behaviour. Counts are compared with the server's totals wherever
//! the client knows them.

use crate::client::*;
use crate::server::{PATIENCE, Server};
use ringroad_models::{Model, Options, Protocol};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// Runs each body on every model: `echo_returns_every_byte::epoll_et`.
macro_rules! on_every_model {
    ($($scenario:ident),* $(,)?) => {$(
        mod $scenario {
            use ringroad_models::Model;
            #[test] fn threads() { super::$scenario(Model::Threads) }
            #[test] fn select() { super::$scenario(Model::Select) }
            #[test] fn poll() { super::$scenario(Model::Poll) }
            #[test] fn epoll_lt() { super::$scenario(Model::EpollLt) }
            #[test] fn epoll_et() { super::$scenario(Model::EpollEt) }
            #[test] fn uring() { super::$scenario(Model::Uring) }
            #[test] fn uring_multishot() { super::$scenario(Model::UringMultishot) }
            #[test] fn engine_threads() { super::$scenario(Model::EngineThreads) }
            #[test] fn engine_select() { super::$scenario(Model::EngineSelect) }
            #[test] fn engine_poll() { super::$scenario(Model::EnginePoll) }
            #[test] fn engine_epoll() { super::$scenario(Model::EngineEpoll) }
            #[test] fn engine_io_uring() { super::$scenario(Model::EngineIoUring) }
        }
    )*};
}

on_every_model!(
    echo_returns_every_byte_to_a_client_that_reads_little_by_little,
    echo_works_through_a_buffer_smaller_than_the_message,
    pipelined_requests_are_all_answered_in_order,
    a_request_may_come_byte_by_byte,
    requests_with_bodies_are_answered_once_each,
    a_head_too_long_is_refused_in_words_though_the_client_sends_on,
    a_half_closed_connection_gets_the_rest_and_then_the_end,
    a_closing_request_is_answered_and_then_the_connection_ends,
    a_peer_that_resets_affects_no_other_connection,
    a_thousand_connections_are_served_at_once,
    a_peer_that_reads_nothing_is_not_read_from_and_costs_bounded_memory,
    a_greedy_sender_does_not_starve_the_others,
    data_and_the_end_that_arrive_together_are_both_seen,
    peers_that_do_not_read_do_not_starve_the_others,
    stop_ends_idle_busy_and_delayed_connections,
    a_delayed_answer_is_right_and_not_early_and_delays_no_other,
    a_delayed_peer_may_reset,
    work_burns_processor_time_for_each_request,
);

fn echo_returns_every_byte_to_a_client_that_reads_little_by_little(model: Model) {
    let server = Server::start(model, Protocol::Echo);
    let sent = pattern(1 << 20);
    let got = echo_through(&server, &sent, 777);
    assert!(got == sent, "the bytes differ");
    let totals = server.stop();
    let bytes = sent.len() as u64;
    assert_eq!((totals.accepted, totals.bytes_in, totals.bytes_out, totals.requests), (1, bytes, bytes, 0));
}

fn echo_works_through_a_buffer_smaller_than_the_message(model: Model) {
    // 3 bytes, and a message of a multiple of it: every receive fills the buffer, the last one exactly.
    let options = Options { buffer_bytes: 3, ..Options::default() };
    let server = Server::with(model, Protocol::Echo, options);
    let sent = pattern(3 * 4000);
    assert!(echo_through(&server, &sent, 4096) == sent, "the bytes differ");
    assert_eq!(server.stop().bytes_out, sent.len() as u64);
}

/// Sends from one thread and reads in another, `step` bytes at a time, to the end.
fn echo_through(server: &Server, sent: &[u8], step: usize) -> Vec<u8> {
    let mut stream = connect(server);
    let mut writer = stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            writer.write_all(sent).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        let mut got = Vec::new();
        let mut piece = vec![0; step];
        loop {
            match stream.read(&mut piece).unwrap() {
                0 => return got,
                bytes => got.extend_from_slice(&piece[..bytes]),
            }
        }
    })
}

fn pipelined_requests_are_all_answered_in_order(model: Model) {
    let server = Server::start(model, Protocol::Http);
    let mut stream = connect(&server);
    // Every hundredth is a HEAD, so that order shows.
    let head = b"HEAD / HTTP/1.1\r\nHost: here\r\n\r\n";
    let is_head = |i: usize| i % 100 == 99;
    let requests: Vec<u8> =
        (0..1000).flat_map(|i| if is_head(i) { &head[..] } else { REQUEST }).copied().collect();
    let head_answer = &ANSWER[..ANSWER.len() - 20];
    let answers: Vec<u8> =
        (0..1000).flat_map(|i| if is_head(i) { head_answer } else { ANSWER }).copied().collect();
    stream.write_all(&requests).unwrap();
    assert_text(&read(&mut stream, answers.len()), &answers);
    let totals = server.stop();
    let (bytes_in, bytes_out) = (requests.len() as u64, answers.len() as u64);
    assert_eq!((totals.requests, totals.bytes_in, totals.bytes_out), (1000, bytes_in, bytes_out));
}

fn a_request_may_come_byte_by_byte(model: Model) {
    let server = Server::start(model, Protocol::Http);
    let mut stream = connect(&server);
    for _ in 0..3 {
        for byte in REQUEST {
            stream.write_all(&[*byte]).unwrap();
        }
        assert_text(&read(&mut stream, ANSWER.len()), ANSWER);
    }
    assert_eq!(server.stop().requests, 3);
}

fn requests_with_bodies_are_answered_once_each(model: Model) {
    let server = Server::start(model, Protocol::Http);
    let mut stream = connect(&server);
    // The body looks like requests: taken for some, it would be answered.
    let body = REQUEST.repeat(1000);
    write!(stream, "POST / HTTP/1.1\r\nHost: here\r\nContent-Length: {}\r\n\r\n", body.len()).unwrap();
    stream.write_all(&body).unwrap();
    assert_text(&read(&mut stream, ANSWER.len()), ANSWER);

    stream.write_all(b"PUT / HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
    write!(stream, "{:x};name=value\r\n", body.len()).unwrap();
    stream.write_all(&body).unwrap();
    stream.write_all(b"\r\n0\r\nTrailer: value\r\n\r\n").unwrap();
    assert_text(&read(&mut stream, ANSWER.len()), ANSWER);

    let head = b"POST / HTTP/1.1\r\nHost: here\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";
    stream.write_all(head).unwrap();
    let go_on = b"HTTP/1.1 100 Continue\r\n\r\n";
    assert_text(&read(&mut stream, go_on.len()), go_on);
    stream.write_all(b"12345").unwrap();
    assert_text(&read(&mut stream, ANSWER.len()), ANSWER);
    request(&mut stream);
    assert_eq!(server.stop().requests, 4);
}

fn a_head_too_long_is_refused_in_words_though_the_client_sends_on(model: Model) {
    let server = Server::start(model, Protocol::Http);
    let mut stream = connect(&server);
    stream.write_all(b"GET / HTTP/1.1\r\nHost: here\r\nX: ").unwrap();
    // Within what the server discards before it gives up: so it must not reset.
    for _ in 0..100 {
        stream.write_all(&[b'x'; 1000]).unwrap();
    }
    stream.shutdown(Shutdown::Write).unwrap();
    let answer = read_to_end(&mut stream);
    assert_text(
        &answer,
        b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    );

    // Past it, the connection must end all the same.
    let mut stream = connect(&server);
    let mut accepted_bytes = 0;
    let flood = [b'x'; 64 * 1024];
    let end = loop {
        match stream.write(&flood) {
            Ok(bytes) if accepted_bytes > 64 << 20 => break Ok(bytes),
            Ok(bytes) => accepted_bytes += bytes,
            Err(why) => break Err(why),
        }
    };
    assert!(end.is_err(), "the server swallows without end");
    assert_eq!(server.stop().requests, 0);
}

fn a_half_closed_connection_gets_the_rest_and_then_the_end(model: Model) {
    let server = Server::start(model, Protocol::Echo);
    let mut stream = connect(&server);
    let sent = pattern(200_000);
    stream.write_all(&sent).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    // By now the server may have seen everything, the end included, before we read the first byte.
    server.settle();
    assert!(read_to_end(&mut stream) == sent, "the bytes differ");

    // An end with nothing before it.
    let mut stream = connect(&server);
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_to_end(&mut stream), b"");
    server.stop();
}

fn a_closing_request_is_answered_and_then_the_connection_ends(model: Model) {
    let server = Server::start(model, Protocol::Http);
    for _ in 0..100 {
        let mut stream = connect(&server);
        stream.write_all(b"GET / HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").unwrap();
        assert!(read_to_end(&mut stream).ends_with(b"Connection: close\r\n\r\n<h1>Hello World</h1>"));
        let mut stream = connect(&server);
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        assert!(read_to_end(&mut stream).ends_with(b"\r\n\r\n<h1>Hello World</h1>"));
    }
    let totals = server.stop();
    assert_eq!((totals.accepted, totals.requests), (200, 200));
}

fn a_peer_that_resets_affects_no_other_connection(model: Model) {
    let server = Server::start(model, Protocol::Echo);
    let mut witness = connect(&server);
    assert_eq!(exchange(&mut witness, b"before"), b"before");
    for round in 0..50 {
        // While idle, with an answer unread, and with a flood under way.
        reset(connect(&server));
        let mut stream = connect(&server);
        exchange(&mut stream, b"hello");
        stream.write_all(b"never read").unwrap();
        reset(stream);
        let mut stream = connect(&server);
        stream.set_nonblocking(true).unwrap();
        for _ in 0..round {
            let _ = stream.write(&[0; 64 * 1024]);
        }
        reset(stream);
        assert_eq!(exchange(&mut witness, b"meanwhile"), b"meanwhile");
    }
    server.stop();
}

fn a_thousand_connections_are_served_at_once(model: Model) {
    let server = Server::start(model, Protocol::Http);
    let mut streams: Vec<TcpStream> = (0..1000).map(|_| connect(&server)).collect();
    for _ in 0..3 {
        for stream in &mut streams {
            stream.write_all(REQUEST).unwrap();
        }
        for stream in &mut streams {
            assert_text(&read(stream, ANSWER.len()), ANSWER);
        }
    }
    // Every other one goes; the rest must not notice, and newcomers take their places.
    let mut count = 0;
    streams.retain(|_| {
        count += 1;
        count % 2 == 0
    });
    if matches!(model, Model::Select | Model::EngineSelect) {
        // Its set has bits for this many only after the closed connections are gone; before that it refuses
        // newcomers.
        server.settle();
    }
    streams.extend((0..500).map(|_| connect(&server)));
    streams.iter_mut().for_each(request);
    let totals = server.stop();
    assert_eq!((totals.accepted, totals.refused, totals.requests), (1500, 0, 4000));
}

fn a_peer_that_reads_nothing_is_not_read_from_and_costs_bounded_memory(model: Model) {
    let server = Server::start(model, Protocol::Http);
    let mut witness = connect(&server);
    request(&mut witness);
    let before = server.memory_bytes();

    let mut stream = connect(&server);
    stream.set_nonblocking(true).unwrap();
    // Requests without end, cut anywhere, until nothing more is taken and the server is asleep.
    let requests = REQUEST.repeat(1 << 20);
    let mut taken = 0;
    loop {
        match stream.write(&requests[taken..]) {
            Ok(bytes) => taken += bytes,
            Err(why) if why.kind() == ErrorKind::WouldBlock => {
                server.settle();
                if matches!(stream.write(&requests[taken..taken + 1]), Err(why) if why.kind() == ErrorKind::WouldBlock)
                {
                    break;
                }
                taken += 1;
            }
            Err(why) => panic!("{why}"),
        }
        assert!(taken + 1 < requests.len(), "30 MB of requests are swallowed and no answer was read");
    }
    let grown = server.memory_bytes().saturating_sub(before);
    // On the engine's threads a worker makes its own buffer of 256 KiB for each large receive, and the
    // runtime keeps four used ones: five together are 1.25 MiB. Other drivers use a kept one again.
    let bound = if model == Model::EngineThreads { 3 << 19 } else { 1 << 20 };
    assert!(grown < bound, "{grown} bytes more for one connection that does not read");
    request(&mut witness);

    // It reads at last: everything is there and goes on where it stopped.
    let whole = taken / REQUEST.len();
    stream.set_nonblocking(false).unwrap();
    let answers = read(&mut stream, whole * ANSWER.len());
    assert!(answers.chunks(ANSWER.len()).all(|answer| answer == ANSWER), "the answers differ");
    stream.write_all(&requests[taken..(whole + 1) * REQUEST.len()]).unwrap();
    if taken % REQUEST.len() > 0 {
        assert_text(&read(&mut stream, ANSWER.len()), ANSWER);
    }
    request(&mut stream);
    server.stop();
}

/// Bytes that ask for no answer yet, and the end or a reset right behind them: one wake-up for both, before
/// the server has accepted and after. If the end is lost, the connection stays for ever.
fn data_and_the_end_that_arrive_together_are_both_seen(model: Model) {
    let server = Server::start(model, Protocol::Http);
    let mut witness = connect(&server);
    request(&mut witness);
    server.settle();
    let before = server.sockets();
    let unfinished = b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 99999\r\n\r\nabc";
    for accepted_before in [false, true] {
        let early: Vec<_> = (0..40).filter(|_| accepted_before).map(|_| connect(&server)).collect();
        let mut streams = early;
        streams.iter_mut().for_each(request);
        server.settle();
        server.pause();
        streams.extend((0..40).filter(|_| !accepted_before).map(|_| connect(&server)));
        for (nth, mut stream) in streams.into_iter().enumerate() {
            stream.write_all(unfinished).unwrap();
            if nth % 2 == 0 { reset(stream) } else { drop(stream) }
        }
        server.resume();
        let deadline = Instant::now() + PATIENCE;
        while server.sockets() > before {
            assert!(
                Instant::now() < deadline,
                "{} connections are left, accepted before: {accepted_before}",
                server.sockets() - before
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    request(&mut witness);
}

/// More of them than there are buffers in any ring.
fn peers_that_do_not_read_do_not_starve_the_others(model: Model) {
    let options = Options { buffer_bytes: 32 * 1024, ..Options::default() };
    let server = Server::with(model, Protocol::Echo, options);
    let flood = pattern(3000);
    let silent: Vec<TcpStream> = (0..40).map(|_| connect(&server)).collect();
    silent.iter().for_each(|stream| stream.set_nonblocking(true).unwrap());
    for _ in 0..3 {
        for mut stream in &silent {
            while stream.write(&flood).is_ok() {}
        }
        // Asleep, with all of them stuck: not spinning.
        server.settle();
    }
    for _ in 0..20 {
        let mut newcomer = connect(&server);
        assert!(exchange(&mut newcomer, &flood) == flood, "the bytes differ");
    }
}

fn a_greedy_sender_does_not_starve_the_others(model: Model) {
    // An endless body, sent in larger pieces than it is received in: there is always more of it, and no
    // answer ever makes the server pause.
    let server = Server::with(model, Protocol::Http, Options { buffer_bytes: 256, ..Options::default() });
    let mut witness = connect(&server);
    let mut greedy = connect(&server);
    write!(greedy, "POST / HTTP/1.1\r\nHost: here\r\nContent-Length: {}\r\n\r\n", u64::MAX).unwrap();
    let ending = greedy.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || while greedy.write_all(&[7; 256 * 1024]).is_ok() {});
        (0..200).for_each(|_| request(&mut witness));
        ending.shutdown(Shutdown::Both).unwrap();
    });
    assert_eq!(server.stop().requests, 200);
}

fn stop_ends_idle_busy_and_delayed_connections(model: Model) {
    // Longer than the patience: were it waited for, `stop` would fail.
    let options = Options { delay: PATIENCE * 10, ..Options::default() };
    let server = Server::with(model, Protocol::Http, options);
    let mut idle = connect(&server);
    let mut delayed = connect(&server);
    delayed.write_all(REQUEST).unwrap();
    server.settle();
    let totals = server.stop();
    assert_eq!((totals.accepted, totals.bytes_in, totals.bytes_out), (2, REQUEST.len() as u64, 0));
    assert!(is_ended(&mut idle) && is_ended(&mut delayed));

    let server = Server::start(model, Protocol::Echo);
    let mut stuck = connect(&server);
    stuck.set_nonblocking(true).unwrap();
    let mut taken = 0;
    while let Ok(bytes) = stuck.write(&[1; 64 * 1024]) {
        taken += bytes as u64;
    }
    server.settle();
    let totals = server.stop();
    assert!(totals.bytes_in <= taken && totals.bytes_out <= totals.bytes_in, "{totals:?}, {taken} taken");
}

fn a_delayed_answer_is_right_and_not_early_and_delays_no_other(model: Model) {
    // One after the other, 400 delays of 100 ms are more than the patience.
    let delay = Duration::from_millis(100);
    let server = Server::with(model, Protocol::Echo, Options { delay, ..Options::default() });
    let mut streams: Vec<TcpStream> = (0..400).map(|_| connect(&server)).collect();
    let start = Instant::now();
    for (i, stream) in streams.iter_mut().enumerate() {
        write!(stream, "{i:05}").unwrap();
    }
    for (i, stream) in streams.iter_mut().enumerate() {
        assert_text(&read(stream, 5), format!("{i:05}").as_bytes());
    }
    assert!(start.elapsed() >= delay, "answered before the time");

    // What came during the wait is answered after it, and so is an end.
    let stream = &mut streams[0];
    for piece in [b"one", b"two", b"six"] {
        stream.write_all(piece).unwrap();
        std::thread::sleep(delay / 4);
    }
    stream.shutdown(Shutdown::Write).unwrap();
    assert_text(&read_to_end(stream), b"onetwosix");

    // A message of many buffers: a wait for each.
    let sent = pattern(3 * 4096);
    assert!(exchange(&mut streams[1], &sent) == sent, "the bytes differ");
    server.stop();
}

fn a_delayed_peer_may_reset(model: Model) {
    let options = Options { delay: Duration::from_millis(300), ..Options::default() };
    let server = Server::with(model, Protocol::Http, options);
    let mut leaving: Vec<TcpStream> = (0..50).map(|_| connect(&server)).collect();
    leaving.iter_mut().for_each(|stream| stream.write_all(REQUEST).unwrap());
    // Received, and the answers wait.
    server.settle();
    for (i, stream) in leaving.into_iter().enumerate() {
        // A reset is ECONNRESET to the server, and after an end EPIPE, which comes with a signal unless
        // refused.
        if i % 2 == 0 {
            stream.shutdown(Shutdown::Write).unwrap();
        }
        reset(stream);
    }
    // New connections get the slots, and perhaps the descriptor numbers, of those that left, and must get
    // only their own answers.
    let mut streams: Vec<TcpStream> = (0..50).map(|_| connect(&server)).collect();
    streams.iter_mut().for_each(|stream| stream.write_all(REQUEST).unwrap());
    streams.iter_mut().for_each(|stream| assert_text(&read(stream, ANSWER.len()), ANSWER));
    for stream in &mut streams {
        stream.set_nonblocking(true).unwrap();
        assert!(
            matches!(stream.read(&mut [0]), Err(why) if why.kind() == ErrorKind::WouldBlock),
            "answered twice"
        );
    }
    let totals = server.stop();
    assert!(totals.syscalls < 5000, "{totals:?}: a dead peer makes the loop spin");
}

fn work_burns_processor_time_for_each_request(model: Model) {
    let work = Duration::from_millis(2);
    let server = Server::with(model, Protocol::Http, Options { work, ..Options::default() });
    let mut stream = connect(&server);
    request(&mut stream);
    let before = server.cpu();
    // Singly and in a batch.
    for _ in 0..50 {
        request(&mut stream);
    }
    stream.write_all(&REQUEST.repeat(50)).unwrap();
    assert_text(&read(&mut stream, 50 * ANSWER.len()), &ANSWER.repeat(50));
    // Processor time, not time passed; a quarter leaves room for a calibration on a disturbed machine.
    let burnt = server.cpu() - before;
    assert!(burnt > work * 100 / 4, "{burnt:?} for 100 requests of {work:?}");
    assert_eq!(server.stop().requests, 101);
}
