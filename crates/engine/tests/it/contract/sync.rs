//! Channels, locks and counts between tasks, and between runtimes in their threads.

use crate::support::{Case, poll_once, some_turns, with_runtime};
use futures_util::StreamExt;
use ringroad_engine::sync::{self, Mutex, Semaphore, TryRecvError, UnboundedSender, WaitGroup, oneshot};
use ringroad_engine::time::sleep;
use ringroad_engine::{Builder, spawn, yield_now};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::hint::spin_loop;
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

fn unchanged(builder: Builder) -> Builder {
    builder
}

everywhere!(a_full_channel_makes_the_sender_wait_until_there_is_room, |_| async {
    let (sender, receiver) = sync::bounded(2);
    let sent = Rc::new(Cell::new(0));
    let sending = spawn({
        let sent = Rc::clone(&sent);
        async move {
            for number in 0..10 {
                sender.send(number).await.unwrap();
                sent.set(number + 1);
            }
        }
    });
    some_turns().await;
    assert_eq!(sent.get(), 2);
    for number in 0..10 {
        assert_eq!(receiver.recv().await, Ok(number));
        some_turns().await;
        assert_eq!(sent.get(), 10.min(number + 3));
    }
    sending.await.unwrap();
    assert!(receiver.recv().await.is_err(), "nobody is left to send");
});

everywhere!(an_unbounded_channel_takes_all_and_keeps_the_order, |_| async {
    let (sender, mut receiver) = sync::unbounded();
    for number in 0..3000 {
        sender.send(number).unwrap();
    }
    for number in 0..2000 {
        assert_eq!(receiver.recv().await, Ok(number));
    }
    // Behind those that are left.
    sender.send(3000).unwrap();
    drop(sender);
    for number in 2000..=3000 {
        assert_eq!(receiver.recv().await, Ok(number));
    }
    assert!(receiver.recv().await.is_err());
});

everywhere!(a_waiting_unbounded_receiver_is_woken_by_a_message_and_by_the_end, |_| async {
    let (sender, mut receiver) = sync::unbounded();
    let came = Rc::new(RefCell::new(Vec::new()));
    let receiving = spawn({
        let came = Rc::clone(&came);
        async move {
            while let Ok(message) = receiver.recv().await {
                came.borrow_mut().push(message);
            }
        }
    });
    let other = sender.clone();
    for (nth, sender) in [&sender, &other, &sender].into_iter().enumerate() {
        some_turns().await;
        assert_eq!(came.borrow().len(), nth);
        sender.send(nth).unwrap();
    }
    some_turns().await;
    assert_eq!(*came.borrow(), [0, 1, 2]);
    drop(sender);
    some_turns().await;
    assert!(!receiving.is_finished(), "there is another sender");
    drop(other);
    receiving.await.unwrap();
});

everywhere!(an_unbounded_channel_is_a_stream_of_its_messages, |_| async {
    let (sender, mut receiver) = sync::unbounded();
    assert!(receiver.is_empty());
    (0..3).for_each(|number| sender.send(number).unwrap());
    assert_eq!((receiver.len(), receiver.recv().await), (3, Ok(0)));
    sender.send(3).unwrap();
    assert_eq!(receiver.len(), 3, "those that were taken out of the queue and those behind them");
    drop(sender);
    assert_eq!(receiver.collect::<Vec<_>>().await, [1, 2, 3]);
});

everywhere!(an_unbounded_channel_that_is_closed_or_left_gives_messages_back, |_| async {
    let (sender, mut receiver) = sync::unbounded();
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
    // A receive that is given up takes nothing with it.
    assert!(poll_once(pin!(receiver.recv())).await.is_none());
    sender.send("before").unwrap();
    receiver.close();
    assert_eq!(sender.send("too late").unwrap_err().into_inner(), "too late");
    assert_eq!(receiver.recv().await, Ok("before"));
    assert!(receiver.recv().await.is_err());
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Closed));
    // Messages that were not received are dropped with the receiver, and their destructors may use the
    // channel.
    struct Sends(UnboundedSender<Option<Sends>>, Rc<Cell<u32>>);
    impl Drop for Sends {
        fn drop(&mut self) {
            assert!(self.0.is_closed() && self.0.send(None).is_err());
            self.1.set(self.1.get() + 1);
        }
    }
    let dropped = Rc::new(Cell::new(0));
    let (sender, mut receiver) = sync::unbounded();
    sender.send(None).unwrap();
    for before in [true, false] {
        sender.send(Some(Sends(sender.clone(), Rc::clone(&dropped)))).unwrap();
        if before {
            // Takes what was sent so far; of that one more is to be received.
            assert!(receiver.recv().await.unwrap().is_none());
        }
    }
    drop(receiver);
    assert_eq!(dropped.get(), 2);
});

everywhere!(a_dropped_receive_passes_its_turn_on, |_| async {
    let (sender, receiver) = sync::bounded(1);
    let mut first = Box::pin(receiver.recv());
    let mut second = Box::pin(receiver.recv());
    assert!(poll_once(first.as_mut()).await.is_none());
    assert!(poll_once(second.as_mut()).await.is_none());
    sender.send(7).await.unwrap();
    // The first was woken for it, and goes away.
    drop(first);
    assert_eq!(second.await, Ok(7));
});

everywhere!(a_send_without_a_receiver_returns_the_value, |_| async {
    let (sender, receiver) = sync::bounded(1);
    drop(receiver);
    assert_eq!(sender.send("mine").await.unwrap_err().into_inner(), "mine");
    let (sender, receiver) = oneshot::channel();
    drop(receiver);
    assert_eq!(sender.send("mine too").unwrap_err().into_inner(), "mine too");
});

everywhere!(a_oneshot_brings_its_value_or_the_news_that_there_is_none, |_| async {
    let (sender, receiver) = oneshot::channel();
    let waiting = spawn(receiver);
    some_turns().await;
    sender.send(42).unwrap();
    assert_eq!(waiting.await.unwrap(), Ok(42));
    let (sender, receiver) = oneshot::channel::<u8>();
    let waiting = spawn(receiver);
    some_turns().await;
    drop(sender);
    assert!(waiting.await.unwrap().is_err());
});

everywhere!(a_oneshot_is_tried_without_waiting_and_tells_its_sender_of_its_end, |_| async {
    let (mut sender, mut receiver) = oneshot::channel();
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
    assert!(poll_once(pin!(sender.closed())).await.is_none() && !sender.is_closed());
    sender.send(42).unwrap();
    assert_eq!(receiver.try_recv(), Ok(42));
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Closed));
    let (sender, mut receiver) = oneshot::channel::<u8>();
    drop(sender);
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Closed));
    assert!(receiver.await.is_err());
    let (mut sender, receiver) = oneshot::channel::<u8>();
    let dropped = spawn(async move {
        some_turns().await;
        drop(receiver);
    });
    sender.closed().await;
    assert!(sender.is_closed());
    dropped.await.unwrap();
});

/// Counts what was dropped.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A thread sends while this one drops the receiver. The pause before the drop grows and shrinks, so that the
/// two meet at each point of the other's work.
#[test]
fn a_oneshot_dropped_while_its_value_arrives_drops_the_value_once() {
    const ROUNDS: usize = 20_000;
    let dropped = Arc::new(AtomicUsize::new(0));
    let (give, take) = mpsc::channel::<oneshot::Sender<Counted>>();
    let sending = thread::spawn({
        let dropped = Arc::clone(&dropped);
        move || take.into_iter().for_each(|sender| drop(sender.send(Counted(Arc::clone(&dropped)))))
    });
    for round in 0..ROUNDS {
        let (sender, mut receiver) = oneshot::channel();
        let mut waits = pin!(&mut receiver);
        assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        give.send(sender).unwrap();
        for _ in 0..round % 512 {
            spin_loop();
        }
        drop(receiver);
    }
    drop(give);
    sending.join().unwrap();
    assert_eq!(dropped.load(Ordering::Relaxed), ROUNDS);
}

everywhere!(a_semaphore_lets_no_more_in_than_it_has_permits, |_| async {
    let semaphore = Rc::new(Semaphore::new(3));
    let (inside, most) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let workers: Vec<_> = (0..20)
        .map(|_| {
            let (semaphore, inside, most) = (Rc::clone(&semaphore), Rc::clone(&inside), Rc::clone(&most));
            spawn(async move {
                let _permit = semaphore.acquire().await;
                inside.set(inside.get() + 1);
                most.set(most.get().max(inside.get()));
                sleep(Duration::from_millis(2)).await;
                inside.set(inside.get() - 1);
            })
        })
        .collect();
    for worker in workers {
        worker.await.unwrap();
    }
    assert_eq!((most.get(), inside.get()), (3, 0));
});

everywhere!(a_lock_is_held_across_waits_by_one_at_a_time, |_| async {
    let shared = Rc::new(Mutex::new(Vec::new()));
    let writers: Vec<_> = (0..5)
        .map(|writer| {
            let shared = Rc::clone(&shared);
            spawn(async move {
                let mut shared = shared.lock().await;
                for _ in 0..3 {
                    shared.push(writer);
                    yield_now().await;
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let shared = shared.lock().await;
    assert!(shared.chunks(3).all(|chunk| chunk.iter().all(|writer| *writer == chunk[0])), "{shared:?}");
});

everywhere!(a_wait_group_ends_with_the_last_piece_of_work, |_| async {
    let group = WaitGroup::new();
    group.wait().await;
    let work: Vec<_> = (0..4).map(|_| group.begin()).collect();
    let over = Rc::new(RefCell::new(Vec::new()));
    let waiters: Vec<_> = (0..3)
        .map(|waiter| {
            let (group, over) = (group.clone(), Rc::clone(&over));
            spawn(async move {
                group.wait().await;
                over.borrow_mut().push(waiter);
            })
        })
        .collect();
    for piece in work {
        some_turns().await;
        assert!(over.borrow().is_empty());
        drop(piece);
    }
    for waiter in waiters {
        waiter.await.unwrap();
    }
    assert_eq!(over.borrow().len(), 3);
});

everywhere!(work_that_panics_is_over, |_| async {
    let group = WaitGroup::new();
    let work = group.begin();
    let more = work.clone();
    let worker = spawn(async move {
        let _work = work;
        panic!("on purpose");
    });
    assert!(worker.await.is_err());
    assert_eq!(group.under_way(), 1);
    drop(more);
    group.wait().await;
});

cases!(
    /// Two runtimes in their threads, and threads without any, over channels of which the narrow one fills
    /// up.
    messages_cross_between_runtimes_and_threads_in_order_and_none_is_lost,
    real,
    |case: Case| {
        const EACH: u32 = 2000;
        let (to_here, here) = sync::bounded(8);
        let group = WaitGroup::new();
        let mut threads = Vec::new();
        for sender in 0..3u32 {
            let (to_here, work) = (to_here.clone(), group.begin());
            threads.push(thread::spawn(move || {
                with_runtime(case, unchanged, move |_, runtime| {
                    runtime
                        .block_on(async {
                            for number in 0..EACH {
                                to_here.send((sender, number)).await.unwrap();
                            }
                        })
                        .unwrap();
                });
                drop(work);
            }));
        }
        threads.push(thread::spawn({
            let to_here = to_here.clone();
            move || (0..EACH).for_each(|number| to_here.send_blocking((3, number)).unwrap())
        }));
        drop(to_here);
        with_runtime(case, unchanged, move |_, runtime| {
            runtime
                .block_on(async {
                    let mut next = [0; 4];
                    while let Ok((sender, number)) = here.recv().await {
                        assert_eq!(next[sender as usize], number);
                        next[sender as usize] += 1;
                    }
                    assert_eq!(next, [EACH; 4]);
                    group.wait().await;
                })
                .unwrap();
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
);

cases!(
    /// To a runtime from threads, and then to a thread from a runtime: the waiting side sleeps, and a lost
    /// wake hangs.
    messages_without_bound_cross_threads_in_order_and_none_is_lost,
    real,
    |case: Case| {
        const EACH: u32 = 5000;
        let (to_here, mut here) = sync::unbounded();
        let (to_there, mut there) = sync::unbounded();
        let threads: Vec<_> = (0..3u32)
            .map(|sender| {
                let to_here = to_here.clone();
                thread::spawn(move || (0..EACH).for_each(|number| to_here.send((sender, number)).unwrap()))
            })
            .collect();
        drop(to_here);
        let adds = thread::spawn(move || {
            let mut count = 0;
            while let Ok(number) = there.recv_blocking() {
                assert_eq!(number, count);
                count += 1;
            }
            count
        });
        with_runtime(case, unchanged, move |_, runtime| {
            runtime
                .block_on(async {
                    let (mut next, mut all) = ([0; 3], 0);
                    while let Ok((sender, number)) = here.recv().await {
                        assert_eq!(next[sender as usize], number);
                        next[sender as usize] += 1;
                        to_there.send(all).unwrap();
                        all += 1;
                    }
                    assert_eq!(next, [EACH; 3]);
                })
                .unwrap();
        });
        assert_eq!(adds.join().unwrap(), 3 * EACH);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
);

cases!(
    /// The permits are shared by runtimes in several threads.
    a_semaphore_counts_over_threads,
    real,
    |case: Case| {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let semaphore = Arc::new(Semaphore::new(2));
        let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (semaphore, inside, most) =
                    (Arc::clone(&semaphore), Arc::clone(&inside), Arc::clone(&most));
                thread::spawn(move || {
                    with_runtime(case, unchanged, move |_, runtime| {
                        runtime
                            .block_on(async {
                                for _ in 0..50 {
                                    let _permit = semaphore.acquire().await;
                                    let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                                    most.fetch_max(now, Ordering::SeqCst);
                                    yield_now().await;
                                    inside.fetch_sub(1, Ordering::SeqCst);
                                }
                            })
                            .unwrap();
                    });
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let most = most.load(Ordering::SeqCst);
        assert!((1..=2).contains(&most), "{most}");
    }
);
