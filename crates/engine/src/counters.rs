//! What a runtime has done so far: plain numbers, raised where the thing happens.

use std::fmt;

/// Counts since the runtime was made. They cost an addition each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// System calls made by the driver and its workers to do I/O and to wait for it, as a tracer would count them. Not
    /// what locks cost when they are contended, nor what starts and ends a thread: on `threads` a tracer sees calls of
    /// `futex(2)` besides.
    pub system_calls: u64,
    /// Waits among them.
    pub waits: u64,
    /// Operations answered by an attempt, without waiting.
    pub answered_at_once: u64,
    /// Attempts the kernel answered with EAGAIN.
    pub would_block: u64,
    /// Operations handed to the driver.
    pub submitted: u64,
    /// Results of submitted operations, standing ones counted each time.
    pub completed: u64,
    /// Most results taken in one turn.
    pub batch_max: u64,
    /// Times the submission queue was full.
    pub queue_full: u64,
    /// Times completions overflowed their queue and had to be fetched from the kernel.
    pub overflows: u64,
    /// Sends that the kernel was to make from where the bytes lie, and took.
    pub zero_copy_sends: u64,
    /// Of these, those of which it has reported that it copied all the same.
    pub zero_copy_copied: u64,
    /// Receives that found the buffer ring empty.
    pub ring_empty: u64,
    /// Receives stopped because their stream had not read what it already got.
    pub out_of_credit: u64,
    /// Cancels asked for.
    pub cancels: u64,
    /// Operations submitted again after a short transfer or a wake-up that came to nothing.
    pub retries: u64,
    /// Completions for slots that had been given up: must be zero.
    pub stale: u64,
    /// Operations whose futures were dropped while the kernel had them.
    pub orphaned: u64,
    /// Accepting paused for want of descriptors.
    pub accept_parked: u64,
    /// Tasks polled.
    pub polls: u64,
    /// Turns of the loop.
    pub turns: u64,
    /// Wake-ups from other threads.
    pub remote_wakes: u64,
    /// Operations that could not be ended at shutdown, and whose memory was left to the kernel.
    pub leaked: u64,
    /// Connections that have a place in the driver's table now ([`into_direct`](crate::net::TcpStream::into_direct)), those
    /// about to be closed among them. A level, and no count since the beginning.
    pub places_used: u64,
}

/// Those that are not zero, on one line.
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
