//! The language rules of docs/STYLE.md, as far as a program can check them: part of `cargo xtask tidy`.
//!
//! Code, kernels and peers are named by what they are, not by a personal pronoun. A comment stays within the
//! width of the code. Files that do not meet this yet are listed in `xtask/language-pending.txt`, a list that
//! only shrinks. Start at [`check`].

use std::path::Path;

/// Columns of a line with a comment, as `max_width` in rustfmt.toml.
const WIDTH: usize = 110;

/// Words for people. Name the task, driver, kernel, client or caller instead.
const PRONOUNS: &[&str] = &[
    "who",
    "whom",
    "whose",
    "whoever",
    "whomever",
    "nobody",
    "somebody",
    "anybody",
    "everybody",
    "someone",
    "anyone",
    "everyone",
    "he",
    "him",
    "his",
    "himself",
];

/// Legitimate uses: names of accounts, and texts that are quoted.
const PHRASES: &[&str] = &["user nobody", "nobody:nogroup", "nobody/nogroup", "\"nobody\""];

/// The file that has to spell the words.
const THIS: &str = "xtask/src/language.rs";

/// Files that are not mended yet.
pub(crate) const PENDING: &str = "xtask/language-pending.txt";

/// What is said in a file and breaks a rule, line by line.
pub(crate) fn check(file: &Path, text: &str) -> Vec<String> {
    if file == Path::new(THIS) {
        return Vec::new();
    }
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let extension = file.extension().and_then(|end| end.to_str());
    let spoken = match extension {
        Some("rs") => rust(file, text),
        Some("md") => markdown(text),
        Some("toml" | "sh" | "yml" | "yaml" | "service") => hashes(text),
        Some("py") => python(text),
        Some("php") => outside_quotes(text, &["//", "#"]),
        Some("css") => outside_quotes(text, &[]),
        None if name == "Dockerfile" || file.starts_with(".ci") => hashes(text),
        _ => return Vec::new(),
    };
    let mut found: Vec<(usize, String)> = Vec::new();
    for (line, words) in spoken {
        if let Some(word) = pronoun(&words) {
            let what = format!("line {line}: {word:?}: name the task, driver, kernel, client or caller");
            found.push((line, what));
        }
    }
    if extension == Some("rs") {
        let wide = |line: &&str| line.chars().count() > WIDTH && !line.contains("://");
        let comments = text.lines().enumerate().filter(|(_, line)| line.trim_start().starts_with("//"));
        for (index, line) in comments.filter(|(_, line)| wide(line)) {
            let columns = line.chars().count();
            found.push((
                index + 1,
                format!("line {}: a comment of {columns} columns: at most {WIDTH}", index + 1),
            ));
        }
    }
    found.sort();
    found.into_iter().map(|(_, what)| what).collect()
}

/// The paths of the list, one a line; `#` begins a comment.
pub(crate) fn pending(list: &str) -> Vec<&str> {
    list.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

/// The first word for a person outside code spans and allowed phrases.
fn pronoun(text: &str) -> Option<&'static str> {
    // Odd parts are between backticks.
    let mut said = text.split('`').step_by(2).collect::<Vec<_>>().join(" ").to_lowercase();
    for phrase in PHRASES {
        said = said.replace(phrase, "");
    }
    let mut words = said.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '-');
    words.find_map(|word| PRONOUNS.iter().find(|pronoun| **pronoun == word).copied())
}

/// Prose of a document, without blocks of code. A span of code may go on in the next line, so paragraphs are
/// joined.
fn markdown(text: &str) -> Vec<(usize, String)> {
    let mut spoken: Vec<(usize, String)> = Vec::new();
    let mut in_code = false;
    let mut ticks = 0;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
            continue;
        }
        if in_code {
            continue;
        }
        if line.trim().is_empty() {
            ticks = 0;
            continue;
        }
        // A line that begins inside a span gets the backtick that opened it.
        let opened = if ticks % 2 == 1 { "`" } else { "" };
        spoken.push((index + 1, format!("{opened}{line}")));
        ticks += line.matches('`').count();
    }
    spoken
}

/// Comments that begin with `#`.
fn hashes(text: &str) -> Vec<(usize, String)> {
    let lines = text.lines().enumerate();
    lines.filter_map(|(index, line)| Some((index + 1, hash(line)?.to_owned()))).collect()
}

/// The comment of a line that begins with `#`.
fn hash(line: &str) -> Option<&str> {
    match line.trim_start().starts_with('#') {
        true => Some(line),
        false => line.split_once(" # ").map(|(_, comment)| comment),
    }
}

/// Comments that begin with `#`, and lines of texts in three quotes, as docstrings are.
fn python(text: &str) -> Vec<(usize, String)> {
    let mut spoken = Vec::new();
    let mut in_text = false;
    for (index, line) in text.lines().enumerate() {
        let quotes = line.matches("\"\"\"").count();
        let words = if in_text || quotes > 0 { Some(line) } else { hash(line) };
        spoken.extend(words.map(|words| (index + 1, words.to_owned())));
        in_text ^= quotes % 2 == 1;
    }
    spoken
}

/// Comments between `/*` and `*/`, and from one of `openers` to the end of its line. Texts in quotes are data.
fn outside_quotes(text: &str, openers: &[&str]) -> Vec<(usize, String)> {
    let mut spoken = Vec::new();
    let mut line = 1;
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let is_block = rest.starts_with("/*");
        // `#[` begins an attribute of PHP.
        let is_line = openers.iter().any(|opener| rest.starts_with(opener)) && !rest.starts_with("#[");
        let length = match rest.chars().next() {
            _ if is_block => rest[2..].find("*/").map_or(rest.len(), |end| end + 4),
            _ if is_line => rest.find('\n').unwrap_or(rest.len()),
            Some('"' | '\'') => quoted(rest),
            letter => letter.map_or(1, char::len_utf8),
        };
        let words = &rest[..length];
        if is_block || is_line {
            spoken.extend(words.lines().enumerate().map(|(offset, words)| (line + offset, words.to_owned())));
        }
        line += words.matches('\n').count();
        at += length;
    }
    spoken
}

/// The length of a text in quotes, which begins with its quote.
fn quoted(rest: &str) -> usize {
    let mut letters = rest.char_indices();
    let quote = letters.next().map(|(_, letter)| letter);
    let mut escaped = false;
    for (at, letter) in letters {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if Some(letter) == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// Comments, and literals of text outside tests.
fn rust(file: &Path, text: &str) -> Vec<(usize, String)> {
    let is_test = file.components().any(|part| part.as_os_str() == "tests") || file.ends_with("tests.rs");
    let test_from = match is_test {
        true => 0,
        false => text.find("#[cfg(test)]\nmod ").unwrap_or(text.len()),
    };
    let mut spoken = Vec::new();
    let mut line = 1;
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let (length, is_comment, is_literal) = piece(rest);
        let words = &rest[..length];
        if is_comment || (is_literal && at < test_from) {
            for (offset, words) in words.lines().enumerate() {
                // A backtick opened in the line above belongs to the same comment; each line stands for
                // itself here.
                spoken.push((line + offset, words.to_owned()));
            }
        }
        line += words.matches('\n').count();
        at += length;
    }
    spoken
}

/// The length of the next piece of source, and whether it is a comment or a literal of text.
fn piece(rest: &str) -> (usize, bool, bool) {
    let to = |end: Option<usize>, length: usize| end.map_or(rest.len(), |end| end + length);
    if rest.starts_with("//") {
        return (to(rest.find('\n'), 0), true, false);
    }
    if rest.starts_with("/*") {
        return (to(rest.find("*/"), 2), true, false);
    }
    if let Some(raw) = rest.strip_prefix('r').filter(|raw| raw.starts_with(['"', '#'])) {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            let end = format!("\"{}", "#".repeat(hashes));
            let inside = hashes + 2;
            let found = rest[inside..].find(&end);
            return (found.map_or(rest.len(), |found| inside + found + end.len()), false, true);
        }
    }
    let mut letters = rest.char_indices();
    match letters.next().map(|(_, letter)| letter) {
        Some('"') => (quoted(rest), false, true),
        // A letter, or else a lifetime.
        Some('\'') if rest.starts_with("'\\") => {
            (rest[2..].find('\'').map_or(2, |end| end + 3), false, false)
        }
        Some('\'') => {
            let quoted = letters.next().filter(|_| letters.next().is_some_and(|(_, letter)| letter == '\''));
            (quoted.map_or(1, |(at, letter)| at + letter.len_utf8() + 1), false, false)
        }
        // A word whole, so that its last `r` does not begin a raw literal.
        Some(letter) if letter.is_alphanumeric() || letter == '_' => {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            (end, false, false)
        }
        Some(letter) => (letter.len_utf8(), false, false),
        None => (0, false, false),
    }
}

/// Wraps the comments of a source file that are wider than the code. Paragraphs that fit stay as they are.
pub(crate) fn wrapped(text: &str) -> String {
    let mut out: Vec<String> = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let Some((opener, first)) = comment(line) else {
            out.push(line.to_owned());
            continue;
        };
        let mut block = vec![first];
        while let Some((_, more)) =
            lines.peek().and_then(|line| comment(line)).filter(|next| next.0 == opener)
        {
            block.push(more);
            lines.next();
        }
        wrap_block(opener, &block, &mut out);
    }
    let mut joined = out.join("\n");
    if text.ends_with('\n') {
        joined.push('\n');
    }
    joined
}

/// The indent with the slashes of a line that is a comment, and its words.
fn comment(line: &str) -> Option<(&str, &str)> {
    let indent = line.len() - line.trim_start().len();
    let slashes = ["///", "//!", "//"].into_iter().find(|slashes| line[indent..].starts_with(slashes))?;
    let (opener, words) = line.split_at(indent + slashes.len());
    match words.strip_prefix(' ') {
        Some(words) => Some((opener, words)),
        None => words.is_empty().then_some((opener, "")),
    }
}

/// Wraps paragraphs and items of lists. Code, tables, headings and separators stay as they are, except that
/// the dashes of a separator end at the width.
fn wrap_block(opener: &str, block: &[&str], out: &mut Vec<String>) {
    let mut paragraph: Vec<&str> = Vec::new();
    let mut in_code = false;
    for line in block {
        let fence = line.trim_start().starts_with("```");
        let is_item = line.trim_start().len() != item(line).len();
        let separator = is_separator(line);
        let verbatim = in_code
            || fence
            || separator
            || line.is_empty()
            || line.starts_with(['|', '#'])
            || line.starts_with("    ");
        if verbatim || is_item {
            wrap_paragraph(opener, &std::mem::take(&mut paragraph), out);
        }
        in_code ^= fence;
        match verbatim {
            true if separator && !in_code => out.push(shortened(format!("{opener} {line}"))),
            true => out.push(format!("{opener} {line}").trim_end().to_owned()),
            false => paragraph.push(line),
        }
    }
    wrap_paragraph(opener, &paragraph, out);
}

/// Whether a line divides a file: `---- the kernel's side ----`.
fn is_separator(line: &str) -> bool {
    ["---", "==="].iter().any(|rule| line.starts_with(rule))
}

/// A separator without the dashes beyond the width.
fn shortened(mut line: String) -> String {
    while line.chars().count() > WIDTH && line.ends_with(['-', '=']) {
        line.pop();
    }
    line
}

/// A line without its indent and without the mark of an item.
fn item(line: &str) -> &str {
    let text = line.trim_start();
    text.strip_prefix("- ").or_else(|| text.strip_prefix("* ")).unwrap_or(text)
}

fn wrap_paragraph(opener: &str, paragraph: &[&str], out: &mut Vec<String>) {
    let fits = |line: &&&str| opener.chars().count() + 1 + line.chars().count() <= WIDTH;
    if paragraph.iter().filter(fits).count() == paragraph.len() {
        out.extend(paragraph.iter().map(|line| format!("{opener} {line}")));
        return;
    }
    let first = paragraph[0];
    let marker = first.len() - item(first).len();
    let (marker, rest) = first.split_at(marker);
    let words = rest.split_whitespace().chain(paragraph[1..].iter().flat_map(|line| line.split_whitespace()));
    let mut line = format!("{opener} {marker}");
    let mut is_empty = true;
    for word in glued(words) {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            out.push(line);
            line = format!("{opener} {}", " ".repeat(marker.chars().count()));
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(&word);
        is_empty = false;
    }
    out.push(line);
}

/// Words, with a sign joined to the word before it. At the start of a line it would be the mark of an item,
/// or stand apart from its number.
fn glued<'a>(words: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut glued: Vec<String> = Vec::new();
    for word in words {
        let is_sign = matches!(word, "-" | "*") || word.starts_with('%');
        match glued.last_mut().filter(|_| is_sign) {
            Some(before) => {
                before.push(' ');
                before.push_str(word);
            }
            None => glued.push(word.to_owned()),
        }
    }
    glued
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_comments_are_wrapped_and_nothing_else_changes() {
        let wide = format!("    /// - {}\n    ///   end\n", "word ".repeat(30).trim());
        let wrapped_once = wrapped(&wide);
        assert!(wrapped_once.lines().all(|line| line.chars().count() <= WIDTH), "{wrapped_once}");
        assert!(
            wrapped_once.lines().nth(1).is_some_and(|line| line.starts_with("    ///   word")),
            "{wrapped_once}"
        );
        let words =
            |text: &str| text.replace("///", "").split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&wrapped_once), words(&wide));
        assert_eq!(wrapped(&wrapped_once), wrapped_once);
        let code = format!(
            "//! ```text\n//! {}\n//! ```\nlet a = \"{}\";\n",
            "x ".repeat(80).trim(),
            "y".repeat(150)
        );
        assert_eq!(wrapped(&code), code);
        let short = "// One\n// two.\n";
        assert_eq!(wrapped(short), short);
    }

    #[test]
    fn a_wide_separator_loses_dashes_and_stays_one_line() {
        let wide = format!("    // ---- the kernel's side {}\n    // Takes entries.\n", "-".repeat(120));
        let once = wrapped(&wide);
        let lines: Vec<&str> = once.lines().collect();
        assert_eq!(lines.len(), 2, "{once}");
        assert!(lines[0].starts_with("    // ---- the kernel's side ---"), "{once}");
        assert_eq!(lines[0].chars().count(), WIDTH);
        assert_eq!(wrapped(&once), once);
    }

    #[test]
    fn a_sign_between_words_never_begins_a_line() {
        for length in 80..WIDTH - 4 {
            let wide =
                format!("// {} 2^64 - 2 alarms, 7 % of an echo of a certain length\n", "a".repeat(length));
            let once = wrapped(&wide);
            assert!(
                !once.lines().any(|line| line.starts_with("// - ") || line.starts_with("// %")),
                "{once}"
            );
            assert!(once.lines().all(|line| line.chars().count() <= WIDTH), "{once}");
        }
    }

    fn found(file: &str, text: &str) -> Vec<String> {
        check(Path::new(file), text)
    }

    #[test]
    fn a_personal_pronoun_is_found_in_comments_and_texts_with_its_line() {
        let text =
            "//! Opens.\nfn who() {\n    // Whoever comes.\n    say(\"nobody\\\" \\\n        asks\");\n}\n";
        let expected = [
            "line 3: \"whoever\": name the task, driver, kernel, client or caller",
            "line 4: \"nobody\": name the task, driver, kernel, client or caller",
        ];
        assert_eq!(found("crates/host/src/cpu.rs", text), expected);
    }

    #[test]
    fn code_names_and_allowed_phrases_are_not_prose() {
        let text = "fn nobody<'who>(c: char) -> &'who str {\n    // As user nobody, see `who`.\n    whose('\"', '\\'')\n}\n";
        assert_eq!(found("crates/host/src/cpu.rs", text), [""; 0]);
    }

    #[test]
    fn texts_of_tests_are_data_and_their_comments_are_not() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    const NAME: &str = \"nobody\";\n    // Nobody asks.\n}\n";
        assert_eq!(found("crates/host/src/cpu.rs", text).len(), 1);
        assert_eq!(found("crates/host/tests/it/cpu.rs", "const NAME: &str = \"nobody\";\n"), [""; 0]);
    }

    #[test]
    fn raw_texts_end_where_their_hashes_say() {
        let text = "const A: &str = r#\"a \" b\"#;\nconst who: u8 = 1;\nconst B: &str = br\"somebody\";\n";
        let found = found("crates/host/src/cpu.rs", text);
        assert!(found.len() == 1 && found[0].starts_with("line 3"), "{found:?}");
    }

    #[test]
    fn code_in_documents_is_not_prose() {
        let text = "# A\n\n```\nwho am i\n```\n\nRun `who\nam i` and\nsee who is there.\n";
        let found = found("docs/a.md", text);
        assert!(found.len() == 1 && found[0].starts_with("line 9"), "{found:?}");
    }

    #[test]
    fn comments_of_other_files_are_read() {
        assert_eq!(found("benches/a.toml", "# Who asks.\nwho = 1 # nobody\n").len(), 2);
        assert_eq!(found(".ci/run", "#!/bin/sh\nwho\n"), [""; 0]);
    }

    #[test]
    fn comments_of_python_are_read_with_its_docstrings() {
        let text = "def who():\n    \"\"\"Tells\n    who asks.\n    \"\"\"\n    return \"who \"  # whose\n";
        let found = found("contrib/a.py", text);
        assert!(found.len() == 2, "{found:?}");
        assert!(found[0].starts_with("line 3") && found[1].starts_with("line 5"), "{found:?}");
    }

    #[test]
    fn comments_of_php_and_css_are_read_and_their_texts_are_not() {
        let text =
            "<?php\n#[who]\n$who = 'it\\'s // who'; // nobody\n/**\n * Whose.\n */\n$a = \"# who\"; # him\n";
        let found_in_php = found("runners/php/a.php", text);
        assert!(found_in_php.len() == 3, "{found_in_php:?}");
        let lines = ["line 3", "line 5", "line 7"];
        assert!(
            found_in_php.iter().zip(lines).all(|(what, line)| what.starts_with(line)),
            "{found_in_php:?}"
        );
        let sheet = "/* Colours\n   for everyone. */\na::before { content: \"/* who */\"; color: #fff; }\n";
        let found_in_css = found("crates/lab/src/page/a.css", sheet);
        assert!(found_in_css.len() == 1 && found_in_css[0].starts_with("line 2"), "{found_in_css:?}");
    }

    #[test]
    fn a_comment_wider_than_the_code_is_found() {
        let wide = format!("//! {}\n", "a ".repeat(60));
        let found = found("crates/host/src/cpu.rs", &wide);
        assert!(found.len() == 1 && found[0].contains("at most 110"), "{found:?}");
        let fits = format!("// {}\nlet a = \"{}\";\n", "a".repeat(107), "b".repeat(200));
        assert_eq!(check(Path::new("crates/host/src/cpu.rs"), &fits), [""; 0]);
    }

    #[test]
    fn the_pending_list_has_a_path_a_line() {
        assert_eq!(pending("# about\n\na.rs\n  b.md\n"), ["a.rs", "b.md"]);
    }
}
