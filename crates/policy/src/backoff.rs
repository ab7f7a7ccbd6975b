//! How long to wait before a repeat: exponential with full jitter.

use crate::{Nanos, below};

/// Returns the wait before repeat number `attempt` (from 0 on): evenly random from 0 to `base × 2^attempt`,
/// at most `longest`. Full jitter spreads clients that failed together (Brooker, "Exponential backoff and
/// jitter").
pub fn wait(attempt: u32, base: Nanos, longest: Nanos, random: u64) -> Nanos {
    let ceiling = base.saturating_mul(1_u64.checked_shl(attempt).unwrap_or(u64::MAX)).min(longest);
    below(random, ceiling.saturating_add(1))
}
