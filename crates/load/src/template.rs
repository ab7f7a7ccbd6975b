//! Requests that differ from each other: placeholders in path, header lines and body, filled in for each
//! request.
//!
//! `{n}` is the number of the request, `{random}` and `{random:1-1000}` a random number, `{uuid}` a random
//! UUID. The name of a column in braces is the value in a row of a [`Table`], one row per request in turn.
//! Other braces are literal, so JSON needs no quoting. A request with placeholders is written for each
//! request, which costs memory and time that a fixed one does not. Start at [`Template::new`].

use crate::error::Error;
use ringroad_measure::units::counted;
use std::borrow::Cow;
use std::fmt::Write;
use std::sync::Arc;

/// Prefix of the mark that replaces a placeholder while the request is encoded; its number and a dot follow.
const MARK: &str = "ringroad-placeholder-";

/// Rows of values, with a name for each column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Parses CSV (RFC 4180): a line of names, then at least one row with the same number of values.
    ///
    /// # Errors
    /// No row, a row of another length, an unclosed quote, or a name that is also a built-in placeholder.
    pub fn parse(text: &str) -> Result<Table, Error> {
        let mut lines = records(text)?.into_iter();
        let refuse = |why: String| Error::usage(format!("table of values: {why}"));
        let columns = lines.next().map(|(_, columns)| columns).unwrap_or_default();
        if let Some(name) = columns.iter().find(|name| !is_name(name)) {
            return Err(refuse(format!(
                "{name:?} is no name of a column: the first line has names of letters, digits and _, other than n, \
                 random and uuid"
            )));
        }
        let mut rows = Vec::new();
        for (line, row) in lines {
            if row.len() != columns.len() {
                let (here, wanted) = (counted(row.len() as u64, "value"), columns.len() as u64);
                let of = if wanted == 1 { "there is" } else { "there are" };
                return Err(refuse(format!(
                    "line {line} has {here}, and {of} {}",
                    counted(wanted, "column")
                )));
            }
            rows.push(row);
        }
        if rows.is_empty() {
            return Err(refuse("no row below the line of names".to_owned()));
        }
        Ok(Table { columns, rows })
    }

    /// Returns the names of the columns.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(String::as_str)
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && !["n", "random", "uuid"].contains(&name)
}

/// Returns the records of CSV, each with the number of its first line. Empty lines are skipped.
fn records(text: &str) -> Result<Vec<(usize, Vec<String>)>, Error> {
    let (mut records, mut record, mut value) = (Vec::new(), Vec::new(), String::new());
    let (mut line, mut first, mut quoted, mut was_quoted) = (1, 1, false, false);
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        line += usize::from(character == '\n');
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => value.extend(characters.next()),
            '"' if quoted => quoted = false,
            '"' if value.is_empty() && !was_quoted => (quoted, was_quoted) = (true, true),
            _ if quoted => value.push(character),
            ',' => {
                record.push(std::mem::take(&mut value));
                was_quoted = false;
            }
            '\r' if characters.peek() == Some(&'\n') => {}
            '\n' => {
                if !(record.is_empty() && value.is_empty() && !was_quoted) {
                    record.push(std::mem::take(&mut value));
                    records.push((first, std::mem::take(&mut record)));
                }
                (first, was_quoted) = (line, false);
            }
            _ => value.push(character),
        }
    }
    if quoted {
        return Err(Error::usage(format!(
            "table of values: a quote that begins on line {first} or later is not closed"
        )));
    }
    if !(record.is_empty() && value.is_empty() && !was_quoted) {
        record.push(value);
        records.push((first, record));
    }
    Ok(records)
}

/// A request as text with placeholders, made ready to be written.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    head: Vec<Part>,
    body: Vec<Part>,
    table: Option<Arc<Table>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Bytes(Vec<u8>),
    Filled(Kind, Where),
    /// The length of the body, in digits.
    Length,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Number,
    Random(u64, u64),
    Uuid,
    Column(usize),
}

/// The part of a request that contains a value, which decides how the value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    /// Path or query: all characters except unreserved ones are percent-encoded.
    Path,
    /// A header line: control characters are refused.
    Header,
    /// The body: written unchanged.
    Body,
}

/// Text with its placeholders replaced by marks, so that it can be encoded.
pub(crate) struct Marks {
    found: Vec<(Kind, Where)>,
    table: Option<Arc<Table>>,
}

impl Marks {
    pub(crate) fn new(table: Option<Arc<Table>>) -> Marks {
        Marks { found: Vec::new(), table }
    }

    /// Replaces the placeholders in `text`. Text without any is not copied: a body may be large.
    ///
    /// # Errors
    /// An invalid range of random numbers; a column value that is not allowed in this part.
    pub(crate) fn replace<'a>(&mut self, text: &'a [u8], place: Where) -> Result<Cow<'a, [u8]>, Error> {
        let mut out = Vec::new();
        // Bytes before `kept` are in `out`; the search for a placeholder continues at `at`.
        let (mut kept, mut at) = (0, 0);
        while let Some(open) = text.get(at..).and_then(|rest| memchr::memchr(b'{', rest)) {
            let open = at + open;
            // A name contains no brace: the next brace decides, so each byte is examined a few times at most.
            let from = text.get(open + 1..).unwrap_or_default();
            let close = memchr::memchr2(b'{', b'}', from).filter(|at| from.get(*at) == Some(&b'}'));
            let name = close.and_then(|close| from.get(..close));
            let name = name.and_then(|name| std::str::from_utf8(name).ok());
            let kind = name.map(|name| self.kind(name)).transpose()?.flatten();
            match (name, kind) {
                (Some(name), Some(kind)) => {
                    self.check(kind, place)?;
                    out.extend_from_slice(text.get(kept..open).unwrap_or_default());
                    out.extend_from_slice(format!("{MARK}{}.", self.found.len()).as_bytes());
                    self.found.push((kind, place));
                    at = open + name.len() + 2;
                    kept = at;
                }
                _ => at = open + 1,
            }
        }
        if kept == 0 {
            return Ok(Cow::Borrowed(text));
        }
        out.extend_from_slice(text.get(kept..).unwrap_or_default());
        Ok(Cow::Owned(out))
    }

    fn kind(&self, name: &str) -> Result<Option<Kind>, Error> {
        let column = || self.table.as_ref()?.columns.iter().position(|column| column == name);
        Ok(match name {
            "n" => Some(Kind::Number),
            "uuid" => Some(Kind::Uuid),
            "random" => Some(Kind::Random(0, u64::from(u32::MAX))),
            _ => match name.strip_prefix("random:") {
                Some(range) => {
                    let ends = range
                        .split_once('-')
                        .and_then(|(first, last)| first.parse::<u64>().ok().zip(last.parse::<u64>().ok()));
                    let ends = ends.filter(|(first, last)| first <= last);
                    let ends = ends.ok_or_else(|| {
                        Error::usage(format!("{{{name}}}: a range is expected, as in {{random:1-1000}}"))
                    })?;
                    Some(Kind::Random(ends.0, ends.1))
                }
                None => column().map(Kind::Column),
            },
        })
    }

    /// Checks whether every value of a column is allowed in this part.
    fn check(&self, kind: Kind, place: Where) -> Result<(), Error> {
        let (Kind::Column(column), Where::Header, Some(table)) = (kind, place, &self.table) else {
            return Ok(());
        };
        let bad = table
            .rows
            .iter()
            .filter_map(|row| row.get(column))
            .find(|value| value.contains(char::is_control));
        match bad {
            Some(bad) => Err(Error::usage(format!("{bad:?}: a header line cannot hold control characters"))),
            None => Ok(()),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }
}

impl Template {
    /// Makes a template of the request `encoded`, a head and a body, in which marks stand for placeholders.
    ///
    /// # Errors
    /// Text that looks like a mark but is not one.
    pub(crate) fn new(encoded: &[u8], marks: Marks) -> Result<Template, Error> {
        let end = memchr::memmem::find(encoded, b"\r\n\r\n").map_or(encoded.len(), |at| at + 4);
        let (head, body) = encoded.split_at(end);
        let parts = |bytes: &[u8]| -> Result<Vec<Part>, Error> {
            let (mut parts, mut rest) = (Vec::new(), bytes);
            while let Some(at) = memchr::memmem::find(rest, MARK.as_bytes()) {
                let (before, from) = rest.split_at(at);
                parts.push(Part::Bytes(before.to_vec()));
                let from = from.get(MARK.len()..).unwrap_or_default();
                let dot = memchr::memchr(b'.', from);
                let number =
                    dot.and_then(|dot| std::str::from_utf8(from.get(..dot)?).ok()?.parse::<usize>().ok());
                let found = number.and_then(|number| marks.found.get(number));
                let (Some(dot), Some((kind, place))) = (dot, found) else {
                    return Err(Error::usage(format!(
                        "{MARK} in a request: that word stands for placeholders here"
                    )));
                };
                parts.push(Part::Filled(*kind, *place));
                rest = from.get(dot + 1..).unwrap_or_default();
            }
            parts.push(Part::Bytes(rest.to_vec()));
            Ok(parts)
        };
        let (mut head, body) = (parts(head)?, parts(body)?);
        if body.len() > 1 {
            head = head.into_iter().flat_map(with_length).collect();
        }
        Ok(Template { head, body, table: marks.table })
    }

    /// Appends the `number`-th request.
    pub(crate) fn write(&self, out: &mut Vec<u8>, number: u64, random: &mut fastrand::Rng) {
        let mut body = Vec::new();
        self.fill(&mut body, &self.body, number, random, 0);
        self.fill(out, &self.head, number, random, body.len());
        out.extend_from_slice(&body);
    }

    fn fill(
        &self,
        out: &mut Vec<u8>,
        parts: &[Part],
        number: u64,
        random: &mut fastrand::Rng,
        length: usize,
    ) {
        let mut text = String::new();
        for part in parts {
            text.clear();
            // Writing to a String cannot fail.
            let _ = match part {
                Part::Bytes(bytes) => {
                    out.extend_from_slice(bytes);
                    Ok(())
                }
                Part::Length => write!(text, "{length}"),
                Part::Filled(Kind::Number, _) => write!(text, "{number}"),
                Part::Filled(Kind::Random(first, last), _) => write!(text, "{}", random.u64(*first..=*last)),
                Part::Filled(Kind::Uuid, _) => uuid(&mut text, random.u128(..)),
                Part::Filled(Kind::Column(column), place) => {
                    let rows = self.table.as_ref().map(|table| table.rows.as_slice()).unwrap_or_default();
                    let row = rows.get((number % rows.len().max(1) as u64) as usize);
                    let value = row.and_then(|row| row.get(*column)).map(String::as_str).unwrap_or_default();
                    match place {
                        Where::Path => percent(&mut text, value),
                        Where::Header | Where::Body => text.write_str(value),
                    }
                }
            };
            out.extend_from_slice(text.as_bytes());
        }
    }
}

/// Splits a piece of a head at the length of the body.
fn with_length(part: Part) -> Vec<Part> {
    const NAME: &[u8] = b"\r\nContent-Length: ";
    let Part::Bytes(bytes) = &part else { return vec![part] };
    let Some(at) = memchr::memmem::find(bytes, NAME) else { return vec![part] };
    let (before, from) = bytes.split_at(at + NAME.len());
    let digits = from.iter().take_while(|byte| byte.is_ascii_digit()).count();
    vec![
        Part::Bytes(before.to_vec()),
        Part::Length,
        Part::Bytes(from.get(digits..).unwrap_or_default().to_vec()),
    ]
}

/// Writes a UUID of version 4 (RFC 9562) from these random bits.
fn uuid(out: &mut String, bits: u128) -> std::fmt::Result {
    let bits = bits & !(0xf << 76) & !(0x3 << 62) | 4 << 76 | 2 << 62;
    let hex = format!("{bits:032x}");
    let cut = |from, to| hex.get(from..to).unwrap_or_default();
    write!(out, "{}-{}-{}-{}-{}", cut(0, 8), cut(8, 12), cut(12, 16), cut(16, 20), cut(20, 32))
}

/// Writes a value as a part of a path or a query (RFC 3986, unreserved characters stay).
fn percent(out: &mut String, value: &str) -> std::fmt::Result {
    value.bytes().try_for_each(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.write_char(byte.into()),
        _ => write!(out, "%{byte:02X}"),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn write(template: &Template, number: u64) -> String {
        let mut out = Vec::new();
        template.write(&mut out, number, &mut fastrand::Rng::with_seed(1));
        String::from_utf8(out).unwrap()
    }

    fn template(head: &str, body: &str, table: Option<&str>) -> Result<Template, Error> {
        let mut marks = Marks::new(table.map(|text| Arc::new(Table::parse(text).unwrap())));
        let head = marks.replace(head.as_bytes(), Where::Path)?;
        let body = marks.replace(body.as_bytes(), Where::Body)?;
        let length = format!("\r\nContent-Length: {}\r\n\r\n", body.len());
        Template::new(&[&head[..], length.as_bytes(), &body].concat(), marks)
    }

    #[test]
    fn placeholders_are_filled_in_and_other_braces_stay() {
        let csv = "user,city\nann,\"New \"\"York\"\"\"\nbob,Köln\n";
        let template =
            template("GET /{n}/{city}/{other}", r#"{"user":"{user}","n":{n},"{"#, Some(csv)).unwrap();
        assert_eq!(
            write(&template, 0),
            "GET /0/New%20%22York%22/{other}\r\nContent-Length: 22\r\n\r\n{\"user\":\"ann\",\"n\":0,\"{"
        );
        assert_eq!(
            write(&template, 11),
            "GET /11/K%C3%B6ln/{other}\r\nContent-Length: 23\r\n\r\n{\"user\":\"bob\",\"n\":11,\"{"
        );
    }

    #[test]
    fn a_placeholder_begins_at_the_last_brace_before_its_name() {
        for (text, filled) in [("{random:{n}", "{random:7"), ("{{{n}}}", "{{7}}"), ("{user{n", "{user{n")] {
            assert_eq!(write(&template(text, "", None).unwrap(), 7).lines().next(), Some(filled), "{text}");
        }
    }

    #[test]
    fn random_numbers_keep_to_their_range_and_a_uuid_is_one() {
        let template = template("{random:7-9} {random:5-5} {uuid} {random}", "", None).unwrap();
        let mut random = fastrand::Rng::with_seed(3);
        let mut seen = std::collections::BTreeSet::new();
        for number in 0..200 {
            let mut out = Vec::new();
            template.write(&mut out, number, &mut random);
            let text = String::from_utf8(out).unwrap();
            let words: Vec<&str> = text.split_whitespace().collect();
            seen.insert(words[0].parse::<u64>().unwrap());
            let uuid = words[2];
            assert_eq!((words[1], uuid.len(), &uuid[14..15]), ("5", 36, "4"), "{text}");
            assert!("89ab".contains(&uuid[19..20]) && words[3].parse::<u32>().is_ok(), "{text}");
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [7, 8, 9]);
        for text in ["{random:9-7}", "{random:x}", "{random:1-}"] {
            let mut marks = Marks::new(None);
            assert!(marks.replace(text.as_bytes(), Where::Body).is_err_and(|why| why.is_usage()), "{text}");
        }
    }

    #[test]
    fn a_table_that_is_none_is_refused_with_its_line() {
        for (text, why) in [
            ("", "no row"),
            ("a,b\n", "no row"),
            ("a b\n1\n", "no name of a column"),
            ("n\n1\n", "no name of a column"),
            ("a,b\n1,2\n\n3\n", "line 4 has 1 value, and"),
            ("a\n\"1\n", "not closed"),
        ] {
            let error = Table::parse(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text:?}: {error}");
        }
        let table = Table::parse("a,b\r\n\"x\r\ny\",\"\"\r\n1,2").unwrap();
        assert_eq!(table.rows, [["x\r\ny", ""], ["1", "2"]]);
        let mut marks = Marks::new(Some(Arc::new(table)));
        assert!(marks.replace(b"{a}", Where::Header).is_err_and(|why| why.to_string().contains("control")));
    }
}
