//! How reliable the numbers are: the verdict with its reasons, the noise, and what was skipped.
//!
//! The reasons are gathered by `answer`. Start at [`trust`].

use super::answer::{self, Doubt};
use super::figure;
use super::sections::{block, folded};
use super::shape;
use super::svg::escape;
use ringroad_measure::Level;
use ringroad_measure::record::Record;
use ringroad_measure::units::counted;

/// Returns the verdict, the noise floor, and, if `lists`, each reason and what was skipped.
pub(super) fn trust(record: &Record, lists: bool) -> String {
    let ran = record.cells.iter().filter(|cell| cell.skipped.is_none()).count();
    let skipped = record.cells.len() - ran;
    let mut said: Vec<String> = Vec::new();
    said.push(match record.verdict.level {
        Level::Valid => "VALID: no check objected.".to_owned(),
        Level::Suspect => "SUSPECT: the numbers stand, with reasons to doubt some of them.".to_owned(),
        Level::Invalid => {
            "INVALID: some numbers do not mean what their names say; do not use them.".to_owned()
        }
    });
    said.extend(runs(record));
    said.extend(turns(record));
    said.extend(answer::noise(record, &shape::loads(record)));
    said.extend(clients(record));
    said.extend(answer::pages(record));
    if let Some(share) = record.harness_cpu_share.filter(|share| share.is_finite()) {
        said.push(format!("The harness itself used {} of one core.", figure::percent(share)));
    }
    let mut html = format!("<p>{}</p>\n", escape(&said.join(" ")));
    let doubts = answer::doubts(record);
    if !lists {
        html.push_str(&format!(
            "<p>The list of {} kinds of doubt and {} skipped results is too large for this page; it is in the file \
             <code>record.json</code>.</p>\n",
            doubts.len(),
            figure::count(skipped as u64)
        ));
        return block("How reliable is this?", &html);
    }
    if !doubts.is_empty() {
        let items: String = doubts.iter().map(doubt_item).collect();
        let list = format!("<ul class=\"doubts\">\n{items}</ul>\n");
        // A few are read at once; many would stand between the reader and the figures.
        if doubts.len() <= 2 {
            html.push_str(&list);
        } else {
            html.push_str(&folded(&format!("{} kinds of doubt, each with its results", doubts.len()), &list));
        }
    }
    if skipped > 0 {
        let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
        for load in shape::loads(record) {
            for cell in &load.cells {
                let Some(reason) = cell.skipped.as_deref() else { continue };
                let about = format!("{}, {}", cell.model, load.title);
                match reasons.iter_mut().find(|(known, _)| *known == reason) {
                    Some((_, cells)) => cells.push(about),
                    None => reasons.push((reason, vec![about])),
                }
            }
        }
        let items: String = reasons
            .into_iter()
            .map(|(reason, cells)| {
                let about = format!("{}:", cells.join("; "));
                format!("<li><b>{}</b> {}</li>\n", escape(&about), escape(&answer::sentence(reason)))
            })
            .collect();
        html.push_str(&folded(
            &format!("Skipped ({skipped})"),
            &format!("<ul class=\"doubts\">\n{items}</ul>\n"),
        ));
    }
    block("How reliable is this?", &html)
}

/// Returns how many runs the results are of.
fn runs(record: &Record) -> Option<String> {
    let of = || record.cells.iter().filter(|cell| cell.skipped.is_none()).map(|cell| cell.runs.len());
    let (least, most) = (of().min()?, of().max()?);
    let results = counted(of().count() as u64, "result");
    if record.tool == "load" {
        // Of a server that ran already, one load after the other.
        let runs = counted(of().sum::<usize>() as u64, "run");
        return (most > 0).then(|| format!("{results} of {runs}."));
    }
    // An old record has none of its runs.
    if most == 0 || (least == most && most == record.blocks as usize) {
        let plural = if record.blocks == 1 { "block" } else { "blocks, each" };
        return (record.blocks > 0).then(|| {
            format!(
                "{results} from {} {plural} with every program once, in random order, as a fresh process.",
                figure::count(u64::from(record.blocks)),
            )
        });
    }
    let range = if least == most { String::new() } else { format!("{least} to ") };
    let plural = if most == 1 { "" } else { "s" };
    Some(format!(
        "{results} of {range}{most} run{plural} each, in random order, every run of a fresh process."
    ))
}

/// That programs ran side by side, where they did.
fn turns(record: &Record) -> Option<String> {
    let turn_s = record.cells.iter().find_map(|cell| cell.details.turn_s)?;
    let turn = format!("{} ms", figure::trimmed(turn_s * 1e3));
    Some(format!(
        "Those under the same load ran side by side, in turns of {turn}, so that what disturbed the machine for a moment \
         disturbed all of them."
    ))
}

/// Returns the client that put the load on, and the other client's result for the same cell.
fn clients(record: &Record) -> Option<String> {
    let mut names: Vec<String> = Vec::new();
    for cell in record.cells.iter().filter(|cell| cell.skipped.is_none()) {
        // Of a merged record it may be several.
        for client in cell.details.client.iter().flat_map(|clients| clients.split("; ")) {
            let name = client_in_words(client);
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    if names.is_empty() {
        return None;
    }
    let check = record.cells.iter().find_map(|cell| Some((cell, cell.details.cross_check.as_ref()?)));
    let check = check.map_or_else(String::new, |(cell, check)| {
        let (other, rate) = (client_in_words(&check.client), check.rate);
        format!(
            " As a check {other}, which shares no code with it, put {} on {} too: the rate was {} the check's ({} to {}).",
            cell.load,
            cell.model,
            figure::times(rate.mid),
            figure::number(rate.low),
            figure::number(rate.high),
        )
    });
    Some(format!("The load was put on by {}.{check}", names.join(", and by ")))
}

/// `load, io_uring` as `the load generator (ringroad load) on io_uring`.
fn client_in_words(client: &str) -> String {
    let (name, driver) = client.split_once(", ").unwrap_or((client, ""));
    let name = match name {
        "load" => "the load generator (ringroad load)",
        "small" => "the lab's small client",
        other => other,
    };
    if driver.is_empty() { name.to_owned() } else { format!("{name} on {driver}") }
}

fn doubt_item(doubt: &Doubt) -> String {
    let Some((about, sentence)) = doubt.cases.first() else {
        return String::new();
    };
    let about = about.as_deref().unwrap_or("The whole run");
    let mark = format!("<span class=\"level {}\">{}</span>", level_class(doubt.level), doubt.level);
    let first = format!("<b>{}</b> {}", escape(&format!("{about}:")), escape(sentence));
    if doubt.cases.len() == 1 {
        return format!("<li>{mark} {first}</li>\n");
    }
    let others: String = doubt.cases[1..]
        .iter()
        .map(|(about, sentence)| {
            let about = about.as_deref().unwrap_or("The whole run");
            format!("<li><b>{}</b> {}</li>\n", escape(&format!("{about}:")), escape(sentence))
        })
        .collect();
    format!(
        "<li>{mark} {first}\n<details><summary>The same for {} more</summary>\n<ul>\n{others}</ul>\n</details></li>\n",
        doubt.cases.len() - 1
    )
}

/// Returns the style class of a verdict.
pub(super) fn level_class(level: Level) -> &'static str {
    match level {
        Level::Valid => "valid",
        Level::Suspect => "suspect",
        Level::Invalid => "invalid",
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;
    use ringroad_measure::record::{CrossCheck, Interval};

    #[test]
    fn where_results_have_more_and_fewer_runs_the_page_says_from_how_many_to_how_many() {
        let mut record = sample::quick();
        assert!(trust(&record, true).contains("14 results from 10 blocks, each with every program once,"));
        for cell in &mut record.cells[..7] {
            cell.runs.truncate(3);
        }
        let html = trust(&record, true);
        assert!(html.contains("14 results of 3 to 10 runs each, in random order"), "{html}");
        assert!(!html.contains("every program once"), "{html}");
        record.cells.iter_mut().for_each(|cell| cell.runs.truncate(1));
        assert!(trust(&record, true).contains("14 results of 1 run each,"));
        record.cells.iter_mut().for_each(|cell| cell.runs.clear());
        assert!(trust(&record, true).contains("14 results from 10 blocks"), "an old record has no runs");
    }

    #[test]
    fn a_load_of_a_running_server_is_no_run_of_fresh_processes() {
        let mut record = sample::quick();
        record.tool = "load".to_owned();
        record.cells.truncate(1);
        record.cells[0].runs.truncate(1);
        let html = trust(&record, true);
        assert!(html.contains("1 result of 1 run."), "{html}");
        assert!(!html.contains("random order") && !html.contains("fresh process"), "{html}");
    }

    #[test]
    fn the_page_says_so_where_programs_took_turns() {
        let mut record = sample::quick();
        assert!(!trust(&record, true).contains("side by side"));
        record.cells[0].details.turn_s = Some(0.02);
        assert!(trust(&record, true).contains("in turns of 20 ms, so that"), "{}", trust(&record, true));
    }

    #[test]
    fn the_page_names_servers_that_answered_with_another_status() {
        let mut record = sample::quick();
        assert!(!trust(&record, true).contains("Another page"));
        record.cells[0].payload_bytes = 612;
        let html = trust(&record, false).replace('\u{a0}', " ");
        assert!(html.contains("response body is 612 B, the others"), "{html}");
    }

    #[test]
    fn the_page_names_the_client_and_the_agreement_of_the_other_one() {
        let mut record = sample::quick();
        assert!(!trust(&record, true).contains("put on by"), "where it is not known nothing is said");
        for cell in &mut record.cells {
            cell.details.client = Some("load, io_uring".to_owned());
        }
        let html = trust(&record, true);
        assert!(
            html.contains("The load was put on by the load generator (ringroad load) on io_uring.</p>")
                || html.contains("The load was put on by the load generator (ringroad load) on io_uring. "),
            "{html}"
        );
        assert!(!html.contains("As a check"), "{html}");
        record.cells[0].details.cross_check = Some(CrossCheck {
            client: "small, epoll".to_owned(),
            rate: Interval { low: 0.97, mid: 1.25, high: 1.31 },
            cpu: None,
        });
        record.cells[1].details.client = Some("load, io_uring; small, epoll".to_owned());
        let html = trust(&record, true);
        assert!(html.contains("on io_uring, and by the lab&#39;s small client on epoll."), "{html}");
        assert!(html.contains("As a check the lab&#39;s small client on epoll, which"), "{html}");
        assert!(html.contains("1.25") && html.contains("(0.97 to 1.31)"), "{html}");
    }
}
