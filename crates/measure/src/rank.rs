//! Two samples that share nothing: how many times larger is one than the other, by ranks.
//!
//! The estimate is the median of all quotients of one sample's values by the other's (Hodges and Lehmann
//! 1963, on logarithms), its interval what the Mann-Whitney test would not reject (Moses' interval; Hollander
//! and Wolfe, "Nonparametric Statistical Methods", section 4.3). Nothing is asked of the distribution but
//! that the two differ by a factor alone, the coverage is exact for small samples, and one wild value moves
//! neither.
//!
//! Start at [`ratio_interval`].

use crate::record::Interval;

/// From this many values of a sample on, the test's distribution is close enough to the normal one.
const EXACT_MAX: usize = 40;

/// Returns how many times larger the second sample is, with the 95 % interval. With samples too small for one
/// (fewer than four values each) the interval is the whole range, and covers less. `None` unless all values
/// are positive numbers.
pub fn ratio_interval(first: &[f64], second: &[f64]) -> Option<Interval> {
    let usable =
        |values: &[f64]| !values.is_empty() && values.iter().all(|value| value.is_finite() && *value > 0.0);
    if !usable(first) || !usable(second) {
        return None;
    }
    let mut quotients: Vec<f64> =
        first.iter().flat_map(|first| second.iter().map(move |second| second / first)).collect();
    quotients.sort_unstable_by(f64::total_cmp);
    // Between two middle ones by their geometric mean, so that the other way round gives the other way round.
    let half = quotients.len() / 2;
    let upper = *quotients.get(half)?;
    let mid = if quotients.len() % 2 == 1 { upper } else { (quotients.get(half - 1)? * upper).sqrt() };
    let cut = critical(first.len(), second.len()).unwrap_or(0);
    Some(Interval { low: *quotients.get(cut)?, mid, high: *quotients.get(quotients.len() - 1 - cut)? })
}

/// Returns the largest value of Mann and Whitney's U that is in the lower 2.5 % of what chance gives; `None`
/// if none is.
fn critical(first: usize, second: usize) -> Option<usize> {
    if first.max(second) > EXACT_MAX {
        let (n, m) = (first as f64, second as f64);
        let cut = n * m / 2.0 - 1.96 * (n * m * (n + m + 1.0) / 12.0).sqrt() - 0.5;
        return (cut >= 0.0).then_some(cut as usize);
    }
    let mut below = 0.0;
    let inside = distribution(first, second).into_iter().take_while(|share| {
        below += share;
        below <= 0.025
    });
    inside.count().checked_sub(1)
}

/// Returns the probability of each value of U when chance alone decides (Mann and Whitney 1947, the
/// recurrence).
fn distribution(first: usize, second: usize) -> Vec<f64> {
    // `row[j]`: the distribution for i values against j. The largest of all is in the first sample with
    // probability i / (i + j), and is then above all j of the second.
    let mut row: Vec<Vec<f64>> = (0..=second).map(|_| vec![1.0]).collect();
    for i in 1..=first {
        let mut next: Vec<Vec<f64>> = vec![vec![1.0]];
        for j in 1..=second {
            let mut shares = vec![0.0; i * j + 1];
            let of_first = i as f64 / (i + j) as f64;
            for (value, share) in row[j].iter().enumerate() {
                shares[value + j] += of_first * share;
            }
            for (value, share) in next[j - 1].iter().enumerate() {
                shares[value] += (1.0 - of_first) * share;
            }
            next.push(shares);
        }
        row = next;
    }
    row.pop().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::{critical, distribution, ratio_interval};
    use crate::random::Random;

    /// Permeability constants of the human chorioamnion, at term and at 12 to 26 weeks (Hollander and Wolfe
    /// 1973, table 4.1).
    const AT_TERM: [f64; 10] = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46];
    const EARLIER: [f64; 5] = [1.15, 0.88, 0.90, 0.74, 1.21];

    /// Their example 4.1: 35 pairs are larger at term, and by chance as many or more are with probability
    /// 0.1272.
    #[test]
    fn the_probability_of_the_published_example_is_the_published_one() {
        let larger = AT_TERM.iter().flat_map(|a| EARLIER.iter().map(move |b| a > b)).filter(|x| *x).count();
        assert_eq!(larger, 35);
        let tail: f64 = distribution(10, 5).iter().skip(35).sum();
        assert!((tail - 0.1272).abs() < 5e-5, "{tail}");
    }

    /// Their example 4.3: the shift is 0.305. Shifts become factors by the exponential function.
    #[test]
    fn the_estimate_of_the_published_example_is_the_published_one() {
        let exp = |values: &[f64]| values.iter().map(|value| value.exp()).collect::<Vec<f64>>();
        let interval = ratio_interval(&exp(&EARLIER), &exp(&AT_TERM)).unwrap();
        assert!((interval.mid.ln() - 0.305).abs() < 1e-9, "{}", interval.mid.ln());
        // The ninth smallest and the ninth largest of the 50 differences, counted by hand.
        let mut differences: Vec<f64> =
            AT_TERM.iter().flat_map(|a| EARLIER.iter().map(move |b| a - b)).collect();
        differences.sort_unstable_by(f64::total_cmp);
        assert!((interval.low.ln() - differences[8]).abs() < 1e-9);
        assert!((interval.high.ln() - differences[41]).abs() < 1e-9);
    }

    /// The table every textbook has: two-sided, 5 %.
    #[test]
    fn critical_values_are_those_of_the_tables() {
        let table = [(4, 4, 0), (5, 5, 2), (6, 6, 5), (7, 7, 8), (8, 8, 13), (10, 10, 23), (5, 10, 8)];
        for (first, second, value) in table {
            assert_eq!(critical(first, second), Some(value), "{first} against {second}");
            assert_eq!(critical(second, first), Some(value), "{second} against {first}");
        }
        assert_eq!((critical(12, 12), critical(20, 20)), (Some(37), Some(127)));
        assert_eq!(critical(3, 3), None, "three against three are never that far apart");
    }

    #[test]
    fn the_normal_approximation_joins_the_exact_distribution() {
        let exact = critical(40, 40).unwrap();
        let (n, m) = (40.0, 40.0);
        let cut: f64 = n * m / 2.0 - 1.96 * (n * m * (n + m + 1.0_f64) / 12.0).sqrt() - 0.5;
        assert!(exact.abs_diff(cut as usize) <= 1, "{exact} {cut}");
        assert!(critical(41, 3).is_some());
    }

    #[test]
    fn probabilities_add_up() {
        for (first, second) in [(1, 1), (3, 7), (25, 40)] {
            let shares = distribution(first, second);
            assert_eq!(shares.len(), first * second + 1);
            assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        }
    }

    /// 1,000 pairs of samples each; 95 % coverage has a standard error of 0.7 %.
    #[test]
    fn the_interval_holds_the_true_factor_about_95_times_in_100() {
        type Draw = fn(&mut Random) -> f64;
        let shapes: [(&str, Draw); 3] = [
            ("normal", |random| (0.02 * random.normal()).exp()),
            ("skewed", |random| (-0.02 * (1.0 - random.unit()).ln()).exp()),
            ("uniform", |random| 1.0 + random.unit()),
        ];
        for (name, draw) in shapes {
            for size in [6, 12] {
                let mut random = Random::seeded(size as u64);
                let mut sample =
                    |factor: f64| -> Vec<f64> { (0..size).map(|_| factor * draw(&mut random)).collect() };
                let covered = (0..1_000)
                    .filter(|_| {
                        let (first, second) = (sample(4.0), sample(4.2));
                        let interval = ratio_interval(&first, &second).unwrap();
                        interval.low <= 1.05 && 1.05 <= interval.high
                    })
                    .count();
                assert!((935..=985).contains(&covered), "{name}, {size} values: {covered} of 1000");
            }
        }
    }

    #[test]
    fn what_is_no_positive_number_is_refused() {
        for bad in [&[][..], &[0.0], &[-1.0], &[f64::NAN], &[f64::INFINITY, 1.0]] {
            assert_eq!(ratio_interval(bad, &[1.0]), None);
            assert_eq!(ratio_interval(&[1.0], bad), None);
        }
    }
}
