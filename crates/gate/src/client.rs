//! The client's address behind proxies of ours, and the lines that tell it to servers behind.
//!
//! A line counts only if the connection comes from a listed network: any client can write `X-Forwarded-For`.
//! Of a list, the last address that is not a listed proxy is the client: what stands before it was written by
//! the client.

use ipnet::IpNet;
use ringroad_http::Fields;
use std::io::Write as _;
use std::net::{IpAddr, Ipv6Addr};

/// Returns what a client is counted by: its address, of IPv6 its network of 64 bits, since one client has all
/// of that.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (!0 << 64))),
        v4 => v4,
    }
}

/// Where the client's address is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum From {
    /// `X-Forwarded-For`.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
    /// The PROXY protocol, which the listener has read already.
    ProxyProtocol,
    /// One line with one address, such as `X-Real-IP` or `CF-Connecting-IP`.
    Line(String),
}

/// The proxies that are trusted to report the client's address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// Networks of proxies before this server; of none by default.
    pub proxies: Vec<IpNet>,
    /// The line they write.
    pub from: From,
}

impl Trust {
    /// Returns whether a peer is a listed proxy. An IPv4 address in IPv6 form is the IPv4 address.
    pub fn is_proxy(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.proxies.iter().any(|network| network.contains(&address))
    }

    /// Returns the client's address: the peer's, or what a listed proxy says. `lines` gives the values of a
    /// header line, in their order.
    pub fn client<'l, I>(&self, peer: IpAddr, lines: impl Fn(&str) -> I) -> IpAddr
    where
        I: Iterator<Item = &'l [u8]>,
    {
        let peer = peer.to_canonical();
        if !self.is_proxy(peer) {
            return peer;
        }
        let told: Vec<Option<IpAddr>> = match &self.from {
            From::ProxyProtocol => return peer,
            From::XForwardedFor => {
                lines("x-forwarded-for").flat_map(words).map(|word| address(&word)).collect()
            }
            From::Forwarded => lines("forwarded").flat_map(words).map(|word| forwarded_for(&word)).collect(),
            From::Line(name) => lines(name).map(|value| address(&String::from_utf8_lossy(value))).collect(),
        };
        let mut client = peer;
        for one in told.into_iter().rev() {
            // An address that cannot be read hides what is before it.
            let Some(one) = one else { break };
            client = one;
            if !self.is_proxy(one) {
                break;
            }
        }
        client
    }
}

/// Elements of a list in one header line; commas in quotes are part of an element.
fn words(line: &[u8]) -> Vec<String> {
    let line = String::from_utf8_lossy(line);
    let mut words = Vec::new();
    let (mut quoted, mut from) = (false, 0);
    for (at, character) in line.char_indices() {
        match character {
            '"' => quoted = !quoted,
            ',' if !quoted => {
                words.extend(line.get(from..at).map(str::to_owned));
                from = at + 1;
            }
            _ => {}
        }
    }
    words.extend(line.get(from..).map(str::to_owned));
    words
}

/// Returns an address as proxies write it: bare, in brackets, with or without a port.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim().trim_matches('"');
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address.to_canonical());
    }
    if let Ok(address) = text.parse::<std::net::SocketAddr>() {
        return Some(address.ip().to_canonical());
    }
    let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'))?;
    inner.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

/// Returns the `for` of one element of `Forwarded`.
fn forwarded_for(element: &str) -> Option<IpAddr> {
    let pairs = element.split(';').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.rev().find(|(name, _)| name.trim().eq_ignore_ascii_case("for"))?;
    address(value)
}

/// Returns the value of a line that proxies write. Of several lines the last: those before it are of the
/// client, or of proxies further away.
pub fn told<'f>(fields: Fields<'f>, name: &str) -> Option<&'f str> {
    fields.get_all(name).last().and_then(|value| str::from_utf8(value).ok())
}

/// Returns the host that the nearest proxy was asked for (`X-Forwarded-Host`), with its port if one was
/// given. Each proxy adds it behind what its client has sent, which may be anything; what is no host says
/// nothing.
pub fn told_host(fields: Fields<'_>) -> Option<&str> {
    let host = told(fields, "x-forwarded-host")?.rsplit(',').next().unwrap_or_default().trim();
    ringroad_wire::is_host(host.as_bytes()).then_some(host)
}

/// Appends an address, as `Display` writes it. A proxied request has three of them, and the formatter takes
/// ten times as long for an address of IPv4.
pub fn push_address(out: &mut Vec<u8>, address: IpAddr) {
    let IpAddr::V4(address) = address else {
        // Writing into memory does not fail.
        let _ = write!(out, "{address}");
        return;
    };
    let mut text = [0; "255.255.255.255".len()];
    let mut room = text.iter_mut();
    let mut put = |byte: u8| {
        if let Some(place) = room.next() {
            *place = byte;
        }
    };
    for (place, octet) in address.octets().into_iter().enumerate() {
        if place > 0 {
            put(b'.');
        }
        if octet >= 100 {
            put(b'0' + octet / 100);
        }
        if octet >= 10 {
            put(b'0' + octet / 10 % 10);
        }
        put(b'0' + octet % 10);
    }
    let unused = room.len();
    out.extend_from_slice(text.get(..text.len() - unused).unwrap_or_default());
}

/// Appends one element of `Forwarded` about a client (RFC 7239 §4). What is more than a token is quoted.
pub fn push_forwarded(out: &mut Vec<u8>, client: Option<IpAddr>, host: Option<&str>, scheme: &str) {
    out.extend_from_slice(b"for=");
    match client.map(|client| client.to_canonical()) {
        Some(address @ IpAddr::V4(_)) => push_address(out, address),
        Some(address @ IpAddr::V6(_)) => {
            out.extend_from_slice(b"\"[");
            push_address(out, address);
            out.extend_from_slice(b"]\"");
        }
        None => out.extend_from_slice(b"unknown"),
    }
    if let Some(host) = host.filter(|host| !host.contains(['"', '\\'])) {
        out.extend_from_slice(b";host=\"");
        out.extend_from_slice(host.as_bytes());
        out.push(b'"');
    }
    if !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        out.extend_from_slice(b";proto=");
        out.extend_from_slice(scheme.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn trust(from: From) -> Trust {
        Trust { proxies: vec!["10.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()], from }
    }

    fn client(trust: &Trust, peer: &str, name: &str, values: &[&str]) -> String {
        let lines = |wanted: &str| {
            let same = wanted.eq_ignore_ascii_case(name);
            values.iter().filter(move |_| same).map(|value| value.as_bytes()).collect::<Vec<_>>().into_iter()
        };
        trust.client(peer.parse().unwrap(), lines).to_string()
    }

    #[test]
    fn a_line_counts_only_from_a_listed_proxy() {
        let trust = trust(From::XForwardedFor);
        let told = |peer: &str, values: &[&str]| client(&trust, peer, "X-Forwarded-For", values);
        assert_eq!(told("192.0.2.9", &["1.1.1.1"]), "192.0.2.9");
        assert_eq!(told("10.0.0.1", &["1.1.1.1"]), "1.1.1.1");
        assert_eq!(told("::ffff:10.0.0.1", &["1.1.1.1"]), "1.1.1.1");
        assert_eq!(told("10.0.0.1", &[]), "10.0.0.1");
    }

    #[test]
    fn of_a_list_the_last_address_that_is_no_proxy_counts() {
        let trust = trust(From::XForwardedFor);
        let told = |values: &[&str]| client(&trust, "10.0.0.1", "X-Forwarded-For", values);
        assert_eq!(told(&["6.6.6.6, 1.1.1.1, 10.0.0.2"]), "1.1.1.1");
        assert_eq!(told(&["6.6.6.6", "1.1.1.1", "10.0.0.2"]), "1.1.1.1");
        assert_eq!(told(&["10.0.0.3, 10.0.0.2"]), "10.0.0.3");
        assert_eq!(told(&["6.6.6.6, unknown, 10.0.0.2"]), "10.0.0.2");
        assert_eq!(told(&["[2001:db8::1]:80, 10.0.0.2"]), "2001:db8::1");
        assert_eq!(told(&["1.1.1.1:5000"]), "1.1.1.1");
    }

    #[test]
    fn forwarded_is_read_as_its_rfc_writes_it() {
        let trust = trust(From::Forwarded);
        let told = |values: &[&str]| client(&trust, "10.0.0.1", "Forwarded", values);
        assert_eq!(told(&["for=1.1.1.1;host=\"a,b\", for=10.0.0.2"]), "1.1.1.1");
        assert_eq!(told(&["For=\"[2001:db8::1]:80\""]), "2001:db8::1");
        assert_eq!(told(&["for=evil", "for=1.1.1.1"]), "1.1.1.1");
        assert_eq!(told(&["for=_hidden"]), "10.0.0.1");
    }

    #[test]
    fn a_single_line_may_have_any_name() {
        let trust = trust(From::Line("X-Real-IP".to_owned()));
        assert_eq!(client(&trust, "::1", "X-Real-IP", &["1.1.1.1"]), "1.1.1.1");
    }

    #[test]
    fn an_element_of_forwarded_is_written_in_the_rfcs_form() {
        let v4 = "192.0.2.1".parse().ok();
        let v6 = "2001:db8::1".parse().ok();
        let forwarded = |client, host, scheme: &str| {
            let mut out = Vec::new();
            push_forwarded(&mut out, client, host, scheme);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(forwarded(v4, Some("a:80"), "http"), "for=192.0.2.1;host=\"a:80\";proto=http");
        assert_eq!(forwarded(v6, None, "https"), "for=\"[2001:db8::1]\";proto=https");
        assert_eq!(forwarded(None, None, "a;b"), "for=unknown");
    }

    #[test]
    fn an_address_is_written_as_display_writes_it() {
        let octets = (0..=255).map(|octet| IpAddr::from([octet, 255 - octet, 0, octet / 2]));
        let longer = ["::", "::1", "2001:db8::1", "::ffff:10.0.0.1"].map(|text| text.parse().unwrap());
        for address in octets.chain(longer) {
            let mut out = Vec::new();
            push_address(&mut out, address);
            assert_eq!(String::from_utf8(out).unwrap(), address.to_string());
        }
    }
}
