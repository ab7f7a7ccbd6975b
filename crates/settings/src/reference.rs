//! Descriptions of tables and keys: what may be written, and the reference pages made of that.

use std::fmt::Write;

/// One key of a table.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// The form of its value, with an example: `time, as "10s"`.
    pub form: &'static str,
    /// The default value; empty if the key is required.
    pub default: &'static str,
    /// Its effect, in one or two sentences.
    pub meaning: &'static str,
}

/// One table, or the additional keys of one kind of a table.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// As it is written: `[limits]`, `[[route]]`, `[[route]] kind = "static"`.
    pub name: &'static str,
    /// Its purpose.
    pub meaning: &'static str,
    /// Its keys, in the order of the reference.
    pub keys: &'static [Key],
}

/// Returns the reference of these tables in Markdown.
pub fn markdown(tables: &[&Table]) -> String {
    let mut page = String::new();
    for table in tables {
        page.push_str(&markdown_of(table.name, table.meaning, table.keys));
    }
    page
}

/// Returns the reference of one table with these keys.
pub fn markdown_of<'k>(name: &str, meaning: &str, keys: impl IntoIterator<Item = &'k Key>) -> String {
    let mut page = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(page, "## `{name}`\n\n{meaning}\n");
    let mut keys = keys.into_iter().peekable();
    if keys.peek().is_none() {
        return page;
    }
    page.push_str("| key | value | default | meaning |\n|---|---|---|---|\n");
    for key in keys {
        let default = match key.default {
            "" => "required".to_owned(),
            "-" => "none".to_owned(),
            default => format!("`{}`", cell(default)),
        };
        let _ = writeln!(page, "| `{}` | {} | {default} | {} |", key.name, cell(key.form), cell(key.meaning));
    }
    page.push('\n');
    page
}

/// Escapes the text of a cell: a bar would end it.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_names_every_key_with_form_default_and_meaning() {
        const TABLE: Table = Table {
            name: "[a]",
            meaning: "About a.",
            keys: &[
                Key { name: "b", form: "`x` | `y`", default: "x", meaning: "Chooses." },
                Key { name: "c", form: "text", default: "", meaning: "Names." },
                Key { name: "d", form: "text", default: "-", meaning: "Adds." },
            ],
        };
        let expected = "## `[a]`\n\nAbout a.\n\n| key | value | default | meaning |\n|---|---|---|---|\n\
            | `b` | `x` \\| `y` | `x` | Chooses. |\n| `c` | text | required | Names. |\n\
            | `d` | text | none | Adds. |\n\n";
        assert_eq!(markdown(&[&TABLE]), expected);
    }
}
