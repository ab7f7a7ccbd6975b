//! Listening sockets of any family, and accepting.

use super::Canceller;
use super::family::Family;
use super::socket::Socket;
use super::stream::Stream;
use crate::descriptor::Entry;
use crate::error::{Error, Result};
use crate::exec::Core;
use crate::op::Kind;
use std::future::Future;
use std::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A listening socket: a [`TcpListener`](super::TcpListener) or a [`UnixListener`](super::UnixListener).
#[derive(Debug)]
pub struct Listener<F> {
    socket: Socket,
    family: PhantomData<fn() -> F>,
}

impl<F: Family> Listener<F> {
    /// Takes over a listening socket. It becomes non-blocking, and so does every descriptor that shares it
    /// ([`try_clone`](std::net::TcpListener::try_clone), a descriptor passed by another process), because the
    /// mode belongs to the open file description. Runtimes may share a listener, also on different drivers.
    /// Do not make any of its descriptors blocking while a runtime accepts from it: the runtime's thread
    /// would sleep until the next client connects.
    ///
    /// # Errors
    /// `ioctl(2)` fails.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn from_std(listener: F::StdListener) -> Result<Listener<F>> {
        Ok(Listener::new(Socket::adopt(Core::current(F::LISTENER), listener.into())?))
    }

    pub(super) fn new(socket: Socket) -> Listener<F> {
        Listener { socket, family: PhantomData }
    }

    /// Takes a listener out of its runtime, in blocking mode, like a listener created by std (see
    /// [`from_std`](Self::from_std) if it is shared). No task may wait for it, for example after its
    /// [`Canceller`] has ended accepting. Connections in the kernel's backlog stay with it.
    ///
    /// # Errors
    /// EBUSY: an accept is in flight, or accepted connections were not taken. The listener is returned.
    pub fn into_std(self) -> std::result::Result<F::StdListener, (Error, Listener<F>)> {
        self.leave(true)
    }

    /// Does the same and leaves the socket in non-blocking mode: for a listener that shares its socket with
    /// others that still accept, since the mode is the socket's.
    ///
    /// # Errors
    /// As [`into_std`](Self::into_std).
    pub fn into_std_nonblocking(self) -> std::result::Result<F::StdListener, (Error, Listener<F>)> {
        self.leave(false)
    }

    fn leave(mut self, blocking: bool) -> std::result::Result<F::StdListener, (Error, Listener<F>)> {
        match self.socket.take_out(Entry::is_idle, blocking) {
            Ok(fd) => Ok(F::StdListener::from(fd)),
            Err(why) => Err((why, self)),
        }
    }

    /// Accepts the next connection.
    ///
    /// When no descriptor is free (EMFILE, ENFILE), accepting pauses until one is closed, or for a second;
    /// that is not an error. Connections that failed while they waited are skipped. Dropping the future loses
    /// nothing.
    ///
    /// On the threads driver an accepted connection has a reserved worker for its first wait. To wait in both
    /// directions at once it needs a second worker, which the limit may refuse
    /// ([`Builder::workers`](crate::Builder::workers)).
    ///
    /// # Errors
    /// ECANCELED after [`Canceller::cancel`]; EPERM if a security policy refuses several accepts in a row,
    /// with pauses of a second in between; EINVAL if the socket does not listen.
    pub fn accept(&mut self) -> Accept<'_, F> {
        Accept { socket: &self.socket, waits: false, family: PhantomData }
    }

    /// Returns a handle that ends accepting for good. See [`Canceller`].
    pub fn canceller(&self) -> Canceller {
        self.socket.canceller(true)
    }

    /// Returns another descriptor of this listener (`F_DUPFD_CLOEXEC`), for what has no method here: any
    /// option through `socket2::SockRef`, `ioctl(2)`, passing it to another process. Do not read from it,
    /// write to it or change its blocking mode: it shares all of that with this one.
    ///
    /// # Errors
    /// EMFILE. EOPNOTSUPP: it is direct, or simulated.
    pub fn duplicate_fd(&self) -> Result<OwnedFd> {
        self.socket.duplicate()
    }

    /// Returns the address it listens on.
    ///
    /// # Errors
    /// `getsockname(2)` fails.
    pub fn local_addr(&self) -> Result<F::Address> {
        self.socket.local_addr::<F>()
    }
}

/// Future of [`Listener::accept`].
#[must_use = "futures do nothing unless awaited"]
#[derive(Debug)]
pub struct Accept<'a, F> {
    socket: &'a Socket,
    waits: bool,
    family: PhantomData<fn() -> F>,
}

impl<F: Family> Future for Accept<'_, F> {
    type Output = Result<Stream<F>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let socket = self.socket;
        let polled = socket.poll(Kind::Accept, context.waker(), |io, index, caller| {
            let polled = io.poll_accept(index, caller);
            polled.map(|result| result.map_err(|errno| io.error(Kind::Accept, index, errno)))
        });
        let polled = match polled {
            Ok(polled) => polled,
            Err(why) => return Poll::Ready(Err(why)),
        };
        self.waits = polled.is_pending();
        polled.map(|accepted| Ok(Stream::new(Socket::accepted(socket.core(), accepted?))))
    }
}

impl<F> Drop for Accept<'_, F> {
    fn drop(&mut self) {
        if self.waits {
            self.socket.with_io(|io, index| io.leave_standing(index));
        }
    }
}
