//! Claimed beside measured, for a terminal.
//!
//! A document's table is a table again, what was claimed above what came out here; single figures are lines.
//! What could not be tested is counted by its reason, and Little's law comes before the summary. Start at
//! [`text`].

use crate::table::{Paint, clean, cut, wrapped};
use ringroad_measure::Claim;
use ringroad_measure::claim::{Origin, Outcome};

/// Narrower than this the columns cannot be told apart; wider than that a row is hard to follow.
const WIDTH_MIN: usize = 80;
const WIDTH_MAX: usize = 100;
/// The widest name of a row.
const NAME_MAX: usize = 24;

/// Returns the claims as text, lines ended by `\n`; `width` is taken as at least 80 and at most 100. Empty
/// without claims.
pub fn text(claims: &[Claim], width: usize, color: bool) -> String {
    let page = Page { width: width.clamp(WIDTH_MIN, WIDTH_MAX), paint: Paint { color } };
    let mut out = String::new();
    let mut rest = claims;
    while let Some(first) = rest.first() {
        let table = |claim: &Claim| claim.cell.as_ref().map(|cell| cell.table.clone());
        let same = |claim: &&Claim| table(claim) == table(first) && claim.source == first.source;
        let (group, after) = rest.split_at(rest.iter().take_while(same).count());
        rest = after;
        // What has nothing to show but its absence is counted at the end.
        if group.iter().all(|claim| claim.measured.is_none()) {
            continue;
        }
        out.push_str(&match first.cell {
            Some(_) => page.grid(group),
            None => page.list(group),
        });
        out.push('\n');
    }
    if claims.is_empty() {
        return out;
    }
    out.push_str(&page.untested(claims));
    out.push_str(&page.little(claims));
    out.push_str(&page.sum(claims));
    out
}

struct Page {
    width: usize,
    paint: Paint,
}

impl Page {
    /// Returns a table of a document.
    fn grid(&self, group: &[Claim]) -> String {
        let mut rows: Vec<&str> = Vec::new();
        let mut columns: Vec<&str> = Vec::new();
        for cell in group.iter().filter_map(|claim| claim.cell.as_ref()) {
            for (list, name) in [(&mut rows, &cell.row), (&mut columns, &cell.column)] {
                if !list.contains(&name.as_str()) {
                    list.push(name);
                }
            }
        }
        let unit = group.first().map_or("", |claim| &claim.unit);
        let one_unit = group.iter().all(|claim| claim.unit == unit);
        let at = |row: &str, column: &str| {
            group.iter().find(|claim| {
                claim.cell.as_ref().is_some_and(|cell| cell.row == row && cell.column == column)
            })
        };
        let claimed = |claim: &Claim| claimed(claim, !one_unit);
        let here = |claim: &Claim| here(claim, !one_unit);
        let name_width = rows.iter().map(|row| row.chars().count()).max().unwrap_or(0).clamp(6, NAME_MAX);
        let cell_width = group
            .iter()
            .flat_map(|claim| [claimed(claim).chars().count(), here(claim).chars().count()])
            .chain(columns.iter().map(|column| column.chars().count()))
            .max()
            .unwrap_or(0)
            .min((self.width - name_width) / columns.len().max(1) - 2);
        let mut out = self.head(group, if one_unit { unit } else { "" });
        let mut line = format!("{:name_width$}", "");
        columns
            .iter()
            .for_each(|column| line.push_str(&format!("  {:>cell_width$}", cut(column, cell_width))));
        out.push_str(&self.paint.dim(line.trim_end()));
        out.push('\n');
        for row in rows {
            let mut above = format!("{:name_width$}", cut(&clean(row), name_width));
            let mut below = self.paint.dim(&format!("{:name_width$}", "  here"));
            for column in &columns {
                let claim = at(row, column);
                let text = claim.map_or_else(String::new, claimed);
                above.push_str(&format!("  {:>cell_width$}", cut(&text, cell_width)));
                let text = claim.map_or_else(String::new, here);
                let text = format!("  {:>cell_width$}", cut(&text, cell_width));
                below.push_str(&claim.map_or(text.clone(), |claim| self.colored(claim, &text)));
            }
            out.push_str(above.trim_end());
            out.push('\n');
            out.push_str(below.trim_end());
            out.push('\n');
        }
        out.push_str(&self.notes(group));
        out
    }

    /// Figures from a document's text.
    fn list(&self, group: &[Claim]) -> String {
        let mut out = self.head(group, "");
        let shown = group.iter().filter(|claim| claim.measured.is_some());
        let claimed_width =
            shown.clone().map(|claim| claimed(claim, true).chars().count()).max().unwrap_or(0).min(24);
        let here_width =
            shown.clone().map(|claim| here(claim, true).chars().count()).max().unwrap_or(0).min(24);
        let room = self.width - claimed_width - here_width - 8;
        for claim in shown {
            let figures = format!("  {:>claimed_width$}  → ", cut(&claimed(claim, true), claimed_width));
            let here = format!("{:>here_width$}", cut(&here(claim, true), here_width));
            let what = wrapped(&claim.what, room, "  ");
            let lines: Vec<&str> = what.lines().collect();
            // The figures stand behind the end of their sentence, not amid it.
            let (last, before) =
                lines.split_last().map_or(("", [].as_slice()), |(last, before)| (*last, before));
            before.iter().for_each(|line| out.push_str(&format!("{line}\n")));
            out.push_str(&format!("{last:room$}{figures}{}\n", self.colored(claim, &here)));
        }
        out.push_str(&self.notes(group));
        out
    }

    fn head(&self, group: &[Claim], unit: &str) -> String {
        let Some(first) = group.first() else { return String::new() };
        let title = match &first.cell {
            Some(_) => format!("{} · {}", first.source, first.section),
            None => format!("{} · in the text", first.source),
        };
        let unit = if unit.is_empty() { String::new() } else { format!(", {unit}") };
        format!("{}{}\n", self.paint.bold(&clean(&title)), self.paint.dim(&clean(&unit)))
    }

    /// Each scale, stand-in and remark of the shown claims, once.
    fn notes(&self, group: &[Claim]) -> String {
        let mut notes: Vec<String> = Vec::new();
        for claim in group.iter().filter(|claim| claim.measured.is_some()) {
            let why = claim.why.clone().filter(|_| claim.origin != Some(Origin::Nearest));
            let nearest = claim.by.as_ref().filter(|_| claim.origin == Some(Origin::Nearest));
            let by = match nearest {
                Some(by) => Some(format!("in brackets: {by}, which the claim is not about")),
                None => claim.by.clone(),
            };
            for note in [by, claim.scale.clone(), why].into_iter().flatten() {
                if !notes.contains(&note) {
                    notes.push(note);
                }
            }
        }
        let lines: String = notes.iter().map(|note| self.hanging("  ", note)).collect();
        self.paint.dim(&lines)
    }

    /// Returns a text: its first line begins with `lead`, the others stand under it.
    fn hanging(&self, lead: &str, text: &str) -> String {
        let room = lead.chars().count();
        let text = wrapped(text, self.width - room, "");
        let lead = |nth| if nth == 0 { lead.to_owned() } else { " ".repeat(room) };
        text.lines().enumerate().map(|(nth, line)| format!("{}{line}\n", lead(nth))).collect()
    }

    fn colored(&self, claim: &Claim, text: &str) -> String {
        match (claim.outcome, claim.origin) {
            (Outcome::Reproduced, _) => self.paint.with("32", text),
            (Outcome::NotReproduced, _) => self.paint.with("31", text),
            (Outcome::Untestable, _) => self.paint.dim(text),
        }
    }

    /// Returns what could not be tested, by its reason, the most frequent first.
    fn untested(&self, claims: &[Claim]) -> String {
        let mut reasons: Vec<(&str, usize)> = Vec::new();
        for claim in claims.iter().filter(|claim| claim.outcome == Outcome::Untestable) {
            let why = claim.why.as_deref().unwrap_or("no reason is known");
            match reasons.iter_mut().find(|(known, _)| *known == why) {
                Some((_, count)) => *count += 1,
                None => reasons.push((why, 1)),
            }
        }
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        if reasons.is_empty() {
            return String::new();
        }
        let mut out = format!("{}\n", self.paint.bold("Not tested"));
        for (why, count) in reasons {
            out.push_str(&self.hanging(&format!("{count:>4}  "), why));
        }
        out.push('\n');
        out
    }

    /// Rates that their own latencies contradict: each document's table in a line, with its clearest case.
    fn little(&self, claims: &[Claim]) -> String {
        let judged: Vec<(&Claim, f64, f64, bool, bool)> = claims
            .iter()
            .filter_map(|claim| {
                let little = claim.little?;
                Some((claim, little.connections?, little.in_flight, little.at_most, little.agrees()?))
            })
            .collect();
        if judged.is_empty() {
            return String::new();
        }
        let mut out = format!("{}\n", self.paint.bold("Little's law: requests in flight = rate × latency"));
        let mut sections: Vec<(&str, &str)> = Vec::new();
        for (claim, ..) in &judged {
            if !sections.contains(&(&claim.source, &claim.section)) {
                sections.push((&claim.source, &claim.section));
            }
        }
        for (source, section) in sections {
            let own = judged.iter().filter(|(claim, ..)| claim.source == source && claim.section == section);
            let wrong: Vec<_> = own.clone().filter(|(.., agrees)| !agrees).collect();
            let count = own.count();
            let off = |in_flight: f64, connections: f64| (in_flight / connections).ln().abs();
            let worst = wrong.iter().max_by(|a, b| off(a.2, a.1).total_cmp(&off(b.2, b.1)));
            let sentence = match worst {
                None => format!("{source} · {section}: all {count} agree with the latencies beside them."),
                Some((claim, connections, in_flight, at_most, _)) => format!(
                    "{source} · {section}: {} of {count} contradict the latencies beside them. {}: {} {} in flight, not {}.",
                    wrong.len(),
                    claim.what,
                    if *at_most { "at most" } else { "it makes" },
                    spell(*in_flight),
                    spell(*connections),
                ),
            };
            out.push_str(&self.hanging("  ", &sentence));
        }
        out.push('\n');
        out
    }

    fn sum(&self, claims: &[Claim]) -> String {
        let count = |outcome: Outcome, origin: Option<Origin>| {
            claims.iter().filter(|claim| claim.outcome == outcome && claim.origin == origin).count()
        };
        let (measured, computed) = (Some(Origin::Measured), Some(Origin::Computed));
        let untested = claims.iter().filter(|claim| claim.outcome == Outcome::Untestable).count();
        let sentence = format!(
            "Of {} figures, {} were reproduced here and {} not; {} follow from their document's own figures and {} \
             not; {untested} could not be tested. Absolute rates are those of other machines: what carries over is \
             which is faster, and by how much.",
            claims.len(),
            count(Outcome::Reproduced, measured),
            count(Outcome::NotReproduced, measured),
            count(Outcome::Reproduced, computed),
            count(Outcome::NotReproduced, computed),
        );
        self.paint.bold(&wrapped(&sentence, self.width, ""))
    }
}

/// Returns the figure as the document has it.
fn claimed(claim: &Claim, with_unit: bool) -> String {
    match (claim.claimed, claim.quote.as_str()) {
        (_, "❌") => "fails".to_owned(),
        (Some(_), "N/A") => "none".to_owned(),
        (Some(value), _) => with(&spell(value), &claim.unit, with_unit),
        (None, quote) => clean(quote),
    }
}

/// Returns what came out here, with its mark.
fn here(claim: &Claim, with_unit: bool) -> String {
    let Some(value) = claim.measured else { return "–".to_owned() };
    let value = with(&spell(value), &claim.unit, with_unit);
    match (claim.outcome, claim.origin) {
        (Outcome::Reproduced, _) => format!("{value} ✓"),
        (Outcome::NotReproduced, _) => format!("{value} ✗"),
        (Outcome::Untestable, _) => format!("({value})"),
    }
}

/// Returns a value with its unit, as short as it can be read.
pub(crate) fn with(value: &str, unit: &str, wanted: bool) -> String {
    match unit {
        unit if !wanted || unit.is_empty() => value.to_owned(),
        "requests/s" => format!("{value}/s"),
        "connections" => format!("{value} conn."),
        unit => format!("{value} {unit}"),
    }
}

/// Writes the three digits that count, thousands and millions by their letter: `0.13`, `13.2`, `155k`,
/// `1.28M`.
pub fn spell(value: f64) -> String {
    let (value, letter) = match value.abs() {
        big if big >= 999_500.0 => (value / 1e6, "M"),
        big if big >= 9_995.0 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let size = value.abs();
    let digits = match size {
        _ if size == 0.0 || size >= 100.0 => 0,
        _ if size >= 10.0 => 1,
        _ if size >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    let text = if digits > 0 { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{}{letter}", if text == "-0" { "0" } else { text })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used)]
    use super::*;
    use crate::sources::catalogue::Catalogue;
    use crate::sources::judge;
    use crate::sources::sum::Figure;
    use std::collections::BTreeMap;

    fn sample() -> Vec<Claim> {
        let catalogue = Catalogue::built_in().expect("the embedded file is tested");
        let mut figures = BTreeMap::new();
        for program in ["threads", "select", "poll", "epoll-et", "engine-epoll"] {
            for connections in [10, 50, 100, 500, 1000] {
                let figure = Figure::of(155_500.0).scaled("1 s instead of 30, 3 times");
                figures.insert(format!("echo-{connections}/{program}.rps"), Ok(figure));
            }
        }
        figures.insert("http-200/uring-multishot.rps".to_owned(), Ok(Figure::of(270_000.0)));
        figures.insert("echo-1000/poll.p99".to_owned(), Err("poll was INVALID".to_owned()));
        judge::claims(&catalogue, &figures, "nothing measured it")
    }

    #[test]
    fn a_table_is_a_table_again_with_what_came_out_under_what_was_claimed() {
        let text = text(&sample(), 90, false);
        let lines: Vec<&str> = text.lines().collect();
        let select = lines.iter().position(|line| line.starts_with("select ") && line.contains("99k"));
        let (above, below) = select
            .and_then(|at| Some((lines.get(at)?, lines.get(at + 1)?)))
            .unwrap_or_else(|| panic!("{text}"));
        assert_eq!(
            above.split_whitespace().collect::<Vec<_>>(),
            ["select", "154k", "151k", "146k", "125k", "99k"]
        );
        assert_eq!(
            below.split_whitespace().collect::<Vec<_>>(),
            ["here", "156k", "✓", "156k", "✓", "156k", "✓", "156k", "✓", "156k", "✗"]
        );
        assert!(text.contains("1 s instead of 30, 3 times"), "the scale is said");
        assert!(text.contains("in kqueue's place"), "who stood in is said");
    }

    #[test]
    fn what_is_only_near_is_in_brackets_and_said_to_be_no_test() {
        let text = text(&sample(), 100, false);
        assert!(text.contains("(270k/s)"), "{text}");
        assert!(text.contains("in brackets: uring-multishot"), "{text}");
    }

    #[test]
    fn what_was_not_tested_is_counted_by_its_reason() {
        let text = text(&sample(), 100, false);
        assert!(text.contains("1  poll was INVALID"), "{text}");
        assert!(text.contains("Swoole with its io_uring socket"), "{text}");
    }

    #[test]
    fn littles_law_names_the_clearest_contradiction() {
        let text = text(&sample(), 100, false).replace('\n', " ");
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("001 · chapter 1, performance: all 2 agree"), "{text}");
        assert!(text.contains("at most 18.6 in flight, not 1000"), "{text}");
    }

    #[test]
    fn no_line_is_wider_than_asked_and_colour_changes_nothing_but_colour() {
        for (asked, most) in [(0, 80), (90, 90), (500, 100)] {
            let text = text(&sample(), asked, false);
            let long: Vec<&str> = text.lines().filter(|line| line.chars().count() > most).collect();
            assert!(long.is_empty(), "{asked}: {long:#?}");
        }
        let mut bare = String::new();
        let mut in_code = false;
        for c in text(&sample(), 90, true).chars() {
            match c {
                '\u{1b}' => in_code = true,
                'm' if in_code => in_code = false,
                _ if in_code => {}
                c => bare.push(c),
            }
        }
        assert_eq!(bare, text(&sample(), 90, false));
    }

    #[test]
    fn numbers_have_three_digits_that_count() {
        for (value, expected) in [
            (0.0, "0"),
            (0.13, "0.13"),
            (13.21, "13.2"),
            (7.0, "7"),
            (1000.0, "1000"),
            (9_941.6, "9942"),
            (98_432.0, "98.4k"),
            (1_280_000.0, "1.28M"),
            (-0.0001, "0"),
        ] {
            assert_eq!(spell(value), expected, "{value}");
        }
    }
}
