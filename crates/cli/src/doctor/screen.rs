//! The findings as one screen: first the answer, then what limits it, then what to know.
//!
//! Pure: findings and colours in, text out. Every refusal stands with its cure, on a line that can be copied.

use super::Findings;
use ringroad_engine::Name;
use ringroad_engine::choose::{self, Meaning, Refusal};
use ringroad_host::cgroup::Limit;
use std::fmt::Write;
use std::io::IsTerminal;

/// Colours, or none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paint(bool);

impl Paint {
    /// Colours on a terminal, unless NO_COLOR says otherwise (no-color.org).
    pub(super) fn of_stdout() -> Paint {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Paint(std::io::stdout().is_terminal() && !unwanted)
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn good(self, text: &str) -> String {
        self.with("32", text)
    }

    fn bad(self, text: &str) -> String {
        self.with("31", text)
    }

    fn head(self, text: &str) -> String {
        self.with("1", text)
    }

    fn faint(self, text: &str) -> String {
        self.with("2", text)
    }
}

/// Lines are broken before this.
const WIDTH: usize = 100;
/// Where what is said of a thing begins.
const INDENT: usize = 14;

/// The screen.
pub(super) fn screen(findings: &Findings, verbose: bool, paint: Paint) -> String {
    let mut out = String::new();
    machine(&mut out, findings, paint);
    drivers(&mut out, findings, verbose, paint);
    connections(&mut out, findings, paint);
    limits(&mut out, findings, paint);
    bugs(&mut out, findings, verbose, paint);
    if verbose {
        opcodes(&mut out, findings, paint);
    }
    out
}

fn machine(out: &mut String, findings: &Findings, paint: Paint) {
    let facts = &findings.facts;
    let mut words = vec![
        format!("Linux {}", facts.kernel.as_deref().unwrap_or("of unknown release")),
        facts.arch.clone(),
    ];
    if let Some(cpus) = &facts.affinity {
        let count = cpus.len();
        words.push(format!("{count} CPU{}", if count == 1 { "" } else { "s" }));
    }
    words.extend(
        facts.memory_total_bytes.map(|bytes| format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))),
    );
    words.extend(findings.gate.container.as_ref().map(|name| format!("in {name}")));
    let _ = writeln!(out, "{}", paint.head(&words.join(" · ")));
}

/// What a driver does, for who does not know it.
fn idea(name: Name) -> &'static str {
    match name {
        Name::IoUring => "operations are submitted, the kernel completes them; many in one system call",
        Name::Epoll => "the kernel tells who is ready; one call per wait, one per transfer",
        Name::Poll => "the kernel looks at all who wait, every time; dearer the more there are",
        Name::Select => "the same with bit sets, for descriptor numbers below 1024 only",
        Name::Threads => "a thread stands at each operation that waits",
        Name::Sim => "a simulated kernel",
    }
}

fn drivers(out: &mut String, findings: &Findings, verbose: bool, paint: Paint) {
    let chosen = findings.choice.as_ref().ok().map(|choice| choice.driver());
    match &findings.choice {
        Ok(choice) => {
            let name = paint.good(choice.driver().as_str());
            let _ = writeln!(out, "\n{}  {name}: {}", paint.head("Driver"), choice.why());
        }
        Err(_) => {
            let _ = writeln!(out, "\n{}  {}", paint.head("Driver"), paint.bad("none for this wish"));
        }
    }
    for (name, outcome) in &findings.drivers {
        match outcome {
            Ok(evidence) => {
                let mark = paint.good(if chosen == Some(*name) { "●" } else { "✓" });
                let text = if verbose {
                    format!("{} (tried in {:.1} ms)", idea(*name), evidence.took.as_secs_f64() * 1e3)
                } else {
                    idea(*name).to_owned()
                };
                let _ = writeln!(out, "  {mark} {:<10}{}", name.as_str(), wrapped(&text, INDENT));
            }
            Err(refusal) => refused(out, refusal, paint),
        }
    }
}

fn refused(out: &mut String, refusal: &Refusal, paint: Paint) {
    let (mark, name) = (paint.bad("✗"), refusal.driver.as_str());
    let _ = writeln!(out, "  {mark} {name:<10}{}", wrapped(&refusal.reason, INDENT));
    cure(out, refusal.fix.as_deref(), paint);
}

fn cure(out: &mut String, fix: Option<&str>, paint: Paint) {
    if let Some(fix) = fix {
        let _ = writeln!(out, "{:INDENT$}{} {}", "", paint.head("→"), wrapped(fix, INDENT + 2));
    }
}

fn connections(out: &mut String, findings: &Findings, paint: Paint) {
    let capacity = &findings.capacity;
    let head = paint.head("Connections");
    match capacity.bounds.first() {
        Some(bound) => {
            let most = grouped(bound.connections);
            let _ = writeln!(out, "\n{head}  {most} open at once in one process, limited by {}", bound.what);
            cure(out, Some(&bound.fix), paint);
            if let Some(next) = capacity.bounds.get(1) {
                let text = format!("then by {}: {}", next.what, grouped(next.connections));
                let _ = writeln!(out, "{:INDENT$}{}", "", paint.faint(&text));
            }
        }
        None => {
            let _ = writeln!(out, "\n{head}  as many as there is room for: no limit is known here");
        }
    }
    let by_descriptors = capacity.bounds.first().is_some_and(|bound| bound.of_each_process);
    let has_ring = findings.drivers.iter().any(|(name, probed)| *name == Name::IoUring && probed.is_ok());
    if by_descriptors && has_ring {
        let text =
            "`ringroad load` on io_uring goes past open files: its connections can do without descriptors";
        let _ = writeln!(out, "{:INDENT$}{}", "", paint.faint(text));
    }
    if let Some(outgoing) = capacity.outgoing {
        let text = format!("outgoing, to one address and port: {} (a port of ours each)", grouped(outgoing));
        let _ = writeln!(out, "{:INDENT$}{}", "", paint.faint(&text));
    }
}

fn limits(out: &mut String, findings: &Findings, paint: Paint) {
    let (facts, gate) = (&findings.facts, &findings.gate);
    let _ = writeln!(out, "\n{}", paint.head("What stands around this process"));
    let mut line = |name: &str, text: String| {
        let _ = writeln!(out, "  {name:<12}{}", wrapped(&text, INDENT));
    };
    let sysctl = match (gate.disabled, gate.group) {
        (None, _) => {
            "kernel.io_uring_disabled is not there: allowed (Linux before 6.6, or /proc is hidden)".to_owned()
        }
        (Some(0), _) => "kernel.io_uring_disabled=0: allowed to everybody".to_owned(),
        (Some(1), group) => format!(
            "kernel.io_uring_disabled=1: allowed to CAP_SYS_ADMIN and to group {}; this process {}",
            group.filter(|group| *group >= 0).map_or("none".to_owned(), |group| group.to_string()),
            if gate.sysctl_forbids() { "is not" } else { "is" }
        ),
        (Some(other), _) => format!("kernel.io_uring_disabled={other}: allowed to nobody"),
    };
    line("sysctl", sysctl);
    line(
        "seccomp",
        match gate.seccomp_mode {
            Some(0) => "no filter".to_owned(),
            Some(1) => "strict: read, write and exit only".to_owned(),
            Some(_) => {
                "a filter decides about system calls; it sees the three of io_uring, not its operations"
                    .to_owned()
            }
            None => "hidden".to_owned(),
        },
    );
    let modules = gate.security_modules.join(", ");
    line("modules", if modules.is_empty() { "security modules are hidden".to_owned() } else { modules });
    line("memlock", format!("{} may be locked; a ring takes some KiB of it", amount(gate.memlock, bytes)));
    let nproc = amount(facts.limits.nproc_soft, grouped);
    line(
        "files",
        format!(
            "{} per process; {nproc} processes and threads per user",
            amount(facts.limits.nofile_hard, grouped)
        ),
    );
    let cgroup = &facts.cgroup;
    let text = match cgroup.version {
        None => "none to be seen".to_owned(),
        Some(version) => format!(
            "{}: CPU {}, memory {}, processes {}",
            if version == "hybrid" { "v1 and v2".to_owned() } else { format!("v{version}") },
            amount(cgroup.cpu_cores, |cores| format!("{cores:.1} cores")),
            amount(cgroup.memory_bytes, bytes),
            amount(cgroup.pids, grouped)
        ),
    };
    line("cgroup", text);
}

fn bugs(out: &mut String, findings: &Findings, verbose: bool, paint: Paint) {
    let shown: Vec<_> =
        findings.bugs.iter().filter(|bug| verbose || bug.meaning != Meaning::Avoided).collect();
    let avoided = findings.bugs.len() - shown.len();
    let _ = write!(out, "\n{}  ", paint.head("Known bugs of this kernel's io_uring"));
    match (shown.len(), avoided) {
        (0, 0) => out.push_str("none\n"),
        (0, count) => {
            let _ =
                writeln!(out, "{count}, avoided here (-v lists {})", if count == 1 { "it" } else { "them" });
        }
        (count, avoided) => {
            let _ = writeln!(
                out,
                "{count}{}",
                if avoided > 0 { format!(", and {avoided} avoided here (-v)") } else { String::new() }
            );
        }
    }
    for bug in shown {
        let mark = if bug.meaning == Meaning::Avoided { paint.faint("·") } else { paint.bad("!") };
        let _ = writeln!(out, "  {mark} {}", wrapped(&format!("{} [{}]", bug.what, bug.source), 4));
        let _ = writeln!(out, "    {} {}", paint.head("→"), wrapped(bug.answer, 6));
    }
}

fn opcodes(out: &mut String, findings: &Findings, paint: Paint) {
    let Some(ring) = findings.ring() else { return };
    let _ = writeln!(out, "\n{}", paint.head("io_uring"));
    let names: Vec<_> = ring.features.names().collect();
    let _ = writeln!(out, "  {:<12}{}", "features", wrapped(&names.join(", "), INDENT));
    let tried = choose::try_file_operations();
    let files: Vec<String> = tried
        .iter()
        .map(|(name, wrong)| {
            wrong.as_ref().map_or_else(|| format!("{name} ✓"), |wrong| format!("{name} ✗ ({wrong})"))
        })
        .collect();
    let _ = writeln!(out, "  {:<12}{}", "on files", wrapped(&files.join(", "), INDENT));
    let _ = writeln!(out, "  opcodes");
    const COLUMNS: usize = 5;
    let cells: Vec<_> = ring.opcodes.table().collect();
    let rows = cells.len().div_ceil(COLUMNS);
    for row in 0..rows {
        let line: String = (0..COLUMNS)
            .filter_map(|column| cells.get(row + column * rows))
            .map(|(name, known)| {
                let mark = if *known { paint.good("✓") } else { paint.bad("✗") };
                format!("{mark} {name:<17}")
            })
            .collect();
        let _ = writeln!(out, "    {}", line.trim_end());
    }
}

/// Breaks a text that begins in column `indent` and goes on there.
fn wrapped(text: &str, indent: usize) -> String {
    let mut out = String::new();
    let mut column = indent;
    for word in text.split(' ') {
        let length = word.chars().count();
        if column > indent && column + 1 + length > WIDTH {
            let _ = write!(out, "\n{:indent$}", "");
            column = indent;
        } else if column > indent {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out
}

fn amount<T>(limit: Option<Limit<T>>, show: impl Fn(T) -> String) -> String {
    match limit {
        Some(Limit::At(value)) => show(value),
        Some(Limit::Unlimited) => "unlimited".to_owned(),
        None => "unknown".to_owned(),
    }
}

fn bytes(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..1_048_576 => format!("{} KiB", bytes / 1024),
        1_048_576..1_073_741_824 => format!("{} MiB", bytes >> 20),
        _ => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
    }
}

fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_lines_are_broken_between_words() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        let text = wrapped(&"word ".repeat(40), 14);
        assert!(text.lines().count() > 1 && text.lines().all(|line| line.chars().count() <= WIDTH));
        assert!(
            text.lines()
                .skip(1)
                .all(|line| line.starts_with(&" ".repeat(14)) && !line.starts_with(&" ".repeat(15)))
        );
    }
}
