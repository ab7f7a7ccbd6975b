//! Direct connections: sockets with a place in the ring's file table and no descriptor.
//!
//! Operations that wait are submitted as entries with a flag ([`at`]). This module moves sockets into the
//! table and out of it, does by place what is a system call for a descriptor, and tries once per process
//! whether the kernel supports it.

use super::setup::{build, failed};
use super::{AT_ONCE, INSTALL, Uring, at};
use crate::descriptor::Descriptor;
use crate::driver::PLACES;
use crate::op::{Answer, Call};
use crate::{Error, Result, sys};
use ringroad_uring::{Cqe, FileTable, Ring, Sqe, Wait};
use socket2::SockRef;
use std::io::{self, Read};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};

/// An address of family AF_UNSPEC: connecting to it dissolves the connection and resets the peer
/// (`connect(2)`).
static NOWHERE: libc::sockaddr =
    libc::sockaddr { sa_family: libc::AF_UNSPEC as libc::sa_family_t, sa_data: [0; 14] };

/// How often [`Uring::at_once`] enters the kernel at most. Once is enough unless a signal arrived, memory was
/// short, or completions had to be taken first.
const ATTEMPTS: u32 = 100;

/// Whether the trial has passed in this process. Locked during the trial, because runtimes that start
/// together may not have enough descriptors for one trial each.
static TRIED: Mutex<bool> = Mutex::new(false);

impl Uring {
    /// Returns the table of direct connections, and creates it if there is none yet.
    pub(super) fn table(&mut self) -> Result<&mut FileTable> {
        if self.kernel.table.is_none() {
            let mut tried = TRIED.lock().unwrap_or_else(PoisonError::into_inner);
            if !*tried {
                try_out()?;
                *tried = true;
            }
            drop(tried);
            // The kernel limits the places by RLIMIT_NOFILE, too.
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

    /// Moves a socket into the table, and closes its descriptor.
    pub(super) fn take_in(&mut self, socket: OwnedFd) -> std::result::Result<u32, (Error, OwnedFd)> {
        let table = match self.table() {
            Ok(table) => table,
            Err(why) => return Err((why, socket)),
        };
        let (inserted, places) = (table.insert(socket.as_fd()), table.places());
        match inserted {
            Ok(place) => {
                // io_uring_register and close.
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

    /// Does a call on a direct connection.
    #[cold]
    pub(super) fn call_by_place(&mut self, call: Call<'_>) -> io::Result<Answer> {
        match call {
            // Not IORING_OP_SHUTDOWN: the kernel always runs it on one of its few bounded workers, behind the
            // file operations of this runtime.
            Call::Shutdown { on, how } => {
                let place = on.place().ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))?;
                let socket = self.descriptor_of(place)?;
                // shutdown(2), and the close of the descriptor.
                self.counters.system_calls += 2;
                SockRef::from(&socket).shutdown(how).map(|()| Answer::Done)
            }
            Call::Reset { on } => {
                let length = size_of_val(&NOWHERE) as libc::socklen_t;
                let entry = at(on, |fd| Sqe::connect(fd, &raw const NOWHERE, length));
                self.at_once(entry.user_data(AT_ONCE)).map(|_| Answer::Done)
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

    /// Makes a descriptor for the socket at a place of the table. The socket keeps the place, too.
    fn descriptor_of(&mut self, place: u32) -> io::Result<OwnedFd> {
        let number = self.at_once(Sqe::install_fixed_fd(place).user_data(INSTALL))?;
        // SAFETY: the kernel has just created it, and reported its number once, here.
        Ok(unsafe { OwnedFd::from_raw_fd(number) })
    }

    /// Submits an entry that the kernel completes during submission, and returns its result. Never sleeps.
    /// Other completions are kept for the next turn.
    fn at_once(&mut self, entry: Sqe) -> io::Result<i32> {
        let bits = entry.user_data_bits();
        if self.kernel.ring.submissions().is_full() {
            self.counters.queue_full += 1;
            self.hand_over();
        }
        let mut queue = self.kernel.ring.submissions();
        let Some(slot) = queue.reserve() else {
            return Err(self.failed.take().unwrap_or_else(|| io::Error::from_raw_os_error(libc::EBUSY)));
        };
        // SAFETY: installing a descriptor names no memory, and the address of `NOWHERE` is static and only
        // read.
        unsafe { slot.fill(entry) };
        self.in_flight += 1;
        for _ in 0..ATTEMPTS {
            self.enter(Wait::default())?;
            let mut result = None;
            loop {
                match self.kernel.ring.completions().pop() {
                    Some(completion) if completion.user_data == bits => result = Some(completion.result),
                    Some(completion) => self.held.push_back(completion),
                    None => break,
                }
            }
            if let Some(result) = result {
                self.in_flight -= 1;
                return sys::check_result(result);
            }
        }
        // `handle_internal` handles a late completion.
        Err(io::Error::from_raw_os_error(libc::EBUSY))
    }
}

/// Hint for a full table.
const FULL: &str =
    "every place is taken: raise `Builder::direct_places`, or use another runtime, which has its own table";

fn refused(why: io::Error) -> Error {
    failed("into_direct", why)
}

/// Repeats a call while it fails with EINTR.
fn retried<R>(mut call: impl FnMut() -> io::Result<R>) -> io::Result<R> {
    loop {
        match call() {
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            answer => return answer,
        }
    }
}

/// Submits the queue and waits for one completion.
fn next(ring: &mut Ring, wait: Wait) -> io::Result<Cqe> {
    loop {
        retried(|| ring.submit_and_wait(wait))?;
        if let Some(completion) = ring.completions().pop() {
            return Ok(completion);
        }
    }
}

/// Tries whether the kernel closes a socket as soon as it leaves the table, and whether it can install a
/// descriptor for it. Before Linux 6.13 a socket is closed only when every older request on the table has
/// ended, which a standing receive may never do. No feature bit shows this. Such a kernel gets no direct
/// connections.
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
    retried(|| ring.submit()).map_err(refused)?;
    let place = table.insert(socket.as_fd()).map_err(refused)?;
    drop(socket);
    // SAFETY: names no memory.
    unsafe { ring.submissions().push(Sqe::install_fixed_fd(place)) }
        .map_err(|why| refused(io::Error::other(why)))?;
    let one = Wait { completions: 1, ..Wait::default() };
    let installed = next(&mut ring, one).map_err(refused)?;
    if installed.result >= 0 {
        // SAFETY: the kernel has just created this descriptor, and reported its number once.
        drop(unsafe { OwnedFd::from_raw_fd(installed.result) });
    }
    table.remove(place).map_err(refused)?;
    let ended = matches!(of_socket.read(&mut [0]), Ok(0));
    // No request may be pending when the table is dropped, or the drop would wait for it.
    drop((older, of_older));
    next(&mut ring, one).map_err(refused)?;
    if installed.result < 0 {
        let why = io::Error::from_raw_os_error(-installed.result);
        return Err(refused(why).hint(
            "this kernel gives what is in a ring's table no descriptor (IORING_OP_FIXED_FD_INSTALL), which Linux 6.8 does",
        ));
    }
    if ended {
        return Ok(());
    }
    let why = "this kernel closes what leaves a ring's table only when everything older has ended";
    let hint = "Linux 6.13 closes it at once; until then connections keep their descriptors";
    Err(refused(io::Error::new(io::ErrorKind::Unsupported, why)).hint(hint))
}
