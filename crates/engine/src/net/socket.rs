//! A socket as its owner holds it: an entry of the table that closes itself.

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

/// Owns an entry of a runtime's table of descriptors. Dropping it closes the descriptor as soon as nothing of it
/// is with the kernel.
pub(super) struct Socket {
    core: Rc<Core>,
    index: u32,
}

/// What an operation on a runtime that is gone comes to.
#[cold]
fn gone(operation: &'static str) -> Error {
    Error::errno(operation, libc::ECANCELED).hint("the runtime has been shut down")
}

/// What one comes to whose runtime cannot do it.
#[cold]
fn without_io(operation: &'static str, why: NoIo) -> Error {
    let NoIo::Elsewhere { home, here } = why else { return gone(operation) };
    let why =
        format!("the socket is of runtime {home}, and polled in runtime {here}, where nothing of it happens");
    Error::new(operation, io::Error::new(io::ErrorKind::InvalidInput, why))
        .hint("poll it where it was made, or take it along with `detach` and `attach`")
}

impl Socket {
    /// Makes one for addresses like this one.
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

    /// Makes two Unix sockets that are each other's peers.
    pub(super) fn pair(core: Rc<Core>, carries: Carries) -> Result<(Socket, Socket)> {
        let made = core.with_io(|io| match io.call(Call::Pair { carries })? {
            Answer::Pair(one, other) => Ok((io.open(one), io.open(other))),
            other => unreachable!("a pair is two descriptors, not {other:?}"),
        });
        let (one, other) = made.unwrap_or_else(|| Err(gone("socketpair")))?;
        let socket = |target: Target| Socket { core: Rc::clone(&core), index: target.index };
        Ok((socket(one), socket(other)))
    }

    /// Takes over one that was made elsewhere.
    pub(super) fn adopt(core: Rc<Core>, fd: OwnedFd) -> Result<Socket> {
        let target = core.with_io(|io| io.open(Descriptor::Os(fd))).ok_or_else(|| gone("fcntl"))?;
        let socket = Socket { core, index: target.index };
        socket.call(|on| Call::Adopt { on })?;
        Ok(socket)
    }

    /// One that an accept brought.
    pub(super) fn accepted(core: &Rc<Core>, target: Target) -> Socket {
        Socket { core: Rc::clone(core), index: target.index }
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

    /// Works on the entry; `None` if the runtime is gone.
    #[inline]
    pub(super) fn with_io<R>(&self, work: impl FnOnce(&mut Io, u32) -> R) -> Option<R> {
        let index = self.index;
        self.core.with_io(|io| work(io, index))
    }

    /// Works on the entry for a future that is polled. An error is the operation's, which has not been looked at.
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

    /// What a failed operation is told as.
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
            // In another runtime there is nothing to wait for: it is closed as soon as its own one runs.
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

    /// See [`Stream::into_direct`](super::TcpStream::into_direct).
    pub(super) fn make_direct(&self) -> Result<()> {
        self.with_io(|io, index| io.make_direct(index)).ok_or_else(|| gone("into_direct"))?
    }

    pub(super) fn is_direct(&self) -> bool {
        self.with_io(|io, index| io.table.target(index).is_direct()).unwrap_or(false)
    }

    /// Out of its runtime, if `is_free` says that nothing of it would be lost.
    pub(super) fn take_out(&mut self, is_free: impl Fn(&Entry) -> bool) -> Result<OwnedFd> {
        let taken = self.with_io(|io, index| {
            let direct = io.table.target(index).is_direct();
            io.take_out(index, is_free).map_err(|errno| match Error::errno("into_std", errno) {
                error if direct => error.hint(DIRECT),
                error => error,
            })
        });
        let fd = taken.ok_or_else(|| gone("into_std"))??;
        // The entry is gone, and perhaps somebody else's soon.
        self.index = NONE;
        Ok(fd)
    }

    /// Out of its runtime, with all that was received. See [`Detached`](super::Detached).
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
        // The entry is gone, and perhaps somebody else's already.
        self.index = NONE;
        Ok(loose)
    }

    /// Into this runtime. Comes back if that cannot be.
    pub(super) fn attach(core: Rc<Core>, loose: Loose) -> std::result::Result<Socket, (Error, Loose)> {
        let mut loose = Some(loose);
        let arrived = core.with_io(|io| loose.take().map(|loose| io.arrive(loose))).flatten();
        match (arrived, loose) {
            (Some(Ok(target)), _) => Ok(Socket { core, index: target.index }),
            (Some(Err(why)), _) => Err(why),
            (None, Some(loose)) => Err((gone("attach"), loose)),
            (None, None) => unreachable!("it is taken by who answers"),
        }
    }

    pub(super) fn canceller(&self, stops: bool) -> Canceller {
        let target = self.with_io(|io, index| io.table.target(index));
        Canceller { core: Rc::clone(&self.core), target: target.unwrap_or(Target::NONE), stops }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // On a runtime that is gone everything is closed.
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

/// Ends what somebody else waits for on a socket, without owning it.
///
/// A cancelled operation tells its true outcome: what it has done if it was faster, else ECANCELED
/// ([`Error::is_cancelled`]). On a stream this ends the operations that are awaited now, and later ones are not
/// affected. On a listener it is for good: connections the kernel had already handed over are still accepted,
/// then accept says ECANCELED.
#[derive(Clone)]
pub struct Canceller {
    core: Rc<Core>,
    target: Target,
    stops: bool,
}

impl Canceller {
    /// Asks for the end. Does nothing if the socket is closed.
    pub fn cancel(&self) {
        self.core.with_io(|io| io.cancel(self.target, self.stops));
    }

    /// The address of the stream's peer, without owning the stream (`getpeername(2)`).
    ///
    /// # Errors
    /// ENOTCONN: the stream is closed, or its peer has gone; or this is a listener's. EAFNOSUPPORT: of a Unix socket.
    /// EOPNOTSUPP: the stream is direct.
    pub fn peer_addr(&self) -> Result<SocketAddr> {
        let asked = self.core.with_io(|io| match io.table.is_open(self.target) {
            // Its number may be another by now.
            true => io.call(Call::PeerName { on: io.table.target(self.target.index) }),
            false => Err(Error::errno("getpeername", libc::ENOTCONN).hint("the stream is closed")),
        });
        match asked.unwrap_or_else(|| Err(gone("getpeername")))? {
            Answer::Name(Address::Inet(name)) => Ok(name),
            Answer::Name(_) => Err(Error::errno("getpeername", libc::EAFNOSUPPORT)),
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
