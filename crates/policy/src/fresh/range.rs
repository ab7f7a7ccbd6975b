//! One byte range of a `Range` line (RFC 9110 §14.1.2).

use std::ops::Range;

/// Reads one element of the list for a body of `bytes`. `None`: it is no range, or all of an empty body.
/// `Some(None)`: it is outside of the body.
pub fn part(word: &[u8], bytes: u64) -> Option<Option<Range<u64>>> {
    let dash = word.iter().position(|byte| *byte == b'-')?;
    let (first, last) = (word.get(..dash)?, word.get(dash + 1..)?);
    let part = match (number(first), number(last)) {
        (None, None) => return None,
        // Of an empty body that is all of it. Clients ask for all bytes from the first on without knowing
        // that there are none (Go issue 47021); nginx answers so as well.
        (None, Some(suffix)) if first.is_empty() && suffix > 0 && bytes == 0 => return None,
        (Some(0), end) if bytes == 0 && (end.is_some() || last.is_empty()) => return None,
        // The last so many.
        (None, Some(suffix)) if first.is_empty() => bytes.saturating_sub(suffix)..bytes,
        (Some(from), None) if last.is_empty() => from..bytes,
        (Some(from), Some(last)) if from <= last => from..last.saturating_add(1).min(bytes),
        _ => return None,
    };
    Some((part.start < part.end).then_some(part))
}

/// Reads digits, and nothing but digits; what does not fit is beyond any body.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |number: u64, digit: &u8| number.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    Some(digits.iter().fold(0, add))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_cut_to_the_body() {
        for (word, bytes, expected) in [
            ("0-0", 10, Some(Some(0..1))),
            ("5-99", 10, Some(Some(5..10))),
            ("7-", 10, Some(Some(7..10))),
            ("-3", 10, Some(Some(7..10))),
            ("-99", 10, Some(Some(0..10))),
            ("0-99999999999999999999999", 10, Some(Some(0..10))),
            ("10-", 10, Some(None)),
            ("10-20", 10, Some(None)),
            ("-0", 10, Some(None)),
            ("2-1", 10, None),
            ("-", 10, None),
            ("", 10, None),
            ("a-1", 10, None),
            ("1-a", 10, None),
            ("+1-2", 10, None),
            ("0-1,3-4", 10, None),
            ("0-", 0, None),
            ("0-5", 0, None),
            ("-1", 0, None),
            ("-0", 0, Some(None)),
            ("5-6", 0, Some(None)),
            ("1-", 0, Some(None)),
        ] {
            assert_eq!(part(word.as_bytes(), bytes), expected, "{word} of {bytes}");
        }
    }
}
