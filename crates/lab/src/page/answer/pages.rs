//! Programs that answer differently from the others under the same load, in a sentence each: with a page of
//! another size, or with a connection for each request.
//!
//! Start at [`pages`].

use super::super::figure;
use super::super::shape::Payloads;
use super::{either, listed};
use ringroad_measure::record::Record;

/// `mine answered 612 B instead of 20 B`, for each program with another page than the load's; `None` where
/// all had the same.
pub(crate) fn pages(record: &Record) -> Option<String> {
    /// A program, how long its page was, and how long those of the loads were.
    type Other<'a> = (&'a str, u64, Vec<String>);
    let payloads = Payloads::of(record);
    let mut others: Vec<Other<'_>> = Vec::new();
    // A program that did not answer has no page.
    for cell in record.cells.iter().filter(|cell| cell.skipped.is_none() && cell.completed > 0) {
        let (mine, load) = (cell.payload_bytes, payloads.of_load(cell));
        if mine == load {
            continue;
        }
        let load = figure::bytes(load as f64);
        match others.iter_mut().find(|(model, bytes, _)| *model == cell.model && *bytes == mine) {
            Some((_, _, loads)) if loads.contains(&load) => {}
            Some((_, _, loads)) => loads.push(load),
            None => others.push((&cell.model, mine, vec![load])),
        }
    }
    let said: Vec<String> = others
        .iter()
        .map(|(model, bytes, loads)| {
            format!(
                "{model}'s response body is {}, the others' {}",
                figure::bytes(*bytes as f64),
                either(loads)
            )
        })
        .collect();
    let possessive = if said.len() == 1 { "its" } else { "their" };
    (!said.is_empty()).then(|| format!("{}; {possessive} figures include that difference.", said.join("; ")))
}

/// Which programs closed their connection after each answer, so that each request had one of its own.
pub(crate) fn closing(record: &Record) -> Option<String> {
    let mut closers: Vec<String> = Vec::new();
    for cell in record.cells.iter().filter(|cell| cell.details.closes) {
        if !closers.contains(&cell.model) {
            closers.push(cell.model.clone());
        }
    }
    let (closes, possessive) = if closers.len() == 1 { ("closes", "its") } else { ("close", "their") };
    (!closers.is_empty()).then(|| {
        format!(
            "{} {closes} the connection after each answer; {possessive} figures include a new connection for each request.",
            listed(&closers)
        )
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::super::super::sample;
    use super::*;

    fn own_page(record: &mut Record, model: &str, bytes: u64) {
        let cells = record.cells.iter_mut().filter(|cell| cell.model == model && cell.protocol == "http");
        cells.for_each(|cell| cell.payload_bytes = bytes);
    }

    #[test]
    fn each_program_with_another_page_is_named_once_with_its_size_and_the_others() {
        let mut record = sample::floor();
        assert_eq!(pages(&record), None);
        own_page(&mut record, "poll", 612);
        let said = pages(&record).unwrap().replace('\u{a0}', " ");
        assert!(
            said.contains(
                "poll's response body is 612 B, the others' 20 B; its figures include that difference."
            ),
            "{said}"
        );
        own_page(&mut record, "threads", 5);
        let said = pages(&record).unwrap().replace('\u{a0}', " ");
        assert!(
            said.contains("threads's response body is 5 B, the others' 20 B; poll's response body is 612 B, the others' 20 B; their"),
            "{said}"
        );
        let wide = record.cells.iter_mut().filter(|cell| cell.load == "http-1000" && cell.model != "poll");
        wide.for_each(|cell| cell.payload_bytes = 1024);
        let said = pages(&record).unwrap().replace('\u{a0}', " ");
        assert!(said.contains("poll's response body is 612 B, the others' 20 B or 1.00 KiB;"), "{said}");
    }

    #[test]
    fn programs_that_close_after_each_answer_are_named_once() {
        let mut record = sample::floor();
        assert_eq!(closing(&record), None);
        record
            .cells
            .iter_mut()
            .filter(|cell| cell.model == "poll")
            .for_each(|cell| cell.details.closes = true);
        let said = closing(&record).unwrap();
        assert!(said.starts_with("poll closes the connection after each answer; its figures"), "{said}");
    }

    #[test]
    fn a_program_that_answered_nothing_has_no_page() {
        let mut record = sample::quick();
        own_page(&mut record, "poll", 0);
        record.cells.iter_mut().filter(|cell| cell.model == "poll").for_each(|cell| cell.completed = 0);
        assert_eq!(pages(&record), None);
    }
}
