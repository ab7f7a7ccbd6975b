//! The cases that every runtime has, over whichever `super::api` is: tasks, wakes, timers.
//!
//! Each does some of the same first, so that what is made once (threads, queues that grow) is made.

use super::api::*;
use crate::{Case, Meter};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

pub(crate) const CASES: &[Case] = &[
    Case { name: "spawn-join", items: 200_000, threads: 1, run: spawn_join },
    Case { name: "spawn-join-1000", items: 300_000, threads: 1, run: spawn_join_1000 },
    Case { name: "wake", items: 500_000, threads: 1, run: wake },
    Case { name: "wake-100", items: 500_000, threads: 1, run: wake_100 },
    Case { name: "wake-across", items: 10_000, threads: 2, run: wake_across },
    Case { name: "yield", items: 100_000, threads: 1, run: |items, meter| yields(1, items, meter) },
    Case { name: "yield-100", items: 500_000, threads: 1, run: |items, meter| yields(100, items, meter) },
    Case {
        name: "timer-set-drop",
        items: 500_000,
        threads: 1,
        run: |items, meter| set_and_drop(0, items, meter),
    },
    Case {
        name: "timer-set-drop-100k",
        items: 500_000,
        threads: 1,
        run: |items, meter| set_and_drop(100_000, items, meter),
    },
    Case { name: "timer-fire", items: 50, threads: 1, run: fire_one },
    Case { name: "timer-fire-100k", items: 100_000, threads: 1, run: fire_many },
    Case { name: "spawn-blocking", items: 5_000, threads: 2, run: spawn_blocking },
    Case { name: "parked", items: 1_000_000, threads: 1, run: parked },
];

/// Starts a task and awaits it, one after another.
fn spawn_join(items: u64, meter: &mut Meter) {
    block_on(async {
        for item in 0..items + 1000 {
            if item == 1000 {
                meter.begin();
            }
            let joined = spawn(async move { item }).await;
            assert!(matches!(joined, Ok(it) if it == item));
        }
        meter.end();
    });
}

/// Starts a thousand, then awaits them.
fn spawn_join_1000(items: u64, meter: &mut Meter) {
    block_on(async {
        let mut handles = Vec::with_capacity(1000);
        for round in 0..items / 1000 + 2 {
            if round == 2 {
                meter.begin();
            }
            handles.extend((0..1000).map(|item| spawn(async move { item })));
            for (item, handle) in handles.drain(..).enumerate() {
                assert!(matches!(handle.await, Ok(it) if it == item));
            }
        }
        meter.end();
    });
}

thread_local! {
    /// Index of the task that has its turn, and the wakers of all.
    static TURN: Cell<u64> = const { Cell::new(0) };
    static WAKERS: RefCell<Vec<Option<Waker>>> = const { RefCell::new(Vec::new()) };
}

/// Waits until `is_over` or it is task `own`'s turn, once every `of` turns.
async fn turn(own: u64, of: u64, until: u64) -> u64 {
    poll_fn(|context| {
        let now = TURN.get();
        if now >= until || now % of == own {
            return Poll::Ready(now);
        }
        WAKERS.with_borrow_mut(|wakers| wakers[own as usize] = Some(context.waker().clone()));
        Poll::Pending
    })
    .await
}

fn wake_nth(nth: u64) {
    let waker = WAKERS.with_borrow_mut(|wakers| wakers[nth as usize].take());
    waker.into_iter().for_each(Waker::wake);
}

/// Two tasks wake each other in turns.
fn wake(items: u64, meter: &mut Meter) {
    block_on(async {
        WAKERS.set(vec![None; 2]);
        for (from, until) in [(0, 1000), (1000, 1000 + items)] {
            TURN.set(from);
            meter.begin();
            let tasks = [0, 1].map(|own| {
                spawn(async move {
                    while turn(own, 2, until).await < until {
                        TURN.set(TURN.get() + 1);
                        wake_nth(1 - own);
                    }
                })
            });
            for task in tasks {
                task.await.expect("it ends");
            }
        }
        meter.end();
    });
}

/// One task wakes a hundred others, the last of which wakes it.
fn wake_100(items: u64, meter: &mut Meter) {
    const CROWD: u64 = 100;
    block_on(async {
        WAKERS.set(vec![None; CROWD as usize + 1]);
        for rounds in [10, items / CROWD] {
            TURN.set(0);
            let crowd: Vec<_> = (0..CROWD)
                .map(|nth| {
                    spawn(async move {
                        for round in 1..=rounds {
                            poll_fn(|context| {
                                if TURN.get() >= round {
                                    return Poll::Ready(());
                                }
                                WAKERS
                                    .with_borrow_mut(|all| all[nth as usize] = Some(context.waker().clone()));
                                Poll::Pending
                            })
                            .await;
                            if nth == CROWD - 1 {
                                wake_nth(CROWD);
                            }
                        }
                    })
                })
                .collect();
            yield_now().await;
            meter.begin();
            for round in 1..=rounds {
                let mut began = false;
                poll_fn(|context| {
                    if std::mem::replace(&mut began, true) {
                        return Poll::Ready(());
                    }
                    WAKERS.with_borrow_mut(|all| all[CROWD as usize] = Some(context.waker().clone()));
                    TURN.set(round);
                    (0..CROWD).for_each(wake_nth);
                    Poll::Pending
                })
                .await;
            }
            meter.end();
            for task in crowd {
                task.await.expect("it ends");
            }
        }
    });
}

/// Tasks of two threads wake each other in turns.
fn wake_across(items: u64, meter: &mut Meter) {
    struct Shared {
        turn: AtomicU64,
        wakers: [Mutex<Option<Waker>>; 2],
    }
    async fn play(shared: &Shared, own: usize, until: u64) {
        loop {
            let now = poll_fn(|context| {
                let now = || shared.turn.load(Ordering::Acquire);
                let mine = |now: u64| now >= until || now % 2 == own as u64;
                if mine(now()) {
                    return Poll::Ready(now());
                }
                *shared.wakers[own].lock().unwrap() = Some(context.waker().clone());
                // It may have come to us meanwhile.
                if mine(now()) { Poll::Ready(now()) } else { Poll::Pending }
            })
            .await;
            if now < until {
                shared.turn.store(now + 1, Ordering::Release);
            }
            let other = shared.wakers[1 - own].lock().unwrap().take();
            other.into_iter().for_each(Waker::wake);
            if now >= until {
                return;
            }
        }
    }
    let shared = Arc::new(Shared { turn: AtomicU64::new(0), wakers: Default::default() });
    let theirs = Arc::clone(&shared);
    let begun = 100;
    let other = std::thread::spawn(move || {
        block_on(async move {
            play(&theirs, 1, begun).await;
            play(&theirs, 1, begun + items).await;
        });
    });
    block_on(async {
        play(&shared, 0, begun).await;
        meter.begin();
        play(&shared, 0, begun + items).await;
        meter.end();
    });
    other.join().unwrap();
}

/// So many tasks yield in turns.
fn yields(tasks: u64, items: u64, meter: &mut Meter) {
    block_on(async {
        for each in [10, items / tasks] {
            meter.begin();
            let tasks: Vec<_> = (0..tasks)
                .map(|_| {
                    spawn(async move {
                        for _ in 0..each {
                            yield_now().await;
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.expect("it ends");
            }
        }
        meter.end();
    });
}

/// A stream of numbers that look random, the same for all.
fn numbers() -> impl FnMut(u64) -> u64 {
    let mut seed = 1u64;
    move |below| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    }
}

/// Sets a timer and drops it, beside so many that are set.
fn set_and_drop(beside: u64, items: u64, meter: &mut Meter) {
    block_on(async {
        let mut number = numbers();
        let mut others: Vec<_> =
            (0..beside).map(|_| Box::pin(sleep(Duration::from_millis(60_000 + number(600_000))))).collect();
        poll_fn(|context| {
            others.iter_mut().for_each(|other| assert!(other.as_mut().poll(context).is_pending()));
            for item in 0..items + 1000 {
                if item == 1000 {
                    meter.begin();
                }
                let timer = pin!(sleep(Duration::from_millis(60_000 + number(600_000))));
                assert!(timer.poll(context).is_pending());
            }
            meter.end();
            Poll::Ready(())
        })
        .await;
    });
}

/// Sleeps a millisecond, again and again.
fn fire_one(items: u64, meter: &mut Meter) {
    block_on(async {
        sleep(Duration::from_millis(1)).await;
        meter.begin();
        for _ in 0..items {
            sleep(Duration::from_millis(1)).await;
        }
        meter.end();
    });
}

/// So many tasks that sleep at once, up to a tenth of a second: started, fired, joined.
fn fire_many(items: u64, meter: &mut Meter) {
    block_on(async {
        let mut number = numbers();
        meter.begin();
        let tasks: Vec<_> = (0..items)
            .map(|_| {
                let span = Duration::from_millis(1 + number(100));
                spawn(async move { sleep(span).await })
            })
            .collect();
        for task in tasks {
            task.await.expect("it ends");
        }
        meter.end();
    });
}

/// A call on a thread of the pool, one after another.
fn spawn_blocking(items: u64, meter: &mut Meter) {
    block_on(async {
        for item in 0..items + 100 {
            if item == 100 {
                meter.begin();
            }
            assert_eq!(call_elsewhere(|| 7).await, 7);
        }
        meter.end();
    });
}

/// Tasks that wait, each with a number to keep.
fn parked(items: u64, meter: &mut Meter) {
    block_on(async {
        static WOKEN: AtomicU64 = AtomicU64::new(0);
        meter.begin();
        for item in 0..items {
            leave(async move {
                std::future::pending::<()>().await;
                WOKEN.fetch_add(item, Ordering::Relaxed);
            });
        }
        // All of them have run, and wait.
        for _ in 0..items / 500 + 2 {
            yield_now().await;
        }
        meter.end();
        assert_eq!(WOKEN.load(Ordering::Relaxed), 0);
    });
}
