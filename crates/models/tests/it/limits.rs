//! Behaviour at limits: no descriptors left, descriptor numbers beyond `select`, unknown names. Also the one
//! count that is exact: system calls of a scripted exchange.

use crate::client::*;
use crate::server::Server;
use ringroad_models::{Model, Options, Protocol, Stop};
use std::io::Write;
use std::net::TcpStream;
use std::os::fd::AsFd;

#[test]
fn without_descriptors_newcomers_wait_quietly_and_are_served_later() {
    for model in Model::ALL {
        // On the engine's threads a connection that waits takes two: its own, and its worker's bell.
        let limit = if *model == Model::EngineThreads { 80 } else { 40 };
        let server = Server::limited(*model, Protocol::Http, Options::default(), Some(limit));
        // More than it can hold: the rest stays in the backlog.
        let mut streams: Vec<TcpStream> = (0..60).map(|_| connect(&server)).collect();
        streams.iter_mut().for_each(|stream| stream.write_all(REQUEST).unwrap());
        let mut waiting = streams.split_off(20);
        streams.iter_mut().for_each(|stream| assert_text(&read(stream, ANSWER.len()), ANSWER));
        // Full, and awake enough to serve those it has.
        server.settle();
        streams.iter_mut().for_each(request);
        // Each connection that closes makes room for one that waits, until all have been served.
        drop(streams);
        for mut stream in waiting.drain(..) {
            assert_text(&read(&mut stream, ANSWER.len()), ANSWER);
        }
        let totals = server.stop();
        assert_eq!((totals.accepted, totals.requests, totals.refused), (60, 80, 0), "{model}");
        // Serving takes about ten calls each; a loop that spins makes a million a second.
        assert!(totals.syscalls < 3000, "{model}: {totals:?}");
    }
}

#[test]
fn select_refuses_descriptors_it_has_no_bit_for_and_serves_the_others() {
    let server = Server::start(Model::Select, Protocol::Http);
    let mut streams: Vec<TcpStream> = (0..1100).map(|_| connect(&server)).collect();
    let complaint = server.await_complaint();
    assert!(complaint.contains("descriptor 1024 is not below 1024"), "{complaint}");
    server.settle();
    // A client that was refused reads an end or a reset; the others have nothing to read yet.
    let mut refused = 0;
    streams.retain_mut(|stream| {
        stream.set_nonblocking(true).unwrap();
        let mut byte = [0];
        let ended = match std::io::Read::read(stream, &mut byte) {
            Ok(bytes) => bytes == 0,
            Err(why) => why.kind() != std::io::ErrorKind::WouldBlock,
        };
        stream.set_nonblocking(false).unwrap();
        refused += u64::from(ended);
        !ended
    });
    assert!(
        refused > 76 && refused < 100,
        "{refused} of 1100: the limit is 1024, less what the server has open"
    );
    streams.iter_mut().for_each(request);
    // There is room again once one leaves.
    streams.truncate(500);
    server.settle();
    streams.push(connect(&server));
    streams.iter_mut().for_each(request);
    assert_eq!(server.complaints(), Vec::<String>::new(), "said once");
    let totals = server.stop();
    assert_eq!((totals.accepted, totals.refused), (1101 - refused, refused));
}

#[test]
fn system_calls_of_a_scripted_exchange_are_exact() {
    // What a round of wait, receive, send costs, and what comes on top for one connection and for the server.
    let server = Server::start(Model::EpollEt, Protocol::Http);
    server.settle();
    let mut stream = connect(&server);
    // Accepted, registered, and its first event (writable) over.
    server.settle();
    for _ in 0..100 {
        request(&mut stream);
        // Until it waits again: else its next wait may find two things to do.
        server.settle();
    }
    // A batch is one receive and one send.
    stream.write_all(&REQUEST.repeat(50)).unwrap();
    assert_text(&read(&mut stream, 50 * ANSWER.len()), &ANSWER.repeat(50));
    server.settle();
    drop(stream);
    server.settle();
    let create_and_register_two = 3;
    let accept_until_empty_and_register = 1 + 2 + 1;
    let first_event_is_writable = 1;
    let rounds = 101 * 3;
    let end_and_close = 1 + 1 + 1;
    let stop_and_close_two = 1 + 2;
    let expected = create_and_register_two
        + accept_until_empty_and_register
        + first_event_is_writable
        + rounds
        + end_and_close
        + stop_and_close_two;
    assert_eq!(server.stop().syscalls, expected);
}

#[test]
fn a_stop_can_be_requested_before_the_start_by_one_byte_on_its_write_end() {
    // In a process of its own: other tests of this one hold thousands of descriptors, and `select` wants a
    // low one.
    const ALONE: &str = "RINGROAD_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let name = "limits::a_stop_can_be_requested_before_the_start_by_one_byte_on_its_write_end";
        let program = std::env::current_exe().unwrap();
        let run =
            std::process::Command::new(program).args(["--exact", name]).env(ALONE, "1").output().unwrap();
        let said = String::from_utf8_lossy(&run.stdout);
        assert!(run.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    for model in Model::ALL {
        let stop = Stop::new().unwrap();
        let end = stop.write_end().try_clone_to_owned().unwrap();
        std::fs::File::from(end).write_all(b"X").unwrap();
        let address = ([127, 0, 0, 1], 0).into();
        let server =
            ringroad_models::Server::bind(*model, Protocol::Echo, address, Options::default()).unwrap();
        let totals = server.run(&stop).unwrap();
        assert_eq!((totals.model, totals.accepted), (*model, 0));
        // Asking any number of times, past what a pipe holds, neither blocks nor fails.
        (0..100_000).for_each(|_| stop.request());
        assert!(stop.as_fd().try_clone_to_owned().is_ok());
    }
}

#[test]
fn names_are_read_back_and_an_unknown_one_is_told_the_known() {
    for model in Model::ALL {
        assert_eq!(model.to_string().parse(), Ok(*model));
    }
    for protocol in Protocol::ALL {
        assert_eq!(protocol.to_string().parse(), Ok(*protocol));
    }
    let complaint = "kqueue".parse::<Model>().unwrap_err().to_string();
    assert!(
        complaint.starts_with(r#"unknown model "kqueue" (one of: threads, select, poll, epoll-lt, epoll-et"#)
    );
    let complaint = "smtp".parse::<Protocol>().unwrap_err().to_string();
    assert_eq!(complaint, r#"unknown protocol "smtp" (one of: echo, http)"#);
}

#[test]
fn an_address_in_use_is_named_with_what_to_do() {
    let bind =
        |address| ringroad_models::Server::bind(Model::Poll, Protocol::Echo, address, Options::default());
    let first = bind(([127, 0, 0, 1], 0).into()).unwrap();
    let why = bind(first.address()).unwrap_err().to_string();
    assert!(
        why.starts_with(&format!("bind, on {}: ", first.address())) && why.contains("another port"),
        "{why}"
    );

    let sharing = Options { reuse_port: true, ..Options::default() };
    let address = ([127, 0, 0, 1], 0).into();
    let first = ringroad_models::Server::bind(Model::Poll, Protocol::Echo, address, sharing).unwrap();
    ringroad_models::Server::bind(Model::Poll, Protocol::Echo, first.address(), sharing).unwrap();
}

#[test]
fn an_empty_buffer_is_refused_at_the_start() {
    let options = Options { buffer_bytes: 0, ..Options::default() };
    let server =
        ringroad_models::Server::bind(Model::Poll, Protocol::Echo, ([127, 0, 0, 1], 0).into(), options);
    assert!(server.unwrap_err().to_string().contains("buffer of 0 bytes"));
}

#[test]
fn a_batch_is_refused_by_models_that_have_none() {
    let options = Options { batch: std::num::NonZeroU16::new(8), ..Options::default() };
    for model in Model::ALL {
        let bound =
            ringroad_models::Server::bind(*model, Protocol::Echo, ([127, 0, 0, 1], 0).into(), options);
        match bound {
            Ok(_) => assert!(model.no_batch().is_none(), "{model}"),
            Err(why) => {
                let reason = model.no_batch().expect("it takes batches");
                assert!(why.to_string().contains("batch") && why.to_string().contains(reason), "{why}");
            }
        }
    }
}

/// The models that take a batch and can be had here.
fn in_batches() -> impl Iterator<Item = Model> {
    let rings = ringroad_engine::choose::may_make_rings();
    if let Err(why) = &rings {
        eprintln!("skipped: models on io_uring: {why}");
    }
    let makes_rings = |model: &Model| matches!(model, Model::Uring | Model::UringMultishot);
    Model::ALL
        .iter()
        .copied()
        .filter(|model| model.no_batch().is_none())
        .filter(move |model| rings.is_ok() || !makes_rings(model))
}

/// With a batch of one, no connection starves: all that are ready at once are served one per wait, and the
/// request to stop is seen.
#[test]
fn a_batch_of_one_serves_every_waiter_in_order_and_stops() {
    const CLIENTS: u64 = 50;
    const ROUNDS: u64 = 10;
    for model in in_batches() {
        let options = Options { batch: std::num::NonZeroU16::new(1), ..Options::default() };
        let server = Server::with(model, Protocol::Http, options);
        let mut streams: Vec<TcpStream> = (0..CLIENTS).map(|_| connect(&server)).collect();
        server.settle();
        for _ in 0..ROUNDS {
            // So that they are ready all at once.
            server.pause();
            streams.iter_mut().for_each(|stream| stream.write_all(REQUEST).unwrap());
            server.resume();
            streams.iter_mut().for_each(|stream| assert_text(&read(stream, ANSWER.len()), ANSWER));
        }
        server.settle();
        let totals = server.stop();
        let requests = CLIENTS * ROUNDS;
        assert_eq!((totals.accepted, totals.requests), (CLIENTS, requests), "{model}");
        // A wait for each receive and each send, or a wait, a receive and a send; that is the least.
        let for_each = if matches!(model, Model::Uring | Model::UringMultishot) { 2 } else { 3 };
        let least = CLIENTS + for_each * requests;
        assert!(totals.syscalls >= least, "{model}: {} system calls, not {least}", totals.syscalls);
    }
}

#[test]
fn workers_share_a_port_and_their_counts_are_one() {
    // Not on select: other tests of this process hold thousands of descriptors, and it wants low ones.
    let low = [Model::Select, Model::EngineSelect];
    for model in Model::ALL.iter().copied().filter(|model| !low.contains(model)) {
        if model.engine_driver().is_some_and(|driver| ringroad_engine::choose::probe(driver).is_err()) {
            eprintln!("skipped: {model}: its driver cannot be had here");
            continue;
        }
        if matches!(model, Model::Uring | Model::UringMultishot)
            && ringroad_engine::choose::may_make_rings().is_err()
        {
            eprintln!("skipped: {model}: no rings here");
            continue;
        }
        let address = ([127, 0, 0, 1], 0).into();
        let workers =
            ringroad_models::Workers::bind(model, Protocol::Http, address, Options::default(), 3).unwrap();
        let address = workers.address();
        let stop = Stop::new().unwrap();
        let totals = std::thread::scope(|scope| {
            let serving = scope.spawn(|| workers.run(&stop));
            let mut streams: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(address).unwrap()).collect();
            streams.iter_mut().for_each(|stream| stream.write_all(REQUEST).unwrap());
            streams.iter_mut().for_each(|stream| assert_text(&read(stream, ANSWER.len()), ANSWER));
            drop(streams);
            stop.request();
            serving.join().unwrap().unwrap()
        });
        assert_eq!((totals.model, totals.accepted, totals.requests), (model, 40, 40));
    }
}
