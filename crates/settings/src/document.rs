//! A file of settings with the files that it includes, and environment variables filled in.

use crate::mistake::{Mistakes, SettingsError};
use crate::section::Section;
use crate::value::found;
use ringroad_host::input;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

/// The key that names further files, at the top of the first one.
const INCLUDE: &str = "include";

/// Settings as they were written: the texts of a file and of the files that it includes.
#[derive(Debug)]
pub struct Document {
    file: PathBuf,
    mistakes: Mistakes,
    /// Where each text begins.
    bases: Vec<usize>,
}

/// Reads an environment variable.
type Environment<'e> = &'e dyn Fn(&str) -> Option<String>;

impl Document {
    /// Reads `file` and the files that it includes. `file` may be a pipe, the others may not.
    ///
    /// Mistakes inside of the files are kept, and reported by [`read`](Self::read).
    ///
    /// # Errors
    /// The file cannot be read, or is not UTF-8.
    pub fn load(file: &Path) -> Result<Document, SettingsError> {
        let bytes = input::read_any(file).map_err(|why| why.to_string());
        let text = bytes.and_then(text).map_err(|why| SettingsError::unreadable(file, why))?;
        Ok(Document::parse(text, file))
    }

    /// Does the same with a text instead of the file's; relative paths begin at the folder of `file`.
    pub fn parse(text: String, file: &Path) -> Document {
        let mut mistakes = Mistakes::default();
        // Mistakes of syntax are noted when the document is read.
        let (named, included) = {
            let (table, _) = DeTable::parse_recoverable(&text);
            let folder = file.parent().unwrap_or(Path::new(""));
            included(table.get_ref(), folder)
        };
        let mut bases = vec![mistakes.add(file.to_owned(), text)];
        for (at, what) in named {
            mistakes.note(at, INCLUDE, what);
        }
        for (at, path) in included {
            match input::read_text(&path) {
                Ok(text) => bases.push(mistakes.add(path, text)),
                Err(why) => mistakes.note(at, INCLUDE, format!("{}: {why}", path.display())),
            }
        }
        Document { file: file.to_owned(), mistakes, bases }
    }

    /// Reads the whole document with `read`, which is given its top table.
    ///
    /// `$NAME` and `${NAME:-default}` in strings are replaced with what `environment` returns; `$$` is one
    /// `$`. A string that begins as a password hash does (`$id$`) stays as it is.
    ///
    /// # Errors
    /// Every mistake that was found, in the order of files and lines. Of a file that is not TOML only the
    /// first one: what the parser makes of the rest would add others that are none.
    pub fn read<T>(
        self,
        environment: Environment<'_>,
        read: impl FnOnce(Section<'_>) -> Option<T>,
    ) -> Result<T, SettingsError> {
        let Document { file, mistakes, bases } = self;
        let mut tables = Vec::new();
        let mut is_toml = true;
        for base in bases {
            let (table, errors) = DeTable::parse_recoverable(mistakes.text(base));
            let place = |why: &toml::de::Error| why.span().map_or(0, |span| span.start);
            if let Some(why) = errors.iter().min_by_key(|why| place(why)) {
                let what = why.message().lines().collect::<Vec<_>>().join(", ");
                mistakes.note(base + place(why), "", format!("not TOML: {what}"));
                is_toml = false;
            }
            tables.push((base, table));
        }
        if !is_toml {
            return Err(mistakes.to_error(&file));
        }
        let mut whole = DeTable::new();
        for (number, (base, table)) in tables.into_iter().enumerate() {
            let placed = Placing { base, environment, mistakes: &mistakes }.table(table.into_inner());
            if number == 0 {
                whole = placed;
            } else {
                merge(&mut whole, placed, &mistakes);
            }
        }
        let value = read(Section::top(&whole, &mistakes));
        match value {
            Some(value) if mistakes.is_empty() => Ok(value),
            _ => Err(mistakes.to_error(&file)),
        }
    }
}

/// Gives the values of one text their places in the document, and fills in variables.
struct Placing<'p> {
    base: usize,
    environment: Environment<'p>,
    mistakes: &'p Mistakes,
}

impl Placing<'_> {
    fn table<'t>(&self, table: DeTable<'t>) -> DeTable<'t> {
        let mut placed = DeTable::new();
        for (key, value) in table {
            let span = key.span();
            let name = key.into_inner();
            let value = self.value(value, &name);
            placed.insert(Spanned::new(span.start + self.base..span.end + self.base, name), value);
        }
        placed
    }

    fn value<'t>(&self, value: Spanned<DeValue<'t>>, key: &str) -> Spanned<DeValue<'t>> {
        let span = value.span();
        let span = span.start + self.base..span.end + self.base;
        let value = match value.into_inner() {
            DeValue::String(text) => match filled(&text, self.environment) {
                Ok(Cow::Owned(filled)) => DeValue::String(Cow::Owned(filled)),
                Ok(Cow::Borrowed(_)) => DeValue::String(text),
                Err(name) => {
                    let what =
                        format!("no variable {name} in the environment (${{{name}:-x}} has the default x)");
                    self.mistakes.note_unknown(span.start, key, what);
                    DeValue::String(text)
                }
            },
            DeValue::Array(all) => {
                let mut placed = DeArray::new();
                for one in all {
                    placed.push(self.value(one, key));
                }
                DeValue::Array(placed)
            }
            DeValue::Table(table) => DeValue::Table(self.table(table)),
            plain => plain,
        };
        Spanned::new(span, value)
    }
}

/// Returns the files that a document includes, sorted by name, each with the place that names it; and
/// mistakes with theirs.
#[allow(clippy::type_complexity, reason = "two lists of places, used once")]
fn included(table: &DeTable<'_>, folder: &Path) -> (Vec<(usize, String)>, Vec<(usize, PathBuf)>) {
    let (mut mistakes, mut files) = (Vec::new(), Vec::new());
    let Some((_, value)) = table.iter().find(|(name, _)| name.get_ref() == INCLUDE) else {
        return (mistakes, files);
    };
    let single = std::slice::from_ref(value);
    let patterns: Vec<_> = match value.get_ref() {
        DeValue::Array(all) => all.iter().collect(),
        _ => single.iter().collect(),
    };
    for value in patterns {
        let at = value.span().start;
        let Some(pattern) = value.get_ref().as_str() else {
            mistakes.push((at, found("names of files, as [\"conf.d/*.toml\"]", value.get_ref())));
            continue;
        };
        let full = folder.join(pattern);
        match glob::glob(&full.to_string_lossy()) {
            Ok(paths) => {
                let before = files.len();
                // An entry that cannot be looked at is in a folder without permission: noted when it is read.
                files.extend(paths.map(|path| (at, path.unwrap_or_else(|why| why.path().to_owned()))));
                if !pattern.contains(['*', '?', '[']) && files.len() == before {
                    mistakes.push((at, format!("{}: no such file", full.display())));
                }
            }
            Err(why) => mistakes.push((at, format!("not a pattern: {why}"))),
        }
    }
    (mistakes, files)
}

/// Adds an included file's tables: `[[lists]]` are appended, named tables (`[upstream.NAME]`) join their
/// family.
fn merge<'t>(whole: &mut DeTable<'t>, table: DeTable<'t>, mistakes: &Mistakes) {
    for (key, value) in table {
        let at = key.span().start;
        let name = key.get_ref().clone().into_owned();
        if name == INCLUDE {
            mistakes.note(at, INCLUDE, "an included file cannot include others");
            continue;
        }
        let Some((_, there)) = whole.iter_mut().find(|(known, _)| known.get_ref() == &*name) else {
            whole.insert(key, value);
            continue;
        };
        match (there.get_mut(), value.into_inner()) {
            (DeValue::Array(there), DeValue::Array(more)) if tables(there) && tables(&more) => {
                for one in more {
                    there.push(one);
                }
            }
            (DeValue::Table(there), DeValue::Table(more)) => {
                for (key, value) in more {
                    if there.contains_key(&key) {
                        let full = format!("{name}.{}", key.get_ref());
                        mistakes.note(key.span().start, full, "is written already, in another file");
                    } else {
                        there.insert(key, value);
                    }
                }
            }
            _ => mistakes.note(at, name, "is written already, in another file"),
        }
    }
}

/// Returns whether a list is one of tables, as `[[route]]` makes it.
fn tables(list: &DeArray<'_>) -> bool {
    list.iter().all(|value| value.get_ref().is_table())
}

fn text(bytes: Vec<u8>) -> Result<String, String> {
    String::from_utf8(bytes).map_err(|why| {
        let good = why.utf8_error().valid_up_to();
        let line = why.as_bytes().iter().take(good).filter(|byte| **byte == b'\n').count() + 1;
        format!("not UTF-8, in line {line}")
    })
}

/// Returns the text with its variables filled in, or the name of the one that the environment lacks.
fn filled<'t>(text: &'t str, environment: Environment<'_>) -> Result<Cow<'t, str>, String> {
    if !text.contains('$') || is_hash(text) {
        return Ok(Cow::Borrowed(text));
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('$') {
        out.push_str(before);
        rest = behind;
        if let Some(behind) = rest.strip_prefix('$') {
            out.push('$');
            rest = behind;
        } else if let Some((inner, behind)) = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
            let (name, default) = match inner.split_once(":-") {
                Some((name, default)) => (name, Some(default)),
                None => (inner, None),
            };
            let set = environment(name).filter(|value| default.is_none() || !value.is_empty());
            out.push_str(&set.or(default.map(str::to_owned)).ok_or(name)?);
            rest = behind;
        } else {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            let (name, behind) = rest.split_at(end);
            if name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
                out.push_str(&environment(name).ok_or(name)?);
                rest = behind;
            } else {
                out.push('$');
            }
        }
    }
    out.push_str(rest);
    Ok(Cow::Owned(out))
}

/// Returns whether a text is a password hash: `$` id `$` at its beginning (crypt(5)).
fn is_hash(text: &str) -> bool {
    let id = text.strip_prefix('$').and_then(|rest| rest.split_once('$'));
    id.is_some_and(|(id, rest)| {
        let is_id =
            !id.is_empty() && id.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        is_id && !rest.is_empty()
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn environment(name: &str) -> Option<String> {
        match name {
            "PORT" => Some("8080".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        }
    }

    #[test]
    fn variables_are_filled_in_and_a_missing_one_is_named() {
        for (text, expected) in [
            ("no variable", "no variable"),
            ("127.0.0.1:$PORT", "127.0.0.1:8080"),
            ("${PORT}0", "80800"),
            ("$PORT/$PORT", "8080/8080"),
            ("${NAME:-x y}", "x y"),
            ("${EMPTY:-x}", "x"),
            ("$EMPTY|", "|"),
            ("$$PORT", "$PORT"),
            ("costs 5$ or $5", "costs 5$ or $5"),
            ("$argon2id$v=19$m=1$AB", "$argon2id$v=19$m=1$AB"),
            ("$2y$10$ABC", "$2y$10$ABC"),
        ] {
            assert_eq!(filled(text, &environment).unwrap(), expected, "{text}");
        }
        for text in ["$NAME", "a${NAME}b", "$PORTS"] {
            assert!(filled(text, &environment).is_err(), "{text}");
        }
    }
}
