//! Latencies in constant memory: an HDR histogram with one shape for every use.
//!
//! One shape (nanoseconds, 1 ns to 1 h, three significant digits) so that any two can be added and
//! percentiles of a sum are exact; averaging percentiles is never needed. The counting is the `hdrhistogram`
//! crate's.
//!
//! Start at [`Histogram`].

use crate::record::Percentiles;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::ZlibDecoder;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::de::{Deserialize, Deserializer as Input, Error as _};
use serde::ser::{Serialize, Serializer as Output};
use std::borrow::Cow;
use std::fmt;
use std::io::Read;

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
    /// Makes an empty histogram.
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
        self.inner.saturating_record_n(latency_ns.clamp(LOWEST_NS, HIGHEST_NS), count);
    }

    /// Adds all counts of another histogram: the result is what one histogram would have held.
    pub fn add(&mut self, other: &Histogram) {
        #[expect(
            clippy::expect_used,
            reason = "add fails only for values beyond the range, and all shapes are equal"
        )]
        self.inner.add(&other.inner).expect("two histograms of one shape can be added");
    }

    /// Forgets all counts, keeps the memory.
    pub fn clear(&mut self) {
        self.inner.reset();
    }

    /// Returns how many latencies were recorded.
    pub fn count(&self) -> u64 {
        self.inner.len()
    }

    /// Returns whether nothing is recorded yet.
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    /// Returns the mean latency, nanoseconds; `None` if empty.
    pub fn mean_ns(&self) -> Option<f64> {
        (!self.is_empty()).then(|| self.inner.mean())
    }

    /// Returns the latency that `q` (0 to 1) of the requests did not exceed, nanoseconds; `None` if empty.
    pub fn quantile_ns(&self, q: f64) -> Option<u64> {
        (!self.is_empty()).then(|| self.inner.value_at_quantile(q))
    }

    /// Returns the percentiles of the record, in microseconds; `None` if empty: nothing measured is not a
    /// latency of 0.
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

    /// Returns the buckets that hold something, in rising order: highest latency of the bucket in
    /// nanoseconds, count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.inner.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value()))
    }

    /// Writes it as HDR V2, compressed, in base64: the form HdrHistogram logs use (they begin with `HISTF`).
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
        let bytes =
            STANDARD.decode(text.trim()).map_err(|error| DecodeError(format!("not base64: {error}")))?;
        let plain = plain_v2(&bytes)?;
        let other: hdrhistogram::Histogram<u64> = Deserializer::new()
            .deserialize(&mut plain.as_ref())
            .map_err(|error| DecodeError(format!("not an HDR V2 histogram: {error}")))?;
        let mut histogram = Histogram::new();
        for step in other.iter_recorded() {
            histogram.record_n(step.value_iterated_to(), step.count_at_value());
        }
        Ok(histogram)
    }
}

/// Serialises as [`Histogram::to_base64`].
impl Serialize for Histogram {
    fn serialize<S: Output>(&self, output: S) -> Result<S::Ok, S::Error> {
        output.serialize_str(&self.to_base64())
    }
}

/// Deserialises as [`Histogram::from_base64`].
impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: Input<'de>>(input: D) -> Result<Self, D::Error> {
        Histogram::from_base64(&Cow::<str>::deserialize(input)?).map_err(D::Error::custom)
    }
}

/// First word of a plain and of a compressed V2 encoding (HdrHistogram, `AbstractHistogram.java`).
const COOKIE_PLAIN: u32 = 0x1c84_9313;
const COOKIE_COMPRESSED: u32 = 0x1c84_9314;
/// Bytes before the counts: cookie, length of the counts, normalizing offset, digits, lowest, highest, ratio.
const HEADER_BYTES: usize = 40;
/// The longest encoding taken. Ours has 35 thousand counts of at most 9 bytes; a finer shape may have more.
const PLAIN_BYTES_MAX: u64 = 16 << 20;

/// Returns the plain form, with everything checked that the decoder would trust: a record comes from outside,
/// and the decoder reserves what the header says (up to 4 GiB) and negates what a count says (an overflow for
/// one value).
fn plain_v2(bytes: &[u8]) -> Result<Cow<'_, [u8]>, DecodeError> {
    let broken = |what: &str| DecodeError(format!("not an HDR V2 histogram: {what}"));
    let plain = match word(bytes, 0) {
        Some(COOKIE_PLAIN) => Cow::Borrowed(bytes),
        Some(COOKIE_COMPRESSED) => {
            let mut plain = Vec::new();
            ZlibDecoder::new(bytes.get(8..).unwrap_or_default())
                .take(PLAIN_BYTES_MAX)
                .read_to_end(&mut plain)
                .map_err(|error| broken(&format!("its compression is damaged ({error})")))?;
            Cow::Owned(plain)
        }
        _ => return Err(broken("it does not begin as one")),
    };
    let stated = word(&plain, 4).unwrap_or(0) as usize;
    let counts = plain.get(HEADER_BYTES..).ok_or_else(|| broken("it ends within its header"))?;
    if word(&plain, 0) != Some(COOKIE_PLAIN) || counts.len() < stated {
        return Err(broken("it is shorter than it says"));
    }
    if runs_of_zeros(&counts[..stated]).any(|length| length > u64::from(u32::MAX)) {
        return Err(broken("a run of empty buckets is longer than any histogram"));
    }
    Ok(plain)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Returns the lengths of the runs of empty buckets: the negative numbers of the ZigZag LEB128 sequence. The
/// ninth byte of a number carries eight bits.
fn runs_of_zeros(mut counts: &[u8]) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || {
        let mut number = 0_u64;
        for nth in 0..9 {
            let (&byte, rest) = counts.split_first()?;
            counts = rest;
            let bits = if nth == 8 { byte } else { byte & 0x7f };
            number |= u64::from(bits) << (7 * nth);
            if byte & 0x80 == 0 {
                break;
            }
        }
        // ZigZag: odd numbers are negative, 1 is -1, 3 is -2.
        Some(if number & 1 == 1 { (number >> 1) + 1 } else { 0 })
    })
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::{HIGHEST_NS, Histogram};
    use crate::random::Random;
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;

    /// Latencies over many magnitudes, as a server under load has them.
    fn latencies(seed: u64, count: usize) -> Vec<u64> {
        let mut random = Random::seeded(seed);
        (0..count).map(|_| (10_000.0 * (1.5 * random.normal()).exp()) as u64).collect()
    }

    fn of(latencies: &[u64]) -> Histogram {
        let mut histogram = Histogram::new();
        latencies.iter().for_each(|&ns| histogram.record(ns));
        histogram
    }

    #[test]
    fn quantiles_are_within_a_thousandth_of_the_sorted_values() {
        let mut values = latencies(1, 10_000);
        let histogram = of(&values);
        values.sort_unstable();
        for q in [0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0] {
            let exact = values[((q * values.len() as f64).ceil() as usize).max(1) - 1] as f64;
            let got = histogram.quantile_ns(q).unwrap() as f64;
            assert!((got / exact - 1.0).abs() <= 0.001, "{q}: {got} for {exact}");
        }
    }

    #[test]
    fn percentiles_are_in_microseconds() {
        let percentiles = of(&[1_000, 2_000, 3_000, 4_000]).percentiles().unwrap();
        let near = |got: f64, want: f64| assert!((got / want - 1.0).abs() <= 0.001, "{got} for {want}");
        near(percentiles.min, 1.0);
        near(percentiles.mean, 2.5);
        near(percentiles.p50, 2.0);
        near(percentiles.p75, 3.0);
        near(percentiles.p99_99, 4.0);
        near(percentiles.max, 4.0);
    }

    #[test]
    fn an_empty_histogram_has_no_latency_rather_than_zero() {
        let histogram = Histogram::new();
        assert_eq!(histogram.percentiles(), None);
        assert_eq!(histogram.quantile_ns(0.5), None);
        assert_eq!(histogram.mean_ns(), None);
    }

    #[test]
    fn adding_histograms_equals_recording_in_one() {
        let values = latencies(2, 5_000);
        let (first, second) = values.split_at(1_234);
        let mut sum = of(first);
        sum.add(&of(second));
        assert_eq!(sum, of(&values));
        assert_eq!(sum.count(), 5_000);
        assert_eq!(sum.percentiles(), of(&values).percentiles());
    }

    #[test]
    fn what_is_out_of_range_counts_at_the_nearest_end() {
        let histogram = of(&[0, u64::MAX]);
        assert_eq!(histogram.count(), 2);
        assert_eq!(histogram.quantile_ns(0.0), Some(1));
        let largest = histogram.quantile_ns(1.0).unwrap() as f64;
        assert!((largest / HIGHEST_NS as f64 - 1.0).abs() <= 0.001, "{largest}");
    }

    #[test]
    fn memory_does_not_grow_with_what_is_recorded() {
        let mut histogram = Histogram::new();
        let before = histogram.inner.distinct_values();
        latencies(3, 1_000).iter().for_each(|&ns| histogram.record(ns));
        histogram.record(HIGHEST_NS);
        assert_eq!(histogram.inner.distinct_values(), before);
    }

    #[test]
    fn base64_gives_the_same_histogram_back() {
        let histogram = of(&latencies(4, 5_000));
        let text = histogram.to_base64();
        // Every HdrHistogram log line of this encoding begins so, in all languages.
        assert!(text.starts_with("HISTF"), "{text:.20}");
        assert_eq!(Histogram::from_base64(&text).unwrap(), histogram);
        assert_eq!(Histogram::from_base64(&Histogram::new().to_base64()).unwrap(), Histogram::new());
        let json = serde_json::to_string(&histogram).unwrap();
        assert_eq!(serde_json::from_str::<Histogram>(&json).unwrap(), histogram);
    }

    #[test]
    fn the_plain_encoding_and_other_shapes_are_read_too() {
        use hdrhistogram::serialization::{Serializer, V2Serializer};
        let mut other = hdrhistogram::Histogram::<u64>::new_with_bounds(1, 1_000_000, 2).unwrap();
        [500, 500, 90_000].iter().for_each(|&ns| other.record(ns).unwrap());
        let mut bytes = Vec::new();
        V2Serializer::new().serialize(&other, &mut bytes).unwrap();
        let histogram = Histogram::from_base64(&STANDARD.encode(bytes)).unwrap();
        assert_eq!(histogram.count(), 3);
        let median = histogram.quantile_ns(0.5).unwrap() as f64;
        assert!((median / 500.0 - 1.0).abs() <= 0.011, "{median}");
    }

    /// Aim: no text from outside panics or asks for gigabytes. Method: the plain form of a real histogram,
    /// with every header byte set to its extremes, cut at every length, and with counts that decoders trip
    /// over.
    #[test]
    fn damaged_text_is_an_error_or_a_histogram_but_never_a_panic() {
        use hdrhistogram::serialization::{Serializer, V2Serializer};
        let mut good = Vec::new();
        V2Serializer::new().serialize(&of(&[1_000, 5_000_000]).inner, &mut good).unwrap();
        let read = |bytes: &[u8]| Histogram::from_base64(&STANDARD.encode(bytes));
        for length in 0..good.len() {
            assert!(read(&good[..length]).is_err(), "cut at {length}");
        }
        for at in 0..good.len() {
            for byte in [0x00, 0x01, 0x7f, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] = byte;
                let _ = read(&bad);
            }
        }
        let mut least = good.clone();
        least.truncate(40);
        least[4..8].copy_from_slice(&9_u32.to_be_bytes());
        // ZigZag of the smallest i64: all bits set.
        least.extend([0xff; 9]);
        let error = read(&least).unwrap_err().to_string();
        assert!(error.contains("longer than any histogram"), "{error}");
        let error = Histogram::from_base64("no base64!").unwrap_err().to_string();
        assert!(error.starts_with("histogram: not base64"), "{error}");
    }
}
