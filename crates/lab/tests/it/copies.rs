//! Suites that copy trees of files: what is counted, what is refused, and what is left behind. Figures are
//! not looked at.

use crate::runs::options;
use ringroad_lab::{RunOptions, Suite, runner};
use ringroad_measure::record::{Cell, Record};
use ringroad_measure::{Caveat, Level};
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// A suite of programs that copy twelve files of 1000 bytes.
fn suite(servers: &[(&str, &str)]) -> Suite {
    let head = "title = \"t\"\nduration_s = 1\nrepeats = 2\n";
    let load = "[[load]]\nid = \"small\"\nprotocol = \"files\"\ntree = { dataset = \"12x1000/3\" }\n";
    let servers: String = servers
        .iter()
        .map(|(id, script)| {
            format!(
                "[[server]]\nid = \"{id}\"\ncommand = [\"sh\", \"-c\", {script:?}, \"{{source}}\", \"{{target}}\"]\n\
                 ready = \"end\"\nprotocols = [\"files\"]\n"
            )
        })
        .collect();
    Suite::parse(&format!("{head}{servers}{load}"), "t.toml", "t", None).unwrap()
}

fn run(suite: &Suite, scratch: Option<&Path>) -> Record {
    let options = RunOptions { scratch: scratch.map(Path::to_owned), ..options() };
    runner::run(suite, &options, &mut (), &AtomicBool::new(false)).unwrap()
}

fn cell<'a>(record: &'a Record, model: &str) -> &'a Cell {
    record.cells.iter().find(|cell| cell.model == model).unwrap()
}

#[test]
fn a_copy_is_timed_and_counted_by_its_files_and_removed_when_the_run_is_over() {
    let folder = tempfile::tempdir().unwrap();
    // Fails where its copy of the block before is gone, or is to be made again.
    let memory = tempfile::NamedTempFile::new().unwrap();
    let memory = memory.path().display();
    let remembers = format!(
        "old=$(cat {memory}); echo $1 > {memory}; cp -r $0 $1; test -z \"$old\" || {{ test \"$old\" != $1 && test -d \"$old\"; }}"
    );
    let suite = suite(&[
        ("whole", "cp -r $0 $1"),
        ("loses-one", "cp -r $0 $1; find $1 -type f | head -n 1 | xargs rm"),
        ("cuts-one", "cp -r $0 $1; find $1 -type f | head -n 1 | xargs truncate -s 1"),
        ("fails", "echo the disk is full >&2; exit 1"),
        ("is-not-there", "no-such-copier $0 $1"),
        ("cannot", "echo no such engine here >&2; exit 2"),
        ("remembers", &remembers),
    ]);
    let record = run(&suite, Some(folder.path()));
    let whole = cell(&record, "whole");
    assert_eq!((whole.sent, whole.completed), (24, 24), "twelve files, twice");
    assert_eq!((whole.protocol.as_str(), whole.variant.as_deref()), ("files", Some("12x1000/3, warm")));
    // Of the machine, a doubt may well be left: others may have used it meanwhile.
    let of_the_machine = |why: &&Caveat| matches!(why, Caveat::Steal { .. });
    let wrong =
        whole.verdict.reasons.iter().find(|why| why.level() == Level::Invalid && !of_the_machine(why));
    assert_eq!(wrong, None, "{}", whole.verdict);
    assert!(!whole.verdict.reasons.iter().any(|why| matches!(why, Caveat::WindowTooShort { .. })));
    assert!(whole.rps.unwrap() > 0.0 && whole.server.cpu_us_per_request.is_some());
    assert_eq!(cell(&record, "remembers").completed, 24, "no copy is removed while others run");
    for (model, words) in [
        ("loses-one", "its copy has 11 files with 11000 bytes, and the tree 12 with 12000"),
        ("cuts-one", "its copy has 12 files with 11001 bytes"),
        ("fails", "the disk is full"),
    ] {
        let cell = cell(&record, model);
        assert_eq!(cell.verdict.level, Level::Invalid, "{model}");
        assert!(cell.verdict.to_string().contains(words), "{model}: {}", cell.verdict);
    }
    assert!(cell(&record, "cannot").skipped.as_ref().unwrap().contains("no such engine"));
    assert!(cell(&record, "is-not-there").skipped.as_ref().unwrap().contains("no-such-copier"));
    let left: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["12x1000-3-1"], "the tree stays for the next run, no copy does");
}

#[test]
fn without_a_place_for_trees_copies_are_skipped() {
    let record = run(&suite(&[("whole", "cp -r $0 $1")]), None);
    assert!(cell(&record, "whole").skipped.as_ref().unwrap().contains("no folder for the trees"));
}

#[test]
fn mistakes_in_a_suite_of_copies_are_told() {
    let good = "title = \"t\"\nduration_s = 1\nrepeats = 2\n[[server]]\nid = \"a\"\n\
                command = [\"cp\", \"{source}\", \"{target}\"]\nready = \"end\"\nprotocols = [\"files\"]\n\
                [[load]]\nid = \"l\"\nprotocol = \"files\"\ntree = { dataset = \"12x1000\" }\n";
    assert!(Suite::parse(good, "t.toml", "t", None).is_ok());
    for (from, to, key) in [
        ("\"end\"", "\"connect\"", "server.ready"),
        ("[\"files\"]", "[\"files\", \"http\"]", "server.ready"),
        (", \"{target}\"", "", "server.command"),
        ("tree = { dataset = \"12x1000\" }", "", "load.tree"),
        ("12x1000", "many", "load.tree"),
        ("\"12x1000\" }", "\"12x1000\", scale = 0.0 }", "load.tree"),
        ("tree =", "connections = [3]\ntree =", "load.connections"),
        ("protocol = \"files\"", "protocol = \"http\"\nconnections = [3]", "load.tree"),
        ("protocol = \"files\"\ntree = { dataset = \"12x1000\" }", "protocol = \"http\"", "load.connections"),
    ] {
        assert!(good.contains(from), "{from}");
        let error = Suite::parse(&good.replacen(from, to, 1), "t.toml", "t", None).unwrap_err().to_string();
        assert!(error.contains(key), "{to}: {error}");
    }
}
