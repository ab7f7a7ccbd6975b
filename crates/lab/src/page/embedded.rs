//! The record inside the page, as JSON, as whole as there is room.
//!
//! Start at [`embedded`].

use ringroad_measure::record::{Cell, Record};
use serde_json::Value;

/// Returns the record as JSON, as whole as there is room, and a sentence about what is not in it.
pub(super) fn embedded(record: &Record, room: usize) -> String {
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
        // A record is made of strings, numbers and string-keyed maps, none of which can fail to serialise;
        // were that to change, a reader should meet the reason and not half a document.
        Err(error) => Value::String(format!("the record could not be written: {error}")).to_string(),
    }
}

/// Returns how much the record takes with all its runs: they come before charts that could be spared.
pub(super) fn without_histograms(record: &Record) -> usize {
    let mut copy = record.clone();
    copy.cells.iter_mut().for_each(|cell| cell.histogram = None);
    json(&copy).len() + 1024
}
