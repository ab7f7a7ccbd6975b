//! What the documents claim: `docs/claims.toml`, read and checked.
//!
//! A table becomes one [`Stated`] per cell that holds a figure; what a row, a column or the table says of its
//! cells is spread over them here. Every mistake in the file is told with the claim it concerns. Start at
//! [`Catalogue::built_in`]; what the file looks like is in `catalogue/raw.rs`.

mod raw;

use super::sum::Sum;
use crate::error::{Error, SuiteError};
use raw::{Kind, RawCatalogue, RawLine, RawLittle, RawTable, Rest, Terms, number, sense};
use ringroad_measure::claim::{Place, Sense};
use std::collections::{BTreeMap, HashSet};

const CLAIMS: &str = include_str!("../../../../docs/claims.toml");
/// What errors call it.
const FILE: &str = "docs/claims.toml";
/// The words of a cell that holds no figure.
pub const NO_FIGURE: &str = "–";
/// How far a value may be off, as a factor, where a claim says nothing else: other machines, other noise.
const TOLERANCE: f64 = 1.25;

/// Everything the documents state.
#[derive(Clone, Debug, PartialEq)]
pub struct Catalogue {
    /// The figures, in the order of the file.
    pub stated: Vec<Stated>,
    /// The tables they come from.
    pub tables: Vec<Table>,
    /// Rates and latencies that belong together.
    pub pairs: Vec<Pair>,
}

/// One figure of a document.
#[derive(Clone, Debug, PartialEq)]
pub struct Stated {
    /// Unique.
    pub id: String,
    /// `000` to `004`.
    pub source: String,
    /// The part of the document.
    pub section: String,
    /// The cell it is, if it is one.
    pub cell: Option<Place>,
    /// In plain words.
    pub what: String,
    /// As the document spells it.
    pub quote: String,
    /// Its value in `unit`.
    pub value: Option<f64>,
    /// Of the value.
    pub unit: String,
    /// How the value is meant.
    pub sense: Sense,
    /// How far off still counts as met, a factor.
    pub tolerance: f64,
    /// What is done about it.
    pub test: Test,
    /// What stands for its program here.
    pub by: Option<String>,
    /// What a reader should know.
    pub note: Option<String>,
}

/// What is done about a figure.
#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    /// Measured here.
    Measure {
        /// By this.
        sum: Sum,
        /// Where that is not to be had, the nearest thing that is.
        near: Option<Sum>,
    },
    /// Computed from figures of the documents.
    Compute(Sum),
    /// Nothing can be done.
    Cannot {
        /// The short name of the reason.
        reason: String,
        /// In a sentence.
        why: String,
        /// The nearest thing that can be measured.
        near: Option<Sum>,
    },
}

/// A table, for drawing.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Its id.
    pub id: String,
    /// The document.
    pub source: String,
    /// The part of it.
    pub section: String,
    /// The rows: id and what to call it.
    pub rows: Vec<(String, String)>,
    /// The columns likewise.
    pub columns: Vec<(String, String)>,
}

/// A rate and the latency beside it.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// Id of the claimed rate, requests per second.
    pub rate: String,
    /// Id of the claimed latency, milliseconds.
    pub latency: String,
    /// Connections the document states.
    pub connections: Option<f64>,
    /// The latency is a percentile above the mean.
    pub at_most: bool,
}

impl Catalogue {
    /// Returns the claims this program was built with.
    ///
    /// # Errors
    /// None in a released build: a test reads the embedded file.
    pub fn built_in() -> Result<Catalogue, Error> {
        Catalogue::parse(CLAIMS).map_err(Error::Suite)
    }

    /// Claims from their text.
    ///
    /// # Errors
    /// The first mistake, with the claim it is in.
    pub fn parse(text: &str) -> Result<Catalogue, SuiteError> {
        let raw: RawCatalogue = toml::from_str(text).map_err(|error| SuiteError {
            file: FILE.to_owned(),
            line: error.span().map(|span| 1 + text.bytes().take(span.start).filter(|b| *b == b'\n').count()),
            key: None,
            message: error.message().trim_end().to_owned(),
        })?;
        let mut catalogue = Catalogue { stated: Vec::new(), tables: Vec::new(), pairs: Vec::new() };
        for table in &raw.table {
            catalogue.add_table(table, &raw.reasons)?;
        }
        for figure in &raw.figure {
            unknown(&figure.rest, &figure.id)?;
            let facts = Facts {
                id: figure.id.clone(),
                source: &figure.source,
                section: &figure.section,
                cell: None,
                what: figure.what.clone(),
                quote: &figure.quote,
            };
            catalogue.stated.push(facts.stated(&[&figure.terms], &|text| text.to_owned(), &raw.reasons)?);
        }
        for little in &raw.little {
            catalogue.add_pairs(little, &raw.table)?;
        }
        catalogue.check()?;
        Ok(catalogue)
    }

    fn add_table(&mut self, table: &RawTable, reasons: &BTreeMap<String, String>) -> Result<(), SuiteError> {
        unknown(&table.rest, &table.id)?;
        for line in table.rows.iter().chain(&table.columns) {
            unknown(&line.rest, &format!("{}, {}", table.id, line.id))?;
        }
        let known = |lines: &[RawLine], id: &str| lines.iter().any(|line| line.id == id);
        for cell in &table.cell {
            unknown(&cell.rest, &table.id)?;
            if !known(&table.rows, &cell.row) || !known(&table.columns, &cell.column) {
                return Err(mistake(&table.id, format!("has no cell {}, {}", cell.row, cell.column)));
            }
        }
        for row in &table.rows {
            if row.cells.len() != table.columns.len() {
                let (cells, columns) = (row.cells.len(), table.columns.len());
                return Err(mistake(&table.id, format!("row {} has {cells} cells, not {columns}", row.id)));
            }
            for (column, quote) in table.columns.iter().zip(&row.cells) {
                if quote == NO_FIGURE {
                    continue;
                }
                let own = table.cell.iter().find(|cell| cell.row == row.id && cell.column == column.id);
                let nothing = Terms::default();
                let own = own.map_or(&nothing, |cell| &cell.terms);
                let terms = [own, &column.terms, &row.terms, &table.terms];
                let program = terms.iter().find_map(|terms| terms.program.as_deref()).unwrap_or_default();
                let fill = |text: &str| {
                    text.replace("{row}", &row.id)
                        .replace("{column}", &column.id)
                        .replace("{program}", program)
                };
                let facts = Facts {
                    id: format!("{}/{}/{}", table.id, row.id, column.id),
                    source: &table.source,
                    section: &table.section,
                    cell: Some(Place {
                        table: table.id.clone(),
                        row: row.id.clone(),
                        column: column.id.clone(),
                    }),
                    what: table.what.replace("{row}", row.name()).replace("{column}", column.name()),
                    quote,
                };
                self.stated.push(facts.stated(&terms, &fill, reasons)?);
            }
        }
        let names = |lines: &[RawLine]| {
            lines.iter().map(|line| (line.id.clone(), line.name().to_owned())).collect::<Vec<_>>()
        };
        self.tables.push(Table {
            id: table.id.clone(),
            source: table.source.clone(),
            section: table.section.clone(),
            rows: names(&table.rows),
            columns: names(&table.columns),
        });
        Ok(())
    }

    /// Adds a pair for each row and column its ids speak of.
    fn add_pairs(&mut self, little: &RawLittle, tables: &[RawTable]) -> Result<(), SuiteError> {
        let table = tables
            .iter()
            .find(|table| table.id == little.of)
            .ok_or_else(|| mistake(&little.of, "is not a table".to_owned()))?;
        let mut seen = HashSet::new();
        for row in &table.rows {
            for column in &table.columns {
                let fill = |text: &str| text.replace("{row}", &row.id).replace("{column}", &column.id);
                let (rate, latency) = (fill(&little.rate), fill(&little.latency));
                if !seen.insert(rate.clone()) {
                    continue;
                }
                self.pairs.push(Pair {
                    rate,
                    latency,
                    connections: little.connections.or(column.terms.connections),
                    at_most: little.kind == Kind::P99,
                });
            }
        }
        Ok(())
    }

    /// That ids are unique, and that what refers to a claim finds it.
    fn check(&self) -> Result<(), SuiteError> {
        let mut ids = HashSet::new();
        for stated in &self.stated {
            if !ids.insert(stated.id.as_str()) {
                return Err(mistake(&stated.id, "is there twice".to_owned()));
            }
        }
        for stated in &self.stated {
            if let Test::Compute(sum) = &stated.test
                && let Some(name) = sum.names().find(|name| !ids.contains(name))
            {
                return Err(mistake(&stated.id, format!("is computed from {name}, which is no claim")));
            }
        }
        for pair in &self.pairs {
            for id in [&pair.rate, &pair.latency] {
                if !ids.contains(id.as_str()) {
                    return Err(mistake(id, "is paired by Little's law and is no claim".to_owned()));
                }
            }
        }
        Ok(())
    }

    /// Returns the claim of this id.
    pub fn find(&self, id: &str) -> Option<&Stated> {
        self.stated.iter().find(|stated| stated.id == id)
    }
}

/// What is known of a figure before its terms are.
struct Facts<'a> {
    id: String,
    source: &'a str,
    section: &'a str,
    cell: Option<Place>,
    what: String,
    quote: &'a str,
}

impl Facts<'_> {
    /// Returns the figure under these terms, the nearest first.
    fn stated(
        self,
        terms: &[&Terms],
        fill: &dyn Fn(&str) -> String,
        reasons: &BTreeMap<String, String>,
    ) -> Result<Stated, SuiteError> {
        fn first<'a, T>(terms: &[&'a Terms], get: impl Fn(&'a Terms) -> Option<T>) -> Option<T> {
            terms.iter().find_map(|terms| get(terms))
        }
        let id = &self.id;
        let unit = first(terms, |terms| terms.unit.as_deref()).unwrap_or_default().to_owned();
        let sum = |text: &str| Sum::read(&fill(text)).map_err(|error| mistake(id, error.to_string()));
        let near = |terms: &Terms| terms.near.as_deref().map(sum).transpose();
        let Some(chosen) = terms.iter().find(|terms| terms.has_test()) else {
            return Err(mistake(id, "says neither `measure` nor `compute` nor `cannot`".to_owned()));
        };
        let test = match (&chosen.measure, &chosen.compute, &chosen.cannot) {
            (Some(text), None, None) => Test::Measure { sum: sum(text)?, near: near(chosen)? },
            (None, Some(text), None) => Test::Compute(sum(text)?),
            (None, None, Some(reason)) => {
                let why = reasons
                    .get(reason)
                    .ok_or_else(|| mistake(id, format!("`{reason}` is not among the reasons")))?;
                Test::Cannot { reason: reason.clone(), why: why.clone(), near: near(chosen)? }
            }
            _ => return Err(mistake(id, "has more than one test".to_owned())),
        };
        let value = first(terms, |terms| terms.value).or_else(|| number(self.quote, &unit));
        if value.is_none() && !matches!(test, Test::Cannot { .. }) {
            return Err(mistake(id, format!("`{}` holds no number: give a `value`", self.quote)));
        }
        let sense = first(terms, |terms| terms.sense).unwrap_or_else(|| sense(self.quote));
        Ok(Stated {
            source: self.source.to_owned(),
            section: self.section.to_owned(),
            cell: self.cell,
            what: self.what,
            quote: self.quote.to_owned(),
            value,
            unit,
            sense,
            tolerance: first(terms, |terms| terms.tolerance).unwrap_or(TOLERANCE),
            test,
            by: first(terms, |terms| terms.by.clone()),
            note: first(terms, |terms| terms.note.clone()),
            id: self.id,
        })
    }
}

fn unknown(rest: &Rest, claim: &str) -> Result<(), SuiteError> {
    match rest.keys().next() {
        Some(key) => Err(mistake(claim, format!("unknown key `{key}`"))),
        None => Ok(()),
    }
}

fn mistake(claim: &str, message: String) -> SuiteError {
    SuiteError { file: FILE.to_owned(), line: None, key: Some(claim.to_owned()), message }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const SMALL: &str = r#"
[reasons]
absent = "it is not here"
[[table]]
id = "t"
source = "003"
section = "results"
what = "{row} at {column}"
unit = "requests/s"
measure = "echo-{column}/{program}.rps"
columns = [{ id = "10", head = "10", connections = 10 }, { id = "1000", head = "1000", connections = 1000 }]
rows = [
    { id = "select", head = "02", name = "Select", cells = ["154K", "99K"], program = "sel" },
    { id = "kqueue", head = "04", cells = ["–", "157K"], cannot = "absent" },
]
[[table.cell]]
row = "select"
column = "1000"
compute = "t/select/10 * 0.64"
sense = "most"
[[figure]]
id = "f"
source = "003"
section = "text"
what = "latency"
quote = "0.13ms"
unit = "ms"
cannot = "absent"
near = "echo-10/sel.p99"
[[little]]
of = "t"
rate = "t/select/{column}"
latency = "f"
kind = "p99"
"#;

    fn changed(from: &str, to: &str) -> String {
        assert!(SMALL.contains(from), "{from}");
        let error = Catalogue::parse(&SMALL.replacen(from, to, 1)).unwrap_err();
        error.to_string()
    }

    #[test]
    fn the_claims_of_the_repository_are_read() {
        let catalogue = Catalogue::built_in().unwrap();
        assert!(catalogue.stated.len() > 250, "{}", catalogue.stated.len());
        assert!(catalogue.pairs.len() >= 30, "{}", catalogue.pairs.len());
    }

    #[test]
    fn a_cell_outranks_its_column_its_row_and_its_table() {
        let catalogue = Catalogue::parse(SMALL).unwrap();
        let ids: Vec<&str> = catalogue.stated.iter().map(|stated| stated.id.as_str()).collect();
        assert_eq!(ids, ["t/select/10", "t/select/1000", "t/kqueue/1000", "f"], "a dash holds no figure");
        let find = |id| catalogue.find(id).unwrap();
        assert_eq!(
            find("t/select/10").test,
            Test::Measure { sum: Sum::read("echo-10/sel.rps").unwrap(), near: None }
        );
        assert_eq!(find("t/select/10").what, "Select at 10");
        assert_eq!(find("t/select/1000").sense, Sense::Most);
        assert!(matches!(find("t/select/1000").test, Test::Compute(_)));
        assert!(
            matches!(&find("t/kqueue/1000").test, Test::Cannot { why, near: None, .. } if why == "it is not here")
        );
        let connections: Vec<_> = catalogue.pairs.iter().map(|pair| pair.connections).collect();
        assert_eq!(connections, [Some(10.0), Some(1000.0)]);
    }

    #[test]
    fn every_mistake_is_told_with_its_claim() {
        for (from, to, claim, part) in [
            ("cells = [\"154K\", \"99K\"]", "cells = [\"154K\"]", ": t: ", "1 cells"),
            ("cannot = \"absent\" }", "cannot = \"away\" }", ": t/kqueue/1000: ", "`away`"),
            ("near = \"echo-10/sel.p99\"", "nearest = \"x\"", ": f: ", "`nearest`"),
            ("t/select/10 * 0.64", "t/poll/10 * 0.64", ": t/select/1000: ", "t/poll/10"),
            ("echo-{column}/{program}.rps", "echo %", ": t/select/10: ", "not a sum"),
            ("row = \"select\"", "row = \"poll\"", ": t: ", "no cell poll"),
            ("latency = \"f\"", "latency = \"g\"", ": g: ", "no claim"),
            ("id = \"f\"", "id = \"t/select/10\"", ": t/select/10: ", "twice"),
            ("cannot = \"absent\"\nnear = \"echo-10/sel.p99\"", "", ": f: ", "neither"),
            ("sense = \"most\"", "sense = \"roughly\"", "", "roughly"),
        ] {
            let error = changed(from, to);
            assert!(error.contains(claim) && error.contains(part), "{to}: {error}");
        }
    }
}
