//! Counters of a runtime's work.

use std::fmt;

/// Counts since the runtime was created. Each costs one addition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// System calls of the driver and its workers for I/O and waits, as a tracer counts them. Calls for
    /// contended locks and for starting or ending threads are not counted: on `threads` a tracer also sees
    /// `futex(2)`.
    pub system_calls: u64,
    /// Waits among the system calls.
    pub waits: u64,
    /// Operations that an attempt completed, without waiting.
    pub answered_at_once: u64,
    /// Attempts that returned EAGAIN.
    pub would_block: u64,
    /// Operations submitted to the driver.
    pub submitted: u64,
    /// Completions of submitted operations; a standing operation counts once per result.
    pub completed: u64,
    /// Maximum number of results taken in one turn.
    pub batch_max: u64,
    /// Number of times the submission queue was full.
    pub queue_full: u64,
    /// Number of times completions overflowed their queue and had to be fetched from the kernel.
    pub overflows: u64,
    /// Zero-copy sends that the kernel accepted.
    pub zero_copy_sends: u64,
    /// Zero-copy sends for which the kernel reported a copy.
    pub zero_copy_copied: u64,
    /// Receives that found the buffer ring empty.
    pub ring_empty: u64,
    /// Receives that were stopped because the stream had too many unread bytes.
    pub out_of_credit: u64,
    /// Cancels requested.
    pub cancels: u64,
    /// Operations submitted again after a short transfer or a spurious wake-up.
    pub retries: u64,
    /// Completions for slots that had been freed: must be zero.
    pub stale: u64,
    /// Operations that were in flight when their futures were dropped.
    pub orphaned: u64,
    /// Number of times accepting paused because no descriptor was free.
    pub accept_parked: u64,
    /// Tasks polled.
    pub polls: u64,
    /// Turns of the loop.
    pub turns: u64,
    /// Wake-ups from other threads.
    pub remote_wakes: u64,
    /// Operations that did not end at shutdown; their memory was leaked.
    pub leaked: u64,
    /// Direct connections now ([`into_direct`](crate::net::TcpStream::into_direct)), including those about to
    /// be closed. A level, not a count since the start.
    pub places_used: u64,
}

/// Prints the non-zero counters on one line.
impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counters {
            system_calls,
            waits,
            answered_at_once,
            would_block,
            submitted,
            completed,
            batch_max,
            queue_full,
            overflows,
            zero_copy_sends,
            zero_copy_copied,
            ring_empty,
            out_of_credit,
            cancels,
            retries,
            stale,
            orphaned,
            accept_parked,
            polls,
            turns,
            remote_wakes,
            leaked,
            places_used,
        } = *self;
        let all = [
            (system_calls, "system_calls"),
            (waits, "waits"),
            (answered_at_once, "answered_at_once"),
            (would_block, "would_block"),
            (submitted, "submitted"),
            (completed, "completed"),
            (batch_max, "batch_max"),
            (queue_full, "queue_full"),
            (overflows, "overflows"),
            (zero_copy_sends, "zero_copy_sends"),
            (zero_copy_copied, "zero_copy_copied"),
            (ring_empty, "ring_empty"),
            (out_of_credit, "out_of_credit"),
            (cancels, "cancels"),
            (retries, "retries"),
            (stale, "stale"),
            (orphaned, "orphaned"),
            (accept_parked, "accept_parked"),
            (polls, "polls"),
            (turns, "turns"),
            (remote_wakes, "remote_wakes"),
            (leaked, "leaked"),
            (places_used, "places_used"),
        ];
        f.write_str("counters:")?;
        for (count, name) in all.into_iter().filter(|(count, _)| *count > 0) {
            write!(f, " {name} {count}")?;
        }
        Ok(())
    }
}
