//! The time in the forms of logs and listings, all in UTC.
//!
//! The calendar is `httpdate`'s; its text is taken apart and put together again.

use std::time::SystemTime;

/// A second, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// `Sun, 06 Nov 1994 08:49:37 GMT`
    text: String,
}

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

impl Stamp {
    pub(crate) fn at(time: SystemTime) -> Stamp {
        Stamp { text: httpdate::fmt_http_date(time) }
    }

    fn part(&self, from: usize, to: usize) -> &str {
        self.text.get(from..to).unwrap_or_default()
    }

    fn month(&self) -> usize {
        MONTHS.iter().position(|month| *month == self.part(8, 11)).map_or(1, |at| at + 1)
    }

    /// `06/Nov/1994:08:49:37 +0000`, as in the combined log.
    pub(crate) fn combined(&self) -> String {
        format!("{}/{}/{}:{} +0000", self.part(5, 7), self.part(8, 11), self.part(12, 16), self.part(17, 25))
    }

    /// `1994-11-06 08:49`
    pub(crate) fn minutes(&self) -> String {
        format!("{}-{:02}-{} {}", self.part(12, 16), self.month(), self.part(5, 7), self.part(17, 22))
    }

    /// `1994-11-06T08:49:37`, to which a fraction and `Z` are appended (RFC 3339).
    pub(crate) fn seconds(&self) -> String {
        format!("{}-{:02}-{}T{}", self.part(12, 16), self.month(), self.part(5, 7), self.part(17, 25))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn a_second_is_written_in_three_ways() {
        let stamp = Stamp::at(UNIX_EPOCH + Duration::from_secs(784_111_777));
        assert_eq!(stamp.combined(), "06/Nov/1994:08:49:37 +0000");
        assert_eq!(stamp.minutes(), "1994-11-06 08:49");
        assert_eq!(stamp.seconds(), "1994-11-06T08:49:37");
        assert_eq!(Stamp::at(UNIX_EPOCH).seconds(), "1970-01-01T00:00:00");
    }
}
