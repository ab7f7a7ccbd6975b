//! `ringroad lab` and `lab run`: what is left behind in files and on stdout, with which exit code, and what
//! is not left behind: processes.
//!
//! How the harness measures and judges is tested in `lab`; here a window lasts a tenth of a second and its
//! figures are not looked at.

use crate::ports::nowhere;
use crate::support::{
    BINARY, Kill, Lines, Outcome, Server, installed, is_root, own_copy, processes_with, ringroad, run, until,
};
use ringroad_measure::caveat::Level;
use ringroad_measure::record::{Record, SCHEMA};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A suite of one load on top of the given servers; nothing in it takes long.
fn suite(folder: &TempDir, servers: &str) -> PathBuf {
    let path = folder.path().join("small.toml");
    let head = "title = \"small\"\nwarmup_s = 0.0\nduration_s = 0.1\nsyscalls_s = 0.0\nrepeats = 1\n";
    let load = "[[load]]\nid = \"http\"\nprotocol = \"http\"\nconnections = [4]\ntimeout_s = 30\n";
    fs::write(&path, format!("{head}{servers}{load}")).unwrap();
    path
}

/// A server of ours for a suite.
const OURS: &str = r#"
[[server]]
id = "ours"
command = ["{ringroad}", "lab", "server", "--model", "poll", "--protocol", "{protocol}"]
ready = "listening on {addr}"
protocols = ["http"]
totals = true
"#;

fn record_in(folder: &Path) -> Record {
    let text = fs::read_to_string(folder.join("record.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The exit code follows from the verdict, whatever the machine made of the figures.
fn expect_code_of(record: &Record, outcome: &Outcome) {
    let expected = if record.verdict.level == Level::Invalid { 5 } else { 0 };
    assert_eq!(outcome.code, Some(expected), "{:?}: {}", record.verdict, outcome.stderr);
}

/// The table without the lines that say where files are.
fn table(outcome: &Outcome) -> String {
    let text = outcome.text();
    let end = text.find("\nrecord: ").or_else(|| text.find("\npage: ")).unwrap_or(text.len());
    text[..end].to_owned()
}

#[test]
fn a_run_leaves_a_record_a_page_and_a_table_and_a_report_shows_the_same_again() {
    let io_uring = run(&mut ringroad(["cat", "--driver", "io_uring", "/dev/null"])).code == Some(0);
    let other = if io_uring { "engine-io_uring" } else { "threads" };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("new/folder");
    let only = format!("--only=epoll-et,{other}");
    let outcome = run(ringroad(["lab", "--repeats", "1", "--duration", "0.2", &only, "--out"]).arg(&out));
    let record = record_in(&out);
    expect_code_of(&record, &outcome);

    assert_eq!((record.schema.as_str(), SCHEMA), (SCHEMA, "ringroad.record/1"));
    assert_eq!((record.tool.as_str(), record.suite.as_deref()), ("lab", Some("quick")));
    assert_eq!((record.blocks, record.baseline.as_deref()), (1, Some("epoll-et")));
    assert!(record.command.contains(&only) && record.command.contains(&"--seed".to_owned()), "{record:?}");
    let cell = |cell: &ringroad_measure::record::Cell| (cell.model.clone(), cell.protocol.clone());
    let mut cells: Vec<_> = record.cells.iter().map(cell).collect();
    cells.sort();
    let expected = [("epoll-et", "echo"), ("epoll-et", "http"), (other, "echo"), (other, "http")];
    let mut expected = expected.map(|(model, protocol)| (model.to_owned(), protocol.to_owned()));
    expected.sort();
    assert_eq!(cells, expected);
    for cell in &record.cells {
        assert_eq!((cell.connections, &cell.skipped, cell.errors.total()), (64, &None, 0), "{}", cell.id);
        assert_eq!(cell.runs.len(), 1, "{}", cell.id);
        let counts = &cell.runs[0];
        assert!(counts.client_count > 0, "{}", cell.id);
        assert_eq!(counts.server_count, Some(counts.client_count), "{}", cell.id);
        assert_eq!((cell.sent, cell.completed), (counts.client_count, counts.client_count), "{}", cell.id);
    }
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.to_lowercase().starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
    assert!(page.contains("<svg") && page.contains("epoll-et") && page.contains(other));
    let text = outcome.text();
    assert!(text.contains("epoll-et") && text.contains(other), "{text}");
    assert!(text.ends_with(&format!("page:   {}\n", out.join("report.html").display())), "{text}");
    assert!(!text.contains('\u{1b}') && !outcome.stderr.contains('\u{1b}'), "colours without a terminal");

    fs::remove_file(out.join("report.html")).unwrap();
    let again = run(ringroad(["lab", "report"]).arg(out.join("record.json")));
    assert_eq!((again.code, again.stderr.as_str()), (Some(0), ""));
    assert_eq!(table(&again), table(&outcome));
    assert_eq!(fs::read_to_string(out.join("report.html")).unwrap(), page);
    let elsewhere = folder.path().join("elsewhere.html");
    let again = run(ringroad(["lab", "report", "--out"]).arg(&elsewhere).arg(out.join("record.json")));
    assert_eq!(again.code, Some(0), "{again:?}");
    assert_eq!(fs::read_to_string(elsewhere).unwrap(), page);
}

#[test]
fn with_json_the_record_is_all_of_stdout() {
    let folder = tempfile::tempdir().unwrap();
    let path = suite(&folder, OURS);
    let outcome = run(ringroad(["lab", "run", "--json", "--out"]).arg(folder.path()).arg(path));
    assert_eq!(outcome.text(), fs::read_to_string(folder.path().join("record.json")).unwrap());
    expect_code_of(&record_in(folder.path()), &outcome);
    assert!(folder.path().join("report.html").exists());
}

/// A tenth of a second, once, is never VALID.
#[test]
fn strict_turns_a_doubt_into_exit_5() {
    let folder = tempfile::tempdir().unwrap();
    let path = suite(&folder, OURS);
    let outcome = run(ringroad(["lab", "run", "--strict", "--out"]).arg(folder.path()).arg(path));
    assert_eq!(outcome.code, Some(5), "{}", outcome.stderr);
}

#[test]
fn the_default_folder_is_under_the_state_directory_and_named_last() {
    let folder = tempfile::tempdir().unwrap();
    let path = suite(&folder, OURS);
    let outcome = run(ringroad(["lab", "run"]).arg(path).env("XDG_STATE_HOME", folder.path()));
    let text = outcome.text();
    let page = Path::new(text.lines().last().unwrap().strip_prefix("page:   ").unwrap());
    assert!(page.starts_with(folder.path().join("ringroad/lab")), "{text}");
    assert!(page.exists());
    expect_code_of(&record_in(page.parent().unwrap()), &outcome);
}

/// A process that runs our copy of the binary, so that all it starts can be found by that path.
struct Interruptible {
    folder: TempDir,
    process: Kill,
    errors: Lines,
}

impl Interruptible {
    fn start(duration: &str) -> Interruptible {
        let folder = tempfile::tempdir().unwrap();
        let copy = own_copy(folder.path());
        let mut command = Command::new(copy);
        command.args(["lab", "-v", "--only=poll", "--repeats=50", "--duration", duration, "--out"]);
        command.arg(folder.path().join("out")).stdin(Stdio::null()).stdout(Stdio::null());
        let mut process = Kill(command.stderr(Stdio::piped()).spawn().unwrap());
        let errors = Lines::of(process.0.stderr.take().unwrap());
        Interruptible { folder, process, errors }
    }

    fn marker(&self) -> String {
        self.folder.path().display().to_string()
    }

    /// A server and a client are there.
    fn wait_for_both(&self) {
        until("server and client run", || {
            let all = processes_with(&self.marker());
            [" lab server ", " lab client "].iter().all(|part| all.iter().any(|words| words.contains(part)))
        });
    }
}

#[test]
fn an_interrupted_run_exits_130_keeps_its_record_and_leaves_no_process() {
    for signal in [Signal::INT, Signal::TERM] {
        let mut lab = Interruptible::start("600");
        lab.wait_for_both();
        lab.process.signal(signal);
        assert_eq!(lab.process.wait(), Some(130), "{signal:?}");
        assert_eq!(processes_with(&lab.marker()), Vec::<String>::new(), "{signal:?}");
        let record = record_in(&lab.folder.path().join("out"));
        assert_eq!((record.blocks, record.cells.len()), (0, 3), "{signal:?}");
        assert!(lab.folder.path().join("out/report.html").exists());
        let said = lab.errors.rest();
        assert!(said.iter().any(|line| line.contains("interrupted after 0 whole blocks")), "{said:?}");
    }
}

#[test]
fn what_was_measured_before_the_interruption_is_in_the_record() {
    let mut lab = Interruptible::start("0.2");
    // The first run may be one of the baseline.
    let is_ours = |line: &str| line.starts_with("ringroad: poll/") && line.contains("requests/s");
    while !is_ours(&lab.errors.next().unwrap()) {}
    lab.process.signal(Signal::INT);
    assert_eq!(lab.process.wait(), Some(130));
    assert_eq!(processes_with(&lab.marker()), Vec::<String>::new());
    let record = record_in(&lab.folder.path().join("out"));
    let of_poll = record.cells.iter().filter(|cell| cell.model == "poll");
    let runs: usize = of_poll.map(|cell| cell.runs.len()).sum();
    assert!(runs > 0, "{record:?}");
    assert!(record.verdict.level > Level::Valid, "{:?}", record.verdict);
    let again = run(ringroad(["lab", "report"]).arg(lab.folder.path().join("out/record.json")));
    assert_eq!(again.code, Some(0), "{again:?}");
}

/// The out-of-memory killer gives no warning.
#[test]
fn a_killed_run_leaves_no_process() {
    let mut lab = Interruptible::start("600");
    lab.wait_for_both();
    lab.process.signal(Signal::KILL);
    assert_eq!(lab.process.wait(), None);
    until("its children are gone", || processes_with(&lab.marker()).is_empty());
}

#[test]
fn a_program_from_outside_is_measured() {
    if !installed("python3") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("site")).unwrap();
    fs::write(folder.path().join("site/index.html"), "<p>hello</p>").unwrap();
    let python = r#"
[[server]]
id = "python"
command = ["python3", "-u", "-m", "http.server", "--protocol", "HTTP/1.1", "--bind", "127.0.0.1", "{port}"]
ready = "connect"
ready_timeout_s = 50
protocols = ["http"]
cwd = "site"
"#;
    let path = suite(&folder, &format!("{python}{OURS}"));
    let outcome = run(ringroad(["lab", "run", "--out"]).arg(folder.path()).arg(path));
    let record = record_in(folder.path());
    expect_code_of(&record, &outcome);
    let cell = &record.cells[0];
    assert_eq!((cell.model.as_str(), &cell.skipped), ("python", &None), "{outcome:?}");
    assert_eq!((cell.errors.total(), cell.payload_bytes), (0, 12), "{:?}", cell.verdict);
    assert!(cell.completed > 0, "{outcome:?}");
    // It counts nothing for us, and that is not a zero.
    assert_eq!(cell.runs[0].server_count, None);
    assert!(record.cells[1].runs[0].server_count.is_some());
}

#[test]
fn a_program_that_is_not_installed_is_a_skipped_cell() {
    let missing = r#"
[[server]]
id = "missing"
command = ["no-such-program-anywhere", "{port}"]
ready = "connect"
protocols = ["http"]
"#;
    let folder = tempfile::tempdir().unwrap();
    let path = suite(&folder, &format!("{missing}{OURS}"));
    let outcome = run(ringroad(["lab", "run", "--out"]).arg(folder.path()).arg(path));
    let record = record_in(folder.path());
    expect_code_of(&record, &outcome);
    let reason = record.cells[0].skipped.clone().unwrap();
    assert!(reason.contains("no-such-program-anywhere") && reason.contains("not installed"), "{reason}");
    assert!(record.cells[1].completed > 0);
    assert!(outcome.text().contains("missing"), "{}", outcome.text());

    // Nothing but it: a run that measured nothing has failed, and the plan says so before.
    let path = suite(&folder, missing);
    let outcome = run(ringroad(["lab", "run", "--out"]).arg(folder.path()).arg(&path));
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.stderr.contains("ringroad: nothing was measured: no program could run"), "{outcome:?}");
    assert!(record_in(folder.path()).cells[0].skipped.is_some());
    let plan = run(ringroad(["lab", "run", "--plan"]).arg(&path));
    assert_eq!(plan.code, Some(1), "{plan:?}");
    assert!(plan.text().contains("not missing: no-such-program-anywhere is not installed"), "{plan:?}");
    assert!(plan.stderr.contains("nothing would be measured"), "{plan:?}");
}

/// What most people try first: a server of another language that closes after each answer and has a short
/// backlog.
#[test]
fn a_program_that_closes_after_each_answer_is_measured_beside_the_others() {
    if !installed("python3") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("index.html"), "<p>hello</p>").unwrap();
    let mut lab = ringroad(["lab", "--only=epoll-et", "--repeats=1", "--duration=0.3", "--out=out"]);
    let outcome = run(lab.args(["--with", "py=python3 -m http.server {port}"]).current_dir(folder.path()));
    let record = record_in(&folder.path().join("out"));
    let cell = record.cells.iter().find(|cell| cell.model == "py" && cell.protocol == "http").unwrap();
    assert_eq!((&cell.skipped, cell.payload_bytes, cell.details.closes), (&None, 12, true), "{outcome:?}");
    assert!(cell.completed > 0 && cell.errors.reset == 0 && cell.errors.protocol == 0, "{}", cell.verdict);
    assert_eq!(cell.errors.status, 0, "{}", cell.verdict);
    assert!(outcome.text().contains("py closes the connection after each answer"), "{}", outcome.text());
}

#[test]
fn servers_that_already_run_are_compared_by_their_urls_and_not_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (Server::start(&["--model", "poll"]), Server::start(&["--model", "epoll-et"]));
    let urls = [format!("old=http://{}/", one.address), format!("http://localhost:{}/x", two.address.port())];
    let words = ["lab", "--connections=4,8", "--repeats=1", "--format=csv", "--out"];
    let measure = |duration: &str| {
        let mut lab = ringroad(words);
        lab.arg(folder.path()).args(["--url", &urls[0], "--url", &urls[1], duration]);
        let outcome = run(&mut lab);
        let record = record_in(folder.path());
        expect_code_of(&record, &outcome);
        (outcome, record)
    };
    let (mut outcome, mut record) = measure("--duration=0.2");
    // So short a window may have no answer on a busy machine.
    if record.cells.iter().flat_map(|cell| &cell.runs).any(|run| run.completed == 0) {
        (outcome, record) = measure("--duration=10");
    }
    assert_eq!(record.baseline.as_deref(), Some("old"));
    let cells: Vec<(&str, u32, u64)> = record
        .cells
        .iter()
        .map(|cell| (cell.model.as_str(), cell.connections, cell.errors.total()))
        .collect();
    assert_eq!(cells, [("old", 4, 0), ("b", 4, 0), ("old", 8, 0), ("b", 8, 0)]);
    // A server of this machine is known by its process, though this run has not started it.
    assert!(record.cells.iter().all(|cell| cell.completed > 0 && cell.server.cpu_us_per_request.is_some()));
    let csv = outcome.text();
    assert!(
        csv.starts_with("load,program,driver,protocol,connections,") && csv.lines().count() == 5,
        "{csv}"
    );
    for server in [one, two] {
        assert!(server.stop(Signal::TERM)["requests"].as_u64().unwrap() > 0, "it ran to the end");
    }
    let wrong = run(&mut ringroad(["lab", "--url", "localhost"]));
    assert_eq!((wrong.code, wrong.stdout.len()), (Some(2), 0), "{wrong:?}");
    assert!(wrong.stderr.contains("--url localhost: it begins with http:// or https://"), "{wrong:?}");
}

/// The run ended when the client without TLS was to check the one with it.
#[test]
fn servers_are_compared_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    let address = crate::load_https::serve(&folder.path().join("ca.pem"));
    let words = ["lab", "--connections=2", "--repeats=1", "--duration=1", "--out"];
    let outcome = run(ringroad(words).arg(folder.path()).arg(format!("--url=a=https://{address}/")));
    let record = record_in(folder.path());
    expect_code_of(&record, &outcome);
    let cell = &record.cells[0];
    assert_eq!((record.cells.len(), &cell.skipped, cell.errors.total()), (1, &None, 0), "{outcome:?}");
    assert!(cell.completed > 0, "{outcome:?}");
}

#[test]
fn a_plan_refuses_what_the_run_would_refuse() {
    for verb in [&["lab", "--duration", "0"][..], &["lab", "--duration", "0", "--plan"]] {
        let outcome = run(&mut ringroad(verb));
        assert_eq!((outcome.code, outcome.stdout.len()), (Some(2), 0), "{verb:?}: {outcome:?}");
        assert!(outcome.stderr.contains("duration_s: 0 is not between"), "{outcome:?}");
    }
}

/// Each of its connections failed instead, with advice about backlogs.
#[test]
fn a_url_on_which_nothing_listens_is_named_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let one = Server::start(&["--model", "poll"]);
    let gone = nowhere();
    let urls = [format!("http://{}/", one.address), format!("http://{gone}/")];
    let words = ["lab", "--connections=4", "--repeats=1", "--duration=0.2", "--out"];
    let outcome = run(ringroad(words).arg(folder.path()).args(["--url", &urls[0], "--url", &urls[1]]));
    assert_eq!(outcome.code, Some(5), "{outcome:?}");
    let said = outcome.text().replace("\n  ", " ");
    assert!(said.contains(&format!("nothing listens on {gone}, so start the server first")), "{said}");
    assert!(!said.contains("backlog"), "{said}");
}

/// It is what the caller wants to see, and two minutes of the others are not.
#[test]
fn a_program_of_with_that_does_not_exist_is_refused_before_anything_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["lab", "--with", "x=./no-such-program {port}", "--repeats=1", "--out"];
    let outcome = run(ringroad(words).arg(folder.path().join("out")));
    assert_eq!((outcome.code, outcome.stdout.len()), (Some(2), 0), "{outcome:?}");
    let expected = "ringroad: --with x: ";
    assert!(outcome.stderr.starts_with(expected), "{outcome:?}");
    assert!(outcome.stderr.contains("no-such-program is not installed or not executable"), "{outcome:?}");
    assert!(!folder.path().join("out").exists(), "nothing is left");
}

#[test]
fn earlier_records_are_listed_and_the_newest_is_reported_without_naming_it() {
    let folder = tempfile::tempdir().unwrap();
    let lab = |words: &[&str]| {
        run(ringroad(["lab"].iter().chain(words)).env("XDG_STATE_HOME", folder.path()).env("BROWSER", "true"))
    };
    for words in [&["list"][..], &["report"], &["open"]] {
        let none = lab(words);
        assert_eq!(none.code, Some(1), "{none:?}");
        assert!(none.stderr.contains("no record yet under "), "{none:?}");
    }
    let path = suite(&folder, OURS);
    let ran = lab(&["run", path.to_str().unwrap()]);
    let listed = lab(&["list"]).text();
    assert!(
        listed.lines().count() == 1 && listed.contains("small") && listed.contains("1 result"),
        "{listed}"
    );
    let report = lab(&["report"]);
    assert_eq!((report.code, table(&report)), (Some(0), table(&ran)));
    let brief = lab(&["report", "--brief"]).text();
    assert!(brief.lines().count() < report.text().lines().count(), "{brief}");
    let markdown = lab(&["report", "--markdown"]).text();
    assert!(markdown.contains("| program | CPU µs/request |") && markdown.contains("| ours "), "{markdown}");
    assert!(lab(&["report", "--csv"]).text().lines().count() == 2);
    let opened = lab(&["open"]);
    assert_eq!(opened.code, Some(0), "{opened:?}");
    let page = opened.text();
    assert!(Path::new(page.trim_start_matches("page:").trim()).exists(), "{page}");
}

/// Without a home there is no place for records that the user would find.
#[test]
fn without_a_home_and_with_an_unwritable_one_the_option_for_another_folder_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = suite(&folder, OURS);
    let mut lab = ringroad(["lab", "run"]);
    let outcome =
        run(lab.arg(&path).env_remove("HOME").env_remove("XDG_STATE_HOME").current_dir(folder.path()));
    assert_eq!((outcome.code, outcome.stdout.len()), (Some(2), 0), "{outcome:?}");
    assert!(outcome.stderr.contains("HOME") && outcome.stderr.contains("--out DIR"), "{outcome:?}");
    assert!(!folder.path().join("ringroad").exists(), "nothing is left in the working folder");
    let outcome = run(ringroad(["lab", "run"]).arg(&path).env("XDG_STATE_HOME", &path));
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.stderr.contains("--out DIR"), "{outcome:?}");
}

#[test]
fn a_suite_without_its_verb_is_answered_with_the_line_that_runs_it() {
    let suite = run(&mut ringroad(["lab", "churn"]));
    assert_eq!(suite.code, Some(2), "{suite:?}");
    assert!(suite.stderr.contains("ringroad lab run churn"), "{suite:?}");
    let nothing = run(&mut ringroad(["lab", "nosuch"]));
    assert_eq!(nothing.code, Some(2), "{nothing:?}");
    assert!(nothing.stderr.contains("follows `run`") && nothing.stderr.contains("compare"), "{nothing:?}");
}

#[test]
fn a_program_that_breaks_makes_the_run_invalid_with_its_last_words() {
    let folder = tempfile::tempdir().unwrap();
    let broken = r#"
[[server]]
id = "broken"
command = ["sh", "-c", "echo 'out of cheese' >&2; exit 3", "{port}"]
ready = "connect"
protocols = ["http"]
"#;
    let path = suite(&folder, broken);
    let outcome = run(ringroad(["lab", "run", "--out"]).arg(folder.path()).arg(path));
    assert_eq!(outcome.code, Some(5), "{outcome:?}");
    let record = record_in(folder.path());
    assert_eq!(record.cells[0].verdict.level, Level::Invalid);
    let reasons: String = record.cells[0].verdict.reasons.iter().map(ToString::to_string).collect();
    assert!(reasons.contains("out of cheese"), "{reasons}");
}

#[test]
fn a_mistake_in_a_suite_is_answered_with_file_line_and_key() {
    let folder = tempfile::tempdir().unwrap();
    let good = fs::read_to_string(suite(&folder, OURS)).unwrap();
    for (from, to, line, key) in [
        ("warmup_s = 0.0", "warmup_s = -1.0", 2, "warmup_s"),
        // A value of the wrong type: the line is told, and what belongs there.
        (
            "repeats = 1",
            "repeats = \"often\"",
            5,
            "repeats: string \"often\" stands here; expected: a whole number",
        ),
        ("totals = true", "totls = true", 12, "totls"),
        ("protocols = [\"http\"]", "protocols = [\"smtp\"]", 11, "smtp"),
        ("connections = [4]", "connections = [0]", 16, "load.connections"),
        ("{ringroad}", "{ringrod}", 9, "server.command"),
        ("[[load]]", "[[load", 13, "small.toml"),
    ] {
        assert!(good.contains(from), "{from}");
        let path = folder.path().join("small.toml");
        fs::write(&path, good.replacen(from, to, 1)).unwrap();
        let outcome = run(ringroad(["lab", "run", "--out"]).arg(folder.path().join("out")).arg(&path));
        assert_eq!((outcome.code, outcome.stdout.len()), (Some(2), 0), "{to}: {outcome:?}");
        let place = format!("{}:{line}", path.display());
        assert!(outcome.stderr.starts_with("ringroad: "), "{to}: {outcome:?}");
        assert!(outcome.stderr.contains(&place), "{place} is not in {}", outcome.stderr);
        assert!(outcome.stderr.contains(key), "{key} is not in {}", outcome.stderr);
        assert!(!folder.path().join("out").exists(), "a refused suite leaves no folder");
    }
}

#[test]
fn a_suite_or_a_program_that_is_not_there_is_refused_with_what_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let absent = run(ringroad(["lab", "run", "slow"]).current_dir(folder.path()));
    assert_eq!(absent.code, Some(2), "{absent:?}");
    assert!(absent.stderr.contains("quick") && absent.stderr.contains("benches/slow.toml"), "{absent:?}");
    let directory = run(ringroad(["lab", "run"]).arg(format!("{}/", folder.path().display())));
    assert_eq!(directory.code, Some(2), "{directory:?}");
    let program = run(&mut ringroad(["lab", "--only", "kqueue"]));
    assert_eq!(program.code, Some(2), "{program:?}");
    assert!(program.stderr.contains("kqueue") && program.stderr.contains("epoll-et"), "{program:?}");
}

/// Two minutes of measuring must not end in "permission denied".
#[test]
fn a_folder_that_cannot_be_written_is_said_before_anything_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let path = suite(&folder, OURS);
    let closed = if is_root() {
        // Permission bits do not apply to root; sysfs takes no files at all.
        PathBuf::from("/sys")
    } else {
        let closed = folder.path().join("closed");
        fs::create_dir(&closed).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).unwrap();
        closed
    };
    for out in [closed, PathBuf::from(BINARY), path.join("below")] {
        let outcome = run(ringroad(["lab", "run", "--out"]).arg(&out).arg(&path));
        assert_eq!((outcome.code, outcome.stdout.len()), (Some(1), 0), "{outcome:?}");
        assert_eq!(outcome.stderr.lines().count(), 1, "{outcome:?}");
        let name = out.display().to_string();
        assert!(outcome.stderr.starts_with("ringroad: ") && outcome.stderr.contains(&name), "{outcome:?}");
    }
}

#[test]
fn what_is_not_a_record_is_refused_and_no_page_is_made_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let junk = folder.path().join("junk.json");
    for (text, why) in [
        ("", "not JSON (line 1)"),
        ("once upon a time", "not a record"),
        ("{\"schema\": \"ringroad.record/1\"}", "not a record"),
        ("[1, 2, 3]", "not a record"),
    ] {
        fs::write(&junk, text).unwrap();
        let outcome = run(ringroad(["lab", "report"]).arg(&junk));
        assert_eq!((outcome.code, outcome.stdout.len()), (Some(1), 0), "{text}: {outcome:?}");
        assert!(outcome.stderr.contains("junk.json") && outcome.stderr.contains(why), "{text}: {outcome:?}");
        assert!(!folder.path().join("junk.html").exists(), "{text}");
    }
    fs::write(&junk, b"\xff\xfe").unwrap();
    let not_text = run(ringroad(["lab", "report"]).arg(&junk));
    assert_eq!(not_text.code, Some(1), "{not_text:?}");
    let missing = run(ringroad(["lab", "report"]).arg(folder.path().join("missing.json")));
    assert_eq!(missing.code, Some(1), "{missing:?}");
    assert!(missing.stderr.contains("missing.json: No such file or directory"), "{missing:?}");
}

/// A record of a later version may mean other things by the same names.
#[test]
fn a_record_of_another_schema_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = suite(&folder, OURS);
    let out = folder.path().join("out");
    run(ringroad(["lab", "run", "--out"]).arg(&out).arg(path));
    let record = out.join("record.json");
    let text = fs::read_to_string(&record).unwrap();
    fs::write(&record, text.replacen(SCHEMA, "ringroad.record/2", 1)).unwrap();
    let outcome = run(ringroad(["lab", "report"]).arg(&record));
    assert_eq!((outcome.code, outcome.stdout.len()), (Some(1), 0), "{outcome:?}");
    assert!(outcome.stderr.contains("ringroad.record/2") && outcome.stderr.contains(SCHEMA), "{outcome:?}");
}

/// How the documents' figures are measured and judged is tested in `lab`; here, that the verb runs for one of
/// them, leaves its claims in the record, and that a report of it reads the same.
#[test]
fn the_figures_of_a_document_are_put_beside_what_came_out() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["lab", "sources", "--only=002", "--repeats", "1", "--duration", "0.1", "--out"];
    let outcome = run(ringroad(words).arg(folder.path()));
    let record = record_in(folder.path());
    expect_code_of(&record, &outcome);
    assert_eq!(record.suite.as_deref(), Some("sources"));
    assert!(record.claims.iter().all(|claim| claim.source == "002"));
    let epoll = record.claims.iter().find(|claim| claim.id == "002-epoll").unwrap();
    assert_eq!((epoll.claimed, epoll.unit.as_str()), (Some(7908.0), "requests/s"));
    // A machine may be too busy for a run to be believed: then the claim says that, and why.
    assert!(epoll.measured.is_some() || epoll.why.is_some(), "{epoll:?}");
    assert_eq!(record.cells.len(), 2, "the runs are in the record");
    let text = outcome.text();
    assert!(text.contains("002 · in the text") && text.contains("Of 11 figures"), "{text}");
    let again = run(ringroad(["lab", "report"]).arg(folder.path().join("record.json")));
    assert_eq!(table(&again), table(&outcome));
}

#[test]
fn a_document_that_does_not_exist_is_refused_with_those_that_do() {
    let outcome = run(&mut ringroad(["lab", "sources", "--only", "005"]));
    assert_eq!(outcome.code, Some(2));
    assert!(outcome.stderr.contains("005") && outcome.stderr.contains("004"), "{}", outcome.stderr);
}
