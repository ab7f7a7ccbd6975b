//! The summary of a load: a pure function from outcome to text. Start at [`text`].

use crate::terminal::shortened;
use ringroad_load::ask::named;
use ringroad_load::hold::diagnose;
use ringroad_load::knee::Knee;
use ringroad_load::plan::Pace;
use ringroad_load::schedule::Arrivals;
use ringroad_load::tls::Handshakes;
use ringroad_load::{Outcome, Plan, Stage};
use ringroad_measure::units::{Bytes, Nanos, PerSecond, Share, counted};
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

/// Returns the summary.
pub(super) fn text(plan: &Plan, outcome: &Outcome, verdict: &Verdict, driver: &str) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write_all(&mut out, plan, outcome, verdict, driver);
    out
}

/// Returns the interval of a search, in a sentence.
pub(super) fn knee_title(knee: &Knee) -> String {
    let demand = &knee.demand;
    let rate = |rate: f64| PerSecond(rate).to_string();
    match (knee.met, knee.unmet) {
        (Some(met), Some(unmet)) if knee.client_is_limit() => {
            format!("{demand} is met up to {}; at {} this client was the limit", rate(met), rate(unmet))
        }
        (Some(met), Some(unmet)) => {
            format!("{demand} is met up to {}, and not at {}", rate(met), rate(unmet))
        }
        (Some(met), None) => format!("{demand} is met up to {}, and no tested rate exceeded it", rate(met)),
        (None, Some(unmet)) => format!("{demand} is not met at {}, nor below", rate(unmet)),
        (None, None) => format!("{demand}: no rate was determined"),
    }
}

/// Returns a search: the probe at the highest rate that met the demand, all probes, and the interval.
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
        "\n  {:<12}{:>12}{:>12}{:>12}  {}",
        "rate",
        "answered",
        "p50",
        "p99",
        counted(knee.probes.len() as u64, "probe")
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
        let ours = if probe.unmet.is_some() && probe.is_ours() { " (the client's limit)" } else { "" };
        writeln!(out, "  {}{ours}", probe.unmet.as_deref().unwrap_or("met"))?;
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
    writeln!(out, "{}", shortened(&plan.target.to_string()))?;
    let what = load(plan, outcome.connected, outcome.idle_at_end, driver);
    // A short one has no whole tenths.
    let measured =
        if seconds < 1.0 { Nanos::from(outcome.window).to_string() } else { format!("{seconds:.1} s") };
    writeln!(out, "  {what}, {measured} measured")?;

    let rate = PerSecond::of(tally.completed, outcome.window).unwrap_or(PerSecond(0.0));
    let bytes = if seconds > 0.0 { (tally.bytes as f64 / seconds) as u64 } else { 0 };
    let (name, came, each) = match plan.broadcast {
        Some(_) => ("deliveries", "came", "delivery"),
        None => ("requests", "answered", "request"),
    };
    writeln!(out, "\n  {name:<10} {} {came} in the window: {rate}, {}/s", tally.completed, Bytes(bytes))?;
    broadcast(out, plan, outcome)?;
    if tally.refused > 0 {
        let rate = PerSecond::of(tally.refused, outcome.window).unwrap_or(PerSecond(0.0));
        writeln!(
            out,
            "  refused    {} answers in the window that were not as expected: {rate}",
            tally.refused
        )?;
    }
    if tally.unanswered > 0 {
        let longest = Nanos(tally.unanswered_ns);
        writeln!(
            out,
            "  unanswered {}, in the latencies with the time that was waited: {longest} at most",
            counted(tally.unanswered, "request")
        )?;
    }
    writeln!(
        out,
        "  in all     {} {}, {} completed, {} failed{}{}",
        counts.sent,
        if plan.broadcast.is_some() { "expected" } else { "sent" },
        counts.completed,
        counts.errors.total() - counts.errors.connect,
        // No request was sent on a connection that was not made.
        match counts.errors.connect {
            0 => String::new(),
            failed => format!("; {} failed", counted(failed, "connect")),
        },
        if counts.unsent > 0 { format!("; {} due and never sent", counts.unsent) } else { String::new() }
    )?;
    statuses(out, plan, outcome)?;
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
    if let Some(cores) = client.cores(client.cpu).filter(|_| tally.completed > 0) {
        let cpu = client.cpu.unwrap_or_default();
        let time = Nanos((cpu.as_nanos() / u128::from(tally.completed)) as u64);
        writeln!(out, "  client     {time} of CPU per {each}, {}", busy(cores, plan))?;
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
    distribution(out, outcome)?;
    urls(out, plan, outcome)?;
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

/// Formats how busy a client was that used so many cores.
fn busy(cores: f64, plan: &Plan) -> String {
    let threads = plan.workers();
    let share = cores / f64::from(threads);
    // The kernel's workers for its rings are no threads of it.
    if share > 1.0 {
        format!("{cores:.1} cores busy, more than its {}", counted(threads.into(), "thread"))
    } else {
        format!("{} of its threads", Share(share))
    }
}

fn how(arrivals: Arrivals) -> &'static str {
    match arrivals {
        Arrivals::Constant => "evenly",
        Arrivals::Poisson => "Poisson",
    }
}

/// Formats the counts of each status, the most frequent first.
fn statuses(out: &mut String, plan: &Plan, outcome: &Outcome) -> std::fmt::Result {
    let mut all: Vec<_> = outcome.counts.statuses.iter().collect();
    if all.is_empty() {
        return Ok(());
    }
    all.sort_by_key(|(status, count)| (std::cmp::Reverse(**count), **status));
    let shown = all.iter().map(|(status, count)| {
        let mark = if plan.statuses.contains(**status) { "" } else { " (not expected)" };
        format!("{}: {count}{mark}", named(**status))
    });
    writeln!(out, "  status     {}", shown.collect::<Vec<_>>().join(", "))
}

/// Rows of the distribution, and columns of its longest bar.
const BARS: (usize, usize) = (10, 32);

const EIGHTHS: [char; 8] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];

/// Writes how the response latencies are spread: a bar for each range, the ranges of equal length on a
/// logarithmic scale.
fn distribution(out: &mut String, outcome: &Outcome) -> std::fmt::Result {
    let good = &outcome.tally.latencies.response;
    let histogram = match &outcome.tally.other {
        Some(other) if good.is_empty() => other,
        _ => good,
    };
    let ends = histogram.buckets().next().map(|(ns, _)| ns).zip(histogram.buckets().last().map(|(ns, _)| ns));
    // Where all took as long there is nothing to draw.
    let Some((first, last)) = ends.filter(|(first, last)| *last as f64 > *first as f64 * 1.1) else {
        return Ok(());
    };
    let (bottom, top) = ((first.max(1) as f64).ln(), (last as f64).ln());
    let mut counts = [0_u64; BARS.0];
    for (ns, count) in histogram.buckets() {
        let at = ((ns.max(1) as f64).ln() - bottom) / (top - bottom) * BARS.0 as f64;
        if let Some(place) = counts.get_mut((at as usize).min(BARS.0 - 1)) {
            *place += count;
        }
    }
    let most = counts.iter().copied().max().unwrap_or(1).max(1);
    writeln!(out, "\n  distribution of the latency")?;
    for (row, count) in counts.into_iter().enumerate() {
        let edge = |row: usize| Nanos((bottom + (top - bottom) * row as f64 / BARS.0 as f64).exp() as u64);
        let share = Share(count as f64 / histogram.count().max(1) as f64);
        // Rounded up, so that a small value is visible.
        let eighths = (count as u128 * (BARS.1 * 8) as u128).div_ceil(u128::from(most)) as usize;
        let mut bar: String = std::iter::repeat_n('█', eighths / 8).collect();
        bar.extend((eighths % 8).checked_sub(1).and_then(|rest| EIGHTHS.get(rest)));
        let (from, to) = (edge(row).to_string(), edge(row + 1).to_string());
        let line = format!("  {from:>8} to {to:>8}{count:>12}{:>8}  {bar}", share.to_string());
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// URLs that are listed at most.
const URLS: usize = 20;

/// Writes a line for each URL, where there are several.
fn urls(out: &mut String, plan: &Plan, outcome: &Outcome) -> std::fmt::Result {
    if outcome.urls.is_empty() {
        return Ok(());
    }
    let mut all: Vec<_> = plan.messages.iter().zip(&outcome.urls).collect();
    all.sort_by_key(|(_, url)| std::cmp::Reverse(url.completed + url.refused));
    writeln!(out, "\n  {:>10}{:>12}{:>12}{:>10}  URL", "answered", "p50", "p99", "refused")?;
    for (message, url) in all.iter().take(URLS) {
        let rate =
            PerSecond::of(url.completed, outcome.window).map_or("-".to_owned(), |rate| rate.to_string());
        write!(out, "  {rate:>10}")?;
        for q in [0.5, 0.99] {
            let time = url.response.quantile_ns(q).map_or("-".to_owned(), |ns| Nanos(ns).to_string());
            write!(out, "{time:>12}")?;
        }
        writeln!(out, "{:>10}  {}", url.refused, shortened(&message.label().escape_debug().to_string()))?;
    }
    if all.len() > URLS {
        writeln!(out, "  and {} more, in the record (--out)", all.len() - URLS)?;
    }
    Ok(())
}

/// Writes a line for each stage.
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
        let response = &tally.latencies.response;
        for time in [response.quantile_ns(0.5), response.quantile_ns(0.99), tally.longest_ns()] {
            write!(out, "{:>12}", time.map_or("-".to_owned(), |ns| Nanos(ns).to_string()))?;
        }
        writeln!(out, "{:>10}", tally.failed)?;
    }
    Ok(())
}

/// Messages of a broadcast, and how many each connection was to get.
fn broadcast(out: &mut String, plan: &Plan, outcome: &Outcome) -> std::fmt::Result {
    if plan.broadcast.is_none() {
        return Ok(());
    }
    let told = &outcome.counts.broadcast;
    let receivers = match told.own {
        0 => format!("each to {} beside its sender", counted(told.receivers(), "connection")),
        _ => format!("each to {}", counted(told.receivers(), "connection")),
    };
    let repeated = match told.repeated {
        0 => String::new(),
        count => format!("; {} more than once", counted(count, "delivery")),
    };
    writeln!(out, "  messages   {}, {receivers}{repeated}", told.published)
}

/// Writes the fate of held connections.
fn held(out: &mut String, plan: &Plan, outcome: &Outcome) -> std::fmt::Result {
    if !matches!(plan.pace, Pace::Hold(_)) {
        return Ok(());
    }
    let held = &outcome.counts.held;
    let share = |share: Option<f64>| share.map_or("-".to_owned(), |share| Share(share).to_string());
    let hours = held.opened as f64 * outcome.window.as_secs_f64() / 3600.0;
    writeln!(
        out,
        "\n  held       {} of {} survived: {}",
        held.survived,
        counted(held.opened, "connection"),
        share(held.survival())
    )?;
    let (lost, again) = (counted(held.lost, "time"), counted(held.reconnects, "time"));
    write!(out, "  lost       {lost}, made again {again}")?;
    match held.reconnects_per_hour(outcome.window) {
        Some(rate) => writeln!(out, ": {rate:.2} a connection and hour, from {hours:.2} hours of all")?,
        None => writeln!(out)?,
    }
    if held.gave_up > 0 {
        writeln!(out, "  gave up    {}", counted(held.gave_up, "connection"))?;
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

/// Returns the load in a line, over so many connections: `200 connections, closed loop, 1 thread on
/// io_uring`.
pub(super) fn load(plan: &Plan, connections: u32, idle: u32, driver: &str) -> String {
    let mut text = counted(connections.into(), "connection");
    if plan.idle > 0 {
        text += &format!(" and {idle} idle");
    }
    match (plan.http2, plan.pipeline) {
        (true, 1) => text += " of HTTP/2",
        (true, streams) => text += &format!(" of HTTP/2 x {streams} streams"),
        (false, 1) => {}
        (false, depth) => text += &format!(" x {depth} in flight"),
    }
    text += &match plan.pace {
        Pace::Closed => ", closed loop".to_owned(),
        Pace::Open { arrivals, .. } if plan.stages.is_some() => format!(", open loop, {}", how(arrivals)),
        Pace::Open { per_second, arrivals } if plan.broadcast.is_some() => {
            format!(", broadcast at {} {}", PerSecond(per_second), how(arrivals))
        }
        Pace::Open { per_second, arrivals } => {
            format!(", open loop at {} {}", PerSecond(per_second), how(arrivals))
        }
        Pace::Hold(hold) => format!(", held, a heartbeat every {:?}", hold.heartbeat),
    };
    if let Some(stages) = &plan.stages {
        text += &format!(", in {} stages", stages.pieces().count());
    }
    let threads = counted(plan.threads.into(), "thread");
    let each = if plan.processes == 1 { String::new() } else { format!("{} processes of ", plan.processes) };
    let how = if plan.direct.is_some() { ", direct descriptors" } else { "" };
    text + &format!(", {each}{threads} on {driver}{how}")
}

/// Writes a column for each latency that was recorded.
fn latencies(out: &mut String, outcome: &Outcome) -> std::fmt::Result {
    let all = &outcome.tally.latencies;
    let columns: Vec<(&str, &Histogram)> = [
        ("response", Some(&all.response)),
        ("service", all.service.as_ref()),
        ("send delay", all.lag.as_ref()),
        ("by client", all.late.as_ref()),
        ("refused", outcome.tally.other.as_deref()),
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
    fn the_summary_has_the_load_its_figures_and_the_verdict() {
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
        tally.bytes = 9 << 19;
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
                statuses: [(200, 10_999), (503, 1)].into(),
                failures: [("status 503".to_owned(), 1)].into(),
                ..Counts::default()
            },
            tally,
            window: Duration::from_secs(9),
            client: Client {
                cpu: Some(Duration::from_millis(45)),
                span: Duration::from_secs(9),
                ..Client::default()
            },
            ..Outcome::default()
        };
        let golden = "\
tcp://127.0.0.1:7
  10 connections and 5 idle, open loop at 1.00 k/s evenly, 1 thread on epoll, 9.0 s measured

  requests   9000 answered in the window: 1.00 k/s, 512 KiB/s
  in all     11000 sent, 10999 completed, 1 failed
  status     200 OK: 10999, 503 Service Unavailable: 1 (not expected)
  received   1.00 MiB in all, connections made 16, ended by the server 1
  idle       5 open at the end, 0 lost
  client     5.00 µs of CPU per request, 0.5 % of its threads

  latency       response     service  send delay   by client
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
    fn answers_that_were_refused_have_latencies_and_a_distribution() {
        let message = |path: &str| {
            let request =
                ringroad_load::plan::Request { method: "GET", headers: &[], body: b"", close: false };
            let target = format!("http://127.0.0.1:9{path}").parse().unwrap();
            Message::http(&target, &request, 1).unwrap()
        };
        let target = "http://127.0.0.1:9/".parse().unwrap();
        let plan = Plan::new(target, vec![message("/a"), message("/b")]);
        let mut other = Histogram::new();
        other.record_n(100_000, 50);
        other.record_n(1_000_000, 100);
        other.record_n(10_000_000, 1);
        let tally = Tally { other: Some(Box::new(other)), refused: 151, ..Tally::new(false) };
        let counts = Counts { sent: 151, answers: 151, statuses: [(404, 151)].into(), ..Counts::default() };
        let outcome = Outcome { tally, counts, window: Duration::from_secs(1), ..Outcome::default() };
        let shown = text(&plan, &outcome, &Verdict::valid(), "epoll");
        assert!(shown.contains("  status     404 Not Found: 151 (not expected)\n"), "{shown}");
        assert!(
            shown.contains("  refused    151 answers in the window that were not as expected: 151 /s\n"),
            "{shown}"
        );
        assert!(shown.contains("  latency        refused\n"), "{shown}");
        let bars: Vec<&str> =
            shown.lines().skip_while(|line| !line.contains("distribution")).skip(1).take(10).collect();
        assert!(
            bars[0].starts_with("    100 µs to   159 µs          50  33.1 %  ████████████████"),
            "{shown}"
        );
        assert_eq!(bars.iter().filter(|bar| bar.contains('█')).count(), 2, "{shown}");
        assert!(bars[9].ends_with('▎') || bars[9].ends_with('▍') || bars[9].ends_with('▏'), "{shown}");
        // Two URLs, each with its own figures.
        let mut urls = vec![ringroad_load::OfUrl::default(); 2];
        urls[1].completed = 2000;
        urls[1].response.record_n(1_000_000, 2000);
        urls[0].refused = 7;
        let shown = text(&plan, &Outcome { urls, ..outcome }, &Verdict::valid(), "epoll");
        assert!(
            shown.contains("    2.00 k/s     1.00 ms     1.00 ms         0  GET http://127.0.0.1:9/b\n"),
            "{shown}"
        );
        assert!(
            shown.contains("        0 /s           -           -         7  GET http://127.0.0.1:9/a\n"),
            "{shown}"
        );
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
  gave up    1 connection
  heartbeats 120000 due, 60 not written: 0.05 %
  health     unavailable
             it was unreachable after 90.0 s, when the first of 1 reached the retry limit
             99.00 % of the connections survived, and 99.5 % are normal: look for idle timeouts";
        assert!(text.contains(golden), "{text}");
        assert!(text.contains("1000 connections, held, a heartbeat every 30s, 1 thread on epoll"), "{text}");
    }
}
