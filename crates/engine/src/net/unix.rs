//! Unix sockets: names, connecting, listening, and the peer's credentials. The rest is in `stream`,
//! `listener` and `datagram`.
//!
//! A connect completes immediately, or cannot be waited for: the kernel does not report when a listener's
//! queue has room again, or the queue of a datagram socket that is not the connected peer. So both are
//! retried after a pause.

use super::datagram::{DatagramSender, DatagramSocket};
use super::family::{Unix, to_kernel};
use super::listener::Listener;
use super::socket::Socket;
use super::stream::Stream;
use crate::address::{Address, UnixAddr};
use crate::buf::{IoBuf, Loan};
use crate::error::{Error, Result};
use crate::exec::Core;
use crate::op::{Call, Carries};
use crate::option::Credentials;
use crate::time::sleep;
use std::time::Duration;

/// A connection between two processes of this machine (`unix(7)`).
///
/// Like a TCP connection, with these differences of the kernel. Sent bytes arrive immediately, so the first
/// send to a closed peer is EPIPE. After a peer closes with unread bytes, the next receive is ECONNRESET, but
/// only if the *kernel* still had the bytes: io_uring and `threads` may have taken them for a receive that
/// was dropped, and then it is an ordinary end.
pub type UnixStream = Stream<Unix>;

/// A listening Unix socket.
pub type UnixListener = Listener<Unix>;

/// A Unix datagram socket: datagrams arrive in order, and none is lost.
pub type UnixDatagram = DatagramSocket<Unix>;

/// First and maximum pause before a connect or a datagram is retried for lack of room.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(32);

/// Retries until there is room (any result but EAGAIN).
pub(super) async fn when_there_is_room<T>(mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let mut pause = FIRST_PAUSE;
    loop {
        match attempt() {
            Err(why) if why.raw_os_error() == Some(libc::EAGAIN) => {}
            result => return result,
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Adds a hint to the error.
fn explained(why: Error, address: &UnixAddr) -> Error {
    let errno = why.raw_os_error();
    let why = why.on(address);
    match errno {
        Some(libc::ENOENT) => why.hint("there is no such file, or no such directory"),
        Some(libc::ECONNREFUSED) if address.as_path().is_some() => {
            why.hint("nothing listens there: the file was left behind, or is not a socket")
        }
        Some(libc::ECONNREFUSED) => why.hint("nothing listens there"),
        Some(libc::EACCES) => {
            why.hint("the directories must be searchable and the socket's file writable for this user")
        }
        Some(libc::EPROTOTYPE) => {
            why.hint("that is a socket of the other kind: streams and datagrams do not mix")
        }
        Some(libc::EADDRINUSE) if address.as_path().is_some() => why.hint(
            "the file exists: another program listens there, or it was left behind, and then \
             `UnixListenOptions::replace_stale` removes it",
        ),
        Some(libc::EADDRINUSE) => why.hint("another program has this name"),
        _ => why,
    }
}

/// Binds to `address`.
pub(super) fn bind(socket: &Socket, address: &UnixAddr) -> Result<()> {
    let name = to_kernel::<Unix>("bind", address)?;
    let bound = socket.call(|on| Call::Bind { on, address: &name });
    bound.map(|_| ()).map_err(|why| explained(why, address))
}

/// Connects immediately, or returns EAGAIN.
pub(super) fn join(socket: &Socket, address: &UnixAddr) -> Result<()> {
    let name = to_kernel::<Unix>("connect", address)?;
    let joined = socket.call(|on| Call::Join { on, address: &name });
    joined.map(|_| ()).map_err(|why| explained(why, address))
}

pub(super) fn socket(operation: &str, carries: Carries) -> Result<Socket> {
    Socket::new(Core::current(operation), &Address::Unix(UnixAddr::UNNAMED), carries)
}

impl UnixStream {
    /// Connects to the listener at `address`. While the listener's queue is full, it waits until there is
    /// room.
    ///
    /// Dropping the future closes the socket.
    ///
    /// # Errors
    /// ENOENT: no such file; ECONNREFUSED: a file without a listener; EACCES: no permission to write it;
    /// EPROTOTYPE: a datagram socket; ENAMETOOLONG: more than 107 bytes.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub async fn connect(address: impl Into<UnixAddr>) -> Result<UnixStream> {
        let address = address.into();
        let socket = socket("UnixStream::connect", Carries::Stream)?;
        when_there_is_room(|| join(&socket, &address)).await?;
        Ok(Stream::new(socket))
    }

    /// Creates two connected streams (`socketpair(2)`), both unnamed.
    ///
    /// # Errors
    /// EMFILE, ENFILE.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn pair() -> Result<(UnixStream, UnixStream)> {
        let (one, other) = Socket::pair(Core::current("UnixStream::pair"), Carries::Stream)?;
        Ok((Stream::new(one), Stream::new(other)))
    }

    /// Returns the peer's credentials at the time when it connected (on the accepting side) or began to
    /// listen (on the connecting side). They come from the kernel, so the peer cannot forge them
    /// (`SO_PEERCRED`). On `sim` every peer is process 1 of user 0.
    ///
    /// # Errors
    /// ENOTCONN.
    pub fn peer_credentials(&self) -> Result<Credentials> {
        self.socket().peer_credentials()
    }
}

/// Options for a Unix listener.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct UnixListenOptions {
    /// Maximum number of connections that wait to be accepted; capped by `net.core.somaxconn` (`listen(2)`).
    pub backlog: i32,
    /// If the file exists: remove it if it is a socket on which nothing listens (a connect fails with
    /// ECONNREFUSED). Another kind of file, or the socket of a listener, is never removed. Two programs that
    /// do this at the same time may remove each other's file: use a lock where that can happen.
    pub replace_stale: bool,
}

impl Default for UnixListenOptions {
    fn default() -> UnixListenOptions {
        UnixListenOptions { backlog: 4096, replace_stale: false }
    }
}

impl UnixListener {
    /// Binds and listens with default options. The file remains after the listener is dropped, as usual on
    /// Unix.
    ///
    /// # Errors
    /// EADDRINUSE: the file or name exists; ENOENT, EACCES for the directory; ENAMETOOLONG: more than 107
    /// bytes.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn bind(address: impl Into<UnixAddr>) -> Result<UnixListener> {
        UnixListener::bind_with(address, UnixListenOptions::default())
    }

    /// Binds and listens.
    ///
    /// # Errors
    /// As [`bind`](Self::bind); with `replace_stale` EADDRINUSE means that a process listens there, or that
    /// the file is not a socket; the error names the case.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn bind_with(address: impl Into<UnixAddr>, options: UnixListenOptions) -> Result<UnixListener> {
        let address = address.into();
        let socket = socket("UnixListener::bind", Carries::Stream)?;
        match bind(&socket, &address) {
            Err(why) if options.replace_stale && why.raw_os_error() == Some(libc::EADDRINUSE) => {
                remove_stale(&address, why)?;
                bind(&socket, &address)?;
            }
            bound => bound?,
        }
        let backlog = options.backlog;
        socket.call(|on| Call::Listen { on, backlog }).map_err(|why| why.on(&address))?;
        Ok(Listener::new(socket))
    }
}

/// Removes the file of a socket without a listener. `in_use` is the error of the bind.
fn remove_stale(address: &UnixAddr, in_use: Error) -> Result<()> {
    let Some(path) = address.as_path() else { return Err(in_use) };
    let asking = socket("UnixListener::bind", Carries::Stream)?;
    match join(&asking, address) {
        // Another process has removed it.
        Err(why) if why.raw_os_error() == Some(libc::ENOENT) => return Ok(()),
        Err(why) if why.raw_os_error() == Some(libc::ECONNREFUSED) => {}
        // There is a listener, or it cannot be determined.
        _ => return Err(in_use.hint("a process listens there, so the file was not removed")),
    }
    let removed = asking.call(|_| Call::RemoveSocketFile { path });
    match removed {
        Err(why) if why.raw_os_error() == Some(libc::ENOTSOCK) => {
            Err(in_use.hint("the file is not a socket, so it was not removed"))
        }
        Err(why) if why.raw_os_error() != Some(libc::ENOENT) => Err(why.on(address)),
        _ => Ok(()),
    }
}

impl UnixDatagram {
    /// Creates a socket bound to this address. The file remains after the socket is dropped.
    ///
    /// # Errors
    /// As [`UnixListener::bind`].
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn bind(address: impl Into<UnixAddr>) -> Result<UnixDatagram> {
        let socket = socket("UnixDatagram::bind", Carries::Datagrams)?;
        bind(&socket, &address.into())?;
        Ok(DatagramSocket::new(socket))
    }

    /// Creates a socket without an address: it can send, but receives no replies.
    ///
    /// # Errors
    /// EMFILE, ENFILE.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn unbound() -> Result<UnixDatagram> {
        Ok(DatagramSocket::new(socket("UnixDatagram::unbound", Carries::Datagrams)?))
    }

    /// Creates two connected sockets (`socketpair(2)`), both unnamed.
    ///
    /// # Errors
    /// EMFILE, ENFILE.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn pair() -> Result<(UnixDatagram, UnixDatagram)> {
        let (one, other) = Socket::pair(Core::current("UnixDatagram::pair"), Carries::Datagrams)?;
        Ok((DatagramSocket::new(one), DatagramSocket::new(other)))
    }

    /// Sets the destination to `peer`, and from now on receives datagrams of `peer` only.
    ///
    /// # Errors
    /// As [`UnixStream::connect`]; EPERM: the peer is connected to another socket.
    pub fn connect(&self, peer: impl Into<UnixAddr>) -> Result<()> {
        join(self.socket(), &peer.into())
    }

    /// Sends `bytes` to `to` as one datagram; returns the buffer, also on an error. While `to` has no room,
    /// it retries every few milliseconds. (A connected [`send`](DatagramSocket::send) is woken by the
    /// kernel.)
    ///
    /// If the future is dropped, the datagram was sent whole or not at all. A [`Canceller`](super::Canceller)
    /// has no effect on it.
    ///
    /// # Errors
    /// As [`UnixStream::connect`]; EPERM: it is connected to another; EMSGSIZE: longer than the send buffer.
    pub async fn send_to<B: IoBuf + Unpin>(&mut self, bytes: B, to: impl Into<UnixAddr>) -> (Result<()>, B) {
        self.sender().send_to(bytes, to).await
    }
}

impl DatagramSender<Unix> {
    /// Works as [`UnixDatagram::send_to`].
    pub async fn send_to<B: IoBuf + Unpin>(&mut self, bytes: B, to: impl Into<UnixAddr>) -> (Result<()>, B) {
        let to = to.into();
        let name = match to_kernel::<Unix>("sendmsg", &to) {
            Ok(name) => name,
            Err(why) => return (Err(why), bytes),
        };
        let socket = self.socket();
        let Loan(mut buf) = bytes.into_buf();
        let sent = when_there_is_room(|| {
            let sent = socket.call(|on| Call::SendTo { on, bytes: buf.bytes(), address: &name });
            // It may have to wait, and must not hold a buffer of the pool meanwhile.
            buf.leave_pool();
            sent.map(|_| ()).map_err(|why| explained(why, &to))
        });
        let sent = sent.await;
        (sent, B::from_buf(Loan(buf)))
    }
}
