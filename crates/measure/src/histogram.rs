//! Latencies in constant memory: an HDR histogram with one shape for every use.
//!
//! One shape (nanoseconds, 1 ns to 1 h, three significant digits) so that any two can be added and percentiles
//! of a sum are exact; averaging percentiles is never needed. The counting is the `hdrhistogram` crate's.
//!
//! Start at [`Histogram`].

use crate::record::Percentiles;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use std::fmt;

/// Smallest latency kept, nanoseconds; smaller ones count as this.
pub const LOWEST_NS: u64 = 1;
/// Largest latency kept, nanoseconds (one hour); larger ones count as this.
pub const HIGHEST_NS: u64 = 3_600_000_000_000;
/// Significant decimal digits kept: every figure is within 0.1 % of the truth.
pub const DIGITS: u8 = 3;

/// A histogram of latencies in nanoseconds; 272 KiB whatever is recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    inner: hdrhistogram::Histogram<u64>,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram::new()
    }
}

impl Histogram {
    /// An empty histogram.
    pub fn new() -> Self {
        #[expect(
            clippy::expect_used,
            reason = "the bounds are constants that the crate accepts; a test builds one"
        )]
        let inner = hdrhistogram::Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, DIGITS)
            .expect("1 ns to 1 h with 3 digits is a shape the histogram can have");
        Histogram { inner }
    }

    /// Counts one latency. Constant time, no allocation; out-of-range values count at the nearest end.
    pub fn record(&mut self, latency_ns: u64) {
        self.record_n(latency_ns, 1);
    }

    /// Counts the same latency `count` times. Counts saturate.
    pub fn record_n(&mut self, latency_ns: u64, count: u64) {
        self.inner
            .saturating_record_n(latency_ns.clamp(LOWEST_NS, HIGHEST_NS), count);
    }

    /// Adds all counts of another histogram: the result is what one histogram would have held.
    pub fn add(&mut self, other: &Histogram) {
        #[expect(
            clippy::expect_used,
            reason = "add fails only for values beyond the range, and all shapes are equal"
        )]
        self.inner
            .add(&other.inner)
            .expect("two histograms of one shape can be added");
    }

    /// Forgets all counts, keeps the memory.
    pub fn clear(&mut self) {
        self.inner.reset();
    }

    /// How many latencies were recorded.
    pub fn count(&self) -> u64 {
        self.inner.len()
    }

    /// Nothing recorded yet.
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    /// Mean latency, nanoseconds; `None` if empty.
    pub fn mean_ns(&self) -> Option<f64> {
        (!self.is_empty()).then(|| self.inner.mean())
    }

    /// The latency that `q` (0 to 1) of the requests did not exceed, nanoseconds; `None` if empty.
    pub fn quantile_ns(&self, q: f64) -> Option<u64> {
        (!self.is_empty()).then(|| self.inner.value_at_quantile(q))
    }

    /// The percentiles of the record, in microseconds; `None` if empty: nothing measured is not a latency of 0.
    pub fn percentiles(&self) -> Option<Percentiles> {
        if self.is_empty() {
            return None;
        }
        let at = |q: f64| self.inner.value_at_quantile(q) as f64 / 1e3;
        Some(Percentiles {
            min: self.inner.min() as f64 / 1e3,
            mean: self.inner.mean() / 1e3,
            p50: at(0.50),
            p75: at(0.75),
            p90: at(0.90),
            p95: at(0.95),
            p99: at(0.99),
            p99_9: at(0.999),
            p99_99: at(0.9999),
            max: self.inner.max() as f64 / 1e3,
        })
    }

    /// The buckets that hold something, in rising order: highest latency of the bucket in nanoseconds, count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.inner
            .iter_recorded()
            .map(|step| (step.value_iterated_to(), step.count_at_value()))
    }

    /// HDR V2, compressed, in base64: the form HdrHistogram logs use (they begin with `HISTF`).
    pub fn to_base64(&self) -> String {
        let mut bytes = Vec::new();
        #[expect(
            clippy::expect_used,
            reason = "a Vec takes every write, and our shape is far below the format's limits"
        )]
        V2DeflateSerializer::new()
            .serialize(&self.inner, &mut bytes)
            .expect("a histogram of this shape can always be written to memory");
        STANDARD.encode(bytes)
    }

    /// Reads HDR V2 in base64, compressed or not, of any shape; values are taken over into ours.
    ///
    /// # Errors
    /// [`DecodeError`] if it is not base64 or not a whole HDR V2 histogram.
    pub fn from_base64(text: &str) -> Result<Self, DecodeError> {
        let bytes = STANDARD
            .decode(text.trim())
            .map_err(|error| DecodeError(format!("not base64: {error}")))?;
        let other: hdrhistogram::Histogram<u64> = Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .map_err(|error| DecodeError(format!("not an HDR V2 histogram: {error}")))?;
        let mut histogram = Histogram::new();
        for step in other.iter_recorded() {
            histogram.record_n(step.value_iterated_to(), step.count_at_value());
        }
        Ok(histogram)
    }
}

/// Why a text is not a histogram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError(String);

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "histogram: {}", self.0)
    }
}

impl std::error::Error for DecodeError {}
