//! docs/learn: every command in it is one that this program, or `cargo xtask`, has.
//!
//! Commands stand in code blocks and between backticks. They are not run, which would take hours; their verbs, options,
//! suites, programs and models are looked up.

use crate::support::{ringroad, run};
use ringroad_lab::Suite;
use ringroad_models::Model;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What begins like a command, in blocks and in the text.
fn commands(page: &str) -> Vec<String> {
    let is_command = |text: &str| text.starts_with("ringroad ") || text.starts_with("cargo xtask ");
    let mut found = Vec::new();
    let mut text = String::new();
    for (nth, part) in page.split("```").enumerate() {
        if nth % 2 == 1 {
            found.extend(part.lines().map(str::trim).filter(|line| is_command(line)).map(str::to_owned));
        } else {
            text.push_str(&part.replace('\n', " "));
        }
    }
    let spans = text.split('`').skip(1).step_by(2).map(str::trim);
    found.extend(spans.filter(|span| is_command(span)).map(str::to_owned));
    found
}

/// The words of a line; quotes hold several together.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (nth, part) in line.split('\'').enumerate() {
        match nth % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}

/// What a command asks for that is not there.
fn faults(line: &str) -> Vec<String> {
    let words = words(line);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["cargo", "xtask", chore, ..] => {
            let usage = fs::read_to_string(root().join("xtask/src/main.rs")).unwrap();
            if usage.contains(&format!("cargo xtask {chore}")) {
                Vec::new()
            } else {
                vec![format!("cargo xtask has no {chore}")]
            }
        }
        ["ringroad", "lab", act, rest @ ..] if !act.starts_with('-') => {
            let mut found = options(&["lab", act], rest);
            if let ("run", Some(name)) = (*act, rest.first()) {
                found.extend(in_suite(name, rest));
            }
            found
        }
        ["ringroad", verb, rest @ ..] => options(&[verb], rest),
        _ => vec!["not a command".to_owned()],
    }
}

/// The verb has help, and its help has the options; a model is one of ours.
fn options(verb: &[&str], rest: &[&str]) -> Vec<String> {
    let help = run(ringroad(verb.iter().copied()).arg("--help"));
    if help.code != Some(0) {
        return vec![format!("there is no verb {verb:?}")];
    }
    let text = help.text();
    let known: Vec<&str> = text.split([' ', ',', '\n', '=', '[', ']']).collect();
    let used = rest.iter().filter(|word| word.len() > 1 && word.starts_with('-'));
    let unknown = used.filter(|word| !known.contains(&word.split('=').next().unwrap()));
    let mut found: Vec<String> = unknown.map(|word| format!("{verb:?} has no {word}")).collect();
    let models = rest.windows(2).filter(|pair| pair[0] == "--model").map(|pair| pair[1]);
    found.extend(
        models.filter(|model| model.parse::<Model>().is_err()).map(|model| format!("no model {model}")),
    );
    found
}

/// The suite is there, and so are the programs that are named of it.
fn in_suite(name: &str, rest: &[&str]) -> Vec<String> {
    let Ok(suite) = Suite::load(name) else {
        return vec![format!("there is no suite {name}")];
    };
    let only = rest.windows(2).filter(|pair| pair[0] == "--only").flat_map(|pair| pair[1].split(','));
    let unknown = only.filter(|program| !suite.servers.iter().any(|server| server.id == *program));
    unknown.map(|program| format!("suite {name} has no {program}")).collect()
}

#[test]
fn every_command_of_the_learning_path_is_one_there_is() {
    let mut count = 0;
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join("docs/learn")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|end| end != "md") {
            continue;
        }
        for command in commands(&fs::read_to_string(&path).unwrap()) {
            count += 1;
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            found.extend(faults(&command).into_iter().map(|fault| format!("{name}: `{command}`: {fault}")));
        }
    }
    assert_eq!(found, Vec::<String>::new());
    assert!(count > 40, "only {count} commands were found");
}

#[test]
fn a_command_that_is_not_there_is_noticed() {
    for (line, fault) in [
        ("ringroad lab run no-such-suite", "no suite no-such-suite"),
        ("ringroad lab run quick --only epoll", "suite quick has no epoll"),
        ("ringroad lab measure", "no verb"),
        ("ringroad lab run quick --times 3", "has no --times"),
        ("ringroad lab server --model kqueue", "no model kqueue"),
        ("ringroad swim", "no verb"),
        ("cargo xtask swim", "has no swim"),
    ] {
        let found = faults(line);
        assert!(found.iter().any(|found| found.contains(fault)), "{line}: {found:?}");
    }
    assert_eq!(faults("ringroad lab run quick --only epoll-et --with 'mine=./server {port}'"), [""; 0]);
    let page = "text `ringroad lab\nsuites` and `other`\n```\nringroad doctor\nelse\n```\n";
    assert_eq!(commands(page), ["ringroad doctor", "ringroad lab suites"]);
}
