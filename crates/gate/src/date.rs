//! The time in the forms of logs and listings, all in UTC.
//!
//! The calendar is `httpdate`'s; its text is taken apart and put together again.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The last second of the year 9999: `httpdate` has no way to write the next, and panics.
const LAST_SECOND: u64 = 253_402_300_799;

/// A second, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// `Sun, 06 Nov 1994 08:49:37 GMT`
    text: String,
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

impl Stamp {
    /// Makes the stamp of a time. One before 1970 is taken for the first of that year, one after 9999 for the
    /// last of that.
    pub fn at(time: SystemTime) -> Stamp {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        let since = since.min(Duration::from_secs(LAST_SECOND));
        Stamp { text: httpdate::fmt_http_date(UNIX_EPOCH + since) }
    }

    fn part(&self, from: usize, to: usize) -> &str {
        self.text.get(from..to).unwrap_or_default()
    }

    fn month(&self) -> usize {
        MONTHS.iter().position(|month| *month == self.part(8, 11)).map_or(1, |at| at + 1)
    }

    /// Writes it as `06/Nov/1994:08:49:37 +0000`, as in the combined log.
    pub fn combined(&self) -> String {
        format!("{}/{}/{}:{} +0000", self.part(5, 7), self.part(8, 11), self.part(12, 16), self.part(17, 25))
    }

    /// Writes it as `Nov  6 08:49:37`, as syslog(3) writes it.
    pub fn bsd(&self) -> String {
        let day = self.part(5, 7).trim_start_matches('0');
        format!("{} {day:>2} {}", self.part(8, 11), self.part(17, 25))
    }

    /// Writes it as `1994-11-06 08:49`
    pub fn minutes(&self) -> String {
        format!("{}-{:02}-{} {}", self.part(12, 16), self.month(), self.part(5, 7), self.part(17, 22))
    }

    /// Writes it as `1994-11-06T08:49:37`, to which a fraction and `Z` are appended (RFC 3339).
    pub fn seconds(&self) -> String {
        format!("{}-{:02}-{}T{}", self.part(12, 16), self.month(), self.part(5, 7), self.part(17, 25))
    }
}

/// Writes it as `1994-11-06T08:49:37.000Z` (RFC 3339).
pub fn rfc3339(time: SystemTime) -> String {
    let millis = time.duration_since(UNIX_EPOCH).unwrap_or_default().subsec_millis();
    format!("{}.{millis:03}Z", Stamp::at(time).seconds())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_is_written_in_four_ways() {
        let stamp = Stamp::at(UNIX_EPOCH + Duration::from_secs(784_111_777));
        assert_eq!(stamp.combined(), "06/Nov/1994:08:49:37 +0000");
        assert_eq!(stamp.minutes(), "1994-11-06 08:49");
        assert_eq!(stamp.bsd(), "Nov  6 08:49:37");
        assert_eq!(stamp.seconds(), "1994-11-06T08:49:37");
        assert_eq!(Stamp::at(UNIX_EPOCH).seconds(), "1970-01-01T00:00:00");
    }

    #[test]
    fn a_second_with_no_date_is_the_nearest_that_has_one() {
        let second = Duration::from_secs(1);
        let last = UNIX_EPOCH + Duration::from_secs(LAST_SECOND);
        for time in [last, last + second, last + Duration::from_secs(1 << 40)] {
            assert_eq!(Stamp::at(time).seconds(), "9999-12-31T23:59:59");
        }
        assert_eq!(Stamp::at(UNIX_EPOCH - second).seconds(), "1970-01-01T00:00:00");
    }
}
