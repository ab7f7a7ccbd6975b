//! Decides when to renew a certificate, and how long to wait after a failure; without I/O and without a
//! clock.

use serde::Deserialize;
use std::time::{Duration, SystemTime};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Maximum pause after failures, unless the authority asks for more.
const WAIT_MAX: Duration = Duration::from_secs(12 * 60 * 60);
/// Maximum pause that an authority may ask for.
const ASKED_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Bounds of the interval between two checks of the renewal information.
const LOOK: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(24 * 60 * 60));
/// The interval if the authority states none.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_secs(6 * 60 * 60);

/// The validity period of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) begins: SystemTime,
    pub(crate) expires: SystemTime,
}

impl Life {
    fn span(self) -> Duration {
        self.expires.duration_since(self.begins).unwrap_or_default()
    }

    /// Returns the time of renewal if the authority suggests none: at two thirds of the validity.
    fn two_thirds(self) -> SystemTime {
        self.begins + self.span() / 3 * 2
    }

    /// Returns the time of renewal. A suggestion of the authority counts, but is limited so that time for
    /// retries is left.
    pub(crate) fn renew(self, suggested: Option<SystemTime>) -> SystemTime {
        let last = self.expires.checked_sub(self.span() / 10).unwrap_or(self.begins);
        suggested.map_or_else(|| self.two_thirds(), |suggested| suggested.min(last))
    }

    /// Returns the minimum time between two renewals. Otherwise an authority that wants every new certificate
    /// renewed at once would cause endless renewals.
    pub(crate) fn pause(self) -> Duration {
        (self.span() / 10).min(Duration::from_secs(60 * 60))
    }
}

/// Parses the renewal window that an authority suggests (RFC 9773 §4.2); `None` if it is invalid.
pub(crate) fn window(answer: &[u8]) -> Option<(SystemTime, SystemTime)> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Information {
        suggested_window: Window,
    }
    #[derive(Deserialize)]
    struct Window {
        start: String,
        end: String,
    }
    let moment = |text: &str| OffsetDateTime::parse(text, &Rfc3339).ok().map(SystemTime::from);
    let Window { start, end } = serde_json::from_slice::<Information>(answer).ok()?.suggested_window;
    moment(&start).zip(moment(&end)).filter(|(start, end)| start < end)
}

/// Returns a uniformly random moment in the suggested window (RFC 9773 §4.2). `share` is from 0 to 1.
pub(crate) fn within(start: SystemTime, end: SystemTime, share: f64) -> SystemTime {
    let span = end.duration_since(start).unwrap_or_default();
    start + span.mul_f64(share.clamp(0.0, 1.0))
}

/// Returns the time until the next check of the renewal information.
pub(crate) fn look_again(asked: Option<Duration>) -> Duration {
    asked.unwrap_or(LOOK_AGAIN).clamp(LOOK.0, LOOK.1)
}

/// Returns the pause after this many failures in a row. It doubles each time, is spread over its upper half
/// so that servers that failed together do not retry together, and is not shorter than the authority asks
/// for.
pub(crate) fn wait(failures: u32, first: Duration, asked: Option<Duration>, share: f64) -> Duration {
    let doubled = first.saturating_mul(1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX));
    let whole = doubled.min(WAIT_MAX.max(first));
    let spread = whole / 2 + (whole / 2).mul_f64(share.clamp(0.0, 1.0));
    spread.max(asked.unwrap_or_default().min(ASKED_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    #[test]
    fn a_certificate_is_renewed_at_two_thirds_of_its_life_or_as_the_authority_says() {
        let begins = SystemTime::UNIX_EPOCH + 1000 * DAY;
        let life = Life { begins, expires: begins + 90 * DAY };
        assert_eq!(life.renew(None), begins + 60 * DAY);
        assert_eq!(life.renew(Some(begins + 3 * DAY)), begins + 3 * DAY);
        assert_eq!(life.renew(Some(begins + 70 * DAY)), begins + 70 * DAY);
        // Not on its last day, whatever is suggested.
        assert_eq!(life.renew(Some(begins + 900 * DAY)), begins + 81 * DAY);
        assert_eq!(life.pause(), Duration::from_secs(3600));
        assert_eq!(Life { begins, expires: begins }.pause(), Duration::ZERO);
    }

    #[test]
    fn a_moment_is_within_the_window_and_a_window_that_ends_before_it_begins_is_its_beginning() {
        let start = SystemTime::UNIX_EPOCH + DAY;
        assert_eq!(within(start, start + 2 * DAY, 0.5), start + DAY);
        assert_eq!(within(start, start - DAY, 0.5), start);
    }

    #[test]
    fn waits_double_up_to_half_a_day_and_are_not_shorter_than_the_authority_asks() {
        let minute = Duration::from_secs(60);
        let of = |failures, asked| wait(failures, minute, asked, 1.0);
        assert_eq!([of(1, None), of(2, None), of(4, None)], [minute, 2 * minute, 8 * minute]);
        assert_eq!(of(40, None), WAIT_MAX);
        assert_eq!(wait(1, minute, None, 0.0), minute / 2);
        assert_eq!(of(1, Some(DAY)), DAY);
        assert_eq!(of(1, Some(365 * DAY)), ASKED_MAX);
        assert_eq!(of(3, Some(minute)), 4 * minute);
        assert_eq!(look_again(None), LOOK_AGAIN);
        assert_eq!(look_again(Some(Duration::ZERO)), LOOK.0);
        assert_eq!(look_again(Some(9 * DAY)), LOOK.1);
    }
}
