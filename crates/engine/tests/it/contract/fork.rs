//! What a forked child may do with a runtime of its parent: nothing, and it never hangs over it.
//!
//! Each test has a process to itself, so that no other thread holds a lock of the C library's while it forks.

use crate::support::{Case, alone, pair, poll_once, receive, some_turns};
use ringroad_engine::net::TcpStream;
use ringroad_engine::signal::{Signal, Signals};
use ringroad_engine::{Runtime, spawn, spawn_blocking, yield_now};
use std::cell::RefCell;
use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::time::Duration;

/// Longer than anything takes here: then the child hangs, and SIGALRM ends it.
const HANG_S: u32 = 120;

/// Runs `body` in a forked child, to its end and no further, and waits for it.
fn in_child(body: impl FnOnce()) {
    // SAFETY: the child has one thread, and glibc keeps its allocator usable in it; it ends by _exit(2)
    // below.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: takes a number.
        unsafe { libc::alarm(HANG_S) };
        let passed = catch_unwind(AssertUnwindSafe(body)).is_ok();
        // SAFETY: ends this process.
        unsafe { libc::_exit(if passed { 0 } else { 1 }) };
    }
    ended_well(child);
}

fn ended_well(child: i32) {
    assert!(child > 0);
    let mut status = -1;
    // SAFETY: waitpid(2) writes the status of our own child into a live local.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(!libc::WIFSIGNALED(status), "the child hangs, or died of signal {}", libc::WTERMSIG(status));
    assert_eq!(libc::WEXITSTATUS(status), 0, "what the child found wrong is said above");
}

/// A runtime with all that a child might trip over: threads of the pool and of the signals, connections with
/// bytes that nothing has read, tasks that wait and one that holds a lease. Two ends of a connection besides.
fn busy(case: Case) -> (Runtime, TcpStream, TcpStream) {
    let runtime = case.builder().build().unwrap();
    let (ours, theirs) = runtime
        .block_on(async {
            spawn_blocking(|| {}).await.unwrap();
            let _listens = Signals::new(&[Signal::SIGUSR1]).unwrap();
            let (mut sender, mut receiver) = pair().await;
            sender.write_all("to be kept").await.0.unwrap();
            spawn(async move {
                let _lease = receiver.recv().await.unwrap();
                let _receiver = receiver;
                let _sender = sender;
                pending::<()>().await;
            })
            .detach();
            let (ours, mut theirs) = pair().await;
            assert!(poll_once(pin!(theirs.recv())).await.is_none());
            some_turns().await;
            (ours, theirs)
        })
        .unwrap();
    (runtime, ours, theirs)
}

cases!(a_child_cannot_run_its_parents_runtime_and_drops_it_without_a_word_to_the_peers, real, |case| {
    alone(None, || {
        let (runtime, ours, theirs) = busy(case);
        let all = RefCell::new(Some((runtime, ours, theirs)));
        in_child(|| {
            let (runtime, mut ours, theirs) = all.take().unwrap();
            let refused = runtime.block_on(async {}).unwrap_err().to_string();
            assert!(refused.contains("forked") && refused.contains("runtime of its own"), "{refused}");
            assert!(ours.local_addr().is_err());
            let own = case.builder().build().unwrap();
            assert!(own.block_on(async { ours.write_all("from the child").await.0 }).unwrap().is_err());
            drop(ours);
            drop(runtime);
            drop(theirs);
        });
        let (runtime, mut ours, mut theirs) = all.take().unwrap();
        // Neither ended nor reset, and nothing of the child's in between.
        for _ in 0..3 {
            runtime.block_on(async { ours.write_all("goes on").await.0 }).unwrap().unwrap();
            assert_eq!(runtime.block_on(receive(&mut theirs, 7)).unwrap(), b"goes on");
        }
        assert_eq!(runtime.block_on(async { spawn_blocking(|| 7).await.unwrap() }).unwrap(), 7);
        drop((ours, theirs));
        runtime.shutdown(Duration::from_secs(30)).unwrap();
    });
});

cases!(a_child_shuts_its_parents_runtime_down_in_any_order, real, |case| alone(None, || {
    let (runtime, ours, theirs) = busy(case);
    let all = RefCell::new(Some((runtime, ours, theirs)));
    in_child(|| {
        let (runtime, ours, theirs) = all.take().unwrap();
        assert_eq!(runtime.shutdown(Duration::from_secs(30)), Ok(()));
        drop((ours, theirs));
    });
    drop(all);
}));

cases!(a_child_has_a_runtime_a_pool_and_signals_of_its_own, real, |case| alone(None, || {
    let busy = busy(case);
    in_child(|| {
        let runtime = case.builder().build().unwrap();
        runtime
            .block_on(async {
                let (mut ours, mut theirs) = pair().await;
                ours.write_all("in the child").await.0.unwrap();
                assert_eq!(receive(&mut theirs, 12).await, b"in the child");
                assert_eq!(spawn_blocking(|| 7).await.unwrap(), 7);
                let signals = Signals::new(&[Signal::SIGUSR1]).unwrap();
                // SAFETY: two numbers, and the signal is listened for.
                assert_eq!(unsafe { libc::kill(libc::getpid(), libc::SIGUSR1) }, 0);
                assert_eq!(signals.recv().await, Signal::SIGUSR1);
            })
            .unwrap();
        runtime.shutdown(Duration::from_secs(30)).unwrap();
    });
    drop(busy);
}));

cases!(a_task_that_forks_goes_on_in_the_parent_alone, real, |case| alone(None, || {
    let (runtime, ours, theirs) = busy(case);
    let forked = runtime.block_on(async {
        // SAFETY: as in `in_child`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: takes a number.
            unsafe { libc::alarm(HANG_S) };
        }
        yield_now().await;
        child
    });
    match forked {
        Ok(child) => ended_well(child),
        Err(why) => {
            let code = if why.to_string().contains("forked") { 0 } else { 1 };
            drop((runtime, ours, theirs));
            // SAFETY: ends this process, which is the child: the parent has no error.
            unsafe { libc::_exit(code) };
        }
    }
    drop((ours, theirs));
    runtime.shutdown(Duration::from_secs(30)).unwrap();
}));
