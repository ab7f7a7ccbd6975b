//! Where connections come from: source addresses, written as a list, or spread over this machine's own.
//!
//! To one address and port a source address has as many connections as there are local ports (`ip(7)`,
//! ip_local_port_range). More need more sources; of 127.0.0.0/8 every address is there without being made.
//! Start at [`list`] and [`spread`].

use crate::error::Error;
use std::net::{IpAddr, Ipv4Addr};

/// Source addresses at most.
const SOURCES_MAX: u32 = 4096;

/// Of its ports a source is given so many hundredths at most. The kernel looks for a free one among every
/// second first (`connect(2)`; the others are `bind(2)`'s), and once these are taken, each connection goes
/// past all of them: 100,000 connections took two minutes from five sources and four seconds from eight.
const PORTS_PERCENT: u64 = 45;

/// Reads addresses, comma-separated; `127.0.0.2-127.0.0.9` is all from the first to the last.
///
/// # Errors
/// What is not an address, or a range that goes backwards or is too long.
pub fn list(text: &str) -> Result<Vec<IpAddr>, Error> {
    let refuse = |part: &str, why: &str| {
        Error::usage(format!(
            "--source {part}: {why} (127.0.0.2, or 127.0.0.2-127.0.0.9, several with commas)"
        ))
    };
    let mut sources = Vec::new();
    for part in text.split(',') {
        let part = part.trim();
        let parsed = match part.split_once('-') {
            None => part.parse().ok().map(|address: IpAddr| sources.push(address)),
            Some((first, last)) => {
                let ends = first.parse::<Ipv4Addr>().ok().zip(last.parse::<Ipv4Addr>().ok());
                let Some((first, last)) = ends else {
                    return Err(refuse(part, "not a range of IPv4 addresses"));
                };
                let (first, last) = (u32::from(first), u32::from(last));
                if last < first || last - first >= SOURCES_MAX {
                    return Err(refuse(part, "a range goes upwards, over 4096 addresses at most"));
                }
                sources.extend((first..=last).map(|number| IpAddr::V4(Ipv4Addr::from(number))));
                Some(())
            }
        };
        parsed.ok_or_else(|| refuse(part, "not an address"))?;
    }
    if sources.len() > SOURCES_MAX as usize {
        return Err(refuse(text, "over 4096 addresses"));
    }
    Ok(sources)
}

/// Returns the loopback addresses that so many connections to this address have to come from, where a source
/// has `ports` ports; none where one source is enough, or where we cannot know what sources there are.
pub fn spread(target: IpAddr, connections: u64, ports: Option<u64>) -> Vec<IpAddr> {
    let (IpAddr::V4(target), Some(ports)) = (target, ports) else { return Vec::new() };
    let each = (ports * PORTS_PERCENT / 100).max(1);
    if !target.is_loopback() || connections <= each {
        return Vec::new();
    }
    let count = connections.div_ceil(each).min(u64::from(SOURCES_MAX)) as u32;
    let first = u32::from(Ipv4Addr::LOCALHOST);
    (0..count).map(|nth| IpAddr::V4(Ipv4Addr::from(first + nth))).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_list_names_addresses_and_ranges() {
        let told = |text: &str| list(text).unwrap().iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(told("127.0.0.2, ::1"), ["127.0.0.2", "::1"]);
        assert_eq!(told("127.0.0.254-127.0.1.1"), ["127.0.0.254", "127.0.0.255", "127.0.1.0", "127.0.1.1"]);
        for text in
            ["", "a", "127.0.0.1-", "127.0.0.2-127.0.0.1", "::1-::2", "10.0.0.0-10.1.0.0", "1.2.3.4,,"]
        {
            assert!(list(text).is_err_and(|error| error.is_usage()), "{text}");
        }
    }

    #[test]
    fn loopback_is_spread_over_as_many_addresses_as_ports_demand() {
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        assert_eq!(spread(here, 450, Some(1000)), Vec::<IpAddr>::new());
        assert_eq!(spread(here, 451, Some(1000)).len(), 2);
        let many = spread(here, 1_000_000, Some(28_232));
        assert_eq!((many.len(), many[78].to_string()), (79, "127.0.0.79".to_owned()));
        for (target, ports) in [("192.0.2.1", Some(10)), ("::1", Some(10)), ("127.0.0.1", None)] {
            assert!(spread(target.parse().unwrap(), 1000, ports).is_empty(), "{target}");
        }
    }
}
