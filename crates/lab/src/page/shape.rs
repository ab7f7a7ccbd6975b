//! What the loads of a record are: how they differ, which belong together, how they are called.
//!
//! An [`Axis`] is one way in which loads differ. A [`Load`] is the cells that ran under the same one; a
//! [`Family`] the loads that differ along one axis and in nothing else, which is what a line in a chart
//! needs. Numbers and their spelling are `figure`'s part.
//!
//! Start at [`loads`] and [`families`].

use super::figure::{self, Figure};
use ringroad_measure::record::{Cell, Loop, Record};
use std::collections::HashMap;
use std::rc::Rc;

/// One way in which loads differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Axis {
    /// How many connections are open.
    Connections,
    /// How many of them send.
    Active,
    /// Bytes per request.
    Payload,
    /// Requests in flight on each connection.
    Pipeline,
    /// What the suite says in words, where the words begin with a number: `20 µs of work`.
    Variant,
}

impl Axis {
    /// All of them, in the order a reader meets them.
    pub(crate) const ALL: [Axis; 5] =
        [Axis::Connections, Axis::Active, Axis::Payload, Axis::Pipeline, Axis::Variant];

    /// Returns where a cell stands on it.
    fn value(self, cell: &Cell, payloads: &Payloads<'_>) -> f64 {
        match self {
            Axis::Connections => f64::from(cell.connections),
            Axis::Active => cell.active_share,
            Axis::Payload => payloads.of_load(cell) as f64,
            Axis::Pipeline => f64::from(cell.pipeline),
            Axis::Variant => quantity(cell).map_or(0.0, |quantity| quantity.value),
        }
    }

    /// Returns a place on it, as a tick's label.
    fn spell(self, value: f64, unit: Unit) -> String {
        match self {
            Axis::Connections | Axis::Pipeline => figure::count(value as u64),
            Axis::Active => figure::percent_short(value),
            Axis::Payload => figure::bytes(value),
            Axis::Variant => match unit {
                Unit::Time if value == 0.0 => "0".to_owned(),
                Unit::Time => Figure::P50.tick(value),
                Unit::Bytes => figure::bytes(value),
                Unit::Plain => figure::number(value),
            },
        }
    }
}

/// What a number in words counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Microseconds.
    Time,
    /// Bytes.
    Bytes,
    /// Things.
    Plain,
}

/// A number in words, and of what: `20 µs of work`, `buffers of 8 KiB`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Quantity {
    /// In microseconds, bytes or things.
    pub(crate) value: f64,
    /// Which of them.
    pub(crate) unit: Unit,
    /// The words with the number left out: `… of work`, `buffers of …`.
    pub(crate) what: String,
}

/// What stands for the number in a quantity's words.
const NUMBER: &str = "…";

/// Returns the first number in the words of a cell's variant, if there is one.
pub(crate) fn quantity(cell: &Cell) -> Option<Quantity> {
    quantity_in(cell.variant.as_deref()?)
}

/// Returns the first number in words, if there is one.
pub(crate) fn quantity_in(words: &str) -> Option<Quantity> {
    let text = words.replace('\u{a0}', " ");
    let words: Vec<&str> = text.split(' ').collect();
    let number = |word: &&str| word.replace(',', "").parse().ok().filter(|value: &f64| value.is_finite());
    let (nth, value) = words.iter().enumerate().find_map(|(nth, word)| Some((nth, number(word)?)))?;
    let (before, after) = (&words[..nth], &words[nth + 1..]);
    let (factor, unit) = match after.first().copied() {
        Some("ns") => (1e-3, Unit::Time),
        Some("µs" | "us") => (1.0, Unit::Time),
        Some("ms") => (1e3, Unit::Time),
        Some("s") => (1e6, Unit::Time),
        Some("B" | "bytes") => (1.0, Unit::Bytes),
        Some("KiB") => (1024.0, Unit::Bytes),
        Some("MiB") => (1024.0 * 1024.0, Unit::Bytes),
        _ => (1.0, Unit::Plain),
    };
    let mut after: Vec<String> =
        after[usize::from(unit != Unit::Plain)..].iter().map(|word| (*word).to_owned()).collect();
    // `1 worker, …` and `2 workers, …` are about the same.
    if let Some(first) = after.first_mut().filter(|_| unit == Unit::Plain && value == 1.0) {
        let (word, mark) = first.split_at(first.trim_end_matches(',').len());
        if !word.ends_with('s') {
            *first = format!("{word}s{mark}");
        }
    }
    let mut what: Vec<String> = before.iter().map(|word| (*word).to_owned()).collect();
    what.push(NUMBER.to_owned());
    what.extend(after);
    (what.len() > 1).then(|| Quantity { value: value * factor, unit, what: what.join(" ") })
}

/// Bytes per request of the loads of a record. Of HTTP each program tells how long its own answers were, and
/// one with another page was under the same load all the same: the load's page is what the baseline answered,
/// or else most did.
pub(crate) struct Payloads<'a> {
    /// Of the loads of HTTP that have a name.
    pages: HashMap<&'a str, u64>,
    /// The protocols with loads of more than one size.
    varied: Vec<&'a str>,
}

impl<'a> Payloads<'a> {
    /// Reads them out of a record.
    pub(crate) fn of(record: &'a Record) -> Self {
        let mut payloads = Payloads { pages: HashMap::new(), varied: Vec::new() };
        for cell in record.cells.iter().filter(|cell| has_page(cell)) {
            if !payloads.pages.contains_key(cell.load.as_str()) {
                payloads.pages.extend(page(record, &cell.load).map(|bytes| (cell.load.as_str(), bytes)));
            }
        }
        let mut seen: HashMap<&str, u64> = HashMap::new();
        for cell in &record.cells {
            let bytes = payloads.of_load(cell);
            if *seen.entry(&cell.protocol).or_insert(bytes) != bytes && !payloads.vary(cell) {
                payloads.varied.push(&cell.protocol);
            }
        }
        payloads
    }

    /// Bytes per request under the load of a cell, whatever the cell's own program answered.
    pub(crate) fn of_load(&self, cell: &Cell) -> u64 {
        let page = self.pages.get(cell.load.as_str()).filter(|_| has_page(cell));
        page.copied().unwrap_or(cell.payload_bytes)
    }

    /// Returns whether the loads of a cell's protocol differ in it.
    fn vary(&self, cell: &Cell) -> bool {
        self.varied.contains(&cell.protocol.as_str())
    }
}

/// Returns whether the load of a cell may have a page. Without a name, loads are told apart by their shape.
fn has_page(cell: &Cell) -> bool {
    cell.protocol == "http" && !cell.load.is_empty()
}

/// Returns how long the page of a load of HTTP is; `None` where no program answered.
fn page(record: &Record, load: &str) -> Option<u64> {
    let answers = || {
        let cells =
            record.cells.iter().filter(|cell| cell.load == load && has_page(cell) && cell.completed > 0);
        cells.map(|cell| (cell.model.as_str(), cell.payload_bytes))
    };
    let often = |bytes: u64| answers().filter(|(_, other)| *other == bytes).count();
    let baseline = answers().find(|(model, _)| record.baseline.as_deref() == Some(*model));
    // Of sizes equally common the one that comes first.
    baseline.or_else(|| answers().rev().max_by_key(|(_, bytes)| often(*bytes))).map(|(_, bytes)| bytes)
}

/// The cells that were put under the same load, in the order of the suite.
pub(crate) struct Load<'a> {
    /// As in the record; tells the control that belongs to it.
    pub(crate) name: &'a str,
    /// `HTTP, 64 connections`.
    pub(crate) title: String,
    /// All its cells, also those that were skipped.
    pub(crate) cells: Vec<&'a Cell>,
}

/// Returns the loads of a record, in the order of the suite.
pub(crate) fn loads(record: &Record) -> Vec<Load<'_>> {
    let mut loads: Vec<Load<'_>> = Vec::new();
    let payloads = Payloads::of(record);
    for cell in &record.cells {
        let title = title(cell, &payloads, None);
        // Records of other tools may leave the name empty; then the shape of the load is its name.
        let same = |load: &Load<'_>| load.name == cell.load && (!cell.load.is_empty() || load.title == title);
        match loads.iter_mut().find(|load| same(load)) {
            Some(load) => load.cells.push(cell),
            None => loads.push(Load { name: &cell.load, title, cells: vec![cell] }),
        }
    }
    loads
}

/// Loads that differ along one axis and in nothing else: the same question asked of more clients, of larger
/// payloads, of fewer that are active.
pub(crate) struct Family<'a> {
    /// What varies.
    pub(crate) axis: Axis,
    /// What stays: `HTTP`, `HTTP, 16 requests in flight each`.
    pub(crate) title: String,
    /// What varies in words, as in [`Quantity::what`]: `… connections`, `… of work`.
    what: String,
    unit: Unit,
    payloads: Rc<Payloads<'a>>,
    /// Two or more different places, in the order of drawing: ascending, and shares falling.
    pub(crate) values: Vec<f64>,
    /// Its cells, in the order of the suite.
    pub(crate) cells: Vec<&'a Cell>,
}

impl Family<'_> {
    /// `HTTP, 64 to 10,000 connections`.
    pub(crate) fn span(&self) -> String {
        let end = |value: Option<&f64>| value.map_or_else(String::new, |v| self.spell(*v));
        let range = format!("{} to {}", end(self.values.first()), end(self.values.last()));
        format!("{}, {}", self.title, self.what.replace(NUMBER, &range))
    }

    /// Returns the name of its axis under a chart.
    pub(crate) fn axis_name(&self) -> String {
        match self.axis {
            Axis::Connections => "connections".to_owned(),
            Axis::Active => "share of the connections that send".to_owned(),
            Axis::Payload => "bytes per request".to_owned(),
            Axis::Pipeline => "requests in flight on each connection".to_owned(),
            Axis::Variant => {
                let what = self.what.trim_start_matches("… of ").trim_start_matches("… ");
                what.to_owned()
            }
        }
    }

    /// Returns where a cell stands on its axis.
    pub(crate) fn value(&self, cell: &Cell) -> f64 {
        self.axis.value(cell, &self.payloads)
    }

    /// Returns a place on its axis.
    pub(crate) fn spell(&self, value: f64) -> String {
        self.axis.spell(value, self.unit)
    }

    /// Returns whether it is the time the handler takes for something, `work` or `delay`, that varies.
    pub(crate) fn is_time_of(&self, what: &str) -> bool {
        self.axis == Axis::Variant && self.unit == Unit::Time && self.what.ends_with(what)
    }
}

/// Returns the families of a record along an axis, each with at least two different places on it.
pub(crate) fn families(record: &Record, axis: Axis) -> Vec<Family<'_>> {
    let mut families: Vec<Family<'_>> = Vec::new();
    let payloads = Rc::new(Payloads::of(record));
    let mut add = |cell, what: &str, unit: Unit| {
        let title = title(cell, &payloads, Some(axis));
        match families.iter_mut().find(|family| family.title == title && family.what == what) {
            Some(family) => family.cells.push(cell),
            None => families.push(Family {
                axis,
                title,
                what: what.to_owned(),
                unit,
                payloads: Rc::clone(&payloads),
                values: Vec::new(),
                cells: vec![cell],
            }),
        }
    };
    if axis == Axis::Variant {
        let mut kinds: Vec<Quantity> = Vec::new();
        for found in record.cells.iter().filter_map(quantity) {
            if !kinds.iter().any(|kind| kind.what == found.what) {
                kinds.push(found);
            }
        }
        for kind in kinds {
            for cell in &record.cells {
                let belongs = match quantity(cell) {
                    Some(found) => found.what == kind.what,
                    // No work is said by saying nothing of work.
                    None => cell.variant.is_none() && kind.unit == Unit::Time,
                };
                if belongs {
                    add(cell, &kind.what, kind.unit);
                }
            }
        }
    } else {
        let what = match axis {
            Axis::Connections => "… connections",
            Axis::Active => "… active",
            Axis::Payload => "… per request",
            Axis::Pipeline | Axis::Variant => "… in flight each",
        };
        record.cells.iter().for_each(|cell| add(cell, what, Unit::Plain));
    }
    for family in &mut families {
        family.values = family.cells.iter().map(|cell| family.value(cell)).collect();
        family.values.sort_by(f64::total_cmp);
        family.values.dedup();
        if axis == Axis::Active {
            family.values.reverse();
        }
    }
    families.retain(|family| family.values.len() > 1);
    families
}

/// Returns the families worth a chart: not those with every cell in a family with more places.
pub(crate) fn drawn(record: &Record) -> Vec<Family<'_>> {
    let mut all: Vec<Family<'_>> = Axis::ALL.into_iter().flat_map(|axis| families(record, axis)).collect();
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by_key(|nth| std::cmp::Reverse(all[*nth].values.len()));
    let mut kept: Vec<usize> = Vec::new();
    for nth in order {
        let told = |cell: &&Cell| {
            kept.iter().any(|other| {
                all[*other].values.len() > all[nth].values.len()
                    && all[*other].cells.iter().any(|c| std::ptr::eq(*c, *cell))
            })
        };
        if !all[nth].cells.iter().all(told) {
            kept.push(nth);
        }
    }
    let mut nth = 0;
    all.retain(|_| {
        nth += 1;
        kept.contains(&(nth - 1))
    });
    all
}

/// Returns the programs of a record, in the order of the suite.
pub(crate) fn models(record: &Record) -> Vec<&str> {
    let mut models: Vec<&str> = Vec::new();
    for cell in &record.cells {
        if !models.contains(&cell.model.as_str()) {
            models.push(&cell.model);
        }
    }
    models
}

/// `HTTP`, `Echo`: the protocol at the start of a label.
fn protocol(cell: &Cell) -> String {
    match cell.protocol.as_str() {
        "http" => "HTTP".to_owned(),
        "echo" => "Echo".to_owned(),
        "files" => "Files".to_owned(),
        other => other.to_owned(),
    }
}

/// `64 connections`, `1 connection`.
pub(crate) fn connections(cell: &Cell) -> String {
    let plural = if cell.connections == 1 { "" } else { "s" };
    format!("{}\u{a0}connection{plural}", figure::count(u64::from(cell.connections)))
}

/// Returns a cell's load in a few words, without what varies along an axis; names only what is not ordinary.
fn title(cell: &Cell, payloads: &Payloads<'_>, without: Option<Axis>) -> String {
    let mut parts = vec![protocol(cell)];
    let named = |axis: Axis| without != Some(axis);
    // Copying files makes no connection.
    if named(Axis::Connections) && cell.protocol != "files" {
        parts.push(connections(cell));
    }
    if cell.pipeline > 1 && named(Axis::Pipeline) {
        parts.push(format!("{} in flight each", figure::count(u64::from(cell.pipeline))));
    }
    if named(Axis::Payload) && payloads.vary(cell) {
        parts.push(figure::bytes(payloads.of_load(cell) as f64));
    }
    if cell.active_share < 1.0 && named(Axis::Active) {
        parts.push(format!("{} active", figure::percent_short(cell.active_share)));
    }
    if cell.kind == Loop::Open {
        match cell.rate_target {
            Some(rate) => parts.push(format!("sent at {}", Figure::Rate.spell(rate))),
            None => parts.push("open loop".to_owned()),
        }
    }
    let in_words = cell.variant.as_deref().filter(|_| named(Axis::Variant) || quantity(cell).is_none());
    parts.extend(in_words.map(str::to_owned));
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::super::sample;
    use super::*;

    fn with_variant(text: &str) -> Cell {
        Cell { variant: Some(text.to_owned()), ..sample::quick().cells[0].clone() }
    }

    #[test]
    fn loads_without_a_name_are_told_apart_by_their_shape() {
        let mut record = sample::floor();
        let named = loads(&record).len();
        for cell in &mut record.cells {
            cell.load.clear();
        }
        assert_eq!(loads(&record).len(), named);
    }

    #[test]
    fn a_family_needs_two_places_on_its_axis() {
        let record = sample::floor();
        let found = families(&record, Axis::Connections);
        assert!(found.iter().all(|family| family.values.len() > 1));
        assert!(found.iter().any(|family| family.title == "HTTP"));
        assert!(Axis::ALL.into_iter().all(|axis| families(&sample::quick(), axis).is_empty()));
    }

    /// Adds a program that answers every request of HTTP with a page of its own, as the first of each load.
    fn with_own_page(record: &mut Record, bytes: u64) {
        let base = record.cells.iter().filter(|cell| cell.model == "epoll-et" && cell.protocol == "http");
        let mine: Vec<Cell> = base
            .map(|cell| Cell {
                id: format!("mine/{}", cell.load),
                model: "mine".to_owned(),
                payload_bytes: bytes,
                ..cell.clone()
            })
            .collect();
        record.cells.splice(0..0, mine);
    }

    fn titles(record: &Record) -> Vec<String> {
        let mut titles: Vec<String> = loads(record).into_iter().map(|load| load.title).collect();
        titles.sort();
        titles
    }

    #[test]
    fn a_program_with_another_page_stays_with_the_others_under_their_title() {
        let plain = sample::floor();
        let mut record = sample::floor();
        with_own_page(&mut record, 612);
        assert_eq!(titles(&record), titles(&plain));
        let http = |record: &Record| {
            let found = families(record, Axis::Connections);
            let cells = found.iter().filter(|family| family.title == "HTTP").map(|family| family.cells.len());
            cells.collect::<Vec<_>>()
        };
        assert_eq!(
            http(&record),
            [http(&plain)[0] + 4],
            "it is in the lines of the others, at all four places"
        );
        assert!(families(&record, Axis::Payload).is_empty(), "nothing was varied");
        // Without a baseline the page is that of most.
        record.baseline = None;
        assert_eq!(titles(&record), titles(&plain));
    }

    #[test]
    fn where_the_suite_varies_the_payload_a_page_of_one_size_stands_at_each_load() {
        let mut record = sample::quick();
        record.cells.retain(|cell| cell.protocol == "http");
        let mut large = record.cells.clone();
        for cell in &mut large {
            (cell.load, cell.payload_bytes) = ("http-64-16k".to_owned(), 16_384);
            cell.id = format!("{}/{}", cell.model, cell.load);
        }
        record.cells.extend(large);
        with_own_page(&mut record, 612);
        let found = families(&record, Axis::Payload);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].values, [20.0, 16_384.0]);
        let mine = found[0].cells.iter().filter(|cell| cell.model == "mine");
        assert_eq!(mine.map(|cell| found[0].value(cell)).collect::<Vec<_>>(), [20.0, 16_384.0]);
        let plain: Vec<String> =
            titles(&record).into_iter().map(|title| title.replace('\u{a0}', " ")).collect();
        assert_eq!(plain, ["HTTP, 64 connections, 16.0 KiB", "HTTP, 64 connections, 20 B"]);
    }

    #[test]
    fn a_load_that_the_baseline_did_not_answer_has_the_page_of_most() {
        let mut record = sample::quick();
        with_own_page(&mut record, 612);
        for cell in record.cells.iter_mut().filter(|cell| cell.model == "epoll-et") {
            *cell = sample::skipped(cell, "not installed");
            cell.payload_bytes = 0;
        }
        let payloads = Payloads::of(&record);
        let http = record.cells.iter().filter(|cell| cell.protocol == "http");
        assert!(http.map(|cell| payloads.of_load(cell)).all(|bytes| bytes == 20));
        let echo = record.cells.iter().find(|cell| cell.protocol == "echo" && cell.model == "poll").unwrap();
        assert_eq!(payloads.of_load(echo), 64);
    }

    #[test]
    fn a_number_in_words_is_read_with_its_unit() {
        let read = |text: &str| quantity(&with_variant(text)).map(|q| (q.value, q.unit, q.what));
        assert_eq!(read("20 µs of work"), Some((20.0, Unit::Time, "… of work".to_owned())));
        assert_eq!(read("1 ms of delay"), Some((1000.0, Unit::Time, "… of delay".to_owned())));
        assert_eq!(read("buffers of 8\u{a0}KiB"), Some((8192.0, Unit::Bytes, "buffers of …".to_owned())));
        let turn = "at most … connections per turn".to_owned();
        assert_eq!(read("at most 1,000 connections per turn"), Some((1000.0, Unit::Plain, turn)));
        let workers = "… workers, 20 µs of work".to_owned();
        assert_eq!(read("1 worker, 20 µs of work"), Some((1.0, Unit::Plain, workers.clone())));
        assert_eq!(read("16 workers, 20 µs of work"), Some((16.0, Unit::Plain, workers)));
        assert_eq!(read("a connection per request"), None);
        assert_eq!(read("20"), None);
    }

    #[test]
    fn no_work_is_the_zero_of_work_and_of_delay() {
        let mut record = sample::quick();
        record.cells.retain(|cell| cell.load == "http-64" && cell.model == "epoll-et");
        for text in ["20 µs of work", "100 µs of work", "1 ms of delay"] {
            record.cells.push(Cell {
                load: text.to_owned(),
                variant: Some(text.to_owned()),
                ..record.cells[0].clone()
            });
        }
        let found = families(&record, Axis::Variant);
        let spans: Vec<String> = found.iter().map(|family| family.span().replace('\u{a0}', " ")).collect();
        assert_eq!(
            spans,
            ["HTTP, 64 connections, 0 to 100 µs of work", "HTTP, 64 connections, 0 to 1 ms of delay"]
        );
        assert_eq!(found[0].values, [0.0, 20.0, 100.0]);
    }

    #[test]
    fn shares_fall_from_left_to_right() {
        let record = sample::idle();
        let found = families(&record, Axis::Active);
        assert_eq!(found[0].values, [1.0, 0.1, 0.01]);
        assert_eq!(
            found.last().unwrap().span().replace('\u{a0}', " "),
            "HTTP, 10,000 connections, 100 % to 1 % active"
        );
    }

    #[test]
    fn two_places_on_one_axis_are_not_drawn_where_three_on_another_tell_it() {
        let axes: Vec<Axis> = drawn(&sample::idle()).iter().map(|family| family.axis).collect();
        assert_eq!(axes, [Axis::Active, Axis::Active]);
    }
}
