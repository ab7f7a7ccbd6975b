//! What a worker prints, line by line.

use std::collections::VecDeque;

/// Bytes of a line that are kept; the rest of a longer one is cut.
const LINE_BYTES_MAX: usize = 16 << 10;
/// Last lines that are kept for the report of a failed start.
const TAIL_LINES: usize = 20;

/// Most bytes of a request's id in a mark.
const ID_BYTES_MAX: usize = 160;
/// What is on both sides of a mark.
const UNIT: u8 = 0x1f;

/// Bytes of a pipe, cut into lines.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// What the worker begins a line with that belongs to a request; empty: it does not.
    mark: String,
    part: Vec<u8>,
    /// The request that lines without a mark belong to; empty: none.
    request: String,
    /// The line in `part` is longer than is kept.
    cut: bool,
}

impl Lines {
    /// Lines that may begin with this mark: a unit separator, the mark, a blank, the id of a request and
    /// another unit separator.
    pub(crate) fn marked(mark: &str) -> Lines {
        Lines { mark: mark.to_owned(), ..Lines::default() }
    }

    /// Takes bytes, and gives each line that is whole, behind the id of the request that it belongs to;
    /// that is empty for other lines.
    pub(crate) fn push(&mut self, bytes: &[u8], mut line: impl FnMut(&str, String)) {
        let mut rest = bytes;
        while let Some(at) = rest.iter().position(|byte| *byte == b'\n') {
            let (one, behind) = rest.split_at(at);
            self.append(one);
            self.give(&mut line);
            rest = behind.get(1..).unwrap_or_default();
        }
        self.append(rest);
    }

    /// From here on lines without a mark belong to this request, or to none. A line that has begun belongs to
    /// the one before.
    pub(crate) fn turn(&mut self, request: &str, line: impl FnMut(&str, String)) {
        if self.request != request {
            self.finish(line);
            self.request.clear();
            self.request.push_str(request);
        }
    }

    /// Gives the last line, which has no end.
    pub(crate) fn finish(&mut self, mut line: impl FnMut(&str, String)) {
        if !self.part.is_empty() {
            self.give(&mut line);
        }
    }

    fn append(&mut self, bytes: &[u8]) {
        let room = LINE_BYTES_MAX - self.part.len();
        self.cut |= bytes.len() > room;
        self.part.extend_from_slice(bytes.get(..room).unwrap_or(bytes));
    }

    fn give(&mut self, line: &mut impl FnMut(&str, String)) {
        let (id, text) = self.split_mark().unwrap_or((&self.request, &self.part));
        let mut text: String = String::from_utf8_lossy(text.trim_ascii_end())
            .chars()
            .map(|letter| if letter.is_control() && letter != '\t' { '\u{fffd}' } else { letter })
            .collect();
        if self.cut {
            text.push('…');
        }
        line(id, text);
        self.part.clear();
        self.cut = false;
    }

    /// Returns the id of a line's request, and the rest of the line.
    fn split_mark(&self) -> Option<(&str, &[u8])> {
        if self.mark.is_empty() {
            return None;
        }
        let rest = self.part.strip_prefix(&[UNIT])?.strip_prefix(self.mark.as_bytes())?.strip_prefix(b" ")?;
        let (id, text) = rest.split_at(rest.iter().position(|byte| *byte == UNIT)?);
        let id = str::from_utf8(id)
            .ok()
            .filter(|id| id.len() <= ID_BYTES_MAX && !id.contains(char::is_control))?;
        Some((id, text.get(1..)?))
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
            lines.push(&text[..cut], |_, line| all.push(line));
            lines.push(&text[cut..], |_, line| all.push(line));
            lines.finish(|_, line| all.push(line));
            assert_eq!(all, ["one", "two", "\u{fffd}\u{fffd}[1m", "last"], "{cut}");
        }
    }

    #[test]
    fn a_line_without_end_takes_bounded_memory() {
        let mut lines = Lines::default();
        let mut all = Vec::new();
        for _ in 0..100 {
            lines.push(&[b'x'; 1000], |_, line| all.push(line));
        }
        assert!(lines.part.len() <= LINE_BYTES_MAX && all.is_empty());
        lines.push(b"\nnext\n", |_, line| all.push(line));
        assert!(all[0].ends_with('…') && all[1] == "next");
    }

    #[test]
    fn a_line_has_the_request_that_it_is_marked_with() {
        let mut lines = Lines::marked("6d61");
        let mut all = Vec::new();
        let text = b"\x1f6d61 id-1\x1f  one\nplain\n\x1f6d61 task 7\x1f\n\x1fother id-2\x1ftwo\n\x1f6d61 id-3 no end\n\
                     \x1f6d61 a\x07b\x1fthree\n\x1f6d61 id-4\x1flast";
        lines.push(text, |id, line| all.push((id.to_owned(), line)));
        lines.finish(|id, line| all.push((id.to_owned(), line)));
        let all: Vec<(&str, &str)> = all.iter().map(|(id, line)| (&**id, &**line)).collect();
        let unit = "\u{fffd}";
        assert_eq!(
            all,
            [
                ("id-1", "  one"),
                ("", "plain"),
                ("task 7", ""),
                ("", &*format!("{unit}other id-2{unit}two")),
                ("", &*format!("{unit}6d61 id-3 no end")),
                ("", &*format!("{unit}6d61 a{unit}b{unit}three")),
                ("id-4", "last"),
            ]
        );
    }
}
