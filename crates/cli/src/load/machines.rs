//! `load --plan`: how many machines like this one a load needs, and which limit makes them so many.
//!
//! Nothing is loaded. Limits that are read here: descriptors, memory, local ports. The CPU time of a request
//! is known only where it is measured, with `--calibrate`. Start at [`text`].

use super::calibrate::Ceiling;
use ringroad_engine::DriverName;
use ringroad_host::Facts;
use ringroad_host::capacity::{BYTES_PER_CONNECTION, Bound, Capacity};
use ringroad_load::Plan;
use ringroad_load::plan::Pace;
use ringroad_measure::units::{Bytes, PerSecond, counted};
use std::fmt::Write;

/// Share of a client's capacity that is planned for: with more, the client itself adds latency.
const CPU_SHARE: f64 = 0.7;

/// One limit.
struct Row {
    what: String,
    /// The limit of one machine, with its unit.
    of_one: String,
    machines: u64,
    /// Ways to raise it, separated by semicolons.
    fix: String,
}

/// Returns the limits of this machine for the plan, the machines that each of them asks for, and the command
/// line.
pub(super) fn text(facts: &Facts, plan: &Plan, driver: DriverName, ceiling: Option<&Ceiling>) -> String {
    let wanted = u64::from(plan.held());
    let rows = rows(facts, plan, driver, ceiling);
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = table(&mut out, plan, wanted, &rows, driver, ceiling.is_some());
    out
}

fn rows(facts: &Facts, plan: &Plan, driver: DriverName, ceiling: Option<&Ceiling>) -> Vec<Row> {
    let wanted = u64::from(plan.held());
    let capacity = Capacity::of(facts);
    let mut rows = Vec::new();
    for Bound { what, connections, fix, of_each_process } in capacity.bounds {
        if of_each_process && driver == DriverName::IoUring {
            // The connections live in the tables of the rings (`room::places`).
            continue;
        }
        let of_one =
            if of_each_process { connections.saturating_mul(plan.processes.into()) } else { connections };
        let fix = if of_each_process { format!("{fix}; --processes N; --driver io_uring") } else { fix };
        rows.push(row(what.to_owned(), of_one, wanted, fix));
    }
    if let Some(ports) = capacity.outgoing {
        let (sources, places) = (plan.sources.len().max(1) as u64, plan.others.len() as u64 + 1);
        let of_one = ports.saturating_mul(sources).saturating_mul(places);
        let (from, to) = (counted(sources, "source address"), counted(places, "server"));
        let what = format!("local ports, {from} to {to}");
        let fix = "--source with several addresses of the machine; more addresses of the server (--also); sysctl net.ipv4.ip_local_port_range='1024 65535'";
        rows.push(row(what, of_one, wanted, fix.to_owned()));
    }
    if let (Some(ceiling), Some(rate)) = (ceiling, rate(plan)) {
        let of_one = (ceiling.per_second() * CPU_SHARE).floor().max(1.0);
        rows.push(Row {
            what: format!("CPU, {:.0} % of it", CPU_SHARE * 100.0),
            of_one: PerSecond(of_one).to_string(),
            machines: (rate / of_one).ceil().max(1.0) as u64,
            fix: "more threads where CPUs are free (-t); no TLS; no placeholders".to_owned(),
        });
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.machines));
    rows
}

/// Returns a limit of connections.
fn row(what: String, of_one: u64, wanted: u64, fix: String) -> Row {
    let machines = wanted.div_ceil(of_one.max(1)).max(1);
    Row { what, of_one: counted(of_one, "connection"), machines, fix }
}

/// Returns the highest rate that is asked for, where one is.
fn rate(plan: &Plan) -> Option<f64> {
    match (plan.pace, &plan.stages) {
        (Pace::Open { .. }, Some(stages)) => Some(stages.most()),
        (Pace::Open { per_second, .. }, None) => Some(per_second),
        (Pace::Hold(hold), _) => Some(f64::from(plan.connections) / hold.heartbeat.as_secs_f64()),
        (Pace::Closed, _) => None,
    }
}

fn table(
    out: &mut String,
    plan: &Plan,
    wanted: u64,
    rows: &[Row],
    driver: DriverName,
    is_calibrated: bool,
) -> std::fmt::Result {
    write!(out, "{}", counted(wanted, "connection"))?;
    if let Some(rate) = rate(plan) {
        write!(out, ", {}", PerSecond(rate))?;
    }
    writeln!(out, ", from machines like this one (driver {driver})\n")?;
    const HEADS: [&str; 3] = ["limit", "one machine takes", "machines"];
    let widest = |of: fn(&Row) -> &str, head: &str| {
        rows.iter().map(|row| of(row).chars().count()).max().unwrap_or(0).max(head.len())
    };
    let (what, of_one) = (widest(|row| &row.what, HEADS[0]), widest(|row| &row.of_one, HEADS[1]));
    writeln!(out, "  {:<what$}  {:>of_one$}  {}", HEADS[0], HEADS[1], HEADS[2])?;
    for row in rows {
        writeln!(out, "  {:<what$}  {:>of_one$}  {:>8}", row.what, row.of_one, row.machines)?;
    }
    writeln!(out, "\n  a connection is planned with {} of memory, without TLS", Bytes(BYTES_PER_CONNECTION))?;
    if driver == DriverName::IoUring {
        writeln!(out, "  connections take no descriptors on io_uring where descriptors are too few")?;
    }
    match (rate(plan), is_calibrated) {
        (None, _) => writeln!(
            out,
            "  CPU: a closed loop sends as fast as it can, so it has no need that could be planned (give --rate)"
        )?,
        (Some(_), false) => {
            writeln!(out, "  CPU: not measured (--plan --calibrate measures what this client can do)")?
        }
        (Some(_), true) => {}
    }
    let Some(first) = rows.first() else {
        return writeln!(out, "\nno limit is known here");
    };
    let machines = first.machines;
    writeln!(out, "\n{}, limited by {}", counted(machines, "machine"), first.what)?;
    if machines == 1 {
        return Ok(());
    }
    writeln!(out, "ways to need fewer:")?;
    first.fix.split("; ").try_for_each(|way| writeln!(out, "  {way}"))?;
    writeln!(
        out,
        "on machine I of them: the same command with --part I/{machines}, --start-at and --clock-from"
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ringroad_host::Root;
    use ringroad_load::Message;

    /// Returns a machine with 20,000 descriptors, 28,232 ports and 4 GB.
    fn facts(folder: &std::path::Path) -> Facts {
        for (path, text) in [
            ("proc/self/limits", "Max open files  1024  20064  files\n"),
            ("proc/meminfo", "MemAvailable: 4194304 kB\n"),
            ("proc/sys/fs/file-max", "9223372036854775807\n"),
            ("proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n"),
        ] {
            let path = folder.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        Facts::read(&Root::at(folder))
    }

    fn plan() -> Plan {
        let message = Message::echo(b"x".to_vec()).unwrap();
        Plan { connections: 1_000_000, ..Plan::new("tcp://10.0.0.1:7".parse().unwrap(), vec![message]) }
    }

    #[test]
    fn the_limit_that_asks_for_the_most_machines_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let facts = facts(folder.path());
        let on = |driver, plan: &Plan| text(&facts, plan, driver, None);
        let epoll = on(DriverName::Epoll, &plan());
        assert!(epoll.contains("\n50 machines, limited by open files of a process"), "{epoll}");
        assert!(epoll.contains("--part I/50"), "{epoll}");
        // 1,000,000 / 28,232 ports.
        let ring = on(DriverName::IoUring, &plan());
        assert!(
            ring.contains("\n36 machines, limited by local ports, 1 source address to 1 server\n"),
            "{ring}"
        );
        let sources = vec!["10.0.0.2".parse().unwrap(); 60];
        // 4 GiB / 6 KiB = 699,050 connections.
        let memory = on(DriverName::IoUring, &Plan { sources, ..plan() });
        assert!(memory.contains("\n2 machines, limited by memory that is free"), "{memory}");
    }

    #[test]
    fn limits_are_a_table_with_a_unit_on_each_line() {
        let folder = tempfile::tempdir().unwrap();
        let shown = text(&facts(folder.path()), &plan(), DriverName::Epoll, None);
        let rows: Vec<&str> = shown.lines().skip(2).take_while(|line| !line.is_empty()).collect();
        assert!(rows.len() > 2 && rows.iter().skip(1).all(|row| row.contains(" connections  ")), "{shown}");
        let ends = |row: &&str| row.chars().count();
        assert!(rows.iter().all(|row| ends(row) == ends(&rows[0])), "{shown}");
    }

    #[test]
    fn what_is_not_known_is_not_planned() {
        let folder = tempfile::tempdir().unwrap();
        let nothing = Facts::read(&Root::at(folder.path()));
        assert!(text(&nothing, &plan(), DriverName::Epoll, None).contains("no limit is known here"));
    }
}
