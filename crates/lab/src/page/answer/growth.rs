//! How the cost of a request changes with the number of connections, in a sentence for each kind of load.
//!
//! Start at [`growth`].

use super::super::figure::{self, Figure};
use super::super::shape::{self, Axis};
use super::{listed, sentence_start, usable};
use ringroad_measure::record::Record;

/// The flattest and the steepest of each family, and who was left behind.
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
            1 => format!(" {} was not run at {}.", sentence_start(&lost[0]), figure::count(u64::from(many))),
            _ => format!(
                " {} were not run at {}.",
                sentence_start(&listed(&lost)),
                figure::count(u64::from(many))
            ),
        };
        if let (Some(least), Some(most)) = (grown.first(), grown.last())
            && least.0 != most.0
        {
            sentences.push(format!(
                "{}, from {} to {} connections: the cost of a request changed least with {}, to {}, and most with {}, to {}.{lost}",
                family.title,
                figure::count(u64::from(few)),
                figure::count(u64::from(many)),
                figure::in_words(least.0),
                figure::times(least.1),
                figure::in_words(most.0),
                figure::times(most.1),
            ));
        }
    }
    sentences
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::super::super::sample;
    use super::*;

    #[test]
    fn growth_names_the_flattest_and_the_steepest_and_who_was_left_behind() {
        let growth = growth(&sample::floor());
        let http = growth.iter().find(|sentence| sentence.starts_with("HTTP, from 64 to 10,000")).unwrap();
        assert!(http.contains("least with multishot io_uring"), "{http}");
        assert!(http.contains("most with poll"), "{http}");
        assert!(http.ends_with("select was not run at 10,000."), "{http}");
    }
}
