//! What reaches a runtime from other threads: wakes, tasks, and the traffic of other runtimes.
//!
//! On the real drivers only: a simulation has one thread and virtual time, and nothing outside of it.

use crate::peer::{Client, Echo, Latch, anywhere};
use crate::support::{Case, with_runtime};
use ringroad_engine::net::{TcpListener, TcpStream};
use ringroad_engine::sync::oneshot;
use ringroad_engine::time::{sleep, timeout};
use ringroad_engine::{Builder, Gone, Remote, Runtime, spawn, yield_now};
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

fn unchanged(builder: Builder) -> Builder {
    builder
}

/// Ready once another thread has said so; each poll leaves its waker there.
#[derive(Clone, Default)]
struct Signal(Arc<Mutex<(bool, Option<Waker>)>>);

impl Signal {
    fn raise(&self) {
        let waker = {
            let mut state = self.0.lock().unwrap();
            state.0 = true;
            state.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    async fn wait(&self) {
        poll_fn(|context| {
            let mut state = self.0.lock().unwrap();
            if state.0 {
                return Poll::Ready(());
            }
            state.1 = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

cases!(
    /// Round after round the other thread answers as soon as it is asked, so that wakes come before, while
    /// and after the runtime falls asleep. One that is lost hangs.
    a_wake_from_another_thread_ends_the_wait,
    real,
    |case| with_runtime(case, unchanged, |_, runtime| {
        let (ask, asked) = mpsc::channel::<Signal>();
        let other = thread::spawn(move || asked.into_iter().for_each(|signal| signal.raise()));
        runtime
            .block_on(async {
                for _ in 0..3000 {
                    let signal = Signal::default();
                    ask.send(signal.clone()).unwrap();
                    signal.wait().await;
                }
            })
            .unwrap();
        drop(ask);
        other.join().unwrap();
        let counters = runtime.counters();
        assert!((1..=3000).contains(&counters.remote_wakes), "{counters:?}");
    })
);

cases!(
    /// The same while the wait has a deadline far away.
    a_wake_from_another_thread_ends_a_wait_for_a_timer,
    real,
    |case| with_runtime(case, unchanged, |_, runtime| {
        let (ask, asked) = mpsc::channel::<Signal>();
        let other = thread::spawn(move || asked.into_iter().for_each(|signal| signal.raise()));
        runtime
            .block_on(async {
                for _ in 0..300 {
                    let signal = Signal::default();
                    ask.send(signal.clone()).unwrap();
                    timeout(Duration::from_secs(3600), signal.wait()).await.unwrap();
                }
            })
            .unwrap();
        drop(ask);
        other.join().unwrap();
    })
);

cases!(a_remote_starts_tasks_on_the_runtimes_thread_in_the_order_sent, real, |case| with_runtime(
    case,
    unchanged,
    |_, runtime| {
        const TASKS: usize = 500;
        let (remote, here) = (runtime.remote(), thread::current().id());
        let (say, hear) = mpsc::channel();
        let over = Signal::default();
        let other = thread::spawn({
            let over = over.clone();
            move || {
                for n in 0..TASKS {
                    let (say, over) = (say.clone(), over.clone());
                    remote
                        .spawn(move || async move {
                            say.send((n, thread::current().id())).unwrap();
                            if n + 1 == TASKS {
                                over.raise();
                            }
                        })
                        .unwrap();
                }
            }
        });
        runtime.block_on(over.wait()).unwrap();
        other.join().unwrap();
        let ran: Vec<_> = hear.try_iter().collect();
        assert_eq!(ran, (0..TASKS).map(|n| (n, here)).collect::<Vec<_>>());
    }
));

cases!(a_task_gives_another_thread_a_way_to_its_runtime, real, |case| with_runtime(
    case,
    unchanged,
    |_, runtime| {
        let (here, there) = runtime
            .block_on(async {
                let (remote, (tell, told)) = (Remote::current(), oneshot::channel());
                let other = thread::spawn(move || {
                    remote.spawn(move || async move { tell.send(thread::current().id()).unwrap() }).unwrap();
                });
                let told = told.await.unwrap();
                other.join().unwrap();
                (thread::current().id(), told)
            })
            .unwrap();
        assert_eq!(here, there);
    }
));

/// Tells when it is dropped.
struct Told(mpsc::Sender<&'static str>);

impl Drop for Told {
    fn drop(&mut self) {
        let _ = self.0.send("dropped");
    }
}

cases!(
    /// Work that comes too late is refused, work that was never begun is dropped, and neither is leaked.
    a_remote_outlives_its_runtime_and_says_so,
    real,
    |case| {
        let runtime = case.builder().build().unwrap();
        let remote = runtime.remote();
        let (say, hear) = mpsc::channel();
        let never_begun = Told(say.clone());
        remote.spawn(move || async move { drop(never_begun) }).unwrap();
        runtime.shutdown(Duration::from_secs(10)).unwrap();
        assert_eq!(hear.recv(), Ok("dropped"));
        let too_late = Told(say);
        assert_eq!(remote.spawn(move || async move { drop(too_late) }), Err(Gone));
        assert_eq!(hear.recv(), Ok("dropped"));
        assert!(hear.recv().is_err(), "nothing of them is left");
    }
);

cases!(
    /// Threads wake different tasks and the same one, all at once, over and over.
    many_threads_that_wake_at_once_lose_no_wake,
    real,
    |case| with_runtime(case, unchanged, |_, runtime| {
        const THREADS: usize = 6;
        const ROUNDS: u64 = 300;
        let sum = Arc::new(AtomicU64::new(0));
        let shared: Arc<Mutex<Option<Waker>>> = Arc::default();
        let mut threads = Vec::new();
        let mut tasks = Vec::new();
        for _ in 0..THREADS {
            let (ask, asked) = mpsc::channel::<Signal>();
            let (sum, shared) = (Arc::clone(&sum), Arc::clone(&shared));
            threads.push(thread::spawn(move || {
                for signal in asked {
                    sum.fetch_add(1, Ordering::SeqCst);
                    signal.raise();
                    let waker = shared.lock().unwrap().clone();
                    waker.inspect(Waker::wake_by_ref);
                }
            }));
            tasks.push(runtime.spawn(async move {
                for _ in 0..ROUNDS {
                    let signal = Signal::default();
                    ask.send(signal.clone()).unwrap();
                    signal.wait().await;
                }
            }));
        }
        runtime
            .block_on(poll_fn(|context| {
                *shared.lock().unwrap() = Some(context.waker().clone());
                match sum.load(Ordering::SeqCst) {
                    all if all == THREADS as u64 * ROUNDS => Poll::Ready(()),
                    _ => Poll::Pending,
                }
            }))
            .unwrap();
        runtime
            .block_on(async {
                for task in tasks {
                    task.await.unwrap();
                }
            })
            .unwrap();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    })
);

cases!(
    /// A waker may be kept for ever. A later task in the same slot may be polled once more than necessary.
    a_waker_that_outlives_its_task_and_runtime_wakes_no_task_wrongly,
    real,
    |case| {
        let kept: Arc<Mutex<Vec<Waker>>> = Arc::default();
        let wake_all = |kept: &Arc<Mutex<Vec<Waker>>>| {
            let kept = Arc::clone(kept);
            thread::spawn(move || kept.lock().unwrap().iter().for_each(Waker::wake_by_ref)).join().unwrap();
        };
        with_runtime(case, unchanged, {
            let kept = Arc::clone(&kept);
            move |_, runtime| {
                let keep = |kept: &Arc<Mutex<Vec<Waker>>>| {
                    let kept = Arc::clone(kept);
                    poll_fn(move |context| {
                        kept.lock().unwrap().push(context.waker().clone());
                        Poll::Ready(())
                    })
                };
                for _ in 0..10 {
                    runtime.block_on(runtime.spawn(keep(&kept))).unwrap().unwrap();
                }
                // Other tasks are in those slots now, and wait for something else.
                let polls = Arc::new(AtomicU64::new(0));
                let signal = Signal::default();
                let waiting = runtime.spawn({
                    let (polls, signal) = (Arc::clone(&polls), signal.clone());
                    async move {
                        let mut wait = std::pin::pin!(signal.wait());
                        poll_fn(|context| {
                            polls.fetch_add(1, Ordering::SeqCst);
                            wait.as_mut().poll(context)
                        })
                        .await;
                    }
                });
                runtime.block_on(yield_now()).unwrap();
                wake_all(&kept);
                // One turn takes the wakes in, the next would poll.
                runtime.block_on(async { (yield_now().await, yield_now().await) }).unwrap();
                assert_eq!(polls.load(Ordering::SeqCst), 1, "woken in the name of another");
                signal.raise();
                runtime.block_on(waiting).unwrap().unwrap();
            }
        });
        // The runtime is gone; then its number is likely another's.
        wake_all(&kept);
        with_runtime(case, unchanged, move |_, runtime| {
            wake_all(&kept);
            runtime.block_on(yield_now()).unwrap();
        });
    }
);

cases!(a_wake_between_two_calls_of_block_on_is_not_lost, real, |case| with_runtime(
    case,
    unchanged,
    |_, runtime| {
        for _ in 0..50 {
            let signal = Signal::default();
            let task = runtime.spawn({
                let signal = signal.clone();
                async move { signal.wait().await }
            });
            // The task has been polled, and waits.
            runtime.block_on(yield_now()).unwrap();
            assert!(!task.is_finished());
            thread::spawn(move || signal.raise()).join().unwrap();
            runtime.block_on(task).unwrap().unwrap();
        }
    }
));

cases!(
    /// Wakes and I/O of the same runtime do not cost one another anything.
    wakes_from_other_threads_and_io_come_side_by_side,
    real,
    |case| with_runtime(case, unchanged, |_, runtime| {
        let stop = Arc::new(AtomicBool::new(false));
        let ran = Arc::new(AtomicU64::new(0));
        let pest = thread::spawn({
            let (remote, stop, ran) = (runtime.remote(), Arc::clone(&stop), Arc::clone(&ran));
            move || {
                let mut sent = 0;
                while !stop.load(Ordering::SeqCst) {
                    let counted = Arc::clone(&ran);
                    remote
                        .spawn(move || async move {
                            counted.fetch_add(1, Ordering::SeqCst);
                        })
                        .unwrap();
                    sent += 1;
                    // As fast as the runtime takes them, and no faster.
                    while sent - ran.load(Ordering::SeqCst) > 100 && !stop.load(Ordering::SeqCst) {
                        thread::yield_now();
                    }
                }
                sent
            }
        });
        runtime
            .block_on(async {
                let server = Echo::start();
                let mut client = Client::connect(server.address).await;
                for round in 0..300 {
                    client.exchange(vec![round as u8; 1 + round * 7]).await;
                }
                drop(client);
                server.end().await;
            })
            .unwrap();
        stop.store(true, Ordering::SeqCst);
        let sent = pest.join().unwrap();
        runtime
            .block_on(async {
                while ran.load(Ordering::SeqCst) < sent {
                    yield_now().await;
                }
            })
            .unwrap();
    })
);

#[test]
fn runtimes_of_all_drivers_in_threads_of_their_own_pass_a_message_round() {
    const LAPS: usize = 200;
    let cases = [Case::Epoll, Case::IoUring, Case::IoUringPlain, Case::Poll, Case::Threads];
    let cases: Vec<_> = cases.into_iter().filter(|case| !case.is_refused()).collect();
    // Each listens, tells its neighbour where, and connects to the next.
    let (addresses, mut listening): (Vec<_>, Vec<_>) = cases.iter().map(|_| mpsc::channel()).unzip();
    listening.rotate_left(1);
    let members: Vec<_> = cases
        .into_iter()
        .zip(addresses)
        .zip(listening)
        .enumerate()
        .map(|(n, ((case, tell), next))| {
            thread::spawn(move || {
                with_runtime(case, unchanged, move |_, runtime| {
                    runtime
                        .block_on(async move {
                            let mut listener = TcpListener::bind(anywhere()).unwrap();
                            tell.send(listener.local_addr().unwrap()).unwrap();
                            let mut out = TcpStream::connect(next.recv().unwrap()).await.unwrap();
                            let mut from = listener.accept().await.unwrap();
                            if n == 0 {
                                out.write_all("round and round").await.0.unwrap();
                            }
                            for lap in 0..LAPS {
                                let mut got = Vec::new();
                                while got.len() < 15 {
                                    got.extend_from_slice(&from.recv().await.unwrap());
                                }
                                assert_eq!(got, b"round and round");
                                if n > 0 || lap + 1 < LAPS {
                                    out.write_all(got).await.0.unwrap();
                                }
                            }
                        })
                        .unwrap();
                });
            })
        })
        .collect();
    members.into_iter().for_each(|member| member.join().unwrap());
}

cases!(
    /// Runtimes are made and dropped in many threads at once; each finds its own tasks and no other's.
    runtimes_come_and_go_in_many_threads_at_once,
    real,
    |case| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                thread::spawn(move || {
                    for round in 0..10u64 {
                        let runtime = case.builder().entries(8).buffers(2, 64).build().unwrap();
                        let (remote, over): (Remote, Signal) = (runtime.remote(), Signal::default());
                        let helper = thread::spawn({
                            let over = over.clone();
                            move || remote.spawn(move || async move { over.raise() }).unwrap()
                        });
                        let sum = runtime.block_on(async {
                            let latch = Latch::default();
                            let tasks: Vec<_> = (0..10)
                                .map(|n| {
                                    let latch = latch.clone();
                                    spawn(async move {
                                        latch.wait().await;
                                        n * round
                                    })
                                })
                                .collect();
                            over.wait().await;
                            sleep(Duration::from_millis(1)).await;
                            latch.open();
                            let mut sum = 0;
                            for task in tasks {
                                sum += task.await.unwrap();
                            }
                            sum
                        });
                        assert_eq!(sum.unwrap(), 45 * round);
                        helper.join().unwrap();
                        runtime.shutdown(Duration::from_secs(10)).unwrap();
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
);

#[test]
fn a_remote_and_a_waker_may_be_sent_and_shared() {
    fn is<T: Send + Sync + 'static>() {}
    is::<Remote>();
    is::<Waker>();
    let _: fn(Runtime) = drop;
}
