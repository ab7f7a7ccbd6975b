//! The page: a record as one self-contained HTML file that a person wants to read and an engineer can check.
//!
//! The answer in plain language comes first, then how far to believe it, then charts with the tables behind them,
//! then what is needed to judge and repeat the run. The page is a pure function of the record, needs no script
//! and fetches nothing. It leaves sentences to `answer` and `guide`, numbers to `figure`, what loads are to `shape`,
//! sections to `sections` (with `charts`, `spectrum`, `claims`, `tables` and, drawing, `svg`), looks to the style sheets.
//!
//! Start at [`html`].

pub(crate) mod answer;
mod charts;
mod claims;
pub(crate) mod figure;
pub(crate) mod guide;
mod memory;
#[cfg(test)]
pub(crate) mod sample;
mod sections;
pub(crate) mod shape;
mod spectrum;
mod svg;
mod tables;

use answer::{Answer, Doubt};
use figure::Figure;
use ringroad_measure::Level;
use ringroad_measure::record::{Cell, Record};
use sections::{Detail, folded};
use serde_json::Value;
use shape::Load;
use svg::escape;

/// The page stays below this, so that it can be mailed and opens at once on a phone. Bytes.
pub const BYTES_MAX: usize = 600_000;

/// The colours by their names, light and dark; what a chart looks like; and the page around it.
const COLOURS: &str = include_str!("colours.css");
const CHART: &str = include_str!("chart.css");
const STYLE: &str = include_str!("style.css");

/// What charts and tables may take, however large the record is. Bytes.
const DRAWN_ROOM: usize = 300_000;

/// The page of a record: a whole HTML document, UTF-8, also well-formed as XML, without any reference to
/// something outside itself.
///
/// The record stands in it as JSON in `<script type="application/json" id="record">`. It is whole as long as the
/// page stays below [`BYTES_MAX`]; beyond, histograms, then series, then single runs are left out of the embedded
/// copy, at last all of it, and the page says so. A record with very many loads has fewer of them drawn one by one.
pub fn html(record: &Record) -> String {
    let title = format!(
        "ringroad {}{}",
        record.tool,
        record.suite.as_deref().map(|s| format!(" {s}")).unwrap_or_default()
    );
    let mut page = String::with_capacity(256 * 1024);
    page.push_str(&format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta name=\"color-scheme\" content=\"light dark\"/>\n<title>{}</title>\n<style>\n{COLOURS}{CHART}{STYLE}</style>\n</head>\n<body>\n",
        escape(&title)
    ));
    let loads = shape::loads(record);
    page.push_str(&opening(record, &title));
    page.push_str(&trust(record));
    let rest = [claims::section(record), glossary(record), machine(record), again(record)].concat();
    let taken = page.len() + rest.len() + without_histograms(record);
    page.push_str(&drawn(record, &loads, BYTES_MAX.saturating_sub(taken).max(DRAWN_ROOM)));
    page.push_str(&rest);
    let room = BYTES_MAX.saturating_sub(page.len() + 1024);
    page.push_str(&embedded(record, room));
    page.push_str("</body>\n</html>\n");
    page
}

/// How much the record takes with all its runs: they come before charts that could be spared.
fn without_histograms(record: &Record) -> usize {
    let mut copy = record.clone();
    copy.cells.iter_mut().for_each(|cell| cell.histogram = None);
    json(&copy).len() + 1024
}

/// The sections with charts, with as much detail as fits into `room` bytes.
fn drawn(record: &Record, loads: &[Load<'_>], room: usize) -> String {
    let of = |detail: Detail| sections::all(record, loads, detail);
    let full = of(Detail::Full);
    if full.len() <= room {
        return full;
    }
    let lines = of(Detail::Lines);
    if lines.len() <= room { lines } else { of(Detail::Least) }
}

/// The chart that says most of a record, as an SVG file of its own, light and dark: CPU per request over what varies
/// most, or, where nothing varies, of each program under the main load. `None` if no CPU time was measured.
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
}

/// What the run asked, and the answer.
fn opening(record: &Record, title: &str) -> String {
    let answer = Answer::of(record);
    let level = record.verdict.level;
    let asked =
        record.title.as_deref().map(|title| format!("<h1>{}</h1>\n", escape(title))).unwrap_or_default();
    let facts: Vec<String> = [Some(title.to_owned()), Some(day(&record.started)), machine_in_a_line(record)]
        .into_iter()
        .flatten()
        .map(|fact| escape(&fact))
        .collect();
    let mut html = format!(
        "<header>\n<p class=\"kicker\">{} <span class=\"level {}\">{level}</span></p>\n{asked}",
        facts.join(" · "),
        level_class(level),
    );
    if let Some(warning) = &answer.warning {
        html.push_str(&format!("<p class=\"warning {}\">{}</p>\n", level_class(level), escape(warning)));
    }
    html.push_str(&format!("<p class=\"lead\">{}</p>\n", escape(&answer.lead)));
    if !answer.ranking.is_empty() {
        html.push_str(&format!("<p>{}</p>\n", escape(&answer.ranking.join(" "))));
    }
    // One program alone answers no question of which.
    if shape::models(record).len() > 1 {
        html.push_str(&guide(record));
    }
    if !answer.growth.is_empty() {
        html.push_str(&list("further", &answer.growth));
    }
    if !answer.further.is_empty() {
        html.push_str(&folded("Each load in a sentence", &list("further", &answer.further)));
    }
    if !answer.not_measured.is_empty() {
        html.push_str(&format!(
            "<p class=\"limits\"><b>Not measured here:</b> {}.</p>\n",
            escape(&answer.not_measured.join("; "))
        ));
    }
    html.push_str("</header>\n");
    html
}

fn list(class: &str, sentences: &[String]) -> String {
    let items: String = sentences.iter().map(|text| format!("<li>{}</li>\n", escape(text))).collect();
    format!("<ul class=\"{class}\">\n{items}</ul>\n")
}

/// What to use for what, and which command would tell where this record does not.
fn guide(record: &Record) -> String {
    let rows: String = guide::rows(record)
        .into_iter()
        .map(|row| match row.advice {
            Ok(advice) => format!(
                "<div><dt>{}</dt><dd><b>{}</b></dd><dd class=\"why\">{} <small>{}</small></dd></div>\n",
                escape(row.situation),
                escape(&answer::sentence_start(&advice.best)),
                escape(&advice.evidence),
                escape(&advice.load),
            ),
            Err(suite) => format!(
                "<div class=\"absent\"><dt>{}</dt><dd>Not measured here</dd><dd class=\"why\"><code>ringroad lab run {suite}</code> would</dd></div>\n",
                escape(row.situation),
            ),
        })
        .collect();
    format!("<h2>Which to use on this machine</h2>\n<dl class=\"guide\">\n{rows}</dl>\n")
}

/// The verdict with its reasons, the noise floor, and what was skipped.
fn trust(record: &Record) -> String {
    let ran = record.cells.iter().filter(|cell| cell.skipped.is_none()).count();
    let skipped = record.cells.len() - ran;
    let mut said: Vec<String> = Vec::new();
    said.push(match record.verdict.level {
        Level::Valid => "VALID: no check objected.".to_owned(),
        Level::Suspect => "SUSPECT: the numbers stand, with reasons to doubt some of them.".to_owned(),
        Level::Invalid => {
            "INVALID: some numbers do not mean what their names say; do not use them.".to_owned()
        }
    });
    if record.blocks > 0 {
        let plural = if record.blocks == 1 { "block" } else { "blocks, each" };
        said.push(format!(
            "{} results from {} {plural} with every program once, in random order, as a fresh process.",
            figure::count(ran as u64),
            figure::count(u64::from(record.blocks)),
        ));
    }
    said.extend(answer::noise(record));
    if let Some(share) = record.harness_cpu_share.filter(|share| share.is_finite()) {
        said.push(format!("The harness itself used {} of one core.", figure::percent(share)));
    }
    let mut html = format!("<p>{}</p>\n", escape(&said.join(" ")));
    let doubts = answer::doubts(record);
    if !doubts.is_empty() {
        let items: String = doubts.iter().map(doubt_item).collect();
        let list = format!("<ul class=\"doubts\">\n{items}</ul>\n");
        // A few are read at once; many would stand between the reader and the figures.
        if doubts.len() <= 2 {
            html.push_str(&list);
        } else {
            html.push_str(&folded(&format!("{} kinds of doubt, each with its results", doubts.len()), &list));
        }
    }
    if skipped > 0 {
        let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
        for load in shape::loads(record) {
            for cell in &load.cells {
                let Some(reason) = cell.skipped.as_deref() else { continue };
                let who = format!("{}, {}", cell.model, load.title);
                match reasons.iter_mut().find(|(known, _)| *known == reason) {
                    Some((_, cells)) => cells.push(who),
                    None => reasons.push((reason, vec![who])),
                }
            }
        }
        let items: String = reasons
            .into_iter()
            .map(|(reason, cells)| {
                let who = format!("{}:", cells.join("; "));
                format!("<li><b>{}</b> {}</li>\n", escape(&who), escape(&answer::sentence(reason)))
            })
            .collect();
        html.push_str(&folded(
            &format!("Skipped ({skipped})"),
            &format!("<ul class=\"doubts\">\n{items}</ul>\n"),
        ));
    }
    block("May these numbers be believed?", &html)
}

fn doubt_item(doubt: &Doubt) -> String {
    let Some((about, sentence)) = doubt.cases.first() else {
        return String::new();
    };
    let about = about.as_deref().unwrap_or("The whole run");
    let mark = format!("<span class=\"level {}\">{}</span>", level_class(doubt.level), doubt.level);
    let first = format!("<b>{}</b> {}", escape(&format!("{about}:")), escape(sentence));
    if doubt.cases.len() == 1 {
        return format!("<li>{mark} {first}</li>\n");
    }
    let others: String = doubt.cases[1..]
        .iter()
        .map(|(about, sentence)| {
            let about = about.as_deref().unwrap_or("The whole run");
            format!("<li><b>{}</b> {}</li>\n", escape(&format!("{about}:")), escape(sentence))
        })
        .collect();
    format!(
        "<li>{mark} {first}\n<details><summary>The same for {} more</summary>\n<ul>\n{others}</ul>\n</details></li>\n",
        doubt.cases.len() - 1
    )
}

/// Words and names, explained.
fn glossary(record: &Record) -> String {
    let mut html = String::from("<dl>\n");
    let mut entry = |term: &str, meaning: &str| {
        html.push_str(&format!("<div><dt>{}</dt><dd>{}</dd></div>\n", escape(term), escape(meaning)));
    };
    for figure in Figure::ALL {
        entry(figure.name(), figure.meaning());
    }
    entry(
        "95 % interval",
        "Were the whole run repeated many times, about 19 of 20 such intervals would hold the true median. Computed by resampling the \
         single runs (bootstrap).",
    );
    entry(
        "Noise floor",
        "How far the baseline differs from itself when it is measured twice in the same run (A/A control). Smaller differences are not \
         claimed.",
    );
    entry(
        "Closed loop",
        "Each connection sends its next request when it has its answer, so the load follows the server.",
    );
    entry(
        "Limited by",
        "server: the program used its cores whole. client: the client did, so the rate is the client's. neither: both had time left.",
    );
    entry(
        "VALID, SUSPECT, INVALID",
        "VALID: no check objected. SUSPECT: the number stands, with a reason to doubt it. INVALID: the number does not mean what its name \
         says.",
    );
    for model in shape::models(record) {
        if let Some(how) = figure::how_it_works(model) {
            entry(model, &answer::sentence(how));
        }
    }
    html.push_str("</dl>\n");
    block("What the words mean", &html)
}

/// Everything `host` knows; what it does not know is said to be unknown.
fn machine(record: &Record) -> String {
    let mut facts: Vec<(String, Option<String>)> = Vec::new();
    for (key, value) in &record.host {
        flatten(key, value, &mut facts);
    }
    if facts.is_empty() {
        return block("The machine", "<p>Unknown: the record holds no facts about it.</p>\n");
    }
    let mut html = String::from("<dl class=\"facts\">\n");
    for (name, value) in facts {
        let value = match value {
            Some(value) => format!("<dd>{}</dd>", escape(&value)),
            None => format!("<dd class=\"absent\">{}</dd>", figure::UNKNOWN),
        };
        html.push_str(&format!("<div><dt>{}</dt>{value}</div>\n", escape(&name)));
    }
    html.push_str("</dl>\n");
    block("The machine", &html)
}

/// Nested facts as one list: `cgroup · memory max`. A name that ends in its unit gives a value with unit.
fn flatten(key: &str, value: &Value, facts: &mut Vec<(String, Option<String>)>) {
    let last = key.rsplit(" · ").next().unwrap_or(key);
    let text = match value {
        Value::Object(map) if !map.is_empty() => {
            for (inner, value) in map {
                flatten(&format!("{key} · {inner}"), value, facts);
            }
            return;
        }
        Value::Null => None,
        Value::Bool(yes) => Some(if *yes { "yes" } else { "no" }.to_owned()),
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(match (number.as_u64(), number.as_f64()) {
            (Some(bytes), _) if last.ends_with("_bytes") => figure::bytes(bytes as f64),
            (_, Some(share)) if last.ends_with("_share") => figure::percent(share),
            (Some(whole), _) => figure::count(whole),
            _ => number.to_string(),
        }),
        Value::Array(items) if items.is_empty() => Some("none".to_owned()),
        Value::Object(_) => Some("none".to_owned()),
        Value::Array(items) => Some(
            items
                .iter()
                .map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned))
                .collect::<Vec<_>>()
                .join(", "),
        ),
    };
    let name = key.trim_end_matches("_bytes").trim_end_matches("_share").replace('_', " ");
    facts.push((name, text));
}

/// How to repeat it.
fn again(record: &Record) -> String {
    let command: Vec<String> = record.command.iter().map(|word| quoted(word)).collect();
    let html = format!(
        "<pre>{}</pre>\n<p>Started {}; {} {}; schema {}.</p>\n",
        escape(&command.join(" ")),
        escape(&record.started),
        escape(&record.tool),
        escape(&record.version),
        escape(&record.schema),
    );
    block("Run it again", &html)
}

/// The record as JSON, as whole as there is room, and a sentence about what is not in it.
fn embedded(record: &Record, room: usize) -> String {
    let mut copy = record.clone();
    let mut left_out: Vec<&str> = Vec::new();
    let mut json = json(&copy);
    type Drop = fn(&mut Cell);
    let drops: [(&str, Drop); 3] = [
        ("histograms", |cell| cell.histogram = None),
        ("series", |cell| cell.series = None),
        ("single runs", |cell| cell.runs.clear()),
    ];
    for (what, drop) in drops {
        if json.len() <= room {
            break;
        }
        copy.cells.iter_mut().for_each(drop);
        left_out.push(what);
        json = self::json(&copy);
    }
    if json.len() > room {
        return "<footer><p>The record is too large to be inside this page; it is in the file <code>record.json</code>.</p></footer>\n"
            .to_owned();
    }
    let said = if left_out.is_empty() {
        "The whole record is inside this page, in the element with the id <code>record</code>.".to_owned()
    } else {
        format!(
            "The record is inside this page, in the element with the id <code>record</code>, without its {}, for which there was no \
             room; the file <code>record.json</code> has them.",
            left_out.join(" and ")
        )
    };
    format!(
        "<footer><p>{said}</p></footer>\n<script type=\"application/json\" id=\"record\">{json}</script>\n"
    )
}

/// JSON that no reader of HTML or XML can take for markup: these three characters stand in strings only, and
/// there their escapes mean the same.
fn json(record: &Record) -> String {
    match serde_json::to_string(record) {
        Ok(text) => text.replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e"),
        // A record is made of strings, numbers and string-keyed maps, none of which can fail to serialise; were
        // that to change, a reader should meet the reason and not half a document.
        Err(error) => Value::String(format!("the record could not be written: {error}")).to_string(),
    }
}

fn block(title: &str, html: &str) -> String {
    sections::section(title, "", "", html)
}

fn level_class(level: Level) -> &'static str {
    match level {
        Level::Valid => "valid",
        Level::Suspect => "suspect",
        Level::Invalid => "invalid",
    }
}

/// `2026-11-20T19:12:03Z` as `2026-11-20 19:12 UTC`; anything else as it is.
fn day(started: &str) -> String {
    match (started.get(..10), started.get(10..11), started.get(11..16)) {
        (Some(date), Some("T"), Some(time)) if started.ends_with('Z') => format!("{date} {time} UTC"),
        _ => started.to_owned(),
    }
}

/// Kernel, processor and cores, as far as they are known.
fn machine_in_a_line(record: &Record) -> Option<String> {
    let text = |key: &str| record.host.get(key).and_then(Value::as_str).map(str::to_owned);
    let cores = record
        .host
        .get("cpus_online")
        .and_then(Value::as_u64)
        .map(|cores| format!("{cores} core{}", if cores == 1 { "" } else { "s" }));
    let kernel = text("kernel")
        .map(|kernel| if kernel.starts_with("Linux") { kernel } else { format!("Linux {kernel}") });
    let parts: Vec<String> = [kernel, text("cpu_model"), cores].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// A word as a shell takes it back.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use ringroad_measure::record::Record;

    const HOSTILE: &str = "</script><script>alert('x')</script>&amp;\"<img src=x onerror=y>\u{7}\u{1b}[2J";

    /// A page is well-formed as XML, so one strict reader finds every escape that was forgotten.
    fn parsed<'a>(page: &'a str) -> roxmltree::Document<'a> {
        let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
        roxmltree::Document::parse_with_options(page, options).unwrap()
    }

    /// The record out of the page, as a script would take it.
    fn record_in(page: &str) -> Record {
        let start = page.find("id=\"record\">").unwrap() + "id=\"record\">".len();
        let end = start + page[start..].find("</script").unwrap();
        serde_json::from_str(&page[start..end]).unwrap()
    }

    /// A record as it comes back from a file: sentences for reasons, floats as the parser rounds them.
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
        assert!(at("Do not use these numbers") < at("class=\"lead\""));
        assert!(at("class=\"lead\"") < at("Not measured here"));
        assert!(at("Not measured here") < at("<svg"));
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
    fn the_command_can_be_pasted_into_a_shell() {
        assert_eq!(quoted("benches/floor.toml"), "benches/floor.toml");
        assert_eq!(quoted("mine=./server {port}"), "'mine=./server {port}'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn lines_appear_only_where_connections_vary() {
        assert!(!html(&sample::quick()).contains("connections · log scale"));
        assert!(html(&sample::floor()).contains("connections · log scale"));
    }
}
