//! Byte ranges: which parts of a file are asked for, within bounds (RFC 9110 §14.2).
//!
//! Pure. What asks for more than it saves is answered whole, which every client must bear: more than
//! [`PARTS_MAX`] ranges, or ranges that together are longer than the file because they overlap.

use ringroad_policy::fresh::range;

/// Most parts of one answer.
pub(crate) const PARTS_MAX: usize = 16;

/// Bytes `from..to` of a file; from < to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) from: u64,
    pub(crate) to: u64,
}

impl Part {
    pub(crate) fn bytes(self) -> u64 {
        self.to - self.from
    }
}

/// What a `Range` line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// All of it: no range, or none that is worth the trouble.
    Whole,
    /// These parts, at least one.
    Parts(Vec<Part>),
    /// Nothing that is there: 416.
    Nothing,
}

/// Reads a `Range` line for a file of `bytes`. What is no list of byte ranges is ignored, as the RFC asks.
pub(crate) fn asked(value: &[u8], bytes: u64) -> Asked {
    let unit = value.get(..6).filter(|unit| unit.eq_ignore_ascii_case(b"bytes="));
    let (Some(_), Some(list)) = (unit, value.get(6..)) else { return Asked::Whole };
    let mut parts = Vec::new();
    let mut count = 0_usize;
    for word in list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
        // Empty elements are allowed in a list (RFC 9110 §5.6.1.2), but not without end.
        count += 1;
        if count > 2 * PARTS_MAX {
            return Asked::Whole;
        }
        if word.is_empty() {
            continue;
        }
        match range::part(word, bytes) {
            None => return Asked::Whole,
            Some(None) => {}
            Some(Some(part)) => parts.push(Part { from: part.start, to: part.end }),
        }
    }
    let together = parts.iter().fold(0_u64, |sum, part| sum.saturating_add(part.bytes()));
    match parts.len() {
        0 if list.iter().all(|byte| matches!(byte, b',' | b' ' | b'\t')) => Asked::Whole,
        0 => Asked::Nothing,
        1..=PARTS_MAX if parts.len() == 1 || together < bytes => Asked::Parts(parts),
        _ => Asked::Whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(list: &[(u64, u64)]) -> Asked {
        Asked::Parts(list.iter().map(|&(from, to)| Part { from, to }).collect())
    }

    #[test]
    fn ranges_are_cut_to_the_file() {
        for (line, expected) in [
            ("bytes=0-0", parts(&[(0, 1)])),
            ("bytes=0-99", parts(&[(0, 100)])),
            ("bytes=10-", parts(&[(10, 100)])),
            ("bytes=-10", parts(&[(90, 100)])),
            ("bytes=-1000", parts(&[(0, 100)])),
            ("bytes=90-1000", parts(&[(90, 100)])),
            ("BYTES=0-1", parts(&[(0, 2)])),
            ("bytes=0-1, 5-6 ,\t8-9", parts(&[(0, 2), (5, 7), (8, 10)])),
            ("bytes=,0-1,,", parts(&[(0, 2)])),
            // One of two is there.
            ("bytes=200-300,5-6", parts(&[(5, 7)])),
            ("bytes=0-18446744073709551615", parts(&[(0, 100)])),
            ("bytes=0-99999999999999999999999", parts(&[(0, 100)])),
        ] {
            assert_eq!(asked(line.as_bytes(), 100), expected, "{line}");
        }
    }

    #[test]
    fn what_is_not_there_is_unsatisfiable() {
        for line in
            ["bytes=100-", "bytes=100-200", "bytes=-0", "bytes=99999999999999999999-", "bytes=200-,-0"]
        {
            assert_eq!(asked(line.as_bytes(), 100), Asked::Nothing, "{line}");
        }
    }

    #[test]
    fn of_nothing_a_range_from_its_beginning_is_all() {
        for line in ["bytes=0-", "bytes=0-0", "bytes=0-99", "bytes=-5", "bytes=0-0,2-3"] {
            assert_eq!(asked(line.as_bytes(), 0), Asked::Whole, "{line}");
        }
        for line in ["bytes=-0", "bytes=7-", "bytes=1-2"] {
            assert_eq!(asked(line.as_bytes(), 0), Asked::Nothing, "{line}");
        }
    }

    #[test]
    fn what_is_no_range_is_ignored() {
        for line in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "bytes=-",
            "bytes=a-b",
            "bytes=5-1",
            "bytes=1-2-3",
            "bytes=+1-2",
            "bytes=0x1-2",
            "bytes=1 -2",
            "items=0-1",
            "bytes=0-1;2-3",
            "bytes=0-1,x",
            "bytes=--1",
        ] {
            assert_eq!(asked(line.as_bytes(), 100), Asked::Whole, "{line:?}");
        }
    }

    #[test]
    fn what_asks_for_more_than_it_saves_is_answered_whole() {
        let many: Vec<_> = (0..1000).map(|at| format!("{at}-{at}")).collect();
        assert_eq!(asked(format!("bytes={}", many.join(",")).as_bytes(), 1 << 20), Asked::Whole);
        assert_eq!(asked(b"bytes=0-,0-,0-", 100), Asked::Whole);
        let Asked::Parts(sixteen) = asked(format!("bytes={}", many[..16].join(",")).as_bytes(), 100) else {
            panic!("16 parts are few enough");
        };
        assert_eq!(sixteen.len(), PARTS_MAX);
        assert_eq!(asked(format!("bytes={}", many[..17].join(",")).as_bytes(), 100), Asked::Whole);
        assert_eq!(asked(format!("bytes={}0-1", ",".repeat(1000)).as_bytes(), 100), Asked::Whole);
    }
}
