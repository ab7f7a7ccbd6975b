//! The statuses of a good answer, as a set of ranges. Start at [`Statuses`].

use crate::error::Error;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Statuses of HTTP that are expected; 200 to 299 by default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statuses(Vec<RangeInclusive<u16>>);

impl Default for Statuses {
    fn default() -> Statuses {
        Statuses(vec![200..=299])
    }
}

impl Statuses {
    /// Returns whether an answer with this status is a good one.
    #[inline]
    pub fn contains(&self, status: u16) -> bool {
        self.0.iter().any(|range| range.contains(&status))
    }
}

impl FromStr for Statuses {
    type Err = Error;

    /// Reads `200,404`, `2xx` and `300-399`, comma-separated.
    fn from_str(text: &str) -> Result<Statuses, Error> {
        let status = |text: &str| match text.parse::<u16>() {
            Ok(status @ 100..=599) if text.len() == 3 => Some(status),
            _ => None,
        };
        let range = |part: &str| {
            let class = part.strip_suffix("xx").filter(|class| class.len() == 1);
            if let Some(class) = class {
                let first = status(&format!("{class}00"))?;
                return Some(first..=first + 99);
            }
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(status(first)?..=status(last)?).filter(|range| !range.is_empty())
        };
        let ranges = text.split(',').map(|part| {
            range(part.trim()).ok_or_else(|| {
                Error::usage(format!(
                    "--expect-status {part}: not a status (200, 2xx, 300-399, several with commas)"
                ))
            })
        });
        Ok(Statuses(ranges.collect::<Result<_, _>>()?))
    }
}

impl fmt::Display for Statuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, range) in self.0.iter().enumerate() {
            f.write_str(if nth > 0 { "," } else { "" })?;
            match (range.start(), range.end()) {
                (first, last) if first == last => write!(f, "{first}")?,
                (first, last) if first % 100 == 0 && *last == first + 99 => write!(f, "{}xx", first / 100)?,
                (first, last) => write!(f, "{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn statuses_are_read_written_and_held_against_an_answer() {
        let statuses: Statuses = "404,2xx, 300-303".parse().unwrap();
        for (status, expected) in
            [(404, true), (200, true), (299, true), (303, true), (304, false), (500, false)]
        {
            assert_eq!(statuses.contains(status), expected, "{status}");
        }
        assert_eq!(statuses.to_string(), "404,2xx,300-303");
        assert_eq!(Statuses::default().to_string(), "2xx");
        for text in
            ["", "20", "2x", "600", "099", "0xx", "9xx", "300-200", "200-", "ok", "200,", "+20", "2xxx"]
        {
            let error = text.parse::<Statuses>().unwrap_err();
            assert!(error.is_usage() && error.to_string().contains("2xx"), "{text}: {error}");
        }
    }
}
