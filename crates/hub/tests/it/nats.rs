//! A hub that several machines share over NATS: at most once.

use crate::machines::{Machine, client, data, json, member, publish, until};
use crate::nats_server::NatsServer;
use crate::support::{HANG, PUBLISH, post};
use ringroad_engine::DriverName;
use ringroad_hub::{Server, ServerState, Sharing};
use ringroad_stores::nats::Settings;
use serde_json::json;
use std::time::{Duration, Instant};

/// A machine that is connected to the server, and known to as many as are there.
fn start(driver: DriverName, server: &NatsServer, machines: usize) -> Machine {
    let settings =
        Settings { connect_timeout: HANG, ..Settings::parse(&server.address().to_string()).unwrap() };
    let beat = Duration::from_millis(500);
    let sharing = Sharing { name: "a test".to_owned(), server: Server::Nats(settings), beat };
    let machine = Machine::start_with(driver, sharing);
    let begun = Instant::now();
    let knows = |state: ServerState| state.is_up && state.processes >= machines;
    while !knows(machine.hub.server().unwrap()) {
        assert!(begun.elapsed() < HANG, "{machines} machines know each other");
        std::thread::sleep(Duration::from_millis(1));
    }
    machine
}

drivers!(a_message_reaches_the_members_of_all_machines, |driver| {
    let Some(server) = NatsServer::start(&[]) else { return };
    let (one, other) = (start(driver, &server, 1), start(driver, &server, 2));
    let mut members = [member(&one, "").0, member(&other, "").0];
    for (count, machine) in [&one, &other, &one].into_iter().enumerate() {
        let text = count.to_string();
        machine.publish("a", &text);
        for member in &mut members {
            assert_eq!(data(member), text);
        }
    }
    // A machine has the history of what it has got; its numbers are its own.
    let (mut late, told) = member(&other, "&after=earliest");
    assert_eq!([data(&mut late), data(&mut late), data(&mut late)], ["0", "1", "2"]);
    let id = told["id"].as_str().unwrap();
    assert_eq!(member(&other, &format!("&after={id}")).1["recovered"], true);
    assert_eq!(member(&one, &format!("&after={id}")).1["recovered"], false);
    let (head, _) = post(&one.handle, &format!("topic=a&data={}", "x".repeat(80_000)), PUBLISH);
    assert!(head.starts_with("HTTP/1.1 413"), "{head}");
});

drivers!(
    without_the_server_nothing_is_published_and_members_learn_that_they_may_have_missed_something,
    |driver| {
        let Some(mut server) = NatsServer::start(&[]) else { return };
        let (one, other) = (start(driver, &server, 1), start(driver, &server, 2));
        let (mut left, told) = member(&other, "");
        server.kill();
        let begun = Instant::now();
        while post(&one.handle, "topic=a&data=lost", PUBLISH).0.starts_with("HTTP/1.1 200") {
            // The machine has not noticed yet.
            assert!(begun.elapsed() < HANG);
        }
        assert!(!one.hub.server().unwrap().is_up);
        server.start_again();
        // A message that was published before the other machine is back does not reach it: closed members
        // know.
        while left.next() != "close 4010" {}
        let (mut again, told) = member(&other, &format!("&after={}", told["id"].as_str().unwrap()));
        assert_eq!(told["recovered"], false);
        publish(&other, "more");
        while data(&mut again) != "more" {}
    }
);

/// On one driver: it waits until a machine that says nothing is taken for gone.
#[test]
fn users_of_all_machines_are_listed_and_go_with_theirs() {
    let Some(server) = NatsServer::start(&[]) else { return };
    let driver = DriverName::Epoll;
    let (one, other) = (start(driver, &server, 1), start(driver, &server, 2));
    let mut ann = client(&one, "ann");
    let bob = client(&other, "bob");
    until(&mut ann, "join", "bob");
    let begun = Instant::now();
    loop {
        let mut asked = client(&one, "eve");
        asked.say(&json!({"id": 3, "presence_stats": {"channel": "a"}}).to_string());
        let users = loop {
            let told = json(&asked.next());
            if told["id"] == 3 {
                break told["presence_stats"]["num_users"].as_u64().unwrap();
            }
        };
        if users == 3 {
            break;
        }
        assert!(begun.elapsed() < HANG, "users of the other machine are listed");
    }
    drop(other);
    drop(bob);
    until(&mut ann, "leave", "bob");
}
