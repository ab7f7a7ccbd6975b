//! Checks fragmented UTF-8 piece by piece, so that a text is refused at its first invalid byte.

/// Checks a text in pieces. Keeps the beginning of an incomplete character.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Utf8 {
    cut: [u8; 3],
    len: u8,
}

/// Not UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotUtf8;

impl Utf8 {
    /// Checks the next piece.
    ///
    /// # Errors
    /// The text is invalid, whatever follows.
    #[inline]
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), NotUtf8> {
        let rest = if self.len == 0 { bytes } else { self.complete(bytes)? };
        match str::from_utf8(rest) {
            Ok(_) => Ok(()),
            Err(why) if why.error_len().is_some() => Err(NotUtf8),
            Err(why) => {
                self.keep(rest.get(why.valid_up_to()..).unwrap_or_default());
                Ok(())
            }
        }
    }

    /// Returns whether the text may end here.
    #[inline]
    pub fn is_complete(&self) -> bool {
        self.len == 0
    }

    /// Completes the kept beginning of a character with the next bytes; returns the rest.
    fn complete<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], NotUtf8> {
        let kept = usize::from(self.len);
        let mut joined = [0_u8; 4];
        let mut end = 0;
        for (place, byte) in joined.iter_mut().zip(self.cut.iter().take(kept).chain(bytes)) {
            *place = *byte;
            end += 1;
        }
        let joined = joined.get(..end).unwrap_or_default();
        let whole = match str::from_utf8(joined) {
            Ok(_) => end,
            // The first character is complete; the bytes after it are checked with the rest.
            Err(why) if why.valid_up_to() > 0 => why.valid_up_to(),
            Err(why) if why.error_len().is_some() => return Err(NotUtf8),
            Err(_) => {
                self.keep(joined);
                return Ok(&[]);
            }
        };
        self.len = 0;
        // `whole > kept`, since the kept bytes are not a complete character.
        Ok(bytes.get(whole - kept..).unwrap_or_default())
    }

    fn keep(&mut self, cut: &[u8]) {
        self.len = 0;
        for (place, byte) in self.cut.iter_mut().zip(cut) {
            *place = *byte;
            self.len += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// In pieces of these sizes: whether all of it is taken, and complete.
    fn check(bytes: &[u8], piece: usize) -> bool {
        let mut text = Utf8::default();
        bytes.chunks(piece).all(|piece| text.feed(piece).is_ok()) && text.is_complete()
    }

    #[test]
    fn a_text_is_one_wherever_it_is_cut() {
        let texts: [&[u8]; 12] = [
            b"plain",
            "aé€😀z".as_bytes(),
            "😀😀😀".as_bytes(),
            b"\xf0\x9f\x98",
            b"\xc0\x80",
            b"\xed\xa0\x80",
            b"ok\xff",
            b"\xf4\x90\x80\x80",
            b"\xe2\x82",
            b"\xe2\x28\xa1",
            b"",
            "\u{10ffff}".as_bytes(),
        ];
        for text in texts {
            for piece in 1..6 {
                assert_eq!(check(text, piece), str::from_utf8(text).is_ok(), "{text:?} by {piece}");
            }
        }
    }

    #[test]
    fn a_wrong_byte_is_refused_at_once_and_not_at_the_end() {
        let mut text = Utf8::default();
        text.feed(b"\xce\xba\xe1\xbd").unwrap();
        text.feed(b"\xb9").unwrap();
        // A surrogate's second byte.
        text.feed(b"\xed").unwrap();
        assert_eq!(text.feed(b"\xa0"), Err(NotUtf8));
    }
}
