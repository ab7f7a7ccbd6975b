//! Accepts connections: a bounded batch per turn, with a pause when no descriptor is free.
//!
//! Without descriptors left, `accept4` fails while the connection stays in the backlog and the listener stays
//! readable: a loop that ignores this would spin. So the listener is *parked*: removed from the wait set
//! until a connection closes, or for a second, because another process may have caused the shortage.

use super::{Counters, socket};
use crate::{Error, Result};
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Connections accepted per turn, so that many new ones do not starve those being served.
pub(super) const ACCEPTS_PER_TURN: usize = 64;

/// How long a parked listener waits if none of our connections closes.
pub(super) const PARKED_FOR: Duration = Duration::from_secs(1);

/// The listening socket and whether it is being waited for.
#[derive(Debug)]
pub(super) struct Acceptor {
    pub(super) listener: OwnedFd,
    parked_until: Option<Instant>,
    /// Flags for `accept4(2)`.
    flags: libc::c_int,
}

impl Acceptor {
    /// `flags`: `SOCK_NONBLOCK` or 0, for the sockets to come.
    pub(super) fn new(listener: OwnedFd, flags: libc::c_int) -> Self {
        Acceptor { listener, parked_until: None, flags }
    }

    /// Returns the next connection, or `None`: none is waiting, or none can be taken and the listener is
    /// parked now.
    ///
    /// # Errors
    /// What no retry can mend (a listener that is none).
    pub(super) fn next(&mut self, counters: &mut Counters) -> Result<Option<OwnedFd>> {
        loop {
            let why = match socket::accept(&self.listener, self.flags, counters) {
                Ok(connection) => return Ok(Some(connection)),
                Err(why) => why,
            };
            match why.raw_os_error() {
                Some(libc::EAGAIN) => return Ok(None),
                Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                    self.parked_until = Some(Instant::now() + PARKED_FOR);
                    return Ok(None);
                }
                // accept(2): Linux passes on errors already pending on the new socket, and these mean that
                // one connection died in the backlog. It has left the backlog, so the loop ends.
                _ if died_in_backlog(&why) => {}
                _ => return Err(Error::new("accept4", why).on("the listener")),
            }
        }
    }

    /// Returns whether the listener belongs in the wait set now. Looks at the clock only while parked.
    pub(super) fn is_open(&mut self) -> bool {
        self.parked_until = self.parked_until.filter(|until| Instant::now() < *until);
        self.parked_until.is_none()
    }

    /// Returns how long the pause may still last; `None` if there is none.
    pub(super) fn timeout(&self) -> Option<Duration> {
        self.parked_until.map(|until| until.saturating_duration_since(Instant::now()))
    }

    /// Ends the pause: something was freed.
    pub(super) fn unpark(&mut self) {
        self.parked_until = None;
    }
}

fn died_in_backlog(why: &io::Error) -> bool {
    matches!(
        why.raw_os_error(),
        Some(
            libc::EINTR
                | libc::ECONNABORTED
                | libc::EPROTO
                | libc::EPERM
                | libc::ENETDOWN
                | libc::ENOPROTOOPT
                | libc::EHOSTDOWN
                | libc::ENONET
                | libc::EHOSTUNREACH
                | libc::EOPNOTSUPP
                | libc::ENETUNREACH
                | libc::ETIMEDOUT
        )
    )
}
