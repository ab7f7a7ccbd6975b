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
    assert_eq!(
        verbs(&["--help"]),
        [
            "app",
            "cat",
            "cp",
            "doctor",
            "lab",
            "load",
            "manifest",
            "pack",
            "unpack",
            "serve",
            "workers",
            "completions",
            "man",
            "help"
        ]
    );
    assert_eq!(
        verbs(&["lab", "--help"]),
        [
            "quick", "run", "suites", "list", "open", "sources", "report", "compare", "merge", "advise",
            "server", "dataset"
        ]
    );
}

/// What all verbs have but the lab, which refuses it.
#[test]
fn the_exit_codes_fill_the_lines_of_help() {
    let help = run(&mut ringroad(["--help"])).text();
    let codes = help.split_once("Exit codes:").expect("exit codes").1;
    let lines: Vec<&str> = codes.trim_end().lines().collect();
    // A line ends where the next word does not fit: never in the middle, by an end of line of the source.
    let width = help.lines().map(str::len).max().unwrap();
    let short = lines.windows(2).find(|pair| {
        let next = pair[1].split(' ').next().unwrap();
        let begins = if std::ptr::eq(pair[0], lines[0]) { "Exit codes:".len() } else { 0 };
        begins + pair[0].len() + 1 + next.len() < width
    });
    assert_eq!(short, None, "{codes}");
}

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
fn urls_take_the_place_of_a_suite_with_run_and_without() {
    let plan = |verbs: &[&str]| {
        let words = [verbs, &["--url", "a=http://127.0.0.1:1/", "--connections", "1,8", "--plan"]].concat();
        let text = run(&mut ringroad(words)).text();
        // The order of what is measured is another each time.
        text.lines().take(2).map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(plan(&["lab"])[0].starts_with("urls: "));
    assert_eq!(plan(&["lab", "run"]), plan(&["lab"]));
}

#[test]
fn the_lab_takes_times_as_load_does() {
    // The second line has the time of a run; the order of the programs below is another each time.
    let plan = |length: &str| {
        let text = run(&mut ringroad(["lab", "run", "quick", "--plan", "--duration", length])).text();
        text.lines().nth(1).unwrap().to_owned()
    };
    assert_eq!(plan("1500ms"), plan("1.5"));
    assert_eq!(plan("2s"), plan("2"));
    assert_ne!(plan("2s"), plan("1s"));
}

#[test]
fn help_of_a_verb_is_the_verbs_own() {
    for (words, line) in [
        (&["help", "load"][..], &["load", "--help"][..]),
        (&["help", "lab", "run"], &["lab", "run", "--help"]),
        (&["help", "cp"], &["cp", "--help"]),
        (&["help"], &["-h"]),
    ] {
        let (by_verb, by_option) = (run(&mut ringroad(words)), run(&mut ringroad(line)));
        assert_eq!((by_verb.code, by_verb.stderr.as_str()), (Some(0), ""), "{words:?}");
        assert_eq!(by_verb.text(), by_option.text(), "{words:?}");
    }
    let outcome = run(&mut ringroad(["help", "frobnicate"]));
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    assert!(outcome.stderr.contains("frobnicate"), "{outcome:?}");
}

/// What every verb takes is the same everywhere, so it stands below what is the verb's own.
#[test]
fn common_options_stand_at_the_end_of_each_help() {
    for verb in
        [&["load"][..], &["serve"], &["cat"], &["doctor"], &["lab"], &["lab", "run"], &["lab", "server"]]
    {
        let outcome = run(ringroad(verb.iter().copied()).arg("--help"));
        let text = outcome.text();
        let (own, common) =
            text.split_once("Common options:\n").unwrap_or_else(|| panic!("{verb:?}: {text}"));
        assert!(common.contains("--quiet") && common.contains("--verbose"), "{verb:?}: {common}");
        assert!(!own.contains("--quiet") && !own.contains("--verbose"), "{verb:?}: {own}");
        // Nothing stands between them, and nothing behind them but notes.
        let options = common.lines().filter(|line| line.trim_start().starts_with('-')).count();
        assert!(options <= 3, "{verb:?}: {common}");
    }
}

/// The shells themselves read the scripts, where they are here.
#[test]
fn completions_know_verbs_and_options_and_the_shells_take_them() {
    for (shell, check) in [("bash", &["bash", "-n"][..]), ("zsh", &["zsh", "-n"]), ("fish", &["fish", "-n"])]
    {
        let outcome = run(&mut ringroad(["completions", shell]));
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{shell}");
        let script = outcome.text();
        for word in ["doctor", "connections", "durability"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &*script).unwrap();
        match std::process::Command::new(check[0]).args(&check[1..]).arg(file.path()).status() {
            Ok(status) => assert!(status.success(), "{shell} refuses the script"),
            Err(error) => eprintln!("{shell}: not checked by the shell: {error}"),
        }
    }
    assert_eq!(run(&mut ringroad(["completions", "tcsh"])).code, Some(2));
}

/// Bash completes what the script offers: the verb, and an option of a verb of a verb.
#[test]
fn bash_completes_verbs_and_options() {
    let script = run(&mut ringroad(["completions", "bash"])).text().to_string();
    let complete = |words: &[&str]| {
        // Bash calls the function with the command, the word to complete and the word before it.
        let line = format!(
            "{script}\nCOMP_WORDS=({}); COMP_CWORD={}; _ringroad ringroad {} {}; echo \"${{COMPREPLY[@]}}\"",
            words.join(" "),
            words.len() - 1,
            words[words.len() - 1],
            words[words.len() - 2],
        );
        let said = std::process::Command::new("bash").args(["-c", &line]).output();
        match said {
            Ok(said) => Some(String::from_utf8_lossy(&said.stdout).trim().to_owned()),
            Err(error) => {
                eprintln!("skipped: bash: {error}");
                None
            }
        }
    };
    for (words, expected) in
        [(&["ringroad", "doc"][..], "doctor"), (&["ringroad", "lab", "run", "--rep"], "--repeats")]
    {
        if let Some(completed) = complete(words) {
            assert_eq!(completed, expected, "{words:?}");
        }
    }
}

#[test]
fn manual_pages_cover_every_verb_with_its_options() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("new/man1");
    let outcome = run(ringroad(["man"]).arg(&pages));
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{outcome:?}");
    let page = |name: &str| std::fs::read_to_string(pages.join(name)).unwrap_or_else(|_| panic!("no {name}"));
    for (name, word) in [
        ("ringroad.1", "doctor"),
        ("ringroad-load.1", "knee"),
        ("ringroad-cp.1", "durability"),
        ("ringroad-lab-run.1", "repeats"),
        ("ringroad-serve.1", "workers"),
    ] {
        assert!(page(name).starts_with(".ie \\n(.g .ds Aq"), "{name}");
        assert!(page(name).contains(word), "{name}: {word}");
    }
    assert!(!pages.join("ringroad-lab-client.1").exists(), "a hidden act has a page");
    // A file where the folder should be.
    std::fs::write(folder.path().join("file"), "").unwrap();
    let outcome = run(ringroad(["man"]).arg(folder.path().join("file")));
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.stderr.contains("file"), "{outcome:?}");
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
        (&["serve", "--listen", "80x"], "--listen"),
        (&["serve", ".", "--config", "a.toml"], "--config"),
        (&["serve", "--workers", "1025"], "--workers"),
        (&["lab", "--repeats", "0"], "--repeats"),
        (&["lab", "--duration=-1"], "--duration"),
        (&["lab", "run"], "<SUITE>"),
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

/// As in a chroot without devices, from a parent that has closed everything.
#[test]
fn every_verb_starts_without_standard_streams_and_without_dev() {
    if !crate::support::is_root() || !crate::support::installed("unshare") {
        return crate::support::skip("no /dev", "needs root and unshare");
    }
    let script = "mount -t tmpfs t /dev || exit 77
        for verb in cp lab load serve doctor pack unpack manifest app cat workers completions; do
            \"$0\" $verb --help <&- >&- 2>&-; echo $verb $?; \"$0\" $verb --help <&- 2>&- >out; echo $?
        done; \"$0\" help >&-; echo $?; \"$0\" completions bash >&-; echo $?; exec \"$0\" --version <&- 2>&-";
    let folder = tempfile::tempdir().unwrap();
    let mut shell = std::process::Command::new("unshare");
    let shell = shell.args(["-m", "sh", "-c", script, crate::support::BINARY]);
    let outcome = run(shell.current_dir(folder.path()));
    if outcome.code == Some(77) {
        return crate::support::skip("no /dev", &outcome.stderr);
    }
    let text = outcome.text();
    let mut lines = text.lines();
    for verb in [
        "cp",
        "lab",
        "load",
        "serve",
        "doctor",
        "pack",
        "unpack",
        "manifest",
        "app",
        "cat",
        "workers",
        "completions",
    ] {
        assert_eq!(lines.next(), Some(&*format!("{verb} 1")), "help that goes nowhere is an error: {text}");
        assert_eq!(lines.next(), Some("0"), "{verb}: {text}");
    }
    assert_eq!((lines.next(), lines.next()), (Some("1"), Some("1")), "{text}");
    assert!(lines.next().is_some_and(|line| line.starts_with("ringroad ")), "{text}");
    let error = "ringroad: write, on standard output: Bad file descriptor\n";
    assert_eq!(outcome.stderr, error.repeat(2));
}

#[test]
fn help_and_version_that_cannot_be_written_are_an_error() {
    for words in
        [&["--version"][..], &["--help"], &["help"], &["load", "--help"], &["cat", "-h"], &["cp", "--help"]]
    {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = ringroad(words);
        let output = command.stdout(full).stderr(std::process::Stdio::piped()).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{words:?}: {stderr}");
        assert!(stderr.ends_with(": No space left on device\n"), "{words:?}: {stderr}");
    }
}

/// Rust has `/dev/null` in the place of a stream that is closed: all is written, and nothing is there to
/// read.
#[test]
fn a_closed_stream_is_neither_an_empty_input_nor_an_output() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("s")).unwrap();
    std::fs::write(folder.path().join("s/f"), "x").unwrap();
    let shell = |line: &str| {
        let mut shell = std::process::Command::new("sh");
        run(shell.args(["-c", line, crate::support::BINARY]).current_dir(folder.path()))
    };
    for driver in crate::serve::drivers() {
        let outcome = shell(&format!("RINGROAD_DRIVER={driver} exec \"$0\" cat s/f >&-"));
        let said = "ringroad: write, on standard output: Bad file descriptor\n";
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(1), said), "{driver}");
        let outcome = shell(&format!("RINGROAD_DRIVER={driver} exec \"$0\" cat - s/f <&-"));
        let said = "ringroad: open, on standard input: Bad file descriptor\n";
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(1), said), "{driver}");
        assert_eq!(outcome.stdout, b"x", "{driver}");
    }
    let outcome = shell("exec \"$0\" cp -a -T --files-from - s d <&-");
    assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("--files-from -: standard input is closed"), "{}", outcome.stderr);
}

/// A habit from another program is answered with the words of this one.
#[test]
fn options_and_verbs_of_other_programs_are_answered_with_what_to_type_here() {
    for (line, hint) in [
        ("bench http://127.0.0.1:1/", "bench: not a verb (ringroad load URL)"),
        ("http://127.0.0.1:1/", "not a verb (ringroad load http://127.0.0.1:1/)"),
        ("/", "/: not a verb (ringroad serve /)"),
        ("rsync -a a b", "rsync: not a verb (ringroad cp -a --resume SOURCE DEST)"),
        ("load -s x.lua http://127.0.0.1:1/", "load -s: not an option here (there are no scripts: {n}"),
        ("load --vus 10 http://127.0.0.1:1/", "load --vus: not an option here (-c N is"),
        (
            "load -t 1s http://127.0.0.1:1/",
            "invalid value '1s' for '--threads <N>': a whole number is expected; a duration is -d 1s",
        ),
        ("load -t x http://127.0.0.1:1/", "'x' for '--threads <N>': a whole number is expected"),
        ("serve --workers many", "invalid value 'many' for '--workers <N>': a whole number is expected"),
        ("load --post /nowhere/records http://127.0.0.1:1/", "make the folder, or name a server"),
        // hey has a rate behind -q.
        ("load -q 10 http://127.0.0.1:1/", "-q takes no number, a rate is -r N"),
        ("load http://127.0.0.1:1/ http://127.0.0.1:2/", "several are --also URL or --urls FILE"),
        ("load -d {\"a\":1} http://127.0.0.1:1/", "a time is expected"),
        ("load -d {\"a\":1} http://127.0.0.1:1/", "a body is --body TEXT, or -D FILE"),
        ("load -d 10x http://127.0.0.1:1/", "a time is expected: a number and ms, s, m or h"),
        ("load -c -1 http://127.0.0.1:1/", "-1' for '--connections <N>': a whole number"),
        ("load -r -5 http://127.0.0.1:1/", "-r: from 0.001"),
        ("load -k http://127.0.0.1:1/", "-k (--insecure) and --cacert: those are for https://"),
        ("serve --directory /", "serve --directory: not an option here (the folder is an argument"),
        ("serve -t", "serve -t: not an option here (--check --config FILE"),
        ("serve --tls cert.pem", "serve --tls cert.pem: not `dev`"),
        ("cp --progress a b", "unrecognized option '--progress' (progress is shown on a terminal; see"),
        ("cp -z a b", "invalid option -- 'z' (copies are made on this machine only"),
    ] {
        let outcome = run(&mut ringroad(line.split(' ')));
        assert_eq!(outcome.code, Some(2), "{line}: {outcome:?}");
        assert!(outcome.stderr.contains(hint), "{line}: {outcome:?}");
        let lines = outcome.stderr.lines().count();
        assert!(lines == 1 || outcome.stderr.contains("invalid value"), "{line}: {outcome:?}");
    }
}

#[test]
fn an_output_without_a_reader_ends_a_verb_that_prints_in_silence() {
    let folder = tempfile::tempdir().unwrap();
    let (rules, rr) = (folder.path().join("rules.toml"), folder.path().join("rr"));
    std::fs::write(&rules, "listen = \":0\"\n\n[[route]]\npath = \"/\"\nkind = \"health\"\n").unwrap();
    std::os::unix::fs::symlink(crate::support::BINARY, &rr).unwrap();
    let mut check = ringroad(["serve".as_ref(), "--check".as_ref(), "--config".as_ref(), rules.as_os_str()]);
    let (mut doctor, mut help) = (ringroad(["doctor"]), ringroad(["help", "load"]));
    let (mut version, mut usage) = (std::process::Command::new(&rr), std::process::Command::new(&rr));
    version.arg("--version");
    usage.arg("help");
    for command in [&mut check, &mut doctor, &mut help, &mut version, &mut usage] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = command.stdout(writer).output().unwrap();
        assert_eq!(
            (ended.status.code(), String::from_utf8_lossy(&ended.stderr).as_ref()),
            (Some(0), ""),
            "{command:?}"
        );
    }
}
