//! Direct descriptors: connections without a number.

use super::Inet;
use super::stream::Stream;
use crate::error::Error;

impl Stream<Inet> {
    /// Gives the connection a place in the ring's own table, and its descriptor up: so a process has more connections
    /// than RLIMIT_NOFILE allows, as many for each runtime ([`Runtime::direct_places`](crate::Runtime::direct_places)).
    ///
    /// Sending, receiving, [`shutdown`](Self::shutdown), cancelling and closing are as ever. What has no operation of the
    /// ring is EOPNOTSUPP from then on, with this reason: options and addresses, [`detach`](Self::detach),
    /// [`into_std`](Self::into_std), [`send_file`](Self::send_file). There is no way back. A socket that lingers
    /// ([`SocketOption::Linger`](super::SocketOption::Linger) with a time) does not any more; one that resets does.
    ///
    /// # Errors
    /// In all cases the stream comes back, as it was.
    /// - EOPNOTSUPP: the driver is another than io_uring, or the kernel's io_uring has no such table (before 5.19) or does
    ///   not close what is taken out of it while others are in it (before 6.13).
    /// - ENFILE: every place is taken. More are to be had with [`Builder::direct_places`](crate::Builder::direct_places)
    ///   where that or its default was the limit, and with another runtime where RLIMIT_NOFILE was.
    /// - EBUSY: an operation is under way, as after the first [`recv`](Self::recv).
    /// - What `io_uring_register(2)` says: EMFILE, ENOMEM.
    pub fn into_direct(self) -> std::result::Result<Stream<Inet>, (Error, Stream<Inet>)> {
        match self.socket().make_direct() {
            Ok(()) => Ok(self),
            Err(why) => Err((why, self)),
        }
    }

    /// Whether it has a place in the ring's table and no descriptor.
    pub fn is_direct(&self) -> bool {
        self.socket().is_direct()
    }
}
