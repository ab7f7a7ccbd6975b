//! `Cache-Control` of answers and of requests (RFC 9111 §5.2), and `Pragma`.

use super::{Lines, seconds};

/// A directive that may name header lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Named {
    /// It is not there.
    #[default]
    No,
    /// It holds for the whole answer.
    All,
    /// It holds for these lines.
    Lines(Vec<String>),
}

/// `Cache-Control` of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// `no-store`
    pub no_store: bool,
    /// `private`
    pub private: Named,
    /// `no-cache`
    pub no_cache: Named,
    /// `public`
    pub public: bool,
    /// `must-revalidate`
    pub must_revalidate: bool,
    /// `proxy-revalidate`
    pub proxy_revalidate: bool,
    /// `must-understand`
    pub must_understand: bool,
    /// `max-age`; what is no number is 0, of several the smallest counts.
    pub max_age: Option<u64>,
    /// `s-maxage`, as `max-age`.
    pub s_maxage: Option<u64>,
    /// `stale-while-revalidate`
    pub stale_while: Option<u64>,
    /// `stale-if-error`
    pub stale_if_error: Option<u64>,
}

/// `Cache-Control` of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// `no-cache`, or `Pragma: no-cache` without `Cache-Control`.
    pub no_cache: bool,
    /// `no-store`
    pub no_store: bool,
    /// `only-if-cached`
    pub only_if_cached: bool,
    /// `max-age`
    pub max_age: Option<u64>,
    /// `min-fresh`
    pub min_fresh: Option<u64>,
    /// `max-stale`; without a number it is the largest.
    pub max_stale: Option<u64>,
}

/// Gives each directive of a list with its value, without the quotes around that.
fn directives(list: &[u8], mut take: impl FnMut(&[u8], Option<&[u8]>)) {
    let mut rest = list;
    while !rest.is_empty() {
        let mut quoted = false;
        let mut escaped = false;
        let end = rest.iter().position(|byte| {
            if escaped {
                escaped = false;
            } else {
                match byte {
                    b'\\' if quoted => escaped = true,
                    b'"' => quoted = !quoted,
                    b',' if !quoted => return true,
                    _ => {}
                }
            }
            false
        });
        let (word, behind) = match end {
            Some(end) => (rest.get(..end).unwrap_or_default(), rest.get(end + 1..).unwrap_or_default()),
            None => (rest, &[][..]),
        };
        rest = behind;
        let word = word.trim_ascii();
        if word.is_empty() {
            continue;
        }
        match word.iter().position(|byte| *byte == b'=') {
            None => take(word, None),
            Some(at) => {
                let (name, value) =
                    (word.get(..at).unwrap_or_default(), word.get(at + 1..).unwrap_or_default());
                let inner = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
                take(name, Some(inner.unwrap_or(value)));
            }
        }
    }
}

fn least(known: &mut Option<u64>, value: Option<&[u8]>) {
    let value = value.and_then(seconds).unwrap_or(0);
    *known = Some(known.map_or(value, |known| known.min(value)));
}

fn named(known: &mut Named, value: Option<&[u8]>) {
    let Some(value) = value else {
        *known = Named::All;
        return;
    };
    let names = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|name| !name.is_empty());
    let names = names.map(|name| String::from_utf8_lossy(name).to_ascii_lowercase());
    match known {
        Named::All => {}
        Named::No => *known = Named::Lines(names.collect()),
        Named::Lines(all) => all.extend(names),
    }
}

impl Control {
    /// Reads the lines of an answer.
    pub fn read(lines: &(impl Lines + ?Sized)) -> Control {
        let mut control = Control::default();
        lines.each("cache-control", &mut |list| {
            directives(list, |name, value| control.take(name, value));
        });
        control
    }

    /// Takes one directive.
    pub(super) fn take(&mut self, name: &[u8], value: Option<&[u8]>) {
        let is = |word: &str| name.eq_ignore_ascii_case(word.as_bytes());
        if is("no-store") {
            self.no_store = true;
        } else if is("private") {
            named(&mut self.private, value);
        } else if is("no-cache") {
            named(&mut self.no_cache, value);
        } else if is("public") {
            self.public = true;
        } else if is("must-revalidate") {
            self.must_revalidate = true;
        } else if is("proxy-revalidate") {
            self.proxy_revalidate = true;
        } else if is("must-understand") {
            self.must_understand = true;
        } else if is("max-age") {
            least(&mut self.max_age, value);
        } else if is("s-maxage") {
            least(&mut self.s_maxage, value);
        } else if is("stale-while-revalidate") {
            least(&mut self.stale_while, value);
        } else if is("stale-if-error") {
            least(&mut self.stale_if_error, value);
        }
    }
}

impl Asked {
    /// Reads the lines of a request.
    pub fn read(lines: &(impl Lines + ?Sized)) -> Asked {
        let (mut asked, mut any) = (Asked::default(), false);
        lines.each("cache-control", &mut |list| {
            any = true;
            directives(list, |name, value| {
                let is = |word: &str| name.eq_ignore_ascii_case(word.as_bytes());
                let number = value.and_then(seconds);
                if is("no-cache") {
                    asked.no_cache = true;
                } else if is("no-store") {
                    asked.no_store = true;
                } else if is("only-if-cached") {
                    asked.only_if_cached = true;
                } else if is("max-age") {
                    asked.max_age = number.or(asked.max_age);
                } else if is("min-fresh") {
                    asked.min_fresh = number.or(asked.min_fresh);
                } else if is("max-stale") {
                    asked.max_stale = if value.is_none() { Some(super::SECONDS_MAX) } else { number };
                }
            });
        });
        if !any {
            lines.each("pragma", &mut |list| {
                directives(list, |name, _| asked.no_cache |= name.eq_ignore_ascii_case(b"no-cache"));
            });
        }
        asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_are_read_with_quotes_cases_and_several_lines() {
        let control = Control::read(&[
            ("Cache-Control", "foo=\"max-age=9, no-store\", MaX-aGe=60,, s-maxage=\"5\""),
            ("cache-control", "no-cache=\"Set-Cookie, X-A\", private=\"x-b\", must-revalidate"),
        ]);
        let expected = Control {
            max_age: Some(60),
            s_maxage: Some(5),
            no_cache: Named::Lines(vec!["set-cookie".to_owned(), "x-a".to_owned()]),
            private: Named::Lines(vec!["x-b".to_owned()]),
            must_revalidate: true,
            ..Control::default()
        };
        assert_eq!(control, expected);
    }

    #[test]
    fn a_lifetime_that_is_no_number_is_none_and_of_two_the_shorter_counts() {
        for (value, expected) in [
            ("max-age=60", Some(60)),
            ("max-age=060", Some(60)),
            ("max-age=99999999999999999999", Some(super::super::SECONDS_MAX)),
            ("max-age='60'", Some(0)),
            ("max-age=-60", Some(0)),
            ("max-age=60.5", Some(0)),
            ("max-age= 60", Some(0)),
            ("max-age", Some(0)),
            ("max-age =60", None),
            ("max-age=60, max-age=1", Some(1)),
            ("max-age=1, max-age=60", Some(1)),
            ("x=\"unterminated, max-age=60", None),
        ] {
            assert_eq!(Control::read(&[("cache-control", value)]).max_age, expected, "{value}");
        }
    }

    #[test]
    fn pragma_counts_only_without_cache_control() {
        assert!(Asked::read(&[("pragma", "x, no-cache")]).no_cache);
        assert!(!Asked::read(&[("pragma", "no-cache"), ("cache-control", "max-age=5")]).no_cache);
        let asked = Asked::read(&[("cache-control", "max-stale, min-fresh=3, only-if-cached")]);
        assert_eq!((asked.max_stale, asked.min_fresh), (Some(super::super::SECONDS_MAX), Some(3)));
        assert!(asked.only_if_cached);
    }
}
