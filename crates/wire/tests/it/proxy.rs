//! PROXY headers of both versions: what is read, what is refused, and that no cut matters.

use crate::checks;
use proptest::prelude::*;
use ringroad_wire::proxy::{ProxyError, parse, write};
use std::net::SocketAddr;

fn addresses(text: &[u8]) -> Option<(String, String)> {
    let header = parse(text).unwrap().expect("all of it");
    assert_eq!(&text[header.bytes..], b"GET /");
    header.addresses.map(|(source, destination)| (source.to_string(), destination.to_string()))
}

fn told(source: &str, destination: &str) -> Option<(String, String)> {
    Some((source.to_owned(), destination.to_owned()))
}

#[test]
fn a_line_of_version_1_tells_both_addresses() {
    let v4 = b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\r\nGET /";
    assert_eq!(addresses(v4), told("192.0.2.7:56324", "198.51.100.1:443"));
    let v6 = b"PROXY TCP6 2001:db8::7 2001:db8::1 0 65535\r\nGET /";
    assert_eq!(addresses(v6), told("[2001:db8::7]:0", "[2001:db8::1]:65535"));
    assert_eq!(addresses(b"PROXY UNKNOWN ffff::1 whatever 7\r\nGET /"), None);
    assert_eq!(addresses(b"PROXY UNKNOWN\r\nGET /"), None);
}

#[test]
fn a_line_that_is_not_as_specified_is_refused() {
    for line in [
        "PROXY TCP4 192.0.2.7 198.51.100.1 56324\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 56324 443 \r\n",
        "PROXY TCP4 192.0.2.7  198.51.100.1 56324 443\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 56324 65536\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 056 443\r\n",
        "PROXY TCP4 192.0.2.7 198.51.100.1 +56 443\r\n",
        "PROXY TCP4 192.0.2.07 198.51.100.1 56 443\r\n",
        "PROXY TCP4 ::1 ::1 56 443\r\n",
        "PROXY TCP6 192.0.2.7 198.51.100.1 56 443\r\n",
        "PROXY UDP4 192.0.2.7 198.51.100.1 56 443\r\n",
        "PROXY \r\n",
    ] {
        assert_eq!(parse(line.as_bytes()), Err(ProxyError::Line), "{line}");
    }
    let endless = format!("PROXY UNKNOWN {}", "x".repeat(200));
    assert_eq!(parse(endless.as_bytes()), Err(ProxyError::Line));
}

#[test]
fn a_header_of_version_2_tells_both_addresses_and_may_have_extensions() {
    let (source, destination): (SocketAddr, SocketAddr) =
        ("192.0.2.7:56324".parse().unwrap(), "198.51.100.1:443".parse().unwrap());
    let mut bytes = Vec::new();
    write(source, destination, &mut bytes);
    // A type, a length and a value behind the addresses.
    bytes[15] += 5;
    bytes.extend_from_slice(&[0x04, 0, 2, 1, 2]);
    bytes.extend_from_slice(b"GET /");
    assert_eq!(addresses(&bytes), told("192.0.2.7:56324", "198.51.100.1:443"));
    // LOCAL: the balancer asks for itself.
    bytes[12] = 0x20;
    assert_eq!(addresses(&bytes), None);
    // A Unix socket's addresses are none of ours.
    bytes[12..14].copy_from_slice(&[0x21, 0x31]);
    assert_eq!(addresses(&bytes), None);
}

#[test]
fn a_header_of_version_2_that_lies_is_refused() {
    let mut bytes = Vec::new();
    write("1.2.3.4:5".parse().unwrap(), "5.6.7.8:9".parse().unwrap(), &mut bytes);
    let with = |at: usize, value: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        parse(&bytes)
    };
    assert_eq!(with(12, 0x11), Err(ProxyError::Binary), "version 1 in binary");
    assert_eq!(with(12, 0x22), Err(ProxyError::Binary), "an unknown command");
    assert_eq!(with(13, 0x21), Err(ProxyError::Binary), "too short for IPv6");
    assert_eq!(with(14, 0xff), Err(ProxyError::TooLong));
    assert_eq!(with(0, b'G'), Err(ProxyError::Missing));
    assert_eq!(parse(b"GET / HTTP/1.1\r\n"), Err(ProxyError::Missing));
}

proptest! {
    #[test]
    fn no_bytes_depend_on_their_cuts(
        start in prop::sample::select(vec![&b""[..], b"PROXY ", b"PROXY TCP4 ", b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"]),
        rest in prop::collection::vec(prop_oneof![
            prop::sample::select(b" .:\r\n0129fTCP46\x21\0".to_vec()), any::<u8>(),
        ], 0..150),
    ) {
        checks::proxy_header(&[start, &rest].concat());
    }

    #[test]
    fn what_is_written_is_read(source: [u8; 16], destination: [u8; 16], ports: (u16, u16), v4: bool) {
        let address = |ip: [u8; 16], port| match v4 {
            true => SocketAddr::from(([ip[0], ip[1], ip[2], ip[3]], port)),
            false => SocketAddr::from((ip, port)),
        };
        let (source, destination) = (address(source, ports.0), address(destination, ports.1));
        let mut bytes = Vec::new();
        write(source, destination, &mut bytes);
        checks::proxy_header(&bytes);
        prop_assert_eq!(parse(&bytes).unwrap().unwrap().addresses, Some((source, destination)));
        let family = if v4 { "TCP4" } else { "TCP6" };
        let (from, to) = (source.port(), destination.port());
        let line = format!("PROXY {family} {} {} {from} {to}\r\n", source.ip(), destination.ip());
        checks::proxy_header(line.as_bytes());
        prop_assert_eq!(parse(line.as_bytes()).unwrap().unwrap().addresses, Some((source, destination)));
    }
}
