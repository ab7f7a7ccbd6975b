//! What a process has started and left behind when it ended: the rest of its group.
//!
//! A command such as `sh -c 'server; true'` or `npm start` is the parent of the server that it starts, and
//! need not hand its end on. So the rest of its group is ended after it. What a worker has started itself may
//! outlive the worker, as work in the background does, and ends with the application.

use rustix::process::{Pid, Signal, WaitOptions};
use std::time::{Duration, Instant};

/// How long what was killed is waited for: it ends at once, unless the kernel cannot let it, or it is another
/// user's.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(1);

/// The rest of a group, the leader of which has ended.
#[derive(Debug)]
pub(crate) struct Left {
    group: Pid,
    /// When it was sent SIGTERM.
    told: Option<Instant>,
}

impl Left {
    /// Returns the rest of the group of a process that has ended; `None` if nothing is left.
    pub(crate) fn of(leader: u32) -> Option<Left> {
        let group = i32::try_from(leader).ok().and_then(Pid::from_raw)?;
        let left = Left { group, told: None };
        left.is_there().then_some(left)
    }

    /// Asks it to end.
    pub(crate) fn terminate(&mut self) {
        if self.told.is_none() {
            self.told = Some(Instant::now());
            // Nothing is left then.
            let _ = rustix::process::kill_process_group(self.group, Signal::TERM);
        }
    }

    /// Returns whether something of it is there that has to be watched. What has not ended `patience` after
    /// it was asked is killed, and watched until it has ended.
    pub(crate) fn stays(&self, now: Instant, patience: Duration) -> bool {
        if !self.is_there() {
            return false;
        }
        let Some(told) = self.told else { return true };
        let waited = now.saturating_duration_since(told);
        if waited > patience {
            // What cannot be killed is given up below.
            let _ = rustix::process::kill_process_group(self.group, Signal::KILL);
        }
        waited <= patience + GIVEN_UP_AFTER
    }

    fn is_there(&self) -> bool {
        // In a container this program may be the first process, which inherits orphans.
        while let Ok(Some(_)) = rustix::process::waitpgid(self.group, WaitOptions::NOHANG) {}
        rustix::process::test_kill_process_group(self.group).is_ok()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use rustix::process::{getpid, set_child_subreaper};
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    #[test]
    fn what_ignores_sigterm_is_killed_and_watched_until_it_is_gone() {
        // As the first process of a container, which inherits orphans.
        set_child_subreaper(Some(getpid())).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' TERM; sleep 3600 &"]).process_group(0).stdout(Stdio::null());
        let mut leader = command.spawn().unwrap();
        leader.wait().unwrap();
        let mut left = Left::of(leader.id()).unwrap();
        left.terminate();
        let told = left.told.unwrap();
        assert!(left.stays(told, Duration::ZERO));
        let late = told + Duration::from_millis(1);
        while left.stays(late, Duration::ZERO) {
            std::thread::yield_now();
        }
        assert!(!left.is_there());
        set_child_subreaper(None).unwrap();
    }
}
