//! Mistakes in settings, and the texts of the files.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

/// A mistake in a file of settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1 on.
    pub line: usize,
    /// The key with its enclosing tables: `route[2].root`. Empty if the text is not TOML.
    pub key: String,
    /// What is wrong, and what was expected.
    pub what: String,
}

/// The text of a mistake that was recorded elsewhere, so that it is reported once: a value that names a table
/// with a mistake.
pub const NOTED: &str = "";

/// Why settings are not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsError {
    /// The requested file.
    pub file: PathBuf,
    /// Every mistake, in the order of files and lines; none if the file could not be read.
    pub mistakes: Vec<Mistake>,
    /// Why the file could not be read.
    pub unreadable: Option<String>,
}

impl SettingsError {
    pub(crate) fn unreadable(file: &Path, why: impl fmt::Display) -> SettingsError {
        SettingsError { file: file.to_owned(), mistakes: Vec::new(), unreadable: Some(why.to_string()) }
    }
}

impl fmt::Display for SettingsError {
    /// Writes one line for each mistake: `configuration, on FILE:LINE: KEY: WHAT`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why) = &self.unreadable {
            return write!(f, "configuration, on {}: {why}", self.file.display());
        }
        for (number, Mistake { file, line, key, what }) in self.mistakes.iter().enumerate() {
            let (end, colon) = (if number > 0 { "\n" } else { "" }, if key.is_empty() { "" } else { ": " });
            write!(f, "{end}configuration, on {}:{line}: {key}{colon}{what}", file.display())?;
        }
        Ok(())
    }
}

impl std::error::Error for SettingsError {}

/// Prefix of the mistake about a key that is not written.
pub(crate) const MISSING: &str = "missing";

/// The text of one file. The positions of all texts of a document are numbered together: a text begins at
/// `base`.
#[derive(Debug)]
struct Text {
    file: PathBuf,
    text: String,
    base: usize,
}

/// The texts of a document, and the mistakes found in them so far.
#[derive(Debug, Default)]
pub(crate) struct Mistakes {
    texts: Vec<Text>,
    found: RefCell<Vec<(usize, String, String)>>,
    /// Positions of unknown values. Further mistakes there are consequences.
    unknown: RefCell<BTreeSet<usize>>,
}

impl Mistakes {
    /// Adds a text; returns its base position.
    pub(crate) fn add(&mut self, file: PathBuf, text: String) -> usize {
        // One position separates two texts, so that the end of one is not the beginning of the next.
        let base = self.texts.last().map_or(0, |last| last.base + last.text.len() + 1);
        self.texts.push(Text { file, text, base });
        base
    }

    fn text_at(&self, at: usize) -> Option<&Text> {
        self.texts.iter().rev().find(|text| text.base <= at)
    }

    /// Returns the text that begins at `base`.
    pub(crate) fn text(&self, base: usize) -> &str {
        self.text_at(base).map_or("", |text| &text.text)
    }

    /// Returns the folder of the file at a position. Relative paths of that file begin there.
    pub(crate) fn folder(&self, at: usize) -> &Path {
        self.text_at(at).and_then(|text| text.file.parent()).unwrap_or(Path::new(""))
    }

    /// Records a mistake, unless it is [`NOTED`], or concerns an unknown value.
    pub(crate) fn note(&self, at: usize, key: impl Into<String>, what: impl Into<String>) {
        let what = what.into();
        if what != NOTED && !self.unknown.borrow().contains(&at) {
            self.found.borrow_mut().push((at, key.into(), what));
        }
    }

    /// Records why the value at a position is unknown.
    pub(crate) fn note_unknown(&self, at: usize, key: impl Into<String>, why: impl Into<String>) {
        self.note(at, key, why);
        self.unknown.borrow_mut().insert(at);
    }

    /// Adds the key with its enclosing tables to the mistake about an unknown value.
    pub(crate) fn name_unknown(&self, at: usize, key: impl FnOnce() -> String) {
        if self.unknown.borrow().contains(&at)
            && let Some((_, named, _)) = self.found.borrow_mut().iter_mut().find(|(place, ..)| *place == at)
        {
            *named = key();
        }
    }

    /// Removes the mistake that `key` is missing: it is written under a wrong name.
    pub(crate) fn is_not_missing(&self, key: &str) {
        self.found.borrow_mut().retain(|(_, own, what)| own != key || !what.starts_with(MISSING));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.borrow().is_empty()
    }

    /// Returns the mistakes as an error about `file`, in the order of their places.
    pub(crate) fn to_error(&self, file: &Path) -> SettingsError {
        let mut found = self.found.borrow().clone();
        found.sort_by_key(|(at, ..)| *at);
        let line_of = |at: usize| {
            self.text_at(at).map_or(1, |text| {
                let bytes = text.text.bytes().take(at.saturating_sub(text.base));
                bytes.filter(|byte| *byte == b'\n').count() + 1
            })
        };
        let mistakes = found.into_iter().map(|(at, key, what)| {
            let file = self.text_at(at).map_or_else(|| file.to_owned(), |text| text.file.clone());
            Mistake { file, line: line_of(at), key, what }
        });
        SettingsError { file: file.to_owned(), mistakes: mistakes.collect(), unreadable: None }
    }
}
