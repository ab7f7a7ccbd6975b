//! What goes wrong, said once and in one form: `ringroad: what, on what: why (hint)`.

use std::io::Write;
use std::path::Path;

/// Everything done.
pub(crate) const DONE: u8 = 0;
/// Something failed, and it was said what.
pub(crate) const FAILED: u8 = 1;
/// Bad usage, or a named driver that cannot be used.
pub(crate) const USAGE: u8 = 2;
/// A measurement that must not be believed.
pub(crate) const INVALID: u8 = 5;
/// Ended by SIGINT or SIGTERM.
pub(crate) const INTERRUPTED: u8 = 130;

/// Prints `ringroad: message` on stderr. A closed stderr is no reason to stop.
pub(crate) fn say(message: &str) {
    let _ = writeln!(std::io::stderr().lock(), "ringroad: {}", without_numbers(message));
}

/// An I/O error without the "(os error N)" that helps nobody who reads it.
pub(crate) fn why(error: &std::io::Error) -> String {
    without_numbers(&error.to_string())
}

/// A path as it may stand in a message: control characters are escaped, so that a name from outside can
/// neither begin a line that looks like ours nor command the terminal.
pub(crate) fn name(path: &Path) -> String {
    let mut name = String::new();
    for character in path.display().to_string().chars() {
        if character.is_control() {
            name.extend(character.escape_default());
        } else {
            name.push(character);
        }
    }
    name
}

/// The text without what the standard library appends to the words of the system: " (os error 2)".
fn without_numbers(text: &str) -> String {
    const OPENING: &str = " (os error ";
    let mut pieces = text.split(OPENING);
    let mut plain = pieces.next().unwrap_or_default().to_string();
    for piece in pieces {
        match piece.split_once(')') {
            Some((number, rest)) if number.parse::<i32>().is_ok() => plain.push_str(rest),
            _ => plain.extend([OPENING, piece]),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_numbers_are_left_out_and_nothing_else() {
        for (text, expected) in [
            ("bind: in use (os error 98) (take another)", "bind: in use (take another)"),
            ("gone (os error 2), twice (os error 2)", "gone, twice"),
            ("a name with (os error in it", "a name with (os error in it"),
            ("a name with (os error x) in it", "a name with (os error x) in it"),
        ] {
            assert_eq!(without_numbers(text), expected);
        }
    }

    #[test]
    fn a_name_stays_on_its_line() {
        assert_eq!(name(Path::new("a\nb\u{1b}[2Jü")), "a\\nb\\u{1b}[2Jü");
    }
}
