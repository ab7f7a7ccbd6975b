//! Strings of JSON, for the log and for listings.

use std::fmt::Write;

/// Characters that change how the text around them is shown: a log in a terminal must not be made to lie.
pub(crate) fn is_deceptive(character: char) -> bool {
    matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// A string of JSON (RFC 8259 §7). A byte that is not UTF-8 stands as `\xHH`, with the backslash escaped.
pub(crate) fn string(out: &mut String, text: &[u8]) {
    out.push('"');
    for chunk in text.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' | '\\' => {
                    out.push('\\');
                    out.push(character);
                }
                other if other.is_control() || is_deceptive(other) => {
                    let _ = write!(out, "\\u{:04x}", u32::from(other));
                }
                other => out.push(other),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\\\x{byte:02x}");
        }
    }
    out.push('"');
}
