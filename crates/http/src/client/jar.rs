//! Cookies that servers have set, for later requests (RFC 6265 §5).

use super::Target;
use std::cell::RefCell;
use std::fmt;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

/// Maximum number of cookies of one domain, and of all; the oldest are dropped.
const OF_DOMAIN_MAX: usize = 50;
const ALL_MAX: usize = 3_000;
/// A longer cookie is not kept.
const COOKIE_BYTES_MAX: usize = 4096;

/// Cookies by domain and path. Clones are the same jar, which belongs to one runtime.
///
/// A cookie is sent to the host that set it, or to hosts beneath the domain that it names. A `Secure` cookie
/// is sent over https only. There is no list of public suffixes here: a `Domain` must contain a dot and be a
/// suffix of the host's name, so servers beneath one registry (`a.co.uk` and `b.co.uk`) can set each other's
/// cookies. Give clients of unrelated sites separate jars.
#[derive(Clone, Default)]
pub struct CookieJar(Rc<RefCell<Vec<Kept>>>);

struct Kept {
    name: String,
    value: String,
    domain: String,
    /// Whether it is sent to this host only.
    host_only: bool,
    path: String,
    secure: bool,
    expires: Option<SystemTime>,
}

impl CookieJar {
    /// Makes an empty jar.
    pub fn new() -> CookieJar {
        CookieJar::default()
    }

    /// Returns the number of cookies.
    pub fn len(&self) -> usize {
        self.0.borrow().len()
    }

    /// Returns whether there is no cookie.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes all cookies.
    pub fn clear(&self) {
        self.0.borrow_mut().clear();
    }

    /// Stores the cookies that a response sets.
    pub(super) fn take(&self, target: &Target, lines: impl Iterator<Item = impl AsRef<[u8]>>) {
        let now = SystemTime::now();
        for line in lines {
            let line = line.as_ref();
            if line.len() <= COOKIE_BYTES_MAX
                && let Ok(line) = str::from_utf8(line)
                && let Some(cookie) = read(line, target, now)
            {
                self.put(cookie, now);
            }
        }
    }

    fn put(&self, cookie: Kept, now: SystemTime) {
        let mut all = self.0.borrow_mut();
        all.retain(|kept| {
            let same = kept.name == cookie.name && kept.domain == cookie.domain && kept.path == cookie.path;
            !same && kept.expires.is_none_or(|end| end > now)
        });
        if cookie.expires.is_some_and(|end| end <= now) {
            return;
        }
        let of_domain = all.iter().filter(|kept| kept.domain == cookie.domain).count();
        if of_domain >= OF_DOMAIN_MAX
            && let Some(oldest) = all.iter().position(|kept| kept.domain == cookie.domain)
        {
            all.remove(oldest);
        } else if all.len() >= ALL_MAX {
            all.remove(0);
        }
        all.push(cookie);
    }

    /// Returns the value of `Cookie` for a request; `None` without cookies. Longer paths come first.
    pub(super) fn value(&self, target: &Target) -> Option<String> {
        let (host, now) = (target.host.to_ascii_lowercase(), SystemTime::now());
        let path = target.path.split('?').next().unwrap_or("/");
        let all = self.0.borrow();
        let mut found: Vec<&Kept> = all
            .iter()
            .filter(|kept| {
                let of_host =
                    if kept.host_only { kept.domain == host } else { is_beneath(&host, &kept.domain) };
                of_host
                    && (target.is_secure || !kept.secure)
                    && kept.expires.is_none_or(|end| end > now)
                    && is_within(path, &kept.path)
            })
            .collect();
        found.sort_by_key(|kept| std::cmp::Reverse(kept.path.len()));
        let pairs: Vec<String> = found.iter().map(|kept| format!("{}={}", kept.name, kept.value)).collect();
        (!pairs.is_empty()).then(|| pairs.join("; "))
    }
}

impl fmt::Debug for CookieJar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Values are secrets, so they are not printed.
        write!(f, "CookieJar({} cookies)", self.len())
    }
}

/// Reads one line of `Set-Cookie`.
fn read(line: &str, target: &Target, now: SystemTime) -> Option<Kept> {
    let host = target.host.to_ascii_lowercase();
    let mut parts = line.split(';');
    let (name, value) = parts.next()?.split_once('=')?;
    let (name, value) = (name.trim(), value.trim());
    if name.is_empty() || line.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t') {
        return None;
    }
    let mut cookie = Kept {
        name: name.to_owned(),
        value: value.to_owned(),
        domain: host.clone(),
        host_only: true,
        path: default_path(&target.path),
        secure: false,
        expires: None,
    };
    let mut max_age = None;
    for part in parts {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let value = value.trim();
        match key.trim().to_ascii_lowercase().as_str() {
            "domain" => {
                let domain = value.trim_start_matches('.').to_ascii_lowercase();
                if domain.is_empty() || domain == host {
                    cookie.host_only &= domain.is_empty() || host.parse::<IpAddr>().is_ok();
                    continue;
                }
                if !domain.contains('.') || !is_beneath(&host, &domain) {
                    return None;
                }
                (cookie.domain, cookie.host_only) = (domain, false);
            }
            "path" if value.starts_with('/') => value.clone_into(&mut cookie.path),
            "secure" => cookie.secure = true,
            "max-age" => max_age = value.parse::<i64>().ok().or(max_age),
            "expires" => cookie.expires = httpdate::parse_http_date(value).ok().or(cookie.expires),
            _ => {}
        }
    }
    // `Max-Age` takes precedence over `Expires`.
    if let Some(seconds) = max_age {
        let span = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        // An expiry beyond the clock's range means none.
        cookie.expires = if span.is_zero() { Some(SystemTime::UNIX_EPOCH) } else { now.checked_add(span) };
    }
    // Only a secure answer may set a secure cookie.
    (!cookie.secure || target.is_secure).then_some(cookie)
}

/// Returns the default path (RFC 6265 §5.1.4).
fn default_path(target: &str) -> String {
    let path = target.split('?').next().unwrap_or_default();
    match path.rfind('/') {
        Some(0) | None => "/".to_owned(),
        Some(at) => path.get(..at).unwrap_or("/").to_owned(),
    }
}

/// Returns whether the host is the domain, or in it (RFC 6265 §5.1.3).
fn is_beneath(host: &str, domain: &str) -> bool {
    host == domain
        || (host.parse::<IpAddr>().is_err()
            && host.strip_suffix(domain).is_some_and(|front| front.ends_with('.')))
}

/// Returns whether the path is the cookie's, or beneath it (RFC 6265 §5.1.4).
fn is_within(path: &str, of_cookie: &str) -> bool {
    path.strip_prefix(of_cookie)
        .is_some_and(|rest| rest.is_empty() || of_cookie.ends_with('/') || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn target(url: &str) -> Target {
        Target::new(url).unwrap()
    }

    fn jar(url: &str, lines: &[&str]) -> CookieJar {
        let jar = CookieJar::new();
        jar.take(&target(url), lines.iter());
        jar
    }

    #[test]
    fn a_cookie_goes_to_its_host_and_path() {
        let jar = jar("http://a.test/shop/cart?x", &["one=1", "two=2; Path=/", "three=3; path=/shop/cart"]);
        let sent = |url| jar.value(&target(url));
        assert_eq!(sent("http://a.test/shop/cart/7").as_deref(), Some("three=3; one=1; two=2"));
        assert_eq!(sent("http://A.test/shop?y").as_deref(), Some("one=1; two=2"));
        assert_eq!(sent("http://a.test/shopping").as_deref(), Some("two=2"));
        assert_eq!((sent("http://b.test/"), sent("http://x.a.test/")), (None, None));
    }

    #[test]
    fn a_domain_is_one_that_the_host_is_in() {
        let lines = &[
            "a=1; Domain=.shop.test",
            "b=2; Domain=other.test",
            "c=3; Domain=test",
            "d=4; Domain=b.shop.test",
        ];
        let jar = jar("http://a.shop.test/", lines);
        assert_eq!(jar.value(&target("http://shop.test/")).as_deref(), Some("a=1"));
        assert_eq!(jar.value(&target("http://x.shop.test/")).as_deref(), Some("a=1"));
        assert_eq!(jar.value(&target("http://myshop.test/")), None);
        let by_address = self::jar("http://127.0.0.1/", &["a=1; Domain=0.0.1"]);
        assert!(by_address.is_empty());
    }

    #[test]
    fn secure_cookies_stay_on_https() {
        assert!(jar("http://a.test/", &["a=1; Secure"]).is_empty());
        let jar = jar("https://a.test/", &["a=1; Secure"]);
        assert_eq!(jar.value(&target("https://a.test/")).as_deref(), Some("a=1"));
        assert_eq!(jar.value(&target("http://a.test/")), None);
    }

    #[test]
    fn a_cookie_ends_is_replaced_and_is_bounded() {
        let jar =
            jar("http://a.test/", &["a=1", "a=2; Max-Age=60", "b=1; Expires=Wed, 21 Oct 2015 07:28:00 GMT"]);
        assert_eq!(jar.value(&target("http://a.test/")).as_deref(), Some("a=2"));
        jar.take(&target("http://a.test/"), ["a=; Max-Age=0"].iter());
        assert!(jar.is_empty());
        let long = format!("a={}", "x".repeat(COOKIE_BYTES_MAX));
        jar.take(&target("http://a.test/"), [long.as_str(), "=x", "novalue"].iter());
        assert!(jar.is_empty());
        for number in 0..OF_DOMAIN_MAX + 10 {
            jar.take(&target("http://a.test/"), [format!("n{number}=1")].iter());
        }
        assert_eq!(jar.len(), OF_DOMAIN_MAX);
    }
}
