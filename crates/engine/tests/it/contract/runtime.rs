//! Runtimes: what may happen around `block_on`, and how they end.

use crate::support::{
    Case, Gate, listener, listener_with, narrow_pair, pair, pattern, poll_once, receive, some_turns,
    with_runtime,
};
use ringroad_engine::net::{ListenOptions, TcpListener, TcpStream};
use ringroad_engine::time::sleep;
use ringroad_engine::{JoinError, JoinHandle, JoinSet, Runtime, is_in_runtime, spawn, sync, yield_now};
use std::cell::{Cell, RefCell};
use std::future::{Future, pending, poll_fn};
use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(10);

fn runtime(case: Case) -> Runtime {
    case.builder().build().expect("the driver is to be had here")
}

/// Polls once, outside of any runtime.
fn poll<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

runtimes!(tasks_and_connections_go_on_in_the_next_block_on, |case| {
    let runtime = runtime(case);
    let (mut ours, mut theirs) = runtime.block_on(pair()).unwrap();
    let echo = runtime.spawn(async move {
        let lease = theirs.recv().await.unwrap();
        theirs.write_all(lease).await.0.unwrap();
        theirs
    });
    // Begins to wait in one call, and is woken in another.
    runtime.block_on(some_turns()).unwrap();
    assert!(!echo.is_finished());
    runtime.block_on(async { ours.write_all("round").await.0 }).unwrap().unwrap();
    let theirs = runtime.block_on(echo).unwrap().unwrap();
    let got = runtime.block_on(async { receive(&mut ours, 5).await }).unwrap();
    assert_eq!(got, b"round");
    drop((ours, theirs));
    runtime.shutdown(PATIENCE).unwrap();
});

/// Leaves one of each kind of operation in flight, and returns what must be kept for that.
async fn everything_in_flight(case: Case) -> Vec<TcpStream> {
    let mut kept = Vec::new();
    let (mut idle, _) = listener();
    spawn(async move { drop(idle.accept().await) }).detach();
    for into in [false, true] {
        let (ours, mut theirs) = pair().await;
        kept.push(ours);
        spawn(async move {
            match into {
                true => drop(theirs.recv_into(Vec::with_capacity(100)).await),
                false => drop(theirs.recv().await),
            }
        })
        .detach();
    }
    for vectored in [false, true] {
        let (mut ours, theirs) = narrow_pair(case).await;
        kept.push(theirs);
        spawn(async move {
            match vectored {
                true => drop(ours.write_vectored_all(vec![pattern(300_000); 3]).await),
                false => drop(ours.write_all(pattern(900_000)).await),
            }
        })
        .detach();
    }
    // A connect that finds the queue full.
    let (full, address) = listener_with(ListenOptions { backlog: 0, ..ListenOptions::default() });
    kept.push(TcpStream::connect(address).await.unwrap());
    spawn(async move {
        let _full = full;
        drop(TcpStream::connect(address).await);
    })
    .detach();
    spawn(sleep(Duration::from_secs(3600))).detach();
    spawn(pending::<()>()).detach();
    some_turns().await;
    kept
}

runtimes!(a_shutdown_ends_everything_in_flight, |case| {
    let runtime = runtime(case);
    let kept = runtime.block_on(everything_in_flight(case)).unwrap();
    assert!(runtime.in_flight() >= 5, "{}", runtime.dump());
    runtime.shutdown(PATIENCE).unwrap();
    drop(kept);
});

runtimes!(a_dropped_runtime_ends_everything_in_flight, |case| {
    let made = runtime(case);
    let kept = made.block_on(everything_in_flight(case)).unwrap();
    let drops = Rc::new(Cell::new(false));
    struct Told(Rc<Cell<bool>>);
    impl Drop for Told {
        fn drop(&mut self) {
            self.0.set(true);
        }
    }
    let told = Told(Rc::clone(&drops));
    let task = made.spawn(async move {
        let _told = told;
        pending::<()>().await;
    });
    drop(made);
    assert!(drops.get(), "futures are dropped with their runtime");
    assert!(task.is_finished());
    assert!(matches!(poll(task), Poll::Ready(Err(JoinError::Cancelled))));
    // What it had is free for another.
    let another = runtime(case);
    another.block_on(some_turns()).unwrap();
    drop(kept);
});

/// Tells whether it was dropped inside the runtime, where it can spawn.
struct Leaving(Rc<Cell<Option<bool>>>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.set(Some(is_in_runtime()));
        if is_in_runtime() {
            spawn(async {}).detach();
        }
    }
}

runtimes!(what_the_future_of_block_on_still_holds_is_dropped_inside_the_runtime, |case| {
    let made = runtime(case);
    let told = Rc::new(Cell::new(None));
    // Ready with the rest of itself inside, as a race is with the future that lost it.
    let rest = Leaving(Rc::clone(&told));
    let race = poll_fn(move |_| {
        let _ = &rest;
        Poll::Ready(())
    });
    made.block_on(race).unwrap();
    assert_eq!(told.get(), Some(true));
});

#[test]
fn what_it_holds_when_the_runtime_fails_is_dropped_inside_the_runtime() {
    let made = runtime(Case::Sim);
    let told = Rc::new(Cell::new(None));
    let rest = Leaving(Rc::clone(&told));
    let stuck = made.block_on(async move {
        let _rest = rest;
        pending::<()>().await;
    });
    assert!(stuck.is_err());
    assert_eq!(told.get(), Some(true));
}

runtimes!(a_task_may_spawn_while_it_is_dropped, |case| {
    struct Spawns(Rc<Cell<u32>>);
    impl Drop for Spawns {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
            if self.0.get() < 3 {
                let again = Spawns(Rc::clone(&self.0));
                spawn(async move {
                    let _again = again;
                    pending::<()>().await;
                })
                .detach();
            }
        }
    }
    let runtime = runtime(case);
    let drops = Rc::new(Cell::new(0));
    let first = Spawns(Rc::clone(&drops));
    runtime
        .spawn(async move {
            let _first = first;
            pending::<()>().await;
        })
        .detach();
    runtime.shutdown(PATIENCE).unwrap();
    assert_eq!(drops.get(), 3);
});

runtimes!(what_outlives_its_runtime_says_that_it_is_gone, |case| {
    let made = runtime(case);
    let (mut ours, mut theirs) = made.block_on(pair()).unwrap();
    let (mut idle, _) = made.block_on(async { listener() }).unwrap();
    let lease = made.block_on(async {
        ours.write_all("kept").await.0.unwrap();
        loop {
            let lease = theirs.recv().await.unwrap();
            if lease.len() == 4 {
                break lease;
            }
            receive(&mut theirs, 4 - lease.len()).await;
            ours.write_all("kept").await.0.unwrap();
        }
    });
    let (cancel, stop, remote) = (ours.canceller(), idle.canceller(), made.remote());
    made.shutdown(PATIENCE).unwrap();
    let lease = lease.unwrap();
    assert_eq!(&*lease, b"kept");
    let gone = |error: ringroad_engine::Error| {
        assert!(error.is_cancelled());
        assert!(error.to_string().contains("has been shut down"), "{error}");
    };
    let ready = |polled: Poll<_>| match polled {
        Poll::Ready(Err(why)) => gone(why),
        Poll::Ready(Ok(())) => panic!("it worked"),
        Poll::Pending => panic!("it waits"),
    };
    ready(poll(ours.recv()).map_ok(drop));
    ready(poll(idle.accept()).map_ok(drop));
    let Poll::Ready((sent, back)) = poll(ours.write_all("mine".to_owned().into_bytes())) else {
        panic!("it waits")
    };
    gone(sent.unwrap_err());
    assert_eq!(back, b"mine");
    let Poll::Ready((received, back)) = poll(theirs.recv_into(b"mine".to_vec())) else { panic!("it waits") };
    gone(received.unwrap_err());
    assert_eq!(back, b"mine");
    gone(ours.local_addr().unwrap_err());
    cancel.cancel();
    stop.cancel();
    assert!(remote.spawn(|| async {}).is_err());
    drop((ours, theirs, idle, lease));
});

runtimes!(a_panic_in_block_on_leaves_a_runtime_that_works, |case| {
    let runtime = runtime(case);
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let over = runtime.block_on(async {
            let (_ours, mut theirs) = pair().await;
            assert!(poll_once(pin!(theirs.recv())).await.is_none());
            if std::hint::black_box(true) {
                panic!("on purpose");
            }
        });
        over.unwrap();
    }));
    assert_eq!(*caught.unwrap_err().downcast_ref::<&str>().unwrap(), "on purpose");
    let (mut ours, mut theirs) = runtime.block_on(pair()).unwrap();
    let got = runtime.block_on(async {
        ours.write_all("works").await.0.unwrap();
        receive(&mut theirs, 5).await
    });
    assert_eq!(got.unwrap(), b"works");
    runtime.shutdown(PATIENCE).unwrap();
});

runtimes!(a_block_on_inside_another_is_refused_and_so_is_a_spawn_outside, |case| {
    let outer = runtime(case);
    let message = |caught: std::thread::Result<()>| {
        let why = caught.unwrap_err();
        let text = why.downcast_ref::<&str>().map(|text| (*text).to_owned());
        text.or_else(|| why.downcast_ref::<String>().cloned()).unwrap()
    };
    let caught = outer.block_on(async {
        let inner = runtime(case);
        catch_unwind(AssertUnwindSafe(|| {
            inner.block_on(async {}).unwrap();
        }))
    });
    let text = message(caught.unwrap());
    assert!(text.contains("await instead"), "{text}");
    let caught = catch_unwind(|| drop(spawn(async {})));
    let text = message(caught);
    assert!(text.contains("outside of a runtime"), "{text}");
    // And afterwards everything is as before.
    assert_eq!(outer.block_on(async { spawn(async { 1 }).await.unwrap() }).unwrap(), 1);
});

runtimes!(two_runtimes_on_one_thread_take_turns, |case| {
    let (one, two) = (runtime(case), runtime(case));
    let (mut ours, mut theirs) = one.block_on(pair()).unwrap();
    let task = two.spawn(async {
        yield_now().await;
        7
    });
    one.block_on(async { ours.write_all("one").await.0 }).unwrap().unwrap();
    assert_eq!(two.block_on(task).unwrap().unwrap(), 7);
    // What the one wakes of the other is woken there.
    let gate = Gate::default();
    let waits = two.spawn({
        let gate = gate.clone();
        async move { gate.opened().await }
    });
    two.block_on(some_turns()).unwrap();
    one.block_on(async { gate.open() }).unwrap();
    two.block_on(waits).unwrap().unwrap();
    assert_eq!(one.block_on(async { receive(&mut theirs, 3).await }).unwrap(), b"one");
    two.shutdown(PATIENCE).unwrap();
    drop((ours, theirs));
    one.shutdown(PATIENCE).unwrap();
});

/// Panics when it is woken.
struct Woken;

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        panic!("woken");
    }
}

runtimes!(a_waker_that_panics_keeps_no_other_from_being_woken, |case| {
    let runtime = runtime(case);
    let waker = Waker::from(Arc::new(Woken));
    // Many, so that some of them are told of in one turn, in whatever order.
    let mut ends: Vec<_> = (0..20).map(|_| runtime.block_on(pair()).unwrap()).collect();
    let mut tasks = Vec::new();
    let mut senders = Vec::new();
    let mut strange = Vec::new();
    for (at, (ours, theirs)) in ends.drain(..).enumerate() {
        senders.push(ours);
        if at == 5 {
            strange.push(theirs);
            continue;
        }
        let mut theirs = theirs;
        tasks.push(runtime.spawn(async move { theirs.recv().await.unwrap().len() }));
    }
    let mut stranger = strange.pop().unwrap();
    let mut recv = Box::pin(stranger.recv());
    runtime.block_on(async { yield_now().await }).unwrap();
    assert!(recv.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    for mut sender in senders.drain(..) {
        tasks.push(runtime.spawn(async move {
            sender.write_all("wake").await.0.unwrap();
            4
        }));
    }
    let caught = catch_unwind(AssertUnwindSafe(|| runtime.block_on(sleep(Duration::from_secs(60)))));
    assert_eq!(*caught.unwrap_err().downcast_ref::<&str>().unwrap(), "woken");
    for task in tasks {
        assert!(runtime.block_on(task).unwrap().unwrap() > 0);
    }
    drop(recv);
    drop(stranger);
    runtime.shutdown(PATIENCE).unwrap();
});

/// A panic's payload that panics too when it is dropped, with another one.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        std::panic::panic_any(Bomb);
    }
}

/// Panics when it is dropped, each time after the first with a [`Bomb`].
struct Badly(Rc<Cell<u32>>);

impl Drop for Badly {
    fn drop(&mut self) {
        let before = self.0.replace(self.0.get() + 1);
        if before == 0 {
            panic!("dropped badly");
        }
        std::panic::panic_any(Bomb);
    }
}

/// Leaves three tasks in the runtime that panic when they are dropped.
fn with_bad_tasks(runtime: &Runtime) -> Rc<Cell<u32>> {
    let drops = Rc::new(Cell::new(0));
    for _ in 0..3 {
        let badly = Badly(Rc::clone(&drops));
        runtime
            .spawn(async move {
                let _badly = badly;
                pending::<()>().await;
            })
            .detach();
    }
    runtime.block_on(some_turns()).unwrap();
    drops
}

runtimes!(a_shutdown_comes_to_its_end_and_tells_of_it_though_what_is_dropped_panics, |case| {
    let runtime = runtime(case);
    let drops = with_bad_tasks(&runtime);
    let (ours, mut theirs) = runtime.block_on(pair()).unwrap();
    runtime.block_on(async { assert!(poll_once(pin!(theirs.recv())).await.is_none()) }).unwrap();
    let remote = runtime.remote();
    assert_eq!(runtime.shutdown(PATIENCE), Ok(()));
    assert_eq!(drops.get(), 3);
    // It is gone, and not only half.
    assert!(ours.local_addr().unwrap_err().to_string().contains("has been shut down"));
    assert!(remote.spawn(|| async {}).is_err());
});

cases!(
    /// In a process of its own: a panic while this thread unwinds would end it.
    a_runtime_dropped_by_a_panic_does_not_panic_again,
    all,
    |case| crate::support::alone(None, || {
        let drops = Rc::new(RefCell::new(Rc::default()));
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let runtime = runtime(case);
            *drops.borrow_mut() = with_bad_tasks(&runtime);
            runtime.block_on(async { panic!("the main future") }).unwrap();
        }));
        assert_eq!(*caught.unwrap_err().downcast_ref::<&str>().unwrap(), "the main future");
        assert_eq!(drops.borrow().get(), 3);
    })
);

runtimes!(a_panic_whose_payload_panics_too_ends_its_task_alone, |case| {
    let runtime = runtime(case);
    runtime
        .block_on(async {
            spawn(async { std::panic::panic_any(Bomb) }).detach();
            some_turns().await;
            // Both the task and what is left of it panic; the handle has the first of the payloads.
            let drops = Rc::new(Cell::new(1));
            let task = spawn({
                let badly = Badly(Rc::clone(&drops));
                async move {
                    let _badly = badly;
                    yield_now().await;
                    pending::<()>().await;
                }
            });
            some_turns().await;
            task.cancel();
            assert_eq!(drops.get(), 2);
            let Err(JoinError::Panicked(payload)) = task.await else { panic!("it was dropped badly") };
            std::mem::forget(payload);
        })
        .unwrap();
    runtime.shutdown(PATIENCE).unwrap();
});

/// Spawns when it is dropped, which may be late.
struct Late(Arc<()>);

impl Wake for Late {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Late {
    fn drop(&mut self) {
        let kept = Arc::clone(&self.0);
        spawn(async move {
            let _kept = kept;
            pending::<()>().await;
        })
        .detach();
    }
}

runtimes!(a_task_spawned_by_the_last_waker_is_dropped_with_its_runtime, |case| {
    let runtime = runtime(case);
    let kept = Arc::new(());
    let (_ours, mut theirs) = runtime.block_on(pair()).unwrap();
    let mut recv = Box::pin(theirs.recv());
    let waker = Waker::from(Arc::new(Late(Arc::clone(&kept))));
    assert!(recv.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(waker);
    runtime.shutdown(PATIENCE).unwrap();
    assert_eq!(Arc::strong_count(&kept), 1, "a task outlives its runtime");
});

cases!(a_runtime_may_end_with_its_thread, all, |case| {
    thread_local! {
        static MINE: RefCell<Option<(Runtime, TcpStream)>> = const { RefCell::new(None) };
    }
    crate::support::alone(None, || {
        let thread = std::thread::spawn(move || {
            // Before anything of the engine has touched this thread, so that it is dropped after it.
            MINE.with(|mine| assert!(mine.borrow().is_none()));
            let runtime = runtime(case);
            let (ours, mut theirs) = runtime.block_on(pair()).unwrap();
            runtime
                .spawn(async move {
                    drop(theirs.recv().await);
                })
                .detach();
            runtime.block_on(some_turns()).unwrap();
            MINE.with(|mine| *mine.borrow_mut() = Some((runtime, ours)));
        });
        thread.join().unwrap();
    });
});

cases!(
    /// A connection that the program keeps a handle of lives on after we closed ours, and so does what the
    /// kernel remembers of it.
    a_connection_taken_over_again_under_the_same_number_works,
    real,
    |case| with_runtime(case, |builder| builder, |_, runtime| {
        let listener = std::net::TcpListener::bind(crate::peer::anywhere()).unwrap();
        let mut far = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let near = listener.accept().unwrap().0;
        for round in 0..5u8 {
            let mut stream = runtime
                .block_on(async { TcpStream::from_std(near.try_clone().unwrap()).unwrap() })
                .unwrap();
            let got = runtime.block_on(async {
                assert!(poll_once(pin!(stream.recv())).await.is_none());
                yield_now().await;
                far.write_all(&[round; 3]).unwrap();
                receive(&mut stream, 3).await
            });
            assert_eq!(got.unwrap(), [round; 3]);
            runtime.block_on(stream.close()).unwrap();
        }
    })
);

cases!(
    /// The connection takes along the bytes that the kernel holds for it. A connection with a receive begun
    /// stays where it is.
    a_connection_nothing_was_received_on_goes_to_another_runtime,
    real,
    |case| with_runtime(case, |builder| builder, |case, runtime| {
        let listener = std::net::TcpListener::bind(crate::peer::anywhere()).unwrap();
        let address = listener.local_addr().unwrap();
        let mut listener = runtime.block_on(async { TcpListener::from_std(listener).unwrap() }).unwrap();
        let mut far = std::net::TcpStream::connect(address).unwrap();
        far.write_all(b"early").unwrap();
        let accepted = runtime.block_on(listener.accept()).unwrap().unwrap();
        let moved = runtime.block_on(async { accepted.into_std().unwrap() }).unwrap();
        let elsewhere = std::thread::spawn(move || {
            let runtime = case.builder().build().unwrap();
            let talk = async {
                let mut stream = TcpStream::from_std(moved).unwrap();
                assert_eq!(receive(&mut stream, 5).await, b"early");
                stream.write_all("and welcome").await.0.unwrap();
                stream.close().await;
            };
            runtime.block_on(talk).unwrap();
        });
        let mut answer = Vec::new();
        far.read_to_end(&mut answer).unwrap();
        assert_eq!(answer, b"and welcome");
        elsewhere.join().unwrap();

        let mut far = std::net::TcpStream::connect(address).unwrap();
        let mut near = runtime.block_on(listener.accept()).unwrap().unwrap();
        let refused = runtime.block_on(async {
            assert!(poll_once(pin!(near.recv())).await.is_none());
            near.into_std()
        });
        let (why, mut near) = refused.unwrap().unwrap_err();
        assert_eq!(why.raw_os_error(), Some(libc::EBUSY));
        far.write_all(b"still here").unwrap();
        assert_eq!(runtime.block_on(receive(&mut near, 10)).unwrap(), b"still here");
    })
);

/// Cancels a task when it is dropped.
struct Cancelled<'a>(&'a JoinHandle<()>);

impl Drop for Cancelled<'_> {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

runtimes!(a_destructor_that_panics_while_the_thread_unwinds_does_not_end_the_process, |case| {
    // The output of a task, in its handle.
    let first = runtime(case);
    let drops = Rc::new(Cell::new(0));
    let badly = Badly(Rc::clone(&drops));
    let caught = catch_unwind(AssertUnwindSafe(|| {
        first.block_on(async {
            let handle = spawn(async move { badly });
            some_turns().await;
            assert!(handle.is_finished(), "its output is there");
            let _handle = handle;
            panic!("on purpose");
        })
    }));
    assert_eq!(*caught.unwrap_err().downcast_ref::<&str>().unwrap(), "on purpose");
    assert_eq!(drops.get(), 1);
    // A foreign waker, in the set that a task belongs to.
    first
        .block_on(async {
            let mut set = JoinSet::<()>::new();
            set.spawn(async {
                yield_now().await;
                panic!("on purpose");
            });
            let waker = Waker::from(Arc::new(Woken));
            assert!(set.poll_join_next(&mut Context::from_waker(&waker)).is_pending());
            some_turns().await;
            assert!(matches!(set.join_next().await, Some(Err(JoinError::Panicked(_)))));
        })
        .unwrap();
    // Foreign wakers that wait for a channel, a notification, a task.
    let caught = catch_unwind(AssertUnwindSafe(|| {
        first.block_on(async {
            let waker = Waker::from(Arc::new(Woken));
            let mut context = Context::from_waker(&waker);
            let (sender, mut receiver) = sync::unbounded::<u8>();
            assert!(pin!(receiver.recv()).poll(&mut context).is_pending());
            let notify = sync::Notify::new();
            let mut notified = Box::pin(notify.notified());
            let mut next = Box::pin(notify.notified());
            assert!(notified.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            assert!(next.as_mut().poll(&mut context).is_pending());
            notify.notify_one();
            let mut task = spawn(pending::<()>());
            assert!(Pin::new(&mut task).poll(&mut context).is_pending());
            let _cancelled = Cancelled(&task);
            let _dropped = (sender, notified);
            panic!("on purpose");
        })
    }));
    assert_eq!(*caught.unwrap_err().downcast_ref::<&str>().unwrap(), "on purpose");
    first.shutdown(PATIENCE).unwrap();
});
