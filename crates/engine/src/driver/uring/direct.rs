//! Connections without descriptors: places in a table of the ring, what can be done by place, and trying that out.
//!
//! What waits is an entry like any other, with a flag ([`at`]). Here is how a socket comes into the table and out
//! of it, and the little that is a system call elsewhere and has to go through the ring here.

use super::setup::{build, failed};
use super::{AT_ONCE, Uring, at};
use crate::descriptor::Descriptor;
use crate::driver::PLACES;
use crate::op::{Answer, Call};
use crate::{Error, Result, sys};
use ringroad_uring::{FileTable, Sqe, Wait};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};

/// An address of no family: connecting to it ends a connection, and resets its peer (`connect(2)`).
static NOWHERE: libc::sockaddr =
    libc::sockaddr { sa_family: libc::AF_UNSPEC as libc::sa_family_t, sa_data: [0; 14] };

/// Whether the kernel has been found to close what is taken out of a table. Locked while that is tried: where runtimes
/// begin at once there may not be descriptors for each of them to try.
static TRIED: Mutex<bool> = Mutex::new(false);

impl Uring {
    /// The table of connections, made if there is none yet.
    pub(super) fn table(&mut self) -> Result<&mut FileTable> {
        if self.kernel.table.is_none() {
            let mut tried = TRIED.lock().unwrap_or_else(PoisonError::into_inner);
            if !*tried {
                try_out()?;
                *tried = true;
            }
            drop(tried);
            // A limit of descriptors is the kernel's limit of places, too.
            let most = sys::descriptors_max() as u32;
            let places = self.places.unwrap_or(PLACES.min(most));
            self.counters.system_calls += 1;
            let made = FileTable::new(&mut self.kernel.ring, places).map_err(|why| {
                let hint = match why.raw_os_error() {
                    Some(libc::EMFILE) => "a table has at most as many places as a process may have descriptors: raise RLIMIT_NOFILE, or ask for fewer places and make more runtimes",
                    Some(libc::EINVAL) => "this kernel's io_uring has no table that begins empty, which Linux 5.19 has; and a table has a place at least",
                    _ => "without a table connections keep their descriptors",
                };
                refused(why).on(format_args!("a table of {places} places")).hint(hint)
            })?;
            self.kernel.table = Some(made);
        }
        Ok(self.kernel.table.as_mut().unwrap_or_else(|| unreachable!("it was made a moment ago")))
    }

    /// A socket takes a place, and its number is closed.
    pub(super) fn take_in(&mut self, socket: OwnedFd) -> std::result::Result<u32, (Error, OwnedFd)> {
        let table = match self.table() {
            Ok(table) => table,
            Err(why) => return Err((why, socket)),
        };
        let (inserted, places) = (table.insert(socket.as_fd()), table.places());
        match inserted {
            Ok(place) => {
                // To register and to close.
                self.counters.system_calls += 2;
                drop(socket);
                Ok(place)
            }
            Err(why) => {
                let is_full = why.raw_os_error() == Some(libc::ENFILE);
                let error = refused(why).on(format_args!("a table of {places} places"));
                Err((if is_full { error.hint(FULL) } else { error }, socket))
            }
        }
    }

    /// Does by place what can be done so.
    #[cold]
    pub(super) fn call_by_place(&mut self, call: Call<'_>) -> io::Result<Answer> {
        match call {
            Call::Shutdown { on, how } => {
                let how = match how {
                    std::net::Shutdown::Read => libc::SHUT_RD,
                    std::net::Shutdown::Write => libc::SHUT_WR,
                    std::net::Shutdown::Both => libc::SHUT_RDWR,
                };
                self.at_once(at(on, |fd| Sqe::shutdown(fd, how)))
            }
            Call::Reset { on } => {
                let length = size_of_val(&NOWHERE) as libc::socklen_t;
                self.at_once(at(on, |fd| Sqe::connect(fd, &raw const NOWHERE, length)))
            }
            Call::Close { descriptor: Descriptor::Direct(place), .. } => {
                self.counters.system_calls += 1;
                let table = self.kernel.table.as_mut();
                let table = table.ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))?;
                table.remove(place).map(|()| Answer::Done)
            }
            _ => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
        }
    }

    /// Has the kernel do something that waits for nobody, and waits for that alone. What else comes meanwhile is told in
    /// the next turn. A shutdown takes a thread of the kernel's, so this waits for one to be woken.
    fn at_once(&mut self, entry: Sqe) -> io::Result<Answer> {
        if self.kernel.ring.submissions().is_full() {
            self.counters.queue_full += 1;
            self.hand_over();
        }
        let Some(slot) = self.kernel.ring.submissions().reserve() else {
            return Err(self.failed.take().unwrap_or_else(|| io::Error::from_raw_os_error(libc::EBUSY)));
        };
        // SAFETY: a shutdown names no memory, and the address of a connect to nowhere is static, and only read.
        unsafe { slot.fill(entry.user_data(AT_ONCE)) };
        self.in_flight += 1;
        loop {
            self.enter(Wait { completions: 1, ..Wait::default() })?;
            let mut result = None;
            loop {
                match self.kernel.ring.completions().pop() {
                    Some(completion) if completion.user_data == AT_ONCE => result = Some(completion.result),
                    Some(completion) => self.held.push_back(completion),
                    None => break,
                }
            }
            if let Some(result) = result {
                self.in_flight -= 1;
                return sys::check_result(result).map(|_| Answer::Done);
            }
        }
    }
}

/// What to do where every place is taken.
const FULL: &str = "every place is taken: more of them (`Builder::direct_places`), or another runtime, which has a table of its own";

fn refused(why: io::Error) -> Error {
    failed("into_direct", why)
}

/// Takes a socket out of a table while a request for another waits that is older. Before Linux 6.13 it would not be
/// closed until that has ended, and a request that stands may be for ever: then connections are better off with
/// descriptors. No bit tells.
fn try_out() -> Result<()> {
    let on_pair = |why| failed("socketpair", why);
    let mut ring = build(4, 4).map_err(|why| refused(why.source))?;
    let mut table = FileTable::new(&mut ring, 2).map_err(|why| {
        refused(why).hint("this kernel's io_uring has no table that begins empty, which Linux 5.19 has")
    })?;
    let (older, of_older) = UnixStream::pair().map_err(on_pair)?;
    let (socket, mut of_socket) = UnixStream::pair().map_err(on_pair)?;
    of_socket.set_nonblocking(true).map_err(on_pair)?;
    let place = table.insert(older.as_fd()).map_err(refused)?;
    let entry = Sqe::poll_add(place as i32, libc::POLLIN as u32).fixed_file();
    // SAFETY: names no memory.
    unsafe { ring.submissions().push(entry) }.map_err(|why| refused(io::Error::other(why)))?;
    ring.submit().map_err(refused)?;
    let place = table.insert(socket.as_fd()).map_err(refused)?;
    drop(socket);
    table.remove(place).map_err(refused)?;
    let ended = matches!(of_socket.read(&mut [0]), Ok(0));
    // Nothing may wait when the table goes, or it would be waited for.
    drop((older, of_older));
    ring.submit_and_wait(Wait { completions: 1, ..Wait::default() }).map_err(refused)?;
    if ended {
        return Ok(());
    }
    let why = "this kernel closes what leaves a ring's table only when everything older has ended";
    let hint = "Linux 6.13 closes it at once; until then connections keep their descriptors";
    Err(refused(io::Error::new(io::ErrorKind::Unsupported, why)).hint(hint))
}
