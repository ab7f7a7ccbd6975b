//! Which route answers a request: by host, path, method, header and query.
//!
//! The most specific path counts first: an exact one, then the longest prefix. Of equal paths an exact host
//! comes before a suffix (`*.example.org`), and that before a route for every host; then the route with more
//! conditions; then the one written first. A lookup walks the path's segments once for each kind of host, so
//! its cost does not grow with the number of routes.

use std::collections::HashMap;

/// When a route applies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Match {
    /// Names in lower case: `example.org`, or `*.example.org` for every name below. Empty: every host.
    pub hosts: Vec<String>,
    /// `/files/` takes everything below, `/robots.txt` that path alone.
    pub path: String,
    /// Methods as they are written. Empty: all; `GET` includes `HEAD`.
    pub methods: Vec<String>,
    /// Header lines that must be there, with a value or with any.
    pub headers: Vec<(String, Option<String>)>,
    /// Names of the query that must be there, with a value or with any.
    pub query: Vec<(String, Option<String>)>,
    /// The share of clients that it applies to.
    pub split: Option<Split>,
}

/// A share of clients. The same client is always in the same share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Split {
    /// Parts of a million: from the first on, below the second.
    pub parts: (u32, u32),
    /// What clients are told apart by.
    pub by: SplitBy,
}

/// What clients are told apart by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SplitBy {
    /// The address.
    Client,
    /// A header line; without it the address.
    Header(String),
    /// A cookie; without it the address.
    Cookie(String),
}

impl Split {
    /// Returns whether a client with this key is in the share.
    pub fn takes(&self, key: &[u8]) -> bool {
        // FNV-1a and a mixer: the same on all servers and in all versions, so that a client stays.
        let hash = key.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        let hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        let part = ((u128::from(hash ^ (hash >> 33)) * 1_000_000) >> 64) as u32;
        (self.parts.0..self.parts.1).contains(&part)
    }
}

impl Match {
    /// Returns a route for every request below `path`.
    pub fn path(path: impl Into<String>) -> Match {
        Match { path: path.into(), ..Match::default() }
    }

    fn conditions(&self) -> usize {
        usize::from(!self.methods.is_empty())
            + self.headers.len()
            + self.query.len()
            + usize::from(self.split.is_some())
    }
}

/// What a lookup needs to know of a request.
pub trait Subject {
    /// Returns the host that is asked for, without port, in any case.
    fn host(&self) -> &str;
    /// Returns the method as it was sent.
    fn method(&self) -> &str;
    /// Returns whether a header line `name` is there, with this value if one is given.
    fn has_header(&self, name: &str, value: Option<&str>) -> bool;
    /// Returns whether the query has `name`, with this value if one is given.
    fn has_query(&self, name: &str, value: Option<&str>) -> bool;
    /// Returns whether the client is in a share of clients. Without clients, none is.
    fn is_in(&self, split: &Split) -> bool {
        let _ = split;
        false
    }
}

/// What a lookup found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found<T> {
    /// A route.
    Route(T),
    /// Routes for this path, but none for this method: those they have.
    OtherMethods(Vec<String>),
    /// None; the same path with a slash at its end has one.
    WithSlash,
    /// None.
    Nothing,
}

/// Routes of all hosts.
#[derive(Clone, Debug)]
pub struct Routes<T> {
    every: Node<T>,
    exact: HashMap<String, Node<T>>,
    /// By the name behind `*.`.
    below: HashMap<String, Node<T>>,
}

/// A segment of paths, with the routes that end here.
#[derive(Clone, Debug)]
struct Node<T> {
    /// Routes of exactly this path.
    exact: Vec<Entry<T>>,
    /// Routes of this path with a slash, and of everything below.
    prefix: Vec<Entry<T>>,
    children: HashMap<Box<[u8]>, Node<T>>,
}

impl<T> Default for Node<T> {
    fn default() -> Node<T> {
        Node { exact: Vec::new(), prefix: Vec::new(), children: HashMap::new() }
    }
}

#[derive(Clone, Debug)]
struct Entry<T> {
    when: Match,
    order: usize,
    target: T,
}

impl<T: Clone> Default for Routes<T> {
    fn default() -> Routes<T> {
        Routes { every: Node::default(), exact: HashMap::new(), below: HashMap::new() }
    }
}

impl<T: Clone> Routes<T> {
    /// Routes in the order in which they are written.
    pub fn new(routes: impl IntoIterator<Item = (Match, T)>) -> Routes<T> {
        let mut all = Routes::default();
        for (order, (when, target)) in routes.into_iter().enumerate() {
            let entry = Entry { when: when.clone(), order, target };
            if when.hosts.is_empty() {
                all.every.add(entry);
                continue;
            }
            for host in &when.hosts {
                let (table, name) = match host.strip_prefix("*.") {
                    Some(name) => (&mut all.below, name),
                    None => (&mut all.exact, host.as_str()),
                };
                table.entry(name.to_owned()).or_default().add(entry.clone());
            }
        }
        all
    }

    /// Returns the route of a request for a decoded path.
    pub fn find(&self, path: &[u8], subject: &impl Subject) -> Found<T> {
        let mut search = Search { path, subject, best: None, methods: Vec::new(), with_slash: 0 };
        if !self.exact.is_empty() || !self.below.is_empty() {
            let lower = subject.host().to_ascii_lowercase();
            let lower = lower.strip_suffix('.').unwrap_or(&lower);
            if let Some(node) = self.exact.get(lower) {
                search.within(node, 0);
            }
            let mut rest = lower;
            let mut rank = 1;
            while let Some((_, parent)) = rest.split_once('.') {
                if let Some(node) = self.below.get(parent) {
                    search.within(node, rank);
                }
                (rest, rank) = (parent, rank + 1);
            }
        }
        search.within(&self.every, usize::MAX);
        match search.best {
            // A route of the path itself, or of all of it but the slash, is meant rather than one above it.
            Some(best) if best.rank.0 >= search.with_slash => Found::Route(best.target.clone()),
            _ if search.with_slash > 0 => Found::WithSlash,
            Some(best) => Found::Route(best.target.clone()),
            None if !search.methods.is_empty() => {
                search.methods.sort();
                search.methods.dedup();
                Found::OtherMethods(search.methods)
            }
            None => Found::Nothing,
        }
    }
}

impl<T> Node<T> {
    fn add(&mut self, entry: Entry<T>) {
        let path = entry.when.path.clone();
        let (segments, below) = match path.strip_suffix('/') {
            Some(segments) => (segments, true),
            None => (path.as_str(), false),
        };
        let mut node = self;
        for segment in segments.split('/').skip(1) {
            node = node.children.entry(segment.as_bytes().into()).or_default();
        }
        let list = if below { &mut node.prefix } else { &mut node.exact };
        list.push(entry);
        list.sort_by_key(|entry| (std::cmp::Reverse(entry.when.conditions()), entry.order));
    }
}

/// How good a match is; the largest counts.
type Rank = (usize, bool, std::cmp::Reverse<usize>, usize, std::cmp::Reverse<usize>);

struct Search<'s, T, S> {
    path: &'s [u8],
    subject: &'s S,
    best: Option<Best<'s, T>>,
    methods: Vec<String>,
    /// Segments of the path that match a prefix route except for its final slash; 0: there is no such route.
    with_slash: usize,
}

struct Best<'s, T> {
    rank: Rank,
    target: &'s T,
}

impl<'s, T, S: Subject> Search<'s, T, S> {
    /// Looks through one host's routes; `host` is smaller for a more specific host.
    fn within(&mut self, root: &'s Node<T>, host: usize) {
        let (segments, slash) = match self.path.strip_suffix(b"/") {
            Some(segments) => (segments, true),
            None => (self.path, false),
        };
        let mut node = root;
        // The prefix of the root is "/", which takes every path.
        self.list(&root.prefix, 0, false, host);
        if root.children.is_empty() {
            return;
        }
        let mut left = segments.split(|byte| *byte == b'/').skip(1).peekable();
        let mut depth = 0;
        while let Some(segment) = left.next() {
            let Some(next) = node.children.get(segment) else { return };
            (node, depth) = (next, depth + 1);
            if left.peek().is_some() || slash {
                self.list(&node.prefix, depth, false, host);
            } else {
                self.list(&node.exact, depth, true, host);
                if !node.prefix.is_empty() {
                    self.with_slash = self.with_slash.max(depth);
                }
            }
        }
    }

    fn list(&mut self, entries: &'s [Entry<T>], depth: usize, exact: bool, host: usize) {
        for entry in entries {
            let Match { methods, headers, query, split, .. } = &entry.when;
            let conditions = entry.when.conditions();
            let rank = (depth, exact, std::cmp::Reverse(host), conditions, std::cmp::Reverse(entry.order));
            if self.best.as_ref().is_some_and(|best| best.rank >= rank) {
                continue;
            }
            if conditions == 0 {
                self.best = Some(Best { rank, target: &entry.target });
                continue;
            }
            let others = headers.iter().all(|(name, value)| self.subject.has_header(name, value.as_deref()))
                && query.iter().all(|(name, value)| self.subject.has_query(name, value.as_deref()))
                && split.as_ref().is_none_or(|split| self.subject.is_in(split));
            if !others {
                continue;
            }
            let takes = |own: &String| {
                let method = self.subject.method();
                own == method || own == "GET" && method == "HEAD"
            };
            if methods.is_empty() || methods.iter().any(takes) {
                self.best = Some(Best { rank, target: &entry.target });
            } else {
                self.methods.extend(methods.iter().cloned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Request {
        host: String,
        method: &'static str,
        headers: Vec<(&'static str, &'static str)>,
        query: Vec<(&'static str, &'static str)>,
    }

    fn has(list: &[(&str, &str)], name: &str, value: Option<&str>) -> bool {
        list.iter().any(|(own, is)| own.eq_ignore_ascii_case(name) && value.is_none_or(|value| value == *is))
    }

    impl Subject for Request {
        fn host(&self) -> &str {
            &self.host
        }
        fn method(&self) -> &str {
            self.method
        }
        fn has_header(&self, name: &str, value: Option<&str>) -> bool {
            has(&self.headers, name, value)
        }
        fn has_query(&self, name: &str, value: Option<&str>) -> bool {
            has(&self.query, name, value)
        }
    }

    fn on(hosts: &[&str], path: &str) -> Match {
        Match { hosts: hosts.iter().map(|host| (*host).to_owned()).collect(), ..Match::path(path) }
    }

    fn find(routes: &Routes<&'static str>, host: &str, path: &str) -> Found<&'static str> {
        let request = Request { host: host.to_owned(), method: "GET", ..Request::default() };
        routes.find(path.as_bytes(), &request)
    }

    #[test]
    fn the_longest_path_counts_and_an_exact_one_before_a_prefix() {
        let routes = Routes::new([
            (Match::path("/"), "root"),
            (Match::path("/a/"), "a"),
            (Match::path("/a/b/"), "ab"),
            (Match::path("/a/b"), "exact"),
            (Match::path("/robots.txt"), "robots"),
        ]);
        for (path, expected) in [
            ("/", "root"),
            ("/x", "root"),
            ("/ab", "root"),
            ("/a/", "a"),
            ("/a/x/y", "a"),
            ("/a/b", "exact"),
            ("/a/b/", "ab"),
            ("/a/b/c", "ab"),
            ("/robots.txt", "robots"),
            ("/robots.txt/", "root"),
            ("/robots.txtx", "root"),
        ] {
            assert_eq!(find(&routes, "h", path), Found::Route(expected), "{path}");
        }
        assert_eq!(find(&routes, "h", "/a"), Found::WithSlash);
    }

    #[test]
    fn without_a_route_above_it_nothing_is_found() {
        let routes = Routes::new([(Match::path("/a/b/"), "ab")]);
        assert_eq!(find(&routes, "h", "/a"), Found::Nothing);
        assert_eq!(find(&routes, "h", "/a/"), Found::Nothing);
        assert_eq!(find(&routes, "h", "/a/b"), Found::WithSlash);
    }

    #[test]
    fn a_more_specific_host_counts_and_a_longer_path_before_it() {
        let routes = Routes::new([
            (Match::path("/"), "every"),
            (Match::path("/healthz"), "health"),
            (on(&["example.org"], "/"), "exact"),
            (on(&["*.example.org"], "/"), "below"),
            (on(&["*.a.example.org"], "/"), "below a"),
        ]);
        for (host, path, expected) in [
            ("example.org", "/", "exact"),
            ("EXAMPLE.org.", "/x", "exact"),
            ("www.example.org", "/", "below"),
            ("x.y.example.org", "/", "below"),
            ("x.a.example.org", "/", "below a"),
            ("a.example.org", "/", "below"),
            ("other.org", "/", "every"),
            ("notexample.org", "/", "every"),
            ("", "/", "every"),
            ("example.org", "/healthz", "health"),
        ] {
            assert_eq!(find(&routes, host, path), Found::Route(expected), "{host} {path}");
        }
    }

    #[test]
    fn methods_headers_and_query_choose_between_routes_of_one_path() {
        let with = |methods: &[&str], headers: &[(&str, Option<&str>)], query: &[(&str, Option<&str>)]| {
            let own = |list: &[(&str, Option<&str>)]| {
                list.iter().map(|(name, value)| ((*name).to_owned(), value.map(str::to_owned))).collect()
            };
            let methods = methods.iter().map(|method| (*method).to_owned()).collect();
            Match { methods, headers: own(headers), query: own(query), ..Match::path("/a") }
        };
        let routes = Routes::new([
            (with(&["GET"], &[], &[]), "get"),
            (with(&["POST", "PUT"], &[], &[]), "post"),
            (with(&["GET"], &[("X-Canary", Some("1"))], &[]), "canary"),
            (with(&["GET"], &[], &[("preview", None)]), "preview"),
        ]);
        let request = |method| Request { method, ..Request::default() };
        let find = |request: Request| routes.find(b"/a", &request);
        assert_eq!(find(request("GET")), Found::Route("get"));
        assert_eq!(find(request("HEAD")), Found::Route("get"));
        assert_eq!(find(request("PUT")), Found::Route("post"));
        let canary = Request { headers: vec![("x-canary", "1")], ..request("GET") };
        assert_eq!(find(canary), Found::Route("canary"));
        assert_eq!(find(Request { headers: vec![("x-canary", "2")], ..request("GET") }), Found::Route("get"));
        assert_eq!(find(Request { query: vec![("preview", "")], ..request("GET") }), Found::Route("preview"));
        let methods = ["GET", "POST", "PUT"].map(str::to_owned).to_vec();
        assert_eq!(find(request("DELETE")), Found::OtherMethods(methods));
    }

    #[test]
    fn a_request_that_no_longer_path_takes_goes_to_a_shorter_one() {
        let only_post = Match { methods: vec!["POST".to_owned()], ..Match::path("/a/b/") };
        let routes = Routes::new([(Match::path("/"), "root"), (only_post, "post")]);
        assert_eq!(find(&routes, "h", "/a/b/c"), Found::Route("root"));
    }

    #[test]
    fn a_share_of_clients_is_as_large_as_it_says_and_two_shares_are_apart() {
        let share = |from, to| Split { parts: (from, to), by: SplitBy::Client };
        let (one, two) = (share(0, 100_000), share(100_000, 300_000));
        let keys: Vec<String> =
            (0..100_000).map(|number| format!("10.0.{}.{}", number / 256, number % 256)).collect();
        let count = |split: &Split| keys.iter().filter(|key| split.takes(key.as_bytes())).count();
        assert!((9_500..10_500).contains(&count(&one)), "{}", count(&one));
        assert!((19_300..20_700).contains(&count(&two)), "{}", count(&two));
        assert!(!keys.iter().any(|key| one.takes(key.as_bytes()) && two.takes(key.as_bytes())));
        assert_eq!((count(&share(0, 1_000_000)), count(&share(0, 0))), (100_000, 0));
    }

    #[test]
    fn of_equal_routes_the_first_counts() {
        let routes = Routes::new([(Match::path("/a"), "one"), (Match::path("/a"), "two")]);
        assert_eq!(find(&routes, "h", "/a"), Found::Route("one"));
    }
}
