//! The binary `ringroad`: arguments in, exit code out.
//!
//! Only this crate prints, exits or reads arguments. Each verb has a file and calls a library that does the
//! work. Start with [`flags`], then read the file of a verb. Completions and manual pages are in [`manual`].
//!
//! Exit codes: 0 done, 1 failed with a message, 2 wrong usage or an unusable driver, 3 destination full, 4 a
//! copy differs from its source, 5 the run is INVALID, 130 interrupted. Under the name `cp` the program exits
//! as GNU cp does: 0 or 1. Under the name `rr` it
//! understands the part of RoadRunner's line that is in [`rr`].
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod app;
mod cat;
mod complaint;
mod cp;
mod doctor;
mod flags;
mod foreign;
mod lab;
mod load;
mod manifest;
mod manual;
mod outfile;
mod pack;
mod parts;
mod progress;
mod rr;
mod serve;
mod stopping;
mod terminal;
mod workers;

use clap::{CommandFactory, FromArgMatches};
use std::ffi::OsString;
use std::process::ExitCode;

ringroad_host::fill_standard_streams!();

fn main() -> ExitCode {
    // Every verb opens many descriptors, so the soft limit is raised to the hard one.
    let raised = ringroad_host::process::raise_nofile();
    let words = manual::without_help_verb(std::env::args_os().collect());
    if let Some(line) = rr::wanted(&words) {
        return rr::run(line);
    }
    // cp parses its own line: clap does not follow the conventions of GNU programs.
    if let Some((caller, words)) = cp::wanted(words.iter().cloned()) {
        return cp::run(caller, words);
    }
    let flags::Flags { verb, common } = match read(&words) {
        Ok(flags) => flags,
        Err(error) => return refuse(&error, &words),
    };
    if let Err(error) = raised
        && common.verbose > 0
    {
        complaint::say(&format!(
            "cannot raise the limit of open files: {error} (continuing with the current limit)"
        ));
    }
    match verb {
        flags::Verb::App(flags) => app::run(&flags, &common),
        flags::Verb::Cat(flags) => cat::run(&flags, &common),
        flags::Verb::Cp { words } => cp::run(cp::Caller::Ringroad, words),
        flags::Verb::Doctor(flags) => doctor::run(&flags, &common),
        flags::Verb::Lab(flags) => lab::run(flags, &common),
        flags::Verb::Serve(flags) => serve::run(&flags, &common),
        flags::Verb::Load(flags) => load::run_verb(&flags, &common),
        flags::Verb::Pack(flags) => pack::pack(&flags, common.quiet),
        flags::Verb::Unpack(flags) => pack::unpack(&flags, common.quiet),
        flags::Verb::Manifest { verb } => manifest::run(&verb, common.quiet),
        flags::Verb::Workers(flags) => workers::run(&flags, &common),
        flags::Verb::Completions(flags) => manual::completions(&flags),
        flags::Verb::Man(flags) => manual::pages(&flags),
        flags::Verb::Help { .. } => manual::overview(),
    }
}

/// With fewer columns the help has the text of an option below its names.
const NARROW: usize = 60;

/// Reads the line.
fn read(words: &[OsString]) -> Result<flags::Flags, clap::Error> {
    // clap would leave no room beside the longest of the names, and break no line.
    let is_narrow = terminal::columns(std::io::stdout()).is_some_and(|columns| columns < NARROW);
    let mut command = flags::Flags::command().next_line_help(is_narrow);
    let matches = command.try_get_matches_from_mut(words)?;
    flags::Flags::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Prints help and version to stdout unchanged, and a mistake in the arguments like every other error.
fn refuse(error: &clap::Error, words: &[OsString]) -> ExitCode {
    if let Some(message) = foreign::of_error(error, words) {
        complaint::say(&message);
        return ExitCode::from(complaint::USAGE);
    }
    let text = error.render().to_string();
    match text.strip_prefix("error: ") {
        Some(message) => complaint::say(message.trim_end()),
        // Help that was requested, or that is printed because no verb was given.
        None if error.exit_code() == 0 => return manual::printed(|| error.print()),
        None => drop(error.print()),
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(complaint::USAGE))
}
