//! The servers behind the claims: suites of the usual harness, one for each setting the documents describe.
//!
//! A figure of a cell is named `LOAD-CONNECTIONS/PROGRAM.FIGURE`: `echo-1000/poll.p99`. Figures and their
//! units: `rps` (requests/s), `mean` and `p99` (ms), `rss` and `kernel` (MB), `cpu` (% of a core), `errors`
//! (% of requests), `calls` (per request), `served` (connections). Start at [`parts`], then [`figures`].

use super::sum::Figure;
use crate::error::Error;
use crate::suite::Suite;
use ringroad_measure::record::{Cell, Record, Run};
use ringroad_measure::{Caveat, Level};
use std::path::Path;

/// The figures a cell has, in the order they are filled in.
pub const FIGURES: [&str; 9] = ["rps", "mean", "p99", "rss", "kernel", "cpu", "errors", "calls", "served"];

/// One suite, and the documents it is run for.
#[derive(Clone, Debug)]
pub struct Part {
    /// What is run.
    pub suite: Suite,
    /// It tests the claims of these documents.
    pub sources: &'static [&'static str],
    /// Seconds of one run in the document.
    claimed_s: Option<f64>,
}

/// Programs that are put under one kind of load.
struct Plan {
    name: &'static str,
    sources: &'static [&'static str],
    programs: &'static [&'static str],
    claimed_s: Option<f64>,
    /// A suite for each.
    sizes: &'static [Size],
}

/// How many connections, and how long and how often by default and with `full`.
struct Size {
    connections: &'static [u32],
    small: Runs,
    full: Runs,
}

/// Repeats, warm-up and window in seconds.
type Runs = (u32, f64, f64);

const ECHO: &str = "id = \"echo\"\nprotocol = \"echo\"\npayload_bytes = 64\n";
const PLANS: &[Plan] = &[
    Plan {
        name: "echo",
        sources: &["001", "003"],
        programs: &["threads", "select", "poll", "epoll-et", "engine-epoll", "tokio"],
        claimed_s: Some(30.0),
        sizes: &[
            Size { connections: &[10, 50, 100, 500, 1000], small: (3, 0.2, 1.0), full: (1, 1.0, 30.0) },
            // So many take longer to make than the others are measured.
            Size { connections: &[10_000], small: (1, 1.0, 3.0), full: (1, 5.0, 30.0) },
        ],
    },
    Plan {
        name: "http",
        sources: &["000"],
        programs: &["epoll-et", "uring-multishot", "engine-epoll", "engine-io_uring", "go", "node", "swoole"],
        claimed_s: None,
        sizes: &[Size { connections: &[200], small: (6, 0.3, 1.0), full: (10, 1.0, 10.0) }],
    },
    Plan {
        name: "http",
        sources: &["001"],
        programs: &["epoll-et", "engine-epoll", "go", "gin", "php-fpm", "swoole"],
        claimed_s: Some(30.0),
        sizes: &[Size { connections: &[1000, 10_000], small: (1, 1.0, 3.0), full: (1, 3.0, 30.0) }],
    },
    Plan {
        name: "echo512",
        sources: &["002"],
        programs: &["uring", "epoll-lt"],
        claimed_s: Some(60.0),
        sizes: &[Size { connections: &[1000], small: (6, 0.3, 1.0), full: (6, 1.0, 60.0) }],
    },
];

/// Returns the suites for these documents. `peers` is the folder where `cargo xtask peers` puts other
/// people's servers.
///
/// # Errors
/// None but for a path that TOML cannot hold: the texts are this file's own, and a test reads them.
pub fn parts(sources: &[String], full: bool, peers: &Path) -> Result<Vec<Part>, Error> {
    let wanted = |plan: &&Plan| plan.sources.iter().any(|source| sources.iter().any(|own| own == source));
    let of = |plan: &'static Plan| plan.sizes.iter().map(move |size| plan.part(size, full, peers));
    PLANS.iter().filter(wanted).flat_map(of).collect()
}

impl Plan {
    fn part(&self, size: &Size, full: bool, peers: &Path) -> Result<Part, Error> {
        let (repeats, warmup_s, duration_s) = if full { size.full } else { size.small };
        let mut text = format!(
            "title = \"The figures of the documents\"\nrepeats = {repeats}\nwarmup_s = {warmup_s:?}\n\
             duration_s = {duration_s:?}\nsyscalls_s = 0.1\nbaseline = \"{}\"\n",
            if self.programs.contains(&"epoll-et") { "epoll-et" } else { "epoll-lt" }
        );
        self.programs.iter().for_each(|program| text.push_str(&server(program, peers)));
        text.push_str("[[load]]\n");
        text.push_str(&match self.name {
            "echo512" => ECHO.replace("\"echo\"\nprotocol", "\"echo512\"\nprotocol").replace("= 64", "= 512"),
            "echo" => ECHO.to_owned(),
            _ => "id = \"http\"\nprotocol = \"http\"\n".to_owned(),
        });
        text.push_str(&format!("connections = {:?}\n", size.connections));
        let suite = Suite::parse(&text, "sources", &format!("sources, {}", self.name), None)?;
        Ok(Part { suite, sources: self.sources, claimed_s: self.claimed_s })
    }
}

/// Returns a program as a suite has it.
fn server(program: &str, peers: &Path) -> String {
    let driver = match program {
        "threads" | "select" | "poll" => program,
        "uring" | "uring-multishot" | "engine-io_uring" => "io_uring",
        _ => "epoll",
    };
    let quoted = |path: std::path::PathBuf| toml::Value::String(path.display().to_string());
    let peer = "ready = \"connect\"\nprotocols = [\"echo\", \"http\"]\nown_page = true\n\
                hint = \"`cargo xtask peers` builds other people's servers; --peers says where they are\"\n";
    match program {
        // Exit code 2 is "cannot run here", which is no failure.
        "node" | "php-fpm" | "swoole" => format!(
            "[[server]]\nid = \"{program}\"\ncommand = [\"sh\", \"-c\", '[ -f \"$0\" ] || {{ echo \"$0 is not there\" >&2; \
             exit 2; }}; exec sh \"$0\" \"$1\" \"$2\"', {}, \"{program}\", \"{{port}}\"]\n{peer}",
            quoted(peers.join("start.sh"))
        ),
        "go" | "gin" | "tokio" => format!(
            "[[server]]\nid = \"{program}\"\ncommand = [{}, \"{{addr}}\"]\n{peer}",
            quoted(peers.join(format!("peer-{program}")))
        ),
        model => {
            let bound = match model {
                "select" => {
                    "max_connections = 1000\n\
                     max_connections_reason = \"descriptors from 1024 on do not fit its set (FD_SETSIZE)\"\n"
                }
                _ => "",
            };
            format!(
                "[[server]]\nid = \"{model}\"\ndriver = \"{driver}\"\ncommand = [\"{{ringroad}}\", \"lab\", \
                 \"server\", \"--model\", \"{model}\", \"--protocol\", \"{{protocol}}\", \"--listen\", \
                 \"127.0.0.1:0\"]\nready = \"listening on {{addr}}\"\nprotocols = [\"echo\", \"http\"]\n\
                 totals = true\n{bound}"
            )
        }
    }
}

impl Part {
    /// Returns how its runs differ in length from the document's.
    pub fn scale(&self) -> String {
        let (repeats, seconds) = (self.suite.repeats, self.suite.duration_s);
        let times = if repeats == 1 { "once".to_owned() } else { format!("{repeats} times") };
        match self.claimed_s {
            Some(claimed) if claimed == seconds => format!("{seconds} s, {times}"),
            Some(claimed) => format!("{seconds} s instead of {claimed}, {times}"),
            None => format!("{seconds} s, {times}"),
        }
    }
}

/// Returns everything a suite's record says, by name.
pub fn figures(part: &Part, record: &Record) -> Vec<(String, Result<Figure, String>)> {
    let scale = part.scale();
    record
        .cells
        .iter()
        .flat_map(|cell| {
            let scale = &scale;
            FIGURES.iter().map(move |figure| {
                let name = format!("{}/{}.{figure}", cell.load, cell.model);
                (name, figure_of(cell, figure).map(|figure| figure.scaled(scale.as_str())))
            })
        })
        .collect()
}

fn figure_of(cell: &Cell, figure: &str) -> Result<Figure, String> {
    let unknown = || "it could not be read on this machine".to_owned();
    if figure == "served" {
        return served(cell);
    }
    if let Some(reason) = &cell.skipped {
        return Err(format!("it did not run here: {reason}"));
    }
    if cell.runs.is_empty() {
        return Err(format!("its run here failed: {}", cell.verdict));
    }
    // What a process holds does not depend on how evenly its clients were served.
    let of_memory = matches!(figure, "rss" | "kernel");
    if cell.verdict.level == Level::Invalid && !(of_memory && all_served(cell)) {
        return Err(format!("its run here is INVALID: {}", cell.verdict));
    }
    let of_runs = |value: &dyn Fn(&Run) -> Option<f64>| {
        let values: Option<Vec<f64>> = cell.runs.iter().map(value).collect();
        values.and_then(|values| Figure::median(&values)).ok_or_else(unknown)
    };
    match figure {
        "rps" => of_runs(&|run| Some(run.rps)),
        "mean" => of_runs(&|run| run.mean_us.map(|us| us / 1e3)),
        "p99" => of_runs(&|run| run.p99_us.map(|us| us / 1e3)),
        "cpu" => of_runs(&|run| run.server_cpu_share.map(|share| share * 100.0)),
        "rss" => cell.server.rss_bytes.map(|bytes| Figure::of(bytes as f64 / 1e6)).ok_or_else(unknown),
        "kernel" => cell.server.kernel_bytes.map(|bytes| Figure::of(bytes as f64 / 1e6)).ok_or_else(unknown),
        "calls" => cell.server.syscalls_per_request.map(Figure::of).ok_or_else(unknown),
        "errors" => Ok(Figure::of(cell.errors.total() as f64 / cell.sent.max(1) as f64 * 100.0)),
        _ => Err(format!("there is no figure `{figure}`")),
    }
}

/// Connections that got an answer, in the run with fewest. Too few is a figure like any other, since some
/// documents claim just that; none is only where it did not start, or where all were answered once and then
/// it failed.
fn served(cell: &Cell) -> Result<Figure, String> {
    if let Some(reason) = &cell.skipped {
        return Err(format!("it did not run here: {reason}"));
    }
    let failed = || Err(format!("its run here failed: {}", cell.verdict));
    if cell.runs.is_empty() {
        return failed();
    }
    let reasons = || cell.verdict.reasons.iter();
    let fewest = reasons().filter_map(|caveat| match caveat {
        Caveat::NotServed { served, .. } => Some(*served),
        _ => None,
    });
    match fewest.min() {
        Some(served) => Ok(Figure::of(f64::from(served))),
        None if reasons()
            .any(|caveat| matches!(caveat, Caveat::ServerFailed { .. } | Caveat::NothingMeasured)) =>
        {
            failed()
        }
        None => Ok(Figure::of(f64::from(cell.connections))),
    }
}

fn all_served(cell: &Cell) -> bool {
    let lost = |caveat: &Caveat| {
        matches!(caveat, Caveat::NotServed { .. } | Caveat::ServerFailed { .. } | Caveat::NothingMeasured)
    };
    !cell.runs.is_empty() && cell.errors.total() == 0 && !cell.verdict.reasons.iter().any(lost)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::catalogue::Catalogue;
    use super::super::judge;
    use super::*;
    use crate::page::sample;
    use ringroad_measure::Verdict;
    use ringroad_measure::claim::{Claim, Outcome};
    use ringroad_measure::record::Errors;

    fn all() -> Vec<String> {
        ["000", "001", "002", "003", "004"].map(str::to_owned).to_vec()
    }

    #[test]
    fn the_suites_are_valid_and_every_document_with_servers_has_one() {
        for full in [false, true] {
            let parts = parts(&all(), full, Path::new("a \"quoted\" folder")).unwrap();
            assert_eq!(parts.len(), PLANS.iter().map(|plan| plan.sizes.len()).sum::<usize>());
            let loads: Vec<&str> =
                parts.iter().flat_map(|part| part.suite.loads.iter().map(|load| load.id.as_str())).collect();
            assert_eq!(
                loads.len(),
                loads.iter().collect::<std::collections::HashSet<_>>().len(),
                "{loads:?}"
            );
        }
        let only = parts(&["002".to_owned()], false, Path::new("peers")).unwrap();
        assert_eq!(only.len(), 1);
        assert_eq!(only[0].suite.loads[0].payload_bytes, 512);
        assert!(parts(&["004".to_owned()], false, Path::new("peers")).unwrap().is_empty());
    }

    #[test]
    fn a_scale_says_how_the_run_differs() {
        let small = parts(&["002".to_owned()], false, Path::new("peers")).unwrap();
        assert_eq!(small[0].scale(), "1 s instead of 60, 6 times");
        let full = parts(&["002".to_owned()], true, Path::new("peers")).unwrap();
        assert_eq!(full[0].scale(), "60 s, 6 times");
    }

    #[test]
    fn the_figures_of_a_cell_are_in_the_units_of_the_claims() {
        let mut record = sample::quick();
        let cell = &mut record.cells[0];
        cell.verdict = Verdict::valid();
        cell.server.rss_bytes = Some(3_000_000);
        cell.runs = vec![Run { rps: 100_000.0, p99_us: Some(400.0), ..Run::default() }];
        let part = &parts(&["003".to_owned()], false, Path::new("peers")).unwrap()[0];
        let all = figures(part, &record);
        let name = |figure: &str| format!("{}/{}.{figure}", record.cells[0].load, record.cells[0].model);
        let find = |figure: &str| all.iter().find(|(own, _)| *own == name(figure)).unwrap().1.clone();
        assert_eq!(find("rps").unwrap().value, 100_000.0);
        assert_eq!(find("p99").unwrap().value, 0.4);
        assert_eq!(find("rss").unwrap().value, 3.0);
        assert_eq!(find("rps").unwrap().scale.as_deref(), Some("1 s instead of 30, 3 times"));
        assert!(find("mean").is_err(), "unknown is not 0");
    }

    #[test]
    fn an_invalid_run_tests_no_claim_except_about_memory() {
        let mut record = sample::quick();
        let cell = &mut record.cells[0];
        cell.server.rss_bytes = Some(3_000_000);
        cell.runs = vec![Run::default()];
        cell.verdict = Verdict::of([Caveat::LittlesLaw { off: -0.4 }]);
        assert!(figure_of(cell, "rps").unwrap_err().contains("is INVALID"));
        assert!(figure_of(cell, "rss").is_ok() && figure_of(cell, "served").is_ok());
        cell.verdict = Verdict::of([Caveat::NotServed { wanted: 64, served: 3 }]);
        assert!(figure_of(cell, "rss").is_err());
    }

    #[test]
    fn a_program_that_serves_too_few_has_a_figure_and_one_that_did_not_start_has_none() {
        let mut cell = sample::quick().cells[0].clone();
        let served = |cell: &Cell| figure_of(cell, "served").map(|figure| figure.value);
        cell.verdict = Verdict::valid();
        assert_eq!(served(&cell), Ok(64.0));
        let refused = |served| Caveat::NotServed { wanted: 64, served };
        let reset = Errors { reset: 61, ..Errors::default() };
        cell.errors = reset;
        cell.verdict = Verdict::of([refused(40), refused(3), Caveat::Failures { errors: reset, sent: 700 }]);
        assert_eq!(served(&cell), Ok(3.0), "the run with fewest counts");
        // All were answered once, and then it was gone: that is no number of connections.
        let gone = Caveat::ServerFailed { how: "it ended by signal 9".into() };
        cell.verdict = Verdict::of([gone]);
        assert!(served(&cell).unwrap_err().contains("signal 9"));
        cell.verdict = Verdict::of([Caveat::ServerFailed { how: "it did not start".into() }]);
        cell.runs.clear();
        assert!(served(&cell).unwrap_err().contains("it did not start"));
    }

    /// What documents claim of servers that fail can come out both ways, and so can what they claim of those
    /// that hold.
    #[test]
    fn claims_of_what_is_served_come_out_both_ways() {
        let judged = |program: &str, connections: u32, served: u32| {
            let mut record = sample::quick();
            let cell = &mut record.cells[0];
            (cell.model, cell.load) = (program.to_owned(), format!("echo-{connections}"));
            cell.connections = connections;
            cell.verdict = Verdict::of(Caveat::not_served(connections, served));
            let part = &parts(&["003".to_owned()], false, Path::new("peers")).unwrap()[0];
            let figures = figures(part, &record).into_iter().collect();
            judge::claims(&Catalogue::built_in().unwrap(), &figures, "nobody measured it")
        };
        let outcome =
            |claims: &[Claim], id: &str| claims.iter().find(|claim| claim.id == id).unwrap().outcome;
        for (id, program, connections, fails_at) in [
            ("003-memory/blocking/10000", "threads", 10_000, 4_900),
            ("003-no-1000-threads", "threads", 1_000, 999),
            ("003-timeline/threads/connections", "threads", 10_000, 99),
            ("003-kqueue-select/connections/scan", "poll", 10_000, 9_000),
        ] {
            let claims = judged(program, connections, fails_at);
            assert_eq!(outcome(&claims, id), Outcome::Reproduced, "{id}");
            let claims = judged(program, connections, connections);
            assert_eq!(outcome(&claims, id), Outcome::NotReproduced, "{id}");
        }
        for (id, program) in [
            ("003-c10k", "epoll-et"),
            ("001-one-process", "epoll-et"),
            ("003-timeline/poll/connections", "poll"),
        ] {
            assert_eq!(outcome(&judged(program, 10_000, 10_000), id), Outcome::Reproduced, "{id}");
            assert_eq!(outcome(&judged(program, 10_000, 1_000), id), Outcome::NotReproduced, "{id}");
        }
    }

    #[test]
    fn a_load_that_was_not_run_is_neither_failed_nor_served() {
        let mut cell = sample::quick().cells[0].clone();
        (cell.model, cell.connections, cell.skipped) = ("select".into(), 10_000, Some("too many".into()));
        assert_eq!(figure_of(&cell, "served").unwrap_err(), "it did not run here: too many");
    }
}
