//! The system's words for an error, and what a message says beside them.

use std::io;

/// What the standard library puts between the system's text and the number of an error.
const NUMBER: &str = " (os error ";

/// Returns the text of an error without the number that the standard library appends.
pub fn without_number(error: &io::Error) -> String {
    let mut text = error.to_string();
    if let Some((words, _)) = split(&text) {
        text.truncate(words.len());
    }
    text
}

/// Returns the text without the numbers of errors: " (os error 2)" of the standard library, and those that
/// share a bracket with notes, as in "(os error 2; driver epoll)".
pub fn without_numbers(text: &str) -> String {
    let mut pieces = text.split(NUMBER);
    let mut plain = pieces.next().unwrap_or_default().to_string();
    for piece in pieces {
        match piece.split_once(')') {
            Some((number, rest)) if number.parse::<i32>().is_ok() => plain.push_str(rest),
            _ => match piece.split_once("; ") {
                Some((number, notes)) if number.parse::<i32>().is_ok() => plain.extend([" (", notes]),
                _ => plain.extend([NUMBER, piece]),
            },
        }
    }
    plain
}

/// Returns the text of an error with notes, all in one bracket:
/// `Connection refused (os error 111; nothing listens there)`.
pub fn with_notes(error: &io::Error, notes: &[&str]) -> String {
    let text = error.to_string();
    if notes.is_empty() {
        return text;
    }
    let notes = notes.join("; ");
    match split(&text) {
        Some((words, number)) => format!("{words} (os error {number}; {notes})"),
        None => format!("{text} ({notes})"),
    }
}

/// Returns the words and the number, where the text ends with one.
fn split(text: &str) -> Option<(&str, &str)> {
    let (words, number) = text.strip_suffix(')')?.rsplit_once(NUMBER)?;
    number.parse::<i32>().is_ok().then_some((words, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_and_the_number_of_an_error_share_a_bracket() {
        let refused = io::Error::from_raw_os_error(libc::ECONNREFUSED);
        let notes = ["nothing listens there", "driver epoll"];
        assert_eq!(
            with_notes(&refused, &notes),
            "Connection refused (os error 111; nothing listens there; driver epoll)"
        );
        assert_eq!(with_notes(&refused, &[]), "Connection refused (os error 111)");
        assert_eq!(
            with_notes(&io::Error::other("odd (very)"), &notes[..1]),
            "odd (very) (nothing listens there)"
        );
    }

    #[test]
    fn only_a_number_at_the_end_is_left_out() {
        assert_eq!(without_number(&io::Error::from_raw_os_error(libc::ENOENT)), "No such file or directory");
        for whole in ["plain", "odd (os error x)", "a (os error 2) within", "a )"] {
            assert_eq!(without_number(&io::Error::other(whole)), whole);
        }
    }

    #[test]
    fn error_numbers_are_left_out_and_nothing_else() {
        for (text, expected) in [
            ("bind: in use (os error 98) (take another)", "bind: in use (take another)"),
            ("gone (os error 2), twice (os error 2)", "gone, twice"),
            ("gone (os error 2; driver poll)", "gone (driver poll)"),
            ("gone (os error x; driver poll)", "gone (os error x; driver poll)"),
            ("a name with (os error in it", "a name with (os error in it"),
            ("a name with (os error x) in it", "a name with (os error x) in it"),
        ] {
            assert_eq!(without_numbers(text), expected);
        }
    }
}
