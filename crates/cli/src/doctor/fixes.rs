//! What can be fixed on this machine, the summary line, and the shell script with the fixes.
//!
//! A fix is a command where one is enough, and a sentence where the setting is outside of this machine, such
//! as the command line of a container. Start at [`fixes`].

use super::Findings;
use ringroad_engine::DriverName;
use ringroad_engine::choose::{Bug, Meaning};
use ringroad_host::cgroup::Limit;
use std::fmt::Write;

/// Fewer connections than this are a limit that a small service meets.
const CONNECTIONS_LOW: u64 = 4096;
/// Open files of a process that are enough for most.
const FILES_WANTED: u64 = 1 << 20;

/// One obstacle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fix {
    /// The obstacle, as a clause.
    pub(super) what: String,
    /// Commands, as root, that remove it; empty where only the sentence helps.
    pub(super) commands: Vec<String>,
    /// What else to do, or to know.
    pub(super) note: Option<String>,
}

/// Returns all obstacles, the worst first.
pub(super) fn fixes(findings: &Findings) -> Vec<Fix> {
    let container = findings.gate.container.as_deref();
    let mut fixes = Vec::new();
    for refusal in findings.drivers.iter().filter_map(|(_, outcome)| outcome.err()) {
        let is_ring = refusal.driver == DriverName::IoUring;
        // A driver without a fix is a property of this kernel.
        let Some(fix) = &refusal.fix else { continue };
        let forbidden = is_ring && findings.gate.sysctl_forbids();
        fixes.push(Fix {
            what: format!("{} cannot be used: {}", refusal.driver, refusal.reason),
            commands: match (forbidden, container) {
                (true, None) => setting("kernel.io_uring_disabled", 0),
                _ => Vec::new(),
            },
            note: Some(fix.clone()),
        });
    }
    if let Some(bound) = findings.capacity.bounds.first().filter(|_| are_connections_few(findings)) {
        let files = matches!(findings.facts.limits.nofile_hard, Some(Limit::At(_))) && bound.of_each_process;
        fixes.push(Fix {
            what: format!("at most {} connections can be open, limited by {}", bound.connections, bound.what),
            commands: match (files, container) {
                (true, None) => vec![format!(
                    "printf '%s\\n' '* hard nofile {FILES_WANTED}' 'root hard nofile {FILES_WANTED}' > /etc/security/limits.d/60-ringroad.conf"
                )],
                _ => Vec::new(),
            },
            note: Some(bound.fix.clone()),
        });
    }
    for bug in findings.bugs.iter().filter(|bug| is_to_fix(bug)) {
        fixes.push(Fix {
            what: format!("this kernel has a bug of io_uring: {} [{}]", bug.what, bug.source),
            commands: Vec::new(),
            note: Some(bug.answer.to_owned()),
        });
    }
    fixes
}

/// Returns whether so few connections can be open that the limit is an obstacle.
pub(super) fn are_connections_few(findings: &Findings) -> bool {
    findings.capacity.connections_max().is_some_and(|most| most < CONNECTIONS_LOW)
}

/// Returns whether only another kernel helps against a bug. Against others the engine does something.
pub(super) fn is_to_fix(bug: &Bug) -> bool {
    bug.meaning == Meaning::Warns
}

/// Returns a kernel setting, now and after the next boot.
fn setting(name: &str, value: u64) -> Vec<String> {
    vec![
        format!("sysctl -w {name}={value}"),
        format!("echo '{name} = {value}' >> /etc/sysctl.d/60-ringroad.conf"),
    ]
}

/// `io_uring works; 19,936 connections; nothing to fix`.
pub(super) fn headline(findings: &Findings, fixes: &[Fix]) -> String {
    let ring = findings.drivers.iter().find(|(name, _)| *name == DriverName::IoUring);
    let ring = match (ring, &findings.choice) {
        (Some((_, Ok(_))), Ok(choice)) if choice.driver() == DriverName::IoUring => {
            "io_uring works".to_owned()
        }
        (Some((_, Ok(_))), Ok(choice)) => format!("io_uring works, {} is used", choice.driver()),
        (_, Ok(choice)) => format!("io_uring does not work, {} is used", choice.driver()),
        (_, Err(_)) => "the requested driver cannot be used".to_owned(),
    };
    let connections = match findings.capacity.connections_max() {
        Some(most) => format!("{} connections", super::screen::grouped(most)),
        None => "no known limit of connections".to_owned(),
    };
    let fix = match fixes.len() {
        0 => "nothing to fix".to_owned(),
        1 => "1 thing to fix".to_owned(),
        count => format!("{count} things to fix"),
    };
    format!("{ring}; {connections}; {fix}")
}

/// Returns the fixes as a shell script, to read and to run as root. What no command does is a comment.
pub(super) fn script(fixes: &[Fix]) -> String {
    let mut out =
        "#!/bin/sh\n# Made by `ringroad doctor --fix-script`: read it, then run it as root.\nset -eu\n"
            .to_owned();
    if fixes.is_empty() {
        out.push_str("# There is nothing to fix.\n");
    }
    for fix in fixes {
        let _ = writeln!(out, "\n# {}", comment(&fix.what));
        for command in &fix.commands {
            let _ = writeln!(out, "{command}");
        }
        if let Some(note) = &fix.note {
            let begin = if fix.commands.is_empty() { "by hand" } else { "or" };
            let _ = writeln!(out, "# {begin}: {}", comment(note));
        }
    }
    out
}

/// Returns a text that stays within its comment.
fn comment(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_has_a_command_where_one_helps_and_a_comment_where_none_does() {
        assert!(script(&[]).ends_with("# There is nothing to fix.\n"));
        let forbidden = Fix {
            what: "io_uring cannot be used: a\nrm -rf /".to_owned(),
            commands: setting("kernel.io_uring_disabled", 0),
            note: None,
        };
        let container = Fix {
            what: "few connections".to_owned(),
            commands: Vec::new(),
            note: Some("docker run --ulimit nofile=1048576".to_owned()),
        };
        let text = script(&[forbidden, container]);
        let commands: Vec<&str> =
            text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
        assert_eq!(
            commands,
            [
                "set -eu",
                "sysctl -w kernel.io_uring_disabled=0",
                "echo 'kernel.io_uring_disabled = 0' >> /etc/sysctl.d/60-ringroad.conf"
            ]
        );
        assert!(text.contains("# by hand: docker run --ulimit nofile=1048576\n"), "{text}");
    }
}
