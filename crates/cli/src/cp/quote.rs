//! Names in messages as GNU programs quote them: safe to paste into a shell, one line whatever is in them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// How text may look here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Charset {
    Ascii,
    Utf8,
}

impl Charset {
    /// From the first of LC_ALL, LC_CTYPE and LANG that is set. Whether that locale is installed is not
    /// looked at: a terminal that was told UTF-8 shows it.
    pub(super) fn of_environment() -> Charset {
        let set = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(std::env::var_os);
        let name = set.into_iter().find(|value| !value.is_empty()).unwrap_or_default();
        let name = name.to_string_lossy().to_ascii_lowercase();
        if name.ends_with(".utf-8") || name.ends_with(".utf8") { Charset::Utf8 } else { Charset::Ascii }
    }
}

/// A piece of a name: text that can be shown, or bytes that cannot.
enum Piece<'a> {
    Shown(&'a str),
    Hidden(&'a [u8]),
}

/// Returns a file name: `'name'`, `"it's"`, `'a'$'\n''b'`.
pub(super) fn file(name: impl AsRef<OsStr>, charset: Charset) -> String {
    let bytes = name.as_ref().as_bytes();
    let pieces = pieces(bytes, charset);
    let shown = |piece: &Piece<'_>| matches!(piece, Piece::Shown(_));
    if bytes.contains(&b'\'') && pieces.iter().all(shown) && plain_between_double_quotes(bytes) {
        return format!("\"{}\"", String::from_utf8_lossy(bytes));
    }
    let mut quoted = String::from("'");
    let mut escaping = false;
    for piece in pieces {
        match piece {
            Piece::Shown(text) => {
                if escaping {
                    quoted.push_str("''");
                }
                quoted.push_str(&text.replace('\'', "'\\''"));
                escaping = false;
            }
            Piece::Hidden(bytes) => {
                if !escaping {
                    quoted.push_str("'$'");
                }
                bytes.iter().for_each(|byte| escape(&mut quoted, *byte));
                escaping = true;
            }
        }
    }
    quoted.push('\'');
    quoted
}

/// Returns a file name that a shell takes as it is, as it is; others quoted. So is one with a colon, because
/// a colon follows.
pub(super) fn bare(name: impl AsRef<OsStr>, charset: Charset) -> String {
    let bytes = name.as_ref().as_bytes();
    // A brace alone is a word of the shell's, `#` and `~` mean something in front.
    let plain = |(nth, byte): (usize, &u8)| match byte {
        b'#' | b'~' => nth > 0,
        b'{' | b'}' => bytes.len() > 1,
        byte => byte.is_ascii_alphanumeric() || !byte.is_ascii() || b"%+,-./@]_".contains(byte),
    };
    let shown = |piece: &Piece<'_>| matches!(piece, Piece::Shown(_));
    match std::str::from_utf8(bytes) {
        Ok(text)
            if !text.is_empty()
                && bytes.iter().enumerate().all(plain)
                && pieces(bytes, charset).iter().all(shown) =>
        {
            text.to_string()
        }
        _ => file(name, charset),
    }
}

/// Returns a word of the command line, in the quotes of prose.
pub(super) fn word(text: impl AsRef<OsStr>, charset: Charset) -> String {
    let mut shown = String::new();
    for piece in pieces(text.as_ref().as_bytes(), charset) {
        match piece {
            Piece::Shown(text) if charset == Charset::Utf8 => shown.push_str(text),
            Piece::Shown(text) => shown.push_str(&text.replace('\'', "\\'")),
            Piece::Hidden(bytes) => bytes.iter().for_each(|byte| escape(&mut shown, *byte)),
        }
    }
    match charset {
        Charset::Ascii => format!("'{shown}'"),
        Charset::Utf8 => format!("‘{shown}’"),
    }
}

/// Returns whether a shell takes these bytes between double quotes as they are.
fn plain_between_double_quotes(bytes: &[u8]) -> bool {
    bytes.iter().enumerate().all(|(nth, byte)| match byte {
        b'#' | b'~' => nth == 0,
        byte => byte.is_ascii_alphanumeric() || !byte.is_ascii() || b" %'+,-./:@]_".contains(byte),
    })
}

fn pieces(bytes: &[u8], charset: Charset) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    for chunk in bytes.utf8_chunks() {
        let printable =
            |character: char| !character.is_control() && (character.is_ascii() || charset == Charset::Utf8);
        let mut rest = chunk.valid();
        while let Some(first) = rest.chars().next() {
            let end = rest.find(|character| printable(character) != printable(first)).unwrap_or(rest.len());
            let (run, after) = rest.split_at(end);
            if printable(first) {
                pieces.push(Piece::Shown(run));
            } else {
                pieces.push(Piece::Hidden(run.as_bytes()));
            }
            rest = after;
        }
        if !chunk.invalid().is_empty() {
            pieces.push(Piece::Hidden(chunk.invalid()));
        }
    }
    pieces
}

fn escape(text: &mut String, byte: u8) {
    let letter = match byte {
        7 => 'a',
        8 => 'b',
        b'\t' => 't',
        b'\n' => 'n',
        11 => 'v',
        12 => 'f',
        b'\r' => 'r',
        _ => {
            text.push_str(&format!("\\{byte:03o}"));
            return;
        }
    };
    text.extend(['\\', letter]);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What GNU cp 9.1 printed for these names.
    #[test]
    fn names_are_quoted_as_gnu_does() {
        let cases: &[(&[u8], &str, &str)] = &[
            (b"a", "'a'", "'a'"),
            (b"", "''", "''"),
            (b"it's me", "\"it's me\"", "\"it's me\""),
            (b"it's $x", "'it'\\''s $x'", "'it'\\''s $x'"),
            (b"a\"b", "'a\"b'", "'a\"b'"),
            (b"it's#", "'it'\\''s#'", "'it'\\''s#'"),
            (b"a\nb", "'a'$'\\n''b'", "'a'$'\\n''b'"),
            (b"\x01", "''$'\\001'", "''$'\\001'"),
            (b"it's\nx", "'it'\\''s'$'\\n''x'", "'it'\\''s'$'\\n''x'"),
            (
                b"a\tb\rc\x07\x08\x0c\x0b\\",
                "'a'$'\\t''b'$'\\r''c'$'\\a\\b\\f\\v''\\'",
                "'a'$'\\t''b'$'\\r''c'$'\\a\\b\\f\\v''\\'",
            ),
            ("é".as_bytes(), "''$'\\303\\251'", "'é'"),
            (b"a\xffb", "'a'$'\\377''b'", "'a'$'\\377''b'"),
            (b"\xff1", "''$'\\377''1'", "''$'\\377''1'"),
        ];
        for (name, ascii, utf8) in cases {
            let name = OsStr::from_bytes(name);
            assert_eq!(file(name, Charset::Ascii), *ascii, "{name:?} in ASCII");
            assert_eq!(file(name, Charset::Utf8), *utf8, "{name:?} in UTF-8");
        }
    }

    #[test]
    fn words_have_the_quotes_of_the_charset() {
        assert_eq!(word("foo", Charset::Ascii), "'foo'");
        assert_eq!(word("foo", Charset::Utf8), "‘foo’");
    }
}
