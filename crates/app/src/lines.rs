//! What a worker prints, line by line.

use std::collections::VecDeque;

/// Bytes of a line that are kept; the rest of a longer one is cut.
const LINE_BYTES_MAX: usize = 16 << 10;
/// Last lines that are kept for the report of a failed start.
const TAIL_LINES: usize = 20;

/// Bytes of a pipe, cut into lines.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    part: Vec<u8>,
    /// The line in `part` is longer than is kept.
    cut: bool,
}

impl Lines {
    /// Takes bytes, and gives each line that is whole.
    pub(crate) fn push(&mut self, bytes: &[u8], mut line: impl FnMut(String)) {
        let mut rest = bytes;
        while let Some(at) = rest.iter().position(|byte| *byte == b'\n') {
            let (one, behind) = rest.split_at(at);
            self.append(one);
            self.give(&mut line);
            rest = behind.get(1..).unwrap_or_default();
        }
        self.append(rest);
    }

    /// Gives the last line, which has no end.
    pub(crate) fn finish(&mut self, mut line: impl FnMut(String)) {
        if !self.part.is_empty() {
            self.give(&mut line);
        }
    }

    fn append(&mut self, bytes: &[u8]) {
        let room = LINE_BYTES_MAX - self.part.len();
        self.cut |= bytes.len() > room;
        self.part.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
    }

    fn give(&mut self, line: &mut impl FnMut(String)) {
        let mut text: String = String::from_utf8_lossy(self.part.trim_ascii_end())
            .chars()
            .map(|letter| if letter.is_control() && letter != '\t' { '\u{fffd}' } else { letter })
            .collect();
        if self.cut {
            text.push('…');
        }
        self.part.clear();
        self.cut = false;
        line(text);
    }
}

/// The last lines of a process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tail(VecDeque<String>);

impl Tail {
    pub(crate) fn push(&mut self, line: String) {
        if self.0.len() == TAIL_LINES {
            self.0.pop_front();
        }
        self.0.push_back(line);
    }

    pub(crate) fn text(&self) -> String {
        self.0.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_lines_however_they_are_cut() {
        let text = b"one\ntwo\r\n\xff\x1b[1m\nlast";
        for cut in 0..text.len() {
            let mut lines = Lines::default();
            let mut all = Vec::new();
            lines.push(&text[..cut], |line| all.push(line));
            lines.push(&text[cut..], |line| all.push(line));
            lines.finish(|line| all.push(line));
            assert_eq!(all, ["one", "two", "\u{fffd}\u{fffd}[1m", "last"], "{cut}");
        }
    }

    #[test]
    fn a_line_without_end_takes_bounded_memory() {
        let mut lines = Lines::default();
        let mut all = Vec::new();
        for _ in 0..100 {
            lines.push(&[b'x'; 1000], |line| all.push(line));
        }
        assert!(lines.part.len() <= LINE_BYTES_MAX && all.is_empty());
        lines.push(b"\nnext\n", |line| all.push(line));
        assert!(all[0].ends_with('…') && all[1] == "next");
    }
}
