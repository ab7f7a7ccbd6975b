//! The same program on several threads.

use ringroad_engine::net::TcpStream;
use ringroad_engine::workers::{OnPanic, Share, Worker, WorkerError, Workers};
use ringroad_engine::{DriverName, Runtime, choose, spawn, workers, yield_now};
use std::cell::RefCell;
use std::collections::HashSet;
use std::io::ErrorKind;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

fn on_each(body: impl Fn(DriverName)) {
    for driver in choose::drivers() {
        match choose::probe(driver) {
            Ok(_) => body(driver),
            Err(refusal) => eprintln!("skipped: {refusal}"),
        }
    }
}

#[test]
fn each_worker_accepts_at_one_address_until_all_are_told_to_stop() {
    on_each(|driver| {
        for share in [Share::ReusePort, Share::OneQueue] {
            let settings = Workers::new(3).driver(driver).pin(true).listen(([127, 0, 0, 1], 0).into(), share);
            let crew = settings
                .start(|worker| async move {
                    let mut listener = worker.listener(0).unwrap();
                    assert!(worker.listener(1).is_err());
                    // What is not `Send` is each worker's own.
                    let tasks = Rc::new(RefCell::new(Vec::new()));
                    while let Some(accepted) = worker.stopping().run_until_cancelled(listener.accept()).await
                    {
                        let mut stream = accepted.unwrap();
                        let task = spawn(async move { stream.write_all("hello").await.0.unwrap() });
                        tasks.borrow_mut().push(task);
                    }
                    let tasks = std::mem::take(&mut *tasks.borrow_mut());
                    let served = tasks.len();
                    for task in tasks {
                        task.await.unwrap();
                    }
                    (worker.index(), served)
                })
                .unwrap();
            let address = crew.addresses()[0];
            Runtime::new(driver)
                .unwrap()
                .block_on(async {
                    for _ in 0..40 {
                        let mut stream = TcpStream::connect(address).await.unwrap();
                        assert_eq!(&*stream.recv().await.unwrap(), b"hello");
                    }
                })
                .unwrap();
            crew.stop();
            let ended = crew.join().unwrap();
            let numbers: Vec<_> = ended.iter().map(|(index, _)| *index).collect();
            assert_eq!(numbers, [0, 1, 2], "{driver}");
            assert_eq!(ended.iter().map(|(_, served)| served).sum::<usize>(), 40, "{driver}");
        }
    });
}

#[test]
fn a_worker_that_panics_stops_the_others_and_is_reported() {
    on_each(|driver| {
        let crew = Workers::new(2).driver(driver).start(|worker| async move {
            if worker.index() == 1 {
                yield_now().await;
                panic!("on purpose");
            }
            worker.stopping().cancelled().await;
        });
        let why = crew.unwrap().join().unwrap_err();
        assert_eq!(why.to_string(), "worker 1 panicked: on purpose");
    });
}

#[test]
fn a_worker_that_panics_is_started_again_or_left_if_asked() {
    let begun = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&begun);
    let settings = Workers::new(1).driver(DriverName::Epoll).on_panic(OnPanic::Restart);
    let crew = settings.start(move |_| {
        let nth = count.fetch_add(1, Ordering::SeqCst);
        async move {
            assert!(nth > 0, "the first time");
            nth
        }
    });
    assert_eq!(crew.unwrap().join().unwrap(), [1]);
    let settings = Workers::new(2).driver(DriverName::Epoll).on_panic(OnPanic::Continue);
    let crew = settings.start(|worker| async move {
        assert!(worker.index() > 0, "the first one");
        worker.stopping().cancelled().await;
    });
    let crew = crew.unwrap();
    let other = crew.remote(1).unwrap().spawn_with_result(|| async { 7 });
    assert_eq!(other.unwrap().join_blocking().unwrap(), 7, "it goes on");
    crew.stop();
    assert!(matches!(crew.join(), Err(WorkerError::Panicked { worker: 0, .. })));
}

#[test]
fn a_worker_that_does_not_stop_is_dropped_when_its_time_is_over() {
    let crew = Workers::new(1).driver(DriverName::Epoll).patience(Duration::from_millis(10));
    let crew = crew.start(|_| std::future::pending::<()>()).unwrap();
    crew.stop();
    assert!(matches!(crew.join(), Err(WorkerError::Late { worker: 0, .. })));
    // Dropping it stops and waits as well.
    drop(workers(1, |worker| async move { worker.stopping().cancelled().await }).unwrap());
}

#[test]
fn what_cannot_be_started_is_an_error_and_leaves_nothing_running() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let settings = Workers::new(2).listen(taken.local_addr().unwrap(), Share::OneQueue);
    let why = settings.start(|_| async {}).unwrap_err();
    assert_eq!(why.kind(), ErrorKind::AddrInUse, "{why}");
    let settings = Workers::new(2).driver(DriverName::Epoll).runtime(|builder| builder.buffers(3, 4096));
    assert!(settings.start(|_| async {}).is_err());
}

#[test]
fn workers_have_threads_of_their_own() {
    let threads = Arc::new(Mutex::new(HashSet::new()));
    let seen = Arc::clone(&threads);
    let crew = workers(4, move |worker| {
        let seen = Arc::clone(&seen);
        async move {
            seen.lock().unwrap().insert(thread::current().id());
            worker.count()
        }
    });
    assert_eq!(crew.unwrap().join().unwrap(), [4; 4]);
    assert_eq!(threads.lock().unwrap().len(), 4);
}

/// What a worker does that runs its runtime itself, until it is told to stop.
fn until_stopped(worker: &Worker, runtime: &Runtime) -> usize {
    runtime.block_on(async { worker.stopping().cancelled().await }).unwrap();
    worker.index()
}

#[test]
fn workers_are_added_one_by_one_and_run_their_runtimes_themselves() {
    on_each(|driver| {
        let mut crew = Workers::new(3).driver(driver).name("added").crew().unwrap();
        assert_eq!(crew.workers().len(), 0);
        let (tell, told) = mpsc::channel();
        for number in 0..3 {
            let tell = tell.clone();
            let added = crew.add(move |worker, runtime| {
                let name = thread::current().name().map(str::to_owned);
                tell.send((name, runtime.driver(), worker.count())).unwrap();
                until_stopped(&worker, &runtime)
            });
            assert_eq!(added.unwrap(), number);
            // The one before runs when the next is added.
            assert_eq!(told.recv().unwrap(), (Some(format!("added-{number}")), Some(driver), 3));
            let task = crew.remote(number).unwrap().spawn_with_result(|| async { 7 });
            assert_eq!(task.unwrap().join_blocking().unwrap(), 7);
        }
        let one_too_many = crew.add(|worker, runtime| until_stopped(&worker, &runtime)).unwrap_err();
        assert_eq!(one_too_many.kind(), ErrorKind::InvalidInput, "{one_too_many}");
        assert!(crew.workers().eq(0..3) && crew.workers().all(|worker| !crew.has_ended(worker)));
        crew.stop();
        assert_eq!(crew.join().unwrap(), [0, 1, 2], "{driver}");
    });
}

#[test]
fn a_worker_without_a_runtime_is_tried_again_and_the_others_go_on() {
    let tries = AtomicUsize::new(0);
    let settings = Workers::new(2).driver(DriverName::Epoll).runtime(move |builder| {
        // A number of buffers that is refused, for the second runtime.
        if tries.fetch_add(1, Ordering::SeqCst) == 1 { builder.buffers(3, 4096) } else { builder }
    });
    let mut crew = settings.crew().unwrap();
    let body = |worker: Worker, runtime: Runtime| until_stopped(&worker, &runtime);
    assert_eq!(crew.add(body).unwrap(), 0);
    let why = crew.add(body).unwrap_err();
    assert_eq!((why.kind(), crew.workers().len()), (ErrorKind::InvalidInput, 1), "{why}");
    assert!(!crew.stopping().is_cancelled() && !crew.has_ended(0) && crew.has_ended(1));
    assert_eq!(crew.add(body).unwrap(), 1);
    crew.stop();
    assert_eq!(crew.join().unwrap(), [0, 1]);
}

#[test]
fn a_panic_before_the_runtime_is_an_error_of_the_start() {
    let settings = || Workers::new(1).driver(DriverName::Epoll).runtime(|_| panic!("on purpose"));
    let why = settings().start(|_| async {}).unwrap_err();
    assert_eq!(why.to_string(), "starting a worker: worker 0 panicked: on purpose");
    let why = settings().crew::<()>().unwrap().add(|_, _| ()).unwrap_err();
    assert_eq!(why.to_string(), "starting a worker: worker 0 panicked: on purpose");
}

#[test]
fn workers_that_are_released_stop_and_the_others_go_on() {
    on_each(|driver| {
        let crew = Workers::new(4).driver(driver).start(|worker| async move {
            worker.stopping().cancelled().await;
            worker.index()
        });
        let mut crew = crew.unwrap();
        let released = crew.release(&[3, 1, 9]);
        assert!(released.workers().eq([1, 3]) && crew.workers().eq([0, 2]));
        assert!(released.stopping().is_cancelled() && !crew.stopping().is_cancelled());
        assert_eq!(released.join().unwrap(), [1, 3], "{driver}");
        assert!(crew.has_ended(1) && crew.workers().all(|worker| !crew.has_ended(worker)));
        let task = crew.remote(2).unwrap().spawn_with_result(|| async { 7 });
        assert_eq!(task.unwrap().join_blocking().unwrap(), 7, "it goes on");
        crew.stop();
        assert_eq!(crew.join().unwrap(), [0, 2], "{driver}");
    });
}

#[test]
fn the_output_of_each_worker_is_taken_by_itself() {
    on_each(|driver| {
        let settings = Workers::new(3).driver(driver).on_panic(OnPanic::Continue);
        let mut crew = settings.crew().unwrap();
        crew.add(|_, _| 0).unwrap();
        crew.add(|_, _| panic!("on purpose")).unwrap();
        crew.add(|worker, runtime| until_stopped(&worker, &runtime)).unwrap();
        assert!(matches!(crew.join_next(), Some((0, Ok(0)))));
        let Some((1, Err(why))) = crew.join_next() else { panic!("worker 1 has panicked") };
        assert_eq!(why.to_string(), "worker 1 panicked: on purpose");
        assert!(crew.workers().eq([2]) && !crew.has_ended(2), "{driver}");
        crew.stop();
        assert!(matches!(crew.join_next(), Some((2, Ok(2)))));
        assert!(crew.join_next().is_none());
    });
}

#[test]
fn a_worker_that_runs_its_runtime_itself_stops_the_others_by_a_panic() {
    let mut crew = Workers::new(2).driver(DriverName::Epoll).crew().unwrap();
    crew.add(|worker, runtime| until_stopped(&worker, &runtime)).unwrap();
    crew.add(|_, _| panic!("on purpose")).unwrap();
    assert_eq!(crew.join().unwrap_err().to_string(), "worker 1 panicked: on purpose");
}

#[test]
fn workers_that_are_detached_outlive_their_crew() {
    let (ask, asked) = mpsc::channel::<()>();
    let (tell, told) = mpsc::channel();
    let mut crew = Workers::new(1).driver(DriverName::Epoll).crew().unwrap();
    crew.add(move |worker, _| {
        let asked = asked.recv_timeout(Duration::from_secs(60));
        tell.send((asked, worker.stopping().is_cancelled())).unwrap();
    })
    .unwrap();
    crew.detach();
    assert_eq!(crew.workers().len(), 0);
    drop(crew);
    ask.send(()).unwrap();
    assert_eq!(told.recv_timeout(Duration::from_secs(60)).unwrap(), (Ok(()), false));
}

#[test]
fn workers_run_on_the_driver_that_was_chosen_before() {
    on_each(|driver| {
        let choice = choose::choose(Some(choose::Wish::Named(driver)), None).unwrap();
        let mut crew = Workers::new(1).choice(&choice).crew().unwrap();
        crew.add(|_, runtime| runtime.driver()).unwrap();
        assert_eq!(crew.join().unwrap(), [Some(driver)]);
    });
}
