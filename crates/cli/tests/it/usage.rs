//! What the program says when it is asked nothing, or something it does not know.

use crate::support::{ringroad, run};

#[test]
fn no_arguments_show_the_help_and_exit_2() {
    let outcome = run(&mut ringroad::<&str>([]));
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    assert!(outcome.stderr.contains("Usage: ringroad"), "{outcome:?}");
    assert!(outcome.stdout.is_empty(), "{outcome:?}");
}

/// The list of verbs is what users learn; its wording may change.
#[test]
fn help_lists_the_verbs_and_the_acts_of_lab() {
    let verbs = |arguments: &[&str]| {
        let outcome = run(&mut ringroad(arguments));
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{arguments:?}");
        let text = outcome.text();
        let commands = text.split("Commands:\n").nth(1).unwrap_or_default();
        let lines = commands.lines().take_while(|line| !line.is_empty());
        // A word two blanks in is a verb; deeper ones are wrapped lines of what it does.
        lines
            .filter_map(|line| line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')))
            .filter_map(|rest| rest.split_whitespace().next().map(str::to_owned))
            .collect::<Vec<_>>()
    };
    assert_eq!(verbs(&["--help"]), ["cat", "cp", "doctor", "lab", "load", "serve"]);
    assert_eq!(
        verbs(&["lab", "--help"]),
        ["quick", "run", "suites", "sources", "report", "compare", "merge", "advise", "server", "dataset"]
    );
}

/// What all verbs have but the lab, which refuses it.
#[test]
fn the_lab_offers_no_driver_and_refuses_one() {
    assert!(run(&mut ringroad(["cat", "--help"])).text().contains("--driver"));
    for act in [&["lab", "--help"][..], &["lab", "run", "--help"], &["lab", "suites", "--help"]] {
        assert!(!run(&mut ringroad(act)).text().contains("--driver"), "{act:?}");
    }
    for words in [
        &["lab", "--driver", "epoll"][..],
        &["lab", "suites", "--driver", "epoll"],
        &["--driver", "epoll", "lab", "suites"],
    ] {
        let outcome = run(&mut ringroad(words));
        assert_eq!(outcome.code, Some(2), "{outcome:?}");
        assert!(outcome.stderr.contains("name their drivers"), "{outcome:?}");
    }
}

#[test]
fn the_version_is_the_packages() {
    let outcome = run(&mut ringroad(["--version"]));
    assert_eq!(outcome.code, Some(0));
    assert_eq!(outcome.text(), concat!("ringroad ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn what_is_not_known_is_refused_by_name_with_exit_2() {
    for (arguments, named) in [
        (&["frobnicate"][..], "frobnicate"),
        (&["--frobnicate"], "--frobnicate"),
        (&["cat", "--frobnicate"], "--frobnicate"),
        (&["cat", "--driver", "kqueue"], "kqueue"),
        (&["lab", "frobnicate"], "frobnicate"),
        (&["serve", "--listen", "8080"], "--listen"),
        (&["serve", ".", "--config", "a.toml"], "--config"),
        (&["serve", "--workers", "1025"], "--workers"),
        (&["lab", "--repeats", "0"], "--repeats"),
        (&["lab", "--duration=-1"], "--duration"),
        (&["lab", "run"], "<SUITE>"),
        (&["lab", "report"], "<RECORD>"),
        (&["lab", "dataset", "cifar100", "/nowhere"], "cifar100"),
        (&["lab", "dataset", "mnist", "/nowhere", "--scale", "0"], "--scale 0"),
    ] {
        let outcome = run(&mut ringroad(arguments));
        assert_eq!(outcome.code, Some(2), "{arguments:?}: {outcome:?}");
        assert!(outcome.stderr.starts_with("ringroad: "), "{arguments:?}: {outcome:?}");
        assert!(outcome.stderr.contains(named), "{arguments:?}: {outcome:?}");
        assert!(outcome.stdout.is_empty(), "{arguments:?}: {outcome:?}");
    }
}
