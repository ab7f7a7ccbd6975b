//! The names that a certificate covers, and whether a host is one of them (RFC 9525, RFC 6125).

use std::net::IpAddr;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;

/// The names of one certificate: its DNS names, in lower case, and its addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    dns: Vec<Box<str>>,
    addresses: Vec<IpAddr>,
}

impl Names {
    pub(crate) fn of(certificate: &X509Certificate<'_>) -> Names {
        let mut names = Names::default();
        let all = certificate.subject_alternative_name().ok().flatten();
        for name in all.iter().flat_map(|all| &all.value.general_names) {
            match name {
                GeneralName::DNSName(name) => names.dns.push(name.to_ascii_lowercase().into()),
                GeneralName::IPAddress(bytes) => names.addresses.extend(address(bytes)),
                _ => {}
            }
        }
        names
    }

    /// Returns the DNS names, `*.` ones among them.
    pub fn dns(&self) -> impl Iterator<Item = &str> {
        self.dns.iter().map(|name| &**name)
    }

    /// Returns whether the certificate covers `host`: a DNS name in any case, or an address, with or without
    /// brackets. A `*` stands for one label.
    pub fn covers(&self, host: &str) -> bool {
        if let Ok(address) = host.trim_matches(['[', ']']).parse::<IpAddr>() {
            return self.addresses.contains(&address);
        }
        let host = host.strip_suffix('.').unwrap_or(host);
        let covers = |name: &str| match name.strip_prefix("*.") {
            None => name.eq_ignore_ascii_case(host),
            Some(rest) => host
                .split_once('.')
                .is_some_and(|(first, host)| !first.is_empty() && host.eq_ignore_ascii_case(rest)),
        };
        self.dns().any(covers)
    }

    /// Returns the first name, as the certificate's title.
    pub(crate) fn first(&self) -> Option<String> {
        let address = || self.addresses.first().map(IpAddr::to_string);
        self.dns.first().map(|name| name.to_string()).or_else(address)
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from).ok();
    four.or_else(|| <[u8; 16]>::try_from(bytes).map(IpAddr::from).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_one_label_and_addresses_are_compared_as_such() {
        let names = Names {
            dns: vec!["example.com".into(), "*.example.com".into()],
            addresses: vec![IpAddr::from([127, 0, 0, 1])],
        };
        for yes in ["example.com", "Example.COM", "a.example.com", "example.com.", "127.0.0.1"] {
            assert!(names.covers(yes), "{yes}");
        }
        for no in ["a.b.example.com", ".example.com", "xexample.com", "127.0.0.2", "::1", "", "com"] {
            assert!(!names.covers(no), "{no}");
        }
    }
}
