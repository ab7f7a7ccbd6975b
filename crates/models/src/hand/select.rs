//! `select`: three bit sets, one bit per descriptor number.
//!
//! The oldest of the waits. The sets are 128 bytes, so copying them is cheap, and the scan goes by words of
//! 64 descriptors. But the kernel polls every descriptor in them at every wait, and a descriptor *number* of
//! 1024 or more has no bit: setting one anyway writes past the end, a classic security hole. Here such a
//! connection is closed at once, reported on stderr once, and counted as refused. (The limit is the C
//! library's `FD_SETSIZE`; the kernel itself takes larger sets.)
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
    let mut server = Select::new(site, stop)?;
    while server.turn()? {}
    Ok(server.crowd.finish())
}

/// Returns the number, if a set has a bit for it.
fn numbered(fd: RawFd, call: &'static str) -> Result<usize> {
    usize::try_from(fd).ok().filter(|number| *number < LIMIT).ok_or_else(|| {
        let why = io::Error::new(io::ErrorKind::Unsupported, format!("descriptor {fd} is not below {LIMIT}"));
        Error::new("select", why)
            .on(call)
            .hint("select has no bit for it; open fewer files before, or use poll or epoll")
    })
}

struct Select {
    crowd: Crowd,
    stop: usize,
    listener: usize,
    /// Descriptors waited for, to read and to write. The kernel gets copies, since it writes its answer
    /// there.
    reads: Set,
    writes: Set,
    /// The connection of each descriptor, by number.
    owners: Box<[Option<Token>; LIMIT]>,
    /// Ready connections to serve in a turn, at most.
    batch: usize,
    /// The number to look at first in the next turn: behind the last that was served, so that no connection
    /// is passed over for good where a turn does not serve all.
    next: usize,
    notice: Notice,
}

impl Select {
    fn new(site: Site, stop: &Stop) -> Result<Self> {
        let batch = site.batch(usize::MAX);
        let crowd = Crowd::new(site);
        let stop = numbered(stop.as_fd().as_raw_fd(), "the stop pipe")?;
        let listener = numbered(crowd.listener(), "the listener")?;
        let mut reads = Set::EMPTY;
        reads.insert(stop);
        Ok(Select {
            crowd,
            stop,
            listener,
            reads,
            writes: Set::EMPTY,
            owners: Box::new([None; LIMIT]),
            batch,
            next: 0,
            notice: Notice::default(),
        })
    }

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

        let start = std::mem::take(&mut self.next);
        let (first, from_start) = (start / 64, u64::MAX << (start % 64));
        let mut left = self.batch;
        // The first word comes again at the end, with what is below the start.
        'words: for step in 0..=WORDS {
            if ready == 0 {
                break;
            }
            let word = (first + step) % WORDS;
            let looked_at = match step {
                0 => from_start,
                WORDS => !from_start,
                _ => u64::MAX,
            };
            let mut bits = (reads.words[word] | writes.words[word]) & looked_at;
            // No connection waits to read and to write at once, so each bit here is one of those counted.
            ready -= bits.count_ones() as usize;
            while bits != 0 {
                let number = word * 64 + bits.trailing_zeros() as usize;
                if left == 0 {
                    self.next = number;
                    break 'words;
                }
                left -= 1;
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

    /// Numbers come from [`numbered`] only, so they are below [`LIMIT`]; another would panic, not write
    /// astray.
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
    // the call, `count` is at most FD_SETSIZE so that the kernel stays inside them, the timespec lives in
    // this frame, and a null set or mask means none.
    let ready = unsafe {
        libc::pselect(count, read.cast(), write.cast(), std::ptr::null_mut(), until, std::ptr::null())
    };
    if ready <= 0 {
        // After a failure the sets hold what they held before: empty them, so that no caller acts on them.
        (*reads, *writes) = (Set::EMPTY, Set::EMPTY);
    }
    or_none_if_interrupted(check(ready))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{Options, Protocol};
    use std::io::Write;
    use std::net::TcpStream;
    use std::num::NonZeroU16;

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n";

    /// Three that are ready at every wait are served in turn, not the lowest number each time.
    #[test]
    fn a_turn_that_serves_one_goes_on_behind_it_next_time() {
        let options = Options { batch: NonZeroU16::new(1), ..Options::default() };
        let listener = crate::bind(([127, 0, 0, 1], 0).into(), &options).unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Stop::new().unwrap();
        let mut server = Select::new(Site::new(listener, Protocol::Http, options), &stop).unwrap();
        // By number, since a lower one may become free between two of them.
        let mut clients = std::collections::BTreeMap::new();
        while clients.len() < 3 {
            let client = TcpStream::connect(address).unwrap();
            let newcomer = loop {
                assert!(server.turn().unwrap());
                let number = (0..LIMIT)
                    .find(|number| server.owners[*number].is_some() && !clients.contains_key(number));
                if let Some(number) = number {
                    break number;
                }
            };
            clients.insert(newcomer, client);
        }
        clients.values_mut().for_each(|client| client.write_all(REQUEST).unwrap());
        let ready = |server: &Select, clients: &std::collections::BTreeMap<usize, TcpStream>| {
            let (mut reads, mut writes) = (server.reads, server.writes);
            wait(&mut reads, &mut writes, Some(Duration::ZERO), &mut Counters::default()).unwrap();
            clients.keys().copied().filter(|number| reads.contains(*number)).collect::<Vec<usize>>()
        };
        let all: Vec<usize> = clients.keys().copied().collect();
        let mut served = Vec::new();
        for _ in 0..6 {
            while ready(&server, &clients).len() < all.len() {}
            assert!(server.turn().unwrap());
            let left = ready(&server, &clients);
            assert_eq!(left.len(), all.len() - 1);
            let one = *all.iter().find(|number| !left.contains(number)).unwrap();
            clients.get_mut(&one).unwrap().write_all(REQUEST).unwrap();
            served.push(one);
        }
        assert_eq!(served, [all.clone(), all].concat());
    }
}
