//! Seeing inside: what the dump of the slots tells a person.

use crate::peer::pair;
use crate::support::{some_turns, with_runtime};
use futures_util::future::{Either, select};
use ringroad_engine::net::TcpListener;
use ringroad_engine::time::sleep;
use ringroad_engine::{Runtime, spawn};
use std::pin::pin;
use std::time::Duration;

cases!(
    /// One line of the dump per operation: what, on which connection, state, age, who waits, last event.
    the_dump_names_operation_sockets_state_age_and_last_event,
    all,
    |case| with_runtime(case, |builder| builder, |_, runtime| {
        let (listening, ours, theirs) = runtime
            .block_on(async {
                let mut listener = TcpListener::bind(crate::peer::anywhere()).unwrap();
                let listening = listener.local_addr().unwrap();
                let (mut stream, peer) = pair().await;
                let (ours, theirs) = (stream.local_addr().unwrap(), peer.local_addr().unwrap());
                spawn(async move { drop(listener.accept().await) }).detach();
                spawn(async move {
                    let _peer = peer;
                    drop(stream.recv().await);
                })
                .detach();
                // Until both wait, and then a little for the age.
                some_turns().await;
                sleep(Duration::from_millis(3)).await;
                (listening, ours, theirs)
            })
            .unwrap();
        let dump = runtime.dump();
        let line = |operation: &str| {
            let found = dump.lines().find(|line| line.starts_with("slot") && line.contains(operation));
            found.unwrap_or_else(|| panic!("no {operation} in:\n{dump}"))
        };
        for (operation, name) in
            [(" accept ", format!("({listening})")), (" recv ", format!("({ours} with {theirs})"))]
        {
            let line = line(operation);
            assert!(line.contains(" on fd "), "{line}");
            assert!(line.contains(&name), "{name} in: {line}");
            assert!(line.contains("  armed "), "{line}");
            assert!(line.contains(" ms since it was handed over"), "{line}");
            assert!(line.ends_with(", awaited"), "{line}");
        }
        let age = line(" recv ").split(" ms since").next().and_then(|text| text.split(' ').next_back());
        assert!(age.is_some_and(|age| age.parse::<u32>().is_ok_and(|age| age >= 2)), "{age:?} in:\n{dump}");
        assert!(dump.contains(": 3 descriptors, 2 operations\n"), "{dump}");
        assert!(dump.contains("2 tasks, 0 ready"), "{dump}");
    })
);

scenario!(a_task_can_dump_the_runtime_it_runs_on, |case| async move {
    let (mut stream, _peer) = pair().await;
    let waiting = pin!(stream.recv());
    let Either::Right((dump, _waiting)) = select(waiting, pin!(async { Runtime::dump_current() })).await
    else {
        panic!("nothing was sent");
    };
    let dump = dump.expect("a runtime runs here");
    assert!(dump.starts_with(&format!("driver {}", case.driver())), "{dump}");
    assert!(dump.contains(" recv "), "{dump}");
});

#[test]
fn there_is_nothing_to_dump_outside_of_a_runtime() {
    assert!(Runtime::dump_current().is_none());
}
