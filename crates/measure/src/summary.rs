//! Summaries of many runs: median, quantiles, spread, and the 95 % interval of the median.
//!
//! Medians, because runs on shared machines have outliers and a mean follows them. Values that are not finite
//! are refused (`None`), not dropped: the caller must notice a missing number.
//!
//! Start at [`median_interval`].

use crate::record::Interval;

/// Returns the median: the middle value, or the mean of the two middle ones. `None` for no values or a NaN
/// among them.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// Returns the quantile at `q` (0 to 1), by linear interpolation between order statistics (type 7 of Hyndman
/// and Fan 1996, the default of R and NumPy). `None` for no values, a value that is not finite, or a `q`
/// outside 0 to 1.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    sorted(values).and_then(|sorted| quantile_sorted(&sorted, q))
}

/// Returns the median absolute deviation: the median distance from the median, in the unit of the values and
/// unscaled (multiply by 1.4826 to estimate the standard deviation of a normal distribution).
pub fn mad(values: &[f64]) -> Option<f64> {
    let mid = median(values)?;
    let distances: Vec<f64> = values.iter().map(|v| (v - mid).abs()).collect();
    median(&distances)
}

/// Returns the median and its 95 % interval, by the percentile bootstrap: resample with replacement, take the
/// median each time, cut 2.5 % off each side. `None` as for [`median`].
///
/// No chance is involved: which of the sorted values a resample's median falls on has a closed form, so this
/// is the bootstrap with infinitely many resamples. The same values, in any order, give the same interval,
/// and a report can be computed again without a seed. Time grows with the square of the number of values.
///
/// Why the percentile method: BCa corrects it by an acceleration that the jackknife cannot estimate for a
/// median (leaving one value out moves it by one of two or three steps, whatever the tails do), and the
/// studentised method needs a spread that is as badly known. The percentile interval of a median is in effect
/// a pair of order statistics, so it asks nothing of the distribution. From six values on it covers the true
/// median about 93 to 97 % of the time; with fewer even the whole range does not (93.75 % with five).
///
/// # References
/// Efron, "Bootstrap methods: another look at the jackknife" (1979), section 3, for the closed form; Efron
/// and Tibshirani, "An Introduction to the Bootstrap" (1993), chapter 13, for the percentile interval.
pub fn median_interval(values: &[f64]) -> Option<Interval> {
    let mid = median(values)?;
    let medians = bootstrap_medians(&sorted(values)?);
    let cut = |share: f64| {
        let mut below = 0.0;
        let place = medians.iter().position(|(_, weight)| {
            below += weight;
            below >= share
        });
        // Rounding may leave the sum of all weights a hair below a share close to 1.
        place.map_or(medians.last(), |place| medians.get(place)).map(|(median, _)| *median)
    };
    Some(Interval { low: cut(0.025)?, mid, high: cut(0.975)? })
}

/// Every median a resample of the sorted values can have, sorted, with its probability.
fn bootstrap_medians(sorted: &[f64]) -> Vec<(f64, f64)> {
    let count = sorted.len();
    let half = count / 2;
    // P(the r-th smallest draw has rank at most `rank`): at least r of the draws do, each with rank/count.
    let at_most = |rank: usize, r: usize| binomial_tail(count, rank as f64 / count as f64, r);
    let exactly = |rank: usize, r: usize| at_most(rank, r) - at_most(rank - 1, r);
    let mut medians = Vec::new();
    for low in 1..=count {
        if count % 2 == 1 {
            medians.push((sorted[low - 1], exactly(low, half + 1)));
            continue;
        }
        // The two middle draws have ranks low <= high. For low < high: half of the draws are at most `low`,
        // not all below it, and half are at least `high`, not all above it.
        let choices = ln_choose(count, half);
        let reach = |rank: usize| half as f64 * (rank as f64 / count as f64).ln();
        let touches = |rank: usize| 1.0 - ((rank - 1) as f64 / rank as f64).powi(half as i32);
        let mut both_at_low = exactly(low, half);
        for high in low + 1..=count {
            let above = count - high + 1;
            let weight = (choices + reach(low) + reach(above)).exp() * touches(low) * touches(above);
            both_at_low -= weight;
            medians.push(((sorted[low - 1] + sorted[high - 1]) / 2.0, weight));
        }
        medians.push((sorted[low - 1], both_at_low.max(0.0)));
    }
    medians.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    medians
}

/// P(at least `hits` of `draws`), each a hit with probability `p`.
fn binomial_tail(draws: usize, p: f64, hits: usize) -> f64 {
    if p <= 0.0 || p >= 1.0 {
        return if p >= 1.0 || hits == 0 { 1.0 } else { 0.0 };
    }
    (hits..=draws)
        .map(|k| (ln_choose(draws, k) + k as f64 * p.ln() + (draws - k) as f64 * (1.0 - p).ln()).exp())
        .sum()
}

/// Returns the logarithm of the number of ways to choose `k` of `n`; logarithms, because 1,030 over 515 is no
/// `f64`.
fn ln_choose(n: usize, k: usize) -> f64 {
    (0..k).map(|i| ((n - i) as f64 / (i + 1) as f64).ln()).sum()
}

fn sorted(values: &[f64]) -> Option<Vec<f64>> {
    if values.is_empty() || values.iter().any(|v| !v.is_finite()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    Some(sorted)
}

fn quantile_sorted(sorted: &[f64], q: f64) -> Option<f64> {
    if !(0.0..=1.0).contains(&q) {
        return None;
    }
    let place = q * (sorted.len().checked_sub(1)?) as f64;
    let low = sorted.get(place.floor() as usize)?;
    let high = sorted.get(place.ceil() as usize)?;
    Some(low + (high - low) * place.fract())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::{bootstrap_medians, mad, median, median_interval, quantile, sorted};
    use crate::random::Random;

    /// Survival times of seven mice (Efron and Tibshirani 1993, table 2.1, treatment).
    const MICE: [f64; 7] = [94.0, 197.0, 16.0, 38.0, 99.0, 141.0, 23.0];

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_two() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&MICE), Some(94.0));
    }

    #[test]
    fn what_is_no_number_is_refused_not_dropped() {
        for values in [&[][..], &[1.0, f64::NAN], &[f64::INFINITY]] {
            assert_eq!(median(values), None);
            assert_eq!(median_interval(values), None);
            assert_eq!(mad(values), None);
        }
        assert_eq!(quantile(&[1.0], 1.1), None);
        assert_eq!(quantile(&[1.0], f64::NAN), None);
    }

    /// `quantile(1:4)` and `quantile(c(15, 20, 35, 40, 50), 0.4)` of R, type 7.
    #[test]
    fn quantiles_are_those_of_r() {
        let values = [4.0, 2.0, 1.0, 3.0];
        let quartiles = [0.0, 0.25, 0.5, 0.75, 1.0].map(|q| quantile(&values, q).unwrap());
        assert_eq!(quartiles, [1.0, 1.75, 2.5, 3.25, 4.0]);
        assert!((quantile(&[15.0, 20.0, 35.0, 40.0, 50.0], 0.4).unwrap() - 29.0).abs() < 1e-9);
    }

    #[test]
    fn mad_is_not_moved_by_one_wild_value() {
        assert_eq!(mad(&[1.0, 1.0, 2.0, 2.0, 4.0, 6.0, 9.0]), Some(1.0));
        assert_eq!(mad(&[1.0, 1.0, 2.0, 2.0, 4.0, 6.0, 9e9]), Some(1.0));
    }

    /// Efron and Tibshirani 1993, table 2.2: the standard error of the median of these mice is 37.83 as the
    /// number of resamples grows without bound.
    #[test]
    fn the_bootstrap_error_of_the_mice_is_the_published_one() {
        let medians = bootstrap_medians(&sorted(&MICE).unwrap());
        let mean: f64 = medians.iter().map(|(median, weight)| median * weight).sum();
        let variance: f64 = medians.iter().map(|(median, weight)| weight * (median - mean).powi(2)).sum();
        assert!((variance.sqrt() - 37.83).abs() < 0.005, "{}", variance.sqrt());
    }

    #[test]
    fn the_closed_form_is_what_resampling_tends_to() {
        for size in [1, 2, 5, 8] {
            let values: Vec<f64> = (0..size).map(|i| f64::from(i * i)).collect();
            let medians = bootstrap_medians(&values);
            let mut random = Random::seeded(size as u64);
            let rounds = 20_000;
            let mut drawn: Vec<f64> = (0..rounds)
                .map(|_| {
                    let sample: Vec<f64> =
                        values.iter().map(|_| values[random.below(values.len())]).collect();
                    median(&sample).unwrap()
                })
                .collect();
            drawn.sort_unstable_by(f64::total_cmp);
            for &(value, _) in &medians {
                let exact: f64 = medians.iter().filter(|(v, _)| *v <= value).map(|(_, weight)| weight).sum();
                let share = drawn.partition_point(|v| *v <= value) as f64 / f64::from(rounds);
                // Three and a half standard errors of a share are 0.0124 here.
                assert!(
                    (exact - share).abs() < 0.0125,
                    "{size} values, median {value}: {exact}, drawn {share}"
                );
            }
        }
    }

    #[test]
    fn probabilities_add_up_for_many_values_too() {
        for size in [1, 2, 3, 10, 400, 401] {
            let values: Vec<f64> = (0..size).map(f64::from).collect();
            let total: f64 = bootstrap_medians(&values).iter().map(|(_, weight)| weight).sum();
            assert!((total - 1.0).abs() < 1e-6, "{size}: {total}");
        }
    }

    /// The bootstrap median of 7 values is at most the k-th with probability P(Binomial(7, k/7) >= 4): 0.010
    /// for k = 1 and 0.098 for k = 2, so the 2.5 % point is the second value, and by symmetry the other the
    /// sixth.
    #[test]
    fn the_interval_of_the_mice_is_the_one_binomials_give() {
        let interval = median_interval(&MICE).unwrap();
        assert_eq!((interval.low, interval.mid, interval.high), (23.0, 94.0, 141.0));
    }

    #[test]
    fn the_same_values_in_any_order_give_the_same_interval() {
        let mut turned = MICE;
        turned.reverse();
        assert_eq!(median_interval(&MICE), median_interval(&turned));
    }

    #[test]
    fn equal_values_have_an_interval_without_width() {
        let interval = median_interval(&[3.5; 8]).unwrap();
        assert_eq!((interval.low, interval.mid, interval.high), (3.5, 3.5, 3.5));
    }

    /// 300 samples each; 95 % coverage has a standard error of 1.3 %, so 90 % to 99 % allows four of them
    /// below.
    #[test]
    fn the_interval_covers_the_true_median_about_95_times_in_100() {
        type Draw = fn(&mut Random) -> f64;
        let normal: (&str, Draw, f64) = ("normal", |random| random.normal(), 0.0);
        let skewed: (&str, Draw, f64) = ("log-normal", |random| random.normal().exp(), 1.0);
        for (name, draw, truth) in [normal, skewed] {
            for size in [8, 15] {
                let mut random = Random::seeded(size as u64);
                let covered = (0..300)
                    .filter(|_| {
                        let sample: Vec<f64> = (0..size).map(|_| draw(&mut random)).collect();
                        let interval = median_interval(&sample).unwrap();
                        interval.low <= truth && truth <= interval.high
                    })
                    .count();
                assert!((270..=297).contains(&covered), "{name}, {size} values: {covered} of 300");
            }
        }
    }
}
