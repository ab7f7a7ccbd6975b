//! Tasks: what they return, how they end otherwise, and that other people's combinators work on ours.

use crate::support::{Gate, listener, pair, poll_once, receive, some_turns};
use futures_util::future::{AbortHandle, Abortable, Either, join_all, select};
use futures_util::stream::{FuturesUnordered, StreamExt};
use ringroad_engine::net::TcpStream;
use ringroad_engine::time::sleep;
use ringroad_engine::{JoinError, JoinHandle, spawn, yield_now};
use std::cell::{Cell, RefCell};
use std::future::{Future, pending};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Counts its drops.
struct Counted(Rc<Cell<u32>>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

everywhere!(a_task_gives_what_it_returns, |_| async {
    let now = spawn(async { 1 });
    let later = spawn(async {
        yield_now().await;
        String::from("two")
    });
    let nested = spawn(async { spawn(async { spawn(async { 3 }).await.unwrap() }).await.unwrap() });
    assert_eq!(nested.await.unwrap(), 3);
    assert_eq!(later.await.unwrap(), "two");
    some_turns().await;
    assert!(now.is_finished());
    assert_eq!(now.await.unwrap(), 1);
});

everywhere!(a_task_that_panics_ends_alone_and_says_why, |_| async {
    let drops = Rc::new(Cell::new(0));
    let held = Counted(Rc::clone(&drops));
    let (_ours, mut theirs) = pair().await;
    let other = spawn(async {
        some_turns().await;
        "unharmed"
    });
    let task = spawn(async move {
        let _held = held;
        // With an operation in flight.
        assert!(poll_once(pin!(theirs.recv())).await.is_none());
        yield_now().await;
        if drops_nothing() {
            panic!("on purpose: {}", 42);
        }
    });
    let error = task.await.unwrap_err();
    assert_eq!(error.to_string(), "the task panicked: on purpose: 42");
    assert!(matches!(error, JoinError::Panicked(_)));
    assert_eq!(drops.get(), 1);
    assert_eq!(other.await.unwrap(), "unharmed");
    let plain = spawn(async { std::panic::panic_any("plain") });
    assert_eq!(plain.await.unwrap_err().to_string(), "the task panicked: plain");
});

/// Always, but the compiler must not know.
fn drops_nothing() -> bool {
    std::hint::black_box(true)
}

everywhere!(a_cancelled_task_is_dropped_at_once, |_| async {
    let drops = Rc::new(Cell::new(0));
    let (_ours, mut theirs) = pair().await;
    for polled in [false, true] {
        let held = Counted(Rc::clone(&drops));
        let before = drops.get();
        let task = spawn(async move {
            let _held = held;
            pending::<()>().await;
        });
        if polled {
            yield_now().await;
        }
        assert!(!task.is_finished());
        task.cancel();
        task.cancel();
        assert_eq!(drops.get(), before + 1, "polled: {polled}");
        assert!(task.is_finished());
        assert!(matches!(task.await, Err(JoinError::Cancelled)));
    }
    // With an operation in flight.
    let task = spawn(async move { theirs.recv().await.map(|lease| lease.len()) });
    some_turns().await;
    task.cancel();
    assert_eq!(task.await.unwrap_err().to_string(), "the task was cancelled");
});

everywhere!(a_task_that_is_over_stays_over_when_it_is_cancelled, |_| async {
    let task = spawn(async { 5 });
    while !task.is_finished() {
        yield_now().await;
    }
    task.cancel();
    assert_eq!(task.await.unwrap(), 5);
});

everywhere!(a_task_that_cancels_itself_is_dropped_when_it_next_waits, |_| async {
    let drops = Rc::new(Cell::new(0));
    let held = Counted(Rc::clone(&drops));
    let handle = Rc::new(RefCell::new(None::<ringroad_engine::JoinHandle<()>>));
    let joined = Gate::default();
    let task = {
        let (handle, joined) = (Rc::clone(&handle), joined.clone());
        spawn(async move {
            let held = held;
            yield_now().await;
            if let Some(me) = handle.borrow().as_ref() {
                me.cancel();
            }
            assert_eq!(held.0.get(), 0, "not while it runs");
            joined.open();
            pending::<()>().await;
        })
    };
    *handle.borrow_mut() = Some(task);
    joined.opened().await;
    yield_now().await;
    assert_eq!(drops.get(), 1);
    let task = handle.borrow_mut().take().unwrap();
    assert!(matches!(task.await, Err(JoinError::Cancelled)));
});

everywhere!(a_task_that_joins_another_learns_of_its_cancellation, |_| async {
    let task = Rc::new(RefCell::new(Box::pin(spawn(pending::<()>()))));
    let waiting = Gate::default();
    let waiter = {
        let (task, waiting) = (Rc::clone(&task), waiting.clone());
        spawn(async move {
            waiting.open();
            std::future::poll_fn(|context| task.borrow_mut().as_mut().poll(context)).await
        })
    };
    waiting.opened().await;
    yield_now().await;
    task.borrow().cancel();
    assert!(matches!(waiter.await.unwrap(), Err(JoinError::Cancelled)));
});

everywhere!(a_detached_task_goes_on, |_| async {
    let done = Gate::default();
    spawn({
        let done = done.clone();
        async move {
            sleep(Duration::from_millis(1)).await;
            done.open();
        }
    })
    .detach();
    done.opened().await;
    let done = Gate::default();
    let task = spawn({
        let done = done.clone();
        async move {
            some_turns().await;
            done.open();
        }
    });
    // Dropping the handle comes to the same.
    drop(task);
    done.opened().await;
});

everywhere!(an_output_without_a_handle_is_dropped, |_| async {
    let drops = Rc::new(Cell::new(0));
    for wait in [false, true] {
        let held = Counted(Rc::clone(&drops));
        let task = spawn(async move { held });
        if wait {
            some_turns().await;
        }
        drop(task);
        some_turns().await;
    }
    assert_eq!(drops.get(), 2);
});

everywhere!(a_task_that_yields_lets_all_others_run_first, |_| async {
    let order = Rc::new(RefCell::new(Vec::new()));
    let tasks: Vec<_> = (0..3)
        .map(|task| {
            let order = Rc::clone(&order);
            spawn(async move {
                for round in 0..3 {
                    order.borrow_mut().push((round, task));
                    yield_now().await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let expected: Vec<_> = (0..3).flat_map(|round| (0..3).map(move |task| (round, task))).collect();
    assert_eq!(*order.borrow(), expected);
});

everywhere!(places_of_tasks_are_used_again_without_mixing_them_up, |_| async {
    for round in 0..50u64 {
        let tasks: Vec<_> = (0..40u64)
            .map(|number| {
                spawn(async move {
                    for _ in 0..number % 3 {
                        yield_now().await;
                    }
                    round * 100 + number
                })
            })
            .collect();
        for (number, task) in tasks.into_iter().enumerate() {
            if number % 7 == 0 {
                task.cancel();
            }
            match task.await {
                Ok(output) => assert_eq!(output, round * 100 + number as u64),
                Err(why) => assert!(number % 7 == 0, "{number}: {why}"),
            }
        }
    }
});

everywhere!(a_waker_of_a_task_that_is_over_does_no_harm, |_| async {
    let polls = Rc::new(Cell::new(0));
    for _ in 0..20 {
        let kept = Rc::new(RefCell::new(Vec::<Waker>::new()));
        let over = {
            let kept = Rc::clone(&kept);
            spawn(std::future::poll_fn(move |context| {
                kept.borrow_mut().push(context.waker().clone());
                std::task::Poll::Ready(())
            }))
        };
        over.await.unwrap();
        // It has the place of the one that is over, and waits for something else.
        let polls = Rc::clone(&polls);
        let before = polls.get();
        let successor = {
            let polls = Rc::clone(&polls);
            spawn(std::future::poll_fn(move |_| -> std::task::Poll<()> {
                polls.set(polls.get() + 1);
                std::task::Poll::Pending
            }))
        };
        yield_now().await;
        for waker in kept.take() {
            waker.wake_by_ref();
            waker.wake();
        }
        some_turns().await;
        assert_eq!(polls.get(), before + 1, "polled when it was spawned, and not for another's waker");
        successor.cancel();
        assert!(successor.await.is_err());
    }
});

everywhere!(the_first_of_two_is_taken_and_the_other_can_be_asked_again, |_| async {
    let (mut one, mut one_peer) = pair().await;
    let (mut two, mut two_peer) = pair().await;
    let (mut from_one, mut from_two) = (Vec::new(), Vec::new());
    let writer = spawn(async move {
        for round in 0..50u8 {
            if round % 2 == 0 {
                one_peer.write_all(vec![round]).await.0.unwrap();
            } else {
                two_peer.write_all(vec![round]).await.0.unwrap();
            }
            yield_now().await;
        }
        (one_peer, two_peer)
    });
    while from_one.len() + from_two.len() < 50 {
        match select(pin!(one.recv()), pin!(two.recv())).await {
            Either::Left((lease, _)) => from_one.extend_from_slice(&lease.unwrap()),
            Either::Right((lease, _)) => from_two.extend_from_slice(&lease.unwrap()),
        }
    }
    assert_eq!(from_one, (0..50).step_by(2).collect::<Vec<u8>>());
    assert_eq!(from_two, (1..50).step_by(2).collect::<Vec<u8>>());
    writer.await.unwrap();
});

everywhere!(a_set_of_futures_with_wakers_of_its_own_gets_every_result, |_| async {
    const CONNECTIONS: u32 = 60;
    let (mut listener, address) = listener();
    let server = spawn(async move {
        let mut serving = FuturesUnordered::new();
        let mut accepted = 0;
        let mut served = 0;
        while served < CONNECTIONS {
            let mut next = pin!(listener.accept());
            futures_util::select_biased! {
                stream = futures_util::FutureExt::fuse(next.as_mut()) => {
                    let mut stream: TcpStream = stream.unwrap();
                    accepted += 1;
                    serving.push(async move {
                        let bytes = receive(&mut stream, 10).await;
                        stream.write_all(bytes).await.0.unwrap();
                    });
                }
                over = serving.next() => {
                    if over.is_some() {
                        served += 1;
                    }
                }
                complete => break,
            }
        }
        accepted
    });
    join_all((0..CONNECTIONS).map(|number| async move {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(vec![number as u8; 10]).await.0.unwrap();
        let mut got = 0;
        while got < 10 {
            let lease = stream.recv().await.unwrap();
            assert!(!lease.is_empty() && lease.iter().all(|byte| *byte == number as u8));
            got += lease.len();
        }
    }))
    .await;
    assert_eq!(server.await.unwrap(), CONNECTIONS);
});

everywhere!(an_aborted_future_ends_and_loses_nothing, |_| async {
    let (mut ours, mut theirs) = pair().await;
    let (handle, registration) = AbortHandle::new_pair();
    let stop = spawn(async move {
        some_turns().await;
        handle.abort();
    });
    assert!(Abortable::new(theirs.recv(), registration).await.is_err());
    stop.await.unwrap();
    ours.write_all("still here").await.0.unwrap();
    assert!(b"still here".starts_with(&theirs.recv().await.unwrap()));
});

/// A waker that is not the engine's.
struct Foreign(AtomicUsize);

impl Wake for Foreign {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

everywhere!(a_foreign_waker_is_woken_and_given_up, |_| async {
    let (mut ours, mut theirs) = pair().await;
    let foreign = Arc::new(Foreign(AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&foreign));
    let mut context = Context::from_waker(&waker);
    {
        let mut recv = pin!(theirs.recv());
        assert!(recv.as_mut().poll(&mut context).is_pending());
        assert!(recv.as_mut().poll(&mut context).is_pending());
        ours.write_all("wake").await.0.unwrap();
        while foreign.0.load(Ordering::Relaxed) == 0 {
            yield_now().await;
        }
    }
    // Dropped while it waits.
    for into in [false, true] {
        let (_ours, mut theirs) = pair().await;
        let mut recv = pin!(theirs.recv());
        if !into {
            assert!(recv.as_mut().poll(&mut context).is_pending());
        }
    }
    {
        let (_ours, mut theirs) = pair().await;
        let mut recv = pin!(theirs.recv_into(Vec::with_capacity(8)));
        assert!(recv.as_mut().poll(&mut context).is_pending());
    }
    let mut timer = Box::pin(sleep(Duration::from_secs(3600)));
    assert!(timer.as_mut().poll(&mut context).is_pending());
    drop(timer);
    drop(waker);
    some_turns().await;
    assert_eq!(Arc::strong_count(&foreign), 1, "somebody keeps a waker");
});

/// Waits for ever, and cannot be dropped in peace.
struct DropsBadly;

impl Future for DropsBadly {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}

impl Drop for DropsBadly {
    fn drop(&mut self) {
        panic!("dropped badly");
    }
}

fn dropped_badly(error: JoinError) -> bool {
    matches!(&error, JoinError::Panicked(_)) && error.to_string().contains("dropped badly")
}

everywhere!(a_task_that_panics_when_it_is_dropped_ends_alone_too, |_| async {
    // Cancelled from outside.
    let task = spawn(DropsBadly);
    yield_now().await;
    let waits = Gate::default();
    let canceller = Rc::new(task);
    canceller.cancel();
    let Ok(task) = Rc::try_unwrap(canceller) else { panic!("there was one") };
    assert!(dropped_badly(task.await.unwrap_err()));
    // By itself, while it runs.
    let task = Rc::new(RefCell::new(None::<JoinHandle<()>>));
    let handle = spawn({
        let (task, waits) = (Rc::clone(&task), waits.clone());
        async move {
            let _badly = DropsBadly;
            waits.opened().await;
            task.borrow().as_ref().unwrap().cancel();
            pending::<()>().await;
        }
    });
    *task.borrow_mut() = Some(handle);
    waits.open();
    some_turns().await;
    let handle = task.borrow_mut().take().unwrap();
    assert!(dropped_badly(handle.await.unwrap_err()));
    // The return value of a detached task.
    spawn(async { Some(DropsBadly) }).detach();
    some_turns().await;
    let unwanted = spawn(async { Some(DropsBadly) });
    some_turns().await;
    assert!(unwanted.is_finished());
    // Only the caller that drops the handle can see this panic.
    assert!(catch_unwind(AssertUnwindSafe(|| drop(unwanted))).is_err());
});

everywhere!(a_handle_that_is_awaited_again_panics_and_says_so, |_| async {
    let mut handle = spawn(async { 1 });
    assert_eq!((&mut handle).await.unwrap(), 1);
    assert!(handle.is_finished());
    let again = catch_unwind(AssertUnwindSafe(|| {
        Pin::new(&mut handle).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }));
    let why = again.unwrap_err();
    assert!(why.downcast_ref::<&str>().unwrap().contains("awaited again"));
});
