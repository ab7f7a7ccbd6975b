//! `ringroad doctor`: which I/O interfaces work here, what blocks the others, and how to fix it.
//!
//! The trials and their reasons are the engine's (`choose`), the facts `host`'s. Here they become a screen
//! ([`screen`]) or a JSON object ([`json`]), requirements that are met or not ([`require`]), a script of
//! fixes ([`fixes`]), and an exit code. [`seccomp`] changes a container's profile so that it allows io_uring.

mod fixes;
mod json;
mod require;
mod screen;
mod seccomp;

use crate::complaint::{DONE, FAILED, USAGE, say};
use crate::flags::{Common, DoctorFlags};
use ringroad_engine::DriverName;
use ringroad_engine::choose::{self, Bug, Choice, Evidence, Refusal, Unusable};
use ringroad_host::Facts;
use ringroad_host::capacity::Capacity;
use ringroad_host::gate::Gate;
use std::process::ExitCode;

/// All that was found.
struct Findings {
    facts: Facts,
    gate: Gate,
    drivers: Vec<(DriverName, Result<&'static Evidence, &'static Refusal>)>,
    choice: Result<Choice, Unusable>,
    capacity: Capacity,
    bugs: Vec<&'static Bug>,
}

impl Findings {
    fn gather(common: &Common) -> Findings {
        let facts = ringroad_host::facts();
        Findings {
            gate: Gate::of_this_thread(),
            drivers: choose::drivers().map(|name| (name, choose::probe(name))).collect(),
            choice: choose::choose(common.driver, None),
            capacity: Capacity::of(&facts),
            bugs: choose::bugs_here(),
            facts,
        }
    }

    /// Returns what io_uring reports about itself, if it can be used.
    fn ring(&self) -> Option<&'static choose::RingEvidence> {
        self.drivers.iter().find_map(|(_, outcome)| outcome.ok()?.ring.as_ref())
    }
}

pub(crate) fn run(flags: &DoctorFlags, common: &Common) -> ExitCode {
    if let Some(profile) = &flags.seccomp {
        return match seccomp::allowed(profile) {
            Ok(text) => print(&text, DONE),
            Err(message) => {
                say(&message);
                ExitCode::from(FAILED)
            }
        };
    }
    let required = match flags
        .require
        .iter()
        .map(|word| require::Required::parse(word))
        .collect::<Result<Vec<_>, _>>()
    {
        Ok(required) => required,
        Err(message) => {
            say(&message);
            return ExitCode::from(USAGE);
        }
    };
    let findings = Findings::gather(common);
    if let Err(unusable @ Unusable::Variable(_)) = &findings.choice {
        say(&unusable.to_string());
        return ExitCode::from(USAGE);
    }
    let mut code = DONE;
    let unmet: Vec<String> = required.iter().filter_map(|required| required.unmet(&findings)).collect();
    if !unmet.is_empty() {
        code = FAILED;
    }
    if findings.choice.is_err() {
        code = USAGE;
    }
    let fixes = fixes::fixes(&findings);
    let text = if flags.fix_script {
        fixes::script(&fixes)
    } else if flags.json {
        json::object(&findings, &fixes)
    } else if common.quiet {
        String::new()
    } else if !required.is_empty() {
        // A start script wants the answer and no screen.
        let met =
            flags.require.iter().zip(&required).filter(|(_, required)| required.unmet(&findings).is_none());
        met.map(|(word, _)| format!("met: {word}\n")).collect()
    } else {
        screen::screen(&findings, &fixes, common.verbose > 0, screen::Page::of_stdout())
    };
    let code = print(&text, code);
    if let Err(unusable) = &findings.choice {
        say(&unusable.to_string());
    }
    unmet.iter().for_each(|unmet| say(unmet));
    code
}

fn print(text: &str, code: u8) -> ExitCode {
    match crate::complaint::print(text) {
        Ok(()) => ExitCode::from(code),
        Err(why) => {
            say(&why);
            ExitCode::from(FAILED)
        }
    }
}
