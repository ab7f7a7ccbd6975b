//! Options as GNU programs read them: permuted with operands, long ones abbreviated, `--` ends them.
//!
//! `clap` would refuse forms that scripts rely on (`cp a b -r`, `--rec`, `-tdir`), so the copier's command
//! line is parsed here. The meaning of options is in `options`. Start at [`Reader`].

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Whether an option takes a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    Nothing,
    /// Only attached: `--backup=t`.
    Maybe,
    Value,
}

/// One option: its long name, its letter, its meaning.
#[derive(Debug)]
pub(super) struct Known<T> {
    pub(super) long: &'static str,
    pub(super) short: Option<u8>,
    pub(super) takes: Takes,
    pub(super) id: T,
}

/// A mistake in a word of the command line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Mistake {
    /// `--what`, as typed.
    UnknownLong(OsString),
    UnknownShort(u8),
    /// The abbreviation, and what it may mean.
    Ambiguous(OsString, Vec<&'static str>),
    /// A long option without the value it needs.
    LongNeedsValue(&'static str),
    ShortNeedsValue(u8),
    /// A value where none is taken.
    NoValue(&'static str),
}

/// Reads a line word by word: the options in their order; the operands are [`Reader::operands`] at the end.
pub(super) struct Reader<'a, T> {
    /// GNU's options. An abbreviation must be unique among these.
    known: &'a [Known<T>],
    /// Further options. They never make an abbreviation of a GNU option ambiguous.
    extra: &'a [Known<T>],
    words: std::vec::IntoIter<OsString>,
    /// What is left of a cluster of letters.
    letters: Vec<u8>,
    operands: Vec<OsString>,
    /// POSIXLY_CORRECT: the first operand ends the options.
    strict: bool,
}

impl<'a, T: Copy + PartialEq> Reader<'a, T> {
    pub(super) fn new(
        known: &'a [Known<T>],
        extra: &'a [Known<T>],
        words: Vec<OsString>,
        strict: bool,
    ) -> Reader<'a, T> {
        Reader { known, extra, words: words.into_iter(), letters: Vec::new(), operands: Vec::new(), strict }
    }

    /// Returns the next option and its value; `None` when there are no more.
    pub(super) fn next(&mut self) -> Result<Option<(T, Option<OsString>)>, Mistake> {
        loop {
            if !self.letters.is_empty() {
                return self.letter().map(Some);
            }
            let Some(word) = self.words.next() else { return Ok(None) };
            let bytes = word.as_bytes();
            if bytes == b"--" {
                self.operands.extend(&mut self.words);
                return Ok(None);
            } else if let Some(long) = bytes.strip_prefix(b"--") {
                return self.long(long).map(Some);
            } else if bytes.len() > 1 && bytes.starts_with(b"-") {
                self.letters = bytes.get(1..).unwrap_or_default().to_vec();
            } else {
                self.operands.push(word);
                if self.strict {
                    self.operands.extend(&mut self.words);
                    return Ok(None);
                }
            }
        }
    }

    /// Returns the operands, in order.
    pub(super) fn operands(self) -> Vec<OsString> {
        self.operands
    }

    fn letter(&mut self) -> Result<(T, Option<OsString>), Mistake> {
        let letter = self.letters.remove(0);
        let all = self.known.iter().chain(self.extra);
        let found = all.into_iter().find(|known| known.short == Some(letter));
        let known = found.ok_or(Mistake::UnknownShort(letter))?;
        if known.takes != Takes::Value {
            return Ok((known.id, None));
        }
        let rest = std::mem::take(&mut self.letters);
        let value = if rest.is_empty() { self.words.next() } else { Some(OsString::from_vec(rest)) };
        match value {
            Some(value) => Ok((known.id, Some(value))),
            None => Err(Mistake::ShortNeedsValue(letter)),
        }
    }

    fn long(&mut self, word: &[u8]) -> Result<(T, Option<OsString>), Mistake> {
        let (name, value) = match word.iter().position(|byte| *byte == b'=') {
            Some(at) => (word.get(..at).unwrap_or_default(), Some(word.get(at + 1..).unwrap_or_default())),
            None => (word, None),
        };
        let known = self.find(name, word)?;
        match (known.takes, value) {
            (Takes::Nothing, Some(_)) => Err(Mistake::NoValue(known.long)),
            (Takes::Value, None) => match self.words.next() {
                Some(value) => Ok((known.id, Some(value))),
                None => Err(Mistake::LongNeedsValue(known.long)),
            },
            (_, value) => Ok((known.id, value.map(|value| OsStr::from_bytes(value).to_os_string()))),
        }
    }

    /// Finds an option by its whole name, else by a unique prefix: first among the known, then among the
    /// extra.
    fn find(&self, name: &[u8], word: &[u8]) -> Result<&'a Known<T>, Mistake> {
        let whole = |known: &&Known<T>| known.long.as_bytes() == name;
        if let Some(exact) = self.known.iter().find(whole).or_else(|| self.extra.iter().find(whole)) {
            return Ok(exact);
        }
        for options in [self.known, self.extra] {
            let mut beginning = options.iter().filter(|known| known.long.as_bytes().starts_with(name));
            let Some(first) = beginning.next() else { continue };
            let others: Vec<_> =
                beginning.filter(|other| (other.id, other.takes) != (first.id, first.takes)).collect();
            if others.is_empty() {
                return Ok(first);
            }
            let names = std::iter::once(first).chain(others).map(|known| known.long).collect();
            return Err(Mistake::Ambiguous(dashed(name), names));
        }
        Err(Mistake::UnknownLong(dashed(word)))
    }
}

fn dashed(name: &[u8]) -> OsString {
    OsString::from_vec([b"--", name].concat())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const KNOWN: &[Known<char>] = &[
        Known { long: "recursive", short: Some(b'r'), takes: Takes::Nothing, id: 'r' },
        Known { long: "reflink", short: None, takes: Takes::Maybe, id: 'k' },
        Known { long: "target", short: Some(b't'), takes: Takes::Value, id: 't' },
        Known { long: "parents", short: None, takes: Takes::Nothing, id: 'p' },
        Known { long: "path", short: None, takes: Takes::Nothing, id: 'p' },
    ];
    const EXTRA: &[Known<char>] = &[
        Known { long: "resume", short: None, takes: Takes::Nothing, id: 'R' },
        Known { long: "verify", short: None, takes: Takes::Nothing, id: 'v' },
    ];

    /// Options as `id` or `id=value`, then operands after a bar; or the mistake.
    fn read(line: &str, strict: bool) -> Result<String, Mistake> {
        let words = line.split_whitespace().map(OsString::from).collect();
        let mut reader = Reader::new(KNOWN, EXTRA, words, strict);
        let mut out = String::new();
        while let Some((id, value)) = reader.next()? {
            out.push(id);
            out.extend(value.map(|value| format!("={}", value.to_str().unwrap())));
            out.push(' ');
        }
        let operands: Vec<String> =
            reader.operands().iter().map(|word| word.to_str().unwrap().into()).collect();
        Ok(out + "| " + &operands.join(" "))
    }

    #[test]
    fn options_and_operands_mix_until_two_dashes() {
        assert_eq!(read("a -r b --recursive -- -r", false).unwrap(), "r r | a b -r");
        assert_eq!(read("- a", false).unwrap(), "| - a");
    }

    #[test]
    fn posixly_correct_ends_the_options_at_the_first_operand() {
        assert_eq!(read("-r a -r", true).unwrap(), "r | a -r");
    }

    #[test]
    fn values_are_attached_or_follow() {
        for line in ["-td", "-t d", "--target d", "--target=d", "--ta=d"] {
            assert_eq!(read(line, false).unwrap(), "t=d | ", "{line}");
        }
        assert_eq!(read("-rtd", false).unwrap(), "r t=d | ");
        assert_eq!(read("--reflink x", false).unwrap(), "k | x");
        assert_eq!(read("--reflink=", false).unwrap(), "k= | ");
    }

    #[test]
    fn an_abbreviation_means_one_thing_or_is_refused() {
        assert_eq!(read("--rec", false).unwrap(), "r | ");
        assert_eq!(read("--pa", false).unwrap(), "p | ");
        let ambiguous = Mistake::Ambiguous("--re".into(), vec!["recursive", "reflink"]);
        assert_eq!(read("--re", false).unwrap_err(), ambiguous);
        assert_eq!(read("--res --v", false).unwrap(), "R v | ");
    }

    #[test]
    fn mistakes_carry_what_was_typed() {
        assert_eq!(read("--what=x", false).unwrap_err(), Mistake::UnknownLong("--what=x".into()));
        assert_eq!(read("-rx", false).unwrap_err(), Mistake::UnknownShort(b'x'));
        assert_eq!(read("-t", false).unwrap_err(), Mistake::ShortNeedsValue(b't'));
        assert_eq!(read("--tar", false).unwrap_err(), Mistake::LongNeedsValue("target"));
        assert_eq!(read("--rec=1", false).unwrap_err(), Mistake::NoValue("recursive"));
    }
}
