//! Places that an answer names: those of the server behind become places of this server.
//!
//! A server that knows nothing of a proxy before it names its own address: nginx answers `/sub` with
//! `Location: http://127.0.0.1:9399/sub/`, which no client reaches. Of such a URL the address is taken away,
//! and its path is mapped as the request's was, in reverse. What names another origin stays as it is, and so
//! do places without an address: a server may know below which path it is seen.

use crate::config::{Member, Proxy};
use ringroad_engine::net::split_zone;
use ringroad_gate::flow::host;
use ringroad_gate::path;
use ringroad_gate::upstream::Address;
use ringroad_http::{Request, as_uri};
use ringroad_wire::after_scheme;
use std::borrow::Cow;
use std::net::IpAddr;

/// How a server behind may name itself, and which path here stands for which path there.
#[derive(Debug)]
pub(super) struct Places<'r> {
    /// TLS is spoken with it: its URLs are `https`.
    secure: bool,
    servers: &'r [Member],
    /// The `Host` that was sent to it, where that is not the client's.
    host: Option<&'r str>,
    /// Beginnings of paths: behind, and the one here that stands for it. Without a slash at their ends they
    /// are whole paths.
    prefixes: (Cow<'r, str>, Cow<'r, str>),
}

impl<'r> Places<'r> {
    /// Takes the settings of a route, and a request that was sent for the path `sent`. `original` is the
    /// target before steps have changed it, and `below` the length of the route's path. `None`: the way of
    /// the path has no reverse. Whether the route maps places for clients is asked by the caller.
    pub(super) fn of(
        settings: &'r Proxy,
        request: &'r Request,
        original: Option<&'r str>,
        below: usize,
        sent: &'r str,
    ) -> Option<Places<'r>> {
        let sent = sent.split('?').next().unwrap_or_default();
        let asked = original.map_or(request.path(), path_of);
        let prefixes = match path::beginnings(asked, below, sent) {
            _ if settings.path.is_none() && asked == sent => ("/".into(), "/".into()),
            Some((behind, here)) => (behind.into(), as_uri(here)),
            // The path that a step has written is asked for as it is: another one is taken for such a path.
            None if settings.path.is_none() => ("/".into(), "/".into()),
            None => return None,
        };
        let secure = settings.to.speaks.tls.is_some();
        let host = match (&settings.host, request.authority()) {
            // The server names the public host: it knows where it is seen.
            (Some(host), Some(public)) if same_host(host, public, secure) => None,
            (Some(host), _) => Some(host.as_str()),
            (None, None) => Some(super::lines::NO_HOST),
            (None, Some(_)) => None,
        };
        Some(Places { secure, servers: &settings.to.servers, host, prefixes })
    }

    /// Returns the value of a header line with the server's own address taken away; `None` where it stays as
    /// it is.
    pub(super) fn mapped(&self, name: &[u8], value: &[u8]) -> Option<String> {
        if !is_of_a_place(name) {
            return None;
        }
        let value = str::from_utf8(value).ok()?;
        if !name.eq_ignore_ascii_case(b"refresh") {
            return self.place(value);
        }
        let (before, url, behind) = refresh(value)?;
        Some(format!("{before}{}{behind}", self.place(url)?))
    }

    /// Path and query here of what `Location` or `Content-Location` names, where that is told in the words of
    /// the server behind: its own URL, or a path there.
    pub(super) fn here(&self, value: &[u8]) -> Option<String> {
        let value = str::from_utf8(value).ok()?;
        let target = match value.starts_with('/') && !value.starts_with("//") {
            true => self.here_of(value),
            false => self.place(value),
        }?;
        let end = target.find('#').unwrap_or(target.len());
        target.get(..end).map(str::to_owned)
    }

    /// Returns a URL of the server behind as a place here; `None`: it is none, or has no place here.
    fn place(&self, url: &str) -> Option<String> {
        // Browsers take tabs and line breaks out of a URL, so that its parts are others than they seem.
        if url.bytes().any(|byte| byte.is_ascii_control()) {
            return None;
        }
        let scheme = if self.secure { "https" } else { "http" };
        let rest = after_scheme(url, scheme).or_else(|| url.strip_prefix("//"))?;
        let (authority, place) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if !self.is_own(authority) {
            return None;
        }
        self.here_of(place)
    }

    /// Returns what a path behind, with its query, is here.
    fn here_of(&self, place: &str) -> Option<String> {
        let (path, tail) = place.split_at(place.find(['?', '#']).unwrap_or(place.len()));
        let path = if path.is_empty() { "/" } else { path };
        let (behind, here) = &self.prefixes;
        let below = path.strip_prefix(&**behind)?;
        // A route of one path has that path alone.
        let fits = below.is_empty() || behind.ends_with('/');
        fits.then(|| path::location(&format!("{here}{below}"), None) + tail)
    }

    /// Returns whether an authority is that of a server of the group, or the one that it was asked for.
    fn is_own(&self, authority: &str) -> bool {
        let is_of = |server: &Member| match &server.address {
            Address::Tcp { host, port } => parts(authority, self.secure)
                .is_some_and(|(named, named_port)| named_port == *port && same_name(named, host)),
            Address::Unix(_) => false,
        };
        self.host.is_some_and(|host| same_host(authority, host, self.secure))
            || self.servers.iter().any(is_of)
    }
}

/// Returns whether a header line of this name has a place as its value.
pub(super) fn is_of_a_place(name: &[u8]) -> bool {
    ["location", "content-location", "refresh"].iter().any(|one| name.eq_ignore_ascii_case(one.as_bytes()))
}

/// Returns the path of a target, which may be a whole URL.
fn path_of(target: &str) -> &str {
    let from = match target.split_once("://") {
        Some((scheme, rest)) if !scheme.contains(['/', '?']) => {
            rest.find(['/', '?']).and_then(|at| rest.get(at..)).unwrap_or_default()
        }
        _ => target,
    };
    from.split('?').next().unwrap_or_default()
}

/// Returns the host of an authority, without brackets, and its port, which may be the scheme's own. `None`:
/// it has user information, or is no host.
fn parts(authority: &str, secure: bool) -> Option<(&str, u16)> {
    let standard = if secure { 443 } else { 80 };
    let host = host(authority);
    let port = authority.get(host.len()..)?.strip_prefix(':').unwrap_or_default();
    let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
    let port = if port.is_empty() { standard } else { port.parse().ok().filter(|_| is_number)? };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    (!bare.is_empty() && !bare.contains('@')).then_some((bare, port))
}

fn same_host(one: &str, other: &str, secure: bool) -> bool {
    match (parts(one, secure), parts(other, secure)) {
        (Some((one, one_port)), Some((other, other_port))) => one_port == other_port && same_name(one, other),
        _ => false,
    }
}

/// Returns whether two names, or addresses without brackets, are the same. A zone is of this machine and
/// never sent.
fn same_name(one: &str, other: &str) -> bool {
    let address = |text: &str| match split_zone(text) {
        Some((address, _)) => Some(IpAddr::V6(address)),
        None => text.parse::<IpAddr>().ok(),
    };
    one.eq_ignore_ascii_case(other) || address(one).is_some_and(|one| address(other) == Some(one))
}

/// Takes `5; url=URL` apart: what stands before the URL, the URL, and what stands behind it, as its quote.
fn refresh(value: &str) -> Option<(&str, &str, &str)> {
    let is_blank = |c: char| c == ' ' || c == '\t';
    let from = value.find([';', ','])? + 1;
    let word = value.get(from..)?.trim_start_matches(is_blank);
    let named = word.get(..3).filter(|name| name.eq_ignore_ascii_case("url")).and_then(|_| word.get(3..))?;
    let url = named.trim_start_matches(is_blank).strip_prefix('=')?.trim_start_matches(is_blank);
    let (url, end) = match url.chars().next().filter(|first| matches!(first, '"' | '\'')) {
        Some(quote) => {
            let inner = url.get(1..)?;
            (inner, inner.find(quote).unwrap_or(inner.len()))
        }
        None => (url, url.trim_end_matches(is_blank).len()),
    };
    let begin = value.len() - url.len();
    Some((value.get(..begin)?, url.get(..end)?, url.get(end..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers() -> Vec<Member> {
        let tcp = |host: &str, port| Member::new(Address::Tcp { host: host.to_owned(), port });
        let socket = Member::new(Address::Unix("/run/app.sock".into()));
        vec![tcp("10.0.0.1", 9399), tcp("App.internal", 80), tcp("fe80::1%eth0", 81), socket]
    }

    fn mapped(host: Option<&str>, (behind, here): (&str, &str), name: &str, value: &str) -> String {
        let servers = servers();
        let prefixes = (behind.into(), here.into());
        let places = Places { secure: false, servers: &servers, host, prefixes };
        places.mapped(name.as_bytes(), value.as_bytes()).unwrap_or_else(|| value.to_owned())
    }

    #[test]
    fn the_address_of_a_server_behind_is_taken_away_in_every_spelling() {
        for (url, expected) in [
            ("http://10.0.0.1:9399/sub/", "/sub/"),
            ("HTTP://10.0.0.1:9399/a?b=http://c#d", "/a?b=http://c#d"),
            ("//10.0.0.1:9399/a", "/a"),
            ("http://10.0.0.1:09399/a", "/a"),
            ("http://10.0.0.1:9399", "/"),
            ("http://10.0.0.1:9399?q", "/?q"),
            ("http://10.0.0.1:9399#f", "/#f"),
            ("http://APP.internal/a", "/a"),
            ("http://app.internal:80/a", "/a"),
            ("http://app.internal:/a", "/a"),
            ("http://[fe80:0::1]:81/a", "/a"),
            ("http://10.0.0.1:9399/a b/\u{e9}", "/a b/\u{e9}"),
            // Two slashes would name another host.
            ("http://10.0.0.1:9399//evil.example/x", "/evil.example/x"),
            ("http://10.0.0.1:9399/\\evil.example/x", "/evil.example/x"),
        ] {
            assert_eq!(mapped(None, ("/", "/"), "Location", url), expected, "{url}");
        }
    }

    #[test]
    fn what_names_another_origin_or_none_stays() {
        for url in [
            "/sub/",
            "sub/",
            "?q",
            "",
            "http://example.org/a",
            "http://10.0.0.1/a",
            "http://10.0.0.1:9398/a",
            "http://10.0.0.1:+9399/a",
            "http://10.0.0.1:99399/a",
            "https://10.0.0.1:9399/a",
            "http://app.internal.example/a",
            "http://app.internal:443/a",
            "http://user@10.0.0.1:9399/a",
            "http://10.0.0.1:9399@evil.example/a",
            "http://10.0.0.1:9399\\@evil.example/a",
            "http:/10.0.0.1:9399/a",
            "http://10.0.0.1:9399/\t/evil.example",
            "http://:9399/",
            "ftp://10.0.0.1:9399/a",
            "/a?next=http://10.0.0.1:9399/",
        ] {
            assert_eq!(mapped(None, ("/", "/"), "Location", url), url);
        }
        let url = "http://10.0.0.1:9399/a";
        assert_eq!(mapped(None, ("/", "/"), "Link", url), url);
    }

    #[test]
    fn a_url_of_https_has_a_port_of_its_own() {
        let servers = vec![Member::new(Address::Tcp { host: "app.internal".to_owned(), port: 443 })];
        let prefixes = ("/".into(), "/".into());
        let places = Places { secure: true, servers: &servers, host: None, prefixes };
        for (url, expected) in [
            ("https://app.internal/a", Some("/a")),
            ("https://app.internal:443/a", Some("/a")),
            ("//app.internal/a", Some("/a")),
            ("http://app.internal/a", None),
            ("http://app.internal:443/a", None),
        ] {
            assert_eq!(places.mapped(b"location", url.as_bytes()).as_deref(), expected, "{url}");
        }
    }

    #[test]
    fn the_host_that_a_server_was_asked_for_is_its_own() {
        for (host, url, expected) in [
            ("app.example:81", "http://app.example:81/a", "/a"),
            ("app.example:81", "http://app.example/a", "http://app.example/a"),
            ("app.example", "http://app.example:80/a", "/a"),
            ("[::1]:81", "http://[0:0::1]:81/a", "/a"),
            ("localhost", "http://LOCALHOST/a", "/a"),
        ] {
            assert_eq!(mapped(Some(host), ("/", "/"), "Location", url), expected, "{host} {url}");
        }
    }

    #[test]
    fn a_path_is_mapped_in_reverse() {
        let own = "http://10.0.0.1:9399";
        for (behind, here, path, expected) in [
            ("/v1/", "/api/", "/v1/a/?q", Some("/api/a/?q")),
            ("/v1/", "/api/", "/v1/", Some("/api/")),
            ("/", "/api/", "/a", Some("/api/a")),
            ("/", "/api/", "", Some("/api/")),
            ("/", "/api/", "?q", Some("/api/?q")),
            ("/v1/", "/", "/v1//evil.example", Some("/evil.example")),
            ("/two", "/one", "/two?q#f", Some("/one?q#f")),
            // These have no place here.
            ("/v1/", "/api/", "/v1", None),
            ("/v1/", "/api/", "/v10/a", None),
            ("/v1/", "/api/", "/login", None),
            ("/two", "/one", "/two/", None),
            ("/two", "/one", "/twofold", None),
        ] {
            let url = format!("{own}{path}");
            let expected = expected.unwrap_or(&url);
            assert_eq!(mapped(None, (behind, here), "Location", &url), expected, "{behind} {here} {path}");
        }
    }

    #[test]
    fn what_stands_before_the_part_below_the_route_is_found() {
        for (asked, below, sent, expected) in [
            ("/api/a/b", "/api/", "/v1/a/b", Some(("/v1/", "/api/"))),
            ("/%61pi/a", "/api/", "/v1/a", Some(("/v1/", "/%61pi/"))),
            ("//api//a", "/api/", "/v1//a", Some(("/v1/", "//api/"))),
            ("/api/", "/api/", "/", Some(("/", "/api/"))),
            ("/one", "/one", "/two", Some(("/two", "/one"))),
            ("/a", "/", "/base/a", Some(("/base/", "/"))),
            // Steps have written another path.
            ("/api/a", "/api/", "/index.php", None),
            ("/api/", "/api/", "/index.php", None),
            ("/one", "/one", "/two/", None),
        ] {
            assert_eq!(path::beginnings(asked, below.len(), sent), expected, "{asked} {sent}");
        }
        for (target, path) in
            [("/a?b", "/a"), ("http://h/a?b", "/a"), ("http://h?b", ""), ("/a?u=x://y/z", "/a")]
        {
            assert_eq!(path_of(target), path);
        }
    }

    #[test]
    fn the_url_of_a_refresh_is_mapped_and_the_rest_of_it_stays() {
        for (value, expected) in [
            ("5; url=http://10.0.0.1:9399/a", "5; url=/a"),
            ("0;URL = \"http://10.0.0.1:9399/a\"", "0;URL = \"/a\""),
            ("0, url='http://10.0.0.1:9399/a' x", "0, url='/a' x"),
            ("0; url=\"http://10.0.0.1:9399/a", "0; url=\"/a"),
            ("5", "5"),
            ("5; url=", "5; url="),
            ("5; url=/a", "5; url=/a"),
            ("5; ur\u{e9}=http://10.0.0.1:9399/a", "5; ur\u{e9}=http://10.0.0.1:9399/a"),
            ("5; url=http://example.org/", "5; url=http://example.org/"),
        ] {
            assert_eq!(mapped(None, ("/", "/"), "refresh", value), expected, "{value}");
        }
    }
}
