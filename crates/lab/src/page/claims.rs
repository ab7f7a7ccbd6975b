//! Claimed against measured: published figures, and the results here.
//!
//! A claim that could be tested is a dot at measured over claimed, on one scale for all units; the line at 1
//! is the claim itself. Which claims there are and how each was tested, the record says. Start at
//! [`section`].

use super::figure;
use super::sections::{self, folded, panels};
use super::svg::{Axis, Mark, Row, Rows, Scale, escape};
use crate::sources::text::{spell, with};
use ringroad_measure::claim::{Claim, Origin, Outcome};
use ringroad_measure::record::Record;

/// Returns the section of the claims, with the table of all of them if `lists`; nothing if the record has
/// none.
pub(crate) fn section(record: &Record, lists: bool) -> String {
    if record.claims.is_empty() {
        return String::new();
    }
    let mut charts: Vec<(String, String)> = Vec::new();
    for group in groups(&record.claims) {
        let unit = group.unit().filter(|unit| !group.title.ends_with(unit));
        let unit = unit.map(|unit| format!(" ({unit})")).unwrap_or_default();
        charts.extend(chart(&group).map(|chart| (format!("{}{unit}", group.title), chart)));
    }
    let all = figure::count(record.claims.len() as u64);
    let behind = match lists {
        true => folded(&format!("All {all} figures"), &table(&record.claims)),
        false => format!(
            "<p>The table of all {all} is too large for this page; it is in <code>record.json</code>.</p>\n"
        ),
    };
    let html = format!("<p>{}</p>\n{}{behind}", escape(&summary(&record.claims)), panels(&charts));
    sections::section(
        "Claimed and measured",
        "Figures that the documents state, and the results on this machine.",
        "A dot is what was measured, or what the document's own figures make, divided by what was claimed; 1 is the claim \
         itself, 2 is twice as much. Whether more is better depends on the figure. Hollow dots are the nearest thing that could be measured and decide nothing.",
        &html,
    )
}

/// Returns how many came out as claimed, in a sentence or two; what was only computed from the document's own
/// figures is no test.
pub(crate) fn summary(claims: &[Claim]) -> String {
    let of = |origin: Origin, outcome: Outcome| {
        claims.iter().filter(|claim| claim.origin == Some(origin) && claim.outcome == outcome).count()
    };
    let both = |origin: Origin| (of(origin, Outcome::Reproduced), of(origin, Outcome::NotReproduced));
    let ((yes, no), (follow, contradict)) = (both(Origin::Measured), both(Origin::Computed));
    let count = |number: usize| figure::count(number as u64);
    let mut text = format!(
        "Of {} published figures {} could be tested here: {} came out as claimed, {} did not.",
        count(claims.len()),
        count(yes + no),
        count(yes),
        count(no),
    );
    if follow + contradict > 0 {
        text.push_str(&format!(
            " {} more were computed from their documents' own figures: {} follow from them, {} {} not.",
            count(follow + contradict),
            count(follow),
            count(contradict),
            if contradict == 1 { "does" } else { "do" },
        ));
    }
    let held: Vec<bool> = claims.iter().filter_map(|claim| claim.little?.agrees()).collect();
    let broken = held.iter().filter(|agrees| !**agrees).count();
    if broken > 0 {
        text.push_str(&format!(
            " {} of the {} that state a rate, a latency and the connections contradict themselves: by Little's law that many \
             connections would have had to be in flight, and were not.",
            count(broken),
            count(held.len()),
        ));
    }
    text
}

/// Claims that stand together: the cells of one table in one unit, or what a document's text says.
struct Group<'a> {
    title: String,
    claims: Vec<&'a Claim>,
}

impl Group<'_> {
    /// Returns the unit of all its claims, if they have one.
    fn unit(&self) -> Option<&str> {
        let first = self.claims.first()?.unit.as_str();
        (!first.is_empty() && self.claims.iter().all(|claim| claim.unit == first)).then_some(first)
    }
}

fn groups(claims: &[Claim]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for claim in claims {
        let column = claim.cell.as_ref().map(|cell| format!(", {}", cell.column)).unwrap_or_default();
        let title = format!("{} {}{column}", claim.source, claim.section);
        match groups.iter_mut().find(|group| group.title == title) {
            Some(group) => group.claims.push(claim),
            None => groups.push(Group { title, claims: vec![claim] }),
        }
    }
    groups
}

fn chart(group: &Group<'_>) -> Option<String> {
    let tested: Vec<&Claim> =
        group.claims.iter().copied().filter(|claim| positive(claim.ratio()).is_some()).collect();
    if tested.is_empty() {
        return None;
    }
    let rows: Vec<Row> = tested.iter().map(|claim| row(claim, group.unit().is_none())).collect();
    let scale = Scale::log(rows.iter().flat_map(|row| row.mark.reach()).chain([0.5, 1.0, 2.0]));
    let spell = |value: f64| format!("{}\u{a0}×", figure::trimmed(value));
    let axis = Axis { name: "measured ÷ claimed", scale, unit: 1.0, spell: &spell };
    let title = format!("Claimed and measured: {}", group.title);
    Some(Rows { title, axis, band: None, reference: Some(1.0), rows }.draw().into_svg())
}

fn positive(value: Option<f64>) -> Option<f64> {
    value.filter(|value| value.is_finite() && *value > 0.0)
}

/// Returns a claim as a row, with its unit where it is not that of the whole chart.
fn row(claim: &Claim, with_unit: bool) -> Row {
    let label = claim.cell.as_ref().map_or_else(|| claim.id.clone(), |cell| cell.row.clone());
    let whisker = claim.claimed.zip(claim.interval).map(|(claimed, i)| (i.low / claimed, i.high / claimed));
    let measured =
        claim.measured.map_or_else(String::new, |value| with(&spell(value), &claim.unit, with_unit));
    Row {
        label,
        mark: positive(claim.ratio()).map_or(Mark::Nothing, |ratio| Mark::Dot(ratio, whisker)),
        text: format!("{} → {measured}{}", claim.claimed.map_or_else(String::new, spell), mark(claim)),
        hover: format!("{}: claimed {}, {}", claim.what, claim.quote, here(claim)),
        class: match (claim.origin, claim.outcome) {
            (Some(Origin::Nearest), _) | (_, Outcome::Untestable) => "nearest",
            (_, Outcome::Reproduced) => "met",
            (_, Outcome::NotReproduced) => "missed",
        },
    }
}

/// As in the terminal, so that no outcome is told by colour alone.
fn mark(claim: &Claim) -> &'static str {
    match (claim.origin, claim.outcome) {
        (Some(Origin::Nearest), _) | (_, Outcome::Untestable) => "",
        (_, Outcome::Reproduced) => " ✓",
        (_, Outcome::NotReproduced) => " ✗",
    }
}

/// Returns what came out here, with its unit and its origin.
fn here(claim: &Claim) -> String {
    let Some(measured) = claim.measured else {
        return "not measured".to_owned();
    };
    let origin = match claim.origin {
        Some(Origin::Computed) => " computed from the document's own figures",
        Some(Origin::Nearest) => " measured on the nearest thing there is",
        Some(Origin::Measured) | None => " measured",
    };
    let by = claim.by.as_ref().map(|by| format!(" with {by}")).unwrap_or_default();
    let scale = claim.scale.as_ref().map(|scale| format!(" ({scale})")).unwrap_or_default();
    format!("{} {}{origin}{by}{scale}", spell(measured), claim.unit).trim().to_owned()
}

/// Every claim, also what could not be tested and why.
fn table(claims: &[Claim]) -> String {
    let mut html = String::from(
        "<div class=\"scroll\"><table class=\"text\">\n<thead><tr><th>Figure</th><th>Claimed</th><th>Here</th><th>Outcome</th>\
         <th>Remarks</th></tr></thead>\n",
    );
    let mut place = String::new();
    for claim in claims {
        let here_is = format!("{}, {}", claim.source, claim.section);
        if here_is != place {
            if !place.is_empty() {
                html.push_str("</tbody>\n");
            }
            html.push_str(&format!(
                "<tbody><tr><th class=\"load\" colspan=\"5\">{}</th></tr>\n",
                escape(&here_is)
            ));
            place = here_is;
        }
        let outcome = match claim.outcome {
            Outcome::Reproduced => "reproduced",
            Outcome::NotReproduced => "not reproduced",
            Outcome::Untestable => "cannot be tested here",
        };
        html.push_str(&format!(
            "<tr><th>{}</th><td>{}</td><td>{}</td><td>{outcome}</td><td>{}</td></tr>\n",
            escape(&claim.what),
            escape(&claim.quote),
            escape(&if claim.measured.is_some() { here(claim) } else { "–".to_owned() }),
            escape(&remarks(claim)),
        ));
    }
    html.push_str("</tbody>\n</table></div>\n");
    html
}

fn remarks(claim: &Claim) -> String {
    let mut said: Vec<String> = claim.why.iter().cloned().collect();
    if let Some(little) = claim.little
        && little.agrees() == Some(false)
    {
        let most = if little.at_most { "at most " } else { "" };
        said.push(format!(
            "rate times latency is {most}{} in flight, not {}",
            spell(little.in_flight),
            little.connections.map_or_else(|| figure::UNKNOWN.to_owned(), spell),
        ));
    }
    said.join("; ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::super::sample;
    use super::*;

    fn record() -> Record {
        let mut record = sample::quick();
        record.claims = sample::claims();
        record
    }

    #[test]
    fn without_claims_there_is_no_section() {
        assert_eq!(section(&sample::quick(), true), "");
    }

    #[test]
    fn every_claim_is_in_the_table_and_only_what_has_two_numbers_in_a_chart() {
        let record = record();
        let html = section(&record, true);
        for claim in &record.claims {
            assert!(html.contains(&escape(&claim.what)), "{}", claim.id);
        }
        assert_eq!(html.matches("class=\"row ").count(), 3);
        assert!(html.contains("Swoole is not among the programs here"));
    }

    /// All that the documents claim, as `lab sources` would leave it if nothing could be measured and if all
    /// could.
    #[test]
    fn the_page_of_all_claims_stays_small() {
        let catalogue = crate::sources::catalogue::Catalogue::built_in().unwrap();
        let mut record = sample::quick();
        record.claims = crate::sources::judge::claims(&catalogue, &Default::default(), "nothing measured it");
        assert!(section(&record, true).contains("<table"));
        for claim in &mut record.claims {
            claim.measured = claim.claimed.map(|claimed| claimed * 1.1);
        }
        let page = super::super::html(&record);
        assert!(page.len() < super::super::BYTES_MAX, "{} bytes", page.len());
    }

    /// The embedded record gives way as a whole where its charts and claims leave no room for it.
    #[test]
    fn the_page_of_all_claims_and_many_loads_stays_small() {
        let catalogue = crate::sources::catalogue::Catalogue::built_in().unwrap();
        let mut record = sample::floor();
        record.claims = crate::sources::judge::claims(&catalogue, &Default::default(), "nothing measured it");
        let cells = record.cells.clone();
        record.cells.extend(cells.into_iter().map(|mut cell| {
            cell.load = format!("{}-again", cell.load);
            cell.connections += 1;
            cell
        }));
        let whole = serde_json::to_string(&record).unwrap().len();
        assert!(whole > super::super::BYTES_MAX, "{whole} bytes would have fitted");
        let page = super::super::html(&record);
        assert!(page.len() < super::super::BYTES_MAX, "{} bytes", page.len());
    }

    #[test]
    fn a_dot_stands_at_measured_over_claimed() {
        let claims = sample::claims();
        assert_eq!(row(&claims[0], false).mark, Mark::Dot(1.25, None));
        assert_eq!(row(&claims[0], false).class, "met");
        assert_eq!(row(&claims[1], false).class, "missed");
        assert_eq!(row(&claims[2], false).class, "nearest");
    }

    #[test]
    fn the_summary_counts_what_was_tested_and_what_contradicts_itself() {
        assert_eq!(
            summary(&sample::claims()),
            "Of 4 published figures 2 could be tested here: 1 came out as claimed, 1 did not. 1 of the 2 that state a rate, a \
             latency and the connections contradict themselves: by Little's law that many connections would have had to be in \
             flight, and were not."
        );
    }

    #[test]
    fn what_was_computed_from_the_documents_own_figures_is_not_counted_as_tested() {
        let [yes, no, ..] = &sample::claims()[..] else { panic!("two that were measured") };
        let [mut yes, mut no] = [yes.clone(), no.clone()];
        (yes.little, no.little) = (None, None);
        let computed = Claim { origin: Some(Origin::Computed), ..yes.clone() };
        assert_eq!(
            summary(&[yes, no, computed.clone(), computed.clone(), computed]),
            "Of 5 published figures 2 could be tested here: 1 came out as claimed, 1 did not. 3 more were computed from their \
             documents' own figures: 3 follow from them, 0 do not."
        );
    }
}
