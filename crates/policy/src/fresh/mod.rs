//! Decides whether an answer may be stored, reused, or must be validated first (RFC 9111, RFC 5861, RFC
//! 9213).
//!
//! Pure functions: header lines, seconds and rules in, verdicts out. [`control`] parses `Cache-Control`,
//! [`targeted`] parses `CDN-Cache-Control`, [`vary`] makes the key of a variant, and [`condition`] answers
//! conditional and range requests. Start at [`judge`] for a received answer, and at [`Freshness::verdict`]
//! for a stored one.

pub mod condition;
pub mod control;
pub mod range;
pub mod targeted;
pub mod vary;

use control::{Asked, Control, Named};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The header lines of a message.
pub trait Lines {
    /// Calls `take` with each value of this name, in any case, in the order of the lines.
    fn each(&self, name: &str, take: &mut dyn FnMut(&[u8]));

    /// Returns the first value of this name as text.
    fn first(&self, name: &str) -> Option<String> {
        let mut first = None;
        self.each(name, &mut |value| {
            if first.is_none() {
                first = Some(String::from_utf8_lossy(value).into_owned());
            }
        });
        first
    }

    /// Returns whether there is a line of this name.
    fn has(&self, name: &str) -> bool {
        let mut any = false;
        self.each(name, &mut |_| any = true);
        any
    }
}

impl Lines for [(&str, &str)] {
    fn each(&self, name: &str, take: &mut dyn FnMut(&[u8])) {
        for (_, value) in self.iter().filter(|(own, _)| own.eq_ignore_ascii_case(name)) {
            take(value.as_bytes());
        }
    }
}

impl<const N: usize> Lines for [(&str, &str); N] {
    fn each(&self, name: &str, take: &mut dyn FnMut(&[u8])) {
        self.as_slice().each(name, take);
    }
}

/// Settings of a route that extend what answers state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Lifetime in seconds of answers that state none and may be stored without one.
    pub lifetime: Option<u64>,
    /// Whether answers without a stated lifetime live for a tenth of the time since their last change, at
    /// most a day.
    pub heuristic: bool,
    /// Whether answers with `Set-Cookie` are stored.
    pub cookies: bool,
    /// Whether directives of requests that demand validation are followed.
    pub obey_requests: bool,
    /// Seconds for which a stale answer is used while it is refreshed, if the answer states none.
    pub stale_while: u64,
    /// Seconds for which a stale answer is used if no other is available and the answer states none.
    pub stale_if_error: u64,
}

/// Facts about the request that an answer belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Whether it has `Authorization`.
    pub authorization: bool,
    /// Whether its client was identified, by any method.
    pub identified: bool,
    /// Whether it has `no-store`.
    pub no_store: bool,
}

/// Why an answer is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotStored {
    /// Its status means that it is not a complete answer.
    Status,
    /// `no-store`, of the answer or of the request.
    NoStore,
    /// `private`.
    Private,
    /// The request had credentials, and the answer does not state that it is for all clients.
    Credentials,
    /// `Set-Cookie`.
    Cookie,
    /// `Vary: *`.
    VaryAll,
    /// It states no lifetime and cannot be validated.
    NoLifetime,
}

impl NotStored {
    /// Returns a token for `Cache-Status`.
    pub fn word(self) -> &'static str {
        match self {
            NotStored::Status => "status",
            NotStored::NoStore => "no-store",
            NotStored::Private => "private",
            NotStored::Credentials => "credentials",
            NotStored::Cookie => "set-cookie",
            NotStored::VaryAll => "vary-all",
            NotStored::NoLifetime => "no-lifetime",
        }
    }
}

/// The restriction on using an answer that is no longer fresh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bound {
    /// No restriction.
    #[default]
    None,
    /// `s-maxage`: only the answer itself may permit stale use (RFC 9111 §5.2.2.10).
    Shared,
    /// `must-revalidate`, `proxy-revalidate` or `no-cache`: stale use is forbidden.
    Always,
}

/// How long a stored answer may be used, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Freshness {
    /// Seconds of freshness, counted from its origin.
    pub lifetime: u64,
    /// Its age in seconds when it was received.
    pub age: u64,
    /// Whether it must be validated before each use.
    pub ask: bool,
    /// The restriction on stale use.
    pub bound: Bound,
    /// `stale-while-revalidate`.
    pub stale_while: Option<u64>,
    /// `stale-if-error`.
    pub stale_if_error: Option<u64>,
    /// Lines that are not stored: those that `private` and `no-cache` name.
    pub without: Vec<String>,
}

/// What to do with a stored answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Use it. The number is the seconds for which it is still fresh, or by which it is stale (negative).
    Use(i64),
    /// Use it, and refresh it meanwhile.
    Refresh(i64),
    /// Validate it first: it is stale.
    Stale,
    /// Validate it first: the request demands that.
    Request,
}

/// The largest number of seconds (RFC 9111 §1.2.2).
pub const SECONDS_MAX: u64 = 1 << 31;

/// Reads seconds: digits only. A number that does not fit becomes the largest one.
pub fn seconds(value: &[u8]) -> Option<u64> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |sum: u64, digit: &u8| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    Some(value.iter().fold(0, add).min(SECONDS_MAX))
}

/// Reads a date in one of the three forms of RFC 9110 §5.6.7, as seconds since 1970.
pub fn date(value: &str) -> Option<u64> {
    let value = value.trim();
    // A date with another zone is not an HTTP date, nor is one with other letters for GMT.
    let zoned = value.ends_with(" GMT");
    let asctime = value.as_bytes().last().is_some_and(u8::is_ascii_digit) && !value.contains(',');
    if !zoned && !asctime {
        return None;
    }
    let time = httpdate::parse_http_date(value).ok()?;
    Some(time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs())
}

/// Returns the seconds since 1970.
pub fn wall(now: SystemTime) -> u64 {
    now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}

/// Returns whether answers with this status may be stored without a stated lifetime (RFC 9110 §15.1). 206 may
/// not.
fn is_heuristic(status: u16) -> bool {
    matches!(status, 200 | 203 | 204 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}

/// Returns whether the status has no caching requirements beyond those implemented here (RFC 9111 §3).
fn is_understood(status: u16) -> bool {
    is_heuristic(status) || matches!(status, 302 | 303 | 307 | 400..=499 | 500..=505)
}

/// Returns the age of an answer that was received after `delay` seconds (RFC 9111 §4.2.3). The first of
/// several `Age` values counts; an invalid one is ignored (§5.1).
fn age(lines: &(impl Lines + ?Sized), now: u64, delay: u64) -> u64 {
    let mut first: Option<Option<u64>> = None;
    lines.each("age", &mut |value| {
        let value = value.split(|byte| *byte == b',').next().unwrap_or_default();
        first.get_or_insert_with(|| seconds(value.trim_ascii()));
    });
    let stated = first.flatten().unwrap_or(0);
    let date = lines.first("date").and_then(|value| date(&value));
    let apparent = date.map_or(0, |date| now.saturating_sub(date));
    apparent.max(stated + delay).min(SECONDS_MAX)
}

/// Returns the lifetime that an answer states, and whether it states one.
fn lifetime(
    control: &Control,
    lines: &(impl Lines + ?Sized),
    status: u16,
    now: u64,
    targeted: bool,
    rules: &Rules,
) -> Option<u64> {
    if let Some(lifetime) = control.s_maxage.or(control.max_age) {
        return Some(lifetime);
    }
    let date_of = |name: &str| lines.first(name).and_then(|value| date(&value));
    // A targeted field also overrides Expires (RFC 9213 §2.2).
    if !targeted && lines.has("expires") {
        let (mut several, mut first) = (false, None);
        lines.each("expires", &mut |value| {
            several |= first.as_deref().is_some_and(|first: &[u8]| first != value);
            first.get_or_insert_with(|| value.to_vec());
        });
        let since = date_of("date").unwrap_or(now);
        return Some(match date_of("expires") {
            Some(until) if !several => until.saturating_sub(since).min(SECONDS_MAX),
            // An invalid date, or several that differ, count as the past (RFC 9111 §5.3).
            _ => 0,
        });
    }
    if !is_heuristic(status) && !control.public {
        return None;
    }
    let tenth = || {
        let since = date_of("last-modified")?;
        Some((date_of("date").unwrap_or(now).saturating_sub(since) / 10).min(24 * 3600))
    };
    if rules.heuristic { tenth().or(rules.lifetime) } else { rules.lifetime }
}

/// Returns how an answer to GET may be reused, or why it is not stored. `now` is the time in seconds since
/// 1970, `delay` the seconds from the request to its answer.
///
/// # Errors
/// The answer must not be stored, or storing it is useless.
pub fn judge(
    facts: Facts,
    status: u16,
    lines: &(impl Lines + ?Sized),
    (now, delay): (u64, u64),
    rules: &Rules,
) -> Result<Freshness, NotStored> {
    // 407 and 426 belong to their connection, and are meaningless without lines that are never stored.
    if status < 200 || matches!(status, 206 | 304 | 407 | 426) {
        return Err(NotStored::Status);
    }
    let targeted = targeted::read(lines);
    let is_targeted = targeted.is_some();
    let control = targeted.unwrap_or_else(|| Control::read(lines));
    if control.must_understand && !is_understood(status) {
        return Err(NotStored::Status);
    }
    // With must-understand, no-store is for caches that do not know the directive (RFC 9111 §5.2.2.3).
    if facts.no_store || control.no_store && !control.must_understand {
        return Err(NotStored::NoStore);
    }
    if control.private == Named::All {
        return Err(NotStored::Private);
    }
    let for_all = control.public || control.s_maxage.is_some();
    let credentials = facts.authorization && !for_all && !control.must_revalidate;
    if credentials || facts.identified && !for_all {
        return Err(NotStored::Credentials);
    }
    if !rules.cookies && lines.has("set-cookie") {
        return Err(NotStored::Cookie);
    }
    if vary::names(lines).is_none() {
        return Err(NotStored::VaryAll);
    }
    let stated = lifetime(&control, lines, status, now, is_targeted, rules);
    let ask = control.no_cache == Named::All;
    let can_ask = lines.has("etag") || lines.has("last-modified");
    let lifetime = match stated {
        Some(lifetime) => lifetime,
        // With a lifetime of 0 it is validated each time.
        None if ask && can_ask => 0,
        None => return Err(NotStored::NoLifetime),
    };
    let age = age(lines, now, delay);
    let bound = if control.must_revalidate || control.proxy_revalidate || ask {
        Bound::Always
    } else if control.s_maxage.is_some() {
        Bound::Shared
    } else {
        Bound::None
    };
    let mut without = Vec::new();
    for named in [control.private, control.no_cache] {
        if let Named::Lines(names) = named {
            without.extend(names);
        }
    }
    let fresh = Freshness {
        lifetime,
        age,
        ask,
        bound,
        stale_while: control.stale_while,
        stale_if_error: control.stale_if_error,
        without,
    };
    let is_useful = lifetime > age && !ask
        || fresh.permitted(fresh.stale_while, rules.stale_while) > 0
        || fresh.permitted(fresh.stale_if_error, rules.stale_if_error) > 0;
    if can_ask || is_useful { Ok(fresh) } else { Err(NotStored::NoLifetime) }
}

impl Freshness {
    /// Returns the age `resident` seconds after the answer was received.
    pub fn age_after(&self, resident: u64) -> u64 {
        self.age.saturating_add(resident).min(SECONDS_MAX)
    }

    /// Returns the seconds of stale use: those that the answer states, otherwise the route's, unless that is
    /// forbidden.
    fn permitted(&self, stated: Option<u64>, of_route: u64) -> u64 {
        match self.bound {
            Bound::Always => 0,
            Bound::Shared => stated.unwrap_or(0),
            Bound::None => stated.unwrap_or(of_route),
        }
    }

    /// Returns what to do with the answer, `resident` seconds after it was received.
    pub fn verdict(&self, resident: u64, asked: &Asked, rules: &Rules) -> Verdict {
        let age = self.age_after(resident);
        let left = i64::try_from(self.lifetime).unwrap_or(0) - i64::try_from(age).unwrap_or(0);
        let stale_by = age.saturating_sub(self.lifetime);
        if self.ask {
            return Verdict::Stale;
        }
        if rules.obey_requests {
            let too_old = asked.max_age.is_some_and(|most| age > most);
            let too_short =
                asked.min_fresh.is_some_and(|least| left < i64::try_from(least).unwrap_or(i64::MAX));
            if asked.no_cache || too_old || left > 0 && too_short {
                return Verdict::Request;
            }
        }
        if left > 0 {
            return Verdict::Use(left);
        }
        if stale_by < self.permitted(self.stale_while, rules.stale_while) {
            return Verdict::Refresh(left);
        }
        if rules.obey_requests
            && self.bound == Bound::None
            && asked.max_stale.is_some_and(|most| stale_by <= most)
        {
            return Verdict::Use(left);
        }
        Verdict::Stale
    }

    /// Returns whether the answer may be used if no other is available, `resident` seconds after it was
    /// received.
    pub fn serves_errors(&self, resident: u64, rules: &Rules) -> bool {
        let age = self.age_after(resident);
        let stale_by = age.saturating_sub(self.lifetime);
        age < self.lifetime && !self.ask
            || stale_by < self.permitted(self.stale_if_error, rules.stale_if_error)
    }

    /// Returns the seconds after its arrival for which the answer may be used without validation.
    pub fn useful_for(&self, rules: &Rules) -> u64 {
        let stale = self
            .permitted(self.stale_while, rules.stale_while)
            .max(self.permitted(self.stale_if_error, rules.stale_if_error));
        self.lifetime.saturating_add(stale).saturating_sub(self.age)
    }
}

/// Returns whether a line may be stored: not those of a single hop or of a message's framing (RFC 9111 §3.1).
pub fn is_stored(name: &[u8]) -> bool {
    const NEVER: &[&str] = &[
        "connection",
        "content-length",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authentication-info",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "age",
        "cache-status",
    ];
    !NEVER.iter().any(|never| name.eq_ignore_ascii_case(never.as_bytes()))
}

/// Returns whether a 304 replaces the stored line of this name (RFC 9111 §3.2): not if the line describes the
/// stored bytes.
pub fn is_updated(name: &[u8]) -> bool {
    const KEPT: &[&str] = &["content-encoding", "content-md5", "content-range", "etag"];
    is_stored(name) && !KEPT.iter().any(|kept| name.eq_ignore_ascii_case(kept.as_bytes()))
}

/// Returns whether requests with this method are safe (RFC 9110 §9.2.1): all others invalidate.
pub fn is_safe(method: &str) -> bool {
    matches!(method, "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PURGE")
}
