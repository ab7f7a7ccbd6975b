//! The binary `ringroad`: arguments in, exit code out.
//!
//! This crate is the only one that prints, exits, or reads arguments. Each verb has a file; what it does is in
//! the libraries below. Start with [`flags`], then the verb.
//!
//! Exit codes: 0 done, 1 something failed and was said, 2 bad usage or an unusable driver, 5 the run is
//! INVALID, 130 interrupted.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod cat;
mod complaint;
mod flags;
mod lab;
mod progress;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    // The library caps depend on descriptors: servers, clients and files alike want the hard limit.
    let raised = ringroad_host::process::raise_nofile();
    let flags::Flags { verb, common } = flags::Flags::parse();
    if let Err(error) = raised
        && common.verbose > 0
    {
        complaint::say(&format!("raising the limit of open files: {error} (going on with what there is)"));
    }
    match verb {
        flags::Verb::Cat(flags) => cat::run(&flags, &common),
        flags::Verb::Lab(flags) => lab::run(flags, &common),
    }
}
