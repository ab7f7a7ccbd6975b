//! Conditional and range requests, answered from what is stored (RFC 9110 §13 and §14).

use super::range::part;
use super::{Lines, date};
use std::ops::Range;

/// What the conditions of a request come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// There is none, or it holds: an ordinary answer.
    GoOn,
    /// 304.
    NotModified,
}

/// Judges `If-None-Match` and `If-Modified-Since` of a GET or HEAD for a stored answer with these lines.
/// `came` is when it came, in seconds since 1970: it stands in for a date of change that is not told.
pub fn judge(request: &(impl Lines + ?Sized), stored: &(impl Lines + ?Sized), came: u64) -> Condition {
    if request.has("if-none-match") {
        let tag = stored.first("etag");
        let mut matches = false;
        request.each("if-none-match", &mut |list| {
            matches |= list.trim_ascii() == b"*"
                || tag
                    .as_ref()
                    .is_some_and(|tag| tags(list).any(|one| opaque(one) == opaque(tag.as_bytes())));
        });
        return if matches { Condition::NotModified } else { Condition::GoOn };
    }
    let Some(since) = request.first("if-modified-since").and_then(|value| date(&value)) else {
        return Condition::GoOn;
    };
    let changed = |name: &str| stored.first(name).and_then(|value| date(&value));
    let changed = changed("last-modified").or_else(|| changed("date")).unwrap_or(came);
    if changed <= since { Condition::NotModified } else { Condition::GoOn }
}

/// Returns a tag without its mark of weakness (RFC 9110 §8.8.3.2, weak comparison).
fn opaque(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

/// Returns the tags of a list. A comma may stand inside of one.
fn tags(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = list;
    std::iter::from_fn(move || {
        let skipped = rest.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b','))?;
        rest = rest.get(skipped..)?;
        let prefix = if rest.starts_with(b"W/") { 2 } else { 0 };
        let end = if rest.get(prefix) == Some(&b'"') {
            let inside = rest.get(prefix + 1..)?;
            prefix + 1 + inside.iter().position(|byte| *byte == b'"')? + 1
        } else {
            // Without quotes, which some senders forget: up to the comma.
            rest.iter().position(|byte| *byte == b',').unwrap_or(rest.len())
        };
        let (tag, behind) = rest.split_at_checked(end)?;
        rest = behind;
        Some(tag.trim_ascii())
    })
}

/// Which bytes of a stored body of `bytes` a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// All of them: it has no range, several, or one that does not count.
    Whole,
    /// These.
    Part(Range<u64>),
    /// None that is there: 416.
    Nothing,
}

/// Reads `Range` and `If-Range`. Several ranges are answered whole, which a server may do (RFC 9110 §14.2).
pub fn range(request: &(impl Lines + ?Sized), stored: &(impl Lines + ?Sized), bytes: u64) -> Asked {
    let Some(range) = request.first("range") else { return Asked::Whole };
    if let Some(condition) = request.first("if-range") {
        let condition = condition.trim();
        let holds = if condition.starts_with('"') {
            stored.first("etag").is_some_and(|tag| tag.trim() == condition)
        } else {
            // A date counts only if it is exactly that of the last change, and was no longer current when the
            // answer was made (RFC 9110 §8.8.2.2).
            let changed = stored.first("last-modified");
            let made = stored.first("date").and_then(|value| date(&value));
            changed.is_some_and(|changed| {
                let at = date(&changed);
                at.is_some()
                    && at == date(condition)
                    && made.is_some_and(|made| at.is_some_and(|at| at < made))
            })
        };
        if !holds {
            return Asked::Whole;
        }
    }
    let unit = range.get(..6).filter(|unit| unit.eq_ignore_ascii_case("bytes="));
    let Some(word) = unit.and_then(|_| range.get(6..)).map(str::trim) else { return Asked::Whole };
    match part(word.as_bytes(), bytes) {
        None => Asked::Whole,
        Some(None) => Asked::Nothing,
        Some(Some(part)) => Asked::Part(part),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const NEW: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    #[test]
    fn tags_come_before_dates_and_are_compared_weakly() {
        let stored = [("ETag", "W/\"a,b\""), ("Last-Modified", NEW)];
        let judge = |lines: &[(&str, &str)]| judge(lines, &stored, 0);
        for (lines, expected) in [
            (&[][..], Condition::GoOn),
            (&[("if-none-match", "\"x\", \"a,b\"")], Condition::NotModified),
            (&[("if-none-match", "\"x\""), ("if-none-match", "W/\"a,b\"")], Condition::NotModified),
            (&[("if-none-match", "*")], Condition::NotModified),
            (&[("if-none-match", "\"x\""), ("if-modified-since", NEW)], Condition::GoOn),
            (&[("if-modified-since", NEW)], Condition::NotModified),
            (&[("if-modified-since", OLD)], Condition::GoOn),
            (&[("if-modified-since", "Sunday, 06-Nov-94 08:49:38 GMT")], Condition::NotModified),
            (&[("if-modified-since", "now")], Condition::GoOn),
        ] {
            assert_eq!(judge(lines), expected, "{lines:?}");
        }
    }

    #[test]
    fn a_range_is_cut_from_the_whole_if_the_client_has_the_same() {
        let stored = [("etag", "\"a\""), ("last-modified", OLD), ("date", NEW)];
        let range = |lines: &[(&str, &str)]| range(lines, &stored, 10);
        for (lines, expected) in [
            (&[][..], Asked::Whole),
            (&[("range", "bytes=0-1")], Asked::Part(0..2)),
            (&[("range", "Bytes=1-")], Asked::Part(1..10)),
            (&[("range", "bytes=-3")], Asked::Part(7..10)),
            (&[("range", "bytes=-30")], Asked::Part(0..10)),
            (&[("range", "bytes=5-99")], Asked::Part(5..10)),
            (&[("range", "bytes=10-")], Asked::Nothing),
            (&[("range", "bytes=-0")], Asked::Nothing),
            (&[("range", "bytes=2-1")], Asked::Whole),
            (&[("range", "bytes=0-1,3-4")], Asked::Whole),
            (&[("range", "lines=0-1")], Asked::Whole),
            (&[("range", "bytes=0-1"), ("if-range", "\"a\"")], Asked::Part(0..2)),
            (&[("range", "bytes=0-1"), ("if-range", "\"b\"")], Asked::Whole),
            (&[("range", "bytes=0-1"), ("if-range", OLD)], Asked::Part(0..2)),
            (&[("range", "bytes=0-1"), ("if-range", NEW)], Asked::Whole),
        ] {
            assert_eq!(range(lines), expected, "{lines:?}");
        }
        for (line, expected) in [
            ("bytes=0-", Asked::Whole),
            ("bytes=0-5", Asked::Whole),
            ("bytes=-1", Asked::Whole),
            ("bytes=-0", Asked::Nothing),
            ("bytes=5-6", Asked::Nothing),
        ] {
            assert_eq!(super::range(&[("range", line)][..], &stored, 0), expected, "{line}");
        }
    }
}
