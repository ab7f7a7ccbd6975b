//! `cargo xtask bench costs`: the cost of a spawn, a wake, a timer and a message on the engine, compared with
//! tokio, compio and monoio.
//!
//! The work is in `peers/costs`, a separate program that runs one case on one runtime and prints its cost.
//! Every case runs once per *block* on each runtime, in a new random order, so that drift between blocks
//! affects all runtimes; ratios are taken within blocks. tokio runs twice under two names: its difference
//! from itself is noise.
//!
//! The figure is CPU time per item, of all threads, which other work on the machine affects least. Callgrind
//! counts instructions (`--instructions yes`), of twice as many items minus once as many, so that the
//! beginning and end of a process do not count. It does so only for cases with one thread. Start at
//! [`bench`].

use crate::recorded::{self, number};
use ringroad_measure::summary::{median, median_interval};
use ringroad_measure::{Comparison, Interval};
use serde_json::{Value, json};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

const USAGE: &str = "usage: cargo xtask bench costs [OPTION VALUE]...
  --only LIST        cases (default: all)
  --repeats N        blocks (default: 12)
  --instructions yes count instructions too, by valgrind (slow)
  --seed N           of the random order (default: by the clock; it is in the record)
  --out DIR          gets costs/record.json and costs/table.md (default: docs/results)";

/// The contestants: the name in the record, and the program's name of the runtime. Not all have all cases.
const CONTESTANTS: [(&str, &str); 5] =
    [("ours", "ours"), (BASELINE, "tokio"), (CONTROL, "tokio"), ("compio", "compio"), ("monoio", "monoio")];
const BASELINE: &str = "tokio";
const CONTROL: &str = "tokio again";

/// The case that measures memory.
const MEMORY: &str = "parked";

/// The options of a run.
#[derive(Debug)]
struct Plan {
    only: Vec<String>,
    repeats: usize,
    instructions: bool,
    seed: u64,
    out: PathBuf,
}

impl Plan {
    fn parse(root: &Path, words: &[String]) -> Result<Plan, String> {
        let mut plan = Plan {
            only: Vec::new(),
            repeats: 12,
            instructions: false,
            seed: fastrand::u64(0..1 << 32),
            out: root.join("docs/results"),
        };
        recorded::options(words, |pair| {
            match (pair.option, pair.value) {
                ("--only", _) => plan.only = pair.list(),
                ("--repeats", _) => plan.repeats = pair.count()?,
                ("--instructions", "yes") => plan.instructions = true,
                ("--instructions", "no") => plan.instructions = false,
                ("--seed", _) => plan.seed = pair.number()?,
                ("--out", folder) => plan.out = PathBuf::from(folder),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(plan)
    }
}

/// Runs the benchmark, and writes record and table. Exit code 1 if a run failed.
pub(crate) fn bench(root: &Path, words: &[String]) -> ExitCode {
    recorded::bench("costs", USAGE, Plan::parse(root, words), |plan| run(root, plan))
}

/// A case, as the program lists it.
#[derive(Debug)]
struct Case {
    name: String,
    items: u64,
    threads: u64,
    /// The runtimes that have it.
    runtimes: Vec<String>,
    /// Runs by contestant.
    runs: [Runs; CONTESTANTS.len()],
}

/// Costs of one contestant's runs of a case, per item, block by block.
#[derive(Debug, Default)]
struct Runs {
    cpu_ns: Vec<f64>,
    wall_ns: Vec<f64>,
    heap_bytes: Vec<f64>,
    rss_bytes: Vec<f64>,
    /// Runs that hung and were repeated.
    hung: u32,
    instructions: Option<f64>,
}

fn run(root: &Path, plan: &Plan) -> io::Result<String> {
    let program = program(root)?;
    let mut cases = list(&program)?;
    recorded::keep_only(&mut cases, &plan.only, "case", |case| &case.name)?;
    let mut random = fastrand::Rng::with_seed(plan.seed);
    let mut order: Vec<(usize, usize)> =
        (0..cases.len()).flat_map(|case| (0..CONTESTANTS.len()).map(move |who| (case, who))).collect();
    for block in 1..=plan.repeats {
        eprintln!("block {block} of {}", plan.repeats);
        random.shuffle(&mut order);
        for (case, who) in &order {
            let (Some(case), Some((_, runtime))) = (cases.get_mut(*case), CONTESTANTS.get(*who)) else {
                continue;
            };
            if !case.runtimes.iter().any(|known| known == runtime) {
                continue;
            }
            let Some(runs) = case.runs.get_mut(*who) else { continue };
            let words = [runtime, &*case.name, &case.items.to_string()];
            let (cost, hung) = measured(&program, &words)?;
            runs.hung += hung;
            let per_item = |key: &str| {
                let all = cost[key].as_f64().ok_or_else(|| io::Error::other(format!("no {key} in {cost}")));
                all.map(|all| all / case.items as f64)
            };
            let one =
                [per_item("cpu_ns")?, per_item("wall_ns")?, per_item("heap_bytes")?, per_item("rss_bytes")?];
            let kept = [&mut runs.cpu_ns, &mut runs.wall_ns, &mut runs.heap_bytes, &mut runs.rss_bytes];
            kept.into_iter().zip(one).for_each(|(all, one)| all.push(one));
        }
    }
    if plan.instructions {
        for case in cases.iter_mut().filter(|case| case.threads == 1 && case.name != MEMORY) {
            eprintln!("instructions: {}", case.name);
            // Enough to hide the growth of queues, and few enough for a CPU that is fifty times slower.
            let items = (case.items / 20).max(50);
            for (runs, (_, runtime)) in case.runs.iter_mut().zip(CONTESTANTS).take(2) {
                let once = instructions(&program, runtime, &case.name, items)?;
                let twice = instructions(&program, runtime, &case.name, 2 * items)?;
                runs.instructions = Some(twice.saturating_sub(once) as f64 / items as f64);
            }
        }
    }
    let record = record(plan, &cases);
    let table = table(&record);
    recorded::leave(&plan.out, "costs", &record, &table)?;
    Ok(table)
}

/// Builds the program and returns its path.
fn program(root: &Path) -> io::Result<PathBuf> {
    let folder = root.join("peers/costs");
    let built = Command::new(env!("CARGO"))
        .current_dir(&folder)
        .args(["build", "--release", "--quiet", "--examples"])
        .status()?;
    if !built.success() {
        return Err(io::Error::other("building peers/costs failed"));
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| folder.join("target"), PathBuf::from);
    folder.join(target).join("release/examples/peer-costs").canonicalize()
}

fn list(program: &Path) -> io::Result<Vec<Case>> {
    let said = Command::new(program).arg("list").output()?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let case = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next()?.to_string();
        let mut number = || words.next()?.parse().ok();
        let (items, threads) = (number()?, number()?);
        let runtimes = words.map(str::to_string).collect();
        Some(Case { name, items, threads, runtimes, runs: Default::default() })
    };
    let cases: Option<Vec<Case>> = text.lines().map(case).collect();
    cases.filter(|cases| !cases.is_empty()).ok_or_else(|| io::Error::other(format!("not a list: {text}")))
}

/// Time limit of a run in seconds: the longest takes three.
const LIMIT: &str = "60";

/// Exit code of `timeout` when it ended the program.
const TOO_LONG: i32 = 124;

/// Maximum number of consecutive runs that may hang.
const TRIES: u32 = 3;

/// Returns the output of a run, and how many runs hung before it and were ended.
fn measured(program: &Path, words: &[&str]) -> io::Result<(Value, u32)> {
    for hung in 0..TRIES {
        let said =
            Command::new("timeout").arg(LIMIT).arg(program).args(words).stderr(Stdio::inherit()).output()?;
        let cost = match said.status.code() {
            Some(0) => serde_json::from_slice(&said.stdout),
            Some(TOO_LONG) => {
                eprintln!("{words:?} did not end within {LIMIT} s, and runs again");
                continue;
            }
            _ => return Err(io::Error::other(format!("{words:?}: {}", said.status))),
        };
        return cost.map(|cost| (cost, hung)).map_err(|why| io::Error::other(format!("{words:?}: {why}")));
    }
    Err(io::Error::other(format!("{words:?} did not end within {LIMIT} s, {TRIES} times")))
}

/// Returns the instructions of a whole run in user space.
fn instructions(program: &Path, runtime: &str, case: &str, items: u64) -> io::Result<u64> {
    let said = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([runtime, case, &items.to_string()])
        .output()
        .map_err(|why| io::Error::new(why.kind(), format!("valgrind: {why}")))?;
    let text = String::from_utf8_lossy(&said.stderr);
    let line = text.lines().find_map(|line| line.split_once("Collected :"));
    let count = line.and_then(|(_, count)| count.trim().parse().ok());
    count.ok_or_else(|| io::Error::other(format!("valgrind counted nothing: {text}")))
}

fn record(plan: &Plan, cases: &[Case]) -> Value {
    let cases: Vec<_> = cases.iter().map(case_record).collect();
    recorded::record("costs", json!({ "repeats": plan.repeats, "seed": plan.seed, "cases": cases }))
}

fn case_record(case: &Case) -> Value {
    let [ours, baseline, control, compio, monoio] = &case.runs;
    let against =
        |runs: &Runs, noise: Option<Interval>| Comparison::of_blocks(&baseline.cpu_ns, &runs.cpu_ns, noise);
    let noise = against(control, None).map(|comparison| comparison.ratio);
    let ours_over = |runs: &Runs| {
        let comparison = Comparison::of_blocks(&runs.cpu_ns, &ours.cpu_ns, noise);
        interval(comparison.map(|comparison| comparison.ratio))
    };
    let contestants = case.runs.iter().zip(CONTESTANTS).map(|(runs, (name, _))| {
        json!({
            "name": name,
            "cpu_ns": runs.cpu_ns,
            "cpu_ns_interval": interval(median_interval(&runs.cpu_ns)),
            "wall_ns": runs.wall_ns,
            "heap_bytes": median(&runs.heap_bytes),
            "rss_bytes": median(&runs.rss_bytes),
            "hung": runs.hung,
            "instructions": runs.instructions,
        })
    });
    json!({
        "case": case.name,
        "items": case.items,
        "threads": case.threads,
        "ours_over_tokio": interval(against(ours, noise).map(|comparison| comparison.ratio)),
        "tokio_over_itself": interval(noise),
        "ours_over_compio": ours_over(compio),
        "ours_over_monoio": ours_over(monoio),
        "finding": against(ours, noise).map(|comparison| comparison.finding.to_string()),
        "contestants": contestants.collect::<Vec<_>>(),
    })
}

fn interval(interval: Option<Interval>) -> Value {
    interval.map_or(
        Value::Null,
        |interval| json!({ "low": interval.low, "mid": interval.mid, "high": interval.high }),
    )
}

/// Formats the record: a pure function, so that it can be repeated.
fn table(record: &Value) -> String {
    let mut text = String::from(
        "| | ours, ns | tokio, ns | ours over tokio | tokio over itself | ours over compio | ours over monoio \
         | instructions |\n|---|---|---|---|---|---|---|---|\n",
    );
    let mut memory = String::new();
    let mut hung = String::new();
    for case in record["cases"].as_array().into_iter().flatten() {
        let name = case["case"].as_str().unwrap_or_default();
        let [ours, tokio, compio, monoio] = [0, 1, 3, 4].map(|at| &case["contestants"][at]);
        let ns = |who: &Value| number(&who["cpu_ns_interval"]["mid"], 0);
        let ratio = |key: &str| {
            if case[key].is_null() {
                return "–".to_string();
            }
            let [mid, low, high] = ["mid", "low", "high"].map(|edge| number(&case[key][edge], 2));
            format!("{mid} ({low} to {high})")
        };
        let counted = [ours, tokio].map(|who| number(&who["instructions"], 0)).join(" / ");
        text.push_str(&format!(
            "| {name} | {} | {} | {} | {} | {} | {} | {counted} |\n",
            ns(ours),
            ns(tokio),
            ratio("ours_over_tokio"),
            ratio("tokio_over_itself"),
            ratio("ours_over_compio"),
            ratio("ours_over_monoio"),
        ));
        for runtime in case["contestants"].as_array().into_iter().flatten() {
            if let Some(runs @ 1..) = runtime["hung"].as_u64() {
                let runtime = runtime["name"].as_str().unwrap_or_default();
                hung += &format!(
                    "\n{name}: {runtime} did not end within {LIMIT} s in {runs} runs, which were made again.\n"
                );
            }
        }
        if name == MEMORY {
            let bytes = |key: &str| [ours, tokio, compio, monoio].map(|who| number(&who[key], 0)).join(" | ");
            memory = format!(
                "\n| bytes per parked task, of {} | ours | tokio | compio | monoio |\n|---|---|---|---|---|\n\
                 | given out by the allocator | {} |\n| resident | {} |\n",
                case["items"],
                bytes("heap_bytes"),
                bytes("rss_bytes")
            );
        }
    }
    text + &memory + &hung
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn case(name: &str, ours: &[f64], tokio: &[f64], compio: &[f64]) -> Case {
        let runs = |cpu_ns: &[f64]| Runs {
            cpu_ns: cpu_ns.to_vec(),
            heap_bytes: vec![64.0; cpu_ns.len()],
            ..Runs::default()
        };
        let runs = [runs(ours), runs(tokio), runs(tokio), runs(compio), runs(&[])];
        Case { name: name.to_string(), items: 10, threads: 1, runtimes: Vec::new(), runs }
    }

    #[test]
    fn ratios_are_taken_within_blocks_and_memory_has_a_table_of_its_own() {
        let plan = Plan::parse(Path::new("/"), &[]).unwrap();
        // The second half of the blocks ran on a machine with half the speed.
        let tokio: Vec<f64> = (0..12).map(|block| if block < 6 { 100.0 } else { 200.0 }).collect();
        let ours: Vec<f64> = tokio.iter().map(|ns| ns * 0.8).collect();
        let compio: Vec<f64> = tokio.iter().map(|ns| ns * 1.6).collect();
        let mut cases = [case("wake", &ours, &tokio, &compio), case(MEMORY, &ours, &tokio, &compio)];
        cases[0].runs[3].hung = 2;
        let record = record(&plan, &cases);
        let text = table(&record);
        // A contestant without the case has a dash.
        let row = "| 0.80 (0.80 to 0.80) | 1.00 (1.00 to 1.00) | 0.50 (0.50 to 0.50) | – | - / - |";
        assert!(text.contains(row), "{text}");
        assert!(text.contains("| given out by the allocator | 64 | 64 | 64 | - |"), "{text}");
        assert!(
            text.ends_with("\nwake: compio did not end within 60 s in 2 runs, which were made again.\n"),
            "{text}"
        );
        assert!(record["cases"][0]["finding"].as_str().unwrap().starts_with("faster by 20"), "{record}");
    }

    #[test]
    fn what_a_run_costs_is_what_it_prints_and_one_that_fails_is_told() {
        let printed = measured(Path::new("/bin/echo"), &["{\"cpu_ns\": 7}"]).unwrap();
        assert_eq!(printed, (json!({ "cpu_ns": 7 }), 0));
        let failed = measured(Path::new("/bin/false"), &["ours", "wake"]).unwrap_err().to_string();
        assert_eq!(failed, "[\"ours\", \"wake\"]: exit status: 1");
    }

    #[test]
    fn a_mistake_in_an_option_is_told() {
        for words in [&["--repeats", "many"][..], &["--only"], &["--what", "1"]] {
            let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
            assert!(Plan::parse(Path::new("/"), &words).is_err(), "{words:?}");
        }
    }
}
