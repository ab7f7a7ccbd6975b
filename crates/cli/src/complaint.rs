//! Error messages in one form: `ringroad: what, on what: why (hint)`.

use crate::terminal::{self, Indent};
use ringroad_host::words::without_numbers;
use std::io::{self, Write};
use std::path::Path;

/// Everything done.
pub(crate) const DONE: u8 = 0;
/// Something failed, with a message.
pub(crate) const FAILED: u8 = 1;
/// Bad usage, or a named driver that cannot be used.
pub(crate) const USAGE: u8 = 2;
/// An INVALID measurement.
pub(crate) const INVALID: u8 = 5;
/// Ended by SIGINT or SIGTERM.
pub(crate) const INTERRUPTED: u8 = 130;

/// Prints `ringroad: message` on stderr, broken at blanks to fit a terminal. A closed stderr is no reason to
/// stop.
pub(crate) fn say(message: &str) {
    say_whole(&terminal::with_short_words(message));
}

/// Prints the same with words of any length: a line of an application may be one, as one of JSON.
pub(crate) fn say_whole(message: &str) {
    let text = format!("ringroad: {}", without_numbers(message));
    let text = terminal::fitted(&text, terminal::columns(io::stderr()), Indent::At(2));
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Standard output. It is an error to write to where this program was started without one; the standard
/// library would take that for success.
pub(crate) fn output() -> Output {
    Output(io::stdout())
}

/// Prints on standard output. A reader that has closed its end has seen enough.
///
/// # Errors
/// The message that says why it cannot be written.
pub(crate) fn print(text: &str) -> Result<(), String> {
    let mut out = output();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(format!("write, on standard output: {}", why(&error)))
        }
        _ => Ok(()),
    }
}

/// See [`output`].
pub(crate) struct Output(io::Stdout);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if ringroad_host::standard::was_closed(1) { Err(no_stream()) } else { self.0.write(bytes) }
    }

    fn flush(&mut self) -> io::Result<()> {
        if ringroad_host::standard::was_closed(1) { Ok(()) } else { self.0.flush() }
    }
}

/// Returns the error of using a standard stream that is closed.
pub(crate) fn no_stream() -> io::Error {
    io::Error::from_raw_os_error(libc::EBADF)
}

/// Returns an I/O error without the "(os error N)", which does not help a reader.
pub(crate) fn why(error: &std::io::Error) -> String {
    without_numbers(&error.to_string())
}

/// Returns a path for a message. Control characters are escaped, so that a file name can neither start a line
/// that looks like a message of this program nor control the terminal.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_on_its_line() {
        assert_eq!(name(Path::new("a\nb\u{1b}[2Jü")), "a\\nb\\u{1b}[2Jü");
    }
}
