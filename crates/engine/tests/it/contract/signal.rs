//! Signals as events.

use crate::support::{poll_once, some_turns, with_runtime};
use ringroad_engine::signal::{Signal, Signals};
use ringroad_engine::{Builder, spawn};
use std::rc::Rc;

fn unchanged(builder: Builder) -> Builder {
    builder
}

/// To this process.
fn raise(signal: Signal) {
    // SAFETY: two numbers. Whoever calls this listens for the signal, so that it ends nobody.
    assert_eq!(unsafe { libc::kill(libc::getpid(), signal.number()) }, 0);
}

cases!(
    /// Others raise the same signals meanwhile, so more may come than this test has sent.
    a_signal_reaches_everybody_who_listens_for_it,
    real,
    |case| with_runtime(case, unchanged, move |_, runtime| {
        runtime
            .block_on(async {
                let one = Signals::new(&[Signal::SIGUSR1, Signal::SIGUSR2]).unwrap();
                let two = Signals::new(&[Signal::SIGUSR1]).unwrap();
                let both = [one, two].map(|signals| {
                    spawn(async move {
                        while signals.recv().await != Signal::SIGUSR1 {}
                    })
                });
                some_turns().await;
                raise(Signal::SIGUSR1);
                for listener in both {
                    listener.await.unwrap();
                }
            })
            .unwrap();
    })
);

cases!(a_signal_that_came_before_anybody_waited_is_still_there, real, |case| with_runtime(
    case,
    unchanged,
    move |_, runtime| {
        runtime
            .block_on(async {
                let early = Signals::new(&[Signal::SIGWINCH]).unwrap();
                let witness = Signals::new(&[Signal::SIGWINCH]).unwrap();
                raise(Signal::SIGWINCH);
                // By the time one has it the other does, or is about to.
                witness.recv().await;
                assert_eq!(early.recv().await, Signal::SIGWINCH);
            })
            .unwrap();
    }
));

cases!(a_dropped_wait_leaves_the_signal_to_the_next, real, |case| with_runtime(
    case,
    unchanged,
    move |_, runtime| {
        runtime
            .block_on(async {
                let signals = Rc::new(Signals::new(&[Signal::SIGALRM]).unwrap());
                let mut dropped = Box::pin(signals.recv());
                let first = poll_once(dropped.as_mut()).await;
                let witness = Signals::new(&[Signal::SIGALRM]).unwrap();
                raise(Signal::SIGALRM);
                witness.recv().await;
                drop(dropped);
                if first.is_none() {
                    assert_eq!(signals.recv().await, Signal::SIGALRM);
                }
            })
            .unwrap();
    }
));

#[test]
fn what_cannot_be_caught_is_refused_with_its_name() {
    let kill = Signal::new(libc::SIGKILL).unwrap();
    let error = Signals::new(&[kill]).unwrap_err();
    assert!(error.to_string().contains("signal 9"), "{error}");
    assert!(Signal::new(0).is_none() && Signal::new(65).is_none());
}
