//! The reasons to doubt a record: its caveats, alike ones together, and the noise that its control run
//! showed.
//!
//! Start at [`doubts`] and [`warning`]; for some cells of several records at [`Doubts`].

use super::super::figure;
use super::super::shape::{self, Load};
use super::standing::control;
use super::words::{percent, sentence, subject_start};
use ringroad_measure::record::{Cell, Record};
use ringroad_measure::{Caveat, Level};

/// One kind of doubt and the cells it is about.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Doubt {
    /// How bad.
    pub(crate) level: Level,
    /// The cell, or `None` for the run as a whole, and the sentence with that cell's numbers.
    pub(crate) cases: Vec<(Option<String>, String)>,
}

/// Every reason of a record, alike ones together (they differ in their numbers only), worst first.
pub(crate) fn doubts(record: &Record) -> Vec<Doubt> {
    let mut doubts = Doubts::default();
    for load in &shape::loads(record) {
        for cell in &load.cells {
            doubts.of_cell(&format!("{}, {}", cell.model, load.title), cell);
        }
    }
    doubts.of_run(None, record);
    doubts.worst_first()
}

/// Doubts as they are gathered, by the sentence without its numbers.
#[derive(Default)]
pub(crate) struct Doubts(Vec<(String, Doubt)>);

impl Doubts {
    /// Those of a cell, which is called `about`.
    pub(crate) fn of_cell(&mut self, about: &str, cell: &Cell) {
        for (nth, reason) in cell.verdict.reasons.iter().enumerate() {
            self.add(level_of(nth, cell.verdict.level, reason), Some(about), reason);
        }
    }

    /// Those of a run as a whole, which none of its cells says.
    pub(crate) fn of_run(&mut self, about: Option<&str>, record: &Record) {
        for (nth, reason) in record.verdict.reasons.iter().enumerate() {
            // The run's verdict repeats what its cells say.
            if !record.cells.iter().any(|cell| cell.verdict.reasons.contains(reason)) {
                self.add(level_of(nth, record.verdict.level, reason), about, reason);
            }
        }
    }

    /// All that was gathered, worst first.
    pub(crate) fn worst_first(self) -> Vec<Doubt> {
        let mut doubts: Vec<Doubt> = self.0.into_iter().map(|(_, doubt)| doubt).collect();
        doubts.sort_by_key(|doubt| std::cmp::Reverse(doubt.level));
        doubts
    }

    fn add(&mut self, level: Level, about: Option<&str>, reason: &Caveat) {
        let sentence = sentence(&reason.to_string());
        let kind = without_numbers(&sentence);
        let case = (about.map(str::to_owned), sentence);
        match self.0.iter_mut().find(|(known, doubt)| *known == kind && doubt.level == level) {
            Some((_, doubt)) => doubt.cases.push(case),
            None => self.0.push((kind, Doubt { level, cases: vec![case] })),
        }
    }
}

/// Returns the level of a reason. A sentence of an old record may have lost its level; the worst comes first
/// and has the stated one.
fn level_of(nth: usize, stated: Level, reason: &Caveat) -> Level {
    if nth == 0 { stated } else { reason.level() }
}

/// Returns what the A/A controls of these loads say of the noise, in a sentence or two.
pub(crate) fn noise<'l, 'a: 'l>(
    record: &Record,
    loads: impl IntoIterator<Item = &'l Load<'a>>,
) -> Option<String> {
    let reaches: Vec<(&str, f64)> = loads
        .into_iter()
        .filter_map(|load| Some((load.title.as_str(), control(record, load.name)?.reach())))
        .collect();
    let (load, widest) = reaches.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let widest = percent(*widest);
    let (reaches, so) = match reaches.len() {
        1 => (
            format!("reaches {widest} from equal"),
            "A difference smaller than this is not claimed.".to_owned(),
        ),
        _ => (
            format!("reaches at most {widest} from equal, under {load}"),
            "A difference counts only if it exceeds the A/A noise under the same load.".to_owned(),
        ),
    };
    let baseline = record.baseline.as_deref().map_or("The baseline", figure::in_words);
    Some(format!(
        "{} was also measured against itself: the 95 % interval of that ratio {reaches}. {so}",
        subject_start(record, baseline),
    ))
}

pub(super) fn warning(record: &Record) -> Option<String> {
    let total = record.cells.iter().filter(|cell| cell.skipped.is_none()).count();
    let at = |level: Level| {
        record.cells.iter().filter(|cell| cell.skipped.is_none() && cell.verdict.level == level).count()
    };
    let cause = doubts(record)
        .into_iter()
        .find(|doubt| doubt.level == record.verdict.level)
        .and_then(|doubt| doubt.cases.into_iter().next())
        .map(|(about, text)| match about {
            Some(about) => format!(" {about}: {text}"),
            None => format!(" {text}"),
        })
        .unwrap_or_default();
    let of = |level: Level| match at(level) {
        0 => "what follows concerns the run as a whole".to_owned(),
        some => format!("{some} of {total} results"),
    };
    match record.verdict.level {
        Level::Valid => None,
        Level::Suspect => {
            Some(format!("Read with care, the run is SUSPECT ({}).{cause}", of(Level::Suspect)))
        }
        Level::Invalid => Some(format!(
            "Do not use these numbers: the run is INVALID ({}).{cause} What can still be read from the rest:",
            of(Level::Invalid)
        )),
    }
}

/// Returns a sentence with each number replaced, so that sentences which differ only in numbers are equal.
fn without_numbers(sentence: &str) -> String {
    let mut kind = String::with_capacity(sentence.len());
    let mut in_number = false;
    for c in sentence.chars() {
        let part = c.is_ascii_digit() || (in_number && (c == '.' || c == ','));
        if part && !in_number {
            kind.push('#');
        }
        if !part {
            kind.push(c);
        }
        in_number = part;
    }
    kind
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::super::super::sample;
    use super::super::Answer;
    use super::super::tests::with_cpu;
    use super::*;
    use ringroad_measure::Verdict;
    use ringroad_measure::record::Interval;

    #[test]
    fn doubts_that_differ_in_numbers_only_come_together_worst_first() {
        let doubts = doubts(&sample::floor());
        assert_eq!(doubts[0].level, Level::Invalid);
        let client = doubts.iter().find(|doubt| doubt.cases[0].1.contains("of its core")).unwrap();
        assert_eq!(client.cases.len(), 7);
    }

    #[test]
    fn a_reason_read_back_from_a_file_keeps_its_level() {
        let record = sample::floor();
        let text = serde_json::to_string(&record).unwrap();
        let read: Record = serde_json::from_str(&text).unwrap();
        assert_eq!(doubts(&read)[0].level, Level::Invalid);
        assert_eq!(Answer::of(&read).short(), Answer::of(&record).short());
    }

    #[test]
    fn a_machine_that_was_taken_away_twice_reads_the_same_from_the_file() {
        let mut record = with_cpu(&[("epoll-et", 4.0, 0.001), ("threads", 8.0, 0.001)]);
        let steal = |share| Verdict::of([Caveat::NothingMeasured, Caveat::Steal { share }]);
        record.cells[0].verdict = steal(0.113);
        record.cells[1].verdict = steal(0.149);
        sample::judge(&mut record);
        let read: Record = serde_json::from_str(&serde_json::to_string(&record).unwrap()).unwrap();
        assert_eq!(doubts(&read), doubts(&record));
    }

    #[test]
    fn two_counts_that_differ_are_one_doubt_when_read_back_and_invalid() {
        let mut record = with_cpu(&[("epoll-et", 4.0, 0.001), ("threads", 8.0, 0.001)]);
        let differ = |client| Caveat::CountsDiffer { what: "requests", client, server: 9 };
        record.cells[0].verdict = Verdict::of([differ(15_942_144), differ(17_589_120)]);
        sample::judge(&mut record);
        let read: Record = serde_json::from_str(&serde_json::to_string(&record).unwrap()).unwrap();
        let doubts = doubts(&read);
        assert_eq!((doubts.len(), doubts[0].level, doubts[0].cases.len()), (1, Level::Invalid, 2));
    }

    #[test]
    fn the_noise_of_many_loads_is_the_widest_with_its_load_and_speaks_for_no_other() {
        let mut record = sample::quick();
        record.control[0].ratio = Interval { low: 0.99, mid: 1.0, high: 1.03 };
        record.control[1].ratio = Interval { low: 0.70, mid: 1.0, high: 1.1 };
        let loads = shape::loads(&record);
        let both = noise(&record, &loads).unwrap().replace('\u{a0}', " ");
        assert!(both.contains("reaches at most 30 % from equal, under Echo, 64 connections. "), "{both}");
        assert!(!both.contains("is not claimed"), "{both}");
        let first = noise(&record, &loads[..1]).unwrap().replace('\u{a0}', " ");
        assert!(
            first.ends_with("reaches 3.0 % from equal. A difference smaller than this is not claimed."),
            "{first}"
        );
    }

    #[test]
    fn an_invalid_run_leads_with_the_warning() {
        let mut record = with_cpu(&[("epoll-et", 4.0, 0.001), ("poll", 3.0, 0.001)]);
        let poll = record.cells.iter_mut().find(|cell| cell.model == "poll").unwrap();
        poll.verdict = Verdict::of([Caveat::CountsDiffer { what: "requests", client: 7, server: 9 }]);
        sample::judge(&mut record);
        let answer = Answer::of(&record);
        let short = answer.short();
        assert!(
            short.starts_with("Do not use these numbers: the run is INVALID (1 of 2 results)."),
            "{short}"
        );
        assert!(short.contains("the client counted 7") || short.contains("The client counted 7"), "{short}");
        // A result that is not to be used wins nothing.
        assert!(!answer.lead.contains("way to answer an HTTP request was poll"), "{}", answer.lead);
        assert!(answer.lead.contains("edge-triggered epoll took"), "{}", answer.lead);
    }

    #[test]
    fn a_suspect_run_says_so_first() {
        let mut record = sample::quick();
        record.cells[3].verdict = Verdict::of([Caveat::Steal { share: 0.04 }]);
        sample::judge(&mut record);
        let warning = Answer::of(&record).warning.unwrap();
        assert!(warning.starts_with("Read with care, the run is SUSPECT (1 of 14 results)."), "{warning}");
        assert!(warning.contains("4.0 %"), "{warning}");
    }
}
