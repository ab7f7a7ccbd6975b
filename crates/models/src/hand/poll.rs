//! `poll`: the kernel gets the whole array of descriptors for every wait.
//!
//! The kernel scans the whole array, and the program scans it until it has found as many ready entries as the
//! kernel counted: the cost of a wait grows with the connections, busy or idle. In return nothing is
//! registered, and changing an interest is an assignment. The array is kept dense: the last entry moves into
//! a gap.
//!
//! A turn that serves only so many continues after the last of them next time, so that no connection is
//! starved; the kernel counts all ready ones again each time.
//!
//! Start at [`run`].
//!
//! # References
//! `poll(2)`: a negative descriptor is passed over; POLLERR and POLLHUP are reported unasked.

use super::accept::ACCEPTS_PER_TURN;
use super::connection::{Readiness, Want};
use super::crowd::Crowd;
use super::slab::Token;
use super::{Counters, Site, socket};
use crate::{Error, Result, Stop};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

/// Places in the array that are not connections.
const STOP: usize = 0;
const LISTENER: usize = 1;
const FIRST: usize = 2;

/// Serves until `stop` is requested.
pub(super) fn run(site: Site, stop: &Stop) -> Result<Counters> {
    let mut server = Poll::new(site, stop);
    while server.turn()? {}
    Ok(server.crowd.finish())
}

struct Poll {
    crowd: Crowd,
    /// What the kernel sees.
    set: Vec<libc::pollfd>,
    /// The owners of the entries: `owners[i]` owns `set[FIRST + i]`, and its connection's mark is `FIRST +
    /// i`.
    owners: Vec<Token>,
    /// Ready connections to serve in a turn, at most.
    batch: usize,
    /// The place to look at first in the next turn.
    next: usize,
}

impl Poll {
    fn new(site: Site, stop: &Stop) -> Self {
        let batch = site.batch(usize::MAX);
        let crowd = Crowd::new(site);
        let set = vec![entry(stop.as_fd().as_raw_fd()), entry(crowd.listener())];
        Poll { crowd, set, owners: Vec::new(), batch, next: FIRST }
    }

    /// One wait and what follows from it. `false`: stop was requested.
    fn turn(&mut self) -> Result<bool> {
        self.set[LISTENER].fd = if self.crowd.is_accepting() { self.crowd.listener() } else { -1 };
        let timeout = self.crowd.timeout();
        let mut ready = socket::poll(&mut self.set, timeout, &mut self.crowd.worker.counters)
            .map_err(|why| Error::new("poll", why).on(format!("{} descriptors", self.set.len())))?;
        if self.set[STOP].revents != 0 {
            return Ok(false);
        }
        let newcomers = self.set[LISTENER].revents != 0;
        ready -= usize::from(newcomers);

        let start = std::mem::replace(&mut self.next, FIRST);
        let mut left = self.batch;
        self.serve(start, self.set.len(), &mut ready, &mut left);
        if left > 0 {
            self.serve(FIRST, start, &mut ready, &mut left);
        }
        while let Some((token, want)) = self.crowd.next_due() {
            let at = self.crowd.get_mut(token).map_or(0, |connection| connection.mark as usize);
            self.settle(at, token, want);
        }
        if newcomers {
            self.accept()?;
        }
        Ok(true)
    }

    /// Serves the ready connections at the places `from` to `to`, as many as `left` allows.
    fn serve(&mut self, from: usize, to: usize, ready: &mut usize, left: &mut usize) {
        let mut at = from;
        while *ready > 0 && at < to.min(self.set.len()) {
            let events = self.set[at].revents;
            if events == 0 {
                at += 1;
                continue;
            }
            if *left == 0 {
                self.next = at;
                return;
            }
            (*ready, *left) = (*ready - 1, *left - 1);
            self.set[at].revents = 0;
            let token = self.owners[at - FIRST];
            let broken = events & (libc::POLLERR | libc::POLLHUP) != 0;
            let readiness = Readiness {
                readable: broken || events & libc::POLLIN != 0,
                writable: broken || events & libc::POLLOUT != 0,
                hung_up: false,
            };
            let want = self.crowd.ready(token, readiness).unwrap_or(Want::Close);
            // A closed entry's place is taken by the last one, which has not been looked at, or has nothing
            // to tell any more: stay on it.
            if self.settle(at, token, want) {
                at += 1;
            }
        }
    }

    /// Waits for what the connection at place `at` wants from now on. `false`: it was closed.
    fn settle(&mut self, at: usize, token: Token, want: Want) -> bool {
        let fd = self.set[at].fd;
        match want {
            Want::Read | Want::Turn => self.set[at].events = libc::POLLIN,
            Want::Write => self.set[at].events = libc::POLLOUT,
            Want::Delay => {}
            Want::Close => {
                self.crowd.close(token);
                self.set.swap_remove(at);
                self.owners.swap_remove(at - FIRST);
                if let Some(moved) = self.owners.get(at - FIRST).and_then(|moved| self.crowd.get_mut(*moved))
                {
                    moved.mark = at as u32;
                }
                return false;
            }
        }
        // While an answer waits for its time the entry is passed over entirely, errors too: asking for no
        // event would still report a reset at every wait.
        let passed_over = fd < 0;
        if passed_over != (want == Want::Delay) {
            self.set[at].fd = !fd;
        }
        true
    }

    fn accept(&mut self) -> Result<()> {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(socket) = self.crowd.accept()? else { break };
            self.enter(socket);
        }
        Ok(())
    }

    fn enter(&mut self, socket: OwnedFd) {
        let place = self.set.len() as u32;
        self.set.push(entry(socket.as_raw_fd()));
        let token = self.crowd.admit(socket);
        self.owners.push(token);
        if let Some(connection) = self.crowd.get_mut(token) {
            connection.mark = place;
        }
    }
}

fn entry(fd: RawFd) -> libc::pollfd {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{Options, Protocol};
    use std::io::Write;
    use std::net::TcpStream;
    use std::num::NonZeroU16;
    use std::time::Duration;

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n";

    /// Three that are ready at every wait are served in turn, not the first of them each time.
    #[test]
    fn a_turn_that_serves_one_goes_on_behind_it_next_time() {
        let options = Options { batch: NonZeroU16::new(1), ..Options::default() };
        let listener = crate::bind(([127, 0, 0, 1], 0).into(), &options).unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Stop::new().unwrap();
        let mut server = Poll::new(Site::new(listener, Protocol::Http, options), &stop);
        let mut clients = Vec::new();
        while clients.len() < 3 {
            let client = TcpStream::connect(address).unwrap();
            while server.owners.len() == clients.len() {
                assert!(server.turn().unwrap());
            }
            clients.push(client);
        }
        clients.iter_mut().for_each(|client| client.write_all(REQUEST).unwrap());
        let look = |server: &mut Poll| {
            socket::poll(&mut server.set, Some(Duration::ZERO), &mut Counters::default()).unwrap()
        };
        let mut served = Vec::new();
        for _ in 0..6 {
            while look(&mut server) < clients.len() {}
            assert!(server.turn().unwrap());
            assert_eq!(look(&mut server), clients.len() - 1);
            let one = (0..clients.len()).find(|nth| server.set[FIRST + nth].revents == 0).unwrap();
            clients[one].write_all(REQUEST).unwrap();
            served.push(one);
        }
        assert_eq!(served, [0, 1, 2, 0, 1, 2]);
    }
}
