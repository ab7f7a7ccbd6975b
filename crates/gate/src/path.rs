//! Interpretations of a request's path, and whether all of them lead to the same place.
//!
//! Servers read one path in several ways: some decode `%2f` before they split, some remove `;…` from each
//! segment, some treat a backslash as a slash. A route that protects `/admin/` is useless if the server
//! behind another route reads `/x;/..%5cadmin` as `/admin`. So a path is refused if any of these readings has
//! a segment `.` or `..`. [`Spellings`] has every reading, so that the caller can refuse a path with readings
//! that choose different routes.
//!
//! Unescaped segments `.` and `..` have one meaning (RFC 3986 §6.2.2.3). [`without_dots`] removes them before
//! any other code reads the path.

use ringroad_http::Request;
use std::borrow::Cow;

/// A path in the readings of this server and of servers behind it. Each begins with `/` and has no empty
/// segment inside and no `.` or `..`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spellings<'a> {
    /// Decoded once, with repeated slashes merged: the reading by which routes and files are looked up.
    pub decoded: Cow<'a, [u8]>,
    /// The other readings, if they differ: with escaped delimiters, without parameters, and with backslashes
    /// as slashes. Escapes of other characters mean the character in every reading (RFC 3986 §6.2.2.2).
    others: Vec<Vec<u8>>,
    /// Whether the path has an escaped slash, or a backslash in any form: no file has such a name.
    pub hides_slash: bool,
    /// Whether no segment is empty or begins with a dot, and there is no other reading. `false` means
    /// unknown.
    pub is_plain: bool,
}

/// Why a path is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadPath {
    /// It does not begin with `/`.
    NotAPath,
    /// An escape is not `%` and two hexadecimal digits.
    Escape,
    /// A control character is in it, as such or escaped.
    Control,
    /// A segment is `.` or `..` in one of the readings, or a `..` has no segment to remove.
    Dots,
    /// Its readings choose different routes.
    Ambiguous,
    /// It is not UTF-8, and the server behind the route might decode it differently.
    NotUtf8,
}

impl BadPath {
    /// Returns the reason, for the client and the log.
    pub fn reason(self) -> &'static str {
        match self {
            BadPath::NotAPath => "the request target is not a path",
            BadPath::Escape => "the path has an escape that is not % and two hexadecimal digits",
            BadPath::Control => "the path has a control character",
            BadPath::Dots => "the path has a segment . or .. in one of its readings",
            BadPath::Ambiguous => {
                "readings of the path (escapes, parameters, backslashes) choose different routes"
            }
            BadPath::NotUtf8 => "the path is not UTF-8",
        }
    }
}

impl<'a> Spellings<'a> {
    /// Returns the readings of a request's path.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub fn of_request(request: &'a Request) -> Result<Spellings<'a>, BadPath> {
        let head = request.head();
        // The parser has determined this already.
        if head.is_plain_path() {
            let decoded = Cow::Borrowed(head.path_bytes());
            return Ok(Spellings { decoded, others: Vec::new(), hides_slash: false, is_plain: true });
        }
        Spellings::of(head.path())
    }

    /// Reads the path of a request target.
    ///
    /// # Errors
    /// The path leads nowhere, or to a place that depends on the reader.
    pub fn of(raw: &'a str) -> Result<Spellings<'a>, BadPath> {
        let bytes = raw.as_bytes();
        if bytes.first() != Some(&b'/') {
            return Err(BadPath::NotAPath);
        }
        if bytes.iter().any(u8::is_ascii_control) {
            return Err(BadPath::Control);
        }
        let plain = !bytes.iter().any(|byte| matches!(byte, b'%' | b';' | b'\\'));
        if plain {
            if has_dots(bytes) {
                return Err(BadPath::Dots);
            }
            let decoded = merged(Cow::Borrowed(bytes));
            return Ok(Spellings { decoded, others: Vec::new(), hides_slash: false, is_plain: false });
        }
        let (decoded, kept) = decode(bytes)?;
        if decoded.iter().any(u8::is_ascii_control) {
            return Err(BadPath::Control);
        }
        let hides_slash = decoded.contains(&b'\\') || slashes(&decoded) > slashes(bytes);
        let slashed: Vec<u8> = decoded.iter().map(|byte| if *byte == b'\\' { b'/' } else { *byte }).collect();
        let without = without_parameters(&slashed);
        if has_dots(bytes) || has_dots(&decoded) || has_dots(&slashed) || has_dots(&without) {
            return Err(BadPath::Dots);
        }
        let decoded = merged(Cow::Owned(decoded));
        let mut others = Vec::new();
        for other in [kept, slashed, without] {
            let other = merged(Cow::Owned(other));
            if other != decoded && !others.iter().any(|known| *known == *other) {
                others.push(other.into_owned());
            }
        }
        Ok(Spellings { decoded, others, hides_slash, is_plain: false })
    }

    /// Returns the result of `choose` for the path.
    ///
    /// # Errors
    /// `choose` returns something else for another reading.
    pub fn choose<T: PartialEq>(&self, choose: impl Fn(&[u8]) -> T) -> Result<T, BadPath> {
        let chosen = choose(&self.decoded);
        let same = self.others.iter().all(|other| choose(other) == chosen);
        if same { Ok(chosen) } else { Err(BadPath::Ambiguous) }
    }
}

/// Removes unescaped segments `.` and `..`. Each `..` removes the segment before it (RFC 3986 §5.2.4), and
/// slashes between the two count as one. Other repeated slashes stay, except at the front: the result never
/// begins with `//`, which some readers take for a host. A path without such segments is returned unchanged.
///
/// # Errors
/// The path leads above `/`. Or a segment that a `..` removes is ambiguous: removed segments are checked like
/// the others.
pub fn without_dots(raw: &str) -> Result<Cow<'_, str>, BadPath> {
    let Some(segments) = raw.strip_prefix('/').filter(|_| raw.contains("/.")) else {
        return Ok(Cow::Borrowed(raw));
    };
    if !has_dots(raw.as_bytes()) {
        return Ok(Cow::Borrowed(raw));
    }
    let mut named = String::with_capacity(raw.len());
    let mut kept = Vec::new();
    let (mut goes_up, mut left) = (false, segments.split('/').peekable());
    while let Some(segment) = left.next() {
        match segment {
            "." => {}
            ".." => {
                goes_up = true;
                while kept.pop_if(|segment: &mut &str| segment.is_empty()).is_some() {}
                kept.pop().ok_or(BadPath::Dots)?;
            }
            segment => {
                named.push('/');
                named.push_str(segment);
                kept.push(segment);
                continue;
            }
        }
        if left.peek().is_none() {
            kept.push("");
        }
    }
    if !named.is_empty() && Spellings::of(&named)?.hides_slash && goes_up {
        return Err(BadPath::Dots);
    }
    let empty = kept.iter().take_while(|segment| segment.is_empty()).count();
    let mut understood = String::with_capacity(raw.len());
    for segment in kept.get(empty..).unwrap_or_default() {
        understood.push('/');
        understood.push_str(segment);
    }
    if understood.is_empty() {
        understood.push('/');
    }
    Ok(Cow::Owned(understood))
}

/// Merges repeated slashes into one.
pub fn with_single_slashes(raw: &str) -> Cow<'_, str> {
    if !raw.contains("//") {
        return Cow::Borrowed(raw);
    }
    let mut single = String::with_capacity(raw.len());
    for letter in raw.chars() {
        if letter != '/' || !single.ends_with('/') {
            single.push(letter);
        }
    }
    Cow::Owned(single)
}

fn slashes(path: &[u8]) -> usize {
    path.iter().filter(|byte| **byte == b'/').count()
}

/// Decodes every escape; also returns the path with the escapes of delimiters kept.
fn decode(raw: &[u8]) -> Result<(Vec<u8>, Vec<u8>), BadPath> {
    let mut decoded = Vec::with_capacity(raw.len());
    let mut kept = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if byte != b'%' {
            decoded.push(byte);
            kept.push(byte);
            continue;
        }
        let [high, low, behind @ ..] = rest else { return Err(BadPath::Escape) };
        let digit = |byte: u8| char::from(byte).to_digit(16).ok_or(BadPath::Escape);
        let byte = (digit(*high)? << 4 | digit(*low)?) as u8;
        decoded.push(byte);
        match byte {
            b'/' | b'\\' | b';' => kept.extend_from_slice(&[b'%', *high, *low]),
            byte => kept.push(byte),
        }
        rest = behind;
    }
    Ok((decoded, kept))
}

/// Returns whether the path has a segment `.` or `..`.
fn has_dots(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').any(|segment| matches!(segment, [b'.'] | [b'.', b'.']))
}

/// Removes `;…` from each segment, as servlet containers do.
fn without_parameters(path: &[u8]) -> Vec<u8> {
    let segments = path.split(|byte| *byte == b'/');
    let cut = segments.map(|segment| segment.split(|byte| *byte == b';').next().unwrap_or_default());
    cut.collect::<Vec<_>>().join(&b'/')
}

/// Works as [`with_single_slashes`], for bytes that need not be text.
fn merged(path: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    if !path.windows(2).any(|pair| pair == b"//") {
        return path;
    }
    let mut merged = path.into_owned();
    merged.dedup_by(|byte, before| *byte == b'/' && *before == b'/');
    Cow::Owned(merged)
}

/// Returns the rest of a raw path after its first `bytes` decoded bytes, counted with merged slashes. Slashes
/// after the last of these bytes stay.
pub fn behind(raw: &str, bytes: usize) -> &str {
    let (mut at, mut left) = (0, bytes);
    let mut slash_before = false;
    while left > 0
        && let Some(rest) = raw.as_bytes().get(at..)
        && let Some(first) = rest.first()
    {
        let slash = *first == b'/' || rest.get(..3).is_some_and(|three| three.eq_ignore_ascii_case(b"%2f"));
        if !(slash && slash_before) {
            left -= 1;
        }
        slash_before = slash;
        at += if *first == b'%' { 3 } else { 1 };
    }
    raw.get(at..).unwrap_or_default()
}

/// Returns the parts before the common end of two paths, the part below the route: first of `sent`, which the
/// endpoint was asked for, then of `asked`, which the client requested. `below` is the length of the route's
/// path. `None` if they do not have that end in common.
pub fn beginnings<'p>(asked: &'p str, below: usize, sent: &'p str) -> Option<(&'p str, &'p str)> {
    let rest = behind(asked, below);
    let (behind, here) = (sent.strip_suffix(rest)?, asked.strip_suffix(rest)?);
    let fit = !behind.is_empty() && behind.ends_with('/') == here.ends_with('/');
    fit.then_some((behind, here))
}

/// Returns a `Location` on this server. It never begins with `//`, which browsers take for another server.
pub fn location(path: &str, query: Option<&str>) -> String {
    let rest = path.trim_start_matches(['/', '\\']);
    let slash = if rest.len() < path.len() { "/" } else { "" };
    match query {
        Some(query) => format!("{slash}{rest}?{query}"),
        None => format!("{slash}{rest}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn decoded(raw: &str) -> Result<Vec<u8>, BadPath> {
        Spellings::of(raw).map(|spellings| spellings.decoded.into_owned())
    }

    #[test]
    fn escapes_are_decoded_once() {
        for (raw, expected) in [
            ("/", &b"/"[..]),
            ("/a%20b", b"/a b"),
            ("/%252e%252e/x", b"/%2e%2e/x"),
            ("/caf%C3%A9", "/café".as_bytes()),
            ("/a;b/...;", b"/a;b/...;"),
            ("/...", b"/..."),
            ("//a///b//", b"/a/b/"),
            ("/%2fa%2F/b", b"/a/b"),
        ] {
            assert_eq!(decoded(raw).unwrap(), expected, "{raw}");
        }
    }

    #[test]
    fn a_path_that_means_no_place_or_several_is_refused() {
        for (raw, why) in [
            ("", BadPath::NotAPath),
            ("*", BadPath::NotAPath),
            ("/..", BadPath::Dots),
            ("/../etc/passwd", BadPath::Dots),
            ("/..%2f", BadPath::Dots),
            ("/%2e%2e/", BadPath::Dots),
            ("/.%2E/", BadPath::Dots),
            ("/a/./b", BadPath::Dots),
            ("/a%2f..%2fb", BadPath::Dots),
            ("/a/..;/b", BadPath::Dots),
            ("/.;", BadPath::Dots),
            ("/..;a=b/c", BadPath::Dots),
            ("/%2e%2E%3b/c", BadPath::Dots),
            ("/x/..\\admin", BadPath::Dots),
            ("/x%5c..%5cadmin/users", BadPath::Dots),
            ("/x\\..;\\admin", BadPath::Dots),
            ("/%00", BadPath::Control),
            ("/a%0ab", BadPath::Control),
            ("/%7f", BadPath::Control),
            ("/%", BadPath::Escape),
            ("/%2", BadPath::Escape),
            ("/%zz", BadPath::Escape),
            ("/%+1", BadPath::Escape),
        ] {
            assert_eq!(decoded(raw), Err(why), "{raw}");
        }
        for raw in ["/a%2fb", "/a\\b", "/a%5Cb"] {
            assert!(Spellings::of(raw).unwrap().hides_slash, "{raw}");
        }
        assert!(!Spellings::of("/a;b%20c").unwrap().hides_slash);
    }

    #[test]
    fn dots_as_they_are_written_go_with_the_segments_that_they_take_away() {
        for (raw, understood) in [
            ("/", "/"),
            ("/a/.b/..c/...", "/a/.b/..c/..."),
            ("//a//b", "//a//b"),
            ("*", "*"),
            ("/.", "/"),
            ("/./", "/"),
            ("/./a", "/a"),
            ("/a/.", "/a/"),
            ("/a/./b", "/a/b"),
            ("/a/b/..", "/a/"),
            ("/a/b/../", "/a/"),
            ("/a/b/../c", "/a/c"),
            ("/a/..", "/"),
            ("/a/b/../../c/./d", "/c/d"),
            // Slashes in a row are one slash to what `..` takes away, and stay otherwise.
            ("/a//../b", "/b"),
            ("/a//b/./c", "/a//b/c"),
            ("/a/b/..//c", "/a//c"),
            // What begins with two slashes would name a host.
            ("/.//evil.example/", "/evil.example/"),
            ("/a/..//evil.example", "/evil.example"),
            ("//./evil.example", "/evil.example"),
            ("/a//..//", "/"),
            // Other spellings are left to those that read them.
            ("/%61;b/./c", "/%61;b/c"),
            ("/a%2fb/./c", "/a%2fb/c"),
        ] {
            assert_eq!(without_dots(raw).as_deref(), Ok(understood), "{raw}");
        }
    }

    #[test]
    fn dots_that_lead_above_the_root_or_past_a_segment_of_several_meanings_are_refused() {
        for (raw, why) in [
            ("/..", BadPath::Dots),
            ("/../a", BadPath::Dots),
            ("//../a", BadPath::Dots),
            ("/./../a", BadPath::Dots),
            ("/a/../../b", BadPath::Dots),
            // The segment that goes may be another place to another reader.
            ("/%2e%2e/../a", BadPath::Dots),
            ("/a/%2e/./b", BadPath::Dots),
            ("/..;/../a", BadPath::Dots),
            ("/a/..%3b/../b", BadPath::Dots),
            ("/a%2fb/../c", BadPath::Dots),
            ("/a\\b/../c", BadPath::Dots),
            ("/a%5Cb/../c", BadPath::Dots),
            ("/%zz/../a", BadPath::Escape),
            ("/%00/../a", BadPath::Control),
        ] {
            assert_eq!(without_dots(raw), Err(why), "{raw}");
            assert!(Spellings::of(raw).is_err(), "what is refused here is not taken there: {raw}");
        }
    }

    #[test]
    fn slashes_in_a_row_are_one() {
        for (raw, single) in [("/a/b", "/a/b"), ("//a///b//", "/a/b/"), ("//", "/"), ("/%2f//é", "/%2f/é")]
        {
            assert_eq!(with_single_slashes(raw), single, "{raw}");
        }
    }

    #[test]
    fn readings_that_choose_different_routes_are_refused() {
        let admin = |path: &[u8]| path.starts_with(b"/admin/") || path == b"/admin";
        let chosen = |raw: &str| Spellings::of(raw).and_then(|spellings| spellings.choose(admin));
        for raw in ["/admin;a=b/users", "/;/admin/users", "/admin%5cusers", "\\/admin", "/admin%2fusers"] {
            assert!(chosen(raw).is_err(), "{raw}");
        }
        for (raw, is_admin) in [
            ("/admin/a;b", true),
            ("/admin/a%2fb", true),
            ("/a;b/c", false),
            ("/%61dmin/x", true),
            ("/x\\y", false),
        ] {
            assert_eq!(chosen(raw), Ok(is_admin), "{raw}");
        }
    }

    #[test]
    fn what_is_behind_a_decoded_prefix_is_found_in_the_raw_path() {
        assert_eq!(behind("/a/b%20c", 3), "b%20c");
        assert_eq!(behind("/%61/b", 3), "b");
        assert_eq!(behind("/a", 5), "");
        assert_eq!(behind("//a%2f/b//c", 3), "/b//c");
        assert_eq!(behind("/%2Fa/b", 3), "b");
        assert_eq!(behind("/a/%2fb", 3), "%2fb");
    }

    #[test]
    fn a_location_stays_on_this_server() {
        assert_eq!(location("/a/", Some("b=c")), "/a/?b=c");
        for path in ["//evil.example/", "/\\evil.example/", "\\/evil.example/"] {
            assert_eq!(location(path, None), "/evil.example/", "{path}");
        }
        assert_eq!(location("https://example.org/", None), "https://example.org/");
    }
}
