//! `poll`: one array of descriptors, handed to the kernel in full for every wait.
//!
//! The kernel walks all of it, and so must we until we have met as many ready entries as it counted: the cost
//! of a wait grows with the connections, busy or idle. In return nothing is registered anywhere, and changing
//! what is waited for is an assignment. The array is kept dense: the last entry moves into a gap.
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
    let crowd = Crowd::new(site);
    let set = vec![entry(stop.as_fd().as_raw_fd()), entry(crowd.listener())];
    let mut server = Poll { crowd, set, owners: Vec::new() };
    while server.turn()? {}
    Ok(server.crowd.finish())
}

struct Poll {
    crowd: Crowd,
    /// What the kernel sees.
    set: Vec<libc::pollfd>,
    /// Whose entry it is: `owners[i]` owns `set[FIRST + i]`, and its connection's mark is `FIRST + i`.
    owners: Vec<Token>,
}

impl Poll {
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

        let mut at = FIRST;
        while ready > 0 && at < self.set.len() {
            let events = self.set[at].revents;
            if events == 0 {
                at += 1;
                continue;
            }
            ready -= 1;
            self.set[at].revents = 0;
            let token = self.owners[at - FIRST];
            let broken = events & (libc::POLLERR | libc::POLLHUP) != 0;
            let readiness = Readiness {
                readable: broken || events & libc::POLLIN != 0,
                writable: broken || events & libc::POLLOUT != 0,
                hung_up: false,
            };
            let want = self.crowd.ready(token, readiness).unwrap_or(Want::Close);
            // A closed entry's place is taken by the last one, which has not been looked at: stay on it.
            if self.settle(at, token, want) {
                at += 1;
            }
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
        // While an answer waits for its time the entry is passed over entirely, errors too: asking for no event
        // would still report a reset at every wait.
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
