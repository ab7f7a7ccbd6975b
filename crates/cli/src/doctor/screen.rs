//! The findings as one screen: a line that sums them up, then drivers, limits and known bugs.
//!
//! Pure: findings, colours and width in, text out. Every refusal stands with its fix, on a line that can be
//! copied.

use super::Findings;
use super::fixes::{self, Fix};
use crate::terminal;
use ringroad_engine::DriverName;
use ringroad_engine::choose::{self, Meaning, Refusal};
use ringroad_host::cgroup::Limit;
use ringroad_host::gate::Gate;
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

/// Lines are broken before the width of the terminal, of which this is the most and the least that is used;
/// elsewhere the most.
const WIDTH: (usize, usize) = (40, 100);
/// The column in which the description of a thing begins.
const INDENT: usize = 14;

/// What is drawn on: colours or none, and so many columns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page {
    pub(super) paint: Paint,
    pub(super) width: usize,
}

impl Page {
    /// Standard output's.
    pub(super) fn of_stdout() -> Page {
        let width = terminal::columns(std::io::stdout()).unwrap_or(WIDTH.1);
        Page { paint: Paint::of_stdout(), width: width.clamp(WIDTH.0, WIDTH.1) }
    }

    /// Breaks a text that begins in column `indent` and goes on there.
    fn wrapped(self, text: &str, indent: usize) -> String {
        self.wrapped_from(text, indent, indent)
    }

    /// Breaks a text that begins in column `column` and goes on in `indent`.
    fn wrapped_from(self, text: &str, column: usize, indent: usize) -> String {
        terminal::broken(text, column, indent, self.width)
    }
}

/// Returns the screen.
pub(super) fn screen(findings: &Findings, fixes: &[Fix], verbose: bool, page: Page) -> String {
    let mut out = String::new();
    let summary = page.wrapped(&fixes::headline(findings, fixes), 0);
    let summary = if fixes.is_empty() { page.paint.good(&summary) } else { page.paint.bad(&summary) };
    let _ = writeln!(out, "{summary}");
    if fixes.iter().any(|fix| !fix.commands.is_empty()) {
        let _ = writeln!(out, "{}", page.wrapped("`ringroad doctor --fix-script` prints the commands.", 0));
    }
    out.push('\n');
    machine(&mut out, findings, page);
    drivers(&mut out, findings, verbose, page);
    connections(&mut out, findings, page);
    limits(&mut out, findings, page);
    bugs(&mut out, findings, verbose, page);
    if verbose {
        opcodes(&mut out, findings, page);
    }
    out
}

fn machine(out: &mut String, findings: &Findings, page: Page) {
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
    let _ = writeln!(out, "{}", page.paint.head(&page.wrapped(&words.join(" · "), 0)));
}

/// Returns a description of the driver for a new reader.
fn idea(name: DriverName) -> &'static str {
    match name {
        DriverName::IoUring => {
            "operations are submitted in batches and completed by the kernel; many per system call"
        }
        DriverName::Epoll => "the kernel reports ready sockets; one call per wait, one per transfer",
        DriverName::Poll => "the kernel checks every socket on each call; the cost grows with their number",
        DriverName::Select => "as poll, with bit sets, for descriptors below 1024 only",
        DriverName::Threads => "one blocking thread per waiting operation",
        DriverName::Sim => "a simulated kernel",
    }
}

fn drivers(out: &mut String, findings: &Findings, verbose: bool, page: Page) {
    let paint = page.paint;
    let chosen = findings.choice.as_ref().ok().map(|choice| choice.driver());
    match &findings.choice {
        Ok(choice) => {
            let name = choice.driver().as_str();
            let why = page.wrapped_from(&choice.why(), "Driver  : ".len() + name.len(), INDENT);
            let _ = writeln!(out, "\n{}  {}: {why}", paint.head("Driver"), paint.good(name));
        }
        Err(_) => {
            let _ = writeln!(out, "\n{}  {}", paint.head("Driver"), paint.bad("none fits the request"));
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
                let _ = writeln!(out, "  {mark} {:<10}{}", name.as_str(), page.wrapped(&text, INDENT));
            }
            Err(refusal) => refused(out, refusal, page),
        }
    }
}

fn refused(out: &mut String, refusal: &Refusal, page: Page) {
    let (mark, name) = (page.paint.bad("✗"), refusal.driver.as_str());
    let _ = writeln!(out, "  {mark} {name:<10}{}", page.wrapped(&refusal.reason, INDENT));
    cure(out, refusal.fix.as_deref(), page);
}

fn cure(out: &mut String, fix: Option<&str>, page: Page) {
    if let Some(fix) = fix {
        let _ = writeln!(out, "{:INDENT$}{} {}", "", page.paint.head("→"), page.wrapped(fix, INDENT + 2));
    }
}

fn connections(out: &mut String, findings: &Findings, page: Page) {
    let paint = page.paint;
    let capacity = &findings.capacity;
    let head = paint.head("Connections");
    match capacity.bounds.first() {
        Some(bound) => {
            let most = grouped(bound.connections);
            let text = format!("{most} open at once in one process, limited by {}", bound.what);
            let text = page.wrapped_from(&text, "Connections  ".len(), INDENT);
            let _ = writeln!(out, "\n{head}  {text}");
            // An arrow marks what is among the fixes.
            if fixes::are_connections_few(findings) {
                cure(out, Some(&bound.fix), page);
            } else {
                let more = page.wrapped(&format!("for more: {}", bound.fix), INDENT);
                let _ = writeln!(out, "{:INDENT$}{}", "", paint.faint(&more));
            }
            if let Some(next) = capacity.bounds.get(1) {
                let text = format!("then by {}: {}", next.what, grouped(next.connections));
                let _ = writeln!(out, "{:INDENT$}{}", "", paint.faint(&page.wrapped(&text, INDENT)));
            }
        }
        None => {
            let _ = writeln!(out, "\n{head}  no limit is known here");
        }
    }
    let by_descriptors = capacity.bounds.first().is_some_and(|bound| bound.of_each_process);
    let has_ring =
        findings.drivers.iter().any(|(name, probed)| *name == DriverName::IoUring && probed.is_ok());
    if by_descriptors && has_ring {
        let text = "`ringroad load` on io_uring can open more: its connections need no descriptors";
        let _ = writeln!(out, "{:INDENT$}{}", "", paint.faint(&page.wrapped(text, INDENT)));
    }
    if let Some(outgoing) = capacity.outgoing {
        let text = format!("{} outgoing to one address and port (limited by local ports)", grouped(outgoing));
        let _ = writeln!(out, "{:INDENT$}{}", "", paint.faint(&page.wrapped(&text, INDENT)));
    }
}

/// Returns what the sysctl permits. Its name and value are the first word, which leaves no room for a sign
/// behind it in a narrow terminal.
fn sysctl(gate: &Gate) -> String {
    match (gate.disabled, gate.group) {
        (None, _) => {
            "kernel.io_uring_disabled does not exist: allowed (Linux before 6.6, or /proc is hidden)"
                .to_owned()
        }
        (Some(0), _) => "kernel.io_uring_disabled=0 allows every process".to_owned(),
        (Some(1), group) => format!(
            "kernel.io_uring_disabled=1 allows CAP_SYS_ADMIN and group {}; this process {}",
            group.filter(|group| *group >= 0).map_or("none".to_owned(), |group| group.to_string()),
            if gate.sysctl_forbids() { "is not allowed" } else { "is allowed" }
        ),
        (Some(other), _) => format!("kernel.io_uring_disabled={other} forbids every process"),
    }
}

fn limits(out: &mut String, findings: &Findings, page: Page) {
    let paint = page.paint;
    let (facts, gate) = (&findings.facts, &findings.gate);
    let _ = writeln!(out, "\n{}", paint.head("Limits and filters of this process"));
    let mut line = |name: &str, text: String| {
        let _ = writeln!(out, "  {name:<12}{}", page.wrapped(&text, INDENT));
    };
    line("sysctl", sysctl(gate));
    line(
        "seccomp",
        match gate.seccomp_mode {
            Some(0) => "no filter".to_owned(),
            Some(1) => "strict: read, write and exit only".to_owned(),
            Some(_) => {
                "a filter decides about system calls; it sees the three calls of io_uring, not its operations"
                    .to_owned()
            }
            None => "hidden".to_owned(),
        },
    );
    let modules = gate.security_modules.join(", ");
    line("modules", if modules.is_empty() { "security modules are hidden".to_owned() } else { modules });
    line("memlock", format!("{} may be locked; a ring needs some KiB", amount(gate.memlock, bytes)));
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
        None => "none found".to_owned(),
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

fn bugs(out: &mut String, findings: &Findings, verbose: bool, page: Page) {
    let paint = page.paint;
    let shown: Vec<_> =
        findings.bugs.iter().filter(|bug| verbose || bug.meaning != Meaning::Avoided).collect();
    let avoided = findings.bugs.len() - shown.len();
    const HEAD: &str = "Known bugs of this kernel's io_uring";
    let count = match (shown.len(), avoided) {
        (0, 0) => "none".to_owned(),
        (0, count) => {
            format!("{count}, avoided here (-v lists {})", if count == 1 { "it" } else { "them" })
        }
        (count, 0) => count.to_string(),
        (count, avoided) => format!("{count}, and {avoided} avoided here (-v)"),
    };
    let _ = writeln!(out, "\n{}  {}", paint.head(HEAD), page.wrapped_from(&count, HEAD.len() + 2, INDENT));
    for bug in shown {
        let mark = if bug.meaning == Meaning::Avoided { paint.faint("·") } else { paint.bad("!") };
        let _ = writeln!(out, "  {mark} {}", page.wrapped(&format!("{} [{}]", bug.what, bug.source), 4));
        let mark = if fixes::is_to_fix(bug) { paint.head("→") } else { paint.faint("·") };
        let _ = writeln!(out, "    {mark} {}", page.wrapped(bug.answer, 6));
    }
}

fn opcodes(out: &mut String, findings: &Findings, page: Page) {
    let paint = page.paint;
    let Some(ring) = findings.ring() else { return };
    let _ = writeln!(out, "\n{}", paint.head("io_uring"));
    let names: Vec<_> = ring.features.names().collect();
    let _ = writeln!(out, "  {:<12}{}", "features", page.wrapped(&names.join(", "), INDENT));
    let tried = choose::try_file_operations();
    let files: Vec<String> = tried
        .iter()
        .map(|(name, wrong)| {
            wrong.as_ref().map_or_else(|| format!("{name} ✓"), |wrong| format!("{name} ✗ ({wrong})"))
        })
        .collect();
    let _ = writeln!(out, "  {:<12}{}", "on files", page.wrapped(&files.join(", "), INDENT));
    let _ = writeln!(out, "  opcodes");
    let cells: Vec<_> = ring.opcodes.table().collect();
    // Each is a mark, a space and a name of at most 17 characters, behind four blanks.
    let columns = ((page.width - 4) / 19).max(1);
    let rows = cells.len().div_ceil(columns);
    for row in 0..rows {
        let line: String = (0..columns)
            .filter_map(|column| cells.get(row + column * rows))
            .map(|(name, known)| {
                let mark = if *known { paint.good("✓") } else { paint.bad("✗") };
                format!("{mark} {name:<17}")
            })
            .collect();
        let _ = writeln!(out, "    {}", line.trim_end());
    }
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

pub(super) fn grouped(number: u64) -> String {
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
    fn what_the_sysctl_permits_fits_the_narrowest_screen() {
        let page = Page { paint: Paint(false), width: WIDTH.0 };
        let cases =
            [(None, None), (Some(0), None), (Some(1), Some(-1)), (Some(1), Some(27)), (Some(2), None)];
        for (disabled, group) in cases {
            let gate = Gate { disabled, group, ..Gate::default() };
            let text = format!("{:INDENT$}{}", "", page.wrapped(&sysctl(&gate), INDENT));
            assert!(text.contains("kernel.io_uring_disabled"), "{text}");
            assert_eq!(text.lines().find(|line| line.chars().count() > WIDTH.0), None, "{text}");
        }
    }

    #[test]
    fn numbers_are_grouped_and_lines_are_broken_between_words() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        for width in [40, 60, 100] {
            let page = Page { paint: Paint(false), width };
            let text = page.wrapped(&"word ".repeat(40), 14);
            let lines: Vec<String> = text
                .lines()
                .enumerate()
                .map(|(nth, line)| if nth == 0 { format!("{:14}{line}", "") } else { line.to_owned() })
                .collect();
            assert!(lines.len() > 1 && lines.iter().all(|line| line.chars().count() <= width), "{lines:?}");
            assert!(
                lines.iter().all(|line| line.starts_with(&format!("{:14}w", "")) || line.trim().is_empty()),
                "{lines:?}"
            );
        }
    }
}
