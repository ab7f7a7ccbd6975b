//! The binary `ringroad`: arguments in, exit code out.
//!
//! This crate is the only one that prints, exits, or reads arguments. Each verb has a file; what it does is in
//! the libraries below. Start with [`flags`], then the verb.
//!
//! Exit codes: 0 done, 1 something failed and was said, 2 bad usage or an unusable driver, 3 the destination is
//! full, 4 a copy differs from its source, 5 the run is INVALID, 130 interrupted. Called by the name `cp`, this
//! program is GNU's cp: 0 or 1.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod cat;
mod complaint;
mod cp;
mod doctor;
mod flags;
mod lab;
mod load;
mod progress;
mod serve;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    // The library caps depend on descriptors: servers, clients and files alike want the hard limit.
    let raised = ringroad_host::process::raise_nofile();
    // Its line is read as GNU programs read theirs, which clap does not.
    if let Some((caller, words)) = cp::wanted(std::env::args_os()) {
        return cp::run(caller, words);
    }
    let flags::Flags { verb, common } = match flags::Flags::try_parse() {
        Ok(flags) => flags,
        Err(error) => return refuse(&error),
    };
    if let Err(error) = raised
        && common.verbose > 0
    {
        complaint::say(&format!("raising the limit of open files: {error} (going on with what there is)"));
    }
    match verb {
        flags::Verb::Cat(flags) => cat::run(&flags, &common),
        flags::Verb::Cp { words } => cp::run(cp::Caller::Ringroad, words),
        flags::Verb::Doctor(flags) => doctor::run(&flags, &common),
        flags::Verb::Lab(flags) => lab::run(flags, &common),
        flags::Verb::Serve(flags) => serve::run(&flags, &common),
        flags::Verb::Load(flags) => load::run_verb(&flags, &common),
    }
}

/// Help and version go to stdout as they are; a mistake in the arguments is said as every other one.
fn refuse(error: &clap::Error) -> ExitCode {
    let text = error.render().to_string();
    match text.strip_prefix("error: ") {
        Some(message) => complaint::say(message.trim_end()),
        // Help that was asked for, or that stands in for the verb that was not given.
        None => drop(error.print()),
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(complaint::USAGE))
}
