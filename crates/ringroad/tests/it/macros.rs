//! The attributes and macros, through this crate alone.

use ringroad::sync::{self, CancellationToken, Notify};
use ringroad::task::{spawn, yield_now};
use ringroad::time::{now, sleep, timeout};
use ringroad::{JoinSet, join, select, try_join};
use std::cell::Cell;
use std::future::{Future, pending, ready};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

#[ringroad::test(all)]
async fn a_test_runs_on_each_driver() {
    assert_eq!(spawn(async { 7 }).await.unwrap(), 7);
}

#[ringroad::test(sim)]
async fn an_hour_of_virtual_time_passes_at_once() {
    let begin = now();
    sleep(Duration::from_secs(3600)).await;
    assert!(now() - begin >= Duration::from_secs(3600));
}

#[ringroad::test]
async fn a_test_may_return_a_result() -> ringroad::Result<()> {
    let (mut near, mut far) = ringroad::net::UnixStream::pair()?;
    near.write_all("x").await.0?;
    assert_eq!(&*far.recv().await?, b"x");
    Ok(())
}

#[ringroad::test(epoll, poll)]
#[should_panic(expected = "on purpose")]
async fn a_test_may_be_expected_to_panic() {
    yield_now().await;
    panic!("on purpose");
}

#[ringroad::main(epoll)]
async fn program() -> Result<u8, std::num::ParseIntError> {
    let digit: u8 = "4".parse()?;
    Ok(digit + 1)
}

#[test]
fn main_returns_what_its_function_returns() {
    assert_eq!(program(), Ok(5));
}

#[ringroad::test]
async fn select_runs_the_branch_that_is_ready_and_gives_its_value() {
    let (sender, receiver) = sync::bounded::<u32>(1);
    sender.send(7).await.unwrap();
    let got = select! {
        number = receiver.recv() => number.unwrap(),
        () = pending() => 0,
    };
    assert_eq!(got, 7);
    // Blocks without commas, expressions with generics, mutable bindings, conditions.
    let mut count = 0;
    loop {
        select! {
            mut pair = async { (1, 2) }, if count < 2 => {
                pair.0 += 1;
                count += pair.0;
            }
            _ = pending::<()>(), if count < 100 => unreachable!(),
            Some(_) = ready(None::<u8>) => unreachable!(),
            else => break,
        }
        if count >= 2 {
            break;
        }
    }
    assert_eq!(count, 2);
    let none = select! {
        Some(x) = ready(None::<u8>) => Some(x),
        else => None,
    };
    assert_eq!(none, None);
}

#[ringroad::test]
async fn select_leaves_loops_and_functions_as_any_code_does() {
    async fn first(stop: &CancellationToken) -> Result<u8, sync::RecvError> {
        let (sender, receiver) = sync::bounded::<u8>(1);
        drop(sender);
        for _ in 0..2 {
            select! {
                biased;
                number = receiver.recv() => {
                    let number = number?;
                    return Ok(number);
                }
                () = stop.cancelled() => continue,
            }
        }
        Ok(0)
    }
    assert!(first(&CancellationToken::new()).await.is_err());
    let mut turns = 0;
    while turns < 5 {
        turns += 1;
        select! {
            () = ready(()) => continue,
            () = pending() => break,
        }
    }
    assert_eq!(turns, 5);
}

#[ringroad::test]
async fn select_polls_in_turns_unless_it_is_biased() {
    let [one, other] = [Cell::new(0), Cell::new(0)];
    for _ in 0..100 {
        select! {
            () = ready(()) => one.set(one.get() + 1),
            () = ready(()) => other.set(other.get() + 1),
        }
    }
    assert!(one.get() >= 40 && other.get() >= 40, "{one:?} {other:?}");
    for _ in 0..100 {
        select! {
            biased;
            () = ready(()) => {}
            () = ready(()) => panic!("the second"),
        }
    }
}

#[ringroad::test(epoll)]
#[should_panic(expected = "every branch")]
async fn select_without_a_branch_left_panics() {
    select! {
        () = pending(), if false => {}
    }
}

#[ringroad::test]
async fn select_drops_the_other_futures_before_its_body_runs() {
    let mut value = 1;
    select! {
        () = async { value += 1 } => {}
        () = async { pending().await } => {}
    }
    // Each future borrows `value`; only one is left when its body uses it.
    let shared = Rc::new(());
    let held = shared.clone();
    select! {
        () = ready(()) => assert_eq!(Rc::strong_count(&shared), 1),
        () = async move { let _held = held; pending().await } => {}
    }
    assert_eq!(value, 2);
}

#[ringroad::test]
async fn join_returns_every_output_and_try_join_the_first_error() {
    let notify = Notify::new();
    let (one, two, ()) = join!(
        async {
            notify.notified().await;
            1
        },
        ready("two"),
        async { notify.notify_one() },
    );
    assert_eq!((one, two), (1, "two"));
    let all = try_join!(async { Ok::<_, String>(1) }, async { Ok("two") });
    assert_eq!(all, Ok((1, "two")));
    let failed = try_join!(pending::<Result<(), u8>>(), async {
        yield_now().await;
        Err::<(), u8>(3)
    });
    assert_eq!(failed, Err(3));
}

ringroad::task_local! {
    static DEPTH: u32;
    static NAME: String;
}

#[ringroad::test]
async fn a_task_local_is_what_its_scope_says_across_awaits() {
    async fn deep() -> (u32, String) {
        yield_now().await;
        (DEPTH.get(), NAME.with(String::clone))
    }
    let mut set = JoinSet::new();
    for depth in 0..3 {
        set.spawn(DEPTH.scope(depth, NAME.scope(format!("task {depth}"), deep())));
    }
    let mut all = set.join_all().await;
    all.sort();
    assert_eq!(all[2], (2, "task 2".to_owned()));
    let inner = DEPTH.scope(1, async { (DEPTH.scope(2, async { DEPTH.get() }).await, DEPTH.get()) }).await;
    assert_eq!(inner, (2, 1));
    assert_eq!(DEPTH.try_with(|depth| *depth), None);
    assert_eq!(DEPTH.sync_scope(9, || DEPTH.get()), 9);
    assert!(timeout(Duration::from_secs(60), async {}).await.is_ok());
}

/// Counts how often the first and the second of two futures is polled first.
#[derive(Default)]
struct First {
    polls: Cell<u32>,
    firsts: [Cell<u32>; 2],
}

impl First {
    /// Is never ready.
    fn branch(&self, which: usize) -> impl Future<Output = ()> + '_ {
        std::future::poll_fn(move |_| {
            if self.polls.replace(self.polls.get() + 1).is_multiple_of(2) {
                self.firsts[which].set(self.firsts[which].get() + 1);
            }
            Poll::Pending
        })
    }

    #[track_caller]
    fn is_each(&self) {
        assert!(self.firsts.iter().all(|firsts| firsts.get() > 10), "{:?}", self.firsts);
    }
}

#[test]
fn two_selects_that_are_polled_in_turns_begin_with_each_branch() {
    let [one, other] = [First::default(), First::default()];
    let select = async |first: &First| {
        select! {
            () = first.branch(0) => {}
            () = first.branch(1) => {}
        }
    };
    let (mut first, mut second) = (pin!(select(&one)), pin!(select(&other)));
    for _ in 0..100 {
        let mut context = Context::from_waker(Waker::noop());
        assert!(first.as_mut().poll(&mut context).is_pending());
        assert!(second.as_mut().poll(&mut context).is_pending());
    }
    one.is_each();
    other.is_each();
}

#[test]
fn futures_that_are_joined_take_turns_in_being_polled_first() {
    let [one, other] = [First::default(), First::default()];
    let joined = async { join!(one.branch(0), one.branch(1)) };
    let tried = async {
        let branch = async |which| {
            other.branch(which).await;
            Ok::<(), ()>(())
        };
        try_join!(branch(0), branch(1))
    };
    let (mut joined, mut tried) = (pin!(joined), pin!(tried));
    for _ in 0..100 {
        let mut context = Context::from_waker(Waker::noop());
        assert!(joined.as_mut().poll(&mut context).is_pending());
        assert!(tried.as_mut().poll(&mut context).is_pending());
    }
    one.is_each();
    other.is_each();
}

#[ringroad::test]
async fn a_joined_future_that_uses_the_whole_budget_leaves_some_to_the_other() {
    let lock = sync::Mutex::new(());
    let stop = Cell::new(false);
    let greedy = async {
        while !stop.get() {
            drop(lock.lock().await);
        }
    };
    let other = async {
        for _ in 0..10 {
            drop(lock.lock().await);
        }
        stop.set(true);
    };
    let both = async { join!(greedy, other) };
    timeout(Duration::from_secs(60), both).await.unwrap();
}
