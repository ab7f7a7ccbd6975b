//! Signals as events.

use crate::support::{alone, poll_once, some_turns, with_runtime};
use ringroad_engine::signal::{Signal, Signals, ctrl_c};
use ringroad_engine::{Builder, spawn};
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

fn unchanged(builder: Builder) -> Builder {
    builder
}

/// To this process.
fn raise(signal: Signal) {
    // SAFETY: two numbers. The callers handle the signal, so it ends no process.
    assert_eq!(unsafe { libc::kill(libc::getpid(), signal.number()) }, 0);
}

cases!(
    /// Others raise the same signals meanwhile, so more may come than this test has sent.
    a_signal_reaches_every_listener,
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

cases!(a_signal_that_arrived_before_a_wait_is_kept, real, |case| with_runtime(
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

cases!(a_ctrl_c_wakes_all_that_wait_or_is_kept_for_the_next, real, |case| alone(None, || with_runtime(
    case,
    unchanged,
    move |_, runtime| {
        runtime
            .block_on(async {
                let mut dropped = Box::pin(ctrl_c());
                assert!(poll_once(dropped.as_mut()).await.is_none());
                drop(dropped);
                // After it in the list of those that are told.
                let witness = Signals::new(&[Signal::SIGINT]).unwrap();
                raise(Signal::SIGINT);
                witness.recv().await;
                ctrl_c().await.unwrap();
                let mut both = [Box::pin(ctrl_c()), Box::pin(ctrl_c())];
                for waits in &mut both {
                    assert!(poll_once(waits.as_mut()).await.is_none(), "it was returned for");
                }
                raise(Signal::SIGINT);
                for waits in both {
                    waits.await.unwrap();
                }
            })
            .unwrap();
    }
)));

#[test]
fn what_cannot_be_caught_is_refused_with_its_name() {
    let kill = Signal::new(libc::SIGKILL).unwrap();
    let error = Signals::new(&[kill]).unwrap_err();
    assert!(error.to_string().contains("signal 9"), "{error}");
    assert!(Signal::new(0).is_none() && Signal::new(65).is_none());
}

cases!(
    /// In a process of its own: a caught signal has lost its default effect for good.
    signals_are_caught_all_or_none,
    [once Epoll],
    |_| alone(None, || {
        // 33 is glibc's own (nptl(7)).
        let refused = Signals::new(&[Signal::SIGUSR2, Signal::new(33).unwrap()]).unwrap_err();
        assert!(refused.to_string().contains("signal 33"), "{refused}");
        // SAFETY: sigaction(2) without a new action writes the present one into a live local of integers.
        let present = unsafe {
            let mut present: libc::sigaction = std::mem::zeroed();
            assert_eq!(libc::sigaction(libc::SIGUSR2, std::ptr::null(), &raw mut present), 0);
            present.sa_sigaction
        };
        assert_eq!(present, libc::SIG_DFL);
    })
);

/// Panics when it is woken, with a payload that panics when it is dropped; listens for a signal first, which
/// takes the locks that a wake must not find taken.
struct WokenBadly;

impl Wake for WokenBadly {
    fn wake(self: Arc<Self>) {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("the payload was dropped");
            }
        }
        drop(Signals::new(&[Signal::SIGHUP]).unwrap());
        std::panic::panic_any(Bomb);
    }
}

cases!(
    /// Each time there is a bad waker before and behind the good one.
    a_waker_that_panics_keeps_no_signal_from_the_others,
    real,
    |case| with_runtime(case, unchanged, move |_, runtime| {
        let bad = Waker::from(Arc::new(WokenBadly));
        let mut bad = Context::from_waker(&bad);
        let signals = Signals::new(&[Signal::SIGHUP]).unwrap();
        let (before, behind) =
            (Signals::new(&[Signal::SIGHUP]).unwrap(), Signals::new(&[Signal::SIGHUP]).unwrap());
        for _ in 0..2 {
            let (mut one, mut other) = (pin!(before.recv()), pin!(behind.recv()));
            let mut same = pin!(signals.recv());
            let bad_ones = [one.as_mut().poll(&mut bad), other.as_mut().poll(&mut bad)];
            let _ = (bad_ones, same.as_mut().poll(&mut bad));
            runtime
                .block_on(async {
                    let mut good = pin!(signals.recv());
                    let at_once = poll_once(good.as_mut()).await;
                    raise(Signal::SIGHUP);
                    if at_once.is_none() {
                        good.await;
                    }
                })
                .unwrap();
        }
    })
);
