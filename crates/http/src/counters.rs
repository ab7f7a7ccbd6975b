//! Counts of a server's work, readable from any thread.
//!
//! Each worker has its own counters and is the only one to write them. An addition is a load and a store
//! without a lock or a contended cache line. A reader adds the workers up.

use ringroad_engine::Counters as EngineCounters;
use ringroad_wire::Status;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one worker.
#[repr(align(128))]
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Responses by the first digit of their status, from 1 on.
    pub(crate) responses: [AtomicU64; 5],
    pub(crate) accepted: AtomicU64,
    pub(crate) handed_over: AtomicU64,
    pub(crate) closed: AtomicU64,
    pub(crate) bytes_in: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
    pub(crate) panics: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) timed_out: AtomicU64,
    pub(crate) accept_paused: AtomicU64,
    pub(crate) evicted: AtomicU64,
    pub(crate) clients_gone: AtomicU64,
    pub(crate) upgraded: AtomicU64,
    pub(crate) http2_frames: AtomicU64,
    pub(crate) files_cut: AtomicU64,
    pub(crate) file_reads: AtomicU64,
    /// TLS handshakes: 1.2 full, 1.2 resumed, 1.3 full, 1.3 resumed.
    pub(crate) handshakes: [AtomicU64; 4],
    pub(crate) handshakes_failed: AtomicU64,
    pub(crate) handshakes_waiting: AtomicU64,
    pub(crate) handshake_micros: AtomicU64,
    /// The engine's counters, as of the last second.
    pub(crate) engine: Mutex<EngineCounters>,
}

/// Adds to a count that only this thread writes.
#[inline]
pub(crate) fn add(count: &AtomicU64, more: u64) {
    // Relaxed: the counters are independent.
    count.store(count.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

impl Counts {
    #[inline]
    pub(crate) fn responded(&self, status: Status) {
        // 6xx to 9xx have no class of their own (RFC 9110 §15).
        let class = usize::from(status.code() / 100).clamp(1, 5) - 1;
        if let Some(count) = self.responses.get(class) {
            add(count, 1);
        }
    }

    pub(crate) fn set_engine(&self, counters: EngineCounters) {
        *self.engine.lock().unwrap_or_else(PoisonError::into_inner) = counters;
    }
}

/// Counters of a server, summed over its workers.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Final responses by class: 1xx (only 101), 2xx, 3xx, 4xx, 5xx.
    pub responses: [u64; 5],
    /// Connections accepted.
    pub accepted: u64,
    /// Of these, connections that were handed to a worker with fewer.
    pub handed_over: u64,
    /// Connections open now.
    pub connections: u64,
    /// Connections that have ended.
    pub closed: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Bytes sent.
    pub bytes_out: u64,
    /// Handlers that panicked.
    pub panics: u64,
    /// Requests that the protocol or its limits refused.
    pub refused: u64,
    /// Connections closed because a head, a body, the receiver of an answer, or the next request was too
    /// slow.
    pub timed_out: u64,
    /// Number of times that accepting paused because every worker was at its connection limit.
    pub accept_paused: u64,
    /// Idle connections that were closed to make room for others.
    pub evicted: u64,
    /// Clients that reset their connection while their request was being answered.
    pub clients_gone: u64,
    /// Connections that have switched to another protocol, including ended ones.
    pub upgraded: u64,
    /// Frames of HTTP/2 that were read. Frames after a GOAWAY are dropped and not counted.
    pub http2_frames: u64,
    /// Files that ended, or could not be read, before the announced length was sent. Their connections were
    /// closed.
    pub files_cut: u64,
    /// Parts of files that were not in the page cache, and that the blocking pool read before they were sent.
    pub file_reads: u64,
    /// TLS handshakes: 1.2 full, 1.2 resumed, 1.3 full, 1.3 resumed.
    pub handshakes: [u64; 4],
    /// TLS handshakes that failed.
    pub handshakes_failed: u64,
    /// TLS handshakes that wait in line now.
    pub handshakes_waiting: u64,
    /// Total duration of all [`handshakes`](Self::handshakes) in microseconds, including the wait in line.
    pub handshake_micros: u64,
    /// The engine's counters of each worker, as of the last second.
    pub engine: Vec<EngineCounters>,
}

impl Counters {
    /// Returns the count of all responses.
    pub fn requests(&self) -> u64 {
        self.responses.iter().sum()
    }

    pub(crate) fn add(&mut self, counts: &Counts) {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        for (sum, count) in self.responses.iter_mut().zip(&counts.responses) {
            *sum += of(count);
        }
        self.accepted += of(&counts.accepted);
        self.handed_over += of(&counts.handed_over);
        self.closed += of(&counts.closed);
        self.bytes_in += of(&counts.bytes_in);
        self.bytes_out += of(&counts.bytes_out);
        self.panics += of(&counts.panics);
        self.refused += of(&counts.refused);
        self.timed_out += of(&counts.timed_out);
        self.accept_paused += of(&counts.accept_paused);
        self.evicted += of(&counts.evicted);
        self.clients_gone += of(&counts.clients_gone);
        self.upgraded += of(&counts.upgraded);
        self.http2_frames += of(&counts.http2_frames);
        self.files_cut += of(&counts.files_cut);
        self.file_reads += of(&counts.file_reads);
        for (sum, count) in self.handshakes.iter_mut().zip(&counts.handshakes) {
            *sum += of(count);
        }
        self.handshakes_failed += of(&counts.handshakes_failed);
        self.handshakes_waiting += of(&counts.handshakes_waiting);
        self.handshake_micros += of(&counts.handshake_micros);
        self.engine.push(*counts.engine.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
