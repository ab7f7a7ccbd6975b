//! The rule without a machine, and the probe on this one.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::trial::{Arena, Report};
use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};

fn named(name: Name) -> Option<Wish> {
    Some(Wish::Named(name))
}

#[test]
fn the_command_line_wins_over_the_environment_and_that_over_a_configuration() {
    let of = |asked, variable, configured| decide(asked, variable, configured).unwrap();
    let (uring, epoll) = (named(Name::IoUring), named(Name::Epoll));
    assert_eq!(of(None, None, None), (Wish::Auto, Origin::Nobody));
    assert_eq!(of(None, None, epoll), (Wish::Named(Name::Epoll), Origin::Configuration));
    assert_eq!(of(None, Some("epoll"), uring), (Wish::Named(Name::Epoll), Origin::Environment));
    assert_eq!(of(uring, Some("epoll"), epoll), (Wish::Named(Name::IoUring), Origin::CommandLine));
    assert_eq!(of(Some(Wish::Auto), Some("epoll"), epoll), (Wish::Auto, Origin::CommandLine));
    assert_eq!(of(None, Some(""), None), (Wish::Auto, Origin::Nobody), "set and empty is not set");
    let error = decide(None, Some("kqueue"), epoll).unwrap_err().to_string();
    assert!(
        error.starts_with("RINGROAD_DRIVER: unknown driver \"kqueue\" (one of: auto, io_uring"),
        "{error}"
    );
    assert!(of(uring, Some("kqueue"), None).0 != Wish::Auto, "what is overruled is not looked at");
}

#[test]
fn every_name_is_read_back_and_the_simulation_cannot_be_wished_for() {
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

fn bad(driver: Name) -> &'static Refusal {
    let reason = "not today".to_owned();
    Box::leak(Box::new(Refusal {
        driver,
        obstacle: Obstacle::Forbidden,
        reason,
        fix: Some("wait".to_owned()),
    }))
}

#[test]
fn auto_takes_the_first_that_works_and_says_what_did_not() {
    let without = |broken: &[Name], bug| {
        let broken = broken.to_vec();
        by(
            Wish::Auto,
            Origin::Nobody,
            move |name| if broken.contains(&name) { Err(bad(name)) } else { Ok(good()) },
            bug,
        )
    };
    let all = without(&[], false).unwrap();
    assert_eq!((all.driver(), all.refused().len()), (Name::IoUring, 0));
    let choice = without(&[Name::IoUring], false).unwrap();
    assert_eq!(choice.driver(), Name::Epoll);
    let text = choice.to_string();
    assert_eq!(text, "driver epoll: it works, and io_uring does not\nnot io_uring: not today (wait)");
    let buggy = without(&[], true).unwrap();
    assert_eq!(buggy.driver(), Name::Epoll);
    assert!(buggy.refused()[0].reason.contains("bug"));
    let nothing = without(Name::ALL, false).unwrap_err().to_string();
    assert!(nothing.contains("io_uring: not today") && nothing.contains("epoll: not today"), "{nothing}");
}

#[test]
fn a_driver_that_was_named_is_used_or_refused_and_no_other_is_tried() {
    let tried = std::cell::RefCell::new(Vec::new());
    let of = |name, works: bool, bug| {
        by(
            Wish::Named(name),
            Origin::Environment,
            |name| {
                tried.borrow_mut().push(name);
                if works { Ok(good()) } else { Err(bad(name)) }
            },
            bug,
        )
    };
    let refused = of(Name::IoUring, false, false).unwrap_err().to_string();
    assert_eq!(refused, "RINGROAD_DRIVER io_uring: not today (wait)");
    assert_eq!(of(Name::Epoll, true, false).unwrap().why(), "as asked (RINGROAD_DRIVER)");
    assert_eq!(
        of(Name::IoUring, true, true).unwrap().driver(),
        Name::IoUring,
        "who names it has their reasons"
    );
    assert_eq!(*tried.borrow(), [Name::IoUring, Name::Epoll, Name::IoUring]);
}

#[test]
fn the_trial_is_not_made_twice() {
    let first = probe(Name::Epoll).unwrap();
    assert!(std::ptr::eq(first, probe(Name::Epoll).unwrap()));
}

/// Where nothing stands in the way, nothing is refused: otherwise a broken trial would switch a driver off unnoticed.
#[test]
fn a_kernel_that_forbids_nothing_is_not_refused() {
    for driver in drivers() {
        let gate = Gate::of_this_thread();
        if driver == Name::IoUring
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

/// Both ways of making the child, with the same trial: one is for kernels that are not this one.
#[test]
fn the_child_sees_the_same_with_its_own_memory_as_with_ours() {
    for trial in [trial::io_uring, trial::files, trial::epoll, trial::poll, trial::select, trial::threads] {
        let outcomes = [true, false].map(|shares| {
            let (end, seen) = child::run_as(trial, shares);
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

/// What a child does when it is killed, or ends without a word, or not at all, and what is left of it.
#[test]
fn however_a_child_ends_its_parent_goes_on_and_knows() {
    let (end, seen) = child::run(|report, _| {
        report.step.store(trial::Step::Nop as u32, Ordering::Relaxed);
        // SAFETY: a signal to this very process, which is made for that.
        unsafe { libc::raise(libc::SIGKILL) };
        Ok(())
    });
    assert!(matches!(end, child::End::Killed(libc::SIGKILL)), "{end:?}");
    assert_eq!((seen.step, seen.passed), (trial::Step::Nop, false));

    let (end, _) = child::run(|_, _| {
        loop {
            // SAFETY: takes nothing.
            unsafe { libc::pause() };
        }
    });
    assert!(
        matches!(end, child::End::Killed(libc::SIGALRM)),
        "a trial that hangs is over after a second: {end:?}"
    );

    let (end, seen) = child::run(|_, _| Err(libc::EPERM));
    assert!(matches!(end, child::End::Exited), "{end:?}");
    assert_eq!((seen.errno, seen.passed), (libc::EPERM, false));
}

/// A ring that a killed child has mapped goes with it, and so do its descriptors.
#[test]
fn a_killed_child_leaves_no_memory_and_no_descriptor() {
    fn ring_then_death(report: &Report, arena: Arena) -> Result<(), i32> {
        trial::io_uring(report, arena)?;
        // SAFETY: as above.
        unsafe { libc::raise(libc::SIGKILL) };
        Ok(())
    }
    let rings = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let in_memory = maps.lines().filter(|line| line.contains("io_uring")).count();
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        let named = |entry: &std::fs::DirEntry| {
            std::fs::read_link(entry.path()).is_ok_and(|to| to.ends_with("memfd:ringroad-trial"))
        };
        (in_memory, open.flatten().filter(named).count())
    };
    // Other tests of this binary have rings too, so this one looks in a process of its own.
    const ALONE: &str = "RINGROAD_TEST_ALONE";
    if env::var_os(ALONE).is_none() {
        let mut again = std::process::Command::new(env::current_exe().unwrap());
        again.args([
            "--exact",
            "choose::tests::a_killed_child_leaves_no_memory_and_no_descriptor",
            "--nocapture",
        ]);
        let output = again.env(ALONE, "1").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.contains("1 passed"),
            "{text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        return;
    }
    if probe(Name::IoUring).is_err() {
        eprintln!("skipped: there are no rings here to be left behind");
        return;
    }
    let before = rings();
    for _ in 0..3 {
        let (end, _) = child::run(ring_then_death);
        assert!(matches!(end, child::End::Killed(libc::SIGKILL)), "{end:?}");
    }
    assert_eq!(rings(), before);
    assert_eq!(before, (0, 0));
}

#[test]
fn a_handler_of_the_programs_does_not_run_in_the_child() {
    static RAN: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn count(_: libc::c_int) {
        RAN.fetch_add(1, Ordering::Relaxed);
    }
    let handler: extern "C" fn(libc::c_int) = count;
    // SAFETY: the handler adds to an atomic, which is allowed in one; it is in place for this test only.
    let before = unsafe { libc::signal(libc::SIGALRM, handler as libc::sighandler_t) };
    let (end, _) = child::run(|_, _| {
        // SAFETY: a signal to this process, for which the child has restored the default: to end.
        unsafe { libc::raise(libc::SIGALRM) };
        Ok(())
    });
    assert!(matches!(end, child::End::Killed(libc::SIGALRM)), "{end:?}");
    assert_eq!(RAN.load(Ordering::Relaxed), 0, "our handler ran in the child");
    // SAFETY: puts back what was there.
    unsafe { libc::signal(libc::SIGALRM, before) };
}
