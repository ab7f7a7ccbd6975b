//! Sockets passed by the parent process, by the protocol of `sd_listen_fds(3)`.
//!
//! The environment gives their number (`LISTEN_FDS`, from descriptor 3 on), the process they are for
//! (`LISTEN_PID`), and optionally their names (`LISTEN_FDNAMES`).

use crate::error::{Error, Result};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// The first descriptor that is passed (`SD_LISTEN_FDS_START`).
const FIRST: i32 = 3;

/// A socket that was passed to this process.
#[derive(Debug)]
#[non_exhaustive]
pub struct InheritedSocket {
    /// Its name in `LISTEN_FDNAMES`: the name of the systemd unit, or its `FileDescriptorName`.
    pub name: Option<String>,
    /// The socket, with close-on-exec set.
    pub socket: OwnedFd,
}

/// Returns the sockets that were passed to this process, in order. They are returned once: a later call
/// returns none.
///
/// # Errors
/// EINVAL: the variables are set and invalid. EBADF: a descriptor is not open.
pub fn inherited_sockets() -> Result<Vec<InheritedSocket>> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    // AcqRel: one caller becomes the owner of the descriptors, and all others see that.
    if TAKEN.swap(true, Ordering::AcqRel) {
        return Ok(Vec::new());
    }
    let variable = |name: &str| std::env::var(name).ok();
    let (pid, count) = (variable("LISTEN_PID"), variable("LISTEN_FDS"));
    let count = announced(pid.as_deref(), count.as_deref(), std::process::id())?;
    let names = variable("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':').map(|name| (!name.is_empty()).then(|| name.to_owned()));
    (FIRST..FIRST + count)
        .map(|number| {
            // SAFETY: fcntl(2) with F_SETFD takes an int and touches no memory; EBADF means that it is not
            // open.
            if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
                let errno = io::Error::last_os_error().raw_os_error().unwrap_or(libc::EBADF);
                let why =
                    Error::errno("fcntl", errno).on(format!("descriptor {number} of LISTEN_FDS={count}"));
                return Err(
                    why.hint("the program that started this one has not passed as many sockets as it says")
                );
            }
            // SAFETY: open, by the line above. `LISTEN_PID` names this process: its parent has passed the
            // descriptor to it. It is taken only here, and once (`TAKEN`), so no other code owns it.
            let socket = unsafe { OwnedFd::from_raw_fd(number) };
            Ok(InheritedSocket { name: names.next().flatten(), socket })
        })
        .collect()
}

/// Returns the number of sockets that the environment announces to process `own`.
fn announced(pid: Option<&str>, count: Option<&str>, own: u32) -> Result<i32> {
    let (Some(pid), Some(count)) = (pid, count) else { return Ok(0) };
    let wrong = |name: &str, value: &str| {
        Err(Error::errno("LISTEN_FDS", libc::EINVAL)
            .on(format!("{name}={value}"))
            .hint("a number is expected"))
    };
    match pid.parse::<u32>() {
        Ok(pid) if pid == own => {}
        // For another process: the variables were inherited beyond the process that got the sockets.
        Ok(_) => return Ok(0),
        Err(_) => return wrong("LISTEN_PID", pid),
    }
    match count.parse::<i32>() {
        Ok(count) if (0..=1024).contains(&count) => Ok(count),
        _ => wrong("LISTEN_FDS", count),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn sockets_are_announced_to_one_process_only_and_by_numbers() {
        assert_eq!(announced(Some("7"), Some("2"), 7).unwrap(), 2);
        assert_eq!(announced(Some("7"), Some("2"), 8).unwrap(), 0);
        assert_eq!(announced(None, Some("2"), 7).unwrap(), 0);
        assert_eq!(announced(Some("7"), None, 7).unwrap(), 0);
        for (pid, count) in [("x", "1"), ("7", "-1"), ("7", "2000"), ("7", "")] {
            assert!(announced(Some(pid), Some(count), 7).is_err(), "{pid} {count}");
        }
    }
}
