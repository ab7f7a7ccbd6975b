//! Many runs in few numbers: median, quantiles, spread, and the interval the median can be trusted to.
//!
//! Medians, because runs on shared machines have outliers and a mean follows them. Values that are not finite
//! are refused (`None`), not dropped: a missing number must be seen by the caller.
//!
//! Start at [`median_interval`].

use crate::random::Random;
use crate::record::Interval;

/// Resamples behind an interval. The 2.5 % point then rests on 250 of them; its own noise is about a twentieth
/// of the interval's width, and a dozen values cost under 10 ms.
pub const RESAMPLES: usize = 10_000;

/// The seed of reports: fixed, so that the same record gives the same report everywhere.
pub const SEED: u64 = 0x52_494e_4752_4f41;

/// The median: the middle value, or the mean of the two middle ones. `None` for no values or a NaN among them.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// The quantile at `q` (0 to 1), by linear interpolation between order statistics (type 7 of Hyndman and Fan
/// 1996, the default of R and NumPy). `None` for no values, a value that is not finite, or a `q` outside 0 to 1.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    sorted(values).and_then(|sorted| quantile_sorted(&sorted, q))
}

/// Median absolute deviation: the median distance from the median, in the unit of the values and unscaled
/// (multiply by 1.4826 to estimate the standard deviation of a normal distribution).
pub fn mad(values: &[f64]) -> Option<f64> {
    let mid = median(values)?;
    let distances: Vec<f64> = values.iter().map(|v| (v - mid).abs()).collect();
    median(&distances)
}

/// The median and its 95 % bootstrap interval.
pub fn median_interval(values: &[f64]) -> Option<Interval> {
    bootstrap(values, |sample| middle(sample), SEED)
}

pub(crate) fn sorted(values: &[f64]) -> Option<Vec<f64>> {
    if values.is_empty() || values.iter().any(|v| !v.is_finite()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    Some(sorted)
}

pub(crate) fn quantile_sorted(sorted: &[f64], q: f64) -> Option<f64> {
    if !(0.0..=1.0).contains(&q) {
        return None;
    }
    let place = q * (sorted.len().checked_sub(1)?) as f64;
    let low = sorted.get(place.floor() as usize)?;
    let high = sorted.get(place.ceil() as usize)?;
    Some(low + (high - low) * place.fract())
}

fn middle(sample: &mut [f64]) -> f64 {
    sample.sort_unstable_by(f64::total_cmp);
    let half = sample.len() / 2;
    if sample.len() % 2 == 1 {
        sample[half]
    } else {
        (sample[half - 1] + sample[half]) / 2.0
    }
}

fn bootstrap(values: &[f64], estimate: impl Fn(&mut [f64]) -> f64, seed: u64) -> Option<Interval> {
    let sorted = sorted(values)?;
    let mut sample = sorted.clone();
    let mid = estimate(&mut sample);
    let mut random = Random::seeded(seed);
    let mut estimates: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            for slot in &mut sample {
                *slot = sorted[random.below(sorted.len())];
            }
            estimate(&mut sample)
        })
        .collect();
    estimates.sort_unstable_by(f64::total_cmp);
    Some(Interval {
        low: quantile_sorted(&estimates, 0.025)?,
        mid,
        high: quantile_sorted(&estimates, 0.975)?,
    })
}
