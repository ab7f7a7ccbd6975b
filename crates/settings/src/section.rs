//! One table of a document: its keys are described, read once each, and all others are mistakes.

use crate::elsewhere::{self, Found};
use crate::mistake::{MISSING, Mistakes};
use crate::reference::{Key, Table};
use crate::value::found;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// One table.
pub struct Section<'a> {
    table: &'a DeTable<'a>,
    mistakes: &'a Mistakes,
    /// The keys of the enclosing tables, each with a dot; empty for the document itself.
    prefix: String,
    /// Its position.
    at: usize,
    described: Vec<&'static [Key]>,
}

impl<'a> Section<'a> {
    pub(crate) fn top(table: &'a DeTable<'a>, mistakes: &'a Mistakes) -> Section<'a> {
        Section { table, mistakes, prefix: String::new(), at: 0, described: Vec::new() }
    }

    /// Adds the keys that may be written in this table. A key must be described before it is read.
    pub fn describe(&mut self, table: &'static Table) {
        self.described.push(table.keys);
    }

    /// Adds one key that may be written here.
    pub fn describe_key(&mut self, key: &'static Key) {
        self.described.push(std::slice::from_ref(key));
    }

    fn known(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.described.iter().copied().flatten().map(|key| key.name)
    }

    fn find(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        debug_assert!(self.known().any(|known| known == key), "{key:?} is read and not described");
        let value = self.look(key)?;
        self.name_unknown(key, value);
        Some(value)
    }

    /// Completes the key in the mistake about an unknown value, or about one in a list.
    fn name_unknown(&self, key: &str, value: &Spanned<DeValue<'_>>) {
        self.mistakes.name_unknown(value.span().start, || self.full(key));
        for one in value.get_ref().as_array().into_iter().flat_map(|all| all.iter()) {
            self.mistakes.name_unknown(one.span().start, || self.full(key));
        }
    }

    fn look(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.table.iter().find(|(name, _)| name.get_ref().as_ref() == key).map(|(_, value)| value)
    }

    fn full(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    /// Returns whether the key is written, with whatever value.
    pub fn has(&self, key: &str) -> bool {
        self.look(key).is_some()
    }

    /// Returns the value of `key`, if it is written and `read` accepts it.
    pub fn read<T>(&self, key: &str, read: impl FnOnce(&DeValue<'a>) -> Result<T, String>) -> Option<T> {
        let value = self.find(key)?;
        match read(value.get_ref()) {
            Ok(read) => Some(read),
            Err(what) => {
                self.mistakes.note(value.span().start, self.full(key), what);
                None
            }
        }
    }

    /// Works as [`read`](Self::read) for a required key; `expected` is used in the message.
    pub fn require<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl FnOnce(&DeValue<'a>) -> Result<T, String>,
    ) -> Option<T> {
        if self.find(key).is_none() {
            self.mistakes.note(self.at, self.full(key), format!("{MISSING}: expected {expected}"));
            return None;
        }
        self.read(key, read)
    }

    /// Returns the folder at which relative paths of this table begin: that of the file it is written in.
    pub fn folder(&self) -> &'a Path {
        self.mistakes.folder(self.at_of_first())
    }

    /// Returns a position within the table: the top table of a document has none of its own.
    fn at_of_first(&self) -> usize {
        self.table.keys().map(|key| key.span().start).min().unwrap_or(self.at)
    }

    /// Resolves a path relative to the folder of the file that it is written in.
    pub fn path(&self, text: &str) -> PathBuf {
        self.folder().join(text)
    }

    /// Reads a regular file of at most 256 MiB.
    ///
    /// # Errors
    /// It is not a regular file, or cannot be read: the path and the cause.
    pub fn file(&self, text: &str) -> Result<Vec<u8>, String> {
        let path = self.path(text);
        ringroad_host::input::read(&path).map_err(|why| format!("{}: {why}", path.display()))
    }

    /// Returns the path of an existing folder, resolved by [`path`](Section::path). It need not be readable.
    ///
    /// # Errors
    /// The path is not a folder, or cannot be examined: the path and the cause.
    pub fn existing_folder(&self, text: &str) -> Result<PathBuf, String> {
        let path = self.path(text);
        match std::fs::metadata(&path) {
            Ok(about) if about.is_dir() => Ok(path),
            Ok(_) => Err(format!("{}: not a folder", path.display())),
            Err(why) => Err(format!("{}: {why}", path.display())),
        }
    }

    /// Records a mistake about `key`, or about the whole table if `key` is not written.
    pub fn mistake(&self, key: &str, what: impl Into<String>) {
        let at = self.look(key).map_or(self.at, |value| value.span().start);
        self.mistakes.note(at, self.full(key), what);
    }

    fn inner(&self, value: &'a Spanned<DeValue<'a>>, name: String) -> Option<Section<'a>> {
        match value.get_ref() {
            DeValue::Table(table) => Some(Section {
                table,
                mistakes: self.mistakes,
                prefix: format!("{name}."),
                at: value.span().start,
                described: Vec::new(),
            }),
            other => {
                self.mistakes.note(value.span().start, name, found("a table", other));
                None
            }
        }
    }

    /// Returns the table `key`.
    pub fn table(&self, key: &str) -> Option<Section<'a>> {
        let value = self.find(key)?;
        self.inner(value, self.full(key))
    }

    /// Returns the table `key` among free keys, as [`pairs`](Self::pairs) returns them.
    pub fn inner_table(&self, key: &str) -> Option<Section<'a>> {
        self.inner(self.look(key)?, self.full(key))
    }

    /// Returns the table `key` if its value is one. Another value is not recorded as a mistake.
    pub fn table_if(&self, key: &str) -> Option<Section<'a>> {
        let value = self.find(key)?;
        value.get_ref().is_table().then(|| self.inner(value, self.full(key))).flatten()
    }

    /// Returns the tables of `[[key]]`, numbered from 1 on.
    pub fn tables(&self, key: &str) -> Vec<Section<'a>> {
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

    /// Returns the tables of `[key.NAME]`, with their names.
    pub fn named(&self, key: &str) -> Vec<(String, Section<'a>)> {
        let Some(family) = self.table(key) else { return Vec::new() };
        let names = family.table.iter().filter_map(|(name, value)| {
            let name = name.get_ref().to_string();
            Some((name.clone(), family.inner(value, family.full(&name))?))
        });
        names.collect()
    }

    /// Reads the entries of a list that may hold values and tables. `one` reads each: it gets the value, and
    /// the table if it is one.
    pub fn list<T>(
        &self,
        key: &str,
        one: impl Fn(&DeValue<'a>, Option<Section<'a>>) -> Result<Option<T>, String>,
    ) -> Option<Vec<T>> {
        let value = self.find(key)?;
        let name = self.full(key);
        let single = std::slice::from_ref(value);
        let entries: Vec<_> = match value.get_ref() {
            DeValue::Array(all) => all.iter().collect(),
            _ => single.iter().collect(),
        };
        if entries.is_empty() {
            self.mistakes.note(value.span().start, name, "expected at least one, found an empty list");
            return None;
        }
        let mut list = Vec::new();
        for (at, value) in entries.into_iter().enumerate() {
            let name = format!("{name}[{}]", at + 1);
            let table = value.get_ref().is_table().then(|| self.inner(value, name.clone())).flatten();
            match one(value.get_ref(), table) {
                Ok(read) => list.extend(read),
                Err(what) => self.mistakes.note(value.span().start, name, what),
            }
        }
        Some(list)
    }

    /// Returns every key and value of a table with free keys.
    pub fn pairs(&self) -> impl Iterator<Item = (&'a str, &'a DeValue<'a>)> {
        self.table.iter().map(|(name, value)| {
            self.name_unknown(name.get_ref(), value);
            (name.get_ref().as_ref(), value.get_ref())
        })
    }

    /// Records a mistake for each key that is written and not described.
    pub fn finish(self) {
        for name in self.table.keys() {
            let word = name.get_ref().as_ref();
            if !self.known().any(|known| known == word) {
                let (meant, hint) = self.unknown(word);
                if let Some(meant) = meant {
                    self.mistakes.is_not_missing(&self.full(meant));
                }
                self.mistakes.note(name.span().start, self.full(word), format!("not a key here ({hint})"));
            }
        }
    }

    /// Returns the key that an unknown word probably means, if there is one, and a hint.
    fn unknown(&self, word: &str) -> (Option<&'static str>, String) {
        let mut known: Vec<_> = self.known().collect();
        let plain = word.replace('-', "_").to_lowercase();
        let near = known.iter().map(|known| (strsim::damerau_levenshtein(&plain, known), *known)).min();
        let elsewhere = elsewhere::translated(word, &known);
        match (near, elsewhere) {
            (_, Some(Found { key: Some(key), hint })) => (Some(key), hint),
            // A word of another server that means a key of another table: a typing error of one letter is
            // more likely.
            (Some((steps, _)), Some(Found { key: None, hint })) if steps > 1 => (None, hint),
            (Some((steps, known)), _) if steps <= 1 + known.len() / 4 => {
                (Some(known), format!("did you mean `{known}`?"))
            }
            _ => {
                known.sort_unstable();
                known.dedup();
                (None, format!("there are: {}", known.join(", ")))
            }
        }
    }
}

impl std::fmt::Debug for Section<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Section").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}
