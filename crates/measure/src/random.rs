//! Seeded random numbers for the tests of this crate, so that a failure can be repeated.
//!
//! Nothing outside of tests is random: even the bootstrap is computed in closed form. Start at [`Random`].

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014): one word
/// of state, full period, and it passes the usual test batteries.
pub(crate) struct Random(u64);

impl Random {
    /// Returns the same seed gives the same sequence on every machine.
    pub(crate) fn seeded(seed: u64) -> Self {
        Random(seed)
    }

    /// 64 random bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns an index in `0..bound`; `bound` must not be zero.
    ///
    /// The high half of a 128-bit product (Lemire 2019) without its rejection step: the bias is below `bound
    /// / 2^64`, which no test of ours can show.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        debug_assert!(bound > 0, "an index into nothing");
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// Uniform in [0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Standard normal (Box and Muller 1958).
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    /// First outputs for seed 1234567, as published with the reference implementation (prng.di.unimi.it).
    #[test]
    fn the_sequence_is_the_published_one() {
        let mut random = Random::seeded(1_234_567);
        let first = [random.next(), random.next(), random.next()];
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn indices_cover_the_whole_range_and_never_leave_it() {
        let mut random = Random::seeded(7);
        let mut seen = [0_u32; 5];
        for _ in 0..5_000 {
            seen[random.below(5)] += 1;
        }
        // 1000 expected each; 150 is five standard deviations.
        assert!(seen.iter().all(|&n| n.abs_diff(1_000) < 150), "{seen:?}");
    }
}
