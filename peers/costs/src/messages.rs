//! The cases about channels and semaphores, over the runtimes that have their own: those of `super::api`.

use super::api::*;
use crate::{Case, Meter};
use std::sync::Arc;

pub(crate) const CASES: &[Case] = &[
    Case { name: "bounded", items: 500_000, threads: 1, run: |items, meter| bounded_here(64, items, meter) },
    Case { name: "bounded-1", items: 200_000, threads: 1, run: |items, meter| bounded_here(1, items, meter) },
    Case { name: "bounded-across", items: 100_000, threads: 2, run: bounded_across },
    Case { name: "unbounded", items: 500_000, threads: 1, run: unbounded_here },
    Case { name: "unbounded-across", items: 200_000, threads: 2, run: unbounded_across },
    Case { name: "oneshot", items: 200_000, threads: 1, run: oneshot_here },
    Case { name: "oneshot-across", items: 10_000, threads: 2, run: oneshot_across },
    Case { name: "semaphore", items: 1_000_000, threads: 1, run: semaphore },
    Case { name: "semaphore-contended", items: 300_000, threads: 1, run: semaphore_contended },
];

/// A channel with so much room, between two tasks.
fn bounded_here(room: usize, items: u64, meter: &mut Meter) {
    block_on(async {
        for items in [1000, items] {
            let (sender, mut receiver) = bounded(room);
            meter.begin();
            let sending = spawn(async move {
                for item in 0..items {
                    send(&sender, item).await;
                }
            });
            for item in 0..items {
                assert_eq!(receive(&mut receiver).await, Some(item));
            }
            meter.end();
            sending.await.expect("it ends");
        }
    });
}

/// The same across two threads, each with its runtime.
fn bounded_across(items: u64, meter: &mut Meter) {
    let (sender, mut receiver): (Sender<u64>, Receiver<u64>) = bounded(64);
    let other = std::thread::spawn(move || {
        block_on(async move {
            for item in 0..items + 1000 {
                send(&sender, item).await;
            }
        });
    });
    block_on(async {
        for item in 0..items + 1000 {
            if item == 1000 {
                meter.begin();
            }
            assert_eq!(receive(&mut receiver).await, Some(item));
        }
        meter.end();
    });
    other.join().unwrap();
}

/// A channel without bound between two tasks: 64 at a time, then the other.
fn unbounded_here(items: u64, meter: &mut Meter) {
    block_on(async {
        for items in [1000, items] {
            let (sender, mut receiver) = unbounded();
            meter.begin();
            let sending = spawn(async move {
                for item in 0..items {
                    send_unbounded(&sender, item);
                    if item % 64 == 63 {
                        yield_now().await;
                    }
                }
            });
            for item in 0..items {
                assert_eq!(receive_unbounded(&mut receiver).await, Some(item));
            }
            meter.end();
            sending.await.expect("it ends");
        }
    });
}

/// The same across two threads, each with its runtime.
fn unbounded_across(items: u64, meter: &mut Meter) {
    let (sender, mut receiver): (UnboundedSender<u64>, UnboundedReceiver<u64>) = unbounded();
    let other = std::thread::spawn(move || {
        block_on(async move {
            for item in 0..items + 1000 {
                send_unbounded(&sender, item);
                if item % 64 == 63 {
                    yield_now().await;
                }
            }
        });
    });
    block_on(async {
        for item in 0..items + 1000 {
            if item == 1000 {
                meter.begin();
            }
            assert_eq!(receive_unbounded(&mut receiver).await, Some(item));
        }
        meter.end();
    });
    other.join().unwrap();
}

/// Makes a channel for one value, which a task started for that sends.
fn oneshot_here(items: u64, meter: &mut Meter) {
    block_on(async {
        let (sender, mut receiver): (UnboundedSender<OnceSender<u64>>, UnboundedReceiver<OnceSender<u64>>) =
            unbounded();
        let answering = spawn(async move {
            let mut count = 0;
            while let Some(answer) = receive_unbounded(&mut receiver).await {
                assert!(answer.send(count).is_ok());
                count += 1;
            }
        });
        for item in 0..items + 1000 {
            if item == 1000 {
                meter.begin();
            }
            let (answer, answered): (OnceSender<u64>, OnceReceiver<u64>) = once();
            send_unbounded(&sender, answer);
            assert!(matches!(answered.await, Ok(it) if it == item));
        }
        meter.end();
        drop(sender);
        answering.await.expect("it ends");
    });
}

/// The same, answered by a task on another thread.
fn oneshot_across(items: u64, meter: &mut Meter) {
    let (sender, mut receiver): (UnboundedSender<OnceSender<u64>>, UnboundedReceiver<OnceSender<u64>>) =
        unbounded();
    let other = std::thread::spawn(move || {
        block_on(async move {
            let mut count = 0;
            while let Some(answer) = receive_unbounded(&mut receiver).await {
                assert!(answer.send(count).is_ok());
                count += 1;
            }
        });
    });
    block_on(async {
        for item in 0..items + 100 {
            if item == 100 {
                meter.begin();
            }
            let (answer, answered): (OnceSender<u64>, OnceReceiver<u64>) = once();
            send_unbounded(&sender, answer);
            assert!(matches!(answered.await, Ok(it) if it == item));
        }
        meter.end();
    });
    drop(sender);
    other.join().unwrap();
}

/// Takes a permit that is there, and gives it back.
fn semaphore(items: u64, meter: &mut Meter) {
    block_on(async {
        let semaphore = Semaphore::new(2);
        for item in 0..items + 1000 {
            if item == 1000 {
                meter.begin();
            }
            let _permit = acquire(&semaphore).await;
        }
        meter.end();
    });
}

/// Ten tasks want the one permit, and let others run while they have it.
fn semaphore_contended(items: u64, meter: &mut Meter) {
    const TASKS: u64 = 10;
    block_on(async {
        for items in [1000, items] {
            let semaphore = Arc::new(Semaphore::new(1));
            meter.begin();
            let tasks: Vec<_> = (0..TASKS)
                .map(|_| {
                    let semaphore = Arc::clone(&semaphore);
                    spawn(async move {
                        for _ in 0..items / TASKS {
                            let permit = acquire(&semaphore).await;
                            yield_now().await;
                            drop(permit);
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.expect("it ends");
            }
            meter.end();
        }
    });
}
