//! Conditional requests: whether the client's copy is still good, in the order of RFC 9110 §13.2.2.
//!
//! Pure: header lines and validators in, a verdict out.

use ringroad_http::{Fields, Method};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What identifies a state of a file's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Validators {
    /// A strong tag, with its quotes.
    pub(crate) etag: String,
    /// In whole seconds, as a date is written.
    pub(crate) modified: SystemTime,
    /// The file was changed so recently that it may change again with the same time.
    pub(crate) recent: bool,
    /// The date is that of the file, and no later state of the file can have it.
    date_is_exact: bool,
}

/// The coarsest resolution of a file's time: two seconds on FAT.
const RECENT_SECONDS: u64 = 2;

/// The verdict of the conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// An ordinary answer.
    GoOn,
    /// 304.
    NotModified,
    /// 412.
    Failed,
}

impl Validators {
    /// Of a file that was last changed then: the tag has the time to the nanosecond, and the size.
    ///
    /// The clock of a file system may stand still for some milliseconds, or for two seconds: a file that was
    /// changed less than that ago may be changed again and keep time and size. Its tag has `once` in it,
    /// which is another number each time, so that no later state is taken for it. The date is earlier than
    /// `now` by a second at least: `Date` may be a second old, and no date may be later (RFC 9110 §8.8.2.1).
    /// So a date that is the file's own is that of its last state in that second, and strong (§8.8.2.2).
    pub(crate) fn new(
        (seconds, nanoseconds): (i64, u32),
        bytes: u64,
        coding: &str,
        now: SystemTime,
        once: u64,
    ) -> Validators {
        let now = now.duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        let of_file = u64::try_from(seconds).unwrap_or(0);
        let since = of_file.min(now.saturating_sub(1));
        let mark = if coding.is_empty() { "" } else { "-" };
        let recent = of_file.abs_diff(now) <= RECENT_SECONDS;
        let once = if recent { format!("-{once:x}") } else { String::new() };
        Validators {
            etag: format!("\"{seconds:x}.{nanoseconds:x}-{bytes:x}{mark}{coding}{once}\""),
            modified: UNIX_EPOCH + Duration::from_secs(since),
            recent,
            date_is_exact: u64::try_from(seconds) == Ok(since),
        }
    }

    /// The verdict on a request's conditions.
    pub(crate) fn judge(&self, method: Method, fields: Fields<'_>) -> Verdict {
        let reads = matches!(method, Method::Get | Method::Head);
        let named = |name: &'static str| fields.get(name).is_some();
        if named("if-match") {
            if !self.is_listed(fields, "if-match", Comparison::Strong) {
                return Verdict::Failed;
            }
        } else if let Some(date) = date(fields, "if-unmodified-since")
            && self.modified > date
        {
            return Verdict::Failed;
        }
        if named("if-none-match") {
            if self.is_listed(fields, "if-none-match", Comparison::Weak) {
                return if reads { Verdict::NotModified } else { Verdict::Failed };
            }
        } else if reads
            && let Some(date) = date(fields, "if-modified-since")
            && self.modified <= date
        {
            return Verdict::NotModified;
        }
        Verdict::GoOn
    }

    /// Whether a range may be sent: there is no `If-Range`, or it names exactly this state.
    pub(crate) fn allows_range(&self, fields: Fields<'_>) -> bool {
        let Some(value) = fields.get("if-range") else { return true };
        if value.starts_with(b"\"") || value.starts_with(b"W/") {
            return value == self.etag.as_bytes();
        }
        self.date_is_exact && date(fields, "if-range") == Some(self.modified)
    }

    fn is_listed(&self, fields: Fields<'_>, name: &str, comparison: Comparison) -> bool {
        let listed = |value: &[u8]| tags(value).any(|tag| comparison.matches(tag, self.etag.as_bytes()));
        // As far as it exists, which it does, `*` is any state.
        fields.get_all(name).any(|value| value == b"*" || listed(value))
    }
}

#[derive(Clone, Copy)]
enum Comparison {
    Strong,
    Weak,
}

impl Comparison {
    /// RFC 9110 §8.8.3.2; `ours` is strong.
    fn matches(self, theirs: &[u8], ours: &[u8]) -> bool {
        match self {
            Comparison::Strong => theirs == ours,
            Comparison::Weak => theirs.strip_prefix(b"W/").unwrap_or(theirs) == ours,
        }
    }
}

/// The tags of a list. A comma may stand inside of one.
fn tags(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = list;
    std::iter::from_fn(move || {
        let skipped = rest.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b','))?;
        rest = rest.get(skipped..)?;
        let prefix = if rest.starts_with(b"W/") { 2 } else { 0 };
        if rest.get(prefix) != Some(&b'"') {
            return None;
        }
        let inside = rest.get(prefix + 1..)?;
        let end = prefix + 1 + inside.iter().position(|byte| *byte == b'"')? + 1;
        let (tag, behind) = rest.split_at_checked(end)?;
        rest = behind;
        Some(tag)
    })
}

/// A date in one of the three forms of RFC 9110 §5.6.7. Anything else is as if the line were not there.
fn date(fields: Fields<'_>, name: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(str::from_utf8(fields.get(name)?).ok()?).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ringroad_wire::{Event, Requests, Scratch};

    const MODIFIED: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    fn with<T>(lines: &[(&str, &str)], look: impl FnOnce(Fields<'_>) -> T) -> T {
        let mut bytes = b"GET / HTTP/1.1\r\nHost: a\r\n".to_vec();
        for (name, value) in lines {
            bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        let (mut requests, mut scratch) = (Requests::new(), Scratch::default());
        match requests.next(&mut scratch, &bytes, &mut 0).unwrap().unwrap() {
            Event::Head(head) => look(head.fields()),
            _ => unreachable!("a head comes first"),
        }
    }

    fn ours() -> Validators {
        Validators::new((784_111_777, 5), 0x20, "", now(), 7)
    }

    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::new(1_700_000_000, 5)
    }

    #[test]
    fn nothing_was_changed_in_this_second_or_later_or_before_1970() {
        for (seconds, modified) in [
            (1_699_999_998, 1_699_999_998),
            (1_700_000_000, 1_699_999_999),
            (1_700_000_001, 1_699_999_999),
            (i64::MAX, 1_699_999_999),
            (-1, 0),
        ] {
            let validators = Validators::new((seconds, 0), 1, "", now(), 7);
            assert_eq!(validators.modified, UNIX_EPOCH + Duration::from_secs(modified), "{seconds}");
            let recent = (1_600_000_000..1_800_000_000).contains(&seconds);
            let once = if recent { "-7" } else { "" };
            assert_eq!(validators.etag, format!("\"{seconds:x}.0-1{once}\""));
            assert_eq!(validators.recent, recent);
            let date = httpdate::fmt_http_date(validators.modified);
            with(&[("If-Range", &date)], |fields| {
                assert_eq!(validators.allows_range(fields), seconds == 1_699_999_998, "{seconds}");
            });
        }
    }

    #[test]
    fn a_tag_tells_time_size_and_coding() {
        assert_eq!(ours().etag, "\"2ebc98a1.5-20\"");
        assert_eq!(Validators::new((1, 2), 3, "br", now(), 7).etag, "\"1.2-3-br\"");
        assert_eq!(httpdate::fmt_http_date(ours().modified), MODIFIED);
    }

    #[test]
    fn conditions_are_judged_in_the_order_of_the_rfc() {
        use Verdict::{Failed, GoOn, NotModified};
        let tag = ours().etag;
        let (tag, weak) = (tag.as_str(), format!("W/{tag}"));
        let list = format!("\"a,b\", W/\"x\",{tag}");
        for (lines, get, post) in [
            (&[][..], GoOn, GoOn),
            (&[("If-Match", tag)], GoOn, GoOn),
            (&[("If-Match", "*")], GoOn, GoOn),
            (&[("If-Match", &list)], GoOn, GoOn),
            (&[("If-Match", "\"other\"")], Failed, Failed),
            // A weak tag never matches strongly.
            (&[("If-Match", &weak)], Failed, Failed),
            // With If-Match, If-Unmodified-Since is not looked at.
            (&[("If-Match", tag), ("If-Unmodified-Since", BEFORE)], GoOn, GoOn),
            (&[("If-Unmodified-Since", BEFORE)], Failed, Failed),
            (&[("If-Unmodified-Since", MODIFIED)], GoOn, GoOn),
            (&[("If-Unmodified-Since", "yesterday")], GoOn, GoOn),
            (&[("If-None-Match", tag)], NotModified, Failed),
            (&[("If-None-Match", &weak)], NotModified, Failed),
            (&[("If-None-Match", "*")], NotModified, Failed),
            (&[("If-None-Match", &list)], NotModified, Failed),
            (&[("If-None-Match", "\"a\""), ("If-None-Match", tag)], NotModified, Failed),
            (&[("If-None-Match", "\"other\"")], GoOn, GoOn),
            // With If-None-Match, If-Modified-Since is not looked at.
            (&[("If-None-Match", "\"other\""), ("If-Modified-Since", AFTER)], GoOn, GoOn),
            (&[("If-Modified-Since", MODIFIED)], NotModified, GoOn),
            (&[("If-Modified-Since", AFTER)], NotModified, GoOn),
            (&[("If-Modified-Since", BEFORE)], GoOn, GoOn),
            (&[("If-Modified-Since", "Sunday, 06-Nov-94 08:49:37 GMT")], NotModified, GoOn),
            (&[("If-Modified-Since", "0")], GoOn, GoOn),
            // Match first, then none-match.
            (&[("If-Match", "\"other\""), ("If-None-Match", tag)], Failed, Failed),
            (&[("If-Match", tag), ("If-None-Match", tag)], NotModified, Failed),
        ] {
            with(lines, |fields| {
                assert_eq!(ours().judge(Method::Get, fields), get, "GET {lines:?}");
                assert_eq!(ours().judge(Method::Head, fields), get, "HEAD {lines:?}");
                assert_eq!(ours().judge(Method::Post, fields), post, "POST {lines:?}");
            });
        }
    }

    #[test]
    fn a_range_is_allowed_for_exactly_this_state() {
        let tag = ours().etag;
        for (value, allowed) in [
            (tag.as_str(), true),
            (&format!("W/{tag}"), false),
            ("\"other\"", false),
            (MODIFIED, true),
            (BEFORE, false),
            (AFTER, false),
            ("nonsense", false),
        ] {
            with(&[("If-Range", value)], |fields| {
                assert_eq!(ours().allows_range(fields), allowed, "{value}")
            });
        }
        with(&[], |fields| assert!(ours().allows_range(fields)));
    }

    #[test]
    fn a_list_that_breaks_off_ends_there() {
        assert_eq!(tags(b"\"a\", \"b").count(), 1);
        assert_eq!(tags(b"a, \"b\"").count(), 0);
        assert_eq!(tags(b", ,W/\"a\",").collect::<Vec<_>>(), [&b"W/\"a\""[..]]);
    }
}
