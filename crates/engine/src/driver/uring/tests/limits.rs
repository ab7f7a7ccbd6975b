//! Full queues, an empty buffer ring, more news than a turn takes: nothing is starved or lost.

use super::*;
use std::io::Write;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

#[test]
fn more_sends_than_either_queue_holds_all_go_out_in_order() {
    let mut rig = Rig::tiny();
    let (near, far) = UnixStream::pair().unwrap();
    let mut bytes: Vec<u8> = (0..200).collect();
    let mut tokens = Vec::new();
    for byte in bytes.chunks_mut(1) {
        tokens.push(rig.submit(&Op::Send { on: target(&near), bytes: span(byte), whole: true }));
        if tokens.len() == 100 {
            // There is room now, and operations in line get it first.
            rig.turn(Until::Now);
            assert!(!rig.driver.line.is_empty());
        }
    }
    for token in tokens {
        assert_eq!(rig.last(), (token, 1));
    }
    assert_eq!(rig.receive_all(&far, 200), bytes);
    assert!(rig.driver.line.is_empty());
}

/// The number of operations that wait for peers is unlimited. If the completion queue bounded it, the send
/// below would queue behind receives that wait for its bytes.
#[test]
fn waiting_operations_do_not_block_later_ones() {
    let mut rig = Rig::tiny();
    let pairs: Vec<_> = (0..100).map(|_| UnixStream::pair().unwrap()).collect();
    let mut memory = vec![[0_u8; 4]; pairs.len()];
    for ((_, far), memory) in pairs.iter().zip(&mut memory) {
        rig.submit(&Op::ReceiveInto { on: target(far), memory: span(memory) });
    }
    let mut bytes = *b"wake";
    for (near, _) in pairs.iter().rev() {
        rig.submit(&Op::Send { on: target(near), bytes: span(&mut bytes), whole: true });
    }
    for _ in 0..200 {
        assert_eq!(rig.last().1, 4);
    }
    assert!(memory.iter().all(|memory| memory == b"wake"));
}

#[test]
fn a_full_submission_queue_is_submitted_and_takes_more() {
    let mut rig = Rig::with(Settings { entries: 8, completions: Some(64), ..Settings::default() });
    let (near, _far) = UnixStream::pair().unwrap();
    let mut byte = [0];
    for _ in 0..30 {
        rig.submit(&Op::Send { on: target(&near), bytes: span(&mut byte), whole: true });
    }
    // The alarm's read is one of them: 31 entries through a queue of 8, the last 7 of them left for the wait.
    assert_eq!((rig.driver.counters().queue_full, rig.driver.counters().system_calls), (3, 3));
    assert!(rig.driver.line.is_empty());
    for _ in 0..30 {
        assert_eq!(rig.last().1, 1);
    }
}

#[test]
fn completions_past_their_queue_are_fetched_and_none_is_lost() {
    for features in masks() {
        let mut rig =
            Rig::with(Settings { entries: 8, completions: Some(8), features, ..Settings::default() });
        let pairs: Vec<_> = (0..100).map(|_| UnixStream::pair().unwrap()).collect();
        for (_, far) in &pairs {
            rig.submit(&Op::Receive { on: target(far) });
        }
        while !rig.driver.line.is_empty() {
            rig.turn(Until::Now);
        }
        rig.turn(Until::Now);
        for (at, (near, _)) in pairs.iter().enumerate() {
            (&*near).write_all(&[at as u8; 3]).unwrap();
        }
        let mut told = [0; 100];
        while told.iter().sum::<usize>() < 300 {
            let (token, news) = rig.next();
            let (News::Item(outcome) | News::Last(outcome)) = news else { panic!("{news:?}") };
            let lease = outcome.lease.unwrap();
            assert!(lease.iter().all(|byte| u32::from(*byte) == token.index));
            told[token.index as usize] += lease.len();
        }
        assert!(told.iter().all(|bytes| *bytes == 3));
        assert!(rig.driver.counters().overflows > 0, "{:?}", rig.driver.counters());
    }
}

#[test]
fn a_standing_accept_that_ends_on_a_full_queue_delivers_its_connection_with_the_end() {
    let mut rig = Rig::tiny();
    let listener = listener();
    let address = listener.local_addr().unwrap();
    let clients: Vec<_> = (0..40).map(|_| TcpStream::connect(address).unwrap()).collect();
    rig.submit(&Op::Accept { on: target(&listener) });
    let (mut accepted, mut ended) = (0, 0);
    while accepted < clients.len() {
        let (_, news) = rig.next();
        if matches!(news, News::Last(_)) {
            ended += 1;
            rig.submit(&Op::Accept { on: target(&listener) });
        }
        let (News::Item(outcome) | News::Last(outcome)) = news else { panic!("{news:?}") };
        assert!(outcome.result >= 0);
        // SAFETY: the kernel has just opened this descriptor for us.
        drop(unsafe { OwnedFd::from_raw_fd(outcome.result) });
        accepted += 1;
    }
    assert!(ended > 0, "the queue was never full");
}

#[test]
fn a_stream_many_times_the_ring_arrives_whole_and_in_order() {
    for (bundles, buffers, bytes) in
        [(false, 1, 16), (true, 1, 16), (false, 8, 100), (true, 8, 100), (false, 64, 4096), (true, 64, 4096)]
    {
        let features = with_bundles(bundles);
        let settings = Settings { buffers, buffer_bytes: bytes, features, ..Settings::default() };
        let mut rig = Rig::with(settings);
        let (mut near, far) = pair();
        let sent = pattern(bytes * usize::from(buffers) * 20 + 7);
        let writer = std::thread::spawn({
            let sent = sent.clone();
            move || near.write_all(&sent).map(|()| near)
        });
        assert_eq!(rig.receive_all(&far, sent.len()), sent, "{bundles} {buffers} {bytes}");
        writer.join().unwrap().unwrap();
    }
}

#[test]
fn one_completion_of_a_bundle_is_news_for_each_buffer() {
    let mut rig = Rig::with(Settings {
        buffers: 64,
        buffer_bytes: 16,
        features: with_bundles(true),
        ..Settings::default()
    });
    if !rig.driver.abilities.bundles {
        return eprintln!("skipped: bundles came with Linux 6.10");
    }
    let (mut near, far) = UnixStream::pair().unwrap();
    near.write_all(&pattern(200)).unwrap();
    rig.submit(&Op::Receive { on: target(&far) });
    let mut received = Vec::new();
    let mut most = 0;
    while received.len() < 200 {
        if rig.news.is_empty() {
            most = most.max(rig.turn(Until::News));
        }
        let (_, News::Item(outcome)) = rig.next() else { panic!("not an item") };
        let lease = outcome.lease.unwrap();
        assert!(lease.len() == outcome.result as usize && lease.len() <= 16);
        received.extend_from_slice(&lease);
    }
    assert_eq!(received, pattern(200));
    // The first completion fills one buffer; from it the kernel learns how much data there is.
    assert!(most >= 200 / 16 - 1, "{most}");
}

#[test]
fn a_turn_returns_at_most_its_limit_of_news() {
    for bundles in [true, false] {
        let mut rig = Rig::with(Settings {
            buffers: 4096,
            buffer_bytes: 16,
            features: with_bundles(bundles),
            ..Settings::default()
        });
        let pairs: Vec<_> = (0..30).map(|_| UnixStream::pair().unwrap()).collect();
        for (near, far) in &pairs {
            (&*near).write_all(&pattern(1600)).unwrap();
            rig.submit(&Op::Receive { on: target(far) });
        }
        let mut received = vec![Vec::new(); pairs.len()];
        let mut most = 0;
        while received.iter().map(Vec::len).sum::<usize>() < 1600 * pairs.len() {
            most = most.max(rig.turn(Until::News));
            while let Some(Completion { token, news }) = rig.news.pop_front() {
                let News::Item(outcome) = news else { panic!("{news:?}") };
                received[token.index as usize].extend_from_slice(&outcome.lease.unwrap());
            }
        }
        assert!(received.iter().all(|bytes| *bytes == pattern(1600)));
        assert!(most <= crate::COMPLETIONS_PER_TURN, "{most}");
    }
}

#[test]
fn a_receive_made_while_the_ring_is_empty_waits_for_a_buffer_and_finds_every_byte() {
    for bundles in [true, false] {
        let settings =
            Settings { buffers: 4, buffer_bytes: 16, features: with_bundles(bundles), ..Settings::default() };
        let mut rig = Rig::with(settings);
        let (near, far) = UnixStream::pair().unwrap();
        (&near).write_all(&pattern(100)).unwrap();
        rig.submit(&Op::Receive { on: target(&far) });
        let mut leases = Vec::new();
        loop {
            let (_, news) = rig.next();
            let ended = matches!(news, News::Last(_));
            let (News::Item(outcome) | News::Last(outcome)) = news else { panic!("{news:?}") };
            if outcome.lease.is_none() {
                assert_eq!(outcome.result, -libc::ENOBUFS);
            }
            leases.extend(outcome.lease);
            if ended {
                break;
            }
        }
        // A bundle that takes the last buffer ends the receive; otherwise the next attempt finds no buffer.
        assert_eq!(rig.driver.counters().ring_empty, u64::from(!rig.driver.abilities.bundles));
        assert_eq!(leases.len(), 4);
        // Two leases are copies. Their buffers are back in the pool, but not in the ring before the next
        // turn.
        assert_eq!(leases.iter().filter(|lease| lease.is_pooled()).count(), 2);
        assert_eq!(rig.driver.buffers_offered(), 0);
        let calls = rig.driver.counters().system_calls;
        rig.submit(&Op::Receive { on: target(&near) });
        let mut again = rig.submit(&Op::Receive { on: target(&far) });
        assert_eq!((rig.driver.starved.len(), rig.driver.line.len()), (2, 0));
        assert_eq!(rig.driver.counters().system_calls, calls);
        let mut received: Vec<u8> = leases.iter().flat_map(|lease| lease.to_vec()).collect();
        while received.len() < 100 {
            let (token, news) = rig.next();
            assert_eq!(token, again, "the other one has nothing to receive");
            let ended = matches!(news, News::Last(_));
            let (News::Item(outcome) | News::Last(outcome)) = news else { panic!("{news:?}") };
            received.extend(outcome.lease.iter().flat_map(|lease| lease.to_vec()));
            if ended {
                again = rig.submit(&Op::Receive { on: target(&far) });
            }
        }
        assert_eq!(received, pattern(100));
    }
}

/// The promise of a lease: nothing writes its buffer while it exists.
#[test]
fn leases_keep_their_bytes_while_the_ring_reuses_other_buffers() {
    for bundles in [true, false] {
        let settings =
            Settings { buffers: 8, buffer_bytes: 64, features: with_bundles(bundles), ..Settings::default() };
        let mut rig = Rig::with(settings);
        let (near, far) = pair();
        let mut kept = Vec::new();
        rig.submit(&Op::Receive { on: target(&far) });
        for round in 0..4_u8 {
            (&near).write_all(&[round; 64]).unwrap();
            let (_, News::Item(outcome)) = rig.next() else { panic!("not an item") };
            kept.push(outcome.lease.unwrap());
        }
        assert!(kept.iter().all(|lease| lease.is_pooled()));
        for _ in 0..100 {
            (&near).write_all(&[0xee; 64]).unwrap();
            let (_, News::Item(outcome)) = rig.next() else { panic!("not an item") };
            assert_eq!(&*outcome.lease.unwrap(), [0xee; 64]);
        }
        for (round, lease) in kept.iter().enumerate() {
            assert_eq!(&**lease, [round as u8; 64]);
        }
        assert_eq!(rig.driver.pool().out(), 4);
    }
}

#[test]
fn more_drivers_on_a_thread_than_rings_can_be_registered_all_work() {
    let mut rigs: Vec<_> = (0..20).map(|_| Rig::tiny()).collect();
    let registered = rigs.iter().filter(|rig| rig.driver.kernel.ring.has_registered_ring_fd()).count();
    assert!(registered < 20, "the kernel keeps sixteen");
    let (mut near, far) = pair();
    for rig in &mut rigs {
        near.write_all(b"ping").unwrap();
        let mut memory = [0; 4];
        rig.submit(&Op::ReceiveInto { on: target(&far), memory: span(&mut memory) });
        assert_eq!((rig.last().1, &memory), (4, b"ping"));
    }
}

#[test]
fn a_feature_switched_off_is_not_used() {
    let features = Features {
        multishot_accept: false,
        no_iowait: false,
        registered_ring: false,
        bundles: false,
        files: false,
        zero_copy: ZeroCopy::Off,
    };
    let rig = Rig::with(Settings { features, ..Settings::default() });
    let abilities = rig.driver.abilities;
    assert!(!abilities.multishot_accept && !abilities.no_iowait && !abilities.bundles);
    assert_eq!(abilities.zero_copy, ZeroCopy::Off);
    assert!(!rig.driver.kernel.ring.has_registered_ring_fd());
}

#[test]
fn the_error_of_a_refused_ring_has_a_hint() {
    let error = Uring::new(&Settings { entries: 40_000, ..Settings::default() }).err().unwrap();
    let text = error.to_string();
    assert!(text.starts_with("io_uring_setup: ") && text.contains("driver io_uring)"), "{text}");
    assert!(text.contains("epoll"), "{text}");
    let error = Uring::new(&Settings { buffers: 3, ..Settings::default() }).err().unwrap();
    assert!(error.to_string().contains("power of two"), "{error}");
}

const LOCKED_BYTES_MAX: &str = "RINGROAD_TEST_LOCKED_BYTES_MAX";

/// Runs `short_of_locked_memory` in a child process, which drops its privileges first.
fn with_locked_memory(bytes: u64) {
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "driver::uring::tests::limits::short_of_locked_memory"])
        .env(LOCKED_BYTES_MAX, bytes.to_string())
        .status()
        .unwrap();
    assert!(status.success(), "{bytes} bytes: {status}");
}

#[test]
fn with_little_locked_memory_the_queues_are_smaller() {
    with_locked_memory(64 * 1024);
}

#[test]
fn without_locked_memory_the_error_names_the_limit_to_raise() {
    with_locked_memory(0);
}

/// The body of the two tests above. Does nothing without the environment variable.
#[test]
fn short_of_locked_memory() {
    let Ok(bytes) = std::env::var(LOCKED_BYTES_MAX) else { return };
    let bytes = bytes.parse().unwrap();
    // SAFETY: reads a live local.
    let set = |soft| unsafe {
        libc::setrlimit(libc::RLIMIT_MEMLOCK, &libc::rlimit { rlim_cur: soft, rlim_max: bytes })
    };
    assert_eq!(set(0), 0);
    // SAFETY: numbers only. This user has no other processes, so only this one is counted; it also loses
    // root's exemption from the limit.
    unsafe {
        if libc::geteuid() == 0 {
            assert_eq!(libc::setuid(61_000 + std::process::id() % 4_000), 0);
        }
    }
    if ringroad_uring::Ring::builder(8).build().is_ok() {
        eprintln!("skipped: this kernel (such as 6.1) does not count rings as locked memory");
        return;
    }
    assert_eq!(set(bytes), 0);
    match Uring::new(&Settings::default()) {
        Ok(mut driver) => {
            let entries = driver.kernel.ring.submissions().entries();
            assert!(bytes > 0 && entries < Settings::default().entries, "{entries} with {bytes} bytes");
            assert_eq!(driver.kernel.ring.completions().entries(), 4 * entries);
        }
        Err(error) => {
            assert_eq!((bytes, error.raw_os_error()), (0, Some(libc::ENOMEM)));
            assert!(error.to_string().contains("RLIMIT_MEMLOCK"), "{error}");
        }
    }
}
