//! The owner's handle of a socket: an entry of the table that closes itself.

use super::family::Family;
use crate::address::Address;
use crate::caller::Caller;
use crate::descriptor::{Descriptor, Entry, NONE};
use crate::error::{Error, Result};
use crate::exec::{Core, NoIo};
use crate::io::{DIRECT, Io, Loose};
use crate::op::{Answer, Call, Carries, Domain, Kind, Target};
use crate::option::{Credentials, Membership, SocketOption};
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// Owns an entry of a runtime's table of descriptors. Dropping it closes the descriptor as soon as no
/// operation of it is in flight.
pub(super) struct Socket {
    core: Rc<Core>,
    index: u32,
}

/// Returns the error of an operation after its runtime was shut down.
#[cold]
fn gone(operation: &'static str) -> Error {
    Error::errno(operation, libc::ECANCELED).hint("the runtime has been shut down")
}

/// Returns the error of an operation that cannot use its runtime's I/O.
#[cold]
fn without_io(operation: &'static str, why: NoIo) -> Error {
    let NoIo::Elsewhere { home, here } = why else { return gone(operation) };
    let why =
        format!("the socket is of runtime {home}, and polled in runtime {here}, where nothing of it happens");
    Error::new(operation, io::Error::new(io::ErrorKind::InvalidInput, why))
        .hint("poll it where it was made, or take it along with `detach` and `attach`")
}

impl Socket {
    /// Creates a socket for addresses of this family.
    pub(super) fn new(core: Rc<Core>, address: &Address, carries: Carries) -> Result<Socket> {
        let domain = match address {
            Address::Inet(address) if address.is_ipv4() => Domain::V4,
            Address::Inet(_) => Domain::V6,
            Address::Unix(_) => Domain::Unix,
        };
        let made = core.with_io(|io| match io.call(Call::Socket { domain, carries })? {
            Answer::Descriptor(descriptor) => Ok(io.open(descriptor)),
            other => unreachable!("a socket is a descriptor, not {other:?}"),
        });
        let target = made.unwrap_or_else(|| Err(gone("socket")))?;
        Ok(Socket { core, index: target.index })
    }

    /// Creates two connected Unix sockets.
    pub(super) fn pair(core: Rc<Core>, carries: Carries) -> Result<(Socket, Socket)> {
        let made = core.with_io(|io| match io.call(Call::Pair { carries })? {
            Answer::Pair(one, other) => Ok((io.open(one), io.open(other))),
            other => unreachable!("a pair is two descriptors, not {other:?}"),
        });
        let (one, other) = made.unwrap_or_else(|| Err(gone("socketpair")))?;
        let socket = |target: Target| Socket { core: Rc::clone(&core), index: target.index };
        Ok((socket(one), socket(other)))
    }

    /// Takes over a socket that was created elsewhere.
    pub(super) fn adopt(core: Rc<Core>, fd: OwnedFd) -> Result<Socket> {
        let target = core.with_io(|io| io.open(Descriptor::Os(fd))).ok_or_else(|| gone("ioctl"))?;
        let socket = Socket { core, index: target.index };
        socket.call(|on| Call::Adopt { on })?;
        Ok(socket)
    }

    /// Returns the socket of an accepted connection.
    pub(super) fn accepted(core: &Rc<Core>, target: Target) -> Socket {
        Socket { core: Rc::clone(core), index: target.index }
    }

    /// Returns what tells this socket from the others that are open: its runtime's address, and its place
    /// there.
    #[inline]
    pub(super) fn place(&self) -> (usize, u32) {
        (Rc::as_ptr(&self.core).addr(), self.index)
    }

    pub(super) fn core(&self) -> &Rc<Core> {
        &self.core
    }

    pub(super) fn call<'a>(&self, call: impl FnOnce(Target) -> Call<'a>) -> Result<Answer> {
        let mut name = "";
        let called = self.with_io(|io, index| {
            let call = call(io.table.target(index));
            name = call.name();
            io.call(call)
        });
        called.unwrap_or_else(|| Err(gone(name)))
    }

    /// Calls `work` with the entry; `None` after the runtime's shutdown.
    #[inline]
    pub(super) fn with_io<R>(&self, work: impl FnOnce(&mut Io, u32) -> R) -> Option<R> {
        let index = self.index;
        self.core.with_io(|io| work(io, index))
    }

    /// Calls `work` with the entry, for a future that is polled. An error means that the I/O is not
    /// available; the operation was not polled.
    #[inline]
    pub(super) fn poll<R>(
        &self,
        kind: Kind,
        waker: &Waker,
        work: impl FnOnce(&mut Io, u32, &Caller<'_>) -> R,
    ) -> Result<R> {
        let index = self.index;
        let polled = self.core.poll_io(waker, |io, caller| work(io, index, caller));
        polled.map_err(|why| without_io(kind.name(), why))
    }

    /// Returns the error of a failed operation.
    #[cold]
    pub(super) fn error(&self, kind: Kind, errno: i32) -> Error {
        self.with_io(|io, index| io.error(kind, index, errno)).unwrap_or_else(|| gone(kind.name()))
    }

    pub(super) fn local_addr<F: Family>(&self) -> Result<F::Address> {
        self.name::<F>(|on| Call::LocalName { on })
    }

    pub(super) fn peer_addr<F: Family>(&self) -> Result<F::Address> {
        self.name::<F>(|on| Call::PeerName { on })
    }

    fn name<F: Family>(&self, call: impl FnOnce(Target) -> Call<'static>) -> Result<F::Address> {
        match self.call(call)? {
            Answer::Name(name) => F::of(name).ok_or_else(|| Error::errno("getsockname", libc::EAFNOSUPPORT)),
            other => unreachable!("a name, not {other:?}"),
        }
    }

    pub(super) fn peer_credentials(&self) -> Result<Credentials> {
        match self.call(|on| Call::PeerCredentials { on })? {
            Answer::Credentials(credentials) => Ok(credentials),
            other => unreachable!("credentials, not {other:?}"),
        }
    }

    pub(super) fn change_groups(&self, membership: Membership) -> Result<()> {
        let changed = self.call(|on| Call::Group { on, membership });
        changed.map(|_| ()).map_err(|why| why.on(membership.group))
    }

    /// Drops it, and waits until it is closed.
    pub(super) async fn close(self) {
        let core = Rc::clone(&self.core);
        let closed = self.with_io(|io, index| io.table.target(index));
        drop(self);
        if let Some(target) = closed {
            // From another runtime there is no way to wait: it is closed as soon as its own runtime runs.
            poll_fn(|context| {
                core.poll_io(context.waker(), |io, caller| io.poll_closed(target, caller))
                    .unwrap_or(Poll::Ready(()))
            })
            .await;
        }
    }

    pub(super) fn set(&self, option: SocketOption) -> Result<()> {
        let set = self.call(|on| Call::SetOption { on, option });
        set.map(|_| ()).map_err(|why| why.on(option.name()))
    }

    pub(super) fn get(&self, option: SocketOption) -> Result<SocketOption> {
        match self.call(|on| Call::GetOption { on, option }).map_err(|why| why.on(option.name()))? {
            Answer::Option(option) => Ok(option),
            other => unreachable!("an option, not {other:?}"),
        }
    }

    pub(super) fn shutdown(&self, how: Shutdown) -> Result<()> {
        self.call(|on| Call::Shutdown { on, how }).map(|_| ())
    }

    /// Returns another descriptor of the socket.
    pub(super) fn duplicate(&self) -> Result<OwnedFd> {
        let duplicated = self.with_io(|io, index| match io.table.entry(index).descriptor() {
            Some(Descriptor::Os(fd)) => fd.try_clone().map_err(|why| Error::new("fcntl", why)),
            Some(Descriptor::Direct(_)) => Err(Error::errno("fcntl", libc::EOPNOTSUPP).hint(DIRECT)),
            _ => Err(Error::errno("fcntl", libc::EOPNOTSUPP).hint("a simulated socket has no descriptor")),
        });
        duplicated.ok_or_else(|| gone("fcntl"))?
    }

    /// See [`Stream::into_direct`](super::TcpStream::into_direct).
    pub(super) fn make_direct(&self) -> Result<()> {
        self.with_io(|io, index| io.make_direct(index)).ok_or_else(|| gone("into_direct"))?
    }

    pub(super) fn is_direct(&self) -> bool {
        self.with_io(|io, index| io.table.target(index).is_direct()).unwrap_or(false)
    }

    /// Takes the descriptor out of its runtime, if `is_free` returns that nothing would be lost; in blocking
    /// mode if asked for.
    pub(super) fn take_out(&mut self, is_free: impl Fn(&Entry) -> bool, blocking: bool) -> Result<OwnedFd> {
        let taken = self.with_io(|io, index| {
            let direct = io.table.target(index).is_direct();
            io.take_out(index, is_free, blocking).map_err(|errno| match Error::errno("into_std", errno) {
                error if direct => error.hint(DIRECT),
                error => error,
            })
        });
        let fd = taken.ok_or_else(|| gone("into_std"))??;
        // The entry was freed, and may soon belong to another socket.
        self.index = NONE;
        Ok(fd)
    }

    /// Takes the socket out of its runtime, with everything that was received. See
    /// [`Detached`](super::Detached).
    pub(super) async fn detach(mut self) -> Result<Loose> {
        let begun = self.with_io(|io, index| match io.table.target(index).is_direct() {
            true => Err(Error::errno("detach", libc::EOPNOTSUPP).by(io.driver_name()).hint(DIRECT)),
            false => {
                io.begin_to_leave(index);
                Ok(())
            }
        });
        begun.ok_or_else(|| gone("detach"))??;
        let loose = poll_fn(|context| {
            let left = self.core.poll_io(context.waker(), |io, caller| io.poll_leave(self.index, caller));
            left.map_or_else(|why| Poll::Ready(Err(without_io("detach", why))), |left| left.map(Ok))
        });
        let loose = loose.await?;
        // The entry was freed, and may already belong to another socket.
        self.index = NONE;
        Ok(loose)
    }

    /// Attaches it to this runtime; on an error it is returned.
    pub(super) fn attach(core: Rc<Core>, loose: Loose) -> std::result::Result<Socket, (Error, Loose)> {
        let mut loose = Some(loose);
        let arrived = core.with_io(|io| loose.take().map(|loose| io.arrive(loose))).flatten();
        match (arrived, loose) {
            (Some(Ok(target)), _) => Ok(Socket { core, index: target.index }),
            (Some(Err(why)), _) => Err(why),
            (None, Some(loose)) => Err((gone("attach"), loose)),
            (None, None) => unreachable!("the call that answers takes it"),
        }
    }

    pub(super) fn canceller(&self, stops: bool) -> Canceller {
        let target = self.with_io(|io, index| io.table.target(index));
        Canceller { core: Rc::clone(&self.core), target: target.unwrap_or(Target::NONE), stops }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // After the runtime's shutdown everything is closed.
        if self.index != NONE {
            self.with_io(Io::close);
        }
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Socket").field(&self.index).finish()
    }
}

/// Cancels operations that another task waits for on a socket, without owning it.
///
/// A cancelled operation returns its true outcome: its result if it completed first, else ECANCELED
/// ([`Error::is_cancelled`]). On a stream this cancels the operations that are awaited now; later ones are
/// not affected, so that a loop of operations also needs a mark of its own: the cancel may come just after
/// one has completed. On a listener it is permanent: connections that the kernel has already accepted are
/// still returned, then accept fails with ECANCELED.
#[derive(Clone)]
pub struct Canceller {
    core: Rc<Core>,
    target: Target,
    stops: bool,
}

impl Canceller {
    /// Requests the cancel. Has no effect if the socket is closed.
    pub fn cancel(&self) {
        self.core.with_io(|io| io.cancel(self.target, self.stops));
    }

    /// Returns the address of the stream's peer, without owning the stream (`getpeername(2)`).
    ///
    /// # Errors
    /// ENOTCONN: the stream is closed, its peer has closed, or the socket is a listener. EAFNOSUPPORT: a Unix
    /// socket. EOPNOTSUPP: the stream is direct.
    pub fn peer_addr(&self) -> Result<SocketAddr> {
        self.name("getpeername", |on| Call::PeerName { on })
    }

    /// Returns the stream's own address, without owning the stream (`getsockname(2)`).
    ///
    /// # Errors
    /// ENOTCONN: the stream is closed. EAFNOSUPPORT: a Unix socket. EOPNOTSUPP: the stream is direct.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        self.name("getsockname", |on| Call::LocalName { on })
    }

    fn name(&self, what: &'static str, call: impl FnOnce(Target) -> Call<'static>) -> Result<SocketAddr> {
        let asked = self.core.with_io(|io| match io.table.is_open(self.target) {
            // Its number may have changed.
            true => io.call(call(io.table.target(self.target.index))),
            false => Err(Error::errno(what, libc::ENOTCONN).hint("the stream is closed")),
        });
        match asked.unwrap_or_else(|| Err(gone(what)))? {
            Answer::Name(Address::Inet(name)) => Ok(name),
            Answer::Name(_) => Err(Error::errno(what, libc::EAFNOSUPPORT)),
            other => unreachable!("a name, not {other:?}"),
        }
    }
}

impl fmt::Debug for Canceller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Canceller").field(&self.target.index).finish()
    }
}

const _: () = assert!(size_of::<Socket>() == 16);
