//! URLs as people write them: without a scheme, with a weight, with a Unix socket in front, or a file full of
//! them.
//!
//! Pure functions from text to targets. Start at [`one`].

use ringroad_load::Target;
use ringroad_load::site::{Destination, Route};
use std::path::PathBuf;

/// The most URLs a file may have.
const URLS_MAX: usize = 10_000;

/// One URL of a load.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Url {
    pub(super) target: Target,
    pub(super) weight: u32,
    /// The method a file gives it.
    pub(super) method: Option<String>,
    /// Where its connections go, if the URL says so.
    pub(super) route: Option<Route>,
}

/// Reads `URL`, or `URL WEIGHT`. A path alone is one on the server of `base`.
pub(super) fn one(text: &str, base: Option<&Target>) -> Result<Url, String> {
    let (url, weight) = match text.trim().split_once(char::is_whitespace) {
        Some((url, weight)) => match weight.trim().parse::<u32>() {
            Ok(weight @ 1..=10_000) => (url, weight),
            _ => return Err(format!("URL {text}: expected a weight from 1 to 10000 after the space")),
        },
        None => (text.trim(), 1),
    };
    let parse = |text: &str| text.parse::<Target>().map_err(|why| why.to_string());
    let (target, route) = match (base, url.strip_prefix("unix:")) {
        (Some(base), None) if url.starts_with('/') => {
            (Target { path: parse(&format!("http://-{url}"))?.path, ..base.clone() }, None)
        }
        (_, Some(rest)) => {
            let (socket, path) = rest.split_once(':').unwrap_or((rest, "/"));
            if socket.is_empty() || !path.starts_with('/') {
                return Err(format!("URL {url}: unix:SOCKET or unix:SOCKET:/PATH is expected"));
            }
            let target = parse(&format!("http://localhost{path}"))?;
            let to = Destination::Unix(PathBuf::from(socket));
            (target.clone(), Some(Route { host: Some(target.host), port: Some(target.port), to }))
        }
        // As in browsers and curl. A port alone is a port of this machine.
        _ if url.starts_with(':') => (parse(&format!("http://127.0.0.1{url}"))?, None),
        _ if !has_scheme(url) => (parse(&format!("http://{url}"))?, None),
        _ => (parse(url)?, None),
    };
    Ok(Url { target, weight, method: None, route })
}

/// Returns whether a URL begins with a scheme; one in its query does not count.
fn has_scheme(url: &str) -> bool {
    url.split_once("://").is_some_and(|(scheme, _)| scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

/// Reads a file of URLs: `[METHOD] URL [WEIGHT]` on each line.
pub(super) fn file(text: &str, base: Option<&Target>) -> Result<Vec<Url>, String> {
    let mut urls = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (first, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let is_method = !rest.is_empty() && first.bytes().all(|byte| byte.is_ascii_uppercase());
        let url = one(if is_method { rest.trim() } else { line }, base);
        let url = url.map_err(|why| format!("line {number}: {why}"))?;
        urls.push(Url { method: is_method.then(|| first.to_owned()), ..url });
    }
    match urls.len() {
        0 => Err("no URL in it (one on each line is expected)".to_owned()),
        1..=URLS_MAX => Ok(urls),
        many => Err(format!(
            "{many} URLs: at most {URLS_MAX} are allowed (placeholders make several of one: /item/{{n}})"
        )),
    }
}

/// Returns the URL that `location` means in an answer of `from` (RFC 3986 §5, without `..`).
pub(super) fn joined(from: &Target, location: &str) -> Result<Target, String> {
    let location = location.split('#').next().unwrap_or_default();
    let base = format!("{}://{}", from.scheme.as_str(), from.authority());
    let (path, _) = from.path.split_once('?').unwrap_or((&from.path, ""));
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let whole = match location {
        whole if has_scheme(whole) => whole.to_owned(),
        rest if rest.starts_with("//") => format!("{}:{rest}", from.scheme.as_str()),
        path if path.starts_with('/') => format!("{base}{path}"),
        query if query.starts_with('?') => format!("{base}{path}{query}"),
        relative => format!("{base}{folder}/{relative}"),
    };
    whole.parse::<Target>().map_err(|why| why.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_url_may_lack_its_scheme_and_have_a_weight() {
        for (text, whole, weight) in [
            ("localhost:8080", "http://localhost:8080/", 1),
            (":8080/x", "http://127.0.0.1:8080/x", 1),
            ("example.org/a?b=c://d 3", "http://example.org/a?b=c://d", 3),
            ("example.org/a?b 3", "http://example.org/a?b", 3),
            ("https://a/ 10", "https://a/", 10),
            ("/b 2", "https://base:7/b", 2),
            ("/b?x=http://y", "https://base:7/b?x=http://y", 1),
            ("[::1]:81", "http://[::1]:81/", 1),
        ] {
            let base = "https://base:7/z".parse::<Target>().unwrap();
            let url = one(text, Some(&base));
            let url = url.unwrap();
            assert_eq!(
                (url.target.to_string().as_str(), url.weight, url.route),
                (whole, weight, None),
                "{text}"
            );
        }
        for text in ["a 0", "a 10001", "a b", "/b", "", ":"] {
            assert!(one(text, None).is_err(), "{text}");
        }
    }

    #[test]
    fn a_unix_socket_may_stand_in_front() {
        let url = one("unix:/run/a.sock:/x?y", None).unwrap();
        assert_eq!(url.target.to_string(), "http://localhost/x?y");
        assert_eq!(url.route.unwrap().to, Destination::Unix("/run/a.sock".into()));
        assert_eq!(one("unix:a.sock", None).unwrap().target.path, "/");
        assert!(one("unix:", None).is_err() && one("unix:a:b", None).is_err());
    }

    #[test]
    fn a_file_has_a_url_on_each_line_and_a_mistake_has_its_line() {
        let text = "# all\n\nhttp://a/\nPOST a/b 3\n  /c 2\n";
        let base = "http://base/".parse::<Target>().unwrap();
        let urls = file(text, Some(&base)).unwrap();
        let told: Vec<_> =
            urls.iter().map(|url| (url.method.as_deref(), url.target.to_string(), url.weight)).collect();
        assert_eq!(
            told,
            [
                (None, "http://a/".to_owned(), 1),
                (Some("POST"), "http://a/b".to_owned(), 3),
                (None, "http://base/c".to_owned(), 2)
            ]
        );
        for (text, why) in
            [("", "no URL"), ("# x\n", "no URL"), ("a\nb:0\n", "line 2: "), ("GET\n/x", "line 2")]
        {
            let error = file(text, None).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_redirect_is_read_as_a_browser_reads_it() {
        let from = "http://a:81/x/y?q".parse::<Target>().unwrap();
        for (location, whole) in [
            ("https://b/z", "https://b/z"),
            ("//b/z", "http://b/z"),
            ("/z#part", "http://a:81/z"),
            ("z", "http://a:81/x/z"),
            ("?p", "http://a:81/x/y?p"),
        ] {
            assert_eq!(joined(&from, location).unwrap().to_string(), whole, "{location}");
        }
    }
}
