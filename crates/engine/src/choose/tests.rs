//! Tests of the rule as a pure function, and of the trials on this machine.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};

fn named(name: DriverName) -> Option<Wish> {
    Some(Wish::Named(name))
}

#[test]
fn the_command_line_wins_over_the_environment_and_that_over_a_configuration() {
    let of = |asked, variable, configured| decide(asked, variable, configured).unwrap();
    let (uring, epoll) = (named(DriverName::IoUring), named(DriverName::Epoll));
    assert_eq!(of(None, None, None), (Wish::Auto, Origin::Default));
    assert_eq!(of(None, None, epoll), (Wish::Named(DriverName::Epoll), Origin::Configuration));
    assert_eq!(of(None, Some("epoll"), uring), (Wish::Named(DriverName::Epoll), Origin::Environment));
    assert_eq!(of(uring, Some("epoll"), epoll), (Wish::Named(DriverName::IoUring), Origin::CommandLine));
    assert_eq!(of(Some(Wish::Auto), Some("epoll"), epoll), (Wish::Auto, Origin::CommandLine));
    assert_eq!(of(None, Some(""), None), (Wish::Auto, Origin::Default), "set and empty is not set");
    let error = decide(None, Some("kqueue"), epoll).unwrap_err().to_string();
    assert!(
        error.starts_with("RINGROAD_DRIVER: unknown driver \"kqueue\" (one of: auto, io_uring"),
        "{error}"
    );
    assert!(of(uring, Some("kqueue"), None).0 != Wish::Auto, "what is overruled is not looked at");
}

#[test]
fn every_name_parses_back_and_the_simulation_cannot_be_selected() {
    for word in Wish::words() {
        assert_eq!(word.parse::<Wish>().unwrap().to_string(), word);
    }
    assert_eq!("uring".parse::<Wish>().unwrap().to_string(), "io_uring");
    assert!("sim".parse::<Wish>().is_err() && "".parse::<Wish>().is_err());
    assert!(!"".parse::<Wish>().unwrap_err().to_string().contains("sim"));
}

fn good() -> &'static Evidence {
    Box::leak(Box::new(Evidence { features: Features::default(), took: Duration::ZERO, ring: None }))
}

fn bad(driver: DriverName) -> &'static Refusal {
    let reason = "not today".to_owned();
    Box::leak(Box::new(Refusal {
        driver,
        obstacle: Obstacle::Forbidden,
        reason,
        fix: Some("wait".to_owned()),
    }))
}

#[test]
fn auto_takes_the_first_driver_that_works_and_lists_refused_ones() {
    let without = |broken: &[DriverName], bug| {
        let broken = broken.to_vec();
        by(
            Wish::Auto,
            Origin::Default,
            Vec::new(),
            move |name| if broken.contains(&name) { Err(bad(name)) } else { Ok(good()) },
            bug,
        )
    };
    let all = without(&[], false).unwrap();
    assert_eq!((all.driver(), all.refused().len()), (DriverName::IoUring, 0));
    let choice = without(&[DriverName::IoUring], false).unwrap();
    assert_eq!(choice.driver(), DriverName::Epoll);
    let text = choice.to_string();
    assert_eq!(text, "driver epoll: it works, and io_uring does not\nnot io_uring: not today (wait)");
    let buggy = without(&[], true).unwrap();
    assert_eq!(buggy.driver(), DriverName::Epoll);
    assert!(buggy.refused()[0].reason.contains("bug"));
    let nothing = without(DriverName::ALL, false).unwrap_err().to_string();
    assert!(nothing.contains("io_uring: not today") && nothing.contains("epoll: not today"), "{nothing}");
}

#[test]
fn a_named_driver_is_used_or_refused_and_no_other_is_tried() {
    let tried = std::cell::RefCell::new(Vec::new());
    let of = |name, works: bool, bug| {
        by(
            Wish::Named(name),
            Origin::Environment,
            Vec::new(),
            |name| {
                tried.borrow_mut().push(name);
                if works { Ok(good()) } else { Err(bad(name)) }
            },
            bug,
        )
    };
    let refused = of(DriverName::IoUring, false, false).unwrap_err().to_string();
    assert_eq!(refused, "RINGROAD_DRIVER io_uring: not today (wait)");
    assert_eq!(of(DriverName::Epoll, true, false).unwrap().why(), "as asked (RINGROAD_DRIVER)");
    assert_eq!(
        of(DriverName::IoUring, true, true).unwrap().driver(),
        DriverName::IoUring,
        "who names it has their reasons"
    );
    assert_eq!(*tried.borrow(), [DriverName::IoUring, DriverName::Epoll, DriverName::IoUring]);
}

fn of_auto(driver: DriverName) -> Choice {
    let features = Features::default();
    Choice { driver, wish: Wish::Auto, origin: Origin::Default, refused: Vec::new(), features }
}

/// Returns the error of a ring that could not be made.
fn no_memory() -> Error {
    Error::errno("io_uring_setup", libc::ENOMEM).by(DriverName::IoUring)
}

#[test]
fn where_no_runtime_can_be_made_auto_takes_the_next_driver_and_says_why() {
    let mut choice = of_auto(DriverName::IoUring);
    let mut tried = Vec::new();
    let made = choice.settle(
        |choice| {
            tried.push(choice.driver());
            if choice.driver() == DriverName::IoUring { Err(no_memory()) } else { Ok(1) }
        },
        |why| Some(why),
    );
    assert_eq!(made.unwrap(), 1);
    assert_eq!(tried, [DriverName::IoUring, DriverName::Epoll]);
    assert_eq!(choice.driver(), DriverName::Epoll);
    let text = choice.to_string();
    assert!(text.starts_with("driver epoll: it works, and io_uring does not\nnot io_uring: "), "{text}");
    assert!(text.contains("io_uring_setup, for a runtime: Cannot allocate memory: "), "{text}");
    assert!(text.contains("ulimit") || text.contains("memlock"), "a fix: {text}");
}

#[test]
fn a_named_driver_and_an_error_that_is_not_its_own_leave_the_choice() {
    let named = Choice { wish: Wish::Named(DriverName::IoUring), ..of_auto(DriverName::IoUring) };
    assert!(named.instead(&no_memory()).is_none());
    let bind = Error::errno("bind", libc::EADDRINUSE);
    assert!(of_auto(DriverName::IoUring).instead(&bind).is_none(), "no driver is at fault");
    assert!(of_auto(DriverName::Epoll).instead(&no_memory()).is_none(), "the fault of another one");
}

#[test]
fn no_driver_is_tried_twice() {
    let mut choice = of_auto(DriverName::IoUring);
    let mut tried = Vec::new();
    let made: Result<(), _> = choice.settle(
        |choice| {
            tried.push(choice.driver());
            Err(Error::errno("mmap", libc::ENOMEM).by(choice.driver()))
        },
        |why| Some(why),
    );
    assert_eq!(tried, ORDER);
    assert_eq!(made.unwrap_err().driver(), ORDER.last().copied());
    assert_eq!(choice.refused().len(), ORDER.len() - 1);
}

#[test]
fn a_trial_runs_once() {
    let first = probe(DriverName::Epoll).unwrap();
    assert!(std::ptr::eq(first, probe(DriverName::Epoll).unwrap()));
}

/// Without an obstacle nothing is refused. Otherwise a broken trial would disable a driver unnoticed.
#[test]
fn a_kernel_that_forbids_nothing_is_not_refused() {
    for driver in drivers() {
        let gate = Gate::of_this_thread();
        if driver == DriverName::IoUring
            && (gate.is_filtered()
                || gate.sysctl_forbids()
                || gate.memlock.is_some_and(|limit| limit < enough()))
        {
            eprintln!("skipped: something stands between this process and io_uring: {gate:?}");
            continue;
        }
        probe(driver).unwrap_or_else(|refusal| panic!("{refusal}"));
    }
}

fn enough() -> ringroad_host::cgroup::Limit<u64> {
    ringroad_host::cgroup::Limit::At(1 << 20)
}

/// Returns whether a trial may run in this process: a seccomp filter might kill it.
fn may_try_here() -> bool {
    let may = ringroad_host::gate::seccomp_mode() == Some(0);
    if !may {
        eprintln!("skipped: a seccomp filter is in force, so trials run in a child");
    }
    may
}

/// A trial gives the same result wherever it runs.
#[test]
fn a_forked_child_sees_the_same_as_this_process() {
    if !may_try_here() {
        return;
    }
    for trial in [trial::io_uring, trial::files, trial::epoll, trial::poll, trial::select, trial::threads] {
        let outcomes = [child::run_here, child::run_in_child].map(|run| {
            let (end, seen) = run(trial);
            (
                format!("{end:?}"),
                seen.step,
                seen.passed,
                seen.errno,
                seen.setup_flags,
                seen.features,
                seen.files,
            )
        });
        assert_eq!(outcomes[0], outcomes[1]);
    }
}

/// Memory allocation is usable in a child that is forked while other threads allocate, which is what a trial
/// needs. A filter may end the child that tries io_uring. That counts as an end too.
#[test]
fn a_child_that_is_forked_while_other_threads_allocate_ends() {
    /// Ends the other threads also when an assertion fails: the scope waits for them.
    struct Over<'a>(&'a std::sync::atomic::AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let filtered = ringroad_host::gate::seccomp_mode() != Some(0);
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|threads| {
        let _over = Over(&over);
        for _ in 0..2 {
            threads.spawn(|| {
                let mut kept = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    kept.push(vec![1_u8; 100 + kept.len() % 5000]);
                    if kept.len() > 100 {
                        kept.clear();
                    }
                }
            });
        }
        for _ in 0..20 {
            let (end, seen) = child::run_in_child(trial::epoll);
            assert!(matches!(end, child::End::Exited) && seen.passed, "{end:?} {seen:?}");
            let (end, _) = child::run_in_child(trial::io_uring);
            let killed = filtered && matches!(end, child::End::Killed(_));
            assert!(killed || matches!(end, child::End::Exited), "{end:?}");
        }
    });
}

/// Returns whether this is a process of the test alone. If not, runs it in one, and fails if it has not
/// passed there.
fn is_alone(test: &str) -> bool {
    const ALONE: &str = "RINGROAD_TEST_ALONE";
    if env::var_os(ALONE).is_some() {
        return true;
    }
    let mut again = std::process::Command::new(env::current_exe().unwrap());
    again.args(["--exact", &format!("choose::tests::{test}"), "--nocapture"]);
    let output = again.env(ALONE, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let about = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{about}");
    false
}

/// A ring that was tried in this process leaves no descriptor.
#[test]
fn a_trial_in_this_process_leaves_no_descriptor() {
    if !may_try_here() {
        return;
    }
    if !is_alone("a_trial_in_this_process_leaves_no_descriptor") {
        return;
    }
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let rings = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().filter(|line| line.contains("io_uring")).count()
    };
    let before = (open(), rings());
    for trial in [trial::io_uring, trial::files, trial::epoll, trial::poll, trial::select, trial::threads] {
        child::run_here(trial);
    }
    assert_eq!((open(), rings()), before);
}

/// The kernel notifies the thread that created a ring when it destroys the ring.
#[test]
fn a_trial_does_not_interrupt_later_calls_of_the_calling_thread() {
    use std::io::Read;
    // Other tests of this process install signal handlers. A handler interrupts a read that has a timeout.
    if !may_try_here() || !is_alone("a_trial_does_not_interrupt_later_calls_of_the_calling_thread") {
        return;
    }
    let (mut one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    one.set_read_timeout(Some(std::time::Duration::from_millis(20))).unwrap();
    for _ in 0..20 {
        child::run_here(trial::io_uring);
        let why = one.read(&mut [0]).unwrap_err();
        assert_eq!(why.kind(), std::io::ErrorKind::WouldBlock, "{why}");
    }
}

/// Children that are killed, exit without a report, or never end.
#[test]
fn however_a_child_ends_its_parent_continues_and_learns_how() {
    let (end, seen) = child::run_in_child(|report| {
        report.step.store(trial::Step::Nop as u32, Ordering::Relaxed);
        // SAFETY: a signal to this process, a child made for that.
        unsafe { libc::raise(libc::SIGKILL) };
        Ok(())
    });
    assert!(matches!(end, child::End::Killed(libc::SIGKILL)), "{end:?}");
    assert_eq!((seen.step, seen.passed), (trial::Step::Nop, false));

    let (end, _) = child::run_in_child_within(Duration::from_millis(100), |_| {
        loop {
            // SAFETY: takes nothing.
            unsafe { libc::pause() };
        }
    });
    assert!(
        matches!(end, child::End::Killed(libc::SIGALRM)),
        "a trial that hangs is over when its time is: {end:?}"
    );

    let (end, seen) = child::run_in_child(|_| Err(libc::EPERM));
    assert!(matches!(end, child::End::Exited), "{end:?}");
    assert_eq!((seen.errno, seen.passed), (libc::EPERM, false));
}

#[test]
fn the_programs_signal_handlers_do_not_run_in_the_child() {
    static RAN: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn count(_: libc::c_int) {
        RAN.fetch_add(1, Ordering::Relaxed);
    }
    let handler: extern "C" fn(libc::c_int) = count;
    // SAFETY: the handler adds to an atomic, which is allowed in one; it is in place for this test only.
    let before = unsafe { libc::signal(libc::SIGALRM, handler as libc::sighandler_t) };
    let (end, _) = child::run_in_child(|_| {
        // SAFETY: a signal to this process, for which the child has restored the default: to end.
        unsafe { libc::raise(libc::SIGALRM) };
        Ok(())
    });
    assert!(matches!(end, child::End::Killed(libc::SIGALRM)), "{end:?}");
    assert_eq!(RAN.load(Ordering::Relaxed), 0, "our handler ran in the child");
    // SAFETY: restores the previous handler.
    unsafe { libc::signal(libc::SIGALRM, before) };
}
