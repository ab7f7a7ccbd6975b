//! Copies a tree with everything preserved, as `cp -a` does: `tree SOURCE... DIRECTORY`.
//!
//! The smallest use of the library; the command line is `ringroad cp`.

use ringroad_copy::{Control, Dereference, Destination, Engine, Event, Observer, Options, Preserve, copy};
use std::path::PathBuf;

struct Lines;

impl Observer for Lines {
    fn event(&self, event: Event<'_>) {
        if let Event::Error(error) = event {
            eprintln!("{error}");
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut options =
        Options { recursive: true, dereference: Dereference::Never, explain: false, ..Options::default() };
    let mut paths: Vec<PathBuf> = Vec::new();
    for argument in std::env::args_os().skip(1) {
        match argument.to_str() {
            Some("-a") => options.preserve = Preserve::ALL,
            Some("--explain") => options.explain = true,
            Some("--resume") => options.resume = true,
            Some("--verify") => options.verify = true,
            Some("--manifest") => options.manifest = Some("/tmp/cx/manifest".into()),
            Some("--direct") => options.direct = true,
            Some("--threads") => options.engine = Engine::Threads,
            Some("--ring") => options.engine = Engine::Ring,
            Some("--ring-splice") => options.engine = Engine::RingSplice,
            Some(number) if number.starts_with("-j") => options.jobs = number[2..].parse().ok(),
            Some(number) if number.starts_with("-d") => options.in_flight = number[2..].parse().ok(),
            _ => paths.push(argument.into()),
        }
    }
    let target = paths.pop().ok_or("usage: tree [-a] [-jN] SOURCE... TARGET")?;
    let into = if target.is_dir() { Destination::Into(target) } else { Destination::At(target) };
    let report = copy(&paths, &into, &options, &Lines, &Control::new())?;
    eprintln!("{report:#?}");
    Ok(())
}
