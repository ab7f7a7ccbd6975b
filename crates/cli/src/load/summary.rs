//! What came of a load, for a person: a pure function from outcome to text. Start at [`text`].

use ringroad_load::hold::diagnose;
use ringroad_load::knee::Knee;
use ringroad_load::plan::Pace;
use ringroad_load::require::Requirement;
use ringroad_load::schedule::Arrivals;
use ringroad_load::tls::Handshakes;
use ringroad_load::{Outcome, Plan, Stage};
use ringroad_measure::units::{Bytes, Nanos, PerSecond, Share};
use ringroad_measure::{Histogram, Verdict};
use std::fmt::Write;
use std::time::Duration;

const QUANTILES: [(&str, f64); 7] = [
    ("p50", 0.50),
    ("p75", 0.75),
    ("p90", 0.90),
    ("p95", 0.95),
    ("p99", 0.99),
    ("p99.9", 0.999),
    ("p99.99", 0.9999),
];

/// The summary.
pub(super) fn text(plan: &Plan, outcome: &Outcome, verdict: &Verdict, driver: &str) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write_all(&mut out, plan, outcome, verdict, driver);
    out
}

/// The interval of a search, in a sentence.
pub(super) fn knee_title(knee: &Knee, demand: &Requirement) -> String {
    let rate = |rate: f64| PerSecond(rate).to_string();
    match (knee.met, knee.unmet) {
        (Some(met), Some(unmet)) => {
            format!("{demand} is met up to {}, and not at {}", rate(met), rate(unmet))
        }
        (Some(met), None) => format!("{demand} is met up to {}, and no rate was too much", rate(met)),
        (None, Some(unmet)) => format!("{demand} is not met at {}, nor below", rate(unmet)),
        (None, None) => format!("{demand}: no rate was decided"),
    }
}

/// A search: the probe at the highest rate that met the demand, all probes, and the interval.
pub(super) fn knee_text(knee: &Knee, title: &str, verdict: &Verdict, driver: &str) -> String {
    let mut out = knee.best().map_or_else(String::new, |best| {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = figures(&mut out, &best.plan, &best.outcome, driver);
        out
    });
    let _ = probes(&mut out, knee, title).and_then(|()| ending(&mut out, verdict));
    out
}

fn probes(out: &mut String, knee: &Knee, title: &str) -> std::fmt::Result {
    writeln!(
        out,
        "\n  {:<12}{:>12}{:>12}{:>12}  {} probes",
        "rate",
        "answered",
        "p50",
        "p99",
        knee.probes.len()
    )?;
    for probe in &knee.probes {
        let tally = &probe.outcome.tally;
        let rate = |rate: Option<PerSecond>| rate.map_or("-".to_owned(), |rate| rate.to_string());
        let asked = rate(probe.rate().map(PerSecond));
        let answered = rate(PerSecond::of(tally.completed, probe.outcome.window));
        write!(out, "  {asked:<12}{answered:>12}")?;
        for q in [0.5, 0.99] {
            let time = tally.latencies.response.quantile_ns(q);
            write!(out, "{:>12}", time.map_or("-".to_owned(), |ns| Nanos(ns).to_string()))?;
        }
        writeln!(out, "  {}", probe.unmet.as_deref().unwrap_or("met"))?;
    }
    writeln!(out, "\nknee: {title}")
}

fn write_all(
    out: &mut String,
    plan: &Plan,
    outcome: &Outcome,
    verdict: &Verdict,
    driver: &str,
) -> std::fmt::Result {
    figures(out, plan, outcome, driver)?;
    ending(out, verdict)
}

fn ending(out: &mut String, verdict: &Verdict) -> std::fmt::Result {
    writeln!(out, "\n{}", verdict.level)?;
    verdict.reasons.iter().try_for_each(|reason| writeln!(out, "  {reason}"))
}

fn figures(out: &mut String, plan: &Plan, outcome: &Outcome, driver: &str) -> std::fmt::Result {
    let Outcome { counts, tally, client, .. } = outcome;
    let seconds = outcome.window.as_secs_f64();
    writeln!(out, "{}", plan.target)?;
    let what = load(plan, outcome.connected, outcome.idle_at_end, driver);
    writeln!(out, "  {what}, {seconds:.1} s measured")?;

    let rate = PerSecond::of(tally.completed, outcome.window).unwrap_or(PerSecond(0.0));
    writeln!(out, "\n  requests   {} answered in the window: {rate}", tally.completed)?;
    writeln!(
        out,
        "  in all     {} sent, {} completed, {} failed{}",
        counts.sent,
        counts.completed,
        counts.errors.total(),
        if counts.unsent > 0 { format!(", {} due and never sent", counts.unsent) } else { String::new() }
    )?;
    writeln!(
        out,
        "  received   {} in all, connections made {}, ended by the server {}",
        Bytes(counts.bytes_received),
        counts.connects,
        counts.closed_in_order
    )?;
    if plan.idle > 0 {
        writeln!(out, "  idle       {} open at the end, {} lost", outcome.idle_at_end, counts.idle_lost)?;
    }
    if let Some(cpu) = client.cpu.filter(|_| seconds > 0.0 && tally.completed > 0) {
        let each = Nanos((cpu.as_nanos() / u128::from(tally.completed)) as u64);
        let share = Share(cpu.as_secs_f64() / seconds / f64::from(plan.workers()));
        writeln!(out, "  client     {each} of CPU a request, {share} of its threads")?;
    }

    if let Some(handshakes) = &outcome.handshakes {
        let Handshakes { full, resumed, failed, took } = handshakes;
        write!(out, "  handshakes {full} full, {resumed} resumed, {failed} failed")?;
        let at = |q| took.quantile_ns(q).map(Nanos);
        match (at(0.5), at(0.99)) {
            (Some(p50), Some(p99)) => writeln!(out, ": p50 {p50}, p99 {p99}, beside the latencies")?,
            _ => writeln!(out)?,
        }
    }
    held(out, plan, outcome)?;
    latencies(out, outcome)?;
    stages(out, plan, &outcome.stages)?;
    if !counts.failures.is_empty() {
        writeln!(out, "\n  failures")?;
        let mut failures: Vec<_> = counts.failures.iter().collect();
        failures.sort_by_key(|(what, count)| (std::cmp::Reverse(**count), what.as_str()));
        for (what, count) in failures {
            writeln!(out, "  {count:>9}  {}", what.escape_debug())?;
        }
    }
    Ok(())
}

fn how(arrivals: Arrivals) -> &'static str {
    match arrivals {
        Arrivals::Constant => "evenly",
        Arrivals::Poisson => "by chance (Poisson)",
    }
}

/// A line for each stage.
fn stages(out: &mut String, plan: &Plan, stages: &[Stage]) -> std::fmt::Result {
    if stages.is_empty() {
        return Ok(());
    }
    let unit = if plan.pace == Pace::Closed { "connections" } else { "requests/s" };
    writeln!(
        out,
        "\n  {:<20}{:>12}{:>12}{:>12}{:>12}{:>10}",
        unit, "answered", "p50", "p99", "max", "failed"
    )?;
    for Stage { from, to, seconds, tally } in stages {
        let level = if from == to { format!("{from:.0}") } else { format!("{from:.0} to {to:.0}") };
        let rate = PerSecond::of(tally.completed, Duration::from_secs_f64(*seconds));
        let rate = rate.map_or("-".to_owned(), |rate| rate.to_string());
        write!(out, "  {level:<20}{rate:>12}")?;
        for q in [0.5, 0.99, 1.0] {
            let time = tally.latencies.response.quantile_ns(q);
            write!(out, "{:>12}", time.map_or("-".to_owned(), |ns| Nanos(ns).to_string()))?;
        }
        writeln!(out, "{:>10}", tally.failed)?;
    }
    Ok(())
}

/// What became of connections that were held.
fn held(out: &mut String, plan: &Plan, outcome: &Outcome) -> std::fmt::Result {
    if !matches!(plan.pace, Pace::Hold(_)) {
        return Ok(());
    }
    let held = &outcome.counts.held;
    let share = |share: Option<f64>| share.map_or("-".to_owned(), |share| Share(share).to_string());
    let hours = held.opened as f64 * outcome.window.as_secs_f64() / 3600.0;
    writeln!(
        out,
        "\n  held       {} of {} connections survived: {}",
        held.survived,
        held.opened,
        share(held.survival())
    )?;
    write!(out, "  lost       {} times, made again {} times", held.lost, held.reconnects)?;
    match held.reconnects_per_hour(outcome.window) {
        Some(rate) => writeln!(out, ": {rate:.2} a connection and hour, from {hours:.2} hours of all")?,
        None => writeln!(out)?,
    }
    if held.gave_up > 0 {
        writeln!(out, "  gave up    {} connections", held.gave_up)?;
    }
    let unwritten = held.unwritten();
    writeln!(
        out,
        "  heartbeats {} due, {unwritten} not written: {}",
        held.due,
        share(held.write_failures())
    )?;
    let (health, findings) = diagnose(held, outcome.window);
    writeln!(out, "  health     {health}")?;
    findings.iter().try_for_each(|finding| writeln!(out, "             {finding}"))
}

/// What is put on, over so many connections: `200 connections, closed loop, 1 thread on io_uring`.
pub(super) fn load(plan: &Plan, connections: u32, idle: u32, driver: &str) -> String {
    let mut text = format!("{connections} connections");
    if plan.idle > 0 {
        text += &format!(" and {idle} idle");
    }
    if plan.pipeline > 1 {
        text += &format!(" x {} in flight", plan.pipeline);
    }
    text += &match plan.pace {
        Pace::Closed => ", closed loop".to_owned(),
        Pace::Open { arrivals, .. } if plan.stages.is_some() => format!(", open loop, {}", how(arrivals)),
        Pace::Open { per_second, arrivals } => {
            format!(", open loop at {} {}", PerSecond(per_second), how(arrivals))
        }
        Pace::Hold(hold) => format!(", held, a heartbeat every {:?}", hold.heartbeat),
    };
    if let Some(stages) = &plan.stages {
        text += &format!(", in {} stages", stages.pieces().count());
    }
    let threads = if plan.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", plan.threads) };
    let each = if plan.processes == 1 { String::new() } else { format!("{} processes of ", plan.processes) };
    let how = if plan.direct.is_some() { ", direct descriptors" } else { "" };
    text + &format!(", {each}{threads} on {driver}{how}")
}

/// A column for each latency that was recorded.
fn latencies(out: &mut String, outcome: &Outcome) -> std::fmt::Result {
    let all = &outcome.tally.latencies;
    let columns: Vec<(&str, &Histogram)> = [
        ("response", Some(&all.response)),
        ("service", all.service.as_ref()),
        ("lag", all.lag.as_ref()),
        ("of it ours", all.late.as_ref()),
    ]
    .into_iter()
    .filter_map(|(name, histogram)| Some((name, histogram?)))
    .filter(|(_, histogram)| !histogram.is_empty())
    .collect();
    if columns.is_empty() {
        return Ok(());
    }
    write!(out, "\n  {:<10}", "latency")?;
    columns.iter().try_for_each(|(name, _)| write!(out, "{name:>12}"))?;
    writeln!(out)?;
    let mut row = |name: &str, value: &dyn Fn(&Histogram) -> Option<u64>| {
        write!(out, "  {name:<10}")?;
        for (_, histogram) in &columns {
            write!(out, "{:>12}", Nanos(value(histogram).unwrap_or(0)))?;
        }
        writeln!(out)
    };
    row("mean", &|histogram| histogram.mean_ns().map(|ns| ns as u64))?;
    for (name, q) in QUANTILES {
        row(name, &|histogram| histogram.quantile_ns(q))?;
    }
    row("max", &|histogram| histogram.quantile_ns(1.0))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ringroad_load::hold::{Held, Hold};
    use ringroad_load::verdict::verdict;
    use ringroad_load::{Client, Counts, Message, Tally};
    use ringroad_measure::record::Errors;

    #[test]
    fn the_summary_says_what_was_done_what_came_of_it_and_whether_to_believe_it() {
        let mut plan =
            Plan::new("tcp://127.0.0.1:7".parse().unwrap(), vec![Message::echo(b"x".to_vec()).unwrap()]);
        plan.pace = Pace::Open { per_second: 1000.0, arrivals: Arrivals::Constant };
        plan.idle = 5;
        let mut tally = Tally::new(true);
        tally.completed = 9_000;
        tally.latencies.response.record_n(1_000_000, 9_000);
        tally.latencies.service.as_mut().unwrap().record_n(900_000, 9_000);
        tally.latencies.lag.as_mut().unwrap().record_n(100_000, 9_000);
        tally.latencies.late.as_mut().unwrap().record_n(20_000, 9_000);
        let outcome = Outcome {
            addresses: Vec::new(),
            connected: 10,
            asked: 10,
            served: 10,
            open_at_end: 10,
            idle_at_end: 5,
            counts: Counts {
                sent: 11_000,
                completed: 10_999,
                answers: 11_000,
                errors: Errors { status: 1, ..Errors::default() },
                connects: 16,
                closed_in_order: 1,
                bytes_received: 1 << 20,
                failures: [("status 503".to_owned(), 1)].into(),
                ..Counts::default()
            },
            tally,
            window: Duration::from_secs(9),
            series: Vec::new(),
            stages: Vec::new(),
            handshakes: None,
            client: Client { cpu: Some(Duration::from_millis(45)), ..Client::default() },
            interrupted: false,
            lost: Vec::new(),
        };
        let golden = "\
tcp://127.0.0.1:7
  10 connections and 5 idle, open loop at 1.00 k/s evenly, 1 thread on epoll, 9.0 s measured

  requests   9000 answered in the window: 1.00 k/s
  in all     11000 sent, 10999 completed, 1 failed
  received   1.00 MiB in all, connections made 16, ended by the server 1
  idle       5 open at the end, 0 lost
  client     5.00 µs of CPU a request, 0.5 % of its threads

  latency       response     service         lag  of it ours
  mean           1.00 ms      900 µs      100 µs     20.0 µs
  p50            1.00 ms      900 µs      100 µs     20.0 µs
  p75            1.00 ms      900 µs      100 µs     20.0 µs
  p90            1.00 ms      900 µs      100 µs     20.0 µs
  p95            1.00 ms      900 µs      100 µs     20.0 µs
  p99            1.00 ms      900 µs      100 µs     20.0 µs
  p99.9          1.00 ms      900 µs      100 µs     20.0 µs
  p99.99         1.00 ms      900 µs      100 µs     20.0 µs
  max            1.00 ms      900 µs      100 µs     20.0 µs

  failures
          1  status 503

SUSPECT
  1 of 11000 requests failed (status 1): ";
        let text = text(&plan, &outcome, &verdict(&plan, &outcome), "epoll");
        assert!(text.starts_with(golden), "{text}");
    }

    #[test]
    fn held_connections_and_handshakes_have_lines_of_their_own() {
        let message = Message::echo(b"x".to_vec()).unwrap();
        let mut plan = Plan::new("tcp://127.0.0.1:7".parse().unwrap(), vec![message]);
        plan.pace = Pace::Hold(Hold { heartbeat: Duration::from_secs(30), retry_limit: Some(3) });
        let held = Held {
            opened: 1000,
            survived: 990,
            lost: 12,
            reconnects: 11,
            gave_up: 1,
            unavailable_after_ns: Some(90_000_000_000),
            due: 120_000,
            away: 60,
            ..Held::default()
        };
        let mut handshakes = Handshakes { full: 1000, resumed: 11, failed: 3, ..Handshakes::default() };
        handshakes.took.record_n(1_000_000, 1011);
        let outcome = Outcome {
            connected: 1000,
            counts: Counts { held, ..Counts::default() },
            tally: Tally::new(true),
            window: Duration::from_secs(3600),
            handshakes: Some(handshakes),
            ..Outcome::default()
        };
        let text = text(&plan, &outcome, &Verdict::valid(), "epoll");
        let golden = "\
  handshakes 1000 full, 11 resumed, 3 failed: p50 1.00 ms, p99 1.00 ms, beside the latencies

  held       990 of 1000 connections survived: 99.0 %
  lost       12 times, made again 11 times: 0.01 a connection and hour, from 1000.00 hours of all
  gave up    1 connections
  heartbeats 120000 due, 60 not written: 0.05 %
  health     unavailable
             it was not reached any more after 90.0 s, when the first of 1 was given up at the retry limit
             99.00 % of the connections survived, and 99.5 % are normal: look for idle timeouts";
        assert!(text.contains(golden), "{text}");
        assert!(text.contains("1000 connections, held, a heartbeat every 30s, 1 thread on epoll"), "{text}");
    }
}
