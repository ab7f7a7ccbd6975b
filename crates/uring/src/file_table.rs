//! A table of files that is filled and emptied while the ring works (5.19). A file in it needs no descriptor.
//!
//! An entry names a file of the table by its place ([`crate::Sqe::fixed_file`]). The table holds its own
//! reference, so the descriptor may be closed, and a process can have as many files open as its rings have
//! places. This module keeps track of the places; what is done with the files is up to the caller.
//!
//! INVARIANT: a place is taken (in the kernel's table, and given out once) or free: in `free`, or not below
//! `fresh`.

use crate::register::EMPTY_SLOT;
use crate::ring::{Handle, Ring};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::rc::Rc;

/// A registered table of files, with the places that are free in it.
#[derive(Debug)]
pub struct FileTable {
    places: u32,
    /// Places from here on were never taken.
    fresh: u32,
    /// For each place below `fresh`: whether it is taken now.
    taken: Vec<bool>,
    /// Emptied places, the last one on top.
    free: Vec<u32>,
    handle: Rc<Handle>,
}

impl FileTable {
    /// Registers a table of so many empty places with `ring`, which has one table at most. Errors: EMFILE
    /// (more than RLIMIT_NOFILE, or than 2^20), EBUSY (there is a table), EINVAL (before 5.19), ENOMEM.
    pub fn new(ring: &mut Ring, places: u32) -> io::Result<FileTable> {
        ring.register_files_sparse(places)?;
        let handle = Rc::clone(&ring.handle);
        Ok(FileTable { places, fresh: 0, taken: Vec::new(), free: Vec::new(), handle })
    }

    /// Returns how many places there are.
    pub fn places(&self) -> u32 {
        self.places
    }

    /// Returns how many places are taken.
    pub fn used(&self) -> u32 {
        self.fresh - self.free.len() as u32
    }

    /// Puts a file into the table and returns its place. The descriptor may be closed afterwards. Errors:
    /// ENFILE (every place is taken), EBADF (a ring of io_uring, which no table takes), ENOMEM.
    pub fn insert(&mut self, file: BorrowedFd<'_>) -> io::Result<u32> {
        let place = match self.free.last() {
            Some(place) => *place,
            None if self.fresh < self.places => self.fresh,
            None => return Err(io::Error::from_raw_os_error(libc::ENFILE)),
        };
        self.handle.update_files(place, &[file.as_raw_fd()])?;
        match self.free.pop() {
            Some(_) => self.taken[place as usize] = true,
            None => {
                self.fresh += 1;
                self.taken.push(true);
            }
        }
        Ok(place)
    }

    /// Empties a place. If that was the last reference to the file, the file is closed: at once from Linux
    /// 6.13 on, and before it not until every request has ended that began before and uses any file of the
    /// table. Requests that use this one keep it until they end. Errors: EBADF (the place is empty); any
    /// other leaves it taken.
    pub fn remove(&mut self, place: u32) -> io::Result<()> {
        let Some(taken) = self.taken.get_mut(place as usize).filter(|taken| **taken) else {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        };
        self.handle.update_files(place, &[EMPTY_SLOT])?;
        *taken = false;
        self.free.push(place);
        Ok(())
    }
}

impl Drop for FileTable {
    /// Empties every place. Before Linux 6.13 this waits until no request uses a file of the table.
    fn drop(&mut self) {
        // In a forked child this fails: the table is the parent's. Otherwise it is registered, and cannot
        // fail.
        let _ = self.handle.unregister_files();
    }
}
