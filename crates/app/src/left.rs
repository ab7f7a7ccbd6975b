//! What a process has started and left behind when it ended: the rest of its group.
//!
//! A command such as `sh -c 'server; true'` or `npm start` is the parent of the server that it starts, and
//! need not hand its end on. So the rest of its group is ended after it. What a worker has started itself may
//! outlive the worker, as work in the background does, and ends with the application.

use rustix::process::{Pid, Signal, WaitOptions};
use std::time::{Duration, Instant};

/// The rest of a group, the leader of which has ended.
#[derive(Debug)]
pub(crate) struct Left {
    group: Pid,
    /// When it was sent SIGTERM.
    told: Option<Instant>,
}

impl Left {
    /// The rest of the group that a process led which has ended; `None` if nothing is left.
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

    /// Whether something of it is there that has to be watched. What has not ended `patience` after it was
    /// asked is killed.
    pub(crate) fn stays(&self, now: Instant, patience: Duration) -> bool {
        if !self.is_there() {
            return false;
        }
        let is_late = self.told.is_some_and(|since| now.duration_since(since) > patience);
        if is_late {
            // It cannot refuse that, or is another user's.
            let _ = rustix::process::kill_process_group(self.group, Signal::KILL);
        }
        !is_late
    }

    fn is_there(&self) -> bool {
        // In a container this program may be the first process, which inherits orphans.
        while let Ok(Some(_)) = rustix::process::waitpgid(self.group, WaitOptions::NOHANG) {}
        rustix::process::test_kill_process_group(self.group).is_ok()
    }
}
