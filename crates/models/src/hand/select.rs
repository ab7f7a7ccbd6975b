//! `select`: three bit sets, one bit per descriptor number.
//!
//! The oldest of the waits. The sets are 128 bytes, so handing them over is cheap, and the scan goes by words
//! of 64 descriptors; but the kernel asks every descriptor in them for every wait, and a descriptor whose
//! *number* is 1024 or more has no bit: setting one anyway writes past the end, a classic hole. Here such a
//! connection is closed at once, said on stderr once, and counted as refused. (The limit is the C library's
//! `FD_SETSIZE`; the kernel itself takes larger sets.)
//!
//! Start at [`run`].
//!
//! # References
//! `select(2)`, in particular under BUGS.

use super::accept::ACCEPTS_PER_TURN;
use super::connection::{Readiness, Want};
use super::crowd::Crowd;
use super::slab::Token;
use super::socket::{check, or_none_if_interrupted, timespec};
use super::{Counters, Notice, Site, socket};
use crate::{Error, Result, Stop};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Descriptor numbers a set has bits for.
const LIMIT: usize = libc::FD_SETSIZE;

/// Serves until `stop` is requested.
pub(super) fn run(site: Site, stop: &Stop) -> Result<Counters> {
    let crowd = Crowd::new(site);
    let stop = numbered(stop.as_fd().as_raw_fd(), "the stop pipe")?;
    let listener = numbered(crowd.listener(), "the listener")?;
    let mut server = Select {
        crowd,
        stop,
        listener,
        reads: Set::EMPTY,
        writes: Set::EMPTY,
        owners: Box::new([None; LIMIT]),
        notice: Notice::default(),
    };
    server.reads.insert(stop);
    while server.turn()? {}
    Ok(server.crowd.finish())
}

/// The number, if a set has a bit for it.
fn numbered(fd: RawFd, who: &'static str) -> Result<usize> {
    usize::try_from(fd).ok().filter(|number| *number < LIMIT).ok_or_else(|| {
        let why = io::Error::new(io::ErrorKind::Unsupported, format!("descriptor {fd} is not below {LIMIT}"));
        Error::new("select", why)
            .on(who)
            .hint("select has no bit for it; open fewer files before, or use poll or epoll")
    })
}

struct Select {
    crowd: Crowd,
    stop: usize,
    listener: usize,
    /// Descriptors waited for, to read and to write. The kernel gets copies, since it writes its answer there.
    reads: Set,
    writes: Set,
    /// Whose descriptor it is, by number.
    owners: Box<[Option<Token>; LIMIT]>,
    notice: Notice,
}

impl Select {
    /// One wait and what follows from it. `false`: stop was requested.
    fn turn(&mut self) -> Result<bool> {
        self.reads.set(self.listener, self.crowd.is_accepting());
        let (mut reads, mut writes) = (self.reads, self.writes);
        let timeout = self.crowd.timeout();
        let mut ready = wait(&mut reads, &mut writes, timeout, &mut self.crowd.worker.counters)
            .map_err(|why| Error::new("pselect", why))?;
        if reads.contains(self.stop) {
            return Ok(false);
        }
        let newcomers = reads.contains(self.listener);
        reads.set(self.listener, false);
        ready -= usize::from(newcomers);

        for word in 0..WORDS {
            if ready == 0 {
                break;
            }
            let mut bits = reads.words[word] | writes.words[word];
            // Nobody waits to read and to write at once, so each bit here is one of those counted.
            ready -= bits.count_ones() as usize;
            while bits != 0 {
                let number = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let Some(token) = self.owners[number] else { continue };
                // A connection that broke is readable and writable, so there is no third set to ask.
                let readable = reads.contains(number);
                let readiness = Readiness { readable, writable: writes.contains(number), hung_up: false };
                let want = self.crowd.ready(token, readiness).unwrap_or(Want::Close);
                self.settle(number, token, want);
            }
        }
        while let Some((token, want)) = self.crowd.next_due() {
            if let Some(number) = self.crowd.get_mut(token).map(|connection| connection.number() as usize) {
                self.settle(number, token, want);
            }
        }
        if newcomers {
            for _ in 0..ACCEPTS_PER_TURN {
                let Some(socket) = self.crowd.accept()? else { break };
                self.enter(socket);
            }
        }
        Ok(true)
    }

    /// Waits for what the connection with this descriptor wants from now on.
    fn settle(&mut self, number: usize, token: Token, want: Want) {
        self.reads.set(number, matches!(want, Want::Read | Want::Turn));
        self.writes.set(number, want == Want::Write);
        if want == Want::Close {
            // The number is free as soon as this returns and may come back with the next accept: its bits and
            // its owner are gone before that.
            self.owners[number] = None;
            self.crowd.close(token);
        }
    }

    fn enter(&mut self, socket: OwnedFd) {
        let number = match numbered(socket.as_raw_fd(), "a connection") {
            Ok(number) => number,
            Err(why) => {
                let counters = &mut self.crowd.worker.counters;
                counters.refused += 1;
                socket::close(socket, counters);
                self.notice
                    .once(|| format!("{why}; it was closed, and others like it will be without a word"));
                return;
            }
        };
        self.owners[number] = Some(self.crowd.admit(socket));
        self.reads.insert(number);
    }
}

const WORDS: usize = LIMIT / 64;

/// A set of descriptor numbers, laid out as the kernel reads it: an array of longs, lowest bit first.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Set {
    words: [u64; WORDS],
}

// The kernel's longs are 64 bits wide where this builds, and the C library's set is the same 128 bytes.
const _: () = assert!(size_of::<Set>() == size_of::<libc::fd_set>() && size_of::<libc::c_ulong>() == 8);

impl Set {
    const EMPTY: Set = Set { words: [0; WORDS] };

    /// Numbers come from [`numbered`] only, so they are below [`LIMIT`]; another would panic, not write astray.
    fn insert(&mut self, number: usize) {
        self.words[number / 64] |= 1 << (number % 64);
    }

    fn set(&mut self, number: usize, present: bool) {
        let bit = 1 << (number % 64);
        if present { self.words[number / 64] |= bit } else { self.words[number / 64] &= !bit }
    }

    fn contains(&self, number: usize) -> bool {
        (self.words[number / 64] >> (number % 64)) & 1 == 1
    }
}

/// Waits; leaves in both sets what is ready, and nothing if interrupted. Tells how many bits are set.
fn wait(
    reads: &mut Set,
    writes: &mut Set,
    timeout: Option<Duration>,
    counters: &mut Counters,
) -> io::Result<usize> {
    let highest = (0..WORDS).rev().find_map(|word| {
        let bits = reads.words[word] | writes.words[word];
        (bits != 0).then(|| word * 64 + 63 - bits.leading_zeros() as usize)
    });
    // At most LIMIT.
    let count = highest.map_or(0, |number| number + 1) as libc::c_int;
    let until = timeout.map(timespec);
    let until = until.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let (read, write) = (&raw mut *reads, &raw mut *writes);
    counters.syscalls += 1;
    // SAFETY: both sets have the size and layout of fd_set (asserted above) and are borrowed exclusively for
    // the call, `count` is at most FD_SETSIZE so that the kernel stays inside them, the timespec lives in this
    // frame, and a null set or mask means none.
    let ready = unsafe {
        libc::pselect(count, read.cast(), write.cast(), std::ptr::null_mut(), until, std::ptr::null())
    };
    if ready <= 0 {
        // After a failure the sets hold what they held before: empty them, so that no caller acts on them.
        (*reads, *writes) = (Set::EMPTY, Set::EMPTY);
    }
    or_none_if_interrupted(check(ready))
}
