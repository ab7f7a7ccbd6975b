//! The page: a record as one self-contained HTML file that a person wants to read and an engineer can check.
//!
//! The answer in plain language comes first, then how far to believe it, then charts with the tables behind them,
//! then what is needed to judge and repeat the run. The page is a pure function of the record, needs no script
//! and fetches nothing. It leaves sentences to `answer`, numbers to `figure`, charts to `charts` and `svg`,
//! looks to `style.css`.
//!
//! Start at [`html`].

pub(crate) mod answer;
mod charts;
pub(crate) mod figure;
#[cfg(test)]
pub(crate) mod sample;
mod svg;

use answer::{Answer, Doubt, Standing};
use figure::{Figure, Load};
use ringroad_measure::Level;
use ringroad_measure::record::{Cell, Record};
use serde_json::Value;
use svg::escape;

/// The page stays below this, so that it can be mailed and opens at once on a phone. Bytes.
pub const BYTES_MAX: usize = 600_000;

const STYLE: &str = include_str!("style.css");

/// The figures that get a section with charts, in the order a reader meets them.
const SECTIONS: [Figure; 6] =
    [Figure::Cpu, Figure::Ratio, Figure::P50, Figure::Syscalls, Figure::Rate, Figure::Memory];

/// The page of a record: a whole HTML document, UTF-8, also well-formed as XML, without any reference to
/// something outside itself.
///
/// The record stands in it as JSON in `<script type="application/json" id="record">`. It is whole as long as the
/// page stays below [`BYTES_MAX`]; beyond, histograms, then series, then single runs are left out of the embedded
/// copy, and the page says so.
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
         <meta name=\"color-scheme\" content=\"light dark\"/>\n<title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n",
        escape(&title)
    ));
    let loads = figure::loads(record);
    page.push_str(&opening(record, &title));
    page.push_str(&trust(record));
    for figure in SECTIONS {
        page.push_str(&section(record, &loads, figure));
    }
    page.push_str(&glossary(record));
    page.push_str(&machine(record));
    page.push_str(&again(record));
    let room = BYTES_MAX.saturating_sub(page.len() + 1024);
    page.push_str(&embedded(record, room));
    page.push_str("</body>\n</html>\n");
    page
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
    if !answer.further.is_empty() || !answer.growth.is_empty() {
        html.push_str("<ul class=\"further\">\n");
        for sentence in answer.further.iter().chain(&answer.growth) {
            html.push_str(&format!("<li>{}</li>\n", escape(sentence)));
        }
        html.push_str("</ul>\n");
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
        html.push_str("<ul class=\"doubts\">\n");
        for doubt in &doubts {
            html.push_str(&doubt_item(doubt));
        }
        html.push_str("</ul>\n");
    }
    if skipped > 0 {
        let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
        for load in figure::loads(record) {
            for cell in &load.cells {
                let Some(reason) = cell.skipped.as_deref() else { continue };
                let who = format!("{}, {}", cell.model, load.title);
                match reasons.iter_mut().find(|(known, _)| *known == reason) {
                    Some((_, cells)) => cells.push(who),
                    None => reasons.push((reason, vec![who])),
                }
            }
        }
        html.push_str(&format!("<h3>Skipped ({skipped})</h3>\n<ul class=\"doubts\">\n"));
        for (reason, cells) in reasons {
            html.push_str(&format!(
                "<li><b>{}</b> {}</li>\n",
                escape(&format!("{}:", cells.join("; "))),
                escape(&answer::sentence(reason))
            ));
        }
        html.push_str("</ul>\n");
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

/// One figure: what it is, its charts, the table behind them.
fn section(record: &Record, loads: &[Load<'_>], figure: Figure) -> String {
    // One chart of lines holds one figure; the two latencies need two, told apart in their titles.
    let lines: &[(Figure, &str)] = match figure {
        Figure::Ratio => &[],
        Figure::P50 => &[(Figure::P50, ", p50"), (Figure::P99, ", p99")],
        other => &[(other, "")],
    };
    let mut over_connections: Vec<(String, String)> = Vec::new();
    for family in figure::families(record) {
        for (figure, suffix) in lines {
            if let Some(chart) = charts::family_chart(record, &family, *figure) {
                over_connections.push((format!("{}{suffix}", family.span()), chart));
            }
        }
    }
    let per_load: Vec<(String, String)> = loads
        .iter()
        .filter_map(|load| Some((load.title.clone(), charts::load_chart(record, load, figure)?)))
        .collect();
    let mut html = String::new();
    if over_connections.is_empty() && per_load.is_empty() {
        html.push_str("<p class=\"limits\">Unknown: nothing in this record has it.</p>\n");
    }
    html.push_str(&panels(&over_connections));
    // Lines already tell most of it; the charts of the single loads are one click away.
    if over_connections.is_empty() || figure == Figure::Cpu || per_load.len() <= 2 {
        html.push_str(&panels(&per_load));
    } else {
        html.push_str(&format!(
            "<details><summary>Each load by itself ({} charts)</summary>\n{}</details>\n",
            per_load.len(),
            panels(&per_load)
        ));
    }
    html.push_str(&format!(
        "<details><summary>The numbers</summary>\n{}</details>\n",
        table(record, loads, figure)
    ));
    let beside = match figure {
        Figure::Cpu => {
            "Bars in colour are the cheapest, or cannot be told from it. Whiskers are 95 % intervals."
        }
        Figure::Ratio => "= means that no difference was found.",
        Figure::P50 => {
            "The dot is the median, the stroke the 99th percentile, in a closed loop at full load."
        }
        Figure::Rate => "The word behind a number is what limited it: server, client, or neither.",
        _ => "",
    };
    format!(
        "<section>\n<div class=\"aside\"><h2>{}</h2>\n<p>{}</p>\n{}</div>\n<div class=\"main\">\n{html}</div>\n</section>\n",
        escape(charts::heading(figure)),
        escape(figure.gist()),
        if beside.is_empty() { String::new() } else { format!("<p>{}</p>\n", escape(beside)) },
    )
}

fn panels(charts: &[(String, String)]) -> String {
    if charts.is_empty() {
        return String::new();
    }
    let figures: String = charts
        .iter()
        .map(|(title, svg)| format!("<figure><figcaption>{}</figcaption>{svg}</figure>\n", escape(title)))
        .collect();
    format!("<div class=\"panels\">\n{figures}</div>\n")
}

/// The table behind the charts of a figure: every cell of the record, also the skipped ones.
fn table(record: &Record, loads: &[Load<'_>], figure: Figure) -> String {
    let columns = columns(figure);
    let mut html = String::from("<div class=\"scroll\"><table>\n<thead><tr><th>Program</th>");
    for (name, _) in &columns {
        html.push_str(&format!("<th>{}</th>", escape(name)));
    }
    html.push_str("<th>Verdict</th></tr></thead>\n");
    for load in loads {
        let width = columns.len() + 2;
        html.push_str(&format!(
            "<tbody><tr><th class=\"load\" colspan=\"{width}\">{}</th></tr>\n",
            escape(&load.title)
        ));
        for cell in &load.cells {
            html.push_str(&format!("<tr><th>{}</th>", escape(&cell.model)));
            match &cell.skipped {
                Some(reason) => html.push_str(&format!(
                    "<td class=\"absent\" colspan=\"{}\">{}</td>",
                    width - 1,
                    escape(&format!("skipped: {reason}"))
                )),
                None => {
                    for (_, read) in &columns {
                        html.push_str(&format!("<td>{}</td>", escape(&read(record, load, cell))));
                    }
                    html.push_str(&format!("<td>{}</td>", cell.verdict.level));
                }
            }
            html.push_str("</tr>\n");
        }
        html.push_str("</tbody>\n");
    }
    html.push_str("</table></div>\n");
    html
}

type Column = (&'static str, fn(&Record, &Load<'_>, &Cell) -> String);

/// The columns of a figure's table: its own number and what explains it.
fn columns(figure: Figure) -> Vec<Column> {
    fn known(value: Option<f64>, spell: fn(f64) -> String) -> String {
        value.filter(|v| v.is_finite()).map_or_else(|| figure::UNKNOWN.to_owned(), spell)
    }
    match figure {
        Figure::Cpu => vec![
            ("CPU per request", |_, _, c| known(Figure::Cpu.value(c), figure::micros)),
            ("95 % interval", |_, _, c| {
                Figure::Cpu
                    .interval(c)
                    .map_or_else(|| figure::UNKNOWN.to_owned(), |i| charts::spelled(Figure::Cpu, i))
            }),
            ("user", |_, _, c| known(c.server.user_us, figure::micros)),
            ("system", |_, _, c| known(c.server.sys_us, figure::micros)),
            ("context switches", |_, _, c| known(c.server.context_switches_per_request, figure::number)),
        ],
        Figure::Ratio => vec![
            ("times the baseline", |r, _, c| {
                known(Figure::Ratio.value(c).or_else(|| by_definition(r, c)), figure::times)
            }),
            ("95 % interval", |r, _, c| match (Figure::Ratio.interval(c), by_definition(r, c)) {
                (Some(interval), _) => charts::spelled(Figure::Ratio, interval),
                (None, Some(_)) => "by definition".to_owned(),
                (None, None) => figure::UNKNOWN.to_owned(),
            }),
            ("finding", finding),
        ],
        Figure::P50 | Figure::P99 => vec![
            ("p50", |_, _, c| known(c.latency_us.response.map(|l| l.p50), figure::micros)),
            ("p90", |_, _, c| known(c.latency_us.response.map(|l| l.p90), figure::micros)),
            ("p99", |_, _, c| known(c.latency_us.response.map(|l| l.p99), figure::micros)),
            ("p99.9", |_, _, c| known(c.latency_us.response.map(|l| l.p99_9), figure::micros)),
            ("max", |_, _, c| known(c.latency_us.response.map(|l| l.max), figure::micros)),
        ],
        Figure::Syscalls => vec![
            ("per request", |_, _, c| known(Figure::Syscalls.value(c), figure::number)),
            ("counted by", |_, _, c| match c.server.syscalls_source.as_deref() {
                Some("perf") => "the kernel".to_owned(),
                Some("program") => "the program itself".to_owned(),
                Some(other) => other.to_owned(),
                None => figure::UNKNOWN.to_owned(),
            }),
        ],
        Figure::Rate => vec![
            ("requests/s", |_, _, c| known(Figure::Rate.value(c), |v| figure::count(v.max(0.0) as u64))),
            ("limited by", |_, _, c| figure::limiter(c).to_owned()),
            ("client busy", |_, _, c| known(c.client_cpu_share, figure::percent)),
            ("sent", |_, _, c| figure::count(c.sent)),
            ("answered", |_, _, c| figure::count(c.completed)),
            ("failed", |_, _, c| figure::count(c.errors.total())),
        ],
        Figure::Memory => vec![
            ("process", |_, _, c| known(Figure::Memory.value(c), figure::bytes)),
            ("kernel, whole machine", |_, _, c| {
                known(c.server.kernel_bytes.map(|b| b as f64), figure::bytes)
            }),
        ],
    }
}

/// The baseline's ratio to itself, which no run has to tell.
fn by_definition(record: &Record, cell: &Cell) -> Option<f64> {
    (record.baseline.as_deref() == Some(cell.model.as_str())).then_some(1.0)
}

fn finding(record: &Record, load: &Load<'_>, cell: &Cell) -> String {
    let Some(baseline) = charts::baseline_of(record, load) else {
        return "no baseline".to_owned();
    };
    if std::ptr::eq(baseline, cell) {
        return "is the baseline".to_owned();
    }
    match answer::standing(record, cell, baseline) {
        Some(Standing::Even(Some(seen))) => {
            format!("no difference found; {} would have been seen", figure::percent(seen))
        }
        Some(Standing::Even(None)) => "no difference found".to_owned(),
        Some(Standing::Apart(ratio)) if ratio > 1.0 => "costs more".to_owned(),
        Some(Standing::Apart(_)) => "costs less".to_owned(),
        Some(Standing::Untold(_)) => "too few runs to tell".to_owned(),
        None => figure::UNKNOWN.to_owned(),
    }
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
    for model in figure::models(record) {
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
    format!(
        "<section>\n<div class=\"aside\"><h2>{}</h2></div>\n<div class=\"main\">\n{html}</div>\n</section>\n",
        escape(title)
    )
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
        let mut record = sample::floor();
        for cell in &mut record.cells {
            cell.histogram = Some("A".repeat(20_000));
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
        let loads = figure::loads(&record);
        let table = table(&record, &loads, Figure::Ratio);
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
        assert!(!html(&sample::quick()).contains("<polyline"));
        assert!(html(&sample::floor()).contains("<polyline"));
    }
}
