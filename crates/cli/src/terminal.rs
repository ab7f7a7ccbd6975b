//! Columns of a terminal, and text broken at blanks to fit them.

use std::os::fd::AsFd;

/// A narrower terminal cuts words anyway.
const COLUMNS_MIN: usize = 20;

/// Returns the columns of the terminal behind a stream. `None`: it is no terminal, or does not know its size.
pub(crate) fn columns(stream: impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    (size.ws_col > 0).then(|| usize::from(size.ws_col).max(COLUMNS_MIN))
}

/// What is shown of a text that is too long: so many characters of its beginning and of its end.
const SHOWN: (usize, usize) = (160, 40);
/// A word of a message that is longer is no path (PATH_MAX) that is to be copied.
const WORD_MAX: usize = 4096;

/// Returns the text, or its beginning, its end and its length if it is too long to be read, as a URL of 60 kB
/// is. For what people read: records hold the whole.
pub(crate) fn shortened(text: &str) -> String {
    let length = text.chars().count();
    if length <= 2 * (SHOWN.0 + SHOWN.1) {
        return text.to_owned();
    }
    let beginning = text.chars().take(SHOWN.0);
    let end = text.chars().skip(length - SHOWN.1);
    let shown: String = beginning.chain(['…']).chain(end).collect();
    format!("{shown} ({length} characters)")
}

/// Returns a message in which no word is longer than a path may be.
pub(crate) fn with_short_words(text: &str) -> String {
    let shown = |word: &str| if word.len() > WORD_MAX { shortened(word) } else { word.to_owned() };
    text.split(' ').map(shown).collect::<Vec<_>>().join(" ")
}

/// Where the lines begin that continue a broken one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Indent {
    /// In this column, counted from 0.
    At(usize),
    /// Where the broken line begins, but not beyond the middle of a line.
    AsTheLine,
}

/// Returns the text with lines of at most this many columns, broken at blanks. A word that is longer than a
/// line stays whole, so that a path or a command can be copied. Without `columns` the text stays as it is.
pub(crate) fn fitted(text: &str, columns: Option<usize>, indent: Indent) -> String {
    let Some(columns) = columns else { return text.to_owned() };
    let lines = text.split('\n').map(|line| {
        let indent = match indent {
            Indent::At(column) => column,
            Indent::AsTheLine => (line.len() - line.trim_start_matches(' ').len()).min(columns / 2),
        };
        broken(line, 0, indent, columns)
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns one line of text as [`fitted`] does. It begins in column `at`; continued lines begin in `indent`.
pub(crate) fn broken(line: &str, at: usize, indent: usize, columns: usize) -> String {
    let mut out = String::new();
    let mut used = at;
    for (nth, word) in line.split(' ').enumerate() {
        let length = word.chars().count();
        if nth > 0 && used + 1 + length > columns && used > indent {
            out.truncate(out.trim_end().len());
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            used = indent;
        } else if nth > 0 {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += length;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_broken_at_blanks_and_words_stay_whole() {
        let text = "ringroad: read, on /a/rather/long/path/of/a/file: no such file";
        let at = |columns, text| fitted(text, columns, Indent::At(2));
        assert_eq!(at(None, text), text);
        assert_eq!(at(Some(80), text), text);
        assert_eq!(
            at(Some(30), text),
            "ringroad: read, on\n  /a/rather/long/path/of/a/file:\n  no such file"
        );
        assert_eq!(at(Some(4), "a   b\nc"), "a\n  b\nc");
        let columns = "name  12 s  it is long";
        assert_eq!(fitted(columns, Some(17), Indent::At(6)), "name  12 s  it is\n      long");
        for columns in 1..70 {
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            let fitted = at(Some(columns), text);
            assert_eq!(words(&fitted), words(text));
            let long = fitted.lines().find(|line| line.len() > columns && words(line).len() > 1);
            assert_eq!(long, None, "{columns}");
        }
    }

    #[test]
    fn a_continued_line_begins_where_its_line_begins() {
        let text = "one two three four five\n  six seven eight nine ten\na   b\n";
        let expected = "one two three four\nfive\n  six seven eight\n  nine ten\na   b\n";
        assert_eq!(fitted(text, Some(20), Indent::AsTheLine), expected);
        assert_eq!(fitted(text, None, Indent::AsTheLine), text);
        let deep = format!("{}one two three", " ".repeat(15));
        assert_eq!(
            fitted(&deep, Some(20), Indent::AsTheLine),
            format!("{}one\n{}two three", " ".repeat(15), " ".repeat(10))
        );
    }

    #[test]
    fn what_is_too_long_to_be_read_is_shown_by_its_ends() {
        let path = "a".repeat(400);
        assert_eq!(shortened(&path), path);
        let url = format!("http://host/{}z", "ü".repeat(60_000));
        let shown = shortened(&url);
        assert!(shown.starts_with("http://host/ü") && shown.ends_with("üz (60013 characters)"), "{shown}");
        assert!(shown.chars().count() < 230, "{shown}");
        let message = format!("connect, on {url}: refused, {path}");
        let short = with_short_words(&message);
        assert!(short.starts_with("connect, on http://host/ü") && short.len() < 1_000, "{short}");
        assert!(short.ends_with(&format!("refused, {path}")), "{short}");
        assert_eq!(with_short_words("a  b\nc "), "a  b\nc ");
    }

    #[test]
    fn a_line_that_begins_behind_a_name_is_shorter() {
        assert_eq!(broken("one two three", 10, 4, 17), "one two\n    three");
    }
}
