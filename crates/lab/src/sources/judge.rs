//! Claimed beside measured: what each claim comes to, and what Little's law says of it.
//!
//! A pure function of the claims and the figures there are. Start at [`claims`].

use super::catalogue::{Catalogue, Stated, Test};
use super::sum::{Figure, Sum};
use ringroad_measure::Claim;
use ringroad_measure::claim::{Little, Origin, Outcome};
use std::collections::BTreeMap;

/// Returns every claim with what became of it, in the order of the file. `missing` is said where a figure was
/// never measured.
pub fn claims(
    catalogue: &Catalogue,
    figures: &BTreeMap<String, Result<Figure, String>>,
    missing: &str,
) -> Vec<Claim> {
    let judge = Judge { catalogue, figures, missing };
    catalogue.stated.iter().map(|stated| judge.claim(stated)).collect()
}

struct Judge<'a> {
    catalogue: &'a Catalogue,
    figures: &'a BTreeMap<String, Result<Figure, String>>,
    missing: &'a str,
}

impl Judge<'_> {
    fn claim(&self, stated: &Stated) -> Claim {
        let mut claim = Claim {
            id: stated.id.clone(),
            source: stated.source.clone(),
            section: stated.section.clone(),
            cell: stated.cell.clone(),
            what: stated.what.clone(),
            quote: stated.quote.clone(),
            claimed: stated.value,
            unit: stated.unit.clone(),
            sense: stated.sense,
            measured: None,
            interval: None,
            origin: None,
            by: None,
            scale: None,
            outcome: Outcome::Untestable,
            why: None,
            little: self.little(&stated.id),
        };
        match &stated.test {
            Test::Measure { sum, near } => {
                claim.by.clone_from(&stated.by);
                self.put(&mut claim, stated, Origin::Measured, self.measured(sum));
                if claim.measured.is_none() {
                    self.put_nearest(&mut claim, near.as_ref());
                }
            }
            Test::Compute(sum) => {
                let of_documents = sum.work_out(|id| {
                    let claim = self.catalogue.find(id).and_then(|claim| claim.value);
                    claim.map(Figure::of).ok_or_else(|| format!("{id} states no number"))
                });
                self.put(&mut claim, stated, Origin::Computed, of_documents);
            }
            Test::Cannot { why, near, .. } => {
                say(&mut claim, why);
                self.put_nearest(&mut claim, near.as_ref());
            }
        }
        claim
    }

    /// Something related to look at, where there is nothing to judge by.
    fn put_nearest(&self, claim: &mut Claim, near: Option<&Sum>) {
        let Some((near, figure)) = near.and_then(|near| Some((near, self.measured(near).ok()?))) else {
            return;
        };
        (claim.measured, claim.interval, claim.scale) = (Some(figure.value), figure.interval, figure.scale);
        claim.origin = Some(Origin::Nearest);
        claim.by = near.names().next().and_then(program).map(str::to_owned);
    }

    fn measured(&self, sum: &Sum) -> Result<Figure, String> {
        sum.work_out(|name| match self.figures.get(name) {
            Some(figure) => figure.clone(),
            None => Err(self.missing.to_owned()),
        })
    }

    fn put(&self, claim: &mut Claim, stated: &Stated, origin: Origin, figure: Result<Figure, String>) {
        match (figure, stated.value) {
            (Ok(figure), Some(value)) => {
                let met = stated.sense.is_met(value, figure.value, stated.tolerance);
                claim.outcome = if met { Outcome::Reproduced } else { Outcome::NotReproduced };
                claim.measured = Some(figure.value);
                claim.interval = figure.interval;
                claim.origin = Some(origin);
                claim.scale = figure.scale;
                claim.why.clone_from(&stated.note);
            }
            (Ok(_), None) => say(claim, "it states no number"),
            (Err(why), _) => say(claim, &why),
        }
    }

    /// For a rate that has its latency beside it in the document.
    fn little(&self, id: &str) -> Option<Little> {
        let pair = self.catalogue.pairs.iter().find(|pair| pair.rate == id)?;
        let value = |id: &str| self.catalogue.find(id)?.value.filter(|value| *value > 0.0);
        let in_flight = value(&pair.rate)? * value(&pair.latency)? / 1e3;
        Some(Little { connections: pair.connections, in_flight, at_most: pair.at_most })
    }
}

/// Returns the program in the name of a figure: `poll` of `echo-10/poll.rps`.
fn program(name: &str) -> Option<&str> {
    name.split_once('/')?.1.rsplit_once('.').map(|(program, _)| program)
}

fn say(claim: &mut Claim, why: &str) {
    claim.why = Some(match claim.why.take() {
        Some(before) => format!("{before}; {why}"),
        None => why.to_owned(),
    });
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Every figure the catalogue asks for, all at this value.
    fn all(catalogue: &Catalogue, value: f64) -> BTreeMap<String, Result<Figure, String>> {
        let sums = catalogue.stated.iter().filter_map(|stated| match &stated.test {
            Test::Measure { sum, .. } => Some(sum),
            Test::Cannot { near, .. } => near.as_ref(),
            Test::Compute(_) => None,
        });
        sums.flat_map(|sum| sum.names()).map(|name| (name.to_owned(), Ok(Figure::of(value)))).collect()
    }

    fn judged(figures: &BTreeMap<String, Result<Figure, String>>) -> Vec<Claim> {
        claims(&Catalogue::built_in().unwrap(), figures, "nobody measured it")
    }

    fn find(claims: &[Claim], id: &str) -> Claim {
        claims.iter().find(|claim| claim.id == id).unwrap().clone()
    }

    #[test]
    fn measured_figures_reproduce_a_claim_or_do_not() {
        let catalogue = Catalogue::built_in().unwrap();
        let claims = judged(&all(&catalogue, 155_000.0));
        assert_eq!(claims.len(), catalogue.stated.len());
        let poll = find(&claims, "003-qps/poll/1000");
        assert_eq!((poll.outcome, poll.origin), (Outcome::Reproduced, Some(Origin::Measured)));
        let select = find(&claims, "003-qps/select/1000");
        assert_eq!((select.outcome, select.measured), (Outcome::NotReproduced, Some(155_000.0)));
        let threads = find(&claims, "003-qps/blocking/1000");
        assert_eq!(threads.outcome, Outcome::NotReproduced, "it was said to fail, and did not");
        assert!(threads.why.unwrap().contains("macOS"));
    }

    #[test]
    fn without_a_figure_a_claim_is_untestable_and_says_why() {
        let mut figures = BTreeMap::new();
        figures.insert("echo-10/poll.rps".to_owned(), Err("poll did not run".to_owned()));
        let claims = judged(&figures);
        let poll = find(&claims, "003-qps/poll/10");
        assert_eq!((poll.outcome, poll.measured), (Outcome::Untestable, None));
        assert_eq!(poll.why.as_deref(), Some("poll did not run"));
        assert_eq!(find(&claims, "003-qps/poll/50").why.as_deref(), Some("nobody measured it"));
    }

    #[test]
    fn the_nearest_figure_decides_nothing() {
        let catalogue = Catalogue::built_in().unwrap();
        let swoole = find(&judged(&all(&catalogue, 146_872.0)), "000-headline");
        assert_eq!((swoole.outcome, swoole.origin), (Outcome::Untestable, Some(Origin::Nearest)));
        assert_eq!((swoole.measured, swoole.by.as_deref()), (Some(146_872.0), Some("uring-multishot")));
        assert!(swoole.why.unwrap().contains("Swoole"));
    }

    /// Worked by hand from the documents: 98,432 over 86,741 is 1.135; 2500 over 420 is 5.95; 146,873 over
    /// 71,253 is 2.06.
    #[test]
    fn documents_that_agree_with_themselves_are_told_from_those_that_do_not() {
        let claims = judged(&BTreeMap::new());
        for (id, outcome, near) in [
            ("001-lead", Outcome::Reproduced, 13.48),
            ("001-waits-gain-itself", Outcome::Reproduced, 5.952),
            ("000-doubled-itself", Outcome::Reproduced, 106.1),
            ("001-concurrency", Outcome::NotReproduced, 9_941.6),
            ("003-select-falls-itself", Outcome::Reproduced, 35.71),
            ("002-uring-total", Outcome::Reproduced, 530_160.0),
        ] {
            let claim = find(&claims, id);
            assert_eq!((claim.outcome, claim.origin), (outcome, Some(Origin::Computed)), "{id}");
            let measured = claim.measured.unwrap();
            assert!((measured / near - 1.0).abs() < 1e-3, "{id}: {measured}");
        }
    }

    #[test]
    fn littles_law_is_applied_to_every_rate_with_a_latency() {
        let claims = judged(&BTreeMap::new());
        let little = |id| find(&claims, id).little;
        let tokio = little("003-qps/tokio/1000").unwrap();
        assert_eq!((tokio.connections, tokio.agrees()), (Some(1000.0), Some(false)));
        assert!((tokio.in_flight - 21.71).abs() < 0.01);
        assert_eq!(little("000-bench/swoole-uring/rps").unwrap().agrees(), Some(true));
        assert_eq!(little("000-bench/node/rps").unwrap().agrees(), Some(false));
        assert_eq!(little("001-bench/rps/gin").unwrap().agrees(), Some(true));
        assert_eq!(little("001-fpm/swoole/rps").unwrap().agrees(), Some(false));
        assert_eq!(little("001-100k/go/rps").unwrap().agrees(), Some(false));
        assert_eq!(little("001-languages/go/rps").unwrap().agrees(), None, "no connections are stated");
        assert_eq!(little("003-qps/blocking/1000"), None, "there is no rate to judge");
        assert_eq!(little("001-bench/mean/gin"), None);
    }

    #[test]
    fn a_figure_is_in_the_unit_of_the_claim_it_tests() {
        let units = [
            ("rps", "requests/s"),
            ("mean", "ms"),
            ("p99", "ms"),
            ("ms", "ms"),
            ("rss", "MB"),
            ("kernel", "MB"),
            ("cpu", "%"),
            ("errors", "%"),
            ("served", "connections"),
            ("calls", "calls/request"),
            ("s", "s"),
            ("us", "µs"),
            ("ns", "ns"),
        ];
        for stated in &Catalogue::built_in().unwrap().stated {
            let single = match &stated.test {
                Test::Measure { sum, .. } => sum.single(),
                Test::Cannot { near, .. } => near.as_ref().and_then(|near| near.single()),
                Test::Compute(_) => None,
            };
            let Some(name) = single else { continue };
            let figure = name.rsplit_once('.').unwrap().1;
            let unit = units.iter().find(|(known, _)| *known == figure).map(|(_, unit)| *unit);
            assert_eq!(unit, Some(stated.unit.as_str()), "{}: {name}", stated.id);
        }
    }
}
