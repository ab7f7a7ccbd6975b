//! Direct connections: TCP streams without a descriptor.

use super::Inet;
use super::stream::Stream;
use crate::error::Error;

impl Stream<Inet> {
    /// Moves the connection into the ring's file table and closes its descriptor. So a process can have more
    /// connections than RLIMIT_NOFILE allows: up to that many for each runtime
    /// ([`Runtime::direct_places`](crate::Runtime::direct_places)).
    ///
    /// Send, receive, [`shutdown`](Self::shutdown), cancel and close work as before. Calls without an
    /// operation of the ring fail with EOPNOTSUPP from then on: options and addresses,
    /// [`detach`](Self::detach), [`into_std`](Self::into_std), [`send_file`](Self::send_file). The change is
    /// permanent. SO_LINGER with a time ([`SocketOption::Linger`](super::SocketOption::Linger)) has no effect
    /// any more; zero still resets.
    ///
    /// # Errors
    /// In all cases the stream is returned, unchanged.
    /// - EOPNOTSUPP: the driver is not io_uring, or the kernel has no such table (before 5.19) or does not
    ///   close a socket that leaves the table while others use it (before 6.13).
    /// - ENFILE: every place is taken. Raise [`Builder::direct_places`](crate::Builder::direct_places) if
    ///   that or its default was the limit; use another runtime if RLIMIT_NOFILE was.
    /// - EBUSY: an operation is in flight, as after the first [`recv`](Self::recv).
    /// - EMFILE, ENOMEM of `io_uring_register(2)`.
    pub fn into_direct(self) -> std::result::Result<Stream<Inet>, (Error, Stream<Inet>)> {
        match self.socket().make_direct() {
            Ok(()) => Ok(self),
            Err(why) => Err((why, self)),
        }
    }

    /// Returns whether the connection is direct.
    pub fn is_direct(&self) -> bool {
        self.socket().is_direct()
    }
}
