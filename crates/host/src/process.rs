//! Processes: the end with the parent, the limit of open files, and where a program lies.
//!
//! Start at [`tie_to_parent`], which a harness uses for programs it did not write.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Makes this process die (SIGKILL) when the *thread* that started it ends.
///
/// Call it first thing in a child. A parent that ended before the call is not noticed here; a caller that
/// knows its parent's pid can compare [`std::os::unix::process::parent_id`] afterwards, as [`tie_to_parent`]
/// does.
///
/// # Errors
/// The kernel's error from `PR_SET_PDEATHSIG`.
///
/// # References
/// PR_SET_PDEATHSIG(2const): the parent is the creating thread, so start children from one that stays.
pub fn die_with_parent() -> io::Result<()> {
    // SAFETY: this prctl takes a signal number and touches no memory of ours.
    let result = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong, 0, 0, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes the program that `command` will start die (SIGKILL) when the thread that spawns it ends. Executing a
/// set-user-id program clears this setting. Spawning fails if the parent has ended already.
pub fn tie_to_parent(command: &mut Command) -> &mut Command {
    let parent = std::process::id();
    let tie = move || {
        die_with_parent()?;
        // The parent may have ended between fork and prctl; no signal comes then.
        if std::os::unix::process::parent_id() == parent {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(libc::ESRCH))
        }
    };
    // SAFETY: `tie` runs in the child between fork and exec, where only async-signal-safe calls are allowed:
    // it makes two system calls (prctl, getppid), builds errors from raw numbers, and neither allocates nor
    // takes a lock. It owns the one integer it uses.
    unsafe { command.pre_exec(tie) }
}

/// Returns whether this process ignores a signal. `nohup` sets that for the program that it starts, and
/// shells for background programs.
pub fn ignores(signal: i32) -> bool {
    // SAFETY: integers and a function's address where there may be none: all zeros is a value of this type.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: without a new action nothing changes; `action` is a live, aligned one of ours that the call
    // fills.
    let told = unsafe { libc::sigaction(signal, std::ptr::null(), &mut action) };
    told == 0 && action.sa_sigaction == libc::SIG_IGN
}

/// Returns the file that `PATH` leads to for the name of a program.
pub fn in_path(program: impl AsRef<Path>) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(&program)).find(|path| path.is_file())
}

/// Reads the soft and the hard limit of open files.
///
/// # Errors
/// The kernel's error from `getrlimit`, which a filter may refuse.
fn limit_of_files() -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a live, aligned rlimit of ours that the call fills before it returns.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
        let error = io::Error::last_os_error();
        return Err(io::Error::new(error.kind(), format!("read the limit of open files: {error}")));
    }
    Ok(limit)
}

/// Returns the soft limit of open files; `None` if it cannot be read. `u64::MAX`: there is none.
pub fn nofile() -> Option<u64> {
    limit_of_files().ok().map(|limit| limit.rlim_cur)
}

/// Raises the soft limit of open files to the hard one and returns it.
///
/// # Errors
/// The kernel's error from `getrlimit` or `setrlimit`, with the limits in question.
pub fn raise_nofile() -> io::Result<u64> {
    let mut limit = limit_of_files()?;
    if limit.rlim_cur != limit.rlim_max {
        let soft = limit.rlim_cur;
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: `limit` is a live, aligned rlimit of ours that the call only reads.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } != 0 {
            let error = io::Error::last_os_error();
            return Err(io::Error::new(
                error.kind(),
                format!("raise the limit of open files from {soft} to {}: {error}", limit.rlim_max),
            ));
        }
    }
    Ok(limit.rlim_cur)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::{ignores, raise_nofile, tie_to_parent};
    use crate::cgroup::Limit;
    use crate::facts::facts;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    /// Rust's start code ignores SIGPIPE in every program, and no other signal.
    #[test]
    fn a_signal_that_is_ignored_is_told_from_others() {
        assert!(ignores(libc::SIGPIPE));
        assert!(!ignores(libc::SIGUSR1) && !ignores(libc::SIGKILL) && !ignores(12345));
    }

    /// The tied child is started by a thread that then ends, which is what the kernel means by "parent".
    /// Without the tie it would sleep to its end and exit with 0.
    #[test]
    fn a_tied_child_dies_with_the_thread_that_started_it() {
        let start = || tie_to_parent(Command::new("sleep").arg("20")).spawn().unwrap();
        let mut child = std::thread::spawn(start).join().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn a_tied_child_of_a_living_thread_runs_to_its_end() {
        let status = tie_to_parent(Command::new("sh").args(["-c", "exit 7"])).status().unwrap();
        assert_eq!(status.code(), Some(7));
    }

    #[test]
    fn the_soft_limit_of_open_files_becomes_the_hard_one() {
        let raised = raise_nofile().unwrap();
        let limits = facts().limits;
        assert_eq!(limits.nofile_soft, limits.nofile_hard);
        assert!(
            matches!(limits.nofile_soft, Some(Limit::At(n)) if n == raised) || raised == libc::RLIM_INFINITY
        );
    }
}
