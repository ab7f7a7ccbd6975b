//! `--processes`: starts this program several times, each with its part of the load.

use super::Complaint;
use crate::complaint::DONE;
use ringroad_engine::choose::{Choice, VARIABLE};
use ringroad_load::{Event, Outcome, Plan, processes};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::{env, io};

/// Puts a load on, by this process or by several.
pub(super) fn run(
    plan: &Plan,
    choice: &Choice,
    stop: &Arc<AtomicBool>,
    observe: &mut dyn FnMut(&Event<'_>),
) -> Result<Outcome, ringroad_load::Error> {
    if plan.processes == 1 {
        return ringroad_load::run(plan, choice, stop, observe);
    }
    // The same words again: what they mean, each works out for itself.
    let program = env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into());
    let commands = (0..plan.processes).map(|part| {
        let mut command = Command::new(&program);
        command.args(env::args_os().skip(1)).arg(format!("--process-part={part}"));
        // One driver for all, also where `auto` had to take another than they would.
        command.env(VARIABLE, choice.driver().as_str());
        command
    });
    processes::conduct(plan, commands, stop, observe)
}

/// Does this process's part of a load. Errors are reported to the process that started it, not printed here.
pub(super) fn part(plan: &Plan, choice: &Choice, stop: &Arc<AtomicBool>) -> Result<u8, Complaint> {
    processes::part(plan, choice, stop, io::stdin(), io::stdout())?;
    Ok(DONE)
}
