//! Conditional requests: whether the client's copy is still good, in the order of RFC 9110 §13.2.2.
//!
//! Pure: header lines and validators in, a verdict out.
//!
//! No earlier state of a file may ever be confirmed, and times tell less than they seem to. A time of change
//! (mtime) is what a tool wrote there: 1 in a Nix store, the time of a commit in a whole image, equal in two
//! releases. The time of the status (ctime) is the kernel's alone, but on a file system that is an image it
//! is made up, in whole seconds. So [`Validators::new`] asks what each of them is worth.

use super::open::Identity;
use ringroad_http::{Fields, Method};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What identifies a state of a file's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Validators {
    /// A strong tag, with its quotes; `None` where nothing tells this state from another one.
    pub(crate) etag: Option<String>,
    /// In whole seconds, as a date is written; `None` where no time means anything.
    pub(crate) modified: Option<SystemTime>,
    /// The file was changed so recently that it may change again with the same times, or that its date is not
    /// told yet: another look will make other validators.
    pub(crate) recent: bool,
    /// The date is that of the file, and no later state of the file can have it.
    date_is_exact: bool,
}

/// The coarsest resolution of a file's time: two seconds on FAT.
const RECENT_SECONDS: u64 = 2;

/// No clock of a file system that tells parts of a second stands still for longer.
const TICK_NANOSECONDS: u128 = 100_000_000;

/// The longest content that a tag is computed of: a millisecond.
const HASHED_BYTES_MAX: usize = 1 << 20;

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
    /// Of a file in this state; `content` is all of it, where it was read anyway.
    ///
    /// The tag has the time of change to the nanosecond, and the size, where that time is the kernel's: it is
    /// not in whole seconds, as tools set it, and the status was changed in the same moment. Otherwise it is
    /// a hash of the content, which is the same on each machine that has the same file. What is too long for
    /// that has a tag of the time of its status and of its inode. Where that time is in whole seconds as
    /// well, as in images, there is no tag.
    ///
    /// The clock of a file system may stand still for some milliseconds, or, where it tells whole seconds
    /// only, for two seconds: a file that was changed less than that ago may be changed again and keep times
    /// and size. Its tag has `once` in it, which is another number each time, so that no later state is taken
    /// for it.
    ///
    /// The date is that of the status: when the file came to this machine, or to this name, as it is. Until
    /// it is certain that no later state has it, an earlier date is told, which is never confirmed. So a date
    /// that is the file's own is strong (RFC 9110 §8.8.2.2), and no date is later than `Date` (§8.8.2.1).
    pub(crate) fn new(
        state: &Identity,
        content: Option<&[u8]>,
        coding: &str,
        now: SystemTime,
        once: impl FnOnce() -> u64,
    ) -> Validators {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let clock = (now.as_secs() as i64, now.subsec_nanos());
        let now = clock.0;
        let (modified, changed, bytes) = (state.modified, state.changed, state.bytes);
        let recent = is_recent(state, clock);
        let is_of_kernel = modified.1 != 0 && modified.0 > 0 && is_within_a_tick(modified, changed);
        let content = content.filter(|content| content.len() <= HASHED_BYTES_MAX);
        let tag = match content {
            _ if is_of_kernel && !recent => Some(format!("{:x}.{:x}-{bytes:x}", modified.0, modified.1)),
            Some(content) => {
                let hash = blake3::hash(content).to_hex();
                Some(format!("{}-{bytes:x}", hash.get(..32).unwrap_or(&hash)))
            }
            None if recent => Some(format!("{:x}.{:x}-{bytes:x}-{:x}", changed.0, changed.1, once())),
            None if changed.1 != 0 => {
                Some(format!("{:x}.{:x}-{bytes:x}-{:x}", changed.0, changed.1, state.file.1))
            }
            None => None,
        };
        let mark = if coding.is_empty() { "" } else { "-" };
        let settled = now.saturating_sub(RECENT_SECONDS as i64 + 1);
        let since = u64::try_from(changed.0.min(settled)).unwrap_or(0);
        let settles_soon = changed.1 != 0 && (settled + 1..=now + RECENT_SECONDS as i64).contains(&changed.0);
        Validators {
            etag: tag.map(|tag| format!("\"{tag}{mark}{coding}\"")),
            modified: (changed.1 != 0).then(|| UNIX_EPOCH + Duration::from_secs(since)),
            recent: recent || settles_soon,
            date_is_exact: changed.1 != 0
                && u64::try_from(changed.0) == Ok(since)
                && changed.0 <= settled
                && !recent,
        }
    }

    /// Returns the verdict on a request's conditions.
    pub(crate) fn judge(&self, method: Method, fields: Fields<'_>) -> Verdict {
        let reads = matches!(method, Method::Get | Method::Head);
        let named = |name: &'static str| fields.get(name).is_some();
        if named("if-match") {
            if !self.is_listed(fields, "if-match", Comparison::Strong) {
                return Verdict::Failed;
            }
        } else if let Some(date) = date(fields, "if-unmodified-since")
            && !(self.date_is_exact && self.modified.is_some_and(|modified| modified <= date))
        {
            // Also where there is no date: the state is not known to be the one that is meant.
            return Verdict::Failed;
        }
        if named("if-none-match") {
            if self.is_listed(fields, "if-none-match", Comparison::Weak) {
                return if reads { Verdict::NotModified } else { Verdict::Failed };
            }
        } else if reads && self.is_date(date(fields, "if-modified-since")) {
            return Verdict::NotModified;
        }
        Verdict::GoOn
    }

    /// Returns whether a range may be sent: there is no `If-Range`, or it names exactly this state.
    pub(crate) fn allows_range(&self, fields: Fields<'_>) -> bool {
        let Some(value) = fields.get("if-range") else { return true };
        if value.starts_with(b"\"") || value.starts_with(b"W/") {
            return self.etag.as_ref().is_some_and(|tag| value == tag.as_bytes());
        }
        self.is_date(date(fields, "if-range"))
    }

    /// Returns whether a date is this state's. A later one is that of another state, to which this one was
    /// put back.
    fn is_date(&self, date: Option<SystemTime>) -> bool {
        self.date_is_exact && date.is_some() && date == self.modified
    }

    fn is_listed(&self, fields: Fields<'_>, name: &str, comparison: Comparison) -> bool {
        let own = self.etag.as_deref().map(str::as_bytes);
        let listed =
            |value: &[u8]| own.is_some_and(|own| tags(value).any(|tag| comparison.matches(tag, own)));
        // As far as it exists, which it does, `*` is any state.
        fields.get_all(name).any(|value| value == b"*" || listed(value))
    }
}

/// Returns whether a file was changed so recently that it may be changed again and keep its times and its
/// length.
pub(super) fn may_change_unseen(state: &Identity, now: SystemTime) -> bool {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    is_recent(state, (now.as_secs() as i64, now.subsec_nanos()))
}

fn is_recent(state: &Identity, clock: (i64, u32)) -> bool {
    match state.changed.1 {
        0 => [state.modified.0, state.changed.0].iter().any(|time| time.abs_diff(clock.0) <= RECENT_SECONDS),
        _ => is_within_a_tick(state.changed, clock),
    }
}

fn is_within_a_tick(one: (i64, u32), other: (i64, u32)) -> bool {
    let nanoseconds = |time: (i64, u32)| i128::from(time.0) * 1_000_000_000 + i128::from(time.1);
    nanoseconds(one).abs_diff(nanoseconds(other)) <= TICK_NANOSECONDS
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

/// Returns the tags of a list. A comma may stand inside of one.
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

/// Returns a date in one of the three forms of RFC 9110 §5.6.7. Anything else is as if the line were not
/// there.
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
        of((784_111_777, 5), (784_111_777, 6), None)
    }

    /// Of a file of 32 bytes.
    fn state(modified: (i64, u32), changed: (i64, u32)) -> Identity {
        Identity { bytes: 0x20, modified, changed, file: (1, 0xabc) }
    }

    fn of(modified: (i64, u32), changed: (i64, u32), content: Option<&[u8]>) -> Validators {
        Validators::new(&state(modified, changed), content, "", now(), || 7)
    }

    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::new(1_700_000_000, 5)
    }

    const NOW: i64 = 1_700_000_000;

    #[test]
    fn a_tag_is_made_of_what_tells_states_apart() {
        let (one, other) = (&[1; 32][..], &[2; 32][..]);
        let hash = |content: &[u8]| format!("\"{}-20\"", &blake3::hash(content).to_hex()[..32]);
        let ordinary = (784_111_777, 5);
        for (modified, changed, small, large) in [
            (ordinary, ordinary, "\"2ebc98a1.5-20\"", Some("\"2ebc98a1.5-20\"")),
            (ordinary, (784_111_777, 90_000_000), "\"2ebc98a1.5-20\"", Some("\"2ebc98a1.5-20\"")),
            ((NOW - 2, 5), (NOW - 2, 5), "\"6553f0fe.5-20\"", Some("\"6553f0fe.5-20\"")),
            // Set by a tool: of an archive, an image, a copy that keeps times; 0, before 1970, to come.
            (ordinary, (784_111_780, 9), "", Some("\"2ebc98a4.9-20-abc\"")),
            (ordinary, (784_111_777, 200_000_000), "", Some("\"2ebc98a1.bebc200-20-abc\"")),
            (ordinary, (NOW - 1, 5), "", Some("\"6553f0ff.5-20-abc\"")),
            ((784_111_777, 0), ordinary, "", Some("\"2ebc98a1.5-20-abc\"")),
            ((1, 0), ordinary, "", Some("\"2ebc98a1.5-20-abc\"")),
            ((0, 0), ordinary, "", Some("\"2ebc98a1.5-20-abc\"")),
            ((-1, 5), ordinary, "", Some("\"2ebc98a1.5-20-abc\"")),
            ((NOW + 1000, 5), ordinary, "", Some("\"2ebc98a1.5-20-abc\"")),
            ((i64::MAX, 5), ordinary, "", Some("\"2ebc98a1.5-20-abc\"")),
            // On an image the kernel's time is made up as well.
            ((1, 0), (1, 0), "", None),
            ((315_532_800, 0), (315_532_800, 0), "", None),
            // Either may change again within its tick.
            ((NOW, 5), (NOW, 5), "", Some("\"6553f100.5-20-7\"")),
            ((NOW - 1, 950_000_000), (NOW - 1, 950_000_000), "", Some("\"6553f0ff.389fd980-20-7\"")),
            (ordinary, (NOW, 5), "", Some("\"6553f100.5-20-7\"")),
            ((NOW - 2, 0), (NOW - 2, 0), "", Some("\"6553f0fe.0-20-7\"")),
        ] {
            let [first, second] =
                [one, other].map(|content| of(modified, changed, Some(content)).etag.unwrap());
            if small.is_empty() {
                assert_eq!((first, second), (hash(one), hash(other)), "{modified:?} {changed:?}");
            } else {
                assert_eq!((first.as_str(), second.as_str()), (small, small), "{modified:?} {changed:?}");
            }
            assert_eq!(of(modified, changed, None).etag.as_deref(), large, "{modified:?} {changed:?}");
        }
        let coded = Validators::new(&state(ordinary, ordinary), None, "br", now(), || 7);
        assert_eq!(coded.etag.as_deref(), Some("\"2ebc98a1.5-20-br\""));
        let long = vec![0; HASHED_BYTES_MAX + 1];
        assert_eq!(of((1, 0), ordinary, Some(&long)).etag, of((1, 0), ordinary, None).etag);
    }

    #[test]
    fn a_date_is_the_kernels_and_is_confirmed_when_no_later_state_can_have_it() {
        for (modified, changed, told, exact) in [
            ((NOW - 9, 5), (NOW - 9, 5), Some(NOW - 9), true),
            ((1, 0), (NOW - 9, 5), Some(NOW - 9), true),
            ((NOW - 3, 5), (NOW - 3, 5), Some(NOW - 3), true),
            ((NOW - 2, 5), (NOW - 2, 5), Some(NOW - 3), false),
            ((NOW, 5), (NOW, 5), Some(NOW - 3), false),
            ((1, 0), (NOW, 5), Some(NOW - 3), false),
            ((1, 0), (NOW + 1000, 5), Some(NOW - 3), false),
            ((1, 0), (i64::MAX, 5), Some(NOW - 3), false),
            ((1, 0), (-5, 5), Some(0), false),
            ((1, 0), (1, 0), None, false),
            ((NOW - 9, 5), (NOW - 9, 0), None, false),
        ] {
            let validators = of(modified, changed, None);
            let date = told.map(|told| UNIX_EPOCH + Duration::from_secs(told as u64));
            assert_eq!(validators.modified, date, "{modified:?} {changed:?}");
            let text = httpdate::fmt_http_date(date.unwrap_or(UNIX_EPOCH));
            with(&[("If-Range", &text)], |fields| {
                assert_eq!(validators.allows_range(fields), exact, "{modified:?} {changed:?}");
            });
            with(&[("If-Modified-Since", &text)], |fields| {
                let verdict = validators.judge(Method::Get, fields);
                assert_eq!(verdict == Verdict::NotModified, exact, "{modified:?} {changed:?}");
            });
            with(&[("If-Unmodified-Since", &text)], |fields| {
                let verdict = validators.judge(Method::Get, fields);
                assert_eq!(verdict == Verdict::GoOn, exact, "{modified:?} {changed:?}");
            });
        }
    }

    #[test]
    fn without_a_tag_only_any_state_is_this_one() {
        let none = of((1, 0), (1, 0), None);
        assert_eq!((&none.etag, none.modified), (&None, None));
        for (line, verdict) in [
            (("If-Match", "*"), Verdict::GoOn),
            (("If-Match", "\"a\""), Verdict::Failed),
            (("If-None-Match", "*"), Verdict::NotModified),
            (("If-None-Match", "\"a\""), Verdict::GoOn),
        ] {
            with(&[line], |fields| assert_eq!(none.judge(Method::Get, fields), verdict, "{line:?}"));
        }
        with(&[("If-Range", "\"a\"")], |fields| assert!(!none.allows_range(fields)));
    }

    #[test]
    fn conditions_are_judged_in_the_order_of_the_rfc() {
        use Verdict::{Failed, GoOn, NotModified};
        let tag = ours().etag.unwrap();
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
            // A later one may be that of a state from which the file was put back to this one.
            (&[("If-Modified-Since", AFTER)], GoOn, GoOn),
            (&[("If-Unmodified-Since", AFTER)], GoOn, GoOn),
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
        let tag = ours().etag.unwrap();
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
