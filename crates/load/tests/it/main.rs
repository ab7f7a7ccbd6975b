//! The load against servers that are known: what they did is in their own log, and what the load says is held
//! against it. No assertion here depends on how fast anything is.
#![allow(clippy::unwrap_used, missing_docs)]

mod answers;
mod broadcast;
mod connecting;
mod counts;
mod hold;
mod knee;
mod latencies;
#[path = "../../../http/tests/it/pauses.rs"]
mod pauses;
#[path = "../../../serve/tests/it/ports.rs"]
#[allow(dead_code)]
mod ports;
mod records;
mod server;
mod sites;
mod stages;
mod tls;
mod watched;
mod websocket;
mod wrong;

use ringroad_engine::choose::{self, Choice, Wish};
use ringroad_load::plan::Request;
use ringroad_load::{Error, Message, Outcome, Plan, Target};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Every driver that can be used here.
fn drivers() -> Vec<Choice> {
    let usable = choose::drivers().filter_map(|name| match choose::choose(Some(Wish::Named(name)), None) {
        Ok(choice) => Some(choice),
        Err(why) => {
            eprintln!("skipped: {why}");
            None
        }
    });
    usable.collect()
}

/// Runs a test on every driver at once: what waits for time limits costs the time of one.
fn on_each_driver(test: impl Fn(Choice) + Sync) {
    std::thread::scope(|scope| {
        for choice in drivers() {
            let name = choice.to_string();
            let ran = std::thread::Builder::new().name(name).spawn_scoped(scope, || test(choice));
            ran.unwrap();
        }
    });
}

/// What `auto` takes.
fn best() -> Choice {
    choose::choose(Some(Wish::Auto), None).unwrap()
}

fn http(address: SocketAddr) -> Plan {
    let target: Target = format!("http://{address}/").parse().unwrap();
    let message = get(&target, 1);
    plan(target, message)
}

fn get(target: &Target, weight: u32) -> Message {
    let request = Request { method: "GET", headers: &[], body: b"", close: false };
    Message::http(target, &request, weight).unwrap()
}

fn echo(address: SocketAddr, bytes: &[u8]) -> Plan {
    plan(format!("tcp://{address}").parse().unwrap(), Message::echo(bytes.to_vec()).unwrap())
}

/// Twelve requests over three connections; tests that need more change it. The timeout is one that is never
/// met.
fn plan(target: Target, message: Message) -> Plan {
    Plan {
        connections: 3,
        duration: None,
        count: Some(12),
        warmup: Duration::ZERO,
        timeout: Duration::from_secs(60),
        ..Plan::new(target, vec![message])
    }
}

fn run(plan: &Plan, choice: &Choice) -> Result<Outcome, Error> {
    ringroad_load::run(plan, choice, &Arc::new(AtomicBool::new(false)), &mut |_| {})
}
