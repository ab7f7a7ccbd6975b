//! The figures of a record: their meaning, where they are in a cell, and their formatting.
//!
//! The page, its charts, its tables and the terminal all take names, units and spellings from here, so that a
//! number looks the same everywhere. `answer` interprets them.
//!
//! Start at [`Figure`].

use ringroad_measure::Level;
use ringroad_measure::record::{Cell, Interval, Limiter, Run};
use ringroad_measure::summary;
use ringroad_measure::units::{Bytes, Micros, PerSecond, Share};

/// What stands where a number is not known.
pub(crate) const UNKNOWN: &str = "unknown";

/// One kind of number that every cell has, or says it has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    /// CPU time of the program per request.
    Cpu,
    /// CPU per request over the baseline's.
    Ratio,
    /// Median latency.
    P50,
    /// 99th percentile of latency.
    P99,
    /// System calls per request.
    Syscalls,
    /// Requests per second.
    Rate,
    /// Resident memory of the process.
    Memory,
}

impl Figure {
    /// All of them, in the order a reader meets them.
    pub(crate) const ALL: [Figure; 7] = [
        Figure::Cpu,
        Figure::Ratio,
        Figure::P50,
        Figure::P99,
        Figure::Syscalls,
        Figure::Rate,
        Figure::Memory,
    ];

    /// Its name, as a heading.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Figure::Cpu => "CPU per request",
            Figure::Ratio => "Against the baseline",
            Figure::P50 => "Median latency (p50)",
            Figure::P99 => "99th percentile of latency (p99)",
            Figure::Syscalls => "System calls per request",
            Figure::Rate => "Requests per second",
            Figure::Memory => "Memory of the process",
        }
    }

    /// Its meaning and unit, for a reader without knowledge of it.
    pub(crate) fn meaning(self) -> &'static str {
        match self {
            Figure::Cpu => {
                "Time a processor core spent on one request in the program under test: its own code (user) and \
                 the kernel's work for it (system), all threads and io_uring's kernel workers included. In \
                 microseconds (µs), millionths of a second. Lower is cheaper. This is the primary figure: it \
                 depends little on how fast the client is."
            }
            Figure::Ratio => {
                "CPU per request divided by the baseline's in the same blocks of the run. 1 is equal, 1.10 costs \
                 10 % more. The line through the dot is the 95 % interval; the shaded band is what the baseline \
                 differed from itself, the noise floor."
            }
            Figure::P50 => {
                "Half of the answers came within this time after their request was sent. In a closed loop at \
                 full load it mostly tells how long the queue is."
            }
            Figure::P99 => {
                "99 of 100 answers came within this time. The slow tail a user notices when one page needs many \
                 requests."
            }
            Figure::Syscalls => {
                "How often the program entered the kernel for one request. Below 1 means that one entry served \
                 several requests."
            }
            Figure::Rate => {
                "Answers received in one second of the measured window. Where the load generator was the \
                 bottleneck, it is the generator's rate, not the program's."
            }
            Figure::Memory => {
                "Resident memory (RSS) of the process at the end of the window. Memory the kernel holds for \
                 sockets is not in it."
            }
        }
    }

    /// Its meaning in a sentence, to stand beside a chart.
    pub(crate) fn gist(self) -> &'static str {
        match self {
            Figure::Cpu => {
                "CPU time of the program per request: its own code and the kernel's work for it, all threads together."
            }
            Figure::Ratio => {
                "CPU per request divided by the baseline's in the same blocks. The band is the noise floor."
            }
            Figure::P50 | Figure::P99 => {
                "How long an answer takes: half of them come within p50, 99 of 100 within p99."
            }
            Figure::Syscalls => "How often the program entered the kernel for one request.",
            Figure::Rate => "Answers received in one second of the measured window.",
            Figure::Memory => {
                "Resident memory at the end of the window, without what the kernel holds for sockets."
            }
        }
    }

    /// Returns what its ticks should be round multiples of, for values up to `most`: 1, or for memory a
    /// binary unit.
    pub(crate) fn tick_unit(self, most: f64) -> f64 {
        match self {
            Figure::Memory => [30, 20, 10]
                .iter()
                .map(|power| f64::from(1 << power))
                .find(|unit| most >= *unit)
                .unwrap_or(1.0),
            _ => 1.0,
        }
    }

    /// Returns the number, if the cell has it and it is a number.
    pub(crate) fn value(self, cell: &Cell) -> Option<f64> {
        let value = match self {
            Figure::Cpu => cell.server.cpu_us_per_request,
            Figure::Ratio => cell.ratio.map(|ratio| ratio.mid),
            Figure::P50 => cell.latency_us.response.map(|l| l.p50),
            Figure::P99 => cell.latency_us.response.map(|l| l.p99),
            Figure::Syscalls => cell.server.syscalls_per_request,
            Figure::Rate => cell.rps,
            Figure::Memory => cell.server.rss_bytes.map(|bytes| bytes as f64),
        };
        value.filter(|v| v.is_finite())
    }

    /// Returns the number in one run, where runs have it.
    pub(crate) fn in_run(self, run: &Run) -> Option<f64> {
        let value = match self {
            Figure::Cpu => run.cpu_us_per_request,
            Figure::P50 => run.p50_us,
            Figure::P99 => run.p99_us,
            Figure::Syscalls => run.syscalls_per_request,
            Figure::Rate => Some(run.rps),
            Figure::Memory => run.rss_bytes.map(|bytes| bytes as f64),
            Figure::Ratio => None,
        };
        value.filter(|v| v.is_finite())
    }

    /// Returns the 95 % interval, for the figures that have one.
    pub(crate) fn interval(self, cell: &Cell) -> Option<Interval> {
        let interval = match self {
            Figure::Cpu => cell.server.cpu_interval,
            Figure::Ratio => cell.ratio,
            // Medians over the runs, as the figure itself is; a latency is that of all requests together.
            Figure::Rate | Figure::Syscalls => {
                let values: Vec<f64> = cell.runs.iter().filter_map(|run| self.in_run(run)).collect();
                if values.len() > 1 { summary::median_interval(&values) } else { None }
            }
            Figure::P50 | Figure::P99 | Figure::Memory => None,
        };
        interval.filter(|i| i.low.is_finite() && i.high.is_finite())
    }

    /// Returns the number with its unit, as a reader likes it: `3.91 µs`, `251 k/s`, `3.1 MiB`.
    pub(crate) fn spell(self, value: f64) -> String {
        match self {
            Figure::Cpu | Figure::P50 | Figure::P99 => micros(value),
            Figure::Ratio => times(value),
            Figure::Syscalls => number(value),
            Figure::Rate => glued(PerSecond(value).to_string()),
            Figure::Memory => bytes(value),
        }
    }

    /// Returns the label of an axis: what it is, the unit, which way is better.
    pub(crate) fn axis(self) -> &'static str {
        match self {
            Figure::Cpu => "µs of CPU per request · less is better",
            Figure::Ratio => "times the baseline's CPU per request · less is better",
            Figure::P50 => "p50 latency · less is better",
            Figure::P99 => "p99 latency · less is better",
            Figure::Syscalls => "system calls per request",
            Figure::Rate => "requests per second · more is better",
            Figure::Memory => "resident memory · less is better",
        }
    }

    /// Returns a number at a tick of the axis: short, no spare zeros.
    pub(crate) fn tick(self, value: f64) -> String {
        match self {
            Figure::Cpu | Figure::Ratio | Figure::Syscalls => trimmed(value),
            Figure::P50 | Figure::P99 if value >= 1e6 => format!("{} s", trimmed(value / 1e6)),
            Figure::P50 | Figure::P99 if value >= 1e3 => format!("{} ms", trimmed(value / 1e3)),
            Figure::P50 | Figure::P99 if value == 0.0 => "0".to_owned(),
            Figure::P50 | Figure::P99 => format!("{} µs", trimmed(value)),
            Figure::Rate if value >= 1e6 => format!("{} M", trimmed(value / 1e6)),
            Figure::Rate if value >= 1e3 => format!("{} k", trimmed(value / 1e3)),
            Figure::Rate => trimmed(value),
            Figure::Memory if value == 0.0 => "0".to_owned(),
            Figure::Memory => bytes_tick(value),
        }
    }
}

/// Returns a time given in microseconds, with the unit that suits it.
pub(crate) fn micros(value: f64) -> String {
    glued(Micros(value).to_string())
}

/// Returns a number of bytes with the unit that suits it.
pub(crate) fn bytes(value: f64) -> String {
    // Saturates; a negative or broken number was filtered before.
    glued(Bytes(value as u64).to_string())
}

/// Returns a share as percent.
pub(crate) fn percent(share: f64) -> String {
    glued(Share(share).to_string())
}

/// Returns how busy a process was, in shares of a core; more than one core in cores: `81.0 %`, `1.4 cores`.
pub(crate) fn busy(share: f64) -> String {
    if share > 1.0 { format!("{share:.1}\u{a0}cores") } else { percent(share) }
}

/// Returns a share as percent without spare digits: `100 %`, `1 %`, `0.5 %`.
pub(crate) fn percent_short(share: f64) -> String {
    format!("{}\u{a0}%", trimmed(share * 100.0))
}

/// Returns a ratio: `1.02 ×`, `14 ×`.
pub(crate) fn times(value: f64) -> String {
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$}\u{a0}×")
}

/// Returns a plain number with three digits that matter: `2.01`, `0.064`, `43.5`, `1,204`.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 {
        "0".to_owned()
    } else if size < 0.0005 {
        "< 0.001".replace(' ', "\u{a0}")
    } else if size < 0.0995 {
        format!("{value:.3}")
    } else if size < 9.995 {
        format!("{value:.2}")
    } else if size < 99.95 {
        format!("{value:.1}")
    } else {
        count(value.round() as u64)
    }
}

/// Returns a whole number with commas: `10,000`.
pub(crate) fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (nth, digit) in digits.chars().enumerate() {
        if nth > 0 && (digits.len() - nth).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns how a model is called in a sentence. The short name stays in charts and tables, because it is what
/// one types.
pub(crate) fn in_words(model: &str) -> &str {
    match model {
        "threads" => "a thread per connection",
        "epoll-lt" => "level-triggered epoll",
        "epoll-et" => "edge-triggered epoll",
        "uring" => "single-shot io_uring",
        "uring-multishot" => "multishot io_uring",
        "engine-io_uring" => "the engine on io_uring",
        "engine-epoll" => "the engine on epoll",
        "engine-poll" => "the engine on poll",
        "engine-select" => "the engine on select",
        "engine-threads" => "the engine on threads",
        other => other,
    }
}

/// Returns what a model does, for the list of names; `None` for a program that is not ours.
pub(crate) fn how_it_works(model: &str) -> Option<&'static str> {
    Some(match model {
        "threads" => "one blocking thread for each connection.",
        "select" => {
            "one thread asks with select(2) which connections are ready, by a bit map of at most 1,024 descriptors."
        }
        "poll" => "one thread asks with poll(2), handing the kernel the whole list of connections each time.",
        "epoll-lt" => {
            "one thread, epoll(7), level-triggered: the kernel keeps the list and repeats what is ready."
        }
        "epoll-et" => "one thread, epoll(7), edge-triggered: the kernel reports each change once.",
        "uring" => "one thread, io_uring, one submission for each receive and each send.",
        "uring-multishot" => {
            "one thread, io_uring, one standing receive per connection that takes buffers from a shared ring."
        }
        "engine-threads" => {
            "one task for each connection on the engine, with a worker thread for each that waits."
        }
        "engine-select" => {
            "one task for each connection on the engine, which attempts what select(2) says is ready."
        }
        "engine-poll" => {
            "one task for each connection on the engine, which attempts what poll(2) says is ready."
        }
        "engine-epoll" => {
            "one task for each connection on the engine, which attempts, and waits with epoll(7)."
        }
        "engine-io_uring" => "one task for each connection on the engine, which submits to io_uring.",
        _ => return None,
    })
}

/// Returns the mark of a verdict behind a number.
pub(crate) fn flag(cell: &Cell) -> &'static str {
    match cell.verdict.level {
        Level::Valid => "",
        Level::Suspect => " ?",
        Level::Invalid => " !",
    }
}

/// Returns what a limiter means in a word or two.
pub(crate) fn limiter(cell: &Cell) -> &'static str {
    match cell.limiter {
        Some(Limiter::Server) => "server",
        Some(Limiter::Client) => "client",
        Some(Limiter::Neither) => "neither",
        None => UNKNOWN,
    }
}

/// Number and unit stay on one line.
fn glued(text: String) -> String {
    text.replace(' ', "\u{a0}")
}

/// At most three digits, no zeros at the end: `2.5`, `10`, `0.02`.
pub(crate) fn trimmed(value: f64) -> String {
    let text = match value.abs() {
        size if size < 0.1 => format!("{value:.4}"),
        size if size < 10.0 => format!("{value:.2}"),
        size if size < 1000.0 => format!("{value:.1}"),
        _ => return count(value.round() as u64),
    };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn bytes_tick(value: f64) -> String {
    let (value, unit) = match value {
        v if v >= 1024.0 * 1024.0 * 1024.0 => (v / (1024.0 * 1024.0 * 1024.0), "GiB"),
        v if v >= 1024.0 * 1024.0 => (v / (1024.0 * 1024.0), "MiB"),
        v if v >= 1024.0 => (v / 1024.0, "KiB"),
        v => (v, "B"),
    };
    format!("{} {unit}", trimmed(value))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn numbers_keep_the_digits_that_matter() {
        let cases = [
            (0.0, "0"),
            (0.064, "0.064"),
            (2.006, "2.01"),
            (43.46, "43.5"),
            (1204.4, "1,204"),
            (0.0001, "<\u{a0}0.001"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
        assert_eq!(count(1_000_000), "1,000,000");
        assert_eq!(count(999), "999");
    }

    #[test]
    fn ticks_have_no_spare_zeros() {
        assert_eq!(Figure::Cpu.tick(2.50), "2.5");
        assert_eq!(Figure::P99.tick(20_000.0), "20 ms");
        assert_eq!(Figure::Rate.tick(50_000.0), "50 k");
        assert_eq!(Figure::Memory.tick(4.0 * 1024.0 * 1024.0), "4 MiB");
        assert_eq!(Figure::Syscalls.tick(0.02), "0.02");
    }

    #[test]
    fn a_number_that_is_none_is_not_drawn() {
        let mut record = super::super::sample::floor();
        record.cells[0].server.cpu_us_per_request = Some(f64::NAN);
        assert_eq!(Figure::Cpu.value(&record.cells[0]), None);
    }
}
