//! Calls that block, on threads of their own.

use crate::support::{poll_once, some_turns, with_runtime};
use ringroad_engine::{Builder, JoinError, blocking, spawn, spawn_blocking, yield_now};
use std::hint::spin_loop;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, mpsc};

fn unchanged(builder: Builder) -> Builder {
    builder
}

everywhere!(a_blocking_call_gives_what_it_returns, |_| async {
    let calls: Vec<_> = (0..100).map(|number| spawn_blocking(move || number * number)).collect();
    for (number, call) in calls.into_iter().enumerate() {
        assert_eq!(call.await.unwrap(), number * number);
    }
});

everywhere!(a_panic_in_a_blocking_call_is_reported_and_ends_no_other_task, |_| async {
    let bad = spawn_blocking(|| -> u8 { panic!("on purpose") });
    let good = spawn_blocking(|| 7);
    assert!(matches!(bad.await, Err(JoinError::Panicked(_))));
    assert_eq!(good.await.unwrap(), 7);
});

everywhere!(a_blocking_call_dropped_as_it_ends_drops_its_result_once, |_| async {
    /// Counts itself out.
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let (called, dropped) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    for round in 0..2000 {
        let (called, dropped) = (Arc::clone(&called), Arc::clone(&dropped));
        let mut call = spawn_blocking(move || {
            called.fetch_add(1, Ordering::Relaxed);
            Counted(dropped)
        });
        let _ = poll_once(Pin::new(&mut call)).await;
        for _ in 0..round % 512 {
            spin_loop();
        }
    }
    // One thread may still be within the last call; whatever was called has been dropped, and nothing twice.
    while called.load(Ordering::Relaxed) != dropped.load(Ordering::Relaxed) {
        spawn_blocking(|| ()).await.unwrap();
        yield_now().await;
    }
});

cases!(
    /// The call waits for a task of the same runtime.
    the_runtime_goes_on_while_a_call_blocks,
    real,
    |case| with_runtime(case, unchanged, move |_, runtime| {
        runtime
            .block_on(async {
                let (tell, told) = mpsc::channel();
                let call = spawn_blocking(move || told.recv().unwrap());
                some_turns().await;
                spawn(async move { tell.send(11).unwrap() }).detach();
                assert_eq!(call.await.unwrap(), 11);
            })
            .unwrap();
    })
);

cases!(
    /// Every thread there may be is held, so what comes then stays in the queue.
    a_call_dropped_before_it_began_never_begins,
    real,
    |case| with_runtime(case, unchanged, move |_, runtime| {
        runtime
            .block_on(async {
                let held: Vec<_> = (0..blocking::threads_max())
                    .map(|_| {
                        let (free, wait) = mpsc::channel::<()>();
                        (free, spawn_blocking(move || wait.recv().is_err()))
                    })
                    .collect();
                let began = Arc::new(AtomicBool::new(false));
                let call = spawn_blocking({
                    let began = Arc::clone(&began);
                    move || began.store(true, Ordering::SeqCst)
                });
                some_turns().await;
                assert!(!began.load(Ordering::SeqCst));
                drop(call);
                for (free, call) in held {
                    drop(free);
                    assert!(call.await.unwrap());
                }
                // Behind it in the queue.
                spawn_blocking(|| {}).await.unwrap();
                assert!(!began.load(Ordering::SeqCst));
            })
            .unwrap();
    })
);

cases!(there_are_never_more_threads_than_may_be, real, |case| with_runtime(
    case,
    unchanged,
    move |_, runtime| {
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        runtime
            .block_on(async {
                let calls: Vec<_> = (0..4 * blocking::threads_max())
                    .map(|_| {
                        let (now, most) = (Arc::clone(&now), Arc::clone(&most));
                        spawn_blocking(move || {
                            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                            std::thread::yield_now();
                            now.fetch_sub(1, Ordering::SeqCst);
                        })
                    })
                    .collect();
                for call in calls {
                    call.await.unwrap();
                }
            })
            .unwrap();
        assert!(most.load(Ordering::SeqCst) <= blocking::threads_max());
        assert!(blocking::threads() <= blocking::threads_max());
    }
));

cases!(
    /// Two calls that only end together.
    calls_run_side_by_side,
    real,
    |case| with_runtime(case, unchanged, move |_, runtime| {
        let barrier = Arc::new(Barrier::new(2));
        runtime
            .block_on(async {
                let calls = [Arc::clone(&barrier), barrier]
                    .map(|barrier| spawn_blocking(move || barrier.wait().is_leader()));
                let mut leaders = 0;
                for call in calls {
                    leaders += u32::from(call.await.unwrap());
                }
                assert_eq!(leaders, 1);
            })
            .unwrap();
    })
);

/// A value that panics in its destructor, where no guard catches it: it ends a thread of the pool.
struct Sour;

impl Drop for Sour {
    fn drop(&mut self) {
        panic!("on purpose");
    }
}

cases!(
    /// More of them than there may be threads: if each took one along, none would be left in the end.
    what_panics_while_it_is_dropped_takes_no_thread_along,
    real,
    |case| with_runtime(case, unchanged, move |_, runtime| {
        runtime
            .block_on(async {
                for round in 0..=2 * blocking::threads_max() {
                    let (tell, told) = mpsc::channel();
                    let (free, wait) = mpsc::channel::<()>();
                    let call = spawn_blocking(move || {
                        tell.send(()).unwrap();
                        let _ = wait.recv();
                        Sour
                    });
                    if round % 2 == 0 {
                        // It has begun; now its result is dropped.
                        told.recv().unwrap();
                    }
                    drop(call);
                    drop(free);
                }
                // What a call that never begins has captured is dropped too.
                for _ in 0..=blocking::threads_max() {
                    let captured = Sour;
                    drop(spawn_blocking(move || {
                        let _captured = &captured;
                    }));
                }
                assert_eq!(spawn_blocking(|| 7).await.unwrap(), 7);
            })
            .unwrap();
    })
);
