//! Messages that each have to reach all connections: what arrived, what did not, and when, in any envelope.

use crate::pauses::but_for_pauses;
use crate::records::frame;
use crate::server::{Server, close};
use crate::{drivers, on_each_driver, plan, run};
use ringroad_engine::choose::Choice;
use ringroad_load::broadcast::Broadcast;
use ringroad_load::knee::search;
use ringroad_load::plan::Pace;
use ringroad_load::report::record;
use ringroad_load::schedule::Arrivals;
use ringroad_load::verdict::verdict;
use ringroad_load::{Message, Outcome, Plan};
use ringroad_measure::caveat::Level;
use ringroad_wire::ws::{Event, Messages, Opcode, Role, Scratch, handshake, put_frame};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What the room of a test does with what a member says.
#[derive(Clone, Copy, PartialEq)]
enum Room {
    /// Sends it to all.
    All,
    /// Sends it to all but the one that said it.
    Others,
    /// Sends it to all, twice.
    Twice,
    /// Forgets each third one.
    Forgetful,
    /// Sends it to those that have joined, in an envelope and in two fragments, with old news before it.
    Joined,
    /// Ends the connection of the first member with the first message.
    Cutting,
    /// Sends nothing.
    Silent,
}

#[derive(Default)]
struct Members {
    streams: Mutex<HashMap<u64, TcpStream>>,
    next: AtomicU64,
    said: AtomicU64,
    joins: AtomicU64,
}

impl Members {
    fn say(&self, room: Room, from: u64, bytes: &[u8]) {
        if room == Room::Joined && bytes == b"join me" {
            self.joins.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let nth = self.said.fetch_add(1, Ordering::Relaxed);
        if room == Room::Silent || room == Room::Forgetful && nth % 3 == 2 {
            return;
        }
        let mut frame = Vec::new();
        if room == Room::Joined {
            put_frame(&mut frame, Opcode::Text, b"{\"old\":\"rraaaabbbbbbbccccccccccdddddddeeeeeee\"}", None);
            let text = [b"{\"data\":\"", bytes, b"\"}"].concat();
            let (one, other) = text.split_at(text.len() / 2);
            put_frame(&mut frame, Opcode::Text, one, None);
            let first = frame.len() - one.len() - 2;
            // Not the last fragment, and a continuation.
            frame[first] &= 0x7f;
            let second = frame.len();
            put_frame(&mut frame, Opcode::Text, other, None);
            frame[second] = 0x80;
        } else {
            put_frame(&mut frame, Opcode::Text, bytes, None);
        }
        let mut streams = self.streams.lock().unwrap();
        if room == Room::Cutting && nth == 0 {
            let first = *streams.keys().min().unwrap();
            close(&mut streams.remove(&first).unwrap());
        }
        for (number, stream) in streams.iter_mut() {
            if room == Room::Others && *number == from {
                continue;
            }
            for _ in 0..if room == Room::Twice { 2 } else { 1 } {
                let _ = stream.write_all(&frame);
            }
        }
    }

    /// One connection, until its client ends it.
    fn serve(&self, room: Room, stream: &mut TcpStream) -> std::io::Result<()> {
        let (mut input, mut buffer) = (Vec::new(), [0; 4096]);
        let end = loop {
            if let Some(at) = input.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            match stream.read(&mut buffer)? {
                0 => return Ok(()),
                count => input.extend_from_slice(&buffer[..count]),
            }
        };
        let head = String::from_utf8(input.drain(..end).collect()).unwrap();
        let key = head.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: ")).unwrap();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        {
            // A member from before its client knows.
            let mut streams = self.streams.lock().unwrap();
            write!(
                stream,
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                 Sec-WebSocket-Accept: {}\r\n\r\n",
                handshake::accept_key(key)
            )?;
            streams.insert(number, stream.try_clone()?);
        }
        let mut messages = Messages::new(Role::Server, Default::default());
        let mut scratch = Scratch::default();
        loop {
            let mut at = 0;
            while let Some(event) = messages.next(&mut scratch, &mut input, &mut at).unwrap() {
                if let Event::Message { bytes, .. } = event {
                    self.say(room, number, bytes);
                }
            }
            input.drain(..at);
            match stream.read(&mut buffer) {
                Ok(0) | Err(_) => break,
                Ok(count) => input.extend_from_slice(&buffer[..count]),
            }
        }
        self.streams.lock().unwrap().remove(&number);
        Ok(())
    }
}

fn begin(room: Room) -> (Server, Arc<Members>) {
    let members = Arc::new(Members::default());
    let shared = Arc::clone(&members);
    let server = Server::start(move |stream, _| {
        let _ = shared.serve(room, stream);
        close(stream);
    });
    (server, members)
}

/// Six messages among four connections of two threads.
fn of(address: SocketAddr, join: Option<&str>) -> Plan {
    let target = format!("ws://{address}/room").parse().unwrap();
    let broadcast = Broadcast::new("{\"text\":\"{mark}\"}", join).unwrap();
    let message = Message::websocket(&target, &[], broadcast.sample()).unwrap();
    Plan {
        connections: 4,
        threads: 2,
        count: Some(6),
        pace: Pace::Open { per_second: 100.0, arrivals: Arrivals::Constant },
        broadcast: Some(Arc::new(broadcast)),
        ..plan(target, message)
    }
}

fn figures(outcome: &Outcome) -> [u64; 6] {
    let counts = &outcome.counts;
    let told = &counts.broadcast;
    let latencies = outcome.tally.latencies.response.count();
    [told.members, told.published, counts.sent, counts.completed, counts.errors.total(), latencies]
}

#[test]
fn each_message_reaches_each_connection_on_every_driver() {
    for choice in drivers() {
        let (server, _) = begin(Room::All);
        let outcome = run(&of(server.address, None), &choice).unwrap();
        assert_eq!(figures(&outcome), [4, 6, 24, 24, 0, 24], "{choice}");
        assert_eq!((outcome.served, outcome.counts.broadcast.repeated), (4, 0), "{choice}");
        let latencies = &outcome.tally.latencies;
        assert_eq!(latencies.service.as_ref().unwrap().count(), 24, "{choice}");
        let record = record(&of(server.address, None), &outcome, &frame());
        let told = record.cells[0].details.broadcast.as_ref().unwrap();
        assert_eq!((told.members, told.published, told.expected, told.missing), (4, 6, 24, 0), "{choice}");
        assert!(told.to_sender && record.cells[0].sent == 24, "{choice}");
    }
}

#[test]
fn a_room_may_leave_out_the_one_that_speaks() {
    for choice in drivers() {
        let (server, _) = begin(Room::Others);
        let outcome = run(&of(server.address, None), &choice).unwrap();
        assert_eq!(figures(&outcome), [4, 6, 18, 18, 0, 18], "{choice}");
    }
}

#[test]
fn a_message_that_comes_again_is_told_and_makes_up_for_none_that_is_lost() {
    for choice in drivers() {
        let (server, _) = begin(Room::Twice);
        let plan = of(server.address, None);
        let outcome = run(&plan, &choice).unwrap();
        assert_eq!(figures(&outcome)[..5], [4, 6, 24, 24, 0], "{choice}");
        // The last of them may still be on its way when all have come once.
        assert!(outcome.counts.broadcast.repeated > 0, "{choice}");
        let told = verdict(&plan, &outcome).reasons;
        assert!(told.iter().any(|why| why.to_string().contains("more than once")), "{choice}: {told:?}");
    }
}

#[test]
fn deliveries_that_do_not_come_have_failed() {
    on_each_driver(|choice| {
        // The other deliveries come in time.
        but_for_pauses(Duration::from_millis(500), || {
            let (server, _) = begin(Room::Forgetful);
            let plan = Plan { timeout: Duration::from_secs(2), ..of(server.address, None) };
            let outcome = run(&plan, &choice).unwrap();
            assert_eq!(figures(&outcome), [4, 6, 24, 16, 8, 16], "{choice}");
            assert_eq!(outcome.counts.failures["a delivery that did not come"], 8, "{choice}");
            assert_eq!(verdict(&plan, &outcome).level, Level::Invalid, "{choice}");
        });
    });
}

#[test]
fn marks_are_found_in_envelopes_and_fragments_after_each_connection_has_joined() {
    for choice in drivers() {
        let (server, members) = begin(Room::Joined);
        let outcome = run(&of(server.address, Some("join me")), &choice).unwrap();
        assert_eq!(figures(&outcome), [4, 6, 24, 24, 0, 24], "{choice}");
        assert_eq!(members.joins.load(Ordering::Relaxed), 4, "{choice}");
    }
}

#[test]
fn what_is_on_its_way_when_the_load_is_stopped_has_not_failed() {
    for choice in drivers() {
        let (server, members) = begin(Room::Silent);
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let stopper = std::thread::spawn(move || {
            while members.said.load(Ordering::Relaxed) < 6 {
                std::thread::sleep(Duration::from_millis(1));
            }
            stopping.store(true, Ordering::Relaxed);
        });
        let outcome = ringroad_load::run(&of(server.address, None), &choice, &stop, &mut |_| {}).unwrap();
        stopper.join().unwrap();
        assert_eq!(figures(&outcome), [4, 6, 18, 0, 0, 0], "{choice}");
        assert!(outcome.interrupted, "{choice}");
    }
}

#[test]
fn what_a_closed_connection_misses_has_failed() {
    on_each_driver(|choice| {
        let (server, _) = begin(Room::Cutting);
        let plan = Plan { timeout: Duration::from_secs(2), ..of(server.address, None) };
        let outcome = run(&plan, &choice).unwrap();
        let counts = &outcome.counts;
        assert!(counts.closed_in_order >= 1 && counts.errors.timeout >= 1, "{choice}: {counts:?}");
        assert_eq!(counts.sent, counts.completed + counts.errors.timeout, "{choice}");
    });
}

#[test]
fn messages_of_the_warm_up_are_not_counted() {
    for choice in drivers() {
        let (server, members) = begin(Room::All);
        let plan = Plan {
            count: None,
            warmup: Duration::from_millis(100),
            duration: Some(Duration::from_millis(100)),
            ..of(server.address, None)
        };
        let outcome = run(&plan, &choice).unwrap();
        let [_, published, expected, came, failed, _] = figures(&outcome);
        assert_eq!((expected, came, failed), (4 * published, expected, 0), "{choice}");
        assert!(published > 0 && published < members.said.load(Ordering::Relaxed), "{choice}");
    }
}

#[test]
fn the_highest_rate_of_messages_can_be_searched() {
    // What a probe has not sent when its time is over is given up.
    on_each_driver(|choice| but_for_pauses(Duration::from_millis(200), || can_be_searched(&choice)));
}

fn can_be_searched(choice: &Choice) {
    let (server, _) = begin(Room::All);
    let plan = Plan {
        count: None,
        duration: Some(Duration::from_secs(1)),
        pace: Pace::Open { per_second: 20.0, arrivals: Arrivals::Constant },
        ..of(server.address, None)
    };
    // Met by any rate: so each probe is a whole load, on the connections of the one before.
    let demand = "p99<1000s".parse().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let mut probes = 0;
    let ends = Arc::clone(&stop);
    let knee = search(&plan, &demand, choice, &stop, &mut |event| {
        if let ringroad_load::Event::Probe { unmet, .. } = event {
            assert_eq!(*unmet, None, "{choice}");
            probes += 1;
            ends.store(probes == 3, Ordering::Relaxed);
        }
    });
    let knee = knee.unwrap();
    for probe in knee.probes.iter().take(3) {
        let [members, published, expected, came, failed, _] = figures(&probe.outcome);
        assert_eq!((members, expected, failed), (4, came, 0), "{choice}");
        assert!(published > 0 && came == 4 * published, "{choice}");
    }
}
