//! Compares two programs that were measured side by side: the difference, or the smallest detectable
//! difference.
//!
//! The figures come in blocks. Runs in one block had the same conditions, so the two are divided within the
//! block and only the ratios are compared. Start at [`Comparison::of_blocks`].
//!
//! **The estimator** is the median of the ratios with its bootstrap interval. Weighed against it, by
//! simulation (8 to 12 blocks, noise of 1 and 2 % per run, normal, heavy-tailed, skewed, with outlier runs):
//! Hodges-Lehmann and the trimmed mean have intervals a tenth narrower in well-behaved noise, but with
//! outlier runs in one block of six they miss a 5 % difference two to six times as often; the geometric mean
//! is lost with one outlier.
//!
//! **The claim** needs more than an interval beside 1. At ten blocks that alone claims a difference in 6 to 9
//! of 100 A/A pairs, and layout and environment shift a program by a per cent without any change to it
//! (Mytkowicz and others, ASPLOS 2009). So the whole interval must lie beyond [`SMALLEST_CLAIM`]: then fewer
//! than 2 in 100 do. If the run has an A/A control, the median must also lie outside the range of the
//! control.

use crate::caveat::REPEATS_MIN;
use crate::rank;
use crate::record::Interval;
use crate::summary;
use crate::units::{Apart, Share};
use std::fmt;

/// No difference below this share is claimed, however narrow the interval.
pub const SMALLEST_CLAIM: f64 = 0.01;

/// A paired comparison: one pair of figures per block, smaller is better (time, CPU per request).
///
/// ```
/// use ringroad_measure::Comparison;
/// let old = [3.90, 3.95, 3.91, 3.88, 3.97, 3.92, 5.10, 3.90];
/// let new = [4.10, 4.15, 4.12, 4.06, 4.19, 4.13, 4.12, 4.09];
/// let comparison = Comparison::of_blocks(&old, &new, None).expect("as many old as new, all positive");
/// assert!(comparison.finding.to_string().starts_with("slower by 5.1 %"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// Candidate over baseline: the median of the blocks' ratios with its 95 % interval.
    pub ratio: Interval,
    /// The claim that it supports.
    pub finding: Finding,
}

/// What a comparison may claim. All numbers are shares: 0.031 is 3.1 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Finding {
    /// The candidate costs more.
    Slower {
        /// The difference.
        by: f64,
        /// Half the width of the 95 % interval.
        plus_minus: f64,
    },
    /// The candidate costs less.
    Faster {
        /// The difference.
        by: f64,
        /// Half the width of the 95 % interval.
        plus_minus: f64,
    },
    /// No significant difference.
    NoDifference {
        /// The smallest detectable difference: it would have been found in nine of ten runs.
        could_have_seen: f64,
    },
    /// Too few blocks to claim anything, not even that there is no difference.
    TooFewBlocks {
        /// Number of blocks.
        blocks: u32,
        /// Number of blocks needed.
        wanted: u32,
    },
}

impl Comparison {
    /// Compares block by block: `baseline[i]` and `candidate[i]` ran in the same block. `control` is the A/A
    /// ratio of the same run, if there is one.
    ///
    /// `None` for unequal lengths, no blocks, or figures that are not positive numbers.
    pub fn of_blocks(baseline: &[f64], candidate: &[f64], control: Option<Interval>) -> Option<Self> {
        let usable = |figures: &[f64]| figures.iter().all(|figure| figure.is_finite() && *figure > 0.0);
        if baseline.len() != candidate.len() || !usable(baseline) || !usable(candidate) {
            return None;
        }
        let ratios: Vec<f64> = baseline.iter().zip(candidate).map(|(b, c)| c / b).collect();
        let ratio = summary::median_interval(&ratios)?;
        Some(Comparison { ratio, finding: Finding::of(ratio, ratios.len(), control) })
    }
}

impl Comparison {
    /// Compares runs of two records that were not made side by side. They cannot be paired, so changes of the
    /// machine between the two are in the difference. `control` is the wider of their A/A ratios.
    ///
    /// `None` for no runs, or figures that are not positive numbers.
    pub fn of_runs(baseline: &[f64], candidate: &[f64], control: Option<Interval>) -> Option<Self> {
        let ratio = rank::ratio_interval(baseline, candidate)?;
        let runs = baseline.len().min(candidate.len());
        Some(Comparison { ratio, finding: Finding::of(ratio, runs, control) })
    }
}

impl Finding {
    /// Returns the claim that `ratio`, a median over `blocks` with its 95 % interval, supports.
    pub fn of(ratio: Interval, blocks: usize, control: Option<Interval>) -> Self {
        if blocks < REPEATS_MIN as usize {
            return Finding::TooFewBlocks { blocks: blocks as u32, wanted: REPEATS_MIN };
        }
        // The order of two equal programs is arbitrary, so the control counts in both directions.
        let noise = control.map_or(0.0, |control| control.reach());
        let plus_minus = ratio.half_width();
        if ratio.low > 1.0 + SMALLEST_CLAIM && ratio.mid > 1.0 + noise {
            Finding::Slower { by: ratio.mid - 1.0, plus_minus }
        } else if ratio.high < 1.0 - SMALLEST_CLAIM && ratio.mid < 1.0 - noise {
            Finding::Faster { by: 1.0 - ratio.mid, plus_minus }
        } else {
            // The median of another such run is within a half-width of the truth 19 times in 20, and its
            // interval reaches a half-width further. Widths themselves vary from run to run, hence another
            // half.
            let could_have_seen = (SMALLEST_CLAIM + 2.5 * plus_minus).max(noise + plus_minus);
            Finding::NoDifference { could_have_seen }
        }
    }
}

impl Interval {
    /// Returns how far the interval reaches from a ratio of 1, as a share.
    pub fn reach(&self) -> f64 {
        (self.high - 1.0).abs().max((self.low - 1.0).abs())
    }

    /// Returns half of the interval's width.
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Slower { by, plus_minus } => {
                write!(f, "slower by {}", Apart(1.0 + by).plus_minus(*plus_minus))
            }
            Finding::Faster { by, plus_minus } => {
                write!(f, "faster by {}", Apart(1.0 - by).plus_minus(*plus_minus))
            }
            Finding::NoDifference { could_have_seen } => {
                write!(f, "no significant difference (smallest detectable: {})", Share(*could_have_seen))
            }
            Finding::TooFewBlocks { blocks, wanted } => {
                let s = if *blocks == 1 { "" } else { "s" };
                write!(f, "not enough data: {blocks} block{s}, {wanted} needed")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::{Comparison, Finding};
    use crate::random::Random;
    use crate::record::Interval;

    /// The noise of one run as a factor, drawn with a spread of `sd`.
    type Noise = fn(&mut Random, f64) -> f64;

    const NORMAL: Noise = |random, sd| (sd * random.normal()).exp();
    /// One run in 25 takes 10 to 40 % longer: something else woke up. In twelve blocks that is one outlier.
    const OUTLIERS: Noise = |random, sd| {
        let extra = if random.unit() < 0.04 { 0.1 + 0.3 * random.unit() } else { 0.0 };
        (sd * random.normal() + extra).exp()
    };
    /// Student's t with 3 degrees of freedom: wide tails without a clear outlier.
    const HEAVY: Noise = |random, sd| {
        let chi2: f64 = (0..3).map(|_| random.normal().powi(2)).sum();
        (sd / 1.3 * random.normal() / (chi2 / 3.0).sqrt()).exp()
    };
    /// A run can be late but hardly early.
    const SKEWED: Noise = |random, sd| (-sd * (1.0 - random.unit()).ln()).exp();

    const SHAPES: [(&str, Noise); 4] =
        [("normal", NORMAL), ("outliers", OUTLIERS), ("heavy", HEAVY), ("skewed", SKEWED)];

    /// One comparison of a program that costs `cost` times the baseline, blocks drifting by up to 10 %.
    fn compare(random: &mut Random, noise: Noise, sd: f64, blocks: usize, cost: f64) -> Comparison {
        let mut figures = |cost: f64, moods: &[f64]| -> Vec<f64> {
            moods.iter().map(|mood| 4.0 * cost * mood * noise(random, sd)).collect()
        };
        let moods: Vec<f64> = (0..blocks).map(|block| 1.0 + 0.1 * block as f64 / blocks as f64).collect();
        let baseline = figures(1.0, &moods);
        let candidate = figures(cost, &moods);
        Comparison::of_blocks(&baseline, &candidate, None).unwrap()
    }

    fn count(runs: usize, seed: u64, mut hit: impl FnMut(&mut Random) -> bool) -> usize {
        let mut random = Random::seeded(seed);
        (0..runs).filter(|_| hit(&mut random)).count()
    }

    /// The promise: in 19 of 20 runs or more, for every shape. 200 runs each, so that luck plays a smaller
    /// part.
    #[test]
    fn a_planted_slowdown_of_5_percent_is_found_in_19_of_20_runs() {
        for (name, noise) in SHAPES {
            for (sd, blocks) in [(0.01, 10), (0.01, 12), (0.015, 12)] {
                let found = count(200, 1, |random| {
                    matches!(compare(random, noise, sd, blocks, 1.05).finding, Finding::Slower { .. })
                });
                assert!(found >= 190, "{name}, {sd}, {blocks} blocks: {found} of 200");
            }
        }
    }

    #[test]
    fn a_gain_of_5_percent_is_found_as_often() {
        let found = count(200, 2, |random| {
            matches!(compare(random, NORMAL, 0.015, 12, 0.95).finding, Finding::Faster { .. })
        });
        assert!(found >= 190, "{found} of 200");
    }

    /// The other half of the promise, at twice the noise, since more noise is what makes false claims.
    #[test]
    fn a_program_against_itself_is_not_found_in_19_of_20_runs() {
        for (name, noise) in SHAPES {
            for (sd, blocks) in [(0.01, 10), (0.02, 10), (0.02, 12)] {
                let quiet = count(200, 3, |random| {
                    matches!(compare(random, noise, sd, blocks, 1.0).finding, Finding::NoDifference { .. })
                });
                assert!(quiet >= 190, "{name}, {sd}, {blocks} blocks: {quiet} of 200");
            }
        }
    }

    /// What an A/A pair says would have been seen is planted in the next run, and must be found.
    #[test]
    fn what_could_have_been_seen_would_have_been_seen() {
        for (name, noise) in SHAPES {
            let mut asked = 0;
            let seen = count(400, 4, |random| {
                let Finding::NoDifference { could_have_seen } = compare(random, noise, 0.01, 12, 1.0).finding
                else {
                    return false;
                };
                asked += 1;
                let next = compare(random, noise, 0.01, 12, 1.0 + could_have_seen);
                matches!(next.finding, Finding::Slower { .. })
            });
            assert!(asked > 380 && seen * 10 >= asked * 9, "{name}: {seen} of {asked}");
        }
    }

    #[test]
    fn the_interval_holds_the_planted_ratio_about_95_times_in_100() {
        for (name, noise) in SHAPES {
            let covered = count(400, 5, |random| {
                let ratio = compare(random, noise, 0.02, 10, 1.05).ratio;
                ratio.low <= 1.05 && 1.05 <= ratio.high
            });
            // The standard error at 400 runs is 1.1 %.
            assert!(covered >= 364, "{name}: {covered} of 400");
        }
    }

    /// Runs of two records, made at different times: no block has both.
    fn compare_apart(random: &mut Random, noise: Noise, sd: f64, runs: usize, cost: f64) -> Comparison {
        let mut figures =
            |cost: f64| -> Vec<f64> { (0..runs).map(|_| 4.0 * cost * noise(random, sd)).collect() };
        let (baseline, candidate) = (figures(1.0), figures(cost));
        Comparison::of_runs(&baseline, &candidate, None).unwrap()
    }

    #[test]
    fn of_two_records_a_difference_of_5_percent_is_found_and_none_where_there_is_none() {
        for (name, noise) in SHAPES {
            let found = count(200, 6, |random| {
                matches!(compare_apart(random, noise, 0.01, 12, 1.05).finding, Finding::Slower { .. })
            });
            assert!(found >= 190, "{name}: {found} of 200");
            let wolf = count(400, 7, |random| {
                !matches!(compare_apart(random, noise, 0.01, 12, 1.0).finding, Finding::NoDifference { .. })
            });
            assert!(wolf <= 8, "{name}: {wolf} of 400 A/A pairs");
        }
    }

    fn interval(low: f64, mid: f64, high: f64) -> Interval {
        Interval { low, mid, high }
    }

    #[test]
    fn a_difference_inside_the_noise_floor_is_not_claimed() {
        let ratio = interval(1.02, 1.03, 1.04);
        let quiet = interval(0.99, 1.0, 1.01);
        assert!(matches!(Finding::of(ratio, 10, None), Finding::Slower { .. }));
        assert!(matches!(Finding::of(ratio, 10, Some(quiet)), Finding::Slower { .. }));
        // A control is as noisy below 1 as above it.
        for loud in [interval(0.99, 1.0, 1.05), interval(0.95, 1.0, 1.01)] {
            let Finding::NoDifference { could_have_seen } = Finding::of(ratio, 10, Some(loud)) else {
                panic!("claimed inside {loud:?}");
            };
            assert!(could_have_seen > 0.05, "{could_have_seen}");
        }
    }

    #[test]
    fn a_difference_too_small_to_matter_is_not_claimed_however_sure() {
        let finding = Finding::of(interval(1.004, 1.005, 1.006), 30, None);
        assert!(matches!(finding, Finding::NoDifference { .. }), "{finding}");
    }

    #[test]
    fn few_blocks_claim_nothing() {
        let comparison = Comparison::of_blocks(&[1.0; 5], &[2.0; 5], None).unwrap();
        assert_eq!(comparison.finding, Finding::TooFewBlocks { blocks: 5, wanted: 6 });
        let comparison = Comparison::of_blocks(&[1.0; 6], &[2.0; 6], None).unwrap();
        assert_eq!(comparison.finding, Finding::Slower { by: 1.0, plus_minus: 0.0 });
    }

    #[test]
    fn figures_that_cannot_be_compared_are_refused() {
        assert_eq!(Comparison::of_blocks(&[1.0], &[1.0, 2.0], None), None);
        assert_eq!(Comparison::of_blocks(&[], &[], None), None);
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Comparison::of_blocks(&[bad], &[1.0], None), None);
            assert_eq!(Comparison::of_blocks(&[1.0], &[bad], None), None);
        }
    }

    #[test]
    fn findings_read_as_sentences() {
        let texts = [
            (Finding::Slower { by: 0.031, plus_minus: 0.009 }, "slower by 3.1 % ± 0.9"),
            (Finding::Faster { by: 0.12, plus_minus: 0.0251 }, "faster by 12.0 % ± 2.5"),
            (Finding::Slower { by: 1261.98, plus_minus: 20.0 }, "slower by a factor of 1263 ± 20"),
            (Finding::Faster { by: 0.75, plus_minus: 0.01 }, "faster by a factor of 4.00 ± 0.16"),
            (
                Finding::NoDifference { could_have_seen: 0.018 },
                "no significant difference (smallest detectable: 1.8 %)",
            ),
            (Finding::TooFewBlocks { blocks: 3, wanted: 6 }, "not enough data: 3 blocks, 6 needed"),
        ];
        for (finding, text) in texts {
            assert_eq!(finding.to_string(), text);
        }
    }
}
