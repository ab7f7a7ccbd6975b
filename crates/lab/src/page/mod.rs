//! The page: a record as one self-contained HTML file.
//!
//! The answer in plain language comes first, then its reliability, then charts with their tables, then
//! everything needed to check and repeat the run. The page is a pure function of the record, needs no script
//! and fetches nothing. `opening`, `trust`, `sections`, `claims`, `facts` and `embedded` are its parts from
//! top to bottom. They use `answer` and `guide` for sentences, `figure` for numbers, `shape` for descriptions
//! of loads, `charts` and `spectrum` for charts (drawn with `svg`), and `tables` for tables. The style sheets
//! define the appearance.
//!
//! Each part has a size limit, so the page stays below [`BYTES_MAX`] whatever the record holds. Start at
//! [`html`].

pub(crate) mod answer;
mod charts;
mod claims;
mod embedded;
mod facts;
pub(crate) mod figure;
pub(crate) mod guide;
mod memory;
mod opening;
#[cfg(test)]
pub(crate) mod sample;
mod sections;
pub(crate) mod shape;
mod spectrum;
mod svg;
mod tables;
mod trust;

use figure::Figure;
use ringroad_measure::record::Record;
use sections::block;
pub use svg::escape;

/// The page stays below this, so that it can be mailed and opens at once on a phone. Bytes.
pub const BYTES_MAX: usize = 600_000;

/// The colours by name, light and dark; the style of charts; and that of the page.
const COLOURS: &str = include_str!("colours.css");
const CHART: &str = include_str!("chart.css");
const STYLE: &str = include_str!("style.css");

/// Maximum sizes of the parts except charts and the record, in bytes: several times those of our suites.
/// Charts get the rest.
mod room {
    pub(super) const OPENING: usize = 60_000;
    pub(super) const TRUST: usize = 60_000;
    pub(super) const CLAIMS: usize = 230_000;
    pub(super) const GLOSSARY: usize = 16_000;
    pub(super) const MACHINE: usize = 24_000;
    pub(super) const AGAIN: usize = 8_000;
    /// Tags around the parts, a name that may be long, and the sentence about a record that does not fit.
    pub(super) const FRAME: usize = 4_000;
    /// Up to this size, charts and tables take precedence over the record's single runs; above it they
    /// follow.
    pub(super) const DRAWN: usize = 300_000;
    /// Charts get at least this many bytes.
    const DRAWN_MIN: usize = 180_000;
    const STYLES: usize = super::COLOURS.len() + super::CHART.len() + super::STYLE.len();
    const PARTS: usize = OPENING + TRUST + CLAIMS + GLOSSARY + MACHINE + AGAIN;
    const _: () = assert!(FRAME + STYLES + PARTS + DRAWN_MIN < super::BYTES_MAX);
}

/// Returns the page of a record: a complete HTML document in UTF-8, also well-formed as XML, without any
/// external reference.
///
/// It stays below [`BYTES_MAX`]. It contains the record as JSON in
/// `<script type="application/json" id="record">`, complete if it fits; otherwise without its histograms,
/// then series, then single runs, and finally not at all. Of a record with very many loads fewer are drawn.
/// The page states what is left out.
pub fn html(record: &Record) -> String {
    let name = |text: &str| svg::shortened_to(text, NAME_CHARS_MAX);
    let suite = record.suite.as_deref().map(|suite| format!(" {}", name(suite))).unwrap_or_default();
    let title = format!("ringroad {}{suite}", name(&record.tool));
    let mut page = String::with_capacity(256 * 1024);
    page.push_str(&format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta name=\"color-scheme\" content=\"light dark\"/>\n<title>{}</title>\n<style>\n{COLOURS}{CHART}{STYLE}</style>\n</head>\n<body>\n",
        escape(&title)
    ));
    page.push_str(&fitting("The answer", room::OPENING, &|lists| opening::opening(record, &title, lists)));
    page.push_str(&fitting("How reliable is this?", room::TRUST, &|lists| trust::trust(record, lists)));
    let rest = [
        fitting("Claimed and measured", room::CLAIMS, &|lists| claims::section(record, lists)),
        fitting("Glossary", room::GLOSSARY, &|_| facts::glossary(record)),
        fitting("The machine", room::MACHINE, &|_| facts::machine(record)),
        fitting("Run it again", room::AGAIN, &|_| facts::again(record)),
    ]
    .concat();
    let left = BYTES_MAX - room::FRAME - page.len() - rest.len();
    // Charts first, then single runs, then more charts, then the histograms.
    let charts = left.min(room::DRAWN.max(left.saturating_sub(embedded::without_histograms(record))));
    page.push_str(&sections::fitting(record, charts));
    page.push_str(&rest);
    page.push_str(&embedded::embedded(record, BYTES_MAX.saturating_sub(room::FRAME + page.len())));
    page.push_str("</body>\n</html>\n");
    page
}

/// Maximum characters of a name in the page's title.
const NAME_CHARS_MAX: usize = 200;

/// Returns a part with its lists; without them if it would exceed `room` bytes; or the sentence that it is
/// too large.
fn fitting(title: &str, room: usize, part: &dyn Fn(bool) -> String) -> String {
    [true, false].into_iter().map(part).find(|html| html.len() <= room).unwrap_or_else(|| {
        block(title, "<p>Too large for this page; it is in the file <code>record.json</code>.</p>\n")
    })
}

/// Returns the most informative chart of a record as a separate SVG file, light and dark: CPU per request
/// over the parameter that varies most, or, if none varies, of each program under the main load. Without
/// measured CPU time it shows the latencies. `None` if there is neither.
pub fn chart(record: &Record) -> Option<String> {
    let style = format!("{COLOURS}{CHART}");
    let loads = shape::loads(record);
    shape::drawn(record)
        .iter()
        // Of equals the first, which is HTTP in our suites.
        .rev()
        .max_by_key(|family| family.values.len())
        .and_then(|family| charts::family_file(record, family, Figure::Cpu, &style))
        .or_else(|| charts::load_file(record, answer::main_load(&loads)?, Figure::Cpu, &style))
        .or_else(|| loads.iter().find_map(|load| spectrum::file(record, load, &style)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use ringroad_measure::record::Cell;
    use serde_json::Value;

    const HOSTILE: &str = "</script><script>alert('x')</script>&amp;\"<img src=x onerror=y>\u{7}\u{1b}[2J";

    /// Returns a page as XML. It is well-formed, so one strict reader finds every escape that was forgotten.
    fn parsed<'a>(page: &'a str) -> roxmltree::Document<'a> {
        let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
        roxmltree::Document::parse_with_options(page, options).unwrap()
    }

    /// Returns the record out of the page, as a script would take it.
    fn record_in(page: &str) -> Record {
        let start = page.find("id=\"record\">").unwrap() + "id=\"record\">".len();
        let end = start + page[start..].find("</script").unwrap();
        serde_json::from_str(&page[start..end]).unwrap()
    }

    /// Returns a record as it comes back from a file: sentences for reasons, floats as the parser rounds
    /// them.
    fn read_back(record: &Record) -> Record {
        serde_json::from_str(&serde_json::to_string(record).unwrap()).unwrap()
    }

    fn text_of(document: &roxmltree::Document<'_>) -> String {
        document.descendants().filter(|node| node.is_text()).filter_map(|node| node.text()).collect()
    }

    #[test]
    fn the_page_is_well_formed_and_small() {
        for record in [sample::quick(), sample::floor()] {
            let page = html(&record);
            parsed(&page);
            assert!(page.len() < BYTES_MAX, "{} bytes", page.len());
        }
    }

    #[test]
    fn the_page_refers_to_nothing_outside_itself() {
        let page = html(&sample::floor());
        for outside in ["http://", "https://", "src=", "href=", "@import", "url(", "<link", "<iframe"] {
            assert!(!page.contains(outside), "{outside}");
        }
        let scripts = page.matches("<script").count();
        assert_eq!(scripts, 1, "the record and no code");
    }

    #[test]
    fn every_cell_is_in_the_page_also_a_skipped_one() {
        let record = sample::floor();
        let page = html(&record);
        let document = parsed(&page);
        // The first table is that of CPU per request: as many rows as cells, besides the names of loads.
        let table = document.descendants().find(|node| node.has_tag_name("table")).unwrap();
        let rows = table
            .descendants()
            .filter(|node| node.has_tag_name("tr") && node.children().any(|child| child.has_tag_name("td")));
        assert_eq!(rows.count(), record.cells.len());
        for cell in record.cells.iter().filter_map(|cell| cell.skipped.as_deref()) {
            assert!(text_of(&document).contains(cell), "{cell}");
        }
    }

    #[test]
    fn the_answer_comes_before_the_charts_and_the_warning_before_the_answer() {
        let page = html(&sample::floor());
        let at = |what: &str| page.find(what).unwrap_or_else(|| panic!("{what} is not in the page"));
        assert!(at("Do not use these numbers") < at("On this machine, with"));
        assert!(at("On this machine, with") < at("Not measured here"));
        assert!(at("Not measured here") < at("<svg"));
    }

    #[test]
    fn a_record_without_cpu_time_has_its_latencies_charted() {
        let mut record = sample::quick();
        assert!(chart(&record).unwrap().contains("CPU per request"));
        record.cells.iter_mut().for_each(|cell| cell.server.cpu_us_per_request = None);
        assert!(chart(&record).unwrap().contains("Percentile spectrum of latency"));
        for cell in &mut record.cells {
            (cell.histogram, cell.latency_us.response) = (None, None);
        }
        assert_eq!(chart(&record), None);
    }

    #[test]
    fn an_invalid_run_opens_with_its_warning_and_recommends_nothing() {
        let has = |record: &Record| {
            let page = html(record);
            ["class=\"lead\"", "Which to use on this machine"].map(|part| page.contains(part))
        };
        let mut record = sample::quick();
        assert_eq!(has(&record), [true, true]);
        record.cells[1].verdict = ringroad_measure::Verdict::of([ringroad_measure::Caveat::NothingMeasured]);
        sample::judge(&mut record);
        assert_eq!(has(&record), [false, false]);
        assert!(html(&record).contains("Do not use these numbers"));
    }

    #[test]
    fn hostile_names_stay_text_everywhere() {
        let mut record = sample::floor();
        for cell in record.cells.iter_mut().filter(|cell| cell.model == "poll") {
            cell.model = HOSTILE.to_owned();
            cell.id = format!("{HOSTILE}/{}", cell.load);
        }
        record.cells[3].skipped = Some(HOSTILE.to_owned());
        record.suite = Some(HOSTILE.to_owned());
        record.title = Some(HOSTILE.to_owned());
        record.baseline = Some(HOSTILE.to_owned());
        record.command.push(HOSTILE.to_owned());
        record.host.insert(HOSTILE.to_owned(), Value::String(HOSTILE.to_owned()));
        record.verdict.add(ringroad_measure::Caveat::Other(HOSTILE.to_owned()));
        let page = html(&record);
        let document = parsed(&page);
        let count = |tag: &str| document.descendants().filter(|node| node.has_tag_name(tag)).count();
        assert_eq!((count("script"), count("img")), (1, 0));
        assert!(text_of(&document).contains("</script><script>alert('x')</script>"));
        let embedded = record_in(&page);
        assert_eq!(embedded.title.as_deref(), Some(HOSTILE));
        assert_eq!(embedded.command, record.command);
    }

    #[test]
    fn the_whole_record_can_be_taken_out_of_the_page() {
        let record = sample::quick();
        assert!(record_in(&html(&record)) == read_back(&record));
    }

    #[test]
    fn a_record_too_large_for_the_page_loses_histograms_first_and_says_so() {
        let mut record = sample::quick();
        for cell in &mut record.cells {
            cell.histogram = Some("A".repeat(60_000));
        }
        let page = html(&record);
        assert!(page.len() < BYTES_MAX, "{} bytes", page.len());
        assert!(page.contains("without its histograms,"));
        let embedded = record_in(&page);
        assert!(embedded.cells.iter().all(|cell| cell.histogram.is_none()));
        assert!(embedded.cells[0].runs == read_back(&record).cells[0].runs);
    }

    #[test]
    fn unknown_facts_and_numbers_are_said_to_be_unknown() {
        let mut record = sample::quick();
        record.cells[0].server.rss_bytes = None;
        record.host = serde_json::Map::new();
        record.host.insert("cpu_model".to_owned(), Value::Null);
        record.host.insert("memory_total_bytes".to_owned(), Value::from(1_048_576_u64));
        let page = html(&record).replace('\u{a0}', " ");
        assert!(page.contains("<dt>cpu model</dt><dd class=\"absent\">unknown</dd>"));
        assert!(page.contains("<dt>memory total</dt><dd>1.00 MiB</dd>"));
        let document = parsed(&page);
        let empty_rows = document.descendants().filter(|node| {
            node.attribute("class") == Some("row absent")
                && node.descendants().any(|n| n.text() == Some("unknown"))
        });
        assert_eq!(empty_rows.count(), 1);
    }

    #[test]
    fn the_baseline_is_not_unknown_to_itself() {
        let mut record = sample::quick();
        record.cells.retain(|cell| cell.model == "epoll-et");
        record.cells.iter_mut().for_each(|cell| cell.ratio = None);
        let loads = shape::loads(&record);
        let table = tables::of_figure(&record, &loads, Figure::Ratio);
        assert!(table.contains("by definition") && table.contains("1.00\u{a0}×"), "{table}");
        assert!(!table.contains(figure::UNKNOWN), "{table}");
    }

    #[test]
    fn an_empty_record_still_makes_a_page() {
        let mut record = sample::quick();
        record.cells.clear();
        record.host.clear();
        record.control.clear();
        let page = html(&record);
        parsed(&page);
        assert!(page.contains("Nothing was measured"));
    }

    #[test]
    fn a_program_of_any_name_that_stops_early_is_drawn() {
        let name = "my-server-with-a-name-of-fifty-characters-or-a-few-more";
        let mut record = sample::floor();
        for cell in record.cells.iter_mut().filter(|cell| cell.model == "select") {
            cell.model = name.to_owned();
            cell.id = format!("{name}/{}", cell.load);
        }
        assert!(record.cells.iter().any(|cell| cell.model == name && cell.skipped.is_some()));
        let page = html(&record);
        assert!(text_of(&parsed(&page)).contains(name));
    }

    #[test]
    fn lines_appear_only_where_connections_vary() {
        assert!(!html(&sample::quick()).contains("connections · log scale"));
        assert!(html(&sample::floor()).contains("connections · log scale"));
    }

    fn changed(change: &dyn Fn(&mut Record)) -> Record {
        let mut record = sample::quick();
        change(&mut record);
        record
    }

    /// So many cells, without their runs: comparing those takes long.
    fn cells(count: usize, change: &dyn Fn(usize, &mut Cell)) -> Record {
        changed(&|record| {
            record.cells.iter_mut().for_each(|cell| cell.runs.clear());
            let some = std::mem::take(&mut record.cells);
            record.cells = some.iter().cycle().take(count).cloned().collect();
            record.cells.iter_mut().enumerate().for_each(|(nth, cell)| change(nth, cell));
        })
    }

    /// Loads that have nothing in common.
    fn strangers(loads: usize) -> Record {
        cells(14 * loads, &|nth, cell| {
            cell.load = format!("load-{}", nth / 14);
            cell.variant = Some(format!("kind {}", "z".repeat(nth / 14)));
        })
    }

    /// Returns a record much larger than any of ours, in one way after another.
    fn oversized() -> Vec<(&'static str, Record)> {
        let long = || "x&".repeat(150_000);
        // In each of twenty cells, which many tables name.
        let rather_long = || "x&".repeat(20_000);
        let caveat = |nth: usize| ringroad_measure::Caveat::Other(format!("reason {}", "y".repeat(8 * nth)));
        vec![
            ("many loads that have nothing in common", strangers(30)),
            (
                "many lines",
                cells(280, &|nth, cell| {
                    cell.connections = 1 + (nth / 14 % 5) as u32;
                    cell.pipeline = 1 + (nth / 70) as u32;
                    cell.load = format!("load-{}", nth / 14);
                }),
            ),
            (
                "many programs",
                cells(140, &|nth, cell| {
                    (cell.load, cell.protocol) = ("http-64".to_owned(), "http".to_owned());
                    cell.model = format!("model-{nth}");
                }),
            ),
            (
                "doubt after doubt",
                cells(150, &|nth, cell| cell.verdict = ringroad_measure::Verdict::of([caveat(nth)])),
            ),
            ("long reasons", cells(20, &|_, cell| cell.skipped = Some(rather_long()))),
            ("long names", cells(20, &|_, cell| cell.model = rather_long())),
            ("a long title", changed(&|record| record.title = Some(long()))),
            ("a long suite", changed(&|record| record.suite = Some(long()))),
            ("a long tool", changed(&|record| record.tool = long())),
            ("a long command", changed(&|record| record.command.push(long()))),
            ("a long start", changed(&|record| record.started = long())),
            (
                "a machine of many facts",
                changed(&|record| {
                    record.host.insert("fact".to_owned(), Value::from(vec![long(); 3]));
                }),
            ),
            (
                "many claims",
                changed(&|record| {
                    record.claims = sample::claims().into_iter().cycle().take(3000).collect();
                }),
            ),
        ]
    }

    #[test]
    fn the_page_of_any_record_stays_small_and_says_what_it_leaves_out() {
        for (what, record) in oversized() {
            let page = html(&record);
            assert!(page.len() < BYTES_MAX, "{what}: {} bytes", page.len());
            parsed(&page);
            let whole = page.contains("The whole record is inside this page");
            let said = page.contains("<code>record.json</code>");
            assert!(whole || said, "{what}: nothing is said of what is left out");
        }
    }

    #[test]
    fn of_many_loads_that_belong_to_no_line_the_main_one_is_drawn_and_all_are_in_the_table() {
        let page = html(&strangers(40));
        let charts = page.matches("<svg").count();
        assert!((4..30).contains(&charts), "{charts} charts of 40 loads");
        assert_eq!(page.matches("<th class=\"load\"").count(), 40, "a load is in no table");
    }
}
