//! Classes of bytes, and the length of a run of one class.
//!
//! One table of classes decides. Before it, eight bytes at a time are checked in a way that may doubt a valid
//! byte but never accepts an invalid one; the table decides about doubted bytes. So only the table must be
//! exact, and the word checks need only be cautious.

/// `tchar` of RFC 9110 §5.6.2: methods, header names, options.
const TOKEN: u8 = 1;
/// `field-vchar`, space and tab of RFC 9110 §5.5: values, reason phrases.
const VALUE: u8 = 2;
/// Bytes of a request target: all except space, control characters, and `#`, which begins a fragment and is
/// never sent. Wider than RFC 3986, because clients send what they are given: browsers `|`, `{`, `}`, `^` and
/// `[`, others `"`, `<`, `>` and UTF-8 as well. Other code checks that bytes above 127 are UTF-8.
const TARGET: u8 = 4;
/// A registered name, as in DNS and hosts files: letters, digits, `-`, `.`, `_`, `~`. Narrower than RFC 3986:
/// a comma or an escape in `Host` is only ever an attempt to make two readers differ.
const HOST: u8 = 8;

// Evaluated at compile time, which would refuse an index out of range.
#[allow(clippy::indexing_slicing)]
static CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let b = byte as u8;
        let letter_or_digit = b.is_ascii_alphanumeric();
        let token = letter_or_digit
            || matches!(
                b,
                b'!' | b'#'
                    | b'$'
                    | b'%'
                    | b'&'
                    | b'\''
                    | b'*'
                    | b'+'
                    | b'-'
                    | b'.'
                    | b'^'
                    | b'_'
                    | b'`'
                    | b'|'
                    | b'~'
            );
        let value = b == b'\t' || (b >= 0x20 && b != 0x7f);
        let target = b > 0x20 && b != 0x7f && b != b'#';
        let host = letter_or_digit || matches!(b, b'-' | b'.' | b'_' | b'~');
        classes[byte] =
            (token as u8 * TOKEN) | (value as u8 * VALUE) | (target as u8 * TARGET) | (host as u8 * HOST);
        byte += 1;
    }
    classes
};

#[inline(always)]
fn is(byte: u8, class: u8) -> bool {
    CLASSES.get(usize::from(byte)).is_some_and(|classes| classes & class != 0)
}

/// Returns whether a byte may stand in a token.
pub(crate) fn is_token(byte: u8) -> bool {
    is(byte, TOKEN)
}

/// Returns whether a byte may stand in a header value.
pub(crate) fn is_value(byte: u8) -> bool {
    is(byte, VALUE)
}

/// Returns the length of the token at the beginning of `bytes`.
#[inline]
pub(crate) fn token_len(bytes: &[u8]) -> usize {
    run(bytes, TOKEN, |word| {
        // Everything except letters and dashes, which most names consist of, is doubted. With the eighth bit
        // cleared no sum carries into the next byte, so each byte is checked separately.
        let low = word & SEVEN_BITS;
        let folded = low | each(0x20);
        let from_a = folded + each(0x80 - b'a');
        let past_z = folded + each(0x80 - b'z' - 1);
        let not_dash = (low ^ each(b'-')) + each(0x7f);
        !((from_a & !past_z) | !not_dash) | word
    })
}

/// Returns the length of the header value at the beginning of `bytes`.
#[inline]
pub(crate) fn value_len(bytes: &[u8]) -> usize {
    run(bytes, VALUE, |word| below(word, 0x20) | equal(word, 0x7f))
}

/// Returns the length of the request target at the beginning of `bytes`.
#[inline]
pub(crate) fn target_len(bytes: &[u8]) -> usize {
    run(bytes, TARGET, |word| below(word, 0x21) | equal(word, 0x7f) | equal(word, b'#'))
}

/// Returns the length of a request target's path: all before the question mark.
#[inline]
pub(crate) fn path_len(target: &[u8]) -> usize {
    let mut rest = target;
    while let Some((word, after)) = rest.split_first_chunk::<8>() {
        let marks = equal(u64::from_le_bytes(*word), b'?') & TOP_BITS;
        if marks != 0 {
            return target.len() - rest.len() + (marks.trailing_zeros() / 8) as usize;
        }
        rest = after;
    }
    let last = rest.iter().position(|byte| *byte == b'?').unwrap_or(rest.len());
    target.len() - rest.len() + last
}

/// Returns whether a path has one spelling, with the same meaning to every reader: it begins with `/`, has no
/// escape, no parameter, no backslash and no control character, and no segment is empty or begins with a dot.
/// A path that is not plain may be valid too.
#[inline]
pub(crate) fn is_plain_path(path: &[u8]) -> bool {
    let odd = |byte: u8| byte < 0x20 || matches!(byte, 0x7f | b'%' | b';' | b'\\');
    let mut rest = path;
    // The top bit of the lowest byte: the byte before was a slash.
    let mut slash_before = 0;
    while let Some((word, after)) = rest.split_first_chunk::<8>() {
        let word = u64::from_le_bytes(*word);
        let slashes = equal(word, b'/') & TOP_BITS;
        let behind_slash = slashes << 8 | slash_before;
        let doubts = below(word, 0x20)
            | equal(word, 0x7f)
            | equal(word, b'%')
            | equal(word, b';')
            | equal(word, b'\\')
            | (behind_slash & (slashes | equal(word, b'.')));
        if doubts & TOP_BITS != 0 {
            return false;
        }
        slash_before = slashes >> 56;
        rest = after;
    }
    let mut slash_before = slash_before != 0;
    for byte in rest {
        if odd(*byte) || (slash_before && matches!(byte, b'/' | b'.')) {
            return false;
        }
        slash_before = *byte == b'/';
    }
    path.first() == Some(&b'/')
}

/// Returns the length of the host name at the beginning of `bytes`.
pub(crate) fn host_len(bytes: &[u8]) -> usize {
    // Digits and dots are as frequent as letters, and names are short: a check of eight bytes would mostly
    // doubt.
    bytes.iter().position(|byte| !is(*byte, HOST)).unwrap_or(bytes.len())
}

/// Returns the number of bytes of `class` at the beginning of `bytes`. `doubt` sets the top bit of each byte
/// of a word (the first byte is the lowest) that may not be of the class. Wrong bits above a right one are
/// allowed, since the lowest is examined first.
#[inline(always)]
fn run(bytes: &[u8], class: u8, doubt: impl Fn(u64) -> u64) -> usize {
    let mut rest = bytes;
    while let Some((word, after)) = rest.split_first_chunk::<8>() {
        let doubts = doubt(u64::from_le_bytes(*word)) & TOP_BITS;
        if doubts == 0 {
            rest = after;
            continue;
        }
        let sure = (doubts.trailing_zeros() / 8) as usize;
        let Some((doubted, after)) = rest.get(sure..).and_then(<[u8]>::split_first) else { break };
        if !is(*doubted, class) {
            return bytes.len() - after.len() - 1;
        }
        rest = after;
    }
    while let Some((byte, after)) = rest.split_first() {
        if !is(*byte, class) {
            break;
        }
        rest = after;
    }
    bytes.len() - rest.len()
}

const TOP_BITS: u64 = each(0x80);
const SEVEN_BITS: u64 = each(0x7f);

const fn each(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

/// Top bits of the bytes below `limit` (at most 0x80); above the first one a borrow may set more.
const fn below(word: u64, limit: u8) -> u64 {
    word.wrapping_sub(each(limit)) & !word
}

/// Top bits of the bytes equal to `byte`; above the first one a borrow may set more.
const fn equal(word: u64, byte: u8) -> u64 {
    below(word ^ each(byte), 1)
}

/// Returns whether `bytes` is `lower`, which is in lower case, in any case.
#[inline]
pub(crate) fn is_word(bytes: &[u8], lower: &[u8]) -> bool {
    bytes.eq_ignore_ascii_case(lower)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every byte at every place of a word and beside it, among good neighbours: the words never decide
    /// otherwise than the table.
    #[test]
    fn a_run_ends_where_the_table_says_wherever_the_byte_stands() {
        type Run = fn(&[u8]) -> usize;
        let runs: [(u8, Run); 4] =
            [(TOKEN, token_len), (VALUE, value_len), (TARGET, target_len), (HOST, host_len)];
        for (class, run) in runs {
            for byte in 0..=255u8 {
                for place in 0..20 {
                    for neighbour in [b'a', b'Z', b'0', b'-'] {
                        let mut bytes = [neighbour; 20];
                        bytes[place] = byte;
                        let expected = if is(byte, class) { 20 } else { place };
                        assert_eq!(run(&bytes), expected, "class {class} byte {byte} at {place}");
                    }
                }
            }
        }
    }

    #[test]
    fn two_odd_bytes_in_one_word_do_not_hide_each_other() {
        for first in 0..=255u8 {
            for second in 0..=255u8 {
                let bytes = [b'a', first, second, b'a', b'a', b'a', b'a', b'a'];
                for (class, run) in
                    [(TOKEN, token_len as fn(&[u8]) -> usize), (VALUE, value_len), (TARGET, target_len)]
                {
                    let slow = bytes.iter().position(|byte| !is(*byte, class)).unwrap_or(8);
                    assert_eq!(run(&bytes), slow, "{first} {second}");
                }
            }
        }
    }

    /// Returns whether a path is plain, byte by byte.
    fn is_plain(path: &[u8]) -> bool {
        let odd = |byte: &u8| byte.is_ascii_control() || b"%;\\".contains(byte);
        path.starts_with(b"/")
            && !path.iter().any(odd)
            && !path.windows(2).any(|pair| pair == b"//" || pair == b"/.")
    }

    #[test]
    fn two_bytes_anywhere_in_a_path_make_it_plain_or_not_as_each_byte_says() {
        let (mut plain, mut others) = (0, 0);
        for length in [9, 17] {
            for place in 1..length - 1 {
                for first in 0..=255u8 {
                    for second in 0..=255u8 {
                        let mut path = [b'a'; 17];
                        (path[0], path[place], path[place + 1]) = (b'/', first, second);
                        let path = &path[..length];
                        assert_eq!(is_plain_path(path), is_plain(path), "{}", path.escape_ascii());
                        let count = if is_plain(path) { &mut plain } else { &mut others };
                        *count += 1;
                    }
                }
            }
        }
        assert!(plain > 500_000 && others > 200_000, "{plain} {others}");
        for (path, expected) in [("", false), ("/", true), ("a", false), ("*", false), ("/a/", true)] {
            assert_eq!(is_plain_path(path.as_bytes()), expected, "{path}");
        }
    }

    #[test]
    fn a_path_ends_at_the_first_question_mark() {
        for length in 0..20 {
            for mark in 0..=length {
                let mut target = [b'a'; 20];
                target[mark.min(19)] = b'?';
                let target = &target[..length];
                let slow = target.iter().position(|byte| *byte == b'?').unwrap_or(length);
                assert_eq!(path_len(target), slow, "{}", target.escape_ascii());
            }
        }
        for byte in 0..=255u8 {
            let target = [b'/', byte, b'@', b'>', b'?', b'?', byte, b'a'];
            assert_eq!(path_len(&target), if byte == b'?' { 1 } else { 4 }, "{byte}");
        }
    }

    #[test]
    fn the_classes_are_those_of_the_rfcs() {
        let count = |class| (0..=255u8).filter(|byte| is(*byte, class)).count();
        assert_eq!(count(TOKEN), 26 * 2 + 10 + 15);
        assert_eq!(count(VALUE), 256 - 32 - 1 + 1);
        assert_eq!(count(TARGET), 256 - 33 - 1 - 1);
        assert_eq!(count(HOST), 26 * 2 + 10 + 4);
    }
}
