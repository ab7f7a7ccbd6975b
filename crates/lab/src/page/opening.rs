//! The top of the page: the question, the answer in sentences, and recommendations.
//!
//! The sentences are `answer`'s, the rows of the guide `guide`'s. Start at [`opening`].

use super::answer::{self, Answer};
use super::guide;
use super::sections::folded;
use super::shape;
use super::svg::escape;
use super::trust::level_class;
use ringroad_measure::Level;
use ringroad_measure::record::Record;
use serde_json::Value;

/// Returns what the run asked, and the answer; with a sentence for each load and each family only if `lists`.
pub(super) fn opening(record: &Record, title: &str, lists: bool) -> String {
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
    // What is left of an INVALID run is no headline, and nothing is recommended from it.
    let is_usable = level < Level::Invalid;
    let class = if is_usable { " class=\"lead\"" } else { "" };
    html.push_str(&format!("<p{class}>{}</p>\n", escape(&answer.lead)));
    if !answer.ranking.is_empty() {
        html.push_str(&format!("<p>{}</p>\n", escape(&answer.ranking.join(" "))));
    }
    // One program alone answers no question of which.
    if is_usable && shape::models(record).len() > 1 {
        html.push_str(&guide(record));
    }
    if lists && !answer.growth.is_empty() {
        html.push_str(&list("further", &answer.growth));
    }
    if lists && !answer.further.is_empty() {
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

/// Returns what to use for what, and which command would tell where this record does not.
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
