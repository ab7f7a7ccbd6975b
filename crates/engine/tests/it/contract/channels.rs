//! Bounded channels beyond a send and a receive: permits, several messages at once, the end; semaphores that
//! give several permits.

use crate::support::{Case, numbers, poll_once, some_turns, with_runtime};
use futures_util::StreamExt;
use ringroad_engine::sync::{
    self, RecvError, Semaphore, SendTimeoutError, TryRecvError, TrySendError, oneshot,
};
use ringroad_engine::{Builder, spawn, yield_now};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

fn unchanged(builder: Builder) -> Builder {
    builder
}

everywhere!(a_permit_keeps_a_place_and_gives_it_back, |_| async {
    let (sender, receiver) = sync::bounded(2);
    let permit = sender.reserve().await.unwrap();
    assert_eq!((sender.room(), sender.len(), sender.capacity()), (1, 0, 2));
    sender.try_send(1).unwrap();
    assert_eq!(sender.try_send(2), Err(TrySendError::Full(2)));
    assert!(sender.is_full() && matches!(sender.try_reserve(), Err(TrySendError::Full(()))));
    // The order is that of the sends.
    permit.send(3).unwrap();
    assert_eq!((receiver.recv().await, receiver.recv().await), (Ok(1), Ok(3)));
    let kept = (sender.reserve().await.unwrap(), sender.try_reserve().unwrap());
    assert_eq!(sender.room(), 0);
    drop(kept);
    assert_eq!(sender.room(), 2);
    let permit = sender.clone().reserve_owned().await.unwrap();
    let task = spawn(async move { permit.send(4).unwrap().room() });
    assert_eq!((task.await.unwrap(), receiver.recv().await), (1, Ok(4)));
    let permit = sender.clone().try_reserve_owned().unwrap();
    assert!(permit.release().unwrap().same_channel(&sender));
    assert_eq!((sender.room(), sender.sender_count()), (2, 1));
});

everywhere!(a_wait_for_a_place_that_is_given_up_loses_none, |_| async {
    let (sender, receiver) = sync::bounded(1);
    sender.try_send(1).unwrap();
    let mut first = Box::pin(sender.reserve());
    let mut second = Box::pin(sender.reserve());
    assert!(poll_once(first.as_mut()).await.is_none());
    assert!(poll_once(second.as_mut()).await.is_none());
    assert_eq!(receiver.recv().await, Ok(1));
    // The first was woken for the place, and goes away.
    drop(first);
    let permit = second.await.unwrap();
    let mut third = Box::pin(sender.send(3));
    assert!(poll_once(third.as_mut()).await.is_none());
    drop(permit);
    third.await.unwrap();
    assert_eq!(receiver.try_recv(), Ok(3));
});

everywhere!(places_for_many_messages_are_taken_together_or_not_at_all, |_| async {
    let (sender, receiver) = sync::bounded(4);
    let mut permits = sender.reserve_many(3).await.unwrap();
    assert_eq!((permits.len(), sender.room()), (3, 1));
    assert!(sender.try_reserve_many(2).is_err_and(|why| why.is_full()));
    assert_eq!(sender.room(), 1, "none of the two was taken");
    permits.next().unwrap().send(1).unwrap();
    let second = permits.next().unwrap();
    drop(permits);
    assert_eq!((receiver.try_recv(), sender.room()), (Ok(1), 3), "the third is free again");
    let mut many = Box::pin(sender.reserve_many(4));
    assert!(poll_once(many.as_mut()).await.is_none());
    second.send(2).unwrap();
    assert!(poll_once(many.as_mut()).await.is_none());
    assert_eq!(receiver.try_recv(), Ok(2));
    let sent = many.await.unwrap().zip(3..).map(|(permit, message)| permit.send(message));
    sent.for_each(Result::unwrap);
    assert!(sender.is_full());
    let mut all = Vec::new();
    assert_eq!((receiver.recv_many(&mut all, 9).await, &all), (Ok(4), &vec![3, 4, 5, 6]));
    assert_eq!(sender.try_reserve_many(4).unwrap().count(), 4);
    assert_eq!((sender.reserve_many(0).await.unwrap().len(), sender.room()), (0, 4));
    assert!(sender.try_reserve_many(5).is_err_and(|why| why.is_full()));
    receiver.close();
    assert!(sender.try_reserve_many(1).is_err_and(|why| why.is_closed()));
    assert!(sender.reserve_many(1).await.is_err());
});

everywhere!(a_sender_that_wants_many_places_is_not_overtaken_by_those_that_want_few, |_| async {
    let (sender, receiver) = sync::bounded(3);
    (0..3).for_each(|message| sender.try_send(message).unwrap());
    let mut many = Box::pin(sender.reserve_many(3));
    let mut behind = Box::pin(sender.send(6));
    assert!(poll_once(many.as_mut()).await.is_none());
    assert!(poll_once(behind.as_mut()).await.is_none());
    for message in 0..3 {
        assert_eq!(receiver.try_recv(), Ok(message));
        assert_eq!((sender.try_send(9), sender.room()), (Err(TrySendError::Full(9)), 0));
        assert!(poll_once(pin!(sender.send(9))).await.is_none());
        assert!(poll_once(behind.as_mut()).await.is_none());
    }
    // It was given its places, and others find none also before it runs.
    assert!(sender.try_reserve().is_err_and(|why| why.is_full()));
    let permits = many.await.unwrap();
    permits.zip(3..).for_each(|(permit, message)| permit.send(message).unwrap());
    assert_eq!(receiver.recv().await, Ok(3));
    behind.await.unwrap();
    let mut all = Vec::new();
    assert_eq!((receiver.recv_many(&mut all, 9).await, all), (Ok(3), vec![4, 5, 6]));
});

everywhere!(a_wait_for_many_places_that_is_given_up_lets_those_behind_it_through, |_| async {
    let (sender, receiver) = sync::bounded(2);
    sender.try_send(1).unwrap();
    let mut many = Box::pin(sender.reserve_many(2));
    let mut behind = Box::pin(sender.send(2));
    assert!(poll_once(many.as_mut()).await.is_none());
    assert!(poll_once(behind.as_mut()).await.is_none());
    drop(many);
    assert_eq!(poll_once(behind.as_mut()).await, Some(Ok(())));
    // One that was given its places, and goes away before it is polled.
    let mut given = Box::pin(sender.reserve_many(2));
    let (mut first, mut second) = (Box::pin(sender.reserve()), Box::pin(sender.reserve()));
    assert!(poll_once(given.as_mut()).await.is_none());
    assert!(poll_once(first.as_mut()).await.is_none());
    assert!(poll_once(second.as_mut()).await.is_none());
    assert_eq!((receiver.try_recv(), receiver.try_recv()), (Ok(1), Ok(2)));
    drop(given);
    let permits = (first.await.unwrap(), second.await.unwrap());
    assert_eq!(sender.room(), 0);
    drop(permits);
    assert_eq!(sender.room(), 2);
});

everywhere!(a_close_takes_places_back_from_senders_that_have_not_run_since, |_| async {
    let (sender, receiver) = sync::bounded(1);
    sender.try_send("first").unwrap();
    let mut given = Box::pin(sender.send("second"));
    assert!(poll_once(given.as_mut()).await.is_none());
    assert_eq!(receiver.try_recv(), Ok("first"));
    // It has its place, and may never be polled again: the end does not wait for it.
    receiver.close();
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Closed));
    assert_eq!(given.await.unwrap_err().into_inner(), "second");
    let (sender, receiver) = sync::bounded::<u8>(1);
    sender.try_send(1).unwrap();
    let mut given = Box::pin(sender.reserve());
    assert!(poll_once(given.as_mut()).await.is_none());
    assert_eq!(receiver.try_recv(), Ok(1));
    receiver.close();
    drop(given);
    assert_eq!(receiver.recv().await, Err(RecvError));
});

everywhere!(the_end_of_a_channel_comes_behind_its_last_permit, |_| async {
    let (sender, receiver) = sync::bounded(3);
    let permits: Vec<_> = (0..3).map(|_| sender.try_reserve().unwrap()).collect();
    let other = receiver.clone();
    let waiting = spawn(async move { (other.recv().await, other.recv().await) });
    some_turns().await;
    assert!(receiver.close() && !receiver.close());
    assert!(sender.try_reserve().is_err_and(|why| why.is_closed()));
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty), "a permit may still send");
    let mut permits = permits.into_iter();
    permits.next().unwrap().send("late").unwrap();
    some_turns().await;
    assert!(!waiting.is_finished());
    drop(permits.next());
    some_turns().await;
    assert!(!waiting.is_finished());
    drop(permits);
    assert_eq!(waiting.await.unwrap(), (Ok("late"), Err(RecvError)));
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Closed));
    let (sender, receiver) = sync::bounded(1);
    let permit = sender.try_reserve().unwrap();
    drop(receiver);
    assert_eq!(permit.send("mine").unwrap_err().into_inner(), "mine");
    sender.closed().await;
});

everywhere!(unread_messages_are_dropped_with_the_last_receiver, |_| async {
    let (ask, asked) = sync::bounded(4);
    let (answer, answered) = oneshot::channel::<u8>();
    ask.send(answer).await.unwrap();
    let other = asked.clone();
    drop(asked);
    let mut answered = pin!(answered);
    assert!(poll_once(answered.as_mut()).await.is_none(), "there is another receiver");
    // The sender of the question is still there, and would wait for an answer that nothing gives.
    drop(other);
    assert_eq!(poll_once(answered.as_mut()).await, Some(Err(RecvError)));
    assert!(ask.is_closed() && ask.is_empty());
});

everywhere!(a_send_with_a_limit_of_time_returns_its_message, |_| async {
    let span = Duration::from_millis(3);
    let (sender, receiver) = sync::bounded(1);
    sender.send_timeout("first", span).await.unwrap();
    assert_eq!(sender.send_timeout("second", span).await, Err(SendTimeoutError::Elapsed("second")));
    assert_eq!(receiver.recv().await, Ok("first"));
    sender.send_timeout("third", span).await.unwrap();
    receiver.close();
    assert_eq!(sender.send_timeout("fourth", span).await, Err(SendTimeoutError::Closed("fourth")));
    assert_eq!((receiver.try_recv(), receiver.try_recv()), (Ok("third"), Err(TryRecvError::Closed)));
});

everywhere!(messages_are_received_many_at_once, |_| async {
    let (sender, receiver) = sync::bounded(4);
    let sending = spawn(async move {
        for number in 0..10 {
            sender.send(number).await.unwrap();
        }
    });
    let (mut all, mut received) = (Vec::new(), 0);
    while let Ok(moved) = receiver.recv_many(&mut all, 3).await {
        assert!((1..=3).contains(&moved));
        received += moved;
    }
    assert_eq!((all, received), ((0..10).collect(), 10));
    sending.await.unwrap();
    let (sender, mut receiver) = sync::unbounded();
    (0..10).for_each(|number| sender.send(number).unwrap());
    let mut all = Vec::new();
    assert_eq!(receiver.recv_many(&mut all, 4).await, Ok(4));
    sender.send(10).unwrap();
    assert_eq!((receiver.recv_many(&mut all, 1).await, receiver.sender_count()), (Ok(1), 1));
    drop(sender);
    assert!(receiver.is_closed());
    assert_eq!(receiver.recv_many(&mut all, 100).await, Ok(6));
    assert_eq!(receiver.recv_many(&mut all, 100).await, Err(RecvError));
    assert_eq!(all, (0..=10).collect::<Vec<_>>());
});

everywhere!(an_unbounded_sender_is_told_that_its_receiver_is_gone, |_| async {
    let (sender, receiver) = sync::unbounded::<u8>();
    let (other, told) = (sender.clone(), sender.clone());
    assert!(sender.same_channel(&other) && sender.is_empty());
    let waiting = spawn(async move { told.closed().await });
    some_turns().await;
    assert!(!waiting.is_finished() && poll_once(pin!(other.closed())).await.is_none());
    drop(receiver);
    waiting.await.unwrap();
    other.closed().await;
    let (sender, mut receiver) = sync::unbounded::<u8>();
    let waiting = spawn(async move { sender.closed().await });
    some_turns().await;
    receiver.close();
    waiting.await.unwrap();
});

everywhere!(a_receiver_that_was_polled_and_left_keeps_no_message_from_the_others, |_| async {
    let (sender, mut left) = sync::bounded(1);
    let receiver = left.clone();
    assert!(poll_once(pin!(left.next())).await.is_none());
    let waiting = spawn(async move { receiver.recv().await });
    some_turns().await;
    sender.try_send(7).unwrap();
    assert_eq!(waiting.await.unwrap(), Ok(7));
    sender.try_send(8).unwrap();
    drop(sender);
    assert_eq!(left.collect::<Vec<_>>().await, [8]);
});

everywhere!(a_forced_send_replaces_the_oldest_message_and_no_permit, |_| async {
    let (sender, receiver) = sync::bounded(2);
    assert_eq!((sender.force_send(1), sender.force_send(2)), (Ok(None), Ok(None)));
    assert_eq!(sender.force_send(3), Ok(Some(1)));
    assert_eq!((receiver.try_recv(), receiver.try_recv()), (Ok(2), Ok(3)));
    let permits = (sender.try_reserve().unwrap(), sender.try_reserve().unwrap());
    assert_eq!(sender.force_send(4), Ok(None));
    permits.0.send(5).unwrap();
    assert_eq!((sender.len(), sender.room()), (2, 0));
    drop(permits.1);
    assert_eq!((receiver.try_recv(), receiver.try_recv(), sender.room()), (Ok(4), Ok(5), 2));
});

everywhere!(a_weak_end_keeps_no_channel_open, |_| async {
    let (sender, receiver) = sync::bounded::<u8>(1);
    let (to, from) = (sender.downgrade(), receiver.downgrade());
    assert_eq!(to.upgrade().unwrap().sender_count(), 2);
    assert_eq!(from.upgrade().unwrap().receiver_count(), 2);
    drop(sender);
    assert!(to.upgrade().is_none());
    assert_eq!(receiver.recv().await, Err(RecvError));
    drop(receiver);
    assert!(from.upgrade().is_none());
});

cases!(
    /// Permits and sends of two runtimes, of which some are given up at each point, and two receivers. Every
    /// message arrives once, and no place is lost.
    permits_of_several_threads_lose_no_message_and_no_place,
    real,
    |case: Case| {
        const EACH: u64 = 3000;
        let (sender, receiver) = sync::bounded::<u64>(3);
        let mut threads = Vec::new();
        for seed in 1..=2 {
            let sender = sender.clone();
            threads.push(thread::spawn(move || {
                with_runtime(case, unchanged, move |_, runtime| {
                    let sends = async {
                        let mut number = numbers(seed);
                        for message in 0..EACH {
                            // Waits that are given up, some of them after they were woken.
                            for _ in 0..number(3) {
                                let mut given_up = pin!(sender.reserve());
                                if poll_once(given_up.as_mut()).await.is_none() && number(2) == 0 {
                                    yield_now().await;
                                }
                            }
                            match number(4) {
                                0 => sender.send(message).await.unwrap(),
                                1 => sender.reserve().await.unwrap().send(message).unwrap(),
                                2 => {
                                    let mut given_up = Box::pin(sender.reserve_many(3));
                                    if poll_once(given_up.as_mut()).await.is_none() {
                                        yield_now().await;
                                    }
                                    // It may have been given its places, and nothing polls it.
                                    drop(given_up);
                                    let mut permits = sender.reserve_many(1 + number(3)).await.unwrap();
                                    permits.next().unwrap().send(message).unwrap();
                                }
                                _ => sender.send_blocking(message).unwrap(),
                            }
                        }
                    };
                    runtime.block_on(sends).unwrap();
                });
            }));
        }
        let sum = Arc::new(AtomicU64::new(0));
        let receiving: Vec<_> = (0..2)
            .map(|nth| {
                let (receiver, sum) = (receiver.clone(), Arc::clone(&sum));
                thread::spawn(move || {
                    with_runtime(case, unchanged, move |_, runtime| {
                        let add = |message| {
                            sum.fetch_add(message + 1, Ordering::Relaxed);
                        };
                        let receives = async {
                            let mut many = Vec::new();
                            loop {
                                // One that finds nothing is given up.
                                let received = match poll_once(pin!(receiver.recv())).await {
                                    Some(received) => received.map(add),
                                    None if nth == 0 => receiver.recv().await.map(add),
                                    None => {
                                        let moved = receiver.recv_many(&mut many, 2).await;
                                        moved.map(|_| many.drain(..).for_each(add))
                                    }
                                };
                                if received.is_err() {
                                    return;
                                }
                            }
                        };
                        runtime.block_on(receives).unwrap();
                    });
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!((sender.sender_count(), sender.receiver_count()), (1, 3));
        drop(sender);
        receiving.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(sum.load(Ordering::Relaxed), 2 * (1..=EACH).sum::<u64>());
        assert_eq!((receiver.room(), receiver.is_empty()), (3, true));
    }
);

everywhere!(a_task_that_wants_many_permits_is_not_overtaken, |_| async {
    let semaphore = Arc::new(Semaphore::new(3));
    let held = semaphore.acquire().await;
    let many = spawn({
        let semaphore = Arc::clone(&semaphore);
        async move { semaphore.acquire_many_arc(3).await }
    });
    some_turns().await;
    assert!(semaphore.try_acquire().is_none(), "two are free, and a task waits for three");
    let mut behind = Box::pin(semaphore.acquire());
    assert!(poll_once(behind.as_mut()).await.is_none());
    drop(held);
    let many = many.await.unwrap();
    assert_eq!((many.permits(), semaphore.available_permits()), (3, 0));
    drop(many);
    drop(behind.await);
    assert_eq!(semaphore.available_permits(), 3);
    assert_eq!(semaphore.forget_permits(2), 2);
    semaphore.try_acquire_arc().unwrap().forget();
    assert_eq!((semaphore.forget_permits(2), semaphore.available_permits()), (0, 0));
    semaphore.add_permits(1);
    drop(semaphore.try_acquire().unwrap());
});

everywhere!(a_wait_for_permits_that_is_given_up_lets_those_behind_it_through, |_| async {
    let semaphore = Semaphore::new(2);
    let held = semaphore.acquire().await;
    let mut many = Box::pin(semaphore.acquire_many(2));
    let mut behind = Box::pin(semaphore.acquire());
    assert!(poll_once(many.as_mut()).await.is_none());
    assert!(poll_once(behind.as_mut()).await.is_none());
    drop(many);
    let one = poll_once(behind.as_mut()).await.unwrap();
    // One that was given its permits, and goes away before it is polled.
    let mut given = Box::pin(semaphore.acquire_many(2));
    assert!(poll_once(given.as_mut()).await.is_none());
    drop((one, held));
    assert_eq!(semaphore.available_permits(), 0);
    drop(given);
    assert_eq!(semaphore.available_permits(), 2);
    assert_eq!(semaphore.acquire_many(2).await.permits(), 2);
});

cases!(
    /// Waits of two runtimes for one to three permits of three, some of which are given up at each point.
    permits_that_are_given_up_by_several_threads_all_come_back,
    real,
    |case: Case| {
        let semaphore = Arc::new(Semaphore::new(3));
        let threads: Vec<_> = (1..=2)
            .map(|seed| {
                let semaphore = Arc::clone(&semaphore);
                thread::spawn(move || {
                    with_runtime(case, unchanged, move |_, runtime| {
                        let tasks = async move {
                            let semaphore = Rc::new(semaphore);
                            let tasks: Vec<_> = (0..4)
                                .map(|task| {
                                    let semaphore = Rc::clone(&semaphore);
                                    spawn(async move {
                                        let mut number = numbers(10 * seed + task);
                                        for _ in 0..1000 {
                                            let mut wait = pin!(semaphore.acquire_many(1 + number(3)));
                                            match poll_once(wait.as_mut()).await {
                                                None if number(2) == 0 => yield_now().await,
                                                None => drop(wait.await),
                                                Some(_permits) => yield_now().await,
                                            }
                                        }
                                    })
                                })
                                .collect();
                            for task in tasks {
                                task.await.unwrap();
                            }
                        };
                        runtime.block_on(tasks).unwrap();
                    });
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(semaphore.available_permits(), 3);
    }
);

#[test]
#[should_panic(expected = "3 permits of a channel with room for 2 messages")]
fn more_places_than_a_channel_has_are_not_waited_for() {
    let (sender, _receiver) = sync::bounded::<u8>(2);
    drop(sender.reserve_many(3));
}

#[test]
fn futures_of_channels_may_move_to_other_threads() {
    fn is_send<T: Send>(_: T) {}
    let (sender, receiver) = sync::bounded::<u8>(1);
    let semaphore = Arc::new(Semaphore::new(1));
    is_send((sender.send(1), sender.reserve(), sender.closed(), receiver.recv()));
    is_send((semaphore.acquire(), semaphore.acquire_arc()));
    is_send(sender.reserve_many(1));
    is_send(sender.try_reserve().unwrap());
    is_send(sender.reserve_owned());
    is_send(receiver);
}
