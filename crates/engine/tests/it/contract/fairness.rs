//! A task that always has something to do does not starve the others. Checked by counts, not by clocks: how
//! many operations the busy task completes in each turn of the loop, since the others are polled every turn.
//! (Not how many until the others are done: on a busy machine the kernel takes its time to deliver their
//! bytes.)

use crate::peer::{Client, Echo, Latch, pair};
use crate::support::{run, runtime, some_turns};
use futures_util::{StreamExt, join};
use ringroad_engine::fs::File;
use ringroad_engine::time::{interval, now, sleep, sleep_until, timeout};
use ringroad_engine::{JoinHandle, JoinSet, PollFd, spawn, sync, yield_now};
use std::cell::Cell;
use std::future::{Future, pending};
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

/// The most results that a task gets in a turn: the one it waited for, and 64 that were ready at once.
const SHARE: u64 = 65;

/// What the busy task has done since a point in time, and in how many turns.
struct Meanwhile {
    done: Rc<Cell<u64>>,
    done_before: u64,
    turns_before: u64,
}

impl Meanwhile {
    fn of(done: &Rc<Cell<u64>>) -> Meanwhile {
        let turns_before = runtime(|runtime| runtime.counters().turns);
        Meanwhile { done: Rc::clone(done), done_before: done.get(), turns_before }
    }

    /// Asserts that it got its share of each turn, including the current one, and no more.
    #[track_caller]
    fn got_its_share(&self) {
        self.got_its_share_of("the task");
    }

    #[track_caller]
    fn got_its_share_of(&self, name: &str) {
        let done = self.done.get() - self.done_before;
        let turns = runtime(|runtime| runtime.counters().turns) - self.turns_before;
        assert!(done <= SHARE * (turns + 1), "{name}: {done} times in {turns} turns");
    }
}

/// Bytes queued in a socket for a reader that takes them byte by byte: so the socket is always ready.
const QUEUED: usize = 24 * 1024;

scenario!(a_stream_that_always_has_data_ready_does_not_keep_others_waiting, |_| async {
    let server = Echo::start();
    let mut client = Client::connect(server.address).await;
    client.exchange(vec![1; 10]).await;

    let (mut reader, mut sender) = pair().await;
    sender.write_all(vec![7; QUEUED]).await.0.unwrap();
    let read = Rc::new(Cell::new(0));
    let greedy = spawn({
        let read = Rc::clone(&read);
        async move {
            while read.get() < QUEUED as u64 {
                let (got, byte) = reader.recv_into(Vec::with_capacity(1)).await;
                assert_eq!((got.unwrap(), byte), (1, vec![7]));
                read.set(read.get() + 1);
            }
        }
    });
    let meanwhile = Meanwhile::of(&read);
    for _ in 0..10 {
        client.exchange(vec![2; 10]).await;
        meanwhile.got_its_share();
    }
    greedy.await.unwrap();
    meanwhile.got_its_share();
    drop(client);
    server.end().await;
});

scenario!(
    /// A peer that takes whatever is sent: each send is answered at once where sends try first.
    a_stream_that_can_always_send_does_not_keep_others_waiting,
    |_| async {
        const SENDS: u64 = 20_000;
        let server = Echo::start();
        let mut client = Client::connect(server.address).await;
        client.exchange(vec![1; 10]).await;

        let (mut sender, mut reader) = pair().await;
        let drain = spawn(async move { while !reader.recv().await.unwrap().is_empty() {} });
        let sent = Rc::new(Cell::new(0));
        let greedy = spawn({
            let sent = Rc::clone(&sent);
            async move {
                for _ in 0..SENDS {
                    sender.write_all("x").await.0.unwrap();
                    sent.set(sent.get() + 1);
                }
            }
        });
        let meanwhile = Meanwhile::of(&sent);
        for _ in 0..10 {
            client.exchange(vec![2; 10]).await;
            meanwhile.got_its_share();
        }
        greedy.await.unwrap();
        meanwhile.got_its_share();
        drain.await.unwrap();
        drop(client);
        server.end().await;
    }
);

scenario!(
    /// All readers always have data; when the first has read all of its own, none is far behind.
    streams_that_all_have_data_ready_get_equal_shares,
    |case| async move {
        const READERS: usize = 8;
        // A simulated receive costs more to simulate than a real one to do.
        let queued = if case.is_real() { QUEUED } else { QUEUED / 4 };
        let mut streams = Vec::new();
        for _ in 0..READERS {
            let (reader, mut sender) = pair().await;
            sender.write_all(vec![7; queued]).await.0.unwrap();
            streams.push((reader, sender));
        }
        let first = Latch::default();
        let counts: Rc<[Cell<usize>]> = (0..READERS).map(|_| Cell::new(0)).collect();
        let mut tasks = Vec::new();
        for (n, (mut reader, sender)) in streams.into_iter().enumerate() {
            let (first, counts) = (first.clone(), Rc::clone(&counts));
            tasks.push(spawn(async move {
                let _sender = sender;
                while counts[n].get() < queued && !first.is_open() {
                    let (got, _) = reader.recv_into(Vec::with_capacity(1)).await;
                    counts[n].set(counts[n].get() + got.unwrap());
                }
                first.open();
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
        let least = counts.iter().map(Cell::get).min().unwrap();
        assert!(least >= queued / 2, "{counts:?}");
    }
);

scenario!(
    /// I/O and timers are looked at each turn, also while tasks are always ready.
    tasks_that_yield_in_loops_do_not_stop_io_and_timers,
    |_| async {
        let over = Latch::default();
        // More of them than are polled in one turn.
        let spinners: Vec<_> = (0..1500)
            .map(|_| {
                let over = over.clone();
                spawn(async move {
                    while !over.is_open() {
                        yield_now().await;
                    }
                })
            })
            .collect();
        let server = Echo::start();
        let mut client = Client::connect(server.address).await;
        for _ in 0..5 {
            let (_, ()) = join!(client.exchange(vec![3; 1000]), sleep(Duration::from_millis(1)));
        }
        over.open();
        for spinner in spinners {
            spinner.await.unwrap();
        }
        drop(client);
        server.end().await;
    }
);

scenario!(
    /// A wake from task to task takes no look at the I/O, but every so many polls there is one.
    tasks_that_wake_each_other_in_loops_do_not_stop_io_and_timers,
    |_| async {
        let over = Latch::default();
        let (there, catch) = sync::bounded(1);
        let (back, caught) = sync::bounded(1);
        let players = [(there, caught), (back, catch)].map(|(to, from)| {
            let over = over.clone();
            spawn(async move {
                while !over.is_open() && to.send(()).await.is_ok() && from.recv().await.is_ok() {}
            })
        });
        let server = Echo::start();
        let mut client = Client::connect(server.address).await;
        for _ in 0..5 {
            let (_, ()) = join!(client.exchange(vec![3; 1000]), sleep(Duration::from_millis(1)));
        }
        over.open();
        for player in players {
            player.await.unwrap();
        }
        drop(client);
        server.end().await;
    }
);

scenario!(
    /// A task that wakes itself is polled after those that were ready before it, not again and again.
    a_task_that_yields_lets_every_other_ready_task_run_first,
    |_| async {
        let order = Rc::new(Cell::new(0u32));
        let others: Vec<_> = (0..100)
            .map(|_| {
                let order = Rc::clone(&order);
                spawn(async move { order.set(order.get() + 1) })
            })
            .collect();
        let yielding = spawn({
            let order = Rc::clone(&order);
            async move {
                yield_now().await;
                order.get()
            }
        });
        assert_eq!(yielding.await.unwrap(), 100);
        drop(others);
    }
);

/// Starts a task that waits for `answers` futures in turn, which are always ready, and counts them.
fn greedy<F: Future<Output = ()> + 'static>(
    answers: u64,
    mut next: impl FnMut() -> F + 'static,
) -> (JoinHandle<()>, Meanwhile) {
    let done = Rc::new(Cell::new(0));
    let count = Rc::clone(&done);
    let task = spawn(async move {
        while count.get() < answers {
            next().await;
            count.set(count.get() + 1);
        }
    });
    (task, Meanwhile::of(&done))
}

/// Runs a task that is always answered at once beside an echo and a timer, and counts its answers per turn.
/// What it answers is made by `next`.
async fn has_its_share<F: Future<Output = ()> + 'static>(next: impl FnMut() -> F + 'static) {
    let server = Echo::start();
    let mut client = Client::connect(server.address).await;
    client.exchange(vec![1; 10]).await;
    let (greedy, meanwhile) = greedy(20_000, next);
    for _ in 0..10 {
        join!(client.exchange(vec![2; 10]), sleep(Duration::from_millis(1)));
        meanwhile.got_its_share();
    }
    greedy.await.unwrap();
    meanwhile.got_its_share();
    drop(client);
    server.end().await;
}

scenario!(a_channel_that_is_never_empty_does_not_keep_others_waiting, |_| async {
    let (sender, receiver) = sync::bounded(30_000);
    (0..30_000).for_each(|number| sender.try_send(number).unwrap());
    has_its_share(move || {
        let receiver = receiver.clone();
        async move { assert!(receiver.recv().await.is_ok()) }
    })
    .await;
    drop(sender);
});

scenario!(a_channel_that_is_never_full_does_not_keep_others_waiting, |_| async {
    let (sender, receiver) = sync::bounded(30_000);
    has_its_share(move || {
        let sender = sender.clone();
        async move { sender.send(1).await.unwrap() }
    })
    .await;
    drop(receiver);
});

scenario!(a_channel_without_bound_that_is_never_empty_does_not_keep_others_waiting, |_| async {
    let (sender, receiver) = sync::unbounded();
    (0..30_000).for_each(|number| sender.send(number).unwrap());
    let receiver = Rc::new(std::cell::RefCell::new(receiver));
    has_its_share(move || {
        let receiver = Rc::clone(&receiver);
        async move {
            let received = std::future::poll_fn(|context| receiver.borrow_mut().poll_recv(context)).await;
            assert!(received.is_ok());
        }
    })
    .await;
    drop(sender);
});

scenario!(a_lock_that_is_always_free_does_not_keep_others_waiting, |_| async {
    let lock = std::sync::Arc::new(sync::Mutex::new(0));
    has_its_share(move || {
        let lock = std::sync::Arc::clone(&lock);
        async move { *lock.lock().await += 1 }
    })
    .await;
});

scenario!(a_semaphore_that_always_has_permits_does_not_keep_others_waiting, |_| async {
    let semaphore = std::sync::Arc::new(sync::Semaphore::new(3));
    has_its_share(move || {
        let semaphore = std::sync::Arc::clone(&semaphore);
        async move { drop(semaphore.acquire_arc().await) }
    })
    .await;
});

scenario!(oneshots_that_always_have_their_value_do_not_keep_others_waiting, |_| async {
    has_its_share(|| async {
        let (sender, receiver) = sync::oneshot::channel();
        sender.send(7).unwrap();
        assert_eq!(receiver.await, Ok(7));
    })
    .await;
});

scenario!(oneshots_whose_receiver_is_gone_do_not_keep_others_waiting, |_| async {
    has_its_share(|| async {
        let (mut sender, receiver) = sync::oneshot::channel::<u8>();
        drop(receiver);
        sender.closed().await;
    })
    .await;
});

scenario!(a_wait_group_without_work_does_not_keep_others_waiting, |_| async {
    let group = sync::WaitGroup::new();
    has_its_share(move || {
        let group = group.clone();
        async move { group.wait().await }
    })
    .await;
});

/// Runs a task that is always answered at once beside one that yields, and counts its answers per turn.
async fn yields<F: Future<Output = ()> + 'static>(name: &str, next: impl FnMut() -> F + 'static) {
    let (greedy, meanwhile) = greedy(ANSWERS, next);
    while !greedy.is_finished() {
        yield_now().await;
        meanwhile.got_its_share_of(name);
    }
    greedy.await.unwrap();
}

/// Many more than a task gets in a turn.
const ANSWERS: u64 = 1000;

scenario!(
    /// What the other tests of this file leave out. Each is ready whenever it is asked.
    whatever_is_always_ready_does_not_keep_others_waiting,
    |_| async {
        let (sender, receiver) = sync::bounded::<u8>(1);
        receiver.close();
        yields("a channel that is closed", move || {
            let sender = sender.clone();
            async move { sender.closed().await }
        })
        .await;
        let (sender, receiver) = sync::bounded(ANSWERS as usize);
        (0..ANSWERS).for_each(|number| sender.try_send(number).unwrap());
        yields("a channel as a stream", move || {
            let receiver = receiver.clone();
            async move { assert!(pin!(receiver).next().await.is_some()) }
        })
        .await;
        let (sender, receiver) = sync::broadcast::channel(2 * ANSWERS as usize);
        (0..2 * ANSWERS).for_each(|number| assert_eq!(sender.send(number), Ok(1)));
        let receiver = Rc::new(sync::Mutex::new(receiver));
        for as_stream in [false, true] {
            let receiver = Rc::clone(&receiver);
            yields("a broadcast", move || {
                let receiver = Rc::clone(&receiver);
                async move {
                    let mut receiver = receiver.try_lock().unwrap();
                    let next = if as_stream { receiver.next().await } else { receiver.recv().await.ok() };
                    assert!(next.is_some());
                }
            })
            .await;
        }
        let (sender, receiver) = sync::watch::channel(0);
        yields("a value that changes", move || {
            sender.send_replace(1);
            let mut receiver = receiver.clone();
            async move { receiver.changed().await.unwrap() }
        })
        .await;
        yields("a notification", || async {
            let notify = sync::Notify::new();
            notify.notify_one();
            notify.notified().await;
        })
        .await;
        let lock = Rc::new(sync::RwLock::new(0));
        yields("a lock for many readers", move || {
            let lock = Rc::clone(&lock);
            async move {
                *lock.write().await += 1;
                assert!(*lock.read().await > 0);
            }
        })
        .await;
        yields("a cell", || async {
            assert_eq!(*sync::OnceCell::new().get_or_init(|| async { 7 }).await, 7);
        })
        .await;
        let token = sync::CancellationToken::new();
        token.cancel();
        let cancelled = token.clone();
        yields("a token", move || {
            let token = token.clone();
            async move { token.cancelled().await }
        })
        .await;
        yields("work under a token", move || {
            let token = cancelled.clone();
            async move { assert!(token.run_until_cancelled(pending::<()>()).await.is_none()) }
        })
        .await;
        yields("a sleep of no length", || sleep(Duration::ZERO)).await;
        let past = now();
        yields("a sleep until now", move || sleep_until(past)).await;
        let mut over = Box::pin(sleep(Duration::from_millis(1)));
        over.as_mut().await;
        let over = Rc::new(sync::Mutex::new(over));
        yields("a sleep that is over", move || {
            let over = Rc::clone(&over);
            async move { over.try_lock().unwrap().as_mut().await }
        })
        .await;
        yields("a timeout of no length", || async {
            assert!(timeout(Duration::ZERO, pending::<()>()).await.is_err());
        })
        .await;
        let late = Rc::new(sync::Mutex::new(interval(Duration::from_nanos(1))));
        yields("an interval that is late", move || {
            let late = Rc::clone(&late);
            async move {
                late.try_lock().unwrap().tick().await;
            }
        })
        .await;
        let (reader, _writer) = std::io::pipe().unwrap();
        let reader = Rc::new(PollFd::new(reader));
        yields("a descriptor", move || {
            let reader = Rc::clone(&reader);
            async move {
                reader.read_with(|_| Ok(())).await.unwrap();
                reader.write_with(|_| Ok(())).await.unwrap();
            }
        })
        .await;
        let mut tasks: Vec<_> = (0..ANSWERS).map(|number| spawn(async move { number })).collect();
        some_turns().await;
        assert!(tasks.iter().all(|task| task.is_finished()));
        yields("tasks that have ended", move || {
            let task = tasks.pop().unwrap();
            async move { assert!(task.await.is_ok()) }
        })
        .await;
        let mut set = JoinSet::new();
        for number in 0..ANSWERS {
            set.spawn(async move { number });
        }
        some_turns().await;
        let set = Rc::new(sync::Mutex::new(set));
        yields("a set of tasks that have ended", move || {
            let set = Rc::clone(&set);
            async move { assert!(set.try_lock().unwrap().join_next().await.is_some()) }
        })
        .await;
    }
);

cases!(
    /// Files without positions: their peer may write, or read, faster than the program.
    pipes_that_are_always_ready_do_not_keep_others_waiting,
    real,
    |case| run(case, |builder| builder, |_| Box::pin(async {
        let (reader, mut writer) = std::io::pipe().unwrap();
        std::io::Write::write_all(&mut writer, &[7; 2 * ANSWERS as usize]).unwrap();
        let (reader, writer) = (File::from(OwnedFd::from(reader)), File::from(OwnedFd::from(writer)));
        let from = reader.clone();
        yields("a pipe that has bytes", move || {
            let reader = from.clone();
            async move { assert_eq!(reader.read_at(Vec::with_capacity(1), 0).await.1, [7]) }
        })
        .await;
        yields("a pipe that has room", move || {
            let writer = writer.clone();
            async move { assert_eq!(writer.write_at([7], 0).await.0.unwrap(), 1) }
        })
        .await;
        drop(reader);
    }))
);

scenario!(
    /// It is polled first, and leaves nothing of the budget to the wait for the cancel.
    a_future_that_always_has_something_to_do_is_cancelled_all_the_same,
    |_| async {
        let token = sync::CancellationToken::new();
        let until = token.clone();
        let greedy = spawn(async move {
            let semaphore = sync::Semaphore::new(1);
            let work = async {
                while semaphore.available_permits() > 0 {
                    drop(semaphore.acquire().await);
                }
            };
            until.run_until_cancelled(work).await.is_none()
        });
        yield_now().await;
        token.cancel();
        some_turns().await;
        assert!(greedy.is_finished());
        assert!(greedy.await.unwrap());
    }
);
