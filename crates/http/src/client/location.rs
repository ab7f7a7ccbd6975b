//! Targets of redirects: a reference resolved against the URL of the request (RFC 3986 §5).

/// Resolves `reference` in an answer to `base`. The result has no fragment, which is never sent.
pub(super) fn resolve(base: &str, reference: &str) -> String {
    let reference = reference.split('#').next().unwrap_or_default();
    let base = base.split('#').next().unwrap_or_default();
    let (scheme, rest) = base.split_once("://").unwrap_or(("http", base));
    if has_scheme(reference) {
        return reference.to_owned();
    }
    if let Some(authority) = reference.strip_prefix("//") {
        return format!("{scheme}://{authority}");
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, target) = rest.split_at(end);
    let path = target.split('?').next().unwrap_or_default();
    let target = match reference {
        "" => target.to_owned(),
        query if query.starts_with('?') => format!("{path}{query}"),
        _ => {
            let (wanted, query) = reference.find('?').map_or((reference, ""), |at| reference.split_at(at));
            let folder = path.rfind('/').map_or("/", |at| path.get(..=at).unwrap_or("/"));
            let whole = if wanted.starts_with('/') { wanted.to_owned() } else { format!("{folder}{wanted}") };
            format!("{}{query}", without_dots(&whole))
        }
    };
    format!("{scheme}://{authority}{target}")
}

/// Returns whether it begins with a scheme: letters, digits, `+`, `-` and `.` before a colon.
fn has_scheme(reference: &str) -> bool {
    reference.split_once(':').is_some_and(|(scheme, _)| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    })
}

/// Removes `.` and `..` (RFC 3986 §5.2.4).
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut parts = path.split('/').skip(1).peekable();
    while let Some(part) = parts.next() {
        let is_last = parts.peek().is_none();
        match part {
            "." | ".." => {
                if part == ".." {
                    kept.pop();
                }
                if is_last {
                    kept.push("");
                }
            }
            other => kept.push(other),
        }
    }
    format!("/{}", kept.join("/"))
}

/// Returns whether two URLs have the same scheme, host and port as they are written.
pub(super) fn same_origin(one: &super::Target, other: &super::Target) -> bool {
    one.is_secure == other.is_secure && one.port == other.port && one.host.eq_ignore_ascii_case(&other.host)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 3986 §5.4, as far as http has them.
    #[test]
    fn references_are_resolved_as_the_standard_says() {
        let base = "http://a/b/c/d;p?q#f";
        for (reference, expected) in [
            ("http://g/x", "http://g/x"),
            ("g", "http://a/b/c/g"),
            ("./g", "http://a/b/c/g"),
            ("g/", "http://a/b/c/g/"),
            ("/g", "http://a/g"),
            ("//g", "http://g"),
            ("?y", "http://a/b/c/d;p?y"),
            ("g?y", "http://a/b/c/g?y"),
            ("#s", "http://a/b/c/d;p?q"),
            ("g#s", "http://a/b/c/g"),
            (";x", "http://a/b/c/;x"),
            ("", "http://a/b/c/d;p?q"),
            (".", "http://a/b/c/"),
            ("./", "http://a/b/c/"),
            ("..", "http://a/b/"),
            ("../g", "http://a/b/g"),
            ("../../g", "http://a/g"),
            ("../../../../g", "http://a/g"),
            ("/./g", "http://a/g"),
            ("/../g", "http://a/g"),
            ("g.", "http://a/b/c/g."),
            ("..g", "http://a/b/c/..g"),
            ("./g/.", "http://a/b/c/g/"),
            ("g/../h", "http://a/b/c/h"),
            ("g?y/../x", "http://a/b/c/g?y/../x"),
            ("/x?next=http://b/", "http://a/x?next=http://b/"),
        ] {
            assert_eq!(resolve(base, reference), expected, "{reference:?}");
        }
        assert_eq!(resolve("https://a", "x"), "https://a/x");
        assert_eq!(resolve("https://a?q", "/x"), "https://a/x");
    }
}
