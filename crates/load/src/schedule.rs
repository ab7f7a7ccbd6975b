//! When requests are due: a rate over time, and the arrivals that follow from it. No clock, no I/O.
//!
//! Coordinated omission cannot happen by construction, and this is where: an arrival's time follows from the
//! profile and from nothing else. No answer, no connection and no delay of ours moves it; a connection that
//! takes an arrival late finds the time it was meant for. A backlog needs no memory: it is the distance
//! between the next arrival and now.
//!
//! Start at [`Schedule`].

use crate::turns::Turns;
use serde::{Deserialize, Serialize};
use std::rc::Rc;
use std::time::Duration;

/// A level over time, in straight pieces: requests per second, or connections.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    pieces: Vec<Piece>,
}

/// A rate that changes evenly from `from` to `to`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Piece {
    start_s: f64,
    length_s: f64,
    from: f64,
    to: f64,
    /// Arrivals before this piece.
    before: f64,
}

impl Piece {
    fn arrivals(&self) -> f64 {
        (self.from + self.to) / 2.0 * self.length_s
    }
}

impl Profile {
    /// Returns the same rate all the time.
    pub fn constant(per_second: f64, length: Duration) -> Profile {
        let mut profile = Profile::default();
        profile.push(length, per_second, per_second);
        profile
    }

    /// Adds a piece at the end.
    pub fn push(&mut self, length: Duration, from: f64, to: f64) {
        let (start_s, before) = self
            .pieces
            .last()
            .map_or((0.0, 0.0), |last| (last.start_s + last.length_s, last.before + last.arrivals()));
        self.pieces.push(Piece { start_s, length_s: length.as_secs_f64(), from, to, before });
    }

    /// Returns its length, seconds.
    pub fn seconds(&self) -> f64 {
        self.pieces.last().map_or(0.0, |last| last.start_s + last.length_s)
    }

    /// Arrivals from beginning to end.
    pub fn arrivals(&self) -> f64 {
        self.pieces.last().map_or(0.0, |last| last.before + last.arrivals())
    }

    /// Returns the level at a time, seconds from the beginning; after the end the last one.
    pub fn level_at(&self, seconds: f64) -> f64 {
        let index = self.pieces.partition_point(|piece| piece.start_s + piece.length_s <= seconds);
        match (self.pieces.get(index), self.pieces.last()) {
            (Some(piece), _) => {
                piece.from + (piece.to - piece.from) * ((seconds - piece.start_s) / piece.length_s).max(0.0)
            }
            (None, Some(last)) => last.to,
            (None, None) => 0.0,
        }
    }

    /// Returns for each piece when it ends, in seconds from the beginning, and its first and last level.
    pub fn pieces(&self) -> impl Iterator<Item = (f64, f64, f64)> {
        self.pieces.iter().map(|piece| (piece.start_s + piece.length_s, piece.from, piece.to))
    }

    /// Returns the same with each level replaced.
    #[must_use]
    pub fn mapped(&self, level: impl Fn(f64) -> f64) -> Profile {
        let mut all = Profile::default();
        for piece in &self.pieces {
            all.push(Duration::from_secs_f64(piece.length_s), level(piece.from), level(piece.to));
        }
        all
    }

    /// Returns the highest level.
    pub fn most(&self) -> f64 {
        self.pieces.iter().fold(0.0, |most, piece| most.max(piece.from).max(piece.to))
    }

    /// Returns the same after `length` of its first level.
    #[must_use]
    pub fn after(&self, length: Duration) -> Profile {
        let first = self.level_at(0.0);
        let mut all = Profile::default();
        if !length.is_zero() {
            all.push(length, first, first);
        }
        for piece in &self.pieces {
            all.push(Duration::from_secs_f64(piece.length_s), piece.from, piece.to);
        }
        all
    }

    /// Seconds from the beginning until `count` arrivals have come; `None` where there are not so many.
    fn time_of(&self, count: f64) -> Option<f64> {
        let index = self.pieces.partition_point(|piece| piece.before + piece.arrivals() <= count);
        let piece = self.pieces.get(index)?;
        let wanted = (count - piece.before).max(0.0);
        // from·t + slope/2·t² = wanted, solved in the form that is exact without a slope and at a rate of 0.
        let slope = (piece.to - piece.from) / piece.length_s;
        let root = (piece.from * piece.from + 2.0 * slope * wanted).max(0.0).sqrt();
        let time = if wanted == 0.0 { 0.0 } else { 2.0 * wanted / (piece.from + root) };
        Some(piece.start_s + time.min(piece.length_s))
    }
}

/// How arrivals follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Arrivals {
    /// Evenly.
    Constant,
    /// By chance, independent of each other, as people do.
    Poisson,
}

/// The arrivals of one worker of several, in order.
#[derive(Clone, Debug)]
pub struct Schedule {
    profile: Rc<Profile>,
    /// Arrivals of all workers up to the next one of this worker.
    position: f64,
    turns: Turns,
    /// How many of this worker's have been found.
    round: u64,
    chance: Option<fastrand::Rng>,
    left: u64,
    next_ns: Option<u64>,
}

impl Schedule {
    /// Makes the share of a worker, `(index, workers)`: of even arrivals those that are its turn, of random
    /// ones as many by chance of its own. At most `count` of them.
    pub fn new(
        profile: Rc<Profile>,
        arrivals: Arrivals,
        turns: impl Into<Turns>,
        seed: u64,
        count: u64,
    ) -> Schedule {
        let turns = turns.into();
        let chance = (arrivals == Arrivals::Poisson)
            // Neighbouring seeds are neighbouring streams of the generator, so they are spread.
            .then(|| {
                fastrand::Rng::with_seed(seed ^ (turns.number(0) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
            });
        let mut schedule = Schedule {
            profile,
            position: turns.number(0) as f64,
            turns,
            round: 0,
            chance,
            left: count,
            next_ns: None,
        };
        if schedule.chance.is_some() {
            schedule.position = 0.0;
            schedule.step();
        }
        schedule.find();
        schedule
    }

    /// Returns when the next one is due, nanoseconds from the beginning; `None` when there are no more.
    #[inline]
    pub fn peek(&self) -> Option<u64> {
        self.next_ns
    }

    /// Takes it.
    #[inline]
    pub fn take(&mut self) -> Option<u64> {
        let due = self.next_ns?;
        self.left -= 1;
        self.step();
        self.find();
        Some(due)
    }

    fn step(&mut self) {
        self.round += 1;
        self.position = match &mut self.chance {
            None => self.turns.number(self.round) as f64,
            // `1 - [0, 1)` is never 0, so the logarithm is finite.
            Some(chance) => self.position - (1.0 - chance.f64()).ln() * self.turns.workers() as f64,
        };
    }

    fn find(&mut self) {
        let seconds = if self.left == 0 { None } else { self.profile.time_of(self.position) };
        self.next_ns = seconds.map(|seconds| (seconds * 1e9) as u64);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn all(mut schedule: Schedule) -> Vec<u64> {
        std::iter::from_fn(|| schedule.take()).collect()
    }

    fn even(profile: &Rc<Profile>, of: (u32, u32)) -> Vec<u64> {
        all(Schedule::new(Rc::clone(profile), Arrivals::Constant, of, 0, u64::MAX))
    }

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_constant_rate_is_even_and_ends_with_its_time() {
        let profile = Rc::new(Profile::constant(4.0, Duration::from_secs(2)));
        let expected: Vec<u64> = (0..8).map(|nth| nth * SECOND / 4).collect();
        assert_eq!(even(&profile, (0, 1)), expected);
    }

    #[test]
    fn the_shares_of_all_workers_together_are_the_whole() {
        let mut profile = Profile::constant(1000.0, Duration::from_secs(1));
        profile.push(Duration::from_secs(2), 1000.0, 100.0);
        let profile = Rc::new(profile);
        let whole = even(&profile, (0, 1));
        let mut shares: Vec<u64> = (0..3).flat_map(|index| even(&profile, (index, 3))).collect();
        shares.sort_unstable();
        assert_eq!(shares, whole);
        assert_eq!(whole.len(), 2100);
    }

    /// A rate that rises evenly from nothing: the n-th arrival is due at sqrt(2n / slope).
    #[test]
    fn a_ramp_follows_its_line() {
        let mut profile = Profile::default();
        profile.push(Duration::from_secs(10), 0.0, 100.0);
        let times = even(&Rc::new(profile), (0, 1));
        assert_eq!(times.len(), 500);
        for (nth, &time) in times.iter().enumerate() {
            let exact = (2.0 * nth as f64 / 10.0).sqrt();
            assert!((time as f64 / 1e9 - exact).abs() < 1e-8, "{nth}: {time}");
        }
        // Down again, the same from behind.
        let mut down = Profile::default();
        down.push(Duration::from_secs(10), 100.0, 0.0);
        assert_eq!(even(&Rc::new(down), (0, 1)).len(), 500);
    }

    #[test]
    fn pieces_follow_each_other_without_a_gap_or_a_jump() {
        let mut profile = Profile::default();
        profile.push(Duration::from_secs(1), 10.0, 10.0);
        profile.push(Duration::from_secs(1), 0.0, 0.0);
        profile.push(Duration::from_secs(1), 20.0, 20.0);
        assert_eq!((profile.seconds(), profile.arrivals()), (3.0, 30.0));
        let times = even(&Rc::new(profile), (0, 1));
        assert_eq!(times.len(), 30);
        assert!(times[9] < SECOND && times[10] == 2 * SECOND, "{times:?}");
    }

    #[test]
    fn a_level_is_read_off_its_line() {
        let mut profile = Profile::constant(10.0, Duration::from_secs(2));
        profile.push(Duration::from_secs(4), 20.0, 40.0);
        for (at, level) in [(0.0, 10.0), (1.9, 10.0), (2.0, 20.0), (4.0, 30.0), (6.0, 40.0), (9.0, 40.0)] {
            assert_eq!(profile.level_at(at), level, "{at}");
        }
        assert_eq!((profile.most(), Profile::default().level_at(1.0)), (40.0, 0.0));
        let later = profile.after(Duration::from_secs(3));
        assert_eq!((later.level_at(2.9), later.level_at(5.0), later.seconds()), (10.0, 20.0, 9.0));
        assert_eq!(profile.after(Duration::ZERO), profile);
    }

    #[test]
    fn a_count_ends_it_early() {
        let profile = Rc::new(Profile::constant(10.0, Duration::from_secs(100)));
        assert_eq!(all(Schedule::new(profile, Arrivals::Constant, (0, 1), 0, 7)).len(), 7);
    }

    /// Of a Poisson process the gaps have mean and deviation 1/rate. 100,000 gaps: both are within 2 %, which
    /// is more than five standard errors; the seed is fixed, so this never changes.
    #[test]
    fn random_arrivals_have_the_mean_and_the_spread_of_a_poisson_process() {
        let profile = Rc::new(Profile::constant(1000.0, Duration::from_secs(200)));
        let times = all(Schedule::new(profile, Arrivals::Poisson, (1, 2), 42, u64::MAX));
        assert!((times.len() as f64 / 100_000.0 - 1.0).abs() < 0.02, "{}", times.len());
        let gaps: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1e9).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let deviation = (gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64).sqrt();
        assert!(
            (mean / 0.002 - 1.0).abs() < 0.02 && (deviation / 0.002 - 1.0).abs() < 0.02,
            "{mean} {deviation}"
        );
    }

    /// The promise of the opening: an arrival that is taken late has the time it was scheduled for.
    #[test]
    fn a_late_request_does_not_delay_the_next_scheduled_one() {
        let profile = Rc::new(Profile::constant(100.0, Duration::from_secs(10)));
        let mut schedule = Schedule::new(Rc::clone(&profile), Arrivals::Constant, (0, 1), 0, u64::MAX);
        // A server that freezes for one second in five of a virtual clock: no arrival is taken meanwhile.
        let mut lags = Vec::new();
        let mut now = 0;
        while schedule.peek().is_some() {
            now += SECOND / 1000;
            if now % (5 * SECOND) < SECOND {
                continue;
            }
            while schedule.peek().is_some_and(|due| due <= now) {
                lags.push(now - schedule.take().unwrap());
            }
        }
        assert_eq!(lags.len(), 1000);
        // Two freezes, each with 100 arrivals that waited for up to all of it.
        let late = lags.iter().filter(|lag| **lag > SECOND / 1000).count();
        assert!((190..=210).contains(&late), "{late}");
        assert!(lags.iter().max().unwrap() >= &(SECOND * 99 / 100));
    }
}
