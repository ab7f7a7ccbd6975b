//! The simulated kernel through the public face: what a test of a program can ask of it.

use crate::contract::fs::Folder;
use ringroad_engine::net::{TcpListener, TcpStream, UdpSocket, UnixDatagram};
use ringroad_engine::sim::{Faults, SimConfig, Style};
use ringroad_engine::time::{sleep, timeout};
use ringroad_engine::{DriverName, Runtime, fs, spawn, yield_now};
use std::net::SocketAddr;
use std::time::Duration;

fn config(style: Style, seed: u64) -> SimConfig {
    let mut config = SimConfig::new(seed, Faults::none());
    config.style = Some(style);
    config
}

const STYLES: [Style; 3] = [Style::Readiness, Style::Completion, Style::Mixed];

fn here() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

#[test]
fn a_program_that_hangs_is_told_so() {
    for style in STYLES {
        let runtime = Runtime::builder(DriverName::Sim).sim(config(style, 1)).build().unwrap();
        let error = runtime
            .block_on(async {
                let mut listener = TcpListener::bind(here()).unwrap();
                listener.accept().await.map(drop)
            })
            .expect_err("nobody will ever connect");
        assert_eq!(error.to_string(), "wait: every task waits, and nothing will happen (driver sim)");
    }
}

#[test]
fn a_program_that_only_spins_is_stopped() {
    let mut config = config(Style::Readiness, 1);
    config.steps_max = 10_000;
    let runtime = Runtime::builder(DriverName::Sim).sim(config).build().unwrap();
    let error = runtime
        .block_on(async {
            loop {
                yield_now().await;
            }
        })
        .expect_err("it never ends");
    assert!(error.to_string().contains("10000 steps and no end: the program runs in circles"), "{error}");
}

#[test]
fn years_of_virtual_time_pass_while_all_tasks_sleep() {
    let year = Duration::from_secs(365 * 24 * 3600);
    let runtime = Runtime::builder(DriverName::Sim).build().unwrap();
    let slept = runtime.block_on(async {
        let (short, long) = (spawn(sleep(year)), spawn(sleep(year * 2)));
        short.await.unwrap();
        let early = long.is_finished();
        long.await.unwrap();
        early
    });
    assert!(!slept.unwrap(), "the longer sleep takes longer");
}

#[test]
fn the_ledger_says_what_a_program_has_until_it_has_given_it_back() {
    for style in STYLES {
        let config = config(style, 5);
        let ledger = config.ledger.clone();
        let runtime = Runtime::builder(DriverName::Sim).sim(config).build().unwrap();
        let during = ledger.clone();
        runtime
            .block_on(async move {
                let mut listener = TcpListener::bind(here()).unwrap();
                let at = listener.local_addr().unwrap();
                let client = spawn(TcpStream::connect(at));
                let mut server = listener.accept().await.unwrap();
                let mut client = client.await.unwrap().unwrap();
                client.write_all("hello").await.0.unwrap();
                let lease = server.recv().await.unwrap();
                let had = during.imbalances().join("\n");
                assert!(had.contains("from socket, was not closed"), "{had}");
                assert!(had.contains("from accept, was not closed"), "{had}");
                assert_eq!(had.contains("1 buffers are still lent out"), lease.is_pooled(), "{had}");
            })
            .unwrap();
        runtime.shutdown(Duration::from_secs(10)).unwrap();
        assert_eq!(ledger.imbalances(), [""; 0]);
        assert_eq!(ledger.opened(), 3);
    }
}

#[test]
fn what_no_cancel_ends_is_abandoned_by_the_shutdown_and_told() {
    let mut abandoned = 0;
    for seed in 0..16 {
        let mut config = config(Style::Completion, seed);
        config.faults.stuck = 1000;
        let ledger = config.ledger.clone();
        let runtime = Runtime::builder(DriverName::Sim).sim(config).build().unwrap();
        runtime
            .block_on(async {
                let mut listener = TcpListener::bind(here()).unwrap();
                let at = listener.local_addr().unwrap();
                let client = spawn(TcpStream::connect(at));
                let mut server = listener.accept().await.unwrap();
                // Keeps a receive and an accept with the kernel.
                spawn(async move { server.recv().await.map(drop) }).detach();
                spawn(async move { listener.accept().await.map(drop) }).detach();
                drop(client.await.unwrap().unwrap().split().0);
                sleep(Duration::from_secs(1)).await;
                let _other = TcpStream::connect(at).await;
            })
            .unwrap();
        match runtime.shutdown(Duration::from_secs(10)) {
            Ok(()) => assert_eq!(ledger.imbalances(), [""; 0]),
            Err(stuck) => {
                abandoned += 1;
                let told = format!("{} operations were abandoned", stuck.operations);
                assert!(ledger.imbalances().contains(&told), "{:?}", ledger.imbalances());
            }
        }
    }
    assert!(abandoned > 0, "no seed was stuck");
}

#[test]
fn without_descriptors_a_listener_pauses_and_goes_on_when_one_is_closed() {
    for style in STYLES {
        let mut config = config(style, 3);
        config.descriptors_max = 4;
        let ledger = config.ledger.clone();
        let runtime = Runtime::builder(DriverName::Sim).sim(config).build().unwrap();
        runtime
            .block_on(async {
                let mut listener = TcpListener::bind(here()).unwrap();
                let at = listener.local_addr().unwrap();
                let mut clients = Vec::new();
                for _ in 0..3 {
                    clients.push(TcpStream::connect(at).await.unwrap());
                }
                let server = spawn(async move {
                    for _ in 0..3 {
                        // Each is closed at once, which makes room for the next.
                        listener.accept().await.unwrap();
                    }
                });
                sleep(Duration::from_millis(10)).await;
                assert!(!server.is_finished(), "there is no descriptor for any of them");
                clients.pop();
                server.await.unwrap();
            })
            .unwrap();
        assert!(runtime.counters().accept_parked > 0, "{:?}", runtime.counters());
        runtime.shutdown(Duration::from_secs(10)).unwrap();
        assert_eq!(ledger.imbalances(), [""; 0]);
    }
}

#[test]
fn one_seed_is_one_run() {
    let run = |seed| {
        let config = SimConfig::new(seed, Faults::swarm(seed));
        let ledger = config.ledger.clone();
        let runtime = Runtime::builder(DriverName::Sim).sim(config).build().unwrap();
        runtime
            .block_on(async {
                let mut listener = TcpListener::bind(here()).unwrap();
                let at = listener.local_addr().unwrap();
                let server = spawn(async move {
                    let mut stream = listener.accept().await.unwrap();
                    let mut got = 0;
                    loop {
                        match stream.recv().await.unwrap().len() {
                            0 => break got,
                            some => got += some,
                        }
                    }
                });
                let mut stream = TcpStream::connect(at).await.unwrap();
                stream.write_all(vec![7; 300]).await.0.unwrap();
                drop(stream);
                assert_eq!(server.await.unwrap(), 300);
            })
            .unwrap_or_else(|why| panic!("seed {seed}: {why}\n{}{}", runtime.dump(), ledger.recent()));
        runtime.shutdown(Duration::from_secs(30)).unwrap();
        (ledger.event_hash(), ledger.events(), ledger.recent())
    };
    for seed in 0..20 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
    assert_ne!(run(1).0, run(2).0);
}

/// A program that does a bit of everything to files: what it found, and the hash of what happened.
fn files(seed: u64, faults: Faults) -> (Vec<String>, u64) {
    let folder = Folder::new();
    let config = SimConfig::new(seed, faults);
    let ledger = config.ledger.clone();
    let runtime = Runtime::builder(DriverName::Sim).sim(config).build().unwrap();
    let path = folder.path().to_owned();
    let told = runtime.block_on(async move {
        let mut told = Vec::new();
        let mut note = |what: &str, result: Result<String, ringroad_engine::Error>| {
            // Without the folder's name, and descriptors' numbers, which are another run's too.
            told.push(format!("{what}: {:?}", result.map_err(|why| why.raw_os_error())));
        };
        note("mkdir", fs::create_dir(path.join("a")).await.map(|()| String::new()));
        for at in 0..20 {
            let file = path.join(format!("a/{at}"));
            let (written, _) = fs::write(&file, vec![at; 1000]).await;
            note("write", written.map(|()| String::new()));
            note("read", fs::read(&file).await.map(|bytes| bytes.len().to_string()));
            note("rename", fs::rename(&file, path.join("b")).await.map(|()| String::new()));
            note("stat", fs::metadata(path.join("b")).await.map(|told| told.len().to_string()));
            let reads = (0..5).map(|_| async {
                let file = fs::File::open(path.join("b")).await?;
                file.read_at(Vec::with_capacity(500), 100).await.0.map(|read| read.to_string())
            });
            for read in futures_util::future::join_all(reads).await {
                note("part", read);
            }
        }
        told
    });
    let told = told.unwrap();
    runtime.shutdown(Duration::from_secs(10)).unwrap();
    assert!(ledger.imbalances().is_empty(), "{:?}", ledger.imbalances());
    (told, ledger.event_hash())
}

#[test]
fn a_program_on_files_is_the_same_in_each_run_of_a_seed() {
    for seed in 0..20 {
        let mut faults = Faults::swarm(seed);
        if seed % 2 == 1 {
            (faults.no_space, faults.broken_disk) = (100, 50);
        }
        let (one, two) = (files(seed, faults.clone()), files(seed, faults));
        assert_eq!(one, two, "seed {seed}");
    }
    assert_ne!(files(1, Faults::none()).1, files(2, Faults::none()).1, "seeds differ");
}

#[test]
fn a_disk_goes_wrong_as_often_as_it_is_told_to() {
    let tally = |faults: &Faults, errno: i32| {
        let what = format!("Err(Some({errno}))");
        let told = (0..10).flat_map(|seed| files(seed, faults.clone()).0);
        told.filter(|told| told.ends_with(&what)).count()
    };
    let mut faults = Faults::none();
    assert_eq!((tally(&faults, libc::ENOSPC), tally(&faults, libc::EIO)), (0, 0));
    faults.no_space = 300;
    assert!(tally(&faults, libc::ENOSPC) > 0 && tally(&faults, libc::EIO) == 0);
    (faults.no_space, faults.broken_disk) = (0, 300);
    assert!(tally(&faults, libc::ENOSPC) == 0 && tally(&faults, libc::EIO) > 0);
    // Short reads and writes, and interrupted ones, are passed over or told, and nothing is lost.
    (faults.broken_disk, faults.short, faults.again) = (0, 900, 300);
    for seed in 0..10 {
        let (told, _) = files(seed, faults.clone());
        assert!(told.iter().all(|told| !told.contains("Err")), "{told:?}");
        assert!(told.iter().filter(|told| told.starts_with("read")).all(|told| told.contains("1000")));
    }
}

/// What comes of twenty datagrams of one byte each.
fn letters(config: SimConfig) -> Vec<u8> {
    let runtime = Runtime::builder(DriverName::Sim).sim(config).build().unwrap();
    let came = runtime.block_on(async {
        let (mut one, mut other) = (UdpSocket::bind(here()).unwrap(), UdpSocket::bind(here()).unwrap());
        let to = other.local_addr().unwrap();
        for letter in 0..20 {
            one.send_to(vec![letter], to).await.0.unwrap();
        }
        let mut came = Vec::new();
        // Longer than anything is late.
        while let Ok((received, letter)) =
            timeout(Duration::from_secs(10), other.recv(Vec::with_capacity(1))).await
        {
            received.unwrap();
            came.extend(letter);
        }
        came
    });
    came.unwrap()
}

#[test]
fn datagrams_of_udp_are_lost_doubled_and_overtaken_as_told() {
    let all: Vec<u8> = (0..20).collect();
    for style in STYLES {
        let with = |change: fn(&mut Faults)| {
            let mut config = config(style, 7);
            change(&mut config.faults);
            letters(config)
        };
        assert_eq!(with(|_| ()), all);
        assert_eq!(with(|faults| faults.lost = 1000), [0u8; 0]);
        let some = with(|faults| faults.lost = 500);
        assert!(!some.is_empty() && some.len() < 20 && some.is_sorted(), "{some:?}");
        let mut twice = with(|faults| faults.doubled = 1000);
        twice.sort_unstable();
        assert_eq!(twice, all.iter().flat_map(|letter| [*letter; 2]).collect::<Vec<_>>());
        let mut late = with(|faults| (faults.late, faults.stall) = (500, 300));
        assert!(!late.is_sorted(), "{late:?}");
        late.sort_unstable();
        assert_eq!(late, all);
    }
}

#[test]
fn no_datagram_between_unix_sockets_is_lost_doubled_or_overtaken() {
    for style in STYLES {
        let mut config = config(style, 7);
        (config.faults.lost, config.faults.doubled, config.faults.late) = (300, 300, 300);
        let runtime = Runtime::builder(DriverName::Sim).sim(config).build().unwrap();
        runtime
            .block_on(async {
                let (mut one, mut other) = UnixDatagram::pair().unwrap();
                let writer = spawn(async move {
                    for letter in 0..50 {
                        one.send(vec![letter]).await.0.unwrap();
                    }
                    one
                });
                for letter in 0..50 {
                    let (received, memory) = other.recv(Vec::with_capacity(1)).await;
                    received.unwrap();
                    assert_eq!(memory, [letter]);
                }
                let _one = writer.await.unwrap();
                assert!(timeout(Duration::from_secs(10), other.recv(Vec::with_capacity(1))).await.is_err());
            })
            .unwrap();
    }
}
