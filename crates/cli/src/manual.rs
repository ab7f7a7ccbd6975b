//! `ringroad help`, `completions` and `man`: the command line as documents.
//!
//! All of them come from the declaration in [`flags`](crate::flags). The exception is `cp`, which parses its
//! own line: its options are read from its help text, so that they too are written down once. Start at
//! [`command`].

use crate::complaint::{self, DONE, FAILED, say, why};
use crate::cp;
use crate::flags::{CompletionFlags, Flags, ManFlags};
use clap::{Arg, ArgAction, Command, CommandFactory};
use clap_mangen::Man;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// Turns `ringroad help VERB...` into `ringroad VERB... --help`, so that each verb prints its own help.
pub(crate) fn without_help_verb(mut words: Vec<OsString>) -> Vec<OsString> {
    let verb = words.get(1).map(OsString::as_os_str);
    let under_the_name_cp =
        words.first().and_then(|program| Path::new(program).file_name()) == Some(OsStr::new("cp"));
    // `help --help` stays: clap answers it.
    let asks_for_a_verb = words.get(2).is_some_and(|word| !word.as_encoded_bytes().starts_with(b"-"));
    if verb == Some(OsStr::new("help")) && asks_for_a_verb && !under_the_name_cp {
        words.remove(1);
        words.push("--help".into());
    }
    words
}

/// `ringroad help` without a verb.
pub(crate) fn overview() -> ExitCode {
    printed(|| Flags::command().print_help())
}

/// Help or another text that `print` writes to standard output, which the program may have been started
/// without.
pub(crate) fn printed(print: impl FnOnce() -> io::Result<()>) -> ExitCode {
    let is_closed = ringroad_host::standard::was_closed(1);
    ended("standard output", if is_closed { Err(complaint::no_stream()) } else { print() })
}

pub(crate) fn completions(flags: &CompletionFlags) -> ExitCode {
    let mut script = Vec::new();
    let mut whole = command();
    // Options of all verbs are handed down to each of them now.
    whole.build();
    clap_complete::generate(flags.shell, &mut shown(&whole), "ringroad", &mut script);
    // Generated in memory first, because `generate` panics when its output is closed.
    ended("standard output", complaint::output().write_all(&script))
}

pub(crate) fn pages(flags: &ManFlags) -> ExitCode {
    let mut whole = command();
    whole.build();
    fix_usage(&mut whole);
    let written = fs::create_dir_all(&flags.folder).and_then(|()| write_pages(&whole, &flags.folder));
    ended(&complaint::name(&flags.folder), written)
}

/// Writes the manual pages of a command, which is built, and of its verbs.
fn write_pages(command: &Command, folder: &Path) -> io::Result<()> {
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        write_pages(verb, folder)?;
    }
    page(command).generate_to(folder).map(drop)
}

/// Returns the manual page of a command. A verb has no version of its own: the page is of the program's.
fn page(command: &Command) -> Man {
    Man::new(command.clone()).source(concat!("ringroad ", env!("CARGO_PKG_VERSION")))
}

fn ended(target: &str, result: io::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::from(DONE),
        // The reader left, as `head` does.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::from(DONE),
        Err(error) => {
            say(&format!("write, on {target}: {}", why(&error)));
            ExitCode::from(FAILED)
        }
    }
}

/// Returns the whole command line, with the options of `cp`.
fn command() -> Command {
    Flags::command().mut_subcommand("cp", |verb| copier(verb, &cp::help()))
}

/// Returns a copy of a built command without what help hides. Hidden verbs and options are for this program's
/// own use, and `clap_complete` would offer them.
fn shown(command: &Command) -> Command {
    let options = command.get_arguments().filter(|arg| !arg.is_hide_set()).cloned();
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set()).map(shown);
    let copy = Command::new(command.get_name().to_owned());
    let copy = match command.get_about() {
        Some(about) => copy.about(about.clone()),
        None => copy,
    };
    copy.visible_aliases(command.get_visible_aliases().map(str::to_owned).collect::<Vec<_>>())
        // The option for it is among those that are copied.
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_flag(true)
        .disable_version_flag(true)
        .disable_help_subcommand(true)
        // Each verb has those of its parents already.
        .args(options.map(|arg| arg.global(false)))
        .subcommands(verbs)
}

/// Makes the usage lines of help those of the manual pages, too: `clap_mangen` would list every option.
fn fix_usage(command: &mut Command) {
    command.get_subcommands_mut().for_each(fix_usage);
    let usage = command.render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage).to_owned();
    *command = std::mem::take(command).override_usage(usage);
}

/// Adds to `verb` the options that `help` lists, under their headings, and the rest of the text below them.
fn copier(verb: Command, help: &str) -> Command {
    let mut heading = None;
    let mut entries: Vec<Entry> = Vec::new();
    let mut notes = String::new();
    let (usage, rest) = help.split_once("\n\n").unwrap_or((help, ""));
    for line in rest.lines() {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        match entries.last_mut() {
            _ if text.starts_with('-') && indent > 0 => {
                let (names, description) = text.split_once("  ").unwrap_or((text, ""));
                let description = description.trim_start().to_owned();
                entries.push(Entry { names: names.to_owned(), description, heading: heading.clone() });
            }
            Some(entry) if indent > 8 => entry.description = format!("{} {text}", entry.description),
            _ if indent == 0 && text.ends_with(':') => {
                heading = Some(text.trim_end_matches(':').to_owned());
            }
            _ => notes = format!("{notes}{text}\n"),
        }
    }
    let verb = verb
        .mut_arg("words", |words| words.hide(false).value_name("PATH").value_hint(clap::ValueHint::AnyPath))
        // The first line is the usage, the lines behind it its variants; what follows them describes the
        // verb.
        .override_usage(usage.trim_start_matches("Usage: ").to_owned())
        .after_help(notes.trim().to_owned());
    entries.iter().fold(verb, |verb, entry| verb.arg(entry.arg()))
}

/// One option as a help text lists it.
struct Entry {
    names: String,
    description: String,
    heading: Option<String>,
}

impl Entry {
    /// `-S, --suffix=SUFFIX`: names separated by commas, a value behind `=`, in brackets, or as a second
    /// word.
    fn arg(&self) -> Arg {
        let mut long = None;
        let mut shorts = Vec::new();
        let mut value = None;
        for name in self.names.split(", ") {
            let end = name.find(['=', '[', ' ']).unwrap_or(name.len());
            let (name, rest) = name.split_at(end);
            let word = rest.trim_matches(['=', '[', ']', ' ']);
            if !word.is_empty() {
                value = Some((word.to_owned(), rest.starts_with('[')));
            }
            match name.strip_prefix("--") {
                Some(name) => long = Some(name.to_owned()),
                None => shorts.extend(name.chars().nth(1)),
            }
        }
        let id = long.clone().unwrap_or_else(|| shorts.iter().collect());
        let mut arg = Arg::new(id).help(self.description.clone());
        if let Some(heading) = &self.heading {
            arg = arg.help_heading(heading);
        }
        if let Some(long) = long {
            arg = arg.long(long);
        }
        if let Some((short, others)) = shorts.split_first() {
            arg = arg.short(*short).visible_short_aliases(others.to_vec());
        }
        match value {
            Some((name, optional)) => {
                let least = usize::from(!optional);
                arg.value_name(name).action(ArgAction::Append).num_args(least..=1).require_equals(optional)
            }
            None => arg.action(ArgAction::SetTrue),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn rewritten(line: &[&str]) -> Vec<String> {
        let words = without_help_verb(line.iter().map(OsString::from).collect());
        words.into_iter().map(|word| word.into_string().unwrap()).collect()
    }

    #[test]
    fn help_of_a_verb_becomes_the_verbs_own_help_option() {
        assert_eq!(rewritten(&["ringroad", "help", "lab", "run"]), ["ringroad", "lab", "run", "--help"]);
        assert_eq!(rewritten(&["ringroad", "help", "cp"]), ["ringroad", "cp", "--help"]);
        for line in [&["ringroad", "help"][..], &["ringroad", "help", "--help"], &["cp", "help", "x"]] {
            assert_eq!(rewritten(line), line);
        }
    }

    #[test]
    fn the_whole_command_line_is_consistent_with_the_options_of_the_copier() {
        command().debug_assert();
    }

    #[test]
    fn completions_offer_nothing_that_help_hides() {
        fn look(whole: &Command, shown: &Command) {
            for arg in whole.get_arguments().filter(|arg| arg.is_hide_set()) {
                assert!(shown.get_arguments().all(|other| other.get_id() != arg.get_id()), "{arg}");
            }
            for verb in whole.get_subcommands() {
                let copy = shown.find_subcommand(verb.get_name());
                assert_eq!(copy.is_none(), verb.is_hide_set(), "{}", verb.get_name());
                copy.into_iter().for_each(|copy| look(verb, copy));
            }
        }
        let mut whole = command();
        whole.build();
        let mut copy = shown(&whole);
        copy.build();
        look(&whole, &copy);
        assert!(copy.find_subcommand("load").is_some_and(|load| {
            load.get_arguments().any(|arg| arg.get_long() == Some("connections"))
                && load.get_arguments().any(|arg| arg.get_long() == Some("quiet"))
        }));
    }

    /// groff reads other bytes as Latin-1, unless a program before it has translated them.
    #[test]
    fn manual_pages_are_ascii() {
        fn look(command: &Command, path: &str) {
            let mut text = Vec::new();
            page(command).render(&mut text).unwrap();
            let text = String::from_utf8(text).unwrap();
            let strange = text.lines().find(|line| !line.is_ascii());
            assert_eq!(strange, None, "{path}");
            for verb in command.get_subcommands() {
                look(verb, &format!("{path} {}", verb.get_name()));
            }
        }
        let mut whole = command();
        whole.build();
        look(&whole, "ringroad");
    }

    #[test]
    fn each_manual_page_names_the_program_and_its_version() {
        let mut whole = command();
        whole.build();
        for path in [&["load"][..], &["lab", "run"]] {
            let verb = path.iter().fold(&whole, |command, word| command.find_subcommand(word).unwrap());
            let mut title = Vec::new();
            page(verb).render_title(&mut title).unwrap();
            let title = String::from_utf8(title).unwrap();
            let source = format!("\"ringroad {}\"", env!("CARGO_PKG_VERSION"));
            assert!(
                title.contains(&format!("ringroad-{} 1", path.join("-"))) && title.contains(&source),
                "{title}"
            );
        }
    }

    #[test]
    fn the_usage_of_a_manual_page_is_that_of_help() {
        let mut whole = command();
        whole.build();
        fix_usage(&mut whole);
        for (verb, expected) in [
            ("serve", "ringroad serve [OPTIONS] --config <FILE>"),
            ("cat", "ringroad cat [OPTIONS] [FILE]..."),
            ("cp", "ringroad cp [OPTION]... [-T] SOURCE DEST"),
        ] {
            let mut text = Vec::new();
            page(whole.find_subcommand(verb).unwrap()).render_synopsis_section(&mut text).unwrap();
            let text =
                String::from_utf8(text).unwrap().replace("\\fB", "").replace("\\fR", "").replace("\\-", "-");
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn options_of_the_copier_keep_their_names_values_and_descriptions() {
        let help = "Usage: cp A B\n  or:  cp C\nCopies.\n\nAs GNU cp:\n  -r, -R, --recursive   copy directories\n      \
                    --reflink[=WHEN]  share blocks:\n                        always, auto\n  -S, --suffix=SUFFIX  \
                    ends a backup\n\nBeyond it:\n      --jobs N          workers\n\nNote.\n";
        let verb = copier(Command::new("cp").arg(Arg::new("words").num_args(0..)), help);
        let arg = |id: &str| verb.get_arguments().find(|arg| arg.get_id() == id).unwrap().clone();
        assert_eq!(arg("recursive").get_short(), Some('r'));
        assert_eq!(arg("recursive").get_visible_short_aliases(), Some(vec!['R']));
        assert_eq!(arg("reflink").get_help().unwrap().to_string(), "share blocks: always, auto");
        assert_eq!(arg("reflink").get_num_args().unwrap().min_values(), 0);
        assert_eq!(arg("suffix").get_value_names().unwrap(), ["SUFFIX"]);
        assert_eq!(arg("jobs").get_help_heading(), Some("Beyond it"));
        assert_eq!(verb.get_after_help().unwrap().to_string(), "Note.");
    }

    #[test]
    fn every_option_in_the_copiers_help_is_in_its_documents() {
        let command = command();
        let verb = command.find_subcommand("cp").unwrap();
        let known: Vec<&str> = verb.get_arguments().filter_map(Arg::get_long).collect();
        let help = cp::help();
        let listed = help.lines().filter(|line| line.trim_start().starts_with('-'));
        let longs = listed.filter_map(|line| line.split("--").nth(1));
        let longs = longs.filter_map(|name| name.split(|c: char| !c.is_alphanumeric() && c != '-').next());
        for long in longs {
            assert!(known.contains(&long), "--{long} is not in {known:?}");
        }
    }
}
