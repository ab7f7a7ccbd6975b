//! Decisions of a gateway without I/O and without a clock: rate limits, choice and ejection of servers,
//! retries and circuit breaking, and the use of stored answers.
//!
//! Time is an argument: [`Nanos`], counted from any fixed instant by a monotonic clock. Randomness is an
//! argument too: a random `u64`. So the same arguments give the same decision, in a test and in production.
//!
//! State that workers share is one word of atomics ([`gcra::Cell`], [`ewma::PeakEwma`]) or behind a mutex of
//! the caller ([`breaker::Breaker`], [`budget::Budget`], [`ejection::Ejection`]).
#![forbid(unsafe_code)]

pub mod backoff;
pub mod balance;
pub mod breaker;
pub mod budget;
pub mod ejection;
pub mod ewma;
pub mod fresh;
pub mod gcra;
pub mod health;
pub mod quantile;
pub mod ring;

/// Nanoseconds since an instant that the caller has fixed; a `u64` holds 584 years.
pub type Nanos = u64;

/// One second.
pub const SECOND: Nanos = 1_000_000_000;

/// Returns a random number below `bound` (0 if `bound` is 0) from 64 random bits, without the bias of `%`.
pub fn below(random: u64, bound: u64) -> u64 {
    ((u128::from(random) * u128::from(bound)) >> 64) as u64
}

/// Mixes a number so that neighbouring numbers differ in many bits (the finaliser of SplitMix64).
fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
