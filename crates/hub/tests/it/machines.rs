//! A hub that several machines share over Redis or Valkey. A machine is a server with workers and a thread
//! that takes part in the hub, all in this process.

use crate::redis_server::{PROGRAMS, Server};
use crate::support::{HANG, Member, PUBLISH, events, place, post, settings, start_at};
use ringroad_engine::sync::oneshot;
use ringroad_engine::{DriverName, Runtime, spawn};
use ringroad_http::Handle;
use ringroad_hub::{Channels, Hub, Id, Place, Sharing, Speak};
use ringroad_stores::redis;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub(crate) struct Machine {
    pub(crate) hub: Hub,
    pub(crate) handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Machine {
    fn start(driver: DriverName, server: &Server) -> Machine {
        Machine::start_with(driver, sharing(server))
    }

    pub(crate) fn start_with(driver: DriverName, sharing: Sharing) -> Machine {
        let hub = Hub::shared(settings(), sharing).unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let tended = hub.clone();
        let thread = std::thread::spawn(move || {
            let runtime = Runtime::new(driver).unwrap();
            let _ = runtime.block_on(async move {
                spawn(async move { tended.tend().await }).detach();
                let _ = stopped.await;
            });
        });
        let begun = Instant::now();
        while !hub.is_ready() {
            assert!(begun.elapsed() < HANG, "a machine reads what the others have");
            std::thread::sleep(Duration::from_millis(1));
        }
        let speak = vec![Speak::Centrifugo, Speak::WebSocket, Speak::Mercure];
        let channels = Channels { presence: true, join_leave: true };
        let handle = start_at(driver, &hub, Place { speak, channels, ..place() });
        Machine { hub, handle, stop: Some(stop), thread: Some(thread) }
    }

    pub(crate) fn publish(&self, topic: &str, data: &str) -> String {
        let (head, id) = post(&self.handle, &format!("topic={topic}&data={data}"), PUBLISH);
        assert!(head.starts_with("HTTP/1.1 200"), "{head} {id}");
        id.trim_start_matches('#').to_owned()
    }
}

fn sharing(server: &Server) -> Sharing {
    sharing_with(server.settings())
}

fn sharing_with(settings: redis::Settings) -> Sharing {
    let server = ringroad_hub::Server::Redis { settings, stored: 1_000 };
    Sharing { name: "test".to_owned(), server, beat: Duration::from_secs(5) }
}

impl Drop for Machine {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.thread.take().map(JoinHandle::join);
    }
}

/// A member of `a` that has been told that it is one.
pub(crate) fn member(machine: &Machine, more: &str) -> (Member, Value) {
    let mut member = Member::open(&machine.handle, &format!("topic=a{more}"), "");
    let first = json(&member.next());
    assert!(first["subscribed"].is_array(), "{first}");
    (member, first)
}

pub(crate) fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| panic!("{text}"))
}

pub(crate) fn data(member: &mut Member) -> String {
    json(&member.next())["data"].as_str().unwrap().to_owned()
}

/// Runs a body with each server that is installed.
fn each(options: &[&str], body: impl Fn(Server)) {
    PROGRAMS.iter().filter_map(|program| Server::start(program, options)).for_each(body);
}

/// Gives the server a command, on a connection of its own.
fn ask(server: &Server, command: &str) {
    let mut stream = UnixStream::connect(server.socket()).unwrap();
    stream.write_all(format!("{command}\r\n").as_bytes()).unwrap();
    let mut answer = [0; 256];
    let count = stream.read(&mut answer).unwrap();
    assert_ne!(answer.first(), Some(&b'-'), "{}", String::from_utf8_lossy(&answer[..count]));
    assert!(count > 0, "{command}");
}

drivers!(a_message_reaches_the_members_of_all_machines_once_and_in_one_order, |driver| {
    each(&[], |server| {
        let machines = [0, 1, 2].map(|_| Machine::start(driver, &server));
        let mut members: Vec<Member> =
            machines.iter().flat_map(|machine| [member(machine, "").0, member(machine, "").0]).collect();
        std::thread::scope(|scope| {
            for (number, machine) in machines.iter().enumerate() {
                scope.spawn(move || {
                    for count in 0..20 {
                        machine.publish("a", &format!("{number}-{count}"));
                    }
                });
            }
        });
        let all: Vec<Vec<String>> =
            members.iter_mut().map(|member| (0..60).map(|_| data(member)).collect()).collect();
        assert_eq!(all[0].iter().collect::<HashSet<_>>().len(), 60);
        for one in &all {
            assert_eq!(one, &all[0]);
        }
        // What machines tell each other has numbers too.
        let last = machines[0].hub.last().offset;
        assert!(last >= 60, "{last}");
    });
});

drivers!(a_member_recovers_on_another_machine_also_on_one_that_was_not_there, |driver| {
    each(&[], |server| {
        let one = Machine::start(driver, &server);
        let other = Machine::start(driver, &server);
        let first = one.publish("a", "first");
        let (mut left, _) = member(&one, &format!("&after={first}"));
        one.publish("a", "second");
        assert_eq!(data(&mut left), "second");
        // A machine that ends takes nothing with it.
        drop(one);
        other.publish("a", "third");
        let late = Machine::start(driver, &server);
        for machine in [&other, &late] {
            let (mut member, told) = member(machine, &format!("&after={first}"));
            assert_eq!(told["recovered"], true, "{told}");
            assert_eq!([data(&mut member), data(&mut member)], ["second", "third"]);
        }
        late.publish("a", "fourth");
        let (mut stream, _) = events(&other.handle, "match=a&last_event_id=earliest", "");
        let text = stream.until("data: fourth");
        assert!(text.contains("data: first") && text.contains("data: third"), "{text}");
    });
});

drivers!(no_message_is_lost_where_a_connection_to_the_server_is, |driver| {
    each(&[], |server| {
        let (one, other) = (Machine::start(driver, &server), Machine::start(driver, &server));
        let (mut member, _) = member(&other, "");
        for count in 0..30 {
            if count % 10 == 5 {
                ask(&server, "CLIENT KILL TYPE pubsub");
            }
            one.publish("a", &count.to_string());
        }
        let got: Vec<String> = (0..30).map(|_| data(&mut member)).collect();
        assert_eq!(got, (0..30).map(|count| count.to_string()).collect::<Vec<_>>());
    });
});

drivers!(a_client_that_is_ahead_of_its_machine_is_waited_for, |driver| {
    each(&[], |server| {
        let (one, other) = (Machine::start(driver, &server), Machine::start(driver, &server));
        for count in 0..20 {
            // The other machine may not have it yet.
            let id = one.publish("a", &count.to_string());
            let (_, told) = member(&other, &format!("&after={id}"));
            assert_eq!(told["recovered"], true, "{count} {told}");
            let id = one.publish("a", "x");
            let (_, head) = events(&other.handle, "match=a", &format!("Last-Event-ID: #{id}\r\n"));
            assert!(head.contains(&format!("Mercure-Last-Event-ID: #{id}")), "{count} {head}");
        }
        // No message has this id: that is known as soon as the server has answered.
        let told = member(&other, "&after=1-5").1;
        assert_eq!(told["recovered"], false, "{told}");
    });
});

drivers!(a_server_that_does_not_answer_is_not_waited_for_without_end, |driver| {
    each(&[], |server| {
        let (timeout, connect_timeout) = (Duration::from_secs(2), Duration::from_secs(1));
        let settings = redis::Settings { timeout, connect_timeout, ..server.settings() };
        let one = Machine::start_with(driver, sharing_with(settings));
        let id = publish(&one, "before");
        let begun = Instant::now();
        while one.hub.last().offset < id.parse::<Id>().unwrap().offset {
            assert!(begun.elapsed() < HANG);
            std::thread::sleep(Duration::from_millis(1));
        }
        let (mut left, _) = member(&one, "");
        server.signal("STOP");
        let (head, text) = post(&one.handle, "topic=a&data=lost", PUBLISH);
        assert!(head.starts_with("HTTP/1.1 503") && head.contains("Retry-After: 1"), "{head} {text}");
        let state = one.hub.server().unwrap();
        assert!(!state.is_up && state.why.is_some(), "{state:?}");
        // What the machine has is recovered from it; what it has not is not known.
        let (mut again, told) = member(&one, &format!("&after={id}"));
        assert_eq!(told["recovered"], true);
        let (epoch, offset) = id.split_once('-').unwrap();
        let ahead = format!("{epoch}-{}", offset.parse::<u64>().unwrap() + 1_000);
        let mut refused = Member::open(&one.handle, &format!("topic=a&after={ahead}"), "");
        assert_eq!(refused.next(), "close 1013");
        let (_, head) = events(&one.handle, "match=a", &format!("Last-Event-ID: #{ahead}\r\n"));
        assert!(head.starts_with("HTTP/1.1 503"), "{head}");
        server.signal("CONT");
        publish(&one, "after");
        // The one that was told to be lost may have been published: it was on its way.
        for member in [&mut left, &mut again] {
            let mut first = data(member);
            if first == "lost" {
                first = data(member);
            }
            assert_eq!(first, "after");
        }
    });
});

/// Publishes as soon as the server takes it; returns the id.
pub(crate) fn publish(machine: &Machine, data: &str) -> String {
    let begun = Instant::now();
    loop {
        let (head, text) = post(&machine.handle, &format!("topic=a&data={data}"), PUBLISH);
        if head.starts_with("HTTP/1.1 200") {
            return text.trim_start_matches('#').to_owned();
        }
        assert!(head.starts_with("HTTP/1.1 503"), "{head} {text}");
        assert!(begun.elapsed() < HANG);
        std::thread::sleep(Duration::from_millis(20));
    }
}

drivers!(a_server_that_comes_back_with_an_older_state_begins_another_life, |driver| {
    each(&[], |mut server| {
        let (one, other) = (Machine::start(driver, &server), Machine::start(driver, &server));
        let (mut left, _) = member(&other, "");
        publish(&one, "kept");
        ask(&server, "SAVE");
        publish(&one, "forgotten");
        let last = publish(&one, "forgotten, too");
        assert_eq!(
            [data(&mut left), data(&mut left), data(&mut left)],
            ["kept", "forgotten", "forgotten, too"]
        );
        server.kill();
        server.start_again();
        // Its number is that of a message that both machines have.
        let new = publish(&one, "new");
        assert_eq!(left.next(), "close 4010");
        let (mut again, told) = member(&other, &format!("&after={last}"));
        assert_eq!(told["recovered"], false, "{told} {last} {new}");
        let (mut whole, _) = member(&other, "&after=earliest");
        assert_eq!([data(&mut whole), data(&mut whole)], ["kept", "new"]);
        publish(&one, "more");
        for member in [&mut again, &mut whole] {
            assert_eq!(data(member), "more");
        }
    });
});

drivers!(a_server_that_is_started_again_goes_on_or_its_hub_begins_another_life, |driver| {
    // With a file of what was done.
    each(&["--appendonly", "yes", "--appendfsync", "always"], |mut server| {
        let (one, other) = (Machine::start(driver, &server), Machine::start(driver, &server));
        let (mut member, _) = member(&other, "");
        publish(&one, "before");
        server.kill();
        let (head, text) = post(&one.handle, "topic=a&data=lost", PUBLISH);
        assert!(head.starts_with("HTTP/1.1 503"), "{head} {text}");
        server.start_again();
        publish(&one, "after");
        assert_eq!([data(&mut member), data(&mut member)], ["before", "after"]);
    });
    // Without one.
    each(&[], |mut server| {
        let (one, other) = (Machine::start(driver, &server), Machine::start(driver, &server));
        let (mut left, _) = member(&other, "");
        let before = publish(&one, "before");
        assert_eq!(data(&mut left), "before");
        server.kill();
        server.start_again();
        let after = publish(&one, "after");
        assert_ne!(before.split_once('-').unwrap().0, after.split_once('-').unwrap().0);
        // It comes back, and learns that it cannot know what it has missed.
        assert_eq!(left.next(), "close 4010");
        let (mut again, told) = member(&other, &format!("&after={before}"));
        assert_eq!(told["recovered"], false);
        publish(&other, "more");
        assert_eq!(data(&mut again), "more");
    });
});

drivers!(what_the_server_does_not_keep_is_told_to_be_missing, |driver| {
    each(&[], |server| {
        let one = Machine::start(driver, &server);
        let first = one.publish("a", "first");
        ask(&server, "DEL ringroad:hub:{test}:stream");
        let late = Machine::start(driver, &server);
        let told = member(&late, &format!("&after={first}")).1;
        assert_eq!(told["recovered"], true, "{told}");
        one.publish("a", "second");
        ask(&server, "DEL ringroad:hub:{test}:stream");
        let later = Machine::start(driver, &server);
        let told = member(&later, &format!("&after={first}")).1;
        assert_eq!(told["recovered"], false, "{told}");
    });
});

/// A client of Centrifugo's protocol in the channel `a`.
pub(crate) fn client(machine: &Machine, user: &str) -> Member {
    let mut client = Member::open_at(&machine.handle, "/connection/websocket", "");
    let token = json!({"sub": user, "exp": 99_999_999_999_u64}).to_string();
    client.say(&json!({"id": 1, "connect": {"token": token}}).to_string());
    client.next();
    client.say(&json!({"id": 2, "subscribe": {"channel": "a", "join_leave": true}}).to_string());
    assert_eq!(json(&client.next())["id"], 2);
    client
}

pub(crate) fn until(client: &mut Member, what: &str, user: &str) {
    loop {
        let text = client.next();
        if text == "{}" {
            client.say("{}");
        } else if json(&text)["push"][what]["info"]["user"] == user {
            return;
        }
    }
}

/// On one driver: it waits until a machine that says nothing is taken for gone.
#[test]
fn users_of_all_machines_are_listed_and_go_with_theirs() {
    let driver = DriverName::Epoll;
    each(&[], |server| {
        let beats = || Sharing { beat: Duration::from_millis(500), ..sharing(&server) };
        let one = Machine::start_with(driver, beats());
        let mut ann = client(&one, "ann");
        let other = Machine::start_with(driver, beats());
        let bob = client(&other, "bob");
        until(&mut ann, "join", "bob");
        let begun = Instant::now();
        let users = |machine: &Machine| {
            let mut asked = client(machine, "eve");
            asked.say(&json!({"id": 3, "presence_stats": {"channel": "a"}}).to_string());
            loop {
                let told = json(&asked.next());
                if told["id"] == 3 {
                    return told["presence_stats"]["num_users"].as_u64().unwrap();
                }
            }
        };
        for machine in [&one, &other] {
            while users(machine) < 3 {
                assert!(begun.elapsed() < HANG, "users of the other machine are listed");
            }
        }
        // It ends without a word, since its thread ends first: its users go when its time is over.
        drop(other);
        drop(bob);
        until(&mut ann, "leave", "bob");
    });
}
