//! Opening a file on which another program may hold a lease: a file server that gave it to a client (Samba's
//! oplocks, the kernel's NFS delegations), or a program by `fcntl(F_SETLEASE)`.
//!
//! Files are opened here without blocking, and such an open is answered with EAGAIN where the lease is
//! against it: its holder is told, and has until `/proc/sys/fs/lease-break-time` to give it up, after which
//! the kernel takes it. A plain open would wait for that where no cancel reaches it. So we come again until
//! the file can be had.
//!
//! Where no process holds a lease, the answer has another reason: a file that another program serves. Such a
//! file is opened by a call that waits.

use crate::clock::For;
use crate::worker::Worker;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Pause between attempts: first as long as a responsive holder takes, later as long as a cancel may wait.
const PAUSES: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(100)];

/// Returns whether some process holds a lease on some file, or that is not known.
fn leases_are_held() -> bool {
    let locks = std::fs::read_to_string("/proc/locks");
    locks.map_or(true, |locks| locks.contains("LEASE") || locks.contains("DELEG"))
}

impl Worker<'_, '_> {
    /// Opens a file, waiting until no lease forbids it. `open` gets `O_NONBLOCK`, or nothing where the open
    /// is to wait. `None`: the copy was stopped meanwhile.
    pub(crate) fn open_leased(
        &mut self,
        what: For,
        mut open: impl FnMut(OFlags) -> rustix::io::Result<OwnedFd>,
    ) -> Option<rustix::io::Result<OwnedFd>> {
        let [mut pause, longest] = PAUSES;
        loop {
            match self.clock.call(what, || open(OFlags::NONBLOCK)) {
                Err(Errno::AGAIN) if self.run.stopped() => return None,
                Err(Errno::AGAIN) if !leases_are_held() => {
                    return Some(self.clock.call(what, || open(OFlags::empty())));
                }
                Err(Errno::AGAIN) => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(longest);
                }
                answer => return Some(answer),
            }
        }
    }
}
