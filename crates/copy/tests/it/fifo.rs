//! FIFOs that are opened and read without waiting for ever: where no process is at the other end, the test
//! fails. The command line's tests use this file as well, by its path.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, fcntl_setfl, open};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the other end is waited for: a guard against hanging.
const PATIENCE: Duration = Duration::from_secs(60);

/// Opens a FIFO for writing as soon as a process has it open for reading.
pub(crate) fn writer_of(fifo: &Path) -> File {
    let begun = Instant::now();
    loop {
        match open(fifo, OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()) {
            Ok(end) => {
                fcntl_setfl(&end, OFlags::empty()).unwrap();
                return File::from(end);
            }
            // No process has it open for reading.
            Err(Errno::NXIO) if begun.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(1)),
            Err(why) => panic!("open for writing, on {}: {why}", fifo.display()),
        }
    }
}

/// Opens a FIFO for reading. Returns when something was written, or a writer has come and gone.
pub(crate) fn reader_of(fifo: &Path) -> File {
    let end = open(fifo, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()).unwrap();
    await_input(&end);
    fcntl_setfl(&end, OFlags::empty()).unwrap();
    File::from(end)
}

/// Returns when there is something to read, or the other end is closed.
pub(crate) fn await_input(end: impl AsFd) {
    let patience = Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
    loop {
        match poll(&mut [PollFd::new(&end, PollFlags::IN)], Some(&patience)) {
            Ok(0) => panic!("nothing to read within {PATIENCE:?}"),
            Ok(_) => return,
            // By a signal.
            Err(Errno::INTR) => {}
            Err(why) => panic!("poll: {why}"),
        }
    }
}
