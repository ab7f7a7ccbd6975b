//! What goes wrong, said once and in one form: `ringroad: what, on what: why (hint)`.

use std::io::Write;

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
    let _ = writeln!(std::io::stderr().lock(), "ringroad: {message}");
}

/// An I/O error without the "(os error N)" that helps nobody who reads it.
pub(crate) fn why(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error ") {
        Some(end) => text[..end].to_string(),
        None => text,
    }
}
