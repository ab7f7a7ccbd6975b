//! Documents as users write them: every mistake is found, with its file, line and key.
#![allow(clippy::unwrap_used)]

use ringroad_settings::{Document, Key, Section, SettingsError, Table, value};
use std::path::Path;

const TOP: Table = Table {
    name: "top",
    meaning: "",
    keys: &[
        Key { name: "include", form: "", default: "-", meaning: "" },
        Key { name: "workers", form: "", default: "1", meaning: "" },
        Key { name: "name", form: "", default: "-", meaning: "" },
        Key { name: "route", form: "", default: "", meaning: "" },
        Key { name: "upstream", form: "", default: "-", meaning: "" },
    ],
};

const ROUTE: Table = Table {
    name: "[[route]]",
    meaning: "",
    keys: &[Key { name: "path", form: "", default: "", meaning: "" }],
};

const UPSTREAM: Table = Table {
    name: "[upstream.NAME]",
    meaning: "",
    keys: &[Key { name: "to", form: "", default: "", meaning: "" }],
};

#[derive(Debug, PartialEq)]
struct Read {
    workers: u64,
    name: Option<String>,
    routes: Vec<String>,
    upstreams: Vec<(String, String)>,
}

fn all(mut top: Section<'_>) -> Option<Read> {
    top.describe(&TOP);
    let workers = top.read("workers", |value| value::count(value, 0, 64)).unwrap_or(1);
    let name = top.read("name", value::text);
    let mut routes = Vec::new();
    for mut route in top.tables("route") {
        route.describe(&ROUTE);
        routes.extend(route.require("path", "a path", value::text));
        route.finish();
    }
    let mut upstreams = Vec::new();
    for (name, mut upstream) in top.named("upstream") {
        upstream.describe(&UPSTREAM);
        upstreams.extend(upstream.require("to", "a server", value::text).map(|to| (name, to)));
        upstream.finish();
    }
    top.finish();
    Some(Read { workers, name, routes, upstreams })
}

fn parse(text: &str) -> Result<Read, SettingsError> {
    let environment = |name: &str| (name == "WORKERS").then(|| "3".to_owned());
    Document::parse(text.to_owned(), Path::new("/etc/r.toml")).read(&environment, all)
}

#[test]
fn every_mistake_is_reported_with_its_line_and_key() {
    let text = "worker = 2\nworkers = 65\nname = 1\n\n[[route]]\npaht = \"/\"\n\n[[route]]\nlocation = 1\npath = 2\n\
        [upstream]\na = 1\n";
    let error = parse(text).unwrap_err();
    let told: Vec<_> = error.mistakes.iter().map(|m| (m.line, m.key.as_str(), m.what.as_str())).collect();
    assert_eq!(
        told,
        [
            (1, "worker", "not a key here (did you mean `workers`?)"),
            (2, "workers", "expected a number from 0 to 64, found 65"),
            (3, "name", "expected a text in quotes, found 1"),
            (6, "route[1].paht", "not a key here (did you mean `path`?)"),
            (
                9,
                "route[2].location",
                "not a key here (nginx's `location` is [[route]] with `path` at the top of the file)"
            ),
            (10, "route[2].path", "expected a text in quotes, found 2"),
            (12, "upstream.a", "expected a table, found 1"),
        ]
    );
}

#[test]
fn of_a_file_that_is_not_toml_only_the_first_mistake_of_syntax_is_reported() {
    // The parser goes on behind it, and finds no route, a text that is not closed, and a key twice.
    for text in ["name = \"a\nroute = 1\n", "\nname = [\n[[route]]\npath = \"/\nname = ]\n"] {
        let error = parse(text).unwrap_err();
        let [one] = error.mistakes.as_slice() else { panic!("{error}") };
        assert!(one.key.is_empty() && one.what.starts_with("not TOML: "), "{error}");
    }
}

#[test]
fn words_of_other_servers_are_answered_with_ours() {
    let error = parse("worker_processes = 2\n[[route]]\npath = \"/\"\n").unwrap_err();
    assert_eq!(error.mistakes[0].what, "not a key here (nginx's `worker_processes` is `workers` here)");
}

#[test]
fn variables_of_the_environment_are_filled_in_and_may_be_numbers() {
    assert_eq!(parse("workers = \"$WORKERS\"").unwrap().workers, 3);
    assert_eq!(parse("workers = \"${OTHER:-7}\"").unwrap().workers, 7);
    let error = parse("\nname = \"$OTHER\"").unwrap_err();
    assert_eq!((error.mistakes[0].line, error.mistakes[0].key.as_str()), (2, "name"));
    assert!(error.mistakes[0].what.contains("no variable OTHER"), "{error}");
}

#[test]
fn a_variable_that_is_missing_is_one_mistake_with_the_whole_key_of_its_value() {
    // What a value is without its variable is no second mistake.
    let error =
        parse("workers = \"$WORKERZ\"\n[[route]]\npath = \"/\"\n[[route]]\npath = \"$PATHS\"\n").unwrap_err();
    let told: Vec<_> = error.mistakes.iter().map(|one| (one.line, one.key.as_str())).collect();
    assert_eq!(told, [(1, "workers"), (5, "route[2].path")], "{error}");
    assert!(error.mistakes.iter().all(|one| one.what.starts_with("no variable ")), "{error}");
}

#[test]
fn included_files_add_their_tables_and_tell_their_own_lines() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    std::fs::create_dir(folder.path().join("conf.d")).unwrap();
    write("r.toml", "include = [\"conf.d/*.toml\"]\n[[route]]\npath = \"/a\"\n[upstream.x]\nto = \"1\"\n");
    write("conf.d/1.toml", "[[route]]\npath = \"/b\"\n[upstream.y]\nto = \"2\"\n");
    write("conf.d/2.toml", "[[route]]\npath = \"/c\"\n");
    write("conf.d/ignored", "this is not TOML");
    let load = || Document::load(&folder.path().join("r.toml")).unwrap().read(&|_| None, all);
    let read = load().unwrap();
    assert_eq!(read.routes, ["/a", "/b", "/c"]);
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(read.upstreams, [pair("x", "1"), pair("y", "2")]);

    write("conf.d/2.toml", "\n[[route]]\npath = 1\n[upstream.x]\nto = \"3\"\n");
    let error = load().unwrap_err();
    let told: Vec<_> = error
        .mistakes
        .iter()
        .map(|m| (m.file.file_name().unwrap().to_str().unwrap(), m.line, m.key.as_str()))
        .collect();
    assert_eq!(told, [("2.toml", 3, "route[3].path"), ("2.toml", 4, "upstream.x")]);

    write("r.toml", "include = \"missing.toml\"\n");
    let error = load().unwrap_err();
    assert!(error.to_string().contains("missing.toml: no such file"), "{error}");
}

#[test]
fn a_file_that_is_not_text_is_reported_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("r.toml");
    std::fs::write(&file, b"workers = 1\nname = \"\xff\"\n").unwrap();
    let error = Document::load(&file).unwrap_err();
    assert!(error.to_string().ends_with("not UTF-8, in line 2"), "{error}");
}
