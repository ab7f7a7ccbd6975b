//! Requirements of a start script: `io_uring,connections>=50000`.
//!
//! A demand is a driver's name (it can be used), `chosen=NAME`, an opcode as the kernel spells it
//! (`SEND_ZC`), or a figure with `>=`: `connections`, `nofile`, `memlock` (bytes), `kernel` (a version).

use super::Findings;
use ringroad_engine::DriverName;
use ringroad_engine::choose::{Version, Wish};
use ringroad_host::cgroup::Limit;
use ringroad_uring::Probe;

/// One demand.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Required {
    Usable(DriverName),
    Chosen(DriverName),
    Opcode(String),
    AtLeast(Figure, u64),
    Kernel(Version),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Figure {
    Connections,
    Nofile,
    Memlock,
}

impl Figure {
    const ALL: [(Figure, &str); 3] =
        [(Figure::Connections, "connections"), (Figure::Nofile, "nofile"), (Figure::Memlock, "memlock")];
}

impl Required {
    pub(super) fn parse(word: &str) -> Result<Required, String> {
        let refuse = |why: &str| {
            Err(format!(
                "--require {word}: {why} (known: a driver's name, chosen=NAME, an opcode such as SEND_ZC, \
                 connections>=N, nofile>=N, memlock>=BYTES, kernel>=VERSION)"
            ))
        };
        let driver = |name: &str| match name.parse() {
            Ok(Wish::Named(name)) => Some(name),
            _ => None,
        };
        if let Some((name, value)) = word.split_once(">=") {
            if name == "kernel" {
                return match Version::parse(value, "") {
                    Some(version) => Ok(Required::Kernel(version)),
                    None => refuse("not a version"),
                };
            }
            let Some((figure, _)) = Figure::ALL.into_iter().find(|(_, known)| *known == name) else {
                return refuse("not a figure known here");
            };
            return match value.parse() {
                Ok(number) => Ok(Required::AtLeast(figure, number)),
                Err(_) => refuse("not a number"),
            };
        }
        if let Some(name) = word.strip_prefix("chosen=") {
            return driver(name).map_or_else(|| refuse("not a driver"), |name| Ok(Required::Chosen(name)));
        }
        if let Some(name) = driver(word) {
            return Ok(Required::Usable(name));
        }
        if Probe::from_bits([0; 4]).table().any(|(name, _)| name == word) {
            return Ok(Required::Opcode(word.to_owned()));
        }
        refuse("not known here")
    }

    /// Returns the message if the requirement is not met.
    pub(super) fn unmet(&self, findings: &Findings) -> Option<String> {
        match self {
            Required::Usable(name) => {
                let outcome = findings.drivers.iter().find(|(known, _)| known == name)?.1;
                outcome.err().map(|refusal| format!("required {refusal}"))
            }
            Required::Chosen(name) => match &findings.choice {
                Ok(choice) if choice.driver() == *name => None,
                Ok(choice) => {
                    Some(format!("required driver {name}: {} is chosen: {}", choice.driver(), choice.why()))
                }
                Err(_) => Some(format!("required driver {name}: none is chosen")),
            },
            Required::Opcode(wanted) => {
                let has = findings.ring().is_some_and(|ring| {
                    ring.opcodes.table().any(|(name, supported)| name == wanted && supported)
                });
                (!has).then(|| {
                    format!("required opcode {wanted}: io_uring here does not have it, or cannot be used")
                })
            }
            Required::AtLeast(figure, wanted) => figure.unmet(*wanted, findings),
            Required::Kernel(wanted) => match Version::of_this_kernel() {
                Some(version) if version >= *wanted => None,
                Some(version) => Some(format!("required kernel {wanted}: this is {version}")),
                None => Some(format!("required kernel {wanted}: its version is hidden")),
            },
        }
    }
}

impl Figure {
    fn unmet(self, wanted: u64, findings: &Findings) -> Option<String> {
        let limits = &findings.facts.limits;
        let (value, fix) = match self {
            Figure::Connections => {
                let tightest = findings.capacity.bounds.first();
                let fix = tightest.map_or("", |bound| &bound.fix);
                (findings.capacity.connections_max().map(Limit::At), fix)
            }
            Figure::Nofile => (limits.nofile_hard, "ulimit -Hn"),
            Figure::Memlock => (limits.memlock_soft_bytes, "ulimit -l"),
        };
        let name = Figure::ALL.into_iter().find(|(figure, _)| *figure == self).map_or("", |(_, name)| name);
        match value {
            Some(value) if value >= Limit::At(wanted) => None,
            Some(Limit::At(value)) => Some(format!("required {name}>={wanted}: it is {value} here ({fix})")),
            // An unknown value does not meet a requirement.
            _ => Some(format!("required {name}>={wanted}: the value here is hidden")),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_kind_of_demand_is_read_and_anything_else_is_refused_with_what_is_known() {
        let of = |word: &str| Required::parse(word).unwrap();
        assert_eq!(of("io_uring"), Required::Usable(DriverName::IoUring));
        assert_eq!(of("uring"), Required::Usable(DriverName::IoUring));
        assert_eq!(of("chosen=epoll"), Required::Chosen(DriverName::Epoll));
        assert_eq!(of("SEND_ZC"), Required::Opcode("SEND_ZC".to_owned()));
        assert_eq!(of("connections>=50000"), Required::AtLeast(Figure::Connections, 50_000));
        assert!(matches!(of("kernel>=6.1"), Required::Kernel(_)));
        for word in
            ["", "auto", "sim", "chosen=auto", "connections", "connections>=many", "speed>=9", "kernel>=new"]
        {
            let message = Required::parse(word).unwrap_err();
            assert!(message.contains(word) && message.contains("connections>=N"), "{message}");
        }
    }
}
