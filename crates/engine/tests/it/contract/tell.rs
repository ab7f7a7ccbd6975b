//! What tasks tell one another beyond channels and locks: notifications, tokens, watched values, broadcasts;
//! sets of tasks, intervals, and tasks of another thread with an output.

use crate::support::{poll_once, runtime};
use ringroad_engine::sync::{
    Barrier, CancellationToken, Notify, OnceCell, RwLock, broadcast, oneshot, watch,
};
use ringroad_engine::time::{MissedTick, interval, now, sleep, sleep_until, timeout, timeout_at};
use ringroad_engine::{CancelHandle, JoinError, JoinSet, spawn, yield_now};
use std::cell::{Cell, RefCell};
use std::future::pending;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

scenario!(a_notification_wakes_the_one_that_waited_longest_or_is_kept, |_| async {
    let notify = Rc::new(Notify::new());
    notify.notify_one();
    notify.notify_one();
    notify.notified().await;
    let mut unkept = pin!(notify.notified());
    assert!(poll_once(unkept.as_mut()).await.is_none(), "two without a waiting task are kept as one");
    let order = Rc::new(RefCell::new(Vec::new()));
    let tasks: Vec<_> = (0..3)
        .map(|nth| {
            let (notify, order) = (notify.clone(), order.clone());
            spawn(async move {
                notify.notified().await;
                order.borrow_mut().push(nth);
            })
        })
        .collect();
    yield_now().await;
    // One after another, each to a task that waits: none is lost, although none has run in between.
    (0..4).for_each(|_| notify.notify_one());
    unkept.await;
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(*order.borrow(), [0, 1, 2]);
});

scenario!(a_dropped_wait_passes_its_notification_on, |_| async {
    let notify = Notify::new();
    let mut other = pin!(notify.notified());
    {
        let mut first = pin!(notify.notified());
        assert!(poll_once(first.as_mut()).await.is_none());
        assert!(poll_once(other.as_mut()).await.is_none());
        notify.notify_one();
    }
    other.await;
});

scenario!(notify_waiters_wakes_all_that_exist_and_keeps_nothing, |_| async {
    let notify = Notify::new();
    let (mut polled, unpolled) = (pin!(notify.notified()), notify.notified());
    assert!(poll_once(polled.as_mut()).await.is_none());
    notify.notify_waiters();
    polled.await;
    unpolled.await;
    let mut later = pin!(notify.notified());
    assert!(poll_once(later.as_mut()).await.is_none());
});

scenario!(a_token_cancels_its_children_and_not_its_parent, |_| async {
    let parent = CancellationToken::new();
    let (one, other) = (parent.child(), parent.child());
    let grandchild = one.child();
    one.cancel();
    assert!(grandchild.is_cancelled() && !other.is_cancelled() && !parent.is_cancelled());
    let waiting = spawn({
        let other = other.clone();
        async move { other.run_until_cancelled(pending::<()>()).await }
    });
    yield_now().await;
    drop(parent.clone().drop_guard());
    assert_eq!(waiting.await.unwrap(), None);
    assert!(parent.child().is_cancelled(), "also one that is made later");
    assert_eq!(parent.run_until_cancelled(async { 1 }).await, Some(1), "an output that is there counts");
    drop(CancellationToken::new().drop_guard().disarm());
});

scenario!(a_token_is_cancelled_from_another_thread, |case| async move {
    if !case.is_real() {
        return eprintln!("skipped: in the simulation there are no other threads");
    }
    let token = CancellationToken::new();
    let other = token.clone();
    let thread = std::thread::spawn(move || other.cancel());
    token.cancelled().await;
    thread.join().unwrap();
});

scenario!(a_watched_value_is_seen_in_its_last_state, |_| async {
    let (sender, mut receiver) = watch::channel(0);
    assert_eq!(receiver.has_changed(), Ok(false));
    (1..=3).for_each(|value| sender.send(value).unwrap());
    receiver.changed().await.unwrap();
    assert_eq!(*receiver.borrow_and_update(), 3);
    let mut changed = pin!(receiver.changed());
    assert!(poll_once(changed.as_mut()).await.is_none());
    assert!(!sender.send_if_modified(|_| false));
    assert!(poll_once(changed.as_mut()).await.is_none());
    let mut late = sender.subscribe();
    sender.send_modify(|value| *value += 1);
    changed.await.unwrap();
    assert_eq!(*late.wait_for(|value| *value == 4).await.unwrap(), 4);
    drop(sender);
    assert!(late.changed().await.is_err());
    assert!(late.wait_for(|value| *value == 5).await.is_err());
    assert_eq!(*late.borrow(), 4, "the value stays");
});

scenario!(the_watched_side_learns_that_no_receiver_is_left, |_| async {
    let (sender, receiver) = watch::channel("first");
    let other = receiver.clone();
    let mut closed = pin!(sender.closed());
    drop(receiver);
    assert!(poll_once(closed.as_mut()).await.is_none());
    drop(other);
    closed.await;
    assert_eq!(sender.send("second"), Err(watch::SendError("second")));
    assert_eq!(sender.send_replace("third"), "first");
});

scenario!(a_broadcast_reaches_all_and_tells_a_slow_receiver_what_it_lost, |_| async {
    let (sender, mut fast) = broadcast::channel(2);
    let mut slow = sender.subscribe();
    for number in 1..=4 {
        assert_eq!(sender.send(number), Ok(2));
        assert_eq!(fast.recv().await, Ok(number));
    }
    assert_eq!(slow.recv().await, Err(broadcast::RecvError::Lagged(2)));
    assert_eq!((slow.recv().await, slow.try_recv()), (Ok(3), Ok(4)));
    assert_eq!(slow.try_recv(), Err(broadcast::TryRecvError::Empty));
    drop(sender);
    assert_eq!(slow.recv().await, Err(broadcast::RecvError::Closed));
    let (sender, receiver) = broadcast::channel(1);
    drop(receiver);
    assert_eq!(sender.send(1), Err(broadcast::SendError(1)));
});

scenario!(a_broadcast_without_receivers_has_some_again, |_| async {
    let (sender, receiver) = broadcast::channel(2);
    drop(receiver);
    let other = sender.clone();
    assert_eq!((sender.receiver_count(), other.send(1)), (0, Err(broadcast::SendError(1))));
    let mut late = sender.subscribe();
    assert_eq!((other.receiver_count(), other.send(2)), (1, Ok(1)));
    assert_eq!(late.recv().await, Ok(2));
    drop(sender);
    assert_eq!(late.try_recv(), Err(broadcast::TryRecvError::Empty), "the other sender is left");
    drop(late);
    let mut last = other.subscribe();
    assert_eq!(last.try_recv(), Err(broadcast::TryRecvError::Empty));
    drop(other);
    assert_eq!(last.recv().await, Err(broadcast::RecvError::Closed));
});

scenario!(many_read_at_once_and_a_writer_has_its_turn, |_| async {
    let lock = Rc::new(RwLock::new(1));
    let (one, other) = (lock.read().await, lock.read().await);
    assert_eq!(*one + *other, 2);
    let writer = spawn({
        let lock = lock.clone();
        async move { *lock.write().await = 5 }
    });
    yield_now().await;
    assert!(lock.try_read().is_none(), "a waiting writer keeps new readers out");
    drop((one, other));
    writer.await.unwrap();
    assert_eq!(*lock.read().await, 5);
});

scenario!(a_cell_is_filled_by_one_of_those_that_ask, |_| async {
    let (cell, fills) = (Rc::new(OnceCell::new()), Rc::new(Cell::new(0)));
    assert_eq!(cell.get_or_try_init(|| async { Err::<u8, &str>("not yet") }).await, Err("not yet"));
    let mut set = JoinSet::new();
    for _ in 0..5 {
        let (cell, fills) = (cell.clone(), fills.clone());
        set.spawn(async move {
            let fill = || async {
                fills.set(fills.get() + 1);
                yield_now().await;
                7
            };
            *cell.get_or_init(fill).await
        });
    }
    assert_eq!(set.join_all().await, [7; 5]);
    assert_eq!(fills.get(), 1);
});

scenario!(a_set_is_joined_in_the_order_in_which_its_tasks_end, |_| async {
    let mut set = JoinSet::new();
    for span in [30, 10, 20] {
        set.spawn(async move {
            sleep(ms(span)).await;
            span
        });
    }
    let mut ended = Vec::new();
    while let Some(joined) = set.join_next().await {
        ended.push(joined.unwrap());
    }
    assert_eq!(ended.len(), 3);
    ended.sort_unstable();
    assert_eq!(ended, [10, 20, 30]);
    assert!(set.join_next().await.is_none());
});

scenario!(a_set_reports_panics_and_cancels_and_ends_its_tasks_when_dropped, |_| async {
    let mut set = JoinSet::new();
    set.spawn(async { panic!("on purpose") });
    assert!(matches!(set.join_next().await, Some(Err(JoinError::Panicked(_)))));
    set.spawn(pending::<()>());
    yield_now().await;
    set.cancel_all();
    assert!(matches!(set.join_next().await, Some(Err(JoinError::Cancelled))));
    let held = Rc::new(());
    for _ in 0..3 {
        let held = held.clone();
        set.spawn(async move {
            let _held = held;
            pending().await
        });
    }
    yield_now().await;
    drop(set);
    assert_eq!(Rc::strong_count(&held), 1);
    let mut set = JoinSet::new();
    let done = Rc::new(Cell::new(false));
    let set_done = done.clone();
    set.spawn(async move {
        yield_now().await;
        set_done.set(true);
    });
    set.detach_all();
    drop(set);
    while !done.get() {
        yield_now().await;
    }
});

/// Notes its number when it is dropped.
struct Last(u32, Rc<RefCell<Vec<u32>>>);

impl Drop for Last {
    fn drop(&mut self) {
        self.1.borrow_mut().push(self.0);
    }
}

// On the simulation a program runs alike with each run of a seed, also where it cancels many tasks at once.
everywhere!(tasks_of_a_set_end_in_the_order_in_which_they_were_added_when_all_are_cancelled, |_| async {
    let ways: [fn(JoinSet<()>); 3] = [drop, |mut set| set.shutdown(), |set| set.cancel_all()];
    for way in ways {
        let ended = Rc::new(RefCell::new(Vec::new()));
        let mut set = JoinSet::new();
        for nth in 0..20 {
            let last = Last(nth, Rc::clone(&ended));
            set.spawn(async move {
                let _last = last;
                pending().await
            });
        }
        yield_now().await;
        way(set);
        while ended.borrow().len() < 20 {
            yield_now().await;
        }
        assert_eq!(*ended.borrow(), (0..20).collect::<Vec<_>>());
    }
});

everywhere!(a_set_gives_those_that_have_ended_without_waiting, |_| async {
    let mut set = JoinSet::new();
    assert!(set.try_join_next().is_none());
    let never = set.spawn(pending());
    let gate = Rc::new(Notify::new());
    let mut handles = Vec::new();
    for nth in 0..100 {
        let gate = Rc::clone(&gate);
        handles.push(set.spawn(async move {
            gate.notified().await;
            nth
        }));
    }
    yield_now().await;
    assert!(set.try_join_next().is_none());
    gate.notify_waiters();
    while !handles.iter().all(CancelHandle::is_finished) {
        yield_now().await;
    }
    // More than the budget of one poll.
    let mut others: Vec<_> = std::iter::from_fn(|| set.try_join_next()).map(Result::unwrap).collect();
    others.sort_unstable();
    assert_eq!(others, (0..100).collect::<Vec<_>>());
    assert_eq!(set.len(), 1);
    never.cancel();
    assert!(set.try_join_next().unwrap().unwrap_err().is_cancelled());
    assert!(set.try_join_next().is_none() && set.is_empty());
    // One that is waited for is not given twice.
    let mut set: JoinSet<u8> = [1, 2].into_iter().map(|nth| async move { nth }).collect();
    assert_eq!(set.join_next().await.unwrap().unwrap(), 1);
    assert_eq!(set.try_join_next().unwrap().unwrap(), 2);
    assert!(set.join_next().await.is_none());
});

everywhere!(a_handle_cancels_its_task_wherever_its_other_handle_is, |_| async {
    let held = Rc::new(());
    let waits = |held: &Rc<()>| {
        let held = Rc::clone(held);
        async move {
            let _held = held;
            pending::<()>().await;
        }
    };
    // The other handle is awaited.
    let task = spawn(waits(&held));
    let (handle, again) = (task.cancel_handle(), task.cancel_handle().clone());
    let waiting = spawn(task);
    yield_now().await;
    assert!(!handle.is_finished() && Rc::strong_count(&held) == 2);
    handle.cancel();
    assert!(again.is_finished() && Rc::strong_count(&held) == 1);
    assert!(waiting.await.unwrap().unwrap_err().is_cancelled());
    // Detached: its place is free again, and is not cancelled by the old handle.
    let place = |debug: String| debug[debug.find('(').unwrap()..debug.find('.').unwrap()].to_string();
    let task = spawn(waits(&held));
    let handle = task.cancel_handle();
    task.detach();
    yield_now().await;
    handle.cancel();
    assert!(handle.is_finished() && Rc::strong_count(&held) == 1);
    let next = spawn(waits(&held));
    assert_eq!(place(format!("{handle:?}")), place(format!("{next:?}")));
    handle.cancel();
    yield_now().await;
    assert!(handle.is_finished() && !next.is_finished());
    next.cancel();
    // By the task itself: at its next wait.
    let (sender, receiver) = oneshot::channel::<CancelHandle>();
    let task = spawn(async move {
        let own = receiver.await.unwrap();
        own.cancel();
        assert!(!own.is_finished());
        pending::<()>().await;
    });
    sender.send(task.cancel_handle()).unwrap();
    assert!(task.await.unwrap_err().is_cancelled());
    // An output that is there stays.
    let task = spawn(async { 7 });
    yield_now().await;
    let handle = task.cancel_handle();
    handle.cancel();
    assert_eq!((handle.is_finished(), task.await.unwrap()), (true, 7));
    let panicked = spawn(async { panic!("on purpose") }).await.unwrap_err();
    assert!(panicked.is_panic() && !panicked.is_cancelled());
    assert_eq!(panicked.try_into_panic().unwrap().downcast_ref::<&str>(), Some(&"on purpose"));
});

scenario!(a_task_of_another_thread_is_cancelled_by_its_handle, |case| async move {
    if !case.is_real() {
        return eprintln!("skipped: in the simulation there are no other threads");
    }
    let (remote, held) = (runtime(|runtime| runtime.remote()), Arc::new(()));
    let theirs = Arc::clone(&held);
    let other = std::thread::spawn(move || {
        let task = remote.spawn_with_result(|| async move {
            let _held = theirs;
            pending::<u8>().await
        });
        let task = task.unwrap();
        task.cancel();
        task.join_blocking().unwrap_err().is_cancelled()
    });
    while !other.is_finished() {
        sleep(ms(1)).await;
    }
    assert!(other.join().unwrap());
    assert_eq!(Arc::strong_count(&held), 1);
});

everywhere!(a_barrier_lets_all_through_when_the_last_one_arrives, |_| async {
    let barrier = Rc::new(Barrier::new(3));
    let mut set = JoinSet::new();
    for _ in 0..2 {
        let barrier = Rc::clone(&barrier);
        set.spawn(async move { [barrier.wait().await, barrier.wait().await] });
    }
    for _ in 0..10 {
        yield_now().await;
    }
    assert!(set.try_join_next().is_none());
    let mine = [barrier.wait().await, barrier.wait().await];
    let mut all = set.join_all().await;
    all.push(mine);
    for round in 0..2 {
        assert_eq!(all.iter().filter(|leads| leads[round]).count(), 1);
    }
});

scenario!(ends_of_channels_are_closed_marked_and_made_anew, |_| async {
    let (mut sender, mut receiver) = oneshot::channel::<u8>();
    receiver.close();
    sender.closed().await;
    assert_eq!(sender.send(1).unwrap_err().into_inner(), 1);
    let (sender, mut receiver) = oneshot::channel();
    sender.send(2).unwrap();
    receiver.close();
    assert_eq!(receiver.recv_blocking(), Ok(2));
    let (sender, mut receiver) = watch::channel(1);
    assert_eq!((receiver.has_changed(), sender.sender_count()), (Ok(false), 1));
    receiver.mark_changed();
    receiver.changed().await.unwrap();
    sender.send(2).unwrap();
    receiver.mark_unchanged();
    assert_eq!(receiver.has_changed(), Ok(false));
    assert!(receiver.same_channel(&sender.subscribe()) && sender.same_channel(&sender.clone()));
    let (sender, mut receiver) = broadcast::channel(4);
    sender.send(1).unwrap();
    let (mut clone, mut anew) = (receiver.clone(), receiver.resubscribe());
    sender.send(2).unwrap();
    assert_eq!((receiver.recv_blocking(), clone.try_recv(), anew.try_recv()), (Ok(1), Ok(1), Ok(2)));
});

everywhere!(a_lock_is_kept_alive_by_its_guard, |_| async {
    let lock = Arc::new(RwLock::from(1));
    let (one, other) = (lock.read_arc().await, lock.try_read_arc().unwrap());
    assert!(lock.try_write_arc().is_none());
    let writes = spawn({
        let lock = Arc::clone(&lock);
        async move { *lock.write_arc().await += 1 }
    });
    yield_now().await;
    assert_eq!(*one + *other, 2);
    drop((one, other));
    writes.await.unwrap();
    let guard = lock.read_arc().await;
    drop(lock);
    assert_eq!(*guard, 2);
});

scenario!(a_sleep_and_an_interval_begin_anew, |_| async {
    let mut nap = sleep(Duration::from_secs(3600));
    assert!(poll_once(pin!(&mut nap)).await.is_none());
    nap.reset(ms(2));
    let begin = now();
    (&mut nap).await;
    assert!(now() >= begin + ms(2));
    nap.reset(ms(2));
    (&mut nap).await;
    assert!(now() >= begin + ms(4));
    let mut ticks = interval(Duration::from_secs(3600));
    ticks.tick().await;
    for _ in 0..2 {
        ticks.reset_immediately();
        assert!(ticks.tick().await <= now());
    }
    let begin = now();
    ticks.reset_after(ms(3));
    assert!(ticks.tick().await >= begin + ms(3));
    ticks.reset_at(begin);
    assert_eq!(ticks.tick().await, begin);
    assert_eq!(ticks.missed_tick(), MissedTick::Burst);
});

scenario!(an_interval_ticks_at_whole_periods_and_never_early, |_| async {
    let start = now();
    let mut ticks = interval(ms(5));
    for nth in 0..4 {
        let due = ticks.tick().await;
        assert_eq!(due, ticks_at(due, start, nth));
        assert!(now() >= due);
    }
    ticks.set_missed_tick(MissedTick::Delay);
    ticks.reset();
    // A dropped tick is not lost, also if it was due: the thread may have lost its CPU for long.
    let _ = poll_once(pin!(ticks.tick())).await;
    ticks.tick().await;
});

/// The time of the `nth` tick, counted from the first, which was at or after `start`.
fn ticks_at(due: std::time::Instant, start: std::time::Instant, nth: u32) -> std::time::Instant {
    let first = due - ms(5) * nth;
    assert!(first >= start);
    first + ms(5) * nth
}

scenario!(a_deadline_is_waited_for_and_one_that_is_over_is_not, |_| async {
    let begin = now();
    sleep_until(begin + ms(10)).await;
    assert!(now() >= begin + ms(10));
    assert!(poll_once(pin!(sleep_until(begin))).await.is_some());
    assert!(timeout_at(now() + ms(5), pending::<()>()).await.is_err());
    assert!(timeout(Duration::MAX, async {}).await.is_ok());
});

scenario!(a_task_of_another_thread_gives_its_output_back, |case| async move {
    if !case.is_real() {
        return eprintln!("skipped: in the simulation there are no other threads");
    }
    let remote = runtime(|runtime| runtime.remote());
    let other = std::thread::spawn(move || {
        let task = remote.spawn_with_result(|| async {
            // What is not `Send` stays where it is made.
            let local = Rc::new(6);
            yield_now().await;
            *local * 7
        });
        let panics = remote.spawn_with_result(|| async { panic!("on purpose") });
        let panicked: Result<(), JoinError> = panics.unwrap().join_blocking();
        (task.unwrap().join_blocking().unwrap(), matches!(panicked, Err(JoinError::Panicked(_))))
    });
    while !other.is_finished() {
        sleep(ms(1)).await;
    }
    assert_eq!(other.join().unwrap(), (42, true));
});
