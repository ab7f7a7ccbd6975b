//! The PROXY protocol, versions 1 and 2: what a load balancer says of its client before the client's first
//! byte.
//!
//! Specified in haproxy's `doc/proxy-protocol.txt`. The header is believed, so a caller parses it only on
//! connections from trusted peers, and on those it must be there: guessing whether there is one would let
//! any client claim any address. Start at [`parse`].

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Longest header that is taken, in bytes: 536 is what an unfragmented segment holds, and 4096 leaves room
/// for the extensions of version 2.
pub const PROXY_BYTES_MAX: usize = 4096;

/// Longest header of version 1, with its line end.
const LINE_BYTES_MAX: usize = 107;

const LINE_START: &[u8] = b"PROXY ";

/// What version 2 begins with.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// Signature, version and command, family, length.
const FIXED_BYTES: usize = 16;

/// A header that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyHeader {
    /// Addresses of the client and of what it connected to. `None`: the connection is the balancer's own (a
    /// health check), or of a kind that has no such addresses.
    pub addresses: Option<(SocketAddr, SocketAddr)>,
    /// How many bytes the header takes: what is behind them is the client's.
    pub bytes: usize,
}

/// Why bytes are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProxyError {
    /// They begin like neither version.
    Missing,
    /// Version 1: the line is not as specified.
    Line,
    /// Version 2: another version, an unknown command, or an address that is shorter than its family needs.
    Binary,
    /// Longer than [`PROXY_BYTES_MAX`].
    TooLong,
}

impl fmt::Display for ProxyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ProxyError::Missing => {
                "PROXY header: expected one first, from an address that is listed to send it"
            }
            ProxyError::Line => {
                "PROXY header, version 1: expected \"PROXY TCP4|TCP6 source destination port port\" and CR LF"
            }
            ProxyError::Binary => "PROXY header, version 2: expected a known command and whole addresses",
            ProxyError::TooLong => "PROXY header: expected at most 4096 bytes",
        })
    }
}

impl std::error::Error for ProxyError {}

/// Reads the header at the front of `bytes`. `None`: more bytes are needed.
///
/// # Errors
/// What is there is no header, whatever follows.
pub fn parse(bytes: &[u8]) -> Result<Option<ProxyHeader>, ProxyError> {
    if is_start_of(bytes, SIGNATURE) {
        return if bytes.len() < FIXED_BYTES { Ok(None) } else { binary(bytes) };
    }
    if is_start_of(bytes, LINE_START) {
        return line(bytes);
    }
    Err(ProxyError::Missing)
}

/// Returns whether `bytes`, as far as they go, are the beginning of something that begins with `mark`.
fn is_start_of(bytes: &[u8], mark: &[u8]) -> bool {
    bytes.iter().zip(mark).all(|(one, other)| one == other)
}

fn line(bytes: &[u8]) -> Result<Option<ProxyHeader>, ProxyError> {
    let seen = bytes.get(..LINE_BYTES_MAX).unwrap_or(bytes);
    let Some(end) = seen.windows(2).position(|two| two == b"\r\n") else {
        return if seen.len() == LINE_BYTES_MAX { Err(ProxyError::Line) } else { Ok(None) };
    };
    let text = seen.get(LINE_START.len()..end).and_then(|text| str::from_utf8(text).ok());
    let mut words = text.ok_or(ProxyError::Line)?.split(' ');
    let header = |addresses| Ok(Some(ProxyHeader { addresses, bytes: end + 2 }));
    let is_v4 = match words.next() {
        // What follows is to be ignored.
        Some("UNKNOWN") => return header(None),
        Some("TCP4") => true,
        Some("TCP6") => false,
        _ => return Err(ProxyError::Line),
    };
    let mut address = || {
        let address: IpAddr = words.next()?.parse().ok()?;
        (address.is_ipv4() == is_v4).then_some(address)
    };
    let ips = (address(), address());
    let ports = (words.next().and_then(port), words.next().and_then(port));
    match (ips, ports, words.next()) {
        ((Some(source), Some(destination)), (Some(from), Some(to)), None) => {
            header(Some((SocketAddr::new(source, from), SocketAddr::new(destination, to))))
        }
        _ => Err(ProxyError::Line),
    }
}

/// Returns a port without sign or leading zero.
fn port(text: &str) -> Option<u16> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if is_plain { text.parse().ok() } else { None }
}

fn binary(bytes: &[u8]) -> Result<Option<ProxyHeader>, ProxyError> {
    let (Some([.., version_command, family, length_high, length_low]), Some(rest)) =
        (bytes.first_chunk::<FIXED_BYTES>(), bytes.get(FIXED_BYTES..))
    else {
        return Ok(None);
    };
    let local = match version_command {
        0x20 => true,
        0x21 => false,
        _ => return Err(ProxyError::Binary),
    };
    let length = usize::from(u16::from_be_bytes([*length_high, *length_low]));
    let end = FIXED_BYTES + length;
    if end > PROXY_BYTES_MAX {
        return Err(ProxyError::TooLong);
    }
    let Some(block) = rest.get(..length) else { return Ok(None) };
    let addresses = match family {
        _ if local => None,
        0x11 => Some(addresses::<4>(block, |ip| Ipv4Addr::from(ip).into()).ok_or(ProxyError::Binary)?),
        0x21 => Some(addresses::<16>(block, |ip| Ipv6Addr::from(ip).into()).ok_or(ProxyError::Binary)?),
        // Datagrams, Unix sockets and what is not specified yet: a connection without such addresses.
        _ => None,
    };
    Ok(Some(ProxyHeader { addresses, bytes: end }))
}

/// Two addresses of `N` bytes, then two ports; what is behind them are extensions.
fn addresses<const N: usize>(block: &[u8], ip: fn([u8; N]) -> IpAddr) -> Option<(SocketAddr, SocketAddr)> {
    let (source, rest) = block.split_first_chunk::<N>()?;
    let (destination, rest) = rest.split_first_chunk::<N>()?;
    let (from, rest) = rest.split_first_chunk::<2>()?;
    let to = rest.first_chunk::<2>()?;
    let port = |bytes: &[u8; 2]| u16::from_be_bytes(*bytes);
    Some((SocketAddr::new(ip(*source), port(from)), SocketAddr::new(ip(*destination), port(to))))
}

/// Writes the header of version 2 that says this: for balancers, and for tests of both ends.
pub fn write(source: SocketAddr, destination: SocketAddr, out: &mut Vec<u8>) {
    out.extend_from_slice(SIGNATURE);
    let both_v4 = match (source.ip(), destination.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => Some((source, destination)),
        _ => None,
    };
    let v6 = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    match both_v4 {
        Some((source, destination)) => {
            out.extend_from_slice(&[0x21, 0x11, 0, 12]);
            out.extend_from_slice(&source.octets());
            out.extend_from_slice(&destination.octets());
        }
        None => {
            out.extend_from_slice(&[0x21, 0x21, 0, 36]);
            out.extend_from_slice(&v6(source.ip()).octets());
            out.extend_from_slice(&v6(destination.ip()).octets());
        }
    }
    out.extend_from_slice(&source.port().to_be_bytes());
    out.extend_from_slice(&destination.port().to_be_bytes());
}
