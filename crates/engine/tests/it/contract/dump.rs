//! Seeing inside: what the dump of the slots tells a person.

use crate::peer::pair;
use crate::support::{alone, some_turns, with_runtime};
use futures_util::future::{Either, select};
use ringroad_engine::net::TcpListener;
use ringroad_engine::signal::{Signal, dump_on};
use ringroad_engine::time::sleep;
use ringroad_engine::{Remote, Runtime, spawn, spawn_blocking, yield_now};
use std::pin::pin;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

cases!(
    /// One line of the dump per operation: kind, connection, state, age, waiting task, last event.
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

/// The texts that come, until one says all of this.
fn told(texts: &mpsc::Receiver<String>, all: &[&str]) -> String {
    loop {
        let text = texts.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|why| panic!("{why}: {all:?}"));
        if all.iter().all(|part| text.contains(part)) {
            return text;
        }
    }
}

cases!(
    /// Others answer meanwhile. When it goes on, it answers too.
    a_signal_has_every_runtime_tell_and_names_the_one_that_is_stuck,
    real,
    |case| alone(None, || {
        let (say, texts) = mpsc::channel();
        dump_on(Signal::SIGUSR1, move |text| say.send(text.to_owned()).unwrap()).unwrap();
        let driver = format!("({}, thread ", case.driver());
        let spawn_one = |name: &str, body: fn(&Runtime, mpsc::Receiver<()>, mpsc::Sender<Remote>)| {
            let ((go_on, wait), (say, hear)) = (mpsc::channel(), mpsc::channel());
            let thread = thread::Builder::new().name(name.to_owned());
            let thread = thread.spawn(move || body(&case.builder().build().unwrap(), wait, say)).unwrap();
            (go_on, hear.recv().unwrap(), thread)
        };
        // One runtime waits for I/O, one blocks its thread, and one is not run by any thread.
        let (end_well, well_remote, well) = spawn_one("well", |runtime, wait, say| {
            let body = async {
                let listener = pin!(async { drop(TcpListener::bind(crate::peer::anywhere()).unwrap().accept().await) });
                say.send(runtime.remote()).unwrap();
                let ended = pin!(spawn_blocking(move || wait.recv()));
                drop(select(listener, ended).await);
            };
            runtime.block_on(body).unwrap();
        });
        let (end_stuck, _, stuck) = spawn_one("stuck", |runtime, wait, say| {
            let body = async {
                say.send(runtime.remote()).unwrap();
                let _ = wait.recv();
                // A turn, in which it can answer.
                yield_now().await;
            };
            runtime.block_on(body).unwrap();
        });
        let (end_idle, _, idle) = spawn_one("idle", |runtime, wait, say| {
            say.send(runtime.remote()).unwrap();
            let _ = wait.recv();
        });
        // It accepts by now.
        let (say, hear) = mpsc::channel();
        well_remote.spawn(move || async move { say.send(()).unwrap() }).unwrap();
        hear.recv().unwrap();
        // SAFETY: two numbers; the signal is waited for.
        let raise = || assert_eq!(unsafe { libc::kill(libc::getpid(), libc::SIGUSR1) }, 0);
        raise();
        told(&texts, &["\"idle\"", &driver, "not running at the moment"]);
        let text = told(&texts, &["\"well\"", &driver, "slot "]);
        for part in [" accept ", "0 tasks, 0 ready\n", "counters: system_calls "] {
            assert!(text.contains(part), "{part} in:\n{text}");
        }
        let text = told(&texts, &["\"stuck\"", &driver, "does not yield"]);
        let id = text.split("/proc/self/task/").nth(1).and_then(|text| text.split('/').next()).unwrap();
        let name = std::fs::read_to_string(format!("/proc/self/task/{id}/comm")).unwrap();
        assert_eq!(name, "stuck\n");
        // Asked again, it is named again; the question before is its first and only one.
        raise();
        told(&texts, &["\"stuck\"", "does not yield"]);
        end_stuck.send(()).unwrap();
        told(&texts, &["\"stuck\"", "0 tasks, 0 ready\n"]);
        for (end, thread) in [(end_well, well), (end_idle, idle)] {
            end.send(()).unwrap();
            thread.join().unwrap();
        }
        stuck.join().unwrap();
        assert!(!texts.try_iter().any(|text| text.contains("\"stuck\"")), "it was asked once");
    })
);

#[test]
fn there_is_nothing_to_dump_outside_of_a_runtime() {
    assert!(Runtime::dump_current().is_none());
}
