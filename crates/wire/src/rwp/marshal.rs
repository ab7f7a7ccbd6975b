//! Encoding for Python's `marshal` module: version 2, without references and interned strings.
//!
//! One C call in the worker makes the finished dictionary of it, with strings and byte strings of the right
//! types. This is a writer only: no data from a worker is read with it.

/// Appends values.
#[derive(Debug)]
pub struct Writer<'o>(pub &'o mut Vec<u8>);

impl Writer<'_> {
    /// Begins a dictionary: pairs of a key and a value follow, then [`end_dict`](Self::end_dict).
    pub fn begin_dict(&mut self) {
        self.0.push(b'{');
    }

    /// Ends a dictionary.
    pub fn end_dict(&mut self) {
        self.0.push(b'0');
    }

    /// Begins a list of `count` values, which follow.
    pub fn list(&mut self, count: usize) {
        self.0.push(b'[');
        self.count(count);
    }

    /// Begins a tuple of `count` values, which follow.
    pub fn tuple(&mut self, count: usize) {
        self.0.push(b'(');
        self.count(count);
    }

    /// Writes bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.0.push(b's');
        self.count(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    /// Writes bytes in lower case.
    pub fn bytes_lower(&mut self, bytes: &[u8]) {
        self.0.push(b's');
        self.count(bytes.len());
        self.0.extend(bytes.iter().map(u8::to_ascii_lowercase));
    }

    /// Writes a text.
    pub fn text(&mut self, text: &str) {
        self.0.push(b'u');
        self.count(text.len());
        self.0.extend_from_slice(text.as_bytes());
    }

    /// Writes a text with one character for each byte (ISO 8859-1), as WSGI requires.
    pub fn latin1(&mut self, bytes: &[u8]) {
        self.0.push(b'u');
        let at = self.0.len();
        self.count(0);
        for &byte in bytes {
            if byte < 0x80 {
                self.0.push(byte);
            } else {
                self.0.extend_from_slice(&[0xc0 | (byte >> 6), 0x80 | (byte & 0x3f)]);
            }
        }
        let length = (self.0.len() - at - 4) as u32;
        if let Some(place) = self.0.get_mut(at..at + 4) {
            place.copy_from_slice(&length.to_le_bytes());
        }
    }

    /// Writes a number.
    pub fn int(&mut self, number: i32) {
        self.0.push(b'i');
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    /// Writes True or False.
    pub fn truth(&mut self, value: bool) {
        self.0.push(if value { b'T' } else { b'F' });
    }

    /// Writes None.
    pub fn none(&mut self) {
        self.0.push(b'N');
    }

    /// Writes a count of values or bytes. Heads are limited to 64 KiB, so it fits.
    fn count(&mut self, count: usize) {
        self.0.extend_from_slice(&(count as u32).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected bytes are those of `marshal.dumps(…, 2)` in CPython 3.11, with `u` for interned text.
    #[test]
    fn values_have_the_bytes_that_python_writes() {
        let mut out = Vec::new();
        let mut writer = Writer(&mut out);
        writer.begin_dict();
        writer.text("a");
        writer.list(2);
        writer.tuple(2);
        writer.bytes(b"x");
        writer.bytes_lower(b"Y");
        writer.int(-2);
        writer.latin1(b"k\xe9");
        writer.none();
        writer.text("t");
        writer.truth(true);
        writer.end_dict();
        let expected = b"{u\x01\0\0\0a[\x02\0\0\0(\x02\0\0\0s\x01\0\0\0xs\x01\0\0\0yi\xfe\xff\xff\xff\
            u\x03\0\0\0k\xc3\xa9Nu\x01\0\0\0tT0";
        assert_eq!(out, expected);
    }
}
