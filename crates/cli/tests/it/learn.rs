//! docs/learn: every command in it is one that this program, or `cargo xtask`, has, and every configuration
//! of its page about gateways is valid and has the keys that the page names. Configurations in all other
//! pages are valid but for the files and tables that they leave out.
//!
//! Commands stand in code blocks and between backticks. They are not run, which would take hours; their
//! verbs, options, suites, programs and models are looked up.

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

/// Whether a configuration sets a key, or has a table of a family for `[family.`.
fn sets(text: &str, key: &str) -> bool {
    if key.starts_with('[') {
        return text.contains(key);
    }
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.match_indices(key).any(|(at, _)| {
        let before = text.as_bytes().get(at.wrapping_sub(1)).copied();
        let behind = text[at + key.len()..].trim_start_matches(' ');
        !before.is_some_and(is_name) && (behind.starts_with('=') || behind.starts_with(']'))
    })
}

/// The keys that the last column of a page's tables names, as [`sets`] looks for them.
fn keys_of_tables(page: &str) -> Vec<String> {
    let rows = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("|---"));
    let cells = rows.filter_map(|row| row.trim_end_matches(" |").rsplit(" | ").next());
    let spans = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let key = |span: &str| {
        if span.starts_with('[') {
            return Some(format!("[{}.", span.trim_start_matches('[').split(['.', ']']).next()?));
        }
        let name = span.split(" = ").next()?.rsplit('.').next()?;
        let is_key = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        is_key.then(|| name.to_owned())
    };
    spans.filter_map(key).filter(|key| key != "[route.").collect()
}

#[test]
fn the_configurations_of_the_page_about_gateways_are_valid_and_have_every_key_it_names() {
    let page = fs::read_to_string(root().join("docs/learn/gateway.md")).unwrap();
    let blocks = page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let mut all = String::new();
    for (number, block) in blocks.enumerate() {
        let file = folder.path().join(format!("{number}.toml"));
        fs::write(&file, block).unwrap();
        let mut check = ringroad(["serve", "--check", "--config"]);
        let outcome = run(check.arg(&file).env("SHOP_KEY", "secret"));
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        all += block;
    }
    let keys = keys_of_tables(&page);
    assert!(keys.len() > 40, "{keys:?}");
    // Conditions of routes other than `split` have examples in docs/serve.md.
    let elsewhere = ["hosts", "methods", "match_headers", "match_query"];
    let absent: Vec<_> =
        keys.iter().filter(|key| !elsewhere.contains(&key.as_str()) && !sets(&all, key)).collect();
    assert!(absent.is_empty(), "named and in no example: {absent:?}");
    assert!(sets("a = 1\n[store.b]", "a") && sets("x = { a = 1 }", "a") && !sets("ba = 1", "a"));
}

/// The names of variables, as in `$PUSH_KEY`, that a configuration reads from the environment.
fn variables(block: &str) -> Vec<&str> {
    block
        .split('$')
        .skip(1)
        .map(|rest| {
            rest.split(|letter: char| letter != '_' && !letter.is_ascii_alphanumeric()).next().unwrap()
        })
        .filter(|name| !name.is_empty())
        .collect()
}

/// What `serve --check` says against a configuration, but for files, groups and routes that are not there:
/// pages show a part of a configuration, and name files of their readers.
fn complaints(block: &str, folder: &Path) -> Vec<String> {
    let file = folder.join("page.toml");
    fs::write(&file, block).unwrap();
    let mut check = ringroad(["serve", "--check", "--config"]);
    let set = variables(block).into_iter().map(|name| (name, "a-secret-of-more-than-32-bytes-for-a-page"));
    let outcome = run(check.arg(&file).envs(set));
    assert!(matches!(outcome.code, Some(0 | 2)), "{outcome:?}");
    let absent =
        ["No such file or directory", "route: missing: expected at least one [[route]]", "there is no ["];
    let complaints = outcome.stderr.lines().filter(|line| !absent.iter().any(|part| line.contains(part)));
    complaints.map(str::to_owned).collect()
}

#[test]
fn configurations_in_the_pages_have_no_fault_but_what_they_leave_out() {
    let folder = tempfile::tempdir().unwrap();
    let mut faults = Vec::new();
    let mut seen = 0;
    for part in ["docs", "docs/learn"] {
        for entry in fs::read_dir(root().join(part)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|end| end != "md") {
                continue;
            }
            let page = fs::read_to_string(&path).unwrap();
            for block in page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()) {
                seen += 1;
                faults
                    .extend(complaints(block, folder.path()).into_iter().map(|fault| (path.clone(), fault)));
            }
        }
    }
    assert_eq!(faults, []);
    assert!(seen > 20, "{seen}");
    let wrong = "[[route]]\npath = \"/\"\nkind = \"static\"\nroot = \".\"\ncach = 1\n";
    assert!(complaints(wrong, folder.path()).concat().contains("cach"), "a fault is seen");
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
