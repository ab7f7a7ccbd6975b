//! How far to believe the numbers: the verdict with its reasons, the noise, and what was skipped.
//!
//! The reasons are gathered by `answer`. Start at [`trust`].

use super::answer::{self, Doubt};
use super::figure;
use super::sections::{block, folded};
use super::shape;
use super::svg::escape;
use ringroad_measure::Level;
use ringroad_measure::record::Record;

/// The verdict, the noise floor, and, if `lists`, each reason and what was skipped.
pub(super) fn trust(record: &Record, lists: bool) -> String {
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
    if !lists {
        html.push_str(&format!(
            "<p>The list of {} kinds of doubt and {} skipped results is too large for this page; it is in the file \
             <code>record.json</code>.</p>\n",
            doubts.len(),
            figure::count(skipped as u64)
        ));
        return block("May these numbers be believed?", &html);
    }
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

/// The style class of a verdict.
pub(super) fn level_class(level: Level) -> &'static str {
    match level {
        Level::Valid => "valid",
        Level::Suspect => "suspect",
        Level::Invalid => "invalid",
    }
}
