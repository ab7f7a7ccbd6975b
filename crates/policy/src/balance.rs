//! The choice of a server: two random choices, and weighted round robin.

use crate::below;

/// Draws two of `count` servers at random, only `usable` ones, and returns the one with the lower cost.
/// `None` if no server is usable.
///
/// Two choices keep the longest queue at O(log log n) with one comparison (Mitzenmacher, "The power of two
/// choices"), and balancers with outdated costs do not all choose the same server. A server's `weight`
/// multiplies its chance to be drawn; the caller must divide the cost by it.
pub fn two_choices(
    count: usize,
    weight: impl Fn(usize) -> u32,
    usable: impl Fn(usize) -> bool,
    cost: impl Fn(usize) -> f64,
    random: [u64; 2],
) -> Option<usize> {
    let effective = |at: usize| if usable(at) { u64::from(weight(at).max(1)) } else { 0 };
    let total: u64 = (0..count).map(effective).sum();
    let draw = |random: u64, but: Option<usize>| {
        let weight_of = |at: usize| if Some(at) == but { 0 } else { effective(at) };
        let total = total - but.map_or(0, effective);
        let mut left = below(random, total);
        (0..count).filter(|at| weight_of(*at) > 0).find(|at| {
            let weight = weight_of(*at);
            let here = left < weight;
            left = left.saturating_sub(weight);
            here
        })
    };
    let [one, other] = random;
    let first = draw(one, None)?;
    let Some(second) = draw(other, Some(first)) else { return Some(first) };
    Some(if cost(second) < cost(first) { second } else { first })
}

/// A schedule of servers, by weight and as evenly as the weights allow (smooth weighted round robin, as in
/// nginx).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turns(Box<[u16]>);

/// Maximum length of a schedule; weights with a larger sum are scaled down.
const TURNS_MAX: u64 = 1024;

impl Turns {
    /// Makes a schedule of servers with these weights; a weight of 0 counts as 1.
    pub fn new(weights: &[u32]) -> Turns {
        let weights: Vec<u64> = weights.iter().map(|weight| u64::from((*weight).max(1))).collect();
        let divisor = weights.iter().copied().reduce(common).unwrap_or(1).max(1);
        let mut weights: Vec<i64> = weights.iter().map(|weight| (weight / divisor) as i64).collect();
        let sum: i64 = weights.iter().sum();
        if sum as u64 > TURNS_MAX {
            for weight in &mut weights {
                *weight = (*weight * TURNS_MAX as i64 / sum).max(1);
            }
        }
        let total: i64 = weights.iter().sum();
        let mut current = vec![0_i64; weights.len()];
        let mut order = Vec::with_capacity(total as usize);
        for _ in 0..total {
            for (now, weight) in current.iter_mut().zip(&weights) {
                *now += weight;
            }
            // The first of the largest, so that equal weights take turns in order.
            let best = current.iter().enumerate().rev().max_by_key(|(_, now)| **now).map(|(at, _)| at);
            if let Some(now) = best.and_then(|at| current.get_mut(at)) {
                *now -= total;
            }
            order.extend(best.map(|at| at as u16));
        }
        Turns(order.into_boxed_slice())
    }

    /// Returns the length of the schedule.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the servers in the order to try at turn number `turn`: the server of that turn, then those
    /// after it. A server may occur several times.
    pub fn from(&self, turn: usize) -> impl Iterator<Item = usize> + '_ {
        let length = self.0.len();
        let at = move |step: usize| self.0.get((turn % length.max(1) + step) % length.max(1)).copied();
        (0..length).filter_map(at).map(usize::from)
    }
}

fn common(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common(b, a % b) }
}
