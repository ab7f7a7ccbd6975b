//! The end of the page: glossary, machine, and the command to run it again.
//!
//! Start at [`glossary`], [`machine`] and [`again`].

use super::answer;
use super::figure::{self, Figure};
use super::sections::block;
use super::shape;
use super::svg::escape;
use ringroad_measure::record::Record;
use serde_json::Value;

/// Words and names, explained.
pub(super) fn glossary(record: &Record) -> String {
    let mut html = String::from("<dl>\n");
    let mut entry = |term: &str, meaning: &str| {
        html.push_str(&format!("<div><dt>{}</dt><dd>{}</dd></div>\n", escape(term), escape(meaning)));
    };
    for figure in Figure::ALL {
        entry(figure.name(), figure.meaning());
    }
    entry(
        "95 % interval",
        "If the whole run were repeated many times, about 19 of 20 such intervals would contain the true median. Computed by \
         resampling the single runs (bootstrap).",
    );
    entry(
        "Noise floor",
        "The A/A test: how far the baseline differs from itself when it is measured twice in the same run. Smaller differences are \
         not claimed.",
    );
    entry(
        "Closed loop",
        "Each connection sends its next request when it has its answer, so the server is always saturated.",
    );
    entry(
        "Limited by",
        "server: the program used its cores completely. client: the load generator did, so the rate is the generator's. neither: both \
         had time left.",
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
    block("Glossary", &html)
}

/// Everything `host` knows; what it does not know is said to be unknown.
pub(super) fn machine(record: &Record) -> String {
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

/// Returns how to repeat it.
pub(super) fn again(record: &Record) -> String {
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

/// Returns a word as a shell takes it back.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_can_be_pasted_into_a_shell() {
        assert_eq!(quoted("benches/floor.toml"), "benches/floor.toml");
        assert_eq!(quoted("mine=./server {port}"), "'mine=./server {port}'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
    }
}
