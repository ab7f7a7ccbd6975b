//! Who answered with a page of another size than the others under the same load, in a sentence.
//!
//! Start at [`pages`].

use super::super::figure;
use super::super::shape::Payloads;
use super::{either, listed};
use ringroad_measure::record::Record;

/// `mine answered 612 B instead of 20 B`, for each program whose page was not the load's; `None` where all had the same.
pub(crate) fn pages(record: &Record) -> Option<String> {
    /// A program, how long its page was, and how long those of the loads were.
    type Other<'a> = (&'a str, u64, Vec<String>);
    let payloads = Payloads::of(record);
    let mut others: Vec<Other<'_>> = Vec::new();
    // Of who did not answer there is no page to speak of.
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
            format!("{model} answered {} instead of {}", figure::bytes(*bytes as f64), either(loads))
        })
        .collect();
    let whose = if said.len() == 1 { "its" } else { "their" };
    (!said.is_empty()).then(|| {
        format!(
            "Another page than the others': {}; what that costs or saves is in {whose} figures.",
            listed(&said)
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
            said.contains("poll answered 612 B instead of 20 B; what that costs or saves is in its"),
            "{said}"
        );
        own_page(&mut record, "threads", 5);
        let said = pages(&record).unwrap().replace('\u{a0}', " ");
        assert!(
            said.contains("threads answered 5 B instead of 20 B and poll answered 612 B instead of 20 B;"),
            "{said}"
        );
        let wide = record.cells.iter_mut().filter(|cell| cell.load == "http-1000" && cell.model != "poll");
        wide.for_each(|cell| cell.payload_bytes = 1024);
        let said = pages(&record).unwrap().replace('\u{a0}', " ");
        assert!(said.contains("poll answered 612 B instead of 20 B or 1.00 KiB;"), "{said}");
    }

    #[test]
    fn who_answered_nothing_has_no_page() {
        let mut record = sample::quick();
        own_page(&mut record, "poll", 0);
        record.cells.iter_mut().filter(|cell| cell.model == "poll").for_each(|cell| cell.completed = 0);
        assert_eq!(pages(&record), None);
    }
}
