//! Unix sockets: names, connecting, listening, and who the peer is. The rest is in `stream`, `listener` and `datagram`.
//!
//! Connecting takes no time here, or cannot be waited for: the kernel tells nobody that a listener's queue has room
//! again, nor that of a socket of datagrams one is not connected to. So both are tried again after a pause, which is one
//! of the few timers in this crate.

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

/// A connection of two processes of this machine (`unix(7)`).
///
/// As a TCP connection, with these differences of the kernel's: what is sent is there at once, so a send to a peer that is
/// gone is EPIPE the first time; a peer that closes without having read everything makes the next receive ECONNRESET, but
/// only for what the *kernel* still had: io_uring and `threads` may have taken it for a receive nobody finished, and then
/// it is a plain end.
pub type UnixStream = Stream<Unix>;

/// A listening Unix socket.
pub type UnixListener = Listener<Unix>;

/// A Unix socket of datagrams: none is lost, and none comes before an earlier one.
pub type UnixDatagram = DatagramSocket<Unix>;

/// How long a connect, or a datagram, first waits for room before it tries again; and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(32);

/// Tries until there is room (anything but EAGAIN).
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

/// With what to do about it.
fn explained(why: Error, address: &UnixAddr) -> Error {
    let errno = why.raw_os_error();
    let why = why.on(address);
    match errno {
        Some(libc::ENOENT) => why.hint("there is no such file, or no such directory"),
        Some(libc::ECONNREFUSED) if address.as_path().is_some() => {
            why.hint("nobody listens there: the file was left behind, or is no socket")
        }
        Some(libc::ECONNREFUSED) => why.hint("nobody listens there"),
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

/// Connects what is connected at once, or EAGAIN.
pub(super) fn join(socket: &Socket, address: &UnixAddr) -> Result<()> {
    let name = to_kernel::<Unix>("connect", address)?;
    let joined = socket.call(|on| Call::Join { on, address: &name });
    joined.map(|_| ()).map_err(|why| explained(why, address))
}

pub(super) fn socket(who: &str, carries: Carries) -> Result<Socket> {
    Socket::new(Core::current(who), &Address::Unix(UnixAddr::UNNAMED), carries)
}

impl UnixStream {
    /// Connects to whoever listens at `address`. While the listener's queue is full, it waits until there is room.
    ///
    /// Dropping the future closes the socket.
    ///
    /// # Errors
    /// ENOENT: no such file; ECONNREFUSED: a file, and nobody who listens; EACCES: no permission to write it;
    /// EPROTOTYPE: a socket of datagrams; ENAMETOOLONG: more than 107 bytes.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub async fn connect(address: impl Into<UnixAddr>) -> Result<UnixStream> {
        let address = address.into();
        let socket = socket("UnixStream::connect", Carries::Stream)?;
        when_there_is_room(|| join(&socket, &address)).await?;
        Ok(Stream::new(socket))
    }

    /// Two ends of one connection (`socketpair(2)`), both unnamed.
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

    /// Who the peer was when it connected (on the side that accepted) or began to listen (on the other): the kernel's
    /// word, which the peer cannot forge (`SO_PEERCRED`). On `sim` everybody is process 1 of user 0.
    ///
    /// # Errors
    /// ENOTCONN.
    pub fn peer_credentials(&self) -> Result<Credentials> {
        self.socket().peer_credentials()
    }
}

/// How a Unix listener is made.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct UnixListenOptions {
    /// Connections the kernel may hold that nobody has accepted; `net.core.somaxconn` caps it (`listen(2)`).
    pub backlog: i32,
    /// If the file exists already: connect to it, and remove it if nobody listens there (ECONNREFUSED) and it is a
    /// socket. Never another kind of file, and never one where anybody answers. Two programs that do so at the same
    /// moment may take the file from each other: where that can be, hold a lock.
    pub replace_stale: bool,
}

impl Default for UnixListenOptions {
    fn default() -> UnixListenOptions {
        UnixListenOptions { backlog: 4096, replace_stale: false }
    }
}

impl UnixListener {
    /// Binds and listens, with default options. The file stays when the listener is dropped, as Unix has it.
    ///
    /// # Errors
    /// EADDRINUSE: the file, or the name, exists; ENOENT, EACCES: of the directory; ENAMETOOLONG: more than 107 bytes.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn bind(address: impl Into<UnixAddr>) -> Result<UnixListener> {
        UnixListener::bind_with(address, UnixListenOptions::default())
    }

    /// Binds and listens.
    ///
    /// # Errors
    /// As [`bind`](Self::bind); with `replace_stale` EADDRINUSE means that somebody answers there, or that it is not a
    /// socket, and the error says which.
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

/// Removes a socket's file at which nobody listens. `in_use` is what binding to it said.
fn remove_stale(address: &UnixAddr, in_use: Error) -> Result<()> {
    let Some(path) = address.as_path() else { return Err(in_use) };
    let asking = socket("UnixListener::bind", Carries::Stream)?;
    match join(&asking, address) {
        // Gone by itself.
        Err(why) if why.raw_os_error() == Some(libc::ENOENT) => return Ok(()),
        Err(why) if why.raw_os_error() == Some(libc::ECONNREFUSED) => {}
        // Somebody is there, or nobody can say.
        _ => return Err(in_use.hint("somebody listens there, so the file was left alone")),
    }
    let removed = asking.call(|_| Call::RemoveSocketFile { path });
    match removed {
        Err(why) if why.raw_os_error() == Some(libc::ENOTSOCK) => {
            Err(in_use.hint("the file is no socket, so it was left alone"))
        }
        Err(why) if why.raw_os_error() != Some(libc::ENOENT) => Err(why.on(address)),
        _ => Ok(()),
    }
}

impl UnixDatagram {
    /// A socket of this name, so that others can send to it. The file stays when the socket is dropped.
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

    /// A socket without a name: it can send, and nobody can answer.
    ///
    /// # Errors
    /// EMFILE, ENFILE.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn unbound() -> Result<UnixDatagram> {
        Ok(DatagramSocket::new(socket("UnixDatagram::unbound", Carries::Datagrams)?))
    }

    /// Two sockets that are each other's peers (`socketpair(2)`), both unnamed.
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

    /// Sends to `peer`, and takes datagrams of `peer` only, from now on.
    ///
    /// # Errors
    /// As [`UnixStream::connect`]; EPERM: it is connected to another.
    pub fn connect(&self, peer: impl Into<UnixAddr>) -> Result<()> {
        join(self.socket(), &peer.into())
    }

    /// Sends `bytes` to `to`, as one datagram; gives the buffer back, sent or not. While there is no room at `to`, it waits,
    /// looking again every few milliseconds (a connected [`send`](DatagramSocket::send) is told).
    ///
    /// Dropping the future leaves it sent or not; no [`Canceller`](super::Canceller) ends it.
    ///
    /// # Errors
    /// As [`UnixStream::connect`]; EPERM: it is connected to another; EMSGSIZE: longer than our send buffer.
    pub async fn send_to<B: IoBuf + Unpin>(&mut self, bytes: B, to: impl Into<UnixAddr>) -> (Result<()>, B) {
        self.sender().send_to(bytes, to).await
    }
}

impl DatagramSender<Unix> {
    /// As [`UnixDatagram::send_to`].
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
            // It may have to wait, for which it is not to hold up a buffer of the pool.
            buf.settle();
            sent.map(|_| ()).map_err(|why| explained(why, &to))
        });
        let sent = sent.await;
        (sent, B::from_buf(Loan(buf)))
    }
}
