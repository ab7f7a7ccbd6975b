//! How the cost of a request changes with the number of connections, in a sentence for each kind of load.
//!
//! Start at [`growth`].

use super::super::figure::{self, Figure};
use super::super::shape::{self, Axis};
use super::words::subject_start;
use super::{control, listed, usable};
use ringroad_measure::record::Record;

/// Returns the programs with the least and the most growth of cost in each family, where the noise of its two
/// ends leaves the two apart, and the programs left behind.
pub(super) fn growth(record: &Record) -> Vec<String> {
    let mut sentences = Vec::new();
    for family in shape::families(record, Axis::Connections) {
        let (Some(&few), Some(&many)) = (family.values.first(), family.values.last()) else {
            continue;
        };
        let (few, many) = (few as u32, many as u32);
        let at = |model: &str, connections: u32| {
            family
                .cells
                .iter()
                .find(|cell| cell.model == model && cell.connections == connections && usable(cell))
                .and_then(|cell| Figure::Cpu.value(cell))
        };
        let mut grown: Vec<(&str, f64)> = shape::models(record)
            .into_iter()
            .filter_map(|model| Some((model, at(model, many)? / at(model, few)?)))
            .collect();
        grown.sort_by(|a, b| a.1.total_cmp(&b.1));
        let (Some(least), Some(most)) = (grown.first(), grown.last()) else { continue };
        let reach = |connections: u32| {
            let cell = family.cells.iter().find(|cell| cell.connections == connections);
            cell.and_then(|cell| control(record, &cell.load)).map_or(0.0, |control| control.reach())
        };
        // Each end has its own noise, and what lies between the two holds both.
        let noise = (1.0 + reach(few)) * (1.0 + reach(many));
        if least.0 == most.0 || most.1 / least.1 <= noise {
            continue;
        }
        let lost: Vec<String> = family
            .cells
            .iter()
            .filter(|cell| {
                cell.connections == many && cell.skipped.is_some() && at(&cell.model, few).is_some()
            })
            .map(|cell| figure::in_words(&cell.model).to_owned())
            .collect();
        let lost = match lost.len() {
            0 => String::new(),
            1 => format!(
                " {} was not run at {}.",
                subject_start(record, &lost[0]),
                figure::count(u64::from(many))
            ),
            _ => format!(
                " {} were not run at {}.",
                subject_start(record, &listed(&lost)),
                figure::count(u64::from(many))
            ),
        };
        let (fell_least, fell_most) = (most.1 < 1.0, least.1 < 1.0);
        let (first, second) = match (fell_most, fell_least) {
            (false, _) => ("grew least", "most"),
            (true, false) => ("fell most", "grew most"),
            (true, true) => ("fell most", "least"),
        };
        sentences.push(format!(
            "{}, from {} to {} connections: the cost of a request {first} with {}, to {}, and {second} with {}, to {}.{lost}",
            family.title,
            figure::count(u64::from(few)),
            figure::count(u64::from(many)),
            figure::in_words(least.0),
            figure::times(least.1),
            figure::in_words(most.0),
            figure::times(most.1),
        ));
    }
    sentences
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::super::super::sample;
    use super::*;

    #[test]
    fn growth_names_the_flattest_the_steepest_and_incomplete_programs() {
        let growth = growth(&sample::floor());
        let http = growth.iter().find(|sentence| sentence.starts_with("HTTP, from 64 to 10,000")).unwrap();
        assert!(http.contains("least with multishot io_uring"), "{http}");
        assert!(http.contains("most with poll"), "{http}");
        assert!(http.ends_with("select was not run at 10,000."), "{http}");
    }

    /// Of the sample three programs at 64 and 10,000 connections, with the cost at the many so many times
    /// that at the few.
    fn grown(times: [(&str, f64); 3], reach: f64) -> Vec<String> {
        let mut record = sample::floor();
        record.cells.retain(|cell| {
            cell.protocol == "http"
                && cell.pipeline == 1
                && matches!(cell.connections, 64 | 10_000)
                && times.iter().any(|(model, _)| cell.model == *model)
        });
        for cell in &mut record.cells {
            let (_, grown) = times.iter().find(|(model, _)| cell.model == *model).unwrap();
            cell.verdict = ringroad_measure::Verdict::valid();
            sample::set_cpu(cell, if cell.connections == 64 { 4.0 } else { 4.0 * grown }, 0.0, 1);
        }
        record.control.iter_mut().for_each(|control| control.ratio.high = 1.0 + reach);
        growth(&record).into_iter().map(|said| said.replace('\u{a0}', " ")).collect()
    }

    #[test]
    fn a_program_that_fell_is_not_named_as_the_one_that_changed_least() {
        let said = grown([("threads", 0.83), ("poll", 1.02), ("epoll-et", 1.23)], 0.01);
        assert!(
            said[0].ends_with(
                "the cost of a request fell most with a thread per connection, to 0.83 ×, and grew most with \
                 edge-triggered epoll, to 1.23 ×."
            ),
            "{said:?}"
        );
        let said = grown([("threads", 0.7), ("poll", 0.8), ("epoll-et", 0.9)], 0.01);
        assert!(
            said[0].contains("fell most with a thread") && said[0].contains("least with edge"),
            "{said:?}"
        );
        let said = grown([("threads", 1.1), ("poll", 1.2), ("epoll-et", 1.5)], 0.01);
        assert!(
            said[0].contains("grew least with a thread") && said[0].contains("most with edge"),
            "{said:?}"
        );
    }

    #[test]
    fn growth_that_differs_by_less_than_the_controls_reach_is_not_told() {
        let times = [("threads", 1.0), ("poll", 1.1), ("epoll-et", 1.2)];
        assert_eq!(grown(times, 0.09).len(), 1);
        assert!(grown(times, 0.11).is_empty());
    }
}
