//! The faults that the simulation injects, and the one source of randomness.
//!
//! Everything a seed decides comes from [`Chance`]; nothing else here is random, so a seed determines a whole
//! run.

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): one addition and a mix per number; every seed is valid.
#[derive(Clone, Debug)]
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`, or 0 if `end` is 0. The modulo bias does not matter at these sizes.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.next() % end }
    }

    /// Returns 0 in half of the cases, else 10 and up to `most` more.
    fn some(&mut self, most: u64) -> u16 {
        if self.below(2) == 0 { 0 } else { (10 + self.below(most)) as u16 }
    }

    /// Returns true `per_mille` times in a thousand. Draws nothing for 0, so that a disabled fault costs
    /// nothing.
    pub(super) fn hits(&mut self, per_mille: u16) -> bool {
        per_mille > 0 && self.below(1000) < u64::from(per_mille)
    }
}

/// The styles in which operations complete, as with the real drivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// As epoll: operations are attempted immediately; one that would block gets `Ready` when it may be
    /// attempted again.
    Readiness,
    /// As io_uring: operations are submitted, and a completion means they are done.
    Completion,
    /// A random style for each operation.
    Mixed,
}

/// Probabilities of faults, in times per thousand; and delays.
///
/// A kernel may do all of this, but not for ever: below 1000 every program still terminates, except with
/// [`stuck`](Faults::stuck).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Faults {
    /// Sends, receives, and file reads and writes that transfer fewer bytes than possible.
    pub short: u16,
    /// Operations that end with EINTR or EAGAIN and have no effect.
    pub again: u16,
    /// Attempts that would have succeeded and return EAGAIN.
    pub would_block: u16,
    /// Spurious `Ready` reports.
    pub spurious: u16,
    /// Multishot operations that end with a result, and have to be submitted again.
    pub series_end: u16,
    /// Receives that find no buffer (ENOBUFS).
    pub ring_empty: u16,
    /// Accepts that fail with EMFILE, as if no descriptor were free.
    pub no_descriptor: u16,
    /// Writes to files, and creations of files or directories, that fail with ENOSPC. Not part of any
    /// [`swarm`](Faults::swarm), since a program may treat it as fatal.
    pub no_space: u16,
    /// Operations on files that fail with EIO. Not part of any swarm either.
    pub broken_disk: u16,
    /// Accepts that fail with ECONNABORTED.
    pub aborted: u16,
    /// UDP datagrams that never arrive.
    pub lost: u16,
    /// UDP datagrams that arrive twice, the second time later.
    pub doubled: u16,
    /// UDP datagrams that arrive later, so that others overtake them.
    pub late: u16,
    /// Waits that return with nothing, as after a signal.
    pub interrupted: u16,
    /// Events that are up to 3 s late.
    pub stall: u16,
    /// Cancels that are up to 1 s late, so that the operation completes first.
    pub lost_race: u16,
    /// Cancels that never arrive: the operation can only be abandoned. Not part of any
    /// [`swarm`](Faults::swarm).
    pub stuck: u16,
    /// Maximum delay of an event after its cause, in nanoseconds. Delayed events overtake each other.
    pub delay_ns_max: u64,
    /// Default size of a socket buffer in each direction, in bytes.
    pub socket_buffer_bytes: usize,
    /// Maximum number of results per wait; 0: only the engine's own limit.
    pub batch_max: usize,
}

impl Faults {
    /// Makes a plan without faults.
    pub const fn none() -> Faults {
        Faults {
            short: 0,
            again: 0,
            would_block: 0,
            spurious: 0,
            series_end: 0,
            ring_empty: 0,
            no_descriptor: 0,
            no_space: 0,
            broken_disk: 0,
            aborted: 0,
            lost: 0,
            doubled: 0,
            late: 0,
            interrupted: 0,
            stall: 0,
            lost_race: 0,
            stuck: 0,
            delay_ns_max: 2_000,
            socket_buffer_bytes: 64 * 1024,
            batch_max: 0,
        }
    }

    /// Returns a random selection of faults for a seed. A run without one fault may show what that fault
    /// hides.
    pub fn swarm(seed: u64) -> Faults {
        let mut chance = Chance::new(seed ^ 0x5357_4152_4d00_0000);
        let mut some = |most| chance.some(most);
        let mut faults = Faults {
            short: some(600),
            again: some(200),
            would_block: some(300),
            spurious: some(300),
            series_end: some(400),
            ring_empty: some(300),
            no_descriptor: some(100),
            aborted: some(200),
            interrupted: some(200),
            stall: some(30),
            lost_race: some(500),
            ..Faults::none()
        };
        faults.delay_ns_max = [1, 2_000, 100_000, 5_000_000][chance.below(4) as usize];
        faults.socket_buffer_bytes = [1, 37, 256, 1500, 4096, 65_536, 1 << 20][chance.below(7) as usize];
        faults.batch_max = [0, 1, 3, 16][chance.below(4) as usize];
        // Drawn last: these faults were added later, and the others of a seed stay the same.
        faults.lost = chance.some(400);
        faults.doubled = chance.some(300);
        faults.late = chance.some(300);
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers of seed 1234567, a common test vector of `splitmix64.c`.
    #[test]
    fn the_generator_is_the_known_one() {
        let mut chance = Chance::new(1_234_567);
        let first: Vec<_> = (0..3).map(|_| chance.next()).collect();
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn each_fault_is_on_in_some_swarms_and_off_in_others() {
        let swarms: Vec<_> = (0..64).map(Faults::swarm).collect();
        let fault: [fn(&Faults) -> u16; 14] = [
            |faults| faults.short,
            |faults| faults.again,
            |faults| faults.would_block,
            |faults| faults.spurious,
            |faults| faults.series_end,
            |faults| faults.ring_empty,
            |faults| faults.no_descriptor,
            |faults| faults.aborted,
            |faults| faults.interrupted,
            |faults| faults.stall,
            |faults| faults.lost_race,
            |faults| faults.lost,
            |faults| faults.doubled,
            |faults| faults.late,
        ];
        for of in fault {
            let on = swarms.iter().filter(|faults| of(faults) > 0).count();
            assert!((10..55).contains(&on), "{on} of 64");
            assert!(swarms.iter().all(|faults| of(faults) < 1000), "or nothing would ever end");
        }
        assert!(swarms.iter().all(|faults| faults.stuck == 0));
        assert_eq!(Faults::swarm(7), Faults::swarm(7));
    }
}
