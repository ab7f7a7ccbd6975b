//! Suites: what they expand to, and that every mistake is answered with file, line and key.

use ringroad_lab::plan::Plan;
use ringroad_lab::program::Filling;
use ringroad_lab::suite::{Client, Load, Protocol, Ready, Suite, built_in};
use ringroad_lab::{Error, error::SuiteError};
use std::path::Path;

const GOOD: &str = r#"title = "a suite"
duration_s = 1
repeats = 6
baseline = "one"
[[server]]
each = ["one", "two"]
id = "{each}"
driver = "{each}"
command = ["{ringroad}", "{each}", "--protocol={protocol}", "{addr}", "{\"json\": 1}"]
ready = "listening on {addr}"
protocols = ["echo", "http"]
env = { WHO = "{each}" }
[[load]]
id = "http"
protocol = "http"
connections = [1, 64]
[[load]]
id = "echo"
protocol = "echo"
connections = [64]
payload_bytes = 512
pipeline = 16
"#;

fn mistake(text: &str) -> SuiteError {
    match Suite::parse(text, "my.toml", "my", None) {
        Err(Error::Suite(error)) => error,
        other => panic!("expected a mistake, got {other:?}"),
    }
}

/// The good suite with one text replaced, which must be in it.
fn changed(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    GOOD.replacen(from, to, 1)
}

#[test]
fn each_stands_for_one_server_per_word_and_connections_for_one_load_per_count() {
    let suite = Suite::parse(GOOD, "my.toml", "my", None).unwrap();
    let ids: Vec<&str> = suite.servers.iter().map(|s| s.id.as_str()).collect();
    assert_eq!(ids, ["one", "two"]);
    assert_eq!(suite.servers[1].command[1], "two");
    assert_eq!(suite.servers[1].driver.as_deref(), Some("two"));
    assert_eq!(suite.servers[1].env["WHO"], "two");
    assert_eq!(suite.servers[1].ready, Ready::Line("listening on {addr}".to_owned()));
    let loads: Vec<(&str, u32)> = suite.loads.iter().map(|l| (l.id.as_str(), l.connections)).collect();
    assert_eq!(loads, [("http-1", 1), ("http-64", 64), ("echo-64", 64)]);
    assert_eq!((suite.loads[2].payload_bytes, suite.loads[2].pipeline), (512, 16));
}

#[test]
fn the_load_generator_puts_every_load_on_that_it_can_and_the_small_client_the_rest() {
    let clients = |text: &str| -> Vec<Client> {
        let suite = Suite::parse(text, "my.toml", "my", None).unwrap();
        suite.loads.iter().map(|load| load.client).collect()
    };
    assert_eq!(clients(GOOD), [Client::Load; 3]);
    for (from, to) in [
        ("pipeline = 16", "pipeline = 257"),
        ("payload_bytes = 512", "payload_bytes = 200000"),
        ("pipeline = 16", "client = \"small\""),
    ] {
        assert_eq!(clients(&changed(from, to)), [Client::Load, Client::Load, Client::Small], "{to}");
    }
    for name in built_in::names() {
        let suite = Suite::load(name).unwrap();
        let is_by_load = |load: &Load| load.tree.is_some() || load.client == Client::Load;
        assert!(suite.loads.iter().all(is_by_load), "{name}");
    }
}

#[test]
fn placeholders_are_filled_and_other_braces_are_left_alone() {
    let suite = Suite::parse(GOOD, "my.toml", "my", None).unwrap();
    let addr = "127.0.0.1:8080".parse().unwrap();
    let filling =
        Filling { ringroad: Path::new("/opt/ringroad"), protocol: Protocol::Http, addr, arguments: &[] };
    let words = filling.words(&suite.servers[0].command);
    assert_eq!(words, ["/opt/ringroad", "one", "--protocol=http", "127.0.0.1:8080", "{\"json\": 1}"]);
    assert_eq!(filling.fill("--port={port}"), "--port=8080");
}

#[test]
fn a_mistake_in_the_syntax_names_the_line() {
    let error = mistake(&changed("repeats = 6", "repeats = = 6"));
    assert_eq!((error.file.as_str(), error.line), ("my.toml", Some(3)));
}

#[test]
fn an_unknown_key_is_named_with_its_line() {
    let error = mistake(&changed("repeats = 6", "repeets = 6"));
    assert_eq!(error.line, Some(3), "{error}");
    assert!(error.message.contains("repeets"), "{error}");
}

#[test]
fn each_rule_names_line_and_key() {
    let cases: &[(&str, &str, usize, &str, &str)] = &[
        ("repeats = 6", "repeats = 0", 3, "repeats", "0"),
        ("duration_s = 1", "duration_s = -1", 2, "duration_s", "-1"),
        ("baseline = \"one\"", "baseline = \"three\"", 4, "baseline", "one, two"),
        ("[\"one\", \"two\"]", "[\"one\", \"one\"]", 7, "server.id", "taken"),
        ("[\"one\", \"two\"]", "[]", 6, "server.each", "empty"),
        ("id = \"{each}\"", "id = \"same\"", 6, "server.each", "{each}"),
        ("{protocol}", "{protcol}", 9, "server.command", "{protcol}"),
        ("\"listening on {addr}\"", "\"listening on {adr}\"", 10, "server.ready", "{adr}"),
        ("\"listening on {addr}\"", "\"\"", 10, "server.ready", "empty"),
        ("connections = [1, 64]", "connections = []", 16, "load.connections", "empty"),
        ("connections = [1, 64]", "connections = [0]", 16, "load.connections", "0"),
        ("connections = [1, 64]", "connections = [1, 1]", 14, "load.id", "taken"),
        ("payload_bytes = 512", "payload_bytes = 0", 21, "load.payload_bytes", "0"),
        ("pipeline = 16", "pipeline = 5000", 22, "load.pipeline", "5000"),
        ("connections = [1, 64]", "path = \"a b\"\nconnections = [1]", 16, "load.path", "/"),
        ("connections = [1, 64]", "connections = [1]\npayload_bytes = 9", 17, "load.payload_bytes", "HTTP"),
        ("payload_bytes = 512", "client = \"wrk\"", 18, "load.client", "wrk"),
        ("pipeline = 16", "pipeline = 257\nclient = \"load\"", 18, "load.client", "256"),
        ("payload_bytes = 512", "payload_bytes = 200000\nclient = \"load\"", 18, "load.client", "16 MiB"),
    ];
    for (from, to, line, key, part) in cases {
        let error = mistake(&changed(from, to));
        assert_eq!((error.line, error.key.as_deref()), (Some(*line), Some(*key)), "{to}: {error}");
        assert!(error.message.contains(part), "{to}: {error}");
        assert!(error.to_string().starts_with(&format!("my.toml:{line}: {key}: ")), "{error}");
    }
}

#[test]
fn a_suite_without_servers_loads_or_a_base_for_its_control_says_so() {
    let head = "title = \"t\"\nduration_s = 1\nrepeats = 1\n";
    assert_eq!(mistake(head).key.as_deref(), Some("server"));
    let server = "[[server]]\nid = \"a\"\ncommand = [\"a\", \"{port}\"]\nready = \"connect\"\nprotocols = [\"echo\"]\n";
    assert_eq!(mistake(&format!("{head}{server}")).key.as_deref(), Some("load"));
    let error = mistake(&changed("baseline = \"one\"", "control = true"));
    assert_eq!(error.key.as_deref(), Some("control"));
}

#[test]
fn a_server_without_an_address_is_a_configuration_error() {
    let text = changed("\"{addr}\", ", "").replacen("listening on {addr}", "ready", 1);
    assert_eq!(mistake(&text).key.as_deref(), Some("server.ready"));
}

#[test]
fn an_unknown_suite_names_the_files_that_were_tried() {
    let text = Suite::load("no-such-suite").unwrap_err().to_string();
    assert!(text.contains("quick") && text.contains("benches/no-such-suite.toml"), "{text}");
}

#[test]
fn the_built_in_suites_are_valid_and_end_in_the_time_they_state() {
    let names: Vec<&str> = built_in::names().collect();
    assert_eq!(names.first(), Some(&"quick"), "what a bare `lab` runs");
    for name in names {
        let suite = Suite::load(name).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((suite.name.as_str(), suite.folder.clone()), (name, None));
        assert!(suite.baseline.is_some() && suite.control && suite.repeats >= 6, "{name}");
        let estimate = Plan::of(&suite, 1).estimate(&suite).as_secs_f64();
        assert!(estimate <= suite.budget_s.unwrap(), "{name} takes {estimate:.0} s");
        assert!(estimate <= 13.0 * 60.0, "{name} takes {estimate:.0} s: nobody waits that long");
        // Every load has a program to compare with.
        for (index, load) in suite.loads.iter().enumerate() {
            let runs =
                Plan::of(&suite, 1).cells.iter().filter(|c| c.load == index && c.skipped.is_none()).count();
            assert!(runs >= 3, "{name}: {} has {runs}", load.id);
        }
    }
}

#[test]
fn a_share_of_the_connections_is_rounded_and_at_least_one() {
    let share = |share: &str, connections: &str| {
        let text =
            changed("connections = [64]", &format!("connections = [{connections}]\nactive_share = {share}"));
        Suite::parse(&text, "my.toml", "my", None).map(|suite| suite.loads[2].active)
    };
    assert_eq!(share("0.1", "1000").unwrap(), 100);
    assert_eq!(share("0.01", "20").unwrap(), 1);
    assert_eq!(share("1", "64").unwrap(), 64);
    for bad in ["0", "-0.5", "1.1", "nan"] {
        assert!(share(bad, "10").unwrap_err().to_string().contains("active_share"), "{bad}");
    }
}

#[test]
fn a_connection_per_request_is_for_http_alone() {
    let text = changed("connections = [1, 64]", "connections = [1, 64]\nreconnect = true");
    let suite = Suite::parse(&text, "my.toml", "my", None).unwrap();
    assert!(suite.loads[0].reconnect && !suite.loads[2].reconnect);
    assert_eq!(suite.loads[0].about.as_deref(), Some("a connection per request"));
    let text = changed("payload_bytes = 512", "reconnect = true");
    assert_eq!(mistake(&text).key.as_deref(), Some("load.reconnect"));
}

#[test]
fn the_words_of_a_load_go_where_the_command_says_and_nowhere_else() {
    let text = changed("connections = [64]", "connections = [64]\narguments = [\"--work-us\", \"5\"]")
        .replacen("\"{each}\", \"--protocol", "\"{each}\", \"{arguments}\", \"--protocol", 1);
    let deaf = "[[server]]\nid = \"deaf\"\ncommand = [\"deaf\", \"{port}\"]\nready = \"connect\"\nprotocols = [\"echo\", \"http\"]\n";
    let suite = Suite::parse(&format!("{text}{deaf}"), "my.toml", "my", None).unwrap();
    assert_eq!(suite.loads[2].about.as_deref(), Some("--work-us 5"));
    let plan = Plan::of(&suite, 1);
    let skipped = |server: usize, load: usize| {
        plan.cells.iter().find(|c| (c.server, c.load) == (server, load)).unwrap().skipped.clone()
    };
    assert_eq!((skipped(0, 0), skipped(0, 2), skipped(2, 0)), (None, None, None));
    assert!(skipped(2, 2).unwrap().contains("cannot get --work-us 5"));
    let addr = "127.0.0.1:8080".parse().unwrap();
    let arguments = suite.loads[2].arguments.clone();
    let filling = Filling { ringroad: Path::new("r"), protocol: Protocol::Echo, addr, arguments: &arguments };
    let words = filling.words(&suite.servers[0].command);
    assert_eq!(words[..4], ["r", "one", "--work-us", "5"]);
    let glued = changed("\"{addr}\"", "\"{addr}{arguments}\"");
    assert_eq!(mistake(&glued).key.as_deref(), Some("server.command"));
}

#[test]
fn a_program_of_the_users_is_a_row_of_the_suite() {
    let mut suite = Suite::load("quick").unwrap();
    let before = suite.servers.len();
    suite.add("mine=./server --port {port} 'two words'").unwrap();
    let mine = suite.servers.last().unwrap();
    assert_eq!((suite.servers.len(), mine.id.as_str()), (before + 1, "mine"));
    let here = std::env::current_dir().unwrap().join("server");
    assert_eq!(mine.command, [here.to_str().unwrap(), "--port", "{port}", "two words"]);
    assert_eq!((mine.protocols.as_slice(), mine.own_page), ([Protocol::Http].as_slice(), true));
    suite.add("both=server {addr} {protocol}").unwrap();
    assert_eq!(suite.servers.last().unwrap().protocols.len(), 2);
    suite.add("mycp=mycp -a {source} {target}").unwrap();
    let copier = suite.servers.last().unwrap();
    assert_eq!((copier.protocols.as_slice(), &copier.ready), ([Protocol::Files].as_slice(), &Ready::End));
    for (text, why) in [
        ("./server {port}", "no `=`"),
        ("=./server {port}", "the name"),
        ("a/b=./server {port}", "the name"),
        ("poll=./server {port}", "already"),
        ("x=", "empty"),
        ("x='./server {port}", "quote"),
        ("x=./server", "where to listen"),
        ("x=./server {prot}", "`{prot}` is unknown"),
        ("x=./server {each} {port}", "`{each}` is unknown"),
        ("x=mycp {source}", "both {source} and {target}"),
        ("x=mycp {source} {target} {port}", "`{port}` is unknown"),
    ] {
        let error = suite.add(text).unwrap_err().to_string();
        assert!(error.starts_with("--with") && error.contains(why), "{text}: {error}");
    }
}

#[test]
fn the_suites_of_the_repository_are_all_valid() {
    let benches = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(benches).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "toml") {
            let suite = Suite::load(path.to_str().unwrap()).unwrap();
            assert!(suite.baseline.is_some(), "{}", path.display());
            names.push(suite.name);
        }
    }
    names.sort();
    assert_eq!(
        names,
        [
            "aa",
            "bridge",
            "connections",
            "engine",
            "floor",
            "http",
            "json",
            "planted",
            "proxy",
            "static",
            "wrk"
        ]
    );
}

#[test]
fn a_value_of_the_wrong_kind_is_answered_with_its_key_and_what_belongs_there() {
    for (from, to, key, words) in [
        ("connections = [64]", "connections = 64", "load.connections", "; expected: a list, as in [64]"),
        ("duration_s = 1", "duration_s = \"1\"", "duration_s", "; expected: a number"),
        ("payload_bytes = 512", "payload_bytes = \"x\"", "load.payload_bytes", "a whole number"),
        ("id = \"{each}\"", "id = 7", "server.id", "; expected: a text in quotes"),
    ] {
        let error = mistake(&changed(from, to));
        assert_eq!(error.key.as_deref(), Some(key), "{error}");
        assert!(error.message.contains(words) && error.line.is_some(), "{error}");
    }
}

/// A misspelt word would be waited for as a line, to the end of the time for it.
#[test]
fn a_word_that_is_nearly_connect_is_a_mistake_and_a_line_that_is_not_is_a_line() {
    for typo in ["connct", "Connect", "conect", "connected"] {
        let error = mistake(&changed("\"listening on {addr}\"", &format!("\"{typo}\"")));
        assert_eq!(error.key.as_deref(), Some("server.ready"), "{typo}: {error}");
        assert!(error.message.contains("did you mean \"connect\"?"), "{typo}: {error}");
    }
    for line in ["listening", "ready", "accepting connections", "up"] {
        let suite =
            Suite::parse(&changed("\"listening on {addr}\"", &format!("\"{line}\"")), "my.toml", "my", None);
        assert_eq!(suite.unwrap().servers[0].ready, Ready::Line(line.to_owned()));
    }
}

#[test]
fn servers_that_already_run_are_named_by_their_urls() {
    let of =
        |texts: &[&str]| Suite::of_urls(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
    let suite = of(&["http://localhost:81/", "new=https://example.org/api?x=y"]).unwrap();
    let servers: Vec<(&str, &str, bool)> = suite
        .servers
        .iter()
        .map(|server| (server.id.as_str(), server.command[0].as_str(), server.url.is_some()))
        .collect();
    assert_eq!(servers, [("a", "http://localhost:81/", true), ("new", "https://example.org/api?x=y", true)]);
    assert_eq!((suite.baseline.as_deref(), suite.control), (Some("a"), true));
    for wrong in [&["ftp://x/"][..], &["=http://x/"], &["a=http://x/", "a=http://y/"], &["localhost"]] {
        let error = of(wrong).unwrap_err().to_string();
        assert!(error.starts_with("--url ") && error.contains("http://"), "{error}");
    }
    let text = GOOD.replace(
        "[[load]]\nid = \"http\"",
        "[[server]]\nid = \"there\"\nurl = \"http://10.0.0.7/\"\nprotocols = [\"http\"]\n[[load]]\nid = \"http\"",
    );
    let there = Suite::parse(&text, "my.toml", "my", None).unwrap().servers.pop().unwrap();
    assert_eq!(there.url.unwrap().to_string(), "http://10.0.0.7/");
    let both = text.replace("url = ", "command = [\"x\"]\nurl = ");
    assert_eq!(mistake(&both).key.as_deref(), Some("server.url"));
    assert!(mistake(&text.replace("url = \"http://10.0.0.7/\"", "")).message.contains("`url`"));
}

#[test]
fn path_and_connections_can_be_set_for_every_load() {
    let mut suite = Suite::parse(GOOD, "my.toml", "my", None).unwrap();
    suite.set_path("/api").unwrap();
    suite.set_connections(&[8, 16]).unwrap();
    let loads: Vec<(&str, u32, &str)> =
        suite.loads.iter().map(|load| (load.id.as_str(), load.connections, load.path.as_str())).collect();
    assert_eq!(
        loads,
        [("http-8", 8, "/api"), ("http-16", 16, "/api"), ("echo-8", 8, "/"), ("echo-16", 16, "/")]
    );
    assert!(suite.set_path("api").is_err() && suite.set_connections(&[0]).is_err());
    let mut files = Suite::load("files").unwrap();
    assert!(files.set_path("/x").is_err() && files.set_connections(&[1]).is_err());
}

/// What is not installed is known before anything runs.
#[test]
fn a_plan_leaves_out_programs_that_are_not_there_and_says_why() {
    let mut suite = Suite::quick().unwrap();
    suite.add("gone=./no-such-server {port}").unwrap();
    suite.add("unknown=no-such-program-anywhere {port}").unwrap();
    suite.add("shell=sh -c true {port}").unwrap();
    let mut plan = Plan::of(&suite, 7);
    let before = plan.runs();
    plan.look_for_programs(&suite);
    let text = plan.text(&suite, 400);
    for name in ["gone", "unknown"] {
        let line = text.lines().find(|line| line.contains(&format!("not {name}: "))).unwrap();
        assert!(line.contains("not installed or not executable"), "{line}");
    }
    assert!(!text.contains("not shell: sh"), "{text}");
    assert_eq!(before - plan.runs(), 2 * suite.repeats, "two programs under the one HTTP load");
    assert!(text.contains("more if an added program is slow"), "{text}");
}
