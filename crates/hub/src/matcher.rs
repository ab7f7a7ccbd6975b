//! Matchers of topics: exact names, URL patterns, and the URI templates of Mercure 0.x.
//!
//! Relative topics and patterns are resolved against the hub's URL. All matching takes a time linear in the
//! length of the topic, since regular expressions are those of the crate `regex`. Their memory is bounded:
//! clients without any right choose patterns.

use regex::bytes::{Regex, RegexBuilder};
use std::cell::OnceCell;
use std::fmt;
use std::sync::{Arc, OnceLock};
use url::Url;
use urlpattern::regexp::RegExp;
use urlpattern::{RegexSyntax, UrlPattern, UrlPatternInit, UrlPatternMatchInput, UrlPatternOptions};

/// How a matcher's text is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The topic itself.
    Exact,
    /// A URL pattern (WHATWG).
    UrlPattern,
    /// A URI template (RFC 6570) or the topic itself, as in Mercure 0.x.
    Template,
}

impl Kind {
    /// Returns the name in parameters, claims and documents.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Exact => "exact",
            Kind::UrlPattern => "urlpattern",
            Kind::Template => "template",
        }
    }

    /// Returns the kind of this name in a claim. Names of earlier drafts are taken as well.
    pub fn named(name: &str) -> Option<Kind> {
        match name {
            "exact" | "Exact" => Some(Kind::Exact),
            "urlpattern" | "URLPattern" => Some(Kind::UrlPattern),
            _ => None,
        }
    }
}

/// A matcher of topics. Clones share memory.
#[derive(Clone)]
pub struct Matcher(Arc<Inner>);

struct Inner {
    text: String,
    kind: Kind,
    how: How,
}

enum How {
    All,
    Exact,
    Pattern(Box<UrlPattern<Bounded>>),
    Template(Bounded),
}

/// Most bytes of a compiled expression, and of what the crate keeps to match it faster.
const COMPILED_BYTES_MAX: usize = 32 * 1024;

/// A regular expression that needs little memory, and none before it is used: a pattern has sixteen of them,
/// of which few are.
///
/// Classes as `\w` are those of ASCII, as in browsers: what is matched are URLs, which are ASCII, and
/// templates name other characters themselves.
#[derive(Debug)]
struct Bounded {
    text: String,
    compiled: OnceLock<Option<Regex>>,
}

impl Bounded {
    /// Compiles a regular expression. `None`: it is not well-formed, or too large.
    fn new(text: &str) -> Option<Bounded> {
        compiled(text)?;
        Some(Bounded { text: text.to_owned(), compiled: OnceLock::new() })
    }

    fn is_match(&self, text: &str) -> bool {
        let compiled = self.compiled.get_or_init(|| compiled(&self.text));
        compiled.as_ref().is_some_and(|compiled| compiled.is_match(text.as_bytes()))
    }
}

fn compiled(text: &str) -> Option<Regex> {
    let mut builder = RegexBuilder::new(text);
    builder.unicode(false).size_limit(COMPILED_BYTES_MAX).dfa_size_limit(COMPILED_BYTES_MAX);
    builder.build().ok()
}

impl RegExp for Bounded {
    fn syntax() -> RegexSyntax {
        RegexSyntax::Rust
    }

    fn parse(pattern: &str, _: &str, _: bool) -> Result<Bounded, ()> {
        Bounded::new(pattern).ok_or(())
    }

    /// Groups are of no use here: only whether it matches is asked.
    fn matches<'a>(&self, text: &'a str) -> Option<Vec<Option<&'a str>>> {
        self.is_match(text).then(Vec::new)
    }

    fn pattern_string(&self) -> &str {
        &self.text
    }
}

/// A topic that is matched, possibly by many matchers: it is parsed as a URL once.
pub struct Subject<'t> {
    text: &'t str,
    base: &'t Url,
    url: OnceCell<Option<Url>>,
}

impl<'t> Subject<'t> {
    /// Takes a topic and the hub's URL.
    pub fn new(text: &'t str, base: &'t Url) -> Subject<'t> {
        Subject { text, base, url: OnceCell::new() }
    }

    /// Returns the topic.
    pub fn text(&self) -> &str {
        self.text
    }

    /// Returns the topic as a URL, if it is one.
    pub fn url(&self) -> Option<&Url> {
        self.url.get_or_init(|| self.base.join(self.text).ok()).as_ref()
    }
}

impl Matcher {
    /// Reads a matcher. `*` matches every topic, whatever the kind. `None`: it is not well-formed.
    pub fn new(kind: Kind, text: &str, base: &Url) -> Option<Matcher> {
        let how = match kind {
            _ if text == "*" => How::All,
            Kind::Exact => How::Exact,
            Kind::UrlPattern => {
                let init =
                    UrlPatternInit::parse_constructor_string::<Bounded>(text, Some(base.clone())).ok()?;
                How::Pattern(Box::new(UrlPattern::parse(init, UrlPatternOptions::default()).ok()?))
            }
            Kind::Template if text.contains('{') => How::Template(template(text)?),
            Kind::Template => How::Exact,
        };
        Some(Matcher(Arc::new(Inner { text: text.to_owned(), kind, how })))
    }

    /// Returns the text it was read from.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// Returns how the text was read.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// Returns the only topic that it matches, if that is so.
    pub fn name(&self) -> Option<&str> {
        matches!(self.0.how, How::Exact).then_some(&*self.0.text)
    }

    /// Returns whether the topic is matched.
    pub fn matches(&self, topic: &Subject<'_>) -> bool {
        match &self.0.how {
            How::All => true,
            How::Exact => self.0.text == topic.text,
            How::Pattern(pattern) => topic
                .url()
                .is_some_and(|url| pattern.test(UrlPatternMatchInput::Url(url.clone())).unwrap_or(false)),
            // A template matches itself, as an authorization of a subscription with the same template.
            How::Template(regex) => self.0.text == topic.text || regex.is_match(topic.text),
        }
    }
}

impl fmt::Debug for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.0.kind.name(), self.0.text)
    }
}

/// A value of an expression, with and without reserved characters (RFC 6570 §1.5, and characters beyond
/// ASCII, which topics have unescaped).
const PLAIN: &str = r"(?:[\w\-.~\x80-\xff]|%[0-9A-Fa-f]{2})*";
const RESERVED: &str = r"(?:[\w\-.~:/?#\[\]@!$&'()*+,;=\x80-\xff]|%[0-9A-Fa-f]{2})*";
const PAIR: &str = r"[\w.\-~%\x80-\xff]+=(?:[\w\-.~,\x80-\xff]|%[0-9A-Fa-f]{2})*";

/// Returns a text as an expression that matches its bytes.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!(r"\x{byte:02x}"));
        }
    }
    out
}

/// Returns the regular expression of all that a URI template can expand to.
fn template(text: &str) -> Option<Bounded> {
    let mut out = String::from("^");
    let mut rest = text;
    while let Some((literal, after)) = rest.split_once('{') {
        if literal.contains('}') {
            return None;
        }
        out += &escaped(literal);
        let (expression, after) = after.split_once('}')?;
        rest = after;
        let operator = expression.chars().next()?;
        let names = expression.trim_start_matches(['+', '#', '.', '/', ';', '?', '&']);
        let is_name = |name: &str| {
            let name = name.split(':').next().unwrap_or_default().trim_end_matches('*');
            !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_.%".contains(c))
        };
        if !names.split(',').all(is_name) {
            return None;
        }
        out += &match operator {
            '+' => RESERVED.to_owned(),
            '#' => format!("(?:#{RESERVED})?"),
            '.' => format!(r"(?:\.{PLAIN}(?:,{PLAIN})*)*"),
            '/' => format!("(?:/{PLAIN}(?:,{PLAIN})*)*"),
            ';' => format!(r"(?:;[\w.\-~%]+(?:={PLAIN}(?:,{PLAIN})*)?)*"),
            '?' => format!(r"(?:\?{PAIR}(?:&{PAIR})*)?"),
            '&' => format!("(?:&{PAIR})*"),
            _ => format!("{PLAIN}(?:[,=]{PLAIN})*"),
        };
    }
    if rest.contains('}') {
        return None;
    }
    out += &escaped(rest);
    out.push('$');
    Bounded::new(&out)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn matches(kind: Kind, text: &str, topic: &str) -> bool {
        let base = Url::parse("https://hub.example.com/.well-known/mercure").unwrap();
        let matcher = Matcher::new(kind, text, &base).unwrap();
        matcher.matches(&Subject::new(topic, &base))
    }

    #[test]
    fn an_exact_matcher_matches_its_own_bytes_only() {
        assert!(matches(Kind::Exact, "https://example.com/a", "https://example.com/a"));
        for other in ["https://example.com/a/", "https://EXAMPLE.com/a", "a", ""] {
            assert!(!matches(Kind::Exact, "https://example.com/a", other), "{other}");
        }
        for kind in [Kind::Exact, Kind::UrlPattern, Kind::Template] {
            assert!(matches(kind, "*", "anything at all"));
        }
    }

    #[test]
    fn a_url_pattern_matches_as_the_standard_has_it_and_relative_ones_below_the_hub() {
        let books = "https://example.com/books/:id";
        assert!(matches(Kind::UrlPattern, books, "https://example.com/books/1"));
        assert!(matches(Kind::UrlPattern, books, "https://EXAMPLE.com/books/1"));
        for other in ["https://example.com/books/1/2", "https://example.com/Books/1", "books/1", "::"] {
            assert!(!matches(Kind::UrlPattern, books, other), "{other}");
        }
        assert!(matches(Kind::UrlPattern, "/books/:id", "/books/7"));
        assert!(matches(Kind::UrlPattern, "/books/:id", "https://hub.example.com/books/7"));
        assert!(!matches(Kind::UrlPattern, "/books/:id", "https://example.com/books/7"));
        assert!(matches(
            Kind::UrlPattern,
            "/.well-known/mercure/subscriptions/exact/:topic/:subscriber",
            "/.well-known/mercure/subscriptions/exact/https%3A%2F%2Fa%2Fb/urn%3Auuid%3A1"
        ));
        let base = Url::parse("https://hub.example.com/").unwrap();
        assert!(Matcher::new(Kind::UrlPattern, "https://example.com/(", &base).is_none());
    }

    #[test]
    fn a_template_matches_what_it_can_expand_to() {
        let yes = [
            ("https://example.com/books/{id}", "https://example.com/books/1"),
            ("https://example.com/books/{id}", "https://example.com/books/{id}"),
            ("https://example.com/books/{id}.json", "https://example.com/books/a%20b.json"),
            ("/users/{user}/{+rest}", "/users/1/a/b?c"),
            ("/books{?page,size}", "/books?page=1&size=2"),
            ("/books{?page}", "/books"),
            ("/a{/b*}", "/a/1/2"),
            ("/a{#b}", "/a#x"),
            ("plain", "plain"),
        ];
        for (template, topic) in yes {
            assert!(matches(Kind::Template, template, topic), "{template} {topic}");
        }
        let no = [
            ("https://example.com/books/{id}", "https://example.com/books/1/2"),
            ("https://example.com/books/{id}", "https://example.org/books/1"),
            ("https://example.com/books/{id}", "https://exampleXcom/books/1"),
            ("/a{/b}", "/ab"),
            ("plain", "plain2"),
        ];
        for (template, topic) in no {
            assert!(!matches(Kind::Template, template, topic), "{template} {topic}");
        }
        let base = Url::parse("https://hub.example.com/").unwrap();
        for wrong in ["{", "{}", "a{b", "a}{b}", "{a b}", "{+}"] {
            assert!(Matcher::new(Kind::Template, wrong, &base).is_none(), "{wrong}");
        }
    }

    #[test]
    fn a_pattern_needs_little_memory_whatever_it_says() {
        let base = Url::parse("https://hub.example.com/.well-known/mercure").unwrap();
        for (kind, fits) in [
            (Kind::UrlPattern, r"https://example.com/:year(\d{4})/:id([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{12})"),
            (Kind::Template, "https://example.com/{a}/{+b}{?c,d}{&e}{#f}"),
        ] {
            assert!(Matcher::new(kind, fits, &base).is_some(), "{fits}");
        }
        for (kind, large) in [
            (Kind::UrlPattern, r"https://example.com/(\w{5000})".to_owned()),
            (Kind::UrlPattern, r"https://example.com/((?:x{100}){100})".to_owned()),
            (Kind::Template, "{a}".repeat(300)),
        ] {
            assert!(Matcher::new(kind, &large, &base).is_none(), "{large}");
        }
    }

    #[test]
    fn a_template_matches_characters_beyond_ascii_byte_by_byte() {
        assert!(matches(Kind::Template, "https://example.com/é/{id}", "https://example.com/é/ü"));
        assert!(!matches(Kind::Template, "https://example.com/é/{id}", "https://example.com/e/ü"));
        assert!(!matches(Kind::Template, "https://example.com/é/{id}", "https://example.com/é/ü/x"));
    }
}
