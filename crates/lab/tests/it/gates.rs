//! Every gate fires on a run made to trip it, and not on a good one; and figures go into the record as
//! medians.

use ringroad_lab::collect::{self, CellRuns, Frame};
use ringroad_lab::plan::{Plan, Role};
use ringroad_lab::run::{Measured, Totals};
use ringroad_lab::suite::Suite;
use ringroad_lab::verdict;
use ringroad_measure::record::{Errors, Limiter, Record, Run};
use ringroad_measure::{Caveat, Level};

fn suite() -> Suite {
    let text = r#"
title = "two programs"
duration_s = 1
repeats = 6
baseline = "base"
control = true
[[server]]
each = ["base", "other"]
id = "{each}"
command = ["{each}", "{addr}"]
ready = "connect"
protocols = ["http", "echo"]
totals = true
[[load]]
id = "http"
protocol = "http"
connections = [10]
[[load]]
id = "echo"
protocol = "echo"
connections = [10]
payload_bytes = 100
"#;
    Suite::parse(text, "t.toml", "t", None).unwrap()
}

/// A run without a fault: 10 connections, 100,000 requests in 1 s, 100 µs each.
fn good(block: u32, cpu_us: f64) -> Measured {
    Measured {
        run: Run {
            block,
            duration_s: 1.0,
            completed: 100_000,
            rps: 100_000.0,
            mean_us: Some(100.0),
            p50_us: Some(99.0),
            p99_us: Some(150.0),
            cpu_us_per_request: Some(cpu_us),
            server_cpu_share: Some(0.8),
            client_cpu_share: Some(0.5),
            client_wait_share: Some(0.0),
            steal_share: Some(0.0),
            client_count: 120_000,
            server_count: Some(120_000),
            user_share: Some(0.25),
            syscalls_per_request: Some(2.0),
            ..Run::default()
        },
        sent: 120_000,
        served: Some(10),
        in_flight: Some(10.0),
        client: Some("load, io_uring".to_owned()),
        syscalls_source: Some("perf".to_owned()),
        server_busy: Some(0.8),
        totals: Some(Totals { accepted: 10, requests: 120_000, ..Totals::default() }),
        harness_cpu: Some(std::time::Duration::from_millis(1)),
        watched: std::time::Duration::from_secs(1),
        ..Measured::default()
    }
}

fn verdict_of(spoil: impl Fn(&mut Measured)) -> ringroad_measure::Verdict {
    let suite = suite();
    let runs: Vec<Measured> = (0..6)
        .map(|block| {
            let mut run = good(block, 4.0);
            spoil(&mut run);
            run
        })
        .collect();
    let runs: Vec<&Measured> = runs.iter().collect();
    verdict::of_cell(&runs, &[], &suite.loads[0], false)
}

#[test]
fn a_good_cell_is_valid() {
    let verdict = verdict_of(|_| {});
    assert_eq!(verdict.level, Level::Valid, "{verdict}");
    assert_eq!(verdict::of_run(&good(0, 4.0), &suite().loads[0]).len(), 0);
}

/// One gate: its name, what trips it, how bad that is, and whether the caveat is the one meant.
type Case = (&'static str, fn(&mut Measured), Level, fn(&Caveat) -> bool);

#[test]
fn each_gate_fires_for_its_reason_alone() {
    let cases: &[Case] = &[
        ("little", |m| m.in_flight = Some(9.0), Level::Suspect, |c| matches!(c, Caveat::LittlesLaw { .. })),
        ("little", |m| m.in_flight = Some(2.0), Level::Invalid, |c| matches!(c, Caveat::LittlesLaw { .. })),
        (
            "counts",
            |m| m.run.client_count += 1,
            Level::Invalid,
            |c| matches!(c, Caveat::CountsDiffer { what: "requests", client: 120_001, server: 120_000 }),
        ),
        (
            "errors",
            |m| m.run.errors.reset = 1,
            Level::Suspect,
            |c| matches!(c, Caveat::Failures { errors, sent: 720_000 } if errors.reset == 6),
        ),
        (
            "errors",
            |m| m.run.errors.timeout = 12_000,
            Level::Invalid,
            |c| matches!(c, Caveat::Failures { .. }),
        ),
        (
            "served",
            |m| m.served = Some(9),
            Level::Invalid,
            |c| matches!(c, Caveat::NotServed { wanted: 10, served: 9 }),
        ),
        ("steal", |m| m.run.steal_share = Some(0.03), Level::Suspect, |c| matches!(c, Caveat::Steal { .. })),
        (
            "starved",
            |m| m.run.client_wait_share = Some(0.06),
            Level::Suspect,
            |c| matches!(c, Caveat::ClientStarved { .. }),
        ),
        (
            "client-bound",
            |m| m.run.client_cpu_share = Some(0.97),
            Level::Suspect,
            |c| matches!(c, Caveat::ClientBound { .. }),
        ),
        (
            "window",
            |m| m.run.duration_s = 0.5,
            Level::Suspect,
            |c| matches!(c, Caveat::WindowTooShort { .. }),
        ),
        ("nothing", |m| m.run.completed = 0, Level::Invalid, |c| matches!(c, Caveat::NothingMeasured)),
        (
            "server",
            |m| m.server_failed = Some("it exited with code 1".to_owned()),
            Level::Invalid,
            |c| matches!(c, Caveat::ServerFailed { .. }),
        ),
        ("cpu", |m| m.run.cpu_us_per_request = None, Level::Suspect, |c| matches!(c, Caveat::Unknown { .. })),
    ];
    for (name, spoil, level, is_meant) in cases {
        let verdict = verdict_of(spoil);
        assert_eq!(verdict.level, *level, "{name}: {verdict}");
        assert!(verdict.reasons.iter().all(is_meant) && verdict.reasons.len() == 1, "{name}: {verdict}");
        let mut run = good(0, 4.0);
        spoil(&mut run);
        let caveats = verdict::of_run(&run, &suite().loads[0]);
        assert!(!caveats.is_empty(), "{name}: the run itself must be objected to");
    }
}

#[test]
fn only_the_connections_that_send_are_in_flight() {
    let mut load = suite().loads[0].clone();
    load.active = 5;
    let with = |in_flight: f64| {
        let run = Measured { in_flight: Some(in_flight), ..good(0, 4.0) };
        verdict::of_run(&run, &load)
    };
    assert!(with(5.0).is_empty());
    assert!(matches!(with(10.0).as_slice(), [Caveat::LittlesLaw { .. }]));
}

#[test]
fn one_disturbed_block_of_six_does_not_condemn_a_cell_but_one_wrong_count_does() {
    let once = |spoil: fn(&mut Measured)| {
        let mut runs: Vec<Measured> = (0..6).map(|block| good(block, 4.0)).collect();
        spoil(&mut runs[3]);
        let runs: Vec<&Measured> = runs.iter().collect();
        verdict::of_cell(&runs, &[], &suite().loads[0], false).level
    };
    assert_eq!(once(|m| m.run.steal_share = Some(0.5)), Level::Valid);
    assert_eq!(once(|m| m.run.client_count -= 1), Level::Invalid);
}

#[test]
fn too_few_runs_disagreeing_runs_and_a_shared_core_are_named() {
    let load = &suite().loads[0];
    let runs = [good(0, 4.0), good(1, 4.0)];
    let few = verdict::of_cell(&runs.iter().collect::<Vec<_>>(), &[], load, true);
    assert!(few.reasons.iter().any(|c| matches!(c, Caveat::TooFewRepeats { runs: 2, .. })), "{few}");
    assert!(few.reasons.iter().any(|c| matches!(c, Caveat::SharedCore)), "{few}");
    let runs: Vec<Measured> = (0..6).map(|b| good(b, 4.0 + f64::from(b))).collect();
    let unsteady = verdict::of_cell(&runs.iter().collect::<Vec<_>>(), &[], load, false);
    assert!(unsteady.reasons.iter().any(|c| matches!(c, Caveat::Unsteady { .. })), "{unsteady}");
}

#[test]
fn echo_counts_bytes_at_both_ends() {
    let load = &suite().loads[1];
    let mut run = good(0, 4.0);
    run.bytes = Some((12_000, 12_000));
    run.totals = Some(Totals { bytes_in: 12_000, bytes_out: 12_000, ..Totals::default() });
    assert!(verdict::of_run(&run, load).is_empty());
    for (bytes_in, bytes_out) in [(11_999, 12_000), (12_000, 12_001)] {
        run.totals = Some(Totals { bytes_in, bytes_out, ..Totals::default() });
        let caveats = verdict::of_run(&run, load);
        assert!(matches!(caveats.as_slice(), [Caveat::CountsDiffer { what: "bytes", .. }]), "{caveats:?}");
    }
}

#[test]
fn what_the_client_gave_up_waiting_for_the_server_may_have_answered_and_no_more() {
    let (http, echo) = (&suite().loads[0], &suite().loads[1]);
    let counts = |run: &Measured, load| {
        let caveats = verdict::of_run(run, load);
        assert!(caveats.iter().any(|c| matches!(c, Caveat::Failures { .. })), "{caveats:?}");
        caveats.iter().any(|c| matches!(c, Caveat::CountsDiffer { .. }))
    };
    let mut run = good(0, 4.0);
    run.run.errors.timeout = 3;
    for (requests, differ) in [(120_003, false), (119_997, false), (120_004, true), (119_996, true)] {
        run.totals = Some(Totals { requests, ..Totals::default() });
        assert_eq!(counts(&run, http), differ, "{requests}");
    }
    run.bytes = Some((12_000, 12_000));
    for (bytes_out, differ) in [(12_300, false), (12_301, true)] {
        run.totals = Some(Totals { bytes_in: 12_000, bytes_out, ..Totals::default() });
        assert_eq!(counts(&run, echo), differ, "{bytes_out}");
    }
}

#[test]
fn an_outside_client_may_leave_as_many_unanswered_as_it_has_connections() {
    let load = &suite().loads[0];
    let mut run = good(0, 4.0);
    run.count_slack = 10;
    run.totals = Some(Totals { requests: 120_010, ..Totals::default() });
    assert!(verdict::of_run(&run, load).is_empty());
    run.totals = Some(Totals { requests: 120_011, ..Totals::default() });
    assert_eq!(verdict::of_run(&run, load).len(), 1);
}

#[test]
fn the_limiter_is_the_busy_side() {
    let with = |server, client| {
        let mut run = good(0, 4.0);
        run.server_busy = server;
        run.run.client_cpu_share = client;
        verdict::limiter(&[&run])
    };
    assert_eq!(with(Some(0.99), Some(0.99)), Some(Limiter::Server));
    assert_eq!(with(Some(0.80), Some(0.99)), Some(Limiter::Client));
    assert_eq!(with(Some(0.80), Some(0.80)), Some(Limiter::Neither));
    assert_eq!(with(None, Some(0.80)), None);
}

/// The record of six blocks with cells that cost what `cost` says: server 0 is the baseline, 1 the other, 2
/// the baseline again, 3 the baseline by the other client.
fn record(cost: impl Fn(usize, u32) -> f64) -> Record {
    record_of(|who, block| good(block, cost(who, block)))
}

fn record_of(made: impl Fn(usize, u32) -> Measured) -> Record {
    record_of_blocks(6, made)
}

fn record_of_blocks(blocks: u32, made: impl Fn(usize, u32) -> Measured) -> Record {
    let suite = suite();
    let plan = Plan::of(&suite, 1);
    let runs: Vec<CellRuns> = plan
        .cells
        .iter()
        .map(|cell| {
            let who = match cell.role {
                Role::Cell => cell.server,
                Role::Control => 2,
                Role::CrossCheck => 3,
            };
            let runs = (0..blocks).map(|block| {
                let mut run = made(who, block);
                if suite.loads[cell.load].payload_bytes > 0 {
                    run.totals = None;
                }
                run
            });
            CellRuns { runs: runs.collect(), ..CellRuns::default() }
        })
        .collect();
    collect::record(&suite, &plan, &runs, Frame { blocks, ..Frame::default() })
}

/// Noise that differs by block and is the same for all programs that run in it, as on a real machine.
fn noise(block: u32) -> f64 {
    1.0 + 0.02 * f64::from(block)
}

#[test]
fn ratios_are_taken_within_blocks_so_that_common_noise_cancels() {
    let record = record(|who, block| noise(block) * [4.0, 4.4, 4.0, 4.1][who]);
    assert_eq!(record.cells.len(), 4, "controls give no cell");
    let other = record.cells.iter().find(|cell| cell.id == "other/http-10").unwrap();
    let ratio = other.ratio.unwrap();
    assert!((ratio.low - 1.1).abs() < 1e-9 && (ratio.high - 1.1).abs() < 1e-9, "{ratio:?}");
    let base = record.cells.iter().find(|cell| cell.id == "base/http-10").unwrap();
    assert_eq!(base.ratio, None);
    let expected: Vec<f64> = (0..6).map(|block| 4.0 * noise(block)).collect();
    assert_eq!(base.server.cpu_us_per_request, ringroad_measure::summary::median(&expected));
    assert_eq!(base.server.user_us, base.server.cpu_us_per_request.map(|cpu| cpu * 0.25));
    assert_eq!(record.control.len(), 2);
    assert!((record.control[0].ratio.mid - 1.0).abs() < 1e-9);
    assert!(record.harness_cpu_share.is_some_and(|share| (share - 0.001).abs() < 1e-9));
    assert_eq!(record.verdict.level, Level::Valid, "{}", record.verdict);
}

#[test]
fn a_control_that_finds_a_difference_makes_its_load_suspect() {
    let record = record(|who, _| [4.0, 6.0, 4.4, 4.0][who]);
    assert!(
        record.verdict.reasons.iter().any(|c| matches!(c, Caveat::ControlDiffers { .. })),
        "{}",
        record.verdict
    );
}

#[test]
fn a_difference_smaller_than_the_control_reaches_is_named() {
    // The control wanders by 10 % either way; the other is steadily 3 % off.
    let wander = |block| if block % 2 == 0 { 0.9 } else { 1.1 };
    let record = record(|who, block| match who {
        0 => 4.0,
        1 => 4.12,
        _ => 4.0 * wander(block),
    });
    let other = record.cells.iter().find(|cell| cell.id == "other/http-10").unwrap();
    assert!(
        other.verdict.reasons.iter().any(|c| matches!(c, Caveat::ControlTooWide { .. })),
        "{}",
        other.verdict
    );
}

/// The rates of six blocks by the small client (`who` is 3), as a share of the load generator's.
fn checked(by_small: impl Fn(&mut Measured)) -> Record {
    record_of(|who, block| {
        let mut run = good(block, 4.0);
        if who == 3 {
            run.client = Some("small, epoll".to_owned());
            by_small(&mut run);
        }
        run
    })
}

#[test]
fn clients_that_agree_are_told_and_clients_that_do_not_make_their_cell_suspect() {
    let record = checked(|run| run.run.rps /= 1.05);
    assert_eq!(record.verdict.level, Level::Valid, "{}", record.verdict);
    let cell = record.cells.iter().find(|cell| cell.id == "base/http-10").unwrap();
    assert_eq!(cell.details.client.as_deref(), Some("load, io_uring"));
    let check = cell.details.cross_check.as_ref().unwrap();
    assert_eq!((check.client.as_str(), check.cpu.unwrap().mid), ("small, epoll", 1.0));
    assert!((check.rate.mid - 1.05).abs() < 1e-9, "{check:?}");
    assert_eq!(record.cells.iter().filter(|cell| cell.details.cross_check.is_some()).count(), 1);

    let record = checked(|run| run.run.rps /= 1.2);
    let of =
        |record: &Record, id: &str| record.cells.iter().find(|cell| cell.id == id).unwrap().verdict.clone();
    let said = of(&record, "base/http-10");
    assert_eq!(said.level, Level::Suspect, "{said}");
    assert!(
        matches!(said.reasons.as_slice(), [Caveat::ClientsDiffer { by }] if (by - 0.2).abs() < 1e-9),
        "{said}"
    );
    assert_eq!(of(&record, "base/echo-10").level, Level::Valid, "only what was checked");

    // Where one of them was the limit, its rate is its own.
    let record = checked(|run| (run.run.rps, run.run.client_cpu_share) = (run.run.rps / 1.2, Some(0.99)));
    assert_eq!(record.verdict.level, Level::Valid, "{}", record.verdict);
}

#[test]
fn counts_that_differ_under_the_small_client_alone_are_a_doubt_of_the_cell_it_checks() {
    let record = checked(|run| run.run.client_count += 1);
    assert_eq!(record.cells[0].id, "base/http-10");
    let said = &record.cells[0].verdict;
    assert!(said.reasons.iter().any(|why| matches!(why, Caveat::CountsDiffer { .. })), "{said}");
    assert_eq!(said.level, Level::Invalid);
}

#[test]
fn a_load_that_did_not_have_one_client_in_all_runs_is_suspect_in_all_its_cells() {
    let said = |record: &Record| -> Vec<bool> {
        record.cells.iter().map(|cell| cell.verdict.to_string().contains("different clients")).collect()
    };
    let same = record_of(|who, block| Measured {
        // The check is always another client.
        client: Some(if who == 3 { "small, epoll" } else { "load, io_uring" }.to_owned()),
        ..good(block, 10.0)
    });
    assert!(said(&same).iter().all(|said| !said), "{:?}", same.verdict);
    let mixed = record_of(|who, block| Measured {
        client: Some(if who == 1 && block == 4 { "load, epoll" } else { "load, io_uring" }.to_owned()),
        ..good(block, 10.0)
    });
    assert!(said(&mixed).iter().all(|said| *said), "{:?}", mixed.verdict);
    assert_eq!(mixed.verdict.level, Level::Suspect);
}

#[test]
fn a_cross_check_that_failed_is_said() {
    let suite = suite();
    let plan = Plan::of(&suite, 1);
    let runs = plan.cells.iter().map(|cell| match cell.role {
        Role::CrossCheck => {
            CellRuns { failures: vec!["it exited with code 9".to_owned()], ..CellRuns::default() }
        }
        _ => CellRuns { runs: (0..6).map(|block| good(block, 4.0)).collect(), ..CellRuns::default() },
    });
    let record =
        collect::record(&suite, &plan, &runs.collect::<Vec<_>>(), Frame { blocks: 6, ..Frame::default() });
    let said = record.cells[0].verdict.to_string();
    assert!(said.contains("whether both clients agree is unknown") && said.contains("code 9"), "{said}");
}

#[test]
fn an_invalid_cell_makes_the_record_invalid() {
    let suite = suite();
    let plan = Plan::of(&suite, 1);
    let mut runs: Vec<CellRuns> = vec![CellRuns::default(); plan.cells.len()];
    runs[0].failures = vec!["it exited with code 9".to_owned()];
    runs[1].skipped = Some("not installed".to_owned());
    let record = collect::record(&suite, &plan, &runs, Frame { interrupted: true, ..Frame::default() });
    assert_eq!(record.verdict.level, Level::Invalid);
    assert_eq!(record.cells[0].verdict.level, Level::Invalid);
    assert_eq!(record.cells[0].skipped, None);
    assert_eq!(record.cells[0].rps, None);
    assert_eq!(record.cells[1].skipped.as_deref(), Some("not installed"));
    assert!(record.cells[2].skipped.is_some(), "a cell whose turn never came is skipped, not absent");
    assert!(record.verdict.reasons.iter().any(|c| matches!(c, Caveat::Interrupted { done: 0, planned: 6 })));
    assert_eq!(record.cells[0].errors, Errors::default());
}

#[test]
fn from_fewer_than_six_blocks_neither_a_noise_floor_nor_a_disagreement_is_told() {
    let disturbed = |who, block| {
        let mut run = good(block, 4.0);
        if who == 3 {
            run.client = Some("small, epoll".to_owned());
            run.run.rps /= 1.2;
        }
        run
    };
    let told = |record: &Record| {
        record.verdict.reasons.iter().any(|why| matches!(why, Caveat::ClientsDiffer { .. }))
    };
    let six = record_of_blocks(6, disturbed);
    assert_eq!((six.control.len(), told(&six)), (2, true));
    let five = record_of_blocks(5, disturbed);
    assert_eq!((five.control.len(), told(&five)), (0, false));
    // That there are too few is told once, at each cell, and not as a floor that is unknown.
    assert!(!five.verdict.to_string().contains("noise floor"), "{}", five.verdict);
    assert!(five.cells.iter().any(|cell| cell.details.cross_check.is_some()));
}

#[test]
fn over_a_baseline_that_is_invalid_there_is_no_ratio() {
    let record = record_of(|who, block| {
        let mut run = good(block, [4.0, 8.0, 4.0, 4.0][who]);
        if who == 0 && block == 3 {
            run.run.client_count += 1;
        }
        run
    });
    let find = |id: &str| record.cells.iter().find(|cell| cell.id == id).unwrap();
    assert_eq!(find("base/http-10").verdict.level, Level::Invalid);
    assert_eq!(find("other/http-10").ratio, None);
    // Of echo no totals are kept here, so that baseline stands.
    assert!(find("other/echo-10").ratio.is_some());
}
