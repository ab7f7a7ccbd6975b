//! The sections of the page that show numbers: for each a text beside it, charts, and the table behind them.
//!
//! A section is drawn only where the record holds what it shows. Charts are `charts`' and `spectrum`'s part,
//! tables `tables`', what others claimed `claims`'. Start at [`fitting`].

use super::answer;
use super::charts;
use super::figure::Figure;
use super::memory;
use super::shape::{self, Axis, Family, Load};
use super::spectrum;
use super::svg::escape;
use super::tables;
use ringroad_measure::record::Record;

/// How much of a record is drawn: a large one has to do with less, so that the page stays small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Every load by itself, and a table behind each section.
    Full,
    /// What varies as lines; a single load by itself only where it belongs to no line.
    Lines,
    /// Lines, the main load by itself, and one table for all.
    Least,
}

/// The figures that have a section, in the order a reader meets them.
const FIGURES: [Figure; 6] =
    [Figure::Rate, Figure::P50, Figure::Cpu, Figure::Ratio, Figure::Syscalls, Figure::Memory];

/// Returns the sections that the record has numbers for, with as much detail as fits into `room` bytes.
pub(crate) fn fitting(record: &Record, room: usize) -> String {
    let loads = shape::loads(record);
    let mut families = shape::drawn(record);
    let of = |families: &[Family<'_>], detail: Detail| all(record, &loads, families, detail);
    for detail in [Detail::Full, Detail::Lines] {
        let html = of(&families, detail);
        if html.len() <= room {
            return html;
        }
    }
    let table = numbers(record, &loads, room).len();
    // The longest lines say most; where they are of one length, those of the suite's first loads.
    for most in [usize::MAX, 16, 8, 4, 2, 1, 0] {
        longest(&mut families, most);
        let html = of(&families, Detail::Least);
        if html.len() + table.min(room / 3) <= room {
            return format!("{html}{}", numbers(record, &loads, room - html.len()));
        }
    }
    numbers(record, &loads, room)
}

/// Leaves so many families, those with most places on their axis, in their order.
fn longest(families: &mut Vec<Family<'_>>, most: usize) {
    let mut kept: Vec<usize> = (0..families.len()).collect();
    kept.sort_by_key(|nth| std::cmp::Reverse(families[*nth].values.len()));
    kept.truncate(most);
    let mut nth = 0;
    families.retain(|_| {
        nth += 1;
        kept.contains(&(nth - 1))
    });
}

/// Every section that the record has numbers for.
fn all(record: &Record, loads: &[Load<'_>], families: &[Family<'_>], detail: Detail) -> String {
    let drawing = Drawing { record, loads, families, detail };
    let mut html = String::new();
    for figure in FIGURES {
        html.push_str(&drawing.figure(figure));
    }
    for axis in Axis::ALL.into_iter().filter(|axis| *axis != Axis::Connections) {
        html.push_str(&drawing.axis(axis));
    }
    html
}

/// One table of all, as much of it as fits into `room` bytes.
fn numbers(record: &Record, loads: &[Load<'_>], room: usize) -> String {
    /// What stands around the table.
    const AROUND: usize = 500;
    let table = tables::of_all(record, loads, room.saturating_sub(AROUND));
    if table.is_empty() || record.cells.is_empty() {
        return String::new();
    }
    let gist = "One row for each program under each load: they are too many to have a chart each.";
    section("All the numbers", gist, "", &folded("Open the table", &table))
}

/// Returns a section without a text beside it.
pub(crate) fn block(title: &str, html: &str) -> String {
    section(title, "", "", html)
}

/// Returns a title with what explains it at the side, and the content.
pub(crate) fn section(title: &str, gist: &str, beside: &str, html: &str) -> String {
    let paragraph =
        |text: &str| if text.is_empty() { String::new() } else { format!("<p>{}</p>\n", escape(text)) };
    format!(
        "<section>\n<div class=\"aside\"><h2>{}</h2>\n{}{}</div>\n<div class=\"main\">\n{html}</div>\n</section>\n",
        escape(title),
        paragraph(gist),
        paragraph(beside),
    )
}

/// What is drawn, from what.
struct Drawing<'d, 'a> {
    record: &'a Record,
    loads: &'d [Load<'a>],
    families: &'d [Family<'a>],
    detail: Detail,
}

/// A caption and what stands under it.
type Panel = (String, String);

impl<'a> Drawing<'_, 'a> {
    /// Returns the section of a figure; nothing if no cell has it.
    fn figure(&self, figure: Figure) -> String {
        let record = self.record;
        let over_connections = || self.families.iter().filter(|family| family.axis == Axis::Connections);
        // One chart of lines holds one figure; of the two latencies the tail is the one that tells.
        let drawn = if figure == Figure::P50 { Figure::P99 } else { figure };
        let mut lines: Vec<Panel> = Vec::new();
        if figure != Figure::Ratio && figure != Figure::Memory {
            let suffix = if figure == Figure::P50 { ", p99" } else { "" };
            lines.extend(over_connections().filter_map(|family| {
                Some((format!("{}{suffix}", family.span()), charts::family_chart(record, family, drawn)?))
            }));
        }
        let mut rows: Vec<(&Load<'a>, String)> = Vec::new();
        for load in self.loads.iter().filter(|load| self.shows(load, figure, !lines.is_empty())) {
            rows.extend(charts::load_chart(record, load, figure).map(|chart| (load, chart)));
        }
        let memory: Vec<Panel> = if figure == Figure::Memory { self.memory() } else { Vec::new() };
        if lines.is_empty() && rows.is_empty() && memory.is_empty() {
            return String::new();
        }
        let mut html = wide(&lines);
        if figure == Figure::P50 {
            html.push_str(&self.spectra());
        }
        html.push_str(&wide(&memory));
        let main = rows.iter().position(|(load, _)| self.is_main(load));
        let mut panels_of: Vec<Panel> = Vec::new();
        for (load, chart) in rows {
            panels_of.push((load.title.clone(), chart));
        }
        // Lines already tell most of it; the charts of the single loads are one click away. Where there are
        // no lines the main load stands for all.
        let told = !lines.is_empty() || !memory.is_empty();
        if told && panels_of.len() > 2 || panels_of.len() > 8 {
            let count = panels_of.len();
            let others = match main.filter(|_| !told) {
                Some(nth) => {
                    html.push_str(&panels(&[panels_of.remove(nth)]));
                    format!("The other loads ({} charts)", count - 1)
                }
                None => format!("Each load by itself ({count} charts)"),
            };
            html.push_str(&folded(&others, &panels(&panels_of)));
        } else {
            html.push_str(&panels(&panels_of));
        }
        if self.detail != Detail::Least {
            html.push_str(&folded("The numbers", &tables::of_figure(record, self.loads, figure)));
        }
        section(charts::heading(figure), figure.gist(), beside(record, figure), &html)
    }

    /// Returns whether a load gets a chart of its own for a figure.
    fn shows(&self, load: &Load<'_>, figure: Figure, lines: bool) -> bool {
        let in_a_line = || {
            self.families.iter().any(|family| {
                family.cells.iter().any(|cell| load.cells.iter().any(|other| std::ptr::eq(*cell, *other)))
            })
        };
        match self.detail {
            Detail::Full => true,
            // The ratios have no lines of their own, and are what the answer stands on.
            Detail::Lines => !lines || figure == Figure::Ratio || !in_a_line(),
            Detail::Least => self.is_main(load) && (figure == Figure::Ratio || !in_a_line()),
        }
    }

    fn is_main(&self, load: &Load<'_>) -> bool {
        answer::main_load(self.loads).is_some_and(|main| std::ptr::eq(main, load))
    }

    /// Returns the spectra of the main load and of the one with most connections; the others folded away.
    fn spectra(&self) -> String {
        let most = self
            .loads
            .iter()
            .max_by_key(|load| load.cells.first().map(|cell| (cell.connections, cell.protocol == "http")));
        let mut shown: Vec<Panel> = Vec::new();
        let mut hidden: Vec<Panel> = Vec::new();
        for load in self.loads {
            let main = self.is_main(load) || most.is_some_and(|most| std::ptr::eq(most, load));
            if !main && self.detail != Detail::Full {
                continue;
            }
            if let Some(chart) = spectrum::chart(self.record, load) {
                let caption = format!("Percentile spectrum: {}", load.title);
                if main { &mut shown } else { &mut hidden }.push((caption, chart));
            }
        }
        let mut html = wide(&shown);
        if !hidden.is_empty() {
            html.push_str(&folded(
                &format!("The spectra of the other loads ({})", hidden.len()),
                &wide(&hidden),
            ));
        }
        html
    }

    /// Memory of one connection, for the loads with most of them.
    fn memory(&self) -> Vec<Panel> {
        let with: Vec<(&Load<'a>, String)> = self
            .loads
            .iter()
            .filter_map(|load| Some((load, charts::memory_chart(self.record, load)?)))
            .collect();
        let connections = |load: &Load<'_>| load.cells.first().map_or(0, |cell| cell.connections);
        let most = with.iter().map(|(load, _)| connections(load)).max();
        with.into_iter()
            .filter(|(load, _)| Some(connections(load)) == most)
            .take(2)
            .map(|(load, chart)| {
                (format!("One connection of {}", load.title), format!("<div class=\"bounded\">{chart}</div>"))
            })
            .collect()
    }

    /// Returns the section of what varies besides connections; nothing if nothing does.
    fn axis(&self, axis: Axis) -> String {
        let record = self.record;
        let families: Vec<&Family<'a>> = self.families.iter().filter(|family| family.axis == axis).collect();
        let mut html = String::new();
        for family in &families {
            let mut charts: Vec<Panel> = Vec::new();
            for figure in [Figure::Cpu, Figure::P99, Figure::Rate] {
                if let Some(chart) = charts::family_chart(record, family, figure) {
                    charts.push((format!("{}: {}", charts::heading(figure), family.span()), chart));
                }
            }
            let Some(first) = charts.first() else { continue };
            html.push_str(&wide(std::slice::from_ref(first)));
            let mut folded_away = wide(&charts[1..]);
            for figure in [Figure::Cpu, Figure::P99, Figure::Rate, Figure::Syscalls] {
                if family.cells.iter().any(|cell| figure.value(cell).is_some()) {
                    let table = tables::of_family(record, family, figure);
                    folded_away.push_str(&format!("<h3>{}</h3>\n{table}", escape(charts::heading(figure))));
                }
            }
            html.push_str(&folded("Tail, rate and the numbers", &folded_away));
        }
        if html.is_empty() {
            return String::new();
        }
        let (title, gist) = match axis {
            Axis::Connections => ("Connections", ""),
            Axis::Active => (
                "When most connections are idle",
                "The same number of connections, of which fewer and fewer send. select and poll look at every connection \
                 on each call, so the fewer are active, the more of their work is for nothing: the cliff. epoll and \
                 io_uring get the ready ones only.",
            ),
            Axis::Payload => (
                "As requests grow",
                "The larger a request, the more of its cost is moving bytes, which is the same for all.",
            ),
            Axis::Pipeline => (
                "Several requests in flight",
                "With several requests on one connection, one entry into the kernel brings and sends several.",
            ),
            Axis::Variant if families.iter().all(|f| f.is_time_of("work") || f.is_time_of("delay")) => (
                "With work in the application",
                "The handler's work costs the same with every driver, so the differences shrink as it grows.",
            ),
            Axis::Variant => ("One thing changed", "The same program with one of its settings changed."),
        };
        section(title, gist, "Behind the line below each chart: the tail, the rate, and the numbers.", &html)
    }
}

/// Returns what to know to read the charts of a figure.
fn beside(record: &Record, figure: Figure) -> &'static str {
    match figure {
        Figure::Cpu => {
            "Bars in colour are the cheapest, or cannot be told from it. The first piece of a bar is the program's own code, \
             the rest the kernel's work for it. Whiskers are 95 % intervals."
        }
        Figure::Ratio => "= means no significant difference.",
        // A load may be of any kind, and its title says of which.
        Figure::P50 if record.tool == "load" => {
            "In bars the dot is the median, the stroke the 99th percentile. The percentile axis is logarithmic, so that \
             rare slow requests are visible."
        }
        Figure::P50 => {
            "In bars the dot is the median, the stroke the 99th percentile. All in a closed loop at full load: each \
             connection sends again when it has its answer. The percentile axis is logarithmic, so that rare slow \
             requests are visible."
        }
        Figure::Rate => "The word behind a number is what limited it: server, client, or neither.",
        Figure::Memory if !memory::slab_alone(record) => {
            "The kernel's part is the growth of its slab, its threads' stacks and its page tables on the whole machine: \
             sockets, files, and what epoll and io_uring keep, for both ends of each connection, and a stack for each thread."
        }
        Figure::Memory => {
            "The kernel's part is the growth of its slab on the whole machine: sockets, files, and what epoll and io_uring \
             keep, for both ends of each connection. The stacks of threads are not in it."
        }
        Figure::P99 | Figure::Syscalls => "",
    }
}

/// Charts as wide as the column.
pub(crate) fn wide(charts: &[Panel]) -> String {
    charts.iter().map(|chart| figure(chart, "lines")).collect()
}

/// Small charts side by side.
pub(crate) fn panels(charts: &[Panel]) -> String {
    if charts.is_empty() {
        return String::new();
    }
    let figures: String = charts.iter().map(|chart| figure(chart, "")).collect();
    format!("<div class=\"panels\">\n{figures}</div>\n")
}

fn figure((title, svg): &Panel, class: &str) -> String {
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
    format!("<figure{class}><figcaption>{}</figcaption>{svg}</figure>\n", escape(title))
}

/// Behind a click, and open on paper.
pub(crate) fn folded(summary: &str, html: &str) -> String {
    format!("<details><summary>{}</summary>\n{html}</details>\n", escape(summary))
}
