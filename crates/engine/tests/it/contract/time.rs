//! Timers: in order, never early, and gone when they are dropped.

use crate::support::{Gate, numbers, pair, poll_once};
use futures_util::future::join_all;
use ringroad_engine::time::{sleep, timeout};
use ringroad_engine::{spawn, yield_now};
use std::cell::RefCell;
use std::future::{pending, ready};
use std::pin::pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// When sleeps were due, in the order in which they ended.
#[derive(Clone, Default)]
struct Ends(Rc<RefCell<Vec<(Instant, Instant)>>>);

impl Ends {
    /// Sleeps, and notes between which two moments that was due: the thread may have lost its CPU just then.
    async fn sleep(self, span: Duration) {
        let earliest = Instant::now() + span;
        let mut sleep = pin!(sleep(span));
        let over = poll_once(sleep.as_mut()).await.is_some();
        let latest = Instant::now() + span;
        if !over {
            sleep.await;
        }
        self.0.borrow_mut().push((earliest, latest));
    }

    /// None ended after one that was certainly due later. Timers are kept in milliseconds, so two may be told
    /// as one.
    #[track_caller]
    fn are_in_order(&self, count: usize) {
        let ends = self.0.borrow();
        assert_eq!(ends.len(), count);
        let mut latest_before = ends[0].0;
        for (nth, (earliest, latest)) in ends.iter().enumerate() {
            assert!(*latest + ms(2) >= latest_before, "end {nth} of {ends:?}");
            latest_before = latest_before.max(*earliest);
        }
    }
}

everywhere!(sleeps_end_in_the_order_of_their_length, |_| async {
    let ends = Ends::default();
    // A task each: a task that waits for several sleeps polls all of them in their order when the first is
    // over.
    for sleeper in [60u64, 10, 40, 20, 50, 30].map(|span| spawn(ends.clone().sleep(ms(span)))) {
        sleeper.await.unwrap();
    }
    ends.are_in_order(6);
});

scenario!(sleeps_that_are_all_over_when_the_loop_comes_back_end_in_order_too, |case| async move {
    if !case.is_real() {
        return eprintln!("skipped: in the simulation a task takes no time");
    }
    let ends = Ends::default();
    // From 66 ms on, where the wheel is coarse; each once, in no order.
    let spans = (0..40u64).map(|nth| ms(66 + nth * 17 % 40));
    let sleepers: Vec<_> = spans.map(|span| spawn(ends.clone().sleep(span))).collect();
    yield_now().await;
    std::thread::sleep(ms(200));
    for sleeper in sleepers {
        sleeper.await.unwrap();
    }
    ends.are_in_order(40);
});

everywhere!(a_sleep_is_never_shorter_than_told, |case| async move {
    for span in [Duration::from_nanos(1), Duration::from_micros(999), ms(1), Duration::from_micros(3500)] {
        for _ in 0..5 {
            let began = Instant::now();
            sleep(span).await;
            if case.is_real() {
                assert!(began.elapsed() >= span, "{:?} instead of {span:?}", began.elapsed());
            }
        }
    }
});

everywhere!(no_time_at_all_is_over_at_once, |_| async {
    assert!(poll_once(pin!(sleep(Duration::ZERO))).await.is_some());
    assert!(poll_once(pin!(sleep(Duration::from_nanos(1)))).await.is_none());
});

everywhere!(many_timers_all_fire_and_dropped_ones_wake_no_task, |_| async {
    let mut number = numbers(7);
    let mut kept = Vec::new();
    let mut dropped = Vec::new();
    for at in 0..2000 {
        let mut timer = Box::pin(sleep(Duration::from_micros(1 + number(30_000) as u64)));
        assert!(poll_once(timer.as_mut()).await.is_none());
        if at % 2 == 0 { kept.push(timer) } else { dropped.push(timer) }
    }
    drop(dropped);
    let kept = join_all(kept).await;
    assert_eq!(kept.len(), 1000);
});

everywhere!(a_timer_wakes_the_task_that_polled_it_last, |_| async {
    let mut timer = Box::pin(sleep(ms(5)));
    assert!(poll_once(timer.as_mut()).await.is_none());
    let other = spawn(timer);
    other.await.unwrap();
});

everywhere!(what_is_ready_in_time_beats_its_timeout, |_| async {
    assert_eq!(timeout(ms(1000), ready(7)).await, Ok(7));
    assert_eq!(timeout(Duration::ZERO, ready(7)).await, Ok(7), "a tie is the future's");
    // Both are over in one turn: the future was asked first.
    assert_eq!(timeout(ms(3), sleep(ms(3))).await, Ok(()));
    let elapsed = timeout(ms(2), pending::<()>()).await.unwrap_err();
    assert_eq!((elapsed.0, elapsed.to_string().as_str()), (ms(2), "not done within 2ms"));
    assert!(timeout(Duration::ZERO, pending::<()>()).await.is_err());
});

everywhere!(a_timeout_loses_no_byte, |_| async {
    let (mut ours, mut theirs) = pair().await;
    let go = Gate::default();
    let writer = {
        let go = go.clone();
        spawn(async move {
            for byte in 0..100u8 {
                ours.write_all(vec![byte]).await.0.unwrap();
                if byte == 50 {
                    go.opened().await;
                }
            }
        })
    };
    let (mut all, mut elapsed) = (Vec::new(), 0);
    loop {
        match timeout(Duration::from_micros(100), theirs.recv()).await {
            Ok(lease) => {
                let lease = lease.unwrap();
                if lease.is_empty() {
                    break;
                }
                all.extend_from_slice(&lease);
            }
            Err(_) => {
                elapsed += 1;
                go.open();
            }
        }
    }
    assert_eq!(all, (0..100).collect::<Vec<u8>>());
    assert!(elapsed > 0, "no timeout: this showed nothing");
    writer.await.unwrap();
});

everywhere!(a_task_that_never_waits_does_not_stop_the_clock, |_| async {
    let over = Gate::default();
    let busy = {
        let over = over.clone();
        spawn(async move {
            let mut turns = 0u64;
            while !over.is_open() {
                yield_now().await;
                turns += 1;
            }
            turns
        })
    };
    sleep(ms(5)).await;
    over.open();
    assert!(busy.await.unwrap() > 0);
});

everywhere!(a_span_beyond_the_end_of_time_is_waited_for_without_harm, |_| async {
    // As the runtime begins, and later.
    for _ in 0..3 {
        let mut forever = pin!(sleep(Duration::MAX));
        assert!(poll_once(forever.as_mut()).await.is_none());
        let elapsed = timeout(ms(2), forever.as_mut()).await;
        assert!(elapsed.is_err());
    }
});

runtimes!(a_sleep_moves_with_its_task_to_another_runtime, |case| {
    let runtime = || case.builder().build().expect("the driver is to be had here");
    let (home, abroad) = (runtime(), runtime());
    let begun_at_home = |span| {
        let mut begun = Box::pin(sleep(span));
        assert!(home.block_on(async { poll_once(begun.as_mut()).await }).unwrap().is_none());
        begun
    };
    // Its home does not run meanwhile, and the time that was over there counts.
    let began = Instant::now();
    let begun = begun_at_home(ms(20));
    abroad.block_on(begun).unwrap();
    assert!(!case.is_real() || began.elapsed() >= ms(20), "{:?}", began.elapsed());
    let mut over = begun_at_home(ms(2));
    home.block_on(sleep(ms(5))).unwrap();
    assert!(abroad.block_on(async { poll_once(over.as_mut()).await }).unwrap().is_some());
    // There and back; by then it may be over, and says so when it is asked again.
    let mut limited = Box::pin(timeout(ms(20), pending::<()>()));
    for there in [&home, &abroad, &home, &abroad] {
        let _ = there.block_on(async { poll_once(limited.as_mut()).await }).unwrap();
    }
    assert!(home.block_on(limited).unwrap().is_err());
    // One that stays is left alone by one that leaves.
    let (stays, leaves) = (begun_at_home(ms(20)), begun_at_home(ms(20)));
    abroad.block_on(leaves).unwrap();
    home.block_on(stays).unwrap();
    // A home that is gone, also if another has its number since.
    let (one, other) = (begun_at_home(ms(60)), begun_at_home(ms(20)));
    home.shutdown(Duration::from_secs(10)).unwrap();
    abroad.block_on(other).unwrap();
    abroad.shutdown(Duration::from_secs(10)).unwrap();
    let again = runtime();
    again.block_on(one).unwrap();
    again.shutdown(Duration::from_secs(10)).unwrap();
});
