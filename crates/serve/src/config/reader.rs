//! TOML, read key by key, so that every mistake is found and told with its line, its key and what was expected.
//!
//! Not by `serde`: its errors end at the first, lose the place inside of tables that are chosen by a key (`kind`), and
//! cannot tell what a misspelt key was meant to be (docs/adr/0016). Start at [`Section`].

use std::cell::RefCell;
use std::fmt;
use std::path::PathBuf;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A mistake in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Its line, from 1 on.
    pub line: usize,
    /// The key, with the tables it is in: `route[2].root`. Empty where the file is no TOML.
    pub key: String,
    /// What is wrong, and what was expected.
    pub what: String,
}

/// Why a configuration is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The file.
    pub file: PathBuf,
    /// Every mistake, in the order of lines; none if the file could not be read.
    pub mistakes: Vec<Mistake>,
    /// Why the file could not be read.
    pub unreadable: Option<String>,
}

impl fmt::Display for ConfigError {
    /// A line for each mistake: `configuration, on FILE:LINE: KEY: WHAT`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.display();
        if let Some(why) = &self.unreadable {
            return write!(f, "configuration, on {file}: {why}");
        }
        for (number, Mistake { line, key, what }) in self.mistakes.iter().enumerate() {
            let (end, colon) = (if number > 0 { "\n" } else { "" }, if key.is_empty() { "" } else { ": " });
            write!(f, "{end}configuration, on {file}:{line}: {key}{colon}{what}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// The mistakes found so far, and the text they are in.
pub(super) struct Mistakes<'t> {
    text: &'t str,
    found: RefCell<Vec<Mistake>>,
}

impl<'t> Mistakes<'t> {
    pub(super) fn new(text: &'t str) -> Mistakes<'t> {
        Mistakes { text, found: RefCell::default() }
    }

    pub(super) fn note(&self, at: usize, key: impl Into<String>, what: impl Into<String>) {
        let line = self.text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1;
        self.found.borrow_mut().push(Mistake { line, key: key.into(), what: what.into() });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.found.borrow().is_empty()
    }

    pub(super) fn into_sorted(self) -> Vec<Mistake> {
        let mut found = self.found.into_inner();
        found.sort_by_key(|mistake| mistake.line);
        found
    }
}

/// One table.
pub(super) struct Section<'a, 'd> {
    table: &'a DeTable<'d>,
    mistakes: &'a Mistakes<'a>,
    /// The keys of the tables around it, with a point behind; empty for the file itself.
    prefix: String,
    /// Where it begins.
    at: usize,
    known: Vec<&'static str>,
}

/// Words of nginx and Swoole for things that have another name here.
const ELSEWHERE: &[(&str, &str)] = &[
    ("worker_processes", "workers"),
    ("worker_num", "workers"),
    ("enable_reuse_port", "reuse_port"),
    ("reuseport", "reuse_port"),
    ("max_wait_time", "drain"),
    ("worker_shutdown_timeout", "drain"),
    ("worker_connections", "max_connections"),
    ("max_conn", "max_connections"),
    ("document_root", "root"),
    ("alias", "root"),
    ("http_index_files", "index"),
    ("http_autoindex", "autoindex"),
    ("listing", "autoindex"),
    ("gzip_static", "precompressed"),
    ("brotli_static", "precompressed"),
    ("proxy_pass", "to"),
    ("upstream", "to"),
    ("add_header", "headers"),
    ("location", "route"),
    ("client_max_body_size", "body"),
    ("package_max_length", "body"),
    ("client_header_timeout", "header"),
    ("client_header_buffer_size", "header_line"),
    ("large_client_header_buffers", "headers"),
    ("keepalive_timeout", "keep_alive"),
    ("keepalive_requests", "requests_per_connection"),
    ("send_timeout", "send"),
    ("access_log", "file"),
    ("log_format", "format"),
    ("proxy_connect_timeout", "connect_timeout"),
    ("proxy_read_timeout", "answer_timeout"),
    ("keepalive", "keep"),
    ("return", "status"),
];

impl<'a, 'd> Section<'a, 'd> {
    pub(super) fn root(table: &'a DeTable<'d>, mistakes: &'a Mistakes<'a>) -> Section<'a, 'd> {
        Section { table, mistakes, prefix: String::new(), at: 0, known: Vec::new() }
    }

    fn find(&mut self, key: &'static str) -> Option<&'a Spanned<DeValue<'d>>> {
        self.known.push(key);
        self.table.iter().find(|(name, _)| name.get_ref().as_ref() == key).map(|(_, value)| value)
    }

    fn full(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    /// Whether the key is there, right or wrong.
    pub(super) fn has(&mut self, key: &'static str) -> bool {
        self.find(key).is_some()
    }

    /// The value of `key`, if it is there and `read` can make something of it.
    pub(super) fn read<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&DeValue<'d>) -> Result<T, String>,
    ) -> Option<T> {
        let value = self.find(key)?;
        match read(value.get_ref()) {
            Ok(read) => Some(read),
            Err(what) => {
                self.mistakes.note(value.span().start, self.full(key), what);
                None
            }
        }
    }

    /// The same, where it must be there; `expected` says what for.
    pub(super) fn require<T>(
        &mut self,
        key: &'static str,
        expected: &str,
        read: impl FnOnce(&DeValue<'d>) -> Result<T, String>,
    ) -> Option<T> {
        if !self.has(key) {
            self.mistakes.note(self.at, self.full(key), format!("missing: expected {expected}"));
            return None;
        }
        self.read(key, read)
    }

    /// Notes a mistake that is in no single value.
    pub(super) fn mistake(&self, key: &str, what: impl Into<String>) {
        let value = self.table.iter().find(|(name, _)| name.get_ref().as_ref() == key);
        let at = value.map_or(self.at, |(_, value)| value.span().start);
        self.mistakes.note(at, self.full(key), what);
    }

    fn inner(&self, value: &'a Spanned<DeValue<'d>>, name: String) -> Option<Section<'a, 'd>> {
        match value.get_ref() {
            DeValue::Table(table) => Some(Section {
                table,
                mistakes: self.mistakes,
                prefix: format!("{name}."),
                at: value.span().start,
                known: Vec::new(),
            }),
            other => {
                self.mistakes.note(value.span().start, name, found("a table", other));
                None
            }
        }
    }

    /// The table `key`.
    pub(super) fn table(&mut self, key: &'static str) -> Option<Section<'a, 'd>> {
        let value = self.find(key)?;
        self.inner(value, self.full(key))
    }

    /// The tables of `[[key]]`, numbered from 1 on.
    pub(super) fn tables(&mut self, key: &'static str) -> Vec<Section<'a, 'd>> {
        let Some(value) = self.find(key) else { return Vec::new() };
        let DeValue::Array(all) = value.get_ref() else {
            let what = found(&format!("tables, each headed by [[{key}]]"), value.get_ref());
            self.mistakes.note(value.span().start, self.full(key), what);
            return Vec::new();
        };
        let name = self.full(key);
        let numbered = all.iter().enumerate();
        numbered.filter_map(|(at, value)| self.inner(value, format!("{name}[{}]", at + 1))).collect()
    }

    /// Every key and value, where the keys are the user's own.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&'a str, &'a Spanned<DeValue<'d>>)> {
        self.table.iter().map(|(name, value)| (name.get_ref().as_ref(), value))
    }

    /// Notes the keys that nobody has asked for.
    pub(super) fn finish(self) {
        for name in self.table.keys() {
            let word = name.get_ref().as_ref();
            if !self.known.contains(&word) {
                self.mistakes.note(name.span().start, self.full(word), self.unknown(word));
            }
        }
    }

    fn unknown(&self, word: &str) -> String {
        let translated = ELSEWHERE.iter().find(|(theirs, ours)| *theirs == word && self.known.contains(ours));
        if let Some((_, ours)) = translated {
            return format!("not a key here (it is called `{ours}`)");
        }
        let plain = word.replace('-', "_").to_lowercase();
        let near = self.known.iter().map(|known| (strsim::damerau_levenshtein(&plain, known), *known)).min();
        match near {
            Some((steps, known)) if steps <= 1 + known.len() / 4 => {
                format!("not a key here (did you mean `{known}`?)")
            }
            _ => {
                let mut known = self.known.clone();
                known.sort_unstable();
                known.dedup();
                format!("not a key here (there are: {})", known.join(", "))
            }
        }
    }
}

/// `expected …, found …`.
pub(super) fn found(expected: &str, value: &DeValue<'_>) -> String {
    let what = match value {
        DeValue::String(text) => format!("{text:?}"),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(truth) => truth.to_string(),
        DeValue::Datetime(date) => date.to_string(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    };
    format!("expected {expected}, found {what}")
}
