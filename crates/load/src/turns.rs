//! One sequence for all workers: which of its numbers each of them takes.
//!
//! Arrivals, messages, rows of values, servers and source addresses are each one sequence of the whole load.
//! A worker computes its share from its number alone, so that nothing is shared while the load runs, in
//! threads, processes and parts alike, and the shares together are the sequence.
//!
//! The sequence is dealt out in rounds, one number to each worker. Where it repeats itself with a period that
//! has a divisor in common with the number of workers, a worker would get the same few of its items for ever:
//! then the order of the workers shifts by one, from time to time. Start at [`Turns::number`].

use crate::share::share;

/// The share of one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turns {
    index: u64,
    workers: u64,
    /// Rounds after which the order of the workers shifts; 0: never.
    shift: u64,
    /// Rounds in which all workers have a number. In the last one, where the sequence ends amid a round, only
    /// the first workers have, in their first order.
    whole: u64,
    /// The sequence is that of so many connections, over and over, of which worker i has every N-th from the
    /// i-th on; 0: it is none of connections.
    circle: u64,
}

impl From<(u32, u32)> for Turns {
    /// Number `index` of so many workers.
    fn from((index, workers): (u32, u32)) -> Turns {
        Turns { index: index.into(), workers: workers.max(1).into(), shift: 0, whole: u64::MAX, circle: 0 }
    }
}

impl Turns {
    /// Returns the same of a sequence that repeats itself after so many items. The order of the workers
    /// shifts as often as a worker has had all that it gets without a shift, or `times` as seldom.
    #[must_use]
    pub(crate) fn over(self, period: usize, times: u64) -> Turns {
        let common = gcd(period.max(1) as u64, self.workers);
        let shift = if common > 1 { period as u64 / common * times } else { 0 };
        Turns { shift, ..self }
    }

    /// Returns the same of a sequence that ends after so many items.
    #[must_use]
    pub(crate) fn up_to(self, count: Option<u64>) -> Turns {
        Turns { whole: count.map_or(u64::MAX, |count| count / self.workers), ..self }
    }

    /// Returns the same of a sequence of so many connections, over and over: a worker takes its own.
    #[must_use]
    pub(crate) fn of_connections(self, connections: u32) -> Turns {
        Turns { circle: connections.into(), ..self }
    }

    /// Returns how many workers there are.
    pub(crate) fn workers(&self) -> u64 {
        self.workers
    }

    /// Returns the number in the whole sequence of what the worker takes in this round. It grows with the
    /// rounds.
    #[inline]
    pub(crate) fn number(&self, round: u64) -> u64 {
        if self.circle > 0 {
            let own = share(self.circle, self.index as u32, self.workers as u32).max(1);
            return round / own * self.circle + round % own * self.workers + self.index;
        }
        let is_shifted = self.shift > 0 && round < self.whole;
        let shift = if is_shifted { round / self.shift % self.workers } else { 0 };
        round * self.workers + (self.index + shift) % self.workers
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what all workers take in their shares of `count`, sorted.
    fn taken(workers: u32, count: u64, turns: impl Fn(Turns) -> Turns) -> Vec<u64> {
        let of = |index| {
            let turns = turns(Turns::from((index, workers)));
            let numbers: Vec<u64> =
                (0..share(count, index, workers)).map(|round| turns.number(round)).collect();
            assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");
            numbers
        };
        let mut all: Vec<u64> = (0..workers).flat_map(of).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn the_shares_of_all_workers_are_the_sequence_whatever_its_period_is() {
        for workers in 1..9 {
            for period in 1..10 {
                for count in [0, 1, 4, 8, 27, 100] {
                    let all = taken(workers, count, |turns| turns.over(period, 1).up_to(Some(count)));
                    assert_eq!(all, (0..count).collect::<Vec<_>>(), "{workers} workers, {period}");
                }
            }
        }
    }

    #[test]
    fn each_worker_gets_every_item_of_a_period_as_often_as_the_others_do() {
        for (workers, period) in [(4, 4), (8, 8), (4, 6), (6, 4), (3, 5), (8, 2)] {
            for index in 0..workers {
                let turns = Turns::from((index, workers)).over(period, 1);
                let mut counts = vec![0; period];
                let rounds = period as u64 * u64::from(workers);
                (0..rounds).for_each(|round| counts[turns.number(round) as usize % period] += 1);
                assert!(counts.iter().all(|count| *count == workers), "{workers}, {period}: {counts:?}");
            }
        }
    }

    #[test]
    fn each_worker_has_the_numbers_of_its_connections() {
        for (workers, connections) in [(1, 3), (2, 5), (3, 3), (4, 10)] {
            let count = u64::from(connections) * 3;
            let of = |index: u32| {
                let turns = Turns::from((index, workers)).of_connections(connections);
                let own = share(connections.into(), index, workers);
                (0..own * 3).map(move |round| {
                    let number = turns.number(round);
                    let seat = number % u64::from(connections);
                    assert_eq!(
                        (seat % u64::from(workers), seat / u64::from(workers)),
                        (index.into(), round % own)
                    );
                    number
                })
            };
            let mut all: Vec<u64> = (0..workers).flat_map(of).collect();
            all.sort_unstable();
            assert_eq!(all, (0..count).collect::<Vec<_>>());
        }
    }
}
