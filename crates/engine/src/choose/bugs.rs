//! Known kernel bugs that affect this engine, as data: affected versions, effect, and our countermeasure.
//!
//! Version numbers come from the bug reports. Distributions fix kernels without changing the number, so a bug
//! that a trial can detect is only warned of by version, and never refused by version. Start at [`known`].

use std::fmt;

/// A kernel's release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    major: u16,
    minor: u16,
    patch: u16,
    /// Release candidate number; candidates sort before their release.
    candidate: u16,
}

impl Version {
    pub(super) const fn new(major: u16, minor: u16, patch: u16) -> Version {
        Version { major, minor, patch, candidate: u16::MAX }
    }

    const fn candidate(major: u16, minor: u16, number: u16) -> Version {
        Version { major, minor, patch: 0, candidate: number }
    }

    /// Parses a release such as `6.1.0`, `6.8-rc3`, `6.18.44-cloud-amd64`. `build` is the output of `uname
    /// -v`, where Debian has the patch level that its release lacks.
    pub fn parse(release: &str, build: &str) -> Option<Version> {
        let said = build.split_once("Debian ").map(|(_, rest)| rest).and_then(Version::read);
        let read = Version::read(release)?;
        Some(said.filter(|said| (said.major, said.minor) == (read.major, read.minor)).unwrap_or(read))
    }

    fn read(text: &str) -> Option<Version> {
        let (numbers, rest) = match text.find(|c: char| !c.is_ascii_digit() && c != '.') {
            Some(at) => text.split_at(at),
            None => (text, ""),
        };
        let mut numbers = numbers.split('.').map(|number| number.parse().ok());
        let (major, minor) = (numbers.next()??, numbers.next()??);
        let patch = numbers.next().flatten().unwrap_or(0);
        let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let candidate = rest.strip_prefix("-rc").and_then(|rest| rest.get(..digits(rest))?.parse().ok());
        Some(Version { major, minor, patch, candidate: candidate.unwrap_or(u16::MAX) })
    }

    /// Returns the version of the running kernel.
    pub fn of_this_kernel() -> Option<Version> {
        // SAFETY: arrays of characters; all-zero is a valid value.
        let mut names: libc::utsname = unsafe { std::mem::zeroed() };
        // SAFETY: a live structure, written during the call.
        if unsafe { libc::uname(&raw mut names) } != 0 {
            return None;
        }
        let text = |field: &[libc::c_char]| -> String {
            field.iter().take_while(|c| **c != 0).map(|c| char::from(*c as u8)).collect()
        };
        Version::parse(&text(&names.release), &text(&names.version))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        match self.candidate {
            u16::MAX => write!(f, ".{}", self.patch),
            number => write!(f, "-rc{number}"),
        }
    }
}

/// Effect of a bug on the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// `auto` does not choose io_uring.
    Refuses,
    /// The driver avoids the broken feature.
    Avoided,
    /// There is no countermeasure; it is only reported.
    Warns,
}

/// A known bug of io_uring in some kernels.
#[derive(Clone, Copy, Debug)]
pub struct Bug {
    /// Affected versions: the first with the bug, and the first without it. Whole series may be listed.
    ranges: &'static [(Version, Version)],
    /// Affects only 32-bit machines.
    narrow_only: bool,
    /// Effect of the bug.
    pub what: &'static str,
    /// Link to a description.
    pub source: &'static str,
    /// Countermeasure of this engine.
    pub answer: &'static str,
    /// Effect on the choice.
    pub meaning: Meaning,
}

const NEVER: Version = Version::new(u16::MAX, 0, 0);
const FIRST: Version = Version::new(0, 0, 0);
const EVERYWHERE: &[(Version, Version)] = &[(FIRST, NEVER)];

const BUGS: &[Bug] = &[
    Bug {
        ranges: EVERYWHERE,
        narrow_only: true,
        what: "no release is free enough of faults on 32-bit Arm",
        source: "libuv/libuv issue 4187",
        answer: "auto does not take io_uring here",
        meaning: Meaning::Refuses,
    },
    Bug {
        ranges: &[(FIRST, Version::new(5, 10, 186))],
        narrow_only: false,
        what: "the kernel thread of SQPOLL runs without end when there is nothing to do",
        source: "libuv/libuv issues 4089 and 4093",
        answer: "SQPOLL is used on request only",
        meaning: Meaning::Avoided,
    },
    Bug {
        ranges: &[(FIRST, Version::new(5, 15, 90)), (Version::new(5, 16, 0), Version::new(6, 1, 0))],
        narrow_only: false,
        what: "closing descriptors through the ring misbehaves",
        source: "libuv/libuv pull request 4141",
        answer: "descriptors are closed by close(2)",
        meaning: Meaning::Avoided,
    },
    Bug {
        ranges: &[(Version::new(5, 13, 0), Version::new(5, 15, 1))],
        narrow_only: false,
        what: "a thread that ends with reads pending hangs its process",
        source: "axboe/liburing issue 582",
        answer: "everything in flight is awaited before a ring goes",
        meaning: Meaning::Avoided,
    },
    Bug {
        ranges: &[(Version::new(6, 4, 0), Version::new(6, 6, 5))],
        narrow_only: false,
        what: "a local user can take over the kernel through mapped buffer rings (CVE-2024-0582)",
        source: "oss-security, 24 April 2024",
        answer: "upgrade the kernel",
        meaning: Meaning::Warns,
    },
    Bug {
        ranges: &[(Version::new(6, 6, 0), Version::candidate(6, 8, 3))],
        narrow_only: false,
        what: "a multishot accept may return a number that is not a descriptor",
        source: "axboe/liburing issue 1062",
        answer: "tried at start; where it fails, a request per accept",
        meaning: Meaning::Avoided,
    },
    Bug {
        ranges: &[(FIRST, Version::candidate(6, 12, 1))],
        narrow_only: false,
        what: "linked requests that hide their success never complete with DEFER_TASKRUN",
        source: "axboe/liburing issue 1235",
        answer: "the two are never combined",
        meaning: Meaning::Avoided,
    },
    Bug {
        ranges: &[(Version::new(6, 13, 11), Version::new(6, 14, 9))],
        narrow_only: false,
        what: "receives that fill several buffers at once (bundles) may put bytes out of order",
        source: "axboe/liburing issues 1409 and 1411",
        answer: "bundles are off unless asked for",
        meaning: Meaning::Avoided,
    },
    Bug {
        ranges: EVERYWHERE,
        narrow_only: false,
        what: "a standing receive can miss the end of a stream that comes with its last bytes",
        source: "axboe/liburing issue 1549",
        answer: "receives never ask to poll first, which is what brought it about",
        meaning: Meaning::Avoided,
    },
];

/// Returns the bugs of a kernel, the worst first. For an unknown version only those of all versions.
fn known(version: Option<Version>, architecture: &str) -> Vec<&'static Bug> {
    let inside = |bug: &Bug| {
        let narrow = architecture == "arm";
        let range = |(from, to): &(Version, Version)| match version {
            Some(version) => *from <= version && version < *to,
            None => (*from, *to) == (FIRST, NEVER),
        };
        (!bug.narrow_only || narrow) && bug.ranges.iter().any(range)
    };
    let mut found: Vec<&Bug> = BUGS.iter().filter(|bug| inside(bug)).collect();
    found.sort_by_key(|bug| match bug.meaning {
        Meaning::Refuses => 0,
        Meaning::Warns => 1,
        Meaning::Avoided => 2,
    });
    found
}

/// Returns the bugs of the running kernel.
pub fn here() -> Vec<&'static Bug> {
    known(Version::of_this_kernel(), std::env::consts::ARCH)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn version(release: &str) -> Version {
        Version::parse(release, "").unwrap()
    }

    #[test]
    fn releases_are_parsed_and_sorted_in_order_of_release() {
        let order =
            ["5.4", "5.10.186", "5.15.90-generic", "6.1.0", "6.8-rc2", "6.8.0-rc3", "6.8.0", "6.18.44-x-v6"];
        for pair in order.windows(2) {
            assert!(version(pair[0]) < version(pair[1]), "{pair:?}");
        }
        assert_eq!(version("6.8.0-rc3"), version("6.8-rc3+"));
        let debian = Version::parse("6.1.0-13-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.1.55-1 (2023-09-29)");
        assert_eq!(debian, Some(Version::new(6, 1, 55)));
        assert_eq!(Version::parse("6.1.0", "#1 Debian 12 something").unwrap(), Version::new(6, 1, 0));
        assert!(["", "six", "6", "99999.1"].into_iter().all(|text| Version::parse(text, "").is_none()));
        assert!(Version::of_this_kernel().is_some());
    }

    #[test]
    fn a_bug_is_reported_from_its_first_version_up_to_the_fixed_one() {
        let has = |release: &str, word: &str| {
            known(Some(version(release)), "x86_64").iter().any(|bug| bug.what.contains(word))
        };
        for (word, without, with) in [
            ("CVE-2024-0582", ["6.3.13", "6.6.5"], ["6.4.0", "6.6.4"]),
            ("accept", ["6.5.9", "6.8-rc3"], ["6.6.0", "6.8-rc2"]),
            ("bundles", ["6.13.10", "6.14.9"], ["6.13.11", "6.14.8"]),
            ("closing", ["5.15.90", "6.1.0"], ["5.15.89", "6.0.19"]),
        ] {
            for release in without {
                assert!(!has(release, word), "{word}: {release}");
            }
            for release in with {
                assert!(has(release, word), "{word}: {release}");
            }
        }
    }

    #[test]
    fn only_an_unavoidable_bug_refuses_io_uring() {
        let refused =
            |architecture| known(None, architecture).iter().any(|bug| bug.meaning == Meaning::Refuses);
        assert!(refused("arm") && !refused("x86_64") && !refused("aarch64"));
    }
}
