//! `CDN-Cache-Control`: `Cache-Control` for caches of the origin's side (RFC 9213), a dictionary of
//! structured fields (RFC 9651 §3.2).
//!
//! A field that is no dictionary is as if it were not there, and so is an empty one.

use super::Lines;
use super::control::Control;

/// The name of the field.
pub const NAME: &str = "cdn-cache-control";

/// A member's value, as far as it is of use here.
#[derive(Debug, PartialEq, Eq)]
enum Item {
    True,
    Integer(i64),
    Text(Vec<u8>),
    /// Of a type that no directive has.
    Other,
}

/// Reads the field; `None` where `Cache-Control` counts.
pub fn read(lines: &(impl Lines + ?Sized)) -> Option<Control> {
    let mut all: Option<Vec<u8>> = None;
    lines.each(NAME, &mut |value| match &mut all {
        Some(all) => {
            all.extend_from_slice(b", ");
            all.extend_from_slice(value);
        }
        None => all = Some(value.to_vec()),
    });
    let members = dictionary(&all?)?;
    if members.is_empty() {
        return None;
    }
    let mut control = Control::default();
    for (name, item) in members {
        match item {
            Item::True => {
                // A directive that needs a number has the wrong type, and does not count.
                if !matches!(&*name, b"max-age" | b"s-maxage" | b"stale-while-revalidate" | b"stale-if-error")
                {
                    control.take(&name, None);
                }
            }
            Item::Integer(number) if number >= 0 => control.take(&name, Some(number.to_string().as_bytes())),
            Item::Text(text) if matches!(&*name, b"private" | b"no-cache") => {
                control.take(&name, Some(&text))
            }
            Item::Integer(_) | Item::Text(_) | Item::Other => {}
        }
    }
    Some(control)
}

/// Returns the members of a dictionary, each key once, with its last value.
fn dictionary(text: &[u8]) -> Option<Vec<(Vec<u8>, Item)>> {
    let mut rest = Text(text);
    let mut members: Vec<(Vec<u8>, Item)> = Vec::new();
    rest.skip(b" ");
    while !rest.0.is_empty() {
        let name = rest.key()?;
        let item = if rest.take(b'=') { rest.member()? } else { Item::True };
        rest.parameters()?;
        members.retain(|(known, _)| *known != name);
        members.push((name, item));
        rest.skip(b" \t");
        if rest.0.is_empty() {
            return Some(members);
        }
        if !rest.take(b',') {
            return None;
        }
        rest.skip(b" \t");
        if rest.0.is_empty() {
            return None;
        }
    }
    Some(members)
}

struct Text<'t>(&'t [u8]);

impl Text<'_> {
    fn next(&self) -> Option<u8> {
        self.0.first().copied()
    }

    fn skip(&mut self, bytes: &[u8]) {
        while self.next().is_some_and(|byte| bytes.contains(&byte)) {
            self.0 = self.0.get(1..).unwrap_or_default();
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let is = self.next() == Some(byte);
        if is {
            self.0 = self.0.get(1..).unwrap_or_default();
        }
        is
    }

    fn while_is(&mut self, is: impl Fn(u8) -> bool) -> Vec<u8> {
        let end = self.0.iter().position(|byte| !is(*byte)).unwrap_or(self.0.len());
        let (taken, rest) = self.0.split_at(end);
        self.0 = rest;
        taken.to_vec()
    }

    fn key(&mut self) -> Option<Vec<u8>> {
        if !self.next().is_some_and(|byte| byte.is_ascii_lowercase() || byte == b'*') {
            return None;
        }
        Some(self.while_is(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-' | b'.' | b'*')
        }))
    }

    fn member(&mut self) -> Option<Item> {
        if !self.take(b'(') {
            return self.item();
        }
        loop {
            self.skip(b" ");
            if self.take(b')') {
                return Some(Item::Other);
            }
            self.item()?;
            self.parameters()?;
            if !matches!(self.next(), Some(b' ' | b')')) {
                return None;
            }
        }
    }

    fn parameters(&mut self) -> Option<()> {
        while self.take(b';') {
            self.skip(b" ");
            self.key()?;
            if self.take(b'=') {
                self.item()?;
            }
        }
        Some(())
    }

    fn item(&mut self) -> Option<Item> {
        match self.next()? {
            b'-' | b'0'..=b'9' => self.number(),
            b'"' => self.string(),
            b'?' => {
                self.take(b'?');
                match (self.take(b'1'), self.take(b'0')) {
                    (true, _) => Some(Item::True),
                    (_, true) => Some(Item::Other),
                    _ => None,
                }
            }
            b':' => {
                self.take(b':');
                self.while_is(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'='));
                self.take(b':').then_some(Item::Other)
            }
            byte if byte.is_ascii_alphabetic() || byte == b'*' => {
                self.while_is(|byte| byte.is_ascii_graphic() && !b"\"(),;<=>?@[\\]{}".contains(&byte));
                Some(Item::Other)
            }
            _ => None,
        }
    }

    fn number(&mut self) -> Option<Item> {
        let negative = self.take(b'-');
        let digits = self.while_is(|byte| byte.is_ascii_digit());
        if digits.is_empty() || digits.len() > 15 {
            return None;
        }
        if self.take(b'.') {
            let fraction = self.while_is(|byte| byte.is_ascii_digit());
            return ((1..=3).contains(&fraction.len()) && digits.len() <= 12).then_some(Item::Other);
        }
        let number = digits.iter().fold(0_i64, |sum, digit| sum * 10 + i64::from(digit - b'0'));
        Some(Item::Integer(if negative { -number } else { number }))
    }

    fn string(&mut self) -> Option<Item> {
        self.take(b'"');
        let mut text = Vec::new();
        loop {
            let byte = self.next()?;
            self.0 = self.0.get(1..)?;
            match byte {
                b'"' => return Some(Item::Text(text)),
                b'\\' => {
                    let escaped = self.next().filter(|byte| matches!(byte, b'"' | b'\\'))?;
                    self.0 = self.0.get(1..)?;
                    text.push(escaped);
                }
                b' '..=b'~' => text.push(byte),
                _ => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dictionary_takes_the_place_of_cache_control_and_anything_else_does_not() {
        let max_age = |value: &str| read(&[("CDN-Cache-Control", value)]).map(|control| control.max_age);
        for (value, expected) in [
            ("max-age=60", Some(Some(60))),
            ("a, max-age=60;b;c=\"x\", d=(1 2.5 :aGk=:)", Some(Some(60))),
            ("max-age=1, max-age=60", Some(Some(60))),
            // Of the wrong type.
            ("max-age=60.5", Some(None)),
            ("max-age=\"60\"", Some(None)),
            ("max-age", Some(None)),
            ("max-age=-1", Some(None)),
            // No dictionaries.
            ("", None),
            ("max-age=60,", None),
            ("Max-Age=60", None),
            ("max-age= 60", None),
            ("max-age=60 no-store", None),
            ("&", None),
        ] {
            assert_eq!(max_age(value), expected, "{value}");
        }
        assert!(
            read(&[("cdn-cache-control", "no-store"), ("cdn-cache-control", "public")])
                .is_some_and(|c| c.no_store && c.public)
        );
    }
}
